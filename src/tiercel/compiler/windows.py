"""Windows over the last axes of an array, and pooling.

In: a node whose operand has memory. Out: loops. Padding is written once, into a copy of the image in the arena; then
every window lies inside, and an output element is one expression over its window.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered, cast
from tiercel.compiler.graph import Node
from tiercel.compiler.memory import Memory
from tiercel.compiler.nests import Access, identity_of
from tiercel.dtypes import DType
from tiercel.loops.form import (
    INDEX,
    Binary,
    Compare,
    Const,
    Expr,
    Load,
)
from tiercel.loops.index import index_add, index_mul
from tiercel.operators.reference.windows import Padding, per_axis, resolve_padding
from tiercel.operators.types import ArrayType, Shape
from tiercel.shapes import DimLike, dim_max

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer

UNROLLED = 64
"""Taps up to which a window is one expression."""


@dataclass(frozen=True, slots=True)
class Window:
    """Windows along one axis: `count` of them, the first begins `low` elements before the axis, which then has `high`
    more at its end.
    """

    size: DimLike
    kernel: int
    stride: int
    dilation: int
    low: DimLike
    high: DimLike
    count: DimLike

    @property
    def extent(self) -> int:
        """Elements from the first to the last tap."""
        return self.dilation * (self.kernel - 1) + 1


def windows_of(
    state: Lowerer, node: Node, sizes: Shape, counts: Shape, kernel: Sequence[int], strides: Sequence[int],
    dilations: Sequence[int], padding: Padding,
) -> tuple[Window, ...]:  # fmt: skip
    """The windows of a node; a padded size below the extent of the kernel leaves the region (it is an error)."""
    pads = resolve_padding(padding, len(sizes))
    found = []
    for axis, (size, count, k, s, d) in enumerate(zip(sizes, counts, kernel, strides, dilations, strict=True)):
        extent = d * (k - 1) + 1
        if isinstance(pads, str):
            total = dim_max((count - 1) * s + extent - size, 0)
            low: DimLike = total // 2
            high = total - low
        else:
            low, high = pads[axis]
            room = size + low + high - extent
            if state.facts.less_equal(0, room) is not True:
                state.require(Compare("ge", dim_expression(room), Const(0, INDEX)), node.origin)
        found.append(Window(size, k, s, d, low, high, count))
    return tuple(found)


def padded(state: Lowerer, memory: Memory, windows: Sequence[Window], fill: float, surplus: bool) -> Memory:
    """The array with `fill` around its last axes; with `surplus` windows may end beyond the padding."""
    if all(w.low == 0 and w.high == 0 for w in windows) and not surplus:
        return memory
    lead = len(memory.shape) - len(windows)
    sizes = [w.size + w.low + w.high + (w.stride - 1 if surplus else 0) for w in windows]
    dtype = memory.root.dtype
    whole = state.arena("padded", dtype, (*memory.shape[:lead], *sizes))
    for axis, (window, size) in enumerate(zip(windows, sizes, strict=True), lead):
        after = window.low + window.size
        for first, count in ((0, window.low), (after, size - after)):
            if count == 0:
                continue
            shape = (*whole.shape[:axis], count, *whole.shape[axis + 1 :])
            strip = replace(whole, shape=shape, offset=whole.offset + first * whole.strides[axis])
            state.nests.fill(strip, lambda _: Const(fill, dtype))
    offset = whole.offset
    for axis, window in enumerate(windows, lead):
        offset = offset + window.low * whole.strides[axis]
    state.nests.copy(memory, replace(whole, shape=memory.shape, offset=offset))
    return whole


def taps_of(kernel: Sequence[int]) -> int:
    """Elements of a window."""
    found = 1
    for k in kernel:
        found *= k
    return found


def window_index(windows: Sequence[Window], index: Sequence[Expr], tap: Sequence[int]) -> tuple[Expr, ...]:
    """Where a tap of the window at `index` lies in the padded array."""
    return tuple(
        index_add(index_mul(i, Const(w.stride, INDEX)), Const(t * w.dilation, INDEX))
        for w, i, t in zip(windows, index, tap, strict=True)
    )


# -- pooling -----------------------------------------------------------------------------------------------------------


def lower_pool(state: Lowerer, node: Node) -> None:
    """max_pool1d, max_pool2d, avg_pool1d, avg_pool2d."""
    output, attributes = node.outputs[0].type, node.attributes
    source = state.place(node.inputs[0])
    if not isinstance(output, ArrayType) or source.root.dtype.kind not in "biuf":
        raise NotLowered(f"{node.operator} of {source.root.dtype.name}", node.origin)
    rank = int(node.operator[-2])
    lead = len(source.shape) - rank
    kernel = per_axis(attributes["kernel_size"], rank, "kernel_size")
    stride = attributes.get("stride")
    strides = kernel if stride is None else per_axis(stride, rank, "stride")
    dilations = per_axis(attributes.get("dilation", 1), rank, "dilation")
    if taps_of(kernel) > UNROLLED:
        raise NotLowered(f"{node.operator} with {taps_of(kernel)} elements in a window", node.origin)
    ceil = bool(attributes.get("ceil_mode", False))
    windows = windows_of(
        state, node, source.shape[lead:], output.shape[lead:], kernel, strides, dilations, attributes.get("padding", 0)
    )
    largest = node.operator.startswith("max")
    computing = output.dtype.accumulator if output.dtype.name in ("float16", "bfloat16") else output.dtype
    fill: Any = identity_of("max", source.root.dtype) if largest else 0
    image = padded(state, source, windows, fill, ceil)
    read = state.nests.declare(Access(image, image.strides), image.shape, "image")
    include = bool(attributes.get("count_include_pad", True))

    def element(index: tuple[Expr, ...]) -> Expr:
        total: Expr | None = None
        for tap in itertools.product(*map(range, kernel)):
            one = cast(Load(read, (*index[:lead], *window_index(windows, index[lead:], tap))), computing)
            total = one if total is None else Binary("max" if largest else "add", total, one)
        assert total is not None
        if not largest:
            for window, i in zip(windows, index[lead:], strict=True):
                total = Binary("div", total, _divisor(window, i, computing, include=include, ceil=ceil))
        return total

    for memory in state.destinations(node.outputs[0]):
        state.nests.fill(memory, element)


def _divisor(window: Window, i: Expr, dtype: DType, *, include: bool, ceil: bool) -> Expr:
    """How many elements of a window count."""
    if include and not ceil:
        return Const(float(window.kernel), dtype)
    low, size = dim_expression(window.low), dim_expression(window.size)
    start = Binary("sub", index_mul(i, Const(window.stride, INDEX)), low)
    stop: Expr = Binary("add", start, Const(window.kernel, INDEX))
    end = index_add(size, dim_expression(window.high)) if include else size
    stop = Binary("min", stop, end)
    first = start if include else Binary("max", start, Const(0, INDEX))
    return cast(Binary("sub", stop, first), dtype)
