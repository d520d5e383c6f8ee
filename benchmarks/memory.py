"""What a machine weighs: allocated by Python and NumPy (tracemalloc), and resident in the process.

Five steps, each in a process of its own: Python with NumPy, which has multiplied matrices; tiercel imported; one small
jitted function called (an empty machine, with everything imported); one function hot, compiled, its kernel called: what
a program pays beside its own data, at most 15 MB; the demo's three models decorated and called ten times each. Of the
third and the last, what was allocated beyond the imports is listed by the part of tiercel that allocated it. Weights,
inputs and results are not counted; the limit for the demo is 2 MiB.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

LIMIT_BYTES = 2 << 20
RESIDENT_BYTES = 15_000_000
STEPS = ("numpy", "tiercel", "empty", "compiled", "demo")


def resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def by_part(before, after) -> dict[str, int]:
    """Growth by package of tiercel; what the interpreter and libraries allocate is `other`."""
    out: Counter[str] = Counter()
    for row in after.compare_to(before, "filename"):
        _, found, path = row.traceback[0].filename.partition("/tiercel/")
        out[path.split("/")[0].removesuffix(".py") if found else "other"] += row.size_diff
    return {part: size for part, size in out.most_common() if abs(size) >= 512}


def traced(prepare, work) -> dict:
    """What `work` leaves allocated, after `prepare` imported everything."""
    import gc
    import tracemalloc

    prepare()
    own = tracemalloc.Filter(False, tracemalloc.__file__)
    tracemalloc.start(1)
    gc.collect()
    before = tracemalloc.take_snapshot().filter_traces([own])
    kept = work()
    gc.collect()
    after = tracemalloc.take_snapshot().filter_traces([own])
    tracemalloc.stop()
    parts = by_part(before, after)
    del kept
    return {"allocated": sum(parts.values()), "parts": parts}


def softmax(x):
    import numpy as np

    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def compiled(tc, x) -> dict:
    """A program with one hot function, until its kernel has been called."""
    import tempfile
    import time

    with tempfile.TemporaryDirectory() as folder:
        tc.set_context(cache_dir=folder, hot_time_ms=0.0)
        f = tc.jit(softmax)
        end = time.perf_counter() + 30
        while not f.stats()["compiled_calls"] and time.perf_counter() < end:
            f(x)
            time.sleep(0.002)
        kernels = f.stats()["kernels"]
        resident = resident_bytes()
        tc.shutdown()
    return {"resident": resident, "kernels": kernels}


def step(name: str) -> dict:
    out: dict = {}
    import numpy as np

    x = np.ones((64, 768), np.float32)
    np.exp(x @ x.T)
    if name == "numpy":
        return {"resident": resident_bytes()}
    import tiercel as tc

    if name == "tiercel":
        return {"resident": resident_bytes()}
    if name == "compiled":
        return compiled(tc, x)
    from tiercel.tools import demo, demo_models

    def double(x):
        return x * 2

    def again(x):
        return x * 2

    if name == "empty":

        def work():
            made = tc.jit(again)
            made(np.ones(3))
            return made

        out = traced(lambda: tc.jit(double)(np.ones(3)), work)
        return {**out, "resident": resident_bytes()}
    weights = demo_models.make_weights()
    rng = np.random.default_rng(0)
    inputs = [demo._inputs(rng) for _ in range(10)]

    def work():
        # Interpreted: what compiling takes is code of packages and of kernels, in bounds of its own.
        models = demo_models.make_models(demo_models.define(), weights)
        with tc.context(level="O0"):
            for model in models:
                for one in inputs:
                    model.call(*one)
        return models

    out = traced(demo._import_everything, work)
    # Each of the two cells has its own copy of the weights.
    owned = 2 * sum(array.nbytes for array in weights)
    out["parts"]["values"] = out["parts"].get("values", 0) - owned
    out["allocated"] -= owned
    return {**out, "resident": resident_bytes()}


def main() -> int:
    if len(sys.argv) > 1:
        print(json.dumps(step(sys.argv[1])))
        return 0
    found = {}
    for name in STEPS:
        done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=True)
        found[name] = json.loads(done.stdout.splitlines()[-1])
    print("resident, MiB (each in a fresh process)")
    titles = (
        "Python with NumPy", "tiercel imported", "one function called", "one function compiled",
        "the demo's models called",
    )  # fmt: skip
    for name, title in zip(STEPS, titles, strict=True):
        print(f"  {title:<26} {found[name]['resident'] / 2**20:7.1f}")
    for name, title in (("empty", "one more small function"), ("demo", "the demo's three models")):
        print(f"\nallocated by {title}, KiB: {found[name]['allocated'] / 1024:.1f}")
        for part, size in found[name]["parts"].items():
            print(f"  {part:<26} {size / 1024:7.1f}")
    more = found["compiled"]["resident"] - found["numpy"]["resident"]
    verdict = "within" if more <= RESIDENT_BYTES else "ABOVE"
    print(f"\none function compiled, beyond NumPy: {more / 1e6:.1f} MB, {verdict} {RESIDENT_BYTES / 1e6:.0f} MB")
    right = found["demo"]["allocated"] < LIMIT_BYTES
    print(f"\n{'within' if right else 'ABOVE'} the limit of {LIMIT_BYTES / 2**20:.0f} MiB")
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
