"""The forms of the compiler as plain data: region graphs, loop nests, interfaces.

In: objects made of the dataclasses of these forms, sizes, dtypes, constants. Out: a table, and objects again that are
equal (graph values: isomorphic, they compare by identity).

The table is flat: one record `[tag, field, ...]` per object, parts before wholes. A field is None, a bool, an int, a
float, a string or a byte string as it is, or `[n]`: the object of record n. So shared parts stay shared (expressions
of a fused chain would otherwise grow exponentially), nothing is nested, and no depth of the program is a depth of the
data. Decoding calls constructors of those classes and nothing else.

Sources of inputs (globals, cells) hold ids of this process; only their kind is written, and equal regions of two
processes give equal tables.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from tiercel.compiler import graph, interface
from tiercel.compiler.lower import Lowered
from tiercel.dtypes import DType, as_dtype, is_dtype
from tiercel.errors import TiercelError
from tiercel.loops import form
from tiercel.operators import types
from tiercel.operators.layout import Layout
from tiercel.shapes import Constraint, Facts, Range, Symbol
from tiercel.shapes.dims import Dim, Node, Sum, from_terms
from tiercel.shapes.evaluate import apply_node

__all__ = ["MAX_RECORDS", "TableWriter", "WireError", "from_table", "to_table"]

MAX_RECORDS: Final = 1 << 20

Table = list[list[Any]]


class WireError(TiercelError, ValueError):
    """Something that has no plain form, or plain data that describes nothing of ours."""


def _described() -> tuple[type, ...]:
    """Every dataclass of the forms, and the few that stand elsewhere."""
    found: list[type] = []
    for module in (form, graph, interface, types):
        for x in vars(module).values():
            if isinstance(x, type) and dataclasses.is_dataclass(x) and x.__module__ == module.__name__:
                found.append(x)
    return (*found, Layout, Constraint, Range, Lowered)


_CLASSES: Final = _described()
_FIELDS: Final = {cls: tuple(f.name for f in dataclasses.fields(cls) if f.init) for cls in _CLASSES}
_TAGS: Final = {cls: f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}" for cls in _CLASSES}
_BY_TAG: Final = {tag: cls for cls, tag in _TAGS.items()}
_PLAIN: Final = (type(None), bool, int, float, str, bytes)
_PLAIN_SET: Final = frozenset(_PLAIN)


def _getter(cls: type) -> Callable[[Any], tuple[Any, ...]]:
    names = _FIELDS[cls]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda x: tuple(getattr(x, n) for n in names)


_GETTERS: Final = {cls: _getter(cls) for cls in _CLASSES}
_SIMPLE: Final = {cls: (_TAGS[cls], _GETTERS[cls]) for cls in _CLASSES if "source" not in _FIELDS[cls]}
_SOURCE_AT: Final = {cls: _FIELDS[cls].index("source") for cls in (graph.Input, interface.InputSpec)}


def _parts(x: Any) -> tuple[str, tuple[Any, ...]]:
    """Tag and fields of an object."""
    cls = type(x)
    getter = _GETTERS.get(cls)
    if getter is not None:
        fields = getter(x)
        at = _SOURCE_AT.get(cls)
        if at is not None:
            fields = (*fields[:at], (fields[at][0], None), *fields[at + 1 :])
        return _TAGS[cls], fields
    if cls is tuple:
        return "tuple", x
    if cls is list:
        return "list", tuple(x)
    if isinstance(x, Dim):
        if isinstance(x, Symbol):
            return "symbol", (x.name, x.kind)
        if isinstance(x, Node):
            return "node", (x.op, *x.args)
        assert isinstance(x, Sum)
        return "sum", tuple(part for monomial, coefficient in x.terms for part in (coefficient, monomial))
    if isinstance(x, DType):
        return "dtype", (x.name,)
    if isinstance(x, Mapping):
        return "dict", tuple(part for pair in x.items() for part in pair)
    if cls is slice:
        return "slice", (x.start, x.stop, x.step)
    if cls is Facts:
        return "facts", x.constraints
    if cls is complex:
        return "complex", (x.real, x.imag)
    if x is Ellipsis:
        return "ellipsis", ()
    if (cls is type or cls.__module__.partition(".")[0] == "numpy") and is_dtype(x):
        return "dtype", (as_dtype(x).name,)
    raise WireError(f"a {cls.__module__}.{cls.__qualname__} has no plain form")


class TableWriter:
    """Writes objects into one table, one after the other: what is in it already is only referred to.

    Attributes:
        records: the table so far. What later objects add comes after it.
    """

    def __init__(self) -> None:
        self.records: Table = []
        self._known: dict[int, int] = {}
        self._parts: dict[int, tuple[str, tuple[Any, ...]]] = {}  # keeps the parts alive, so that ids stay theirs

    def add(self, root: Any) -> None:
        """Append an object and its parts.

        Raises:
            WireError: a part of it has no plain form.
        """
        table, known, fields_of = self.records, self._known, self._parts
        plain, simple = _PLAIN_SET, _SIMPLE
        stack = [] if root.__class__ in plain else [root]
        while stack:
            x = stack[-1]
            key = id(x)
            if key in known:
                stack.pop()
                continue
            found = fields_of.get(key)
            if found is None:
                described = simple.get(x.__class__)
                found = (described[0], described[1](x)) if described is not None else _parts(x)
                fields_of[key] = found
                waiting = len(stack)
                for part in found[1]:
                    if part.__class__ not in plain and id(part) not in known:
                        stack.append(part)
                if len(stack) > waiting:
                    stack[waiting:] = stack[: waiting - 1 : -1]
                    continue
            stack.pop()
            known[key] = len(table)
            record: list[Any] = [found[0]]
            for part in found[1]:
                record.append(part if part.__class__ in plain else [known[id(part)]])
            table.append(record)


def to_table(*roots: Any) -> tuple[Table, int]:
    """Objects as one table, in order: the records of the first, those of the second that are new, and so on.

    Returns:
        The table, whose last record is the tuple of the objects, and the number of records before that of the last
        object. The first so many do not depend on the last object.

    Raises:
        WireError: a part of them has no plain form.
    """
    writer = TableWriter()
    for root in roots[:-1]:
        writer.add(root)
    before_last = len(writer.records)
    for root in (*roots[-1:], roots):
        writer.add(root)
    return writer.records, before_last


def from_table(table: Any) -> Any:
    """The tuple of objects of a table.

    Raises:
        WireError: the table is none, a record names no class of ours, or a constructor refuses its fields.
    """
    if not isinstance(table, list) or not 0 < len(table) <= MAX_RECORDS:
        raise WireError("no table of records")
    made: list[Any] = []
    for number, record in enumerate(table):
        if not isinstance(record, list) or not record or type(record[0]) is not str:
            raise WireError(f"record {number} has no tag")
        fields = record[1:]
        for position, field in enumerate(fields):
            if type(field) is list:
                if len(field) != 1 or type(field[0]) is not int or not 0 <= field[0] < number:
                    raise WireError(f"record {number} refers to something that is not before it")
                fields[position] = made[field[0]]
            elif type(field) not in _PLAIN_SET:
                raise WireError(f"record {number} holds a {type(field).__name__}")
        try:
            made.append(_make(record[0], fields))
        except WireError:
            raise
        except RecursionError:
            raise WireError(f"record {number}: nested too deeply") from None
        except Exception as error:  # constructors refuse nonsense in many ways; all mean the same here
            raise WireError(f"record {number} ({record[0]}): {error}") from error
    return made[-1]


def _make(tag: str, fields: list[Any]) -> Any:
    cls = _BY_TAG.get(tag)
    if cls is not None:
        if len(fields) != len(_FIELDS[cls]):
            raise WireError(f"{tag} has {len(_FIELDS[cls])} fields, {len(fields)} given")
        return cls(*fields)
    match tag:
        case "tuple":
            return tuple(fields)
        case "list":
            return fields
        case "dict":
            return dict(zip(fields[::2], fields[1::2], strict=True))
        case "symbol":
            return Symbol(*fields)
        case "node":
            return apply_node(fields[0], fields[1:])
        case "sum":
            terms: dict[Any, int] = {}
            for coefficient, monomial in zip(fields[::2], fields[1::2], strict=True):
                if type(coefficient) is not int or not coefficient:
                    raise WireError("a coefficient that is no int")
                if type(monomial) is not tuple or not all(isinstance(a, Symbol | Node) for a in monomial):
                    raise WireError("a monomial that is no product of sizes")
                terms[monomial] = coefficient
            return from_terms(terms)
        case "dtype":
            return as_dtype(fields[0])
        case "slice":
            return slice(*fields)
        case "facts":
            return Facts(fields)
        case "complex":
            return complex(*fields)
        case "ellipsis":
            return ...
    raise WireError(f"unknown record {tag!r}")
