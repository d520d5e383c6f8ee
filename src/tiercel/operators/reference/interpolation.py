"""Resizing of the last one or two dimensions: nearest, linear, bilinear.

In: `(N, C, *spatial)`. Out: `(N, C, *sizes)`, fresh, C-contiguous. Positions depend on the two sizes only (never on a
scale factor's rounding), in exact integers for nearest, in float64 for the linear modes; weights are then rounded to
the dtype's compute type. Half types are computed in float32 and rounded once.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tiercel.dtypes import as_dtype

__all__ = ["MODES", "interpolate", "output_sizes"]

# Mode -> number of spatial dimensions, None for any.
MODES: Final[dict[str, int | None]] = {"nearest": None, "linear": 1, "bilinear": 2}
# A scale such as 0.1 means one tenth, not the float nearest to it.
_MAX_DENOMINATOR: Final = 1 << 20


def interpolate(
    x: Any,
    size: int | Sequence[int] | None = None,
    scale: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> NDArray[Any]:
    """Return `x` resized along its spatial dimensions.

    Args:
        x: `(N, C, *spatial)`; the linear modes need a floating or complex dtype.
        size: output sizes, an int or one per spatial dimension; exactly one of `size` and `scale` is given.
        scale: output size is `floor(size * scale)`, in exact arithmetic on the nearest fraction with a denominator
            below 2**20.
        mode: "nearest" takes element `floor(i * in / out)`; "linear" (one spatial dimension) and "bilinear" (two)
            blend neighbours as `a * (1 - w) + b * w`, last dimension first.
        align_corners: linear modes only; False maps pixel centres, `(i + 1/2) * in / out - 1/2` clamped at the edges,
            True maps first to first and last to last.

    Raises:
        TypeError: an integer dtype in a linear mode.
        ValueError: an unknown mode, both or neither of `size` and `scale`, wrong counts, or resizing nothing into
            something.
    """
    x = np.asarray(x)
    spatial = x.shape[2:]
    if x.ndim < 3:
        raise ValueError(f"interpolate needs (N, C, ...) with at least one spatial dimension, got shape {x.shape}")
    check_mode(mode, len(spatial), align_corners)
    sizes = output_sizes(spatial, size, scale)
    for axis, (old, new) in enumerate(zip(spatial, sizes, strict=True)):
        if new and not old:
            raise ValueError(f"interpolate: cannot resize spatial dimension {axis} from 0 to {new}")
    if mode == "nearest":
        return _nearest(x, sizes)
    kind = as_dtype(x.dtype)
    if not kind.is_inexact:
        raise TypeError(f"interpolate: mode {mode!r} needs a floating or complex dtype, got {kind.name}; use astype")
    result = x.astype(kind.accumulator.numpy, order="C", copy=True)
    for axis in reversed(range(2, x.ndim)):
        result = _linear(result, axis, sizes[axis - 2], align_corners, kind.real.accumulator.numpy)
    return np.ascontiguousarray(result.astype(kind.numpy, copy=False))


def check_mode(mode: str, spatial_rank: int, align_corners: bool) -> None:
    """Raise ValueError unless `mode` exists, fits the number of spatial dimensions and allows `align_corners`."""
    if mode not in MODES:
        raise ValueError(f"interpolate: mode must be one of {', '.join(map(repr, MODES))}, got {mode!r}")
    if MODES[mode] not in (None, spatial_rank):
        raise ValueError(f"interpolate: mode {mode!r} needs {MODES[mode]} spatial dimensions, got {spatial_rank}")
    if align_corners and mode == "nearest":
        raise ValueError("interpolate: align_corners has no meaning with mode 'nearest'")


def output_sizes(
    spatial: Sequence[Any], size: int | Sequence[Any] | None, scale: float | Sequence[float] | None
) -> tuple[Any, ...]:
    """Return the output sizes; entries of `spatial` and `size` may be symbolic.

    Raises:
        ValueError: both or neither of `size` and `scale`, a wrong count, or a negative value.
    """
    rank = len(spatial)
    if (size is None) == (scale is None):
        raise ValueError("interpolate needs exactly one of size and scale")
    if scale is not None:
        scales = tuple(scale) if isinstance(scale, Sequence) else (scale,) * rank
        if len(scales) != rank:
            raise ValueError(f"interpolate: scale must be a number or {rank} numbers, got {scale!r}")
        if not all(0 <= s < float("inf") for s in scales):
            raise ValueError(f"interpolate: scale must be finite and not negative, got {scale!r}")
        from fractions import Fraction  # with decimal half a megabyte, for this alone

        ratios = [Fraction(s).limit_denominator(_MAX_DENOMINATOR) for s in scales]
        return tuple(n * r.numerator // r.denominator for n, r in zip(spatial, ratios, strict=True))
    sizes = tuple(size) if isinstance(size, Sequence) else (size,) * rank
    if len(sizes) != rank:
        raise ValueError(f"interpolate: size must be an int or {rank} ints, got {size!r}")
    checked = tuple(operator.index(n) if isinstance(n, int | np.integer) else n for n in sizes)
    if any(isinstance(n, int) and n < 0 for n in checked):
        raise ValueError(f"interpolate: size must not be negative, got {size!r}")
    return checked


def _nearest(x: NDArray[Any], sizes: tuple[int, ...]) -> NDArray[Any]:
    result = x
    for axis, new in enumerate(sizes, 2):
        old = x.shape[axis]
        result = np.take(result, np.arange(new) * old // max(new, 1), axis=axis)
    return np.ascontiguousarray(result)


def _linear(x: NDArray[Any], axis: int, new: int, align_corners: bool, real: np.dtype[Any]) -> NDArray[Any]:
    old = x.shape[axis]
    i = np.arange(new, dtype=np.float64)
    if align_corners:
        # A single output element takes the first corner.
        position = i * (old - 1) / (new - 1) if new > 1 else i
    else:
        position = np.maximum((i + 0.5) * old / max(new, 1) - 0.5, 0.0)
    left = np.minimum(position.astype(np.int64), max(old - 1, 0))
    right = np.minimum(left + 1, max(old - 1, 0))
    weight = (position - left).astype(real).reshape(-1, *(1,) * (x.ndim - 1 - axis))
    one = real.type(1)
    blend: NDArray[Any] = np.take(x, left, axis=axis) * (one - weight) + np.take(x, right, axis=axis) * weight
    return blend
