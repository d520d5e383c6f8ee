"""Products of many short contiguous rows with one vector as LLVM text. Part of the runtime library.

In: a dtype and a `Target`. Out: `dots(a, a_row, x, y, m, k)`: y[i] = sum over j of a[i, j] * x[j] for i < m, all of
them contiguous but for the distance of the rows. Nothing beyond the operands is read or written.

Why beside `gemv`: with short rows (64 elements are four vectors) adding the lanes of each row costs more than the row.
Here as many rows as a vector has lanes are summed at once, one vector each, and these vectors are added like a
transposition: at distance d the halves of rows i and i + d are exchanged and added, so n vectors take n - 1 additions
and end as one vector of n sums. Rows beyond m are read as the last one, and not stored. The order of a sum does not
depend on m. Long rows would fall into the same sets of the cache: `LONGEST` says up to where this is used.

Rows of the usual sizes of heads (`WHOLE` vectors) are read one after the other, x waiting in registers: where they lie
side by side that is one stream, which the processor reads ahead by itself. In the general loop the rows are read side
by side, one vector of each, which halves the speed once they come from beyond the second-level cache. The order of
sums is the same.
"""

from __future__ import annotations

from typing import Final

from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.text import REGISTER_TYPE, first_lanes
from tiercel.dtypes import DType

LONGEST = 256
"""Elements of the longest row for which this is meant."""
WHOLE: Final = (2, 4, 8)
"""Vectors of a row for which x is held in registers."""


def dots_name(dtype: DType) -> str:
    """The entry point."""
    return f"tc.dots.{dtype.name}"


def emit_dots(dtype: DType, target: Target, long_rows: str = "") -> tuple[list[str], str]:
    """(declarations, function) for float32 or float64; `long_rows` is the `gemv` that long rows are left to."""
    element, size = REGISTER_TYPE[dtype.name], dtype.itemsize
    lanes = target.vector_bytes // size
    vector, mask, counts = f"<{lanes} x {element}>", f"<{lanes} x i1>", f"<{lanes} x i32>"
    suffix = f"v{lanes}f{8 * size}"
    load, store = f"llvm.masked.load.{suffix}.p0", f"llvm.masked.store.{suffix}.p0"
    declarations = [
        "declare i64 @llvm.smin.i64(i64, i64)",
        f"declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})",
        f"declare {vector} @{load}(ptr, i32, {mask}, {vector})",
        f"declare void @{store}({vector}, ptr, i32, {mask})",
    ]

    def add_products(part: str, sums: str, masked: bool) -> list[str]:
        """Loads of x and of every row at %{part}.j, and the sums %{part}.new.r from %{sums}.sum.r."""
        out = [f"  %{part}.x.at = getelementptr {element}, ptr %x, i64 %{part}.j"]

        def read(name: str, at: str) -> str:
            if masked:
                given = f"ptr {at}, i32 {size}, {mask} %rest, {vector} zeroinitializer"
                return f"  {name} = call {vector} @{load}({given})"
            return f"  {name} = load {vector}, ptr {at}, align {size}"

        out.append(read(f"%{part}.x", f"%{part}.x.at"))
        for r in range(lanes):
            a = f"%{part}.a.{r}"
            out += [
                f"  {a}.at = getelementptr {element}, ptr %row.{r}, i64 %{part}.j",
                read(a, f"{a}.at"),
                (
                    f"  %{part}.new.{r} = call {vector} @llvm.fma.{suffix}"
                    f"({vector} {a}, {vector} %{part}.x, {vector} %{sums}.sum.{r})"
                ),
            ]
        return out

    lines = [
        (
            f"define void @{dots_name(dtype)}(ptr noalias %a, i64 %a_row, ptr noalias %x, ptr noalias %y, "
            "i64 %m, i64 %k) {"
        ),
        "entry:",
        "  %none = icmp sle i64 %m, 0",
        f"  %blocks = sdiv i64 %k, {lanes}",
        f"  %whole = mul i64 %blocks, {lanes}",
        "  %left.k = sub i64 %k, %whole",
        "  %is.left = icmp sgt i64 %left.k, 0",
        "  %is.whole = icmp sgt i64 %whole, 0",
        *first_lanes("rest", "%left.k", lanes),
        f"  %long = icmp sgt i64 %k, {LONGEST if long_rows else (1 << 62)}",
        "  br i1 %none, label %end, label %some",
        "some:",
        "  br i1 %long, label %given, label %rows",
        "given:",
    ]
    if long_rows:
        given = "ptr %a, i64 %a_row, ptr %x, i64 1, ptr %y, i64 1, i64 %m, i64 %k, i1 false"
        lines.append(f"  call void @{long_rows}({given})")
    lines += [
        "  br label %end",
        "rows:",
        "  %i = phi i64 [ 0, %some ], [ %i.next, %fold ]",
        "  %left = sub i64 %m, %i",
        *first_lanes("there", "%left", lanes),
        "  %last = sub i64 %there.few, 1",
    ]
    for r in range(lanes):
        lines += [
            f"  %few.{r} = call i64 @llvm.smin.i64(i64 {r}, i64 %last)",
            f"  %number.{r} = add i64 %i, %few.{r}",
            f"  %off.{r} = mul i64 %number.{r}, %a_row",
            f"  %row.{r} = getelementptr {element}, ptr %a, i64 %off.{r}",
        ]
    held = {count: f"held.{count}" for count in WHOLE}
    lines += [
        "  switch i64 %k, label %other [",
        *(f"    i64 {count * lanes}, label %{label}" for count, label in held.items()),
        "  ]",
    ]
    for count, label in held.items():
        lines.append(f"{label}:")
        for part in range(count):
            lines += [
                f"  %{label}.x.at.{part} = getelementptr {element}, ptr %x, i64 {part * lanes}",
                f"  %{label}.x.{part} = load {vector}, ptr %{label}.x.at.{part}, align {size}",
            ]
        for r in range(lanes):
            total = "zeroinitializer"
            for part in range(count):
                a = f"%{label}.a.{r}.{part}"
                lines += [
                    f"  {a}.at = getelementptr {element}, ptr %row.{r}, i64 {part * lanes}",
                    f"  {a} = load {vector}, ptr {a}.at, align {size}",
                    (
                        f"  {a}.sum = call {vector} @llvm.fma.{suffix}"
                        f"({vector} {a}, {vector} %{label}.x.{part}, {vector} {total})"
                    ),
                ]
                total = f"{a}.sum"
        lines.append("  br label %fold")
    lines += ["other:", "  br i1 %is.whole, label %many, label %tail", "many:"]
    lines.append("  %many.j = phi i64 [ 0, %other ], [ %many.next, %many ]")
    lines += [
        f"  %many.sum.{r} = phi {vector} [ zeroinitializer, %other ], [ %many.new.{r}, %many ]" for r in range(lanes)
    ]
    lines += add_products("many", "many", masked=False)
    lines += [
        f"  %many.next = add i64 %many.j, {lanes}",
        "  %more = icmp slt i64 %many.next, %whole",
        "  br i1 %more, label %many, label %tail",
        "tail:",
    ]
    lines += [
        f"  %tail.sum.{r} = phi {vector} [ zeroinitializer, %other ], [ %many.new.{r}, %many ]" for r in range(lanes)
    ]
    lines += ["  br i1 %is.left, label %part, label %fold", "part:", "  %part.j = add i64 %whole, 0"]
    lines += add_products("part", "tail", masked=True)
    lines += ["  br label %fold", "fold:"]
    for r in range(lanes):
        edges = [f"[ %{label}.a.{r}.{count - 1}.sum, %{label} ]" for count, label in held.items()]
        edges += [f"[ %tail.sum.{r}, %tail ]", f"[ %part.new.{r}, %part ]"]
        lines.append(f"  %s0.{r} = phi {vector} {', '.join(edges)}")
    stage, distance, rows = 0, lanes // 2, lanes
    while rows > 1:
        # rows r and r + rows / 2: lanes of either half of a group of 2 * distance go to one of both
        half = rows // 2
        low = ", ".join(f"i32 {i if i & distance == 0 else lanes + i - distance}" for i in range(lanes))
        high = ", ".join(f"i32 {i + distance if i & distance == 0 else lanes + i}" for i in range(lanes))
        for r in range(half):
            pair = f"{vector} %s{stage}.{r}, {vector} %s{stage}.{r + half}"
            lines += [
                f"  %l{stage}.{r} = shufflevector {pair}, {counts} <{low}>",
                f"  %h{stage}.{r} = shufflevector {pair}, {counts} <{high}>",
                f"  %s{stage + 1}.{r} = fadd {vector} %l{stage}.{r}, %h{stage}.{r}",
            ]
        stage, distance, rows = stage + 1, distance // 2, half
    lines += [
        f"  %to = getelementptr {element}, ptr %y, i64 %i",
        f"  call void @{store}({vector} %s{stage}.0, ptr %to, i32 {size}, {mask} %there)",
        f"  %i.next = add i64 %i, {lanes}",
        "  %again = icmp slt i64 %i.next, %m",
        "  br i1 %again, label %rows, label %end",
        "end:",
        "  ret void",
        "}",
    ]
    return declarations, "\n".join(lines)
