"""Products tuned while they run: when they are measured, the swap, what a report says. What is measured is made up."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc
from tests.vm.inline import InlineBuilder
from tiercel import config
from tiercel.codegen.cpu.choice import Choice, usual
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.tile import widths
from tiercel.vm import tuning

HOST = Target.host()
OTHER = widths(HOST)[1]
WAY = [OTHER, "small", [[20, "full", "rows", 1, 0], [None, "even", "columns", 4, 0]]]
KEYS = ("float32 packed epilogue n96 k64 t1", "float32 packed n64 k96 t1")


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """One thread, measuring at once, and a process that has measured nothing yet."""
    monkeypatch.setattr(tuning, "_spent_ms", [0.0])
    monkeypatch.setattr(tuning, "SLOWER", 1e9)  # whatever the tuned code takes, it stays
    monkeypatch.setattr(tuning, "_SHARE", 0.0)  # what part of a call they take depends on the machine
    with config.context(threads=1, tune_after_ms=0.0):
        yield


@pytest.fixture
def inline():
    return InlineBuilder(wide=(OTHER,))


def weights(*shape):
    return tc.constant(np.random.default_rng(1).standard_normal(shape).astype(np.float32))


def layer(inline):
    w1, bias, w2 = weights(64, 96), weights(96), weights(96, 64)

    @tc.jit(policy=tc.Policy(hot_time_ms=0))
    def f(x):
        return np.maximum(x @ w1 + bias, 0) @ w2

    f.__tiercel__.tiers.builder = lambda: inline
    return f


def told(key, choice=WAY, gain=1.5, **more):
    """What the worker tells of a product."""
    point, slow = [choice[0], choice[1], *choice[2][-1][1:]], list(usual(HOST, packed=True))
    return {
        "key": key, "choice": choice, "present": Choice.always(usual(HOST, packed=True)).to_data(), "gain": gain,
        "regret": [0.04, 0.0], "tried": [[30, [[point, 1000.0], [slow, 1500.0]]]], "picks": [[30, point]],
        "complete": True, "quiet": True, **more,
    }  # fmt: skip


def answer(*results, again=False):
    return {"tuned": list(results), "again": again, "spent_ms": 12.0, "messages": [], "pieces": {}}


def x(m):
    return np.random.default_rng(m).standard_normal((m, 64)).astype(np.float32)


def call(f, times=400, rows=(7, 30)):
    for i in range(times):
        f(x(rows[i % len(rows)]))


def state(f):
    (kernel,) = [k for k in f.explain().functions[0].kernels if k.state == "compiled"]
    return kernel.tuning


def test_a_hot_region_is_measured_with_the_sizes_that_were_seen(inline):
    inline.answers = [answer(*map(told, KEYS))]
    f = layer(inline)
    call(f)
    (demands, budget_ms), *_ = inline.demands
    assert budget_ms == config.current().tune_budget_ms
    assert {(d[0][1], d[0][2], d[0][4], d[0][5], d[0][6]) for d in demands} == {
        ("packed", True, 96, 64, 1), ("packed", False, 64, 96, 1),
    }  # fmt: skip
    assert {m for d in demands for m, _ in d[1]} <= {7, 30}


def test_the_winner_is_swapped_in_and_results_keep_their_bits(inline):
    f = layer(inline)
    call(f, 100)
    tiers = f.__tiercel__.tiers
    before, entry = [f(x(m)) for m in (1, 7, 30)], tiers.entries[0]
    inline.answers = [answer(*map(told, KEYS))]
    calls = f.stats()["calls"]
    call(f)
    assert f.stats()["calls"] == calls + 400
    assert f.stats()["tunes"] == 1
    assert inline.choices[-1] == {0: WAY, 1: WAY}
    assert tiers.entries[0] is not entry
    compiled = f.stats()["compiled_calls"]
    for m, want in zip((1, 7, 30), before, strict=True):
        np.testing.assert_array_equal(f(x(m)), want)
    assert f.stats()["compiled_calls"] == compiled + 3
    assert f.stats()["compiles"] == 1


def test_explain_says_what_was_tried_what_won_and_the_regret(inline):
    inline.answers = [answer(*map(told, KEYS))]
    f = layer(inline)
    call(f)
    text = str(f.explain())
    assert "2 products measured, 12 ms in the worker" in text
    assert "1.50 x as fast as before" in text
    assert "up to 20 rows" in text
    assert "above 20" in text
    assert "30 rows tried: 1.00 us" in text
    assert "by 4.0%" in text
    assert f.explain().to_dict()["functions"][0]["kernels"][0]["tuning"]["tunes"] == 1


def test_nothing_is_compiled_where_what_is_done_is_as_fast(inline):
    same = Choice.always(usual(HOST, packed=True)).to_data()
    inline.answers = [answer(*(told(key, same, 1.0) for key in KEYS))]
    f = layer(inline)
    call(f)
    assert f.stats()["tunes"] == 0
    assert len(inline.submitted) == 1
    assert "as fast as anything" in state(f)["reason"]


def test_slower_calls_bring_the_code_of_before_back(inline, monkeypatch):
    f = layer(inline)
    call(f, 200)
    inline.answers = [answer(*map(told, KEYS))]
    monkeypatch.setattr(tuning, "SLOWER", 0.0)  # whatever the tuned code takes, it was less before
    call(f, 3000)
    assert "the code of before is back" in state(f)["reason"]
    np.testing.assert_allclose(f(x(9)), np.asarray(f.__wrapped__(x(9))), atol=1e-3)


def test_a_busy_machine_is_tried_again_a_few_times(inline):
    inline.answers = [answer(told(KEYS[0], quiet=False))] * 9
    f = layer(inline)
    call(f, 6000)
    assert len(inline.demands) == tuning.MAX_TRIES
    assert "other work had the processors" in state(f)["reason"]
    said = " ".join(str(f.explain()).split())
    assert "products not tuned: 1 product measured" in said
    assert f"{KEYS[0]}: measured, but other work disturbed it; tried 3 times; stays as it is" in said
    assert "slower than the best measured" not in said
    assert f.stats()["tunes"] == 0


def test_missing_pieces_of_the_library_are_asked_for_one_by_one(inline):
    inline.answers = [answer(again=True), answer(again=True), answer(*map(told, KEYS))]
    f = layer(inline)
    call(f, 800)
    assert len(inline.demands) == 3
    assert f.stats()["tunes"] == 1


@pytest.mark.parametrize("settings", [{"tune": "off"}, {"tune": "use"}, {"level": "O1"}, {"deterministic": True}])
def test_settings_that_say_no(inline, settings):
    f = layer(inline)
    with config.context(**settings):
        call(f)
    assert f.stats()["compiled_calls"] or settings == {"deterministic": True}
    assert inline.demands == []


def test_the_budget_of_the_process_is_kept(inline):
    inline.answers = [answer(*map(told, KEYS))] * 2
    with config.context(tune_total_ms=12.0):
        first, second = layer(inline), layer(inline)
        call(first)
        call(second)
    assert len(inline.demands) == 1
    assert "tune_total_ms" in state(second)["reason"]


def test_a_failed_measurement_leaves_everything_as_it_is(inline):
    inline.answers = ["the worker ended 3 times"]
    f = layer(inline)
    call(f)
    assert state(f)["reason"] == "not measured: the worker ended 3 times"
    assert "products not tuned" in str(f.explain())


def test_what_earlier_programs_found_out_is_used_from_the_first_compile(inline):
    inline.known = {key: told(key) for key in KEYS}
    f = layer(inline)
    call(f)
    assert inline.choices[0] == {0: WAY, 1: WAY}
    assert inline.demands == []
    assert f.stats()["tunes"] == 0
    assert "by an earlier program" in str(f.explain())
    np.testing.assert_allclose(f(x(9)), np.asarray(f.__wrapped__(x(9))), atol=1e-3)


def test_products_that_take_little_of_the_time_are_left_alone(inline, monkeypatch):
    monkeypatch.setattr(tuning, "_SHARE", 1e9)
    f = layer(inline)
    call(f)
    assert inline.demands == []
    assert "of its time" in state(f)["reason"]


def test_a_region_without_products_is_not_measured(inline):
    @tc.jit(policy=tc.Policy(hot_time_ms=0))
    def f(x):
        return np.tanh(x) + 1

    f.__tiercel__.tiers.builder = lambda: inline
    call(f)
    assert inline.demands == []
    assert "no product of matrices" in state(f)["reason"]


def test_products_that_share_an_operand_agree_or_stay(inline):
    w = weights(64, 64)

    @tc.jit(policy=tc.Policy(hot_time_ms=0))
    def f(x):
        return np.tanh(x @ w) @ w

    f.__tiercel__.tiers.builder = lambda: inline
    inline.known = {"float32 packed n64 k64 t1": told("float32 packed n64 k64 t1")}
    call(f)
    assert inline.choices[0] == {}  # the other product has another key, and no choice
    np.testing.assert_allclose(f(x(9)), np.asarray(f.__wrapped__(x(9))), atol=1e-3)
