from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiercel.errors import ShapeError
from tiercel.shapes import Range, parse_range

SPAN = range(-60, 61)


@st.composite
def ranges(draw: st.DrawFn, infinite: bool = True) -> Range:
    multiple = draw(st.sampled_from([1, 1, 2, 3, 4, 8]))
    remainder = draw(st.integers(0, multiple - 1))
    lo = draw(st.one_of(st.none(), st.integers(-20, 20)) if infinite else st.integers(-20, 20))
    width = draw(st.integers(multiple - 1, 30))
    hi = draw(st.one_of(st.none(), st.just((lo or 0) + width)) if infinite else st.just((lo or 0) + width))
    return Range(lo, hi, multiple, remainder)


@st.composite
def members(draw: st.DrawFn) -> tuple[Range, int]:
    within = draw(ranges())
    return within, draw(st.sampled_from([x for x in SPAN if within.contains(x)]))


@given(members(), members())
def test_results_lie_in_the_range_of_results(a: tuple[Range, int], b: tuple[Range, int]) -> None:
    (ra, x), (rb, y) = a, b
    assert x + y in ra + rb
    assert x - y in ra - rb
    assert -x in -ra
    assert x * y in ra * rb
    assert min(x, y) in ra.minimum(rb)
    assert max(x, y) in ra.maximum(rb)
    if y != 0:
        assert x // y in ra // rb
        assert x % y in ra % rb
    assert x in ra.union(rb)
    assert y in ra.union(rb)
    both = ra.intersect(rb)
    assert (both is not None and both.contains(x)) == (x in rb)
    if x == y or 1 in (x, y):
        assert (y if x == 1 else x) in ra.broadcast(rb)
    if ra.divisor:
        assert x % ra.divisor == 0
    else:
        assert x == 0


@given(ranges(infinite=False), ranges(infinite=False))
def test_sets_of_finite_ranges(a: Range, b: Range) -> None:
    """Intersection, containment and equality against sets."""
    set_a, set_b = ({x for x in range(-80, 80) if r.contains(x)} for r in (a, b))
    assert a.count == len(set_a)
    both = a.intersect(b)
    assert (set() if both is None else {x for x in range(-80, 80) if both.contains(x)}) == set_a & set_b
    assert a.covers(b) == (set_a >= set_b)
    assert (a == b) == (set_a == set_b)
    union = a.union(b)
    assert (union.lo, union.hi) == (min(set_a | set_b), max(set_a | set_b))


@given(ranges(infinite=False), st.integers(1, 9))
def test_division_by_a_number_is_tight_in_its_bounds(a: Range, k: int) -> None:
    values = [x for x in range(-80, 80) if a.contains(x)]
    quotients = a // Range.single(k)
    assert (quotients.lo, quotients.hi) == (values[0] // k, values[-1] // k)
    assert (a * Range.single(k)).lo == values[0] * k


@given(ranges())
def test_text_round_trip(a: Range) -> None:
    assert parse_range(str(a)) == a


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("?", Range(0, None)),
        ("16..64", Range(16, 64)),
        ("16..", Range(16, None)),
        ("..64", Range(0, 64)),
        ("16..64 % 8", Range(16, 64, 8)),
        ("16..64 % 8 = 3", Range(19, 59, 8, 3)),
        ("128", Range(128, 128)),
        ("? % 8", Range(0, None, 8)),
        ("-inf..", Range(None, None)),
        ("-4..-2", Range(-4, -2)),
        ("17..70%8", Range(24, 64, 8)),
        ("8..15 % 8", Range(8, 8)),
    ],
)
def test_parse(text: str, expected: Range) -> None:
    assert parse_range(text) == expected


def test_forms_of_the_design() -> None:
    texts = ["?", "16..64", "16..", "..64", "16..64 % 8", "19..59 % 8 = 3", "128", "? % 8", "? % 8 = 3", "-inf..5"]
    assert [str(parse_range(text)) for text in texts] == texts


@pytest.mark.parametrize(
    "text",
    ["", "..", "5..3", "1..7 % 8", "1..2..3", "?..3", "16..64 %", "1 % 0", "x..3", "1..x", "..-1", "inf..", "3..-inf"],
)
def test_bad_text_is_refused_with_a_position(text: str) -> None:
    if text == "..":
        assert parse_range(text) == Range(0, None)
        return
    with pytest.raises(ShapeError, match="range, position"):
        parse_range(text)


def test_empty_ranges_are_refused() -> None:
    with pytest.raises(ShapeError, match="empty range: no integer from 3 to 2"):
        Range(3, 2)
    with pytest.raises(ShapeError, match="no integer from 1 to 7 that is 0 modulo 8"):
        Range(1, 7, 8)
    with pytest.raises(ShapeError, match="at least 1, got 0"):
        Range(1, 7, 0)
    assert Range(0, 3).intersect(Range(4, None)) is None
    assert Range(0, None, 2).intersect(Range(0, None, 4, 1)) is None
    with pytest.raises(ZeroDivisionError):
        Range(0, 5) // Range(0, 0)


def test_divisors() -> None:
    assert Range(16, 64, 8).divisor == 8
    assert Range(None, None, 8, 4).divisor == 4
    assert Range.single(12).divisor == 12
    assert Range.single(0).divisor == 0
    assert Range(0, None).divisor == 1


def test_all_small_ranges_exhaustively() -> None:
    """Every pair of finite ranges in -3..3 against sets: sound for each operation."""
    small = [Range(lo, hi, m, r) for lo in range(-3, 4) for hi in range(lo, 4) for m in (1, 2) for r in range(m)
             if any(x % m == r for x in range(lo, hi + 1))]  # fmt: skip
    unique = sorted(set(small), key=str)
    for a, b in itertools.product(unique, unique):
        xs, ys = ([x for x in range(-3, 4) if r.contains(x)] for r in (a, b))
        product_, low, high = a * b, a.minimum(b), a.maximum(b)
        assert all(product_.contains(x * y) for x in xs for y in ys)
        assert {min(min(x, y) for x in xs for y in ys), max(min(x, y) for x in xs for y in ys)} == {low.lo, low.hi}
        assert {min(max(x, y) for x in xs for y in ys), max(max(x, y) for x in xs for y in ys)} == {high.lo, high.hi}
        sizes = [(x, y) for x in xs for y in ys if x == y or 1 in (x, y)]
        assert all(a.broadcast(b).contains(y if x == 1 else x) for x, y in sizes)
        if any(ys):
            quotient, rest = a // b, a % b
            assert all(quotient.contains(x // y) and rest.contains(x % y) for x in xs for y in ys if y)
