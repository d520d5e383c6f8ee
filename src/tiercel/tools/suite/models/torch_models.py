"""The cases as torch modules: in eager mode, for `torch.compile`, and to be exported as ONNX models.

In: weights as NumPy arrays. Out: modules. Loops and branches that the ONNX exporter has to see are TorchScript
functions (`scripted_...`); in eager mode and under `torch.compile` they run as Python.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tiercel.tools.suite.case import Array, Weights

__all__ = ["Chain", "GeluMLP", "LayerNorm", "Softmax"]


def tensor(array: Array) -> torch.Tensor:
    """Return a tensor of the array's memory."""
    return torch.from_numpy(array)


def parameter(array: Array) -> nn.Parameter:
    """Return a parameter without gradient."""
    return nn.Parameter(tensor(array), requires_grad=False)


def linear(weight: Array, bias: Array) -> nn.Linear:
    """Return the layer of a weight (in, out)."""
    layer = nn.Linear(*weight.shape)
    layer.weight = parameter(weight.T.copy())
    layer.bias = parameter(bias)
    return layer


class Softmax(nn.Module):
    """Over the last axis."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)


class LayerNorm(nn.LayerNorm):
    """Over the last axis."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights["scale"].shape)
        self.weight = parameter(weights["scale"])
        self.bias = parameter(weights["shift"])


class GeluMLP(nn.Sequential):
    """Two layers with GELU between them."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(
            linear(weights["w_in"], weights["b_in"]),
            nn.GELU(approximate="tanh"),
            linear(weights["w_out"], weights["b_out"]),
        )


class Chain(nn.Module):
    """50 elementwise operators."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            x = torch.maximum(x * 1.0009765625 + 0.25, x - 0.5) * 0.5
        return x


# ---- encoders --------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """One layer of an encoder."""

    def __init__(self, layer: tuple[Array, ...]) -> None:
        super().__init__()
        s1, t1, w_qkv, b_qkv, w_o, b_o, s2, t2, w_in, b_in, w_out, b_out = layer
        self.norm_1 = LayerNorm({"scale": s1, "shift": t1})
        self.qkv = linear(w_qkv, b_qkv)
        self.out = linear(w_o, b_o)
        self.norm_2 = LayerNorm({"scale": s2, "shift": t2})
        self.feed = GeluMLP({"w_in": w_in, "b_in": b_in, "w_out": w_out, "b_out": b_out})
        self.heads = w_o.shape[0] // 64

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, hidden = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, 64).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.feed(self.norm_2(x))


class Encoder(nn.Sequential):
    """Layers, one after the other."""

    def __init__(self, layers: tuple[tuple[Array, ...], ...]) -> None:
        super().__init__(*(Block(layer) for layer in layers))


# ---- recommendation --------------------------------------------------------------------------------------------------


class Recommend(nn.Module):
    """Bags of embeddings and an MLP.

    Args:
        weights: of the case.
        gathered: sum gathered rows instead of using torch's bags.
    """

    def __init__(self, weights: Weights, gathered: bool = False) -> None:
        super().__init__()
        self.tables = nn.ParameterList(parameter(weights[f"table{i}"]) for i in range(4))
        layers = [linear(weights[f"w{i}"], weights[f"b{i}"]) for i in (1, 2, 3)]
        self.mlp = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2], nn.Sigmoid())
        self.gathered = gathered

    def forward(self, ids: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        if self.gathered:
            bags = [functional.embedding(ids[i], table).sum(1) for i, table in enumerate(self.tables)]
        else:
            bags = [
                functional.embedding_bag(ids[i], table, mode="sum", padding_idx=0)
                for i, table in enumerate(self.tables)
            ]
        return self.mlp(torch.cat([*bags, dense], 1))


# ---- convolutions ----------------------------------------------------------------------------------------------------


class Pyramid(nn.Module):
    """Two convolutions at three scales."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.w1, self.b1, self.w2, self.b2, self.head = (parameter(w) for w in weights.values())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = []
        for _ in range(3):
            y = torch.relu(functional.conv2d(x, self.w1, self.b1, padding=1))
            y = torch.relu(functional.conv2d(y, self.w2, self.b2, stride=2, padding=1))
            found.append(y.mean((2, 3)))
            x = functional.avg_pool2d(x, 2)
        return torch.cat(found, 1) @ self.head


# ---- control flow ----------------------------------------------------------------------------------------------------


def branch(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One of two ways."""
    if bool(x.mean() > 0):
        y = torch.tanh(x @ a)
    else:
        y = torch.relu(x) @ b - x
    return y


class Branch(nn.Module):
    """A branch."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.a, self.b = (parameter(w) for w in weights.values())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return branch(x, self.a, self.b)


def early_exit(x: torch.Tensor, layers: torch.Tensor, head: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Residual layers until the least certain row is certain enough."""
    depth = 0
    likely = torch.softmax(x @ head, -1)
    unsure = bool(likely.amax(-1).min() < 0.5)
    while depth < layers.shape[0] and unsure:
        x = x + torch.relu(x @ layers[depth])
        likely = torch.softmax(x @ head, -1)
        unsure = bool(likely.amax(-1).min() < 0.5)
        depth += 1
    return x, likely, depth


def early_exit_of_tensors(
    x: torch.Tensor, layers: torch.Tensor, head: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same with the depth as a tensor, which is all that a model may return."""
    x, likely, depth = early_exit(x, layers, head)
    return x, likely, torch.tensor(depth)


class EarlyExit(nn.Module):
    """Layers that are left early."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.layers, self.head = (parameter(w) for w in weights.values())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        return early_exit(x, self.layers, self.head)


class Experts(nn.Module):
    """Each expert on its tokens."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.router, self.w_in, self.w_out = (parameter(w) for w in weights.values())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = (x @ self.router).argmax(1)
        out = torch.zeros_like(x)
        for expert in range(8):
            tokens = (chosen == expert).nonzero().squeeze(1)
            made = torch.relu(x[tokens] @ self.w_in[expert]) @ self.w_out[expert]
            out = out.index_add(0, tokens, made)
        return out


# ---- state space -----------------------------------------------------------------------------------------------------


def state_space(
    x: torch.Tensor,
    delta: torch.Tensor,
    into: torch.Tensor,
    out_of: torch.Tensor,
    h: torch.Tensor,
    a: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Step by step."""
    outputs = []
    for t in range(x.shape[1]):
        step = delta[:, t].unsqueeze(-1)
        h = torch.exp(step * a) * h + step * x[:, t].unsqueeze(-1) * into[:, t].unsqueeze(1)
        outputs.append((h @ out_of[:, t].unsqueeze(-1)).squeeze(-1))
    return torch.stack(outputs, 1), h


class StateSpace(nn.Module):
    """The scan."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.a = parameter(weights["a"])

    def forward(
        self, x: torch.Tensor, delta: torch.Tensor, into: torch.Tensor, out_of: torch.Tensor, h: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return state_space(x, delta, into, out_of, h, self.a)


# ---- for the ONNX exporter -------------------------------------------------------------------------------------------


class _Scripted(nn.Module):
    """A model whose loop or branch is TorchScript, so that it becomes a Loop or an If instead of one trace."""

    def __init__(self, function: Any, *weights: Array) -> None:
        super().__init__()
        self.function = torch.jit.script(function)
        self.weights = nn.ParameterList(parameter(w) for w in weights)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs, *self.weights)


def for_export(name: str, weights: Weights) -> nn.Module:
    """Return the module of a case with control flow: `branch`, `early_exit` or `state_space`."""
    function = {"branch": branch, "early_exit": early_exit_of_tensors, "state_space": state_space}[name]
    return _Scripted(function, *weights.values())
