"""The class style: cells, parameters, operator classes, saving, and what a parameter promises.

A small gated network is trained by hand-written gradient steps, so its parameters are written between calls of its
jitted `construct`; every write is seen.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tiercel as tc
from tiercel import Parameter, Tensor, nn, ops


class Gated(nn.Cell):
    """sigmoid(x W_g^T) * tanh(x W_v^T), summed to one number a row. x: (batch, features)."""

    def __init__(self, features: int, hidden: int, seed: int = 0) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.features = features
        self.hidden = hidden
        self.weight = Parameter(rng.standard_normal((2 * hidden, features)) / np.sqrt(features), tc.float32)
        self.scale = Parameter(np.ones(hidden), tc.float32)

    @tc.jit(specs={"x": tc.spec(None, "F")})
    def construct(self, x: Any) -> Any:
        gate, value = ops.Split(axis=1, output_num=2)(ops.MatMul()(x, self.weight.T))
        return ops.MatMul()(ops.Sigmoid()(gate) * ops.Tanh()(value), self.scale)


def reference(weight: Any, scale: Any, x: Any) -> Any:
    gate, value = np.split(x @ weight.T, 2, axis=1)
    return (1 / (1 + np.exp(-gate)) * np.tanh(value)) @ scale


def check(model: Gated, x: Any) -> Any:
    got = model(Tensor(x))
    assert type(got) is Tensor
    weight, scale = (np.asarray(p).astype(np.float64) for p in (model.weight, model.scale))
    np.testing.assert_allclose(np.asarray(got), reference(weight, scale, x.astype(np.float64)), rtol=1e-4, atol=1e-5)
    return got


def main() -> None:
    rng = np.random.default_rng(1)
    model = Gated(6, 8)
    print(model)

    # Any batch size; parameters change in place between the calls and every change counts.
    target = rng.standard_normal(6).astype(np.float32)
    losses = []
    for _ in range(60):
        x = rng.standard_normal((int(rng.integers(1, 33)), 6), dtype=np.float32)
        error = np.asarray(check(model, x)) - x @ target
        losses.append(float(np.mean(error**2)))
        gate, value = np.split(x @ np.asarray(model.weight).T, 2, axis=1)
        features = 1 / (1 + np.exp(-gate)) * np.tanh(value)
        before = model.scale.version
        model.scale -= Tensor(0.05 * features.T @ error / len(x), tc.float32)
        assert model.scale.version != before
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    print(f"60 steps: mean error {np.mean(losses[:10]):.2f} -> {np.mean(losses[-10:]):.2f}")

    # A parameter's memory is handed out read-only, so no write can pass unseen.
    exported = np.asarray(model.weight)
    try:
        exported[0, 0] = 1
    except ValueError as error:
        print(f"np.asarray(parameter): {error}")
    else:
        raise AssertionError("a parameter was written unseen")

    # Saving is NumPy's own format; loading checks everything before it writes anything.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gated.npz"
        np.savez(path, **model.state_dict())  # type: ignore[arg-type]
        other = Gated(6, 8, seed=9)
        with np.load(path) as saved:
            other.load_state_dict(saved)
    x = rng.standard_normal((5, 6), dtype=np.float32)
    # The two may run on different tiers by now, which add in different orders.
    np.testing.assert_allclose(np.asarray(model(Tensor(x))), np.asarray(other(Tensor(x))), rtol=1e-5, atol=1e-6)

    # Tensors look into memory in the usual ways.
    t = Tensor(x)
    assert (t.layout, t.T.layout, t[:, ::2].layout) == ("C", "F", "strided")
    assert t.T.contiguous().is_contiguous()
    assert np.shares_memory(np.from_dlpack(t), x)
    print("class style all right")


if __name__ == "__main__":
    main()
