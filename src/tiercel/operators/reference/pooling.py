"""Maximum and average pooling over the last one or two dimensions.

In: `(..., *spatial)`. Out: `(..., *counts)`, fresh, C-contiguous. The attributes mean what they mean in PyTorch, which
the tests' plain loops spell out; dimensions in front are carried along, whatever their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiercel.dtypes import as_dtype, float64
from tiercel.operators.reference.windows import (
    Padding,
    Window,
    pad_spatial,
    per_axis,
    resolve_padding,
    same_padding,
    sliding_view,
)

__all__ = ["avg_pool1d", "avg_pool2d", "max_pool1d", "max_pool2d", "pool_windows"]


def max_pool1d(
    x: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> NDArray[Any]:
    """Return the maximum of each window along the last dimension; see `max_pool2d`."""
    return _max_pool(x, kernel_size, stride, padding, dilation, ceil_mode, 1)


def max_pool2d(
    x: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> NDArray[Any]:
    """Return the maximum of each window over the last two dimensions. NaN in a window gives NaN.

    Args:
        x: `(..., H, W)`, bool, integer or real floating.
        kernel_size: an int, or one per spatial dimension.
        stride: the same; None for `kernel_size`.
        padding: as in `conv2d`, at most half of the kernel's extent; padded places never win.
        dilation: distance of the taps.
        ceil_mode: also a last window that only partly lies inside, if it starts inside.

    Raises:
        TypeError: a complex dtype.
        ValueError: too few dimensions, bad attributes, or a padded image smaller than the kernel.
    """
    return _max_pool(x, kernel_size, stride, padding, dilation, ceil_mode, 2)


def avg_pool1d(
    x: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> NDArray[Any]:
    """Return the mean of each window along the last dimension; see `avg_pool2d`."""
    return _avg_pool(x, kernel_size, stride, padding, ceil_mode, count_include_pad, 1)


def avg_pool2d(
    x: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> NDArray[Any]:
    """Return the mean of each window over the last two dimensions.

    Args:
        x: `(..., H, W)`; bool and integers give float64, as in `np.mean`; half types are averaged in float32 and
            rounded once.
        kernel_size, stride, padding, ceil_mode: as in `max_pool2d`; padded places count as zero.
        count_include_pad: whether padded places count in the divisor. Places beyond the padding, which `ceil_mode`
            can reach, never do.
    """
    return _avg_pool(x, kernel_size, stride, padding, ceil_mode, count_include_pad, 2)


def pool_windows(
    sizes: Sequence[Any],
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None,
    padding: Padding,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    minimum: Callable[[Any, Any], Any] = min,
) -> tuple[Window, ...]:
    """Return the windows of a pooling over spatial `sizes`, which may be symbolic (then only `count` is meant).

    Args:
        minimum: how to take the smaller of two sizes; the shape rule passes the symbolic one.

    Raises:
        ValueError: bad attributes, or a padded size below the extent of the kernel.
    """
    rank = len(sizes)
    kernel = per_axis(kernel_size, rank, "kernel_size")
    strides = kernel if stride is None else per_axis(stride, rank, "stride")
    dilations = per_axis(dilation, rank, "dilation")
    pads = resolve_padding(padding, rank)
    windows = []
    for axis, (size, k, s, d) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        extent = d * (k - 1) + 1
        if isinstance(pads, str):
            count = (size + s - 1) // s
            windows.append(Window(k, s, d, *same_padding(size, count, s, extent), count))
            continue
        low, high = pads[axis]
        if max(low, high) * 2 > extent:
            raise ValueError(f"pooling: padding {low} + {high} is more than half of the kernel's extent {extent}")
        if isinstance(size, int) and size + low + high < extent:
            raise ValueError(
                f"pooling: spatial dimension {axis} has size {size} and padding {low} + {high}, "
                f"less than the kernel's extent {extent}"
            )
        room = size + low + high - extent
        # A window that starts in the high padding has no element of the image; it is left out.
        count = minimum((room + s - 1) // s + 1, (size + low + s - 1) // s) if ceil_mode else room // s + 1
        windows.append(Window(k, s, d, low, high, count))
    return tuple(windows)


def _max_pool(
    x: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None,
    padding: Padding,
    dilation: int | Sequence[int],
    ceil_mode: bool,
    rank: int,
) -> NDArray[Any]:
    x = _spatial(x, rank, "max_pool")
    kind = as_dtype(x.dtype)
    if kind.is_complex:
        raise TypeError(f"max_pool{rank}d: complex numbers have no order, got {kind.name}")
    windows = pool_windows(x.shape[x.ndim - rank :], kernel_size, stride, padding, dilation, ceil_mode)
    lowest = -np.inf if kind.is_float else kind.min
    view = sliding_view(pad_spatial(x, windows, lowest), windows)
    return np.ascontiguousarray(view.max(axis=tuple(range(-rank, 0)))).reshape(view.shape[:-rank])


def _avg_pool(
    x: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None,
    padding: Padding,
    ceil_mode: bool,
    count_include_pad: bool,
    rank: int,
) -> NDArray[Any]:
    x = _spatial(x, rank, "avg_pool")
    kind = as_dtype(x.dtype)
    out = kind if kind.is_inexact else float64
    sizes = x.shape[x.ndim - rank :]
    windows = pool_windows(sizes, kernel_size, stride, padding, 1, ceil_mode)
    compute = out.accumulator.numpy
    view = sliding_view(pad_spatial(x.astype(compute, copy=False), windows, 0), windows)
    total = np.ascontiguousarray(view.sum(axis=tuple(range(-rank, 0)))).reshape(view.shape[:-rank])
    for axis, (size, window) in enumerate(zip(sizes, windows, strict=True)):
        divisor = _window_counts(size, window, count_include_pad).astype(out.real.accumulator.numpy)
        total /= divisor.reshape(-1, *(1,) * (rank - 1 - axis))
    return total.astype(out.numpy, copy=False)


def _window_counts(size: int, window: Window, include_pad: bool) -> NDArray[np.int64]:
    start = np.arange(window.count, dtype=np.int64) * window.stride - window.low
    stop = start + window.kernel
    if include_pad:
        return np.minimum(stop, size + window.high) - start
    return np.minimum(stop, size) - np.maximum(start, 0)


def _spatial(x: Any, rank: int, name: str) -> NDArray[Any]:
    found: NDArray[Any] = np.asarray(x)
    if found.ndim < rank:
        raise ValueError(f"{name}{rank}d needs at least {rank} dimensions, got shape {found.shape}")
    return found
