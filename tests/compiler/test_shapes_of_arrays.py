"""Shapes as Python values: tuples put together and compared, branches on sizes."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc
from tests.compiler.regions import ExitTaken
from tests.compiler.tracing import Compiled, compare
from tests.vm.inline import InlineBuilder

RNG = np.random.default_rng(17)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def joined(x):
    return x.reshape(x.shape[:-1] + (2, x.shape[-1] // 2)) * 2  # noqa: RUF005 - a tuple sum is what is tested


def repeated(x):
    return x.reshape((1,) * 2 + x.shape) * 2


def starred(x):
    return np.zeros((*x.shape[:-1], 3)) + x.sum()


def as_list(x):
    shape = list(x.shape)
    shape[-1] = 2
    shape.append(-1)
    return x.reshape(shape) + 1


def known_shape(x):
    return x * 2 if x.shape == (5, 8) else x * 3


def even(x):
    if x.ndim == 2 and x.shape[-1] % 2 == 0:
        return x.reshape(x.shape[0], -1, 2).sum(-1)
    return x.sum(-1, keepdims=True)


def nothing(x):
    if not x.shape[0]:
        return np.zeros(3, np.float32)
    return x[0, :3] + 0


def long(x, n):
    if n > 3:
        x = np.concatenate([x, x])
    return x * n


FUNCTIONS = [joined, repeated, starred, as_list, known_shape, even]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_like_python(function):
    compare(function, (floats(5, 8),))


@pytest.mark.parametrize("function", [joined, repeated, starred, as_list], ids=lambda f: f.__name__)
def test_of_any_size(function):
    compare(function, (floats(5, 8),), (floats(3, 4),), (floats(1, 2),))


def test_a_branch_on_sizes_takes_the_arm_of_the_sizes_at_hand():
    compiled = compare(even, (floats(5, 8),), (floats(2, 6),))
    with pytest.raises(ExitTaken):
        compiled(floats(2, 7))
    compare(even, (floats(5, 7),), (floats(2, 9),))


@pytest.mark.parametrize("function", [nothing, known_shape], ids=lambda f: f.__name__)
def test_sizes_of_either_arm(function):
    for shape in ((5, 8), (4, 8), (0, 8), (1, 3)):
        compare(function, (floats(*shape),))


def test_both_arms_where_nothing_is_assumed():
    compiled = Compiled(known_shape, floats(5, 8), speculate=False)
    for shape in ((5, 8), (4, 8), (5, 7)):
        x = floats(*shape)
        np.testing.assert_allclose(compiled(x), known_shape(x))


def test_what_was_guarded_is_known():
    def tail(x, n):
        if n < 2 or n > x.shape[0]:
            raise ValueError("n")
        return x[n:] - x[:-n]

    compare(tail, (floats(9), 2), (floats(9), 3), (floats(4), 4))


def test_calls_of_both_kinds_are_compiled_in_the_end():
    jitted = tc.jit(even, policy=tc.Policy(warmup_calls=0, hot_count=2, hot_time_ms=0.0, hot_total_ms=0.0))
    builder = InlineBuilder()
    jitted.__tiercel__.tiers.builder = lambda: builder
    for turn in range(40):
        x = floats(5, 8) if turn % 2 else floats(5, 7)
        np.testing.assert_allclose(jitted(x), even(x), rtol=1e-5)
    stats = jitted.stats()
    assert len(builder.submitted) == 2
    assert stats["compiled_calls"] > stats["interpreted_calls"], jitted.explain()
