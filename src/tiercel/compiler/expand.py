"""Rewrite composite operators into primitive ones, so that fusion sees the steps inside.

    softmax(x) -> m = max(x); d = x - m; e = exp(d); s = sum(e); e / s

In: the steps of a graph. Out: steps with only primitive nodes; the outputs of a composite keep their `Value`. Types of
the new values follow the row's reference: half types are computed in float32 and rounded once at the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from tiercel.compiler.derived import DERIVED
from tiercel.compiler.elementwise import NotLowered
from tiercel.compiler.graph import Branch, Graph, Loop, Node, Step, Value
from tiercel.compiler.maker import Maker, array_type, computing, full, kept, reduced_axes
from tiercel.dtypes import DType
from tiercel.operators.layout import Layout
from tiercel.operators.types import (
    ArrayType,
    NoneType,
    NpScalarType,
    PyIntType,
)
from tiercel.shapes import DimLike, product

COUNTED = "counted"
"""Attribute of a division by a number of elements: (number, ddof). NumPy warns where the number is not above ddof."""

RECIPROCAL = "reciprocal"
"""Attribute of a division: it may be a product with the reciprocal, one more rounding within the composite's bound."""


def _softmax(m: Maker, node: Node, *, log: bool = False) -> None:
    x = array_type(node.inputs[0])
    axes, dtype = reduced_axes(node, x.rank), computing(x.dtype)
    wide, rows = full(x, dtype), kept(x, axes, dtype)
    fold = {"axis": axes, "keepdims": True}
    value = m.widened(node.inputs[0], dtype)
    peak = m.apply("max", (value,), rows, {**fold, "initial": True})
    shifted = m.apply("subtract", (value, peak), wide)
    powers = m.apply("exp", (shifted,), wide)
    total = m.apply("sum", (powers,), rows, fold)
    if log:
        logarithm = m.apply("log", (total,), rows)
        m.finish(m.apply("subtract", (shifted, logarithm), wide), node.outputs[0])
    else:
        m.finish(m.apply("divide", (powers, total), wide, {RECIPROCAL: True}), node.outputs[0])


def _divided(m: Maker, total: Value, rows: ArrayType, count: DimLike, ddof: int = 0) -> Value:
    """The total of `count` elements over their number, less `ddof`."""
    return m.apply("divide", (total, m.value(PyIntType(count - ddof))), rows, {COUNTED: (count, ddof)})


def _mean_of(m: Maker, value: Value, axes: tuple[int, ...]) -> Value:
    x = array_type(value)
    rows = kept(x, axes, x.dtype)
    total = m.apply("sum", (value,), rows, {"axis": axes, "keepdims": True})
    return _divided(m, total, rows, product(x.shape[a] for a in axes))


def _mean(m: Maker, node: Node) -> None:
    x = array_type(node.inputs[0])
    if node.attributes.get("dtype") is not None:
        raise NotLowered("mean with a dtype")
    axes = reduced_axes(node, x.rank)
    value = m.widened(node.inputs[0], computing(x.dtype))
    m.drop_axes(_mean_of(m, value, axes), node.outputs[0], axes, bool(node.attributes.get("keepdims", False)))


def _variance(m: Maker, node: Node, *, root: bool = False) -> None:
    x = array_type(node.inputs[0])
    if node.attributes.get("dtype") is not None:
        raise NotLowered("variance with a dtype")
    axes = reduced_axes(node, x.rank)
    dtype = computing(x.dtype)
    count = product(x.shape[a] for a in axes)
    ddof = node.attributes.get("ddof", 0)
    if not isinstance(ddof, int):
        raise NotLowered("a ddof that is no int")
    value = m.widened(node.inputs[0], dtype)
    wide, rows = full(x, dtype), kept(x, axes, dtype)
    centred = m.apply("subtract", (value, _mean_of(m, value, axes)), wide)
    total = m.apply("sum", (m.apply("multiply", (centred, centred), wide),), rows, {"axis": axes, "keepdims": True})
    result = _divided(m, total, rows, count, ddof)
    if root:
        result = m.apply("sqrt", (result,), rows)
    m.drop_axes(result, node.outputs[0], axes, bool(node.attributes.get("keepdims", False)))


def _scaled(m: Maker, value: Value, node: Node, first: int, axes: tuple[int, ...], dtype: DType) -> Value:
    """value * weight + bias for the operands given from `first` on; they have the sizes of the trailing `axes`."""
    x = array_type(value)
    for position, operator in ((first, "multiply"), (first + 1, "add")):
        if position >= len(node.inputs) or isinstance(node.inputs[position].type, NoneType):
            continue
        if axes != tuple(range(x.rank - len(axes), x.rank)):
            raise NotLowered("normalisation with a weight over axes that are not the last ones")
        value = m.apply(operator, (value, m.widened(node.inputs[position], dtype)), full(x, dtype))
    return value


def _layer_norm(m: Maker, node: Node) -> None:
    x = array_type(node.inputs[0])
    axes, dtype = reduced_axes(node, x.rank), computing(x.dtype)
    wide, rows = full(x, dtype), kept(x, axes, dtype)
    value = m.widened(node.inputs[0], dtype)
    centred = m.apply("subtract", (value, _mean_of(m, value, axes)), wide)
    spread = _mean_of(m, m.apply("multiply", (centred, centred), wide), axes)
    deviation = m.apply("sqrt", (m.apply("add", (spread, m.number(node.attributes.get("eps", 1e-5))), rows),), rows)
    normal = m.apply("divide", (centred, deviation), wide, {RECIPROCAL: True})
    m.finish(_scaled(m, normal, node, 1, axes, dtype), node.outputs[0])


def _rms_norm(m: Maker, node: Node) -> None:
    x = array_type(node.inputs[0])
    axes, dtype = reduced_axes(node, x.rank), computing(x.dtype)
    wide, rows = full(x, dtype), kept(x, axes, dtype)
    value = m.widened(node.inputs[0], dtype)
    spread = _mean_of(m, m.apply("multiply", (value, value), wide), axes)
    deviation = m.apply("sqrt", (m.apply("add", (spread, m.number(node.attributes.get("eps", 1e-6))), rows),), rows)
    normal = m.apply("divide", (value, deviation), wide, {RECIPROCAL: True})
    m.finish(_scaled(m, normal, node, 1, axes, dtype), node.outputs[0])


def _linear(m: Maker, node: Node) -> None:
    w = array_type(node.inputs[1])
    out = node.outputs[0]
    if not isinstance(out.type, ArrayType):
        raise NotLowered("linear with a scalar result")
    turned = ArrayType(w.dtype, w.shape[::-1], Layout.f(w.rank), w.device, w.wrapper)
    transposed = m.apply("transpose", (node.inputs[1],), turned, {"axes": None})
    if len(node.inputs) < 3 or isinstance(node.inputs[2].type, NoneType):
        m.apply("matmul", (node.inputs[0], transposed), out.type, {}, out)
        return
    product_ = m.apply("matmul", (node.inputs[0], transposed), out.type)
    m.apply("add", (product_, node.inputs[2]), out.type, {}, out)


def _product(m: Maker, node: Node) -> None:
    """Operands of a product in its dtype; vectors as matrices of one row or column."""
    out = node.outputs[0].type
    assert isinstance(out, ArrayType | NpScalarType)
    dtype = out.dtype
    x, y = (m.widened(v, dtype) for v in node.inputs)
    x_type, y_type = array_type(x), array_type(y)
    if x_type.rank > 1 and y_type.rank > 1:
        m.apply(node.operator, (x, y), out, node.attributes, node.outputs[0])
        return
    if x_type.rank == 0 or y_type.rank == 0:
        m.apply("multiply", (x, y), out, {}, node.outputs[0])
        return
    if x_type.rank == 1:
        x = m.view("expand_dims", x, (1, *x_type.shape), {"axis": 0})
    if y_type.rank == 1:
        y = m.view("expand_dims", y, (*y_type.shape, 1), {"axis": 1})
    left, right = array_type(x).shape, array_type(y).shape
    batch = left[:-2] if len(left) >= len(right) else right[:-2]
    whole = ArrayType(dtype, (*batch, left[-2], right[-1]), Layout.c(2 + len(batch)), "cpu", x_type.wrapper)
    product_ = m.apply("matmul", (x, y), whole)
    m.apply("reshape", (product_,), out, {"shape": getattr(out, "shape", ()), "order": "C"}, node.outputs[0])


def _einsum(m: Maker, node: Node) -> None:
    """Two operands, each label once in each: a product of stacks of matrices.

    Labels are batch (in both operands and the result), summed (in both), or free (in one).
    """
    subscripts = node.attributes["subscripts"]
    if not isinstance(subscripts, str) or "..." in subscripts or len(node.inputs) != 2:
        raise NotLowered("an einsum that is not of two operands with plain labels")
    given, arrow, wanted = subscripts.replace(" ", "").partition("->")
    a, b = given.split(",")
    if not arrow:
        wanted = "".join(sorted(c for c in set(a + b) if (a + b).count(c) == 1))
    if len(set(a)) != len(a) or len(set(b)) != len(b) or not set(wanted) <= set(a + b):
        raise NotLowered("an einsum with a label that occurs twice in one operand")
    batch = [c for c in a if c in b and c in wanted]
    summed = [c for c in a if c in b and c not in wanted]
    left = [c for c in a if c not in b]
    right = [c for c in b if c not in a]
    if any(c not in wanted for c in left + right):
        raise NotLowered("an einsum that sums one operand alone")
    out = node.outputs[0].type
    assert isinstance(out, ArrayType | NpScalarType)
    x, y = (m.widened(v, out.dtype) for v in node.inputs)
    size = dict(zip(b, array_type(y).shape, strict=True))
    for label, dim in zip(a, array_type(x).shape, strict=True):
        if label in size:
            m.require_equal(dim, size[label])
        size[label] = dim

    def arranged(value: Value, labels: str, groups: list[list[str]]) -> Value:
        order = [labels.index(c) for group in groups for c in group]
        turned = m.view("transpose", value, tuple(array_type(value).shape[i] for i in order), {"axes": tuple(order)})
        shape = (*(size[c] for c in groups[0]), *(product(size[c] for c in g) for g in groups[1:]))
        return m.view("reshape", turned, shape, {"shape": shape, "order": "C"})

    x = arranged(x, a, [batch, left, summed])
    y = arranged(y, b, [batch, summed, right])
    shape = (*(size[c] for c in batch), product(size[c] for c in left), product(size[c] for c in right))
    wrapper = array_type(x).wrapper
    value = m.apply("matmul", (x, y), ArrayType(out.dtype, shape, Layout.c(len(shape)), "cpu", wrapper))
    labels = [*batch, *left, *right]
    value = m.view(
        "reshape", value, tuple(size[c] for c in labels), {"shape": tuple(size[c] for c in labels), "order": "C"}
    )
    order = tuple(labels.index(c) for c in wanted)
    m.apply("transpose", (value,), out, {"axes": order}, node.outputs[0])


def is_composite(node: Node) -> bool:
    """Is the node written out?"""
    if node.operator in ("matmul", "dot"):
        dtype = getattr(node.outputs[0].type, "dtype", None)
        ranks = [v.type.rank for v in node.inputs if isinstance(v.type, ArrayType)]
        return len(ranks) == 2 and (
            min(ranks) < 2 or any(getattr(v.type, "dtype", dtype) is not dtype for v in node.inputs)
        )
    return node.operator in COMPOSITES


COMPOSITES: Mapping[str, Callable[[Maker, Node], None]] = {
    "softmax": _softmax,
    "log_softmax": lambda m, node: _softmax(m, node, log=True),
    "mean": _mean,
    "var": _variance,
    "std": lambda m, node: _variance(m, node, root=True),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "linear": _linear,
    "matmul": _product,
    "dot": _product,
    "einsum": _einsum,
    **DERIVED,
}


def expand_composites(graph: Graph, numbers: Iterable[int] | None = None) -> Graph:
    """The graph with composites written out; the same object when it has none.

    Raises:
        NotLowered: a composite in a form that has no expansion.
    """
    numbers = itertools.count(1_000_000) if numbers is None else numbers
    steps: list[Step] = []
    for step in graph.steps:
        match step:
            case Node() if is_composite(step):
                maker = Maker(step, numbers)
                try:
                    COMPOSITES[step.operator](maker, step)
                except NotLowered as error:
                    raise NotLowered(error.reason, step.origin) from None
                steps += maker.steps
            case Loop():
                header = None if step.header is None else expand_composites(step.header, numbers)
                body = expand_composites(step.body, numbers)
                same = header is step.header and body is step.body
                steps.append(step if same else replace(step, header=header, body=body))
            case Branch():
                then, orelse = expand_composites(step.then, numbers), expand_composites(step.orelse, numbers)
                same = then is step.then and orelse is step.orelse
                steps.append(step if same else replace(step, then=then, orelse=orelse))
            case _:
                steps.append(step)
    if len(steps) == len(graph.steps) and all(a is b for a, b in zip(steps, graph.steps, strict=True)):
        return graph
    return Graph(tuple(steps))
