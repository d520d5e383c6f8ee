"""The thread pool as seen from the process that uses it: making it, giving it up, forgetting it after a fork.

In: addresses of the library's pool functions, a number of threads. Out: `ThreadPool`, whose `address` goes into frames.
The threads never touch Python. They are made with all signals blocked, so that signals reach Python's main thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

import numpy as np

from tiercel.codegen.cpu.threads import WORDS

__all__ = ["SPIN", "ThreadPool"]

SPIN: Final = 2000
"""Pauses a worker waits for work before it sleeps (about 50 us; measured: longer spinning slows other pools down)."""


class ThreadPool:
    """Threads that take pieces of parallel axes.

    Args:
        run, worker: addresses of `tc.pool.run` and `tc.pool.worker`.
        threads: how many, the calling thread counted.

    Raises:
        OSError: the system gives no more threads (those that were made are used).
    """

    def __init__(self, run: int, worker: int, threads: int, *, spin: int = SPIN) -> None:
        self.pid = os.getpid()
        words = WORDS["starts"] + 2 * max(threads, 1)
        self._memory = np.zeros(words + 8, np.int64)
        first = -(self._memory.ctypes.data // 8) % 8
        self._words = self._memory[first : first + words]
        self.address = int(self._words.ctypes.data)
        self._words[WORDS["run"]] = run
        self._words[WORDS["spin"]] = spin
        self._words[WORDS["threads"]] = 1
        self._handles: list[ctypes.c_ulong] = []
        self._start(worker, threads)

    def _start(self, worker: int, threads: int) -> None:
        libc = ctypes.CDLL(None)
        create = libc.pthread_create
        create.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            for number in range(1, threads):
                start = WORDS["starts"] + 2 * number
                self._words[start], self._words[start + 1] = self.address, number
                handle = ctypes.c_ulong()
                status = create(ctypes.byref(handle), None, worker, self.address + 8 * start)
                if status:
                    if number == 1:
                        raise OSError(status, "no thread could be made")
                    break
                self._handles.append(handle)
                self._words[WORDS["threads"]] = number + 1
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @property
    def threads(self) -> int:
        """How many threads work, the calling one counted."""
        return int(self._words[WORDS["threads"]])

    def close(self) -> None:
        """End the threads and wait for them. No call may be under way."""
        if self.pid != os.getpid():
            return  # a forked child has none of them
        handles, self._handles = self._handles, []
        if not handles:
            return
        self._words[WORDS["stop"]] = 1
        libc = ctypes.CDLL(None)
        self._words[WORDS["wake"]] += 1
        libc.syscall(ctypes.c_long(202), ctypes.c_void_p(self.address + 8 * WORDS["wake"]), 129, 2**31 - 1)
        for handle in handles:
            libc.pthread_join(handle, None)
