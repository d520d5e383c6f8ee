"""A recommendation model: bags of embeddings of changing length, and an MLP.

In: ids (4, batch, length) int64, the shorter bags filled with 0, whose row is zero; dense (batch, 16) float32. Out:
probabilities (batch, 1).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import tiercel as tc
from tiercel.tools.suite.case import Array, Call, Case, Shape, Weights, frozen, next_power, padded

__all__ = ["Recommend"]

TABLES = 4
WORDS = 10_000
WIDTH = 64
DENSE = 16


def recommend(
    ids: Array,
    dense: Array,
    table0: Array,
    table1: Array,
    table2: Array,
    table3: Array,
    w1: Array,
    b1: Array,
    w2: Array,
    b2: Array,
    w3: Array,
    b3: Array,
) -> Array:
    """Sums of rows, next to the dense features, through three layers."""
    bag0, bag1 = table0[ids[0]].sum(axis=1), table1[ids[1]].sum(axis=1)
    bag2, bag3 = table2[ids[2]].sum(axis=1), table3[ids[3]].sum(axis=1)
    x = np.concatenate([bag0, bag1, bag2, bag3, dense], axis=1)
    x = np.maximum(x @ w1 + b1, 0)
    x = np.maximum(x @ w2 + b2, 0)
    out: Array = 1 / (1 + np.exp(-(x @ w3 + b3)))
    return out


class Recommend(Case):
    """The model."""

    name = "recommend"
    title = "recommendation: 4 bags of embeddings of changing length, MLP"
    labels = ("batch", "longest bag")
    calls = (1500, 4000)
    rtol = 1e-4
    onnx_inputs = (("ids", {1: "batch", 2: "length"}), ("dense", {0: "batch"}))

    def shapes(self, quick: bool) -> list[Shape]:
        if quick:
            return [(1, 5), (32, 20), (256, 40)]
        return [(1, 5), (1, 100), (16, 20), (128, 10), (128, 60), (512, 40)]

    def draw(self, rng: np.random.Generator, quick: bool) -> Shape:
        return (int(rng.integers(1, 129)), int(rng.integers(2, 61)))

    def weights(self, rng: np.random.Generator) -> Weights:
        out = {}
        for index in range(TABLES):
            table = rng.standard_normal((WORDS, WIDTH), dtype=np.float32) * np.float32(0.1)
            table[0] = 0
            out[f"table{index}"] = table
        widths = (TABLES * WIDTH + DENSE, 256, 64, 1)
        for index, (a, b) in enumerate(itertools.pairwise(widths), 1):
            out[f"w{index}"] = rng.standard_normal((a, b), dtype=np.float32) * np.float32(a**-0.5)
            out[f"b{index}"] = rng.standard_normal(b, dtype=np.float32) * np.float32(0.1)
        return out

    def inputs(self, rng: np.random.Generator, shape: Shape) -> tuple[Any, ...]:
        batch, length = shape
        ids = rng.integers(1, WORDS, (TABLES, batch, length))
        ids *= np.arange(length) < rng.integers(1, length + 1, (TABLES, batch, 1))
        return ids, rng.standard_normal((batch, DENSE), dtype=np.float32)

    def numpy(self, weights: Weights) -> Call:
        fixed = tuple(weights.values())
        return lambda ids, dense: recommend(ids, dense, *fixed)

    def tiercel(self, weights: Weights) -> Call:
        jitted, fixed = tc.jit(recommend), tuple(frozen(weights).values())

        def run(ids: Array, dense: Array) -> Any:
            return jitted(ids, dense, *fixed)

        run.jitted = (jitted,)  # type: ignore[attr-defined]
        return run

    def torch(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import torch_models

        return torch_models.Recommend(weights)

    def onnx_module(self, weights: Weights) -> Any:
        """Bags as gathered rows summed: what the exporter makes of torch's bags is a loop over them."""
        from tiercel.tools.suite.models import torch_models

        return torch_models.Recommend(weights, gathered=True)

    def jax(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import jax_models

        return jax_models.with_weights(jax_models.recommend, *weights.values())

    def jax_padded(self, weights: Weights) -> Call:
        run = self.jax(weights)

        def cut(ids: Array, dense: Array) -> Any:
            _, batch, length = ids.shape
            wide = next_power(batch, 1)
            return np.asarray(run(padded(ids, TABLES, wide, next_power(length)), padded(dense, wide)))[:batch]

        return cut

    def numba(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import numba_models

        numba_models.need_blas()
        fixed = tuple(weights.values())
        return lambda ids, dense: numba_models.recommend(ids, dense, *fixed)
