"""Growing a cache in machine code, for the entry stub: room for new entries before a call, the Tensor after it.

In: a record of int64 words (`Growth`) that `vm.growing` writes, a Tensor and its array. Out: LLVM text of three
functions. `tc.grow` finds or makes room, writes down where it is and claims it; `tc.grown` makes the Tensor of it;
`tc.unclaim` gives back what a call that came to nothing has claimed.

What may grow in place is what `values.growth` says, seen more narrowly: all of the block's entries that are taken, in a
block whose memory no array but the Tensor's own looks at, and that array known to the Tensor alone. Both are counts of
references, so that no Tensor has to be looked for. Everything else is left to Python (`Growth.BEGIN`). From the first
look to the claim the interpreter lock is held, and no code of CPython runs that could give it up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

__all__ = ["CLAIMS", "GROW", "GROWN", "UNCLAIM", "Growth", "growing_text"]

GROW: Final = "tc.grow"
GROWN: Final = "tc.grown"
UNCLAIM: Final = "tc.unclaim"
CLAIMS: Final = 8
"""Most results of one call that grow."""
MAX_RANK: Final = 64
"""Axes of an array, at most (NumPy's limit)."""
HOLDERS: Final = 12
"""References to Tensors a block has before those that are gone are dropped."""


class Growth(IntEnum):
    """Words of a record. Numbers of frame words, objects, types, offsets of slots in bytes."""

    AXIS = 0
    SIZE = 1  # the frame word of how many entries are new
    ADDRESS = 2  # the frame word that gets the address of the first entry
    CAPACITY = 3  # the frame word that gets the capacity, -1 for none
    BEGIN = 4  # called with a Tensor and a size, gives a Block with room behind its entries, claimed
    FORGET = 5  # called with a Block, drops what it need not look at
    STORAGE = 6
    BLOCK = 7
    TENSOR = 8
    ZERO = 9  # the int 0
    GROWN = 10  # the axis as an int
    TENSOR_ARRAY = 11
    TENSOR_STORAGE = 12
    STORAGE_VERSION = 13
    STORAGE_GUARDED = 14
    STORAGE_FROZEN = 15
    STORAGE_BLOCK = 16
    STORAGE_GROWN = 17
    STORAGE_OWNER = 18
    BLOCK_BASE = 19
    BLOCK_MARKS = 20
    BLOCK_HOLDERS = 21


def growing_text(offsets: Mapping[str, int], api: Sequence[str]) -> str:
    """LLVM text of the functions.

    Args:
        offsets: byte offsets in objects and arrays, as in `stub.OFFSETS`.
        api: the names in the table of addresses.
    """

    def function(name: str) -> str:
        return (
            f"  %{name}.at = getelementptr i8, ptr %api, i64 {8 * api.index(name)}\n"
            f"  %{name} = load ptr, ptr %{name}.at, align 8"
        )

    def word(name: str, of: Growth, kind: str = "i64") -> str:
        return (
            f"  %{name}.in = getelementptr i64, ptr %record, i64 {int(of)}\n"
            f"  %{name} = load {kind}, ptr %{name}.in, align 8"
        )

    def field(name: str, of: str, offset: str | int, kind: str = "ptr") -> str:
        """A field of an object."""
        return (
            f"  %{name}.of = getelementptr i8, ptr %{of}, i64 {offset}\n"
            f"  %{name} = load {kind}, ptr %{name}.of, align {4 if kind == 'i32' else 8}"
        )

    def slot(name: str, of: str, number: Growth) -> str:
        return f"{word(f'{name}.slot', number)}\n{field(name, of, f'%{name}.slot')}"

    def put(of: str, number: Growth, value: str) -> str:
        """Store an object, which has a reference already, into an empty slot."""
        name = f"{of}.{number.name.lower()}"
        return (
            f"{word(name, number)}\n  %{name}.to = getelementptr i8, ptr %{of}, i64 %{name}\n"
            f"  store ptr {value}, ptr %{name}.to, align 8"
        )

    data, nd, descr = offsets["data"], offsets["nd"], offsets["descr"]
    made_of = (
        "ptr %type", "ptr %descr", "i32 %rank", "ptr %new.sizes", "ptr %steps", "ptr %data", "i32 %locked", "ptr null",
    )  # fmt: skip
    sizes, steps, flags, kind = offsets["dimensions"], offsets["strides"], offsets["flags"], offsets["type"]
    return f"""
define internal ptr @{GROW}(ptr %api, ptr %frame, ptr %tensor, ptr %array, ptr %record, ptr %claims) {{
entry:
  %pair = alloca [2 x ptr], align 8
{word("axis", Growth.AXIS)}
{word("size.number", Growth.SIZE)}
  %size.at = getelementptr i64, ptr %frame, i64 %size.number
  %size = load i64, ptr %size.at, align 8
{field("sizes", "array", sizes)}
  %length.at = getelementptr i64, ptr %sizes, i64 %axis
  %length = load i64, ptr %length.at, align 8
  %taken = add i64 %length, %size
{slot("storage", "tensor", Growth.TENSOR_STORAGE)}
  %none = icmp eq ptr %storage, null
  br i1 %none, label %ask, label %is.storage
is.storage:
{field("storage.type", "storage", kind)}
{word("storage.wanted", Growth.STORAGE, "ptr")}
  %storage.is = icmp eq ptr %storage.type, %storage.wanted
  br i1 %storage.is, label %has.block, label %ask
has.block:
{slot("known", "storage", Growth.STORAGE_BLOCK)}
{field("known.type", "known", kind)}
{word("known.wanted", Growth.BLOCK, "ptr")}
  %known.is = icmp eq ptr %known.type, %known.wanted
  br i1 %known.is, label %look, label %ask
look:
{slot("base", "known", Growth.BLOCK_BASE)}
{slot("marks.array", "known", Growth.BLOCK_MARKS)}
{field("marks", "marks.array", data)}
  %filled = load i64, ptr %marks, align 8
  %busy.at = getelementptr i64, ptr %marks, i64 1
  %busy = load i64, ptr %busy.at, align 8
  %own.at = getelementptr i64, ptr %marks, i64 2
  %own = load i64, ptr %own.at, align 8
  %idle = icmp eq i64 %busy, 0
  %along = icmp eq i64 %own, %axis
  %all = icmp eq i64 %filled, %length
  %forward = icmp sge i64 %size, 0
{field("room", "base", sizes)}
  %capacity.at = getelementptr i64, ptr %room, i64 %axis
  %capacity = load i64, ptr %capacity.at, align 8
  %fits = icmp sle i64 %taken, %capacity
{field("descr", "array", descr)}
{field("base.descr", "base", descr)}
  %same.dtype = icmp eq ptr %descr, %base.descr
{field("rank", "array", nd, "i32")}
{field("base.rank", "base", nd, "i32")}
  %same.rank = icmp eq i32 %rank, %base.rank
  %first = load i32, ptr %array, align 8
  %second = load i32, ptr %base, align 8
  ; the array: the Tensor and the stub; the base: the block and the array
  %alone = icmp eq i32 %first, 2
  %unseen = icmp eq i32 %second, 2
  %c1 = and i1 %idle, %along
  %c2 = and i1 %all, %forward
  %c3 = and i1 %fits, %same.dtype
  %c4 = and i1 %same.rank, %alone
  %c5 = and i1 %c1, %c2
  %c6 = and i1 %c3, %c4
  %c7 = and i1 %c5, %c6
  %could = and i1 %c7, %unseen
{field("steps", "array", steps)}
{field("base.steps", "base", steps)}
  %axes = zext i32 %rank to i64
  br i1 %could, label %axes.test, label %ask
axes.test:
  %i = phi i64 [ 0, %look ], [ %i.next, %axes.next ]
  %more = icmp slt i64 %i, %axes
  br i1 %more, label %axes.body, label %claim
axes.body:
  %step.at = getelementptr i64, ptr %steps, i64 %i
  %step = load i64, ptr %step.at, align 8
  %base.step.at = getelementptr i64, ptr %base.steps, i64 %i
  %base.step = load i64, ptr %base.step.at, align 8
  %extent.at = getelementptr i64, ptr %sizes, i64 %i
  %extent = load i64, ptr %extent.at, align 8
  %base.extent.at = getelementptr i64, ptr %room, i64 %i
  %base.extent = load i64, ptr %base.extent.at, align 8
  %same.step = icmp eq i64 %step, %base.step
  %same.extent = icmp eq i64 %extent, %base.extent
  %grows = icmp eq i64 %i, %axis
  %extent.fits = or i1 %same.extent, %grows
  %agree = and i1 %same.step, %extent.fits
  br i1 %agree, label %axes.next, label %ask
axes.next:
  %i.next = add i64 %i, 1
  br label %axes.test
claim:
  store i64 %taken, ptr %marks, align 8
  ; what is written through now is the code's own; the old Tensor's array is locked
  %flags.at = getelementptr i8, ptr %array, i64 {flags}
  %flags = load i32, ptr %flags.at, align 4
  %locked = and i32 %flags, {~0x400}
  store i32 %locked, ptr %flags.at, align 4
{function("Py_IncRef")}
  call void %Py_IncRef(ptr %known)
  br label %have
ask:
{word("begin", Growth.BEGIN, "ptr")}
{function("PyLong_FromLongLong")}
  %size.object = call ptr %PyLong_FromLongLong(i64 %size)
  %no.object = icmp eq ptr %size.object, null
  br i1 %no.object, label %failed, label %ask.call
ask.call:
  %pair.1 = getelementptr ptr, ptr %pair, i64 1
  store ptr %tensor, ptr %pair, align 8
  store ptr %size.object, ptr %pair.1, align 8
{function("PyObject_Vectorcall")}
  %made = call ptr %PyObject_Vectorcall(ptr %begin, ptr %pair, i64 2, ptr null)
{function("Py_DecRef")}
  call void %Py_DecRef(ptr %size.object)
  %no.block = icmp eq ptr %made, null
  br i1 %no.block, label %failed, label %have
failed:
  ret ptr null
have:
  %block = phi ptr [ %known, %claim ], [ %made, %ask.call ]
{slot("memory", "block", Growth.BLOCK_BASE)}
{slot("kept.array", "block", Growth.BLOCK_MARKS)}
{field("kept", "kept.array", data)}
{field("address", "memory", data, "i64")}
{word("address.number", Growth.ADDRESS)}
  %address.to = getelementptr i64, ptr %frame, i64 %address.number
  store i64 %address, ptr %address.to, align 8
  %count = load i64, ptr %claims, align 8
  %count.next = add i64 %count, 1
  store i64 %count.next, ptr %claims, align 8
  %offset = mul i64 %count, 3
  %offset.1 = add i64 %offset, 1
  %claimed = getelementptr i64, ptr %claims, i64 %offset.1
  %claimed.1 = getelementptr i64, ptr %claimed, i64 1
  %claimed.2 = getelementptr i64, ptr %claimed, i64 2
  store ptr %kept, ptr %claimed, align 8
  store i64 %length, ptr %claimed.1, align 8
  store i64 %taken, ptr %claimed.2, align 8
{word("capacity.number", Growth.CAPACITY)}
  %wanted = icmp sge i64 %capacity.number, 0
  br i1 %wanted, label %tell, label %end
tell:
{field("memory.sizes", "memory", sizes)}
  %all.at = getelementptr i64, ptr %memory.sizes, i64 %axis
  %all.room = load i64, ptr %all.at, align 8
  %capacity.to = getelementptr i64, ptr %frame, i64 %capacity.number
  store i64 %all.room, ptr %capacity.to, align 8
  br label %end
end:
  ret ptr %block
}}

define internal ptr @{GROWN}(ptr %api, ptr %frame, ptr %block, ptr %array, ptr %record) {{
entry:
  %new.sizes = alloca [{MAX_RANK} x i64], align 8
{word("axis", Growth.AXIS)}
{word("size.number", Growth.SIZE)}
  %size.at = getelementptr i64, ptr %frame, i64 %size.number
  %size = load i64, ptr %size.at, align 8
{field("sizes", "array", sizes)}
{field("rank", "array", nd, "i32")}
  %axes = zext i32 %rank to i64
{slot("base", "block", Growth.BLOCK_BASE)}
{field("descr", "base", descr)}
{field("steps", "base", steps)}
{field("data", "base", data)}
{field("type", "base", kind)}
{field("flags", "base", flags, "i32")}
  %locked = and i32 %flags, {~0x404}
{function("Py_IncRef")}
{function("Py_DecRef")}
{function("PyType_GenericAlloc")}
{function("PyArray_NewFromDescr")}
{function("PyArray_SetBaseObject")}
{function("PyWeakref_NewRef")}
{function("PyList_Append")}
{function("PyObject_Size")}
{function("PyObject_CallOneArg")}
  br label %copy.test
copy.test:
  %i = phi i64 [ 0, %entry ], [ %i.next, %copy.body ]
  %more = icmp slt i64 %i, %axes
  br i1 %more, label %copy.body, label %array.make
copy.body:
  %from = getelementptr i64, ptr %sizes, i64 %i
  %extent = load i64, ptr %from, align 8
  %longer = add i64 %extent, %size
  %grows = icmp eq i64 %i, %axis
  %extent.new = select i1 %grows, i64 %longer, i64 %extent
  %to = getelementptr i64, ptr %new.sizes, i64 %i
  store i64 %extent.new, ptr %to, align 8
  %i.next = add i64 %i, 1
  br label %copy.test
array.make:
  call void %Py_IncRef(ptr %descr)
  %made = call ptr %PyArray_NewFromDescr({", ".join(made_of)})
  %no.array = icmp eq ptr %made, null
  br i1 %no.array, label %failed, label %array.base
array.base:
  call void %Py_IncRef(ptr %base)
  %status = call i32 %PyArray_SetBaseObject(ptr %made, ptr %base)
  %wrong = icmp ne i32 %status, 0
  br i1 %wrong, label %array.drop, label %storage.make
array.drop:
  call void %Py_DecRef(ptr %made)
  ret ptr null
storage.make:
{word("storage.type", Growth.STORAGE, "ptr")}
  %storage = call ptr %PyType_GenericAlloc(ptr %storage.type, i64 0)
  %no.storage = icmp eq ptr %storage, null
  br i1 %no.storage, label %array.drop, label %storage.fill
storage.fill:
{word("zero", Growth.ZERO, "ptr")}
{word("along", Growth.GROWN, "ptr")}
  %False.at = getelementptr i8, ptr %api, i64 {8 * api.index("False")}
  %False = load ptr, ptr %False.at, align 8
  %None.at = getelementptr i8, ptr %api, i64 {8 * api.index("None")}
  %None = load ptr, ptr %None.at, align 8
  call void %Py_IncRef(ptr %zero)
  call void %Py_IncRef(ptr %False)
  call void %Py_IncRef(ptr %False)
  call void %Py_IncRef(ptr %block)
  call void %Py_IncRef(ptr %along)
  call void %Py_IncRef(ptr %None)
{put("storage", Growth.STORAGE_VERSION, "%zero")}
{put("storage", Growth.STORAGE_GUARDED, "%False")}
{put("storage", Growth.STORAGE_FROZEN, "%False")}
{put("storage", Growth.STORAGE_BLOCK, "%block")}
{put("storage", Growth.STORAGE_GROWN, "%along")}
{put("storage", Growth.STORAGE_OWNER, "%None")}
{word("tensor.type", Growth.TENSOR, "ptr")}
  %tensor = call ptr %PyType_GenericAlloc(ptr %tensor.type, i64 0)
  %no.tensor = icmp eq ptr %tensor, null
  br i1 %no.tensor, label %storage.drop, label %tensor.fill
storage.drop:
  call void %Py_DecRef(ptr %storage)
  br label %array.drop
tensor.fill:
{put("tensor", Growth.TENSOR_ARRAY, "%made")}
{put("tensor", Growth.TENSOR_STORAGE, "%storage")}
{slot("holders", "block", Growth.BLOCK_HOLDERS)}
  %many = call i64 %PyObject_Size(ptr %holders)
  %too.many = icmp sgt i64 %many, {HOLDERS}
  br i1 %too.many, label %forget, label %watch
forget:
{word("forget.call", Growth.FORGET, "ptr")}
  %forgotten = call ptr %PyObject_CallOneArg(ptr %forget.call, ptr %block)
  %not.forgotten = icmp eq ptr %forgotten, null
  br i1 %not.forgotten, label %tensor.drop, label %forget.end
forget.end:
  call void %Py_DecRef(ptr %forgotten)
  br label %watch
watch:
  ; read anew: forgetting makes another list
{slot("watchers", "block", Growth.BLOCK_HOLDERS)}
  %reference = call ptr %PyWeakref_NewRef(ptr %tensor, ptr null)
  %no.reference = icmp eq ptr %reference, null
  br i1 %no.reference, label %tensor.drop, label %append
append:
  %appended = call i32 %PyList_Append(ptr %watchers, ptr %reference)
  call void %Py_DecRef(ptr %reference)
  %not.appended = icmp ne i32 %appended, 0
  br i1 %not.appended, label %tensor.drop, label %end
tensor.drop:
  call void %Py_DecRef(ptr %tensor)
  br label %failed
failed:
  ret ptr null
end:
  ret ptr %tensor
}}

define internal void @{UNCLAIM}(ptr %claims) {{
entry:
  %count = load i64, ptr %claims, align 8
  store i64 0, ptr %claims, align 8
  br label %test
test:
  %i = phi i64 [ %count, %entry ], [ %less, %next ]
  %more = icmp sgt i64 %i, 0
  br i1 %more, label %body, label %end
body:
  %less = sub i64 %i, 1
  %offset = mul i64 %less, 3
  %offset.1 = add i64 %offset, 1
  %claimed = getelementptr i64, ptr %claims, i64 %offset.1
  %claimed.1 = getelementptr i64, ptr %claimed, i64 1
  %claimed.2 = getelementptr i64, ptr %claimed, i64 2
  %marks = load ptr, ptr %claimed, align 8
  %start = load i64, ptr %claimed.1, align 8
  %taken = load i64, ptr %claimed.2, align 8
  %filled = load i64, ptr %marks, align 8
  %ours = icmp eq i64 %filled, %taken
  br i1 %ours, label %undo, label %next
undo:
  store i64 %start, ptr %marks, align 8
  br label %next
next:
  br label %test
end:
  ret void
}}
"""
