"""Generic bytecode to a region graph for one Signature: typing and graph building in one walk.

In: a bytecode `Function`, its `Environment`, and the types of its arguments. Out: a `Region` that computes what the
function returns, or `Untraceable` with the reason and the instruction where it stops.

The walk follows the structured control flow with abstract values in the registers:

* instructions on arrays and numbers become nodes, typed by the operator table; Python structure (tuples, lists, slices,
  ranges, known objects) is followed without leaving a trace;
* a branch whose condition is known follows one arm; else both arms are walked and what differs is merged;
* a loop is walked until the types of what it carries no longer change (a size or number that differs widens once);
* a call of a Python function that may be traced through is walked in place; a raise becomes a guard.

Invariants: nothing the caller could observe is written (a region with such a write is refused, not reordered); a
result that may share memory with an argument is refused unless it is that very argument; whatever the walk assumes
about globals, cells and attributes is among the conditions of the environment.
"""

from __future__ import annotations

import inspect
import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tiercel.bytecode.instructions import Instruction
from tiercel.bytecode.program import UNBOUND, Function
from tiercel.compiler.abstract import (
    Abstract,
    Iterable,
    Known,
    ListRef,
    ListState,
    Mapping,
    Method,
    Range,
    Slice,
    Source,
    Tuple,
    Unknown,
    Untraceable,
    is_array,
    static,
    type_of_abstract,
)
from tiercel.compiler.environment import Environment, is_plain
from tiercel.compiler.flow import Flow, flow_of
from tiercel.compiler.graph import (
    Branch,
    Carried,
    Collected,
    Graph,
    Guard,
    Input,
    Loop,
    Merged,
    Node,
    Region,
    Result,
    Step,
    Value,
)
from tiercel.dtypes import DType, as_dtype, is_dtype
from tiercel.errors import TiercelError
from tiercel.operators import (
    Bound,
    NotStatic,
    Operator,
    find_function,
    find_method,
    get,
)
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
    is_python_scalar,
)
from tiercel.shapes import (
    Dim,
    DimLike,
    Facts,
    Symbol,
    ceil_div,
    dim_max,
    dim_min,
    product,
    slice_dim,
    substitute,
    symbols_of,
)
from tiercel.shapes import Range as DimRange
from tiercel.shapes import evaluate as size_of

MAX_DEPTH = 16
"""Calls traced through inside one another."""
MAX_UNROLL = 32
"""Passes of a loop over a sequence of known length that are written out."""
MAX_STEPS = 4000
"""Nodes of one region: beyond, compiling takes longer than it pays."""

BOOL, FLOAT64, INT64 = as_dtype("bool"), as_dtype("float64"), as_dtype("int64")
SAFE_INT = 2**62


@dataclass(frozen=True, slots=True)
class _Returned:
    value: Abstract


@dataclass(frozen=True, slots=True)
class _Raised:
    index: int


@dataclass(frozen=True, slots=True)
class _LoopTest:
    """The branch at which a while loop is left: go on at `inside` while `condition` holds."""

    condition: Value
    inside: int


@dataclass(slots=True)
class _State:
    """What a walk changes: registers of the current function, lists."""

    registers: dict[int, Abstract]
    heap: dict[int, ListState]

    def copy(self) -> _State:
        return _State(dict(self.registers), {key: state.copy() for key, state in self.heap.items()})


class Trace:
    """The graph under construction, shared by all functions walked."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.numbers = itertools.count()
        self.inputs: list[Input] = []
        self.by_source: dict[Source, Value] = {}
        self.by_object: dict[int, tuple[Any, Value]] = {}
        self.steps: list[Step] = []
        self.roots: dict[Value, Value] = {}
        self.symbols = itertools.count()
        self.depth = 0
        self.lists = itertools.count()
        self.substitution: dict[str, DimLike] = {}
        self.sample: dict[str, int] = {}
        self.pairs: list[tuple[DimLike, DimLike]] = []

    def symbol(self, name: str, size: int, kind: str = "input") -> DimLike:
        """The symbol of a size, or what it is assumed to equal."""
        self.sample[name] = size
        return self.substitution.get(name, Symbol(name, kind))

    def wish(self, a: DimLike, b: DimLike) -> None:
        """Note that two sizes would better be known to be equal."""
        if a != b and self.facts.equal(a, b) is None:
            self.pairs.append((a, b))

    def value(self, type_: Type, name: str = "") -> Value:
        """A new value."""
        return Value(next(self.numbers), type_, name)

    def root(self, value: Value) -> Value:
        """The value whose memory this one looks into."""
        return self.roots.get(value, value)

    @contextmanager
    def collecting(self) -> Iterator[list[Step]]:
        """Steps made inside go to a list of their own."""
        outer, self.steps = self.steps, []
        try:
            yield self.steps
        finally:
            self.steps = outer

    def add(self, step: Step) -> None:
        """Add a step."""
        if len(self.steps) > MAX_STEPS:
            raise Untraceable(f"more than {MAX_STEPS} operations")
        self.steps.append(step)

    def data_symbol(self, upper: DimLike) -> Symbol:
        """A size that only running decides."""
        symbol = Symbol(f"u{next(self.symbols)}", "data")
        del upper
        return symbol


class Frame:
    """The walk of one function."""

    def __init__(
        self,
        trace: Trace,
        function: Function,
        constants: Sequence[Any],
        environment: Environment,
        origin: int | None,
    ) -> None:
        self.trace = trace
        self.function = function
        self.constants = constants
        self.environment = environment
        self.flow: Flow = flow_of(function)
        self.origin = origin  # of the call in the outermost function, None for that itself
        self.state = _State({}, {})
        self.loops: list[tuple[int, int]] = []  # (start, end) of the while loops whose test is being looked for
        self.loop_depth = 0
        self.unrolled: list[tuple[list[Abstract], int, int, Instruction, int]] = []  # passes being walked
        self.index = 0

    # -- small things -----------------------------------------------------------------------------------------

    @property
    def registers(self) -> dict[int, Abstract]:
        """What the registers hold."""
        return self.state.registers

    def site(self) -> int:
        """The instruction of the outermost function that is responsible."""
        return self.index if self.origin is None else self.origin

    def constant(self, value: Any) -> Abstract:
        """A Python constant as an abstract value."""
        kind = type(value)
        if kind is bool:
            return self.trace.value(PyBoolType(value))
        if kind is int:
            return self.trace.value(PyIntType(value))
        if kind is float:
            return self.trace.value(PyFloatType(value))
        if kind is tuple:
            return Tuple(tuple(self.constant(item) for item in value))
        if kind is slice:
            return Slice(*(self.constant(p) for p in (value.start, value.stop, value.step)))
        return Known(value)

    def operand(self, operand: int) -> Abstract:
        """What a use operand stands for."""
        if operand < 0:
            return self.constant(self.constants[~operand])
        found = self.registers.get(operand)
        if found is None:
            raise Untraceable("a variable that may have no value")
        if isinstance(found, Unknown):
            raise Untraceable(found.reason)
        if isinstance(found, Known) and found.value is UNBOUND:
            raise Untraceable("a variable that may have no value")
        return found

    def sampled(self, value: Any, source: Source) -> Abstract:
        """A value read from the environment: a tensor is a hidden input, a constant is guarded."""
        array = unwrapped(value)
        if array is not None:
            return self.hidden_input(value, source)
        if isinstance(value, bool | int | float) and type(value) in (bool, int, float):
            self.environment.require(source, "value", value)
            return self.constant(value)
        if is_plain(value):
            self.environment.require(source, "value", value)
            return self.constant(value)
        if isinstance(value, types.MethodType):
            self.environment.require(source, "function", value.__func__)
        else:
            self.environment.require(source, "identity", value)
        return Known(value, source)

    def hidden_input(self, value: Any, source: Source) -> Abstract:
        """A tensor of the environment as an input of the region."""
        trace = self.trace
        known = trace.by_source.get(source)
        if known is not None:
            return known
        type_ = tensor_type(value, f"p{len(trace.inputs)}", trace)
        if not isinstance(type_, ArrayType):
            raise Untraceable(f"a {type(value).__name__} from the environment that is no plain array")
        made = trace.value(type_, f"p{len(trace.inputs)}")
        trace.inputs.append(Input(made, source, frozen=is_frozen(value)))
        trace.by_source[source] = made
        return made

    # -- nodes ------------------------------------------------------------------------------------------------

    def node(self, operator: str, inputs: Sequence[Value], attributes: dict[str, Any], type_: Type) -> Value:
        """Add a node with one result."""
        output = self.trace.value(type_)
        self.trace.add(Node(operator, tuple(inputs), attributes, (output,), self.site()))
        return output

    def scalar_node(self, operator: str, *inputs: Value, dtype: DType = BOOL) -> Value:
        """A node on scalars whose result is a NumPy scalar of `dtype` (for conditions)."""
        return self.node(operator, inputs, {}, NpScalarType(dtype))

    def number(self, x: float) -> Value:
        """A Python number."""
        value = self.constant(x)
        assert isinstance(value, Value)
        return value

    def guard(self, condition: Value, reason: str) -> None:
        """Leave for the interpreter unless `condition`."""
        if isinstance(condition.type, PyBoolType) and condition.type.value is True:
            return
        self.trace.add(Guard(condition, reason, self.site()))

    def apply(self, row: Operator, spelling: int, args: Sequence[Abstract], keywords: dict[str, Abstract]) -> Abstract:
        """Apply an operator of the table."""
        try:
            bound = row.bind(spelling, list(args), keywords)
        except TypeError as error:
            raise Untraceable(f"{row.name}: {error}") from None
        collected = self.joined(row, bound)
        if collected is not None:
            return collected
        heap = self.state.heap
        types_: list[Any] = []
        inputs: list[Value] = []
        for parameter, given in zip(row.parameters, bound.operands, strict=False):
            if given is None or (isinstance(given, Known) and given.value is None):
                types_.append(None)
                inputs.append(self.trace.value(NoneType()))
                continue
            if parameter.role == "operands":
                items = self.items(given)
                types_.append(TupleType(tuple(type_of_abstract(i, heap) for i in items)))
                inputs += [self.as_value(i) for i in items]
            elif row.name in ("index", "set_index") and parameter.name == "key":
                types_.append(type_of_abstract(given, heap))
            else:
                types_.append(type_of_abstract(given, heap))
                inputs.append(self.as_value(given))
        while inputs and isinstance(inputs[-1].type, NoneType):
            inputs.pop()
        attributes = {name: self.attribute_value(given) for name, given in bound.attributes.items()}
        typed = Bound(row, spelling, tuple(types_), attributes)
        if row.effects(typed, self.trace.facts).kind != "pure":
            raise Untraceable(f"{row.name} writes into an array")
        self.wishes(row, inputs, typed)
        result = row.infer(typed, self.trace.facts, self.trace.data_symbol)
        return self.results(row, typed, inputs, attributes, result, bound.operands)

    def attribute_value(self, given: Any) -> Any:
        """An attribute as a Python value; positionals that a spelling collects come as a tuple."""
        if isinstance(given, tuple) and any(map(_is_abstract, given)):
            return tuple(self.attribute_value(item) for item in given)
        return self.static(given) if _is_abstract(given) else given

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
        outputs = tuple(self.trace.value(t) for t in items)
        for output, alias in zip(outputs, kinds, strict=True):
            if alias.kind != "fresh" and alias.operand is not None and isinstance(output.type, ArrayType):
                viewed = operands[alias.operand]
                if isinstance(viewed, Value):
                    self.trace.roots[output] = self.trace.root(viewed)
        self.trace.add(Node(row.name, tuple(inputs), attributes, outputs, self.site()))
        if not isinstance(type_, TupleType | ListType):
            return outputs[0]
        if isinstance(type_, ListType):
            return self.new_list(list(outputs))
        return Tuple(outputs)

    def python_scalar(self, row: Operator, inputs: list[Value], type_: Type) -> Abstract:
        """Arithmetic of Python numbers that are not known: what may raise is guarded or refused."""
        name = row.name
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
        axis = self.static(bound.attributes["axis"]) if "axis" in bound.attributes else 0
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

    def size_value(self, dim: DimLike) -> Value:
        """A size as a Python int."""
        return self.trace.value(PyIntType(dim))

    def static(self, x: Abstract) -> Any:
        """The Python value of something that must be known."""
        if isinstance(x, ListRef):
            return [self.static(item) for item in self.items(x)]
        return static(x)

    def items(self, x: Abstract) -> list[Abstract]:
        """The items of a tuple or list of known length."""
        if isinstance(x, Tuple):
            return list(x.items)
        if isinstance(x, tuple):  # positionals collected by a spelling
            return list(x)
        if isinstance(x, Known):
            return self.known_items(x)
        if isinstance(x, ListRef):
            state = self.state.heap[x.key]
            if state.collected is not None or state.collecting is not None:
                raise Untraceable("a list whose length changes from call to call")
            return state.items
        raise Untraceable("a sequence that is neither a tuple nor a list")

    def known_items(self, x: Known) -> list[Abstract]:
        """The items of a list, tuple or list of cells found in the environment: guarded one by one."""
        value = x.value
        cells = getattr(type(value), "__tiercel_cell__", None) is not None and hasattr(type(value), "__getitem__")
        if type(value) not in (list, tuple) and not cells:
            raise Untraceable(f"the items of a {type(value).__name__}")
        if len(value) > MAX_UNROLL:
            raise Untraceable(f"a sequence of {len(value)} items")
        self.environment.require(x.source, "length", len(value))
        if x.source[0] == "constant":
            return [self.constant(item) for item in value]
        return [self.sampled(item, ("item", (x.source, i))) for i, item in enumerate(value)]

    def as_value(self, x: Abstract) -> Value:
        """An operand as a graph value."""
        if isinstance(x, Value):
            return x
        if isinstance(x, Known) and isinstance(x.value, np.generic) and is_dtype(type(x.value)):
            return self.numpy_scalar(x.value)
        raise Untraceable(f"a {type(x.value if isinstance(x, Known) else x).__name__} as an operand")

    def numpy_scalar(self, value: Any) -> Value:
        """A NumPy scalar that is known: a conversion of the Python number."""
        dtype = as_dtype(type(value))
        if dtype.kind not in "fiub":
            raise Untraceable(f"a {dtype.name} constant")
        number = self.constant(value.item())
        assert isinstance(number, Value)
        return self.node("astype", (number,), {"dtype": dtype}, NpScalarType(dtype))

    def new_list(self, items: list[Abstract]) -> ListRef:
        """A new list."""
        key = next(self.trace.lists)
        self.state.heap[key] = ListState(items)
        return ListRef(key)

    # -- the walk ---------------------------------------------------------------------------------------------

    def walk(self, start: int, stops: frozenset[int]) -> int | _Returned | _Raised | _LoopTest:
        """Follow control from `start` until an instruction in `stops`, a return, a raise, or a loop test."""
        at = start
        instructions = self.function.instructions
        while at not in stops:
            self.index = at
            ins = instructions[at]
            try:
                match ins.opcode:
                    case "Jump":
                        at = ins.target
                    case "BranchIf":
                        outcome = self.branch(at, ins, stops)
                        if not isinstance(outcome, int):
                            return outcome
                        at = outcome
                    case "LoopStart":
                        after = self.loop(at, ins)
                        if not isinstance(after, int):
                            return after
                        at = after
                    case "Return":
                        return _Returned(self.operand(ins.value))
                    case "Raise":
                        return _Raised(at)
                    case _:
                        self.step(ins)
                        at += 1
            except Untraceable as error:
                if error.index is None:
                    error.index = self.site()
                raise
            except NotStatic as error:
                reason = error.reason or "a value that is only known when the code runs"
                raise Untraceable(reason, self.site()) from None
            except (TiercelError, TypeError, ValueError, IndexError) as error:
                # what the rules refuse, Python will raise: the interpreter does that
                raise Untraceable(f"{type(error).__name__}: {error}", self.site()) from None
        return at

    def truth(self, x: Abstract) -> bool | Value:
        """The truth of a condition: known, or a boolean value."""
        match x:
            case Known():
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
                    if zero is not None:
                        return not zero
                if isinstance(type_, ArrayType) and type_.rank > 0:
                    raise Untraceable("the truth of an array")
                if isinstance(type_, PyBoolType) or getattr(type_, "dtype", None) is BOOL:
                    return x
                return self.scalar_node("not_equal", x, self.number(0))
        raise Untraceable("the truth of this value")

    def branch(self, at: int, ins: Instruction, stops: frozenset[int]) -> int | _Returned | _Raised | _LoopTest:
        """A two-way branch."""
        condition = self.truth(self.operand(ins.condition))
        if isinstance(condition, bool):
            return int(ins.then if condition else ins.else_)
        if self.loops:
            start, end = self.loops[-1]
            inside = [start < target <= end for target in (ins.then, ins.else_)]
            if inside == [True, False]:
                return _LoopTest(condition, ins.then)
            if inside == [False, True]:
                return _LoopTest(self.scalar_node("logical_not", condition), ins.else_)
        join = self.flow.join[at]
        before = self.state
        arms: list[tuple[int | _Returned | _Raised | _LoopTest, _State, list[Step]]] = []
        saved_loops, self.loops = self.loops, []
        for target in (ins.then, ins.else_):
            self.state = before.copy()
            with self.trace.collecting() as steps:
                outcome = self.walk(target, stops | {join})
            arms.append((outcome, self.state, steps))
        self.loops = saved_loops
        self.index = at
        for arm, opposite in ((0, True), (1, False)):
            if isinstance(arms[arm][0], _Raised):
                other = arms[1 - arm]
                holds = self.scalar_node("logical_not", condition) if opposite else condition
                self.guard(holds, "an exception")
                self.trace.steps.extend(other[2])
                self.state = other[1]
                return other[0]
        outcomes = [a[0] for a in arms]
        if any(isinstance(o, _LoopTest) for o in outcomes):
            raise Untraceable("a loop left from inside a branch")
        if any(isinstance(o, _Returned) for o in outcomes):
            return self.returning_branch(condition, arms, stops)
        if outcomes[0] != outcomes[1]:
            raise Untraceable("break or continue in a branch that depends on data")
        self.merge(condition, before, arms, int(outcomes[0]))  # type: ignore[arg-type]
        return outcomes[0]

    def returning_branch(
        self, condition: Value, arms: list[Any], stops: frozenset[int]
    ) -> _Returned:  # fmt: skip
        """At least one arm returns: the other goes on to its own return, and the two results are merged."""
        if self.loop_depth:
            raise Untraceable("a return inside a loop")
        results: list[Abstract] = []
        for position, (outcome, state, steps) in enumerate(arms):
            if isinstance(outcome, int):
                self.state = state
                passes = list(self.unrolled)
                with self.trace.collecting() as more:
                    outcome = self.go_on(outcome, stops) if outcome in stops else self.walk(outcome, stops)
                    if isinstance(outcome, int):
                        outcome = self.go_on(outcome, stops)
                self.unrolled = passes
                steps.extend(more)
                arms[position] = (outcome, self.state, steps)
            if not isinstance(outcome, _Returned):
                raise Untraceable("a path that neither returns nor goes on")
            results.append(outcome.value)
        merged: list[Merged] = []
        value = self.merge_values(results[0], results[1], merged)
        if isinstance(value, Unknown):
            raise Untraceable(value.reason)
        graphs = [Graph(tuple(arm[2])) for arm in arms]
        self.trace.add(Branch(condition, graphs[0], graphs[1], tuple(merged), self.site()))
        return _Returned(value)

    def merge(self, condition: Value, before: _State, arms: list[Any], join: int) -> None:
        """Join the states of two arms."""
        del before
        (_, a, steps_a), (_, b, steps_b) = arms
        merged: list[Merged] = []
        registers: dict[int, Abstract] = {}
        live = self.flow.live[join]
        for register in a.registers.keys() | b.registers.keys():
            if register not in live:
                continue
            x, y = a.registers.get(register), b.registers.get(register)
            if x is None or y is None:
                registers[register] = Unknown("a variable that has a value in one arm of a branch only")
            else:
                registers[register] = self.merge_values(x, y, merged)
        heap: dict[int, ListState] = {}
        for key in a.heap.keys() & b.heap.keys():
            if a.heap[key] != b.heap[key]:
                for register, held in registers.items():
                    if held == ListRef(key):
                        registers[register] = Unknown("a list changed in one arm of a branch")
            heap[key] = a.heap[key]
        self.state = _State(registers, heap)
        graph_a, graph_b = Graph(tuple(steps_a)), Graph(tuple(steps_b))
        if steps_a or steps_b or merged:
            self.trace.add(Branch(condition, graph_a, graph_b, tuple(merged), self.site()))

    def merge_values(self, x: Abstract, y: Abstract, merged: list[Merged]) -> Abstract:
        """What a register holds after a branch."""
        if x is y or x == y:
            return x
        if isinstance(x, Value) and isinstance(y, Value):
            type_ = self.common(x.type, y.type)
            if type_ is None:
                return Unknown(f"a value that is {x.type} in one arm of a branch and {y.type} in the other")
            if is_python_scalar(type_) and type_ == x.type == y.type and getattr(type_, "value", None) is not None:
                return x
            if any(self.is_input_memory(v) for v in (x, y)):
                return Unknown("a value that may be an argument itself or a new array, by a branch")
            after = self.trace.value(type_)
            merged.append(Merged(x, y, after))
            return after
        if isinstance(x, Tuple) and isinstance(y, Tuple) and len(x.items) == len(y.items) and x.cls is y.cls:
            items = tuple(self.merge_values(p, q, merged) for p, q in zip(x.items, y.items, strict=True))
            bad = next((i for i in items if isinstance(i, Unknown)), None)
            return bad if bad is not None else Tuple(items, x.cls)
        return Unknown("a value that is of another kind in each arm of a branch")

    def is_input_memory(self, value: Value) -> bool:
        """Does the value share memory with an input?"""
        root = self.trace.root(value)
        return isinstance(value.type, ArrayType) and any(root is given.value for given in self.trace.inputs)

    def common(self, x: Type, y: Type) -> Type | None:
        """The type that covers two, None if there is none a region can carry."""
        if x == y:
            return x
        if isinstance(x, ArrayType) and isinstance(y, ArrayType):
            if (x.dtype, x.rank, x.wrapper) != (y.dtype, y.rank, y.wrapper):
                return None
            if not all(self.trace.facts.equal(p, q) is True for p, q in zip(x.shape, y.shape, strict=True)):
                for p, q in zip(x.shape, y.shape, strict=True):
                    self.trace.wish(p, q)
                return None
            return x if x.layout == y.layout else replace(x, layout=Layout.unknown())
        for kind in (PyIntType, PyFloatType, PyBoolType):
            if isinstance(x, kind) and isinstance(y, kind):
                return kind()
        return None

    # -- loops ------------------------------------------------------------------------------------------------

    def loop(self, at: int, ins: Instruction) -> int | _Returned | _Raised | _LoopTest:
        """A loop; returns where control goes on after it, or how the function was left inside."""
        end = self.flow.loop_end[at]
        if ins.iterator is None:
            return self.while_loop(at, ins, end)
        iterable = self.operand(ins.iterator)
        known = self.known_passes(iterable)
        if known is not None:
            return self.unroll(known, at, ins, end)
        length, element = self.counted(iterable)
        index = self.trace.value(PyIntType(Symbol(f"t{next(self.trace.symbols)}", "scalar")), "t")
        before = self.state
        candidates = self.carried_candidates(at, end)
        inside = self.first_types(before, candidates)
        saved = self.loops
        self.loops = []
        self.loop_depth += 1
        for _ in range(6):
            self.state, values = self.enter_loop(before, inside, collecting=True)
            with self.trace.collecting() as steps:
                self.registers[ins.target] = element(index)
                if self.walk(at + 1, frozenset((end, ins.exit))) != end:
                    raise Untraceable("a break or return that depends on data")
            if not self.widen(before, self.state, inside, values, candidates):
                break
        else:
            raise Untraceable("a loop whose carried values change their types")
        self.loop_depth -= 1
        self.loops = saved
        self.index = at
        carries, after = self.leave_loop(before, self.state, inside, values)
        collected, heap = self.collect(before, self.state, length, index)
        self.trace.add(
            Loop(length, self.loop_index(index), None, None, Graph(tuple(steps)), carries, collected, self.site())
        )
        self.state = _State(self.after_loop(before, after, at, end, ins), heap)
        return int(ins.exit)

    def unroll(
        self, items: list[Abstract], at: int, ins: Instruction, end: int
    ) -> int | _Returned | _Raised | _LoopTest:
        """A loop over known items, pass by pass."""
        depth = len(self.unrolled)
        for number, item in enumerate(items):
            self.registers[ins.target] = item
            self.unrolled.append((items, number, at, ins, end))
            outcome = self.walk(at + 1, frozenset((end, ins.exit)))
            del self.unrolled[depth:]
            if outcome != end:
                return outcome  # a return, or a break that is known
        return int(ins.exit)

    def go_on(self, at: int, stops: frozenset[int]) -> int | _Returned | _Raised | _LoopTest:
        """Walk on to the end of the function from the end of a pass: the other passes, then what follows the loop."""
        outcome: int | _Returned | _Raised | _LoopTest = at
        while isinstance(outcome, int) and self.unrolled:
            items, number, start, ins, end = self.unrolled.pop()
            if outcome == end:
                outcome = int(ins.exit)
                for later, item in enumerate(items[number + 1 :], number + 1):
                    self.registers[ins.target] = item
                    self.unrolled.append((items, later, start, ins, end))
                    depth = len(self.unrolled)
                    passed = self.walk(start + 1, frozenset((end, ins.exit)))
                    del self.unrolled[depth - 1 :]
                    if passed != end:
                        outcome = passed
                        break
            if not isinstance(outcome, int):
                return outcome
            inner_stops = frozenset((self.unrolled[-1][4], self.unrolled[-1][3].exit)) if self.unrolled else frozenset()
            outcome = self.walk(outcome, inner_stops)
        del stops
        return outcome

    def loop_index(self, index: Value) -> Value:
        """The counter; its symbol is the name of the loop variable."""
        return index

    def known_passes(self, iterable: Abstract) -> list[Abstract] | None:
        """The items of a short sequence that is known."""
        if isinstance(iterable, Iterable) and isinstance(iterable.length, int) and iterable.length <= MAX_UNROLL:
            if not isinstance(iterable.at, _Counted):
                return [iterable.at(self.number(i)) for i in range(iterable.length)]
            return None
        return None

    def counted(self, iterable: Abstract) -> tuple[DimLike, Callable[[Value], Abstract]]:
        """Trip count and element of a loop."""
        if isinstance(iterable, Iterable):
            return iterable.length, iterable.at
        raise Untraceable("a loop over something that is no range, array, tuple or list")

    def carried_candidates(self, at: int, end: int) -> list[int]:
        """Registers that the body writes and somebody reads at the next pass or after the loop."""
        written = {r for i in range(at, end + 1) for r in self.function.instructions[i].registers_written()}
        return sorted(r for r in written if r in self.flow.live[at] and r in self.registers)

    def first_types(self, before: _State, candidates: list[int]) -> dict[int, Type | None]:
        """Nothing is carried until a pass shows that it changes."""
        del before, candidates
        return {}

    def enter_loop(
        self, before: _State, inside: dict[int, Type | None], *, collecting: bool
    ) -> tuple[_State, dict[int, Value]]:
        """The state at the start of a pass: new values for what is carried."""
        state = before.copy()
        values: dict[int, Value] = {}
        for register, type_ in inside.items():
            if type_ is None:
                state.registers[register] = Unknown("a variable that is of another kind in each pass of a loop")
            else:
                values[register] = self.trace.value(type_, f"c{register}")
                state.registers[register] = values[register]
        if collecting:
            for content in state.heap.values():
                free = not content.outside and not content.items
                if free and content.collected is None and content.collecting is None:
                    content.collecting = []
        return state, values

    def widen(
        self,
        before: _State,
        after: _State,
        inside: dict[int, Type | None],
        values: dict[int, Value],
        candidates: list[int],
    ) -> bool:
        """Note what the pass changed; true when the types had to change, so that the pass must be walked again."""
        changed = False
        for register in candidates:
            start = before.registers[register]
            now = after.registers.get(register, Unknown("a variable without a value"))
            if register not in inside:
                if now is start or now == start:
                    continue
                inside[register] = None
                if isinstance(start, Value) and isinstance(now, Value):
                    inside[register] = self.common(_open(start.type), _open(now.type))
                changed = True
            elif inside[register] is not None:
                current = inside[register]
                type_ = None
                if isinstance(now, Value) and current is not None:
                    type_ = self.common(current, _open(now.type))
                if type_ != current:
                    inside[register] = type_
                    changed = True
        del values
        return changed

    def leave_loop(
        self, before: _State, after: _State, inside: dict[int, Type | None], values: dict[int, Value]
    ) -> tuple[tuple[Carried, ...], dict[int, Value]]:
        """The carried values of a finished loop, and what the registers hold after it."""
        carries: list[Carried] = []
        results: dict[int, Value] = {}
        for register, type_ in inside.items():
            if type_ is None:
                continue
            initial, following = before.registers[register], after.registers[register]
            assert isinstance(initial, Value)
            if not isinstance(following, Value):
                raise Untraceable("a variable that is of another kind in each pass of a loop")
            result = self.trace.value(type_, values[register].name)
            carries.append(Carried(initial, values[register], following, result))
            results[register] = result
        return tuple(carries), results

    def collect(
        self, before: _State, after: _State, length: DimLike, index: Value
    ) -> tuple[tuple[Collected, ...], dict[int, ListState]]:
        """Lists that the body appended to once per pass."""
        heap: dict[int, ListState] = {}
        collected: list[Collected] = []
        for key, content in before.heap.items():
            now = after.heap[key]
            if now.collecting is None or content.collecting is not None:
                if now != content:
                    raise Untraceable("a list that a loop changes in another way than by appending to an empty one")
                heap[key] = content
                continue
            if not now.collecting:
                heap[key] = content
                continue
            if len(now.collecting) != 1:
                raise Untraceable("a list that a loop appends to more than once per pass")
            element = now.collecting[0]
            if not isinstance(element, Value) or not isinstance(element.type, ArrayType | NpScalarType):
                raise Untraceable("a list of values that are no arrays")
            shape = element.type.shape if isinstance(element.type, ArrayType) else ()
            own = index.type.value if isinstance(index.type, PyIntType) else None
            if any(own in symbols_of(d) for d in shape):
                raise Untraceable("a list of arrays whose sizes differ")
            wrapper = element.type.wrapper if isinstance(element.type, ArrayType) else "ndarray"
            type_ = ArrayType(element.type.dtype, (length, *shape), Layout.c(1 + len(shape)), "cpu", wrapper)
            whole = self.trace.value(type_)
            collected.append(Collected(element, whole))
            heap[key] = ListState(collected=whole, length=length)
        return tuple(collected), heap

    def after_loop(
        self, before: _State, after: dict[int, Value], at: int, end: int, ins: Instruction
    ) -> dict[int, Abstract]:
        """The registers after a loop: carried ones have their last value, others written in the body are not known."""
        registers = dict(before.registers)
        for i in range(at, end + 1):
            for register in self.function.instructions[i].registers_written():
                if (
                    register not in after and register in registers and register not in self.flow.live[at]
                ) or register not in registers:
                    registers[register] = Unknown("a variable set in a loop that may not run")
        registers.update(after)
        del ins
        return registers

    def while_loop(self, at: int, ins: Instruction, end: int) -> int:
        """`while condition:`; the steps up to the test run before every pass."""
        before = self.state
        candidates = self.carried_candidates(at, end)
        inside = self.first_types(before, candidates)
        saved = self.loops
        self.loop_depth += 1
        for _ in range(6):
            self.state, values = self.enter_loop(before, inside, collecting=False)
            self.loops = [*saved, (at, end)]
            with self.trace.collecting() as header:
                test = self.walk(at + 1, frozenset((end,)))
            if not isinstance(test, _LoopTest):
                raise Untraceable("a loop without an end that depends on data")
            at_test = self.state.copy()
            self.loops = []
            with self.trace.collecting() as steps:
                if self.walk(test.inside, frozenset((end,))) != end:
                    raise Untraceable("a break or return that depends on data")
            if not self.widen(before, self.state, inside, values, candidates):
                break
        else:
            raise Untraceable("a loop whose carried values change their types")
        self.loop_depth -= 1
        self.loops = saved
        self.index = at
        for register in candidates:
            entered = values.get(register, before.registers[register])
            if at_test.registers.get(register) is not entered and at_test.registers.get(register) != entered:
                raise Untraceable("a loop whose condition changes a variable")
        if any(self.state.heap[key] != content for key, content in before.heap.items()):
            raise Untraceable("a list that grows in a while loop")
        carries, after = self.leave_loop(before, self.state, inside, values)
        self.trace.add(
            Loop(None, None, Graph(tuple(header)), test.condition, Graph(tuple(steps)), carries, (), self.site())
        )
        self.state = _State(self.after_loop(before, after, at, end, ins), before.heap)
        return int(ins.exit)

    # -- instructions -----------------------------------------------------------------------------------------

    def step(self, ins: Instruction) -> None:
        """An instruction without control flow."""
        handler = _HANDLERS.get(ins.opcode)
        if handler is None:
            raise Untraceable(_REFUSED.get(ins.opcode, f"{ins.opcode} has no compiled form"))
        handler(self, ins)

    def _load_const(self, ins: Instruction) -> None:
        self.registers[ins.dst] = self.operand(ins.value)

    def _load_param(self, ins: Instruction) -> None:
        if ins.dst != ins.index:
            self.registers[ins.dst] = self.registers[ins.index]

    def _move(self, ins: Instruction) -> None:
        self.registers[ins.dst] = self.operand(ins.src)

    def _anchor(self, ins: Instruction) -> None:
        self.registers[ins.dst] = self.operand(ins.x)

    def _depend(self, ins: Instruction) -> None:
        self.registers[ins.dst] = self.operand(ins.x)

    def _check(self, ins: Instruction) -> None:
        self.operand(ins.x)

    def _end_try(self, ins: Instruction) -> None:
        del ins

    def _load_global(self, ins: Instruction) -> None:
        self.registers[ins.dst] = self.sampled(*self.environment.read_global(ins.name))

    def _load_cell(self, ins: Instruction) -> None:
        cell = self.operand(ins.cell)
        if not (isinstance(cell, Known) and isinstance(cell.value, _Cell)):
            raise Untraceable("a variable shared with a nested function")
        self.registers[ins.dst] = self.sampled(*self.environment.read_cell(cell.value.position))

    def _load_attr(self, ins: Instruction) -> None:
        owner, name = self.operand(ins.object), ins.name
        if isinstance(owner, Known):
            self.registers[ins.dst] = self.attribute_of(owner, name)
        elif isinstance(owner, Value):
            self.registers[ins.dst] = self.array_attribute(owner, name)
        elif isinstance(owner, Tuple) and owner.cls is not None and name in owner.cls._fields:  # type: ignore[attr-defined]
            self.registers[ins.dst] = owner.items[owner.cls._fields.index(name)]  # type: ignore[attr-defined]
        elif isinstance(owner, Mapping | Tuple | ListRef):
            self.registers[ins.dst] = Method(owner, name)
        else:
            raise Untraceable(f"the attribute {name}")

    def attribute_of(self, owner: Known, name: str) -> Abstract:
        """An attribute of a known object."""
        value, source = self.environment.read_attribute(owner.value, owner.source, name)
        if source[0] == "constant":
            return self.constant(value)
        return self.sampled(value, source)

    def array_attribute(self, owner: Value, name: str) -> Abstract:
        """An attribute of an array or scalar."""
        type_ = owner.type
        shape = type_.shape if isinstance(type_, ArrayType) else ()
        match name:
            case "shape" if isinstance(type_, ArrayType | NpScalarType):
                return Tuple(tuple(self.size_value(d) for d in shape))
            case "ndim" if isinstance(type_, ArrayType | NpScalarType):
                return self.number(len(shape))
            case "size" if isinstance(type_, ArrayType | NpScalarType):
                return self.size_value(product(shape))
            case "dtype" if isinstance(type_, ArrayType) and type_.wrapper == "Tensor":
                return Known(type_.dtype)
            case "dtype" if isinstance(type_, ArrayType | NpScalarType):
                return Known(type_.dtype.numpy)
        return Method(owner, name)

    def _dim(self, ins: Instruction) -> None:
        x = self.operand(ins.x)
        if not is_array(x):
            raise Untraceable("the shape of something that is no array")
        shape = x.type.shape  # type: ignore[union-attr]
        if not -len(shape) <= ins.axis < len(shape):
            raise Untraceable(f"dimension {ins.axis} of an array of rank {len(shape)}")
        self.registers[ins.dst] = self.size_value(shape[ins.axis])

    def _call_op(self, ins: Instruction) -> None:
        row = get(ins.operator)
        if ins.via is not None:
            self.check_via(ins, row)
        names = ins.keywords or ("",) * len(ins.args)
        args = [self.operand(a) for a, n in zip(ins.args, names, strict=True) if not n]
        keywords = {n: self.operand(a) for a, n in zip(ins.args, names, strict=True) if n}
        self.registers[ins.dst] = self.apply(row, ins.spelling, args, keywords)

    def check_via(self, ins: Instruction, row: Operator) -> None:
        """The name in the source still means the operator."""
        root, *path = ins.via.split(".")
        if ":" in root:
            position, _, root = root.partition(":")
            cell = self.operand(int(position))
            if not (isinstance(cell, Known) and isinstance(cell.value, _Cell)):
                raise Untraceable("a function found through a variable of its own")
            value, source = self.environment.read_cell(cell.value.position)
        else:
            value, source = self.environment.read_global(root)
        found: Abstract = self.sampled(value, source)
        for name in path:
            if not isinstance(found, Known):
                raise Untraceable(f"{ins.via} is no function")
            found = self.attribute_of(found, name)
        if not isinstance(found, Known):
            raise Untraceable(f"{ins.via} is no function")
        claimed = operator_of(found.value)
        if claimed is None or claimed[0].name != row.name:
            raise Untraceable(f"{ins.via} no longer means {row.name}")

    def _build(self, ins: Instruction) -> None:
        what = ins.what
        if what in ("tuple", "list"):
            items = [self.operand(i) for i in ins.items]
            self.registers[ins.dst] = Tuple(tuple(items)) if what == "tuple" else self.new_list(items)
        elif what == "slice":
            parts = [self.operand(i) for i in ins.items]
            parts += [Known(None)] * (3 - len(parts))
            self.registers[ins.dst] = Slice(*parts)
        elif what == "dict":
            items = [self.operand(i) for i in ins.items]
            pairs = zip(items[::2], items[1::2], strict=True)
            self.registers[ins.dst] = Mapping(tuple((self.static(k), v) for k, v in pairs))
        elif what == "tuple_star":
            joined = [item for i in ins.items for item in self.items(self.operand(i))]
            self.registers[ins.dst] = Tuple(tuple(joined))
        else:
            # harmless unless used: a string for a message, a set
            self.registers[ins.dst] = Unknown(f"a {what}")

    def _unpack(self, ins: Instruction) -> None:
        source = self.operand(ins.src)
        items = self.rows(source) if isinstance(source, Value) else self.items(source)
        targets = list(ins.dsts)
        if ins.star:
            before = ins.star - 1
            after = len(targets) - before - 1
            middle = items[before : len(items) - after]
            items = [*items[:before], self.new_list(list(middle)), *items[len(items) - after :]]
        if len(items) != len(targets):
            raise Untraceable(f"{len(items)} values for {len(targets)} names")
        self.registers.update(zip(targets, items, strict=True))

    def rows(self, x: Value) -> list[Abstract]:
        """The rows of an array whose first size is known."""
        if not isinstance(x.type, ArrayType) or not x.type.rank or not isinstance(x.type.shape[0], int):
            raise Untraceable("unpacking of a value whose length is not known")
        if x.type.shape[0] > MAX_UNROLL:
            raise Untraceable("unpacking of a long array")
        return [self.index_array(x, (i,)) for i in range(x.type.shape[0])]

    def _index(self, ins: Instruction) -> None:
        x, key = self.operand(ins.x), self.operand(ins.key)
        if isinstance(x, Value):
            parts = key.items if isinstance(key, Tuple) else (key,)
            self.registers[ins.dst] = self.index_array(x, tuple(self.key_part(p) for p in parts))
            return
        if isinstance(x, Mapping):
            wanted = self.static(key)
            for name, value in x.items:
                if name == wanted:
                    self.registers[ins.dst] = value
                    return
            raise Untraceable(f"no key {wanted!r}")
        items = self.items(x)
        where = self.static(key)
        if isinstance(where, slice):
            chosen = items[where]
            self.registers[ins.dst] = Tuple(tuple(chosen)) if isinstance(x, Tuple) else self.new_list(chosen)
            return
        if not isinstance(where, int):
            raise Untraceable("an index that is only known when the code runs")
        self.registers[ins.dst] = items[where]

    def key_part(self, part: Abstract) -> Any:
        """A part of an index: an int, a size, an int Value, a slice, None or Ellipsis."""
        if isinstance(part, Slice):
            return slice(*(self.bound(p) for p in (part.start, part.stop, part.step)))
        if isinstance(part, Known) and (part.value is None or part.value is Ellipsis):
            return part.value
        if isinstance(part, Value):
            type_ = part.type
            if isinstance(type_, PyIntType):
                return part if type_.value is None else type_.value
            if isinstance(type_, NpScalarType) and type_.dtype.kind in "iu":
                return part
        raise Untraceable("an index by an array or mask")

    def bound(self, part: Abstract) -> Any:
        """A bound of a slice: None, an int or a size."""
        if isinstance(part, Known) and part.value is None:
            return None
        value = self.static(part)
        if not isinstance(value, int | Dim):
            raise Untraceable("a slice bound that is no int")
        return value

    def index_array(self, x: Value, key: tuple[Any, ...]) -> Value:
        """Basic indexing of an array: a view."""
        type_ = x.type
        if not isinstance(type_, ArrayType):
            raise Untraceable(f"an index into a {type_}")
        used = sum(k is not None and k is not Ellipsis for k in key)
        if used > type_.rank:
            raise Untraceable(f"{used} indices into an array of rank {type_.rank}")
        if not any(k is Ellipsis for k in key):
            key = (*key, Ellipsis)
        shape: list[DimLike] = []
        axis = 0
        for part in key:
            if part is None:
                shape.append(1)
            elif part is Ellipsis:
                shape += type_.shape[axis : axis + type_.rank - used]
                axis += type_.rank - used
            elif isinstance(part, slice):
                step = 1 if part.step is None else part.step
                if not isinstance(step, int):
                    raise Untraceable("a slice with a step that is not known")
                shape.append(slice_dim(type_.shape[axis], part.start, part.stop, step))
                axis += 1
            else:
                size = type_.shape[axis]
                if isinstance(part, int) and isinstance(size, int) and not -size <= part < size:
                    raise Untraceable(f"index {part} is out of bounds for a dimension of {size}")
                axis += 1
        if not shape and len(key) == used + 1:
            output = self.trace.value(NpScalarType(type_.dtype))
        else:
            layout = indexed_layout(type_.layout, key, type_.rank)
            output = self.trace.value(replace(type_, shape=tuple(shape), layout=layout))
            self.trace.roots[output] = self.trace.root(x)
        self.trace.add(Node("index", (x,), {"key": key}, (output,), self.site()))
        return output

    def _append(self, ins: Instruction) -> None:
        target, value = self.operand(ins.list), self.operand(ins.value)
        if not isinstance(target, ListRef):
            raise Untraceable("append to something that is no list")
        state = self.state.heap[target.key]
        if state.outside:
            raise Untraceable("append to a list that is an argument")
        if state.collected is not None:
            raise Untraceable("append to a list that a loop has filled")
        (state.items if state.collecting is None else state.collecting).append(value)

    def _item(self, ins: Instruction) -> None:
        self.registers[ins.dst] = self.python_number(self.operand(ins.x))

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

    def _iter(self, ins: Instruction) -> None:
        self.registers[ins.dst] = self.iterable(self.operand(ins.x))

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
                return Iterable(length, _Counted(self, start, step))
            case Tuple() | ListRef() | Known():
                items = self.items(x)
                return Iterable(len(items), lambda i: items[static(i)])
            case Value() if isinstance(x.type, ArrayType) and x.type.rank:
                array = x

                def row(i: Value) -> Abstract:
                    place = _counter(i)
                    return self.index_array(array, (place,))

                return Iterable(x.type.shape[0], row)
        raise Untraceable("a loop over something that is no range, array, tuple or list")

    def _scalar(self, ins: Instruction) -> None:
        args = [self.operand(a) for a in ins.args]
        self.registers[ins.dst] = self.scalar(ins.function, args)

    def scalar(self, name: str, args: list[Abstract]) -> Abstract:
        """A builtin of Python."""
        first = args[0] if args else Known(None)
        match name:
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
                return Iterable(inner.length, _Enumerated(self, at, start, isinstance(at, _Counted)))
            case "zip":
                parts = [self.iterable(a) for a in args]
                lengths = [p.length for p in parts]
                length = dim_min(*lengths) if len(lengths) > 1 else lengths[0]
                return Iterable(length, lambda i: Tuple(tuple(p.at(i) for p in parts)))
            case "reversed":
                items = self.items(first)[::-1]
                return Iterable(len(items), lambda i: items[static(i)])
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

    # -- calls ------------------------------------------------------------------------------------------------

    def _call(self, ins: Instruction) -> None:
        names = ins.keywords or ("",) * len(ins.args)
        args: list[Abstract] = []
        keywords: dict[str, Abstract] = {}
        for operand, name in zip(ins.args, names, strict=True):
            value = self.operand(operand)
            if name == "*":
                args += self.items(value)
            elif name == "**":
                if not isinstance(value, Mapping):
                    raise Untraceable("keyword arguments from a mapping that is not known")
                keywords.update(value.items)
            elif name:
                keywords[name] = value
            else:
                args.append(value)
        self.registers[ins.dst] = self.call(self.operand(ins.callee), args, keywords)

    def _call_py(self, ins: Instruction) -> None:
        callee = self.operand(ins.callee)
        if isinstance(callee, Known) and not any(ins.keywords or ()):
            known = self.known_call(callee.value, [self.operand(a) for a in ins.args])
            if known is not None:
                self.registers[ins.dst] = known
                return
        raise Untraceable(f"a Python call: {ins.reason}")

    def call(self, callee: Abstract, args: list[Abstract], keywords: dict[str, Abstract]) -> Abstract:
        """Call something."""
        if isinstance(callee, Method):
            return self.call_method(callee, args, keywords)
        if not isinstance(callee, Known):
            raise Untraceable("a call of something that is not known")
        target = callee.value
        found = operator_of(target)
        if found is not None:
            row, spelling = found
            if isinstance(target, type):
                return Known(
                    target(*(self.static(a) for a in args), **{k: self.static(v) for k, v in keywords.items()})
                )
            form = row.spellings[spelling]
            if form.kind == "class":
                given = {n: getattr(target, n) for n in type(target).__slots__}
                constructed = {n: self.constant(v) for n, v in given.items()}
                return self.apply(row, spelling, args, {**constructed, **keywords})
            return self.apply(row, spelling, args, keywords)
        if isinstance(target, types.MethodType):
            receiver = Known(target.__self__, _owner(callee.source))
            self.environment.require(_owner(callee.source), "identity", target.__self__)
            if isinstance(target.__func__, types.FunctionType):
                return self.call_function(target.__func__, [receiver, *args], keywords)
            raise Untraceable(f"a call of {target.__func__!r}, which is Python")
        if isinstance(target, types.FunctionType):
            return self.call_function(target, args, keywords)
        construct = getattr(type(target), "__tiercel_cell__", None)
        if construct is not None:
            method = inspect.getattr_static(type(target), "construct", None)
            if method is not None:
                return self.call(self.attribute_of(callee, "construct"), args, keywords)
        known = None if keywords else self.known_call(target, args)
        if known is not None:
            return known
        builtin = getattr(target, "__name__", type(target).__name__)
        raise Untraceable(f"a call of {builtin}, which is Python")

    def known_call(self, target: Any, args: list[Abstract]) -> Abstract | None:
        """Calls of classes and C functions that are understood: `np.float32(x)`, `math.sqrt(n)`, named tuples."""
        if isinstance(target, type) and is_dtype(target) and issubclass(target, np.generic) and len(args) == 1:
            given = args[0]
            if isinstance(given, Value) and not isinstance(given.type, ArrayType | NpScalarType):
                return self.node("astype", (given,), {"dtype": as_dtype(target)}, NpScalarType(as_dtype(target)))
        if isinstance(target, type) and issubclass(target, tuple) and hasattr(target, "_fields"):
            if len(args) == len(target._fields) and is_named_tuple(target):
                return Tuple(tuple(args), target)
        if getattr(target, "__module__", None) == "math" and callable(target):
            return self.math_call(target.__name__, target, args)
        return None

    def math_call(self, name: str, target: Any, args: list[Abstract]) -> Abstract | None:
        """A function of `math`: computed now on numbers that are known; a square root of a size otherwise."""
        try:
            values = [self.static(a) for a in args]
        except Untraceable:
            return None
        if not any(isinstance(v, Dim) for v in values):
            if not all(isinstance(v, int | float) for v in values):
                return None
            return self.constant(target(*values))
        if name == "sqrt" and isinstance(args[0], Value):
            return self.node("sqrt", args[:1], {}, PyFloatType())  # type: ignore[arg-type]
        return None

    def call_method(self, method: Method, args: list[Abstract], keywords: dict[str, Abstract]) -> Abstract:
        """A method of an array."""
        if isinstance(method.receiver, Value):
            found = find_method(method.name)
            if found is not None:
                row, spelling = found
                return self.apply(row, spelling, [method.receiver, *args], keywords)
        if isinstance(method.receiver, Mapping) and method.name in ("items", "values", "keys", "get"):
            pairs = method.receiver.items
            if method.name == "get":
                wanted = self.static(args[0])
                return next((v for k, v in pairs if k == wanted), args[1] if len(args) > 1 else Known(None))
            chosen: dict[str, list[Abstract]] = {
                "items": [Tuple((self.constant(k), v)) for k, v in pairs],
                "values": [v for _, v in pairs],
                "keys": [self.constant(k) for k, _ in pairs],
            }
            return Tuple(tuple(chosen[method.name]))
        raise Untraceable(f"the method {method.name}")

    def call_function(
        self, target: types.FunctionType, args: list[Abstract], keywords: dict[str, Abstract]
    ) -> Abstract:
        """Walk a Python function in place."""
        trace = self.trace
        inner = getattr(target, "__wrapped__", None)
        function = inner if hasattr(target, "__tiercel__") and isinstance(inner, types.FunctionType) else target
        program = self.environment.program_of(function)
        if program is None:
            raise Untraceable(f"a call of {target.__qualname__}, which is Python")
        if trace.depth >= MAX_DEPTH:
            raise Untraceable(f"calls nested deeper than {MAX_DEPTH}")
        try:
            bound = inspect.signature(function, follow_wrapped=False).bind(*args, **keywords)
        except TypeError as error:
            raise Untraceable(f"{target.__qualname__}: {error}") from None
        code, constants = program
        frame = Frame(trace, code, constants, self.environment.child(function), self.site())
        frame.state.heap = self.state.heap
        for register, parameter in enumerate(inspect.signature(function, follow_wrapped=False).parameters.values()):
            if parameter.name in bound.arguments:
                given = bound.arguments[parameter.name]
                if parameter.kind is parameter.VAR_POSITIONAL:
                    given = Tuple(tuple(given))
                elif parameter.kind is parameter.VAR_KEYWORD:
                    given = Mapping(tuple(given.items()))
            elif parameter.kind is parameter.VAR_POSITIONAL:
                given = Tuple(())
            elif parameter.kind is parameter.VAR_KEYWORD:
                given = Mapping(())
            else:
                given = frame.default(parameter)
            frame.registers[register] = given
        for position in range(len(code.free)):
            frame.registers[len(code.parameters) + position] = Known(_Cell(position))
        trace.depth += 1
        outcome = frame.walk(0, frozenset())
        trace.depth -= 1
        self.state.heap = frame.state.heap
        if isinstance(outcome, _Raised):
            raise Untraceable("a call that always raises")
        assert isinstance(outcome, _Returned)
        return outcome.value

    def default(self, parameter: inspect.Parameter) -> Abstract:
        """A default value; it is part of the function object, which is guarded by identity."""
        if unwrapped(parameter.default) is not None:
            raise Untraceable(f"an array as default of {parameter.name}")
        return self.constant(parameter.default)


@dataclass(frozen=True, slots=True)
class _Cell:
    """A captured cell, by its position."""

    position: int


def _counter(index: Value) -> DimLike:
    """The size expression of a loop counter (or the int of a pass that is written out)."""
    assert isinstance(index.type, PyIntType)
    assert index.type.value is not None
    return index.type.value


class _Counted:
    """Elements of a range: `start + i * step`."""

    def __init__(self, frame: Frame, start: DimLike, step: int) -> None:
        self.frame, self.start, self.step = frame, start, step

    def __call__(self, index: Value) -> Abstract:
        place = _counter(index)
        return self.frame.size_value(self.start + place * self.step)


class _Enumerated:
    def __init__(self, frame: Frame, at: Callable[[Value], Abstract], start: DimLike, counted: bool) -> None:
        self.frame, self.at, self.start, self.counted = frame, at, start, counted

    def __call__(self, index: Value) -> Abstract:
        place = _counter(index)
        return Tuple((self.frame.size_value(self.start + place), self.at(index)))


def is_named_tuple(cls: Any) -> bool:
    """A class made by `NamedTuple` or `namedtuple`, whose making runs no code of the user's."""
    fields = getattr(cls, "_fields", None)
    if not (isinstance(cls, type) and issubclass(cls, tuple) and isinstance(fields, tuple)):
        return False
    own = vars(cls)
    return "__new__" in own and "__init__" not in own and cls.__bases__ == (tuple,)


_PYTHON_CLASSES: dict[type, type] = {
    PyIntType: int,
    PyFloatType: float,
    PyBoolType: bool,
    Tuple: tuple,
    ListRef: list,
    Mapping: dict,
}

_HANDLERS: dict[str, Callable[[Frame, Instruction], None]] = {
    "Anchor": Frame._anchor,
    "Append": Frame._append,
    "Build": Frame._build,
    "Call": Frame._call,
    "CallOp": Frame._call_op,
    "CallPy": Frame._call_py,
    "Check": Frame._check,
    "Depend": Frame._depend,
    "Dim": Frame._dim,
    "EndTry": Frame._end_try,
    "Index": Frame._index,
    "Item": Frame._item,
    "Iter": Frame._iter,
    "LoadAttr": Frame._load_attr,
    "LoadCell": Frame._load_cell,
    "LoadConst": Frame._load_const,
    "LoadGlobal": Frame._load_global,
    "LoadParam": Frame._load_param,
    "Move": Frame._move,
    "Scalar": Frame._scalar,
    "Unpack": Frame._unpack,
}
_REFUSED = {
    "StoreAttr": "an attribute is written",
    "StoreCell": "a variable shared with a nested function is written",
    "SetItem": "an element is written",
    "StoreTensor": "an array is written",
    "MakeFunction": "a function is made",
    "Try": "try and with are handled by the interpreter",
}


def plain_rank(key: tuple[Any, ...], rank: int) -> int:
    """The rank of `x[key]` without the new axes of the key."""
    return rank - sum(k is not None and k is not Ellipsis and not isinstance(k, slice) for k in key)


def indexed_layout(layout: Layout, key: tuple[Any, ...], rank: int) -> Layout:
    """The layout of a view by basic indexing: kept axes stay in their order, the dense ones end at the first cut."""
    if layout.order is None:
        return Layout.unknown()
    if any(k is None for k in key):
        # an axis of size 1 changes nothing about a contiguous block
        plain = indexed_layout(layout, tuple(k for k in key if k is not None), rank)
        extra = sum(k is None for k in key)
        return Layout.c(plain_rank(key, rank) + extra) if plain.is_c else Layout.unknown()
    parts: list[Any] = []
    for part in key:
        if part is Ellipsis:
            parts += [slice(None)] * (rank - sum(k is not Ellipsis for k in key))
        else:
            parts.append(part)
    kept = [axis for axis, part in enumerate(parts) if isinstance(part, slice)]
    order = tuple(kept.index(axis) for axis in layout.order if axis in kept)
    if any(isinstance(p, slice) and p.step not in (None, 1) for p in parts):
        return Layout(order, 0) if all((p.step or 1) > 0 for p in parts if isinstance(p, slice)) else Layout.unknown()
    packed = 0
    for axis in reversed(layout.order[rank - layout.packed :]):
        if parts[axis] == slice(None):
            packed += 1
        else:
            # a slice of the outermost dense axis is still dense within; an int ends what is dense
            packed += isinstance(parts[axis], slice) and parts[axis].step in (None, 1)
            break
    return Layout(order, min(packed, len(order)))


def _owner(source: Source) -> Source:
    """Where the object is found whose attribute `source` is."""
    return source[1][0] if source[0] == "attribute" else ("constant", None)


def _is_abstract(x: Any) -> bool:
    return isinstance(x, Value | Known | Tuple | ListRef | Mapping | Slice | Range | Iterable | Method | Unknown)


def _open(type_: Type) -> Type:
    """The type without its known value: what a loop carries changes."""
    if isinstance(type_, PyIntType | PyFloatType | PyBoolType | PyComplexType):
        return type(type_)()
    return type_


def row_default(row: Operator, name: str) -> Any:
    """The default of an attribute."""
    return next(p.default for p in row.parameters if p.name == name)


def operator_of(target: Any) -> tuple[Operator, int] | None:
    """The operator that a NumPy function, `tiercel.ops` function, class or instance of one stands for."""
    claim = getattr(target, "__tiercel_op__", None)
    if isinstance(claim, tuple):
        return get(claim[0]), claim[1]
    try:
        return find_function(target)
    except TypeError:  # unhashable
        return None


# ---- arguments -------------------------------------------------------------------------------------------------------


def unwrapped(value: Any) -> np.ndarray[Any, Any] | None:
    """The ndarray of an ndarray or Tensor; None for anything else."""
    if type(value) is np.ndarray:
        return value
    from tiercel.values import Parameter, Tensor

    return value._array if type(value) in (Tensor, Parameter) else None


def is_frozen(value: Any) -> bool:
    """May a kernel keep a packed form of the value?"""
    from tiercel.values.parameter import frozen_state

    return frozen_state(value) is not None


def tensor_type(value: Any, name: str, trace: Trace) -> Type | None:
    """The type of an array: the sizes of a frozen one are static, all others are symbols named after it."""
    array = unwrapped(value)
    if array is None or not is_dtype(array.dtype) or not array.dtype.isnative:
        return None
    if is_frozen(value):
        shape: tuple[DimLike, ...] = array.shape
    else:
        shape = tuple(trace.symbol(f"{name}_{axis}", size) for axis, size in enumerate(array.shape))
    wrapper = "ndarray" if type(value) is np.ndarray else "Tensor"
    return ArrayType(as_dtype(array.dtype), shape, Layout.of(array), "cpu", wrapper)


def abstract_argument(frame: Frame, value: Any, name: str, source: Source) -> Abstract:
    """An argument of the region: arrays and numbers are inputs, structure is followed, other objects are known."""
    trace = frame.trace
    kind = type(value)
    type_: Type | None = tensor_type(value, name, trace)
    if type_ is None and unwrapped(value) is None:
        if kind is bool:
            type_ = PyBoolType()
        elif kind is int and -(2**63) <= value < 2**63:
            type_ = PyIntType(trace.symbol(name, value, "scalar"))
        elif kind is float:
            type_ = PyFloatType()
        elif isinstance(value, np.generic) and is_dtype(kind):
            type_ = NpScalarType(as_dtype(kind))
    if type_ is not None:
        made = trace.value(type_, name)
        trace.inputs.append(Input(made, source, frozen=unwrapped(value) is not None and is_frozen(value)))
        return made
    if unwrapped(value) is not None:
        raise Untraceable(f"the argument {name} has a dtype that is not compiled")
    if kind is tuple:
        frame.environment.require(source, "tuple", len(value))
        return Tuple(
            tuple(abstract_argument(frame, v, f"{name}_{i}", ("item", (source, i))) for i, v in enumerate(value))
        )
    if is_named_tuple(kind):
        frame.environment.require(source, "class", kind)
        named = zip(kind._fields, value, strict=True)
        items = (abstract_argument(frame, v, f"{name}_{n}", ("item", (source, i))) for i, (n, v) in enumerate(named))
        return Tuple(tuple(items), kind)
    if kind is list and len(value) <= MAX_UNROLL:
        frame.environment.require(source, "list", len(value))
        held = frame.new_list(
            [abstract_argument(frame, v, f"{name}_{i}", ("item", (source, i))) for i, v in enumerate(value)]
        )
        frame.state.heap[held.key].outside = True
        return held
    if kind is dict and all(type(k) is str for k in value):
        frame.environment.require(source, "dict", tuple(value))
        pairs = [(k, abstract_argument(frame, v, f"{name}_{k}", ("item", (source, k)))) for k, v in value.items()]
        return Mapping(tuple(pairs))
    if is_plain(value):
        frame.environment.require(source, "value", value)
        return frame.constant(value)
    if isinstance(value, list | np.ndarray) or (kind.__module__ or "").partition(".")[0] == "torch":
        raise Untraceable(f"the argument {name} is a {kind.__name__}")
    frame.environment.require(source, "identity", value)
    return Known(value, source)


def trace_region(
    function: Function,
    constants: Sequence[Any],
    environment: Environment,
    arguments: Sequence[Any],
    *,
    name: str = "region",
    speculate: bool = True,
) -> Region:
    """Trace a whole function for the kinds of values given.

    Args:
        function: its bytecode.
        constants: the constants of its program.
        environment: its surroundings.
        arguments: one value per parameter; only their types are used (and the identity of objects).
        name: of the region.
        speculate: where the code combines two sizes that are not known to be equal but are in these arguments,
            assume it: the region is then guarded to be entered only with sizes that agree.

    Raises:
        Untraceable: with the reason and the instruction.
    """
    substitution: dict[str, DimLike] = {}
    for _ in range(MAX_ASSUMPTIONS):
        trace = Trace(Facts())
        trace.substitution = substitution
        environment.conditions.clear()
        environment.classes.clear()
        region: Region | None = None
        failure: Untraceable | None = None
        try:
            region = _trace_once(trace, function, constants, environment, arguments, name)
        except Untraceable as error:
            failure = error
        if speculate and _assume(trace, substitution):
            continue
        if failure is not None:
            raise failure
        assert region is not None
        return region
    raise Untraceable("sizes that are compared in too many ways")


MAX_ASSUMPTIONS = 16
"""Traces of one region, each with one more round of sizes assumed equal."""


def _assume(trace: Trace, substitution: dict[str, DimLike]) -> bool:
    """Turn wishes that the arguments fulfil into assumptions; true if there are new ones."""
    new = False
    for a, b in trace.pairs:
        a, b = substitute(a, substitution), substitute(b, substitution)
        if a == b:
            continue
        try:
            agree = size_of(a, trace.sample) == size_of(b, trace.sample)
        except TiercelError:
            continue  # a size that only running decides
        if not agree:
            continue
        if not isinstance(a, Symbol):
            a, b = b, a
        if not isinstance(a, Symbol) or a in symbols_of(b) or (isinstance(b, int) and b < 2):
            continue
        for known, dim in substitution.items():
            substitution[known] = substitute(dim, {a.name: b})
        substitution[a.name] = b
        new = True
    return new


def _trace_once(
    trace: Trace,
    function: Function,
    constants: Sequence[Any],
    environment: Environment,
    arguments: Sequence[Any],
    name: str,
) -> Region:
    frame = Frame(trace, function, constants, environment, None)
    for register, (parameter, value) in enumerate(zip(function.parameters, arguments, strict=True)):
        frame.registers[register] = abstract_argument(frame, value, parameter.name, ("register", register))
    for given in trace.inputs:
        for dim in given.value.type.shape if isinstance(given.value.type, ArrayType) else ():
            if isinstance(dim, Symbol):
                trace.facts.set_range(dim, DimRange(0, None))
    for position in range(len(function.free)):
        frame.registers[len(function.parameters) + position] = Known(_Cell(position))
    outcome = frame.walk(0, frozenset())
    if isinstance(outcome, _Raised):
        raise Untraceable("it always raises", outcome.index)
    assert isinstance(outcome, _Returned)
    result = _result(frame, outcome.value, set())
    graph = Graph(tuple(trace.steps))
    exits: dict[int | str, dict[int | str, Result]] = {"return": {"return": result}}
    return Region(name, 0, 0, tuple(trace.inputs), graph, exits, trace.facts, signature_text(trace.inputs))


def signature_text(inputs: Sequence[Input]) -> str:
    """`(float32[?, 128], float32[128, 256])`: what the region is keyed by."""
    parts = []
    for given in inputs:
        type_ = given.value.type
        if isinstance(type_, ArrayType):
            dims = ", ".join(str(d) if isinstance(d, int) else "?" for d in type_.shape)
            layout = "" if type_.layout.is_c else "{strided}"
            parts.append(f"{type_.dtype.name}[{dims}]{layout}")
        else:
            parts.append(str(type_).partition("(")[0])
    return f"({', '.join(parts)})"


def _result(frame: Frame, x: Abstract, seen: set[Value]) -> Result:
    trace = frame.trace
    match x:
        case Known() if x.value is None:
            return Result("none")
        case Known() if is_plain(x.value):
            return Result("constant", constant=x.value)
        case Tuple():
            wrap = -1
            if x.cls is not None:
                frame.environment.classes.append(x.cls)
                wrap = len(frame.environment.classes) - 1
            return Result("tuple", items=tuple(_result(frame, item, seen) for item in x.items), wrap=wrap)
        case ListRef():
            if frame.state.heap[x.key].outside:
                raise Untraceable("it returns a list that is an argument")
            return Result("list", items=tuple(_result(frame, item, seen) for item in frame.items(x)))
        case Value():
            return _value_result(trace, x, seen)
    raise Untraceable(f"a result that is a {type(x.value if isinstance(x, Known) else x).__name__.lower()}")


def _value_result(trace: Trace, x: Value, seen: set[Value]) -> Result:
    type_ = x.type
    for position, given in enumerate(trace.inputs):
        if given.value is x and not isinstance(type_, PyIntType | PyBoolType | PyFloatType):
            return Result("input", index=position)
    if isinstance(type_, PyBoolType | PyFloatType) and type_.value is not None:
        return Result("constant", constant=type_.value)
    if isinstance(type_, ArrayType):
        root = trace.root(x)
        if any(root is given.value for given in trace.inputs):
            raise Untraceable("it returns a view of an argument")
        if root in seen:
            raise Untraceable("two results share memory")
        seen.add(root)
        if not type_.layout.is_c:
            raise Untraceable("it returns an array whose axes are not in C order")
        if type_.rank == 0:
            raise Untraceable("it returns an array of rank 0")
    return Result("value", value=x)
