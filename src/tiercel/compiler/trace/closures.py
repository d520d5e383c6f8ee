"""Functions made inside the one being traced, and the cells they share with it.

In: `MakeFunction`, `Build cell`, `LoadCell`, `StoreCell`. Out: a `Closure` in a register, which a call walks in place,
and cells whose content stands in the heap of the trace, as that of lists does: whoever shares a cell sees a write.

Invariants: a closure's code is a constant of the program and its cells are the trace's own, so nothing has to be
guarded; it cannot leave the region (nothing a region returns is a function); a cell that a branch or a loop changes is
lost, as a list is.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from typing import Any

from tiercel.bytecode.instructions import Instruction
from tiercel.compiler.abstract import Abstract, CellRef, Closure, Known, ListState, Mapping, Untraceable
from tiercel.compiler.trace.calls import Calls
from tiercel.compiler.trace.objects import Cell


class Closures(Calls):
    """Adds functions of one's own."""

    def new_cell(self, items: Sequence[Abstract]) -> CellRef:
        """A new cell, with a content or without."""
        key = next(self.trace.lists)
        self.state.heap[key] = ListState(list(items))
        return CellRef(key)

    def load_cell(self, cell: Abstract) -> Abstract:
        """What is in a cell."""
        if isinstance(cell, CellRef):
            state = self.state.heap[cell.key]
            if state.lost or state.collecting is not None:
                raise Untraceable("a variable shared with a nested function that a branch or loop changes")
            if not state.items:
                raise Untraceable("a variable that may have no value")
            return state.items[0]
        if isinstance(cell, Known) and isinstance(cell.value, Cell):
            return self.sampled(*self.environment.read_cell(cell.value.position))
        raise Untraceable("a variable shared with a nested function")

    def store_cell(self, cell: Abstract, value: Abstract) -> None:
        """Write into a cell of the trace's own."""
        if not isinstance(cell, CellRef):
            raise Untraceable("a variable of the enclosing function is written")
        state = self.state.heap[cell.key]
        if state.outside:
            raise Untraceable("a variable of the enclosing function is written")
        if state.lost or state.collecting is not None:
            raise Untraceable("a variable shared with a nested function that a branch or loop changes")
        state.items[:] = [value]

    def make_function(self, ins: Instruction) -> Closure:
        """A function of the code, defaults and cells of an instruction."""
        code: Any = self.constants[~ins.code]
        if not isinstance(code, types.CodeType):
            raise Untraceable("a function is made")
        defaults = () if ins.defaults is None else tuple(self.items(self.operand(ins.defaults)))
        named = () if ins.kwdefaults is None else self.pairs(self.operand(ins.kwdefaults))
        return Closure(code, ins.name, defaults, named, tuple(self.own(self.registers[c]) for c in ins.cells))

    def own(self, cell: Abstract) -> Abstract:
        """A cell as the function made here sees it: what is captured from outside holds what it held at entry."""
        if isinstance(cell, CellRef):
            return cell
        made = self.new_cell([self.load_cell(cell)])
        self.state.heap[made.key].outside = True
        return made

    def pairs(self, x: Abstract) -> tuple[tuple[Any, Abstract], ...]:
        """The items of a dict with known keys."""
        if not isinstance(x, Mapping):
            raise Untraceable("keyword defaults that are not known")
        return x.items

    def call_closure(self, closure: Closure, args: list[Abstract], keywords: dict[str, Abstract]) -> Abstract:
        """Walk a function of one's own in place."""
        code = closure.code
        if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            raise Untraceable("a generator")
        function = types.FunctionType(
            code,
            self.environment.function.__globals__,
            closure.name,
            closure.defaults,  # stand for what the defaults will be
            tuple(types.CellType() for _ in code.co_freevars),
        )
        function.__kwdefaults__ = dict(closure.kwdefaults)
        program = self.environment.program_of(function)
        if program is None:
            raise Untraceable(f"a call of {closure.name}, which is Python")
        free = dict(zip(code.co_freevars, closure.cells, strict=True))
        cells = [free[name] for name in program[0].free]
        return self.walk_function(function, program, args, keywords, cells, lambda parameter: parameter.default)

    def call(self, callee: Abstract, args: list[Abstract], keywords: dict[str, Abstract]) -> Abstract:
        """Call something."""
        if isinstance(callee, Closure):
            return self.call_closure(callee, args, keywords)
        return super().call(callee, args, keywords)
