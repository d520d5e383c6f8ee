"""How references treat element types: half types compute in float32 and round once, integers become float64.

In: operands as users pass them. Out: arrays of the type to compute in, and the way back. Conversions go through
`np.positive`, whose results keep the operands' axis order as every ufunc's do (`astype` orders broadcast axes
otherwise).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tiercel.dtypes import DType, as_dtype, float64

__all__ = ["computing_dtype", "empty_like_result", "narrow", "operand_dtype", "widen"]


def operand_dtype(name: str, *operands: Any) -> DType:
    """The result dtype of an operator of ours: the operands' common dtype, integers and bools as float64.

    Raises:
        TypeError: the common dtype is complex, or there is none.
    """
    dtype = as_dtype(np.result_type(*(x if hasattr(x, "dtype") else _as_operand(x) for x in operands)))
    if dtype.is_complex:
        raise TypeError(f"{name} is not defined for complex numbers")
    return dtype if dtype.is_float else float64


def _as_operand(x: Any) -> Any:
    # Python numbers stay weak; lists become arrays.
    return x if isinstance(x, int | float | complex) else np.asarray(x)


def computing_dtype(dtype: DType) -> np.dtype[Any]:
    """The type to compute in: float32 for half types, else the type itself."""
    return dtype.accumulator.numpy


def widen(x: Any, dtype: DType) -> Any:
    """`x` in the computing dtype: a fresh array in x's axis order, or a scalar."""
    wide = computing_dtype(dtype)
    x = np.asarray(x)
    if x.dtype == wide:
        return x if x.ndim else x[()]
    if x.dtype.kind == "b":
        x = x.view(np.uint8)
    return np.positive(x, dtype=wide, casting="unsafe")


def narrow(x: Any, dtype: DType) -> Any:
    """A result rounded to the result dtype; rank 0 gives a NumPy scalar."""
    if isinstance(x, np.ndarray) and not x.ndim:
        x = x[()]
    return x if x.dtype == dtype.numpy else x.astype(dtype.numpy)


def empty_like_result(dtype: np.dtype[Any], *operands: Any) -> Any:
    """An uninitialised array as a ufunc on these operands allocates its result: broadcast shape, axis order kept."""
    flags: Any = [*([["readonly"]] * len(operands)), ["writeonly", "allocate"]]
    return np.nditer(
        [*operands, None],
        flags=["zerosize_ok", "external_loop", "buffered", "delay_bufalloc"],
        op_flags=flags,
        op_dtypes=[*([None] * len(operands)), dtype],
    ).operands[-1]
