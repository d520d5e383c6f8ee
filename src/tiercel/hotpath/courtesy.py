"""Leave the compile worker a core while it computes: NumPy's OpenBLAS works with one thread less in interpreted calls.

In: whether a worker computes now. Out: OpenBLAS's number of threads, lowered and restored. OpenBLAS cuts a product into
equal parts, one for each thread, and the caller waits for the slowest. With as many threads as cores and a worker on
one of them, that part waits for its core whenever the worker has it: calls of an LSTM that took 14 ms took 50 to 370
(measured on two cores), and the worker took twice as long as well.

Invariants: the number is only ever lowered, only for the time of an interpreted call, and what a call finds is what it
leaves. Where there is no OpenBLAS, nothing happens. No library is loaded for this: only what the process has mapped is
asked.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from tiercel.hotpath.processors import cpu_quota

__all__ = ["Blas", "Courtesy", "courtesy", "find_blas"]


class Blas(NamedTuple):
    """How many threads a BLAS may use."""

    get: Callable[[], int]
    set: Callable[[int], Any]


# Prefix and suffix of OpenBLAS's names: NumPy's and SciPy's wheels, those of distributions with and without 64-bit
# integers.
_NAMES: Final = [(a, b) for a in ("scipy_", "") for b in ("64_", "", "_64")]


def find_blas() -> Blas | None:
    """The OpenBLAS that NumPy has loaded, None where there is none (or where it cannot be found)."""
    for path in _mapped_files():
        # RTLD_NOLOAD: only what is there already.
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            continue
        for before, after in _NAMES:
            get = getattr(library, f"{before}openblas_get_num_threads{after}", None)
            put = getattr(library, f"{before}openblas_set_num_threads{after}", None)
            if get is not None and put is not None:
                get.restype, get.argtypes = ctypes.c_int, []
                put.restype, put.argtypes = None, [ctypes.c_int]
                return Blas(get, put)
    return None


def _mapped_files() -> list[str]:
    if sys.platform != "linux":
        return []
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
        paths = dict.fromkeys(line.split(maxsplit=5)[5] for line in lines if "openblas" in line)
        # NumPy's own before others (SciPy's, say).
        return sorted(paths, key=lambda p: "numpy" not in p)
    return []


def _cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


class Courtesy:
    """See the module docstring.

    Args:
        find: gives the BLAS, asked once.
        cores: says how many there are, asked once (it reads the files of the control group: 0.2 ms).
    """

    def __init__(
        self, find: Callable[[], Blas | None] = find_blas, cores: Callable[[], int] = _cores
    ) -> None:  # fmt: skip
        self._find = find
        self._cores = cores
        self._sought = False
        self._most = 1
        self._blas: Blas | None = None
        self.taken = 0  # the number of threads to go back to; 0 where nothing was lowered

    def give_way(self) -> None:
        """Lower the number of threads, if that makes room."""
        if self.taken:
            return
        if not self._sought:
            self._sought = True
            self._blas = self._find()
            self._most = max(1, self._cores() - 1)
        if self._blas is None:
            return
        now = self._blas.get()
        less = min(now, self._most)
        if less < now:
            self._blas.set(less)
            self.taken = now

    def take_back(self) -> None:
        """Restore it."""
        taken, self.taken = self.taken, 0
        if taken and self._blas is not None:
            self._blas.set(taken)


courtesy: Final = Courtesy()
"""That of this process."""
