"""What became of each Signature of a function: compiled, under way, refused, taken out again, or not hot yet.

In: the tiers of a function (`dispatch`). Out: plain data for its report.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tiercel.vm.dispatch import SignatureState, Tiers, Variant
    from tiercel.vm.regions import LoopTiers

__all__ = ["KernelReport", "LoopKernelReport", "kernel_reports", "loop_kernel_reports", "signature_text"]


@dataclass(frozen=True, slots=True)
class KernelReport:
    """A Signature that was compiled, is to be, or cannot be.

    Attributes:
        signature: what it takes, such as `x: float32[?, ?], n: int`.
        state: "compiled", "being compiled", "taken out" (slower than the interpreter), "refused", or "waiting" (not
            hot).
        sizes: "that agree" if it takes only sizes that agree as they did when it became hot, else "any".
        reason, line: why it is not compiled, and the line that is the reason.
        calls, time_ns: through compiled code; no time while none of its calls was timed.
        interpreted_calls, interpreted_time_ns: with this Signature, through the interpreter.
        interpreted_each_ns: what one of these takes, stalls left out.
        misses: calls that compiled code did not take.
        stages_ms: milliseconds of compiling, by stage.
        from_cache: whether it was compiled before, by another process.
        certificate: what validation found.
        saved_ns: what compiled calls saved, if interpreted they had taken what the interpreted ones took; 0 while none
            was timed.
        tuning: how its products came to be carried out as they are, see `tuning.Tuning.to_data`.
        expected: when compiling was expected to pay, as estimated before it; `saved_ns` says what came of it.
        asked_for: whether `warmup` had it compiled, so that it runs compiled without having been hot.
        slow_entry: why calls enter the code through Python (10 us instead of 0.2), if they do.
    """

    signature: str
    state: str
    sizes: str
    reason: str
    line: int | None
    calls: int
    time_ns: int
    interpreted_calls: int
    interpreted_time_ns: int
    interpreted_each_ns: int
    misses: int
    stages_ms: dict[str, float]
    from_cache: bool
    certificate: dict[str, Any]
    saved_ns: int
    slow_entry: str = ""
    expected: str = ""
    tuning: dict[str, Any] = field(default_factory=dict)
    asked_for: bool = False


def kernel_reports(tiers: Tiers | None) -> tuple[KernelReport, ...]:
    """Return what became of each Signature of a function, the busiest first."""
    if tiers is None:
        return ()
    out = []
    for state in list(tiers.signatures.values()):
        variants: list[Variant | None] = [*state.variants]
        out += [_kernel(tiers, state, v, last=v is state.variants[-1]) for v in state.variants]
        if not variants:
            out.append(_kernel(tiers, state, None, last=True))
    return tuple(sorted(out, key=lambda k: -(k.calls + k.interpreted_calls)))


def _kernel(tiers: Tiers, state: SignatureState, variant: Variant | None, *, last: bool) -> KernelReport:
    names = [p.name for p in tiers.program[0].parameters]
    signature = ", ".join(f"{name}: {signature_text(key)}" for name, key in zip(names, state.key, strict=False))
    # Interpreted calls belong to the Signature; they are told once.
    calls, spent = (state.calls, state.total_ns) if last else (0, 0)
    if variant is None:
        reason = tiers.wants_compile(tiers.settings(), state) or "hot: compiled at its next call"
        return KernelReport(
            signature, "waiting", "", reason, None, 0, 0, calls, spent, state.typical_ns, 0, {}, False, {}, 0
        )  # fmt: skip
    entry, built = variant.entry, variant.built
    compiled_calls = entry.calls if entry is not None else 0
    compiled_ns = entry.time_ns if entry is not None else 0
    condition = (
        "taken out"
        if variant.demoted
        else "compiled"
        if entry is not None
        else "refused"
        if variant.reason
        else "being compiled"
    )
    saved = 0
    if compiled_calls and compiled_ns and state.calls:
        saved = compiled_calls * state.typical_ns - compiled_ns
    return KernelReport(
        signature=signature,
        state=condition,
        sizes="that agree" if variant.speculative else "any",
        reason=variant.demoted or variant.reason or ("" if condition == "compiled" else condition),
        line=variant.line,
        calls=compiled_calls,
        time_ns=compiled_ns,
        interpreted_calls=calls,
        interpreted_time_ns=spent,
        interpreted_each_ns=state.typical_ns,
        misses=sum(variant.missed.values()),
        stages_ms={stage: round(ms, 3) for stage, ms in variant.stages_ms.items()},
        from_cache=built is not None and built.from_cache,
        certificate=dict(built.certificate) if built is not None else {},
        saved_ns=saved,
        slow_entry=entry.without if entry is not None else "",
        expected=state.expected,
        tuning=variant.tuning.to_data(),
        asked_for=variant.asked_for,
    )


@dataclass(frozen=True, slots=True)
class LoopKernelReport:
    """A form of a loop that was compiled by itself, is to be, or cannot be.

    Attributes:
        signature: what it takes; "" if that was not found out.
        state, sizes, reason, line, stages_ms, from_cache, certificate: as for `KernelReport`.
        pc: address of the loop in the bytecode.
        runs, passes, time_ns: through compiled code.
        stopped: runs that a guard, an exit or a floating-point flag stopped; nothing of them was kept.
        misses: times that a frame held something else.
        interpreted_each_ns: what an interpreted pass took.
    """

    signature: str
    state: str
    sizes: str
    reason: str
    line: int | None
    pc: int
    runs: int
    passes: int
    time_ns: int
    stopped: int
    misses: int
    interpreted_each_ns: int
    stages_ms: dict[str, float]
    from_cache: bool
    certificate: dict[str, Any]


def loop_kernel_reports(tiers: LoopTiers) -> tuple[LoopKernelReport, ...]:
    """Return what became of each form of a loop, the busiest first."""
    out = []
    for v in list(tiers.variants):
        made = LoopKernelReport(
            signature="" if v.region is None else v.region.signature,
            state=v.state,
            sizes="that agree" if v.speculative else "any",
            reason=v.demoted or v.reason,
            line=v.line,
            pc=tiers.function.pcs[tiers.start],
            runs=v.runs,
            passes=v.passes,
            time_ns=v.time_ns,
            stopped=v.stopped,
            misses=v.misses,
            interpreted_each_ns=int(tiers.interpreted_ns),
            stages_ms={stage: round(ms, 3) for stage, ms in v.stages_ms.items()},
            from_cache=v.built is not None and v.built.from_cache,
            certificate=dict(v.built.certificate) if v.built is not None else {},
        )
        out.append(made)
    return tuple(sorted(out, key=lambda k: -k.passes))


def signature_text(key: Any) -> str:
    """Return one argument's part of a Signature of `dispatch.signature_of` as text."""
    if isinstance(key, type):
        return key.__name__
    if not isinstance(key, tuple):
        return "None" if key is None else repr(key)
    if len(key) == 3 and isinstance(key[0], np.dtype):
        dtype, rank, layout = key
        shown = {"C": "", "F": "{F}", "rows": "{strided}", "any": "{strided in another order}"}[layout]
        return f"{dtype}[{', '.join('?' * rank)}]{shown}"
    if len(key) == 4 and isinstance(key[0], type) and isinstance(key[1], np.dtype):
        return f"{key[0].__name__} {signature_text(key[1:])}"
    if key and isinstance(key[0], type):  # a tuple, a list, or a subclass: its items
        items = ", ".join(map(signature_text, key[1:]))
        return f"({items})" if key[0] is tuple else f"[{items}]" if key[0] is list else f"{key[0].__name__}({items})"
    # A dict: its keys and what they lead to.
    return f"{{{', '.join(f'{name!r}: {signature_text(part)}' for name, part in key)}}}"
