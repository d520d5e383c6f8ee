"""Loops whose first pass is written out before them, because it changes the kind of a variable.

`total = 0.0; for row in x: total = total + row` carries a Python float into the first pass and an array out of it. What
a compiled loop carries has one kind. So the first pass is walked by itself, and the loop is what remains, whose kinds
no longer change.

In: a `LoopStart` that could not be followed for that reason. Out: the steps of the first pass, then the loop over the
rest.

Invariants: nothing of the failed attempt stays in the trace; a loop that may have no pass is guarded to have one, so
that the variable has the kind it has after a pass (without a pass the interpreter runs the call); code doubles at each
level of loops, so at most `MAX_PEELED` levels are done this way.
"""

from __future__ import annotations

from tiercel.bytecode.instructions import Instruction
from tiercel.compiler.abstract import Abstract, Iterable, Untraceable
from tiercel.compiler.graph import Value
from tiercel.compiler.trace.loops import OTHER_KIND, Loops
from tiercel.compiler.trace.scalars import counter
from tiercel.compiler.trace.state import Outcome

MAX_PEELED = 2


class Peeling(Loops):
    """Adds the first pass of a loop apart."""

    peeled = 0
    """Loops around the place being walked whose first pass was written out."""

    def loop(self, at: int, ins: Instruction) -> Outcome:
        """A loop, if need be with its first pass apart."""
        mark = self.mark()
        try:
            return super().loop(at, ins)
        except Untraceable as error:
            iterable = None if ins.iterator is None else mark.state.registers.get(ins.iterator)
            if error.reason != OTHER_KIND or self.peeled >= MAX_PEELED or not isinstance(iterable, Iterable):
                raise
            self.return_to(mark)
        assert ins.iterator is not None
        end = self.flow.loop_end[at]
        if self.trace.facts.less_equal(1, iterable.length) is not True:
            self.require_passes(iterable.length)
        self.registers[ins.target] = iterable.at(self.number(0))
        outcome = self.walk(at + 1, frozenset((end, ins.exit)))
        if outcome != end:
            raise Untraceable("a loop whose first pass, which changes the kind of a variable, may leave it")
        self.registers[ins.iterator] = Iterable(iterable.length - 1, Following(self, iterable), iterable.holds)
        self.peeled += 1
        try:
            return super().loop(at, ins)
        finally:
            self.peeled -= 1


class Following:
    """Elements of an iterable after the first."""

    def __init__(self, frame: Peeling, iterable: Iterable) -> None:
        self.frame, self.iterable = frame, iterable

    def __call__(self, index: Value) -> Abstract:
        return self.iterable.at(self.frame.size_value(counter(index) + 1))
