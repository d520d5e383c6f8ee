"""The passes that a `for` has left: told by its iterator, without running any code of the user's.

In: the iterator that a frame holds for a loop. Out: `Over`: what is left of it as plain values, an iterator for what is
left after some passes, the item of a pass; or None for iterators that are not understood or that somebody else holds.

Invariant: an iterator is never advanced, only replaced; so it must not be seen by anybody but the loop, which its
reference count tells. Positions are read with `__reduce__`, which CPython's own iterators have for copying.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from tiercel.compiler.trace.loop_region import Passes

__all__ = ["Over", "over"]

LIMIT: Final = 1 << 62
"""Numbers of a range whose sums stay within 64 bits."""
MAX_ITEMS: Final = 32

_RANGE: Final = type(iter(range(1)))
_SEQUENCE: Final = type(iter(np.empty(1)))
_ITEMS: Final[tuple[type, ...]] = (type(iter([])), type(iter(())))


class Over:
    """What a loop goes over, from where it is.

    Attributes:
        form: see `compiler.trace.loop_region.Passes`.
        left: passes that are left.
        whole: whether only all of them can be made at once.
        held: lists and tuples that it looks into.
    """

    form: Passes = ()
    left: int = 0
    whole = False
    held: tuple[Any, ...] = ()

    def values(self, passes: int) -> tuple[Any, ...]:
        """The arguments of a region for the next passes."""
        raise NotImplementedError

    def rest(self, passes: int) -> Iterator[Any]:
        """An iterator for what is left after these passes."""
        raise NotImplementedError

    def item(self, number: int) -> Any:
        """The item of a pass, counted from 0."""
        raise NotImplementedError


class _Range(Over):
    def __init__(self, numbers: range) -> None:
        self.numbers = numbers
        self.form = ("range", numbers.step)
        self.left = len(numbers)

    def values(self, passes: int) -> tuple[Any, ...]:
        return (self.numbers.start, passes)

    def rest(self, passes: int) -> Iterator[Any]:
        return iter(self.numbers[passes:])

    def item(self, number: int) -> Any:
        return self.numbers[number]


class _Rows(Over):
    form = ("array",)

    def __init__(self, array: np.ndarray[Any, Any], index: int) -> None:
        self.array, self.index = array, index
        self.left = max(len(array) - index, 0)

    def values(self, passes: int) -> tuple[Any, ...]:
        return (self.array[self.index : self.index + passes],)

    def rest(self, passes: int) -> Iterator[Any]:
        made: Any = iter(self.array)
        made.__setstate__(self.index + passes)
        return made  # type: ignore[no-any-return]

    def item(self, number: int) -> Any:
        return self.array[self.index + number]


class _Items(Over):
    form = ("items",)
    whole = True

    def __init__(self, items: list[Any] | tuple[Any, ...]) -> None:
        self.items = tuple(items)
        self.left = len(self.items)
        self.held = (items,)

    def values(self, passes: int) -> tuple[Any, ...]:
        return (self.items,)

    def rest(self, passes: int) -> Iterator[Any]:
        return iter(())

    def item(self, number: int) -> Any:
        return self.items[number]


class _Enumerated(Over):
    def __init__(self, inner: Over, count: int) -> None:
        self.inner, self.count = inner, count
        self.form = ("enumerate", inner.form)
        self.left, self.whole, self.held = inner.left, inner.whole, inner.held

    def values(self, passes: int) -> tuple[Any, ...]:
        return (self.count, *self.inner.values(passes))

    def rest(self, passes: int) -> Iterator[Any]:
        return enumerate(self.inner.rest(passes), self.count + passes)

    def item(self, number: int) -> Any:
        return self.count + number, self.inner.item(number)


class _Zipped(Over):
    def __init__(self, parts: tuple[Over, ...]) -> None:
        self.parts = parts
        self.form = ("zip", *(p.form for p in parts))
        self.left, self.whole = min(p.left for p in parts), any(p.whole for p in parts)
        self.held = tuple(x for p in parts for x in p.held)

    def values(self, passes: int) -> tuple[Any, ...]:
        return tuple(v for p in self.parts for v in p.values(passes))

    def rest(self, passes: int) -> Iterator[Any]:
        return zip(*(p.rest(passes) for p in self.parts), strict=False)

    def item(self, number: int) -> Any:
        return tuple(p.item(number) for p in self.parts)


def over(registers: list[Any], register: int) -> Over | None:
    """What the iterator in a register goes over; None if that cannot be told, or not be changed unseen."""
    iterator = registers[register]
    # the register, our variable, the argument of getrefcount
    return _over(iterator) if sys.getrefcount(iterator) <= 3 else None


def _over(iterator: Any) -> Over | None:
    kind = type(iterator)
    if kind is _RANGE:
        _, (numbers,), *state = iterator.__reduce__()
        numbers = numbers[state[0] or 0 :] if state else numbers
        ends = (numbers.start, numbers.stop, numbers.step)
        return _Range(numbers) if all(-LIMIT < n < LIMIT for n in ends) else None
    if kind is _SEQUENCE:
        _, (sequence,), *state = iterator.__reduce__()
        return _Rows(sequence, state[0]) if type(sequence) is np.ndarray and state else None
    if kind in _ITEMS:
        _, (sequence,), *state = iterator.__reduce__()
        if state != [0] or len(sequence) > MAX_ITEMS or type(sequence) not in (list, tuple):
            return None
        return _Items(sequence)
    if kind is enumerate:
        made = iterator.__reduce__()[1]
        # the enumerate, the tuple just made, the argument of getrefcount
        if sys.getrefcount(made[0]) > 3 or not -LIMIT < made[1] < LIMIT:
            return None
        inner = _over(made[0])
        return None if inner is None else _Enumerated(inner, made[1])
    if kind is zip:
        made = iterator.__reduce__()
        if len(made) > 2 or len(made[1]) < 2:  # a strict one, or nothing to go along with
            return None
        # the tuple of the zip, the argument of getrefcount
        if any(sys.getrefcount(made[1][i]) > 2 for i in range(len(made[1]))):
            return None
        parts = [_over(part) for part in made[1]]
        known = tuple(p for p in parts if p is not None)
        return _Zipped(known) if len(known) == len(parts) else None
    return None
