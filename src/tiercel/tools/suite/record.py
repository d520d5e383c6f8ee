"""The record of a run: what the JSON file holds.

In: cases as `schedule.run_case` returns them. Out: one dict, `SCHEMA` being its version and `check` what holds for it:

- `schema`, `tiercel` (version), `started` (UTC, ISO 8601), `machine`, `options`, `versions` (peer to version);
- `cases`: for each its `name`, `title`, `labels` (of the numbers of a shape), `shapes`, `sizes` (on the axis of plots),
  `stream` (shapes), `rounds`, `reference_shapes` (at so many shapes a float64 reference was there), `wall_s` (of the
  case), `others_cpu_s` (processor time that processes not ours took in it), `summary` (see `schedule.compare`), and
  `peers`: name to
  - `state`: `ok`, `missing`, `cannot`, `wrong`, `error`, `died` or `slow`, with a `reason` if it is not `ok`;
  - `import_s`, `export` (of the ONNX model), `stream` (`prepare_s`, `calls_s`, `total_s`, `whole`, `memory` in MB),
    `settle` (`first_s` at each shape), `steady` (for each shape the median seconds of each round);
  - `told`: what the peer says of itself; for Tiercel `stats` and `explain`.

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
from tiercel.tools.suite.peers import Peer
from tiercel.tools.suite.schedule import Options
from tiercel.tools.suite.statistics import geometric_mean

__all__ = ["SCHEMA", "STATES", "check", "load", "machine", "make", "merged", "overall", "save"]

SCHEMA: Final = 1
_OF_A_CASE: Final = frozenset(
    ["name", "title", "labels", "shapes", "sizes", "stream", "wall_s", "others_cpu_s", "peers", "summary"]
)
STATES: Final = ("ok", "missing", "cannot", "wrong", "error", "died", "slow")


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
    """Return geometric means over cases: `ratio` to the best peer, `stream` (total time) to the best compiling peer."""
    summaries = [case["summary"] for case in cases]
    ratios = [s["ratio"] for s in summaries if s["ratio"] is not None]
    streams = [s["stream_ratios"]["compiling"] for s in summaries if "compiling" in s["stream_ratios"]]
    return {
        "ratio": geometric_mean(ratios) if ratios else None,
        "stream": geometric_mean(streams) if streams else None,
    }


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
    """Return one record of several: a case that several hold is taken from the last."""
    cases = {case["name"]: case for record in records for case in record["cases"]}
    return {**records[-1], "cases": list(cases.values())}


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
