"""sort, stable argsort, topk, one_hot, shifts, counts, batch norm: against NumPy and the references of their rows."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc
from tests.compiler.regions import ExitTaken, RegionBuilder, Runner
from tests.compiler.tracing import Compiled, compare
from tiercel.compiler.elementwise import NotLowered
from tiercel.operators import get

RNG = np.random.default_rng(2)
DTYPES = ["float32", "float64", "int32", "uint8", "bool", "float16"]
SHAPES = ((3, 5), (1, 1), (2, 70), (0, 4), (4, 0))


def values(shape, dtype):
    x = RNG.integers(-5, 6, shape) if np.dtype(dtype).kind not in "ub" else RNG.integers(0, 4, shape)
    x = x.astype(dtype)
    if np.dtype(dtype).kind == "f" and x.size > 4:
        x.ravel()[1::4] = np.nan
        x.ravel()[2::5] = np.inf
    return x


@pytest.mark.parametrize("axis", [0, -1, None])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sort_and_argsort(dtype, axis):
    for operator, attributes in (("sort", {}), ("argsort", {"kind": "stable"})):
        b = RegionBuilder(operator)
        runner = Runner(b.region(b.apply(operator, b.input("x", ("A", "B"), dtype), axis=axis, **attributes)))
        for shape in SHAPES:
            given = values(shape, dtype)
            np.testing.assert_array_equal(runner(given), getattr(np, operator)(given, axis=axis, **attributes))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_topk(dtype, largest):
    for axis, k in ((-1, 3), (0, 1)):
        b = RegionBuilder("topk")
        both = b.apply("topk", b.input("x", ("A", "B"), dtype), k=k, axis=axis, largest=largest)
        runner = Runner(b.region(*both))
        for shape in ((3, 5), (2, 70), (1, 3)):
            given = values(shape, dtype)
            got, want = runner(given), get("topk").reference(given, k, axis=axis, largest=largest)
            for g, w in zip(got, want, strict=True):
                np.testing.assert_array_equal(g, w)
        with pytest.raises(ExitTaken):
            runner(values((0, 2), dtype))


def test_long_axes_leave():
    b = RegionBuilder("sort")
    runner = Runner(b.region(b.apply("sort", b.input("x", ("A", "B")))))
    with pytest.raises(ExitTaken):
        runner(np.zeros((1, 1025), np.float32))


def test_an_argsort_that_is_not_stable_says_why():
    b = RegionBuilder("argsort")
    with pytest.raises(NotLowered, match="not stable"):
        Runner(b.region(b.apply("argsort", b.input("x", ("A",)))))


def test_one_hot():
    for axis in (0, 1, -1):
        b = RegionBuilder("one_hot")
        i = b.input("i", ("A", "B"), "int32")
        runner = Runner(b.region(b.apply("one_hot", i, depth=5, axis=axis, on_value=2, off_value=-1, dtype=np.float32)))
        given = RNG.integers(-2, 8, (3, 7)).astype("int32")
        want = get("one_hot").reference(given, 5, 2, -1, axis, np.float32)
        np.testing.assert_array_equal(runner(given), want)


@pytest.mark.parametrize("operator", ["left_shift", "right_shift"])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
def test_shifts(operator, dtype):
    b = RegionBuilder(operator)
    runner = Runner(b.region(b.apply(operator, b.input("x", ("N",), dtype), b.input("y", ("N",), dtype))))
    numbers = np.array([0, 1, 3, 7, 8, 31, 32, 63, 64, 100, *([-1, -5, -100] if dtype[0] == "i" else [])])
    x, y = (a.ravel().astype(dtype) for a in np.meshgrid(numbers, numbers))
    np.testing.assert_array_equal(runner(x, y), getattr(np, operator)(x, y))


def test_counts_casts_and_batch_norm():
    def floats(*shape):
        return RNG.standard_normal(shape).astype(np.float32)

    compare(lambda x: np.count_nonzero(x > 0, axis=1) + 1, (floats(4, 9),), (floats(1, 70),))
    compare(lambda x: x * np.float32(x.sum() * 2) + np.float64(x.max()), (floats(4, 9),))
    compare(
        lambda x, m, v, w, b: tc.ops.batch_norm(x, m, v * v, w, b),
        (floats(2, 3, 5), floats(3), floats(3), floats(3), floats(3)),
    )
    with pytest.raises(Exception, match="int32 is a class"):
        Compiled(lambda x: x + np.int32(x.sum()), floats(4))
