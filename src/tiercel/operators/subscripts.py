"""The rule of `x[key]` and `x[key] = value`, for every key NumPy accepts.

In: the types of `x` and of the key: ints, slices, None, `...`, integer and bool arrays, lists of them, or a tuple. Out:
shape, layout, alias. Basic keys give views; a key with an array in it gives a fresh array, whose dimensions stand as in
NumPy's `PyArray_MapIterNew` (numpy/_core/src/multiarray/mapping.c): the index arrays' broadcast dimensions where they
are in the key if they are adjacent, else in front; in memory they are always outermost.

Invariant: a size that depends on data (a mask's count, a slice bound that is not known) is a fresh data symbol with an
upper bound, made in the shape rule only, so that one call has one symbol for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from tiercel.dtypes import DType, bfloat16, check_int_range, int64
from tiercel.errors import DTypeError, ShapeError
from tiercel.operators.layout import Layout, k_order
from tiercel.operators.rules import dtype_of
from tiercel.operators.table import FRESH, Alias, Call, Spelling, shape_of, view
from tiercel.operators.types import (
    ArrayType,
    DictType,
    EllipsisType,
    ListType,
    NoneType,
    NotStatic,
    NpScalarType,
    ObjectType,
    PyBoolType,
    PyComplexType,
    PyFloatType,
    PyIntType,
    Shape,
    SliceType,
    StrType,
    TupleType,
    Type,
    as_array,
    static_value,
)
from tiercel.operators.views import above_one
from tiercel.shapes import DimLike, Facts, broadcast_shapes, product, slice_dim

__all__ = [
    "Subscripts",
    "accepts_value",
    "alias_index",
    "dtype_set_index",
    "indexed_layout",
    "indexed_shape",
    "kind_first_operand",
    "kind_index",
    "kind_none",
    "layout_index",
    "parse_key",
    "python_index",
    "shape_index",
    "shape_set_index",
]


class Entry(NamedTuple):
    """One entry of a key.

    Attributes:
        kind: "int", "slice", "new" (None), "rest" (`...`), "array" (integers), "mask" (bools, any rank).
        axis: the first axis of `x` it applies to.
        span: how many axes of `x` it consumes.
        type: the entry's own type.
    """

    kind: Literal["int", "slice", "new", "rest", "array", "mask"]
    axis: int
    span: int
    type: Type

    @property
    def advanced(self) -> bool:
        """Whether it makes the result a copy."""
        return self.kind in ("array", "mask")


class Subscripts(NamedTuple):
    """A key worked out against a rank.

    Attributes:
        entries: with `...` filled in at the end where the key has fewer entries than `x` has axes.
        advanced: whether there is an index array or mask.
        copied: whether a 0-d index array makes the result a copy.
        explicit_rest: whether the key itself holds `...`.
    """

    entries: tuple[Entry, ...]
    advanced: bool
    copied: bool
    explicit_rest: bool


_ACCEPTED = (
    "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are valid"
)


def parse_key(key: Type, rank: int) -> Subscripts:
    """Give every entry of a key its kind and its axes.

    Raises:
        ShapeError: too many entries, two ellipses, or an entry that is no index (NumPy: IndexError).
        NotStatic: an entry of which not even that is known.
    """
    items = key.items if isinstance(key, TupleType) else (key,)
    found: list[tuple[Any, int, Type]] = [_entry(item) for item in items]
    used = sum(span for kind, span, _ in found if kind != "rest")
    rests = sum(kind == "rest" for kind, _, _ in found)
    if rests > 1:
        raise ShapeError("an index can only have a single ellipsis ('...')")
    if used > rank:
        raise ShapeError(f"too many indices for array: array is {rank}-dimensional, but {used} were indexed")
    if not rests:
        found.append(("rest", 0, EllipsisType()))
    entries = []
    axis = 0
    for kind, span, t in found:
        width = rank - used if kind == "rest" else span
        entries.append(Entry(kind, axis, width, t))
        axis += width
    return Subscripts(
        tuple(entries),
        advanced=any(e.advanced for e in entries),
        copied=any(e.kind == "int" and isinstance(e.type, ArrayType) for e in entries),
        explicit_rest=bool(rests),
    )


def _entry(t: Type) -> tuple[str, int, Type]:
    """Kind, number of consumed axes, and type of one entry."""
    if isinstance(t, PyIntType):
        return "int", 1, t
    if isinstance(t, SliceType):
        return "slice", 1, t
    if isinstance(t, NoneType):
        return "new", 0, t
    if isinstance(t, EllipsisType):
        return "rest", 0, t
    if isinstance(t, PyBoolType):
        return "mask", 0, t
    if isinstance(t, NpScalarType):
        if t.dtype.is_integer:
            return "int", 1, t
        if t.dtype.is_bool:
            return "mask", 0, t
        raise ShapeError(f"{_ACCEPTED} indices, got {t}")
    if isinstance(t, PyFloatType | PyComplexType | StrType):
        raise ShapeError(f"{_ACCEPTED} indices, got {t}")
    if isinstance(t, TupleType | ListType):
        found = as_array(t)
        assert isinstance(found, ArrayType)
        # An empty list has no dtype; here it counts as integers.
        t = found if 0 not in found.shape else ArrayType(int64, found.shape, found.layout)
    if isinstance(t, ArrayType):
        if t.dtype.is_bool:
            return "mask", t.rank, t
        if not t.dtype.is_integer:
            raise ShapeError(f"arrays used as indices must be of integer (or boolean) type, got {t.dtype.name}")
        return ("array", 1, t) if t.rank else ("int", 1, t)
    if isinstance(t, ObjectType):
        raise NotStatic("an index of unknown type")
    raise NotStatic(f"an index of type {type(t).__name__}")


# ---- shape -----------------------------------------------------------------------------------------------------------

# Names a size that only the data decides, given its upper bound.
Fresh = Callable[[DimLike], DimLike]


def indexed_shape(shape: Shape, key: Type, fresh: Fresh, facts: Facts | None = None) -> Shape:
    """The shape of `x[key]` for `x` of this shape.

    Raises:
        ShapeError: the key does not fit, or a known index is out of bounds.
        NotStatic: not even the rank is known.
    """
    subscripts = parse_key(key, len(shape))
    sizes = {number: _basic_sizes(entry, shape, fresh, facts) for number, entry in enumerate(subscripts.entries)}
    if not subscripts.advanced:
        return tuple(size for dims in sizes.values() for size in dims)
    arrays = [dims for entry in subscripts.entries if (dims := _array_sizes(entry, shape, fresh, facts)) is not None]
    try:
        common = broadcast_shapes(*arrays, facts=facts)
    except ShapeError as error:
        raise ShapeError(f"shape mismatch: indexing arrays could not be broadcast together: {error}") from None
    front, back = _around(subscripts)
    return (
        *(size for number in front for size in sizes[number]),
        *common,
        *(size for number in back for size in sizes[number]),
    )


def _basic_sizes(entry: Entry, shape: Shape, fresh: Fresh, facts: Facts | None) -> Shape:
    """What an entry that is no array contributes to the result."""
    if entry.kind == "rest":
        return shape[entry.axis : entry.axis + entry.span]
    if entry.kind == "new":
        return (1,)
    if entry.kind == "int":
        _check_bounds(entry, shape)
    if entry.kind != "slice":
        return ()
    size = shape[entry.axis]
    start, stop, step = (_bound(part) for part in _parts(entry))
    if _UNKNOWN in (start, stop, step):
        return (fresh(size),)
    return (slice_dim(size, start, stop, step, facts),)


def _parts(entry: Entry) -> tuple[Type, Type, Type]:
    assert isinstance(entry.type, SliceType)
    return entry.type.start, entry.type.stop, entry.type.step


_UNKNOWN: Any = object()


def _bound(t: Type) -> Any:
    """A slice bound as an int, a size expression, None, or `_UNKNOWN`."""
    if isinstance(t, NoneType):
        return None
    if isinstance(t, PyIntType | PyBoolType):
        return _UNKNOWN if t.value is None else int(t.value) if isinstance(t.value, bool) else t.value
    if isinstance(t, NpScalarType) and t.dtype.is_integer:
        return _UNKNOWN
    if isinstance(t, ArrayType) and t.dtype.is_integer and t.rank == 0:
        return _UNKNOWN
    if isinstance(t, ObjectType):
        raise NotStatic("a slice bound of unknown type")
    raise DTypeError("slice indices must be integers or None or have an __index__ method")


def _check_bounds(entry: Entry, shape: Shape) -> None:
    size, index = shape[entry.axis], getattr(entry.type, "value", None)
    if isinstance(size, int) and isinstance(index, int) and not -size <= index < size:
        raise ShapeError(f"index {index} is out of bounds for axis {entry.axis} with size {size}")


def _array_sizes(entry: Entry, shape: Shape, fresh: Fresh, facts: Facts | None) -> Shape | None:
    """The shape an array or mask broadcasts with; None for other entries."""
    if entry.kind == "array":
        return shape_of(entry.type)
    if entry.kind != "mask":
        return None
    if not entry.span:
        # A single bool selects all or nothing along a new axis.
        value = getattr(entry.type, "value", None)
        return (fresh(1),) if value is None else (int(value),)
    mask = shape_of(entry.type)
    for offset, size in enumerate(mask):
        axis = entry.axis + offset
        if size == 0:
            continue  # NumPy lets an empty mask pass for any size
        differ = isinstance(size, int) and isinstance(shape[axis], int) and size != shape[axis]
        if differ or (facts is not None and facts.equal(size, shape[axis]) is False):
            raise ShapeError(
                f"boolean index did not match indexed array along axis {axis}; size of axis is {shape[axis]} but size "
                f"of corresponding boolean axis is {size}"
            )
    upper = product(mask)
    return (0 if upper == 0 else fresh(upper),)


def _around(subscripts: Subscripts) -> tuple[list[int], list[int]]:
    """The entries whose dimensions stand before and after those of the index arrays in the result."""
    # An int beside index arrays is one of them.
    joint = [e.advanced or e.kind == "int" for e in subscripts.entries]
    first = joint.index(True)
    last = len(joint) - 1 - joint[::-1].index(True)
    others = [number for number, together in enumerate(joint) if not together]
    if all(joint[first : last + 1]):
        return [n for n in others if n < first], [n for n in others if n > last]
    return [], others


# ---- layout ----------------------------------------------------------------------------------------------------------


def indexed_layout(shape: Shape, layout: Layout, key: Type, result: Shape, facts: Facts | None = None) -> Layout:
    """The layout of `x[key]`, which has the shape `result`."""
    subscripts = parse_key(key, len(shape))
    if subscripts.advanced:
        return _copied_layout(layout, subscripts, result, facts)
    found = _view_layout(layout, subscripts)
    # A 0-d index array makes NumPy copy the view, in its own order.
    return found if not subscripts.copied or found.order is None else Layout.dense(found.order)


def _view_layout(layout: Layout, subscripts: Subscripts) -> Layout:
    # From the last axis on, so that the numbers of the axes before stay true.
    for entry in reversed(subscripts.entries):
        if entry.kind == "int":
            layout = layout.drop(entry.axis)
        elif entry.kind == "slice":
            start, stop, step = (_bound(part) for part in _parts(entry))
            whole = step in (None, 1) and start in (None, 0) and stop is None
            if not whole:
                layout = layout.cut(entry.axis, step_one=step in (None, 1))
        elif entry.kind == "new":
            layout = layout.insert(entry.axis)
    return layout


def _copied_layout(layout: Layout, subscripts: Subscripts, result: Shape, facts: Facts | None) -> Layout:
    rank = len(result)
    front, back = _around(subscripts)
    # Where each dimension of the result comes from: an axis of x, None for a new one.
    sources: list[list[int | None]] = [[], []]
    for side, numbers in enumerate((front, back)):
        for number in numbers:
            entry = subscripts.entries[number]
            if entry.kind == "new":
                sources[side].append(None)
            else:
                sources[side].extend(range(entry.axis, entry.axis + entry.span))
    before, after = sources
    count = rank - len(before) - len(after)
    arrays = list(range(len(before), len(before) + count))
    others = dict(enumerate(before)) | {len(before) + count + n: s for n, s in enumerate(after)}
    kept = {source: place for place, source in others.items() if source is not None}
    if len(kept) <= 1:
        ordered = sorted(kept.values())
    elif layout.order is None:
        return Layout.unknown()
    else:
        ordered = [kept[axis] for axis in layout.order if axis in kept]
    new = [place for place, source in others.items() if source is None]
    along = _arrays_order(subscripts, [result[place] for place in arrays], [result[p] for p in kept.values()], facts)
    if along is None:
        return Layout.unknown()
    return Layout.dense([*(arrays[n] for n in along), *ordered, *new])


def _arrays_order(
    subscripts: Subscripts, common: list[DimLike], rest: list[DimLike], facts: Facts | None
) -> tuple[int, ...] | None:
    """The order of the index arrays' dimensions: C, but the iterator's where one element or nothing is left of `x`."""
    arrays = [
        (e.type.shape, e.type.layout) for e in subscripts.entries if e.kind == "array" and isinstance(e.type, ArrayType)
    ]
    found = k_order([(s, layout) for s, layout in arrays if s], common, facts)
    plain = tuple(range(len(common)))
    if found.order == plain:
        return plain
    left = product(rest)
    if isinstance(left, int):
        return found.order if left == 1 else plain
    if above_one(left, facts):
        return plain
    return None


# ---- columns ---------------------------------------------------------------------------------------------------------


def shape_index(call: Call) -> Shape:
    """The shape of `x[key]`."""
    return indexed_shape(call.shape(0), call.types[1], call.data_symbol, call.facts)


def layout_index(call: Call, shape: Shape) -> Layout:
    """The strides of the view, or the order of the copy."""
    return indexed_layout(call.shape(0), call.layout(0), call.types[1], shape, call.facts)


def alias_index(call: Call) -> Alias:
    """A view, unless there is an array in the key."""
    if not isinstance(call.types[0], ArrayType):
        return FRESH
    subscripts = parse_key(call.types[1], len(call.shape(0)))
    return FRESH if subscripts.advanced or subscripts.copied else view(0)


def kind_index(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    """A NumPy scalar where ints name one element and the key has no `...`."""
    if not shape and parse_key(call.types[1], len(call.shape(0))).explicit_rest:
        return _as_first(call, ArrayType(dtype, shape, layout))
    return kind_first_operand(call, dtype, shape, layout)


def kind_first_operand(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    """A NumPy scalar for rank 0, else an array, of operand 0's wrapper whatever the indices' is."""
    x = call.operand(0)
    if not shape and not (isinstance(x, ArrayType) and x.wrapper != "ndarray"):
        return NpScalarType(dtype)
    return _as_first(call, ArrayType(dtype, shape, layout))


def _as_first(call: Call, found: ArrayType) -> ArrayType:
    x = call.operand(0)
    return replace(found, device=x.device, wrapper=x.wrapper) if isinstance(x, ArrayType) else found


def python_index(form: Spelling, types: tuple[Type, ...], facts: Facts | None) -> Type:
    """`x[key]` of a tuple, list or dict of known items, or of an array-free value.

    Raises:
        NotStatic: the container or the key is not known.
        ShapeError: no such item (IndexError, KeyError).
    """
    x, key = types
    if isinstance(x, DictType):
        name = static_value(key)
        for known, t in x.items:
            if known == name:
                return t
        raise ShapeError(f"no key {name!r}")
    if isinstance(x, TupleType | ListType):
        index = static_value(key)
        if x.items is None:
            if isinstance(index, int) and x.element is not None:
                return x.element
            raise NotStatic("the items of a list are not known")
        if isinstance(index, slice):
            return type(x)(x.items[index])
        if isinstance(index, int):
            if -len(x.items) <= index < len(x.items):
                return x.items[index]
            raise ShapeError(f"index {index} is out of range for {len(x.items)} items")
    raise NotStatic(f"an item of a {type(x).__name__}")


def dtype_set_index(call: Call) -> DType:
    """The target's dtype; the value is cast to it.

    Raises:
        DTypeError: the target takes no items.
    """
    target, value = call.types[0], call.types[2]
    if not isinstance(target, ArrayType):
        if isinstance(target, NpScalarType | PyIntType | PyFloatType | PyComplexType | PyBoolType):
            raise DTypeError(f"a {target} does not support item assignment")
        raise NotStatic(f"assignment to an item of a {type(target).__name__}")
    if not isinstance(value, PyIntType):
        dtype_of(call.operand(2))
    return target.dtype


def shape_set_index(call: Call) -> Shape:
    """The shape of the selection, to which the value must broadcast.

    Raises:
        ShapeError: it does not, or the key does not fit.
        DTypeError: a value that NumPy does not convert.
        OverflowError: a Python int out of the target's range.
    """
    shape, key, dtype = call.shape(0), call.types[1], dtype_of(call.operand(0))
    selected = indexed_shape(shape, key, call.data_symbol, call.facts)
    value, given = call.shape(2), call.types[2]
    if isinstance(given, PyIntType) and isinstance(given.value, int):
        if dtype.is_integer:
            check_int_range(given.value, dtype)
        if dtype is bfloat16 and not -(2**63) <= given.value < 2**63:
            raise DTypeError("expected number, got int")
    if isinstance(given, PyComplexType) and not dtype.is_complex:
        raise DTypeError(f"a complex number cannot be assigned to an element of {dtype.name}")
    if value and not selected and dtype is bfloat16:
        raise DTypeError("expected number, got numpy.ndarray")
    entries = parse_key(key, len(shape)).entries
    if entries[0].kind == "mask" and 0 < entries[0].span == len(shape) and len(value) > 1:
        raise DTypeError(
            "NumPy boolean array indexing assignment requires a 0 or 1-dimensional input, input has "
            f"{len(value)} dimensions"
        )
    if not accepts_value(selected, value, call.facts):
        raise ShapeError(f"could not broadcast input array from shape {value} into shape {selected}")
    return selected


def accepts_value(selected: Shape, value: Shape, facts: Facts | None = None) -> bool:
    """Whether a value may be assigned to a selection: it broadcasts to it once leading sizes of 1 are left out."""
    if any(isinstance(d, int) and d == 0 for d in selected):
        return True  # nothing is assigned, and not all of NumPy's ways of doing so look at the shape
    while len(value) > len(selected):
        if isinstance(value[0], int) and value[0] != 1:
            return False
        value = value[1:]
    try:
        both = broadcast_shapes(selected, value, facts=facts)
    except ShapeError:
        return False
    return not any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(both, selected, strict=True))


def kind_none(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    """The call is made for its effect and returns None."""
    return NoneType()
