"""`tiercel demo`: the main job, with its numbers.

In: how many calls. Out: for each model a table of latencies by shape, the undecorated NumPy code beside the tiers of
Tiercel, and what happened inside; then what `explain()` says.

Batch and length are new in every call. Each call is made with the undecorated code and at every level, in changing
order, and compared with the same model in float64: if a relative error reaches `TOLERANCE`, the demo says so and
fails. Ratios are medians over the calls of the ratio within one call, so a busy machine disturbs them little.

At level O2 calls run interpreted until the function is hot and its code is there; these first calls are counted apart,
because how many they are depends on how busy the machine is. A program never waits for the compiler; the demo does
after half of its calls, so that there is something to show.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

import tiercel as tc
from tiercel.api import state_of
from tiercel.hotpath.events import events
from tiercel.tools import demo_models
from tiercel.tools.demo_models import HIDDEN_SIZE, INPUT_SIZE, Model
from tiercel.vm.memory import measure
from tiercel.vm.render import columns, format_count, format_time

__all__ = ["BATCHES", "LENGTHS", "TIERS", "TOLERANCE", "Call", "ModelResult", "add_arguments", "run", "run_demo"]

BATCHES: Final = (8, 32)
LENGTHS: Final = (10, 30)
# Relative error (L2 norm) of float32 against float64 that no call may reach.
TOLERANCE: Final = 1e-5
BASELINE: Final = "NumPy"
# Levels that are shown, a pair of columns each.
TIERS: Final = ("O0", "O2")
# Calls that are made while memory is measured: enough to pass every stage of the profile's sampling.
_MEASURED_CALLS: Final = 10
_CONTEXT_LIMIT: Final = 2 << 20
# The demo takes a few seconds; on a machine that is busy with other things it makes fewer calls rather than wait.
_BUDGET_S: Final = 40.0


@dataclass(frozen=True, slots=True)
class Call:
    """One call: shape, seconds by level (and of the baseline), largest relative error by level, how O2 ran it."""

    batch: int
    length: int
    seconds: dict[str, float]
    errors: dict[str, float]
    compiled: bool

    def has(self, tier: str) -> bool:
        """Whether the time counts for a level: calls at O2 that still ran interpreted say nothing about it."""
        return tier != "O2" or self.compiled

    def ratio(self, tier: str) -> float:
        """Time of a tier, as a multiple of the baseline's."""
        return self.seconds[tier] / self.seconds[BASELINE]


@dataclass(slots=True)
class ModelResult:
    """What was seen of one model: its calls, and afterwards its counters and its report."""

    name: str
    form: str
    calls: list[Call] = field(default_factory=list)
    stats: dict[str, int] = field(default_factory=dict)
    learned: dict[str, str] = field(default_factory=dict)
    kernels: list[dict[str, Any]] = field(default_factory=list)
    unmet: str = ""
    report: str = ""
    events: list[tuple[int, str]] = field(default_factory=list)
    """What the compiler said, each with the number of the call that it was said in."""

    def median_ratio(self, tier: str) -> float | None:
        """Median of the level's time as a multiple of the baseline's; None if no call counts for it."""
        ratios = [c.ratio(tier) for c in self.calls if c.has(tier)]
        return statistics.median(ratios) if ratios else None

    def worst(self, tier: str) -> tuple[int, Call]:
        """The slowest call of a tier, and its number from 1."""
        number, call = max(enumerate(self.calls, 1), key=lambda item: item[1].seconds[tier])
        return number, call

    def largest_error(self) -> float:
        """Over all calls and tiers."""
        return max(max(c.errors.values()) for c in self.calls)


@dataclass(slots=True)
class DemoResult:
    """The whole demo: the models, bytes of the machine's context, seconds in all, calls that were asked for."""

    models: list[ModelResult]
    context_bytes: int
    seconds: float
    seed: int
    wanted: int

    @property
    def is_right(self) -> bool:
        """Whether every call agreed with the reference."""
        return all(m.largest_error() < TOLERANCE for m in self.models)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--calls", type=_positive, default=60, metavar="N", help="calls of each model (default: 60)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of shapes, inputs and weights (default: 1)")
    parser.add_argument("--json", action="store_true", help="every call, counters and memory as one JSON object")
    parser.add_argument("--brief", action="store_true", help="leave out the reports of explain()")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {value}")
    return value


def run(options: argparse.Namespace) -> int:
    """Run the demo and print. Returns 1 if a call disagrees with the reference."""
    bar = _Bar(sys.stderr) if sys.stderr.isatty() and not options.json else None
    result = run_demo(options.calls, options.seed, bar)
    if options.json:
        print(json.dumps(_plain(result), indent=2))
    else:
        print("\n".join(_text(result, brief=options.brief)))
    return 0 if result.is_right else 1


class _Bar:
    """A line that shows how far a loop has come."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def show(self, done: int, total: int, what: str) -> None:
        width = 30
        filled = done * width // total
        end = "\r\033[K" if done == total else ""
        self.file.write(f"\r\033[K{what}  {'█' * filled}{'░' * (width - filled)}  {done} of {total}{end}")
        self.file.flush()


# ---- running ---------------------------------------------------------------------------------------------------------


def run_demo(calls: int, seed: int = 1, bar: Any = None, budget_s: float = _BUDGET_S) -> DemoResult:
    """Run the models.

    Args:
        calls: of each model.
        seed: of shapes, inputs and weights.
        bar: an object with `show(done, total, what)`, told after each call; None for none.
        budget_s: a model that has used up its share of this makes no further calls (but at least one).
    """
    began = time.perf_counter()
    weights = demo_models.make_weights(seed)
    rng = np.random.default_rng(seed)
    _import_everything()
    defined, definition_bytes = measure(demo_models.define)
    models = demo_models.make_models(defined, weights)
    first = [_inputs(rng) for _ in range(_MEASURED_CALLS)]
    results = [ModelResult(m.name, m.form) for m in models]
    with tc.context(level="O0"):
        _, call_bytes = measure(lambda: _discard(m.call(*inputs) for m in models for inputs in first))
    for model, result in zip(models, results, strict=True):
        share = budget_s / len(models)
        model_began = time.perf_counter()
        waited, seen = False, 0
        for number in range(calls):
            spent = time.perf_counter() - model_began
            if not waited and (number >= calls // 2 or spent > 0.4 * share):
                model.jitted.wait(0.3 * share)
                waited = True
            result.calls.append(_call(model, number, *_inputs(rng)))
            for event in events().list(after=seen):
                seen = event.number
                if event.fields.get("region") == state_of(model.jitted).name:
                    result.events.append((number + 1, str(event)))
            if bar is not None:
                bar.show(number + 1, calls, model.name)
            if time.perf_counter() - model_began > share:
                break
    for model, result in zip(models, results, strict=True):
        report = model.jitted.explain()
        result.stats = model.jitted.stats()
        result.learned = dict(report.functions[0].signatures[0].arguments)
        result.kernels = [asdict(k) for k in report.functions[0].kernels]
        result.unmet = report.functions[0].unmet
        result.report = str(report)
    return DemoResult(results, definition_bytes + call_bytes, time.perf_counter() - began, seed, calls)


def _import_everything() -> None:
    """Jit and run a copy of the models, so that imports and tables of packages do not count as context."""
    spec = importlib.util.spec_from_file_location("tiercel.tools._demo_copy", demo_models.__file__)
    assert spec is not None
    assert spec.loader is not None
    # Of a copy, because what was captured is kept per code object.
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    for model in copy.make_models(copy.define(), copy.make_weights()):
        model.call(*_inputs(np.random.default_rng(0), batch=1, length=1))


def _discard(results: Iterator[Any]) -> None:
    for _ in results:
        pass


def _inputs(rng: np.random.Generator, batch: int | None = None, length: int | None = None) -> tuple[Any, Any, Any]:
    batch = int(rng.integers(BATCHES[0], BATCHES[1] + 1)) if batch is None else batch
    length = int(rng.integers(LENGTHS[0], LENGTHS[1] + 1)) if length is None else length
    shapes = ((batch, length, INPUT_SIZE), (batch, HIDDEN_SIZE), (batch, HIDDEN_SIZE))
    x, h, c = (rng.standard_normal(s, dtype=np.float32) for s in shapes)
    return x, h, c


def _call(model: Model, number: int, x: Any, h: Any, c: Any) -> Call:
    names = [BASELINE, *TIERS]
    turn = number % len(names)
    want = model.reference(x, h, c)
    seconds, errors = {}, {}
    compiled_before = model.jitted.stats()["compiled_calls"]
    for name in names[turn:] + names[:turn]:
        function = model.plain if name == BASELINE else model.call
        with tc.context(level="O0" if name == BASELINE else name):
            before = time.perf_counter()
            got = function(x, h, c)
            seconds[name] = time.perf_counter() - before
        if name != BASELINE:
            errors[name] = max(_error(a, b) for a, b in zip(got, want, strict=True))
    compiled = model.jitted.stats()["compiled_calls"] > compiled_before
    return Call(x.shape[0], x.shape[1], seconds, errors, compiled)


def _error(got: Any, want: Any) -> float:
    """Relative error in the L2 norm; infinite if there is a NaN or the shape is another."""
    got = np.asarray(got)
    if got.shape != want.shape:
        return float("inf")
    error = float(np.linalg.norm(got - want) / np.linalg.norm(want))
    return error if error == error else float("inf")


# ---- telling ---------------------------------------------------------------------------------------------------------


def _plain(result: DemoResult) -> dict[str, Any]:
    models = []
    for m in result.models:
        one = asdict(m)
        one["median_ratio"] = {tier: m.median_ratio(tier) for tier in TIERS}
        one["largest_error"] = m.largest_error()
        models.append(one)
    return {
        "right": result.is_right,
        "seed": result.seed,
        "tiers": [BASELINE, *TIERS],
        "context_bytes": result.context_bytes,
        "seconds": result.seconds,
        "models": models,
    }


def _text(result: DemoResult, *, brief: bool) -> list[str]:
    counts = f"{len(result.models)} models, {result.wanted} calls each, input {INPUT_SIZE}, hidden {HIDDEN_SIZE}"
    bounds = f"batch {BATCHES[0]} to {BATCHES[1]} and length {LENGTHS[0]} to {LENGTHS[1]} new in every call"
    context = f"{result.context_bytes / 2**20:.2f} MiB"
    state = "within" if result.context_bytes < _CONTEXT_LIMIT else "ABOVE"
    out = [
        f"Tiercel {tc.__version__}: {counts}; {bounds}.",
        f"{BASELINE} is the same code undecorated, O0 interpreted, O2 compiled (calls from when the code was there).",
        "Times are medians, ratios medians of the ratio within one call.",
    ]
    for model in result.models:
        out += ["", f"{model.name} ({model.form})", "", *_table(model), "", *_inside(model)]
        if len(model.calls) < result.wanted:
            out += ["", f"  stopped after {len(model.calls)} of {result.wanted} calls: the machine is slow or busy"]
    out += [
        "",
        f"Machine context: {context} for all of this, {state} the limit of 2 MiB.",
        f"  What decorating and {_MEASURED_CALLS} calls of each model left allocated (tracemalloc): programs, decoded",
        "  code, profile. Not counted: Python, NumPy, weights, and the code of packages.",
    ]
    wrong = [m for m in result.models if m.largest_error() >= TOLERANCE]
    if wrong:
        out += [f"WRONG: {m.name} has a relative error of {m.largest_error():.1e} against float64" for m in wrong]
    else:
        checked = sum(len(m.calls) for m in result.models)
        worst = max(m.largest_error() for m in result.models)
        out.append(f"All {checked} calls agree with float64 NumPy: relative error at most {worst:.1e}.")
    if not brief:
        for model in result.models:
            out += ["", "-" * 100, model.report]
    out += ["", f"{result.seconds:.1f} s in all."]
    return out


def _table(model: ModelResult) -> list[str]:
    heads = ["batch", "length", "calls", BASELINE]
    for tier in TIERS:
        heads += [tier, f"{tier} / {BASELINE}"]
    rows = [heads]
    for (batch_low, batch_high), (length_low, length_high) in _buckets():
        inside = [
            c for c in model.calls if batch_low <= c.batch <= batch_high and length_low <= c.length <= length_high
        ]
        if inside:
            rows.append([f"{batch_low}..{batch_high}", f"{length_low}..{length_high}", *_cells(inside)])
    rows.append(["all", "all", *_cells(model.calls)])
    return columns(rows, right=range(2, len(heads)))


def _cells(calls: Sequence[Call]) -> list[str]:
    out = [str(len(calls)), _median_time(calls, BASELINE)]
    for tier in TIERS:
        counted = [c for c in calls if c.has(tier)]
        if counted:
            out += [_median_time(counted, tier), f"{statistics.median(c.ratio(tier) for c in counted):.2f}"]
        else:
            out += ["-", "-"]
    return out


def _median_time(calls: Sequence[Call], tier: str) -> str:
    return format_time(1e9 * statistics.median(c.seconds[tier] for c in calls))


def _buckets() -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    for batch in _split(BATCHES, 2):
        for length in _split(LENGTHS, 3):
            yield batch, length


def _split(bounds: tuple[int, int], parts: int) -> list[tuple[int, int]]:
    low, high = bounds
    edges = [low + (high + 1 - low) * i // parts for i in range(parts + 1)]
    return [(a, b - 1) for a, b in itertools.pairwise(edges)]


def _inside(model: ModelResult) -> list[str]:
    stats = model.stats
    rows = []
    for tier in TIERS:
        number, call = model.worst(tier)
        shape = f"batch {call.batch}, length {call.length}"
        rows.append([f"worst call ({tier})", f"{format_time(1e9 * call.seconds[tier])}, call {number}, {shape}"])
    calls = max(stats["interpreted_calls"], 1)
    each = format_count(round(stats["instructions"] / calls))
    rows += [
        ["instructions", f"{format_count(stats['instructions'])} executed, {each} a call"],
        ["loop passes", format_count(stats["loop_iterations"])],
        ["run as Python", f"{format_count(stats['python_calls'])} calls, {format_count(stats['python_lines'])} lines"],
        ["compiled", _compiled(model)],
    ]
    rows += [["", text] for text in _stages(model)]
    rows += [[f"call {number}", text] for number, text in model.events]
    # What changes from call to call is what there was to learn.
    seen = [f"{name} {text}" for name, text in model.learned.items() if ".." in text]
    rows += [["learned" if i == 0 else "", text] for i, text in enumerate(seen)]
    return columns(rows)


def _compiled(model: ModelResult) -> str:
    first = next((i for i, c in enumerate(model.calls, 1) if c.compiled), None)
    if first is None:
        return f"no: {model.unmet}" if model.unmet else "no"
    count = sum(c.compiled for c in model.calls)
    stats = model.stats
    kept = sum(k["state"] == "compiled" and k["from_cache"] for k in model.kernels)
    cached = f", {kept} from the cache" if kept else ""
    return (
        f"from call {first} on, {count} calls: {stats['compiles']} compiled{cached}, {stats['kernels']} in use, "
        f"{stats['misses']} misses"
    )


def _stages(model: ModelResult) -> list[str]:
    """What each kernel took to make."""
    out = []
    for kernel in model.kernels:
        stages: dict[str, float] = kernel["stages_ms"]
        if kernel["calls"] and stages:
            parts = ", ".join(f"{stage} {ms:.0f}" for stage, ms in stages.items() if ms >= 0.5)
            kept = ", from the cache" if kernel["from_cache"] else ""
            out.append(f"made in {format_time(1e6 * sum(stages.values()))} beside the calls (ms: {parts}{kept})")
    return out
