"""sort, argsort (stable), topk: by counting, for each element, how many come before it.

In: a node whose operand has memory. Out: loops. The place of element i among n is the number of elements that are less,
plus the equal ones in front of it: two vector loops without a branch, stable by construction. That is n**2 / lanes
steps: faster than sorting up to about a thousand elements, and far from it beyond, so longer axes leave the region
(`LONGEST`). NaN is larger than all numbers, as in NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered, cast
from tiercel.compiler.gather import flattened
from tiercel.compiler.graph import Node
from tiercel.compiler.memory import Memory
from tiercel.compiler.nests import Access
from tiercel.dtypes import DType, as_dtype
from tiercel.loops.form import (
    BOOL,
    INDEX,
    Binary,
    Block,
    Buffer,
    Cast,
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
from tiercel.loops.index import index_add
from tiercel.operators.types import ArrayType
from tiercel.shapes import DimLike, normalize_axis

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer

LONGEST: Final = 1024
"""Elements of an axis beyond which NumPy's sort is faster."""
_COUNT: Final = as_dtype("int32")


def lower_sort(state: Lowerer, node: Node) -> None:
    """np.sort: the elements, each at its place."""
    _arrange(state, node, values=0)


def lower_argsort(state: Lowerer, node: Node) -> None:
    """np.argsort with a stable kind: the positions, each at its place."""
    if node.attributes.get("kind") not in ("stable", "mergesort") and node.attributes.get("stable") is not True:
        raise NotLowered("an argsort that is not stable: NumPy's order of equal elements is its own", node.origin)
    _arrange(state, node, positions=0)


def lower_topk(state: Lowerer, node: Node) -> None:
    """The first k in descending (or ascending) order, and their positions."""
    _arrange(state, node, values=0, positions=1, descending=bool(node.attributes.get("largest", True)))


def _arrange(
    state: Lowerer, node: Node, *, values: int | None = None, positions: int | None = None, descending: bool = False
) -> None:
    """Write values and positions to these outputs of the node."""
    source = state.place(node.inputs[0])
    axis = node.attributes.get("axis", -1)
    if source.root.dtype.kind not in "biuf":
        raise NotLowered(f"{node.operator} of {source.root.dtype.name}", node.origin)
    if axis is None:
        source, axis = flattened(state, source, node.inputs[0]), 0
    if not isinstance(axis, int) or not source.shape:
        raise NotLowered(f"{node.operator} along an axis that is not known, or of a scalar", node.origin)
    axis = normalize_axis(axis, len(source.shape))
    order = [*(a for a in range(len(source.shape)) if a != axis), axis]
    count = source.shape[axis]
    if state.facts.less_equal(count, LONGEST) is not True:
        state.require(Compare("le", dim_expression(count), Const(LONGEST, INDEX)), node.origin)
    first = node.outputs[0].type
    assert isinstance(first, ArrayType)
    taken: DimLike = first.shape[axis] if first.rank == len(order) else first.shape[0]
    if taken != count and state.facts.less_equal(taken, count) is not True:
        state.require(Compare("le", dim_expression(taken), dim_expression(count)), node.origin)
    view = source.permuted(order)
    read = state.nests.declare(Access(view, view.strides), view.shape, "x")
    writes: list[tuple[Buffer, bool]] = []
    for number, is_value in ((values, True), (positions, False)):
        for memory in state.destinations(node.outputs[number]) if number is not None else ():
            turned: Memory = memory.permuted(order)
            writes.append((state.nests.declare(Access(turned, turned.strides), turned.shape, "y"), is_value))

    def row(index: tuple[Expr, ...]) -> None:
        i = state.fresh("i")
        stmts = _place(state, read, index, Var(i), count, descending)
        place, x = stmts.place, stmts.value
        stores: list[Stmt] = [
            Store(w, (*index, place), cast(x if is_value else Var(i), w.dtype)) for w, is_value in writes
        ]
        if taken != count:
            stores = [If(Compare("lt", place, dim_expression(taken)), Block(tuple(stores)))]
        state.emit(For(i, dim_expression(count), Block((*stmts.body, *stores))))

    if view.shape[:-1]:
        state.nests.over(view.shape[:-1], row)
    else:
        row(())


class _Placed:
    """Statements that find the place of an element."""

    def __init__(self, body: tuple[Stmt, ...], place: Expr, value: Expr) -> None:
        self.body, self.place, self.value = body, place, value


def _place(state: Lowerer, read: Buffer, index: tuple[Expr, ...], i: Var, count: DimLike, descending: bool) -> _Placed:
    dtype = _comparing(read.dtype)
    mine, before, place = (state.fresh(n) for n in ("mine", "before", "place"))
    j, k, other, later = (state.fresh(n) for n in ("j", "k", "other", "later"))
    x = Var(mine, dtype)
    in_front = (
        Let(other, cast(Load(read, (*index, Var(j))), dtype)),
        Reduce(before, "add", Cast(Unary("not", _precedes(x, Var(other, dtype), descending)), _COUNT)),
    )
    behind = (
        Let(later, cast(Load(read, (*index, index_add(i, Var(k)))), dtype)),
        Reduce(before, "add", Cast(_precedes(Var(later, dtype), x, descending), _COUNT)),
    )
    body = (
        Let(mine, cast(Load(read, (*index, i)), dtype)),
        Local(before, Const(0, _COUNT)),
        For(j, i, Block(in_front), "vector"),
        For(k, Binary("sub", dim_expression(count), i), Block(behind), "vector"),
        Let(place, Cast(Var(before, _COUNT), INDEX)),
    )
    return _Placed(body, Var(place), Load(read, (*index, i)))


def _comparing(dtype: DType) -> DType:
    return dtype.accumulator if dtype.name in ("float16", "bfloat16") else dtype


def _precedes(a: Expr, b: Expr, descending: bool) -> Expr:
    """Does a stand before b because of its value? NaN is larger than all numbers."""
    if a.dtype is BOOL:
        return Binary("and", *((a, Unary("not", b)) if descending else (Unary("not", a), b)))
    first: Expr = Compare("gt" if descending else "lt", a, b)
    if a.dtype.kind != "f":
        return first
    nan, number = (a, b) if descending else (b, a)
    return Binary("or", first, Binary("and", Unary("isnan", nan), Unary("not", Unary("isnan", number))))
