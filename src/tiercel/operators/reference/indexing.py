"""Gathers, scatters and selections that NumPy spells only through `x[...]`, or not at all.

In: arrays and integer index arrays, which may count from the end. Out: fresh arrays; nothing here writes its operands.
Indices out of range raise IndexError, except in `one_hot`, where they select nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "REDUCTIONS",
    "embedding",
    "gather",
    "gather_elements",
    "gather_nd",
    "index_put",
    "masked_fill",
    "masked_select",
    "one_hot",
    "scatter",
    "scatter_nd",
    "searchsorted",
    "topk",
]

# What a scatter does where an element is already there; None replaces it (the last of several writes stays).
REDUCTIONS: Final[dict[str | None, np.ufunc | None]] = {
    None: None,
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


def gather(x: Any, indices: Any, axis: int = 0) -> Any:
    """Return whole slices of `x` along `axis`: shape `x.shape[:axis] + indices.shape + x.shape[axis + 1:]`.

    `np.take` with an axis that is never None; ONNX Gather.
    """
    x, indices = np.asarray(x), np.asarray(indices)
    return np.take(x, _integers(indices, "gather"), axis=operator.index(axis))


def embedding(indices: Any, table: Any) -> Any:
    """Return the rows of `table` `(V, D)` that `indices` name: shape `indices.shape + (D,)`.

    Raises:
        IndexError: an index out of range.
        TypeError: indices that are not integers.
        ValueError: a table that has not two dimensions.
    """
    indices, table = np.asarray(indices), np.asarray(table)
    if table.ndim != 2:
        raise ValueError(f"embedding needs a table with 2 dimensions, got shape {table.shape}")
    return np.take(table, _integers(indices, "embedding"), axis=0)


def gather_elements(x: Any, indices: Any, axis: int = 0) -> NDArray[Any]:
    """Return `out[i][j][k] = x[indices[i][j][k]][j][k]` (for axis 0); torch.gather, ONNX GatherElements.

    Args:
        x: any shape, at least one dimension.
        indices: integers, as many dimensions as `x`, no larger than `x` in any other than `axis`.
        axis: which subscript the indices replace.
    """
    x, indices = np.asarray(x), np.asarray(indices)
    axis = _element_axis(x, indices, axis, "gather_elements")
    return np.array(x[_element_key(indices, axis)], order="C")


def scatter(x: Any, indices: Any, updates: Any, axis: int = 0, reduce: str | None = None) -> NDArray[Any]:
    """Return a copy of `x` in which `out[indices[i][j]][j] = updates[i][j]` (for axis 0).

    Args:
        x: any shape, at least one dimension.
        indices: as in `gather_elements`.
        updates: of a shape that broadcasts to that of `indices`, cast to the dtype of `x` as assignment does.
        axis: which subscript the indices replace.
        reduce: None replaces (the last of several updates stays); "add", "multiply", "maximum", "minimum" combine,
            in order of the updates.
    """
    x, indices = np.asarray(x), np.asarray(indices)
    axis = _element_axis(x, indices, axis, "scatter")
    return _put(x, _element_key(indices, axis), np.asarray(updates), reduce)


def gather_nd(x: Any, indices: Any) -> Any:
    """Return `x[tuple(i)]` for each index vector `i` along the last dimension of `indices`.

    Returns:
        Shape `indices.shape[:-1] + x.shape[indices.shape[-1]:]`.
    """
    x, indices = np.asarray(x), np.asarray(indices)
    x, key = _vector_key(x, indices, "gather_nd")
    result = x[key]
    return np.array(result, order="C") if isinstance(result, np.ndarray) else result


def scatter_nd(x: Any, indices: Any, updates: Any, reduce: str | None = None) -> NDArray[Any]:
    """Return a copy of `x` in which `x[tuple(i)]` is replaced by (or combined with) its update.

    Args:
        x: any shape.
        indices: `(..., depth)` integers, `depth` at most the rank of `x`.
        updates: broadcastable to `indices.shape[:-1] + x.shape[depth:]`.
        reduce: as in `scatter`.
    """
    x, indices = np.asarray(x), np.asarray(indices)
    base, key = _vector_key(x, indices, "scatter_nd")
    return _put(base, key, np.asarray(updates), reduce).reshape(x.shape)


def index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> NDArray[Any]:
    """Return a copy of `x` after `x[indices] = values`, or with `accumulate` after `np.add.at(x, indices, values)`.

    Args:
        x: any shape.
        indices: a sequence of what may stand in `x[...]`: integer or bool arrays, ints, slices, None, Ellipsis.
        values: broadcastable to the selection.
    """
    x = np.asarray(x)
    key = tuple(np.asarray(i) if isinstance(i, list) else i for i in indices)
    return _put(x, key, np.asarray(values), "add" if accumulate else None)


def masked_fill(x: Any, mask: Any, value: Any) -> NDArray[Any]:
    """Return `x` with `value`, cast to the dtype of `x`, where the bool `mask` is true; the two broadcast.

    Raises:
        TypeError: a mask that is not bool.
    """
    x, mask = np.asarray(x), _mask(mask, "masked_fill")
    shape = np.broadcast_shapes(x.shape, mask.shape)
    out = np.array(np.broadcast_to(x, shape), order="C")
    np.copyto(out, value, where=mask, casting="unsafe")
    return out


def masked_select(x: Any, mask: Any) -> NDArray[Any]:
    """Return the elements of `x` where the bool `mask` is true, in C order, as one dimension; the two broadcast."""
    x, mask = np.broadcast_arrays(np.asarray(x), _mask(mask, "masked_select"))
    selected: NDArray[Any] = x[mask]
    return selected


def one_hot(
    indices: Any, depth: int, on_value: Any = 1, off_value: Any = 0, axis: int = -1, dtype: Any = np.float32
) -> NDArray[Any]:
    """Return `on_value` where the position along the new `axis` equals the index, else `off_value`.

    Args:
        indices: integers; those outside `0..depth-1` give `off_value` throughout.
        depth: size of the new dimension.
        on_value, off_value: scalars, cast to `dtype`.
        axis: where the new dimension stands in the result.
        dtype: of the result.
    """
    indices = _integers(np.asarray(indices), "one_hot")
    depth = operator.index(depth)
    if depth < 0:
        raise ValueError(f"one_hot needs depth >= 0, got {depth}")
    rank = indices.ndim + 1
    if not -rank <= axis < rank:
        raise np.exceptions.AxisError(axis, rank)
    axis %= rank
    steps = np.arange(depth).reshape(-1, *(1,) * (rank - 1 - axis))
    hit = np.expand_dims(indices, axis) == steps
    out = np.empty(hit.shape, dtype)
    out[...] = off_value
    out[hit] = on_value
    return out


def topk(
    x: Any, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the `k` largest (smallest) elements along `axis` and their positions.

    Equal elements come in the order of their positions; NaN counts as larger than all numbers. The result is sorted
    whether or not it is asked for.

    Returns:
        Values, of the dtype of `x`, and int64 positions, both fresh and C-contiguous.

    Raises:
        ValueError: `k` outside 0..size.
    """
    x, k = np.asarray(x), operator.index(k)
    if x.ndim == 0:
        raise np.exceptions.AxisError(axis, 0)
    if not -x.ndim <= axis < x.ndim:
        raise np.exceptions.AxisError(axis, x.ndim)
    size = x.shape[axis]
    if not 0 <= k <= size:
        raise ValueError(f"topk: k must be in 0..{size} for shape {x.shape} and axis {axis}, got {k}")
    if largest:
        # A stable descending order: sort the reversed elements upwards, read backwards.
        order = size - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    positions = np.array(np.take(order, np.arange(k), axis=axis), np.int64, order="C")
    return np.array(np.take_along_axis(x, positions, axis=axis), order="C"), positions


def searchsorted(x: Any, v: Any, sorter: Any = None, side: Any = "left") -> Any:
    """Return `np.searchsorted`, its operands first."""
    return np.searchsorted(x, v, side, sorter)


def _put(x: NDArray[Any], key: tuple[Any, ...], values: Any, reduce: str | None) -> NDArray[Any]:
    if reduce not in REDUCTIONS:
        raise ValueError(f"reduce must be one of {', '.join(map(repr, REDUCTIONS))}, got {reduce!r}")
    out = np.array(x, order="C")
    combine = REDUCTIONS[reduce]
    if combine is None:
        out[key] = values
    else:
        combine.at(out, key, np.asarray(values).astype(x.dtype, copy=False))
    return out


def _integers(indices: NDArray[Any], name: str) -> NDArray[Any]:
    if indices.dtype.kind not in "iu":
        raise TypeError(f"{name}: indices must be integers, got {indices.dtype.name}")
    return indices


def _mask(mask: Any, name: str) -> NDArray[np.bool_]:
    found: NDArray[Any] = np.asarray(mask)
    if found.dtype != np.bool_:
        raise TypeError(f"{name}: the mask must be bool, got {found.dtype.name}")
    return found


def _element_axis(x: NDArray[Any], indices: NDArray[Any], axis: int, name: str) -> int:
    _integers(indices, name)
    if x.ndim != indices.ndim:
        raise ValueError(f"{name}: indices must have as many dimensions as x, got {indices.shape} and {x.shape}")
    if not -x.ndim <= axis < x.ndim:
        raise np.exceptions.AxisError(axis, x.ndim)
    axis %= x.ndim
    for i, (n, m) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if i != axis and m > n:
            raise ValueError(f"{name}: indices {indices.shape} reach past x {x.shape} in dimension {i}")
    return axis


def _element_key(indices: NDArray[Any], axis: int) -> tuple[NDArray[Any], ...]:
    key: list[NDArray[Any]] = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    key[axis] = indices
    return tuple(key)


def _vector_key(x: NDArray[Any], indices: NDArray[Any], name: str) -> tuple[NDArray[Any], tuple[NDArray[Any], ...]]:
    """Return the array to index, and the key: one index array a subscript."""
    _integers(indices, name)
    if indices.ndim < 1 or indices.shape[-1] > x.ndim:
        raise ValueError(f"{name}: the last dimension of indices must be at most {x.ndim}, got shape {indices.shape}")
    if indices.shape[-1] == 0:
        # Empty vectors name the whole of `x`, once each.
        return x[None], (np.zeros(indices.shape[:-1], np.intp),)
    return x, tuple(np.moveaxis(indices, -1, 0))
