"""A mixture of experts: each token goes to its two best experts, so every expert sees another number of tokens.

The sizes inside depend on the data (`np.nonzero` of the routing), in plain NumPy, checked against a loop over tokens.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import tiercel as tc

Array = npt.NDArray[np.float64]

EXPERTS_PER_TOKEN = 2


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    out: Array = powers / powers.sum(axis=-1, keepdims=True)
    return out


@tc.jit
def mixture(x: Array, router: Array, w_in: Array, w_out: Array) -> Array:
    """x: (tokens, width); router: (width, experts); w_in: (experts, width, inner); w_out: (experts, inner, width)."""
    logits = x @ router
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :EXPERTS_PER_TOKEN]
    gates = softmax(np.take_along_axis(logits, chosen, axis=1))
    out = np.zeros_like(x)
    for expert in range(w_in.shape[0]):
        tokens, slots = np.nonzero(chosen == expert)
        if tokens.size == 0:
            continue
        hidden = np.maximum(x[tokens] @ w_in[expert], 0)
        out[tokens] += gates[tokens, slots][:, None] * (hidden @ w_out[expert])
    return out


def one_token(x: Array, router: Array, w_in: Array, w_out: Array) -> Array:
    """The same for a single token (width,)."""
    logits = x @ router
    chosen = sorted(range(len(logits)), key=lambda e: -logits[e])[:EXPERTS_PER_TOKEN]
    weights = np.exp(logits[chosen] - logits[chosen].max())
    weights /= weights.sum()
    out = np.zeros_like(x)
    for weight, expert in zip(weights, chosen, strict=True):
        out += weight * (np.maximum(x @ w_in[expert], 0) @ w_out[expert])
    return out


def main() -> None:
    rng = np.random.default_rng(0)
    width, inner, experts = 12, 20, 6
    router = rng.standard_normal((width, experts))
    w_in = rng.standard_normal((experts, width, inner))
    w_out = rng.standard_normal((experts, inner, width))
    for tokens in (1, 7, 0, 33, 4, 60):
        x = rng.standard_normal((tokens, width))
        got = mixture(x, router, w_in, w_out)
        want = np.array([one_token(row, router, w_in, w_out) for row in x]).reshape(tokens, width)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
    print("6 calls of 0 to 60 tokens through 6 experts, all right")


if __name__ == "__main__":
    main()
