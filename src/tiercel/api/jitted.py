"""What a jitted function is to a type checker: the function it was, with `explain` and the other attributes.

Invariant: nothing here exists at run time; `jit` returns a plain Python function. The protocol is a descriptor so that
a jitted method loses its first parameter when it is looked up on an instance, and keeps its attributes. (Above
`@classmethod`, not below it, is where `@tc.jit` belongs for type checkers: they look no descriptor up through one.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from tiercel.api.function import Programs
    from tiercel.api.report import Report
    from tiercel.bytecode import Program

__all__ = ["Jitted"]

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_R_co = TypeVar("_R_co", covariant=True)
_Self = TypeVar("_Self")


class Jitted(Protocol[_P, _R_co]):
    """A callable of these parameters and this result, with what `tc.jit` adds."""

    __name__: str
    __qualname__: str
    __module__: str

    @property
    def __wrapped__(self) -> Callable[_P, _R_co]:
        """The undecorated function."""

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co: ...

    @overload
    def __get__(self, instance: None, owner: type, /) -> Jitted[_P, _R_co]: ...
    @overload
    def __get__(
        self: Jitted[Concatenate[_Self, _Q], _R_co], instance: _Self, owner: type | None = None, /
    ) -> Jitted[_Q, _R_co]: ...

    @property
    def program(self) -> Program | None:
        """The bytecode; None if the function runs as Python."""

    @property
    def programs(self) -> Programs:
        """The bytecode of the function and of what it has called, by qualified name."""

    def explain(self) -> Report:
        """Return what ran where, and why."""

    def stats(self) -> dict[str, Any]:
        """Return counters: calls, how they ran, compiles, fallbacks."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no compile of this function is pending."""

    def warmup(self, *specs: Any, **keyword_specs: Any) -> None:
        """Prepare the function before its first call."""
