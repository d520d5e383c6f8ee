"""Python functions compiled whole: structure, branches, loops, helpers, cells, and what is refused and why."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import tiercel as tc
from tests.compiler.regions import ExitTaken
from tests.compiler.tracing import Compiled, compare
from tiercel import Tensor, nn
from tiercel.compiler.graph import Branch, Loop, steps
from tiercel.compiler.trace import Untraceable

SCALE = 3.0


def random(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape, dtype=np.float32)


def helper(a, *, gain=2.0):
    return np.tanh(a) * gain


def dense(x, w, b):
    return helper(x @ w + b) * SCALE


def test_helper_constant_and_default_are_traced_through():
    compiled = compare(dense, (random(3, 5), random(5, 7), random(7)), (random(1, 2), random(2, 9), random(9)))
    sources = {c.source[1][1] for c in compiled.environment.conditions.values() if c.source[0] == "global"}
    assert {"helper", "SCALE", "np"} <= sources


def test_sizes_that_agree_are_assumed_equal_and_guarded():
    compiled = Compiled(dense, random(3, 5), random(5, 7), random(7))
    assert len(compiled.runner.lowered.function.sizes) == 3
    general = Compiled(dense, random(3, 5), random(5, 7), random(7), speculate=False)
    x, w = random(3, 5), random(5, 7)
    for b in (random(7), random(1)):
        np.testing.assert_allclose(general(x, w, b), dense(x, w, b), rtol=2e-5)
    with pytest.raises(ExitTaken):
        general(x, w, random(6))


def normalise(x):
    mean = x.mean(axis=-1, keepdims=True)
    spread = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(spread + 1e-5)


def test_plain_numpy_layer_norm():
    compare(normalise, (random(3, 50),), (random(2, 1),), (random(70, 3),))


def scaled_rows(x, n):
    out = []
    for t in range(n):
        out.append(x[t] * 2 + t)
    return np.stack(out, axis=1)


def test_loop_with_a_trip_count_from_an_argument():
    compiled = compare(scaled_rows, (random(5, 6), 4), (random(5, 6), 1), (random(5, 6), 5))
    assert any(isinstance(s, Loop) for s in steps(compiled.region.graph))
    with pytest.raises(ExitTaken):
        compiled(random(5, 6), 6)  # an index out of range: NumPy raises in the interpreter
    with pytest.raises(ExitTaken):
        compiled(random(5, 6), 0)  # np.stack of nothing raises there as well


def by_sign(x):
    s = x.sum()
    y = np.exp(x) if s > 0 else x * 3
    return y, s


def test_branch_on_data_compiles_both_arms():
    compiled = compare(by_sign, (np.ones((5, 6), np.float32),), (-np.ones((2, 3), np.float32),))
    assert any(isinstance(s, Branch) for s in steps(compiled.region.graph))


def halve(x):
    n = 0
    while np.abs(x).max() > 1:
        x = x * 0.5
        n += 1
    return x + 0, n


def test_while_loop_on_data():
    compare(halve, (random(5, 6) * 20,), (random(2, 3) * 0.01,), (random(1, 1) * 1000,))


def early(x, mode=None):
    if mode is not None:
        return x * 5
    rows, columns = x.shape
    if columns > 3:
        return x.reshape(rows * columns) * 1
    return x.reshape(-1) * 2


def test_early_return_and_known_conditions():
    compiled = compare(early, (random(5, 6), None), (random(5, 2), None))
    assert sum(isinstance(s, Branch) for s in steps(compiled.region.graph)) == 1


def lstm(x, h, c, w, u, b):
    states = []
    hoisted = x @ w + b
    for t in range(x.shape[1]):
        i, f, g, o = np.split(hoisted[:, t] + h @ u, 4, axis=1)
        c = 1 / (1 + np.exp(-f)) * c + 1 / (1 + np.exp(-i)) * np.tanh(g)
        h = 1 / (1 + np.exp(-o)) * np.tanh(c)
        states.append(h)
    return np.stack(states, axis=1), h, c


def test_lstm_in_plain_numpy():
    def arguments(batch, length):
        hidden = 8
        shapes = ((batch, length, 4), (batch, hidden), (batch, hidden), (4, 4 * hidden), (hidden, 4 * hidden))
        return (*(random(*s, seed=i) for i, s in enumerate(shapes)), random(4 * hidden))

    compiled = compare(lstm, arguments(3, 5), arguments(2, 1), arguments(33, 9), arguments(1, 30))
    assert sum(isinstance(s, Loop) for s in steps(compiled.region.graph)) == 1


def attention(q, k, v, mask):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + mask
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True)) @ v


def test_attention_keeps_numpys_float64():
    """The square root of a Python int is a float64 scalar, which is not weak: NumPy goes on in float64."""
    arguments = (*(random(2, 3, 5, 8, seed=i) for i in range(3)), random(5, 5))
    compiled = compare(attention, arguments)
    assert compiled(*arguments).dtype == np.float64


class Residual(nn.Cell):
    def __init__(self, width, depth):
        super().__init__()
        self.w = tc.Parameter(random(width, width))
        self.depth = depth

    def construct(self, x):
        for _ in range(self.depth):
            x = self.block(x)
        return x

    def block(self, x):
        return np.tanh(x @ self.w.T) + x


def test_cell_with_parameters_and_methods():
    cell = Residual(6, 2)
    compiled = compare(cell.construct, (Tensor(random(3, 6)),), (Tensor(random(1, 6)),))
    hidden = [i for i in compiled.region.inputs if i.source[0] == "attribute"]
    assert len(hidden) == 1
    assert hidden[0].frozen
    assert hidden[0].value.type.shape == (6, 6)


def structured(batch, factors):
    a, b = batch["left"], batch["right"]
    first, *rest = factors
    total = a * first
    for r in rest:
        total = total + b * r
    for i, (p, q) in enumerate(((1, 3), (2, 4))):
        total = total + i * p * q
    return {"no": 1}.get("no"), (total, a - b)


def test_dicts_tuples_and_known_sequences():
    sets = [({"left": random(3), "right": random(3, seed=1)}, (1.0, 2.0, 0.5)) for _ in range(2)]
    compare(structured, *sets)


def writes(x):
    y = x.T
    y += 1
    return x


def views(x):
    y = x[::-1]
    return y if x.sum() > 0 else x


def prints(x):
    print(x)
    return x * 2


def grows(x):
    while x.shape[0] < 100:
        x = np.concatenate([x, x])
    return x


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (writes, "written"),
        (views, "may be a view of an argument"),
        (prints, "Python"),
        (grows, "kind in each pass|carried values"),
    ],
)
def test_what_is_refused_says_why(function, reason):
    with pytest.raises(Untraceable, match=reason):
        Compiled(function, random(4, 4))


def identity(x, y):
    return x, x + y


def test_an_argument_is_returned_as_itself():
    compiled = Compiled(identity, random(3), random(3))
    (recipe,) = compiled.runner.lowered.interface.results["return"].values()
    assert recipe.items[0].index == 0


class State(NamedTuple):
    total: object
    kept: object


def accumulate(x, mask, state):
    keep = mask[:, :, None].astype(np.float32)
    return State(state.total + (x * keep).sum(axis=1), state.kept + keep.sum(axis=1))


def test_named_tuples_in_and_out():
    arguments = (random(2, 5, 4), random(2, 5) > 0, State(random(2, 4), random(2, 1)))
    compare(accumulate, arguments)
    conditions = Compiled(accumulate, *arguments).environment.conditions.values()
    assert any(c.what == "class" and c.expected is State for c in conditions)


def classify(x, layers, head, threshold):
    best = x @ head
    for depth, weight in enumerate(layers):
        if best.max() >= threshold:
            return best, depth
        x = x + np.maximum(x @ weight, 0)
        best = x @ head
    return best, len(layers)


def test_early_exit_from_a_loop_over_a_list_argument():
    layers = [random(6, 6, seed=i) * 0.3 for i in range(3)]
    sets = [(random(4, 6), layers, random(6, 3), np.float64(t)) for t in (-10.0, 3.0, 5.0, 1e9)]
    compare(classify, *sets)
    with pytest.raises(Untraceable, match="argument"):
        Compiled(lambda xs: xs, layers)


def decode(x, keys, w):
    keys = np.concatenate([keys, (x @ w)[:, None]], axis=1)
    scores = np.einsum("bd,btd->bt", x, keys) / np.sqrt(np.float32(x.shape[-1]))
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("bt,btd->bd", e / e.sum(axis=-1, keepdims=True), keys), keys


def test_growing_cache_and_einsum():
    compare(decode, *((random(2, 8), random(2, t, 8), random(8, 8)) for t in (5, 1, 40)))


def test_vectors_in_products():
    compare(lambda x, v: x @ v, (random(3, 5), random(5)), (random(1, 4), random(4)))
    compare(lambda v, x: v @ x, (random(5), random(5, 3)), (random(4), random(4, 1)))
    compare(lambda v, w: v @ w * np.float32(1), (random(5), random(5, seed=2)))


def look_up(table, tokens, lengths):
    rows = np.take(table, tokens, axis=0)
    padding = np.arange(tokens.shape[1]) >= lengths[:, None]
    bias = np.where(padding, np.float32(-1e9), np.float32(0))
    return rows + bias[:, :, None], np.zeros((tokens.shape[0], 3)), np.tril(rows)


def test_embedding_mask_and_creation():
    rng = np.random.default_rng(0)

    def arguments(batch, time):
        return random(7, 4), rng.integers(-7, 7, (batch, time)), rng.integers(0, time + 1, batch)

    compiled = compare(look_up, arguments(2, 5), arguments(3, 1), arguments(1, 33))
    with pytest.raises(ExitTaken):
        compiled(random(7, 4), np.array([[0, 7]]), np.array([1]))  # IndexError comes from NumPy in the interpreter
    with pytest.raises(ExitTaken):
        compiled(random(7, 4), np.array([[0, -8]]), np.array([1]))


class Stack(nn.Cell):
    def __init__(self):
        super().__init__()
        self.blocks = nn.CellList(Residual(6, 1) for _ in range(3))
        self.plain = [1.5, 2.0]

    def construct(self, x):
        for block in self.blocks:
            x = block(x)
        for factor in self.plain:
            x = x * factor
        return x


def test_lists_of_cells_and_numbers_in_the_environment():
    compiled = compare(Stack().construct, (Tensor(random(3, 6)),), (Tensor(random(1, 6)),))
    assert sum(i.frozen for i in compiled.region.inputs) == 3


def test_math_of_sizes():
    import math

    def f(x):
        return x / math.sqrt(x.shape[-1] // 2) * math.pi

    compare(f, (random(3, 8),), (random(2, 5),))


def test_views_of_arguments_are_read_by_their_own_sizes():
    base = random(2, 6)
    for x in (base, np.asfortranarray(base), base[:, ::-1]):
        compare(lambda x: x.reshape(3, 4).sum(axis=1), (x,))
        compare(lambda x: x.T.sum(axis=0), (x,))
    compare(lambda x: (x.T * 2).sum(axis=1), (np.asfortranarray(base),))


def rank_zero(x):
    total = np.zeros((), np.float32)
    for t in range(x.shape[0]):
        total += x[t].sum()
    return total, np.full((), x.max()), x[..., 0, 0] * 1, x.sum(keepdims=True).reshape(()) * 2, x[:1, 0].reshape(())


def test_arrays_of_rank_zero_are_arrays():
    x = random(4, 3)
    compiled = compare(lambda x: rank_zero(x)[:4], (x,), (random(1, 2),))
    for got, want in zip(compiled(x), rank_zero(x), strict=False):
        assert isinstance(got, np.ndarray) == isinstance(want, np.ndarray)
    with pytest.raises(Untraceable, match="view of an argument"):
        Compiled(lambda x: rank_zero(x)[4], x)
