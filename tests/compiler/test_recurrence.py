"""Loops whose rows keep to themselves: one nest with the passes inside, compared with Python."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.regions import ExitTaken
from tests.compiler.tracing import Compiled, compare
from tiercel.compiler import recurrence
from tiercel.loops.form import For, blocks


def random(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def state_space(x, delta, into, out_of, h, a):
    outputs = []
    for t in range(x.shape[1]):
        step = delta[:, t, :, None]
        h = np.exp(step * a) * h + step * x[:, t, :, None] * into[:, t, None, :]
        outputs.append((h * out_of[:, t, None, :]).sum(axis=-1))
    return np.stack(outputs, axis=1), h


def with_skip(x, delta, into, out_of, h, a):
    """Also a row value that has nothing to do with the state, and the state of every pass."""
    ys, hs = [], []
    for t in range(x.shape[1]):
        h = np.exp(-np.abs(delta[:, t, :, None] * a)) * h + x[:, t, :, None] * into[:, t, None, :]
        ys.append((h * out_of[:, t, None, :]).sum(axis=-1) + x[:, t] * 0.5)
        hs.append(h)
    return np.stack(ys, axis=1), np.stack(hs), h


def state_space_arguments(batch, length, width, state):
    x, delta = random(batch, length, width), random(batch, length, width, seed=1) * np.float32(0.1)
    into, out_of = random(batch, length, state), random(batch, length, state, seed=1)
    return x, delta, into, out_of, random(batch, width, state), random(width, state)


def gates_per_state(decay, x, h):
    """What changes from pass to pass has rows of its own: (time, batch, width, state)."""
    for t in range(x.shape[0]):
        h = decay[t] * h + x[t]
    return h * 1, h.sum(axis=-1)


def folded_gates(decay, x, h):
    ys = []
    for t in range(x.shape[0]):
        h = decay[t] * h + x[t]
        ys.append(h.max(axis=-1))
    return np.stack(ys), h


def linear(gate, x, h):
    hs = []
    for t in range(x.shape[1]):
        h = gate[:, t] * h + (1 - gate[:, t]) * x[:, t]
        hs.append(h)
    return np.stack(hs, axis=1), h


def one_row(gate, x, h):
    for t in range(x.shape[0]):
        h = gate[t] * h + x[t]
    return h * 2


def two_states(gate, x, h):
    slow = h * 0
    for t in range(x.shape[1]):
        slow = 0.9 * slow + 0.1 * h
        h = np.tanh(gate[:, t] * h + x[:, t] - slow)
    return h, slow


def running_softmax(scores, values, acc):
    """Online softmax: the peak and the total are carried beside the sum."""
    peak = scores[0].max(axis=-1, keepdims=True)
    total = peak * 0
    for t in range(scores.shape[0]):
        now = np.maximum(peak, scores[t].max(axis=-1, keepdims=True))
        scale = np.exp(peak - now)
        p = np.exp(scores[t] - now)
        total = total * scale + p.sum(axis=-1, keepdims=True)
        acc = acc * scale + p * values[t]
        peak = now
    return acc / total, peak


def decayed(gate, x, h):
    """Scalars that depend on the pass, and what all passes share."""
    strong = np.abs(gate).max()
    for t in range(x.shape[1]):
        h = h * (strong / (t + 1.0)) + x[:, t]
    return h + 0


def two_names(gate, x, h):
    y = h + 1
    for t in range(x.shape[1]):
        h = h * 0.5 + x[:, t]
        y = h
    return h * y


def delayed(gate, x, h):
    """Places beside the counter."""
    for t in range(1, x.shape[1]):
        h = gate[:, t] * h + x[:, t - 1]
    return h + 0


def nests(compiled):
    """Loops over units of rows that hold another loop which is no vector axis."""
    found = []

    def look(block):
        for stmt in block.body:
            if isinstance(stmt, For) and stmt.index.startswith("unit"):
                found.append(stmt)
            for inner in blocks(stmt):
                look(inner)

    look(compiled.runner.lowered.function.body)
    return found


@pytest.mark.parametrize("function", [state_space, with_skip])
@pytest.mark.parametrize("first", [(2, 5, 40, 6), (1, 3, 7, 16), (3, 4, 32, 1)])
def test_state_space(function, first):
    sizes = [first, (1, 1, 1, 3), (2, 9, 33, 5), (4, 2, 64, 17), (1, 6, 3, 2)]
    compiled = compare(function, *(state_space_arguments(*s) for s in sizes))
    assert nests(compiled)


def test_the_loop_form_says_the_same_when_it_is_evaluated():
    given = state_space_arguments(2, 3, 34, 2)
    compiled = Compiled(state_space, *given)
    for native, plain in zip(compiled(*given), compiled.runner(*given, native=False), strict=True):
        np.testing.assert_allclose(native, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", [gates_per_state, folded_gates])
def test_rows_that_change_from_pass_to_pass(function):
    sizes = [(4, 2, 5, 6), (3, 1, 1, 4), (2, 3, 70, 3), (5, 2, 3, 130)]
    sets = [(random(*s) * np.float32(0.5), random(*s, seed=1), random(*s[1:], seed=2)) for s in sizes]
    assert nests(compare(function, *sets))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("function", [linear, two_states, two_names, delayed, decayed])
def test_elements(function, dtype):
    sizes = [(2, 4, 5), (1, 1, 3), (3, 7, 64), (2, 6, 129), (5, 3, 1)]
    sets = [
        (random(*s, dtype=dtype), random(*s, seed=1, dtype=dtype), random(s[0], s[2], seed=2, dtype=dtype))
        for s in sizes
        if s[1] > 1 or function is not delayed
    ]
    assert nests(compare(function, *sets))


def test_integers_wrap_as_numpys_do():
    given = [
        (np.arange(n * m, dtype=np.int32).reshape(n, m) * 77777, np.arange(n * m, dtype=np.int32).reshape(n, m) - 9,
         np.arange(m, dtype=np.int32) + 3)
        for n, m in ((7, 5), (30, 100), (1, 1))
    ]  # fmt: skip
    assert nests(compare(one_row, *given))


def test_rank_one():
    given = [(random(t, n), random(t, n, seed=1), random(n, seed=2)) for t, n in ((4, 6), (9, 200), (2, 1))]
    assert nests(compare(one_row, *given))


def test_what_is_carried_beside_the_state():
    sets = [(random(t, b, n), random(t, b, n, seed=3), random(b, n)) for t, b, n in ((4, 3, 6), (1, 2, 40), (7, 33, 5))]
    assert nests(compare(running_softmax, *sets))


def test_no_pass_leaves_what_was_before():
    def f(x, h):
        h = h * 2
        for t in range(x.shape[1]):
            h = h * x[:, t]
        return h

    given = [(random(2, t, 5), random(2, 5)) for t in (3, 0, 1)]
    assert nests(compare(f, *given))


def test_one_of_the_arrays_is_too_short():
    """What would raise in a pass is found before the first one."""
    given = state_space_arguments(2, 5, 8, 4)
    compiled = Compiled(state_space, *given)
    short = (given[0], given[1], given[2][:, :3].copy(), *given[3:])
    with pytest.raises(ExitTaken):
        compiled(*short)
    longer = (given[0], given[1], np.concatenate([given[2], given[2]], axis=1), *given[3:])
    for got, want in zip(compiled(*longer), state_space(*longer), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def mixes_rows(gate, x, h):
    for t in range(x.shape[1]):
        h = gate[:, t] * h + x[:, t] + h.max(axis=0)
    return h + 0


def turns_rows(gate, x, h):
    for t in range(x.shape[1]):
        h = gate[:, t] * h[::-1] + x[:, t]
    return h + 0


def swaps(gate, x, h):
    other = h * 2
    for t in range(x.shape[1]):
        h, other = other, h * gate[:, t] + x[:, t]
    return h + other


def product(gate, x, h):
    for t in range(x.shape[1]):
        h = np.tanh(h @ gate[0] + x[:, t])
    return h + 0


def counts(gate, x, h):
    n = 0
    for t in range(x.shape[1]):
        h = h * gate[:, t]
        n += t
    return h * n


@pytest.mark.parametrize("function", [mixes_rows, turns_rows, swaps, product, counts])
def test_what_does_not_keep_to_its_row_stays_pass_by_pass(function):
    sets = [(random(n, t, n), random(n, t, n, seed=1), random(n, n)) for n, t in ((4, 4), (3, 3), (6, 6))]
    assert not nests(compare(function, *sets))


def test_a_state_that_is_read_again_after_it_was_computed_stays_pass_by_pass():
    def f(x, h):
        ys = []
        for t in range(x.shape[1]):
            new = h * 0.5 + x[:, t]
            ys.append((h - new.sum(axis=-1, keepdims=True)) * 1)
            h = new
        return np.stack(ys), h

    given = [(random(2, t, n), random(2, n)) for t, n in ((3, 5), (2, 40))]
    assert not nests(compare(f, *given))


def test_long_rows_are_added_up_in_lanes():
    """Neighbouring rows are lanes only where a row is short enough to be added up one by one."""
    given = state_space_arguments(1, 2, 3, recurrence.LONGEST_FOLD + 1)
    (nest,) = nests(compare(state_space, given))
    assert not any(isinstance(s, For) and s.axis == "vector" and s.vectors for b in blocks(nest) for s in _all(b))


def _all(block):
    for stmt in block.body:
        yield stmt
        for inner in blocks(stmt):
            yield from _all(inner)
