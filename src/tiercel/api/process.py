"""What concerns the whole process: counters of all jitted functions, memory, the end.

In: nothing. Out: numbers, and the switches `freeze`, `release_memory`, `shutdown`. Jitted functions are known here
weakly.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import time
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tiercel.values.growth import SPARES
from tiercel.vm.build import builder
from tiercel.vm.entry import ARENAS, fixed_bytes

if TYPE_CHECKING:
    from tiercel.api.function import JitFunction

__all__ = [
    "freeze",
    "is_frozen",
    "keep_all",
    "memory_stats",
    "metrics",
    "register",
    "release_memory",
    "shutdown",
    "wait",
]

_functions: weakref.WeakSet[JitFunction] = weakref.WeakSet()
_kept: list[list[JitFunction]] = []
_frozen = False


def register(state: JitFunction) -> None:
    """Count a jitted function in `metrics` as long as it lives."""
    _functions.add(state)
    for states in _kept:
        states.append(state)


@contextlib.contextmanager
def keep_all() -> Iterator[list[JitFunction]]:
    """Keep every jitted function that is made meanwhile alive, for a report at the end; gives the list they go to."""
    states: list[JitFunction] = []
    _kept.append(states)
    try:
        yield states
    finally:
        # by identity: two empty lists are equal
        _kept[:] = [other for other in _kept if other is not states]


def freeze() -> None:
    """From here on start no worker, tune nothing, write no cache: for the steady state of a service.

    What is compiled stays in use; what is being compiled is still taken in.
    """
    global _frozen
    _frozen = True
    builder().service.frozen = True


def is_frozen() -> bool:
    """Whether `freeze` was called."""
    return _frozen


def metrics() -> dict[str, int]:
    """Return counters summed over all jitted functions that live, as plain numbers for a monitoring system."""
    total: dict[str, int] = {"functions": 0}
    for state in list(_functions):
        total["functions"] += 1
        for name, value in state.stats().items():
            if isinstance(value, int):
                total[name] = total.get(name, 0) + value
    return total


def wait(timeout: float | None = None) -> bool:
    """Wait until no compile is pending in any jitted function.

    Args:
        timeout: seconds, or None for as long as it takes.

    Returns:
        Whether none is pending; False when the time was up first.
    """
    end = None if timeout is None else time.monotonic() + timeout
    done = True
    for state in list(_functions):
        done = state.wait(None if end is None else max(0.0, end - time.monotonic())) and done
    return done


def memory_stats() -> dict[str, int]:
    """Return bytes held by the machine: decoded programs, machine code and its data, in all and by what they are."""
    seen: set[int] = set()
    blocks = tables = constants = 0
    for state in list(_functions):
        for decoded in state.decodings():
            if id(decoded) in seen:
                continue
            seen.add(id(decoded))
            tables += sys.getsizeof(decoded.table) + sys.getsizeof(decoded.tail)
            blocks += decoded.code_size_bytes()
            constants += sum(getattr(c, "nbytes", 0) for c in decoded.program.constants)
    kernels, packed = fixed_bytes()
    arenas = ARENAS.held + SPARES.nbytes
    return {
        "total_bytes": blocks + tables + constants + kernels + packed + arenas,
        "code_bytes": blocks,
        "table_bytes": tables,
        "constant_bytes": constants,
        "kernel_bytes": kernels,
        "packed_bytes": packed,
        "arena_bytes": arenas,
    }


def release_memory() -> None:
    """Give back what the machine holds for speed only. Nothing is lost; the next calls may take longer."""
    ARENAS.release()
    gc.collect()
    SPARES.release()


def shutdown() -> None:
    """Stop everything that runs in the background. Jitted functions go on working, with the code that they have."""
    freeze()
    builder().service.shutdown()
