"""ONE table of tensor operators: what a program may call on tensors, and everything the other parts need to know of it.

In: source spellings (`find_function(np.sum)`, `find_syntax("+")`) or names (`get("add")`). Out: `Operator` rows with
their rules, spellings, reference implementation and lowering class. An operator is added in `rows/`, nowhere else.
"""

from __future__ import annotations

from tiercel.operators.layout import Layout
from tiercel.operators.registry import (
    ALL,
    find_function,
    find_inplace,
    find_method,
    find_property,
    find_syntax,
    get,
)
from tiercel.operators.table import (
    Alias,
    Bound,
    Call,
    Effect,
    Exactness,
    Lowering,
    Operator,
    OutOfRangeError,
    Parameter,
    Spelling,
)
from tiercel.operators.types import (
    ArrayType,
    DictType,
    DTypeType,
    EllipsisType,
    ListType,
    Namer,
    NoneType,
    NotStatic,
    NpScalarType,
    ObjectType,
    PyBoolType,
    PyComplexType,
    PyFloatType,
    PyIntType,
    SliceType,
    StrType,
    TupleType,
    Type,
    static_value,
    type_of,
)

__all__ = [
    "ALL",
    "Alias",
    "ArrayType",
    "Bound",
    "Call",
    "DTypeType",
    "DictType",
    "Effect",
    "EllipsisType",
    "Exactness",
    "Layout",
    "ListType",
    "Lowering",
    "Namer",
    "NoneType",
    "NotStatic",
    "NpScalarType",
    "ObjectType",
    "Operator",
    "OutOfRangeError",
    "Parameter",
    "PyBoolType",
    "PyComplexType",
    "PyFloatType",
    "PyIntType",
    "SliceType",
    "Spelling",
    "StrType",
    "TupleType",
    "Type",
    "find_function",
    "find_inplace",
    "find_method",
    "find_property",
    "find_syntax",
    "get",
    "static_value",
    "type_of",
]
