"""Which object a result is, where only running decides: an argument itself, or a new array.

In: the steps of a whole function, and the arrays it returns. Out: the same steps, which also carry, beside every array
that may be an argument, the number of that input: -1 where it is an array of the region's own.

    while least(y) < 0.5:      ->   while ...: x, x_is = x + f(x), -1
        x = x + f(x)                return x if x_is < 0 else the argument numbered x_is

Invariant: the number goes the way the array goes, through the same branches and loops, so it is right whatever they
decide; nothing else about the steps changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tiercel.compiler.abstract import Untraceable
from tiercel.compiler.graph import Branch, Carried, Graph, Loop, Merged, Step, Value, graphs, steps
from tiercel.operators.types import PyIntType

NEW = -1
"""The number of an array that is no input."""


@dataclass(slots=True)
class Identities:
    """Makes the numbers.

    Args:
        graph: the steps of the function.
        inputs: array inputs that are what they were at entry, with their numbers.
        fresh: whether a value that neither is an input nor comes out of a branch or loop is an array of its own.
        number: makes a new value.
    """

    graph: Graph
    inputs: Mapping[Value, int]
    fresh: Callable[[Value], bool]
    number: Callable[[PyIntType], Value]
    known: dict[Value, Value] = field(default_factory=dict)
    _merged: dict[int, list[Merged]] = field(default_factory=dict)
    _carried: dict[int, list[Carried]] = field(default_factory=dict)
    _makers: dict[Value, tuple[Step, Merged | Carried]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for step in steps(self.graph):
            if isinstance(step, Branch):
                self._makers.update({m.after: (step, m) for m in step.merged})
            elif isinstance(step, Loop):
                self._makers.update({v: (step, c) for c in step.carried for v in (c.inside, c.after)})

    def of(self, value: Value) -> Value:
        """The number of the input that an array is, as a value: known, or computed by the steps.

        Raises:
            Untraceable: it may look into an argument.
        """
        found = self.known.get(value)
        if found is not None:
            return found
        maker = self._makers.get(value)
        if value in self.inputs or maker is None:
            if value not in self.inputs and not self.fresh(value):
                raise Untraceable("it returns what may be an argument itself or a view")
            self.known[value] = found = self.number(PyIntType(self.inputs.get(value, NEW)))
            return found
        step, how = maker
        if isinstance(how, Merged):
            made = self.number(PyIntType())
            self.known[value] = made
            self._merged.setdefault(id(step), []).append(Merged(self.of(how.then), self.of(how.orelse), made))
            return made
        inside, after = self.number(PyIntType()), self.number(PyIntType())
        self.known[how.inside], self.known[how.after] = inside, after
        made_carried = Carried(self.of(how.initial), inside, self.of(how.next), after)
        self._carried.setdefault(id(step), []).append(made_carried)
        return self.known[value]

    def rebuilt(self) -> Graph:
        """The steps with all numbers that were asked for."""
        return self._graph(self.graph)

    def _graph(self, graph: Graph) -> Graph:
        made = tuple(map(self._step, graph.steps))
        return graph if all(a is b for a, b in zip(made, graph.steps, strict=True)) else Graph(made)

    def _step(self, step: Step) -> Step:
        if not graphs(step):
            return step
        if isinstance(step, Branch):
            then, orelse = self._graph(step.then), self._graph(step.orelse)
            merged = (*step.merged, *self._merged.get(id(step), ()))
            if (then, orelse, len(merged)) == (step.then, step.orelse, len(step.merged)):
                return step
            return replace(step, then=then, orelse=orelse, merged=merged)
        assert isinstance(step, Loop)
        header = None if step.header is None else self._graph(step.header)
        body, carried = self._graph(step.body), (*step.carried, *self._carried.get(id(step), ()))
        if (header, body, len(carried)) == (step.header, step.body, len(step.carried)):
            return step
        return replace(step, header=header, body=body, carried=carried)
