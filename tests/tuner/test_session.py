"""Measuring under a budget, choosing, splitting a range of rows. Times are made up."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.surfaces import TARGET, Machine, likes_narrow_tall_panels, product
from tiercel.codegen.cpu.choice import Choice, usual
from tiercel.tuner.predictor import Predictor
from tiercel.tuner.session import LEAST_GAIN, MARGIN, MAX_POINTS, MAX_ROWS_SEEN, Demand, tune, typical_rows
from tiercel.tuner.space import points

PRESENT = Choice.always(usual(TARGET, packed=True))


def demand(rows, n=768, k=768, threads=2):
    return Demand(product(1, n, k, threads), rows, PRESENT)


def run(machine, demands, predictor=None, **options):
    options.setdefault("budget_s", 1e9)
    return tune(demands, predictor or Predictor(TARGET), machine, clock=machine.clock, **options)


def test_at_most_eight_points_are_measured_the_present_one_among_them():
    machine = Machine(likes_narrow_tall_panels)
    (tuned,) = run(machine, [demand({8: 1, 20: 1, 60: 1, 200: 1})])
    for m, times in tuned.tried.items():
        assert len(times) <= MAX_POINTS
        assert PRESENT.point(m) in times
    assert len({point for _, point in machine.calls}) <= MAX_POINTS
    assert tuned.complete


def test_all_points_are_measured_when_asked():
    machine = Machine(likes_narrow_tall_panels)
    (tuned,) = run(machine, [demand({64: 1})], most_points=0)
    assert set(tuned.tried[64]) == set(points(product(64, 768, 768), TARGET))
    best = machine.best(product(64, 768, 768), points(product(64, 768, 768), TARGET))
    assert machine.ns(product(64, 768, 768), tuned.choice.point(64)) == best


def test_a_range_whose_best_ways_differ_is_split():
    """10 to 30 against 120."""

    def surface(made, point):
        few = made.m <= 30
        return 1.0 if (point.axis == "rows") == few else 1.2

    machine = Machine(surface)
    (tuned,) = run(machine, [demand({10: 5, 20: 5, 30: 5, 120: 5})], most_points=0)
    assert len(tuned.choice.parts) == 2
    assert 30 <= tuned.choice.parts[0].upto < 120
    for m in (10, 20, 30, 120):
        best = min(tuned.tried[m].values())
        assert tuned.tried[m][tuned.choice.point(m)] <= (1 + MARGIN) * best


def test_a_range_is_not_split_for_less_than_the_margin():
    def surface(made, point):
        return 1.0 if (point.axis == "rows") == (made.m <= 30) else 1.0 + MARGIN / 3

    (tuned,) = run(Machine(surface), [demand({10: 5, 20: 5, 30: 5, 120: 5}, 8192, 8192)], most_points=0)
    assert len({(p.axis) for p in tuned.choice.parts}) == 1


def test_what_is_done_stays_where_nothing_is_clearly_faster():
    def surface(made, point):
        best = Machine(lambda *_: 1.0)
        return (
            best.ns(made, PRESENT.point(made.m))
            / best.ns(made, point)
            * (1.0 if point == PRESENT.point(made.m) else 0.99)
        )

    (tuned,) = run(Machine(surface), [demand({16: 1, 100: 1})])
    assert tuned.choice == PRESENT
    assert tuned.gain == pytest.approx(1.0)
    assert LEAST_GAIN > 1.01


def test_gain_and_regret_are_what_the_times_say():
    machine = Machine(likes_narrow_tall_panels)
    (tuned,) = run(machine, [demand({64: 3})])
    times = tuned.tried[64]
    assert tuned.gain == pytest.approx(times[PRESENT.point(64)] / times[tuned.choice.point(64)])
    picked, chosen = tuned.regret
    assert chosen == pytest.approx(times[tuned.choice.point(64)] / min(times.values()) - 1) == pytest.approx(0.0)
    assert picked == pytest.approx(times[tuned.picks[64]] / min(times.values()) - 1)


def test_the_budget_ends_it_and_what_was_measured_counts():
    machine = Machine(likes_narrow_tall_panels)
    demands = [demand({16: 1, 64: 1}, n, 768) for n in (256, 512, 768, 1024)]
    results = run(machine, demands, budget_s=0.004)
    assert 1 <= len(results) < 4 or not all(r.complete for r in results)
    assert machine.now < 0.004 + 4 * 2 * (MAX_POINTS + 2) * 3e-4  # one round of each, and no more, goes beyond
    assert run(Machine(likes_narrow_tall_panels), demands, budget_s=-1.0) == []


def test_disturbed_runs_do_not_count():
    flips = iter(range(10**9))

    def surface(made, point):
        return likes_narrow_tall_panels(made, point)

    quiet = Machine(surface)
    (want,) = run(quiet, [demand({64: 1})])

    class Noisy(Machine):
        def __call__(self, made, point, expected_ns):
            timed = super().__call__(made, point, expected_ns)
            if next(flips) % 2:
                return timed._replace(ns=timed.ns / 3, disturbed=True)  # wrong, and said to be
            return timed

    (got,) = run(Noisy(surface), [demand({64: 1})])
    assert got.quiet
    assert got.choice == want.choice


@pytest.mark.parametrize("starved", [False, True])
def test_where_something_else_always_had_the_processors_nothing_changes(starved):
    machine = Machine(likes_narrow_tall_panels, disturbed=lambda: not starved)
    machine.starved = starved
    predictor = Predictor(TARGET)
    (tuned,) = run(machine, [demand({64: 1})], predictor)
    assert not tuned.quiet
    assert tuned.choice == PRESENT
    assert not predictor.rows


def test_interrupted_what_is_finished_was_told():
    told = []

    def progress(done, total, what):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(
            Machine(likes_narrow_tall_panels),
            [demand({16: 1}), demand({16: 1}, 256)],
            progress=progress,
            finished=told.append,
        )
    assert len(told) == 1


@given(st.dictionaries(st.integers(1, 2000), st.floats(0.1, 50), max_size=30))
def test_typical_rows_are_few_seen_and_span_what_is_frequent(rows):
    found = typical_rows(rows)
    assert found == sorted(set(found))
    assert set(found) <= set(rows)
    assert len(found) == min(len(found), MAX_ROWS_SEEN)
    frequent = [m for m, w in rows.items() if w >= 0.02 * math.fsum(rows.values())]
    if frequent:
        assert (found[0], found[-1]) == (min(frequent), max(frequent))


def test_plain_form_of_a_demand():
    made = demand({8: 2, 64: 1})
    assert Demand.from_data(made.to_data(), TARGET) == made
    product_, rows, _ = made.to_data()
    assert Demand.from_data([product_, rows, None], TARGET) == made
    with pytest.raises((ValueError, TypeError)):
        Demand.from_data([product_, rows], TARGET)
