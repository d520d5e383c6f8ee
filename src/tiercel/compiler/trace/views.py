"""Basic indexing: `x[i, a:b, None, ...]` is a view.

In: an array value and a key of ints, sizes, slices, None and Ellipsis. Out: an `index` node whose type has the size
and layout of the view, with the root of the array.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tiercel.compiler.abstract import Abstract, Known, Slice, Untraceable
from tiercel.compiler.graph import Node, Value
from tiercel.compiler.trace.layouts import indexed_layout
from tiercel.compiler.trace.operators import Operators
from tiercel.compiler.trace.state import MAX_UNROLL
from tiercel.operators.types import ArrayType, NpScalarType, PyIntType
from tiercel.shapes import Dim, DimLike, slice_dim


class Views(Operators):
    """Adds basic indexing of arrays."""

    def index_array(self, x: Value, key: tuple[Any, ...]) -> Value:
        """Basic indexing of an array: a view."""
        type_ = x.type
        if not isinstance(type_, ArrayType):
            raise Untraceable(f"an index into a {type_}")
        used = sum(k is not None and k is not Ellipsis for k in key)
        if used > type_.rank:
            raise Untraceable(f"{used} indices into an array of rank {type_.rank}")
        if not any(k is Ellipsis for k in key):
            key = (*key, Ellipsis)
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
                shape.append(slice_dim(type_.shape[axis], part.start, part.stop, step))
                axis += 1
            else:
                size = type_.shape[axis]
                if isinstance(part, int) and isinstance(size, int) and not -size <= part < size:
                    raise Untraceable(f"index {part} is out of bounds for a dimension of {size}")
                axis += 1
        if not shape and len(key) == used + 1:
            output = self.trace.value(NpScalarType(type_.dtype))
        else:
            layout = indexed_layout(type_.layout, key, type_.rank)
            output = self.trace.value(replace(type_, shape=tuple(shape), layout=layout))
            self.trace.roots[output] = self.trace.root(x)
        self.trace.add(Node("index", (x,), {"key": key}, (output,), self.site()))
        return output

    def key_part(self, part: Abstract) -> Any:
        """A part of an index: an int, a size, an int Value, a slice, None or Ellipsis."""
        if isinstance(part, Slice):
            return slice(*(self.bound(p) for p in (part.start, part.stop, part.step)))
        if isinstance(part, Known) and (part.value is None or part.value is Ellipsis):
            return part.value
        if isinstance(part, Value):
            type_ = part.type
            if isinstance(type_, PyIntType):
                return part if type_.value is None else type_.value
            if isinstance(type_, NpScalarType) and type_.dtype.kind in "iu":
                return part
        raise Untraceable("an index by an array or mask")

    def bound(self, part: Abstract) -> Any:
        """A bound of a slice: None, an int or a size."""
        if isinstance(part, Known) and part.value is None:
            return None
        value = self.static(part)
        if not isinstance(value, int | Dim):
            raise Untraceable("a slice bound that is no int")
        return value

    def rows(self, x: Value) -> list[Abstract]:
        """The rows of an array whose first size is known."""
        if not isinstance(x.type, ArrayType) or not x.type.rank or not isinstance(x.type.shape[0], int):
            raise Untraceable("unpacking of a value whose length is not known")
        if x.type.shape[0] > MAX_UNROLL:
            raise Untraceable("unpacking of a long array")
        return [self.index_array(x, (i,)) for i in range(x.type.shape[0])]
