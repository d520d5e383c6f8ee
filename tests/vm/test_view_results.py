"""Results of compiled functions that share memory: views of arguments and of other results, the same object twice."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc
from tests.vm.at_once import jitted
from tiercel.testing import Arguments, copy_arguments, differences, observe

pytestmark = pytest.mark.usefixtures("way")


def same(function, compiled, *arguments):
    """Compare one compiled call with Python in everything a caller can see: `base` and shared memory included."""
    given = Arguments(arguments)
    expected = observe(function, copy_arguments(given))
    before = compiled.__tiercel__.tiers.compiled_calls
    actual = observe(compiled, copy_arguments(given))
    assert compiled.__tiercel__.tiers.compiled_calls == before + 1, compiled.explain()
    assert differences(expected, actual) == []


def warm(function, *arguments):
    made = jitted(function)
    for _ in range(3):
        made(*copy_arguments(Arguments(arguments)).args)
    assert made.__tiercel__.tiers.compiled_calls, made.explain()
    return made


def floats(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def part(x, n):
    return x[1:n]


def several_parts(x, n):
    return x[1:], x[::-1, 2], x[n], x[:, None], [x[..., 0], x.T[1:]]


def reordered(x, n):
    return x.T, x.reshape(-1), np.swapaxes(x, 0, 1), np.flip(x), np.split(x, 2, axis=1)[1]


def of_a_new_array(x, n):
    y = x * 2
    return y[1:], y.T


def of_a_result(x, n):
    y = x + n
    return y, y[1:], y


def of_a_result_before_it(x, n):
    y = x + n
    return y[1:][:, 0], y


def views_of_views(x, n):
    v = x[1:]
    w = v[:, 1:]
    return w[:n], v, x


def one_object_twice(x, n):
    v = x[1:]
    y = x * 2
    return v, v, y, {"y": y}["y"]


def after_a_write(x, n):
    x += n
    return x[1:], x


def from_a_place_on(x, n):
    v = x[n : n + 2]
    return v, x[-1:n:-1], v.shape


FUNCTIONS = [
    part, several_parts, reordered, of_a_new_array, of_a_result, of_a_result_before_it, views_of_views,
    one_object_twice, after_a_write, from_a_place_on,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_like_numpy(function):
    compiled = warm(function, floats(4, 6), 2)
    for shape, n in (((4, 6), 2), ((8, 4), 3), ((5, 10), 1)):
        same(function, compiled, floats(*shape), n)


@pytest.mark.parametrize("function", [part, several_parts, views_of_views, from_a_place_on])
def test_of_views(function):
    """A view of an argument that is itself a view has the base of that."""
    compiled = warm(function, floats(9, 6)[1:], 2)
    same(function, compiled, floats(7, 8)[2:], 2)
    same(function, compiled, floats(4, 4)[:], 2)


@pytest.mark.parametrize("function", [part, several_parts, views_of_views, from_a_place_on])
def test_of_strided_arguments(function):
    compiled = warm(function, floats(9, 6)[::2, ::-1], 2)
    same(function, compiled, floats(9, 6)[::2, ::-1], 2)
    same(function, compiled, floats(7, 8)[1:, 2:], 3)
    turned = warm(function, floats(9, 6).T, 2)
    same(function, turned, floats(7, 8).T, 3)
    other = warm(function, floats(9, 6).T[::2], 2)
    same(function, other, floats(8, 10).T[::2], 3)


def test_read_only_arguments_give_read_only_views():
    compiled = warm(part, floats(4, 6), 2)
    x = floats(5, 5).view()
    x.flags.writeable = False
    same(part, compiled, x, 3)
    with pytest.raises(ValueError, match="read-only"):
        compiled(x, 3)[0] = 1


def test_writes_through_a_view_are_seen():
    compiled = warm(part, floats(4, 6), 2)
    x = floats(5, 5)
    compiled(x, 3)[0] = 7
    np.testing.assert_array_equal(x[1], np.full(5, 7, np.float32))


def test_memory_lives_as_long_as_a_view_of_it():
    compiled = warm(of_a_new_array, floats(4, 6), 2)
    x = floats(200, 300)
    first, second = compiled(x, 2)
    assert first.base is second.base
    assert first.base.flags.owndata
    del second
    np.testing.assert_array_equal(first, (x * 2)[1:])


def test_views_of_tensors_are_tensors_of_their_storage():
    compiled = warm(views_of_views, tc.Tensor(floats(4, 6)), 2)
    x = tc.Tensor(floats(5, 6))
    before = compiled.__tiercel__.tiers.compiled_calls
    w, v, again = compiled(x, 2)
    assert compiled.__tiercel__.tiers.compiled_calls == before + 1
    assert again is x
    assert v._storage is x._storage is w._storage
    v[0, 0] = 5
    assert x[1, 0] == 5
    np.testing.assert_array_equal(np.asarray(w), np.asarray(x)[1:][:, 1:][:2])


def test_a_view_of_a_new_tensor():
    compiled = warm(of_a_result, tc.Tensor(floats(4, 6)), 2)
    y, v, again = compiled(tc.Tensor(floats(4, 6)), 2)
    assert again is y
    v[0] = 1
    np.testing.assert_array_equal(np.asarray(y)[1], np.ones(6, np.float32))
    assert v._storage is y._storage


def test_an_index_out_of_range_raises_as_numpy_does():
    def f(x, n):
        return x[n]

    compiled = warm(f, floats(4, 6), 2)
    same(f, compiled, floats(4, 6), 3)
    with pytest.raises(IndexError):
        compiled(floats(4, 6), 4)
    same(f, compiled, floats(4, 6), -1)


def test_strides_that_select_nothing_are_those_of_a_dense_array():
    """A row of docs/semantics.md: of axes of size one, and of arrays without elements."""
    compiled = warm(reordered, floats(4, 6), 2)
    x = np.ndarray((1, 6), np.float32, floats(30), 0, (8, 4))
    assert x.flags.c_contiguous
    assert reordered(x, 2)[0].strides == (4, 8)
    assert compiled(x, 2)[0].strides == (4, 24)
