"""Recurrent networks: an LSTM cell for many inputs at once, LSTM and GRU over time as a Python loop, also ragged.

In: x (batch, length, 128), h (and c) (batch, 256), float32; ragged: lengths (batch,) besides, x being padded with
zeros. Out: all states (batch, length, 256) (zero where a sequence has ended) and the last ones. Gates are in torch's
order, weights are (in, gates * hidden).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tiercel as tc
from tiercel.tools.suite.case import Array, Call, Case, Shape, Weights, frozen, next_power, padded

__all__ = ["GRU", "LSTM", "LSTMCell", "RaggedGRU", "RaggedLSTM"]

INPUT = 128
HIDDEN = 256


def sigmoid(x: Array) -> Array:
    """As NumPy has none."""
    out: Array = 1 / (1 + np.exp(-x))
    return out


def lstm_cell(x: Array, h: Array, c: Array, w: Array, u: Array, b: Array) -> Any:
    """One step for each of `length` inputs, all from the same state. Returns h and c, (batch, length, hidden)."""
    batch, length, features = x.shape
    from_input = (x.reshape(batch * length, features) @ w).reshape(batch, length, -1)
    i, f, g, o = np.split(from_input + (h @ u + b)[:, None], 4, axis=2)
    c = sigmoid(f) * c[:, None] + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def lstm(x: Array, h: Array, c: Array, w: Array, u: Array, b: Array) -> Any:
    """Over time. Returns all h, and the last h and c."""
    batch, length, features = x.shape
    from_input = (x.reshape(batch * length, features) @ w + b).reshape(batch, length, -1)
    states = []
    for t in range(length):
        i, f, g, o = np.split(from_input[:, t] + h @ u, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        states.append(h)
    return np.stack(states, axis=1), h, c


def ragged_lstm(x: Array, h: Array, c: Array, lengths: Array, w: Array, u: Array, b: Array) -> Any:
    """Over time; a sequence keeps its state once it has ended."""
    batch, length, features = x.shape
    from_input = (x.reshape(batch * length, features) @ w + b).reshape(batch, length, -1)
    states = []
    for t in range(length):
        alive = (t < lengths)[:, None]
        i, f, g, o = np.split(from_input[:, t] + h @ u, 4, axis=1)
        c = np.where(alive, sigmoid(f) * c + sigmoid(i) * np.tanh(g), c)
        h = np.where(alive, sigmoid(o) * np.tanh(c), h)
        states.append(h * alive)
    return np.stack(states, axis=1), h, c


def gru(x: Array, h: Array, w: Array, u: Array, b: Array, d: Array) -> Any:
    """Over time. Returns all h, and the last."""
    batch, length, features = x.shape
    from_input = (x.reshape(batch * length, features) @ w + b).reshape(batch, length, -1)
    states = []
    for t in range(length):
        r, z, n = np.split(from_input[:, t], 3, axis=1)
        r_h, z_h, n_h = np.split(h @ u + d, 3, axis=1)
        z = sigmoid(z + z_h)
        n = np.tanh(n + sigmoid(r + r_h) * n_h)
        h = (1 - z) * n + z * h
        states.append(h)
    return np.stack(states, axis=1), h


def ragged_gru(x: Array, h: Array, lengths: Array, w: Array, u: Array, b: Array, d: Array) -> Any:
    """Over time; a sequence keeps its state once it has ended."""
    batch, length, features = x.shape
    from_input = (x.reshape(batch * length, features) @ w + b).reshape(batch, length, -1)
    states = []
    for t in range(length):
        alive = (t < lengths)[:, None]
        r, z, n = np.split(from_input[:, t], 3, axis=1)
        r_h, z_h, n_h = np.split(h @ u + d, 3, axis=1)
        z = sigmoid(z + z_h)
        n = np.tanh(n + sigmoid(r + r_h) * n_h)
        h = np.where(alive, (1 - z) * n + z * h, h)
        states.append(h * alive)
    return np.stack(states, axis=1), h


class Recurrent(Case):
    """What the cases of this module share: NumPy code, its name in the other models, and how many states there are."""

    labels = ("batch", "length")
    rtol = 1e-4
    gates = 4
    states = 2
    ragged = False
    plain: Any = staticmethod(lstm)
    calls = (120, 300)

    def shapes(self, quick: bool) -> list[Shape]:
        if quick:
            return [(8, 5), (16, 50), (32, 120)]
        return [(8, 5), (32, 10), (16, 50), (8, 200), (32, 100), (32, 200)]

    def draw(self, rng: np.random.Generator, quick: bool) -> Shape:
        return (int(rng.integers(8, 33)), int(rng.integers(5, 101 if quick else 201)))

    def weights(self, rng: np.random.Generator) -> Weights:
        def uniform(*shape: int) -> Array:
            return rng.uniform(-0.0625, 0.0625, shape).astype(np.float32)

        width = self.gates * HIDDEN
        made = {"w": uniform(INPUT, width), "u": uniform(HIDDEN, width), "b": uniform(width)}
        return made if self.gates == 4 else {**made, "d": uniform(width)}

    def inputs(self, rng: np.random.Generator, shape: Shape) -> tuple[Any, ...]:
        batch, length = shape
        x = rng.standard_normal((batch, length, INPUT), dtype=np.float32)
        state = tuple(rng.standard_normal((batch, HIDDEN), dtype=np.float32) for _ in range(self.states))
        if not self.ragged:
            return (x, *state)
        lengths = rng.integers(1, length + 1, batch)
        lengths[rng.integers(batch)] = length
        x *= (np.arange(length) < lengths[:, None])[:, :, None]
        return (x, *state, lengths)

    def numpy(self, weights: Weights) -> Call:
        plain, fixed = self.plain, tuple(weights.values())
        return lambda *inputs: plain(*inputs, *fixed)

    def tiercel(self, weights: Weights) -> Call:
        jitted, fixed = tc.jit(self.plain), tuple(frozen(weights).values())

        def run(*inputs: Any) -> Any:
            return jitted(*inputs, *fixed)

        run.jitted = (jitted,)  # type: ignore[attr-defined]
        return run

    @property
    def onnx_inputs(self) -> Any:  # type: ignore[override]
        names = [("h", {0: "batch"}), ("c", {0: "batch"})][: self.states]
        ragged = [("lengths", {0: "batch"})] if self.ragged else []
        return (("x", {0: "batch", 1: "length"}), *names, *ragged)

    def torch(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import torch_recurrent

        return getattr(torch_recurrent, type(self).__name__)(weights)

    def torch_compile(self, weights: Weights) -> Call:
        """The loop over time in Python: the layer of the eager model would run the same kernels as there."""
        import torch

        from tiercel.tools.suite.models import torch_recurrent

        loop = getattr(torch_recurrent, f"{type(self).__name__}Loop")(weights)
        compiled: Call = torch.compile(loop, dynamic=True)
        return compiled

    def jax(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import jax_recurrent

        return jax_recurrent.held(type(self).__name__, weights)

    def jax_padded(self, weights: Weights) -> Call:
        """Batch and length in powers of two, the lengths as for ragged input."""
        from tiercel.tools.suite.models import jax_recurrent

        run = jax_recurrent.held("RaggedLSTM" if self.gates == 4 else "RaggedGRU", weights)
        ragged = self.ragged

        def cut(x: Array, *rest: Array) -> Any:
            batch, length, _ = x.shape
            wide, far = next_power(batch), next_power(length)
            *state, lengths = rest if ragged else (*rest, np.full(batch, length))
            made = run(padded(x, wide, far), *(padded(s, wide) for s in state), padded(lengths, wide))
            states, *last = (np.asarray(r) for r in made)
            return states[:batch, :length], *(s[:batch] for s in last)

        return cut

    def numba(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import numba_models, numba_recurrent

        numba_models.need_blas()
        function = numba_recurrent.lstm if self.gates == 4 else numba_recurrent.gru
        fixed, ragged = tuple(weights.values()), self.ragged

        def run(x: Array, *rest: Array) -> Any:
            *state, lengths = rest if ragged else (*rest, np.full(len(x), x.shape[1]))
            return function(x, *state, lengths, *fixed)

        return run


class LSTM(Recurrent):
    """Over time."""

    name = "lstm"
    title = "LSTM over time as a Python loop, 128 to 256"


class RaggedLSTM(Recurrent):
    """Over time, lengths differ."""

    name = "lstm-ragged"
    title = "LSTM over time, sequences of different lengths (padded arrays and lengths)"
    ragged = True
    plain = staticmethod(ragged_lstm)


class GRU(Recurrent):
    """Over time."""

    name = "gru"
    title = "GRU over time as a Python loop, 128 to 256"
    gates = 3
    states = 1
    plain = staticmethod(gru)


class RaggedGRU(Recurrent):
    """Over time, lengths differ."""

    name = "gru-ragged"
    title = "GRU over time, sequences of different lengths (padded arrays and lengths)"
    gates = 3
    states = 1
    ragged = True
    plain = staticmethod(ragged_gru)


class LSTMCell(Recurrent):
    """One step for many inputs.

    Args:
        name, title: of the case.
        lengths: those that are timed.
        drawn: the stream draws lengths from the first to the second number, or one of the two.
        either: one of the two.
    """

    plain = staticmethod(lstm_cell)

    def __init__(self, name: str, title: str, lengths: tuple[int, ...], drawn: tuple[int, int], either: bool) -> None:
        self.name = name
        self.title = title
        self.lengths = lengths
        self.drawn = drawn
        self.either = either
        self.calls = (100, 250) if either else (400, 1000)

    def shapes(self, quick: bool) -> list[Shape]:
        return [(32, n) for n in self.lengths]

    def draw(self, rng: np.random.Generator, quick: bool) -> Shape:
        low, high = self.drawn
        return (32, int(rng.choice((low, high)) if self.either else rng.integers(low, high + 1)))

    def torch_compile(self, weights: Weights) -> Call:
        return Case.torch_compile(self, weights)

    def jax_padded(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import jax_recurrent

        run = jax_recurrent.held("LSTMCell", weights)

        def cut(x: Array, h: Array, c: Array) -> Any:
            batch, length, _ = x.shape
            wide, far = next_power(batch), next_power(length)
            made = run(padded(x, wide, far), padded(h, wide), padded(c, wide))
            return tuple(np.asarray(r)[:batch, :length] for r in made)

        return cut

    def numba(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import numba_models, numba_recurrent

        numba_models.need_blas()
        fixed = tuple(weights.values())
        return lambda x, h, c: numba_recurrent.lstm_cell(x, h, c, *fixed)
