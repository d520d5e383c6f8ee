"""Leave it to a product to widen its right operand.

    v = astype(w, float32); x @ v   ->   x @ w      where w is float16 or bfloat16; int32: where it is a smaller integer

In: a region whose composites are expanded. Out: the same region, in which such products read w itself: their kernels
widen elements, exactly, as they load them (`codegen.cpu.mixed`), so that no copy of w in twice its size is made, and a
frozen w is packed as it is. Conversions that nobody needs any more are left out. In loops only what is frozen is taken:
anything else is better widened once, before the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tiercel.compiler.graph import Branch, Graph, Loop, Node, Region, Result, Step, Value, own_uses, steps
from tiercel.loops.form import NARROW
from tiercel.operators.types import ArrayType

__all__ = ["take_casts"]


def take_casts(region: Region) -> Region:
    """The region with products that widen; the same object when it has none."""
    wide: dict[Value, Value] = {}
    for step in steps(region.graph):
        if isinstance(step, Node) and _widens(step):
            wide[step.outputs[0]] = step.inputs[0]
    if not wide or not any(_takes(step, wide) for step in steps(region.graph)):
        return region
    frozen = frozenset(given.value for given in region.inputs if given.frozen)
    graph = _rewritten(region.graph, wide, frozenset(), frozen)
    used = {value for step in steps(graph) for value in own_uses(step)}
    used.update(v for exit_ in region.exits.values() for result in exit_.values() for v in _handed_over(result))
    used.update(write.value for write in region.writes)
    return replace(region, graph=_rewritten(graph, {}, frozenset(wide) - used, frozen))


def _widens(node: Node) -> bool:
    """Is it an astype of a matrix or a stack that a product can do?"""
    if node.operator != "astype":
        return False
    to, of = node.outputs[0].type, node.inputs[0].type
    return (
        isinstance(to, ArrayType) and isinstance(of, ArrayType) and of.rank > 1
        and of.dtype.name in NARROW.get(to.dtype.name, ())
    )  # fmt: skip


def _takes(step: Step, wide: dict[Value, Value]) -> bool:
    return isinstance(step, Node) and step.operator in ("matmul", "dot") and step.inputs[1] in wide


def _rewritten(graph: Graph, wide: dict[Value, Value], dropped: frozenset[Value], frozen: frozenset[Value]) -> Graph:
    """Products take what was widened, and the nodes that define what is dropped are left out."""
    made: list[Step] = []
    for step in graph.steps:
        match step:
            case Node() if any(v in dropped for v in step.outputs):
                continue
            case Node() if _takes(step, wide):
                made.append(replace(step, inputs=(step.inputs[0], wide[step.inputs[1]])))
            case Loop():
                inside = {value: source for value, source in wide.items() if source in frozen}
                header = None if step.header is None else _rewritten(step.header, inside, dropped, frozen)
                made.append(replace(step, header=header, body=_rewritten(step.body, inside, dropped, frozen)))
            case Branch():
                then, orelse = (_rewritten(g, wide, dropped, frozen) for g in (step.then, step.orelse))
                made.append(replace(step, then=then, orelse=orelse))
            case _:
                made.append(step)
    return Graph(tuple(made))


def _handed_over(result: Result) -> Iterator[Value]:
    yield from (v for v in (result.value, result.base, result.tag) if v is not None)
    for item in result.items:
        yield from _handed_over(item)
