"""The region graph: a typed region as SSA values with symbolic dims, and structured loops and branches.

In: what `compiler.typing` found out about one region of bytecode for one Signature. Out: what `compiler.fuse` groups
into
kernels. Semantics:

* Every `Value` is defined once: as a region input, by a `Node`, as a body parameter of a `Loop`, or as the merged
  result of a `Loop` or `Branch`. A definition precedes all uses; a graph sees the values of the graphs around it.
* Values never change. A write to an array makes a new `Value` of the same type (`Node.writes` names the operand whose
  storage it takes over); reading the old one afterwards is an error that the checker finds.
* Dims of types are expressions over the region's symbols. Data symbols are defined by the node that makes them.
* `Node.origin` is the instruction index in the function: the site where the interpreter would go on.
* Steps run in order; only nodes of pure operators may be moved or dropped.

A list that is only appended to in a loop and stacked afterwards is `Collected`: its elements along a new first axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tiercel.operators.types import ArrayType, NoneType, PyBoolType, PyComplexType, PyFloatType, PyIntType, Type
from tiercel.shapes import DimLike, Facts, Symbol


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An SSA value. Compared by identity; `number` and `name` are for people."""

    number: int
    type: Type
    name: str = ""

    def __str__(self) -> str:
        return f"%{self.name or self.number}"


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One application of an operator of the table.

    Attributes:
        operator: name in the operator table.
        inputs: operands; an operand sequence (concat, stack) is spread, `attributes["operands"]` keeps the split if
        needed. attributes: static attributes, in which a Dim or a scalar `Value` may stand for an int. outputs: one
        value per result. origin: instruction index. writes: index of the input whose storage the first output takes
        over, None for fresh results and views.
    """

    operator: str
    inputs: tuple[Value, ...]
    attributes: Mapping[str, Any]
    outputs: tuple[Value, ...]
    origin: int
    writes: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """A loop-carried value: `initial` before, `inside` at the start of an iteration, `next` at its end, `after` the
    loop. `in_place`: all four are in the storage of `initial`.
    """

    initial: Value
    inside: Value
    next: Value
    after: Value
    in_place: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """Element `inside` of each iteration, together `after`: shape (trip count, *inside.shape)."""

    inside: Value
    after: Value


@dataclass(frozen=True, slots=True, eq=False)
class Ahead:
    """What a counted loop computes for several passes together, before the first of them (made by `hoist`).

    Attributes:
        graph: runs before every pass whose counter is a multiple of `passes`.
        passes: how many passes it is for, at most; at least 1; of input symbols.
        start, count: symbols that `graph` and the loop's body may speak of: the first of these passes, and their
            number (`passes`, or as many as are left).
    """

    graph: Graph
    passes: DimLike
    start: Symbol
    count: Symbol


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A counted loop (`trip` given, `index` its counter) or a while loop (`condition` computed by `header`).

    `header` runs before every iteration and once more before leaving; it sees the `inside` values. Values defined in it
    are visible in `body`. `once` runs at the start of the first iteration and sees what is outside of the loop; `ahead`
    sees that as well, and `body` sees the values of both.
    """

    trip: DimLike | Value | None
    index: Value | None
    header: Graph | None
    condition: Value | None
    body: Graph
    carried: tuple[Carried, ...]
    collected: tuple[Collected, ...]
    origin: int
    once: Graph | None = None
    ahead: Ahead | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """A value that a branch chooses: `then` or `orelse`, known as `after`; `in_place`: all in one storage."""

    then: Value
    orelse: Value
    after: Value
    in_place: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """`if condition: then else: orelse`; both arms are compiled."""

    condition: Value
    then: Graph
    orelse: Graph
    merged: tuple[Merged, ...]
    origin: int


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """Leave the region at `origin` unless `condition` holds. `reason` is for people. Nothing visible was written
    before.
    """

    condition: Value
    reason: str
    origin: int


Step: TypeAlias = Node | Loop | Branch | Guard


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Steps in program order."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """A value the region is entered with.

    Attributes:
        value: its type carries the dims: ints are guarded to be exactly that, a symbol is bound by its first
            occurrence (inputs in order, dims in order) and guarded to agree at every other.
        source: where it comes from: ("register", r) a live-in, ("global", name), ("attribute", text path),
            ("constant", operand).
        frozen: the value cannot change unseen; a kernel may pack it and a new one may be keyed by it.
    """

    value: Value
    source: tuple[str, Any]
    frozen: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What a register holds, or what is returned, when the region is left by one of its exits.

    `what` is "value" (a fresh array or scalar), "input" (that very object: `index` of the input), "view" (`value`, a
    look into the input `index` as it is at the end, or into the fresh array `base`), "either" (the input whose number
    `tag` is, or the fresh array `value` where that is below 0), or a container: "tuple", "list", "none", "constant"
    (`constant`). The same fresh array or view is one object wherever it is handed over.
    """

    what: Literal["value", "input", "view", "either", "tuple", "list", "none", "constant"]
    value: Value | None = None
    index: int | None = None
    items: tuple[Result, ...] = ()
    constant: Any = None
    wrap: int = -1  # of a named tuple: the number of its class in the environment
    base: Value | None = None
    tag: Value | None = None
    choices: tuple[int, ...] = ()  # the inputs that `tag` may name


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """What the memory of an array input holds when the region has come to its end.

    Attributes:
        index: of the input.
        value: its elements, of the input's dtype and sizes.
        whole: every element is written; else those whose bits are others than before.
    """

    index: int
    value: Value
    whole: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A typed region: what is compiled as a whole.

    `exits` maps the label of an exit (an instruction index to continue at, or "return") to what it hands over:
    register number (or "return") -> Result. `sample` holds the sizes of the call the region was made for, by symbol: a
    kernel is tried on sizes like them. `writes` are the inputs whose memory changes: after everything else, and only if
    the region comes to its end.
    """

    name: str
    function: int
    start: int
    inputs: tuple[Input, ...]
    graph: Graph
    exits: Mapping[int | str, Mapping[int | str, Result]]
    facts: Facts
    signature: str = ""
    notes: tuple[str, ...] = field(default_factory=tuple)
    sample: Mapping[str, int] = field(default_factory=dict)
    writes: tuple[Write, ...] = ()


def is_constant(value: Value) -> bool:
    """A Python number or size that its type tells, or None: it needs no definition."""
    type_ = value.type
    if isinstance(type_, PyIntType | PyFloatType | PyBoolType | PyComplexType):
        return type_.value is not None
    return isinstance(type_, NoneType)


def steps(graph: Graph) -> Iterator[Step]:
    """All steps, outer ones before those inside them."""
    for step in graph.steps:
        yield step
        for inner in graphs(step):
            yield from steps(inner)


def graphs(step: Step) -> tuple[Graph, ...]:
    """The graphs inside a step."""
    match step:
        case Loop():
            ahead = None if step.ahead is None else step.ahead.graph
            return tuple(g for g in (step.header, step.once, ahead, step.body) if g is not None)
        case Branch():
            return (step.then, step.orelse)
        case Node() | Guard():
            return ()


def values_in(data: Any) -> Iterator[Value]:
    """The values among attributes, at any depth."""
    if isinstance(data, Value):
        yield data
    elif isinstance(data, Mapping):
        for item in data.values():
            yield from values_in(item)
    elif isinstance(data, tuple | list):
        for item in data:
            yield from values_in(item)
    elif isinstance(data, slice):
        yield from values_in((data.start, data.stop, data.step))


def own_uses(step: Step) -> Iterator[Value]:
    """The values a step uses itself, those its graphs use aside."""
    match step:
        case Node():
            yield from step.inputs
            yield from values_in(step.attributes)
        case Loop():
            for carried in step.carried:
                yield carried.initial
                yield carried.next
            for collected in step.collected:
                yield collected.inside
            for extra in (step.trip, step.condition):
                if isinstance(extra, Value):
                    yield extra
        case Branch():
            yield step.condition
            for merged in step.merged:
                yield merged.then
                yield merged.orelse
        case Guard():
            yield step.condition


def uses(step: Step) -> set[Value]:
    """The values a step uses, itself and in its graphs."""
    return set(own_uses(step)).union(*(own_uses(inner) for graph in graphs(step) for inner in steps(graph)))


def continued_input(
    steps: Iterable[Step], inputs: Sequence[Input], value: Value, wrapper: str = "Tensor"
) -> tuple[int, int] | None:
    """The input that a value continues, and along which axis: `concat([input, ...], axis)` of a Tensor that is passed.

    Such a result grows in the Tensor's own memory where that has room (`values.growth`). With another `wrapper` the
    same of other arrays, which are copied each time.
    """
    type_ = value.type
    for step in steps:
        if not isinstance(step, Node) or step.outputs != (value,):
            continue
        axis = step.attributes.get("axis", 0)
        if step.operator != "concat" or len(step.inputs) < 2 or not isinstance(axis, int):
            return None
        for number, given in enumerate(inputs):
            first = given.value.type
            if given.value is step.inputs[0] and isinstance(first, ArrayType) and isinstance(type_, ArrayType):
                same = first.dtype is type_.dtype and first.wrapper == type_.wrapper == wrapper
                return (number, axis % first.rank) if same and not given.frozen else None
    return None


def copied_caches(region: Region) -> Iterator[Node]:
    """Concatenations that hand an ndarray over, longer: all of it is copied in each call."""
    kept: list[Value] = []

    def look(result: Result) -> None:
        if result.what == "value" and result.value is not None:
            kept.append(result.value)
        for item in result.items:
            look(item)

    for exit_ in region.exits.values():
        for result in exit_.values():
            look(result)
    for step in region.graph.steps:
        if isinstance(step, Node) and any(v in kept for v in step.outputs):
            found = continued_input(region.graph.steps, region.inputs, step.outputs[0], "ndarray")
            if found is not None:
                yield step
