"""Elementary functions, rounding, classification, selection and activations, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiercel.dtypes import DType, as_dtype, bool_, float16
from tiercel.errors import DTypeError
from tiercel.operators import rules
from tiercel.operators.families import elementwise, ufunc
from tiercel.operators.layout import Layout
from tiercel.operators.reference import activation
from tiercel.operators.table import (
    EXACT,
    FRESH,
    PURE,
    REQUIRED,
    Alias,
    Call,
    Lowering,
    Operator,
    bounded,
    function,
    method,
    parameters,
    property_,
    same,
    view,
)
from tiercel.operators.types import ArrayType, NotStatic, PyIntType, Shape, Type, is_python_scalar

# ---- clip ------------------------------------------------------------------------------------------------------------
# As numpy/_core/_methods.py: a Python int at or beyond an integer dtype's end is no bound at all.


# The ufunc has no public name.
_CLIP: np.ufunc = np._core.umath.clip  # type: ignore[attr-defined]


def _clip_bounds(call: Call) -> tuple[Any, Any]:
    x = rules.dtype_of(call.operand(0))
    low = call.operand(1) if call.given(1) else None
    high = call.operand(2) if call.given(2) else None
    if x.is_integer:
        if isinstance(low, PyIntType) and isinstance(low.value, int) and low.value <= x.min:
            low = None
        if isinstance(high, PyIntType) and isinstance(high.value, int) and high.value >= x.max:
            high = None
    return low, high


def _dtype_clip(call: Call) -> DType:
    low, high = _clip_bounds(call)
    bounds = [b for b in (low, high) if b is not None]
    chosen = (np.positive, np.minimum if low is None else np.maximum, _CLIP)[len(bounds)]
    return rules.apply_ufunc(chosen, (rules.strong(call.operand(0)), *bounds))[0]


# ---- round -----------------------------------------------------------------------------------------------------------


def _decimals(call: Call) -> int:
    value = call["decimals"]
    if not isinstance(value, int):
        raise NotStatic("the number of decimals is not known")
    return value


def _dtype_round(call: Call) -> DType:
    dtype = rules.dtype_of(call.operand(0))
    if dtype is bool_:
        if _decimals(call) == 0:
            return float16
        raise DTypeError("NumPy rounds no bools to decimals")
    return dtype


def _layout_round(call: Call, shape: Shape) -> Layout:
    decimals = _decimals(call)
    if rules.dtype_of(call.operand(0)).is_integer and decimals >= 0:
        return rules.layout_copy_k(call, shape)
    return rules.layout_k(call, shape) if decimals == 0 else rules.layout_f_or_c(call, shape)


# ---- parts of complex numbers ----------------------------------------------------------------------------------------


def _is_complex(call: Call) -> bool:
    return rules.dtype_of(call.operand(0)).is_complex


def _dtype_part(call: Call) -> DType:
    return rules.dtype_of(call.operand(0)).real


def _kind_part(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    if is_python_scalar(call.operand(0)):
        raise NotStatic("a part of a Python number is a Python number")
    return rules.kind_like(0)(call, dtype, shape, layout)


def _layout_real(call: Call, shape: Shape) -> Layout:
    return rules.layout_part(call, shape) if _is_complex(call) else call.layout(0)


def _layout_imag(call: Call, shape: Shape) -> Layout:
    return rules.layout_part(call, shape) if _is_complex(call) else rules.layout_f_or_c(call, shape)


def _result_real(call: Call) -> Alias:
    if not isinstance(call.types[0], ArrayType):
        return FRESH
    return view(0) if _is_complex(call) else same(0)


def _result_imag(call: Call) -> Alias:
    return view(0) if _is_complex(call) and isinstance(call.types[0], ArrayType) else FRESH


def _result_conj(call: Call) -> Alias:
    # The method returns a real array itself; the ufunc copies, and so does the method for types foreign to NumPy.
    x = call.types[0]
    own = call.spelling.kind == "method" and isinstance(x, ArrayType)
    return same(0) if own and not x.dtype.is_complex and x.dtype.name != "bfloat16" else FRESH


def _dtype_conj(call: Call) -> DType:
    if call.spelling.kind == "method":
        return rules.dtype_of(call.operand(0))
    return rules.apply_ufunc(np.conjugate, call.operands)[0]


def _layout_conj(call: Call, shape: Shape) -> Layout:
    return call.layout(0) if _result_conj(call).kind == "same" else rules.layout_k(call, shape)


def _kind_conj(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    kind = rules.kind_like(0) if _result_conj(call).kind == "same" else rules.kind_numpy
    return kind(call, dtype, shape, layout)


def _dtype_angle(call: Call) -> DType:
    dtype = rules.dtype_of(call.operand(0))
    if dtype.is_complex:
        return dtype.real
    # np.angle calls arctan2(0, x).
    return rules.apply_ufunc(np.arctan2, (PyIntType(0), rules.strong(call.operand(0))))[0]


# ---- casts -----------------------------------------------------------------------------------------------------------


def _dtype_cast(call: Call) -> DType:
    dtype = rules.attribute_dtype(call)
    if dtype is None:
        raise NotStatic("astype(None) is NumPy's default dtype")
    return dtype


def _result_cast(call: Call) -> Alias:
    x = call.operand(0)
    unchanged = isinstance(x, ArrayType) and x.dtype is _dtype_cast(call) and not call["copy"]
    return same(0) if unchanged else FRESH


def _layout_cast(call: Call, shape: Shape) -> Layout:
    return call.layout(0) if _result_cast(call).kind == "same" else rules.layout_copy_k(call, shape)


def _cast(x: Any, dtype: Any, copy: bool = True) -> Any:
    x = x if isinstance(x, np.ndarray | np.generic) else np.asarray(x)[()]
    return x.astype(as_dtype(dtype).numpy, copy=copy)


def _function(name: str) -> Any:
    return function(f"numpy.{name}", "x /")


ROWS = (
    # Exponentials and logarithms.
    ufunc("exp", np.exp, bounded(2), "e to the power x"),
    ufunc("exp2", np.exp2, bounded(2), "2 to the power x"),
    ufunc("expm1", np.expm1, bounded(2), "exp(x) - 1, accurate near 0"),
    ufunc("log", np.log, bounded(2), "natural logarithm"),
    ufunc("log2", np.log2, bounded(2), "logarithm to base 2"),
    ufunc("log10", np.log10, bounded(2), "logarithm to base 10"),
    ufunc("log1p", np.log1p, bounded(2), "log(1 + x), accurate near 0"),
    ufunc("logaddexp", np.logaddexp, bounded(3, "operand"), "log(exp(x) + exp(y))"),
    ufunc("logaddexp2", np.logaddexp2, bounded(3, "operand"), "log2(2**x + 2**y)"),
    # Roots and powers.
    ufunc("sqrt", np.sqrt, EXACT, "square root"),
    ufunc("cbrt", np.cbrt, bounded(2), "cube root"),
    ufunc("square", np.square, EXACT, "x * x"),
    ufunc("reciprocal", np.reciprocal, EXACT, "1 / x, in x's own dtype: integers give 0, 1 or -1"),
    ufunc("hypot", np.hypot, bounded(2), "sqrt(x**2 + y**2) without overflow"),
    elementwise("rsqrt", activation.rsqrt, rules.dtype_real_float, bounded(2), "1 / sqrt(x)"),
    # Circular and hyperbolic functions.
    ufunc("sin", np.sin, bounded(2), "sine"),
    ufunc("cos", np.cos, bounded(2), "cosine"),
    ufunc("tan", np.tan, bounded(4), "tangent"),
    ufunc("arcsin", np.arcsin, bounded(4), "inverse sine"),
    ufunc("arccos", np.arccos, bounded(4), "inverse cosine"),
    ufunc("arctan", np.arctan, bounded(4), "inverse tangent"),
    ufunc("arctan2", np.arctan2, bounded(4), "angle of the point (y, x): the first operand is the ordinate"),
    ufunc("sinh", np.sinh, bounded(4), "hyperbolic sine"),
    ufunc("cosh", np.cosh, bounded(4), "hyperbolic cosine"),
    ufunc("tanh", np.tanh, bounded(4), "hyperbolic tangent"),
    ufunc("arcsinh", np.arcsinh, bounded(4), "inverse hyperbolic sine"),
    ufunc("arccosh", np.arccosh, bounded(4), "inverse hyperbolic cosine"),
    ufunc("arctanh", np.arctanh, bounded(4), "inverse hyperbolic tangent"),
    ufunc("degrees", np.degrees, bounded(1), "radians to degrees", spellings=(_function("rad2deg"),)),
    ufunc("radians", np.radians, bounded(1), "degrees to radians", spellings=(_function("deg2rad"),)),
    # Rounding.
    ufunc("rint", np.rint, EXACT, "nearest integer, ties to even"),
    ufunc("floor", np.floor, EXACT, "largest integer not above x; integers and bools stay"),
    ufunc("ceil", np.ceil, EXACT, "smallest integer not below x"),
    ufunc("trunc", np.trunc, EXACT, "integer part"),
    elementwise(
        "round",
        np.round,
        _dtype_round,
        EXACT,
        "nearest multiple of 10**-decimals, ties to even, as NumPy computes it: rint(x * 10**decimals) / 10**decimals",
        attributes={"decimals": 0},
        spellings=(
            function("numpy.round", "a=x decimals !out"),
            function("numpy.around", "a=x decimals !out"),
            method("round", "x decimals !out"),
        ),
        layout=_layout_round,
    ),
    elementwise(
        "clip",
        np.clip,
        _dtype_clip,
        EXACT,
        "minimum(maximum(x, min), max); a bound that is None does not bind",
        operands="x min? max?",
        spellings=(
            function("numpy.clip", "a=x a_min=min a_max=max !out * min max"),
            method("clip", "x min max !out"),
        ),
        layout=rules.layout_k,
        may_fail=("range",),
    ),
    # Classification.
    ufunc("isnan", np.isnan, EXACT, "whether x is NaN"),
    ufunc("isinf", np.isinf, EXACT, "whether x is an infinity"),
    ufunc("isfinite", np.isfinite, EXACT, "whether x is neither NaN nor infinite"),
    # Parts of complex numbers.
    elementwise(
        "real",
        np.real,
        _dtype_part,
        EXACT,
        "real part: a view of a complex array, a real array itself",
        spellings=(property_("real"), function("numpy.real", "val=x")),
        kind=_kind_part,
        layout=_layout_real,
        result=_result_real,
    ),
    elementwise(
        "imag",
        np.imag,
        _dtype_part,
        EXACT,
        "imaginary part: a view of a complex array, read-only zeros for a real one",
        spellings=(property_("imag"), function("numpy.imag", "val=x")),
        kind=_kind_part,
        layout=_layout_imag,
        result=_result_imag,
    ),
    ufunc(
        "conj",
        np.conjugate,
        EXACT,
        "complex conjugate; the method returns a real array itself",
        spellings=(method("conj", "x"), method("conjugate", "x")),
        dtype=_dtype_conj,
        kind=_kind_conj,
        layout=_layout_conj,
        result=_result_conj,
    ),
    elementwise(
        "angle",
        np.angle,
        _dtype_angle,
        bounded(4),
        "angle in the complex plane, in degrees with deg=True",
        attributes={"deg": False},
        spellings=(function("numpy.angle", "z=x deg"),),
    ),
    # Selection and casts.
    elementwise(
        "where",
        np.where,
        rules.dtype_common(1, 2, wraps=True),
        EXACT,
        "x where the condition is not zero, else y; a Python int wraps to the result's dtype",
        operands="condition x y",
        spellings=(function("numpy.where", "condition x y /"),),
        kind=rules.kind_array,
    ),
    Operator(
        name="astype",
        parameters=parameters("x", {"dtype": REQUIRED, "copy": True}),
        spellings=(
            method("astype", "x dtype !order !casting !subok copy"),
            function("numpy.astype", "x dtype / * copy"),
        ),
        dtype=_dtype_cast,
        shape=rules.shape_like(0),
        layout=_layout_cast,
        kind=rules.kind_like(0),
        result=_result_cast,
        effect=PURE,
        exactness=EXACT,
        may_fail=(),
        reference=_cast,
        lowering=Lowering("elementwise", "cast"),
        doc="x converted to a dtype, rounding to nearest even; out-of-range floats to integers as C does",
    ),
    # Activations: operators NumPy does not have.
    elementwise("relu", activation.relu, rules.dtype_real, EXACT, "x where x > 0 or x is NaN, else +0"),
    elementwise("sigmoid", activation.sigmoid, rules.dtype_real_float, bounded(4), "1 / (1 + exp(-x))"),
    elementwise("silu", activation.silu, rules.dtype_real_float, bounded(6), "x * sigmoid(x)"),
    elementwise("softplus", activation.softplus, rules.dtype_real_float, bounded(4), "log(1 + exp(x))"),
    elementwise("erf", activation.erf, rules.dtype_real_float, bounded(2), "the error function"),
    elementwise("erfc", activation.erfc, rules.dtype_real_float, bounded(4), "1 - erf(x), accurate for large x"),
    elementwise(
        "gelu",
        activation.gelu,
        rules.dtype_real_float,
        bounded(6, "operand"),
        'x * (1 + erf(x / sqrt 2)) / 2; approximate="tanh": x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x**3))) / 2',
        attributes={"approximate": "none"},
    ),
    elementwise(
        "leaky_relu",
        activation.leaky_relu,
        rules.dtype_real_float,
        EXACT,
        "x where x > 0, else negative_slope * x",
        attributes={"negative_slope": 0.01},
    ),
    elementwise(
        "elu",
        activation.elu,
        rules.dtype_real_float,
        bounded(4),
        "x where x > 0, else alpha * (exp(x) - 1)",
        attributes={"alpha": 1.0},
    ),
)
