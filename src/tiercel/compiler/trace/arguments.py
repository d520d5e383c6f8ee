"""Arguments and results of a region.

In: the values of a call, or the abstract value returned. Out: inputs with their sources and conditions, or the recipe
of the result.

Invariants: only types, sizes to assume and identities are taken from the values; a result that may share memory with
an argument or another result is refused unless it surely is that very array or a view of it, or is an argument itself
or a new array, and the steps say which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tiercel.compiler.abstract import Abstract, Known, ListRef, Mapping, RaggedRef, Source, Tuple, Unknown, Untraceable
from tiercel.compiler.environment import is_plain
from tiercel.compiler.graph import Graph, Input, Result, Value, Write
from tiercel.compiler.trace.identity import Identities
from tiercel.compiler.trace.objects import is_named_tuple, object_condition, tensor_type, unwrapped
from tiercel.compiler.trace.ragged import ragged_argument
from tiercel.compiler.trace.state import MAX_UNROLL, Trace
from tiercel.compiler.trace.walk import Frame
from tiercel.dtypes import as_dtype, is_dtype
from tiercel.operators.types import ArrayType, NpScalarType, PyBoolType, PyFloatType, PyIntType, Type
from tiercel.values.ragged import Ragged, RaggedOf


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
        frame.add_input(made, source, value)
        return made
    if unwrapped(value) is not None:
        raise Untraceable(f"the argument {name} has a dtype that is not compiled")
    if kind is Ragged:
        frame.environment.require(source, "class", Ragged)
        flat = abstract_argument(frame, value.values, name, ("attribute", (source, "values")))
        return ragged_argument(frame, value, flat, name, source)
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
    frame.environment.require(source, *object_condition(value))
    return Known(value, source)


def signature_text(inputs: Sequence[Input]) -> str:
    """`(float32[?, 128], float32[128, 256])`: what the region is keyed by."""
    parts = []
    for given in inputs:
        type_ = given.value.type
        if isinstance(type_, ArrayType):
            dims = ", ".join(str(d) if isinstance(d, int) else "?" for d in type_.shape)
            layout = "" if type_.layout.is_c else "{F}" if type_.layout.is_f else "{strided}"
            parts.append(f"{type_.dtype.name}[{dims}]{layout}")
        else:
            parts.append(str(type_).partition("(")[0])
    return f"({', '.join(parts)})"


@dataclass(slots=True)
class Seen:
    """The results before: lists, arrays, and the owners of all their memory."""

    lists: set[int] = field(default_factory=set)
    arrays: set[Value] = field(default_factory=set)
    owners: set[Value] = field(default_factory=set)
    either: list[Value] = field(default_factory=list)


def result_of(frame: Frame, x: Abstract, seen: Seen) -> Result:
    """The recipe of what is returned."""
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
            return Result("tuple", items=tuple(result_of(frame, item, seen) for item in x.items), wrap=wrap)
        case ListRef():
            if frame.state.heap[x.key].outside:
                raise Untraceable("it returns a list that is an argument")
            if x.key in seen.lists:
                raise Untraceable("it returns one list twice")
            seen.lists.add(x.key)
            return Result("list", items=tuple(result_of(frame, item, seen) for item in frame.items(x)))
        case RaggedRef():
            if x.passed:
                raise Untraceable("it returns a Ragged that is an argument")
            frame.environment.classes.append(RaggedOf)
            number = len(frame.environment.classes) - 1
            offsets = Result("input", index=frame.trace.input_of(x.offsets))
            return Result("tuple", items=(result_of(frame, x.values, seen), offsets), wrap=number)
        case Value():
            return _value_result(frame, x, seen)
    raise Untraceable(f"a result that is a {type(x.value if isinstance(x, Known) else x).__name__.lower()}")


def _value_result(frame: Frame, x: Value, seen: Seen) -> Result:
    trace, type_ = frame.trace, x.type
    position = trace.input_of(x)
    if position is not None and not isinstance(type_, PyIntType | PyBoolType | PyFloatType):
        return Result("input", index=position)
    if isinstance(type_, PyBoolType | PyFloatType) and type_.value is not None:
        return Result("constant", constant=type_.value)
    if isinstance(type_, ArrayType):
        return _array_result(trace, x, seen)
    return Result("value", value=x)


def _array_result(trace: Trace, x: Value, seen: Seen) -> Result:
    if x in trace.borrowed:
        raise Untraceable("it returns what NumPy makes as a view of another array")
    frame = trace.frames[0]
    root = x
    while root in trace.bases and trace.input_of(root) is None:
        root = trace.bases[root]
    number = trace.input_of(root)
    if root is not x and number is not None:
        return Result("view", value=x, index=number)
    owners = trace.owners_of(root)
    entered = trace.entered.get(root)
    counted = entered is not None and not isinstance(entered.passes, Value)
    if (
        root not in seen.arrays
        and entered is not None
        and owners & ((trace.outside if counted else set()) | seen.owners)
    ):
        frame.require_passes(entered.passes)
        owners = entered.owners
    if owners & trace.outside:
        if root in owners and root is x:
            return _either(trace, x, owners, seen)
        raise Untraceable("it returns what may be a view of an argument")
    if root not in seen.arrays and owners & seen.owners:
        raise Untraceable("two results may share memory")
    seen.owners |= owners
    seen.arrays.add(root)
    if root not in owners:  # running decides whether it is a view, of an array that nobody else is given
        if root not in trace.rebased:
            raise Untraceable("a result of which only running decides whether it is a view")
        return Result("view", value=x, base=root)
    if root is not x or getattr(x.type, "wrapper", "") != "Tensor":  # a new Tensor's axes may lie in any order
        _require_known_order(root)
    if root is x and x not in trace.rebased:
        return Result("value", value=x)
    return Result("view", value=x, base=root)


def _either(trace: Trace, x: Value, owners: frozenset[Value], seen: Seen) -> Result:
    """What is an argument itself, or a new array: `named` finds out what tells which."""
    for number, given in enumerate(trace.inputs):
        if given.value in owners and trace.content(number) is not given.value:
            raise Untraceable("it returns what may be an argument that is written")
    own = owners - trace.outside
    if x not in seen.arrays and own & seen.owners:
        raise Untraceable("two results may share memory")
    _require_known_order(x)
    seen.arrays.add(x)
    seen.owners |= own
    seen.either.append(x)
    return Result("either", value=x)


def named(frame: Frame, graph: Graph, result: Result, seen: Seen) -> tuple[Graph, Result]:
    """The steps and the result with what tells which object a result is.

    Raises:
        Untraceable: one of the objects may be a view.
    """
    trace = frame.trace
    if not seen.either:
        return graph, result
    inputs = {given.value: number for number, given in enumerate(trace.inputs)}

    def fresh(value: Value) -> bool:
        owners = trace.owners_of(value)
        return value in owners and not owners & trace.outside and value not in trace.rebased | trace.borrowed

    identities = Identities(graph, inputs, fresh, trace.value)
    tags = {value: identities.of(value) for value in dict.fromkeys(seen.either)}

    def tagged(x: Result) -> Result:
        if x.what != "either" or x.value is None:
            return replace(x, items=tuple(map(tagged, x.items)))
        owners = trace.owners_of(x.value)
        choices = tuple(number for value, number in inputs.items() if value in owners)
        return replace(x, tag=tags[x.value], choices=choices)

    return identities.rebuilt(), tagged(result)


def _require_known_order(x: Value) -> None:
    if isinstance(x.type, ArrayType) and not x.type.layout.is_dense:
        raise Untraceable("it returns an array the order of whose axes depends on strides or sizes")


def writes_of(frame: Frame) -> tuple[Write, ...]:
    """The inputs that have another content at the end.

    Raises:
        Untraceable: what one holds cannot be known.
    """
    trace, found = frame.trace, []
    for number, given in enumerate(trace.inputs):
        held = trace.content(number)
        if held is given.value:
            continue
        if not isinstance(held, Value):
            reason = held.reason if isinstance(held, Unknown) else "of a kind that is not known"
            raise Untraceable(f"an argument is written in an arm or loop that may not run: {reason}")
        found.append(Write(number, held, held in trace.whole))
    return tuple(found)
