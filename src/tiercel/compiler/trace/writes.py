"""Writes into arrays, as new values.

In: the array that is written, and the value it becomes. Out: every holder of the array holds the new value; every
holder of something that may share its memory is lost, and the trace ends where a lost one is used.

Invariants: only an array that the region made, or one that surely is a certain input as it is now, is written; a view
is written through the array it was made of. Because values are replaced and not changed, nothing has to be said to
later stages, except what inputs hold at the end (`Region.writes`): until then nothing that others can see is written.
Who may share memory is over-estimated by `Trace.owners`; that two inputs share none is checked at entry. Holders are
the registers and lists of all frames being walked and the items of loops that are written out; an input itself is a
register below zero of the outermost frame. A frame further out whose call is made in an arm or a loop cannot be told
the new value, because the arm may not be taken and the loop may not run: it loses the array.
"""

from __future__ import annotations

from dataclasses import replace

from tiercel.compiler.abstract import (
    Abstract,
    Closure,
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
from tiercel.compiler.trace.state import memory_of
from tiercel.operators.types import ArrayType

LOST = "an array that may share memory with one that was written"


class Writes(FrameCore):
    """Adds writes into arrays."""

    def assign(self, target: Value, new: Value) -> Value:
        """From now on `target`, an array or a view, has the elements `new`; returns what it is from now on.

        Raises:
            Untraceable: it may be, or look into, somebody else's array.
        """
        trace = self.trace
        chain, elements = [target], [new]
        while not self.is_own(chain[-1]):
            made = trace.views.get(chain[-1])
            if made is None:
                if trace.owners_of(chain[-1]) & trace.outside:
                    raise Untraceable("an array is written that may be an argument or a part of one")
                raise Untraceable("a view of an array is written")
            base, key = made
            chain.append(base)
            elements.append(self.node("index_put", (base, elements[-1]), {"indices": key}, base.type))
        root, whole = chain[-1], elements[-1]
        trace.may_be(whole, root)
        latest = {root: whole}
        for view, base in zip(reversed(chain[:-1]), reversed(chain[1:]), strict=True):
            latest[view] = self.index_array(latest[base], trace.views[view][1])
        self.overwrite(latest, trace.owners_of(root))
        return latest[target]

    def is_own(self, target: Value) -> bool:
        """Is it surely an array that the region made, or surely a certain input?

        Raises:
            Untraceable: it is an input that cannot be written.
        """
        trace = self.trace
        number = trace.input_of(target)
        if number is not None:
            if number in trace.read_only:
                raise Untraceable("an array is written that is read-only")
            return True
        owners = trace.owners_of(target)
        return target in owners and not owners & trace.outside

    def overwrite(self, latest: dict[Value, Value], stale: frozenset[Value]) -> None:
        """Arrays and views have new values, all others that share memory with `stale` are lost."""
        trace = self.trace
        trace.writes += 1
        known = latest
        for frame in reversed(trace.frames):
            assert isinstance(frame, Writes)
            for number in range(len(trace.inputs)):
                register = memory_of(number)
                if frame is trace.frames[0] and trace.content(number) in latest:
                    frame.registers.setdefault(register, trace.content(number))
            for register, held in frame.registers.items():
                frame.registers[register] = self.after_write(held, known, stale)
            for items, number, *_ in frame.unrolled:
                for later in range(number + 1, len(items)):
                    items[later] = self.after_write(items[later], {}, stale)
            known = {} if frame.nesting else known
        for state in self.state.heap.values():
            self.list_after_write(state, latest, stale)

    def list_after_write(self, state: ListState, latest: dict[Value, Value], stale: frozenset[Value]) -> None:
        """The content of a list after a write."""
        for content in (state.items, state.collecting or []):
            content[:] = [self.after_write(item, latest, stale) for item in content]
        if state.held & stale:
            state.lost = "a list that a loop filled with an array that was written afterwards"

    def after_write(self, x: Abstract, latest: dict[Value, Value], stale: frozenset[Value]) -> Abstract:
        """What a holder of `x` holds after a write; `latest` is empty where the new values cannot be known."""
        match x:
            case Value():
                if x in latest:
                    return latest[x]
                shares = isinstance(x.type, ArrayType) and self.trace.owners_of(x) & stale
                return Unknown(LOST) if shares else x
            case Tuple():
                items = tuple(self.after_write(item, latest, stale) for item in x.items)
                return x if items == x.items else replace(x, items=items)
            case Mapping():
                pairs = tuple((key, self.after_write(item, latest, stale)) for key, item in x.items)
                return x if pairs == x.items else Mapping(pairs)
            case Method():
                return replace(x, receiver=self.after_write(x.receiver, latest, stale))
            case Closure():
                return replace(x, defaults=tuple(self.after_write(d, latest, stale) for d in x.defaults))
            case Iterable():
                kept = all(self.after_write(item, {}, stale) is item for item in x.holds)
                return x if kept else Unknown("a loop over an array that was written")
        return x
