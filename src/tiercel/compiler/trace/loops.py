"""Loops: counted, over known items, and while a condition holds.

In: a `LoopStart`. Out: one `Loop` step, or the passes written out where the items are known and few.

Invariants: the body is walked until the types of what it carries no longer change, a number that differs widens once;
nothing else that a pass changed survives it, but what is read where a loop is left to other code than follows its end
(a `return`, the code before a `break`); a list is followed only if each pass appends elements of one type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from tiercel.bytecode.instructions import Instruction
from tiercel.compiler.abstract import Abstract, Iterable, ListState, Unknown, Untraceable
from tiercel.compiler.dims import counting
from tiercel.compiler.graph import Branch, Carried, Collected, Graph, Loop, Merged, Step, Value
from tiercel.compiler.trace.branches import Branches
from tiercel.compiler.trace.scalars import Counted, counter
from tiercel.compiler.trace.sharing import Sharing
from tiercel.compiler.trace.state import MAX_UNROLL, Counting, Entered, LoopLeft, LoopTest, Outcome, State
from tiercel.operators.layout import Layout
from tiercel.operators.types import ArrayType, NpScalarType, PyBoolType, PyComplexType, PyFloatType, PyIntType, Type
from tiercel.shapes import DimLike, Symbol, symbols_of

MAX_WALKS = 8
"""Walks of a loop body until what it carries has settled; types widen once, who shares memory takes a few."""


OTHER_KIND: Final = "a variable that is of another kind in each pass of a loop"


class Loops(Branches):
    """Adds loops."""

    def loop(self, at: int, ins: Instruction) -> Outcome:
        """A loop; returns where control goes on after it, or how the function was left inside."""
        end = self.flow.loop_end[at]
        if ins.iterator is None:
            return self.while_loop(at, ins, end)
        iterable = self.operand(ins.iterator)
        known = self.known_passes(iterable)
        if known is not None:
            return self.unroll(known, at, ins, end)
        length, element = self.counted(iterable)
        index = self.trace.value(PyIntType(Symbol(f"t{next(self.trace.symbols)}", "scalar")), "t")
        going = self.trace.value(PyBoolType(), "going")
        before, facts = self.state, self.trace.facts
        self.trace.facts = counting(facts, counter(index), length)
        named = self.named_registers(at, end)
        candidates = sorted(r for r in named if r in self.flow.live[at] and r in self.registers)
        inside: dict[int, Type | None] = {}
        escaping: frozenset[int] = frozenset()
        sharing = Sharing(self.trace)
        saved = self.loops
        self.loops = []
        self.loop_depth += 1
        self.nesting += 1
        outside: list[Step] = []
        own_symbol = counter(index)
        assert isinstance(own_symbol, Symbol)
        self.trace.counters[own_symbol] = Counting(length, self.nesting, facts, outside)
        for _ in range(MAX_WALKS):
            self.state, values = self.enter_loop(before, inside, sharing, collecting=True)
            self.loops = [(at, end)]
            at_start = self.state.copy()  # without the item: a pass after the loop was left takes none
            with self.trace.collecting() as steps:
                at_start = self.state.copy()  # where a pass after the last one leaves everything
                self.registers[ins.target] = element(index)
                stays, target = self.pass_through(at + 1, at, end)
            if target is not None:
                if target != ins.exit:
                    own = frozenset((own_symbol,))
                    escaping |= self.let_out((before, at_start), candidates, named, (at, target), own)
                test = LoopTest(going, at + 1, target)
                with self.trace.collecting() as joined:
                    stays = self.join_exit(test, at_start, steps, stays, at)
                steps = joined
            if self.registers.get(ins.iterator) != before.registers.get(ins.iterator):
                raise Untraceable("a loop over an array that it writes")
            if not self.widen(before, self.state, inside, values, candidates, named, sharing):
                break
        else:
            raise Untraceable("a loop whose carried values change their types")
        self.trace.facts = facts
        del self.trace.counters[own_symbol]
        self.trace.steps.extend(outside)
        self.loop_depth -= 1
        self.nesting -= 1
        self.loops = saved
        self.index = at
        carries, after = self.leave_loop(before, self.state, inside, values, length)
        if target is not None:  # once left, the passes that remain do nothing
            carries = (*carries, self.flag_carried(going, stays))
        with self.trace.collecting() as last:
            collected, heap = self.collect(before, self.state, length, index)
        body = Graph((*steps, *last))
        self.trace.add(Loop(length, self.loop_index(index), None, None, body, carries, collected, self.site()))
        self.flatten_lists(heap, collected)
        self.require_needed()
        self.state = State(self.after_loop(before, after, inside, named - escaping, at), heap)
        if target is None or target == ins.exit:
            return int(ins.exit)
        return LoopLeft(carries[-1].after, int(ins.exit), target, escaping)

    def let_out(
        self,
        states: tuple[State, ...],
        candidates: list[int],
        named: set[int],
        between: tuple[int, int],
        own: frozenset[Symbol],
    ) -> frozenset[int]:
        """Variables of a pass that are read where the loop is left to: carried, with a first value nobody reads.

        They must be set in the pass that leaves: not live at its start.

        Args:
            states: given the first values.
            candidates: registers that are looked at for changes; what is found is added.
            named: registers that a pass sets.
            between: the loop, and where it is left to.
            own: symbols that mean something in a pass only.
        """
        at, target = between
        found = set()
        for register in sorted(named & self.flow.live[target]):
            now = self.registers.get(register)
            if register in candidates or register in self.flow.live[at] or not isinstance(now, Value):
                continue
            type_ = now.type
            if isinstance(type_, ArrayType):
                if any(s in own or s.kind == "data" for d in type_.shape for s in symbols_of(d)):
                    continue
                made = replace(type_, layout=Layout.c(type_.rank))
                first = self.node("zeros", (), {"shape": type_.shape, "dtype": type_.dtype}, made)
            elif isinstance(type_, NpScalarType):
                first = self.numpy_scalar(type_.dtype.numpy.type(0))
            elif isinstance(type_, PyIntType | PyFloatType | PyBoolType):
                first = self.number({PyIntType: 0, PyFloatType: 0.0, PyBoolType: False}[type(type_)])
            else:
                continue
            for state in states:
                state.registers[register] = first
            candidates.append(register)
            found.add(register)
        return frozenset(found)

    def unroll(self, items: list[Abstract], at: int, ins: Instruction, end: int) -> Outcome:
        """A loop over known items, pass by pass."""
        depth = len(self.unrolled)
        for number, item in enumerate(items):
            self.registers[ins.target] = item
            self.unrolled.append((items, number, at, ins, end))
            outcome = self.walk(at + 1, frozenset((end, ins.exit)))
            del self.unrolled[depth:]
            if isinstance(outcome, LoopTest):
                raise Untraceable("a loop that is left from inside another")
            if outcome != end:
                return outcome  # a return, or a break that is known
        return int(ins.exit)

    def loop_index(self, index: Value) -> Value:
        """The counter; its symbol is the name of the loop variable."""
        return index

    def known_passes(self, iterable: Abstract) -> list[Abstract] | None:
        """The items of a short sequence that is known."""
        if isinstance(iterable, Iterable) and isinstance(iterable.length, int) and iterable.length <= MAX_UNROLL:
            if not isinstance(iterable.at, Counted):
                return [iterable.at(self.number(i)) for i in range(iterable.length)]
            return None
        return None

    def counted(self, iterable: Abstract) -> tuple[DimLike, Callable[[Value], Abstract]]:
        """Trip count and element of a loop."""
        if isinstance(iterable, Iterable):
            return iterable.length, iterable.at
        raise Untraceable("a loop over something that is no range, array, tuple or list")

    def require_needed(self) -> None:
        """Leave where a loop did not run after which an array would still be an argument."""
        for passes in self.needed:
            self.require_passes(passes)
        self.needed.clear()

    def named_registers(self, at: int, end: int) -> set[int]:
        """Registers that instructions of the loop write; carried are those that somebody reads at the next pass."""
        return {r for i in range(at, end + 1) for r in self.function.instructions[i].registers_written()}

    def enter_loop(
        self, before: State, inside: dict[int, Type | None], sharing: Sharing, *, collecting: bool
    ) -> tuple[State, dict[int, Value]]:
        """The state at the start of a pass: new values for what is carried."""
        state = before.copy()
        values: dict[int, Value] = {}
        leaders = self.leaders(before, inside, sharing)
        for register in sorted(inside, key=lambda r: (r in leaders, r)):
            type_ = inside[register]
            if type_ is None:
                state.registers[register] = Unknown(OTHER_KIND)
            elif register in leaders:
                values[register] = state.registers[register] = values[leaders[register]]
            else:
                values[register] = self.trace.value(type_, f"c{register}" if register >= 0 else "")
                state.registers[register] = values[register]
                start = before.registers[register]
                if isinstance(type_, ArrayType) and isinstance(start, Value):
                    self.trace.owners[values[register]] = frozenset((values[register],)).union(
                        self.trace.owners_of(start), sharing.owners(register)
                    )
        if collecting:
            for key, content in state.heap.items():
                content.held |= sharing.owners(("list", key))
                free = not content.outside and not content.items
                if free and content.collected is None and content.collecting is None:
                    content.collecting = []
        return state, values

    def leaders(self, before: State, inside: dict[int, Type | None], sharing: Sharing) -> dict[int, int]:
        """Registers that hold an input, as it is in every pass: they go with the one that stands for its memory."""
        memories = {
            id(before.registers[r]): r for r in inside
            if r < 0 and r in before.registers and inside[r] is not None
        }  # fmt: skip
        found = {}
        for register, type_ in inside.items():
            memory = memories.get(id(before.registers[register]))
            if memory is not None and register >= 0 and register not in sharing.apart and type_ == inside[memory]:
                found[register] = memory
        return found

    def widen(
        self,
        before: State,
        after: State,
        inside: dict[int, Type | None],
        values: dict[int, Value],
        candidates: list[int],
        named: set[int],
        sharing: Sharing,
    ) -> bool:
        """Note what the pass changed; true when what was assumed had to change, so that it must be walked again."""
        changed = False
        for register in after.registers.keys() - before.registers.keys():
            if register < 0:  # an input that this pass was the first to write
                before.registers[register] = self.trace.inputs[-1 - register].value
        # a write changes what every register holds that has the array, also those the body does not name
        candidates += sorted(
            r for r, held in before.registers.items()
            if r not in named and r not in candidates and after.registers.get(r) != held
        )  # fmt: skip
        for register in candidates:
            start = before.registers[register]
            now = after.registers.get(register, Unknown("a variable without a value"))
            if register not in inside:
                if now is start or now == start:
                    continue
                inside[register] = None
                if isinstance(start, Value) and isinstance(now, Value):
                    inside[register] = self.common(opened(start.type), opened(now.type))
                changed = True
            elif inside[register] is not None:
                current = inside[register]
                type_ = None
                if isinstance(now, Value) and current is not None:
                    type_ = self.common(current, opened(now.type))
                if type_ != current:
                    inside[register] = type_
                    changed = True
        leaders = self.leaders(before, inside, sharing)
        for register, memory in leaders.items():
            if register in values and after.registers.get(register) is not after.registers.get(memory):
                sharing.apart.add(register)
                changed = True
            changed |= values.get(register) is not values.get(memory)
        # who may share matters only where something is written
        grown = sharing.grows(self.arrays_after_pass(after, values))
        return changed or (grown and sharing.written())

    def arrays_after_pass(self, after: State, values: dict[int, Value]) -> dict[Any, frozenset[Value]]:
        """Who holds which arrays at the end of a pass: carried registers, and lists that gather."""
        held: dict[Any, frozenset[Value]] = {}
        for register in values:
            now = after.registers.get(register)
            if isinstance(now, Value) and isinstance(now.type, ArrayType):
                held[register] = self.trace.owners_of(now)
        for key, content in after.heap.items():
            gathered = [x for x in content.collecting or [] if isinstance(x, Value) and isinstance(x.type, ArrayType)]
            if gathered:
                held["list", key] = frozenset().union(*map(self.trace.owners_of, gathered))
        return held

    def leave_loop(
        self,
        before: State,
        after: State,
        inside: dict[int, Type | None],
        values: dict[int, Value],
        passes: DimLike | Value,
    ) -> tuple[tuple[Carried, ...], dict[int, Value]]:
        """The carried values of a finished loop, and what the registers hold after it."""
        carries: list[Carried] = []
        results: dict[int, Value] = {}
        known: dict[Value, Value] = {}
        memories = {values[r] for r, type_ in inside.items() if r < 0 and type_ is not None}
        for register, type_ in inside.items():
            if type_ is None:
                continue
            if values[register] in known:
                results[register] = known[values[register]]
                continue
            initial, following = before.registers[register], after.registers[register]
            assert isinstance(initial, Value)
            if not isinstance(following, Value):
                raise Untraceable(OTHER_KIND)
            result = self.trace.value(type_, values[register].name)
            carries.append(Carried(initial, values[register], following, result))
            known[values[register]] = results[register] = result
            if isinstance(type_, ArrayType) and values[register] in memories:
                self.trace.may_be(result, following, initial)
            elif isinstance(type_, ArrayType):
                self.after_passes(initial, following, result, passes)
        return tuple(carries), results

    def after_passes(self, initial: Value, following: Value, result: Value, passes: DimLike | Value) -> None:
        """What the array may be that a loop leaves: the one before it only if there was no pass."""
        trace = self.trace
        trace.may_be(result, following)
        if not isinstance(passes, Value) and trace.facts.less_equal(1, passes) is True:
            return
        if self.nesting and trace.may_be_input(initial):
            self.needed.append(passes)
            return
        trace.entered[result] = Entered(passes, trace.owners_of(result))
        trace.may_be(result, following, initial)

    def collect(
        self, before: State, after: State, length: DimLike, index: Value
    ) -> tuple[tuple[Collected, ...], dict[int, ListState]]:
        """Lists that the body appended to once per pass."""
        heap: dict[int, ListState] = {}
        collected: list[Collected] = []
        for key, content in before.heap.items():
            now = after.heap[key]
            if now.collecting is None or content.collecting is not None:
                if replace(now, held=content.held) != content:
                    raise Untraceable("a list that a loop changes in another way than by appending to an empty one")
                heap[key] = content
                continue
            if now.lost:
                raise Untraceable(now.lost)
            if not now.collecting:
                heap[key] = content
                continue
            element, held = self.of_one_pass(now.collecting)
            assert isinstance(element.type, ArrayType | NpScalarType)
            shape = element.type.shape if isinstance(element.type, ArrayType) else ()
            own = index.type.value if isinstance(index.type, PyIntType) else None
            if any(own in symbols_of(d) for d in shape):
                raise Untraceable("a list of arrays whose sizes differ")
            wrapper = element.type.wrapper if isinstance(element.type, ArrayType) else "ndarray"
            type_ = ArrayType(element.type.dtype, (length, *shape), Layout.c(1 + len(shape)), "cpu", wrapper)
            whole = self.trace.value(type_)
            collected.append(Collected(element, whole))
            each = len(now.collecting)
            heap[key] = ListState(collected=whole, length=length * each, held=now.held | held)
        return tuple(collected), heap

    def of_one_pass(self, gathered: list[Abstract]) -> tuple[Value, frozenset[Value]]:
        """What a pass adds to a list, as one value: several elements are stacked; and who owns them."""
        elements = [x for x in gathered if isinstance(x, Value) and isinstance(x.type, ArrayType | NpScalarType)]
        if len(elements) != len(gathered):
            raise Untraceable("a list of values that are no arrays")
        held = frozenset().union(*map(self.trace.owners_of, elements))
        if len(elements) == 1:
            return elements[0], held
        first = elements[0].type
        assert isinstance(first, ArrayType | NpScalarType)
        shape = first.shape if isinstance(first, ArrayType) else ()
        for x in elements[1:]:
            same = type(x.type) is type(first) and getattr(x.type, "dtype", None) is first.dtype
            if not same or getattr(x.type, "shape", ()) != shape:
                raise Untraceable("a list of arrays of several kinds")
        wrapper = first.wrapper if isinstance(first, ArrayType) else "ndarray"
        type_ = ArrayType(first.dtype, (len(elements), *shape), Layout.c(1 + len(shape)), "cpu", wrapper)
        return self.node("stack", elements, {"axis": 0}, type_), held

    def flatten_lists(self, heap: dict[int, ListState], collected: tuple[Collected, ...]) -> None:
        """Give lists that got several elements in each pass one axis of elements."""
        made = {c.after for c in collected}
        for key, state in heap.items():
            whole = state.collected
            if whole not in made or whole is None or not isinstance(whole.type, ArrayType):
                continue
            if state.length != whole.type.shape[0]:
                shape = (state.length, *whole.type.shape[2:])
                type_ = replace(whole.type, shape=shape, layout=Layout.c(len(shape)))
                heap[key] = replace(
                    state, collected=self.node("reshape", (whole,), {"shape": shape, "order": "C"}, type_)
                )

    def after_loop(
        self, before: State, after: dict[int, Value], inside: dict[int, Type | None], named: set[int], at: int
    ) -> dict[int, Abstract]:
        """The registers after a loop: carried ones have their last value, others written in the body are not known."""
        registers = dict(before.registers)
        for register in named:
            if register not in registers or register not in self.flow.live[at]:
                registers[register] = Unknown("a variable set in a loop that may not run")
        for register, type_ in inside.items():
            if type_ is None:
                registers[register] = Unknown("a variable that is of another kind after a loop")
        registers.update(after)
        return registers

    def while_loop(self, at: int, ins: Instruction, end: int) -> Outcome:
        """`while condition:`; the steps up to the test run before every pass."""
        before = self.state
        named = self.named_registers(at, end)
        candidates = sorted(r for r in named if r in self.flow.live[at] and r in self.registers)
        inside: dict[int, Type | None] = {}
        sharing = Sharing(self.trace)
        saved = self.loops
        going = self.trace.value(PyBoolType(), "going")
        self.loop_depth += 1
        self.nesting += 1
        for _ in range(MAX_WALKS):
            self.state, values = self.enter_loop(before, inside, sharing, collecting=False)
            self.loops = [(at, end)]
            stays: Value | None = None
            with self.trace.collecting() as header:
                test = self.walk(at + 1, frozenset((end, ins.exit)))
            if isinstance(test, LoopTest):
                at_test = self.state
                self.state = at_test.copy()
                with self.trace.collecting() as steps:
                    more, target = self.pass_through(test.inside, at, end)
                # `while condition`: the one exit comes before anything changes
                read_after = self.set_for_later(before, at_test, named, (at, test.outside))
                if target is not None or read_after or self.changes(before, at_test, values, candidates):
                    if target not in (None, test.outside):
                        raise Untraceable("a loop that is left to several places")
                    self.let_out((before,), candidates, named, (at, test.outside), frozenset())
                    with self.trace.collecting() as joined:
                        stays = self.join_exit(test, at_test, steps, more, at)
                    steps = header + joined
            elif test != end and not inside and not sharing.of:
                # all is known up to an exit in the first pass: there is no loop
                self.loop_depth -= 1
                self.nesting -= 1
                self.loops = saved
                self.trace.steps.extend(header)
                return test
            elif test != end:
                raise Untraceable("a loop that is left in a pass that is known")
            if not self.widen(before, self.state, inside, values, candidates, named, sharing):
                break
        else:
            raise Untraceable("a loop whose carried values change their types")
        if not isinstance(test, LoopTest):
            raise Untraceable("a loop without an end that depends on data")
        self.loop_depth -= 1
        self.nesting -= 1
        self.loops = saved
        self.index = at
        if any(replace(self.state.heap[key], held=c.held) != c for key, c in before.heap.items()):
            raise Untraceable("a list that grows in a while loop")
        condition = test.condition
        if stays is not None:
            header, condition = [], going
            carries, after = self.leave_loop(before, self.state, inside, values, 1)  # the first pass is always begun
            carries = (*carries, self.flag_carried(going, stays))
        else:
            flag = self.trace.value(PyBoolType(), "ran")
            carries, after = self.leave_loop(before, self.state, inside, values, flag)
            if any(isinstance(c.initial.type, ArrayType) for c in carries):
                ran = Carried(self.boolean(False), self.trace.value(PyBoolType(), "ran"), self.boolean(True), flag)
                carries = (*carries, ran)
        self.trace.add(Loop(None, None, Graph(tuple(header)), condition, Graph(tuple(steps)), carries, (), self.site()))
        self.require_needed()
        self.state = State(self.after_loop(before, after, inside, named, at), before.heap)
        return test.outside

    def changes(self, before: State, at_test: State, values: dict[int, Value], candidates: list[int]) -> bool:
        """Has a pass changed a variable before the test?"""
        entered = {r: values.get(r, before.registers[r]) for r in candidates}
        return any(at_test.registers.get(r) != held for r, held in entered.items())

    def set_for_later(self, before: State, at_test: State, named: set[int], between: tuple[int, int]) -> bool:
        """Does a pass set a variable before its test that is read where the loop is left to, and in no other pass?"""
        at, target = between
        return any(
            isinstance(at_test.registers.get(r), Value) and at_test.registers.get(r) is not before.registers.get(r)
            for r in (named & self.flow.live[target]) - self.flow.live[at]
        )

    def flag_carried(self, going: Value, stays: Value) -> Carried:
        """The flag that tells whether a loop goes on."""
        return Carried(self.boolean(True), going, stays, self.trace.value(PyBoolType(), "going"))

    def pass_through(self, start: int, at: int, end: int) -> tuple[Value, int | None]:
        """Walk from a place in a pass to its end; whether the loop goes on then, and where it is left if it may be."""
        exit_ = self.function.instructions[at].exit
        outcome = self.walk(start, frozenset((end, exit_)))
        if outcome == end:
            return self.boolean(True), None
        if not isinstance(outcome, LoopTest):
            raise Untraceable("a break or return that depends on data")
        at_test = self.state
        self.state = at_test.copy()
        self.nesting += 1
        with self.trace.collecting() as steps:
            more, target = self.pass_through(outcome.inside, at, end)
        self.nesting -= 1
        if target not in (None, outcome.outside):
            raise Untraceable("a loop that is left to several places")
        return self.join_exit(outcome, at_test, steps, more, at), outcome.outside

    def join_exit(self, test: LoopTest, at_test: State, steps: list[Step], more: Value, at: int) -> Value:
        """The branch of an exit: the rest of the pass, or nothing; gives whether the loop goes on."""
        merged: dict[tuple[Value, Value], Merged] = {}
        live = self.flow.live[at] | self.flow.live[test.outside]
        self.state = self.merged_state(self.state, at_test, live, merged)
        stays = self.trace.value(PyBoolType(), "stays")
        flag = Merged(more, self.boolean(False), stays)
        self.trace.add(Branch(test.condition, Graph(tuple(steps)), Graph(()), (*merged.values(), flag), self.site()))
        return stays


def opened(type_: Type) -> Type:
    """The type without its known value: what a loop carries changes."""
    if isinstance(type_, PyIntType | PyFloatType | PyBoolType | PyComplexType):
        return type(type_)()
    return type_
