"""The tiers of a function: when it is compiled, that results and refusals stay right, patching, misses, demotion."""

from __future__ import annotations

import threading
import time
import weakref
from types import CellType

import numpy as np
import pytest

from tests.compiler.tracing import program_of
from tests.vm.inline import InlineBuilder
from tiercel import config
from tiercel.vm import dispatch
from tiercel.vm.dispatch import Tiers, size_class
from tiercel.vm.entry import MISS

SCALE = 2.0


def random(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape, dtype=np.float32)


def scaled(x, y):
    return np.exp(x + y) * SCALE


@pytest.fixture(autouse=True, params=["python", "stub", "wrapper"])
def way(request, monkeypatch):
    """How entries are called: in Python, through the stub, or by the stub before `run` is asked, as wrappers do."""
    if request.param == "python":
        monkeypatch.setattr(dispatch, "make_table", lambda *_, **__: "not in this test")
    monkeypatch.setitem(WAY, "fast", request.param == "wrapper")
    return request.param


WAY = {"fast": False}


def tiers_of(function, **options):
    settings = config.current().replace(**{"hot_time_ms": 0.0, "level": "O2", **options.pop("settings", {})})
    builder = InlineBuilder(**options)
    made = Tiers(
        function.__name__,
        function,
        program_of(function),
        program_of,
        lambda: settings,
        lambda: builder,
        CellType(None) if WAY["fast"] else None,
    )
    return made, builder


def call(tiers, *arguments):
    fast = tiers.fast.cell_contents if tiers.fast is not None else None
    if fast is not None:
        result = fast(*arguments)
        if result is not MISS:
            return result
    return tiers.run(lambda _, given: tiers.function(*given), None, arguments)


def heat(tiers, *arguments, times=6):
    for _ in range(times):
        call(tiers, *arguments)


def test_hot_after_five_calls_then_compiled(way):
    tiers, builder = tiers_of(scaled)
    x, y = random(3, 5), random(5)
    for n in range(4):
        call(tiers, x, y)
        assert not builder.submitted, n
    call(tiers, x, y)
    assert len(builder.submitted) == 1
    call(tiers, x, y)  # patches
    before = tiers.compiled_calls
    np.testing.assert_allclose(call(tiers, x, y), scaled(x, y), rtol=1e-5)
    assert tiers.compiled_calls == before + 1
    (entry,) = tiers.entries
    assert (entry.stub is not None, entry.calls - entry.python_calls > 0) == (way != "python",) * 2


def test_total_time_alone_makes_hot_after_warm_up():
    tiers, builder = tiers_of(scaled, settings={"hot_time_ms": 1e9, "hot_total_ms": 0.0, "warmup_calls": 2})
    for _ in range(3):
        assert not builder.submitted
        call(tiers, random(2), random(2))
    assert len(builder.submitted) == 1


def test_a_thousand_shapes_one_compile():
    tiers, builder = tiers_of(scaled)
    rng = np.random.default_rng(0)
    for _ in range(1000):
        m, n = (int(v) for v in rng.integers(0, 40, 2))
        x, y = random(m, n), random(n)
        np.testing.assert_allclose(call(tiers, x, y), scaled(x, y), rtol=1e-5, atol=1e-6)
    assert len(builder.submitted) == 1
    assert tiers.compiled_calls > 950


def test_sizes_that_break_the_assumption_get_a_general_form():
    tiers, builder = tiers_of(scaled)
    heat(tiers, random(3, 5), random(5))
    for _ in range(10):
        np.testing.assert_allclose(call(tiers, random(3, 5), random(1)), scaled(random(3, 5), random(1)), rtol=1e-5)
    assert len(builder.submitted) == 2
    before = tiers.compiled_calls
    call(tiers, random(3, 5), random(1))
    call(tiers, random(3, 5), random(5))
    assert tiers.compiled_calls == before + 2
    with pytest.raises(ValueError, match="broadcast"):
        call(tiers, random(3, 5), random(4))


def test_level_o0_never_compiles():
    tiers, builder = tiers_of(scaled, settings={"level": "O0"})
    heat(tiers, random(3), random(3), times=50)
    assert not builder.submitted


def test_every_dtype_and_layout_has_its_own_signature():
    tiers, _ = tiers_of(scaled)
    inputs = [random(4, 6), random(4, 6).astype(np.float64), random(6, 4).T, random(8, 6)[::2], random(4, 6)[:, ::-1]]
    for x in inputs:
        for _ in range(8):
            y = np.ones(x.shape[-1], x.dtype)
            got = call(tiers, x, y)
            want = scaled(x, y)
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5)
    big_endian = random(3).astype(">f4")
    for _ in range(10):
        np.testing.assert_allclose(call(tiers, big_endian, big_endian), scaled(big_endian, big_endian), rtol=1e-5)


class Odd(np.ndarray):
    """A subclass of ndarray: its behaviour is its own."""


def test_subclasses_misaligned_and_readonly_inputs():
    tiers, _ = tiers_of(scaled)
    x, y = random(3, 5), random(5)
    heat(tiers, x, y)
    before = tiers.compiled_calls
    assert type(call(tiers, x.view(Odd), y)) is Odd
    raw = np.zeros(3 * 5 * 4 + 1, np.uint8)
    askew = raw[1:].view(np.float32).reshape(3, 5)
    askew[:] = x
    np.testing.assert_array_equal(call(tiers, askew, y), scaled(askew, y))
    assert tiers.compiled_calls == before
    fixed = x.copy()
    fixed.flags.writeable = False
    call(tiers, fixed, y)
    assert tiers.compiled_calls == before + 1


def test_rebound_global_is_seen_at_the_next_call():
    global SCALE
    tiers, _ = tiers_of(scaled)
    x, y = random(3, 5), random(5)
    heat(tiers, x, y)
    try:
        SCALE = 5.0
        np.testing.assert_allclose(call(tiers, x, y), np.exp(x + y) * 5, rtol=1e-5)
    finally:
        SCALE = 2.0
    np.testing.assert_allclose(call(tiers, x, y), np.exp(x + y) * 2, rtol=1e-5)


ZERO = 0.0


def shifted(x):
    return x * ZERO


def test_signs_of_zero_and_nans_are_values():
    global ZERO
    tiers, _ = tiers_of(shifted)
    x = np.ones(3, np.float32)
    heat(tiers, x)
    before = tiers.compiled_calls
    assert not np.signbit(call(tiers, x)).any()
    assert tiers.compiled_calls == before + 1
    try:
        for value in (-0.0, float("nan"), float("nan")):
            ZERO = value
            for _ in range(8):
                np.testing.assert_array_equal(call(tiers, x), shifted(x))
                assert np.signbit(call(tiers, x)).all() == np.signbit(shifted(x)).all()
    finally:
        ZERO = 0.0


def divided(x, y):
    return x / y


def test_floating_point_warnings_and_errors_are_numpys():
    tiers, _ = tiers_of(divided)
    x = np.arange(1, 6, dtype=np.float32)
    zero = np.array([1, 2, 0, 4, 5], np.float32)
    heat(tiers, x, x)
    before = tiers.compiled_calls
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        got = call(tiers, x, zero)
    assert got[2] == np.inf
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        call(tiers, x, zero)
    assert tiers.compiled_calls == before
    with np.errstate(all="ignore"):
        call(tiers, x, zero)
    assert tiers.compiled_calls == before + 1


def folded(x):
    return x.sum(axis=-1), x.sum(axis=0), x.sum()


@pytest.mark.parametrize("size", [1, 63, 4000])
def test_sums_of_halves_raise_no_flag_of_their_own(size):
    """They add up in float32 and round once: terms of both signs overflow nowhere, nor do lanes beyond the end."""
    tiers, _ = tiers_of(folded)
    x = np.random.default_rng(0).choice([-100, 100], size=(3, size)).astype(np.float16)
    x[0, :] = np.abs(x[0, :]) / 10
    x[0, 0] = 60_000 - 10 * size  # a row that only just does not overflow
    heat(tiers, x)
    before = tiers.compiled_calls
    with np.errstate(all="raise"):
        got = call(tiers, x)
    assert tiers.compiled_calls == before + 1
    wide = x.astype(np.float32)
    for ours, exact in zip(got, (wide.sum(axis=-1), wide.sum(axis=0), wide.sum()), strict=True):
        np.testing.assert_array_equal(ours, exact.astype(np.float16))


def test_a_refused_build_keeps_the_function_right():
    tiers, builder = tiers_of(scaled, refuse="planted")
    x, y = random(3, 5), random(5)
    heat(tiers, x, y, times=30)
    assert len(builder.submitted) == 1
    (state,) = tiers.signatures.values()
    assert state.variants[0].reason == "planted"
    assert tiers.compiled_calls == 0


def prints(x):
    print("side", "effect")
    return x + 1


def test_what_cannot_be_compiled_says_why(capsys):
    tiers, builder = tiers_of(prints)
    heat(tiers, random(3), times=12)
    assert not builder.submitted
    (state,) = tiers.signatures.values()
    assert "Python" in state.variants[0].reason
    assert state.variants[0].line is not None
    assert capsys.readouterr().out.count("side effect") == 12


def test_a_slow_entry_is_demoted():
    tiers, _ = tiers_of(scaled)
    x, y = random(3, 5), random(5)
    heat(tiers, x, y)
    (entry,) = tiers.entries
    quick = entry.run

    def slow(arguments):
        time.sleep(0.001)
        return quick(arguments)

    entry.run = slow
    if entry.stub is not None:
        native = entry.stub
        entry.stub = lambda *arguments: (time.sleep(0.001), native(*arguments))[1]
    for _ in range(16 * 33):
        call(tiers, x, y)
    assert not tiers.entries
    assert tiers.fast is None or tiers.fast.cell_contents is None
    (state,) = tiers.signatures.values()
    assert "interpreted" in state.variants[0].demoted
    heat(tiers, x, y, times=50)
    assert not tiers.entries, "no flapping"


def test_weights_do_not_hide_how_much_work_a_call_is():
    """Times of short and of long calls are not compared where a weight is most of the bytes of both."""
    w = np.zeros((256, 1024), np.float32)
    short, long = (np.zeros((8, n, 128), np.float32) for n in (5, 50))
    assert size_class((short, w)) != size_class((long, w))
    assert size_class((short, [w, 3])) == size_class((short + 1, [w, 5]))


def test_patching_under_eight_threads():
    """Mixed shapes from eight threads while entries come and go."""
    tiers, _ = tiers_of(scaled)
    errors = []
    stop = threading.Event()

    def work(seed):
        rng = np.random.default_rng(seed)
        while not stop.is_set():
            m, n = (int(v) for v in rng.integers(1, 30, 2))
            x, y = rng.standard_normal((m, n), dtype=np.float32), rng.standard_normal(n, dtype=np.float32)
            try:
                np.testing.assert_allclose(call(tiers, x, y), scaled(x, y), rtol=1e-5, atol=1e-6)
            except Exception as error:  # noqa: BLE001 - whatever a thread meets is the finding
                errors.append(error)
                return

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 2
    while time.monotonic() < end:
        tiers.entries = ()
        tiers.publish()
        time.sleep(0.01)
        for state in list(tiers.signatures.values()):
            for variant in state.variants:
                if variant.entry is not None:
                    tiers.entries = (variant.entry,)
                    tiers.publish()
        time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
    assert tiers.compiled_calls > 0


def test_quick_code_is_replaced_by_better_code_without_a_change_of_results(monkeypatch):
    monkeypatch.setattr("tiercel.vm.improve.IMPROVE_AFTER", 0.0)
    tiers, builder = tiers_of(scaled, quick=True)
    x, y = random(5, 7), random(5, 7, seed=1)
    heat(tiers, x, y)
    (entry,) = tiers.entries
    first, wanted = entry.code, call(tiers, x, y)
    assert len(builder.submitted) == 1
    heat(tiers, x, y, times=64)
    assert len(builder.submitted) == 2
    assert tiers.entries == (entry,)
    assert entry.code != first
    assert len(entry.keep) == 2  # what was replaced stays mapped
    calls = entry.calls
    assert np.array_equal(call(tiers, x, y).view(np.int32), wanted.view(np.int32))
    assert entry.calls == calls + 1
    heat(tiers, x, y, times=64)
    assert len(builder.submitted) == 2  # once


def test_code_that_is_not_quick_is_left(monkeypatch):
    monkeypatch.setattr("tiercel.vm.improve.IMPROVE_AFTER", 0.0)
    tiers, builder = tiers_of(scaled)
    heat(tiers, random(3), random(3, seed=1), times=70)
    assert len(builder.submitted) == 1


def test_a_kernel_that_cannot_be_improved_stays(monkeypatch):
    monkeypatch.setattr("tiercel.vm.improve.IMPROVE_AFTER", 0.0)
    tiers, builder = tiers_of(scaled, quick=True)
    x, y = random(3), random(3, seed=1)
    heat(tiers, x, y)
    builder.refuse = "no"
    heat(tiers, x, y, times=70)
    (entry,) = tiers.entries
    assert len(builder.submitted) == 2
    assert len(entry.keep) == 1
    assert np.allclose(call(tiers, x, y), scaled(x, y), rtol=1e-5)


def moved(x, n, scale):
    return x * scale + n


def test_scalars_that_were_seen_are_told_to_validation():
    tiers, builder = tiers_of(moved)
    for n in (2, 3, 2, 5):
        call(tiers, random(4), n, 1.5)
    heat(tiers, random(4), 3, -0.0)
    (hints,) = builder.hints
    values = dict(hints["scalars"])
    assert sorted(values[1]) == [2, 3, 5]
    assert {repr(v) for v in values[2]} == {"1.5", "-0.0"}


def test_stages_are_spread_over_calls_and_keep_no_arguments_alive():
    tiers, builder = tiers_of(scaled)
    builder.slice_ns = -(1 << 40)  # one stage in each call, whatever calls take
    x, y = random(5, 7), random(5, 7, seed=1)
    for _ in range(5):
        call(tiers, x, y)
    (variant,) = next(iter(tiers.signatures.values())).variants
    assert set(variant.stages_ms) == {"trace"}
    gone = weakref.ref(x)
    del x
    assert gone() is None
    x = random(5, 7)
    call(tiers, x, y)
    assert set(variant.stages_ms) == {"trace", "lower"}
    assert not builder.submitted
    call(tiers, x, y)
    assert len(builder.submitted) == 1
    call(tiers, x, y)
    assert tiers.entries
    assert np.allclose(call(tiers, x, y), scaled(x, y), rtol=1e-5)


def test_waiting_does_the_stages_that_are_left():
    tiers, builder = tiers_of(scaled)
    builder.slice_ns = -(1 << 40)
    for _ in range(5):
        call(tiers, random(3), random(3, seed=1))
    assert not builder.submitted
    assert tiers.wait(10)
    assert tiers.entries


def test_an_entry_demoted_by_a_loaded_machine_is_put_back_once():
    tiers, _ = tiers_of(scaled, settings={"demote_window": 4})
    x, y = random(3, 5), random(5)
    heat(tiers, x, y)
    (entry,) = tiers.entries
    quick, native, load = entry.run, entry.stub, [0.001]

    def slow(arguments):
        time.sleep(load[0])
        return quick(arguments)

    entry.run = slow
    if native is not None:
        entry.stub = lambda *arguments: (time.sleep(load[0]), native(*arguments))[1]

    def interpreted(_, given):
        time.sleep(load[0])
        return scaled(*given)

    def one():
        return tiers.run(interpreted, None, (x, y))  # as if there were no way around it

    for _ in range(16 * 5):
        one()
        if not tiers.entries:
            break
    assert not tiers.entries
    load[0] = 0.002  # everything is slow now, and was when it was demoted
    for _ in range(3):
        one()
    assert not tiers.entries
    one()
    assert tiers.entries == (entry,)
    (state,) = tiers.signatures.values()
    assert state.variants[0].demoted == ""
    state.interpreted = {bucket: type(times)([1] * 8, maxlen=32) for bucket, times in state.interpreted.items()}
    for _ in range(16 * 40):
        one()
    assert not tiers.entries, "and not twice"
