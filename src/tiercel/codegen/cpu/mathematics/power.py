"""Powers, cube root, hypotenuse.

x**y = 2**(y log2 |x|), with the sign of x where y is an odd number. float32 computes in float64; float64 carries the
logarithm and the product as unevaluated sums of two numbers. Coefficients are near minimax, fitted by
`benchmarks/minimax.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tiercel.codegen.cpu.mathematics.calculator import Calculator
from tiercel.codegen.cpu.mathematics.exponential import EXP2_64
from tiercel.codegen.cpu.mathematics.guard import guarded
from tiercel.codegen.cpu.mathematics.logarithm import split
from tiercel.codegen.cpu.text import Value

if TYPE_CHECKING:
    from tiercel.codegen.cpu.expressions import Expressions

# float32, in float64: log2(1 + f) = f * p(f) on [sqrt(1/2) - 1, sqrt(2) - 1], relative error 2**-35.8; 2**r = 1 + r *
# q(r) on [-1/2, 1/2], error 2**-29
_LOG2 = (
    0.07716451157039401, -0.1426892202098187, 0.14477385629868483, -0.1431919260489778, 0.15877041969272607,
    -0.1802974896512814, 0.20617517784657208, -0.24045328918713235, 0.28853730044312614, -0.3606736727230392,
    0.4808983613222871, -0.7213475208790798, 1.442695040868709,
)  # fmt: skip
_EXP2 = (
    0.00015467979555222163, 0.0013400425073434351, 0.00961803455018307, 0.05550327229822998, 0.24022651084149668,
    0.6931472067106199,
)  # fmt: skip

# float64: arctanh(s) = s + s**3 / 3 + s**5 * p(s**2) for s = f / (2 + f), relative error 2**-66
_ATANH = (
    0.06598890880773828, 0.0662833234044323, 0.07693381873366391, 0.0909089211571955, 0.11111111260715578,
    0.14285714285045684, 0.20000000000001136,
)  # fmt: skip
_THIRD = (0.3333333333333333, 1.850371707708594e-17)
_TWO_OVER_LN2 = (2.8853900817779268, 4.0710547481862066e-17)


def _is_whole(c: Calculator, y: Value) -> Value:
    return c.test("eq", c.round(y), y)


def is_odd_power(c: Calculator, x: Value, y: Value) -> Value:
    """What the product of y and log2 |x| does not cover: x denormal, infinite or NaN, or zero with y <= 0; y beyond
    2**64 or NaN; x negative with a y that is no whole number.
    """
    first = 1 << c.mantissa_bits
    size = c.size_bits(x)
    vanishes = c.both(c.test_whole("eq", size, 0), c.test_whole("sgt", c.bits(y), 0))
    normal = c.test_whole("ult", c.integer_op("sub", size, first), c.infinity_bits - first)
    large = c.test_whole("sge", c.size_bits(y), (c.bias + 64) << c.mantissa_bits)
    negative = c.test_whole("slt", c.bits(x), 0)
    fits = c.either(normal, vanishes)
    wrong = c.either(large, c.both(negative, c.expressions.unary("not", _is_whole(c, y))))
    return c.either(wrong, c.expressions.unary("not", fits))


def _signed(c: Calculator, size: Value, x: Value, y: Value) -> Value:
    """`size` with the sign of x where y, a whole number, is odd."""
    odd = c.expressions.unary("not", _is_whole(c, c.mul(y, 0.5)))
    return c.choose(odd, c.sign_of(size, x), size)


def _log2_twofold(c: Calculator, f: Value, n: Value) -> tuple[Value, Value]:
    """log2(2**n * (1 + f)) as a sum of two numbers, relative error about 2**-64."""
    high = c.add(f, 2.0)
    low = c.sub(f, c.sub(high, 2.0))
    inverse = c.div(1.0, high)
    s = c.mul(f, inverse)
    s_low = c.mul(c.fma(c.neg(s), low, c.fma(c.neg(s), high, f)), inverse)
    z = c.mul(s, s)
    z_low = c.fma(c.add(s, s), s_low, c.fma(s, s, c.neg(z)))
    third, third_low = _THIRD
    t = c.mul(z, third)
    t_low = c.fma(z, third_low, c.fma(z_low, third, c.fma(z, third, c.neg(t))))
    t_low = c.fma(c.mul(z, z), c.horner(z, _ATANH), t_low)
    p = c.mul(s, t)
    p_low = c.fma(s, t_low, c.fma(s_low, t, c.fma(s, t, c.neg(p))))
    a = c.add(s, p)
    a_low = c.add(c.add(c.sub(p, c.sub(a, s)), s_low), p_low)
    factor, factor_low = _TWO_OVER_LN2
    r = c.mul(a, factor)
    r_low = c.fma(a, factor_low, c.fma(a_low, factor, c.fma(a, factor, c.neg(r))))
    whole = c.add(n, r)
    return whole, c.add(c.sub(r, c.sub(whole, n)), r_low)


def _exp2_twofold(c: Calculator, high: Value, low: Value) -> Value:
    """2**(high + low)."""
    beyond = c.test("gt", c.abs(high), 1100.0)
    high, low = c.choose(beyond, c.sign_of(1100.0, high), high), c.choose(beyond, 0.0, low)
    n, bits = c.nearest(high, 1.0, 2 * c.bias)
    r = c.add(c.sub(high, n), low)
    return c.scale(c.fma(r, c.horner(r, EXP2_64), 1.0), bits)


def _size_64(c: Calculator, f: Value, n: Value, y: Value) -> Value:
    high, low = _log2_twofold(c, f, n)
    product = c.mul(y, high)
    return _exp2_twofold(c, product, c.fma(y, low, c.fma(y, high, c.neg(product))))


def pow(expressions: Expressions, x: Value, y: Value) -> Value:
    """x**y. At most 1 ULP; all special cases of C, with NumPy's flags."""
    c = Calculator(expressions, x)
    special = is_odd_power(c, x, y)
    size = c.choose(special, 1.0, c.abs(x))
    f, n = split(c, size)
    if c.single:
        wide = Calculator(expressions, c.wide(f))
        f, whole = wide.wide(f), wide.wide(c.to_float(n))
        exponent = wide.fma(wide.horner(f, _LOG2), f, whole)
        t = wide.clamp(wide.mul(exponent, wide.wide(c.choose(special, 1.0, y))), -160.0, 130.0)
        m, bits = wide.nearest(t, 1.0, wide.bias)
        r = wide.sub(t, m)
        power = c.narrow(wide.mul(wide.fma(r, wide.horner(r, _EXP2), 1.0), wide.power_of_two(bits)))
    else:
        power = _size_64(c, f, c.to_float(n), c.choose(special, 1.0, y))
    power = c.choose(c.test_whole("eq", c.size_bits(x), 0), 0.0, power)
    return guarded(c, "pow", special, _signed(c, power, x, y), x, y)


def rare_pow(c: Calculator, x: Value, y: Value) -> Value:
    """Any arguments, float64, one lane. Cases as in C (annex F.10.4.4)."""
    size, y_size = c.abs(x), c.abs(y)
    finite = c.both(c.test("gt", size, 0.0), c.test("lt", size, math.inf))
    size = c.choose(finite, size, 1.0)
    denormal = c.test("lt", size, 2.0**-1022)
    f, n = split(c, c.mul(size, c.choose(denormal, 2.0**54, 1.0)))
    large = c.choose(c.test("lt", y_size, math.inf), c.sign_of(2.0**64, y), 1.0)
    bounded = c.choose(c.test("lt", y_size, 2.0**64), y, large)
    power = _size_64(c, f, c.sub(c.to_float(n), c.choose(denormal, 54.0, 0.0)), bounded)
    # an infinite exponent, base or a zero base: no flag but that of division
    size = c.abs(x)
    grows = c.differ(c.test("gt", size, 1.0), c.test("lt", y, 0.0))
    limit = c.choose(grows, math.inf, 0.0)
    zero = c.test("eq", size, 0.0)
    pole = c.both(zero, c.test("lt", y, 0.0))
    limit = c.choose(pole, c.div(1.0, c.choose(pole, size, 1.0)), limit)
    exact = c.either(c.test("eq", y_size, math.inf), c.either(zero, c.test("eq", size, math.inf)))
    power = c.choose(exact, limit, power)
    whole = _is_whole(c, y)
    power = c.choose(whole, _signed(c, power, x, c.choose(whole, y, 2.0)), power)
    # a root of a negative number: NaN with the invalid flag
    undefined = c.both(c.both(c.test("lt", x, 0.0), c.test("gt", x, -math.inf)), c.expressions.unary("not", whole))
    undefined = c.both(undefined, c.test("lt", y_size, math.inf))
    power = c.choose(undefined, c.sqrt(c.choose(undefined, x, 1.0)), power)
    power = c.choose(c.both(c.test("eq", size, 1.0), c.test("eq", y_size, math.inf)), 1.0, power)
    power = c.choose(c.is_nan(x), x, c.choose(c.is_nan(y), y, power))
    return c.choose(c.either(c.test("eq", y, 0.0), c.test("eq", x, 1.0)), 1.0, power)


def is_not_normal(c: Calculator, x: Value) -> Value:
    """Zero, denormal, infinite or NaN."""
    first = 1 << c.mantissa_bits
    return c.test_whole("uge", c.integer_op("sub", c.size_bits(x), first), c.infinity_bits - first)


def _cbrt(c: Calculator, a: Value) -> Value:
    """The cube root of positive normal a: 1 / cbrt(a) from a third of the exponent, improved by the series of (1 -
    h)**(-1/3), then one Newton step.
    """
    # the leading bits are enough, and few enough to be divided as a float
    shift = 9 if c.single else 32
    start = (0x54A21D2A >> 9) - (1 << 22) if c.single else 0x553EF0FF  # 2**22: clears the bit that `nearest` sets
    _, leading = c.nearest(c.to_float(c.shift_right(c.bits(a), shift)), -1 / 3, start)
    r = c.from_bits(c.integer_op("shl", leading, shift))
    for series in ((14 / 81, 2 / 9, 1 / 3),) if c.single else ((14 / 81, 2 / 9, 1 / 3), (2 / 9, 1 / 3)):
        h = c.fma(c.neg(c.mul(c.mul(a, r), r)), r, 1.0)
        r = c.fma(c.mul(r, h), c.horner(h, series), r)
    square = c.mul(r, r)
    y = c.mul(a, square)
    return c.fma(c.mul(c.fma(c.neg(c.mul(y, y)), y, a), square), 1 / 3, y)


def cbrt(expressions: Expressions, x: Value) -> Value:
    """Cube root. At most 1 ULP."""
    c = Calculator(expressions, x)
    special = is_not_normal(c, x)
    y = _cbrt(c, c.choose(special, 1.0, c.abs(x)))
    return guarded(c, "cbrt", special, c.sign_of(y, x), x)


def rare_cbrt(c: Calculator, x: Value) -> Value:
    """Denormals scaled; zero, infinity and NaN are their own roots. float64, one lane."""
    size = c.abs(x)
    ordinary = c.both(c.test("gt", size, 0.0), c.test("lt", size, math.inf))
    small = c.test("lt", size, 2.0**-1022)
    y = _cbrt(c, c.mul(c.choose(ordinary, size, 1.0), c.choose(small, 2.0**54, 1.0)))
    y = c.choose(small, c.mul(y, 2.0**-18), y)
    return c.choose(ordinary, c.sign_of(y, x), c.add(x, x))


def hypot(expressions: Expressions, x: Value, y: Value) -> Value:
    """sqrt(x**2 + y**2) without early overflow. At most 1.5 ULP (float32: 0.6); infinite if either is, even beside
    NaN.
    """
    c = Calculator(expressions, x)
    if c.single:
        wide = Calculator(expressions, c.wide(x))
        a, b = c.wide(x), c.wide(y)
        result = c.narrow(wide.sqrt(wide.fma(a, a, wide.mul(b, b))))
    else:
        swap = c.test_whole("sgt", c.size_bits(y), c.size_bits(x))
        a, b = c.choose(swap, y, x), c.choose(swap, x, y)
        size = c.size_bits(a)
        large = c.test_whole("sge", size, (c.bias + 500) << c.mantissa_bits)
        small = c.test_whole("slt", size, (c.bias - 400) << c.mantissa_bits)
        factor = c.choose(large, 2.0**-600, c.choose(small, 2.0**600, 1.0))
        inverse = c.choose(large, 2.0**600, c.choose(small, 2.0**-600, 1.0))
        a, b = c.mul(a, factor), c.mul(b, factor)
        result = c.mul(c.sqrt(c.fma(a, a, c.mul(b, b))), inverse)
    infinite = c.either(c.expressions.unary("isinf", x), c.expressions.unary("isinf", y))
    return c.choose(infinite, math.inf, result)
