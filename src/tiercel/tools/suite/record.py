"""The record of a run: what the JSON file holds.

In: cases as `schedule.run_case` returns them. Out: one dict, `SCHEMA` being its version and `check` what holds for it:

- `schema`, `tiercel` (version), `started` (UTC, ISO 8601), `machine`, `options`, `versions` (peer to version);
- `cases`: for each its `name`, `title`, `threads`, `labels` (of the numbers of a shape), `shapes`, `sizes` (on the axis
  of plots), `stream` (shapes), `rounds`, `reference_shapes` (at so many shapes a float64 reference was there), `wall_s`
  (of the case), `others_cpu_s` (processor time that processes not ours took in it), `summary` (see `schedule.compare`),
  and `peers`: name to
  - `state`: `ok`, `missing`, `cannot`, `wrong`, `error`, `died`, `slow` or `unfinished`, with a `reason` if not `ok`;
  - `import_s`, `export` (of the ONNX model), `stream` (`prepare_s`, `calls_s`, `total_s`, `whole`, `memory` in MB),
    `settle` (`first_s` at each shape), `steady` (for each shape the median seconds of each round);
  - `told`: what the peer says of itself; for Tiercel `stats` and `explain`;
  - `beside`: of a peer that comes from another run: what Tiercel took in that one, `steady` and `stream_s`.

Times are seconds. Files of several runs can be shown together: `tiercel bench --load a.json --load b.json`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from tiercel._version import __version__
from tiercel.errors import TiercelError
from tiercel.tools.suite.peers import PEERS, Peer
from tiercel.tools.suite.schedule import OURS, Options, compare
from tiercel.tools.suite.statistics import geometric_mean

__all__ = ["SCHEMA", "STATES", "check", "load", "machine", "make", "merged", "overall", "save"]

SCHEMA: Final = 2
_OF_A_CASE: Final = frozenset(
    ["name", "title", "threads", "labels", "shapes", "sizes", "stream", "wall_s", "others_cpu_s", "peers", "summary"]
)
STATES: Final = ("ok", "missing", "cannot", "wrong", "error", "died", "slow", "unfinished")


def make(cases: Sequence[dict[str, Any]], peers: Sequence[Peer], options: Options, started: str) -> dict[str, Any]:
    """Return the record of a run."""
    return {
        "schema": SCHEMA,
        "tiercel": __version__,
        "started": started,
        "machine": machine(),
        "options": asdict(options),
        "versions": {p.name: None if p.missing() else p.version() for p in peers},
        "cases": list(cases),
    }


def now() -> str:
    """Return the time, UTC."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def machine() -> dict[str, Any]:
    """Return what these numbers were measured on."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "cores": len(cores),
        "memory_mb": _memory_mb(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or "unknown"
    fields = dict(line.split(":", 1) for line in text.splitlines()[:40] if ":" in line)
    named = {key.strip(): value.strip() for key, value in fields.items()}
    model = f"family {named['cpu family']}, model {named['model']}" if {"cpu family", "model"} <= named.keys() else ""
    return ", ".join(part for part in (named.get("model name", ""), model) if part) or "unknown"


def _memory_mb() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    except (ValueError, OSError, AttributeError):
        return 0


def overall(cases: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return geometric means over cases: `ratio` to the best peer; of the stream's total time to that of the best
    compiling peer (`stream`), `numpy` and `torch`.
    """
    summaries = [case["summary"] for case in cases]
    ratios = [s["ratio"] for s in summaries if s["ratio"] is not None]
    means = {"ratio": geometric_mean(ratios) if ratios else None}
    for name, key in (("stream", "compiling"), ("numpy", "numpy"), ("torch", "torch")):
        streams = [s["stream_ratios"][key] for s in summaries if key in s["stream_ratios"]]
        means[name] = geometric_mean(streams) if streams else None
    return means


def save(record: Mapping[str, Any], path: Path) -> None:
    """Write a record."""
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> dict[str, Any]:
    """Read a record.

    Raises:
        TiercelError: it is none.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TiercelError(f"{path}: not JSON: {error}") from None
    wrong = check(record)
    if wrong:
        raise TiercelError(f"{path}: not a record of tiercel bench: {wrong}")
    assert isinstance(record, dict)
    return record


def merged(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one record of several.

    A case that several hold, with as many threads, the same shapes and the same stream, has the peers of all of them:
    each is compared with what we took in its own run. A peer that several hold is taken from the last in which it
    finished, and so are we; a case with other shapes replaces those before it.
    """
    cases: dict[Any, dict[str, Any]] = {}
    for record in records:
        for case in record["cases"]:
            key = case["name"], case["threads"]
            found = cases.get(key)
            same = found is not None and all(found[part] == case[part] for part in ("shapes", "stream"))
            cases[key] = _joined(found, case) if found is not None and same else case
    versions: dict[str, str | None] = {}
    for record in records:
        versions |= {name: version or versions.get(name) for name, version in record["versions"].items()}
    threads = {case["threads"] for case in cases.values()}
    options = {**records[-1]["options"], "threads": max(threads, default=records[-1]["options"]["threads"])}
    return {**records[-1], "versions": versions, "options": options, "cases": list(cases.values())}


def _joined(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """One case of two runs."""
    done = new["peers"].get(OURS, {}).get("state") == "ok"
    first, then = (old, new) if done else (new, old)
    peers = {name: dict(peer) for name, peer in then["peers"].items()}
    for name, peer in first["peers"].items():
        if name == OURS or peers.get(name, {}).get("state") == "ok":
            continue
        if name not in peers or peer["state"] == "ok":
            peers[name] = {"beside": _beside(first["peers"].get(OURS, {})), **peer}
    order = list(PEERS)
    names = sorted(peers, key=lambda name: order.index(name) if name in order else len(order))
    made = {**then, "peers": {name: peers[name] for name in names}}
    made |= {key: old[key] + new[key] for key in ("wall_s", "others_cpu_s")}
    return {**made, "summary": compare(made)}


def _beside(ours: Mapping[str, Any]) -> dict[str, Any]:
    stream = ours.get("stream")
    return {
        "steady": ours.get("steady") if ours.get("state") == "ok" else None,
        "stream_s": stream["total_s"] if stream and stream["whole"] else None,
    }


def check(record: Any) -> str | None:
    """Return what is wrong with a record, or None."""
    if not isinstance(record, dict):
        return "no object"
    if record.get("schema") != SCHEMA:
        return f"schema {record.get('schema')!r}, expected {SCHEMA}"
    for key, kind in (("machine", dict), ("options", dict), ("versions", dict), ("cases", list), ("started", str)):
        if not isinstance(record.get(key), kind):
            return f"{key!r} is missing"
    for case in record["cases"]:
        missing = _OF_A_CASE - set(case)
        if missing:
            return f"case {case.get('name')!r} has no {min(missing)!r}"
        if len(case["sizes"]) != len(case["shapes"]):
            return f"case {case['name']!r} has other sizes than shapes"
        for name, peer in case["peers"].items():
            if peer.get("state") not in STATES:
                return f"case {case['name']!r}, peer {name!r}: state {peer.get('state')!r}"
            if peer["state"] != "ok" and not peer.get("reason"):
                return f"case {case['name']!r}, peer {name!r}: no reason"
            if peer["state"] == "ok" and len(peer.get("steady", ())) != len(case["shapes"]):
                return f"case {case['name']!r}, peer {name!r}: not a time for each shape"
    return None
