"""Einsums of two operands: compiled results against NumPy's, elements and order of axes, whatever sizes are 1."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.compiler.tracing import Compiled
from tiercel.compiler.abstract import Untraceable

CASES = {
    "ij,jk->ik": "ijk",
    "ij,kj->ki": "ijk",
    "bij,bjk->bik": "bijk",
    "bqhd,bkhd->bhqk": "bqkhd",
    "bhqk,bkhd->bqhd": "bqkhd",
    "btd,dhe->bthe": "btdhe",
    "ij,jk": "ijk",
    "bi,bi->b": "bi",
    "i,j->ij": "ij",
}


@pytest.mark.parametrize("subscripts", CASES)
def test_einsum_is_a_product(subscripts):
    labels = CASES[subscripts]
    given = subscripts.partition("->")[0].split(",")
    compiled = None
    for number, chosen in enumerate(itertools.product((3, 1), repeat=len(labels))):
        sizes = dict(zip(labels, (n + i if n > 1 else 1 for i, n in enumerate(chosen)), strict=True))
        rng = np.random.default_rng(number)
        arrays = [rng.standard_normal([sizes[c] for c in part]).astype(np.float32) for part in given]
        if compiled is None:
            compiled = Compiled(lambda a, b: np.einsum(subscripts, a, b), *arrays, speculate=False)
        got, want = compiled(*arrays), np.einsum(subscripts, *arrays)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        wide = [axis for axis in range(want.ndim) if want.shape[axis] > 1]
        assert [got.strides[a] for a in wide] == [want.strides[a] for a in wide]


@pytest.mark.parametrize("dtype", ["float64", "int32", "float16"])
def test_other_dtypes(dtype):
    rng = np.random.default_rng(3)
    a, b = ((rng.standard_normal(s) * 9).astype(dtype) for s in ((4, 5, 6), (4, 6, 7)))
    got, want = Compiled(lambda a, b: np.einsum("bij,bjk->bik", a, b), a, b)(a, b), np.einsum("bij,bjk->bik", a, b)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=2e-2 if dtype == "float16" else 1e-9, atol=1)


def test_an_order_that_a_summed_size_decides_is_refused():
    """With one column in a, NumPy has nothing that tells i from k, and keeps them as they are written."""
    a, b = np.ones((3, 4), np.float32), np.ones((5, 3), np.float32)
    assert np.einsum("ji,kj->ik", a, b).strides != np.einsum("ji,kj->ik", a[:1], b[:, :1]).strides
    with pytest.raises(Untraceable, match="order of whose axes"):
        Compiled(lambda a, b: np.einsum("ji,kj->ik", a, b), a, b, speculate=False)
    got = Compiled(lambda a, b: np.einsum("ji,kj->ik", a, b).sum(1), a, b)(a, b)
    np.testing.assert_allclose(got, np.full(4, 15.0))
