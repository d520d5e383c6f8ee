"""Convolution and pooling: against the references of their rows, sizes and attributes of every kind."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc
from tests.compiler.regions import ExitTaken, RegionBuilder, Runner
from tests.compiler.tracing import compare
from tiercel.operators import get

RNG = np.random.default_rng(11)


def floats(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


CONVOLUTIONS = [
    pytest.param((4, 3, 3, 3), {}, id="3x3"),
    pytest.param((4, 3, 3, 3), {"padding": 1}, id="padded"),
    pytest.param((5, 3, 3, 2), {"stride": 2, "padding": ((1, 0), (2, 1))}, id="strided"),
    pytest.param((2, 3, 2, 3), {"dilation": (2, 1), "padding": "same"}, id="same"),
    pytest.param((7, 3, 1, 1), {}, id="1x1"),
    pytest.param((7, 3, 1, 1), {"stride": (2, 3)}, id="1x1 strided"),
    pytest.param((6, 1, 3, 3), {"groups": 3, "padding": 1}, id="depthwise"),
    pytest.param((3, 1, 2, 2), {"groups": 3, "stride": 2, "dilation": 2}, id="depthwise strided"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("filters", "attributes"), CONVOLUTIONS)
def test_conv2d(filters, attributes, dtype):
    b = RegionBuilder("conv2d")
    x, w, c = b.input("x", ("N", 3, "H", "W"), dtype), b.input("w", filters, dtype), b.input("c", filters[:1], dtype)
    runner = Runner(b.region(b.apply("maximum", b.apply("conv2d", x, w, c, **attributes), 0.0)))
    weights, bias = floats(*filters, dtype=dtype), floats(filters[0], dtype=dtype)
    for shape in ((1, 9, 9), (2, 5, 13), (3, 6, 5), (1, 40, 37), (0, 7, 7)):
        given = floats(shape[0], 3, *shape[1:], dtype=dtype)
        want = np.maximum(get("conv2d").reference(given, weights, bias, **attributes), 0)
        np.testing.assert_allclose(runner(given, weights, bias), want, rtol=1e-4, atol=1e-5)


def test_grouped_conv2d_and_what_follows():
    b = RegionBuilder("conv2d")
    x, w = b.input("x", ("N", 6, "H", "W")), b.input("w", (4, 3, 3, 3))
    shift, scale = b.input("shift", (4, 1, 1)), b.input("scale", ("N", 1, "H", "W"))
    y = b.apply("conv2d", x, w, groups=2, padding=1)
    runner = Runner(b.region(b.apply("add", b.apply("multiply", y, scale), shift)))
    given, weights, moved, by = floats(2, 6, 8, 11), floats(4, 3, 3, 3), floats(4, 1, 1), floats(2, 1, 8, 11)
    want = get("conv2d").reference(given, weights, groups=2, padding=1) * by + moved
    np.testing.assert_allclose(runner(given, weights, moved, by), want, rtol=1e-4, atol=1e-5)


def test_conv1d():
    for attributes in ({}, {"padding": 2, "stride": 3}, {"padding": "same", "dilation": 2}):
        b = RegionBuilder("conv1d")
        x, w, c = b.input("x", ("N", 4, "L")), b.input("w", (6, 4, 5)), b.input("c", (6,))
        runner = Runner(b.region(b.apply("conv1d", x, w, c, **attributes)))
        weights, bias = floats(6, 4, 5), floats(6)
        for n, length in ((1, 20), (3, 9), (2, 1500)):
            given = floats(n, 4, length)
            want = get("conv1d").reference(given, weights, bias, **attributes)
            np.testing.assert_allclose(runner(given, weights, bias), want, rtol=1e-4, atol=1e-5)


def test_an_image_smaller_than_the_kernel_leaves():
    b = RegionBuilder("conv2d")
    x, w = b.input("x", ("N", 3, "H", "W")), b.input("w", (4, 3, 5, 5))
    runner = Runner(b.region(b.apply("conv2d", x, w)))
    with pytest.raises(ExitTaken):
        runner(floats(1, 3, 4, 9), floats(4, 3, 5, 5))


POOLS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (2, 3), "stride": (1, 2), "ceil_mode": True},
    {"kernel_size": 3, "padding": 1, "stride": 2, "ceil_mode": True, "count_include_pad": False},
    {"kernel_size": 3, "padding": "same", "stride": 1},
]


@pytest.mark.parametrize("attributes", POOLS, ids=str)
@pytest.mark.parametrize("operator", ["max_pool2d", "avg_pool2d"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int16"])
def test_pools(operator, attributes, dtype):
    attributes = dict(attributes)
    if operator == "max_pool2d":
        attributes.pop("count_include_pad", None)
    b = RegionBuilder(operator)
    x = b.input("x", ("N", "C", "H", "W"), dtype)
    runner = Runner(b.region(b.apply(operator, x, **attributes)))
    for shape in ((1, 2, 6, 6), (2, 1, 7, 9), (1, 3, 12, 35), (0, 2, 6, 6)):
        given = (floats(*shape) * 20).astype(dtype)
        if dtype.startswith("float") and operator == "max_pool2d" and given.size:
            given.ravel()[given.size // 2] = np.nan
        got, want = runner(given), get(operator).reference(given, **attributes)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-3 if dtype == "float16" else 1e-5, atol=1e-5)


def test_traced_stack():
    w = tc.constant(floats(8, 3, 3, 3))

    def stack(x):
        y = np.maximum(tc.ops.conv2d(x, w, padding=1), 0)
        return tc.ops.max_pool2d(y, kernel_size=2).mean(axis=(2, 3))

    compare(stack, (floats(2, 3, 8, 8),), (floats(1, 3, 10, 14),))
