"""Reductions over what indices pick, without the array of it; parts of concatenations computed at their places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler.regions import ExitTaken
from tests.compiler.tracing import Compiled, compare
from tiercel.compiler.lower import lower_region
from tiercel.loops.form import Allocate, Stmt, blocks

RNG = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def ints(high: int, *shape: int) -> np.ndarray:
    return RNG.integers(-high, high, shape)


def arenas(compiled: Compiled) -> list[int]:
    """The ranks of the arena buffers."""

    def inside(stmts: tuple[Stmt, ...]) -> list[int]:
        found = []
        for stmt in stmts:
            if isinstance(stmt, Allocate) and stmt.buffer.root is None:
                found.append(len(stmt.buffer.shape))
            for inner in blocks(stmt):
                found += inside(inner.body)
        return found

    return inside(lower_region(compiled.region).function.body.body)


# --- bags ---


def bag(table, ids):
    return table[ids].sum(axis=1)


def kept_bag(table, ids):
    return table[ids].sum(axis=1, keepdims=True)


def all_bags(table, ids):
    return table[ids].max(axis=(0, 1))


def taken(table, ids):
    return np.take(table, ids, axis=0).mean(axis=1)


def ragged_neighbours(table, ids):
    return (table[ids[:, 1:]] * 1.0).sum(axis=1) + table[ids].prod(axis=1)


def used_twice(table, ids):
    picked = table[ids]
    return picked.sum(axis=1), picked + 1


def last_axis(table, ids):
    return table[ids].sum(axis=-1)


def everything(table, ids):
    return table[ids].sum()


@pytest.mark.parametrize("function", [bag, all_bags])
def test_nothing_is_written_but_the_result(function):
    sets = [(floats(9, 5), ints(9, 3, 4)), (floats(1, 1), ints(1, 1, 1)), (floats(50, 130), ints(50, 7, 33))]
    compiled = compare(function, *sets)
    assert max(arenas(compiled), default=0) < 3


@pytest.mark.parametrize("function", [kept_bag, taken, ragged_neighbours, used_twice, last_axis, everything])
def test_other_uses(function):
    compare(function, (floats(9, 5), ints(9, 3, 4)), (floats(30, 70), ints(30, 5, 9)))


def test_terms_are_added_in_the_order_of_the_indices():
    table, ids = floats(40, 100), ints(40, 6, 25)
    np.testing.assert_array_equal(Compiled(bag, table, ids)(table, ids), np.add.reduce(list(table[ids].swapaxes(0, 1))))


@pytest.mark.parametrize("place", [(0, 0), (2, 3)])
@pytest.mark.parametrize("wrong", [9, -10])
def test_an_index_out_of_range_leaves_the_region(place, wrong):
    table, ids = floats(9, 5), ints(9, 3, 4)
    compiled = Compiled(bag, table, ids)
    ids[place] = wrong
    with pytest.raises(ExitTaken):
        compiled(table, ids)


def test_empty_bags():
    compiled = compare(bag, (floats(9, 5), ints(9, 3, 4)), (floats(9, 5), ints(9, 3, 0)), (floats(9, 5), ints(9, 0, 4)))
    assert max(arenas(compiled), default=0) < 3
    peaks = Compiled(all_bags, floats(9, 5), ints(9, 3, 4))
    with pytest.raises(ExitTaken):
        peaks(floats(9, 5), ints(9, 3, 0))


def written_between(table, ids, w):
    picked = table[ids]
    ids[0] = 0
    table[1] = w
    return picked.sum(axis=1)


def test_what_is_written_between_is_not_seen():
    compare(written_between, (floats(9, 5), ints(9, 3, 4), floats(5)))


def own_indices(table, n):
    ids = np.zeros((3, 4), np.int64)
    ids[1] = n
    picked = table[ids]
    ids[1] = 0
    return picked.sum(axis=1), ids


def test_indices_made_and_changed_inside():
    compare(own_indices, (floats(9, 5), ints(9, 4)), (floats(9, 5), ints(9, 4)))


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 20), width=st.integers(1, 150), bags=st.integers(1, 6), length=st.integers(0, 9))
def test_any_sizes(rows, width, bags, length):
    BAGS.append(Compiled(bag, floats(9, 5), ints(9, 3, 4))) if not BAGS else None
    table, ids = floats(rows, width), ints(rows, bags, length)
    np.testing.assert_allclose(BAGS[0](table, ids), bag(table, ids), rtol=1e-5, atol=1e-5)


BAGS: list[Compiled] = []


# --- places ---


def joined(x, y):
    return np.concatenate([np.exp(x), y, x.sum(axis=-1, keepdims=True)], axis=1) * 2


def stacked(x, y):
    return np.stack([np.exp(x), y, x * y], axis=1) + 1


def products(x, w):
    return np.tanh(np.concatenate([x @ w, x, x @ w + 1], axis=-1))


def tall(x, w):
    return np.concatenate([x @ w, x], axis=0) * 2


def shared(x, y):
    e = np.exp(x)
    return np.concatenate([e, y, e], axis=0) + 1, e * 2


def again(x, y):
    e = np.exp(x)
    return np.concatenate([np.concatenate([e, y], axis=0), x * 3], axis=0) + 1


def views(x, y):
    return np.concatenate([(x + 1).T, (y * 2).reshape(y.shape[1], y.shape[0])], axis=1) * 2


def in_a_loop(x, y):
    for _ in range(len(x)):
        y = y + np.concatenate([x * y[0, 0], np.tanh(x + y[0, 1])], axis=1)
    return y


@pytest.mark.parametrize("function", [joined, stacked, shared, again, views])
def test_parts_are_where_they_belong(function):
    compare(function, (floats(4, 5), floats(4, 5)), (floats(1, 40), floats(1, 40)), (floats(9, 1), floats(9, 1)))


@pytest.mark.parametrize("function", [products, tall])
def test_products_as_parts(function):
    compare(function, (floats(4, 5), floats(5, 5)), (floats(17, 40), floats(40, 40)))


def test_three_dimensions():
    compare(products, (floats(2, 4, 5), floats(5, 5)), (floats(3, 17, 40), floats(40, 40)))
    compare(joined_rows, (floats(2, 4, 5), floats(2, 3, 5)), (floats(1, 1, 9), floats(1, 8, 9)))


def joined_rows(x, y):
    return np.concatenate([np.exp(x), y * 2], axis=1) + 1


def test_a_part_of_another_size_leaves_the_region():
    compiled = Compiled(joined, floats(4, 5), floats(4, 5), speculate=False)
    with pytest.raises(ExitTaken):
        compiled(floats(4, 5), floats(3, 5))


def test_inside_a_loop():
    compare(in_a_loop, (floats(4, 3), floats(4, 6)), (floats(9, 2), floats(9, 4)))


def test_parts_are_not_copied():
    """One buffer for the concatenation, none for its parts."""
    assert len(arenas(compare(joined, (floats(4, 5), floats(4, 5))))) == 1
