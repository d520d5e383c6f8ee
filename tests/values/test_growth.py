"""Caches that grow in place: contents as NumPy has them, whatever is written, viewed or handed out, and few copies."""

from __future__ import annotations

import copy
import gc
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiercel as tc
from tiercel import Tensor, ops
from tiercel.values import growth


def grown(length=5, axis=1, dtype="float32"):
    """A cache of so many steps, grown one by one, and the array it should equal."""
    shape = [2, 2, 3]
    shape[axis] = 0
    cache, want = Tensor(np.zeros(shape, dtype)), np.zeros(shape, dtype)
    for number in range(length):
        part = step(number, axis, dtype)
        cache, want = np.concatenate([cache, part], axis=axis), np.concatenate([want, part], axis=axis)
    return cache, want


def step(number, axis=1, dtype="float32"):
    shape = [2, 2, 3]
    shape[axis] = 1
    return np.full(shape, number, dtype) + np.arange(3, dtype=dtype)[: shape[2]]


def block_of(tensor):
    return tensor._storage.block if tensor._storage is not None else None


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
def test_contents(axis, dtype):
    if dtype == "bfloat16":
        dtype = tc.dtypes.as_dtype(dtype).numpy
    cache, want = grown(40, axis, dtype)
    assert type(cache) is Tensor
    assert (cache.shape, cache.dtype) == (want.shape, want.dtype)
    np.testing.assert_array_equal(cache._array, want)
    assert block_of(cache) is not None


def test_few_copies():
    """512 steps make a handful of blocks, not 512."""
    cache = Tensor(np.zeros((2, 0, 4), "float32"))
    blocks = {}
    for number in range(512):
        cache = np.concatenate([cache, np.full((2, 1, 4), number, "float32")], axis=1)
        if block_of(cache) is not None:
            blocks[id(block_of(cache))] = block_of(cache)
    assert 1 < len(blocks) < 8
    np.testing.assert_array_equal(np.asarray(cache)[0, :, 0], np.arange(512))


def test_ops_concat_grows():
    cache = Tensor(np.zeros((0, 2), "float32"))
    for number in range(4):
        cache = ops.concat([cache, np.full((1, 2), number, "float32")], axis=0)
    before = block_of(cache)
    cache = ops.concat([cache, Tensor(np.full((1, 2), 4, "float32"))], axis=0)
    assert block_of(cache) is before is not None


def test_a_compact_result_the_first_time():
    """What is concatenated once is no cache, and lies as NumPy's result does."""
    cache = np.concatenate([Tensor(np.ones((2, 3))), np.ones((2, 1))], axis=1)
    assert block_of(cache) is None
    assert cache.is_contiguous()


def test_old_reference_keeps_its_content():
    old, want = grown()
    new = np.concatenate([old, step(9)], axis=1)
    assert block_of(new) is block_of(old)
    np.testing.assert_array_equal(np.asarray(old), want)
    assert new.shape[1] == want.shape[1] + 1


def test_two_branches():
    old, want = grown()
    a, b = np.concatenate([old, step(7)], axis=1), np.concatenate([old, step(8)], axis=1)
    a2, b2 = np.concatenate([a, step(1)], axis=1), np.concatenate([b, step(2)], axis=1)
    assert block_of(a) is not block_of(b)
    for got, tail in ((a2, (7, 1)), (b2, (8, 2))):
        np.testing.assert_array_equal(np.asarray(got), np.concatenate([want, *map(step, tail)], axis=1))


@pytest.mark.parametrize("writer", ["old", "new", "view of old", "view of new"])
@pytest.mark.parametrize("how", ["item", "in place", "out", "method", "at", "copyto", "asarray", "numpy function"])
def test_writes_do_not_show_in_the_other(writer, how):
    old, want = grown()
    view_before = None
    new = np.concatenate([old, step(9)], axis=1)
    assert block_of(new) is block_of(old) is not None
    source = old if "old" in writer else new
    target = source[:, :2] if "view" in writer else source
    del view_before
    wants = {"old": want.copy(), "new": np.concatenate([want, step(9)], axis=1)}
    changed = wants["old" if "old" in writer else "new"]
    changed = changed[:, :2] if "view" in writer else changed
    match how:
        case "item":
            target[0, 1] = 77
            changed[0, 1] = 77
        case "in place":
            target += 5
            changed += 5
        case "out":
            np.add(target, 1, out=target)
            changed += 1
        case "method":
            target.fill(3)
            changed.fill(3)
        case "at":
            np.add.at(target, 0, 2)
            np.add.at(changed, 0, 2)
        case "copyto":
            np.copyto(target, 4)
            changed[...] = 4
        case "asarray":
            np.asarray(target)[1] = -1
            changed[1] = -1
        case "numpy function":
            np.clip(target, 1, 2, out=target)
            np.clip(changed, 1, 2, out=changed)
    np.testing.assert_array_equal(old._array, wants["old"])
    np.testing.assert_array_equal(new._array, wants["new"])
    np.testing.assert_array_equal(target._array, changed)
    more = np.concatenate([new, step(3)], axis=1)
    np.testing.assert_array_equal(more._array, np.concatenate([wants["new"], step(3)], axis=1))


def test_writing_moves_the_version():
    old, _ = grown()
    new = np.concatenate([old, step(9)], axis=1)
    before = old.version, new.version
    new[0] = 1
    assert new.version != before[1]
    assert old.version == before[0]


def test_an_exported_array_never_changes_and_is_not_shared():
    old, want = grown()
    array = np.asarray(old)
    new = np.concatenate([old, step(9)], axis=1)
    assert not np.shares_memory(array, new._array)
    array[...] = 0
    np.testing.assert_array_equal(new._array, np.concatenate([want, step(9)], axis=1))
    del array
    old, want = grown()
    view = np.asarray(old)[0]
    new = np.concatenate([old, step(9)], axis=1)
    assert not np.shares_memory(view, new._array)


def test_exporting_after_growing():
    old, want = grown()
    new = np.concatenate([old, step(9)], axis=1)
    out = np.from_dlpack(old)
    np.testing.assert_array_equal(out, want)
    exported = np.asarray(new)
    assert exported.flags.writeable
    exported[...] = 5
    np.testing.assert_array_equal(old._array, want)
    assert (new._array == 5).all()


def test_a_view_stands_in_the_way_of_growing():
    """A view that is alive may be written to, which must not show in what was grown after it was made."""
    old, want = grown()
    view = old[:, :1]
    new = np.concatenate([old, step(9)], axis=1)
    view[...] = 50
    np.testing.assert_array_equal(new._array, np.concatenate([want, step(9)], axis=1))
    assert (old._array[:, :1] == 50).all()
    del view
    before = block_of(old)
    newer = np.concatenate([new, step(1)], axis=1)
    newest = np.concatenate([newer, step(2)], axis=1)
    assert block_of(newest) is block_of(newer) is not before


def test_other_dtypes_and_shapes_are_numpys_affair():
    old, want = grown()
    wider = np.concatenate([old, step(9, dtype="float64")], axis=1)
    assert wider.dtype == np.float64
    with pytest.raises(ValueError, match="dimension"):
        np.concatenate([old, np.zeros((3, 1, 3), "float32")], axis=1)
    with pytest.raises(np.exceptions.AxisError):
        np.concatenate([old, step(9)], axis=5)
    several = np.concatenate([old, step(1), Tensor(step(2)), np.zeros((2, 0, 3), "float32")], axis=1)
    np.testing.assert_array_equal(several._array, np.concatenate([want, step(1), step(2)], axis=1))
    other = np.concatenate([old, np.ones((2, 5, 1), "float32")], axis=2)
    assert other.shape == (2, 5, 4)


def test_copies_and_pickles():
    old, want = grown()
    new = np.concatenate([old, step(9)], axis=1)
    for made in (copy.copy(new), copy.deepcopy(new), pickle.loads(pickle.dumps(new)), new.copy()):
        made[...] = 0
    np.testing.assert_array_equal(new._array, np.concatenate([want, step(9)], axis=1))


def test_threads_that_append_to_one_cache():
    """Each gets its own continuation."""
    for _ in range(20):
        cache, want = grown(6)
        results = {}

        def run(number, cache=cache, results=results):
            results[number] = np.concatenate([cache, step(number)], axis=1)

        threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, got in results.items():
            np.testing.assert_array_equal(got._array, np.concatenate([want, step(number)], axis=1))


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["grow", "write", "view", "write view", "export", "drop"])),
        max_size=25,
    )
)
@settings(max_examples=60, deadline=None)
def test_any_history(history):
    """Tensors and arrays that go the same way through growth, writes, views and exports stay equal."""
    cache, want = grown(3)
    pairs = [(cache, want)]
    for number, (place, what) in enumerate(history):
        tensor, array = pairs[place % len(pairs)]
        match what:
            case "grow":
                if array.ndim == 3 and array.shape[0] == 2 and array.shape[2] == 3:
                    pairs.append(
                        (np.concatenate([tensor, step(number)], axis=1), np.concatenate([array, step(number)], axis=1))
                    )
            case "write":
                tensor[0] = number
                array[0] = number
            case "view":
                pairs.append((tensor[:, 1:], array[:, 1:]))
            case "write view":
                tensor[:, :1] += 1
                array[:, :1] += 1
            case "export":
                np.asarray(tensor)[1] = number
                array[1] = number
            case "drop":
                if len(pairs) > 1:
                    del pairs[place % len(pairs)]
        del tensor, array
        for got, wanted in pairs:
            np.testing.assert_array_equal(got._array, wanted)


def test_memory_of_caches_that_are_gone_is_used_again():
    """Only when nothing looks at it any more, and only a bounded amount of it."""

    def sequence(count=40):
        cache = Tensor(np.zeros((4, 0, 256), "float32"))
        for number in range(count):
            cache = np.concatenate([cache, np.full((4, 1, 256), number, "float32")], axis=1)
        return cache

    growth.SPARES.release()
    first = sequence()
    base = first._storage.block.base
    place, part = base.ctypes.data, np.asarray(first)[1:, :, :2]
    want = part.copy()
    del base, first
    gc.collect()
    second = sequence()
    assert second._storage.block.base.ctypes.data != place, "an array still looks at it"
    np.testing.assert_array_equal(part, want)
    again = second._storage.block.base.ctypes.data
    del second
    gc.collect()
    assert growth.SPARES.nbytes > 0
    third = sequence()
    assert third._storage.block.base.ctypes.data == again
    np.testing.assert_array_equal(np.asarray(third)[0, :, 0], np.arange(40))
    del third, part
    for size in range(40, 400, 40):
        sequence(size)
    gc.collect()
    assert 0 < growth.SPARES.nbytes <= growth.KEPT_BYTES
    tc.release_memory()
    assert growth.SPARES.nbytes == 0
