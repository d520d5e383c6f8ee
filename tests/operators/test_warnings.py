"""Floating-point warnings of the references that NumPy does not have: those of the documented expression."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tiercel.operators import get

ORDINARY = np.linspace(-40, 40, 81).astype(np.float32)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, 0.0, -0.0], np.float32)


def warned(function: Callable[..., Any], *operands: Any) -> set[str]:
    with np.errstate(all="warn"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*operands)
    return {str(w.message).split(" encountered", 1)[0] for w in caught}


@pytest.mark.parametrize(
    "name",
    [
        "sigmoid",
        "silu",
        "softplus",
        "gelu",
        "erf",
        "erfc",
        "relu",
        "elu",
        "leaky_relu",
        "softmax",
        "log_softmax",
        "logsumexp",
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ordinary_numbers_give_no_warning(name: str, dtype: str) -> None:
    assert warned(get(name).reference, ORDINARY.astype(dtype)) <= {"underflow"}


@pytest.mark.parametrize("name", ["erf", "erfc", "gelu"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_operators_that_never_warn(name: str, dtype: str) -> None:
    with np.errstate(all="ignore"):
        x = SPECIAL.astype(dtype)
    assert warned(get(name).reference, x) == set()


def test_fma_never_warns() -> None:
    x = SPECIAL
    assert warned(get("fma").reference, x, x[::-1], x) == set()
    wide = np.array([1e308, -1e308, 1e-308, 5e-324, np.inf, np.nan])
    assert warned(get("fma").reference, wide, wide[::-1], wide) == set()


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("silu", lambda x: x / (1 + np.exp(-x))),
        ("rsqrt", lambda x: 1 / np.sqrt(x)),
        ("softmax", lambda x: np.exp(x - x.max(-1, keepdims=True))),
    ],
)
def test_special_numbers_warn_as_the_expression(name: str, expression: Callable[..., Any]) -> None:
    for value in (np.inf, -np.inf, -1.0, 0.0):
        x = np.full(3, value, np.float32)
        for kind in ("invalid value", "divide by zero"):
            assert (kind in warned(get(name).reference, x)) == (kind in warned(expression, x)), (value, kind)


def test_empty_means_warn_as_numpy() -> None:
    with np.errstate(all="ignore"), pytest.warns(RuntimeWarning, match="empty slice"):
        get("mean").reference(np.zeros(0, np.float32))
    with pytest.raises(ValueError, match="no identity"):
        get("max").reference(np.zeros(0))
