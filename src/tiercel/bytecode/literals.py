"""Constants as text, and the scanner that reads the text form.

In: a constant, or a place in a text. Out: the other. The notation is Python's where Python has one; beyond it:

=======================  =====================================================
`[1:2]`, `[:]`           a slice, also inside tuples: `([:], 0)`
`complex(1.0, -0.0)`     a complex number by its parts
`inf`, `nan`             floats; `nan_0x7ff8000000000001` is a NaN by its bits
`dtype(float32)`         an `np.dtype`; `DType(float32)` one of Tiercel's
`@name`, `@'any name'`   an object known by name
`UNBOUND`                the value of a variable that has none
=======================  =====================================================

Invariant: `parse_literal(print_literal(x))` has the same `constant_key` as x. Nothing here evaluates text: it is read
by a scanner with bounded nesting, so any text is either parsed or refused.
"""

from __future__ import annotations

import math
import re
import struct
from typing import Any, Final, NoReturn, final

import numpy as np

from tiercel.bytecode.constants import MAX_INT_BYTES, MAX_NESTING, UNBOUND, ObjectRef
from tiercel.dtypes import DType, as_dtype
from tiercel.errors import BytecodeError, DTypeError

__all__ = ["Scanner", "parse_literal", "parse_string", "print_literal", "print_name"]

_SPACE: Final = re.compile(r"[ \t]*")
_PATH: Final = re.compile(r"(?:\d+:)?[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_WORD: Final = re.compile(r"[^\W\d]\w*")
_NUMBER: Final = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)")
_STRING: Final = re.compile(r"(b?)(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")")
_ESCAPE: Final = re.compile(
    r"\\(?:([\\'\"nrtabfv0])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.?))", re.DOTALL
)
_SIMPLE_ESCAPES: Final = {
    "\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v",
    "0": "\0",
}  # fmt: skip
_NAN_BITS: Final = struct.pack("<d", math.nan)


@final
class Scanner:
    """A position in one line of text.

    Args:
        text: the line, without its end.
        line: its number, for errors.
    """

    __slots__ = ("line", "pos", "text")

    def __init__(self, text: str, line: int = 0) -> None:
        self.text = text
        self.line = line
        self.pos = 0

    def fail(self, reason: str, at: int | None = None) -> NoReturn:
        """Raise the refusal, with the line and a caret below the place."""
        at = self.pos if at is None else at
        start = max(0, at - 60)
        shown = self.text[start : at + 40].expandtabs(1)
        raise BytecodeError(
            reason, section=f"text line {self.line}", offset=at, neighbourhood=(shown, " " * (at - start) + "^")
        )

    def skip(self) -> None:
        """Skip blanks."""
        match = _SPACE.match(self.text, self.pos)
        assert match is not None
        self.pos = match.end()

    def at_end(self) -> bool:
        """Whether only blanks or a comment are left."""
        self.skip()
        return self.pos >= len(self.text) or self.text[self.pos] == ";"

    def try_text(self, text: str) -> bool:
        """Skip blanks and then `text`, if it is there. A word must end where `text` ends."""
        self.skip()
        end = self.pos + len(text)
        if not self.text.startswith(text, self.pos):
            return False
        if text[-1:].isalnum() and end < len(self.text) and (self.text[end].isalnum() or self.text[end] == "_"):
            return False
        self.pos = end
        return True

    def expect(self, text: str) -> None:
        """Skip blanks and `text`; refuse anything else."""
        if not self.try_text(text):
            self.fail(f"expected {text!r}")

    def try_match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Skip blanks and return the match here, having skipped it, or None."""
        self.skip()
        match = pattern.match(self.text, self.pos)
        if match is not None:
            self.pos = match.end()
        return match

    def number(self, what: str) -> int:
        """Read an integer."""
        self.skip()
        start = self.pos
        match = self.try_match(_NUMBER)
        if match is None:
            self.fail(f"expected {what}, a number")
        value = _parse_number(self, match.group(), start)
        if not isinstance(value, int):
            self.fail(f"expected {what}, an integer", start)
        return value

    def word(self, what: str) -> str:
        """Read an identifier."""
        match = self.try_match(_WORD)
        if match is None:
            self.fail(f"expected {what}")
        return match.group()

    def name(self, what: str) -> str:
        """Read a name: a dotted path, or any text in quotes."""
        match = self.try_match(_PATH)
        if match is not None:
            return match.group()
        self.skip()
        if self.text[self.pos : self.pos + 1] in ("'", '"'):
            return parse_string(self, what)
        self.fail(f"expected {what}: a name, or text in quotes")

    def finish(self) -> None:
        """Refuse anything but blanks and a comment."""
        if not self.at_end():
            self.fail("expected the end of the line")


def print_name(name: str) -> str:
    """Return a name as the text form writes it: bare if it is a dotted path, else in quotes."""
    return name if _PATH.fullmatch(name) and name.isprintable() else repr(name)


def print_literal(value: object) -> str:
    """Return the text of a constant.

    Raises:
        BytecodeError: an array (which has no literal) or no constant at all.
    """
    if value is None or value is UNBOUND or value is True or value is False:
        return repr(value)
    if value is Ellipsis:
        return "Ellipsis"
    if type(value) is int:
        return repr(value) if value.bit_length() <= 64 else hex(value)
    if type(value) is float:
        if math.isnan(value):
            bits = struct.pack("<d", value)
            return "nan" if bits == _NAN_BITS else f"nan_0x{int.from_bytes(bits, 'little'):016x}"
        return repr(value)
    if type(value) is complex:
        return f"complex({print_literal(value.real)}, {print_literal(value.imag)})"
    if type(value) in (str, bytes):
        return repr(value)
    if type(value) is tuple:
        return f"({', '.join(map(print_literal, value))}{',' if len(value) == 1 else ''})"
    if type(value) is slice:
        start, stop, step = (
            "" if part is None else print_literal(part) for part in (value.start, value.stop, value.step)
        )
        return f"[{start}:{stop}{':' + step if step else ''}]"
    if isinstance(value, DType):
        return f"DType({value.name})"
    if isinstance(value, np.dtype):
        return f"dtype({as_dtype(value).name})"
    if isinstance(value, ObjectRef):
        return f"@{print_name(value.name)}"
    raise BytecodeError(f"a value of type {type(value).__name__} has no literal")


def parse_literal(scanner: Scanner, depth: int = 0) -> Any:
    """Read one constant.

    Raises:
        BytecodeError: there is none, or it is nested too deep.
    """
    if depth > MAX_NESTING:
        scanner.fail(f"constants may be nested {MAX_NESTING} deep")
    scanner.skip()
    start = scanner.pos
    head = scanner.text[start : start + 1]
    if head == "(":
        return _parse_tuple(scanner, depth)
    if head == "[":
        return _parse_slice(scanner, depth)
    if head == "@":
        scanner.pos += 1
        return ObjectRef(scanner.name("the name of an object"))
    match = _STRING.match(scanner.text, start)
    if match is not None:
        if match.group(1):
            scanner.pos = match.end()
            return _unescape_bytes(scanner, match.group(2) or match.group(3) or "", start)
        return parse_string(scanner, "a string")
    match = _NUMBER.match(scanner.text, start)
    if match is not None:
        scanner.pos = match.end()
        return _parse_number(scanner, match.group(), start)
    negative = scanner.try_text("-")
    word = scanner.try_match(_WORD)
    if word is not None:
        return _parse_word(scanner, word.group(), negative, start)
    scanner.fail("expected a constant", start)


def parse_string(scanner: Scanner, what: str) -> str:
    """Read text in quotes."""
    scanner.skip()
    start = scanner.pos
    match = _STRING.match(scanner.text, start)
    if match is None or match.group(1):
        scanner.fail(f"expected {what} in quotes", start)
    scanner.pos = match.end()
    body = match.group(2) if match.group(2) is not None else match.group(3)
    return _unescape(scanner, body or "", start)


_WORDS: Final[dict[str, Any]] = {
    "None": None,
    "True": True,
    "False": False,
    "Ellipsis": Ellipsis,
    "UNBOUND": UNBOUND,
}


def _parse_word(scanner: Scanner, word: str, negative: bool, start: int) -> Any:
    if word == "inf":
        return -math.inf if negative else math.inf
    if negative:
        scanner.fail("expected a number after '-'", start)
    if word in _WORDS:
        return _WORDS[word]
    if word == "nan":
        return math.nan
    if word.startswith("nan_0x"):
        return _parse_nan(scanner, word[6:], start)
    if word == "complex":
        scanner.expect("(")
        real = parse_literal(scanner, MAX_NESTING)
        scanner.expect(",")
        imag = parse_literal(scanner, MAX_NESTING)
        scanner.expect(")")
        if type(real) is not float or type(imag) is not float:
            scanner.fail("the parts of a complex number are floats", start)
        # complex(real, imag) would lose the sign of a zero real part for some inputs.
        return complex(real, imag)
    if word in ("dtype", "DType"):
        scanner.expect("(")
        name = scanner.word("the name of a dtype")
        scanner.expect(")")
        try:
            found = as_dtype(name)
        except DTypeError as e:
            scanner.fail(str(e), start)
        return found if word == "DType" else found.numpy
    scanner.fail(f"{word!r} is no constant", start)


def _parse_nan(scanner: Scanner, digits: str, start: int) -> float:
    if not re.fullmatch("[0-9a-f]{16}", digits):
        scanner.fail("the bits of a NaN are 16 digits", start)
    value: float = struct.unpack(">d", bytes.fromhex(digits))[0]
    if not math.isnan(value):
        scanner.fail("these are the bits of no NaN", start)
    return value


def _parse_number(scanner: Scanner, text: str, start: int) -> int | float:
    if "0x" in text:
        if len(text) > 2 * MAX_INT_BYTES:
            scanner.fail(f"int constants have at most {MAX_INT_BYTES} bytes", start)
        return int(text, 16)
    if "." in text or "e" in text or "E" in text:
        return float(text)
    if len(text) > 4000:
        scanner.fail("an integer of more than 4000 digits is written in hexadecimal", start)
    return int(text)


def _parse_tuple(scanner: Scanner, depth: int) -> tuple[Any, ...]:
    scanner.expect("(")
    items: list[Any] = []
    while not scanner.try_text(")"):
        items.append(_nested(scanner, depth))
        if not scanner.try_text(","):
            scanner.expect(")")
            if len(items) == 1:
                scanner.fail("a tuple of one item needs a comma", scanner.pos - 1)
            break
    return tuple(items)


def _parse_slice(scanner: Scanner, depth: int) -> slice:
    scanner.expect("[")
    parts: list[Any] = [None, None, None]
    position = 0
    while not scanner.try_text("]"):
        if scanner.try_text(":"):
            position += 1
            if position > 2:
                scanner.fail("a slice has at most three parts")
        elif parts[position] is not None:
            scanner.fail("expected ':' or ']'")
        else:
            parts[position] = _nested(scanner, depth)
    if position == 0:
        scanner.fail("a slice has a ':'")
    return slice(*parts)


def _nested(scanner: Scanner, depth: int) -> Any:
    start = scanner.pos
    value = parse_literal(scanner, depth + 1)
    if isinstance(value, ObjectRef):
        scanner.fail("an object known by name cannot be part of a constant", start)
    return value


def _unescape(scanner: Scanner, body: str, start: int) -> str:
    if "\\" not in body:
        return body

    def one(match: re.Match[str]) -> str:
        simple, x, u, long, other = match.groups()
        if simple is not None:
            return _SIMPLE_ESCAPES[simple]
        if other is not None:
            scanner.fail(f"unknown escape \\{other}", start)
        code = int(x or u or long, 16)
        if code > 0x10FFFF:
            scanner.fail(f"\\U{long} is no character", start)
        return chr(code)

    return _ESCAPE.sub(one, body)


def _unescape_bytes(scanner: Scanner, body: str, start: int) -> bytes:
    text = _unescape(scanner, body, start)
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        scanner.fail("bytes hold characters up to \\xff only", start)
