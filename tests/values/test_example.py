"""Arguments made of hints meet the hints, and sizes agree only where they must."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiercel as tc
from tiercel.errors import ShapeError
from tiercel.values import example


def test_names_share_a_size_and_open_sizes_differ():
    sizes: dict[str, int] = {}
    a = example(tc.spec("B", "T", 128, dtype=tc.float32), sizes)
    b = example(tc.spec("B", None, None), sizes)
    assert a.shape[0] == b.shape[0]
    assert a.shape[2] == 128
    assert len({*a.shape[:2], *b.shape}) == 4
    assert a.dtype == b.dtype == np.float32


def test_dtype_and_layout_are_the_first_allowed():
    assert example(tc.spec(2, 3, dtype=np.int16), {}).dtype == np.int16
    assert example(tc.spec(..., 3), {}).shape == (3,)


def test_expressions_follow_their_names():
    sizes: dict[str, int] = {}
    array = example(tc.spec("T", "2 * T + 1"), sizes)
    assert array.shape[1] == 2 * array.shape[0] + 1


def test_an_expression_below_zero_is_refused():
    with pytest.raises(ShapeError, match="warm up with arrays"):
        example(tc.spec("T", "T - 100"), {})


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 9), st.integers(0, 3))
def test_sizes_are_in_their_range(lo, more, multiple, others):
    try:
        dim = tc.dim("T", lo, lo + more, multiple=multiple)
    except ShapeError:
        return
    size = example(dim, {f"n{i}": 5 + i for i in range(others)})
    assert lo <= size <= lo + more
    assert size % multiple == 0
