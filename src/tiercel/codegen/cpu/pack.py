"""Packing a matrix into panels as LLVM text: contiguous rows are copied, contiguous columns transposed in registers.

In: a dtype and a `Target`. Out: `pack(b, b_row, b_col, panels, n, k)`: b, (k, n) with any strides, into panels of
`panel_columns` columns; each panel is k rows of that many elements, the last one is filled up with zeros. Nothing
beyond b is read.
"""

from __future__ import annotations

from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.text import REGISTER_TYPE
from tiercel.codegen.cpu.tile import panel_columns, tile_shape
from tiercel.dtypes import DType

AHEAD_BYTES = 512
"""How far ahead in a column it is asked for the next elements: the columns of a panel are more streams than the
processor follows by itself."""


def pack_text(name: str, dtype: DType, target: Target, vectors: int = 0) -> str:
    """The function, for panels of so many vectors."""
    element, size = REGISTER_TYPE[dtype.name], dtype.itemsize
    lanes, width = target.vector_bytes // size, tile_shape(target, vectors)[1]
    columns = panel_columns(dtype, target, vectors)
    vector, mask, counts = f"<{lanes} x {element}>", f"<{lanes} x i1>", f"<{lanes} x i32>"
    suffix, ramp = f"v{lanes}f{8 * size}", ", ".join(f"i32 {i}" for i in range(lanes))
    squares = range(width)

    def first_lanes(count: str, hint: str) -> list[str]:
        """A mask of so many (an i64) first lanes, as %hint."""
        return [
            f"  %{hint}.some = call i64 @llvm.smax.i64(i64 {count}, i64 0)",
            f"  %{hint}.few = call i64 @llvm.smin.i64(i64 %{hint}.some, i64 {lanes})",
            f"  %{hint}.count = trunc i64 %{hint}.few to i32",
            f"  %{hint}.one = insertelement {counts} poison, i32 %{hint}.count, i64 0",
            f"  %{hint}.all = shufflevector {counts} %{hint}.one, {counts} poison, {counts} zeroinitializer",
            f"  %{hint} = icmp slt {counts} <{ramp}>, %{hint}.all",
        ]

    lines = [
        f"define void @{name}(ptr noalias %b, i64 %b_row, i64 %b_col, ptr noalias %out, i64 %n, i64 %k) {{",
        "entry:",
        "  %no.n = icmp sle i64 %n, 0",
        "  %no.k = icmp sle i64 %k, 0",
        "  %nothing = or i1 %no.n, %no.k",
        "  %rows = icmp eq i64 %b_col, 1",
        "  %cols = icmp eq i64 %b_row, 1",
        "  br i1 %nothing, label %end, label %panel",
        "panel:",
        "  %n0 = phi i64 [ 0, %entry ], [ %n.next, %panel.next ]",
        "  %panel.off = mul i64 %n0, %k",
        f"  %to = getelementptr {element}, ptr %out, i64 %panel.off",
        "  %from.off = mul i64 %n0, %b_col",
        f"  %from = getelementptr {element}, ptr %b, i64 %from.off",
        "  %n.left = sub i64 %n, %n0",
        "  br i1 %rows, label %row.masks, label %not.rows",
        "not.rows:",
        "  br i1 %cols, label %square.row, label %column",
        # rows are contiguous: copy them
        "row.masks:",
    ]
    for v in squares:
        lines += [f"  %left.{v} = sub i64 %n.left, {v * lanes}", *first_lanes(f"%left.{v}", f"mask.{v}")]
    lines += [
        "  br label %row",
        "row:",
        "  %ri = phi i64 [ 0, %row.masks ], [ %ri.next, %row ]",
        "  %r.off = mul i64 %ri, %b_row",
        f"  %r.from = getelementptr {element}, ptr %from, i64 %r.off",
        "  %r.ahead = mul i64 %b_row, 16",
        f"  %r.ask = getelementptr {element}, ptr %r.from, i64 %r.ahead",
        f"  %r.to.off = mul i64 %ri, {columns}",
        f"  %r.to = getelementptr {element}, ptr %to, i64 %r.to.off",
    ]
    for line in range(0, width * target.vector_bytes, 64):
        lines += [
            f"  %r.ask.{line} = getelementptr i8, ptr %r.ask, i64 {line}",
            f"  call void @llvm.prefetch.p0(ptr %r.ask.{line}, i32 0, i32 3, i32 1)",
        ]
    for v in squares:
        lines += [
            f"  %r.at.{v} = getelementptr {element}, ptr %r.from, i64 {v * lanes}",
            (
                f"  %r.{v} = call {vector} @llvm.masked.load.{suffix}.p0(ptr %r.at.{v}, i32 {size}, {mask} %mask.{v}, "
                f"{vector} zeroinitializer)"
            ),
            f"  %r.to.{v} = getelementptr {element}, ptr %r.to, i64 {v * lanes}",
            f"  store {vector} %r.{v}, ptr %r.to.{v}, align {size}",
        ]
    lines += [
        "  %ri.next = add i64 %ri, 1",
        "  %r.more = icmp slt i64 %ri.next, %k",
        "  br i1 %r.more, label %row, label %panel.next",
        # columns are contiguous: squares of vectors, transposed
        "square.row:",
        "  %s0 = phi i64 [ 0, %not.rows ], [ %s0.next, %square.row.next ]",
        "  br label %square",
        "square:",
        "  %j0 = phi i64 [ 0, %square.row ], [ %j0.next, %square.write ]",
        "  %k.left = sub i64 %k, %s0",
        *first_lanes("%k.left", "kmask"),
        "  %j.off = mul i64 %j0, %b_col",
        "  %j.from.off = add i64 %j.off, %s0",
        f"  %j.from = getelementptr {element}, ptr %from, i64 %j.from.off",
        "  %j.left = sub i64 %n.left, %j0",
        f"  %none = insertelement {mask} zeroinitializer, i1 false, i64 0",
    ]
    for c in range(lanes):
        lines += [
            f"  %there.{c} = icmp sgt i64 %j.left, {c}",
            f"  %cmask.{c} = select i1 %there.{c}, {mask} %kmask, {mask} %none",
            f"  %c.off.{c} = mul i64 %b_col, {c}",
            f"  %c.at.{c} = getelementptr {element}, ptr %j.from, i64 %c.off.{c}",
            f"  %c.ask.{c} = getelementptr i8, ptr %c.at.{c}, i64 {AHEAD_BYTES}",
            f"  call void @llvm.prefetch.p0(ptr %c.ask.{c}, i32 0, i32 3, i32 1)",
            (
                f"  %t.0.{c} = call {vector} @llvm.masked.load.{suffix}.p0(ptr %c.at.{c}, i32 {size}, "
                f"{mask} %cmask.{c}, {vector} zeroinitializer)"
            ),
        ]
    stages = lanes.bit_length() - 1
    half = lanes // 2
    low = ", ".join(f"i32 {x}" for i in range(half) for x in (i, lanes + i))
    high = ", ".join(f"i32 {x}" for i in range(half, lanes) for x in (i, lanes + i))
    for stage in range(stages):
        for i in range(half):
            a, b = f"{vector} %t.{stage}.{i}", f"{vector} %t.{stage}.{i + half}"
            lines += [
                f"  %t.{stage + 1}.{2 * i} = shufflevector {a}, {b}, {counts} <{low}>",
                f"  %t.{stage + 1}.{2 * i + 1} = shufflevector {a}, {b}, {counts} <{high}>",
            ]
    lines += [
        f"  %s.to.off = mul i64 %s0, {columns}",
        "  %s.to.at = add i64 %s.to.off, %j0",
        f"  %s.to = getelementptr {element}, ptr %to, i64 %s.to.at",
        f"  %s.full = icmp sge i64 %k.left, {lanes}",
        "  br i1 %s.full, label %square.whole, label %square.some",
        "square.whole:",
    ]
    for r in range(lanes):
        lines += [
            f"  %w.to.{r} = getelementptr {element}, ptr %s.to, i64 {r * columns}",
            f"  store {vector} %t.{stages}.{r}, ptr %w.to.{r}, align {size}",
        ]
    lines += ["  br label %square.write", "square.some:", "  br label %some.0"]
    for r in range(lanes):
        after = f"some.{r + 1}" if r + 1 < lanes else "square.write"
        lines += [
            f"some.{r}:",
            f"  %s.there.{r} = icmp sgt i64 %k.left, {r}",
            f"  br i1 %s.there.{r}, label %some.{r}.store, label %square.write",
            f"some.{r}.store:",
            f"  %s.to.{r} = getelementptr {element}, ptr %s.to, i64 {r * columns}",
            f"  store {vector} %t.{stages}.{r}, ptr %s.to.{r}, align {size}",
            f"  br label %{after}",
        ]
    lines += [
        "square.write:",
        f"  %j0.next = add i64 %j0, {lanes}",
        f"  %j.more = icmp slt i64 %j0.next, {columns}",
        "  br i1 %j.more, label %square, label %square.row.next",
        "square.row.next:",
        f"  %s0.next = add i64 %s0, {lanes}",
        "  %s.more = icmp slt i64 %s0.next, %k",
        "  br i1 %s.more, label %square.row, label %panel.next",
        # neither: element by element
        "column:",
        "  %j = phi i64 [ 0, %not.rows ], [ %j.next, %column.next ]",
        "  %inside = icmp slt i64 %j, %n.left",
        "  %col.off = mul i64 %j, %b_col",
        "  %safe.off = select i1 %inside, i64 %col.off, i64 0",
        f"  %col.from = getelementptr {element}, ptr %from, i64 %safe.off",
        f"  %col.to = getelementptr {element}, ptr %to, i64 %j",
        "  br label %one",
        "one:",
        "  %i = phi i64 [ 0, %column ], [ %i.next, %one ]",
        "  %src.off = mul i64 %i, %b_row",
        f"  %src = getelementptr {element}, ptr %col.from, i64 %src.off",
        f"  %value = load {element}, ptr %src, align {size}",
        f"  %kept = select i1 %inside, {element} %value, {element} 0.0",
        f"  %dst.off = mul i64 %i, {columns}",
        f"  %dst = getelementptr {element}, ptr %col.to, i64 %dst.off",
        f"  store {element} %kept, ptr %dst, align {size}",
        "  %i.next = add i64 %i, 1",
        "  %i.more = icmp slt i64 %i.next, %k",
        "  br i1 %i.more, label %one, label %column.next",
        "column.next:",
        "  %j.next = add i64 %j, 1",
        f"  %col.more = icmp slt i64 %j.next, {columns}",
        "  br i1 %col.more, label %column, label %panel.next",
        "panel.next:",
        f"  %n.next = add i64 %n0, {columns}",
        "  %n.more = icmp slt i64 %n.next, %n",
        "  br i1 %n.more, label %panel, label %end",
        "end:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)
