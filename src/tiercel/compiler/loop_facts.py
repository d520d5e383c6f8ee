"""What goes into a loop and what comes out of it, by registers: static facts about one loop of a function.

In: a bytecode `Function` and the instructions of a loop. Out: `LoopFacts`, computed once, followed by the trace of the
loop and by whoever enters it.

Invariants: a register that the loop writes is among the `results` whenever anything reads it later that control may
reach from the loop's head: the next pass, the code after any exit of the loop, and the handlers of every `try` around
it, because an exception may come at any instruction of the passes that are still interpreted. What is not among the
`results` holds anything after a pass that was not interpreted.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiercel import operators
from tiercel.bytecode.instructions import Instruction
from tiercel.bytecode.program import Function
from tiercel.compiler.abstract import Untraceable
from tiercel.compiler.flow import successors

__all__ = ["LoopFacts", "loop_facts"]


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """One loop.

    Attributes:
        start, end: its LoopStart and LoopEnd.
        exit: where it goes on when its iterator is exhausted.
        iterator: register of its iterator; None for `while`.
        inputs: registers whose values it may read, without the iterator.
        results: registers that it may change and somebody may read afterwards, without those of `grows`.
        grows: registers of lists that it appends to and never binds anew.
        written: registers that, if they hold arrays, it writes into and never binds anew (`x += y` binds a number).
        item: the register that takes each item, if nothing else in the loop writes it; else None.
        live: per instruction what may be read from there on, for the trace.
        names: of registers, for people.
    """

    start: int
    end: int
    exit: int
    iterator: int | None
    inputs: tuple[int, ...]
    results: tuple[int, ...]
    grows: tuple[int, ...]
    written: tuple[int, ...]
    item: int | None
    live: tuple[frozenset[int], ...]
    names: dict[int, str]


def loop_facts(function: Function, start: int, end: int) -> LoopFacts:
    """Return the facts about a loop.

    Args:
        function: of a verified program.
        start, end: its LoopStart and LoopEnd.

    Raises:
        Untraceable: the loop has no back edge, or holds what is only entered by an exception.
    """
    instructions = function.instructions
    head = instructions[start]
    if instructions[end].opcode != "LoopEnd":
        raise Untraceable("a loop that never comes to a second pass", start)
    inside = range(start, end + 1)
    live = _liveness(function)
    outside = {t for i in inside for t in successors(instructions, i) if not start <= t <= end}
    after = frozenset().union(*(live[t] for t in outside if t < len(instructions)))
    read = {r for i in inside for r in instructions[i].registers_read()}
    writers: dict[int, list[int]] = {}
    for i in inside:
        for register in instructions[i].registers_written():
            writers.setdefault(register, []).append(i)
    # A variable that is only read after the loop was set by an earlier pass, so it comes in as well.
    at_head = frozenset(live[start] | (after & writers.keys()))
    appended = {instructions[i].list for i in inside if instructions[i].opcode == "Append"}
    grows = {r for r in appended if r >= 0 and r in live[start] and r not in writers}
    written: set[int] = set()
    for i in inside:
        array = _array_written(instructions[i])
        if array is not None and array in live[start]:
            if all(_keeps(instructions[j], array) for j in writers.get(array, ())):
                written.add(array)
    iterator = head.iterator
    changed = (at_head & (writers.keys() | written)) - grows
    item = head.target if iterator is not None and writers.get(head.target) == [start] else None
    names = {where: name for name, where in function.variables_at(start).items() if isinstance(where, int)}
    for i, parameter in enumerate(function.parameters):
        names.setdefault(i, parameter.name)
    return LoopFacts(
        start,
        end,
        head.exit,
        iterator,
        tuple(sorted((at_head & (read | writers.keys())) - {iterator})),
        tuple(sorted(changed - {iterator})),
        tuple(sorted(grows)),
        tuple(sorted(written)),
        item,
        (*live[:start], at_head, *live[start + 1 :]),
        names,
    )


def _array_written(ins: Instruction) -> int | None:
    """The register of an array that an instruction writes into, if it is one."""
    if ins.opcode in ("SetItem", "StoreTensor"):
        register: int = ins.x
    elif ins.opcode == "CallOp" and _is_inplace(ins):
        register = ins.args[0]
    else:
        return None
    return register if register >= 0 else None


def _is_inplace(ins: Instruction) -> bool:
    spelling = operators.get(ins.operator).spellings[ins.spelling]
    return bool(spelling.kind == "inplace")


def _keeps(ins: Instruction, register: int) -> bool:
    """Whether the instruction leaves the array in the register that is there, as `x += y` does."""
    return ins.opcode == "CallOp" and _is_inplace(ins) and bool(ins.args[0] == register)


def _liveness(function: Function) -> list[frozenset[int]]:
    """What may be read from each instruction on, along exceptions too. Computed once per function."""
    found: list[frozenset[int]] | None = vars(function).get("_live_with_handlers")
    if found is not None:
        return found
    instructions = function.instructions
    count = len(instructions)
    following = [set(successors(instructions, i)) for i in range(count)]
    read = [frozenset(ins.registers_read()) for ins in instructions]
    written = [frozenset(ins.registers_written()) for ins in instructions]
    protecting: list[tuple[tuple[int, int], ...]] = []
    around: list[tuple[int, int]] = []
    for i, ins in enumerate(instructions):
        if ins.opcode == "EndTry":
            around.pop()
        protecting.append(tuple(around))
        if ins.opcode == "Try":
            around.append((ins.handler, ins.exception))
            written[i] = frozenset()  # the exception is written on the way to the handler
    live: list[frozenset[int]] = [frozenset()] * (count + 1)
    changed = True
    while changed:
        changed = False
        for i in range(count - 1, -1, -1):
            after = frozenset().union(*(live[f] for f in following[i]))
            if instructions[i].opcode == "LoopStart" and instructions[i].iterator is not None:
                # at the exit the target holds the item before
                new = read[i] | (live[i + 1] - written[i]) | live[instructions[i].exit]
            else:
                new = read[i] | (after - written[i])
            for handler, exception in protecting[i]:
                new |= live[handler] - {exception}
            if new != live[i]:
                live[i] = new
                changed = True
    vars(function)["_live_with_handlers"] = live
    return live
