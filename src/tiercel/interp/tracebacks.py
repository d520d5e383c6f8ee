"""Tracebacks that show the user's frames and none of ours.

In: a traceback. Out: the same entries without those of this package. Generated blocks bear the user's file, name and
positions, so they stay; a block that runs an outlined statement gives way to the statement's own frame, which stands
for the same frame of the user's.
"""

from __future__ import annotations

import os
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final

import tiercel
from tiercel.errors import InternalError

if TYPE_CHECKING:
    from tiercel.interp.decode import Decoded

__all__ = ["INTERNAL_FILENAME", "block_of", "hide", "is_ours", "set_traceback", "trim", "trim_error"]

# File name of the dispatcher's and the wrappers' code objects. `warnings.warn(stacklevel=2)` skips frames whose file
# name contains both "importlib" and "_bootstrap" (CPython `Python/_warnings.c`, `is_internal_frame`; 3.11 to 3.14), and
# there is no other way to be skipped: so a jitted function's warning is reported at its caller, as undecorated.
INTERNAL_FILENAME: Final = "<tiercel importlib._bootstrap>"

_PACKAGE: Final = os.path.dirname(os.path.abspath(tiercel.__file__)) + os.sep


def hide(code: CodeType) -> CodeType:
    """Return the code of a function of ours that stands between a user's function and its caller."""
    return code.replace(co_filename=INTERNAL_FILENAME)


def trim(traceback: TracebackType | None, error: BaseException | None = None) -> TracebackType | None:
    """Return a traceback without our frames. With nothing else in it, or for a bug of ours, it stays whole."""
    if isinstance(error, InternalError):
        return traceback
    first: TracebackType | None = None
    last: TracebackType | None = None
    entry = traceback
    while entry is not None:
        following = entry.tb_next
        if not is_ours(entry.tb_frame) and not _is_doubled(entry, following):
            if last is None:
                first = entry
            elif last.tb_next is not entry:
                last.tb_next = entry
            last = entry
        entry = following
    if last is None:
        return traceback
    if last.tb_next is not None:
        last.tb_next = None
    return first


def trim_error(error: BaseException) -> None:
    """Cut our frames from an exception's traceback."""
    set_traceback(error, trim(error.__traceback__, error))


def set_traceback(error: BaseException, traceback: TracebackType | None) -> None:
    """Set `__traceback__`, also of an exception whose class forbids setting attributes (a frozen dataclass)."""
    BaseException.with_traceback(error, traceback)


def is_ours(frame: FrameType) -> bool:
    """Whether a frame belongs to this package and runs no user's function."""
    code = frame.f_code
    filename = code.co_filename
    if filename.startswith("<tiercel"):
        return True
    # A block decoded from a file of this package (a cell of `nn`) is a user's function like any other.
    return filename.startswith(_PACKAGE) and code.co_varnames[:1] != (".R",)


def _is_doubled(entry: TracebackType, following: TracebackType | None) -> bool:
    while following is not None and is_ours(following.tb_frame):
        following = following.tb_next
    if following is None:
        return False
    decoded = block_of(entry.tb_frame)
    return decoded is not None and id(following.tb_frame.f_code) in decoded.outlined


def block_of(frame: FrameType) -> Decoded | None:
    """Return what a frame's code was decoded from; None for frames that are no blocks."""
    if frame.f_code.co_varnames[:1] != (".R",):
        return None
    registers: list[Any] | None = frame.f_locals.get(".R")
    return registers[-1] if registers else None
