"""Control flow of a function's instructions: successors, where branches join, which registers are live.

In: a bytecode `Function`. Out: `Flow`, computed once per function. Joins are immediate postdominators (Cooper, Harvey
and Kennedy, "A simple, fast dominance algorithm", 2001, on the reversed graph, with one node after all returns).
"""

from __future__ import annotations

import functools

from tiercel.bytecode.instructions import Instruction
from tiercel.bytecode.program import Function


def successors(instructions: tuple[Instruction, ...], index: int) -> tuple[int, ...]:
    """The instructions that may come next; `len(instructions)` after a return or raise."""
    ins = instructions[index]
    match ins.opcode:
        case "Jump":
            return (ins.target,)
        case "BranchIf":
            return (ins.then, ins.else_)
        case "LoopStart":
            return (index + 1, ins.exit) if ins.iterator is not None else (index + 1,)
        case "LoopEnd":
            return (ins.start,)
        case "Return" | "Raise":
            return (len(instructions),)
    return (index + 1,)


class Flow:
    """See the module docstring. `join[i]` is where the arms of a branch at i meet; `live[i]` what is read from i on."""

    def __init__(self, function: Function) -> None:
        self.instructions = function.instructions
        self.count = len(function.instructions)
        self.next = [successors(function.instructions, i) for i in range(self.count)]
        self.join = self._postdominators()
        self.live = self._liveness()
        self.loop_end = {ins.start: i for i, ins in enumerate(function.instructions) if ins.opcode == "LoopEnd"}

    def leaves(self, target: int, start: int, end: int) -> bool:
        """Does a path that goes on at `target` surely leave the loop `start`..`end`, for good and not by raising?"""
        seen, pending, left = {target}, [target], False
        while pending:
            at = pending.pop()
            if at == end:
                return False
            if not start < at < end:
                left = True
                continue
            left = left or self.instructions[at].opcode == "Return"
            for following in self.next[at]:
                if following not in seen and following < self.count:
                    seen.add(following)
                    pending.append(following)
        return left

    def _postdominators(self) -> list[int]:
        exit_ = self.count
        before: list[list[int]] = [[] for _ in range(exit_ + 1)]
        for i, following in enumerate(self.next):
            for f in following:
                before[f].append(i)
        order: list[int] = []
        seen = {exit_}
        stack = [(exit_, iter(before[exit_]))]
        while stack:
            node, rest = stack[-1]
            for other in rest:
                if other not in seen:
                    seen.add(other)
                    stack.append((other, iter(before[other])))
                    break
            else:
                order.append(node)
                stack.pop()
        rank = {node: position for position, node in enumerate(order)}
        immediate: dict[int, int] = {exit_: exit_}

        def meet(a: int, b: int) -> int:
            while a != b:
                while rank[a] < rank[b]:
                    a = immediate[a]
                while rank[b] < rank[a]:
                    b = immediate[b]
            return a

        changed = True
        while changed:
            changed = False
            for node in reversed(order[:-1]):
                known = [f for f in self.next[node] if f in immediate]
                new = functools.reduce(meet, known)
                if immediate.get(node) != new:
                    immediate[node] = new
                    changed = True
        return [immediate.get(i, exit_) for i in range(exit_)]

    def _liveness(self) -> list[frozenset[int]]:
        live: list[frozenset[int]] = [frozenset()] * (self.count + 1)
        read = [frozenset(ins.registers_read()) for ins in self.instructions]
        written = [frozenset(ins.registers_written()) for ins in self.instructions]
        changed = True
        while changed:
            changed = False
            for i in range(self.count - 1, -1, -1):
                after = frozenset().union(*(live[f] for f in self.next[i]))
                new = read[i] | (after - written[i])
                if new != live[i]:
                    live[i] = new
                    changed = True
        return live


def flow_of(function: Function) -> Flow:
    """The flow of a function, computed once and kept with it (functions never change)."""
    found: Flow | None = vars(function).get("_flow")
    if found is None:
        found = vars(function)["_flow"] = Flow(function)
    return found
