"""Products with vectors, and operands that are not packed: evaluator and machine code against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiercel as tc
from tests.compiler.regions import RegionBuilder
from tests.compiler.test_lower import agree, random
from tests.compiler.tracing import Compiled
from tiercel.dtypes import as_dtype
from tiercel.loops import to_text

VECTOR_SIZES = [(3, 5), (1, 1), (0, 4), (4, 0), (2, 70), (65, 33)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("turned", [False, True])
def test_matrix_times_vector(dtype, turned):
    """Dot products of rows where these are contiguous, else sums of columns; with an epilogue and a wide stack."""
    b = RegionBuilder("mv")
    a, v, bias = (
        b.input("a", ("K", "M") if turned else ("M", "K"), dtype),
        b.input("v", ("K",), dtype),
        b.input("b", ("M",), dtype),
    )
    left = b.apply("transpose", a, axes=None) if turned else a
    region = b.region(b.apply("tanh", b.apply("add", b.apply("matmul", left, v), bias)))
    sets = [
        (
            random(k, m, dtype=dtype) if turned else random(m, k, dtype=dtype),
            random(k, dtype=dtype),
            random(m, dtype=dtype),
        )
        for m, k in VECTOR_SIZES
    ]
    agree(region, lambda a, v, b: np.tanh((a.T if turned else a) @ v + b), *sets)


@pytest.mark.parametrize("turned", [False, True])
def test_vector_times_matrix(turned):
    b = RegionBuilder("vm")
    v, a = b.input("v", ("K",)), b.input("a", ("N", "K") if turned else ("K", "N"))
    right = b.apply("transpose", a, axes=None) if turned else a
    region = b.region(b.apply("multiply", b.apply("matmul", v, right), 2.0))
    sets = [(random(k), random(n, k) if turned else random(k, n)) for n, k in VECTOR_SIZES]
    agree(region, lambda v, a: (v @ (a.T if turned else a)) * np.float32(2), *sets)


def test_stack_times_vector():
    b = RegionBuilder("smv")
    a, v, c = b.input("a", ("B", "M", "K")), b.input("v", ("K",)), b.input("c", ("M",))
    region = b.region(b.apply("subtract", b.apply("matmul", a, v), c))
    sets = [
        (random(2, 3, 5), random(5), random(3)),
        (random(0, 3, 5), random(5), random(3)),
        (random(3, 1, 40), random(40), random(1)),
    ]
    agree(region, lambda a, v, c: a @ v - c, *sets)


def test_a_product_alone_is_written_to_its_place():
    b = RegionBuilder("mv")
    a, v = b.input("a", ("M", "K")), b.input("v", ("K",))
    agree(b.region(b.apply("matmul", a, v)), lambda a, v: a @ v, *((random(m, k), random(k)) for m, k in VECTOR_SIZES))


def test_an_operand_used_once_is_not_packed_before():
    """The product packs what it needs of it; outside of loops nothing is gained by packing all of it first."""
    b = RegionBuilder("once")
    x, w = b.input("x", ("M", "K")), b.input("w", ("N", "K"))
    region = b.region(b.apply("matmul", x, b.apply("transpose", w, axes=None)))
    runner = agree(
        region, lambda x, w: x @ w.T, *((random(m, 9), random(n, 9)) for m, n in ((3, 5), (70, 50), (1, 130)))
    )
    assert " pack " not in to_text(runner.lowered.function)


def test_half_precision_is_summed_in_single():
    """One rounding of each element, as NumPy's own loop has; 3000 ones are 3000, which steps in float16 miss."""
    b = RegionBuilder("half")
    x, w = b.input("x", ("M", "K"), "float16"), b.input("w", ("K", "N"), "float16")
    region = b.region(b.apply("add", b.apply("matmul", x, w), 1.0))
    sets = [(random(m, k, dtype="float16"), random(k, n, dtype="float16")) for m, n, k in ((3, 5, 4), (9, 50, 40))]
    runner = agree(region, lambda x, w: x @ w + np.float16(1), *sets, rtol=2e-3, atol=4e-3)
    ones = np.ones((1, 3000), np.float16), np.ones((3000, 1), np.float16)
    assert runner(*ones, native=True).item() == 3000


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def whole(*shape, dtype):
    info = np.iinfo(dtype)
    return np.random.default_rng(sum(shape)).integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_products_wrap_around(dtype):
    """Exactly NumPy's elements, with what follows them, for matrices, stacks and vectors."""
    b = RegionBuilder("whole")
    x, w, v = b.input("x", ("M", "K"), dtype), b.input("w", ("K", "N"), dtype), b.input("v", ("K",), dtype)
    s, t = b.input("s", ("B", "M", "K"), dtype), b.input("t", ("N", "K"), dtype)
    region = b.region(
        b.apply("add", b.apply("matmul", x, w), 1),
        b.apply("matmul", x, v),
        b.apply("matmul", s, w),
        b.apply("matmul", x, b.apply("transpose", t, axes=None)),
    )
    sets = [
        tuple(whole(*shape, dtype=dtype) for shape in ((m, k), (k, n), (k,), (2, m, k), (n, k)))
        for m, n, k in ((3, 5, 4), (1, 1, 1), (0, 3, 2), (2, 0, 3), (2, 3, 0), (19, 50, 33))
    ]
    agree(region, lambda x, w, v, s, t: (x @ w + x.dtype.type(1), x @ v, s @ w, x @ t.T), *sets, rtol=0, atol=0)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([*INTEGERS, "float16", "bfloat16", "float32", "float64"]),
    st.tuples(st.integers(1, 20), st.integers(1, 60), st.integers(1, 40)),
    st.booleans(),
)
def test_frozen_operands_of_any_dtype(dtype, sizes, turned):
    """Packed weights, laid out in rows or in columns, and what is given anew have the same result: NumPy's."""
    kind, (m, n, k) = as_dtype(dtype), sizes
    exact = kind.kind in "iu"
    x, w = (whole(*s, dtype=dtype) if exact else random(*s, dtype=kind.numpy) for s in ((m, k), (k, n)))
    fixed = tc.constant(np.ascontiguousarray(w.T) if turned else w)
    packed = Compiled((lambda x: x @ np.transpose(fixed)) if turned else (lambda x: x @ fixed), x)
    plain = Compiled((lambda x, w: x @ np.transpose(w)) if turned else (lambda x, w: x @ w), x, np.array(fixed))
    assert packed.runner.lowered.interface.packs or n == 1
    got, again, want = packed(x), plain(x, np.array(fixed)), x @ w
    assert got.dtype == again.dtype == want.dtype
    np.testing.assert_array_equal(np.asarray(got, np.float64 if kind.is_half else None), again)
    if exact:
        np.testing.assert_array_equal(got, want)
        return
    eps = float(ml_dtypes.finfo(kind.numpy).eps)
    true, scale = (f(x.astype(float)) @ f(w.astype(float)) for f in (lambda a: a, np.abs))
    assert (np.abs(got.astype(float) - true) <= 4 * eps * scale).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_widen_their_right_operand(dtype):
    """No copy of the weights in float32: not where they are converted, not where NumPy promotes, not in a loop."""
    kind = as_dtype(dtype).numpy
    w, x, wide = tc.constant(random(30, 50, dtype=kind)), random(4, 30), random(4, 30, dtype=kind)

    def steps(x):
        total = x @ w.astype(np.float32)
        for _ in range(3):
            total = total + x @ w.astype(np.float32)
        return total

    functions = [(lambda x: x @ w.astype(np.float32) + 1, x), (lambda x: x @ w, x), (lambda x: x @ w, wide), (steps, x)]
    for function, given_ in functions:
        compiled = Compiled(function, given_)
        text = to_text(compiled.runner.lowered.function)
        assert f"_packed: {dtype}[30, 50]" in text
        assert "float32[30, 50]" not in text.replace(f"b{dtype}", "").replace(f"_packed: {dtype}[30, 50]", "")
        want = function(given_)
        np.testing.assert_allclose(
            np.asarray(compiled(given_), np.float32), np.asarray(want, np.float32), rtol=1e-2, atol=1e-2
        )


def test_a_conversion_that_is_used_otherwise_stays():
    w = random(30, 50, dtype="float16")

    def both(x, w):
        wide = w.astype(np.float32)
        return x @ wide, wide

    x = random(4, 30)
    got, wide = Compiled(both, x, w)(x, w)
    np.testing.assert_array_equal(wide, w.astype(np.float32))
    np.testing.assert_allclose(got, x @ wide, rtol=1e-4, atol=1e-5)


def test_a_captured_matrix_is_transposed_by_its_attribute():
    """`w.T` of what the frontend does not know to be an array is the view, packed once where it is frozen."""
    for w in (tc.constant(random(50, 30)), random(50, 30)):
        x = random(4, 30)
        compiled = Compiled(lambda x: x @ w.T, x)  # noqa: B023
        assert len(compiled.runner.lowered.interface.packs) == (not w.flags.writeable)
        np.testing.assert_allclose(compiled(x), x @ w.T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("small", "other"), [("int8", "int8"), ("uint8", "int8"), ("int16", "uint16"), ("int8", "int32")]
)
def test_small_integers_are_summed_in_32_bits(small, other):
    """Quantised products: exact, with weights packed as they are, and none of their size widened."""
    x, w = whole(9, 300, dtype=other), whole(300, 65, dtype=small)
    fixed = tc.constant(w)
    for function, arguments in (
        (lambda x: x.astype(np.int32) @ fixed.astype(np.int32), (x,)),
        (lambda x, w: x.astype(np.int32) @ w.astype(np.int32), (x, w)),
    ):
        compiled = Compiled(function, *arguments)
        np.testing.assert_array_equal(compiled(*arguments), x.astype(np.int32) @ w.astype(np.int32))
        text = to_text(compiled.runner.lowered.function)
        assert " int32[300, 65]" not in text
        assert bool(compiled.runner.lowered.interface.packs) == (len(arguments) == 1)
