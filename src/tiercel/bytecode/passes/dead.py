"""Dead code: what is never reached, and what computes something nobody reads without any effect.

What objects live how long is visible in Python (`del x`, a finalizer, `keep = TemporaryDirectory()`), so the store to a
variable goes only if it is the variable's one store and the value holds no other object.
"""

from __future__ import annotations

from collections import Counter

from tiercel.bytecode.constants import ConstantPool
from tiercel.bytecode.instructions import Instruction, is_removable
from tiercel.bytecode.passes.edit import edit, variable_registers
from tiercel.bytecode.program import OPTIMISED_AWAY, Function, Variable
from tiercel.bytecode.structure import Structures, find_structures, successors

__all__ = ["reachable", "remove_dead_code"]


def remove_dead_code(function: Function, constants: ConstantPool) -> Function:
    """Remove unreachable instructions, and removable ones whose results are not read."""
    structures = find_structures(function, lambda index, reason: None)
    if structures is None:
        return function
    reached = reachable(function, structures)
    unreached = {i for i, r in enumerate(reached) if not r}
    unread = _Liveness(function, structures, unreached).unread()
    removed = unreached | unread
    if not removed:
        return function
    return edit(function, {}, removed, _relocated(function, unread))


def reachable(function: Function, structures: Structures) -> list[bool]:
    """Return for every instruction whether control can reach it.

    The end of a structure counts as reached if its head is: LoopEnd and EndTry are part of the structure.
    """
    instructions = function.instructions
    reached = [False] * (len(instructions) + 1)
    reached[0] = True
    ends = {s.head: s.end - 1 for s in structures.all if s.kind != "handler"}
    for index, ins in enumerate(instructions):
        if not reached[index]:
            continue
        for to in successors(instructions, index):
            reached[to] = True
        if index in ends:
            reached[ends[index]] = True
        if ins.opcode == "Try":
            reached[ins.handler] = True
    return reached[:-1]


class _Liveness:
    """Finds instructions whose results are not read, backward, until the loops have settled.

    Sets of registers are kept at jump targets only; in between there is one running set.
    """

    def __init__(self, function: Function, structures: Structures, unreached: set[int]) -> None:
        self.function = function
        self.unreached = unreached
        self.homes = variable_registers(function)
        self.writes = Counter(
            r for i, ins in enumerate(function.instructions) if i not in unreached for r in ins.registers_written()
        )
        self.try_of = {s.end - 1: s.head for s in structures.all if s.kind == "try"}
        # Registers that are read at or behind each jump target.
        self.live_at: dict[int, int] = {to: 0 for ins in function.instructions for to in ins.jump_targets()}

    def unread(self) -> set[int]:
        """The instructions to remove."""
        while True:
            before = dict(self.live_at)
            unread = self._walk()
            if self.live_at == before:
                return unread

    def _walk(self) -> set[int]:
        instructions = self.function.instructions
        unread: set[int] = set()
        live = 0
        # Registers that the handlers around need: any instruction may be the last before them.
        handlers: list[int] = []
        for index in range(len(instructions) - 1, -1, -1):
            if index in self.unreached:
                continue
            ins = instructions[index]
            opcode = ins.opcode
            if opcode == "EndTry":
                head = instructions[self.try_of[index]]
                around = handlers[-1] if handlers else 0
                handlers.append(around | self.live_at[head.handler] & ~(1 << head.exception))
            elif opcode == "Try":
                handlers.pop()
            live = self._before(index, ins, live, unread)
            if handlers:
                live |= handlers[-1]
            if index in self.live_at:
                self.live_at[index] |= live
        return unread

    def _before(self, index: int, ins: Instruction, live: int, unread: set[int]) -> int:
        """The registers that are live before the instruction, given those behind it."""
        opcode = ins.opcode
        at = self.live_at
        if opcode == "BranchIf":
            live = at[ins.then] | at[ins.else_]
        elif opcode == "Jump":
            live = at[ins.target]
        elif opcode == "LoopEnd":
            live = at[ins.start]
        elif opcode in ("Return", "Raise"):
            live = 0
        elif opcode == "Try":
            return live
        written = ins.registers_written()
        if written and self._may_go(ins) and not any(live >> r & 1 for r in written):
            unread.add(index)
            return live
        for register in written:
            live &= ~(1 << register)
        if opcode == "LoopStart" and ins.iterator is not None:
            live |= at[ins.exit]
        for register in ins.registers_read():
            live |= 1 << register
        return live

    def _may_go(self, ins: Instruction) -> bool:
        if not is_removable(ins) or (ins.opcode == "LoadParam" and ins.dst == ins.index):
            return False
        if ins.dst not in self.homes:
            return True
        return self.writes[ins.dst] == 1 and not self._is_entry(ins.dst) and not ins.registers_read()

    def _is_entry(self, register: int) -> bool:
        return register < len(self.function.parameters) + len(self.function.free)


def _relocated(function: Function, removed: set[int]) -> tuple[Variable, ...] | None:
    """The variables with new locations for those whose store was removed; None if there are none."""
    homes = {
        function.instructions[i].dst: function.instructions[i]
        for i in removed
        if len(function.instructions[i].registers_written()) == 1
    }
    if not any(v.where in homes for v in function.variables):
        return None
    return tuple([Variable(v.name, v.start, v.end, _location(v.where, homes)) for v in function.variables])


def _location(where: int | str, homes: dict[int, Instruction]) -> int | str:
    ins = homes.get(where) if isinstance(where, int) else None
    if ins is None:
        return where
    constants = ins.operands_read()
    if ins.opcode in ("LoadConst", "LoadTensor", "Move") and constants[0] < 0:
        return constants[0]
    return OPTIMISED_AWAY
