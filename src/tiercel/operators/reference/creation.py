"""Creation, copies and questions about arrays, under the parameters of their rows.

In: operands first, then attributes. Out: what the NumPy function or method gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "arange",
    "array",
    "asarray",
    "depend",
    "dim",
    "dtype_of",
    "full",
    "full_like",
    "identity",
    "item",
    "size",
    "zeros_like",
]


def full(fill_value: Any, shape: Any, dtype: Any = None, order: Any = "C") -> Any:
    """Return `np.full(shape, fill_value, dtype, order)`."""
    return np.full(shape, fill_value, dtype, order)


def zeros_like(x: Any, dtype: Any = None, order: Any = "K", shape: Any = None) -> Any:
    """Return `np.zeros_like`."""
    return np.zeros_like(x, dtype, order, True, shape)


def ones_like(x: Any, dtype: Any = None, order: Any = "K", shape: Any = None) -> Any:
    """Return `np.ones_like`."""
    return np.ones_like(x, dtype, order, True, shape)


def empty_like(x: Any, dtype: Any = None, order: Any = "K", shape: Any = None) -> Any:
    """Return `np.empty_like`."""
    return np.empty_like(x, dtype, order, True, shape)


def full_like(x: Any, fill_value: Any, dtype: Any = None, order: Any = "K", shape: Any = None) -> Any:
    """Return `np.full_like`."""
    return np.full_like(x, fill_value, dtype, order, True, shape)


def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Any:
    """Return `np.arange`; with `stop` None it runs from 0 to `start`."""
    make: Any = np.arange  # its overloads tell more cases apart than there are here
    return make(start, stop, step, dtype)


def array(x: Any, dtype: Any = None, order: Any = "K", ndmin: int = 0) -> Any:
    """Return `np.array(x)`, always a copy."""
    return np.array(x, dtype, order=order, ndmin=ndmin)


def asarray(x: Any, dtype: Any = None, order: Any = None) -> Any:
    """Return `np.asarray(x)`."""
    return np.asarray(x, dtype, order)


def identity(x: Any) -> Any:
    """Return `x` itself."""
    return x


def depend(x: Any, after: Any = ()) -> Any:
    """Return `x` itself, once everything in `after` has been computed."""
    return x


def dim(x: Any, axis: int) -> int:
    """Return the size of one axis."""
    return int(np.shape(x)[axis])


def size(x: Any, axis: Any = None) -> int:
    """Return the number of elements, or the size of an axis."""
    return int(np.size(x, axis))


def item(x: Any) -> Any:
    """Return the one element of `x` as a Python scalar."""
    return np.asarray(x).item()


def dtype_of(x: Any) -> Any:
    """Return the dtype of `x` as an array."""
    return np.asarray(x).dtype
