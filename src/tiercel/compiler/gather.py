"""Elements at integer indices that are only known when running.

In: operands with memory. Out: loops that first look at every index (one out of range leaves the region before anything
is written: the interpreter raises NumPy's error), then copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import cast
from tiercel.compiler.graph import Value
from tiercel.compiler.memory import Memory
from tiercel.compiler.nests import Access
from tiercel.loops.form import (
    INDEX,
    Binary,
    Block,
    Buffer,
    Compare,
    Const,
    Expr,
    For,
    Load,
    Local,
    Reduce,
    Select,
    Stmt,
    Store,
    Var,
)

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer


def gather_rows(state: Lowerer, table: Memory, indices: Memory, output: Value, origin: int) -> None:
    """`output[i..., j...] = table[indices[i...], j...]`, after all indices have been found in range."""
    access = Access(indices, indices.strides)
    dims = state.nests.merge(indices.shape, [access])
    read = state.nests.declare(access, dims, "indices")
    low, high = state.fresh("lowest"), state.fresh("highest")
    state.emit(Local(low, Const(0, INDEX)))
    state.emit(Local(high, Const(-1, INDEX)))
    names = [state.fresh("r") for _ in dims]
    value = cast(Load(read, tuple(Var(n) for n in names)), INDEX)
    stmts: list[Stmt] = [Reduce(low, "min", value), Reduce(high, "max", value)]
    for position, (name, dim) in enumerate(zip(reversed(names), reversed(dims), strict=True)):
        stmts = [For(name, dim_expression(dim), Block(tuple(stmts)), "serial" if position else "vector")]
    for stmt in stmts:
        state.emit(stmt)
    size = dim_expression(table.shape[0])
    above = Compare("lt", Var(high), size)
    below = Compare("ge", Binary("add", Var(low), size), Const(0, INDEX))
    state.require(Binary("and", above, below), origin)
    rows = state.nests.declare(Access(table, table.strides), table.shape, table.root.name)
    own = state.nests.declare(Access(indices, indices.strides), indices.shape, "indices")
    rank = len(indices.shape)
    for memory in state.destinations(output):
        write = state.nests.declare(Access(memory, memory.strides), memory.shape, output.name or "y")

        def body(index: tuple[Expr, ...], write: Buffer = write) -> list[Stmt]:
            at = cast(Load(own, index[:rank]), INDEX)
            row = Select(Compare("lt", at, Const(0, INDEX)), Binary("add", at, size), at)
            return [Store(write, index, Load(rows, (row, *index[rank:])))]

        state.nests.elements(memory.shape, body)
