"""Reductions over elements at integer indices: `table[ids].sum(axis=1)` without the array `table[ids]`.

In: a gather that `gather` put off (`Lowerer.may_defer`), and the reduction that is its only user. Out: one nest over
the axes that are kept. Along a last axis that is kept, four vectors of elements stay in registers while all indices of
a bag pass, so a row of the table is read once and nothing else travels but the sums. Terms are added in the order of
the indices, as they are where the array exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered, cast
from tiercel.compiler.fuse import REDUCTIONS, is_row_reduction
from tiercel.compiler.gather import Deferred, places
from tiercel.compiler.graph import Node, Value
from tiercel.compiler.maker import reduced_axes
from tiercel.compiler.nests import Access, identity_of
from tiercel.dtypes import DType
from tiercel.loops.form import INDEX, Block, Compare, Const, Expr, For, Load, Local, Reduce, Stmt, Store, Var
from tiercel.operators.types import ArrayType

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer

__all__ = ["lower_bag", "why_not"]


def why_not(state: Lowerer, value: Value, root: str) -> str | None:
    """Why what indices pick from `root` is written out; None where its user picks it itself."""
    users = state.uses.get(value, [])
    if len(users) != 1 or not isinstance(users[0], Node) or value in state.wanted:
        return "several steps use it"
    if any(value is r for r in state.returned):
        return "it is a result"
    if id(users[0]) not in state.here:
        return "it is used in another graph"
    if root not in state.inputs or state.storages:
        return "what it is picked from, or the indices, may be written before it is used"
    user = users[0]
    if user.operator not in REDUCTIONS or is_row_reduction(user) or not isinstance(user.outputs[0].type, ArrayType):
        return "it is not reduced over inner axes"
    rank = value.type.rank if isinstance(value.type, ArrayType) else 0
    return "nothing is left of it" if rank - 1 in reduced_axes(user, rank) else None


def lower_bag(state: Lowerer, node: Node, source: Deferred) -> None:
    """A reduction over axes of what indices pick."""
    output, rank = node.outputs[0], len(source.shape)
    axes = reduced_axes(node, rank)
    kept = [a for a in range(rank) if a not in axes]
    if not isinstance(output.type, ArrayType) or output.type.dtype.kind == "c":
        raise NotLowered(f"{node.operator} to a {output.type}", node.origin)
    op, dtype = REDUCTIONS[node.operator], output.type.dtype
    accumulator: DType = dtype.accumulator if dtype.name in ("float16", "bfloat16") else dtype
    if node.operator in ("max", "min") and not node.attributes.get("initial"):
        for a in axes:
            state.require(Compare("gt", dim_expression(source.shape[a]), Const(0, INDEX)), node.origin)
    outer = tuple(source.shape[a] for a in kept)
    stores = []
    for memory in state.destinations(output):
        strides = tuple(memory.strides[a] for a in kept) if len(memory.shape) == rank else memory.strides
        stores.append(state.nests.declare(Access(memory, strides), outer, output.name or "y", view=True))
    names = [state.fresh("r") for _ in axes]

    def fold(index: tuple[Expr, ...]) -> None:
        total = state.fresh("fold")
        where: dict[int, Expr] = dict(zip(kept, index, strict=True))
        where |= {a: Var(name) for a, name in zip(axes, names, strict=True)}
        element = Load(source.buffer, places(source.pickers, [where[a] for a in range(rank)]))
        stmts: list[Stmt] = [Reduce(total, op, cast(element, accumulator))]
        for a, name in zip(reversed(axes), reversed(names), strict=True):
            stmts = [For(name, dim_expression(source.shape[a]), Block(tuple(stmts)))]
        state.emit(Local(total, Const(identity_of(op, accumulator), accumulator)))
        for stmt in stmts:
            state.emit(stmt)
        for store in stores:
            state.emit(Store(store, index, cast(Var(total, accumulator), store.dtype)))

    def row(index: tuple[Expr, ...]) -> None:
        j = state.fresh("j")
        with state.collecting() as inside:
            fold((*index, Var(j)))
        state.emit(For(j, dim_expression(outer[-1]), Block(tuple(inside)), "vector", vectors=4))

    state.nests.over(outer[:-1], row)
