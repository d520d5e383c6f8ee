"""Blocks that handle exceptions: compiled as if there was none, left where there is one."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc
from tests.compiler.tracing import Compiled, compare
from tests.vm.inline import InlineBuilder
from tiercel.compiler.abstract import Untraceable

RNG = np.random.default_rng(13)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def guarded(x, n):
    try:
        row = x[n]
    except IndexError:
        row = x[0] * 0
    return row + 1


def cleaned(x, n):
    y = x * 2
    try:
        y = y + x[n]
    finally:
        z = y - 1
    return y, z


def with_else(x, n):
    total = x.sum()
    try:
        row = x[n]
    except IndexError as error:
        return total, np.float32(len(error.args))
    else:
        total = total + row.sum()
    return total, row.max()


def in_a_loop(x, n):
    total = x[0] * 0
    for t in range(n):
        try:
            total = total + x[t]
        except IndexError:
            break
    return total


def neighbours(b):
    return sum(np.roll(np.roll(b, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))


@pytest.mark.parametrize("function", [guarded, cleaned, with_else, in_a_loop], ids=lambda f: f.__name__)
def test_without_an_exception(function):
    compare(function, (floats(4, 3), 2), (floats(5, 2), 0), (floats(3, 3), 1))


@pytest.mark.parametrize("function", [guarded, with_else, in_a_loop], ids=lambda f: f.__name__)
def test_an_exception_is_handled_by_the_interpreter(function):
    jitted = tc.jit(function, policy=tc.Policy(warmup_calls=0, hot_count=1, hot_time_ms=0.0, hot_total_ms=0.0))
    builder = InlineBuilder()
    jitted.__tiercel__.tiers.builder = lambda: builder
    x = floats(4, 3)
    for n in (1, 2, 3, 7, 1):
        for got, wanted in zip(jitted(x, n), function(x, n), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert jitted.stats()["compiled_calls"] >= 2, jitted.explain()


def test_generators_that_sum_walks():
    compare(neighbours, (np.arange(12, dtype=np.int64).reshape(3, 4),), (np.ones((5, 5), np.int64),))


def test_what_always_raises_is_not_compiled():
    def f(x):
        try:
            raise ValueError("always")
        except ValueError:
            return x * 2

    with pytest.raises(Untraceable):
        Compiled(f, floats(3))


def test_context_managers_run_in_python():
    def f(x):
        with np.errstate(divide="ignore"):
            return 1 / x

    with pytest.raises(Untraceable):
        Compiled(f, floats(3))


def test_memory_of_a_size_that_changes_from_pass_to_pass_is_refused_with_a_reason():
    def f(x, y):
        total = x[0, 0]
        for k in range(y.shape[0]):
            total = total + np.exp(x[:, k : k + 2]).cumsum().sum()
        return total

    jitted = tc.jit(f)
    jitted.warmup(floats(4, 3), floats(2))
    stats = jitted.stats()
    assert stats["compiled_calls"] or "from pass to pass" in str(jitted.explain()), jitted.explain()
