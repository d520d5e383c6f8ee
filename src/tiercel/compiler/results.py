"""What a region hands over: places for its results before the graph is lowered, recipes to make them afterwards.

In: the exits of a region. Out: result buffers in which arrays are computed at once, and a `Recipe` for each result:

* a new array; the same one wherever it is handed over more than once;
* the very object that was passed; or that where an output of the function says so, else a new array;
* a view, of an argument or of a new array (which is made also if nobody else is given it), as the place of its first
  element and its strides;
* scalars, sizes, constants, tuples and lists.

Invariant: recipes speak of sizes that the entry knows, or that are outputs of the function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered, cast, scalar_dtype
from tiercel.compiler.graph import Loop, Node, Result, Value, continued_input
from tiercel.compiler.interface import (
    Constant,
    EitherOf,
    GrownArray,
    NewArray,
    Recipe,
    SameInput,
    ScalarOutput,
    Sequence,
    SizeSpec,
    SizeValue,
    ViewOf,
)
from tiercel.compiler.memory import Memory, c_strides, dense_strides
from tiercel.compiler.movement import REORDERING, permutation
from tiercel.loops.form import Buffer, Output, Var
from tiercel.operators.types import ArrayType, NpScalarType, PyBoolType, PyFloatType, PyIntType, Type
from tiercel.shapes import DimLike, Symbol, substitute, symbols_of

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer


class Results:
    """The results of one lowering."""

    def __init__(self, state: Lowerer) -> None:
        self.state = state
        self.buffers: list[Buffer] = []
        self.outputs: list[Var] = []
        self.capacities: list[SizeSpec] = []
        self._arrays: dict[Value, NewArray] = {}
        self._memories: dict[Value, Memory] = {}
        self._views: dict[Value, ViewOf] = {}
        self._either: dict[Value, EitherOf] = {}

    # -- before the graph -------------------------------------------------------------------------------------

    def prepare(self, result: Result) -> None:
        """Make buffers for the arrays that are handed over."""
        for item in result.items:
            self.prepare(item)
        array = result.base if result.what == "view" else result.value if result.what in ("value", "either") else None
        if array is None or not isinstance(array.type, ArrayType) or array in self._arrays:
            return
        state, type_ = self.state, array.type
        if array in state.memory:
            raise NotLowered(f"{array} is returned as it was passed")
        if any(s.kind == "data" for d in type_.shape for s in symbols_of(d)):
            raise NotLowered("a result whose size depends on data")
        name = state.fresh(array.name or "result")
        grown = continued_input(state.graph.steps, state.region.inputs, array)
        if grown is not None and result.what == "value" and self._only_once(array):
            self._grow(array, name, *grown)
            return
        layout = type_.layout
        # a Tensor whose order is not known may lie in any: it is made in C order
        order = () if layout.is_c or not layout.is_dense else layout.order or ()
        strides = dense_strides(type_.shape, order) if order else c_strides(type_.shape)
        steps = tuple(dim_expression(s) for s in strides) if order else None
        buffer = Buffer(name, type_.dtype, tuple(dim_expression(d) for d in type_.shape), steps, space="result")
        self.buffers.append(buffer)
        memory = self._memories[array] = Memory.whole(buffer, type_.shape, strides)
        state.want(array, memory)
        if result.what != "view":
            self._seek_producer(array)
        self._arrays[array] = NewArray(name, type_.dtype, type_.shape, type_.wrapper, order)

    def _only_once(self, array: Value) -> bool:
        """Is an array handed over once, and no view of it, by a region that writes nothing?"""
        found: list[Value | None] = []

        def look(result: Result) -> None:
            found.extend((result.value, result.base))
            for item in result.items:
                look(item)

        for exit_ in self.state.region.exits.values():
            for result in exit_.values():
                look(result)
        return sum(v is array for v in found) == 1 and not self.state.region.writes

    def _grow(self, array: Value, name: str, number: int, axis: int) -> None:
        """A buffer whose first entries are an input's: only the others are computed."""
        state, type_ = self.state, array.type
        assert isinstance(type_, ArrayType)
        shape, capacity = type_.shape, ""
        strides = c_strides(shape)
        if axis:
            capacity = state.fresh("capacity")
            self.capacities.append(SizeSpec(capacity, "capacity", number, axis))
            strides = c_strides((*shape[:axis], Symbol(capacity, "scalar"), *shape[axis + 1 :]))
        steps = tuple(dim_expression(s) for s in strides) if axis else None
        buffer = Buffer(name, type_.dtype, tuple(dim_expression(d) for d in shape), steps, space="result")
        self.buffers.append(buffer)
        state.continued.add(name)
        memory = self._memories[array] = Memory.whole(buffer, shape, strides)
        state.want(array, memory)
        self._arrays[array] = GrownArray(name, type_.dtype, shape, type_.wrapper, (), number, axis, capacity)

    def _seek_producer(self, value: Value) -> None:
        """A result that only reorders the axes of a collected list: let the list be written in that order at once."""
        state = self.state
        for step in state.graph.steps:
            if not isinstance(step, Node) or step.outputs != (value,) or step.operator not in REORDERING:
                continue
            source = step.inputs[0]
            order = permutation(step)
            collected = any(source is c.after for s in state.graph.steps if isinstance(s, Loop) for c in s.collected)
            if order is None or not collected or len(state.uses.get(source, ())) != 1 or source in state.wanted:
                return
            inverse = [order.index(axis) for axis in range(len(order))]
            state.wanted[source] = [state.wanted.pop(value)[0].permuted(inverse)]
            return

    # -- after the graph --------------------------------------------------------------------------------------

    def finish(self, result: Result, known: set[str]) -> Recipe:
        """Fill what is not written yet, and say how the result is made.

        Args:
            known: names that the entry knows: sizes of the function.
        """
        match result.what:
            case "none":
                return Constant(None)
            case "constant":
                return Constant(result.constant)
            case "tuple" | "list":
                items = tuple(self.finish(item, known) for item in result.items)
                return Sequence(result.what, items, result.wrap)
            case "input":
                assert result.index is not None
                return SameInput(result.index)
            case "view":
                return self._view(result, known)
            case "either":
                return self._either_of(result)
        value, state = result.value, self.state
        assert value is not None
        if isinstance(value.type, ArrayType):
            state.settle(value)
            return self._arrays[value]
        if isinstance(value.type, PyIntType) and value.type.value is not None:
            return SizeValue(value.type.value)
        output = Var(state.fresh(f"{value.name or 'out'}_out"), scalar_dtype(value.type))
        self.outputs.append(output)
        state.emit(Output(output.name, cast(state.scalar(value), output.dtype)))
        return ScalarOutput(output.name, scalar_kind(value.type), output.dtype)

    def _either_of(self, result: Result) -> EitherOf:
        state, value, tag = self.state, result.value, result.tag
        assert value is not None
        assert tag is not None
        found = self._either.get(value)
        if found is None:
            state.settle(value)
            output = Var(state.fresh("which"), scalar_dtype(tag.type))
            self.outputs.append(output)
            state.emit(Output(output.name, state.scalar(tag)))
            found = self._either[value] = EitherOf(self._arrays[value], output.name, result.choices)
        return found

    def _view(self, result: Result, known: set[str]) -> ViewOf:
        state, value = self.state, result.value
        assert value is not None
        found = self._views.get(value)
        if found is not None:
            return found
        base: SameInput | NewArray
        if result.base is not None:
            state.settle(result.base)
            base = self._arrays[result.base]
            content, own = result.base, self._memories[result.base]
        else:
            assert result.index is not None
            base = SameInput(result.index)
            given = state.region.inputs[result.index].value
            content = next((w.value for w in state.region.writes if w.index == result.index), given)
            own = state.memory[given]
        memory = state.place(value)
        if memory.root is not own.root:
            # it was computed somewhere else as well, in the same order
            source = state.place(content)
            if memory.root is not source.root or source.strides != own.strides or source.offset != 0:
                raise NotLowered("a result that is a view of an array whose axes lie in another order")
        computed: dict[str, DimLike] = {}
        names: list[str] = []
        for symbol in {s for part in (memory.offset, *memory.shape, *memory.strides) for s in symbols_of(part)}:
            if symbol.name not in known:
                output = Var(state.fresh(f"{symbol.name}_out"))
                self.outputs.append(output)
                state.emit(Output(output.name, dim_expression(symbol)))
                computed[symbol.name] = Symbol(output.name, "scalar")
                names.append(output.name)
        shape, strides = (tuple(substitute(d, computed) for d in part) for part in (memory.shape, memory.strides))
        assert isinstance(value.type, ArrayType)
        made = ViewOf(
            base, value.type.dtype, shape, strides, substitute(memory.offset, computed), value.type.wrapper,
            tuple(names),
        )  # fmt: skip
        self._views[value] = made
        return made


def scalar_kind(type_: Type) -> Any:
    """What the entry makes of it, or takes."""
    match type_:
        case NpScalarType():
            return "npscalar"
        case PyIntType():
            return "pyint"
        case PyFloatType():
            return "pyfloat"
        case PyBoolType():
            return "pybool"
    raise NotLowered(f"a {type(type_).__name__.removesuffix('Type')} as an input or result")
