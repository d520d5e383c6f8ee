"""The predictor on planted cost surfaces: what it does not know it finds out, what it has seen it remembers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuner.surfaces import TARGET, Machine, likes_narrow_tall_panels, product
from tiercel.codegen.cpu.choice import Choice, usual
from tiercel.tuner.predictor import MAX_ROWS, Predictor, Row
from tiercel.tuner.session import MAX_POINTS, Demand, tune
from tiercel.tuner.space import guess_ns, points

SIZES = [(128, 256), (256, 1024), (768, 768), (1024, 384), (300, 500), (3072, 768), (512, 512), (640, 2048)]


def learn(machine, predictor, sizes=SIZES, rows=(4, 16, 64, 200), threads=2):
    present = Choice.always(usual(TARGET, packed=True))
    for n, k in sizes:
        demand = Demand(product(1, n, k, threads), dict.fromkeys(rows, 1.0), present)
        tune([demand], predictor, machine, budget_s=1e9, clock=machine.clock)


def test_without_history_the_guess_ranks():
    made = product(20, 640, 640)
    space = points(made, TARGET)
    order = Predictor(TARGET).rank(made, space)
    guesses = [guess_ns(made, p, TARGET) for p in order]
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(guesses))


def test_a_planted_surface_is_learned_from_eight_measurements_a_size():
    machine = Machine(likes_narrow_tall_panels)
    predictor = Predictor(TARGET)
    held_out = [product(m, n, k) for n, k in ((384, 384), (896, 640), (2048, 512)) for m in (6, 24, 50, 150)]
    before = [excess(machine, Predictor(TARGET), p) for p in held_out]
    assert max(before) > 0.2  # the guess is wrong about this machine
    learn(machine, predictor)
    assert len(predictor.rows) <= MAX_POINTS * len(SIZES) * 4
    assert max(excess(machine, predictor, p) for p in held_out) <= 0.05


def excess(machine, predictor, made):
    space = points(made, TARGET)
    return machine.ns(made, predictor.rank(made, space)[0]) / machine.best(made, space) - 1


def test_a_wrong_rule_is_unlearned_when_the_machine_changes():
    predictor = Predictor(TARGET)
    learn(Machine(likes_narrow_tall_panels), predictor)

    def opposite(made, point):
        return 1.3 if point.vectors == 2 else 1.0

    machine = Machine(opposite)
    for _ in range(3):
        learn(machine, predictor)
    assert max(excess(machine, predictor, product(m, 896, 640)) for m in (6, 24, 150)) <= 0.05


def test_what_was_measured_at_a_size_decides_there_against_the_rule():
    def odd(made, point):
        return (
            0.5 if (made.n, point.vectors, point.block) == (777, 3, "small") else likes_narrow_tall_panels(made, point)
        )

    machine = Machine(odd)
    predictor = Predictor(TARGET)
    learn(machine, predictor)
    made = product(40, 777, 512)
    predictor.learn(Row(made, p, machine.ns(made, p)) for p in points(made, TARGET))
    best = predictor.rank(made, points(made, TARGET))[0]
    assert (best.vectors, best.block) == (3, "small")


@settings(max_examples=25)
@given(st.integers(1, 200), st.sampled_from(SIZES), st.integers(1, 12), st.booleans())
def test_choosing_gives_so_many_different_points_with_the_given_ones_first(m, size, count, taught):
    predictor = Predictor(TARGET)
    if taught:
        learn(Machine(likes_narrow_tall_panels), predictor, SIZES[:1])
    made = product(m, *size)
    space = points(made, TARGET)
    given_ = [space[-1], space[0]][:count]
    chosen = predictor.choose(made, space, count, given_)
    assert len(chosen) == len(set(chosen)) == min(count, len(space))
    assert chosen[: len(given_)] == given_
    assert set(chosen) <= set(space)
    assert chosen == predictor.choose(made, space, count, given_)


def test_some_of_the_points_explore():
    predictor = Predictor(TARGET)
    learn(Machine(likes_narrow_tall_panels), predictor)
    made = product(24, 896, 640)
    space = points(made, TARGET)
    expected = predictor.rank(made, space)[:MAX_POINTS]
    assert set(predictor.choose(made, space, MAX_POINTS)) - set(expected)


def test_history_is_bounded_and_newer_times_replace_older_ones():
    predictor = Predictor(TARGET)
    made = product(24, 896, 640)
    point = points(made, TARGET)[0]
    predictor.learn(
        [Row(made, point, 5.0), Row(made, point, 7.0), Row(made, point, float("nan")), Row(made, point, 0.0)]
    )
    assert predictor.rows == []  # the last word is that nothing is known
    predictor.learn([Row(made._replace(m=m), point, 10.0) for m in range(1, MAX_ROWS + 50)])
    assert len(predictor.rows) == MAX_ROWS
    assert predictor.rows[0].product.m == 50


def test_speeds_of_the_machine_on_different_days_do_not_matter():
    """Every product's times may be scaled as they like."""
    a, b = Predictor(TARGET), Predictor(TARGET)
    machine = Machine(likes_narrow_tall_panels)
    for number, (n, k) in enumerate(SIZES):
        made = product(24, n, k)
        rows = [Row(made, p, machine.ns(made, p)) for p in points(made, TARGET)[::9]]
        a.learn(rows)
        b.learn(r._replace(ns=r.ns * 3.0**number) for r in rows)
    made = product(24, 896, 640)
    assert a.rank(made, points(made, TARGET))[:5] == b.rank(made, points(made, TARGET))[:5]
