"""`Tensor`: an ndarray with a version, a layout name and a fixed set of dtypes, that stays a Tensor under NumPy.

In: arrays, lists, scalars, torch tensors, anything with DLPack. Out: every operator, method and NumPy function gives
what it gives for the array inside, with arrays and NumPy scalars of the result turned into Tensors (rank 0 for a
scalar), views as Tensors over the same storage, and an operand returned as itself. Any torch operand makes the result
a torch tensor, computed by torch where torch has the operator.

Invariants: `_array` is a plain ndarray of a dtype in `tiercel.dtypes`. Tensors over one memory that were made from one
another share one `Storage`, and every write through a Tensor moves its version. The storage object is made when it is
first shared or asked for: a result nobody has looked at twice cannot have a stale reader.

Why not a subclass of ndarray: every NumPy function would return it with no say of ours, `np.asarray(parameter)` would
hand out writable memory, and guards test for exact ndarrays.
"""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final, Literal, Self, SupportsIndex, TypeAlias, TypeVar, overload

import ml_dtypes  # noqa: F401  registers bfloat16 with NumPy
import numpy as np
import numpy.typing as npt

from tiercel.dtypes import DTYPES, DType, DTypeLike, as_dtype
from tiercel.values.growth import append, own
from tiercel.values.interchange import from_torch, is_torch, to_torch
from tiercel.values.spec import TensorSpec, tensor_spec
from tiercel.values.storage import Storage

__all__ = [
    "ATOMS", "Tensor", "adopt", "before_write", "concatenate", "finish", "from_dlpack", "mark_written", "storage_of",
    "unwrap", "unwrap_into", "view_of",
]  # fmt: skip

Array: TypeAlias = npt.NDArray[Any]
Layout: TypeAlias = Literal["C", "F", "strided"]
_T = TypeVar("_T", bound="Tensor")
_F = TypeVar("_F", bound=Callable[..., Any])
Axis: TypeAlias = "SupportsIndex | Sequence[SupportsIndex] | None"

_ndarray: Final = np.ndarray
_asarray: Final = np.asarray
_new: Final[Callable[[type], Any]] = object.__new__
_NUMPY_DTYPES: Final = frozenset(d.numpy for d in DTYPES)
_PYTHON_SCALARS: Final = frozenset({int, float, bool, complex})
# Types that hold no Tensor, so that most arguments are told by one look.
ATOMS: Final = frozenset(
    {int, float, bool, complex, type(None), type(Ellipsis), str, slice, type, np.ndarray, np.dtype}
)
_BASIC_KEYS: Final = frozenset({int, slice, type(None), type(Ellipsis)})
_storage_lock = threading.Lock()


def _renew_storage_lock() -> None:
    # A fork while another thread holds the lock would leave it held for ever in the child.
    global _storage_lock
    _storage_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_storage_lock)


# ---- wrapping and unwrapping -----------------------------------------------------------------------------------------


def _wrap(array: Array) -> Tensor:
    tensor: Tensor = _new(Tensor)
    tensor._array = array
    tensor._storage = None
    return tensor


def view_of(array: Array, storage: Storage) -> Tensor:
    """A Tensor over an array whose memory belongs to a storage."""
    tensor: Tensor = _new(Tensor)
    tensor._array = array
    tensor._storage = storage
    if storage.block is not None:
        storage.block.watch(tensor)
    return tensor


def storage_of(tensor: Tensor) -> Storage:
    """Return the storage that a tensor shares with its views; the same object for as long as the tensor lives."""
    storage = tensor._storage
    if storage is None:
        with _storage_lock:
            storage = tensor._storage
            if storage is None:
                storage = tensor._storage = Storage()
    return storage


def adopt(value: Any, sources: Sequence[Tensor] = ()) -> Any:
    """Turn a result of NumPy into the result for Tensors.

    Args:
        value: what the NumPy function returned.
        sources: the Tensors whose arrays were among its operands.

    Returns:
        For the array of a source, that source; for a view of one, a Tensor of its storage; for any other ndarray or
        NumPy scalar of a dtype Tiercel has, a new Tensor; tuples (named ones too) and lists element by element;
        anything else as it is.
    """
    kind = type(value)
    if kind is _ndarray:
        for source in sources:
            if value is source._array:
                return source
        base = value.base
        if base is not None:
            for source in sources:
                array = source._array
                if base is array or base is array.base:
                    return view_of(value, storage_of(source))
        return _wrap(value) if value.dtype in _NUMPY_DTYPES else value
    if isinstance(value, np.generic):
        return _wrap(_asarray(value)) if value.dtype in _NUMPY_DTYPES else value
    if isinstance(value, tuple):
        items = [adopt(item, sources) for item in value]
        return tuple(items) if kind is tuple else kind(*items)
    if kind is list:
        return [adopt(item, sources) for item in value]
    return value


def unwrap(x: Any) -> Any:
    """Return `x` with every Tensor and torch tensor in it (in tuples, lists and dict values too) as an ndarray.

    The same object comes back if there is none in it. The arrays are the Tensors' own, also those of a Parameter: who
    writes into one has to `storage_of(tensor).bump()`.
    """
    return x if type(x) in ATOMS else unwrap_into(x, None, None)


def unwrap_into(x: Any, tensors: list[Tensor] | None, torch: list[Any] | None) -> Any:
    """`unwrap`, which also appends what it found to the two lists."""
    kind = type(x)
    if kind in ATOMS:
        return x
    if isinstance(x, Tensor):
        if tensors is not None:
            tensors.append(x)
        return x._array
    if kind is tuple or kind is list:
        items = [unwrap_into(item, tensors, torch) for item in x]
        return x if all(a is b for a, b in zip(items, x, strict=True)) else kind(items)
    if kind is dict:
        values = {key: unwrap_into(item, tensors, torch) for key, item in x.items()}
        return x if all(values[key] is item for key, item in x.items()) else values
    if is_torch(x):
        if torch is not None:
            torch.append(x)
        return from_torch(x)
    return x


def _result(value: Any) -> Any:
    """What an operator gives for a fresh result of NumPy."""
    if type(value) is _ndarray:
        return _wrap(value) if value.dtype in _NUMPY_DTYPES else value
    return adopt(value)


# ---- operators -------------------------------------------------------------------------------------------------------


def _binary(name: str, apply: Callable[[Any, Any], Any]) -> Callable[[Tensor, Any], Tensor]:
    def method(self: Tensor, other: Any) -> Any:
        kind = type(other)
        if kind is Tensor:
            value = apply(self._array, other._array)
        elif kind in _PYTHON_SCALARS:
            value = apply(self._array, other)
        elif isinstance(other, Tensor):
            value = apply(self._array, other._array)
        elif is_torch(other):
            before_write(self)
            return apply(to_torch(self._array), other)
        elif getattr(kind, "__array_ufunc__", kind) is None:
            # NumPy's way of saying: ask the other operand. It should see the Tensor, not the array.
            return NotImplemented
        else:
            return _result(apply(self._array, other))
        if type(value) is not _ndarray:
            return adopt(value)
        tensor = _new(Tensor)
        tensor._array = value
        tensor._storage = None
        return tensor

    return _named(method, name, "Return a new Tensor with NumPy's result, elementwise.")


def _reflected(name: str, apply: Callable[[Any, Any], Any]) -> Callable[[Tensor, Any], Tensor]:
    def method(self: Tensor, other: Any) -> Any:
        if is_torch(other):
            before_write(self)
            return apply(other, to_torch(self._array))
        return _result(apply(other, self._array))

    return _named(method, name, "The operator with the Tensor on the right.")


def _in_place(name: str, apply: Callable[[Any, Any], Any]) -> Callable[[_T, Any], _T]:
    def method(self: Tensor, other: Any) -> Any:
        value = unwrap(other)
        before_write(self)
        try:
            apply(self._array, value)
        finally:
            # Also after an error: NumPy may have written a part, or all and then raised for the error state.
            storage = self._storage
            if storage is not None:
                storage.bump()
        return self

    return _named(method, name, "Write NumPy's result into this Tensor's memory and return the Tensor.")


def _unary(name: str, apply: Callable[[Any], Any]) -> Callable[[Tensor], Tensor]:
    def method(self: Tensor) -> Any:
        return _result(apply(self._array))

    return _named(method, name, "Return a new Tensor with NumPy's result, elementwise.")


def _named(method: _F, name: str, doc: str) -> _F:
    method.__name__ = name
    method.__qualname__ = f"Tensor.{name}"
    method.__doc__ = doc
    return method


def _method(self: Tensor, name: str, *args: Any, out: Any = None, **keywords: Any) -> Tensor:
    """Call an ndarray method whose result may be a view. `out=` is written and returned as NumPy does."""
    before_write(out)
    method = getattr(self._array, name)
    if out is None:
        return adopt(method(*unwrap(args), **unwrap(keywords)), (self,))  # type: ignore[no-any-return]
    try:
        method(*unwrap(args), out=unwrap(out), **unwrap(keywords))
    finally:
        mark_written(out)
    return out  # type: ignore[no-any-return]


def _reduce(self: Tensor, name: str, out: Any, keywords: dict[str, Any]) -> Tensor:
    """Call an ndarray method whose result is always new."""
    before_write(out)
    method = getattr(self._array, name)
    if out is None:
        return _result(method(**keywords))  # type: ignore[no-any-return]
    try:
        method(out=unwrap(out), **keywords)
    finally:
        mark_written(out)
    return out  # type: ignore[no-any-return]


def _write_method(self: Tensor, name: str, *args: Any, **keywords: Any) -> None:
    """Call an ndarray method that writes into the array."""
    before_write(self)
    try:
        getattr(self._array, name)(*unwrap(args), **unwrap(keywords))
    finally:
        mark_written(self)


def before_write(x: object) -> None:
    """Leave the memory of a Tensor to it alone before it is written to or handed out; in a tuple or list, of each."""
    if isinstance(x, Tensor):
        if x._storage is not None and x._storage.block is not None:
            own(x._storage)
    elif isinstance(x, tuple | list):
        for item in x:
            before_write(item)


def mark_written(x: object) -> None:
    """Move the version of a Tensor that was written to; in a tuple or list, of each. Anything else has no version."""
    if isinstance(x, Tensor):
        if x._storage is not None:
            x._storage.bump()
    elif isinstance(x, tuple | list):
        for item in x:
            mark_written(item)


class Tensor:
    """An array of fixed dtype with a version, used like an ndarray.

    `Tensor(data, dtype=None)` wraps an ndarray without copying it (unless the dtype changes), shares the memory of
    torch and DLPack tensors, and makes an array of anything else as `np.asarray` does.

    `Tensor(shape=[None, None, 128])` and `Tensor[None, None, 128]` are shape hints for annotations; see `tiercel.spec`.

    Args:
        data: what to wrap.
        dtype: an element type; None keeps that of `data`.
        shape: only for a hint, and then alone with `dtype`.

    Raises:
        DTypeError: the array would have a dtype that Tiercel does not have.
        TypeError: masked arrays, whose mask would be lost; a torch tensor on another device; data and shape together.
        RuntimeError: a torch tensor that needs a gradient.
    """

    __slots__ = ("__weakref__", "_array", "_storage")

    _array: Array
    _storage: Storage | None

    __hash__ = object.__hash__
    __array_priority__: ClassVar[float] = 1000.0

    @overload
    def __new__(cls, data: Any, dtype: DTypeLike | None = None) -> Self: ...
    @overload
    def __new__(cls, *, dtype: DTypeLike | None = None, shape: Sequence[Any]) -> TensorSpec: ...  # type: ignore[misc]
    def __new__(cls, data: Any = None, dtype: DTypeLike | None = None, *, shape: Sequence[Any] | None = None) -> Any:
        """Return a Tensor over `data`, or a hint if only `shape` (and `dtype`) are given."""
        if shape is not None:
            if data is not None:
                raise TypeError(
                    "Tensor() takes data or shape=, not both: Tensor(data) is a tensor, Tensor(shape=[...]) a hint"
                )
            return tensor_spec(tuple(shape), dtype=dtype)
        if data is None:
            raise TypeError("Tensor() needs data; Tensor(shape=[...]) makes a shape hint")
        self: Self = _new(cls)
        self._array, self._storage = _contents(data, dtype)
        return self

    def __class_getitem__(cls, key: Any) -> TensorSpec:
        """Return the hint that `Tensor[None, "T", 128]` is; a dtype may stand first or last."""
        return tensor_spec(key if isinstance(key, tuple) else (key,))

    # ---- attributes --------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        return self._array.shape

    @property
    def dtype(self) -> DType:
        """Element type; equal to the `np.dtype` of the same type."""
        return as_dtype(self._array.dtype)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes to step in each dimension, as NumPy counts them."""
        return self._array.strides

    @property
    def layout(self) -> Layout:
        """Say "C" if C-contiguous, "F" if only Fortran-contiguous, else "strided"."""
        flags = self._array.flags
        return "C" if flags.c_contiguous else "F" if flags.f_contiguous else "strided"

    @property
    def device(self) -> str:
        """Where the memory is: "cpu"."""
        return "cpu"

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._array.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._array.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._array.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._array.nbytes

    @property
    def flags(self) -> Any:
        """NumPy's flags of the array that `numpy()` gives."""
        return self.numpy().flags

    @property
    def version(self) -> int:
        """A number that every write through this Tensor or a view of the same storage changes."""
        return storage_of(self).version

    @property
    def base(self) -> Tensor | None:
        """The `Parameter` that this Tensor is a view of, or None. It is a `Parameter`'s own base as well."""
        storage = self._storage
        return None if storage is None else storage.owner

    @property
    def T(self) -> Tensor:  # noqa: N802  NumPy's name
        """A view with the dimensions reversed."""
        return view_of(self._array.T, storage_of(self))

    @property
    def mT(self) -> Tensor:  # noqa: N802  NumPy's name
        """A view with the last two dimensions swapped."""
        return view_of(self._array.mT, storage_of(self))

    @property
    def real(self) -> Tensor:
        """The real part: a view, or the Tensor itself where it is real."""
        return adopt(self._array.real, (self,))  # type: ignore[no-any-return]

    @property
    def imag(self) -> Tensor:
        """The imaginary part: a view; read-only zeros where the Tensor is real."""
        return adopt(self._array.imag, (self,))  # type: ignore[no-any-return]

    def is_contiguous(self) -> bool:
        """Whether the elements lie in memory one after the other in C order."""
        return self._array.flags.c_contiguous

    # ---- exporting ---------------------------------------------------------------------------------------------------

    def numpy(self) -> Array:
        """Return the ndarray over the same memory; read-only if it is a Parameter's."""
        storage = self._storage
        if storage is not None and storage.block is not None:
            own(storage)
        if storage is None or not storage.guarded:
            return self._array
        array = self._array.view()
        array.flags.writeable = False
        return array

    def item(self, *index: int) -> Any:
        """Return one element as a Python scalar; without an index the Tensor must have just one."""
        return self._array.item(*index)

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python scalars."""
        return self._array.tolist()

    def tobytes(self, order: Literal["C", "F", "A"] | None = "C") -> bytes:
        """Return a copy of the elements as bytes."""
        return self._array.tobytes(order)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """NumPy's protocol: the ndarray over the same memory, or a copy where asked for or needed."""
        array = self.numpy()
        if copy or (dtype is not None and np.dtype(dtype) != array.dtype):
            if copy is False:
                raise ValueError(
                    f"Unable to avoid copy while creating an array as requested: Tensor is {array.dtype}, "
                    f"asked for {np.dtype(dtype)}"
                )
            return np.array(array, dtype=dtype, copy=True)
        return array

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export for DLPack, as NumPy exports the array.

        Raises:
            BufferError: bfloat16, which NumPy cannot export; read-only memory for a consumer older than DLPack 1.0.
        """
        if self._array.dtype.kind == "V":
            raise BufferError(
                f"NumPy's DLPack has no {self.dtype}; use x.view(np.uint16) and reinterpret it on the other side"
            )
        return self.numpy().__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU, as DLPack writes it."""
        return self._array.__dlpack_device__()

    # ---- NumPy's protocols -------------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        """Run a ufunc on the arrays and return Tensors; `out=` arrays are written and returned as they are."""
        if method == "__call__" and not keywords:
            arrays = []
            for x in inputs:
                kind = type(x)
                if kind is Tensor:
                    arrays.append(x._array)
                elif kind is _ndarray or kind in _PYTHON_SCALARS:
                    arrays.append(x)
                else:
                    break
            else:
                return _result(ufunc(*arrays))
        return _ufunc(ufunc, method, inputs, keywords)

    def __array_function__(self, function: Any, types: Any, args: Any, keywords: Any) -> Any:
        """Run a NumPy function on the arrays and return Tensors; see `adopt`."""
        return _function(function, types, args, keywords)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """torch's protocol: run a torch function on torch tensors over the same memory; the result is torch's."""
        keywords = kwargs or {}
        seen: list[Tensor] = []
        try:
            return function(*_torchify(args, seen), **_torchify(keywords, seen))
        finally:
            name = getattr(function, "__name__", "")
            if "out" in keywords or name.endswith("_") or name.startswith("__i"):
                mark_written(seen)

    # ---- operators ---------------------------------------------------------------------------------------------------

    __add__ = _binary("__add__", operator.add)
    __sub__ = _binary("__sub__", operator.sub)
    __mul__ = _binary("__mul__", operator.mul)
    __truediv__ = _binary("__truediv__", operator.truediv)
    __floordiv__ = _binary("__floordiv__", operator.floordiv)
    __mod__ = _binary("__mod__", operator.mod)
    __divmod__ = _binary("__divmod__", divmod)
    __pow__ = _binary("__pow__", operator.pow)
    __matmul__ = _binary("__matmul__", operator.matmul)
    __and__ = _binary("__and__", operator.and_)
    __or__ = _binary("__or__", operator.or_)
    __xor__ = _binary("__xor__", operator.xor)
    __lshift__ = _binary("__lshift__", operator.lshift)
    __rshift__ = _binary("__rshift__", operator.rshift)
    __lt__ = _binary("__lt__", operator.lt)
    __le__ = _binary("__le__", operator.le)
    __gt__ = _binary("__gt__", operator.gt)
    __ge__ = _binary("__ge__", operator.ge)
    __eq__ = _binary("__eq__", operator.eq)  # type: ignore[assignment]
    __ne__ = _binary("__ne__", operator.ne)  # type: ignore[assignment]

    __radd__ = _reflected("__radd__", operator.add)
    __rsub__ = _reflected("__rsub__", operator.sub)
    __rmul__ = _reflected("__rmul__", operator.mul)
    __rtruediv__ = _reflected("__rtruediv__", operator.truediv)
    __rfloordiv__ = _reflected("__rfloordiv__", operator.floordiv)
    __rmod__ = _reflected("__rmod__", operator.mod)
    __rdivmod__ = _reflected("__rdivmod__", divmod)
    __rpow__ = _reflected("__rpow__", operator.pow)
    __rmatmul__ = _reflected("__rmatmul__", operator.matmul)
    __rand__ = _reflected("__rand__", operator.and_)
    __ror__ = _reflected("__ror__", operator.or_)
    __rxor__ = _reflected("__rxor__", operator.xor)
    __rlshift__ = _reflected("__rlshift__", operator.lshift)
    __rrshift__ = _reflected("__rrshift__", operator.rshift)

    __iadd__ = _in_place("__iadd__", operator.iadd)
    __isub__ = _in_place("__isub__", operator.isub)
    __imul__ = _in_place("__imul__", operator.imul)
    __itruediv__ = _in_place("__itruediv__", operator.itruediv)
    __ifloordiv__ = _in_place("__ifloordiv__", operator.ifloordiv)
    __imod__ = _in_place("__imod__", operator.imod)
    __ipow__ = _in_place("__ipow__", operator.ipow)
    __imatmul__ = _in_place("__imatmul__", operator.imatmul)
    __iand__ = _in_place("__iand__", operator.iand)
    __ior__ = _in_place("__ior__", operator.ior)
    __ixor__ = _in_place("__ixor__", operator.ixor)
    __ilshift__ = _in_place("__ilshift__", operator.ilshift)
    __irshift__ = _in_place("__irshift__", operator.irshift)

    __neg__ = _unary("__neg__", operator.neg)
    __pos__ = _unary("__pos__", operator.pos)
    __abs__ = _unary("__abs__", operator.abs)
    __invert__ = _unary("__invert__", operator.invert)

    # ---- Python's protocols ------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Tensor:
        """Index as NumPy does: a view sharing the storage for basic keys, a copy for advanced ones."""
        array = self._array
        value = array[key if type(key) in _BASIC_KEYS else unwrap(key)]
        if type(value) is _ndarray:
            base = value.base
            if base is not None and (base is array or base is array.base):
                return view_of(value, storage_of(self))
            return _wrap(value)
        return _wrap(_asarray(value))

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write as NumPy does, and move the version."""
        before_write(self)
        try:
            self._array[key if type(key) in _BASIC_KEYS else unwrap(key)] = unwrap(value)
        finally:
            storage = self._storage
            if storage is not None:
                storage.bump()

    def __len__(self) -> int:
        """Size of the first dimension."""
        return len(self._array)

    def __iter__(self) -> Iterator[Tensor]:
        """Go through the first dimension, in views."""
        # iter() outside the generator: rank 0 is refused at once, as NumPy refuses it.
        items = iter(self._array)
        sources = (self,)
        return (adopt(item, sources) for item in items)

    def __contains__(self, value: Any) -> bool:
        """Whether an element equals `value`."""
        return unwrap(value) in self._array

    def __bool__(self) -> bool:
        """The truth of a single element; NumPy's ValueError for more."""
        return bool(self._array)

    def __int__(self) -> int:
        """A single element as int; NumPy's TypeError for more."""
        return int(self._array)

    def __float__(self) -> float:
        """A single element as float; NumPy's TypeError for more."""
        return float(self._array)

    def __complex__(self) -> complex:
        """A single element as complex; NumPy's TypeError for more."""
        return complex(self._array)

    def __index__(self) -> int:
        """A rank-0 integer Tensor as an index."""
        return operator.index(self._array)

    def __repr__(self) -> str:
        return self._text("Tensor(")

    def __str__(self) -> str:
        return str(self._array)

    def __format__(self, spec: str) -> str:
        return format(self._array, spec)

    def _text(self, head: str) -> str:
        array = self._array
        body = np.array2string(array, separator=", ", prefix=head)
        shape = f", shape={array.shape}" if array.size == 0 or array.size > np.get_printoptions()["threshold"] else ""
        return f"{head}{body}{shape}, dtype={self.dtype})"

    def __reduce__(self) -> tuple[Any, ...]:
        frozen = self._storage is not None and self._storage.frozen
        return _restore, (self._array, frozen)

    def __copy__(self) -> Tensor:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        # Nobody can change a frozen tensor, so a copy would be the same.
        return self if self._storage is not None and self._storage.frozen else self.copy("K")

    # ---- layout and copies -------------------------------------------------------------------------------------------

    def contiguous(self) -> Tensor:
        """Return this Tensor if it is C-contiguous, else a C-contiguous copy."""
        return self if self._array.flags.c_contiguous else _wrap(np.ascontiguousarray(self._array))

    def copy(self, order: Literal["C", "F", "A", "K"] = "C") -> Tensor:
        """Return a copy with memory of its own."""
        return _wrap(self._array.copy(order))

    def astype(
        self,
        dtype: DTypeLike,
        order: Literal["C", "F", "A", "K"] = "K",
        casting: Literal["no", "equiv", "safe", "same_kind", "unsafe"] = "unsafe",
        *,
        copy: bool = True,
    ) -> Tensor:
        """Return the elements converted to `dtype`; this Tensor itself if nothing changes and `copy` is False."""
        array = self._array.astype(as_dtype(dtype).numpy, order=order, casting=casting, copy=copy)
        return adopt(array, (self,))  # type: ignore[no-any-return]

    def view(self, dtype: DTypeLike | None = None) -> Tensor:
        """Return a view of the same memory, its bytes read as `dtype`. `reshape` is the method that changes shapes."""
        array = self._array.view() if dtype is None else self._array.view(as_dtype(dtype).numpy)
        return view_of(array, storage_of(self))

    def reshape(self, *shape: Any, order: Literal["C", "F", "A"] = "C", copy: bool | None = None) -> Tensor:
        """Return the elements in another shape: a view where the layout allows, else a copy. One size may be -1."""
        keywords: dict[str, Any] = {} if copy is None else {"copy": copy}
        return _method(self, "reshape", *shape, order=order, **keywords)

    def transpose(self, *axes: Any) -> Tensor:
        """Return a view with the dimensions permuted, reversed by default."""
        return view_of(self._array.transpose(*axes), storage_of(self))

    def swapaxes(self, axis1: SupportsIndex, axis2: SupportsIndex) -> Tensor:
        """Return a view with two dimensions exchanged."""
        return view_of(self._array.swapaxes(axis1, axis2), storage_of(self))

    def squeeze(self, axis: Any = None) -> Tensor:
        """Return a view without dimensions of size 1."""
        return _method(self, "squeeze", axis)

    def ravel(self, order: Literal["C", "F", "A", "K"] = "C") -> Tensor:
        """Return the elements in one dimension: a view where possible."""
        return _method(self, "ravel", order)

    def flatten(self, order: Literal["C", "F", "A", "K"] = "C") -> Tensor:
        """Return a copy in one dimension."""
        return _method(self, "flatten", order)

    def diagonal(self, offset: SupportsIndex = 0, axis1: SupportsIndex = 0, axis2: SupportsIndex = 1) -> Tensor:
        """Return a read-only view of a diagonal."""
        return _method(self, "diagonal", offset, axis1, axis2)

    # ---- reductions --------------------------------------------------------------------------------------------------

    def sum(self, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False, **more: Any) -> Tensor:
        """Sum over `axis`, all by default."""
        return _reduce(self, "sum", out, {"axis": axis, "dtype": dtype, "keepdims": keepdims, **more})

    def prod(
        self, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False, **more: Any
    ) -> Tensor:
        """Product over `axis`, all by default."""
        return _reduce(self, "prod", out, {"axis": axis, "dtype": dtype, "keepdims": keepdims, **more})

    def mean(
        self, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False, **more: Any
    ) -> Tensor:
        """Mean over `axis`, all by default."""
        return _reduce(self, "mean", out, {"axis": axis, "dtype": dtype, "keepdims": keepdims, **more})

    def var(
        self,
        axis: Axis = None,
        dtype: Any = None,
        out: Any = None,
        ddof: float = 0,
        keepdims: bool = False,
        **more: Any,
    ) -> Tensor:
        """Variance over `axis`, all by default."""
        return _reduce(self, "var", out, {"axis": axis, "dtype": dtype, "ddof": ddof, "keepdims": keepdims, **more})

    def std(
        self,
        axis: Axis = None,
        dtype: Any = None,
        out: Any = None,
        ddof: float = 0,
        keepdims: bool = False,
        **more: Any,
    ) -> Tensor:
        """Standard deviation over `axis`, all by default."""
        return _reduce(self, "std", out, {"axis": axis, "dtype": dtype, "ddof": ddof, "keepdims": keepdims, **more})

    def max(self, axis: Axis = None, out: Any = None, keepdims: bool = False, **more: Any) -> Tensor:
        """Largest element over `axis`, all by default."""
        return _reduce(self, "max", out, {"axis": axis, "keepdims": keepdims, **more})

    def min(self, axis: Axis = None, out: Any = None, keepdims: bool = False, **more: Any) -> Tensor:
        """Smallest element over `axis`, all by default."""
        return _reduce(self, "min", out, {"axis": axis, "keepdims": keepdims, **more})

    def all(self, axis: Axis = None, out: Any = None, keepdims: bool = False, **more: Any) -> Tensor:
        """Whether all elements over `axis` are true."""
        return _reduce(self, "all", out, {"axis": axis, "keepdims": keepdims, **more})

    def any(self, axis: Axis = None, out: Any = None, keepdims: bool = False, **more: Any) -> Tensor:
        """Whether any element over `axis` is true."""
        return _reduce(self, "any", out, {"axis": axis, "keepdims": keepdims, **more})

    def argmax(self, axis: SupportsIndex | None = None, out: Any = None, *, keepdims: bool = False) -> Tensor:
        """Index of the first largest element along `axis`, of the flattened Tensor by default."""
        return _reduce(self, "argmax", out, {"axis": axis, "keepdims": keepdims})

    def argmin(self, axis: SupportsIndex | None = None, out: Any = None, *, keepdims: bool = False) -> Tensor:
        """Index of the first smallest element along `axis`, of the flattened Tensor by default."""
        return _reduce(self, "argmin", out, {"axis": axis, "keepdims": keepdims})

    def cumsum(self, axis: SupportsIndex | None = None, dtype: Any = None, out: Any = None) -> Tensor:
        """Running sum along `axis`, of the flattened Tensor by default."""
        return _reduce(self, "cumsum", out, {"axis": axis, "dtype": dtype})

    def cumprod(self, axis: SupportsIndex | None = None, dtype: Any = None, out: Any = None) -> Tensor:
        """Running product along `axis`, of the flattened Tensor by default."""
        return _reduce(self, "cumprod", out, {"axis": axis, "dtype": dtype})

    def trace(
        self,
        offset: SupportsIndex = 0,
        axis1: SupportsIndex = 0,
        axis2: SupportsIndex = 1,
        dtype: Any = None,
        out: Any = None,
    ) -> Tensor:
        """Sum along a diagonal."""
        return _method(self, "trace", offset, axis1, axis2, dtype=dtype, out=out)

    # ---- elements and searching --------------------------------------------------------------------------------------

    def clip(self, min: Any = None, max: Any = None, out: Any = None, **more: Any) -> Tensor:
        """Elements limited to `min` and `max`."""
        return _method(self, "clip", min, max, out=out, **more)

    def round(self, decimals: SupportsIndex = 0, out: Any = None) -> Tensor:
        """Elements rounded to `decimals`, halves to even."""
        return _method(self, "round", decimals, out=out)

    def conj(self) -> Tensor:
        """Complex conjugate; the Tensor itself where it is real."""
        return _method(self, "conj")

    def conjugate(self) -> Tensor:
        """Complex conjugate; the Tensor itself where it is real."""
        return _method(self, "conjugate")

    def dot(self, b: Any, out: Any = None) -> Tensor:
        """`np.dot` with `b`."""
        return _method(self, "dot", b, out=out)

    def take(self, indices: Any, axis: SupportsIndex | None = None, out: Any = None, mode: Any = "raise") -> Tensor:
        """Elements at `indices` along `axis`."""
        return _method(self, "take", indices, axis=axis, out=out, mode=mode)

    def choose(self, choices: Any, out: Any = None, mode: Any = "raise") -> Tensor:
        """Elements of `choices` picked by this Tensor."""
        return _method(self, "choose", choices, out=out, mode=mode)

    def compress(self, condition: Any, axis: SupportsIndex | None = None, out: Any = None) -> Tensor:
        """Slices along `axis` where `condition` holds."""
        return _method(self, "compress", condition, axis=axis, out=out)

    def repeat(self, repeats: Any, axis: SupportsIndex | None = None) -> Tensor:
        """Each element repeated."""
        return _method(self, "repeat", repeats, axis)

    def nonzero(self) -> tuple[Tensor, ...]:
        """Indices of the non-zero elements, one Tensor a dimension."""
        return tuple(_wrap(indices) for indices in self._array.nonzero())

    def searchsorted(self, v: Any, side: Literal["left", "right"] = "left", sorter: Any = None) -> Tensor:
        """Positions where `v` would be inserted."""
        return _method(self, "searchsorted", v, side=side, sorter=sorter)

    def argsort(self, axis: SupportsIndex | None = -1, kind: Any = None, *, stable: bool | None = None) -> Tensor:
        """Indices that sort along `axis`."""
        return _method(self, "argsort", axis, kind=kind, stable=stable)

    def argpartition(self, kth: Any, axis: SupportsIndex | None = -1, kind: Any = "introselect") -> Tensor:
        """Indices that partition along `axis`."""
        return _method(self, "argpartition", kth, axis, kind)

    # ---- writing -----------------------------------------------------------------------------------------------------

    def fill(self, value: Any) -> None:
        """Set every element to `value`."""
        _write_method(self, "fill", value)

    def sort(self, axis: SupportsIndex = -1, kind: Any = None, *, stable: bool | None = None) -> None:
        """Sort along `axis` in place."""
        _write_method(self, "sort", axis, kind=kind, stable=stable)

    def partition(self, kth: Any, axis: SupportsIndex = -1, kind: Any = "introselect") -> None:
        """Partition along `axis` in place."""
        _write_method(self, "partition", kth, axis, kind)

    def put(self, indices: Any, values: Any, mode: Any = "raise") -> None:
        """Set the elements at flat `indices`."""
        _write_method(self, "put", indices, values, mode)


# ---- making and restoring --------------------------------------------------------------------------------------------


def _contents(data: Any, dtype: DTypeLike | None) -> tuple[Array, Storage | None]:
    """The array for `data`, and the storage to share if it is the memory of a Tensor."""
    wanted = None if dtype is None else as_dtype(dtype).numpy
    if isinstance(data, Tensor):
        array = data._array
        if wanted is None or wanted == array.dtype:
            return array, storage_of(data)
        return array.astype(wanted), None
    if isinstance(data, np.ma.MaskedArray):
        raise TypeError("Tensor() would lose the mask of a masked array; pass x.filled(value), or x.data to ignore it")
    if is_torch(data):
        array = from_torch(data)
    elif isinstance(data, np.ndarray | np.generic) or not hasattr(data, "__dlpack__"):
        array = np.asarray(unwrap(data))
    else:
        array = np.from_dlpack(data)
    if wanted is not None and wanted != array.dtype:
        array = array.astype(wanted)
    as_dtype(array.dtype)
    return array, None


def _restore(array: Array, frozen: bool) -> Tensor:
    if not frozen:
        return _wrap(array)
    array.flags.writeable = False
    return view_of(array, Storage(frozen=True))


def from_dlpack(x: Any, /, *, copy: bool | None = None) -> Tensor:
    """Return a Tensor over the memory of `x`.

    Args:
        x: an object with `__dlpack__` and `__dlpack_device__`, on the CPU.
        copy: True for memory of its own, False to refuse where a copy is needed, None for a copy only where needed.

    Raises:
        BufferError: the exporter refuses, for example torch for a tensor that needs a gradient.
        DTypeError: the dtype is none of Tiercel's.
    """
    array = np.from_dlpack(x, copy=copy)
    as_dtype(array.dtype)
    return _wrap(array)


# ---- NumPy's dispatching ---------------------------------------------------------------------------------------------

# The argument that each NumPy function writes into, besides `out=`.
_WRITERS: Final[dict[Any, tuple[int, str]]] = {
    np.copyto: (0, "dst"),
    np.put: (0, "a"),
    np.place: (0, "arr"),
    np.putmask: (0, "a"),
    np.put_along_axis: (0, "arr"),
    np.fill_diagonal: (0, "a"),
}


def finish(value: Any, tensors: Sequence[Tensor], torch: Sequence[Any]) -> Any:
    """Turn a result of NumPy into the result for these operands, as `unwrap_into` found them: torch's, else Tensors."""
    return _to_torch_result(value) if torch else adopt(value, tensors)


def _to_torch_result(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype in _NUMPY_DTYPES:
        return to_torch(np.asarray(value))
    if isinstance(value, tuple):
        items = [_to_torch_result(item) for item in value]
        return tuple(items) if type(value) is tuple else type(value)(*items)
    if type(value) is list:
        return [_to_torch_result(item) for item in value]
    return value


def _ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    out: tuple[Any, ...] = keywords.get("out", ())
    for x in (*inputs, *out):
        theirs = getattr(type(x), "__array_ufunc__", None)
        if theirs is not None and not isinstance(x, Tensor) and theirs is not np.ndarray.__array_ufunc__:
            return NotImplemented
    before_write(inputs[0] if method == "at" else out)
    tensors: list[Tensor] = []
    torch: list[Any] = []
    arrays = [unwrap_into(x, tensors, torch) for x in inputs]
    options = unwrap(keywords)
    run = getattr(ufunc, method)
    if method == "at":
        try:
            run(*arrays, **options)
        finally:
            mark_written(inputs[0])
        return None
    if not out:
        return finish(run(*arrays, **options), tensors, torch)
    try:
        value = run(*arrays, **options)
    finally:
        mark_written(out)
    if len(out) == 1:
        return out[0]
    return tuple(finish(v, tensors, torch) if o is None else o for v, o in zip(value, out, strict=True))


def _function(function: Any, types: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    for kind in types:
        theirs = kind.__array_function__
        if theirs is not np.ndarray.__array_function__ and not issubclass(kind, Tensor):
            return NotImplemented
    if function is np.concatenate:
        return concatenate(*args, **keywords)
    before_write(_target(function, args, keywords))
    tensors: list[Tensor] = []
    torch: list[Any] = []
    arrays = unwrap_into(args, tensors, torch)
    options = unwrap_into(keywords, tensors, torch) if keywords else keywords
    if not getattr(function, "__module__", "").startswith("numpy"):
        # Somebody else's function: what it writes into is not known, so it gets the arrays as `numpy()` exports them.
        return finish(function(*_export(args), **_export(keywords)), tensors, torch)
    out = keywords.get("out")
    target = _target(function, args, keywords)
    try:
        value = function(*arrays, **options)
    finally:
        if target is not None:
            mark_written(target)
    return finish(value, tensors, torch) if out is None else out


def _target(function: Any, args: Sequence[Any], keywords: dict[str, Any]) -> Any:
    """What a NumPy function writes into, None for nothing."""
    writes = _WRITERS.get(function)
    if writes is not None:
        position, name = writes
        return args[position] if len(args) > position else keywords.get(name)
    if function is np.nan_to_num and not (args[1] if len(args) > 1 else keywords.get("copy", True)):
        return args[0] if args else keywords.get("x")
    return keywords.get("out")


def concatenate(arrays: Any, axis: Any = 0, out: Any = None, **keywords: Any) -> Any:
    """`np.concatenate` of operands among which is a Tensor or torch tensor.

    What it makes of a Tensor can grow: concatenated again along the same axis, it gets spare capacity, and from then on
    only the new part is copied. See `growth`.
    """
    first = arrays[0] if type(arrays) in (list, tuple) and arrays else None
    place = -1
    if isinstance(first, Tensor) and out is None and type(axis) is int and all(v is None for v in keywords.values()):
        rank = first._array.ndim
        if -rank <= axis < rank:
            place = axis % rank
    if isinstance(first, Tensor) and place >= 0 and first._storage is not None and first._storage.grown == place:
        parts = [x._array if type(x) is Tensor else x for x in arrays[1:]]
        grown = append(first, parts, place, view_of)
        if grown is not None:
            return grown
    before_write(out)
    tensors: list[Tensor] = []
    torch: list[Any] = []
    operands = unwrap_into(arrays, tensors, torch)
    try:
        value = np.concatenate(operands, axis, unwrap(out), **unwrap(keywords))
    finally:
        mark_written(out)
    if out is not None:
        return out
    result = finish(value, tensors, torch)
    if place >= 0 and type(result) is Tensor:
        storage_of(result).grown = place
    return result


def _export(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x.numpy()
    kind = type(x)
    if kind is tuple or kind is list:
        return kind(_export(item) for item in x)
    if kind is dict:
        return {key: _export(item) for key, item in x.items()}
    return unwrap(x)


def _torchify(x: Any, into: list[Tensor]) -> Any:
    """`x` with its Tensors as torch tensors over the same memory; the Tensors are appended to `into`."""
    if isinstance(x, Tensor):
        into.append(x)
        before_write(x)
        return to_torch(x._array)
    kind = type(x)
    if kind is tuple or kind is list:
        return kind(_torchify(item, into) for item in x)
    if kind is dict:
        return {key: _torchify(item, into) for key, item in x.items()}
    return x
