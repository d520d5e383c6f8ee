"""Convolution in registers as LLVM text: a tile of outputs x positions summed over taps. Part of the runtime library.

In: a dtype and a `Target`. Out: two functions (names in `convolve_names`); strides are in elements.

* `unfold(source, channel, row, column, channels, height, width, target, top, left, rows, pitch, down, across)` lays a
  part of an image out so that every tap of a window is a shift. Rows and columns of the image, the first of them `top`
  and `left` (negative: padding, which reads as 0), are dealt to `down * across` planes by what is left of their numbers
  after dividing by the strides `down` and `across`; a plane has `rows` rows of `pitch` elements, and
  `UNFOLD_SLACK` more that are zeros or numbers of the image. Channels are outermost, then what is left of rows, then of
  columns.
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
        "  br i1 %nothing, label %end, label %output",
        "output:",
        "  %o = phi i64 [ 0, %entry ], [ %o.next, %output.next ]",
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
            lines.append(f"  br label %begin.{r}")
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
        f"  %o.step = phi i64 {steps}",
        "  %o.next = add i64 %o, %o.step",
        "  %o.more = icmp slt i64 %o.next, %outputs",
        "  br i1 %o.more, label %output, label %end",
        "end:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


def _unfold(dtype: DType, target: Target) -> str:
    """Channels, rows of the image, and in them one or two columns' planes by vectors, or element by element."""
    element, size, lanes = REGISTER_TYPE[dtype.name], dtype.itemsize, _lanes(dtype, target)
    vector, mask, counts = f"<{lanes} x {element}>", f"<{lanes} x i1>", f"<{lanes} x i32>"
    suffix, ones = f"v{lanes}f{8 * size}", ", ".join(["i1 true"] * lanes)

    def read(name: str, first: str, base: str, vectors: int) -> list[str]:
        """Vectors of elements from column `first` on of the row at `base`, 0 where there are none."""
        parts = range(vectors)
        lines = [f"  %{name}.at.{i} = getelementptr {element}, ptr %{name}.base, i64 {i * lanes}" for i in parts]
        lines = [
            f"  %{name}.base = getelementptr {element}, ptr {base}, i64 {first}",
            *lines,
            f"  %{name}.last = add i64 {first}, {vectors * lanes}",
            f"  %{name}.low = icmp sge i64 {first}, 0",
            f"  %{name}.high = icmp sle i64 %{name}.last, %width",
            f"  %{name}.inside = and i1 %{name}.low, %{name}.high",
            f"  br i1 %{name}.inside, label %{name}.whole, label %{name}.edge",
            f"{name}.whole:",
        ]
        lines += [f"  %{name}.w.{i} = load {vector}, ptr %{name}.at.{i}, align {size}" for i in parts]
        lines += [f"  br label %{name}.read", f"{name}.edge:"]
        for i in parts:
            lines.append(f"  %{name}.first.{i} = add i64 {first}, {i * lanes}")
            lines += edge(f"{name}.e.{i}", f"%{name}.first.{i}", f"%{name}.at.{i}")
        lines += [f"  br label %{name}.read", f"{name}.read:"]
        lines += [
            f"  %{name}.{i} = phi {vector} [ %{name}.w.{i}, %{name}.whole ], [ %{name}.e.{i}, %{name}.edge ]"
            for i in parts
        ]
        return lines

    def edge(name: str, first: str, at: str) -> list[str]:
        """A vector some of whose columns there may be."""
        out = [f"  %{name}.before = sub i64 0, {first}", f"  %{name}.after = sub i64 %width, {first}"]
        for part, place in (("skip", "before"), ("take", "after")):
            out += [
                f"  %{name}.{part}.some = call i64 @llvm.smax.i64(i64 %{name}.{place}, i64 0)",
                *first_lanes(f"{name}.{part}", f"%{name}.{part}.some", lanes),
            ]
        return [
            *out,
            f"  %{name}.not = xor {mask} %{name}.skip, <{ones}>",
            f"  %{name}.mask = and {mask} %{name}.take, %{name}.not",
            (
                f"  %{name} = call {vector} @llvm.masked.load.{suffix}.p0(ptr {at}, i32 {size}, "
                f"{mask} %{name}.mask, {vector} zeroinitializer)"
            ),
        ]

    even = ", ".join(f"i32 {2 * i}" for i in range(lanes))
    odd = ", ".join(f"i32 {2 * i + 1}" for i in range(lanes))
    lines = [
        (
            f"define void @{convolve_names(dtype)[1]}(ptr noalias %source, i64 %channel, i64 %row, i64 %column, "
            "i64 %channels, i64 %height, i64 %width, ptr noalias %target, i64 %top, i64 %left, i64 %rows, i64 %pitch, "
            "i64 %down, i64 %across) {"
        ),
        "entry:",
        "  %area = mul i64 %rows, %pitch",
        f"  %plane = add i64 %area, {UNFOLD_SLACK}",
        "  %band = mul i64 %plane, %across",
        "  %each = mul i64 %band, %down",
        "  %lines = mul i64 %rows, %down",
        "  %planes = mul i64 %down, %across",
        "  %no.channels = icmp sle i64 %channels, 0",
        "  %no.lines = icmp sle i64 %lines, 0",
        "  %no.columns = icmp sle i64 %pitch, 0",
        "  %none = or i1 %no.channels, %no.lines",
        "  %nothing = or i1 %none, %no.columns",
        "  %is.row = icmp eq i64 %column, 1",
        "  %is.one = icmp eq i64 %across, 1",
        "  %is.two = icmp eq i64 %across, 2",
        "  %by.one = and i1 %is.row, %is.one",
        "  %by.two = and i1 %is.row, %is.two",
        "  br i1 %nothing, label %end, label %image",
        "image:",
        "  %c = phi i64 [ 0, %entry ], [ %c.next, %image.next ]",
        "  %c.from = mul i64 %c, %channel",
        f"  %c.source = getelementptr {element}, ptr %source, i64 %c.from",
        "  %c.to = mul i64 %c, %each",
        f"  %c.target = getelementptr {element}, ptr %target, i64 %c.to",
        "  br label %slack",
        # numbers of other arrays would raise flags of their own
        "slack:",
        "  %s = phi i64 [ 0, %image ], [ %s.next, %slack ]",
        "  %s.plane = mul i64 %s, %plane",
        "  %s.off = add i64 %s.plane, %area",
        f"  %s.to = getelementptr {element}, ptr %c.target, i64 %s.off",
        *(
            line
            for i in range(UNFOLD_SLACK // lanes)
            for line in (
                f"  %s.to.{i} = getelementptr {element}, ptr %s.to, i64 {i * lanes}",
                f"  store {vector} zeroinitializer, ptr %s.to.{i}, align {size}",
            )
        ),
        "  %s.next = add i64 %s, 1",
        "  %s.more = icmp slt i64 %s.next, %planes",
        "  br i1 %s.more, label %slack, label %line",
        "line:",
        "  %l = phi i64 [ 0, %slack ], [ %l.next, %line.next ]",
        "  %r = sdiv i64 %l, %down",
        "  %r.first = mul i64 %r, %down",
        "  %a = sub i64 %l, %r.first",
        "  %a.off = mul i64 %a, %band",
        "  %r.off = mul i64 %r, %pitch",
        "  %to.off = add i64 %a.off, %r.off",
        f"  %to = getelementptr {element}, ptr %c.target, i64 %to.off",
        "  %y = add i64 %top, %l",
        "  %y.off = mul i64 %y, %row",
        f"  %from = getelementptr {element}, ptr %c.source, i64 %y.off",
        "  %y.low = icmp sge i64 %y, 0",
        "  %y.high = icmp slt i64 %y, %height",
        "  %y.there = and i1 %y.low, %y.high",
        "  br i1 %y.there, label %kind, label %blank",
        # a row of the padding
        "blank:",
        "  %z.b = phi i64 [ 0, %line ], [ %z.b.next, %blank.next ]",
        "  %z.off = mul i64 %z.b, %plane",
        f"  %z.to = getelementptr {element}, ptr %to, i64 %z.off",
        "  br label %zero",
        "zero:",
        "  %z = phi i64 [ 0, %blank ], [ %z.next, %zero ]",
        f"  %z.at = getelementptr {element}, ptr %z.to, i64 %z",
        f"  store {vector} zeroinitializer, ptr %z.at, align {size}",
        f"  %z.next = add i64 %z, {lanes}",
        "  %z.more = icmp slt i64 %z.next, %pitch",
        "  br i1 %z.more, label %zero, label %blank.next",
        "blank.next:",
        "  %z.b.next = add i64 %z.b, 1",
        "  %z.b.more = icmp slt i64 %z.b.next, %across",
        "  br i1 %z.b.more, label %blank, label %line.next",
        "kind:",
        "  br i1 %by.one, label %one, label %not.one",
        "not.one:",
        "  br i1 %by.two, label %two, label %phase",
        "one:",
        "  %j = phi i64 [ 0, %kind ], [ %j.next, %v.read ]",
        "  %x = add i64 %left, %j",
        *read("v", "%x", "%from", 1),
        f"  %v.to = getelementptr {element}, ptr %to, i64 %j",
        f"  store {vector} %v.0, ptr %v.to, align {size}",
        f"  %j.next = add i64 %j, {lanes}",
        "  %j.more = icmp slt i64 %j.next, %pitch",
        "  br i1 %j.more, label %one, label %line.next",
        "two:",
        "  %p = phi i64 [ 0, %not.one ], [ %p.next, %u.read ]",
        "  %p.2 = mul i64 %p, 2",
        "  %x.2 = add i64 %left, %p.2",
        *read("u", "%x.2", "%from", 2),
        f"  %even = shufflevector {vector} %u.0, {vector} %u.1, {counts} <{even}>",
        f"  %odd = shufflevector {vector} %u.0, {vector} %u.1, {counts} <{odd}>",
        f"  %even.to = getelementptr {element}, ptr %to, i64 %p",
        f"  %odd.to = getelementptr {element}, ptr %even.to, i64 %plane",
        f"  store {vector} %even, ptr %even.to, align {size}",
        f"  store {vector} %odd, ptr %odd.to, align {size}",
        f"  %p.next = add i64 %p, {lanes}",
        "  %p.more = icmp slt i64 %p.next, %pitch",
        "  br i1 %p.more, label %two, label %line.next",
        # any strides: element by element
        "phase:",
        "  %b = phi i64 [ 0, %not.one ], [ %b.next, %phase.next ]",
        "  %b.off = mul i64 %b, %plane",
        f"  %b.to = getelementptr {element}, ptr %to, i64 %b.off",
        "  %b.first = add i64 %left, %b",
        "  br label %element",
        "element:",
        "  %e = phi i64 [ 0, %phase ], [ %e.next, %element ]",
        "  %e.step = mul i64 %e, %across",
        "  %e.x = add i64 %b.first, %e.step",
        "  %e.low = icmp sge i64 %e.x, 0",
        "  %e.high = icmp slt i64 %e.x, %width",
        "  %e.there = and i1 %e.low, %e.high",
        "  %e.safe = select i1 %e.there, i64 %e.x, i64 0",
        "  %e.off = mul i64 %e.safe, %column",
        f"  %e.from = getelementptr {element}, ptr %from, i64 %e.off",
        "  %no.width = icmp sle i64 %width, 0",
        "  %e.at = select i1 %no.width, ptr %b.to, ptr %e.from",
        f"  %e.value = load {element}, ptr %e.at, align {size}",
        f"  %e.kept = select i1 %e.there, {element} %e.value, {element} 0.0",
        f"  %e.to = getelementptr {element}, ptr %b.to, i64 %e",
        f"  store {element} %e.kept, ptr %e.to, align {size}",
        "  %e.next = add i64 %e, 1",
        "  %e.more = icmp slt i64 %e.next, %pitch",
        "  br i1 %e.more, label %element, label %phase.next",
        "phase.next:",
        "  %b.next = add i64 %b, 1",
        "  %b.more = icmp slt i64 %b.next, %across",
        "  br i1 %b.more, label %phase, label %line.next",
        "line.next:",
        "  %l.next = add i64 %l, 1",
        "  %l.more = icmp slt i64 %l.next, %lines",
        "  br i1 %l.more, label %line, label %image.next",
        "image.next:",
        "  %c.next = add i64 %c, 1",
        "  %c.more = icmp slt i64 %c.next, %channels",
        "  br i1 %c.more, label %image, label %end",
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
    return list(_declarations(dtype, target)), [*tiles, _driver(dtype, target), _unfold(dtype, target)]
