"""The rows, one module a family: `ROWS` is a tuple of `Operator`, `SPELLINGS` adds spellings to rows by name."""

from __future__ import annotations

from typing import Final

# In this order they appear in the documentation, and the first row that has a spelling owns it.
MODULES: Final = (
    "arithmetic",
    "mathematics",
    "reductions",
    "normalisation",
    "movement",
    "contraction",
    "indexing",
    "creation",
    "structure",
    "neural",
    "random",
    "classes",
)
