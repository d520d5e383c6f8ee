"""Row-wise work on (rows, 768) whose rows change: softmax, layer norm, a GELU MLP, and 50 elementwise operators.

In: x (rows, 768) float32. Out: the same shape. 768 columns fit the first-level cache, so these show how often a row
travels, and what a call costs when there is only one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tiercel as tc
from tiercel.tools.suite.case import Array, Call, Case, Shape, Weights, frozen, next_power, padded

__all__ = ["Chain", "GeluMLP", "LayerNorm", "Softmax"]

COLUMNS = 768
INNER = 3072


def softmax(x: Array) -> Array:
    """Over the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    out: Array = e / e.sum(axis=-1, keepdims=True)
    return out


def layer_norm(x: Array, scale: Array, shift: Array) -> Array:
    """Over the last axis."""
    d = x - x.mean(axis=-1, keepdims=True)
    out: Array = d / np.sqrt((d * d).mean(axis=-1, keepdims=True) + 1e-5) * scale + shift
    return out


def gelu(x: Array) -> Array:
    """The approximation with tanh."""
    out: Array = 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))
    return out


def mlp(x: Array, w_in: Array, b_in: Array, w_out: Array, b_out: Array) -> Array:
    """Two layers with GELU between them."""
    out: Array = gelu(x @ w_in + b_in) @ w_out + b_out
    return out


def chain(x: Array) -> Array:
    """50 elementwise operators."""
    for _ in range(10):
        x = np.maximum(x * 1.0009765625 + 0.25, x - 0.5) * 0.5
    return x


class Rows(Case):
    """What the cases of this module share."""

    atol = 2e-6
    rtol = 2e-5

    def shapes(self, quick: bool) -> list[Shape]:
        return [(n,) for n in ((1, 8, 64, 400) if quick else (1, 2, 5, 16, 64, 200, 640, 2048))]

    def draw(self, rng: np.random.Generator, quick: bool) -> Shape:
        return (int(rng.integers(1, 641)),)

    def weights(self, rng: np.random.Generator) -> Weights:
        return {}

    def inputs(self, rng: np.random.Generator, shape: Shape) -> tuple[Any, ...]:
        return (rng.standard_normal((*shape, COLUMNS), dtype=np.float32),)


def _cut(function: Call, *fixed: Any) -> Call:
    """Pad rows to the next power of two, and cut the result."""

    def run(x: Array) -> Array:
        out: Array = np.asarray(function(padded(x, next_power(len(x))), *fixed))[: len(x)]
        return out

    return run


class Softmax(Rows):
    """Softmax."""

    name = "softmax"
    title = "softmax over 768 columns"
    calls = (2000, 6000)

    def numpy(self, weights: Weights) -> Call:
        return softmax

    def tiercel(self, weights: Weights) -> Call:
        return tc.jit(softmax)

    def torch(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import torch_models

        return torch_models.Softmax()

    def jax(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import jax_models

        return jax_models.softmax

    def jax_padded(self, weights: Weights) -> Call:
        return _cut(self.jax(weights))

    def numba(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import numba_models

        return numba_models.softmax


class LayerNorm(Rows):
    """Layer norm with scale and shift."""

    name = "layer-norm"
    title = "layer norm over 768 columns"
    calls = (1000, 3000)
    rtol = 5e-5

    def weights(self, rng: np.random.Generator) -> Weights:
        scale, shift = rng.standard_normal((2, COLUMNS), dtype=np.float32)
        return {"scale": scale, "shift": shift}

    def numpy(self, weights: Weights) -> Call:
        scale, shift = weights["scale"], weights["shift"]
        return lambda x: layer_norm(x, scale, shift)

    def tiercel(self, weights: Weights) -> Call:
        w = frozen(weights)
        scale, shift = w["scale"], w["shift"]
        return tc.jit(lambda x: layer_norm(x, scale, shift))

    def torch(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import torch_models

        return torch_models.LayerNorm(weights)

    def jax(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import jax_models

        return jax_models.with_weights(jax_models.layer_norm, weights["scale"], weights["shift"])

    def jax_padded(self, weights: Weights) -> Call:
        return _cut(self.jax(weights))

    def numba(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import numba_models

        scale, shift = weights["scale"], weights["shift"]
        return lambda x: numba_models.layer_norm(x, scale, shift)


class GeluMLP(Rows):
    """768 to 3072 to 768."""

    name = "gelu-mlp"
    title = "768 to 3072, GELU, to 768"
    calls = (150, 400)
    rtol = 1e-4

    def shapes(self, quick: bool) -> list[Shape]:
        return [(n,) for n in ((1, 8, 64, 320) if quick else (1, 2, 5, 16, 64, 128, 320, 1024))]

    def draw(self, rng: np.random.Generator, quick: bool) -> Shape:
        return (int(rng.integers(1, 257)),)

    def weights(self, rng: np.random.Generator) -> Weights:
        def normal(*shape: int) -> Array:
            return rng.standard_normal(shape, dtype=np.float32) * np.float32(shape[0] ** -0.5)

        return {
            "w_in": normal(COLUMNS, INNER),
            "b_in": normal(INNER),
            "w_out": normal(INNER, COLUMNS),
            "b_out": normal(COLUMNS),
        }

    def numpy(self, weights: Weights) -> Call:
        w_in, b_in, w_out, b_out = weights.values()
        return lambda x: mlp(x, w_in, b_in, w_out, b_out)

    def tiercel(self, weights: Weights) -> Call:
        w_in, b_in, w_out, b_out = frozen(weights).values()
        return tc.jit(lambda x: mlp(x, w_in, b_in, w_out, b_out))

    def torch(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import torch_models

        return torch_models.GeluMLP(weights)

    def jax(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import jax_models

        return jax_models.with_weights(jax_models.mlp, *weights.values())

    def jax_padded(self, weights: Weights) -> Call:
        return _cut(self.jax(weights))

    def numba(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import numba_models

        numba_models.need_blas()
        fixed = tuple(weights.values())
        return lambda x: numba_models.mlp(x, *fixed)


class Chain(Rows):
    """50 elementwise operators."""

    name = "chain"
    title = "50 elementwise operators on (rows, 768)"
    calls = (300, 1000)

    def numpy(self, weights: Weights) -> Call:
        return chain

    def tiercel(self, weights: Weights) -> Call:
        return tc.jit(chain)

    def torch(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import torch_models

        return torch_models.Chain()

    def jax(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import jax_models

        return jax_models.chain

    def jax_padded(self, weights: Weights) -> Call:
        return _cut(self.jax(weights))

    def numba(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import numba_models

        return numba_models.chain
