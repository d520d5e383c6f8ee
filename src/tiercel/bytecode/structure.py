"""The structures of a function: loops, protected ranges, handlers, and what lies in which.

In: a function. Out: `Structures`, or a defect for every place where the instructions are not structured:

- a loop is the range from its LoopStart to its LoopEnd, a protected range that from its Try to its EndTry, a handler
  the range `[handler, end)` that its Try names; these ranges lie within one another or apart, never across;
- a handler lies behind its EndTry, at the nesting level of its Try, and is not empty;
- a structure is entered at its head only: a loop or protected range by running into its first instruction, a handler
  by an exception (an EndTry that is never reached may stand before one);
- only LoopEnd jumps backward.

Leaving is free: a jump may leave any number of structures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from tiercel.bytecode.instructions import Instruction
from tiercel.bytecode.program import Function

__all__ = ["MAX_DEPTH", "Structure", "Structures", "depths", "find_structures", "successors"]

# Python nests at most 20 blocks statically; `with` and `finally` lower to a few Trys each.
MAX_DEPTH: Final = 250

# What is wrong, and at which instruction.
Report = Callable[[int, str], None]


@dataclass(frozen=True, slots=True)
class Structure:
    """One structure.

    Attributes:
        kind: "loop", "try" or "handler".
        head: the LoopStart or Try (of a handler: the Try it belongs to).
        start: first instruction inside: behind the head; of a handler its first instruction.
        end: one past the last instruction inside: LoopEnd and EndTry are inside.
        parent: index of the structure around it, or -1.
        depth: how many structures are around it.
    """

    kind: Literal["loop", "try", "handler"]
    head: int
    start: int
    end: int
    parent: int
    depth: int


@dataclass(frozen=True, slots=True)
class Structures:
    """All structures of a function.

    Attributes:
        all: in order of their first instruction, outer ones first.
        owner: per instruction the innermost structure it is inside of, or -1; one more entry for the end.
    """

    all: tuple[Structure, ...]
    owner: tuple[int, ...]

    def inside(self, index: int, structure: int) -> bool:
        """Whether an instruction is inside a structure (-1, the function, holds all)."""
        if structure < 0:
            return True
        s = self.all[structure]
        return s.start <= index < s.end


def successors(instructions: tuple[Instruction, ...], index: int) -> tuple[int, ...]:
    """Return the instructions that control can pass to, exceptions apart; their number if it falls off the end."""
    ins = instructions[index]
    opcode = ins.opcode
    if opcode == "Jump":
        return (ins.target,)
    if opcode == "BranchIf":
        return (ins.then, ins.else_)
    if opcode == "LoopEnd":
        return (ins.start,)
    if opcode in ("Return", "Raise"):
        return ()
    if opcode == "LoopStart" and ins.iterator is not None:
        return (index + 1, ins.exit)
    return (index + 1,)


def find_structures(function: Function, report: Report) -> Structures | None:
    """Return the structures of a function, or None if anything was reported.

    Args:
        function: any; jump targets need not be in range.
        report: called with an instruction index and what is wrong there, for every defect.
    """
    scan = _Scan(function, report)
    scan.run()
    if scan.failed:
        return None
    found = Structures(tuple(scan.found), tuple(scan.owner))
    _check_edges(function, found, scan.fail)
    return None if scan.failed else found


def depths(function: Function) -> list[int]:
    """Return how deep each instruction is indented in a listing. Works on any instructions, structured or not."""
    found = find_structures(function, lambda index, reason: None)
    if found is None:
        return [0] * len(function.instructions)
    depth = [found.all[s].depth + 1 if s >= 0 else 0 for s in found.owner]
    for s in found.all:
        if s.kind != "handler":
            # LoopEnd and EndTry stand below their heads.
            depth[s.end - 1] = s.depth
    return depth[: len(function.instructions)]


@dataclass(slots=True)
class _Open:
    """A structure whose end was not reached yet."""

    kind: Literal["loop", "try", "handler"]
    head: int
    number: int
    end: int


class _Scan:
    """Walks the instructions once and matches heads with ends."""

    def __init__(self, function: Function, report: Report) -> None:
        self.function = function
        self.report = report
        self.failed = False
        self.found: list[Structure] = []
        self.stack: list[_Open] = []
        self.owner: list[int] = []
        # Handlers that are still to come: first instruction to (Try, structure around the Try, end).
        self.handlers: dict[int, tuple[int, int, int]] = {}
        # Where open handlers end, and the Try of one that ends there.
        self.handler_ends: dict[int, int] = {}

    def fail(self, index: int, reason: str) -> None:
        self.failed = True
        self.report(index, reason)

    def run(self) -> None:
        instructions = self.function.instructions
        for index, ins in enumerate(instructions):
            self._close_handlers(index)
            self._open_handler(index)
            if self.failed:
                return
            self.owner.append(self._innermost())
            if ins.opcode == "LoopStart":
                self._open("loop", index, index, 0)
            elif ins.opcode == "Try":
                self._try(index, ins)
            elif ins.opcode in ("LoopEnd", "EndTry"):
                self._close(index, ins)
            if self.failed:
                return
        self._close_handlers(len(instructions))
        self.owner.append(-1)
        for still in self.stack:
            what = {"loop": "a LoopStart without its LoopEnd", "try": "a Try without its EndTry"}
            self.fail(still.head, what.get(still.kind, "a handler that reaches beyond the function"))
        for head, _, _ in self.handlers.values():
            self.fail(head, "the handler begins beyond the function")

    def _innermost(self) -> int:
        return self.stack[-1].number if self.stack else -1

    def _open(self, kind: Literal["loop", "try", "handler"], head: int, at: int, end: int) -> None:
        if len(self.stack) >= MAX_DEPTH:
            self.fail(at, f"structures are nested {MAX_DEPTH} deep, that is the limit")
        start = at if kind == "handler" else at + 1
        self.stack.append(_Open(kind, head, len(self.found), end))
        parent = self.stack[-2].number if len(self.stack) > 1 else -1
        self.found.append(Structure(kind, head, start, end, parent, len(self.stack) - 1))

    def _end(self, end: int) -> None:
        number = self.stack.pop().number
        s = self.found[number]
        self.found[number] = Structure(s.kind, s.head, s.start, end, s.parent, s.depth)

    def _try(self, index: int, ins: Instruction) -> None:
        if not index < ins.handler < ins.end <= len(self.function.instructions):
            self.fail(index, f"the handler must be a range behind the Try, got instructions {ins.handler} to {ins.end}")
        elif ins.handler in self.handlers:
            self.fail(index, f"instruction {ins.handler} is the handler of a second Try")
        else:
            self.handlers[ins.handler] = (index, self._innermost(), ins.end)
            self._open("try", index, index, 0)

    def _close(self, index: int, ins: Instruction) -> None:
        kind, head_name = ("loop", "LoopStart") if ins.opcode == "LoopEnd" else ("try", "Try")
        if not self.stack or self.stack[-1].kind != kind:
            inner = f"inside the {self.stack[-1].kind} from {self.stack[-1].head}" if self.stack else "outside of any"
            self.fail(index, f"{ins.opcode} has no {head_name} to match: it is {inner}")
            return
        top = self.stack[-1]
        if kind == "loop":
            head = self.function.instructions[top.head]
            if ins.start != top.head or ins.loop != head.loop:
                self.fail(
                    index,
                    f"LoopEnd of loop {ins.loop} goes to instruction {ins.start}; the loop around it is loop "
                    f"{head.loop}, which starts at {top.head}",
                )
        self._end(index + 1)

    def _open_handler(self, index: int) -> None:
        pending = self.handlers.pop(index, None)
        if pending is None:
            return
        head, around, end = pending
        if self._innermost() != around:
            self.fail(
                head, f"the handler, instruction {index}, is not at the nesting level of its Try, behind its EndTry"
            )
            return
        self._open("handler", head, index, end)
        self.handler_ends[end] = head

    def _close_handlers(self, index: int) -> None:
        while self.stack and self.stack[-1].kind == "handler" and self.stack[-1].end == index:
            self.handler_ends.pop(index, None)
            self._end(index)
        if index in self.handler_ends:
            still = self.handler_ends[index]
            self.fail(still, f"the handler ends at instruction {index}, inside a structure that it holds")


def _check_edges(function: Function, found: Structures, fail: Report) -> None:
    instructions = function.instructions
    size = len(instructions)
    reached: set[int] = set()
    loop_ends = {s.head: s.end for s in found.all if s.kind == "loop"}
    for index, ins in enumerate(instructions):
        if ins.opcode == "LoopStart":
            if not loop_ends[index] <= ins.exit <= size:
                fail(index, f"the exit of the loop, instruction {ins.exit}, must lie behind its LoopEnd")
                continue
        for to in successors(instructions, index):
            if to >= size:
                if to == index + 1 and ins.opcode not in ("Jump", "BranchIf"):
                    fail(index, "control falls off the end of the function; every path ends in Return or Raise")
                else:
                    fail(index, f"{ins.opcode} goes to instruction {to}; the function has {size}")
            elif to <= index and ins.opcode != "LoopEnd":
                fail(index, f"{ins.opcode} goes back to instruction {to}; only LoopEnd may go back")
            else:
                into = found.owner[to]
                if into < 0 or found.inside(index, into):
                    continue
                s = found.all[into]
                if s.kind != "handler" and index == s.head:
                    continue
                runs = to == index + 1 and ins.opcode not in ("Jump", "BranchIf")
                reached = reached or _reached(instructions)
                if runs and index not in reached:
                    # The end of a range whose inside never gets there: `try: return x`.
                    continue
                how = "runs" if runs else "jumps"
                fail(index, f"{ins.opcode} {how} into the {s.kind} of instruction {s.head} from outside")


def _reached(instructions: tuple[Instruction, ...]) -> set[int]:
    """The instructions that control can reach from the first one. Only LoopEnd goes back, so one walk suffices."""
    reached = {0}
    for index, ins in enumerate(instructions):
        if index in reached:
            reached.update(successors(instructions, index))
            if ins.opcode == "Try":
                reached.add(ins.handler)
    return reached
