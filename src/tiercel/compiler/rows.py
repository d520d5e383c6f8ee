"""Groups with row reductions: a nest over the rows, and in each row passes over the innermost axis.

In: a `Group` of `fuse` whose outside operands have memory. Out: statements of the loop form. A pass ends where a value
needs a reduction of it. Costly elements needed in a later pass are kept (in their result, or in a scratch row), cheap
ones computed again. The outer axes are merged and parallel, the row is a vector axis.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import EXPENSIVE, cast
from tiercel.compiler.fuse import REDUCTIONS, Group, is_row_reduction
from tiercel.compiler.graph import Node, Value
from tiercel.compiler.memory import Memory
from tiercel.compiler.nests import Access, identity_of
from tiercel.compiler.pointwise import needed_outside, outside_operands
from tiercel.dtypes import DType
from tiercel.loops.form import (
    INDEX,
    Allocate,
    Block,
    Buffer,
    Compare,
    Const,
    Expr,
    For,
    Let,
    Load,
    Local,
    Reduce,
    Stmt,
    Store,
    Var,
)
from tiercel.operators import get
from tiercel.operators.types import ArrayType, Shape

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer


def lower_rows(state: Lowerer, group: Group) -> None:
    """The nest of a group with row values."""
    domain, origin = group.domain, group.nodes[0].origin
    outer = domain[:-1]
    reads: dict[Value, Access] = {}
    row_reads: dict[Value, Access] = {}
    for value in outside_operands(state, group):
        memory = state.place(value)
        if _read_by_full(group, value):
            reads[value] = Access(memory, state.nests.strides_over(memory, domain, origin))
        if _read_by_row(group, value):
            row_reads[value] = Access(memory, _row_strides(state, memory, outer, origin))
    writes: dict[Value, list[Access]] = {}
    row_writes: dict[Value, list[Access]] = {}
    for node in group.nodes:
        value = node.outputs[0]
        if not needed_outside(state, group, value):
            continue
        if value in group.full:
            writes[value] = [Access(m, m.strides) for m in state.destinations(value)]
        elif isinstance(value.type, ArrayType):
            row_writes[value] = [Access(m, _row_strides(state, m, outer, origin)) for m in state.destinations(value)]
    full = [*reads.values(), *(a for many in writes.values() for a in many)]
    rows = [*row_reads.values(), *(a for many in row_writes.values() for a in many)]
    # merge the outer axes only: all accesses without their last stride
    last = [a.strides[-1] for a in full]
    for access in full:
        access.strides = access.strides[:-1]
    dims = state.nests.merge(outer, [*full, *rows])
    for access, stride in zip(full, last, strict=True):
        access.strides = (*access.strides, stride)
    for table, shape in ((reads, (*dims, domain[-1])), (row_reads, dims)):
        for value, access in table.items():
            state.nests.declare(access, shape, value.name or "x")
    for many_table, shape in ((writes, (*dims, domain[-1])), (row_writes, dims)):
        for value, many in many_table.items():
            for access in many:
                state.nests.declare(access, shape, value.name or "y")
    for node in group.nodes:
        if is_row_reduction(node) and node.operator in ("max", "min") and not node.attributes.get("initial"):
            some = Compare("gt", dim_expression(domain[-1]), Const(0, INDEX))
            state.require(some, node.origin)
    body = _RowBody(state, group, reads, row_reads, writes, row_writes)
    state.nests.over(dims, body.run)


def _read_by_full(group: Group, value: Value) -> bool:
    return any(value in n.inputs and (n.outputs[0] in group.full or is_row_reduction(n)) for n in group.nodes)


def _read_by_row(group: Group, value: Value) -> bool:
    return any(value in n.inputs and n.outputs[0] in group.row and not is_row_reduction(n) for n in group.nodes)


def _row_strides(state: Lowerer, memory: Memory, outer: Shape, origin: int) -> Shape:
    """Strides over the outer axes of something of shape [..., 1], [...] or broadcast to them."""
    shape, strides = memory.shape, memory.strides
    if len(shape) == len(outer) + 1:
        shape, strides = shape[:-1], strides[:-1]
    return state.nests.strides_over(replace(memory, shape=shape, strides=strides), outer, origin)


class _RowBody:
    """The passes over one row of a group with row values."""

    def __init__(
        self,
        state: Lowerer,
        group: Group,
        reads: dict[Value, Access],
        row_reads: dict[Value, Access],
        writes: dict[Value, list[Access]],
        row_writes: dict[Value, list[Access]],
    ) -> None:
        self.state, self.group = state, group
        self.reads, self.row_reads, self.writes, self.row_writes = reads, row_reads, writes, row_writes
        self.maker = {n.outputs[0]: n for n in group.nodes}
        self.level: dict[Value, int] = {}
        for node in group.nodes:
            level = max((self.level[v] for v in node.inputs if v in self.level), default=0)
            self.level[node.outputs[0]] = level + 1 if is_row_reduction(node) else level
        self.row_values: dict[Value, Expr] = {}
        self.scratch: dict[Value, Buffer] = {}

    def pass_of(self, node: Node) -> int:
        """The pass over the row in which a full member or a reduction is computed."""
        return self.level[node.outputs[0]] - (1 if is_row_reduction(node) else 0)

    def run(self, outer: tuple[Expr, ...]) -> None:
        """Make the statements of one row."""
        state, group = self.state, self.group
        passes = 1 + max(self.pass_of(n) for n in group.nodes if n.outputs[0] in group.full or is_row_reduction(n))
        for value in self._kept():
            dtype = value.type.dtype  # type: ignore[attr-defined]
            self.scratch[value] = Buffer(
                state.fresh(f"{value.name or 'kept'}_row"), dtype, (dim_expression(group.domain[-1]),), space="arena"
            )
            state.emit(Allocate(self.scratch[value]))
        self._row_members(outer, 0)
        for number in range(passes):
            self._pass(outer, number)
            self._row_members(outer, number + 1)
        for value, many in self.row_writes.items():
            for access in many:
                assert access.buffer is not None
                state.emit(Store(access.buffer, outer, cast(self.row_values[value], access.buffer.dtype)))
        for value, expression in self.row_values.items():
            if not outer and not isinstance(value.type, ArrayType):
                state.scalars[value] = expression

    def _kept(self) -> list[Value]:
        """Costly full values used in a later pass that have no destination to be read from again."""
        found = []
        for node in self.group.nodes:
            value = node.outputs[0]
            if value not in self.group.full or value in self.writes or not self._costly(node):
                continue
            if any(value in n.inputs and self.pass_of(n) > self.pass_of(node) for n in self.group.nodes):
                found.append(value)
        return found

    @staticmethod
    def _costly(node: Node) -> bool:
        return get(node.operator).lowering.key in EXPENSIVE

    def _row_members(self, outer: tuple[Expr, ...], level: int) -> None:
        state = self.state
        for node in self.group.nodes:
            value = node.outputs[0]
            if value in self.group.full or is_row_reduction(node) or self.level[value] != level:
                continue
            expression = state.combine(node, lambda v: self._row_operand(v, outer))
            name = state.fresh(value.name or "r")
            state.emit(Let(name, expression))
            self.row_values[value] = Var(name, expression.dtype)

    def _row_operand(self, value: Value, outer: tuple[Expr, ...]) -> Expr:
        if value in self.row_values:
            return self.row_values[value]
        if value in self.row_reads:
            buffer = self.row_reads[value].buffer
            assert buffer is not None
            return Load(buffer, outer)
        return self.state.scalar(value)

    def _pass(self, outer: tuple[Expr, ...], number: int) -> None:
        state, group = self.state, self.group
        j = state.fresh("j")
        index = (*outer, Var(j))
        stmts: list[Stmt] = []
        known: dict[Value, Expr] = {}
        reductions: list[tuple[Node, str, DType]] = []

        def operand(value: Value) -> Expr:
            if value in known:
                return known[value]
            if value in self.row_values:
                return self.row_values[value]
            if value in self.maker:
                stored = self._stored(value, index)
                if stored is None or self.pass_of(self.maker[value]) == number:
                    expression = state.combine(self.maker[value], operand)
                else:
                    expression = stored
                return bind(value, expression)
            if value in self.reads:
                buffer = self.reads[value].buffer
                assert buffer is not None
                return bind(value, Load(buffer, index))
            return state.scalar(value)

        def bind(value: Value, expression: Expr) -> Expr:
            name = state.fresh(value.name or "v")
            stmts.append(Let(name, expression))
            known[value] = Var(name, expression.dtype)
            return known[value]

        for node in group.nodes:
            value = node.outputs[0]
            if is_row_reduction(node) and self.pass_of(node) == number:
                op = REDUCTIONS[node.operator]
                dtype = value.type.dtype  # type: ignore[attr-defined]
                dtype = dtype.accumulator if dtype.name in ("float16", "bfloat16") else dtype
                name = state.fresh(value.name or "fold")
                state.emit(Local(name, Const(identity_of(op, dtype), dtype)))
                stmts.append(Reduce(name, op, cast(operand(node.inputs[0]), dtype)))
                reductions.append((node, name, dtype))
            elif value in group.full and self.pass_of(node) == number and self._has_place(value):
                element = operand(value)
                if value in self.scratch:
                    stmts.append(Store(self.scratch[value], (Var(j),), element))
                for access in self.writes.get(value, ()):
                    assert access.buffer is not None
                    stmts.append(Store(access.buffer, index, cast(element, access.buffer.dtype)))
        if stmts:
            extent = dim_expression(group.domain[-1])
            state.emit(For(j, extent, Block(tuple(stmts)), "vector"))
        for node, name, dtype in reductions:
            value = node.outputs[0]
            self.row_values[value] = cast(Var(name, dtype), value.type.dtype)  # type: ignore[attr-defined]

    def _has_place(self, value: Value) -> bool:
        return value in self.scratch or value in self.writes

    def _stored(self, value: Value, index: tuple[Expr, ...]) -> Expr | None:
        """The element read back from where an earlier pass left it."""
        if value in self.scratch:
            return Load(self.scratch[value], index[-1:])
        if value in self.writes and self._costly(self.maker[value]):
            buffer = self.writes[value][0].buffer
            assert buffer is not None
            return Load(buffer, index)
        return None
