"""Convolution in registers as LLVM text: a tile of outputs x positions summed over taps. Part of the runtime library.

In: a dtype and a `Target`. Out: two functions (names in `convolve_names`); strides are in elements.

* `unfold`, see there.
* `convolve(weights, weight_row, image, offsets, taps, c, c_output, c_row, outputs, height, width, pitch, bias,
  bias_step, low)`: for output o < outputs and position (y, x) of (height, width)

      c[o, y, x] = max(low, bias[o] + sum over t of weights[o, t] * image[y * pitch + x + offsets[t]])

  Rows of `weights` and of c are contiguous. NaNs are kept; a `low` of -inf changes nothing.

Positions are numbered through, `pitch` to a row: those between `width` and `pitch` are computed and not stored. So a
tile of vectors runs over the ends of rows, and narrow images fill it as wide ones do. What is read beyond the last
position lies within `UNFOLD_SLACK` elements. Every sum is taken in the order of the taps, from 0: it depends on nothing
else, so that a result has the same bits in every tile, block and thread count.

Why no matrix of columns: each element of it would be written once and read once per 8 outputs, where the 9 shifts of a
3 x 3 window are loads from the first-level cache that cost the multipliers nothing. A step of a tile is 3 vectors, 8
broadcasts of weights, and 24 multiply-adds.
"""

from __future__ import annotations

from collections.abc import Iterator

from tiercel.codegen.cpu.names import convolve_names
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.text import REGISTER_TYPE, first_lanes
from tiercel.codegen.cpu.unfold import unfold_text
from tiercel.dtypes import DType
from tiercel.loops.form import UNFOLD_SLACK

__all__ = ["emit_convolve"]


def tile_rows(target: Target) -> tuple[int, ...]:
    """Outputs of the tiles, the most first."""
    return (8, 4, 1) if target.vector_bytes == 64 else (4, 1)


def tile_vectors(rows: int) -> tuple[int, ...]:
    """Vectors of positions of the tiles, the most first: 24 sums fill 32 registers, 12 fill 16; one output takes as
    many positions as it needs to keep the multipliers busy.
    """
    return (6, 3, 1) if rows == 1 else (3, 2, 1) if rows == 8 else (3, 1)


def _tile_name(dtype: DType, rows: int, vectors: int) -> str:
    return f"tc.convolve.{dtype.name}.{rows}x{vectors}"


def _lanes(dtype: DType, target: Target) -> int:
    return target.vector_bytes // dtype.itemsize


_TILE = (
    "ptr noalias %w, i64 %w_row, ptr noalias %image, ptr noalias %offsets, i64 %k, ptr noalias %c, i64 %c_out, "
    "i64 %c_row, i64 %rows, i64 %q0, i64 %y0, i64 %height, i64 %width, i64 %pitch, ptr noalias %bias, i64 %bias_step"
)


def _tile(dtype: DType, target: Target, rows: int, vectors: int) -> str:
    """The function of a tile: `image` is at its first position, `c` and `bias` at its first output."""
    element, size, lanes = REGISTER_TYPE[dtype.name], dtype.itemsize, _lanes(dtype, target)
    vector, mask, counts = f"<{lanes} x {element}>", f"<{lanes} x i1>", f"<{lanes} x i32>"
    suffix = f"v{lanes}f{8 * size}"
    cells = [(r, v) for r in range(rows) for v in range(vectors)]
    ones = ", ".join(["i1 true"] * lanes)

    def spread(name: str, value: str) -> list[str]:
        return [
            f"  %{name}.one = insertelement {vector} poison, {element} {value}, i64 0",
            f"  %{name} = shufflevector {vector} %{name}.one, {vector} poison, {counts} zeroinitializer",
        ]

    out = [
        f"define internal void @{_tile_name(dtype, rows, vectors)}({_TILE}, {element} %low) {{",
        "entry:",
        "  %last.row = sub i64 %rows, 1",
    ]
    for r in range(rows):
        # rows that are not there read the last one
        out += [
            f"  %r.{r} = call i64 @llvm.smin.i64(i64 {r}, i64 %last.row)",
            f"  %w.off.{r} = mul i64 %r.{r}, %w_row",
            f"  %w.{r} = getelementptr {element}, ptr %w, i64 %w.off.{r}",
        ]
    out += [
        "  %some = icmp sgt i64 %k, 0",
        "  br i1 %some, label %tap, label %done",
        "tap:",
        "  %i = phi i64 [ 0, %entry ], [ %i.next, %tap ]",
    ]
    out += [f"  %sum.{r}.{v} = phi {vector} [ zeroinitializer, %entry ], [ %new.{r}.{v}, %tap ]" for r, v in cells]
    out += [
        "  %off.at = getelementptr i64, ptr %offsets, i64 %i",
        "  %off = load i64, ptr %off.at, align 8",
        f"  %at = getelementptr {element}, ptr %image, i64 %off",
    ]
    for v in range(vectors):
        out += [
            f"  %x.{v}.at = getelementptr {element}, ptr %at, i64 {v * lanes}",
            f"  %x.{v} = load {vector}, ptr %x.{v}.at, align {size}",
        ]
    for r in range(rows):
        out += [
            f"  %f.{r}.at = getelementptr {element}, ptr %w.{r}, i64 %i",
            f"  %f.{r}.value = load {element}, ptr %f.{r}.at, align {size}",
            *spread(f"f.{r}", f"%f.{r}.value"),
        ]
        for v in range(vectors):
            operands = f"{vector} %f.{r}, {vector} %x.{v}, {vector} %sum.{r}.{v}"
            out.append(f"  %new.{r}.{v} = call {vector} @llvm.fma.{suffix}({operands})")
    out += [
        "  %i.next = add i64 %i, 1",
        "  %more = icmp slt i64 %i.next, %k",
        "  br i1 %more, label %tap, label %done",
        "done:",
    ]
    out += [f"  %all.{r}.{v} = phi {vector} [ zeroinitializer, %entry ], [ %new.{r}.{v}, %tap ]" for r, v in cells]
    out += spread("least", "%low")
    for r in range(rows):
        out += [
            f"  %b.off.{r} = mul i64 %r.{r}, %bias_step",
            f"  %b.at.{r} = getelementptr {element}, ptr %bias, i64 %b.off.{r}",
            f"  %b.value.{r} = load {element}, ptr %b.at.{r}, align {size}",
            *spread(f"b.{r}", f"%b.value.{r}"),
        ]
        for v in range(vectors):
            out += [
                f"  %with.{r}.{v} = fadd {vector} %all.{r}.{v}, %b.{r}",
                # false for NaN
                f"  %below.{r}.{v} = fcmp olt {vector} %with.{r}.{v}, %least",
                f"  %out.{r}.{v} = select {mask} %below.{r}.{v}, {vector} %least, {vector} %with.{r}.{v}",
            ]
    out += [
        f"  %end = add i64 %q0, {vectors * lanes}",
        "  %start = mul i64 %y0, %pitch",
        "  %begins = sub i64 %start, %q0",
        "  %ends = add i64 %begins, %width",
        f"  %whole = icmp sge i64 %ends, {vectors * lanes}",
        "  br i1 %whole, label %inside.row, label %line",
        # all of the tile lies in one row
        "inside.row:",
        "  %d.line = mul i64 %y0, %c_row",
        "  %d.off = sub i64 %d.line, %begins",
        f"  %d.0 = getelementptr {element}, ptr %c, i64 %d.off",
    ]
    for r in range(rows):
        if r:
            out += [
                f"  %d.there.{r} = icmp sgt i64 %rows, {r}",
                f"  br i1 %d.there.{r}, label %d.row.{r}, label %return",
                f"d.row.{r}:",
                f"  %d.{r} = getelementptr {element}, ptr %d.{r - 1}, i64 %c_out",
            ]
        for v in range(vectors):
            out += [
                f"  %d.{r}.{v} = getelementptr {element}, ptr %d.{r}, i64 {v * lanes}",
                f"  store {vector} %out.{r}.{v}, ptr %d.{r}.{v}, align {size}",
            ]
    out += [
        "  br label %return",
        "line:",
        "  %y = phi i64 [ %y0, %done ], [ %y.next, %line.next ]",
        "  %from = phi i64 [ %start, %done ], [ %from.next, %line.next ]",
        "  %before = sub i64 %from, %q0",
        "  %after = add i64 %before, %width",
        "  %c.line = mul i64 %y, %c_row",
        "  %c.off = sub i64 %c.line, %before",
        f"  %c.0 = getelementptr {element}, ptr %c, i64 %c.off",
    ]
    for v in range(vectors):
        for name, place in (("skip", "before"), ("take", "after")):
            out += [
                f"  %{name}.{v}.rest = sub i64 %{place}, {v * lanes}",
                f"  %{name}.{v}.some = call i64 @llvm.smax.i64(i64 %{name}.{v}.rest, i64 0)",
                *first_lanes(f"{name}.{v}", f"%{name}.{v}.some", lanes),
            ]
        out += [
            f"  %not.{v} = xor {mask} %skip.{v}, <{ones}>",
            f"  %mask.{v} = and {mask} %take.{v}, %not.{v}",
        ]
    for r in range(rows):
        if r:
            out += [
                f"  %there.{r} = icmp sgt i64 %rows, {r}",
                f"  br i1 %there.{r}, label %row.{r}, label %line.next",
                f"row.{r}:",
                f"  %c.{r} = getelementptr {element}, ptr %c.{r - 1}, i64 %c_out",
            ]
        for v in range(vectors):
            out += [
                f"  %to.{r}.{v} = getelementptr {element}, ptr %c.{r}, i64 {v * lanes}",
                (
                    f"  call void @llvm.masked.store.{suffix}.p0({vector} %out.{r}.{v}, ptr %to.{r}.{v}, i32 {size}, "
                    f"{mask} %mask.{v})"
                ),
            ]
    out += [
        "  br label %line.next",
        "line.next:",
        "  %y.next = add i64 %y, 1",
        "  %from.next = add i64 %from, %pitch",
        "  %inside = icmp slt i64 %from.next, %end",
        "  %left = icmp slt i64 %y.next, %height",
        "  %again = and i1 %inside, %left",
        "  br i1 %again, label %line, label %return",
        "return:",
        "  ret void",
        "}",
    ]
    return "\n".join(out)


COLUMN_VECTORS = 2
"""Vectors of a strip of columns: 6 sums and 9 weights fit into the registers with what is loaded."""


def _column_name(dtype: DType) -> str:
    return f"tc.convolve.{dtype.name}.columns"


def _columns(dtype: DType, target: Target) -> str:
    """One output of 3 x 3 taps, whose rows follow each other in the image: strips of columns from top to bottom.

    Each row of the image is loaded once for the three rows of positions that see it, which have their sums in registers
    at a time. The order of the taps is that of all other tiles.
    """
    element, size, lanes = REGISTER_TYPE[dtype.name], dtype.itemsize, _lanes(dtype, target)
    vector, mask, counts = f"<{lanes} x {element}>", f"<{lanes} x i1>", f"<{lanes} x i32>"
    suffix, strip = f"v{lanes}f{8 * size}", range(COLUMN_VECTORS)

    def spread(name: str, value: str) -> list[str]:
        return [
            f"  %{name}.one = insertelement {vector} poison, {element} {value}, i64 0",
            f"  %{name} = shufflevector {vector} %{name}.one, {vector} poison, {counts} zeroinitializer",
        ]

    out = [
        (
            f"define internal void @{_column_name(dtype)}(ptr noalias %w, ptr noalias %image, ptr noalias %offsets, "
            f"ptr noalias %c, i64 %c_row, i64 %height, i64 %width, i64 %pitch, ptr noalias %bias, {element} %low) {{"
        ),
        "entry:",
        "  %end = add i64 %height, 2",
        f"  %b.value = load {element}, ptr %bias, align {size}",
        *spread("b", "%b.value"),
        *spread("least", "%low"),
    ]
    for t in range(9):
        out += [
            f"  %w.at.{t} = getelementptr {element}, ptr %w, i64 {t}",
            f"  %w.value.{t} = load {element}, ptr %w.at.{t}, align {size}",
            *spread(f"w.{t}", f"%w.value.{t}"),
        ]
    for t in range(3):
        out += [
            f"  %off.at.{t} = getelementptr i64, ptr %offsets, i64 {t}",
            f"  %off.{t} = load i64, ptr %off.at.{t}, align 8",
            f"  %from.{t} = getelementptr {element}, ptr %image, i64 %off.{t}",
        ]
    out += [
        "  br label %strip",
        "strip:",
        "  %x = phi i64 [ 0, %entry ], [ %x.next, %strip.next ]",
        "  %left = sub i64 %width, %x",
    ]
    for v in strip:
        out += [
            f"  %rest.{v} = sub i64 %left, {v * lanes}",
            f"  %some.{v} = call i64 @llvm.smax.i64(i64 %rest.{v}, i64 0)",
            *first_lanes(f"mask.{v}", f"%some.{v}", lanes),
        ]
    out += [
        "  br label %row",
        "row:",
        "  %y = phi i64 [ 0, %strip ], [ %y.next, %row.next ]",
        "  %at = phi i64 [ %x, %strip ], [ %at.next, %row.next ]",
    ]
    for v in strip:
        out += [
            f"  %first.{v} = phi {vector} [ zeroinitializer, %strip ], [ %new.0.{v}.2, %row.next ]",
            f"  %second.{v} = phi {vector} [ zeroinitializer, %strip ], [ %new.1.{v}.2, %row.next ]",
        ]
    for t in range(3):
        for v in strip:
            out += [
                f"  %from.{t}.{v}.row = getelementptr {element}, ptr %from.{t}, i64 %at",
                f"  %from.{t}.{v} = getelementptr {element}, ptr %from.{t}.{v}.row, i64 {v * lanes}",
                f"  %x.{t}.{v} = load {vector}, ptr %from.{t}.{v}, align {size}",
            ]
    for v in strip:
        for row, before in ((2, f"%second.{v}"), (1, f"%first.{v}"), (0, "zeroinitializer")):
            for t in range(3):
                given = before if t == 0 else f"%new.{row}.{v}.{t - 1}"
                operands = f"{vector} %w.{3 * row + t}, {vector} %x.{t}.{v}, {vector} {given}"
                out.append(f"  %new.{row}.{v}.{t} = call {vector} @llvm.fma.{suffix}({operands})")
    out += [
        "  %done = sub i64 %y, 2",
        "  %is.done = icmp sge i64 %done, 0",
        "  br i1 %is.done, label %store, label %row.next",
        "store:",
        "  %c.line = mul i64 %done, %c_row",
        "  %c.off = add i64 %c.line, %x",
        f"  %c.at = getelementptr {element}, ptr %c, i64 %c.off",
    ]
    for v in strip:
        out += [
            f"  %with.{v} = fadd {vector} %new.2.{v}.2, %b",
            f"  %below.{v} = fcmp olt {vector} %with.{v}, %least",
            f"  %out.{v} = select {mask} %below.{v}, {vector} %least, {vector} %with.{v}",
            f"  %to.{v} = getelementptr {element}, ptr %c.at, i64 {v * lanes}",
            (
                f"  call void @llvm.masked.store.{suffix}.p0({vector} %out.{v}, ptr %to.{v}, i32 {size}, "
                f"{mask} %mask.{v})"
            ),
        ]
    out += [
        "  br label %row.next",
        "row.next:",
        "  %y.next = add i64 %y, 1",
        "  %at.next = add i64 %at, %pitch",
        "  %y.more = icmp slt i64 %y.next, %end",
        "  br i1 %y.more, label %row, label %strip.next",
        "strip.next:",
        f"  %x.next = add i64 %x, {COLUMN_VECTORS * lanes}",
        "  %x.more = icmp slt i64 %x.next, %width",
        "  br i1 %x.more, label %strip, label %end.of.strips",
        "end.of.strips:",
        "  ret void",
        "}",
    ]
    return "\n".join(out)


def _driver(dtype: DType, target: Target) -> str:
    """Outputs in tiles of rows, in them positions in tiles of vectors."""
    element, lanes = REGISTER_TYPE[dtype.name], _lanes(dtype, target)
    rows = tile_rows(target)
    lines = [
        (
            f"define void @{convolve_names(dtype)[0]}(ptr noalias %w, i64 %w_row, ptr noalias %image, "
            "ptr noalias %offsets, i64 %k, ptr noalias %c, i64 %c_out, i64 %c_row, i64 %outputs, i64 %height, "
            f"i64 %width, i64 %pitch, ptr noalias %bias, i64 %bias_step, {element} %low) {{"
        ),
        "entry:",
        "  %no.outputs = icmp sle i64 %outputs, 0",
        "  %no.height = icmp sle i64 %height, 0",
        "  %no.width = icmp sle i64 %width, 0",
        "  %no.place = or i1 %no.height, %no.width",
        "  %nothing = or i1 %no.outputs, %no.place",
        "  %rows.before = sub i64 %height, 1",
        "  %positions.before = mul i64 %rows.before, %pitch",
        "  %positions = add i64 %positions.before, %width",
        f"  %ragged = and i64 %width, {lanes - 1}",
        "  %by.row = icmp eq i64 %ragged, 0",
        "  %line = select i1 %by.row, i64 %width, i64 %positions",
        "  %lines = select i1 %by.row, i64 %height, i64 1",
        f"  %none = alloca {element}, align {dtype.itemsize}",
        f"  store {element} 0.0, ptr %none, align {dtype.itemsize}",
        "  %no.bias = icmp eq ptr %bias, null",
        "  %added = select i1 %no.bias, ptr %none, ptr %bias",
        "  br i1 %nothing, label %end, label %look",
        # 3 x 3 taps whose rows follow each other?
        "look:",
        "  %nine = icmp eq i64 %k, 9",
        "  br i1 %nine, label %look.at, label %looked",
        "look.at:",
        *(
            line
            for t in range(9)
            for line in (
                f"  %look.at.{t} = getelementptr i64, ptr %offsets, i64 {t}",
                f"  %look.{t} = load i64, ptr %look.at.{t}, align 8",
            )
        ),
        "  %like.2 = add i1 true, false",
        *(
            line
            for t in range(3, 9)
            for line in (
                f"  %step.{t} = sub i64 %look.{t}, %look.{t - 3}",
                f"  %same.{t} = icmp eq i64 %step.{t}, %pitch",
                f"  %like.{t} = and i1 %like.{t - 1}, %same.{t}",
            )
        ),
        "  br label %looked",
        "looked:",
        "  %columns = phi i1 [ false, %look ], [ %like.8, %look.at ]",
        "  br label %output",
        "output:",
        "  %o = phi i64 [ 0, %looked ], [ %o.next, %output.next ]",
        "  %left = sub i64 %outputs, %o",
        "  %w.off = mul i64 %o, %w_row",
        f"  %w.at = getelementptr {element}, ptr %w, i64 %w.off",
        "  %c.off = mul i64 %o, %c_out",
        f"  %c.at = getelementptr {element}, ptr %c, i64 %c.off",
        "  %bias.off = mul i64 %o, %bias_step",
        f"  %bias.at = getelementptr {element}, ptr %added, i64 %bias.off",
        f"  br label %choose.{rows[0]}",
    ]
    for number, r in enumerate(rows):
        smaller = rows[number + 1] if number + 1 < len(rows) else 0
        lines.append(f"choose.{r}:")
        if smaller:
            lines += [
                f"  %many.{r} = icmp sgt i64 %left, {smaller}",
                f"  br i1 %many.{r}, label %begin.{r}, label %choose.{smaller}",
            ]
        else:
            lines += [
                f"  br i1 %columns, label %by.columns, label %begin.{r}",
                "by.columns:",
                (
                    f"  call void @{_column_name(dtype)}(ptr %w.at, ptr %image, ptr %offsets, ptr %c.at, i64 %c_row, "
                    f"i64 %height, i64 %width, i64 %pitch, ptr %bias.at, {element} %low)"
                ),
                "  br label %output.next",
            ]
        lines += [
            f"begin.{r}:",
            f"  %rows.{r} = call i64 @llvm.smin.i64(i64 %left, i64 {r})",
            f"  br label %line.{r}",
            # all positions are one line, or each row is
            f"line.{r}:",
            f"  %line.number.{r} = phi i64 [ 0, %begin.{r} ], [ %line.next.{r}, %line.done.{r} ]",
            f"  %line.first.{r} = mul i64 %line.number.{r}, %pitch",
            f"  %line.end.{r} = add i64 %line.first.{r}, %line",
            f"  %line.next.{r} = add i64 %line.number.{r}, 1",
            f"  %y.end.{r} = select i1 %by.row, i64 %line.next.{r}, i64 %height",
            f"  br label %place.{r}",
            f"place.{r}:",
            f"  %q.{r} = phi i64 [ %line.first.{r}, %line.{r} ], [ %q.next.{r}, %place.next.{r} ]",
            f"  %q.left.{r} = sub i64 %line.end.{r}, %q.{r}",
            f"  %y.{r} = sdiv i64 %q.{r}, %pitch",
            f"  %at.{r} = getelementptr {element}, ptr %image, i64 %q.{r}",
            f"  br label %vectors.{r}.{tile_vectors(r)[0]}",
        ]
        for v, fewer in zip(tile_vectors(r), (*tile_vectors(r)[1:], 0), strict=True):
            lines.append(f"vectors.{r}.{v}:")
            if fewer:
                lines += [
                    f"  %wide.{r}.{v} = icmp sgt i64 %q.left.{r}, {fewer * lanes}",
                    f"  br i1 %wide.{r}.{v}, label %tile.{r}.{v}, label %vectors.{r}.{fewer}",
                    f"tile.{r}.{v}:",
                ]
            lines += [
                (
                    f"  call void @{_tile_name(dtype, r, v)}(ptr %w.at, i64 %w_row, ptr %at.{r}, ptr %offsets, i64 %k, "
                    f"ptr %c.at, i64 %c_out, i64 %c_row, i64 %rows.{r}, i64 %q.{r}, i64 %y.{r}, i64 %y.end.{r}, "
                    f"i64 %width, i64 %pitch, ptr %bias.at, i64 %bias_step, {element} %low)"
                ),
                f"  br label %place.next.{r}",
            ]
        lines += [
            f"place.next.{r}:",
            f"  %q.next.{r} = add i64 %q.{r}, {tile_vectors(r)[0] * lanes}",
            f"  %q.more.{r} = icmp slt i64 %q.next.{r}, %line.end.{r}",
            f"  br i1 %q.more.{r}, label %place.{r}, label %line.done.{r}",
            f"line.done.{r}:",
            f"  %line.more.{r} = icmp slt i64 %line.next.{r}, %lines",
            f"  br i1 %line.more.{r}, label %line.{r}, label %output.next",
        ]
    steps = ", ".join(f"[ %rows.{r}, %line.done.{r} ]" for r in rows)
    lines += [
        "output.next:",
        f"  %o.step = phi i64 {steps}, [ 1, %by.columns ]",
        "  %o.next = add i64 %o, %o.step",
        "  %o.more = icmp slt i64 %o.next, %outputs",
        "  br i1 %o.more, label %output, label %end",
        "end:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


def _declarations(dtype: DType, target: Target) -> Iterator[str]:
    element, size, lanes = REGISTER_TYPE[dtype.name], dtype.itemsize, _lanes(dtype, target)
    vector, mask, suffix = f"<{lanes} x {element}>", f"<{lanes} x i1>", f"v{lanes}f{8 * size}"
    yield "declare i64 @llvm.smin.i64(i64, i64)"
    yield "declare i64 @llvm.smax.i64(i64, i64)"
    yield "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
    yield f"declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})"
    yield f"declare {vector} @llvm.masked.load.{suffix}.p0(ptr, i32, {mask}, {vector})"
    yield f"declare void @llvm.masked.store.{suffix}.p0({vector}, ptr, i32, {mask})"


def emit_convolve(dtype: DType, target: Target) -> tuple[list[str], list[str]]:
    """(declarations, functions) for float32 or float64."""
    assert (tile_vectors(1)[0] + 1) * _lanes(dtype, target) <= UNFOLD_SLACK
    tiles = [_tile(dtype, target, r, v) for r in tile_rows(target) for v in tile_vectors(r)]
    return list(_declarations(dtype, target)), [
        *tiles,
        _columns(dtype, target),
        _driver(dtype, target),
        unfold_text(dtype, target),
    ]
