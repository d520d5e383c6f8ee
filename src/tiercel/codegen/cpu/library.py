"""The runtime library: functions that generated code calls through import slots, compiled once per machine.

In: a `Target`. Out: the LLVM text and the entry names. Regions name what they call (`tc.gemm.float32.packed`); whoever
maps a region's blob gives the addresses of the mapped library (`codegen.pieces`). Keeping them out of the regions saves
15 to 30 ms a region.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiercel.codegen.cpu.convolve import emit_convolve
from tiercel.codegen.cpu.dots import dots_name, emit_dots
from tiercel.codegen.cpu.gemm import emit_gemm
from tiercel.codegen.cpu.mixed import emit_mixed
from tiercel.codegen.cpu.names import (
    CALL,
    CONVOLUTIONS,
    CORE,
    MIXED,
    PANELS,
    PIECES,
    RARE,
    convolve_names,
    gemm_names,
    mixed_names,
    panel_names,
)
from tiercel.codegen.cpu.panels import emit_panels
from tiercel.codegen.cpu.rare import rare_entries, rare_text
from tiercel.codegen.cpu.stub import STUB, stub_text
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.threads import RUN, WORKER, threads_text
from tiercel.codegen.cpu.turn import emit_turn, turn_name
from tiercel.dtypes import DType, as_dtype

_CALL = f"""
define i64 @{CALL}(ptr %function, ptr %frame) {{
entry:
  %word = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %word)
  %before = load i32, ptr %word, align 4
  %clean = and i32 %before, -64
  store i32 %clean, ptr %word, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  %result = call i64 %function(ptr %frame)
  call void @llvm.x86.sse.stmxcsr(ptr %word)
  %after = load i32, ptr %word, align 4
  %both = or i32 %after, %before
  store i32 %both, ptr %word, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  %raised = and i32 %after, 63
  %wide = zext i32 %raised to i64
  %high = shl i64 %wide, 32
  %low = and i64 %result, 4294967295
  %packed = or i64 %high, %low
  ret i64 %packed
}}
"""


IMPORTS = ("syscall",)
"""What the library itself needs of the C library."""


def _width(piece: str) -> int:
    """The vectors of a panel for which a piece is extra; 0 for others."""
    return int(piece.partition(".v")[2] or 0)


def entries(piece: str | None = None) -> tuple[str, ...]:
    """The names of the functions of a piece, by default of all that every target has."""
    if piece is None:
        return tuple(name for each in PIECES if not _width(each) for name in entries(each))
    if piece == CORE:
        return CALL, STUB, RUN, WORKER
    if piece == RARE:
        return rare_entries()
    if piece in CONVOLUTIONS:
        return convolve_names(as_dtype(CONVOLUTIONS[piece]))
    if piece in MIXED:
        return mixed_names(as_dtype(MIXED[piece]))
    if piece in PANELS:
        return panel_names(as_dtype(PANELS[piece]))
    if width := _width(piece):
        return gemm_names(as_dtype(piece.partition(".")[0]), width)[:3]
    dtype = as_dtype(piece)
    return *gemm_names(dtype), turn_name(dtype), dots_name(dtype)


def library_text(target: Target, pieces: Sequence[str] | None = None) -> str:
    """Pieces of the library as one LLVM module, by default all that every target has."""
    declarations: dict[str, None] = {}
    functions: list[str] = []
    for piece in [p for p in PIECES if not _width(p)] if pieces is None else pieces:
        if piece == CORE:
            functions += [*threads_text(target), _CALL, stub_text()]
        elif piece == RARE:
            functions += rare_text(declarations.setdefault)
        elif piece in CONVOLUTIONS:
            declared, defined = emit_convolve(as_dtype(CONVOLUTIONS[piece]), target)
            declarations.update(dict.fromkeys(declared))
            functions += defined
        elif piece in MIXED:
            declared, defined = emit_mixed(as_dtype(MIXED[piece]), target)
            declarations.update(dict.fromkeys(declared))
            functions += defined
        elif piece in PANELS:
            declared, defined = emit_panels(as_dtype(PANELS[piece]), target)
            declarations.update(dict.fromkeys(declared))
            functions += defined
        elif width := _width(piece):
            declared, products = emit_gemm(as_dtype(piece.partition(".")[0]), target, width)
            declarations.update(dict.fromkeys(declared))
            functions += products
        else:
            functions += _products(as_dtype(piece), target, declarations)
    return "\n".join([*declarations, *functions]) + "\n"


def _products(dtype: DType, target: Target, declarations: dict[str, None]) -> list[str]:
    declared, products = emit_gemm(dtype, target)
    declarations.update(dict.fromkeys(declared))
    declared, turn = emit_turn(dtype, target)
    declarations.update(dict.fromkeys(declared))
    declared, dots = emit_dots(dtype, target, gemm_names(dtype)[3])
    declarations.update(dict.fromkeys(declared))
    return [*products, turn, dots]
