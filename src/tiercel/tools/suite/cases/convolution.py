"""A multi-scale convolution stack on square images of changing size.

In: images (batch, 3, size, size) float32, size a multiple of 32. Out: (batch, 10). The image at full, half and quarter
size goes through a 3 x 3 convolution, a strided one, and a mean over what is left; one layer on all three ends it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tiercel as tc
from tiercel import ops
from tiercel.tools.suite.case import Array, Call, Cannot, Case, Shape, Weights, frozen

__all__ = ["Pyramid"]

SCALES = 3


def conv(x: Array, w: Array, b: Array, stride: int) -> Array:
    """3 x 3, one pixel of padding; the windows as a view, one matrix product."""
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
    out = np.tensordot(windows, w, axes=([1, 4, 5], [1, 2, 3])) + b
    return out.transpose(0, 3, 1, 2)


def half(x: Array) -> Array:
    """Means of 2 x 2 pixels."""
    batch, channels, height, width = x.shape
    out: Array = x.reshape(batch, channels, height // 2, 2, width // 2, 2).mean(axis=(3, 5))
    return out


def pyramid(x: Array, w1: Array, b1: Array, w2: Array, b2: Array, head: Array) -> Array:
    """The whole stack."""
    found = []
    for _ in range(SCALES):
        y = np.maximum(conv(x, w1, b1, 1), 0)
        y = np.maximum(conv(y, w2, b2, 2), 0)
        found.append(y.mean(axis=(2, 3)))
        x = half(x)
    return np.concatenate(found, axis=1) @ head


def pyramid_with_ops(x: Array, w1: Array, b1: Array, w2: Array, b2: Array, head: Array) -> Any:
    """The same with `tc.ops.conv2d`."""
    found = []
    for _ in range(SCALES):
        y = np.maximum(ops.conv2d(x, w1, b1, padding=1), 0)
        y = np.maximum(ops.conv2d(y, w2, b2, stride=2, padding=1), 0)
        found.append(y.mean(axis=(2, 3)))
        x = half(x)
    return np.concatenate(found, axis=1) @ head


class Pyramid(Case):
    """The stack."""

    name = "convolution"
    title = "multi-scale convolutions on images of 96 to 512 pixels"
    labels = ("batch", "pixels")
    rtol = 2e-4
    calls = (60, 100)
    onnx_inputs = (("x", {0: "batch", 2: "height", 3: "width"}),)

    def shapes(self, quick: bool) -> list[Shape]:
        return [(1, 96), (1, 224), (2, 384)] if quick else [(1, 96), (1, 160), (1, 224), (4, 224), (1, 384), (1, 512)]

    def draw(self, rng: np.random.Generator, quick: bool) -> Shape:
        return (int(rng.integers(1, 3)), 32 * int(rng.integers(3, 9 if quick else 17)))

    def size(self, shape: Shape) -> float:
        return float(shape[0] * shape[1] ** 2)

    def weights(self, rng: np.random.Generator) -> Weights:
        def normal(*shape: int) -> Array:
            return rng.standard_normal(shape, dtype=np.float32) * np.float32(np.prod(shape[1:]) ** -0.5)

        return {
            "w1": normal(16, 3, 3, 3),
            "b1": normal(16),
            "w2": normal(32, 16, 3, 3),
            "b2": normal(32),
            "head": normal(SCALES * 32, 10),
        }

    def inputs(self, rng: np.random.Generator, shape: Shape) -> tuple[Any, ...]:
        batch, size = shape
        return (rng.standard_normal((batch, 3, size, size), dtype=np.float32),)

    def numpy(self, weights: Weights) -> Call:
        fixed = tuple(weights.values())
        return lambda x: pyramid(x, *fixed)

    def tiercel(self, weights: Weights) -> Call:
        w1, b1, w2, b2, head = frozen(weights).values()
        return tc.jit(lambda x: pyramid_with_ops(x, w1, b1, w2, b2, head))

    def torch(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import torch_models

        return torch_models.Pyramid(weights)

    def jax(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import jax_models

        return jax_models.with_weights(jax_models.pyramid, *weights.values())

    def jax_padded(self, weights: Weights) -> Call:
        raise Cannot("a padded image has other borders and another mean; its users resize instead")

    def numba(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import numba_models

        fixed = tuple(weights.values())
        return lambda x: numba_models.pyramid(x, *fixed)
