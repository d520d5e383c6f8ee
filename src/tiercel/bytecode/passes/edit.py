"""The one way in which passes change a function, so that targets, spans and variable locations follow.

In: a function, what to replace and what to remove. Out: the function without it. A jump to a removed instruction goes
to the next one that is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace as replace_fields
from itertools import accumulate

from tiercel.bytecode.instructions import Instruction
from tiercel.bytecode.program import Function, Variable

__all__ = ["edit", "variable_registers"]


def edit(
    function: Function,
    replace: Mapping[int, Instruction],
    remove: Collection[int] = (),
    variables: Iterable[Variable] | None = None,
) -> Function:
    """Return the function with some instructions replaced, one for one, and some removed.

    Args:
        function: to change; returned itself if nothing changes.
        replace: index to new instruction; its targets are indexes of the old function.
        remove: indexes.
        variables: new locations, in indexes of the old function; None keeps those there are.
    """
    if not replace and not remove and variables is None:
        return function
    instructions = [replace.get(i, ins) for i, ins in enumerate(function.instructions)]
    spans = function.spans
    locations = function.variables if variables is None else tuple(variables)
    if remove:
        kept = [i not in remove for i in range(len(instructions))]
        # How many instructions are kept before each index is where that index goes.
        moved = [0, *accumulate(map(int, kept))]
        instructions = [
            ins.map_targets(moved.__getitem__) for ins, keep in zip(instructions, kept, strict=True) if keep
        ]
        spans = tuple([span for span, keep in zip(spans, kept, strict=True) if keep])
        at = ((v, moved[v.start], moved[v.end]) for v in locations)
        locations = tuple([Variable(v.name, start, end, v.where) for v, start, end in at if start < end])
    return replace_fields(function, instructions=tuple(instructions), spans=spans, variables=locations)


def variable_registers(function: Function) -> frozenset[int]:
    """Return the registers that are the home of a variable or of the cell of one, parameters and cells included."""
    found = set(range(len(function.parameters) + len(function.free)))
    for v in function.variables:
        if isinstance(v.where, int):
            if v.where >= 0:
                found.add(v.where)
        elif v.where.startswith("cell:"):
            found.add(int(v.where[5:]))
    return frozenset(found)
