"""The cases in Numba: loops over rows in parallel, matrix products through SciPy's BLAS.

In: NumPy arrays. Out: compiled functions. `fastmath` is on, as its users have it, so that loops vectorise.
"""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import numba
import numpy as np

from tiercel.tools.suite.case import Cannot

__all__ = [
    "attention_loop",
    "branch",
    "chain",
    "early_exit",
    "experts",
    "layer_norm",
    "mlp",
    "need_blas",
    "pyramid",
    "recommend",
    "softmax",
    "state_space",
]

# Where products are computed too, loops are not parallel: next to the threads of the BLAS, a second pool takes more
# than it brings on few cores.
_fast = numba.njit(parallel=True, fastmath=True)
_plain = numba.njit(fastmath=True)


def need_blas() -> None:
    """Raise if matrix products cannot be had.

    Raises:
        Cannot: SciPy, whose BLAS Numba calls, is missing.
    """
    if importlib.util.find_spec("scipy") is None:
        raise Cannot("matrix products in Numba need SciPy, which is not installed")


def _softmax(x: Any) -> Any:
    out = np.empty_like(x)
    for i in numba.prange(x.shape[0]):
        top = x[i, 0]
        for j in range(1, x.shape[1]):
            top = max(top, x[i, j])
        total = np.float32(0)
        for j in range(x.shape[1]):
            out[i, j] = math.exp(x[i, j] - top)
            total += out[i, j]
        for j in range(x.shape[1]):
            out[i, j] /= total
    return out


softmax = _fast(_softmax)
serial_softmax = _plain(_softmax)


def _layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    out = np.empty_like(x)
    columns = np.float32(x.shape[1])
    for i in numba.prange(x.shape[0]):
        mean = np.float32(0)
        for j in range(x.shape[1]):
            mean += x[i, j]
        mean /= columns
        variance = np.float32(0)
        for j in range(x.shape[1]):
            d = x[i, j] - mean
            variance += d * d
        factor = np.float32(1) / math.sqrt(variance / columns + np.float32(1e-5))
        for j in range(x.shape[1]):
            out[i, j] = (x[i, j] - mean) * factor * scale[j] + shift[j]
    return out


layer_norm = _fast(_layer_norm)


def _gelu_of_sum(x: Any, bias: Any) -> None:
    for i in numba.prange(x.shape[0]):
        for j in range(x.shape[1]):
            v = x[i, j] + bias[j]
            inner = np.float32(0.7978845608) * (v + np.float32(0.044715) * v * v * v)
            x[i, j] = np.float32(0.5) * v * (np.float32(1) + math.tanh(inner))


gelu_of_sum = _plain(_gelu_of_sum)


def _mlp(x: Any, w_in: Any, b_in: Any, w_out: Any, b_out: Any) -> Any:
    hidden = np.dot(x, w_in)
    gelu_of_sum(hidden, b_in)
    return np.dot(hidden, w_out) + b_out


mlp = _plain(_mlp)


def _chain(x: Any) -> Any:
    out = np.empty_like(x)
    for i in numba.prange(x.shape[0]):
        for j in range(x.shape[1]):
            v = x[i, j]
            for _ in range(10):
                v = max(v * np.float32(1.0009765625) + np.float32(0.25), v - np.float32(0.5)) * np.float32(0.5)
            out[i, j] = v
    return out


chain = _fast(_chain)


# ---- decoding --------------------------------------------------------------------------------------------------------


def _attend(qkv: Any, keys: Any, values: Any, t: int, out: Any) -> None:
    for head in numba.prange(keys.shape[0]):
        keys[head, t] = qkv[1, head, 0]
        values[head, t] = qkv[2, head, 0]
        scores = np.empty(t + 1, np.float32)
        top = np.float32(-np.inf)
        for s in range(t + 1):
            score = np.float32(0)
            for j in range(keys.shape[2]):
                score += qkv[0, head, 0, j] * keys[head, s, j]
            scores[s] = score * np.float32(0.125)
            top = max(top, scores[s])
        total = np.float32(0)
        out[head] = 0
        for s in range(t + 1):
            p = math.exp(scores[s] - top)
            total += p
            for j in range(keys.shape[2]):
                out[head, 0, j] += p * values[head, s, j]
        for j in range(keys.shape[2]):
            out[head, 0, j] /= total


attend = _fast(_attend)


def attention_loop(steps: Any) -> Any:
    """steps: (steps, 3, heads, 1, 64). Keys and values go into buffers of the final size, a call for each step."""
    count, _, heads, _, width = steps.shape
    keys, values = (np.empty((heads, count, width), np.float32) for _ in range(2))
    out = np.empty((count, heads, 1, width), np.float32)
    for t in range(count):
        attend(steps[t], keys, values, t, out[t])
    return out


# ---- others ----------------------------------------------------------------------------------------------------------


def _bags(ids: Any, table: Any, out: Any, begin: int) -> None:
    for row in numba.prange(ids.shape[0]):
        for word in range(ids.shape[1]):
            place = ids[row, word]
            if place:
                for j in range(table.shape[1]):
                    out[row, begin + j] += table[place, j]


bags = _plain(_bags)


def _recommend(
    ids: Any,
    dense: Any,
    table0: Any,
    table1: Any,
    table2: Any,
    table3: Any,
    w1: Any,
    b1: Any,
    w2: Any,
    b2: Any,
    w3: Any,
    b3: Any,
) -> Any:
    width = table0.shape[1]
    x = np.zeros((dense.shape[0], 4 * width + dense.shape[1]), np.float32)
    bags(ids[0], table0, x, 0)
    bags(ids[1], table1, x, width)
    bags(ids[2], table2, x, 2 * width)
    bags(ids[3], table3, x, 3 * width)
    x[:, 4 * width :] = dense
    y = np.maximum(np.dot(x, w1) + b1, np.float32(0))
    z = np.maximum(np.dot(y, w2) + b2, np.float32(0))
    return np.float32(1) / (np.float32(1) + np.exp(-(np.dot(z, w3) + b3)))


recommend = _plain(_recommend)


def _conv_relu(x: Any, w: Any, b: Any, stride: int) -> Any:
    batch, channels, height, width = x.shape
    filters = w.shape[0]
    wide = np.zeros((batch, channels, height + 2, width + 2), np.float32)
    wide[:, :, 1 : height + 1, 1 : width + 1] = x
    high, far = (height - 1) // stride + 1, (width - 1) // stride + 1
    out = np.empty((batch, filters, high, far), np.float32)
    for place in numba.prange(batch * filters):
        image, f = place // filters, place % filters
        for i in range(high):
            row = np.full(far, b[f], np.float32)
            for c in range(channels):
                for di in range(3):
                    for dj in range(3):
                        factor = w[f, c, di, dj]
                        for j in range(far):
                            row[j] += factor * wide[image, c, i * stride + di, j * stride + dj]
            for j in range(far):
                out[image, f, i, j] = max(row[j], np.float32(0))
    return out


conv_relu = _fast(_conv_relu)


def _half(x: Any) -> Any:
    batch, channels, height, width = x.shape
    out = np.empty((batch, channels, height // 2, width // 2), np.float32)
    for n in range(batch):
        for c in range(channels):
            for i in range(height // 2):
                for j in range(width // 2):
                    top = x[n, c, 2 * i, 2 * j] + x[n, c, 2 * i, 2 * j + 1]
                    out[n, c, i, j] = (top + x[n, c, 2 * i + 1, 2 * j] + x[n, c, 2 * i + 1, 2 * j + 1]) / np.float32(4)
    return out


half = _plain(_half)


def _pyramid(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, head: Any) -> Any:
    filters = w2.shape[0]
    found = np.zeros((x.shape[0], 3 * filters), np.float32)
    for scale in range(3):
        y = conv_relu(conv_relu(x, w1, b1, 1), w2, b2, 2)
        for n in range(y.shape[0]):
            for f in range(filters):
                found[n, scale * filters + f] = y[n, f].mean()
        x = half(x)
    out = np.zeros((x.shape[0], head.shape[1]), np.float32)
    for n in range(out.shape[0]):
        for f in range(found.shape[1]):
            for j in range(out.shape[1]):
                out[n, j] += found[n, f] * head[f, j]
    return out


pyramid = _plain(_pyramid)


def _branch(x: Any, a: Any, b: Any) -> Any:
    if x.mean() > 0:
        return np.tanh(np.dot(x, a))
    return np.dot(np.maximum(x, np.float32(0)), b) - x


branch = _plain(_branch)


def _least(likely: Any) -> Any:
    least = np.float32(1)
    for i in range(likely.shape[0]):
        least = min(least, likely[i].max())
    return least


least = _plain(_least)


def _early_exit(x: Any, layers: Any, head: Any) -> Any:
    depth = 0
    likely = serial_softmax(np.dot(x, head))
    while depth < layers.shape[0] and least(likely) < 0.5:
        x = x + np.maximum(np.dot(x, layers[depth]), np.float32(0))
        likely = serial_softmax(np.dot(x, head))
        depth += 1
    return x, likely, depth


early_exit = _plain(_early_exit)


def _experts(x: Any, router: Any, w_in: Any, w_out: Any) -> Any:
    logits = np.dot(x, router)
    count, width = x.shape
    chosen = np.empty(count, np.int64)
    for i in range(count):
        chosen[i] = logits[i].argmax()
    out = np.empty_like(x)
    for expert in range(w_in.shape[0]):
        tokens = np.nonzero(chosen == expert)[0]
        if tokens.size:
            group = np.empty((tokens.size, width), np.float32)
            for i in range(tokens.size):
                group[i] = x[tokens[i]]
            made = np.dot(np.maximum(np.dot(group, w_in[expert]), np.float32(0)), w_out[expert])
            for i in range(tokens.size):
                out[tokens[i]] = made[i]
    return out


experts = _plain(_experts)


def _state_space(x: Any, delta: Any, into: Any, out_of: Any, h: Any, a: Any) -> Any:
    batch, length, width = x.shape
    state = a.shape[1]
    y = np.empty((batch, length, width), np.float32)
    last = h.copy()
    for place in numba.prange(batch * width):
        n, d = place // width, place % width
        for t in range(length):
            step = delta[n, t, d]
            fed = step * x[n, t, d]
            total = np.float32(0)
            for s in range(state):
                last[n, d, s] = math.exp(step * a[d, s]) * last[n, d, s] + fed * into[n, t, s]
                total += last[n, d, s] * out_of[n, t, s]
            y[n, t, d] = total
    return y, last


state_space = _fast(_state_space)
