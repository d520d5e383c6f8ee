"""Modules: the `Cell` base class and a few ready cells.

In: parameters and sub-cells as attributes, a `construct` method. Out: callable objects that list, save and load their
parameters, and that `tc.jit` sees through. See `cell` first, then `layers`, `recurrent`, `containers`.
"""

from __future__ import annotations

from tiercel.nn.cell import Cell
from tiercel.nn.containers import CellList, Sequential
from tiercel.nn.layers import (
    GELU,
    Conv1d,
    Conv2d,
    Dense,
    Dropout,
    Embedding,
    LayerNorm,
    LeakyReLU,
    Linear,
    ReLU,
    RMSNorm,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
)
from tiercel.nn.ragged import ragged_attention, ragged_scan
from tiercel.nn.recurrent import LSTM, LSTMCell

__all__ = [
    "Cell",
    "CellList",
    "Conv1d",
    "Conv2d",
    "Dense",
    "Dropout",
    "Embedding",
    "GELU",
    "LSTM",
    "LSTMCell",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "ragged_attention",
    "ragged_scan",
]
