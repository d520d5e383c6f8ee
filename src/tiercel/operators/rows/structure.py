"""Rows that copy an array, hand it on, or say what it is: copy, asarray, identity, depend, shape, size, item, ..."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tiercel.dtypes import int64
from tiercel.operators import creating, rules
from tiercel.operators.reference import creation as reference
from tiercel.operators.table import (
    EXACT,
    FRESH,
    PURE,
    REQUIRED,
    Call,
    DTypeRule,
    KindRule,
    LayoutRule,
    Lowering,
    Operator,
    Spelling,
    function,
    method,
    parameters,
    property_,
)


def structure(
    name: str,
    implementation: Callable[..., Any],
    doc: str,
    *spellings: Spelling,
    operands: str = "x",
    attributes: Mapping[str, object] | None = None,
    shape: Callable[[Call], Any] | None = None,
    dtype: DTypeRule | None = None,
    layout: LayoutRule = creating.layout_first,
    kind: KindRule = rules.kind_array,
    result: Any = FRESH,
    may_fail: Sequence[str] = (),
    lowering: str = "movement",
) -> Operator:
    """A row that changes no element."""
    return Operator(
        name=name,
        parameters=parameters(operands, attributes),
        spellings=spellings,
        dtype=dtype or rules.dtype_like(),
        shape=shape or rules.shape_like(),
        layout=layout,
        kind=kind,
        result=result,
        effect=PURE,
        exactness=EXACT,
        may_fail=tuple(may_fail),
        reference=implementation,
        lowering=Lowering(lowering, name),  # type: ignore[arg-type]
        doc=doc,
    )


def _question(
    name: str,
    implementation: Callable[..., Any],
    doc: str,
    kind: KindRule,
    *spellings: Spelling,
    **columns: Any,
) -> Operator:
    """A row whose answer follows from the operand's type."""
    columns.setdefault("dtype", rules.dtype_fixed(int64))
    return structure(
        name,
        implementation,
        doc,
        *spellings,
        shape=columns.pop("shape", creating.shape_nothing),
        layout=rules.layout_c,
        kind=kind,
        lowering="opaque",
        **columns,
    )


ROWS: Final = (
    # ---- copies
    structure(
        "copy",
        np.copy,
        "a copy in the order of the array; the method copies in C order",
        method("copy", "x order", order="C"),
        function("numpy.copy", "a=x order !subok"),
        attributes={"order": "K"},
        layout=creating.layout_order_like,
        kind=creating.kind_copy,
    ),
    structure(
        "array",
        reference.array,
        "a new array from an array, a scalar, or nested lists of them",
        function("numpy.array", "object=x dtype * order ndmin"),
        attributes={"dtype": None, "order": "K", "ndmin": 0},
        shape=creating.shape_array,
        dtype=creating.dtype_array,
        layout=creating.layout_array,
        kind=creating.kind_converted,
        may_fail=("range",),
    ),
    structure(
        "asarray",
        reference.asarray,
        "an array as it is, anything else made into one",
        function("numpy.asarray", "a=x dtype order"),
        attributes={"dtype": None, "order": None},
        dtype=creating.dtype_array,
        layout=creating.layout_array,
        result=creating.alias_array_like,
        kind=creating.kind_converted,
        may_fail=("range",),
    ),
    structure(
        "ascontiguousarray",
        np.ascontiguousarray,
        "in C order and with at least one dimension: the array itself if it is, else a copy",
        function("numpy.ascontiguousarray", "a=x dtype"),
        attributes={"dtype": None},
        shape=creating.shape_at_least_1d,
        dtype=creating.dtype_array,
        layout=creating.layout_contiguous,
        result=creating.alias_contiguous,
        kind=creating.kind_converted,
        may_fail=("range",),
    ),
    structure(
        "asfortranarray",
        np.asfortranarray,
        "in Fortran order and with at least one dimension: the array itself if it is, else a copy",
        function("numpy.asfortranarray", "a=x dtype"),
        attributes={"dtype": None},
        shape=creating.shape_at_least_1d,
        dtype=creating.dtype_array,
        layout=creating.layout_contiguous,
        result=creating.alias_contiguous,
        kind=creating.kind_converted,
        may_fail=("range",),
    ),
    # ---- the operand itself
    structure(
        "identity",
        reference.identity,
        "the operand itself; pins the instruction to its line",
        kind=creating.kind_first,
        result=creating.alias_first,
    ),
    structure(
        "stop_gradient",
        reference.identity,
        "the operand itself, which a derivative counts as constant",
        kind=creating.kind_first,
        result=creating.alias_first,
    ),
    structure(
        "depend",
        reference.depend,
        "the operand itself, once all the others have been computed",
        operands="x after*",
        kind=creating.kind_first,
        result=creating.alias_first,
    ),
    # ---- what it is
    _question(
        "shape",
        np.shape,
        "the sizes, as a tuple of ints",
        creating.kind_shape,
        property_("shape"),
        function("numpy.shape", "a=x"),
    ),
    _question(
        "ndim",
        np.ndim,
        "the number of dimensions",
        creating.kind_ndim,
        property_("ndim"),
        function("numpy.ndim", "a=x"),
    ),
    _question(
        "size",
        reference.size,
        "the number of elements, or the size of some axes",
        creating.kind_size,
        property_("size"),
        function("numpy.size", "a=x axis"),
        attributes={"axis": None},
    ),
    _question(
        "dim",
        reference.dim,
        "the size of one axis",
        creating.kind_dim,
        attributes={"axis": REQUIRED},
    ),
    _question(
        "dtype",
        reference.dtype_of,
        "the element type",
        creating.kind_dtype,
        property_("dtype"),
        dtype=rules.dtype_like(),
    ),
    _question(
        "item",
        reference.item,
        "the one element as a Python scalar",
        creating.kind_item,
        method("item", "x"),
        shape=creating.shape_item,
        dtype=rules.dtype_like(),
        may_fail=("size",),
    ),
)
