"""Attention and loops over time on ragged values against each sequence by itself."""

from __future__ import annotations

import numpy as np
import pytest

from tiercel import ShapeError, Tensor, nn, ragged


def parts(lengths, inner, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, *inner)).astype("float32") for n in lengths]


def attend(q, k, v, causal):
    scores = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape, bool), len(k) - len(q)), scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [None, 2])
def test_attention(causal, heads):
    inner = (8,) if heads is None else (heads, 8)
    for lengths in ([3, 0, 5, 1], [2, 9], [1] * 6):
        q, k, v = (parts(lengths, inner, seed) for seed in range(3))
        got = nn.ragged_attention(ragged(q), ragged(k), ragged(v), causal=causal)
        for out, a, b, c in zip(got, q, k, v, strict=True):
            if not len(a):
                want = c
            elif heads is None:
                want = attend(a, b, c, causal)
            else:
                want = np.stack([attend(a[:, h], b[:, h], c[:, h], causal) for h in range(heads)], axis=1)
            np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)


def test_attention_of_new_queries_over_longer_keys():
    q, k, v = parts([1, 2], (8,)), parts([4, 7], (8,), 1), parts([4, 7], (8,), 2)
    got = nn.ragged_attention(ragged(q), ragged(k), ragged([Tensor(x) for x in v]), causal=True)
    assert isinstance(got.values, Tensor)
    for out, a, b, c in zip(got, q, k, v, strict=True):
        np.testing.assert_allclose(out, attend(a, b, c, True), rtol=1e-4, atol=1e-5)


def test_attention_refuses():
    q, k = ragged(parts([1, 2], (8,))), ragged(parts([1, 2, 3], (8,)))
    with pytest.raises(ShapeError):
        nn.ragged_attention(q, k, k)
    with pytest.raises(ShapeError):
        nn.ragged_attention(q, q, ragged(parts([1, 2], (2, 8))))


def test_scan():
    def step(x, h):
        return np.tanh(x + 0.5 * h)

    x = parts([3, 0, 5, 1], (4,))
    h = np.random.default_rng(5).standard_normal((4, 4)).astype("float32")
    before = h.copy()
    out, last = nn.ragged_scan(step, ragged(x), h)
    np.testing.assert_array_equal(h, before)
    for number, one in enumerate(x):
        state = h[number]
        for t, row in enumerate(one):
            state = step(row, state)
            np.testing.assert_allclose(out[number][t], state, rtol=1e-6)
        np.testing.assert_allclose(last[number], state, rtol=1e-6)


def test_scan_of_an_lstm():
    cell = nn.LSTMCell(4, 6, rng=np.random.default_rng(0))
    x = parts([2, 4, 1], (4,))
    zero = np.zeros((3, 6), "float32")
    out, h, c = nn.ragged_scan(cell, ragged(x), zero, zero)
    for number, one in enumerate(x):
        a = b = np.zeros((1, 6), "float32")
        for t, row in enumerate(one):
            a, b = (np.asarray(s) for s in cell(row[None], a, b))
            np.testing.assert_allclose(out[number][t], a[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(h[number], a[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(c[number], b[0], rtol=1e-5, atol=1e-6)


def test_scan_refuses():
    x = ragged(parts([2, 1], (4,)))
    with pytest.raises(ShapeError):
        nn.ragged_scan(lambda a, h: h, x, np.zeros((3, 4)))
    with pytest.raises(ShapeError):
        nn.ragged_scan(lambda a, h: (h, h, h), x, np.zeros((2, 4)))
