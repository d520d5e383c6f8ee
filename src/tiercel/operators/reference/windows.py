"""What convolution and pooling share: window geometry along spatial dimensions, and the view that lists the windows.

In: sizes and the attributes as a user writes them. Out: per spatial dimension one `Window`, from which both the
reference and the shape rules take the output size, so that they cannot disagree. Sizes may be symbolic: only `+ - //`
are applied to them here, and the caller says how to take a minimum.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Padding", "Window", "pad_spatial", "per_axis", "resolve_padding", "same_padding", "sliding_view"]

Padding: TypeAlias = "str | int | Sequence[int] | Sequence[Sequence[int]]"


@dataclass(frozen=True, slots=True)
class Window:
    """Windows along one dimension: `count` of them, the first starting `low` before element 0.

    `high` is how far padding reaches past the end.
    """

    kernel: int
    stride: int
    dilation: int
    low: int
    high: int
    count: int

    @property
    def extent(self) -> int:
        """Elements from the first to the last tap of a window, both included."""
        return self.dilation * (self.kernel - 1) + 1


def per_axis(value: int | Sequence[int], rank: int, name: str, minimum: int = 1) -> tuple[int, ...]:
    """Return an attribute given as one int, or as one int per spatial dimension, in the latter form.

    Raises:
        TypeError: not integers.
        ValueError: a wrong count, or a value below `minimum`.
    """
    values = (value,) * rank if isinstance(value, int | np.integer) else tuple(value)
    if len(values) != rank:
        raise ValueError(f"{name} must be an int or {rank} ints, got {value!r}")
    result = tuple(operator.index(v) for v in values)
    if any(v < minimum for v in result):
        raise ValueError(f"{name} must be at least {minimum}, got {value!r}")
    return result


def resolve_padding(padding: Padding, rank: int) -> str | tuple[tuple[int, int], ...]:
    """Return padding as "same", or as one (low, high) pair per spatial dimension.

    Args:
        padding: "valid" (none), "same", an int for all sides, an int per dimension, or a pair per dimension.

    Raises:
        ValueError: any other text, a wrong count, or a negative amount.
    """
    if isinstance(padding, str):
        if padding == "valid":
            return ((0, 0),) * rank
        if padding == "same":
            return "same"
        raise ValueError(f"padding must be 'same', 'valid', ints or pairs of ints, got {padding!r}")
    values: Sequence[Any] = (padding,) * rank if isinstance(padding, int | np.integer) else tuple(padding)
    if len(values) != rank:
        raise ValueError(f"padding must be an int, or {rank} ints or pairs, got {padding!r}")
    pairs: list[tuple[int, int]] = []
    for value in values:
        pair: Sequence[Any] = (value, value) if isinstance(value, int | np.integer) else tuple(value)
        if len(pair) != 2:
            raise ValueError(f"padding must give one (low, high) pair a dimension, got {padding!r}")
        low, high = operator.index(pair[0]), operator.index(pair[1])
        if low < 0 or high < 0:
            raise ValueError(f"padding must not be negative, got {padding!r}")
        pairs.append((low, high))
    return tuple(pairs)


def same_padding(size: Any, count: Any, stride: int, extent: int) -> tuple[int, int]:
    """Return the (low, high) zeros with which `count` windows cover `size` elements; (0, 0) for a symbolic size."""
    if not isinstance(size, int):
        return 0, 0
    total = max((count - 1) * stride + extent - size, 0)
    return total // 2, total - total // 2


def pad_spatial(x: NDArray[Any], windows: Sequence[Window], fill: Any) -> NDArray[Any]:
    """Pad the last `len(windows)` dimensions of `x` so that every window lies inside; no copy if none is needed.

    Where the windows end before the padding does, the surplus is left out.
    """
    first = x.ndim - len(windows)
    before = [0] * x.ndim
    sizes = list(x.shape)
    for axis, w in enumerate(windows, first):
        before[axis] = w.low
        needed = (w.count - 1) * w.stride + w.extent if w.count else 0
        sizes[axis] = max(needed, w.low + x.shape[axis])
    if tuple(sizes) == x.shape:
        return x
    out = np.full(sizes, fill, x.dtype)
    out[tuple(slice(b, b + n) for b, n in zip(before, x.shape, strict=True))] = x
    return out


def sliding_view(padded: NDArray[Any], windows: Sequence[Window]) -> NDArray[Any]:
    """Return the read-only view `(leading..., counts..., kernels...)` of all windows of a padded array."""
    lead = padded.ndim - len(windows)
    steps = padded.strides[lead:]
    return np.lib.stride_tricks.as_strided(
        padded,
        padded.shape[:lead] + tuple(w.count for w in windows) + tuple(w.kernel for w in windows),
        padded.strides[:lead]
        + tuple(s * w.stride for s, w in zip(steps, windows, strict=True))
        + tuple(s * w.dilation for s, w in zip(steps, windows, strict=True)),
        writeable=False,
    )
