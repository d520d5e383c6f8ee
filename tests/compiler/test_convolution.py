"""Convolutions of every kind against the reference: sizes, strides, dilations, groups, paddings, what follows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.native import build, call, imports
from tests.compiler.regions import ExitTaken, RegionBuilder, Runner
from tests.compiler.tracing import compare
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.threads import RUN, WORKER
from tiercel.codegen.pool import ThreadPool
from tiercel.loops import to_text
from tiercel.operators import get

FOLLOWING = {
    "nothing": lambda b, y: y,
    "relu": lambda b, y: b.apply("maximum", y, 0.0),
    "shifted": lambda b, y: b.apply("maximum", b.apply("add", y, 1.0), 0.25),
    "square": lambda b, y: b.apply("multiply", y, y),
}
REFERENCE = {
    "nothing": lambda y: y,
    "relu": lambda y: np.maximum(y, 0),
    "shifted": lambda y: np.maximum(y + 1, 0.25),
    "square": lambda y: y * y,
}


@st.composite
def convolutions(draw):
    rank = draw(st.integers(1, 2))
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))

    def each(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    filters = (draw(st.sampled_from([1, 2, 3, 8, 11, 40])) * groups, draw(st.integers(1, 5)), *each(1, 5))
    padding = draw(
        st.one_of(st.just("same"), st.just("valid"), st.tuples(*[st.tuples(*[st.integers(0, 4)] * 2)] * rank))
    )
    attributes = {"stride": each(1, 4), "dilation": each(1, 3), "padding": padding, "groups": groups}
    sizes = [(draw(st.integers(0, 3)), filters[1] * groups, *each(1, limit)) for limit in (12, 70, 150)]
    dtype = draw(st.sampled_from(["float32", "float64"]))
    layout = draw(st.sampled_from(["C", "C", "F", "cut"]))
    follows = draw(st.sampled_from(sorted(FOLLOWING)))
    return filters, attributes, sizes, dtype, layout, follows, draw(st.booleans())


@settings(max_examples=25, deadline=None)
@given(convolutions(), st.integers(0, 2**32 - 1))
def test_any_convolution(case, seed):
    filters, attributes, sizes, dtype, layout, follows, with_bias = case
    rng = np.random.default_rng(seed)
    name = f"conv{len(filters) - 2}d"
    b = RegionBuilder(name)
    x = b.input("x", ("N", sizes[0][1], "H", "W")[: len(filters)], dtype, strided=layout != "C")
    w, c = b.input("w", filters, dtype), b.input("c", filters[:1], dtype)
    y = b.apply(name, x, w, *([c] if with_bias else []), **attributes)
    runner = Runner(b.region(FOLLOWING[follows](b, y)))
    weights, bias = rng.standard_normal(filters).astype(dtype), rng.standard_normal(filters[0]).astype(dtype)
    for shape in sizes:
        image = rng.standard_normal(shape).astype(dtype)
        if layout == "F":
            image = np.asfortranarray(image)
        elif layout == "cut":
            image = np.repeat(image, 2, axis=-1)[..., ::2]
        try:
            want = REFERENCE[follows](get(name).reference(image, weights, bias if with_bias else None, **attributes))
        except ValueError:
            # the region leaves, or its caller finds that the result would have a negative size
            with pytest.raises((ExitTaken, ValueError)):
                runner(image, weights, bias)
            continue
        tolerance = 1e-4 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(runner(image, weights, bias), want, rtol=tolerance, atol=10 * tolerance)


def shape_text(*shape, **attributes):
    """The loop form of a convolution with relu."""
    b = RegionBuilder("conv2d")
    x, w = b.input("x", ("N", shape[1], "H", "W")), b.input("w", shape)
    return to_text(Runner(b.region(b.apply("maximum", b.apply("conv2d", x, w, **attributes), 0.0))).lowered.function)


def test_what_follows_is_fused_and_nothing_is_padded():
    text = shape_text(16, 3, 3, 3, padding=1)
    assert "max(0.0, " in text
    assert "padded" not in text
    assert text.count("vector") == 0  # no pass over the result


def test_filters_of_one_element_are_a_product_without_copies():
    text = shape_text(16, 8, 1, 1)
    assert "contract" in text
    assert "unfold" not in text


def test_the_evaluator_agrees():
    b = RegionBuilder("conv2d")
    x, w, c = b.input("x", ("N", 2, "H", "W")), b.input("w", (3, 2, 3, 2)), b.input("c", (3,))
    runner = Runner(b.region(b.apply("maximum", b.apply("conv2d", x, w, c, stride=2, padding=1), 0.0)))
    rng = np.random.default_rng(3)
    given = [rng.standard_normal(s).astype("float32") for s in ((2, 2, 7, 6), (3, 2, 3, 2), (3,))]
    np.testing.assert_allclose(runner(*given, native=False), runner(*given), rtol=1e-5, atol=1e-5)


def test_sums_have_the_same_bits_in_every_place():
    """The order of a sum depends on neither the size of the image nor the place in it."""
    b = RegionBuilder("conv2d")
    x, w = b.input("x", ("N", 3, "H", "W")), b.input("w", (5, 3, 3, 3))
    runner = Runner(b.region(b.apply("conv2d", x, w)))
    rng = np.random.default_rng(4)
    image, weights = (
        rng.standard_normal((2, 3, 90, 71)).astype("float32"),
        rng.standard_normal((5, 3, 3, 3)).astype("f4"),
    )
    whole = runner(image, weights)
    cut = runner(np.ascontiguousarray(image[1:, :, 17:60, 13:50]), weights)
    np.testing.assert_array_equal(whole[1:, :, 17:58, 13:48], cut)


def test_sums_over_small_axes_of_images():
    def halves(x):
        n, c, h, w = x.shape
        return x.reshape(n, c, h // 2, 2, w // 2, 2).mean(axis=(3, 5)), x.reshape(n, c, h, w // 2, 2).max(axis=4)

    rng = np.random.default_rng(5)
    compare(halves, *((rng.standard_normal((2, 3, h, w)).astype("float32"),) for h, w in ((8, 8), (4, 70), (2, 2))))


@pytest.mark.parametrize("follows", ["relu", "square"])
def test_threads_share_a_convolution(follows):
    """The same bits from any number of threads, which cut the work differently."""
    b = RegionBuilder("conv2d")
    x, w = b.input("x", ("N", 8, "H", "W")), b.input("w", (48, 4, 3, 3))
    y = b.apply("conv2d", x, w, stride=2, padding=1, groups=2)
    lowered = Runner(b.region(FOLLOWING[follows](b, y))).lowered
    function, code, rng = lowered.function, build(lowered.function), np.random.default_rng(7)
    weights = rng.standard_normal((48, 4, 3, 3)).astype("float32")
    library = imports(Target.host())
    pools = [ThreadPool(library[RUN], library[WORKER], threads) for threads in (1, 2, 5)]
    try:
        for shape in ((2, 8, 90, 75), (1, 8, 7, 9), (1, 8, 301, 30)):
            image = rng.standard_normal(shape).astype("float32")
            want = REFERENCE[follows](get("conv2d").reference(image, weights, stride=2, padding=1, groups=2))
            found = []
            for pool in pools:
                result = np.full(want.shape, 7, "float32")
                buffers = dict(zip((b.name for b in function.buffers), (image, weights, result), strict=True))
                sizes = dict(zip(("N", "H", "W"), (shape[0], *shape[2:]), strict=True))
                call(code, function, buffers, sizes, pool=pool.address, threads=pool.threads)
                np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-4)
                found.append(result)
            np.testing.assert_array_equal(found[0], found[1])
            np.testing.assert_array_equal(found[0], found[2])
    finally:
        for pool in pools:
            pool.close()


@st.composite
def chains(draw):
    def each(low, high):
        return draw(st.integers(low, high)), draw(st.integers(low, high))

    def attributes(most):
        return {"stride": each(1, 3), "dilation": each(1, 2), "padding": (each(0, most), each(0, most))}

    channels, between = draw(st.integers(1, 3)), draw(st.sampled_from([1, 3, 8, 16]))
    first = (between, channels, *each(1, 4))
    second = (draw(st.sampled_from([1, 5, 8, 32, 70])), between, *each(1, 4))
    sizes = [(draw(st.integers(0, 2)), channels, *each(1, limit)) for limit in (12, 40, 180)]
    ending = draw(st.sampled_from(["nothing", "relu", "sum", "sum of relu"]))
    return first, second, attributes(3), attributes(5), sizes, ending, draw(st.sampled_from(["float32", "float64"]))


@settings(max_examples=20, deadline=None)
@given(chains(), st.booleans(), st.integers(0, 2**32 - 1))
def test_a_convolution_within_another_and_sums_of_positions(case, keepdims, seed):
    first, second, inner, outer, sizes, ending, dtype = case
    rng = np.random.default_rng(seed)
    b = RegionBuilder("chain")
    x, w = b.input("x", ("N", first[1], "H", "W"), dtype), b.input("w", first, dtype)
    c, v = b.input("c", first[:1], dtype), b.input("v", second, dtype)
    y = b.apply("conv2d", b.apply("maximum", b.apply("conv2d", x, w, c, **inner), 0.0), v, **outer)
    if "relu" in ending:
        y = b.apply("maximum", y, 0.125)
    if "sum" in ending:
        y = b.apply("sum", y, axis=(2, 3), keepdims=keepdims)
    runner, reference = Runner(b.region(y)), get("conv2d").reference
    text = to_text(runner.lowered.function)
    plain = first[2:] == (1, 1) and inner["stride"] == (1, 1) and inner["padding"] == ((0, 0), (0, 0))
    assert ("made" in text) == (not plain)
    filters, bias, others = (rng.standard_normal(s).astype(dtype) for s in (first, first[:1], second))
    for shape in sizes:
        image = rng.standard_normal(shape).astype(dtype)
        try:
            want = reference(np.maximum(reference(image, filters, bias, **inner), 0), others, **outer)
        except ValueError:
            with pytest.raises((ExitTaken, ValueError)):
                runner(image, filters, bias, others)
            continue
        if "relu" in ending:
            want = np.maximum(want, 0.125)
        if "sum" in ending:
            want = want.sum(axis=(2, 3), keepdims=keepdims)
        tolerance = 1e-4 if dtype == "float32" else 1e-12
        largest = float(np.abs(want).max()) if want.size else 0.0
        got = runner(image, filters, bias, others)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * (1 + largest))


def test_a_convolution_that_something_else_uses_is_written_out():
    b = RegionBuilder("shared")
    x, w, v = b.input("x", ("N", 3, "H", "W")), b.input("w", (8, 3, 3, 3)), b.input("v", (4, 8, 3, 3))
    y = b.apply("conv2d", x, w, padding=1)
    z = b.apply("conv2d", y, v)
    runner, reference = Runner(b.region(y, z)), get("conv2d").reference
    assert "made" not in to_text(runner.lowered.function)
    rng = np.random.default_rng(8)
    shapes = ((2, 3, 9, 20), (8, 3, 3, 3), (4, 8, 3, 3))
    image, filters, others = (rng.standard_normal(s).astype("float32") for s in shapes)
    got, want = runner(image, filters, others), reference(image, filters, padding=1)
    np.testing.assert_allclose(got[0], want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got[1], reference(want, others), rtol=1e-4, atol=1e-4)
