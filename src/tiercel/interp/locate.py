"""Which instruction was executing, from a traceback.

In: a traceback and, if one function is meant, its `Decoded`. Out: the instruction index, exactly: code offsets of
generated blocks map to one instruction each (`linetable`), which source positions do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tiercel.interp.decode import Decoded
from tiercel.interp.tracebacks import block_of

__all__ = ["Place", "locate", "places"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a frame of a decoded function was: the instruction, and the frame's list `R`."""

    decoded: Decoded
    index: int
    registers: list[Any]
    entry: TracebackType


def places(traceback: TracebackType | None) -> list[Place]:
    """Return the places of all decoded functions in a traceback, outermost first."""
    found = []
    while traceback is not None:
        frame = traceback.tb_frame
        decoded = block_of(frame)
        if decoded is not None:
            index = decoded.instruction_at(frame.f_code, traceback.tb_lasti)
            if index is not None:
                found.append(Place(decoded, index, frame.f_locals[".R"], traceback))
        traceback = traceback.tb_next
    return found


def locate(decoded: Decoded, traceback: TracebackType | None) -> int | None:
    """Return the instruction that `decoded` was executing in its innermost frame of a traceback, or None."""
    return next((p.index for p in reversed(places(traceback)) if p.decoded is decoded), None)
