"""Recurrent networks in JAX, over time by `lax.scan`.

In: weights of the case. Out: a jitted function by the name of the case's class.
"""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp

from tiercel.tools.suite.case import Call, Weights
from tiercel.tools.suite.models.jax_models import with_weights

__all__ = ["held"]


def _lstm_cell(x: Any, h: Any, c: Any, w: Any, u: Any, b: Any) -> Any:
    i, f, g, o = jnp.split(x @ w + (h @ u + b)[:, None], 4, -1)
    c = jax.nn.sigmoid(f) * c[:, None] + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _lstm(x: Any, h: Any, c: Any, w: Any, u: Any, b: Any) -> Any:
    def step(state: Any, from_input: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(from_input + h @ u, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    (h, c), states = jax.lax.scan(step, (h, c), (x @ w + b).swapaxes(0, 1))
    return states.swapaxes(0, 1), h, c


def _ragged_lstm(x: Any, h: Any, c: Any, lengths: Any, w: Any, u: Any, b: Any) -> Any:
    def step(state: Any, now: Any) -> Any:
        h, c = state
        from_input, t = now
        alive = (t < lengths)[:, None]
        i, f, g, o = jnp.split(from_input + h @ u, 4, -1)
        c = jnp.where(alive, jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g), c)
        h = jnp.where(alive, jax.nn.sigmoid(o) * jnp.tanh(c), h)
        return (h, c), h * alive

    times = jnp.arange(x.shape[1])
    (h, c), states = jax.lax.scan(step, (h, c), ((x @ w + b).swapaxes(0, 1), times))
    return states.swapaxes(0, 1), h, c


def _gru_step(h: Any, from_input: Any, u: Any, d: Any) -> Any:
    r, z, n = jnp.split(from_input, 3, -1)
    r_h, z_h, n_h = jnp.split(h @ u + d, 3, -1)
    z = jax.nn.sigmoid(z + z_h)
    return (1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + r_h) * n_h) + z * h


def _gru(x: Any, h: Any, w: Any, u: Any, b: Any, d: Any) -> Any:
    def step(h: Any, from_input: Any) -> Any:
        h = _gru_step(h, from_input, u, d)
        return h, h

    h, states = jax.lax.scan(step, h, (x @ w + b).swapaxes(0, 1))
    return states.swapaxes(0, 1), h


def _ragged_gru(x: Any, h: Any, lengths: Any, w: Any, u: Any, b: Any, d: Any) -> Any:
    def step(h: Any, now: Any) -> Any:
        from_input, t = now
        alive = (t < lengths)[:, None]
        h = jnp.where(alive, _gru_step(h, from_input, u, d), h)
        return h, h * alive

    h, states = jax.lax.scan(step, h, ((x @ w + b).swapaxes(0, 1), jnp.arange(x.shape[1])))
    return states.swapaxes(0, 1), h


_FUNCTIONS: Final[dict[str, Call]] = {
    "LSTM": _lstm,
    "RaggedLSTM": _ragged_lstm,
    "GRU": _gru,
    "RaggedGRU": _ragged_gru,
    "LSTMCell": _lstm_cell,
}


def held(name: str, weights: Weights) -> Call:
    """Return a function of the inputs alone."""
    return with_weights(_FUNCTIONS[name], *weights.values())
