"""Products with vectors, and operands that are not packed: evaluator and machine code against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.regions import RegionBuilder
from tests.compiler.test_lower import agree, random
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
