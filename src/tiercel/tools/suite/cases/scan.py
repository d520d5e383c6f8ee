"""A selective state-space scan (as in Mamba) over time, as a Python loop.

In: x and delta (batch, length, 128), into and out_of (batch, length, 16), the state h (batch, 128, 16), float32. Out:
y (batch, length, 128) and the last state.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tiercel as tc
from tiercel.tools.suite.case import Array, Call, Case, Shape, Weights, frozen, next_power, padded

__all__ = ["StateSpace"]

WIDTH = 128
STATE = 16


def scan(x: Array, delta: Array, into: Array, out_of: Array, h: Array, a: Array) -> Any:
    """Step by step."""
    outputs = []
    for t in range(x.shape[1]):
        step = delta[:, t, :, None]
        h = np.exp(step * a) * h + step * x[:, t, :, None] * into[:, t, None, :]
        outputs.append((h * out_of[:, t, None, :]).sum(axis=-1))
    return np.stack(outputs, axis=1), h


class StateSpace(Case):
    """The scan."""

    name = "state-space"
    title = "state-space scan over time, 128 channels of 16 states"
    labels = ("batch", "length")
    rtol = 2e-4
    calls = (400, 500)
    onnx_inputs = (
        *((name, {0: "batch", 1: "length"}) for name in ("x", "delta", "into", "out_of")),
        ("h", {0: "batch"}),
    )

    def shapes(self, quick: bool) -> list[Shape]:
        return [(1, 16), (2, 100), (8, 256)] if quick else [(1, 16), (1, 128), (4, 64), (8, 256), (2, 1024)]

    def draw(self, rng: np.random.Generator, quick: bool) -> Shape:
        return (int(rng.integers(1, 9)), int(rng.integers(16, 129 if quick else 513)))

    def weights(self, rng: np.random.Generator) -> Weights:
        return {"a": -rng.uniform(0.5, 4, (WIDTH, STATE)).astype(np.float32)}

    def inputs(self, rng: np.random.Generator, shape: Shape) -> tuple[Any, ...]:
        batch, length = shape
        x = rng.standard_normal((batch, length, WIDTH), dtype=np.float32)
        delta = rng.uniform(0.01, 0.2, (batch, length, WIDTH)).astype(np.float32)
        into, out_of = (rng.standard_normal((batch, length, STATE), dtype=np.float32) for _ in range(2))
        return x, delta, into, out_of, np.zeros((batch, WIDTH, STATE), np.float32)

    def numpy(self, weights: Weights) -> Call:
        a = weights["a"]
        return lambda x, delta, into, out_of, h: scan(x, delta, into, out_of, h, a)

    def tiercel(self, weights: Weights) -> Call:
        jitted, a = tc.jit(scan), frozen(weights)["a"]

        def run(x: Array, delta: Array, into: Array, out_of: Array, h: Array) -> Any:
            return jitted(x, delta, into, out_of, h, a)

        run.jitted = (jitted,)  # type: ignore[attr-defined]
        return run

    def torch(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import torch_models

        return torch_models.StateSpace(weights)

    def onnx_module(self, weights: Weights) -> Any:
        from tiercel.tools.suite.models import torch_models

        return torch_models.for_export("state_space", weights)

    def jax(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import jax_models

        return jax_models.with_weights(jax_models.state_space, weights["a"])

    def jax_padded(self, weights: Weights) -> Call:
        run = self.jax(weights)

        def cut(x: Array, delta: Array, into: Array, out_of: Array, h: Array) -> Any:
            batch, length, _ = x.shape
            wide, far = next_power(batch, 1), next_power(length)
            # Steps of no length leave the state as it is.
            y, last = run(*(padded(v, wide, far) for v in (x, delta, into, out_of)), padded(h, wide))
            return np.asarray(y)[:batch, :length], np.asarray(last)[:batch]

        return cut

    def numba(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import numba_models

        a = weights["a"]
        return lambda *inputs: numba_models.state_space(*inputs, a)
