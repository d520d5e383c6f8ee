"""Arithmetic, comparison of sizes of numbers: rows of + - * / and their relatives."""

from __future__ import annotations

import numpy as np

from tiercel.operators.families import ufunc
from tiercel.operators.table import EXACT

ROWS = (ufunc("add", np.add, EXACT, "x + y; logical or of bools", infix="+"),)
