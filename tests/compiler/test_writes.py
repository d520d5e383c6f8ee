"""Writes into arrays that a region made: compared with Python, and refused where somebody else can see them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.regions import ExitTaken
from tests.compiler.tracing import Compiled, compare
from tiercel.compiler.trace import Untraceable


def random(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape, dtype=np.float32)


SETS = [
    (random(5, 6), random(5, 6, seed=1)),
    (-abs(random(7, 3)), -abs(random(7, 3))),
    (random(4, 4) * 9, random(4, 4)),
]


def in_place(x, y):
    z = x * 2
    z += y
    z *= 3
    z -= y.astype(np.float64)
    z **= 2
    return z


def two_names(x, y):
    z = x * 2
    w = z
    z += y
    return w - 1, z + 1


def items(x, y):
    z = x + 0
    z[z < 0] = 0
    z[...] = z * 2
    z[0] = 5
    z[:, 1] = y[:, 0]
    z[1:3, 0] += 5
    z[0, 0] = 7
    z[-1] -= 1
    z[1:] = z[:-1]
    z[::2, None] = y[::2, None]
    return z


def filled(x, y):
    out = np.empty((x.shape[0], 3), dtype=np.float64)
    out[:, 0] = x.sum(axis=1)
    out[:, 1] = True
    out[:, 2] = y.max(axis=1)
    return out


def accumulated(x, y):
    total = np.zeros(x.shape[1], np.float32)
    for t in range(x.shape[0]):
        total += x[t] * y[t]
    return total


def rows_written(x, y):
    out = np.zeros_like(x)
    for t in range(x.shape[0]):
        out[t] = x[t] * 2 + t
        if y[t].sum() > 0:
            out[t, 0] = 0
    return out


def add_to(total, x):
    total += x
    return total


def through_a_helper(x, y):
    z = x * 1
    r = add_to(z, y)
    return z + r


def in_one_arm(x, y):
    z = x * 1
    w = z
    if y.sum() > 0:
        z += y
    else:
        z -= 1
    z += 1
    return z * 2, w + 1


def inside_structure(x, y):
    z = x * 2
    pair, held = (z, y), [z, y]
    z += 1
    held[0] = held[0] + held[1]
    return pair[0] * 1, held[0] * 1


def two_accumulators(x, y):
    a = x * 1
    b = a
    for _ in range(x.shape[0]):
        b = b * 0.5
        a += b
    return a, b


@pytest.mark.parametrize(
    "function",
    [
        in_place, two_names, items, filled, accumulated, rows_written, through_a_helper, in_one_arm, inside_structure,
        two_accumulators,
    ],
)  # fmt: skip
def test_like_python(function):
    compare(function, *SETS)


def old_view(x, y):
    z = x * 2
    v = z[0]
    z += y
    return v + 1


def kept_in_a_list(x, y):
    h = x[0] * 1
    out = []
    for t in range(x.shape[0]):
        h += y[t]
        out.append(h)
    return np.stack(out)


def written_after_the_list(x, y):
    h = x[0] * 1
    out = []
    for t in range(x.shape[0]):
        h = h + y[t]
        out.append(h)
    h += 1
    return np.stack(out)


def other_name_in_a_loop(x, y):
    h = x[0] * 1
    g = h
    for t in range(x.shape[0]):
        h += y[t]
    return g * 2


def made_in_the_pass_before_and_kept(x, y):
    h = x[0] * 1
    out = []
    for t in range(x.shape[0]):
        h += y[t]
        h = h * 0.5
        out.append(h)
    return np.stack(out)


def made_in_the_pass_before_under_two_names(x, y):
    h, g, r = x[0] * 1, x[0] * 2, x[0] * 3
    for t in range(x.shape[0]):
        h += y[t]
        r = r + g
        h = h * 0.5
        g = h
    return r * 1


def swapped(x, y):
    a, b = x * 1, y * 2
    for _ in range(x.shape[0]):
        a, b = b, a
        a += 1
    return a * 1, b * 1


def iterated(x, y):
    z = x * 1
    for row in z:
        z += row
    return z * 1


def argument_by_a_branch(x, y):
    z = x if y.sum() > 0 else x * 2
    z += 1
    return z.sum(axis=0)


def view_of_an_argument(x, y):
    z = x.T
    z += 1
    return z.sum(axis=0)


def view_of_an_own_array(x, y):
    z = x * 2
    z.T[0] = 1
    return z


def in_an_arm_of_a_helper(x, y):
    z = x * 1

    maybe_add(z, y)
    return z + 1


def maybe_add(z, y):
    if y.sum() > 0:
        z += y
    return z


def to_int(x, y):
    z = np.zeros(x.shape, np.int64)
    z[0] = x[0]
    return z


def integer_quotient(x, y):
    z = np.ones(x.shape, np.int64)
    z /= 2
    return z


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (old_view, "may share memory with one that was written"),
        (kept_in_a_list, "a list that a loop filled"),
        (written_after_the_list, "a list that a loop filled"),
        (other_name_in_a_loop, "another kind after a loop|share memory"),
        (made_in_the_pass_before_and_kept, "a list that a loop filled"),
        (made_in_the_pass_before_under_two_names, "share memory"),
        (swapped, "another kind|share memory"),
        (iterated, "loop over an array that it writes"),
        (argument_by_a_branch, "may be an argument"),
        (view_of_an_argument, "may be an argument"),
        (view_of_an_own_array, "a view"),
        (in_an_arm_of_a_helper, "may share memory"),
        (to_int, "float32.* written into an array of int64"),
        (integer_quotient, "in-place"),
    ],
)
def test_refused(function, reason):
    with pytest.raises(Untraceable, match=reason):
        Compiled(function, *SETS[0])


def test_an_index_out_of_range_leaves_to_the_interpreter():
    def f(x, n):
        z = x * 2
        z[n] = 1
        return z

    compare(f, (random(4, 3), 3), (random(5, 3), 0))
    with pytest.raises(ExitTaken):
        Compiled(f, random(4, 3), 3)(random(4, 3), 4)


def test_sizes_that_do_not_fit_leave_to_the_interpreter():
    def f(x, row):
        z = x * 2
        z[0] = row
        return z

    compiled = compare(f, (random(4, 3), random(3)))
    assert compiled.runner.lowered.interface.inputs[0].dims[1] == compiled.runner.lowered.interface.inputs[1].dims[0]
    general = Compiled(f, random(4, 3), random(3), speculate=False)
    np.testing.assert_array_equal(general(random(4, 3), random(1)), f(random(4, 3), random(1)))
    with pytest.raises(ExitTaken):
        general(random(4, 3), random(2))


def halved(x, n):
    for _ in range(n):
        x = x * 0.5
    return x


def halved_while(x, limit):
    while np.abs(x).max() > limit:
        x = x * 0.5
    return x


def test_a_loop_that_does_not_run_returns_the_argument_in_the_interpreter():
    compiled = compare(halved, (random(3), 2))
    with pytest.raises(ExitTaken):
        compiled(random(3), 0)


def argument_by_a_data_branch(x):
    return x if x.sum() > 0 else x * 2


def test_what_comes_after_a_result_that_may_be_an_argument():
    compare(lambda x: argument_by_a_data_branch(x) + 1, (random(3),), (-random(3),))


def test_stack_of_a_loop_along_its_own_axis():
    def f(x):
        out = []
        for t in range(x.shape[0]):
            out.append(x[t] * 2)
        return np.stack(out), np.array(out)

    compare(f, (random(4, 3),), (random(1, 2),))


def test_a_name_that_changes_its_kind_in_a_loop_is_not_what_it_was():
    def f(x):
        y = 0
        for t in range(x.shape[0]):
            y = (x[t], t)
        return y

    with pytest.raises(Untraceable, match="another kind"):
        Compiled(f, random(3, 2))


def test_an_element_by_ellipsis_is_an_array():
    def f(x):
        z = x[..., 0]
        return z + np.float64(1)

    assert Compiled(f, random(3)).region.graph.steps[0].outputs[0].type.rank == 0


def test_a_result_of_which_running_decides_whether_it_is_a_view_is_refused():
    def f(x, y):
        z = x * 2
        w = z[1:]
        if y.sum() > 0:
            w = w + 1
        return w

    with pytest.raises(Untraceable, match="only running decides"):
        Compiled(f, random(4), random(3))


def test_a_write_into_what_may_be_a_view_is_refused():
    def f(x, y):
        z = x * 2
        w = z[1:]
        if y.sum() > 0:
            w = w + 1
        w += 1
        return w * 1, z

    with pytest.raises(Untraceable):
        Compiled(f, random(4), random(3))
