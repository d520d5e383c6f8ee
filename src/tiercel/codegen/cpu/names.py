"""Names of the library's functions, for those who look them up: user processes load this, not what makes the code."""

from __future__ import annotations

from typing import Final

from tiercel.dtypes import DType, as_dtype

__all__ = [
    "CALL",
    "CONVOLUTIONS",
    "CORE",
    "GEMM_DTYPES",
    "MAX_PANELS",
    "MIXED",
    "PANELS",
    "PIECES",
    "RARE",
    "WIDTHS",
    "convolve_names",
    "gemm_names",
    "mixed_names",
    "mixed_of",
    "pack_name",
    "panel_names",
    "piece_of",
]

GEMM_DTYPES: Final = ("float32", "float64")
MIXED_DTYPES: Final = ("float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "int64")

CORE: Final = "core"
RARE: Final = "rare"
"""Pieces of the library: what every kernel needs, and rare arguments of mathematical functions. The others are the
products of a dtype, by its name, its convolutions, and those with several panels."""
CONVOLUTIONS: Final = {f"convolve {dtype}": dtype for dtype in GEMM_DTYPES}
PANELS: Final = {f"panels {dtype}": dtype for dtype in GEMM_DTYPES}
WIDTHS: Final = (2, 3, 4)
"""Vectors that panels may have; which of them a processor has says `tile.widths`. The first of those is in the piece of
the dtype, the others are pieces of their own (`float32.v4`)."""
MIXED: Final = {f"mixed {dtype}": dtype for dtype in MIXED_DTYPES}
"""Products of half types and of integers."""
PIECES: Final = (
    CORE, RARE, *GEMM_DTYPES, *CONVOLUTIONS, *PANELS, *(f"{d}.v{width}" for d in GEMM_DTYPES for width in WIDTHS),
    *MIXED,
)  # fmt: skip
"""The parts of the library that are compiled and mapped each by itself, when a kernel needs one: products of a dtype
take 0.2 s, the core 15 ms. No piece calls another."""

MAX_PANELS: Final = 4
"""Column blocks of one product that a tile holds side by side; with one it is an ordinary product."""

CALL: Final = "tc.call"
"""`i64 tc.call(ptr function, ptr frame)`: call with the floating-point flags cleared before and read after.

The result is the function's in the low 32 bits and the flags raised (the low six bits of MXCSR: invalid 1, denormal 2,
divide by zero 4, overflow 8, underflow 16, inexact 32) above them. Flags that were set before stay set.
"""


def gemm_names(dtype: DType, vectors: int = 0) -> tuple[str, str, str, str]:
    """The products of a dtype: plain, packed, pack, vector.

    With `vectors` those over panels of so many vectors, which have no `vector`; 0 stands for the width of the dtype's
    own piece.
    """
    base = f"tc.gemm.{dtype.name}{f'.v{vectors}' if vectors else ''}"
    return base, f"{base}.packed", f"{base}.pack", f"{base}.vector"


def mixed_of(dtype: DType) -> str | None:
    """The family of `MIXED` that multiplies matrices of a dtype; None for those of `gemm_names`, and for others."""
    if dtype.name in MIXED_DTYPES:
        return dtype.name
    return f"int{dtype.bits}" if dtype.kind == "u" else None


def mixed_names(dtype: DType) -> tuple[str, str, str]:
    """The products of a dtype of `MIXED`, or one that `mixed_of` gives a family: plain, packed, pack."""
    base = f"tc.mixed.{mixed_of(dtype)}"
    return base, f"{base}.packed", f"{base}.pack"


def convolve_names(dtype: DType) -> tuple[str, str]:
    """Of a dtype: the convolution of a block, and what lays its image out."""
    return f"tc.convolve.{dtype.name}", f"tc.unfold.{dtype.name}"


def panel_names(dtype: DType) -> tuple[str, ...]:
    """What packs a matrix as panels, then the products of 2 to `MAX_PANELS` panels."""
    base = f"tc.panels.{dtype.name}"
    return f"{base}.pack", *(f"{base}.{count}" for count in range(2, MAX_PANELS + 1))


def pack_name(layout: str, *, panels: bool) -> str:
    """The function that packs a matrix of a dtype, or of one and a width (`float32.v4`), as a whole or as panels."""
    dtype, _, width = layout.partition(".v")
    if mixed_of(as_dtype(dtype)) is not None:
        return mixed_names(as_dtype(dtype))[2]
    return panel_names(as_dtype(dtype))[0] if panels else gemm_names(as_dtype(dtype), int(width or 0))[2]


def piece_of(name: str) -> str:
    """The piece of the library that has a function."""
    parts = name.split(".")
    if parts[1] == "math":
        return RARE
    if parts[1] in ("convolve", "unfold"):
        return f"convolve {parts[2]}"
    if parts[1] == "mixed":
        return f"mixed {parts[2]}"
    if parts[1] == "panels":
        return f"panels {parts[2]}"
    if len(parts) < 3 or parts[2] not in GEMM_DTYPES:
        return CORE
    wide = len(parts) > 3 and parts[3][:1] == "v" and parts[3][1:].isdigit()
    return ".".join(parts[2:4]) if wide else parts[2]
