"""Diagonals, repetitions, borders, rolls, stacks, copies and the operators that others define, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc
from tests.compiler.tracing import compare

RNG = np.random.default_rng(3)


def floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


MATRIX = [(floats(4, 4),), (floats(1, 1),), (floats(7, 7),), (floats(0, 0),)]
ANY = [(floats(3, 5),), (floats(1, 4),), (floats(6, 1),), (floats(0, 4),)]
VECTOR = [(floats(5),), (floats(1),), (floats(0),)]
PAIR = [(floats(3, 4), floats(4, 5)), (floats(1, 2), floats(2, 1)), (floats(2, 0), floats(0, 3))]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        pytest.param(lambda x: np.diag(x) * 2, MATRIX, id="diagonal"),
        pytest.param(lambda x: np.diag(x, 1) + 1, [(floats(4, 5),), (floats(2, 9),)], id="diagonal above"),
        pytest.param(lambda x: np.diagonal(x, -1) + 1, [(floats(5, 4),), (floats(9, 2),)], id="diagonal below"),
        pytest.param(lambda x: np.diag(x + 1), VECTOR, id="diag"),
        pytest.param(lambda x: np.diag(x, -2) + 1, VECTOR, id="diag below"),
        pytest.param(lambda x: x + np.eye(x.shape[0], dtype=np.float32), MATRIX, id="eye"),
        pytest.param(lambda x: x * np.tri(x.shape[0], dtype=np.float32), MATRIX, id="tri"),
        pytest.param(lambda x: np.trace(x) + 1, MATRIX[:3], id="trace"),
        pytest.param(lambda x: np.trace(x + 1), [(np.arange(9).reshape(3, 3),)], id="trace of ints"),
        pytest.param(lambda x: np.tile(x, 3) * 2, VECTOR, id="tile"),
        pytest.param(lambda x: np.tile(x, (2, 1, 3)) + 1, ANY, id="tile more axes"),
        pytest.param(lambda x: np.repeat(x, 3), ANY, id="repeat flat"),
        pytest.param(lambda x: np.repeat(x, 2, axis=0) * 2, ANY, id="repeat rows"),
        pytest.param(lambda x: np.repeat(x, 2, axis=-1), ANY, id="repeat columns"),
        pytest.param(lambda x: np.roll(x, 2), VECTOR, id="roll"),
        pytest.param(lambda x: np.roll(x, -1, axis=1), ANY, id="roll back"),
        pytest.param(lambda x: np.roll(x, 7, axis=0) - x, ANY, id="roll over"),
        pytest.param(lambda x: np.pad(x, 2), ANY, id="pad"),
        pytest.param(lambda x: np.pad(x, ((1, 0), (0, 3)), constant_values=-1.5), ANY, id="pad sides"),
        pytest.param(lambda x: np.vstack([x[0], x]), [a for a in ANY if a[0].shape[0]], id="vstack"),
        pytest.param(lambda x: np.hstack([x, x * 2]), ANY, id="hstack"),
        pytest.param(lambda x: np.column_stack([x[:, 0], x]), ANY, id="column_stack"),
        pytest.param(lambda x: np.flipud(x) + np.fliplr(x), ANY, id="flips"),
        pytest.param(lambda x: x.copy(), ANY, id="copy"),
        pytest.param(lambda x: np.array(x, dtype=np.float64) + 1, ANY, id="array"),
        pytest.param(lambda x: np.outer(x, x + 1), VECTOR, id="outer"),
        pytest.param(lambda x: np.inner(x, x), [(floats(5),), (floats(1),)], id="inner"),
        pytest.param(lambda x, y: np.inner(x, y.T.copy()), PAIR, id="inner matrices"),
        pytest.param(lambda x: np.vdot(x, x), ANY, id="vdot"),
        pytest.param(lambda x, y: np.tensordot(x, y, 1) * 2, PAIR, id="tensordot"),
        pytest.param(
            lambda x, y: np.tensordot(x, y, axes=([0], [1])) * 2, [(floats(3, 4), floats(5, 3))], id="tensordot axes"
        ),
        pytest.param(lambda x: np.linalg.norm(x + 1), ANY, id="norm"),
        pytest.param(
            lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True), [(floats(3, 5),), (floats(6, 1),)], id="norm rows"
        ),
        pytest.param(lambda x: np.linalg.norm(x, ord=1, axis=1), [(floats(3, 5),)], id="norm 1"),
        pytest.param(lambda x: np.linalg.norm(x, ord=np.inf, axis=1), [(floats(3, 5),)], id="norm inf"),
        pytest.param(lambda x: np.ptp(x, axis=0), [(floats(3, 5),), (floats(1, 2),)], id="ptp"),
        pytest.param(lambda x: np.arange(x.shape[0], dtype=np.float32) / 3, VECTOR, id="arange of floats"),
        pytest.param(
            lambda x: x / np.arange(1, x.shape[0] + 1, dtype=np.float32), VECTOR, id="arange of floats from 1"
        ),
        pytest.param(lambda x: np.arange(7, -9, -3, dtype=np.float64) + x[0], VECTOR[:1], id="arange of floats down"),
        pytest.param(lambda x: x * np.linspace(-1, 2.5, x.shape[0], dtype=np.float32), VECTOR[:1], id="linspace"),
        pytest.param(lambda x: x[0] * np.linspace(0, 1, 7)[:, None], [(floats(2, 3),)], id="linspace of a known size"),
        pytest.param(lambda x: x * np.linspace(0, x[0], 5, endpoint=False), VECTOR[:1], id="linspace without its end"),
        pytest.param(
            lambda x: tc.ops.logsumexp(x, axis=1), [(floats(3, 5),), (np.full((2, 3), -np.inf, "f4"),)], id="logsumexp"
        ),
        pytest.param(lambda x: tc.ops.masked_fill(x, x > 0, 2.0), ANY, id="masked_fill"),
    ],
)
def test_as_in_numpy(function, arguments):
    compare(function, *arguments)


def test_a_copy_is_an_array_of_its_own():
    def stepped(x):
        y = x.copy()
        y[1:] += x[:-1]
        return y

    compare(stepped, *VECTOR)
