"""Masks, nonzero and sizes that only running decides: against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc
from tests.compiler.tracing import Compiled, compare
from tiercel.compiler.abstract import Untraceable
from tiercel.compiler.elementwise import NotLowered
from tiercel.compiler.lower import lower_region
from tiercel.loops import to_text

RNG = np.random.default_rng(9)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


VECTORS = [(floats(9),), (floats(1),), (np.ones(70, np.float32),), (-np.ones(33, np.float32),), (floats(5000),)]
MATRICES = [(floats(6, 5),), (floats(1, 70),), (np.zeros((4, 3), np.float32),)]


def experts(x, router, up):
    chosen = (x @ router).argmax(axis=1)
    out = np.zeros_like(x)
    for expert in range(3):
        tokens = np.nonzero(chosen == expert)[0]
        out[tokens] = np.maximum(x[tokens] @ up[expert], 0) + 1
    return out


def clipped_rows(x):
    big = x.sum(axis=1) > 0
    y = x * 1
    y[big] = y[big] / 2
    return y


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        pytest.param(lambda x: x[x > 0].sum(), VECTORS, id="sum"),
        pytest.param(lambda x: x[x > 0].sum() * x[x <= 0].size, VECTORS, id="sizes"),
        pytest.param(lambda x: np.exp(x[x > 0] * 2).sum(), VECTORS, id="elementwise"),
        pytest.param(lambda x: x[x > 0].sum(), MATRICES, id="of a matrix"),
        pytest.param(lambda x: x[x[:, 0] > 0].sum(axis=0), MATRICES, id="rows"),
        pytest.param(lambda x: x[:, x[0] > 0].sum(axis=1), MATRICES, id="columns"),
        pytest.param(lambda x: np.flatnonzero(x > 0).sum(), VECTORS, id="flatnonzero"),
        pytest.param(lambda x: np.nonzero(x > 0)[1].sum(), MATRICES, id="nonzero"),
        pytest.param(lambda x: np.zeros(7, np.float32) + (x[x > 0] * 0).sum(), VECTORS, id="an array as result"),
        pytest.param(clipped_rows, MATRICES, id="rows written"),
        pytest.param(
            experts, [(floats(17, 4), floats(4, 3), floats(3, 4, 4)), (floats(1, 4), floats(4, 3), floats(3, 4, 4))],
            id="experts",
        ),
    ],
)  # fmt: skip
def test_as_numpy(function, arguments):
    compare(function, *arguments)


def test_softmax_over_what_is_left():
    def attend(x):
        scores = x[x > -1]
        e = np.exp(scores - scores.max())
        return (e / e.sum() * scores).sum()

    compare(attend, *VECTORS[:2])


def test_room_is_for_all_elements():
    text = to_text(lower_region(Compiled(lambda x: np.exp(x[x > 0]).sum(), floats(9)).region).function)
    assert "# at most x_0" in text


def test_a_result_of_such_a_size_is_refused():
    with pytest.raises((NotLowered, Untraceable), match="depends on data"):
        Compiled(lambda x: x[x > 0] * 2, floats(9))


def test_validated_and_run():
    @tc.jit
    def total(x):
        return x[x > 0.5].sum() + np.nonzero(x < 0)[0].sum()

    for n in (5, 8, 31):
        total.warmup(floats(n))
    assert total.stats()["compiles"] == 1
    for n in (0, 1, 64, 1000):
        x = floats(n)
        np.testing.assert_allclose(total(x), total.__wrapped__(x), rtol=1e-5)
