"""Running an operator's reference on whatever values users hold.

In: the reference (a NumPy callable), operands, attributes. Out: its result as the kind of the operands asks for: torch
if any operand is a torch tensor, Tensors if any is a Tensor, else what the reference returned. Views keep the storage
of the Tensor they look into; an operand that comes back is the same object; a written Tensor's version moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tiercel.values.tensor import (
    ATOMS,
    Tensor,
    adopt,
    before_write,
    concatenate,
    finish,
    mark_written,
    unwrap_into,
)

__all__ = ["run", "run_one", "run_writing"]


def run_one(reference: Callable[..., Any], x: Any) -> Any:
    """`run` for one operand and no attributes."""
    if type(x) is Tensor:
        return adopt(reference(x._array), (x,))
    return reference(x) if type(x) in ATOMS else run(reference, (x,), {})


def run(reference: Callable[..., Any], operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """Call `reference(*operands, **attributes)` on arrays.

    Args:
        reference: takes and returns ndarrays and scalars.
        operands: arrays, Tensors, torch tensors, scalars, or sequences of them.
        attributes: passed on as they are.

    Raises:
        RuntimeError: a torch operand needs a gradient. TypeError: it is not on the CPU.
        Anything the reference raises.
    """
    if reference is np.concatenate and operands and any(isinstance(x, Tensor) for x in operands[0]):
        return concatenate(*operands, **attributes)
    arrays = []
    tensors: list[Tensor] = []
    torch: list[Any] = []
    for x in operands:
        kind = type(x)
        if kind is Tensor:
            tensors.append(x)
            arrays.append(x._array)
        elif kind in ATOMS:
            arrays.append(x)
        else:
            arrays.append(unwrap_into(x, tensors, torch))
    value = reference(*arrays, **attributes)
    if torch or tensors:
        return finish(value, tensors, torch)
    return value


def run_writing(
    reference: Callable[..., Any], operands: tuple[Any, ...], attributes: dict[str, Any], written: tuple[int, ...]
) -> Any:
    """`run` for an operator that writes into the operands at the positions `written`."""
    for position in written:
        before_write(operands[position])
    try:
        return run(reference, operands, attributes)
    finally:
        for position in written:
            mark_written(operands[position])
