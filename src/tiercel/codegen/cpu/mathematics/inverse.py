"""Inverse circular functions. Coefficients are near minimax, fitted by `benchmarks/minimax.py`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tiercel.codegen.cpu.mathematics.calculator import Calculator
from tiercel.codegen.cpu.mathematics.guard import guarded
from tiercel.codegen.cpu.text import Value

if TYPE_CHECKING:
    from tiercel.codegen.cpu.expressions import Expressions

# pi/2 in two parts
_HALF_PI_32, _HALF_PI_64 = (1.5707963705062866, -4.371138828673793e-08), (1.5707963267948966, 6.123233995736766e-17)

# arctan z = z + z**3 * p(z**2) on [0, tan(pi/8)], relative errors 2**-30.4 and 2**-59.4
_ATAN_32 = (
    -0.060887355357408524, 0.10598728060722351, -0.14244344830513, 0.19998526573181152, -0.33333316445350647,
)  # fmt: skip
_ATAN_64 = (
    -0.01788215203514064, 0.038041185673088514, -0.050383626563658884, 0.058476746368095994, -0.0666307365495533,
    0.07692057448999931, -0.09090897596119368, 0.11111110777586419, -0.14285714280072967, 0.19999999999952287,
    -0.3333333333333319,
)  # fmt: skip

# arcsin s = s + s**3 * p(s**2) on [0, 1/2], relative errors 2**-27.6 and 2**-55.9
_ASIN_32 = (0.042150676250457764, 0.02418871782720089, 0.045468520373106, 0.0749531239271164, 0.16666752099990845)
_ASIN_64 = (
    0.0319029405451022, -0.016210795842014736, 0.01951982112732962, 0.006530997130959476, 0.012168532309923357,
    0.013885335041504961, 0.017359695206928417, 0.0223717586366018, 0.03038195911535114, 0.04464285682874734,
    0.07500000000336723, 0.16666666666665408,
)  # fmt: skip


def _half_pi(c: Calculator) -> tuple[float, float]:
    return _HALF_PI_32 if c.single else _HALF_PI_64


def _angle(c: Calculator, small: Value, large: Value, swap: Value) -> Value:
    """arctan(small / large), or with `swap` arctan(large / small), for 0 <= small <= large, 0 < large.

    Above tan(pi/8) it is pi/4 + arctan((small - large) / (small + large)).
    """
    high, low = _half_pi(c)
    beyond = c.test("gt", small, c.mul(large, math.sqrt(2) - 1))
    z = c.div(c.choose(beyond, c.sub(small, large), small), c.choose(beyond, c.add(small, large), large))
    square = c.mul(z, z)
    curve = c.mul(c.mul(square, z), c.horner(square, _ATAN_32 if c.single else _ATAN_64))
    # of the angle or of its complement: +-(z + curve) + 0, pi/4 or pi/2 in two parts
    sign = c.choose(swap, -1.0, 1.0)
    share = c.choose(beyond, 0.5, c.choose(swap, 1.0, 0.0))
    main = c.fma(z, sign, c.mul(share, high))
    return c.add(main, c.fma(curve, sign, c.mul(share, low)))


def arctan(expressions: Expressions, x: Value) -> Value:
    """Inverse tangent. At most 2 ULP."""
    c = Calculator(expressions, x)
    size = c.abs(x)
    swap = c.test_whole("sgt", c.size_bits(x), c.bias << c.mantissa_bits)
    small, large = c.choose(swap, 1.0, size), c.choose(swap, size, 1.0)
    return c.sign_of(_angle(c, small, large, swap), x)


def is_off_axis(c: Calculator, y: Value, x: Value) -> Value:
    """The larger of the two is zero, infinite, NaN, or so large that the sum may overflow."""
    first, second = c.size_bits(y), c.size_bits(x)
    larger = c.choose(c.test_whole("sgt", first, second), first, second)
    return c.test_whole("uge", c.integer_op("sub", larger, 1), ((2 * c.bias) << c.mantissa_bits) - 1)


def _quadrants(c: Calculator, angle: Value, y: Value, x: Value) -> Value:
    high, low = _half_pi(c)
    opposite = c.add(c.sub(2 * high, angle), 2 * low)
    return c.sign_of(c.choose(c.test_whole("slt", c.bits(x), 0), opposite, angle), y)


def atan2(expressions: Expressions, y: Value, x: Value) -> Value:
    """The angle of the point (x, y). At most 2.5 ULP; zeros and infinities as C defines them."""
    c = Calculator(expressions, y)
    special = is_off_axis(c, y, x)
    a, b = c.abs(y), c.abs(x)
    swap = c.test_whole("sgt", c.bits(a), c.bits(b))
    small = c.choose(special, 0.0, c.choose(swap, b, a))
    large = c.choose(special, 1.0, c.choose(swap, a, b))
    return guarded(c, "atan2", special, _quadrants(c, _angle(c, small, large, swap), y, x), y, x)


def rare_atan2(c: Calculator, y: Value, x: Value) -> Value:
    """Any arguments, float64, one lane."""
    a, b = c.abs(y), c.abs(x)
    swap = c.test("gt", a, b)
    small, large = c.choose(swap, b, a), c.choose(swap, a, b)
    # on the bits: LLVM makes a signalling comparison of one with infinity
    infinite, both = (c.test_whole("eq", c.bits(v), c.infinity_bits) for v in (large, small))
    # one sixteenth of each: the sum does not overflow, and what a tiny one loses does not count beside a huge one
    small = c.choose(both, 1.0, c.choose(infinite, 0.0, c.mul(small, 0.0625)))
    large = c.choose(c.either(infinite, c.test("eq", large, 0.0)), 1.0, c.mul(large, 0.0625))
    result = _quadrants(c, _angle(c, small, large, swap), y, x)
    return c.choose(c.is_nan(x), x, c.choose(c.is_nan(y), y, result))


def _arc(c: Calculator, x: Value) -> tuple[Value, Value, Value]:
    """(beyond 1/2, s, arcsin(s) - s) with s = |x|, or sqrt((1 - |x|) / 2) beyond 1/2; NaN and invalid beyond 1."""
    size = c.clamp(c.abs(x), high=2.0)  # nothing overflows far outside
    beyond = c.test_whole("sge", c.size_bits(x), (c.bias - 1) << c.mantissa_bits)
    square = c.choose(beyond, c.mul(c.sub(1.0, size), 0.5), c.mul(size, size))
    s = c.choose(beyond, c.sqrt(square), size)
    return beyond, s, c.mul(c.mul(s, square), c.horner(square, _ASIN_32 if c.single else _ASIN_64))


def _from_arc(c: Calculator, s: Value, curve: Value, factor: Value, halves: Value) -> Value:
    """halves * pi/2 + factor * (s + curve)."""
    high, low = _half_pi(c)
    return c.add(c.fma(s, factor, c.mul(halves, high)), c.fma(curve, factor, c.mul(halves, low)))


def arcsin(expressions: Expressions, x: Value) -> Value:
    """Inverse sine. At most 2.5 ULP; NaN and the invalid flag beyond 1."""
    c = Calculator(expressions, x)
    beyond, s, curve = _arc(c, x)
    y = _from_arc(c, s, curve, c.choose(beyond, -2.0, 1.0), c.choose(beyond, 1.0, 0.0))
    return c.sign_of(y, x)


def arccos(expressions: Expressions, x: Value) -> Value:
    """Inverse cosine. At most 2 ULP; NaN and the invalid flag beyond 1."""
    c = Calculator(expressions, x)
    beyond, s, curve = _arc(c, x)
    negative = c.test_whole("slt", c.bits(x), 0)
    factor = c.choose(c.differ(beyond, negative), c.choose(beyond, 2.0, 1.0), c.choose(beyond, -2.0, -1.0))
    return _from_arc(c, s, curve, factor, c.choose(beyond, c.choose(negative, 2.0, 0.0), 1.0))
