"""Laying a part of an image out for a convolution, as LLVM text. Part of the runtime library.

In: a dtype and a `Target`. Out: one function; strides are in elements.

`unfold(source, channel, row, column, channels, height, width, target, top, left, rows, pitch, down, across)` lays a
part of an image out so that every tap of a window is a shift. Rows and columns of the image, the first of them `top`
and `left` (negative: padding, which reads as 0), are dealt to `down * across` planes by what is left of their numbers
after dividing by the strides `down` and `across`; a plane has `rows` rows of `pitch` elements, and
`UNFOLD_SLACK` more that are zeros or numbers of the image. Channels are outermost, then what is left of rows, then of
columns.

With columns side by side in memory and a stride of 1 or 2 along them whole vectors are read (and taken apart), masked
at the ends of a row; else one element after the other.
"""

from __future__ import annotations

from tiercel.codegen.cpu.names import convolve_names
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.text import REGISTER_TYPE, first_lanes
from tiercel.dtypes import DType
from tiercel.loops.form import UNFOLD_SLACK

__all__ = ["unfold_text"]


def unfold_text(dtype: DType, target: Target) -> str:
    """Channels, rows of the image, and in them one or two columns' planes by vectors, or element by element."""
    element, size, lanes = REGISTER_TYPE[dtype.name], dtype.itemsize, target.vector_bytes // dtype.itemsize
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
