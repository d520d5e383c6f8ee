"""Decoding with a growing cache: one token a step, keys and values appended, attention over all of them so far.

The sizes of cache and scores differ in every step. A prompt of random length is decoded and compared with attention
over the whole sequence at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import tiercel as tc

Array = npt.NDArray[np.float64]
Weights = tuple[Array, Array, Array, Array]


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    out: Array = powers / powers.sum(axis=-1, keepdims=True)
    return out


@tc.jit
def decode_step(x: Array, keys: Array, values: Array, weights: Weights) -> tuple[Array, Array, Array]:
    """x: (batch, width), the newest token; keys, values: (batch, steps, width). Returns the output and new caches."""
    w_q, w_k, w_v, w_o = weights
    query = x @ w_q
    keys = np.concatenate([keys, (x @ w_k)[:, None]], axis=1)
    values = np.concatenate([values, (x @ w_v)[:, None]], axis=1)
    scores = np.einsum("bd,btd->bt", query, keys) / np.sqrt(x.shape[-1])
    mixed = np.einsum("bt,btd->bd", softmax(scores), values)
    return mixed @ w_o, keys, values


def attend_at_once(x: Array, weights: Weights) -> Array:
    """The same for a whole sequence (batch, time, width), with a causal mask."""
    w_q, w_k, w_v, w_o = weights
    scores = (x @ w_q) @ (x @ w_k).swapaxes(1, 2) / np.sqrt(x.shape[-1])
    scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    out: Array = softmax(scores) @ (x @ w_v) @ w_o
    return out


def main() -> None:
    rng = np.random.default_rng(0)
    width = 24
    w_q, w_k, w_v, w_o = (rng.standard_normal((width, width)) / np.sqrt(width) for _ in range(4))
    weights = (w_q, w_k, w_v, w_o)
    for batch, time in ((1, 5), (4, 40), (2, 17)):
        x = rng.standard_normal((batch, time, width))
        keys = values = np.zeros((batch, 0, width))
        outputs = []
        for t in range(time):
            out, keys, values = decode_step(x[:, t], keys, values, weights)
            outputs.append(out)
        np.testing.assert_allclose(np.stack(outputs, axis=1), attend_at_once(x, weights), rtol=1e-9, atol=1e-9)
        print(f"batch {batch}: {time} tokens decoded, cache {keys.shape}, right")


if __name__ == "__main__":
    main()
