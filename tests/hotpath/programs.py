"""Small functions of several kinds, compiled regions of them, and how to run a kernel that a service built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.compiler.regions import Runner
from tests.compiler.tracing import Compiled


def random(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape, dtype=np.float32)


def chain(x, y):
    return np.tanh(x * 2.0 + y) - np.sqrt(np.abs(y))


def dense(x, w, b):
    return np.maximum(x @ w + b, 0)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def masked(x, limit):
    return np.where(x > limit, x, -x), (x > limit).sum()


def doubling(x):
    n = 0
    while x.sum() < 100:
        x = x * 2 + 1
        n = n + 1
    return x, n


def rows(x, n):
    out = []
    for t in range(n):
        out.append(x[t] * 2 + t)
    return np.stack(out, axis=0)


def integers(a, b):
    return (a & b) + (a ^ b) * 3 - a // 1


def steps(x, w, h, n):
    out = []
    for t in range(n):
        h = np.tanh(x[t] + h @ w)
        out.append(h)
    return np.stack(out, axis=0), h


EXAMPLES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "chain": (chain, (random(3, 5), random(3, 5, seed=1))),
    "dense": (dense, (random(3, 5), random(5, 7), random(7))),
    "softmax": (softmax, (random(4, 9),)),
    "masked": (masked, (random(4, 9), 0.25)),
    "doubling": (doubling, (np.ones((3, 4), np.float32),)),
    "rows": (rows, (random(6, 5), 4)),
    "steps": (steps, (random(6, 3, 8), random(8, 8), random(3, 8), 5)),
}


def compiled(name: str) -> Compiled:
    """A region and what it was lowered to: `.region`, `.runner.lowered`."""
    function, arguments = EXAMPLES[name]
    return Compiled(function, *arguments)


def run(service: Any, ticket: Any, region: Any, *arguments: Any) -> Any:
    """Call a kernel that is done."""
    runner = Runner(region)
    runner._code = service.load(ticket)
    return runner(*arguments)
