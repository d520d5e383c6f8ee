"""Operators that others define: outer, inner, tensordot, trace, norm, logsumexp, ptp, masked_fill.

In: a node and its `Maker`. Out: the primitive nodes that compute it, as the reference of its row does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tiercel.compiler.elementwise import NotLowered
from tiercel.compiler.graph import Node, Value
from tiercel.compiler.maker import Maker, array_type, computing, full, kept, reduced_axes
from tiercel.dtypes import as_dtype
from tiercel.operators.layout import Layout
from tiercel.operators.types import ArrayType, NpScalarType, PyIntType
from tiercel.shapes import DimLike, normalize_axis, product


def _reshaped(m: Maker, value: Value, shape: tuple[DimLike, ...]) -> Value:
    return m.view("reshape", value, shape, {"shape": shape, "order": "C"})


def _out(node: Node) -> ArrayType | NpScalarType:
    type_ = node.outputs[0].type
    if not isinstance(type_, ArrayType | NpScalarType):
        raise NotLowered(f"{node.operator} with a Python number as its result")
    return type_


def _outer(m: Maker, node: Node) -> None:
    """A column times a row."""
    out = _out(node)
    x, y = (m.widened(v, out.dtype) for v in node.inputs)
    column = _reshaped(m, x, (product(array_type(x).shape), 1))
    row = _reshaped(m, y, (1, product(array_type(y).shape)))
    m.apply("multiply", (column, row), out, {}, node.outputs[0])


def _inner(m: Maker, node: Node) -> None:
    """Vectors: their product. Else the last axes are summed: x @ y.T of what is flattened to matrices."""
    ranks = [array_type(v).rank for v in node.inputs]
    if ranks == [1, 1]:
        _vectors(m, node.inputs[0], node.inputs[1], node)
        return
    if 0 in ranks:
        m.apply("multiply", node.inputs, _out(node), {}, node.outputs[0])
        return
    _contract(m, node, [ranks[0] - 1], [ranks[1] - 1])


def _vdot(m: Maker, node: Node) -> None:
    """The sum of all products, in C order."""
    flat = [_reshaped(m, v, (product(array_type(v).shape),)) for v in node.inputs]
    _vectors(m, flat[0], flat[1], node)


def _vectors(m: Maker, x: Value, y: Value, node: Node) -> None:
    out = _out(node)
    x, y = m.widened(x, out.dtype), m.widened(y, out.dtype)
    m.require_equal(array_type(x).shape[0], array_type(y).shape[0])
    row = _reshaped(m, x, (1, array_type(x).shape[0]))
    column = _reshaped(m, y, (array_type(y).shape[0], 1))
    whole = ArrayType(out.dtype, (1, 1), Layout.c(2), "cpu", array_type(x).wrapper)
    total = m.apply("matmul", (row, column), whole)
    m.apply("reshape", (total,), out, {"shape": (), "order": "C"}, node.outputs[0])


def _tensordot(m: Maker, node: Node) -> None:
    axes = node.attributes.get("axes", 2)
    left, right = (array_type(v).rank for v in node.inputs)
    if isinstance(axes, int):
        _contract(m, node, list(range(left - axes, left)), list(range(axes)))
        return
    one, two = ([a] if isinstance(a, int) else list(a) for a in axes)
    _contract(m, node, [normalize_axis(a, left) for a in one], [normalize_axis(a, right) for a in two])


def _contract(m: Maker, node: Node, left: list[int], right: list[int]) -> None:
    """Sum over axes of the left and the right operand; the free axes of both in order."""
    out = _out(node)
    x, y = (m.widened(v, out.dtype) for v in node.inputs)
    x_shape, y_shape = array_type(x).shape, array_type(y).shape
    for a, b in zip(left, right, strict=True):
        m.require_equal(x_shape[a], y_shape[b])
    free_left = [a for a in range(len(x_shape)) if a not in left]
    free_right = [b for b in range(len(y_shape)) if b not in right]
    summed = product(x_shape[a] for a in left)
    rows, columns = product(x_shape[a] for a in free_left), product(y_shape[b] for b in free_right)

    def arranged(value: Value, order: list[int], shape: tuple[DimLike, ...]) -> Value:
        sizes = array_type(value).shape
        if order != sorted(order):
            value = m.view("transpose", value, tuple(sizes[i] for i in order), {"axes": tuple(order)})
        return _reshaped(m, value, shape)

    x = arranged(x, [*free_left, *left], (rows, summed))
    y = arranged(y, [*right, *free_right], (summed, columns))
    whole = ArrayType(out.dtype, (rows, columns), Layout.c(2), "cpu", array_type(x).wrapper)
    total = m.apply("matmul", (x, y), whole)
    m.apply("reshape", (total,), out, {"shape": getattr(out, "shape", ()), "order": "C"}, node.outputs[0])


def _trace(m: Maker, node: Node) -> None:
    """The sum of a diagonal, in the result's dtype."""
    out, x = _out(node), array_type(node.inputs[0])
    rank = x.rank
    one, two = (normalize_axis(node.attributes.get(n, d), rank) for n, d in (("axis1", 0), ("axis2", 1)))
    k = node.attributes.get("offset", 0)
    if k != 0 or x.shape[one] != x.shape[two]:
        raise NotLowered("trace of another diagonal than the main one of square matrices")
    shape = (*getattr(out, "shape", ()), x.shape[one])
    diagonal = m.view("diagonal", node.inputs[0], shape, {"offset": 0, "axis1": one, "axis2": two})
    m.apply("sum", (m.widened(diagonal, out.dtype),), out, {"axis": len(shape) - 1}, node.outputs[0])


def _norm(m: Maker, node: Node) -> None:
    """`sqrt(sum(x * x))` for ord None and 2, the sum of magnitudes for 1, the largest for inf."""
    x = array_type(node.inputs[0])
    kind, axis = node.attributes.get("ord"), node.attributes.get("axis")
    axes = reduced_axes(node, x.rank)
    if not (kind is None or (len(axes) == 1 and kind in (1, 2, float("inf")) and (axis is not None or x.rank == 1))):
        raise NotLowered(f"norm with ord={kind}")
    if x.dtype.kind == "c":
        raise NotLowered("norm of complex numbers")
    dtype = computing(x.dtype)
    value = m.widened(node.inputs[0], dtype)
    wide, rows = full(x, dtype), kept(x, axes, dtype)
    fold = {"axis": axes, "keepdims": True}
    if kind in (None, 2):
        total = m.apply("sum", (m.apply("multiply", (value, value), wide),), rows, fold)
        result = m.apply("sqrt", (total,), rows)
    else:
        magnitude = m.apply("absolute", (value,), wide)
        result = m.apply("sum" if kind == 1 else "max", (magnitude,), rows, fold)
    m.drop_axes(result, node.outputs[0], axes, bool(node.attributes.get("keepdims", False)))


def _logsumexp(m: Maker, node: Node) -> None:
    x = array_type(node.inputs[0])
    axes, dtype = reduced_axes(node, x.rank), computing(x.dtype)
    wide, rows = full(x, dtype), kept(x, axes, dtype)
    fold = {"axis": axes, "keepdims": True}
    value = m.widened(node.inputs[0], dtype)
    peak = m.apply("max", (value,), rows, {**fold, "initial": True})
    finite = m.apply("isfinite", (peak,), replace(rows, dtype=as_dtype("bool")))
    base = m.apply("where", (finite, peak, m.number(0.0)), rows)
    powers = m.apply("exp", (m.apply("subtract", (value, base), wide),), wide)
    total = m.apply("log", (m.apply("sum", (powers,), rows, fold),), rows)
    result = m.apply("add", (total, base), rows)
    m.drop_axes(result, node.outputs[0], axes, bool(node.attributes.get("keepdims", False)))


def _ptp(m: Maker, node: Node) -> None:
    """Largest less smallest."""
    out, x = _out(node), array_type(node.inputs[0])
    axes = reduced_axes(node, x.rank)
    fold = {"axis": axes, "keepdims": bool(node.attributes.get("keepdims", False))}
    high = m.apply("max", node.inputs[:1], out, fold)
    low = m.apply("min", node.inputs[:1], out, fold)
    m.apply("subtract", (high, low), out, {}, node.outputs[0])


def _count_nonzero(m: Maker, node: Node) -> None:
    """The sum of what is not zero."""
    x, out = array_type(node.inputs[0]), _out(node)
    true = m.apply("not_equal", (node.inputs[0], m.value(PyIntType(0))), full(x, as_dtype("bool")))
    fold = {"axis": reduced_axes(node, x.rank), "keepdims": bool(node.attributes.get("keepdims", False))}
    m.apply("sum", (true,), out, fold, node.outputs[0])


def _batch_norm(m: Maker, node: Node) -> None:
    """(x - mean) / sqrt(var + eps) * weight + bias, along one axis."""
    x, out = array_type(node.inputs[0]), _out(node)
    dtype = computing(out.dtype)
    axis = normalize_axis(node.attributes.get("axis", 1), x.rank)

    def along(value: Value) -> Value:
        size = array_type(value).shape
        shape = tuple(size[0] if a == axis else 1 for a in range(x.rank))
        return _reshaped(m, m.widened(value, dtype), shape)

    wide = full(x, dtype)
    mean, var = along(node.inputs[1]), along(node.inputs[2])
    centred = m.apply("subtract", (m.widened(node.inputs[0], dtype), mean), wide)
    rows = array_type(var)
    deviation = m.apply("sqrt", (m.apply("add", (var, m.number(node.attributes.get("eps", 1e-5))), rows),), rows)
    value = m.apply("divide", (centred, deviation), wide)
    for operand, operator in zip(node.inputs[3:], ("multiply", "add"), strict=False):
        if isinstance(operand.type, ArrayType):
            value = m.apply(operator, (value, along(operand)), wide)
    m.finish(value, node.outputs[0])


def _masked_fill(m: Maker, node: Node) -> None:
    x, mask, value = node.inputs
    m.apply("where", (mask, value, x), _out(node), {}, node.outputs[0])


DERIVED: Mapping[str, Callable[[Maker, Node], None]] = {
    "outer": _outer,
    "inner": _inner,
    "vdot": _vdot,
    "tensordot": _tensordot,
    "trace": _trace,
    "norm": _norm,
    "logsumexp": _logsumexp,
    "ptp": _ptp,
    "masked_fill": _masked_fill,
    "count_nonzero": _count_nonzero,
    "batch_norm": _batch_norm,
}
