"""Sine, cosine, tangent.

|x| = n * pi/2 + r with |r| <= pi/4 by pi/2 in three parts (Cody and Waite; with fused multiply-add the first
subtraction is exact, since n is the nearest integer and the first part has as many bits as x), up to 2**17 (float32),
2**30 (float64). Beyond that the argument is rare, see `guard`: the library reduces it with as many bits of 2/pi as it
takes (Payne and Hanek, "Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983).
Coefficients are near minimax, fitted by `benchmarks/minimax.py`; the float64 kernels have the form of fdlibm's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tiercel.codegen.cpu.mathematics.calculator import Calculator
from tiercel.codegen.cpu.mathematics.guard import guarded
from tiercel.codegen.cpu.text import Value, literal
from tiercel.dtypes import as_dtype

if TYPE_CHECKING:
    from tiercel.codegen.cpu.expressions import Expressions

_HALF_PI_32 = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
_HALF_PI_64 = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)

# sin r = r + r**3 * p(r**2), cos r = 1 - r**2/2 + r**4 * q(r**2) on [-pi/4, pi/4]
_SIN_32 = (-0.00019508236437104642, 0.00833210814744234, -0.16666653752326965)
_COS_32 = (2.4430286430288106e-05, -0.0013887298991903663, 0.04166664555668831)
_SIN_64 = (
    1.5893133372402155e-10, -2.505069582798517e-08, 2.7557313300784074e-06, -0.00019841269828703962,
    0.008333333333321074, -0.16666666666666627,
)  # fmt: skip
_COS_64 = (
    -1.13560161424674e-11, 2.0875652193648203e-09, -2.755731382097287e-07, 2.4801587287606145e-05,
    -0.0013888888888871043, 0.04166666666666658,
)  # fmt: skip


def is_huge(c: Calculator, x: Value) -> Value:
    """Beyond the reduction in three parts; infinity and NaN too."""
    return c.test_whole("uge", c.size_bits(x), (c.bias + (17 if c.single else 30)) << c.mantissa_bits)


def _reduce(c: Calculator, size: Value) -> tuple[Value, Value, Value]:
    """(r, what rounding r lost, quadrant in the low bits of an integer) of a magnitude that is not huge."""
    n, quadrant = c.nearest(size, 2 / math.pi)
    first, second, third = _HALF_PI_32 if c.single else _HALF_PI_64
    near = c.fma(n, -first, size)
    product = c.mul(n, second)
    lost = c.fma(n, second, c.neg(product))
    r = c.sub(near, product)
    rest = c.sub(c.sub(c.sub(near, r), product), lost)
    return r, c.fma(n, -third, rest), quadrant


def _sin_kernel(c: Calculator, r: Value, rest: Value) -> Value:
    z = c.mul(r, r)
    cube = c.mul(z, r)
    if c.single:
        return c.add(r, c.fma(cube, c.horner(z, _SIN_32), rest))
    inner = c.fma(cube, c.neg(c.horner(z, _SIN_64[:-1])), c.mul(rest, 0.5))
    return c.sub(r, c.fma(cube, -_SIN_64[-1], c.fma(z, inner, c.neg(rest))))


def _cos_kernel(c: Calculator, r: Value, rest: Value) -> Value:
    z = c.mul(r, r)
    if c.single:  # what r lost is too little to matter where the slope is small
        return c.horner(z, (*_COS_32, -0.5, 1.0))
    square = c.mul(z, z)
    main = c.fma(z, -0.5, 1.0)
    lost = c.fma(z, -0.5, c.sub(1.0, main))
    return c.add(main, c.add(lost, c.fma(square, c.horner(z, _COS_64), c.neg(c.mul(r, rest)))))


def _bit(c: Calculator, quadrant: Value, bit: int) -> Value:
    return c.test_whole("ne", c.integer_op("and", quadrant, bit), 0)


def _flip(c: Calculator, y: Value, sign: Value) -> Value:
    return c.from_bits(c.integer_op("xor", c.bits(y), sign))


def _sign_bit(c: Calculator, x: Value) -> Value:
    return c.integer_op("and", c.bits(x), 1 << (c.width - 1))


def _half_turn(c: Calculator, quadrant: Value) -> Value:
    """The sign bit that quadrants 2 and 3 put on a sine."""
    return c.integer_op("shl", c.integer_op("and", quadrant, 2), c.width - 2)


def _finish_sin(c: Calculator, x: Value, r: Value, rest: Value, quadrant: Value) -> Value:
    y = c.choose(_bit(c, quadrant, 1), _cos_kernel(c, r, rest), _sin_kernel(c, r, rest))
    return _flip(c, y, c.integer_op("xor", _half_turn(c, quadrant), _sign_bit(c, x)))


def _finish_cos(c: Calculator, x: Value, r: Value, rest: Value, quadrant: Value) -> Value:
    del x
    y = c.choose(_bit(c, quadrant, 1), _sin_kernel(c, r, rest), _cos_kernel(c, r, rest))
    return _flip(c, y, _half_turn(c, c.integer_op("add", quadrant, 1)))


def _finish_tan(c: Calculator, x: Value, r: Value, rest: Value, quadrant: Value) -> Value:
    odd = _bit(c, quadrant, 1)
    sine, cosine = _sin_kernel(c, r, rest), _cos_kernel(c, r, rest)
    y = c.div(c.choose(odd, cosine, sine), c.choose(odd, sine, cosine))
    turned = c.integer_op("shl", quadrant, c.width - 1)
    return _flip(c, y, c.integer_op("xor", turned, _sign_bit(c, x)))


_Finish = Callable[[Calculator, Value, Value, Value, Value], Value]


def _circular(name: str, finish: _Finish, doc: str) -> Callable[[Expressions, Value], Value]:
    def build(expressions: Expressions, x: Value) -> Value:
        c = Calculator(expressions, x)
        special = is_huge(c, x)
        r, rest, quadrant = _reduce(c, c.choose(special, 0.0, c.abs(x)))
        return guarded(c, name, special, finish(c, x, r, rest, quadrant), x)

    build.__doc__ = doc
    return build


sin = _circular(
    "sin", _finish_sin, "Sine. At most 1.5 ULP (float64: 1) for every argument; NaN and the invalid flag of infinity."
)
cos = _circular(
    "cos", _finish_cos, "Cosine. At most 1.5 ULP (float64: 1) for every argument; NaN and the invalid flag of infinity."
)
tan = _circular(
    "tan", _finish_tan, "Tangent. At most 2.5 ULP for every argument; NaN and the invalid flag of infinity."
)


# -- rare arguments, float64, one lane ----------------------------------------------------------------------------


def _rare(finish: _Finish) -> Callable[[Calculator, Value], Value]:
    def build(c: Calculator, x: Value) -> Value:
        size = c.abs(x)
        pair = c.expressions.writer.fresh("reduced")
        c.expressions.writer.write(f"{pair} = call {{ double, double, i64 }} @{_REDUCE}({size})")
        parts = []
        for i, dtype in enumerate((c.dtype, c.dtype, as_dtype("int64"))):
            part = c.expressions.writer.fresh("part")
            c.expressions.writer.write(f"{part} = extractvalue {{ double, double, i64 }} {pair}, {i}")
            parts.append(Value(part, dtype, 1, c.expressions.writer.level))
        y = finish(c, x, *parts)
        return c.choose(c.test_whole("sge", c.bits(size), c.infinity_bits), c.sub(x, x), y)

    return build


rare_sin, rare_cos, rare_tan = _rare(_finish_sin), _rare(_finish_cos), _rare(_finish_tan)

_REDUCE = "tc.math.reduce"
# the first 1280 binary digits of 2/pi; the largest double needs 1163
_TWO_OVER_PI: Final = bytes.fromhex(
    "A2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424DD2E0"
    "06492EEA09D1921CFE1DEB1CB129A73EE88235F52EBB4484E99C7026B45F7E413991D639835339F4"
    "9C845F8BBDF9283B1FF897FFDE05980FEF2F118B5A0A6D1F6D367ECF27CB09B74F463F669E5FEA2D"
    "7527BAC7EBE5F17B3D0739F78A5292EA6BFB5FB11F8D5D0856033046FC7B6BABF0CFBC209AF4361D"
)


def _table() -> str:
    return "".join(f"\\{byte:02X}" for byte in bytes(8) + _TWO_OVER_PI)


def reduction_text(declare: Callable[[str], object]) -> str:
    """`{r, rest, quadrant} tc.math.reduce(x)` for finite x >= 2**17, as LLVM text.

    x = m * 2**e with a whole m below 2**53. The bits of 2/pi that count more than a full turn are left out, and those
    after the next 192: x * (2/pi) / 4 modulo 1 is then m * bits / 2**192, wrong by less than 2**-132, and the nearest
    a double comes to a multiple of pi/2 is about 2**-62. Bits are taken from a whole byte on; the rest of the shift
    (below 8) goes to m.
    """
    high, low, _ = _HALF_PI_64
    declare("declare i192 @llvm.bswap.i192(i192)")
    declare("declare double @llvm.fma.f64(double, double, double)")
    return f"""
@tc.math.two_over_pi = internal constant [168 x i8] c"{_table()}", align 16
define internal {{ double, double, i64 }} @{_REDUCE}(double %x) {{
entry:
  %bits = bitcast double %x to i64
  %exponent = lshr i64 %bits, 52
  %fraction = and i64 %bits, {(1 << 52) - 1}
  %m = or i64 %fraction, {1 << 52}
  %position = sub i64 %exponent, {1075 + 2 - 64}
  %byte = lshr i64 %position, 3
  %shift = and i64 %position, 7
  %shifted = shl i64 %m, %shift
  %at = getelementptr i8, ptr @tc.math.two_over_pi, i64 %byte
  %raw = load i192, ptr %at, align 1
  %window = call i192 @llvm.bswap.i192(i192 %raw)
  %wide = zext i64 %shifted to i192
  %product = mul i192 %window, %wide
  %rounded = add i192 %product, {1 << 189}
  %quadrant.wide = lshr i192 %rounded, 190
  %quadrant = trunc i192 %quadrant.wide to i64
  %whole = shl i192 %quadrant.wide, 190
  %signed = sub i192 %product, %whole
  %top.wide = lshr i192 %signed, 128
  %top = trunc i192 %top.wide to i64
  %next.wide = lshr i192 %signed, 64
  %next = trunc i192 %next.wide to i64
  %i0 = ashr i64 %top, 32
  %i1 = and i64 %top, 4294967295
  %i2 = lshr i64 %next, 32
  %i3 = and i64 %next, 4294967295
  %f0 = sitofp i64 %i0 to double
  %f1 = sitofp i64 %i1 to double
  %f2 = sitofp i64 %i2 to double
  %f3 = sitofp i64 %i3 to double
  %d0 = fmul double %f0, {_hex(2.0**-30)}
  %d1 = fmul double %f1, {_hex(2.0**-62)}
  %d2 = fmul double %f2, {_hex(2.0**-94)}
  %d3 = fmul double %f3, {_hex(2.0**-126)}
  %s = fadd double %d0, %d1
  %s.d0 = fsub double %s, %d0
  %lost = fsub double %d1, %s.d0
  %d23 = fadd double %d2, %d3
  %low = fadd double %lost, %d23
  %a = fadd double %s, %low
  %a.s = fsub double %a, %s
  %b = fsub double %low, %a.s
  %r = fmul double %a, {_hex(high)}
  %minus = fneg double %r
  %r.lost = call double @llvm.fma.f64(double %a, double {_hex(high)}, double %minus)
  %b.high = fmul double %b, {_hex(high)}
  %a.low = fmul double %a, {_hex(low)}
  %small = fadd double %b.high, %a.low
  %rest = fadd double %r.lost, %small
  %first = insertvalue {{ double, double, i64 }} poison, double %r, 0
  %second = insertvalue {{ double, double, i64 }} %first, double %rest, 1
  %third = insertvalue {{ double, double, i64 }} %second, i64 %quadrant, 2
  ret {{ double, double, i64 }} %third
}}
"""


def _hex(value: float) -> str:
    return literal(value, as_dtype("float64"))
