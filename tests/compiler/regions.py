"""Build typed regions by hand, run them through NumPy, the loop form's evaluator and machine code."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.codegen.native import build, call, imports
from tiercel.codegen.cpu.names import pack_name
from tiercel.codegen.cpu.target import Target
from tiercel.compiler.graph import Carried, Collected, Graph, Input, Loop, Node, Region, Result, Step, Value
from tiercel.compiler.graph_check import check_region
from tiercel.compiler.interface import (
    PACK_PADDING,
    Constant,
    EitherOf,
    NewArray,
    PackSpec,
    Recipe,
    SameInput,
    ScalarOutput,
    SizeValue,
    ViewOf,
    new_arrays,
)
from tiercel.compiler.interface import Sequence as SequenceRecipe
from tiercel.compiler.lower import Lowered, lower_region
from tiercel.compiler.passes import prepare
from tiercel.dtypes import as_dtype
from tiercel.errors import ShapeError
from tiercel.loops import check, evaluate
from tiercel.operators import get
from tiercel.operators.layout import Layout
from tiercel.operators.table import Bound
from tiercel.operators.types import ArrayType, ListType, PyFloatType, PyIntType, TupleType, Type
from tiercel.shapes import DimLike, Facts, Symbol
from tiercel.shapes import evaluate as size_of
from tiercel.vm.arrays import make_view


class RegionBuilder:
    """Collects steps; `apply` infers the type of a node through the operator table."""

    def __init__(self, name: str = "region") -> None:
        self.name = name
        self.numbers = itertools.count()
        self.inputs: list[Input] = []
        self.steps: list[Step] = []
        self.facts = Facts()

    def value(self, type_: Type, name: str = "") -> Value:
        return Value(next(self.numbers), type_, name)

    def input(
        self, name: str, shape: Sequence[DimLike | str], dtype: str = "float32", *, strided: bool = False
    ) -> Value:
        dims = tuple(Symbol(d) if isinstance(d, str) else d for d in shape)
        layout = Layout.unknown() if strided else Layout.c(len(dims))
        value = self.value(ArrayType(as_dtype(dtype), dims, layout), name)
        self.inputs.append(Input(value, ("register", len(self.inputs))))
        return value

    def number(self, x: float) -> Value:
        return self.value(PyIntType(x) if isinstance(x, int) else PyFloatType(x))

    def apply(self, operator: str, *inputs: Value | float, **attributes: Any) -> Value:
        operands = [v if isinstance(v, Value) else self.number(v) for v in inputs]
        row = get(operator)
        spelling = row.spelling_index("ops")
        types: tuple[Any, ...] = tuple(v.type for v in operands)
        if row.parameters[0].role == "operands":
            types = (TupleType(types),)
        else:
            types += (None,) * (row.arity - len(types))
        filled = {p.name: attributes.get(p.name, p.default) for p in row.parameters[row.arity :]}
        type_ = row.infer(Bound(row, spelling, types, filled), self.facts)
        items = type_.items if isinstance(type_, TupleType | ListType) else (type_,)
        outputs = tuple(self.value(t) for t in items)
        self.steps.append(Node(operator, tuple(operands), filled, outputs, len(self.steps)))
        return outputs if isinstance(type_, TupleType | ListType) else outputs[0]

    def apply_index(self, x: Value, key: tuple[Any, ...]) -> Value:
        """Basic indexing with full slices and ints (an int may be a scalar value)."""
        kept = [d for d, k in itertools.zip_longest(x.type.shape, key, fillvalue=slice(None)) if isinstance(k, slice)]
        output = self.value(ArrayType(x.type.dtype, tuple(kept), Layout.unknown()))
        self.steps.append(Node("index", (x,), {"key": key}, (output,), len(self.steps)))
        return output

    def region(self, *results: Value) -> Region:
        made = [Result("value", value=v) for v in results]
        result = made[0] if len(made) == 1 else Result("tuple", items=tuple(made))
        graph = Graph(tuple(self.steps))
        return Region(self.name, 0, 0, tuple(self.inputs), graph, {"return": {"return": result}}, self.facts)

    def loop(self, trip: DimLike, carried: Mapping[str, Value], body: Any, collect: int = 0) -> tuple[Value, ...]:
        """A counted loop: `body(index, **inside)` returns (dict of next values, tuple of collected values)."""
        index = self.value(PyIntType(), "t")
        inside = {name: self.value(v.type, name) for name, v in carried.items()}
        outer, self.steps = self.steps, []
        following, collected = body(index, **inside)
        steps, self.steps = self.steps, outer
        carries = tuple(Carried(carried[n], inside[n], following[n], self.value(carried[n].type, n)) for n in carried)
        lists = tuple(
            Collected(v, self.value(ArrayType(v.type.dtype, (trip, *v.type.shape), Layout.c(1 + len(v.type.shape)))))
            for v in collected
        )
        self.steps.append(Loop(trip, index, None, None, Graph(tuple(steps)), carries, lists, len(self.steps)))
        return (*(c.after for c in carries), *(c.after for c in lists))


class Runner:
    """A lowered region that can be called with arrays, by evaluation or as machine code."""

    def __init__(self, region: Region) -> None:
        prepare(region, check_region)
        self.lowered: Lowered = lower_region(region)
        check(self.lowered.function)
        self._code: Any = None

    def __call__(self, *arrays: Any, native: bool = True, raised: set[str] | None = None) -> Any:
        interface, function = self.lowered.interface, self.lowered.function
        symbols: dict[str, int] = {}
        buffers: dict[str, Any] = {}
        scalars: dict[str, Any] = {}
        for spec, given in zip(interface.inputs, arrays, strict=True):
            if spec.kind != "array":
                scalars[spec.name] = given
                if isinstance(spec.value, Symbol):
                    symbols[spec.value.name] = given
                continue
            buffers[spec.name] = given
            for dim, size in zip(spec.dims, given.shape, strict=True):
                if isinstance(dim, Symbol):
                    assert symbols.setdefault(dim.name, size) == size
        sizes = {}
        for spec in interface.sizes:
            if spec.what == "phase":
                sizes[spec.name] = 0
            elif spec.what == "symbol":
                sizes[spec.name] = symbols[spec.name]
            else:
                array = arrays[spec.input]
                sizes[spec.name] = array.strides[spec.axis] // array.itemsize
        for pack in interface.packs:
            buffers[pack.buffer] = self.packed(pack, arrays[pack.input], symbols, native=native)
        (recipe,) = interface.results["return"].values()
        made: dict[str, Any] = {}

        try:
            for r in new_arrays(recipe):
                shape = tuple(size_of(d, symbols) for d in r.shape)
                made[r.buffer] = np.full([shape[a] for a in r.order or range(len(shape))], 77, r.dtype.numpy)
                if r.order:
                    made[r.buffer] = made[r.buffer].transpose(np.argsort(r.order))
        except ShapeError:  # the result has no size: a miss, as a guard would have found
            raise ExitTaken(None) from None
        made.update({write.buffer: arrays[write.input] for write in interface.writes})
        phase = next((s.name for s in interface.sizes if s.what == "phase"), None)
        if native:
            if self._code is None:
                self._code = build(function)
            site, outputs = call(self._code, function, {**buffers, **made}, sizes, scalars, raised=raised, phase=phase)
        else:
            site, outputs = evaluate(function, {**buffers, **made}, sizes, scalars, phase=phase)
        if site:
            raise ExitTaken(self.lowered.sites[site - 1])

        def result(r: Recipe) -> Any:
            match r:
                case NewArray():
                    return made[r.buffer]
                case ScalarOutput():
                    return outputs[r.output]
                case SameInput():
                    return arrays[r.index]
                case EitherOf():
                    number = int(outputs[r.tag])
                    assert number in (-1, *r.inputs)
                    return made[r.new.buffer] if number < 0 else arrays[number]
                case ViewOf():
                    return view(result(r.base), r, {**symbols, **sizes, **{n: int(outputs[n]) for n in r.computed}})
                case Constant():
                    return r.value
                case SizeValue():
                    return size_of(r.value, symbols)
                case SequenceRecipe():
                    return tuple(result(item) for item in r.items)
            raise AssertionError(r)

        return result(recipe)

    @staticmethod
    def packed(pack: PackSpec, array: Any, symbols: dict[str, int], *, native: bool) -> Any:
        """The matrix of a pack, in the code generator's layout or (for the evaluator) in row order."""
        k, n = size_of(pack.k, symbols), size_of(pack.n, symbols)
        steps = [size_of(s, symbols) * array.itemsize for s in pack.strides]
        start = array.reshape(-1)[size_of(pack.offset, symbols) :]
        count, firsts = len(pack.panels), np.array(pack.panels, np.int64)
        whole = n * max(count, 1)
        matrix = np.lib.stride_tricks.as_strided(start, (k, whole), steps)
        if not native:
            return np.ascontiguousarray(matrix)
        panels = np.zeros(k * (whole + PACK_PADDING), array.dtype)
        entry = imports(Target.host())[pack_name(as_dtype(array.dtype).name, panels=count > 0)]
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        extra = (count, firsts.ctypes.data) if count else ()
        types = (None, pointer, word, word, pointer, word, word, *(word, pointer)[: len(extra)])
        given = (*(size_of(s, symbols) for s in pack.strides), panels.ctypes.data, n, k, *extra)
        ctypes.CFUNCTYPE(*types)(entry)(start.ctypes.data, *given)
        return panels


def view(base: Any, recipe: ViewOf, sizes: Mapping[str, int]) -> Any:
    """The view of an array that a recipe means."""
    shape, steps = (tuple(size_of(d, sizes) for d in part) for part in (recipe.shape, recipe.strides))
    return make_view(
        base, shape, tuple(s * base.itemsize for s in steps), size_of(recipe.offset, sizes) * base.itemsize
    )


class ExitTaken(Exception):
    """The function left by an exit; `args[0]` is the instruction index."""
