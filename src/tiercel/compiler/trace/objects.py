"""Python objects as a trace meets them: arrays and wrappers of arrays, named tuples, operators, captured cells.

In: values found in arguments and in the environment. Out: what they are to a trace. Nothing here runs code of the
user's: classes are told by their exact type and by what stands in their own namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from inspect import getattr_static
from typing import Any, Literal

import numpy as np

from tiercel.compiler.abstract import Abstract, Source
from tiercel.compiler.environment import CONSTANT_PACKAGES
from tiercel.compiler.trace.state import Trace
from tiercel.dtypes import as_dtype, is_dtype
from tiercel.operators import Operator, find_function, get
from tiercel.operators.layout import Layout, layout_class
from tiercel.operators.types import ArrayType, Type
from tiercel.shapes import DimLike
from tiercel.values import Parameter, Tensor
from tiercel.values.parameter import frozen_state


@dataclass(frozen=True, slots=True)
class Cell:
    """A captured cell, by its position."""

    position: int


def unwrapped(value: Any) -> np.ndarray[Any, Any] | None:
    """The ndarray of an ndarray or Tensor; None for anything else."""
    if type(value) is np.ndarray:
        return value
    return value._array if type(value) in (Tensor, Parameter) else None


def is_frozen(value: Any) -> bool:
    """May a kernel keep a packed form of the value?"""
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
    # What the entry checks, no more: of another layout nothing may be assumed.
    rank = array.ndim
    match layout_class(array):
        case "C":
            layout = Layout.c(rank)
        case "F":
            layout = Layout.f(rank)
        case "rows":
            layout = Layout(tuple(range(rank)), 0)
        case _:
            layout = Layout((0,), 0) if rank == 1 else Layout.unknown()
    return ArrayType(as_dtype(array.dtype), shape, layout, "cpu", wrapper)


def is_named_tuple(cls: Any) -> bool:
    """A class made by `NamedTuple` or `namedtuple`, whose making runs no code of the user's."""
    fields = getattr(cls, "_fields", None)
    if not (isinstance(cls, type) and issubclass(cls, tuple) and isinstance(fields, tuple)):
        return False
    own = vars(cls)
    return "__new__" in own and "__init__" not in own and cls.__bases__ == (tuple,)


def operator_of(target: Any) -> tuple[Operator, int] | None:
    """The operator that a NumPy function, `tiercel.ops` function, class or instance of one stands for."""
    claim = getattr(target, "__tiercel_op__", None)
    if isinstance(claim, tuple):
        return get(claim[0]), claim[1]
    try:
        return find_function(target)
    except TypeError:  # unhashable
        return None


def object_condition(value: Any) -> tuple[Literal["class", "identity"], Any]:
    """What has to hold of an object whose attributes are looked at: it is of the same class, or it is the same.

    The class is enough for instances of classes written in Python that are no containers and look their attributes up
    as `object` does: each attribute that is read is a value or a condition of its own. So all instances of a class of
    layers share one kernel. It is enough for lists and tuples, too, whose length and items are conditions.
    """
    cls = type(value)
    if cls in (list, tuple):
        return "class", cls
    plain = all(base.__flags__ & _HEAP_TYPE or base is object for base in cls.__mro__)
    looks_up = getattr_static(cls, "__getattribute__") is vars(object)["__getattribute__"]
    if not plain or not looks_up or isinstance(value, type | Enum):
        return "identity", value
    if cls.__module__.partition(".")[0] in CONSTANT_PACKAGES and not hasattr(cls, "__tiercel_cell__"):
        return "identity", value
    return "class", cls


_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement


def owner_of(source: Source) -> Source:
    """Where the object is found whose attribute `source` is."""
    return source[1][0] if source[0] == "attribute" else ("constant", None)


def is_abstract(x: Any) -> bool:
    """An abstract value, not a Python value?"""
    return isinstance(x, Abstract)
