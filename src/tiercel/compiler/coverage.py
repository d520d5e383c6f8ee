"""Which operators have machine code, and in what form.

In: the tables that lowering works by. Out: for each operator the form it is compiled to, for `docs/operators.md`. Forms
that an operator is not compiled in (an attribute, a dtype) are refused, with a reason, where they are lowered.
"""

from __future__ import annotations

from tiercel.compiler.derived import DERIVED
from tiercel.compiler.elementwise import EXPRESSIONS
from tiercel.compiler.expand import COMPOSITES
from tiercel.compiler.fuse import CONTRACTIONS, CONVOLUTIONS, REDUCTIONS
from tiercel.compiler.movement import RULES
from tiercel.compiler.refusals import REASONS
from tiercel.operators import ALL

__all__ = ["compiled_form", "describe"]


def compiled_form(name: str) -> str | None:
    """What an operator becomes, None where it runs interpreted."""
    row = ALL[name]
    if row.lowering.cls == "elementwise" and row.lowering.key in EXPRESSIONS:
        return "element by element, fused"
    if name in REDUCTIONS:
        return "a reduction, fused along the last axis"
    if name in CONTRACTIONS:
        return "a product with a fused epilogue"
    if name in CONVOLUTIONS:
        return "sums over windows in registers, what follows fused"
    if name in COMPOSITES or name in DERIVED:
        return "written out in others"
    return "loops of its own, or a view" if name in RULES else None


def describe() -> dict[str, str]:
    """For every operator its compiled form, or that it is interpreted and why."""
    return {name: compiled_form(name) or f"interpreted: {REASONS[name]}" for name in ALL}
