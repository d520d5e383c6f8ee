"""Exponentials and hyperbolic functions.

All rest on x = n ln 2 + r with |r| <= ln(2)/2 and a polynomial in r. Coefficients without another source are near
minimax, fitted by `benchmarks/minimax.py`. What overflows does so in a last multiplication, so the overflow flag comes
up where NumPy raises it. NaN and infinity are their own results; a zero goes through the arithmetic for them, so that
they raise nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tiercel.codegen.cpu.mathematics.calculator import Calculator
from tiercel.codegen.cpu.text import Value

if TYPE_CHECKING:
    from tiercel.codegen.cpu.expressions import Expressions

# ln 2 in two parts: Cephes expf; fdlibm e_exp.c
LN2_32 = (0.693359375, -2.12194440054690583e-4)
LN2_64 = (6.93147180369123816490e-01, 1.90821492927058770002e-10)

# exp(r) = 1 + r + r**2 * p(r) on [-ln2/2, ln2/2], relative errors 2**-28.2 and 2**-58
_EXP32 = (0.0013935812748968601, 0.008368969894945621, 0.04166645556688309, 0.166665181517601, 0.5)
_EXP64 = (
    2.511339231260934e-08, 2.763161400017318e-07, 2.755723084132714e-06, 2.480148896367523e-05, 0.00019841269900472004,
    0.0013888888948022954, 0.008333333333315434, 0.041666666666511205, 0.16666666666666685, 0.5000000000000013,
)  # fmt: skip

# exp(r) - 1 = r + r**2 * p(r) on [-1/2, 1/2], relative errors 2**-27.7 and 2**-55.3
_EXPM1_32 = (
    0.00020126595336478204, 0.0014006892452016473, 0.008332672528922558, 0.04166502133011818, 0.16666670143604279,
    0.5000000596046448,
)  # fmt: skip
_EXPM1_64 = (
    2.0851856793261614e-09, 2.5170402409267565e-08, 2.755783919997758e-07, 2.755699574589604e-06, 2.480158571411203e-05,
    0.00019841270242306624, 0.0013888888890777379, 0.008333333333116663, 0.04166666666665787, 0.16666666666667046,
    0.5000000000000001,
)  # fmt: skip

# 2**r = 1 + r * p(r) on [-1/2, 1/2], errors 2**-28.3 and 2**-57.8
_EXP2_32 = (
    0.00015456393884960562, 0.0013391313841566443, 0.009618077427148819, 0.055503588169813156, 0.24022650718688965,
    0.6931471824645996,
)  # fmt: skip
EXP2_64 = (
    4.4633658847683307e-10, 7.073681368392179e-09, 1.0178000541204975e-07, 1.3215435988747548e-06,
    1.5252734000270248e-05, 0.00015403530455363382, 0.0013333558146201817, 0.009618129107595921, 0.055504108664822804,
    0.24022650695910125, 0.6931471805599453,
)  # fmt: skip


def _reduce(c: Calculator, x: Value, n: Value) -> Value:
    """x - n ln 2."""
    high, low = LN2_32 if c.single else LN2_64
    return c.fma(n, -low, c.fma(n, -high, x))


def _exp_parts(c: Calculator, x: Value, offset: int) -> tuple[Value, Value, Value]:
    """(exp(r), n, an integer with n + offset in its low bits) with x = n * ln 2 + r."""
    n, bits = c.nearest(x, math.log2(math.e), offset)
    r = _reduce(c, x, n)
    p = c.horner(r, _EXP32 if c.single else _EXP64)
    return c.add(c.fma(c.mul(r, r), p, r), 1.0), n, bits


def exp(expressions: Expressions, x: Value) -> Value:
    """e**x. At most 1.1 ULP; denormal results rounded once, overflow to infinity."""
    c = Calculator(expressions, x)
    ordinary = c.below_infinity(x)
    y, n, bits = _exp_parts(c, c.clamp_ordinary(x, ordinary, c.of(-104.0, -746.0), c.of(89.0, 710.0)), 2 * c.bias)
    return c.choose(ordinary, c.scale_by(y, n) if c.has_scale_instruction else c.scale(y, bits), x)


def exp_of_negative(c: Calculator, x: Value) -> Value:
    """e**x for x <= 0: one factor less than `exp`, and no overflow."""
    low = c.number(c.of(-104.0, -746.0))
    # where x is NaN the result is x
    y, n, bits = _exp_parts(c, c.expressions.extreme_of_numbers("max", low, x), c.bias + 64)
    if c.has_scale_instruction:
        return c.scale_by(y, n)
    return c.mul(c.mul(y, c.power_of_two(bits)), 2.0**-64)


def exp_nonpositive(expressions: Expressions, x: Value) -> Value:
    """e**x for x <= 0. At most 1.1 ULP; denormal results rounded once."""
    return exp_of_negative(Calculator(expressions, x), x)


def exp2(expressions: Expressions, x: Value) -> Value:
    """2**x. At most 1 ULP; whole numbers exactly."""
    c = Calculator(expressions, x)
    ordinary = c.below_infinity(x)
    inside = c.clamp_ordinary(x, ordinary, c.of(-151.0, -1076.0), c.of(129.0, 1025.0))
    n, bits = c.nearest(inside, 1.0, 2 * c.bias)
    r = c.sub(inside, n)
    y = c.fma(r, c.horner(r, _EXP2_32 if c.single else EXP2_64), 1.0)
    return c.choose(ordinary, c.scale_by(y, n) if c.has_scale_instruction else c.scale(y, bits), x)


def _expm1_parts(c: Calculator, x: Value, near: Value, less: int) -> tuple[Value, Value]:
    """(exp(r) - 1, 2**(n - less)) with x = n * ln 2 + r; where `near`, r is x."""
    n, bits = c.nearest(x, math.log2(math.e), c.bias - less)
    r = _reduce(c, x, c.choose(near, 0.0, n))
    p = c.horner(r, _EXPM1_32 if c.single else _EXPM1_64)
    return c.fma(c.mul(r, r), p, r), c.power_of_two(bits)


def _is_near(c: Calculator, x: Value) -> Value:
    """|x| < 1/2: there exp(x) - 1 is one polynomial."""
    half = (c.bias - 1) << c.mantissa_bits
    return c.test_whole("ult", c.size_bits(x), half)


def expm1(expressions: Expressions, x: Value) -> Value:
    """e**x - 1. At most 1.5 ULP; -0.0 and denormals are their own results."""
    c = Calculator(expressions, x)
    near = _is_near(c, x)
    # half of 2**n, since that itself may be beyond the range
    ordinary = c.below_infinity(x)
    m, half = _expm1_parts(c, c.clamp_ordinary(x, ordinary, c.of(-20.0, -40.0), c.of(89.0, 710.0)), near, 1)
    far = c.mul(c.fma(half, m, c.sub(half, 0.5)), 2.0)
    return c.choose(ordinary, c.sign_of(c.choose(near, m, far), x), x)


def sigmoid(expressions: Expressions, x: Value) -> Value:
    """1 / (1 + e**-x). At most 3 ULP, for denormal results too. Computed from e**-|x|, which never overflows."""
    c = Calculator(expressions, x)
    z = exp_of_negative(c, c.neg(c.abs(x)))
    negative = c.test_whole("slt", c.bits(x), 0)
    return c.div(c.choose(negative, z, 1.0), c.add(z, 1.0))


def tanh(expressions: Expressions, x: Value) -> Value:
    """Hyperbolic tangent. At most 2 ULP. It is h / (h + 1) with h = (e**(2 |x|) - 1) / 2."""
    c = Calculator(expressions, x)
    double = c.mul(c.clamp(c.abs(x), high=c.of(10.0, 20.0)), 2.0)
    near = _is_near(c, double)
    m, half = _expm1_parts(c, double, near, 1)
    h = c.choose(near, c.mul(m, 0.5), c.fma(half, m, c.sub(half, 0.5)))
    y = c.div(h, c.add(h, 1.0))
    # h - h * y is the same, and rounds less where y is small
    small = c.test_whole("slt", c.bits(h), (c.bias - 1) << c.mantissa_bits)
    return c.sign_of(c.choose(small, c.fma(c.neg(h), y, h), y), x)


# |x| from which sinh and cosh overflow; the next representable power e**x / 4 still fits
_HYPERBOLIC_LIMIT = (89.5, 710.5)


def sinh(expressions: Expressions, x: Value) -> Value:
    """Hyperbolic sine. At most 3 ULP.

    With m = expm1(|x|) it is (m + m / (m + 1)) / 2; far from zero m / 4 stands for m, so that nothing overflows early.
    """
    c = Calculator(expressions, x)
    near, size = _is_near(c, x), c.abs(x)
    ordinary = c.below_infinity(size)
    m, quarter = _expm1_parts(c, c.clamp_ordinary(size, ordinary, high=c.of(*_HYPERBOLIC_LIMIT)), near, 2)
    m = c.choose(near, m, c.fma(quarter, m, c.sub(quarter, 0.25)))
    one = c.choose(near, 1.0, 0.25)
    both = c.add(m, c.div(c.mul(m, one), c.add(m, one)))
    return c.choose(ordinary, c.sign_of(c.mul(both, c.choose(near, 0.5, 2.0)), x), x)


def cosh(expressions: Expressions, x: Value) -> Value:
    """Hyperbolic cosine. At most 2 ULP."""
    c = Calculator(expressions, x)
    size = c.abs(x)
    ordinary = c.below_infinity(size)
    y, _, bits = _exp_parts(c, c.clamp_ordinary(size, ordinary, high=c.of(*_HYPERBOLIC_LIMIT)), c.bias - 2)
    quarter = c.mul(y, c.power_of_two(bits))
    return c.choose(ordinary, c.mul(c.add(quarter, c.div(0.0625, quarter)), 2.0), size)
