"""The cases in JAX.

In: weights as NumPy arrays. Out: jitted functions; weights are arguments, on the device already.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from tiercel.tools.suite.case import Call, next_power

__all__ = [
    "attention_loop",
    "branch",
    "chain",
    "early_exit",
    "encoder",
    "experts",
    "greedy",
    "layer_norm",
    "mlp",
    "pyramid",
    "recommend",
    "softmax",
    "state_space",
    "with_weights",
]


def with_weights(function: Call, *weights: Any) -> Call:
    """Return a function of the inputs alone: `function(*inputs, *weights)`, jitted, weights on the device."""
    jitted = jax.jit(function)
    held = jax.device_put(weights)
    return lambda *inputs: jitted(*inputs, *held)


softmax = jax.jit(lambda x: jax.nn.softmax(x, axis=-1))


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    """Over the last axis."""
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift


def mlp(x: Any, w_in: Any, b_in: Any, w_out: Any, b_out: Any) -> Any:
    """Two layers with GELU between them."""
    return jax.nn.gelu(x @ w_in + b_in, approximate=True) @ w_out + b_out


def _chain(x: Any) -> Any:
    for _ in range(10):
        x = jnp.maximum(x * 1.0009765625 + 0.25, x - 0.5) * 0.5
    return x


chain = jax.jit(_chain)


# ---- encoders --------------------------------------------------------------------------------------------------------


def _block(x: Any, known: Any, layer: Any) -> Any:
    s1, t1, w_qkv, b_qkv, w_o, b_o, s2, t2, w_in, b_in, w_out, b_out = layer
    batch, length, hidden = x.shape
    qkv = (layer_norm(x, s1, t1) @ w_qkv + b_qkv).reshape(batch, length, 3, hidden // 64, 64)
    q, k, v = qkv.transpose(2, 0, 3, 1, 4)
    scores = jnp.where(jnp.arange(length) < known, q @ k.swapaxes(-1, -2) * 0.125, -jnp.inf)
    mixed = (jax.nn.softmax(scores, -1) @ v).transpose(0, 2, 1, 3).reshape(batch, length, hidden)
    x = x + mixed @ w_o + b_o
    return x + mlp(layer_norm(x, s2, t2), w_in, b_in, w_out, b_out)


def _encoder(x: Any, known: Any, layers: Any) -> Any:
    for layer in layers:
        x = _block(x, known, layer)
    return x


def encoder(layers: Any) -> Call:
    """Return a function of x and the number of keys that count."""
    return with_weights(_encoder, layers)


# ---- decoding --------------------------------------------------------------------------------------------------------


@partial(jax.jit, donate_argnums=(1, 2))
def _attend(qkv: Any, keys: Any, values: Any, t: Any) -> Any:
    q, k, v = qkv
    keys = jax.lax.dynamic_update_slice(keys, k, (0, t, 0))
    values = jax.lax.dynamic_update_slice(values, v, (0, t, 0))
    scores = jnp.where(jnp.arange(keys.shape[1]) <= t, q @ keys.swapaxes(1, 2) * 0.125, -jnp.inf)
    return jax.nn.softmax(scores, -1) @ values, keys, values


def attention_loop() -> Call:
    """Return a function of (steps, 3, heads, 1, 64): buffers of a power of two, a step compiled for each such size."""

    def run(steps: Any) -> Any:
        size = next_power(len(steps))
        keys, values = (jnp.zeros((steps.shape[2], size, steps.shape[4]), jnp.float32) for _ in range(2))
        outputs = []
        for t in range(len(steps)):
            out, keys, values = _attend(steps[t], keys, values, t)
            outputs.append(out)
        return jnp.stack(outputs)

    return run


def _step(token: Any, caches: Any, t: Any, embedding: Any, layers: Any, head: Any) -> Any:
    x = embedding[token][None]
    new = []
    for layer, (keys, values) in zip(layers, caches, strict=True):
        s1, t1, w_qkv, b_qkv, w_o, b_o, s2, t2, w_in, b_in, w_out, b_out = layer
        qkv = (layer_norm(x, s1, t1) @ w_qkv + b_qkv).reshape(3, -1, 1, 64)
        keys = jax.lax.dynamic_update_slice(keys, qkv[1], (0, t, 0))
        values = jax.lax.dynamic_update_slice(values, qkv[2], (0, t, 0))
        scores = jnp.where(jnp.arange(keys.shape[1]) <= t, qkv[0] @ keys.swapaxes(1, 2) * 0.125, -jnp.inf)
        new.append((keys, values))
        x = x + (jax.nn.softmax(scores, -1) @ values).reshape(1, -1) @ w_o + b_o
        x = x + mlp(layer_norm(x, s2, t2), w_in, b_in, w_out, b_out)
    logits = x @ head
    return logits[0].argmax(), logits, new


def greedy(embedding: Any, layers: Any, head: Any) -> Call:
    """Return a function of a number of tokens and the first: caches as in `attention_loop`."""
    jitted = jax.jit(_step, donate_argnums=(1,))
    held = jax.device_put((embedding, layers, head))
    heads = layers[0][4].shape[0] // 64

    def run(count: int, first: int) -> Any:
        size = next_power(count)
        caches = [tuple(jnp.zeros((heads, size, 64), jnp.float32) for _ in range(2)) for _ in layers]
        token = jnp.asarray(first)
        tokens = []
        logits = None
        for t in range(count):
            token, logits, caches = jitted(token, caches, t, *held)
            tokens.append(token)
        return jnp.stack(tokens), logits

    return run


# ---- others ----------------------------------------------------------------------------------------------------------


def recommend(ids: Any, dense: Any, *weights: Any) -> Any:
    """Bags of embeddings and an MLP."""
    *tables, w1, b1, w2, b2, w3, b3 = weights
    bags = [jnp.take(table, ids[i], axis=0).sum(1) for i, table in enumerate(tables)]
    x = jax.nn.relu(jnp.concatenate([*bags, dense], 1) @ w1 + b1)
    return jax.nn.sigmoid(jax.nn.relu(x @ w2 + b2) @ w3 + b3)


def _conv(x: Any, w: Any, b: Any, stride: int) -> Any:
    made = jax.lax.conv_general_dilated(x, w, (stride, stride), ((1, 1), (1, 1)))
    return jax.nn.relu(made + b[:, None, None])


def pyramid(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, head: Any) -> Any:
    """Two convolutions at three scales."""
    found = []
    for _ in range(3):
        found.append(_conv(_conv(x, w1, b1, 1), w2, b2, 2).mean((2, 3)))
        batch, channels, height, width = x.shape
        x = x.reshape(batch, channels, height // 2, 2, width // 2, 2).mean((3, 5))
    return jnp.concatenate(found, 1) @ head


def branch(x: Any, known: Any, a: Any, b: Any) -> Any:
    """One of two ways; rows from `known` on are padding."""
    mean = x.sum() / (known * x.shape[1])
    return jax.lax.cond(mean > 0, lambda: jnp.tanh(x @ a), lambda: jax.nn.relu(x) @ b - x)


def early_exit(x: Any, known: Any, layers: Any, head: Any) -> Any:
    """Residual layers until the least certain of the first `known` rows is certain enough."""
    real = jnp.arange(x.shape[0]) < known

    def unsure(state: Any) -> Any:
        _, likely, depth = state
        return (depth < layers.shape[0]) & (jnp.where(real, likely.max(-1), 1.0).min() < 0.5)

    def layer(state: Any) -> Any:
        x, _, depth = state
        x = x + jax.nn.relu(x @ layers[depth])
        return x, jax.nn.softmax(x @ head, -1), depth + 1

    return jax.lax.while_loop(unsure, layer, (x, jax.nn.softmax(x @ head, -1), 0))


def experts(x: Any, router: Any, w_in: Any, w_out: Any) -> Any:
    """Tokens sorted by expert, then products of ragged groups."""
    chosen = (x @ router).argmax(1)
    order = jnp.argsort(chosen)
    sizes = jnp.bincount(chosen, length=w_in.shape[0])
    hidden = jax.nn.relu(jax.lax.ragged_dot(x[order], w_in, sizes))
    return jnp.zeros_like(x).at[order].set(jax.lax.ragged_dot(hidden, w_out, sizes))


def state_space(x: Any, delta: Any, into: Any, out_of: Any, h: Any, a: Any) -> Any:
    """Step by step."""

    def step(h: Any, now: Any) -> Any:
        x, delta, into, out_of = now
        d = delta[:, :, None]
        h = jnp.exp(d * a) * h + d * x[:, :, None] * into[:, None, :]
        return h, (h * out_of[:, None, :]).sum(-1)

    h, y = jax.lax.scan(step, h, tuple(v.swapaxes(0, 1) for v in (x, delta, into, out_of)))
    return y.swapaxes(0, 1), h
