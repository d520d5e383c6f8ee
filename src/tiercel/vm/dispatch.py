"""The tiers of one function: count, decide, compile in the background, patch in, and run what is there.

In: calls that come in as argument tuples. Out: their results, by a compiled entry where one accepts the arguments,
else by the interpreter. What is hot is traced and lowered here (a few milliseconds, once per Signature) and given to
the compile service; its code is patched in by replacing the tuple of entries, which a call reads once: a call sees the
entries before or after a patch, never a half of it.

Signature: the kinds of the arguments (class, dtype, rank, contiguity; the class of objects), never a size. A Signature
is compiled at most twice: first for sizes that agree as they did when it became hot, then, if calls miss that, in
general.

An entry that takes longer than the interpreter did on calls of the same amount of work is taken out again (demoted):
the median of `demote_window` calls in a power-of-two class of input bytes is compared with `demote_ratio` times the
interpreted median of that class.

With the setting `deterministic` only `prepare` compiles: the tier of a call, and with it the bits of its result, is
the same before and after any other call.
"""

from __future__ import annotations

import contextvars
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CellType, FunctionType
from typing import Any, Final, Protocol

import numpy as np

from tiercel.bytecode.program import Function, Program
from tiercel.codegen.abi import frame_size, frame_words
from tiercel.codegen.cpu.stub import SAMPLE, SAMPLE_QUICK, Head
from tiercel.compiler.abstract import Untraceable
from tiercel.compiler.elementwise import NotLowered
from tiercel.compiler.environment import Condition, Environment
from tiercel.compiler.graph import Region, copied_caches
from tiercel.compiler.interface import packed_as
from tiercel.compiler.lower import Lowered, lower_region
from tiercel.compiler.trace import trace_region
from tiercel.config import Settings
from tiercel.config.layers import base_settings
from tiercel.hotpath import policy
from tiercel.hotpath.courtesy import courtesy
from tiercel.hotpath.events import events
from tiercel.hotpath.history import history
from tiercel.hotpath.queue import Job
from tiercel.hotpath.service import worker_busy
from tiercel.operators.layout import layout_class
from tiercel.values.ragged import Ragged
from tiercel.values.tensor import Tensor
from tiercel.vm import tuning
from tiercel.vm.context import machine
from tiercel.vm.entry import MISS, Entry, Frames, fixed_bytes, make_entry
from tiercel.vm.forms import show
from tiercel.vm.improve import improve
from tiercel.vm.ledger import Entry as LedgerEntry
from tiercel.vm.naming import name_for_tools
from tiercel.vm.samples import sampled_scalars, scalars_of
from tiercel.vm.stub import make_function, make_preamble, make_table
from tiercel.vm.tuning import Tuning, known_choices

__all__ = [
    "DROPPED", "INTERNAL", "Builder", "Built", "SignatureState", "Ticket", "Tiers", "entry_of", "over_limit",
    "signature_of",
]  # fmt: skip

MAX_SIGNATURES: Final = 16
"""Signatures of one function that are counted; calls of others stay interpreted."""
MAX_ENTRIES: Final = 8
MAX_SAMPLES: Final = 8
"""Calls of a Signature whose scalars are kept for validation."""
MAX_CLASSES: Final = 64
"""Amounts of work, see `size_class`, of which times are kept."""
MAX_TIMINGS: Final = 32
"""Times of interpreted calls that are kept for each amount of work."""
INTERNAL: Final = "a mistake of the compiler"
"""How the reason begins where tracing or lowering failed in a way it should not."""
DROPPED: Final = "dropped: the process forked, or the worker was shut down"
"""The reason of a build that says nothing about the code: it is asked for again when the function is next called."""
POLL_NS: Final = 500_000
"""How often calls look whether code is there: looking takes 10 us and more, a call perhaps less."""
MIN_LEFT: Final = 16
"""Calls that left an entry for the interpreter before it is asked whether that is the rule."""
SLOW_NS: Final = 50_000
"""Of calls that take so long, timing one in 16 costs less than a hundredth."""


@dataclass(slots=True)
class Built:
    """What the compile service gives for a region.

    Attributes:
        code, arena: addresses in mapped code.
        frames: the shared parts of calling.
        keep: what must stay alive.
        times_ms: by stage.
        certificate: what validation found, as plain data.
        from_cache: whether nothing was compiled.
        quick: whether better code can be asked for (see `improve`).
        widths: how packed operands are packed, see `packed_as`.
    """

    code: int
    arena: int
    frames: Frames
    keep: tuple[Any, ...]
    times_ms: dict[str, float]
    certificate: dict[str, Any]
    from_cache: bool = False
    quick: bool = False
    widths: dict[str, int] = field(default_factory=dict)


_GROWS: Final = "a concatenation copies all of an ndarray in each call; a tc.Tensor grows in place"


Choices = Mapping[int, Sequence[Any]]


class Ticket(Protocol):
    """A build under way."""

    @property
    def ready(self) -> bool:
        """Is there something to be had by asking again at once?"""

    def poll(self) -> Built | str | None:
        """The code, a reason why there is none, or None while it is not known, or not all is done that it needs."""

    def wait(self, timeout: float | None) -> bool:
        """Wait; false when the time was up first."""


class Builder(Protocol):
    """Compiles lowered regions, somewhere else."""

    def submit(
        self,
        region: Region,
        lowered: Lowered,
        times_ms: dict[str, float],
        *,
        hints: dict[str, Any] | None = None,
        quick: bool = False,
        choices: Choices | None = None,
    ) -> Ticket:
        """Begin.

        Args:
            region, lowered: what to compile.
            times_ms: what it took until here, by stage.
            hints: what was seen, for validation (`cases.Hints` as plain data).
            quick: whether the code is wanted soon rather than as fast as it can be.
            choices: how its products are to be carried out, by their number, in plain form (`codegen.cpu.choice`).
        """

    def winners(self) -> Mapping[str, Any]:
        """How products were found to be fastest on this machine, see `CompileService.winners`."""

    def measure(self, demands: list[Any], budget_ms: float) -> Job | None:
        """Have products measured; None where nothing can be. See `CompileService.tune`."""

    def measured(self, job: Job) -> dict[str, Any]:
        """What came of it, once the job is done."""

    def wait_for(self, job: Job, timeout: float | None) -> bool:
        """Wait for a job of `measure`; false when the time was up first."""

    def poll(self) -> None:
        """Do what can be done without waiting."""

    def available(self) -> str | None:
        """Why nothing can be compiled; None if it can."""

    def prepare(self) -> bool:
        """Do what the first `submit` would do besides; false if that was done before."""

    def expect(self) -> None:
        """Something will probably be submitted soon."""

    @property
    def slice_ns(self) -> int:
        """For how long one call may be held up by stages of compiling; at least one stage is done."""


def signature_of(value: Any) -> Any:
    """What of an argument a Signature is keyed by."""
    kind = type(value)
    if kind is np.ndarray:
        return (value.dtype, value.ndim, layout_class(value))
    if isinstance(value, Tensor):
        array = value._array
        return (kind, array.dtype, array.ndim, layout_class(array))
    if kind is Ragged:
        return (kind, signature_of(value.values))
    if isinstance(value, tuple | list):
        return (kind, *(signature_of(v) for v in value[:64]))
    if kind is dict:
        return tuple((k, signature_of(v)) for k, v in value.items())
    if kind in (str, bytes, type(None)):
        return value
    return kind


def _bytes_of(value: Any) -> int:
    if type(value) is np.ndarray:
        return int(value.nbytes)
    if isinstance(value, Tensor):
        return int(value._array.nbytes)
    if type(value) in (tuple, list):
        return sum(_bytes_of(v) for v in value)
    return 8


def size_class(arguments: tuple[Any, ...]) -> int:
    """What calls of about as much work have in common: binary digits of the bytes of each array, added up.

    Not those of all arrays together: weights, which are the same in every call, would hide the size of the rest.
    """
    return sum(
        size_class(tuple(value)) if type(value) in (tuple, list) else _bytes_of(value).bit_length()
        for value in arguments
    )


@dataclass(slots=True)
class Variant:
    """A compiled or attempted form of a Signature."""

    speculative: bool
    region: Region | None = None
    lowered: Lowered | None = None
    ticket: Ticket | None = None
    entry: Entry | None = None
    built: Built | None = None
    reason: str = ""  # why there is no entry
    line: int | None = None
    started_ns: int = 0
    patched_ns: int = 0
    stages_ms: dict[str, float] = field(default_factory=dict)
    demoted: str = ""
    verdict: tuple[int, float, int] | None = None  # amount of work, time of a call, calls until it is looked at again
    restored: bool = False  # it was demoted once and put back
    hints: dict[str, Any] = field(default_factory=dict)
    better: Ticket | None = None  # better code under way
    tuning: Tuning = field(default_factory=Tuning)
    asked_for: bool = False  # compiled by a warm-up, not for heat
    work: Generator[None] | None = None  # what is to be done here before it can be compiled
    timings: dict[int, deque[int]] = field(default_factory=dict)
    conditions: dict[Any, Condition] = field(default_factory=dict)
    functions: dict[int, FunctionType] = field(default_factory=dict)
    classes: list[type] = field(default_factory=list)
    missed: dict[str, int] = field(default_factory=dict)  # calls of the Signature it did not take, by reason


@dataclass(slots=True)
class SignatureState:
    """What is known about one Signature of a function."""

    key: Any
    calls: int = 0
    total_ns: int = 0
    variants: list[Variant] = field(default_factory=list)
    interpreted: dict[int, deque[int]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)  # calls, by the same key
    misses: int = 0
    expected: str = ""  # when compiling was expected to pay, estimated before
    scalars: list[tuple[Any, ...]] = field(default_factory=list)  # arguments of the first calls, arrays left out

    @property
    def typical_ns(self) -> int:
        """What an interpreted call takes on average, by medians for each amount of work: a stall does not move them."""
        medians = [(self.counts.get(work, 1), _median(t)) for work, t in list(self.interpreted.items()) if t]
        if medians:
            return int(sum(count * median for count, median in medians) / sum(count for count, _ in medians))
        return self.total_ns // self.calls if self.calls else 0

    def note(self, bucket: int, elapsed: int) -> None:
        """Account an interpreted call, of this `size_class`."""
        self.calls += 1
        self.total_ns += elapsed
        if bucket not in self.interpreted:
            if len(self.interpreted) >= MAX_CLASSES:
                return
            self.interpreted[bucket] = deque(maxlen=MAX_TIMINGS)
        self.interpreted[bucket].append(elapsed)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1


class Tiers:
    """The tiers of one function.

    Args:
        name: of the function, for people.
        function: the user's function.
        program: its bytecode and constants.
        program_of: bytecode of functions it may call.
        settings: the settings in force.
        builder: gives the compile service (asked when something is hot).
        fast: a cell in which the caller looks for a function to call before `run`: it takes the arguments and gives
            the result or MISS. None where nobody looks.
    """

    def __init__(
        self,
        name: str,
        function: FunctionType,
        program: tuple[Function, Sequence[Any]],
        program_of: Callable[[FunctionType], tuple[Function, Sequence[Any]] | None],
        settings: Callable[[], Settings],
        builder: Callable[[], Builder],
        fast: CellType | None = None,
    ) -> None:
        self.name = name
        self.function = function
        self.program = program
        self.program_of = program_of
        self.settings = settings
        self.builder = builder
        self.entries: tuple[Entry, ...] = ()
        self.signatures: dict[Any, SignatureState] = {}
        self.pending: list[tuple[SignatureState, Variant]] = []
        self.working: list[Variant] = []
        self._look_at = 0  # when to ask again whether something is ready
        self.expected = False  # whether the service was told that something will come
        self._own_ns = 0  # what the last interpreted call took
        self.fast = fast
        self._base: Settings | None = None
        self._stub = 0
        self.interpreted_calls = 0
        self.interpreted_ns = 0
        self.compiles = 0
        self._ticks = 0

    @property
    def compiled_calls(self) -> int:
        """Calls that compiled code has taken."""
        return sum(entry.calls for entry in self.made())

    @property
    def compiled_ns(self) -> int:
        """Time spent in them."""
        return sum(entry.time_ns for entry in self.made())

    def made(self) -> list[Entry]:
        states = list(self.signatures.values())
        return [v.entry for state in states for v in list(state.variants) if v.entry is not None]

    # ---- calling -----------------------------------------------------------------------------------------------------

    def run(self, interpret: Callable[[Any, tuple[Any, ...]], Any], prepared: Any, arguments: tuple[Any, ...]) -> Any:
        """Run a call."""
        settings = self.settings()
        if settings.level == "O0":
            return interpret(prepared, arguments)
        if self._base is not None and self._base is not base_settings()[1]["_settings"]:
            self.publish()
        for entry in self.entries:
            stub = entry.stub
            if stub is not None and settings.memory_limit is None:  # the stub keeps no account of memory
                if entry.stopped():  # called by the wrapper just now
                    continue
                started = time.perf_counter_ns()
                result = stub(*arguments)
                if result is not MISS:
                    elapsed = time.perf_counter_ns() - started
                    entry.timed += 1
                    entry.timed_ns += elapsed
                    self._ticks += 1
                    if self.fast is not None or not self._ticks & 15:
                        self._watch(entry, arguments, elapsed)
                        self._sample(entry, elapsed)
                    return result
                if entry.stopped():
                    continue
            started = time.perf_counter_ns()
            result = entry.run(arguments)
            if result is not MISS:
                elapsed = time.perf_counter_ns() - started
                entry.python_ns += elapsed
                self._ticks += 1
                if not self._ticks & 15:
                    self._watch(entry, arguments, elapsed)
                return result
        if self.pending and time.perf_counter_ns() > self._look_at:
            self.poll()
            self._look_at = time.perf_counter_ns() + POLL_NS
        if worker_busy():
            courtesy.give_way()
        started = time.perf_counter_ns()
        try:
            result = interpret(prepared, arguments)
        except BaseException:
            if self.entries:
                self._note_raised(arguments, time.perf_counter_ns() - started)
            raise
        finally:
            if courtesy.taken:
                courtesy.take_back()
        elapsed = time.perf_counter_ns() - started
        self.interpreted_calls += 1
        self.interpreted_ns += elapsed
        self._own_ns = elapsed
        if self.working:
            self.advance(elapsed)
        self._note(settings, arguments, elapsed)
        return result

    def _note(self, settings: Settings, arguments: tuple[Any, ...], elapsed: int) -> None:
        try:
            key = tuple(map(signature_of, arguments))
            state = self.signatures.get(key)
        except TypeError:
            return  # an argument that cannot be a key
        if state is None:
            if len(self.signatures) >= MAX_SIGNATURES:
                return
            state = self.signatures[key] = SignatureState(key)
        state.note(size_class(arguments), elapsed)
        if len(state.scalars) < MAX_SAMPLES:
            state.scalars.append(scalars_of(arguments))
        for variant in state.variants:
            if variant.verdict is not None:
                self._reconsider(settings, state, variant, size_class(arguments))
        if state.variants and self._has_entry(state):
            state.misses += 1
            self._account(state, elapsed)
        if self.entries:
            self._check_left()
        if self.wants_compile(settings, state) is None:
            self.compile(settings, state, arguments)
        elif not self.expected and policy.soon(policy.Counters(state.calls, total_ns=state.total_ns), settings):
            self.expected = True
            self.builder().expect()

    def _note_raised(self, arguments: tuple[Any, ...], elapsed: int) -> None:
        """Account a call that ended by an exception: only that compiled code has not taken it."""
        try:
            state = self.signatures.get(tuple(map(signature_of, arguments)))
        except Exception:  # noqa: BLE001 - the user's exception is what counts
            return
        if state is not None and self._has_entry(state):
            self._account(state, elapsed)

    def _account(self, state: SignatureState, elapsed: int) -> None:
        """Note in the ledger why compiled code for the Signature has not taken a call."""
        for variant in reversed(state.variants):
            entry = variant.entry
            if entry is None or not entry.why[0]:
                continue
            (reason, index), entry.why = entry.why, ("", None)
            variant.missed[reason] = variant.missed.get(reason, 0) + 1
            self._ledger("fallback", reason, index).add(time_ns=elapsed)
            return

    def _ledger(self, kind: str, reason: str, index: int | None = None) -> LedgerEntry:
        code = self.function.__code__
        line = self.program[0].line_of(index) if index is not None else None
        return machine().ledger.entry(
            kind, reason, function=code.co_qualname, filename=code.co_filename, line=line or code.co_firstlineno
        )

    @staticmethod
    def _has_entry(state: SignatureState) -> bool:
        return any(v.entry is not None and not v.demoted for v in state.variants)

    # ---- deciding ----------------------------------------------------------------------------------------------------

    def wants_compile(self, settings: Settings, state: SignatureState) -> str | None:
        """Why the Signature is not compiled now; None if it should be."""
        if state.variants:
            last = state.variants[-1]
            if last.entry is None and not last.reason:
                return "being compiled"
            if last.reason:
                return last.reason
            if not last.speculative or state.misses < settings.hot_count:
                return "compiled"
        if settings.deterministic:
            return "deterministic: compiled by warmup only"
        past = history()
        estimate = policy.Estimate(past.expected_ms(len(self.program[0].instructions)), past.expected_speed_up())
        decision = policy.decide(policy.Counters(state.calls, total_ns=state.total_ns), settings, estimate)
        if decision.hot:
            state.expected = policy.break_even(state.typical_ns / 1e6, estimate.compile_ms, estimate.speed_up).text
        return None if decision.hot else decision.reason

    def prepare(self, arguments: tuple[Any, ...]) -> str | None:
        """Compile for such arguments now and wait for it. Why there is no compiled code for them; None if there is."""
        settings = self.settings()
        if settings.level == "O0":
            return "the level is O0: nothing is compiled"
        state = self.begin(settings, arguments)
        self.wait()
        return None if self._has_entry(state) else state.variants[-1].reason

    @property
    def refused(self) -> bool:
        """Whether some kind of arguments was found not to compile as a whole: then loops are compiled by themselves."""
        return any(state.variants and state.variants[-1].reason for state in list(self.signatures.values()))

    def begin_to_prepare(self, arguments: tuple[Any, ...]) -> str:
        """Begin to compile for such arguments, without waiting; why they cannot be compiled, "" as far as known."""
        settings = self.settings()
        if settings.level == "O0":
            return ""
        state = self.begin(settings, arguments)
        return "" if self._has_entry(state) else state.variants[-1].reason

    def begin(self, settings: Settings, arguments: tuple[Any, ...]) -> SignatureState:
        """Begin to compile for such arguments, unless that was done before."""
        key = tuple(map(signature_of, arguments))
        state = self.signatures.setdefault(key, SignatureState(key))
        if not state.variants:
            self.compile(settings, state, arguments, awaited=True)
        return state

    def compile(
        self, settings: Settings, state: SignatureState, arguments: tuple[Any, ...], *, awaited: bool = False
    ) -> Variant:
        """Trace and lower for these arguments, and hand over to the service.

        Somebody who waits (`awaited`) gets the best code at once; else quick code comes first.
        """
        variant = Variant(not state.variants, started_ns=time.perf_counter_ns(), asked_for=awaited)
        state.variants.append(variant)
        state.misses = 0
        variant.work = self._stages(settings, state, variant, arguments, quick=not awaited)
        self.working.append(variant)
        self.advance(None if awaited else self._own_ns)
        return variant

    def advance(self, own_ns: int | None) -> None:
        """Go on with what is compiled here, a part in each call: nobody waits for all of it.

        Args:
            own_ns: what a call takes by itself, of which a quarter more is not felt; None: to the end.
        """
        while self.working:
            variant = self.working[0]
            work = variant.work
            end = None if own_ns is None else time.perf_counter_ns() + self.builder().slice_ns + own_ns // 4
            while work is not None:
                try:
                    next(work)
                except StopIteration:
                    break
                except ValueError:
                    if getattr(work, "gi_running", False):
                        return  # another thread is at it
                    raise
                if end is not None and time.perf_counter_ns() > end:
                    return
            variant.work = None
            if variant in self.working:
                self.working.remove(variant)

    def _stages(
        self, settings: Settings, state: SignatureState, variant: Variant, arguments: tuple[Any, ...], *, quick: bool
    ) -> Generator[None]:
        """The stages of compiling that run here: between two of them the program may go on."""
        service = self.builder()
        unavailable = service.available()
        if unavailable is not None:
            variant.reason = unavailable
            return
        if service.prepare():
            yield
        code, constants = self.program
        environment = Environment(self.function, self.program_of)
        try:
            started = time.perf_counter_ns()
            region = trace_region(
                code, constants, environment, arguments, name=_identifier(self.name), speculate=variant.speculative
            )
            variant.stages_ms["trace"] = (time.perf_counter_ns() - started) / 1e6
            scalars = scalars_of(arguments)
            del arguments  # nobody shall keep the arrays of a call until the next one
            yield
            started = time.perf_counter_ns()
            variant.lowered = lower_region(region)
            for node in copied_caches(region):
                self._ledger("copy", _GROWS, node.origin).add()
            variant.stages_ms["lower"] = (time.perf_counter_ns() - started) / 1e6
        except (Untraceable, NotLowered) as error:
            index = getattr(error, "index", None)
            index = getattr(error, "origin", None) if index is None else index
            variant.line = code.line_of(index) if index is not None and index < len(code.instructions) else None
            variant.reason = error.reason
            where = f" (line {variant.line})" if variant.line else ""
            events().add("unsupported", region=self.name, reason=error.reason + where)
            return
        except Exception as error:  # noqa: BLE001 - a mistake of the compiler must not reach a user whose code is right
            variant.reason = f"{INTERNAL}: {type(error).__name__}: {error}"
            events().add("unsupported", region=self.name, reason=variant.reason)
            return
        yield
        variant.region = region
        short = self.name.rpartition("<locals>.")[2]
        sizes = "sizes that agree" if variant.speculative else "any sizes"
        events().add("detected", region=self.name, pc=0, signature=f"{short}:{region.signature}", range=sizes)
        if settings.debug or settings.dump_dir:
            times = ", ".join(f"{stage} {ms:.1f} ms" for stage, ms in variant.stages_ms.items())
            listing = str(Program((code,), tuple(constants), name=self.name))
            show(settings, self.name, listing, region, variant.lowered, times)
        variant.conditions = dict(environment.conditions)
        variant.classes = list(environment.classes)
        variant.functions = {id(f): f for f in environment.functions}
        variant.hints = {"scalars": sampled_scalars(variant.lowered.interface, scalars, state.scalars)}
        choices, variant.tuning.from_store = known_choices(
            variant.lowered, dict(region.sample), settings, service.winners
        )
        variant.tuning.choices = choices
        variant.ticket = service.submit(
            region, variant.lowered, dict(variant.stages_ms), hints=variant.hints, quick=quick, choices=choices
        )
        self.pending.append((state, variant))

    # ---- patching ----------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Patch in what is ready."""
        end = time.perf_counter_ns() + self._own_ns // 4
        still: list[tuple[SignatureState, Variant]] = []
        for state, variant in self.pending:
            assert variant.ticket is not None
            outcome = variant.ticket.poll()
            while outcome is None and variant.ticket.ready and time.perf_counter_ns() < end:
                outcome = variant.ticket.poll()
            if outcome is None:
                still.append((state, variant))
            elif outcome is DROPPED:
                state.variants.remove(variant)
            elif isinstance(outcome, str):
                variant.reason = outcome
                events().add("rejected", region=self.name, reason=outcome)
            else:
                self.patch(variant, outcome)
        self.pending = still

    def patch(self, variant: Variant, built: Built) -> None:
        """Put a validated entry in front of the others."""
        lowered = variant.lowered
        assert lowered is not None
        assert variant.region is not None
        reason = over_limit(self.settings(), built)
        if reason is not None:
            variant.reason = reason
            self._ledger("fallback", variant.reason).add()
            events().add("rejected", region=self.name, reason=variant.reason)
            return
        entry = self._make(variant, built)
        variant.entry, variant.built = entry, built
        variant.patched_ns = time.perf_counter_ns()
        variant.stages_ms.update(built.times_ms)
        # special ones before general ones
        entries = [entry, *self.entries] if variant.speculative else [*self.entries, entry]
        self.entries = tuple(entries[:MAX_ENTRIES])
        self.publish()
        if not built.from_cache:
            self.compiles += 1
            history().compiled(len(self.program[0].instructions), (variant.patched_ns - variant.started_ns) / 1e6)
        settings = self.settings()
        if settings.perf_map or settings.gdb:
            name_for_tools(built.keep, built.frames.library, settings, self.name, self.function.__code__)
        events().add(
            "patched", region=self.name, signature=variant.region.signature, from_cache=built.from_cache,
            total_ms=sum(built.times_ms.values()), times_ms=dict(built.times_ms),
        )  # fmt: skip

    def replace(self, variant: Variant, built: Built) -> str | None:
        """Run other code of the same Signature from now on, whose products are carried out in another way; why not, or
        None. A call runs the old code or the new one to its end, each with operands packed as it needs them.
        """
        reason = over_limit(self.settings(), built)
        if reason is not None:
            return reason
        old = variant.entry
        assert old is not None
        entry = self._make(variant, built)
        entry.follow(old)
        variant.entry, variant.built = entry, built
        variant.timings.clear()
        self.entries = tuple(entry if e is old else e for e in self.entries)
        self.publish()
        settings = self.settings()
        if settings.perf_map or settings.gdb:
            name_for_tools(built.keep, built.frames.library, settings, self.name, self.function.__code__)
        return None

    def restore(self, variant: Variant, entry: Entry, built: Built) -> None:
        """Run the code of before again."""
        newer = variant.entry
        assert newer is not None
        entry.follow(newer)
        variant.entry, variant.built = entry, built
        variant.timings.clear()
        self.entries = tuple(entry if e is newer else e for e in self.entries)
        self.publish()

    def _make(self, variant: Variant, built: Built) -> Entry:
        """The entry of a variant's code, with its way through the stub."""
        lowered = variant.lowered
        assert lowered is not None
        assert variant.region is not None
        entry = entry_of(variant, lowered, built, f"{self.name} {variant.region.signature}")
        self._equip(entry, variant, lowered, built)
        return entry

    def _equip(self, entry: Entry, variant: Variant, lowered: Lowered, built: Built) -> None:
        """Give an entry its way through the machine-code stub."""
        if not built.frames.stub:
            entry.without = "the runtime library has no stub"
            return
        function = lowered.function
        table = make_table(
            packed_as(lowered.interface, built.widths),
            variant.conditions,
            variant.functions,
            arguments=len(self.program[0].parameters),
            function=function,
            words=frame_words(function),
            frame_size=frame_size(function),
            code=built.code,
            arena=built.arena,
            shared=int(built.frames.shared.ctypes.data),
            packs=entry.packs,
            classes=variant.classes,
            keep=(built.frames, *built.keep),
        )
        if isinstance(table, str):
            entry.without = table
            return
        entry.table = table
        entry.stub = make_function(built.frames.stub, [table], MISS, sampled=False, name=self.function.__name__)
        self._stub = built.frames.stub

    def publish(self) -> None:
        """Put one function made of all entries that have a table into the cell `fast`.

        It holds while the settings of the process are what they are now, outside of blocks that change them, and while
        nobody traces; otherwise, and for one call in 16, it gives MISS.
        """
        if self.fast is None:
            return
        while True:  # another thread may patch or demote meanwhile, and have published before us
            seen = self.entries
            self._publish(self.fast, seen)
            if self.entries is seen:
                return

    def _publish(self, cell: CellType, seen: tuple[Entry, ...]) -> None:
        variable, namespace, name = base_settings()
        base = namespace[name]
        # The settings outside of all blocks: in a context that nobody has written to.
        settings = contextvars.Context().run(self.settings)
        entries = [e for e in seen if e.stub is not None]
        made = None
        if entries and settings.level != "O0" and settings.memory_limit is None:
            tables = [t for t in (e.table for e in entries) if t is not None]
            preamble = make_preamble(len(self.program[0].parameters), variable, namespace, name)
            made = make_function(self._stub, [preamble, *tables], MISS, sampled=True, name=self.function.__name__)
        self._base = base if entries else None
        cell.cell_contents = made

    def _sample(self, entry: Entry, elapsed: int) -> None:
        """Time fewer calls of what is known to be quick."""
        made = self.fast.cell_contents if self.fast is not None else None
        if made is not None:
            quick = entry.timed >= 2 * MAX_TIMINGS and elapsed < SLOW_NS
            made.__self__[Head.MASK] = (SAMPLE_QUICK if quick else SAMPLE) - 1

    def _watch(self, entry: Entry, arguments: tuple[Any, ...], elapsed: int) -> None:
        """Note the time of one call in sixteen; demote an entry that is slower than the interpreter was."""
        found = self._owner(entry)
        if found is None:
            return
        state, variant = found
        improve(self, variant, DROPPED)
        settings = self.settings()
        bucket = size_class(arguments)
        tuning.watch(self, variant, arguments, bucket, elapsed, DROPPED)
        times = variant.timings.setdefault(bucket, deque(maxlen=settings.demote_window))
        times.append(elapsed)
        baseline = state.interpreted.get(bucket)
        if len(times) < (times.maxlen or 0) or not baseline or len(baseline) < 3:
            return
        compiled, interpreted = _median(times), _median(baseline)
        history().ran(interpreted, compiled)
        times.clear()  # the next ones speak for themselves, and this is not computed at every call
        if compiled > settings.demote_ratio * interpreted and not settings.deterministic:
            self._demote(
                entry,
                variant,
                f"{compiled / 1e3:.0f} us compiled against {interpreted / 1e3:.0f} us interpreted, inputs of about "
                f"{sum(map(_bytes_of, arguments))} bytes",
            )
            if not variant.restored:
                variant.verdict = (bucket, compiled, settings.demote_window)

    def _demote(self, entry: Entry, variant: Variant, reason: str) -> None:
        """Take an entry out for good."""
        variant.demoted = reason
        variant.reason = f"demoted: {reason}"
        self.entries = tuple(e for e in self.entries if e is not entry)
        self.publish()
        self._ledger("demote", reason).add()
        events().add("demoted", region=self.name, reason=reason)

    def _reconsider(self, settings: Settings, state: SignatureState, variant: Variant, bucket: int) -> None:
        """Put a demoted entry back, once, if the interpreter is now as slow as the entry was.

        The interpreted times it was compared with may be from a quieter machine: where other processes take the cores,
        a kernel of several threads waits for them, and so does everything else. Calls since the demotion tell.
        """
        assert variant.verdict is not None
        assert variant.entry is not None
        work, compiled, left = variant.verdict
        if bucket != work:
            return
        variant.verdict = (work, compiled, left - 1) if left > 1 else None
        if variant.verdict is not None:
            return
        now = _median(list(state.interpreted[work])[-settings.demote_window :])
        if compiled > settings.demote_ratio * now:
            return
        variant.demoted = variant.reason = ""
        variant.restored = True
        variant.timings.clear()
        self.entries = (variant.entry, *self.entries)[:MAX_ENTRIES]
        self.publish()
        events().add("restored", region=self.name, reason=f"interpreted calls take {now / 1e3:.0f} us now")

    def _check_left(self) -> None:
        """Take out entries whose calls mostly do not come to their end: they are run twice."""
        for entry in self.entries:
            left = sum(entry.exits.values()) + entry.flagged
            if left < MIN_LEFT or left <= entry.calls:
                continue
            found = self._owner(entry)
            if found is None:
                continue
            _, variant = found
            reason = f"{left} of {left + entry.calls} calls left it for the interpreter"
            if sum(entry.exits.values()) > entry.flagged:
                site = max(entry.exits, key=lambda s: entry.exits[s])
                line = self.program[0].line_of(entry.sites[site - 1]) if 0 < site <= len(entry.sites) else None
                reason += f", most of them at line {line}" if line else ""
            else:
                reason += ", for floating-point warnings"
            self._demote(entry, variant, reason)

    def _owner(self, entry: Entry) -> tuple[SignatureState, Variant] | None:
        for state in self.signatures.values():
            for variant in state.variants:
                if variant.entry is entry:
                    return state, variant
        return None

    # ---- asking ------------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is pending; false when the time was up first."""
        end = None if timeout is None else time.monotonic() + timeout
        self.advance(None)
        while self.pending:
            _, variant = self.pending[0]
            assert variant.ticket is not None
            left = None if end is None else max(0.0, end - time.monotonic())
            if not variant.ticket.wait(left):
                return False
            self.poll()
        for state in list(self.signatures.values()):
            for variant in state.variants:
                left = None if end is None else max(0.0, end - time.monotonic())
                if variant.better is not None and variant.entry is not None:
                    if not variant.better.wait(left):
                        return False
                    improve(self, variant, DROPPED)
                if not tuning.wait(self, variant, DROPPED, end):
                    return False
        return True

    def unmet(self, state: SignatureState | None) -> str:
        """The first condition for compiled code that is not met; "" where there is some."""
        if state is None:
            return "not called yet"
        if self._has_entry(state):
            return ""
        return self.wants_compile(self.settings(), state) or "hot: compiled at the next call"

    def warm(self, arguments: tuple[Any, ...]) -> Variant | None:
        """Compile for these arguments now, without waiting for heat; returns what became of it."""
        key = tuple(map(signature_of, arguments))
        state = self.signatures.setdefault(key, SignatureState(key))
        if not state.variants:
            self.compile(self.settings(), state, arguments, awaited=True)
            self.wait()
        return state.variants[-1] if state.variants else None


def _median(numbers: Iterable[int]) -> float:
    """The middle one; `statistics` would load decimal and fractions."""
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


class Guarded(Protocol):
    """A variant of a function or of a loop, as far as its entry asks: what it holds for."""

    conditions: dict[Any, Condition]
    functions: dict[int, FunctionType]
    classes: list[type]


def entry_of(variant: Guarded, lowered: Lowered, built: Built, description: str) -> Entry:
    """The entry of code that was built for a variant."""
    return make_entry(
        packed_as(lowered.interface, built.widths),
        variant.conditions,
        variant.functions,
        words=frame_words(lowered.function),
        frame_size=frame_size(lowered.function),
        code=built.code,
        arena=built.arena,
        frames=built.frames,
        description=description,
        sites=lowered.sites,
        keep=built.keep,
        classes=variant.classes,
    )


def over_limit(settings: Settings, built: Built) -> str | None:
    """Why there is no room for machine code within the setting `memory_limit`; None if there is."""
    limit = settings.memory_limit
    needed = sum(fixed_bytes()) + sum(getattr(kept, "size_bytes", 0) for kept in built.keep)
    if limit is None or needed <= limit:
        return None
    return f"machine code and packed operands would take {needed} bytes, memory_limit is {limit}"


def _identifier(name: str) -> str:
    return "tc_" + "".join(c if c.isalnum() or c == "_" else "_" for c in name)
