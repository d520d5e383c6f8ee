"""A transformer encoder in the class style; batch, length and padding differ in every call.

Each call is compared with the same encoder written out in float64 NumPy, one sequence at a time without its padding.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

import tiercel as tc
from tiercel import Tensor, nn, ops


class Attention(nn.Cell):
    """Multi-head self-attention. x: (batch, time, width); bias: (batch, 1, 1, time), added to the scores."""

    def __init__(self, width: int, heads: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.heads = heads
        self.project_in = nn.Dense(width, 3 * width, rng=rng)
        self.project_out = nn.Dense(width, width, rng=rng)

    def construct(self, x: Any, bias: Any) -> Any:
        batch, time, width = x.shape
        parts = ops.split(self.project_in(x), 3, axis=-1)
        q, k, v = [p.reshape(batch, time, self.heads, -1).transpose(0, 2, 1, 3) for p in parts]
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(width // self.heads) + bias
        mixed = ops.softmax(scores, axis=-1) @ v
        return self.project_out(mixed.transpose(0, 2, 1, 3).reshape(batch, time, width))


class Block(nn.Cell):
    """Attention and a feed-forward part, each with a norm before and a sum after."""

    def __init__(self, width: int, heads: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, rng)
        self.norm_2 = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Dense(width, 4 * width, rng=rng), nn.GELU("tanh"), nn.Dense(4 * width, width, rng=rng)
        )

    def construct(self, x: Any, bias: Any) -> Any:
        x = x + self.attention(self.norm_1(x), bias)
        return x + self.feed_forward(self.norm_2(x))


class Encoder(nn.Cell):
    """tokens: (batch, time) integers; lengths: (batch,). Returns (batch, time, width), of no meaning past a length."""

    def __init__(self, vocabulary: int, width: int, heads: int, depth: int, seed: int = 0) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.embedding = nn.Embedding(vocabulary, width, rng=rng)
        self.blocks = nn.CellList(Block(width, heads, rng) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    @tc.jit
    def construct(self, tokens: Any, lengths: Any) -> Any:
        x = self.embedding(tokens)
        padding = np.arange(tokens.shape[1]) >= lengths[:, None]
        bias = np.where(padding, np.float32(-1e9), np.float32(0))[:, None, None, :]
        for block in self.blocks:
            x = block(x, bias)
        return self.norm(x)


# ---- the same in float64 NumPy, for one sequence ---------------------------------------------------------------------

Weights = dict[str, npt.NDArray[np.float64]]
Array = npt.NDArray[np.float64]


def dense(w: Weights, name: str, x: Array) -> Array:
    out: Array = x @ w[f"{name}.weight"].T + w[f"{name}.bias"]
    return out


def norm(w: Weights, name: str, x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    out: Array = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return out * w[f"{name}.weight"] + w[f"{name}.bias"]


def gelu(x: Array) -> Array:
    out: Array = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return out


def reference(w: Weights, tokens: npt.NDArray[np.int64], heads: int, depth: int) -> Array:
    x = w["embedding.weight"][tokens]
    time, width = x.shape
    size = width // heads
    for i in range(depth):
        name = f"blocks.{i}"
        q, k, v = np.split(dense(w, f"{name}.attention.project_in", norm(w, f"{name}.norm_1", x)), 3, axis=-1)
        mixed = np.zeros((time, width))
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            scores = q[:, part] @ k[:, part].T / math.sqrt(size)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            mixed[:, part] = scores / scores.sum(-1, keepdims=True) @ v[:, part]
        x = x + dense(w, f"{name}.attention.project_out", mixed)
        hidden = gelu(dense(w, f"{name}.feed_forward.0", norm(w, f"{name}.norm_2", x)))
        x = x + dense(w, f"{name}.feed_forward.2", hidden)
    return norm(w, "norm", x)


def main() -> None:
    heads, depth = 4, 2
    model = Encoder(vocabulary=50, width=32, heads=heads, depth=depth)
    weights = {name: value.astype(np.float64) for name, value in model.state_dict().items()}
    rng = np.random.default_rng(1)
    for _ in range(12):
        batch, time = (int(n) for n in rng.integers(1, 12, size=2))
        tokens = rng.integers(0, 50, size=(batch, time))
        lengths = rng.integers(1, time + 1, size=batch)
        got = np.asarray(model(Tensor(tokens), Tensor(lengths)))
        for row, sequence, length in zip(got, tokens, lengths, strict=True):
            np.testing.assert_allclose(row[:length], reference(weights, sequence[:length], heads, depth), atol=1e-4)
    print("12 calls of random batch, length and padding, all right")
    print(model)


if __name__ == "__main__":
    main()
