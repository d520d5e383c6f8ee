"""Tracing some passes of one loop, from its head back to its head.

In: the facts of a loop, the values that its frame holds when control is at the head, and the passes that are left. Out:
a `LoopRegion`: a `Region` with one result, a tuple, and what each of its items is for; or `Untraceable`.

Why a loop, from its head back to its head, and not the rest of the function: it needs nothing of what stands before and
behind it, so a loop whose function prints, logs, appends to a global or has a `try` is compiled as well; and as its end
is a state that the interpreter could have reached itself, as few passes can be run at a time as one likes, which is how
Ctrl-C and other threads get their turn (`vm.regions`). The rest of a function would return its result, and could only
be left by returning.

Invariants:

* The region has no visible writes. An array that the loop writes into is copied at entry; its last content is a result
  that the caller stores. A list that it appends to is not looked at; the new elements are a result that the caller
  appends. Whoever enters makes sure that such an array or list is reached through no other input.
* The result says what every register of `LoopFacts.results` holds after the passes. What cannot be said is refused.
* Trip counts and starts are inputs, so any number of passes is one Signature. At least one pass is left at entry.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import CellType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tiercel.bytecode.instructions import Instruction
from tiercel.bytecode.program import UNBOUND, Function
from tiercel.compiler.abstract import Abstract, Iterable, Known, ListRef, Source, Unknown, Untraceable
from tiercel.compiler.environment import Environment, is_plain
from tiercel.compiler.graph import Branch, Carried, Graph, Loop, Merged, Region, Result, Value, steps
from tiercel.compiler.loop_facts import LoopFacts
from tiercel.compiler.trace.arguments import Seen, abstract_argument, result_of, signature_text, writes_of
from tiercel.compiler.trace.loops import Loops
from tiercel.compiler.trace.objects import Cell
from tiercel.compiler.trace.region import assuming
from tiercel.compiler.trace.scalars import Counted, Enumerated
from tiercel.compiler.trace.state import BOOL, Outcome, Trace
from tiercel.compiler.trace.walk import Frame
from tiercel.operators.types import ArrayType, NpScalarType, PyIntType
from tiercel.shapes import DimLike, Symbol
from tiercel.shapes import Range as DimRange

__all__ = ["FrameEnvironment", "LoopRegion", "Passes", "trace_loop"]

Passes: TypeAlias = tuple[Any, ...]
"""What a `for` goes over, without its values: ("range", step), ("array",), ("items",), ("enumerate", inner), ("zip",
*inner). The values follow the registers among the arguments, in this order: first number and number of passes; the rest
of the array; a tuple of the items; the count, then those of the inner one. ("while",) for none: the most passes."""

SAMPLE_PASSES = 6
"""Passes in the sizes that a kernel is tried on: the reference takes long for each."""


class GrownList(NamedTuple):
    """The new elements of a list: their position in the result, and what they are.

    `scalars` tells NumPy scalars from arrays. `first` is the register whose old object is the first element, or -1.
    """

    position: int
    scalars: bool
    first: int


@dataclass(slots=True)
class LoopRegion:
    """See the module docstring.

    Attributes:
        region: what is compiled; its argument i is that of `trace_loop`.
        passes: whether the first item of the result is the number of passes begun; else all were made.
        left: position of a bool in the result, false when the loop was left by a break; None if it cannot be.
        target: the instruction to go on with when it was left, and by a `for` that was written out.
        unrolled: whether all passes were written out: the loop is then over.
        least: passes that must be made at once.
        values: register -> position in the result.
        same: register -> the register of `values`, `last` or `written` whose object it holds as well.
        objects: register -> the object it holds.
        last: register -> the list whose last new element it holds.
        written: register of an array -> position of its new content.
        lists: register of a list -> its new elements, along a first axis.
    """

    region: Region
    passes: bool
    left: int | None
    target: int
    unrolled: bool
    least: int = 0
    values: dict[int, int] = field(default_factory=dict)
    same: dict[int, int] = field(default_factory=dict)
    objects: dict[int, Any] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)
    lists: dict[int, GrownList] = field(default_factory=dict)


class FrameEnvironment(Environment):
    """The surroundings of a frame: its cells are among the arguments of a region, by position.

    Args:
        function: any function with the globals of the frame.
        program_of: as for `Environment`.
        arguments: of the region.
    """

    arguments: Sequence[Any] = ()

    def read_cell(self, position: int) -> tuple[Any, Source]:
        """The content of a cell."""
        try:
            content = self.arguments[position].cell_contents
        except ValueError:
            raise Untraceable("a variable shared with a nested function that has no value yet") from None
        return content, ("attribute", (("register", position), "cell_contents"))


def trace_loop(
    function: Function,
    constants: Sequence[Any],
    environment: FrameEnvironment,
    facts: LoopFacts,
    arguments: Sequence[Any],
    passes: Passes,
    *,
    name: str = "region",
    speculate: bool = True,
) -> LoopRegion:
    """Trace passes of a loop for the kinds of values given.

    Args:
        function, constants: as for `trace_region`.
        environment: its surroundings.
        facts: of the loop.
        arguments: what the registers of `facts.inputs` hold, then the values of `passes`.
        passes: what the loop goes over.
        name: of the region.
        speculate: as for `trace_region`.

    Raises:
        Untraceable: with the reason and the instruction.
    """
    environment.arguments = arguments

    def make(trace: Trace) -> LoopRegion:
        frame = _LoopFrame(trace, function, constants, environment, None)
        frame.outermost = facts.start
        frame.flow = copy.copy(frame.flow)
        frame.flow.live = list(facts.live)
        return _Tracing(frame, facts, arguments, passes, name).run()

    return assuming(make, environment, speculate)


class _LoopFrame(Frame):
    """The walk of a function from the head of one of its loops on."""

    outermost = -1

    def loop(self, at: int, ins: Instruction) -> Outcome:
        """A loop; the one that is compiled is never taken apart: its first pass was left to the interpreter."""
        return Loops.loop(self, at, ins) if at == self.outermost else super().loop(at, ins)


class _Tracing:
    """One trace of one loop."""

    def __init__(self, frame: Frame, facts: LoopFacts, arguments: Sequence[Any], passes: Passes, name: str) -> None:
        self.frame, self.facts, self.arguments, self.passes, self.name = frame, facts, arguments, passes, name
        self.trace = frame.trace
        self.next = len(facts.inputs)  # the argument that is read next for the passes
        self.copies: dict[int, Value] = {}
        self.limit: Value | None = None
        self.seen = Seen()
        self.holders: dict[Value, int] = {}  # array -> the register that it is told of
        self.aliases: dict[Found, int] = {}
        self.elements: dict[Value, int] = {}

    def run(self) -> LoopRegion:
        """Trace and say what came of it."""
        frame, facts, trace = self.frame, self.facts, self.trace
        self.enter()
        before = dict(frame.registers)
        trace.frames.append(frame)
        outside = frozenset(i for i in range(len(frame.function.instructions)) if not facts.start <= i <= facts.end)
        target = frame.walk(facts.start, outside)
        if not isinstance(target, int):
            raise Untraceable("a loop that is left by a return or raise", facts.start)
        frame.index = facts.start
        return self.leave(before, target)

    # ---- before ------------------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Fill the registers."""
        frame, facts, trace = self.frame, self.facts, self.trace
        for position, register in enumerate(facts.inputs):
            value = self.arguments[position]
            if value is UNBOUND:
                continue  # reading it is refused
            if register in facts.grows:
                if type(value) is not list:
                    raise Untraceable(f"append to a {type(value).__name__}", facts.start)
                frame.registers[register] = frame.new_list([])
                continue
            if type(value) is CellType:
                frame.registers[register] = Known(Cell(position))
                continue
            label = _label(facts.names.get(register, f"r{register}"))
            made = abstract_argument(frame, value, label, ("register", position))
            if register in facts.written and isinstance(made, Value) and isinstance(made.type, ArrayType):
                if type(value) is not np.ndarray or not made.type.layout.is_c:
                    raise Untraceable("an array that is written and not in C order, or a Tensor", facts.start)
                twice = (made, made) if made.type.dtype is BOOL else (made,)
                made = frame.node("logical_and" if len(twice) == 2 else "positive", twice, {}, made.type)
                self.copies[register] = made
            frame.registers[register] = made
        if facts.iterator is None:
            self.limit = self.number("limit")
        else:
            frame.registers[facts.iterator] = self.iterable(self.passes)
        for given in trace.inputs:
            for dim in given.value.type.shape if isinstance(given.value.type, ArrayType) else ():
                if isinstance(dim, Symbol):
                    trace.facts.set_range(dim, DimRange(0, None))

    def argument(self, label: str) -> Abstract:
        """The next value of the passes."""
        position = self.next
        self.next += 1
        value, name = self.arguments[position], f"{label}_of_loop{position}"
        return abstract_argument(self.frame, value, name, ("register", position))

    def number(self, label: str) -> Value:
        """The next value of the passes, an int that is never assumed to equal a size."""
        self.trace.volatile.add(f"{label}_of_loop{self.next}")
        made = self.argument(label)
        assert isinstance(made, Value)
        return made

    def iterable(self, passes: Passes) -> Iterable:
        """What the loop goes over, from where it is."""
        frame = self.frame
        match passes:
            case ("range", step):
                first, count = _dim(self.number("first")), _dim(self.number("passes"))
                if isinstance(count, Symbol):
                    self.trace.facts.set_range(count, DimRange(0, None))
                return Iterable(count, Counted(frame, first, step))
            case ("array",):
                self.trace.volatile.add(f"rows_of_loop{self.next}_0")
                return frame.iterable(self.argument("rows"))
            case ("items",):
                return frame.iterable(self.argument("items"))
            case ("enumerate", inner):
                start = _dim(self.number("count"))
                counted = self.iterable(inner)
                at = Enumerated(frame, counted.at, start, isinstance(counted.at, Counted))
                return Iterable(counted.length, at, counted.holds)
            case ("zip", *inner):
                parts = [self.iterable(p) for p in inner]
                zipped = frame.scalar("zip", list(parts)) if len(parts) > 1 else None
                if isinstance(zipped, Iterable):
                    return zipped
        raise Untraceable(f"a loop over {passes[0]}", self.facts.start)

    # ---- after -------------------------------------------------------------------------------------------------------

    def leave(self, before: dict[int, Abstract], target: int) -> LoopRegion:
        """What the registers hold after the passes."""
        frame, facts, trace = self.frame, self.facts, self.trace
        loop = next((s for s in reversed(trace.steps) if isinstance(s, Loop) and s.origin == facts.start), None)
        if loop is None and facts.iterator is None:
            raise Untraceable("a loop whose end is known before it begins", facts.start)
        self.handed = Handed(trace, loop)
        items: list[Result] = []
        made = self.counted(loop) if loop is not None else None
        if made is not None:
            items.append(Result("value", value=made))
        out = LoopRegion(self.blank(), made is not None, None, target, loop is None)
        if self.handed.going is not None:
            out.left = len(items)
            items.append(Result("value", value=self.handed.going.after))
        self.leave_arrays(out, items)
        self.leave_lists(out, items, before)
        for register in facts.results:
            now = frame.registers.get(register)
            if register in self.copies or (now is not None and now is before.get(register)):
                continue
            if register == facts.item and out.left is None and loop is not None:
                continue  # the last item: whoever enters knows it
            self.leave_register(out, items, register, now)
        if writes_of(frame):
            raise Untraceable(
                "an array is written that the loop reaches through an object, or that it binds anew", facts.start
            )
        if out.least and loop is not None:
            count = made if made is not None else self.trips(loop)
            enough = frame.scalar_node("greater_equal", count, frame.number(out.least))
            frame.guard(enough, "too few passes for a variable to be no longer what it was")
        if not (out.values or out.objects or out.last or out.written or out.lists or out.same) and made is None:
            raise Untraceable("a loop that changes nothing", facts.start)
        whole = Result("tuple", items=tuple(items))
        few = {n: min(trace.sample[n], SAMPLE_PASSES) for n in trace.volatile & trace.sample.keys()}
        out.region = replace(
            self.blank(),
            inputs=tuple(trace.inputs),
            graph=Graph(tuple(trace.steps)),
            exits={"return": {"return": whole}},
            signature=signature_text(trace.inputs),
            sample={**trace.sample, **few},
        )
        return out

    def blank(self) -> Region:
        return Region(self.name, 0, self.facts.start, (), Graph(()), {}, self.trace.facts)

    def trips(self, loop: Loop) -> Value:
        assert loop.trip is not None
        return loop.trip if isinstance(loop.trip, Value) else self.frame.size_value(loop.trip)

    def leave_arrays(self, out: LoopRegion, items: list[Result]) -> None:
        """The content of arrays that were written."""
        for register, copied in self.copies.items():
            now = self.frame.registers.get(register)
            if not isinstance(now, Value):
                raise Untraceable(_reason(now, "an array that is written"), self.facts.start)
            self.holders[now] = register
            if now is copied:
                self.seen.owners |= self.trace.owners_of(copied)
                continue
            out.written[register] = len(items)
            items.append(result_of(self.frame, now, self.seen))

    def leave_lists(self, out: LoopRegion, items: list[Result], before: dict[int, Abstract]) -> None:
        """The new elements of lists."""
        start = self.facts.start
        for register in self.facts.grows:
            reference = before.get(register)
            if not isinstance(reference, ListRef):
                continue
            state = self.frame.state.heap[reference.key]
            if state.lost:
                raise Untraceable(state.lost, start)
            if state.items or state.collecting:
                raise Untraceable("a list that passes which are written out append to", start)
            if state.collected is None:
                continue
            element = self.handed.element(state.collected)
            if isinstance(element.type, ArrayType) and element.type.wrapper != "ndarray":
                raise Untraceable("a list of Tensors", start)
            value, ago, first = element, 1, -1
            if element in self.handed.by_inside:
                # what the pass before left: in the first pass, the very object from before the loop
                carried = self.handed.by_inside[element]
                holder = next((r for r in self.facts.inputs if before.get(r) is carried.initial), None)
                found = self.handed.resolve(carried)
                if holder is None or found is None or self.handed.going is not None:
                    raise Untraceable("what is appended may be an array from before the loop", start)
                (value, ago), first = found.made[0], holder
                if ago > 1:
                    raise Untraceable("what is appended is of two passes before", start)
                ago = 2
            if isinstance(element.type, ArrayType):
                self.handed.list_elements(value, ago, self.seen.owners)
            out.lists[register] = GrownList(len(items), isinstance(element.type, NpScalarType), first)
            items.append(Result("value", value=state.collected))
            self.elements[element] = register

    def leave_register(self, out: LoopRegion, items: list[Result], register: int, now: Abstract | None) -> None:
        """What one register holds."""
        frame, start = self.frame, self.facts.start
        if isinstance(now, Known) and now.value is not None and not is_plain(now.value):
            out.objects[register] = now.value
            return
        if now is None or isinstance(now, Unknown):
            raise Untraceable(_reason(now, f"the variable {self.facts.names.get(register, '')}"), start)
        if isinstance(now, Value) and isinstance(now.type, ArrayType):
            carried = self.handed.by_after.get(now)
            found = None if carried is None else self.handed.resolve(carried)
            if now in self.holders:
                out.same[register] = self.holders[now]
                return
            if found is not None:
                if found in self.aliases:
                    out.same[register] = self.aliases[found]
                    return
                self.aliases[found] = register
                given = next((g.value for g in self.trace.inputs if g.value is found.only), None)
                if found.only in self.elements:
                    out.last[register] = self.elements[found.only]
                    out.least = max(out.least, 1)
                    return
                if given is not None:
                    out.least, now = max(out.least, 1), given
                elif self.handed.claim(found, self.seen.owners):
                    out.least = max(out.least, found.depth)
                    self.trace.entered.pop(now, None)
                    self.trace.owners[now] = frozenset((now,))
                else:
                    raise Untraceable("what a variable holds may be, or share memory with, what another holds", start)
            self.holders[now] = register
        out.values[register] = len(items)
        items.append(result_of(frame, now, self.seen))

    def counted(self, loop: Loop) -> Value | None:
        """Count the passes of a loop that does not make all that it is given, and bound those of a `while`."""
        frame, trace = self.frame, self.trace
        if self.limit is None:
            return None if self.handed.going is None else self.counted_while_going(loop, self.handed.going.inside)
        assert loop.header is not None
        assert loop.condition is not None
        inside, after = trace.value(PyIntType(), "made"), trace.value(PyIntType(), "made")
        with trace.collecting() as steps:
            fewer = frame.scalar_node("less", inside, self.limit)
            condition = frame.scalar_node("logical_and", fewer, loop.condition)
        with trace.collecting() as counting:
            following = frame.node("add", (inside, frame.number(1)), {}, PyIntType())
        carried = (*loop.carried, Carried(frame.number(0), inside, following, after))
        place = next(i for i, s in enumerate(trace.steps) if s is loop)
        trace.steps[place] = replace(
            loop,
            header=Graph((*loop.header.steps, *steps)),
            condition=condition,
            body=Graph((*loop.body.steps, *counting)),
            carried=carried,
        )
        return after

    def counted_while_going(self, loop: Loop, going: Value) -> Value:
        """Count the passes of a `for` until it is left."""
        frame, trace = self.frame, self.trace
        inside, after = trace.value(PyIntType(), "made"), trace.value(PyIntType(), "made")
        with trace.collecting() as counting:
            following = frame.node("add", (inside, going), {}, PyIntType())
        carried = (*loop.carried, Carried(frame.number(0), inside, following, after))
        place = next(i for i, s in enumerate(trace.steps) if s is loop)
        trace.steps[place] = replace(loop, body=Graph((*loop.body.steps, *counting)), carried=carried)
        return after


class Found(NamedTuple):
    """What a carried array is after enough passes: a value, and how many passes ago it was made, 1 for the last.

    One such pair for each way in which the last pass may have ended: first at its end, then by each break. Two arrays
    of which all are the same are the same object.
    """

    made: tuple[tuple[Value, int], ...]

    @property
    def depth(self) -> int:
        """Passes it takes until it is none from before the loop."""
        return max(ago for _, ago in self.made)

    @property
    def only(self) -> Value | None:
        """The value, if the last pass made it however it ended."""
        return self.made[0][0] if set(self.made) == {(self.made[0][0], 1)} else None


class Handed:
    """What passes hand on: which object a carried array is at the end, and who else holds that object.

    `a, b = b, a + b` leaves in `a`, after two passes, an array that a pass has made. To say so keeps aliases as they
    are: what may still be an object from before the loop can be no result, because a copy would be another object; nor
    can two results that may or may not be the same object.

    A loop with a break has branches of a kind of their own: one arm goes on with the pass, the other leaves the loop.
    The second is taken in the last pass only, so what it hands on is what an earlier pass made that went on.
    """

    def __init__(self, trace: Trace, loop: Loop | None) -> None:
        self.trace = trace
        self.loop = loop
        carried = loop.carried if loop is not None else ()
        self.by_inside = {c.inside: c for c in carried}
        self.by_after = {c.after: c for c in carried}
        self.going = next((c for c in carried if c.inside.name == "going"), None)
        self.while_going: dict[Value, Value] = {}
        self.leaving: dict[Value, tuple[Branch, Merged]] = {}
        self.ends: list[Branch | None] = [None]  # the ways in which the last pass may end
        for step in steps(loop.body) if loop is not None else ():
            if not isinstance(step, Branch):
                continue
            if self.going is not None and step.condition is self.going.inside:
                # Once left, a loop hands everything on as it is.
                self.while_going = {m.after: m.then for m in step.merged}
            elif any(m.after.name == "stays" for m in step.merged):
                self.ends.append(step)
                self.leaving |= {m.after: (step, m) for m in step.merged}
        self.claimed: set[tuple[Value, int, int]] = set()
        self.listed: dict[Value, int] = {}

    def element(self, collected: Value) -> Value:
        """What a pass appends to a list."""
        assert self.loop is not None
        return next(c.inside for c in self.loop.collected if c.after is collected)

    def resolve(self, carried: Carried) -> Found | None:
        """Follow what a pass hands on to values that passes made; None if passes hand it round for ever."""
        made = [self._follow(carried.next, 1, end) for end in self.ends]
        known = tuple(m for m in made if m is not None)
        return Found(known) if len(known) == len(made) else None

    def _follow(self, value: Value, ago: int, end: Branch | None) -> tuple[Value, int] | None:
        value = self.while_going.get(value, value)
        if value in self.leaving:
            branch, merged = self.leaving[value]
            return self._follow(merged.orelse if branch is end else merged.then, ago, end)
        if value in self.by_inside:
            if ago > len(self.by_inside):
                return None
            return self._follow(self.by_inside[value].next, ago + 1, None)
        return value, ago

    def list_elements(self, value: Value, ago: int, taken: set[Value]) -> None:
        """Each pass appends this value of so many passes ago to a list, and nothing else may hold these objects.

        Raises:
            Untraceable: something else may.
        """
        owners = self.trace.owners_of(value)
        if value not in owners:
            raise Untraceable("views are appended to a list")
        if owners & self.trace.outside:
            raise Untraceable("what is appended may be an array from before the loop")
        if owners & taken or owners & self.listed.keys():
            raise Untraceable("two lists, or a list and an array, that share memory")
        self.listed |= dict.fromkeys(owners, ago)

    def claim(self, found: Found, taken: set[Value]) -> bool:
        """Let a result have its objects to itself; false if they may be, or look into, somebody else's."""
        wanted: set[tuple[Value, int, int]] = set()
        for end, (value, ago) in enumerate(found.made):
            owners = self.trace.owners_of(value)
            if value not in owners:
                return False
            for owner in owners:
                if owner in taken or owner in self.trace.outside or self.listed.get(owner, ago + 1) <= ago:
                    return False
                wanted.add((owner, ago, end))
        if wanted & self.claimed:
            return False
        self.claimed |= wanted
        return True


def _dim(value: Value) -> DimLike:
    assert isinstance(value.type, PyIntType)
    assert value.type.value is not None
    return value.type.value


def _label(name: str) -> str:
    """A name for a value: `x_0` would also be the name of the first size of `x`."""
    return f"{name}_" if re.search(r"_\d+$", name) else name


def _reason(now: Abstract | None, what: str) -> str:
    return now.reason if isinstance(now, Unknown) else f"{what} holds what is no value"
