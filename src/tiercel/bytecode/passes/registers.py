"""Register numbers: dense, in order of first mention, so that listings read well and frames are small."""

from __future__ import annotations

from dataclasses import replace

from tiercel.bytecode.constants import ConstantPool
from tiercel.bytecode.passes.edit import edit
from tiercel.bytecode.program import Function, Variable

__all__ = ["number_registers"]


def number_registers(function: Function, constants: ConstantPool) -> Function:
    """Give the registers behind parameters and cells new numbers, and drop those that nothing mentions."""
    first = len(function.parameters) + len(function.free)
    number = {r: r for r in range(first)}
    for ins in function.instructions:
        for register in (*ins.registers_read(), *ins.registers_written()):
            number.setdefault(register, len(number))
    if all(old == new for old, new in number.items()) and function.registers == len(number):
        return function
    replaced = {}
    for index, ins in enumerate(function.instructions):
        new = ins.map_reads(lambda operand: operand if operand < 0 else number[operand])
        new = new.map_writes(number.__getitem__)
        if new.opcode == "CallOp" and new.via is not None and ":" in new.via:
            root, _, path = new.via.partition(":")
            new = new.replace(via=f"{number[int(root)]}:{path}")
        if new is not ins:
            replaced[index] = new
    variables = [
        Variable(v.name, v.start, v.end, moved)
        for v in function.variables
        if (moved := _moved(v.where, number)) is not None
    ]
    return replace(edit(function, replaced, variables=variables), registers=len(number))


def _moved(where: int | str, number: dict[int, int]) -> int | str | None:
    """The location by its new number; None if nothing writes the register any more."""
    if isinstance(where, int):
        return where if where < 0 else number.get(where)
    if where.startswith("cell:"):
        register = number.get(int(where[5:]))
        return None if register is None else f"cell:{register}"
    return where
