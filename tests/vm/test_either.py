"""Results that are an argument itself or a new array, as running decides: the very objects, compared with Python."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc
from tests.vm.at_once import jitted
from tiercel.testing import Arguments, copy_arguments, differences, observe


def arrays(n=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 4), dtype=np.float32), rng.standard_normal((n, 4), dtype=np.float32)


def by_a_branch(x, y):
    return x if x.sum() > y.sum() else x + y


def one_of_two(x, y):
    return x if x.sum() > y.sum() else y


def one_of_three(x, y):
    z = x * 2
    if x.sum() > 0:
        z = x
    if y.sum() > 0:
        z = y
    return z, x.sum()


def early_exit(x, y):
    depth = 0
    likely = (x * y).sum(axis=-1)
    while depth < 4 and likely.min() < 0.5:
        x = x + np.maximum(y, 0)
        likely = (x * y).sum(axis=-1)
        depth += 1
    return x, likely, depth


def while_loop(x, y):
    while x.max() > 0.5:
        x = x * 0.5
    return x


def twice(x, y):
    z = x if x.sum() > 0 else x - y
    return z, [z, x], y


def several(x, y):
    z = x if x.sum() > 0 else x - y
    w = y if y.sum() > 0 else y * 2
    return z, w


def inner_branch(x, y):
    z = x
    for _ in range(3):
        if z.sum() < 2:
            z = z + 1
        else:
            z = z * 1
    while z.sum() > 100:
        if y.sum() > 0:
            z = x
        z = z if z.sum() > 3 else y
    return z if y.sum() > 0 else x


def clipped(x, y):
    if np.abs(x).max() <= 1.5:
        return x
    return np.clip(x, -1, 1)


def nested_returns(x, y):
    if x.sum() > 0:
        if y.sum() > 0:
            return x
        return y
    if y.sum() > 0:
        return x * y
    return x


FUNCTIONS = [
    by_a_branch, one_of_two, one_of_three, early_exit, while_loop, twice, several, inner_branch, clipped,
    nested_returns,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_like_python(function, way):
    compiled = jitted(function)
    kinds = set()
    for n in (3, 3, 3, 2, 5, 1):
        for seed in range(12):
            x, y = arrays(n, seed)
            given = Arguments((x + np.float32(0.3), y - np.float32(seed % 3) / 4))
            expected = observe(function, copy_arguments(given))
            own = copy_arguments(given)
            found = differences(expected, observe(compiled, own), tolerance=64.0)
            assert found == [], (n, seed)
            result = compiled(*given.args)
            first = result[0] if isinstance(result, tuple) else result
            kinds.add(next((i for i, a in enumerate(given.args) if first is a), "new"))
    tiers = compiled.__tiercel__.tiers
    assert tiers.compiled_calls > 20, compiled.explain()
    assert way == "python" or not tiers.entries[0].without, tiers.entries[0].without
    assert len(kinds) > 1, kinds


def test_a_tensor_comes_back_as_itself(way):
    compiled = jitted(by_a_branch)
    for seed in range(10):
        x, y = map(tc.Tensor, arrays(3, seed))
        got, want = compiled(x, y), by_a_branch(x, y)
        assert type(got) is type(want) is tc.Tensor
        assert (got is x) == (want is x)
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
    assert compiled.__tiercel__.tiers.compiled_calls


LIMITS = np.ones((3, 4), np.float32)


def from_the_environment(x):
    return x if x.sum() > 0 else LIMITS


def test_an_array_of_the_environment_comes_back_as_itself(way):
    compiled = jitted(from_the_environment)
    for seed in range(10):
        x, _ = arrays(3, seed)
        assert compiled(x) is from_the_environment(x)
    assert compiled.__tiercel__.tiers.compiled_calls


def written(x, y):
    x += 1
    return x if y.sum() > 0 else y * 2


def view_or_argument(x, y):
    return x if y.sum() > 0 else x[1:]


def shared(x, y):
    z = y * 2
    w = z if x.sum() > 0 else x
    return z, w


@pytest.mark.parametrize("function", [written, view_or_argument, shared], ids=lambda f: f.__name__)
def test_what_cannot_be_told_apart_stays_interpreted(function):
    compiled = jitted(function)
    for seed in range(6):
        given = Arguments(arrays(3, seed))
        expected = observe(function, copy_arguments(given))
        assert differences(expected, observe(compiled, copy_arguments(given)), tolerance=64.0) == []
    assert not compiled.__tiercel__.tiers.compiled_calls
