"""Ragged values against the same on each sequence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiercel as tc
from tiercel import Ragged, ShapeError, Tensor, ragged

LENGTHS = [3, 0, 5, 1]


def parts(lengths=LENGTHS, inner=(4,), seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, *inner)).astype("float32") for n in lengths]


def same(got, want):
    assert isinstance(got, Ragged)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(0, 3))
def test_lists_and_padded_arrays_and_back(lengths, more):
    given_ = parts(lengths)
    x = ragged(given_)
    same(x, given_)
    padded, sizes = x.padded(fill=9, length=max(lengths) + more)
    assert sizes.tolist() == lengths
    assert padded.shape == (len(lengths), max(lengths) + more, 4)
    for row, one in zip(padded, given_, strict=True):
        assert (row[len(one) :] == 9).all()
    same(ragged(padded, sizes), given_)


def test_what_it_is():
    x = ragged(parts())
    assert (x.shape, x.ndim, x.dtype, len(x)) == ((4, None, 4), 3, np.float32, 4)
    assert x.lengths.tolist() == LENGTHS
    assert np.shares_memory(x[0], x.values)
    assert "4 sequences" in repr(x)
    same(x[1:3], parts()[1:3])
    same(x[np.array([True, False, False, True])], [parts()[0], parts()[3]])
    same(x[[2, 0]], [parts()[2], parts()[0]])
    np.testing.assert_array_equal(x[-1], parts()[3])
    with pytest.raises(IndexError):
        x[4]
    assert isinstance(ragged([Tensor(p) for p in parts()]).values, Tensor)


def test_elementwise():
    given_ = parts()
    x = ragged(given_)
    same(np.exp(x * 2 + 1), [np.exp(p * 2 + 1) for p in given_])
    same(1 - x, [1 - p for p in given_])
    same(-x, [-p for p in given_])
    same(x > 0, [p > 0 for p in given_])
    same(x == x, [p == p for p in given_])
    bias = np.arange(4, dtype="float32")
    same(x + bias, [p + bias for p in given_])
    same(bias / x, [bias / p for p in given_])
    each = np.arange(16, dtype="float32").reshape(4, 1, 4)
    same(x + each, [p + e for p, e in zip(given_, each, strict=True)])
    same(x * each[:1], [p * each[0] for p in given_])
    same(x + x, [p + p for p in given_])
    same(x.astype("float64"), [p.astype("float64") for p in given_])
    fraction, exponent = np.frexp(x)
    same(fraction, [np.frexp(p)[0] for p in given_])
    same(exponent, [np.frexp(p)[1] for p in given_])


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
def test_reductions(name):
    given_ = parts([3, 2, 5, 1])
    x = ragged(given_)
    same(getattr(x, name)(axis=2), [getattr(p, name)(axis=-1) for p in given_])
    same(getattr(x, name)(axis=-1, keepdims=True), [getattr(p, name)(axis=-1, keepdims=True) for p in given_])
    want = np.stack([getattr(p, name)(axis=0) for p in given_])
    got = getattr(x, name)(axis=1)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_allclose(getattr(x, name)(axis=1, keepdims=True), want[:, None], rtol=1e-6)
    np.testing.assert_allclose(getattr(x, name)(), getattr(np.concatenate(given_), name)(), rtol=1e-6)
    same(x - getattr(x, name)(axis=1, keepdims=True), [p - getattr(p, name)(axis=0) for p in given_])


def test_reductions_of_sequences_without_steps():
    x = ragged(parts())
    np.testing.assert_array_equal(x.sum(axis=1)[1], np.zeros(4))
    assert np.isnan(x.mean(axis=1)[1]).all()
    with pytest.raises(ValueError, match="number 1"):
        x.max(axis=1)
    with pytest.raises(ShapeError, match="different lengths"):
        x.sum(axis=0)
    with pytest.raises(np.exceptions.AxisError):
        x.sum(axis=3)
    assert ragged([np.ones((2, 3), "int8")]).sum(axis=1).dtype == np.ones((2, 3), "int8").sum(axis=0).dtype


def test_products_with_shared_weights():
    w = np.random.default_rng(1).standard_normal((4, 3)).astype("float32")
    same(ragged(parts()) @ w, [p @ w for p in parts()])
    with pytest.raises(ShapeError):
        ragged(parts()) @ ragged(parts())


def test_map_compiles_once_for_any_number_of_steps():
    @tc.jit
    def layer(x, w):
        return np.maximum(x @ w, 0)

    w = np.random.default_rng(1).standard_normal((4, 3)).astype("float32")
    layer.warmup(np.zeros((5, 4), "float32"), w)
    for lengths in ([3, 1], [7, 0, 2], [1]):
        same(ragged(parts(lengths)).map(layer, w), [np.maximum(p @ w, 0) for p in parts(lengths)])
    assert layer.stats()["compiles"] <= 1
    with pytest.raises(ShapeError, match="steps"):
        ragged(parts()).map(lambda x: x[:2])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ragged(np.zeros((3, 2)), [0, 2]), lambda: Ragged(np.zeros((3, 2)), [0, 2, 1, 3]),
        lambda: Ragged(np.zeros((3, 2)), [1, 3]), lambda: Ragged(np.float32(1), [0]), lambda: ragged([]),
        lambda: ragged([np.zeros((2, 3)), np.zeros((2, 4))]), lambda: ragged(np.zeros((2, 3)), [1]),
        lambda: ragged(np.zeros((2, 3)), [1, 4]), lambda: ragged(np.zeros((2, 3)), [1.0, 2.0]),
        lambda: ragged(parts()).padded(length=2), lambda: ragged(parts()) + ragged(parts([1, 2, 5, 1])),
        lambda: ragged(parts()) + np.zeros((9, 4)), lambda: ragged(parts()).with_values(np.zeros(3)),
    ],
)  # fmt: skip
def test_what_does_not_fit(make):
    with pytest.raises(ShapeError):
        make()


@pytest.mark.parametrize("lengths", [[3, 0, 5, 1], [2, 2]])
def test_a_ragged_is_no_array(lengths):
    x = ragged(parts(lengths))
    for make in (np.asarray, lambda x: np.array(x, "float64"), lambda x: np.concatenate([x, x]), Tensor):
        with pytest.raises(TypeError, match=r"use \.values .* or \.padded\(\)"):
            make(x)
    same(np.exp(x), [np.exp(p) for p in parts(lengths)])
    same(np.float32(2) + x, [2 + p for p in parts(lengths)])


@pytest.mark.parametrize("kind", [np.asarray, Tensor])
def test_one_array_without_lengths_is_ambiguous(kind):
    with pytest.raises(ShapeError, match=r"one array \(5, 16\) without lengths; .*ragged\(array, lengths\)"):
        ragged(kind(np.zeros((5, 16), np.float32)))
    assert ragged([kind(np.zeros((5, 16), np.float32))]).shape == (1, None, 16)
    objects = np.empty(2, object)
    objects[:] = [np.zeros((2, 3)), np.zeros((4, 3))]
    assert ragged(objects).lengths.tolist() == [2, 4]


def test_the_message_for_an_empty_list_can_be_pasted():
    with pytest.raises(ShapeError, match=r"tiercel\.Ragged\(np\.zeros\(\(0, 16\), np\.float32\), \[0\]\)"):
        ragged([])
    assert Ragged(np.zeros((0, 16), np.float32), [0]).shape == (0, None, 16)


def test_offsets_cannot_be_written():
    x = ragged(parts())
    with pytest.raises(ValueError, match="read-only"):
        x.offsets[1] = 2
