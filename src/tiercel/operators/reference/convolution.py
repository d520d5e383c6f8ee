"""Convolution (cross-correlation) over one or two spatial dimensions, channels first.

In: images `(N, C, *spatial)` and filters `(O, C // groups, *kernel)`. Out: `(N, O, *counts)`, fresh and C-contiguous.
The windows are gathered into a matrix and multiplied at once; memory is `prod(kernel)` times the input, which a
reference may spend. Half types accumulate in float32 and round once, bias included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiercel.dtypes import as_dtype, result_type
from tiercel.operators.reference.windows import (
    Padding,
    Window,
    pad_spatial,
    per_axis,
    resolve_padding,
    same_padding,
    sliding_view,
)

__all__ = ["conv1d", "conv2d", "conv_windows"]


def conv1d(
    x: Any,
    w: Any,
    b: Any = None,
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> NDArray[Any]:
    """Return the 1-d cross-correlation of `x` `(N, C, L)` with `w` `(O, C // groups, K)`, plus `b` `(O,)`.

    See `conv2d`.
    """
    return _conv(x, w, b, stride, padding, dilation, groups, 1)


def conv2d(
    x: Any,
    w: Any,
    b: Any = None,
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> NDArray[Any]:
    """Return the 2-d cross-correlation of `x` with `w`, plus `b`.

    Args:
        x: `(N, C, H, W)`.
        w: `(O, C // groups, KH, KW)`; group `g` of `O // groups` outputs sees group `g` of the channels.
        b: `(O,)` or None.
        stride, dilation: an int, or one per spatial dimension.
        padding: zeros around the image: an int, an int per spatial dimension, a (low, high) pair per spatial
            dimension, "valid" (none), or "same": `ceil(size / stride)` outputs, the odd zero at the high end.
        groups: divides C and O.

    Returns:
        `(N, O, ...)` of the operands' promoted dtype.

    Raises:
        ValueError: shapes that do not fit each other, or a padded image smaller than the dilated kernel.
    """
    return _conv(x, w, b, stride, padding, dilation, groups, 2)


def conv_windows(
    sizes: Sequence[Any],
    kernel: Sequence[int],
    stride: int | Sequence[int],
    padding: Padding,
    dilation: int | Sequence[int],
) -> tuple[Window, ...]:
    """Return the windows of a convolution over spatial `sizes`, which may be symbolic (then only `count` is meant).

    Raises:
        ValueError: bad attributes, or a padded size below the extent of the kernel.
    """
    rank = len(kernel)
    strides, dilations = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    pads = resolve_padding(padding, rank)
    windows = []
    for axis, (size, k, s, d) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        extent = d * (k - 1) + 1
        if isinstance(pads, str):
            count = (size + s - 1) // s
            low, high = same_padding(size, count, s, extent)
        else:
            low, high = pads[axis]
            if isinstance(size, int) and size + low + high < extent:
                raise ValueError(
                    f"convolution: spatial dimension {axis} has size {size} and padding {low} + {high}, "
                    f"less than the kernel's extent {extent}"
                )
            count = (size + low + high - extent) // s + 1
        windows.append(Window(k, s, d, low, high, count))
    return tuple(windows)


def _conv(
    x: Any,
    w: Any,
    b: Any,
    stride: int | Sequence[int],
    padding: Padding,
    dilation: int | Sequence[int],
    groups: int,
    rank: int,
) -> NDArray[Any]:
    x, w = np.asarray(x), np.asarray(w)
    b = None if b is None else np.asarray(b)
    if x.ndim != rank + 2 or w.ndim != rank + 2:
        raise ValueError(f"conv{rank}d needs x and w with {rank + 2} dimensions, got shapes {x.shape} and {w.shape}")
    batch, channels = x.shape[:2]
    outputs = w.shape[0]
    if groups < 1 or channels % groups or outputs % groups or channels // groups != w.shape[1]:
        raise ValueError(
            f"conv{rank}d: x {x.shape} and w {w.shape} do not fit with groups={groups}: w must be "
            f"(outputs, channels // groups, ...) with both divisible by groups"
        )
    if b is not None and b.shape != (outputs,):
        raise ValueError(f"conv{rank}d: b must have shape {(outputs,)}, got {b.shape}")
    kernel = w.shape[2:]
    if not all(kernel):
        raise ValueError(f"conv{rank}d: the kernel has a zero size: w {w.shape}")
    windows = conv_windows(x.shape[2:], kernel, stride, padding, dilation)
    kind = result_type(*(as_dtype(a.dtype) for a in (x, w) + (() if b is None else (b,))))
    compute = kind.accumulator.numpy
    view = sliding_view(pad_spatial(x, windows, 0), windows)
    counts = tuple(window.count for window in windows)
    taps = channels // groups * math.prod(kernel)
    # (N, C, *counts, *kernel) -> (N, groups, taps, positions)
    columns = np.moveaxis(view, range(2, 2 + rank), range(-rank, 0)).astype(compute, order="C", copy=True)
    columns = columns.reshape(batch, groups, taps, math.prod(counts))
    filters = w.reshape(groups, outputs // groups, taps).astype(compute, copy=False)
    result: NDArray[Any] = np.matmul(filters, columns).reshape(batch, outputs, *counts)
    if b is not None:
        result = result + b.astype(compute, copy=False).reshape(-1, *(1,) * rank)
    return result.astype(kind.numpy, copy=False)
