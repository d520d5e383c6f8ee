"""Transcendental functions as inline polynomials on vectors, branch-free.

In: the expression emitter and operand values. Out: a value of the same dtype. Every function takes NaN (payload kept
where arithmetic keeps it), infinities, denormals and signed zeros; its bound in ULP stands beside it and is tested
over the whole float32 range. Fused multiply-add is used here and only here: inside a bounded function no rounding is
promised.

Clamps are written as `select(x > limit, limit, x)`, so that NaN passes; scaling by a power of two is a multiplication,
never an addition to the exponent bits (that turns NaN with a payload into a number).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tiercel.codegen.cpu.text import Value
from tiercel.dtypes import DType, as_dtype
from tiercel.loops.form import IllFormed

if TYPE_CHECKING:
    from tiercel.codegen.cpu.expressions import Expressions

Function: TypeAlias = "Callable[..., Value]"

FLOAT32, FLOAT64 = as_dtype("float32"), as_dtype("float64")
INTEGER = {"float32": as_dtype("int32"), "float64": as_dtype("int64")}


class Calculator:
    """Arithmetic on values of one dtype and lane count, with Python numbers for constants."""

    def __init__(self, expressions: Expressions, like: Value) -> None:
        self.expressions = expressions
        self.dtype: DType = like.dtype
        self.integer = INTEGER[like.dtype.name]
        self.lanes = like.lanes
        self.mantissa_bits = 23 if self.dtype is FLOAT32 else 52
        self.bias = 127 if self.dtype is FLOAT32 else 1023

    def number(self, x: Value | float) -> Value:
        """A constant of the dtype, in every lane."""
        return x if isinstance(x, Value) else self.expressions.constant(x, self.dtype, self.lanes)

    def whole(self, x: Value | int) -> Value:
        """A constant of the integer type of the same width."""
        return x if isinstance(x, Value) else self.expressions.constant(x, self.integer, self.lanes)

    def add(self, a: Value | float, b: Value | float) -> Value:
        """a + b."""
        return self.expressions.binary("add", self.number(a), self.number(b))

    def sub(self, a: Value | float, b: Value | float) -> Value:
        """a - b."""
        return self.expressions.binary("sub", self.number(a), self.number(b))

    def mul(self, a: Value | float, b: Value | float) -> Value:
        """a * b."""
        return self.expressions.binary("mul", self.number(a), self.number(b))

    def div(self, a: Value | float, b: Value | float) -> Value:
        """a / b."""
        return self.expressions.binary("div", self.number(a), self.number(b))

    def fma(self, a: Value | float, b: Value | float, c: Value | float) -> Value:
        """a * b + c, rounded once."""
        operands = (self.number(a), self.number(b), self.number(c))
        return self.expressions.intrinsic("fma", "fma", self.dtype, *operands)

    def horner(self, x: Value, coefficients: Sequence[float]) -> Value:
        """A polynomial, highest power first."""
        value = self.number(coefficients[0])
        for c in coefficients[1:]:
            value = self.fma(value, x, c)
        return value

    def test(self, op: str, a: Value | float, b: Value | float) -> Value:
        """A comparison."""
        return self.expressions.compare(op, self.number(a), self.number(b))

    def choose(self, condition: Value, a: Value | float, b: Value | float) -> Value:
        """a where condition, else b."""
        x, y = self.number(a), self.number(b)
        text = f"select {condition}, {x}, {y}"
        return self.expressions.instruction("choice", text, x.dtype, x.lanes, condition, x, y)

    def choose_whole(self, condition: Value, a: Value | int, b: Value | int) -> Value:
        """The same on integers."""
        x, y = self.whole(a), self.whole(b)
        text = f"select {condition}, {x}, {y}"
        return self.expressions.instruction("choice", text, x.dtype, x.lanes, condition, x, y)

    def clamp(self, x: Value, low: float | None = None, high: float | None = None) -> Value:
        """x kept within bounds; NaN passes."""
        if high is not None:
            x = self.choose(self.test("gt", x, high), high, x)
        if low is not None:
            x = self.choose(self.test("lt", x, low), low, x)
        return x

    def abs(self, x: Value) -> Value:
        """The magnitude."""
        return self.expressions.unary("abs", x)

    def sign_of(self, x: Value, sign: Value) -> Value:
        """The magnitude of x with the sign of `sign`."""
        return self.expressions.binary("copysign", x, sign)

    def round(self, x: Value) -> Value:
        """To the nearest integer, as a float."""
        return self.expressions.unary("rint", x)

    def to_integer(self, x: Value) -> Value:
        """A float known to hold a small integer, as an integer (NaN gives anything, without a trap)."""
        return self.expressions.cast(x, self.integer)

    def bits(self, x: Value) -> Value:
        """The bits of a float."""
        return self.expressions.bitcast(x, self.integer)

    def from_bits(self, x: Value) -> Value:
        """A float from its bits."""
        return self.expressions.bitcast(x, self.dtype)

    def integer_op(self, op: str, a: Value | int, b: Value | int) -> Value:
        """An integer operation of the loop form."""
        return self.expressions.binary(op, self.whole(a), self.whole(b))

    def power_of_two(self, n: Value) -> Value:
        """2**n for an integer n in the range of normal exponents."""
        biased = self.integer_op("add", n, self.bias)
        return self.from_bits(self.integer_op("shl", biased, self.mantissa_bits))

    def scale(self, x: Value, n: Value) -> Value:
        """x * 2**n in two factors, so that results underflow gradually and overflow to infinity."""
        half = self.integer_op("shr", n, 1)
        rest = self.integer_op("sub", n, half)
        return self.mul(self.mul(x, self.power_of_two(half)), self.power_of_two(rest))


# ln 2 in two parts; the second is corrected by the digits beyond double: ln 2 = 0.6931471805599453094172321214581766
_LN2_HIGH32, _LN2_LOW32 = 0.693359375, -2.12194440054690583e-4
_LN2_HIGH64, _LN2_LOW64 = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # fdlibm e_exp.c

# exp(r) = 1 + r + r**2 * p(r) on [-ln2/2, ln2/2]. float32: Cephes expf. float64: Taylor to r**13, error 4e-18 there.
_EXP32 = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_EXP64 = tuple(1.0 / math.factorial(k) for k in range(13, 1, -1))


def _exp_parts(c: Calculator, x: Value) -> tuple[Value, Value]:
    """(exp(r), n) with x = n * ln 2 + r."""
    single = c.dtype is FLOAT32
    high, low = (_LN2_HIGH32, _LN2_LOW32) if single else (_LN2_HIGH64, _LN2_LOW64)
    n = c.round(c.mul(x, math.log2(math.e)))
    r = c.fma(n, -low, c.fma(n, -high, x))
    p = c.horner(r, _EXP32 if single else _EXP64)
    return c.add(c.fma(c.mul(r, r), p, r), 1.0), c.to_integer(n)


def exp(expressions: Expressions, x: Value) -> Value:
    """e**x. At most 1 ULP (float32), 1.5 ULP (float64); denormal results rounded, overflow to infinity."""
    c = Calculator(expressions, x)
    low, high = (-104.0, 89.0) if c.dtype is FLOAT32 else (-746.0, 710.0)
    y, n = _exp_parts(c, c.clamp(x, low, high))
    return c.scale(y, n)


def sigmoid(expressions: Expressions, x: Value) -> Value:
    """1 / (1 + e**-x). At most 3 ULP for results in the normal range."""
    c = Calculator(expressions, x)
    return c.div(1.0, c.add(exp(expressions, expressions.unary("neg", x)), 1.0))


# x + x**3 * p(x**2) for |x| < 0.625: Cephes tanhf
_TANH32 = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)


def tanh(expressions: Expressions, x: Value) -> Value:
    """Hyperbolic tangent. At most 2 ULP (float32)."""
    c = Calculator(expressions, x)
    if c.dtype is not FLOAT32:
        raise IllFormed("tanh of float64 has no code yet")
    size, square = c.abs(x), c.mul(x, x)
    near = c.fma(c.mul(square, x), c.horner(square, _TANH32), x)
    e = exp(expressions, c.mul(c.clamp(size, high=10.0), 2.0))
    far = c.sign_of(c.sub(1.0, c.div(2.0, c.add(e, 1.0))), x)
    return c.choose(c.test("lt", size, 0.625), near, far)


# log(1 + f) = f - f**2/2 + f**3 * p(f) on [sqrt(1/2) - 1, sqrt(2) - 1]: Cephes logf
_LOG32 = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip


def log(expressions: Expressions, x: Value) -> Value:
    """Natural logarithm. At most 1 ULP (float32); -inf at zero, NaN below, denormals right."""
    c = Calculator(expressions, x)
    if c.dtype is not FLOAT32:
        raise IllFormed("log of float64 has no code yet")
    tiny = c.test("lt", x, 2.0**-126)
    scaled = c.choose(tiny, c.mul(x, 2.0**23), x)
    bits = c.bits(scaled)
    # mantissa in [sqrt(1/2), sqrt(2)): subtract the bits of sqrt(1/2), the exponent is what is above the mantissa
    shifted = c.integer_op("sub", bits, 0x3F3504F3)
    exponent = c.integer_op("shr", shifted, 23)
    mantissa_bits = c.integer_op("sub", bits, c.integer_op("shl", exponent, 23))
    exponent = c.integer_op("sub", exponent, c.choose_whole(tiny, 23, 0))
    f = c.sub(c.from_bits(mantissa_bits), 1.0)
    n = expressions.cast(exponent, c.dtype)
    square = c.mul(f, f)
    y = c.mul(c.mul(square, f), c.horner(f, _LOG32))
    y = c.fma(n, _LN2_LOW32, y)
    y = c.fma(square, -0.5, y)
    result = c.fma(n, _LN2_HIGH32, c.add(f, y))
    infinity = float("inf")
    result = c.choose(c.test("eq", x, infinity), infinity, result)
    result = c.choose(c.test("eq", x, 0.0), -infinity, result)
    result = c.choose(c.test("lt", x, 0.0), float("nan"), result)
    return c.choose(expressions.unary("isnan", x), x, result)


# N. Juffa's two-branch approximation of erff (public post, 2016): 1 - exp(p(|x|)) above 0.927734375, x + x * q(x**2)
# below
_ERF_FAR = (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1)
_ERF_NEAR = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)


def erf(expressions: Expressions, x: Value) -> Value:
    """Error function. At most 1.5 ULP (float32)."""
    c = Calculator(expressions, x)
    if c.dtype is not FLOAT32:
        raise IllFormed("erf of float64 has no code yet")
    t = c.abs(x)
    capped = c.clamp(t, high=4.0)
    square = c.mul(capped, capped)
    r = c.fma(capped, -1.72853470e-5, 3.83197126e-4)
    u = c.fma(capped, -3.88396438e-3, 2.42546219e-2)
    r = c.fma(r, square, u)
    for coefficient in _ERF_FAR:
        r = c.fma(r, capped, coefficient)
    r = c.fma(r, capped, expressions.unary("neg", capped))
    far = c.sign_of(c.sub(1.0, exp(expressions, r)), x)
    near = c.fma(c.horner(c.mul(x, x), _ERF_NEAR), x, x)
    return c.choose(c.test("gt", t, 0.927734375), far, near)


MATHEMATICS: dict[str, Function] = {
    "exp": exp,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "log": log,
    "erf": erf,
}
