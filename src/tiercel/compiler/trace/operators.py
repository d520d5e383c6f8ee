"""Applications of rows of the operator table.

In: a row, a spelling and abstract arguments. Out: a node typed by the row, and its results as abstract values.

Invariants: what the rules of the row refuse is not traced, Python raises it; a result that may share memory with an
operand has the root of that operand; Python numbers keep Python's meaning, what could raise or leave 62 bits is
guarded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tiercel.compiler.abstract import Abstract, Known, ListRef, RaggedRef, Tuple, Untraceable, type_of_abstract
from tiercel.compiler.graph import Node, Value
from tiercel.compiler.trace.core import COMPARED, same_key
from tiercel.compiler.trace.objects import is_abstract
from tiercel.compiler.trace.ragged import apply_ragged
from tiercel.compiler.trace.state import BOOL, FLOAT64, INT64, SAFE_INT
from tiercel.compiler.trace.writes import Writes
from tiercel.dtypes import DType
from tiercel.operators import Bound, Operator
from tiercel.operators.layout import Layout
from tiercel.operators.types import (
    ArrayType,
    ListType,
    NoneType,
    NpScalarType,
    PyBoolType,
    PyComplexType,
    PyFloatType,
    PyIntType,
    TupleType,
    Type,
)
from tiercel.shapes import Dim

_NUMBERS: Mapping[type, DType] = {PyFloatType: FLOAT64, PyIntType: INT64, PyBoolType: BOOL}
"""The dtypes NumPy gives arrays of Python numbers."""


PLAIN_VIEWS = (
    "reshape", "ravel", "squeeze", "expand_dims", "transpose", "moveaxis", "swapaxes", "matrix_transpose", "flip",
    "flipud", "fliplr", "split", "array_split",
)  # fmt: skip
"""Operators whose views are writeable where the array is, and of its dtype."""


BORROWED = frozenset({"linspace", "tile", "tensordot"})
"""Operators whose fresh result NumPy gives as a reshaped view of another array."""


class Operators(Writes):
    """Adds the operator table."""

    def apply(self, row: Operator, spelling: int, args: Sequence[Abstract], keywords: dict[str, Abstract]) -> Abstract:
        """Apply an operator of the table."""
        if any(isinstance(x, RaggedRef) for x in (*args, *keywords.values())):
            return apply_ragged(self, row, spelling, args, keywords)
        try:
            bound = row.bind(spelling, list(args), keywords)
        except TypeError as error:
            raise Untraceable(f"{row.name}: {error}") from None
        collected = self.joined(row, bound)
        if collected is not None:
            return collected
        if row.spellings[spelling].kind == "syntax" and any(isinstance(x, Tuple) for x in bound.operands):
            plain = self.tuple_operation(row.name, list(bound.operands))
            if plain is not None:
                return plain
        heap = self.state.heap
        types_: list[Any] = []
        inputs: list[Value] = []
        as_array = self.takes_lists(row, spelling, bound.operands)
        for parameter, given in zip(row.parameters, bound.operands, strict=False):
            if given is None or (isinstance(given, Known) and given.value is None):
                types_.append(None)
                inputs.append(self.trace.value(NoneType()))
                continue
            if parameter.role == "operands":
                items = [self.array_of(item) for item in self.items(given)]
                types_.append(TupleType(tuple(type_of_abstract(i, heap) for i in items)))
                inputs += [self.as_value(i) for i in items]
            elif row.name in ("index", "set_index") and parameter.name == "key":
                types_.append(type_of_abstract(given, heap))
            else:
                given = self.array_of(given) if as_array else given
                types_.append(type_of_abstract(given, heap))
                inputs.append(self.as_value(given))
        while inputs and isinstance(inputs[-1].type, NoneType):
            inputs.pop()
        attributes = {name: self.attribute_value(given) for name, given in bound.attributes.items()}
        typed = Bound(row, spelling, tuple(types_), attributes)
        self.wishes(row, inputs, typed)
        if row.effects(typed, self.trace.facts).kind != "pure":
            return self.in_place(row, typed, inputs, attributes)
        result = row.infer(typed, self.trace.facts, self.trace.data_symbol)
        return self.results(row, typed, inputs, attributes, result, bound.operands)

    def in_place(self, row: Operator, typed: Bound, inputs: list[Value], attributes: dict[str, Any]) -> Abstract:
        """`x += y` on an array: the sum is a new value, and x is that from now on."""
        form, target = row.spellings[typed.spelling], inputs[0]
        plain = next((i for i, s in enumerate(row.spellings) if s.kind == "syntax"), None)
        if form.kind != "inplace" or plain is None or not isinstance(target.type, ArrayType):
            raise Untraceable(f"{row.name} writes into an array")
        type_ = row.infer(typed, self.trace.facts, self.trace.data_symbol)  # checks that the result may be cast
        natural = row.infer(replace(typed, spelling=plain), self.trace.facts, self.trace.data_symbol)
        fits = self.fits(getattr(natural, "shape", ()), target.type.shape)
        dtype = getattr(natural, "dtype", None)
        same = isinstance(type_, ArrayType) and replace(type_, shape=target.type.shape) == target.type
        if not fits or not same or not isinstance(dtype, DType):
            raise Untraceable(f"{row.name} in place of operands that may not fit into the array")
        stored = self.pending_view(target)
        if dtype is target.type.dtype:
            made = self.node(row.name, inputs, attributes, target.type)
        else:
            wide = self.node(row.name, inputs, attributes, replace(target.type, dtype=dtype))
            made = self.node("astype", (wide,), {"dtype": target.type.dtype}, target.type)
        if stored:
            return made
        self.trace.whole.add(made)
        return self.assign(target, made)

    def fits(self, natural: Sequence[Any], own: Sequence[Any]) -> bool:
        """Is what an operator gives surely of the sizes it is written to? Sizes that are not known are wished for."""
        if len(natural) != len(own):
            return False
        for a, b in zip(natural, own, strict=True):
            self.trace.wish(a, b)
        return all(self.trace.facts.equal(a, b) is True for a, b in zip(natural, own, strict=True))

    def pending_view(self, target: Value) -> bool:
        """Is the target the view that `x[key] += y` makes, which the next instruction stores back?"""
        following = self.function.instructions[self.index + 1]
        found = self.trace.views.get(target)
        own = self.function.instructions[self.index]
        if found is None or following.opcode != "SetItem" or own.opcode != "CallOp" or following.value != own.dst:
            return False
        base, key = found
        again = self.operand(following.key)
        parts = again.items if isinstance(again, Tuple) else (again,)
        return self.operand(following.x) is base and same_key(self.full_key(parts), key)

    def tuple_operation(self, name: str, operands: list[Abstract]) -> Abstract | None:
        """`shape[:-1] + (n,)`, `(1,) * n` and comparisons of tuples, which are Python's own; None for anything else."""
        x, y = operands
        if name == "add" and isinstance(x, Tuple) and isinstance(y, Tuple):
            return Tuple(x.items + y.items)
        if name == "multiply":
            items, times = (x, y) if isinstance(x, Tuple) else (y, x)
            known = times.type.value if isinstance(times, Value) and isinstance(times.type, PyIntType) else None
            return Tuple(items.items * known) if isinstance(items, Tuple) and isinstance(known, int) else None
        if name in ("equal", "not_equal") and isinstance(x, Tuple) and isinstance(y, Tuple):
            alike = self.same_items(x, y)
            if isinstance(alike, bool):
                return self.constant(alike == (name == "equal"))
            return alike if name == "equal" else self.negated(alike)
        return None

    def same_items(self, x: Tuple, y: Tuple) -> bool | Value:
        """Are two tuples of numbers equal?"""
        if len(x.items) != len(y.items):
            return False
        unknown: Value | None = None
        for a, b in zip(x.items, y.items, strict=True):
            one, two = self.static(a), self.static(b)
            if not isinstance(one, int | Dim) or not isinstance(two, int | Dim):
                if isinstance(one, Dim) or isinstance(two, Dim):
                    raise Untraceable("a comparison of sizes with other things")
                if one != two:
                    return False
                continue
            equal = self.trace.facts.equal(one, two)
            if equal is False:
                return False
            if equal is None:
                same = self.size_condition("equal", one, two)
                unknown = same if unknown is None else self.both(unknown, same)
        return True if unknown is None else unknown

    @staticmethod
    def takes_lists(row: Operator, spelling: int, operands: Sequence[Any]) -> bool:
        """Are lists among the operands made into arrays? `[1] + [2]` and `[1] * 2` are Python's own affair."""
        kind = row.spellings[spelling].kind
        if kind == "syntax":
            return any(isinstance(x, Value) and isinstance(x.type, ArrayType) for x in operands)
        return kind != "inplace"

    def array_of(self, given: Abstract) -> Abstract:
        """A list or tuple of numbers or arrays as the array NumPy makes of it; anything else as it is."""
        if not isinstance(given, Tuple | ListRef):
            return given
        items = [self.as_value(self.array_of(item)) for item in self.items(given)]
        types_ = {type(v.type) for v in items}
        if not items or len(types_) != 1:
            raise Untraceable("a list of different things, or an empty one, as an operand")
        first = items[0].type
        shape: tuple[Any, ...] = ()
        if isinstance(first, ArrayType):
            shape = first.shape
            for other in items[1:]:
                for a, b in zip(shape, getattr(other.type, "shape", ()), strict=False):
                    self.trace.wish(a, b)
        given_dtype = getattr(first, "dtype", None) or _NUMBERS.get(type(first))
        same = all((getattr(v.type, "dtype", None) or given_dtype) is given_dtype for v in items)
        if given_dtype is None or not same or any(getattr(v.type, "shape", ()) != shape for v in items):
            raise Untraceable("a list of arrays that differ in dtype or in size as an operand")
        whole = ArrayType(given_dtype, (len(items), *shape), Layout.c(1 + len(shape)))
        return self.node("stack", items, {"axis": 0}, whole)

    def attribute_value(self, given: Any) -> Any:
        """An attribute as a Python value; positionals that a spelling collects come as a tuple."""
        if isinstance(given, tuple) and any(map(is_abstract, given)):
            return tuple(self.attribute_value(item) for item in given)
        if isinstance(given, Tuple):
            return tuple(self.attribute_value(item) for item in given.items)
        if isinstance(given, ListRef):
            return [self.attribute_value(item) for item in self.items(given)]
        return self.static(given) if is_abstract(given) else given

    def wishes(self, row: Operator, inputs: list[Value], bound: Bound) -> None:
        """Sizes that should be known equal for the application to be fast."""
        shapes = [v.type.shape for v in inputs if isinstance(v.type, ArrayType)]
        if row.lowering.cls == "elementwise":
            for other in shapes[1:]:
                for a, b in zip(reversed(shapes[0]), reversed(other), strict=False):
                    if a != 1 and b != 1:
                        self.trace.wish(a, b)
        elif row.name in ("matmul", "dot", "linear") and len(shapes) > 1 and all(shapes[:2]):
            x, y = shapes[:2]
            self.trace.wish(x[-1], y[-1] if row.name == "linear" or len(y) == 1 else y[-2])
            for a, b in zip(reversed(x[:-2]), reversed(y[:-2]), strict=False):
                if a != 1 and b != 1:
                    self.trace.wish(a, b)
        elif row.name == "reshape":
            wanted = bound.attributes.get("shape")
            given = shapes[0] if shapes else ()
            for a, b in zip(reversed(given), reversed(wanted if isinstance(wanted, tuple) else ()), strict=False):
                if b == -1:
                    break
                self.trace.wish(a, b)
        elif row.name in ("trace", "diagonal") and shapes and len(shapes[0]) == 2:
            self.trace.wish(*shapes[0])
        elif row.name in ("concat", "stack", "where") and len(shapes) > 1:
            for other in shapes[1:]:
                for a, b in zip(shapes[0], other, strict=False):
                    self.trace.wish(a, b)

    def results(
        self, row: Operator, typed: Bound, inputs: list[Value], attributes: dict[str, Any], type_: Any,
        operands: Sequence[Any],
    ) -> Abstract:  # fmt: skip
        """The node of an application, and its results as abstract values."""
        if isinstance(type_, PyIntType | PyFloatType | PyBoolType | PyComplexType):
            if type_.value is not None:
                return self.trace.value(type_)
            return self.python_scalar(row, inputs, type_)
        items = type_.items if isinstance(type_, TupleType | ListType) else (type_,)
        if items is None:
            raise Untraceable(f"{row.name}: results of unknown number")
        if not all(isinstance(t, ArrayType | NpScalarType) for t in items):
            raise Untraceable(f"{row.name} gives a {type(items[0]).__name__.removesuffix('Type')}")
        if (
            any(isinstance(t, NpScalarType) and t.dtype.kind in "iu" for t in items)
            and inputs
            and all(not isinstance(v.type, ArrayType) or v.type.rank == 0 for v in inputs)
        ):
            raise Untraceable(f"{row.name} of NumPy integers (it warns when it overflows)")
        aliases = row.alias(typed, self.trace.facts)
        kinds = aliases if isinstance(aliases, list) else [aliases] * len(items)
        if len(items) == 1 and kinds[0].kind in ("same", "same_if") and kinds[0].operand is not None:
            same = operands[kinds[0].operand]
            if kinds[0].kind == "same":
                return same  # type: ignore[no-any-return]
        if row.lowering.cls == "creation":
            for dim in (d for t in items for d in getattr(t, "shape", ()) if isinstance(d, Dim)):
                self.require_at_least(0, dim)  # NumPy makes no array of a negative size
        outputs = tuple(self.trace.value(t) for t in items)
        if row.name in ("reshape", "linspace") and kinds[0].kind in ("fresh", "view_if"):
            self.trace.rebased.add(outputs[0])
        for output, alias in zip(outputs, kinds, strict=True):
            if alias.kind != "fresh" and alias.operand is not None and isinstance(output.type, ArrayType):
                viewed = operands[alias.operand]
                if isinstance(viewed, Value):
                    self.trace.share(output, viewed)
                    if alias.kind == "view" and row.name in PLAIN_VIEWS:
                        self.trace.bases[output] = viewed
        if row.name in BORROWED:
            self.trace.borrowed.update(outputs)
        self.trace.add(Node(row.name, tuple(inputs), attributes, outputs, self.site()))
        if not isinstance(type_, TupleType | ListType):
            return outputs[0]
        if isinstance(type_, ListType):
            return self.new_list(list(outputs))
        return Tuple(outputs)

    def python_scalar(self, row: Operator, inputs: list[Value], type_: Type) -> Abstract:
        """Arithmetic of Python numbers that are not known: what may raise is guarded or refused."""
        name = row.name
        if isinstance(type_, PyBoolType) and name in COMPARED and len(inputs) == 2:
            sizes = [v.type.value if isinstance(v.type, PyIntType) else None for v in inputs]
            if sizes[0] is not None and sizes[1] is not None:
                return self.size_condition(name, sizes[0], sizes[1], inputs)
        if isinstance(type_, PyIntType):
            if name not in ("add", "subtract", "negative", "positive"):
                raise Untraceable(f"{name} of Python ints whose size is not known")
            for value in inputs:
                if isinstance(value.type, PyIntType) and value.type.value is None:
                    low = self.scalar_node("greater", value, self.number(-SAFE_INT))
                    high = self.scalar_node("less", value, self.number(SAFE_INT))
                    self.guard(self.scalar_node("logical_and", low, high), "a Python int beyond 62 bits")
        elif isinstance(type_, PyFloatType):
            if name == "divide":
                self.guard(self.scalar_node("not_equal", inputs[1], self.number(0.0)), "a division by zero")
            elif name not in ("add", "subtract", "multiply", "negative", "positive", "absolute"):
                raise Untraceable(f"{name} of Python floats")
        elif not isinstance(type_, PyBoolType):
            raise Untraceable(f"{name} of Python numbers gives a {type_}")
        return self.node(name, inputs, {}, type_)

    def joined(self, row: Operator, bound: Bound) -> Abstract | None:
        """stack, concat and array of a list that a loop filled: the elements already lie along a first axis."""
        given = bound.operands[0] if bound.operands else None
        if not isinstance(given, ListRef):
            return None
        state = self.state.heap[given.key]
        if state.lost:
            raise Untraceable(state.lost)
        if state.collected is None:
            return None
        source = state.collected
        type_ = source.type
        assert isinstance(type_, ArrayType)
        some = self.trace.facts.less_equal(1, state.length)
        if row.name not in ("stack", "concat", "array", "asarray", "vstack"):
            raise Untraceable(f"{row.name} of a list that a loop filled")
        if some is not True:
            # NumPy refuses to join nothing
            self.guard(self.scalar_node("greater", self.size_value(state.length), self.number(0)), "an empty list")
        extra = {
            k: v for k, v in bound.attributes.items() if k != "axis" and v is not None and v != row_default(row, k)
        }
        if extra:
            raise Untraceable(f"{row.name} with {', '.join(extra)} of a list that a loop filled")
        axis = self.attribute_value(bound.attributes.get("axis", 0))
        if row.name in ("stack", "array", "asarray"):
            axis = axis % type_.rank
            if axis == 0:
                return self.fresh_copy(source)
            shape = list(type_.shape[1:])
            shape.insert(axis, type_.shape[0])
            turned = replace(type_, shape=tuple(shape), layout=Layout.c(type_.rank))
            return self.node("moveaxis", (source,), {"source": 0, "destination": axis}, turned)
        if row.name == "vstack":
            axis = 0
        rank = type_.rank - 1
        if rank == 0 or axis is None:
            raise Untraceable(f"{row.name} of a list of scalars")
        axis = axis % rank
        order = [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)]
        shape = [type_.shape[a] for a in order]
        moved = source
        if axis:
            turned = replace(type_, shape=tuple(shape), layout=Layout.c(type_.rank))
            moved = self.node("moveaxis", (source,), {"source": 0, "destination": axis}, turned)
        flat = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
        joined = replace(type_, shape=flat, layout=Layout.c(rank))
        return self.node("reshape", (moved,), {"shape": flat, "order": "C"}, joined)

    def fresh_copy(self, value: Value) -> Value:
        """The same elements as a value of their own."""
        return self.node("positive", (value,), {}, value.type)


def row_default(row: Operator, name: str) -> Any:
    """The default of an attribute."""
    return next(p.default for p in row.parameters if p.name == name)
