"""What a jitted function did: the report of `f.explain()` and the numbers of `f.stats()`.

In: the state of a jitted function. Out: a `Report` (text, dict, notebook form) made of counters the interpreter keeps
anyway; asking costs the caller, not the function.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tiercel.interp import Decoded

if TYPE_CHECKING:
    from tiercel.api.function import JitFunction

__all__ = ["FunctionReport", "LoopReport", "PythonLine", "Report", "report", "statistics"]


@dataclass(frozen=True, slots=True)
class PythonLine:
    """A place that ran as Python: line, why, how often, nanoseconds in all."""

    line: int | None
    reason: str
    count: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class LoopReport:
    """A loop: line, how often entered, passes in all, nanoseconds in all."""

    line: int | None
    entries: int
    iterations: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class FunctionReport:
    """One function that ran as bytecode."""

    name: str
    filename: str
    line: int
    calls: int
    time_ns: int
    loops: tuple[LoopReport, ...]
    python: tuple[PythonLine, ...]
    instructions: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a jitted function and the functions it called did so far.

    Attributes:
        name: of the jitted function.
        level: the highest tier it may reach now.
        reason: why it runs as Python as a whole; None if it does not.
        python_calls: calls that ran as Python as a whole.
        functions: itself and the captured functions it called.
    """

    name: str
    level: str
    reason: str | None
    python_calls: int
    functions: tuple[FunctionReport, ...] = field(default_factory=tuple)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return _plain(self)  # type: ignore[no-any-return]

    def __str__(self) -> str:
        lines = [f"{self.name}: level {self.level}, interpreted"]
        if self.reason is not None:
            lines = [f"{self.name}: runs as Python: {self.reason}"]
        if self.python_calls:
            lines.append(f"  {self.python_calls} calls ran as Python")
        for f in self.functions:
            where = f"{f.name} ({f.filename}:{f.line})"
            lines.append(f"  {where}, {f.instructions} instructions: {f.calls} calls, {_time(f.time_ns)}")
            for loop in f.loops:
                lines.append(
                    f"    loop in line {loop.line}: entered {loop.entries} times, {loop.iterations} passes, "
                    f"{_time(loop.time_ns)}"
                )
            for place in f.python:
                lines.append(
                    f"    Python in line {place.line}: {place.reason}: {place.count} times, {_time(place.time_ns)}"
                )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _time(nanoseconds: int) -> str:
    if nanoseconds < 1_000_000:
        return f"{nanoseconds / 1e3:.1f} us"
    if nanoseconds < 1_000_000_000:
        return f"{nanoseconds / 1e6:.1f} ms"
    return f"{nanoseconds / 1e9:.2f} s"


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value


def report(state: JitFunction) -> Report:
    """Return the report of a jitted function."""
    error = state.captured.error
    return Report(
        name=state.name,
        level=state.settings().level,
        reason=None if error is None else error.reason,
        python_calls=state.python_calls,
        functions=tuple(_function(d) for d in state.decodings()),
    )


def _function(decoded: Decoded) -> FunctionReport:
    f = decoded.function
    counters = decoded.counters
    starts = {row.loop: row.start for row in decoded.flow.loops}
    loops = tuple(
        LoopReport(f.line_of(starts[i]), loop.entries, loop.iterations, loop.time_ns)
        for i, loop in enumerate(counters.loops)
        if i in starts
    )
    python = tuple(
        PythonLine(f.line_of(index), f.instructions[index].reason, count, spent)
        for index, (count, spent) in counters.python.items()
    )
    name = f.qualname or f.name
    return FunctionReport(
        name, f.filename, f.first_line, counters.calls, counters.time_ns, loops, python, len(f.instructions)
    )


def statistics(state: JitFunction) -> dict[str, Any]:
    """Return the counters of a jitted function; nothing compiles yet, so those counts are 0."""
    own = state.captured.all_decoded()
    interpreted = sum(d.counters.calls for d in own)
    decodings = state.decodings()
    return {
        "calls": interpreted + state.python_calls,
        "interpreted_calls": interpreted,
        "compiled_calls": 0,
        "python_calls": state.python_calls,
        "compiles": 0,
        "tunes": 0,
        "kernels": 0,
        "fallbacks": sum(count for d in decodings for count, _ in d.counters.python.values()),
        "time_ns": sum(d.counters.time_ns for d in own),
    }
