"""A `Report` as people read it: plain text with aligned columns, and tables for a notebook.

In: the plain data of `report`. Out: lines, or HTML. Names, lines and times only; nothing is computed here but sums.
"""

from __future__ import annotations

import html
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tiercel.hotpath import policy

if TYPE_CHECKING:
    from tiercel.vm.report import FunctionReport, Report

__all__ = ["columns", "format_count", "format_time", "place", "report_html", "report_text", "short"]

_WIDTH: Final = 118
_UNTIMED: Final = "not timed yet"


# ---- text ------------------------------------------------------------------------------------------------------------


def format_time(nanoseconds: float) -> str:
    """Return a time with three digits and its unit."""
    value, unit = float(nanoseconds), "ns"
    for larger in ("us", "ms", "s"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    if unit == "ns":
        return f"{value:.0f} ns"
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {unit}"


def format_count(count: int) -> str:
    """Return a number with separators between thousands."""
    return f"{count:,}".replace(",", " ")


def columns(rows: Sequence[Sequence[str]], *, right: Iterable[int] = (), indent: str = "  ") -> list[str]:
    """Return rows as lines of aligned columns, two spaces apart."""
    right = set(right)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    out = []
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        out.append((indent + "  ".join(cells)).rstrip())
    return out


def place(filename: str, line: int | None) -> str:
    """Return `file:line`, relative to the current folder if the file is inside it."""
    try:
        near = os.path.relpath(filename)
    except ValueError:  # another drive
        near = filename
    shown = near if filename.startswith(os.sep) and not near.startswith("..") else filename
    return f"{shown}:{line}" if line else shown


def short(name: str) -> str:
    """Return a qualified name without the functions it is defined in."""
    return name.rpartition("<locals>.")[2]


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _wrapped(prefix: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=prefix, subsequent_indent=" " * len(prefix)) or [prefix.rstrip()]


def _summary(report: Report) -> list[str]:
    head = report.functions[0]
    calls = head.calls + head.python_calls + head.compiled_calls
    if head.reason is not None:
        where = f" ({place(head.filename, head.reason_line)})" if head.reason_line else ""
        out = _wrapped("  runs as Python: ", f"{head.reason}{where}")
    elif report.level == "O0":
        out = ["  runs interpreted (O0), as its level says"]
    elif head.compiled_calls:
        share = f"{_many(head.compiled_calls, 'call')} of {format_count(calls)}"
        out = [f"  runs compiled ({_compiled_tier(head)}) since {_since(head)}: {share}"]
    else:
        out = [f"  runs interpreted (O0); may reach {report.level}"]
    if not calls:
        return [*out, "  not called yet"]
    total = head.time_ns + head.compiled_time_ns
    timed = calls if head.compiled_time_ns else calls - head.compiled_calls
    mean = f", {format_time(total / timed)} a call" if total and timed else ""
    known = "" if timed == calls else f" in the {format_count(timed)} that {'was' if timed == 1 else 'were'} timed"
    spent = f", {format_time(total)}{known or ' in all'}{mean}" if total else ""
    out.append(f"  {_many(calls, 'call')}{spent}")
    if head.reason is None and head.python_calls:
        out.append(f"  {format_count(head.python_calls)} of them ran as Python (a tracer or debugger was active)")
    executed_count = sum(f.executed for f in report.functions)
    if executed_count:
        out.append(f"  {format_count(executed_count)} instructions executed, {head.instructions} in the function")
    return out


def _since(f: FunctionReport) -> str:
    """What had the code compiled that took calls: `warmup`, heat, or either for some of the arguments."""
    reasons = {"warmup()" if k.asked_for else "it is hot" for k in f.kernels if k.calls}
    return " and since ".join(sorted(reasons, reverse=True)) or "it is hot"


def _compiled_time(f: FunctionReport) -> str:
    return format_time(f.compiled_time_ns) if f.compiled_time_ns else _UNTIMED


def _compiled_tier(f: FunctionReport) -> str:
    """The tier of compiled calls, also of a function whose kernels were taken out."""
    return f.tier if f.tier in ("O1", "O2") else "O1"


def _many(count: int, what: str) -> str:
    return f"{format_count(count)} {what}{'' if count == 1 else 's'}"


def _regions(report: Report) -> list[str]:
    rows = [["region", "line", "entered", "passes", "time", "tier", "source"]]
    waiting: dict[str, list[str]] = {}
    for f in report.functions:
        if f.reason is not None:
            continue
        name, line = short(f.name), str(f.line)
        rows.append([name, line, format_count(f.calls), "", format_time(f.time_ns), "O0", f.source])
        for loop in f.loops:
            where = "" if loop.line is None else str(loop.line)
            counts = [format_count(loop.entries), format_count(loop.iterations), format_time(loop.time_ns)]
            rows.append([f"{'  ' * (loop.depth + 1)}loop {loop.loop}", where, *counts, "O0", loop.source])
            if loop.compiled_passes:
                counts = [format_count(loop.compiled_runs), format_count(loop.compiled_passes)]
                counts.append(format_time(loop.compiled_time_ns))
                rows.append([f"{'  ' * (loop.depth + 1)}  compiled", "", *counts, "O1", ""])
        if f.compiled_calls:
            counts = [format_count(f.compiled_calls), "", _compiled_time(f)]
            rows.append(["  compiled", "", *counts, _compiled_tier(f), ""])
        if f.unmet:
            waiting.setdefault(f.unmet, []).append(name)
    if len(rows) == 1:
        return []
    for row in rows:
        row[-1] = _clip(row[-1], 52)
    out = ["", *columns(rows, right=(1, 2, 3, 4))]
    if waiting:
        out += ["", "  not compiled"]
        for why, names in waiting.items():
            out += _wrapped("    ", f"{', '.join(names)}: {why}")
    return out


def _compiled(f: FunctionReport) -> list[str]:
    """What became of the Signatures that were hot, if anything did: why nothing did stands above."""
    shown = [k for k in f.kernels if k.state != "waiting" and (k.state != "refused" or not f.unmet)]
    if not shown:
        return []
    out = ["", f"  compiled code of {short(f.name)}"]
    for k in shown:
        sizes = f", sizes {k.sizes}" if k.state != "refused" else ""
        out += _wrapped("    ", f"{k.signature}{sizes}: {k.state}")
        if k.reason and k.state in ("refused", "taken out"):
            out += _wrapped("      ", f"{k.reason}{f' (line {k.line})' if k.line is not None else ''}")
        if k.calls:
            each = f"{format_time(k.time_ns / k.calls)} each" if k.time_ns else _UNTIMED
            mean = f"{_many(k.calls, 'call')}, {each}"
            if k.interpreted_calls:
                mean += f"; interpreted {format_time(k.interpreted_each_ns)} each"
            missed = f"; {_many(k.misses, 'call')} it did not take" if k.misses else ""
            out.append(f"      {mean}{missed}")
        if k.slow_entry:
            out += _wrapped("      ", f"calls enter through Python: {k.slow_entry}")
        if k.stages_ms:
            stages = ", ".join(f"{stage} {ms:.1f}" for stage, ms in k.stages_ms.items())
            total = format_time(1e6 * sum(k.stages_ms.values()))
            kept = "; code was in the cache" if k.from_cache else ""
            out += _wrapped("      ", f"made in {total} (ms: {stages}){kept}")
        if k.calls and k.time_ns and k.interpreted_each_ns:
            made_ms, each_ms = sum(k.stages_ms.values()), k.time_ns / k.calls / 1e6
            paid = policy.pay_back(k.interpreted_each_ns / 1e6, each_ms, made_ms, k.calls)
            before = f"; estimated before: {k.expected}" if k.expected else ""
            out += _wrapped("      ", paid.text + before)
        if k.certificate:
            out += _wrapped("      ", _checked(k.certificate))
        out += _tuned(k.tuning)
    return out


def _tuned(tuning: Mapping[str, Any]) -> list[str]:
    """How products came to be carried out as they are: see `tuning.Tuning.to_data`."""
    measured = [*tuning.get("results", ()), *tuning.get("from_store", {}).values()]
    if not measured:
        told = tuning.get("reason") or {"measuring": "being measured"}.get(tuning.get("state", ""), "")
        return _wrapped("      ", f"products not tuned: {told}") if told else []
    here = f", {tuning['spent_ms']:.0f} ms in the worker" if tuning["spent_ms"] else ", by an earlier program"
    done = "tuned" if any(told.get("quiet", True) for told in measured) else "not tuned"
    out = _wrapped("      ", f"products {done}: {_many(len(measured), 'product')} measured{here}")
    if tuning["reason"]:
        out += _wrapped("        ", tuning["reason"])
    for told in measured:
        if not told.get("quiet", True):
            tried = _many(tuning.get("tries", 0), "time")
            then = "stays as it is" if tuning.get("state") == "done" else "to be tried again"
            disturbed = f"measured, but other work disturbed it; tried {tried}; {then}"
            out += _wrapped("        ", f"{told['key']}: {disturbed}")
            continue
        changed = f"{told['gain']:.2f} x as fast as before" if told["choice"] != told["present"] else "stays as it is"
        picked, chosen = told["regret"]
        regret = f"slower than the best measured by {chosen:.1%}, what was expected to be best by {picked:.1%}"
        whole = "" if told["complete"] else "; the budget ended it early"
        out += _wrapped("        ", f"{told['key']}: {changed}; {regret}{whole}")
        vectors, block, parts = told["choice"]
        before = ""
        for upto, rows, axis, per_thread, how in parts:
            which = f"up to {upto} rows" if upto is not None else f"above {before}" if before else "any rows"
            way = product_way([vectors, block, rows, axis, per_thread, how])
            out += _wrapped("          ", f"{which}: {way}")
            before = str(upto)
        for m, times in told["tried"]:
            best = ", ".join(f"{format_time(ns)} {product_way(point)}" for point, ns in times[:3])
            more = f"; {len(times) - 3} more up to {format_time(times[-1][1])}" if len(times) > 3 else ""
            out += _wrapped("          ", f"{m} rows tried: {best}{more}")
    return out


def product_way(point: Sequence[Any]) -> str:
    """A way of carrying out a product (`codegen.cpu.choice.Point`, plain) in few words."""
    vectors, block, rows, axis, per_thread, how = point
    cut = "by work" if not per_thread else f"{per_thread} a thread"
    treated = ("", ", copied", ", packed on the way")[how]
    return f"{vectors} vectors/{block}/{rows}/{axis} first/{cut}{treated}"


def _compiled_loops(f: FunctionReport) -> list[str]:
    """What became of the loops that were hot by themselves."""
    out = []
    for loop in f.loops:
        for k in loop.kernels:
            sizes = f", sizes {k.sizes}" if k.state != "refused" else ""
            what = k.signature or "what it held then"
            out += _wrapped("    ", f"loop {loop.loop}, line {loop.line}, PC=0x{k.pc:02X}: {what}{sizes}: {k.state}")
            if k.reason:
                out += _wrapped("      ", f"{k.reason}{f' (line {k.line})' if k.line is not None else ''}")
            if k.passes:
                each = (
                    f"{format_time(k.time_ns / k.passes)} each; interpreted {format_time(k.interpreted_each_ns)} each"
                )
                out.append(f"      {format_count(k.passes)} passes in {_many(k.runs, 'run')}, {each}")
            if k.stopped:
                out.append(f"      {_many(k.stopped, 'run')} stopped by a guard, an exit or a flag, and made again")
            if k.stages_ms:
                stages = ", ".join(f"{stage} {ms:.1f}" for stage, ms in k.stages_ms.items())
                kept = "; code was in the cache" if k.from_cache else ""
                out += _wrapped(
                    "      ", f"made in {format_time(1e6 * sum(k.stages_ms.values()))} (ms: {stages}){kept}"
                )
            if k.certificate:
                out += _wrapped("      ", _checked(k.certificate))
    return ["", f"  loops of {short(f.name)} compiled by themselves", *out] if out else []


def _checked(certificate: Mapping[str, Any]) -> str:
    """What validation found; see `hotpath.validate.Certificate`."""
    apart = "equal to the bit" if certificate["exact"] else f"largest relative error {certificate['max_error']:.1e}"
    trials = _many(len(certificate["trials"]), "trial")
    return f"checked against NumPy before use: {trials}, {certificate['elements']} elements, {apart}"


def _arguments(f: FunctionReport) -> list[str]:
    if not f.signatures:
        return []
    samples = sum(s.samples for s in f.signatures)
    out = ["", f"  arguments of {short(f.name)} (seen in {_many(samples, 'recorded call')})"]
    for i, s in enumerate(f.signatures):
        if len(f.signatures) > 1:
            out.append(f"    signature {i + 1}, about {format_count(s.entries)} entries")
        rows = [[name, text] for name, text in s.arguments.items()]
        if rows:
            out += [_clip(line, _WIDTH) for line in columns(rows, indent="      " if len(f.signatures) > 1 else "    ")]
        else:
            out.append("    none")
    if f.other_entries:
        out.append(f"    about {format_count(f.other_entries)} entries with further signatures")
    return out


def _python(f: FunctionReport) -> list[str]:
    if not f.python:
        return []
    only = " while interpreted" if f.compiled_calls else ""
    out = ["", f"  lines of {short(f.name)} that run as Python{only}"]
    for p in f.python:
        cost = f"{format_count(p.count)} times, {format_time(p.time_ns)}" if p.count else "not reached"
        out.append(f"    {place(f.filename, p.line)}  {_clip(p.source, 60)}".rstrip())
        out += _wrapped("      ", f"{p.reason}; {cost}")
    return out


def report_text(report: Report) -> list[str]:
    """Return the lines of a report."""
    head = report.functions[0]
    out = [f"{short(report.name)}  ({place(head.filename, head.line)})", *_summary(report), *_regions(report)]
    for part in (_compiled, _compiled_loops, _arguments, _python):
        for f in report.functions:
            out += part(f)
    helpers = [f for f in report.functions if f.role == "helper"]
    if helpers:
        out += ["", "  helpers captured"]
        rows = [[short(f.name), place(f.filename, f.line), f"{format_count(f.calls)} calls"] for f in helpers]
        out += columns(rows, indent="    ", right=(2,))
    if report.ledger:
        out += ["", "  ledger"]
        rows = [
            [
                x.kind,
                place(x.filename, x.line) if x.filename else "",
                x.reason,
                f"{format_count(x.count)} times",
                format_time(x.time_ns) if x.time_ns else "",
            ]
            for x in report.ledger
        ]
        out += columns(rows, indent="    ", right=(3, 4))
    return out


# ---- notebook --------------------------------------------------------------------------------------------------------


def report_html(report: Report) -> str:
    """Return a report as HTML: a paragraph, and a table for each of its parts."""
    e = html.escape
    head = report.functions[0]
    parts = [f"<p><b>{e(short(report.name))}</b> <code>{e(place(head.filename, head.line))}</code></p>"]
    parts.append("<p>" + "<br>".join(e(line.strip()) for line in _summary(report)) + "</p>")
    rows: list[list[str]] = []
    for f in report.functions:
        if f.reason is None:
            spent = format_time(f.time_ns)
            rows.append([short(f.name), str(f.line), str(f.calls), "", spent, "O0", f.unmet, f.source])
            for loop in f.loops:
                name = "\N{NO-BREAK SPACE}" * 2 * (loop.depth + 1) + f"loop {loop.loop}"
                counts = [str(loop.line or ""), str(loop.entries), str(loop.iterations), format_time(loop.time_ns)]
                rows.append([name, *counts, "O0", "", loop.source])
                if loop.compiled_passes:
                    counts = [
                        "",
                        str(loop.compiled_runs),
                        str(loop.compiled_passes),
                        format_time(loop.compiled_time_ns),
                    ]
                    rows.append([f"{name} compiled", *counts, "O1", "", ""])
            if f.compiled_calls:
                counts = [str(f.line), str(f.compiled_calls), "", _compiled_time(f)]
                rows.append([f"{short(f.name)} compiled", *counts, _compiled_tier(f), "", ""])
    if rows:
        heads = ["region", "line", "entered", "passes", "time", "tier", "not compiled, because", "source"]
        parts.append(_table(heads, rows, code=7))
    for f in report.functions:
        shown = [k for k in f.kernels if k.state != "waiting"]
        if shown:
            heads = [f"compiled code of {short(f.name)}", "state", "sizes", "calls", "time", "interpreted", "made in"]
            rows = []
            for k in shown:
                made = format_time(1e6 * sum(k.stages_ms.values())) if k.stages_ms else ""
                state = f"{k.state}: {k.reason}" if k.reason else k.state
                spent = _UNTIMED if k.calls and not k.time_ns else format_time(k.time_ns)
                times = [str(k.calls), spent, str(k.interpreted_calls), made]
                rows.append([k.signature, state, k.sizes, *times])
            parts.append(_table(heads, rows, code=0))
    parts += [table for f in report.functions for table in _loop_table(f)]
    for f in report.functions:
        for s in f.signatures:
            heads = [
                f"argument of {short(f.name)}",
                f"seen in {_many(s.samples, 'recorded call')} of about {format_count(s.entries)}",
            ]
            parts.append(_table(heads, [list(pair) for pair in s.arguments.items()], code=1))
        if f.python:
            only = " while interpreted" if f.compiled_calls else ""
            heads = [f"line of {short(f.name)} that runs as Python{only}", "source", "reason", "times", "time"]
            rows = [[str(p.line or ""), p.source, p.reason, str(p.count), format_time(p.time_ns)] for p in f.python]
            parts.append(_table(heads, rows, code=1))
    if report.ledger:
        heads = ["ledger", "place", "reason", "times", "time"]
        rows = [
            [x.kind, place(x.filename, x.line), x.reason, str(x.count), format_time(x.time_ns)] for x in report.ledger
        ]
        parts.append(_table(heads, rows))
    return "\n".join(parts)


def _loop_table(f: FunctionReport) -> list[str]:
    rows = []
    for loop in f.loops:
        for k in loop.kernels:
            made = format_time(1e6 * sum(k.stages_ms.values())) if k.stages_ms else ""
            state = f"{k.state}: {k.reason}" if k.reason else k.state
            spent = [str(k.runs), str(k.passes), format_time(k.time_ns), str(k.stopped), made]
            rows.append([k.signature, f"loop {loop.loop}", f"0x{k.pc:02X}", state, *spent])
    head = f"loops of {short(f.name)} compiled by themselves"
    return (
        [_table([head, "loop", "PC", "state", "runs", "passes", "time", "stopped", "made in"], rows, 0)] if rows else []
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], code: int = -1) -> str:
    def cell(i: int, text: str) -> str:
        inside = html.escape(text)
        return f"<td>{f'<code>{inside}</code>' if i == code and inside else inside}</td>"

    top = "".join(f"<th>{html.escape(h)}</th>" for h in heads)
    body = "".join(f"<tr>{''.join(cell(i, c) for i, c in enumerate(row))}</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
