"""Steps taken out of loops: what is moved, what stays, and that nothing else changes."""

from __future__ import annotations

import contextlib
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiercel as tc
from tests.compiler.tracing import Compiled, compare
from tiercel.compiler import hoist, passes
from tiercel.compiler.graph import Loop, Node, steps
from tiercel.compiler.graph_text import region_text
from tiercel.compiler.passes import prepare


def random(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape, dtype=np.float32)


def loop_of(compiled):
    """The first loop of the prepared graph."""
    return next(s for s in steps(prepare(compiled.region).graph) if isinstance(s, Loop))


def operators(graph):
    return [] if graph is None else [s.operator for s in graph.steps if isinstance(s, Node)]


def moved(compiled):
    """The operators of `once` and of `ahead`."""
    loop = loop_of(compiled)
    return operators(loop.once), operators(loop.ahead.graph if loop.ahead else None)


@contextlib.contextmanager
def not_hoisting():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(passes.PASSES, "hoist", lambda region: region)
        yield


@contextlib.contextmanager
def elements_ahead(count):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hoist, "AHEAD_ELEMENTS", count)
        yield


# --- what is computed for several passes ---


def batch_first(x, h, w, u):
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ w + h @ u)
    return h + 0


def time_first(x, h, w, u):
    for t in range(x.shape[0]):
        h = np.tanh(x[t] @ w + h @ u)
    return h + 0


def backwards(x, h, w, u):
    n = x.shape[1]
    for t in range(n):
        h = np.tanh(x[:, n - 1 - t] @ w + h @ u)
    return h + 0


def from_the_end(x, h, w, u):
    for t in range(x.shape[1]):
        h = np.tanh(x[:, -t - 1] @ w + h @ u)
    return h + 0


def over_the_array(x, h, w, u):
    for row in x:
        h = np.tanh(row @ w + h @ u)
    return h + 0


def with_a_cast(x, h, w, u):
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t].astype(np.float32) @ w + h @ u)
    return h + 0


def two_layers(x, h, w, u):
    for t in range(x.shape[1]):
        first = np.maximum(x[:, t] @ w, 0)
        h = np.tanh((first + 1) @ u + first + h @ u)
    return h + 0


def columns(x, h, w, u):
    """Matrices from the left: a pass has the columns `x[:, t].T`."""
    h = h.T
    for t in range(x.shape[1]):
        h = np.tanh(w.T @ x[:, t].T + u.T @ h)
    return h.sum(axis=0)


def gates(x, h, w, u):
    for t in range(x.shape[1]):
        r = 1 / (1 + np.exp(-(x[:, t] @ w + h @ u)))
        h = np.tanh(x[:, t] @ (w * 2) + (r * h) @ u)
    return h + 0


BATCH_FIRST = [(3, 5, 4, 6), (1, 9, 4, 6), (8, 1, 4, 6), (2, 0, 4, 6), (0, 3, 4, 6), (40, 7, 16, 33), (2, 6, 1, 1)]


def arguments(batch, time, features, hidden, *, swap=False):
    shape = (time, batch, features) if swap else (batch, time, features)
    return random(*shape), random(batch, hidden, seed=1), random(features, hidden, seed=2), random(hidden, hidden) / 8


@pytest.mark.parametrize("few", [1, 40, 1 << 18])
@pytest.mark.parametrize(
    "function",
    [batch_first, time_first, backwards, from_the_end, over_the_array, with_a_cast, two_layers, columns, gates],
)
def test_products_of_slices(function, few):
    swap = function in (time_first, over_the_array)
    sets = [arguments(*sizes, swap=swap) for sizes in BATCH_FIRST if function is not two_layers or sizes[1]]
    with elements_ahead(few):
        compiled = Compiled(function, *sets[0])
        assert "matmul" in moved(compiled)[1]
        # what is left in the body are products with the state
        assert operators(loop_of(compiled).body).count("matmul") == 1 + (function is gates)
        for given_ in sets:
            if given_[0].shape[0 if swap else 1] == 0:
                continue  # a loop that does not run hands over an argument: the region is left
            np.testing.assert_allclose(compiled(*given_), function(*given_), rtol=2e-5, atol=2e-5)


def test_two_layers_repeat_nothing():
    """The activation between two hoisted products is read by the passes, not computed again."""
    compiled = Compiled(two_layers, *arguments(3, 5, 6, 6))
    assert moved(compiled)[1].count("matmul") == 2
    assert operators(loop_of(compiled).body).count("maximum") == 0


def test_vectors_and_a_matrix():
    def f(x, h, w, u):
        for t in range(x.shape[0]):
            h = np.tanh(x[t] @ w + u @ h)
        return h + 0

    compiled = compare(f, *[(random(n, 4), random(6), random(4, 6), random(6, 6) / 4) for n in (5, 1, 8)])
    assert "matmul" in moved(compiled)[1]


@pytest.mark.parametrize("how", ["strided", "transposed", "reversed", "other dtype"])
def test_layouts_of_the_sliced_array(how):
    x, h, w, u = arguments(3, 5, 4, 6)
    x = {
        "strided": lambda: random(6, 10, 8)[::2, ::2, ::2],
        "transposed": lambda: random(4, 5, 3).transpose(2, 1, 0),
        "reversed": lambda: x[:, ::-1],
        "other dtype": lambda: x.astype(np.float64),
    }[how]()
    compiled = compare(with_a_cast, (x, h, w, u))
    assert "matmul" in moved(compiled)[1]


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(0, 5), time=st.integers(1, 12), few=st.integers(1, 100), start=st.integers(0, 2),
    step=st.integers(1, 3),
)  # fmt: skip
def test_any_number_of_passes_at_a_time(batch, time, few, start, step):
    def f(x, h, w):
        for t in range(start, x.shape[1], step):
            h = h + x[:, t] @ w
        return h * 1

    given_ = (random(batch, time, 3), random(batch, 4), random(3, 4))
    with elements_ahead(few):
        np.testing.assert_allclose(Compiled(f, *given_)(*given_), f(*given_), rtol=1e-4, atol=1e-4)


def test_the_bits_are_those_of_the_product_in_the_loop():
    given_ = arguments(24, 11, 96, 64)
    ahead = Compiled(batch_first, *given_)(*given_)
    with not_hoisting():
        each = Compiled(batch_first, *given_)(*given_)
    assert np.array_equal(ahead, each)


def test_steps_of_inner_loops_are_moved_in_front_of_them():
    def f(x, h, w, u):
        for layer in range(u.shape[0]):
            for t in range(x.shape[1]):
                h = np.tanh(x[:, t] @ w + h @ u[layer])
        return h + 0

    sets = [(random(2, 3, 4), random(2, 5), random(4, 5), random(n, 5, 5)) for n in (3, 1)]
    compiled = compare(f, *sets)
    inner = [s for s in steps(prepare(compiled.region).graph) if isinstance(s, Loop)][1]
    assert "matmul" in operators(inner.ahead.graph)


# --- what is computed once ---


def test_what_needs_nothing_of_the_pass():
    def f(x, h, w, u):
        for _ in range(x.shape[0]):
            scale = np.exp(w) + 1
            h = np.tanh(h * 0.5 + x @ scale)
        return h + 0

    sets = [(random(n, 4), random(n, 5), random(4, 5), random(1, 1)) for n in (3, 1)]
    compiled = compare(f, *sets)
    once, _ = moved(compiled)
    assert once == ["exp", "add", "matmul"]


def test_in_a_while_loop():
    def f(x, w):
        while x.max() > 1:
            x = x * 0.5 - np.exp(w) * 0.01
        return x + 0

    compiled = compare(f, (random(3, 4) * 9, random(3, 4)), (random(3, 4) * 0, random(3, 4)))
    assert "exp" in moved(compiled)[0]


def test_scalars_and_rows():
    def f(x, h):
        for t in range(x.shape[0]):
            peak = x.max()
            rows = x.sum(axis=1)
            h = h * peak + rows + x[t]
        return h + 0

    compiled = compare(f, *[(random(n, n), random(n)) for n in (4, 1, 9)])
    assert "sum" in moved(compiled)[0]


# --- what stays ---


def carried(x, h, w, u):
    for t in range(x.shape[1]):
        w = w * 0.5
        h = np.tanh(x[:, t] @ w + h @ u)
    return h + 0


def left_early(x, h, w, u):
    for t in range(x.shape[1]):
        if h.max() > 3:
            break
        h = h + np.abs(x[:, t] @ w)
    return h + 0


def larger_than_its_operands(x, h, w, u):
    total = h[:, :1] + w[:1, :]
    for t in range(x.shape[1]):
        total = total + (h[:, :1] + w[:1, :]) * t
    return total


@pytest.mark.parametrize("function", [carried, left_early, larger_than_its_operands])
def test_stays_in_the_loop(function):
    compiled = compare(function, arguments(3, 5, 4, 6))
    loop = loop_of(compiled)
    assert loop.ahead is None
    assert not {"matmul", "add"} & set(operators(loop.once))


def test_nothing_to_move_is_the_same_region():
    def f(x):
        for _ in range(3):
            x = x * 2
        return x

    region = Compiled(f, random(3)).region
    assert hoist.hoist_loops(region) is region


def test_a_slice_that_may_be_out_of_bounds_is_checked_in_its_pass():
    def f(x, h, w, n):
        for t in range(n):
            h = np.tanh(x[:, 2 * t] @ w + h)
        return h + 0

    given_ = (random(2, 6, 3), random(2, 4), random(3, 4), 3)
    compiled = Compiled(f, *given_)
    assert loop_of(compiled).ahead is None
    np.testing.assert_allclose(compiled(*given_), f(*given_), rtol=1e-5)


# --- flags ---


def warns(x, h, w):
    for t in range(x.shape[1]):
        h = h + x[:, t] @ np.exp(w)
    return h * 1


@pytest.mark.parametrize("time", [0, 1, 3])
@pytest.mark.parametrize("mode", ["warn", "raise", "ignore"])
def test_flags_as_numpy_raises_them(time, mode):
    """exp overflows: seen if a pass runs, and only then."""
    function = tc.jit(warns)
    fine, large = random(2, 3), np.full((2, 3), 200, np.float32)
    function.warmup(random(4, 2, 2), random(4, 3), fine)
    assert function.stats()["kernels"] == 1
    for w in (fine, large):
        given_ = (random(4, time, 2), random(4, 3), w)
        seen = []
        for f in (warns, function):
            with np.errstate(all=mode), warnings.catch_warnings(record=True) as log:
                warnings.simplefilter("always")
                try:
                    seen.append(("result", f(*given_)))
                except FloatingPointError as error:
                    seen.append(("error", str(error)))
                seen.append([str(w.message) for w in log])
        plain, plain_log, ours, ours_log = seen
        assert plain_log == ours_log
        assert plain[0] == ours[0]
        np.testing.assert_array_equal(plain[1], ours[1]) if plain[0] == "error" else np.testing.assert_allclose(
            plain[1], ours[1], rtol=1e-5
        )


def test_a_loop_that_does_not_run_stays_compiled_whatever_the_weights():
    function = tc.jit(warns)
    function.warmup(random(4, 2, 2), random(4, 3), random(2, 3))
    before = function.stats()["compiled_calls"]
    with np.errstate(all="raise"):
        function(random(4, 0, 2), random(4, 3), np.full((2, 3), 200, np.float32))
    assert function.stats()["compiled_calls"] == before + 1


def test_printed_and_checked():
    region = prepare(Compiled(batch_first, *arguments(3, 5, 4, 6)).region)
    text = region_text(region)
    assert "before passes" in text
    assert "in the first pass" in region_text(
        prepare(Compiled(warns, random(2, 2, 2), random(2, 3), random(2, 3)).region)
    )
