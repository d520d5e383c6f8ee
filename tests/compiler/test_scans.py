"""argmax, argmin, cumsum, cumprod along every axis: against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.regions import ExitTaken, RegionBuilder, Runner

SHAPES = ((3, 5, 7), (1, 1, 1), (2, 40, 3), (4, 2, 70))
DTYPES = ("float32", "float64", "int64", "uint8", "bool", "float16")


def values(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    x = rng.integers(-4, 5, shape) if np.dtype(dtype).kind != "u" else rng.integers(0, 9, shape)
    return x.astype(dtype)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("operator", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_first_position_of_an_extreme(operator, axis, dtype):
    for keepdims in (False, True):
        b = RegionBuilder(operator)
        x = b.input("x", ("A", "B", "C"), dtype)
        runner = Runner(b.region(b.apply(operator, x, axis=axis, keepdims=keepdims)))
        for shape in SHAPES:
            given = values(shape, dtype)
            raised: set[str] = set()
            want = getattr(np, operator)(given, axis=axis, keepdims=keepdims)
            np.testing.assert_array_equal(runner(given, raised=raised), want)
            if np.dtype(dtype).kind == "f":
                given.ravel()[:: max(1, given.size // 3)] = np.nan
                want = getattr(np, operator)(given, axis=axis, keepdims=keepdims)
                np.testing.assert_array_equal(runner(given, raised=raised), want)
                given[...] = np.inf if operator == "argmin" else -np.inf
                np.testing.assert_array_equal(
                    runner(given, raised=raised), getattr(np, operator)(given, axis=axis, keepdims=keepdims)
                )
            assert not raised
        with pytest.raises(ExitTaken):
            runner(values((0, 0, 0), dtype))


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("operator", ["cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int8", "bool", "float16"])
def test_running(operator, axis, dtype):
    b = RegionBuilder(operator)
    x = b.input("x", ("A", "B", "C"), dtype)
    runner = Runner(b.region(b.apply(operator, x, axis=axis)))
    for shape in (*SHAPES, (0, 2, 3), (2, 3, 0)):
        given = values(shape, dtype)
        if dtype.startswith("float"):
            given = (given / 5).astype(dtype)
        want = getattr(np, operator)(given, axis=axis, dtype=np.float32 if dtype == "float16" else None)
        got = runner(given)
        assert got.dtype == getattr(np, operator)(given, axis=axis).dtype
        np.testing.assert_allclose(got, want.astype(got.dtype), rtol=1e-6)


def test_of_strided_inputs():
    for operator in ("argmax", "cumsum"):
        b = RegionBuilder(operator)
        x = b.input("x", ("A", "B"), strided=True)
        runner = Runner(b.region(b.apply(operator, x, axis=1)))
        given = values((9, 14), "float32").T[::2]
        np.testing.assert_array_equal(runner(given), getattr(np, operator)(given, axis=1))
