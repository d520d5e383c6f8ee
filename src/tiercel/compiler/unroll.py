"""Write out short loops of elementwise work, so that their passes become one loop nest.

    for t in 0..10: x = f(x)       ->      x1 = f(x); x2 = f(x1); ... x10 = f(x9)

In: a region graph whose loops have been looked at by `hoist`. Out: the same graph without the loops that `why_not`
has nothing against. Passes of such a loop read and write whole arrays; written out, the elements stay in registers.
The same operators run on the same operands in the same order. The counter becomes a number in each pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tiercel.compiler.elementwise import is_elementwise
from tiercel.compiler.fuse import MAX_MEMBERS, is_row_reduction
from tiercel.compiler.graph import Branch, Graph, Guard, Loop, Node, Region, Step, Value, is_constant
from tiercel.operators.types import ArrayType, PyIntType, Type
from tiercel.shapes import Dim, DimLike, Symbol, substitute

__all__ = ["unroll_loops", "why_not"]

_VIEWS: Final = frozenset(("index", "expand_dims", "squeeze", "broadcast_to"))
_FIRST_NUMBER: Final = 3_000_000  # of new values; the stages before begin at one and two millions


def unroll_loops(region: Region) -> Region:
    """Write out the short loops of a region; the same object if there are none."""
    graph = _graph(region.graph, itertools.count(_FIRST_NUMBER))
    return region if graph is region.graph else replace(region, graph=graph)


def why_not(loop: Loop) -> str | None:
    """Why a loop stays a loop; None where it is written out."""
    passes = trips(loop)
    if passes is None or loop.header is not None:
        return "the number of passes is not known"
    if loop.once is not None or loop.ahead is not None or loop.collected:
        return "its passes share work or collect results"
    if not 1 <= passes * len(loop.body.steps) <= MAX_MEMBERS:
        return "written out it is too long"
    makers = {v: step for step in loop.body.steps if isinstance(step, Node) for v in step.outputs}
    for step in loop.body.steps:
        if not isinstance(step, Node) or step.writes is not None or len(step.outputs) != 1:
            return "it does more than compute values"
        if not is_elementwise(step) and not is_row_reduction(step) and step.operator not in _VIEWS:
            return f"{step.operator} is not computed element by element or row by row"
    seen: set[Value] = set()
    for carried in loop.carried:
        if carried.in_place or carried.next not in makers or carried.next in seen:
            return f"{carried.after} is not a value of its own in each pass"
        seen.add(carried.next)
        if not carried.initial.type == carried.inside.type == carried.next.type == carried.after.type:
            return f"{carried.after} has another type in the first pass"
    if not any(is_elementwise(step) and isinstance(v.type, ArrayType) for v, step in makers.items()):
        return "there is nothing to fuse"
    return None


def trips(loop: Loop) -> int | None:
    """How many passes a loop makes, None where that depends on the call."""
    trip: Any = loop.trip
    if isinstance(trip, Value):
        trip = trip.type.value if isinstance(trip.type, PyIntType) else None
    return trip if isinstance(trip, int) else None


def _graph(graph: Graph, numbers: itertools.count[int]) -> Graph:
    new: list[Step] = []
    for step in graph.steps:
        match step:
            case Branch():
                then, orelse = _graph(step.then, numbers), _graph(step.orelse, numbers)
                same = then is step.then and orelse is step.orelse
                new.append(step if same else replace(step, then=then, orelse=orelse))
            case Loop():
                body = _graph(step.body, numbers)
                loop = step if body is step.body else replace(step, body=body)
                new += [loop] if why_not(loop) is not None else _passes(loop, numbers)
            case Node() | Guard():
                new.append(step)
    if len(new) == len(graph.steps) and all(a is b for a, b in zip(new, graph.steps, strict=True)):
        return graph
    return Graph(tuple(new))


def _passes(loop: Loop, numbers: itertools.count[int]) -> list[Node]:
    """The steps of all passes; those of the last define what is seen after the loop."""
    type_ = loop.index.type if loop.index is not None else None
    symbol = type_.value if isinstance(type_, PyIntType) and isinstance(type_.value, Symbol) else None
    passes = trips(loop)
    assert passes is not None
    here = {c.inside: c.initial for c in loop.carried}
    after = {c.next: c.after for c in loop.carried}
    made: list[Node] = []
    for number in range(passes):
        names: dict[Value, Value] = dict(here)
        if loop.index is not None:
            names[loop.index] = Value(next(numbers), PyIntType(number))
        counter = {} if symbol is None else {symbol.name: number}
        for step in loop.body.steps:
            assert isinstance(step, Node)
            inputs = tuple(_operand(v, names, counter, numbers) for v in step.inputs)
            old = step.outputs[0]
            last = number == passes - 1 and old in after
            output = after[old] if last else Value(next(numbers), _type(old.type, counter), old.name)
            names[old] = output
            made.append(
                replace(step, inputs=inputs, attributes=_at(step.attributes, counter, names), outputs=(output,))
            )
        here = {c.inside: names[c.next] for c in loop.carried}
    return made


def _operand(value: Value, names: Mapping[Value, Value], counter: Mapping[str, DimLike], numbers: Any) -> Value:
    if value in names:
        return names[value]
    if counter and is_constant(value) and (type_ := _type(value.type, counter)) != value.type:
        return Value(next(numbers), type_, value.name)
    return value


def _type(type_: Type, counter: Mapping[str, DimLike]) -> Type:
    """The type with the counter's number in its sizes."""
    if isinstance(type_, ArrayType):
        return replace(type_, shape=tuple(substitute(d, counter) for d in type_.shape))
    if isinstance(type_, PyIntType) and type_.value is not None:
        return replace(type_, value=substitute(type_.value, counter))
    return type_


def _at(data: Any, counter: Mapping[str, DimLike], names: Mapping[Value, Value]) -> Any:
    """Attributes in one pass."""
    if isinstance(data, Value):
        return names.get(data, data)
    if isinstance(data, Dim):
        return substitute(data, counter)
    if isinstance(data, Mapping):
        return {key: _at(item, counter, names) for key, item in data.items()}
    if type(data) is tuple:
        return tuple(_at(item, counter, names) for item in data)
    if type(data) is list:
        return [_at(item, counter, names) for item in data]
    if isinstance(data, slice):
        return slice(*(_at(part, counter, names) for part in (data.start, data.stop, data.step)))
    return data
