"""Tables of a record, for a terminal.

In: a record. Out: rich tables: latency at each shape with the ratio to the best peer, the stream, and all cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tiercel.tools.suite.record import overall
from tiercel.tools.suite.schedule import OURS

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

__all__ = ["console", "duration", "of_case", "of_run"]

# Wide enough for eight peers; a narrower terminal wraps lines, which reads better than cells cut short.
_WIDTH: Final = 165
# Above this share of one core, other processes are mentioned.
_BUSY: Final = 0.1


def console() -> Console:
    """Return where tables are printed."""
    from rich.console import Console

    made = Console(highlight=False)
    return made if made.width >= _WIDTH else Console(highlight=False, width=_WIDTH)


def duration(seconds: float) -> str:
    """Return three digits and a unit."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 0.9995:
            return f"{_digits(seconds * factor)} {unit}"
    return f"{_digits(seconds * 1e9)} ns"


def _digits(number: float) -> str:
    return f"{number:.2f}" if number < 9.995 else f"{number:.1f}" if number < 99.95 else f"{number:.0f}"


def of_case(case: Mapping[str, Any]) -> list[RenderableType]:
    """Return the tables of a case: latency, stream, and who is not in them and why."""
    out: list[RenderableType] = []
    peers: Mapping[str, Any] = case["peers"]
    if any("steady" in p for p in peers.values()):
        out.append(_latency(case))
    if case["summary"]["stream"]:
        out.append(_stream(case))
    out += [f"  {name}: {p['reason']}" for name, p in peers.items() if p["state"] != "ok"]
    share = case["others_cpu_s"] / max(case["wall_s"], 1e-9)
    if share > _BUSY:
        out.append(f"  [red]other processes took {share:.0%} of a core meanwhile: do not trust these times[/red]")
    return out


def _table(title: str, first: str, columns: Sequence[str]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, title_style="bold", pad_edge=False)
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _latency(case: Mapping[str, Any]) -> Table:
    timed = [name for name, p in case["peers"].items() if "steady" in p]
    head = "steady call, median of rounds"
    table = _table(
        f"{case['name']}: {case['title']}, {_threads(case)}",
        " x ".join(case["labels"]),
        [*timed, "to best", "95% range"],
    )
    table.caption = head
    for shape, row in zip(case["shapes"], case["summary"]["shapes"], strict=True):
        cells = []
        for name in timed:
            seconds = row["median_s"].get(name)
            text = "-" if seconds is None else duration(seconds)
            cells.append(f"[bold]{text}[/bold]" if name == row.get("best") else text)
        cells.append(_ratio(row.get("ratio")))
        cells.append(f"{row['low']:.2f} to {row['high']:.2f}" if "low" in row else "-")
        table.add_row(" x ".join(map(str, shape)), *cells)
    return table


def _threads(case: Mapping[str, Any]) -> str:
    return f"{case['threads']} {'thread' if case['threads'] == 1 else 'threads'}"


def _ratio(value: float | None) -> str:
    if value is None:
        return "-"
    colour = "green" if value <= 1 else "red"
    return f"[{colour}]{value:.2f}[/{colour}]"


def _stream(case: Mapping[str, Any]) -> Table:
    columns = ["prepare", "first call", "p50", "p99", "longest", "total", "calls", "peak MB", "+ workers"]
    title = f"{case['name']}: {len(case['stream'])} calls of random shapes, from cold, {_threads(case)}"
    table = _table(title, "peer", columns)
    for name, numbers in case["summary"]["stream"].items():
        stream = case["peers"][name]["stream"]
        keys = ("prepare_s", "first_s", "p50_s", "p99_s", "max_s", "total_s")
        count = str(len(stream["calls_s"]))
        memory = stream["memory"]
        table.add_row(
            name,
            *(duration(numbers[k]) for k in keys),
            count if numbers["whole"] else f"[red]only {count}[/red]",
            f"{memory['peak_mb']:.0f}",
            f"{memory['others_mb']:.0f}" if memory["others_mb"] else "",
        )
    return table


def of_run(record: Mapping[str, Any]) -> list[RenderableType]:
    """Return the table of all cases, and what it was measured on."""
    cases = record["cases"]
    names = sorted({n for c in cases for n in c["summary"]["against"]}, key=list(record["versions"]).index)
    columns = [
        "threads", "steady /\nbest peer", "worst\nshape", *(f"steady /\n{n}" for n in names),
        "stream /\ncompiling", "stream /\nnumpy", "stream /\ntorch", "compiled",
    ]  # fmt: skip
    table = _table("Tiercel's time to that of others; below 1: faster", "case", columns)
    table.caption = (
        "steady: calls of one shape, geometric means over shapes (worst shape: to the best peer); stream: total time "
        "to that of the best compiling peer, to NumPy's and to torch's; compiled: share of the time in jitted "
        "functions that compiled code took, the rest was interpreted"
    )
    for case in cases:
        summary = case["summary"]
        streams = [_ratio(summary["stream_ratios"].get(name)) for name in ("compiling", "numpy", "torch")]
        state = case["peers"].get(OURS, {})
        count = str(case["threads"])
        if state.get("state") != "ok":
            table.add_row(case["name"], count, f"[red]{state.get('state', 'not run')}[/red]")
            continue
        worst = max((row["ratio"] for row in summary["shapes"] if "ratio" in row), default=None)
        against = (f"{summary['against'][n]:.2f}" if n in summary["against"] else "-" for n in names)
        steady = (_ratio(summary["ratio"]), _ratio(worst))
        table.add_row(case["name"], count, *steady, *against, *streams, compiled_share(state))
    table.add_section()
    for count in sorted({case["threads"] for case in cases}):
        means = overall(case for case in cases if case["threads"] == count)
        streams = [_ratio(means[key]) for key in ("stream", "numpy", "torch")]
        table.add_row("geometric mean", str(count), _ratio(means["ratio"]), "", *("" for _ in names), *streams, "")
    machine = record["machine"]
    versions = ", ".join(f"{n} {v}" for n, v in record["versions"].items() if v)
    missing = [n for n, v in record["versions"].items() if not v]
    lines = [
        f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, Python {machine['python']}",
        versions,
        *([f"missing: {', '.join(missing)}"] if missing else []),
    ]
    return [table, *lines]


def compiled_share(peer: Mapping[str, Any]) -> str:
    """Return which share of the time in jitted functions was spent in compiled code, as text."""
    stats = peer.get("told", {}).get("stats", {})
    total = stats.get("time_ns", 0) + stats.get("compiled_time_ns", 0)
    return f"{stats.get('compiled_time_ns', 0) / total:.0%}" if total else "-"
