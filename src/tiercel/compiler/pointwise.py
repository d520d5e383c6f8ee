"""Groups without a reduction: every element of the results from the elements of the operands.

In: a `Group` of `fuse` whose outside operands have memory. Out: one nest over the group's domain, its adjacent axes
merged wherever every operand and result allows it. `element_statements` is also what makes the epilogue of a product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import cast
from tiercel.compiler.fuse import Group, is_array
from tiercel.compiler.graph import Node, Value
from tiercel.compiler.nests import Access
from tiercel.loops.form import (
    INDEX,
    Binary,
    Const,
    Expr,
    Let,
    Load,
    Stmt,
    Store,
    Var,
)
from tiercel.operators.types import Shape

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer


def needed_outside(state: Lowerer, group: Group, value: Value) -> bool:
    """Does anything but the group's members use the value?

    What nothing uses is kept too: it is computed for the floating-point flags it may raise, and code that nothing
    uses does not survive instruction selection.
    """
    if value in state.wanted:
        return True
    members = set(map(id, group.nodes))
    uses = state.uses.get(value, [])
    if not uses:
        return True
    result = any(value is r for r in state.returned)
    return result or any(id(step) not in members for step in uses)


def outside_operands(state: Lowerer, group: Group) -> list[Value]:
    """Array operands computed before, each once, in order."""
    seen: dict[Value, None] = {}
    for node in group.nodes:
        if node is group.contraction:
            continue
        for value in node.inputs:
            if is_array(value) and value not in group.values and value not in state.scalars:
                seen.setdefault(value)
    return list(seen)


def unflatten(row: Expr, lead: Shape) -> tuple[Expr, ...]:
    """The indices of the leading axes from the row number."""
    index: list[Expr] = []
    rest = row
    for dim in reversed(lead[1:]):
        # with a size of 0 there is no row; the divisor only has to be no zero
        extent = Binary("max", dim_expression(dim), Const(1, INDEX))
        index.append(Binary("mod", rest, extent))
        rest = Binary("floordiv", rest, extent)
    return tuple(reversed([*index, rest])) if lead else ()


def lower_pointwise(state: Lowerer, group: Group) -> None:
    """The nest of a group of elementwise nodes."""
    domain = group.domain
    reads = {
        v: Access(state.place(v), state.nests.strides_over(state.place(v), domain, group.nodes[0].origin))
        for v in outside_operands(state, group)
    }
    outputs = [n.outputs[0] for n in group.nodes if needed_outside(state, group, n.outputs[0])]
    writes = {v: [Access(m, m.strides) for m in state.destinations(v)] for v in outputs}
    if state.postponed.lower(group, reads, writes):
        return
    accesses = [*reads.values(), *(a for many in writes.values() for a in many)]
    dims = state.nests.merge(state.nests.vector_last(domain, accesses), accesses)
    for value, access in reads.items():
        state.nests.declare(access, dims, value.name or "x")
    for value, many in writes.items():
        for access in many:
            state.nests.declare(access, dims, value.name or "y")
    state.nests.elements(dims, lambda index: element_statements(state, group.nodes, reads, writes, index, {}))


def element_statements(
    state: Lowerer,
    nodes: Sequence[Node],
    reads: dict[Value, Access],
    writes: dict[Value, list[Access]],
    index: tuple[Expr, ...],
    known: dict[Value, Expr],
    *,
    first: Sequence[Value] = (),
) -> list[Stmt]:
    """The statements that compute elementwise nodes at `index`; operands that they write are read `first`."""
    stmts: list[Stmt] = []

    def operand(value: Value) -> Expr:
        if value in known:
            return known[value]
        if value in reads:
            buffer = reads[value].buffer
            assert buffer is not None
            name = state.fresh(value.name or "x")
            stmts.append(Let(name, Load(buffer, index)))
            known[value] = Var(name, buffer.dtype)
            return known[value]
        return state.scalar(value)

    for value in first:
        operand(value)
    for node in nodes:
        expression = state.combine(node, operand)
        name = state.fresh(node.outputs[0].name or "v")
        stmts.append(Let(name, expression))
        known[node.outputs[0]] = Var(name, expression.dtype)
        for access in writes.get(node.outputs[0], ()):
            assert access.buffer is not None
            stmts.append(Store(access.buffer, index, cast(known[node.outputs[0]], access.buffer.dtype)))
    return stmts
