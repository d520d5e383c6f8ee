"""Branches on data: both arms are walked, what differs is merged.

In: a condition and two places to go on. Out: where control goes on, with one `Branch` step, or a `Guard` where an arm
raises, or cannot be compiled: calls that take it are the interpreter's.

Invariants: only registers that are live at the join are merged; values that may be an argument's memory on one side
only are not (the result would be new on one side and shared on the other); an arm that returns takes the rest of the
other arm into the branch, so a region has one exit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tiercel.bytecode.instructions import Instruction
from tiercel.compiler.abstract import Abstract, Known, ListState, RaggedRef, Tuple, Unknown, Untraceable
from tiercel.compiler.graph import Branch, Graph, Merged, Step, Value
from tiercel.compiler.trace.closures import Closures
from tiercel.compiler.trace.state import Condition, Left, LoopTest, Outcome, Raised, Returned, State
from tiercel.operators.layout import Layout
from tiercel.operators.types import ArrayType, PyBoolType, PyFloatType, PyIntType, Type, is_python_scalar


class Branches(Closures):
    """Adds branches."""

    def branch(self, at: int, ins: Instruction, stops: frozenset[int]) -> Outcome:
        """A two-way branch."""
        condition = self.truth(self.operand(ins.condition))
        if isinstance(condition, bool):
            return int(ins.then if condition else ins.else_)
        if self.loops:
            leaves = [self.flow.leaves(target, *self.loops[-1]) for target in (ins.then, ins.else_)]
            if leaves == [False, True]:
                return LoopTest(condition, ins.then, ins.else_)
            if leaves == [True, False]:
                return LoopTest(self.scalar_node("logical_not", condition), ins.else_, ins.then)
        sizes = self.trace.conditions.get(condition) if self.trace.specialise else None
        if sizes is not None:
            return self.branch_on_sizes(condition, sizes, ins)
        return self.fork(condition, (ins.then, ins.else_), at, stops)

    def fork(
        self, condition: Value, targets: tuple[int, int], at: int, stops: frozenset[int],
        unknown: frozenset[int] = frozenset(),
    ) -> Outcome:  # fmt: skip
        """Go on at one of two places; registers `unknown` have a value at the second one only."""
        join = self.flow.join[at]
        before = self.state
        arms: list[tuple[Outcome, State, list[Step]]] = []
        saved_loops, self.loops = self.loops, []
        self.nesting += 1
        mark = self.mark()
        failures: list[Untraceable] = []
        for target in targets:
            self.state = before.copy()
            if target == targets[0]:
                self.registers.update(dict.fromkeys(unknown, Unknown("a variable set in a loop that may not run")))
            with self.trace.collecting() as steps:
                try:
                    outcome = self.walk(target, stops | {join})
                except Untraceable as error:
                    failures.append(error)
                    if len(failures) == 2:
                        raise failures[0] from None
                    self.return_to(mark)
                    outcome = Left(error.reason, self.function.line_of(target))
            arms.append((outcome, self.state, steps))
        self.loops = saved_loops
        self.nesting -= 1
        self.index = at
        for arm, opposite in ((0, True), (1, False)):
            left = arms[arm][0]
            if isinstance(left, Raised | Left):
                other = arms[1 - arm]
                holds = self.negated(condition) if opposite else condition
                self.guard(holds, "an exception" if isinstance(left, Raised) else left.text)
                self.learn(holds)
                self.trace.steps.extend(other[2])
                self.state = other[1]
                return other[0]
        outcomes = [a[0] for a in arms]
        if any(isinstance(o, LoopTest) for o in outcomes):
            raise Untraceable("a loop left from inside a branch")
        if any(isinstance(o, Returned) for o in outcomes):
            return self.returning_branch(condition, arms, stops)
        if outcomes[0] != outcomes[1]:
            raise Untraceable("break or continue in a branch that depends on data")
        self.merge(condition, before, arms, int(outcomes[0]))  # type: ignore[arg-type]
        return outcomes[0]

    def branch_on_sizes(self, condition: Value, sizes: Condition, ins: Instruction) -> int:
        """The arm that these sizes take, and a guard: code for sizes that take the other one comes when they do."""
        holds = condition if sizes.truth else self.negated(condition)
        self.guard(holds, "sizes that take another branch")
        self.learn(holds)
        return int(ins.then if sizes.truth else ins.else_)

    def returning_branch(
        self, condition: Value, arms: list[Any], stops: frozenset[int]
    ) -> Returned:  # fmt: skip
        """At least one arm returns: the other goes on to its own return, and the two results are merged."""
        if self.loop_depth:
            raise Untraceable("a return inside a loop")
        results: list[Abstract] = []
        self.nesting += 1
        for position, (outcome, state, steps) in enumerate(arms):
            if isinstance(outcome, int):
                self.state = state
                passes = list(self.unrolled)
                with self.trace.collecting() as more:
                    outcome = self.go_on(outcome, stops) if outcome in stops else self.walk(outcome, stops)
                    if isinstance(outcome, int):
                        outcome = self.go_on(outcome, stops)
                self.unrolled = passes
                steps.extend(more)
                arms[position] = (outcome, self.state, steps)
            if not isinstance(outcome, Returned):
                raise Untraceable("a path that neither returns nor goes on")
            results.append(outcome.value)
        self.nesting -= 1
        merged: dict[tuple[Value, Value], Merged] = {}
        value = self.merge_values(results[0], results[1], merged)
        self.state = self.merged_state(arms[0][1], arms[1][1], frozenset(), merged)
        if isinstance(value, Unknown):
            raise Untraceable(value.reason)
        graphs = [Graph(tuple(arm[2])) for arm in arms]
        self.trace.add(Branch(condition, graphs[0], graphs[1], tuple(merged.values()), self.site()))
        return Returned(value)

    def merge(self, condition: Value, before: State, arms: list[Any], join: int) -> None:
        """Join the states of two arms."""
        del before
        (_, a, steps_a), (_, b, steps_b) = arms
        merged: dict[tuple[Value, Value], Merged] = {}
        self.state = self.merged_state(a, b, self.flow.live[join], merged)
        graph_a, graph_b = Graph(tuple(steps_a)), Graph(tuple(steps_b))
        if steps_a or steps_b or merged:
            self.trace.add(Branch(condition, graph_a, graph_b, tuple(merged.values()), self.site()))

    def merged_state(
        self, a: State, b: State, live: frozenset[int], merged: dict[tuple[Value, Value], Merged]
    ) -> State:
        """What registers that are live, inputs and lists hold after one or the other."""
        registers: dict[int, Abstract] = {}
        for register in a.registers.keys() | b.registers.keys():
            if register not in live and register >= 0:
                continue
            before = self.trace.inputs[-1 - register].value if register < 0 else None
            x, y = a.registers.get(register, before), b.registers.get(register, before)
            if x is None or y is None:
                registers[register] = Unknown("a variable that has a value in one arm of a branch only")
            else:
                registers[register] = self.merge_values(x, y, merged)
        return State(registers, merged_heaps(a.heap, b.heap))

    def merge_values(self, x: Abstract, y: Abstract, merged: dict[tuple[Value, Value], Merged]) -> Abstract:
        """What a register holds after a branch."""
        if x is y or x == y:
            if isinstance(x, Known) and isinstance(y, Known) and x.source != y.source:
                self.same_object(x)
                self.same_object(y)
            return x
        if isinstance(x, Value) and isinstance(y, Value):
            type_ = self.common(x.type, y.type)
            if type_ is None:
                return Unknown(f"a value that is {x.type} in one arm of a branch and {y.type} in the other")
            if is_python_scalar(type_) and type_ == x.type == y.type and getattr(type_, "value", None) is not None:
                return x
            if (x, y) not in merged:  # two names of one array stay so
                after = self.trace.value(type_)
                merged[x, y] = Merged(x, y, after)
                if isinstance(type_, ArrayType):
                    self.trace.may_be(after, x, y)
            return merged[x, y].after
        if isinstance(x, RaggedRef) and isinstance(y, RaggedRef) and x.offsets is y.offsets and not x.passed | y.passed:
            values = self.merge_values(x.values, y.values, merged)
            return RaggedRef(values, x.offsets) if isinstance(values, Value) else values
        if isinstance(x, Tuple) and isinstance(y, Tuple) and len(x.items) == len(y.items) and x.cls is y.cls:
            items = tuple(self.merge_values(p, q, merged) for p, q in zip(x.items, y.items, strict=True))
            bad = next((i for i in items if isinstance(i, Unknown)), None)
            return bad if bad is not None else Tuple(items, x.cls)
        return Unknown("a value that is of another kind in each arm of a branch")

    def common(self, x: Type, y: Type) -> Type | None:
        """The type that covers two, None if there is none a region can carry."""
        if x == y:
            return x
        if isinstance(x, ArrayType) and isinstance(y, ArrayType):
            if (x.dtype, x.rank, x.wrapper) != (y.dtype, y.rank, y.wrapper):
                return None
            if not all(self.trace.facts.equal(p, q) is True for p, q in zip(x.shape, y.shape, strict=True)):
                for p, q in zip(x.shape, y.shape, strict=True):
                    self.trace.wish(p, q)
                return None
            return x if x.layout == y.layout else replace(x, layout=Layout.unknown())
        for kind in (PyIntType, PyFloatType, PyBoolType):
            if isinstance(x, kind) and isinstance(y, kind):
                return kind()
        return None

    def go_on(self, at: int, stops: frozenset[int]) -> Outcome:
        """Walk on to the end of the function from the end of a pass: the other passes, then what follows the loop."""
        outcome: Outcome = at
        while isinstance(outcome, int) and self.unrolled:
            items, number, start, ins, end = self.unrolled.pop()
            if outcome == end:
                outcome = int(ins.exit)
                for later, item in enumerate(items[number + 1 :], number + 1):
                    self.registers[ins.target] = item
                    self.unrolled.append((items, later, start, ins, end))
                    depth = len(self.unrolled)
                    passed = self.walk(start + 1, frozenset((end, ins.exit)))
                    del self.unrolled[depth - 1 :]
                    if passed != end:
                        outcome = passed
                        break
            if not isinstance(outcome, int):
                return outcome
            inner_stops = frozenset((self.unrolled[-1][4], self.unrolled[-1][3].exit)) if self.unrolled else frozenset()
            outcome = self.walk(outcome, inner_stops)
        del stops
        return outcome


def merged_heaps(a: dict[int, ListState], b: dict[int, ListState]) -> dict[int, ListState]:
    """The lists after a branch: one that an arm changed is lost."""
    heap: dict[int, ListState] = {}
    for key in a.keys() | b.keys():
        x, y = a.get(key), b.get(key)
        state = x or y
        assert state is not None
        if x is not None and y is not None and x != y:
            state = ListState(lost="a list changed in one arm of a branch", outside=x.outside)
        heap[key] = state
    return heap
