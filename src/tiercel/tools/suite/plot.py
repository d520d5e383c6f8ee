"""Plots of a record: latency against size for every peer, and the stream of each with its stalls.

In: a record. Out: one picture, a column for each case: above the median latency of a call against the size of its
input, below what a stream of random shapes has done by when. There a peer is a line of calls finished against the time
that has passed, building and compiling included: a stall is a flat piece as long as it took, whoever is above is ahead,
and the line ends where the stream does. Both have logarithmic axes; there is one legend. Peers differ in colour and in
mark, so that it reads without colours, too. matplotlib comes with `pip install tiercel[bench]`.

The picture of a record is the same in every run: an SVG has no date, and its identifiers come from a fixed seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tiercel.errors import TiercelError
from tiercel.tools.suite.schedule import OURS
from tiercel.tools.suite.statistics import median

__all__ = ["STALL", "draw", "finished_by", "require"]

# Colour (Okabe and Ito, 2008: told apart by people who see no red or green) and mark of each peer, in all plots.
STYLES: Final = {
    "tiercel": ("#D55E00", "o"),
    "numpy": ("#000000", "s"),
    "torch": ("#0072B2", "^"),
    "torch.compile": ("#56B4E9", "v"),
    "onnxruntime": ("#009E73", "D"),
    "jax": ("#CC79A7", "P"),
    "jax-padded": ("#8C6BB1", "X"),
    "numba": ("#E69F00", "*"),
}
_OTHER: Final = ("#777777", ".")
_WIDTH: Final = 3.1  # inches of a column: the letters of three can be read on a page 800 pixels wide
_MOST_POINTS: Final = 150
STALL: Final = 5.0
"""A call that takes so many times the median of its stream is drawn whatever points are left out."""


def require() -> None:
    """Raise if there is nothing to draw with, before anything is measured.

    Raises:
        TiercelError: matplotlib is missing.
    """
    try:
        from matplotlib import figure as _  # noqa: F401
    except ImportError:
        raise TiercelError("--plot needs matplotlib: pip install 'tiercel[bench]'") from None


def draw(record: Mapping[str, Any], path: Path) -> None:
    """Write the plots, in the format that the name ends with (`.png`, `.svg`, `.pdf`).

    Raises:
        TiercelError: matplotlib is missing or does not know the format, or there is no case.
    """
    require()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    cases: Sequence[Mapping[str, Any]] = record["cases"]
    if not cases:
        raise TiercelError("nothing to draw")
    across = min(2 if len(cases) == 4 else 3, len(cases))
    blocks = -(-len(cases) // across)
    settings = {"svg.hashsalt": "tiercel", "svg.fonttype": "none", "font.size": 9, "axes.titlesize": 10}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(max(5.5, _WIDTH * across), 5.0 * blocks + 0.5), layout="constrained")
        grid = figure.subplots(2 * blocks, across, squeeze=False)
        several = len({case["threads"] for case in cases}) > 1
        for place in range(blocks * across):
            row, column = divmod(place, across)
            above, below = grid[2 * row][column], grid[2 * row + 1][column]
            if place >= len(cases):
                above.set_axis_off()
                below.set_axis_off()
                continue
            case = cases[place]
            _latency(above, case, several)
            _stream(below, case)
            if column == 0:
                above.set_ylabel("ms of a steady call")
                below.set_ylabel("calls finished")
        _legend(figure, cases)
        facts = {"Date": None} if path.suffix == ".svg" else {}
        try:
            figure.savefig(path, dpi=110, metadata=facts or None)
        except ValueError as error:
            raise TiercelError(f"--plot: {error}") from None


def _legend(figure: Any, cases: Sequence[Mapping[str, Any]]) -> None:
    from matplotlib.lines import Line2D

    drawn = {n for case in cases for n, p in case["peers"].items() if "stream" in p or any(p.get("steady", ()))}
    names = [name for name in [*STYLES, *sorted(drawn - STYLES.keys())] if name in drawn]
    handles = [Line2D([], [], label=name, **_style(name)) for name in names]
    if handles:
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=9)


def _style(name: str) -> dict[str, Any]:
    colour, mark = STYLES.get(name, _OTHER)
    ours = name == OURS
    return {"color": colour, "marker": mark, "ms": 4, "lw": 2.2 if ours else 1.1, "zorder": 3 if ours else 2}


def _latency(axes: Any, case: Mapping[str, Any], several: bool) -> None:
    for name, peer in case["peers"].items():
        points = sorted(
            (size, 1e3 * median(rounds))
            for size, rounds in zip(case["sizes"], peer.get("steady", ()), strict=False)
            if rounds
        )
        if points:
            axes.plot(*zip(*points, strict=True), label=name, **_style(name))
    axes.set(xscale="log", yscale="log", xlabel=" x ".join(case["labels"]))
    threads = f", {case['threads']} threads" if several else ""
    axes.set_title(f"{case['name']}{threads}", loc="left", fontweight="bold")
    _frame(axes)


def _stream(axes: Any, case: Mapping[str, Any]) -> None:
    for name, peer in case["peers"].items():
        if "stream" in peer:
            stream = peer["stream"]
            at, count = finished_by(stream["prepare_s"], stream["calls_s"])
            style = _style(name) | {"ms": 5}
            axes.plot(at, count, label=name, markevery=[len(at) - 1], **style)
    axes.set(xscale="log", yscale="log", xlabel="seconds from cold, compiling included")
    axes.set_title(f"{len(case['stream'])} calls of random shapes", loc="left")
    _frame(axes)


def finished_by(prepare_s: float, calls_s: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the corners of the line of a stream: seconds since the start, calls finished by then.

    Of long streams, corners that are close together on a logarithmic axis are left out, except around stalls.
    """
    ends = []
    clock = prepare_s
    for seconds in calls_s:
        clock += seconds
        ends.append(clock)
    usual = median(calls_s)
    kept: list[int] = []
    step = 10 ** (3 / _MOST_POINTS)
    for index, end in enumerate(ends):
        stall = calls_s[index] > STALL * usual
        if stall and index and (not kept or kept[-1] != index - 1):
            kept.append(index - 1)
        if stall or not kept or end > step * ends[kept[-1]] or index == len(ends) - 1:
            kept.append(index)
    return [max(ends[i], 1e-6) for i in kept], [float(i + 1) for i in kept]


def _frame(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3, which="major", lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)
