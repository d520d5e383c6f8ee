"""Products of float16, bfloat16 and integer matrices as LLVM text. Pieces of the runtime library, one for each dtype.

In: a stored dtype and a `Target`. Out: the functions of `names.mixed_names`, like those of `gemm`: strides in elements,
rows of c contiguous, nothing beyond the operands read, nothing beyond (m, n) of c written.

* `mixed(a, a_row, a_col, b, b_row, b_col, c, c_row, m, n, k, accumulate, scratch)`: c = a @ b, or += that. b is of the
  stored dtype, a and c are of the one in which products are summed (`summed_in`): float32 for float16 and bfloat16,
  int32 for integers of 8 and 16 bits, else the same.
* `mixed.packed(a, a_row, a_col, panels, c, c_row, m, n, k, accumulate)`: the same with `b` packed.
* `mixed.pack(b, b_row, b_col, panels, n, k)`: b as panels of `panel_columns` columns, k rows each, in the stored dtype;
  the last one is filled up with zeros.

Narrow types stay as they are up to the register: a tile loads, widens (exactly) and multiplies, so that few rows by
frozen weights read half, or a quarter, of what the wide type would. The order of sums is that of `gemm`: k in order
within blocks of `K_BLOCK`, then the blocks. Sums of integers wrap around, as NumPy's do, in any order.

What is not packed goes panel by panel through `scratch`. That costs one pass over b for each call, beside the m passes
of the product; NumPy has no better than a loop over elements for these dtypes.
"""

from __future__ import annotations

from typing import Final

from tiercel.codegen.cpu.gemm import K_BLOCK
from tiercel.codegen.cpu.names import mixed_names
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.text import REGISTER_TYPE, first_lanes
from tiercel.codegen.cpu.tile import AHEAD_CYCLES, panel_columns, tile_shape
from tiercel.dtypes import DType, as_dtype

_TILE: Final = (
    "ptr noalias %a, i64 %a_row, i64 %a_col, ptr noalias %b, ptr noalias %c, i64 %c_row, i64 %k, i64 %columns, "
    "i1 %accumulate"
)


def summed_in(dtype: DType) -> DType:
    """The dtype in which products of a stored one are summed, that of a and c."""
    return as_dtype("int32") if dtype.kind in "iu" and dtype.itemsize < 4 else dtype.accumulator


class _Family:
    """The types of one dtype on one target."""

    def __init__(self, dtype: DType, target: Target) -> None:
        wide = summed_in(dtype)
        self.dtype, self.target = dtype, target
        self.stored, self.element = REGISTER_TYPE[dtype.name], REGISTER_TYPE[wide.name]
        self.stored_size, self.size = dtype.itemsize, wide.itemsize
        self.lanes = target.vector_bytes // wide.itemsize
        self.rows, self.width = tile_shape(target)
        self.columns = panel_columns(wide, target)
        self.vector, self.mask = f"<{self.lanes} x {self.element}>", f"<{self.lanes} x i1>"
        self.floating = wide.kind == "f"
        self.suffix = f"v{self.lanes}{'f' if self.floating else 'i'}{8 * wide.itemsize}"
        self.plain, self.packed, self.pack = mixed_names(dtype)

    def tile_name(self, rows: int, vectors: int) -> str:
        return f"tc.mixed.tile.{self.dtype.name}.{rows}x{vectors}"

    def widen(self, name: str, at: str) -> list[str]:
        """%name: a vector of the summed dtype from stored elements."""
        load = f"load <{self.lanes} x {self.stored}>, ptr {at}, align {self.stored_size}"
        if self.stored == self.element:
            return [f"  %{name} = {load}"]
        if not self.floating:
            extend = "sext" if self.dtype.is_signed else "zext"
            small = f"<{self.lanes} x {self.stored}>"
            return [f"  %{name}.h = {load}", f"  %{name} = {extend} {small} %{name}.h to {self.vector}"]
        if self.dtype.name == "float16":
            return [f"  %{name}.h = {load}", f"  %{name} = fpext <{self.lanes} x half> %{name}.h to {self.vector}"]
        words = f"<{self.lanes} x i32>"
        sixteen = ", ".join(["i32 16"] * self.lanes)
        return [
            f"  %{name}.h = {load}",
            f"  %{name}.w = zext <{self.lanes} x i16> %{name}.h to {words}",
            f"  %{name}.s = shl {words} %{name}.w, <{sixteen}>",
            f"  %{name} = bitcast {words} %{name}.s to {self.vector}",
        ]

    def add_product(self, new: str, x: str, y: str, old: str) -> list[str]:
        """%new = x * y + old."""
        if self.floating:
            given = f"{self.vector} {x}, {self.vector} {y}, {self.vector} {old}"
            return [f"  %{new} = call {self.vector} @llvm.fma.{self.suffix}({given})"]
        return [f"  %{new}.p = mul {self.vector} {x}, {y}", f"  %{new} = add {self.vector} %{new}.p, {old}"]


def _tile(f: _Family, rows: int, vectors: int) -> str:
    """`rows` x `vectors` of c, summed over k; b is a panel of which the first vectors are used."""
    tile = [(r, v) for r in range(rows) for v in range(vectors)]
    counts = f"<{f.lanes} x i32>"
    ahead = max(4, min(64, AHEAD_CYCLES // len(tile))) * f.columns
    out = [f"define internal void @{f.tile_name(rows, vectors)}({_TILE}) {{", "entry:", "  %any = icmp sgt i64 %k, 0"]
    for r in range(rows):
        out += [f"  %row.{r} = mul i64 %a_row, {r}", f"  %a.{r} = getelementptr {f.element}, ptr %a, i64 %row.{r}"]
    out += [
        "  br i1 %any, label %loop, label %done",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]",
        "  %x = phi i64 [ 0, %entry ], [ %x.next, %loop ]",
        "  %b.at = phi ptr [ %b, %entry ], [ %b.next, %loop ]",
        *(f"  %sum.{r}.{v} = phi {f.vector} [ zeroinitializer, %entry ], [ %new.{r}.{v}, %loop ]" for r, v in tile),
        f"  %ask = getelementptr {f.stored}, ptr %b.at, i64 {ahead}",
    ]
    for line in range(0, vectors * f.lanes * f.stored_size, 64):
        out += [
            f"  %ask.{line} = getelementptr i8, ptr %ask, i64 {line}",
            f"  call void @llvm.prefetch.p0(ptr %ask.{line}, i32 0, i32 3, i32 1)",
        ]
    for v in range(vectors):
        out += [
            f"  %col.at.{v} = getelementptr {f.stored}, ptr %b.at, i64 {v * f.lanes}",
            *f.widen(f"col.{v}", f"%col.at.{v}"),
        ]
    for r in range(rows):
        out += [
            f"  %x.at.{r} = getelementptr {f.element}, ptr %a.{r}, i64 %x",
            f"  %x.one.{r} = load {f.element}, ptr %x.at.{r}, align {f.size}",
            f"  %x.first.{r} = insertelement {f.vector} poison, {f.element} %x.one.{r}, i64 0",
            f"  %x.{r} = shufflevector {f.vector} %x.first.{r}, {f.vector} poison, {counts} zeroinitializer",
        ]
        for v in range(vectors):
            out += f.add_product(f"new.{r}.{v}", f"%x.{r}", f"%col.{v}", f"%sum.{r}.{v}")
    out += [
        "  %i.next = add i64 %i, 1",
        "  %x.next = add i64 %x, %a_col",
        f"  %b.next = getelementptr {f.stored}, ptr %b.at, i64 {f.columns}",
        "  %more = icmp slt i64 %i.next, %k",
        "  br i1 %more, label %loop, label %done",
        "done:",
        *(f"  %total.{r}.{v} = phi {f.vector} [ zeroinitializer, %entry ], [ %new.{r}.{v}, %loop ]" for r, v in tile),
        f"  %old.one = insertelement {f.mask} poison, i1 %accumulate, i64 0",
        f"  %old = shufflevector {f.mask} %old.one, {f.mask} poison, {counts} zeroinitializer",
        f"  %full = icmp sge i64 %columns, {vectors * f.lanes}",
        "  br i1 %full, label %whole, label %part",
    ]
    # adding what was there or zero changes no bit: a sum that begins with zero is no negative zero
    add = "fadd" if f.floating else "add"
    out.append("whole:")
    for r in range(rows):
        out += [
            f"  %c.off.{r} = mul i64 %c_row, {r}",
            f"  %c.{r} = getelementptr {f.element}, ptr %c, i64 %c.off.{r}",
        ]
    out += [f"  %c.{r}.{v} = getelementptr {f.element}, ptr %c.{r}, i64 {v * f.lanes}" for r, v in tile]
    out += ["  br i1 %accumulate, label %whole.add, label %whole.set", "whole.add:"]
    for r, v in tile:
        out += [
            f"  %old.{r}.{v} = load {f.vector}, ptr %c.{r}.{v}, align {f.size}",
            f"  %both.{r}.{v} = {add} {f.vector} %old.{r}.{v}, %total.{r}.{v}",
            f"  store {f.vector} %both.{r}.{v}, ptr %c.{r}.{v}, align {f.size}",
        ]
    out += ["  ret void", "whole.set:"]
    out += [f"  store {f.vector} %total.{r}.{v}, ptr %c.{r}.{v}, align {f.size}" for r, v in tile]
    out += ["  ret void", "part:"]
    for v in range(vectors):
        out += [
            f"  %left.{v} = sub i64 %columns, {v * f.lanes}",
            f"  %some.{v} = call i64 @llvm.smax.i64(i64 %left.{v}, i64 0)",
            *first_lanes(f"mask.{v}", f"%some.{v}", f.lanes),
            f"  %old.{v} = and {f.mask} %mask.{v}, %old",
        ]
    for r in range(rows):
        out += [
            f"  %part.off.{r} = mul i64 %c_row, {r}",
            f"  %part.c.{r} = getelementptr {f.element}, ptr %c, i64 %part.off.{r}",
        ]
    for r, v in tile:
        at = f"%part.c.{r}.{v}"
        loaded = f"ptr {at}, i32 {f.size}, {f.mask} %old.{v}, {f.vector} zeroinitializer"
        stored = f"{f.vector} {at}.new, ptr {at}, i32 {f.size}, {f.mask} %mask.{v}"
        out += [
            f"  {at} = getelementptr {f.element}, ptr %part.c.{r}, i64 {v * f.lanes}",
            f"  {at}.old = call {f.vector} @llvm.masked.load.{f.suffix}.p0({loaded})",
            f"  {at}.new = {add} {f.vector} {at}.old, %total.{r}.{v}",
            f"  call void @llvm.masked.store.{f.suffix}.p0({stored})",
        ]
    return "\n".join([*out, "  ret void", "}"])


def _driver(f: _Family, *, packed: bool) -> str:
    """Blocks of k, panels of columns, tiles of rows."""
    operand = "ptr noalias %b" if packed else "ptr noalias %b, i64 %b_row, i64 %b_col"
    out = [
        (
            f"define void @{f.packed if packed else f.plain}(ptr noalias %a, i64 %a_row, i64 %a_col, {operand}, "
            "ptr noalias %c, i64 %c_row, i64 %m, i64 %n, i64 %k, i1 %accumulate"
            f"{'' if packed else ', ptr noalias %scratch'}) {{"
        ),
        "entry:",
        "  %no.m = icmp sle i64 %m, 0",
        "  %no.n = icmp sle i64 %n, 0",
        "  %nothing = or i1 %no.m, %no.n",
        "  br i1 %nothing, label %end, label %block",
        "block:",
        "  %k0 = phi i64 [ 0, %entry ], [ %k.next, %block.next ]",
        "  %k.left = sub i64 %k, %k0",
        f"  %k.few = call i64 @llvm.smin.i64(i64 %k.left, i64 {K_BLOCK})",
        "  %later = icmp ne i64 %k0, 0",
        "  %adding = or i1 %accumulate, %later",
        "  %a.off = mul i64 %k0, %a_col",
        f"  %a.block = getelementptr {f.element}, ptr %a, i64 %a.off",
        "  br label %panel",
        "panel:",
        "  %n0 = phi i64 [ 0, %block ], [ %n.next, %panel.next ]",
        "  %n.left = sub i64 %n, %n0",
        f"  %row.off = mul i64 %k0, {f.columns if packed else '%b_row'}",
        f"  %panel.off = mul i64 %n0, {'%k' if packed else '%b_col'}",
        "  %b.off = add i64 %row.off, %panel.off",
        f"  %b.panel = getelementptr {f.stored}, ptr %b, i64 %b.off",
    ]
    if not packed:
        out += [
            f"  %n.few = call i64 @llvm.smin.i64(i64 %n.left, i64 {f.columns})",
            f"  call void @{f.pack}(ptr %b.panel, i64 %b_row, i64 %b_col, ptr %scratch, i64 %n.few, i64 %k.few)",
        ]
    out += [
        "  br label %tile",
        "tile:",
        "  %m0 = phi i64 [ 0, %panel ], [ %m.next, %tile.next ]",
        "  %m.left = sub i64 %m, %m0",
        "  %a.row.off = mul i64 %m0, %a_row",
        f"  %a.tile = getelementptr {f.element}, ptr %a.block, i64 %a.row.off",
        "  %c.row.off = mul i64 %m0, %c_row",
        "  %c.off = add i64 %c.row.off, %n0",
        f"  %c.tile = getelementptr {f.element}, ptr %c, i64 %c.off",
        f"  switch i64 %m.left, label %rows.{f.rows} [",
        *(f"    i64 {r}, label %rows.{r}" for r in range(1, f.rows)),
        "  ]",
    ]
    arguments = (
        f"ptr %a.tile, i64 %a_row, i64 %a_col, ptr {'%b.panel' if packed else '%scratch'}, ptr %c.tile, i64 %c_row, "
        "i64 %k.few, i64 %n.left, i1 %adding"
    )
    for r in range(1, f.rows + 1):
        out.append(f"rows.{r}:")
        for v in range(1, f.width):
            out += [
                f"  %few.{r}.{v} = icmp sle i64 %n.left, {v * f.lanes}",
                f"  br i1 %few.{r}.{v}, label %few.rows.{r}.{v}, label %more.rows.{r}.{v}",
                f"few.rows.{r}.{v}:",
                f"  call void @{f.tile_name(r, v)}({arguments})",
                "  br label %tile.next",
                f"more.rows.{r}.{v}:",
            ]
        out += [f"  call void @{f.tile_name(r, f.width)}({arguments})", "  br label %tile.next"]
    out += [
        "tile.next:",
        f"  %m.next = add i64 %m0, {f.rows}",
        "  %m.more = icmp slt i64 %m.next, %m",
        "  br i1 %m.more, label %tile, label %panel.next",
        "panel.next:",
        f"  %n.next = add i64 %n0, {f.columns}",
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
    return "\n".join(out)


def _pack(f: _Family) -> str:
    """Contiguous rows are copied in vectors, what is left of them and everything else element by element."""
    # as bits: nothing is computed with them
    bits, size = f"i{8 * f.stored_size}", f.stored_size
    lanes = f.lanes
    vector = f"<{lanes} x {bits}>"
    out = [
        f"define void @{f.pack}(ptr noalias %b, i64 %b_row, i64 %b_col, ptr noalias %out, i64 %n, i64 %k) {{",
        "entry:",
        "  %no.n = icmp sle i64 %n, 0",
        "  %no.k = icmp sle i64 %k, 0",
        "  %nothing = or i1 %no.n, %no.k",
        "  %rows = icmp eq i64 %b_col, 1",
        "  br i1 %nothing, label %end, label %panel",
        "panel:",
        "  %n0 = phi i64 [ 0, %entry ], [ %n.next, %panel.next ]",
        "  %to.off = mul i64 %n0, %k",
        f"  %to = getelementptr {bits}, ptr %out, i64 %to.off",
        "  %from.off = mul i64 %n0, %b_col",
        f"  %from = getelementptr {bits}, ptr %b, i64 %from.off",
        "  %left = sub i64 %n, %n0",
        *(f"  %in.{v} = icmp sge i64 %left, {(v + 1) * lanes}" for v in range(f.width)),
        "  br i1 %rows, label %row, label %columns",
        "row:",
        "  %i = phi i64 [ 0, %panel ], [ %i.next, %row.next ]",
        "  %i.off = mul i64 %i, %b_row",
        f"  %i.from = getelementptr {bits}, ptr %from, i64 %i.off",
        f"  %i.to.off = mul i64 %i, {f.columns}",
        f"  %i.to = getelementptr {bits}, ptr %to, i64 %i.to.off",
        "  br label %look.0",
    ]
    for v in range(f.width):
        out += [
            f"look.{v}:",
            f"  br i1 %in.{v}, label %copy.{v}, label %put.{v}",
            f"copy.{v}:",
            f"  %at.{v} = getelementptr {bits}, ptr %i.from, i64 {v * lanes}",
            f"  %c.{v} = load {vector}, ptr %at.{v}, align {size}",
            f"  br label %put.{v}",
            f"put.{v}:",
            f"  %v.{v} = phi {vector} [ zeroinitializer, %look.{v} ], [ %c.{v}, %copy.{v} ]",
            f"  %to.{v} = getelementptr {bits}, ptr %i.to, i64 {v * lanes}",
            f"  store {vector} %v.{v}, ptr %to.{v}, align {size}",
            f"  br label %{f'look.{v + 1}' if v + 1 < f.width else 'row.next'}",
        ]
    out += [
        "row.next:",
        "  %i.next = add i64 %i, 1",
        "  %i.more = icmp slt i64 %i.next, %k",
        "  br i1 %i.more, label %row, label %rest",
        "rest:",
        f"  %vectors = sdiv i64 %left, {lanes}",
        f"  %j.rest = mul i64 %vectors, {lanes}",
        f"  %end.rest = call i64 @llvm.smin.i64(i64 %left, i64 {f.columns})",
        "  %some.rest = icmp slt i64 %j.rest, %end.rest",
        "  br i1 %some.rest, label %columns, label %panel.next",
        "columns:",
        "  %j.first = phi i64 [ 0, %panel ], [ %j.rest, %rest ]",
        f"  %j.end = phi i64 [ {f.columns}, %panel ], [ %end.rest, %rest ]",
        "  br label %column",
        "column:",
        "  %j = phi i64 [ %j.first, %columns ], [ %j.next, %column.next ]",
        "  %inside = icmp slt i64 %j, %left",
        "  %j.some = select i1 %inside, i64 %j, i64 0",
        "  %j.off = mul i64 %j.some, %b_col",
        f"  %j.from = getelementptr {bits}, ptr %from, i64 %j.off",
        f"  %j.to = getelementptr {bits}, ptr %to, i64 %j",
        "  br label %one",
        "one:",
        "  %r = phi i64 [ 0, %column ], [ %r.next, %one ]",
        "  %r.off = mul i64 %r, %b_row",
        f"  %r.from = getelementptr {bits}, ptr %j.from, i64 %r.off",
        f"  %value = load {bits}, ptr %r.from, align {size}",
        f"  %kept = select i1 %inside, {bits} %value, {bits} 0",
        f"  %r.to.off = mul i64 %r, {f.columns}",
        f"  %r.to = getelementptr {bits}, ptr %j.to, i64 %r.to.off",
        f"  store {bits} %kept, ptr %r.to, align {size}",
        "  %r.next = add i64 %r, 1",
        "  %r.more = icmp slt i64 %r.next, %k",
        "  br i1 %r.more, label %one, label %column.next",
        "column.next:",
        "  %j.next = add i64 %j, 1",
        "  %j.more = icmp slt i64 %j.next, %j.end",
        "  br i1 %j.more, label %column, label %panel.next",
        "panel.next:",
        f"  %n.next = add i64 %n0, {f.columns}",
        "  %n.more = icmp slt i64 %n.next, %n",
        "  br i1 %n.more, label %panel, label %end",
        "end:",
        "  ret void",
        "}",
    ]
    return "\n".join(out)


def emit_mixed(dtype: DType, target: Target) -> tuple[list[str], list[str]]:
    """(declarations, functions) of the products of a dtype of `names.MIXED`."""
    f = _Family(dtype, target)
    declarations = [
        "declare i64 @llvm.smin.i64(i64, i64)",
        "declare i64 @llvm.smax.i64(i64, i64)",
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        f"declare {f.vector} @llvm.masked.load.{f.suffix}.p0(ptr, i32, {f.mask}, {f.vector})",
        f"declare void @llvm.masked.store.{f.suffix}.p0({f.vector}, ptr, i32, {f.mask})",
    ]
    if f.floating:
        declarations.append(f"declare {f.vector} @llvm.fma.{f.suffix}({f.vector}, {f.vector}, {f.vector})")
    functions = [_tile(f, r, v) for r in range(1, f.rows + 1) for v in range(1, f.width + 1)]
    return declarations, [*functions, _driver(f, packed=False), _driver(f, packed=True), _pack(f)]
