"""What compiling brings and costs: warm speed against NumPy, time from detection to patch, stalls in a changing stream.

Three parts, each interleaved with NumPy in one run; printed are medians, and ratios of neighbours:

- speed: a chain of 50 operators on 1 MB, softmax and layer norm over 768 columns with new rows in each call;
- patch: wall time from the submission of a region until its code is in place, with a worker that runs already;
- stalls: 300 calls with 100 shapes, compiling included: what the worst call takes beyond its own time in NumPy.

Run: `python benchmarks/compiled.py [--rounds N]`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tiercel as tc
from tiercel.api import state_of

COLUMNS = 768


def chain(x):
    """50 elementwise operators."""
    for _ in range(10):
        x = np.maximum(x * 1.0009765625 + 0.25, x - 0.5) * 0.5
    return x


def softmax(x):
    """Over the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x):
    """Over the last axis."""
    d = x - x.mean(axis=-1, keepdims=True)
    return d / np.sqrt((d * d).mean(axis=-1, keepdims=True) + 1e-5)


def gate(x, y):
    """Elementwise."""
    return np.tanh(x) * y + x


def seconds(function: Callable[..., Any], *arguments: Any) -> float:
    """Of one call."""
    began = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - began


def speed(rounds: int) -> None:
    """Warm calls against NumPy."""
    rng = np.random.default_rng(0)
    flat = rng.standard_normal(1 << 18, dtype=np.float32)
    rows = [rng.standard_normal((int(n), COLUMNS), dtype=np.float32) for n in rng.integers(1, 400, size=64)]
    cases: list[tuple[str, Callable[..., Any], list[Any]]] = [
        ("50 operators, 1 MB", chain, [flat]),
        ("softmax, 1 to 400 rows", softmax, rows),
        ("layer norm, 1 to 400 rows", layer_norm, rows),
    ]
    print(f"{'speed':<28}{'NumPy':>10}{'compiled':>10}{'NumPy / compiled':>18}{'compiled calls':>16}")
    for name, plain, inputs in cases:
        jitted = tc.jit(plain)
        jitted.warmup(inputs[0])
        before = jitted.stats()["compiled_calls"]
        pairs = []
        for number in range(rounds):
            x = inputs[number % len(inputs)]
            first, second = (plain, jitted) if number % 2 else (jitted, plain)
            times = {f is jitted: seconds(f, x) for f in (first, second)}
            pairs.append((times[False], times[True]))
        share = (jitted.stats()["compiled_calls"] - before) / rounds
        plain_us, compiled_us = (1e6 * statistics.median(t) for t in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        print(f"{name:<28}{plain_us:>7.1f} us{compiled_us:>7.1f} us{ratio:>18.2f}{share:>16.0%}")


def patch(rounds: int) -> None:
    """From submission to patch, worker running, nothing in the cache."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((64, COLUMNS), dtype=np.float32)
    tc.jit(chain).warmup(x)  # starts the worker
    print(f"\n{'patch':<28}{'median':>10}{'worst':>10}  stages of the last, ms")
    made: list[tuple[str, Callable[[int], Callable[..., Any]], tuple[Any, ...]]] = [
        ("elementwise", lambda n: lambda a, b: np.tanh(a) * b + a * n, (x, x)),
        ("softmax", lambda n: lambda a: softmax(a) * n, (x,)),
    ]
    for name, make, arguments in made:
        walls, stages = [], {}
        for number in range(rounds):
            jitted = tc.jit(make(number + 2))
            began = time.perf_counter()
            reason = state_of(jitted).tiers.prepare(arguments)
            walls.append(1e3 * (time.perf_counter() - began))
            if reason:
                print(f"{name}: not compiled: {reason}")
                break
            (kernel,) = [k for k in jitted.explain().functions[0].kernels if k.state == "compiled"][:1]
            stages = kernel.stages_ms
        text = ", ".join(f"{stage} {ms:.1f}" for stage, ms in stages.items() if ms >= 0.1)
        print(f"{name:<28}{statistics.median(walls):>7.1f} ms{max(walls):>7.1f} ms  {text}")


def stalls() -> None:
    """A stream of new shapes, compiling included."""
    rng = np.random.default_rng(2)
    shapes = [(int(b), int(n)) for b, n in rng.integers((1, 16), (128, 2048), size=(100, 2))]
    stream = [shapes[i] for i in rng.integers(0, len(shapes), size=300)]
    jitted = tc.jit(lambda x: gate(softmax(x), layer_norm(x)))
    plain = jitted.__wrapped__
    excess, worst = [], (0.0, 0)
    for number, shape in enumerate(stream):
        x = rng.standard_normal(shape, dtype=np.float32)
        own = min(seconds(plain, x) for _ in range(3))
        spent = seconds(jitted, x)
        excess.append(1e3 * (spent - 1.5 * own))
        worst = max(worst, (excess[-1], number))
    compiled = jitted.stats()["compiled_calls"]
    late = sum(e > 2 for e in excess)
    print(f"\nstalls: 300 calls, 100 shapes, {compiled} compiled; {late} took more than 1.5 x NumPy's time + 2 ms;")
    print(
        f"  worst: 1.5 x NumPy's time + {worst[0]:.2f} ms, call {worst[1] + 1}; compiles {jitted.stats()['compiles']}"
    )


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        tc.set_context(cache_dir=folder)
        stalls()
        speed(rounds)
        patch(max(3, rounds // 20))
        tc.shutdown()


if __name__ == "__main__":
    main()
