"""Rules of operators that make arrays from sizes and scalars, copy them, and tell their sizes.

In: a `Call`. Out: shapes, dtypes, layouts and aliases. Sizes may be symbols: `np.zeros((n, d))`, `np.arange(T)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tiercel.dtypes import DType, bfloat16, check_int_range, float64, int64, uint32
from tiercel.errors import DTypeError, ShapeError
from tiercel.operators.joining import copied_order
from tiercel.operators.layout import Layout, k_order
from tiercel.operators.rules import attribute_dtype, common_dtype, dtype_of, kind_array
from tiercel.operators.table import FRESH, Alias, Call, same, same_if, view, view_if
from tiercel.operators.types import (
    ArrayType,
    DTypeType,
    ListType,
    NotStatic,
    NpScalarType,
    PyBoolType,
    PyComplexType,
    PyFloatType,
    PyIntType,
    Shape,
    TupleType,
    Type,
    type_of,
)
from tiercel.operators.views import as_axis, as_shape
from tiercel.shapes import Dim, DimLike, arange_dim, broadcast_shapes, product

__all__ = [
    "alias_array_like",
    "alias_contiguous",
    "alias_first",
    "attributes_dtype",
    "dtype_arange",
    "dtype_array",
    "dtype_full",
    "dtype_full_like",
    "dtype_key",
    "dtype_like_or_given",
    "dtype_linspace",
    "kind_converted",
    "kind_copy",
    "kind_dim",
    "kind_dtype",
    "kind_first",
    "kind_item",
    "kind_ndim",
    "kind_shape",
    "kind_size",
    "layout_array",
    "layout_contiguous",
    "layout_first",
    "layout_linspace",
    "layout_order",
    "layout_order_like",
    "shape_arange",
    "shape_array",
    "shape_at_least_1d",
    "shape_eye",
    "shape_full",
    "shape_given",
    "shape_given_or_like",
    "shape_item",
    "shape_key",
    "shape_linspace",
    "shape_nothing",
    "shape_split_key",
    "shape_tri",
]


def _name_order(call: Call) -> str:
    order = call["order"]
    return "K" if order is None else str(order).upper()


# ---- from sizes ------------------------------------------------------------------------------------------------------


def _sizes(value: object) -> Shape:
    sizes = as_shape(value)
    if any(isinstance(d, int) and d < 0 for d in sizes):
        raise ShapeError("negative dimensions are not allowed")
    return sizes


def attributes_dtype(default: DType = float64) -> Callable[[Call], DType]:
    """The dtype attribute, or this default where it is None."""

    def rule(call: Call) -> DType:
        return attribute_dtype(call) or default

    return rule


def shape_given(call: Call) -> Shape:
    """The shape attribute."""
    return _sizes(call["shape"])


def layout_order(call: Call, shape: Shape) -> Layout:
    """C or Fortran order, as the attribute says."""
    return Layout.f(len(shape)) if _name_order(call) == "F" else Layout.c(len(shape))


def dtype_full(call: Call) -> DType:
    """The dtype attribute, or that of the value.

    Raises:
        OverflowError: a Python int out of the dtype's range.
        DTypeError: a value NumPy does not convert.
    """
    given = attribute_dtype(call)
    if given is None:
        return dtype_of(call.operand(0))
    _check_fill(call.types[0], given)
    return given


def _check_fill(value: Type, dtype: DType) -> None:
    if isinstance(value, PyIntType) and isinstance(value.value, int):
        if dtype.is_integer:
            check_int_range(value.value, dtype)
        if dtype is bfloat16 and not -(2**63) <= value.value < 2**63:
            raise DTypeError("expected number, got int")


def shape_full(call: Call) -> Shape:
    """The shape attribute, to which the value must broadcast."""
    return _filled(call, _sizes(call["shape"]), 0)


def _filled(call: Call, shape: Shape, position: int) -> Shape:
    value = call.shape(position)
    while len(value) > len(shape) and value[0] == 1:
        value = value[1:]
    if len(value) > len(shape):
        raise ShapeError(f"could not broadcast input array from shape {value} into shape {shape}")
    both = broadcast_shapes(shape, value, facts=call.facts)
    if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(both, shape, strict=True)):
        raise ShapeError(f"could not broadcast input array from shape {value} into shape {shape}")
    return shape


def dtype_like_or_given(call: Call) -> DType:
    """The dtype attribute, or that of operand 0."""
    return attribute_dtype(call) or dtype_of(call.operand(0))


def dtype_full_like(call: Call) -> DType:
    """The dtype attribute, or that of operand 0; the value must fit as in `dtype_full`."""
    dtype = dtype_like_or_given(call)
    _check_fill(call.types[1], dtype)
    return dtype


def shape_given_or_like(call: Call) -> Shape:
    """The shape attribute, or that of operand 0."""
    given = call["shape"]
    shape = call.shape(0) if given is None else _sizes(given)
    return _filled(call, shape, 1) if len(call.types) > 1 else shape


def layout_order_like(call: Call, shape: Shape) -> Layout:
    """C or Fortran order, or ("K") the order of operand 0 where the rank is the same."""
    order, layout, rank = _name_order(call), call.layout(0), len(shape)
    if order == "A":
        order = _a_order(call)
    if order in ("C", "F"):
        return Layout.c(rank) if order == "C" else Layout.f(rank)
    if rank != len(call.shape(0)):
        return Layout.c(rank)
    return copied_order(layout)


def _a_order(call: Call) -> str:
    """What order='A' means: F for what is Fortran but not C contiguous."""
    c, f = call.layout(0).flags(call.shape(0), call.facts)
    if f is False or c is True or not call.layout(0).is_dense:
        return "C"
    if f is True and c is False:
        return "F"
    raise NotStatic("order='A' depends on flags of the array")


def shape_eye(call: Call) -> Shape:
    """N rows and M (default N) columns."""
    rows, columns = call["N"], call["M"]
    return _sizes((rows, rows if columns is None else columns))


def shape_tri(call: Call) -> Shape:
    """N rows and M (default N) columns; a negative size counts as 0."""
    rows, columns = call["N"], call["M"]
    sizes = as_shape((rows, rows if columns is None else columns))
    return tuple(max(n, 0) if isinstance(n, int) else n for n in sizes)


# ---- ranges ----------------------------------------------------------------------------------------------------------


def _range(call: Call) -> tuple[Any, Any, Any]:
    start, stop, step = call["start"], call["stop"], call["step"]
    if stop is None:
        start, stop = 0, start
    return start, stop, 1 if step is None else step


def dtype_arange(call: Call) -> DType:
    """The dtype attribute, else int64 joined with the dtypes of the bounds (none of which is weak)."""
    given = attribute_dtype(call)
    if given is not None:
        return given
    bounds = [dtype_of(type_of(x)) for x in _range(call) if not isinstance(x, Dim)]
    try:
        return common_dtype([ArrayType(d, (), Layout.c(0)) for d in (int64, *bounds)])
    except DTypeError as error:
        raise NotStatic(f"NumPy makes this range of objects: {error}") from None


def shape_arange(call: Call) -> Shape:
    """As many as `range` has, or for floats the length divided by the step, rounded up."""
    start, stop, step = _range(call)
    bounds = (start, stop, step)
    if all(isinstance(x, int | Dim) for x in bounds):
        size = arange_dim(start, stop, step, call.facts)
    elif any(isinstance(x, Dim) for x in bounds):
        raise NotStatic("a range of floats whose bounds depend on sizes")
    else:
        size = _range_length(start, stop, step)
    given = attribute_dtype(call)
    if given is not None and given.is_bool and isinstance(size, int) and size > 2:
        raise DTypeError("arange() is only supported for booleans when the result has at most length 2.")
    return (size,)


def _range_length(start: Any, stop: Any, step: Any) -> int:
    """The length as NumPy computes it, in the arithmetic of the bounds themselves (unsigned ones wrap)."""
    if any(isinstance(x, complex | np.complexfloating) for x in (start, stop, step)):
        raise NotStatic("a range of complex numbers")
    if step == 0:
        raise ShapeError("the step of a range cannot be zero")
    try:
        with np.errstate(all="ignore"):
            length = float((stop - start) / step)
    except TypeError as error:
        raise DTypeError(str(error)) from None
    if not math.isfinite(length):
        raise ShapeError("arange: cannot compute length")
    return max(math.ceil(length), 0)


def dtype_linspace(call: Call) -> DType:
    """The dtype attribute, else the operands' common dtype if it is one of NumPy's floating types, else float64."""
    given = attribute_dtype(call)
    if given is not None:
        return given
    dtype = common_dtype(call.operands)
    # To NumPy bfloat16 is not an inexact type.
    return dtype if dtype.is_inexact and dtype is not bfloat16 else float64


def _linspace_axis(call: Call, rank: int) -> int:
    return as_axis(call["axis"], rank + 1)


def shape_linspace(call: Call) -> Shape:
    """The operands' broadcast shape with a new axis of size `num`."""
    (num,) = as_shape(call["num"])
    if isinstance(num, int) and num < 0:
        raise ShapeError(f"Number of samples, {num}, must be non-negative.")
    both = broadcast_shapes(call.shape(0), call.shape(1), facts=call.facts)
    axis = _linspace_axis(call, len(both))
    return (*both[:axis], num, *both[axis:])


def layout_linspace(call: Call, shape: Shape) -> Layout:
    """The samples vary slowest, whatever `axis`; within them the order of the operands."""
    rank = len(shape) - 1
    axis = _linspace_axis(call, rank)
    both = (*shape[:axis], *shape[axis + 1 :])
    arrays = [(t.shape, t.layout) for t in call.operands if isinstance(t, ArrayType)]
    inner = k_order(arrays, both, call.facts) if rank else Layout.c(0)
    if inner.order is None:
        return inner
    places = [a for a in range(rank + 1) if a != axis]
    return Layout.dense((axis, *(places[a] for a in inner.order)))


# ---- copies ----------------------------------------------------------------------------------------------------------


def kind_copy(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    """An array; the method of a NumPy scalar gives a scalar."""
    if call.spelling.kind == "method" and isinstance(call.operand(0), NpScalarType):
        return NpScalarType(dtype)
    return kind_array(call, dtype, shape, layout)


def kind_converted(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    """An array; NumPy's conversions (not those of `tiercel.ops`) take a wrapper off."""
    found = kind_array(call, dtype, shape, layout)
    assert isinstance(found, ArrayType)
    return replace(found, wrapper="ndarray") if call.spelling.kind == "function" else found


def _unwraps(call: Call) -> bool:
    """Whether the call takes a wrapper off: the result may view the operand's memory, but is not the operand."""
    x = call.types[0]
    return isinstance(x, ArrayType) and x.wrapper != "ndarray" and call.spelling.kind == "function"


def shape_at_least_1d(call: Call) -> Shape:
    """The operand's shape; (1,) for rank 0."""
    return call.shape(0) or (1,)


def _contiguous(call: Call) -> tuple[Alias, str]:
    """Alias and order of ascontiguousarray and asfortranarray."""
    order = "F" if call.operator.name == "asfortranarray" else "C"
    x = call.types[0]
    if not isinstance(x, ArrayType):
        return FRESH, order
    if attribute_dtype(call) not in (None, x.dtype):
        return FRESH, order
    if not x.shape:
        return view(0), order
    return _same_if_ordered(call, x, order), order


def _same_if_ordered(call: Call, x: ArrayType, order: str) -> Alias:
    if (x.layout.is_f if order == "F" else x.layout.is_c) or (x.rank <= 1 and x.layout.is_dense):
        return same(0)
    flag = x.layout.flags(x.shape, call.facts)[order == "F"]
    if flag is not None:
        return same(0) if flag else FRESH
    return same_if(0)


def alias_contiguous(call: Call) -> Alias:
    """The operand itself if it is contiguous in the order already, else a copy."""
    return _unwrapped(call, _contiguous(call)[0])


def _unwrapped(call: Call, alias: Alias) -> Alias:
    if not _unwraps(call):
        return alias
    return {"same": view(0), "same_if": view_if(0)}.get(alias.kind, alias)


def layout_contiguous(call: Call, shape: Shape) -> Layout:
    """C or Fortran order."""
    return Layout.f(len(shape)) if _contiguous(call)[1] == "F" else Layout.c(len(shape))


def dtype_array(call: Call) -> DType:
    """The dtype attribute, or that of the operand.

    Raises:
        OverflowError: a Python int out of the dtype's range.
        DTypeError: a Python complex number for a real dtype.
    """
    given, value = attribute_dtype(call), call.types[0]
    if given is None:
        return dtype_of(call.operand(0))
    _check_number(value, given)
    if isinstance(value, TupleType | ListType):
        _check_items(value, given)
    return given


def _check_number(value: Type, dtype: DType) -> None:
    if isinstance(value, PyComplexType) and not (dtype.is_complex or dtype.is_bool):
        raise DTypeError("float() argument must be a string or a real number, not 'complex'")
    _check_fill(value, dtype)


def _check_items(t: Type, dtype: DType) -> None:
    for item in (t.items or ()) if isinstance(t, TupleType | ListType) else ():
        _check_number(item, dtype)
        _check_items(item, dtype)


def shape_array(call: Call) -> Shape:
    """The operand's shape, with sizes of 1 in front up to `ndmin` dimensions."""
    shape = call.shape(0)
    ndmin = call["ndmin"] if "ndmin" in {p.name for p in call.operator.parameters} else 0
    return (1,) * (int(ndmin) - len(shape)) + shape


def layout_array(call: Call, shape: Shape) -> Layout:
    """The operand's own order unless C or F is asked for."""
    order, source = _name_order(call), call.shape(0)
    if order == "A":
        order = _a_order(call)
    if _array_like(call).kind == "same":
        return call.layout(0)
    if order == "C":
        return Layout.c(len(shape))
    layout = Layout.f(len(source)) if order == "F" else copied_order(call.layout(0))
    for _ in range(len(shape) - len(source)):
        layout = layout.insert(0)
    return layout


def alias_array_like(call: Call) -> Alias:
    """`asarray`: the operand itself if it is an array of that dtype and order; `array` always copies."""
    return _unwrapped(call, _array_like(call))


def _array_like(call: Call) -> Alias:
    x, order = call.types[0], _name_order(call)
    if call.operator.name == "array" or not isinstance(x, ArrayType):
        return FRESH
    if attribute_dtype(call) not in (None, x.dtype):
        return FRESH
    return _same_if_ordered(call, x, order) if order in ("C", "F") else same(0)


# ---- the operand itself, and what it is ------------------------------------------------------------------------------


def kind_first(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    """Exactly what operand 0 is."""
    found: Type = call.types[0]
    return found


def layout_first(call: Call, shape: Shape) -> Layout:
    """The layout of operand 0."""
    return call.layout(0)


alias_first: Final = same(0)


def shape_nothing(call: Call) -> Shape:
    """The result has no shape."""
    return ()


def kind_shape(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    """A tuple of the sizes."""
    return TupleType(tuple(PyIntType(d) for d in call.shape(0)))


def kind_ndim(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    """The rank."""
    return PyIntType(len(call.shape(0)))


def kind_size(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    """The number of elements, or the size of an axis."""
    sizes, axis = call.shape(0), call["axis"]
    if axis is None:
        return PyIntType(product(sizes))
    axes = axis if isinstance(axis, tuple) else (axis,)
    return PyIntType(product([sizes[as_axis(a, len(sizes))] for a in axes]))


def kind_dim(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    """One size."""
    sizes = call.shape(0)
    return PyIntType(sizes[as_axis(call["axis"], len(sizes))])


def kind_dtype(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    """The element type."""
    return DTypeType(dtype)


def shape_item(call: Call) -> Shape:
    """No shape; the operand must have one element."""
    count = product(call.shape(0))
    if isinstance(count, int) and count != 1:
        raise ShapeError("can only convert an array of size 1 to a Python scalar")
    return ()


_PYTHON: Final[dict[str, Callable[[], Type]]] = {
    "b": PyBoolType,
    "i": PyIntType,
    "u": PyIntType,
    "f": PyFloatType,
    "c": PyComplexType,
}


def kind_item(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    """The Python scalar of the dtype's kind."""
    return _PYTHON[dtype.kind]()


# ---- random keys -----------------------------------------------------------------------------------------------------


def _check_key_dtype(call: Call, position: int) -> None:
    t = call.types[position]
    if isinstance(t, PyIntType):
        return
    if isinstance(t, PyFloatType | PyComplexType | PyBoolType) or not dtype_of(call.operand(position)).is_integer:
        raise DTypeError(f"a random key must be an integer or an integer array, got {t}")


def _check_key_shape(call: Call, position: int) -> None:
    shape = call.shape(position)
    if shape and (len(shape) != 1 or (isinstance(shape[0], int) and shape[0] != 2)):
        raise ShapeError(f"a random key array must have shape (2,), got {shape}")


def dtype_key(rule: Callable[[Call], DType], *positions: int) -> Callable[[Call], DType]:
    """What `rule` says, once the operands at these positions are random keys.

    Raises:
        DTypeError: one is not an integer.
        ShapeError: one is an array of another shape than (2,).
    """

    def checked(call: Call) -> DType:
        for check in (_check_key_dtype, _check_key_shape):
            for position in positions:
                check(call, position)
        return rule(call)

    return checked


def float_only(call: Call) -> DType:
    """The dtype attribute, a real floating type.

    Raises:
        DTypeError: it is another.
    """
    dtype = attribute_dtype(call)
    if dtype is None or not dtype.is_float:
        raise DTypeError(f"{call.operator.name} draws float16, bfloat16, float32 or float64, not {dtype}")
    return dtype


def inexact_first(call: Call) -> DType:
    """Operand 0's dtype, floating or complex.

    Raises:
        DTypeError: it is another.
    """
    dtype = dtype_of(call.operand(0))
    if not dtype.is_inexact:
        raise DTypeError(f"{call.operator.name} needs a floating or complex array, got {dtype.name}")
    return dtype


def always_uint32(call: Call) -> DType:
    """uint32."""
    return uint32


def shape_key(call: Call) -> Shape:
    """One key."""
    return (2,)


def shape_split_key(call: Call) -> Shape:
    """`num` keys."""
    (num,) = _sizes(call["num"])
    count: DimLike = num
    return (count, 2)
