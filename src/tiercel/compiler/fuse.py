"""Group the nodes of a graph into loop nests.

    a = x + y; b = exp(a); s = sum(b, -1, keepdims); c = b / s     ->  one group over the rows of x

In: the steps of one graph, composites expanded. Out: items in an order that respects every dependence: `Group`s, and
the steps that stay by themselves (movement, loops, branches, guards, scalars).

A group iterates over one domain, the shape of its elements. Its members are

* full: elementwise nodes of that shape,
* row: reductions over the last axis of a full value, and elementwise nodes on their results (shape [..., 1] or [...]),
* one contraction at most, as its first member; then only full members follow (they become its epilogue).

Legality (`why_not`): every operand of a member is computed in an earlier item, or in the group at the very element (or
row) where it is used, or broadcast from memory. Order: an item never moves over a barrier (a loop, branch or guard).
Profit: a member shares an operand with the group; a value is computed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tiercel.compiler.attention import Attention
from tiercel.compiler.elementwise import is_elementwise
from tiercel.compiler.graph import Branch, Graph, Guard, Loop, Node, Step, Value, values_in
from tiercel.compiler.maker import reduced_axes
from tiercel.operators.types import ArrayType, NpScalarType, PyIntType, Shape
from tiercel.shapes import Symbol, symbols_of

REDUCTIONS: Mapping[str, str] = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}
"""Operator -> reduction of the loop form."""
CONTRACTIONS = ("matmul", "dot")
CONVOLUTIONS = ("conv1d", "conv2d")
MAX_MEMBERS = 64  # code generation costs about 50 us a node; a group beyond that gains nothing more from fusing
_VIEWS = ("index", "split", "expand_dims")


@dataclass(eq=False)
class Group:
    """A loop nest to be. `full` and `row` say which values its members define, and how."""

    domain: Shape
    nodes: list[Node] = field(default_factory=list)
    full: set[Value] = field(default_factory=set)
    row: set[Value] = field(default_factory=set)
    contraction: Node | None = None

    @property
    def values(self) -> set[Value]:
        """Everything the group defines."""
        return self.full | self.row

    @property
    def reads(self) -> set[Value]:
        """Everything its members use."""
        return {v for node in self.nodes for v in node.inputs}


Item: TypeAlias = Group | Attention | Step


def is_array(value: Value) -> bool:
    """Is the value an array (of any rank)?"""
    return isinstance(value.type, ArrayType)


def is_row_reduction(node: Node) -> bool:
    """Does the node fold just the last axis of an array?"""
    if node.operator not in REDUCTIONS or not isinstance(node.inputs[0].type, ArrayType):
        return False
    rank = node.inputs[0].type.rank
    return (
        rank > 0
        and reduced_axes(node, rank) == (rank - 1,)
        and isinstance(node.outputs[0].type, ArrayType | NpScalarType)
    )


def is_contraction(node: Node) -> bool:
    """Is the node a product of arrays with an array result of rank 2 or more?"""
    return (
        node.operator in CONTRACTIONS
        and all(is_array(v) for v in node.inputs)
        and isinstance(node.outputs[0].type, ArrayType)
        and node.outputs[0].type.rank >= 2
    )


def is_view(node: Node) -> bool:
    """Does the node only look into the memory of its operand, at a place that is known before running?"""
    return (
        node.operator in _VIEWS
        and node.writes is None
        and len(node.inputs) == 1
        and is_array(node.inputs[0])
        and all(is_array(v) for v in node.outputs)
        and next(values_in(node.attributes), None) is None
    )


def heads_group(node: Node) -> bool:
    """Is the node a product or a convolution, with which a group may begin?"""
    return is_contraction(node) or (node.operator in CONVOLUTIONS and is_array(node.outputs[0]))


def data_sizes(value: Value) -> Iterator[Symbol]:
    """The sizes in a value's type that only running decides."""
    type_ = value.type
    dims = type_.shape if isinstance(type_, ArrayType) else ()
    for dim in (*dims, *((type_.value,) if isinstance(type_, PyIntType) and type_.value is not None else ())):
        yield from (s for s in symbols_of(dim) if s.kind == "data")


def shape_of(value: Value) -> Shape:
    """The shape; () for scalars."""
    return value.type.shape if isinstance(value.type, ArrayType) else ()


def row_shapes(domain: Shape) -> tuple[Shape, Shape]:
    """The two shapes a row value may have."""
    return (*domain[:-1], 1), domain[:-1]


def why_not(node: Node, group: Group) -> str | None:
    """Why `node` cannot be a member of `group`; None when it can."""
    if len(group.nodes) >= MAX_MEMBERS:
        return "the group is full"
    if is_row_reduction(node):
        if group.contraction is not None:
            return "a reduction does not follow a product in one loop nest"
        if shape_of(node.inputs[0]) != group.domain:
            return "it folds an array of another shape"
        if node.inputs[0] in group.row:
            return "it folds a row value"
        return None
    if not is_elementwise(node):
        return "it is not elementwise"
    shape = shape_of(node.outputs[0])
    inside = [v for v in node.inputs if v in group.values]
    if shape == group.domain and is_array(node.outputs[0]):
        for value in inside:
            if value in group.row and shape_of(value) != row_shapes(group.domain)[0] and shape_of(value) != ():
                return f"{value} is a row value that lines up with other rows"
        return None
    if group.contraction is None and group.domain and shape in row_shapes(group.domain):
        if not inside or any(v not in group.row for v in inside):
            return "it is smaller than the elements it uses"
        if any(shape_of(v) not in (shape, ()) for v in inside):
            return "its operands are row values of different shapes"
        return None
    return "it has another shape"


class _Scheduler:
    def __init__(self) -> None:
        self.items: list[Item] = []
        self.after: dict[int, list[Step]] = {}  # scalars that follow an item (-1: that come first)
        self.position: dict[Value, int] = {}
        self.sized: dict[Symbol, int] = {}  # sizes that only running decides -> the position of what finds them out
        self.barrier = -1
        self.root: dict[Value, Value] = {}  # what a view looks into: pieces of one array are related

    def root_of(self, value: Value) -> Value:
        return self.root.get(value, value)

    def ready(self, node: Node, group: Group | None) -> int:
        """The first position after everything the node needs, `group`'s own values aside."""
        own = group.values if group is not None else set()
        sizes: list[int] = []
        if self.sized:
            sizes = [self.sized.get(s, -1) for v in (*node.inputs, *node.outputs) for s in data_sizes(v)]
        return max([self.barrier, *(self.position.get(v, -1) for v in node.inputs if v not in own), *sizes])

    def add(self, node: Node) -> None:
        joinable = is_elementwise(node) or is_row_reduction(node)
        if joinable:
            for at in range(len(self.items) - 1, self.barrier, -1):
                group = self.items[at]
                if not isinstance(group, Group) or self.ready(node, group) >= at:
                    continue
                related = {self.root_of(v) for v in group.values | group.reads}
                if not any(self.root_of(v) in related for v in node.inputs if is_array(v) or v in group.row):
                    continue
                if why_not(node, group) is None:
                    self.join(group, node, at)
                    return
        if self.starts_group(node):
            domain = shape_of(node.inputs[0]) if is_row_reduction(node) else shape_of(node.outputs[0])
            group = Group(domain, contraction=node if heads_group(node) else None)
            self.items.append(group)
            self.join(group, node, len(self.items) - 1)
            return
        if is_elementwise(node) or is_view(node):
            # a scalar or a view stands as early as it can, so that what needs it can join a group before this place
            at = self.ready(node, None)
            self.after.setdefault(at, []).append(node)
            for value in node.outputs:
                self.position[value] = at
                if is_array(value) and not is_elementwise(node):
                    self.root[value] = self.root_of(node.inputs[0])
            return
        self.append(node)

    def result(self) -> list[Item]:
        """All items, in order."""
        found: list[Item] = [*self.after.get(-1, ())]
        for at, item in enumerate(self.items):
            found += [item, *self.after.get(at, ())]
        return found

    @staticmethod
    def starts_group(node: Node) -> bool:
        if heads_group(node) or is_row_reduction(node):
            return True
        return is_elementwise(node) and is_array(node.outputs[0])

    def join(self, group: Group, node: Node, at: int) -> None:
        group.nodes.append(node)
        output = node.outputs[0]
        is_row = is_row_reduction(node) or (shape_of(output) != group.domain)
        (group.row if is_row else group.full).add(output)
        self.position[output] = at

    def append(self, step: Step | Attention) -> None:
        self.items.append(step)
        at = len(self.items) - 1
        if isinstance(step, Attention):
            self.position[step.output] = at
            return
        for value in defined_by(step):
            self.position[value] = at
            for symbol in data_sizes(value):
                self.sized.setdefault(symbol, at)
            if isinstance(step, Node) and step.inputs and is_array(value):
                self.root[value] = self.root_of(step.inputs[0])
        if not isinstance(step, Node) or step.writes is not None:
            self.barrier = at


def defined_by(step: Step) -> tuple[Value, ...]:
    """The values a step defines for those after it."""
    match step:
        case Node():
            return step.outputs
        case Loop():
            return (*(c.after for c in step.carried), *(c.after for c in step.collected))
        case Branch():
            return tuple(m.after for m in step.merged)
        case Guard():
            return ()


def fuse(graph: Graph, steps: Iterable[Step | Attention] | None = None) -> list[Item]:
    """The items of one graph (not of the graphs inside its loops and branches).

    Args:
        graph: composites expanded.
        steps: its steps, with what `find_attention` made of some of them.
    """
    scheduler = _Scheduler()
    for step in graph.steps if steps is None else steps:
        if isinstance(step, Node):
            scheduler.add(step)
        else:
            scheduler.append(step)
    return scheduler.result()
