"""Constants of a program: which Python values they may be, and when two of them are the same one.

In: a Python value. Out: the value as the program keeps it (`own_constant`) and the key under which it is shared
(`constant_key`).

Invariant: two constants share a key only if no program can tell them apart: 1, 1.0, True and -0.0 are four
constants, a NaN is itself by its bits. Arrays are own read-only copies and are never shared by value; objects known
by name are shared by identity.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from tiercel.dtypes import DType, is_dtype
from tiercel.errors import BytecodeError

__all__ = ["MAX_NESTING", "UNBOUND", "ConstantPool", "ObjectRef", "Unbound", "constant_key", "is_plain", "own_constant"]

# Tuples and slices inside one another. Python's own compiler stops at about a hundred parentheses.
MAX_NESTING: Final = 64
# Largest magnitude of an int constant, in bytes. Python's limit for decimal literals is 4300 digits, 1786 bytes.
MAX_INT_BYTES: Final = 4096


@final
class Unbound:
    """What a variable's register holds before the variable is assigned. The one instance is `UNBOUND`."""

    __slots__ = ()

    def __new__(cls) -> Unbound:
        return UNBOUND

    def __repr__(self) -> str:
        return "UNBOUND"

    def __bool__(self) -> bool:
        raise BytecodeError("UNBOUND was used as a value; a Check bound is missing before this use")

    def __reduce__(self) -> str:
        return "UNBOUND"

    def __copy__(self) -> Unbound:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Unbound:
        return self


UNBOUND: Final[Unbound] = object.__new__(Unbound)


@dataclass(slots=True, eq=False)
class ObjectRef:
    """A Python object that the program knows by name: an outlined function, a nested function's code, a class.

    Files hold the name only.

    Attributes:
        name: under which `load(path, python={name: object})` supplies it.
        value: the object; None while it is not supplied.
    """

    name: str
    value: object | None = None


def own_constant(value: object, _depth: int = 0) -> object:
    """Return `value` as a program keeps it: arrays as read-only copies, everything else itself.

    Args:
        value: None, bool, int, float, complex, str, bytes, Ellipsis, a tuple or slice of these, a dtype of Tiercel's,
            an ndarray of one (not nested in a tuple), UNBOUND or an ObjectRef.

    Raises:
        BytecodeError: any other value.
    """
    if value is None or value is Ellipsis or value is UNBOUND:
        return value
    kind = type(value)
    if kind in (bool, float, complex, str, bytes):
        return value
    if kind is int:
        if abs(value).bit_length() > 8 * MAX_INT_BYTES:  # type: ignore[arg-type]
            raise BytecodeError(f"int constants have at most {MAX_INT_BYTES} bytes, got one of more")
        return value
    if isinstance(value, DType):
        return value
    if isinstance(value, np.dtype):
        if not is_dtype(value):
            raise BytecodeError(f"dtype {value} is none of Tiercel's and cannot be a constant; pass it as an ObjectRef")
        return value
    if kind is tuple or kind is slice:
        if _depth >= MAX_NESTING:
            raise BytecodeError(f"constant tuples may be nested {MAX_NESTING} deep, got more")
        parts = value if isinstance(value, tuple) else (value.start, value.stop, value.step)  # type: ignore[attr-defined]
        for part in parts:
            own_constant(part, _depth + 1)
        return value
    if _depth == 0:
        if isinstance(value, ObjectRef):
            return value
        if kind is np.ndarray:
            return own_array(value)  # type: ignore[arg-type]
    raise BytecodeError(
        f"a value of type {kind.__name__} cannot be {'part of ' if _depth else ''}a constant; known by name it can: "
        "ObjectRef(name, value)"
    )


def own_array(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return `value` if it is C-contiguous, aligned, read-only and owns its data, else a copy that is."""
    if not is_dtype(value.dtype):
        raise BytecodeError(
            f"an array of dtype {value.dtype} cannot be a constant; convert it to one of Tiercel's dtypes"
        )
    flags = value.flags
    if not flags.writeable and flags.owndata and flags.c_contiguous and flags.aligned:
        return value
    copy = np.array(value, order="C", copy=True)
    copy.flags.writeable = False
    return copy


def constant_key(value: object) -> object:
    """Return a hashable key that equal-and-same-type constants share; identity for arrays and objects."""
    kind = type(value)
    if kind is float:
        return kind, struct.pack("<d", value)
    if kind is complex:
        return kind, struct.pack("<dd", value.real, value.imag)  # type: ignore[attr-defined]
    if kind is tuple:
        return kind, tuple(constant_key(v) for v in value)  # type: ignore[attr-defined]
    if kind is slice:
        parts = (value.start, value.stop, value.step)  # type: ignore[attr-defined]
        return kind, tuple(constant_key(v) for v in parts)
    if kind in (bool, int, str, bytes):
        return kind, value
    if isinstance(value, DType):
        return DType, value.name
    if isinstance(value, np.dtype):
        return np.dtype, value.str, value.name
    return id(value)


def is_plain(value: object) -> bool:
    """Whether the value is a Python scalar, string, or tuple or slice of such: its truth never fails."""
    return value is None or value is Ellipsis or type(value) in (bool, int, float, complex, str, bytes, tuple, slice)


@final
class ConstantPool:
    """The constants of a program in the making: each distinct one once, in order of first use."""

    __slots__ = ("_index", "values")

    def __init__(self, values: Iterable[object] = ()) -> None:
        self.values: list[object] = []
        self._index: dict[object, int] = {}
        for value in values:
            self._index.setdefault(constant_key(value), len(self.values))
            self.values.append(value)

    def operand(self, value: object) -> int:
        """Return the operand (negative) of a constant, adding it if it is new.

        Raises:
            BytecodeError: the value cannot be a constant.
        """
        known = self._index.get(constant_key(value))
        if known is not None:
            return ~known
        kept = own_constant(value)
        index = len(self.values)
        # An array is kept as a copy; the key must be that of an object that stays alive.
        self._index[constant_key(kept)] = index
        self.values.append(kept)
        return ~index

    def __getitem__(self, operand: int) -> Any:
        return self.values[~operand]
