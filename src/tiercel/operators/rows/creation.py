"""Rows that make arrays from sizes and scalars: zeros, full, eye, arange, linspace and their _like forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tiercel.dtypes import float64
from tiercel.operators import creating, rules
from tiercel.operators.reference import creation as reference
from tiercel.operators.table import (
    EXACT,
    FRESH,
    PURE,
    REQUIRED,
    Call,
    DTypeRule,
    Exactness,
    LayoutRule,
    Lowering,
    Operator,
    Spelling,
    bounded,
    function,
    parameters,
)


def creation(
    name: str,
    implementation: Callable[..., Any],
    doc: str,
    shape: Callable[[Call], Any],
    *spellings: Spelling,
    operands: str = "",
    attributes: Mapping[str, object] | None = None,
    dtype: DTypeRule | None = None,
    layout: LayoutRule = rules.layout_c,
    exactness: Exactness = EXACT,
    may_fail: Sequence[str] = (),
) -> Operator:
    """A row that makes a fresh array."""
    return Operator(
        name=name,
        parameters=parameters(operands, attributes),
        spellings=spellings,
        dtype=dtype or creating.attributes_dtype(float64),
        shape=shape,
        layout=layout,
        kind=rules.kind_array,
        result=FRESH,
        effect=PURE,
        exactness=exactness,
        may_fail=(*may_fail, "memory"),
        reference=implementation,
        lowering=Lowering("creation", name),
        doc=doc,
    )


def _filled(name: str, implementation: Callable[..., Any], doc: str) -> Operator:
    return creation(
        name,
        implementation,
        doc,
        creating.shape_given,
        function(f"numpy.{name}", "shape dtype order"),
        attributes={"shape": REQUIRED, "dtype": None, "order": "C"},
        layout=creating.layout_order,
    )


def _filled_like(name: str, implementation: Callable[..., Any], doc: str) -> Operator:
    return creation(
        name,
        implementation,
        doc,
        creating.shape_given_or_like,
        function(
            f"numpy.{name}",
            "a=x dtype order !subok shape" if name != "empty_like" else "prototype=x dtype order !subok shape",
        ),
        operands="x",
        attributes={"dtype": None, "order": "K", "shape": None},
        dtype=creating.dtype_like_or_given,
        layout=creating.layout_order_like,
    )


ROWS: Final = (
    _filled("zeros", np.zeros, "all elements zero"),
    _filled("ones", np.ones, "all elements one"),
    _filled("empty", np.empty, "elements of any value, to be written before they are read"),
    creation(
        "full",
        reference.full,
        "all elements a value, which broadcasts",
        creating.shape_full,
        function("numpy.full", "shape fill_value dtype order"),
        Spelling(
            "ops",
            "full",
            ("shape", "fill_value", "dtype", "order"),
            {n: n for n in ("shape", "fill_value", "dtype", "order")},
        ),
        operands="fill_value",
        attributes={"shape": REQUIRED, "dtype": None, "order": "C"},
        dtype=creating.dtype_full,
        layout=creating.layout_order,
        may_fail=("broadcast", "range"),
    ),
    _filled_like("zeros_like", reference.zeros_like, "zeros with the shape, dtype and order of an array"),
    _filled_like("ones_like", reference.ones_like, "ones with the shape, dtype and order of an array"),
    _filled_like(
        "empty_like", reference.empty_like, "elements of any value with the shape, dtype and order of an array"
    ),
    creation(
        "full_like",
        reference.full_like,
        "a value with the shape, dtype and order of an array",
        creating.shape_given_or_like,
        function("numpy.full_like", "a=x fill_value dtype order !subok shape"),
        operands="x fill_value",
        attributes={"dtype": None, "order": "K", "shape": None},
        dtype=creating.dtype_full_like,
        layout=creating.layout_order_like,
        may_fail=("broadcast", "range"),
    ),
    creation(
        "eye",
        np.eye,
        "ones on the k-th diagonal, zeros elsewhere",
        creating.shape_eye,
        function("numpy.eye", "N M k dtype order"),
        function("numpy.identity", "n=N dtype"),
        attributes={"N": REQUIRED, "M": None, "k": 0, "dtype": float64, "order": "C"},
        layout=creating.layout_order,
    ),
    creation(
        "tri",
        np.tri,
        "ones at and below the k-th diagonal, zeros above",
        creating.shape_tri,
        function("numpy.tri", "N M k dtype"),
        attributes={"N": REQUIRED, "M": None, "k": 0, "dtype": float64},
    ),
    creation(
        "arange",
        reference.arange,
        "numbers from start (0 if only one is given) up to stop, step apart",
        creating.shape_arange,
        function("numpy.arange", "start stop step dtype"),
        attributes={"start": REQUIRED, "stop": None, "step": None, "dtype": None},
        dtype=creating.dtype_arange,
        exactness=bounded(1),
    ),
    creation(
        "linspace",
        np.linspace,
        "num numbers evenly spaced from start to stop, along a new axis",
        creating.shape_linspace,
        function("numpy.linspace", "start stop num endpoint !retstep dtype axis"),
        operands="start stop",
        attributes={"num": 50, "endpoint": True, "dtype": None, "axis": 0},
        dtype=creating.dtype_linspace,
        layout=creating.layout_linspace,
        exactness=bounded(4),
        may_fail=("broadcast",),
    ),
)
