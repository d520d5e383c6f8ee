"""Contractions that NumPy has no single function for.

In: floating, integer or complex arrays. Out: fresh arrays of the promoted dtype. Half types accumulate in float32 and
round once, after the bias.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiercel.dtypes import as_dtype, result_type

__all__ = ["einsum", "linear", "trace"]


def linear(x: Any, w: Any, b: Any = None) -> Any:
    """Return `x @ w.T + b`.

    Args:
        x: `(..., K)`, at least one dimension.
        w: `(N, K)`, one row an output, as layers store it.
        b: `(N,)`, or None.

    Returns:
        `(..., N)` of the promoted dtype (bool counts as in `np.matmul`).

    Raises:
        ValueError: shapes that do not fit.
    """
    x, w = np.asarray(x), np.asarray(w)
    if x.ndim < 1 or w.ndim != 2:
        raise ValueError(f"linear needs x with at least 1 dimension and w with 2, got shapes {x.shape} and {w.shape}")
    if x.shape[-1] != w.shape[1]:
        raise ValueError(f"linear: x {x.shape} has {x.shape[-1]} features, w {w.shape} expects {w.shape[1]}")
    operands = [x, w]
    if b is not None:
        b = np.asarray(b)
        if b.shape != (w.shape[0],):
            raise ValueError(f"linear: b must have shape {(w.shape[0],)}, got {b.shape}")
        operands.append(b)
    kind = result_type(*(as_dtype(a.dtype) for a in operands))
    compute = kind.accumulator.numpy
    result: NDArray[Any] = np.matmul(x.astype(compute, copy=False), w.astype(compute, copy=False).T)
    if b is not None:
        result = result + b.astype(compute, copy=False)
    return np.ascontiguousarray(result.astype(kind.numpy, copy=False))


def einsum(operands: Any, subscripts: str) -> Any:
    """Return `np.einsum(subscripts, *operands)`; a single operand needs no sequence around it."""
    several = isinstance(operands, tuple | list) and len(operands) == subscripts.count(",") + 1
    return np.einsum(subscripts, *(operands if several else (operands,)))


def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    """Return `np.trace`, half types added in float32 and rounded once."""
    x = np.asarray(x)
    kind = as_dtype(x.dtype)
    if kind.is_half and dtype is None:
        wide = np.trace(x.astype(np.float32), offset, axis1, axis2)
        return wide.astype(kind.numpy)
    return np.trace(x, offset, axis1, axis2, dtype)
