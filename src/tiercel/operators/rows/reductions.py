"""Folds over axes, running folds, and the position of an extreme element."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiercel.dtypes import DType, bool_, float64, int64
from tiercel.errors import ShapeError
from tiercel.operators import rules
from tiercel.operators.families import reduction
from tiercel.operators.layout import Layout
from tiercel.operators.reference import reductions as reference
from tiercel.operators.table import (
    EXACT,
    FRESH,
    PURE,
    Call,
    Lowering,
    Operator,
    function,
    method,
    parameters,
    reordered,
)
from tiercel.operators.types import NotStatic, PyIntType, Shape, Type
from tiercel.shapes import product


def _dtype_mean(call: Call) -> DType:
    # The sum is taken in this dtype; it refuses what it refuses there.
    given = rules.attribute_dtype(call)
    return rules.dtype_float(call) if given is None else rules.reduced_dtype(np.add, call)


def _dtype_var(call: Call) -> DType:
    given, own = rules.attribute_dtype(call), rules.dtype_float(call)
    if given is None:
        return own.real
    if not given.is_float or own.is_complex:
        raise NotStatic(
            "a variance in an integer or complex dtype, or of complex numbers in a given dtype, is left to NumPy"
        )
    return rules.reduced_dtype(np.add, call)


def _dtype_norm(call: Call) -> DType:
    dtype = rules.dtype_of(call.operand(0))
    # np.linalg.norm knows NumPy's own floating types only and takes bfloat16 for an integer.
    return dtype.real if dtype.is_inexact and dtype.name != "bfloat16" else float64


def _shape_norm(call: Call) -> Shape:
    order, axis, shape = call["ord"], call["axis"], call.shape(0)
    axes = rules.normalized_axes(axis, len(shape))
    vector = len(axes) == 1 and (order is None or isinstance(order, int | float))
    whole = axis is None and order is None
    frobenius = len(axes) == 2 and order in (None, "fro")
    if not (vector or whole or frobenius):
        raise NotStatic(f"norm of order {order!r} over {len(axes)} axes is left to NumPy")
    return rules.reduce_dims(shape, axes, call["keepdims"])


def _shape_arg(call: Call) -> Shape:
    axis, keepdims, shape = call["axis"], call["keepdims"], call.shape(0)
    if axis is not None and len(shape) == 0 and axis in (0, -1):
        return ()
    axes = rules.normalized_axes(axis, len(shape))
    if any(shape[a] == 0 for a in axes) and rules.fixed_dims(shape):
        kept = rules.reduce_dims(shape, axes, keepdims=False)
        if all(d != 0 for d in kept):
            raise ShapeError(f"attempt to get {call.operator.name} of an empty sequence")
    return rules.reduce_dims(shape, axes, keepdims)


def _shape_running(call: Call) -> Shape:
    axis, shape = call["axis"], call.shape(0)
    if axis is None:
        return (product(shape),)
    if not shape and axis in (0, -1):
        return (1,)
    rules.normalized_axes(axis, len(shape))
    return shape


def _layout_running(call: Call, shape: Shape) -> Layout:
    return rules.layout_c(call, shape) if call["axis"] is None else rules.layout_k(call, shape)


def _kind_count(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    # Without an axis NumPy counts in C; before 2.3 that gave a Python int.
    if call["axis"] is None and not call["keepdims"] and isinstance(np.count_nonzero(()), int):
        return PyIntType()
    return rules.kind_numpy(call, dtype, shape, layout)


def _layout_count(call: Call, shape: Shape) -> Layout:
    # NumPy sums x.astype(bool, copy=False).
    copied = rules.dtype_of(call.operand(0)) is not bool_
    layout = rules.layout_copy_k(call, call.shape(0)) if copied else call.layout(0)
    return rules.reduced_layout(call, shape, layout)


def _running(name: str, ufunc: np.ufunc, implementation: Any, doc: str) -> Operator:
    return Operator(
        name=name,
        parameters=parameters("x", {"axis": None, "dtype": None}),
        spellings=(function(f"numpy.{name}", "a=x axis dtype !out"), method(name, "x axis dtype !out")),
        dtype=rules.dtype_reduce(ufunc),
        shape=_shape_running,
        layout=_layout_running,
        kind=rules.kind_array,
        result=FRESH,
        effect=PURE,
        exactness=reordered(),
        may_fail=(),
        reference=implementation,
        lowering=Lowering("scan", name),
        doc=doc,
    )


_FOLD = "x axis dtype !out keepdims !initial !where"
_EXTREME = "x axis !out keepdims !initial !where"
_TRUTH = "x axis !out keepdims * !where"
_SPREAD = "x axis dtype !out ddof keepdims * !where !mean"


def _spellings(signature: str, *names: str, as_method: bool = True) -> tuple[Any, ...]:
    forms = [function(f"numpy.{name}", "a=" + signature) for name in names]
    if as_method:
        forms.append(method(names[0], signature))
    return tuple(forms)


ROWS = (
    reduction(
        "sum",
        reference.sum_,
        rules.dtype_reduce(np.add),
        reordered(),
        "sum; bools and small integers add up as int64 or uint64, half types in float32",
        attributes={"dtype": None},
        spellings=_spellings(_FOLD, "sum"),
    ),
    reduction(
        "prod",
        reference.prod,
        rules.dtype_reduce(np.multiply),
        reordered(),
        "product; dtypes as for sum",
        attributes={"dtype": None},
        spellings=_spellings(_FOLD, "prod"),
    ),
    reduction(
        "mean",
        reference.mean,
        _dtype_mean,
        reordered(),
        "arithmetic mean; integers as float64; NaN with a warning if empty",
        attributes={"dtype": None},
        shape=rules.shape_reduce(scalar_axis=False),
        spellings=(
            function("numpy.mean", "a=x axis dtype !out keepdims * !where"),
            method("mean", "x axis dtype !out keepdims * !where"),
        ),
    ),
    reduction(
        "var",
        reference.var,
        _dtype_var,
        reordered(),
        "mean of |x - mean(x)|**2, the divisor less ddof",
        attributes={"dtype": None, "ddof": 0},
        shape=rules.shape_reduce(scalar_axis=False),
        spellings=_spellings(_SPREAD, "var"),
    ),
    reduction(
        "std",
        reference.std,
        _dtype_var,
        reordered(),
        "square root of var",
        attributes={"dtype": None, "ddof": 0},
        shape=rules.shape_reduce(scalar_axis=False),
        spellings=_spellings(_SPREAD, "std"),
    ),
    reduction(
        "max",
        np.max,
        rules.dtype_reduce(np.maximum),
        EXACT,
        "largest element; NaN if any is NaN",
        spellings=_spellings(_EXTREME, "max", "amax"),
        needs_element=True,
    ),
    reduction(
        "min",
        np.min,
        rules.dtype_reduce(np.minimum),
        EXACT,
        "smallest element; NaN if any is NaN",
        spellings=_spellings(_EXTREME, "min", "amin"),
        needs_element=True,
    ),
    reduction(
        "ptp",
        np.ptp,
        rules.dtype_ptp,
        EXACT,
        "largest minus smallest element",
        spellings=(function("numpy.ptp", "a=x axis !out keepdims"),),
        needs_element=True,
    ),
    reduction(
        "any",
        np.any,
        rules.dtype_bool,
        EXACT,
        "whether one element is not zero",
        spellings=_spellings(_TRUTH, "any"),
    ),
    reduction(
        "all",
        np.all,
        rules.dtype_bool,
        EXACT,
        "whether no element is zero",
        spellings=_spellings(_TRUTH, "all"),
    ),
    reduction(
        "argmax",
        np.argmax,
        rules.dtype_fixed(int64),
        EXACT,
        "index of the first largest element, of the first NaN if there is one; without axis into the flattened array",
        spellings=(function("numpy.argmax", "a=x axis !out * keepdims"), method("argmax", "x axis !out * keepdims")),
        shape=_shape_arg,
        layout=rules.layout_c,
        may_fail=("empty",),
    ),
    reduction(
        "argmin",
        np.argmin,
        rules.dtype_fixed(int64),
        EXACT,
        "index of the first smallest element, of the first NaN if there is one",
        spellings=(function("numpy.argmin", "a=x axis !out * keepdims"), method("argmin", "x axis !out * keepdims")),
        shape=_shape_arg,
        layout=rules.layout_c,
        may_fail=("empty",),
    ),
    reduction(
        "count_nonzero",
        np.count_nonzero,
        rules.dtype_fixed(int64),
        EXACT,
        "number of elements that are not zero",
        spellings=(function("numpy.count_nonzero", "a=x axis * keepdims"),),
        kind=_kind_count,
        layout=_layout_count,
    ),
    _running("cumsum", np.add, reference.cumsum, "running sum along axis, of the flattened array without one"),
    _running("cumprod", np.multiply, reference.cumprod, "running product along axis"),
    reduction(
        "logsumexp",
        reference.logsumexp,
        rules.dtype_real_float,
        reordered(),
        "log(sum(exp(x))) without overflow",
    ),
    reduction(
        "norm",
        reference.norm,
        _dtype_norm,
        reordered(),
        "vector norm of order ord (None is 2) over one axis, or Frobenius norm over all",
        attributes={"ord": None},
        spellings=(function("numpy.linalg.norm", "x ord axis keepdims"),),
        shape=_shape_norm,
    ),
)
