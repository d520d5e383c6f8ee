"""Elementary functions, element by element."""

from __future__ import annotations

import numpy as np

from tiercel.operators.families import ufunc
from tiercel.operators.table import bounded

ROWS = (ufunc("exp", np.exp, bounded(2), "e to the power x"),)
