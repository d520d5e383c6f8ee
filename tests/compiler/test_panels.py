"""Nests that follow the column blocks of a product (gates), in any order and form: machine code against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiercel as tc
from tests.compiler.tracing import Compiled, compare
from tiercel.compiler import lower
from tiercel.compiler.lower import lower_region
from tiercel.compiler.passes import prepare
from tiercel.loops import to_text
from tiercel.loops.form import Contract, blocks


def weights(*shape, dtype=np.float32, seed=0):
    made = np.random.default_rng(seed + sum(shape)).standard_normal(shape)
    return tc.constant((made * 0.3).astype(dtype))


def random(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def contracts(compiled):
    """The products of the loop form."""

    def look(stmt):
        if isinstance(stmt, Contract):
            yield stmt
        for block in blocks(stmt):
            for inner in block.body:
                yield from look(inner)

    return list(look(lower_region(compiled.region).function.body))


def panels(compiled):
    """How many column blocks each product has (0: it is an ordinary one)."""
    return [len(contract.panels) for contract in contracts(compiled)]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_step(k, h, dtype=np.float32):
    u, b = weights(k, 4 * h, dtype=dtype), weights(4 * h, dtype=dtype)

    def step(x, c):
        i, f, g, o = np.split(x @ u + b, 4, axis=1)
        c = 1 / (1 + np.exp(-f)) * c + 1 / (1 + np.exp(-i)) * np.tanh(g)
        return 1 / (1 + np.exp(-o)) * np.tanh(c), c

    return step


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("k", "h"), [(5, 2), (7, 16), (16, 20), (33, 70), (3, 129), (600, 17)])
def test_a_cell_at_many_sizes(k, h, dtype):
    sets = [(random(n, k, dtype=dtype), random(n, h, dtype=dtype)) for n in (4, 0, *range(1, 34, 3), 33)]
    compiled = compare(lstm_step(k, h, dtype), *sets, rtol=2e-4)
    assert panels(compiled) == [4]
    assert "_panels packed (c_0, " in to_text(lower_region(compiled.region).function)
    assert [spec.panels for spec in lower_region(compiled.region).interface.packs] == [(0, h, 2 * h, 3 * h)]


def test_slices_in_another_order():
    w, b = weights(9, 60), weights(60)

    def step(x, y):
        z = x @ w + b
        n = 20
        return np.tanh(z[:, 2 * n :]) * y + z[:, :n] * np.exp(z[..., n : 2 * n])

    assert panels(compare(step, (random(5, 9), random(5, 20)), (random(70, 9), random(70, 20)))) == [3]


def test_two_products_and_a_bias():
    w, u, b = weights(6, 48), weights(12, 48), weights(48)

    def step(x, h):
        r, z, n = np.split(x @ w + h @ u + b, 3, axis=-1)
        return np.tanh(n * r) + z

    compiled = compare(step, (random(5, 6), random(5, 12)), (random(1, 6), random(1, 12)))
    assert sorted(panels(compiled)) == [0, 3]


def test_gru():
    u, d, w = weights(18, 54), weights(54), weights(4, 54)

    def layer(x, h):
        states = []
        for t in range(x.shape[1]):
            r, z, n = np.split(x[:, t] @ w, 3, axis=1)
            r_h, z_h, n_h = np.split(h @ u + d, 3, axis=1)
            z = 1 / (1 + np.exp(-(z + z_h)))
            n = np.tanh(n + 1 / (1 + np.exp(-(r + r_h))) * n_h)
            h = (1 - z) * n + z * h
            states.append(h)
        return np.stack(states, axis=1), h + 0

    sets = [(random(n, t, 4), random(n, 18)) for n, t in ((3, 4), (1, 1), (9, 7), (17, 2))]
    assert sorted(panels(compare(layer, *sets))) == [0, 3]


def test_leading_axes_and_broadcast_operands():
    w, u, b = weights(6, 40), weights(10, 40), weights(40)

    def cell(x, h, c):
        batch, length, k = x.shape
        z = (x.reshape(batch * length, k) @ w).reshape(batch, length, -1) + (h @ u + b)[:, None]
        i, g = np.split(z, 2, axis=2)
        return np.tanh(g) * c[:, None] + i

    sets = [(random(n, t, 6), random(n, 10), random(n, 20)) for n, t in ((3, 5), (1, 1), (2, 40), (33, 2))]
    assert sorted(panels(compare(cell, *sets))) == [0, 2]


def test_a_stack_of_rows():
    w = weights(6, 32)

    def unit(x):
        a, b = np.split(x @ w, 2, axis=-1)
        return a * np.tanh(b)

    assert panels(compare(unit, (random(2, 3, 6),), (random(1, 1, 6),), (random(4, 30, 6),))) == [2]


def test_a_transposed_matrix():
    w = weights(32, 6)

    def unit(x):
        a, b = np.split(x @ np.transpose(w), 2, axis=-1)
        return a * np.tanh(b)

    assert panels(compare(unit, (random(5, 6),), (random(30, 6),))) == [2]


def test_one_matrix_as_panels_and_whole():
    w = weights(12, 24)

    def both(x):
        a, b = np.split(x @ w, 2, axis=1)
        x = x + np.tanh(a * b)
        return x @ w

    compiled = compare(both, (random(5, 12),))
    assert panels(compiled) == [2, 0]
    assert [spec.panels for spec in lower_region(compiled.region).interface.packs] == [(), (0, 12)]


W = weights(8, 24)


def returned_as_well(x):
    z = x @ W
    a, b = np.split(z, 2, axis=1)
    return a * np.tanh(b), z


def summed_as_well(x):
    z = x @ W
    a, b = np.split(z, 2, axis=1)
    return a * np.tanh(b), z.sum()


def not_all_columns(x):
    z = x @ W
    return z[:, :8] * np.tanh(z[:, 8:16])


def columns_twice(x):
    z = x @ W
    return z[:, :12] * z[:, 12:] + z[:, 6:18]


def blocks_of_different_width(x):
    z = x @ W
    return z[:, :8] * 2, z[:, 8:] * 3


def too_many_blocks(x):
    a, b, c, d, e, f = np.split(x @ W, 6, axis=1)
    return a * b * c * d * e * f


def other_rows(x):
    a, b = np.split(x @ W, 2, axis=1)
    return a * b[::-1]


def blocks_of_rows(x):
    a, b = np.split(x @ W, 2, axis=0)
    return a * b


def reduced(x):
    a, b = np.split(x @ W, 2, axis=1)
    return (a * b).sum(axis=1)


@pytest.mark.parametrize(
    "function",
    [
        returned_as_well, summed_as_well, not_all_columns, columns_twice, blocks_of_different_width, too_many_blocks,
        other_rows, blocks_of_rows, reduced,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_others_are_computed_as_they_stand(function):
    assert panels(compare(function, (random(6, 8),), (random(40, 8),))) == [0]


def test_unfrozen_matrices_stay_whole():
    def unit(x, w):
        a, b = np.split(x @ w + 1, 2, axis=1)
        return a * np.tanh(b)

    compiled = compare(unit, (random(5, 6), random(6, 8)), (random(1, 3), random(3, 40)))
    assert panels(compiled) == [0]
    assert prepare(compiled.region) is compiled.region


def test_columns_of_an_elementwise_step_that_is_used_whole_are_not_taken_early():
    def unit(x):
        z = np.tanh(x @ W)
        a, b = np.split(z, 2, axis=1)
        return a * b, z

    compare(unit, (random(5, 8),))
    assert "tanh" in str(prepare(Compiled(unit, random(5, 8)).region).graph)


def test_floating_point_flags_of_all_columns():
    """A column that only an unused half of a step needs is computed, and its overflow is seen."""
    w = weights(4, 8)

    def unit(x):
        a, b = np.split(np.exp(x @ w), 2, axis=1)
        return a + 1, b

    compare(unit, (random(3, 4),), (np.full((2, 4), 1e4, np.float32),))


@pytest.mark.parametrize(("k", "h", "dtype"), [(600, 17, np.float32), (64, 80, np.float32), (33, 20, np.float64)])
def test_bits_are_those_of_the_product_as_it_stands(k, h, dtype, monkeypatch):
    step = lstm_step(k, h, dtype)
    given = [(random(n, k, dtype=dtype), random(n, h, dtype=dtype)) for n in (4, 33)]
    with_panels = Compiled(step, *given[0])
    assert panels(with_panels) == [4]
    monkeypatch.setattr(lower, "products_to_postpone", lambda state, items: set())
    without = Compiled(step, *given[0])
    assert panels(without) == [0]
    for arguments in given:
        for one, other in zip(with_panels(*arguments), without(*arguments), strict=True):
            np.testing.assert_array_equal(one, other)


def split_in_two(z):
    return np.split(z, 2, axis=1)


def split_in_three(z):
    return np.split(z, 3, axis=-1)


def split_in_four(z):
    return np.split(z, 4, axis=1)


def two_slices(z):
    n = z.shape[1] // 2
    return z[:, :n], z[:, n:]


def three_slices(z):
    n = z.shape[1] // 3
    return z[:, 2 * n : 3 * n], z[..., :n], z[:, n : 2 * n]


def four_slices(z):
    n = z.shape[1] // 4
    return z[:, -n:], z[:, :n], z[:, n : 2 * n], z[:, 2 * n : -n]


def added(parts, c):
    for part in parts:
        c = c * 0.5 + part
    return c


def gated(parts, c):
    return np.tanh(parts[-1]) * c + parts[0] * parts[1], parts[1] - 1


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_gates_in_any_form(data):
    """Random gates: how many, how wide, cut how, what is done with them, and which rows there are."""
    draw = data.draw
    count, cut = draw(
        st.sampled_from(
            [
                (2, split_in_two), (3, split_in_three), (4, split_in_four), (2, two_slices), (3, three_slices),
                (4, four_slices),
            ]
        )
    )  # fmt: skip
    width, k = draw(st.integers(2, 40)), draw(st.integers(1, 40))
    dtype, after = draw(st.sampled_from([np.float32, np.float64])), draw(st.sampled_from([added, gated]))
    w, b = weights(k, count * width, dtype=dtype), weights(count * width, dtype=dtype)
    with_bias, squashed = draw(st.booleans()), draw(st.booleans())

    def unit(x, c):
        z = x @ w
        if with_bias:
            z = z + b
        if squashed:
            z = np.tanh(z)
        return after(cut(z), c)

    rows = [3, *(draw(st.integers(0, 40)) for _ in range(3))]
    sets = [(random(n, k, dtype=dtype), random(n, width, dtype=dtype)) for n in rows]
    assert panels(compare(unit, *sets, rtol=2e-4)) == [count]


@pytest.mark.parametrize("rows", [64, 66, 131, 513])
def test_a_cell_of_many_rows_on_two_threads(rows):
    """Blocks of rows end where the next thread's begin, whatever the rows of a register tile."""
    k, h = 192, 96
    u, b = weights(k, 4 * h), weights(4 * h)

    @tc.jit
    def step(x, c):
        i, f, g, o = np.split(x @ u + b, 4, axis=1)
        c = 1 / (1 + np.exp(-f)) * c + 1 / (1 + np.exp(-i)) * np.tanh(g)
        return 1 / (1 + np.exp(-o)) * np.tanh(c), c

    x, c = random(rows, k), random(rows, h)
    want = lstm_step(k, h)(x, c)
    with tc.context(threads=2):
        step.warmup(x, c)
        for _ in range(3):
            for got, expected in zip(step(x, c), want, strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)
    assert step.stats()["compiled_calls"] == 3
