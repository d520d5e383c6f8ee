"""Jump threading: a jump to a jump goes where that one goes.

::

    if %c goto A else B          if %c goto C else B
    ...                     ->   ...
    A: goto C                    A: goto C

A branch on a constant becomes a jump, and a jump to the next instruction is removed. All targets move forward and out
of structures only, so what was structured stays so.
"""

from __future__ import annotations

from tiercel.bytecode.constants import ConstantPool, is_plain
from tiercel.bytecode.instructions import Instruction
from tiercel.bytecode.passes.edit import edit
from tiercel.bytecode.program import Function
from tiercel.bytecode.structure import find_structures

__all__ = ["thread_jumps"]


def thread_jumps(function: Function, constants: ConstantPool) -> Function:
    """Send every jump to its final target; see the module."""
    instructions = list(function.instructions)
    replaced: dict[int, Instruction] = {}
    # From the end, so that the target of a jump is final when it is looked at.
    for index in range(len(instructions) - 1, -1, -1):
        ins = instructions[index]
        if ins.opcode == "BranchIf" and ins.condition < 0:
            condition = constants[ins.condition]
            if is_plain(condition):
                ins = Instruction("Jump", (ins.then if condition else ins.else_,))
        if ins.opcode in ("Jump", "BranchIf", "LoopStart"):
            ins = ins.map_targets(lambda target: _final(instructions, target))
        if ins is not instructions[index]:
            instructions[index] = replaced[index] = ins
    jumps = [i for i, ins in enumerate(instructions) if ins.opcode == "Jump" and ins.target == i + 1]
    removed: set[int] = set()
    if jumps:
        structures = find_structures(function, lambda index, reason: None)
        if structures is not None:
            # A jump that leaves a structure stays: leaving is then seen, and no handler becomes empty.
            removed = {i for i in jumps if structures.owner[i] == structures.owner[i + 1]}
    return edit(function, replaced, removed)


def _final(instructions: list[Instruction], target: int) -> int:
    if target < len(instructions) and instructions[target].opcode == "Jump":
        return int(instructions[target].target)
    return target
