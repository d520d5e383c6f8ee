"""Parts of a concatenation or a stack are computed where they go, instead of elsewhere and copied.

In: the graph whose steps are about to be lowered. Out: wanted places in the `Lowerer`, for the parts `why_not` has
nothing against. The joining step finds these parts in place and copies the others only. Invariant: a part has exactly
the sizes of its place, provably; a place is made before all steps of its graph, so its sizes are known by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.compiler.fuse import is_contraction
from tiercel.compiler.graph import Graph, Node, Value
from tiercel.compiler.memory import Memory
from tiercel.operators.types import ArrayType
from tiercel.shapes import DimLike, normalize_axis, symbols_of

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer

__all__ = ["is_in_place", "plan_places", "why_not"]

_MOVING = ("reshape", "transpose", "index", "squeeze", "expand_dims", "broadcast_to", "split", "identity", "flip")
"""Operators whose results are views: they are not computed anywhere."""


def plan_places(state: Lowerer, graph: Graph) -> None:
    """Want the parts of this graph's concatenations and stacks at their places."""
    makers = {v: step for step in graph.steps if isinstance(step, Node) for v in step.outputs}
    for node in graph.steps:
        if not isinstance(node, Node) or node.operator not in ("concat", "stack") or not _plannable(state, node):
            continue
        parts = [(v, place) for v, place in _parts(node) if why_not(state, node, v, makers, place[0]) is None]
        if not parts:
            continue
        output = node.outputs[0]
        whole = state.new_arena(output)
        state.want(output, whole)
        axis = _axis(node)
        for value, (shape, start) in parts:
            strides = whole.strides if node.operator == "concat" else whole.strides[:axis] + whole.strides[axis + 1 :]
            state.want(value, replace(whole, shape=shape, strides=strides, offset=start * whole.strides[axis]))


def why_not(
    state: Lowerer, node: Node, value: Value, makers: dict[Value, Node], shape: tuple[DimLike, ...]
) -> str | None:
    """Why a part of a concatenation or stack is copied there; None where it is computed in place."""
    maker, type_, output = makers.get(value), value.type, node.outputs[0].type
    if maker is None or maker.operator in _MOVING or len(maker.outputs) != 1 or maker.writes is not None:
        return "no step of this graph computes it"
    if not isinstance(type_, ArrayType) or not isinstance(output, ArrayType) or type_.dtype is not output.dtype:
        return "it has another dtype"
    if state.uses.get(value, []) != [node] or value in state.storages or value in state.wanted:
        return "something else uses it"
    if any(value is r for r in state.returned):
        return "it is a result"
    if len(type_.shape) != len(shape) or any(
        a != b and state.facts.equal(a, b) is not True for a, b in zip(type_.shape, shape, strict=True)
    ):
        return "its sizes may be others"
    if is_contraction(maker) and type_.rank > 2 and _axis(node) > 0:
        return "the rows of a product would not lie evenly"
    return None


def is_in_place(part: Memory, place: Memory) -> bool:
    """Has a part been computed at its place?"""
    return part.root is place.root and part.offset == place.offset and part.strides == place.strides


def _plannable(state: Lowerer, node: Node) -> bool:
    output = node.outputs[0]
    type_ = output.type
    if not isinstance(type_, ArrayType) or not isinstance(node.attributes.get("axis", 0), int):
        return False
    if output in state.wanted or output in state.storages or any(output is r for r in state.returned):
        return False
    return all(s.kind == "input" for d in type_.shape for s in symbols_of(d))


def _axis(node: Node) -> int:
    type_ = node.outputs[0].type
    assert isinstance(type_, ArrayType)
    return normalize_axis(node.attributes.get("axis", 0), type_.rank)


def _parts(node: Node) -> Iterator[tuple[Value, tuple[tuple[DimLike, ...], DimLike]]]:
    """Each operand with the shape of its place, and where along the axis that begins."""
    type_, axis = node.outputs[0].type, _axis(node)
    assert isinstance(type_, ArrayType)
    start: DimLike = 0
    for value in node.inputs:
        own = value.type.shape if isinstance(value.type, ArrayType) else ()
        if node.operator == "stack":
            yield value, (type_.shape[:axis] + type_.shape[axis + 1 :], start)
            start = start + 1
            continue
        if len(own) != type_.rank:
            return
        yield value, ((*type_.shape[:axis], own[axis], *type_.shape[axis + 1 :]), start)
        start = start + own[axis]
