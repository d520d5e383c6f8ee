"""The building bricks of operators' shape rules, on sizes that may be symbolic.

What comes in are tuples of ints and dimensions, what goes out are the same; all-static shapes take fast paths in
plain ints. Every result is exact for each assignment of the symbols for which the operation is legal at all. What is
provably illegal raises `ShapeError`, with NumPy's wording where NumPy has one; what may be legal is left to run time.

Sizes of shapes are never negative; numbers that the program computes (a slice's start) may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from tiercel.errors import ShapeError
from tiercel.shapes.dims import Dim, DimLike, as_dim, floordiv, memo_table, mod, remember
from tiercel.shapes.extremes import broadcast_dim, ceil_div, dim_max, dim_min, product
from tiercel.shapes.facts import NO_FACTS, Facts

Shape = tuple[DimLike, ...]

_slices = memo_table()  # by arguments, without facts


def broadcast_shapes(*shapes: Sequence[DimLike], facts: Facts | None = None) -> Shape:
    """The shape that all shapes broadcast to, by NumPy's rule.

    A pair of dimensions of which neither is known to be 1, or known to be the other, gives `bcast(a, b)`.

    Args:
        shapes: any number, none gives ().
        facts: what is known about the sizes.

    Raises:
        ShapeError: two sizes differ for certain and neither is 1; names the operands, the dimension and both sizes.
    """
    if not shapes:
        return ()
    out = tuple(shapes[0])
    for shape in shapes[1:]:
        other = tuple(shape)
        if out == other:
            continue
        long, short = (out, other) if len(out) >= len(other) else (other, out)
        lead = len(long) - len(short)
        dims = list(long[:lead])
        for x, y in zip(long[lead:], short, strict=True):
            if x is y or x == y:
                dims.append(x)
                continue
            dim = _broadcast_pair(x, y, facts)
            if dim is None:
                _fail_broadcast(shapes, len(long) - len(dims), facts)
            dims.append(dim)
        out = tuple(dims)
    return out


def solve_reshape(shape: Sequence[DimLike], new_shape: Sequence[DimLike], facts: Facts | None = None) -> Shape:
    """new_shape with its `-1`, if it has one, solved: `(B, T, 768) -> (-1, 768)` gives `(B*T, 768)`.

    As in NumPy any negative int stands for the unknown size. Symbolic sizes that are divided by are taken to be
    nonzero (NumPy refuses the reshape where they are 0).

    Raises:
        ShapeError: the sizes do not fit for certain, or there are two unknown ones; NumPy's wording.
    """
    total = product(shape)
    known: list[DimLike] = []
    unknown = -1
    for i, size in enumerate(new_shape):
        if size.__class__ is int and size < 0:
            if unknown >= 0:
                raise ShapeError("can only specify one unknown dimension")
            unknown = i
        else:
            known.append(as_dim(size))
    count = product(known)
    if unknown < 0:
        if total is not count and total != count and _differ(total, count, facts):
            _fail_reshape(total, new_shape)
        return tuple(known)
    if count == 0:
        _fail_reshape(total, new_shape)
    solved = floordiv(total, count)
    rest = total - solved * count
    if rest != 0:
        if isinstance(rest, int) and isinstance(count, int):
            _fail_reshape(total, new_shape)
        facts = facts or NO_FACTS
        if not facts.range(mod(total, count)).contains(0):
            _fail_reshape(total, new_shape)
        solved = facts.simplify(solved)
    known.insert(unknown, solved)
    return tuple(known)


def normalize_axis(axis: int, rank: int) -> int:
    """axis counted from the front.

    Raises:
        ShapeError: it is out of bounds; NumPy's wording.
    """
    if -rank <= axis < rank:
        return axis + rank if axis < 0 else axis
    raise ShapeError(f"axis {axis} is out of bounds for array of dimension {rank}")


def normalize_axes(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """All axes counted from the front, in the order given; None stands for all of them.

    Raises:
        ShapeError: one is out of bounds or occurs twice; NumPy's wording.
    """
    if axes is None:
        return tuple(range(rank))
    if isinstance(axes, int):
        return (normalize_axis(axes, rank),)
    out = tuple(normalize_axis(axis, rank) for axis in axes)
    if len(set(out)) != len(out):
        raise ShapeError(f"duplicate value in 'axis': {tuple(axes)} for array of dimension {rank}")
    return out


def slice_dim(
    dim: DimLike,
    start: DimLike | None = None,
    stop: DimLike | None = None,
    step: DimLike | None = None,
    facts: Facts | None = None,
) -> DimLike:
    """How many elements `x[start:stop:step]` takes from dim, exactly as Python counts them.

    Any argument may be symbolic and of unknown sign. facts that settle the signs make the result simpler.

    Raises:
        ShapeError: step is 0.
    """
    step = 1 if step is None else step
    if step == 0:
        raise ShapeError("slice step cannot be zero")
    if (start is None or start == 0) and stop is None and step == 1:
        return dim
    if not any(isinstance(x, Dim) for x in (dim, start, stop, step)):
        return len(range(dim)[slice(start, stop, step)])  # type: ignore[arg-type]  # ints or None by the test before
    if facts is None:
        key = (dim, start, stop, step)
        out = _slices.get(key)
        return remember(_slices, key, _slice(dim, start, stop, step, NO_FACTS)) if out is None else out
    return _slice(dim, start, stop, step, facts)


def arange_dim(start: DimLike, stop: DimLike, step: DimLike = 1, facts: Facts | None = None) -> DimLike:
    """How many elements `range(start, stop, step)` has, for a step of any sign.

    Raises:
        ShapeError: step is 0.
    """
    if step == 0:
        raise ShapeError("the step of a range cannot be zero")
    out = dim_max(ceil_div(stop - start, step), 0)
    return out if isinstance(out, int) else (facts or NO_FACTS).simplify(out)


def concat_dim(dims: Sequence[DimLike]) -> DimLike:
    """The size along which arrays of these sizes are joined."""
    out: DimLike = 0
    for dim in dims:
        out = out + dim
    return out


def conv_dim(
    size: DimLike,
    kernel: DimLike,
    stride: DimLike = 1,
    padding_lo: DimLike = 0,
    padding_hi: DimLike = 0,
    dilation: DimLike = 1,
    facts: Facts | None = None,
) -> DimLike:
    """The size after a convolution or pooling: how often the kernel fits.

    Exact where it fits at least once; what is known not to fit raises, anything else is left to run time.

    Raises:
        ShapeError: stride or dilation is below 1, or the kernel is larger than the padded size.
    """
    for name, value in (("stride", stride), ("dilation", dilation), ("kernel size", kernel)):
        if isinstance(value, int) and value < 1:
            raise ShapeError(f"{name} of a convolution: expected at least 1, got {value}")
    extent = dilation * (kernel - 1) + 1
    padded = size + padding_lo + padding_hi
    room = padded - extent
    highest = room if isinstance(room, int) else (facts or NO_FACTS).range(room).hi
    if highest is not None and highest < 0:
        raise ShapeError(
            f"the kernel does not fit: it spans {extent} (size {kernel}, dilation {dilation}), "
            f"the padded size is {padded} ({size} with padding {padding_lo} and {padding_hi})"
        )
    return floordiv(room, stride) + 1


def _broadcast_pair(x: DimLike, y: DimLike, facts: Facts | None) -> DimLike | None:
    """The size two different sizes broadcast to; None if they cannot."""
    if y.__class__ is int:
        if y == 1:
            return x
        if x.__class__ is int:
            return y if x == 1 else None
        x, y = y, x
    elif x.__class__ is int and x == 1:
        return y
    # Now y is symbolic, and x is symbolic or a static size other than 1.
    if facts is None:
        return x if x.__class__ is int else broadcast_dim(x, y)
    x_never_1 = not facts.range(x).contains(1)
    y_never_1 = not facts.range(y).contains(1)
    if x_never_1 and y_never_1 and facts.equal(x, y) is False:
        return None
    if x_never_1:
        return x
    if y_never_1:
        return y
    return facts.simplify(broadcast_dim(x, y))


def _fail_broadcast(shapes: Sequence[Sequence[DimLike]], from_end: int, facts: Facts | None) -> NoReturn:
    """Raise for the dimension that is from_end-th from the right."""
    sizes = [(i, shape[-from_end]) for i, shape in enumerate(shapes) if len(shape) >= from_end]
    for n, (i, x) in enumerate(sizes):
        for j, y in sizes[n + 1 :]:
            if x is not y and x != y and _broadcast_pair(x, y, facts) is None:
                rank = max(map(len, shapes))
                raise ShapeError(
                    f"operands could not be broadcast together with shapes {' '.join(map(format_shape, shapes))}: "
                    f"dimension {rank - from_end} is {x} in operand {i} and {y} in operand {j}"
                )
    raise ShapeError(f"operands could not be broadcast together with shapes {' '.join(map(format_shape, shapes))}")


def _differ(a: DimLike, b: DimLike, facts: Facts | None) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a != b
    return (facts or NO_FACTS).equal(a, b) is False


def _fail_reshape(total: DimLike, new_shape: Sequence[DimLike]) -> NoReturn:
    # NumPy leaves unknown sizes out at the front and calls them newaxis elsewhere; no comma then after a single size.
    sizes = ["newaxis" if isinstance(size, int) and size < 0 else str(size) for size in new_shape]
    shown = list(sizes)
    while shown and shown[0] == "newaxis":
        del shown[0]
    comma = "," if len(sizes) == 1 and shown else ""
    raise ShapeError(f"cannot reshape array of size {total} into shape ({','.join(shown)}{comma})")


def format_shape(shape: Sequence[DimLike]) -> str:
    """A shape as NumPy's messages write it: `(3,4)`, `(3,)`, `()`."""
    return f"({','.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _is_negative(x: DimLike, facts: Facts) -> bool | None:
    if isinstance(x, int):
        return x < 0
    within = facts.range(x)
    if within.lo is not None and within.lo >= 0:
        return False
    return True if within.hi is not None and within.hi < 0 else None


def _select(x: DimLike, if_negative: DimLike, otherwise: DimLike) -> DimLike:
    """One of two numbers by the sign of x, as arithmetic."""
    indicator = dim_min(dim_max(-x, 0), 1)
    return otherwise + indicator * (if_negative - otherwise)


def _slice(dim: DimLike, start: DimLike | None, stop: DimLike | None, step: DimLike, facts: Facts) -> DimLike:
    negative = _is_negative(step, facts)
    if negative is None:
        forward, backward = (
            _slice_forward(dim, start, stop, step, facts),
            _slice_backward(dim, start, stop, step, facts),
        )
        return facts.simplify(_select(step, backward, forward))
    if negative:
        return facts.simplify(_slice_backward(dim, start, stop, step, facts))
    return facts.simplify(_slice_forward(dim, start, stop, step, facts))


def _slice_forward(n: DimLike, start: DimLike | None, stop: DimLike | None, step: DimLike, facts: Facts) -> DimLike:
    """Elements of a slice with a positive step.

    Python clamps both ends to [0, n]. Here begin is clamped from below and end from above only: where the other clamp
    would act, the difference is not positive either way.
    """
    begin: DimLike = 0
    if start is not None:
        negative = _is_negative(start, facts)
        from_end = dim_max(start + n, 0)
        begin = _select(start, from_end, start) if negative is None else from_end if negative else start
    end = n
    if stop is not None:
        negative = _is_negative(stop, facts)
        end = (
            _select(stop, stop + n, dim_min(stop, n))
            if negative is None
            else (stop + n if negative else dim_min(stop, n))
        )
    count = ceil_div(end - begin, step)
    return count if begin == 0 and end is n else dim_max(count, 0)


def _slice_backward(n: DimLike, start: DimLike | None, stop: DimLike | None, step: DimLike, facts: Facts) -> DimLike:
    """Elements of a slice with a negative step.

    Python clamps both ends to [-1, n - 1]; one clamp of each is enough, as in `_slice_forward`.
    """
    begin = n - 1
    if start is not None:
        negative = _is_negative(start, facts)
        clamped = dim_min(start, n - 1)
        begin = _select(start, start + n, clamped) if negative is None else start + n if negative else clamped
    end: DimLike = -1
    if stop is not None:
        negative = _is_negative(stop, facts)
        from_end = dim_max(stop + n, -1)
        end = _select(stop, from_end, stop) if negative is None else from_end if negative else stop
    count = ceil_div(begin - end, -step)
    return count if start is None and stop is None else dim_max(count, 0)
