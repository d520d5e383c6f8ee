"""Control flow that depends on the data: layers run until every row is sure, and a loop runs until it has converged.

Both a branch on a tensor's value and the number of iterations differ from call to call.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import tiercel as tc

Array = npt.NDArray[np.float64]


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    out: Array = powers / powers.sum(axis=-1, keepdims=True)
    return out


def classify(x: Array, layers: list[Array], head: Array, threshold: float) -> tuple[Array, int]:
    """x: (batch, width). Returns class probabilities and the number of layers that were run."""
    probabilities = softmax(x @ head)
    for depth, weight in enumerate(layers):
        if probabilities.max(axis=-1).min() >= threshold:
            return probabilities, depth
        x = x + np.maximum(x @ weight, 0)
        probabilities = softmax(x @ head)
    return probabilities, len(layers)


def newton_sqrt(a: Array, tolerance: float = 1e-12) -> tuple[Array, int]:
    """a: any shape, positive. Returns square roots and the number of iterations."""
    x = np.maximum(a, 1.0)
    steps = 0
    while True:
        better = 0.5 * (x + a / x)
        steps += 1
        if np.abs(better - x).max() <= tolerance * np.abs(x).max():
            return better, steps
        x = better


fast_classify = tc.jit(classify)
fast_sqrt = tc.jit(newton_sqrt)


def main() -> None:
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((16, 16)) for _ in range(8)]
    head = rng.standard_normal((16, 5))
    depths = set()
    for _ in range(20):
        x = rng.standard_normal((int(rng.integers(1, 6)), 16)) * rng.uniform(0.1, 4)
        threshold = float(rng.uniform(0.5, 0.99))
        got, depth = fast_classify(x, layers, head, threshold)
        want, want_depth = classify(x, layers, head, threshold)
        np.testing.assert_allclose(got, want, rtol=1e-12)
        assert depth == want_depth
        depths.add(depth)
    assert len(depths) > 1, "every call left at the same depth"
    print(f"20 calls left after {sorted(depths)} layers, all right")

    counts = set()
    for exponent in (-6, 0, 4, 12):
        a = rng.uniform(0.5, 2, size=int(rng.integers(1, 9))) * 10.0**exponent
        got, count = fast_sqrt(a)
        np.testing.assert_allclose(got, np.sqrt(a), rtol=1e-10)
        counts.add(count)
    assert len(counts) > 1
    print(f"4 square roots took {sorted(counts)} steps, all right")


if __name__ == "__main__":
    main()
