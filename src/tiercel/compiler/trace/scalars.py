"""Python's own functions: numbers of arrays, truth, `len`, `range`, iteration, `isinstance`.

In: abstract arguments. Out: abstract results; what is known is computed now, sizes stay expressions, the rest becomes
nodes on scalars or is refused. Iterables are functions of the loop counter, so that a loop is walked once for all
passes.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tiercel.bytecode.instructions import SCALAR_FUNCTIONS
from tiercel.compiler.abstract import (
    Abstract,
    Iterable,
    Known,
    ListRef,
    Mapping,
    RaggedRef,
    Range,
    Tuple,
    Untraceable,
    static,
)
from tiercel.compiler.environment import is_plain
from tiercel.compiler.graph import Value
from tiercel.compiler.trace.ragged import number_of_sequences
from tiercel.compiler.trace.state import BOOL, FLOAT64, INT64
from tiercel.compiler.trace.views import Views
from tiercel.dtypes import DType
from tiercel.operators.types import ArrayType, PyBoolType, PyFloatType, PyIntType, is_python_scalar
from tiercel.shapes import Dim, DimLike, ceil_div, dim_max, dim_min

_LOOKED_UP = frozenset(SCALAR_FUNCTIONS) & frozenset(vars(builtins)) - {"format"}
"""Functions that the program finds by name; `format` stands for a part of an f-string."""


def counter(index: Value) -> DimLike:
    """The size expression of a loop counter (or the int of a pass that is written out)."""
    assert isinstance(index.type, PyIntType)
    assert index.type.value is not None
    return index.type.value


class Counted:
    """Elements of a range: `start + i * step`."""

    def __init__(self, frame: Views, start: DimLike, step: int) -> None:
        self.frame, self.start, self.step = frame, start, step

    def __call__(self, index: Value) -> Abstract:
        place = counter(index)
        return self.frame.size_value(self.start + place * self.step)


class Enumerated:
    """Elements of `enumerate`: a number and an element of what is numbered."""

    def __init__(self, frame: Views, at: Callable[[Value], Abstract], start: DimLike, counted: bool) -> None:
        self.frame, self.at, self.start, self.counted = frame, at, start, counted

    def __call__(self, index: Value) -> Abstract:
        place = counter(index)
        return Tuple((self.frame.size_value(self.start + place), self.at(index)))


class Scalars(Views):
    """Adds builtins and iteration."""

    def truth(self, x: Abstract) -> bool | Value:
        """The truth of a condition: known, or a boolean value."""
        match x:
            case Known():
                plain = is_plain(x.value) or isinstance(x.value, type | types.FunctionType | types.ModuleType)
                if not plain:
                    raise Untraceable(f"the truth of a {type(x.value).__name__}, which its class decides")
                return bool(x.value)
            case Tuple():
                return bool(x.items)
            case ListRef():
                return bool(self.items(x))
            case Mapping():
                return bool(x.items)
            case Value():
                type_ = x.type
                if isinstance(type_, PyBoolType | PyIntType | PyFloatType) and type_.value is not None:
                    if not isinstance(type_.value, Dim):
                        return bool(type_.value)
                    zero = self.trace.facts.equal(type_.value, 0)
                    return self.size_condition("not_equal", type_.value, 0) if zero is None else not zero
                if isinstance(type_, ArrayType) and type_.rank > 0:
                    raise Untraceable("the truth of an array")
                if isinstance(type_, PyBoolType) or getattr(type_, "dtype", None) is BOOL:
                    return x
                return self.scalar_node("not_equal", x, self.number(0))
        raise Untraceable("the truth of this value")

    def python_number(self, x: Abstract, kind: str | None = None) -> Abstract:
        """`x.item()`, `float(x)`, `int(x)` of a number."""
        if not isinstance(x, Value):
            raise Untraceable("the number of something that is no array")
        type_ = x.type
        if isinstance(type_, ArrayType) and type_.rank:
            raise Untraceable("the only element of an array")
        if is_python_scalar(type_):
            if kind is None or (kind, type(type_)) in (("int", PyIntType), ("float", PyFloatType)):
                return x
            if kind == "float" and isinstance(type_, PyIntType) and isinstance(type_.value, int):
                return self.number(float(type_.value))
            if kind == "int" and isinstance(type_, PyFloatType) and type_.value is not None:
                return self.number(int(type_.value))
            raise Untraceable(f"{kind} of a Python number that is not known")
        dtype: DType = getattr(type_, "dtype")  # noqa: B009
        if kind == "int" and dtype.kind == "f":
            raise Untraceable("int of a float (it may be infinite)")
        if dtype.kind == "f" or kind == "float":
            return self.node("astype", (x,), {"dtype": FLOAT64}, PyFloatType())
        if dtype.kind == "b":
            return self.node("astype", (x,), {"dtype": BOOL}, PyBoolType())
        if dtype.kind in "iu" and dtype.name != "uint64":
            return self.node("astype", (x,), {"dtype": INT64}, PyIntType())
        raise Untraceable(f"the Python number of a {dtype.name}")

    def iterable(self, x: Abstract) -> Iterable:
        """What `iter(x)` goes over."""
        match x:
            case Iterable():
                return x
            case Range():
                start, stop = self.bound(x.start), self.bound(x.stop)
                step = x.step
                length = dim_max(ceil_div(stop - start, step) if step > 0 else ceil_div(start - stop, -step), 0)
                if self.trace.facts.less_equal(0, stop - start) is True and step == 1:
                    length = stop - start
                return Iterable(length, Counted(self, start, step))
            case Tuple() | ListRef() | Known():
                items = self.items(x)
                return Iterable(len(items), lambda i: items[static(i)], tuple(items))
            case Value() if isinstance(x.type, ArrayType) and x.type.rank:
                array = x

                def row(i: Value) -> Abstract:
                    place = counter(i)
                    return self.index_array(array, (place,))

                return Iterable(x.type.shape[0], row, (x,))
        raise Untraceable("a loop over something that is no range, array, tuple or list")

    def scalar(self, name: str, args: list[Abstract]) -> Abstract:
        """A builtin of Python, while the module does not hide its name."""
        if name in _LOOKED_UP:
            found, source = self.environment.read_global(name)
            if found is not getattr(builtins, name):
                raise Untraceable(f"{name} is not Python's own here")
            self.environment.require(source, "identity", found)
        first = args[0] if args else Known(None)
        match name:
            case "len" if isinstance(first, RaggedRef):
                return number_of_sequences(self, first)
            case "len":
                if isinstance(first, Value) and isinstance(first.type, ArrayType) and first.type.rank:
                    return self.size_value(first.type.shape[0])
                if isinstance(first, ListRef) and self.state.heap[first.key].collected is not None:
                    return self.size_value(self.state.heap[first.key].length)
                if isinstance(first, Mapping):
                    return self.number(len(first.items))
                return self.number(len(self.items(first)))
            case "range":
                bounds = args if len(args) > 1 else [self.number(0), first]
                step = self.static(bounds[2]) if len(bounds) == 3 else 1
                if not isinstance(step, int) or step == 0:
                    raise Untraceable("a range with a step that is not known")
                return Range(bounds[0], bounds[1], step)
            case "int" | "float" if len(args) == 1:
                return self.python_number(first, name)
            case "bool" if len(args) == 1:
                truth = self.truth(first)
                return self.constant(truth) if isinstance(truth, bool) else self._python_bool(truth)
            case "not":
                truth = self.truth(first)
                if isinstance(truth, bool):
                    return self.constant(not truth)
                return self._python_bool(self.scalar_node("logical_not", truth))
            case "is" | "is_not":
                same = self.identical(first, args[1])
                return self.constant(same if name == "is" else not same)
            case "enumerate":
                inner = self.iterable(first)
                start = self.bound(args[1]) if len(args) > 1 else 0
                at = inner.at
                return Iterable(inner.length, Enumerated(self, at, start, isinstance(at, Counted)), inner.holds)
            case "zip":
                parts = [self.iterable(a) for a in args]
                lengths = [p.length for p in parts]
                length = dim_min(*lengths) if len(lengths) > 1 else lengths[0]
                return Iterable(
                    length, lambda i: Tuple(tuple(p.at(i) for p in parts)), sum((p.holds for p in parts), ())
                )
            case "reversed":
                items = self.items(first)[::-1]
                return Iterable(len(items), lambda i: items[static(i)], tuple(items))
            case "min" | "max" if len(args) > 1:
                values = [self.static(a) for a in args]
                if all(isinstance(v, int | Dim) and not isinstance(v, bool) for v in values):
                    return self.size_value((dim_min if name == "min" else dim_max)(*values))
                if not any(isinstance(v, Dim) for v in values):
                    return self.constant((min if name == "min" else max)(values))
            case "tuple":
                return Tuple(tuple(self.items(first))) if args else Tuple(())
            case "list":
                return self.new_list(list(self.items(first)) if args else [])
            case "abs" | "round" | "divmod" | "pow" | "sum":
                values = [self.static(a) for a in args]
                if not any(isinstance(v, Dim) for v in values):
                    function = getattr(__import__("builtins"), name)
                    return self.constant(function(*values))
            case "isinstance":
                return self.constant(self.instance(first, args[1]))
        raise Untraceable(f"{name}() of these values")

    def _python_bool(self, x: Value) -> Value:
        return self.node("astype", (x,), {"dtype": BOOL}, PyBoolType())

    def identical(self, x: Abstract, y: Abstract) -> bool:
        """`x is y` where it can be told."""
        for a, b in ((x, y), (y, x)):
            if isinstance(a, Known) and a.value is None:
                if isinstance(b, Known):
                    return b.value is None
                return False
        if isinstance(x, Known) and isinstance(y, Known):
            if x.source != y.source:
                self.same_object(x)
                self.same_object(y)
            return x.value is y.value
        raise Untraceable("identity of values that are not known")

    def instance(self, x: Abstract, classes: Abstract) -> bool:
        """`isinstance(x, classes)` where it can be told."""
        wanted = static(classes)
        if isinstance(x, Known):
            return isinstance(x.value, wanted)
        if isinstance(x, Value):
            if isinstance(x.type, ArrayType) and x.type.wrapper == "ndarray":
                return issubclass(np.ndarray, wanted)
        described: Any = x.type if isinstance(x, Value) else x
        python = _PYTHON_CLASSES.get(type(described))
        if python is not None:
            return issubclass(python, wanted)
        raise Untraceable("isinstance of a value whose class is not known")


_PYTHON_CLASSES: dict[type, type] = {
    PyIntType: int,
    PyFloatType: float,
    PyBoolType: bool,
    Tuple: tuple,
    ListRef: list,
    Mapping: dict,
}
