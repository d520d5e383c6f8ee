"""Loops compiled on their own, entered at the back edge too: during one long call, or where the function is refused.

In: a frame of the interpreter whose loop has come to its head (`Hooks.on_passes`). Out: the block to go on with, after
as many passes as were left have been made by compiled code, or none.

How a loop goes on: the interpreter makes passes until they are hot; the loop is traced for what the frame holds then
and handed to the compile service; the interpreter goes on. At a later head the code is there and makes the passes that
remain, in runs of about 5 ms: after each the frame is what the interpreter would have made of it, and Python gets its
turn (signals, other threads). Nothing waits, and nothing is ever done twice that could be seen.

Invariants:

* A run that compiled code does not finish (a guard, an exit, a watched floating-point flag) has changed nothing. It is
  tried again with half the passes; the one pass that is at fault is left to the interpreter, which raises, warns or
  leaves the loop as Python does.
* What a run changes is stored in one go, without a place where a signal could strike in between: registers, elements of
  arrays that are written, new elements of lists.
* A frame is only entered if its iterator belongs to the loop alone, lists that grow are reached in no other way, and
  arrays that are written share no memory with other inputs.
* Where the whole function may still be compiled, its loops wait for an entry that is itself long: the outermost
  compiled code wins. Loops compete in the same way: what runs in an outer one is not seen by the inner ones.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Final

from tiercel.bytecode.program import Function, Program
from tiercel.compiler.abstract import Untraceable
from tiercel.compiler.elementwise import NotLowered
from tiercel.compiler.environment import Condition
from tiercel.compiler.graph import Region
from tiercel.compiler.loop_facts import LoopFacts, loop_facts
from tiercel.compiler.lower import Lowered, lower_region
from tiercel.compiler.trace.loop_region import SAMPLE_PASSES, FrameEnvironment, LoopRegion, trace_loop
from tiercel.config import Settings
from tiercel.hotpath import policy
from tiercel.hotpath.courtesy import courtesy
from tiercel.hotpath.events import events
from tiercel.hotpath.service import worker_busy
from tiercel.interp import Decoded
from tiercel.interp.layout import CounterLayout
from tiercel.vm.dispatch import DROPPED, INTERNAL, Builder, Built, Ticket, entry_of, over_limit
from tiercel.vm.entry import MISS, Entry
from tiercel.vm.forms import show
from tiercel.vm.held import Held, apart, commit, hold
from tiercel.vm.improve import Owner, improve
from tiercel.vm.ledger import Ledger
from tiercel.vm.naming import name_for_tools
from tiercel.vm.samples import sampled_scalars

__all__ = ["FIRST_LOOK", "LoopTiers", "Surroundings", "preparing"]

RUN_NS: Final = 5_000_000
"""How long compiled code keeps Python waiting: signals and other threads come in between."""
FIRST_LOOK: Final = 2
"""Passes of a loop after which it is looked at for the first time."""
MAX_SIGNATURES: Final = 8
"""Forms of one loop that are compiled or found uncompilable; frames of others are interpreted."""
WORTH_NS: Final = 30_000
"""What is left must take the interpreter so long, or entering compiled code does not pay."""
LONG_PASS_NS: Final = 100_000_000
"""A pass of an outer loop that takes compiled code longer is left to its inner loops: Ctrl-C has to wait for it."""
MAX_TIMINGS: Final = 32
POLL_NS: Final = 8_000_000
"""How often somebody looks whether code is there: looking takes up to half a millisecond."""
COPY_NS: Final = 0.5
"""What a byte of an array that is written costs in a run, in which it is copied three times: an estimate."""
MAX_COPIES: Final = 20
"""A run takes at least so many times as long as what is copied for it, up to `LONG_PASS_NS`."""

preparing: Final[ContextVar[bool]] = ContextVar("tiercel_preparing_loops", default=False)
"""Whether loops are to be compiled at their first back edge, and waited for (`warmup`)."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the jitted function under whose hooks a loop runs has to say.

    Attributes:
        settings: in force.
        program_of: bytecode of functions that compiled code may include.
        builder: gives the compile service.
        whole: whether the whole function may yet be compiled for the call being made.
        ledger: where runs that were stopped, and loops taken out, are accounted for.
        first_look: passes of a loop after which it is looked at for the first time.
    """

    settings: Callable[[], Settings]
    program_of: Callable[[FunctionType], tuple[Function, Sequence[Any]] | None]
    builder: Callable[[], Builder]
    whole: Callable[[], bool]
    ledger: Ledger
    first_look: int = FIRST_LOOK

    @staticmethod
    def tiers(decoded: Decoded, loop: int) -> LoopTiers:
        """New tiers of a loop."""
        return LoopTiers(decoded, loop)


@dataclass(slots=True)
class LoopVariant:
    """A compiled or attempted form of a loop.

    Attributes:
        key: the kinds of what the frame held.
        traced: what is compiled; `reason` and `line` say why there is none.
        runs, passes, time_ns: through compiled code.
        stopped: runs that it did not finish.
        size: passes of the next run.
        demoted: why it was taken out.
    """

    key: Any
    speculative: bool
    traced: LoopRegion | None = None
    lowered: Lowered | None = None
    ticket: Ticket | None = None
    entry: Entry | None = None
    built: Built | None = None
    reason: str = ""
    line: int | None = None
    stages_ms: dict[str, float] = field(default_factory=dict)
    conditions: dict[Any, Condition] = field(default_factory=dict)
    functions: dict[int, FunctionType] = field(default_factory=dict)
    classes: list[type] = field(default_factory=list)
    runs: int = 0
    passes: int = 0
    time_ns: int = 0
    stopped: int = 0
    size: int = 1
    misses: int = 0
    demoted: str = ""
    prepared: bool = False  # in warm-up: what `deterministic` may use
    hints: dict[str, Any] = field(default_factory=dict)
    better: Ticket | None = None  # better code that was asked for
    timings: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_TIMINGS))  # ns a pass

    @property
    def region(self) -> Region | None:
        """What is compiled."""
        return None if self.traced is None else self.traced.region

    @property
    def state(self) -> str:
        """What became of it, as for `kernels.KernelReport`."""
        if self.demoted:
            return "taken out"
        return "compiled" if self.entry is not None else "refused" if self.reason else "being compiled"


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of compiled code: passes made (or tried, where it was stopped), and how the loop stands."""

    passes: int
    stopped: bool = False
    left: bool = False  # by a break
    over: bool = False  # the interpreter has to look


class LoopTiers:
    """The tiers of one loop of a decoded function.

    Args:
        decoded, loop: which loop.

    Attributes:
        reason: why it can never be compiled; "" if it may be.
        variants: in the order in which they were tried.
        passes: made by compiled code.
    """

    def __init__(self, decoded: Decoded, loop: int) -> None:
        row = next(r for r in decoded.flow.loops if r.loop == loop)
        self.program, self.function, self.loop, self.depth = decoded.program, decoded.function, loop, row.depth
        self.start = row.start
        self.has_loops = any(row.start < r.start < row.stop for r in decoded.flow.loops)
        # Of the loop around all others, whose every entry is timed: how long the call has been going on.
        outermost = next(r for r in decoded.flow.loops if r.start <= row.start < r.stop or r is row)
        self.timers = (decoded.layout.timers + loop, decoded.layout.timers + outermost.loop)
        self.step = 1 if self.function.instructions[row.start].iterator is None else 2
        self.made_at = decoded.counter(loop, CounterLayout.ITERATIONS)
        self.due_at = decoded.counter(loop, CounterLayout.DUE)
        self.entries_at = decoded.counter(loop, CounterLayout.ENTRIES)
        self.line = self.function.line_of(row.start)
        qualname = self.function.qualname or self.function.name
        self.name = f"{qualname} loop {loop}" + (f" (line {self.line})" if self.line else "")
        self.variants: list[LoopVariant] = []
        self.pending: list[LoopVariant] = []
        self.entries: tuple[LoopVariant, ...] = ()
        # Has the globals of the frame and, for profilers and debuggers, the place of the loop.
        place = _nothing.__code__.replace(
            co_filename=self.function.filename or "<unknown>", co_firstlineno=self.line or 1
        )
        self.stand_in = FunctionType(place, decoded.environment.globals, self.function.name)
        self.compiles = 0
        self.interpreted_ns = 0.0  # a pass, when last looked at before compiled code ran
        self.unmet = ""
        self.misses = 0  # one after the other
        self._free = [None]  # taken by who compiles
        self.reason = ""
        self.facts: LoopFacts | None = None
        try:
            self.facts = loop_facts(self.function, row.start, row.stop)
        except Untraceable as error:
            self.reason = error.reason

    # ---- asked by the interpreter ------------------------------------------------------------------------------------

    def asked(self, decoded: Decoded, registers: list[Any], following: int, around: Surroundings) -> int:
        """Control is at the head of the loop: the block to go on with."""
        counts = decoded.counts
        made = counts[self.made_at]
        settings = around.settings()
        if self.facts is None or settings.level == "O0":
            counts[self.due_at] = 2 * made + 4096
            return following
        if self.pending:
            self.poll(settings)
        if self.entries:
            return self._enter(self.facts, decoded, registers, following, settings, around)
        if self.pending:
            counts[self.due_at] = made + 1 + self._passes_in(POLL_NS)
            return following
        self._consider(self.facts, decoded, registers, settings, around)
        if self.entries:  # it was waited for
            return self._enter(self.facts, decoded, registers, following, settings, around)
        return following

    def announce(self, decoded: Decoded) -> None:
        """The loop is about to be entered: let its first head ask."""
        decoded.counts[self.due_at] = 0

    @property
    def ready(self) -> bool:
        """Whether there is compiled code, or may be by now."""
        return bool(self.entries or self.pending)

    def _passes_in(self, nanoseconds: float) -> int:
        """How many interpreted passes take so long; at least one."""
        return max(1, int(nanoseconds / self.interpreted_ns)) if self.interpreted_ns else 1

    # ---- deciding ----------------------------------------------------------------------------------------------------

    def _consider(
        self, facts: LoopFacts, decoded: Decoded, registers: list[Any], settings: Settings, around: Surroundings
    ) -> None:  # fmt: skip
        """Compile if it is hot; else say after how many passes to look again."""
        counts = decoded.counts
        made = counts[self.made_at]
        base = self.entries_at
        entries, _, timed, spent = counts[base : base + CounterLayout.DUE]
        now = time.perf_counter_ns()
        here, call = (now - registers[t] if registers[t] else 0 for t in self.timers)
        total = spent * entries // timed if timed else 0
        total = max(total + here - self.time_ns, 1)
        self.interpreted_ns = total / max(made - self.passes, 1)
        if preparing.get():
            counts[self.due_at] = made + self.step
            if made:
                self._compile(facts, registers, settings, around, wait=True)
                if self.variants and self.variants[-1].reason:
                    counts[self.due_at] = 2 * made + 4096
            return
        if settings.deterministic:
            self.unmet = "deterministic: compiled by warmup only"
            counts[self.due_at] = 2 * made + 4096
            return
        wanted = settings.hot_time_ms * 1e6
        if around.whole():
            # The function itself will be compiled, unless this call does not end.
            wanted = max(wanted, settings.hot_total_ms * 1e6 if wanted else 0)
            hot = min(call, total) >= wanted and made >= settings.hot_count
            self.unmet = "" if hot else "compiled as a part of its function, or when a single call is long"
            lacking = wanted - min(call, total)
        else:
            found = policy.Counters(entries, back_edges=made, total_ns=total, has_loops=True)
            decision = policy.decide(found, settings)
            hot, self.unmet = decision.hot, "" if decision.hot else decision.reason
            lacking = wanted - total
        if not hot:
            counts[self.due_at] = made + min(max(2, int(lacking / self.interpreted_ns)), 16 + 8 * made)
        elif not self._compile(facts, registers, settings, around):
            counts[self.due_at] = 2 * made + 256
        else:
            counts[self.due_at] = made + 1 + self._passes_in(POLL_NS)

    def _compile(
        self, facts: LoopFacts, registers: list[Any], settings: Settings, around: Surroundings, *, wait: bool = False
    ) -> bool:  # fmt: skip
        """Trace, lower and submit the loop for what the frame holds; false if nothing is under way afterwards."""
        frame = hold(facts, registers)
        if frame is None or not frame.left:
            self.unmet = self.unmet or "its iterator is not one of Python's that compiled code knows"
            return False
        try:
            key = frame.key
            hash(key)
        except TypeError:
            return False
        same = [v for v in self.variants if v.key == key]
        if len(same) > 1 or (same and (same[-1].reason or same[-1].misses < settings.hot_count)):
            return False
        if len(self.variants) >= MAX_SIGNATURES:
            return False
        try:
            self._free.pop()
        except IndexError:
            return True  # another thread is at it
        try:
            return self._make(LoopVariant(key, speculative=not same), frame, settings, around, wait)
        finally:
            self._free.append(None)

    def _make(
        self, variant: LoopVariant, frame: Held, settings: Settings, around: Surroundings, wait: bool
    ) -> bool:  # fmt: skip
        assert self.facts is not None
        self.variants.append(variant)
        variant.prepared = wait
        service = around.builder()
        unavailable = service.available()
        if unavailable is not None:
            variant.reason = unavailable
            return False
        environment = FrameEnvironment(self.stand_in, around.program_of)
        sample = frame.arguments(frame.over.left if frame.over is not None else 64)
        try:
            started = time.perf_counter_ns()
            variant.traced = trace_loop(
                self.function, self.program.constants, environment, self.facts, sample, frame.form,
                name=_identifier(self.function.name, self.loop), speculate=variant.speculative,
            )  # fmt: skip
            traced = time.perf_counter_ns()
            variant.lowered = lower_region(variant.traced.region)
            lowered = time.perf_counter_ns()
        except (Untraceable, NotLowered) as error:
            index = getattr(error, "index", None)
            index = getattr(error, "origin", None) if index is None else index
            if index is not None and index < len(self.function.instructions):
                variant.line = self.function.line_of(index)
            variant.reason = error.reason
            where = f" (line {variant.line})" if variant.line else ""
            events().add("unsupported", region=self.name, reason=error.reason + where)
            return False
        except Exception as error:  # noqa: BLE001 - a mistake of the compiler must not reach a user whose code is right
            variant.reason = f"{INTERNAL}: {type(error).__name__}: {error}"
            events().add("unsupported", region=self.name, reason=variant.reason)
            return False
        region = variant.traced.region
        variant.stages_ms = {"trace": (traced - started) / 1e6, "lower": (lowered - traced) / 1e6}
        events().add(
            "detected", region=self.name, pc=self.function.pcs[self.start],
            signature=f"{self.function.name}:{region.signature}", range=f"loop {self.loop} in line {self.line}",
        )  # fmt: skip
        variant.conditions = dict(environment.conditions)
        variant.classes = list(environment.classes)
        variant.functions = {id(f): f for f in environment.functions}
        if settings.debug or settings.dump_dir:
            times = ", ".join(f"{stage} {ms:.1f} ms" for stage, ms in variant.stages_ms.items())
            listing = str(Program((self.function,), tuple(self.program.constants), name=self.name))
            show(settings, self.name, listing, region, variant.lowered, times)
        few = frame.arguments(min(frame.left, SAMPLE_PASSES) if frame.over is not None else SAMPLE_PASSES)
        variant.hints = {"scalars": sampled_scalars(variant.lowered.interface, few, ())}
        variant.ticket = service.submit(
            region, variant.lowered, dict(variant.stages_ms), hints=variant.hints, quick=not wait
        )
        self.pending.append(variant)
        if worker_busy():
            courtesy.give_way()  # until the call ends
        if wait:
            self.wait(settings)
        return True

    # ---- patching ----------------------------------------------------------------------------------------------------

    def poll(self, settings: Settings) -> None:
        """Take in what is ready."""
        still: list[LoopVariant] = []
        for variant in self.pending:
            assert variant.ticket is not None
            outcome = variant.ticket.poll()
            if outcome is None:
                still.append(variant)
            elif outcome is DROPPED:
                self.variants.remove(variant)
            elif isinstance(outcome, str):
                variant.reason = outcome
                events().add("rejected", region=self.name, reason=outcome)
            else:
                self._patch(variant, outcome, settings)
        self.pending = still

    def _patch(self, variant: LoopVariant, built: Built, settings: Settings) -> None:
        assert variant.traced is not None
        assert variant.lowered is not None
        reason = over_limit(settings, built)
        if reason is not None:
            variant.reason = reason
            events().add("rejected", region=self.name, reason=reason)
            return
        lowered, region = variant.lowered, variant.traced.region
        variant.entry = entry_of(variant, lowered, built, f"{self.name} {region.signature}")
        variant.built = built
        variant.stages_ms.update(built.times_ms)
        if settings.perf_map or settings.gdb:
            name_for_tools(built.keep, built.frames.library, settings, self.name, self.stand_in.__code__)
        variant.size = self._passes_in(RUN_NS)
        self.entries = (variant, *self.entries) if variant.speculative else (*self.entries, variant)
        if not built.from_cache:
            self.compiles += 1
        events().add(
            "patched", region=self.name, signature=region.signature, from_cache=built.from_cache,
            total_ms=sum(built.times_ms.values()), times_ms=dict(built.times_ms),
        )  # fmt: skip

    def wait(self, settings: Settings, timeout: float | None = None) -> bool:
        """Wait until nothing is pending; false when the time was up first."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.pending:
            ticket = self.pending[0].ticket
            assert ticket is not None
            if not ticket.wait(None if end is None else max(0.0, end - time.monotonic())):
                return False
            self.poll(settings)
        return True

    # ---- running -----------------------------------------------------------------------------------------------------

    def _enter(
        self, facts: LoopFacts, decoded: Decoded, registers: list[Any], following: int, settings: Settings,
        around: Surroundings,
    ) -> int:  # fmt: skip
        """Make the passes that are left, as far as compiled code does."""
        counts = decoded.counts
        size = 0  # of the next run, after one that was stopped
        while True:
            made = counts[self.made_at]
            counts[self.due_at] = made + self.step
            frame = hold(facts, registers)
            if frame is None:  # an iterator that is not understood, or that has been started
                counts[self.due_at] = made + 1024
                return following
            if not frame.left:
                return following
            if not settings.deterministic and 0 <= frame.left * self.interpreted_ns < WORTH_NS:
                counts[self.due_at] = made + frame.left + self.step
                return following
            for variant in self.entries:
                if settings.deterministic and not variant.prepared:
                    continue
                assert variant.traced is not None
                if 0 <= frame.left < variant.traced.least:
                    continue
                run = self._run(facts, variant, frame, registers, max(size or variant.size, variant.traced.least))
                if run is not None:
                    break
            else:
                self._missed(facts, registers, counts, settings, around)
                return following
            self.misses = 0
            if run.stopped:
                size = run.passes // 2
                assert variant.traced is not None
                if size < max(variant.traced.least, 1):
                    self._note(around, "fallback", f"a pass of loop {self.loop} was left to the interpreter")
                    self._watch(variant, settings, around)
                    return following
                continue
            size = 0
            improve(Owner(self.name, self.stand_in, around.builder, around.settings), variant, DROPPED)
            counts[self.made_at] = made + run.passes
            counts[self.due_at] = made + run.passes + self.step
            self._watch(variant, settings, around)
            if run.left:
                return decoded.leaving(self.loop, variant.traced.target)
            if run.over or not self.entries:
                return following

    def _run(
        self, facts: LoopFacts, variant: LoopVariant, frame: Held, registers: list[Any], size: int
    ) -> _Run | None:  # fmt: skip
        """Run some passes; None if the frame holds something else than what this form takes."""
        traced, entry = variant.traced, variant.entry
        assert traced is not None
        assert entry is not None
        passes = size if frame.over is None else min(size, frame.left)
        if frame.over is not None and frame.over.whole:
            passes = frame.left
        arguments = frame.arguments(passes)
        if (traced.written or traced.lists) and not apart(
            traced, arguments, registers, frame.over, variant.conditions, variant.functions
        ):
            return None
        before = sum(entry.exits.values()) + entry.flagged
        started = time.perf_counter_ns()
        result = entry.run(arguments)
        elapsed = time.perf_counter_ns() - started
        entry.python_ns += elapsed
        if result is MISS:
            if sum(entry.exits.values()) + entry.flagged == before:
                variant.misses += 1
                return None
            variant.stopped += 1
            variant.time_ns += elapsed
            variant.size = max(passes // 2, 1)
            return _Run(passes, stopped=True)
        tried = passes
        if traced.passes:
            passes = result[0]
            if not passes:
                return _Run(0, over=True)
        left = traced.unrolled or (traced.left is not None and not result[traced.left])
        commit(facts, traced, result, registers, self.function.registers, frame.over, passes)
        variant.runs += 1
        variant.passes += passes
        variant.time_ns += elapsed
        variant.timings.append(max(elapsed / passes, 1))
        # Arrays that are written are copied in every run, whatever its passes: long runs for large ones.
        copied_ns = COPY_NS * sum(result[position].nbytes for position in traced.written.values())
        run_ns = RUN_NS + min(MAX_COPIES * copied_ns, LONG_PASS_NS)
        each = max((elapsed - copied_ns) / passes, 1)
        variant.size = max(1, min(int(run_ns / each), 8 * max(passes, variant.size)))
        # A condition that no longer holds is left to the interpreter, which finds it out by itself.
        return _Run(passes, left=left, over=passes < tried)

    def _missed(
        self, facts: LoopFacts, registers: list[Any], counts: list[int], settings: Settings, around: Surroundings
    ) -> None:  # fmt: skip
        """No form takes what the frame holds: look again later, and make another form when this goes on."""
        self.misses += 1
        counts[self.due_at] = counts[self.made_at] + min(1 << min(self.misses, 16), 1 << 16)
        if self.misses >= settings.hot_count and not settings.deterministic and not self.pending:
            self._compile(facts, registers, settings, around)

    def _watch(self, variant: LoopVariant, settings: Settings, around: Surroundings) -> None:
        """Take out what does not pay."""
        if settings.deterministic:
            return
        why = ""
        if variant.stopped >= 16 and variant.stopped > variant.runs:
            why = (
                f"{variant.stopped} of {variant.stopped + variant.runs} runs were stopped by a guard, an exit or a flag"
            )
        elif self.has_loops and variant.timings and variant.timings[-1] > LONG_PASS_NS:
            why = f"a pass takes {variant.timings[-1] / 1e6:.0f} ms: its inner loops are compiled instead"
        elif len(variant.timings) >= 8 and self.interpreted_ns:
            each = sorted(variant.timings)[len(variant.timings) // 2]
            if each > settings.demote_ratio * self.interpreted_ns:
                why = f"{each / 1e3:.1f} us a pass compiled against {self.interpreted_ns / 1e3:.1f} us interpreted"
        if why:
            variant.demoted = why
            variant.reason = f"demoted: {why}"
            self.entries = tuple(v for v in self.entries if v is not variant)
            events().add("demoted", region=self.name, reason=why)
            self._note(around, "demote", f"loop {self.loop}: {why}")

    def _note(self, around: Surroundings, kind: str, reason: str) -> None:
        f = self.function
        account = around.ledger.entry(kind, reason, function=f.qualname or f.name, filename=f.filename, line=self.line)
        account.add()

    @property
    def time_ns(self) -> int:
        """Time spent in compiled code."""
        return sum(v.time_ns for v in list(self.variants))

    @property
    def passes(self) -> int:
        """Passes made by compiled code."""
        return sum(v.passes for v in list(self.variants))


def _nothing() -> None:
    """Lends its code to a function that has the globals of a frame."""


def _identifier(name: str, loop: int) -> str:
    return "tc_" + "".join(c if c.isalnum() or c == "_" else "_" for c in name) + f"_loop{loop}"
