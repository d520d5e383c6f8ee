"""The blocks of a convolution: how the work is cut, what is laid out for a block, where its sums go.

In: a `Convolution`, and a sum over positions that takes its result (or none). Out: loops. See `convolution`.

How the work is cut changes no sum of a convolution, and no sum over positions: rows are summed part by part, and how a
row is cut depends on sizes alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered
from tiercel.compiler.graph import Node, Value
from tiercel.compiler.memory import Memory
from tiercel.compiler.nests import Access
from tiercel.compiler.windows import Window, taps_of
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
    Convolve,
    Expr,
    For,
    Let,
    Load,
    Local,
    Reduce,
    Select,
    Stmt,
    Store,
    Unfold,
    Var,
)
from tiercel.loops.index import index_add, index_mul
from tiercel.operators.types import Shape
from tiercel.shapes import DimLike, ceil_div, substitute, symbols_of

if TYPE_CHECKING:
    from tiercel.compiler.convolution import Convolution

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
CHAIN_BYTES: Final = 448 << 10
"""Of what a block of two convolutions lays out."""
CHAIN_BLOCKS_PER_THREAD: Final = 2
CHAIN_COLUMNS: Final = 128
"""Most columns of such a block: the nearer to a square, the less is computed twice."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What follows the sums, where `Convolve` can do it: a bias, a lower bound."""

    value: Value
    bias: tuple[Memory, DimLike] | None  # and the distance of its elements
    low: float | None


class Blocks:
    """The loops over blocks. A convolution over one axis is one over images of one row."""

    def __init__(self, convolution: Convolution, summed: Node | None = None) -> None:
        self.of, self.state, self.summed = convolution, convolution.state, summed
        windows = convolution.windows
        self.inside = None if convolution.inside is None else Blocks(convolution.inside)
        self.is_line = len(windows) == 1
        steps: Shape = () if convolution.inside is not None else convolution.image.strides
        if self.is_line:
            windows = (Window(1, 1, 1, 1, 0, 0, 1), windows[0])
            steps = (steps[0], steps[1], 0, steps[2])
        down, across = windows
        if steps and down.kernel == 1 and down.stride > 1 and down.low == 0:
            # rows that no window sees are passed over
            steps = (*steps[:2], steps[2] * down.stride, steps[3])
            down = replace(down, size=ceil_div(down.size, down.stride), stride=1)
        self.down, self.across, self.steps = down, across, steps
        self.more_rows = (down.extent - 1) // down.stride
        self.more_columns = (across.extent - 1) // across.stride
        self.planes = convolution.inner * (down.stride * across.stride)
        self.taps = convolution.inner * taps_of(convolution.kernel)
        self.ending = convolution.ending
        self.place = self._place()
        self.is_direct = self.ending is not None and self.place is not None
        # elements that are laid out for each position of a plane
        self.laid: DimLike = self.planes
        if self.inside is not None:
            self.laid = 2 * self.planes + self.inside.planes * (down.stride * across.stride)
        bytes_ = BLOCK_BYTES if self.inside is None else CHAIN_BYTES
        self.elements = Const(bytes_ // convolution.dtype.itemsize, INDEX)

    def _place(self) -> Memory | None:
        """Where `Convolve` stores, if that is the result itself."""
        if self.ending is None or self.summed is not None:
            return None
        places = self.of.writes.get(self.ending.value, [])
        if len(self.of.writes) != 1 or len(places) != 1 or places[0].strides[-1] != 1:
            return None
        return places[0].memory

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
        plain = not self.is_direct and self.summed is None
        bias = of.declare_bias() if plain else None
        if plain:
            of.declare(of.domain)
        # how the work is cut
        images = _mul(batch, groups)
        sums = _mul(_mul(images, outer), _mul(height, width))
        work = let("work", _mul(sums, dim_expression(self.taps)))
        each = BLOCKS_PER_THREAD if self.inside is None else CHAIN_BLOCKS_PER_THREAD
        threads = _mul(_max(THREAD_COUNT, _ONE), Const(each, INDEX))
        wanted = let("wanted", Select(Compare("ge", work, Const(LARGE, INDEX)), threads, _ONE))
        parts = _max(_ceil_div(width, self._most_columns(bounded=False)), _ONE)
        if self.is_line:
            least = Const(LEAST_COLUMNS, INDEX)
            parts = _max(parts, _min(_ceil_div(wanted, images), _div(width, least)))
        parts = let("parts", parts)
        even = _mul(_ceil_div(_ceil_div(width, parts), Const(ROUND, INDEX)), Const(ROUND, INDEX))
        columns = let("columns", Select(Compare("eq", parts, _ONE), width, even))
        across = let("across", _max(_ceil_div(width, columns), _ONE))
        rows: Expr = _ONE
        down: Expr = _ONE
        if not self.is_line:
            pitch = index_add(columns, Const(self.more_columns, INDEX))
            area = _mul(dim_expression(self.laid), pitch)
            fitting = Binary("sub", _div(self.elements, area), Const(self.more_rows, INDEX))
            most_rows = _max(_min(fitting, _div(Const(self._positions, INDEX), columns)), _ONE)
            cut = _min(_ceil_div(wanted, _mul(images, across)), _ceil_div(height, Const(LEAST_ROWS, INDEX)))
            # as many for each thread
            shared = _mul(_div(cut, THREAD_COUNT), THREAD_COUNT)
            cut = let("cut", _max(shared, _min(cut, THREAD_COUNT)))
            pieces = let("pieces", _max(_max(_ceil_div(height, most_rows), cut), _ONE))
            rows = let("rows", _max(_ceil_div(height, pieces), _ONE))
            down = let("down", _max(_ceil_div(height, rows), _ONE))
        outputs: Expr = outer
        shares: Expr = _ONE
        if not self.is_direct or (self.inside is None and not _at_most(of.outer, LEAST_OUTPUTS)):
            if not self.is_direct:
                shares = _ceil_div(outer, Const(TILE_OUTPUTS, INDEX))
            if self.inside is None and not _at_most(of.outer, LEAST_OUTPUTS):
                blocks = _mul(_mul(images, across), down)
                cut = _min(_ceil_div(wanted, blocks), _ceil_div(outer, Const(LEAST_OUTPUTS, INDEX)))
                shares = _max(shares, cut)
            eight = Const(8, INDEX)
            outputs = let("outputs", _mul(_ceil_div(_ceil_div(outer, _max(shares, _ONE)), eight), eight))
            shares = let("shares", _max(_ceil_div(outer, outputs), _ONE))
        self.lay_out(rows, columns)
        if self.inside is not None:
            seen = (_seen(self.down, rows), _seen(self.across, columns))
            self.inside.lay_out(let("seen_rows", seen[0]), let("seen_columns", seen[1]))
        partial = None if self.summed is None else self._partial(parts)
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
            room = self._room()
            laid = self.arena("laid", room)
            if self.inside is None:
                self.unfold(laid, number, group, first[1:])
            else:
                self._unfold_computed(laid, room, number, first[1:], counts[1:])
            self._sum(laid, number, group, part, first, counts, bias, partial)
        total = _mul(_mul(_mul(_mul(batch, groups), down), across), shares)
        state.emit(For(task, total, Block(tuple(inside)), "parallel", work))
        if partial is not None:
            self._sum_up(partial)

    @property
    def _positions(self) -> int:
        return STORED_POSITIONS if self.is_direct else POSITIONS

    def _most_columns(self, *, bounded: bool) -> Expr:
        """Columns of which a row fits into a block."""
        each = self.bounded(self.laid) if bounded else dim_expression(self.laid)
        fitting = _div(self.elements, _mul(each, Const(1 + self.more_rows, INDEX)))
        fitting = Binary("sub", fitting, Const(self.more_columns, INDEX)) if self.more_columns else fitting
        most = self._positions if self.inside is None else CHAIN_COLUMNS
        return _min(_max(_folded(fitting), Const(LEAST_COLUMNS, INDEX)), Const(most, INDEX))

    def _widest(self) -> Expr:
        """Most columns of a block."""
        columns = _min(self._most_columns(bounded=True), self.bounded(self.across.count))
        return index_add(columns, Const(ROUND, INDEX))

    def _room(self) -> Expr:
        """Most elements of a block's part of the image."""
        pitch = index_add(self._widest(), Const(self.more_columns, INDEX))
        planes = self.bounded(self.planes)
        row = _mul(_mul(planes, Const(1 + self.more_rows, INDEX)), pitch)
        return index_add(_max(row, self.elements), _mul(planes, Const(UNFOLD_SLACK, INDEX)))

    # -- parts of an image ------------------------------------------------------------------------------------

    def lay_out(self, rows: Expr, columns: Expr) -> None:
        """Settle how the image of so many positions is laid out."""
        self.pitch = self.let("pitch", index_add(columns, Const(self.more_columns, INDEX)))
        self.all_rows = self.let("all_rows", index_add(rows, Const(self.more_rows, INDEX)))
        plane = self.let("plane", index_add(_mul(self.all_rows, self.pitch), Const(UNFOLD_SLACK, INDEX)))
        self.positions = (rows, columns)
        self.offsets = self._offsets(plane)
        self.rows_of_filters = self.of.filter_rows(self.taps)

    def _offsets(self, plane: Expr) -> Buffer:
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
            place = self.let("place", index_add(index_add(_mul(number, plane), _mul(y, self.pitch)), x))
            at = index_add(_mul(Var(i), Const(kernel[1], INDEX)), Var(j))
            index = index_add(_mul(Var(c), Const(kernel[0] * kernel[1], INDEX)), at)
            store = Store(memory.root, (index,), index_add(_mul(Var(c), each), place))
            state.emit(For(c, dim_expression(of.inner), Block((store,))))
        row = For(j, Const(kernel[1], INDEX), Block(tuple(tap)))
        state.emit(For(i, Const(kernel[0], INDEX), Block((row,))))
        return memory.root

    def corner(self, first: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Where in the image the windows of a block begin; negative in the padding."""
        return tuple(
            self.let("corner", Binary("sub", _mul(at, Const(w.stride, INDEX)), dim_expression(w.low)))
            for at, w in zip(first, (self.down, self.across), strict=True)
        )

    def unfold(self, laid: Buffer, number: Expr, group: Expr, first: tuple[Expr, ...]) -> None:
        """Lay out what the block of positions from `first` on needs of an image in memory."""
        of, down, across = self.of, self.down, self.across
        image, steps = of.image, tuple(map(dim_expression, self.steps))
        begin = index_add(dim_expression(image.offset), _mul(number, steps[0]))
        begin = index_add(begin, _mul(_mul(group, dim_expression(of.inner)), steps[1]))
        shape = tuple(map(dim_expression, (of.inner, down.size, across.size)))
        source = self._view("image", image.root, shape, steps[1:], begin)
        top, left = self.corner(first)
        self.state.emit(Unfold(source, laid, top, left, self.all_rows, self.pitch, down.stride, across.stride))

    def _unfold_computed(
        self, laid: Buffer, room: Expr, number: Expr, first: tuple[Expr, ...], counts: tuple[Expr, ...]
    ) -> None:
        """The same of an image that another convolution makes: it is computed as far as it is seen."""
        inside, let = self.inside, self.let
        assert inside is not None
        zero = Const(0, INDEX)
        corner = self.corner(first)
        starts, sizes = [], []
        for at, count, window, other in zip(
            corner, counts, (self.down, self.across), (inside.down, inside.across), strict=True
        ):
            start = let("start", _max(at, zero))
            stop = _min(dim_expression(other.count), index_add(at, _seen(window, count)))
            starts.append(start)
            sizes.append(let("size", _max(Binary("sub", stop, start), zero)))
        theirs = self.arena("inner_laid", inside.room_for(self))
        inside.unfold(theirs, number, zero, tuple(starts))
        outputs = dim_expression(inside.of.outer)
        made = self.arena("made", room)
        rows, columns = inside.positions
        shape = (outputs, *sizes)
        c = self._view("made", made, shape, (_mul(rows, columns), columns, _ONE), zero)
        inside.convolve(theirs, zero, outputs, c)
        top, left = (Binary("sub", at, start) for at, start in zip(corner, starts, strict=True))
        self.state.emit(Unfold(c, laid, top, left, self.all_rows, self.pitch, self.down.stride, self.across.stride))

    def room_for(self, user: Blocks) -> Expr:
        """Most elements of what is laid out here for a block of `user`."""
        seen = _mul(Const(user.down.stride, INDEX), Const(user.across.stride, INDEX))
        planes, pitch = user.bounded(user.planes), index_add(user._widest(), Const(user.more_columns, INDEX))
        row = _mul(_mul(planes, Const(1 + user.more_rows, INDEX)), pitch)
        area = _mul(_div(_max(row, user.elements), planes), seen)
        columns = _mul(pitch, Const(user.across.stride, INDEX))
        most = _min(Const(user._positions, INDEX), user.bounded(user.down.count))
        rows = _mul(index_add(most, Const(1 + user.more_rows, INDEX)), Const(user.down.stride, INDEX))
        area = index_add(area, _mul(columns, Const(self.more_rows, INDEX)))
        area = index_add(area, _mul(rows, Const(self.more_columns, INDEX)))
        more = self.more_rows * self.more_columns + UNFOLD_SLACK
        return _mul(self.bounded(self.planes), index_add(area, Const(more, INDEX)))

    # -- sums -------------------------------------------------------------------------------------------------

    def convolve(self, laid: Buffer, output0: Expr, outputs: Expr, c: Buffer, *, raw: bool = False) -> None:
        """The sums of outputs from `output0` on, with what follows them unless they are wanted `raw`."""
        filters = self.rows_of_filters
        row = dim_expression(filters.strides[0])
        place = index_add(dim_expression(filters.offset), _mul(output0, row))
        weights = self._view("filters", filters.root, (outputs, dim_expression(self.taps)), (row, _ONE), place)
        ending, added = self.ending, None
        if raw or ending is None:
            self.state.emit(Convolve(weights, laid, self.offsets, c, self.pitch))
            return
        if ending.bias is not None:
            given, step = ending.bias
            stride = dim_expression(step)
            at = index_add(dim_expression(given.offset), _mul(output0, stride))
            added = self._view("bias", given.root, (outputs,), (stride,), at)
        self.state.emit(Convolve(weights, laid, self.offsets, c, self.pitch, added, ending.low))

    def _sum(
        self, laid: Buffer, number: Expr, group: Expr, part: Expr, first: tuple[Expr, ...], counts: tuple[Expr, ...],
        bias: Buffer | None, partial: Buffer | None,
    ) -> None:  # fmt: skip
        state, of = self.state, self.of
        output0 = self.let("first", index_add(_mul(group, dim_expression(of.outer)), first[0]))
        if self.is_direct:
            memory = self.place
            assert memory is not None
            strides = tuple(map(dim_expression, memory.strides))
            offset = index_add(dim_expression(memory.offset), _mul(number, strides[0]))
            where = (output0, first[2]) if self.is_line else (output0, *first[1:])
            for at, stride in zip(where, strides[1:], strict=True):
                offset = index_add(offset, _mul(at, stride))
            c_strides = (strides[1], Const(0, INDEX), _ONE) if self.is_line else strides[1:]
            self.convolve(laid, output0, counts[0], self._view("c", memory.root, counts, c_strides, offset))
            return
        tile = self.arena("sums", self._tile_room())
        area = self.let("area", _mul(counts[1], counts[2]))
        sums = self._view("tile", tile, counts, (area, counts[2], _ONE), Const(0, INDEX))
        self.convolve(laid, output0, counts[0], sums, raw=partial is None)
        o, y, x = (state.fresh(k) for k in ("o", "y", "x"))
        total, output = state.fresh("total"), index_add(output0, Var(o))
        at_row, at_column = index_add(first[1], Var(y)), index_add(first[2], Var(x))
        load = Load(sums, (Var(o), Var(y), Var(x)))
        if partial is not None:
            line: tuple[Stmt, ...] = (
                Local(total, Const(0.0, of.dtype)),
                For(x, counts[2], Block((Reduce(total, "add", load),)), "vector"),
                Store(partial, (number, output, at_row, part), Var(total, of.dtype)),
            )
        else:
            index = (number, output, at_column) if self.is_line else (number, output, at_row, at_column)
            body = (Let(total, load), *of.element(bias, Var(total, of.dtype), output, index))
            line = (For(x, counts[2], Block(body), "vector"),)
        state.emit(For(o, counts[0], Block((For(y, counts[1], Block(line)),))))

    def _tile_room(self) -> Expr:
        outputs = TILE_OUTPUTS if not isinstance(self.of.outer, int) else min(TILE_OUTPUTS, -(-self.of.outer // 8) * 8)
        return Const(outputs * (POSITIONS + ROUND), INDEX)

    # -- sums over all positions ------------------------------------------------------------------------------

    def _partial(self, parts: Expr) -> Buffer:
        """Sums of parts of rows: (images, outputs, rows, parts). They are the same however the work is cut."""
        domain = self.of.domain[:3]
        most = _max(_ceil_div(self.bounded(self.across.count), self._most_columns(bounded=True)), _ONE)
        room = _mul(_mul(_mul(self.bounded(domain[0]), self.bounded(domain[1])), self.bounded(domain[2])), most)
        root = self.arena("partial", room)
        images, outputs, rows = map(dim_expression, domain)
        strides = (_mul(_mul(outputs, rows), parts), _mul(rows, parts), parts, _ONE)
        return self._view("partial", root, (images, outputs, rows, parts), strides, Const(0, INDEX))

    def _sum_up(self, partial: Buffer) -> None:
        """The sums of all rows, into their places."""
        state, of, node = self.state, self.of, self.summed
        assert node is not None
        images, outputs, rows, parts = partial.shape
        assert partial.strides is not None
        flat = self._view(
            "rows", Buffer(partial.root or "", of.dtype, (), None, "arena"), (images, outputs, _mul(rows, parts)),
            (*partial.strides[:2], _ONE), Const(0, INDEX),
        )  # fmt: skip
        n, o, r, total = (state.fresh(k) for k in ("n", "o", "r", "total"))
        stores = []
        for memory in state.destinations(node.outputs[0]):
            view = replace(memory, shape=of.domain[:2], strides=memory.strides[:2])
            buffer = state.nests.declare(Access(view, view.strides), view.shape, "result")
            stores.append(Store(buffer, (Var(n), Var(o)), Var(total, of.dtype)))
        fold = For(r, flat.shape[2], Block((Reduce(total, "add", Load(flat, (Var(n), Var(o), Var(r)))),)), "vector")
        each = For(o, outputs, Block((Local(total, Const(0.0, of.dtype)), fold, *stores)))
        state.emit(For(n, images, Block((each,)), "parallel"))

    def _view(
        self, hint: str, root: Buffer, shape: tuple[Expr, ...], strides: tuple[Expr, ...], offset: Expr
    ) -> Buffer:
        name = root.root or root.name
        buffer = Buffer(self.state.fresh(f"{hint}_view"), root.dtype, shape, strides, "arena", name, offset)
        self.state.emit(Allocate(buffer))
        return buffer


_ONE: Final = Const(1, INDEX)


def _at_most(size: DimLike, most: int) -> bool:
    return isinstance(size, int) and size <= most


def _seen(window: Window, positions: Expr) -> Expr:
    """Elements of an axis that so many windows see."""
    return index_add(_mul(positions, Const(window.stride, INDEX)), Const(window.extent - window.stride, INDEX))


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
