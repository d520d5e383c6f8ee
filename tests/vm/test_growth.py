"""Caches that grow in compiled code: contents, memory, old references, branches, and code that stops on the way."""

from __future__ import annotations

import numpy as np
import pytest

from tests.vm.test_dispatch import call, heat, tiers_of, way  # noqa: F401  the fixture runs all ways to call
from tiercel import Tensor
from tiercel.vm.context import machine


def append(cache, step):
    return np.concatenate([cache, step], axis=1)


def append_first(cache, step):
    return np.concatenate([cache, step]), step.sum()


def attend(q, k, v, keys, values):
    keys = np.concatenate([keys, k], axis=1)
    values = np.concatenate([values, v], axis=1)
    scores = q @ keys.swapaxes(-1, -2)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ values, keys, values


def step(number, size=1):
    return np.full((2, size, 3), number, "float32") + np.arange(3, dtype="float32")


def compiled(function, *arguments):
    tiers, _ = tiers_of(function)
    heat(tiers, *arguments, times=9)
    assert tiers.compiled_calls
    return tiers


def block_of(tensor):
    return tensor._storage.block


def grow(tiers, times, cache=None, want=None):
    cache = Tensor(np.zeros((2, 0, 3), "float32")) if cache is None else cache
    want = np.zeros((2, 0, 3), "float32") if want is None else want
    for number in range(times):
        cache, want = call(tiers, cache, step(number)), np.concatenate([want, step(number)], axis=1)
    return cache, want


@pytest.fixture
def grower():
    """`append`, compiled for compact caches and for those with spare capacity."""
    tiers = compiled(append, Tensor(np.ones((2, 4, 3), "float32")), step(0))
    for _ in range(3):
        grow(tiers, 12)
    return tiers


def test_contents_and_few_blocks(grower):
    cache, want = Tensor(np.zeros((2, 0, 3), "float32")), np.zeros((2, 0, 3), "float32")
    before = grower.compiled_calls
    blocks = []
    for number in range(200):
        cache, want = call(grower, cache, step(number)), np.concatenate([want, step(number)], axis=1)
        blocks.append(block_of(cache))
        assert type(cache) is Tensor
    np.testing.assert_array_equal(cache._array, want)
    assert grower.compiled_calls > before + 150
    assert len({id(b) for b in blocks if b is not None}) < 10


def test_old_references_and_branches(grower):
    old, want = grow(grower, 9)
    a, b = call(grower, old, step(50)), call(grower, old, step(60))
    assert block_of(a) is block_of(old) is not block_of(b)
    np.testing.assert_array_equal(old._array, want)
    np.testing.assert_array_equal(a._array, np.concatenate([want, step(50)], axis=1))
    np.testing.assert_array_equal(b._array, np.concatenate([want, step(60)], axis=1))
    a[0] = -1
    np.testing.assert_array_equal(old._array, want)


def test_exported_memory_is_not_grown_into(grower):
    old, want = grow(grower, 9)
    array = np.asarray(old)
    new = call(grower, old, step(50))
    array[...] = 0
    np.testing.assert_array_equal(new._array, np.concatenate([want, step(50)], axis=1))


def test_interpreted_and_compiled_steps_take_turns(grower):
    cache, want = grow(grower, 9)
    for number in range(10):
        cache = np.concatenate([cache, step(number)], axis=1) if number % 2 else call(grower, cache, step(number))
        want = np.concatenate([want, step(number)], axis=1)
    np.testing.assert_array_equal(cache._array, want)


def test_arrays_are_copied(grower):
    cache = np.zeros((2, 3, 3), "float32")
    heat(grower, cache, step(1), times=9)
    result = call(grower, cache, step(1))
    assert type(result) is np.ndarray
    assert not np.shares_memory(result, cache)
    reasons = [line.reason for line in machine().ledger.lines("copy")]
    assert any("a tc.Tensor grows in place" in reason for reason in reasons)


def test_several_steps_at_once(grower):
    cache, want = grow(grower, 9)
    for size in (1, 3, 0, 2):
        cache, want = call(grower, cache, step(7, size)), np.concatenate([want, step(7, size)], axis=1)
        np.testing.assert_array_equal(cache._array, want)


def test_along_the_first_axis():
    tiers = compiled(append_first, Tensor(np.ones((4, 3), "float32")), np.ones((1, 3), "float32"))
    cache, want = Tensor(np.zeros((0, 3), "float32")), np.zeros((0, 3), "float32")
    for number in range(40):
        part = np.full((1, 3), number, "float32")
        (cache, total), want = call(tiers, cache, part), np.concatenate([want, part])
        assert total == 3 * number
        assert cache.is_contiguous()
    np.testing.assert_array_equal(cache._array, want)
    assert block_of(cache) is not None


def test_sizes_that_do_not_fit_raise(grower):
    cache, want = grow(grower, 9)
    with pytest.raises(ValueError, match="dimension"):
        call(grower, cache, np.zeros((3, 1, 3), "float32"))
    np.testing.assert_array_equal(call(grower, cache, step(1))._array, np.concatenate([want, step(1)], axis=1))


def test_a_flag_leaves_the_cache_as_it_was():
    """NumPy warns, so the interpreter runs the call: what was reserved is given back, and nothing is doubled."""
    tiers, _ = tiers_of(attend)
    empty = Tensor(np.zeros((2, 0, 3), "float32"))
    keys = values = empty
    for number in range(20):
        _, keys, values = call(tiers, step(1), step(number), step(number), keys, values)
    assert tiers.compiled_calls
    before = keys._array.copy()
    bad = np.full((2, 1, 3), np.inf, "float32")
    with np.errstate(invalid="warn"), pytest.warns(RuntimeWarning):
        _, new, _ = call(tiers, step(1), bad, bad, keys, values)
    np.testing.assert_array_equal(keys._array, before)
    np.testing.assert_array_equal(new._array, np.concatenate([before, bad], axis=1))


def test_attention_over_a_growing_cache():
    tiers, _ = tiers_of(attend)
    for _ in range(2):
        keys = values = Tensor(np.zeros((2, 0, 3), "float32"))
        want_keys = want_values = np.zeros((2, 0, 3), "float32")
        for number in range(40):
            q, k, v = (np.sin(step(number * n)) for n in (1, 2, 3))
            got, keys, values = call(tiers, q, k, v, keys, values)
            want, want_keys, want_values = attend(q, k, v, want_keys, want_values)
            np.testing.assert_allclose(got._array, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(values._array, want_values)
    assert tiers.compiled_calls > 50
