"""What a value is, without its contents: the types that typing computes with, Signatures are keyed by and rules return.

In: a run-time value (`type_of`) or the result of an operator's rules. Out: frozen, hashable, comparable descriptions.
A type holds what compiled code may rely on; everything else stays a symbol: sizes are `int | Dim`, a Python scalar has
a value only where it is known without looking at the call's data.

Invariant: `type_of(f(*values))` equals what the rules say about `f` on `type_of` of the values, up to known values and
sizes. Guards test exact types, so subclasses of ndarray, of int, of tuple and everything with a behaviour of its own
are an `ObjectType`: nothing is known about them.

Two types with equal fields are the same type; floats compare by their bits, because `0.0 == -0.0` and
`nan != nan` would merge or split Signatures wrongly.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tiercel.dtypes import DType, as_dtype, bool_, complex128, float64, int64, is_dtype, uint64
from tiercel.operators.layout import Layout
from tiercel.shapes import Dim, DimLike

__all__ = [
    "ArrayType",
    "DTypeType",
    "DictType",
    "EllipsisType",
    "ListType",
    "Namer",
    "NoneType",
    "NotStatic",
    "NpScalarType",
    "ObjectType",
    "PyBoolType",
    "PyComplexType",
    "PyFloatType",
    "PyIntType",
    "Shape",
    "SliceType",
    "StrType",
    "TupleType",
    "Type",
    "as_array",
    "is_python_scalar",
    "static_value",
    "type_of",
]

Shape: TypeAlias = tuple[DimLike, ...]

# Called as namer(path, axis, size): the size or symbol that stands for an array's dimension; with axis None the value
# that stands for a Python int, or None for "not known".
Namer: TypeAlias = Callable[[str, "int | None", int], "DimLike | None"]


class NotStatic(Exception):
    """The result cannot be described without running the operator: a value is needed that only the call has.

    Attributes:
        reason: what is not known, for `explain` and the ledger.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Type:
    """Base of every type."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ArrayType(Type):
    """An array: element type, shape, order of its axes in memory, place, and which class wraps it.

    `wrapper` is "ndarray", "Tensor" or "torch"; results of mixed operands take the last of these that occurs.
    """

    dtype: DType
    shape: Shape
    layout: Layout
    device: str = "cpu"
    wrapper: str = "ndarray"

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __str__(self) -> str:
        dims = ", ".join(map(str, self.shape))
        layout = "" if self.layout.is_c else f"{{{self.layout}}}"
        wrapper = "" if self.wrapper == "ndarray" else f"{self.wrapper}:"
        return f"{wrapper}{self.dtype.name}[{dims}]{layout}"


@dataclass(frozen=True, slots=True)
class NpScalarType(Type):
    """A NumPy scalar such as `x.sum()` gives: immutable, rank 0, not weak."""

    dtype: DType

    def __str__(self) -> str:
        return f"np.{self.dtype.name}"


@dataclass(frozen=True, slots=True)
class PyIntType(Type):
    """A Python int; `value` is the int, the size expression it equals, or None."""

    value: DimLike | None = None

    def __str__(self) -> str:
        return "int" if self.value is None else f"int({self.value})"


@dataclass(frozen=True, slots=True, eq=False)
class PyFloatType(Type):
    """A Python float, with its value where it is known."""

    value: float | None = None

    def __eq__(self, other: object) -> bool:
        return type(other) is PyFloatType and _bits(self.value) == _bits(other.value)

    def __hash__(self) -> int:
        return hash(("float", _bits(self.value)))

    def __str__(self) -> str:
        return "float" if self.value is None else f"float({self.value!r})"


@dataclass(frozen=True, slots=True, eq=False)
class PyComplexType(Type):
    """A Python complex, with its value where it is known."""

    value: complex | None = None

    def __eq__(self, other: object) -> bool:
        return type(other) is PyComplexType and _bits(self.value) == _bits(other.value)

    def __hash__(self) -> int:
        return hash(("complex", _bits(self.value)))

    def __str__(self) -> str:
        return "complex" if self.value is None else f"complex({self.value!r})"


@dataclass(frozen=True, slots=True)
class PyBoolType(Type):
    """A Python bool, with its value where it is known."""

    value: bool | None = None

    def __str__(self) -> str:
        return "bool" if self.value is None else f"bool({self.value})"


@dataclass(frozen=True, slots=True)
class StrType(Type):
    """A str, with its value where it is known."""

    value: str | None = None


@dataclass(frozen=True, slots=True)
class NoneType(Type):
    """None."""


@dataclass(frozen=True, slots=True)
class EllipsisType(Type):
    """The Ellipsis object."""


@dataclass(frozen=True, slots=True)
class SliceType(Type):
    """A slice object; each part is a type (NoneType where it is None)."""

    start: Type
    stop: Type
    step: Type


@dataclass(frozen=True, slots=True)
class TupleType(Type):
    """A tuple (exactly `tuple`) of known length."""

    items: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class ListType(Type):
    """A list: either the types of all items, or one element type and a length."""

    items: tuple[Type, ...] | None = None
    element: Type | None = None
    length: DimLike | None = None


@dataclass(frozen=True, slots=True)
class DictType(Type):
    """A dict with known hashable keys (strings and ints), in order."""

    items: tuple[tuple[object, Type], ...]


@dataclass(frozen=True, slots=True, eq=False)
class ObjectType(Type):
    """Anything else; `value` is the object itself where it is known (compared by identity)."""

    value: object | None = None

    def __eq__(self, other: object) -> bool:
        return type(other) is ObjectType and self.value is other.value

    def __hash__(self) -> int:
        return hash(("object", id(self.value)))


@dataclass(frozen=True, slots=True)
class DTypeType(Type):
    """A value that names an element type: `np.float32`, `np.dtype("f4")`, `tc.float32`."""

    dtype: DType


_PYTHON_SCALARS = (PyIntType, PyFloatType, PyComplexType, PyBoolType)


def is_python_scalar(t: Type) -> bool:
    """Whether `t` is a Python bool, int, float or complex."""
    return isinstance(t, _PYTHON_SCALARS)


def type_of(value: object, namer: Namer | None = None, path: str = "") -> Type:
    """Return the type of a run-time value.

    Args:
        value: anything.
        namer: what stands for sizes and Python ints, called as `namer(path, axis, size)`; without one, sizes and the
            values of Python scalars are taken as they are. With one, other Python scalars lose their values.
        path: where the value is, for the namer: "x", "x[0]", "x['k']".
    """
    kind = type(value)
    if kind is np.ndarray:
        return _array_type(value, namer, path)  # type: ignore[arg-type]
    if value is None:
        return NoneType()
    if kind is bool:
        return PyBoolType(value if namer is None else None)  # type: ignore[arg-type]
    if kind is int:
        return PyIntType(value if namer is None else namer(path, None, value))  # type: ignore[arg-type]
    if kind is float:
        return PyFloatType(value if namer is None else None)  # type: ignore[arg-type]
    if kind is complex:
        return PyComplexType(value if namer is None else None)  # type: ignore[arg-type]
    if isinstance(value, np.generic) and is_dtype(kind):
        return NpScalarType(as_dtype(kind))
    if kind is str:
        return StrType(value)  # type: ignore[arg-type]
    if kind is tuple:
        return TupleType(_item_types(value, namer, path))  # type: ignore[arg-type]
    if kind is list:
        return ListType(_item_types(value, namer, path))  # type: ignore[arg-type]
    if kind is dict:
        return _dict_type(value, namer, path)  # type: ignore[arg-type]
    if value is Ellipsis:
        return EllipsisType()
    if kind is slice:
        parts = ("start", "stop", "step")
        return SliceType(*(type_of(getattr(value, p), namer, f"{path}.{p}") for p in parts))
    if (isinstance(value, DType | np.dtype) or kind is type) and is_dtype(value):
        return DTypeType(as_dtype(value))
    return ObjectType(value)


def _item_types(values: Sequence[object], namer: Namer | None, path: str) -> tuple[Type, ...]:
    return tuple(type_of(v, namer, f"{path}[{i}]") for i, v in enumerate(values))


def _array_type(value: np.ndarray[Any, Any], namer: Namer | None, path: str) -> Type:
    if not is_dtype(value.dtype):
        return ObjectType(value)
    layout = Layout.of(value)
    if namer is None:
        return ArrayType(as_dtype(value.dtype), value.shape, layout)
    named = [namer(path, axis, size) for axis, size in enumerate(value.shape)]
    shape = tuple(size if dim is None else dim for dim, size in zip(named, value.shape, strict=True))
    return ArrayType(as_dtype(value.dtype), shape, layout)


def _dict_type(value: Mapping[object, object], namer: Namer | None, path: str) -> Type:
    if not all(type(k) in (str, int) for k in value):
        return ObjectType(value)
    return DictType(tuple((k, type_of(v, namer, f"{path}[{k!r}]")) for k, v in value.items()))


def static_value(x: object) -> Any:
    """Return the Python value that a type stands for; sizes may come back as `Dim`.

    Anything that is not a type is returned as it is, so attributes may be given either way. Tuples and lists are
    converted item by item.

    Raises:
        NotStatic: the value is not known.
    """
    if isinstance(x, tuple | list):
        return type(x)(static_value(v) for v in x)
    if not isinstance(x, Type):
        return x
    if isinstance(x, NoneType):
        return None
    if isinstance(x, PyIntType | PyFloatType | PyComplexType | PyBoolType | StrType | ObjectType):
        if x.value is None:
            raise NotStatic(f"the value of a {x} is not known")
        return x.value
    if isinstance(x, DTypeType):
        return x.dtype
    if isinstance(x, TupleType):
        return tuple(static_value(v) for v in x.items)
    if isinstance(x, ListType) and x.items is not None:
        return [static_value(v) for v in x.items]
    if isinstance(x, EllipsisType):
        return Ellipsis
    if isinstance(x, SliceType):
        return slice(static_value(x.start), static_value(x.stop), static_value(x.step))
    if isinstance(x, DictType):
        return {k: static_value(v) for k, v in x.items}
    raise NotStatic(f"the value of a {type(x).__name__} is not known")


def as_array(t: Type) -> ArrayType | NpScalarType | PyIntType | PyFloatType | PyComplexType | PyBoolType:
    """Return what NumPy makes of an operand: arrays and scalars as they are, nested lists of them as an array.

    Raises:
        NotStatic: the operand is none of these, is ragged, or its element type depends on values that are not known.
    """
    if isinstance(t, ArrayType | NpScalarType | PyIntType | PyFloatType | PyComplexType | PyBoolType):
        return t
    if isinstance(t, TupleType | ListType):
        dtype, shape = _discover(t)
        return ArrayType(dtype, shape, Layout.c(len(shape)))
    raise NotStatic(f"a {type(t).__name__} is no array operand")


def _discover(t: Type) -> tuple[DType, Shape]:
    if isinstance(t, ArrayType):
        return t.dtype, t.shape
    if isinstance(t, NpScalarType):
        return t.dtype, ()
    # Inside a list a Python scalar is not weak.
    if isinstance(t, PyBoolType):
        return bool_, ()
    if isinstance(t, PyFloatType):
        return float64, ()
    if isinstance(t, PyComplexType):
        return complex128, ()
    if isinstance(t, PyIntType):
        return _int_dtype(t), ()
    items = t.items if isinstance(t, TupleType | ListType) else None
    if items is None:
        raise NotStatic(f"a {type(t).__name__} is no array operand")
    if not items:
        return float64, (0,)
    found = [_discover(item) for item in items]
    shape = found[0][1]
    if any(other != shape for _, other in found):
        raise NotStatic("the items of a list used as an array have different shapes")
    try:
        dtype = as_dtype(np.result_type(*(d.numpy for d, _ in found)))
    except TypeError as error:
        raise NotStatic(f"NumPy finds no common dtype for the items of a list: {error}") from None
    return dtype, (len(items), *shape)


def _int_dtype(t: PyIntType) -> DType:
    if isinstance(t.value, Dim):
        return int64
    if t.value is None or not -(2**63) <= t.value < 2**64:
        raise NotStatic("the dtype of a list of Python ints depends on their values")
    return int64 if t.value < 2**63 else uint64


def _bits(value: complex | None) -> bytes | None:
    if value is None:
        return None
    value = complex(value)
    return struct.pack("<dd", value.real, value.imag)
