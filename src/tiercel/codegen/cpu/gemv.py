"""Matrix times vector as LLVM text, for matrices whose rows are contiguous: one dot product a row.

In: a dtype and a `Target`. Out: `gemv(a, a_row, x, x_step, y, y_step, m, k, accumulate)`: y[i] = sum over j of
a[i, j] * x[j], or += that. The matrix is read once and nothing is written but y, so this runs at memory speed.

With two vectors at a time, lane l of 2 * lanes sums the products of j = l, l + 2 * lanes, ... in order; then halves of
the lanes are added to halves. The order does not depend on the number of rows. Elements beyond k count as zeros of both
operands.
"""

from __future__ import annotations

from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.text import REGISTER_TYPE
from tiercel.dtypes import DType

ROWS = 4
"""Rows at a time, with two sums each: enough to hide the latency of the multipliers, and one load of x for all. With
more rows their lines of cache may all fall into one set (measured: 41 GB/s with 8 rows of 4 KiB)."""


def gemv_text(name: str, dtype: DType, target: Target) -> list[str]:
    """The functions: blocks of rows, and the entry."""
    entry = [
        (
            f"define void @{name}(ptr noalias %a, i64 %a_row, ptr noalias %x, i64 %x_step, ptr noalias %y, "
            "i64 %y_step, i64 %m, i64 %k, i1 %accumulate) {"
        ),
        "entry:",
        "  %none = icmp sle i64 %m, 0",
        "  br i1 %none, label %end, label %look",
        "look:",
        "  %i = phi i64 [ 0, %entry ], [ %i.many, %many ], [ %i.one, %one ]",
        "  %left = sub i64 %m, %i",
        "  %some = icmp sgt i64 %left, 0",
        "  br i1 %some, label %go, label %end",
        "go:",
        "  %a.off = mul i64 %i, %a_row",
        f"  %a.at = getelementptr {REGISTER_TYPE[dtype.name]}, ptr %a, i64 %a.off",
        "  %y.off = mul i64 %i, %y_step",
        f"  %y.at = getelementptr {REGISTER_TYPE[dtype.name]}, ptr %y, i64 %y.off",
        f"  %block = icmp sge i64 %left, {ROWS}",
        "  br i1 %block, label %many, label %one",
    ]
    given = "ptr %a.at, i64 %a_row, ptr %x, i64 %x_step, ptr %y.at, i64 %y_step, i64 %k, i1 %accumulate"
    for label, rows in (("many", ROWS), ("one", 1)):
        entry += [
            f"{label}:",
            f"  call void @{name}.{rows}({given})",
            f"  %i.{label} = add i64 %i, {rows}",
            "  br label %look",
        ]
    entry += ["end:", "  ret void", "}"]
    return [_rows(name, dtype, target, ROWS), _rows(name, dtype, target, 1), "\n".join(entry)]


def _rows(name: str, dtype: DType, target: Target, rows: int) -> str:
    element, size = REGISTER_TYPE[dtype.name], dtype.itemsize
    half_lanes = target.vector_bytes // size
    lanes = 2 * half_lanes
    vector, mask, counts = f"<{lanes} x {element}>", f"<{lanes} x i1>", f"<{lanes} x i32>"
    suffix, ramp = f"v{lanes}f{8 * size}", ", ".join(f"i32 {i}" for i in range(lanes))
    wide, wide_ramp = f"<{lanes} x i64>", ", ".join(f"i64 {i}" for i in range(lanes))

    def gathered(hint: str, mask_text: str) -> list[str]:
        """The elements of x numbered %hint.at."""
        given = f"<{lanes} x ptr> %{hint}.ptr, i32 {size}, {mask} {mask_text}, {vector} zeroinitializer"
        return [
            f"  %{hint}.s = insertelement {wide} poison, i64 %x_step, i64 0",
            f"  %{hint}.ss = shufflevector {wide} %{hint}.s, {wide} poison, {counts} zeroinitializer",
            f"  %{hint}.off = mul {wide} %{hint}.at, %{hint}.ss",
            f"  %{hint}.ptr = getelementptr {element}, ptr %x, {wide} %{hint}.off",
            f"  %{hint}.x = call {vector} @llvm.masked.gather.{suffix}.v{lanes}p0({given})",
        ]

    out = [
        (f"define internal void @{name}.{rows}(ptr noalias %a, i64 %a_row, ptr noalias %x, i64 %x_step, "
        "ptr noalias %y, i64 %y_step, i64 %k, i1 %accumulate) {"),
        "entry:",
        f"  %whole = and i64 %k, {-lanes}",
        "  %tail = sub i64 %k, %whole",
        *(line for r in range(rows) for line in (
            f"  %row.{r} = mul i64 %a_row, {r}", f"  %a.{r} = getelementptr {element}, ptr %a, i64 %row.{r}",
        )),
        "  %dense = icmp eq i64 %x_step, 1",
        "  %any = icmp sgt i64 %whole, 0",
        "  br i1 %any, label %loop, label %last",
        "loop:",
        "  %j = phi i64 [ 0, %entry ], [ %j.next, %step ]",
        *(f"  %s.{r} = phi {vector} [ zeroinitializer, %entry ], [ %t.{r}, %step ]" for r in range(rows)),
        "  br i1 %dense, label %load, label %gather",
        "load:",
        f"  %x.at = getelementptr {element}, ptr %x, i64 %j",
        f"  %x.dense = load {vector}, ptr %x.at, align {size}",
        "  br label %step",
        "gather:",
        f"  %g.j = insertelement {wide} poison, i64 %j, i64 0",
        f"  %g.js = shufflevector {wide} %g.j, {wide} poison, {counts} zeroinitializer",
        f"  %g.at = add {wide} %g.js, <{wide_ramp}>",
        *gathered("g", f"<{', '.join(['i1 true'] * lanes)}>"),
    ]  # fmt: skip
    out += [
        "  br label %step",
        "step:",
        f"  %v = phi {vector} [ %x.dense, %load ], [ %g.x, %gather ]",
    ]
    for r in range(rows):
        out += [
            f"  %m.at.{r} = getelementptr {element}, ptr %a.{r}, i64 %j",
            f"  %m.{r} = load {vector}, ptr %m.at.{r}, align {size}",
            f"  %t.{r} = call {vector} @llvm.fma.{suffix}({vector} %m.{r}, {vector} %v, {vector} %s.{r})",
        ]
    out += [
        f"  %j.next = add i64 %j, {lanes}",
        "  %more = icmp slt i64 %j.next, %whole",
        "  br i1 %more, label %loop, label %last",
        "last:",
        *(f"  %u.{r} = phi {vector} [ zeroinitializer, %entry ], [ %t.{r}, %step ]" for r in range(rows)),
        "  %rest = icmp sgt i64 %tail, 0",
        "  br i1 %rest, label %tail.sum, label %sums",
        "tail.sum:",
        "  %count = trunc i64 %tail to i32",
        f"  %one = insertelement {counts} poison, i32 %count, i64 0",
        f"  %all = shufflevector {counts} %one, {counts} poison, {counts} zeroinitializer",
        f"  %mask = icmp slt {counts} <{ramp}>, %all",
        f"  %e.j = insertelement {wide} poison, i64 %whole, i64 0",
        f"  %e.js = shufflevector {wide} %e.j, {wide} poison, {counts} zeroinitializer",
        f"  %e.at = add {wide} %e.js, <{wide_ramp}>",
        *gathered("e", "%mask"),
    ]
    for r in range(rows):
        out += [
            f"  %l.at.{r} = getelementptr {element}, ptr %a.{r}, i64 %whole",
            (
                f"  %l.{r} = call {vector} @llvm.masked.load.{suffix}.p0(ptr %l.at.{r}, i32 {size}, {mask} %mask, "
                f"{vector} zeroinitializer)"
            ),
            f"  %w.{r} = call {vector} @llvm.fma.{suffix}({vector} %l.{r}, {vector} %e.x, {vector} %u.{r})",
        ]
    out += ["  br label %sums", "sums:"]
    out += [f"  %z.{r} = phi {vector} [ %u.{r}, %last ], [ %w.{r}, %tail.sum ]" for r in range(rows)]
    for r in range(rows):
        value, width = f"%z.{r}", lanes
        while width > 1:
            half = width // 2
            low, high = (", ".join(f"i32 {i}" for i in part) for part in (range(half), range(half, width)))
            now, then = f"<{width} x {element}>", f"<{half} x {element}>"
            out += [
                f"  %lo.{r}.{half} = shufflevector {now} {value}, {now} poison, <{half} x i32> <{low}>",
                f"  %hi.{r}.{half} = shufflevector {now} {value}, {now} poison, <{half} x i32> <{high}>",
                f"  %h.{r}.{half} = fadd {then} %lo.{r}.{half}, %hi.{r}.{half}",
            ]
            value, width = f"%h.{r}.{half}", half
        out += [
            f"  %sum.{r} = extractelement <1 x {element}> {value}, i64 0",
            f"  %y.off.{r} = mul i64 %y_step, {r}",
            f"  %y.at.{r} = getelementptr {element}, ptr %y, i64 %y.off.{r}",
        ]
    out += ["  br i1 %accumulate, label %add, label %set", "add:"]
    for r in range(rows):
        out += [
            f"  %old.{r} = load {element}, ptr %y.at.{r}, align {size}",
            f"  %new.{r} = fadd {element} %old.{r}, %sum.{r}",
            f"  store {element} %new.{r}, ptr %y.at.{r}, align {size}",
        ]
    out += ["  ret void", "set:"]
    out += [f"  store {element} %sum.{r}, ptr %y.at.{r}, align {size}" for r in range(rows)]
    return "\n".join([*out, "  ret void", "}"])
