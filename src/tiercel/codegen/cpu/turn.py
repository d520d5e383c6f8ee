"""Transposing a matrix as LLVM text. Part of the runtime library.

In: a dtype and a `Target`. Out: `turn(source, source_row, target, target_row, m, n)`, which writes
`target[j, i] = source[i, j]` for i < m and j < n. Rows of both are contiguous, strides are in elements. Nothing beyond
the m x n elements is read or written.

Square blocks of one vector by one vector are transposed in registers: at distance d the elements of rows i and i + d
that lie on the wrong side are exchanged, for d = 1, 2, 4, ... (Eklundh, "A fast computer method for matrix
transposing", IEEE Trans. Comput. C-21, 1972). At the edges a row that is missing is read as
the last one there is, and what does not exist is not stored.
"""

from __future__ import annotations

from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.text import REGISTER_TYPE, first_lanes
from tiercel.dtypes import DType


def turn_name(dtype: DType) -> str:
    """The entry point."""
    return f"tc.turn.{dtype.name}"


def emit_turn(dtype: DType, target: Target) -> tuple[list[str], str]:
    """(declarations, function) for float32 or float64."""
    element, size = REGISTER_TYPE[dtype.name], dtype.itemsize
    lanes = target.vector_bytes // size
    vector, mask, counts = f"<{lanes} x {element}>", f"<{lanes} x i1>", f"<{lanes} x i32>"
    suffix = f"v{lanes}f{8 * size}"
    load, store = f"llvm.masked.load.{suffix}.p0", f"llvm.masked.store.{suffix}.p0"
    declarations = [
        "declare i64 @llvm.smin.i64(i64, i64)",
        f"declare {vector} @{load}(ptr, i32, {mask}, {vector})",
        f"declare void @{store}({vector}, ptr, i32, {mask})",
    ]

    lines = [
        (
            f"define void @{turn_name(dtype)}(ptr noalias %source, i64 %source_row, ptr noalias %target, "
            "i64 %target_row, i64 %m, i64 %n) {"
        ),
        "entry:",
        "  %no.m = icmp sle i64 %m, 0",
        "  %no.n = icmp sle i64 %n, 0",
        "  %nothing = or i1 %no.m, %no.n",
        "  br i1 %nothing, label %end, label %rows",
        "rows:",
        "  %i = phi i64 [ 0, %entry ], [ %i.next, %rows.next ]",
        "  %rows.left = sub i64 %m, %i",
        *first_lanes("there", "%rows.left", lanes),
        "  %last.row = sub i64 %there.few, 1",
        "  br label %columns",
        "columns:",
        "  %j = phi i64 [ 0, %rows ], [ %j.next, %columns ]",
        "  %columns.left = sub i64 %n, %j",
        *first_lanes("some", "%columns.left", lanes),
    ]
    for r in range(lanes):
        lines += [
            f"  %row.{r} = call i64 @llvm.smin.i64(i64 {r}, i64 %last.row)",
            f"  %from.row.{r} = add i64 %i, %row.{r}",
            f"  %from.off.{r} = mul i64 %from.row.{r}, %source_row",
            f"  %from.all.{r} = add i64 %from.off.{r}, %j",
            f"  %from.{r} = getelementptr {element}, ptr %source, i64 %from.all.{r}",
            f"  %x0.{r} = call {vector} @{load}(ptr %from.{r}, i32 {size}, {mask} %some, {vector} zeroinitializer)",
        ]
    stage, distance = 0, 1
    while distance < lanes:
        low = ", ".join(f"i32 {i if i & distance == 0 else lanes + i - distance}" for i in range(lanes))
        high = ", ".join(f"i32 {i + distance if i & distance == 0 else lanes + i}" for i in range(lanes))
        for r in range(lanes):
            if r & distance:
                continue
            pair = f"{vector} %x{stage}.{r}, {vector} %x{stage}.{r + distance}"
            lines += [
                f"  %x{stage + 1}.{r} = shufflevector {pair}, {counts} <{low}>",
                f"  %x{stage + 1}.{r + distance} = shufflevector {pair}, {counts} <{high}>",
            ]
        stage, distance = stage + 1, distance * 2
    for c in range(lanes):
        lines += [
            f"  %is.{c} = icmp sgt i64 %columns.left, {c}",
            f"  %kept.{c} = select i1 %is.{c}, {mask} %there, {mask} zeroinitializer",
            f"  %to.row.{c} = add i64 %j, {c}",
            f"  %to.off.{c} = mul i64 %to.row.{c}, %target_row",
            f"  %to.all.{c} = add i64 %to.off.{c}, %i",
            f"  %to.{c} = getelementptr {element}, ptr %target, i64 %to.all.{c}",
            f"  call void @{store}({vector} %x{stage}.{c}, ptr %to.{c}, i32 {size}, {mask} %kept.{c})",
        ]
    lines += [
        f"  %j.next = add i64 %j, {lanes}",
        "  %j.more = icmp slt i64 %j.next, %n",
        "  br i1 %j.more, label %columns, label %rows.next",
        "rows.next:",
        f"  %i.next = add i64 %i, {lanes}",
        "  %i.more = icmp slt i64 %i.next, %m",
        "  br i1 %i.more, label %rows, label %end",
        "end:",
        "  ret void",
        "}",
    ]
    return declarations, "\n".join(lines)
