"""Control-flow facts of one function that decoding needs: regions, block starts, lifetimes of temporaries.

In: a `Function`. Out: a `Flow`. Everything is indexed by instruction; sets of registers are ints used as bit sets.

A *temporary* is a register that is no parameter, no cell and no home of a source variable. Python keeps such values on
its stack and drops them when they are used; so must we, or arrays live too long and generators are closed too late.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tiercel.bytecode.instructions import Instruction
from tiercel.bytecode.program import Function
from tiercel.errors import InternalError

__all__ = ["Flow", "LoopRange", "TryRange", "analyse", "members"]


@dataclass(frozen=True, slots=True)
class TryRange:
    """A `Try`: the body is `body` up to `body_end` (its EndTry), the handler `handler` up to `end`."""

    index: int
    exception: int
    body: int
    body_end: int
    handler: int
    end: int
    clears: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopRange:
    """A loop: LoopStart at `start`, LoopEnd at `stop`; `depth` loops of the function are around it."""

    loop: int
    start: int
    stop: int
    depth: int


@dataclass(slots=True)
class Flow:
    """What `analyse` found.

    Attributes:
        protect: per instruction the innermost Try whose body it is in, as an index into `tries`, or -1.
        handler: per instruction the innermost Try whose handler it is in, likewise.
        tries, loops: the structures, in program order.
        starts: instructions that begin a block.
        single: block starts with exactly one predecessor, which may therefore be decoded inline behind it.
        temporaries: bit set of the registers that are temporaries.
        foldable: bit set of temporaries that are written once and read once.
        stored: the temporaries that ever are in their registers, last first.
        live_in, live_out: per instruction the temporaries that are live before and after it.
    """

    protect: list[int]
    handler: list[int]
    tries: list[TryRange] = field(default_factory=list)
    loops: list[LoopRange] = field(default_factory=list)
    starts: set[int] = field(default_factory=set)
    single: set[int] = field(default_factory=set)
    temporaries: int = 0
    foldable: int = 0
    stored: tuple[int, ...] = ()
    live_in: list[int] = field(default_factory=list)
    live_out: list[int] = field(default_factory=list)
    _held: list[int] = field(default_factory=list)

    def loops_left(self, source: int, target: int | None) -> list[LoopRange]:
        """Return the loops that a jump from `source` leaves; `target` None leaves the function."""
        return [
            loop
            for loop in self.loops
            if loop.start <= source <= loop.stop and (target is None or not loop.start <= target <= loop.stop)
        ]

    def held(self, index: int) -> int:
        """Return the temporaries that stay alive around an instruction: exceptions of handlers, iterators of loops."""
        return self._held[index]

    def leaves_handler(self, source: int, target: int) -> bool:
        """Return whether a jump ends the innermost handler around `source`."""
        handler = self.handler[source]
        if handler < 0:
            return False
        row = self.tries[handler]
        return not row.handler <= target < row.end


def analyse(function: Function) -> Flow:
    """Return the control-flow facts of a verified function."""
    instructions = function.instructions
    flow = Flow(protect=[-1] * len(instructions), handler=[-1] * len(instructions))
    _find_tries(instructions, flow)
    _find_loops(instructions, flow)
    _find_temporaries(function, flow)
    _find_starts(instructions, flow)
    _find_lives(instructions, flow)
    return flow


def successors(instructions: tuple[Instruction, ...], index: int) -> tuple[int, ...]:
    """Return where control may go after an instruction, exceptions apart."""
    ins = instructions[index]
    match ins.opcode:
        case "BranchIf":
            return (ins.then, ins.else_)
        case "Jump":
            return (ins.target,)
        case "LoopEnd":
            return (ins.start,)
        case "LoopStart":
            return (index + 1, ins.exit) if ins.iterator is not None else (index + 1,)
        case "Return" | "Raise":
            return ()
        case _:
            return (index + 1,) if index + 1 < len(instructions) else ()


def _find_tries(instructions: tuple[Instruction, ...], flow: Flow) -> None:
    open_tries: list[int] = []
    for index, ins in enumerate(instructions):
        if ins.opcode == "Try":
            open_tries.append(len(flow.tries))
            flow.tries.append(TryRange(index, ins.exception, index + 1, -1, ins.handler, ins.end))
        elif ins.opcode == "EndTry":
            if not open_tries:
                raise InternalError(f"EndTry at {index} has no Try", stage="decode")
            position = open_tries.pop()
            row = flow.tries[position]
            flow.tries[position] = TryRange(row.index, row.exception, row.body, index, row.handler, row.end)
    if open_tries:
        raise InternalError(f"Try at {flow.tries[open_tries[-1]].index} has no EndTry", stage="decode")
    # In program order an inner structure comes after the one around it, so it overwrites it.
    for position, row in enumerate(flow.tries):
        flow.protect[row.body : row.body_end] = [position] * (row.body_end - row.body)
    for position, row in sorted(enumerate(flow.tries), key=lambda item: (item[1].handler, -item[1].end)):
        flow.handler[row.handler : row.end] = [position] * (row.end - row.handler)


def _find_loops(instructions: tuple[Instruction, ...], flow: Flow) -> None:
    ends = {ins.loop: index for index, ins in enumerate(instructions) if ins.opcode == "LoopEnd"}
    open_loops: list[int] = []
    for index, ins in enumerate(instructions):
        if ins.opcode != "LoopStart":
            continue
        open_loops = [stop for stop in open_loops if stop > index]
        # A loop whose end is unreachable (every pass breaks or returns) has no LoopEnd.
        stop = ends.get(ins.loop, ins.exit - 1)
        flow.loops.append(LoopRange(ins.loop, index, stop, len(open_loops)))
        open_loops.append(stop)


def _find_temporaries(function: Function, flow: Flow) -> None:
    kept = (1 << len(function.parameters) + len(function.free)) - 1
    for variable in function.variables:
        where = variable.where
        if isinstance(where, int):
            kept |= 1 << where if where >= 0 else 0
        elif where.startswith("cell:"):
            kept |= 1 << int(where[5:])
    flow.temporaries = (1 << function.registers) - 1 & ~kept
    reads: Counter[int] = Counter()
    writes: Counter[int] = Counter()
    for ins in function.instructions:
        reads.update(ins.registers_read())
        writes.update(ins.registers_written())
    for register, count in reads.items():
        if count == 1 and writes[register] == 1 and flow.temporaries >> register & 1:
            flow.foldable |= 1 << register
    flow.stored = members(flow.temporaries)


def _find_starts(instructions: tuple[Instruction, ...], flow: Flow) -> None:
    predecessors: Counter[int] = Counter({0: 1})
    # Places where a block must begin even with a single predecessor.
    fixed = {0}
    for index, ins in enumerate(instructions):
        after = successors(instructions, index)
        predecessors.update(after)
        if ins.opcode in ("BranchIf", "Jump", "LoopEnd", "LoopStart", "Return", "Raise"):
            flow.starts.update(after)
            flow.starts.add(index + 1)
        if ins.opcode == "LoopStart":
            fixed.add(index)
        if ins.opcode in ("Call", "Try", "EndTry"):
            fixed.add(index + 1)
        if ins.opcode == "Try":
            fixed.update((ins.handler, ins.end))
    # The dispatcher finds the Try of a failing instruction by its block, so no block crosses an edge of one.
    fixed.update(i for i in range(1, len(instructions)) if flow.protect[i] != flow.protect[i - 1])
    fixed.update(i for i in range(1, len(instructions)) if flow.handler[i] != flow.handler[i - 1])
    flow.starts |= fixed
    flow.starts.discard(len(instructions))
    flow.single = {i for i in flow.starts if predecessors[i] == 1 and i not in fixed}


def _find_lives(instructions: tuple[Instruction, ...], flow: Flow) -> None:
    count = len(instructions)
    reads = [_bits(ins.registers_read()) & flow.temporaries for ins in instructions]
    writes = [_bits(ins.registers_written()) & flow.temporaries for ins in instructions]
    for index, ins in enumerate(instructions):
        if ins.opcode == "Try":
            writes[index] = 0  # written on the way to the handler, not here
    # Inside a handler its exception stays in its register, so that control can enter there (see `run`); inside a loop
    # its iterator does, so that a generator is closed when the loop is left, as when Python pops it, and not before.
    held = flow._held = [0] * count
    for loop in flow.loops:
        iterator = instructions[loop.start].iterator
        if iterator is not None and iterator >= 0:
            for index in range(loop.start + 1, loop.stop + 1):
                held[index] |= 1 << iterator & flow.temporaries
    for row in flow.tries:
        for index in range(row.handler, row.end):
            held[index] |= 1 << row.exception & flow.temporaries
    after = [successors(instructions, index) for index in range(count)]
    flow.live_in = [0] * count
    flow.live_out = [0] * count
    changed = True
    while changed:
        changed = False
        for index in range(count - 1, -1, -1):
            out = 0
            for target in after[index]:
                out |= flow.live_in[target]
            protect = flow.protect[index]
            if protect >= 0:
                row = flow.tries[protect]
                out |= flow.live_in[row.handler] & ~(1 << row.exception)
            live = reads[index] | (out & ~writes[index]) | held[index]
            if protect >= 0:
                row = flow.tries[protect]
                # The write may not happen, or happen before the exception: the handler sees either value.
                live |= flow.live_in[row.handler] & ~(1 << row.exception)
            if out != flow.live_out[index] or live != flow.live_in[index]:
                flow.live_out[index], flow.live_in[index] = out, live
                changed = True
    for position, row in enumerate(flow.tries):
        inside = 0
        for index in range(row.body, row.body_end + 1):
            inside |= flow.live_in[index] | flow.live_out[index] | writes[index]
        dead = inside & ~flow.live_in[row.handler] & ~(1 << row.exception) if row.handler < count else inside
        clears = members(dead)
        flow.tries[position] = TryRange(row.index, row.exception, row.body, row.body_end, row.handler, row.end, clears)


def members(bits: int) -> tuple[int, ...]:
    """Return the registers of a bit set, the last one first: Python's stack is popped from its top."""
    return tuple(r for r in range(bits.bit_length() - 1, -1, -1) if bits >> r & 1)


def _bits(registers: tuple[int, ...]) -> int:
    bits = 0
    for register in registers:
        bits |= 1 << register
    return bits
