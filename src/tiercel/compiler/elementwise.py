"""Elementwise rows as scalar expressions: the lowering class "elementwise" of the operator table.

In: a lowering key, the element of each operand, the dtype of the result and the static attributes. Out: one expression
of the loop form. Operands are first converted as NumPy's ufunc would (`operand_dtype`). Keys without an entry are not
compiled and stay interpreted; `explain` names them.

Exact rows use only exact nodes in NumPy's order. Bounded rows may use any formula within their bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tiercel.compiler.graph import Node
from tiercel.dtypes import DType, as_dtype
from tiercel.loops.form import BOOL, INDEX, Binary, Cast, Compare, Const, Expr, Fma, Select, Unary
from tiercel.operators import get
from tiercel.operators.types import ArrayType, NpScalarType, PyBoolType, PyFloatType, PyIntType, Type

Builder: TypeAlias = Callable[[Sequence[Expr], DType, Mapping[str, Any]], Expr]

FLOAT32, FLOAT64 = as_dtype("float32"), as_dtype("float64")


class NotLowered(Exception):
    """A part of a region that has no machine code; the region (or this part of it) stays interpreted.

    Attributes:
        reason: for people, lower case, without a full stop.
        origin: instruction index, None where it is not known.
    """

    def __init__(self, reason: str, origin: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.origin = origin


def cast(x: Expr, dtype: DType) -> Expr:
    """`x` as `dtype`; literals are converted here, where NumPy would do it silently.

    Raises:
        NotLowered: for a literal that overflows: NumPy warns or raises at each call.
    """
    if x.dtype is dtype:
        return x
    if isinstance(x, Const):
        try:
            with np.errstate(all="raise"):
                return Const(dtype.numpy.type(x.value).item(), dtype)
        except (FloatingPointError, OverflowError, ValueError):
            raise NotLowered(f"{x.value} as {dtype.name}") from None
    return Cast(x, dtype)


def scalar_dtype(type_: Type) -> DType:
    """The dtype a scalar value has in registers."""
    match type_:
        case NpScalarType():
            return type_.dtype
        case PyIntType():
            return INDEX
        case PyFloatType():
            return FLOAT64
        case PyBoolType():
            return BOOL
        case ArrayType(shape=()):
            return type_.dtype
    raise NotLowered(f"a {type(type_).__name__.removesuffix('Type')} is no number")


def _number(value: float, dtype: DType) -> Const:
    return Const(value, dtype)


def _unary(op: str) -> Builder:
    return lambda xs, dtype, _: Unary(op, cast(xs[0], dtype))


def _binary(op: str) -> Builder:
    return lambda xs, dtype, _: Binary(op, cast(xs[0], dtype), cast(xs[1], dtype))


def _compare(op: str) -> Builder:
    return lambda xs, _, __: Compare(op, xs[0], xs[1])


def _logical(op: str) -> Builder:
    return lambda xs, _, __: Binary(op, cast(xs[0], BOOL), cast(xs[1], BOOL))


def _rounding(op: str) -> Builder:
    """Rounding leaves integers as they are."""
    return lambda xs, dtype, _: Unary(op, cast(xs[0], dtype)) if dtype.kind == "f" else cast(xs[0], dtype)


def _predicate(op: str, for_integers: bool) -> Builder:
    def build(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
        del dtype
        return Unary(op, xs[0]) if xs[0].dtype.kind == "f" else Const(for_integers, BOOL)

    return build


def _signbit(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
    del dtype
    if xs[0].dtype.kind == "f":
        return Unary("signbit", xs[0])
    # integers are converted to floats first: there is no negative zero among them
    return Compare("lt", xs[0], Const(0, xs[0].dtype)) if xs[0].dtype.kind == "i" else Const(False, BOOL)


def _add(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
    op = "or" if dtype is BOOL else "add"
    return Binary(op, cast(xs[0], dtype), cast(xs[1], dtype))


def _multiply(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
    op = "and" if dtype is BOOL else "mul"
    return Binary(op, cast(xs[0], dtype), cast(xs[1], dtype))


def _absolute(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
    return xs[0] if dtype is BOOL else Unary("abs", cast(xs[0], dtype))


def _divide(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
    """By a power of two as the product with its inverse, which is exact: the same value, and the same flags."""
    x, y = cast(xs[0], dtype), cast(xs[1], dtype)
    if isinstance(y, Const) and dtype.name in ("float32", "float64") and isinstance(y.value, float):
        mantissa, exponent = math.frexp(y.value)
        if abs(mantissa) == 0.5 and abs(exponent) < 64:
            return Binary("mul", x, Const(1 / y.value, dtype))
    return Binary("div", x, y)


def _square(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
    x = cast(xs[0], dtype)
    return Binary("mul", x, x)


def _power(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
    """NumPy's own shortcuts for scalar exponents (`fast_scalar_power`); others need a general power."""
    x, exponent = cast(xs[0], dtype), xs[1]
    if isinstance(exponent, Const) and not isinstance(exponent.value, complex):
        if exponent.value == 2 and dtype.kind in "iuf":
            return Binary("mul", x, x)
        if exponent.value == 1 and dtype.kind in "iuf":
            return x
        if dtype.kind == "f" and exponent.value == 0.5:
            return Unary("sqrt", x)
        if dtype.kind == "f" and exponent.value == -1:
            return Binary("div", _number(1.0, dtype), x)
        if dtype.kind == "f" and exponent.value == 3:  # two roundings: within the bound, and flags as the power's
            return _wide(dtype, lambda v: Binary("mul", Binary("mul", v, v), v), x)
    if dtype.kind != "f":
        raise NotLowered("an integer power with a variable exponent")
    return Binary("pow", x, cast(exponent, dtype))


def _where(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
    return Select(cast(xs[0], BOOL), cast(xs[1], dtype), cast(xs[2], dtype))


def _clip(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
    """np.clip: minimum(maximum(x, low), high), so high wins where they cross."""
    x = cast(xs[0], dtype)
    if len(xs) != 3:
        raise NotLowered("clip with one bound")
    return Binary("min", Binary("max", x, cast(xs[1], dtype)), cast(xs[2], dtype))


def _sigmoid(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
    return Unary("sigmoid", cast(xs[0], dtype))


def _relu(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
    x = cast(xs[0], dtype)
    if dtype is BOOL:
        return x
    zero = _number(0, dtype)
    return Select(Compare("le", x, zero), zero, x)


def _silu(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
    return _wide(dtype, lambda x: Binary("mul", x, Unary("sigmoid", x)), xs[0])


def _wide(dtype: DType, formula: Callable[[Expr], Expr], x: Expr) -> Expr:
    """A formula of several steps: half types are computed in float32 and rounded once."""
    computing = dtype.accumulator if dtype.name in ("float16", "bfloat16") else dtype
    return cast(formula(cast(x, computing)), dtype)


def _gelu(xs: Sequence[Expr], dtype: DType, attributes: Mapping[str, Any]) -> Expr:
    """By erf: the row's bound is in units of the operand, and erfc would cost twice as much."""

    def exact(x: Expr) -> Expr:
        scaled = Binary("mul", x, _number(math.sqrt(0.5), x.dtype))
        half = Binary("mul", _number(0.5, x.dtype), x)
        return Binary("mul", half, Binary("add", _number(1.0, x.dtype), Unary("erf", scaled)))

    def by_sigmoid(x: Expr) -> Expr:
        # x * (1 + tanh(u)) / 2 = x * sigmoid(2 u), without the cancellation for negative x
        cube = Binary("mul", Binary("mul", x, x), x)
        inner = Binary("add", x, Binary("mul", _number(0.044715, x.dtype), cube))
        return Binary("mul", x, Unary("sigmoid", Binary("mul", _number(math.sqrt(8 / math.pi), x.dtype), inner)))

    return _wide(dtype, by_sigmoid if attributes.get("approximate", "none") == "tanh" else exact, xs[0])


def _leaky_relu(xs: Sequence[Expr], dtype: DType, attributes: Mapping[str, Any]) -> Expr:
    slope = float(attributes.get("negative_slope", 0.01))

    def formula(x: Expr) -> Expr:
        positive = Compare("gt", x, _number(0.0, x.dtype))
        return Select(positive, x, Binary("mul", _number(slope, x.dtype), x))

    return _wide(dtype, formula, xs[0])


def _softplus(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
    def formula(x: Expr) -> Expr:
        tail = Unary("log1p", Unary("exp", Unary("neg", Unary("abs", x))))
        return Binary("add", Binary("max", x, _number(0.0, x.dtype)), tail)

    return _wide(dtype, formula, xs[0])


def _elu(xs: Sequence[Expr], dtype: DType, attributes: Mapping[str, Any]) -> Expr:
    alpha = float(attributes.get("alpha", 1.0))

    def formula(x: Expr) -> Expr:
        zero = _number(0.0, x.dtype)
        low = Binary("mul", _number(alpha, x.dtype), Unary("expm1", Binary("min", x, zero)))
        return Select(Compare("gt", x, zero), x, low)

    return _wide(dtype, formula, xs[0])


def _reciprocal(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
    if dtype.kind != "f":
        raise NotLowered("an integer reciprocal")
    return Binary("div", _number(1.0, dtype), cast(xs[0], dtype))


def _round(xs: Sequence[Expr], dtype: DType, attributes: Mapping[str, Any]) -> Expr:
    if attributes.get("decimals", 0) != 0 or dtype.kind != "f":
        raise NotLowered("round to decimals")
    return Unary("rint", cast(xs[0], dtype))


def _scaled(factor: float) -> Builder:
    return lambda xs, dtype, _: _wide(dtype, lambda x: Binary("mul", x, _number(factor, x.dtype)), xs[0])


def _logaddexp(exponential: str, unit: float) -> Builder:
    """max(x, y) + log(1 + e**-|x - y|), in another base by `exponential` and its `unit`; equal infinities are kept.

    NaN raises the flag `invalid`, as NumPy's comparisons in this function do.
    """

    def formula(x: Expr, y: Expr) -> Expr:
        zero = _number(0.0, x.dtype)
        distance: Expr = Select(Compare("eq", x, y), zero, Binary("sub", x, y))
        stray = Select(Unary("isnan", distance), _number(math.inf, x.dtype), zero)
        distance = Binary("add", distance, Binary("sub", stray, stray))
        tail: Expr = Unary("log1p", Unary(exponential, Unary("neg", Unary("abs", distance))))
        if unit != 1.0:
            tail = Binary("mul", _number(unit, x.dtype), tail)
        return Binary("add", Binary("max", x, y), tail)

    def build(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
        y = xs[1]
        computing = dtype.accumulator if dtype.name in ("float16", "bfloat16") else dtype
        return _wide(dtype, lambda x: formula(x, cast(cast(y, dtype), computing)), cast(xs[0], dtype))

    return build


def _float_power(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
    if dtype.kind != "f":
        raise NotLowered("a complex power")
    return Binary("pow", cast(xs[0], dtype), cast(xs[1], dtype))


def _fma(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
    a, b, c = (cast(x, dtype) for x in xs)
    if dtype.kind in "iu":
        return Binary("add", Binary("mul", a, b), c)
    if dtype.name in ("float32", "float64"):
        return Fma(a, b, c)
    if dtype.name == "float16":
        # in float64 the sum is exact wherever it comes near the middle between two half numbers
        wide = (cast(x, as_dtype("float64")) for x in (a, b, c))
        return cast(Fma(*wide), dtype)
    raise NotLowered(f"fma of {dtype.name}")


def _division(op: str) -> Builder:
    def build(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
        if dtype.kind == "f":
            return Binary(op, cast(xs[0], dtype), cast(xs[1], dtype))
        if dtype.kind not in "iu" or op == "fmod":
            raise NotLowered(f"{op} of {dtype.name}")
        x, y = cast(xs[0], dtype), cast(xs[1], dtype)
        if isinstance(y, Const) and y.value not in (0, -1):
            return Binary(op, x, y)
        return _guarded_division(op, x, y, dtype)

    return build


def _guarded_division(op: str, x: Expr, y: Expr, dtype: DType) -> Expr:
    """Integer division by anything: by zero it is zero with the flag `divide`, by -1 the (wrapped) negative."""
    zero, one = _number(0, dtype), _number(1, dtype)
    nothing = Compare("eq", y, zero)
    unsafe: Expr = nothing
    otherwise: Expr = zero
    if dtype.kind == "i":
        opposite = Compare("eq", y, _number(-1, dtype))
        unsafe = Binary("or", nothing, opposite)
        if op == "floordiv":
            otherwise = Select(opposite, Unary("neg", x), zero)
    result = Select(unsafe, otherwise, Binary(op, x, Select(unsafe, one, y)))
    result = _after(Binary("div", _number(1.0, FLOAT32), Cast(y, FLOAT32)), result)
    if dtype.kind == "i" and op == "floordiv":
        beyond = Binary("and", opposite, Compare("eq", x, _number(int(np.iinfo(dtype.numpy).min), dtype)))
        large = Select(beyond, Cast(x, FLOAT64), _number(2.0, FLOAT64))
        result = _after(Binary("mul", large, _number(8e307, FLOAT64)), result)
    return result


def _after(raising: Expr, result: Select) -> Select:
    """`result`, with the flags of `raising`, a number that is never zero and not made of constants alone."""
    return Select(Compare("eq", raising, _number(0.0, raising.dtype)), _number(0, result.dtype), result)


def _shift(op: str) -> Builder:
    """NumPy's shifts: by less than 0, or by all bits and more, nothing (or the sign) is left."""

    def build(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
        if dtype.kind not in "iu":
            raise NotLowered(f"a shift of {dtype.name}")
        x, y = cast(xs[0], dtype), cast(xs[1], dtype)
        bits = 8 * dtype.itemsize
        zero, last = _number(0, dtype), _number(bits - 1, dtype)
        fits: Expr = Compare("le", y, last)
        if dtype.kind == "i":
            fits = Binary("and", fits, Compare("ge", y, zero))
        if op == "shr" and dtype.kind == "i":
            return Binary("shr", x, Select(fits, y, last))
        return Select(fits, Binary(op, x, Select(fits, y, zero)), zero)

    return build


def _invert(xs: Sequence[Expr], dtype: DType, _: Mapping[str, Any]) -> Expr:
    return Unary("not" if dtype is BOOL else "invert", cast(xs[0], dtype))


EXPRESSIONS: Mapping[str, Builder] = {
    "add": _add,
    "subtract": _binary("sub"),
    "multiply": _multiply,
    "divide": _divide,
    "floor_divide": _division("floordiv"),
    "remainder": _division("mod"),
    "fmod": _division("fmod"),
    "fma": _fma,
    "power": _power,
    "float_power": _float_power,
    "negative": _unary("neg"),
    "positive": lambda xs, dtype, _: cast(xs[0], dtype),
    "absolute": _absolute,
    "fabs": _unary("abs"),
    "sign": _unary("sign"),
    "copysign": _binary("copysign"),
    "signbit": _signbit,
    "square": _square,
    "reciprocal": _reciprocal,
    "maximum": _binary("max"),
    "minimum": _binary("min"),
    "fmax": lambda xs, d, _: Binary("fmax" if d.kind == "f" else "max", cast(xs[0], d), cast(xs[1], d)),
    "fmin": lambda xs, d, _: Binary("fmin" if d.kind == "f" else "min", cast(xs[0], d), cast(xs[1], d)),
    "equal": _compare("eq"),
    "not_equal": _compare("ne"),
    "less": _compare("lt"),
    "less_equal": _compare("le"),
    "greater": _compare("gt"),
    "greater_equal": _compare("ge"),
    "logical_and": _logical("and"),
    "logical_or": _logical("or"),
    "logical_xor": _logical("xor"),
    "logical_not": lambda xs, _, __: Unary("not", cast(xs[0], BOOL)),
    "bitwise_and": _binary("and"),
    "bitwise_or": _binary("or"),
    "bitwise_xor": _binary("xor"),
    "invert": _invert,
    "left_shift": _shift("shl"),
    "right_shift": _shift("shr"),
    "exp": _unary("exp"),
    "exp2": _unary("exp2"),
    "expm1": _unary("expm1"),
    "log": _unary("log"),
    "log2": _unary("log2"),
    "log10": _unary("log10"),
    "log1p": _unary("log1p"),
    "logaddexp": _logaddexp("exp", 1.0),
    "logaddexp2": _logaddexp("exp2", math.log2(math.e)),
    "sqrt": _unary("sqrt"),
    "cbrt": _unary("cbrt"),
    "hypot": _binary("hypot"),
    "rsqrt": lambda xs, d, _: _wide(d, lambda x: Binary("div", _number(1.0, x.dtype), Unary("sqrt", x)), xs[0]),
    "sin": _unary("sin"),
    "cos": _unary("cos"),
    "tan": _unary("tan"),
    "arcsin": _unary("arcsin"),
    "arccos": _unary("arccos"),
    "arctan": _unary("arctan"),
    "arctan2": _binary("atan2"),
    "sinh": _unary("sinh"),
    "cosh": _unary("cosh"),
    "tanh": _unary("tanh"),
    "arcsinh": _unary("arcsinh"),
    "arccosh": _unary("arccosh"),
    "arctanh": _unary("arctanh"),
    "degrees": _scaled(180 / math.pi),
    "radians": _scaled(math.pi / 180),
    "rint": _rounding("rint"),
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "trunc": _rounding("trunc"),
    "round": _round,
    "clip": _clip,
    "isnan": _predicate("isnan", for_integers=False),
    "isinf": _predicate("isinf", for_integers=False),
    "isfinite": _predicate("isfinite", for_integers=True),
    "where": _where,
    "cast": lambda xs, dtype, _: cast(xs[0], dtype),
    "relu": _relu,
    "sigmoid": _sigmoid,
    "silu": _silu,
    "softplus": _softplus,
    "erf": _unary("erf"),
    "erfc": _unary("erfc"),
    "gelu": _gelu,
    "leaky_relu": _leaky_relu,
    "elu": _elu,
}
"""Lowering key -> expression. `tests/compiler` holds every entry against the row's reference."""


def is_elementwise(node: Node) -> bool:
    """Does the node compute an array element by element, with code for it?"""
    row = get(node.operator).lowering
    return row.cls == "elementwise" and row.key in EXPRESSIONS and len(node.outputs) == 1 and node.writes is None


COMPARISONS = frozenset(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
EXPENSIVE = frozenset(
    (
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "tanh", "sigmoid", "erf"),
        *("arcsin", "arccos", "arctan", "arctan2", "sinh", "cosh", "arcsinh", "arccosh", "arctanh", "erfc", "cbrt"),
        *("hypot", "logaddexp", "logaddexp2", "floor_divide", "remainder", "fmod", "float_power"),
        *("gelu", "silu", "softplus", "elu", "power", "divide", "sqrt", "rsqrt"),
    )
)
"""Keys whose result is kept rather than computed twice."""
