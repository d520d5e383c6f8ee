"""Random numbers: published vectors of Philox, independence of chunking, and the distributions' laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel import dtypes
from tiercel.operators.reference import philox

# Random123 1.14, examples/kat_vectors, rows "philox4x32 10": counter, key, result.
KNOWN_ANSWERS = [
    ([0] * 4, (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, (0xFFFFFFFF, 0xFFFFFFFF), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        (0xA4093822, 0x299F31D0),
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]
FLOATS = ["float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_known_answers(counter, key, expected):
    got = philox.philox4x32([np.uint64(c) for c in counter], key)
    assert [int(word) for word in got] == expected


def philox_scalar(counter, key):
    """Philox4x32-10 in Python integers, as the paper's figure has it."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return [c0, c1, c2, c3]


@given(st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=4), st.tuples(*[st.integers(0, 2**32 - 1)] * 2))
@settings(max_examples=50)
def test_philox_equals_integer_arithmetic(counter, key):
    got = philox.philox4x32([np.uint64(c) for c in counter], key)
    assert [int(word) for word in got] == philox_scalar(counter, key)


def test_bits_are_words_of_consecutive_blocks():
    key = 0x299F31D0A4093822
    expected = [w for block in range(3) for w in philox_scalar([block, 0, 0, 0], (0xA4093822, 0x299F31D0))]
    np.testing.assert_array_equal(philox.random_bits(key, (2, 5)).ravel(), expected[:10])


def test_blocks_beyond_32_bits_use_the_second_counter_word():
    start = 4 * (2**32 + 5)
    expected = philox_scalar([5, 1, 0, 0], (7, 0))
    np.testing.assert_array_equal(philox._words((7, 0), 4, start), expected)


def test_chunks_give_the_bits_of_the_whole(monkeypatch):
    whole = philox.random_normal(11, (1000,))
    monkeypatch.setattr(philox, "_CHUNK_BLOCKS", 7)
    np.testing.assert_array_equal(philox.random_normal(11, (1000,)), whole)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("draw", [philox.random_uniform, philox.random_normal])
def test_longer_draws_begin_with_shorter_ones(draw, dtype):
    kind = dtypes.as_dtype(dtype)
    short, long = draw(5, (3, 11), dtype=kind), draw(5, (100,), dtype=kind)
    assert short.dtype == kind.numpy
    assert short.shape == (3, 11)
    assert short.flags.c_contiguous
    np.testing.assert_array_equal(short.ravel(), long[:33])


def test_float64_takes_the_first_word_as_the_high_one():
    words = [int(w) for w in philox.random_bits(3, (4,))]
    expected = [((words[i] << 32 | words[i + 1]) >> 11) / 2**53 for i in (0, 2)]
    assert philox.random_uniform(3, (2,), dtype=np.float64).tolist() == expected


def test_float32_takes_the_top_24_bits():
    expected = [(int(w) >> 8) / 2**24 for w in philox.random_bits(3, (4,))]
    assert philox.random_uniform(3, (4,)).tolist() == expected


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_law_and_bounds(dtype):
    kind = dtypes.as_dtype(dtype)
    x = philox.random_uniform(1, (20000,), -1.0, 3.0, kind).astype(np.float64)
    assert x.min() >= -1
    assert x.max() < 3
    if not kind.is_half:
        assert scipy.stats.kstest(x, "uniform", (-1, 4)).pvalue > 1e-3
    assert abs(x.mean() - 1) < 0.05


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_never_reaches_high(dtype):
    kind = dtypes.as_dtype(dtype)
    # Steps of the dtype around 1000 are coarse (bfloat16: 4): without the correction rounding reaches `high`.
    x = philox.random_uniform(1, (4000,), 1000.0, 1016.0, kind)
    assert (x < kind.scalar_type(1016.0)).all()
    assert (x >= kind.scalar_type(1000.0)).all()


def test_uniform_of_an_empty_interval_is_constant():
    assert (philox.random_uniform(1, (5,), 2.0, 2.0) == 2).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normal_law(dtype):
    x = philox.random_normal(2, (200000,), dtype=dtype)
    assert scipy.stats.kstest(x.astype(np.float64), "norm").pvalue > 1e-3
    assert abs(x.std() - 1) < 0.01
    assert abs(scipy.stats.skew(x)) < 0.02
    assert abs(scipy.stats.kurtosis(x)) < 0.05


def test_normal_scales_and_shifts():
    x = philox.random_normal(2, (50,), dtype=np.float64)
    np.testing.assert_array_equal(philox.random_normal(2, (50,), 3.0, 0.5, np.float64), 3.0 + x * 0.5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_normal_is_the_float32_draw_rounded_once(dtype):
    kind = dtypes.as_dtype(dtype)
    wide = philox.random_normal(2, (500,), 1.5, 2.0)
    np.testing.assert_array_equal(philox.random_normal(2, (500,), 1.5, 2.0, kind), wide.astype(kind.numpy))


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 2e-15), (np.float32, 6e-7)])
def test_quantiles_against_scipy(dtype, tolerance):
    smallest = -65 if dtype is np.float64 else -33
    tail = np.concatenate([np.linspace(1e-6, 0.5, 5001), 2.0 ** np.linspace(smallest, -2, 2001)]).astype(dtype)
    expected = -scipy.special.ndtri(tail.astype(np.float64))
    got = philox.upper_quantile(tail)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 4e-16), (np.float32, 2e-7)])
def test_logarithm_against_math(dtype, tolerance):
    x = np.concatenate([2.0 ** np.linspace(-65, -1, 999), np.linspace(0.3, 0.5, 999)]).astype(dtype)
    np.testing.assert_allclose(philox._log(x), [math.log(v) for v in x.tolist()], rtol=tolerance)


class TestKeys:
    def test_forms_of_one_key(self):
        value = 0x0123456789ABCDEF
        forms = [
            value,
            np.uint64(value),
            np.array(value),
            np.array([0x89ABCDEF, 0x01234567], np.uint32),
            np.array([0x89ABCDEF, 0x01234567], np.int64),
        ]
        assert {philox.as_key(f) for f in forms} == {(0x89ABCDEF, 0x01234567)}

    def test_negative_keys_wrap(self):
        assert philox.as_key(-1) == (0xFFFFFFFF, 0xFFFFFFFF)

    @pytest.mark.parametrize("bad", [1.5, True, "1", None, np.zeros(2), np.float32(1)])
    def test_not_an_integer(self, bad):
        with pytest.raises(TypeError, match="random key must be an integer"):
            philox.as_key(bad)

    @pytest.mark.parametrize("bad", [2**64, -(2**63) - 1, np.zeros(3, np.uint32), np.array([-1, 0])])
    def test_out_of_range(self, bad):
        with pytest.raises(ValueError, match="random key"):
            philox.as_key(bad)

    def test_split_does_not_depend_on_the_count(self):
        few, many = philox.split_key(9), philox.split_key(9, 5)
        assert few.shape == (2, 2)
        assert few.dtype == np.uint32
        np.testing.assert_array_equal(few, many[:2])
        assert philox.split_key(9, 0).shape == (0, 2)

    def test_children_differ_from_the_parent_and_each_other(self):
        keys = [9, *philox.split_key(9, 50), *(philox.fold_in(9, i) for i in range(50)), philox.fold_in(10, 0)]
        assert len({tuple(philox.random_bits(key, (4,)).tolist()) for key in keys}) == len(keys)
        assert len({philox.as_key(key) for key in keys}) == len(keys)

    def test_children_do_not_repeat_the_words_of_the_parent(self):
        words = set(philox.random_bits(9, (400,)).tolist())
        assert not words & set(philox.split_key(9, 100).ravel().tolist())


class TestDropout:
    def test_keeps_where_the_word_reaches_the_threshold(self):
        x = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4)
        keep = philox.random_bits(4, (3, 4)) >= round(0.25 * 2**32)
        np.testing.assert_array_equal(philox.dropout(x, 4, 0.25), np.where(keep, x * np.float32(1 / 0.75), 0))

    @pytest.mark.parametrize("view", [lambda x: x.T, lambda x: x[::-1], lambda x: x[:, ::2]])
    def test_positions_are_those_of_c_order(self, view):
        x = view(np.random.default_rng(0).standard_normal((6, 8)))
        got = philox.dropout(x, 4, 0.5)
        np.testing.assert_array_equal(got, philox.dropout(np.ascontiguousarray(x), 4, 0.5))
        assert got.flags.c_contiguous

    def test_rate_and_scale(self):
        got = philox.dropout(np.ones(100000, np.float32), 8, 0.3)
        assert abs((got == 0).mean() - 0.3) < 0.01
        assert abs(got.mean() - 1) < 0.01

    @pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.7, False)])
    def test_nothing_to_drop_gives_a_copy(self, p, training):
        x = np.array([1.0, np.nan, -0.0])
        got = philox.dropout(x, 1, p, training)
        np.testing.assert_array_equal(got.view(np.uint64), x.view(np.uint64))
        assert not np.shares_memory(got, x)

    def test_everything_dropped_is_positive_zero(self):
        got = philox.dropout(np.array([-1.0, np.inf, np.nan]), 1, 1.0)
        assert got.tolist() == [0, 0, 0]
        assert not np.signbit(got).any()

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_half_types_scale_in_float32(self, dtype):
        kind = dtypes.as_dtype(dtype)
        x = philox.random_normal(1, (200,), dtype=kind)
        wide = philox.dropout(x.astype(np.float32), 6, 0.1)
        np.testing.assert_array_equal(philox.dropout(x, 6, 0.1), wide.astype(kind.numpy))

    def test_complex(self):
        assert philox.dropout(np.ones(4, np.complex64), 1, 0.5).dtype == np.complex64

    def test_integers_are_refused(self):
        with pytest.raises(TypeError, match="floating or complex array, got int64"):
            philox.dropout(np.arange(3), 1)

    @pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
    def test_bad_probability(self, p):
        with pytest.raises(ValueError, match="probability"):
            philox.dropout(np.ones(3), 1, p)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: philox.random_uniform(1, (2,), dtype=np.int32), TypeError, "not int32"),
        (lambda: philox.random_uniform(1, (2,), 1.0, 0.0), ValueError, "low <= high"),
        (lambda: philox.random_uniform(1, (2,), 0.0, math.inf), ValueError, "finite"),
        (lambda: philox.random_normal(1, (2,), 0.0, -1.0), ValueError, "std >= 0"),
        (lambda: philox.random_bits(1, (-1,)), ValueError, "negative dimensions"),
        (lambda: philox.random_bits(1, (1.5,)), TypeError, "integer"),
    ],
)
def test_bad_arguments(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_empty_and_rank_zero_shapes():
    assert philox.random_normal(1, (0, 3)).shape == (0, 3)
    assert philox.random_normal(1).shape == ()
    assert philox.random_uniform(1, 4).shape == (4,)
