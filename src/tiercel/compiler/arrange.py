"""Arrays arranged from others: diagonals, repetitions, borders, rolls, stacks, copies.

In: a node whose operands have memory. Out: views where strides can say it (diagonals, flips, unstacked rows), else
copy loops into the places the result is wanted in. Every destination is written as a whole, each element at most twice
(a fill, then a copy over a part of it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered, cast
from tiercel.compiler.graph import Node, Value
from tiercel.compiler.maker import array_type
from tiercel.compiler.memory import Memory
from tiercel.compiler.places import is_in_place
from tiercel.dtypes import as_dtype
from tiercel.loops.form import INDEX, Binary, Compare, Const, Expr, Let, Select, Var
from tiercel.operators.joining import pad_pairs
from tiercel.operators.types import ArrayType
from tiercel.shapes import DimLike, dim_max, normalize_axis, product

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer

Rule = Callable[["Lowerer", Node], None]


def _along(memory: Memory, k: DimLike, one: int, two: int, length: DimLike) -> Memory:
    """The view of diagonal k over two axes, which becomes the last axis."""
    if not isinstance(k, int):
        raise NotLowered("a diagonal whose number is computed")
    rest = [a for a in range(len(memory.shape)) if a not in (one, two)]
    offset = memory.offset + (k * memory.strides[two] if k >= 0 else -k * memory.strides[one])
    return replace(
        memory,
        shape=(*(memory.shape[a] for a in rest), length),
        strides=(*(memory.strides[a] for a in rest), memory.strides[one] + memory.strides[two]),
        offset=offset,
    )


def _diagonal(state: Lowerer, node: Node) -> None:
    memory, output = state.place(node.inputs[0]), array_type(node.outputs[0])
    rank = len(memory.shape)
    one = normalize_axis(node.attributes.get("axis1", 0), rank)
    two = normalize_axis(node.attributes.get("axis2", 1), rank)
    k = node.attributes.get("offset", node.attributes.get("k", 0))
    state.memory[node.outputs[0]] = _along(memory, k, one, two, output.shape[-1])


def _diag(state: Lowerer, node: Node) -> None:
    """The diagonal of a matrix, or a matrix with a vector on its diagonal."""
    source = state.place(node.inputs[0])
    if len(source.shape) == 2:
        _diagonal(state, node)
        return
    output = array_type(node.outputs[0])
    zero = Const(0, output.dtype)
    for whole in state.destinations(node.outputs[0]):
        state.nests.fill(whole, lambda index: zero)
        state.nests.copy(source, _along(whole, node.attributes.get("k", 0), 0, 1, source.shape[0]))


def _eye(state: Lowerer, node: Node) -> None:
    output = array_type(node.outputs[0])
    k = node.attributes.get("k", 0)
    rows, columns = output.shape
    if not isinstance(k, int) or not (rows == columns and abs(k) == 0):
        raise NotLowered("eye that is not square, or with another diagonal")
    zero, one = Const(0, output.dtype), Const(1, output.dtype)
    for whole in state.destinations(node.outputs[0]):
        state.nests.fill(whole, lambda index: zero)
        state.nests.fill(_along(whole, k, 0, 1, rows), lambda index: one)


def _linspace(state: Lowerer, node: Node) -> None:
    """start + i * step, and exactly the end at the end."""
    output, given = array_type(node.outputs[0]), node.attributes
    if output.rank != 1 or not all(v in state.scalars or not isinstance(v.type, ArrayType) for v in node.inputs):
        raise NotLowered("linspace between arrays")
    if output.dtype.kind != "f":
        raise NotLowered(f"linspace of {output.dtype.name}")
    wide = as_dtype("float64")
    start, stop = (cast(state.scalar(v), wide) for v in node.inputs)
    count = output.shape[0]
    endpoint = given.get("endpoint", True)
    parts = dim_expression(count - 1 if endpoint else count)
    if endpoint and (not isinstance(count, int) or count < 2):
        state.require(Compare("ge", dim_expression(count), Const(2, INDEX)), node.origin)
    step = Var(state.fresh("step"), wide)
    state.emit(Let(step.name, Binary("div", Binary("sub", stop, start), cast(parts, wide))))

    def element(index: tuple[Expr, ...]) -> Expr:
        between = Binary("add", Binary("mul", cast(index[0], wide), step), start)
        return Select(Compare("eq", index[0], parts), stop, between) if endpoint else between

    for whole in state.destinations(node.outputs[0]):
        state.nests.fill(whole, element)


def _tri(state: Lowerer, node: Node) -> None:
    """Ones up to a diagonal: ones everywhere, then zeros above it."""
    output, k = array_type(node.outputs[0]), node.attributes.get("k", 0)
    if not isinstance(k, int):
        raise NotLowered("tri with a computed diagonal")
    one = Const(1, output.dtype)
    for whole in state.destinations(node.outputs[0]):
        state.nests.fill(whole, lambda index: one)
        state.nests.triangle(whole, whole, k, lower=True)


def _tile(state: Lowerer, node: Node) -> None:
    """Each axis n becomes (repetitions, n); the source does not move along the repetitions."""
    source = state.place(node.inputs[0])
    given = node.attributes["reps"]
    reps = list(given) if isinstance(given, tuple | list) else [given]
    rank = max(len(reps), len(source.shape))
    reps = [1] * (rank - len(reps)) + reps
    missing = rank - len(source.shape)
    sizes = (*[1] * missing, *source.shape)
    steps = (*[0] * missing, *source.strides)
    read = replace(
        source,
        shape=tuple(x for pair in zip(reps, sizes, strict=True) for x in pair),
        strides=tuple(x for step in steps for x in (0, step)),
    )
    for whole in state.destinations(node.outputs[0]):
        strides = [x for size, step in zip(sizes, whole.strides, strict=True) for x in (size * step, step)]
        state.nests.copy(read, replace(whole, shape=read.shape, strides=tuple(strides)))


def _repeat(state: Lowerer, node: Node) -> None:
    """Axis n becomes (n, count); the source does not move along the second."""
    source, count, axis = state.place(node.inputs[0]), node.attributes["repeats"], node.attributes.get("axis")
    if isinstance(count, tuple | list | float | Value):
        raise NotLowered("repeat with a count for each element")
    if axis is None and len(source.shape) > 1:
        flat = source.reshaped((product(source.shape),))
        if flat is None:
            raise NotLowered("repeat of an array that cannot be flattened in place")
        source = flat
    axis = normalize_axis(0 if axis is None else axis, len(source.shape))
    before, after = slice(None, axis), slice(axis + 1, None)
    read = replace(
        source,
        shape=(*source.shape[before], source.shape[axis], count, *source.shape[after]),
        strides=(*source.strides[before], source.strides[axis], 0, *source.strides[after]),
    )
    for whole in state.destinations(node.outputs[0]):
        step = whole.strides[axis]
        strides = (*whole.strides[before], count * step, step, *whole.strides[after])
        state.nests.copy(read, replace(whole, shape=read.shape, strides=strides))


def _part(memory: Memory, axis: int, start: DimLike, size: DimLike) -> Memory:
    shape = (*memory.shape[:axis], size, *memory.shape[axis + 1 :])
    return replace(memory, shape=shape, offset=memory.offset + start * memory.strides[axis])


def _roll(state: Lowerer, node: Node) -> None:
    """Two copies: what moves up, and what comes in again at the start."""
    source, shift, axis = state.place(node.inputs[0]), node.attributes["shift"], node.attributes.get("axis")
    if axis is None:
        if len(source.shape) != 1:
            raise NotLowered("roll of a flattened array")
        axis = 0
    if not isinstance(axis, int) or isinstance(shift, tuple | list | Value | float):
        raise NotLowered("roll along several axes, or by a computed number")
    axis = normalize_axis(axis, len(source.shape))
    size = source.shape[axis]
    # dim_max: no division by zero where there is nothing to move
    moved = shift % (dim_max(size, 1) if not isinstance(size, int) else max(size, 1))
    rest = size - moved
    for whole in state.destinations(node.outputs[0]):
        state.nests.copy(_part(source, axis, 0, rest), _part(whole, axis, moved, rest))
        state.nests.copy(_part(source, axis, rest, moved), _part(whole, axis, 0, moved))


def _pad(state: Lowerer, node: Node) -> None:
    """A fill, and a copy into the middle."""
    source, output = state.place(node.inputs[0]), array_type(node.outputs[0])
    pairs = pad_pairs(node.attributes["pad_width"], len(source.shape))
    constant = node.attributes.get("constant_values", 0)
    if node.attributes.get("mode", "constant") != "constant" or not isinstance(constant, int | float | bool):
        raise NotLowered(f"pad in mode {node.attributes.get('mode')}, or with several values")
    value = Const(constant, output.dtype)
    for whole in state.destinations(node.outputs[0]):
        state.nests.fill(whole, lambda index: value)
        start = whole.offset
        for (before, _), stride in zip(pairs, whole.strides, strict=True):
            start = start + before * stride
        state.nests.copy(source, replace(whole, shape=source.shape, offset=start))


def join(state: Lowerer, node: Node, pieces: Sequence[Memory], axis: int) -> None:
    """The pieces one behind the other along an axis of the node's result."""
    output = array_type(node.outputs[0])
    for whole in state.destinations(node.outputs[0]):
        start: DimLike = 0
        for number, piece in enumerate(pieces):
            for a, (mine, whole_size) in enumerate(zip(piece.shape, output.shape, strict=True)):
                if a != axis:
                    state.require_equal(mine, whole_size, node.origin)
            offset = whole.offset + start * whole.strides[axis]
            target = replace(whole, shape=piece.shape, offset=offset)
            continued = number == 0 and whole.root.name in state.continued
            if not continued and not is_in_place(piece, target):
                state.nests.copy(piece, target)
            start = start + piece.shape[axis]


def _stacked(state: Lowerer, node: Node) -> None:
    """vstack, hstack, column_stack: concat after vectors were made rows or columns."""
    name = node.operator
    if node.attributes.get("dtype") is not None:
        raise NotLowered(f"{name} with a dtype")
    pieces = []
    for value in node.inputs:
        memory = state.place(value)
        if len(memory.shape) == 0:
            raise NotLowered(f"{name} of scalars")
        if len(memory.shape) == 1 and name != "hstack":
            row = name == "vstack"
            shape = (1, *memory.shape) if row else (*memory.shape, 1)
            strides = (0, *memory.strides) if row else (*memory.strides, 0)
            memory = replace(memory, shape=shape, strides=strides)
        pieces.append(memory)
    axis = 0 if name == "vstack" or len(pieces[0].shape) == 1 else 1
    join(state, node, pieces, axis)


def _unstack(state: Lowerer, node: Node) -> None:
    memory = state.place(node.inputs[0])
    axis = normalize_axis(node.attributes.get("axis", 0), len(memory.shape))
    state.require_equal(memory.shape[axis], len(node.outputs), node.origin)
    for number, output in enumerate(node.outputs):
        piece = replace(
            memory,
            shape=memory.shape[:axis] + memory.shape[axis + 1 :],
            strides=memory.strides[:axis] + memory.strides[axis + 1 :],
            offset=memory.offset + number * memory.strides[axis],
        )
        if isinstance(output.type, ArrayType):
            state.memory[output] = piece
        else:
            state.scalars[output] = state.nests.load_scalar(piece)


def _copy(state: Lowerer, node: Node) -> None:
    """copy, array, asarray: the same elements in memory of their own, perhaps as another dtype."""
    (source,) = node.inputs
    if node.attributes.get("ndmin", 0):
        raise NotLowered(f"{node.operator} with ndmin")
    array = isinstance(source.type, ArrayType) and source.type.rank > 0
    for whole in state.destinations(node.outputs[0]):
        if array:
            state.nests.copy(state.place(source), whole)
        else:
            state.nests.store_scalar(whole, state.scalar(source))


RULES: Mapping[str, Rule] = {
    "diagonal": _diagonal,
    "diag": _diag,
    "eye": _eye,
    "linspace": _linspace,
    "tri": _tri,
    "tile": _tile,
    "repeat": _repeat,
    "roll": _roll,
    "pad": _pad,
    **dict.fromkeys(("vstack", "hstack", "column_stack"), _stacked),
    "unstack": _unstack,
    **dict.fromkeys(("copy", "array", "asarray", "ascontiguousarray"), _copy),
}
