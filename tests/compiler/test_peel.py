"""Loops whose first pass changes the kind of a variable."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.regions import ExitTaken
from tests.compiler.tracing import Compiled, compare
from tiercel.compiler.abstract import Untraceable

RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_a_python_float_becomes_a_numpy_scalar():
    def advantages(r, gamma):
        out, last = np.zeros_like(r), 0.0
        for t in range(len(r) - 1, -1, -1):
            last = r[t] + gamma * last
            out[t] = last
        return out

    compare(advantages, (floats(10), 0.9), (floats(1), 0.5), (floats(33), 0.99))


def test_a_python_int_becomes_an_array():
    def total(x):
        s = 0
        for row in x:
            s = s + row * row
        return s

    compare(total, (floats(5, 4),), (floats(1, 3),), (floats(2, 0),))


def test_none_becomes_an_array():
    def horner(x, n):
        out = None
        for i in range(n):
            out = x if out is None else out * x + i
        return out

    compare(horner, (floats(3), 5), (floats(4), 2))


def test_loops_inside_one_another():
    def squares(x):
        out = 0
        for row in x:
            s = 0.0
            for v in row:
                s = s + v * v
            out = out + s
        return out

    compare(squares, (floats(5, 4),), (floats(2, 3),), (floats(1, 1),))


def test_inside_a_called_function():
    def mean(x):
        s = 0
        for row in x:
            s = s + row
        return s / x.shape[0]

    def centred(x):
        return x - mean(x)

    compare(centred, (floats(5, 4),), (floats(1, 3),))


def test_a_loop_that_does_not_run_is_left_to_the_interpreter():
    def total(x):
        s = 0
        for row in x:
            s = s + row
        return s

    compiled = Compiled(total, floats(3, 4))
    with pytest.raises(ExitTaken):
        compiled(floats(0, 4))


def test_a_kind_that_goes_on_changing_is_refused():
    def growing(x, n):
        y = x
        for _ in range(n):
            y = y[None] * 2
        return y

    with pytest.raises(Untraceable, match="of another kind"):
        Compiled(growing, floats(3), 4)
