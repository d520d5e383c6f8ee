"""Each ready cell against NumPy written out, on Tensors and on plain arrays, with sizes that change."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tiercel.dtypes as td
from tiercel import nn
from tiercel.values import Parameter, Tensor

F64 = {"dtype": td.float64}


def raw(parameter):
    return np.asarray(parameter)


def both(cell, want, *args):
    """The cell gives `want` on arrays and on Tensors. A parameter among the operands makes every result a Tensor."""
    plain = cell(*args)
    assert type(plain) is (Tensor if list(cell.parameters()) else np.ndarray)
    np.testing.assert_allclose(plain, want, rtol=1e-9, atol=1e-12)
    tensors = cell(*(Tensor(a) for a in args))
    assert type(tensors) is Tensor
    np.testing.assert_array_equal(tensors.numpy(), np.asarray(plain))


@pytest.mark.parametrize("shape", [(5,), (2, 5), (3, 0, 5), (1, 2, 3, 5)])
def test_dense(shape, rng):
    x = rng.standard_normal(shape)
    cell = nn.Dense(5, 4, rng=1, **F64)
    both(cell, x @ raw(cell.weight).T + raw(cell.bias), x)
    cell = nn.Linear(5, 4, bias=False, rng=1, **F64)
    assert cell.bias is None
    both(cell, x @ raw(cell.weight).T, x)


def test_first_values_are_reproducible_and_bounded():
    a, b, c = nn.Dense(16, 8, rng=3), nn.Dense(16, 8, rng=3), nn.Dense(16, 8, rng=np.random.default_rng(4))
    np.testing.assert_array_equal(raw(a.weight), raw(b.weight))
    assert (raw(a.weight) != raw(c.weight)).any()
    assert np.abs(raw(a.weight)).max() <= 0.25
    assert a.weight.dtype is td.float32
    assert type(a.weight) is Parameter


def test_embedding(rng):
    cell = nn.Embedding(7, 3, rng=1, **F64)
    for shape in ((), (4,), (2, 0), (2, 3)):
        indices = rng.integers(0, 7, shape)
        got = cell(indices)
        np.testing.assert_array_equal(got, raw(cell.weight)[indices])
        assert type(cell(Tensor(indices))) is Tensor
    with pytest.raises(IndexError):
        cell(np.array([7]))


@pytest.mark.parametrize(("size", "axes"), [(4, (-1,)), ((3, 4), (-2, -1))])
def test_layer_norm(size, axes, rng):
    x = rng.standard_normal((2, 3, 4)) * 3 + 1
    cell = nn.LayerNorm(size, eps=1e-3, **F64)
    cell.weight[...] = rng.standard_normal(cell.weight.shape)
    cell.bias[...] = rng.standard_normal(cell.weight.shape)
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    both(cell, (x - mean) / np.sqrt(var + 1e-3) * raw(cell.weight) + raw(cell.bias), x)
    without = nn.LayerNorm(size, bias=False, **F64)
    both(without, (x - mean) / np.sqrt(var + 1e-5), x)


def test_rms_norm(rng):
    x = rng.standard_normal((2, 3, 4))
    cell = nn.RMSNorm(4, eps=1e-3, **F64)
    cell.weight[...] = rng.standard_normal(4)
    both(cell, x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * raw(cell.weight), x)


def conv_by_loops(x, w, b, stride, padding, dilation, groups):
    """The definition, one output element at a time; any number of spatial dimensions."""
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [(p, p) for p in padding])
    kernel = w.shape[2:]
    sizes = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)]
    out = np.zeros((x.shape[0], w.shape[0], *sizes))
    per_group = w.shape[0] // groups
    for batch, channel, *place in np.ndindex(*out.shape):
        group = channel // per_group
        window = tuple(
            slice(o * s, o * s + d * (k - 1) + 1, d) for o, s, d, k in zip(place, stride, dilation, kernel, strict=True)
        )
        inputs = x[(batch, slice(group * w.shape[1], (group + 1) * w.shape[1]), *window)]
        out[(batch, channel, *place)] = (inputs * w[channel]).sum()
    return out if b is None else out + b.reshape(1, -1, *[1] * rank)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups", "bias"),
    [(1, 0, 1, 1, True), (2, 1, 1, 2, False), ((1, 2), (2, 0), (2, 1), 1, True)],
)
def test_conv2d(stride, padding, dilation, groups, bias, rng):
    cell = nn.Conv2d(4, 6, (3, 2), stride, padding, dilation, groups, bias, rng=1, **F64)
    assert cell.weight.shape == (6, 4 // groups, 3, 2)
    for shape in ((2, 4, 7, 6), (1, 4, 5, 9)):
        x = rng.standard_normal(shape)
        pair = [v if isinstance(v, tuple) else (v, v) for v in (stride, padding, dilation)]
        both(cell, conv_by_loops(x, raw(cell.weight), raw(cell.bias) if bias else None, *pair, groups), x)


def test_conv1d(rng):
    cell = nn.Conv1d(2, 3, 3, stride=2, padding=1, rng=1, **F64)
    x = rng.standard_normal((2, 2, 8))
    both(cell, conv_by_loops(x, raw(cell.weight), raw(cell.bias), (2,), (1,), (1,), 1), x)


def test_conv_refuses_sizes_that_do_not_fit():
    with pytest.raises(ValueError, match="groups must divide"):
        nn.Conv2d(4, 6, 3, groups=4)
    with pytest.raises(ValueError, match="kernel_size has 3 sizes, expected 2"):
        nn.Conv2d(4, 6, (3, 3, 3))


def test_dropout(rng):
    x = rng.standard_normal((50, 40)) + 10
    cell = nn.Dropout(0.25)
    got = cell(x, 3)
    kept = got != 0
    np.testing.assert_allclose(got[kept], x[kept] / 0.75, rtol=1e-6)
    assert 0.7 < kept.mean() < 0.8
    np.testing.assert_array_equal(cell(x, 3), got)
    assert (cell(x, 4) != got).any()
    assert type(cell(Tensor(x), 3)) is Tensor
    with pytest.raises(ValueError, match="needs a key while training"):
        cell(x)
    assert cell.eval()(x) is x
    assert nn.Dropout(0)(x) is x
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.Dropout(1.5)


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


ACTIVATIONS = [
    (nn.ReLU(), lambda v: np.where(v > 0, v, 0)),
    (nn.LeakyReLU(0.1), lambda v: np.where(v > 0, v, 0.1 * v)),
    (nn.GELU(), np.vectorize(lambda s: s * 0.5 * math.erfc(-s / math.sqrt(2)), otypes=[float])),
    (nn.GELU("tanh"), lambda v: 0.5 * v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))),
    (nn.SiLU(), lambda v: v * sigmoid(v)),
    (nn.Sigmoid(), sigmoid),
    (nn.Tanh(), np.tanh),
    (nn.Softmax(), lambda v: np.exp(v) / np.exp(v).sum(-1, keepdims=True)),
    (nn.Softmax(0), lambda v: np.exp(v) / np.exp(v).sum(0, keepdims=True)),
]


@pytest.mark.parametrize(("cell", "reference"), ACTIVATIONS, ids=lambda x: repr(x)[:12])
def test_activations(cell, reference, rng):
    for shape in ((4,), (2, 3)):
        x = rng.standard_normal(shape) * 3
        both(cell, reference(x), x)


# ---- recurrent -------------------------------------------------------------------------------------------------------


def lstm_step(cell, x, h, c):
    """One step, gate by gate."""
    n = cell.hidden_size
    z = x @ raw(cell.weight_ih).T + h @ raw(cell.weight_hh).T
    if cell.bias_ih is not None:
        z = z + raw(cell.bias_ih) + raw(cell.bias_hh)
    i, f, g, o = (z[:, k * n : (k + 1) * n] for k in range(4))
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


@pytest.mark.parametrize("bias", [True, False])
def test_lstm_cell(bias, rng):
    cell = nn.LSTMCell(3, 5, bias, rng=1, **F64)
    for batch in (1, 4, 0):
        x, h, c = (rng.standard_normal((batch, n)) for n in (3, 5, 5))
        got = cell(x, h, c)
        want = lstm_step(cell, x, h, c)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        assert all(type(a) is Tensor for a in cell(Tensor(x), Tensor(h), Tensor(c)))


@pytest.mark.parametrize("bias", [True, False])
def test_lstm(bias, rng):
    cell = nn.LSTM(3, 5, bias, rng=1, **F64)
    for batch, steps in ((2, 7), (3, 1), (1, 20), (0, 2)):
        x = rng.standard_normal((batch, steps, 3))
        h, c = np.zeros((batch, 5)), np.zeros((batch, 5))
        rows = []
        got_default = cell(x)
        h0, c0 = rng.standard_normal((batch, 5)), rng.standard_normal((batch, 5))
        for start, got in (((h, c), got_default), ((h0, c0), cell(x, h0, c0))):
            rows = []
            hh, cc = start
            for t in range(steps):
                hh, cc = lstm_step(cell, x[:, t], hh, cc)
                rows.append(hh)
            for a, b in zip(got, (np.stack(rows, axis=1), hh, cc), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_lstm_without_steps_returns_its_state():
    cell = nn.LSTM(3, 5, rng=1)
    out, h, c = cell(Tensor(np.zeros((2, 0, 3), np.float32)))
    assert out.shape == (2, 0, 5)
    assert h.shape == c.shape == (2, 5)
    assert all(type(v) is Tensor for v in (out, h, c))
    assert out.dtype is td.float32


def test_repr_tells_sizes():
    for cell in (
        nn.LSTM(3, 5),
        nn.Conv2d(2, 4, 3),
        nn.LayerNorm(3),
        nn.Embedding(4, 2),
        nn.Dropout(0.1),
        nn.RMSNorm(3),
    ):
        assert any(char.isdigit() for char in repr(cell).split("\n")[0])
