"""Indexing: `x[i, a:b, None, ...]` is a view, `x[key] = v` and `x[mask] = v` make a new value of x.

In: an array value and a key of ints, sizes, slices, None and Ellipsis, or a mask where elements are written. Out: an
`index` node whose type has the size and layout of the view and which shares memory with the array, or an `index_put` or
`where` node that the array is from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tiercel.compiler.abstract import Abstract, Known, ListRef, Tuple, Untraceable
from tiercel.compiler.graph import Node, Value
from tiercel.compiler.trace.layouts import indexed_layout
from tiercel.compiler.trace.operators import Operators
from tiercel.compiler.trace.state import BOOL, MAX_UNROLL
from tiercel.dtypes import DType
from tiercel.errors import TiercelError
from tiercel.operators import Bound, get
from tiercel.operators.types import (
    ArrayType,
    EllipsisType,
    NoneType,
    NpScalarType,
    PyBoolType,
    PyFloatType,
    PyIntType,
    Shape,
    SliceType,
    TupleType,
    Type,
)
from tiercel.shapes import Dim, DimLike, Range, evaluate, slice_dim, symbols_of


def _key_type(part: Any) -> Type:
    """The type of a part of a key."""
    match part:
        case None:
            return NoneType()
        case Value():
            return part.type
        case slice():
            return SliceType(*map(_key_type, (part.start, part.stop, part.step)))
    return EllipsisType() if part is Ellipsis else PyIntType(part)


def is_mask(part: Abstract) -> bool:
    """Is a part of a key an array of bools?"""
    return isinstance(part, Value) and isinstance(part.type, ArrayType) and part.type.dtype is BOOL


class Views(Operators):
    """Adds basic indexing of arrays."""

    def index_array(self, x: Value, key: tuple[Any, ...]) -> Value:
        """Basic indexing of an array: a view."""
        type_ = x.type
        if not isinstance(type_, ArrayType):
            raise Untraceable(f"an index into a {type_}")
        whole = any(k is Ellipsis for k in key)  # then even a single element is an array
        if not whole:
            key = (*key, Ellipsis)
        shape = self.selection(type_, key)
        if not shape and not whole:
            output = self.trace.value(NpScalarType(type_.dtype))
        else:
            layout = indexed_layout(type_.layout, key, type_.rank)
            output = self.trace.value(replace(type_, shape=tuple(shape), layout=layout))
            self.trace.share(output, x)
            self.trace.views[output] = (x, key)
            self.trace.bases[output] = x
        self.trace.add(Node("index", (x,), {"key": key}, (output,), self.site()))
        return output

    def unmasked(self, x: Value, parts: Sequence[Abstract]) -> list[Abstract]:
        """The parts of a key with the coordinates of its true elements in the place of a mask."""
        found: list[Abstract] = []
        axis = 0
        type_ = x.type
        assert isinstance(type_, ArrayType)
        for part in parts:
            if not is_mask(part):
                if isinstance(part, Known) and part.value is Ellipsis:
                    raise Untraceable("an index by a mask behind an ellipsis")
                found.append(part)
                axis += not (isinstance(part, Known) and part.value is None)
                continue
            assert isinstance(part, Value)
            assert isinstance(part.type, ArrayType)
            if not part.type.rank or axis + part.type.rank > type_.rank:
                raise Untraceable(f"an index by a mask of rank {part.type.rank}")
            for own, size in zip(type_.shape[axis:], part.type.shape, strict=False):
                self.trace.wish(own, size)
                if self.trace.facts.equal(own, size) is not True:
                    same = self.scalar_node("equal", self.size_value(own), self.size_value(size))
                    self.guard(same, "a mask of another size")
            row = get("nonzero")
            places = self.apply(row, row.spelling_index("function"), [part], {})
            found += self.items(places)
            axis += part.type.rank
        return found

    def array_key(self, parts: Sequence[Abstract], x: Value | None = None) -> tuple[Any, ...] | None:
        """The parts of a key that has arrays of integers in it, with an Ellipsis; None for other keys."""
        given = [self.array_of(p) if isinstance(p, ListRef) else p for p in parts]
        if not any(isinstance(p, Value) and isinstance(p.type, ArrayType) for p in given):
            return None
        if x is not None and any(is_mask(p) for p in given):
            given = self.unmasked(x, given)
        key: list[Any] = []
        for part in given:
            if isinstance(part, Value) and isinstance(part.type, ArrayType):
                if not part.type.rank or part.type.dtype.kind not in "iu" or part.type.dtype.name == "uint64":
                    raise Untraceable(f"an index by {part.type}")
                key.append(part)
            else:
                key.append(self.key_part(part))
        return tuple(key) if any(k is Ellipsis for k in key) else (*key, Ellipsis)

    def index_by_arrays(self, x: Value, key: tuple[Any, ...]) -> Value:
        """Indexing by arrays of integers: a copy."""
        type_ = x.type
        if not isinstance(type_, ArrayType):
            raise Untraceable(f"an index into a {type_}")
        arrays = tuple(k for k in key if isinstance(k, Value) and isinstance(k.type, ArrayType))
        for other in arrays[1:]:
            for a, b in zip(reversed(arrays[0].type.shape), reversed(other.type.shape), strict=False):  # type: ignore[attr-defined]
                if a != 1 and b != 1:
                    self.trace.wish(a, b)
        row = get("index")
        bound = Bound(row, 0, (type_, TupleType(tuple(map(_key_type, key)))), {})
        result = row.infer(bound, self.trace.facts, self.trace.data_symbol)
        if not isinstance(result, ArrayType):
            raise Untraceable(f"an index that gives a {result}")
        made = self.node("index", (x, *arrays), {"key": key}, result)
        if isinstance(key[0], slice) or key[0] is None or key[0] is Ellipsis:
            self.trace.borrowed.add(made)  # NumPy puts the selected axes first and gives a transposed view
        return made

    def selection(self, type_: ArrayType, key: tuple[Any, ...]) -> Shape:
        """The shape of what a key with an Ellipsis selects."""
        used = sum(k is not None and k is not Ellipsis for k in key)
        if used > type_.rank:
            raise Untraceable(f"{used} indices into an array of rank {type_.rank}")
        shape: list[DimLike] = []
        axis = 0
        for part in key:
            if part is None:
                shape.append(1)
            elif part is Ellipsis:
                shape += type_.shape[axis : axis + type_.rank - used]
                axis += type_.rank - used
            elif isinstance(part, slice):
                step = 1 if part.step is None else part.step
                if not isinstance(step, int):
                    raise Untraceable("a slice with a step that is not known")
                shape.append(slice_dim(type_.shape[axis], part.start, part.stop, step, self.trace.facts))
                axis += 1
            else:
                size = type_.shape[axis]
                if isinstance(part, int) and isinstance(size, int) and not -size <= part < size:
                    raise Untraceable(f"index {part} is out of bounds for a dimension of {size}")
                if isinstance(part, Dim):
                    self.within_passes(part, size)
                axis += 1
        return tuple(shape)

    def within_passes(self, place: Dim, size: DimLike) -> None:
        """A place that moves by one from pass to pass: that all passes are within bounds is asked before the loop.

        It is only where every pass comes to this place, and where it is so for the arguments at hand. Else the
        place is looked at in each pass.
        """
        trace = self.trace
        for symbol in symbols_of(place):
            counting = trace.counters.get(symbol)
            if counting is None or counting.nesting != self.nesting or not trace.speculate:
                continue
            first = place - symbol
            end = first + counting.trip
            if symbol in symbols_of(first) or trace.facts.less_equal(end, size) is not None:
                return
            try:
                low, high, most = (evaluate(d, trace.sample) for d in (first, end, size))
            except (TiercelError, ZeroDivisionError):
                return
            if low < 0 or high > most or isinstance(size - end, int):
                return
            with trace.collecting() as made:
                self.guard(
                    self.scalar_node("less_equal", self.size_value(end), self.size_value(size)),
                    "a loop that goes beyond the end of an array",
                )
            counting.before.extend(made)
            for facts in (trace.facts, counting.facts):
                facts.set_range(size - end, Range(0, None))
            return

    def set_item(self, x: Value, key: Abstract, value: Abstract) -> None:
        """`x[key] = value`: a new value with the selection replaced, which x is from now on."""
        type_ = x.type
        if not isinstance(type_, ArrayType):
            raise Untraceable(f"an item of a {type_} is written")
        given = self.storable(self.as_value(value), type_.dtype)
        parts = key.items if isinstance(key, Tuple) else (key,)
        mask = parts[0]
        if len(parts) == 1 and isinstance(mask, Value) and getattr(mask.type, "dtype", None) is BOOL:
            whole = isinstance(mask.type, ArrayType) and mask.type.rank == type_.rank
            if whole and not isinstance(given.type, ArrayType):
                self.assign(x, self.masked(x, mask, given))
                return
        full = self.array_key(parts, x)
        if full is not None:
            self.write_by_arrays(x, full, given)
            return
        full = self.full_key(parts)
        selected = self.selection(type_, full)
        if isinstance(given.type, ArrayType):
            if given.type.rank > len(selected):
                raise Untraceable(f"{given.type} is written into a selection of rank {len(selected)}")
            for wanted, size in zip(reversed(selected), reversed(given.type.shape), strict=False):
                if size != 1:
                    self.trace.wish(wanted, size)
        self.assign(x, self.node("index_put", (x, given), {"indices": full}, type_))

    def write_all(self, x: Value, value: Abstract) -> Value:
        """Every element of x gets a value that is cast within its kind and, unless it is one number, has x's shape.

        Returns:
            What x is from now on.
        """
        type_ = x.type
        if not isinstance(type_, ArrayType) or type_.wrapper != "ndarray":
            raise Untraceable(f"all of a {type_} is written")
        given = self.storable(self.as_value(value), type_.dtype)
        if isinstance(given.type, ArrayType):
            if given.type.wrapper != "ndarray":
                raise Untraceable(f"a {given.type} is written into an ndarray by a function of NumPy")
            same = given.type.rank == type_.rank
            for wanted, size in zip(type_.shape, given.type.shape, strict=False):
                self.trace.wish(wanted, size)
                same = same and self.trace.facts.equal(wanted, size) is True
            if not same:
                raise Untraceable(f"{given.type} is written into an array that may have another shape")
        return self.assign(x, self.node("index_put", (x, given), {"indices": (Ellipsis,)}, type_))

    def write_by_arrays(self, x: Value, key: tuple[Any, ...], given: Value) -> None:
        """`x[key] = given` with arrays of integers in the key."""
        type_ = x.type
        assert isinstance(type_, ArrayType)
        row = get("index")
        bound = Bound(row, 0, (type_, TupleType(tuple(map(_key_type, key)))), {})
        selected = row.infer(bound, self.trace.facts, self.trace.data_symbol)
        if isinstance(given.type, ArrayType):
            if not isinstance(selected, ArrayType) or given.type.rank > selected.rank:
                raise Untraceable(f"{given.type} is written into a selection of {selected}")
            for wanted, size in zip(reversed(selected.shape), reversed(given.type.shape), strict=False):
                if size != 1:
                    self.trace.wish(wanted, size)
        arrays = tuple(k for k in key if isinstance(k, Value) and isinstance(k.type, ArrayType))
        self.assign(x, self.node("index_put", (x, given, *arrays), {"indices": key}, type_))

    def masked(self, x: Value, mask: Value, given: Value) -> Value:
        """x with `given` wherever a mask of its shape is true."""
        type_ = x.type
        assert isinstance(type_, ArrayType)
        if not isinstance(mask.type, ArrayType) or mask.type.dtype is not BOOL:
            raise Untraceable("elements are written by an array of indices")
        if mask.type.rank != type_.rank or isinstance(given.type, ArrayType):
            raise Untraceable("elements are written by a mask of another rank, or with many values")
        for size, own in zip(mask.type.shape, type_.shape, strict=True):
            self.trace.wish(size, own)
            if self.trace.facts.equal(size, own) is not True:
                raise Untraceable("elements are written by a mask that may have another shape")
        return self.node("where", (mask, given, x), {}, type_)

    def storable(self, given: Value, dtype: DType) -> Value:
        """The value as it is cast when it is stored; a number that adapts to the array is left as it is."""
        type_ = given.type
        match type_:
            case PyFloatType() if dtype.kind == "f":
                return given
            case PyIntType() if dtype.kind == "f":
                return given
            case PyIntType() if dtype.kind in "iu" and isinstance(type_.value, int):
                limits = np.iinfo(dtype.numpy)
                if not limits.min <= type_.value <= limits.max:
                    raise Untraceable(f"{type_.value} does not fit into {dtype.name}")
                return given
            case PyBoolType() if dtype.kind == "b":
                return given
            case PyBoolType():
                return self.node("astype", (given,), {"dtype": dtype}, NpScalarType(dtype))
            case ArrayType() | NpScalarType() if np.can_cast(type_.dtype.numpy, dtype.numpy, casting="same_kind"):
                return given if type_.dtype is dtype else self.node(
                    "astype", (given,), {"dtype": dtype}, replace(type_, dtype=dtype)
                )  # fmt: skip
        raise Untraceable(f"a {type_} is written into an array of {dtype.name}")

    def rows(self, x: Value) -> list[Abstract]:
        """The rows of an array whose first size is known."""
        if not isinstance(x.type, ArrayType) or not x.type.rank or not isinstance(x.type.shape[0], int):
            raise Untraceable("unpacking of a value whose length is not known")
        if x.type.shape[0] > MAX_UNROLL:
            raise Untraceable("unpacking of a long array")
        return [self.index_array(x, (i,)) for i in range(x.type.shape[0])]
