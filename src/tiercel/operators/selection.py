"""Rules of operators that pick, place, sort and search elements: take, gather, scatter, nonzero, sort, unique, ...

In: a `Call`. Out: shapes, dtypes and layouts. How many elements a condition picks is a data symbol, made in the shape
rule. Indices out of range are left to run time (`may_fail` says "index").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from tiercel.dtypes import DType, as_dtype, bool_, int64
from tiercel.errors import DTypeError, ShapeError
from tiercel.operators.joining import copied_order
from tiercel.operators.layout import Layout, k_order
from tiercel.operators.rules import dtype_of, kind_numpy
from tiercel.operators.subscripts import accepts_value, indexed_shape, kind_first_operand
from tiercel.operators.table import Call, shape_of
from tiercel.operators.types import (
    ArrayType,
    ListType,
    NotStatic,
    NpScalarType,
    PyComplexType,
    Shape,
    TupleType,
    Type,
)
from tiercel.operators.views import as_axis
from tiercel.shapes import Dim, DimLike, broadcast_shapes, product

__all__ = [
    "dtype_element_indices",
    "dtype_embedding",
    "dtype_masked",
    "dtype_one_hot",
    "dtype_scatter",
    "dtype_searchsorted",
    "dtype_take",
    "dtype_topk",
    "dtype_unique",
    "kind_take",
    "layout_argwhere",
    "layout_nonzero",
    "layout_sort",
    "layout_take_along_axis",
    "shape_argsort",
    "shape_argwhere",
    "shape_compress",
    "shape_embedding",
    "shape_flatnonzero",
    "shape_gather_elements",
    "shape_gather_nd",
    "shape_index_put",
    "shape_masked_fill",
    "shape_masked_select",
    "shape_nonzero",
    "shape_one_hot",
    "shape_scatter",
    "shape_scatter_nd",
    "shape_searchsorted",
    "shape_sort",
    "shape_take",
    "shape_take_along_axis",
    "shape_topk",
    "shape_unique",
]

_INDEX: Final = np.dtype(np.intp)


# ---- take and gather -------------------------------------------------------------------------------------------------


def dtype_take(call: Call) -> DType:
    """The dtype of `x`. Index arrays must be integers or bools; Python numbers are cut to integers.

    Raises:
        DTypeError: an index array of another dtype.
    """
    indices = call.types[1]
    if isinstance(indices, PyComplexType):
        raise DTypeError("int() argument must be a real number, not 'complex'")
    if isinstance(indices, ArrayType):
        _check_cast(indices.dtype)
    elif isinstance(indices, TupleType | ListType) and _holds_complex(indices):
        raise DTypeError("int() argument must be a real number, not 'complex'")
    return dtype_of(call.operand(0))


def kind_take(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    """As for `x[indices]`; `tiercel.ops` minds the wrapper of the indices too."""
    rule = kind_first_operand if call.spelling.kind in ("function", "method") else kind_numpy
    return rule(call, dtype, shape, layout)


def _check_cast(dtype: DType) -> None:
    if not np.can_cast(dtype.numpy, _INDEX, casting="same_kind"):
        raise DTypeError(
            f"Cannot cast array data from dtype('{dtype.name}') to dtype('int64') according to the rule 'same_kind'"
        )


def _holds_complex(t: Type) -> bool:
    if isinstance(t, TupleType | ListType):
        return any(_holds_complex(item) for item in t.items or ())
    return isinstance(t, PyComplexType) or (isinstance(t, ArrayType | NpScalarType) and t.dtype.is_complex)


def _indices_shape(call: Call, position: int) -> Shape:
    t = call.types[position]
    return (0,) if isinstance(t, TupleType | ListType) and t.items == () else call.shape(position)


def shape_take(call: Call) -> Shape:
    """The indices' shape in place of `axis`; alone if the array is flattened."""
    shape, indices, axis = call.shape(0), _indices_shape(call, 1), call["axis"]
    if axis is None:
        shape, axis = (product(shape),), 0
    elif not shape and axis in (0, -1):
        shape, axis = (1,), 0
    axis = as_axis(axis, len(shape))
    return (*shape[:axis], *indices, *shape[axis + 1 :])


def dtype_strict_indices(position: int, source: int = 0) -> Callable[[Call], DType]:
    """The dtype of operand `source`; operand `position` must be integers.

    Raises:
        DTypeError: it is not.
    """

    def rule(call: Call) -> DType:
        found = dtype_of(call.operand(position))
        if not found.is_integer:
            raise DTypeError(f"{call.operator.name}: indices must be integers, got {found.name}")
        return dtype_of(call.operand(source))

    return rule


dtype_element_indices: Final = dtype_strict_indices(1)
dtype_embedding: Final = dtype_strict_indices(0, 1)


def shape_embedding(call: Call) -> Shape:
    """The indices' shape and the length of a row."""
    indices, table = call.shape(0), call.shape(1)
    if len(table) != 2:
        raise ShapeError(f"embedding needs a table with 2 dimensions, got shape {table}")
    return (*indices, table[1])


def shape_take_along_axis(call: Call) -> Shape:
    """The indices' size along `axis`, elsewhere both shapes broadcast."""
    shape, axis = call.shape(0), call["axis"]
    indices = call.types[1]
    if not isinstance(indices, ArrayType | NpScalarType):
        raise NotStatic("take_along_axis needs an index array")
    if not indices.dtype.is_integer:
        raise ShapeError("`indices` must be an integer array")
    picked = shape_of(indices)
    if axis is None:
        if len(picked) != 1:
            raise ShapeError("when axis=None, `indices` must have a single dimension.")
        return picked
    axis = as_axis(axis, len(shape))
    if len(picked) != len(shape):
        raise ShapeError("`indices` and `arr` must have the same number of dimensions")
    others = (*shape[:axis], 1, *shape[axis + 1 :])
    both = broadcast_shapes(picked, others, facts=call.facts)
    return (*both[:axis], picked[axis], *both[axis + 1 :])


def layout_take_along_axis(call: Call, shape: Shape) -> Layout:
    """The order of iterating over the indices."""
    indices = call.types[1]
    assert isinstance(indices, ArrayType)
    return k_order([(indices.shape, indices.layout)], shape, call.facts)


def _element_shapes(call: Call) -> tuple[Shape, Shape]:
    shape, indices, name = call.shape(0), call.shape(1), call.operator.name
    if len(shape) != len(indices):
        raise ShapeError(f"{name}: indices must have as many dimensions as x, got {indices} and {shape}")
    axis = as_axis(call["axis"], len(shape))
    for a, (n, m) in enumerate(zip(shape, indices, strict=True)):
        if a != axis and isinstance(n, int) and isinstance(m, int) and m > n:
            raise ShapeError(f"{name}: indices {indices} reach past x {shape} in dimension {a}")
    return shape, indices


def shape_gather_elements(call: Call) -> Shape:
    """The indices' shape."""
    return _element_shapes(call)[1]


def _vector_shapes(call: Call) -> tuple[Shape, Shape, int]:
    shape, indices = call.shape(0), call.shape(1)
    depth = indices[-1] if indices else None
    if depth is None or (isinstance(depth, int) and depth > len(shape)):
        raise ShapeError(
            f"{call.operator.name}: the last dimension of indices must be at most {len(shape)}, got shape {indices}"
        )
    if isinstance(depth, Dim):
        raise NotStatic("the length of the index vectors decides the rank")
    return shape, indices, depth


def shape_gather_nd(call: Call) -> Shape:
    """The indices' leading shape and what the index vectors leave of `x`."""
    shape, indices, depth = _vector_shapes(call)
    return (*indices[:-1], *shape[depth:])


# ---- scatter ---------------------------------------------------------------------------------------------------------


def _check_updates(call: Call, position: int, selected: Shape) -> None:
    value = call.shape(position)
    if not accepts_value(selected, value, call.facts):
        raise ShapeError(f"{call.operator.name}: updates of shape {value} do not broadcast to {selected}")


def _check_reduce(call: Call) -> None:
    from tiercel.operators.reference.indexing import REDUCTIONS

    if call["reduce"] not in REDUCTIONS:
        raise ShapeError(f"reduce must be one of {', '.join(map(repr, REDUCTIONS))}, got {call['reduce']!r}")


def dtype_scatter(call: Call) -> DType:
    """The dtype of `x`; indices must be integers, updates are cast as arrays are."""
    dtype_of(call.operand(2))
    return dtype_element_indices(call)


def shape_scatter(call: Call) -> Shape:
    """The shape of `x`."""
    shape, indices = _element_shapes(call)
    _check_reduce(call)
    _check_updates(call, 2, indices)
    return shape


def shape_scatter_nd(call: Call) -> Shape:
    """The shape of `x`."""
    shape, indices, depth = _vector_shapes(call)
    _check_reduce(call)
    _check_updates(call, 2, (*indices[:-1], *shape[depth:]))
    return shape


def shape_index_put(call: Call) -> Shape:
    """The shape of `x`, into whose `x[key]` the values must broadcast."""
    key = call.types[1]
    items = key.items if isinstance(key, TupleType | ListType) else None
    if items is None:
        raise NotStatic("the entries of an index_put are not known")
    selected = indexed_shape(call.shape(0), TupleType(tuple(items)), call.data_symbol, call.facts)
    _check_updates(call, 2, selected)
    return call.shape(0)


def dtype_masked(call: Call) -> DType:
    """The dtype of `x`; the mask must be bool.

    Raises:
        DTypeError: it is not.
    """
    found = dtype_of(call.operand(1))
    if found is not bool_:
        raise DTypeError(f"{call.operator.name}: the mask must be bool, got {found.name}")
    return dtype_of(call.operand(0))


def shape_masked_fill(call: Call) -> Shape:
    """`x` and the mask broadcast, and the value into them."""
    both = broadcast_shapes(call.shape(0), call.shape(1), facts=call.facts)
    _check_updates(call, 2, both)
    return both


def shape_masked_select(call: Call) -> Shape:
    """As many as the mask has true elements after broadcasting."""
    return (call.data_symbol(product(broadcast_shapes(call.shape(0), call.shape(1), facts=call.facts))),)


# ---- conditions ------------------------------------------------------------------------------------------------------


def shape_compress(call: Call) -> Shape:
    """As many along `axis` as the condition has true elements."""
    condition, shape, axis = call.shape(0), call.shape(1), call["axis"]
    if len(condition) != 1:
        raise ShapeError("condition must be a 1-d array")
    if axis is None:
        shape, axis = (product(shape),), 0
    elif not shape and axis in (0, -1):
        shape, axis = (1,), 0
    axis = as_axis(axis, len(shape))
    return (*shape[:axis], call.data_symbol(condition[0]), *shape[axis + 1 :])


def shape_nonzero(call: Call) -> list[Shape]:
    """One dimension of the same unknown size for each axis."""
    shape = call.shape(0)
    if not shape:
        raise ShapeError("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead.")
    count = call.data_symbol(product(shape))
    return [(count,)] * len(shape)


def layout_nonzero(call: Call, shape: Shape) -> Layout:
    """NumPy finds all coordinates in one table and returns its columns."""
    return Layout.c(1) if len(call.shape(0)) == 1 else Layout((0,), 0)


def shape_argwhere(call: Call) -> Shape:
    """One row of coordinates for each nonzero element."""
    shape = call.shape(0)
    return call.data_symbol(product(shape)), len(shape)


def layout_argwhere(call: Call, shape: Shape) -> Layout:
    """The coordinates of one axis lie together."""
    return Layout.f(2)


def shape_flatnonzero(call: Call) -> Shape:
    """One dimension."""
    return (call.data_symbol(product(call.shape(0))),)


# ---- order -----------------------------------------------------------------------------------------------------------


def shape_sort(call: Call) -> Shape:
    """The operand's shape, or one dimension for axis None."""
    shape, axis = call.shape(0), call["axis"]
    if axis is None:
        return (product(shape),)
    as_axis(axis, len(shape))
    return shape


def layout_sort(call: Call, shape: Shape) -> Layout:
    """The operand's order; C if it was flattened."""
    return Layout.c(1) if call["axis"] is None else copied_order(call.layout(0))


def shape_argsort(call: Call) -> Shape:
    """As for sort, but a scalar counts as one element in one dimension."""
    if not call.shape(0):
        if call["axis"] not in (None, 0, -1):
            raise ShapeError(f"axis {call['axis']} is out of bounds for array of dimension 0")
        return (1,)
    return shape_sort(call)


def dtype_topk(call: Call) -> list[DType]:
    """Values and positions."""
    return [dtype_of(call.operand(0)), int64]


def shape_topk(call: Call) -> Shape:
    """`k` along `axis`."""
    shape, k = call.shape(0), call["k"]
    axis = as_axis(call["axis"], len(shape))
    size = shape[axis]
    if isinstance(k, int) and (k < 0 or (isinstance(size, int) and k > size)):
        raise ShapeError(f"topk: k must be in 0..{size}, got {k}")
    return (*shape[:axis], k, *shape[axis + 1 :])


_UNIQUE_EXTRAS: Final = ("return_index", "return_inverse", "return_counts")


def _unique_extras(call: Call) -> list[str]:
    if call["axis"] is not None:
        raise NotStatic("unique along an axis")
    return [name for name in _UNIQUE_EXTRAS if call[name]]


def dtype_unique(call: Call) -> DType | list[DType]:
    """The operand's dtype; indices and counts are int64."""
    dtype, extras = dtype_of(call.operand(0)), _unique_extras(call)
    return [dtype, *(int64 for _ in extras)] if extras else dtype


def shape_unique(call: Call) -> Shape | list[Shape]:
    """One dimension of unknown size; the inverse has the operand's shape."""
    shape, extras = call.shape(0), _unique_extras(call)
    found: Shape = (call.data_symbol(product(shape)),)
    if not extras:
        return found
    return [found, *(shape if name == "return_inverse" else found for name in extras)]


def shape_searchsorted(call: Call) -> Shape:
    """The shape of the values searched for."""
    sorted_shape = call.shape(0)
    if len(sorted_shape) != 1:
        depth = "deep" if len(sorted_shape) > 1 else "small depth"
        raise ShapeError(f"object of too {depth} for desired array: searchsorted needs one dimension")
    if call.given(2):
        order = call.shape(2)
        sizes = (*order, *sorted_shape)
        if len(order) != 1 or (all(isinstance(n, int) for n in sizes) and sizes[0] != sizes[1]):
            raise ShapeError("sorter.size must equal a.size")
    return call.shape(1)


def dtype_searchsorted(call: Call) -> DType:
    """Positions.

    Raises:
        DTypeError: a sorter that is not integers.
    """
    if call.given(2) and not np.can_cast(dtype_of(call.operand(2)).numpy, _INDEX):
        raise DTypeError("sorter must only contain integers")
    return int64


# ---- one_hot ---------------------------------------------------------------------------------------------------------


def dtype_one_hot(call: Call) -> DType:
    """The dtype asked for; indices must be integers."""
    found = dtype_of(call.operand(0))
    if not found.is_integer:
        raise DTypeError(f"one_hot: indices must be integers, got {found.name}")
    return as_dtype(call["dtype"])


def shape_one_hot(call: Call) -> Shape:
    """The indices' shape with a new axis of size `depth`."""
    shape, depth = call.shape(0), call["depth"]
    if isinstance(depth, int) and depth < 0:
        raise ShapeError(f"one_hot needs depth >= 0, got {depth}")
    if isinstance(depth, float):
        raise DTypeError(f"one_hot needs an integer depth, got {depth}")
    axis = as_axis(call["axis"], len(shape) + 1)
    size: DimLike = depth
    return (*shape[:axis], size, *shape[axis:])
