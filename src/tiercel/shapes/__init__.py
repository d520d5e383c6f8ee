"""Symbolic sizes: what the sizes of tensors are called, how they are computed with, and what is known about them.

Read in this order: `polynomial` (the ring), `dims` (sizes in normal form, `//`, `%`), `extremes` (min, max, bcast),
`evaluate` (to ints, to other sizes), `ranges` (sets of integers), `parse` (text), `constraints`, `intervals` (ranges of
expressions), `facts` (knowledge and proofs), `rules` (bricks of operators' shape rules), `token` and `descriptor`
(shapes as programs write them).
"""

from tiercel.shapes.constraints import Constraint
from tiercel.shapes.descriptor import TensorDescriptor, parse_descriptor
from tiercel.shapes.dims import Dim, DimLike, Symbol, as_dim, symbols_of
from tiercel.shapes.evaluate import evaluate, substitute
from tiercel.shapes.extremes import broadcast_dim, ceil_div, dim_max, dim_min, product
from tiercel.shapes.facts import NO_FACTS, Facts, solve_for_symbol
from tiercel.shapes.parse import parse_dim, parse_range
from tiercel.shapes.polynomial import DimLimitError
from tiercel.shapes.ranges import Range
from tiercel.shapes.rules import (
    arange_dim,
    broadcast_shapes,
    concat_dim,
    conv_dim,
    format_shape,
    normalize_axes,
    normalize_axis,
    slice_dim,
    solve_reshape,
)
from tiercel.shapes.token import UNKNOWN_RANK, ShapeToken, parse_token

__all__ = [
    "Dim", "DimLike", "DimLimitError", "Symbol", "as_dim", "symbols_of",
    "broadcast_dim", "ceil_div", "dim_max", "dim_min", "product",
    "evaluate", "substitute",
    "parse_descriptor", "parse_dim", "parse_range", "parse_token",
    "NO_FACTS", "Constraint", "Facts", "Range", "solve_for_symbol",
    "arange_dim", "broadcast_shapes", "concat_dim", "conv_dim", "format_shape",
    "normalize_axes", "normalize_axis", "slice_dim", "solve_reshape",
    "UNKNOWN_RANK", "ShapeToken", "TensorDescriptor",
]  # fmt: skip
