"""What a basic key (ints, slices, None, Ellipsis) selects of a memory: sizes, strides and an offset.

In: a memory and the parts of a key. Out: the memory of the selection; bounds of ints that are not known are guarded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered
from tiercel.compiler.graph import Value
from tiercel.compiler.memory import Memory
from tiercel.loops.form import INDEX, Compare, Const
from tiercel.operators.types import PyIntType
from tiercel.shapes import Dim, DimLike, dim_max, dim_min, slice_dim

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer


def selected(state: Lowerer, memory: Memory, key: object, origin: int, *, within: bool = False) -> Memory:
    """The part of a memory that a basic index selects; bounds of ints are checked unless all is `within`."""
    parts = list(key) if isinstance(key, tuple) else [key]
    rank = len(memory.shape)
    used = sum(p is not None and p is not Ellipsis for p in parts)
    if Ellipsis not in [p if p is Ellipsis else 0 for p in parts]:
        parts.append(Ellipsis)
    shape: list[DimLike] = []
    strides: list[DimLike] = []
    offset = memory.offset
    axis = 0
    for part in parts:
        if part is None:
            shape.append(1)
            strides.append(0)
        elif part is Ellipsis:
            for _ in range(rank - used):
                shape.append(memory.shape[axis])
                strides.append(memory.strides[axis])
                axis += 1
        elif isinstance(part, slice):
            size, stride = memory.shape[axis], memory.strides[axis]
            bounds = [_static_int(b) for b in (part.start, part.stop, part.step)]
            step = 1 if bounds[2] is None else bounds[2]
            if not isinstance(step, int):
                raise NotLowered("a slice with a step that is not known")
            shape.append(slice_dim(size, bounds[0], bounds[1], step))
            strides.append(stride * step)
            start = bounds[0]
            first = start if within and isinstance(start, Dim) else _first_of(state, size, start, step, origin)
            offset = offset + first * stride
            axis += 1
        else:
            place = part if within and isinstance(part, Dim) else state.nests.position(part, memory.shape[axis], origin)
            offset = offset + place * memory.strides[axis]
            axis += 1
    return Memory(memory.root, tuple(shape), tuple(strides), offset)


def _static_int(bound: object) -> DimLike | None:
    if isinstance(bound, Value):
        if isinstance(bound.type, PyIntType) and bound.type.value is not None:
            return bound.type.value
        raise NotLowered("a slice bound that is not a size")
    return bound  # type: ignore[return-value]


def _first_of(state: Lowerer, size: DimLike, start: DimLike | None, step: int, origin: int) -> DimLike:
    """The first position a slice takes, clipped as Python does.

    Where it is not known whether it counts from the start or the end, it is taken from the start: others leave.
    """
    if start is None:
        return 0 if step > 0 else size - 1
    facts, last = state.facts, size if step > 0 else size - 1
    if facts.less_equal(0, start) is True:
        return start if facts.less_equal(start, last) is True else dim_min(start, last)
    if facts.less_equal(start, -1) is True:
        return dim_max(start + size, 0 if step > 0 else -1)
    state.require(Compare("ge", dim_expression(start), Const(0, INDEX)), origin)
    return dim_min(start, last)
