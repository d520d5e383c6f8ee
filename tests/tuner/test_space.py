"""The space of points, the guess and the cut it rests on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.surfaces import TARGET, product
from tiercel.codegen.cpu.choice import Choice, Part, Point, space, usual
from tiercel.tuner.space import cut_of, features, guess_ns, points

AVX2 = replace(TARGET, vector_bytes=32)


def test_there_are_many_points_and_no_two_are_the_same():
    for target in (TARGET, AVX2):
        for packed in (True, False):
            found = list(space(target, packed=packed))
            assert len(found) == len(set(found)) >= 36
            assert usual(target, packed=packed) in found


def test_one_thread_and_small_products_have_nothing_to_cut():
    few, many = points(product(8, 768, 768, threads=1), TARGET), points(product(8, 768, 768), TARGET)
    assert set(few) < set(many)
    assert set(points(product(2, 64, 64), TARGET)) == set(few)


@given(
    st.integers(1, 300),
    st.integers(1, 4000),
    st.integers(1, 4000),
    st.integers(1, 8),
    st.sampled_from(["packed", "rows", "columns"]),
)
def test_blocks_cover_the_product_and_the_guess_is_a_time(m, n, k, threads, layout):
    made = product(m, n, k, threads, layout)
    space_ = points(made, TARGET)
    for point in space_[:: max(1, len(space_) // 7)]:
        cut = cut_of(made, point, TARGET)
        panel = point.vectors * 16
        assert (cut.down - 1) * cut.rows < m <= cut.down * max(cut.rows, 1)
        assert cut.across * cut.panels * panel >= n
        assert 0 < guess_ns(made, point, TARGET) < 1e15
    assert np.isfinite(features(made, space_[:5], TARGET)).all()


def test_full_tiles_of_nine_rows_are_guessed_to_be_slower_than_even_ones():
    made = product(9, 768, 768, threads=1)
    even = usual(TARGET, packed=True)
    assert guess_ns(made, even._replace(vectors=3), TARGET) < guess_ns(
        made, even._replace(vectors=3, rows="full"), TARGET
    )


def test_a_choice_says_what_to_do_for_each_number_of_rows():
    choice = Choice(4, "broad", (Part(20, "full", "rows", 1, 0), Part(None, "even", "columns", 2, 0)))
    assert choice.point(20) == Point(4, "broad", "full", "rows", 1, 0)
    assert choice.point(21) == Point(4, "broad", "even", "columns", 2, 0)
    assert Choice.from_data(choice.to_data(), TARGET) == choice


@pytest.mark.parametrize(
    "data",
    [
        None, [], [4, "broad"], [4, "broad", []], [5, "broad", [[None, "full", "rows", 1, 0]]],
        [4, "wide", [[None, "full", "rows", 1, 0]]], [4, "broad", [[20, "full", "rows", 1, 0]]],
        [4, "broad", [[30, "full", "rows", 1, 0], [20, "full", "rows", 1, 0], [None, "full", "rows", 1, 0]]],
        [4, "broad", [["x", "full", "rows", 1, 0], [None, "full", "rows", 1, 0]]],
        [4, "broad", [[None, "full", "rows", 3, 0]]],
    ],
)  # fmt: skip
def test_what_is_no_choice_is_refused(data):
    with pytest.raises(ValueError, match="no choice for a product"):
        Choice.from_data(data, TARGET)
