"""What a warm call of a compiled function costs beyond its work: nanoseconds per call of small functions.

Each function is called in turn with an empty Python function and with `np.add`, so that all see the same clock and the
same neighbours; printed are the least and the median of the rounds, and the difference to the empty function. Run:
`python benchmarks/entry.py [--rounds N]`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import repeat
from typing import Any

import numpy as np

import tiercel as tc

CALLS = 2000


def empty(x, y):
    """Does nothing."""


@tc.jit
def added(x, y):
    """Two arrays, one result."""
    return x + y


@tc.jit
def chained(x, y):
    """Four operators."""
    return np.tanh(x * y + x) - y


@tc.jit
def scaled(x, k: float):
    """An array and a float."""
    return x * k


@tc.jit
def total(x, y):
    """The result is a scalar."""
    return (x * y).sum()


@tc.jit
def both(x, y):
    """Two results."""
    return x + y, x - y


def time_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    """Nanoseconds of one call."""
    a, b = arguments
    started = time.perf_counter_ns()
    for _ in repeat(None, CALLS):
        function(a, b)
    return (time.perf_counter_ns() - started) / CALLS


def main() -> None:
    """Warm up, measure in turn, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((4, 8), dtype=np.float32) for _ in range(2))
    tensors = tc.Tensor(x), tc.Tensor(y)
    rows: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "empty Python function": (empty, (x, y)),
        "np.add(x, y)": (np.add, (x, y)),
        "jit: x + y": (added, (x, y)),
        "jit: tanh(x * y + x) - y": (chained, (x, y)),
        "jit: x * float": (scaled, (x, 2.5)),
        "jit: (x * y).sum()": (total, (x, y)),
        "jit: two results": (both, (x, y)),
        "jit: x + y, Tensors": (tc.jit(lambda a, b: a + b), tensors),
    }
    with tc.context(hot_time_ms=0):
        for function, arguments in rows.values():
            for _ in range(8):
                function(*arguments)
            if hasattr(function, "wait"):
                function.wait()
                function(*arguments)
    times: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, (function, arguments) in rows.items():
            times[name].append(time_of(function, arguments))
    least = {name: min(found) for name, found in times.items()}
    base = least["empty Python function"]
    print(f"{'ns per call':<28}{'least':>8}{'median':>8}{'over empty':>12}  compiled calls")
    for name, (function, _) in rows.items():
        compiled = f"{function.stats()['compiled_calls']:,}" if hasattr(function, "stats") else ""
        middle = statistics.median(times[name])
        print(f"{name:<28}{least[name]:>8.0f}{middle:>8.0f}{least[name] - base:>12.0f}  {compiled:>14}")


if __name__ == "__main__":
    main()
