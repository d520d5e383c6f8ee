"""Rules of operators that join, cut and repeat arrays: concatenate, stack, split, tile, repeat, roll, pad, tril, diag.

In: a `Call`. Out: shapes, dtypes, layouts and aliases. The order of a concatenation's axes in memory follows NumPy's
`PyArray_CreateMultiSortedStridePerm` (numpy/_core/src/multiarray/ctors.c): all inputs vote, C order wins a draw.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from tiercel.dtypes import DType
from tiercel.errors import DTypeError, ShapeError
from tiercel.operators.layout import Layout, k_order
from tiercel.operators.rules import attribute_dtype, common_dtype, dtype_of
from tiercel.operators.table import FRESH, Alias, Call, shape_of, view
from tiercel.operators.types import ArrayType, NotStatic, Shape
from tiercel.operators.views import above_one, as_axis, diagonal_dim
from tiercel.shapes import Dim, DimLike, Facts, concat_dim, product, slice_dim

__all__ = [
    "Prepared",
    "alias_diag",
    "along_axis",
    "as_columns",
    "copied_order",
    "at_least_1d",
    "at_least_2d",
    "at_least_3d",
    "dtype_joined",
    "joined_layout",
    "layout_diag",
    "layout_joined",
    "layout_pad",
    "layout_roll",
    "layout_split",
    "layout_tile",
    "layout_triangle",
    "layout_unstack",
    "shape_diag",
    "shape_joined",
    "shape_pad",
    "shape_repeat",
    "shape_roll",
    "shape_split",
    "shape_tile",
    "shape_triangle",
    "shape_unstack",
    "stacked",
]

# An operand of a concatenation after what is done to it first.
Prepared = tuple[Shape, Layout]
Prepare = Callable[[Call, list[Prepared]], tuple[list[Prepared], int]]


# ---- concatenate and stack -------------------------------------------------------------------------------------------


def dtype_joined(call: Call) -> DType:
    """`dtype=` if given, else the common dtype; Python scalars are weak only where the arrays are flattened."""
    if not call.sequence(0):
        raise ShapeError("need at least one array to concatenate")
    given = attribute_dtype(call) if "dtype" in {p.name for p in call.operator.parameters} else None
    if given is not None:
        return given
    if "axis" in {p.name for p in call.operator.parameters} and call["axis"] is None:
        return common_dtype(call.operands)
    return common_dtype([ArrayType(dtype_of(t), (), Layout.c(0)) for t in call.operands])


def _operands(call: Call) -> list[Prepared]:
    return [(shape_of(t), t.layout if isinstance(t, ArrayType) else Layout.c(0)) for t in call.operands]


def along_axis(call: Call, operands: list[Prepared]) -> tuple[list[Prepared], int]:
    """Concatenate along `axis`; None flattens."""
    axis = call["axis"]
    if axis is None:
        return [((product(shape),), Layout.c(1)) for shape, _ in operands], 0
    rank = len(operands[0][0])
    if rank == 0:
        raise ShapeError("zero-dimensional arrays cannot be concatenated")
    return operands, as_axis(axis, rank)


def stacked(call: Call, operands: list[Prepared]) -> tuple[list[Prepared], int]:
    """Concatenate along a new axis."""
    rank = len(operands[0][0])
    axis = as_axis(call["axis"], rank + 1)
    for shape, _ in operands:
        if len(shape) != rank:
            raise ShapeError("all input arrays must have the same shape")
    return [((*s[:axis], 1, *s[axis:]), layout.insert(axis)) for s, layout in operands], axis


def at_least_1d(call: Call, operands: list[Prepared]) -> tuple[list[Prepared], int]:
    """hstack: axis 1, or 0 if the first array has one dimension."""
    raised = [(s or (1,), layout if s else Layout.c(1)) for s, layout in operands]
    return raised, 0 if len(raised[0][0]) == 1 else 1


def at_least_2d(call: Call, operands: list[Prepared]) -> tuple[list[Prepared], int]:
    """vstack: axis 0; vectors become rows."""
    return [_rows(s, layout) for s, layout in operands], 0


def at_least_3d(call: Call, operands: list[Prepared]) -> tuple[list[Prepared], int]:
    """dstack: axis 2; vectors become `(1, n, 1)`, matrices `(m, n, 1)`."""
    out = []
    for s, layout in operands:
        shape, found = _rows(s, layout)
        out.append((shape, found) if len(shape) > 2 else ((*shape, 1), found.insert(2)))
    return out, 2


def as_columns(call: Call, operands: list[Prepared]) -> tuple[list[Prepared], int]:
    """column_stack: axis 1; vectors become columns."""
    out = []
    for s, layout in operands:
        if len(s) >= 2:
            out.append((s, layout))
        else:
            # np.array(v, ndmin=2).T
            shape, found = _rows(s, layout)
            out.append((shape[::-1], found.permute((1, 0))))
    return out, 1


def _rows(shape: Shape, layout: Layout) -> Prepared:
    if not shape:
        return (1, 1), Layout.c(2)
    return ((1, *shape), layout.insert(0)) if len(shape) == 1 else (shape, layout)


def shape_joined(prepare: Prepare = along_axis) -> Callable[[Call], Shape]:
    """Sizes add up along the axis and agree elsewhere."""

    def rule(call: Call) -> Shape:
        operands, axis = prepare(call, _operands(call))
        first = operands[0][0]
        if axis >= len(first):
            raise ShapeError(f"axis {axis} is out of bounds for array of dimension {len(first)}")
        out = list(first)
        for number, (shape, _) in enumerate(operands[1:], 1):
            if len(shape) != len(first):
                raise ShapeError(
                    "all the input array dimensions except for the concatenation axis must match exactly, but array 0 "
                    f"has {len(first)} dimension(s) and array {number} has {len(shape)}"
                )
            for a, size in enumerate(shape):
                if a != axis:
                    out[a] = _agree(out[a], size, a, number, call.facts)
        out[axis] = concat_dim([shape[axis] for shape, _ in operands])
        return tuple(out)

    return rule


def _agree(a: DimLike, b: DimLike, axis: int, number: int, facts: Facts | None) -> DimLike:
    if a == b:
        return a
    differ = isinstance(a, int) and isinstance(b, int)
    if differ or (facts is not None and facts.equal(a, b) is False):
        raise ShapeError(
            f"all the input array dimensions except for the concatenation axis must match exactly, but along dimension "
            f"{axis}, array 0 has size {a} and array {number} has size {b}"
        )
    # They are equal or the call raises: a number says more than a symbol.
    return b if isinstance(b, int) else a


def layout_joined(prepare: Prepare = along_axis) -> Callable[[Call, Shape], Layout]:
    """The order in memory that most of the inputs agree on."""

    def rule(call: Call, shape: Shape) -> Layout:
        operands, _ = prepare(call, _operands(call))
        return joined_layout(operands, call.facts)

    return rule


def joined_layout(operands: Sequence[Prepared], facts: Facts | None = None) -> Layout:
    """The layout of a concatenation of arrays of one rank."""
    rank = len(operands[0][0])
    if rank <= 1 or all(layout.order == tuple(range(rank)) for _, layout in operands):
        return Layout.c(rank)
    if any(layout.order is None for _, layout in operands):
        return Layout.unknown()
    undecided = [
        (number, axis)
        for number, (shape, _) in enumerate(operands)
        for axis, size in enumerate(shape)
        if isinstance(size, Dim) and not above_one(size, facts)
    ]
    # Equal sizes stay equal: one choice a symbol.
    symbols = list(dict.fromkeys(operands[number][0][axis] for number, axis in undecided))
    if len(symbols) > 6:
        return Layout.unknown()
    answers = set()
    for ones in itertools.product((False, True), repeat=len(symbols)):
        is_one = dict(zip(symbols, ones, strict=True))
        answers.add(_vote([([is_one.get(d, d == 1) for d in shape], layout) for shape, layout in operands], rank))
    return Layout.dense(answers.pop()) if len(answers) == 1 else Layout.unknown()


def _vote(operands: list[tuple[list[bool], Layout]], rank: int) -> tuple[int, ...]:
    strides: list[list[int]] = []
    for _, layout in operands:
        assert layout.order is not None
        pseudo = [0] * rank
        for position, axis in enumerate(layout.order):
            pseudo[axis] = 0 if axis in layout.zero else rank - position
        strides.append(pseudo)
    order = list(range(rank))
    for i in range(1, rank):
        position, axis = i, order[i]
        for j in range(i - 1, -1, -1):
            other = order[j]
            ambiguous, swap = True, False
            for (ones, _), s in zip(operands, strides, strict=True):
                if ones[axis] or ones[other]:
                    continue
                if s[axis] <= s[other]:
                    swap = False
                elif ambiguous:
                    swap = True
                ambiguous = False
            if ambiguous:
                continue
            if not swap:
                break
            position = j
        if position != i:
            order.insert(position, order.pop(i))
    return tuple(order)


# ---- split -----------------------------------------------------------------------------------------------------------


def _split_axis(call: Call) -> int:
    return as_axis(call["axis"], len(call.shape(0)))


def shape_split(*, uneven: bool) -> Callable[[Call], list[Shape]]:
    """Equal parts (`uneven`: the first may be longer), or the parts between the indices in `sections`."""

    def rule(call: Call) -> list[Shape]:
        shape, axis, sections = call.shape(0), _split_axis(call), call["sections"]
        size = shape[axis]
        if isinstance(sections, Dim):
            raise NotStatic("the number of parts of a split depends on a size")
        if isinstance(sections, tuple | list):
            cuts = [0, *sections, None]
            sizes = [slice_dim(size, a, b, facts=call.facts) for a, b in itertools.pairwise(cuts)]
        else:
            sizes = _equal_parts(size, sections, uneven)
        return [(*shape[:axis], n, *shape[axis + 1 :]) for n in sizes]

    return rule


def _equal_parts(size: DimLike, sections: Any, uneven: bool) -> list[DimLike]:
    count = int(sections)
    if count <= 0:
        raise ShapeError("number sections must be larger than 0.")
    if not uneven:
        if isinstance(size, int) and size % count:
            raise ShapeError("array split does not result in an equal division")
        return [size // count] * count
    # The first size % count parts are one longer.
    return [(size + (count - 1 - i)) // count for i in range(count)]


def layout_split(call: Call, shape: Shape) -> Layout:
    """The strides of the operand."""
    axis = _split_axis(call)
    if shape[axis] == call.shape(0)[axis]:
        return call.layout(0)
    return call.layout(0).cut(axis, step_one=True)


def shape_unstack(call: Call) -> list[Shape]:
    """One result for each position along `axis`, without that axis."""
    shape = call.shape(0)
    if not shape:
        raise ShapeError("Input array must be at least 1-d.")
    axis = as_axis(call["axis"], len(shape))
    size = shape[axis]
    if isinstance(size, Dim):
        raise NotStatic(f"the number of results of unstack is the size {size}")
    return [(*shape[:axis], *shape[axis + 1 :])] * size


def layout_unstack(call: Call, shape: Shape) -> Layout:
    """The strides of the operand along the other axes."""
    return call.layout(0).drop(as_axis(call["axis"], len(shape) + 1))


# ---- repeat ----------------------------------------------------------------------------------------------------------


def _tile_reps(call: Call) -> tuple[tuple[Any, ...], Shape]:
    reps = call["reps"]
    given = tuple(reps) if isinstance(reps, tuple | list) else (reps,)
    shape = call.shape(0)
    rank = max(len(given), len(shape))
    return (1,) * (rank - len(given)) + given, (1,) * (rank - len(shape)) + shape


def shape_tile(call: Call) -> Shape:
    """Each size times its repetition."""
    reps, shape = _tile_reps(call)
    for count in reps:
        if isinstance(count, int) and count < 0:
            raise ShapeError("negative dimensions are not allowed")
    return tuple(n * r for n, r in zip(shape, reps, strict=True))


def layout_tile(call: Call, shape: Shape) -> Layout:
    """C order; a copy in the operand's order if nothing is repeated."""
    reps, _ = _tile_reps(call)
    if any(isinstance(r, int) and r != 1 for r in reps) or not isinstance(call.operand(0), ArrayType):
        return Layout.c(len(shape))
    copied = call.layout(0)
    for _ in range(len(shape) - len(call.shape(0))):
        copied = copied.insert(0)
    kept = copied_order(copied)
    # A repetition of unknown count may be 1.
    return kept if all(isinstance(r, int) for r in reps) or kept.is_c else Layout.unknown()


def shape_repeat(call: Call) -> Shape:
    """The size along `axis` (of the flattened array for None) times `repeats`, or the sum of the counts."""
    shape, axis, repeats = call.shape(0), call["axis"], call["repeats"]
    if axis is None:
        shape, axis = (product(shape),), 0
    elif not shape and axis in (0, -1):
        shape, axis = (1,), 0
    axis = as_axis(axis, len(shape))
    size = shape[axis]
    counts = list(repeats) if isinstance(repeats, tuple | list) else [repeats]
    # NumPy cuts the fraction of a Python float off.
    counts = [int(count) if isinstance(count, float) else count for count in counts]
    for count in counts:
        if isinstance(count, int) and count < 0:
            raise ShapeError("repeats may not contain negative values.")
    if len(counts) == 1:
        total = size * counts[0]
    else:
        if isinstance(size, int) and size != len(counts):
            raise ShapeError(f"operands could not be broadcast together with shape ({size},) ({len(counts)},)")
        total = concat_dim(counts)
    return (*shape[:axis], total, *shape[axis + 1 :])


# ---- same or padded shape --------------------------------------------------------------------------------------------


def shape_roll(call: Call) -> Shape:
    """The operand's shape."""
    shape, axis, shift = call.shape(0), call["axis"], call["shift"]
    if axis is not None:
        for a in axis if isinstance(axis, tuple | list) else (axis,):
            as_axis(a, len(shape))
        counts = {len(v) for v in (axis, shift) if isinstance(v, tuple | list)} - {1}
        if len(counts) > 1:
            raise ShapeError("'shift' and 'axis' should be scalars or 1D sequences")
    return shape


def layout_roll(call: Call, shape: Shape) -> Layout:
    """The operand's order; C if it was flattened."""
    if call["axis"] is None:
        return Layout.c(len(shape))
    return copied_order(call.layout(0))


def copied_order(layout: Layout) -> Layout:
    """The layout of a fresh array "like" another (order='K'): the same order of axes, dense.

    Unlike in an element-wise iteration, axes of stride 0 count as the innermost.
    """
    return layout if layout.order is None else Layout.dense(layout.order)


def pad_pairs(width: Any, rank: int) -> list[tuple[DimLike, DimLike]]:
    """`pad_width` as one (before, after) pair a dimension: NumPy broadcasts it to shape (rank, 2).

    Raises:
        ShapeError: it does not broadcast, or is negative.
    """
    rows = list(width) if isinstance(width, tuple | list) else [width]
    if not rows:
        raise DTypeError("`pad_width` must be of integral type.")
    if any(isinstance(r, tuple | list) for r in rows):
        pairs = [tuple(r) if isinstance(r, tuple | list) else (r,) for r in rows]
        if len({len(p) for p in pairs}) != 1:
            raise ShapeError("the pairs of pad_width have different lengths")
    else:
        pairs = [tuple(rows)]
    if len(pairs) == 1:
        pairs = pairs * rank
    out = []
    for pair in pairs:
        if len(pair) not in (1, 2) or len(pairs) != rank:
            raise ShapeError(f"pad_width {width!r} does not broadcast to shape ({rank}, 2)")
        before, after = pair if len(pair) == 2 else pair * 2
        for amount in (before, after):
            if isinstance(amount, float):
                raise DTypeError("`pad_width` must be of integral type.")
            if isinstance(amount, int) and amount < 0:
                raise ShapeError("index can't contain negative values")
        out.append((before, after))
    return out


def shape_pad(call: Call) -> Shape:
    """Each size plus what is put before and after it."""
    shape = call.shape(0)
    pairs = pad_pairs(call["pad_width"], len(shape))
    if call["mode"] not in ("constant", "empty"):
        for size, (before, after) in zip(shape, pairs, strict=True):
            if size == 0 and not (before == 0 and after == 0):
                raise ShapeError("can't extend an empty axis using modes other than 'constant' or 'empty'")
    return tuple(n + before + after for n, (before, after) in zip(shape, pairs, strict=True))


def layout_pad(call: Call, shape: Shape) -> Layout:
    """Fortran order for an operand that is Fortran but not C contiguous, else C order."""
    layout, rank = call.layout(0), len(shape)
    if layout.is_c or rank <= 1 or not layout.is_known:
        return Layout.c(rank) if layout.is_known else layout
    c, f = layout.flags(call.shape(0), call.facts)
    if c is True or f is False or not layout.is_dense:
        return Layout.c(rank)
    return Layout.f(rank) if f is True and c is False else Layout.unknown()


def _triangle_shape(shape: Shape) -> Shape:
    if not shape:
        raise DTypeError("tril and triu need at least one dimension")
    return shape[-1:] * 2 if len(shape) == 1 else shape[-2:]


def shape_triangle(call: Call) -> Shape:
    """The operand's shape; a vector is taken as every row of a square."""
    shape = call.shape(0)
    return _triangle_shape(shape) if len(shape) < 2 else shape


def layout_triangle(call: Call, shape: Shape) -> Layout:
    """The order of iterating over the operand and the C-ordered mask together."""
    source = call.shape(0)
    mask = _triangle_shape(source)
    return k_order([(mask, Layout.c(2)), (source, call.layout(0))], shape, call.facts)


def shape_diag(call: Call) -> Shape:
    """A square with the vector on a diagonal, or the diagonal of a matrix."""
    shape, k = call.shape(0), call["k"]
    if len(shape) == 1:
        size = shape[0] + abs(k)
        return size, size
    if len(shape) == 2:
        return (diagonal_dim(*shape, k),)
    raise ShapeError("Input must be 1- or 2-d.")


def layout_diag(call: Call, shape: Shape) -> Layout:
    """C order for the square, a stride for the view."""
    return Layout.c(2) if len(shape) == 2 else Layout((0,), 0)


def alias_diag(call: Call) -> Alias:
    """The diagonal of a matrix is a view."""
    return view(0) if len(call.shape(0)) == 2 else FRESH
