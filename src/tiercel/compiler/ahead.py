"""What `hoist` took out of a loop's passes, as statements: computed in the first pass, or in the first of several.

In: the `once` and `ahead` graphs of a loop. Out: `If` statements at the start of the loop's body, and places for their
values in front of the loop, so that they are there in the passes that follow.

Invariant: a value that the passes read has a place that depends on no name bound inside the `If`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import cast, scalar_dtype
from tiercel.compiler.graph import Graph, Loop, Node, Value, steps
from tiercel.compiler.memory import Memory
from tiercel.dtypes import as_dtype
from tiercel.loops.form import INDEX, Assign, Binary, Block, Compare, Const, Expr, If, Let, Local, Stmt, Var
from tiercel.operators.types import ArrayType
from tiercel.shapes import DimLike, Symbol

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer

BOOL = as_dtype("bool")

Places: TypeAlias = list[tuple[Value, Memory | Var]]
"""Values with where they are kept: a buffer, or a local."""


class BeforePasses:
    """Makes room in front of the loop; `emit` makes the statements at the start of its body."""

    def __init__(self, state: Lowerer, loop: Loop, index: Symbol, trip: DimLike | None) -> None:
        self.state, self.loop, self.index, self.trip = state, loop, index, trip
        if loop.ahead is not None:
            state.largest[loop.ahead.count.name] = loop.ahead.passes
        self.once = self._places(loop.once) if loop.once is not None else []
        self.ahead = self._places(loop.ahead.graph) if loop.ahead is not None else []
        self.first = ""
        if loop.once is not None and loop.header is not None:
            self.first = state.fresh("first")
            state.emit(Local(self.first, Const(True, BOOL)))

    def _places(self, graph: Graph) -> Places:
        """Room for the values that somebody outside of the graph uses."""
        state = self.state
        own = set(map(id, steps(graph)))
        places: Places = []
        for step in graph.steps:
            for value in step.outputs if isinstance(step, Node) else ():
                if all(id(user) in own for user in state.uses.get(value, ())):
                    continue
                if isinstance(value.type, ArrayType):
                    places.append((value, state.new_arena(value)))
                else:
                    dtype = scalar_dtype(value.type)
                    local = Var(state.fresh(value.name or "hoisted"), dtype)
                    state.emit(Local(local.name, Const(dtype.numpy.type(0).item(), dtype)))
                    places.append((value, local))
        return places

    def emit_outside(self, condition: Expr) -> None:
        """What all passes need, computed in front of the loop where `condition` holds: that there is a pass."""
        assert self.loop.once is not None
        self._run(condition, self.loop.once, self.once, [])

    def emit(self) -> None:
        """The statements at the start of a pass."""
        loop, state = self.loop, self.state
        if loop.once is not None:
            if self.first:
                switch: list[Stmt] = [Assign(self.first, Const(False, BOOL))]
                self._run(Var(self.first, BOOL), loop.once, self.once, switch)
            else:
                self._run(Compare("eq", Var(self.index.name), Const(0, INDEX)), loop.once, self.once, [])
        if loop.ahead is None:
            return
        assert self.trip is not None
        start, count, passes = loop.ahead.start.name, loop.ahead.count.name, dim_expression(loop.ahead.passes)
        state.emit(Let(start, Binary("sub", Var(self.index.name), Binary("mod", Var(self.index.name), passes))))
        state.emit(Let(count, Binary("min", passes, Binary("sub", dim_expression(self.trip), Var(start)))))
        self._run(Compare("eq", Var(self.index.name), Var(start)), loop.ahead.graph, self.ahead, [])

    def _run(self, condition: Expr, graph: Graph, places: Places, after: list[Stmt]) -> None:
        """The graph in the passes where `condition` holds."""
        state = self.state
        with state.collecting() as statements:
            for value, place in places:
                if isinstance(place, Memory):
                    state.wanted[value] = [place]
            state.run(graph)
            for value, place in places:
                if isinstance(place, Memory):
                    state.settle(value)
                else:
                    state.emit(Assign(place.name, cast(state.scalar(value), place.dtype)))
            for stmt in after:
                state.emit(stmt)
        for value, place in places:
            if isinstance(place, Memory):
                state.memory[value] = place
                state.scalars.pop(value, None)
            else:
                state.scalars[value] = place
        state.emit(If(condition, Block(tuple(statements))))
