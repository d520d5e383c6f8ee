"""The operators, to be called: `ops.sum(x, axis=1)` and `ops.Split(axis=1, output_num=4)(x)`.

In: arrays, Tensors, torch tensors, scalars. Out: what the operator's NumPy reference gives, in the operands' own kind.
Every name comes from the operator table (`tiercel.operators`): lower-case functions take all parameters of the row,
capitalised classes take the attributes first and the operands when called. Made on first use.
"""

from __future__ import annotations

from typing import Any

from tiercel.errors import suggest
from tiercel.ops.generate import CLASSES, FUNCTIONS, Operation, make_class, make_function

__all__ = ["Operation", *FUNCTIONS, *CLASSES]  # noqa: PLE0604  names are strings


def __getattr__(name: str) -> Any:
    if name in FUNCTIONS:
        made: Any = make_function(name)
    elif name in CLASSES:
        made = make_class(name)
    else:
        # Case tells which of the two was meant.
        first, second = (CLASSES, FUNCTIONS) if name[:1].isupper() else (FUNCTIONS, CLASSES)
        near = suggest(name, list(first)) or suggest(name, list(second))
        raise AttributeError(f"module 'tiercel.ops' has no operator {name!r}{near}", name=name)
    # Two threads may both make one; the first that is stored stays.
    return globals().setdefault(name, made)


def __dir__() -> list[str]:
    return sorted(__all__)
