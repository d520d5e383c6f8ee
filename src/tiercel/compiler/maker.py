"""Building blocks of composites: a maker of nodes, and the types of what is in between.

In: the node to write out, and fresh value numbers. Out: primitive nodes in order, of which the last one gives the
composite's own output. Half types are computed in float32 and rounded once, as the rows' references do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tiercel.compiler.elementwise import NotLowered
from tiercel.compiler.graph import Guard, Node, Step, Value
from tiercel.dtypes import DType, as_dtype
from tiercel.operators.layout import Layout
from tiercel.operators.types import ArrayType, NpScalarType, PyFloatType, PyIntType, Type


class Maker:
    """Makes nodes that compute one composite, in order."""

    def __init__(self, node: Node, numbers: Iterable[int]) -> None:
        self.node = node
        self.numbers = iter(numbers)
        self.steps: list[Step] = []

    def value(self, type_: Type, name: str = "") -> Value:
        """A new value."""
        return Value(next(self.numbers), type_, name)

    def number(self, x: float) -> Value:
        """A Python float constant."""
        return self.value(PyFloatType(float(x)))

    def apply(
        self, operator: str, inputs: tuple[Value, ...], type_: Type, attributes: Mapping[str, Any] | None = None,
        output: Value | None = None,
    ) -> Value:  # fmt: skip
        """A node of `operator`; its result is a new value, or `output`."""
        result = output or self.value(type_)
        self.steps.append(Node(operator, inputs, dict(attributes or {}), (result,), self.node.origin))
        return result

    def widened(self, x: Value, dtype: DType) -> Value:
        """x as `dtype` where it is not already."""
        if not isinstance(x.type, ArrayType) or x.type.dtype is dtype:
            return x
        return self.apply("astype", (x,), replace(x.type, dtype=dtype), {"dtype": dtype})

    def require_equal(self, a: Any, b: Any) -> None:
        """A guard that two sizes are equal (NumPy raises where they are not)."""
        if a != b:
            sizes = (self.value(PyIntType(a)), self.value(PyIntType(b)))
            same = self.apply("equal", sizes, NpScalarType(as_dtype("bool")))
            self.steps.append(Guard(same, "sizes that differ", self.node.origin))

    def view(self, operator: str, x: Value, shape: tuple[Any, ...], attributes: Mapping[str, Any]) -> Value:
        """A node that rearranges an array."""
        type_ = replace(array_type(x), shape=shape, layout=Layout.c(len(shape)))
        return self.apply(operator, (x,), type_, attributes)

    def finish(self, x: Value, output: Value) -> None:
        """Make the last node's result the composite's output, rounding to its dtype."""
        assert isinstance(output.type, ArrayType | NpScalarType)
        if getattr(x.type, "dtype", None) is not output.type.dtype:
            self.apply("astype", (x,), output.type, {"dtype": output.type.dtype}, output)
            return
        last = self.steps[-1]
        assert isinstance(last, Node)
        assert last.outputs == (x,)
        self.steps[-1] = replace(last, outputs=(output,))

    def drop_axes(self, rows: Value, output: Value, axes: tuple[int, ...], keepdims: bool) -> None:
        """Give a row value (axes of size 1) the shape of the output."""
        if keepdims:
            self.finish(rows, output)
            return
        rounded = self.widened(rows, output.type.dtype)  # type: ignore[attr-defined]
        self.apply("squeeze", (rounded,), output.type, {"axis": axes}, output)


def computing(dtype: DType) -> DType:
    """The dtype a reduction is computed in: float64 for integers, float32 for half types."""
    if dtype.kind in "iub":
        return as_dtype("float64")
    return dtype.accumulator


def reduced_axes(node: Node, rank: int) -> tuple[int, ...]:
    """The axes a node folds, ascending."""
    axis = node.attributes.get("axis")
    if axis is None:
        return tuple(range(rank))
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    return tuple(sorted(a % rank for a in axes))


def array_type(x: Value) -> ArrayType:
    """The type of an operand that has to be an array."""
    if not isinstance(x.type, ArrayType):
        raise NotLowered(f"an operand that is {x.type}")
    return x.type


def kept(type_: ArrayType, axes: tuple[int, ...], dtype: DType) -> ArrayType:
    """The type with some axes reduced to size 1."""
    shape = tuple(1 if i in axes else d for i, d in enumerate(type_.shape))
    return ArrayType(dtype, shape, Layout.c(len(shape)), type_.device, type_.wrapper)


def full(type_: ArrayType, dtype: DType) -> ArrayType:
    """The type with another dtype, in C order."""
    return ArrayType(dtype, type_.shape, Layout.c(type_.rank), type_.device, type_.wrapper)
