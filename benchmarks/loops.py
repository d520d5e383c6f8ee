"""One long call whose loop is compiled while it runs: total time with compiling, and when the code came.

Each case is one call of 20000 passes (`--passes`) over a small cell, in a process of its own with an empty kernel cache
and a compile worker that was started before (`--cold`: that was not). Printed are the seconds of the undecorated
function, of the interpreter (O0), and of the first call at O2, everything included; how long after the beginning of the
call the loop was found hot and how long after that its code was in place; the share of passes that compiled code made;
and the second call. Run: `python benchmarks/loops.py [--passes N] [--rounds N] [--cold]`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

SEEN: list[int] = []


def cell(x: Any, h: Any, w: Any, u: Any) -> Any:
    """A recurrent cell. x: (batch, input); h: (batch, hidden)."""
    return np.tanh(x @ w + h @ u)


def rnn(x: Any, h: Any, w: Any, u: Any, passes: int) -> Any:
    """A function that could be compiled as a whole, if its first call ever ended."""
    for _ in range(passes):
        h = cell(x, h, w, u)
    return h


def rnn_between_python(x: Any, h: Any, w: Any, u: Any, passes: int) -> Any:
    """A function that can never be compiled as a whole: it appends to a global list."""
    SEEN.append(passes)
    states = []
    for _ in range(passes):
        h = cell(x, h, w, u)
        states.append(h)
    SEEN.append(len(states))
    return h


def converge(x: Any, h: Any, w: Any, u: Any, passes: int) -> Any:
    """A `while` whose condition depends on data (and holds for all passes)."""
    made = 0
    while made < passes and np.abs(h).max() < 1e6:
        h = cell(x, h, w, u)
        made += 1
    return h


def fill(x: Any, h: Any, w: Any, u: Any, passes: int) -> Any:
    """Results written into an array that was made before the loop."""
    out = np.zeros((passes, *h.shape), h.dtype)
    for t in range(passes):
        h = cell(x, h, w, u)
        out[t] = h
    return out


CASES: dict[str, Callable[..., Any]] = {
    "rnn": rnn, "rnn between Python": rnn_between_python, "while": converge, "fill an array": fill,
}  # fmt: skip


def arguments() -> tuple[Any, ...]:
    """Batch 4, input 16, hidden 32, float32."""
    rng = np.random.default_rng(0)
    shapes = ((4, 16), (4, 32), (16, 32), (32, 32))
    return tuple((rng.standard_normal(s) * 0.1).astype(np.float32) for s in shapes)


def measure(name: str, passes: int, cold: bool) -> dict[str, float]:
    """One call at each level, in this process."""
    import tiercel as tc
    from tiercel.hotpath.events import events

    if not cold:

        @tc.jit
        def other(v: Any) -> Any:
            return np.exp(v) + 1

        other.warmup(np.ones(3))
    function, given = CASES[name], arguments()
    jitted = tc.jit(function)

    def seconds(call: Callable[[], Any]) -> float:
        began = time.perf_counter()
        call()
        return time.perf_counter() - began

    found: dict[str, float] = {"numpy": seconds(lambda: function(*given, passes))}
    with tc.context(level="O0"):
        jitted(*given, 100)
        found["O0"] = seconds(lambda: jitted(*given, passes))
    before = time.time()
    last = events().list()[-1].number if events().list() else 0
    found["O2"] = seconds(lambda: jitted(*given, passes))
    detected = [e.time for e in events().list("detected", last)]
    patched = [e.time for e in events().list("patched", last)]
    found["hot_ms"] = (detected[0] - before) * 1e3 if detected else float("nan")
    found["compile_ms"] = (patched[0] - detected[0]) * 1e3 if patched else float("nan")
    found["share"] = jitted.stats()["compiled_iterations"] / passes
    found["second"] = seconds(lambda: jitted(*given, passes))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cold", action="store_true", help="start the worker in the measured call")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.passes, options.cold)))
        return
    heads = ("NumPy s", "O0 s", "O2 s", "O0/O2", "hot ms", "+ compile ms", "compiled", "2nd call s", "O0/2nd")
    print(f"{'one call, ' + str(options.passes) + ' passes':26}" + "".join(f"{h:>13}" for h in heads))
    for name in CASES:
        runs = []
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as cache:
                command = [sys.executable, __file__, "--one", name, "--passes", str(options.passes)]
                done = subprocess.run(
                    command + (["--cold"] if options.cold else []), capture_output=True, text=True, check=True,
                    env={**os.environ, "TIERCEL_CACHE_DIR": cache},
                )  # fmt: skip
            runs.append(json.loads(done.stdout))
        m = {key: statistics.median(r[key] for r in runs) for key in runs[0]}
        ratio, second = (statistics.median(r["O0"] / r[key] for r in runs) for key in ("O2", "second"))
        cells = (
            f"{m['numpy']:.3f}", f"{m['O0']:.3f}", f"{m['O2']:.3f}", f"{ratio:.2f}", f"{m['hot_ms']:.0f}",
            f"{m['compile_ms']:.0f}", f"{m['share']:.0%}", f"{m['second']:.3f}", f"{second:.1f}",
        )  # fmt: skip
        print(f"{name:26}" + "".join(f"{c:>13}" for c in cells), flush=True)


if __name__ == "__main__":
    main()
