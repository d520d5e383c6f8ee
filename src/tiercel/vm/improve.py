"""Better code for what was first compiled quickly: asked for once the kernel has run for a while, then swapped in.

In: a compiled form of a Signature that is in use. Out: nothing at first; at a later call its entry runs other machine
code. Both codes are made from the same LLVM text, and floats are only ever rounded as the text says, so results do not
change by a bit; the better one was validated like the first.

Invariant: nothing here waits, and a kernel that could not be improved stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tiercel.config import Settings
from tiercel.hotpath.events import events
from tiercel.vm.naming import name_for_tools

if TYPE_CHECKING:
    from tiercel.vm.dispatch import Builder, Tiers, Variant
    from tiercel.vm.regions import LoopVariant

__all__ = ["IMPROVE_AFTER", "Owner", "improve"]

IMPROVE_AFTER: Final = 8.0
"""A kernel is compiled again when it has run so many times as long as compiling again takes: a tenth of the time it
runs is gained (0 to 20 percent, measured), so by then it would have paid."""
_UNKNOWN_MS: Final = 30.0
"""What compiling again takes where the kernel came from the cache."""


def _choices(variant: Variant | LoopVariant) -> Mapping[int, Any]:
    """How its products are carried out."""
    tuning = getattr(variant, "tuning", None)
    return {} if tuning is None else tuning.choices


class Owner(NamedTuple):
    """Who compiles something that is no whole function: what `improve` reads of `Tiers`."""

    name: str
    function: FunctionType
    builder: Callable[[], Builder]
    settings: Callable[[], Settings]


def improve(tiers: Tiers | Owner, variant: Variant | LoopVariant, dropped: str) -> None:
    """Ask for better code when it is worth it, and put it in place when it is there.

    Args:
        tiers: of the function, or who stands for a loop.
        variant: the form whose entry was just called.
        dropped: the outcome of a build that may be asked for again.
    """
    entry, built = variant.entry, variant.built
    assert entry is not None
    if built is None or not built.quick:
        return
    if variant.better is None:
        times = built.times_ms
        cost_ms = 2 * times.get("codegen", _UNKNOWN_MS / 2) + times.get("validate", 0.0) + 2 * times.get("library", 0.0)
        if entry.time_ns < IMPROVE_AFTER * cost_ms * 1e6:
            return
        assert variant.region is not None
        assert variant.lowered is not None
        variant.better = tiers.builder().submit(
            variant.region, variant.lowered, {}, hints=variant.hints, choices=_choices(variant)
        )
    outcome = variant.better.poll()
    if outcome is None:
        return
    variant.better = None
    if outcome == dropped:
        return
    built.quick = False  # whatever came of it: there is no more to ask for
    if isinstance(outcome, str):
        events().add("rejected", region=tiers.name, reason=f"better code: {outcome}")
        return
    entry.replace_code(outcome.code, outcome.keep)
    variant.stages_ms["improve"] = outcome.times_ms.get("codegen", 0.0) + outcome.times_ms.get("validate", 0.0)
    settings = tiers.settings()
    if settings.perf_map or settings.gdb:
        name_for_tools(outcome.keep, built.frames.library, settings, tiers.name, tiers.function.__code__)
    events().add(
        "improved", region=tiers.name, from_cache=outcome.from_cache, total_ms=sum(outcome.times_ms.values()),
        times_ms=dict(outcome.times_ms),
    )  # fmt: skip
