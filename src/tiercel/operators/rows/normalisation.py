"""softmax and the normalisation layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiercel.errors import ShapeError
from tiercel.operators import rules
from tiercel.operators.layout import Layout, k_order
from tiercel.operators.reference import normalisation as reference
from tiercel.operators.table import FRESH, PURE, Call, Lowering, Operator, parameters, reordered
from tiercel.operators.types import Shape


def _shape_softmax(call: Call) -> Shape:
    rules.reduced_axes(call)
    return call.shape(0)


def _shape_normalised(call: Call) -> Shape:
    """The shape of x; weight, bias and statistics must have the sizes of `axis`."""
    shape = call.shape(0)
    axes = rules.normalized_axes(call["axis"], len(shape))
    expected = tuple(shape[a] for a in axes)
    for position in range(1, call.operator.arity):
        if not call.given(position):
            continue
        given = call.shape(position)
        name = call.operator.parameters[position].name
        sizes = zip(given, expected, strict=False)
        if len(given) != len(expected) or any(isinstance(g, int) and isinstance(e, int) and g != e for g, e in sizes):
            raise ShapeError(f"{call.operator.name}: {name} must have shape {expected}, got {given}")
    return shape


def _layout_first(call: Call, shape: Shape) -> Layout:
    """The axis order of x, whatever the other operands have."""
    return k_order([(call.shape(0), call.layout(0))], shape, call.facts)


def _row(
    name: str, implementation: Any, operands: str, attributes: Mapping[str, object], doc: str, **columns: Any
) -> Operator:
    return Operator(
        name=name,
        parameters=parameters(operands, attributes),
        spellings=(),
        dtype=rules.dtype_real_float_common,
        shape=columns.pop("shape", _shape_normalised),
        layout=_layout_first,
        kind=rules.kind_numpy,
        result=FRESH,
        effect=PURE,
        exactness=reordered(),
        may_fail=columns.pop("may_fail", ("size",)),
        reference=implementation,
        lowering=Lowering("reduction", name),
        doc=doc,
    )


ROWS = (
    _row(
        "softmax",
        reference.softmax,
        "x",
        {"axis": -1},
        "exp(x - max) / sum(exp(x - max)) over axis; a slice of -inf only is NaN",
        shape=_shape_softmax,
        may_fail=(),
    ),
    _row(
        "log_softmax",
        reference.log_softmax,
        "x",
        {"axis": -1},
        "logarithm of softmax over axis",
        shape=_shape_softmax,
        may_fail=(),
    ),
    _row(
        "layer_norm",
        reference.layer_norm,
        "x weight? bias?",
        {"axis": -1, "eps": 1e-5},
        "(x - mean) / sqrt(var + eps) * weight + bias over axis; weight and bias have the sizes of axis",
    ),
    _row(
        "rms_norm",
        reference.rms_norm,
        "x weight?",
        {"axis": -1, "eps": 1e-6},
        "x / sqrt(mean(x * x) + eps) * weight over axis",
    ),
    _row(
        "batch_norm",
        reference.batch_norm,
        "x mean var weight? bias?",
        {"axis": 1, "eps": 1e-5},
        "(x - mean) / sqrt(var + eps) * weight + bias with given statistics, one for each index of axis",
    ),
)
