"""Views with given strides, made as NumPy makes them.

In: an array, and the sizes, strides and place of a view of it. Out: an ndarray whose `base`, flags and memory are those
that slicing would give. `np.ndarray(buffer=...)` takes contiguous memory only, and `as_strided` puts an object of its
own between the view and its base; hence NumPy's C function is called.

Invariant: nobody but the compiler asks, so that sizes and strides stay within the array.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np

__all__ = ["make_view", "numpy_functions"]

_NEW: Final = 94
_SET_BASE: Final = 282
"""Places in NumPy's table of functions (`__multiarray_api.h`)."""


@functools.cache
def numpy_functions(count: int) -> Any:
    """The first entries of NumPy's table of C functions, as addresses.

    Raises:
        AttributeError, ImportError: this NumPy does not show it.
    """
    capsule = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    table = pointer(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, None)
    return (ctypes.c_size_t * count).from_address(table)


@functools.cache
def _functions() -> tuple[Callable[..., Any], Callable[..., int]]:
    table = numpy_functions(_SET_BASE + 1)
    any_, int_, address = ctypes.py_object, ctypes.c_int, ctypes.c_void_p
    new = ctypes.PYFUNCTYPE(any_, any_, any_, int_, address, address, address, int_, address)(table[_NEW])
    return new, ctypes.PYFUNCTYPE(int_, any_, any_)(table[_SET_BASE])


def make_view(
    base: np.ndarray[Any, Any], shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> np.ndarray[Any, Any]:
    """Make a view.

    Args:
        base: an ndarray.
        shape, strides: of the view; strides in bytes.
        offset: of its first element from that of `base`, in bytes.
    """
    new, set_base = _functions()
    rank = len(shape)
    sizes, steps = (ctypes.c_int64 * rank)(*shape), (ctypes.c_int64 * rank)(*strides)
    # both functions take a reference: to the dtype, and to the base
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(base.dtype))
    made: np.ndarray[Any, Any] = new(
        np.ndarray, base.dtype, rank, ctypes.addressof(sizes), ctypes.addressof(steps), base.ctypes.data + offset,
        base.flags.num, None,
    )  # fmt: skip
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(base))
    set_base(made, base)
    return made
