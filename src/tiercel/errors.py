"""The exceptions and warnings of Tiercel, and the helpers that give an exception its place in the user's source.

::

    Exception
    ├── TiercelError                        a mistake in a program, an input, a file or a setting
    │   ├── ShapeError      (+ ValueError)           a size breaks a hint, a constraint or a shape rule of ours
    │   ├── DTypeError      (+ TypeError)            a dtype breaks a hint, or is none that Tiercel has
    │   ├── BytecodeError   (+ ValueError)           a program or `.msir` file is refused
    │   ├── CaptureError    (+ NotImplementedError)  a Python construct has no bytecode form here
    │   ├── ConfigError     (+ ValueError)           a setting has a value that is not accepted
    │   │   └── UnknownSettingError (+ AttributeError)   a setting's name does not exist
    │   └── StrictError     (+ RuntimeError)         a fallback that strict mode forbids
    └── RuntimeError
        └── InternalError                   a bug of ours: never caught by `except TiercelError`

    UserWarning
    └── TiercelWarning                      something was ignored or replaced, said once
        └── TiercelPerformanceWarning       right, but slower than it could be, said once

What NumPy would raise stays NumPy's own exception; `annotate` adds a note to it. Invariant: every class here survives
`pickle` and `copy` with its fields and notes. Constructors therefore take one positional message, keep everything
else in keyword arguments with defaults, and build the text of `str()` from the fields (the default
`BaseException.__reduce__` carries the message in `args` and the fields in `__dict__`).
"""

from __future__ import annotations

import linecache
import os
import sys
import unicodedata
import warnings
from collections.abc import Sequence
from typing import Final, TypeVar

__all__ = [
    "BytecodeError",
    "CaptureError",
    "ConfigError",
    "DTypeError",
    "InternalError",
    "ShapeError",
    "StrictError",
    "TiercelError",
    "TiercelPerformanceWarning",
    "TiercelWarning",
    "UnknownSettingError",
    "annotate",
    "source_excerpt",
    "source_location",
    "suggest",
    "warn_user",
]

_E = TypeVar("_E", bound=BaseException)

# Longer source lines are shown as a window around the marked part.
_EXCERPT_WIDTH: Final = 120


class TiercelError(Exception):
    """Base of every error that a user's program, input, file or setting can cause."""


class ShapeError(TiercelError, ValueError):
    """A size breaks a hint, a declared constraint or a shape rule that NumPy has no error for."""


class DTypeError(TiercelError, TypeError):
    """A dtype breaks a hint, or a value names no dtype that Tiercel has."""


class BytecodeError(TiercelError, ValueError):
    """A program or `.msir` file is refused.

    Args:
        reason: what is wrong, with the expected and the found value.
        section: the section of the file, or the name of the function, that holds the fault.
        offset: byte offset of the fault inside the section; None where no single byte is at fault.
        neighbourhood: the instructions (or bytes, as text) around the fault, one entry a line.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        section: str | None = None,
        offset: int | None = None,
        neighbourhood: Sequence[str] = (),
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.section = section
        self.offset = offset
        self.neighbourhood = tuple(neighbourhood)

    def __str__(self) -> str:
        place = []
        if self.section is not None:
            place.append(f"section {self.section}")
        if self.offset is not None:
            place.append(f"offset 0x{self.offset:02X}")
        head = f"{', '.join(place)}: {self.reason}" if place else self.reason
        return "\n".join([head, *(f"    {line}" for line in self.neighbourhood)])


class CaptureError(TiercelError, NotImplementedError):
    """A Python construct cannot be turned into bytecode, where running it as Python is not allowed or not possible.

    Args:
        reason: which construct, and why it has no form.
        filename: source file as its code object names it.
        line: line number, from 1.
        col: start column in UTF-8 bytes, as `ast` and `co_positions` count, from 0.
        end_col: end column, exclusive; None marks one character.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        filename: str | None = None,
        line: int | None = None,
        col: int | None = None,
        end_col: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.filename = filename
        self.line = line
        self.col = col
        self.end_col = end_col

    def __str__(self) -> str:
        if self.filename is None or self.line is None:
            return self.reason
        return f"{self.reason}\n{source_location(self.filename, self.line, self.col, self.end_col)}"


class ConfigError(TiercelError, ValueError):
    """A setting was given a value that it does not accept.

    Args:
        message: what was given and what is accepted.
        setting: the setting's name.
    """

    def __init__(self, message: str = "", *, setting: str | None = None) -> None:
        super().__init__(message)
        self.setting = setting


class UnknownSettingError(ConfigError, AttributeError):
    """No setting has this name. The message suggests the nearest one."""


class StrictError(TiercelError, RuntimeError):
    """A fallback happened whose kind strict mode forbids.

    Args:
        message: what fell back, where, and how to avoid or allow it.
        kind: the ledger kind, for example "callpy".
        filename: the user's file, if known.
        line: the user's line, from 1, if known.
    """

    def __init__(
        self, message: str = "", *, kind: str | None = None, filename: str | None = None, line: int | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.filename = filename
        self.line = line


class InternalError(RuntimeError):
    """A bug in Tiercel. Deliberately no `TiercelError`: handlers for users' mistakes must not hide it.

    Args:
        message: which invariant does not hold.
        stage: the stage of the pipeline that noticed, for example "verify".
    """

    def __init__(self, message: str = "", *, stage: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.stage = stage

    def __str__(self) -> str:
        where = f" (stage: {self.stage})" if self.stage else ""
        return (
            f"{self.message}{where}\n"
            "This is a bug in Tiercel, not in your program. Please report it with the output of `tiercel doctor` and "
            "the smallest program that shows it; TIERCEL_DISABLE=1 runs the program as plain Python meanwhile."
        )


class TiercelWarning(UserWarning):
    """Something was ignored or replaced by a default; said once for each cause."""


class TiercelPerformanceWarning(TiercelWarning):
    """The result is right, but something runs slower than it could; said once for each place in the user's code."""


def annotate(exc: _E, note: str) -> _E:
    """Add `note` to an exception unless it already carries it, and return the exception.

    An exception can pass several of our frames; each may annotate it and the reader still sees each note once. An
    exception whose `__notes__` is not a list (which `add_note` refuses) is returned unchanged: a note never replaces
    the error it was meant to explain.

    Args:
        exc: any exception, NumPy's included.
        note: the text to show below the exception's message.
    """
    notes = getattr(exc, "__notes__", None)
    if notes is None or (isinstance(notes, list) and note not in notes):
        exc.add_note(note)
    return exc


def suggest(name: str, choices: Sequence[str]) -> str:
    """Return `"; did you mean 'threads'?"` for the nearest of `choices`, or an empty string if none is near.

    Upper and lower case count as the same.
    """
    import difflib

    folded = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""


def source_location(filename: str, line: int, col: int | None = None, end_col: int | None = None) -> str:
    """Return `File "name", line N` and below it the source line with carets, as Python's tracebacks print them.

    Args:
        filename, line, col, end_col: as for `source_excerpt`.
    """
    head = f'  File "{filename}", line {line}'
    excerpt = source_excerpt(filename, line, col, end_col)
    return f"{head}\n{excerpt}" if excerpt else head


def source_excerpt(filename: str, line: int, col: int | None = None, end_col: int | None = None) -> str:
    """Return the source line, indented by four spaces, and a line of carets below the marked part.

    The text comes from `linecache`, so notebook cells and other registered sources work. Columns that lie outside the
    line are clamped.

    Args:
        filename: as the code object names it.
        line: from 1.
        col: start in UTF-8 bytes from 0 (what `ast` and `co_positions` report); None for no carets.
        end_col: end in UTF-8 bytes, exclusive; None or a value not beyond `col` marks one character.

    Returns:
        One line without `col`, two with it; an empty string if the source cannot be found.
    """
    text = linecache.getline(filename, line).rstrip("\r\n")
    body = text.strip()
    if not body:
        return ""
    if col is None:
        return f"    {_clip(body, 0, len(body))[0]}"
    encoded = text.encode("utf-8", "surrogatepass")
    start = _chars(encoded, col)
    stop = _chars(encoded, end_col) if end_col is not None else start + 1
    indent = len(text) - len(text.lstrip())
    start = min(max(start - indent, 0), len(body) - 1)
    stop = min(max(stop - indent, start + 1), len(body))
    shown, start, stop = _clip(body, start, stop)
    # A tab is as wide as the terminal says, so the caret line repeats it.
    pad = "".join("\t" if c == "\t" else " " * _width(c) for c in shown[:start])
    carets = "^" * max(sum(_width(c) for c in shown[start:stop]), 1)
    return f"    {shown}\n    {pad}{carets}"


def _chars(encoded: bytes, byte_offset: int) -> int:
    return len(encoded[: max(byte_offset, 0)].decode("utf-8", "ignore"))


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _clip(body: str, start: int, stop: int) -> tuple[str, int, int]:
    if len(body) <= _EXCERPT_WIDTH:
        return body, start, stop
    first = max(0, min(start - _EXCERPT_WIDTH // 4, len(body) - _EXCERPT_WIDTH))
    last = first + _EXCERPT_WIDTH
    head = "..." if first else ""
    tail = "..." if last < len(body) else ""
    shift = len(head) - first
    return f"{head}{body[first:last]}{tail}", start + shift, min(stop, last) + shift


def warn_user(message: str, category: type[Warning] = TiercelWarning) -> None:
    """Warn at the innermost line that is not ours, so that filters and the printed place are the user's.

    Args:
        message: what happened and what to do.
        category: the class of the warning.
    """
    level = 1
    frame = sys._getframe()
    while frame is not None and _is_ours(frame.f_code.co_filename):
        level += 1
        frame = frame.f_back  # type: ignore[assignment]
    # Without a frame of the user's (an embedder, an exit handler) the outermost one has to do.
    warnings.warn(message, category, stacklevel=level if frame is not None else level - 1)


_PACKAGE: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _is_ours(filename: str) -> bool:
    # Generated functions are compiled under names such as "<tiercel f>".
    return filename.startswith((_PACKAGE, "<tiercel"))
