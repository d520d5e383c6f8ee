"""Share of run time in compiled code, over the examples: each is run until nothing more compiles, then measured.

An example's `main` is called again and again in a process of its own; what it prints is dropped. After the warm-up
(at least so many seconds and until nothing is pending) its jitted functions are looked at over further runs: time in
compiled code against all time in them. What is interpreted is named with its reason. An example whose `main` makes a
new model has new instances in each run, which kernels guarded by an instance do not take: that is counted as it is. The
target is 95 percent, over all examples together and by the median.

Run: `python benchmarks/share.py [--warm SECONDS] [EXAMPLE ...]`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import io
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import tiercel as tc
from tiercel.api.function import JitFunction

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
TARGET = 0.95


def functions() -> dict[int, JitFunction]:
    """All jitted functions there are."""
    return {id(o): o for o in gc.get_objects() if isinstance(o, JitFunction)}


def times(function: JitFunction) -> tuple[int, int]:
    """Nanoseconds in compiled code, and interpreted or as Python."""
    found = function.stats()
    return found["compiled_time_ns"], found["time_ns"]


def measure(path: str, warm_s: float) -> list[dict[str, Any]]:
    """Run one example; a row for each of its functions."""
    spec = importlib.util.spec_from_file_location("example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["example"] = module
    spec.loader.exec_module(module)
    with contextlib.redirect_stdout(io.StringIO()):
        end = time.perf_counter() + warm_s
        while time.perf_counter() < end:
            module.main()
        for function in functions().values():
            function.wait(30)
        module.main()
        before = {key: times(f) for key, f in functions().items()}
        end = time.perf_counter() + max(1.0, warm_s / 2)
        while time.perf_counter() < end:
            module.main()
    rows = []
    for key, function in functions().items():
        was = before.get(key, (0, 0))
        now = times(function)
        report = function.explain().functions[0] if function.explain().functions else None
        reason = report.unmet if report is not None else function.explain().reason
        if not reason and now[1] > was[1]:
            reason = f"{function.stats()['misses']} calls that no kernel took: another instance, or other sizes"
        rows.append({"name": function.name, "compiled": now[0] - was[0], "other": now[1] - was[1], "why": reason or ""})
    return [row for row in rows if row["compiled"] + row["other"]]


def main() -> None:
    """Run the examples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--warm", type=float, default=4.0)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one, given.warm)))
        tc.shutdown()
        return
    shares, compiled, everything = [], 0, 0
    print(f"{'example':<24}{'compiled':>10}   functions: share, and why the rest is not compiled")
    for path in sorted(EXAMPLES.glob("*.py")):
        if given.names and path.stem not in given.names:
            continue
        command = [sys.executable, __file__, "--one", str(path), "--warm", str(given.warm)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{path.stem:<24}{'failed':>10}   {done.stderr.strip().splitlines()[-1]}")
            continue
        rows = json.loads(done.stdout.splitlines()[-1])
        inside, total = sum(r["compiled"] for r in rows), sum(r["compiled"] + r["other"] for r in rows)
        compiled, everything = compiled + inside, everything + total
        shares.append(inside / total if total else 0.0)
        told = "; ".join(
            f"{r['name']} {r['compiled'] / (r['compiled'] + r['other']):.0%}{': ' + r['why'] if r['why'] else ''}"
            for r in sorted(rows, key=lambda r: -r["compiled"] - r["other"])[:4]
        )
        print(f"{path.stem:<24}{shares[-1]:>10.1%}   {told}", flush=True)
    if everything:
        median, whole = statistics.median(shares), compiled / everything
        print(f"{'median':<24}{median:>10.1%}   target {TARGET:.0%}: {'met' if median >= TARGET else 'missed'}")
        print(f"{'all together':<24}{whole:>10.1%}   target {TARGET:.0%}: {'met' if whole >= TARGET else 'missed'}")


if __name__ == "__main__":
    main()
