"""Functions whose second call may be compiled, in this process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tiercel as tc
from tests.vm.inline import InlineBuilder

__all__ = ["AT_ONCE", "builder", "jitted"]

AT_ONCE = tc.Policy(warmup_calls=0, hot_count=1, hot_time_ms=0.0, hot_total_ms=0.0)


@functools.cache
def builder() -> InlineBuilder:
    """One for all, as a process has one service."""
    return InlineBuilder()


def jitted(function: Callable[..., Any]) -> Any:
    """The function under `AT_ONCE`."""
    made = tc.jit(function, policy=AT_ONCE)
    made.__tiercel__.tiers.builder = builder
    return made
