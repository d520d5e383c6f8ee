"""Lowering of Python's constructs to instructions, a module a group. Importing this registers all of them."""

from __future__ import annotations

from tiercel.frontend.python.lower import (
    access,
    assignments,
    calls,
    comprehensions,
    conditions,
    displays,
    exceptions,
    functions,
    operations,
    outlined,
    patterns,
    statements,
)
from tiercel.frontend.python.lower.comprehensions import CONSUMERS, find_consumed
from tiercel.frontend.python.lower.outlined import find_shared
from tiercel.frontend.python.lower.state import EXPRESSIONS, STATEMENTS, Lowering, Reason

__all__ = [
    "CONSUMERS",
    "EXPRESSIONS",
    "STATEMENTS",
    "Lowering",
    "Reason",
    "access",
    "assignments",
    "calls",
    "comprehensions",
    "conditions",
    "displays",
    "exceptions",
    "find_consumed",
    "find_shared",
    "functions",
    "operations",
    "outlined",
    "patterns",
    "statements",
]
