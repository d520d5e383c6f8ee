"""A builder that compiles in this process at once: the tiers without a worker."""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np

from tests.codegen.native import build, imports
from tiercel.codegen.blob import Mapped, link, map_blob
from tiercel.codegen.cpu.assemble import assemble
from tiercel.codegen.cpu.choice import Choice
from tiercel.codegen.cpu.contract import panel_widths
from tiercel.codegen.cpu.library import CALL, entries, library_text
from tiercel.codegen.cpu.names import GEMM_DTYPES, MIXED, pack_name
from tiercel.codegen.cpu.stub import STUB
from tiercel.codegen.cpu.target import Target
from tiercel.hotpath.queue import Job
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


@functools.cache
def _wide(vectors: int) -> dict[str, int]:
    """Addresses of the products of float32 over panels of another width."""
    piece, target = f"float32.v{vectors}", Target.host()
    mapped = map_blob(link(assemble(library_text(target, [piece]), target), entries(piece)))
    _kept.append(mapped)
    return {name: mapped.address(name) for name in entries(piece)}


_kept: list[Mapped] = []


class InlineBuilder:
    """See the module docstring. `spoil(mapped, function) -> address` may put other code in place."""

    slice_ns = 1 << 62

    def __init__(self, *, delay: int = 0, refuse: str = "", quick: bool = False, wide: tuple[int, ...] = ()) -> None:
        self.quick = quick
        self.delay, self.refuse = delay, refuse
        library = imports(Target.host())
        packs = {
            (name, panels): library[pack_name(name, panels=panels)]
            for name in (*GEMM_DTYPES, *MIXED.values())
            for panels in (False, True)
        }
        packs |= {(f"float32.v{w}", False): _wide(w)[pack_name(f"float32.v{w}", panels=False)] for w in wide}
        self.frames = Frames(library[CALL], pack=packs, stub=library[STUB])
        self.wide = wide
        self.choices: list[Any] = []
        self.known: dict[str, Any] = {}
        self.demands: list[Any] = []
        self.answers: list[Any] = []  # results of jobs that measure, in order
        self.submitted: list[Any] = []
        self.hints: list[Any] = []

    def available(self) -> str | None:
        return None

    def expect(self) -> None:
        pass

    def prepare(self) -> bool:
        return False

    def winners(self) -> dict[str, Any]:
        return self.known

    def measure(self, demands: list[Any], budget_ms: float) -> Job | None:
        self.demands.append((demands, budget_ms))
        if not self.answers:
            return None
        job, answer = Job("tune", None), self.answers.pop(0)
        if isinstance(answer, str):
            job.fail(answer)
        else:
            job.succeed(answer)
        return job

    def measured(self, job: Job) -> Any:
        return job.result

    def wait_for(self, job: Job, timeout: float | None) -> bool:
        return job.finished

    def poll(self) -> None:
        pass

    def submit(
        self, region: Any, lowered: Any, times_ms: Any, *, hints: Any = None, quick: bool = False, choices: Any = None
    ) -> Ticket:
        self.submitted.append(region)
        self.choices.append(choices or {})
        self.hints.append(hints)
        if self.refuse:
            return Ticket(self.refuse, self.delay)
        started = time.perf_counter()
        try:
            target = Target.host()
            chosen = {n: Choice.from_data(data, target) for n, data in (choices or {}).items()}
            widths = panel_widths(lowered.function, target, chosen)
            more = {name: address for w in self.wide for name, address in _wide(w).items()}
            mapped: Mapped = build(lowered.function, choices=chosen, more=more)
        except IllFormed as error:
            return Ticket(str(error), self.delay)
        name = lowered.function.name
        elapsed = (time.perf_counter() - started) * 1e3
        built = Built(
            mapped.address(name), mapped.address(f"{name}.arena"), self.frames, (mapped,), {"codegen": elapsed}, {},
            quick=quick and self.quick, widths=widths,
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
