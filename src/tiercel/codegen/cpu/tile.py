"""Register tiles of the matrix product as LLVM text: `rows` x some vectors of c, summed over k.

In: a dtype, a `Target`, rows and panels. Out: one function per tile, see `tile_name` and `PARAMETERS`.

Tiles read whole panels of b and write c whole or, at its right edge, masked.
The columns of b are loaded first; each row's element of a is broadcast once and used at once (measured: 94 against 43
GFLOP/s for the other order). Rows of b are asked for some iterations ahead: where b comes from the third-level cache
this is worth a fifth with 8 rows, and more with fewer (the processor's own prefetcher does not cross pages). Not so
where few rows pass over packed panels: these are read from end to end, which the processor sees by itself, and asking
slows it down (measured, Zen 4, one row: 89 GB/s without and 74 with; plain reading 100).
"""

from __future__ import annotations

from typing import Final

from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.text import REGISTER_TYPE
from tiercel.dtypes import DType

PARAMETERS: Final = (
    "ptr noalias %a, i64 %a_row, i64 %a_col, ptr noalias %b, i64 %b_row, i64 %b_panel, ptr noalias %c, i64 %c_row, "
    "i64 %k, i64 %first, i64 %columns, i1 %accumulate"
)
"""Of a tile: strides in elements, `b_panel` between panels; columns `first` to `columns` of c are written, others
are not touched. Copying tiles have `out` too."""

WIDE_PARAMETERS: Final = (
    "ptr noalias %a, i64 %a_row, i64 %a_col, ptr noalias %b, i64 %b_row, i64 %b_panel, ptr noalias %c, i64 %c_row, "
    "i64 %k, i64 %c_step, i1 %accumulate"
)
"""Of a tile `apart`: its vectors go to columns 0, `c_step`, 2 * `c_step`, ... of c, each of them whole."""

AHEAD_CYCLES: Final = 240
"""How long before its use a row of b is asked for: about the latency of the third-level cache (one multiply-add a
cycle)."""


_SHAPES: Final = {64: {3: 8, 2: 12, 4: 6}, 32: {2: 6, 3: 4}, 16: {2: 4, 3: 3}}
"""Rows of the largest tile by vector bytes and vectors, the runtime library's first: sums, columns and a broadcast fit
into 32 or 16 registers."""


def widths(target: Target) -> tuple[int, ...]:
    """The numbers of vectors that a panel may have, the runtime library's first."""
    return tuple(_SHAPES[target.vector_bytes])


def tile_shape(target: Target, vectors: int = 0) -> tuple[int, int]:
    """(rows, vectors) of the largest register tile over panels of so many vectors (0: the runtime library's)."""
    vectors = vectors or widths(target)[0]
    return _SHAPES[target.vector_bytes][vectors], vectors


def panel_columns(dtype: DType, target: Target, vectors: int = 0) -> int:
    """Columns of one packed panel."""
    return tile_shape(target, vectors)[1] * target.vector_bytes // dtype.itemsize


STREAMED_ROWS: Final = 3
"""Up to so many rows of a the reading of packed panels is the limit, not the multipliers: `stream` tiles."""


def wide_panels(rows: int) -> int:
    """Panels at once for so few rows: 12 sums for one row, as many for two."""
    return {1: 4, 2: 2}.get(rows, 1)


def tile_name(
    dtype: DType, rows: int, panels: int, *, copy: bool = False, stream: bool = False, narrow: int = 0, apart: int = 0
) -> str:
    """The function of a tile. With `copy` it also writes the panel of b it reads to `out`, packed; with `stream` it
    asks for nothing ahead; with `narrow` it takes only so many vectors of the panel; with `apart` the panel is so many
    vectors wide, and they are written apart (`WIDE_PARAMETERS`).
    """
    kind = ".copy" if copy else ".stream" if stream else f".apart{apart}" if apart else ""
    return f"tc.tile.{dtype.name}.{rows}x{f'v{narrow}' if narrow else panels}{kind}"


def tile_text(
    dtype: DType,
    target: Target,
    rows: int,
    panels: int = 1,
    *,
    copy: bool = False,
    stream: bool = False,
    narrow: int = 0,
    apart: int = 0,
    vectors: int = 0,
) -> str:
    """The function of a tile over panels of `vectors` vectors.

    More panels are for few rows: they give the multipliers enough independent sums without changing the order of any.
    Only a tile of one panel, or of less, can be written in part; a narrow one always counts as such.
    """
    element, size = REGISTER_TYPE[dtype.name], dtype.itemsize
    lanes, width = target.vector_bytes // size, narrow or apart or tile_shape(target, vectors)[1]
    vectors = width * panels
    vector, counts, suffix = f"<{lanes} x {element}>", f"<{lanes} x i32>", f"v{lanes}f{8 * size}"
    ahead = max(4, min(64, AHEAD_CYCLES // (rows * vectors)))
    tile = [(r, v) for r in range(rows) for v in range(vectors)]
    name = tile_name(dtype, rows, panels, copy=copy, stream=stream, narrow=narrow, apart=apart)
    parameters = WIDE_PARAMETERS if apart else PARAMETERS
    out = [
        f"define internal void @{name}({parameters}{', ptr noalias %out' if copy else ''}) {{",
        "entry:",
        "  %any = icmp sgt i64 %k, 0",
    ]
    for r in range(rows):
        out += [f"  %row.{r} = mul i64 %a_row, {r}", f"  %a.{r} = getelementptr {element}, ptr %a, i64 %row.{r}"]
    out += [f"  %panel.{q} = mul i64 %b_panel, {q}" for q in range(1, panels)]
    if rows == tile_shape(target, 0)[0] and not narrow and not apart:
        # many rows: c is often not in the cache, and is asked for to be written
        for r in range(rows):
            out += [
                f"  %c.off.{r} = mul i64 %c_row, {r}",
                f"  %c.{r} = getelementptr {element}, ptr %c, i64 %c.off.{r}",
            ]
            for line in range(0, vectors * target.vector_bytes, 64):
                out += [
                    f"  %c.{r}.{line} = getelementptr i8, ptr %c.{r}, i64 {line}",
                    f"  call void @llvm.prefetch.p0(ptr %c.{r}.{line}, i32 1, i32 3, i32 1)",
                ]
    out += [
        f"  %ahead = mul i64 %b_row, {ahead}",
        "  br i1 %any, label %k.loop, label %done",
        "k.loop:",
        "  %i = phi i64 [ 0, %entry ], [ %i.next, %k.loop ]",
        "  %x = phi i64 [ 0, %entry ], [ %x.next, %k.loop ]",
        "  %b.at = phi ptr [ %b, %entry ], [ %b.next, %k.loop ]",
    ]
    if copy:
        out.append("  %out.at = phi ptr [ %out, %entry ], [ %out.next, %k.loop ]")
    out += [f"  %sum.{r}.{v} = phi {vector} [ zeroinitializer, %entry ], [ %new.{r}.{v}, %k.loop ]" for r, v in tile]
    for q in range(panels):
        out.append(f"  %b.{q} = getelementptr {element}, ptr %b.at, i64 {f'%panel.{q}' if q else '0'}")
        out.append(f"  %next.{q} = getelementptr {element}, ptr %b.{q}, i64 %ahead")
        for line in () if stream else range(0, width * target.vector_bytes, 64):
            out += [
                f"  %ask.{q}.{line} = getelementptr i8, ptr %next.{q}, i64 {line}",
                f"  call void @llvm.prefetch.p0(ptr %ask.{q}.{line}, i32 0, i32 3, i32 1)",
            ]
    for v in range(vectors):
        out += [
            f"  %col.{v}.at = getelementptr {element}, ptr %b.{v // width}, i64 {v % width * lanes}",
            f"  %col.{v} = load {vector}, ptr %col.{v}.at, align {size}",
        ]
        if copy:
            out += [
                f"  %out.{v} = getelementptr {element}, ptr %out.at, i64 {v * lanes}",
                f"  store {vector} %col.{v}, ptr %out.{v}, align {size}",
            ]
    for r in range(rows):
        out += [
            f"  %x.{r}.at = getelementptr {element}, ptr %a.{r}, i64 %x",
            f"  %x.{r}.one = load {element}, ptr %x.{r}.at, align {size}",
            f"  %x.{r}.first = insertelement {vector} poison, {element} %x.{r}.one, i64 0",
            f"  %x.{r} = shufflevector {vector} %x.{r}.first, {vector} poison, {counts} zeroinitializer",
        ]
        for v in range(vectors):
            operands = f"{vector} %x.{r}, {vector} %col.{v}, {vector} %sum.{r}.{v}"
            out.append(f"  %new.{r}.{v} = call {vector} @llvm.fma.{suffix}({operands})")
    out += [
        "  %i.next = add i64 %i, 1",
        "  %x.next = add i64 %x, %a_col",
        f"  %b.next = getelementptr {element}, ptr %b.at, i64 %b_row",
        *([f"  %out.next = getelementptr {element}, ptr %out.at, i64 {vectors * lanes}"] if copy else []),
        "  %more = icmp slt i64 %i.next, %k",
        "  br i1 %more, label %k.loop, label %done",
        "done:",
    ]
    out += [f"  %total.{r}.{v} = phi {vector} [ zeroinitializer, %entry ], [ %new.{r}.{v}, %k.loop ]" for r, v in tile]
    both = panels == 1 and not narrow and not apart
    if both:
        out += [
            f"  %reaches = icmp sge i64 %columns, {vectors * lanes}",
            "  %begins = icmp eq i64 %first, 0",
            "  %full = and i1 %reaches, %begins",
            "  br i1 %full, label %whole, label %part",
        ]
    else:
        out.append(f"  br label %{'part' if narrow else 'whole'}")
    if not narrow:
        out += _stores("whole", tile, rows, 0, dtype, lanes, apart=apart > 0)
    if narrow or both:
        out += _stores("part", tile, rows, vectors, dtype, lanes)
    return "\n".join([*out, "}"])


def _stores(
    label: str,
    tile: list[tuple[int, int]],
    rows: int,
    masked: int,
    dtype: DType,
    lanes: int,
    *,
    apart: bool = False,
) -> list[str]:
    """The block that writes the sums: all, or with `masked` (the number of vectors) columns `first` to `columns`.

    In a part, what is there is added, or zero: that changes no bit, because a sum that begins with zero is no negative
    zero. Whole tiles do not look there without need: reading nothing of lines that are in no cache costs a tenth with
    k = 128 (measured, Zen 4).
    """
    element, size = REGISTER_TYPE[dtype.name], dtype.itemsize
    vector, mask_type, counts = f"<{lanes} x {element}>", f"<{lanes} x i1>", f"<{lanes} x i32>"
    suffix, ramp = f"v{lanes}f{8 * size}", ", ".join(f"i32 {i}" for i in range(lanes))
    p = f"%{label}."
    out = [f"{label}:"]
    if masked:
        out += [
            f"  {p}one = insertelement {mask_type} poison, i1 %accumulate, i64 0",
            f"  {p}old = shufflevector {mask_type} {p}one, {mask_type} poison, {counts} zeroinitializer",
        ]
    for v in range(masked):
        out += [
            f"  %left.{v} = sub i64 %columns, {v * lanes}",
            f"  %some.{v} = call i64 @llvm.smax.i64(i64 %left.{v}, i64 0)",
            f"  %few.{v} = call i64 @llvm.smin.i64(i64 %some.{v}, i64 {lanes})",
            f"  %count.{v} = trunc i64 %few.{v} to i32",
            f"  %one.{v} = insertelement {counts} poison, i32 %count.{v}, i64 0",
            f"  %all.{v} = shufflevector {counts} %one.{v}, {counts} poison, {counts} zeroinitializer",
            f"  %below.{v} = icmp slt {counts} <{ramp}>, %all.{v}",
            f"  %before.{v} = sub i64 %first, {v * lanes}",
            f"  %begin.{v} = trunc i64 %before.{v} to i32",
            f"  %from.one.{v} = insertelement {counts} poison, i32 %begin.{v}, i64 0",
            f"  %from.{v} = shufflevector {counts} %from.one.{v}, {counts} poison, {counts} zeroinitializer",
            f"  %above.{v} = icmp sge {counts} <{ramp}>, %from.{v}",
            f"  %mask.{v} = and {mask_type} %below.{v}, %above.{v}",
            f"  %{label}.old.{v} = and {mask_type} %mask.{v}, %{label}.old",
        ]
    for r in range(rows):
        out += [
            f"  %{label}.off.{r} = mul i64 %c_row, {r}",
            f"  %{label}.c.{r} = getelementptr {element}, ptr %c, i64 %{label}.off.{r}",
        ]
    steps = [f"%{label}.step.{v}" if apart else str(v * lanes) for v in range(1 + max(v for _, v in tile))]
    if apart:
        out += [f"  {step} = mul i64 %c_step, {v}" for v, step in enumerate(steps)]
    if not masked:
        out += [f"  {p}c.{r}.{v} = getelementptr {element}, ptr {p}c.{r}, i64 {steps[v]}" for r, v in tile]
        out += [f"  br i1 %accumulate, label %{label}.add, label %{label}.set", f"{label}.add:"]
        for r, v in tile:
            at = f"{p}c.{r}.{v}"
            out += [
                f"  {at}.old = load {vector}, ptr {at}, align {size}",
                f"  {at}.new = fadd {vector} {at}.old, %total.{r}.{v}",
                f"  store {vector} {at}.new, ptr {at}, align {size}",
            ]
        out += ["  ret void", f"{label}.set:"]
        out += [f"  store {vector} %total.{r}.{v}, ptr {p}c.{r}.{v}, align {size}" for r, v in tile]
        return [*out, "  ret void"]
    for r, v in tile:
        at = f"{p}c.{r}.{v}"
        given = f"ptr {at}, i32 {size}, {mask_type} {p}old.{v}, {vector} zeroinitializer"
        out += [
            f"  {at} = getelementptr {element}, ptr {p}c.{r}, i64 {steps[v]}",
            f"  {at}.old = call {vector} @llvm.masked.load.{suffix}.p0({given})",
            f"  {at}.new = fadd {vector} {at}.old, %total.{r}.{v}",
        ]
        given = f"{vector} {at}.new, ptr {at}, i32 {size}, {mask_type} %mask.{v}"
        out.append(f"  call void @llvm.masked.store.{suffix}.p0({given})")
    return [*out, "  ret void"]
