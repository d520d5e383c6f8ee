"""First values of parameters.

In: a shape, a fan-in, a source of randomness. Out: a `Parameter`. Weights and biases are uniform in
[-1/sqrt(fan_in), 1/sqrt(fan_in)], which is what torch's Linear, Conv and LSTM use, so models converge as users expect.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from tiercel.dtypes import DTypeLike, as_dtype
from tiercel.values import Parameter

__all__ = ["Rng", "as_generator", "filled", "normal", "uniform"]

# A seed, a generator to draw from, or None for other numbers each time.
Rng: TypeAlias = "int | np.random.Generator | None"


def as_generator(rng: Rng) -> np.random.Generator:
    """Return the generator itself, or a new one for a seed or None."""
    return np.random.default_rng(rng)


def uniform(rng: np.random.Generator, shape: tuple[int, ...], fan_in: int, dtype: DTypeLike) -> Parameter:
    """Return a parameter uniform in [-1/sqrt(fan_in), 1/sqrt(fan_in)]."""
    bound = 1 / np.sqrt(max(fan_in, 1))
    return Parameter(rng.uniform(-bound, bound, shape), dtype)


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: DTypeLike) -> Parameter:
    """Return a parameter of standard normal values."""
    return Parameter(rng.standard_normal(shape), dtype)


def filled(shape: tuple[int, ...], value: float, dtype: DTypeLike) -> Parameter:
    """Return a parameter that is `value` everywhere."""
    return Parameter(np.full(shape, value, as_dtype(dtype).numpy))
