"""Constants: only those that a program mentions, in order of first mention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tiercel.bytecode.program import Function, Program, Variable

__all__ = ["drop_unused_constants"]


def drop_unused_constants(program: Program) -> Program:
    """Return the program without constants that nothing mentions, and the others numbered by first mention."""
    number: dict[int, int] = {}
    for function in program.functions:
        for operand in _mentions(function):
            number.setdefault(~operand, len(number))
    if len(number) == len(program.constants) and all(old == new for old, new in number.items()):
        return program

    def moved(operand: int) -> int:
        return ~number[~operand] if operand < 0 else operand

    def renumbered(function: Function) -> Function:
        return replace(
            function,
            instructions=tuple([ins.map_reads(moved) for ins in function.instructions]),
            parameters=tuple(
                [p if p.default is None else replace(p, default=moved(p.default)) for p in function.parameters]
            ),
            variables=tuple(
                [
                    Variable(v.name, v.start, v.end, moved(v.where)) if isinstance(v.where, int) else v
                    for v in function.variables
                ]
            ),
        )

    return replace(
        program,
        functions=tuple([renumbered(f) for f in program.functions]),
        constants=tuple([program.constants[old] for old in number]),
    )


def _mentions(function: Function) -> Iterator[int]:
    for p in function.parameters:
        if p.default is not None:
            yield p.default
    for ins in function.instructions:
        yield from (operand for operand in ins.operands_read() if operand < 0)
    for v in function.variables:
        if isinstance(v.where, int) and v.where < 0:
            yield v.where
