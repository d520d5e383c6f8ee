"""Let writes into arrays happen in the memory the array has, where nobody can tell.

In: a region graph in which a write makes a new value, a copy with some elements replaced. Out: the same graph, in which
such nodes, and the loops and branches that hand the array on, say that the new value takes over the old one's storage:

    out = zeros(n, m)                            out = zeros(n, m)
    for t: out = put(out, (t,), row)       ->    for t: out = put(out, (t,), row) in the storage of out

The first copies n*m elements in each pass, the second writes m.

May we (`_Writer.idle`, and what surrounds it): a *storage* is made by a step that gives fresh memory; the values that
may look into it are its versions and their views. A write may take a storage over if

* the step that made it is in the same graph, or the graph is the body of a loop that carries it or the arm of a branch
  that hands it on: so nothing runs again, or is skipped, that needs the old elements;
* no version and no view of it is used afterwards, by a step or as a result, and what is written is not one of them.

A loop carries a storage in place if what it hands to the next pass is a version of what the pass was given. It takes
over the storage from before the loop if that is free; else a copy is made, once. A branch hands a storage on in place
if both arms give the newest version of it.

Inputs are never written: their memory belongs to somebody else (`commit` copies what is written into them).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from tiercel.compiler.elementwise import is_elementwise
from tiercel.compiler.fuse import REDUCTIONS, is_contraction
from tiercel.compiler.graph import (
    Branch,
    Carried,
    Graph,
    Guard,
    Loop,
    Merged,
    Node,
    Region,
    Result,
    Step,
    Value,
    graphs,
    own_uses,
    steps,
    uses,
    values_in,
)
from tiercel.operators.layout import Layout
from tiercel.operators.types import ArrayType

_FRESH = frozenset(
    ("zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like", "arange", "concat",
     "stack", "index_put", "embedding", "take", "gather", *REDUCTIONS)
)  # fmt: skip
"""Operators that give memory of their own, beside elementwise ones and products."""
_FIRST_NUMBER = 3_000_000  # of new values; the stage before begins at two million


def write_in_place(region: Region) -> Region:
    """Mark the writes that need no copy; the same object if there is none."""
    if not any(isinstance(s, Node) and s.operator == "index_put" for s in steps(region.graph)):
        return region
    handed_over = {value for exit_ in region.exits.values() for result in exit_.values() for value in _values(result)}
    handed_over |= {write.value for write in region.writes}
    graph = _Writer().graph(region.graph, handed_over, set())
    return region if graph is region.graph else replace(region, graph=graph)


def storages(graph: Graph) -> dict[Value, Value]:
    """For each value that is in the storage of another: the value that the storage was made for."""
    found: dict[Value, Value] = {}

    def walk(graph: Graph) -> None:
        for step in graph.steps:
            match step:
                case Node() if step.writes is not None:
                    found[step.outputs[0]] = found.get(step.inputs[step.writes], step.inputs[step.writes])
                case Loop():
                    for c in step.carried:
                        if c.in_place:
                            found[c.inside] = found[c.after] = found.get(c.initial, c.initial)
                    for inner in graphs(step):
                        walk(inner)
                case Branch():
                    for inner in graphs(step):
                        walk(inner)
                    for m in step.merged:
                        if m.in_place:
                            found[m.after] = found.get(m.then, m.then)
                case Node() | Guard():
                    pass

    walk(graph)
    return found


def _values(result: Result) -> Iterator[Value]:
    yield from (value for value in (result.value, result.base) if value is not None)
    for item in result.items:
        yield from _values(item)


def _is_array(value: Value) -> bool:
    return isinstance(value.type, ArrayType) and value.type.rank > 0


def _is_fresh(node: Node) -> bool:
    return node.operator in _FRESH or is_elementwise(node) or is_contraction(node)


class _Writer:
    """Walks graphs in program order. A storage is named by the value it was made for."""

    def __init__(self) -> None:
        self.numbers = itertools.count(_FIRST_NUMBER)
        self.looks_into: dict[Value, frozenset[Value]] = {}  # value -> storages
        self.version_of: dict[Value, Value] = {}  # a value that is all of a storage -> the storage
        self.members: dict[Value, set[Value]] = {}  # storage -> values that may look into it
        self.newest: dict[Value, Value] = {}  # storage -> its last version

    # -- storages ---------------------------------------------------------------------------------------------

    def make(self, value: Value) -> None:
        """A value with memory of its own."""
        self.looks_into[value] = frozenset((value,))
        self.version_of[value] = self.newest[value] = value
        self.members[value] = {value}

    def storages(self, value: Value) -> frozenset[Value]:
        """The storages a value may look into; one of its own for what comes from outside."""
        if value not in self.looks_into:
            self.make(value)
        return self.looks_into[value]

    def take_over(self, storage: Value, value: Value) -> None:
        """A new version."""
        self.looks_into[value] = frozenset((storage,))
        self.version_of[value], self.newest[storage] = storage, value
        self.members[storage].add(value)

    def view(self, node: Node) -> None:
        """What may look into the operands' memory."""
        seen = frozenset().union(*(self.storages(v) for v in node.inputs if isinstance(v.type, ArrayType)))
        for output in node.outputs:
            self.looks_into[output] = seen | {output}
            self.version_of.pop(output, None)
            self.members[output] = {output}
            for storage in seen:
                self.members[storage].add(output)

    def idle(self, storage: Value, last_use: dict[Value, int], at: int) -> bool:
        """Is nothing that may look into a storage used after a step?"""
        return all(last_use.get(member, -1) <= at for member in self.members[storage])

    # -- steps ------------------------------------------------------------------------------------------------

    def graph(self, graph: Graph, handed_over: set[Value], own: set[Value]) -> Graph:
        """A graph that may write into the storages `own`, and those it makes; `handed_over` is used after it."""
        last_use = {value: at for at, step in enumerate(graph.steps) for value in uses(step)}
        last_use |= dict.fromkeys(handed_over, len(graph.steps))
        new: list[Step] = []
        for at, step in enumerate(graph.steps):
            match step:
                case Node():
                    new.append(self.node(step, at, last_use, own))
                case Loop():
                    new += self.loop(step, at, last_use, own)
                case Branch():
                    new.append(self.branch(step, at, last_use, own))
                case Guard():
                    new.append(step)
        same = len(new) == len(graph.steps) and all(a is b for a, b in zip(new, graph.steps, strict=True))
        return graph if same else Graph(tuple(new))

    def node(self, node: Node, at: int, last_use: dict[Value, int], own: set[Value]) -> Node:
        """A node; a write takes over its operand's storage if it may."""
        if not _is_fresh(node):
            self.view(node)
            return node
        if node.operator == "index_put" and node.writes is None and not node.attributes.get("accumulate"):
            storage = self.written_storage(node)
            if storage in own and self.idle(storage, last_use, at):
                self.take_over(storage, node.outputs[0])
                return replace(node, writes=0)
        for output in node.outputs:
            self.make(output)
            if _is_array(output):
                own.add(output)
        return node

    def written_storage(self, node: Node) -> Value | None:
        """The storage that a write is about, if what is written comes from elsewhere."""
        target, *given = node.inputs
        self.storages(target)
        storage = self.version_of.get(target)
        given += values_in(node.attributes)
        if storage is None or any(storage in self.storages(v) for v in given if isinstance(v.type, ArrayType)):
            return None
        return storage

    def loop(self, loop: Loop, at: int, last_use: dict[Value, int], own: set[Value]) -> list[Step]:
        """A loop, and copies in front of it of what it carries in place."""
        inside = {c for c in loop.carried if _is_array(c.inside)}
        while True:
            header, body = self.passes(loop, inside)
            kept = {c for c in inside if self.version_of.get(c.next) is c.inside and self.newest[c.inside] is c.next}
            if kept == inside:
                break
            inside = kept
        before: list[Step] = []
        carried: list[Carried] = []
        for c in loop.carried:
            if c not in inside:
                carried.append(c)
                self.make(c.after)
                if _is_array(c.after):
                    own.add(c.after)
                continue
            initial = c.initial
            if not self.is_free(loop, c, at, last_use, own):
                type_ = c.inside.type
                assert isinstance(type_, ArrayType)
                initial = Value(next(self.numbers), replace(type_, layout=Layout.c(type_.rank)), c.initial.name)
                before.append(Node("astype", (c.initial,), {"dtype": type_.dtype}, (initial,), loop.origin))
                self.make(initial)
                own.add(initial)
            self.take_over(self.version_of[initial], c.after)
            carried.append(replace(c, initial=initial, in_place=True))
        for collected in loop.collected:
            self.make(collected.after)
            own.add(collected.after)
        if not inside and header is loop.header and body is loop.body:
            return [loop]
        return [*before, replace(loop, header=header, body=body, carried=tuple(carried))]

    def passes(self, loop: Loop, in_place: set[Carried]) -> tuple[Graph | None, Graph]:
        """Header and body if a pass may write into what is carried `in_place`."""
        for c in loop.carried:
            self.make(c.inside)
        for graph in (loop.once, loop.ahead.graph if loop.ahead is not None else None):
            if graph is not None:
                self.graph(graph, {v for step in loop.body.steps for v in uses(step)}, set())
        at_end = {c.next for c in loop.carried} | {c.inside for c in loop.collected}
        header = loop.header
        if header is not None:
            read = {v for step in loop.body.steps for v in uses(step)} | at_end
            header = self.graph(header, read | ({loop.condition} if loop.condition is not None else set()), set())
        own = {c.inside for c in in_place}
        return header, self.graph(loop.body, at_end, own)

    def is_free(self, loop: Loop, carried: Carried, at: int, last_use: dict[Value, int], own: set[Value]) -> bool:
        """Is what a loop begins with in a storage that nobody else needs, in the loop or after it?"""
        storage = self.version_of.get(carried.initial)
        if storage not in own or not self.idle(storage, last_use, at):
            return False
        used = [*own_uses(loop), *(v for g in graphs(loop) for step in steps(g) for v in own_uses(step))]
        return sum(v in self.members[storage] for v in used) == 1

    def branch(self, branch: Branch, at: int, last_use: dict[Value, int], own: set[Value]) -> Branch:
        """A branch whose arms may write into what it hands on."""
        free = {storage for storage in own if self.idle(storage, last_use, at)}
        before = dict(self.newest)
        while True:
            arms: list[Graph] = []
            newest: list[dict[Value, Value]] = []
            chosen = ({m.then for m in branch.merged}, {m.orelse for m in branch.merged})
            for graph, given in zip((branch.then, branch.orelse), chosen, strict=True):
                self.newest = dict(before)
                arms.append(self.graph(graph, given, set(free)))
                newest.append(self.newest)
            written = {s for s in free if any(of[s] is not before[s] for of in newest)}
            handed: dict[Value, Merged] = {}
            for merged in branch.merged:
                storage = self.version_of.get(merged.then)
                if storage in written and (merged.then, merged.orelse) == tuple(of[storage] for of in newest):
                    handed[storage] = merged
            if handed.keys() == written:
                break
            free -= written - handed.keys()
        self.newest = {**newest[1], **newest[0], **before}
        in_place = set(handed.values())
        all_merged = tuple(replace(m, in_place=True) if m in in_place else m for m in branch.merged)
        for storage, merged in handed.items():
            self.take_over(storage, merged.after)
        for merged in branch.merged:
            if merged not in in_place:
                self.make(merged.after)
                if _is_array(merged.after):
                    own.add(merged.after)
        if not in_place and arms == [branch.then, branch.orelse]:
            return branch
        return replace(branch, then=arms[0], orelse=arms[1], merged=all_merged)
