"""A builder that compiles in this process at once: the tiers without a worker."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from tests.codegen.native import build, imports
from tiercel.codegen.blob import Mapped
from tiercel.codegen.cpu.library import CALL
from tiercel.codegen.cpu.names import GEMM_DTYPES, MIXED, pack_name
from tiercel.codegen.cpu.stub import STUB
from tiercel.codegen.cpu.target import Target
from tiercel.loops import IllFormed
from tiercel.vm.dispatch import Built
from tiercel.vm.entry import Frames


class Ticket:
    """A build that is ready when asked for the `delay`-th time."""

    ready = False

    def __init__(self, built: Built | str, delay: int) -> None:
        self.built, self.delay = built, delay

    def poll(self) -> Built | str | None:
        self.delay -= 1
        return self.built if self.delay < 0 else None

    def wait(self, timeout: float | None) -> bool:
        self.delay = 0
        return True


class InlineBuilder:
    """See the module docstring. `spoil(mapped, function) -> address` may put other code in place."""

    slice_ns = 1 << 62

    def __init__(self, *, delay: int = 0, refuse: str = "", quick: bool = False) -> None:
        self.quick = quick
        self.delay, self.refuse = delay, refuse
        library = imports(Target.host())
        packs = {
            (name, panels): library[pack_name(name, panels=panels)]
            for name in (*GEMM_DTYPES, *MIXED.values())
            for panels in (False, True)
        }
        self.frames = Frames(library[CALL], pack=packs, stub=library[STUB])
        self.submitted: list[Any] = []
        self.hints: list[Any] = []

    def available(self) -> str | None:
        return None

    def expect(self) -> None:
        pass

    def prepare(self) -> bool:
        return False

    def submit(self, region: Any, lowered: Any, times_ms: Any, *, hints: Any = None, quick: bool = False) -> Ticket:
        self.submitted.append(region)
        self.hints.append(hints)
        if self.refuse:
            return Ticket(self.refuse, self.delay)
        started = time.perf_counter()
        try:
            mapped: Mapped = build(lowered.function)
        except IllFormed as error:
            return Ticket(str(error), self.delay)
        name = lowered.function.name
        elapsed = (time.perf_counter() - started) * 1e3
        built = Built(
            mapped.address(name), mapped.address(f"{name}.arena"), self.frames, (mapped,), {"codegen": elapsed}, {},
            quick=quick and self.quick,
        )  # fmt: skip
        return Ticket(built, self.delay)


def same_but_for_strides(difference: str, expected: Any) -> bool:
    """Is it a difference that compiled code is declared to show: strides of axes of size one or of empty arrays?"""
    if "expected strides" not in difference:
        return False
    if isinstance(expected, dict):
        expected = tuple(expected.values())
    found = expected if isinstance(expected, tuple | list) else [expected]
    return any(isinstance(a, np.ndarray) and (not a.size or 1 in a.shape) for a in found)


def compiled_work(jitted: Any) -> int:
    """Whether compiled code did anything: calls that it took, and passes of loops that it made."""
    state = jitted.__tiercel__
    return int(state.tiers.compiled_calls + sum(region.passes for region in state.regions()))
