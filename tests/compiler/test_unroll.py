"""Short loops that are written out, those that stay loops, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler.regions import ExitTaken
from tests.compiler.tracing import Compiled, compare
from tiercel.compiler.graph import Loop, Node, steps
from tiercel.compiler.passes import prepare
from tiercel.compiler.unroll import why_not

RNG = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def loops(compiled: Compiled) -> list[Loop]:
    """The loops that are left."""
    return [s for s in steps(prepare(compiled.region).graph) if isinstance(s, Loop)]


def reason(compiled: Compiled) -> str:
    (loop,) = loops(compiled)
    found = why_not(loop)
    assert found is not None
    return found


# --- what is written out ---


def chain(x):
    for _ in range(10):
        x = np.maximum(x * 1.0009765625 + 0.25, x - 0.5) * 0.5
    return x


def counter(x):
    for i in range(4):
        x = x * i + i
    return x


def two(x, y):
    for _ in range(3):
        x, y = x + y, x * 0.5
    return x, y


def rows(x, w):
    for i in range(2):
        x = x * w[i]
        x = x - x.max(axis=-1, keepdims=True)
    return x


def scalar(x):
    s = np.float32(1)
    for _ in range(3):
        s = s * np.float32(0.5)
        x = x + s
    return x


def inside_a_branch(x, often):
    if often:
        for _ in range(3):
            x = x * 0.5
    return x + 1


@pytest.mark.parametrize("function", [chain, counter, scalar])
def test_loops_that_disappear(function):
    compiled = compare(function, (floats(5, 7),), (floats(1, 1),), (floats(3, 100),), (floats(0, 3),))
    assert loops(compiled) == []


def test_two_values_that_change_places():
    compiled = compare(two, (floats(5, 7), floats(5, 7)), (floats(2, 40), floats(2, 40)))
    assert loops(compiled) == []


def test_row_reductions_and_parts_chosen_by_the_counter():
    compiled = compare(rows, (floats(5, 7), floats(2, 7)), (floats(2, 40), floats(3, 40)))
    assert loops(compiled) == []


def test_in_an_arm_of_a_branch():
    compiled = compare(inside_a_branch, (floats(5, 7), True), (floats(5, 7), False))
    assert loops(compiled) == []


def test_a_row_that_is_not_there():
    compiled = Compiled(rows, floats(5, 7), floats(2, 7))
    with pytest.raises(ExitTaken):  # the interpreter runs it, where NumPy raises
        compiled(floats(5, 7), floats(1, 7))


def test_nothing_is_rounded_differently():
    x = floats(64, 33)
    np.testing.assert_array_equal(Compiled(chain, x)(x), chain(x))


# --- what stays a loop ---


def passes_of_the_call(x, n):
    for _ in range(n):
        x = x * 0.5
    return x


def products(x, w):
    for _ in range(3):
        x = np.tanh(x @ w)
    return x


def long(x):
    for _ in range(100):
        x = x * 0.5
    return x


def shared(x, w):
    for _ in range(3):
        x = x + np.exp(w)
    return x


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (passes_of_the_call, (floats(3, 4), 5), "number of passes"),
        (products, (floats(3, 4), floats(4, 4)), "matmul"),
        (long, (floats(3, 4),), "too long"),
        (shared, (floats(3, 4), floats(3, 4)), "share work"),
    ],
)
def test_loops_that_stay(function, arguments, expected):
    assert expected in reason(compare(function, arguments))


def test_no_step_is_lost():
    compiled = Compiled(chain, floats(2, 3))
    made = [s.operator for s in steps(prepare(compiled.region).graph) if isinstance(s, Node)]
    assert made == ["multiply", "add", "subtract", "maximum", "multiply"] * 10


# --- any of them ---

STEPS = ("x = x * 0.5", "x = x + y", "y = np.maximum(y, x)", "y = y - i", "x = x - x.sum(-1, keepdims=True)")
BODIES = st.lists(st.sampled_from(STEPS), min_size=1, max_size=5)


@settings(max_examples=12, deadline=None)
@given(body=BODIES, passes=st.integers(0, 4), shape=st.tuples(st.integers(1, 4), st.integers(1, 40)))
def test_random_bodies(tmp_path_factory, body, passes, shape):
    lines = ["import numpy as np", "def f(x, y):", f"    for i in range({passes}):"]
    lines += [f"        {line}" for line in body] + ["    return x + 0, y + 0"]
    path = tmp_path_factory.mktemp("unroll") / "made.py"
    path.write_text("\n".join(lines) + "\n")
    names: dict[str, object] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    compare(names["f"], (floats(*shape), floats(*shape)), rtol=1e-4)
