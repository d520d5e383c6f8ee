"""softmax and the normalisation layers in NumPy.

In: arrays of real dtype. Out: fresh arrays in the first operand's axis order. Half types are computed in float32 and
rounded once. The expressions are those of the docstrings; NaN and infinities travel as they do through them.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tiercel.dtypes import DType
from tiercel.operators.reference.numerics import narrow, operand_dtype, widen

__all__ = ["batch_norm", "layer_norm", "log_softmax", "rms_norm", "softmax"]


def softmax(x: Any, axis: Any = -1) -> Any:
    """`e / sum(e)` with `e = exp(x - max(x))`. A slice of -inf only is NaN, as in that expression."""
    dtype = operand_dtype("softmax", x)
    x = widen(x, dtype)
    e = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
    return narrow(e / np.sum(e, axis=axis, keepdims=True), dtype)


def log_softmax(x: Any, axis: Any = -1) -> Any:
    """`d - log(sum(exp(d)))` with `d = x - max(x)`."""
    dtype = operand_dtype("log_softmax", x)
    x = widen(x, dtype)
    d = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return narrow(d - np.log(np.sum(np.exp(d), axis=axis, keepdims=True)), dtype)


def layer_norm(x: Any, weight: Any = None, bias: Any = None, axis: Any = -1, eps: float = 1e-5) -> Any:
    """`(x - mean) / sqrt(var + eps) * weight + bias`, mean and variance over `axis`.

    Args:
        x: the operand.
        weight, bias: of the sizes of `axis`, in ascending order of axes; or None.
        axis: an axis or a tuple of them.
        eps: added to the variance.
    """
    dtype = _common("layer_norm", x, weight, bias)
    x = widen(x, dtype)
    axes = _axes(axis, np.ndim(x))
    centred = x - np.mean(x, axis=axes, keepdims=True)
    spread = np.mean(centred * centred, axis=axes, keepdims=True)
    return _scale(centred / np.sqrt(spread + x.dtype.type(eps)), weight, bias, axes, dtype)


def rms_norm(x: Any, weight: Any = None, axis: Any = -1, eps: float = 1e-6) -> Any:
    """`x / sqrt(mean(x * x) + eps) * weight`, the mean over `axis`; operands as in `layer_norm`."""
    dtype = _common("rms_norm", x, weight)
    x = widen(x, dtype)
    axes = _axes(axis, np.ndim(x))
    return _scale(x / np.sqrt(np.mean(x * x, axis=axes, keepdims=True) + x.dtype.type(eps)), weight, None, axes, dtype)


def batch_norm(
    x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, axis: int = 1, eps: float = 1e-5
) -> Any:
    """`(x - mean) / sqrt(var + eps) * weight + bias` with given statistics, one value for each index of `axis`."""
    dtype = _common("batch_norm", x, mean, var, weight, bias)
    x = widen(x, dtype)
    axes = _axes(axis, np.ndim(x))
    centred = np.asarray(x - _along(mean, x, axes, dtype))
    normal = centred / np.sqrt(_along(var, x, axes, dtype) + centred.dtype.type(eps))
    return _scale(normal, weight, bias, axes, dtype)


def _common(name: str, *operands: Any) -> DType:
    return operand_dtype(name, *(v for v in operands if v is not None))


def _axes(axis: Any, rank: int) -> tuple[int, ...]:
    given = axis if isinstance(axis, tuple | list) else (axis,)
    axes = tuple(sorted(_axis(a, rank) for a in given))
    if len(set(axes)) != len(axes):
        raise ValueError("duplicate value in 'axis'")
    return axes


def _axis(axis: Any, rank: int) -> int:
    index = operator.index(axis)
    if not -rank <= index < rank:
        raise np.exceptions.AxisError(index, rank)
    return index % rank


def _along(v: Any, x: Any, axes: tuple[int, ...], dtype: DType) -> Any:
    """`v` with its dimensions at `axes` of x and 1 elsewhere."""
    v = np.asarray(widen(v, dtype))
    if v.shape != tuple(x.shape[a] for a in axes):
        raise ValueError(f"expected an operand of shape {tuple(x.shape[a] for a in axes)}, got {v.shape}")
    return v.reshape([n if a in axes else 1 for a, n in enumerate(x.shape)])


def _scale(y: Any, weight: Any, bias: Any, axes: tuple[int, ...], dtype: DType) -> Any:
    y = np.asarray(y)
    # Into y itself: the result keeps the axis order of x whatever weight and bias have.
    if weight is not None:
        np.multiply(y, _along(weight, y, axes, dtype), out=y)
    if bias is not None:
        np.add(y, _along(bias, y, axes, dtype), out=y)
    return narrow(y, dtype)
