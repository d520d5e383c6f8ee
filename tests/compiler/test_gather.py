"""Indexing by arrays of integers, take, take_along_axis, embeddings, writes at indices: against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc
from tests.compiler.regions import ExitTaken
from tests.compiler.tracing import Compiled, compare

RNG = np.random.default_rng(5)


def floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def places(size: int, *shape: int, dtype: str = "int64") -> np.ndarray:
    low = -size if np.dtype(dtype).kind == "i" else 0
    return RNG.integers(low, max(size, 1), shape).astype(dtype)


TABLE = [(floats(9, 4), places(9, 5)), (floats(1, 1), places(1, 1)), (floats(3, 70), places(3, 0))]
DEEP = [(floats(4, 5, 6), places(4, 3)), (floats(1, 2, 1), places(1, 7))]


def written(x, i):
    y = x * 2
    y[i] = 7.0
    return y


def written_rows(x, i):
    y = x * 2
    y[i] = x[: i.shape[0]] + 1
    return y


def written_columns(x, i, v):
    y = x + 0
    y[1:, i] = v
    return y


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        pytest.param(lambda x, i: x[i], TABLE, id="rows"),
        pytest.param(lambda x, i: x[i] * 2 + x[0], TABLE, id="rows used"),
        pytest.param(lambda x, i: x[i, :], TABLE, id="rows and a slice"),
        pytest.param(lambda x, i: x[i, 0], TABLE, id="rows and an int"),
        pytest.param(lambda x, i: x[i][:, None], TABLE, id="rows and a view"),
        pytest.param(lambda x, i: x.T[:, i].copy(), TABLE, id="columns"),
        pytest.param(lambda x, i: x[..., i, :, 0] + 1, DEEP, id="in the middle"),
        pytest.param(lambda x, i: x[i, :, 0] + 1, DEEP, id="an array and an int apart"),
        pytest.param(lambda x, i: x[i, None, :, -1] + 1, DEEP, id="a new axis"),
        pytest.param(lambda x, i: x[i, 1] + 1, DEEP, id="an array beside an int"),
        pytest.param(lambda x, i: x[i[:, None], i[None, :] % 2] + 1, [DEEP[0]], id="two arrays"),
        pytest.param(lambda x, i: x[i, :, i] + 1, [(floats(4, 5, 4), places(4, 3))], id="two arrays apart"),
        pytest.param(lambda x, i: x[1:, i[:, None]].copy(), [(floats(3, 8), places(8, 5))], id="a slice before"),
        pytest.param(lambda x, i: x[::-1][i], TABLE, id="of a reversed view"),
        pytest.param(lambda x, i: x[i].sum(axis=-1), TABLE, id="summed"),
        pytest.param(lambda x: x[[2, 0, -1]], [(floats(4, 3),), (floats(3, 1),)], id="a list"),
        pytest.param(lambda x: x[:, [1, 0]].copy(), [(floats(4, 3),)], id="a list of columns"),
        pytest.param(lambda x, i: np.take(x, i) + 0, TABLE, id="take flat"),
        pytest.param(lambda x, i: np.take(x.T, i), TABLE, id="take flat of a view"),
        pytest.param(lambda x, i: np.take(x, i, axis=1), [(floats(3, 8), places(8, 2, 5))], id="take columns"),
        pytest.param(lambda x, i: x.take(i, axis=0), TABLE, id="take method"),
        pytest.param(lambda x, i: tc.ops.embedding(i, x), TABLE, id="embedding"),
        pytest.param(lambda x, i: tc.ops.gather(x, i, axis=-1), [(floats(3, 8), places(8, 4))], id="gather"),
        pytest.param(
            lambda x, i: np.take_along_axis(x, i, axis=-1),
            [(floats(3, 8), places(8, 3, 2)), (floats(2, 1), places(1, 2, 4))],
            id="take_along_axis",
        ),
        pytest.param(
            lambda x, i: np.take_along_axis(x, i, axis=0), [(floats(5, 3), places(5, 2, 3))], id="take_along_axis 0"
        ),
        pytest.param(
            lambda x, i: np.take_along_axis(x, i, axis=1), [(floats(5, 3), places(3, 1, 4))], id="take_along broadcast"
        ),
        pytest.param(
            lambda x, i: tc.ops.gather_elements(x, i, axis=0), [(floats(5, 3), places(5, 2, 2))], id="gather_elements"
        ),
        pytest.param(
            lambda x, i: tc.ops.gather_nd(x, np.stack([i, i // 2], axis=-1)),
            [(floats(4, 4, 3), places(4, 6))],
            id="gather_nd",
        ),
        pytest.param(written, TABLE, id="written"),
        pytest.param(written_rows, [(floats(9, 4), places(9, 5))], id="rows written, the last stays"),
        pytest.param(written_columns, [(floats(3, 8), places(8, 5), floats(2, 5))], id="columns written"),
        pytest.param(lambda x, i: np.where(x > 0, i, 0)[i % 2], [(floats(4), places(9, 4))], id="computed index"),
    ],
)
def test_as_numpy(function, arguments):
    compare(function, *arguments)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "uint32", "int64"])
@pytest.mark.parametrize("element", ["float64", "int16", "bool"])
def test_dtypes(dtype, element):
    x = (floats(11, 3) > 0).astype(element)
    compare(lambda x, i: x[i], (x, places(11, 4, 2, dtype=dtype)))


@pytest.mark.parametrize("bad", [9, -10, 2**40])
def test_an_index_out_of_range_leaves(bad):
    def rows(x, i):
        return x[i] + 1

    compiled = Compiled(rows, floats(9, 4), places(9, 5))
    for place in range(5):
        i = places(9, 5)
        i[place] = bad
        with pytest.raises(ExitTaken):
            compiled(floats(9, 4), i)
    with pytest.raises(ExitTaken):
        compiled(floats(0, 4), places(1, 1))
    assert compiled(floats(0, 4), places(1, 0)).shape == (0, 4)
