"""The only ways in which the interpreter asks or tells anybody anything.

In: nothing. Out: `Hooks`, given to `run` by the machine around it, and `Callee`, its answer about a callable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CellType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tiercel.interp.decode import Decoded

__all__ = ["NO_HOOKS", "Callee", "Hooks"]


@dataclass(frozen=True, slots=True)
class Callee:
    """A callable that runs as a frame of the machine.

    Attributes:
        decoded: its code.
        cells: what its captured variables are, in the order of `Function.free`.
        bound: the object a method is bound to; `is_bound` says whether there is one.
        function: the function object whose defaults count; None takes the program's constant defaults.
        is_bound: whether `bound` is the first argument.
    """

    decoded: Decoded
    cells: tuple[CellType, ...] = ()
    bound: Any = None
    function: Any = None  # FunctionType; typed so, a method would be made of it
    is_bound: bool = False


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of the interpreter. None of them may raise.

    Attributes:
        on_callee: asked with every callable a `Call` instruction meets; None means: call it as Python.
        on_region: told `(decoded, loop, R)` when a loop is entered.
        on_passes: asked `(decoded, loop, R, following)` before a pass of a loop once `Decoded.due(loop)` passes were
            made: what it answers is the block to go on with, `following` for the head of the loop. It must have moved
            the due number beyond the passes made, or it is asked the same again. It may change registers.
        on_entry: told `(decoded, R)` when a function is entered.
    """

    on_callee: Callable[[object], Callee | None] | None = None
    on_region: Callable[[Decoded, int, list[Any]], object] | None = None
    on_entry: Callable[[Decoded, list[Any]], object] | None = None
    on_passes: Callable[[Decoded, int, list[Any], int], int] | None = None


NO_HOOKS: Final = Hooks()
