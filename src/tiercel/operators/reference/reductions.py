"""Reductions that NumPy computes otherwise than declared here, or has no function for.

In: an array, `axis`, `keepdims` and the operator's attributes. Out: as NumPy's reductions give it. Half types
accumulate in float32 and round once (NumPy rounds bfloat16 after every addition); everything else is NumPy's own
function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tiercel.dtypes import as_dtype
from tiercel.operators.reference.numerics import narrow, operand_dtype, widen

__all__ = ["cumprod", "cumsum", "logsumexp", "mean", "norm", "prod", "std", "sum_", "var"]

_HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def _accumulate_wide(function: Callable[..., Any], ufunc: np.ufunc, x: Any, axis: Any, dtype: Any, **more: Any) -> Any:
    x = x if isinstance(x, np.ndarray | np.generic) else np.asarray(x)
    given = None if dtype is None else as_dtype(dtype).numpy
    result = given or x.dtype
    if result not in _HALVES:
        return function(x, axis=axis, dtype=given, **more)
    # Refuses what NumPy refuses: bfloat16 sums of wider integers.
    ufunc.resolve_dtypes((result, x.dtype, None), signature=(result, None, result), casting="unsafe")
    wide = function(x, axis=axis, dtype=np.float32, **more)
    return wide.astype(result)


def sum_(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """`np.sum`."""
    return _accumulate_wide(np.sum, np.add, x, axis, dtype, keepdims=keepdims)


def prod(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """`np.prod`."""
    return _accumulate_wide(np.prod, np.multiply, x, axis, dtype, keepdims=keepdims)


def mean(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """`np.mean`."""
    return _accumulate_wide(np.mean, np.add, x, axis, dtype, keepdims=keepdims)


def var(x: Any, axis: Any = None, dtype: Any = None, ddof: Any = 0, keepdims: bool = False) -> Any:
    """`np.var`."""
    return _accumulate_wide(np.var, np.add, x, axis, dtype, ddof=ddof, keepdims=keepdims)


def std(x: Any, axis: Any = None, dtype: Any = None, ddof: Any = 0, keepdims: bool = False) -> Any:
    """`np.std`."""
    return _accumulate_wide(np.std, np.add, x, axis, dtype, ddof=ddof, keepdims=keepdims)


def cumsum(x: Any, axis: Any = None, dtype: Any = None) -> Any:
    """`np.cumsum`."""
    return _accumulate_wide(np.cumsum, np.add, x, axis, dtype)


def cumprod(x: Any, axis: Any = None, dtype: Any = None) -> Any:
    """`np.cumprod`."""
    return _accumulate_wide(np.cumprod, np.multiply, x, axis, dtype)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """`np.linalg.norm`."""
    x = np.asarray(x)
    if x.dtype == np.float16:
        return np.linalg.norm(x.astype(np.float32), ord, axis, keepdims).astype(np.float16)
    return np.linalg.norm(x, ord, axis, keepdims)


def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """`m + log(sum(exp(x - m)))` with m the largest element where that is finite, else 0.

    A slice of -inf only, or an empty one, gives -inf (NumPy warns of log(0)); one with +inf gives +inf.
    """
    dtype = operand_dtype("logsumexp", x)
    x = widen(x, dtype)
    peak = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    peak = np.where(np.isfinite(peak), peak, x.dtype.type(0))
    total = np.log(np.sum(np.exp(x - peak), axis=axis, keepdims=keepdims))
    if not keepdims:
        peak = np.max(peak, axis=axis)
    return narrow(total + peak, dtype)
