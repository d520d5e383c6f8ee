"""Hot or not, and why; what pays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiercel import config
from tiercel.hotpath import policy
from tiercel.hotpath.history import History
from tiercel.hotpath.policy import Counters, break_even, decide, pay_back

MS = 1_000_000


@pytest.mark.parametrize(
    ("counters", "hot", "reason"),
    [
        (Counters(3, 0, 500 * MS), False, "entry 3 of the 3 that are only observed"),
        (Counters(4, 0, 500 * MS), True, "500 ms in total, 100 make hot"),
        (Counters(4, 0, 50 * MS), False, "4 of 5 entries that make hot"),
        (Counters(5, 0, 19 * MS), False, "19 of 20 ms that make hot"),
        (Counters(5, 0, 20 * MS), True, "5 entries and 20 ms, 5 and 20 make hot"),
        (Counters(4, 0, 100 * MS), True, "100 ms in total, 100 make hot"),
        (Counters(1, 30, 25 * MS, has_loops=True), True, "31 entries and 25 ms, 5 and 20 make hot"),
        (Counters(1, 0, 200 * MS, has_loops=True), True, "200 ms in total, 100 make hot"),
        (Counters(1000, 0, 1 * MS), False, "1 of 20 ms that make hot"),
    ],
)
def test_hot(counters, hot, reason):
    decision = decide(counters, config.current())
    assert (decision.hot, decision.reason) == (hot, reason)


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        (Counters(1, 0, 500 * MS), False),  # a single call says nothing
        (Counters(2, 0, 8 * MS), True),  # 20 ms at the fifth
        (Counters(2, 0, 7 * MS), False),
        (Counters(100, 0, 9 * MS), False),
        (Counters(100, 0, 10 * MS), True),
    ],
)
def test_what_will_soon_be_hot(counters, expected):
    assert policy.soon(counters, config.current()) is expected
    for never in ({"level": "O0"}, {"worker": "off"}, {"deterministic": True}):
        assert not policy.soon(counters, config.current().replace(**never))


def test_settings_decide():
    counters = Counters(2, 0, 1 * MS)
    assert decide(counters, config.current().replace(warmup_calls=0, hot_count=1, hot_time_ms=0)).hot
    assert decide(counters, config.current().replace(level="O0", hot_count=1)).reason.startswith("the level is O0")
    assert "worker" in decide(counters, config.current().replace(worker="off")).reason


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 10**9), st.booleans())
def test_more_of_anything_never_cools(entries, edges, total, loops):
    settings = config.current()
    if decide(Counters(entries, edges, total, loops), settings).hot:
        for hotter in ((entries + 1, edges, total), (entries, edges + 1, total), (entries, edges, total + 10**6)):
            assert decide(Counters(*hotter, loops), settings).hot


def test_break_even_before():
    assert break_even(2.0, 30.0, 3.0).calls == 23  # 1.333 ms gained in each
    assert break_even(2.0, 30.0, 1.0).calls is None
    assert break_even(0.001, 1e6, 1.0001).calls > 10**9


def test_pay_back_after():
    found = pay_back(2.0, 0.5, 30.0, 40)
    assert (found.calls, found.saved_ms) == (20, 30.0)
    assert found.text.startswith("paid back after 20 calls")
    assert pay_back(2.0, 0.5, 1.0, 1).text.startswith("paid back after 1 call;")
    assert "10 so far" in pay_back(2.0, 0.5, 30.0, 10).text
    slower = pay_back(1.0, 1.5, 30.0, 10)
    assert slower.calls is None
    assert slower.text.startswith("slower by 0.5 ms")


def test_what_is_not_expected_to_pay_waits_but_never_for_long():
    settings = config.current().replace(hot_time_ms=20.0, hot_total_ms=100.0, hot_count=5, warmup_calls=3, level="O2")
    dear, cheap = policy.Estimate(300.0, 2.0), policy.Estimate(30.0, 2.0)
    early = policy.Counters(10, total_ns=25_000_000)
    assert policy.decide(early, settings, cheap).hot
    put_off = policy.decide(early, settings, dear)
    assert not put_off.hot
    assert "about 300 ms" in put_off.reason
    assert "240 calls" in put_off.reason
    assert policy.decide(policy.Counters(40, total_ns=100_000_000), settings, dear).hot
    assert not policy.decide(early, settings, policy.Estimate(1.0, 0.9)).hot
    assert policy.decide(early, settings.replace(hot_time_ms=0.0), dear).hot


def test_history_gives_medians():
    past = History()
    assert past.expected_ms(10) == 30.0
    assert past.expected_speed_up() == 2.0
    for ms in (10.0, 20.0, 90.0):
        past.compiled(10, ms)
    past.ran(300, 100)
    assert past.expected_ms(20) == 40.0
    assert past.expected_speed_up() == 3.0
