"""What a walk builds and changes: the graph under construction, and the state of registers and lists.

In: nothing but facts about sizes. Out: `Trace`, one per region, shared by all functions walked into it; `State`,
which a walk copies before it tries an arm or a pass; and the ways in which a walk ends.

Invariants: a value gets its number once and is never given out again; `owners` of a value are all that may own
owns the memory in one step; a symbol that was assumed to equal another size is never given out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from tiercel.compiler.abstract import Abstract, ListState, Source, Untraceable
from tiercel.compiler.graph import Input, Step, Value
from tiercel.dtypes import as_dtype
from tiercel.operators.types import ArrayType, Type
from tiercel.shapes import DimLike, Facts, Symbol

MAX_DEPTH = 16
"""Calls traced through inside one another."""


MAX_UNROLL = 32
"""Passes of a loop over a sequence of known length that are written out."""


MAX_STEPS = 4000
"""Nodes of one region: beyond, compiling takes longer than it pays."""


BOOL, FLOAT64, INT64 = as_dtype("bool"), as_dtype("float64"), as_dtype("int64")


SAFE_INT = 2**62


@dataclass(frozen=True, slots=True)
class Returned:
    """By a return, with this value."""

    value: Abstract


@dataclass(frozen=True, slots=True)
class Raised:
    """By a raise, at this instruction."""

    index: int


@dataclass(frozen=True, slots=True)
class LoopTest:
    """A branch at which a loop is left: go on at `inside` while `condition` holds, else at `outside`."""

    condition: Value
    inside: int
    outside: int


@dataclass(frozen=True, slots=True)
class Left:
    """An arm that cannot be compiled: who takes it leaves for the interpreter."""

    reason: str
    line: int | None

    @property
    def text(self) -> str:
        """For people."""
        return f"the branch at line {self.line} stays interpreted: {self.reason}"


@dataclass(frozen=True, slots=True)
class LoopLeft:
    """A counted loop is over: control goes on at `exit` if it has `ended`, else at `outside`, where a pass left it.

    Registers `unknown` have a value only at `outside`.
    """

    ended: Value
    exit: int
    outside: int
    unknown: frozenset[int]


Outcome: TypeAlias = int | Returned | Raised | Left | LoopTest | LoopLeft
"""How a walk ended: at a stop, by a return or raise, or at the test of a loop. A loop may also have been left."""


@dataclass(slots=True)
class State:
    """What a walk changes: registers of the current function, lists."""

    registers: dict[int, Abstract]
    heap: dict[int, ListState]

    def copy(self) -> State:
        return State(dict(self.registers), {key: state.copy() for key, state in self.heap.items()})


def memory_of(number: int) -> int:
    """The register, of the outermost function, that stands for the memory of an input."""
    return -1 - number


@dataclass(frozen=True, slots=True)
class Entered:
    """How to know that a loop ran, after which a value is no longer what it was before: a trip count or a flag."""

    passes: DimLike | Value
    owners: frozenset[Value]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on sizes: what it is for the arguments at hand, and the comparisons that all hold if it is true."""

    truth: bool
    parts: tuple[tuple[str, DimLike, DimLike], ...]


@dataclass(slots=True)
class Counting:
    """A counted loop whose body is being walked.

    Attributes:
        trip: how many passes there are.
        nesting: of the frame, in a pass of the loop but in no arm or loop inside it.
        facts: what is known outside.
        before: guards to be made in front of the loop.
    """

    trip: DimLike
    nesting: int
    facts: Facts
    before: list[Step]


class Trace:
    """The graph under construction, shared by all functions walked."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.speculate = True  # whether what holds for the arguments at hand may be assumed and guarded
        self.specialise = False  # whether a branch on sizes takes the arm of the sizes at hand
        self.borrowed: set[Value] = set()  # fresh arrays that NumPy gives as views of others
        self.numbers = itertools.count()
        self.inputs: list[Input] = []
        self.by_source: dict[Source, int] = {}  # the number of the input
        self.read_only: set[int] = set()  # inputs that cannot be written
        self.whole: set[Value] = set()  # new contents of arrays of which every element was written
        self.steps: list[Step] = []
        self.owners: dict[Value, frozenset[Value]] = {}
        self.entered: dict[Value, Entered] = {}
        self.frames: list[Any] = []  # the frames being walked, the outermost first
        self.writes = 0
        self.rebased: set[Value] = set()  # what NumPy returns as a view, of a copy at least
        self.bases: dict[Value, Value] = {}  # what is a view, whatever the sizes -> the array it looks into
        self.views: dict[Value, tuple[Value, tuple[Any, ...]]] = {}  # a view -> the array and key it was made by
        self.symbols = itertools.count()
        self.depth = 0
        self.lists = itertools.count()
        self.substitution: dict[str, DimLike] = {}
        self.sample: dict[str, int] = {}
        self.pairs: list[tuple[DimLike, DimLike]] = []
        self.classes_at: dict[Source, Source] = {}  # class methods by where they are found: where their class is
        self.conditions: dict[Value, Condition] = {}  # bools that depend on sizes only
        self.counters: dict[Symbol, Counting] = {}  # counters of the loops around
        self.volatile: set[str] = set()  # symbols that change from entry to entry: nothing is assumed of them

    def symbol(self, name: str, size: int, kind: str = "input") -> DimLike:
        """The symbol of a size, or what it is assumed to equal."""
        self.sample[name] = size
        return self.substitution.get(name, Symbol(name, kind))

    def wish(self, a: DimLike, b: DimLike) -> None:
        """Note that two sizes would better be known to be equal."""
        if a != b and self.facts.equal(a, b) is None:
            self.pairs.append((a, b))

    def value(self, type_: Type, name: str = "") -> Value:
        """A new value."""
        return Value(next(self.numbers), type_, name)

    def owners_of(self, value: Value) -> frozenset[Value]:
        """All values whose memory this one may be or look into; it is among them unless it is a view."""
        return self.owners.get(value) or frozenset((value,))

    def share(self, view: Value, *viewed: Value) -> None:
        """Note that a value looks into the memory of others."""
        self.owners[view] = frozenset().union(*map(self.owners_of, viewed))

    def may_be(self, value: Value, *others: Value) -> None:
        """Note that a value may be the same object as one of the others: of its own memory unless one is a view."""
        own = () if any(other not in self.owners_of(other) for other in others) else (value,)
        self.owners[value] = frozenset(own).union(*map(self.owners_of, others))

    def may_be_input(self, value: Value) -> bool:
        """May the value be an argument, or share memory with one?"""
        return isinstance(value.type, ArrayType) and bool(self.outside & self.owners_of(value))

    def content(self, number: int) -> Abstract:
        """What an input holds now: kept like a register of the outermost function, below zero."""
        held: Abstract = self.frames[0].registers.get(memory_of(number), self.inputs[number].value)
        return held

    def input_of(self, value: Value) -> int | None:
        """The number of the input that the value surely is, as it is now."""
        for number in range(len(self.inputs)):
            if self.content(number) is value:
                return number
        return None

    @property
    def outside(self) -> set[Value]:
        """The arrays that come from outside."""
        return {given.value for given in self.inputs if isinstance(given.value.type, ArrayType)}

    @contextmanager
    def collecting(self) -> Iterator[list[Step]]:
        """Steps made inside go to a list of their own."""
        outer, self.steps = self.steps, []
        try:
            yield self.steps
        finally:
            self.steps = outer

    def add(self, step: Step) -> None:
        """Add a step."""
        if len(self.steps) > MAX_STEPS:
            raise Untraceable(f"more than {MAX_STEPS} operations")
        self.steps.append(step)

    def data_symbol(self, upper: DimLike) -> Symbol:
        """A size that only running decides."""
        symbol = Symbol(f"u{next(self.symbols)}", "data")
        del upper
        return symbol
