"""Folds over axes."""

from __future__ import annotations

import numpy as np

from tiercel.operators import rules
from tiercel.operators.families import reduction
from tiercel.operators.table import function, method, reordered

ROWS = (
    reduction(
        "sum",
        np.sum,
        rules.dtype_reduce(np.add),
        reordered(),
        "sum of the elements; small integers and bools add up as int64 or uint64",
        attributes={"dtype": None},
        spellings=(
            function("numpy.sum", "a=x axis dtype !out keepdims !initial !where"),
            method("sum", "x axis dtype !out keepdims !initial !where"),
        ),
    ),
)
