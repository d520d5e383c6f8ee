"""Compiled functions that write into their arguments do what the undecorated ones do: contents, aliases, exceptions."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc
from tests.vm.at_once import jitted
from tiercel.testing import Arguments, copy_arguments, differences, observe

pytestmark = pytest.mark.usefixtures("way")


def same(function, compiled, *arguments, mode="default", native=True):
    """Compare one call in everything a caller can see; `native` says whether compiled code must have taken it."""
    given = Arguments(arguments)
    expected = observe(function, copy_arguments(given), mode=mode)
    before = compiled.__tiercel__.tiers.compiled_calls
    actual = observe(compiled, copy_arguments(given), mode=mode)
    assert differences(expected, actual) == []
    took = compiled.__tiercel__.tiers.compiled_calls - before
    assert native is None or took == native, compiled.explain()


def warm(function, *arguments):
    """Jitted, compiled for such arguments."""
    made = jitted(function)
    for _ in range(3):
        made(*copy_arguments(Arguments(arguments)).args)
    assert made.__tiercel__.tiers.compiled_calls, made.explain()
    return made


def floats(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def added(x, y):
    x += y
    return x


def scaled_part(x, y):
    x[1:3] *= 2
    x[0] = y[0]


def by_a_mask(x, y):
    x[y > 0] = 0.5
    return y.sum() > 0


def several(x, y):
    x[...] = np.maximum(y, 0)
    y[0] = 3
    return x, {"y": y}["y"]


@pytest.mark.parametrize("function", [added, scaled_part, by_a_mask, several])
def test_contents_and_identities(function):
    compiled = warm(function, floats(4, 3), floats(4, 3))
    for n, m in ((4, 3), (3, 5), (9, 1), (5, 0), (100, 70)):
        same(function, compiled, floats(n, m), floats(n, m))


def test_overlapping_arguments_are_interpreted():
    compiled = warm(added, floats(9), floats(9))
    whole = floats(20)
    same(added, compiled, whole[1:], whole[:-1], native=False)
    same(added, compiled, whole[:-1], whole[1:], native=False)
    same(added, compiled, whole, whole, native=False)
    same(added, compiled, whole[:10], whole[10:])
    same(added, compiled, whole[10:], whole[:10])
    same(added, compiled, whole[5:5], whole[5:5])


def test_strided_arguments(way):
    compiled = warm(scaled_part, floats(8, 6)[::2, ::-1], floats(4, 6))
    for x in (floats(8, 6)[::2, ::-1], floats(3, 9)[::-1, 1:]):
        same(scaled_part, compiled, x, floats(*x.shape))
    for x in (floats(6, 10).T, floats(6, 10).T[::2]):
        same(scaled_part, warm(scaled_part, x, floats(*x.shape)), x, floats(*x.shape))
    whole = floats(30)
    # every element twice: none is to be written by compiled code, in whatever order
    twice = np.ndarray((5, 4), np.float32, whole, 0, (4, 4))
    same(scaled_part, compiled, twice, floats(5, 4), native=False)
    same(scaled_part, compiled, whole.reshape(5, 6)[:, ::2], whole[1:16].reshape(5, 3), native=False)
    assert way == "stub" or compiled.__tiercel__.tiers.entries[0].without


def test_what_cannot_be_written():
    compiled = warm(added, floats(5), floats(5))
    fixed = floats(5)
    fixed.flags.writeable = False
    same(added, compiled, fixed, floats(5), native=False)
    same(added, compiled, floats(5).astype(">f4"), floats(5), native=False)
    odd = np.zeros(21, np.uint8)[1:].view(np.float32)
    same(added, compiled, odd, floats(5), native=False)

    class Own(np.ndarray):
        pass

    same(added, compiled, floats(5).view(Own), floats(5), native=False)
    same(added, compiled, floats(5), 2.0, native=False)


def test_warnings_and_errors_of_floating_point():
    compiled = warm(added, floats(4), floats(4))
    large = np.array([1e38, 3e38, 1.0, np.inf], np.float32)
    for mode in ("default", "errstate raise"):
        same(added, compiled, large, large * np.float32(1), mode=mode, native=False)
        same(added, compiled, np.ones(4, np.float32), floats(4), mode=mode)


def test_exceptions_in_the_middle():
    def f(x, n):
        x += 1
        x[n] = 7
        return x

    compiled = warm(f, floats(4), 2)
    same(f, compiled, floats(5), 4)
    same(f, compiled, floats(5), 5, native=False)
    same(f, compiled, floats(5), -1)
    same(f, compiled, floats(5), -6, native=False)


def test_no_axes():
    compiled = warm(added, np.array(1.5), np.array(2.0))
    same(added, compiled, np.array(2.5), np.array(3.0))


def test_integers_wrap():
    compiled = warm(added, np.arange(5, dtype=np.int8), np.arange(5, dtype=np.int8))
    same(added, compiled, np.full(9, 120, np.int8), np.full(9, 100, np.int8))


def test_tensors_and_parameters_move_their_version():
    compiled = warm(added, tc.Tensor(floats(4)), tc.Tensor(floats(4)))
    x, y = tc.Tensor(floats(6)), tc.Tensor(floats(6))
    view = x[1:]
    version = x._storage.version
    before = compiled.__tiercel__.tiers.compiled_calls
    assert compiled(x, y) is x
    assert compiled.__tiercel__.tiers.compiled_calls == before + 1
    np.testing.assert_array_equal(np.asarray(x), floats(6) * 2)
    np.testing.assert_array_equal(np.asarray(view), (floats(6) * 2)[1:])
    assert x._storage.version > version
    fixed = tc.constant(tc.Tensor(floats(6)))
    with pytest.raises(ValueError, match="read-only"):
        compiled(fixed, y)


def test_a_parameter_that_is_trained_is_packed_anew():
    def step(x, w, g):
        y = x @ w
        w -= g
        return y

    x, g = floats(3, 64), floats(64, 32)
    compiled = jitted(step)
    w, plain = tc.Parameter(floats(64, 32) * 0.1), floats(64, 32) * np.float32(0.1)
    for _ in range(6):
        np.testing.assert_allclose(np.asarray(compiled(x, w, tc.Tensor(g))), step(x, plain, g), rtol=2e-4, atol=2e-4)
        np.testing.assert_allclose(np.asarray(w), plain, rtol=1e-6)
    assert compiled.__tiercel__.tiers.compiled_calls >= 3, compiled.explain()


STATE = floats(5)


class Holder:
    def __init__(self):
        self.state = floats(5)
        self.parts = [floats(5), floats(5)]


def test_arrays_of_the_environment():
    def f(holder, x):
        state = holder.state
        state *= 0.5
        holder.parts[1][...] = x
        STATE[...] += x
        return holder.state + STATE

    compiled = jitted(f)
    ours, theirs = Holder(), Holder()
    for n in range(5):
        x = floats(5) + np.float32(n)
        start = STATE.copy()
        want, state = f(theirs, x), STATE.copy()
        STATE[...] = start
        got = compiled(ours, x)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(STATE, state)
        np.testing.assert_array_equal(ours.state, theirs.state)
        np.testing.assert_array_equal(ours.parts, theirs.parts)
    assert compiled.__tiercel__.tiers.compiled_calls >= 2, compiled.explain()
    before = compiled.__tiercel__.tiers.compiled_calls
    ours.state = STATE  # two names of one array
    theirs.state = STATE.copy()
    compiled(ours, floats(5))
    assert compiled.__tiercel__.tiers.compiled_calls == before


def test_a_result_that_cannot_be_made_leaves_arguments_alone(monkeypatch):
    """A named tuple whose class has come to refuse: the interpreter meets that after the write, once."""
    from typing import NamedTuple

    class Pair(NamedTuple):
        a: np.ndarray
        n: int

    def f(x, n):
        x += 1
        return Pair(x, n)

    compiled = warm(f, floats(3), 2)

    def refuse(cls, *args):
        raise ValueError("no")

    monkeypatch.setattr(Pair, "__new__", refuse)
    x = floats(3)
    with pytest.raises(ValueError, match="no"):
        compiled(x, 2)
    np.testing.assert_array_equal(x, floats(3) + 1)


def test_memory_between_the_phases_is_given_back():
    from tiercel.vm.entry import ARENAS

    compiled = warm(added, floats(8), floats(8))
    for n in (8, 5000, 200_000):
        same(added, compiled, floats(n), floats(n))
    with tc.context(memory_limit=1 << 30):
        compiled(floats(50_000), floats(50_000))
        assert ARENAS.active == 0
        large = np.full(50_000, 3e38, np.float32)
        with np.errstate(over="ignore"):
            compiled(large, large.copy())
        assert ARENAS.active == 0
