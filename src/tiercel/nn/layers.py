"""Ready cells without state: dense, embedding, normalisation, convolution, dropout, activations.

In: sizes. Out: cells whose `construct` is one or two calls of `tiercel.ops`, so that a jitted model captures through
them. Weights are laid out as torch lays them out ([out, in, ...]); `rng` is a seed or a generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiercel import ops
from tiercel.dtypes import DTypeLike, float32
from tiercel.nn.cell import Cell
from tiercel.nn.initial import Rng, as_generator, filled, normal, uniform
from tiercel.values import Parameter

__all__ = [
    "GELU",
    "Conv1d",
    "Conv2d",
    "Dense",
    "Dropout",
    "Embedding",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "RMSNorm",
    "ReLU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
]


class Dense(Cell):
    """`x @ weight.T + bias`.

    Args:
        in_features: size of the last dimension of x.
        out_features: size of the last dimension of the result.
        bias: whether there is one.
        dtype: of the parameters.
        rng: where their first values come from.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, dtype: DTypeLike = float32, rng: Rng = None
    ) -> None:
        super().__init__()
        rng = as_generator(rng)
        self.in_features = in_features
        self.out_features = out_features
        self.weight = uniform(rng, (out_features, in_features), in_features, dtype)
        self.bias = uniform(rng, (out_features,), in_features, dtype) if bias else None

    def construct(self, x: Any) -> Any:
        """x: (..., in_features). Returns (..., out_features)."""
        return ops.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}"


Linear = Dense


class Embedding(Cell):
    """Rows of a table, picked by integers.

    Args:
        num_embeddings: number of rows.
        embedding_dim: size of a row.
        dtype, rng: as for `Dense`; first values are standard normal.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, *, dtype: DTypeLike = float32, rng: Rng = None) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.weight = normal(as_generator(rng), (num_embeddings, embedding_dim), dtype)

    def construct(self, indices: Any) -> Any:
        """indices: any shape, integers in [0, num_embeddings). Returns the shape with embedding_dim appended."""
        return ops.embedding(indices, self.weight)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class LayerNorm(Cell):
    """Zero mean and unit variance over the last dimensions, then scale and shift.

    Args:
        shape: sizes of the last dimensions, or one size.
        eps: added to the variance.
        bias: whether there is a shift.
        dtype: of the parameters.
    """

    def __init__(
        self, shape: int | Sequence[int], eps: float = 1e-5, bias: bool = True, *, dtype: DTypeLike = float32
    ) -> None:
        super().__init__()
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.axis = tuple(range(-len(self.shape), 0))
        self.eps = eps
        self.weight = filled(self.shape, 1, dtype)
        self.bias = filled(self.shape, 0, dtype) if bias else None

    def construct(self, x: Any) -> Any:
        """x: (..., *shape). Returns the same shape."""
        return ops.layer_norm(x, self.weight, self.bias, axis=self.axis, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.shape}, eps={self.eps:g}"


class RMSNorm(Cell):
    """Unit mean square over the last dimensions, then scale.

    Args:
        shape, eps, dtype: as for `LayerNorm`.
    """

    def __init__(self, shape: int | Sequence[int], eps: float = 1e-6, *, dtype: DTypeLike = float32) -> None:
        super().__init__()
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.axis = tuple(range(-len(self.shape), 0))
        self.eps = eps
        self.weight = filled(self.shape, 1, dtype)

    def construct(self, x: Any) -> Any:
        """x: (..., *shape). Returns the same shape."""
        return ops.rms_norm(x, self.weight, axis=self.axis, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.shape}, eps={self.eps:g}"


class _Conv(Cell):
    rank: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: Any = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        dtype: DTypeLike = float32,
        rng: Rng = None,
    ) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{type(self).__name__}: groups must divide in_channels and out_channels, "
                f"got {groups}, {in_channels} and {out_channels}"
            )
        rng = as_generator(rng)
        kernel = (kernel_size,) * self.rank if isinstance(kernel_size, int) else tuple(kernel_size)
        if len(kernel) != self.rank:
            raise ValueError(f"{type(self).__name__}: kernel_size has {len(kernel)} sizes, expected {self.rank}")
        fan_in = in_channels // groups
        for size in kernel:
            fan_in *= size
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.groups = groups
        self.weight = uniform(rng, (out_channels, in_channels // groups, *kernel), fan_in, dtype)
        self.bias: Parameter | None = uniform(rng, (out_channels,), fan_in, dtype) if bias else None

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"


class Conv1d(_Conv):
    """Convolution over the last dimension of (batch, channels, length).

    Args:
        in_channels, out_channels: sizes of the channel dimension.
        kernel_size, stride, dilation: one int.
        padding: an int, a pair, "same" or "valid".
        groups: channels are split into this many groups that do not see each other.
        bias, dtype, rng: as for `Dense`.

    Raises:
        ValueError: groups do not divide the channels, or kernel_size has another rank.
    """

    rank = 1

    def construct(self, x: Any) -> Any:
        """x: (batch, in_channels, length). Returns (batch, out_channels, length')."""
        return ops.conv1d(
            x,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )


class Conv2d(_Conv):
    """Convolution over the last two dimensions of (batch, channels, height, width).

    Args:
        in_channels, out_channels, groups, bias, dtype, rng: as for `Conv1d`.
        kernel_size, stride, dilation: an int or a pair.
        padding: an int, a pair of ints or of pairs, "same" or "valid".

    Raises:
        ValueError: groups do not divide the channels, or kernel_size has another rank.
    """

    rank = 2

    def construct(self, x: Any) -> Any:
        """x: (batch, in_channels, height, width). Returns (batch, out_channels, height', width')."""
        return ops.conv2d(
            x,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )


class Dropout(Cell):
    """Zero elements with probability p while training, and scale the others by 1 / (1 - p).

    Which elements is decided by a key, not by hidden state, so that every run and every tier gives the same.

    Args:
        p: probability in [0, 1].
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: p must be between 0 and 1, got {p}")
        self.p = p

    def construct(self, x: Any, key: Any = None) -> Any:
        """x: any shape; key: an int or a key of `ops.split_key`, needed while training. Returns the shape of x."""
        if not self.training or self.p == 0:
            return x
        if key is None:
            raise ValueError("Dropout needs a key while training: cell(x, key), or cell.eval() to switch it off")
        return ops.dropout(x, key, p=self.p)

    def extra_repr(self) -> str:
        return f"p={self.p:g}"


class ReLU(Cell):
    """max(x, 0)."""

    def construct(self, x: Any) -> Any:
        """x: any shape. Returns the same shape."""
        return ops.relu(x)


class LeakyReLU(Cell):
    """x where positive, else negative_slope * x."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def construct(self, x: Any) -> Any:
        """x: any shape. Returns the same shape."""
        return ops.leaky_relu(x, negative_slope=self.negative_slope)


class GELU(Cell):
    """x times the normal distribution function of x; approximate="tanh" for the usual approximation."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def construct(self, x: Any) -> Any:
        """x: any shape. Returns the same shape."""
        return ops.gelu(x, approximate=self.approximate)


class SiLU(Cell):
    """x * sigmoid(x)."""

    def construct(self, x: Any) -> Any:
        """x: any shape. Returns the same shape."""
        return ops.silu(x)


class Sigmoid(Cell):
    """1 / (1 + exp(-x))."""

    def construct(self, x: Any) -> Any:
        """x: any shape. Returns the same shape."""
        return ops.sigmoid(x)


class Tanh(Cell):
    """Hyperbolic tangent."""

    def construct(self, x: Any) -> Any:
        """x: any shape. Returns the same shape."""
        return ops.tanh(x)


class Softmax(Cell):
    """exp(x) / sum(exp(x)) over axis."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def construct(self, x: Any) -> Any:
        """x: any shape. Returns the same shape."""
        return ops.softmax(x, axis=self.axis)
