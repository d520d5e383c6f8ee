"""The loop form: loop nests over strided buffers, between the region graph and machine code."""

from __future__ import annotations

from tiercel.loops.checker import check
from tiercel.loops.evaluate import evaluate
from tiercel.loops.form import IllFormed
from tiercel.loops.printer import to_text

__all__ = ["IllFormed", "check", "evaluate", "to_text"]
