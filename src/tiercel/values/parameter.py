"""Values that may be packed and specialised on: `Parameter`, `constant`, and the question `frozen_state`.

In: weights. Out: for each value that cannot change behind our back, a key under which a packed form of it stays right.

Invariant: the memory of a `Parameter` is its own (copied in) and is handed out read-only, so every write passes
through a Tensor of its storage and moves the version. NumPy lets the owner of memory make itself writable again, and
a view only if its owner is writable; hence the owning array is locked and never handed out, and Tensors work on a
writable view made before it was locked.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

import numpy as np

from tiercel.dtypes import DTypeLike, as_dtype
from tiercel.errors import ShapeError
from tiercel.values.interchange import is_torch
from tiercel.values.storage import Storage
from tiercel.values.tensor import Tensor, storage_of, unwrap

__all__ = ["Parameter", "constant", "frozen_state"]

# The locked owners of parameters' memory, by id: they look like constants and are none.
_locked: Final[dict[int, weakref.ref[Any]]] = {}


class Parameter(Tensor):
    """A Tensor with memory of its own whose every write is seen: the weights of a model.

    `np.asarray(p)` and `p.numpy()` are read-only views; write with `p[...] = x`, `p += x`, `p.assign(x)`. Views
    (`p.T`, `p[0]`) are Tensors of the same storage: writing through one moves the parameter's version.

    Args:
        data: the first value, copied; anything `Tensor` takes.
        dtype: element type; None keeps that of `data`.
        name: what to call it; a `Cell` sets it where it is None.
        requires_grad: whether it is to be trained.

    Raises:
        DTypeError, TypeError, RuntimeError: as `Tensor`.
    """

    __slots__ = ("name", "requires_grad")

    name: str | None
    requires_grad: bool

    def __new__(
        cls, data: Any, dtype: DTypeLike | None = None, *, name: str | None = None, requires_grad: bool = True
    ) -> Parameter:
        """Return a Parameter with a copy of `data`."""
        self: Parameter = super().__new__(cls, data, dtype)
        owner = np.array(self._array, order="C", copy=True)
        self._array = owner.view()
        owner.flags.writeable = False
        key = id(owner)
        _locked[key] = weakref.ref(owner, lambda _: _locked.pop(key, None))
        self._storage = storage = Storage(guarded=True)
        storage.owner = self
        self.name = name
        self.requires_grad = bool(requires_grad)
        return self

    def assign(self, value: Any) -> Parameter:
        """Write `value` into this parameter's memory, and return the parameter.

        Args:
            value: an array, Tensor, torch tensor or nested list of exactly this shape; its dtype may be converted
                within its kind (float64 to float32), but not across (float to int).

        Raises:
            ShapeError: another shape.
            TypeError: a dtype that does not convert within its kind.
        """
        array = np.asarray(unwrap(value))
        if array.shape != self._array.shape:
            raise ShapeError(
                f"assign: {self._label()} has shape {self._array.shape}, got {array.shape}; "
                "p[...] = value broadcasts, a new Parameter may have another shape"
            )
        try:
            np.copyto(self._array, array, casting="same_kind")
        finally:
            storage_of(self).bump()
        return self

    def set_data(self, value: Any) -> Parameter:
        """The same as `assign`."""
        return self.assign(value)

    def _label(self) -> str:
        return "parameter" if self.name is None else f"parameter {self.name!r}"

    def __repr__(self) -> str:
        head = "Parameter(" if self.name is None else f"Parameter({self.name!r}, "
        return self._text(head)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_parameter, (type(self), self._array, self.name, self.requires_grad)

    def __copy__(self) -> Parameter:
        return _restore_parameter(type(self), self._array, self.name, self.requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        return self.__copy__()


def _restore_parameter(cls: type[Parameter], array: Any, name: str | None, requires_grad: bool) -> Parameter:
    return cls(array, name=name, requires_grad=requires_grad)


def constant(data: Any, dtype: DTypeLike | None = None) -> Any:
    """Return a read-only copy of `data` that compiled code may treat as fixed.

    Args:
        data: an array, list or scalar; a Tensor; a torch tensor.
        dtype: element type; None keeps that of `data`.

    Returns:
        The kind that came in: an ndarray that owns its memory and is not writeable, or a Tensor over such memory. A
        torch tensor, which cannot be read-only, comes back as a copy (torch counts its writes, and they are watched).

    Raises:
        DTypeError, TypeError, RuntimeError: as `Tensor`.
    """
    if is_torch(data):
        Tensor(data)  # refuses what cannot be a Tensor
        copy = data.detach().clone()
        return copy if dtype is None else copy.to(_torch_dtype(copy, dtype))
    array = np.array(Tensor(data, dtype)._array, copy=True, order="K")
    array.flags.writeable = False
    if not isinstance(data, Tensor):
        return array
    tensor = Tensor(array)
    tensor._storage = Storage(frozen=True)
    return tensor


def _torch_dtype(x: Any, dtype: DTypeLike) -> Any:
    import sys

    return getattr(sys.modules["torch"], as_dtype(dtype).name)


def frozen_state(value: object) -> tuple[object, int] | None:
    """Return what a packed form of `value` may be keyed by, or None if the value can change unseen.

    Args:
        value: any run-time value.

    Returns:
        (storage, version) for a Parameter, its views and constant Tensors; (value, 0) for an ndarray that owns its
        memory and is not writeable. The pair is equal (by identity of its first item) to a later one exactly
        if nothing was written in between.
    """
    if isinstance(value, Tensor):
        storage = value._storage
        if storage is not None and (storage.guarded or storage.frozen):
            return storage, storage.version
        return None
    if type(value) is np.ndarray:
        flags = value.flags
        if flags.owndata and not flags.writeable and id(value) not in _locked:
            return value, 0
    return None
