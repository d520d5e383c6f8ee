"""Reductions and scans in which the position counts: argmax, argmin, cumsum, cumprod.

In: a node whose operand has memory. Out: loops. The position of an extreme along contiguous rows is found in two vector
passes over a row in the cache: the extreme, then the first element that equals it (or is NaN, which wins). Along other
axes the lanes run over the innermost kept axis and each carries its own candidate. A running sum is in NumPy's order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered, cast
from tiercel.compiler.gather import flattened
from tiercel.compiler.graph import Node
from tiercel.compiler.memory import Memory
from tiercel.compiler.nests import Access, identity_of
from tiercel.dtypes import DType
from tiercel.loops.form import (
    BOOL,
    INDEX,
    Assign,
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
    Select,
    Stmt,
    Store,
    Unary,
    Var,
)
from tiercel.operators.types import ArrayType, NpScalarType, Shape
from tiercel.shapes import DimLike, normalize_axis

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer


def _last(state: Lowerer, node: Node) -> tuple[Memory, int | None]:
    """The operand with the axis that is run over in the last place, and which one it was (None: all, flattened)."""
    source = state.place(node.inputs[0])
    axis = node.attributes.get("axis")
    if axis is None:
        return flattened(state, source, node.inputs[0]), None
    if not isinstance(axis, int) or not source.shape:
        raise NotLowered(f"{node.operator} along an axis that is not known, or of a scalar", node.origin)
    axis = normalize_axis(axis, len(source.shape))
    return source.permuted([*(a for a in range(len(source.shape)) if a != axis), axis]), axis


# -- argmax, argmin ----------------------------------------------------------------------------------------------------


def lower_position(state: Lowerer, node: Node) -> None:
    """The index of the first extreme, or of the first NaN."""
    source, axis = _last(state, node)
    output = node.outputs[0]
    if not isinstance(output.type, ArrayType | NpScalarType) or source.root.dtype.kind not in "biuf":
        raise NotLowered(f"{node.operator} of {source.root.dtype.name}", node.origin)
    kept, count = source.shape[:-1], source.shape[-1]
    if state.facts.less_equal(1, count) is not True:
        state.require(Compare("gt", dim_expression(count), Const(0, INDEX)), node.origin)
    op = "max" if node.operator == "argmax" else "min"
    if not kept:
        buffer = state.nests.declare(Access(source, source.strides), source.shape, "x")
        at = _first_extreme(state, buffer, (), count, op)
        if isinstance(output.type, ArrayType):
            for memory in state.destinations(output):
                state.nests.store_scalar(Memory(memory.root, (), (), memory.offset), at)
        else:
            state.scalars[output] = at
        return
    targets = []
    for memory in state.destinations(output):
        strides = memory.strides
        if len(memory.shape) > len(kept):  # keepdims
            assert axis is not None
            strides = tuple(s for a, s in enumerate(memory.strides) if a != axis)
        targets.append(Access(replace(memory, shape=kept, strides=strides), strides))
    buffer = state.nests.declare(Access(source, source.strides), source.shape, "x")
    stores = [state.nests.declare(t, kept, "y") for t in targets]
    if source.strides[-1] == 1 or source.strides[-2] != 1:

        def row(index: tuple[Expr, ...]) -> None:
            at = _first_extreme(state, buffer, index, count, op)
            for store in stores:
                state.emit(Store(store, index, at))

        state.nests.over(kept, row)
        return
    state.nests.elements(kept, lambda index: _in_lanes(state, buffer, stores, index, count, op))


def _computing(dtype: DType) -> DType:
    return dtype.accumulator if dtype.name in ("float16", "bfloat16") else dtype


def _first_extreme(state: Lowerer, buffer: Buffer, index: tuple[Expr, ...], count: DimLike, op: str) -> Expr:
    dtype, extent = _computing(buffer.dtype), dim_expression(count)
    peak, at = state.fresh("peak"), state.fresh("at")
    state.emit(Local(peak, Const(identity_of(op, dtype), dtype)))
    j = state.fresh("j")
    value = cast(Load(buffer, (*index, Var(j))), dtype)
    state.emit(For(j, extent, Block((Reduce(peak, op, value),)), "vector"))
    state.emit(Local(at, Const(2**62, INDEX)))
    k, x = state.fresh("k"), state.fresh("x")
    equal: Expr = Compare("eq", Var(x, dtype), Var(peak, dtype))
    if dtype.kind == "f":
        equal = Binary("or", equal, Unary("isnan", Var(x, dtype)))
    element = Let(x, cast(Load(buffer, (*index, Var(k))), dtype))
    found = Reduce(at, "min", Select(equal, Var(k), Const(2**62, INDEX)))
    state.emit(For(k, extent, Block((element, found)), "vector"))
    return Var(at)


def _in_lanes(
    state: Lowerer, buffer: Buffer, stores: list[Buffer], index: tuple[Expr, ...], count: DimLike, op: str
) -> list[Stmt]:
    dtype, extent = _computing(buffer.dtype), dim_expression(count)
    best, at, r, x = (state.fresh(n) for n in ("best", "at", "r", "x"))
    take: Expr
    value, known = Var(x, dtype), Var(best, dtype)
    if dtype is BOOL:
        take = Binary("and", value, Unary("not", known)) if op == "max" else Binary("and", Unary("not", value), known)
    else:
        take = Compare("gt" if op == "max" else "lt", value, known)
    if dtype.kind == "f":
        take = Binary("or", take, Binary("and", Unary("isnan", value), Unary("not", Unary("isnan", known))))
    better = state.fresh("better")
    body = (
        Let(x, cast(Load(buffer, (*index, Var(r))), dtype)),
        Let(better, take),
        Assign(best, Select(Var(better, BOOL), value, known)),
        Assign(at, Select(Var(better, BOOL), Var(r), Var(at))),
    )
    return [
        Local(best, cast(Load(buffer, (*index, Const(0, INDEX))), dtype)),
        Local(at, Const(0, INDEX)),
        For(r, extent, Block(body)),
        *(Store(s, index, Var(at)) for s in stores),
    ]


# -- cumsum, cumprod ---------------------------------------------------------------------------------------------------


def lower_running(state: Lowerer, node: Node) -> None:
    """A running sum or product along an axis."""
    source, axis = _last(state, node)
    output = node.outputs[0]
    if not isinstance(output.type, ArrayType) or output.type.dtype.kind not in "iuf":
        raise NotLowered(f"{node.operator} to {output.type}", node.origin)
    dtype = output.type.dtype
    accumulator = _computing(dtype)
    op = "add" if node.operator == "cumsum" else "mul"
    kept: Shape = source.shape[:-1]
    read = state.nests.declare(Access(source, source.strides), source.shape, "x")
    for memory in state.destinations(output):
        if axis is not None:
            memory = memory.permuted([*(a for a in range(len(memory.shape)) if a != axis), axis])
        write = state.nests.declare(Access(memory, memory.strides), memory.shape, "y")

        def row(index: tuple[Expr, ...], write: Buffer = write) -> list[Stmt]:
            total, r, following = (state.fresh(n) for n in ("total", "r", "following"))
            place = (*index, Var(r))
            value = cast(cast(Load(read, place), dtype), accumulator)
            body = (
                Let(following, Binary(op, Var(total, accumulator), value)),
                Assign(total, Var(following, accumulator)),
                Store(write, place, cast(Var(following, accumulator), dtype)),
            )
            start = Local(total, Const(identity_of(op, accumulator), accumulator))
            return [start, For(r, dim_expression(source.shape[-1]), Block(body))]

        contiguous = source.strides[-1] == 1 or not kept or source.strides[-2:-1] != (1,)
        if contiguous:

            def serial(index: tuple[Expr, ...], row: Callable[[tuple[Expr, ...]], list[Stmt]] = row) -> None:
                for stmt in row(index):
                    state.emit(stmt)

            if kept:
                state.nests.over(kept, serial)
            else:
                serial(())
        else:
            state.nests.elements(kept, row)
