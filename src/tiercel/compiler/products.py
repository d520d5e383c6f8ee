"""Products of matrices, with the elementwise members that follow them as the epilogue.

In: a `Group` of `fuse` that begins with a contraction. Out: `Contract` statements, one per matrix of a stack; weights
are packed by the lowerer (`Lowerer.packed_operand`). A product with a vector is one with a matrix of one row or column:
of a column where the rows of the matrix are contiguous, of a row where its columns are, so that it is read once in the
order in which it lies in memory. float16 and bfloat16 are summed in float32, small integers in int32: left operands are
widened into the arena, right ones too where the product does not widen them itself (`codegen.cpu.mixed`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered, cast
from tiercel.compiler.fuse import Group
from tiercel.compiler.graph import Node, Value
from tiercel.compiler.memory import Memory
from tiercel.compiler.nests import Access
from tiercel.compiler.pointwise import element_statements, needed_outside, outside_operands, unflatten
from tiercel.dtypes import DType, as_dtype
from tiercel.loops.form import (
    INDEX,
    NARROW,
    Allocate,
    Block,
    Buffer,
    Compare,
    Const,
    Contract,
    Expr,
    Stmt,
    Store,
    Var,
)
from tiercel.operators.types import ArrayType, Shape
from tiercel.shapes import Symbol, product

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer


def lower_product(state: Lowerer, group: Group, node: Node) -> None:
    """The nest of a product of matrices, or of stacks of them, and of the members that follow it."""
    x, y = (state.place(v) for v in node.inputs)
    dtype = x.root.dtype
    output = node.outputs[0]
    assert isinstance(output.type, ArrayType)
    right = y.root.dtype
    if (
        not (dtype is right or right.name in NARROW.get(dtype.name, ()))
        or dtype.kind not in "fiu"
        or output.type.dtype not in (dtype, dtype.accumulator)
    ):
        raise NotLowered(f"a product of {dtype.name} and {right.name}", node.origin)
    if not x.shape or not y.shape or len(x.shape) == len(y.shape) == 1 or (len(x.shape) == 1 and len(y.shape) > 2):
        raise NotLowered("a product of a vector with a vector, a scalar or a stack", node.origin)
    if node.operator == "dot" and len(y.shape) > 2:
        raise NotLowered("a dot product with a stack", node.origin)
    inner = y.shape[-2] if len(y.shape) > 1 else y.shape[0]
    if state.facts.equal(x.shape[-1], inner) is not True:
        agree = Compare("eq", dim_expression(x.shape[-1]), dim_expression(inner))
        state.require(agree, node.origin)
    wide = _summed_in(dtype)
    if wide is not dtype:
        x = _widened(state, x, wide)
    if wide is not right and not _widened_in_registers(state, right, y):
        y = _widened(state, y, wide)
    dtype = wide
    if len(y.shape) <= 2 and len(x.shape) > 2:
        flat = (product(x.shape[:-1]), x.shape[-1])
        view = x.reshaped(flat)
        if view is None:
            compact = state.arena("compact", dtype, x.shape)
            state.nests.copy(x, compact)
            view = compact.reshaped(flat)
            assert view is not None
        x = view
        batch: Shape = ()
    else:
        batch = group.domain[:-2] if len(y.shape) > 1 else ()
    origin, domain = node.origin, group.domain
    reads = {
        v: Access(state.place(v), state.nests.strides_over(state.place(v), domain, origin))
        for v in outside_operands(state, group)
    }
    outputs = [n.outputs[0] for n in group.nodes if needed_outside(state, group, n.outputs[0])]
    writes = {v: [Access(m, m.strides) for m in state.destinations(v)] for v in outputs}
    if batch:
        _batched(state, group, node, x, y, reads, writes)
        return
    everything = [*reads.values(), *(a for many in writes.values() for a in many)]
    if len(y.shape) == 1:
        lead = state.nests.merge(domain, everything)
        if x.strides[1] == 1:
            _contract(state, group, node, x, _column(y), reads, writes, lead, lambda row, _: unflatten(row, lead))
        else:
            turned = x.permuted((1, 0))
            _contract(
                state, group, node, _row(y), turned, reads, writes, lead, lambda _, column: unflatten(column, lead)
            )
        return
    if len(x.shape) == 1:
        if y.strides[0] == 1 and not state.is_frozen(y):
            turned = y.permuted((1, 0))
            _contract(state, group, node, turned, _column(x), reads, writes, domain, lambda row, _: (row,))
        else:
            _contract(state, group, node, _row(x), y, reads, writes, domain, lambda _, column: (column,))
        return
    lasts = [a.strides[-1] for a in everything]
    for access in everything:
        access.strides = access.strides[:-1]
    lead = state.nests.merge(domain[:-1], everything)
    for access, stride in zip(everything, lasts, strict=True):
        access.strides = (*access.strides, stride)
    shape = (*lead, domain[-1])
    _contract(state, group, node, x, y, reads, writes, shape, lambda row, column: (*unflatten(row, lead), column))


def _summed_in(dtype: DType) -> DType:
    """The dtype in which products are summed. Integers wrap around, so small ones may be cut from a sum in 32 bits."""
    if dtype.kind in "iu":
        return dtype if dtype.itemsize >= 4 else as_dtype("int32")
    return dtype.accumulator


def _widened_in_registers(state: Lowerer, dtype: DType, right: Memory) -> bool:
    """Does the product itself widen the right operand? Its columns have to be packed before, or its rows contiguous."""
    if len(right.shape) < 2 or right.shape[-1] == 1:
        return False
    return right.strides[-1] == 1 or (len(right.shape) == 2 and state.is_frozen(right))


def _widened(state: Lowerer, memory: Memory, dtype: DType) -> Memory:
    """A copy in a wider dtype."""
    wide = state.arena("wide", dtype, memory.shape)
    state.nests.copy(memory, wide)
    return wide


def _row(vector: Memory) -> Memory:
    """A vector as a matrix of one row."""
    return replace(vector, shape=(1, *vector.shape), strides=(0, *vector.strides))


def _column(vector: Memory) -> Memory:
    """A vector as a matrix of one column."""
    return replace(vector, shape=(*vector.shape, 1), strides=(*vector.strides, 1))


def _contract(
    state: Lowerer,
    group: Group,
    node: Node,
    x: Memory,
    y: Memory,
    reads: dict[Value, Access],
    writes: dict[Value, list[Access]],
    dims: Shape,
    at: Callable[[Expr, Expr], tuple[Expr, ...]],
) -> None:
    """One product of matrices; `dims` are the axes of what is read and written with it, `at` says where in them the
    element in a row and a column is.
    """
    for value, access in reads.items():
        state.nests.declare(access, dims, value.name or "x")
    for value, many in writes.items():
        for access in many:
            state.nests.declare(access, dims, value.name or "y")
    a = state.nests.declare(Access(x, x.strides), x.shape, "a")
    packed = state.packed_operand(y) if y.shape[1] != 1 else None
    if packed is None:
        b = state.nests.declare(Access(y, y.strides), y.shape, "b")
    elif packed.space == "constant":
        b = packed
    else:
        b = Buffer(
            state.fresh("b_packed"), packed.dtype, tuple(dim_expression(d) for d in y.shape), None, "arena",
            packed.name, Const(0, INDEX),
        )  # fmt: skip
        state.emit(Allocate(b))
    row, column, total = (state.fresh(n) for n in ("row", "column", "total"))
    index = at(Var(row), Var(column))
    dtype, type_ = x.root.dtype, node.outputs[0].type
    assert isinstance(type_, ArrayType)
    result = cast(Var(total, dtype), type_.dtype)
    known: dict[Value, Expr] = {node.outputs[0]: result}
    stmts: list[Stmt] = []
    for access in writes.get(node.outputs[0], ()):
        assert access.buffer is not None
        stmts.append(Store(access.buffer, index, result))
    stmts += element_statements(state, [n for n in group.nodes if n is not node], reads, writes, index, known)
    m, n, k = (dim_expression(d) for d in (x.shape[0], y.shape[1], x.shape[1]))
    state.emit(Contract(a, b, row, column, total, Block(tuple(stmts)), m, n, k, packed is not None))


def _batched(
    state: Lowerer,
    group: Group,
    node: Node,
    x: Memory,
    y: Memory,
    reads: dict[Value, Access],
    writes: dict[Value, list[Access]],
) -> None:
    """A product of stacks of matrices: loops over the leading axes around products."""
    batch = group.domain[:-2]
    over = {
        id(m): state.nests.strides_over(replace(m, shape=m.shape[:-2], strides=m.strides[:-2]), batch, node.origin)
        for m in (x, y)
    }

    def at(memory: Memory, strides: Shape, index: tuple[Symbol, ...]) -> Memory:
        offset = memory.offset
        for i, stride in zip(index, strides, strict=True):
            offset = offset + i * stride
        return Memory(memory.root, memory.shape[-2:], memory.strides[-2:], offset)

    def body(index: tuple[Expr, ...]) -> None:
        symbols = tuple(Symbol(i.name, "scalar") for i in index if isinstance(i, Var))

        def inner(access: Access) -> Access:
            offset = access.memory.offset
            for i, stride in zip(symbols, access.strides[:-2], strict=True):
                offset = offset + i * stride
            memory = Memory(access.memory.root, group.domain[-2:], access.strides[-2:], offset)
            return Access(memory, access.strides[-2:])

        _contract(
            state,
            group,
            node,
            at(x, over[id(x)], symbols),
            at(y, over[id(y)], symbols),
            {v: inner(a) for v, a in reads.items()},
            {v: [inner(a) for a in many] for v, many in writes.items()},
            group.domain[-2:],
            lambda row, column: (row, column),
        )

    state.nests.over(batch, body)
