"""Plots of a record: latency against size for every peer, and the stream of each with its stalls.

In: a record. Out: one picture, a row for each case. matplotlib comes with `pip install tiercel[bench]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tiercel.errors import TiercelError
from tiercel.tools.suite.statistics import median

__all__ = ["draw", "require"]

# One colour for each peer in all plots, told apart by people who see no red or green (Okabe and Ito, 2008).
COLOURS: Final = {
    "tiercel": "#D55E00",
    "numpy": "#000000",
    "torch": "#0072B2",
    "torch.compile": "#56B4E9",
    "onnxruntime": "#009E73",
    "jax": "#CC79A7",
    "jax-padded": "#8C6BB1",
    "numba": "#E69F00",
}


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
    """Write the plots.

    Raises:
        TiercelError: matplotlib is missing, or there is no case.
    """
    require()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cases = record["cases"]
    if not cases:
        raise TiercelError("nothing to draw")
    figure = Figure(figsize=(12, 3.6 * len(cases)), layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subplots(len(cases), 2, squeeze=False)
    for (left, right), case in zip(rows, cases, strict=True):
        _latency(left, case)
        _stream(right, case)
    figure.savefig(path, dpi=110)


def _latency(axes: Any, case: Mapping[str, Any]) -> None:
    for name, peer in case["peers"].items():
        points = sorted(
            (size, 1e3 * median(rounds))
            for size, rounds in zip(case["sizes"], peer.get("steady", ()), strict=False)
            if rounds
        )
        if points:
            wide = 2.4 if name == "tiercel" else 1.2
            axes.plot(*zip(*points, strict=True), marker="o", ms=3, lw=wide, label=name, color=COLOURS.get(name))
    axes.set(xscale="log", yscale="log", ylabel="ms, median", xlabel=" x ".join(case["labels"]))
    axes.set_title(f"{case['name']}: {case['title']}", fontsize=10, loc="left")
    axes.grid(alpha=0.3, which="both", lw=0.5)
    if axes.lines:
        axes.legend(fontsize=7)


def _stream(axes: Any, case: Mapping[str, Any]) -> None:
    for name, peer in case["peers"].items():
        if "stream" not in peer:
            continue
        # Against the time that has passed, so that a stall is as long as it is high.
        at, clock = [], peer["stream"]["prepare_s"]
        for seconds in peer["stream"]["calls_s"]:
            clock += seconds
            at.append(max(clock, 1e-6))
        milliseconds = [1e3 * s for s in peer["stream"]["calls_s"]]
        axes.plot(at, milliseconds, marker=".", ms=3, lw=0.6, label=name, color=COLOURS.get(name))
    axes.set(xscale="log", yscale="log", ylabel="ms of a call", xlabel="seconds since the start, compiling included")
    axes.set_title(f"{len(case['stream'])} calls of random shapes, from cold", fontsize=10, loc="left")
    axes.grid(alpha=0.3, which="both", lw=0.5)
