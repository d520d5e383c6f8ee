"""Common subexpressions: the second of two equal computations in a straight line is the first one's result.

Only what is pure on all operands, cannot fail, and gives an immutable value is shared: identity tests and slices. An
array that may escape is never shared, nor is a tuple or list, whose identity a program can test.
"""

from __future__ import annotations

from collections import Counter

from tiercel.bytecode.constants import ConstantPool
from tiercel.bytecode.instructions import Instruction
from tiercel.bytecode.passes.edit import edit, variable_registers
from tiercel.bytecode.program import Function

__all__ = ["share_subexpressions"]


def share_subexpressions(function: Function, constants: ConstantPool) -> Function:
    """Remove repeated identity tests and slices within straight lines, and read the first result instead."""
    instructions = function.instructions
    writes = Counter(r for ins in instructions for r in ins.registers_written())
    homes = variable_registers(function)
    targets = {to for ins in instructions for to in ins.jump_targets()}
    available: dict[tuple[str, str, tuple[int, ...]], int] = {}
    same: dict[int, int] = {}
    removed: set[int] = set()
    for index, old in enumerate(instructions):
        # A line ends where others join it, and where control may go elsewhere: what follows may run without it.
        if index in targets or old.row.effect_class == "control":
            available.clear()
        ins = old.map_reads(lambda operand: same.get(operand, operand)) if same else old
        # The results must stay what they are, and be nobody's variable.
        if _is_shareable(ins) and writes[ins.dst] == 1 and ins.dst not in homes:
            first = available.setdefault((ins.opcode, *ins.fields[1:]), ins.dst)
            if first != ins.dst:
                same[ins.dst] = first
                removed.add(index)
        elif available:
            written = set(ins.registers_written())
            available = {key: r for key, r in available.items() if written.isdisjoint(key[2])}
    if not removed:
        return function
    replaced = {
        i: new
        for i, ins in enumerate(instructions)
        if i not in removed and (new := ins.map_reads(lambda operand: same.get(operand, operand))) is not ins
    }
    return edit(function, replaced, removed)


def _is_shareable(ins: Instruction) -> bool:
    if ins.opcode == "Scalar":
        return ins.function in ("is", "is_not")
    return bool(ins.opcode == "Build" and ins.what == "slice")
