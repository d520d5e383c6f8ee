"""Recurrent networks in torch: its own layers, and the loops over time that `torch.compile` is given.

In: weights of the case, (in, gates * hidden). Out: modules that take x, states, and lengths if ragged.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tiercel.tools.suite.case import Array, Weights
from tiercel.tools.suite.models.torch_models import parameter

__all__ = [
    "GRU",
    "LSTM",
    "GRULoop",
    "LSTMCell",
    "LSTMLoop",
    "RaggedGRU",
    "RaggedGRULoop",
    "RaggedLSTM",
    "RaggedLSTMLoop",
]


def _fill(layer: Any, weights: Weights) -> Any:
    """Give a layer of torch the case's weights."""
    second: Array = weights["d"] if "d" in weights else weights["b"] * 0
    layer.weight_ih_l0 = parameter(weights["w"].T.copy())
    layer.weight_hh_l0 = parameter(weights["u"].T.copy())
    layer.bias_ih_l0 = parameter(weights["b"])
    layer.bias_hh_l0 = parameter(second)
    layer.flatten_parameters()
    return layer


class LSTM(nn.Module):
    """`nn.LSTM`."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.layer = _fill(nn.LSTM(weights["w"].shape[0], weights["u"].shape[0], batch_first=True), weights)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
        states, (h, c) = self.layer(x, (h[None], c[None]))
        return states, h[0], c[0]


class RaggedLSTM(LSTM):
    """`nn.LSTM` on a packed sequence."""

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, lengths: torch.Tensor) -> Any:  # type: ignore[override]
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, (h, c) = self.layer(packed, (h[None], c[None]))
        return pad_packed_sequence(states, batch_first=True)[0], h[0], c[0]


class GRU(nn.Module):
    """`nn.GRU`."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.layer = _fill(nn.GRU(weights["w"].shape[0], weights["u"].shape[0], batch_first=True), weights)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> Any:
        states, h = self.layer(x, h[None])
        return states, h[0]


class RaggedGRU(GRU):
    """`nn.GRU` on a packed sequence."""

    def forward(self, x: torch.Tensor, h: torch.Tensor, lengths: torch.Tensor) -> Any:  # type: ignore[override]
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, h = self.layer(packed, h[None])
        return pad_packed_sequence(states, batch_first=True)[0], h[0]


class LSTMCell(nn.Module):
    """One step for many inputs from the same state."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.w = parameter(weights["w"].T.copy())
        self.u = parameter(weights["u"].T.copy())
        self.b = parameter(weights["b"])

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
        gates = functional.linear(x, self.w) + functional.linear(h, self.u, self.b).unsqueeze(1)
        i, f, g, o = gates.chunk(4, 2)
        c = torch.sigmoid(f) * c.unsqueeze(1) + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class _Loop(nn.Module):
    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.w = parameter(weights["w"].T.copy())
        self.u = parameter(weights["u"].T.copy())
        self.b = parameter(weights["b"])
        self.d = parameter(weights["d"]) if "d" in weights else None


class LSTMLoop(_Loop):
    """A Python loop over time."""

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
        from_input = functional.linear(x, self.w, self.b)
        states = []
        for t in range(x.shape[1]):
            i, f, g, o = (from_input[:, t] + functional.linear(h, self.u)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            states.append(h)
        return torch.stack(states, 1), h, c


class RaggedLSTMLoop(_Loop):
    """A Python loop over time; a sequence keeps its state once it has ended."""

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, lengths: torch.Tensor) -> Any:
        from_input = functional.linear(x, self.w, self.b)
        states = []
        for t in range(x.shape[1]):
            alive = (t < lengths).unsqueeze(1)
            i, f, g, o = (from_input[:, t] + functional.linear(h, self.u)).chunk(4, 1)
            c = torch.where(alive, torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g), c)
            h = torch.where(alive, torch.sigmoid(o) * torch.tanh(c), h)
            states.append(h * alive)
        return torch.stack(states, 1), h, c


class GRULoop(_Loop):
    """A Python loop over time."""

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> Any:
        from_input = functional.linear(x, self.w, self.b)
        states = []
        for t in range(x.shape[1]):
            r, z, n = from_input[:, t].chunk(3, 1)
            r_h, z_h, n_h = functional.linear(h, self.u, self.d).chunk(3, 1)
            z = torch.sigmoid(z + z_h)
            h = (1 - z) * torch.tanh(n + torch.sigmoid(r + r_h) * n_h) + z * h
            states.append(h)
        return torch.stack(states, 1), h


class RaggedGRULoop(_Loop):
    """A Python loop over time; a sequence keeps its state once it has ended."""

    def forward(self, x: torch.Tensor, h: torch.Tensor, lengths: torch.Tensor) -> Any:
        from_input = functional.linear(x, self.w, self.b)
        states = []
        for t in range(x.shape[1]):
            alive = (t < lengths).unsqueeze(1)
            r, z, n = from_input[:, t].chunk(3, 1)
            r_h, z_h, n_h = functional.linear(h, self.u, self.d).chunk(3, 1)
            z = torch.sigmoid(z + z_h)
            h = torch.where(alive, (1 - z) * torch.tanh(n + torch.sigmoid(r + r_h) * n_h) + z * h, h)
            states.append(h * alive)
        return torch.stack(states, 1), h
