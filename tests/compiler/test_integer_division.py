"""Floor division and remainder of integers, by constants and by anything: values and flags of NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.regions import RegionBuilder, Runner


@pytest.mark.parametrize("operator", ["floor_divide", "remainder"])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32", "uint64"])
def test_by_arrays(operator, dtype):
    b = RegionBuilder(operator)
    x, y = b.input("x", ("N",), dtype), b.input("y", ("N",), dtype)
    runner = Runner(b.region(b.apply(operator, x, y)))
    limits = np.iinfo(dtype)
    numbers = [0, 1, 2, 7, limits.max, limits.min, limits.max - 3] + ([-1, -2, -7] if limits.min else [])
    left, right = (a.ravel() for a in np.meshgrid(np.array(numbers, dtype), np.array(numbers, dtype)))
    with np.errstate(all="ignore"):
        want = getattr(np, operator)(left, right)
    np.testing.assert_array_equal(runner(left, right), want)
    for p, q in zip(left, right, strict=True):
        raised: set[str] = set()
        expected: set[str] = set()
        with np.errstate(all="call", call=lambda kind, _, found=expected: found.add(kind)):
            getattr(np, operator)(np.array([p]), np.array([q]))
        runner(np.array([p]), np.array([q]), raised=raised)
        assert raised == expected, (p, q)


@pytest.mark.parametrize("operator", ["floor_divide", "remainder"])
@pytest.mark.parametrize("divisor", [3, -3, 1, 8, -1])
def test_by_numbers(operator, divisor):
    b = RegionBuilder(operator)
    x = b.input("x", ("N",), "int32")
    values = np.random.default_rng(0).integers(-100, 100, 77).astype("int32")
    got = Runner(b.region(b.apply(operator, x, divisor)))(values)
    np.testing.assert_array_equal(got, getattr(np, operator)(values, divisor))
