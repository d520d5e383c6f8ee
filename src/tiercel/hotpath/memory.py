"""Memory with forbidden pages around it: what reads or writes outside of a buffer dies at once.

In: numbers of bytes. Out: NumPy views of memory that ends exactly at a forbidden page (overruns) or begins right after
one (underruns). For kernels on trial, in the worker.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any, Final

import numpy as np

__all__ = ["GuardedMemory"]

_PAGE: Final = mmap.PAGESIZE
_PROT_NONE: Final = 0  # Python has no name for it


class GuardedMemory:
    """Blocks between forbidden pages, until `release`."""

    def __init__(self) -> None:
        self._maps: list[mmap.mmap] = []
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def block(self, size: int, *, at_end: bool, fill: int = 0) -> np.ndarray[Any, Any]:
        """`size` bytes, filled with `fill`.

        Args:
            size: may be 0: the address is then one past what may be touched.
            at_end: whether the block ends at a forbidden page (else it begins after one).
            fill: the byte to write everywhere before.
        """
        pages = max(1, -(-size // _PAGE))
        memory = mmap.mmap(-1, (pages + 2) * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._maps.append(memory)
        whole = np.frombuffer(memory, np.uint8)
        if fill:
            whole[_PAGE : (pages + 1) * _PAGE] = fill
        base = whole.ctypes.data
        for page in (0, pages + 1):
            if self._libc.mprotect(base + page * _PAGE, _PAGE, _PROT_NONE):
                raise OSError(ctypes.get_errno(), "memory cannot be protected")
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

    def release(self) -> None:
        """Forget all blocks; they are unmapped when the last view is gone."""
        self._maps.clear()
