"""Matrix products as LLVM text: drivers over register tiles (`tile`), packing (`pack`), `gemv`. In the runtime library.

In: a dtype and a `Target`. Out: functions (names in `names`). All strides are in elements; with `accumulate` a product
is added to c. Nothing beyond the operands is read, nothing beyond (m, n) of c written; rows of c are contiguous.

* `gemm(a, a_row, a_col, b, b_row, b_col, c, c_row, m, n, k, accumulate, rows, scratch, before, how)`: c = a @ b, a
  and b with any strides. `scratch` has room for one packed panel (`scratch_elements`); `before` columns of the matrix
  that b is a part of may be read to the left of it; `how` is one of `HOW`.
* `gemm.packed(a, a_row, a_col, panels, c, c_row, m, n, k, accumulate, rows)`: the same with `b` packed.
* `gemm.pack(b, b_row, b_col, panels, n, k)`: packs b into `packed_elements` elements, see `pack`.
* `gemm.vector(a, a_row, x, x_step, y, y_step, m, k, accumulate)`: see `gemv`.

Blocks of `K_BLOCK` rows of b, in them panels of columns, in them tiles of at most `rows` rows of a (1 to those of
`tile_shape`). Where b is not packed, a panel of a block is read in place by a single tile of rows; with more rows than
the largest tile has, `how` says whether that tile goes first and copies the panel to `scratch` as it goes, so that the
others read it there (96 KiB, so in the second-level cache, and in few pages), or the panel is packed there first, or
all tiles read it in place. A panel whose rows are not contiguous is packed into `scratch` always.
For the last, partial panel there are narrower tiles of whole vectors; where it is not packed they begin further to the
left and do not write what is there already; it is packed where there is nothing to the left.

Except in `gemm.vector`, every element is summed in the order of k within blocks of `K_BLOCK` rows, then the blocks: the
order depends on nothing else, so a row has the same bits in every batch, tile and thread count, packed or not, and
`rows`, `how` and the width of panels may be chosen by time alone (`codegen.cpu.choice`).

Why our own: a tile over weights packed once beats the libraries at the row counts that occur here (2 to 64), and the
epilogue of a region can follow while the block is in the second-level cache. 32 registers allow tiles of 8 x 3 vectors
(24 sums, 3 columns, a broadcast), 16 allow 6 x 2.
"""

from __future__ import annotations

from typing import Final

from tiercel.codegen.cpu.gemv import gemv_text
from tiercel.codegen.cpu.names import gemm_names as names
from tiercel.codegen.cpu.pack import pack_text
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.text import REGISTER_TYPE
from tiercel.codegen.cpu.tile import STREAMED_ROWS, panel_columns, tile_name, tile_shape, tile_text, wide_panels
from tiercel.dtypes import DType

HOW: Final = ("in place", "copied by the first tile", "packed first")
"""What becomes of a panel of an unpacked b that several tiles read; its number is the argument `how`."""
IN_PLACE, COPIED, PACKED_FIRST = range(3)
"""Places in `HOW`."""
K_BLOCK = 512
"""Rows of b per pass: a panel of 48 float32 columns is then 96 KiB, well inside the second-level cache."""


def packed_elements(n: int, k: int, dtype: DType, target: Target, vectors: int = 0) -> int:
    """Elements that `gemm.pack` writes for a (k, n) matrix."""
    columns = panel_columns(dtype, target, vectors)
    return -(-n // columns) * columns * k


def scratch_elements(dtype: DType, target: Target, vectors: int = 0) -> int:
    """Elements of `scratch`."""
    return panel_columns(dtype, target, vectors) * K_BLOCK


def _driver(dtype: DType, target: Target, vectors: int, *, packed: bool) -> str:
    """Blocks of k, panels of columns, tiles of rows; the last tile may have fewer than the others."""
    element = REGISTER_TYPE[dtype.name]
    rows, columns = tile_shape(target, vectors)[0], panel_columns(dtype, target, vectors)
    plain_name, packed_name, pack_name, _ = names(dtype, vectors)
    operand = "ptr noalias %b" if packed else "ptr noalias %b, i64 %b_row, i64 %b_col"
    parameters = (
        f"ptr noalias %a, i64 %a_row, i64 %a_col, {operand}, ptr noalias %c, i64 %c_row, i64 %m, i64 %n, i64 %k, "
        f"i1 %accumulate, i64 %rows{'' if packed else ', ptr noalias %scratch, i64 %before, i64 %how'}"
    )
    width = tile_shape(target, vectors)[1]
    lanes = columns // width
    common = "ptr %c.tile, i64 %c_row, i64 %k.few, i64 %begin, i64 %n.end.now, i1 %adding"
    place = "ptr %a.tile, i64 %a_row, i64 %a_col"
    arguments = f"{place}, ptr %b.from, i64 %b.step, i64 %b.distance, {common}"
    lines = [
        f"define void @{packed_name if packed else plain_name}({parameters}) {{",
        "entry:",
        "  %no.m = icmp sle i64 %m, 0",
        "  %no.n = icmp sle i64 %n, 0",
        "  %nothing = or i1 %no.m, %no.n",
    ]
    if packed:
        lines.append(f"  %whole.distance = mul i64 %k, {columns}")
    else:
        lines += [
            "  %contiguous = icmp eq i64 %b_col, 1",
            f"  %many = icmp sgt i64 %m, {rows}",
            f"  %copied = icmp eq i64 %how, {COPIED}",
            "  %several = and i1 %many, %copied",
            f"  %packed.first = icmp eq i64 %how, {PACKED_FIRST}",
            "  %turned = and i1 %many, %packed.first",
            "  %kept = xor i1 %turned, true",
            "  %in.rows = and i1 %contiguous, %kept",
        ]
    lines += [
        "  br i1 %nothing, label %end, label %block",
        "block:",
        "  %k0 = phi i64 [ 0, %entry ], [ %k.next, %block.next ]",
        "  %k.left = sub i64 %k, %k0",
        f"  %k.few = call i64 @llvm.smin.i64(i64 %k.left, i64 {K_BLOCK})",
        "  %later = icmp ne i64 %k0, 0",
        "  %adding = or i1 %accumulate, %later",
        "  %a.off = mul i64 %k0, %a_col",
        f"  %a.block = getelementptr {element}, ptr %a, i64 %a.off",
        "  br label %panel",
        "panel:",
        "  %n0 = phi i64 [ 0, %block ], [ %n.next, %panel.next ]",
        "  %n.left = sub i64 %n, %n0",
        f"  %row.off = mul i64 %k0, {columns if packed else '%b_row'}",
        f"  %panel.off = mul i64 %n0, {'%k' if packed else '%b_col'}",
        "  %b.off = add i64 %row.off, %panel.off",
        f"  %b.panel = getelementptr {element}, ptr %b, i64 %b.off",
    ]
    if packed:
        lines += ["  %first = add i64 0, 0", "  %n.last = add i64 %n.left, 0", "  br label %tiles"]
        start = "[ 0, %panel ]"
        source = {"b.now": "%b.panel", "b.step": f"{columns}", "b.distance": "%whole.distance"}
    else:
        lines += [
            f"  %missing = sub i64 {columns}, %n.left",
            "  %shift = call i64 @llvm.smax.i64(i64 %missing, i64 0)",
            "  %behind = add i64 %before, %n0",
            "  %room = icmp sge i64 %behind, %shift",
            "  %readable = and i1 %in.rows, %room",
            "  br i1 %readable, label %in.place, label %turn",
            "turn:",
            f"  %n.few = call i64 @llvm.smin.i64(i64 %n.left, i64 {columns})",
            f"  call void @{pack_name}(ptr %b.panel, i64 %b_row, i64 %b_col, ptr %scratch, i64 %n.few, i64 %k.few)",
            "  br label %tiles",
            "in.place:",
            "  %back = sub i64 0, %shift",
            f"  %b.place = getelementptr {element}, ptr %b.panel, i64 %back",
            "  %n.end = add i64 %n.left, %shift",
            "  br i1 %several, label %copy, label %tiles",
            "copy:",
            "  %c.copy.off = add i64 %n0, %back",
            f"  %c.copy = getelementptr {element}, ptr %c, i64 %c.copy.off",
            (
                f"  call void @{tile_name(dtype, rows, 1, copy=True)}(ptr %a.block, i64 %a_row, i64 %a_col, "
                "ptr %b.place, i64 %b_row, i64 0, ptr %c.copy, i64 %c_row, i64 %k.few, i64 %shift, i64 %n.end, "
                "i1 %adding, ptr %scratch)"
            ),
            "  br label %tiles",
        ]
        start = f"[ 0, %turn ], [ 0, %in.place ], [ {rows}, %copy ]"
        source = {}
    lines.append("tiles:")
    if source:
        lines += [
            f"  %m.first = phi i64 {start}",
            f"  %b.now = getelementptr {element}, ptr {source['b.now']}, i64 0",
            f"  %b.step = add i64 {source['b.step']}, 0",
            f"  %b.distance = add i64 {source['b.distance']}, 0",
        ]
    else:
        lines += [
            f"  %m.first = phi i64 {start}",
            "  %b.now = phi ptr [ %scratch, %turn ], [ %b.place, %in.place ], [ %scratch, %copy ]",
            "  %first = phi i64 [ 0, %turn ], [ %shift, %in.place ], [ %shift, %copy ]",
            "  %n.last = phi i64 [ %n.left, %turn ], [ %n.end, %in.place ], [ %n.end, %copy ]",
            f"  %b.step = phi i64 [ {columns}, %turn ], [ %b_row, %in.place ], [ {columns}, %copy ]",
            # several panels at once: only in place, where they lie side by side
            f"  %b.distance = phi i64 [ 0, %turn ], [ {columns}, %in.place ], [ 0, %copy ]",
        ]
    # a panel of which a few vectors are used: the first ones, or the last ones where it begins further to the left
    lines += ["  %used = sub i64 %n.last, %first"]
    skipped = "0"
    for v in range(width - 1, 0, -1):
        lines += [
            f"  %few.{v} = icmp sle i64 %used, {v * lanes}",
            f"  %skipped.{v} = select i1 %few.{v}, i64 {(width - v) * lanes}, i64 {skipped}",
        ]
        skipped = f"%skipped.{v}"
    lines += [
        "  %moved = icmp ne i64 %first, 0",
        f"  %skip = select i1 %moved, i64 {skipped}, i64 0",
        f"  %b.from = getelementptr {element}, ptr %b.now, i64 %skip",
        "  %begin = sub i64 %first, %skip",
        "  %n.end.now = sub i64 %n.last, %skip",
        "  %spread = icmp ne i64 %b.distance, 0",
        "  br label %tile",
        "tile:",
        "  %m0 = phi i64 [ %m.first, %tiles ], [ %m.next, %tile.next ]",
        "  %m.left = sub i64 %m, %m0",
        "  %a.row.off = mul i64 %m0, %a_row",
        f"  %a.tile = getelementptr {element}, ptr %a.block, i64 %a.row.off",
        "  %c.row.off = mul i64 %m0, %c_row",
        "  %c.right = add i64 %c.row.off, %n0",
        "  %c.off = sub i64 %c.right, %begin",
        f"  %c.tile = getelementptr {element}, ptr %c, i64 %c.off",
        "  %few = call i64 @llvm.smin.i64(i64 %m.left, i64 %rows)",
        f"  switch i64 %few, label %rows.{rows} [",
        *(f"    i64 {r}, label %rows.{r}" for r in range(1, rows)),
        "  ]",
    ]
    edges = []
    for r in range(1, rows + 1):
        lines.append(f"rows.{r}:")
        panels, stream = wide_panels(r), packed and r <= STREAMED_ROWS
        if panels > 1:
            # several panels at once only when these are all the rows: the panel loop then steps over them
            lines += [
                f"  %only.{r} = icmp eq i64 %m, {r}",
                f"  %room.{r} = icmp sge i64 %n.left, {panels * columns}",
                f"  %fits.{r} = and i1 %only.{r}, %room.{r}",
                f"  %wide.{r} = and i1 %fits.{r}, %spread",
                f"  br i1 %wide.{r}, label %wide.rows.{r}, label %narrow.rows.{r}",
                f"wide.rows.{r}:",
                f"  call void @{tile_name(dtype, r, panels, stream=stream)}({arguments})",
                "  br label %tile.next",
                f"narrow.rows.{r}:",
            ]
            edges.append(f"[ {panels}, %wide.rows.{r} ]")
        for v in range(width - 1, 0, -1):
            whole = v == width - 1
            name = tile_name(dtype, r, 1, stream=stream and whole, narrow=0 if whole else v + 1)
            lines += [
                f"  br i1 %few.{v}, label %few.{v}.rows.{r}, label %more.{v}.rows.{r}",
                f"more.{v}.rows.{r}:",
                f"  call void @{name}({arguments})",
                "  br label %tile.next",
                f"few.{v}.rows.{r}:",
            ]
            edges.append(f"[ 1, %more.{v}.rows.{r} ]")
        lines += [f"  call void @{tile_name(dtype, r, 1, narrow=1)}({arguments})", "  br label %tile.next"]
        edges.append(f"[ 1, %few.1.rows.{r} ]")
    lines += [
        "tile.next:",
        f"  %wide = phi i64 {', '.join(edges)}",
        "  %m.next = add i64 %m0, %few",
        "  %m.more = icmp slt i64 %m.next, %m",
        "  br i1 %m.more, label %tile, label %panel.next",
        "panel.next:",
        f"  %n.step = mul i64 %wide, {columns}",
        "  %n.next = add i64 %n0, %n.step",
        "  %n.more = icmp slt i64 %n.next, %n",
        "  br i1 %n.more, label %panel, label %block.next",
        "block.next:",
        f"  %k.next = add i64 %k0, {K_BLOCK}",
        "  %k.more = icmp slt i64 %k.next, %k",
        "  br i1 %k.more, label %block, label %end",
        "end:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


def emit_gemm(dtype: DType, target: Target, vectors: int = 0) -> tuple[list[str], list[str]]:
    """(declarations, functions) of the family for float32 or float64: with `vectors` that over panels of so many
    vectors, without `gemm.vector`.
    """
    size = dtype.itemsize
    lanes, element = target.vector_bytes // size, REGISTER_TYPE[dtype.name]
    vector, suffix = f"<{lanes} x {element}>", f"v{lanes}f{8 * size}"
    double = f"<{2 * lanes} x {element}>"
    declarations = [
        "declare i64 @llvm.smin.i64(i64, i64)",
        "declare i64 @llvm.smax.i64(i64, i64)",
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        f"declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})",
        f"declare {vector} @llvm.masked.load.{suffix}.p0(ptr, i32, <{lanes} x i1>, {vector})",
        f"declare {double} @llvm.fma.v{2 * lanes}f{8 * size}({double}, {double}, {double})",
        f"declare {double} @llvm.masked.load.v{2 * lanes}f{8 * size}.p0(ptr, i32, <{2 * lanes} x i1>, {double})",
        (
            f"declare {double} @llvm.masked.gather.v{2 * lanes}f{8 * size}.v{2 * lanes}p0(<{2 * lanes} x ptr>, i32, "
            f"<{2 * lanes} x i1>, {double})"
        ),
        f"declare void @llvm.masked.store.{suffix}.p0({vector}, ptr, i32, <{lanes} x i1>)",
    ]
    rows, width = tile_shape(target, vectors)
    functions = [tile_text(dtype, target, r, vectors=vectors) for r in range(1, rows + 1)]
    functions += [tile_text(dtype, target, r, wide_panels(r), vectors=vectors) for r in (1, 2)]
    streamed = {(r, panels) for r in range(1, STREAMED_ROWS + 1) for panels in (1, wide_panels(r))}
    functions += [tile_text(dtype, target, r, panels, stream=True, vectors=vectors) for r, panels in sorted(streamed)]
    functions += [
        tile_text(dtype, target, r, narrow=v, vectors=vectors) for v in range(1, width) for r in range(1, rows + 1)
    ]
    functions.append(tile_text(dtype, target, rows, copy=True, vectors=vectors))
    functions += [_driver(dtype, target, vectors, packed=packed) for packed in (False, True)]
    _, _, pack, vector_name = names(dtype, vectors)
    functions.append(pack_text(pack, dtype, target, vectors))
    if not vectors:
        functions += gemv_text(vector_name, dtype, target)
    return declarations, functions
