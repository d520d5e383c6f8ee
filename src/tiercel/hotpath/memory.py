"""Memory with forbidden pages around it: what reads or writes outside of a buffer dies at once.

In: numbers of bytes. Out: NumPy views of memory that ends exactly at a forbidden page (overruns) or begins right after
one (underruns). For kernels on trial, in the worker.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from typing import Any, Final

import numpy as np

__all__ = ["GuardedMemory"]

_Pages = np.ndarray[Any, np.dtype[np.uint8]]
_PAGE: Final = mmap.PAGESIZE
_PROT_NONE: Final = 0  # Python has no name for it


class GuardedMemory:
    """Blocks between forbidden pages, until `recycle` or `release`."""

    def __init__(self) -> None:
        self._used: list[tuple[int, _Pages]] = []
        self._free: dict[int, list[_Pages]] = {}

    def block(self, size: int, *, at_end: bool, fill: int = 0) -> np.ndarray[Any, Any]:
        """`size` bytes, filled with `fill`.

        Args:
            size: may be 0: the address is then one past what may be touched.
            at_end: whether the block ends at a forbidden page (else it begins after one).
            fill: the byte to write everywhere before.
        """
        pages = max(1, -(-size // _PAGE))
        free = self._free.get(pages)
        whole = free.pop() if free else _map(pages)
        if fill or free is not None:
            whole[_PAGE : (pages + 1) * _PAGE] = fill
        self._used.append((pages, whole))
        start = (pages + 1) * _PAGE - size if at_end else _PAGE
        return whole[start : start + size]

    def array(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], *, at_end: bool, strides: tuple[int, ...] | None = None,
        fill: int = 0,
    ) -> np.ndarray[Any, Any]:  # fmt: skip
        """An array of its own block; its strides (in bytes) may be any."""
        if strides is None:
            strides = np.empty(shape, np.int8).strides if 0 not in shape else (0,) * len(shape)
            strides = tuple(s * dtype.itemsize for s in strides)
        if 0 in shape:
            return np.ndarray(shape, dtype, self.block(0, at_end=at_end), 0, strides)
        low = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
        high = sum(max(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
        block = self.block(high - low + dtype.itemsize, at_end=at_end, fill=fill)
        return np.ndarray(shape, dtype, block, -low, strides)

    def recycle(self) -> None:
        """Take all blocks back, to be given out again: no view of them may be looked at any more."""
        for pages, whole in self._used:
            self._free.setdefault(pages, []).append(whole)
        self._used.clear()

    def release(self) -> None:
        """Forget all blocks; they are unmapped when the last view is gone."""
        self._used.clear()
        self._free.clear()


def _map(pages: int) -> _Pages:
    """New memory, zero, with a forbidden page before and after. The mapping lives as long as a view of it."""
    memory = mmap.mmap(-1, (pages + 2) * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = np.frombuffer(memory, np.uint8)
    base = whole.ctypes.data
    for page in (0, pages + 1):
        if _libc().mprotect(base + page * _PAGE, _PAGE, _PROT_NONE):
            raise OSError(ctypes.get_errno(), "memory cannot be protected")
    return whole


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc
