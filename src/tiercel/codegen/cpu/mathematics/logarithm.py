"""Logarithms and inverse hyperbolic functions.

Positive normal arguments are computed here: x = 2**n * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)). All others (zero,
negative, denormal, infinite, NaN) are rare, see `guard`. Coefficients without another source are near minimax, fitted
by `benchmarks/minimax.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from tiercel.codegen.cpu.mathematics.calculator import Calculator
from tiercel.codegen.cpu.mathematics.exponential import LN2_32, LN2_64
from tiercel.codegen.cpu.mathematics.guard import guarded
from tiercel.codegen.cpu.text import Value

if TYPE_CHECKING:
    from tiercel.codegen.cpu.expressions import Expressions

# log(1 + f) = f - f**2/2 + f**3 * p(f) on [sqrt(1/2) - 1, sqrt(2) - 1]: Cephes logf
_LOG32 = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip

# log(1 + f) = 2 s + s**3 * p(s**2) with s = f / (2 + f), relative error 2**-59.5 (the form of fdlibm e_log.c)
_LOG64 = (
    0.14797712533512822, 0.15313880813439049, 0.1818357070518864, 0.22222198455347686, 0.2857142874349038,
    0.39999999999409885, 0.6666666666666735,
)  # fmt: skip

_ROOT_HALF_32, _ROOT_HALF_64 = 0x3F3504F3, 0x3FE6A09E667F3BCD  # bits of sqrt(1/2)

# for each base: 1 / ln(base) and log_base(2), each as a leading part and the rest; the leading part of log_base(2) has
# zeros at its end, so that multiples of it are exact
_Parts = tuple[tuple[float, float], tuple[float, float]]
_BASES: dict[str, tuple[_Parts, _Parts]] = {
    "log": (((1.0, 0.0), LN2_32), ((1.0, 0.0), LN2_64)),
    "log2": (
        ((1.4426950216293335, 1.925963033500011e-08), (1.0, 0.0)),
        ((1.4426950408889634, 2.0355273740931033e-17), (1.0, 0.0)),
    ),
    "log10": (
        ((0.4342944920063019, -1.0103049952192578e-08), (0.30102920532226562, 7.9034151667407e-07)),
        ((0.4342944819032518, 1.098319650216765e-17), (0.30102999566361177, 3.694239077158931e-13)),
    ),
}


def not_positive_normal(c: Calculator, x: Value) -> Value:
    """Zero, negative, denormal, infinite or NaN."""
    first = 1 << c.mantissa_bits
    return c.test_whole("uge", c.integer_op("sub", c.bits(x), first), c.infinity_bits - first)


def split(c: Calculator, x: Value) -> tuple[Value, Value]:
    """(f, n) with x = 2**n * (1 + f) for positive normal x; n is an integer. Never traps."""
    bits = c.bits(x)
    shifted = c.integer_op("sub", bits, _ROOT_HALF_32 if c.single else _ROOT_HALF_64)
    if c.single:
        n = c.integer_op("shr", shifted, 23)
    else:  # AVX2 has no arithmetic shift of 64 bits
        n = c.integer_op("sub", c.shift_right(c.integer_op("add", shifted, 1 << 62), 52), 1 << 10)
    return c.sub(c.from_bits(c.integer_op("sub", bits, c.integer_op("shl", n, c.mantissa_bits))), 1.0), n


def log_parts(c: Calculator, f: Value) -> Value:
    """log(1 + f) - f, for 1 + f in [sqrt(1/2), sqrt(2))."""
    square = c.mul(f, f)
    if c.single:
        return c.fma(square, -0.5, c.mul(c.mul(square, f), c.horner(f, _LOG32)))
    # log(1 + f) = f - (f**2/2 - s * (f**2/2 + z * p(z))): fdlibm
    s = c.div(f, c.add(f, 2.0))
    z = c.mul(s, s)
    half = c.mul(square, 0.5)
    return c.fma(s, c.fma(z, c.horner(z, _LOG64), half), c.neg(half))


def combine(c: Calculator, base: str, f: Value, n: Value) -> Value:
    """log_base(2**n * (1 + f)) with n a float."""
    (high, low), (step, rest) = _BASES[base][0 if c.single else 1]
    small = log_parts(c, f)
    if low:
        # the rounding of f * high happens once, in the last addition
        small = c.fma(small, high, c.mul(f, low))
    if rest:
        small = c.fma(n, rest, small)
    if base == "log2":
        return c.add(n, c.fma(f, high, small))
    main = c.fma(f, high, small) if low else c.add(f, small)
    return c.fma(n, step, main)


def _log(base: str) -> Callable[[Expressions, Value], Value]:
    def build(expressions: Expressions, x: Value) -> Value:
        c = Calculator(expressions, x)
        f, n = split(c, x)
        return guarded(c, base, not_positive_normal(c, x), combine(c, base, f, c.to_float(n)), x)

    build.__doc__ = f"{base}(x). At most 1.1 ULP; -inf at zero, NaN below, as NumPy flags."
    return build


log, log2, log10 = _log("log"), _log("log2"), _log("log10")


def log1p(expressions: Expressions, x: Value) -> Value:
    """log(1 + x). At most 1.5 ULP; -0.0 and denormals are their own results.

    1 + x only gives the exponent n; f = x * 2**-n + (2**-n - 1) keeps what rounding 1 + x would lose (N. Juffa, public
    post on log1pf, 2014).
    """
    c = Calculator(expressions, x)
    u = c.add(x, 1.0)
    special = not_positive_normal(c, u)
    finite = c.choose(special, 0.5, x)  # not 1: LLVM would multiply by x and choose then, and that may overflow
    _, n = split(c, c.choose(special, 2.0, u))
    quadruple = c.power_of_two(c.integer_op("sub", c.bias + 2, n))  # 2**-n itself may be denormal
    f = c.fma(c.mul(finite, quadruple), 0.25, c.fma(quadruple, 0.25, -1.0))
    y = combine(c, "log", f, c.to_float(n))
    return guarded(c, "log1p", special, c.sign_of(y, x), x)


def arcsinh(expressions: Expressions, x: Value) -> Value:
    """Inverse hyperbolic sine. At most 2 ULP."""
    c = Calculator(expressions, x)
    size, big = c.abs(x), _is_big(c, c.size_bits(x))
    a = c.choose(big, 1.0, size)
    square = c.mul(a, a)
    u = c.add(a, c.div(square, c.add(c.sqrt(c.add(square, 1.0)), 1.0)))
    return c.sign_of(_log1p_of_big(c, big, size, u), x)


def arccosh(expressions: Expressions, x: Value) -> Value:
    """Inverse hyperbolic cosine. At most 3 ULP; NaN and the invalid flag below 1."""
    c = Calculator(expressions, x)
    big = _is_big(c, c.bits(x))
    t = c.clamp(c.sub(c.choose(big, 1.0, x), 1.0), low=-1.0)  # nothing overflows far outside
    below = c.test_whole("slt", c.bits(t), 0)
    u = c.add(t, c.sqrt(c.choose(below, t, c.mul(t, c.add(t, 2.0)))))
    return _log1p_of_big(c, big, x, u)


def arctanh(expressions: Expressions, x: Value) -> Value:
    """Inverse hyperbolic tangent. At most 2.5 ULP; infinite at 1, NaN beyond, as NumPy flags."""
    c = Calculator(expressions, x)
    size = c.clamp(c.abs(x), high=2.0)  # nothing overflows far outside
    y = log1p(expressions, c.div(c.add(size, size), c.sub(1.0, size)))
    return c.sign_of(c.mul(y, 0.5), x)


def _is_big(c: Calculator, bits: Value) -> Value:
    """From 2**26 (float32), 2**54 (float64) on sqrt(x**2 + 1) is x, and 2x is 2x + 1; infinity and NaN too."""
    return c.test_whole("sge", bits, (c.bias + (26 if c.single else 54)) << c.mantissa_bits)


def _log1p_of_big(c: Calculator, big: Value, x: Value, u: Value) -> Value:
    """log(1 + u), but log(2 x) where x is big."""
    y = log1p(c.expressions, c.choose(big, x, u))
    return c.add(y, c.choose(big, math.log(2.0), 0.0))


# -- rare arguments, float64, one lane ----------------------------------------------------------------------------


def _rare_log(base: str) -> Callable[[Calculator, Value], Value]:
    def build(c: Calculator, x: Value) -> Value:
        zero, denormal = c.test("eq", x, 0.0), c.test("lt", c.abs(x), 2.0**-1022)
        f, n = split(c, c.mul(x, c.choose(denormal, 2.0**54, 1.0)))
        y = combine(c, base, f, c.sub(c.to_float(n), c.choose(denormal, 54.0, 0.0)))
        ordinary = c.both(c.test("gt", x, 0.0), c.test("lt", x, math.inf))
        y = c.choose(ordinary, y, c.sqrt(x))  # NaN with its flag below zero, NaN of NaN, infinity of infinity
        return c.choose(zero, c.div(-1.0, c.choose(zero, c.abs(x), 1.0)), y)

    return build


rare_log, rare_log2, rare_log10 = _rare_log("log"), _rare_log("log2"), _rare_log("log10")


def rare_log1p(c: Calculator, x: Value) -> Value:
    """-infinity at -1, NaN below; infinity and NaN are their own results."""
    u = c.add(x, 1.0)
    zero = c.test("eq", u, 0.0)
    return c.choose(zero, c.div(-1.0, c.choose(zero, c.abs(u), 1.0)), c.sqrt(u))
