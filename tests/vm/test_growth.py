"""Caches that grow in compiled code: contents, memory, old references, branches, and code that stops on the way."""

from __future__ import annotations

import gc
import sys
import threading

import numpy as np
import pytest

from tests.vm.test_dispatch import call, heat, tiers_of, way  # noqa: F401  the fixture runs all ways to call
from tiercel import Tensor
from tiercel.values import growth
from tiercel.values.storage import Storage
from tiercel.vm import growing
from tiercel.vm.context import machine
from tiercel.vm.entry import MISS


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


def test_memory_of_which_a_part_is_exported_is_not_grown_into(grower):
    old, want = grow(grower, 40)
    block = block_of(old)
    part = np.asarray(old)[1:]
    assert part.base is block.base
    new = call(grower, old, step(50))
    part[...] = 0
    np.testing.assert_array_equal(new._array, np.concatenate([want, step(50)], axis=1))
    assert block_of(new) is not block


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


def test_growing_asks_python_only_where_there_is_no_room(grower, way, monkeypatch):  # noqa: F811
    """In machine code: what is claimed, made and watched is what `values.growth` would have made."""
    if way == "python":
        pytest.skip("entered from Python")
    asked = []
    monkeypatch.setattr(growing, "reserve", lambda *given: asked.append(given) or growth.reserve(*given))
    cache, want = grow(grower, 9)
    for number in range(300):
        before = cache
        cache, want = call(grower, cache, step(number)), np.concatenate([want, step(number)], axis=1)
        block = block_of(cache)
        if block is not None:
            assert block.filled == cache.shape[1]
            assert any(t is cache for t in block.tensors())
            assert len(block.holders) < 20
        storage = cache._storage
        assert (storage.version, storage.guarded, storage.frozen, storage.grown, storage.owner) == (0, 0, 0, 1, None)
        assert not cache._array.flags.writeable
        assert cache._array.base is block.base
        assert before.shape[1] == cache.shape[1] - 1
    np.testing.assert_array_equal(cache._array, want)
    assert len(asked) < 20
    cache += 1  # writing moves the version, and is its own
    assert cache._storage.version > 0
    np.testing.assert_array_equal(cache._array, want + 1)
    np.testing.assert_array_equal(before._array, want[:, :-1])


def test_nothing_is_left_over(grower):
    """References to what takes part stay as many as they were."""
    part = step(3)

    def many():
        cache = Tensor(np.zeros((2, 0, 3), "float32"))
        for _ in range(200):
            cache = call(grower, cache, part)
        return sys.getrefcount(block_of(cache)), sys.getrefcount(block_of(cache).base), sys.getrefcount(cache._array)

    first = many()
    kept = (growth.Block, Storage, Tensor, part, part.dtype, None, False)
    rounds = []
    for _ in range(4):
        gc.collect()
        before = [sys.getrefcount(x) for x in kept]
        assert many() == first
        gc.collect()
        rounds.append([abs(sys.getrefcount(x) - b) for x, b in zip(kept, before, strict=True)])
    # what each of 200 steps keeps or loses shows in every round; what else goes on in the process does not
    assert all(min(differences) < 60 for differences in zip(*rounds, strict=True)), rounds


def test_threads_that_grow_one_cache(grower):
    """Of all who append to one Tensor one may take the memory behind it; everybody gets what he appended."""
    for _ in range(20):
        old, want = grow(grower, 9)
        results = {}
        start = threading.Barrier(4)

        def work(number, old=old, results=results, start=start):
            start.wait()
            cache = old
            for more in range(5):
                cache = call(grower, cache, step(10 * number + more))
            results[number] = cache

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, cache in results.items():
            parts = [step(10 * number + more) for more in range(5)]
            np.testing.assert_array_equal(cache._array, np.concatenate([want, *parts], axis=1))
        np.testing.assert_array_equal(old._array, want)


def test_another_name_for_the_array_stands_in_the_way(grower):
    old, want = grow(grower, 9)
    array = old._array
    new = call(grower, old, step(1))
    assert block_of(new) is not block_of(old)
    np.testing.assert_array_equal(array, want)


def test_code_that_stops_gives_back_what_was_claimed(way):  # noqa: F811
    """The code runs to a check that does not hold, after room was reserved."""
    if way != "wrapper":
        pytest.skip("the stub by itself")

    def guarded(cache, step, at):
        return np.concatenate([cache, step], axis=1), step[0, 0, at]

    tiers, _ = tiers_of(guarded)
    cache = Tensor(np.zeros((2, 0, 3), "float32"))
    for number in range(40):
        cache, _ = call(tiers, cache, step(number), 1)
    assert tiers.compiled_calls
    block, stub = block_of(cache), tiers.fast.cell_contents
    filled = block.filled
    assert filled == 40 < block.base.shape[1]
    for _ in range(3):
        assert stub(cache, step(0), 7) is MISS
        assert block.filled == filled
    again, _ = call(tiers, cache, step(5), 2)
    assert block_of(again) is block
    np.testing.assert_array_equal(again._array, np.concatenate([cache._array, step(5)], axis=1))
    with pytest.raises(IndexError):
        call(tiers, again, step(0), 7)


def test_room_that_somebody_has_claimed_is_not_taken(grower):
    """As it looks while another thread's code writes there."""
    old, want = grow(grower, 40)
    block = block_of(old)
    block.filled += 1
    new = call(grower, old, step(1))
    assert block_of(new) is not block
    block.filled -= 1
    block.marks[growth.BUSY] = 1
    newer = call(grower, old, step(1))
    assert block.marks[growth.BUSY] == 0, "Python did it"
    assert block_of(newer) is block
    np.testing.assert_array_equal(new._array, np.concatenate([want, step(1)], axis=1))
