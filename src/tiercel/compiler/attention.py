"""Recognise attention in a graph: `softmax(elementwise(q @ k.T)) @ v`, whose scores nobody else looks at.

    s = q @ kT; z = where(mask, s * 0.125, -inf)                         # scores, and what is done to each
    e = exp(z - max(z, -1)); p = e / sum(e, -1); o = p @ v               ->  one `Attention` item

In: the steps of one graph, composites expanded, and how often each value is used. Out: `Attention` items, each of which
stands for its member nodes and is lowered by `attend` to one nest that never holds the scores. Parts:

* *weights*: the operand of the second product. Axes of size 1 may be added or dropped on the way (`views`).
* *scores*: the first product, `(rows of q) x (rows of k)`. With a last axis of size 1 it is taken the other way round.
* *chain*: elementwise nodes between the scores and the exponential, in order; `row maximum` is optional.
* *absorbed*: elementwise nodes that make operands of the chain (a mask from comparisons), used by nothing else: they
  are computed for each tile instead of being kept. `tril` and `triu` of a constant become a comparison of positions.

Legality (`why_not`): every member but the last is used by members only, nothing is written between the first member and
the last, the row axes line up, and the dtypes are ones that products have code for. What is not recognised is computed
as before, with the scores in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tiercel.compiler.elementwise import EXPENSIVE, is_elementwise
from tiercel.compiler.graph import Branch, Graph, Loop, Node, Step, Value
from tiercel.compiler.maker import reduced_axes
from tiercel.operators import get
from tiercel.operators.types import ArrayType, Shape

DTYPES = ("float32", "float64")
_VIEWS = ("reshape", "squeeze", "expand_dims", "ravel", "flatten", "index", "transpose")
FILLS = ("zeros", "ones", "full")
"""What makes an array of one value."""


@dataclass(frozen=True, eq=False)
class Attention:
    """A softmax between two products, as one item.

    Attributes:
        nodes: the members, in program order; the last one makes `output`.
        domain: (*batch, rows, keys): shape of the weights as the second product takes them.
        q, k, v: operands; `q` is (*, rows, size) and `k` (*, size, keys) as the first product takes them, or with
            `turned` the other way round: (*, size, 1) and (*, keys, size).
        turned: see above.
        scores: what the first product gives.
        chain: elementwise nodes from the scores to `shifted`, in order.
        weighted: the operand of the exponential without its maximum: the last value of the chain.
        powers: the exponential.
        has_maximum: whether the maximum of a row is subtracted.
        absorbed: nodes that make operands of the chain, by what they define.
        output: what the second product gives, (*batch, rows, size of v).
    """

    nodes: tuple[Node, ...]
    domain: Shape
    q: Value
    k: Value
    v: Value
    turned: bool
    scores: Value
    chain: tuple[Node, ...]
    weighted: Value
    powers: Value
    has_maximum: bool
    absorbed: Mapping[Value, Node]
    output: Value

    @property
    def origin(self) -> int:
        """The instruction of the second product."""
        return self.nodes[-1].origin

    @property
    def reads(self) -> tuple[Value, ...]:
        """What it needs that others make."""
        own = {v for node in self.nodes for v in node.outputs}
        found = dict.fromkeys(v for node in self.nodes for v in node.inputs if v not in own)
        return tuple(found)


@dataclass
class _Match:
    """What has been found while following operands back from the second product."""

    makers: Mapping[Value, Node]
    members: dict[int, Node] = field(default_factory=dict)

    def maker(self, value: Value, *operators: str) -> Node | None:
        """The node of one of these operators that makes a value."""
        node = self.makers.get(value)
        return node if node is not None and node.operator in operators else None

    def take(self, node: Node) -> None:
        """Make a node a member."""
        self.members[id(node)] = node


def _shape(value: Value) -> Shape:
    return value.type.shape if isinstance(value.type, ArrayType) else ()


def without_ones(shape: Shape) -> Shape:
    """The sizes that are not known to be 1."""
    return tuple(d for d in shape if not (isinstance(d, int) and d == 1))


def _same_rows(node: Node) -> bool:
    """Does a view only add or drop axes of size 1, so that the elements keep their order?"""
    if not isinstance(node.outputs[0].type, ArrayType):
        return False
    before, after = _shape(node.inputs[0]), _shape(node.outputs[0])
    if node.attributes.get("order", "C") != "C" or without_ones(before) != without_ones(after):
        return False
    if node.operator == "transpose":
        axes = node.attributes.get("axes")
        return axes is not None and tuple(axes) == tuple(range(len(before)))
    if node.operator == "index":
        key = node.attributes.get("key")
        parts = key if isinstance(key, tuple) else (key,)
        return all(
            p is None or p is Ellipsis or p == slice(None) or (isinstance(p, int) and p in (0, -1)) for p in parts
        )
    return True


def _through_views(match: _Match, value: Value) -> tuple[Value, list[Node]]:
    """What a value is a view of, and the views, when they only add or drop axes of size 1."""
    views: list[Node] = []
    while (node := match.maker(value, *_VIEWS)) is not None and _same_rows(node):
        views.append(node)
        value = node.inputs[0]
    return value, views


def _row_fold(match: _Match, value: Value, operator: str, folded: Value) -> list[Node] | None:
    """The nodes of `folded.operator(-1, keepdims)`, or of the same without keepdims and the axis put back."""
    if not _shape(value) or _shape(value)[-1] != 1 or len(_shape(value)) != len(_shape(folded)):
        return None
    source, views = _through_views(match, value)
    node = match.maker(source, operator)
    if node is None or node.inputs[0] is not folded or len(node.inputs) > 1 or node.attributes.get("dtype") is not None:
        return None
    rank = len(_shape(folded))
    if reduced_axes(node, rank) != (rank - 1,) or node.attributes.get("where") is not None:
        return None
    initial = node.attributes.get("initial")
    if initial is not None and initial is not True:
        return None
    return [node, *views]


def _cheap(node: Node) -> bool:
    return get(node.operator).lowering.key not in EXPENSIVE


def _product(node: Node) -> bool:
    return (
        node.operator in ("matmul", "dot")
        and all(isinstance(v.type, ArrayType) and v.type.rank >= 2 for v in node.inputs)
        and isinstance(node.outputs[0].type, ArrayType)
        and node.outputs[0].type.rank >= 2
        and node.outputs[0].type.dtype.name in DTYPES
        and all(v.type.dtype is node.outputs[0].type.dtype for v in node.inputs if isinstance(v.type, ArrayType))
        and not (node.operator == "dot" and len(_shape(node.inputs[1])) > 2)
    )


def _chain(match: _Match, value: Value, domain: Shape) -> tuple[Node, list[Node]] | None:
    """(first product, elementwise nodes from it to `value` in order), found by following operands back."""
    found: list[Node] = []
    product: list[Node] = []
    known: dict[Value, bool] = {}

    def depends(at: Value) -> bool:
        """Is `at` computed from the scores, element by element?"""
        if at in known:
            return known[at]
        known[at] = False
        node = match.makers.get(at)
        if node is None or without_ones(_shape(at)) != without_ones(domain):
            return False
        if _product(node):
            known[at] = not product or product[0] is node
            if known[at] and not product:
                product.append(node)
            return known[at]
        if node.operator in _VIEWS and _same_rows(node):
            known[at] = depends(node.inputs[0])
        elif is_elementwise(node):
            ours = [depends(v) for v in node.inputs if _shape(v)]
            known[at] = any(ours)
        if known[at]:
            found.append(node)
        return known[at]

    return (product[0], found) if depends(value) else None


def _match(last: Node, makers: Mapping[Value, Node]) -> Attention | None:
    """The attention that a product ends, if it is one."""
    match = _Match(makers)
    if not _product(last):
        return None
    weights, views = _through_views(match, last.inputs[0])
    quotient = match.maker(weights, "divide")
    if quotient is None or len(quotient.inputs) != 2:
        return None
    powers, total = quotient.inputs
    exponential = match.maker(powers, "exp")
    if exponential is None or _shape(weights) != _shape(powers) or not _shape(powers):
        return None
    sums = _row_fold(match, total, "sum", powers)
    if sums is None:
        return None
    weighted, maximum = exponential.inputs[0], []
    shift = match.maker(weighted, "subtract")
    if shift is not None and len(shift.inputs) == 2:
        found = _row_fold(match, shift.inputs[1], "max", shift.inputs[0])
        if found is not None:
            maximum, weighted = [shift, *found], shift.inputs[0]
    chained = _chain(match, weighted, _shape(powers))
    if chained is None:
        return None
    product, chain = chained  # in the order of computation
    dtypes = {powers.type.dtype, total.type.dtype, weights.type.dtype, weighted.type.dtype}  # type: ignore[attr-defined]
    if len(dtypes) != 1 or last.outputs[0].type.dtype not in dtypes:  # type: ignore[attr-defined]
        return None
    for node in (last, *views, quotient, exponential, *sums, *maximum, *chain, product):
        match.take(node)
    x, y = product.inputs
    turned = _shape(product.outputs[0])[-1] == 1 and _shape(powers)[-1] != 1
    return Attention(
        tuple(match.members.values()), _shape(last.inputs[0]), y if turned else x, x if turned else y, last.inputs[1],
        turned, product.outputs[0], tuple(chain), weighted, powers, bool(maximum), {}, last.outputs[0],
    )  # fmt: skip


def _absorb(found: Attention, makers: Mapping[Value, Node], used_by: Callable[[Value], Sequence[object]]) -> Attention:
    """The attention with the makers of its masks as members."""
    members = {id(n): n for n in found.nodes}
    absorbed: dict[Value, Node] = {}
    pending = [(v, _shape(n.outputs[0])) for n in found.chain for v in n.inputs]
    while pending:
        value, over = pending.pop()
        node = makers.get(value)
        if node is None or id(node) in members or not isinstance(value.type, ArrayType):
            continue
        triangle = is_triangle(node, makers) and over == found.domain and _shape(value) == over[-2:]
        if not triangle and not (is_elementwise(node) and _cheap(node) and value.type.rank > 0):
            continue
        if any(id(step) not in members for step in used_by(value)):
            continue
        members[id(node)] = node
        absorbed[value] = node
        if triangle:
            fill = makers[node.inputs[0]]
            absorbed[node.inputs[0]] = fill
            if all(id(step) in members for step in used_by(node.inputs[0])):
                members[id(fill)] = fill
        else:
            pending += [(v, over) for v in node.inputs]
    return replace(found, nodes=tuple(members.values()), absorbed=absorbed)


def is_triangle(node: Node, makers: Mapping[Value, Node]) -> bool:
    """Is it tril or triu of a matrix that holds one value?"""
    if node.operator not in ("tril", "triu") or not isinstance(node.attributes.get("k", 0), int):
        return False
    fill = makers.get(node.inputs[0])
    return fill is not None and fill.operator in FILLS and len(_shape(node.inputs[0])) == 2


def why_not(found: Attention, used_by: Callable[[Value], Sequence[object]], returned: Sequence[Value]) -> str | None:
    """Why the members cannot become one item; None when they can."""
    members = {id(n) for n in found.nodes}
    kept = set(map(id, returned))
    for node in found.nodes:
        for value in node.outputs:
            if value is found.output:
                continue
            if id(value) in kept:
                return f"{value} is a result"
            if any(id(step) not in members for step in used_by(value)):
                return f"{value} is used elsewhere as well"
    if rows_of(found) is None:
        return "the rows of the scores are not the rows of the product with the values"
    return None


def rows_of(found: Attention) -> Shape | None:
    """The shape (*, rows, keys) of the first product, if its rows are those of the domain up to axes of size 1.

    The axis that the tiles of the domain run over may not be one in which the keys differ.
    """
    shape = _shape(found.scores)
    if found.turned:
        shape = (*shape[:-2], 1, shape[-2])
    if without_ones(shape[:-1]) != without_ones(found.domain[:-1]) or shape[-1] != found.domain[-1]:
        return None
    rows = found.domain[-2]
    if not (isinstance(rows, int) and rows == 1) and isinstance(shape[-2], int) and shape[-2] == 1:
        return None
    out = _shape(found.output)
    return shape if out[:-2] == found.domain[:-2] and out[-2] == rows else None


def find_attention(
    graph: Graph, used_by: Callable[[Value], Sequence[object]], returned: Sequence[Value]
) -> tuple[Step | Attention, ...]:
    """The steps of a graph with attentions as items, each at the place of its last member.

    Args:
        graph: composites expanded; graphs inside its loops and branches are looked at when they are lowered.
        used_by: the steps that use a value, anywhere in the region.
        returned: the values that the region hands over.
    """
    makers = {v: step for step in graph.steps if isinstance(step, Node) for v in step.outputs}
    position = {id(step): number for number, step in enumerate(graph.steps)}
    barriers = [n for n, step in enumerate(graph.steps) if _is_barrier(step)]
    gone: set[int] = set()
    items: list[Step | Attention] = list(graph.steps)
    for number, step in enumerate(graph.steps):
        found = _match(step, makers) if isinstance(step, Node) else None
        if found is None:
            continue
        found = _absorb(found, makers, used_by)
        places = sorted(position[id(n)] for n in found.nodes)
        if any(p in gone for p in places) or any(places[0] < b < number for b in barriers):
            continue
        if why_not(found, used_by, returned) is not None:
            continue
        items[number] = replace(found, nodes=tuple(graph.steps[p] for p in places))  # type: ignore[misc]
        gone.update(places[:-1])
    return tuple(item for place, item in enumerate(items) if place not in gone)


def _is_barrier(step: Step) -> bool:
    return isinstance(step, Loop | Branch) or (isinstance(step, Node) and step.writes is not None)
