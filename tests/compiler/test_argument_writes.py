"""Writes into arguments: what is computed beside them and copied into them at the end, compared with Python."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.regions import ExitTaken
from tests.compiler.tracing import Compiled, compare
from tiercel.compiler.graph_text import region_text
from tiercel.compiler.trace import Untraceable
from tiercel.loops.form import Allocate


def random(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape, dtype=np.float32)


SETS = [
    (random(5, 6), random(5, 6, seed=1)),
    (-abs(random(7, 3)), -abs(random(7, 3, seed=2))),
    (random(4, 4)[::-1], random(4, 4, seed=3)),
]


def added(x, y):
    x += y
    return x * 2


def all_of_it(x, y):
    x[...] = y


def items(x, y):
    x[1:3] *= 2
    x[0] = y[1]
    x[:, 1] = y[:, 0]
    x[0, 0] = 7
    x[-1, 1:] -= 1
    x[1:] = x[:-1]
    x[::2, None] = y[::2, None]
    return x.sum()


def by_a_mask(x, y):
    x[y > 0] = 1
    return x


def in_one_arm(x, y):
    if y.sum() > 0:
        x += 1
    return x


def in_both_arms(x, y):
    if y.sum() > 0:
        x[0] = 1
    else:
        x[1] += y[0]
    return x + 1


def arms_that_return(x, y):
    if y.sum() > 0:
        x[0] = 1
        return x + 1
    x[1] += y[0]
    return x + 2


def over_steps(x, y):
    for t in range(y.shape[0]):
        x += y[t]
    return x


def another_name_in_a_loop(x, y):
    h = x
    for t in range(y.shape[0]):
        h += t
    return h * 1


def renamed_in_a_loop(x, y):
    h = x
    for _ in range(y.shape[0]):
        h = h * 0.5
        x += 1
    return h


def rows(x, y):
    for t in range(y.shape[0]):
        x[t] = y[t] * 2


def while_it_is_small(x, y):
    i = 0
    while x.sum() < 100 and i < 50:
        x += abs(y)
        i = i + 1
    return i


def through_a_view(x, y):
    v = x[1]
    v *= 2
    w = x[:, 0]
    w[1:] = y[1:, 0]
    return x + 1


def through_views_of_views(x, y):
    x[1:][1] = 3
    v = x[1:][:, 1:]
    v *= 3
    return v * 2


def old_content_of_each(x, y):
    x[1:] = x[:-1]
    y[...] = x
    x[0] = y[1]
    return y


def add_to(total, x):
    total += x
    return total


def through_a_helper(x, y):
    z = add_to(x, y)
    z[0] = 0
    return z


def helper_in_a_loop(x, y):
    for t in range(y.shape[0]):
        add_to(x, y[t])
    return x


def both_exchanged(x, y):
    t = x * 1
    x[...] = y
    y[...] = t


def of_another_dtype(x, y):
    x += y.astype(np.float64)
    x[0] = y[0].astype(np.float64) * 3


def into(x, y):
    np.add(x, y, out=x)
    z = np.multiply(x, 2, out=y)
    np.exp(y * 0.1, x)
    np.subtract(x[1:], y[:-1], out=x[1:])
    return z


def through_methods(x, y):
    x.fill(2)
    y[0].fill(x.sum())
    np.copyto(x, y[0])


def into_a_new_array(x, y):
    z = np.empty_like(x)
    np.maximum(x, y, out=z)
    np.sqrt(z * z, out=z)
    w = np.zeros(x.shape, bool)
    np.greater(x, y, out=w)
    return z, w


@pytest.mark.parametrize(
    "function",
    [
        into, through_methods, into_a_new_array,
        added, all_of_it, items, by_a_mask, in_one_arm, in_both_arms, arms_that_return, over_steps,
        another_name_in_a_loop, renamed_in_a_loop, rows, while_it_is_small, through_a_view, through_views_of_views,
        old_content_of_each, through_a_helper, helper_in_a_loop, both_exchanged, of_another_dtype,
    ],
)  # fmt: skip
def test_like_python(function):
    compare(function, *SETS[:2])
    # the meaning of the loop form, without machine code
    compiled = Compiled(function, *SETS[0])
    ours, theirs = ([a.copy() for a in SETS[0]] for _ in range(2))
    compiled.runner(*ours, native=False)
    function(*theirs)
    for mine, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(
    "function",
    [all_of_it, items, by_a_mask, in_one_arm, over_steps, rows, while_it_is_small, both_exchanged, of_another_dtype],
)
def test_strided_arguments(function):
    x, y = random(8, 10), random(8, 10, seed=1)
    compare(function, (x[::2, ::-1], y[:4]), (x.T[::-2, :7], random(5, 7)))


def test_integers_and_half_precision():
    for dtype in (np.int8, np.int64, np.uint16, np.float16, np.float64):
        x, y = (np.arange(12).reshape(3, 4) + n for n in (0, 5))

        def f(x, y):
            x[y > 7] = 1
            x[0] = y[1]
            return x

        compare(f, ((x % 2).astype(dtype), y.astype(np.int32).astype(dtype)))


def test_no_axes():
    def f(x, y):
        x += y
        y[...] = 3

    compare(f, (np.array(1.5), np.array(2.5)))


def test_nothing_is_written_where_the_region_is_left():
    def f(x, n):
        x += 1
        x[n] = 7

    compiled = Compiled(f, random(4, 3), 3)
    x = random(4, 3)
    with pytest.raises(ExitTaken):
        compiled(x, 4)
    np.testing.assert_array_equal(x, random(4, 3))


def test_parts_are_kept_alone():
    """`x[t] = row` neither copies x nor touches the rest of it."""

    def f(cache, row, t):
        cache[t] = np.tanh(row)

    compiled = compare(f, (random(4, 3), random(3), 2), (random(9, 3), random(3), 0))
    kept = [s.buffer for s in compiled.runner.lowered.function.body.body if isinstance(s, Allocate)]
    assert [b.rank for b in kept if b.dtype.name == "float32"] == [1]


def test_only_what_differs_is_stored():
    """Elements that an arm or a mask leaves alone are not rewritten: another thread's write to them survives."""

    def f(x, y):
        x[y > 0] = 5

    compiled = Compiled(f, random(6), random(6))
    x, y = np.zeros(6, np.float32), np.array([1, -1, 1, -1, -1, 1], np.float32)
    assert "where it differs" in region_text(compiled.region)
    compiled(x, y)
    np.testing.assert_array_equal(x, np.where(y > 0, 5, 0))


def old_view(x, y):
    v = x[0]
    x += y
    return v + 1


def transposed(x, y):
    z = x.T
    z += 1


def by_a_branch(x, y):
    z = x if y.sum() > 0 else x * 2
    z += 1


def in_an_arm_of_a_helper(x, y):
    maybe_add(x, y)
    return y


def maybe_add(z, y):
    if y.sum() > 0:
        z += y


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (old_view, "may share memory with one that was written"),
        (transposed, "may be an argument or a part of one"),
        (by_a_branch, "may be an argument"),
        (in_an_arm_of_a_helper, "an arm or loop that may not run"),
    ],
)
def test_refused(function, reason):
    with pytest.raises(Untraceable, match=reason):
        Compiled(function, *SETS[0])


def test_what_cannot_be_written_is_refused():
    x = random(3)
    x.flags.writeable = False
    with pytest.raises(Untraceable, match="read-only"):
        Compiled(added, x, random(3))
