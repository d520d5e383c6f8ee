"""Elements at integer indices that are only known when running: `x[i, :, j]`, take, take_along_axis, embedding.

In: a node whose operands have memory. Out: loops that first look at every index, then copy (or, for `x[i] = v` on a
copy of x, write). Invariants: an index out of range leaves the region before anything is written, so that the
interpreter raises NumPy's error; negative indices count from the end; of several writes to one element the last one
stays, as in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered, cast
from tiercel.compiler.graph import Node, Value
from tiercel.compiler.memory import Memory
from tiercel.compiler.nests import Access
from tiercel.compiler.subscript import selected
from tiercel.errors import ShapeError
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
from tiercel.operators.types import ArrayType, Shape
from tiercel.shapes import DimLike, broadcast_shapes, normalize_axis, product

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer


@dataclass(frozen=True, slots=True)
class Picked:
    """The indices into one axis.

    Attributes:
        buffer: the indices, over `dims`.
        dims: the dimensions of the result that the indices run over.
        size: of the axis they are into.
    """

    buffer: Buffer
    dims: tuple[int, ...]
    size: DimLike

    def at(self, index: Sequence[Expr]) -> Expr:
        """The position for an element of the result, counted from the beginning."""
        given = cast(Load(self.buffer, tuple(index[d] for d in self.dims)), INDEX)
        wrapped = Binary("add", given, dim_expression(self.size))
        return Select(Compare("lt", given, Const(0, INDEX)), wrapped, given)


Picker: TypeAlias = "Picked | int | None"
"""How an axis is entered: by indices, by the dimension of the result of that number, or at 0 (it has size 1)."""


def picked(state: Lowerer, value: Value | Memory, domain: Shape, first: int, size: DimLike, origin: int) -> Picked:
    """Indices into an axis of `size` that are broadcast to `domain`, which is what the result has from dimension
    `first` on; all are looked at here.
    """
    if isinstance(value, Value):
        type_ = value.type
        if not isinstance(type_, ArrayType) or type_.dtype.kind not in "iu" or type_.dtype.name == "uint64":
            raise NotLowered(f"an index that is {type_}", origin)
        memory = state.place(value)
        inside = value in state.positions and state.facts.equal(state.positions[value], size) is True
    else:
        memory, inside = value, False
    if not inside:
        check_indices(state, memory, size, origin)
    strides = state.nests.strides_over(memory, domain, origin)
    buffer = state.nests.declare(Access(memory, strides), domain, "indices")
    return Picked(buffer, tuple(range(first, first + len(domain))), size)


def check_indices(state: Lowerer, memory: Memory, size: DimLike, origin: int) -> None:
    """Leave unless all of these are positions in an axis of `size`."""
    access = Access(memory, memory.strides)
    dims = state.nests.merge(memory.shape, [access])
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
    extent = dim_expression(size)
    above = Compare("lt", Var(high), extent)
    below = Compare("ge", Binary("add", Var(low), extent), Const(0, INDEX))
    state.require(Binary("and", above, below), origin)
    state.note_index(memory, size)


@dataclass(frozen=True, slots=True)
class Deferred:
    """A gather whose user picks the elements itself, see `bags`: element i is `buffer[places(pickers, i)]`."""

    buffer: Buffer
    pickers: tuple[Picker, ...]
    shape: Shape


def copy_picked(state: Lowerer, source: Memory, pickers: Sequence[Picker], output: Value) -> None:
    """`output[i...] = source[p(i)...]` with a picker for each axis of the source; its user does it where it can."""
    read = state.nests.declare(Access(source, source.strides), source.shape, source.root.name)
    if state.may_defer(output, source.root.name) and isinstance(output.type, ArrayType):
        state.deferred[output] = Deferred(read, tuple(pickers), output.type.shape)
        return
    for memory in state.destinations(output):
        write = state.nests.declare(Access(memory, memory.strides), memory.shape, output.name or "y")

        def body(index: tuple[Expr, ...], write: Buffer = write) -> list[Stmt]:
            return [Store(write, index, Load(read, places(pickers, index)))]

        state.nests.elements(memory.shape, body)


def places(pickers: Sequence[Picker], index: Sequence[Expr]) -> tuple[Expr, ...]:
    """Where in the source the element `index` of the selection is."""
    found: list[Expr] = []
    for picker in pickers:
        match picker:
            case None:
                found.append(Const(0, INDEX))
            case int():
                found.append(index[picker])
            case Picked():
                found.append(picker.at(index))
    return tuple(found)


# -- x[key] ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Selection:
    """What a key with index arrays selects.

    Attributes:
        memory: the part of the array that the slices and ints of the key leave.
        pickers: for each of its axes.
        shape: of the selection.
        ordered: the dimensions of the selection that index arrays make.
    """

    memory: Memory
    pickers: tuple[Picker, ...]
    shape: Shape
    ordered: range


def has_arrays(key: object) -> bool:
    """Is there an array in a key?"""
    parts = key if isinstance(key, tuple) else (key,)
    return any(isinstance(p, Value) and isinstance(p.type, ArrayType) for p in parts)


def select(state: Lowerer, memory: Memory, key: tuple[object, ...], common: Shape, origin: int) -> Selection:
    """The selection of a key with index arrays, which broadcast to `common`.

    Dimensions stand as in NumPy: those of the arrays where the arrays are in the key if they are neighbours (ints
    beside them count as arrays), else in front.
    """
    rank = len(memory.shape)
    used = sum(p is not None and p is not Ellipsis for p in key)
    parts: list[object] = []
    for part in key:
        parts += [slice(None)] * (rank - used) if part is Ellipsis else [part]
    parts += [slice(None)] * (rank - used if not any(p is Ellipsis for p in key) else 0)
    arrays = [has_arrays((p,)) for p in parts]
    joint = [a or not (p is None or isinstance(p, slice)) for a, p in zip(arrays, parts, strict=True)]
    first, last = joint.index(True), len(joint) - 1 - joint[::-1].index(True)
    together = all(joint[first : last + 1])
    basic = selected(state, memory, tuple(slice(None) if a else p for a, p in zip(arrays, parts, strict=True)), origin)
    # the axes that are left of the array, and which parts they come from
    left = [n for n, part in enumerate(parts) if arrays[n] or not joint[n]]
    before = sum(1 for n in left if n < first and not joint[n]) if together else 0
    pickers: list[Picker] = []
    others: list[DimLike] = []
    for axis, n in enumerate(left):
        if arrays[n]:
            part = parts[n]
            assert isinstance(part, Value)
            pickers.append(picked(state, part, common, before, basic.shape[axis], origin))
        else:
            place = len(others)
            pickers.append(place if place < before else place + len(common))
            others.append(basic.shape[axis])
    shape = (*others[:before], *common, *others[before:])
    return Selection(basic, tuple(pickers), shape, range(before, before + len(common)))


def _common(state: Lowerer, key: Sequence[object], origin: int) -> Shape:
    """The shape the index arrays of a key broadcast to."""
    shapes = [v.type.shape for v in key if isinstance(v, Value) and isinstance(v.type, ArrayType)]
    try:
        return broadcast_shapes(*shapes, facts=state.facts)
    except ShapeError as error:
        raise NotLowered(str(error), origin) from None


def lower_index(state: Lowerer, node: Node) -> None:
    """`x[key]` with index arrays."""
    output = node.outputs[0]
    key = node.attributes["key"]
    if not isinstance(output.type, ArrayType):
        raise NotLowered("an index by an array that gives a scalar", node.origin)
    parts = key if isinstance(key, tuple) else (key,)
    common = _common(state, parts, node.origin)
    found = select(state, state.place(node.inputs[0]), parts, common, node.origin)
    copy_picked(state, found.memory, found.pickers, output)


def write_selected(state: Lowerer, target: Memory, key: tuple[object, ...], value: Value, origin: int) -> None:
    """`target[key] = value` with index arrays, in the order of the indices: of equal ones the last one stays."""
    common = _common(state, key, origin)
    found = select(state, target, key, common, origin)
    write = state.nests.declare(Access(found.memory, found.memory.strides), found.memory.shape, target.root.name)
    element: Expr | None = None
    read: Buffer | None = None
    if isinstance(value.type, ArrayType) and value.type.rank:
        memory = state.place(value)
        read = state.nests.declare(
            Access(memory, state.nests.strides_over(memory, found.shape, origin)), found.shape, value.name or "v"
        )
    else:
        element = state.scalar(value)
    names = [state.fresh("i") for _ in found.shape]
    index = tuple(Var(n) for n in names)
    given = Load(read, index) if read is not None else element
    assert given is not None
    stmts: list[Stmt] = [Store(write, places(found.pickers, index), cast(given, write.dtype))]
    for number in reversed(range(len(names))):
        # along a slice no element is met twice
        vector = number == len(names) - 1 and number not in found.ordered
        extent = dim_expression(found.shape[number])
        stmts = [For(names[number], extent, Block(tuple(stmts)), "vector" if vector else "serial")]
    for stmt in stmts:
        state.emit(stmt)


# -- along an axis -----------------------------------------------------------------------------------------------------


def lower_take(state: Lowerer, node: Node) -> None:
    """take, gather, embedding: slices at positions along one axis, or elements of the flattened array."""
    output, axis = node.outputs[0], node.attributes.get("axis", 0)
    if node.operator == "embedding":
        indices, table = node.inputs[:2]
        axis = 0
    else:
        table, indices = node.inputs[:2]
    if node.attributes.get("mode", "raise") != "raise":
        raise NotLowered(f"{node.operator} with mode {node.attributes['mode']!r}", node.origin)
    if not isinstance(output.type, ArrayType) or not isinstance(indices.type, ArrayType):
        raise NotLowered(f"{node.operator} at a single index", node.origin)
    source = state.place(table)
    if axis is None:
        source = flattened(state, source, table)
        axis = 0
    if not isinstance(axis, int):
        raise NotLowered(f"{node.operator} along an axis that is not known", node.origin)
    axis = normalize_axis(axis, len(source.shape))
    domain = indices.type.shape
    taken = picked(state, indices, domain, axis, source.shape[axis], node.origin)
    after = range(axis + len(domain), axis + len(domain) + len(source.shape) - axis - 1)
    copy_picked(state, source, (*range(axis), taken, *after), output)


def flattened(state: Lowerer, source: Memory, value: Value) -> Memory:
    """The elements in C order, in one dimension."""
    view = source.reshaped((product(source.shape),))
    if view is None:
        compact = state.new_arena(value)
        state.nests.copy(source, compact)
        view = compact.reshaped((product(source.shape),))
        assert view is not None
    return view


def lower_along(state: Lowerer, node: Node) -> None:
    """take_along_axis, gather_elements: one element along the axis for each index."""
    output, axis = node.outputs[0], node.attributes.get("axis", -1)
    x, indices = node.inputs[:2]
    if not isinstance(output.type, ArrayType) or not isinstance(indices.type, ArrayType):
        raise NotLowered(f"{node.operator} of a scalar", node.origin)
    source, shape = state.place(x), output.type.shape
    if axis is None:
        source, axis = flattened(state, source, x), 0
    if not isinstance(axis, int) or len(source.shape) != len(shape):
        raise NotLowered(f"{node.operator} of arrays of different rank", node.origin)
    axis = normalize_axis(axis, len(shape))
    pickers: list[Picker] = list(range(len(shape)))
    if node.operator == "take_along_axis":
        # the other sizes are broadcast with those of the indices; a size of 1 is entered with a stride of 0
        domain = tuple(source.shape[a] if a == axis else d for a, d in enumerate(shape))
        strides = state.nests.strides_over(source, domain, node.origin)
        source = Memory(source.root, domain, strides, source.offset)
    else:
        for a, (own, wanted) in enumerate(zip(source.shape, shape, strict=True)):
            if a != axis and state.facts.less_equal(wanted, own) is not True:
                fits = Compare("le", dim_expression(wanted), dim_expression(own))
                state.require(fits, node.origin)
    pickers[axis] = picked(state, indices, shape, 0, source.shape[axis], node.origin)
    copy_picked(state, source, pickers, output)


def lower_gather_nd(state: Lowerer, node: Node) -> None:
    """`x[tuple(i)]` for each index vector along the last axis of the indices."""
    output, (x, indices) = node.outputs[0], node.inputs[:2]
    if not isinstance(output.type, ArrayType) or not isinstance(indices.type, ArrayType):
        raise NotLowered("gather_nd of a scalar", node.origin)
    if indices.type.dtype.kind not in "iu" or indices.type.dtype.name == "uint64":
        raise NotLowered(f"an index of {indices.type.dtype.name}", node.origin)
    source, vectors = state.place(x), state.place(indices)
    count, domain = vectors.shape[-1], vectors.shape[:-1]
    if not isinstance(count, int) or count > len(source.shape):
        raise NotLowered("gather_nd with index vectors of unknown length", node.origin)
    pickers: list[Picker] = []
    for axis in range(count):
        part = Memory(vectors.root, domain, vectors.strides[:-1], vectors.offset + axis * vectors.strides[-1])
        pickers.append(picked(state, part, domain, 0, source.shape[axis], node.origin))
    pickers += range(len(domain), len(domain) + len(source.shape) - count)
    copy_picked(state, source, pickers, output)


def lower_one_hot(state: Lowerer, node: Node) -> None:
    """One value where the position along a new axis is the index, another elsewhere."""
    output, attributes = node.outputs[0].type, node.attributes
    if not isinstance(output, ArrayType) or not isinstance(node.inputs[0].type, ArrayType):
        raise NotLowered("one_hot of a scalar", node.origin)
    on, off = attributes.get("on_value", 1), attributes.get("off_value", 0)
    if not all(isinstance(v, int | float | bool) for v in (on, off)) or output.dtype.kind not in "biuf":
        raise NotLowered("one_hot with values that are not known", node.origin)
    source = state.place(node.inputs[0])
    axis = normalize_axis(attributes.get("axis", -1), output.rank)
    read = state.nests.declare(Access(source, source.strides), source.shape, "indices")
    kind = output.dtype.numpy.type

    def element(index: tuple[Expr, ...]) -> Expr:
        given = cast(Load(read, (*index[:axis], *index[axis + 1 :])), INDEX)
        hit = Compare("eq", given, index[axis])
        return Select(hit, Const(kind(on).item(), output.dtype), Const(kind(off).item(), output.dtype))

    for memory in state.destinations(node.outputs[0]):
        state.nests.fill(memory, element)
