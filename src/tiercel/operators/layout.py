"""How an array's axes lie in memory, and which order NumPy gives the result of an iteration.

In: operands' shapes and layouts. Out: the layout of a fresh result or of a view. A `Layout` does not hold strides (they
would depend on sizes that change from call to call) but what follows from them for every size:

- `order`: the axes from the largest absolute stride to the smallest, None where it is not known;
- `packed`: how many of the innermost axes of that order are dense (each stride is the product of the sizes inside it
  and the item size). Equal to the rank for a contiguous block in that order. It is a lower bound: some sizes (0, 1)
  make an array more contiguous than its layout promises;
- `zero`: the axes of stride 0 that broadcasting made.

`k_order` is NumPy's own axis sorting (`npyiter_find_best_axis_ordering` in numpy/_core/src/multiarray/nditer_constr.c)
on orders instead of strides. Axes of size 1 are stride 0 there; a size that is only known at run time is tried both
ways, and where the answer differs the layout is unknown rather than guessed.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tiercel.shapes import DimLike, Facts

__all__ = ["Layout", "k_order", "layout_class"]

# Past this many broadcast sizes of unknown outcome the layout is called unknown.
_MAX_UNDECIDED = 6


@dataclass(frozen=True, slots=True)
class Layout:
    """See the module docstring for the fields."""

    order: tuple[int, ...] | None
    packed: int
    zero: tuple[int, ...] = ()

    @staticmethod
    @functools.cache
    def c(rank: int) -> Layout:
        """The C-contiguous layout of a rank."""
        return Layout(tuple(range(rank)), rank)

    @staticmethod
    @functools.cache
    def f(rank: int) -> Layout:
        """The Fortran-contiguous layout of a rank."""
        return Layout(tuple(reversed(range(rank))), rank)

    @staticmethod
    def dense(order: Sequence[int]) -> Layout:
        """One contiguous block whose axes, outermost first, are `order`."""
        return Layout(tuple(order), len(order))

    @staticmethod
    def unknown() -> Layout:
        """Nothing is known."""
        return _UNKNOWN

    @staticmethod
    def of(array: np.ndarray[Any, Any]) -> Layout:
        """The layout of a real array, by its strides; C wherever the array is C-contiguous."""
        rank = array.ndim
        if array.flags.c_contiguous:
            return Layout.c(rank)
        if array.flags.f_contiguous:
            return Layout.f(rank)
        shape, strides = array.shape, array.strides
        order = sorted(range(rank), key=lambda axis: -abs(strides[axis]))
        packed, expected = 0, array.itemsize
        for axis in reversed(order):
            if shape[axis] != 1:
                if strides[axis] != expected:
                    break
                expected *= shape[axis]
            packed += 1
        zero = tuple(a for a in range(rank) if strides[a] == 0 and shape[a] > 1)
        return Layout(tuple(order), packed, zero)

    @property
    def is_known(self) -> bool:
        """Whether the order of the axes is known."""
        return self.order is not None

    @property
    def is_dense(self) -> bool:
        """Whether the array is one contiguous block, whatever its sizes."""
        return self.order is not None and self.packed == len(self.order)

    @property
    def is_c(self) -> bool:
        """Whether the array is C-contiguous, whatever its sizes."""
        return self.is_dense and self.order == tuple(range(self.packed))

    @property
    def is_f(self) -> bool:
        """Whether the array is Fortran-contiguous, whatever its sizes."""
        return self.is_dense and self.order == tuple(reversed(range(self.packed)))

    def flags(self, shape: Sequence[DimLike], facts: Facts | None = None) -> tuple[bool | None, bool | None]:
        """NumPy's (c_contiguous, f_contiguous) of an array of this layout and shape; None where sizes decide."""
        if any(isinstance(d, int) and d == 0 for d in shape):
            return True, True
        if not self.is_dense:
            return (True, True) if all(isinstance(d, int) and d == 1 for d in shape) else (None, None)
        assert self.order is not None
        order = [axis for axis in self.order if shape[axis] != 1]
        if order == sorted(order):
            c: bool | None = True
        else:
            c = False if all(_above_one(shape[a], facts) for a in order) else None
        if order == sorted(order, reverse=True):
            f: bool | None = True
        else:
            f = False if all(_above_one(shape[a], facts) for a in order) else None
        return c, f

    def permute(self, axes: Sequence[int]) -> Layout:
        """The layout of `x.transpose(axes)`."""
        if self.order is None:
            return self
        place = {old: new for new, old in enumerate(axes)}
        return Layout(tuple(place[a] for a in self.order), self.packed, tuple(sorted(place[a] for a in self.zero)))

    def drop(self, axis: int) -> Layout:
        """The layout after an integer index on `axis`."""
        if self.order is None:
            return self
        inside = len(self.order) - 1 - self.order.index(axis)
        # Axes outside the dropped one no longer enclose a dense block.
        return Layout(
            tuple(a - (a > axis) for a in self.order if a != axis),
            min(self.packed, inside),
            tuple(a - (a > axis) for a in self.zero if a != axis),
        )

    def cut(self, axis: int, *, step_one: bool) -> Layout:
        """The layout after a slice that may shorten `axis`; `step_one` says whether its step is 1."""
        if self.order is None:
            return self
        inside = len(self.order) - 1 - self.order.index(axis)
        return Layout(self.order, min(self.packed, inside + 1 if step_one else inside), self.zero)

    def insert(self, axis: int) -> Layout:
        """The layout after a new axis of size 1 at `axis`."""
        if self.order is None:
            return self
        moved = [a + (a >= axis) for a in self.order]
        zero = tuple(a + (a >= axis) for a in self.zero)
        if axis == 0:
            ascending = moved == sorted(moved)
            position = 0 if ascending else len(moved)
        else:
            # Beside the axis before it: outside of it in a descending order, inside of it otherwise.
            descending = len(moved) > 1 and moved == sorted(moved, reverse=True)
            position = moved.index(axis - 1) + (not descending)
        inside = len(moved) - position
        moved.insert(position, axis)
        # Its size is 1: it is packed wherever the axes inside it are.
        return Layout(tuple(moved), self.packed + (inside <= self.packed), zero)

    def __str__(self) -> str:
        if self.order is None:
            return "unknown"
        if self.is_c:
            return "C"
        if self.is_f:
            return "F"
        text = f"order {','.join(map(str, self.order))}"
        if not self.is_dense:
            text += f", packed {self.packed}"
        if self.zero:
            text += f", zero {','.join(map(str, self.zero))}"
        return text


_UNKNOWN = Layout(None, 0)


def _above_one(dim: DimLike, facts: Facts | None) -> bool:
    if isinstance(dim, int):
        return dim > 1
    low = None if facts is None else facts.range(dim).lo
    return low is not None and low > 1


def k_order(
    operands: Sequence[tuple[Sequence[DimLike], Layout]],
    shape: Sequence[DimLike],
    facts: Facts | None = None,
    *,
    kept: int | None = None,
) -> Layout:
    """The layout NumPy gives a fresh result of an element-wise iteration with order='K'.

    Args:
        operands: shape and layout of each array operand; shapes broadcast against each other to `shape`.
        shape: the shape of the iteration.
        facts: what is known about the sizes.
        kept: so many of the axes, the first ones, are those of the result; the others are summed.
    """
    rank = len(shape)
    kept = rank if kept is None else kept
    if rank <= 1 or not operands:
        return Layout.c(kept)
    wide = [(s, layout) for s, layout in operands if len(s) > 1]
    # The common case: every operand with more than one axis is C-ordered, so nothing ever moves.
    if all(layout.order == tuple(range(len(s))) for s, layout in wide):
        return Layout.c(kept)
    if any(layout.order is None for _, layout in wide):
        return Layout.unknown()
    strides: list[list[int]] = []
    undecided: list[tuple[int, int]] = []
    for s, layout in wide:
        assert layout.order is not None
        pseudo = [0] * rank
        offset = rank - len(s)
        for position, axis in enumerate(layout.order):
            out = offset + axis
            if axis in layout.zero or shape[out] == 1:
                continue
            pseudo[out] = len(s) - position
            if s[axis] == shape[out]:
                continue
            if isinstance(s[axis], int):
                if s[axis] == 1:
                    pseudo[out] = 0
            elif not _above_one(s[axis], facts):
                undecided.append((len(strides), out))
        strides.append(pseudo)
    if kept < rank and not undecided:
        return _summed_order(strides, shape, kept, facts)
    if not undecided:
        return Layout.dense([axis for axis in _sort_axes(strides, rank) if axis < kept])
    if len(undecided) > _MAX_UNDECIDED:
        return Layout.unknown()
    answers = set()
    for ones in itertools.product((False, True), repeat=len(undecided)):
        trial = [list(p) for p in strides]
        for (operand, axis), one in zip(undecided, ones, strict=True):
            if one:
                trial[operand][axis] = 0
        answers.add(tuple(axis for axis in _sort_axes(trial, rank) if axis < kept))
    return Layout.dense(answers.pop()) if len(answers) == 1 else Layout.unknown()


def _summed_order(strides: Sequence[Sequence[int]], shape: Sequence[DimLike], kept: int, facts: Facts | None) -> Layout:
    """The order of the first `kept` axes, where that is the same whichever axes have one element: such an axis moves no
    other, and a summed one may be all that tells two others apart.
    """
    rank = len(shape)
    doubtful = [axis for axis, dim in enumerate(shape) if not isinstance(dim, int) and not _above_one(dim, facts)]
    if len(doubtful) > _MAX_UNDECIDED:
        return Layout.unknown()
    order = [axis for axis in _sort_axes(strides, rank) if axis < kept]
    for count in range(1, len(doubtful) + 1):
        for ones in itertools.combinations(doubtful, count):
            trial = [[0 if axis in ones else step for axis, step in enumerate(p)] for p in strides]
            found = [axis for axis in _sort_axes(trial, rank) if axis < kept and axis not in ones]
            if found != [axis for axis in order if axis not in ones]:
                return Layout.unknown()
    return Layout.dense(order)


def _sort_axes(strides: Sequence[Sequence[int]], rank: int) -> list[int]:
    """NumPy's insertion sort; returns the axes from outermost to innermost."""
    # As in nditer, position 0 is the innermost axis.
    perm = list(reversed(range(rank)))
    for i0 in range(1, rank):
        position, axis = i0, perm[i0]
        for i1 in range(i0 - 1, -1, -1):
            other = perm[i1]
            ambiguous, swap = True, False
            for s in strides:
                if s[axis] != 0 and s[other] != 0:
                    if s[other] <= s[axis]:
                        swap = False  # operands disagree: C order wins
                    elif ambiguous:
                        swap = True
                    ambiguous = False
            if ambiguous:
                continue
            if not swap:
                break
            position = i1
        if position != i0:
            perm.insert(position, perm.pop(i0))
    return perm[::-1]


def layout_class(array: np.ndarray[Any, Any]) -> str:
    """Return what compiled code is made for: "C" or "F" for contiguous memory in that order, "rows" or "any".

    In "rows" axes lie in C order, each element apart from the others of its axis, with gaps or backwards: a cut of a C
    array. NumPy's iterations go over it, and lay out their results, as over a C array; axes of size 1 do not count.
    """
    flags = array.flags
    if flags.c_contiguous:
        return "C"
    if flags.f_contiguous:
        return "F"
    last = None
    for size, stride in zip(array.shape, array.strides, strict=True):
        if size == 1:
            continue
        step = abs(stride)
        if not step or (last is not None and step > last):
            return "any"
        last = step
    return "rows"
