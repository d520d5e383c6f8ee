"""The frame of a walk without its instructions: operands, constants, values of the environment, nodes, lists.

In: the bytecode of one function, its constants and environment. Out: `FrameCore`, on which every subject of the walk
is built in a class of its own (writes, operators, views, scalars, calls, branches, loops, instructions), each knowing
only those before it.

Invariants: whatever is read from the environment leaves a condition or is a hidden input; a node carries the
instruction of the outermost function, because that is where the interpreter goes on.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Mapping_
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tiercel.bytecode.instructions import Instruction
from tiercel.bytecode.program import UNBOUND, Function, ObjectRef
from tiercel.compiler.abstract import (
    Abstract,
    Known,
    ListRef,
    ListState,
    Slice,
    Source,
    Tuple,
    Unknown,
    Untraceable,
    static,
)
from tiercel.compiler.environment import Environment, is_plain
from tiercel.compiler.flow import Flow, flow_of
from tiercel.compiler.graph import Guard, Input, Node, Value
from tiercel.compiler.trace.objects import is_frozen, object_condition, tensor_type, unwrapped
from tiercel.compiler.trace.state import BOOL, MAX_UNROLL, Condition, Outcome, State, Trace
from tiercel.dtypes import DType, as_dtype, is_dtype
from tiercel.errors import TiercelError
from tiercel.operators.types import ArrayType, NpScalarType, PyBoolType, PyFloatType, PyIntType, Type
from tiercel.shapes import Dim, DimLike, Facts, Range, evaluate


@dataclass(frozen=True, slots=True)
class Mark:
    """What `FrameCore.return_to` brings back."""

    state: State
    facts: Facts
    frames: int
    depth: int
    loops: list[tuple[int, int]]
    loop_depth: int
    nesting: int
    unrolled: list[tuple[list[Abstract], int, int, Instruction, int]]
    needed: list[DimLike | Value]


COMPARED: Final[Mapping_[str, Callable[[int, int], bool]]] = {
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt,
    "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge,
}  # fmt: skip
"""Comparisons of sizes."""
OPPOSITE: Final = {
    "equal": "not_equal", "not_equal": "equal", "less": "greater_equal", "greater_equal": "less",
    "greater": "less_equal", "less_equal": "greater",
}  # fmt: skip


class FrameCore:
    """The walk of one function: its registers, and the nodes it adds to the trace.

    The classes built on this one add a subject each; `walk.Frame` is the whole.
    """

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
        # objects that the program names are those it was given
        self.constants = [c if not isinstance(c, ObjectRef) or c.value is None else c.value for c in constants]
        self.environment = environment
        self.flow: Flow = flow_of(function)
        self.origin = origin  # of the call in the outermost function, None for that itself
        self.state = State({}, {})
        self.loops: list[tuple[int, int]] = []  # (start, end) of the while loops whose test is being looked for
        self.loop_depth = 0
        self.needed: list[DimLike | Value] = []  # loops inside a loop or arm that must have run
        self.nesting = 0  # loops and arms of branches around the instruction, which may not run
        self.unrolled: list[tuple[list[Abstract], int, int, Instruction, int]] = []  # passes being walked
        self.index = 0

    def walk(self, start: int, stops: frozenset[int]) -> Outcome:
        """Follow control from `start`: see `walk.Frame`."""
        raise NotImplementedError

    @property
    def registers(self) -> dict[int, Abstract]:
        """What the registers hold."""
        return self.state.registers

    def mark(self) -> Mark:
        """Where the walk is, to come back to after an attempt that failed."""
        trace = self.trace
        around = self.loops, self.loop_depth, self.nesting, list(self.unrolled), list(self.needed)
        return Mark(self.state.copy(), trace.facts, len(trace.frames), trace.depth, *around)

    def return_to(self, mark: Mark) -> None:
        """Forget what was walked since the mark; steps go where the caller collects them.

        Sizes that were wished to agree stay: what failed may be possible once they are assumed to.
        """
        trace = self.trace
        self.state = mark.state.copy()
        del trace.frames[mark.frames :]
        trace.depth, trace.facts = mark.depth, mark.facts
        self.loops, self.loop_depth, self.nesting = mark.loops, mark.loop_depth, mark.nesting
        self.unrolled, self.needed = list(mark.unrolled), list(mark.needed)

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
            self.environment.require(source, *object_condition(value))
        return Known(value, source)

    def hidden_input(self, value: Any, source: Source) -> Abstract:
        """A tensor of the environment as an input of the region."""
        trace = self.trace
        known = trace.by_source.get(source)
        if known is not None:
            return trace.content(known)
        type_ = tensor_type(value, f"p{len(trace.inputs)}", trace)
        if not isinstance(type_, ArrayType):
            raise Untraceable(f"a {type(value).__name__} from the environment that is no plain array")
        made = trace.value(type_, f"p{len(trace.inputs)}")
        trace.by_source[source] = self.add_input(made, source, value)
        return made

    def add_input(self, made: Value, source: Source, value: Any) -> int:
        """An array as an input of the region; its number."""
        trace, number = self.trace, len(self.trace.inputs)
        array = unwrapped(value)
        trace.inputs.append(Input(made, source, frozen=array is not None and is_frozen(value)))
        if array is not None and not array.flags.writeable:
            trace.read_only.add(number)
        return number

    def index_array(self, x: Value, key: tuple[Any, ...]) -> Value:
        """Basic indexing: see `views.Views`."""
        raise NotImplementedError

    def node(self, operator: str, inputs: Sequence[Value], attributes: dict[str, Any], type_: Type) -> Value:
        """Add a node with one result."""
        output = self.trace.value(type_)
        self.trace.add(Node(operator, tuple(inputs), attributes, (output,), self.site()))
        return output

    def scalar_node(self, operator: str, *inputs: Value, dtype: DType = BOOL) -> Value:
        """A node on scalars whose result is a NumPy scalar of `dtype` (for conditions)."""
        return self.node(operator, inputs, {}, NpScalarType(dtype))

    def boolean(self, x: bool) -> Value:
        """A Python bool."""
        return self.trace.value(PyBoolType(x))

    def require_passes(self, passes: DimLike | Value) -> None:
        """Leave unless a loop has run: `passes` is its trip count, or whether it ran."""
        if not isinstance(passes, Value):
            passes = self.scalar_node("greater", self.size_value(passes), self.number(0))
        self.guard(passes, "a loop that does not run leaves an argument as it is")

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

    def require_at_least(self, least: int, x: DimLike) -> bool:
        """Is a size known to be at least so much? If it is for the arguments at hand, it is guarded and then known."""
        trace = self.trace
        known = trace.facts.less_equal(least, x)
        if known is not None:
            return known
        try:
            size = evaluate(x, trace.sample)
        except (TiercelError, ZeroDivisionError):
            return False  # a size that only running decides
        if size < least:
            return False
        self.guard(self.scalar_node("greater_equal", self.size_value(x), self.number(least)), f"a size below {least}")
        trace.facts.set_range(x, Range(least, None))
        return True

    def size_condition(self, name: str, a: DimLike, b: DimLike, values: Sequence[Value] = ()) -> Value:
        """A comparison of sizes (`values`, if they are there) as a bool, and what it is for the arguments at hand."""
        made = self.node(name, values or (self.size_value(a), self.size_value(b)), {}, PyBoolType())
        sample = self.trace.sample
        try:
            truth = COMPARED[name](evaluate(a, sample), evaluate(b, sample))
        except (TiercelError, ZeroDivisionError):
            return made  # it depends on a loop's counter, or on data
        self.trace.conditions[made] = Condition(truth, ((name, a, b),))
        return made

    def both(self, x: Value, y: Value) -> Value:
        """Two conditions at once."""
        made = self.node("logical_and", (x, y), {}, NpScalarType(BOOL))
        one, two = self.trace.conditions.get(x), self.trace.conditions.get(y)
        if one is not None and two is not None:
            self.trace.conditions[made] = Condition(one.truth and two.truth, one.parts + two.parts)
        return made

    def negated(self, x: Value) -> Value:
        """The opposite."""
        made = self.node("logical_not", (x,), {}, NpScalarType(BOOL))
        known = self.trace.conditions.get(x)
        if known is not None:
            parts = [(OPPOSITE[name], a, b) for name, a, b in known.parts]
            self.trace.conditions[made] = Condition(not known.truth, tuple(parts) if len(parts) == 1 else ())
        return made

    def learn(self, guarded: Value) -> None:
        """What a condition that has been guarded says of sizes."""
        condition = self.trace.conditions.get(guarded)
        for name, a, b in condition.parts if condition is not None and condition.truth else ():
            difference = a - b
            within = {
                "equal": Range(0, 0), "less": Range(None, -1), "less_equal": Range(None, 0),
                "greater": Range(1, None), "greater_equal": Range(0, None),
            }.get(name)  # fmt: skip
            if within is not None and isinstance(difference, Dim):
                self.trace.facts.set_range(difference, within)

    def size_value(self, dim: DimLike) -> Value:
        """A size as a Python int."""
        return self.trace.value(PyIntType(dim))

    def static(self, x: Abstract) -> Any:
        """The Python value of something that must be known."""
        if isinstance(x, ListRef):
            return [self.static(item) for item in self.items(x)]
        if isinstance(x, Tuple):
            return tuple(self.static(item) for item in x.items)
        if isinstance(x, Known):
            self.same_object(x)
        return static(x)

    def same_object(self, x: Known) -> None:
        """It matters which object this is, not only of what class."""
        if object_condition(x.value)[0] == "class":
            self.environment.require(x.source, "identity", x.value)

    def full_key(self, parts: Sequence[Abstract]) -> tuple[Any, ...]:
        """The parts of a basic index, with an Ellipsis."""
        key = tuple(self.key_part(p) for p in parts)
        return key if any(k is Ellipsis for k in key) else (*key, Ellipsis)

    def key_part(self, part: Abstract) -> Any:
        """A part of an index: an int, a size, an int Value, a slice, None or Ellipsis."""
        if isinstance(part, Slice):
            start, stop, step = (self.bound(p) for p in (part.start, part.stop, part.step))
            return slice(self.signed(start), self.signed(stop), step)
        if isinstance(part, Known) and (part.value is None or part.value is Ellipsis):
            return part.value
        if isinstance(part, Value):
            type_ = part.type
            if isinstance(type_, PyIntType):
                return part if type_.value is None else type_.value
            if isinstance(type_, NpScalarType) and type_.dtype.kind in "iu":
                return part
        raise Untraceable("an index by an array or mask")

    def signed(self, bound: Any) -> Any:
        """A bound of a slice; from which end it counts is assumed to stay what it is for the arguments at hand."""
        trace = self.trace
        if isinstance(bound, Dim) and trace.speculate and trace.facts.less_equal(0, bound) is None:
            self.require_at_least(0, bound) or self.require_at_least(1, -bound)
        return bound

    def bound(self, part: Abstract) -> Any:
        """A bound of a slice: None, an int or a size."""
        if isinstance(part, Known) and part.value is None:
            return None
        value = self.static(part)
        if not isinstance(value, int | Dim):
            raise Untraceable("a slice bound that is no int")
        return value

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
            if state.lost:
                raise Untraceable(state.lost)
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


def same_key(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Do two keys surely select the same?"""
    return len(a) == len(b) and all(x is y if isinstance(x, Value) else x == y for x, y in zip(a, b, strict=True))
