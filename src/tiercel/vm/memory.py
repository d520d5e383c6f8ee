"""What a machine weighs: memory that Python's allocator hands out while something is done, and keeps.

In: a function. Out: its result and the bytes that stay allocated afterwards, the result's own included. `tracemalloc`
counts every allocation of Python and NumPy, so weights must be made outside; code of packages counts if it is imported
meanwhile. Collecting garbage first makes the number independent of what ran before.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

__all__ = ["measure"]

_T = TypeVar("_T")


def measure(work: Callable[[], _T]) -> tuple[_T, int]:
    """Run `work` and return its result and the bytes it left allocated.

    Works inside a program that traces already. Costs time (everything is traced), so not for what is timed.
    """
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start(1)
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        result = work()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        if not was_tracing:
            tracemalloc.stop()
    return result, after - before
