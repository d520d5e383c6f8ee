"""Transformer encoders: blocks of attention and a GELU MLP, each with a layer norm before and a sum after.

In: x (batch, length, hidden) float32. Out: the same shape. Heads are 64 wide, the inner layer is four times as wide.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tiercel as tc
from tiercel.tools.suite.case import Array, Call, Cannot, Case, Shape, Weights, frozen, next_power, padded
from tiercel.tools.suite.cases.rows import gelu, layer_norm, softmax

__all__ = ["Encoder"]

HEAD = 64
LAYER = ("s1", "t1", "w_qkv", "b_qkv", "w_o", "b_o", "s2", "t2", "w_in", "b_in", "w_out", "b_out")


def block(
    x: Array,
    s1: Array,
    t1: Array,
    w_qkv: Array,
    b_qkv: Array,
    w_o: Array,
    b_o: Array,
    s2: Array,
    t2: Array,
    w_in: Array,
    b_in: Array,
    w_out: Array,
    b_out: Array,
) -> Array:
    """One layer."""
    batch, length, hidden = x.shape
    heads = hidden // HEAD
    q, k, v = np.split(layer_norm(x, s1, t1) @ w_qkv + b_qkv, 3, axis=-1)
    q = q.reshape(batch, length, heads, HEAD).transpose(0, 2, 1, 3)
    k = k.reshape(batch, length, heads, HEAD).transpose(0, 2, 3, 1)
    v = v.reshape(batch, length, heads, HEAD).transpose(0, 2, 1, 3)
    mixed = softmax(q @ k * 0.125) @ v
    x = x + mixed.transpose(0, 2, 1, 3).reshape(batch, length, hidden) @ w_o + b_o
    return x + gelu(layer_norm(x, s2, t2) @ w_in + b_in) @ w_out + b_out


def encoder(x: Array, layers: Any) -> Array:
    """All layers, one after the other."""
    for layer in layers:
        x = block(x, *layer)
    return x


class Encoder(Case):
    """An encoder.

    Args:
        hidden: the width.
        depth: how many layers.
    """

    labels = ("batch", "length")
    rtol = 1e-4
    onnx_inputs = (("x", {0: "batch", 1: "length"}),)

    def __init__(self, hidden: int, depth: int) -> None:
        self.hidden = hidden
        self.depth = depth
        what = "block" if depth == 1 else "encoder"
        self.name = f"{what}-{hidden}"
        self.calls = {(384, 1): (250, 200), (768, 1): (100, 100), (384, 6): (80, 60)}.get((hidden, depth), (16, 24))
        layers = "" if depth == 1 else f" of {depth} layers"
        self.title = f"transformer {what}{layers}, hidden {hidden}, {hidden // HEAD} heads"

    def shapes(self, quick: bool) -> list[Shape]:
        if quick:
            return [(1, 8), (2, 40), (4, 128)]
        large = [(32, 512)] if self.depth == 1 else [(4, 512)]
        return [(1, 8), (1, 64), (4, 32), (1, 512), (8, 128), (32, 64), *large]

    def draw(self, rng: np.random.Generator, quick: bool) -> Shape:
        most = (8, 128, 512) if quick else (32, 512, 4096)
        while True:
            batch, length = (int(math.exp(rng.uniform(*np.log((a, b))))) for a, b in ((1, most[0]), (8, most[1])))
            if batch * length <= most[2]:
                return batch, length

    def weights(self, rng: np.random.Generator) -> Weights:
        n = self.hidden
        shapes = ((n,), (n,), (n, 3 * n), (3 * n,), (n, n), (n,), (n,), (n,), (n, 4 * n), (4 * n,), (4 * n, n), (n,))
        out = {}
        for layer in range(self.depth):
            for name, shape in zip(LAYER, shapes, strict=True):
                value = rng.standard_normal(shape, dtype=np.float32)
                value *= np.float32(shape[0] ** -0.5 if len(shape) == 2 else 0.1)
                out[f"{name}.{layer}"] = value + np.float32(name in ("s1", "s2"))
        return out

    def inputs(self, rng: np.random.Generator, shape: Shape) -> tuple[Any, ...]:
        return (rng.standard_normal((*shape, self.hidden), dtype=np.float32),)

    def layers(self, weights: Weights) -> tuple[tuple[Array, ...], ...]:
        """Return the weights, layer by layer, in the order of `block`."""
        return tuple(tuple(weights[f"{name}.{layer}"] for name in LAYER) for layer in range(self.depth))

    def numpy(self, weights: Weights) -> Call:
        layers = self.layers(weights)
        return lambda x: encoder(x, layers)

    def tiercel(self, weights: Weights) -> Call:
        layers = self.layers(frozen(weights))
        return tc.jit(lambda x: encoder(x, layers))

    def torch(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import torch_models

        return torch_models.Encoder(self.layers(weights))

    def jax(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import jax_models

        run = jax_models.encoder(self.layers(weights))
        return lambda x: run(x, x.shape[1])

    def jax_padded(self, weights: Weights) -> Call:
        """Batch and length in powers of two; keys past the length are masked."""
        from tiercel.tools.suite.models import jax_models

        run = jax_models.encoder(self.layers(weights))

        def cut(x: Array) -> Array:
            batch, length, _ = x.shape
            made = run(padded(x, next_power(batch, 1), next_power(length)), length)
            return np.asarray(made)[:batch, :length]

        return cut

    def numba(self, weights: Weights) -> Call:
        raise Cannot("Numba has no batched matrix products; its users leave this to NumPy")
