"""Tensors of other libraries to ndarrays and back, over shared memory wherever that is possible.

In: a torch tensor, or anything that speaks DLPack. Out: an ndarray over the same memory (and the reverse). torch is
never imported here: a torch tensor is recognised by the module its type comes from, so programs without torch do not
pay for it.

Invariants: a tensor that needs a gradient is never detached silently, and nothing moves between devices silently;
both raise and say what to write. A copy is made only where sharing is impossible (read-only memory or negative
strides for torch).
"""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

__all__ = ["from_torch", "is_torch", "to_torch"]

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def is_torch(x: object) -> bool:
    """Whether `x` is a torch tensor (a subclass such as `torch.nn.Parameter` is one). False costs one dict lookup."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return tensor is not None and isinstance(x, tensor)


def from_torch(x: Any) -> npt.NDArray[Any]:
    """Return an array over the memory of a torch tensor.

    Args:
        x: a strided torch tensor on the CPU, of a dtype NumPy or ml_dtypes has.

    Returns:
        An ndarray of the same shape, strides and dtype that shares memory with `x`; a copy only for a lazily conjugated
        or negated tensor, whose memory does not hold its values.

    Raises:
        RuntimeError: gradients are being recorded and `x` needs one.
        TypeError: `x` is on another device, or not strided.
    """
    torch = sys.modules["torch"]
    if x.requires_grad:
        if torch.is_grad_enabled():
            raise RuntimeError(
                f"this operation has no gradient, and torch tensor of shape {tuple(x.shape)} needs one "
                "(requires_grad=True); pass x.detach(), or run it under torch.no_grad()"
            )
        x = x.detach()
    if x.device.type != "cpu":
        raise TypeError(f"torch tensor is on device {str(x.device)!r}, expected 'cpu'; move it with x.cpu()")
    if x.layout is not torch.strided:
        raise TypeError(f"torch tensor has layout {x.layout}, expected torch.strided; convert it with x.to_dense()")
    x = x.resolve_conj().resolve_neg()
    if x.dtype is torch.bfloat16:
        return x.view(torch.int16).numpy().view(_BFLOAT16)  # type: ignore[no-any-return]
    return x.numpy()  # type: ignore[no-any-return]


def to_torch(array: npt.NDArray[Any]) -> Any:
    """Return a torch tensor over the memory of `array`.

    Args:
        array: any ndarray of a dtype torch has.

    Returns:
        A torch tensor sharing memory, or of a copy where torch cannot share: read-only arrays, negative strides.
    """
    torch = sys.modules["torch"]
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
