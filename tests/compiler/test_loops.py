"""Loops that are left in the middle, compared with Python."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.regions import ExitTaken
from tests.compiler.tracing import Compiled, compare, leaves
from tiercel.compiler.graph import Loop, steps
from tiercel.compiler.trace import Untraceable


def random(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape, dtype=np.float32)


SETS = [(random(5, 6), random(5, 6)), (-abs(random(7, 3)), random(7, 3)), (random(4, 4) * 9, random(9, 4))]


def exit_at_the_end(x, y):
    n = 0
    while True:
        x = x * 0.5
        n += 1
        if x.max() < 1:
            break
    return x, n


def exit_in_the_middle(x, y):
    z = x * 1
    n = 0
    while True:
        z *= 0.5
        n += 1
        if z.max() < 1:
            break
        z += 0.01
    return z, n


def break_from_a_counted_loop(x, y):
    n = 0
    for i in range(y.shape[0]):
        x = x * 0.5
        if x.max() < 1:
            break
        n = n + i
    return x + 0, n


def two_breaks(x, y):
    z = x * 1
    n = 0
    for _ in range(10):
        z = z * 0.5
        if z.max() < 0.5:
            break
        n += 1
        if z.min() > -0.1:
            break
        z = z + 0.01
    return z, n


def condition_and_break(x, y):
    n = 0
    while np.abs(x).max() > 0.1:
        x = x * 0.5
        if x.max() < 0.2:
            break
        n += 1
    return x + 0, n


def two_conditions(x, y):
    i = 0
    while i < 10 and x.max() > 1:
        x = x * 0.9
        i += 1
    return x + 0, i


def first_condition_is_known(x, y):
    i = 0
    while i < 3:
        x = x * 2
        i += 1
    return x


def nested(x, y):
    for t in range(y.shape[0]):
        for _ in range(4):
            x = x * 0.9
            if x.max() < 1:
                break
            x = x - 0.01
        x = x + t
    return x + 0


def continued(x, y):
    for _ in range(10):
        if x.max() < 0.5:
            continue
        x = x * 0.5
    return x + 0


def returns_what_it_compares(x, y):
    z = x * 2
    while True:
        new = z * 0.5 + 0.01
        if np.abs(new - z).max() < 0.5:
            return new, z.sum()
        z = new


@pytest.mark.parametrize(
    "function",
    [
        returns_what_it_compares, exit_at_the_end, exit_in_the_middle, break_from_a_counted_loop, two_breaks,
        condition_and_break, two_conditions, first_condition_is_known, nested, continued,
    ],
)  # fmt: skip
def test_like_python(function):
    compiled = compare(function, *SETS)
    assert any(isinstance(s, Loop) for s in steps(compiled.region.graph))


def with_an_else(x, y):
    for _ in range(10):
        x = x * 0.5
        if x.max() < 0.5:
            break
    else:
        x = x + 1
    return x + 0


def returns_in_the_middle(x, y):
    while True:
        x = x * 0.5
        if x.max() < 1:
            return x + 1


def returns_the_counter(x, y):
    for t in range(y.shape[0]):
        x = x * 0.5
        if x.max() < 1:
            return x + 1, t
    return x - 1, 7


def returns_what_a_pass_made(x, y):
    for t in range(y.shape[0]):
        x = x * 0.5
        z = x + y[0].sum() * t
        if x.max() < 1:
            return z
    return x - 1


def code_before_the_break(x, y):
    n = 0
    for _ in range(y.shape[0]):
        x = x * 0.5
        z = x.sum()
        if x.max() < 1:
            n = z
            break
    else:
        n = x.min()
    return x * n


def returns_from_a_while_loop(x, y):
    while True:
        x = x * 0.5
        z = x * 2
        if x.max() < 1:
            return z


def raises_in_a_pass(x, y):
    for _ in range(y.shape[0]):
        x = x * 0.5
        if x.max() > 1e9:
            raise ValueError("too large")
    return x + 0


def early_exit(x, y):
    for layer in range(y.shape[0]):
        x = np.tanh(x + y[layer, 0])
        score = x.sum(axis=1)
        if score.max() > 0.5:
            return score, layer
    return x[:, 0] * 2, -1


@pytest.mark.parametrize(
    "function",
    [
        with_an_else, returns_in_the_middle, returns_the_counter, returns_what_a_pass_made, code_before_the_break,
        returns_from_a_while_loop, raises_in_a_pass, early_exit,
    ],
)  # fmt: skip
def test_left_to_other_code(function):
    compiled = compare(function, *SETS)
    assert any(isinstance(s, Loop) for s in steps(compiled.region.graph))


@pytest.mark.parametrize("function", [returns_the_counter, returns_what_a_pass_made, early_exit])
def test_left_to_other_code_without_a_pass(function):
    compiled = compare(function, *SETS)
    x, y = random(3, 4), random(0, 4)
    for ours, plain in zip(leaves(compiled(x, y)), leaves(function(x, y)), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-5)


def appends_twice(x, y):
    out = []
    for _ in range(y.shape[0]):
        x = x * 0.5
        out.append(x)
        out.append(x + 1)
    return np.stack(out), x


def appends_scalars(x, y):
    out = []
    for t in range(y.shape[0]):
        s = x[0].sum() + t
        out.append(s)
        out.append(s * 2)
        out.append(s - 1)
    return np.stack(out)


def appends_to_join(x, y):
    out = []
    for t in range(y.shape[0]):
        out.append(x * t)
        out.append(x)
    return np.concatenate(out, axis=0)


@pytest.mark.parametrize("function", [appends_twice, appends_scalars, appends_to_join])
def test_several_elements_in_each_pass(function):
    compare(function, *SETS)


def left_to_several_places(x, y):
    for _ in range(y.shape[0]):
        x = x * 0.5
        if x.max() < 1:
            return x + 1
        x = x - 0.1
        if x.min() > 0:
            return x
    return x - 1


def not_always_set(x, y):
    """In the first pass z has no value: Python raises."""
    for _ in range(y.shape[0]):
        if x.max() < 1:
            return z  # noqa: F821
        z = x * 2  # noqa: F841
        x = x * 0.5
    return x - 1


def appends_of_two_kinds(x, y):
    out = []
    for _ in range(y.shape[0]):
        out.append(x)
        out.append(x[0])
    return np.concatenate(out, axis=None)


def gathers_until(x, y):
    out = []
    for _ in range(y.shape[0]):
        x = x * 0.5
        out.append(x)
        if x.max() < 1:
            break
    return np.stack(out)


def endless(x, y):
    while True:
        x = x * 0.5


def breaks_out_of_known_passes(x, y):
    for _ in range(3):
        for factor in (2, 3):
            if x.max() > factor:
                break
            x = x * factor
    return x + 0


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (left_to_several_places, "several places"),
        (gathers_until, "list"),
        (appends_of_two_kinds, "of several kinds"),
        (endless, "without an end"),
        (breaks_out_of_known_passes, "break|left from inside"),
    ],
)
def test_refused(function, reason):
    with pytest.raises(Untraceable, match=reason):
        Compiled(function, *SETS[0])


def test_a_variable_without_a_value_is_the_interpreters():
    compiled = Compiled(not_always_set, *SETS[0])
    with pytest.raises(ExitTaken):
        compiled(random(3, 3) * 0, random(2, 3))


def test_a_loop_whose_condition_is_false_at_once_is_not_entered():
    def f(x):
        while x.ndim > 2:
            x = x * 2
        return x * 1

    assert not any(isinstance(s, Loop) for s in steps(compare(f, (random(2, 3),)).region.graph))
