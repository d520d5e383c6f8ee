"""Loops compiled on their own: entered in the middle of one call, in functions that cannot be compiled as a whole.

Each function is run undecorated and jitted on equal arguments; compared are results, kinds, what is the same object as
what, contents of arguments, exceptions and warnings. That compiled code made passes is read from its counters.
"""

from __future__ import annotations

import copy
import gc
import os
import signal
import threading
import time
import warnings
import weakref
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import tiercel as tc
from tests.vm.inline import InlineBuilder
from tiercel.api import function as function_module
from tiercel.hotpath.events import events
from tiercel.vm import regions

LOG: list[Any] = []
GLOBAL_SCALE = np.float32(0.5)
SHARED_ARRAY = np.ones(4, np.float32)
HOT = tc.Policy(hot_time_ms=0.0, hot_total_ms=0.0)


@pytest.fixture(autouse=True)
def inline(monkeypatch):
    """Compile in this process at once, enter however little is left, and make short runs."""
    builder = InlineBuilder()
    monkeypatch.setattr(function_module, "builder", lambda: builder)
    monkeypatch.setattr(regions, "WORTH_NS", 0)
    monkeypatch.setattr(regions, "RUN_NS", 40_000)
    monkeypatch.setattr(regions, "POLL_NS", 10_000)
    LOG.clear()
    return builder


def random(*shape, dtype=np.float32):
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * 0.5).astype(dtype)


def fresh(function):
    """The same function with code of its own: what is compiled belongs to the code."""
    made = FunctionType(function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__,
                        function.__closure__)  # fmt: skip
    made.__qualname__ = function.__qualname__
    return made


def jit(function, policy=HOT, **settings):
    return tc.jit(fresh(function), policy=policy, **settings)


def loops_of(jitted):
    return jitted.__tiercel__.regions()


def passes_of(jitted):
    return sum(r.passes for r in loops_of(jitted))


def reasons_of(jitted):
    return [v.reason for r in loops_of(jitted) for v in r.variants if v.reason]


def outcome(function, arguments):
    """What a call gives: its result, or its exception, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result: Any = function(*arguments)
        except Exception as error:  # noqa: BLE001 - compared
            result = (type(error), str(error))
    return result, [(w.category, str(w.message), w.lineno) for w in caught]


def numbered(value, known):
    """The values of a result in order, each with the number of the object it was first met as."""
    if isinstance(value, list | tuple):
        yield ("begin", type(value), len(value), known.setdefault(id(value), len(known)) if type(value) is list else 0)
        for item in value:
            yield from numbered(item, known)
    elif isinstance(value, dict):
        yield ("begin", dict, tuple(value), 0)
        for item in value.values():
            yield from numbered(item, known)
    else:
        yield ("value", value, known.setdefault(id(value), len(known)) if isinstance(value, np.ndarray) else 0)


def assert_same(got, want):
    one, other = list(numbered(got, {})), list(numbered(want, {}))
    assert len(one) == len(other), (got, want)
    for a, b in zip(one, other, strict=True):
        if a[0] == "begin":
            assert a == b
            continue
        assert type(a[1]) is type(b[1]), (a[1], b[1])
        assert a[2] == b[2], "other objects are the same"
        if isinstance(a[1], np.ndarray | np.generic):
            assert a[1].dtype == b[1].dtype
            np.testing.assert_allclose(a[1], b[1], rtol=2e-5, atol=1e-6)
        elif isinstance(a[1], float):
            assert a[1] == pytest.approx(b[1], rel=1e-6)
        elif type(a[1]) is not Layer:
            assert a[1] == b[1]


def check(function, *arguments, calls=2, passes=True, policy=HOT, **settings):
    """Compare some calls, and whether compiled code made passes; returns the jitted function."""
    jitted = jit(function, policy, **settings)
    for _ in range(calls):
        mine, theirs = copy.deepcopy(arguments), copy.deepcopy(arguments)
        LOG.clear()
        (got, warned), logged = outcome(jitted, mine), [*LOG]
        LOG.clear()
        want, expected = outcome(function, theirs)
        assert_same((got, mine), (want, theirs))
        assert warned == expected
        assert logged == LOG
    if passes is not None:
        assert (passes_of(jitted) > 0) is passes, [
            (r.name, r.unmet, r.reason, reasons_of(jitted)) for r in loops_of(jitted)
        ]
    return jitted


# ---- what is compiled ------------------------------------------------------------------------------------------------


def logs(x, n):
    LOG.append(n)
    for t in range(n):
        x = x * 0.5 + t
    LOG.append("after")
    return x


def after_the_loop(x, n):
    LOG.append(n)
    for t in range(n):
        y = x + t
        x = y * 0.5
    return x, y, t


def collects(x, n):
    LOG.append(n)
    outs, sums = [], []
    for _ in range(n):
        x = x * 0.9 + 1
        outs.append(x)
        sums.append(x.sum())
    return outs, sums, x


def collects_before(x, y, n):
    LOG.append(n)
    history, others = [], []
    for _ in range(n):
        history.append(x)
        others.append(y.sum())
        x = x * 0.9 + 1
        y = x - 1
    return history, x, y, others


def lags(x, n):
    LOG.append(n)
    for _ in range(n):
        older = x
        oldest = older
        x = x * 0.9 + 1
    return x, older, oldest


def keeps_elements(x, n):
    LOG.append(n)
    outs = []
    for _ in range(n):
        older = x
        x = x * 0.9 + 1
        outs.append(x)
    outs[-2][0] = 100
    return outs, x, older


def goes_on(x, n):
    LOG.append(n)
    outs = [x]
    for _ in range(n):
        x = x + 1
        outs.append(x)
    other = outs
    outs.append(x)
    return other, outs


def writes(n):
    LOG.append(n)
    out = np.zeros(n, np.float32)
    value = np.float32(1)
    for t in range(n):
        value = value * 0.5 + 1
        out[t] = value
    return out, value


def adds_in_place(x, y, n):
    LOG.append(n)
    total = np.zeros_like(x)
    alias = total
    for _ in range(n):
        total += x * y
    return total, alias


def stepped(x, n):
    LOG.append(n)
    for t in range(n, 3, -2):
        x = x + t
    for t in range(-5, n, 3):
        x = x - t
    return x, t


def rows(xs, h):
    LOG.append(len(xs))
    for row in xs:
        h = h * 0.5 + row
    return h, row


def enumerated(xs, h):
    LOG.append(0)
    for i, row in enumerate(xs, 3):
        h = h * 0.5 + row * i
    return h, i


def zipped(xs, ys, h):
    LOG.append(0)
    for row, other in zip(xs, ys):  # noqa: B905
        h = h * 0.5 + row - other
    return h


def nested(xs, h, n):
    LOG.append(0)
    for k in range(n):
        for i, row in enumerate(zip(xs, range(100))):  # noqa: B905
            h = h * 0.5 + row[0] * (i + row[1]) - k
    return h


def while_number(x, n):
    LOG.append(0)
    i = 0
    while i < n:
        x = x * 0.5 + i
        i += 1
    return x, i


def while_data(x):
    LOG.append(0)
    count = 0
    while x.sum() > 1e-3:
        x = x * 0.95
        count += 1
    return x, count


def while_true(x, n):
    LOG.append(0)
    i = 0
    while True:
        y = x * 0.5
        x = y + i
        i += 1
        if i == n:
            break
    else:
        x = x - 1000
    return x, y, i


def while_two_tests(x, n):
    LOG.append(0)
    made = 0
    while made < n and x.sum() < 1e6:
        older = x
        x = x * 0.5 + 1
        made += 1
    return x, made, older


def breaks_first(x, n, limit):
    LOG.append(0)
    y = x
    for _ in range(n):
        if x.sum() > limit:
            break
        y = x
        x = x + 1
    return x, y


def breaks(x, n, limit):
    LOG.append(0)
    for t in range(n):  # noqa: B007
        x = x + 1
        if x.sum() > limit:
            break
    return x, t


def with_else(x, n):
    LOG.append(0)
    for t in range(n):
        x = x + t
    else:  # noqa: PLW0120
        x = x * 2
    return x, t


def first_is_none(xs):
    LOG.append(0)
    h = None
    for t in range(len(xs)):
        h = xs[t] if h is None else h * 0.5 + xs[t]
    return h


def starts_as_int(xs):
    LOG.append(0)
    total = 0
    for t in range(xs.shape[0]):
        total = total + xs[t].sum()
    return total


def guarded(x, n):
    try:
        for t in range(n):
            last = x
            x = x + t
        LOG.append("whole")
        raise ValueError("after")
    except ValueError:
        return x, last, t


def in_handler(x, n):
    try:
        raise ValueError("before")
    except ValueError as error:
        for t in range(n):
            x = x + t
        LOG.append(str(error))
    return x


def helper_step(x, w):
    return np.maximum(x @ w, 0) + x


def calls_helper(x, w, n):
    LOG.append(0)
    for _ in range(n):
        x = helper_step(x, w) * 0.5
    return x


def helper_with_loop(x, n):
    LOG.append("helper")
    for _ in range(n):
        x = x * 0.5 + 1
    return x


def loop_in_helper(x, n):
    LOG.append(0)
    return helper_with_loop(x, n) + 1


class Layer:
    """A method with a loop, and attributes that it reads."""

    def __init__(self):
        self.weight = random(4, 4)
        self.bias = 0.25
        self.seen = 0

    def __deepcopy__(self, memo):
        made = Layer()
        made.seen = self.seen
        return made

    def run(self, x, n):
        self.seen += n
        for _ in range(n):
            x = np.maximum(x @ self.weight, 0) * self.bias + x * 0.5
        self.seen += 1
        return x


def through_object(layer, x, n):
    return layer.run(x, n), layer.seen


def swaps(a, b, n):
    LOG.append(0)
    for _ in range(n):
        a, b = b, a + b * 0.5
    return a, b


def two_names(x, n):
    LOG.append(0)
    for _ in range(n):
        x = x + 1
        y = x
    return x, y


def branches(x, n):
    LOG.append(0)
    for _ in range(n):
        if x.sum() > 3:
            x = x - 2
        else:
            x = x + 0.7
    return x


def dictionary(p, n):
    LOG.append(0)
    x = p["x"]
    for _ in range(n):
        x = x * p["scale"] + p["y"][0]
    return x


def floats(n):
    LOG.append(0)
    total, step = 0.0, 0.5
    for _ in range(n):
        total = total + step
        step = step * 0.99
    return total, step


ARRAY = random(4)
CASES = {
    "logs": (logs, ARRAY, 60),
    "after_the_loop": (after_the_loop, ARRAY, 60),
    "collects": (collects, random(2, 3), 60),
    "collects_before": (collects_before, random(2, 3), random(3), 60),
    "lags": (lags, ARRAY, 60),
    "goes_on": (goes_on, ARRAY, 60),
    "writes": (writes, 60),
    "adds_in_place": (adds_in_place, ARRAY, random(4) + 1, 60),
    "stepped": (stepped, ARRAY, 160),
    "rows": (rows, random(60, 4), ARRAY),
    "enumerated": (enumerated, random(60, 4), ARRAY),
    "zipped": (zipped, random(60, 4), random(55, 4), ARRAY),
    "nested": (nested, random(20, 4), ARRAY, 20),
    "while_number": (while_number, ARRAY, 60),
    "while_data": (while_data, np.abs(ARRAY)),
    "while_true": (while_true, ARRAY, 60),
    "while_two_tests": (while_two_tests, ARRAY, 60),
    "breaks_first": (breaks_first, ARRAY, 100, 200.0),
    "breaks_first_at_once": (breaks_first, ARRAY, 100, 25.0),
    "breaks": (breaks, ARRAY, 100, 200.0),
    "never_breaks": (breaks, ARRAY, 100, 1e9),
    "with_else": (with_else, ARRAY, 60),
    "first_is_none": (first_is_none, random(60, 3)),
    "starts_as_int": (starts_as_int, random(60, 3)),
    "guarded": (guarded, ARRAY, 60),
    "in_handler": (in_handler, ARRAY, 60),
    "calls_helper": (calls_helper, random(3, 4), random(4, 4), 60),
    "loop_in_helper": (loop_in_helper, ARRAY, 60),
    "through_object": (through_object, Layer(), random(3, 4), 60),
    "swaps": (swaps, ARRAY, random(4) + 1, 60),
    "two_names": (two_names, ARRAY, 60),
    "branches": (branches, ARRAY, 60),
    "dictionary": (dictionary, {"x": ARRAY, "y": (random(4), 1), "scale": np.float32(0.5)}, 60),
    "floats": (floats, 60),
}


@pytest.mark.parametrize("name", CASES)
def test_loop_makes_the_passes_that_are_left(name):
    function, *arguments = CASES[name]
    check(function, *arguments)


def test_elements_that_variables_hold_stay_the_same_objects():
    check(keeps_elements, ARRAY, 60, passes=False)


def test_one_long_call_is_sped_up_while_it_runs():
    """The code comes in the middle of the first call, and makes what is left of it."""
    jitted = jit(logs)
    got = jitted(ARRAY, 500)
    np.testing.assert_allclose(got, logs(ARRAY, 500), rtol=1e-5)
    (region,) = loops_of(jitted)
    assert 400 < region.passes < 500
    stats = jitted.stats()
    assert (stats["calls"], stats["loop_iterations"]) == (1, 500)
    assert stats["compiled_iterations"] == region.passes
    assert stats["loop_runs"] > 1


def test_a_later_call_enters_at_once():
    jitted = jit(logs)
    jitted(ARRAY, 60)
    (region,) = loops_of(jitted)
    before = region.passes
    jitted(ARRAY, 60)
    assert region.passes == before + 60


def test_the_compile_is_never_waited_for(monkeypatch):
    builder = InlineBuilder(delay=3)
    monkeypatch.setattr(function_module, "builder", lambda: builder)
    check(logs, ARRAY, 400)


# ---- exceptions, warnings, signals -----------------------------------------------------------------------------------


def divides(x, n, bad):
    LOG.append(0)
    total = x
    for t in range(n):
        total = total + x / (t - bad)
    return total


def test_a_warning_in_the_middle_is_the_interpreters_and_the_rest_is_compiled():
    jitted = check(divides, np.abs(ARRAY) + 1, 90, 70)
    (region,) = loops_of(jitted)
    assert region.variants[-1].stopped > 0
    assert region.passes > 110  # of 180
    assert any(line.kind == "fallback" for line in jitted.explain().ledger)


def raises(x, n, bad):
    done = 0
    try:
        for t in range(n):
            x = x + 1
            if t == bad:
                raise KeyError(t)
            done = t
    except KeyError as error:
        LOG.append((error.args, t, done))
        return x, t, done
    return x, t, done


@pytest.mark.parametrize("bad", [3, 57, 99, 1000])
def test_raise_in_the_middle(bad):
    check(raises, ARRAY, 100, bad, passes=None if bad == 3 else True)


def index_error(x, rows, n):
    LOG.append(0)
    h = x
    for t in range(n):
        h = h * 0.5 + rows[t]
    return h


def test_index_error_in_the_middle():
    jitted = check(index_error, ARRAY, random(80, 4), 100)
    with pytest.raises(IndexError) as caught:
        jitted(ARRAY, random(80, 4), 100)
    lines = [entry.lineno for entry in caught.traceback]
    assert lines[-1] == index_error.__code__.co_firstlineno + 3


def errstate_raises(x, n, bad):
    LOG.append(0)
    with np.errstate(divide="raise"):
        for t in range(n):
            x = x + 1 / np.float32(t - bad)
    return x


def test_error_state_in_the_middle():
    check(errstate_raises, ARRAY, 90, 70, passes=None)


def endless(x, started):
    started.set()
    while True:
        x = x * 0.5 + 1
        if x.sum() < -1:
            break
    return x


def endless_range(x, started):
    started.set()
    t = 0
    for t in range(10**12):
        x = x * 0.5 + t
    return x, t


@pytest.fixture
def interruptible():
    """Python's handler of SIGINT, which shells take from what they start in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("function", [endless, endless_range])
def test_ctrl_c_in_a_compiled_loop(function, monkeypatch):
    """A real SIGINT strikes while nearly all time is spent in machine code."""
    monkeypatch.setattr(regions, "RUN_NS", 5_000_000)
    jitted = jit(function)
    started = threading.Event()
    struck: list[float] = []

    def strike():
        started.wait()
        while not passes_of(jitted):
            time.sleep(0.01)
        time.sleep(0.05)
        struck.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=strike)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        jitted(ARRAY, started)
    assert time.perf_counter() - struck[0] < 5  # it came, and not at the end
    thread.join()
    assert [entry.name for entry in caught.traceback if not entry.path.name.startswith("test_regions")] == []
    assert passes_of(jitted) > 0


def counts_until_struck(x, started, seen):
    t = 0
    try:
        started.set()
        for t in range(10**12):  # noqa: B007
            x = x + 1
    except KeyboardInterrupt:
        seen.append((t, x))
    return x


@pytest.mark.usefixtures("interruptible")
def test_the_state_is_right_when_a_signal_strikes():
    jitted = jit(counts_until_struck)
    seen: list[Any] = []
    started = threading.Event()

    def strike():
        started.wait()
        while not passes_of(jitted):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=strike)
    thread.start()
    jitted(np.zeros(3), started, seen)
    thread.join()
    ((t, x),) = seen
    assert x[0] in (t, t + 1)  # within the pass it struck in, like Python
    assert t > 10


# ---- who else looks at it --------------------------------------------------------------------------------------------


def test_an_iterator_somebody_holds_is_left_alone():
    def shares_iterator(x, n):
        LOG.append(0)
        numbers = iter(range(n))
        for t in numbers:
            x = x + t
            if t == n // 2:
                break
        return x, list(numbers)

    check(shares_iterator, ARRAY, 60, passes=False)


def test_a_list_somebody_else_reads_in_the_loop_is_left_alone():
    def reads_other_name(x, n):
        LOG.append(0)
        outs = []
        holder = (outs,)
        for _ in range(n):
            outs.append(x.sum())
            x = x + len(holder[0])
        return x

    check(reads_other_name, ARRAY, 60, passes=False)


def test_a_list_that_is_reached_otherwise_at_a_later_call_is_left_alone():
    def two_lists(a, b, x, n):
        LOG.append(0)
        for _ in range(n):
            a.append(x.sum())
            x = x + b[0].sum()
        return x

    jitted = check(two_lists, [], [ARRAY], ARRAY, 60)
    before = passes_of(jitted)
    both, other = [ARRAY], [ARRAY]
    assert_same((jitted(both, both, ARRAY, 60), both), (two_lists(other, other, ARRAY, 60), other))
    assert passes_of(jitted) == before


def test_a_written_array_that_overlaps_another_is_left_alone():
    def shifts(out, view, n):
        LOG.append(0)
        for t in range(n):
            out[t] = view[t] * 0.5 + 1

    jitted = jit(shifts)
    whole, other = random(81), random(81)
    separate, same = random(81), random(81)
    jitted(whole[1:], separate, 80)
    shifts(other[1:], same, 80)
    np.testing.assert_allclose(whole, other, rtol=1e-5)
    before = passes_of(jitted)
    assert before > 0
    jitted(whole[1:], whole, 80)  # every element comes from the one before
    shifts(other[1:], other, 80)
    np.testing.assert_allclose(whole, other, rtol=1e-5)
    assert passes_of(jitted) == before


def test_a_read_only_array_is_refused_by_numpy():
    def fills(out, n):
        LOG.append(0)
        for t in range(n):
            out[t] = t * 0.5

    jitted = check(fills, np.zeros(60), 60)
    fixed = np.zeros(60)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        jitted(fixed, 60)


def test_objects_are_not_kept_alive():
    class Watched(np.ndarray):
        """Has weak references."""

    jitted = jit(logs)
    jitted(ARRAY, 100)
    x = ARRAY.copy().view(Watched)
    gone = weakref.ref(x)
    jitted(x, 100)
    del x
    gc.collect()
    assert gone() is None


# ---- types and sizes that change -------------------------------------------------------------------------------------


def test_other_dtypes_and_ranks_get_forms_of_their_own_and_sizes_do_not(inline):
    jitted = jit(logs)
    for x in (ARRAY, random(3, 4), random(4, dtype=np.float64), random(7), random(9, 2)):
        for _ in range(4):
            np.testing.assert_allclose(jitted(x, 80), logs(x, 80), rtol=1e-5)
    (region,) = loops_of(jitted)
    assert len([v for v in region.variants if v.entry is not None]) == 3
    assert region.compiles == 3


def test_sizes_that_break_the_assumption_get_a_general_form():
    def adds(x, y, n):
        LOG.append(0)
        for _ in range(n):
            x = x * 0.5 + y
        return x

    jitted = jit(adds)
    for y in (random(4), random(1), random(4), random(1)):
        for _ in range(6):
            np.testing.assert_allclose(jitted(random(3, 4), y, 80), adds(random(3, 4), y, 80), rtol=1e-5)
    (region,) = loops_of(jitted)
    assert [v.speculative for v in region.variants] == [True, False]


# ---- when ------------------------------------------------------------------------------------------------------------


def pure(x, n):
    for t in range(n):
        x = x * 0.5 + t
    return x


def test_loops_of_what_is_compiled_whole_stay_out_of_the_way():
    jitted = jit(pure, tc.Policy(hot_time_ms=1e9, hot_total_ms=0.0))
    for _ in range(12):
        np.testing.assert_allclose(jitted(ARRAY, 3), pure(ARRAY, 3), rtol=1e-5)
    assert jitted.stats()["compiled_calls"] > 0
    assert not passes_of(jitted)


def test_nothing_happens_below_the_thresholds(inline):
    jitted = jit(logs, tc.Policy(hot_time_ms=1e9, hot_total_ms=1e9))
    jitted(ARRAY, 500)
    assert not inline.submitted
    (region,) = loops_of(jitted)
    assert region.unmet == "compiled as a part of its function, or when a single call is long"


def test_level_o0_compiles_nothing(inline):
    check(logs, ARRAY, 500, passes=False, level="O0")
    assert not inline.submitted


def test_deterministic_compiles_in_warmup_only(inline):
    jitted = jit(logs, deterministic=True)
    for _ in range(3):
        jitted(ARRAY, 100)
    assert not inline.submitted
    assert not passes_of(jitted)
    prepared = jit(logs, deterministic=True)
    prepared.warmup(ARRAY, 100)
    made = len(inline.submitted)
    assert made
    first = prepared(ARRAY, 300)
    assert passes_of(prepared) > 0
    for _ in range(3):
        assert np.array_equal(prepared(ARRAY, 300), first)
    assert len(inline.submitted) == made


def test_warmup_compiles_loops_of_what_is_refused(inline):
    jitted = jit(logs, None)
    jitted.warmup(ARRAY, 50)
    assert jitted.stats()["loop_kernels"] == 1
    assert LOG == [50, "after"]  # called once
    before = passes_of(jitted)
    np.testing.assert_allclose(jitted(ARRAY, 90), logs(ARRAY, 90), rtol=1e-5)
    assert passes_of(jitted) >= before + 89


def test_strict_mode_does_not_mind():
    check(pure, ARRAY, 100, strict=True, policy=tc.Policy(hot_time_ms=0.0, hot_total_ms=1e9))


def test_a_form_that_is_always_stopped_is_taken_out(monkeypatch):
    def overflows(x, n):
        LOG.append(0)
        for _ in range(n):
            x = x * 0 + np.float32(3e38) * (x + 3)
        return x

    jitted = jit(overflows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(40):  # how often compiled code is entered in a call depends on how long passes take
            jitted(ARRAY, 100)
            states = [v.state for r in loops_of(jitted) for v in r.variants]
            if states and "compiled" not in states and "being compiled" not in states:
                break
    assert states
    assert "compiled" not in states
    assert any(line.kind == "demote" for line in jitted.explain().ledger) or states == ["refused"]


# ---- many at once ----------------------------------------------------------------------------------------------------


def test_eight_threads_in_one_function():
    jitted = jit(collects)
    want = {n: collects(ARRAY, n) for n in range(40, 48)}
    wrong: list[Any] = []

    def work(n):
        for _ in range(20):
            got = jitted(ARRAY, n)
            for a, b in zip(got[0], want[n][0], strict=True):
                if not np.allclose(a, b, rtol=1e-5):
                    wrong.append(n)
            if got[0][-1] is not got[2] or len(got[1]) != n:
                wrong.append(-n)

    threads = [threading.Thread(target=work, args=(n,)) for n in want]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert passes_of(jitted) > 0


def recursive(x, n, depth):
    LOG.append(depth)
    for t in range(n):
        x = x * 0.5 + t
    if depth:
        x = recursive(x, n, depth - 1)
    for t in range(n):
        x = x * 0.5 - t
    return x


def test_recursion():
    check(recursive, ARRAY, 30, 4)


def test_nested_loops_prefer_the_outermost():
    jitted = check(nested, random(20, 4), ARRAY, 60, calls=4)
    outer, inner = sorted(loops_of(jitted), key=lambda r: r.depth)
    assert outer.passes > 100
    before = inner.passes
    jitted(random(20, 4), ARRAY, 60)
    assert inner.passes == before


def test_a_long_pass_is_left_to_the_inner_loop(monkeypatch):
    monkeypatch.setattr(regions, "LONG_PASS_NS", 0)
    jitted = check(nested, random(20, 4), ARRAY, 60, calls=4)
    outer, inner = sorted(loops_of(jitted), key=lambda r: r.depth)
    assert [v.state for v in outer.variants if v.runs] == ["taken out"]
    before = inner.passes
    jitted(random(20, 4), ARRAY, 60)
    assert inner.passes > before + 1000


# ---- saying so -------------------------------------------------------------------------------------------------------


def test_report_and_events_tell_about_loops():
    after = events().list()[-1].number if events().list() else 0
    jitted = check(logs, ARRAY, 100)
    line = logs.__code__.co_firstlineno + 2
    report = jitted.explain()
    (loop,) = report.functions[0].loops
    (kernel,) = [k for k in loop.kernels if k.state == "compiled"]
    assert (kernel.runs, kernel.passes) == (loop.compiled_runs, loop.compiled_passes)
    assert kernel.passes == jitted.stats()["compiled_iterations"] > 0
    assert kernel.pc == jitted.program.functions[0].pcs[loops_of(jitted)[0].start]
    text = str(report)
    assert f"loop 0, line {line}, PC=0x{kernel.pc:02X}" in text
    assert "passes in" in text
    assert "compiled by themselves" in report._repr_html_()
    assert report.to_dict()["functions"][0]["loops"][0]["kernels"]
    detected = [str(e) for e in events().list("detected", after) if "loop 0" in e.fields["region"]]
    assert any(f"PC=0x{kernel.pc:02X}" in e and "logs:(float32[?], int, int)" in e for e in detected), detected


def test_reasons_are_told():
    def prints(x, n):
        for t in range(n):
            x = x + 1
            LOG.append(t)
        return x

    jitted = check(prints, ARRAY, 100, passes=False)
    assert "append" in str(jitted.explain())
    assert jitted.stats()["loop_kernels"] == 0
