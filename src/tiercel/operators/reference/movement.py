"""Movements that NumPy has only as methods, or under several names.

In: arrays and static attributes. Out: what the method would give.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["array_split", "flatten", "pad", "split"]


def split(x: Any, sections: Any, axis: int = 0) -> list[Any]:
    """Return `np.split`: views of equal parts, or of the parts between indices."""
    return np.split(x, sections, axis)


def array_split(x: Any, sections: Any, axis: int = 0) -> list[Any]:
    """Return `np.array_split`: as `split`, but the first parts may be one longer."""
    return np.array_split(x, sections, axis)


def flatten(x: Any, order: str = "C") -> Any:
    """Return a copy of all elements in one dimension, in the given order."""
    return np.asarray(x).flatten(order)  # type: ignore[arg-type]


def pad(x: Any, pad_width: Any, mode: Any = "constant", constant_values: Any = 0) -> Any:
    """Return `np.pad`; `constant_values` counts in mode "constant" only and is ignored in the others."""
    if mode == "constant":
        return np.pad(x, pad_width, mode, constant_values=constant_values)
    return np.pad(x, pad_width, mode)
