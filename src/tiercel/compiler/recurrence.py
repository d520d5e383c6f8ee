"""Counted loops whose passes keep every row to itself: the passes run inside, rows outside.

    for t in 0..T:                                 for row in rows:  # parallel
        h = exp(s[:, t] * a) * h + u[:, t]   ->        keep h[row]
        y[:, t] = (h * c[:, t]).sum(-1)                for t in 0..T:
                                                           the same for this row only
                                                       h_after[row] = what is kept

In: a loop whose pass consists of elementwise steps and row reductions over one domain (`fuse`) and of views of what is
from outside. Out: one nest for the whole loop. The state of a row (or of a block of rows) is some kilobytes that stay
in the first-level cache from the first pass to the last, and threads meet once instead of once in each pass.

Why it is legal: an element of what is carried is computed from its own row only (`_Plan` accepts nothing else), so
rows never see one another. A pass cannot leave the region: what could is refused here and stays pass by pass. Each
element goes through the same operations in the same order; only sums may add up in another order.

Three forms, by what a vector holds:

* no row values: neighbouring elements of the last axis, in chunks;
* row values, and whatever changes from pass to pass is contiguous along the axis before the last, or does not move
  along it: neighbouring rows. The folded axis is a serial loop, which needs no sums across lanes;
* row values otherwise: neighbouring elements of one row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tiercel.compiler.ahead import BeforePasses
from tiercel.compiler.dims import counting, dim_expression
from tiercel.compiler.elementwise import is_elementwise
from tiercel.compiler.fuse import Group, defined_by, is_array, is_row_reduction, row_shapes, shape_of, why_not
from tiercel.compiler.graph import Carried, Loop, Node, Value
from tiercel.compiler.graph import steps as steps_of
from tiercel.compiler.memory import Memory
from tiercel.compiler.movement import REORDERING
from tiercel.compiler.nests import Access
from tiercel.compiler.pointwise import element_statements
from tiercel.compiler.rows import RowBody, row_strides
from tiercel.loops.form import (
    INDEX,
    Allocate,
    Binary,
    Block,
    Compare,
    Const,
    Expr,
    For,
    Let,
    Load,
    Stmt,
    Store,
    Var,
    blocks,
)
from tiercel.operators.types import ArrayType, NpScalarType, Shape
from tiercel.shapes import DimLike, Symbol, ceil_div, evaluate, product, symbols_of

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer

ROWS = 32
"""Neighbouring rows whose passes run together: two vectors of float32 at 512 bits, so that one waits for no other."""
ELEMENTS = 64
"""Neighbouring elements whose passes run together, where a pass folds nothing."""
LONGEST_FOLD = 256
"""Elements of a row that are added up one by one at most, as far as the sizes at hand tell."""
_VIEWS = frozenset((*REORDERING, "reshape", "squeeze", "expand_dims", "index", "broadcast_to"))


class _Refused(Exception):
    """The loop stays pass by pass; the text says why."""


def lower_recurrence(state: Lowerer, loop: Loop, index: Symbol, trip: DimLike) -> bool:
    """Lower a counted loop with its rows outside; false, and nothing is emitted, where that is not legal."""
    if loop.ahead is not None or not loop.carried or trip == 1:
        return False
    try:
        plan = _Plan(state, loop, index, trip)
    except _Refused:
        return False
    _Nest(state, plan).emit()
    return True


@dataclass(eq=False)
class _Plan:
    """What a pass consists of.

    Attributes:
        group: the arithmetic, as one group over the domain.
        before: statements for views and scalars, at the start of a pass.
        ahead: what is computed before the first pass.
    """

    state: Lowerer
    loop: Loop
    index: Symbol
    trip: DimLike
    group: Group = field(init=False)
    before: list[Stmt] = field(init=False)
    ahead: set[Value] = field(init=False)

    def __post_init__(self) -> None:
        steps = self.loop.body.steps
        nodes = [step for step in steps if isinstance(step, Node)]
        if len(nodes) != len(steps) or any(node.writes is not None or len(node.outputs) != 1 for node in nodes):
            raise _Refused("a pass with branches, loops, guards or writes")
        arithmetic = [n for n in nodes if is_row_reduction(n) or (is_elementwise(n) and is_array(n.outputs[0]))]
        inside = {node.outputs[0] for node in arithmetic} | {c.inside for c in self.loop.carried}
        others = [n for n in nodes if n not in arithmetic]
        if any(v in inside for n in others for v in n.inputs):
            raise _Refused("a pass that rearranges what it computes")
        for node in others:
            if node.operator not in _VIEWS and not (is_elementwise(node) and not is_array(node.outputs[0])):
                raise _Refused(f"{node.operator} in a pass")
        self.group = self._members(arithmetic)
        self._check_carried()
        self._check_uses(arithmetic)
        self.ahead = set() if self.loop.once is None else {v for s in steps_of(self.loop.once) for v in defined_by(s)}
        self.before = self._views_and_scalars(others)
        self._check_operands()
        self._check_order()

    def _members(self, nodes: Sequence[Node]) -> Group:
        """All arithmetic as one group."""
        shapes = [shape_of(c.inside) for c in self.loop.carried]
        shapes += [shape_of(n.inputs[0] if is_row_reduction(n) else n.outputs[0]) for n in nodes]
        domain = max(shapes, key=lambda s: (len(s), s[-1:] != (1,)))
        if not domain or not nodes or any(s.kind == "data" for d in domain for s in symbols_of(d)):
            raise _Refused("no array, or sizes that only running decides")
        group = Group(domain)
        for carried in self.loop.carried:
            if not isinstance(carried.inside.type, ArrayType) or carried.in_place:
                raise _Refused("a number is carried, or an array that is written")
            self._add(group, carried.inside)
        for node in nodes:
            output = node.outputs[0]
            if is_row_reduction(node):
                reason = why_not(node, group)
                if len(domain) < 2 or not isinstance(output.type, ArrayType):
                    reason = "a fold of everything"
            elif shape_of(output) == domain:
                reason = why_not(node, group)
            else:
                reason = self._why_no_row_member(node, group)
            if reason is not None:
                raise _Refused(reason)
            self._add(group, output)
            group.nodes.append(node)
        return group

    @staticmethod
    def _add(group: Group, value: Value) -> None:
        shape = shape_of(value)
        if shape == group.domain:
            group.full.add(value)
        elif len(group.domain) > 1 and shape in row_shapes(group.domain):
            group.row.add(value)
        else:
            raise _Refused(f"{value} has another shape than the rest")

    @staticmethod
    def _why_no_row_member(node: Node, group: Group) -> str | None:
        shape = shape_of(node.outputs[0])
        if len(group.domain) < 2 or shape not in row_shapes(group.domain):
            return "it has another shape"
        for value in node.inputs:
            if value in group.full or (value in group.row and shape_of(value) != shape):
                return "it combines rows with elements"
            if value not in group.row and len(shape_of(value)) > len(shape):
                return "it has another rank"
        return None

    def _check_carried(self) -> None:
        group = self.group
        made = {node.outputs[0] for node in group.nodes}
        for carried in self.loop.carried:
            self.state.check_shape(carried.initial, carried.inside, carried.next, self.loop)
            kind, type_ = group.full if carried.inside in group.full else group.row, carried.inside.type
            assert isinstance(type_, ArrayType)
            following = carried.next.type
            same = isinstance(following, ArrayType) and following.dtype is type_.dtype
            if carried.next not in made or carried.next not in kind or not same:
                raise _Refused("what is carried comes from somewhere else")
            if shape_of(carried.next) != type_.shape:
                raise _Refused("what is carried changes its shape")
        for collected in self.loop.collected:
            if collected.inside not in made or not isinstance(collected.inside.type, ArrayType):
                raise _Refused("what is collected comes from somewhere else")

    def _check_uses(self, arithmetic: Sequence[Node]) -> None:
        """What nothing uses is computed for the flags it may raise: that has no place here."""
        if any(not self.state.uses.get(node.outputs[0]) for node in arithmetic):
            raise _Refused("a value that nothing uses")
        if any(isinstance(node.outputs[0].type, NpScalarType) for node in arithmetic):
            raise _Refused("a fold of everything")

    def _views_and_scalars(self, others: Sequence[Node]) -> list[Stmt]:
        """Lower the steps that are no arithmetic of arrays: their statements, which may not leave the region."""
        state = self.state
        facts, state.facts = state.facts, counting(state.facts, self.index, self.trip)
        state.loops += 1
        with state.collecting() as statements:
            for node in others:
                if self.ahead.intersection(node.inputs):
                    raise _Refused("a view of what is computed before the first pass")
                state.item(node)
        state.loops -= 1
        state.facts = facts
        if not all(isinstance(stmt, Allocate | Let) for stmt in _all(statements)):
            raise _Refused("a pass that may leave the region, or copies")
        if any(isinstance(stmt, Allocate) and stmt.buffer.root is None for stmt in statements):
            raise _Refused("a pass that needs memory")
        own = {stmt.name for stmt in statements if isinstance(stmt, Let)}
        for node in others:
            memory = state.memory.get(node.outputs[0])
            if memory is None:
                continue
            moving = {s.name for stride in (*memory.strides, *memory.shape) for s in symbols_of(stride)}
            if moving & (own | {self.index.name}):
                raise _Refused("sizes that change from pass to pass")
        return statements

    def _check_operands(self) -> None:
        """Every operand is in memory, or a scalar."""
        known, inside = self.state.memory.keys() | self.state.scalars.keys() | self.ahead, self.group.values
        for node in self.group.nodes:
            for value in node.inputs:
                if is_array(value) and value not in inside and value not in known:
                    raise _Refused("an operand of another kind")

    def _check_order(self) -> None:
        """What is carried is written in the last pass over a row: one before would change what later ones read."""
        body = RowBody(self.state, self.group, {}, {}, {}, {})
        makers = {node.outputs[0]: node for node in self.group.nodes}
        for carried in self.loop.carried:
            maker = makers[carried.next]
            if carried.inside in self.group.full and body.pass_of(maker) != body.passes - 1:
                raise _Refused("what is carried is read again after it was computed")


def _all(statements: Sequence[Stmt]) -> Iterator[Stmt]:
    for stmt in statements:
        yield stmt
        for block in blocks(stmt):
            yield from _all(block.body)


class _Nest:
    """Emits the nest of a plan.

    A row's place in scratch memory is reached by the same indices as everything else: axes outside of the block have
    stride 0, and the offset takes back where the block begins.
    """

    def __init__(self, state: Lowerer, plan: _Plan) -> None:
        self.state, self.plan, self.group = state, plan, plan.group
        self.domain = plan.group.domain
        self.origin = plan.loop.origin
        if plan.loop.once is not None:
            some = Compare("gt", dim_expression(plan.trip), Const(0, INDEX))
            BeforePasses(state, plan.loop, plan.index, plan.trip).emit_outside(some)
        made = {node.outputs[0] for node in self.group.nodes}
        self.inside = [c.inside for c in plan.loop.carried]
        # the members that a pass computes: carried values are operands like those from outside
        self.group.full &= made
        self.group.row &= made
        self.operands = self._operands()
        self.reads = {v: self._strides(v) for v in self.operands if self._read_by_full(v)}
        self.row_reads = {v: self._row_strides(v) for v in self.operands if self._read_by_row(v)}
        self.moving = {v for v in self.operands if self._moves(v)}
        self.collected = [
            (c.inside, self._element(memory)) for c in plan.loop.collected for memory in state.destinations(c.after)
        ]
        self.after = [(c, memory) for c in plan.loop.carried for memory in state.destinations(c.after)]
        for carried in plan.loop.carried:
            state.memory[carried.after] = next(m for c, m in self.after if c is carried)
        self.rows = bool(self.group.row) or any(shape_of(v) != self.domain for v in self.inside)
        self.across = self.rows and self._rows_together()
        self.block = Symbol(state.fresh("first"), "scalar")  # where the block begins along the vector axis

    # -- what the arithmetic reads -----------------------------------------------------------------------------

    def _operands(self) -> list[Value]:
        found: dict[Value, None] = {}
        for node in self.group.nodes:
            for value in node.inputs:
                if is_array(value) and value not in self.group.values and value not in self.state.scalars:
                    found.setdefault(value)
        return list(found)

    def _read_by_full(self, value: Value) -> bool:
        return any(
            value in n.inputs and (n.outputs[0] in self.group.full or is_row_reduction(n)) for n in self.group.nodes
        )

    def _read_by_row(self, value: Value) -> bool:
        return any(
            value in n.inputs and n.outputs[0] in self.group.row and not is_row_reduction(n) for n in self.group.nodes
        )

    def _strides(self, value: Value) -> Shape:
        if value in self.inside:
            return ()
        return self.state.nests.strides_over(self.state.place(value), self.domain, self.origin)

    def _row_strides(self, value: Value) -> Shape:
        if value in self.inside:
            return ()
        return row_strides(self.state, self.state.place(value), self.domain[:-1], self.origin)

    def _moves(self, value: Value) -> bool:
        """Is it another array in each pass?"""
        if value in self.inside:
            return False
        own = {stmt.name for stmt in self.plan.before if isinstance(stmt, Let)} | {self.plan.index.name}
        return any(s.name in own for s in symbols_of(self.state.place(value).offset))

    def _element(self, whole: Memory) -> Memory:
        offset = whole.offset + self.plan.index * whole.strides[0]
        return replace(whole, shape=whole.shape[1:], strides=whole.strides[1:], offset=offset)

    def _rows_together(self) -> bool:
        """Are neighbouring rows the lanes of a vector? See the module docstring."""
        if len(self.domain) < 2 or any(self._body({}, {}, {}, {}).kept()):
            return False
        try:
            if evaluate(self.domain[-1], self.state.region.sample) > LONGEST_FOLD:
                return False
        except (KeyError, ValueError, ArithmeticError):
            return False
        along = [self.reads[v][-2] for v in self.moving if v in self.reads]
        along += [self.row_reads[v][-1] for v in self.moving if v in self.row_reads]
        for value, memory in self.collected:
            full = shape_of(value) == self.domain
            along.append(memory.strides[-2] if full else self._written_row(memory)[-1])
        return all(stride in (0, 1) for stride in along)

    def _written_row(self, memory: Memory) -> Shape:
        return row_strides(self.state, memory, self.domain[:-1], self.origin)

    def _body(
        self,
        reads: dict[Value, Access],
        row_reads: dict[Value, Access],
        writes: dict[Value, list[Access]],
        row_writes: dict[Value, list[Access]],
    ) -> RowBody:
        first = tuple(v for v in self.inside if v in self.reads)
        return RowBody(self.state, self.group, reads, row_reads, writes, row_writes, first=first)

    # -- the nest ----------------------------------------------------------------------------------------------

    def emit(self) -> None:
        """Make the statements."""
        state = self.state
        outer = self.domain[:-1] if self.rows else self.domain
        size = ROWS if self.across else ELEMENTS if not self.rows else 1
        blocked = outer[-1]
        number = ceil_div(blocked, size) if size > 1 else blocked
        unit = state.fresh("unit")
        with state.collecting() as body:
            rest: Expr = Var(unit)
            indices: list[Expr] = []
            for position, extent in enumerate(reversed((*outer[:-1], number))):
                if position == len(outer) - 1:
                    indices.insert(0, rest)
                    break
                count = Binary("max", dim_expression(extent), Const(1, INDEX))
                name = state.fresh("i")
                state.emit(Let(name, Binary("mod", rest, count)))
                indices.insert(0, Var(name))
                above = state.fresh("above")
                state.emit(Let(above, Binary("floordiv", rest, count)))
                rest = Var(above)
            state.emit(Let(self.block.name, Binary("mul", indices[-1], Const(size, INDEX))))
            self._unit(indices[:-1], size, blocked)
        units = product((*outer[:-1], number))
        state.emit(For(unit, dim_expression(units), Block(tuple(body)), "parallel"))

    def _unit(self, outer: list[Expr], size: int, blocked: DimLike) -> None:
        """The passes of one block."""
        state, plan = self.state, self.plan
        lanes: DimLike = 1
        if size > 1:
            count = state.fresh("count")
            left = Binary("sub", dim_expression(blocked), Var(self.block.name))
            state.emit(Let(count, Binary("min", Const(size, INDEX), left)))
            lanes = Symbol(count, "scalar")
        kept = {c.inside: self._scratch(c.inside, size) for c in plan.loop.carried}
        for carried in plan.loop.carried:
            self._copy(state.place(carried.initial), kept[carried.inside], carried, outer, lanes)
        still = {v: self._still(v, size, outer, lanes) for v in self.reads if self._worth_keeping(v)}
        with state.collecting() as passes:
            for stmt in plan.before:
                state.emit(stmt)
            self._pass(kept, still, outer, lanes)
        state.emit(For(plan.index.name, dim_expression(plan.trip), Block(tuple(passes))))
        for carried, memory in self.after:
            self._copy(kept[carried.inside], memory, carried, outer, lanes)

    # -- scratch memory of a block -----------------------------------------------------------------------------

    def _scratch(self, value: Value, size: int) -> Memory:
        """Room for what is kept of a value for one block, seen over the value's own shape."""
        state, type_ = self.state, value.type
        assert isinstance(type_, ArrayType)
        full = type_.shape == self.domain
        n: DimLike = self.domain[-1] if self.rows and full else 1
        memory = state.arena(value.name or "kept", type_.dtype, (n, size))
        rank = len(type_.shape)
        if not self.rows:
            strides: list[DimLike] = [*[0] * (rank - 1), 1]
        elif full:
            strides = [*[0] * (rank - 2), 1, size]
        else:
            tail: list[DimLike] = [0] if rank == len(self.domain) else []
            strides = [*[0] * (rank - 1 - len(tail)), 1, *tail]
        return replace(memory, shape=type_.shape, strides=tuple(strides), offset=-1 * self.block)

    def _worth_keeping(self, value: Value) -> bool:
        """Is it the same in every pass, and would reading it pick elements from far apart?"""
        strides = self.reads[value]
        if not self.across or value in self.inside or value in self.moving:
            return False
        return strides[-2] not in (0, 1)

    def _still(self, value: Value, size: int, outer: list[Expr], lanes: DimLike) -> Memory:
        """A copy of what an operand is over the block, with its rows side by side."""
        memory = self.state.place(value)
        strides = self.reads[value]
        source = replace(memory, shape=self.domain, strides=strides)
        made = self.state.arena(f"{value.name or 'x'}_block", memory.root.dtype, (self.domain[-1], size))
        rank = len(self.domain)
        target = replace(
            made, shape=self.domain, strides=(*[0] * (rank - 2), 1, size), offset=-1 * self.block
        )  # fmt: skip
        self._copy_full(source, target, outer, lanes)
        return target

    def _copy(self, source: Memory, target: Memory, carried: Carried, outer: list[Expr], lanes: DimLike) -> None:
        """One block of a carried array, into scratch memory or out of it."""
        if not self.rows or shape_of(carried.inside) == self.domain:
            self._copy_full(source, target, outer, lanes)
            return
        accesses = [Access(m, row_strides(self.state, m, self.domain[:-1], self.origin)) for m in (source, target)]
        self._copy_elements(accesses, self.domain[:-1], outer, lanes, ())

    def _copy_full(self, source: Memory, target: Memory, outer: list[Expr], lanes: DimLike) -> None:
        accesses = [Access(m, m.strides) for m in (source, target)]
        if not self.rows:
            self._copy_elements(accesses, self.domain, outer, lanes, ())
            return
        self._copy_elements(accesses, self.domain, outer, lanes, self.domain[-1:])

    def _copy_elements(
        self, accesses: list[Access], dims: Shape, outer: list[Expr], lanes: DimLike, folded: Shape
    ) -> None:
        """Elements of a block: along the folded axis, if there is one, and the axis of the block."""
        state = self.state
        read, write = (state.nests.declare(a, dims, a.memory.root.name, view=True) for a in accesses)
        r, j = state.fresh("r"), state.fresh("j")
        at = Binary("add", Var(self.block.name), Var(r)) if lanes != 1 else Var(self.block.name)
        index: tuple[Expr, ...] = (*outer, at, *((Var(j),) if folded else ()))
        body: Stmt = Store(write, index, Load(read, index))
        if lanes != 1:
            body = For(r, dim_expression(lanes), Block((body,)), "vector")
        if folded:
            axis = "serial" if lanes != 1 else "vector"
            body = For(j, dim_expression(folded[0]), Block((body,)), axis)
        state.emit(body)

    # -- one pass ----------------------------------------------------------------------------------------------

    def _pass(
        self, kept: dict[Value, Memory], still: dict[Value, Memory], outer: list[Expr], lanes: DimLike
    ) -> None:  # fmt: skip
        state, domain = self.state, self.domain
        reads, row_reads = {}, {}
        for value, strides in self.reads.items():
            memory = kept.get(value) or still.get(value)
            if memory is not None:
                strides = state.nests.strides_over(memory, domain, self.origin)
            reads[value] = Access(memory or state.place(value), strides)
        for value, strides in self.row_reads.items():
            memory = kept.get(value)
            if memory is not None:
                strides = self._written_row(memory)
            row_reads[value] = Access(memory or state.place(value), strides)
        writes: dict[Value, list[Access]] = {}
        row_writes: dict[Value, list[Access]] = {}
        targets = [(c.next, kept[c.inside]) for c in self.plan.loop.carried] + self.collected
        for value, memory in targets:
            if value in self.group.full:
                writes.setdefault(value, []).append(Access(memory, memory.strides))
            else:
                row_writes.setdefault(value, []).append(Access(memory, self._written_row(memory)))
        for table, shape in ((reads, domain), (row_reads, domain[:-1])):
            for value, access in table.items():
                state.nests.declare(access, shape, value.name or "x", view=True)
        for many_table, shape in ((writes, domain), (row_writes, domain[:-1])):
            for value, many in many_table.items():
                for access in many:
                    state.nests.declare(access, shape, value.name or "y", view=True)
        if not self.rows:
            r = state.fresh("r")
            index = (*outer, Binary("add", Var(self.block.name), Var(r)))
            known: dict[Value, Expr] = {}
            stmts = element_statements(
                state, self.group.nodes, reads, writes, index, known, first=[v for v in self.inside if v in reads]
            )
            state.emit(For(r, dim_expression(lanes), Block(tuple(stmts)), "vector"))
            return
        body = self._body(reads, row_reads, writes, row_writes)
        if not self.across:
            body.run((*outer, Var(self.block.name)))
            return
        body.axis = "serial"
        r = state.fresh("r")
        with state.collecting() as stmts:
            body.run((*outer, Binary("add", Var(self.block.name), Var(r))))
        state.emit(For(r, dim_expression(lanes), Block(tuple(stmts)), "vector", vectors=2))
