"""A recurrent layer in plain NumPy, called with another batch and length each time.

The function stays what it was: arrays in, arrays out, the time loop an ordinary `for`. Every call is checked.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import tiercel as tc

Array = npt.NDArray[np.float32]


def recur(x: Array, h: Array, w: Array, u: Array, b: Array) -> tuple[Array, Array]:
    """x: (batch, time, input); h: (batch, hidden). Returns all hidden states and the last."""
    from_input = x @ w + b
    states = []
    for t in range(x.shape[1]):
        h = np.tanh(from_input[:, t] + h @ u)
        states.append(h)
    return np.stack(states, axis=1), h


layer = tc.jit(recur)


def main() -> None:
    rng = np.random.default_rng(0)

    def random(*shape: int) -> Array:
        return rng.standard_normal(shape, dtype=np.float32)

    w, u, b = random(32, 64), random(64, 64) * np.float32(0.1), random(64)
    for _ in range(20):
        batch, time = (int(n) for n in rng.integers(1, 17, size=2))
        x, h = random(batch, time, 32), random(batch, 64)
        for got, want in zip(layer(x, h, w, u, b), recur(x, h, w, u, b), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    print("20 calls of random batch and length, all right")
    print(layer.explain())


if __name__ == "__main__":
    main()
