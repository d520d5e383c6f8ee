"""Compiled functions of sequences of different lengths, compared with the class `Ragged` itself."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc
from tests.vm.at_once import jitted


def sequences(*lengths, size=4, seed=0, wrap=False):
    rng = np.random.default_rng(seed + sum(lengths))
    made = tc.ragged([rng.standard_normal((n, size), dtype=np.float32) for n in lengths])
    return tc.Ragged(tc.Tensor(made.values), made.offsets) if wrap else made


LENGTHS = [(3, 1, 5), (2, 2), (7,), (1, 0, 4, 2), (0, 3), (1,), (16, 9, 1, 1)]
W = np.random.default_rng(1).standard_normal((4, 6), dtype=np.float32)
ROW = np.arange(4, dtype=np.float32) / 4


def elementwise(x, w, row):
    y = np.exp(x * 0.5) + row
    y -= np.maximum(x, 0)
    return -y, (1 - y) / 2, y > 0, abs(y) ** 2


def product(x, w, row):
    return np.tanh(x @ w + w[0])


def softmax(x, w, row):
    y = np.exp(x - x.max(axis=-1, keepdims=True))
    return y / y.sum(axis=2, keepdims=True), y.mean(axis=-1), x.min()


def layer(steps, w):
    return np.maximum(steps @ w, 0)


def mapped(x, w, row):
    y = x.map(layer, w)
    return y, y.map(lambda a, b: a + b, y), x.with_values(x.values * 2)


def attributes(x, w, row):
    if x.ndim != 3 or len(x) < 1 or x.shape[1] is not None:
        return x.values
    return x.values * x.shape[2], x.lengths + len(x), x.offsets, x.shape[0]


def twice(x, w, row):
    y = x + x
    return y, [y.astype(np.float64), (y * row).sum()]


def by_a_branch(x, w, row):
    y = x * 2
    if x.sum() > 0:
        y = y + row
    return y


FUNCTIONS = [elementwise, product, softmax, mapped, attributes, twice, by_a_branch]


def parts(value):
    """The leaves of a result; a Ragged as its values and offsets."""
    if isinstance(value, tc.Ragged):
        assert type(value.offsets) is np.ndarray
        assert not value.offsets.flags.writeable
        return [("ragged", type(value.values)), value.values, value.offsets]
    if isinstance(value, tuple | list):
        return [(type(value), len(value)), *(leaf for item in value for leaf in parts(item))]
    return [value]


def assert_alike(got, want):
    ours, theirs = parts(got), parts(want)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert type(a) is type(b)
        if isinstance(b, tuple):
            assert a == b
            continue
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=1e-6)
        if isinstance(b, np.ndarray) and b.size and 1 not in b.shape:
            assert a.strides == b.strides


@pytest.mark.parametrize("wrap", [False, True], ids=["ndarray", "Tensor"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_like_the_class(function, wrap, way):
    compiled = jitted(function)
    for lengths in LENGTHS:
        x = sequences(*lengths, wrap=wrap)
        before = x.values.copy(), x.offsets.copy()
        assert_alike(compiled(x, W, ROW), function(x, W, ROW))
        np.testing.assert_array_equal(np.asarray(x.values), np.asarray(before[0]))
        np.testing.assert_array_equal(x.offsets, before[1])
    tiers = compiled.__tiercel__.tiers
    assert tiers.compiled_calls >= 4, compiled.explain()
    assert way == "python" or not tiers.entries[0].without, tiers.entries[0].without
    assert len(tiers.signatures) == 1


def test_results_share_the_offsets():
    compiled = jitted(product)
    for _ in range(3):
        x = sequences(3, 2)
        assert compiled(x, W, ROW).offsets is x.offsets
    assert compiled.__tiercel__.tiers.compiled_calls
    assert (x * 2).offsets is x.offsets


def two(x, y):
    return x * y + x


def test_two_of_the_same_lengths(way):
    compiled = jitted(two)
    for lengths in ((3, 2), (3, 2), (3, 2), (4, 1), (2, 9)):
        x, y = sequences(*lengths), sequences(*lengths, seed=5)
        assert_alike(compiled(x, y), two(x, y))
    took = compiled.__tiercel__.tiers.compiled_calls
    assert took, compiled.explain()
    with pytest.raises(tc.ShapeError, match="sequences of lengths"):
        compiled(sequences(3, 2), sequences(2, 3))
    with pytest.raises(tc.ShapeError, match="sequences of lengths"):
        compiled(sequences(3, 2), sequences(3, 2, 1))
    assert compiled.__tiercel__.tiers.compiled_calls == took


def passed(x, w, row):
    return x


def per_sequence(x, w, row):
    return x.sum(axis=1) * 2


def one_for_each(x, w, row):
    return x - x.mean(axis=1, keepdims=True)


def walks(x, w, row):
    return [s.sum() for s in x]


@pytest.mark.parametrize("function", [passed, per_sequence, one_for_each, walks], ids=lambda f: f.__name__)
def test_what_is_not_compiled_is_right_all_the_same(function):
    compiled = jitted(function)
    for lengths in ((3, 1, 5), (3, 1, 5), (2, 2), (1, 4)):
        x = sequences(*lengths)
        assert_alike(compiled(x, W, ROW), function(x, W, ROW))
    assert compiled(x, W, ROW) is x or function is not passed
    assert not compiled.__tiercel__.tiers.compiled_calls


def test_no_in_place_operator_writes_into_an_argument():
    def f(x):
        y = x
        y += 1
        return y * 2

    compiled = jitted(f)
    for _ in range(4):
        x = sequences(2, 3)
        before = x.values.copy()
        assert_alike(compiled(x), f(x))
        np.testing.assert_array_equal(x.values, before)
    assert compiled.__tiercel__.tiers.compiled_calls
