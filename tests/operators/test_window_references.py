"""Convolution, pooling and interpolation against plain loops written from their definitions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel import dtypes
from tiercel.operators.reference.convolution import conv1d, conv2d
from tiercel.operators.reference.interpolation import interpolate, output_sizes
from tiercel.operators.reference.pooling import avg_pool1d, avg_pool2d, max_pool1d, max_pool2d

HALVES = ["float16", "bfloat16"]


def random(*shape, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def taps(sizes, kernel, stride, pads, dilation, position):
    """Every tap of the window at `position`: (index into the kernel, index into the image or None in the padding)."""
    for k in itertools.product(*map(range, kernel)):
        at = [p * s - lo + i * d for p, s, (lo, _), i, d in zip(position, stride, pads, k, dilation, strict=True)]
        yield k, tuple(at) if all(0 <= a < n for a, n in zip(at, sizes, strict=True)) else None


def conv_loops(x, w, b, stride, pads, dilation, groups):
    sizes, kernel = x.shape[2:], w.shape[2:]
    counts = [
        len(range(0, n + lo + hi - d * (k - 1), s))
        for n, k, s, (lo, hi), d in zip(sizes, kernel, stride, pads, dilation, strict=True)
    ]
    out = np.zeros((x.shape[0], w.shape[0], *counts))
    per_group, outputs = w.shape[1], w.shape[0] // groups
    for n, o, position in itertools.product(range(x.shape[0]), range(w.shape[0]), np.ndindex(*counts)):
        total = 0.0 if b is None else b[o]
        for c in range(per_group):
            for k, at in taps(sizes, kernel, stride, pads, dilation, position):
                if at is not None:
                    total += x[(n, o // outputs * per_group + c, *at)] * w[(o, c, *k)]
        out[(n, o, *position)] = total
    return out


class TestConv:
    @pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int32", *HALVES])
    @pytest.mark.parametrize("groups", [1, 2])
    def test_conv2d_against_loops(self, dtype, groups):
        kind = dtypes.as_dtype(dtype).numpy
        x = (random(2, 4, 6, 5) * 4).astype(kind)
        w, b = (random(6, 4 // groups, 3, 2, seed=1) * 4).astype(kind), (random(6, seed=2) * 4).astype(kind)
        wide = np.complex128 if dtype == "complex64" else np.float64
        if dtype == "complex64":
            x, w = x * np.complex64(1 + 2j), w * np.complex64(1 - 1j)
        attributes = ((2, 1), ((1, 0), (2, 1)), (1, 2), groups)
        expected = conv_loops(*(a.astype(np.float64) for a in (x.real, w.real, b.real)), *attributes)
        if dtype == "complex64":
            parts = [
                conv_loops(p.astype(float), q.astype(float), None, *attributes)
                for p, q in ((x.real, w.real), (x.imag, w.imag), (x.real, w.imag), (x.imag, w.real))
            ]
            expected = parts[0] - parts[1] + 1j * (parts[2] + parts[3]) + b.real.reshape(-1, 1, 1)
        got = conv2d(x, w, b, *attributes)
        assert got.dtype == kind
        assert got.flags.c_contiguous
        tolerance = {"bfloat16": 2**-8, "float16": 2**-11, "float32": 1e-6, "complex64": 4e-6}.get(dtype, 1e-14)
        np.testing.assert_allclose(got.astype(wide), expected, rtol=tolerance, atol=30 * tolerance)

    @given(
        st.tuples(st.integers(1, 9), st.integers(1, 9)),
        st.tuples(st.integers(1, 3), st.integers(1, 3)),
        st.tuples(st.integers(1, 3), st.integers(1, 3)),
        st.tuples(*[st.tuples(st.integers(0, 3), st.integers(0, 3))] * 2),
        st.tuples(st.integers(1, 2), st.integers(1, 2)),
    )
    @settings(max_examples=40, deadline=None)
    def test_geometry(self, sizes, kernel, stride, pads, dilation):
        x, w = random(1, 2, *sizes), random(1, 2, *kernel, seed=1)
        fits = all(n + sum(p) >= d * (k - 1) + 1 for n, p, d, k in zip(sizes, pads, dilation, kernel, strict=True))
        if not fits:
            with pytest.raises(ValueError, match="less than the kernel's extent"):
                conv2d(x, w, None, stride, pads, dilation)
            return
        expected = conv_loops(x, w, None, stride, pads, dilation, 1)
        got = conv2d(x, w, None, stride, pads, dilation)
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, atol=1e-13)

    def test_conv1d_against_scipy(self):
        x, w = random(1, 1, 40), random(1, 1, 5, seed=1)
        np.testing.assert_allclose(conv1d(x, w)[0, 0], scipy.signal.correlate(x[0, 0], w[0, 0], "valid"), atol=1e-13)
        np.testing.assert_allclose(
            conv1d(x, w, padding="same")[0, 0], scipy.signal.correlate(x[0, 0], w[0, 0], "same"), atol=1e-13
        )

    @pytest.mark.parametrize("size", [0, 1, 2, 5, 8])
    @pytest.mark.parametrize("stride", [1, 2, 3])
    @pytest.mark.parametrize("kernel", [1, 2, 3, 4])
    @pytest.mark.parametrize("dilation", [1, 2])
    def test_same_gives_size_over_stride_rounded_up(self, size, stride, kernel, dilation):
        got = conv1d(random(1, 1, size), random(1, 1, kernel), None, stride, "same", dilation)
        assert got.shape == (1, 1, math.ceil(size / stride))

    def test_same_pads_the_odd_zero_at_the_end(self):
        x = np.array([[[1.0, 2.0, 3.0]]])
        assert conv1d(x, np.ones((1, 1, 2)), padding="same").tolist() == [[[3, 5, 3]]]

    @pytest.mark.parametrize("shape", [(0, 2, 5), (2, 0, 5)])
    def test_empty_batch_and_no_channels(self, shape):
        got = conv1d(np.ones(shape), np.ones((3, shape[1], 2)), np.ones(3))
        assert got.shape == (shape[0], 3, 4)
        assert (got == 1).all()

    def test_no_outputs(self):
        assert conv1d(np.ones((2, 4, 5)), np.ones((0, 4, 2))).shape == (2, 0, 4)

    @pytest.mark.parametrize("view", [lambda x: x[..., ::-1], lambda x: x.T.copy().T, lambda x: x[..., ::2]])
    def test_strided_operands(self, view):
        x, w = view(random(2, 3, 8, 6)), view(random(2, 3, 4, 2))
        np.testing.assert_array_equal(conv2d(x, w), conv2d(np.ascontiguousarray(x), np.ascontiguousarray(w)))

    def test_operands_are_left_alone(self):
        x, w = random(1, 1, 5), random(1, 1, 1)
        copies = x.copy(), w.copy()
        got = conv1d(x, w)
        got[...] = 7
        np.testing.assert_array_equal(x, copies[0])
        np.testing.assert_array_equal(w, copies[1])

    def test_dtypes_promote(self):
        assert conv1d(np.ones((1, 1, 3), np.float32), np.ones((1, 1, 1), np.int32)).dtype == np.float64
        assert conv1d(np.ones((1, 1, 3), np.float16), np.ones((1, 1, 1)), np.ones(1, np.float32)).dtype == np.float64

    def test_half_types_round_once(self):
        kind = dtypes.bfloat16.numpy
        x, w = random(1, 64, 9).astype(kind), random(1, 64, 3, seed=1).astype(kind)
        b = random(1, seed=2).astype(kind)
        wide = conv1d(*(a.astype(np.float32) for a in (x, w, b)))
        np.testing.assert_array_equal(conv1d(x, w, b), wide.astype(kind))

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (((2, 3, 5), (4, 2, 3)), "do not fit with groups=1"),
            (((2, 3, 5), (4, 3)), "needs x and w with 3 dimensions"),
            (((2, 4, 5), (3, 2, 3), None, 1, 0, 1, 2), "do not fit with groups=2"),
            (((2, 3, 5), (4, 3, 3), (3,)), r"b must have shape \(4,\), got \(3,\)"),
            (((2, 3, 5), (4, 3, 0)), "kernel has a zero size"),
            (((2, 3, 5), (4, 3, 7)), "size 5 and padding 0 \\+ 0, less than the kernel's extent 7"),
            (((2, 3, 5), (4, 3, 3), None, 0), "stride must be at least 1"),
            (((2, 3, 5), (4, 3, 3), None, (1, 2)), "stride must be an int or 1 ints"),
            (((2, 3, 5), (4, 3, 3), None, 1, "full"), "padding must be 'same', 'valid'"),
            (((2, 3, 5), (4, 3, 3), None, 1, -1), "padding must not be negative"),
            (((2, 3, 5), (4, 3, 3), None, 1, ((1, 2, 3),)), "one \\(low, high\\) pair"),
            (((2, 3, 5), (4, 3, 3), None, 1, (1, 2)), "padding must be an int, or 1 ints or pairs"),
        ],
    )
    def test_refusals(self, arguments, text):
        x, w, *rest = arguments
        if rest and rest[0] is not None:
            rest[0] = np.ones(rest[0])
        with pytest.raises(ValueError, match=text):
            conv1d(np.ones(x), np.ones(w), *rest)


def pool_loops(x, kernel, stride, pads, dilation, ceil_mode, what, include_pad=True):
    """PyTorch's definition: windows start at `-low + i * stride`; the mean's divisor is clipped to the padded size."""
    rank = len(kernel)
    sizes = x.shape[x.ndim - rank :]
    counts = []
    for n, k, s, (lo, hi), d in zip(sizes, kernel, stride, pads, dilation, strict=True):
        room = n + lo + hi - d * (k - 1) - 1
        count = (math.ceil(room / s) if ceil_mode else room // s) + 1
        if ceil_mode and (count - 1) * s >= n + lo:
            count -= 1
        counts.append(count)
    out = np.zeros((*x.shape[: x.ndim - rank], *counts))
    for lead in np.ndindex(*x.shape[: x.ndim - rank]):
        for position in np.ndindex(*counts):
            found = [x[lead + at] for _, at in taps(sizes, kernel, stride, pads, dilation, position) if at is not None]
            if what == "max":
                out[lead + position] = np.max(found)
                continue
            divisor = 1
            for p, n, k, s, (lo, hi) in zip(position, sizes, kernel, stride, pads, strict=True):
                start = p * s - lo
                stop = min(start + k, n + hi)
                divisor *= stop - start if include_pad else min(stop, n) - max(start, 0)
            out[lead + position] = sum(found) / divisor
    return out


POOLS = [
    ((2, 2), None, 0, 1, False),
    ((3, 2), (1, 2), 1, 1, False),
    ((3, 2), (2, 3), ((1, 0), (0, 1)), 1, True),
    ((2, 3), (2, 2), 0, 1, True),
    ((2, 2), (3, 3), 1, 1, True),
    ((2, 2), 1, 1, 2, False),
    ((3, 3), 2, 0, (1, 2), True),
]


def spelled_out(kernel, stride, padding, dilation):
    pairs = ((padding, padding),) * 2 if isinstance(padding, int) else padding
    both = lambda v: (v, v) if isinstance(v, int) else v
    return kernel, both(stride or kernel), pairs, both(dilation)


class TestPool:
    @pytest.mark.parametrize(("kernel", "stride", "padding", "dilation", "ceil_mode"), POOLS)
    @pytest.mark.parametrize("shape", [(2, 3, 7, 6), (5, 5)])
    def test_max_pool2d_against_loops(self, kernel, stride, padding, dilation, ceil_mode, shape):
        x = random(*shape)
        expected = pool_loops(x, *spelled_out(kernel, stride, padding, dilation), ceil_mode, "max")
        got = max_pool2d(x, kernel, stride, padding, dilation, ceil_mode)
        assert got.flags.c_contiguous
        np.testing.assert_array_equal(got, expected)

    @pytest.mark.parametrize(("kernel", "stride", "padding", "dilation", "ceil_mode"), POOLS)
    @pytest.mark.parametrize("include_pad", [True, False])
    def test_avg_pool2d_against_loops(self, kernel, stride, padding, dilation, ceil_mode, include_pad):
        x = random(2, 3, 7, 6)
        if dilation != 1:
            pytest.skip("averages are not dilated")
        spelled = spelled_out(kernel, stride, padding, 1)
        expected = pool_loops(x, *spelled, ceil_mode, "mean", include_pad)
        got = avg_pool2d(x, kernel, stride, padding, ceil_mode, include_pad)
        np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-14)

    @given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 5), st.data(), st.booleans(), st.booleans())
    @settings(max_examples=100, deadline=None)
    def test_one_dimension(self, size, kernel, stride, data, ceil_mode, include_pad):
        pads = tuple(data.draw(st.integers(0, kernel // 2)) for _ in range(2))
        if size + sum(pads) < kernel:
            return
        x = random(size)
        spelled = (kernel,), (stride,), (pads,), (1,)
        got = max_pool1d(x, kernel, stride, (pads,), 1, ceil_mode)
        np.testing.assert_array_equal(got, pool_loops(x, *spelled, ceil_mode, "max"))
        got = avg_pool1d(x, kernel, stride, (pads,), ceil_mode, include_pad)
        np.testing.assert_allclose(got, pool_loops(x, *spelled, ceil_mode, "mean", include_pad), atol=1e-14)

    @pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "bool", "float32", *HALVES])
    def test_max_pool_dtypes_and_padding_never_wins(self, dtype):
        kind = dtypes.as_dtype(dtype)
        x = np.array([-3, -2, -5, -1]).astype(kind.numpy)
        got = max_pool1d(x, 3, 1, 1)
        assert got.dtype == kind.numpy
        np.testing.assert_array_equal(got, [x[:2].max(), x[:3].max(), x[1:].max(), x[2:].max()])

    def test_max_pool_of_minus_infinity_and_nan(self):
        x = np.array([-np.inf, -np.inf, 1.0, np.nan, 2.0])
        np.testing.assert_array_equal(max_pool1d(x, 2, 1), [-np.inf, 1, np.nan, np.nan])

    def test_avg_pool_of_integers_is_float64(self):
        got = avg_pool1d(np.array([1, 2, 4]), 2, 1)
        assert got.dtype == np.float64
        assert got.tolist() == [1.5, 3]

    @pytest.mark.parametrize("dtype", HALVES)
    def test_half_averages_round_once(self, dtype):
        kind = dtypes.as_dtype(dtype).numpy
        x = random(3, 40).astype(kind)
        np.testing.assert_array_equal(avg_pool1d(x, 7, 3), avg_pool1d(x.astype(np.float32), 7, 3).astype(kind))

    def test_complex_average(self):
        assert avg_pool1d(np.array([1 + 1j, 3 + 5j], np.complex64), 2).tolist() == [2 + 3j]

    def test_results_are_fresh(self):
        x = np.ones((2, 3))
        for got in (max_pool1d(x, 1), avg_pool1d(x, 1)):
            assert not np.shares_memory(got, x)
            got[...] = 5
        assert (x == 1).all()

    def test_rank_one_result_of_a_whole_window(self):
        assert max_pool1d(np.array([1.0, 3.0, 2.0]), 3).shape == (1,)

    @pytest.mark.parametrize("size", [0, 1, 4, 7])
    def test_same_padding(self, size):
        assert max_pool1d(np.ones((2, size)), 3, 2, "same").shape == (2, math.ceil(size / 2))

    @pytest.mark.parametrize(
        ("call", "error", "text"),
        [
            (lambda: max_pool1d(np.ones(3, np.complex64), 2), TypeError, "no order, got complex64"),
            (lambda: max_pool2d(np.ones(3), 2), ValueError, "at least 2 dimensions"),
            (lambda: max_pool1d(np.ones(3), 2, 1, 2), ValueError, "more than half of the kernel's extent 2"),
            (lambda: avg_pool1d(np.ones(3), 4), ValueError, "size 3 and padding 0 \\+ 0"),
            (lambda: avg_pool1d(np.ones(3), 0), ValueError, "kernel_size must be at least 1"),
            (lambda: avg_pool2d(np.ones((3, 3)), (1, 2, 3)), ValueError, "kernel_size must be an int or 2 ints"),
        ],
    )
    def test_refusals(self, call, error, text):
        with pytest.raises(error, match=text):
            call()


def linear_loop(values, new, align):
    old = len(values)
    out = []
    for i in range(new):
        if align:
            position = i * (old - 1) / (new - 1) if new > 1 else 0.0
        else:
            position = max((i + 0.5) * old / new - 0.5, 0.0)
        left = min(int(position), old - 1)
        weight = position - left
        out.append(values[left] * (1 - weight) + values[min(left + 1, old - 1)] * weight)
    return out


class TestInterpolate:
    @given(st.integers(1, 9), st.integers(0, 12), st.booleans())
    @settings(max_examples=80, deadline=None)
    def test_linear_against_loop(self, old, new, align):
        x = random(old)
        got = interpolate(x.reshape(1, 1, -1), new, mode="linear", align_corners=align)
        assert got.shape == (1, 1, new)
        assert got.flags.c_contiguous
        np.testing.assert_allclose(got[0, 0], linear_loop(x, new, align), rtol=1e-15, atol=1e-15)

    @given(st.integers(1, 9), st.integers(0, 12))
    def test_nearest_against_integers(self, old, new):
        got = interpolate(np.arange(old).reshape(1, 1, -1), (new,))
        assert got[0, 0].tolist() == [i * old // new for i in range(new)]

    @pytest.mark.parametrize("align", [False, True])
    def test_bilinear_is_linear_twice(self, align):
        x = random(2, 3, 4, 5)
        got = interpolate(x, (6, 3), mode="bilinear", align_corners=align)
        across = np.apply_along_axis(linear_loop, 3, x, 3, align)
        np.testing.assert_allclose(got, np.apply_along_axis(linear_loop, 2, across, 6, align), atol=1e-14)

    def test_aligned_corners_are_kept(self):
        x = random(1, 1, 4, 5)
        got = interpolate(x, (7, 9), mode="bilinear", align_corners=True)
        np.testing.assert_array_equal(got[..., ::6, ::8], x[..., ::3, ::4])

    def test_known_values(self):
        # PyTorch 2: F.interpolate(torch.tensor([[[1., 2., 4.]]]), 6, mode="linear")
        got = interpolate(np.array([[[1.0, 2.0, 4.0]]]), 6, mode="linear")
        assert got[0, 0].tolist() == [1.0, 1.25, 1.75, 2.5, 3.5, 4.0]

    @pytest.mark.parametrize(
        ("size", "scale", "expected"), [(7, 0.5, 3), (10, 0.1, 1), (3, 1 / 3, 1), (10, 1.7, 17), (5, 2, 10), (4, 0, 0)]
    )
    def test_sizes_from_scales(self, size, scale, expected):
        assert output_sizes((size,), None, scale) == (expected,)

    def test_scale_per_dimension(self):
        assert interpolate(np.ones((1, 1, 4, 6)), scale=(0.5, 2)).shape == (1, 1, 2, 12)

    @pytest.mark.parametrize("dtype", HALVES)
    def test_half_types_round_once(self, dtype):
        kind = dtypes.as_dtype(dtype).numpy
        x = random(1, 2, 5, 6).astype(kind)
        wide = interpolate(x.astype(np.float32), (8, 4), mode="bilinear").astype(kind)
        np.testing.assert_array_equal(interpolate(x, (8, 4), mode="bilinear"), wide)

    def test_same_size_is_a_copy(self):
        x = random(1, 1, 3)
        for mode in ("nearest", "linear"):
            got = interpolate(x, 3, mode=mode)
            np.testing.assert_array_equal(got, x)
            assert not np.shares_memory(got, x)

    def test_strided_and_any_rank(self):
        x = random(4, 3, 2, 3, 2).T
        got = interpolate(x, (2, 2, 8))
        assert got.shape == (2, 3, 2, 2, 8)
        assert got.flags.c_contiguous

    @pytest.mark.parametrize(
        ("call", "error", "text"),
        [
            (interpolate, ValueError, "exactly one of size and scale"),
            (lambda x: interpolate(x, 2, 2.0), ValueError, "exactly one of size and scale"),
            (lambda x: interpolate(x, 2, mode="cubic"), ValueError, "mode must be one of"),
            (lambda x: interpolate(x, 2, mode="bilinear"), ValueError, "needs 2 spatial dimensions, got 1"),
            (lambda x: interpolate(x, 2, align_corners=True), ValueError, "no meaning"),
            (lambda x: interpolate(x, (2, 2)), ValueError, "an int or 1 ints"),
            (lambda x: interpolate(x, -1), ValueError, "must not be negative"),
            (lambda x: interpolate(x, scale=-1.0), ValueError, "not negative"),
            (lambda x: interpolate(x[..., :0], 2), ValueError, "from 0 to 2"),
            (lambda x: interpolate(x[0], 2), ValueError, r"\(N, C, ...\)"),
            (lambda x: interpolate(x.astype(int), 2, mode="linear"), TypeError, "got int64; use astype"),
        ],
    )
    def test_refusals(self, call, error, text):
        with pytest.raises(error, match=text):
            call(np.ones((1, 2, 3)))
