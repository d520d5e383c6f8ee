"""Writes into arrays that the region made itself, as new values.

In: the array that is written, and the value it becomes. Out: every holder of the array holds the new value; every
holder of something that may share its memory is lost, and the trace ends where a lost one is used.

Invariants: only an array that no argument and no hidden input can be is written; a view is never written by itself.
Because values are replaced and not changed, nothing has to be said to later stages. Who may share memory is
over-estimated by `Trace.owners`. Holders are the registers and lists of all frames being walked and the items of loops
that are written out. A frame further out whose call is made in an arm or a loop cannot be told the new value, because
the arm may not be taken and the loop may not run: it loses the array.
"""

from __future__ import annotations

from dataclasses import replace

from tiercel.compiler.abstract import (
    Abstract,
    Iterable,
    ListState,
    Mapping,
    Method,
    Tuple,
    Unknown,
    Untraceable,
)
from tiercel.compiler.graph import Value
from tiercel.compiler.trace.core import FrameCore
from tiercel.operators.types import ArrayType

LOST = "an array that may share memory with one that was written"


class Writes(FrameCore):
    """Adds writes into arrays."""

    def require_own(self, target: Value) -> None:
        """Refuse to write what may be, or look into, somebody else's array.

        Raises:
            Untraceable: with what it may be.
        """
        owners = self.trace.owners_of(target)
        if owners & self.trace.outside:
            raise Untraceable("an array is written that may be an argument or a part of one")
        if target not in owners:
            raise Untraceable("a view of an array is written")

    def overwrite(self, old: Value, new: Value) -> None:
        """From now on the array `old` has the elements `new`."""
        trace = self.trace
        trace.writes += 1
        stale = trace.owners_of(old)
        trace.may_be(new, old)
        told = True
        for frame in reversed(trace.frames):
            assert isinstance(frame, Writes)
            known = new if told else None
            for register, held in frame.registers.items():
                frame.registers[register] = self.after_write(held, old, known, stale)
            for items, number, *_ in frame.unrolled:
                for later in range(number + 1, len(items)):
                    items[later] = self.after_write(items[later], old, None, stale)
            told = told and not frame.nesting
        for state in self.state.heap.values():
            self.list_after_write(state, old, new, stale)

    def list_after_write(self, state: ListState, old: Value, new: Value, stale: frozenset[Value]) -> None:
        """The content of a list after a write."""
        for content in (state.items, state.collecting or []):
            content[:] = [self.after_write(item, old, new, stale) for item in content]
        if state.held & stale:
            state.lost = "a list that a loop filled with an array that was written afterwards"

    def after_write(self, x: Abstract, old: Value, new: Value | None, stale: frozenset[Value]) -> Abstract:
        """What a holder of `x` holds after a write; `new` is None where the new value cannot be known."""
        match x:
            case Value():
                if x is old and new is not None:
                    return new
                shares = isinstance(x.type, ArrayType) and x is not new and self.trace.owners_of(x) & stale
                return Unknown(LOST) if shares else x
            case Tuple():
                items = tuple(self.after_write(item, old, new, stale) for item in x.items)
                return x if items == x.items else replace(x, items=items)
            case Mapping():
                pairs = tuple((key, self.after_write(item, old, new, stale)) for key, item in x.items)
                return x if pairs == x.items else Mapping(pairs)
            case Method():
                return replace(x, receiver=self.after_write(x.receiver, old, new, stale))
            case Iterable():
                kept = all(self.after_write(item, old, None, stale) is item for item in x.holds)
                return x if kept else Unknown("a loop over an array that was written")
        return x
