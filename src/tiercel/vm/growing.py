"""Records by which the entry stub grows caches in machine code (`codegen.cpu.growing`).

In: along which axis a result continues a Tensor, and the words of the frame that take part. Out: the record, and what
must stay alive while it is used. The offsets of slots are found by looking, as those of arrays are.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from tiercel.codegen.cpu.growing import Growth
from tiercel.values.growth import Block, reserve
from tiercel.values.storage import Storage
from tiercel.values.tensor import Tensor

__all__ = ["growth_record", "slot_offset", "slots_differ"]

_SLOTS = {
    Growth.TENSOR_ARRAY: (Tensor, "_array"), Growth.TENSOR_STORAGE: (Tensor, "_storage"),
    Growth.STORAGE_VERSION: (Storage, "version"), Growth.STORAGE_GUARDED: (Storage, "guarded"),
    Growth.STORAGE_FROZEN: (Storage, "frozen"), Growth.STORAGE_BLOCK: (Storage, "block"),
    Growth.STORAGE_GROWN: (Storage, "grown"), Growth.STORAGE_OWNER: (Storage, "_owner"),
    Growth.BLOCK_BASE: (Block, "base"), Growth.BLOCK_MARKS: (Block, "marks"), Growth.BLOCK_HOLDERS: (Block, "holders"),
}  # fmt: skip


@functools.cache
def slot_offset(kind: type, name: str) -> int:
    """The byte offset of a slot in objects of a class; 0 if it is not where slots are."""
    holder: Any = object.__new__(kind)
    content = object()
    setattr(holder, name, content)
    words = (ctypes.c_size_t * (kind.__basicsize__ // 8)).from_address(id(holder))
    found = [8 * place for place, word in enumerate(words) if word == id(content)]
    return found[0] if len(found) == 1 else 0


@functools.cache
def slots_differ() -> str | None:
    """Why caches cannot be grown in machine code here, if so."""
    for kind, name in _SLOTS.values():
        if not slot_offset(kind, name):
            return f"the slots of {kind.__name__} are not where slots are"
    return None


def _begin(axis: int) -> Any:
    def begin(tensor: Any, size: int) -> Block:
        # the stub holds the Tensor's array once
        return reserve(tensor, size, axis, 1)[0]

    return begin


def growth_record(axis: int, size: int, address: int, capacity: int) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """A record, int64 (len(Growth),), and the objects in it.

    Args:
        axis: along which it grows.
        size: number of the frame word that says by how many entries.
        address, capacity: numbers of the frame words that get where the memory begins and its capacity; -1 for none.
    """
    objects = {
        Growth.BEGIN: _begin(axis), Growth.FORGET: Block.forget, Growth.STORAGE: Storage, Growth.BLOCK: Block,
        Growth.TENSOR: Tensor, Growth.ZERO: 0, Growth.GROWN: axis,
    }  # fmt: skip
    record = np.zeros(len(Growth), np.int64)
    record[Growth.AXIS], record[Growth.SIZE] = axis, size
    record[Growth.ADDRESS], record[Growth.CAPACITY] = address, capacity
    for number, value in objects.items():
        record[number] = id(value)
    for number, (kind, name) in _SLOTS.items():
        record[number] = slot_offset(kind, name)
    return record, [record, *objects.values()]
