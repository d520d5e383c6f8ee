"""Movement rows: what only rearranges elements becomes an index map; a copy is made where strides cannot say it.

In: a node whose operands have memory. Out: the memory of its results (entries in `Lowerer.memory`), and copy loops
where needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.compiler import arrange
from tiercel.compiler.arrange import join
from tiercel.compiler.bags import lower_bag
from tiercel.compiler.convolution import lower_summed
from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered
from tiercel.compiler.fuse import REDUCTIONS
from tiercel.compiler.gather import (
    has_arrays,
    lower_along,
    lower_gather_nd,
    lower_index,
    lower_one_hot,
    lower_take,
    write_selected,
)
from tiercel.compiler.graph import Node
from tiercel.compiler.maker import array_type
from tiercel.compiler.memory import Memory
from tiercel.compiler.places import is_in_place
from tiercel.compiler.reductions import lower_reduction
from tiercel.compiler.refusals import REASONS
from tiercel.compiler.scans import lower_position, lower_running
from tiercel.compiler.selecting import lower_nonzero
from tiercel.compiler.sorting import lower_argsort, lower_sort, lower_topk
from tiercel.compiler.subscript import selected
from tiercel.compiler.windows import lower_pool
from tiercel.loops.form import INDEX, Compare, Const, Expr, Unary
from tiercel.loops.index import index_add, index_mul
from tiercel.operators.types import ArrayType
from tiercel.shapes import Dim, DimLike, normalize_axis, product

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer

Rule = Callable[["Lowerer", Node], None]

WITHIN = "within"
"""Attribute of an `index`: what the key selects is known to be there, and positions are not negative."""
REORDERING = ("transpose", "moveaxis", "swapaxes", "matrix_transpose")


def permutation(node: Node) -> list[int] | None:
    """Axes of the operand in the order of the result, for operators that only reorder axes."""
    type_ = node.inputs[0].type
    if not isinstance(type_, ArrayType):
        return None
    rank, attributes = type_.rank, node.attributes
    order = list(range(rank))
    match node.operator:
        case "transpose":
            axes = attributes.get("axes")
            return order[::-1] if axes is None else [a % rank for a in axes]
        case "matrix_transpose":
            return [*order[:-2], order[-1], order[-2]]
        case "swapaxes":
            a, b = attributes["axis1"] % rank, attributes["axis2"] % rank
            order[a], order[b] = order[b], order[a]
            return order
        case "moveaxis":
            source, target = attributes["source"], attributes["destination"]
            sources = [source % rank] if isinstance(source, int) else [s % rank for s in source]
            targets = [target % rank] if isinstance(target, int) else [t % rank for t in target]
            order = [a for a in order if a not in sources]
            for to, axis in sorted(zip(targets, sources, strict=True)):
                order.insert(to, axis)
            return order
    return None


def _reorder(state: Lowerer, node: Node) -> None:
    order = permutation(node)
    if order is None:
        raise NotLowered(f"{node.operator} of a scalar")
    state.memory[node.outputs[0]] = state.place(node.inputs[0]).permuted(order)


def _reshape(state: Lowerer, node: Node) -> None:
    """reshape, ravel, flatten, squeeze, expand_dims: the same elements in C order."""
    if node.attributes.get("order", "C") != "C":
        raise NotLowered(f"{node.operator} in {node.attributes['order']} order")
    source, output = node.inputs[0], node.outputs[0]
    if not isinstance(output.type, ArrayType):
        # an array of one element that became a scalar
        if source in state.scalars:
            state.scalars[output] = state.scalars[source]
        else:
            memory = state.place(source)
            state.scalars[output] = state.nests.load_scalar(replace(memory, shape=(), strides=()))
        return
    if source in state.scalars:
        state.scalars[output] = state.scalars[source]
        return
    memory = state.place(source)
    shape = output.type.shape
    if node.operator == "squeeze":
        kept = list(shape)
        for dim in memory.shape:
            if kept and dim == kept[0]:
                kept.pop(0)
            else:
                state.require_equal(dim, 1, node.origin)
    else:
        state.require_equal(product(memory.shape), product(shape), node.origin)
    view = memory.reshaped(shape)
    if view is None:
        compact = state.new_arena(source)
        state.nests.copy(memory, compact)
        view = compact.reshaped(shape)
        assert view is not None
    state.memory[output] = view


def _broadcast_to(state: Lowerer, node: Node) -> None:
    output = array_type(node.outputs[0])
    memory = state.place(node.inputs[0])
    strides = state.nests.strides_over(memory, output.shape, node.origin)
    state.memory[node.outputs[0]] = replace(memory, shape=output.shape, strides=strides)


def _split(state: Lowerer, node: Node) -> None:
    memory = state.place(node.inputs[0])
    axis = normalize_axis(node.attributes.get("axis", 0), len(memory.shape))
    offset: DimLike = memory.offset
    sections = node.attributes.get("sections")
    if node.operator == "split" and isinstance(sections, int):
        state.require_equal(memory.shape[axis] % sections, 0, node.origin)
    elif not isinstance(sections, int):
        raise NotLowered("a split at given positions")
    for output in node.outputs:
        shape = array_type(output).shape
        state.memory[output] = replace(memory, shape=shape, offset=offset)
        offset = offset + shape[axis] * memory.strides[axis]


def _flip(state: Lowerer, node: Node) -> None:
    memory = state.place(node.inputs[0])
    rank = len(memory.shape)
    axis = {"flipud": 0, "fliplr": 1}.get(node.operator, node.attributes.get("axis"))
    axes = range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
    for a in (normalize_axis(a, rank) for a in axes):
        strides = list(memory.strides)
        offset = memory.offset + (memory.shape[a] - 1) * strides[a]
        strides[a] = -strides[a]
        memory = replace(memory, strides=tuple(strides), offset=offset)
    state.memory[node.outputs[0]] = memory


def _concat(state: Lowerer, node: Node) -> None:
    output = array_type(node.outputs[0])
    axis = node.attributes.get("axis", 0)
    if axis is None:
        raise NotLowered("concat of flattened arrays")
    join(state, node, [state.place(value) for value in node.inputs], normalize_axis(axis, output.rank))


def _stack(state: Lowerer, node: Node) -> None:
    output = array_type(node.outputs[0])
    axis = normalize_axis(node.attributes.get("axis", 0), output.rank)
    for whole in state.destinations(node.outputs[0]):
        shape = whole.shape[:axis] + whole.shape[axis + 1 :]
        strides = whole.strides[:axis] + whole.strides[axis + 1 :]
        for number, value in enumerate(node.inputs):
            if isinstance(value.type, ArrayType):
                for mine, wanted in zip(value.type.shape, shape, strict=True):
                    state.require_equal(mine, wanted, node.origin)
            target = replace(whole, shape=shape, strides=strides, offset=whole.offset + number * whole.strides[axis])
            if isinstance(value.type, ArrayType) and value.type.rank:
                if not is_in_place(state.place(value), target):
                    state.nests.copy(state.place(value), target)
            else:
                state.nests.store_scalar(target, state.scalar(value))


def _index(state: Lowerer, node: Node) -> None:
    """Ints, slices, None and Ellipsis give a view, integer arrays a copy. The key is `attributes["key"]`."""
    key = node.attributes.get("key", node.inputs[1] if len(node.inputs) > 1 else None)
    if has_arrays(key):
        lower_index(state, node)
        return
    output = node.outputs[0]
    within = bool(node.attributes.get(WITHIN, False))
    result = selected(state, state.place(node.inputs[0]), key, node.origin, within=within)
    if isinstance(output.type, ArrayType):
        # in the sizes typing found: equal values, perhaps another form
        state.memory[output] = replace(result, shape=output.type.shape)
    else:
        state.scalars[output] = state.nests.load_scalar(result)


def _index_put(state: Lowerer, node: Node) -> None:
    """A copy in which the elements that the key `attributes["indices"]` selects are replaced.

    No copy if the node writes in place.
    """
    x, value = node.inputs[:2]
    source, output = state.place(x), node.outputs[0]
    if node.writes is not None:
        state.memory[output] = source
    places = [source] if node.writes is not None else state.destinations(output)
    if node.writes is None:
        for whole in places:
            state.nests.copy(source, whole)
    if has_arrays(node.attributes["indices"]):
        for whole in places:
            write_selected(state, whole, node.attributes["indices"], value, node.origin)
        return
    array = isinstance(value.type, ArrayType) and value.type.rank > 0
    element = None if array else state.scalar(value)
    for whole in places:
        target = selected(state, whole, node.attributes["indices"], node.origin)
        if element is None:
            memory = state.place(value)
            strides = state.nests.strides_over(memory, target.shape, node.origin)
            state.nests.copy(replace(memory, shape=target.shape, strides=strides), target)
        elif target.shape:
            _fill_with(state, target, element)
        else:
            state.nests.store_scalar(target, element)


def _fill_with(state: Lowerer, target: Memory, element: Expr) -> None:
    state.nests.fill(target, lambda index: element)


def _fill(state: Lowerer, node: Node) -> None:
    """zeros, ones, full, empty and their _like forms: one value everywhere; what is empty may hold anything."""
    output = array_type(node.outputs[0])
    if node.operator.startswith("full"):
        value = state.scalar(node.inputs[1 if node.operator == "full_like" else 0])
    else:
        value = Const(1 if node.operator.startswith("ones") else 0, output.dtype)
    for memory in state.destinations(node.outputs[0]):
        state.nests.fill(memory, lambda index: value)


def _arange(state: Lowerer, node: Node) -> None:
    """start + i * step."""
    output = array_type(node.outputs[0])
    given = node.attributes
    first = 0 if given.get("stop") is None else given["start"]
    each = 1 if given.get("step") is None else given["step"]
    if not isinstance(first, int | Dim) or not isinstance(each, int):
        raise NotLowered("arange of floats")
    if output.dtype.kind not in "iu":
        _require_counting(state, node, first, each)

    def element(index: tuple[Expr, ...]) -> Expr:
        return index_add(dim_expression(first), index_mul(index[0], dim_expression(each)))

    for memory in state.destinations(node.outputs[0]):
        state.nests.fill(memory, element)


def _require_counting(state: Lowerer, node: Node, first: DimLike, each: int) -> None:
    """Leave where an arange of floats is not just its ints converted.

    NumPy adds i times the difference of the first two, each rounded: the same as long as all of them are exact.
    """
    output = array_type(node.outputs[0])
    if output.dtype.name not in EXACT_INTS:
        raise NotLowered(f"arange of {output.dtype.name}")
    if first == 0 and each == 1:
        return
    most = EXACT_INTS[output.dtype.name]
    for end in (first, first + output.shape[0] * each):
        if isinstance(end, int):
            if abs(end) > most:
                raise NotLowered("arange of floats beyond what they count exactly")
            continue
        state.require(Compare("le", Unary("abs", dim_expression(end)), Const(most, INDEX)), node.origin)


EXACT_INTS: Mapping[str, int] = {"float32": 1 << 24, "float64": 1 << 53}
"""Up to where floats have every int."""


def _triangle(state: Lowerer, node: Node) -> None:
    """tril and triu: zero on one side of a diagonal."""
    source = state.place(node.inputs[0])
    k = node.attributes.get("k", 0)
    if not isinstance(k, int) or len(source.shape) < 2:
        raise NotLowered(f"{node.operator} of a vector or a computed diagonal")
    lower = node.operator == "tril"
    for memory in state.destinations(node.outputs[0]):
        state.nests.triangle(source, memory, k, lower=lower)


def _same(state: Lowerer, node: Node) -> None:
    """identity, stop_gradient: the operand itself."""
    source, output = node.inputs[0], node.outputs[0]
    if source in state.scalars:
        state.scalars[output] = state.scalars[source]
    else:
        state.memory[output] = state.place(source)


def _reduce(state: Lowerer, node: Node) -> None:
    picked = state.deferred.get(node.inputs[0])
    if picked is not None:
        lower_bag(state, node, picked)
        return
    if not lower_summed(state, node):
        lower_reduction(state, node)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(REORDERING, _reorder),
    **dict.fromkeys(("reshape", "ravel", "flatten", "squeeze", "expand_dims"), _reshape),
    "broadcast_to": _broadcast_to,
    "split": _split,
    "array_split": _split,
    **dict.fromkeys(("flip", "flipud", "fliplr"), _flip),
    "concat": _concat,
    "stack": _stack,
    "index": _index,
    "index_put": _index_put,
    **dict.fromkeys(("embedding", "take", "gather"), lower_take),
    **dict.fromkeys(("take_along_axis", "gather_elements"), lower_along),
    "gather_nd": lower_gather_nd,
    **dict.fromkeys(("zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like"), _fill),
    "arange": _arange,
    **dict.fromkeys(("tril", "triu"), _triangle),
    **dict.fromkeys(("identity", "stop_gradient"), _same),
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(("argmax", "argmin"), lower_position),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d"), lower_pool),
    **dict.fromkeys(("nonzero", "flatnonzero"), lower_nonzero),
    "sort": lower_sort,
    "argsort": lower_argsort,
    "topk": lower_topk,
    "one_hot": lower_one_hot,
    **dict.fromkeys(("cumsum", "cumprod"), lower_running),
    **arrange.RULES,
}


def movement(state: Lowerer, node: Node) -> None:
    """Lower a node that stands by itself.

    Raises:
        NotLowered: there is no rule for its operator.
    """
    rule = RULES.get(node.operator)
    if rule is None:
        reason = REASONS.get(node.operator)
        raise NotLowered(f"{node.operator} has no machine code{f': {reason}' if reason else ''}", node.origin)
    rule(state, node)
    for output in node.outputs:
        state.settle(output)
