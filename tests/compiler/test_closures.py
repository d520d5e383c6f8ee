"""Functions made inside the function that is compiled."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.tracing import Compiled, compare
from tiercel.compiler.abstract import Untraceable

RNG = np.random.default_rng(11)
SCALE = 3.0


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


X, Y = floats(4, 3), floats(4, 3)


def nested(p, q):
    eps = 1e-6

    def normal(z, power=2):
        return z / (np.abs(z**power).sum(1, keepdims=True) + eps)

    return normal(p) - normal(q, power=3)


def keyword_only(x):
    def scaled(z, *rest, by=2.0, **more):
        return z * by + len(rest) + len(more)

    return scaled(x) + scaled(x, 1, 2, by=0.5, other=1)


def anonymous(x):
    def act(z):
        return np.maximum(z, 0)

    layers = [act, lambda z: z * 2, np.tanh]
    for layer in layers:
        x = layer(x)
    return x


def shared_variable(x):
    total = np.zeros(x.shape[1], x.dtype)

    def add(row):
        nonlocal total
        total = total + row
        return total

    a = add(x[0])
    return a + add(x[1]), total


def late_binding(x):
    factor = 2.0

    def scaled(z):
        return z * factor

    factor = 5.0
    return scaled(x)


def in_a_loop(x):
    def step(h, row):
        return np.tanh(h + row)

    h = np.zeros(x.shape[1], x.dtype)
    for row in x:
        h = step(h, row)
    return h


def makers(x):
    def maker(by):
        def scaled(z):
            return z * by

        return scaled

    return maker(2.0)(x) + maker(3.0)(x)


def globals_inside(x):
    def scaled(z):
        return z * SCALE

    return scaled(x)


def array_default(x):
    def plus(z, other=x * 2):
        return z + other

    return plus(x)


def written_through(x):
    y = x * 1

    def change(z):
        z += 1
        return z

    change(y)
    return y


FUNCTIONS = [
    anonymous, keyword_only, shared_variable, late_binding, in_a_loop, makers, globals_inside, array_default,
    written_through,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_like_python(function):
    compare(function, (X,), (floats(2, 5),))


def test_nested_functions_with_defaults():
    compare(nested, (X, Y), (floats(1, 2), floats(1, 2)))


def outer(scale):
    def f(x):
        def inner(z):
            return z * scale

        return inner(x)

    return f


def test_variables_of_functions_further_out():
    compare(outer(2.5), (X,))


def test_a_variable_further_out_is_not_written():
    count = 0

    def f(x):
        def inner(z):
            nonlocal count
            count = count + 1
            return z

        return inner(x)

    with pytest.raises(Untraceable, match="enclosing function is written"):
        Compiled(f, X)


def test_a_function_is_no_result():
    def f(x):
        return lambda: x

    with pytest.raises(Untraceable, match="closure"):
        Compiled(f, X)


def test_a_generator_is_not_walked():
    def f(x):
        def rows():
            yield x

        return next(rows())

    with pytest.raises(Untraceable):
        Compiled(f, X)


def test_a_shared_variable_that_a_branch_changes_is_refused():
    def f(x):
        y = x

        def get():
            return y

        if x.sum() > 0:
            y = x * 2
        return get()

    with pytest.raises(Untraceable):
        Compiled(f, X)


def test_a_list_is_returned_once():
    def f(x):
        y = [x * 2]
        return y, y

    with pytest.raises(Untraceable, match="one list twice"):
        Compiled(f, X)
