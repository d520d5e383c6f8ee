"""Take columns before elementwise steps instead of after them.

In: a region graph with composites written out. Out: the same graph, where a product with a frozen matrix is cut into
blocks of columns by elementwise steps that follow it:

    z = x @ w + b                       p = x @ w
    i = z[:, :n]; g = z[:, n:]    ->    i = p[:, :n] + b[:n]; g = p[:, n:] + b[n:]

so that the gates of a recurrent cell read the product itself, and what is computed from them becomes one nest over the
units, which `panels` can put behind the product. Nothing is computed twice and nothing left out: only what the cuts
cover exactly once is cut earlier, so floating-point flags are those of the program.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tiercel.compiler.elementwise import is_elementwise
from tiercel.compiler.fuse import is_contraction
from tiercel.compiler.graph import Branch, Graph, Guard, Loop, Node, Region, Step, Value, own_uses, steps
from tiercel.compiler.movement import REORDERING, WITHIN
from tiercel.operators.layout import Layout
from tiercel.operators.types import ArrayType

_FIRST_NUMBER = 3_000_000  # of new values; the stage before begins at two millions
_THROUGH = ("reshape", "expand_dims", "index", "identity")
"""What may stand between a product and an elementwise step that its columns are taken of."""


def narrow_columns(region: Region) -> Region:
    """Take columns early in all graphs of a region; the same object if there are none to take."""
    if not any(given.frozen for given in region.inputs):
        return region
    graph = _Narrower(region).graph(region.graph)
    return region if graph is region.graph else replace(region, graph=graph)


def columns_of(node: Node) -> list[tuple[int, int]] | None:
    """(first, one beyond the last) column of each result, for nodes that cut arrays along the last axis only.

    None for other nodes, and where a number is not known before running.
    """
    if not node.inputs or not isinstance(node.inputs[0].type, ArrayType):
        return None
    shape = node.inputs[0].type.shape
    if len(shape) < 2 or not isinstance(shape[-1], int):
        return None
    size = shape[-1]
    if node.operator == "split":
        sections, axis = node.attributes.get("sections"), node.attributes.get("axis", 0)
        if not isinstance(sections, int) or sections < 1 or not isinstance(axis, int) or size % sections:
            return None
        each = size // sections
        return [(each * i, each * (i + 1)) for i in range(sections)] if axis % len(shape) == len(shape) - 1 else None
    key = node.attributes.get("key")
    if node.operator != "index" or not isinstance(key, tuple) or len(node.inputs) != 1:
        return None
    if any(part is not Ellipsis and not isinstance(part, slice) for part in key):
        return None
    given = [part for part in key if part is not Ellipsis]
    if len(given) > len(shape) or len(key) - len(given) > 1:
        return None
    at = next((i for i, part in enumerate(key) if part is Ellipsis), len(key))
    whole = slice(None)
    full = (*key[:at], *(whole,) * (len(shape) - len(given)), *key[at + 1 :])
    last = full[-1]
    if any(part != whole for part in full[:-1]) or not all(
        x is None or type(x) is int for x in (last.start, last.stop, last.step)
    ):
        return None
    first, end, step = last.indices(size)
    return [(first, end)] if step == 1 and first < end else None


class _Narrower:
    def __init__(self, region: Region) -> None:
        self.numbers = itertools.count(_FIRST_NUMBER)
        self.frozen = {given.value for given in region.inputs if given.frozen}
        self.kept = {v for exit_ in region.exits.values() for r in exit_.values() for v in _results(r)}
        self.kept |= {write.value for write in region.writes}
        self.users: dict[Value, list[Step]] = {}
        for step in steps(region.graph):
            for value in own_uses(step):
                self.users.setdefault(value, []).append(step)

    def graph(self, graph: Graph) -> Graph:
        """A graph with those inside it treated."""
        found = self.narrowed([self.inner(step) for step in graph.steps])
        same = len(found) == len(graph.steps) and all(a is b for a, b in zip(found, graph.steps, strict=True))
        return graph if same else Graph(tuple(found))

    def inner(self, step: Step) -> Step:
        """A step with its graphs treated."""
        match step:
            case Loop():
                body = self.graph(step.body)
                return step if body is step.body else replace(step, body=body)
            case Branch():
                then, orelse = self.graph(step.then), self.graph(step.orelse)
                return step if then is step.then and orelse is step.orelse else replace(step, then=then, orelse=orelse)
            case Node() | Guard():
                return step

    def narrowed(self, found: list[Step]) -> list[Step]:
        """Steps in order, the last elementwise step before a cut first: its operands may be next."""
        made = {v: step for step in found if isinstance(step, Node) for v in step.outputs}
        known: dict[Value, bool] = {}
        for at in range(len(found) - 1, -1, -1):
            node = found[at]
            if not isinstance(node, Node):
                continue
            cuts = self.cuts(node, found)
            if cuts is None or not any(self.comes_of_product(v, made, known) for v in node.inputs):
                continue
            operands = [self.operand(v, node) for v in node.inputs]
            if "no" in operands:
                continue
            for cut in cuts:
                place = next(i for i, step in enumerate(found) if step is cut)
                found[place : place + 1] = self.moved(node, cut, operands)
            found.remove(node)
        return found

    def cuts(self, node: Node, found: Sequence[Step]) -> list[Node] | None:
        """What cuts the result of an elementwise step, if that is all its uses and every column is taken once."""
        if not is_elementwise(node) or len(node.outputs) != 1 or node.writes is not None:
            return None
        output = node.outputs[0]
        type_ = output.type
        if not isinstance(type_, ArrayType) or output in self.kept or type_.rank < 2 or type_.dtype.kind != "f":
            return None
        cuts: list[Node] = []
        columns: list[tuple[int, int]] = []
        for step in self.users.get(output, ()):
            taken = columns_of(step) if isinstance(step, Node) else None
            if taken is None or not any(step is other for other in found):
                return None
            assert isinstance(step, Node)
            cuts.append(step)
            columns += taken
        columns.sort()
        ends = [0, *(end for _, end in columns)]
        whole = bool(cuts) and [first for first, _ in columns] == ends[:-1] and ends[-1] == type_.shape[-1]
        return cuts if whole and len(columns) > 1 else None

    def comes_of_product(self, value: Value, made: dict[Value, Node], known: dict[Value, bool]) -> bool:
        """Is it a product with a frozen matrix, seen through views and elementwise steps?"""
        node = made.get(value)
        if node is None:
            return False
        if value not in known:
            if is_contraction(node):
                matrix = node.inputs[1]
                turned = made.get(matrix)
                if turned is not None and turned.operator in REORDERING:
                    matrix = turned.inputs[0]
                known[value] = matrix in self.frozen
            else:
                through = is_elementwise(node) or (node.operator in _THROUGH and len(node.inputs) == 1)
                known[value] = through and any(self.comes_of_product(v, made, known) for v in node.inputs)
        return known[value]

    def operand(self, value: Value, node: Node) -> str:
        """How an operand is cut: "columns", "as it is" where it is the same in all columns, or "no"."""
        output = node.outputs[0].type
        assert isinstance(output, ArrayType)
        if not isinstance(value.type, ArrayType) or value.type.rank == 0 or value.type.shape[-1] == 1:
            return "as it is"
        return "columns" if value.type.shape[-1] == output.shape[-1] else "no"

    def moved(self, node: Node, cut: Node, operands: Sequence[str]) -> list[Step]:
        """The cut of every operand, and the elementwise step for each result."""
        made: list[Step] = []
        parts: dict[Value, tuple[Value, ...]] = {}
        for value, how in zip(node.inputs, operands, strict=True):
            if how == "as it is":
                parts[value] = (value,) * len(cut.outputs)
            elif value not in parts:
                assert isinstance(value.type, ArrayType)
                types = [
                    replace(value.type, shape=(*value.type.shape[:-1], _array(out).shape[-1]), layout=Layout.unknown())
                    for out in cut.outputs
                ]
                parts[value] = tuple(Value(next(self.numbers), t, value.name) for t in types)
                attributes = _attributes(cut, value.type.rank)
                step = Node(cut.operator, (value,), attributes, parts[value], cut.origin)
                made.append(step)
                self.users[value] = [s for s in self.users[value] if s is not node] + [step]
        for number, output in enumerate(cut.outputs):
            inputs = tuple(parts[v][number] for v in node.inputs)
            step = replace(node, inputs=inputs, outputs=(output,))
            made.append(step)
            for value in inputs:
                self.users.setdefault(value, []).append(step)
        return made


def _attributes(cut: Node, rank: int) -> dict[str, Any]:
    """The attributes of a cut along the last axis of an array of another rank."""
    if cut.operator == "split":
        return {**cut.attributes, "axis": rank - 1}
    given = columns_of(cut)
    assert given is not None
    return {"key": (Ellipsis, slice(*given[0])), WITHIN: True}


def _array(value: Value) -> ArrayType:
    assert isinstance(value.type, ArrayType)
    return value.type


def _results(result: Any) -> list[Value]:
    found = [v for v in (result.value, result.base) if v is not None]
    return found + [v for item in result.items for v in _results(item)]
