"""Fused multiply-add: `x * y + z` rounded once, on machines and NumPy versions without one.

In: real operands that broadcast. Out: their common dtype. float32 and the half types: the product is exact in float64,
the sum is rounded to odd there and then to the result, which gives the correctly rounded sum (S. Boldo, G. Melquiond,
"Emulation of FMA and Correctly Rounded Sums: Proved Algorithms Using Rounding to Odd", IEEE Trans. Computers 57(4),
2008). float64: the same with the product as an unevaluated pair; the elements near overflow or underflow, where the
pair is not exact, are computed with rationals. Integers wrap, as `x * y + z` does. The function never warns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tiercel.dtypes import as_dtype
from tiercel.operators.reference.numerics import empty_like_result

__all__ = ["fma"]

# Veltkamp's constant for 53 bits.
_SPLIT = float(2**27 + 1)


def fma(x: Any, y: Any, z: Any) -> Any:
    """`x * y + z` with one rounding.

    Raises:
        TypeError: complex operands, or operands without a common dtype.
    """
    operands = [v if hasattr(v, "dtype") or isinstance(v, int | float | complex) else np.asarray(v) for v in (x, y, z)]
    dtype = as_dtype(np.result_type(*operands))
    if dtype.is_complex:
        raise TypeError("fma is not defined for complex numbers")
    if not dtype.is_float:
        a, b, c = (np.asarray(v, dtype=dtype.numpy) for v in operands)
        return a * b + c
    wide = [_as_float64(v) for v in operands]
    out = empty_like_result(dtype.numpy, *operands)
    with np.errstate(all="ignore"):
        out[...] = _odd_sum(wide[0] * wide[1], wide[2]) if dtype.itemsize < 8 else _fma64(*wide)
    return out[()] if not out.ndim else out


def _as_float64(v: Any) -> Any:
    v = np.asarray(v)
    return v if v.dtype == np.float64 else np.positive(v.view(np.uint8) if v.dtype.kind == "b" else v, dtype=np.float64)


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _to_odd(total: Any, error: Any) -> Any:
    """`total + error` rounded to odd: an inexact sum whose last bit is even moves one step towards the error."""
    bits = np.asarray(total).view(np.int64)
    inexact = np.isfinite(error) & (error != 0) & (bits & 1 == 0)
    # Away from zero if the error has the sum's sign: the bit pattern of a magnitude grows by 1.
    away = (error > 0) == (np.asarray(total) > 0)
    return np.where(inexact, np.where(away, bits + 1, bits - 1), bits).view(np.float64)


def _odd_sum(a: Any, b: Any) -> Any:
    total, error = _two_sum(a, b)
    return _to_odd(total, error)


def _fma64(x: Any, y: Any, z: Any) -> Any:
    high = x * y
    low = _product_error(x, y, high)
    total_high, total_low = _two_sum(z, low)
    upper, lower = _two_sum(high, total_high)
    result = np.asarray(upper + _to_odd(total_low + lower, _two_sum(total_low, lower)[1]))
    plain = np.asarray(high + z)
    # The pair (high, low) is exact where neither the splitting overflows nor the low part underflows.
    magnitude = np.abs(high)
    safe = (magnitude > 2.0**-960) & (magnitude < 2.0**990) & (np.abs(x) < 2.0**990) & (np.abs(y) < 2.0**990)
    safe = safe & (np.abs(z) < 2.0**1000)
    special = ~(np.isfinite(x) & np.isfinite(y) & np.isfinite(z))
    result = np.where(safe, result, plain)
    rest: Any = np.argwhere(~safe & ~special & (high != 0)) if result.ndim else []
    shape = result.shape
    spread = [np.broadcast_to(v, shape) for v in (x, y, z)]
    # Zero products of nonzero factors have underflowed and still decide a rounding.
    for index in map(tuple, rest):
        result[index] = _exact(*(float(v[index]) for v in spread))
    under = np.argwhere((np.broadcast_to(high, shape) == 0) & (spread[0] != 0) & (spread[1] != 0))
    for index in map(tuple, under):
        result[index] = _exact(*(float(v[index]) for v in spread))
    if not shape and not np.all(safe | special) and x != 0 and y != 0:
        return np.float64(_exact(float(x), float(y), float(z)))
    return result[()]


def _product_error(x: Any, y: Any, product: Any) -> Any:
    x_high, x_low = _halves(x)
    y_high, y_low = _halves(y)
    return x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)


def _halves(v: Any) -> tuple[Any, Any]:
    scaled = _SPLIT * v
    high = scaled - (scaled - v)
    return high, v - high


def _exact(x: float, y: float, z: float) -> float:
    from fractions import Fraction  # with decimal half a megabyte, for this alone

    total = Fraction(x) * Fraction(y) + Fraction(z)
    if total == 0:
        return x * y + z
    try:
        return float(total)
    except OverflowError:
        return np.inf if total > 0 else -np.inf
