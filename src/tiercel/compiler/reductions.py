"""A reduction over any axes of an array in memory, by itself.

Over trailing axes it is a row reduction of the merged axes; over others the innermost kept axis is the vector axis,
with one partial result per lane. All of a long array is folded in chunks, then the results of the chunks.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered, cast
from tiercel.compiler.fuse import REDUCTIONS
from tiercel.compiler.graph import Node
from tiercel.compiler.maker import reduced_axes
from tiercel.compiler.memory import Memory
from tiercel.compiler.nests import CHUNK, Access, identity_of
from tiercel.dtypes import DType
from tiercel.loops.form import (
    INDEX,
    Binary,
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
from tiercel.operators.types import ArrayType, NpScalarType, Shape
from tiercel.shapes import DimLike, ceil_div

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer

FEW = 16
"""Terms up to which a sum is written out, so that the lanes of vectors are results."""


def _in_chunks(
    state: Lowerer, buffer: Buffer, count: DimLike, op: str, accumulator: DType
) -> tuple[Buffer, tuple[DimLike]]:
    """The results of chunks of a long vector, as a vector: shared among the threads, in an order that their number does
    not change, and so that each partial sum is of few terms.
    """
    many = ceil_div(count, CHUNK)
    partial = state.arena("partial", accumulator, (many,))
    chunk, first, length, j, fold = (state.fresh(n) for n in ("chunk", "first", "length", "j", "fold"))
    value = cast(Load(buffer, (Binary("add", Var(first), Var(j)),)), accumulator)
    inside = (
        Let(first, Binary("mul", Var(chunk), Const(CHUNK, INDEX))),
        Let(length, Binary("min", Const(CHUNK, INDEX), Binary("sub", dim_expression(count), Var(first)))),
        Local(fold, Const(identity_of(op, accumulator), accumulator)),
        For(j, Var(length), Block((Reduce(fold, op, value),)), "vector"),
        Store(partial.root, (Var(chunk),), Var(fold, accumulator)),
    )
    state.emit(For(chunk, dim_expression(many), Block(inside), "parallel"))
    return partial.root, (many,)


def lower_reduction(state: Lowerer, node: Node) -> None:
    """A reduction over any axes of an array in memory.

    Over trailing axes it is a row reduction of the merged axes; over others the innermost kept axis is the vector
    axis, with one partial result per lane.
    """
    source = state.place(node.inputs[0])
    rank = len(source.shape)
    axes = reduced_axes(node, rank)
    kept = [a for a in range(rank) if a not in axes]
    op, output = REDUCTIONS[node.operator], node.outputs[0]
    dtype = output.type.dtype if isinstance(output.type, ArrayType | NpScalarType) else None
    if dtype is None or dtype.kind == "c":
        raise NotLowered(f"{node.operator} to a {output.type}", node.origin)
    accumulator = dtype.accumulator if dtype.name in ("float16", "bfloat16") else dtype
    if node.operator in ("max", "min") and not node.attributes.get("initial"):
        for a in axes:
            if not isinstance(source.shape[a], int) or source.shape[a] == 0:
                state.require(Compare("gt", dim_expression(source.shape[a]), Const(0, INDEX)), node.origin)
    start = Const(identity_of(op, accumulator), accumulator)
    access = Access(source.permuted([*kept, *axes]), source.permuted([*kept, *axes]).strides)
    name = state.fresh("fold")

    def fold(index: tuple[Expr, ...], buffer: Buffer, dims: Shape, vector: bool) -> list[Stmt]:
        names = [state.fresh("r") for _ in dims]
        value = cast(Load(buffer, (*index, *(Var(n) for n in names))), accumulator)
        stmts: list[Stmt] = [Reduce(name, op, value)]
        for position, (r, dim) in enumerate(zip(reversed(names), reversed(dims), strict=True)):
            kind = "vector" if vector and position == 0 else "serial"
            stmts = [For(r, dim_expression(dim), Block(tuple(stmts)), kind)]
        return stmts

    outer, inner = tuple(source.shape[a] for a in kept), tuple(source.shape[a] for a in axes)
    split = len(kept)
    inner_access = Access(access.memory, access.strides[split:])
    inner_dims = state.nests.merge(inner, [inner_access])
    if not kept:
        whole = Access(access.memory, inner_access.strides)
        buffer = state.nests.declare(whole, inner_dims, node.inputs[0].name or "x")
        if len(inner_dims) == 1 and not (isinstance(inner_dims[0], int) and inner_dims[0] <= CHUNK):
            buffer, inner_dims = _in_chunks(state, buffer, inner_dims[0], op, accumulator)
        state.emit(Local(name, start))
        for stmt in fold((), buffer, inner_dims, vector=True):
            state.emit(stmt)
        result: Expr = cast(Var(name, accumulator), dtype)
        if isinstance(output.type, ArrayType):
            for memory in state.destinations(output):
                flat = Memory(memory.root, (), (), memory.offset)
                state.nests.store_scalar(flat, result)
        else:
            state.scalars[output] = result
        return
    assert isinstance(output.type, ArrayType)
    targets = []
    for memory in state.destinations(output):
        strides = memory.strides
        if len(memory.shape) == rank:  # keepdims
            strides = tuple(memory.strides[a] for a in kept)
        targets.append(Access(replace(memory, shape=outer, strides=strides), strides))
    outer_access = Access(access.memory, access.strides[:split])
    outer_dims = state.nests.merge(outer, [outer_access, *targets])
    combined = Access(access.memory, (*outer_access.strides, *inner_access.strides))
    buffer = state.nests.declare(combined, (*outer_dims, *inner_dims), node.inputs[0].name or "x")
    stores = [state.nests.declare(t, outer_dims, output.name or "y") for t in targets]

    def finish(index: tuple[Expr, ...]) -> list[Stmt]:
        return [Store(s, index, cast(Var(name, accumulator), s.dtype)) for s in stores]

    few = 1
    for dim in inner_dims:
        few *= dim if isinstance(dim, int) else FEW + 1
    if outer_dims and few <= FEW:
        # lanes are results: as many terms as there are, one after the other
        places = [tuple(Const(i, INDEX) for i in at) for at in itertools.product(*map(range, inner_dims))]  # type: ignore[arg-type]

        def terms(index: tuple[Expr, ...]) -> list[Stmt]:
            values = [cast(Load(buffer, (*index, *at)), accumulator) for at in places]
            return [Local(name, start), *(Reduce(name, op, value) for value in values), *finish(index)]

        state.nests.elements(outer_dims, terms)
        return
    trailing = inner_access.strides[-1:] == (1,) and outer_access.strides[-1:] != (1,)

    if trailing:

        def row(index: tuple[Expr, ...]) -> None:
            state.emit(Local(name, start))
            for stmt in (*fold(index, buffer, inner_dims, vector=True), *finish(index)):
                state.emit(stmt)

        state.nests.over(outer_dims, row)
    else:
        state.nests.elements(
            outer_dims,
            lambda index: [
                Local(name, start),
                *fold(index, buffer, inner_dims, vector=False),
                *finish(index),
            ],
        )
