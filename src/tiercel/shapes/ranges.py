"""`Range`: the integers between two bounds that leave one remainder, and arithmetic on such sets.

What comes in are ranges of operands, what goes out is a range that holds every possible result: sound, as tight as
bounds and congruences allow, but blind to operands being the same value (`Facts.range` sees more).
Normal form: bounds are themselves members, a single value has multiple 1, so equal sets are equal ranges.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tiercel.errors import ShapeError


@dataclass(frozen=True, slots=True)
class Range:
    """All integers x with `lo <= x <= hi` and `x % multiple == remainder`.

    Args:
        lo: smallest value, None for no lower bound. Moved up to the nearest member.
        hi: largest value, None for no upper bound. Moved down to the nearest member.
        multiple: at least 1.
        remainder: taken modulo multiple.

    Raises:
        ShapeError: no integer is in the range, or the multiple is below 1.
    """

    lo: int | None
    hi: int | None
    multiple: int = 1
    remainder: int = 0

    def __post_init__(self) -> None:
        lo, hi, multiple = self.lo, self.hi, self.multiple
        if multiple < 1:
            raise ShapeError(f"the multiple of a range must be at least 1, got {multiple}")
        remainder = self.remainder % multiple
        if lo is not None:
            lo += (remainder - lo) % multiple
        if hi is not None:
            hi -= (hi - remainder) % multiple
        if lo is not None and hi is not None:
            if lo > hi:
                congruence = f" that is {remainder} modulo {multiple}" if multiple > 1 else ""
                raise ShapeError(f"empty range: no integer from {self.lo} to {self.hi}{congruence}")
            if lo == hi:
                multiple, remainder = 1, 0
        object.__setattr__(self, "lo", lo)
        object.__setattr__(self, "hi", hi)
        object.__setattr__(self, "multiple", multiple)
        object.__setattr__(self, "remainder", remainder)

    @staticmethod
    def single(value: int) -> Range:
        """The range of one value."""
        return Range(value, value)

    @property
    def value(self) -> int | None:
        """The one value of this range, None if it has more."""
        return self.lo if self.lo is not None and self.lo == self.hi else None

    @property
    def divisor(self) -> int:
        """The largest number that divides every value; 0 if the only value is 0, which every number divides."""
        multiple, remainder = self._congruence()
        return gcd(multiple, remainder)

    @property
    def count(self) -> int | None:
        """How many values there are, None if infinitely many."""
        if self.lo is None or self.hi is None:
            return None
        return (self.hi - self.lo) // self.multiple + 1

    def contains(self, x: int) -> bool:
        """Is x one of the values?"""
        return (
            (self.lo is None or self.lo <= x)
            and (self.hi is None or x <= self.hi)
            and x % self.multiple == self.remainder
        )

    __contains__ = contains

    def covers(self, other: Range) -> bool:
        """Is every value of other one of ours?"""
        multiple, remainder = other._congruence()
        return (
            (self.lo is None or (other.lo is not None and self.lo <= other.lo))
            and (self.hi is None or (other.hi is not None and other.hi <= self.hi))
            and multiple % self.multiple == 0
            and remainder % self.multiple == self.remainder
        )

    def intersect(self, other: Range) -> Range | None:
        """The values in both, None if there are none."""
        lo = self.lo if other.lo is None else other.lo if self.lo is None else max(self.lo, other.lo)
        hi = self.hi if other.hi is None else other.hi if self.hi is None else min(self.hi, other.hi)
        if lo is not None and hi is not None and lo > hi:
            return None
        # Chinese remainder theorem for moduli that may share factors.
        common = gcd(self.multiple, other.multiple)
        if (self.remainder - other.remainder) % common:
            return None
        step = other.multiple // common
        inverse = pow(self.multiple // common, -1, step) if step > 1 else 0
        shift = (other.remainder - self.remainder) // common * inverse % step
        multiple = self.multiple * step
        remainder = self.remainder + self.multiple * shift
        if lo is not None and hi is not None and lo + (remainder - lo) % multiple > hi:
            return None
        return Range(lo, hi, multiple, remainder)

    def union(self, other: Range) -> Range:
        """The smallest range that holds the values of both (and others between them)."""
        lo = None if self.lo is None or other.lo is None else min(self.lo, other.lo)
        hi = None if self.hi is None or other.hi is None else max(self.hi, other.hi)
        m1, r1 = self._congruence()
        m2, r2 = other._congruence()
        return _make(lo, hi, gcd(m1, m2, r1 - r2), r1)

    def __add__(self, other: Range) -> Range:
        lo = None if self.lo is None or other.lo is None else self.lo + other.lo
        hi = None if self.hi is None or other.hi is None else self.hi + other.hi
        m1, r1 = self._congruence()
        m2, r2 = other._congruence()
        return _make(lo, hi, gcd(m1, m2), r1 + r2)

    def __neg__(self) -> Range:
        multiple, remainder = self._congruence()
        return _make(None if self.hi is None else -self.hi, None if self.lo is None else -self.lo, multiple, -remainder)

    def __sub__(self, other: Range) -> Range:
        return self + -other

    def __mul__(self, other: Range) -> Range:
        m1, r1 = self._congruence()
        m2, r2 = other._congruence()
        lo, hi = _product_bounds(self, other)
        return _make(lo, hi, gcd(m1 * m2, m1 * r2, m2 * r1), r1 * r2)

    def __floordiv__(self, other: Range) -> Range:
        """All `x // y` for nonzero y.

        Raises:
            ZeroDivisionError: other holds 0 only.
        """
        parts = [_floordiv_positive(self, part) for part in other._positive_part()]
        parts += [_floordiv_positive(-self, part) for part in (-other)._positive_part()]
        return _union_of(parts, other)

    def __mod__(self, other: Range) -> Range:
        """All `x % y` for nonzero y.

        Raises:
            ZeroDivisionError: other holds 0 only.
        """
        parts = [_mod_positive(self, part) for part in other._positive_part()]
        parts += [-_mod_positive(-self, part) for part in (-other)._positive_part()]
        return _union_of(parts, other)

    def minimum(self, other: Range) -> Range:
        """All `min(x, y)`."""
        if self.hi is not None and other.lo is not None and self.hi <= other.lo:
            return self
        if other.hi is not None and self.lo is not None and other.hi <= self.lo:
            return other
        hull = self.union(other)
        hi = self.hi if other.hi is None else other.hi if self.hi is None else min(self.hi, other.hi)
        return Range(hull.lo, hi, hull.multiple, hull.remainder)

    def maximum(self, other: Range) -> Range:
        """All `max(x, y)`."""
        return -(-self).minimum(-other)

    def broadcast(self, other: Range) -> Range:
        """All sizes that x and y broadcast to, where they do."""
        if not self.contains(1):
            return self
        if not other.contains(1):
            return other
        return self.union(other)

    def __str__(self) -> str:
        value = self.value
        if value is not None:
            return str(value)
        if self.lo == 0 or (self.lo is not None and self.hi is None and self.lo == self.remainder >= 0):
            text = "?" if self.hi is None else f"..{self.hi}"
        else:
            text = f"{'-inf' if self.lo is None else self.lo}..{'' if self.hi is None else self.hi}"
        if self.multiple > 1:
            text += f" % {self.multiple}"
            if self.remainder:
                text += f" = {self.remainder}"
        return text

    def _congruence(self) -> tuple[int, int]:
        """(multiple, remainder), where a single value v is (0, v): congruent to v modulo 0."""
        value = self.value
        return (self.multiple, self.remainder) if value is None else (0, value)

    def _positive_part(self) -> list[Range]:
        if self.hi is not None and self.hi < 1:
            return []
        part = self.intersect(Range(1, None))
        return [] if part is None else [part]


ANY = Range(None, None)
NATURAL = Range(0, None)


def _make(lo: int | None, hi: int | None, multiple: int, remainder: int) -> Range:
    return Range(remainder, remainder) if multiple == 0 else Range(lo, hi, multiple, remainder)


def _product_bounds(a: Range, b: Range) -> tuple[int | None, int | None]:
    """Bounds of x * y. With infinite bounds as (sign, None), 0 times infinity is 0: the factor really is 0 there."""
    if a.lo is not None and a.lo >= 0 and b.lo is not None and b.lo >= 0:  # sizes
        if a.hi == 0 or b.hi == 0:
            return 0, 0
        return a.lo * b.lo, None if a.hi is None or b.hi is None else a.hi * b.hi
    lows: list[int | None] = []
    highs: list[int | None] = []
    for x, x_sign in ((a.lo, -1), (a.hi, 1)):
        for y, y_sign in ((b.lo, -1), (b.hi, 1)):
            if x == 0 or y == 0:
                lows.append(0)
                highs.append(0)
            elif x is not None and y is not None:
                lows.append(x * y)
                highs.append(x * y)
            else:
                sign_x = x_sign if x is None else (1 if x > 0 else -1)
                sign_y = y_sign if y is None else (1 if y > 0 else -1)
                (highs if sign_x * sign_y > 0 else lows).append(None)
    lo = None if None in lows or not lows else min(x for x in lows if x is not None)
    hi = None if None in highs or not highs else max(x for x in highs if x is not None)
    return lo, hi


def _floordiv_positive(x: Range, d: Range) -> Range:
    """All `x // d` for a range of d that starts at 1 or above."""
    least, most = d.lo, d.hi
    assert least is not None
    # Rounding is monotone, so the extremes are at the corners.
    if x.lo is None:
        lo = None
    elif x.lo >= 0:
        lo = 0 if most is None else x.lo // most
    else:
        lo = x.lo // least
    if x.hi is None:
        hi = None
    elif x.hi >= 0:
        hi = x.hi // least
    else:
        hi = -1 if most is None else x.hi // most
    multiple, remainder = x._congruence()
    if least == most and multiple % least == 0:  # x = m*a + r: x // d = (m // d) * a + r // d
        return _make(lo, hi, multiple // least, remainder // least)
    return Range(lo, hi)


def _mod_positive(x: Range, d: Range) -> Range:
    """All `x % d` for a range of d that starts at 1 or above."""
    least, most = d.lo, d.hi
    assert least is not None
    if x.lo is not None and x.hi is not None:
        if x.lo >= 0 and x.hi < least:
            return x
        if least == most and x.lo // least == x.hi // least:  # all in one period
            return x - Range.single(x.lo // least * least)
    hi = None if most is None else most - 1
    if x.lo is not None and x.lo >= 0 and x.hi is not None:
        hi = x.hi if hi is None else min(hi, x.hi)
    m1, r1 = x._congruence()
    m2, r2 = d._congruence()
    multiple = gcd(m1, m2, r2)  # x % d = x - d * (x // d), and d is a multiple of gcd(m2, r2)
    return _make(0, hi, multiple, r1)


def _union_of(parts: list[Range], divisor: Range) -> Range:
    if not parts:
        raise ZeroDivisionError(f"division by a size in the range {divisor}")
    return parts[0] if len(parts) == 1 else parts[0].union(parts[1])
