"""Whose turn it is: runs one case on all peers and returns what was measured, as plain data.

In: a case, peers, options. Out: a dict as `record` describes it. Order of a case:

1. each peer in a process of its own, one after the other: import, then the stream of random shapes from cold, all
   compiling included, alone on the machine;
2. each peer meets every steady shape and settles: nothing is being compiled any more;
3. results at every steady shape are compared; who is wrong is not timed further;
4. rounds: for each shape every peer has a short turn, the order moving on by one from round to round.

Nothing but the peer whose turn it is runs (see `process`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tiercel.tools.suite import agreement
from tiercel.tools.suite.case import Case, Shape
from tiercel.tools.suite.child import Request
from tiercel.tools.suite.load import Others
from tiercel.tools.suite.peers import Peer
from tiercel.tools.suite.process import Child, Failed
from tiercel.tools.suite.statistics import geometric_mean, median, percentile, ratio_of_rounds

__all__ = ["OURS", "Interrupted", "Options", "compare", "run_case"]

OURS: Final = "tiercel"
# A peer that is so much slower than the fastest at a shape, and takes longer than this, gets a turn there in the first
# rounds only: others could have many in its place.
_HOPELESS: Final = 8.0
_LONG_S: Final = 0.05
_ROUNDS_FOR_HOPELESS: Final = 3
_FEWEST_ROUNDS: Final = 3


class Interrupted(KeyboardInterrupt):
    """Somebody has had enough of a case.

    Attributes:
        case: as `run_case` returns it, with what was measured until then.
    """

    def __init__(self, case: dict[str, Any]) -> None:
        super().__init__()
        self.case = case


@dataclass(frozen=True, slots=True)
class Options:
    """How to measure.

    Attributes:
        quick: fewer shapes, calls and rounds.
        threads: for every peer.
        limit_s: what stream, settling and comparing of one (case, peer) may take. The stream may take two thirds of it:
            a peer that is slow there is cut short, and its steady calls are measured all the same.
        rounds: of the steady part.
        turn_s: how long a peer calls at a shape in a round.
        steady_s: when rounds have taken so long, no further one begins (3 are always made).
        settle_s: how long a peer is called before it is steady.
        reference_s: how long the float64 reference may compute.
    """

    quick: bool = False
    threads: int = 1
    limit_s: float = 300.0
    rounds: int = 15
    turn_s: float = 0.03
    steady_s: float = 60.0
    settle_s: float = 3.0
    reference_s: float = 20.0

    @classmethod
    def usual(cls, quick: bool, threads: int, limit_s: float | None) -> Options:
        """Return those of `--quick`, or of a full run."""
        if quick:
            return cls(True, threads, limit_s or 40.0, 9, 0.01, 10.0, 1.0, 4.0)
        return cls(False, threads, limit_s or 300.0)


def run_case(
    registry: str, case: Case, peers: Sequence[Peer], options: Options, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Run one case.

    Args:
        registry: where children find the case by its name (`module:attribute`).
        case: what to compute.
        peers: those who compute it; missing packages are noted.
        options: how.
        tell: called with a line about what happens now.

    Raises:
        Interrupted: by Ctrl-C; has what was measured.
    """
    shapes = list(case.shapes(options.quick))
    stream = case.stream(options.quick)
    record: dict[str, Any] = {
        "name": case.name,
        "title": case.title,
        "threads": options.threads,
        "labels": list(case.labels),
        "shapes": [list(s) for s in shapes],
        "sizes": [case.size(s) for s in shapes],
        "stream": [list(s) for s in stream],
        "peers": {},
    }
    out: dict[str, dict[str, Any]] = record["peers"]
    others, began = Others(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tiercel-bench-") as folder:
        children: dict[str, Child] = {}
        try:
            for peer in peers:
                tell(f"{case.name}: {peer.name}")
                entry = out[peer.name] = {"state": "ok"}
                package = peer.missing()
                if package is not None:
                    entry |= {"state": "missing", "reason": f"{package} is not installed"}
                    continue
                request = Request(registry, case.name, peer.runtime, options.threads, folder)
                _begin(peer, request, options, shapes, stream, entry, children)
            tell(f"{case.name}: comparing results")
            record["reference_shapes"] = _agree(registry, case, options, folder, children, shapes, out)
            for name in list(children):
                if out[name]["state"] != "ok":
                    children.pop(name).close()
            record["rounds"] = _rounds(case.name, options, children, shapes, out, tell)
            for name, child in children.items():
                try:
                    out[name]["told"] = child.ask("describe")
                except Failed as failed:
                    _note(out[name], failed)
            return _closed(record, others, began, children)
        except KeyboardInterrupt:
            for entry in out.values():
                rounds = entry.get("steady", [[]])
                if entry["state"] == "ok" and min(map(len, rounds)) < _FEWEST_ROUNDS:
                    entry.pop("steady", None)
                    entry |= {"state": "unfinished", "reason": "interrupted"}
            raise Interrupted(_closed(record, others, began, children)) from None
        finally:
            for child in children.values():
                child.close()


def _closed(record: dict[str, Any], others: Others, began: float, children: Mapping[str, Child]) -> dict[str, Any]:
    """Add what is known at the end."""
    record["others_cpu_s"] = others.seconds([child.process.pid for child in children.values()])
    record["wall_s"] = time.monotonic() - began
    record["summary"] = compare(record)
    return record


def _begin(
    peer: Peer,
    request: Request,
    options: Options,
    shapes: list[Shape],
    stream: list[Shape],
    entry: dict[str, Any],
    children: dict[str, Child],
) -> None:
    """Start a peer and take it through the stream and all shapes."""
    child: Child | None = None
    try:
        if "onnx" in peer.needs:
            entry["export"] = _export(request, options)
        child = Child(request, peer.name, options.limit_s)
        entry["import_s"] = child.started["import_s"]
        entry["stream"] = child.ask("stream", shapes=stream, limit_s=options.limit_s * 2 / 3)
        entry["settle"] = child.ask("settle", shapes=shapes, seconds=options.settle_s)
        children[peer.name] = child
    except Failed as failed:
        _note(entry, failed)
        if child is not None:
            child.close()


def _export(request: Request, options: Options) -> Any:
    """Write the ONNX model of a case with torch, in a process that is gone before the model is run."""
    from tiercel.tools.suite.peers import PEERS

    torch = Request(request.registry, request.case, PEERS["torch"].runtime, request.threads, request.folder)
    with Child(torch, "export", options.limit_s) as exporter:
        try:
            return exporter.ask("export")
        except Failed as failed:
            raise Failed(failed.kind, str(failed) if failed.kind == "cannot" else f"export: {failed}") from None


def _note(entry: dict[str, Any], failed: Failed) -> None:
    entry |= {"state": failed.kind, "reason": str(failed)}


def _agree(
    registry: str,
    case: Case,
    options: Options,
    folder: str,
    children: dict[str, Child],
    shapes: list[Shape],
    out: dict[str, dict[str, Any]],
) -> int:
    """Compare results; note who is wrong. Returns at how many shapes the reference took part."""
    from tiercel.tools.suite.peers import PEERS

    began = time.monotonic()
    known = 0
    request = Request(registry, case.name, PEERS["numpy"].runtime, options.threads, folder, double=True)
    reference: Child | None = None
    try:
        try:
            reference = Child(request, "reference", options.reference_s)
        except Failed:
            pass
        for shape in shapes:
            right: agreement.Sample | None = None
            # Shapes grow; what does not fit into the time is left to the median of all peers.
            if reference is not None and time.monotonic() - began < options.reference_s / 2:
                try:
                    right = reference.ask("sample", shape=shape)
                    known += 1
                except Failed:
                    reference.close()
                    reference = None
            samples = {}
            for name, child in children.items():
                if out[name]["state"] == "ok":
                    try:
                        samples[name] = child.ask("sample", shape=shape)
                    except Failed as failed:
                        _note(out[name], failed)
            for name, text in agreement.disagreements(samples, right, case.rtol, case.atol, case.odd_share).items():
                out[name] |= {"state": "wrong", "reason": f"wrong at {_text(shape)}: {text}"}
    finally:
        if reference is not None:
            reference.close()
    return known


def _rounds(
    case: str,
    options: Options,
    children: dict[str, Child],
    shapes: list[Shape],
    out: dict[str, dict[str, Any]],
    tell: Callable[[str], None],
) -> int:
    """Fill in `steady`: for each peer and shape the median seconds of a call, round by round."""
    for name, child in children.items():
        out[name]["steady"] = [[] for _ in shapes]
        child.left_s = child.limit_s + options.steady_s
    began = time.monotonic()
    turn = 0
    number = 0
    while number < options.rounds:
        tell(f"{case}: round {number + 1} of {options.rounds}")
        for index, shape in enumerate(shapes):
            names = [n for n in children if out[n]["state"] == "ok"]
            fastest = min((median(s) for n in names if (s := out[n]["steady"][index])), default=0.0)
            turn += 1
            for name in names[turn % len(names) :] + names[: turn % len(names)] if names else ():
                times = out[name]["steady"][index]
                hopeless = bool(times) and median(times) > max(_HOPELESS * fastest, _LONG_S) and name != OURS
                if hopeless and number >= _ROUNDS_FOR_HOPELESS:
                    continue
                try:
                    times.append(median(children[name].ask("time", shape=shape, turn_s=options.turn_s)))
                except Failed as failed:
                    _note(out[name], failed)
        number += 1
        if number >= _FEWEST_ROUNDS and time.monotonic() - began > options.steady_s:
            break
    return number


# ---- what it comes to ------------------------------------------------------------------------------------------------


def compare(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a case that tables show.

    Keys: `shapes` (for each shape: `median_s` of each peer, `best`, the other peer that is fastest compared with us,
    and the `ratio` of our time to its, with `low` and `high`), `ratio` (geometric mean of them), `stream` (for each
    peer: first_s, prepare_s, p50_s, p99_s, max_s, total_s, whole), `stream_ratios` (of our total to each peer's, and as
    `compiling` to the best compiling peer's), `against` (peer to geometric mean of our time to its).

    A peer that was measured in another run (see `record.merged`) has what we took in that one beside it, and is
    compared with that.
    """
    peers: Mapping[str, Any] = record["peers"]
    steady = {n: p["steady"] for n, p in peers.items() if p["state"] == "ok" and "steady" in p}
    ours = steady.pop(OURS, None)
    rows: list[dict[str, Any]] = []
    against: dict[str, list[float]] = {name: [] for name in steady}
    for index in range(len(record["shapes"])):
        timed = {name: rounds[index] for name, rounds in steady.items() if rounds[index]}
        row: dict[str, Any] = {"median_s": {name: median(times) for name, times in timed.items()}}
        ratios = {}
        for name, times in timed.items():
            beside = peers[name].get("beside", {}).get("steady", ours)
            if beside and beside[index]:
                ratios[name] = ratio_of_rounds(beside[index], times)
                against[name].append(ratios[name].value)
        if ours and ours[index]:
            row["median_s"][OURS] = median(ours[index])
        if ratios:
            row["best"] = max(ratios, key=lambda name: ratios[name].value)
            ratio = ratios[row["best"]]
            row |= {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
        elif timed:
            row["best"] = min(timed, key=row["median_s"].__getitem__)
        rows.append(row)
    ratios_of_shapes = [r["ratio"] for r in rows if "ratio" in r]
    return {
        "shapes": rows,
        "ratio": geometric_mean(ratios_of_shapes) if ratios_of_shapes else None,
        "against": {name: geometric_mean(values) for name, values in against.items() if values},
        "stream": {n: _stream(p["stream"]) for n, p in peers.items() if "stream" in p},
        "stream_ratios": _stream_ratios(peers),
    }


def _stream(stream: Mapping[str, Any]) -> dict[str, Any]:
    calls = stream["calls_s"]
    return {
        "prepare_s": stream["prepare_s"],
        "first_s": calls[0],
        "p50_s": percentile(calls, 0.5),
        "p99_s": percentile(calls, 0.99),
        "max_s": max(calls),
        "total_s": stream["total_s"],
        "whole": stream["whole"],
    }


def _stream_ratios(peers: Mapping[str, Any]) -> dict[str, float]:
    from tiercel.tools.suite.peers import PEERS

    def total(name: str) -> float | None:
        stream = peers.get(name, {}).get("stream")
        return stream["total_s"] if stream and stream["whole"] and peers[name]["state"] == "ok" else None

    ours = total(OURS)
    ratios = {}
    for name in peers:
        theirs = total(name)
        beside = peers[name].get("beside", {}).get("stream_s", ours)
        if name != OURS and theirs is not None and beside is not None:
            ratios[name] = beside / theirs
    compiling = [ratio for name, ratio in ratios.items() if name in PEERS and PEERS[name].compiles]
    return ({"compiling": max(compiling)} if compiling else {}) | ratios


def _text(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))
