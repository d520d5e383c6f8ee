"""Control flow that depends on data: a branch on a mean, and layers that are left as soon as all rows are sure.

In: x (rows, 256) float32. Out: the branch taken, (rows, 256); or x, class probabilities, and the depth reached.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tiercel as tc
from tiercel.tools.suite.case import Array, Call, Case, Shape, Weights, frozen, next_power, padded
from tiercel.tools.suite.cases.rows import softmax

__all__ = ["Branch", "EarlyExit"]

WIDTH = 256
DEPTH = 12
CLASSES = 10
SURE = 0.5


def branch(x: Array, a: Array, b: Array) -> Array:
    """One of two ways."""
    if x.mean() > 0:
        return np.tanh(x @ a)
    return np.maximum(x, 0) @ b - x


def early_exit(x: Array, layers: Array, head: Array) -> Any:
    """Residual layers until the least certain row is certain enough."""
    depth = 0
    likely = softmax(x @ head)
    while depth < DEPTH and likely.max(axis=-1).min() < SURE:
        x = x + np.maximum(x @ layers[depth], 0)
        likely = softmax(x @ head)
        depth += 1
    return x, likely, depth


class Branch(Case):
    """A branch."""

    name = "branch"
    title = "a branch on the mean of the input"
    calls = (3000, 10_000)
    rtol = 1e-4

    def shapes(self, quick: bool) -> list[Shape]:
        return [(n,) for n in ((1, 17, 128) if quick else (1, 4, 17, 64, 200, 512))]

    def draw(self, rng: np.random.Generator, quick: bool) -> Shape:
        return (int(rng.integers(1, 257)),)

    def weights(self, rng: np.random.Generator) -> Weights:
        a, b = rng.standard_normal((2, WIDTH, WIDTH), dtype=np.float32) / np.float32(16)
        return {"a": a.copy(), "b": b.copy()}

    def inputs(self, rng: np.random.Generator, shape: Shape) -> tuple[Any, ...]:
        shift = np.float32(0.3 if rng.integers(2) else -0.3)
        return (rng.standard_normal((*shape, WIDTH), dtype=np.float32) + shift,)

    def numpy(self, weights: Weights) -> Call:
        a, b = weights["a"], weights["b"]
        return lambda x: branch(x, a, b)

    def tiercel(self, weights: Weights) -> Call:
        a, b = frozen(weights).values()
        return tc.jit(lambda x: branch(x, a, b))

    def torch(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import torch_models

        return torch_models.Branch(weights)

    def onnx_module(self, weights: Weights) -> Any:
        from tiercel.tools.suite.models import torch_models

        return torch_models.for_export("branch", weights)

    def jax(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import jax_models

        run = jax_models.with_weights(jax_models.branch, *weights.values())
        return lambda x: run(x, len(x))

    def jax_padded(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import jax_models

        run = jax_models.with_weights(jax_models.branch, *weights.values())
        return lambda x: np.asarray(run(padded(x, next_power(len(x))), len(x)))[: len(x)]

    def numba(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import numba_models

        numba_models.need_blas()
        a, b = weights.values()
        return lambda x: numba_models.branch(x, a, b)


class EarlyExit(Branch):
    """Layers that are left early."""

    name = "early-exit"
    title = f"up to {DEPTH} layers, left when every row is sure"
    calls = (600, 2000)
    # A row at the threshold: rounding may decide for one more layer.
    odd_share = 0.0

    def weights(self, rng: np.random.Generator) -> Weights:
        layers = rng.standard_normal((DEPTH, WIDTH, WIDTH), dtype=np.float32) * np.float32(0.05)
        return {"layers": layers, "head": rng.standard_normal((WIDTH, CLASSES), dtype=np.float32) * np.float32(0.1)}

    def inputs(self, rng: np.random.Generator, shape: Shape) -> tuple[Any, ...]:
        scale = np.float32(rng.uniform(0.1, 2.0))
        return (rng.standard_normal((*shape, WIDTH), dtype=np.float32) * scale,)

    def numpy(self, weights: Weights) -> Call:
        layers, head = weights["layers"], weights["head"]
        return lambda x: early_exit(x, layers, head)

    def tiercel(self, weights: Weights) -> Call:
        layers, head = frozen(weights).values()
        return tc.jit(lambda x: early_exit(x, layers, head))

    def torch(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import torch_models

        return torch_models.EarlyExit(weights)

    def onnx_module(self, weights: Weights) -> Any:
        from tiercel.tools.suite.models import torch_models

        return torch_models.for_export("early_exit", weights)

    def jax(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import jax_models

        run = jax_models.with_weights(jax_models.early_exit, *weights.values())
        return lambda x: run(x, len(x))

    def jax_padded(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import jax_models

        run = jax_models.with_weights(jax_models.early_exit, *weights.values())

        def cut(x: Array) -> Any:
            out, likely, depth = run(padded(x, next_power(len(x))), len(x))
            return np.asarray(out)[: len(x)], np.asarray(likely)[: len(x)], int(depth)

        return cut

    def numba(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import numba_models

        numba_models.need_blas()
        layers, head = weights.values()
        return lambda x: numba_models.early_exit(x, layers, head)
