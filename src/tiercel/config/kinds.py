"""What a setting can hold: for each kind of value how it is read from text, checked, and written for people.

In: the text of an environment variable, or a Python value. Out: the normalised value, or a bare ValueError or
TypeError; the caller says which setting, what came, and (from `accepts`) what is accepted. Checking happens here only.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "BOOLEAN",
    "LEDGER_KINDS",
    "LEVEL",
    "STRICT",
    "ValueKind",
    "choice",
    "integer",
    "number",
    "path",
    "size",
    "text_value",
]

# What the ledger accounts for, and so what strict mode can forbid.
LEDGER_KINDS: Final = ("python", "fallback", "copy", "convert", "transfer", "demote")


@dataclass(frozen=True, slots=True)
class ValueKind:
    """What a setting accepts.

    Attributes:
        accepts: the accepted values, as words for an error message.
        parse: from the text of an environment variable; raises ValueError.
        check: from a Python value; returns the normalised value or raises ValueError or TypeError.
        show: a value as a person would write it.
    """

    accepts: str
    parse: Callable[[str], Any]
    check: Callable[[Any], Any]
    show: Callable[[Any], str] = str


_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})
_NONE: Final = frozenset({"none", "auto", "default"})


def _bool(value: Any) -> bool:
    # NumPy's bool is a bool to its user; 1 and 0 are what an environment variable holds.
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_") or (type(value) is int and value in (0, 1)):
        return bool(value)
    raise ValueError


def _parse_bool(text: str) -> bool:
    lowered = text.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError


def _show_bool(value: bool) -> str:
    return "on" if value else "off"


BOOLEAN: Final = ValueKind("True or False (in the environment 1 or 0, on or off)", _parse_bool, _bool, _show_bool)


def choice(*choices: str) -> ValueKind:
    """One of some words, in any case."""
    folded = {c.lower(): c for c in choices}

    def check(value: Any) -> str:
        found = folded.get(value.lower()) if isinstance(value, str) else None
        if found is None:
            raise ValueError
        return found

    quoted = [repr(c) for c in choices]
    return ValueKind(f"{', '.join(quoted[:-1])} or {quoted[-1]}", check, check)


def _parse_level(value: Any) -> str:
    text = f"O{value}" if type(value) is int or (isinstance(value, str) and value in ("0", "1", "2")) else value
    found = text.upper() if isinstance(text, str) else ""
    if found not in ("O0", "O1", "O2"):
        raise ValueError
    return found


LEVEL: Final = ValueKind("'O0' (interpreted), 'O1' (compiled) or 'O2' (compiled and tuned)", _parse_level, _parse_level)


def integer(low: int, high: int | None = None, *, optional: bool = False, power_of_two: bool = False) -> ValueKind:
    """An integer within bounds; with `optional`, None for automatic."""
    accepts = f"an integer from {low} to {high}" if high is not None else f"an integer of at least {low}"
    accepts += ", zero or a power of two" if power_of_two else ""
    accepts += ", or None for automatic" if optional else ""

    def check(value: Any) -> int | None:
        if value is None and optional:
            return None
        if isinstance(value, bool):
            raise ValueError
        number = int(value.__index__())
        if number < low or (high is not None and number > high):
            raise ValueError
        if power_of_two and number & (number - 1):
            raise ValueError
        return number

    def parse(text: str) -> int | None:
        return None if optional and text.lower() in _NONE else check(int(text))

    return ValueKind(accepts, parse, check, lambda v: "automatic" if v is None else str(v))


def number(low: float, unit: str) -> ValueKind:
    """A finite or infinite number of at least `low`, in `unit`."""

    def check(value: Any) -> float:
        if isinstance(value, bool | str | bytes):
            raise ValueError
        number = float(value)
        if math.isnan(number) or number < low:
            raise ValueError
        return number

    return ValueKind(
        f"a number of at least {low:g}{unit and ' '}{unit}",
        lambda text: check(float(text)),
        check,
        lambda v: f"{v:g}{unit and ' '}{unit}",
    )


_SIZE_PATTERN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)
_SIZE_UNITS: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size(*, optional: bool) -> ValueKind:
    """A number of bytes; with `optional`, None for no limit."""

    def parse(text: str) -> int | None:
        if optional and text.lower() in _NONE:
            return None
        match = _SIZE_PATTERN.fullmatch(text.strip())
        if match is None:
            raise ValueError
        return int(float(match[1]) * _SIZE_UNITS.get((match[2] or "").lower(), 1))

    def check(value: Any) -> int | None:
        if value is None and optional:
            return None
        if isinstance(value, str):
            return parse(value)
        if isinstance(value, bool) or value < 0:
            raise ValueError
        return int(value.__index__())

    def show(value: int | None) -> str:
        if value is None:
            return "unlimited"
        for letter in "tgmk":
            if value and value % _SIZE_UNITS[letter] == 0:
                return f"{value // _SIZE_UNITS[letter]} {letter.upper()}iB"
        return f"{value} B"

    accepts = "a number of bytes, also as text such as '512M' or '2GiB'" + (
        ", or None for no limit" if optional else ""
    )
    return ValueKind(accepts, parse, check, show)


def path(absent: str) -> ValueKind:
    """A path, with `~` expanded; None means `absent`."""

    def check(value: Any) -> str | None:
        if value is None or value == "":
            return None
        given = os.fspath(value)
        if not isinstance(given, str) or "\0" in given:
            raise ValueError
        return os.path.expanduser(given)

    return ValueKind(f"a path, or None for {absent}", check, check, lambda v: absent if v is None else v)


def text_value() -> ValueKind:
    """Any string."""

    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError
        return value

    return ValueKind("a string", check, check, lambda v: v or "(none)")


def _kinds(names: Iterable[str]) -> bool | frozenset[str]:
    found = frozenset(n.strip().lower() for n in names if n.strip())
    if not found <= set(LEDGER_KINDS):
        raise ValueError
    return found or False


def _check_strict(value: Any) -> bool | frozenset[str]:
    if isinstance(value, str):
        return _parse_strict(value)
    if isinstance(value, Iterable):
        return _kinds(value)
    return _bool(value)


def _parse_strict(text: str) -> bool | frozenset[str]:
    lowered = text.lower()
    return _parse_bool(text) if lowered in _TRUE | _FALSE else _kinds(text.split(","))


STRICT: Final = ValueKind(
    f"True, False, or some of the ledger kinds {', '.join(LEDGER_KINDS)} (in the environment separated by commas)",
    _parse_strict,
    _check_strict,
    lambda v: _show_bool(v) if isinstance(v, bool) else ", ".join(sorted(v)),
)
