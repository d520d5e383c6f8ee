"""Names of the library's functions, for those who look them up: user processes load this, not what makes the code."""

from __future__ import annotations

from typing import Final

from tiercel.dtypes import DType

__all__ = ["CALL", "GEMM_DTYPES", "gemm_names"]

GEMM_DTYPES: Final = ("float32", "float64")

CALL: Final = "tc.call"
"""`i64 tc.call(ptr function, ptr frame)`: call with the floating-point flags cleared before and read after.

The result is the function's in the low 32 bits and the flags raised (the low six bits of MXCSR: invalid 1, denormal 2,
divide by zero 4, overflow 8, underflow 16, inexact 32) above them. Flags that were set before stay set.
"""


def gemm_names(dtype: DType) -> tuple[str, str, str, str]:
    """The products of a dtype: plain, packed, pack, vector."""
    base = f"tc.gemm.{dtype.name}"
    return base, f"{base}.packed", f"{base}.pack", f"{base}.vector"
