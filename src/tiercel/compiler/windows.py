"""Convolution and pooling: windows over the last axes of an array.

In: a node whose operands have memory (for a convolution the group of elementwise nodes that follow it). Out: loops.

* Padding is written once, into a copy of the image in the arena; then every window lies inside.
* A convolution is a product of its filters with the columns of windows, block by block of output rows: the columns of a
  block stay in the second-level cache, blocks are what the threads share, and what follows is the product's epilogue.
  With 1 x 1 filters the image itself has the columns.
* With one channel a group (depthwise), and in pooling, an output element is one expression over its window.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered, cast
from tiercel.compiler.fuse import Group
from tiercel.compiler.graph import Node, Value
from tiercel.compiler.memory import Memory, c_strides
from tiercel.compiler.nests import Access, identity_of
from tiercel.compiler.pointwise import element_statements, needed_outside, outside_operands
from tiercel.dtypes import DType
from tiercel.loops.form import (
    INDEX,
    Binary,
    Block,
    Buffer,
    Compare,
    Const,
    Contract,
    Expr,
    Fma,
    For,
    Let,
    Load,
    Stmt,
    Store,
    Var,
)
from tiercel.loops.index import index_add, index_mul
from tiercel.operators.reference.windows import Padding, per_axis, resolve_padding
from tiercel.operators.types import ArrayType, Shape
from tiercel.shapes import DimLike, Symbol, dim_max, product

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer

BLOCK = 512
"""Positions of a block of a convolution: 144 rows of them (16 channels, 3 x 3) are 300 KB of float32."""
SKEW = 16
"""Elements added to the length of a row of columns, so that rows do not fall onto the same lines of the cache."""
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


def _windows(
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


def _padded(state: Lowerer, memory: Memory, windows: Sequence[Window], fill: float, surplus: bool) -> Memory:
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


# -- convolution -------------------------------------------------------------------------------------------------------


def lower_convolution(state: Lowerer, group: Group, node: Node) -> None:
    """conv1d, conv2d and the elementwise members that follow."""
    _Convolution(state, group, node).run()


class _Convolution:
    def __init__(self, state: Lowerer, group: Group, node: Node) -> None:
        self.state, self.group, self.node = state, group, node
        x, w = (state.place(v) for v in node.inputs[:2])
        output = node.outputs[0].type
        assert isinstance(output, ArrayType)
        self.dtype = x.root.dtype
        if not (self.dtype is w.root.dtype is output.dtype) or self.dtype.name not in ("float32", "float64"):
            raise NotLowered(f"a convolution of {self.dtype.name} and {w.root.dtype.name}", node.origin)
        attributes, rank = node.attributes, len(x.shape) - 2
        kernel = tuple(k for k in w.shape[2:] if isinstance(k, int))
        groups = attributes.get("groups", 1)
        if len(kernel) != rank or not isinstance(groups, int):
            raise NotLowered("a convolution with a kernel or groups of unknown size", node.origin)
        self.groups, self.kernel, self.domain = groups, kernel, output.shape
        self.inner: DimLike = w.shape[1]  # channels of a group
        self.outer = output.shape[1] // groups  # outputs of a group
        strides, dilations = (per_axis(attributes.get(n, 1), rank, n) for n in ("stride", "dilation"))
        padding = attributes.get("padding", 0)
        self.windows = _windows(state, node, x.shape[2:], output.shape[2:], kernel, strides, dilations, padding)
        state.require_equal(x.shape[1], self.inner * groups, node.origin)
        if groups > 1:
            state.require_equal(output.shape[1] % groups, 0, node.origin)
        bias = node.inputs[2] if len(node.inputs) > 2 and isinstance(node.inputs[2].type, ArrayType) else None
        self.bias: Buffer | None = None
        if bias is not None:
            memory = state.place(bias)
            state.require_equal(memory.shape[0], output.shape[1], node.origin)
            self.bias = state.nests.declare(Access(memory, memory.strides), memory.shape, "bias")
        self.filters = w
        self.image = _padded(state, x, self.windows, 0.0, surplus=False)
        self.reads = {
            v: Access(state.place(v), state.nests.strides_over(state.place(v), self.domain, node.origin))
            for v in outside_operands(state, group)
        }
        outputs = [n.outputs[0] for n in group.nodes if needed_outside(state, group, n.outputs[0])]
        self.writes = {v: [Access(m, m.strides) for m in state.destinations(v)] for v in outputs}

    def run(self) -> None:
        """Make the loops."""
        if self.groups > 1 and self.inner == 1 and _taps(self.kernel) <= UNROLLED:
            self._depthwise()
        else:
            self._products()

    def _accesses(self) -> list[Access]:
        return [*self.reads.values(), *(a for many in self.writes.values() for a in many)]

    def _declare(self, dims: Shape) -> None:
        for value, access in self.reads.items():
            self.state.nests.declare(access, dims, value.name or "x")
        for value, many in self.writes.items():
            for access in many:
                self.state.nests.declare(access, dims, value.name or "y")

    def _element(self, total: Expr, output: Expr, index: tuple[Expr, ...]) -> list[Stmt]:
        """The statements after the sum of one element has been made."""
        state, node = self.state, self.node
        stmts: list[Stmt] = []
        if self.bias is not None:
            name = state.fresh("biased")
            stmts.append(Let(name, Binary("add", total, cast(Load(self.bias, (output,)), self.dtype))))
            total = Var(name, self.dtype)
        known: dict[Value, Expr] = {node.outputs[0]: total}
        for access in self.writes.get(node.outputs[0], ()):
            assert access.buffer is not None
            stmts.append(Store(access.buffer, index, total))
        others = [n for n in self.group.nodes if n is not node]
        return stmts + element_statements(state, others, self.reads, self.writes, index, known)

    def _depthwise(self) -> None:
        state, image, filters = self.state, self.image, self.filters
        read = state.nests.declare(Access(image, image.strides), image.shape, "image")
        weights = state.nests.declare(Access(filters, filters.strides), filters.shape, "filters")
        self._declare(self.domain)

        def body(index: tuple[Expr, ...]) -> list[Stmt]:
            channel = index[1]
            if self.outer != 1:
                channel = Binary("floordiv", channel, Binary("max", dim_expression(self.outer), Const(1, INDEX)))
            total: Expr = Const(0.0, self.dtype)
            for tap in itertools.product(*map(range, self.kernel)):
                weight = Load(weights, (index[1], Const(0, INDEX), *(Const(t, INDEX) for t in tap)))
                total = Fma(weight, Load(read, (index[0], channel, *_at(self.windows, index[2:], tap))), total)
            name = state.fresh("total")
            return [Let(name, total), *self._element(Var(name, self.dtype), index[1], index)]

        state.nests.elements(self.domain, body)

    def _products(self) -> None:
        state, image, windows = self.state, self.image, self.windows
        batch, spatial = self.domain[0], self.domain[2:]
        taps = self.inner * _taps(self.kernel)
        filters = self._filters(taps)
        accesses = self._accesses()
        heads = [a.strides[:2] for a in accesses]
        for access in accesses:
            access.strides = access.strides[2:]
        flat = state.nests.merge(spatial, accesses)
        for access, head in zip(accesses, heads, strict=True):
            access.strides = (*head, *access.strides)
        self._declare((*self.domain[:2], *flat))
        within = product(spatial[1:])
        pitch = dim_max(BLOCK, within) + SKEW
        rows_each, blocks = state.fresh("rows_each"), state.fresh("blocks")
        one = Const(1, INDEX)
        fitting = Binary("floordiv", Const(BLOCK, INDEX), Binary("max", dim_expression(within), one))
        state.emit(Let(rows_each, Binary("max", fitting, one)))
        less = Binary("sub", Var(rows_each), one)
        count = Binary("floordiv", index_add(dim_expression(spatial[0]), less), Var(rows_each))
        state.emit(Let(blocks, Binary("max", count, one)))
        task, n, first, rows, g = (state.fresh(k) for k in ("task", "image_number", "first", "rows", "group"))
        with state.collecting() as inside:
            state.emit(Let(n, Binary("floordiv", Var(task), Var(blocks))))
            state.emit(Let(first, index_mul(Binary("mod", Var(task), Var(blocks)), Var(rows_each))))
            left = Binary("sub", dim_expression(spatial[0]), Var(first))
            state.emit(Let(rows, Binary("min", Var(rows_each), left)))
            number, start, height, number_of_group = (Symbol(k, "scalar") for k in (n, first, rows, g))
            columns = state.arena("columns", self.dtype, (taps, pitch))
            with state.collecting() as each:
                shape = (self.inner, *self.kernel, height, *spatial[1:])
                steps = image.strides
                source = Memory(
                    image.root,
                    shape,
                    (
                        steps[1],
                        *(s * w.dilation for s, w in zip(steps[2:], windows, strict=True)),
                        *(s * w.stride for s, w in zip(steps[2:], windows, strict=True)),
                    ),
                    image.offset
                    + number * steps[0]
                    + number_of_group * self.inner * steps[1]
                    + start * windows[0].stride * steps[2],
                )
                tap_strides = tuple(s * pitch for s in c_strides((self.inner, *self.kernel)))
                strides = (*tap_strides, within, *c_strides(spatial[1:]))
                state.nests.copy(source, Memory(columns.root, shape, strides, columns.offset))
                self._contract(filters, columns, taps, pitch, flat, (number, start, height, number_of_group), within)
            state.emit(For(g, Const(self.groups, INDEX), Block(tuple(each))))
        total = index_mul(dim_expression(batch), Var(blocks))
        state.emit(For(task, total, Block(tuple(inside)), "parallel"))

    def _filters(self, taps: DimLike) -> Memory:
        """The filters as a matrix, one row an output."""
        found = self.filters.reshaped((self.domain[1], taps))
        if found is None:
            compact = self.state.arena("filters", self.dtype, self.filters.shape)
            self.state.nests.copy(self.filters, compact)
            found = compact.reshaped((self.domain[1], taps))
            assert found is not None
        return found

    def _contract(
        self, filters: Memory, columns: Memory, taps: DimLike, pitch: DimLike, flat: Shape,
        where: tuple[Symbol, Symbol, Symbol, Symbol], within: DimLike,
    ) -> None:  # fmt: skip
        state = self.state
        number, start, height, group = where
        some = Memory(
            filters.root, (self.outer, taps), filters.strides, filters.offset + group * self.outer * filters.strides[0]
        )
        wide = Memory(columns.root, (taps, height * within), (pitch, 1), columns.offset)
        a = state.nests.declare(Access(some, some.strides), some.shape, "filters")
        b = state.nests.declare(Access(wide, wide.strides), wide.shape, "columns")
        row, column, total = (state.fresh(k) for k in ("row", "column", "total"))
        output = index_add(dim_expression(group * self.outer), Var(row))
        position = index_add(dim_expression(start * within), Var(column))
        places = (position,) if len(flat) == 1 else _unflattened(position, flat)
        stmts = self._element(Var(total, self.dtype), output, (dim_expression(number), output, *places))
        m, n, k = (dim_expression(d) for d in (self.outer, height * within, taps))
        state.emit(Contract(a, b, row, column, total, Block(tuple(stmts)), m, n, k))


def _taps(kernel: Sequence[int]) -> int:
    found = 1
    for k in kernel:
        found *= k
    return found


def _unflattened(position: Expr, dims: Shape) -> tuple[Expr, ...]:
    found: list[Expr] = []
    for dim in reversed(dims[1:]):
        extent = Binary("max", dim_expression(dim), Const(1, INDEX))
        found.append(Binary("mod", position, extent))
        position = Binary("floordiv", position, extent)
    return tuple(reversed([*found, position]))


def _at(windows: Sequence[Window], index: Sequence[Expr], tap: Sequence[int]) -> tuple[Expr, ...]:
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
    if _taps(kernel) > UNROLLED:
        raise NotLowered(f"{node.operator} with {_taps(kernel)} elements in a window", node.origin)
    ceil = bool(attributes.get("ceil_mode", False))
    windows = _windows(
        state, node, source.shape[lead:], output.shape[lead:], kernel, strides, dilations, attributes.get("padding", 0)
    )
    largest = node.operator.startswith("max")
    computing = output.dtype.accumulator if output.dtype.name in ("float16", "bfloat16") else output.dtype
    fill: Any = identity_of("max", source.root.dtype) if largest else 0
    image = _padded(state, source, windows, fill, ceil)
    read = state.nests.declare(Access(image, image.strides), image.shape, "image")
    include = bool(attributes.get("count_include_pad", True))

    def element(index: tuple[Expr, ...]) -> Expr:
        total: Expr | None = None
        for tap in itertools.product(*map(range, kernel)):
            one = cast(Load(read, (*index[:lead], *_at(windows, index[lead:], tap))), computing)
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
