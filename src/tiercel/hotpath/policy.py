"""When code is hot, whether compiling it pays, and in which words to say why not yet.

In: counters of what ran, settings. Out: decisions with their reasons. Pure functions: everything they know is an
argument, so a decision can be explained later by asking again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tiercel.config import Settings

__all__ = ["HORIZON", "BreakEven", "Counters", "Decision", "Estimate", "break_even", "decide", "pay_back", "soon"]


@dataclass(frozen=True, slots=True)
class Counters:
    """What is known about a region.

    Attributes:
        entries: calls or entries of the region.
        back_edges: passes of its loops.
        total_ns: time spent in it, interpreted.
        has_loops: whether a single call may be long (then nothing is only observed).
    """

    entries: int
    back_edges: int = 0
    total_ns: int = 0
    has_loops: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to compile now, and the reason for people."""

    hot: bool
    reason: str


HORIZON: Final = 10.0
"""What has run for so long is expected to run so many times as long again: compiling must pay in that time."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What compiling is expected to take and to bring.

    Attributes:
        compile_ms: it takes.
        speed_up: factor by which calls become faster.
    """

    compile_ms: float
    speed_up: float


def decide(counters: Counters, settings: Settings, estimate: Estimate | None = None) -> Decision:
    """Is a region hot?

    Hot is what was entered `hot_count` times (back edges count) and took `hot_time_ms` in total, or `hot_total_ms`
    however few entries. Regions without loops are only observed for their first `warmup_calls` entries. An estimate
    can put compiling off until `hot_total_ms`, if it is not expected to pay; with `hot_time_ms` at 0 none counts.
    """
    if settings.level == "O0":
        return Decision(False, "the level is O0: nothing is compiled")
    if settings.worker == "off":
        return Decision(False, "compiling is off (the setting worker)")
    if not counters.has_loops and counters.entries <= settings.warmup_calls:
        return Decision(False, f"entry {counters.entries} of the {settings.warmup_calls} that are only observed")
    count = counters.entries + counters.back_edges
    total_ms = counters.total_ns / 1e6
    if total_ms >= settings.hot_total_ms:
        return Decision(True, f"{total_ms:.3g} ms in total, {settings.hot_total_ms:.3g} make hot")
    if count >= settings.hot_count and total_ms >= settings.hot_time_ms:
        if estimate is not None and settings.hot_time_ms > 0:
            expected = break_even(total_ms / count, estimate.compile_ms, estimate.speed_up)
            if expected.calls is None or expected.calls > HORIZON * count:
                about = f"compiling would take about {estimate.compile_ms:.3g} ms"
                return Decision(False, f"{about}: {expected.text}, {count} so far")
        return Decision(True, f"{count} entries and {total_ms:.3g} ms, {settings.hot_count} and "
                              f"{settings.hot_time_ms:.3g} make hot")  # fmt: skip
    if count < settings.hot_count:
        return Decision(False, f"{count} of {settings.hot_count} entries that make hot")
    return Decision(False, f"{total_ms:.3g} of {settings.hot_time_ms:.3g} ms that make hot")


def soon(counters: Counters, settings: Settings) -> bool:
    """Will a region be hot in a few calls like those so far? Then the worker may as well be started.

    It was entered twice, and has half of `hot_time_ms` behind it, or will have all of it at its `hot_count`-th entry.
    """
    if settings.level == "O0" or settings.worker == "off" or settings.deterministic or counters.entries < 2:
        return False
    total_ms = counters.total_ns / 1e6
    return max(2 * total_ms, total_ms * settings.hot_count / counters.entries) >= settings.hot_time_ms


@dataclass(frozen=True, slots=True)
class BreakEven:
    """When compiling has paid.

    Attributes:
        calls: calls until then; None for never.
        saved_ms: saved in all by now, compiling taken off; negative while it has not paid.
        text: for people.
    """

    calls: int | None
    saved_ms: float
    text: str


def _calls(count: int) -> str:
    return f"{count} call{'' if count == 1 else 's'}"


def break_even(interpreted_ms: float, compile_ms: float, speed_up: float) -> BreakEven:
    """Estimate, before compiling, after how many calls it pays.

    Args:
        interpreted_ms: a call takes, on average.
        compile_ms: compiling is expected to take.
        speed_up: expected factor.
    """
    gain = interpreted_ms * (1 - 1 / speed_up) if speed_up > 1 else 0.0
    if gain <= 0:
        return BreakEven(None, -compile_ms, "no gain is expected")
    calls = max(1, -int(-compile_ms // gain))
    return BreakEven(calls, -compile_ms, f"expected to pay after {_calls(calls)} ({gain:.3g} ms gained in each)")


def pay_back(interpreted_ms: float, compiled_ms: float, compile_ms: float, calls: int) -> BreakEven:
    """What compiling has brought so far.

    Args:
        interpreted_ms, compiled_ms: a call took, on average, before and after.
        compile_ms: compiling took.
        calls: compiled ones until now.
    """
    gain = interpreted_ms - compiled_ms
    saved = gain * calls - compile_ms
    if gain <= 0:
        return BreakEven(None, saved, f"slower by {-gain:.3g} ms a call than the interpreter")
    needed = max(1, -int(-compile_ms // gain))
    state = (
        f"paid back after {_calls(needed)}" if calls >= needed else f"pays back after {_calls(needed)}, {calls} so far"
    )
    return BreakEven(needed, saved, f"{state}; {gain:.3g} ms gained in each, {saved:.3g} ms in all")
