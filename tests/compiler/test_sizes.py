"""Sizes that a region is traced for: what is assumed to agree, and lists that stand for arrays."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.regions import ExitTaken
from tests.compiler.tracing import Compiled, compare
from tiercel.compiler.abstract import Untraceable

RNG = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def gates(x, w, u):
    hidden = u.shape[0]
    h = np.zeros((x.shape[0], hidden), x.dtype)
    for t in range(x.shape[1]):
        g = x[:, t] @ w
        r = g[:, :hidden] + h @ u[:, :hidden]
        n = np.tanh(g[:, 2 * hidden :] + r)
        h = r * n
    return h


def test_gates_side_by_side_are_taken_for_a_multiple_of_the_hidden_size():
    sets = [(floats(b, t, i), floats(i, 3 * h), floats(h, 3 * h)) for b, t, i, h in ((3, 5, 4, 6), (2, 9, 7, 3))]
    compiled = compare(gates, *sets)
    shapes = [given.value.type.shape for given in compiled.region.inputs]
    hidden = shapes[2][0]
    assert shapes[1][1] == shapes[2][1] == 3 * hidden


def test_a_slice_may_start_at_a_size():
    def halves(x):
        half = x.shape[-1] // 2
        return np.concatenate([x[..., half:], x[..., :half]], axis=-1)

    compare(halves, (floats(3, 8),), (floats(2, 5),), (floats(1, 1),), (floats(2, 0),))


def test_a_slice_may_start_beyond_the_end():
    def rest(x, y):
        return x[y.shape[0] :] * 2

    compare(rest, (floats(5), floats(2)), (floats(5), floats(9)), (floats(0), floats(0)))


def test_a_slice_may_end_before_the_end_by_a_size():
    def ends(x, y):
        return x[-(y.shape[0] + 1) :] * 2

    compare(ends, (floats(5), floats(2)), (floats(3), floats(9)))


def test_lists_of_numbers_stand_for_arrays():
    def summary(x):
        return np.array([x.sum(), x.max(), np.float32(2)]) + np.array([0.5, 1.5, 2.5])

    compare(summary, (floats(5),), (floats(1),))


def test_lists_of_rows_stand_for_matrices():
    def rows(x, y):
        return np.concatenate([[x, y], [y, x + 1]]) * [[1.0], [2.0], [3.0], [4.0]]

    compare(rows, (floats(5), floats(5)), (floats(1), floats(1)))


def test_lists_among_themselves_are_pythons_own_affair():
    def sums(x):
        return x * len([1, 2] * 2 + [3])

    with pytest.raises(Untraceable):
        Compiled(sums, floats(5))


def test_sizes_that_do_not_agree_are_not_assumed_to():
    compiled = Compiled(gates, floats(3, 5, 4), floats(4, 18), floats(6, 18))
    weights = compiled.region.inputs[1].value.type.shape
    assert weights[0] == compiled.region.inputs[0].value.type.shape[2]
    assert str(weights[1]) != str(weights[0])


def correlate(x, k):
    n = x.shape[0] - k.shape[0] + 1
    out = np.zeros(n, x.dtype)
    for i in range(k.shape[0]):
        out += x[i : i + n] * k[i]
    return out


def test_windows_that_a_loop_moves():
    compare(correlate, (floats(40), floats(5)), (floats(9), floats(9)), (floats(3), floats(1)), (floats(3), floats(0)))


def test_arrays_of_a_negative_size_leave_to_the_interpreter():
    def total(x, k):
        return correlate(x, k).sum()

    compiled = compare(total, (floats(40), floats(5)))
    with pytest.raises(ExitTaken):
        compiled(floats(3), floats(9))


def test_windows_in_two_directions():
    def smooth(x, k):
        rows, columns = x.shape[0] - k.shape[0] + 1, x.shape[1] - k.shape[1] + 1
        out = np.zeros((rows, columns), x.dtype)
        for i in range(k.shape[0]):
            for j in range(k.shape[1]):
                out += x[i : i + rows, j : j + columns] * k[i, j]
        return out

    compare(smooth, (floats(9, 8), floats(3, 2)), (floats(4, 4), floats(4, 4)), (floats(5, 6), floats(1, 3)))


def test_what_a_loop_knows_of_its_passes_is_not_known_behind_it():
    def last(x, n):
        total = np.zeros(x.shape[1], x.dtype)
        for i in range(n):
            total += x[i]
        return total, x[:n].sum()

    compare(last, (floats(5, 3), 4), (floats(5, 3), 0), (floats(5, 3), 5))


def moving(x, k):
    return x[k:] - x[:-k]


def test_a_bound_that_is_a_number_keeps_its_sign():
    compiled = compare(moving, (floats(9), 2), (floats(9), 3), (floats(4), 4))
    with pytest.raises(ExitTaken):
        compiled(floats(9), -2)


def test_a_start_from_the_end_leaves_to_the_interpreter_where_nothing_is_assumed():
    def ends(x, k):
        return x[k:] * 2

    compiled = Compiled(ends, floats(9), 2, speculate=False)
    x = floats(7)
    for k in (2, 0, 7, 9):
        assert np.array_equal(compiled(x, k), x[k:] * 2)
    with pytest.raises(ExitTaken):
        compiled(x, -2)
