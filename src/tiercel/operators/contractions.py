"""Rules of products that sum over shared axes: matmul, dot, inner, tensordot, einsum, linear.

In: a `Call`. Out: shapes, dtypes and layouts. Sizes that are summed together must be equal; what cannot be shown to
differ is left to run time (`may_fail` says "size").
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tiercel.dtypes import DType, bfloat16, result_type
from tiercel.errors import DTypeError, ShapeError
from tiercel.operators.layout import Layout, k_order
from tiercel.operators.rules import common_dtype, dtype_of, kind_array, kind_numpy, resolve_ufunc
from tiercel.operators.table import FRESH, Alias, Call, shape_of, view
from tiercel.operators.types import ArrayType, NotStatic, Shape, Type, as_array
from tiercel.operators.views import as_axis, dense_strides, diagonal_dim, layout_of_strides
from tiercel.shapes import DimLike, Facts, broadcast_shapes, product

__all__ = [
    "alias_einsum",
    "dtype_dot",
    "dtype_einsum",
    "dtype_linear",
    "dtype_outer",
    "kind_einsum",
    "layout_einsum",
    "layout_matmul",
    "layout_trace",
    "shape_dot",
    "shape_einsum",
    "shape_inner",
    "shape_linear",
    "shape_matmul",
    "shape_outer",
    "shape_tensordot",
    "shape_trace",
    "shape_vdot",
]


def _same(a: DimLike, b: DimLike, facts: Facts | None, message: Callable[[], str]) -> DimLike:
    """The size that both are; a number where one is.

    Raises:
        ShapeError: they differ for certain.
    """
    if a == b:
        return a
    differ = isinstance(a, int) and isinstance(b, int)
    if differ or (facts is not None and facts.equal(a, b) is False):
        raise ShapeError(message())
    return b if isinstance(b, int) else a


# ---- matmul ----------------------------------------------------------------------------------------------------------


def shape_matmul(call: Call) -> Shape:
    """`(..., n, k) @ (..., k, m)`, the leading dimensions broadcast; a vector stands for one row or one column."""
    a, b = call.shape(0), call.shape(1)
    in_place = call.spelling.kind == "inplace"
    if not a or not b or (in_place and len(b) < 2):
        which = 0 if not a else 1
        raise ShapeError(f"matmul: Input operand {which} does not have enough dimensions (has {len((a, b)[which])})")
    rows = a[-2:-1]
    columns = b[-1:] if len(b) > 1 else ()
    inner = b[-2] if len(b) > 1 else b[0]
    _same(
        a[-1],
        inner,
        call.facts,
        lambda: (
            f"matmul: Input operand 1 has a mismatch in its core dimension 0: size {inner} is different from {a[-1]}"
        ),
    )
    if in_place and columns:
        _same(columns[0], a[-1], call.facts, lambda: f"matmul: the result has {columns[0]} columns, the target {a[-1]}")
    return (*broadcast_shapes(a[:-2], b[:-2], facts=call.facts), *rows, *columns)


def layout_matmul(call: Call, shape: Shape) -> Layout:
    """Leading dimensions in the order of the operands' (as an element-wise iteration has it), matrices in C order."""
    a, b = call.operand(0), call.operand(1)
    batch_rank = max(len(shape_of(a)), len(shape_of(b))) - 2
    if batch_rank <= 1:
        return Layout.c(len(shape))
    batch = shape[:batch_rank]
    operands = [_batch(t) for t in (a, b)]
    found = k_order([o for o in operands if o[0]], batch, call.facts)
    if found.order is None:
        return found
    return Layout.dense((*found.order, *range(batch_rank, len(shape))))


def _batch(t: Any) -> tuple[Shape, Layout]:
    """The shape of the leading dimensions and their order among themselves."""
    shape, layout = t.shape[:-2], t.layout
    if layout.order is None:
        return shape, Layout.unknown()
    order = tuple(axis for axis in layout.order if axis < len(shape))
    return shape, Layout(order, 0, tuple(axis for axis in layout.zero if axis < len(shape)))


# ---- dot and its relatives -------------------------------------------------------------------------------------------


def dtype_dot(call: Call) -> DType:
    """The common dtype; a Python scalar counts as an array of its default dtype.

    Raises:
        NotStatic: NumPy finds no common dtype and computes with objects.
    """
    try:
        return common_dtype([ArrayType(dtype_of(t), (), Layout.c(0)) for t in call.operands])
    except DTypeError as error:
        raise NotStatic(f"NumPy multiplies these as objects: {error}") from None


def dtype_outer(call: Call) -> DType:
    """The dtype of a product; a Python scalar counts as an array of its default dtype."""
    found = resolve_ufunc(np.multiply, tuple(dtype_of(t).numpy for t in call.operands))
    if isinstance(found, str):
        raise DTypeError(found)
    return found[-1]


def shape_dot(call: Call) -> Shape:
    """Sum over the last axis of the first and the second to last of the second; a scalar multiplies."""
    a, b = call.shape(0), call.shape(1)
    if not a or not b:
        return a or b
    inner = b[-2] if len(b) > 1 else b[0]
    _same(a[-1], inner, call.facts, lambda: f"shapes {a} and {b} not aligned: {a[-1]} != {inner}")
    return (*a[:-1], *b[:-2], *(b[-1:] if len(b) > 1 else ()))


def shape_inner(call: Call) -> Shape:
    """Sum over the last axes of both; a scalar multiplies."""
    a, b = call.shape(0), call.shape(1)
    if not a or not b:
        return a or b
    _same(a[-1], b[-1], call.facts, lambda: f"shapes {a} and {b} not aligned: {a[-1]} != {b[-1]}")
    return (*a[:-1], *b[:-1])


def shape_outer(call: Call) -> Shape:
    """One axis for each operand, flattened."""
    return product(call.shape(0)), product(call.shape(1))


def shape_vdot(call: Call) -> Shape:
    """A scalar from as many elements of both."""
    a, b = product(call.shape(0)), product(call.shape(1))
    _same(a, b, call.facts, lambda: f"vdot: the operands have {a} and {b} elements")
    return ()


def shape_tensordot(call: Call) -> Shape:
    """Sum over the last `axes` axes of the first and the first of the second, or over given pairs of axes."""
    a, b, axes = call.shape(0), call.shape(1), call["axes"]
    if isinstance(axes, tuple | list):
        if len(axes) != 2:
            raise ShapeError("tensordot: axes must be an int or a pair")
        ones, twos = (list(x) if isinstance(x, tuple | list) else [x] for x in axes)
    else:
        count = int(axes)
        if count < 0:
            raise ShapeError("tensordot: axes must not be negative")
        if count > len(a) or count > len(b):
            raise ShapeError("tensordot: more axes than dimensions")
        ones, twos = list(range(-count, 0)), list(range(count))
    ones, twos = [as_axis(x, len(a)) for x in ones], [as_axis(x, len(b)) for x in twos]
    if len(ones) != len(twos):
        raise ShapeError("shape-mismatch for sum")
    for one, two in zip(ones, twos, strict=True):
        _same(a[one], b[two], call.facts, lambda: "shape-mismatch for sum")
    if len(set(ones)) != len(ones) or len(set(twos)) != len(twos):
        raise ShapeError("tensordot: an axis is summed twice")
    return (
        *(d for axis, d in enumerate(a) if axis not in ones),
        *(d for axis, d in enumerate(b) if axis not in twos),
    )


def dtype_linear(call: Call) -> DType:
    """The dtype of `x * w + b`."""
    return result_type(*(dtype_of(t) for t in call.operands))


def shape_linear(call: Call) -> Shape:
    """`x` with its last size replaced by the rows of `w`."""
    x, w = call.shape(0), call.shape(1)
    if not x or len(w) != 2:
        raise ShapeError(f"linear needs x with at least 1 dimension and w with 2, got shapes {x} and {w}")
    _same(x[-1], w[1], call.facts, lambda: f"linear: x {x} has {x[-1]} features, w {w} expects {w[1]}")
    outputs = w[0]
    if call.given(2):
        b = call.shape(2)
        if len(b) != 1:
            raise ShapeError(f"linear: b must have shape ({outputs},), got {b}")
        outputs = _same(b[0], outputs, call.facts, lambda: f"linear: b must have shape ({outputs},), got {b}")
    return (*x[:-1], outputs)


def shape_trace(call: Call) -> Shape:
    """Without the two axes of the diagonal."""
    shape = call.shape(0)
    if len(shape) < 2:
        raise ShapeError("diag requires an array of at least two dimensions")
    one, two = as_axis(call["axis1"], len(shape)), as_axis(call["axis2"], len(shape))
    if one == two:
        raise ShapeError("axis1 and axis2 cannot be the same")
    diagonal_dim(shape[one], shape[two], call["offset"])
    return tuple(d for axis, d in enumerate(shape) if axis not in (one, two))


def layout_trace(call: Call, shape: Shape) -> Layout:
    """The kept axes in the order they have in the operand."""
    if len(shape) <= 1:
        return Layout.c(len(shape))
    source = call.shape(0)
    order = k_order([(source, call.layout(0))], source, call.facts).order
    if order is None:
        return Layout.unknown()
    gone = (as_axis(call["axis1"], len(source)), as_axis(call["axis2"], len(source)))
    kept = [axis for axis in range(len(source)) if axis not in gone]
    return Layout.dense([kept.index(axis) for axis in order if axis in kept])


# ---- einsum ----------------------------------------------------------------------------------------------------------


class Einsum(NamedTuple):
    """A subscript string, worked out for operands of known ranks.

    Attributes:
        inputs: the labels of each operand's axes. Axes of an ellipsis have the labels "0", "1", ... counted from the
            right, so that they broadcast as NumPy's do.
        output: the labels of the result's axes.
        sizes: the size of each label.
    """

    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    sizes: dict[str, DimLike]


def parse_einsum(subscripts: object, shapes: Sequence[Shape], facts: Facts | None = None) -> Einsum:
    """Give every axis of every operand its label and every label its size.

    Raises:
        ShapeError: the string is not well formed, does not fit the ranks, or gives one label two sizes.
    """
    if not isinstance(subscripts, str):
        raise NotStatic("einsum without a subscript string")
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ShapeError(f"einsum: {len(terms)} subscripts for {len(shapes)} operands")
    inputs = tuple(_expand(term, len(shape)) for term, shape in zip(terms, shapes, strict=True))
    every = [label for labels in inputs for label in labels]
    broadcast = sorted({label for label in every if label.isdigit()}, key=int, reverse=True)
    if arrow:
        head, dots, tail = right.partition("...")
        _check_labels(head + tail)
        output = (*head, *(broadcast if dots else ()), *tail)
        if broadcast and not dots:
            raise ShapeError("einsum: the output subscript lacks the ellipsis of the inputs")
        missing = set(head + tail) - set(every)
        if missing or len(set(output)) != len(output):
            raise ShapeError(f"einsum: the output subscript {right!r} has labels twice or not among the inputs")
    else:
        once = sorted(label for label in set(every) if not label.isdigit() and every.count(label) == 1)
        output = (*broadcast, *once)
    sizes: dict[str, DimLike] = {}
    for labels, shape in zip(inputs, shapes, strict=True):
        own: dict[str, DimLike] = {}
        for label, size in zip(labels, shape, strict=True):
            own[label] = _one_label(own.get(label, size), size, label, facts)
        for label, size in own.items():
            known = sizes.get(label)
            sizes[label] = size if known is None else _both(known, size, label, facts)
    return Einsum(inputs, output, sizes)


def _expand(term: str, rank: int) -> tuple[str, ...]:
    head, dots, tail = term.partition("...")
    _check_labels(head + tail)
    hidden = rank - len(head) - len(tail)
    if hidden < 0 or (hidden > 0 and not dots):
        raise ShapeError(f"einsum: the subscript {term!r} does not fit an operand with {rank} dimensions")
    return (*head, *(str(i) for i in reversed(range(hidden))), *tail)


def _check_labels(labels: str) -> None:
    for label in labels:
        if label not in string.ascii_letters:
            raise ShapeError(f"einsum: invalid subscript {label!r}")


def _one_label(a: DimLike, b: DimLike, label: str, facts: Facts | None) -> DimLike:
    """The size of a label that occurs twice in one operand: a diagonal."""
    if a == 1 or b == 1:
        return b if a == 1 else a
    return _same(a, b, facts, lambda: f"einsum: label {label!r} has sizes {a} and {b}")


def _both(a: DimLike, b: DimLike, label: str, facts: Facts | None) -> DimLike:
    try:
        return broadcast_shapes((a,), (b,), facts=facts)[0]
    except ShapeError:
        raise ShapeError(f"einsum: label {label!r} has sizes {a} and {b}") from None


def _einsum(call: Call) -> Einsum:
    return parse_einsum(call["subscripts"], [shape_of(t) for t in einsum_operands(call)], call.facts)


def einsum_operands(call: Call) -> tuple[Any, ...]:
    """The operands; a single one may stand without a sequence around it."""
    t = call.types[0]
    subscripts = call["subscripts"]
    terms = subscripts.count(",") + 1 if isinstance(subscripts, str) else 0
    items = t if isinstance(t, tuple | list) else getattr(t, "items", None)
    if isinstance(items, tuple | list) and len(items) == terms:
        return tuple(as_array(item) for item in items)
    return (call.operand(0),)


def dtype_einsum(call: Call) -> DType:
    """The common dtype, which must not be bfloat16; Python scalars count as arrays."""
    dtype = common_dtype([ArrayType(dtype_of(t), (), Layout.c(0)) for t in einsum_operands(call)])
    if dtype is bfloat16:
        raise DTypeError("invalid data type for einsum")
    return dtype


def kind_einsum(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    """A NumPy scalar for a sum of rank 0; a view stays an array."""
    return (
        kind_array(call, dtype, shape, layout)
        if alias_einsum(call) is not FRESH
        else kind_numpy(call, dtype, shape, layout)
    )


def shape_einsum(call: Call) -> Shape:
    """The sizes of the output's labels."""
    parsed = _einsum(call)
    return tuple(parsed.sizes[label] for label in parsed.output)


def alias_einsum(call: Call) -> Alias:
    """One operand of which nothing is summed gives a view of it."""
    operands = einsum_operands(call)
    if len(operands) == 1 and isinstance(operands[0], ArrayType):
        parsed = _einsum(call)
        if set(parsed.inputs[0]) == set(parsed.output):
            return view(0)
    return FRESH


def layout_einsum(call: Call, shape: Shape) -> Layout:
    """A view's own strides, or the order of iterating over output and summed axes together.

    Unknown sizes of one label are taken to be equal. Where one is 1 and the other is not, NumPy repeats that operand
    and may choose another order; compiled code leaves that to it (`expand`: the sizes of a label are guarded).
    """
    parsed, operands = _einsum(call), einsum_operands(call)
    if alias_einsum(call) is not FRESH:
        return _einsum_view(parsed, operands[0], shape)
    every = dict.fromkeys(label for labels in parsed.inputs for label in labels)
    axes = (*parsed.output, *(label for label in every if label not in parsed.output))
    sizes = tuple(parsed.sizes[label] for label in axes)
    placed = [_place(t, labels, axes, sizes) for t, labels in zip(operands, parsed.inputs, strict=True)]
    if any(p is None for p in placed):
        return Layout.unknown() if len(shape) > 1 else Layout.c(len(shape))
    found = k_order([p for p in placed if p is not None and p[0]], sizes, call.facts, kept=len(shape))
    return found if found.order is not None or len(shape) > 1 else Layout.c(len(shape))


def _place(t: Any, labels: tuple[str, ...], axes: tuple[str, ...], sizes: Shape) -> tuple[Shape, Layout] | None:
    """An operand spread over all axes of the iteration, stride 0 where it has none; None if strides decide."""
    shape = shape_of(t)
    if not shape:
        return (), Layout.c(0)
    order = t.layout.order
    if order is None or len(set(labels)) != len(labels):
        return None
    own = [axes.index(labels[axis]) for axis in order]
    absent = [i for i in range(len(axes)) if i not in own]
    where = {axes.index(label): axis for axis, label in enumerate(labels)}
    own_sizes = (shape[where[i]] if i in where else 1 for i in range(len(axes)))
    spread = tuple(s if isinstance(s, int) else size for s, size in zip(own_sizes, sizes, strict=True))
    zero = (*absent, *(axes.index(labels[axis]) for axis in t.layout.zero))
    return spread, Layout((*own, *absent), 0, tuple(sorted(zero)))


def _einsum_view(parsed: Einsum, t: ArrayType, shape: Shape) -> Layout:
    labels = parsed.inputs[0]
    if len(set(labels)) == len(labels):
        return t.layout.permute([labels.index(label) for label in parsed.output])
    if len(shape) == 1:
        return Layout((0,), 0)
    strides = dense_strides(t.shape, t.layout)
    if strides is None:
        return Layout.unknown()
    total = {label: sum(s for s, x in zip(strides, labels, strict=True) if x == label) for label in labels}
    return layout_of_strides(shape, [total[label] for label in parsed.output])
