"""What interpreting costs: jitted functions at level O0 beside the undecorated ones.

Each pair is called alternately, so both see the same clock and the same neighbours; printed are medians, their ratio,
and the overhead per instruction where that is the question. Run: `python benchmarks/interpreter.py [--rounds N]`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tiercel as tc

HIDDEN = 256


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def lstm(x, h, c, w_ih, w_hh, bias):
    """An LSTM layer over time. x: (batch, time, input); h, c: (batch, hidden)."""
    hidden = h.shape[1]
    from_input = x @ w_ih + bias
    states = []
    for t in range(x.shape[1]):
        gates = from_input[:, t] + h @ w_hh
        i = sigmoid(gates[:, :hidden])
        f = sigmoid(gates[:, hidden : 2 * hidden])
        g = np.tanh(gates[:, 2 * hidden : 3 * hidden])
        o = sigmoid(gates[:, 3 * hidden :])
        c = f * c + i * g
        h = o * np.tanh(c)
        states.append(h)
    return np.stack(states, axis=1), h, c


def tiny_chain(x, y):
    """Fifty operators on four elements."""
    for _ in range(5):
        x = x + y
        x = x * y
        x = x - y
        x = np.maximum(x, y)
        x = x + y
        x = x * y
        x = x - y
        x = np.minimum(x, y)
        x = -x
        x = np.abs(x)
    return x


def straight_chain(x, y):
    """Fifty operators on four elements, in one expression a line and no loop."""
    x = (x + y) * y - y + x * y
    x = (x + y) * y - y + x * y
    x = (x + y) * y - y + x * y
    x = (x + y) * y - y + x * y
    x = (x + y) * y - y + x * y
    x = (x + y) * y - y + x * y
    x = (x + y) * y - y + x * y
    x = (x + y) * y - y + x * y
    x = (x + y) * y - y + x * y
    return (x + y) * y - y + x * y


def identity(x):
    return x


def count(n):
    i = 0
    total = 0
    while i < n:
        total += i
        i += 1
    return total


def helper(x):
    return x


def calls(x):
    for _ in range(100):
        x = helper(x)
    return x


def lstm_arguments(batch: int, length: int) -> tuple[Any, ...]:
    """Inputs of `lstm` for one shape."""
    rng = np.random.default_rng(0)

    def make(*shape: int) -> Any:
        return (rng.standard_normal(shape) * 0.1).astype(np.float32)

    return (
        make(batch, length, 128),
        make(batch, HIDDEN),
        make(batch, HIDDEN),
        make(128, 4 * HIDDEN),
        make(HIDDEN, 4 * HIDDEN),
        make(4 * HIDDEN),
    )


def interleaved(pair: tuple[Callable[..., Any], Callable[..., Any]], args: tuple[Any, ...], rounds: int) -> list[float]:
    """Median seconds of a call of each, called in turn."""
    repeat = 1
    began = time.perf_counter()
    pair[0](*args)
    once = time.perf_counter() - began
    if once < 1e-3:
        repeat = int(1e-3 / max(once, 1e-7)) + 1
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for function, taken in zip(pair, times, strict=True):
            began = time.perf_counter()
            for _ in range(repeat):
                function(*args)
            taken.append((time.perf_counter() - began) / repeat)
    return [statistics.median(t) for t in times]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    tc.set_context(level="O0")
    x, y = np.ones(4), np.full(4, 1.5)
    cases: list[tuple[str, Callable[..., Any], tuple[Any, ...], int | None]] = [
        *((f"lstm batch {b}, length {n}", lstm, lstm_arguments(b, n), None) for b in (8, 16, 32) for n in (10, 20, 30)),
        ("50 tiny operators, loop of 5", tiny_chain, (x, y), 50),
        ("50 tiny operators, straight", straight_chain, (x, y), 50),
        ("1000 passes of a while loop", count, (1000,), 3000),
        ("100 calls of a helper", calls, (x,), 100),
        ("one empty call", identity, (x,), 1),
    ]
    print(f"{'case':32} {'NumPy us':>10} {'O0 us':>10} {'ratio':>7} {'ns/instruction':>15}")
    for name, function, args, instructions in cases:
        jitted = tc.jit(function)
        for _ in range(20):  # past the sampled first entries
            jitted(*args)
        plain, interpreted = interleaved((function, jitted), args, rounds)
        extra = "" if instructions is None else f"{(interpreted - plain) / instructions * 1e9:15.0f}"
        print(f"{name:32} {plain * 1e6:10.2f} {interpreted * 1e6:10.2f} {interpreted / plain:7.2f} {extra}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
