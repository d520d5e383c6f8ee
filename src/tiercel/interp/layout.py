"""Where things are in a frame's list `R`, shared by the code generator and the dispatcher.

::

    R[0 .. registers-1]      the registers of the function: parameters, then captured cells, then the rest
    R[constants ...]         constants that cannot be written as a literal (arrays, objects, slices, dtypes)
    R[extras ...]            callables of operators that were captured without a name
    R[value]                 what a block hands to the dispatcher: result, pending call, or next block
    R[on_callee]             `Hooks.on_callee`, or a function that always answers None
    R[on_region]             `Hooks.on_region`, or None
    R[on_passes]             `Hooks.on_passes`, or a function that never wants to be asked again
    R[timers ...]            per loop the clock at entry, 0 if this entry is not timed
    R[-1]                    the `Decoded`, which tracebacks and debuggers find through the frame

A block returns the number of the next block, or one of the codes RETURN, CALL, LEAVE.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from tiercel import operators
from tiercel.bytecode.constants import UNBOUND, ObjectRef
from tiercel.bytecode.instructions import Instruction
from tiercel.bytecode.program import Function, Program

__all__ = ["CALL", "LEAVE", "RETURN", "CounterLayout", "Layout", "is_literal", "lay_out"]

# The frame returns R[value].
RETURN: Final = -1
# R[value] is (callee, arguments, keywords, register, next block, instruction): push a frame.
CALL: Final = -2
# The handler being run ends; R[value] is the block to go on with.
LEAVE: Final = -3


class CounterLayout:
    """Indexes into `Decoded.counts`: calls and time of the function, five words a loop, two a `CallPy`.

    DUE is no count: it is the number of passes from which on `Hooks.on_passes` is asked.
    """

    CALLS: Final = 0
    TIME: Final = 1
    TIMED_CALLS: Final = 2
    FIRST_LOOP: Final = 3
    PER_LOOP: Final = 5
    ENTRIES: Final = 0
    ITERATIONS: Final = 1
    TIMED: Final = 2
    LOOP_TIME: Final = 3
    DUE: Final = 4
    # Small, because CPython compares such ints faster; a loop that gets there moves its DUE to FAR.
    NEVER: Final = (1 << 30) - 1
    FAR: Final = 1 << 62


@dataclass(slots=True)
class Layout:
    """Positions in `R`, and the part of it behind the registers that are filled on entry.

    `python_calls` is where the two counters of each `CallPy` are in `Decoded.counts`, by instruction.
    """

    registers: int
    constants: dict[int, int] = field(default_factory=dict)
    extras: dict[tuple[str, int], int] = field(default_factory=dict)
    value: int = 0
    on_callee: int = 0
    on_region: int = 0
    on_passes: int = 0
    timers: int = 0
    tail: list[Any] = field(default_factory=list)
    python_calls: dict[int, int] = field(default_factory=dict)
    counters: int = 0


def is_literal(value: object) -> bool:
    """Whether the value is written as a literal; the decoder puts the program's own object in its place afterwards."""
    if value is None or value is Ellipsis or type(value) in (bool, int, float, complex, str, bytes):
        return True
    return type(value) is tuple and all(is_literal(v) for v in value)


def lay_out(program: Program, function: Function) -> Layout:
    """Return where constants and working slots of a function's frames are."""
    layout = Layout(function.registers)
    arriving = len(function.parameters) + len(function.free)
    layout.tail = [None] * (function.registers - arriving)
    base = arriving

    def place(value: object) -> int:
        layout.tail.append(value)
        return base + len(layout.tail) - 1

    layout.counters = CounterLayout.FIRST_LOOP + CounterLayout.PER_LOOP * function.loops
    for position, ins in enumerate(function.instructions):
        if ins.opcode == "CallPy":
            layout.python_calls[position] = layout.counters
            layout.counters += 2
        for index in ins.constants_read():
            value = program.constants[index]
            if index not in layout.constants and not is_literal(value) and value is not UNBOUND:
                layout.constants[index] = place(value.value if isinstance(value, ObjectRef) else value)
        key = _needs_callable(ins)
        if key is not None and key not in layout.extras:
            layout.extras[key] = place(operators.get(key[0]).spellings[key[1]].callable)
    layout.value = place(None)
    layout.on_callee = place(_no_callee)
    layout.on_region = place(None)
    layout.on_passes = place(_not_again)
    layout.timers = place(0)
    for _ in range(function.loops):
        place(0)
    return layout


def _needs_callable(ins: Instruction) -> tuple[str, int] | None:
    if ins.opcode != "CallOp" or ins.via is not None:
        return None
    if operators.get(ins.operator).spellings[ins.spelling].kind in ("function", "ops", "class"):
        return ins.operator, ins.spelling
    return None


def _no_callee(_: object) -> None:
    return None


def _not_again(decoded: Any, loop: int, _: list[Any], following: int) -> int:
    decoded.counts[CounterLayout.FIRST_LOOP + CounterLayout.PER_LOOP * loop + CounterLayout.DUE] = CounterLayout.FAR
    return following
