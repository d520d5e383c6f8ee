"""Rules of operators whose result is a view of operand 0 where memory allows: reshape, transpose, flip, diagonal, ...

In: a `Call`. Out: shape, layout and alias. Invariant: "view" and "fresh" are said only where they hold for every size
the symbols may take; "view_if" with an unknown layout means that sizes or strides of the call decide.
"""

from __future__ import annotations

import itertools
import operator as python_operator
from collections.abc import Callable, Sequence
from typing import Any

from tiercel.dtypes import DType
from tiercel.errors import DTypeError, ShapeError
from tiercel.operators.layout import Layout
from tiercel.operators.rules import kind_array, normalized_axes
from tiercel.operators.table import FRESH, Alias, Call, ResultRule, view, view_if
from tiercel.operators.types import ArrayType, NotStatic, NpScalarType, Shape, Type
from tiercel.shapes import (
    Dim,
    DimLike,
    Facts,
    broadcast_shapes,
    dim_max,
    dim_min,
    normalize_axis,
    product,
    solve_reshape,
)

__all__ = [
    "above_one",
    "alias_ravel",
    "alias_reshape",
    "alias_squeeze",
    "as_axis",
    "as_shape",
    "dense_strides",
    "kind_view",
    "layout_broadcast_to",
    "layout_diagonal",
    "layout_expand_dims",
    "layout_flatten",
    "layout_flip",
    "layout_flip_fixed",
    "layout_of_strides",
    "layout_permuted",
    "layout_ravel",
    "layout_reshape",
    "layout_squeeze",
    "permutation_matrix_transpose",
    "permutation_moveaxis",
    "permutation_swapaxes",
    "permutation_transpose",
    "shape_broadcast_to",
    "shape_diagonal",
    "shape_expand_dims",
    "shape_flip",
    "shape_flip_fixed",
    "shape_permuted",
    "shape_ravel",
    "shape_reshape",
    "shape_squeeze",
    "viewed",
    "without_unit_axis",
]

Permutation = Callable[[Call], tuple[int, ...]]


# ---- attributes ------------------------------------------------------------------------------------------------------


def as_axis(value: object, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        DTypeError: it is no integer.
        ShapeError: it is out of bounds.
    """
    if isinstance(value, Dim):
        raise NotStatic("an axis depends on a size")
    try:
        index = python_operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise DTypeError(f"an axis must be an integer, got {value!r}") from None
    return normalize_axis(index, rank)


def as_shape(value: object) -> Shape:
    """A shape attribute (an int, a size expression, or a sequence of them) as a tuple; sizes may be -1.

    Raises:
        DTypeError: an entry is no integer.
    """
    entries = value if isinstance(value, tuple | list) else (value,)
    return tuple(entry if isinstance(entry, Dim) else _index(entry) for entry in entries)


def _index(value: object) -> int:
    try:
        return python_operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise DTypeError(f"a size must be an integer, got {value!r}") from None


def above_one(dim: DimLike, facts: Facts | None) -> bool:
    """Whether a size is certainly greater than 1."""
    if isinstance(dim, int):
        return dim > 1
    if facts is None:
        return False
    lo = facts.range(dim).lo
    return lo is not None and lo > 1


# ---- kind and alias --------------------------------------------------------------------------------------------------


def kind_view(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    """A NumPy scalar of rank 0 stays one; all else becomes an array."""
    if not shape and isinstance(call.operand(0), NpScalarType):
        return NpScalarType(dtype)
    return kind_array(call, dtype, shape, layout)


def viewed(alias: Alias | ResultRule) -> ResultRule:
    """The alias where operand 0 is an array; of anything else NumPy makes a new array first."""

    def rule(call: Call) -> Alias | list[Alias]:
        if not isinstance(call.types[0], ArrayType):
            return FRESH
        return alias if isinstance(alias, Alias) else alias(call)

    return rule


# ---- permutations ----------------------------------------------------------------------------------------------------


def permutation_transpose(call: Call) -> tuple[int, ...]:
    """`axes`, or all axes reversed."""
    rank, axes = len(call.shape(0)), call["axes"]
    # x.transpose(None) arrives as the one collected argument None.
    if axes is None or axes == (None,):
        return tuple(reversed(range(rank)))
    given = axes if isinstance(axes, tuple | list) else (axes,)
    if len(given) != rank:
        raise ShapeError(f"axes don't match array: {len(given)} axes for {rank} dimensions")
    out = tuple(as_axis(a, rank) for a in given)
    if len(set(out)) != rank:
        raise ShapeError("repeated axis in transpose")
    return out


def permutation_swapaxes(call: Call) -> tuple[int, ...]:
    """All axes, `axis1` and `axis2` exchanged."""
    rank = len(call.shape(0))
    one, two = as_axis(call["axis1"], rank), as_axis(call["axis2"], rank)
    out = list(range(rank))
    out[one], out[two] = two, one
    return tuple(out)


def permutation_matrix_transpose(call: Call) -> tuple[int, ...]:
    """All axes, the last two exchanged."""
    rank = len(call.shape(0))
    if rank < 2:
        raise ShapeError(f"matrix transpose needs at least 2 dimensions, got {rank}")
    return (*range(rank - 2), rank - 1, rank - 2)


def permutation_moveaxis(call: Call) -> tuple[int, ...]:
    """`source` axes at their `destination`, the others in their order."""
    rank = len(call.shape(0))
    source, destination = (_axes_in_order(call[name], rank) for name in ("source", "destination"))
    if len(source) != len(destination):
        raise ShapeError("`source` and `destination` arguments must have the same number of elements")
    out = [a for a in range(rank) if a not in source]
    for target, axis in sorted(zip(destination, source, strict=True)):
        out.insert(target, axis)
    return tuple(out)


def _axes_in_order(value: object, rank: int) -> tuple[int, ...]:
    given = value if isinstance(value, tuple | list) else (value,)
    out = tuple(as_axis(a, rank) for a in given)
    if len(set(out)) != len(out):
        raise ShapeError("repeated axis")
    return out


def shape_permuted(permutation: Permutation) -> Callable[[Call], Shape]:
    """The operand's sizes in the order of the permutation."""

    def rule(call: Call) -> Shape:
        shape = call.shape(0)
        return tuple(shape[a] for a in permutation(call))

    return rule


def layout_permuted(permutation: Permutation) -> Callable[[Call, Shape], Layout]:
    """The operand's strides in the order of the permutation."""

    def rule(call: Call, shape: Shape) -> Layout:
        return call.layout(0).permute(permutation(call))

    return rule


# ---- reshape ---------------------------------------------------------------------------------------------------------


def _order(call: Call) -> str:
    order = call["order"]
    return "C" if order is None else str(order).upper()


def shape_reshape(call: Call) -> Shape:
    """`shape` with its -1 solved."""
    return solve_reshape(call.shape(0), as_shape(call["shape"]), call.facts)


def layout_reshape(call: Call, shape: Shape) -> Layout:
    """The strides of the view, or the order of the copy."""
    return _reshape(call, shape)[1]


def alias_reshape(call: Call) -> Alias:
    """A view where the operand's strides can express the new shape."""
    return _reshape(call, shape_reshape(call))[0]


def shape_ravel(call: Call) -> Shape:
    """One dimension."""
    return (product(call.shape(0)),)


def layout_ravel(call: Call, shape: Shape) -> Layout:
    """As `layout_reshape`; order 'K' may give a view with a stride."""
    return _ravel(call)[1]


def alias_ravel(call: Call) -> Alias:
    """A view of what is contiguous in the order asked for."""
    return _ravel(call)[0]


def layout_flatten(call: Call, shape: Shape) -> Layout:
    """A fresh array of one dimension."""
    return Layout.c(1)


def _ravel(call: Call) -> tuple[Alias, Layout]:
    order, source, layout = _order(call), call.shape(0), call.layout(0)
    if order == "C" and layout.is_c:
        return view(0), Layout.c(1)
    if order == "C" and layout.is_known:
        c, _ = layout.flags(source, call.facts)
        if c is False:
            return FRESH, Layout.c(1)
    if order == "F" and layout.is_f:
        return view(0), Layout.c(1)
    # Contiguous or not, what NumPy makes in these orders is contiguous.
    return view_if(0), Layout.c(1) if order in "CF" else Layout.unknown()


def _reshape(call: Call, shape: Shape) -> tuple[Alias, Layout]:
    order, source, layout = _order(call), call.shape(0), call.layout(0)
    if order == "C":
        return reshape_layout(source, layout, shape, call.facts)
    if order == "A":
        raise NotStatic("reshape with order='A' depends on flags of the array")
    # Fortran order is C order on reversed axes.
    rank, new_rank = len(source), len(shape)
    alias, found = reshape_layout(source[::-1], layout.permute(range(rank - 1, -1, -1)), shape[::-1], call.facts)
    return alias, found.permute(range(new_rank - 1, -1, -1))


def reshape_layout(source: Shape, layout: Layout, shape: Shape, facts: Facts | None = None) -> tuple[Alias, Layout]:
    """What reshaping in C order gives: the alias and the layout.

    NumPy (`_attempt_nocopy_reshape` in numpy/_core/src/multiarray/shape.c) matches runs of old axes with runs of new
    ones of the same product; a run of several old axes must be dense within itself.
    """
    if layout.is_c or any(isinstance(d, int) and d == 0 for d in source):
        return view(0), Layout.c(len(shape))
    groups = _match_groups(source, shape)
    if groups is None or layout.order is None:
        return view_if(0), Layout.unknown()
    joined = [_joins(old, source, layout, facts) for old, _ in groups]
    if False in joined:
        return FRESH, Layout.c(len(shape))
    if None in joined:
        return view_if(0), Layout.unknown()
    return view(0), _regroup(layout, groups, shape)


def _match_groups(source: Shape, shape: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Pair runs of old axes and runs of new axes of equal product, sizes of 1 left out; None if sizes do not tell."""
    old = [a for a, d in enumerate(source) if d != 1]
    new = [a for a, d in enumerate(shape) if d != 1]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) and j < len(new):
        olds, news = [old[i]], [new[j]]
        have, want = source[old[i]], shape[new[j]]
        i, j = i + 1, j + 1
        while have != want:
            if _divides(have, want) and i < len(old):
                olds.append(old[i])
                have = have * source[old[i]]
                i += 1
            elif _divides(want, have) and j < len(new):
                news.append(new[j])
                want = want * shape[new[j]]
                j += 1
            elif isinstance(have, int) and isinstance(want, int):
                # Neither divides the other: both runs grow until they meet.
                if have < want and i < len(old):
                    olds.append(old[i])
                    have = have * source[old[i]]
                    i += 1
                elif j < len(new):
                    news.append(new[j])
                    want = want * shape[new[j]]
                    j += 1
                else:
                    return None
            else:
                return None
        groups.append((olds, news))
    return groups if i == len(old) and j == len(new) else None


def _divides(a: DimLike, b: DimLike) -> bool:
    """Whether `b` is a multiple of `a` by form."""
    if isinstance(a, int) and a == 0:
        return False
    return (b // a) * a == b


def _joins(axes: Sequence[int], source: Shape, layout: Layout, facts: Facts | None) -> bool | None:
    """Whether each of the axes' strides is the next one's size times stride; None where that is not known."""
    assert layout.order is not None
    if len(axes) == 1:
        return True
    place = {a: i for i, a in enumerate(layout.order)}
    dense_from = len(layout.order) - layout.packed
    answer: bool | None = True
    for outer, inner in itertools.pairwise(axes):
        zeros = (outer in layout.zero) + (inner in layout.zero)
        if zeros == 2:
            continue
        certain = above_one(source[outer], facts) and above_one(source[inner], facts)
        if zeros == 1:
            if certain:
                return False
            answer = None
            continue
        between = layout.order[place[outer] + 1 : place[inner]]
        apart = [a for a in between if source[a] != 1]
        if place[outer] < place[inner] and not apart and place[outer] >= dense_from:
            continue
        wrong_order = place[outer] > place[inner]
        too_far = place[outer] >= dense_from and any(above_one(source[a], facts) for a in apart)
        if certain and (wrong_order or too_far):
            return False
        answer = None
    return answer


def _regroup(layout: Layout, groups: list[tuple[list[int], list[int]]], shape: Shape) -> Layout:
    assert layout.order is not None
    news_of = {olds[0]: news for olds, news in groups}
    dense_from = len(layout.order) - layout.packed
    dense: dict[int, bool] = {}
    zero: list[int] = []
    order: list[int] = []
    for position, axis in enumerate(layout.order):
        for new in news_of.get(axis, ()):
            order.append(new)
            dense[new] = position >= dense_from
            if axis in layout.zero:
                zero.append(new)
    for axis, size in enumerate(shape):
        # An axis of size 1 stands inside the one before it; its stride says nothing.
        if size == 1 and axis not in dense:
            position = order.index(axis - 1) + 1 if axis - 1 in order else 0
            dense[axis] = all(dense[a] for a in order[position:])
            order.insert(position, axis)
    packed = 0
    for axis in reversed(order):
        if not dense[axis]:
            break
        packed += 1
    return Layout(tuple(order), packed, tuple(sorted(zero)))


# ---- axes of size 1 --------------------------------------------------------------------------------------------------


def _squeezed_axes(call: Call) -> tuple[int, ...]:
    shape, axis = call.shape(0), call["axis"]
    if axis is None:
        for size in shape:
            if isinstance(size, Dim) and (call.facts is None or call.facts.range(size).contains(1)):
                raise NotStatic(f"squeeze without an axis: whether the size {size} is 1 decides the rank")
        return tuple(a for a, size in enumerate(shape) if size == 1)
    if not shape and axis in (0, -1):
        return ()
    axes = normalized_axes(axis, len(shape))
    for a in axes:
        if isinstance(shape[a], int) and shape[a] != 1:
            raise ShapeError("cannot select an axis to squeeze out which has size not equal to one")
    return axes


def shape_squeeze(call: Call) -> Shape:
    """Without axes of size 1: those of `axis`, or all."""
    axes = _squeezed_axes(call)
    return tuple(d for a, d in enumerate(call.shape(0)) if a not in axes)


def layout_squeeze(call: Call, shape: Shape) -> Layout:
    """The strides that are left."""
    layout = call.layout(0)
    for axis in reversed(_squeezed_axes(call)):
        layout = without_unit_axis(layout, axis)
    return layout


def alias_squeeze(call: Call) -> Alias:
    """The operand itself if there is nothing to leave out, else a view."""
    return view(0) if _squeezed_axes(call) else Alias("same", 0)


def without_unit_axis(layout: Layout, axis: int) -> Layout:
    """The layout after leaving out an axis of size 1."""
    if layout.order is None:
        return layout
    position = layout.order.index(axis)
    return Layout(
        tuple(a - (a > axis) for a in layout.order if a != axis),
        layout.packed - (position >= len(layout.order) - layout.packed),
        tuple(a - (a > axis) for a in layout.zero if a != axis),
    )


def _expanded_axes(call: Call) -> tuple[int, ...]:
    axis, rank = call["axis"], len(call.shape(0))
    given = axis if isinstance(axis, tuple | list) else (axis,)
    out = tuple(as_axis(a, rank + len(given)) for a in given)
    if len(set(out)) != len(out):
        raise ShapeError("repeated axis")
    return tuple(sorted(out))


def shape_expand_dims(call: Call) -> Shape:
    """With new axes of size 1, at `axis` of the result."""
    out = list(call.shape(0))
    for axis in _expanded_axes(call):
        out.insert(axis, 1)
    return tuple(out)


def layout_expand_dims(call: Call, shape: Shape) -> Layout:
    """The strides of the operand; those of the new axes say nothing."""
    layout = call.layout(0)
    for axis in _expanded_axes(call):
        layout = layout.insert(axis)
    return layout


# ---- broadcast, flip, diagonal ---------------------------------------------------------------------------------------


def shape_broadcast_to(call: Call) -> Shape:
    """`shape`; the operand must broadcast to it."""
    source, shape = call.shape(0), as_shape(call["shape"])
    for size in shape:
        if isinstance(size, int) and size < 0:
            raise ShapeError("all elements of broadcast shape must be non-negative")
    if len(source) > len(shape):
        raise ShapeError("input operand has more dimensions than allowed by the axis remapping")
    both = broadcast_shapes(source, shape, facts=call.facts)
    if any(isinstance(b, int) and isinstance(s, int) and b != s for b, s in zip(both, shape, strict=True)):
        raise ShapeError(f"could not broadcast an array of shape {source} to {shape}")
    return shape


def layout_broadcast_to(call: Call, shape: Shape) -> Layout:
    """Stride 0 along axes that are new or stretched from size 1."""
    source, layout = call.shape(0), call.layout(0)
    if layout.order is None:
        return layout
    offset = len(shape) - len(source)
    stretched = set(range(offset))
    for axis, size in enumerate(source, offset):
        if size == shape[axis]:
            continue
        if size == 1:
            stretched.add(axis)
        elif isinstance(size, Dim) and not above_one(size, call.facts):
            # Stretched where the size turns out to be 1.
            return Layout.unknown()
    if not stretched:
        return layout
    kept = [a + offset for a in layout.order if a + offset not in stretched]
    zero = sorted(stretched | {a + offset for a in layout.zero})
    return Layout((*kept, *sorted(stretched)), 0, tuple(zero))


def _flipped_axes(call: Call) -> tuple[int, ...]:
    return normalized_axes(call["axis"], len(call.shape(0)))


def shape_flip(call: Call) -> Shape:
    """The operand's shape."""
    _flipped_axes(call)
    return call.shape(0)


def layout_flip(call: Call, shape: Shape) -> Layout:
    """The operand's order with negative strides along the flipped axes."""
    layout = call.layout(0)
    for axis in _flipped_axes(call):
        layout = layout.cut(axis, step_one=False)
    return layout


def shape_flip_fixed(axis: int) -> Callable[[Call], Shape]:
    """The operand's shape, which must have this axis."""

    def rule(call: Call) -> Shape:
        shape = call.shape(0)
        if len(shape) <= axis:
            raise ShapeError(f"Input must be >= {axis + 1}-d.")
        return shape

    return rule


def layout_flip_fixed(axis: int) -> Callable[[Call, Shape], Layout]:
    """The operand's order with a negative stride along this axis."""

    def rule(call: Call, shape: Shape) -> Layout:
        return call.layout(0).cut(axis, step_one=False)

    return rule


def _diagonal_axes(call: Call) -> tuple[int, int]:
    rank = len(call.shape(0))
    if rank < 2:
        raise ShapeError("diag requires an array of at least two dimensions")
    one, two = as_axis(call["axis1"], rank), as_axis(call["axis2"], rank)
    if one == two:
        raise ShapeError("axis1 and axis2 cannot be the same")
    return one, two


def diagonal_dim(rows: DimLike, columns: DimLike, offset: DimLike) -> DimLike:
    """The length of a diagonal, `offset` above the main one."""
    if offset == 0:
        return dim_min(rows, columns)  # sizes are not negative
    if isinstance(offset, int):
        return dim_max(dim_min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    return dim_max(dim_min(rows + dim_min(offset, 0), columns - dim_max(offset, 0)), 0)


def shape_diagonal(call: Call) -> Shape:
    """The other axes, then the diagonal."""
    shape, (one, two) = call.shape(0), _diagonal_axes(call)
    rest = tuple(d for a, d in enumerate(shape) if a not in (one, two))
    return (*rest, diagonal_dim(shape[one], shape[two], call["offset"]))


def layout_diagonal(call: Call, shape: Shape) -> Layout:
    """The diagonal's stride is the sum of two."""
    source, layout, (one, two) = call.shape(0), call.layout(0), _diagonal_axes(call)
    if len(source) == 2:
        return Layout((0,), 0)
    strides = dense_strides(source, layout)
    if strides is None:
        return Layout.unknown()
    rest = [s for a, s in enumerate(strides) if a not in (one, two)]
    return layout_of_strides(shape, [*rest, strides[one] + strides[two]])


def dense_strides(shape: Shape, layout: Layout) -> list[int] | None:
    """Strides in elements of a dense array of known sizes; None if it is not such an array."""
    if layout.order is None or not layout.is_dense or not all(isinstance(d, int) for d in shape):
        return None
    strides, step = [0] * len(shape), 1
    for axis in reversed(layout.order):
        strides[axis] = step
        size = shape[axis]
        assert isinstance(size, int)
        step *= max(size, 1)
    return strides


def layout_of_strides(shape: Sequence[Any], strides: Sequence[int]) -> Layout:
    """The layout of known strides, in elements."""
    order = sorted(range(len(strides)), key=lambda axis: -abs(strides[axis]))
    packed, expected = 0, 1
    for axis in reversed(order):
        if shape[axis] != 1:
            if strides[axis] != expected:
                break
            expected *= shape[axis]
        packed += 1
    return Layout(tuple(order), packed, tuple(a for a, s in enumerate(strides) if s == 0 and shape[a] != 1))
