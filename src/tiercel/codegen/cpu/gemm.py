"""Matrix product kernels as LLVM text: a family of register tiles, a driver, and packing. Part of the runtime library.

In: a dtype and a `Target`. Out: functions (names in `names`)

* `gemm(a, a_row, a_col, b, b_row, c, c_row, m, n, k, accumulate)`: c = a @ b, or c += a @ b. All strides are in
  elements. `b` and `c` have contiguous rows (column stride 1); `a` may have any strides. Rows of `c` beyond m and
  columns beyond n are not touched, nothing beyond the operands is read.
* `gemm.packed(a, a_row, a_col, panels, c, c_row, m, n, k, accumulate)`: the same with `b` packed.
* `gemm.pack(b, b_row, b_col, panels, n, k)`: packs b of any strides into panels of `panel_columns` columns, each panel
  k rows of that many elements, the last one padded with zeros: `packed_elements` elements.

Every element is summed in the order of k within blocks of `K_BLOCK` rows, then the blocks: the order depends on nothing
else, so a row has the same bits in every batch, tile and thread count.

Why our own: a tile over weights packed once beats the libraries at the row counts that occur here (2 to 64), and the
epilogue of a region can follow while the block is in the second-level cache. 32 registers allow tiles of 8 x 3 vectors
(24 sums, 3 columns, a broadcast), 16 allow 6 x 2. The columns are loaded first, and each row's element is broadcast
once and used at once (measured: 94 against 43 GFLOP/s for the other order).
"""

from __future__ import annotations

from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.text import REGISTER_TYPE
from tiercel.dtypes import DType

K_BLOCK = 512
"""Rows of b per pass: a panel of 48 float32 columns is then 96 KiB, well inside the second-level cache."""


def tile_shape(target: Target) -> tuple[int, int]:
    """(rows, vectors) of the register tile."""
    return (8, 3) if target.vector_bytes == 64 else (6, 2) if target.vector_bytes == 32 else (4, 2)


def panel_columns(dtype: DType, target: Target) -> int:
    """Columns of one packed panel."""
    return tile_shape(target)[1] * target.vector_bytes // dtype.itemsize


def packed_elements(n: int, k: int, dtype: DType, target: Target) -> int:
    """Elements that `gemm.pack` writes for a (k, n) matrix."""
    columns = panel_columns(dtype, target)
    return -(-n // columns) * columns * k


def names(dtype: DType) -> tuple[str, str, str]:
    """The entry points for a dtype: plain, packed, pack."""
    base = f"tc.gemm.{dtype.name}"
    return base, f"{base}.packed", f"{base}.pack"


def _micro_kernel(dtype: DType, target: Target, rows: int, panels: int = 1) -> str:
    """`rows` x `panels` panels of columns, a loop over k.

    A kernel of one panel also handles the last, partial panel, in which only `%columns` columns exist in b and c. More
    panels are for few rows: they give the multipliers enough independent sums without changing the order of any.
    """
    element, size = REGISTER_TYPE[dtype.name], dtype.itemsize
    lanes, width = target.vector_bytes // size, tile_shape(target)[1]
    vectors = width * panels
    vector, mask_type, counts = f"<{lanes} x {element}>", f"<{lanes} x i1>", f"<{lanes} x i32>"
    suffix, ramp = f"v{lanes}f{8 * size}", ", ".join(f"i32 {i}" for i in range(lanes))
    out = [
        (
            f"define internal void @{_tile_name(dtype, rows, panels)}(ptr noalias %a, i64 %a_row, i64 %a_col, "
            "ptr noalias %b, i64 %b_row, i64 %b_panel, ptr noalias %c, i64 %c_row, i64 %k, i64 %columns, "
            "i1 %accumulate) {"
        ),
        "entry:",
        "  %any = icmp sgt i64 %k, 0",
    ]
    out += [f"  %row.{r} = mul i64 %a_row, {r}" for r in range(rows)]
    out += [f"  %a.{r} = getelementptr {element}, ptr %a, i64 %row.{r}" for r in range(rows)]
    out += [f"  %panel.{q} = mul i64 %b_panel, {q}" for q in range(1, panels)]
    parts = [("whole", False)]
    if panels == 1:
        parts.append(("part", True))
        for v in range(vectors):
            out += [
                f"  %left.{v} = sub i64 %columns, {v * lanes}",
                f"  %some.{v} = call i64 @llvm.smax.i64(i64 %left.{v}, i64 0)",
                f"  %few.{v} = call i64 @llvm.smin.i64(i64 %some.{v}, i64 {lanes})",
                f"  %count.{v} = trunc i64 %few.{v} to i32",
                f"  %one.{v} = insertelement {counts} poison, i32 %count.{v}, i64 0",
                f"  %all.{v} = shufflevector {counts} %one.{v}, {counts} poison, {counts} zeroinitializer",
                f"  %mask.{v} = icmp slt {counts} <{ramp}>, %all.{v}",
            ]
        out += [f"  %full = icmp sge i64 %columns, {vectors * lanes}", "  br i1 %full, label %whole, label %part"]
    else:
        out.append("  br label %whole")

    def access(pointer: str, name: str, v: int, masked: bool) -> list[str]:
        """Load vector v of a row of b or c."""
        lines = [f"  {name}.at = getelementptr {element}, ptr {pointer}, i64 {v * lanes}"]
        if masked:
            given = f"ptr {name}.at, i32 {size}, {mask_type} %mask.{v}, {vector} zeroinitializer"
            return [*lines, f"  {name} = call {vector} @llvm.masked.load.{suffix}.p0({given})"]
        return [*lines, f"  {name} = load {vector}, ptr {name}.at, align {size}"]

    tile = [(r, v) for r in range(rows) for v in range(vectors)]
    for part, masked in parts:
        p = f"%{part}"
        out += [f"{part}:", f"  br i1 %any, label %{part}.k, label %{part}.done", f"{part}.k:"]
        out += [
            f"  {p}.i = phi i64 [ 0, %{part} ], [ {p}.i.next, %{part}.k ]",
            f"  {p}.x = phi i64 [ 0, %{part} ], [ {p}.x.next, %{part}.k ]",
            f"  {p}.b = phi ptr [ %b, %{part} ], [ {p}.b.next, %{part}.k ]",
        ]
        out += [
            f"  {p}.sum.{r}.{v} = phi {vector} [ zeroinitializer, %{part} ], [ {p}.new.{r}.{v}, %{part}.k ]"
            for r, v in tile
        ]
        out += [
            f"  {p}.b.{q} = getelementptr {element}, ptr {p}.b, i64 {f'%panel.{q}' if q else '0'}"
            for q in range(panels)
        ]
        for v in range(vectors):
            out += access(f"{p}.b.{v // width}", f"{p}.col.{v}", v % width, masked)
        for r in range(rows):
            x = f"{p}.x.{r}"
            out += [
                f"  {x}.at = getelementptr {element}, ptr %a.{r}, i64 {p}.x",
                f"  {x}.one = load {element}, ptr {x}.at, align {size}",
                f"  {x}.first = insertelement {vector} poison, {element} {x}.one, i64 0",
                f"  {x} = shufflevector {vector} {x}.first, {vector} poison, {counts} zeroinitializer",
            ]
            for v in range(vectors):
                operands = f"{vector} {x}, {vector} {p}.col.{v}, {vector} {p}.sum.{r}.{v}"
                out.append(f"  {p}.new.{r}.{v} = call {vector} @llvm.fma.{suffix}({operands})")
        out += [
            f"  {p}.i.next = add i64 {p}.i, 1",
            f"  {p}.x.next = add i64 {p}.x, %a_col",
            f"  {p}.b.next = getelementptr {element}, ptr {p}.b, i64 %b_row",
            f"  {p}.more = icmp slt i64 {p}.i.next, %k",
            f"  br i1 {p}.more, label %{part}.k, label %{part}.done",
            f"{part}.done:",
        ]
        out += [
            f"  {p}.total.{r}.{v} = phi {vector} [ zeroinitializer, %{part} ], [ {p}.new.{r}.{v}, %{part}.k ]"
            for r, v in tile
        ]
        out.append(f"  br i1 %accumulate, label %{part}.add, label %{part}.set")
        for mode in ("add", "set"):
            out.append(f"{part}.{mode}:")
            for r in range(rows):
                c = f"{p}.{mode}.c.{r}"
                out += [f"  {c}.off = mul i64 %c_row, {r}", f"  {c} = getelementptr {element}, ptr %c, i64 {c}.off"]
                for v in range(vectors):
                    value = f"{p}.total.{r}.{v}"
                    if mode == "add":
                        out += access(c, f"{p}.old.{r}.{v}", v, masked)
                        out.append(f"  {p}.both.{r}.{v} = fadd {vector} {p}.old.{r}.{v}, {value}")
                        value = f"{p}.both.{r}.{v}"
                    out.append(f"  {c}.{v} = getelementptr {element}, ptr {c}, i64 {v * lanes}")
                    if masked:
                        given = f"{vector} {value}, ptr {c}.{v}, i32 {size}, {mask_type} %mask.{v}"
                        out.append(f"  call void @llvm.masked.store.{suffix}.p0({given})")
                    else:
                        out.append(f"  store {vector} {value}, ptr {c}.{v}, align {size}")
            out.append("  ret void")
    return "\n".join([*out, "}"])


def _tile_name(dtype: DType, rows: int, panels: int) -> str:
    return f"tc.tile.{dtype.name}.{rows}x{panels}"


def wide_panels(rows: int) -> int:
    """Panels at once for so few rows: 12 sums for one row, as many for two."""
    return {1: 4, 2: 2}.get(rows, 1)


def _driver(dtype: DType, target: Target, *, packed: bool) -> str:
    """Blocks of k, panels of columns, tiles of rows; the last tile has 1 to rows - 1 rows."""
    element = REGISTER_TYPE[dtype.name]
    rows, columns = tile_shape(target)[0], panel_columns(dtype, target)
    name = names(dtype)[1 if packed else 0]
    parameters = (
        f"ptr noalias %a, i64 %a_row, i64 %a_col, ptr noalias %b, {'' if packed else 'i64 %b_row, '}"
        "ptr noalias %c, i64 %c_row, i64 %m, i64 %n, i64 %k, i1 %accumulate"
    )
    arguments = (
        "ptr %a.tile, i64 %a_row, i64 %a_col, ptr %b.panel, i64 %b.step, i64 %b.distance, ptr %c.tile, i64 %c_row, "
        "i64 %k.few, i64 %n.left, i1 %adding"
    )
    lines = [
        f"define void @{name}({parameters}) {{",
        "entry:",
        "  %no.m = icmp sle i64 %m, 0",
        "  %no.n = icmp sle i64 %n, 0",
        "  %nothing = or i1 %no.m, %no.n",
        *(
            [f"  %b.step = add i64 {columns}, 0", f"  %b.distance = mul i64 %k, {columns}"]
            if packed
            else ["  %b.step = add i64 %b_row, 0", f"  %b.distance = add i64 {columns}, 0"]
        ),
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
        "  %row.off = mul i64 %k0, %b.step",
        f"  %panel.off = {'mul i64 %n0, %k' if packed else 'add i64 %n0, 0'}",
        "  %b.off = add i64 %row.off, %panel.off",
        f"  %b.panel = getelementptr {element}, ptr %b, i64 %b.off",
        "  br label %tile",
        "tile:",
        "  %m0 = phi i64 [ 0, %panel ], [ %m.next, %tile.next ]",
        "  %m.left = sub i64 %m, %m0",
        "  %a.row.off = mul i64 %m0, %a_row",
        f"  %a.tile = getelementptr {element}, ptr %a.block, i64 %a.row.off",
        "  %c.row.off = mul i64 %m0, %c_row",
        "  %c.off = add i64 %c.row.off, %n0",
        f"  %c.tile = getelementptr {element}, ptr %c, i64 %c.off",
        f"  switch i64 %m.left, label %rows.{rows} [",
        *(f"    i64 {r}, label %rows.{r}" for r in range(1, rows)),
        "  ]",
    ]
    edges = []
    for r in range(1, rows + 1):
        lines.append(f"rows.{r}:")
        panels = wide_panels(r)
        if panels > 1:
            # several panels at once only when these are all the rows: the panel loop then steps over them
            lines += [
                f"  %only.{r} = icmp eq i64 %m, {r}",
                f"  %room.{r} = icmp sge i64 %n.left, {panels * columns}",
                f"  %wide.{r} = and i1 %only.{r}, %room.{r}",
                f"  br i1 %wide.{r}, label %wide.rows.{r}, label %narrow.rows.{r}",
                f"wide.rows.{r}:",
                f"  call void @{_tile_name(dtype, r, panels)}({arguments})",
                "  br label %tile.next",
                f"narrow.rows.{r}:",
            ]
            edges.append(f"[ {panels}, %wide.rows.{r} ]")
        lines += [f"  call void @{_tile_name(dtype, r, 1)}({arguments})", "  br label %tile.next"]
        edges.append(f"[ 1, %{'narrow.' if panels > 1 else ''}rows.{r} ]")
    lines += [
        "tile.next:",
        f"  %wide = phi i64 {', '.join(edges)}",
        f"  %m.next = add i64 %m0, {rows}",
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


def _pack(dtype: DType, target: Target) -> str:
    """Copy b into panels, column by column within a panel's row."""
    element, size = REGISTER_TYPE[dtype.name], dtype.itemsize
    columns = panel_columns(dtype, target)
    return "\n".join([
        f"define void @{names(dtype)[2]}(ptr noalias %b, i64 %b_row, i64 %b_col, ptr noalias %out, i64 %n, i64 %k) {{",
        "entry:",
        "  %no.n = icmp sle i64 %n, 0",
        "  %no.k = icmp sle i64 %k, 0",
        "  %nothing = or i1 %no.n, %no.k",
        "  br i1 %nothing, label %end, label %panel",
        "panel:",
        "  %n0 = phi i64 [ 0, %entry ], [ %n.next, %panel.next ]",
        "  %panel.off = mul i64 %n0, %k",
        "  br label %column",
        "column:",
        "  %j = phi i64 [ 0, %panel ], [ %j.next, %column.next ]",
        "  %col = add i64 %n0, %j",
        "  %inside = icmp slt i64 %col, %n",
        "  %col.off = mul i64 %col, %b_col",
        "  %from.off = select i1 %inside, i64 %col.off, i64 0",
        f"  %from = getelementptr {element}, ptr %b, i64 %from.off",
        "  %to.off = add i64 %panel.off, %j",
        f"  %to = getelementptr {element}, ptr %out, i64 %to.off",
        "  br label %row",
        "row:",
        "  %i = phi i64 [ 0, %column ], [ %i.next, %row ]",
        "  %src.off = mul i64 %i, %b_row",
        f"  %src = getelementptr {element}, ptr %from, i64 %src.off",
        f"  %value = load {element}, ptr %src, align {size}",
        f"  %kept = select i1 %inside, {element} %value, {element} 0.0",
        f"  %dst.off = mul i64 %i, {columns}",
        f"  %dst = getelementptr {element}, ptr %to, i64 %dst.off",
        f"  store {element} %kept, ptr %dst, align {size}",
        "  %i.next = add i64 %i, 1",
        "  %i.more = icmp slt i64 %i.next, %k",
        "  br i1 %i.more, label %row, label %column.next",
        "column.next:",
        "  %j.next = add i64 %j, 1",
        f"  %j.more = icmp slt i64 %j.next, {columns}",
        "  br i1 %j.more, label %column, label %panel.next",
        "panel.next:",
        f"  %n.next = add i64 %n0, {columns}",
        "  %n.more = icmp slt i64 %n.next, %n",
        "  br i1 %n.more, label %panel, label %end",
        "end:",
        "  ret void",
        "}",
    ])  # fmt: skip


def emit_gemm(dtype: DType, target: Target) -> tuple[list[str], list[str]]:
    """(declarations, functions) of the family for float32 or float64."""
    size = dtype.itemsize
    lanes, element = target.vector_bytes // size, REGISTER_TYPE[dtype.name]
    vector, suffix = f"<{lanes} x {element}>", f"v{lanes}f{8 * size}"
    declarations = [
        "declare i64 @llvm.smin.i64(i64, i64)",
        "declare i64 @llvm.smax.i64(i64, i64)",
        f"declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})",
        f"declare {vector} @llvm.masked.load.{suffix}.p0(ptr, i32, <{lanes} x i1>, {vector})",
        f"declare void @llvm.masked.store.{suffix}.p0({vector}, ptr, i32, <{lanes} x i1>)",
    ]
    functions = [_micro_kernel(dtype, target, r) for r in range(1, tile_shape(target)[0] + 1)]
    functions += [_micro_kernel(dtype, target, r, wide_panels(r)) for r in (1, 2)]
    functions += [_driver(dtype, target, packed=False), _driver(dtype, target, packed=True), _pack(dtype, target)]
    return declarations, functions
