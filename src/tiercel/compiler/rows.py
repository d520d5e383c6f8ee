"""Groups with row reductions: a nest over the rows, and in each row passes over the innermost axis.

In: a `Group` of `fuse` whose outside operands have memory. Out: statements of the loop form. A pass ends where a value
needs a reduction of it. Costly elements needed in a later pass are kept (in their result, or in a scratch row), cheap
ones computed again. The outer axes are merged and parallel, the row is a vector axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import EXPENSIVE, cast
from tiercel.compiler.expand import RECIPROCAL
from tiercel.compiler.fuse import REDUCTIONS, Group, is_row_reduction
from tiercel.compiler.graph import Node, Value, is_constant
from tiercel.compiler.memory import Memory
from tiercel.compiler.nests import Access, identity_of
from tiercel.compiler.pointwise import needed_outside, outside_operands
from tiercel.dtypes import DType
from tiercel.loops.form import (
    INDEX,
    Allocate,
    Binary,
    Block,
    Buffer,
    Compare,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Local,
    Reduce,
    Stmt,
    Store,
    Unary,
    Var,
)
from tiercel.operators import get
from tiercel.operators.types import ArrayType, Shape

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer

_SHORT_PASS = 6
"""Members of a pass up to which it may be written twice."""
_FROM_SUMS = frozenset(("add", "subtract", "multiply", "divide", "sqrt", "maximum"))
"""Operators that make a mean, a variance or a deviation of a sum."""
_RECIPROCAL_RANGE = (-120, 120)
"""Powers of two between which a float32 (and a float64) has a reciprocal that is a normal number."""


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
            row_reads[value] = Access(memory, row_strides(state, memory, outer, origin))
    writes: dict[Value, list[Access]] = {}
    row_writes: dict[Value, list[Access]] = {}
    for node in group.nodes:
        value = node.outputs[0]
        if not needed_outside(state, group, value):
            continue
        if value in group.full:
            writes[value] = [Access(m, m.strides) for m in state.destinations(value)]
        elif isinstance(value.type, ArrayType):
            row_writes[value] = [Access(m, row_strides(state, m, outer, origin)) for m in state.destinations(value)]
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
    body = RowBody(state, group, reads, row_reads, writes, row_writes)
    state.nests.over(dims, body.run)


def _read_by_full(group: Group, value: Value) -> bool:
    return any(value in n.inputs and (n.outputs[0] in group.full or is_row_reduction(n)) for n in group.nodes)


def _read_by_row(group: Group, value: Value) -> bool:
    return any(value in n.inputs and n.outputs[0] in group.row and not is_row_reduction(n) for n in group.nodes)


def row_strides(state: Lowerer, memory: Memory, outer: Shape, origin: int) -> Shape:
    """Strides over the outer axes of something of shape [..., 1], [...] or broadcast to them."""
    shape, strides = memory.shape, memory.strides
    if len(shape) == len(outer) + 1:
        shape, strides = shape[:-1], strides[:-1]
    return state.nests.strides_over(replace(memory, shape=shape, strides=strides), outer, origin)


class RowBody:
    """The passes over one row of a group with row values.

    Attributes:
        axis: kind of the loops over the row: "serial" where neighbouring rows are the lanes of a vector already.
        first: operands that are written in the same pass over the row as they are read: they are read first.
    """

    def __init__(
        self,
        state: Lowerer,
        group: Group,
        reads: dict[Value, Access],
        row_reads: dict[Value, Access],
        writes: dict[Value, list[Access]],
        row_writes: dict[Value, list[Access]],
        *,
        axis: str = "vector",
        first: Sequence[Value] = (),
    ) -> None:
        self.state, self.group, self.axis, self.first = state, group, axis, first
        self.reads, self.row_reads, self.writes, self.row_writes = reads, row_reads, writes, row_writes
        self.maker = {n.outputs[0]: n for n in group.nodes}
        self.level: dict[Value, int] = {}
        for node in group.nodes:
            level = max((self.level[v] for v in node.inputs if v in self.level), default=0)
            self.level[node.outputs[0]] = level + 1 if is_row_reduction(node) else level
        self.row_values: dict[Value, Expr] = {}
        self.scratch: dict[Value, Buffer] = {}

    @property
    def passes(self) -> int:
        """How often the row is gone over."""
        return 1 + max(
            self.pass_of(n) for n in self.group.nodes if n.outputs[0] in self.group.full or is_row_reduction(n)
        )

    def pass_of(self, node: Node) -> int:
        """The pass over the row in which a full member or a reduction is computed."""
        return self.level[node.outputs[0]] - (1 if is_row_reduction(node) else 0)

    def run(self, outer: tuple[Expr, ...]) -> None:
        """Make the statements of one row."""
        state, group = self.state, self.group
        passes = self.passes
        for value in self.kept():
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

    def kept(self) -> list[Value]:
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
        state = self.state
        reductions: list[tuple[Node, str, DType]] = []
        for node in self.group.nodes:
            if is_row_reduction(node) and self.pass_of(node) == number:
                dtype = node.outputs[0].type.dtype  # type: ignore[attr-defined]
                dtype = dtype.accumulator if dtype.name in ("float16", "bfloat16") else dtype
                name = state.fresh(node.outputs[0].name or "fold")
                state.emit(Local(name, Const(identity_of(REDUCTIONS[node.operator], dtype), dtype)))
                reductions.append((node, name, dtype))
        divisors = self._divisors(number) if self.axis == "vector" else []
        if divisors:
            # a product takes a tenth of the time of a division; where 1 / divisor is no ordinary number it is divided
            usable: Expr | None = None
            for value in divisors:
                x = self.row_values[value]
                size = Unary("abs", x)
                least, most = (Const(float(2.0**n), x.dtype) for n in _RECIPROCAL_RANGE)
                own = Binary("and", Compare("ge", size, least), Compare("le", size, most))
                usable = own if usable is None else Binary("and", usable, own)
            assert usable is not None
            with state.collecting() as quick:
                inverse: dict[Value, Expr] = {}
                for value in divisors:
                    x, name = self.row_values[value], state.fresh("inverse")
                    state.emit(Let(name, Binary("div", Const(1.0, x.dtype), x)))
                    inverse[value] = Var(name, x.dtype)
                self._loop(outer, number, reductions, inverse)
            with state.collecting() as slow:
                # for degenerate rows: little code counts for more than speed
                self._loop(outer, number, reductions, {}, "vector" if reductions else "serial")
            state.emit(If(usable, Block(tuple(quick)), Block(tuple(slow))))
        else:
            self._loop(outer, number, reductions, {}, self.axis)
        for node, name, dtype in reductions:
            value = node.outputs[0]
            self.row_values[value] = cast(Var(name, dtype), value.type.dtype)  # type: ignore[attr-defined]
            if value not in state.uses and dtype.kind == "f":
                # nothing needs it, but it may raise floating-point flags: a store keeps it
                kept = Buffer(state.fresh("kept"), dtype, (Const(1, INDEX),), (Const(1, INDEX),), "arena")
                state.emit(Allocate(kept))
                state.emit(Store(kept, (Const(0, INDEX),), Var(name, dtype)))

    def _loop(
        self,
        outer: tuple[Expr, ...],
        number: int,
        reductions: list[tuple[Node, str, DType]],
        inverse: Mapping[Value, Expr],
        axis: str = "vector",
    ) -> None:
        """The vector loop of a pass; `inverse` has reciprocals of divisors."""
        state, group = self.state, self.group
        j = state.fresh("j")
        index = (*outer, Var(j))
        stmts: list[Stmt] = []
        known: dict[Value, Expr] = {}
        names = {node: (name, dtype) for node, name, dtype in reductions}

        def operand(value: Value) -> Expr:
            if value in known:
                return known[value]
            if value in self.row_values:
                return self.row_values[value]
            if value in self.maker:
                stored = self._stored(value, index)
                if stored is None or self.pass_of(self.maker[value]) == number:
                    expression = self._element(self.maker[value], operand, inverse)
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

        for value in self.first:
            operand(value)
        for node in group.nodes:
            value = node.outputs[0]
            if node in names:
                name, dtype = names[node]
                stmts.append(Reduce(name, REDUCTIONS[node.operator], cast(operand(node.inputs[0]), dtype)))
            elif value in group.full and self.pass_of(node) == number and self._has_place(value):
                element = operand(value)
                if value in self.scratch:
                    stmts.append(Store(self.scratch[value], (Var(j),), element))
                for access in self.writes.get(value, ()):
                    assert access.buffer is not None
                    stmts.append(Store(access.buffer, index, cast(element, access.buffer.dtype)))
        if stmts:
            extent = dim_expression(group.domain[-1])
            state.emit(For(j, extent, Block(tuple(stmts)), axis))

    def _element(self, node: Node, operand: Callable[[Value], Expr], inverse: Mapping[Value, Expr]) -> Expr:
        """An element of an elementwise member."""
        expression = self.state.combine(node, operand)
        if self._is_below_peak(node) and isinstance(expression, Unary) and expression.op == "exp":
            return Unary("exp_nonpositive", expression.x)
        if node.operator == "divide" and isinstance(expression, Binary) and node.inputs[1] in inverse:
            return Binary("mul", expression.a, inverse[node.inputs[1]])
        return expression

    def _is_below_peak(self, node: Node) -> bool:
        """Is it exp(x - max(x)), so that its argument is no larger than zero?"""
        if node.operator != "exp":
            return False
        difference = self.maker.get(node.inputs[0])
        if difference is None or difference.operator != "subtract":
            return False
        peak = self.maker.get(difference.inputs[1])
        return peak is not None and peak.operator == "max" and peak.inputs[0] is difference.inputs[0]

    def _divisors(self, number: int) -> list[Value]:
        """Row values that a pass may multiply by the reciprocal of.

        Those are sums: 1 / sum, rounded, is the reciprocal of a number that is half a unit in the last place from the
        sum, which is within what its terms may be off in another order; the quotient by that number is then rounded
        once. So are means, and deviations: what is made of one sum and constants by a few roundings (`_FROM_SUMS`). A
        composite may say the same of its own divisor (`RECIPROCAL`).
        """
        members = [n for n in self.group.nodes if n.outputs[0] in self.group.full and self.pass_of(n) == number]
        if len(members) > _SHORT_PASS:
            return []  # it would stand there twice
        found: dict[Value, None] = {}
        for node in members:
            if node.operator != "divide" or node.inputs[1] not in self.row_values:
                continue
            output, divisor = node.outputs[0].type, node.inputs[1]
            same = output.dtype is self.row_values[divisor].dtype  # type: ignore[attr-defined]
            total = self._is_from_sum(divisor)
            if same and output.dtype.name in ("float32", "float64"):  # type: ignore[attr-defined]
                if total or node.attributes.get(RECIPROCAL):
                    found.setdefault(divisor)
        return list(found)

    def _is_from_sum(self, value: Value) -> bool:
        """Is a row value a sum of its row, or made of one and of numbers by `_FROM_SUMS`?"""
        maker = self.maker.get(value)
        if maker is None:
            return False
        if is_row_reduction(maker):
            return maker.operator == "sum"
        if maker.operator not in _FROM_SUMS:
            return False
        rows = [v for v in maker.inputs if v in self.row_values]
        return len(rows) == 1 and self._is_from_sum(rows[0]) and all(v in rows or is_constant(v) for v in maker.inputs)

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
