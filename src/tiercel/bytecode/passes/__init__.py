"""The passes on generic bytecode: few, and safe on operands of any type.

In: a function as a frontend built it, and the program's pool of constants. Out: one that does the same. Generic
operands may run user code in every operation, so a pass touches only what is pure on all operands there are, cannot
fail or warn, and whose result nobody can tell from another equal one. What needs types works on the region graph.

Every pass is a function `pass(function, constants) -> function` that returns the same object if nothing changed, keeps
the span of every instruction it keeps, and keeps variable locations true: a variable whose only store was removed is
found at its constant, or "optimised away".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from tiercel.bytecode.constants import ConstantPool
from tiercel.bytecode.passes.common import share_subexpressions
from tiercel.bytecode.passes.constants import drop_unused_constants
from tiercel.bytecode.passes.dead import remove_dead_code
from tiercel.bytecode.passes.fold import fold_constants
from tiercel.bytecode.passes.jumps import thread_jumps
from tiercel.bytecode.passes.registers import number_registers
from tiercel.bytecode.program import Function

__all__ = [
    "PIPELINE",
    "Pass",
    "drop_unused_constants",
    "fold_constants",
    "number_registers",
    "remove_dead_code",
    "run_passes",
    "share_subexpressions",
    "thread_jumps",
]

Pass: TypeAlias = Callable[[Function, ConstantPool], Function]

PIPELINE: Final[tuple[Pass, ...]] = (
    fold_constants,
    # Behind folding: branches on constants become jumps.
    thread_jumps,
    # Behind threading: what is only reached through threaded jumps is dead.
    remove_dead_code,
    # Again: a jump may now stand next to its target.
    thread_jumps,
    share_subexpressions,
    # Last: the others leave gaps.
    number_registers,
)


def run_passes(function: Function, constants: ConstantPool) -> Function:
    """Return the function after all passes of `PIPELINE`, repeated while they remove instructions.

    One round is not enough: of two stores to a variable one may be dead, and then the variable is a constant.

    Args:
        function: of a program in the making.
        constants: of that program; gets the constants that folding makes.
    """
    while True:
        before = len(function.instructions)
        for run in PIPELINE:
            function = run(function, constants)
        if len(function.instructions) == before:
            return function
