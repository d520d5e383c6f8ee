"""How long it takes from the detection of a hot function until its kernel is in place, warm, cold and from the cache.

The program calls its function in a loop, as programs do; the kernel arrives in between. Times are the virtual machine's
own: from the call in which a function was found to be hot until its dispatch entry was replaced. Parts:

- warm: the worker runs, the kernel is new (a function with other constants in each round);
- cache: another process's kernel is taken from the disk; a process of its own for each figure;
- first: the first kernel ever on a machine: an empty cache, no worker yet, the runtime library to be compiled.

Stages are those of the last round: the program's own (trace, lower, encode, cache, patch) and the worker's.

Run: `python benchmarks/latency.py [--rounds N]`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tiercel as tc
from tiercel.api import state_of
from tiercel.tools.demo_models import define, make_weights

TARGETS_MS = {"elementwise": 15.0, "gate": 15.0, "softmax": 15.0, "layer norm": 15.0, "LSTM layer": 100.0}
CACHE_MS = 3.0


def elementwise(n: int) -> Callable[..., Any]:
    """A new elementwise function."""
    return tc.jit(lambda a, b: (a + b) * a - n)


def gate(n: int) -> Callable[..., Any]:
    """A new gate."""
    return tc.jit(lambda a, b: np.tanh(a) * b + a * n)


def softmax(n: int) -> Callable[..., Any]:
    """A new softmax."""

    def softmax(x):
        e = np.exp((x - x.max(axis=-1, keepdims=True)) * n)
        return e / e.sum(axis=-1, keepdims=True)

    return tc.jit(softmax)


def layer_norm(n: int) -> Callable[..., Any]:
    """A new layer norm."""

    def layer_norm(x):
        d = x - x.mean(axis=-1, keepdims=True)
        return d / np.sqrt((d * d).mean(axis=-1, keepdims=True) + 1e-5) * n

    return tc.jit(layer_norm)


def lstm(n: int) -> Callable[..., Any]:
    """A new LSTM layer: the same code, whose kernels are told apart by a name."""
    del n
    return define().function


def arguments_of(name: str) -> tuple[Any, ...]:
    """What a function is called with."""
    rng = np.random.default_rng(1)

    def array(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=np.float32)

    if name == "LSTM layer":
        w = make_weights()
        return (array(4, 10, 128), array(4, 256), array(4, 256), w.ih, w.hh, w.bias_ih + w.bias_hh)
    return (array(16, 256), array(16, 256))[: 2 if name in ("elementwise", "gate") else 1]


MAKERS: dict[str, Callable[[int], Callable[..., Any]]] = {
    "elementwise": elementwise, "gate": gate, "softmax": softmax, "layer norm": layer_norm, "LSTM layer": lstm,
}  # fmt: skip


def until_patched(function: Any, arguments: tuple[Any, ...], limit_s: float = 30.0) -> tuple[float, dict[str, float]]:
    """Call a function until its kernel is in place; milliseconds from detection on, and the stages.

    Raises:
        RuntimeError: it was not compiled.
    """
    end = time.perf_counter() + limit_s
    while True:
        function(*arguments)
        for state in state_of(function).tiers.signatures.values():
            for variant in state.variants:
                if variant.reason:
                    raise RuntimeError(variant.reason)
                if variant.patched_ns:
                    return (variant.patched_ns - variant.started_ns) / 1e6, dict(variant.stages_ms)
        if time.perf_counter() > end:
            raise RuntimeError("not compiled in time")


def text_of(stages: dict[str, float]) -> str:
    """Stages in words."""
    return ", ".join(f"{stage} {ms:.1f}" for stage, ms in stages.items() if ms >= 0.05)


def line(name: str, times: list[float], target: float | None, stages: dict[str, float]) -> None:
    """Print a row."""
    wanted = "" if target is None else f"{target:>6.0f} ms {'met' if statistics.median(times) < target else 'missed'}"
    low = statistics.quantiles(times, n=4)[0] if len(times) > 1 else times[0]
    print(
        f"{name:<34}{statistics.median(times):>8.1f} ms{low:>8.1f} ms{max(times):>8.1f} ms  {wanted:<16} "
        f"{text_of(stages)}",
        flush=True,
    )


def warm(rounds: int) -> None:
    """New kernels, a worker that runs."""
    until_patched(softmax(0), arguments_of("softmax"))
    for name, make in MAKERS.items():
        arguments, times, stages = arguments_of(name), [], {}
        for number in range(rounds if name != "LSTM layer" else max(3, rounds // 4)):
            if name == "LSTM layer":
                tc.set_context(cache_dir=tempfile.mkdtemp(prefix="tiercel-latency-"))
            spent, stages = until_patched(make(number + 2), arguments)
            times.append(spent)
        line(f"warm: {name}", times, TARGETS_MS[name], stages)


def in_process(folder: str, name: str, count: int) -> list[tuple[float, dict[str, float]]]:
    """Detect and patch `count` functions in a new process with a cache folder."""
    command = [sys.executable, __file__, "--one", name, "--folder", folder, "--rounds", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr else "no answer")
    return [(ms, stages) for ms, stages in json.loads(done.stdout)]


def one(folder: str, name: str, count: int) -> None:
    """What `in_process` starts."""
    tc.set_context(cache_dir=folder, hot_time_ms=0.0)
    arguments = arguments_of(name)
    print(json.dumps([until_patched(MAKERS[name](n + 2), arguments) for n in range(count)]))
    tc.shutdown()


def cached(rounds: int) -> None:
    """Kernels of another process. The first one in a process also loads the compiler's modules."""
    for name in MAKERS:
        with tempfile.TemporaryDirectory() as folder:
            in_process(folder, name, 4 if name != "LSTM layer" else 1)
            firsts, others, stages = [], [], {}
            for _ in range(max(3, rounds // 4)):
                found = in_process(folder, name, 4 if name != "LSTM layer" else 1)
                firsts.append(found[0][0])
                others += [ms for ms, _ in found[1:]]
                stages = found[-1][1]
            line(f"cache: {name}, first in a process", firsts, CACHE_MS if not others else None, stages)
            if others:
                line(f"cache: {name}, the next ones", others, CACHE_MS, stages)


def first(rounds: int) -> None:
    """The first kernel on a machine."""
    times, stages = [], {}
    for _ in range(max(3, rounds // 8)):
        with tempfile.TemporaryDirectory() as folder:
            ((spent, stages),) = in_process(folder, "gate", 1)
            times.append(spent)
    line("first kernel on a machine: gate", times, None, stages)


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one(given.folder, given.one, given.rounds)
        return
    print(f"{'detection to patch':<34}{'median':>11}{'quarter':>11}{'worst':>11}  {'target':<16} stages of the last")
    with tempfile.TemporaryDirectory() as folder:
        tc.set_context(cache_dir=folder, hot_time_ms=0.0)
        warm(given.rounds)
        tc.shutdown()
    cached(given.rounds)
    first(given.rounds)


if __name__ == "__main__":
    main()
