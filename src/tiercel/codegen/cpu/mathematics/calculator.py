"""Arithmetic for polynomials: the operations of one dtype and lane count, with Python numbers as constants.

In: the expression emitter and a value that says dtype and lanes. Out: values. Fused multiply-add is used here and
nowhere else in generated code: inside a bounded function no single rounding is promised.

Habits the functions rely on. Clamps are `select(x > limit, limit, x)`, so that NaN passes. Scaling by a power of two is
a multiplication, never an addition to the exponent bits (that turns NaN with a payload into a number). Rounding to an
integer adds 1.5 * 2**(mantissa bits): the integer is then also in the low bits of the sum, without a conversion, which
AVX2 lacks for 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tiercel.codegen.cpu.text import Value
from tiercel.dtypes import DType, as_dtype

if TYPE_CHECKING:
    from tiercel.codegen.cpu.expressions import Expressions

BOOL, FLOAT32, FLOAT64 = as_dtype("bool"), as_dtype("float32"), as_dtype("float64")
INTEGER = {"float32": as_dtype("int32"), "float64": as_dtype("int64")}


class Calculator:
    """Arithmetic on values of one dtype (float32 or float64) and lane count, with Python numbers for constants."""

    def __init__(self, expressions: Expressions, like: Value) -> None:
        self.expressions = expressions
        self.dtype: DType = like.dtype
        self.integer = INTEGER[like.dtype.name]
        self.lanes = like.lanes
        self.single = self.dtype is FLOAT32
        self.width = 32 if self.single else 64
        self.mantissa_bits = 23 if self.single else 52
        self.bias = 127 if self.single else 1023
        self.magnitude_mask = (1 << (self.width - 1)) - 1
        self.infinity_bits = 0x7F800000 if self.single else 0x7FF << 52

    def of(self, single: float, double: float) -> float:
        """The constant for this dtype."""
        return single if self.single else double

    def number(self, x: Value | float) -> Value:
        """A constant of the dtype, in every lane."""
        return x if isinstance(x, Value) else self.expressions.constant(x, self.dtype, self.lanes)

    def whole(self, x: Value | int) -> Value:
        """A constant of the integer type of the same width; unsigned bit patterns are taken modulo its range."""
        if isinstance(x, Value):
            return x
        x &= (1 << self.width) - 1
        return self.expressions.constant(
            x - (1 << self.width) if x >> (self.width - 1) else x, self.integer, self.lanes
        )

    # -- arithmetic -------------------------------------------------------------------------------------------

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

    def neg(self, x: Value) -> Value:
        """-x, also of zero and NaN."""
        return self.expressions.unary("neg", x)

    def abs(self, x: Value) -> Value:
        """The magnitude."""
        return self.expressions.unary("abs", x)

    def sqrt(self, x: Value) -> Value:
        """The square root, rounded to nearest; NaN and the invalid flag below zero."""
        return self.expressions.unary("sqrt", x)

    def sign_of(self, x: Value | float, sign: Value) -> Value:
        """The magnitude of x with the sign of `sign`."""
        return self.expressions.binary("copysign", self.number(x), sign)

    def round(self, x: Value) -> Value:
        """To the nearest integer, as a float."""
        return self.expressions.unary("rint", x)

    def nearest(self, x: Value, factor: float, offset: int = 0) -> tuple[Value, Value]:
        """The integer n nearest to x * factor: as a float, and n + offset in the low bits of an integer.

        Both magnitudes must stay below 2**21 (float32), 2**50 (float64); the upper bits of the integer are those of the
        constant, which is divisible by 2**22 (2**51). An offset, such as the bias of an exponent, costs nothing here.
        """
        magic = 1.5 * 2.0**self.mantissa_bits + offset
        shifted = self.fma(x, factor, magic)
        return self.sub(shifted, magic), self.bits(shifted)

    # -- choices ----------------------------------------------------------------------------------------------

    def test(self, op: str, a: Value | float, b: Value | float) -> Value:
        """A comparison."""
        return self.expressions.compare(op, self.number(a), self.number(b))

    def test_whole(self, op: str, a: Value | int, b: Value | int) -> Value:
        """A comparison of integers: signed, or unsigned where `op` begins with u."""
        x, y = self.whole(a), self.whole(b)
        return self.expressions.instruction(op, f"icmp {op} {x}, {y.text}", BOOL, x.lanes, x, y)

    def both(self, a: Value, b: Value) -> Value:
        """Two conditions hold."""
        return self.expressions.instruction("both", f"and {a}, {b.text}", BOOL, a.lanes, a, b)

    def either(self, a: Value, b: Value) -> Value:
        """One of two conditions holds."""
        return self.expressions.instruction("either", f"or {a}, {b.text}", BOOL, a.lanes, a, b)

    def differ(self, a: Value, b: Value) -> Value:
        """Exactly one of two conditions holds."""
        return self.expressions.instruction("differ", f"xor {a}, {b.text}", BOOL, a.lanes, a, b)

    def choose(self, condition: Value, a: Value | float, b: Value | float) -> Value:
        """a where condition, else b."""
        x, y = self.number(a), self.number(b)
        text = f"select {condition}, {x}, {y}"
        return self.expressions.instruction("choice", text, x.dtype, x.lanes, condition, x, y)

    def choose_whole(self, condition: Value, a: Value | int, b: Value | int) -> Value:
        """The same on integers."""
        return self.choose(condition, self.whole(a), self.whole(b))

    def clamp(self, x: Value, low: float | None = None, high: float | None = None) -> Value:
        """x kept within bounds; NaN passes."""
        if high is not None:
            x = self.choose(self.test("gt", x, high), high, x)
        if low is not None:
            x = self.choose(self.test("lt", x, low), low, x)
        return x

    def below_infinity(self, x: Value) -> Value:
        """Whether x is finite or -infinity: neither NaN nor +infinity. Raises no flag."""
        return self.test("le", x, float(np.finfo(self.dtype.numpy).max))

    def clamp_ordinary(self, x: Value, ordinary: Value, low: float | None = None, high: float | None = None) -> Value:
        """x kept within low < 0 and high > 0, and zero where not `ordinary`: nothing computed from it raises a flag.

        On the bits where there are instructions for it: the bits of positive floats are ordered as signed integers,
        those of negative ones backwards, above those of positive ones as unsigned integers.
        """
        if not (self.single or self.expressions.avx512):
            return self.clamp(self.choose(ordinary, x, 0.0), low, high)
        bits = self.bits(x)
        for name, bound in (("smin", high), ("umin", low)):
            if bound is not None:
                limit = self.bits_of(bound)
                bits = self.expressions.intrinsic(name, "kept", self.integer, bits, self.whole(limit))
        return self.from_bits(self.choose_whole(ordinary, bits, 0))

    def bits_of(self, x: float) -> int:
        """The bits of a Python number as this dtype."""
        return int(np.array(x, self.dtype.numpy).view(f"u{self.width // 8}"))

    def is_nan(self, x: Value) -> Value:
        """Whether x is NaN; raises no flag."""
        return self.expressions.unary("isnan", x)

    # -- bits -------------------------------------------------------------------------------------------------

    def bits(self, x: Value) -> Value:
        """The bits of a float."""
        return self.expressions.bitcast(x, self.integer)

    def from_bits(self, x: Value) -> Value:
        """A float from its bits."""
        return self.expressions.bitcast(x, self.dtype)

    def size_bits(self, x: Value) -> Value:
        """The bits of the magnitude: they are ordered as the magnitudes are, infinity and then NaN last."""
        return self.integer_op("and", self.bits(x), self.magnitude_mask)

    def integer_op(self, op: str, a: Value | int, b: Value | int) -> Value:
        """An integer operation of the loop form."""
        return self.expressions.binary(op, self.whole(a), self.whole(b))

    def shift_right(self, x: Value, count: int) -> Value:
        """Logical shift."""
        return self.expressions.shift_right(x, count)

    def to_float(self, x: Value) -> Value:
        """An integer below 2**(mantissa bits - 1) in magnitude as a float, without the conversion AVX2 lacks."""
        if self.single:
            return self.expressions.cast(x, self.dtype)
        magic = 1.5 * 2.0**52
        biased = self.integer_op("add", x, 0x4338 << 48)  # the bits of 1.5 * 2**52
        return self.sub(self.from_bits(biased), magic)

    def power_of_two(self, biased: Value) -> Value:
        """2**n for n in the range of normal exponents, from n + bias in the low bits of an integer."""
        return self.from_bits(self.integer_op("shl", biased, self.mantissa_bits))

    def scale(self, x: Value, biased_twice: Value) -> Value:
        """x * 2**n in two factors, so that results underflow gradually and overflow to infinity; from n + 2 * bias in
        the low bits of an integer.
        """
        half = self.shift_right(biased_twice, 1)
        rest = self.integer_op("sub", biased_twice, half)
        return self.mul(self.mul(x, self.power_of_two(half)), self.power_of_two(rest))

    @property
    def has_scale_instruction(self) -> bool:
        """Whether `scale_by` is there: whole vectors of AVX-512."""
        return self.expressions.avx512 and self.lanes * self.width % 512 == 0

    def scale_by(self, x: Value, n: Value) -> Value:
        """x * 2**n for a float n that is a whole number, rounded once, in one instruction for each vector."""
        lanes, element = 512 // self.width, "float" if self.single else "double"
        name = f"llvm.x86.avx512.mask.scalef.{'ps' if self.single else 'pd'}.512"
        part = f"<{lanes} x {element}>"
        self.expressions.declare(f"declare {part} @{name}({part}, {part}, {part}, i{lanes}, i32)")
        parts = []
        for first in range(0, self.lanes, lanes):
            a, b = (self.expressions.part(v, first, lanes) for v in (x, n))
            text = f"call {part} @{name}({a}, {b}, {part} zeroinitializer, i{lanes} -1, i32 4)"
            parts.append(self.expressions.instruction("scaled", text, self.dtype, lanes, a, b))
        return self.expressions.joined(parts)

    def wide(self, x: Value) -> Value:
        """As float64."""
        return self.expressions.cast(x, FLOAT64)

    def narrow(self, x: Value) -> Value:
        """As the dtype of this calculator."""
        return self.expressions.cast(x, self.dtype)
