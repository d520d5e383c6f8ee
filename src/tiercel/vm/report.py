"""What a function did: the report of `f.explain()` and the numbers of `f.stats()`.

In: `Subject`s, each a function with the decoded code that ran, and settings. Out: a `Report` of plain data, printed as
text, as a dict or in a notebook. Everything is made of counters and samples that are kept anyway: asking costs the
asker, not the function.

Times of a function include what it called; times of inner loops are estimated from the entries that were timed (one in
16). Calls that run compiled are counted beside, and do not show in the counters of loops. A region is what can be
compiled: a function with all it calls or, where that cannot be or a call does not end, one of its loops; the passes and
the time of a loop include those that compiled code made.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tiercel.bytecode.program import Function
from tiercel.config import Settings
from tiercel.interp import Decoded
from tiercel.vm.kernels import KernelReport, LoopKernelReport, kernel_reports, loop_kernel_reports
from tiercel.vm.ledger import Line
from tiercel.vm.profile import declared_tokens
from tiercel.vm.render import report_html, report_text

if TYPE_CHECKING:
    from tiercel.vm.dispatch import Tiers
    from tiercel.vm.regions import LoopTiers

__all__ = [
    "COMPILED",
    "INTERPRETED",
    "FunctionReport",
    "LoopReport",
    "PythonLine",
    "Report",
    "TUNED",
    "SignatureReport",
    "Subject",
    "executed",
    "make_report",
    "stats",
]

_UNKNOWN_NS: Final = 1 << 62
INTERPRETED: Final = "O0"
COMPILED: Final = "O1"
TUNED: Final = "O2"


@dataclass(frozen=True, slots=True)
class Subject:
    """A function to report on.

    Attributes:
        name: qualified name.
        filename, line: where it is defined.
        decoded: its code, in all the forms in which it runs (strict or not, for several modules); empty if none.
        role: "function" for what was asked about, "helper" for a captured function it calls.
        reason, reason_line: why it runs as Python as a whole, and the line that is the reason; None if it does not.
        python_calls, python_time_ns: calls that ran as Python as a whole, and their time where it was measured.
        tiers: what compiles it; None for what is not compiled by itself.
    """

    name: str
    filename: str
    line: int
    decoded: tuple[Decoded, ...] = ()
    role: str = "function"
    reason: str | None = None
    reason_line: int | None = None
    python_calls: int = 0
    python_time_ns: int = 0
    tiers: Tiers | None = None


@dataclass(frozen=True, slots=True)
class PythonLine:
    """A place inside a function that runs as Python.

    Attributes:
        line, source: the place; None and "" where the source is not known.
        reason: why it is no bytecode.
        count, time_ns: how often it ran, and how long in all.
    """

    line: int | None
    source: str
    reason: str
    count: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class LoopReport:
    """A loop.

    Attributes:
        loop: its number in the function.
        line, source: of its head.
        depth: how many loops are around it.
        entries, iterations: how often it was entered, and passes in all, outside of whole compiled calls.
        time_ns: in all.
        live_ins: what is read in it and made before it: name to what was seen with the most frequent Signature.
        compiled_runs, compiled_passes, compiled_time_ns: what of that compiled code of the loop itself did.
        unmet: why the loop is not compiled by itself; "" if it is, or was not looked at.
        kernels: its forms that were compiled, or cannot be.
    """

    loop: int
    line: int | None
    source: str
    depth: int
    entries: int
    iterations: int
    time_ns: int
    live_ins: dict[str, str]
    compiled_runs: int = 0
    compiled_passes: int = 0
    compiled_time_ns: int = 0
    unmet: str = ""
    kernels: tuple[LoopKernelReport, ...] = ()


@dataclass(frozen=True, slots=True)
class SignatureReport:
    """A Signature that came by.

    Attributes:
        text: without sizes, such as `x: float32[?, ?]{C}, n: int`.
        entries: how many entries had it (estimated from samples).
        arguments: name to what was seen in the samples, such as `float32[16..64, 128]{C}`.
        samples: how many interpreted entries with it were looked at.
    """

    text: str
    entries: int
    arguments: dict[str, str]
    samples: int = 0


@dataclass(frozen=True, slots=True)
class FunctionReport:
    """A function.

    Attributes:
        name, filename, line, source: what and where.
        role: "function" or "helper".
        reason, reason_line: why it runs as Python as a whole; None if it does not.
        tier: the highest tier that runs it: "O2" (compiled, and products carried out as measurements chose), "O1"
            (compiled), "O0" (interpreted), or "Python".
        unmet: the first condition for compiling it that is not met; "" if it is compiled.
        calls: how often it was interpreted.
        compiled_calls, compiled_time_ns: how often compiled code took a call, and how long that took.
        python_calls: how often it ran as Python as a whole.
        time_ns: of all calls that were interpreted or ran as Python, callees included.
        instructions: how many it has.
        executed: how many ran (at most, where it branches).
        loops, python, signatures, kernels: see there; the most frequent Signature first.
        other_entries: entries whose Signature came after too many others to be told apart.
    """

    name: str
    filename: str
    line: int
    source: str
    role: str
    reason: str | None
    reason_line: int | None
    tier: str
    unmet: str
    calls: int
    python_calls: int
    time_ns: int
    instructions: int
    executed: int
    loops: tuple[LoopReport, ...]
    python: tuple[PythonLine, ...]
    signatures: tuple[SignatureReport, ...]
    other_entries: int
    compiled_calls: int = 0
    compiled_time_ns: int = 0
    kernels: tuple[KernelReport, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What a jitted function and the functions it called did so far.

    `print` it, or take `to_dict()`. In a notebook it is drawn as a table.

    Attributes:
        name: of the jitted function.
        level: the highest tier it may reach now.
        reason: why it runs as Python as a whole; None if it does not.
        python_calls: calls that ran as Python as a whole.
        functions: itself, then the captured functions it called.
        ledger: what else did not run as hoped.
    """

    name: str
    level: str
    reason: str | None
    python_calls: int
    functions: tuple[FunctionReport, ...] = ()
    ledger: tuple[Line, ...] = field(default_factory=tuple)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data that `json.dumps` takes.

        The keys are the attributes of the classes of this module, and stay as they are; new ones may come.
        """
        out: dict[str, Any] = asdict(self)
        for f in out["functions"]:
            for name in ("loops", "python", "signatures", "kernels"):
                f[name] = list(f[name])
            for loop in f["loops"]:
                loop["kernels"] = list(loop["kernels"])
        out["functions"], out["ledger"] = list(out["functions"]), list(out["ledger"])
        return out

    def __str__(self) -> str:
        return "\n".join(report_text(self))

    def _repr_html_(self) -> str:
        return report_html(self)


# ---- making ----------------------------------------------------------------------------------------------------------


def make_report(subjects: Sequence[Subject], settings: Settings, ledger: Iterable[Line] = ()) -> Report:
    """Return the report on some functions.

    Args:
        subjects: the jitted function first.
        settings: those that count for it.
        ledger: lines that concern these functions.
    """
    first = subjects[0]
    return Report(
        name=first.name,
        level=settings.level,
        reason=first.reason,
        python_calls=first.python_calls,
        functions=tuple(_function_report(s, settings) for s in subjects),
        ledger=tuple(ledger),
    )


def stats(subjects: Sequence[Subject], ledger: Iterable[Line] = ()) -> dict[str, int]:
    """Return the counters of a jitted function and what it called, as plain numbers.

    Keys: `calls`, `interpreted_calls`, `compiled_calls`, `python_calls` of the function itself (the first subject);
    `compiles` (first builds), `tunes` (times that code with tuned products was put in
    place), `kernels` (in use now), `misses` (calls that a kernel did not take),
    `demotions` (kernels taken out), `fallbacks` (the ledger's events of that kind), `copies`, `conversions`,
    `transfers`, `allocations` (arenas of compiled calls that had to be allocated; results are not counted), `launches`
    (times compiled code was entered), `packed_bytes` (of frozen operands, copied once into the order kernels read),
    `trigger_percent` (share of the time in compiled code); over all functions `helper_calls`, `loop_entries`,
    `loop_iterations`, of loops that were compiled by themselves `loop_kernels` (in use), `loop_compiles`, `loop_runs`,
    `loop_stops` (runs that were stopped and nothing kept of them), `compiled_iterations`, `compiled_loop_time_ns`;
    `instructions` (executed, at most), `python_lines` (executions of lines that run as Python) and `python_time_ns`,
    `signatures` (told apart); `time_ns` and `compiled_time_ns` of the function, callees included.
    """
    first, helpers = subjects[0], subjects[1:]
    counters = [d.counters for d in first.decoded]
    interpreted = sum(c.calls for c in counters)
    every = [d for s in subjects for d in s.decoded]
    loops = [loop for d in every for loop in d.counters.loops]
    python = [place for d in every for place in d.counters.python.values()]
    kernels = kernel_reports(first.tiers)
    tiers = first.tiers
    regions = [r for d in every for r in _regions(d)]
    compiled_calls = tiers.compiled_calls if tiers is not None else 0
    compiled_ns = tiers.compiled_ns if tiers is not None else 0
    interpreted_ns = sum(c.time_ns for c in counters) + first.python_time_ns
    entries = tiers.made() if tiers is not None else []
    noted: dict[str, int] = {}
    for line in ledger:
        noted[line.kind] = noted.get(line.kind, 0) + line.count
    return {
        "calls": interpreted + first.python_calls + compiled_calls,
        "interpreted_calls": interpreted,
        "compiled_calls": compiled_calls,
        "python_calls": first.python_calls,
        "compiles": tiers.compiles if tiers is not None else 0,
        "tunes": sum(k.tuning.get("tunes", 0) for k in kernels),
        "kernels": len(tiers.entries) if tiers is not None else 0,
        "misses": sum(k.misses for k in kernels),
        "demotions": sum(k.state == "taken out" for k in kernels),
        "fallbacks": noted.get("fallback", 0),
        "copies": noted.get("copy", 0),
        "conversions": noted.get("convert", 0),
        "transfers": noted.get("transfer", 0),
        "allocations": sum(e.allocations for e in entries),
        "launches": sum(e.launches for e in entries),
        "packed_bytes": sum(e.packed_bytes for e in entries),
        "trigger_percent": round(100 * compiled_ns / (compiled_ns + interpreted_ns)) if compiled_ns else 0,
        "helper_calls": sum(d.counters.calls for s in helpers for d in s.decoded),
        "loop_entries": sum(loop.entries for loop in loops),
        "loop_iterations": sum(loop.iterations for loop in loops),
        "loop_kernels": sum(len(r.entries) for r in regions),
        "loop_compiles": sum(r.compiles for r in regions),
        "loop_runs": sum(v.runs for r in regions for v in list(r.variants)),
        "loop_stops": sum(v.stopped for r in regions for v in list(r.variants)),
        "compiled_iterations": sum(r.passes for r in regions),
        "compiled_loop_time_ns": sum(r.time_ns for r in regions),
        "instructions": sum(executed(d) for d in every),
        "python_lines": sum(count for count, _ in python),
        "python_time_ns": sum(spent for _, spent in python) + sum(s.python_time_ns for s in subjects),
        "signatures": sum(len(d.watch.entry.signatures) for d in first.decoded if d.watch is not None),
        "time_ns": interpreted_ns,
        "compiled_time_ns": compiled_ns,
    }


def executed(decoded: Decoded) -> int:
    """Return how many instructions of a function ran, from its counters.

    Exact for code without branches. Where it branches both arms count, and handlers do not: an upper bound.
    """
    counters, flow = decoded.counters, decoded.flow
    compiled = {r.loop: r.passes for r in _regions(decoded)}
    times = [0 if handler >= 0 else counters.calls for handler in flow.handler]
    for row in flow.loops:  # outer loops first
        loop = counters.loops[row.loop]
        times[row.start] = loop.entries + max(loop.iterations - compiled.get(row.loop, 0), 0)
        interpreted = max(loop.iterations - compiled.get(row.loop, 0), 0)
        for index in range(row.start + 1, row.stop + 1):
            if times[index]:
                times[index] = interpreted
    return sum(times)


def _regions(decoded: Decoded) -> list[LoopTiers]:
    """The loops of a function that were looked at for compiling."""
    return [] if decoded.watch is None else list(decoded.watch.regions.values())


def _function_report(subject: Subject, settings: Settings) -> FunctionReport:
    decoded, tiers = subject.decoded, subject.tiers
    function = decoded[0].function if decoded else None
    counters = [d.counters for d in decoded]
    kernels = kernel_reports(tiers)
    compiled = any(k.state == "compiled" for k in kernels)
    watches = [d.watch for d in decoded if d.watch is not None]
    line = _head_line(function) if function is not None else subject.line
    return FunctionReport(
        name=subject.name,
        filename=subject.filename,
        line=subject.line,
        source=_source_line(function, subject.filename, line),
        role=subject.role,
        reason=subject.reason,
        reason_line=subject.reason_line,
        tier="Python" if subject.reason is not None else _tier(kernels),
        unmet="" if compiled else _unmet(subject, kernels, settings),
        calls=sum(c.calls for c in counters),
        python_calls=subject.python_calls,
        time_ns=sum(c.time_ns for c in counters) + subject.python_time_ns,
        instructions=len(function.instructions) if function is not None else 0,
        executed=sum(map(executed, decoded)),
        loops=_loops(decoded) if decoded else (),
        python=_python_lines(decoded) if decoded else (),
        signatures=_signatures(decoded),
        other_entries=sum(w.entry.others for w in watches),
        compiled_calls=tiers.compiled_calls if tiers is not None else 0,
        compiled_time_ns=tiers.compiled_ns if tiers is not None else 0,
        kernels=kernels,
    )


def _tier(kernels: Sequence[KernelReport]) -> str:
    """The highest tier of code that is in use."""
    compiled = [k for k in kernels if k.state == "compiled"]
    return INTERPRETED if not compiled else TUNED if any(k.tuning.get("in_use") for k in compiled) else COMPILED


def _unmet(subject: Subject, kernels: Sequence[KernelReport], settings: Settings) -> str:
    """The first condition for compiling that is not met, in words."""
    if subject.reason is not None:
        return subject.reason
    if subject.role == "helper":
        return "compiled as a part of what calls it"
    if settings.level == "O0":
        return "level is O0: interpreted only"
    if settings.worker == "off":
        return "worker is off: nothing compiles"
    if not kernels:
        return "not called yet"
    busiest = max(kernels, key=lambda k: k.interpreted_calls)
    return f"{busiest.reason} (line {busiest.line})" if busiest.line is not None else busiest.reason


def _loops(decoded: Sequence[Decoded]) -> tuple[LoopReport, ...]:
    function, flow = decoded[0].function, decoded[0].flow
    out = []
    # Time of what is around: an estimate never exceeds it.
    around = [sum(d.counters.time_ns for d in decoded)]
    for row in flow.loops:
        counts = [d.counters.loops[row.loop] for d in decoded]
        entries = sum(c.entries for c in counts)
        iterations = sum(c.iterations for c in counts)
        del around[row.depth + 1 :]
        # Of a call that is still going on, or was left by an exception, only the loop's own time is known.
        spent = min(sum(c.time_ns for c in counts), around[-1] or _UNKNOWN_NS)
        around.append(spent)
        line = function.line_of(row.start)
        regions = [r for d in decoded for r in _regions(d) if r.loop == row.loop]
        out.append(
            LoopReport(
                row.loop,
                line,
                _source_line(function, function.filename, line),
                row.depth,
                entries,
                iterations,
                spent,
                _live_ins(decoded, row.loop),
                sum(v.runs for r in regions for v in list(r.variants)),
                sum(r.passes for r in regions),
                sum(r.time_ns for r in regions),
                next((r.reason or r.unmet for r in regions if not r.entries), ""),
                tuple(k for r in regions for k in loop_kernel_reports(r)),
            )
        )
    return tuple(out)


def _live_ins(decoded: Sequence[Decoded], loop: int) -> dict[str, str]:
    records = [r for d in decoded if d.watch is not None for r in d.watch.loops[loop].records()]
    best = max(records, key=lambda r: r.seen.entries, default=None)
    if best is None:
        return {}
    texts = best.learned_texts()
    # What has no name in the source (an iterator) means nothing to its reader.
    return {live.name: texts[live.register] for live in best.live_ins if live.name != f"R{live.register}"}


def _python_lines(decoded: Sequence[Decoded]) -> tuple[PythonLine, ...]:
    function = decoded[0].function
    total: dict[int, tuple[int, int]] = {}
    for d in decoded:
        for index, (count, spent) in d.counters.python.items():
            old = total.get(index, (0, 0))
            total[index] = (old[0] + count, old[1] + spent)
    # A line may hold several such instructions for one reason.
    merged: dict[tuple[int | None, str], tuple[int, int]] = {}
    for index, (count, spent) in total.items():
        key = (function.line_of(index), function.instructions[index].reason)
        old = merged.get(key, (0, 0))
        merged[key] = (old[0] + count, old[1] + spent)
    return tuple(
        PythonLine(line, _source_line(function, function.filename, line), reason, count, spent)
        for (line, reason), (count, spent) in sorted(merged.items(), key=lambda item: (item[0][0] or 0, item[0][1]))
    )


def _signatures(decoded: Sequence[Decoded]) -> tuple[SignatureReport, ...]:
    out: dict[str, SignatureReport] = {}
    for d in decoded:
        if d.watch is None:
            continue
        tokens = declared_tokens(d.program, d.function)
        for record in d.watch.entry.records():
            texts = record.learned_texts(tokens)
            arguments = {live.name: texts[live.register] for live in record.live_ins}
            text = record.text()
            before = out.get(text)
            entries = record.seen.entries + (before.entries if before is not None else 0)
            samples = record.seen.samples + (before.samples if before is not None else 0)
            # Of two forms of one function the busier one shows its ranges.
            busier = before is not None and before.entries > record.seen.entries
            out[text] = SignatureReport(text, entries, before.arguments if busier and before else arguments, samples)
    return tuple(sorted(out.values(), key=lambda s: -s.entries))


def _head_line(function: Function) -> int:
    """The line of the `def`, which may be below decorators."""
    lines = (function.source or "").splitlines()
    for i, text in enumerate(lines):
        if text.lstrip().startswith(("def ", "async def ", "lambda")):
            return function.first_line + i
    return function.first_line


def _source_line(function: Function | None, filename: str, line: int | None) -> str:
    if line is None:
        return ""
    if function is not None and function.source is not None:
        lines = function.source.splitlines()
        if 0 <= line - function.first_line < len(lines):
            return lines[line - function.first_line].strip()
    return linecache.getline(filename, line).strip()
