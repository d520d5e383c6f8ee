"""What one look at a live-in value takes down: its kind as a hashable key, its sizes as a list of ints.

In: a run-time value. Out: a *key*, which is equal for values of one Signature, and the sizes that may change within it,
appended to a list in a fixed order. Everything else (texts, types with symbols) is made from the key later, away from
the call path; `slots` gives the order of the sizes.

Invariant: `scan` looks and does not touch. It reads fields of exact builtin types, ndarrays, Tensors, NumPy scalars and
dataclasses' own dictionaries, so no code of the user's runs, and it keeps no value alive. What is too deep or too long
is an object of its class: a profile of bounded size needs no more.

Keys are tuples that start with a word, or a class::

    ("array", wrapper, dtype, rank, layout)   sizes: the shape      wrapper: ndarray, Tensor, torch
    ("scalar", dtype)                          none                  a NumPy scalar
    ("int",)                                   the value
    ("str", text or None)                      none
    ("tuple", keys) ("items", keys)            of the items          items: a list of different things
    ("list", key)                              the length            a list of things of one key
    ("dict", names, keys)                      of the values
    ("fields", class, names, keys)             of the fields         NamedTuples and dataclasses
    class                                      none                  anything else
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from tiercel.dtypes import as_dtype, is_dtype
from tiercel.operators.layout import Layout
from tiercel.operators.types import (
    ArrayType,
    DictType,
    EllipsisType,
    ListType,
    NoneType,
    NpScalarType,
    ObjectType,
    PyBoolType,
    PyComplexType,
    PyFloatType,
    PyIntType,
    StrType,
    TupleType,
    Type,
)
from tiercel.shapes import DimLike
from tiercel.values import Tensor

__all__ = ["INT_LIMIT", "MAX_SLOTS", "Key", "Slot", "key_text", "key_type", "scan", "slots"]

# A class or a tuple, as above: hashable.
Key: TypeAlias = Any

# Sizes of one sample; what comes after is an object without sizes.
MAX_SLOTS: Final = 64
_MAX_DEPTH: Final = 4
_MAX_ITEMS: Final = 16
_MAX_TEXT: Final = 32
# Larger Python ints count as "at least this": sizes are stored in 64 bits.
INT_LIMIT: Final = (1 << 62) - 1

_PLAIN: Final = frozenset({float, bool, complex, type(None), type(Ellipsis)})
_ndarray: Final = np.ndarray


class Slot(NamedTuple):
    """Where a size of a sample comes from: axis of an array, length of a list, or value of an int (axis None)."""

    path: str
    axis: int | None
    kind: str


def scan(value: Any, sizes: list[int], depth: int = 0) -> Key:
    """Return the key of a value and append its sizes.

    Args:
        value: anything.
        sizes: gets the sizes in the order of `slots`.
        depth: how many containers are around the value.
    """
    kind = type(value)
    if kind is _ndarray:
        return _array("ndarray", value, sizes, kind)
    if kind in _PLAIN:
        return kind
    if kind is int:
        if len(sizes) >= MAX_SLOTS:
            return int
        sizes.append(value if -INT_LIMIT <= value <= INT_LIMIT else INT_LIMIT if value > 0 else -INT_LIMIT)
        return ("int",)
    if Tensor in kind.__mro__:
        return _array("Tensor", value._array, sizes, kind)
    if kind is str:
        return ("str", value if len(value) <= _MAX_TEXT else None)
    if kind is tuple or kind is list or kind is dict:
        return kind if depth >= _MAX_DEPTH else _CONTAINERS[kind](value, sizes, depth + 1)
    if np.generic in kind.__mro__:
        return ("scalar", value.dtype) if is_dtype(kind) else kind
    if depth < _MAX_DEPTH:
        if tuple in kind.__mro__ and isinstance(names := kind.__dict__.get("_fields"), tuple):
            return _fields(kind, names, tuple.__iter__(value), sizes, depth)
        if "__dataclass_fields__" in kind.__dict__ and type(kind.__dict__.get("__dict__")) is _DICT_DESCRIPTOR:
            namespace = object.__getattribute__(value, "__dict__")
            names = tuple(n for n in kind.__dict__["__dataclass_fields__"] if n in namespace)
            return _fields(kind, names, (namespace[n] for n in names), sizes, depth)
    if kind.__module__.partition(".")[0] == "torch" and any(base.__name__ == "Tensor" for base in kind.__mro__):
        return _torch(value, sizes, kind)
    return kind


class _WithDict:
    pass


_DICT_DESCRIPTOR: Final = type(_WithDict.__dict__["__dict__"])


def _array(wrapper: str, array: np.ndarray[Any, Any], sizes: list[int], kind: type) -> Key:
    shape = array.shape
    if len(sizes) + len(shape) > MAX_SLOTS:
        return kind
    sizes += shape
    flags = array.flags
    layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "strided"
    return ("array", wrapper, array.dtype, len(shape), layout)


def _torch(value: Any, sizes: list[int], kind: type) -> Key:
    shape = tuple(value.shape)
    if len(sizes) + len(shape) > MAX_SLOTS:
        return kind
    sizes += shape
    layout = "C" if value.is_contiguous() else "strided"
    return ("array", "torch", str(value.dtype).removeprefix("torch."), len(shape), layout)


def _tuple(value: tuple[Any, ...], sizes: list[int], depth: int) -> Key:
    if len(value) > _MAX_ITEMS:
        return tuple
    return ("tuple", tuple(scan(item, sizes, depth) for item in value))


def _list(value: list[Any], sizes: list[int], depth: int) -> Key:
    # A copy, because another thread may change it; no longer than what is looked at.
    head = value[: _MAX_ITEMS + 1]
    keys = [scan(item, [], depth) for item in head]
    if not keys or all(key == keys[0] for key in keys):
        if len(sizes) >= MAX_SLOTS:
            return list
        sizes.append(len(value))
        return ("list", keys[0] if keys else None)
    if len(head) > _MAX_ITEMS:
        return list
    return ("items", tuple(scan(item, sizes, depth) for item in head))


def _dict(value: dict[Any, Any], sizes: list[int], depth: int) -> Key:
    if len(value) > _MAX_ITEMS:
        return dict
    items = list(value.items())
    if not all(type(name) in (str, int) for name, _ in items):
        return dict
    return ("dict", tuple(n for n, _ in items), tuple(scan(item, sizes, depth) for _, item in items))


def _fields(kind: type, names: tuple[str, ...], values: Iterator[Any], sizes: list[int], depth: int) -> Key:
    if len(names) > _MAX_ITEMS:
        return kind
    return ("fields", kind, names, tuple(scan(item, sizes, depth + 1) for item in values))


_CONTAINERS: Final[dict[type, Callable[[Any, list[int], int], Key]]] = {tuple: _tuple, list: _list, dict: _dict}


def _children(key: Any, path: str) -> Iterator[tuple[Key, str]]:
    """The parts of a key whose sizes stand in the same list, with their paths."""
    word = key[0] if isinstance(key, tuple) else None
    if word in ("tuple", "items"):
        yield from ((k, f"{path}[{i}]") for i, k in enumerate(key[1]))
    elif word == "dict":
        yield from ((k, f"{path}[{n!r}]") for n, k in zip(key[1], key[2], strict=True))
    elif word == "fields":
        yield from ((k, f"{path}.{n}") for n, k in zip(key[2], key[3], strict=True))


def slots(key: Key, path: str) -> list[Slot]:
    """Return what the sizes of a key are, in the order in which `scan` appends them."""
    word = key[0] if isinstance(key, tuple) else None
    if word == "array":
        return [Slot(path, axis, "size") for axis in range(key[3])]
    if word == "int":
        return [Slot(path, None, "value")]
    if word == "list":
        return [Slot(path, None, "length")]
    return [slot for child, where in _children(key, path) for slot in slots(child, where)]


def key_text(key: Any, dims: Iterator[str]) -> str:
    """Return a key as people read it, such as `float32[16..64, 128]{C}` or `(int 3, Tensor float32[?]{C})`.

    Args:
        key: a key of `scan`.
        dims: for each of its slots what is written there.
    """
    if not isinstance(key, tuple):
        return "None" if key is type(None) else str(getattr(key, "__name__", key))
    match key[0]:
        case "array":
            _, wrapper, dtype, rank, layout = key
            prefix = "" if wrapper == "ndarray" else f"{wrapper} "
            name = dtype if isinstance(dtype, str) else _dtype_name(dtype)
            return f"{prefix}{name}[{', '.join(next(dims) for _ in range(rank))}]{{{layout}}}"
        case "int":
            value = next(dims)
            return "int" if value == "?" else f"int {value}"
        case "scalar":
            return f"np.{_dtype_name(key[1])}"
        case "str":
            return "str" if key[1] is None else repr(key[1])
        case "tuple":
            inside = [key_text(k, dims) for k in key[1]]
            return f"({', '.join(inside)}{',' if len(inside) == 1 else ''})"
        case "items":
            return f"[{', '.join(key_text(k, dims) for k in key[1])}]"
        case "list":
            length = next(dims)
            element = "" if key[1] is None else f" of {key_text(key[1], _unknown())}"
            return f"list[{length}]{element}"
        case "dict":
            parts = [f"{n!r}: {key_text(k, dims)}" for n, k in zip(key[1], key[2], strict=True)]
            return f"{{{', '.join(parts)}}}"
        case _:
            _, cls, names, keys = key
            parts = [f"{n}={key_text(k, dims)}" for n, k in zip(names, keys, strict=True)]
            return f"{cls.__name__}({', '.join(parts)})"


def _dtype_name(dtype: np.dtype[Any]) -> str:
    return as_dtype(dtype).name if is_dtype(dtype) else str(dtype)


def _unknown() -> Iterator[str]:
    while True:
        yield "?"


_PLAIN_TYPES: Final[dict[Any, Callable[[], Type]]] = {
    float: PyFloatType,
    bool: PyBoolType,
    complex: PyComplexType,
    type(None): NoneType,
    type(Ellipsis): EllipsisType,
    int: PyIntType,
}


def key_type(key: Any, dims: Iterator[DimLike]) -> Type:
    """Return a key as a type of typing.

    Args:
        key: a key of `scan`.
        dims: for each of its slots the size or symbol that stands for it.
    """
    if not isinstance(key, tuple):
        plain = _PLAIN_TYPES.get(key)
        return ObjectType() if plain is None else plain()
    match key[0]:
        case "array":
            _, wrapper, dtype, rank, layout = key
            shape = tuple(next(dims) for _ in range(rank))
            if not is_dtype(dtype):
                return ObjectType()
            order = Layout.c(rank) if layout == "C" else Layout.f(rank) if layout == "F" else Layout.unknown()
            return ArrayType(as_dtype(dtype), shape, order, wrapper=wrapper)
        case "int":
            return PyIntType(next(dims))
        case "scalar":
            return NpScalarType(as_dtype(key[1]))
        case "str":
            return StrType(key[1])
        case "tuple":
            return TupleType(tuple(key_type(k, dims) for k in key[1]))
        case "items":
            return ListType(tuple(key_type(k, dims) for k in key[1]))
        case "list":
            length = next(dims)
            # The sizes of the elements are not taken down, and an array type needs some.
            element = None if key[1] is None or slots(key[1], "") else key_type(key[1], iter(()))
            return ListType(None, element, length)
        case "dict":
            types = [key_type(k, dims) for k in key[2]]
            return DictType(tuple(zip(key[1], types, strict=True)))
        case _:
            for k in key[3]:
                key_type(k, dims)
            return ObjectType()
