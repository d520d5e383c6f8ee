"""Why operators without machine code have none: what `explain` says of a program that uses them.

In: nothing. Out: `REASONS`. A test holds that every operator has machine code or a reason here, and not both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["REASONS"]

_RANDOM: Final = "random numbers are drawn by Python"
_COMPLEX: Final = "complex numbers have no machine code"
_STRUCTURE: Final = "typing answers it: nothing is left to compute"

REASONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("random_bits", "random_uniform", "random_normal", "dropout", "split_key", "fold_in"), _RANDOM),
    **dict.fromkeys(("real", "imag", "conj", "angle"), _COMPLEX),
    **dict.fromkeys(("shape", "ndim", "size", "dim", "dtype", "item"), _STRUCTURE),
    **dict.fromkeys(("divmod", "nextafter", "gcd", "lcm", "bitwise_count"), "no code has been written for it"),
    "unique": "the size of each result depends on data, and NumPy's sort is faster",
    "argwhere": "the size of its result depends on data",
    "compress": "the size of its result depends on data",
    "masked_select": "the size of its result depends on data",
    "searchsorted": "a search whose steps depend on data gains nothing from vectors",
    "set_index": "a write is a new value of the array (`index_put`)",
    "asfortranarray": "arrays are made in C order",
    "scatter": "no code has been written for it; x[i] = v has some",
    "scatter_nd": "no code has been written for it; x[i, j] = v has some",
    "interpolate": "no code has been written for it",
    "dstack": "no code has been written for it",
    "depend": "it orders side effects of Python",
}
"""Operator -> why it runs interpreted."""
