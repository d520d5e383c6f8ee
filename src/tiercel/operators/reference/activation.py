"""Activations and the error function in NumPy.

In: arrays or scalars of any real dtype. Out: fresh arrays (NumPy scalars for rank 0) of the same floating dtype; half
types are computed in float32 and rounded once, integers as float64. Each function is the NumPy expression in its
docstring, so the floating-point warnings are those of that expression; erf, erfc and the exact gelu never warn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tiercel.operators.reference.numerics import narrow, operand_dtype, widen

__all__ = ["elu", "erf", "erfc", "gelu", "leaky_relu", "relu", "rsqrt", "sigmoid", "silu", "softplus"]

# Elements handled at once where an expression has many temporaries: they then stay in the second-level cache.
_BLOCK: Final = 1 << 14


def rsqrt(x: Any) -> Any:
    """`1 / sqrt(x)`."""
    dtype = operand_dtype("rsqrt", x)
    return narrow(1 / np.sqrt(widen(x, dtype)), dtype)


def relu(x: Any) -> Any:
    """`where(x <= 0, 0, x)`: NaN stays, -0 becomes +0. Integers and bools keep their dtype."""
    x = np.asarray(x)
    if x.dtype.kind == "c":
        raise TypeError("relu is not defined for complex numbers")
    return np.where(x <= 0, x.dtype.type(0), x)[()]


def sigmoid(x: Any) -> Any:
    """`where(x >= 0, 1, z) / (1 + z)` with `z = exp(-|x|)`, which neither overflows nor cancels."""
    dtype = operand_dtype("sigmoid", x)
    return narrow(_sigmoid(widen(x, dtype)), dtype)


def _sigmoid(x: Any) -> Any:
    z = np.exp(-np.abs(x))
    return np.where(x >= 0, x.dtype.type(1), z) / (1 + z)


def silu(x: Any) -> Any:
    """`x * sigmoid(x)`."""
    dtype = operand_dtype("silu", x)
    x = widen(x, dtype)
    return narrow(x * _sigmoid(x), dtype)


def softplus(x: Any) -> Any:
    """`maximum(x, 0) + log1p(exp(-|x|))`."""
    dtype = operand_dtype("softplus", x)
    x = widen(x, dtype)
    return narrow(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), dtype)


def leaky_relu(x: Any, negative_slope: float = 0.01) -> Any:
    """`where(x > 0, x, negative_slope * x)`."""
    dtype = operand_dtype("leaky_relu", x)
    x = widen(x, dtype)
    return narrow(np.where(x > 0, x, negative_slope * x), dtype)


def elu(x: Any, alpha: float = 1.0) -> Any:
    """`where(x > 0, x, alpha * expm1(minimum(x, 0)))`."""
    dtype = operand_dtype("elu", x)
    x = widen(x, dtype)
    return narrow(np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))), dtype)


def erf(x: Any) -> Any:
    """The error function, computed in float64 and rounded once."""
    return _through_float64("erf", x, _erf_short, _erf)


def erfc(x: Any) -> Any:
    """`1 - erf(x)`, accurate where erf(x) is near 1, computed in float64 and rounded once."""
    return _through_float64("erfc", x, _erfc_short, _erfc)


def gelu(x: Any, approximate: str = "none") -> Any:
    """`0.5 * x * erfc(-x / sqrt(2))`; "tanh": `x * sigmoid(sqrt(8 / pi) * (x + 0.044715 * x**3))`.

    The second is `0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))` without its cancellation for negative x.

    Raises:
        ValueError: `approximate` is neither "none" nor "tanh".
    """
    if approximate == "none":
        root = -math.sqrt(0.5)
        return _through_float64(
            "gelu", x, lambda v: 0.5 * v * _erfc_short(v * root), lambda v: 0.5 * v * _erfc(v * root)
        )
    if approximate != "tanh":
        raise ValueError(f'gelu: approximate must be "none" or "tanh", got {approximate!r}')
    dtype = operand_dtype("gelu", x)
    x = widen(x, dtype)
    return narrow(x * _sigmoid(float(np.sqrt(8 / np.pi)) * (x + 0.044715 * x * x * x)), dtype)


def _through_float64(name: str, x: Any, short: Callable[[Any], Any], long: Callable[[Any], Any]) -> Any:
    """Apply a function on float64 blocks: `short` where the result is rounded to float32 or less, `long` to float64."""
    dtype = operand_dtype(name, x)
    # A copy in x's axis order whose memory is one block, so that its elements can be taken in memory order.
    out = np.asarray(np.positive(widen(x, dtype)))
    flat = out.ravel(order="K")
    assert np.may_share_memory(flat, out) or not out.size
    function = long if out.dtype == np.float64 else short
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK]
            block[...] = function(block.astype(np.float64))
        return narrow(out, dtype)


# erfc(a) * exp(a * a) for 0 <= a <= 11 as a polynomial in u = 26/11 / (1 + a/2) - 15/11, which runs from 1 to -1.
# Least squares on 400 Chebyshev nodes, weighted for relative error, fitted to scipy.special.erfcx; largest relative
# error 7.8e-11 (20001 points), 1/700 of half a unit of float32. Coefficients from the lowest power on.
_SCALED_ERFC: Final = (
    0.32712536236557155,
    0.42915618736807326,
    0.19931336506796918,
    0.04820991215873014,
    -0.0009357740774732963,
    -0.0031639389854674627,
    6.970419374573312e-05,
    0.00028087025789667267,
    -4.073645130168661e-05,
    -2.4596729014086108e-05,
    9.512862217081925e-06,
    1.2685144312518497e-06,
    -1.1366211327692313e-06,
)


def _erfc_positive(a: Any) -> Any:
    """erfc(a) for a >= 0 in float64: relative error 1e-10 up to 11, beyond which float32 has nothing left."""
    # exp(-28 * 28) is 0, so that infinity gives 0 and not the number at the end of the polynomial's range.
    a = np.minimum(a, 28.0)
    u = (26 / 11) / (1 + 0.5 * a) - 15 / 11
    result = np.full_like(u, _SCALED_ERFC[-1])
    for c in _SCALED_ERFC[-2::-1]:
        result *= u
        result += c
    result *= np.exp(-a * a)
    return result


def _erfc_short(x: Any) -> Any:
    tail = _erfc_positive(np.abs(x))
    return np.where(x < 0, 2 - tail, tail)


def _erf_short(x: Any) -> Any:
    # Below 0.5 the Taylor series: 1 - erfc would lose the digits of a small result.
    z = x * x
    series = x * _horner(_TAYLOR, np.minimum(z, 0.25))
    tail = np.copysign(1 - _erfc_positive(np.abs(x)), x)
    return np.where(z < 0.25, series, tail)


# 2 / sqrt(pi) * (-1)**n / (n! * (2n + 1)): the first omitted term is 3e-11 of the result at 0.5.
_TAYLOR: Final = tuple(2 / math.sqrt(math.pi) * (-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(8))


# Rational approximations of erf and erfc on four ranges of |x|, error below 1 ULP of float64: Sun Microsystems' fdlibm,
# s_erf.c (1993), whose comments derive them. Coefficients from the lowest power on.
_SMALL = (
    (
        1.28379167095512558561e-01,
        -3.25042107247001499370e-01,
        -2.84817495755985104766e-02,
        -5.77027029648944159157e-03,
        -2.37630166566501626084e-05,
    ),
    (
        1.0,
        3.97917223959155352819e-01,
        6.50222499887672944485e-02,
        5.08130628187576562776e-03,
        1.32494738004321644526e-04,
        -3.96022827877536812320e-06,
    ),
)
_MIDDLE = (
    (
        -2.36211856075265944077e-03,
        4.14856118683748331666e-01,
        -3.72207876035701323847e-01,
        3.18346619901161753674e-01,
        -1.10894694282396677476e-01,
        3.54783043256182359371e-02,
        -2.16637559486879084300e-03,
    ),
    (
        1.0,
        1.06420880400844228286e-01,
        5.40397917702171048937e-01,
        7.18286544141962662868e-02,
        1.26171219808761642112e-01,
        1.36370839120290507362e-02,
        1.19844998467991074170e-02,
    ),
)
_LARGE = (
    (
        -9.86494403484714822705e-03,
        -6.93858572707181764372e-01,
        -1.05586262253232909814e01,
        -6.23753324503260060396e01,
        -1.62396669462573470355e02,
        -1.84605092906711035994e02,
        -8.12874355063065934246e01,
        -9.81432934416914548592e00,
    ),
    (
        1.0,
        1.96512716674392571292e01,
        1.37657754143519042600e02,
        4.34565877475229228821e02,
        6.45387271733267880336e02,
        4.29008140027567833386e02,
        1.08635005541779435134e02,
        6.57024977031928170135e00,
        -6.04244152148580987438e-02,
    ),
)
_HUGE = (
    (
        -9.86494292470009928597e-03,
        -7.99283237680523006574e-01,
        -1.77579549177547519889e01,
        -1.60636384855821916062e02,
        -6.37566443368389627722e02,
        -1.02509513161107724954e03,
        -4.83519191608651397019e02,
    ),
    (
        1.0,
        3.03380607434824582924e01,
        3.25792512996573918826e02,
        1.53672958608443695994e03,
        3.19985821950859553908e03,
        2.55305040643316442583e03,
        4.74528541206955367215e02,
        -2.24409524465858183362e01,
    ),
)
# erf(1) rounded to float32, about which the middle range is expanded.
_ERF_1 = 8.45062911510467529297e-01


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], z: Any) -> Any:
    above, below = (_horner(c, z) for c in coefficients)
    return above / below


def _horner(coefficients: tuple[float, ...], z: Any) -> Any:
    result = np.full_like(z, coefficients[-1])
    for c in coefficients[-2::-1]:
        result *= z
        result += c
    return result


def _tail(a: Any) -> Any:
    """erfc(a) for 1.25 <= a <= 28: `exp(-a*a - 0.5625 + R(1/a^2)) / a`, the square split so that it is exact."""
    s = 1 / (a * a)
    r = np.where(a < 1 / 0.35, _ratio(_LARGE, s), _ratio(_HUGE, s))
    # The upper half of a's bits: its square is exact.
    z = (a.view(np.int64) & np.int64(-(1 << 32))).view(np.float64)
    return np.exp(-z * z - 0.5625) * np.exp((z - a) * (z + a) + r) / a


def _parts(x: Any) -> tuple[Any, Any, Any, Any, Any]:
    a = np.abs(x)
    small, middle, large = a < 0.84375, (a >= 0.84375) & (a < 1.25), a >= 1.25
    return a, small, middle, large, np.isnan(x)


def _erf(x: Any) -> Any:
    a, small, middle, large, nan = _parts(x)
    out = np.where(nan, x, 0.0)
    v = x[small]
    out[small] = v + v * _ratio(_SMALL, v * v)
    sign = np.sign(x)
    out[middle] = sign[middle] * (_ERF_1 + _ratio(_MIDDLE, a[middle] - 1))
    # Beyond 6, 1 - erf is below half a unit of 1.
    out[large] = sign[large] * (1 - _tail(np.minimum(a[large], 6.0)))
    return out


def _erfc(x: Any) -> Any:
    a, small, middle, large, nan = _parts(x)
    out = np.where(nan, x, 0.0)
    v = x[small]
    y = v * _ratio(_SMALL, v * v)
    out[small] = np.where(v < 0.25, 1 - (v + y), 0.5 - (v - 0.5 + y))
    m = _ratio(_MIDDLE, a[middle] - 1)
    out[middle] = np.where(x[middle] > 0, 1 - _ERF_1 - m, 1 + (_ERF_1 + m))
    tail = _tail(np.minimum(a[large], 28.0))
    tail[a[large] >= 28.0] = 0.0
    out[large] = np.where(x[large] > 0, tail, 2 - tail)
    return out
