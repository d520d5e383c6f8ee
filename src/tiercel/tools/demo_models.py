"""The models of `tiercel demo`: an LSTM in three forms, and the same in float64 NumPy to check them.

Written as a user would write them, so what the demo shows is what users get: a layer and a cell in the class style, and
the layer as a plain function of arrays. Batch and length are free in every call; nothing here is a hint.

Weights are of an LSTM with gates in the order i, f, g, o.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import tiercel as tc
from tiercel import Tensor, nn, ops

__all__ = ["HIDDEN_SIZE", "INPUT_SIZE", "Definitions", "Model", "Weights", "define", "make_models", "make_weights"]

Array = npt.NDArray[Any]
Step = tuple[Array, Array, Array]

INPUT_SIZE = 128
HIDDEN_SIZE = 256


class Weights(NamedTuple):
    """Plain arrays: [4 * hidden, input], [4 * hidden, hidden], and two of [4 * hidden]."""

    ih: Array
    hh: Array
    bias_ih: Array
    bias_hh: Array


class Model(NamedTuple):
    """One of the demo's models.

    Attributes:
        name, form: what it is, and how it is written.
        jitted: the jitted function, for `explain`, `stats` and the program.
        call: runs it jitted on float32 arrays x [batch, seq, input], h, c [batch, hidden].
        plain: the same code without Tiercel's decorator.
        reference: the same in float64.
    """

    name: str
    form: str
    jitted: Any
    call: Callable[[Array, Array, Array], Any]
    plain: Callable[[Array, Array, Array], Any]
    reference: Callable[[Array, Array, Array], Any]


class Definitions(NamedTuple):
    """Newly decorated code that has never run: two classes of cells, and a function of arrays."""

    layer: Any
    cell: Any
    function: Any


def define() -> Definitions:
    """Return the models' code, decorated anew in each call."""

    class LSTMWeights(nn.Cell):
        """Holds the weights."""

        def __init__(self, weights: Weights) -> None:
            super().__init__()
            self.weight_ih = tc.Parameter(Tensor(weights.ih))
            self.weight_hh = tc.Parameter(Tensor(weights.hh))
            self.bias_ih = tc.Parameter(Tensor(weights.bias_ih))
            self.bias_hh = tc.Parameter(Tensor(weights.bias_hh))

    class DynamicLSTM(LSTMWeights):
        """An LSTM layer over time. Returns the hidden states and the last h and c."""

        @tc.jit
        def construct(self, x: Any, h: Any, c: Any) -> Any:
            batch_size, seq_len, input_size = x.shape
            x_flat = ops.Reshape()(x, (-1, input_size))
            from_input = ops.MatMul()(x_flat, self.weight_ih.T) + self.bias_ih + self.bias_hh
            from_input = ops.Reshape()(from_input, (batch_size, seq_len, -1))
            states = []
            for t in range(seq_len):
                gates = from_input[:, t] + ops.MatMul()(h, self.weight_hh.T)
                i, f, g, o = ops.Split(axis=1, output_num=4)(gates)
                c = ops.Sigmoid()(f) * c + ops.Sigmoid()(i) * ops.Tanh()(g)
                h = ops.Sigmoid()(o) * ops.Tanh()(c)
                states.append(h)
            return ops.stack(states, axis=1), h, c

    class DynamicLSTMCell(LSTMWeights):
        """One step for many inputs at once, all from the same previous state. Returns h and c."""

        @tc.jit
        def construct(self, x: Any, h: Any, c: Any) -> Any:
            batch_size, seq_len, input_size = x.shape
            x_flat = ops.Reshape()(x, (-1, input_size))
            from_input = ops.MatMul()(x_flat, self.weight_ih.T) + self.bias_ih
            from_input = ops.Reshape()(from_input, (batch_size, seq_len, -1))
            from_state = ops.Reshape()(ops.MatMul()(h, self.weight_hh.T) + self.bias_hh, (batch_size, 1, -1))
            i, f, g, o = ops.Split(axis=2, output_num=4)(from_input + from_state)
            c_new = ops.Sigmoid()(f) * ops.ExpandDims()(c, 1) + ops.Sigmoid()(i) * ops.Tanh()(g)
            h_new = ops.Sigmoid()(o) * ops.Tanh()(c_new)
            return h_new, c_new

    @tc.jit
    def lstm_layer(x: Array, h: Array, c: Array, w_ih: Array, w_hh: Array, bias: Array) -> Step:
        batch, length, _ = x.shape
        from_input = (x.reshape(batch * length, -1) @ w_ih.T + bias).reshape(batch, length, -1)
        states = []
        for t in range(length):
            gates = from_input[:, t] + h @ w_hh.T
            i, f, g, o = np.split(gates, 4, axis=1)
            c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
            h = np.tanh(c) / (1 + np.exp(-o))
            states.append(h)
        return np.stack(states, axis=1), h, c

    return Definitions(DynamicLSTM, DynamicLSTMCell, lstm_layer)


def make_weights(seed: int = 0) -> Weights:
    """Return float32 weights."""
    rng = np.random.default_rng(seed)
    hidden, features = HIDDEN_SIZE, INPUT_SIZE
    shapes = ((4 * hidden, features), (4 * hidden, hidden), (4 * hidden,), (4 * hidden,))
    return Weights(*((rng.standard_normal(s) / np.sqrt(hidden)).astype(np.float32) for s in shapes))


def make_models(defined: Definitions, weights: Weights) -> list[Model]:
    """Return the models with weights: the plain function first."""
    layer, cell, function = defined.layer(weights), defined.cell(weights), defined.function
    layer_construct, cell_construct = vars(defined.layer)["construct"], vars(defined.cell)["construct"]
    bias = weights.bias_ih + weights.bias_hh

    def on_arrays(of: Callable[..., Any]) -> Callable[[Array, Array, Array], Any]:
        return lambda x, h, c: of(x, h, c, weights.ih, weights.hh, bias)

    def on_tensors(of: Callable[..., Any], owner: Any) -> Callable[[Array, Array, Array], Any]:
        return lambda x, h, c: of(owner, Tensor(x), Tensor(h), Tensor(c))

    def layer_in_float64(x: Array, h: Array, c: Array) -> Any:
        return layer_reference(weights, x, h, c)

    def cell_in_float64(x: Array, h: Array, c: Array) -> Any:
        return step_reference(weights, x, h[:, None], c[:, None])

    return [
        Model(
            "LSTM layer, a plain NumPy function",
            "function of arrays",
            function,
            on_arrays(function),
            on_arrays(function.__wrapped__),
            layer_in_float64,
        ),
        Model(
            "LSTM layer, in the class style",
            "nn.Cell, tc.ops, Tensors",
            layer_construct,
            on_tensors(layer_construct, layer),
            on_tensors(layer_construct.__wrapped__, layer),
            layer_in_float64,
        ),
        Model(
            "LSTM cell, in the class style",
            "nn.Cell, tc.ops, Tensors",
            cell_construct,
            on_tensors(cell_construct, cell),
            on_tensors(cell_construct.__wrapped__, cell),
            cell_in_float64,
        ),
    ]


# ---- float64 ---------------------------------------------------------------------------------------------------------


def step_reference(weights: Weights, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    """Return h and c after one step in float64, broadcasting over leading dimensions."""
    w_ih, w_hh, b_ih, b_hh = (np.asarray(w, np.float64) for w in weights)
    i, f, g, o = np.split(x.astype(np.float64) @ w_ih.T + b_ih + h.astype(np.float64) @ w_hh.T + b_hh, 4, axis=-1)
    c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
    return np.tanh(c) / (1 + np.exp(-o)), c


def layer_reference(weights: Weights, x: Array, h: Array, c: Array) -> Step:
    """Return all hidden states, h and c after all steps, in float64."""
    h, c = h.astype(np.float64), c.astype(np.float64)
    states = []
    for t in range(x.shape[1]):
        h, c = step_reference(weights, x[:, t], h, c)
        states.append(h)
    return np.stack(states, axis=1), h, c
