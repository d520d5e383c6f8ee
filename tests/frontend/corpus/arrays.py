"""NumPy code as people write it: views, aliasing, in-place work, shapes, warnings."""

import numpy as np

from tests.frontend.corpus.support import binary, case, layouts, ramp, unary


@case(*unary())
def returns_input(x):
    return x


@case(*unary())
def returns_views(x):
    return x.T, x[:, 1:], x[::-1], x.reshape(x.shape), x.ravel(), x[None]


@case(*unary())
def returns_copies(x):
    return x.copy(), x + 0, np.array(x), x.astype(x.dtype), x[:, [0]] if x.shape[1] else x


@case(*unary())
def reductions(x):
    return x.sum(), x.sum(0), x.sum(axis=1, keepdims=True), np.sum(x), np.prod(x, axis=0), x.any(), x.all()


@case(*unary((3, 4)))
def extremes(x):
    return x.max(), np.min(x, 0), x.argmax(), np.argmin(x, axis=1), np.maximum(x, 0), np.clip(x, -1, 1)


@case((ramp(0, 4),), (ramp(0),))
def empty_reductions_fail(x):
    return x.max()


@case((ramp(0),))
def empty_mean_warns(x):
    return x.mean()


@case(*unary((2, 3)))
def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@case(*unary((2, 3), (5, 1)))
def layer_norm(x):
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5)


@case((ramp(2, 3, 4), ramp(2, 3, 4), ramp(2, 3, 4)), (ramp(1, 1, 2), ramp(1, 5, 2), ramp(1, 5, 2)))
def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights @ v


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def _lstm_arguments(batch, seq, dtype):
    return (
        ramp(batch, seq, 3, dtype=dtype) / 10,
        ramp(batch, 2, dtype=dtype) / 10,
        ramp(batch, 2, dtype=dtype) / 10,
        ramp(8, 3, dtype=dtype) / 10,
        ramp(8, 2, dtype=dtype) / 10,
        ramp(8, dtype=dtype),
    )


@case(*[_lstm_arguments(b, t, d) for b, t, d in ((2, 3, "f8"), (1, 1, "f4"), (3, 0, "f4"))])
def lstm(x, h, c, w_ih, w_hh, b):
    batch, seq, _ = x.shape
    pre = (x.reshape(-1, x.shape[2]) @ w_ih.T + b).reshape(batch, seq, -1)
    states = []
    for t in range(seq):
        i, f, g, o = np.split(pre[:, t] + h @ w_hh.T, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        states.append(h)
    return np.stack(states, axis=1) if states else None, h, c


@case((ramp(2, 3), 4), (ramp(0, 3), 2))
def growing_cache(x, n):
    cache = x
    for step in range(n):
        cache = np.concatenate([cache, cache[-1:] + step]) if cache.shape[0] else np.ones((1, 3))
    return cache


@case(*unary((3, 4)))
def in_place_through_a_view(x):
    view = x[1]
    view += 1
    view[:] = view * 2
    np.multiply(x, 2)
    x[0], x[2] = x[2], x[0].copy()
    return x


@case((ramp(4),))
def swapped_views(x):
    x[:2], x[2:] = x[2:], x[:2]
    return x


@case((ramp(3, 3),))
def overlapping_update(x):
    x[1:] += x[:-1]
    return x


@case(
    (lambda: (a := ramp(3), a)),
)
def same_array_twice(x, y):
    x += 1
    return x is y, y


@case(
    (lambda: (a := ramp(6), a[1:], a[:-1])),
)
def overlapping_arguments(a, x, y):
    x[:] = y + 1
    return a, x, y


@case(*binary())
def where_and_masks(a, b):
    m = a > b
    return np.where(m, a, b), a[np.broadcast_to(m, a.shape)] if a.shape == m.shape else None, m.sum(), ~m


@case((ramp(3, 4), np.array([2, 0])), (ramp(3, 4), [1, -1]), (ramp(3, 4), [7]))
def gathers(x, index):
    return x[index], np.take(x, index, axis=0), x[:, index] if max(index) < 4 else None


@case((ramp(3, 4),), (ramp(3, 4, dtype="i4"),), native=False)
def dtype_changes(x):
    return x.astype("f4"), x.astype(np.int64) // 2, x.astype(bool), np.float32(1) * x, x * np.float64(2)


@case((ramp(2, 3),))
def creation(x):
    return (
        np.zeros(x.shape, x.dtype),
        np.ones_like(x),
        np.arange(x.shape[1]),
        np.full((2, 2), x[0, 0]),
        np.eye(3),
        np.linspace(0, 1, 5),
        np.empty((0, 2)),
    )


@case((ramp(2, 3, 4),))
def shapes(x):
    b, t, d = x.shape
    y = x.reshape(b * t, d)
    z = y.reshape(b, -1)
    return y.shape, z.shape, x.transpose(2, 0, 1).shape, np.expand_dims(x, 0).shape, x.ndim, x.size, len(x), z.dtype


@case((ramp(2, 3), (4, 2)), (ramp(2, 3), (3, 2)), (ramp(2, 3), (-1, 4)))
def reshape_may_fail(x, shape):
    return x.reshape(shape)


@case((ramp(3, 4), ramp(3, 4)), (ramp(3, 4), ramp(5, 4)))
def matmul_may_fail(a, b):
    return a @ b.T @ a @ b


@case((np.array([1.0, np.nan, np.inf, -0.0]),))
def special_values(x):
    return np.isnan(x), x == x, np.sign(x), np.maximum(x, 0), x > 0, -x, np.isfinite(x)


@case((np.array([-1.0, 0.0]),))
def invalid_warns_twice(x):
    a = np.sqrt(x)
    b = np.log(x)
    return a, b


@case((np.array([-1.0, 0.0]),))
def warning_in_a_loop(x):
    out = []
    for i in range(3):
        out.append(np.sqrt(x - i))
    return out


@case((ramp(3, dtype="i4"),), (np.array([0, 1]),))
def integer_division_by_zero(x):
    return 5 // x, 5 % x


@case((ramp(3).astype(object),))
def object_arrays(x):
    return x + 1, x.sum(), x * "a" if False else x


@case((np.array(["a", "b"]),))
def string_arrays(x):
    return x == "a", x[0], x.shape


@case((ramp(),), (np.float32(2),), (3.0,))
def zero_dimensional(x):
    return x + 1, x * x, np.exp(x), np.sum(x), np.asarray(x).shape


@case((ramp(2, 2, dtype="c8"),))
def complex_numbers(x):
    return x.real, x.imag, np.abs(x), x.conj(), x * 1j


@case(([[1.0, 2.0], [3.0, 4.0]],), ([[1.0], [2.0, 3.0]],))
def from_lists(x):
    return np.array(x) * 2


@case((ramp(5),), (ramp(0),), native=False)
def cumulative(x):
    return np.cumsum(x), x.cumsum(), np.diff(x) if len(x) > 1 else None


@case((ramp(4, 4),))
def norms(x):
    return np.sqrt((x**2).sum()), np.abs(x).max(), np.dot(x[0], x[1]), x[0] @ x[1]


@case((ramp(3), 2), (ramp(3), 2.5), (ramp(3, dtype="f4"), np.float32(2)))
def scalars_that_change(x, k):
    return x * k + k**2 - k / 3


@case((ramp(2, 3),))
def boolean_branches(x):
    if (x > 0).any() and not (x > 100).all():
        x = np.where(x > 0, x, 0.0)
    elif x.ndim == 2:
        x = x.T
    return x


@case((ramp(2, 3, dtype="f4"), ramp(3, 2, dtype="f8")), (ramp(2, 3), ramp(3, 2)))
def einsum(a, b):
    return np.einsum("ij,jk->ik", a, b), np.einsum("ij->j", a)


@case((ramp(8),), (ramp(1),))
def power_of_two_scan(x):
    n = x.shape[0]
    step = 1
    x = x.copy()
    while step < n:
        x[step:] = x[step:] + x[:-step]
        step *= 2
    return x


@case(*[(x,) for x in layouts(2, 3, 4)])
def keeps_layout(x):
    y = x + 1
    z = np.exp(y)
    return y, z, z.T + z.T, y.swapaxes(0, 2) * 2
