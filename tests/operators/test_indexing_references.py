"""Gathers, scatters, selections and `linear` against loops over single elements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel import dtypes
from tiercel.operators.reference import indexing
from tiercel.operators.reference.contraction import linear

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0,)])
def test_gather_is_indexing_along_an_axis(axis, shape):
    x = RNG.standard_normal((3, 4, 5))
    indices = RNG.integers(-3, 3, shape)
    key = (slice(None),) * (axis % 3) + (indices,)
    np.testing.assert_array_equal(indexing.gather(x, indices, axis), x[key])


def test_embedding_takes_rows():
    table = RNG.standard_normal((5, 2))
    np.testing.assert_array_equal(indexing.embedding([[0, 4], [-1, 2]], table), table[np.array([[0, 4], [-1, 2]])])
    assert indexing.embedding(np.int64(3), table).shape == (2,)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements_against_loop(axis):
    x = RNG.standard_normal((4, 5))
    indices = RNG.integers(-4, 4, (3, 2))
    expected = np.empty((3, 2))
    for i, j in np.ndindex(3, 2):
        expected[i, j] = x[indices[i, j], j] if axis == 0 else x[i, indices[i, j]]
    got = indexing.gather_elements(x, indices, axis)
    np.testing.assert_array_equal(got, expected)
    assert got.flags.c_contiguous


COMBINE = {
    None: lambda old, new: new,
    "add": lambda old, new: old + new,
    "multiply": lambda old, new: old * new,
    "maximum": max,
    "minimum": min,
}


@pytest.mark.parametrize("reduce", COMBINE)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_scatter_against_loop(reduce, axis, dtype):
    x = RNG.integers(0, 9, (4, 5)).astype(dtype)
    indices = RNG.integers(-4, 4, (3, 4))
    updates = RNG.integers(0, 9, (3, 4)).astype(dtype)
    expected = x.copy()
    for i, j in np.ndindex(3, 4):
        at = (indices[i, j], j) if axis == 0 else (i, indices[i, j])
        expected[at] = COMBINE[reduce](expected[at], updates[i, j])
    before = x.copy()
    got = indexing.scatter(x, indices, updates, axis, reduce)
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == dtype
    np.testing.assert_array_equal(x, before)
    assert not np.shares_memory(got, x)


def test_scatter_broadcasts_and_casts_updates():
    got = indexing.scatter(np.zeros((3, 3), np.int64), np.array([[0, 1, 1]]), 2.9)
    assert got.tolist() == [[2, 0, 0], [0, 2, 2], [0, 0, 0]]


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_gather_nd_against_loop(depth):
    x = RNG.standard_normal((3, 4, 5))
    indices = RNG.integers(-3, 3, (2, 6, depth))
    expected = np.array([[x[tuple(v)] for v in row] for row in indices.tolist()])
    got = indexing.gather_nd(x, indices)
    np.testing.assert_array_equal(got, expected)
    assert not np.shares_memory(got, x)


def test_gather_nd_of_one_vector_is_a_scalar():
    got = indexing.gather_nd(np.arange(6.0).reshape(2, 3), np.array([1, 2]))
    assert type(got) is np.float64
    assert got == 5


@pytest.mark.parametrize("reduce", ["add", "maximum", None])
def test_scatter_nd_against_loop(reduce):
    x = RNG.integers(0, 9, (3, 4, 2))
    indices = RNG.integers(-3, 3, (5, 2))
    updates = RNG.integers(0, 9, (5, 2))
    expected = x.copy()
    for v, update in zip(indices.tolist(), updates, strict=True):
        for k in range(2):
            expected[(*v, k)] = COMBINE[reduce](expected[(*v, k)], update[k])
    np.testing.assert_array_equal(indexing.scatter_nd(x, indices, updates, reduce), expected)


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_with_mixed_keys(accumulate):
    x = RNG.integers(0, 9, (3, 4, 5))
    rows, value = np.array([2, 0, 2]), np.arange(5)
    expected = x.copy()
    for r in rows:
        for c in (1, 3):
            expected[r, c] = expected[r, c] + value if accumulate else value
    got = indexing.index_put(x, (rows.reshape(-1, 1), np.array([1, 3]), slice(None)), value, accumulate)
    np.testing.assert_array_equal(got, expected)
    mask = x > 4
    np.testing.assert_array_equal(indexing.index_put(x, (mask,), 0), np.where(mask, 0, x))
    np.testing.assert_array_equal(indexing.index_put(x, ([0, 1],), 0)[:2], np.zeros((2, 4, 5)))


def test_masked_fill_and_select_broadcast():
    x, mask = RNG.standard_normal((2, 1, 3)), np.array([[True], [False]])
    filled = indexing.masked_fill(x, mask, 7)
    np.testing.assert_array_equal(filled, np.where(mask, 7, x))
    assert filled.dtype == x.dtype
    selected = indexing.masked_select(x, mask)
    np.testing.assert_array_equal(selected, x.ravel())
    assert indexing.masked_select(x, False).shape == (0,)


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, -1.0, np.nan, np.inf]), max_size=9), st.booleans(), st.data())
@settings(max_examples=150)
def test_topk_orders_by_value_then_position_with_nan_largest(values, largest, data):
    k = data.draw(st.integers(0, len(values)))

    def rank(i):
        v = values[i]
        size = (int(np.isnan(v)), 0.0 if np.isnan(v) else v)
        return (tuple(-s for s in size) if largest else size, i)

    order = sorted(range(len(values)), key=rank)[:k]
    got, positions = indexing.topk(np.array(values), k, largest=largest)
    assert positions.tolist() == order
    np.testing.assert_array_equal(got, np.array(values)[np.array(order, int)])
    assert positions.dtype == np.int64


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_topk_along_axes(axis):
    x = RNG.integers(0, 4, (5, 6))
    values, positions = indexing.topk(x, 3, axis)
    expected = np.apply_along_axis(lambda v: indexing.topk(v, 3)[1], axis, x)
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, axis))
    assert values.flags.c_contiguous
    assert positions.flags.c_contiguous


def test_topk_of_unsigned_and_bool():
    assert indexing.topk(np.array([0, 200, 3], np.uint8), 2)[0].tolist() == [200, 3]
    assert indexing.topk(np.array([False, True]), 1)[1].tolist() == [1]


@pytest.mark.parametrize("axis", [0, 1, -1, -3])
def test_one_hot_against_comparison(axis):
    indices = np.array([[0, 2, 5], [-1, 1, 3]])
    got = indexing.one_hot(indices, 4, axis=axis)
    expected = np.moveaxis((indices[..., None] == np.arange(4)).astype(np.float32), -1, axis)
    np.testing.assert_array_equal(got, expected)
    assert got.flags.c_contiguous
    assert got.dtype == np.float32


def test_one_hot_values_and_dtype():
    got = indexing.one_hot(np.uint8(1), 3, 5, -1, dtype=np.int8)
    assert got.tolist() == [-1, 5, -1]
    assert got.dtype == np.int8
    assert indexing.one_hot(np.array([], np.int64), 3).shape == (0, 3)
    assert indexing.one_hot(np.array([0]), 0).shape == (1, 0)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: indexing.gather(np.ones(3), [1.0]), TypeError, "indices must be integers, got float64"),
        (lambda: indexing.gather(np.ones(3), [3]), IndexError, "out of bounds"),
        (lambda: indexing.embedding([0], np.ones(3)), ValueError, "table with 2 dimensions"),
        (lambda: indexing.embedding([2], np.ones((2, 2))), IndexError, "out of bounds"),
        (lambda: indexing.gather_elements(np.ones((2, 2)), [0]), ValueError, "as many dimensions"),
        (lambda: indexing.gather_elements(np.ones((2, 2)), [[0, 0, 0]]), ValueError, "reach past x"),
        (lambda: indexing.gather_elements(np.ones(2), [5]), IndexError, "out of bounds"),
        (lambda: indexing.gather_elements(np.ones(2), [0], 1), np.exceptions.AxisError, "axis 1"),
        (lambda: indexing.scatter(np.ones(2), [0], 1.0, reduce="mean"), ValueError, "reduce must be one of"),
        (lambda: indexing.gather_nd(np.ones(2), [[0, 0]]), ValueError, "at most 1"),
        (lambda: indexing.masked_fill(np.ones(2), [1, 0], 0), TypeError, "mask must be bool, got int64"),
        (lambda: indexing.one_hot([0.5], 2), TypeError, "must be integers"),
        (lambda: indexing.one_hot([0], -1), ValueError, "depth >= 0"),
        (lambda: indexing.one_hot([0], 2, axis=2), np.exceptions.AxisError, "axis 2"),
        (lambda: indexing.topk(np.ones(2), 3), ValueError, r"k must be in 0..2"),
        (lambda: indexing.topk(np.float64(1), 1), np.exceptions.AxisError, "axis -1"),
    ],
)
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call()


class TestLinear:
    @pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (0, 4)])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.int32])
    @pytest.mark.parametrize("bias", [False, True])
    def test_against_sums(self, shape, dtype, bias):
        x, w = (RNG.integers(-4, 5, s).astype(dtype) for s in (shape, (5, 4)))
        b = np.arange(5).astype(dtype) if bias else None
        expected = (x[..., None, :] * w).sum(-1) + (b if bias else 0)
        got = linear(x, w, b)
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == dtype

    def test_no_features(self):
        assert linear(np.ones((2, 0)), np.ones((3, 0)), np.arange(3.0)).tolist() == [[0, 1, 2]] * 2

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_half_types_round_once(self, dtype):
        kind = dtypes.as_dtype(dtype).numpy
        x, w, b = (RNG.standard_normal(s).astype(kind) for s in ((3, 64), (5, 64), (5,)))
        wide = linear(*(a.astype(np.float32) for a in (x, w, b)))
        np.testing.assert_array_equal(linear(x, w, b), wide.astype(kind))

    @pytest.mark.parametrize(
        ("shapes", "text"),
        [
            (((4,), (5,)), "w with 2"),
            (((), (5, 4)), "at least 1 dimension"),
            (((3, 2), (5, 4)), "has 2 features"),
            (((3, 4), (5, 4), (4,)), r"b must have shape \(5,\), got \(4,\)"),
        ],
    )
    def test_refusals(self, shapes, text):
        with pytest.raises(ValueError, match=text):
            linear(*map(np.ones, shapes))
