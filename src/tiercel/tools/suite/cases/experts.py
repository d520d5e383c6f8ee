"""A mixture of experts: each token goes to the expert with the largest logit, so groups are ragged.

In: x (tokens, 256) float32. Out: the same shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tiercel as tc
from tiercel.tools.suite.case import Array, Call, Case, Shape, Weights, frozen, next_power, padded

__all__ = ["Experts"]

EXPERTS = 8
WIDTH = 256
INNER = 512


def experts(x: Array, router: Array, w_in: Array, w_out: Array) -> Array:
    """Each expert on its tokens."""
    chosen = (x @ router).argmax(axis=1)
    out = np.zeros_like(x)
    for expert in range(EXPERTS):
        tokens = np.nonzero(chosen == expert)[0]
        if tokens.size:
            out[tokens] = np.maximum(x[tokens] @ w_in[expert], 0) @ w_out[expert]
    return out


class Experts(Case):
    """The mixture."""

    name = "experts"
    title = f"mixture of {EXPERTS} experts, one for each token"
    labels = ("tokens",)
    calls = (1500, 3000)
    rtol = 1e-4
    # Two experts with nearly the same logit: rounding may decide for a whole row.
    odd_share = 0.002

    def shapes(self, quick: bool) -> list[Shape]:
        return [(n,) for n in ((1, 32, 256) if quick else (1, 7, 32, 128, 512, 2048))]

    def draw(self, rng: np.random.Generator, quick: bool) -> Shape:
        return (int(rng.integers(1, 257 if quick else 513)),)

    def weights(self, rng: np.random.Generator) -> Weights:
        def normal(*shape: int) -> Array:
            return rng.standard_normal(shape, dtype=np.float32) * np.float32(shape[-2] ** -0.5)

        return {
            "router": normal(WIDTH, EXPERTS),
            "w_in": normal(EXPERTS, WIDTH, INNER),
            "w_out": normal(EXPERTS, INNER, WIDTH),
        }

    def inputs(self, rng: np.random.Generator, shape: Shape) -> tuple[Any, ...]:
        return (rng.standard_normal((*shape, WIDTH), dtype=np.float32),)

    def numpy(self, weights: Weights) -> Call:
        fixed = tuple(weights.values())
        return lambda x: experts(x, *fixed)

    def tiercel(self, weights: Weights) -> Call:
        router, w_in, w_out = frozen(weights).values()
        return tc.jit(lambda x: experts(x, router, w_in, w_out))

    def torch(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import torch_models

        return torch_models.Experts(weights)

    def jax(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import jax_models

        return jax_models.with_weights(jax_models.experts, *weights.values())

    def jax_padded(self, weights: Weights) -> Call:
        run = self.jax(weights)
        return lambda x: np.asarray(run(padded(x, next_power(len(x)))))[: len(x)]

    def numba(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import numba_models

        numba_models.need_blas()
        fixed = tuple(weights.values())
        return lambda x: numba_models.experts(x, *fixed)
