"""Rows that multiply and sum over shared axes: matmul, dot, einsum, linear and their relatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tiercel.operators import contractions, rules
from tiercel.operators.reference.contraction import einsum, linear, trace
from tiercel.operators.table import (
    EXACT,
    FRESH,
    PURE,
    REQUIRED,
    Alias,
    Call,
    DTypeRule,
    Exactness,
    KindRule,
    LayoutRule,
    Lowering,
    Operator,
    Spelling,
    function,
    inplace,
    method,
    parameters,
    reordered,
    syntax,
)


def contraction(
    name: str,
    reference: Callable[..., Any],
    doc: str,
    shape: Callable[[Call], Any],
    *spellings: Spelling,
    operands: str = "x y",
    attributes: Mapping[str, object] | None = None,
    dtype: DTypeRule = contractions.dtype_dot,
    layout: LayoutRule = rules.layout_c,
    kind: KindRule = rules.kind_numpy,
    result: Alias | Callable[[Call], Any] = FRESH,
    exactness: Exactness | None = None,
) -> Operator:
    """A row that sums products; the order of the terms is free."""
    return Operator(
        name=name,
        parameters=parameters(operands, attributes),
        spellings=spellings,
        dtype=dtype,
        shape=shape,
        layout=layout,
        kind=kind,
        result=result,
        effect=PURE,
        exactness=exactness or reordered(),
        may_fail=("size",),
        reference=reference,
        lowering=Lowering("contraction", name),
        doc=doc,
    )


ROWS: Final = (
    contraction(
        "matmul",
        np.matmul,
        "matrix product over the last two axes, leading axes broadcast; of bfloat16 in float32, NumPy's only loop",
        contractions.shape_matmul,
        syntax("@", "x y"),
        inplace("@="),
        function("numpy.matmul", "x y /"),
        dtype=rules.dtype_ufunc(np.matmul),
        layout=contractions.layout_matmul,
    ),
    contraction(
        "dot",
        np.dot,
        "sum over the last axis of x and the second to last of y; a scalar multiplies",
        contractions.shape_dot,
        function("numpy.dot", "a=x b=y"),
        method("dot", "x y"),
    ),
    contraction(
        "inner",
        np.inner,
        "sum over the last axes of both; a scalar multiplies",
        contractions.shape_inner,
        function("numpy.inner", "x y /"),
    ),
    contraction(
        "vdot",
        np.vdot,
        "sum of the products of all elements, those of x conjugated",
        contractions.shape_vdot,
        function("numpy.vdot", "x y /"),
    ),
    contraction(
        "outer",
        np.outer,
        "every element of x times every element of y",
        contractions.shape_outer,
        function("numpy.outer", "a=x b=y"),
        dtype=contractions.dtype_outer,
        exactness=EXACT,
    ),
    contraction(
        "tensordot",
        np.tensordot,
        "sum over pairs of axes, the last and the first ones by default",
        contractions.shape_tensordot,
        function("numpy.tensordot", "a=x b=y axes"),
        attributes={"axes": 2},
        kind=rules.kind_array,
    ),
    contraction(
        "einsum",
        einsum,
        "sum of products by Einstein's convention; a view if nothing is multiplied or summed",
        contractions.shape_einsum,
        function("numpy.einsum", "subscripts *operands"),
        Spelling("ops", "einsum", ("subscripts", "*operands")),
        operands="operands*",
        attributes={"subscripts": REQUIRED},
        dtype=contractions.dtype_einsum,
        layout=contractions.layout_einsum,
        kind=contractions.kind_einsum,
        result=contractions.alias_einsum,
    ),
    contraction(
        "linear",
        linear,
        "x @ w.T + b; half types are summed in float32 and rounded once",
        contractions.shape_linear,
        operands="x w b?",
        dtype=contractions.dtype_linear,
        kind=rules.kind_array,
    ),
    contraction(
        "trace",
        trace,
        "sum of a diagonal of two axes",
        contractions.shape_trace,
        method("trace", "x offset axis1 axis2 dtype"),
        function("numpy.trace", "a=x offset axis1 axis2 dtype"),
        operands="x",
        attributes={"offset": 0, "axis1": 0, "axis2": 1, "dtype": None},
        dtype=rules.dtype_reduce(np.add),
        layout=contractions.layout_trace,
    ),
)
