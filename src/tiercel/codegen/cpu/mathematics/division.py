"""Floor division and remainders of floats, bit-equal to NumPy's.

In the fast case the quotient is below 2**22 (float32), 2**51 (float64) and the divisor normal. Then with q =
floor(a / b) the remainder a - q * b is exact in one fused multiply-add, also when a / b was rounded up to a whole
number and q is one too large: the remainder then has the wrong sign, is exact, and adding b rounds exactly as NumPy's
`fmod(a, b) + b` does. All else is rare, see `guard`: the library follows npy_divmod of npy_math_internal.h.src with an
exact fmod.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tiercel.codegen.cpu.mathematics.calculator import FLOAT64, Calculator
from tiercel.codegen.cpu.mathematics.guard import guarded
from tiercel.codegen.cpu.text import Value, literal

if TYPE_CHECKING:
    from tiercel.codegen.cpu.expressions import Expressions

_FMOD = "tc.math.fmod"


def is_far(c: Calculator, a: Value, b: Value) -> Value:
    """A quotient that may be too large, a divisor that is not normal, or a dividend that is not finite."""
    top = c.infinity_bits >> c.mantissa_bits
    dividend, divisor = (c.shift_right(c.size_bits(x), c.mantissa_bits) for x in (a, b))
    large = c.test_whole("sge", c.integer_op("sub", dividend, divisor), 21 if c.single else 50)
    odd = c.test_whole("uge", c.integer_op("sub", divisor, 1), top - 1)
    return c.either(c.either(large, odd), c.test_whole("eq", dividend, top))


def _fast(c: Calculator, a: Value, b: Value, kind: str) -> tuple[Value, Value, Value, Value]:
    """(special, divisor, quotient, remainder) with a quotient rounded by `kind`."""
    special = is_far(c, a, b)
    b = c.choose(special, 1.0, b)
    a = c.choose(special, 0.0, a)
    quotient = c.expressions.unary(kind, c.div(a, b))
    return special, b, quotient, c.fma(c.neg(quotient), b, a)


def _wrong_sign(c: Calculator, remainder: Value, divisor: Value) -> Value:
    """The remainder is not zero and has the other sign than the divisor."""
    opposite = c.test_whole("slt", c.integer_op("xor", c.bits(remainder), c.bits(divisor)), 0)
    return c.both(c.test("ne", remainder, 0.0), opposite)


def mod(expressions: Expressions, a: Value, b: Value) -> Value:
    """a - floor(a / b) * b, with the sign of b: equal to NumPy's remainder."""
    c = Calculator(expressions, a)
    special, divisor, _, remainder = _fast(c, a, b, "floor")
    y = c.choose(_wrong_sign(c, remainder, divisor), c.add(remainder, divisor), remainder)
    y = c.choose(c.test("eq", y, 0.0), c.sign_of(0.0, b), y)
    return guarded(c, "mod", special, y, a, b)


def floordiv(expressions: Expressions, a: Value, b: Value) -> Value:
    """floor(a / b): equal to NumPy's floor_divide."""
    c = Calculator(expressions, a)
    special, divisor, quotient, remainder = _fast(c, a, b, "floor")
    y = c.choose(_wrong_sign(c, remainder, divisor), c.sub(quotient, 1.0), quotient)
    return guarded(c, "floordiv", special, y, a, b)


def fmod(expressions: Expressions, a: Value, b: Value) -> Value:
    """a - trunc(a / b) * b, with the sign of a: C's fmod, exact."""
    c = Calculator(expressions, a)
    special, divisor, _, remainder = _fast(c, a, b, "trunc")
    opposite = c.test_whole("slt", c.integer_op("xor", c.bits(remainder), c.bits(a)), 0)
    wrong = c.both(c.test("ne", remainder, 0.0), opposite)
    y = c.choose(wrong, c.add(remainder, c.sign_of(divisor, a)), remainder)
    return guarded(c, "fmod", special, c.sign_of(y, a), a, b)


# -- rare arguments, one lane, in their own dtype -----------------------------------------------------------------


def rare_fmod(c: Calculator, a: Value, b: Value) -> Value:
    """C's fmod: NaN and the invalid flag for an infinite a or a zero b, unless one is NaN."""
    x, y = c.wide(a), c.wide(b)
    text = f"call double @{_FMOD}({x}, {y})"
    return c.narrow(c.expressions.instruction("fmod", text, x.dtype, 1, x, y))


def rare_mod(c: Calculator, a: Value, b: Value) -> Value:
    """npy_remainder."""
    m = rare_fmod(c, a, b)
    adjusted = c.choose(c.differ(c.test("lt", b, 0.0), c.test("lt", m, 0.0)), c.add(m, b), m)
    adjusted = c.choose(c.test("eq", m, 0.0), c.sign_of(0.0, b), adjusted)
    return c.choose(c.test("eq", b, 0.0), m, adjusted)


def rare_floordiv(c: Calculator, a: Value, b: Value) -> Value:
    """npy_floor_divide."""
    zero = c.test("eq", b, 0.0)
    divisor = c.choose(zero, 1.0, b)  # fmod of a zero divisor would raise the invalid flag
    dividend = c.choose(zero, 1.0, a)
    m = rare_fmod(c, dividend, divisor)
    quotient = c.div(c.sub(dividend, m), divisor)
    differ = c.both(c.test("ne", m, 0.0), c.differ(c.test("lt", b, 0.0), c.test("lt", m, 0.0)))
    quotient = c.choose(differ, c.sub(quotient, 1.0), quotient)
    whole = c.expressions.unary("floor", quotient)
    whole = c.choose(c.test("gt", c.sub(quotient, whole), 0.5), c.add(whole, 1.0), whole)
    needed = c.either(zero, c.test("eq", quotient, 0.0))
    ratio = c.div(c.choose(needed, a, 1.0), c.choose(needed, b, 1.0))
    whole = c.choose(c.test("eq", quotient, 0.0), c.sign_of(0.0, ratio), whole)
    return c.choose(zero, ratio, whole)


def remainder_text(declare: Callable[[str], object]) -> str:
    """`double tc.math.fmod(double, double)` as LLVM text: long division of the mantissas, ten bits at a time."""
    mantissa, top = (1 << 52) - 1, 0x7FF << 52
    parts = "".join(
        f"""
  %bits.{x} = bitcast double %{x} to i64
  %size.{x} = and i64 %bits.{x}, {(1 << 63) - 1}
  %field.{x} = lshr i64 %size.{x}, 52
  %normal.{x} = icmp ne i64 %field.{x}, 0
  %hidden.{x} = select i1 %normal.{x}, i64 {1 << 52}, i64 0
  %fraction.{x} = and i64 %bits.{x}, {mantissa}
  %m.{x} = or i64 %fraction.{x}, %hidden.{x}
  %e.{x} = call i64 @llvm.umax.i64(i64 %field.{x}, i64 1)"""
        for x in "ab"
    )
    for name in ("umax", "umin"):
        declare(f"declare i64 @llvm.{name}.i64(i64, i64)")
    declare("declare double @llvm.copysign.f64(double, double)")
    return f"""
define internal double @{_FMOD}(double %a, double %b) {{
entry:{parts}
  %a.odd = icmp uge i64 %size.a, {top}
  %b.nan = icmp ugt i64 %size.b, {top}
  %b.zero = icmp eq i64 %size.b, 0
  %odd = or i1 %a.odd, %b.nan
  %undefined = or i1 %odd, %b.zero
  br i1 %undefined, label %nan, label %defined
nan:
  %product = fmul double %a, %b
  %quotient = fdiv double %product, %product
  ret double %quotient
defined:
  %smaller = icmp ult i64 %size.a, %size.b
  br i1 %smaller, label %same, label %divide
same:
  ret double %a
divide:
  %first = urem i64 %m.a, %m.b
  %distance = sub i64 %e.a, %e.b
  br label %more
more:
  %r = phi i64 [ %first, %divide ], [ %r.next, %step ]
  %left = phi i64 [ %distance, %divide ], [ %left.next, %step ]
  %ended = icmp eq i64 %left, 0
  br i1 %ended, label %finish, label %step
step:
  %count = call i64 @llvm.umin.i64(i64 %left, i64 10)
  %shifted = shl i64 %r, %count
  %r.next = urem i64 %shifted, %m.b
  %left.next = sub i64 %left, %count
  br label %more
finish:
  %whole = sitofp i64 %r to double
  %fraction = fmul double %whole, {literal(2.0**-52, FLOAT64)}
  %unit.bits = shl i64 %e.b, 52
  %unit = bitcast i64 %unit.bits to double
  %size = fmul double %fraction, %unit
  %result = call double @llvm.copysign.f64(double %size, double %a)
  ret double %result
}}
"""
