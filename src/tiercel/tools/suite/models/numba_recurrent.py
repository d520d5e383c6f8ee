"""Recurrent networks in Numba: products through SciPy's BLAS, gates in loops.

In: x (batch, length, in), states (batch, hidden), lengths (batch,). Out: all states, and the last ones.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

__all__ = ["gru", "lstm", "lstm_cell"]

# Not parallel: next to the threads of the BLAS, a second pool takes more than it brings on few cores (measured on two:
# LSTM over time, batch 8, length 5, 50 ms with it).
_plain = numba.njit(fastmath=True)


def _sigmoid(x: Any) -> Any:
    return np.float32(1) / (np.float32(1) + math.exp(-x))


sigmoid = numba.njit(fastmath=True, inline="always")(_sigmoid)


def _cell_gates(gates: Any, from_state: Any, c: Any, h_out: Any, c_out: Any) -> None:
    batch, length, hidden = h_out.shape
    for place in range(batch * length):
        n, t = place // length, place % length
        for j in range(hidden):
            i = sigmoid(gates[place, j] + from_state[n, j])
            f = sigmoid(gates[place, hidden + j] + from_state[n, hidden + j])
            g = math.tanh(gates[place, 2 * hidden + j] + from_state[n, 2 * hidden + j])
            o = sigmoid(gates[place, 3 * hidden + j] + from_state[n, 3 * hidden + j])
            new = f * c[n, j] + i * g
            c_out[n, t, j] = new
            h_out[n, t, j] = o * math.tanh(new)


cell_gates = _plain(_cell_gates)


def _lstm_cell(x: Any, h: Any, c: Any, w: Any, u: Any, b: Any) -> Any:
    batch, length, features = x.shape
    gates = np.dot(x.reshape(batch * length, features), w)
    from_state = np.dot(h, u) + b
    h_out = np.empty((batch, length, h.shape[1]), np.float32)
    c_out = np.empty_like(h_out)
    cell_gates(gates, from_state, c, h_out, c_out)
    return h_out, c_out


lstm_cell = _plain(_lstm_cell)


def _lstm_gates(t: int, from_input: Any, gates: Any, h: Any, c: Any, lengths: Any, states: Any) -> None:
    hidden = h.shape[1]
    for n in range(h.shape[0]):
        alive = t < lengths[n]
        for j in range(hidden):
            if alive:
                i = sigmoid(from_input[n, t, j] + gates[n, j])
                f = sigmoid(from_input[n, t, hidden + j] + gates[n, hidden + j])
                g = math.tanh(from_input[n, t, 2 * hidden + j] + gates[n, 2 * hidden + j])
                o = sigmoid(from_input[n, t, 3 * hidden + j] + gates[n, 3 * hidden + j])
                c[n, j] = f * c[n, j] + i * g
                h[n, j] = o * math.tanh(c[n, j])
                states[n, t, j] = h[n, j]
            else:
                states[n, t, j] = 0


lstm_gates = _plain(_lstm_gates)


def _lstm(x: Any, h: Any, c: Any, lengths: Any, w: Any, u: Any, b: Any) -> Any:
    batch, length, features = x.shape
    from_input = (np.dot(x.reshape(batch * length, features), w) + b).reshape(batch, length, -1)
    h, c = h.copy(), c.copy()
    states = np.empty((batch, length, h.shape[1]), np.float32)
    for t in range(length):
        lstm_gates(t, from_input, np.dot(h, u), h, c, lengths, states)
    return states, h, c


lstm = _plain(_lstm)


def _gru_gates(t: int, from_input: Any, gates: Any, d: Any, h: Any, lengths: Any, states: Any) -> None:
    hidden = h.shape[1]
    for n in range(h.shape[0]):
        alive = t < lengths[n]
        for j in range(hidden):
            if alive:
                r = sigmoid(from_input[n, t, j] + gates[n, j] + d[j])
                z = sigmoid(from_input[n, t, hidden + j] + gates[n, hidden + j] + d[hidden + j])
                fed = gates[n, 2 * hidden + j] + d[2 * hidden + j]
                new = math.tanh(from_input[n, t, 2 * hidden + j] + r * fed)
                h[n, j] = (np.float32(1) - z) * new + z * h[n, j]
                states[n, t, j] = h[n, j]
            else:
                states[n, t, j] = 0


gru_gates = _plain(_gru_gates)


def _gru(x: Any, h: Any, lengths: Any, w: Any, u: Any, b: Any, d: Any) -> Any:
    batch, length, features = x.shape
    from_input = (np.dot(x.reshape(batch * length, features), w) + b).reshape(batch, length, -1)
    h = h.copy()
    states = np.empty((batch, length, h.shape[1]), np.float32)
    for t in range(length):
        gru_gates(t, from_input, np.dot(h, u), d, h, lengths, states)
    return states, h


gru = _plain(_gru)
