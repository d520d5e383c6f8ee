"""The layout of a view made by basic indexing.

In: the layout of an array and a complete key. Out: the layout of `x[key]`: which axes lie in which order, and how
many of the innermost are dense. `Layout.unknown()` is always right, anything else must hold for every size.
"""

from __future__ import annotations

from typing import Any

from tiercel.operators.layout import Layout


def indexed_layout(layout: Layout, key: tuple[Any, ...], rank: int) -> Layout:
    """The layout of a view by basic indexing: kept axes stay in their order, the dense ones end at the first cut."""
    if any(k is None for k in key):
        found = indexed_layout(layout, tuple(k for k in key if k is not None), rank)
        for axis in new_axes(key, rank):
            found = found.insert(axis)
        return found
    if layout.order is None:
        return Layout.unknown()
    parts: list[Any] = []
    for part in key:
        if part is Ellipsis:
            parts += [slice(None)] * (rank - sum(k is not Ellipsis for k in key))
        else:
            parts.append(part)
    kept = [axis for axis, part in enumerate(parts) if isinstance(part, slice)]
    order = tuple(kept.index(axis) for axis in layout.order if axis in kept)
    if any(isinstance(p, slice) and p.step not in (None, 1) for p in parts):
        return Layout(order, 0)  # iterations go by the size of strides, whatever their sign
    packed = 0
    for axis in reversed(layout.order[rank - layout.packed :]):
        if parts[axis] == slice(None):
            packed += 1
        else:
            # a slice of the outermost dense axis is still dense within; an int ends what is dense
            packed += isinstance(parts[axis], slice) and parts[axis].step in (None, 1)
            break
    return Layout(order, min(packed, len(order)))


def new_axes(key: tuple[Any, ...], rank: int) -> list[int]:
    """The axes of `x[key]` that the key makes, ascending."""
    found, axis = [], 0
    for part in key:
        if part is None:
            found.append(axis)
            axis += 1
        elif part is Ellipsis:
            axis += rank - sum(k is not None and k is not Ellipsis for k in key)
        else:
            axis += isinstance(part, slice)
    return found
