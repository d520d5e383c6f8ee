"""Arms that stay interpreted, and entries that are left more often than not."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc
from tests.vm.inline import InlineBuilder

AT_ONCE = tc.Policy(warmup_calls=0, hot_count=1, hot_time_ms=0.0, hot_total_ms=0.0)
SMALL, LARGE = np.ones(4), np.full(4, 100.0)


def jitted(function):
    made = tc.jit(function, policy=AT_ONCE)
    builder = InlineBuilder()
    made.__tiercel__.tiers.builder = lambda: builder
    return made


def clipped(seen):
    @jitted
    def f(x):
        y = x * 2
        if y.sum() > 100:
            seen.append(float(y[0]))  # a list of somebody else: not for machine code
            y = np.clip(y, -50, 50)
        return y

    return f


def test_an_arm_that_cannot_be_compiled_is_the_interpreters():
    seen = []
    f = clipped(seen)
    for x, expected in ((SMALL, 2.0), (SMALL, 2.0), (SMALL, 2.0), (LARGE, 50.0), (SMALL, 2.0)):
        assert np.array_equal(f(x), np.full(4, expected))
    assert seen == [200.0]
    stats = f.stats()
    assert (stats["compiled_calls"], stats["interpreted_calls"]) == (2, 3), f.explain()


def test_an_exception_in_an_arm_is_pythons_own():
    @jitted
    def scaled(x, t):
        if t <= 0:
            raise ValueError(f"temperature must be positive, not {t}")
        return x / t

    for _ in range(3):
        assert np.array_equal(scaled(SMALL, 2.0), SMALL / 2)
    with pytest.raises(ValueError, match=r"must be positive, not -1\.0"):
        scaled(SMALL, -1.0)
    assert np.array_equal(scaled(SMALL, 4.0), SMALL / 4)
    assert scaled.stats()["compiled_calls"] == 2


def test_where_both_arms_cannot_be_compiled_nothing_is():
    @jitted
    def f(x, out):
        if x.sum() > 100:
            out.append(1)
        else:
            out.append(2)
        return x * 2

    out = []
    for _ in range(3):
        f(SMALL, out)
    assert out == [2, 2, 2]
    assert f.stats()["compiled_calls"] == 0


def test_code_that_is_mostly_left_is_taken_out_and_the_report_says_why():
    seen = []
    f = clipped(seen)
    f(SMALL)
    for _ in range(40):
        f(LARGE)
    assert len(seen) == 40
    assert not f.__tiercel__.tiers.entries
    report = str(f.explain())
    assert "16 of 16 calls left it for the interpreter, most of them at line" in report, report


def test_code_that_is_left_now_and_then_stays():
    f = clipped([])
    for number in range(80):
        f(LARGE if number % 4 == 3 else SMALL)
    assert f.__tiercel__.tiers.entries


class Affine:
    """A model as people write it."""

    def __init__(self, scale):
        self.scale = np.full(4, scale)

    def __call__(self, x):
        return x * self.scale


def test_objects_that_are_called_are_walked():
    layers = [Affine(2.0), Affine(3.0)]

    @jitted
    def model(x):
        for layer in layers:
            x = layer(x)
        return x

    for _ in range(3):
        assert np.array_equal(model(SMALL), SMALL * 6)
    assert model.stats()["compiled_calls"] == 1, model.explain()
    layers[1] = Affine(5.0)
    assert np.array_equal(model(SMALL), SMALL * 10)


def test_a_call_method_of_the_object_itself_is_not_what_python_calls():
    layer = Affine(2.0)
    layer.__dict__["__call__"] = lambda x: x

    @jitted
    def model(x):
        return layer(x) + 0

    for _ in range(3):
        assert np.array_equal(model(SMALL), SMALL * 2)
