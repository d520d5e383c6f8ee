"""Convolution: sums over windows, block by block of positions, and what follows them.

In: the group of a convolution and the elementwise nodes after it. Out: loops.

* A block is a part of one image, the outputs of one group (or some of them), and a rectangle of positions. Its part of
  the image, padding included, is laid out in a buffer of the second-level cache so that every tap is a shift
  (`Unfold`), and `Convolve` sums in registers. Blocks are what the threads share. No image is padded or copied whole,
  and there is no matrix of columns.
* A bias and a lower bound (`maximum` with a number) that follow are part of the sum's last step, which then stores
  straight into the result. Whatever else follows is done a block at a time, from a tile of sums in the cache.
* With 1 x 1 filters, a stride of 1 and no padding the image is a matrix: a product for each image.
* With one channel a group (depthwise) an output is one expression over its window.

The filters are used as they lie: their rows are the order in which they are read.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered
from tiercel.compiler.fuse import Group
from tiercel.compiler.graph import Node, Value
from tiercel.compiler.memory import Memory
from tiercel.compiler.nests import Access
from tiercel.compiler.pointwise import element_statements, needed_outside, outside_operands
from tiercel.compiler.windows import UNROLLED, Window, padded, taps_of, window_index, windows_of
from tiercel.loops.form import (
    INDEX,
    THREAD_COUNT,
    UNFOLD_SLACK,
    Allocate,
    Binary,
    Block,
    Buffer,
    Compare,
    Const,
    Contract,
    Convolve,
    Expr,
    Fma,
    For,
    If,
    Let,
    Load,
    Select,
    Stmt,
    Store,
    Unfold,
    Var,
)
from tiercel.loops.index import index_add, index_mul
from tiercel.operators.reference.windows import per_axis
from tiercel.operators.types import ArrayType, PyFloatType, PyIntType, Shape
from tiercel.shapes import DimLike, Symbol, ceil_div, product, substitute, symbols_of

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer

BLOCK_BYTES: Final = 320 << 10
"""Of a block's part of the image: with the filters of some outputs it stays in a second-level cache of 512 KiB."""
POSITIONS: Final = 1024
"""Most positions of a tile of sums that something follows; it has up to `TILE_OUTPUTS` outputs."""
STORED_POSITIONS: Final = 8192
"""Most positions of a block whose sums go straight to their place."""
TILE_OUTPUTS: Final = 64
LEAST_ROWS: Final = 4
"""Rows below which blocks are not cut for the threads: the rows of a window would be laid out again and again."""
LEAST_COLUMNS: Final = 64
LEAST_OUTPUTS: Final = 16
"""The same of outputs: each part of them lays the image out anew."""
BLOCKS_PER_THREAD: Final = 4
LARGE: Final = 400_000
"""Multiply-adds from which on the work is cut for the threads."""
ROUND: Final = 16
"""Columns of a part of a row are a multiple of this."""


def lower_convolution(state: Lowerer, group: Group, node: Node) -> None:
    """conv1d, conv2d and the elementwise members that follow."""
    _Convolution(state, group, node).run()


@dataclass(frozen=True, slots=True)
class _Ending:
    """What follows the sums, where `Convolve` can do it: a bias, a lower bound, one place."""

    place: Memory
    bias: tuple[Memory, DimLike] | None  # and the distance of its elements
    low: float | None


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
        self.windows = windows_of(state, node, x.shape[2:], output.shape[2:], kernel, strides, dilations, padding)
        state.require_equal(x.shape[1], self.inner * groups, node.origin)
        if groups > 1:
            state.require_equal(output.shape[1] % groups, 0, node.origin)
        bias = node.inputs[2] if len(node.inputs) > 2 and isinstance(node.inputs[2].type, ArrayType) else None
        self.bias: Memory | None = None
        if bias is not None:
            self.bias = state.place(bias)
            state.require_equal(self.bias.shape[0], output.shape[1], node.origin)
            if self.bias.root.dtype is not self.dtype:
                raise NotLowered(f"a convolution with a bias of {self.bias.root.dtype.name}", node.origin)
        self.filters, self.image = w, x
        self.reads = {
            v: Access(state.place(v), state.nests.strides_over(state.place(v), self.domain, node.origin))
            for v in outside_operands(state, group)
        }
        outputs = [n.outputs[0] for n in group.nodes if needed_outside(state, group, n.outputs[0])]
        self.writes = {v: [Access(m, m.strides) for m in state.destinations(v)] for v in outputs}

    def run(self) -> None:
        """Make the loops."""
        if self.groups > 1 and self.inner == 1 and taps_of(self.kernel) <= UNROLLED:
            self._depthwise()
        elif self._is_product():
            self._products()
        else:
            _Blocks(self).run()

    # -- what follows -----------------------------------------------------------------------------------------

    def ending(self) -> _Ending | None:
        """What follows, if `Convolve` can do all of it."""
        output, channel = self.node.outputs[0], len(self.domain) - 1
        bias = None if self.bias is None else (self.bias, self.bias.strides[0])
        low: float | None = None
        for node in self.group.nodes:
            if node is self.node:
                continue
            last = output
            if last in self.writes or low is not None or len(node.inputs) != 2 or last not in node.inputs:
                return None
            other = node.inputs[1] if node.inputs[0] is last else node.inputs[0]
            output = node.outputs[0]
            if not isinstance(output.type, ArrayType) or output.type.dtype is not self.dtype or other is last:
                return None
            if node.operator == "maximum" and isinstance(other.type, PyFloatType | PyIntType):
                value = other.type.value
                if not isinstance(value, int | float) or value != value:
                    return None
                low = float(self.dtype.numpy.type(value))
            elif node.operator == "add" and bias is None and other in self.reads:
                access = self.reads[other]
                steps = access.strides
                if access.memory.root.dtype is not self.dtype or any(s != 0 for i, s in enumerate(steps) if i != 1):
                    return None
                bias = (access.memory, steps[1])
            else:
                return None
        places = self.writes.get(output, [])
        if len(self.writes) != 1 or len(places) != 1 or places[0].strides[channel] != 1:
            return None
        return _Ending(places[0].memory, bias, low)

    def declare(self, dims: Shape) -> None:
        """Make buffers of what is read and written at the elements of the result."""
        for value, access in self.reads.items():
            self.state.nests.declare(access, dims, value.name or "x")
        for value, many in self.writes.items():
            for access in many:
                self.state.nests.declare(access, dims, value.name or "y")

    def declare_bias(self) -> Buffer | None:
        """The bias as a buffer."""
        if self.bias is None:
            return None
        return self.state.nests.declare(Access(self.bias, self.bias.strides), self.bias.shape, "bias")

    def element(self, bias: Buffer | None, total: Expr, output: Expr, index: tuple[Expr, ...]) -> list[Stmt]:
        """The statements after the sum of one element has been made."""
        state, node = self.state, self.node
        stmts: list[Stmt] = []
        if bias is not None:
            name = state.fresh("biased")
            stmts.append(Let(name, Binary("add", total, Load(bias, (output,)))))
            total = Var(name, self.dtype)
        known: dict[Value, Expr] = {node.outputs[0]: total}
        for access in self.writes.get(node.outputs[0], ()):
            assert access.buffer is not None
            stmts.append(Store(access.buffer, index, total))
        others = [n for n in self.group.nodes if n is not node]
        return stmts + element_statements(state, others, self.reads, self.writes, index, known)

    # -- kinds ------------------------------------------------------------------------------------------------

    def _depthwise(self) -> None:
        state, filters = self.state, self.filters
        image = padded(state, self.image, self.windows, 0.0, surplus=False)
        read = state.nests.declare(Access(image, image.strides), image.shape, "image")
        weights = state.nests.declare(Access(filters, filters.strides), filters.shape, "filters")
        bias = self.declare_bias()
        self.declare(self.domain)

        def body(index: tuple[Expr, ...]) -> list[Stmt]:
            channel = index[1]
            if self.outer != 1:
                channel = Binary("floordiv", channel, Binary("max", dim_expression(self.outer), Const(1, INDEX)))
            total: Expr = Const(0.0, self.dtype)
            for tap in itertools.product(*map(range, self.kernel)):
                weight = Load(weights, (index[1], Const(0, INDEX), *(Const(t, INDEX) for t in tap)))
                at = window_index(self.windows, index[2:], tap)
                total = Fma(weight, Load(read, (index[0], channel, *at)), total)
            name = state.fresh("total")
            return [Let(name, total), *self.element(bias, Var(name, self.dtype), index[1], index)]

        state.nests.elements(self.domain, body)

    def _is_product(self) -> bool:
        """Is an image, as it lies, the matrix that the filters are multiplied with?"""
        plain = all(w.kernel == w.stride == 1 and w.low == 0 and w.high == 0 for w in self.windows)
        steps, sizes = self.image.strides[2:], self.image.shape[2:]
        inside = zip(steps, steps[1:], sizes[1:], strict=False)
        return plain and all(outer == size * inner for outer, inner, size in inside)

    def _products(self) -> None:
        state, image, spatial = self.state, self.image, self.domain[2:]
        accesses = [*self.reads.values(), *(a for many in self.writes.values() for a in many)]
        heads = [a.strides[:2] for a in accesses]
        for access in accesses:
            access.strides = access.strides[2:]
        flat = state.nests.merge(spatial, accesses)
        for access, head in zip(accesses, heads, strict=True):
            access.strides = (*head, *access.strides)
        bias = self.declare_bias()
        self.declare((*self.domain[:2], *flat))
        filters, positions = self.filter_rows(self.inner), product(spatial)
        n, g = state.fresh("image_number"), state.fresh("group")
        number, group = Symbol(n, "scalar"), Symbol(g, "scalar")
        with state.collecting() as each:
            some = replace(
                filters,
                shape=(self.outer, self.inner),
                offset=filters.offset + group * self.outer * filters.strides[0],
            )
            offset = image.offset + number * image.strides[0] + group * self.inner * image.strides[1]
            matrix = Memory(image.root, (self.inner, positions), (image.strides[1], image.strides[-1]), offset)
            a = state.nests.declare(Access(some, some.strides), some.shape, "filters")
            b = state.nests.declare(Access(matrix, matrix.strides), matrix.shape, "matrix")
            row, column, total = (state.fresh(k) for k in ("row", "column", "total"))
            output = index_add(dim_expression(group * self.outer), Var(row))
            places = _unflattened(Var(column), flat)
            stmts = self.element(bias, Var(total, self.dtype), output, (Var(n), output, *places))
            m, n_, k = (dim_expression(d) for d in (self.outer, positions, self.inner))
            state.emit(Contract(a, b, row, column, total, Block(tuple(stmts)), m, n_, k))
        inside: Stmt = For(g, Const(self.groups, INDEX), Block(tuple(each)))
        batch = self.domain[0]
        serial = For(n, dim_expression(batch), Block((inside,)))
        if batch == 1:
            state.emit(serial)
            return
        # enough images: one at a time for each thread; few: all threads at each
        enough = Compare("ge", dim_expression(batch), THREAD_COUNT)
        state.emit(If(enough, Block((replace(serial, axis="parallel"),)), Block((serial,))))

    def filter_rows(self, taps: DimLike) -> Memory:
        """The filters as a matrix, one contiguous row an output."""
        found = self.filters.reshaped((self.domain[1], taps))
        if found is None or found.strides[1] != 1:
            compact = self.state.arena("filters", self.dtype, self.filters.shape)
            self.state.nests.copy(self.filters, compact)
            found = compact.reshaped((self.domain[1], taps))
            assert found is not None
        return found


class _Blocks:
    """The loops over blocks. A convolution over one axis is one over images of one row."""

    def __init__(self, convolution: _Convolution) -> None:
        self.of, self.state = convolution, convolution.state
        image, windows = convolution.image, convolution.windows
        self.is_line = len(windows) == 1
        steps = image.strides
        if self.is_line:
            windows = (Window(1, 1, 1, 1, 0, 0, 1), windows[0])
            steps = (steps[0], steps[1], 0, steps[2])
        down, across = windows
        if down.kernel == 1 and down.stride > 1 and down.low == 0:
            # rows that no window sees are passed over
            steps = (*steps[:2], steps[2] * down.stride, steps[3])
            down = replace(down, size=ceil_div(down.size, down.stride), stride=1)
        self.down, self.across, self.steps = down, across, steps
        self.more_rows = (down.extent - 1) // down.stride
        self.more_columns = (across.extent - 1) // across.stride
        self.planes = convolution.inner * (down.stride * across.stride)
        self.taps = convolution.inner * taps_of(convolution.kernel)
        self.ending = convolution.ending()

    # -- sizes ------------------------------------------------------------------------------------------------

    def let(self, hint: str, value: Expr) -> Expr:
        """Bind a size; a number stays one."""
        if isinstance(value, Const):
            return value
        name = self.state.fresh(hint)
        self.state.emit(Let(name, value))
        return Var(name)

    def bounded(self, dim: DimLike) -> Expr:
        """A size, or what it is at most, known at entry."""
        most = substitute(dim, self.state.largest)
        if any(symbol in self.state.trips for symbol in symbols_of(most)):
            raise NotLowered("an image whose size changes from pass to pass of a loop")
        return dim_expression(most)

    def arena(self, hint: str, extent: Expr) -> Buffer:
        """Room for so many elements."""
        buffer = Buffer(self.state.fresh(hint), self.of.dtype, (extent,), space="arena")
        self.state.emit(Allocate(buffer))
        return buffer

    def run(self) -> None:
        """Make the loops."""
        of, state, let = self.of, self.state, self.let
        batch = dim_expression(of.domain[0])
        height, width = dim_expression(self.down.count), dim_expression(self.across.count)
        outer, groups = dim_expression(of.outer), Const(of.groups, INDEX)
        filters = of.filter_rows(self.taps)
        bias = of.declare_bias() if self.ending is None else None
        if self.ending is None:
            of.declare(of.domain)
        # how the work is cut
        elements = Const(BLOCK_BYTES // of.dtype.itemsize, INDEX)
        images = _mul(batch, groups)
        sums = _mul(_mul(images, outer), _mul(height, width))
        work = let("work", _mul(sums, dim_expression(self.taps)))
        threads = _mul(_max(THREAD_COUNT, _ONE), Const(BLOCKS_PER_THREAD, INDEX))
        wanted = let("wanted", Select(Compare("ge", work, Const(LARGE, INDEX)), threads, _ONE))
        most_columns = self._most_columns(elements, bounded=False)
        parts = _max(_ceil_div(width, most_columns), _ONE)
        if self.is_line:
            least = Const(LEAST_COLUMNS, INDEX)
            parts = _max(parts, _min(_ceil_div(wanted, images), _div(width, least)))
        parts = let("parts", parts)
        even = _mul(_ceil_div(_ceil_div(width, parts), Const(ROUND, INDEX)), Const(ROUND, INDEX))
        columns = let("columns", Select(Compare("eq", parts, _ONE), width, even))
        across = let("across", _max(_ceil_div(width, columns), _ONE))
        pitch = let("pitch", index_add(columns, Const(self.more_columns, INDEX)))
        rows: Expr = _ONE
        down: Expr = _ONE
        if not self.is_line:
            planes = dim_expression(self.planes)
            fitting = Binary("sub", _div(elements, _mul(planes, pitch)), Const(self.more_rows, INDEX))
            most_rows = _max(_min(fitting, _div(Const(self._positions, INDEX), columns)), _ONE)
            cut = _min(_ceil_div(wanted, _mul(images, across)), _ceil_div(height, Const(LEAST_ROWS, INDEX)))
            pieces = let("pieces", _max(_max(_ceil_div(height, most_rows), cut), _ONE))
            rows = let("rows", _max(_ceil_div(height, pieces), _ONE))
            down = let("down", _max(_ceil_div(height, rows), _ONE))
        outputs: Expr = outer
        shares: Expr = _ONE
        if self.ending is None or not (isinstance(of.outer, int) and of.outer <= LEAST_OUTPUTS):
            blocks = _mul(_mul(images, across), down)
            shares = _min(_ceil_div(wanted, blocks), _ceil_div(outer, Const(LEAST_OUTPUTS, INDEX)))
            if self.ending is None:
                shares = _max(shares, _ceil_div(outer, Const(TILE_OUTPUTS, INDEX)))
            eight = Const(8, INDEX)
            outputs = let("outputs", _mul(_ceil_div(_ceil_div(outer, _max(shares, _ONE)), eight), eight))
            shares = let("shares", _max(_ceil_div(outer, outputs), _ONE))
        all_rows = let("all_rows", index_add(rows, Const(self.more_rows, INDEX)))
        plane = let("plane", index_add(_mul(all_rows, pitch), Const(UNFOLD_SLACK, INDEX)))
        offsets = self._offsets(plane, pitch)
        # the blocks
        task = state.fresh("task")
        rest: Expr = Var(task)
        with state.collecting() as inside:
            numbers: list[Expr] = []
            for hint, count in (("share", shares), ("part", across), ("piece", down), ("group", groups)):
                if count == _ONE:
                    numbers.append(Const(0, INDEX))
                    continue
                numbers.append(let(hint, Binary("mod", rest, count)))
                rest = let("rest", Binary("floordiv", rest, count))
            share, part, piece, group = numbers
            number = let("image_number", rest)
            first = tuple(let(hint, _mul(a, b)) for hint, a, b in (
                ("output0", share, outputs), ("row0", piece, rows), ("column0", part, columns)
            ))  # fmt: skip
            counts = tuple(let(hint, _min(most, Binary("sub", total, begin))) for hint, most, total, begin in (
                ("some_outputs", outputs, outer, first[0]), ("some_rows", rows, height, first[1]),
                ("some_columns", columns, width, first[2]),
            ))  # fmt: skip
            self._block(filters, offsets, number, group, first, counts, all_rows, pitch, bias)
        total = _mul(_mul(_mul(_mul(batch, groups), down), across), shares)
        state.emit(For(task, total, Block(tuple(inside)), "parallel", work))

    @property
    def _positions(self) -> int:
        return POSITIONS if self.ending is None else STORED_POSITIONS

    def _most_columns(self, elements: Expr, *, bounded: bool) -> Expr:
        """Columns of which a row fits into a block."""
        planes = self.bounded(self.planes) if bounded else dim_expression(self.planes)
        fitting = _div(elements, _mul(planes, Const(1 + self.more_rows, INDEX)))
        fitting = Binary("sub", fitting, Const(self.more_columns, INDEX)) if self.more_columns else fitting
        return _min(_max(_folded(fitting), Const(LEAST_COLUMNS, INDEX)), Const(self._positions, INDEX))

    def _room(self) -> Expr:
        """Most elements of a block's part of the image."""
        elements = Const(BLOCK_BYTES // self.of.dtype.itemsize, INDEX)
        columns = _min(self._most_columns(elements, bounded=True), self.bounded(self.across.count))
        pitch = index_add(columns, Const(ROUND + self.more_columns, INDEX))
        planes = self.bounded(self.planes)
        row = _mul(_mul(planes, Const(1 + self.more_rows, INDEX)), pitch)
        return index_add(_max(row, elements), _mul(planes, Const(UNFOLD_SLACK, INDEX)))

    def _offsets(self, plane: Expr, pitch: Expr) -> Buffer:
        """For each tap where it lies in the laid out image."""
        state, of, down, across = self.state, self.of, self.down, self.across
        memory = state.arena("offsets", INDEX, (self.taps,))
        i, j, c = (state.fresh(k) for k in ("tap_row", "tap_column", "channel"))
        kernel = (1, *of.kernel) if self.is_line else of.kernel
        each = _mul(plane, Const(down.stride * across.stride, INDEX))
        with state.collecting() as tap:
            y, x = _mul(Var(i), Const(down.dilation, INDEX)), _mul(Var(j), Const(across.dilation, INDEX))
            (y, a), (x, b) = (
                (_div(at, Const(w.stride, INDEX)), _mod(at, w.stride)) for at, w in ((y, down), (x, across))
            )
            number = index_add(_mul(a, Const(across.stride, INDEX)), b)
            place = self.let("place", index_add(index_add(_mul(number, plane), _mul(y, pitch)), x))
            at = index_add(_mul(Var(i), Const(kernel[1], INDEX)), Var(j))
            index = index_add(_mul(Var(c), Const(kernel[0] * kernel[1], INDEX)), at)
            store = Store(memory.root, (index,), index_add(_mul(Var(c), each), place))
            state.emit(For(c, dim_expression(of.inner), Block((store,))))
        row = For(j, Const(kernel[1], INDEX), Block(tuple(tap)))
        state.emit(For(i, Const(kernel[0], INDEX), Block((row,))))
        return memory.root

    # -- a block ----------------------------------------------------------------------------------------------

    def _block(
        self, filters: Memory, offsets: Buffer, number: Expr, group: Expr, first: tuple[Expr, ...],
        counts: tuple[Expr, ...], all_rows: Expr, pitch: Expr, bias: Buffer | None,
    ) -> None:  # fmt: skip
        state, of, down, across = self.state, self.of, self.down, self.across
        image, steps = of.image, tuple(map(dim_expression, self.steps))
        begin = index_add(dim_expression(image.offset), _mul(number, steps[0]))
        begin = index_add(begin, _mul(_mul(group, dim_expression(of.inner)), steps[1]))
        shape = tuple(map(dim_expression, (of.inner, down.size, across.size)))
        source = self._view("image", image, shape, steps[1:], begin)
        laid = self.arena("laid", self._room())
        top, left = (
            Binary("sub", _mul(at, Const(w.stride, INDEX)), dim_expression(w.low))
            for at, w in zip(first[1:], (down, across), strict=True)
        )
        state.emit(Unfold(source, laid, top, left, all_rows, pitch, down.stride, across.stride))
        output0 = self.let("first", index_add(_mul(group, dim_expression(of.outer)), first[0]))
        row = dim_expression(filters.strides[0])
        place = index_add(dim_expression(filters.offset), _mul(output0, row))
        weights = self._view("filters", filters, (counts[0], dim_expression(self.taps)), (row, _ONE), place)
        ending = self.ending
        if ending is not None:
            memory = ending.place
            strides = tuple(map(dim_expression, memory.strides))
            offset = index_add(dim_expression(memory.offset), _mul(number, strides[0]))
            where = (output0, first[2]) if self.is_line else (output0, *first[1:])
            for at, stride in zip(where, strides[1:], strict=True):
                offset = index_add(offset, _mul(at, stride))
            c_strides = (strides[1], Const(0, INDEX), _ONE) if self.is_line else strides[1:]
            c = self._view("c", memory, counts, c_strides, offset)
            added: Buffer | None = None
            if ending.bias is not None:
                given, step = ending.bias
                stride = dim_expression(step)
                at = index_add(dim_expression(given.offset), _mul(output0, stride))
                added = self._view("bias", given, (counts[0],), (stride,), at)
            state.emit(Convolve(weights, laid, offsets, c, pitch, added, ending.low))
            return
        tile = self.arena("sums", self._tile_room())
        area = _mul(counts[1], counts[2])
        sums = Buffer(
            state.fresh("tile"), of.dtype, counts, (self.let("area", area), counts[2], _ONE), "arena", tile.name,
            Const(0, INDEX),
        )  # fmt: skip
        state.emit(Allocate(sums))
        state.emit(Convolve(weights, laid, offsets, sums, pitch))
        o, y, x = (state.fresh(k) for k in ("o", "y", "x"))
        total = state.fresh("total")
        output = index_add(output0, Var(o))
        at_row, at_column = index_add(first[1], Var(y)), index_add(first[2], Var(x))
        index = (number, output, at_column) if self.is_line else (number, output, at_row, at_column)
        body = (
            Let(total, Load(sums, (Var(o), Var(y), Var(x)))),
            *of.element(bias, Var(total, of.dtype), output, index),
        )
        line = For(x, counts[2], Block(body), "vector")
        state.emit(For(o, counts[0], Block((For(y, counts[1], Block((line,))),))))

    def _tile_room(self) -> Expr:
        outputs = TILE_OUTPUTS if not isinstance(self.of.outer, int) else min(TILE_OUTPUTS, -(-self.of.outer // 8) * 8)
        return Const(outputs * (POSITIONS + ROUND), INDEX)

    def _view(
        self, hint: str, memory: Memory, shape: tuple[Expr, ...], strides: tuple[Expr, ...], offset: Expr
    ) -> Buffer:
        root = memory.root
        buffer = Buffer(self.state.fresh(f"{hint}_view"), root.dtype, shape, strides, "arena", root.name, offset)
        self.state.emit(Allocate(buffer))
        return buffer


_ONE: Final = Const(1, INDEX)


def _folded(x: Expr) -> Expr:
    """A difference of numbers as one."""
    match x:
        case Binary(op="sub", a=Const(value=a), b=Const(value=b)):
            return Const(int(a.real) - int(b.real), INDEX)
    return x


def _mul(a: Expr, b: Expr) -> Expr:
    return index_mul(a, b)


def _extreme(op: str, a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        choose = min if op == "min" else max
        return Const(choose(int(a.value.real), int(b.value.real)), INDEX)
    return a if a == b else Binary(op, a, b)


def _min(a: Expr, b: Expr) -> Expr:
    return _extreme("min", a, b)


def _max(a: Expr, b: Expr) -> Expr:
    return _extreme("max", a, b)


def _div(a: Expr, b: Expr) -> Expr:
    """a // b; a divisor of 0 counts as 1."""
    if isinstance(b, Const):
        divisor = max(int(b.value.real), 1)
        if isinstance(a, Const):
            return Const(int(a.value.real) // divisor, INDEX)
        return a if divisor == 1 else Binary("floordiv", a, Const(divisor, INDEX))
    return Binary("floordiv", a, Binary("max", b, _ONE))


def _ceil_div(a: Expr, b: Expr) -> Expr:
    if b == _ONE:
        return a
    if isinstance(b, Const):
        return _div(index_add(a, Const(int(b.value.real) - 1, INDEX)), b)
    b = Binary("max", b, _ONE)
    return Binary("floordiv", Binary("sub", index_add(a, b), _ONE), b)


def _mod(a: Expr, b: int) -> Expr:
    return Const(0, INDEX) if b == 1 else Binary("mod", a, Const(b, INDEX))


def _unflattened(position: Expr, dims: Shape) -> tuple[Expr, ...]:
    found: list[Expr] = []
    for dim in reversed(dims[1:]):
        extent = Binary("max", dim_expression(dim), Const(1, INDEX))
        found.append(Binary("mod", position, extent))
        position = Binary("floordiv", position, extent)
    return tuple(reversed([*found, position]))
