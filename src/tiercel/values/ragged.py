"""`Ragged`: sequences of different lengths as one flat array and offsets, without padding.

In: a list of arrays, or a padded array with lengths. Out: a `Ragged`, on which elementwise operators, reductions of
rows and products with shared weights work as on the flat array of all steps (`values`), and reductions over a sequence
work per sequence. `map` hands the flat array to a function, compiled or not: to it the number of rows is a size that
changes from call to call. Attention and loops over time are in `tiercel.nn` (`ragged_attention`, `ragged_scan`).

Shape: a Ragged of n sequences stands for an array (n, length of each, *inner). `values` is (sum of lengths, *inner),
and sequence i is `values[offsets[i]:offsets[i + 1]]`. Operands line up from the right as NumPy's do: an array (*inner)
or (1, *inner) is shared by all steps, one of shape (n, 1, *inner) belongs to each sequence.

Invariants: offsets are int64, begin with 0, never decrease, end with `len(values)`, and are read-only.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tiercel.dtypes import DType, as_dtype
from tiercel.errors import ShapeError
from tiercel.values.tensor import Tensor, unwrap

__all__ = ["Ragged", "ragged"]

Array = npt.NDArray[Any]


def _array(x: Any) -> Array:
    return np.asarray(unwrap(x))


class Ragged:
    """Sequences of different lengths, one behind the other.

    Args:
        values: all steps of all sequences, (steps, *inner): an ndarray or Tensor, which is not copied.
        offsets: where each sequence begins, and the number of steps at the end: integers, (sequences + 1,).

    Raises:
        ShapeError: the offsets are not those of such an array.
    """

    __slots__ = ("offsets", "values")
    __array_priority__ = 2000.0
    __hash__ = object.__hash__

    values: Any
    offsets: npt.NDArray[np.int64]

    def __init__(self, values: Any, offsets: Any) -> None:
        flat = values if isinstance(values, np.ndarray | Tensor) else np.asarray(values)
        bounds = np.array(unwrap(offsets), dtype=np.int64)
        if flat.ndim < 1 or bounds.ndim != 1 or not len(bounds):
            raise ShapeError(
                f"Ragged: values {flat.shape} and offsets {bounds.shape}, expected (steps, ...) and (n + 1,)"
            )
        if bounds[0] != 0 or bounds[-1] != len(flat) or (np.diff(bounds) < 0).any():
            raise ShapeError(f"Ragged: offsets must rise from 0 to {len(flat)}, got {bounds.tolist()}")
        bounds.flags.writeable = False
        self.values, self.offsets = flat, bounds

    # ---- making and taking apart -------------------------------------------------------------------------------------

    @classmethod
    def from_list(cls, sequences: Sequence[Any]) -> Ragged:
        """The sequences of a list, arrays (length, *inner) of one inner shape; copied.

        Raises:
            ShapeError: there are none, or their inner shapes differ.
        """
        arrays = [_array(s) for s in sequences]
        if not arrays:
            raise ShapeError(
                "ragged: an empty list does not say what shape and dtype a step has; "
                "for no sequences of steps (16,) give tiercel.Ragged(np.zeros((0, 16), np.float32), [0])"
            )
        if any(a.ndim < 1 or a.shape[1:] != arrays[0].shape[1:] for a in arrays):
            raise ShapeError(f"ragged: shapes {[a.shape for a in arrays]} differ in more than the length")
        wrap = any(isinstance(s, Tensor) for s in sequences)
        flat = np.concatenate(arrays)
        return cls(Tensor(flat) if wrap else flat, np.cumsum([0, *map(len, arrays)]))

    @classmethod
    def from_padded(cls, padded: Any, lengths: Any) -> Ragged:
        """The first `lengths[i]` steps of row i of an array (sequences, time, *inner); copied.

        Raises:
            ShapeError: not one length from 0 to the time for each row.
        """
        array, sizes = _array(padded), _array(lengths)
        if array.ndim < 2 or sizes.shape != array.shape[:1] or sizes.dtype.kind not in "iu":
            raise ShapeError(f"ragged: {array.shape} with lengths {sizes.shape} of {sizes.dtype}")
        if sizes.size and (sizes.min() < 0 or sizes.max() > array.shape[1]):
            raise ShapeError(f"ragged: lengths {sizes.tolist()} of rows of {array.shape[1]} steps")
        flat = array[np.arange(array.shape[1]) < sizes[:, None]]
        return cls(Tensor(flat) if isinstance(padded, Tensor) else flat, np.cumsum([0, *sizes.tolist()]))

    def to_list(self) -> list[Any]:
        """The sequences as views of `values`."""
        return list(self)

    def padded(self, fill: Any = 0, length: int | None = None) -> tuple[Any, npt.NDArray[np.int64]]:
        """(array (sequences, time, *inner), lengths): every sequence filled up at its end.

        Args:
            fill: what is put behind the sequences.
            length: the time; the longest length by default.

        Raises:
            ShapeError: a sequence is longer than `length`.
        """
        lengths = self.lengths
        longest = int(lengths.max()) if len(lengths) else 0
        time = longest if length is None else length
        if time < longest:
            raise ShapeError(f"Ragged.padded: a sequence of {longest} steps does not fit {time}")
        flat = _array(self.values)
        out = np.full((len(self), time, *flat.shape[1:]), fill, flat.dtype)
        out[np.arange(time) < lengths[:, None]] = flat
        return (Tensor(out) if isinstance(self.values, Tensor) else out), lengths

    def with_values(self, values: Any) -> Ragged:
        """A Ragged of the same lengths over other values, one row for each step.

        Raises:
            ShapeError: the rows are not as many.
        """
        shape = np.shape(unwrap(values))
        if not shape or shape[0] != self.offsets[-1]:
            raise ShapeError(f"Ragged.with_values: {shape} for {self.offsets[-1]} steps")
        return RaggedOf(values, self.offsets)

    def map(self, function: Callable[..., Any], *arguments: Any) -> Ragged:
        """`function(values, *arguments)` with a row for each step as the values of a new Ragged.

        For layers that treat every step alike; a jitted function is compiled once for any number of steps. Ragged
        arguments are given as their flat arrays.

        Raises:
            ShapeError: the result has another number of rows, or an argument has other lengths.
        """
        given = (self._flat(a) if isinstance(a, Ragged) else a for a in arguments)
        return self.with_values(function(self.values, *given))

    # ---- attributes --------------------------------------------------------------------------------------------------

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Steps of each sequence."""
        return np.diff(self.offsets)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """(sequences, None, *inner)."""
        return (len(self), None, *self.values.shape[1:])

    @property
    def ndim(self) -> int:
        """Number of dimensions, the ragged one included."""
        return 1 + int(self.values.ndim)

    @property
    def dtype(self) -> DType:
        """Element type."""
        return as_dtype(self.values.dtype)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        """Sequence `index` as a view, or a Ragged of several (a slice, or an array of indices or bools; copied)."""
        if isinstance(index, int | np.integer):
            number = operator.index(index)
            number = number + len(self) if number < 0 else number
            if not 0 <= number < len(self):
                raise IndexError(f"sequence {operator.index(index)} of {len(self)}")
            return self.values[int(self.offsets[number]) : int(self.offsets[number + 1])]
        chosen = np.arange(len(self))[unwrap(index)]
        if chosen.ndim != 1:
            raise IndexError("a Ragged is indexed by one number, slice, or array of numbers or bools")
        if not len(chosen):
            return Ragged(self.values[:0], [0])
        return Ragged.from_list([self[int(i)] for i in chosen])

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return (
            f"Ragged({len(self)} sequences of {self.lengths.tolist()} steps, {self.dtype}{list(self.values.shape[1:])})"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Refuse: sequences of different lengths are no array, and padding is the user's choice."""
        raise TypeError(
            f"a Ragged of shape {self.shape} is no array: use .values for all steps behind one another, "
            "or .padded() for (padded array, lengths)"
        )

    # ---- elementwise -------------------------------------------------------------------------------------------------

    def _flat(self, x: Any) -> Any:
        """An operand as something that broadcasts to `values`.

        Raises:
            ShapeError: it does not line up with the sequences.
        """
        if isinstance(x, Ragged):
            if not np.array_equal(x.offsets, self.offsets):
                raise ShapeError(f"sequences of lengths {self.lengths.tolist()} and {x.lengths.tolist()}")
            return x.values
        shape = np.shape(unwrap(x))
        if len(shape) < self.ndim - 1 or (len(shape) == self.ndim - 1 and shape[0] == 1):
            return x
        if len(shape) == self.ndim and shape[0] in (1, len(self)) and shape[1] == 1:
            array = _array(x)[:, 0]
            rows = array if len(array) == 1 else np.repeat(array, self.lengths, axis=0)
            return Tensor(rows) if isinstance(x, Tensor) else rows
        raise ShapeError(
            f"an operand of shape {shape} for sequences {self.shape}: expected the shape of a step, "
            f"or ({len(self)}, 1, ...) for one of each sequence"
        )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        """Run an elementwise ufunc on the values."""
        if method != "__call__" or ufunc.signature is not None or keywords.get("out") is not None:
            return NotImplemented
        first = next(x for x in inputs if isinstance(x, Ragged))
        result = ufunc(*(first._flat(x) for x in inputs), **keywords)
        if isinstance(result, tuple):
            return tuple(first.with_values(r) for r in result)
        return first.with_values(result)

    def astype(self, dtype: Any) -> Ragged:
        """The elements converted."""
        return self.with_values(self.values.astype(as_dtype(dtype).numpy))

    def __matmul__(self, weights: Any) -> Ragged:
        """Every step times shared weights: (n, length, ..., k) @ (k, m)."""
        if isinstance(weights, Ragged) or self.ndim < 3:
            raise ShapeError("a Ragged of vectors is multiplied by a matrix that all steps share")
        return self.with_values(self.values @ weights)

    # ---- reductions --------------------------------------------------------------------------------------------------

    def _reduce(self, name: str, axis: int | None, keepdims: bool) -> Any:
        if axis is None:
            return getattr(self.values, name)()
        place = axis + self.ndim if axis < 0 else axis
        if not 0 <= place < self.ndim:
            raise np.exceptions.AxisError(axis, self.ndim)
        if place == 0:
            raise ShapeError(f"{name} over sequences of different lengths: use axis=1 for each, or axis=None for all")
        if place > 1:
            return self.with_values(getattr(self.values, name)(axis=place - 1, keepdims=keepdims))
        flat, lengths = _array(self.values), self.lengths
        some = lengths > 0
        if name in ("max", "min") and not some.all():
            raise ValueError(f"{name} of an empty sequence: number {int(np.argmin(some))} of {len(self)}")
        reduce = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}[name]
        dtype = getattr(flat[:1].sum(axis=0) if name != "mean" else flat[:1].mean(axis=0), "dtype", None)
        out = np.zeros((len(self), *flat.shape[1:]), flat.dtype if name in ("max", "min") else dtype)
        for number in np.flatnonzero(some):
            out[number] = reduce.reduce(flat[self.offsets[number] : self.offsets[number + 1]], axis=0, dtype=out.dtype)
        if name == "mean":
            with np.errstate(invalid="ignore", divide="ignore"):
                out = out / lengths.reshape(-1, *[1] * (out.ndim - 1)).astype(out.dtype)
        if keepdims:
            out = out[:, None]
        return Tensor(out) if isinstance(self.values, Tensor) else out

    def sum(self, axis: int | None = None, keepdims: bool = False) -> Any:
        """Over a row (`axis` 2 and more: a Ragged), over each sequence (`axis` 1: an array), or over everything."""
        return self._reduce("sum", axis, keepdims)

    def mean(self, axis: int | None = None, keepdims: bool = False) -> Any:
        """As `sum`; NaN for a sequence without steps."""
        return self._reduce("mean", axis, keepdims)

    def max(self, axis: int | None = None, keepdims: bool = False) -> Any:
        """As `sum`.

        Raises:
            ValueError: a sequence without steps, for `axis` 1.
        """
        return self._reduce("max", axis, keepdims)

    def min(self, axis: int | None = None, keepdims: bool = False) -> Any:
        """As `max`."""
        return self._reduce("min", axis, keepdims)


class RaggedOf:
    """Calling it makes a Ragged of values and the offsets of another one with as many steps: the offsets are shared."""

    def __new__(cls, values: Any, offsets: npt.NDArray[np.int64]) -> Ragged:  # type: ignore[misc]
        made = object.__new__(Ragged)
        made.values = values if isinstance(values, np.ndarray | Tensor) else np.asarray(values)
        made.offsets = offsets
        return made


def _binary(ufunc: np.ufunc) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def method(self: Ragged, other: Any) -> Any:
        return self.__array_ufunc__(ufunc, "__call__", self, other)

    def reflected(self: Ragged, other: Any) -> Any:
        return self.__array_ufunc__(ufunc, "__call__", other, self)

    return method, reflected


_OPERATORS: Final = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
_COMPARISONS: Final = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_UNARY: Final[dict[str, np.ufunc]] = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}

for _name, _ufunc in (_OPERATORS | _COMPARISONS).items():
    _method, _reflected = _binary(_ufunc)
    setattr(Ragged, f"__{_name}__", _method)
    if _name in _OPERATORS:
        setattr(Ragged, f"__r{_name}__", _reflected)
for _name, _unary in _UNARY.items():
    setattr(Ragged, f"__{_name}__", lambda self, ufunc=_unary: self.__array_ufunc__(ufunc, "__call__", self))


def ragged(data: Any, lengths: Any = None) -> Ragged:
    """Sequences of different lengths as one value: from a list of arrays, or from a padded array and lengths.

    Args:
        data: a list of arrays (length, *inner); with `lengths` an array (sequences, time, *inner).
        lengths: steps of each row of a padded array.

    Raises:
        ShapeError: one array without lengths, which may be a single sequence or a padded batch; see also
            `Ragged.from_list`, `Ragged.from_padded`.
    """
    dtype = None if isinstance(data, Ragged) else getattr(data, "dtype", None)
    if lengths is None and dtype is not None and dtype != np.dtype(object):
        raise ShapeError(
            f"ragged: one array {tuple(data.shape)} without lengths; for a padded batch give ragged(array, lengths), "
            "for sequences a list of arrays: ragged([array]) for this one alone"
        )
    return Ragged.from_list(data) if lengths is None else Ragged.from_padded(data, lengths)
