"""Take out of loops what the passes do not need one by one.

In: a region graph with composites written out. Out: the same graph with fewer steps in the bodies of loops:

    for t in 0..T:                      for t in 0..T:
        y = x[:, t] @ w       ->            before passes s..s+n, every P:  v = x[:, s:s+n] moved to the front @ w
        h = tanh(y + h @ u)                 y = v[t - s]
                                            h = tanh(y + h @ u)

Two things are moved, each for a counted loop, the first for `while` loops too:

* a step whose operands are all from outside runs once, in the first pass (`Loop.once`);
* a product of a slice that the counter selects with a matrix from outside is computed for several passes by one
  product of their rows (`Loop.ahead`), with casts, views and elementwise steps on the way to it.

Why that changes nothing that can be seen:

* Data: values never change, so a step may run wherever its operands are defined. Slices are widened only where every
  pass selects within bounds, which `facts` has to prove; bounds that may fail stay checked in the body, in their pass.
* Flags: hoisted steps run only when the loop's first pass does, with operands that the passes would have used. A loop
  that does not run raises no floating-point flag, and one that is left early is not widened: behind its first exit the
  steps are in a branch, out of which nothing is moved.
* Traps and exits: integer division and shifts are not moved. What may leave the region (sizes that disagree) does so
  before the first pass instead of in it; nothing visible has been written by then in either.
* Rounding: a product adds up over the same axis of the same operands. Only the number of rows of the product grows.
* Memory: `passes` is chosen when running so that one widened value has at most `AHEAD_ELEMENTS` elements, or is that
  of a single pass. A body that computed one pass at a time needs that much anyway.

Not moved: what a loop that is inside a branch or another loop's pass could share between its runs; steps with a size
that only running decides.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tiercel.compiler.elementwise import EXPRESSIONS, is_elementwise
from tiercel.compiler.fuse import REDUCTIONS, is_contraction
from tiercel.compiler.graph import (
    Ahead,
    Branch,
    Graph,
    Guard,
    Loop,
    Node,
    Region,
    Step,
    Value,
    is_constant,
    steps,
    uses,
    values_in,
)
from tiercel.compiler.movement import REORDERING, WITHIN, permutation
from tiercel.operators import get
from tiercel.operators.layout import Layout
from tiercel.operators.types import ArrayType, NpScalarType, PyIntType, Type
from tiercel.shapes import Dim, DimLike, Facts, Symbol, dim_max, dim_min, product, substitute, symbols_of

AHEAD_ELEMENTS = 1 << 17
"""Elements of one value computed for several passes: 512 KiB of float32, which stays in the second-level cache between
the product that writes it and the passes that read it, and is rows enough to keep several threads busy."""

_RESHAPING = ("reshape", "ravel", "flatten", "squeeze", "expand_dims")
_VIEWS = frozenset((*REORDERING, *_RESHAPING, "index", "broadcast_to", "identity", "stop_gradient"))
"""Operators whose result looks into the operand's memory: they cost nothing, and are repeated where they are needed."""
_TRAPPING = frozenset(("floor_divide", "remainder", "fmod", "divmod", "left_shift", "right_shift", "power"))
"""On integers these stand behind guards of their operands."""
_FIRST_NUMBER = 2_000_000  # of new values; the stage before begins at a million


def hoist_loops(region: Region) -> Region:
    """Move steps out of the loops of a region; the same object if there is nothing to move."""
    graph = _Hoister(region).graph(region.graph)
    return region if graph is region.graph else replace(region, graph=graph)


def _sizes(type_: Type) -> tuple[DimLike, ...]:
    if isinstance(type_, ArrayType):
        return type_.shape
    return (type_.value,) if isinstance(type_, PyIntType) and type_.value is not None else ()


def _symbols(data: Any) -> Iterator[Symbol]:
    """The symbols among attributes, values aside."""
    if isinstance(data, Dim):
        yield from symbols_of(data)
    elif isinstance(data, tuple | list):
        for item in data:
            yield from _symbols(item)
    elif isinstance(data, Mapping):
        yield from _symbols(tuple(data.values()))
    elif isinstance(data, slice):
        yield from _symbols((data.start, data.stop, data.step))


class _Hoister:
    """Walks the graph, inner loops first."""

    def __init__(self, region: Region) -> None:
        self.facts: Facts = region.facts
        self.numbers = itertools.count(_FIRST_NUMBER)
        self.inputs = {s for given in region.inputs for d in _sizes(given.value.type) for s in symbols_of(d)}
        self.names = {s.name for s in self.inputs}
        for step in steps(region.graph):
            if isinstance(step, Node):
                self.names |= {s.name for v in step.outputs for d in _sizes(v.type) for s in symbols_of(d)}
            elif isinstance(step, Loop) and step.index is not None:
                self.names |= {s.name for d in _sizes(step.index.type) for s in symbols_of(d)}

    def fresh(self, name: str) -> Symbol:
        """A symbol of a new name."""
        name = next(n for n in itertools.chain((name,), (f"{name}_{i}" for i in itertools.count(1))) if self.free(n))
        self.names.add(name)
        return Symbol(name, "scalar")

    def free(self, name: str) -> bool:
        """Has no symbol this name?"""
        return name not in self.names

    def knows(self, sizes: Any) -> bool:
        """Are these sizes, or sizes anywhere in these attributes, known when the region is entered?"""
        return self.inputs.issuperset(_symbols(sizes))

    def value(self, type_: Type, name: str = "") -> Value:
        """A new value."""
        return Value(next(self.numbers), type_, name)

    def graph(self, graph: Graph) -> Graph:
        """A graph with the loops in it treated."""
        new = tuple(self.step(step) for step in graph.steps)
        return graph if all(a is b for a, b in zip(new, graph.steps, strict=True)) else Graph(new)

    def step(self, step: Step) -> Step:
        """A step with the loops in it treated."""
        match step:
            case Branch():
                then, orelse = self.graph(step.then), self.graph(step.orelse)
                return step if (then, orelse) == (step.then, step.orelse) else replace(step, then=then, orelse=orelse)
            case Loop():
                header = None if step.header is None else self.graph(step.header)
                body = self.graph(step.body)
                loop = step if (header, body) == (step.header, step.body) else replace(step, header=header, body=body)
                return self.loop(loop)
            case Node() | Guard():
                return step

    def loop(self, loop: Loop) -> Loop:
        """A loop without what can be taken out of its body."""
        if loop.trip == 1:
            return loop
        loop = _Invariants(self, loop).moved()
        return loop if loop.header is not None else _Passes(self, loop).widened()


def _defined_inside(loop: Loop) -> set[Value]:
    """Values that belong to a pass."""
    found = {c.inside for c in loop.carried} | ({loop.index} if loop.index is not None else set())
    for graph in (loop.header, loop.body):
        for step in () if graph is None else graph.steps:
            match step:
                case Node():
                    found.update(step.outputs)
                case Loop():
                    found.update(c.after for c in step.carried)
                    found.update(c.after for c in step.collected)
                case Branch():
                    found.update(m.after for m in step.merged)
                case Guard():
                    pass
    return found


class _Invariants:
    """Steps of a body that need nothing of the pass."""

    def __init__(self, hoister: _Hoister, loop: Loop) -> None:
        self.hoister, self.loop = hoister, loop
        self.inside = _defined_inside(loop)
        self.views: dict[Value, Node] = {}  # of what is from outside: repeated where they are needed
        self.once: list[Step] = []
        self.copies: dict[Value, Value] = {}

    def moved(self) -> Loop:
        """The loop with its invariant steps in `once`."""
        body: list[Step] = []
        for step in self.loop.body.steps:
            if not isinstance(step, Node) or why_not_invariant(step, self):
                body.append(step)
                continue
            if step.operator in _VIEWS or not isinstance(step.outputs[0].type, ArrayType):
                self.views[step.outputs[0]] = step
                body.append(step)
                continue
            self.once.append(replace(step, inputs=tuple(self.available(v) for v in step.inputs)))
            self.inside.difference_update(step.outputs)
        if not self.once:
            return self.loop
        return replace(self.loop, body=Graph(tuple(body)), once=Graph(tuple(self.once)))

    def available(self, value: Value) -> Value:
        """The value, or one like it that `once` can see."""
        node = self.views.get(value)
        if node is None:
            return value
        if value not in self.copies:
            copy = self.copies[value] = self.hoister.value(value.type, value.name)
            inputs = tuple(self.available(v) for v in node.inputs)
            self.once.append(replace(node, inputs=inputs, outputs=(copy,)))
        return self.copies[value]


def why_not_invariant(node: Node, loop: _Invariants) -> str | None:
    """Why a step of a body cannot be computed before the first pass, or gains nothing by it; None if it can."""
    if len(node.outputs) != 1 or node.writes is not None or get(node.operator).effect != get("add").effect:
        return "it is not a pure step with one result"
    for value in node.inputs:
        if value in loop.inside and value not in loop.views:
            return f"{value} belongs to the pass"
        if not loop.hoister.knows(_sizes(value.type)):
            return "a size belongs to the pass"
    output = node.outputs[0].type
    if any(True for _ in values_in(node.attributes)) or not loop.hoister.knows(node.attributes):
        return "an attribute belongs to the pass"
    if not loop.hoister.knows(_sizes(output)):
        return "a size belongs to the pass"
    if node.operator in _VIEWS:
        return None
    if node.operator in _TRAPPING and isinstance(output, ArrayType | NpScalarType) and output.dtype.kind in "iu":
        return "it stands behind a guard"
    if is_elementwise(node) and isinstance(output, ArrayType):
        # an outer sum is cheaper computed again than read again
        return None if any(_sizes(v.type) == output.shape for v in node.inputs) else "it is larger than its operands"
    if is_elementwise(node) and isinstance(output, NpScalarType):
        return None
    return None if is_contraction(node) or node.operator in REDUCTIONS else "it is not worth it"


@dataclass(frozen=True, slots=True)
class _Place:
    """Position `factor * t + first` along an axis, with t the loop's counter."""

    factor: int
    first: DimLike


class _Passes:
    """Products of a body that can be computed for several passes at once: `start`..`start + count`.

    `widened values` have an axis of passes in front of the axes of the value they stand for.
    """

    start: Symbol
    count: Symbol
    trip: DimLike

    def __init__(self, hoister: _Hoister, loop: Loop) -> None:
        self.hoister, self.facts, self.loop = hoister, hoister.facts, loop
        self.inside = _defined_inside(loop)
        self.makers = {s.outputs[0]: s for s in loop.body.steps if isinstance(s, Node) and len(s.outputs) == 1}
        self.steps: list[Node] = []
        self.wide: dict[Value, Value | None] = {}
        self.copies: dict[Value, Value] = {}
        self.made: dict[Value, Value] = {}  # a value that took work -> its widened form
        self.turned: set[Value] = set()  # of those, the ones that hold the transposed matrix of each pass
        self.counter: Symbol | None = None

    def widened(self) -> Loop:
        """The loop with its products of slices in `ahead`."""
        loop, type_ = self.loop, self.loop.index.type if self.loop.index is not None else None
        trip = loop.trip.type.value if isinstance(loop.trip, Value) and isinstance(loop.trip.type, PyIntType) else None
        trip = trip if isinstance(loop.trip, Value) else loop.trip
        if trip is None or not isinstance(type_, PyIntType) or not isinstance(type_.value, Symbol):
            return loop
        if not self.hoister.knows(trip):
            return loop
        self.counter, self.trip = type_.value, trip
        products = [s for s in loop.body.steps if isinstance(s, Node) and is_contraction(s)]
        if not products:
            return loop
        self.start = self.hoister.fresh(f"{self.counter.name}_start")
        self.count = self.hoister.fresh(f"{self.counter.name}_count")
        for node in products:
            self.widen(node.outputs[0])
        wanted = {wide for value, wide in self.made.items() if is_contraction(self.makers[value])}
        if not wanted:
            return loop
        needed = _needed(self.steps, wanted)
        there = {value for step in needed for value in step.outputs}
        made = {value: wide for value, wide in self.made.items() if wide in there}
        largest = dim_max(*(product(_sizes(value.type)) for value in made))
        most = AHEAD_ELEMENTS // (max(1, largest) if isinstance(largest, int) else largest)
        passes = dim_max(1, dim_min(trip, most))
        body: list[Step] = []
        for step in loop.body.steps:
            wide = made.get(step.outputs[0]) if isinstance(step, Node) else None
            body += [step] if wide is None or not isinstance(step, Node) else self.reading(step, wide)
        ahead = Ahead(Graph(tuple(needed)), passes, self.start, self.count)
        return replace(loop, body=Graph(tuple(self.without_unused_slices(body))), ahead=ahead)

    def without_unused_slices(self, body: list[Step]) -> list[Step]:
        """The body without the slices that only hoisted products used: they were found to be within bounds."""
        kept: list[Step] = []
        loop = self.loop
        used = {c.next for c in loop.carried} | {c.inside for c in loop.collected}
        for step in reversed(body):
            idle = isinstance(step, Node) and step.operator in _VIEWS and used.isdisjoint(step.outputs)
            if idle and self.wide.get(step.outputs[0]) is not None:  # type: ignore[union-attr]
                continue
            kept.append(step)
            used |= uses(step)
        return kept[::-1]

    def reading(self, node: Node, wide: Value) -> list[Step]:
        """The steps by which a pass gets its part of a widened value."""
        assert self.counter is not None
        attributes = {"key": (self.counter - self.start, Ellipsis), WITHIN: True}
        if wide not in self.turned:
            return [Node("index", (wide,), attributes, node.outputs, node.origin)]
        rows = self.hoister.value(replace(_array(wide), shape=_array(wide).shape[1:], layout=Layout.unknown()))
        first = Node("index", (wide,), attributes, (rows,), node.origin)
        return [first, Node("transpose", (rows,), {"axes": None}, node.outputs, node.origin)]

    # -- values -----------------------------------------------------------------------------------------------

    def widen(self, value: Value) -> Value | None:
        """The value for all passes, None where that is not possible or not worth it."""
        if value not in self.wide:
            self.wide[value] = None
            node = self.makers.get(value)
            if node is not None and why_not_widened(node, self) is None:
                made = self.wide[value] = self.rule(node)
                if made is not None and node.operator not in _VIEWS:
                    self.made.setdefault(value, made)
        return self.wide[value]

    def rule(self, node: Node) -> Value | None:
        """The steps that compute a node for several passes."""
        output = node.outputs[0].type
        assert isinstance(output, ArrayType)
        if node.operator == "index":
            return self.slices(node)
        if is_contraction(node):
            return self.product(node, output)
        if is_elementwise(node):
            return self.elements(node, output)
        inner = self.widen(node.inputs[0])
        if inner is None:
            return None
        order = permutation(node) if node.operator in REORDERING else None
        if order is not None:
            return self.apply("transpose", inner, output.shape, node, {"axes": (0, *(a + 1 for a in order))})
        if node.operator in _RESHAPING and node.attributes.get("order", "C") == "C":
            shape = (self.count, *output.shape)
            return self.apply("reshape", inner, output.shape, node, {"shape": shape, "order": "C"})
        return None

    def apply(
        self, operator: str, x: Value, shape: tuple[DimLike, ...], node: Node, attributes: dict[str, Any]
    ) -> Value:  # fmt: skip
        """A view of a widened value: `shape` are the sizes of one pass."""
        type_ = replace(_array(x), shape=(self.count, *shape), layout=Layout.unknown())
        return self.add(operator, (x,), attributes, type_, node)

    def add(self, operator: str, inputs: tuple[Value, ...], attributes: Any, type_: Type, node: Node) -> Value:
        """A step of `ahead`."""
        value = self.hoister.value(type_)
        self.steps.append(Node(operator, inputs, attributes, (value,), node.origin))
        return value

    def outside(self, value: Value) -> Value | None:
        """The value as `ahead` sees it, if it does not belong to the pass."""
        if value not in self.inside or is_constant(value):
            return value if self.hoister.knows(_sizes(value.type)) else None
        node = self.makers.get(value)
        if node is None or node.operator not in _VIEWS or any(True for _ in values_in(node.attributes)):
            return None
        if not self.hoister.knows(_sizes(value.type)) or not self.hoister.knows(node.attributes):
            return None
        if value not in self.copies:
            inputs = [self.outside(v) for v in node.inputs]
            if any(v is None for v in inputs):
                return None
            self.copies[value] = self.add(
                node.operator, tuple(v for v in inputs if v is not None), node.attributes, value.type, node
            )
        return self.copies[value]

    # -- rules ------------------------------------------------------------------------------------------------

    def slices(self, node: Node) -> Value | None:
        """`x[:, t]` for the passes start..start+count: `x[:, start:start+count]` with that axis in front."""
        source, key, output = node.inputs[0], node.attributes["key"], _array(node.outputs[0])
        if any(True for _ in values_in(node.attributes)) or not isinstance(key, tuple):
            return None
        assert self.counter is not None
        chosen = [i for i, part in enumerate(key) if self.counter in set(_symbols(part))]
        x = self.outside(source)
        if x is None:
            wide = self.widen(source)
            if wide is None or chosen:
                return None
            return self.apply("index", wide, output.shape, node, {"key": (slice(None), *key)})
        if len(chosen) != 1 or not self.hoister.knows((*key[: chosen[0]], *key[chosen[0] + 1 :])):
            return None
        part = key[chosen[0]]
        before, axis = _axes(key, chosen[0], _array(x).rank)
        place = self.place(part, _array(x).shape[axis]) if isinstance(part, Dim) else None
        if place is None:
            return None
        ends = [place.factor * t + place.first for t in (self.start, self.start + self.count - 1)]
        low, high = ends if place.factor > 0 else ends[::-1]
        window = slice(low, high + 1, None if abs(place.factor) == 1 else abs(place.factor))
        shape = (*output.shape[:before], self.count, *output.shape[before:])
        type_ = replace(output, shape=shape, layout=Layout.unknown())
        whole = (*key[: chosen[0]], window, *key[chosen[0] + 1 :])
        wide = self.add("index", (x,), {"key": whole, WITHIN: True}, type_, node)
        if before:
            wide = self.apply("moveaxis", wide, output.shape, node, {"source": before, "destination": 0})
        if place.factor < 0:
            wide = self.apply("flip", wide, output.shape, node, {"axis": 0})
        if not before and place.factor == 1:
            return wide
        # rows of the product lie one after the other: laid out once for all products of the slice
        type_ = replace(output, shape=(self.count, *output.shape), layout=Layout.c(1 + output.rank))
        return self.add("astype", (wide,), {"dtype": output.dtype}, type_, node)

    def place(self, part: Dim, size: DimLike) -> _Place | None:
        """A position as a function of the counter that is within an axis of `size` in every pass."""
        assert self.counter is not None
        first = substitute(part, {self.counter.name: 0})
        factor = substitute(part, {self.counter.name: 1}) - first
        if not isinstance(factor, int) or factor == 0 or part != factor * self.counter + first:
            return None
        if self.facts.less_equal(first, -1) is True and factor < 0:
            first = first + size  # counted from the end
        if not self.hoister.knows(first):
            return None
        last = factor * (self.trip - 1) + first
        low, high = (first, last) if factor > 0 else (last, first)
        within = self.facts.less_equal(0, low) is True and self.facts.less_equal(high + 1, size) is True
        return _Place(factor, first) if within else None

    def elements(self, node: Node, output: ArrayType) -> Value | None:
        """An elementwise step: operands of the pass are widened, others broadcast."""
        inputs: list[Value] = []
        wide = False
        for value in node.inputs:
            given = self.outside(value)
            if given is None:
                given = self.widen(value)
                if given is None:
                    return None
                wide = True
                missing = output.rank - _array(value).rank
                if missing:
                    shape = (*(1,) * missing, *_array(value).shape)
                    given = self.apply("reshape", given, shape, node, {"shape": (self.count, *shape), "order": "C"})
            inputs.append(given)
        if not wide:
            return None
        type_ = replace(output, shape=(self.count, *output.shape), layout=Layout.c(1 + output.rank))
        return self.add(node.operator, tuple(inputs), node.attributes, type_, node)

    def product(self, node: Node, output: ArrayType) -> Value | None:
        """A product with a matrix from outside: the rows of all passes at once."""
        left, right = node.inputs
        matrix = self.outside(right)
        if matrix is not None and _array(matrix).rank == 2 and _array(left).rank >= 2:
            wide = self.widen(left)
            if wide is None:
                return None
            type_ = replace(output, shape=(self.count, *output.shape), layout=Layout.c(1 + output.rank))
            return self.add("matmul", (wide, matrix), {}, type_, node)
        matrix = self.outside(left)
        if matrix is None or _array(matrix).rank != 2 or _array(right).rank != 2:
            return None
        wide = self.widen(right)
        if wide is None:
            return None
        # w @ x is (x.T @ w.T).T, and rows of x.T are what passes can be put together by
        rows = self.apply("transpose", wide, _array(right).shape[::-1], node, {"axes": (0, 2, 1)})
        turned = replace(_array(matrix), shape=_array(matrix).shape[::-1], layout=Layout.unknown())
        weights = self.add("transpose", (matrix,), {"axes": None}, turned, node)
        shape = (self.count, *output.shape[::-1])
        made = self.add("matmul", (rows, weights), {}, replace(output, shape=shape, layout=Layout.c(3)), node)
        self.made[node.outputs[0]] = made
        self.turned.add(made)
        return self.apply("transpose", made, output.shape, node, {"axes": (0, 2, 1)})


def why_not_widened(node: Node, loop: _Passes) -> str | None:
    """Why a step cannot be part of what is computed for several passes; None if its rule may be asked."""
    if node.writes is not None or get(node.operator).effect != get("add").effect:
        return "it is not pure"
    output = node.outputs[0].type
    if not isinstance(output, ArrayType) or any(
        s not in loop.hoister.inputs for d in output.shape for s in symbols_of(d)
    ):
        return "its size is not known before the loop"
    if node.operator in _VIEWS or is_contraction(node):
        return None
    if not is_elementwise(node) or get(node.operator).lowering.key not in EXPRESSIONS:
        return "it has no rule"
    if output.dtype.kind not in "fb" or any(True for _ in values_in(node.attributes)):
        return "it may stand behind a guard"
    return None


def _array(value: Value) -> ArrayType:
    assert isinstance(value.type, ArrayType)
    return value.type


def _axes(key: tuple[Any, ...], position: int, rank: int) -> tuple[int, int]:
    """Of a part of a key: how many axes of the result come before it, and which axis of the operand it selects from."""
    used = sum(part is not None and part is not Ellipsis for part in key)
    before = axis = 0
    for part in key[:position]:
        if part is Ellipsis:
            before, axis = before + rank - used, axis + rank - used
        else:
            before += part is None or isinstance(part, slice)
            axis += part is not None
    return before, axis


def _needed(steps_: list[Node], wanted: set[Value]) -> list[Node]:
    """The steps that compute what is wanted, in their order."""
    kept: list[Node] = []
    for step in reversed(steps_):
        if wanted.intersection(step.outputs):
            kept.append(step)
            wanted = wanted.union(step.inputs)
    return kept[::-1]
