"""The runtime library: functions that generated code calls through import slots, compiled once per machine.

In: a `Target`. Out: the LLVM text and the entry names. Regions name what they call (`tc.gemm.float32.packed`); whoever
maps a region's blob gives the addresses of the mapped library. Keeping them out of the regions saves 15 to 30 ms a
region.
"""

from __future__ import annotations

from tiercel.codegen.cpu.gemm import emit_gemm, names
from tiercel.codegen.cpu.target import Target
from tiercel.dtypes import as_dtype

GEMM_DTYPES = ("float32", "float64")


def entries() -> tuple[str, ...]:
    """The names of all library functions."""
    return tuple(name for dtype in GEMM_DTYPES for name in names(as_dtype(dtype)))


def library_text(target: Target) -> str:
    """The library as one LLVM module."""
    declarations: dict[str, None] = {}
    functions: list[str] = []
    for dtype in GEMM_DTYPES:
        declared, defined = emit_gemm(as_dtype(dtype), target)
        declarations.update(dict.fromkeys(declared))
        functions += defined
    return "\n".join([*declarations, *functions]) + "\n"
