"""Recurrent cells: an LSTM step, and an LSTM layer that is a plain loop over time.

In: sizes. Out: cells with torch's parameters (gates in the order i, f, g, o; two biases). Batch and length are free in
every call.
"""

from __future__ import annotations

from typing import Any

from tiercel import ops
from tiercel.dtypes import DTypeLike, float32
from tiercel.nn.cell import Cell
from tiercel.nn.initial import Rng, as_generator, uniform

__all__ = ["LSTM", "LSTMCell"]


class _LSTMWeights(Cell):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, *, dtype: DTypeLike = float32, rng: Rng = None
    ) -> None:
        super().__init__()
        rng = as_generator(rng)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.weight_ih = uniform(rng, (4 * hidden_size, input_size), hidden_size, dtype)
        self.weight_hh = uniform(rng, (4 * hidden_size, hidden_size), hidden_size, dtype)
        self.bias_ih = uniform(rng, (4 * hidden_size,), hidden_size, dtype) if bias else None
        self.bias_hh = uniform(rng, (4 * hidden_size,), hidden_size, dtype) if bias else None

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class LSTMCell(_LSTMWeights):
    """One LSTM step.

    Args:
        input_size, hidden_size: sizes of the last dimensions.
        bias: whether there are biases.
        dtype, rng: as for `Dense`.
    """

    def construct(self, x: Any, h: Any, c: Any) -> Any:
        """x: (batch, input); h, c: (batch, hidden). Returns the new h and c."""
        gates = ops.linear(x, self.weight_ih, self.bias_ih) + ops.linear(h, self.weight_hh, self.bias_hh)
        i, f, g, o = ops.split(gates, 4, axis=1)
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
        h = ops.sigmoid(o) * ops.tanh(c)
        return h, c


class LSTM(_LSTMWeights):
    """An LSTM layer over time, batch first.

    Args:
        input_size, hidden_size, bias, dtype, rng: as for `LSTMCell`.
    """

    def construct(self, x: Any, h: Any = None, c: Any = None) -> Any:
        """x: (batch, time, input); h, c: (batch, hidden), zeros by default.

        Returns the hidden states (batch, time, hidden) and the last h and c.
        """
        batch, steps, _ = x.shape
        if h is None:
            h = ops.zeros_like(x, shape=(batch, self.hidden_size))
        if c is None:
            c = ops.zeros_like(x, shape=(batch, self.hidden_size))
        # The product with the input does not depend on the state: once for all steps.
        from_input = ops.linear(x, self.weight_ih, self.bias_ih)
        states = []
        for t in range(steps):
            gates = from_input[:, t] + ops.linear(h, self.weight_hh, self.bias_hh)
            i, f, g, o = ops.split(gates, 4, axis=1)
            c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
            h = ops.sigmoid(o) * ops.tanh(c)
            states.append(h)
        if not states:
            return ops.zeros_like(x, shape=(batch, 0, self.hidden_size)), h, c
        return ops.stack(states, axis=1), h, c
