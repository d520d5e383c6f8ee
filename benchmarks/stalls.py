"""Whether a call ever waits: 300 calls with 100 shapes, compiling included, against what each takes in NumPy.

A call is late when it takes more than 1.5 times its own time in NumPy (the least of three) plus 2 ms. Four settings,
each in new processes with an empty cache:

- alone: one process;
- quota: one core granted by a control group, for the program and its compile worker together; where no group can be
  made the process is bound to one core instead, which is said;
- preforked: four processes forked from one that had imported and decorated everything, all calling at once;
- cached: alone, with the cache that another process filled.

Machines have pauses of their own. Therefore NumPy's function is called in the same stream, too, and counted the same
way (`control`); and beside the clock on the wall the processor time of the calling thread is looked at (`cpu`), in
which nothing counts that other processes did.

Run: `python benchmarks/stalls.py [--repeat N]`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tiercel as tc

CALLS, SHAPES, PROCESSES = 300, 100, 4
PAUSE_S = 0.004
"""After each call, as between requests: so the kernel comes in the middle of the stream, not after it."""
FACTOR, EXTRA_MS = 1.5, 2.0
GROUP = Path("/sys/fs/cgroup/cpu/tiercel-stalls")


def plain(x):
    """Softmax and layer norm of rows, and a gate over both."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    a = e / e.sum(axis=-1, keepdims=True)
    d = x - x.mean(axis=-1, keepdims=True)
    b = d / np.sqrt((d * d).mean(axis=-1, keepdims=True) + 1e-5)
    return np.tanh(a) * b + a


jitted = tc.jit(plain)


def clocked(function: Any, x: Any) -> tuple[float, float]:
    """Milliseconds of one call, by the clock and of the processor."""
    cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
    function(x)
    return (time.perf_counter_ns() - wall) / 1e6, (time.thread_time_ns() - cpu) / 1e6


def stream(seed: int = 2) -> dict[str, Any]:
    """Run the calls; what was late, as plain data."""
    rng = np.random.default_rng(seed)
    shapes = [(int(b), int(n)) for b, n in rng.integers((1, 16), (128, 2048), size=(SHAPES, 2))]
    inputs = [rng.standard_normal(shapes[i], dtype=np.float32) for i in rng.integers(0, SHAPES, size=CALLS)]
    over: dict[str, list[float]] = {"wall": [], "cpu": [], "control": []}
    worst = (0.0, 0)
    for number, x in enumerate(inputs):
        own = min(clocked(plain, x) for _ in range(3))[0]
        wall, cpu = clocked(jitted, x)
        control, _ = clocked(plain, x)
        for name, spent in (("wall", wall), ("cpu", cpu), ("control", control)):
            over[name].append(spent - FACTOR * own)
        worst = max(worst, (over["wall"][-1], number + 1))
        time.sleep(PAUSE_S)
    stats = jitted.stats()
    return {
        "late": {name: sum(ms > EXTRA_MS for ms in found) for name, found in over.items()},
        "worst": {name: max(found) for name, found in over.items()},
        "call": worst[1], "compiled": stats["compiled_calls"], "compiles": stats["compiles"],
        "kinds": [f"{n + 1}: {ms:.1f}" for n, ms in enumerate(over["cpu"]) if ms > EXTRA_MS / 2][:8],
    }  # fmt: skip


def forked() -> list[dict[str, Any]]:
    """The stream in children of this process, all at once."""
    readers = []
    for number in range(PROCESSES):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            with os.fdopen(writer, "w") as out:
                json.dump(stream(2 + number), out)
            tc.shutdown()
            os._exit(0)
        os.close(writer)
        readers.append((child, reader))
    found = []
    for child, reader in readers:
        with os.fdopen(reader) as answer:
            found.append(json.load(answer))
        os.waitpid(child, 0)
    return found


@contextlib.contextmanager
def one_core() -> Iterator[tuple[list[str], str]]:
    """What to put before a command so that it gets one core, and how that is done."""
    try:
        GROUP.mkdir()
        (GROUP / "cpu.cfs_period_us").write_text("100000")
        (GROUP / "cpu.cfs_quota_us").write_text("100000")
    except OSError:
        core = min(os.sched_getaffinity(0))
        yield ["taskset", "-c", str(core)], "bound to one core (no control group can be made)"
        return
    try:
        yield ["sh", "-c", f'echo $$ > {GROUP}/cgroup.procs && exec "$@"', "sh"], "a control group of one core"
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError):
                GROUP.rmdir()
                break
            time.sleep(0.1)


def run(mode: str, folder: str, before: list[str] | None = None) -> list[dict[str, Any]]:
    """One setting in a new process."""
    command = [*(before or []), sys.executable, __file__, "--mode", mode, "--folder", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def show(title: str, found: list[dict[str, Any]]) -> None:
    """Print a row for each process."""
    for one in found:
        late, worst = one["late"], one["worst"]
        print(
            f"{title:<12}{late['wall']:>6}{late['cpu']:>6}{late['control']:>9}"
            f"{worst['wall']:>12.2f}{worst['cpu']:>8.2f}{worst['control']:>9.2f}"
            f"{one['compiled']:>10}{one['compiles']:>10}   {', '.join(one['kinds'])}",
            flush=True,
        )


def main() -> None:
    """Run the settings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--mode", choices=("alone", "forked"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.mode:
        tc.set_context(cache_dir=given.folder)
        print(json.dumps(forked() if given.mode == "forked" else [stream()]))
        tc.shutdown()
        return
    print(f"calls of {CALLS} that took more than {FACTOR} x NumPy's time + {EXTRA_MS:.0f} ms (target: none)")
    print(
        f"{'':<12}{'wall':>6}{'cpu':>6}{'control':>9}{'worst wall':>12}{'cpu':>8}{'control':>9}"
        f"{'compiled':>10}{'compiles':>10}   calls that computed 1 ms more and longer, ms"
    )
    for _ in range(given.repeat):
        with tempfile.TemporaryDirectory() as folder:
            show("alone", run("alone", folder))
            show("cached", run("alone", folder))
        with tempfile.TemporaryDirectory() as folder, one_core() as (before, how):
            show("quota", run("alone", folder, before))
        with tempfile.TemporaryDirectory() as folder:
            show("preforked", run("forked", folder))
    print(f"quota: {how}")


if __name__ == "__main__":
    main()
