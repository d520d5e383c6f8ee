"""The rows, one module a family. A module has `ROWS`, a tuple of `Operator`; or `SPELLINGS`, more spellings by row name."""

from __future__ import annotations

from typing import Final

# In this order they appear in the documentation, and the first row that has a spelling owns it.
MODULES: Final = ("arithmetic", "mathematics", "reductions", "normalisation", "movement", "contraction", "indexing")
