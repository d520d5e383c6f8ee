"""Products of several column blocks of one matrix at the same offset, as LLVM text. In the runtime library.

In: a dtype and a `Target`. Out: functions (names in `names.panel_names`). Strides are in elements.

* `pack(b, b_row, b_col, out, n, k, count, firsts)`: columns `firsts[p]` to `firsts[p] + n` of b, for each of
  `count` panels, in groups: group g is k rows of one vector of each panel, columns g * lanes on, filled up with zeros.
* `N(a, a_row, a_col, groups_of_b, c, c_row, c_step, m, groups, k)`: so many groups times a, (m, k). Column j of
  panel p is written to c[row, p * c_step + j]. Whole vectors are written.

Why: a recurrent cell computes its state from the same column of each gate. With the gates of a unit in one register
tile, what follows the product reads a few KiB that were just written, and the gates of a whole batch exist nowhere.
A tile is as many vectors wide as there are panels, and has as many rows as registers allow. The rows of a product are
shared out among tiles evenly: 8 rows are 4 and 4, not 6 and 2, because tiles of few rows wait for b.

Sums are those of `gemm`: in the order of k within blocks of `K_BLOCK` rows, then the blocks.
"""

from __future__ import annotations

from tiercel.codegen.cpu.gemm import K_BLOCK
from tiercel.codegen.cpu.names import MAX_PANELS, panel_names
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.text import REGISTER_TYPE
from tiercel.codegen.cpu.tile import tile_name, tile_text
from tiercel.dtypes import DType


def tile_rows(panels: int, target: Target) -> int:
    """Most rows of a tile so many vectors wide: its sums, a row of b and one element of a have to be in registers."""
    registers = 32 if target.vector_bytes == 64 else 16
    return min(8, (registers - panels - 1) // panels)


def lanes_of(dtype: DType, target: Target) -> int:
    """Columns of a group."""
    return target.vector_bytes // dtype.itemsize


def emit_panels(dtype: DType, target: Target) -> tuple[list[str], list[str]]:
    """(declarations, functions) for float32 or float64."""
    lanes, element = lanes_of(dtype, target), REGISTER_TYPE[dtype.name]
    vector, suffix = f"<{lanes} x {element}>", f"v{lanes}f{8 * dtype.itemsize}"
    declarations = [
        "declare i64 @llvm.smin.i64(i64, i64)",
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        f"declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})",
        f"declare {vector} @llvm.masked.load.{suffix}.p0(ptr, i32, <{lanes} x i1>, {vector})",
    ]
    functions = [_pack_text(dtype, target)]
    for count, name in zip(range(2, MAX_PANELS + 1), panel_names(dtype)[1:], strict=True):
        functions += [tile_text(dtype, target, r + 1, apart=count) for r in range(tile_rows(count, target))]
        functions.append(_driver(name, dtype, target, count))
    return declarations, functions


def _driver(name: str, dtype: DType, target: Target, count: int) -> str:
    """Blocks of k, in them groups, in them tiles of rows."""
    element, lanes, most = REGISTER_TYPE[dtype.name], lanes_of(dtype, target), tile_rows(count, target)
    columns = count * lanes
    arguments = (
        f"ptr %a.tile, i64 %a_row, i64 %a_col, ptr %b.now, i64 {columns}, i64 0, ptr %c.tile, i64 %c_row, i64 %k.few, "
        "i64 %c_step, i1 %adding"
    )
    lines = [
        (
            f"define void @{name}(ptr noalias %a, i64 %a_row, i64 %a_col, ptr noalias %b, ptr noalias %c, i64 %c_row, "
            "i64 %c_step, i64 %m, i64 %groups, i64 %k) {"
        ),
        "entry:",
        "  %no.m = icmp sle i64 %m, 0",
        "  %no.n = icmp sle i64 %groups, 0",
        "  %nothing = or i1 %no.m, %no.n",
        f"  %m.over = add i64 %m, {most - 1}",
        f"  %tiles = sdiv i64 %m.over, {most}",
        f"  %distance = mul i64 %k, {columns}",
        "  br i1 %nothing, label %end, label %share",
        "share:",
        "  %least = sdiv i64 %m, %tiles",
        "  %larger = srem i64 %m, %tiles",
        "  br label %block",
        "block:",
        "  %k0 = phi i64 [ 0, %share ], [ %k.next, %block.next ]",
        "  %k.left = sub i64 %k, %k0",
        f"  %k.few = call i64 @llvm.smin.i64(i64 %k.left, i64 {K_BLOCK})",
        "  %adding = icmp ne i64 %k0, 0",
        "  %a.off = mul i64 %k0, %a_col",
        f"  %a.block = getelementptr {element}, ptr %a, i64 %a.off",
        f"  %b.off = mul i64 %k0, {columns}",
        f"  %b.block = getelementptr {element}, ptr %b, i64 %b.off",
        "  br label %group",
        "group:",
        "  %g = phi i64 [ 0, %block ], [ %g.next, %group.next ]",
        "  %g.off = mul i64 %g, %distance",
        f"  %b.now = getelementptr {element}, ptr %b.block, i64 %g.off",
        f"  %c.off = mul i64 %g, {lanes}",
        f"  %c.group = getelementptr {element}, ptr %c, i64 %c.off",
        "  br label %tile",
        "tile:",
        "  %t = phi i64 [ 0, %group ], [ %t.next, %tile.next ]",
        "  %m0 = phi i64 [ 0, %group ], [ %m.next, %tile.next ]",
        "  %one.more = icmp slt i64 %t, %larger",
        "  %more.rows = zext i1 %one.more to i64",
        "  %rows = add i64 %least, %more.rows",
        "  %a.row.off = mul i64 %m0, %a_row",
        f"  %a.tile = getelementptr {element}, ptr %a.block, i64 %a.row.off",
        "  %c.row.off = mul i64 %m0, %c_row",
        f"  %c.tile = getelementptr {element}, ptr %c.group, i64 %c.row.off",
        f"  switch i64 %rows, label %rows.{most} [",
        *(f"    i64 {r}, label %rows.{r}" for r in range(1, most)),
        "  ]",
    ]
    for r in range(1, most + 1):
        called = tile_name(dtype, r, 1, apart=count)
        lines += [f"rows.{r}:", f"  call void @{called}({arguments})", "  br label %tile.next"]
    lines += [
        "tile.next:",
        "  %t.next = add i64 %t, 1",
        "  %m.next = add i64 %m0, %rows",
        "  %m.more = icmp slt i64 %m.next, %m",
        "  br i1 %m.more, label %tile, label %group.next",
        "group.next:",
        "  %g.next = add i64 %g, 1",
        "  %g.more = icmp slt i64 %g.next, %groups",
        "  br i1 %g.more, label %group, label %block.next",
        "block.next:",
        f"  %k.next = add i64 %k0, {K_BLOCK}",
        "  %k.more = icmp slt i64 %k.next, %k",
        "  br i1 %k.more, label %block, label %end",
        "end:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


def _pack_text(dtype: DType, target: Target) -> str:
    """Element by element: it runs once a weight."""
    element, size, lanes = REGISTER_TYPE[dtype.name], dtype.itemsize, lanes_of(dtype, target)
    lines = [
        (
            f"define void @{panel_names(dtype)[0]}(ptr noalias %b, i64 %b_row, i64 %b_col, ptr noalias %out, i64 %n, "
            "i64 %k, i64 %count, ptr noalias %firsts) {"
        ),
        "entry:",
        "  %no.n = icmp sle i64 %n, 0",
        "  %no.k = icmp sle i64 %k, 0",
        "  %nothing = or i1 %no.n, %no.k",
        "  br i1 %nothing, label %end, label %group",
        "group:",
        "  %n0 = phi i64 [ 0, %entry ], [ %n0.next, %group.next ]",
        "  %to.group = phi ptr [ %out, %entry ], [ %to.next, %group.next ]",
        "  br label %row",
        "row:",
        "  %i = phi i64 [ 0, %group ], [ %i.next, %row.next ]",
        "  %to.row = phi ptr [ %to.group, %group ], [ %to.next, %row.next ]",
        "  %row.off = mul i64 %i, %b_row",
        "  br label %panel",
        "panel:",
        "  %p = phi i64 [ 0, %row ], [ %p.next, %panel.next ]",
        "  %to = phi ptr [ %to.row, %row ], [ %to.next, %panel.next ]",
        "  %first.at = getelementptr i64, ptr %firsts, i64 %p",
        "  %first = load i64, ptr %first.at, align 8",
        "  %column0 = add i64 %first, %n0",
        "  br label %lane",
        "lane:",
        "  %l = phi i64 [ 0, %panel ], [ %l.next, %lane ]",
        "  %j = add i64 %n0, %l",
        "  %inside = icmp slt i64 %j, %n",
        "  %column = add i64 %column0, %l",
        "  %column.off = mul i64 %column, %b_col",
        "  %there = add i64 %row.off, %column.off",
        "  %safe = select i1 %inside, i64 %there, i64 0",
        f"  %from = getelementptr {element}, ptr %b, i64 %safe",
        f"  %value = load {element}, ptr %from, align {size}",
        f"  %kept = select i1 %inside, {element} %value, {element} 0.0",
        f"  %at = getelementptr {element}, ptr %to, i64 %l",
        f"  store {element} %kept, ptr %at, align {size}",
        "  %l.next = add i64 %l, 1",
        f"  %l.more = icmp slt i64 %l.next, {lanes}",
        "  br i1 %l.more, label %lane, label %panel.next",
        "panel.next:",
        f"  %to.next = getelementptr {element}, ptr %to, i64 {lanes}",
        "  %p.next = add i64 %p, 1",
        "  %p.more = icmp slt i64 %p.next, %count",
        "  br i1 %p.more, label %panel, label %row.next",
        "row.next:",
        "  %i.next = add i64 %i, 1",
        "  %i.more = icmp slt i64 %i.next, %k",
        "  br i1 %i.more, label %row, label %group.next",
        "group.next:",
        f"  %n0.next = add i64 %n0, {lanes}",
        "  %n.more = icmp slt i64 %n0.next, %n",
        "  br i1 %n.more, label %group, label %end",
        "end:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)
