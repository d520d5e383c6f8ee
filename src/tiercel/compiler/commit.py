"""Writes into inputs: computed beside them, and copied into them when nothing can fail any more.

In: the writes of a region. Out: places for the new elements (`Commits.prepare`, before the graph is lowered), what is
kept of them (`Commits.keep`, after it), and the statements that copy them (`Commits.second`).

    x += y                 ->   if phase == 0: for i: kept[i] = x[i] + y[i]
                                else:          for i: x.new[i] = kept[i]

The function is called twice with one frame and one arena: with phase 0, then, if it has come to its end and raised no
floating-point flag that anybody watches, with phase 1. So a call that the interpreter has to run again finds everything
as it was, and nothing is written after a point where it might still have to.

* What `x[key] = value` writes at places that are known is kept and copied alone: the rest of x is neither copied nor
  touched. Where x is not read after that, its new content never exists beside it.
* What is written in all its elements (`x += y`) is kept as a whole.
* Of anything else (a mask, an arm, a loop) the whole is kept, and only elements whose bits differ are stored: others
  are not rewritten, and nobody sees them flicker.

Invariants: phase 0 only reads inputs, phase 1 only copies. `x.new` has the address of x (`interface.WriteSpec`); it is
a buffer of its own because no phase uses both. Inputs that are written share no memory with others: checked at entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered
from tiercel.compiler.gather import has_arrays
from tiercel.compiler.graph import Graph, Node, Region, Result, Value, Write
from tiercel.compiler.interface import WriteSpec
from tiercel.compiler.memory import Memory
from tiercel.compiler.nests import Access
from tiercel.compiler.subscript import selected
from tiercel.dtypes import as_dtype
from tiercel.loops.form import (
    INDEX,
    Allocate,
    Block,
    Buffer,
    Compare,
    Const,
    Expr,
    If,
    Let,
    Load,
    Stmt,
    Store,
    Var,
)
from tiercel.operators.layout import Layout
from tiercel.operators.types import ArrayType
from tiercel.shapes import DimLike, Symbol, symbols_of

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer


@dataclass(frozen=True, slots=True)
class Part:
    """`x[key] = given`, at instruction `origin`."""

    key: object
    given: Value
    origin: int


def split_writes(
    region: Region, graph: Graph, uses: Callable[[Graph], Sequence[Value]]
) -> tuple[Graph, list[list[Part]]]:
    """The parts that each write of a region consists of, and the graph without what only they needed.

    A write that is not made of parts at places that are known has none.
    """
    producers = {s.outputs[0]: s for s in graph.steps if isinstance(s, Node) and len(s.outputs) == 1}
    inputs = {given.value for given in region.inputs}
    kept = _returned(region)
    found: list[list[Part]] = []
    dropped: set[Node] = set()
    used = list(uses(graph))
    for write in region.writes:
        parts: list[Part] = []
        chain: list[Node] = []
        value = write.value
        while value not in inputs:
            node = producers.get(value)
            if node is None or node.operator != "index_put" or node.attributes.get("accumulate"):
                break
            if has_arrays(node.attributes["indices"]):
                break
            chain.append(node)
            parts.append(Part(node.attributes["indices"], node.inputs[1], node.origin))
            value = node.inputs[0]
        if value is not region.inputs[write.index].value:
            found.append([])
            continue
        found.append(parts[::-1])
        for position, node in enumerate(chain):
            result = node.outputs[0]
            if used.count(result) > (position > 0) or result in kept:
                break
            dropped.add(node)
    if not dropped:
        return graph, found
    return Graph(tuple(s for s in graph.steps if s not in dropped)), found


def _returned(region: Region) -> set[Value]:
    found: set[Value] = set()

    def collect(result: Result) -> None:
        if result.value is not None:
            found.add(result.value)
        for item in result.items:
            collect(item)

    for exit_ in region.exits.values():
        for result in exit_.values():
            collect(result)
    return found


@dataclass(slots=True)
class _Kept:
    """Elements that phase 1 copies: from a memory, or one number."""

    value: Value
    memory: Memory | None  # None: a constant
    constant: Expr | None = None


class Commits:
    """The writes of one lowering."""

    def __init__(self, state: Lowerer, parts: list[list[Part]]) -> None:
        self.state = state
        self.parts = parts
        self.specs: list[WriteSpec] = []
        self.buffers: list[Buffer] = []
        self.phase = Var(state.fresh("phase"))
        self._targets: list[Memory] = []
        self._allocations: list[Stmt] = []
        self._kept: dict[Value, _Kept] = {}
        self._copies: list[Callable[[], None]] = []
        self._slots: dict[str, Memory] = {}

    @property
    def values(self) -> list[Value]:
        """What has to be kept."""
        writes = self.state.region.writes
        return [w.value for w in writes] + [part.given for parts in self.parts for part in parts]

    # -- before the graph -------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make buffers for the inputs that are written, and ask for what has to be kept."""
        state = self.state
        for write, parts in zip(state.region.writes, self.parts, strict=True):
            own = state.memory[state.region.inputs[write.index].value]
            root = replace(own.root, name=state.fresh(f"{own.root.name}_new"), space="result")
            self.buffers.append(root)
            self.specs.append(WriteSpec(root.name, write.index))
            self._targets.append(replace(own, root=root))
            for value in [part.given for part in parts] or [write.value]:
                self._keep(value)

    def _keep(self, value: Value) -> None:
        state = self.state
        if value in self._kept:
            return
        type_ = value.type
        if isinstance(type_, ArrayType) and type_.rank > 0:
            found = state.memory.get(value)
            number = None if found is None else state.inputs.get(found.root.name)
            if found is not None and number is not None and number not in {w.index for w in state.region.writes}:
                self._kept[value] = _Kept(value, found)  # an input that stays as it is
                return
            if any(s.kind == "data" for d in type_.shape for s in symbols_of(d)):
                raise NotLowered("an array of a size that depends on data is written into an argument")
            memory = self._allocate(value.name or "kept", type_)
            state.want(value, memory)
            self._kept[value] = _Kept(value, memory)
        else:
            self._kept[value] = _Kept(value, None)

    def _allocate(self, hint: str, type_: ArrayType) -> Memory:
        shape = tuple(dim_expression(d) for d in type_.shape)
        buffer = Buffer(self.state.fresh(f"{hint}_kept"), type_.dtype, shape, space="arena")
        self._allocations.append(Allocate(buffer))
        return Memory.whole(buffer, type_.shape)

    # -- after the graph --------------------------------------------------------------------------------------

    def keep(self, known: set[str]) -> None:
        """Fill what is kept and not written yet, and find out where it goes.

        Args:
            known: names that phase 1 knows: sizes of the function.
        """
        state = self.state
        for kept in self._kept.values():
            state.settle(kept.value)
            if kept.memory is None:
                expression = state.scalar(kept.value)
                if isinstance(expression, Const):
                    kept.constant = expression
                else:
                    kept.memory = self._allocate("scalar", ArrayType(expression.dtype, (), Layout.c(0)))
                    state.nests.store_scalar(kept.memory, expression)
        for write, parts, target in zip(state.region.writes, self.parts, self._targets, strict=True):
            for part in parts:
                memory = selected(state, target, part.key, part.origin)
                self._plan(part.given, memory, part.origin, known)
            if not parts:
                self._plan_all(write, target)

    def _plan(self, given: Value, target: Memory, origin: int, known: set[str]) -> None:
        kept = self._kept[given]
        source = kept.memory
        if source is not None and source.shape:
            strides = self.state.nests.strides_over(source, target.shape, origin)
            source = replace(source, shape=target.shape, strides=strides)
        for memory in (target, *(() if source is None else (source,))):
            for size in (memory.offset, *memory.strides, *memory.shape):
                self._remember(size, known)
        nests = self.state.nests

        def copy() -> None:
            if source is not None and source.shape:
                nests.copy(source, target)
                return
            element = nests.load_scalar(source) if source is not None else kept.constant
            assert element is not None
            if target.shape:
                nests.fill(target, lambda index: element)
            else:
                nests.store_scalar(target, element)

        self._copies.append(copy)

    def _remember(self, size: DimLike, known: set[str]) -> None:
        """Keep sizes and positions that phase 0 has computed."""
        for symbol in symbols_of(size):
            if symbol.name not in known and symbol.name not in self._slots:
                slot = self._allocate(symbol.name, ArrayType(INDEX, (), Layout.c(0)))
                self._slots[symbol.name] = slot
                self.state.nests.store_scalar(slot, dim_expression(Symbol(symbol.name, symbol.kind)))

    def _plan_all(self, write: Write, target: Memory) -> None:
        kept, nests = self._kept[write.value], self.state.nests
        source = kept.memory
        if source is None:
            raise NotLowered("an array of one element becomes a constant")
        if not target.shape:
            self._copies.append(lambda: nests.store_scalar(target, nests.load_scalar(source)))
        elif write.whole:
            self._copies.append(lambda: nests.copy(source, target))
        else:
            self._copies.append(lambda: self._copy_changed(source, target))

    def _copy_changed(self, source: Memory, target: Memory) -> None:
        """Store the elements whose bits are others."""
        nests = self.state.nests
        bits = as_dtype(f"uint{8 * source.root.dtype.itemsize}")
        both = [
            Access(replace(m, root=replace(m.root, dtype=bits)), m.strides) for m in (source, target)
        ]  # fmt: skip
        dims = nests.merge(nests.vector_last(target.shape, both), both)
        read, write = (nests.declare(a, dims, a.memory.root.name, view=True) for a in both)

        def body(index: tuple[Expr, ...]) -> list[Stmt]:
            new = Load(read, index)
            differs = Compare("ne", new, Load(write, index))
            return [If(differs, Block((Store(write, index, new),)))]

        nests.elements(dims, body)

    # -- the whole --------------------------------------------------------------------------------------------

    def wrapped(self, first: Block) -> Block:
        """The body of the function: what is kept, then one phase or the other."""
        if not self.specs:
            return first
        with self.state.collecting() as second:
            for name, slot in self._slots.items():
                self.state.emit(Let(name, self.state.nests.load_scalar(slot)))
            for copy in self._copies:
                copy()
        begins = Compare("eq", self.phase, Const(0, INDEX))
        return Block((*self._allocations, If(begins, first, Block(tuple(second)))))
