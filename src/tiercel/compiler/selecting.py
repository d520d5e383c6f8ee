"""The positions of what is true: nonzero, flatnonzero, and through them `x[mask]`.

In: a node whose operand has memory. Out: one pass that counts, and writes each position over the next place, which
stays free where nothing was found: no branch is taken or not. The number of places is a size known only from here on;
buffers sized by it have room for all elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered, cast
from tiercel.compiler.gather import flattened
from tiercel.compiler.graph import Node
from tiercel.compiler.memory import Memory
from tiercel.compiler.nests import Access
from tiercel.loops.form import (
    BOOL,
    INDEX,
    Assign,
    Binary,
    Block,
    Const,
    For,
    Let,
    Load,
    Local,
    Stmt,
    Store,
    Var,
)
from tiercel.loops.index import index_add
from tiercel.operators.types import ArrayType
from tiercel.shapes import Symbol, product

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer

DATA_SIZED = ("nonzero", "flatnonzero")
"""Operators that bind a size of their result."""


def lower_nonzero(state: Lowerer, node: Node) -> None:
    """Coordinates of the elements that are not zero, one array an axis; or positions in the flattened array."""
    source = state.place(node.inputs[0])
    if node.operator == "flatnonzero":
        source = flattened(state, source, node.inputs[0])
    types = [output.type for output in node.outputs]
    first = types[0]
    if not isinstance(first, ArrayType) or len(types) != len(source.shape) or source.root.dtype.kind == "c":
        raise NotLowered(f"{node.operator} of {source.root.dtype.name}", node.origin)
    size = first.shape[0]
    if not isinstance(size, Symbol) or size.kind != "data":
        raise NotLowered(f"{node.operator} with {size} results", node.origin)
    read = state.nests.declare(Access(source, source.strides), source.shape, "mask")
    most = product(source.shape)
    # one place more: where nothing is found at the end
    buffers = [state.arena("places", first.dtype, (most + 1,)) for _ in types]
    count, following = state.fresh("count"), state.fresh("following")
    state.emit(Local(count, Const(0, INDEX)))
    names = [state.fresh("i") for _ in source.shape]
    index = tuple(Var(n) for n in names)
    element = cast(cast(Load(read, index), BOOL), INDEX)
    stmts: list[Stmt] = [
        *(Store(b.root, (Var(count),), cast(i, first.dtype)) for b, i in zip(buffers, index, strict=True)),
        Let(following, index_add(Var(count), element)),
        Assign(count, Var(following)),
    ]
    for name, dim in zip(reversed(names), reversed(source.shape), strict=True):
        stmts = [For(name, dim_expression(dim), Block(tuple(stmts)))]
    for stmt in stmts:
        state.emit(stmt)
    state.reserve(size.name)
    state.emit(Let(size.name, Binary("add", Var(count), Const(0, INDEX)), dim_expression(most)))
    for output, buffer, axis in zip(node.outputs, buffers, source.shape, strict=True):
        state.memory[output] = Memory(buffer.root, (size,), (1,), 0)
        state.positions[output] = axis
