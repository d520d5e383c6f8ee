"""Arithmetic, comparison, logic and bits: the operators that have infix forms, and their relatives."""

from __future__ import annotations

import numpy as np

from tiercel.dtypes import DType, bool_, int8
from tiercel.operators import rules
from tiercel.operators.families import elementwise, ufunc
from tiercel.operators.reference.fused import fma
from tiercel.operators.table import EXACT, Call, bounded
from tiercel.operators.types import ArrayType, NotStatic, PyIntType


def _dtype_power(call: Call) -> DType | list[DType]:
    # `x ** 2` on an array is np.square, which differs from np.power in dtype for bools only.
    x, y = call.operand(0), call.operand(1)
    infix = call.spelling.kind in ("syntax", "inplace") or call.spelling.path.startswith("builtins.")
    if infix and isinstance(x, ArrayType) and x.dtype is bool_ and isinstance(y, PyIntType):
        if not isinstance(y.value, int):
            raise NotStatic("a bool array to the power of an int has a dtype that depends on the int")
        if y.value == 2:
            return int8
    return rules.dtype_ufunc(np.power)(call)


ROWS = (
    # Arithmetic.
    ufunc("add", np.add, EXACT, "x + y; logical or of bools", infix="+"),
    ufunc("subtract", np.subtract, EXACT, "x - y; not defined for bools", infix="-"),
    ufunc("multiply", np.multiply, EXACT, "x * y; logical and of bools", infix="*"),
    ufunc("divide", np.divide, EXACT, "x / y, integers as float64", infix="/"),
    ufunc("floor_divide", np.floor_divide, EXACT, "floor(x / y); an integer divided by 0 is 0", infix="//"),
    ufunc("remainder", np.remainder, EXACT, "x - floor(x / y) * y, with the sign of y", infix="%"),
    ufunc("fmod", np.fmod, EXACT, "x - trunc(x / y) * y, with the sign of x"),
    ufunc(
        "divmod",
        np.divmod,
        EXACT,
        "(floor_divide(x, y), remainder(x, y))",
        builtin="divmod",
        container="tuple",
    ),
    ufunc(
        "power",
        np.power,
        bounded(2),
        "x to the power y; x ** 2 is x * x",
        infix="**",
        builtin="pow",
        dtype=_dtype_power,
        may_fail=("negative_power",),
    ),
    ufunc("float_power", np.float_power, bounded(2), "x to the power y in float64 or complex128"),
    ufunc("negative", np.negative, EXACT, "-x; not defined for bools", infix="-x"),
    ufunc("positive", np.positive, EXACT, "a copy of x; not defined for bools", infix="+x"),
    ufunc("absolute", np.absolute, EXACT, "|x|, real for complex x", builtin="abs"),
    ufunc("fabs", np.fabs, EXACT, "|x| as a floating number"),
    ufunc("sign", np.sign, EXACT, "-1, 0 or 1; NaN stays NaN; x / |x| for complex x"),
    ufunc("copysign", np.copysign, EXACT, "|x| with the sign of y"),
    ufunc("signbit", np.signbit, EXACT, "whether the sign bit of x is set"),
    ufunc("nextafter", np.nextafter, EXACT, "the next floating number from x towards y"),
    ufunc("gcd", np.gcd, EXACT, "greatest common divisor of |x| and |y|"),
    ufunc("lcm", np.lcm, EXACT, "least common multiple of |x| and |y|"),
    elementwise(
        "fma",
        fma,
        rules.dtype_real_common,
        EXACT,
        "x * y + z, rounded once; integers wrap",
        operands="x y z",
    ),
    # The larger and the smaller.
    ufunc("maximum", np.maximum, EXACT, "the larger; NaN if either is NaN"),
    ufunc("minimum", np.minimum, EXACT, "the smaller; NaN if either is NaN"),
    ufunc("fmax", np.fmax, EXACT, "the larger; a NaN loses against a number"),
    ufunc("fmin", np.fmin, EXACT, "the smaller; a NaN loses against a number"),
    # Comparison: Python ints of any size compare by value.
    ufunc("equal", np.equal, EXACT, "x == y", infix="==", any_int=True),
    ufunc("not_equal", np.not_equal, EXACT, "x != y", infix="!=", any_int=True),
    ufunc("less", np.less, EXACT, "x < y; complex by real, then imaginary part", infix="<", any_int=True),
    ufunc("less_equal", np.less_equal, EXACT, "x <= y", infix="<=", any_int=True),
    ufunc("greater", np.greater, EXACT, "x > y", infix=">", any_int=True),
    ufunc("greater_equal", np.greater_equal, EXACT, "x >= y", infix=">=", any_int=True),
    # Logic of truth values: anything but zero is true, NaN too.
    ufunc("logical_and", np.logical_and, EXACT, "both are not zero"),
    ufunc("logical_or", np.logical_or, EXACT, "one is not zero"),
    ufunc("logical_xor", np.logical_xor, EXACT, "exactly one is not zero"),
    ufunc("logical_not", np.logical_not, EXACT, "x is zero"),
    # Bits of integers and bools.
    ufunc("bitwise_and", np.bitwise_and, EXACT, "x & y", infix="&"),
    ufunc("bitwise_or", np.bitwise_or, EXACT, "x | y", infix="|"),
    ufunc("bitwise_xor", np.bitwise_xor, EXACT, "x ^ y", infix="^"),
    ufunc("invert", np.invert, EXACT, "~x; logical not of bools", infix="~x"),
    ufunc("left_shift", np.left_shift, EXACT, "x << y; 0 beyond the width", infix="<<"),
    ufunc("right_shift", np.right_shift, EXACT, "x >> y; the sign beyond the width", infix=">>"),
    ufunc("bitwise_count", np.bitwise_count, EXACT, "number of one bits of |x|, as uint8"),
)
