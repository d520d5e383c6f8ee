"""Integer polynomials over opaque atoms: the ring in which dimensions have their normal form.

In and out go `Terms`, dicts from monomial to nonzero coefficient. A monomial is a tuple of atoms sorted by their
`key`, an atom repeated as often as its power; the empty monomial is the constant. The one order used everywhere is
graded lexicographic: higher degree first, then the sorted atoms compared like words. It is compatible with
multiplication, so division by one polynomial has exactly one quotient and remainder, and what is built on it
(`//` and `%` of dimensions) has one normal form.

This module knows nothing of dimensions; an atom is anything with a totally ordered `key` and a hash.
"""

from __future__ import annotations

from math import gcd
from operator import attrgetter
from typing import Any, Protocol

from tiercel.errors import ShapeError


class Atom(Protocol):
    """What a polynomial is built over: `key` orders atoms the same way in every process."""

    key: tuple[Any, ...]


Monomial = tuple[Any, ...]
Terms = dict[Monomial, int]

# Far beyond any real tensor program, and small enough that no expression can take noticeable time or memory.
MAX_TERMS = 128
MAX_DEGREE = 16
MAX_COEFFICIENT = 1 << 127
MAX_DIVISION_STEPS = 128

_atom_key = attrgetter("key")


class DimLimitError(ShapeError):
    """An expression outgrew the limits of this package; the caller may go on with a fresh symbol in its place."""


def monomial_key(monomial: Monomial) -> tuple[Any, ...]:
    """Sort key of a monomial; the leading term of a polynomial is the one with the smallest key."""
    return (-len(monomial), [atom.key for atom in monomial])


def multiply_monomials(a: Monomial, b: Monomial) -> Monomial:
    """The product of two monomials."""
    if not a:
        return b
    if not b:
        return a
    if len(a) + len(b) > MAX_DEGREE:
        raise DimLimitError(f"size expression of degree {len(a) + len(b)}: at most {MAX_DEGREE} factors are supported")
    return tuple(sorted(a + b, key=_atom_key))


def divide_monomials(a: Monomial, b: Monomial) -> Monomial | None:
    """`a / b`, or None if b does not divide a."""
    if not b:
        return a
    if len(b) > len(a):
        return None
    rest = list(a)
    for atom in b:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def add(a: Terms, b: Terms, factor: int = 1) -> Terms:
    """`a + factor * b`."""
    out = dict(a)
    for monomial, coefficient in b.items():
        total = out.get(monomial, 0) + factor * coefficient
        if total:
            out[monomial] = total
        else:
            out.pop(monomial, None)
    return out


def scale(a: Terms, factor: int) -> Terms:
    """`a * factor`."""
    if factor == 0:
        return {}
    return {monomial: coefficient * factor for monomial, coefficient in a.items()}


def multiply(a: Terms, b: Terms) -> Terms:
    """`a * b`.

    Raises:
        DimLimitError: the product would have too many terms or too high a degree.
    """
    if len(a) * len(b) > 16 * MAX_TERMS:
        raise DimLimitError(f"product of size expressions with {len(a)} and {len(b)} terms is too large")
    if len(a) == 1 and len(b) == 1:
        ((ma, ca),), ((mb, cb),) = a.items(), b.items()
        return {multiply_monomials(ma, mb): ca * cb}
    out: Terms = {}
    for ma, ca in a.items():
        for mb, cb in b.items():
            monomial = multiply_monomials(ma, mb)
            out[monomial] = out.get(monomial, 0) + ca * cb
    return {monomial: coefficient for monomial, coefficient in out.items() if coefficient}


def leading(terms: Terms) -> Monomial:
    """The first monomial of a polynomial that is not zero."""
    if len(terms) == 1:
        return next(iter(terms))
    return min(terms, key=monomial_key)


def divide(a: Terms, b: Terms) -> tuple[Terms, Terms]:
    """Quotient and remainder with `a == quotient * b + remainder`, as polynomials.

    No term of the remainder is divisible by the leading term of b: its coefficient lies in [0, leading coefficient
    of b) where its monomial is divisible. There is exactly one such pair (Cox, Little, O'Shea, Ideals, Varieties, and
    Algorithms, section 2.3, with floor division of coefficients), so `divide(a + c*b, b)` differs from `divide(a, b)`
    by c in the quotient only.

    Args:
        a: the dividend.
        b: the divisor, not zero, with a positive leading coefficient.
    """
    lead = leading(b)
    lead_coefficient = b[lead]
    quotient: Terms = {}
    remainder: Terms = {}
    if len(b) == 1:  # every term stands for itself
        for monomial, coefficient in a.items():
            rest_monomial = divide_monomials(monomial, lead)
            if rest_monomial is None:
                remainder[monomial] = coefficient
                continue
            count, left = divmod(coefficient, lead_coefficient)
            if count:
                quotient[rest_monomial] = count
            if left:
                remainder[monomial] = left
        return quotient, remainder
    rest = dict(a)
    keys = {monomial: monomial_key(monomial) for monomial in rest}
    tail = [(monomial, coefficient) for monomial, coefficient in b.items() if monomial != lead]
    steps = 0
    while rest:
        steps += 1
        if steps > MAX_DIVISION_STEPS:
            raise DimLimitError(f"division of size expressions takes more than {MAX_DIVISION_STEPS} steps")
        monomial = min(rest, key=keys.__getitem__)
        coefficient = rest.pop(monomial)
        rest_monomial = divide_monomials(monomial, lead)
        if rest_monomial is None:
            remainder[monomial] = coefficient
            continue
        count, left = divmod(coefficient, lead_coefficient)
        if left:
            remainder[monomial] = left
        if count:
            quotient[rest_monomial] = count
            for tail_monomial, tail_coefficient in tail:
                target = multiply_monomials(rest_monomial, tail_monomial)
                total = rest.get(target, 0) - count * tail_coefficient
                if abs(total) > MAX_COEFFICIENT:
                    raise DimLimitError("a coefficient of a size expression exceeds 127 bits")
                if total:
                    rest[target] = total
                    if target not in keys:
                        keys[target] = monomial_key(target)
                else:
                    rest.pop(target, None)
    return quotient, remainder


def content(terms: Terms) -> int:
    """Greatest common divisor of all coefficients (0 for the zero polynomial)."""
    return gcd(*terms.values())


def common_monomial(terms: Terms) -> Monomial:
    """The largest monomial that divides every term."""
    monomials = iter(terms)
    common = list(next(monomials))
    for monomial in monomials:
        if not common:
            break
        left = list(monomial)
        kept = []
        for atom in common:
            if atom in left:
                left.remove(atom)
                kept.append(atom)
        common = kept
    return tuple(common)


def divide_by_term(terms: Terms, monomial: Monomial, coefficient: int) -> Terms:
    """The exact quotient by `coefficient * monomial`, which must divide every term."""
    out: Terms = {}
    for key, value in terms.items():
        rest = divide_monomials(key, monomial)
        assert rest is not None, "the monomial divides every term"
        out[rest] = value // coefficient
    return out
