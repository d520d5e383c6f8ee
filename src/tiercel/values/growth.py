"""Memory that grows: `cache = np.concatenate([cache, step], axis)` without copying the cache.

In: a Tensor that a concatenation made, and what comes after it. Out: a Tensor over the same memory, which has spare
capacity; only the new part is written. n steps cost n parts and, by doubling, at most two copies of the whole.

A `Block` is an array with spare capacity along one axis and a fill mark. Tensors over it (*holders*) see its first so
many entries. Invariants:

* A holder appends in place only when it ends at the fill mark and nobody but Tensors that the block knows looks at the
  memory; it takes the entries beyond the mark under a lock. So of two branches that grow from one cache the first one
  grows in place and the other copies, and a holder's own entries never change by growth.
* Holders with different contents have storages of their own. Before a Tensor of one of them is written to or handed out
  (as an ndarray, to DLPack, to torch), the block is left to one storage: the others move out, with their views (`own`).
  Arrays and tensors of other libraries therefore only ever look at memory of one storage. Until then the arrays of
  holders are locked, so that nothing that works on them directly (compiled code) can write by mistake.

A result of a concatenation is compact. Only when it is concatenated once more along the same axis a block is made: what
is not a cache costs nothing. Along an axis in the middle the block has the strides of its capacity, so the Tensor is
strided, as NumPy's view of a larger array would be.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from tiercel.values.storage import Storage

__all__ = [
    "AXIS", "BUSY", "FILLED", "SPARES", "Block", "Growing", "Spares", "append", "finish", "give_back", "own", "reserve",
]  # fmt: skip

Array = npt.NDArray[Any]
SPARE: Final = 16
"""Entries that a new block has room for beyond twice what it holds."""
KEPT_BYTES: Final = 32 << 20
"""Most memory of blocks that are gone which is kept for new ones."""
KEPT_LEAST: Final = 1 << 16
"""The smallest block that is worth keeping, in bytes: smaller ones come from the heap without a page of the system."""
FILLED, BUSY, AXIS = range(3)
"""Words of `Block.marks`."""

_lock = threading.Lock()


def _renew_lock() -> None:
    # a fork while another thread holds the lock would leave it held for ever in the child
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


class Spares:
    """Memory of blocks that are gone, for new ones of the same shape: the next sequence grows as the last one did.

    New memory of some megabytes comes from the system page by page, which takes longer than copying a cache into it.
    Threads share it without a lock, which a finaliser could not take: every step is one operation of a dict or a deque.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[tuple[int, ...], str], deque[Array]] = {}

    def take(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Memory of this shape, C-contiguous, with any contents."""
        kept = self._kept.get((tuple(shape), dtype.str))
        if kept is not None:
            try:
                return kept.pop()
            except IndexError:
                pass
        return np.empty(tuple(shape), dtype)

    def give(self, array: Array) -> None:
        """Keep memory that nobody looks at any more; what was kept longest goes when it gets too much."""
        if array.nbytes < KEPT_LEAST:
            return
        key = array.shape, array.dtype.str
        kept = self._kept.pop(key, None)
        if kept is None:
            kept = deque(maxlen=4)
        kept.append(array)
        self._kept[key] = kept
        while self.nbytes > KEPT_BYTES and self._kept:
            self._kept.pop(next(iter(list(self._kept)), key), None)

    def release(self) -> None:
        """Let go of all of it."""
        self._kept.clear()

    @property
    def nbytes(self) -> int:
        """Bytes kept."""
        return sum(array.nbytes for kept in list(self._kept.values()) for array in list(kept))


SPARES: Final = Spares()


@final
class Block:
    """Memory with spare capacity along an axis.

    Attributes:
        base: the owner of the memory, C-contiguous: its size along `axis` is the capacity.
        address: of its first element.
        axis: along which it grows.
        holders: the Tensors that see its first entries, and views of them, weakly.
        marks: int64 words that machine code reads and writes, too: `filled`; 1 while `_claim` is at work; the axis.
    """

    __slots__ = ("address", "axis", "base", "holders", "marks")

    def __init__(self, base: Array, axis: int, filled: int) -> None:
        self.base = base
        self.address = int(base.ctypes.data)
        self.axis = axis
        self.marks = np.array([filled, 0, axis], np.int64)
        self.holders: list[weakref.ref[Any]] = []

    def __del__(self) -> None:
        base = getattr(self, "base", None)
        # held by this block, by `base`, and by the call
        if base is not None and sys.getrefcount(base) <= _ALONE:
            SPARES.give(base)

    @property
    def filled(self) -> int:
        """Entries that somebody sees or has seen."""
        return int(self.marks[FILLED])

    @filled.setter
    def filled(self, entries: int) -> None:
        self.marks[FILLED] = entries

    def prefix(self, size: int) -> Array:
        """The first so many entries, as a view."""
        return self.base[(*(slice(None),) * self.axis, slice(0, size))]

    def part(self, start: int, size: int) -> Array:
        """Entries from `start` on."""
        return self.base[(*(slice(None),) * self.axis, slice(start, start + size))]

    def watch(self, tensor: Any) -> None:
        """A Tensor looks at the memory from now on."""
        if len(self.holders) > 4:
            self.forget()
        self.holders.append(weakref.ref(tensor))

    def forget(self) -> None:
        """Drop Tensors that are gone."""
        self.holders = [h for h in self.holders if h() is not None]

    def tensors(self) -> list[Any]:
        """The Tensors that look at the memory now."""
        found = [h() for h in self.holders]
        return [t for t in found if t is not None and t._storage is not None and t._storage.block is self]

    def leave(self, storage: Storage) -> None:
        """Give the Tensors of a storage memory of their own: a copy in which everything lies where it did."""
        raw = np.empty(self.base.nbytes, np.uint8)
        raw[...] = self.base.reshape(-1).view(np.uint8)
        start = self.address
        for tensor in self.tensors():
            if tensor._storage is storage:
                old = tensor._array
                tensor._array = np.ndarray(
                    old.shape, old.dtype, buffer=raw, offset=old.ctypes.data - start, strides=old.strides
                )
        storage.block = None


def own(storage: Storage) -> None:
    """Leave the memory of a storage to it alone, before it is written to or handed out."""
    block = storage.block
    if block is None:
        return
    with _lock:
        tensors = block.tensors()
        for other in {id(t._storage): t._storage for t in tensors if t._storage is not storage}.values():
            block.leave(other)
        for tensor in tensors:
            if tensor._storage is storage:
                tensor._array.flags.writeable = True


def _fits(array: Array, parts: Sequence[Array], axis: int) -> bool:
    """Do the parts continue the array, without a conversion?"""
    shape = array.shape
    for part in parts:
        if type(part) is not np.ndarray or part.dtype != array.dtype or part.ndim != len(shape):
            return False
        if any(a != b for i, (a, b) in enumerate(zip(part.shape, shape, strict=True)) if i != axis):
            return False
    return True


class _Busy:
    """Keeps machine code from claiming entries of a block."""

    __slots__ = ("marks",)

    def __init__(self, block: Block) -> None:
        self.marks = block.marks

    def __enter__(self) -> None:
        self.marks[BUSY] = 1

    def __exit__(self, *exception: object) -> None:
        self.marks[BUSY] = 0


def _claim(storage: Storage, array: Array, size: int, axis: int, held: int) -> Block | None:
    """Take entries beyond the fill mark of the block that an array is the whole of; None when that is not allowed.

    `held` is how often callers hold the array by names of their own.
    """
    block: Block | None = storage.block
    if block is None or block.axis != axis or block.base.dtype != array.dtype:
        return None
    with _lock, _Busy(block):
        # All entries and no others: a view of these strides and sizes can only begin at the first element.
        base, shape, room = block.base, array.shape, block.base.shape
        length = shape[axis]
        if length != block.filled or length + size > room[axis] or array.strides != base.strides:
            return None
        if shape[:axis] != room[:axis] or shape[axis + 1 :] != room[axis + 1 :]:
            return None
        # Somebody else who looks at the memory may write to it: an ndarray, a torch tensor, a view of one storage.
        arrays = []
        for holder in block.holders:
            tensor = holder()
            if tensor is not None and tensor._storage is not None and tensor._storage.block is block:
                if tensor._storage is storage and tensor._array is not array:
                    return None
                arrays.append(id(tensor._array))
        if sys.getrefcount(array) > _clean[0] + held or sys.getrefcount(base) - len(set(arrays)) > _clean[1]:
            return None
        array.flags.writeable = False
        block.filled = length + size
        return block


def append(tensor: Any, parts: Sequence[Array], axis: int, wrap: Any) -> Any:
    """Concatenate a Tensor and arrays, in its spare capacity if it has any.

    Args:
        tensor: the first operand; it came from a concatenation along `axis`, or from anywhere.
        parts: the other operands, arrays.
        axis: not negative.
        wrap: makes a Tensor of an array and a storage.

    Returns:
        The Tensor, or None where NumPy has to do it: nothing fits, or it is not known to be a cache yet.
    """
    storage = tensor._storage
    if storage is None or storage.grown != axis or not _fits(tensor._array, parts, axis):
        return None
    size = sum(part.shape[axis] for part in parts)
    block, start = reserve(tensor, size, axis)
    for part in parts:
        block.part(start, part.shape[axis])[...] = part
        start += part.shape[axis]
    return finish(block, start, wrap)


def reserve(tensor: Any, size: int, axis: int, held: int = 0) -> tuple[Block, int]:
    """Room for `size` entries behind those of a Tensor. What was not made by a concatenation gets no spare capacity.

    Args:
        tensor: its entries are kept as they are.
        size: entries.
        axis: not negative.
        held: how often callers hold the Tensor's array by names of their own.

    Returns:
        The block, whose entries before the second value are the Tensor's, and those after it the caller's to write.
    """
    array = tensor._array
    storage = tensor._storage
    length = array.shape[axis]
    block = None if storage is None else _claim(storage, array, size, axis, held)
    if block is None:
        shape = list(array.shape)
        shape[axis] = length + size
        if storage is not None and storage.grown == axis:
            shape[axis] = 2 * shape[axis] + SPARE
        block = Block(SPARES.take(shape, array.dtype), axis, length + size)
        block.prefix(length)[...] = array
    return block, length


def finish(block: Block, length: int, wrap: Any) -> Any:
    """The Tensor over the first so many entries of a block."""
    storage = Storage()
    storage.block, storage.grown = block, block.axis
    array = block.prefix(length)
    array.flags.writeable = False
    return wrap(array, storage)


def give_back(block: Block, start: int, size: int) -> None:
    """Undo a `reserve` whose entries were not used."""
    with _lock:
        if block.filled == start + size:
            block.filled = start


class Growing:
    """The growth of one result of compiled code that is entered from Python: room before the call, the Tensor after it.

    Args:
        axis: along which it grows.
        wrap: makes a Tensor of an array and a storage.
    """

    __slots__ = ("axis", "pending", "wrap")

    def __init__(self, axis: int, wrap: Any) -> None:
        self.axis, self.wrap = axis, wrap
        self.pending: dict[int, tuple[Block, int, int]] = {}

    def begin(self, tensor: Any, size: int, held: int) -> int:
        """Reserve room for `size` entries behind those of a Tensor; gives the address of the first entry of all."""
        self.drop()
        block, start = reserve(tensor, size, self.axis, held)
        self.pending[threading.get_ident()] = block, start, size
        return block.address

    def capacity(self) -> int:
        """Of the memory that was reserved."""
        return int(self.pending[threading.get_ident()][0].base.shape[self.axis])

    def end(self) -> Any:
        """The Tensor, when the code has filled what was reserved."""
        block, start, size = self.pending.pop(threading.get_ident())
        return finish(block, start + size, self.wrap)

    def drop(self) -> None:
        """Give back what the last call reserved and did not use."""
        unused = self.pending.pop(threading.get_ident(), None)
        if unused is not None:
            give_back(*unused)


class _Looker:
    """Something that looks at a block, to see how many references there are when nobody else does."""

    __slots__ = ("__weakref__", "_array", "_storage")

    def __init__(self, array: Array, storage: Storage) -> None:
        self._array, self._storage = array, storage
        storage.block.watch(self)


_clean = (1 << 30, 1 << 30)
_ALONE = 0


def _references() -> tuple[int, int]:
    """References to the array and to its base, seen from `_claim`, when nobody looks at them from outside."""
    found: list[int] = []
    for which in range(2):
        for limit in range(2, 16):
            global _clean
            looker = finish(Block(np.empty((4, 1)), 0, 1), 1, _Looker)
            _clean = (limit, 1 << 30) if which == 0 else (1 << 30, limit)
            before = looker._storage.block
            if reserve(looker, 1, 0)[0] is before:
                found.append(limit)
                break
    return found[0], found[1]


_clean = _references()


def _alone() -> int:
    """References to a base, seen from `Block.__del__`, when nobody else has one."""
    for limit in range(2, 8):
        global _ALONE
        _ALONE = limit
        Block(np.empty((KEPT_LEAST, 1), np.uint8), 0, 1)
        if SPARES.nbytes:
            break
    SPARES.release()
    return limit


_ALONE = _alone()
