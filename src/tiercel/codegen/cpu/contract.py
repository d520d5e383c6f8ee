"""Expand `Contract` into blocks of a library product followed by the epilogue as ordinary vector loops.

    contract a @ b (m, n, k) -> s for i, j: epilogue

becomes

    for block in range(row blocks * column blocks):  # parallel
        tile = a[rows of block] @ b[columns of block]
        for i in rows: for j in columns: s = tile[i, j]; epilogue  # vector

A tile of at most 96 KiB stays in the second-level cache, so reading it back costs little beside k >= 32
multiplications an element, and the epilogue exists once instead of once per register tile (machine code and compile
time). When the epilogue only stores the sum, the product is written straight to its place.

Blocks are whole panels of columns, as many of them as give every thread some blocks of about the same width; where the
columns are too few for that, the rows are split too. How many, which axis first, how large a block may be and how wide
panels are is a `Choice`; it may depend on the number of rows, which is then looked up in a chain of selections before
the blocks. How a matrix is cut changes no sum.

Up to `DOTTED_ROWS` rows times columns that are contiguous and not packed are dot products instead of tiles. They are
summed in another order; whether they are so many is asked of all rows, so this does not depend on the cut either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tiercel.codegen.cpu.choice import BLOCKS, BY_WORK, Choice, Point, plain
from tiercel.codegen.cpu.estimate import PARALLEL_WORK, work_of
from tiercel.codegen.cpu.gemm import IN_PLACE
from tiercel.codegen.cpu.names import GEMM_DTYPES, mixed_of
from tiercel.codegen.cpu.panels import lanes_of
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.tile import panel_columns, tile_shape, widths
from tiercel.dtypes import DType
from tiercel.loops.form import (
    INDEX,
    THREAD_COUNT,
    Allocate,
    Ask,
    Binary,
    Block,
    Buffer,
    Compare,
    Const,
    Contract,
    Expr,
    For,
    Function,
    If,
    IllFormed,
    Let,
    Load,
    Multiply,
    Pack,
    Select,
    Stmt,
    Store,
    Var,
    While,
    expressions,
    walk,
)
from tiercel.loops.index import index_add, index_mul, strides_of
from tiercel.loops.products import contracts_of
from tiercel.loops.substitute import substitute

VECTOR_ROWS = 4096
"""Most rows of a tile of one column."""
PANEL_VECTORS = 4
"""Vectors of each panel in a block: what follows is then computed for four of them breadth-first."""
PANEL_ROWS = 24
"""Most rows of a block with panels: its sums take 24 KiB for four panels."""
LINE = 64
"""Bytes of a line of the cache."""
PANEL_BLOCKS = 2
"""Blocks of columns for each thread, where there are so many."""
BLOCKS_PER_THREAD = (4, 8, 16)
"""Least; most with an epilogue, whose loops want rows of some length; most. What comes late, or is disturbed, leaves
the last blocks to the others; many blocks share out what does not divide evenly."""
BLOCK_WORK = 250_000
"""Multiply-adds that are worth a block of their own: about 2 us."""
MANY_TILES = 4
"""Of rows: from so many on blocks of fewer rows cost little."""
DOTTED_ROWS = 4
"""Up to so many rows of a, columns of b that are contiguous are multiplied where they lie, each with each row: packing
them takes longer than reading them so often."""
FEW_ROWS = 6
"""With fewer rows than this a product takes as long as with so many: b has to be read."""


def _whole(value: int) -> Const:
    return Const(value, INDEX)


def _ceil_div(a: Expr, b: Expr) -> Expr:
    """Rounded up; b is positive."""
    if isinstance(b, Const):
        divisor = int(b.value.real)
        if isinstance(a, Const):
            return _whole(-(-int(a.value.real) // divisor))
        return Binary("floordiv", index_add(a, _whole(divisor - 1)), b)
    return Binary("floordiv", Binary("sub", index_add(a, b), _whole(1)), b)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A choice as expressions: numbers for what is the same whatever the rows."""

    even: Expr
    rows_first: Expr
    per_thread: Expr
    how: Expr
    most_rows: Expr
    most_panels: Expr


@dataclass(frozen=True, slots=True)
class _Cut:
    """How a product is cut into blocks: statements that say it, and the names they bind."""

    lets: tuple[Stmt, ...]
    work: Expr
    panels: Expr
    across: Expr
    rows: Expr


def panel_widths(function: Function, target: Target, choices: Mapping[int, Choice]) -> dict[str, int]:
    """How the buffers that packed operands lie in are to be packed: vectors of a panel, 0 for what the runtime library
    has.

    Raises:
        IllFormed: two products that read one buffer disagree.
    """
    found: dict[str, int] = {}
    for number, stmt in enumerate(contracts_of(function.body)):
        if stmt.packed and not stmt.panels:
            choice = choices.get(number)
            usual = choice is None or choice.vectors == widths(target)[0] or mixed_of(stmt.b.dtype) is not None
            vectors = 0 if choice is None or usual else choice.vectors
            if found.setdefault(stmt.b.root or stmt.b.name, vectors) != vectors:
                raise IllFormed(f"products that read {stmt.b.name} packed in two ways")
    return found


OPEN: Final = ("even", "rows_first", "per_thread", "how", "most_rows", "most_panels")
"""Sizes of a function by which `expand_open` is told how to carry its products out."""


def expand_open(function: Function, target: Target, vectors: int) -> Function:
    """The function without `Contract` statements, all of whose products are done as its sizes `OPEN` say: one kernel
    for measuring all points that have panels of so many vectors.
    """
    expander = _Expander(target, frozenset(size.name for size in function.sizes), {})
    expander.open = vectors
    return replace(function, body=expander.block(function.body))


def open_sizes(point: Point, dtype: DType, target: Target) -> dict[str, int]:
    """The values of `OPEN` for a point."""
    rows, bytes_ = BLOCKS[point.block]
    panel = panel_columns(dtype, target, point.vectors)
    values = (
        int(point.rows == "even"), int(point.axis == "rows"), point.per_thread, point.how, rows,
        max(1, bytes_ // (panel * dtype.itemsize)),
    )  # fmt: skip
    return dict(zip(OPEN, values, strict=True))


def expand_contracts(function: Function, target: Target, choices: Mapping[int, Choice] | None = None) -> Function:
    """The function without `Contract` statements (the same object if it has none).

    Args:
        function, target: what, and for what.
        choices: by the number of the product in `contracts_of`; what is usual for all others, with panels of the
            dtype's own piece of the library.
    """
    expander = _Expander(target, frozenset(size.name for size in function.sizes), choices or {})
    expander.widths = panel_widths(function, target, expander.choices)
    body = expander.block(function.body)
    return function if body is function.body else replace(function, body=body)


class _Expander:
    def __init__(self, target: Target, sizes: frozenset[str], choices: Mapping[int, Choice]) -> None:
        self.target = target
        self.sizes = sizes  # variables that are known at entry, when the arena is made
        self.choices = choices
        self.widths: dict[str, int] = {}  # of packed operands
        self.open = 0  # vectors of all panels, where sizes say the rest
        self.count = 0

    def block(self, block: Block) -> Block:
        """The same block object when nothing inside changes."""
        body = [self.statement(stmt) for stmt in block.body]
        if all(new is old for new, old in zip(body, block.body, strict=True)):
            return block
        return Block(tuple(body))

    def statement(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Contract():
                return self.contract(stmt)
            case Pack():
                vectors = self.widths.get(stmt.panels.name, 0)
                return replace(stmt, vectors=vectors) if vectors else stmt
            case Block():
                return self.block(stmt)
            case For():
                body = self.block(stmt.body)
                return stmt if body is stmt.body else replace(stmt, body=body)
            case While():
                header, body = self.block(stmt.header), self.block(stmt.body)
                if header is stmt.header and body is stmt.body:
                    return stmt
                return replace(stmt, header=header, body=body)
            case If():
                then, orelse = self.block(stmt.then), self.block(stmt.orelse)
                return stmt if then is stmt.then and orelse is stmt.orelse else replace(stmt, then=then, orelse=orelse)
        return stmt

    def contract(self, stmt: Contract) -> Stmt:
        if stmt.b.dtype.name not in GEMM_DTYPES and mixed_of(stmt.b.dtype) is None:
            raise IllFormed(f"contract of {stmt.a.dtype.name} has no code on this target")
        choice = self.choices.get(self.count) or Choice.always(plain(self.target, packed=stmt.packed))
        self.count += 1
        name = f"contract{self.count}"
        if stmt.panels:
            return self.panels(stmt, name)
        b, packed = stmt.b, stmt.packed
        one = _whole(1)
        single = stmt.n == one  # a matrix times a vector
        vectors = self._variant(self.open or choice.vectors) if mixed_of(b.dtype) is None else 0
        panel = panel_columns(stmt.a.dtype, self.target, vectors)
        direct = self._direct_target(stmt)
        number = Var(f"{name}.block")
        lets, chosen = self._chosen(stmt, name, choice, panel)
        most_blocks = BLOCKS_PER_THREAD[2 if direct is not None else 1]
        cut = self._cut(stmt, name, panel, tile_shape(self.target, vectors)[0], most_blocks, chosen)
        row0, first, column0 = Var(f"{name}.row0"), Var(f"{name}.first"), Var(f"{name}.column0")
        m, n = Var(f"{name}.m"), Var(f"{name}.n")
        a_strides = strides_of(stmt.a)
        a = Buffer(
            f"{name}.a", stmt.a.dtype, (m, stmt.k), a_strides, stmt.a.space, stmt.a.root or stmt.a.name,
            self._offset(stmt.a, index_mul(row0, a_strides[0])),
        )  # fmt: skip
        if packed:
            # panel p of b begins at element p * panel * k, so column c begins at c * k for whole panels
            b_offset = index_mul(column0, stmt.k)
            b_strides: tuple[Expr, ...] = (_whole(panel), one)
        else:
            b_strides = strides_of(b)
            b_offset = index_mul(column0, b_strides[1])
        b_view = Buffer(
            f"{name}.b", b.dtype, (stmt.k, n), b_strides, b.space, b.root or b.name, self._offset(b, b_offset)
        )
        inside: list[Stmt] = [
            Let(row0.name, index_mul(Binary("floordiv", number, cut.across), cut.rows)),
            Let(first.name, Binary("mod", number, cut.across)),
            Let(column0.name, self._boundary(cut, first, panel)),
            Let(m.name, Binary("min", cut.rows, Binary("sub", stmt.m, row0))),
            Let(
                n.name, Binary("sub", Binary("min", self._boundary(cut, index_add(first, one), panel), stmt.n), column0)
            ),
            Allocate(replace(a, space="arena")),
            Allocate(replace(b_view, space="arena")),
        ]
        a, b_view = replace(a, space="arena"), replace(b_view, space="arena")

        def multiply(c: Buffer) -> Multiply:
            largest = tile_shape(self.target, vectors)[0]
            return Multiply(
                a, b_view, c, m, one if single else n, stmt.k, packed, before=None if packed else column0,
                rows=None if single else self._tile_rows(m, largest, chosen.even),
                how=None if single or packed or chosen.how == _whole(IN_PLACE) else chosen.how, vectors=vectors,
            )  # fmt: skip

        def product(c: Buffer) -> Stmt:
            usual = multiply(c)
            columns_lie_together = not packed and not single and b_strides[0] == one != b_strides[1]
            if not columns_lie_together or mixed_of(b.dtype) is not None or self.open:
                return usual
            if isinstance(stmt.m, Const) and stmt.m.value.real > DOTTED_ROWS:
                return usual
            # of all rows, not of those in the block: how a product is cut must not show
            few = Compare("le", stmt.m, _whole(DOTTED_ROWS))
            return If(few, self._dots(name, a, b_view, c), Block((usual,)))

        if direct is not None:
            c_strides = strides_of(direct)
            at = index_add(index_mul(row0, c_strides[0]), column0)
            c = Buffer(
                f"{name}.c", direct.dtype, (m, n), c_strides, "arena", direct.root or direct.name,
                self._offset(direct, at),
            )  # fmt: skip
            inside += [
                Allocate(c),
                product(c),
            ]
        else:
            width = one if single else index_mul(chosen.most_panels, _whole(panel))
            most = Binary("min", chosen.most_rows, stmt.m) if self._known_at_entry(stmt.m) else chosen.most_rows
            c = Buffer(f"{name}.tile", stmt.a.dtype, (most, width), (width, one), "arena")
            r, j = Var(f"{name}.r"), Var(f"{name}.j")
            # in the place of the names, so that loads and stores are seen to be contiguous
            where = {stmt.row: index_add(row0, r), stmt.column: _whole(0) if single else index_add(column0, j)}
            body = Block((
                Let(stmt.accumulator, Load(c, (r, _whole(0) if single else j))),
                *substitute(self.block(stmt.epilogue), where).body,
            ))  # fmt: skip
            inside += [
                Allocate(c),
                product(c),
                For(r.name, m, body, "vector") if single else For(r.name, m, Block((For(j.name, n, body, "vector"),))),
            ]
        total = index_mul(_ceil_div(stmt.m, cut.rows), cut.across)
        loop = For(number.name, total, Block(tuple(inside)), "parallel", cut.work)
        return Block((*lets, *cut.lets, loop))

    def _dots(self, name: str, a: Buffer, b: Buffer, c: Buffer) -> Block:
        """c = a @ b, row by row of a, as products of all columns of b, which are contiguous, with it."""
        one, row = _whole(1), Var(f"{name}.one")
        (m, k), n = a.shape, b.shape[1]
        columns = replace(b, name=f"{name}.columns", shape=(n, k), strides=(strides_of(b)[1], one))
        a_strides, c_strides = strides_of(a), strides_of(c)
        x = replace(
            a, name=f"{name}.x", shape=(k, one), strides=(a_strides[1], one),
            offset=self._offset(a, index_mul(row, a_strides[0])),
        )  # fmt: skip
        y = Buffer(
            f"{name}.y", c.dtype, (n, one), (one, one), "arena", c.root or c.name,
            self._offset(c, index_mul(row, c_strides[0])),
        )  # fmt: skip
        inside = (Allocate(x), Allocate(y), Multiply(columns, x, y, n, one, k))
        return Block((Allocate(columns), For(row.name, m, Block(inside))))

    def _variant(self, vectors: int) -> int:
        """The width of panels as `Multiply` has it: 0 for the runtime library's own."""
        return 0 if vectors == widths(self.target)[0] else vectors

    def _chosen(self, stmt: Contract, name: str, choice: Choice, panel: int) -> tuple[tuple[Stmt, ...], _Chosen]:
        """What a choice says for this number of rows, as expressions, and the statements that find it out."""
        if self.open:
            return (), _Chosen(*map(Var, OPEN))
        lets: list[Stmt] = []
        single = stmt.n == _whole(1)
        rows, bytes_ = (VECTOR_ROWS, 0) if single else BLOCKS[choice.block]

        def by_rows(hint: str, values: list[int]) -> Expr:
            if len(set(values)) == 1:
                return _whole(values[0])
            found: Expr = _whole(values[-1])
            for part, value in reversed(list(zip(choice.parts[:-1], values[:-1], strict=True))):
                assert part.upto is not None
                found = Select(Compare("le", stmt.m, _whole(part.upto)), _whole(value), found)
            lets.append(Let(f"{name}.{hint}", found))
            return Var(f"{name}.{hint}")

        chosen = _Chosen(
            by_rows("even", [int(p.rows == "even") for p in choice.parts]),
            by_rows("rows_first", [int(p.axis == "rows") for p in choice.parts]),
            by_rows("per_thread", [BY_WORK if single else p.per_thread for p in choice.parts]),
            by_rows("how", [p.how for p in choice.parts]),
            _whole(rows),
            _whole(max(1, bytes_ // (panel * stmt.a.dtype.itemsize))),
        )
        return tuple(lets), chosen

    @staticmethod
    def _tile_rows(m: Expr, largest: int, even: Expr) -> Expr | None:
        """Most rows of a register tile: as many as there are, or so many that all tiles have about the same number."""
        if even == _whole(0):
            return None
        tiles = Binary("max", _ceil_div(m, _whole(largest)), _whole(1))
        rows = Binary("max", _ceil_div(m, tiles), _whole(1))
        return rows if even == _whole(1) else Select(Compare("ne", even, _whole(0)), rows, _whole(largest))

    def panels(self, stmt: Contract, name: str) -> Stmt:
        """A product with panels: a block is some rows of some columns of all panels, and what follows it.

        Blocks of the same columns are neighbours, so that a thread reads its part of b and no other.
        """
        one, lanes = _whole(1), lanes_of(stmt.a.dtype, self.target)
        width, count = PANEL_VECTORS * lanes, len(stmt.panels)
        across, rows, down, units, threads = (
            Var(f"{name}.{x}") for x in ("across", "rows", "down", "units", "threads")
        )
        block, column0, row0, m, n = (Var(f"{name}.{x}") for x in ("block", "column0", "row0", "m", "n"))
        groups = _ceil_div(stmt.n, _whole(lanes))
        lets = (
            Let(threads.name, index_mul(Binary("max", THREAD_COUNT, one), _whole(PANEL_BLOCKS))),
            Let(
                units.name,
                index_mul(
                    Binary("max", Binary("min", _whole(PANEL_VECTORS), Binary("floordiv", groups, threads)), one),
                    _whole(lanes),
                ),
            ),
            Let(across.name, _ceil_div(stmt.n, units)),
            Let(down.name, Binary("max", _ceil_div(stmt.m, _whole(PANEL_ROWS)), one)),
            Let(rows.name, Binary("max", _ceil_div(stmt.m, down), one)),
        )
        most = Binary("min", _whole(PANEL_ROWS), stmt.m) if self._known_at_entry(stmt.m) else _whole(PANEL_ROWS)
        c = Buffer(f"{name}.tile", stmt.a.dtype, (most, _whole(count * width)), (_whole(count * width), one), "arena")
        a_strides = strides_of(stmt.a)
        a = Buffer(
            f"{name}.a", stmt.a.dtype, (m, stmt.k), a_strides, stmt.a.space, stmt.a.root or stmt.a.name,
            self._offset(stmt.a, index_mul(row0, a_strides[0])),
        )  # fmt: skip
        # groups of columns lie behind one another, each with one vector of every panel
        b_offset = index_mul(index_mul(column0, _whole(count)), stmt.k)
        b = Buffer(
            f"{name}.b", stmt.b.dtype, (stmt.k, n), (_whole(count * lanes), one), stmt.b.space,
            stmt.b.root or stmt.b.name, self._offset(stmt.b, b_offset),
        )  # fmt: skip
        r, j = Var(f"{name}.r"), Var(f"{name}.j")
        where = {stmt.row: index_add(row0, r), stmt.column: index_add(column0, j)}
        body = Block((
            *(
                Let(panel.accumulator, Load(c, (r, index_add(j, _whole(number * width)))))
                for number, panel in enumerate(stmt.panels)
            ),
            *substitute(self.block(stmt.epilogue), where).body,
        ))  # fmt: skip
        firsts = tuple(panel.first for panel in stmt.panels)
        inside = (
            Let(column0.name, index_mul(Binary("floordiv", block, down), units)),
            Let(row0.name, index_mul(Binary("mod", block, down), rows)),
            Let(m.name, Binary("min", rows, Binary("sub", stmt.m, row0))),
            Let(n.name, Binary("min", units, Binary("sub", stmt.n, column0))),
            Allocate(a),
            Allocate(b),
            Allocate(c),
            *self._asks(stmt, name, row0, column0, m, width),
            Multiply(a, b, c, m, n, stmt.k, packed=True, firsts=firsts, start=column0),
            For(r.name, m, Block((For(j.name, n, body, "vector"),))),
        )
        volume = index_mul(index_mul(Binary("max", stmt.m, _whole(FEW_ROWS)), stmt.n), index_mul(stmt.k, _whole(count)))
        after = index_mul(index_mul(stmt.m, stmt.n), work_of(stmt.epilogue, set()))
        work = index_add(volume, after)
        return Block((*lets, For(block.name, index_mul(across, down), Block(inside), "parallel", work)))

    @staticmethod
    def _asks(stmt: Contract, name: str, row0: Expr, column0: Expr, m: Expr, width: int) -> list[Stmt]:
        """Ask for what a block's epilogue reads at its own rows: it comes while the product is computed."""
        row, column = Var(stmt.row), Var(stmt.column)
        read: dict[str, Buffer] = {}
        for inner in stmt.epilogue.body:
            for node in expressions(inner):
                for part in walk(node):
                    if isinstance(part, Load) and part.index == (row, column):
                        down, along = strides_of(part.buffer)
                        if along == _whole(1) and down != _whole(0):
                            read[part.buffer.name] = part.buffer
        r = Var(f"{name}.ask")
        asks = [
            Ask(buffer, (index_add(row0, r), index_add(column0, _whole(at))))
            for buffer in read.values()
            for at in range(0, width, max(1, LINE // buffer.dtype.itemsize))
        ]
        return [For(r.name, m, Block(tuple(asks)))] if asks else []

    def _known_at_entry(self, x: Expr) -> bool:
        """Is it made of sizes of the function?"""
        match x:
            case Const():
                return True
            case Var():
                return x.name in self.sizes
            case Binary():
                return self._known_at_entry(x.a) and self._known_at_entry(x.b)
        return False

    def _cut(self, stmt: Contract, name: str, panel: int, tile: int, most_blocks: int, chosen: _Chosen) -> _Cut:
        """How many blocks there are in each direction, as statements."""
        work, wanted, panels, across, down, rows = (
            Var(f"{name}.{x}") for x in ("work", "wanted", "panels", "across", "down", "rows")
        )
        one, half = _whole(1), (tile + 1) // 2
        rows_, columns_ = (
            (_whole(FEW_ROWS), stmt.m) if stmt.n == one else (Binary("max", stmt.m, _whole(FEW_ROWS)), stmt.n)
        )
        volume = index_mul(index_mul(rows_, columns_), stmt.k)
        threads = Binary("max", THREAD_COUNT, one)
        large = Compare("ge", work, _whole(PARALLEL_WORK))
        least = index_mul(threads, _whole(BLOCKS_PER_THREAD[0]))
        worth = Binary("floordiv", work, _whole(BLOCK_WORK))
        shares: Expr = Binary("max", least, Binary("min", worth, index_mul(threads, _whole(most_blocks))))
        # one or two rows take several panels at once
        shares = Select(Compare("le", stmt.m, _whole(2)), least, shares)
        count: Expr = index_mul(threads, chosen.per_thread)
        if chosen.per_thread == _whole(BY_WORK):
            count = shares
        elif not isinstance(chosen.per_thread, Const):
            count = Select(Compare("eq", chosen.per_thread, _whole(BY_WORK)), shares, count)
        fewest = _ceil_div(panels, chosen.most_panels)
        lowest = Binary("max", _ceil_div(stmt.m, chosen.most_rows), one)
        few = _ceil_div(stmt.m, down)
        # Columns first: every panel by itself where that evens blocks out (6 panels for 2 threads: not 1, 2, 1, 2).
        # A few rows are only cut where threads would have nothing to do: each block of them reads b.
        by_columns = Select(Compare("lt", panels, index_mul(_whole(2), wanted)), panels, wanted)
        tiles = Binary("max", _ceil_div(stmt.m, _whole(tile)), one)
        by_rows = _ceil_div(wanted, Binary("min", tiles, wanted))
        many = Compare("ge", stmt.m, _whole(MANY_TILES * tile))
        several = Binary("min", threads, wanted)
        if chosen.rows_first in (_whole(0), one):
            rows_first = chosen.rows_first == one
            first, enough = (by_rows, wanted) if rows_first else (by_columns, Select(many, wanted, several))
        else:
            rows_first_ = Compare("ne", chosen.rows_first, _whole(0))
            first = Select(rows_first_, by_rows, by_columns)
            enough = Select(Binary("or", rows_first_, many), wanted, several)
        lets = (
            Let(work.name, volume),
            Let(wanted.name, Select(large, count, one)),
            Let(panels.name, _ceil_div(stmt.n, _whole(panel))),
            # with no columns there is one block without any
            Let(across.name, Binary("max", Binary("min", panels, Binary("max", first, fewest)), one)),
            Let(down.name, Binary("max", _ceil_div(enough, across), lowest)),
            Let(
                rows.name,
                Select(
                    Compare("le", few, _whole(half)),
                    _whole(half),
                    # not more than a block has room for: 66 rows are 11 tiles of 6, but 64 are allowed
                    Binary("min", index_mul(_ceil_div(few, _whole(tile)), _whole(tile)), chosen.most_rows),
                ),
            ),
        )
        return _Cut(lets, work, panels, across, rows)

    @staticmethod
    def _boundary(cut: _Cut, block: Expr, panel: int) -> Expr:
        """The column at which a block of columns begins."""
        return index_mul(Binary("floordiv", index_mul(block, cut.panels), cut.across), _whole(panel))

    @staticmethod
    def _offset(buffer: Buffer, extra: Expr) -> Expr:
        return extra if buffer.offset is None else index_add(buffer.offset, extra)

    @staticmethod
    def _direct_target(stmt: Contract) -> Buffer | None:
        """The buffer the sum is stored to unchanged, as (row, column), if that is all the epilogue does."""
        if len(stmt.epilogue.body) != 1 or not isinstance(store := stmt.epilogue.body[0], Store):
            return None
        if store.value != Var(stmt.accumulator, stmt.a.dtype):
            return None
        buffer, strides, one = store.buffer, strides_of(store.buffer), _whole(1)
        match store.index:
            case (Var(name=row), Var(name=column)) if (row, column) == (stmt.row, stmt.column) and strides[1] == one:
                return buffer
            case (Var(name=row),) if row == stmt.row and stmt.n == one:
                return replace(buffer, shape=(*buffer.shape, one), strides=(*strides, one))
            case (Var(name=column),) if column == stmt.column and stmt.m == one and strides == (one,):
                return replace(buffer, shape=(one, *buffer.shape), strides=(stmt.n, one))
        return None
