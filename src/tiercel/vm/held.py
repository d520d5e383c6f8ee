"""What a frame holds at the head of a loop, as arguments of compiled passes, and what passes do to it.

In: the registers of a frame, the facts of the loop, the form that is compiled. Out: `Held`, the arguments for some
passes; and `commit`, which makes the frame what the interpreter would have made of it.

Invariant: what passes change is stored without a place in between where Python would handle a signal, so a
`KeyboardInterrupt` finds the frame before or after a run, never in between.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from tiercel.bytecode.program import UNBOUND
from tiercel.compiler.environment import Condition, read
from tiercel.compiler.loop_facts import LoopFacts
from tiercel.compiler.trace.loop_region import LoopRegion, Passes
from tiercel.values.tensor import Tensor
from tiercel.vm.dispatch import signature_of
from tiercel.vm.passes import Over, over

__all__ = ["Held", "apart", "commit", "hold"]


@dataclass(slots=True)
class Held:
    """What a frame holds for a loop.

    Attributes:
        values: of the registers in `LoopFacts.inputs`; an empty list for one that grows.
        over: what a `for` has left; None for `while`.
        left: passes that are left; -1 for `while`.
    """

    values: tuple[Any, ...]
    over: Over | None
    left: int

    @property
    def form(self) -> Passes:
        """What the loop goes over, see `compiler.trace.loop_region.Passes`."""
        return ("while",) if self.over is None else self.over.form

    @property
    def key(self) -> Any:
        """What a compiled form is keyed by: kinds, never sizes."""
        items = self.over.values(self.left) if self.over is not None and self.over.whole else ()
        return (self.form, *map(_kind, self.values), *map(_kind, items))

    def arguments(self, passes: int) -> tuple[Any, ...]:
        """The arguments of the region for so many passes."""
        return (*self.values, *((passes,) if self.over is None else self.over.values(passes)))


def hold(facts: LoopFacts, registers: list[Any]) -> Held | None:
    """Return what a frame holds; None if its iterator is not understood, or not the loop's alone."""
    rest = None
    if facts.iterator is not None:
        rest = over(registers, facts.iterator)
        if rest is None:
            return None
    values = [registers[r] for r in facts.inputs]
    for i, register in enumerate(facts.inputs):
        if register in facts.grows and type(values[i]) is list:
            values[i] = []  # not looked at
    return Held(tuple(values), rest, -1 if rest is None else rest.left)


def _kind(value: Any) -> Any:
    return "unbound" if value is UNBOUND else signature_of(value)


def apart(
    traced: LoopRegion,
    arguments: tuple[Any, ...],
    registers: Sequence[Any],
    rest: Over | None,
    conditions: Mapping[Any, Condition],
    functions: Mapping[int, FunctionType],
) -> bool:
    """Whether arrays that are written and lists that grow are reached through no other input.

    Args:
        traced: the form that is compiled.
        arguments: of the passes.
        registers: of the frame.
        rest: what the loop goes over.
        conditions, functions: of its environment.
    """
    lists = [registers[r] for r in traced.lists]
    globals_ = {id(f.__globals__): f.__globals__ for f in functions.values()}
    if lists:
        guarded = [c.expected for c in conditions.values() if c.what == "identity"]
        try:
            guarded += [
                read(c.source, arguments, globals_, dict(functions))
                for c in conditions.values() if c.what == "class" and c.expected in (list, tuple)
            ]  # fmt: skip
        except Exception:  # noqa: BLE001 - the entry reads it again, and misses
            return False
        holders = (arguments, guarded, lists, rest.held if rest is not None else ())
        if any(type(x) is not list or sum(_mentions(h, x) for h in holders) > 1 for x in lists):
            return False
    if not traced.written:
        return True
    targets = [registers[r] for r in traced.written]
    for target in targets:
        if type(target) is not np.ndarray or not target.flags.writeable or not target.flags.c_contiguous:
            return False
    found = []
    for given in traced.region.inputs:
        try:
            value = read(given.source, arguments, globals_, dict(functions))
        except Exception:  # noqa: BLE001 - the entry reads it again, and misses
            return False
        array = value._array if isinstance(value, Tensor) else value
        if isinstance(array, np.ndarray):
            found.append(array)
    return all(sum(np.may_share_memory(target, other) for other in found) <= 1 for target in targets)


def _mentions(holder: Any, wanted: object) -> int:
    """How often a list is reached through tuples, lists and dicts."""
    if holder is wanted:
        return 1
    kind = type(holder)
    if kind in (tuple, list):
        return sum(_mentions(item, wanted) for item in holder[:256])
    if kind is dict:
        return sum(_mentions(item, wanted) for item in holder.values())
    return 0


def commit(
    facts: LoopFacts, traced: LoopRegion, result: tuple[Any, ...], registers: list[Any], count: int, rest: Over | None,
    passes: int,
) -> None:  # fmt: skip
    """Store what some passes did to a frame, at once.

    Args:
        facts, traced: of the loop, and of the form that ran.
        result: of the region.
        registers: of the frame, whose first `count` are those of the function.
        rest: what the loop went over.
        passes: that were made, at least one.
    """
    new = registers[:count]
    steps: list[Any] = []
    for register, position in traced.written.items():
        steps.append(partial(operator.setitem, registers[register], Ellipsis, result[position]))
    for register, grown in traced.lists.items():
        whole = result[grown.position]
        elements = list(whole) if grown.scalars else [whole[i, ...].copy() for i in range(len(whole))]
        if grown.first >= 0:
            elements[0] = registers[grown.first]
        steps.append(partial(registers[register].extend, elements))
        for holder, owner in traced.last.items():
            if owner == register:
                new[holder] = elements[-1]
    for register, position in traced.values.items():
        new[register] = result[position]
    for register, holder in traced.same.items():
        new[register] = new[holder]
    for register, value in traced.objects.items():
        new[register] = value
    if rest is not None and facts.iterator is not None:
        if facts.item is not None and facts.item in facts.results and facts.item not in traced.values:
            new[facts.item] = rest.item(passes - 1)
        new[facts.iterator] = rest.rest(passes)
    steps.append(partial(operator.setitem, registers, slice(0, count), new))
    # No code of Python's runs between these steps, so no signal is handled between them.
    deque(map(operator.call, steps), maxlen=0)
