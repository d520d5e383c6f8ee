"""The products of a compiled region carried out in the way that was measured to be fastest, with the sizes seen here.

In: a compiled form of a Signature that is in use. Out: nothing at first; once its code has run for `tune_after_ms` and
products take a good part of that, its products are measured in the compile worker with the sizes of calls that were
seen. If another way is faster by `session.LEAST_GAIN` the region is compiled again that way, validated, and put in its
place; if calls then take longer than before, the code of before comes back.
What earlier processes found out is used from the first compile on (`known_choices`).

Invariants: nothing here waits; results do not change by a bit (see `codegen.cpu.choice`); what could not be measured or
compiled leaves everything as it is and is said in the report. Measuring is bounded a region and a process.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tiercel.compiler.interface import Interface
from tiercel.compiler.lower import Lowered
from tiercel.config import Settings
from tiercel.hotpath.events import events
from tiercel.hotpath.processors import available_threads
from tiercel.loops.form import Binary, Block, Const, Contract, Expr, For, Function, Store, Var, blocks
from tiercel.loops.index import strides_of
from tiercel.shapes import Symbol
from tiercel.values.tensor import Tensor
from tiercel.vm.samples import at_source

if TYPE_CHECKING:
    from tiercel.vm.dispatch import Ticket, Tiers, Variant

__all__ = ["SEEN", "Tuning", "known_choices", "products_of", "sizes_seen", "watch"]

TRIAL: Final = 32
"""Calls by which tuned code is compared with the code of before."""
SLOWER: Final = 1.05
"""Tuned code that is slower than the code of before by this factor goes again."""
MAX_TRIES: Final = 3
MAX_WORK: Final = 16
GIVE_UP_NS: Final = 5e9
"""Time in calls without comparison after which tuned code stays as it is."""
SEEN: Final = 6
"""Calls whose sizes must be known."""
MAX_SIZES: Final = 64
_SHARE: Final = 0.2
"""Part of a kernel's time that its products must take at least, at the machine's peak."""
_PEAK: Final = 100.0
"""Operations a nanosecond and a thread, about: what processors with 64-byte vectors reach."""
_LAYOUTS: Final = ("float32", "float64")

Sizes = tuple[tuple[str, int], ...]
Choices = dict[int, Any]


class Site(NamedTuple):
    """A product of a region: its number, what it is with given sizes, and how often it is computed in a call."""

    number: int
    key: str
    product: list[Any]  # as `tuner.space.Product`, plain
    packed: str  # the buffer a packed operand lies in
    times: int


@dataclass(slots=True)
class Tuning:
    """Where a compiled form stands.

    Attributes:
        state: "watching", "measuring", "compiling", "trial", "done".
        reason: why it is done without having been measured, or not compiled again.
        sizes: how often which sizes were seen.
        results: what was measured, see `tuner.session.Tuned.to_data`.
        from_store: products whose choice was there before this process, by key.
        choices: what is done, by number of the product.
        spent_ms: for measuring.
        tunes: how often the code was replaced.
    """

    state: str = "watching"
    reason: str = ""
    sizes: Counter[Sizes] = field(default_factory=Counter)
    results: list[dict[str, Any]] = field(default_factory=list)
    from_store: dict[str, Any] = field(default_factory=dict)
    choices: Choices = field(default_factory=dict)
    spent_ms: float = 0.0
    tunes: int = 0
    job: Any = None
    ticket: Ticket | None = None
    tries: int = 0
    after_ns: float = 0.0  # time in the kernel before the next try
    times: dict[int, deque[int]] = field(default_factory=dict)  # of calls with the code of before, by work
    trial: dict[int, deque[int]] = field(default_factory=dict)  # with the tuned code
    before: tuple[Any, Any] | None = None  # entry and code of before, while the tuned code is on trial

    @property
    def in_use(self) -> bool:
        """Does the code in place carry out products as measurements chose? Not where that is yet to be compiled."""
        return bool(self.choices) and (self.tunes > 0 or any(map(_is_changed, self.from_store.values())))

    def to_data(self) -> dict[str, Any]:
        """The plain form, for reports."""
        return {
            "state": self.state, "reason": self.reason, "results": self.results, "from_store": self.from_store,
            "spent_ms": self.spent_ms, "tunes": self.tunes, "tries": self.tries, "in_use": self.in_use,
        }  # fmt: skip

    def end(self, reason: str = "") -> None:
        """There is no more to come."""
        self.state, self.reason, self.job, self.ticket, self.before = "done", reason, None, None, None
        self.times.clear()
        self.trial.clear()


_spent_ms = [0.0]
"""For measuring, in this process."""


# ---- what there is to tune -------------------------------------------------------------------------------------------


def products_of(function: Function, sizes: Mapping[str, int], threads: int) -> list[Site]:
    """The products that can be carried out in several ways, with these sizes; without those of unknown size."""
    found: list[Site] = []
    number = -1
    for stmt, times in _contracts(function.body, sizes, 1):
        number += 1
        m, n, k = (_value(x, sizes) for x in (stmt.m, stmt.n, stmt.k))
        layout = _layout(stmt)
        if m is None or n is None or k is None or layout is None or min(m, k) < 1 or n < 2 or stmt.panels:
            continue
        epilogue = not _is_plain(stmt)
        product = [stmt.a.dtype.name, layout, epilogue, m, n, k, threads]
        key = f"{stmt.a.dtype.name} {layout}{' epilogue' if epilogue else ''} n{n} k{k} t{threads}"
        found.append(Site(number, key, product, (stmt.b.root or stmt.b.name) if stmt.packed else "", times))
    return found


def _contracts(block: Block, sizes: Mapping[str, int], times: int) -> Iterator[tuple[Contract, int]]:
    """In the order of `contracts_of`, with how often each is computed."""
    for stmt in block.body:
        if isinstance(stmt, Contract):
            yield stmt, times
        else:
            trips = (_value(stmt.extent, sizes) or 1) if isinstance(stmt, For) else 1
            for inner in blocks(stmt):
                yield from _contracts(inner, sizes, times * trips)


def _layout(stmt: Contract) -> str | None:
    if stmt.a.dtype.name not in _LAYOUTS:
        return None
    if stmt.packed:
        return "packed"
    one = Const(1, stmt.n.dtype)
    row, column = strides_of(stmt.b)
    return "rows" if column == one else "columns" if row == one else None


def _is_plain(stmt: Contract) -> bool:
    """Does nothing follow but storing the sum?"""
    body = stmt.epilogue.body
    return len(body) == 1 and isinstance(body[0], Store) and body[0].value == Var(stmt.accumulator, stmt.a.dtype)


_FOLD: Final[Mapping[str, Callable[[int, int], int]]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "min": min, "max": max,
    "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b,
}  # fmt: skip


def _value(node: Expr, sizes: Mapping[str, int]) -> int | None:
    """A size, where it is made of sizes of the function."""
    match node:
        case Const():
            return int(node.value.real)
        case Var():
            return sizes.get(node.name)
        case Binary() if node.op in _FOLD:
            a, b = _value(node.a, sizes), _value(node.b, sizes)
            if a is None or b is None or (node.op in ("floordiv", "mod") and not b):
                return None
            return _FOLD[node.op](a, b)
    return None


def sizes_seen(interface: Interface, arguments: tuple[Any, ...]) -> Sizes:
    """The sizes of a call, as far as they stand in its arguments."""
    found: dict[str, int] = {}
    for spec in interface.inputs:
        value = at_source(spec.source, arguments)
        if spec.kind == "array":
            shape = value.shape if isinstance(value, np.ndarray | Tensor) else ()
            for dim, size in zip(spec.dims, shape, strict=False):
                if isinstance(dim, Symbol):
                    found.setdefault(dim.name, int(size))
        elif isinstance(spec.value, Symbol) and isinstance(value, int):
            found.setdefault(spec.value.name, value)
    return tuple(sorted(found.items()))


def known_choices(
    lowered: Lowered, sizes: Mapping[str, int], settings: Settings, winners: Callable[[], Mapping[str, Any]]
) -> tuple[Choices, dict[str, Any]]:
    """(choices, what was measured by key): how the products of a region were found to be fastest, here, earlier."""
    if settings.tune == "off" or settings.level != "O2":
        return {}, {}
    sites = products_of(lowered.function, sizes, _threads(settings))
    if not sites:
        return {}, {}
    kept = winners()
    found = {site.key: kept[site.key] for site in sites if site.key in kept}
    return _agreeing(sites, {key: told["choice"] for key, told in found.items() if _is_changed(told)}), found


def _is_changed(told: Mapping[str, Any]) -> bool:
    """Is something else to be done than what is usual? If not the code is what anybody's is."""
    return bool(told["choice"] != told.get("present"))


def _agreeing(sites: list[Site], choices: Mapping[str, Any]) -> Choices:
    """Choices by number. Products that read one packed operand must agree on its panels: where not, none of them has a
    choice.
    """
    widths: dict[str, set[Any]] = {}
    for site in sites:
        if site.packed:
            widths.setdefault(site.packed, set()).add(choices[site.key][0] if site.key in choices else None)
    apart = {buffer for buffer, found in widths.items() if len(found) > 1}
    return {site.number: choices[site.key] for site in sites if site.key in choices and site.packed not in apart}


def _threads(settings: Settings) -> int:
    return settings.threads or available_threads().threads


# ---- while it runs ---------------------------------------------------------------------------------------------------


def watch(tiers: Tiers, variant: Variant, arguments: tuple[Any, ...], work: int, elapsed: int, dropped: str) -> None:
    """Look after the products of a compiled form; called for some of its calls.

    Args:
        tiers, variant: whose form.
        arguments: of the call that has just ended.
        work, elapsed: its class of work, and what it took.
        dropped: the outcome of a build that may be asked for again.
    """
    tuning = variant.tuning
    if tuning.state == "done":
        return
    assert variant.lowered is not None
    if tuning.state == "watching":
        if len(tuning.sizes) < MAX_SIZES:
            tuning.sizes[sizes_seen(variant.lowered.interface, arguments)] += 1
        if len(tuning.times) < MAX_WORK or work in tuning.times:
            tuning.times.setdefault(work, deque(maxlen=TRIAL)).append(elapsed)
        _begin(tiers, variant, tuning)
    elif tuning.state == "trial":
        _tried(tiers, variant, tuning, work, elapsed)
    elif tuning.state == "measuring":
        _measured(tiers, variant, tuning)
    else:
        _compiled(tiers, variant, tuning, dropped)


def _begin(tiers: Tiers, variant: Variant, tuning: Tuning) -> None:
    """Ask for measurements when it is worth it."""
    settings, entry, built = tiers.settings(), variant.entry, variant.built
    assert entry is not None
    assert built is not None
    if settings.tune != "on" or settings.level != "O2" or settings.deterministic:
        return  # settings may change
    if (
        entry.time_ns < max(settings.tune_after_ms * 1e6, tuning.after_ns)
        or tuning.sizes.total() < SEEN
        or variant.better is not None
    ):
        return
    if built.quick:
        return  # better code comes first
    assert variant.lowered is not None
    demands, share = _demands(variant, tuning, _threads(settings), entry.time_ns / max(1, entry.calls))
    if not demands:
        tuning.end(share)
        return
    left = settings.tune_total_ms - _spent_ms[0]
    if left <= 0:
        tuning.end(f"this process has measured for {_spent_ms[0]:.0f} ms, tune_total_ms is {settings.tune_total_ms:g}")
        return
    tuning.job = tiers.builder().measure(demands, min(left, settings.tune_budget_ms))
    if tuning.job is None:
        tuning.after_ns = 2.0 * entry.time_ns  # frozen, or no worker: asked again later
        return
    tuning.state = "measuring"


def _demands(variant: Variant, tuning: Tuning, threads: int, call_ns: float) -> tuple[list[Any], str]:
    """(demands as plain data, the heaviest first; or none and why)."""
    assert variant.lowered is not None
    work: dict[str, float] = {}
    rows: dict[str, Counter[int]] = {}
    products: dict[str, list[Any]] = {}
    calls = tuning.sizes.total()
    for sizes, count in tuning.sizes.items():
        for site in products_of(variant.lowered.function, dict(sizes), threads):
            m, n, k = site.product[3:6]
            work[site.key] = work.get(site.key, 0.0) + 2.0 * m * n * k * site.times * count
            rows.setdefault(site.key, Counter())[m] += count * site.times
            products[site.key] = site.product
    if not work:
        return [], "there is no product of matrices in it, or its size is not known from the arguments"
    each_ns = sum(work.values()) / calls / (_PEAK * threads)
    if each_ns < _SHARE * call_ns:
        return [], f"products take about {each_ns / call_ns:.0%} of its time"
    ordered = sorted(work, key=lambda key: -work[key])
    kept = [key for key in ordered if key not in tuning.from_store]
    if not kept:
        return [], "its products were measured earlier"
    return [[products[key], [[m, c] for m, c in sorted(rows[key].items())], None] for key in kept], ""


def _measured(tiers: Tiers, variant: Variant, tuning: Tuning) -> None:
    """Take measurements in, and ask for code."""
    job = tuning.job
    tiers.builder().poll()
    if not job.finished:
        return
    if job.state == "failed":
        if job.dropped:
            tuning.state, tuning.job = "watching", None
            return
        tuning.end(f"not measured: {job.reason}")
        events().add("rejected", region=tiers.name, reason=tuning.reason)
        return
    answer = tiers.builder().measured(job)
    if answer["again"]:
        tuning.state, tuning.job = "watching", None
        return
    tuning.spent_ms += answer["spent_ms"]
    _spent_ms[0] += answer["spent_ms"]
    tuning.results = answer["tuned"]
    if not tuning.results:
        tuning.end("the budget was used up before anything was measured")
        return
    if not all(told["quiet"] for told in tuning.results):
        tuning.tries += 1
        if tuning.tries >= MAX_TRIES:
            tuning.end("other work had the processors whenever it was measured")
            return
        assert variant.entry is not None
        tuning.state, tuning.job, tuning.after_ns = "watching", None, 2.0 * variant.entry.time_ns
        return
    assert variant.lowered is not None
    assert variant.region is not None
    found = {told["key"]: told["choice"] for told in tuning.results if _is_changed(told)}
    found |= {key: told["choice"] for key, told in tuning.from_store.items() if _is_changed(told)}
    sites = products_of(variant.lowered.function, dict(next(iter(tuning.sizes))), _threads(tiers.settings()))
    choices = _agreeing(sites, found)
    gain = max((told["gain"] for told in tuning.results), default=1.0)
    text = f"the largest gain is {gain - 1:.1%}"
    events().add("tuned", region=tiers.name, total_ms=answer["spent_ms"], text=text, results=len(tuning.results))
    if choices == tuning.choices:
        tuning.end("what is done already is as fast as anything that was tried")
        return
    tuning.choices = choices
    tuning.ticket = tiers.builder().submit(variant.region, variant.lowered, {}, hints=variant.hints, choices=choices)
    tuning.state = "compiling"


def _compiled(tiers: Tiers, variant: Variant, tuning: Tuning, dropped: str) -> None:
    """Put tuned code in place."""
    assert tuning.ticket is not None
    outcome = tuning.ticket.poll()
    if outcome is None:
        return
    if outcome == dropped:
        tuning.state, tuning.ticket = "watching", None
        return
    if isinstance(outcome, str):
        tuning.end(f"the code was not accepted: {outcome}")
        events().add("rejected", region=tiers.name, reason=tuning.reason)
        return
    before = variant.entry, variant.built
    reason = tiers.replace(variant, outcome)
    if reason is not None:
        tuning.end(reason)
        return
    variant.stages_ms["tune"] = tuning.spent_ms + sum(outcome.times_ms.values())
    tuning.tunes += 1
    tuning.state, tuning.ticket, tuning.before = "trial", None, before


def _tried(tiers: Tiers, variant: Variant, tuning: Tuning, work: int, elapsed: int) -> None:
    """Compare calls with the tuned code and those of before, of the same class of work; put the old code back if it was
    faster. What is measured by itself is not all that counts in a program.
    """
    old = tuning.times.get(work)
    if old is None or len(old) < SEEN:
        if sum(map(len, tuning.trial.values())) == 0 and variant.entry is not None:
            tuning.after_ns += elapsed
            if tuning.after_ns > GIVE_UP_NS:
                tuning.end()
        return
    times = tuning.trial.setdefault(work, deque(maxlen=TRIAL))
    times.append(elapsed)
    if len(times) < TRIAL:
        return
    now, then = sorted(times)[TRIAL // 2], sorted(old)[len(old) // 2]
    assert tuning.before is not None
    if now <= SLOWER * then:
        tuning.end()
        return
    entry, built = tuning.before
    tiers.restore(variant, entry, built)
    reason = f"calls took {now / 1e3:.0f} us with it and {then / 1e3:.0f} us before: the code of before is back"
    tuning.choices = {}
    tuning.end(reason)
    events().add("rejected", region=tiers.name, reason=f"tuned products: {reason}")


def pending(variant: Variant) -> bool:
    """Is something to come of what was asked for?"""
    return variant.tuning.state in ("measuring", "compiling")


def wait(tiers: Tiers, variant: Variant, dropped: str, end: float | None) -> bool:
    """Wait for it until `end` (of `time.monotonic`; None: as long as it takes); false when the time was up first."""
    tuning = variant.tuning
    while pending(variant) and variant.entry is not None:
        left = None if end is None else max(0.0, end - time.monotonic())
        if tuning.state == "measuring":
            if not tiers.builder().wait_for(tuning.job, left):
                return False
            _measured(tiers, variant, tuning)
        else:
            assert tuning.ticket is not None
            if not tuning.ticket.wait(left):
                return False
            _compiled(tiers, variant, tuning, dropped)
    return True
