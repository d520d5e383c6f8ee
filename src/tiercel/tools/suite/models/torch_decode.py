"""Decoding in torch: buffers of the final size that are sliced, and one step with caches in and out for ONNX.

In: tensors (heads, steps, 64). Out: functions and modules of one step, and the loops around them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tiercel.tools.suite.case import Array, Call
from tiercel.tools.suite.models.torch_models import Block, parameter

__all__ = ["AttendAndAppend", "Step", "StepAndAppend", "attend", "attention_loop", "greedy"]


def attend(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """q: (heads, 1, 64); keys, values: (heads, steps, 64), the new ones included."""
    return functional.scaled_dot_product_attention(q[None], keys[None], values[None])[0]


def attention_loop(one: Call) -> Call:
    """Return a function of (steps, 3, heads, 1, 64): keys and values go into buffers of the final size."""

    def run(steps: torch.Tensor) -> torch.Tensor:
        count, _, heads, _, width = steps.shape
        keys, values, out = (steps.new_empty(heads, count, width) for _ in range(3))
        for t in range(count):
            keys[:, t : t + 1] = steps[t, 1]
            values[:, t : t + 1] = steps[t, 2]
            out[:, t : t + 1] = one(steps[t, 0], keys[:, : t + 1], values[:, : t + 1])
        return out.transpose(0, 1).unsqueeze(2)

    return run


class AttendAndAppend(nn.Module):
    """One step that appends to caches by concatenating, and returns them."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> Any:
        keys = torch.cat([keys, k], 1)
        values = torch.cat([values, v], 1)
        return torch.softmax(q @ keys.transpose(1, 2) * 0.125, -1) @ values, keys, values


class _Model(nn.Module):
    def __init__(self, embedding: Array, layers: tuple[tuple[Array, ...], ...], head: Array) -> None:
        super().__init__()
        self.embedding = parameter(embedding)
        self.blocks = nn.ModuleList(Block(layer) for layer in layers)
        self.head = parameter(head)


class Step(_Model):
    """One token; caches are buffers of the final size."""

    def forward(self, token: torch.Tensor, caches: list[torch.Tensor], t: int) -> Any:
        x = self.embedding[token]
        for index, block in enumerate(self.blocks):
            keys, values = caches[2 * index], caches[2 * index + 1]
            q, k, v = block.qkv(block.norm_1(x)).view(3, block.heads, 1, 64).unbind(0)
            keys[:, t : t + 1] = k
            values[:, t : t + 1] = v
            mixed = functional.scaled_dot_product_attention(q[None], keys[None, :, : t + 1], values[None, :, : t + 1])
            x = x + block.out(mixed.reshape(1, -1))
            x = x + block.feed(block.norm_2(x))
        logits = x @ self.head
        return logits.argmax(-1), logits


def greedy(one: Call) -> Call:
    """Return the loop around a step."""

    def run(count: int, first: int) -> Any:
        model: Any = getattr(one, "_orig_mod", one)
        heads = model.blocks[0].heads
        caches = [torch.empty(heads, count, 64) for _ in range(2 * len(model.blocks))]
        token = torch.tensor([first])
        tokens = []
        logits = None
        for t in range(count):
            token, logits = one(token, caches, t)
            tokens.append(token)
        return torch.cat(tokens), logits

    return run


class StepAndAppend(_Model):
    """One token; caches are concatenated and returned."""

    def forward(self, token: torch.Tensor, *caches: torch.Tensor) -> Any:
        x = self.embedding[token]
        new = []
        for index, block in enumerate(self.blocks):
            q, k, v = block.qkv(block.norm_1(x)).view(3, block.heads, 1, 64).unbind(0)
            keys = torch.cat([caches[2 * index], k], 1)
            values = torch.cat([caches[2 * index + 1], v], 1)
            new += [keys, values]
            mixed = torch.softmax(q @ keys.transpose(1, 2) * 0.125, -1) @ values
            x = x + block.out(mixed.reshape(1, -1))
            x = x + block.feed(block.norm_2(x))
        logits = x @ self.head
        return logits.argmax(-1), logits, *new
