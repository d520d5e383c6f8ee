"""Abstract values: what a register is known to hold while a function is traced for one Signature.

A number or array is a graph `Value` with its type. Everything else that Python code handles on the way to arrays is
kept as structure: tuples, lists, slices, ranges, known objects. `Unknown` stands for what a trace cannot follow; using
it ends the trace with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any, TypeAlias

from tiercel.compiler.graph import Value
from tiercel.operators.types import (
    ArrayType,
    DTypeType,
    EllipsisType,
    ListType,
    NoneType,
    ObjectType,
    PyBoolType,
    PyComplexType,
    PyFloatType,
    PyIntType,
    SliceType,
    StrType,
    TupleType,
    Type,
)
from tiercel.shapes import DimLike

Source: TypeAlias = tuple[str, Any]
"""Where a value of the environment comes from: ("register", r), ("global", name), ("cell", i), ("attribute", (source,
name)), ("item", (source, key)), ("constant", None)."""


class Untraceable(Exception):
    """The trace cannot go on.

    Attributes:
        reason: for people.
        index: the instruction in the function being traced.
        sized: whether the trace met conditions on sizes, so that another may go another way.
    """

    sized = False

    def __init__(self, reason: str, index: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.index = index


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A Python object that is known: a module, function, class, string, None. `source` says where it was read.

    Two are equal if they hold the same object, or equal strings: `==` of other objects is their own code.
    """

    value: Any
    source: Source = ("constant", None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Known):
            return NotImplemented
        return self.value is other.value or (type(self.value) is type(other.value) is str and self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.value) if type(self.value) is str else id(self.value)


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple of abstract values; `cls` is the named tuple's class where it is one."""

    items: tuple[Abstract, ...]
    cls: type | None = None


@dataclass(frozen=True, slots=True)
class RaggedRef:
    """A `tc.Ragged`: its flat array and its offsets; `passed` if it is the very object that is an argument."""

    values: Value
    offsets: Value
    passed: bool = False


@dataclass(frozen=True, slots=True)
class ListRef:
    """A list, by identity: its content is in the heap of the trace, because other registers may hold the same list."""

    key: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """A dict with known keys; never changed by a trace."""

    items: tuple[tuple[Any, Abstract], ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice object."""

    start: Abstract
    stop: Abstract
    step: Abstract


@dataclass(frozen=True, slots=True)
class Range:
    """`range(start, stop, step)`."""

    start: Abstract
    stop: Abstract
    step: int


@dataclass(frozen=True, slots=True)
class Iterable:
    """What a loop goes over: `length` passes, element `at(index)` in each. `index` is an int Value of the graph.

    `holds` is what `at` looks into: when an array among it is written, the iterable is lost.
    """

    length: DimLike
    at: Callable[[Value], Abstract]
    holds: tuple[Abstract, ...] = ()


@dataclass(frozen=True, slots=True)
class Method:
    """An attribute of an array or list that is called later."""

    receiver: Abstract
    name: str


@dataclass(frozen=True, slots=True)
class CellRef:
    """A cell that the trace made, by identity: its content is in the heap, as that of a list."""

    key: int


@dataclass(frozen=True, slots=True)
class Closure:
    """A function that the trace made: code, defaults of positional and of keyword parameters, cells."""

    code: CodeType
    name: str
    defaults: tuple[Abstract, ...]
    kwdefaults: tuple[tuple[Any, Abstract], ...]
    cells: tuple[Abstract, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something a trace cannot follow, and why."""

    reason: str


Abstract: TypeAlias = (
    Value
    | Known
    | Tuple
    | RaggedRef
    | ListRef
    | Mapping
    | Slice
    | Range
    | Iterable
    | Method
    | CellRef
    | Closure
    | Unknown
)


@dataclass(slots=True)
class ListState:
    """The content of a list.

    `items` while it is known; in a loop that appends to it `collecting` gathers one element per pass; afterwards
    `collected` is the array of all elements along a new first axis, `length` their number; `held` are the owners of
    the elements of passes that are no longer told apart. `lost` says why the content is no longer known.
    """

    items: list[Abstract] = field(default_factory=list)
    collecting: list[Abstract] | None = None
    collected: Value | None = None
    length: DimLike = 0
    held: frozenset[Value] = frozenset()
    lost: str = ""
    outside: bool = False  # an argument: it may be read, but is somebody else's to change

    def copy(self) -> ListState:
        """An independent state."""
        gathered = None if self.collecting is None else list(self.collecting)
        return replace(self, items=list(self.items), collecting=gathered)


def static(x: Abstract) -> Any:
    """The Python value an abstract value stands for; sizes stay `Dim`.

    Raises:
        Untraceable: it is not known before the code runs.
    """
    match x:
        case Known():
            return x.value
        case Value():
            type_ = x.type
            if isinstance(type_, PyIntType | PyFloatType | PyBoolType | PyComplexType) and type_.value is not None:
                return type_.value
            raise Untraceable(f"a value that is only known when the code runs (a {type_})")
        case Tuple():
            return tuple(static(item) for item in x.items)
        case Slice():
            return slice(static(x.start), static(x.stop), static(x.step))
        case Mapping():
            return {key: static(item) for key, item in x.items}
        case Unknown():
            raise Untraceable(x.reason)
    raise Untraceable(f"a {type(x).__name__.lower()} where a constant is needed")


def type_of_abstract(x: Abstract, heap: dict[int, ListState]) -> Type:
    """The type the operator table sees."""
    match x:
        case Value():
            return x.type
        case Known():
            return _known_type(x.value)
        case Tuple():
            return TupleType(tuple(type_of_abstract(item, heap) for item in x.items))
        case ListRef():
            state = heap[x.key]
            if state.lost:
                raise Untraceable(state.lost)
            if state.collected is not None or state.collecting is not None:
                raise Untraceable("a list whose length changes from call to call")
            return ListType(tuple(type_of_abstract(item, heap) for item in state.items))
        case Slice():
            return SliceType(*(type_of_abstract(p, heap) for p in (x.start, x.stop, x.step)))
        case Unknown():
            raise Untraceable(x.reason)
    raise Untraceable(f"a {type(x).__name__.lower()} as an operand")


def _known_type(value: Any) -> Type:
    from tiercel.operators.types import type_of

    if value is None:
        return NoneType()
    if value is Ellipsis:
        return EllipsisType()
    if isinstance(value, str):
        return StrType(value)
    found = type_of(value)
    return found if isinstance(found, DTypeType | TupleType) else ObjectType(value)


def is_array(x: Abstract) -> bool:
    """An array (or NumPy scalar) of the graph?"""
    return isinstance(x, Value) and isinstance(x.type, ArrayType)
