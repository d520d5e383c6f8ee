"""Attention as one nest that never holds the scores: tiles of rows and keys, and a running maximum and sum.

In: an `Attention` whose outside operands have memory. Out: statements. For every row block of every batch entry

    turned = q[block].T                                            # (size, rows): lanes are rows
    for tile of keys:
        scores = k[tile] @ turned                                  # (keys, rows), in the first-level cache
        z = chain(scores); new = max(peak, max over keys of z)
        p = exp(z - new); keep = exp(peak - new)
        total = total * keep + sum over keys of p
        mixed = mixed * keep + v[tile].T @ p                       # (size of v, rows)
    out[block] = (mixed / total).T

with the running maximum and sum of Milakov and Gimelshein ("Online normalizer calculation for softmax",
arXiv:1805.02867, algorithm 3) over the tiles of Dao et al. ("FlashAttention", arXiv:2205.14135, algorithm 1). Lanes are
rows, so that maxima and sums need no work across lanes, both products have the right layout without packing k or v, and
a mask is evaluated where it is used. Few rows (`FEW`) are done one at a time with keys as lanes: both products are
then matrix times vector, and k and v are read once.

Rounding: the products and sums are reordered, and the division follows the second product. Powers are scaled by a power
of two, at most 1 / keys, so that the unnormalised sums stay below the largest |v| as NumPy's do. With unit roundoff u
and K keys an element is off by at most (2 K + 4 + errors of the two products) u times the weighted mean of |v|.

Special rows: one whose scores are all -inf has total 0 and gives 0 / 0, NaN with the invalid flag, as NumPy's -inf
minus -inf does; while a row has seen nothing but -inf, 0 is subtracted in its place. A NaN or +inf in a row makes the
whole row NaN. No keys: the region is left (NumPy raises).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tiercel.compiler.attention import FILLS, Attention, rows_of
from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered, cast, is_elementwise
from tiercel.compiler.graph import Node, Value
from tiercel.compiler.memory import Memory, view_buffer
from tiercel.compiler.movement import REORDERING, permutation
from tiercel.dtypes import DType
from tiercel.loops.form import (
    INDEX,
    Allocate,
    Assign,
    Binary,
    Block,
    Buffer,
    Cast,
    Compare,
    Const,
    Expr,
    Fma,
    For,
    If,
    Let,
    Load,
    Local,
    Multiply,
    Reduce,
    Select,
    Stmt,
    Store,
    Turn,
    Unary,
    Var,
    While,
)
from tiercel.operators.types import ArrayType, Shape
from tiercel.shapes import DimLike, Symbol, ceil_div, product

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer

ROWS: Final = 48
"""Rows of a block: three vectors of 16 float32 lanes, the width of a register tile of the products."""
KEYS: Final = 128
"""Keys of a tile: 128 x 48 float32 scores are 24 KiB, and stay in the first-level cache."""
FEW: Final = 4
"""Up to so many rows are done one at a time."""
KEYS_ALONE: Final = 1024
"""Keys of a tile for one row."""
SOFTMAX_WORK: Final = 32
"""Work of one score beside the products, in units of the target's estimate."""


def lower_attention(state: Lowerer, item: Attention) -> None:
    """The nest of an attention."""
    _Attend(state, item).run()


def _is_one(size: DimLike) -> bool:
    return isinstance(size, int) and size == 1


class _Attend:
    """The state of one lowering. Strides of operands are over the axes of the item's domain."""

    def __init__(self, state: Lowerer, item: Attention) -> None:
        self.state, self.item = state, item
        self.batch, self.rows, self.keys = item.domain[:-2], item.domain[-2], item.domain[-1]
        dtype = item.powers.type.dtype  # type: ignore[attr-defined]
        self.dtype: DType = dtype
        self.chain = {n.outputs[0]: n for n in item.chain if n.outputs[0] is not item.scores}
        self.leaves: dict[Value, tuple[Memory, Shape]] = {}

    # -- operands ---------------------------------------------------------------------------------------------

    def aligned(self, shape: Shape, strides: Shape, target: Shape) -> Shape:
        """Strides over the axes of `shape` as strides over those of `target`; they differ in axes of size 1."""
        mine = [s for d, s in zip(shape, strides, strict=True) if not _is_one(d)]
        places = [axis for axis, d in enumerate(target) if not _is_one(d)]
        found: list[DimLike] = [0] * len(target)
        for axis, stride in zip(places, mine, strict=True):
            found[axis] = stride
        return tuple(found)

    def leaf(self, value: Value, over: Shape) -> None:
        """Note an operand of the chain, which has memory and broadcasts to `over`."""
        memory = self.state.place(value)
        strides = self.state.nests.strides_over(memory, over, self.item.origin)
        rows = self.aligned(over[:-1], strides[:-1], self.item.domain[:-1])
        self.leaves[value] = (memory, (*rows, strides[-1]))

    def find_leaves(self) -> None:
        """The operands of the chain and of the masks that have memory."""
        item, state = self.item, self.state

        def visit(value: Value, over: Shape) -> None:
            if value is item.scores or value in self.chain or value in state.scalars or value in self.leaves:
                return
            if not isinstance(value.type, ArrayType) or value.type.rank == 0:
                return
            node = item.absorbed.get(value)
            if node is None:
                self.leaf(value, over)
            elif node.operator not in ("tril", "triu"):
                for operand in node.inputs:
                    visit(operand, over)

        for node in item.chain:
            over = node.outputs[0].type.shape  # type: ignore[attr-defined]
            for operand in node.inputs:
                visit(operand, over)

    def at(self, memory: Memory, strides: Shape, place: Sequence[DimLike]) -> DimLike:
        """The offset of a position of the leading axes."""
        offset = memory.offset
        for index, stride in zip(place, strides, strict=False):
            offset = offset + index * stride
        return offset

    def declared(self, hint: str, memory: Memory, offset: DimLike, shape: Shape, strides: Shape) -> Buffer:
        """A view of two axes, declared here."""
        view = view_buffer(self.state.fresh(hint), replace(memory, offset=offset), shape, strides)
        self.state.emit(Allocate(view))
        return view

    # -- elements ---------------------------------------------------------------------------------------------

    def element(self, score: Expr, views: dict[Value, Buffer], index: tuple[Expr, Expr], at: tuple[Expr, Expr],
                emit: Callable[[Stmt], None]) -> Expr:  # fmt: skip
        """The last value of the chain for one score.

        Args:
            score: what the first product gave.
            views: the tiles of the leaves.
            index: position in them.
            at: row and key, counted from the first of all.
            emit: takes the statements.
        """
        state, item = self.state, self.item
        known: dict[Value, Expr] = {item.scores: score}

        def operand(value: Value) -> Expr:
            if value in known:
                return known[value]
            if value in views:
                return bind(value, Load(views[value], index))
            node = item.absorbed.get(value) or self.chain.get(value)
            if node is None or value in state.scalars:
                return state.scalar(value)
            if node.operator in ("tril", "triu"):
                return bind(value, self.triangle(node, at))
            if node.operator in FILLS:
                return self.fill(node)
            if value in self.chain and len(node.inputs) == 1 and not is_elementwise(node):
                return operand(node.inputs[0])  # a view
            return bind(value, state.combine(node, operand))

        def bind(value: Value, expression: Expr) -> Expr:
            name = state.fresh(value.name or "z")
            emit(Let(name, expression))
            known[value] = Var(name, expression.dtype)
            return known[value]

        for node in item.chain:
            operand(node.outputs[0])
        return operand(item.weighted)

    def fill(self, node: Node) -> Expr:
        """The one value of a filled array."""
        dtype = node.outputs[0].type.dtype  # type: ignore[attr-defined]
        if node.operator == "full":
            return cast(self.state.scalar(node.inputs[0]), dtype)
        return Const(1 if node.operator == "ones" else 0, dtype)

    def triangle(self, node: Node, at: tuple[Expr, Expr]) -> Expr:
        """An element of tril or triu of a filled array."""
        dtype = node.outputs[0].type.dtype  # type: ignore[attr-defined]
        value = cast(self.fill(self.item.absorbed[node.inputs[0]]), dtype)
        edge = Binary("add", at[0], Const(node.attributes.get("k", 0), INDEX))
        inside = Compare("le" if node.operator == "tril" else "ge", at[1], edge)
        return Select(inside, value, Const(dtype.numpy.type(0).item(), dtype))

    # -- the nest ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Guards, operands, and the nest of either kind."""
        state, item = self.state, self.item
        shape = rows_of(item)
        assert shape is not None
        q, k, v = (state.place(x) for x in (item.q, item.k, item.v))
        if item.turned:
            q = q.permuted([*range(len(q.shape) - 2), len(q.shape) - 1, len(q.shape) - 2])
        else:
            k = k.permuted([*range(len(k.shape) - 2), len(k.shape) - 1, len(k.shape) - 2])
        if v.root.dtype is not self.dtype or q.root.dtype is not k.root.dtype:
            raise NotLowered("attention over operands of different dtypes", item.origin)
        state.require_equal(q.shape[-1], k.shape[-1], item.origin)
        state.require_equal(k.shape[-2], self.keys, item.origin)
        state.require_equal(v.shape[-2], self.keys, item.origin)
        if state.facts.less_equal(1, self.keys) is not True:
            state.require(Compare("gt", dim_expression(self.keys), Const(0, INDEX)), item.origin)
        lead = state.nests.strides_over(replace(q, shape=q.shape[:-1], strides=q.strides[:-1]), shape[:-1], item.origin)
        self.q, self.q_over = q, self.aligned(shape[:-1], lead, item.domain[:-1])
        lead = state.nests.strides_over(replace(k, shape=k.shape[:-2], strides=k.strides[:-2]), shape[:-2], item.origin)
        self.k, self.k_over = k, self.aligned(shape[:-1], (*lead, 0), item.domain[:-1])
        lead = state.nests.strides_over(replace(v, shape=v.shape[:-2], strides=v.strides[:-2]), self.batch, item.origin)
        self.v, self.v_over = v, (*lead, 0)
        self.find_leaves()
        self.arrange()
        self.out = state.destinations(item.output)
        self.share = self.share_of_a_key()
        conditions = self.alone()
        if conditions is None:
            self.by_blocks()
        elif not conditions:
            self.by_rows()
        else:
            condition = conditions[0]
            for other in conditions[1:]:
                condition = Binary("and", condition, other)
            with state.collecting() as alone:
                k, v = self.k, self.v
                self.k, self.v = (replace(m, strides=(*m.strides[:-1], 1)) for m in (k, v))
                self.by_rows()
                self.k, self.v = k, v
            with state.collecting() as blocks:
                self.by_blocks()
            state.emit(If(condition, Block(tuple(alone)), Block(tuple(blocks))))

    def arrange(self) -> None:
        """Put the result down in the order of axes in which it is used, so that heads that are joined need no copy."""
        state, output = self.state, self.item.output
        uses = state.uses.get(output, [])
        if output in state.wanted or len(uses) != 1 or not isinstance(node := uses[0], Node):
            return
        order = permutation(node) if node.operator in REORDERING else None
        if order is None or node.outputs[0] in state.wanted:
            return
        shape = output.type.shape  # type: ignore[attr-defined]
        memory = state.arena(output.name or "attended", self.dtype, tuple(shape[axis] for axis in order))
        state.want(output, memory.permuted([order.index(axis) for axis in range(len(order))]))

    def alone(self) -> list[Expr] | None:
        """What has to hold for rows to be done one at a time: few of them, elements of k and v side by side."""
        facts = self.state.facts
        found: list[Expr] = []
        strides = {m.strides[-1] for m in (self.k, self.v)} - {1}
        if facts.less_equal(FEW + 1, self.rows) is True or any(isinstance(s, int) for s in strides):
            return None
        if facts.less_equal(self.rows, FEW) is not True:
            found.append(Compare("le", dim_expression(self.rows), Const(FEW, INDEX)))
        found += [Compare("eq", dim_expression(s), Const(1, INDEX)) for s in strides]
        return found

    def share_of_a_key(self) -> Expr:
        """The largest power of two that is at most 1 / keys."""
        state, name = self.state, self.state.fresh("share")
        keys = Cast(dim_expression(self.keys), self.dtype)
        one, half = Const(1.0, self.dtype), Const(0.5, self.dtype)
        share = Var(name, self.dtype)
        state.emit(Local(name, one))
        more = Compare("gt", Binary("mul", share, keys), one)
        state.emit(While(Block(()), more, Block((Assign(name, Binary("mul", share, half)),))))
        return share

    def over(self, dims: Shape, body: Callable[[tuple[Symbol, ...]], None]) -> None:
        """One parallel loop over all positions of `dims`; `body` makes the statements of one."""
        state = self.state
        number = state.fresh("item")
        with state.collecting() as inside:
            place: list[Symbol] = []
            rest: Expr = Var(number)
            for dim in reversed(dims[1:]):
                # with a size of 0 there is nothing to do; the divisor only has to be no zero
                extent = dim if isinstance(dim, int) else None
                divisor = Const(extent, INDEX) if extent else Binary("max", dim_expression(dim), Const(1, INDEX))
                name = state.fresh("b")
                state.emit(Let(name, Binary("mod", rest, divisor)))
                place.insert(0, Symbol(name, "scalar"))
                name = state.fresh("rest")
                state.emit(Let(name, Binary("floordiv", rest, divisor)))
                rest = Var(name)
            name = state.fresh("b")
            state.emit(Let(name, rest))
            body((Symbol(name, "scalar"), *place))
        units = product(self.item.domain) * (self.q.shape[-1] + self.v.shape[-1] + SOFTMAX_WORK)
        work = dim_expression(units)
        state.emit(For(number, dim_expression(product(dims)), Block(tuple(inside)), "parallel", work=work))

    def tiles(self, size: int, body: Callable[[Symbol, Symbol], None]) -> None:
        """A loop over tiles of keys; `body` gets the first key and their number."""
        state = self.state
        tile, first, count = (state.fresh(n) for n in ("tile", "key0", "keys"))
        with state.collecting() as inside:
            state.emit(Let(first, Binary("mul", Var(tile), Const(size, INDEX))))
            left = Binary("sub", dim_expression(self.keys), Var(first))
            state.emit(Let(count, Binary("min", Const(size, INDEX), left)))
            body(Symbol(first, "scalar"), Symbol(count, "scalar"))
        state.emit(For(tile, dim_expression(ceil_div(self.keys, size)), Block(tuple(inside))))

    def scratch(self, hint: str, shape: Shape, dtype: DType | None = None) -> Buffer:
        """A buffer in the arena."""
        return self.state.arena(hint, dtype or self.dtype, shape).root

    def loop(self, hint: str, extent: DimLike, axis: str, body: Callable[[Expr, Callable[[Stmt], None]], None]) -> None:
        """A loop whose statements `body` makes."""
        name = self.state.fresh(hint)
        stmts: list[Stmt] = []
        body(Var(name), stmts.append)
        self.state.emit(For(name, dim_expression(extent), Block(tuple(stmts)), axis))

    def lanes(self, hint: str, extent: DimLike, body: Callable[[Expr, Callable[[Stmt], None]], None]) -> None:
        """A vector axis over the rows of a block, which are few: one vector at a time."""
        name = self.state.fresh(hint)
        stmts: list[Stmt] = []
        body(Var(name), stmts.append)
        self.state.emit(For(name, dim_expression(extent), Block(tuple(stmts)), "vector", vectors=1))

    def subtracted(self, peak: Expr) -> Expr:
        """What is subtracted for a maximum: 0 for -inf, so that nothing comes of it."""
        lowest = Const(float("-inf"), self.dtype)
        return Select(Compare("eq", peak, lowest), Const(0.0, self.dtype), peak)

    def by_blocks(self) -> None:
        """Blocks of rows, which are the lanes."""
        blocks = ceil_div(self.rows, ROWS)
        self.over((*self.batch, blocks), self.block)

    def block(self, place: tuple[Symbol, ...]) -> None:
        """One block of rows."""
        state, item, dtype = self.state, self.item, self.dtype
        zero = Const(0.0, dtype)
        row0, many = state.fresh("row0"), state.fresh("rows")
        state.emit(Let(row0, Binary("mul", dim_expression(place[-1]), Const(ROWS, INDEX))))
        left = Binary("sub", dim_expression(self.rows), Var(row0))
        state.emit(Let(many, Binary("min", Const(ROWS, INDEX), left)))
        first, rows = Symbol(row0, "scalar"), Symbol(many, "scalar")
        spot = (*place[:-1], first)
        size, out_size = self.q.shape[-1], self.v.shape[-1]
        score_dtype = self.q.root.dtype
        turned = self.scratch("turned", (size, ROWS), score_dtype)
        scores = self.scratch("scores", (KEYS, ROWS), score_dtype)
        powers = scores if score_dtype is dtype else self.scratch("powers", (KEYS, ROWS))
        mixed = self.scratch("mixed", (out_size, ROWS))
        peak, total, keep = (self.scratch(n, (ROWS,)) for n in ("peak", "total", "keep"))
        q = self.declared(
            "q_rows", self.q, self.at(self.q, self.q_over, spot), (rows, size), (self.q_over[-1], self.q.strides[-1])
        )

        if self.q.strides[-1] == 1:
            state.emit(Turn(q, turned, dim_expression(rows), dim_expression(size)))
        else:

            def turn(d: Expr, emit: Callable[[Stmt], None]) -> None:
                r = state.fresh("r")
                emit(For(r, Var(many), Block((Store(turned, (d, Var(r)), Load(q, (Var(r), d))),)), "vector"))

            self.loop("d", size, "serial", turn)

        def start(r: Expr, emit: Callable[[Stmt], None]) -> None:
            emit(Store(peak, (r,), Const(float("-inf"), dtype)))
            emit(Store(total, (r,), zero))

        self.lanes("r", rows, start)

        def tile(key0: Symbol, keys: Symbol) -> None:
            k = self.declared(
                "k_tile", self.k, self.at(self.k, self.k_over, spot) + key0 * self.k.strides[-2], (keys, size),
                (self.k.strides[-2], self.k.strides[-1]),
            )  # fmt: skip
            v = self.declared(
                "v_tile", self.v, self.at(self.v, self.v_over, spot) + key0 * self.v.strides[-2], (out_size, keys),
                (self.v.strides[-1], self.v.strides[-2]),
            )  # fmt: skip
            views = {
                value: self.declared(
                    f"{value.name or 'x'}_tile", memory, self.at(memory, strides, (*spot, key0)), (rows, keys),
                    strides[-2:],
                )
                for value, (memory, strides) in self.leaves.items()
            }  # fmt: skip
            m, n = dim_expression(keys), dim_expression(rows)
            state.emit(Multiply(k, turned, scores, m, n, dim_expression(size)))

            def passes(r: Expr, emit: Callable[[Stmt], None]) -> None:
                new = state.fresh("new")
                factor: Expr | None = None
                if item.has_maximum:
                    emit(Local(new, Load(peak, (r,))))
                t = state.fresh("t")
                stmts: list[Stmt] = []
                at = (Binary("add", Var(row0), r), Binary("add", dim_expression(key0), Var(t)))
                z = self.element(Load(scores, (Var(t), r)), views, (r, Var(t)), at, stmts.append)
                if self.chain:
                    stmts.append(Store(powers, (Var(t), r), z))
                if item.has_maximum:
                    stmts.append(Reduce(new, "max", z))
                if stmts:
                    emit(For(t, dim_expression(keys), Block(tuple(stmts))))
                shift: Expr = zero
                if item.has_maximum:
                    name = state.fresh("shift")
                    emit(Let(name, self.subtracted(Var(new, dtype))))
                    shift = Var(name, dtype)
                    factor = Unary("exp", Binary("sub", Load(peak, (r,)), shift))
                    name = state.fresh("factor")
                    emit(Let(name, factor))
                    factor = Var(name, dtype)
                    emit(Store(keep, (r,), factor))
                    emit(Store(peak, (r,), Var(new, dtype)))
                part, t, p = state.fresh("part"), state.fresh("t"), state.fresh("p")
                emit(Local(part, zero))
                power = Unary("exp", Binary("sub", Load(powers, (Var(t), r)), shift))
                inner = (
                    Let(p, Binary("mul", power, self.share)),
                    Store(powers, (Var(t), r), Var(p, dtype)),
                    Reduce(part, "add", Var(p, dtype)),
                )
                emit(For(t, dim_expression(keys), Block(inner)))
                before: Expr = Load(total, (r,))
                if factor is not None:
                    before = Binary("mul", before, factor)
                emit(Store(total, (r,), Binary("add", before, Var(part, dtype))))

            self.lanes("r", rows, passes)
            with state.collecting() as more:
                if item.has_maximum:
                    self.scaled(mixed, rows, lambda old, r: Binary("mul", old, Load(keep, (r,))))
                state.emit(Multiply(v, powers, mixed, dim_expression(out_size), n, m, accumulate=True))
            only = Block((Multiply(v, powers, mixed, dim_expression(out_size), n, m),))
            state.emit(If(Compare("gt", dim_expression(key0), Const(0, INDEX)), Block(tuple(more)), only))

        self.tiles(KEYS, tile)
        self.scaled(mixed, rows, lambda old, r: Binary("div", old, Load(total, (r,))))
        for memory in self.out:
            out = self.declared(
                "out_rows", memory, self.at(memory, memory.strides, spot), (rows, out_size), memory.strides[-2:]
            )
            if memory.strides[-1] == 1:
                state.emit(Turn(mixed, out, dim_expression(out_size), dim_expression(rows)))
                continue

            def put(r: Expr, emit: Callable[[Stmt], None], out: Buffer = out) -> None:
                n = state.fresh("n")
                store = Store(out, (r, Var(n)), Load(mixed, (Var(n), r)))
                emit(For(n, dim_expression(out_size), Block((store,)), "vector"))

            self.loop("r", rows, "serial", put)

    def scaled(self, mixed: Buffer, rows: DimLike, new: Callable[[Expr, Expr], Expr]) -> None:
        """Every sum of `mixed`, (size of v, rows), replaced by what `new` makes of it and its row."""
        state = self.state

        def lane(r: Expr, emit: Callable[[Stmt], None]) -> None:
            n = state.fresh("n")
            at = (Var(n), r)
            store = Store(mixed, at, new(Load(mixed, at), r))
            emit(For(n, dim_expression(self.v.shape[-1]), Block((store,))))

        self.lanes("r", rows, lane)

    def by_rows(self) -> None:
        """One row at a time, keys as lanes."""
        self.over((*self.batch, self.rows), self.row)

    def row(self, place: tuple[Symbol, ...]) -> None:
        """One row."""
        state, item, dtype = self.state, self.item, self.dtype
        zero, one = Const(0.0, dtype), Const(1, INDEX)
        size, out_size = self.q.shape[-1], self.v.shape[-1]
        score_dtype = self.q.root.dtype
        scores = self.scratch("scores", (KEYS_ALONE, 1), score_dtype)
        powers = scores if score_dtype is dtype else self.scratch("powers", (KEYS_ALONE, 1))
        mixed = self.scratch("mixed", (1, out_size))
        q = self.declared("q_row", self.q, self.at(self.q, self.q_over, place), (size, 1), (self.q.strides[-1], 1))
        peak, total = state.fresh("peak"), state.fresh("total")
        state.emit(Local(peak, Const(float("-inf"), dtype)))
        state.emit(Local(total, zero))
        first = Const(0, INDEX)
        self.loop("n", out_size, "vector", lambda n, emit: emit(Store(mixed, (first, n), zero)))

        def tile(key0: Symbol, keys: Symbol) -> None:
            k = self.declared(
                "k_tile", self.k, self.at(self.k, self.k_over, place) + key0 * self.k.strides[-2], (keys, size),
                (self.k.strides[-2], self.k.strides[-1]),
            )  # fmt: skip
            v = self.declared(
                "v_tile", self.v, self.at(self.v, self.v_over, place) + key0 * self.v.strides[-2], (keys, out_size),
                (self.v.strides[-2], self.v.strides[-1]),
            )  # fmt: skip
            views = {
                value: self.declared(
                    f"{value.name or 'x'}_tile", memory, self.at(memory, strides, (*place, key0)), (1, keys),
                    (0, strides[-1]),
                )
                for value, (memory, strides) in self.leaves.items()
            }  # fmt: skip
            m = dim_expression(keys)
            state.emit(Multiply(k, q, scores, m, one, dim_expression(size)))
            new, factor = state.fresh("new"), state.fresh("factor")
            shift: Expr = zero
            if item.has_maximum:
                state.emit(Local(new, Var(peak, dtype)))

            def weigh(t: Expr, emit: Callable[[Stmt], None]) -> None:
                at = (dim_expression(place[-1]), Binary("add", dim_expression(key0), t))
                z = self.element(Load(scores, (t, first)), views, (first, t), at, emit)
                if self.chain:
                    emit(Store(powers, (t, first), z))
                if item.has_maximum:
                    emit(Reduce(new, "max", z))

            if self.chain or item.has_maximum:
                self.loop("t", keys, "vector", weigh)
            if item.has_maximum:
                name = state.fresh("shift")
                state.emit(Let(name, self.subtracted(Var(new, dtype))))
                shift = Var(name, dtype)
                state.emit(Let(factor, Unary("exp", Binary("sub", Var(peak, dtype), shift))))
                state.emit(Assign(peak, Var(new, dtype)))
            part = state.fresh("part")
            state.emit(Local(part, zero))

            def power(t: Expr, emit: Callable[[Stmt], None]) -> None:
                p = state.fresh("p")
                raised = Unary("exp", Binary("sub", Load(powers, (t, first)), shift))
                emit(Let(p, Binary("mul", raised, self.share)))
                emit(Store(powers, (t, first), Var(p, dtype)))
                emit(Reduce(part, "add", Var(p, dtype)))

            self.loop("t", keys, "vector", power)
            kept = Var(factor, dtype) if item.has_maximum else None
            before: Expr = Var(total, dtype)
            if kept is not None:
                before = Binary("mul", before, kept)
            state.emit(Assign(total, Binary("add", before, Var(part, dtype))))

            def mix(n: Expr, emit: Callable[[Stmt], None]) -> None:
                # sums of a few vectors of columns stay in registers while all rows of v pass
                old: Expr = Load(mixed, (first, n))
                name, t = state.fresh("sum"), state.fresh("t")
                emit(Local(name, old if kept is None else Binary("mul", old, kept)))
                more = Fma(Load(powers, (Var(t), first)), Load(v, (Var(t), n)), Var(name, dtype))
                emit(For(t, m, Block((Assign(name, more),))))
                emit(Store(mixed, (first, n), Var(name, dtype)))

            name = state.fresh("n")
            stmts: list[Stmt] = []
            mix(Var(name), stmts.append)
            state.emit(For(name, dim_expression(out_size), Block(tuple(stmts)), "vector", vectors=4))

        self.tiles(KEYS_ALONE, tile)
        outs = [
            self.declared(
                "out_row", memory, self.at(memory, memory.strides, place), (1, out_size), (0, memory.strides[-1])
            )
            for memory in self.out
        ]

        def finish(n: Expr, emit: Callable[[Stmt], None]) -> None:
            name = state.fresh("o")
            emit(Let(name, Binary("div", Load(mixed, (first, n)), Var(total, dtype))))
            for out in outs:
                emit(Store(out, (first, n), Var(name, dtype)))

        self.loop("n", out_size, "vector", finish)
