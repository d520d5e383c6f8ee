"""What a jitted function did: says to `vm.report` which functions belong to it.

In: the state of a jitted function. Out: its `Report`, and its counters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiercel.interp import Decoded
from tiercel.vm import Line, machine
from tiercel.vm.report import Report, Subject, make_report, stats

if TYPE_CHECKING:
    from tiercel.api.function import JitFunction

__all__ = ["Report", "report", "statistics"]


def report(state: JitFunction) -> Report:
    """Return the report of a jitted function."""
    found = subjects(state)
    return make_report(found, state.settings(), _ledger(found))


def statistics(state: JitFunction) -> dict[str, Any]:
    """Return the counters of a jitted function, as `vm.report.stats` lists them."""
    found = subjects(state)
    return stats(found, _ledger(found))


def subjects(state: JitFunction) -> list[Subject]:
    """Return the function itself, then the captured functions it called, each with all its decoded code."""
    error = state.captured.error
    own = state.own_decodings()
    code = getattr(state.function, "__code__", None)
    filename = code.co_filename if code is not None else ""
    line = code.co_firstlineno if code is not None else 0
    out = [
        Subject(
            state.name,
            filename,
            line,
            tuple(own),
            reason=None if error is None else error.reason,
            reason_line=None if error is None else error.line,
            python_calls=state.python_calls,
            tiers=state.tiers,
        )
    ]
    helpers: dict[int, list[Decoded]] = {}
    for decoded in state.decodings():
        if decoded not in own:
            helpers.setdefault(id(decoded.program), []).append(decoded)
    for same in helpers.values():
        f = same[0].function
        out.append(Subject(f.qualname or f.name, f.filename, f.first_line, tuple(same), role="helper"))
    return out


def _ledger(found: list[Subject]) -> list[Line]:
    """What the ledger says about these functions, beyond their running as Python, which the report tells anyway."""
    names = {(s.name, s.filename) for s in found}
    lines = machine().ledger.lines()
    return [line for line in lines if line.kind != "python" and (line.function, line.filename) in names]
