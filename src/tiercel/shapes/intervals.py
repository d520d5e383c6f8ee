"""The range of an expression from the ranges of its symbols and nodes.

What comes in is an expression and a function that gives the range of each of its symbols and nodes; what goes out is
a range that holds every value. Adding up the terms would treat them as independent, and give `T - min(T, 8)` values
below 0 and `T - T % 8` a divisor of 1. So a sum is looked at in several ways, each sound on its own, and what they
have in common is taken:

- the terms added up;
- with `y % d` written as `y - d*(y//d)`;
- with `y // k` for an int k written as `(y - m) / k`, m in [0, k);
- with each of the alternatives of a `min` or `max` in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from tiercel.shapes.dims import DimLike, Node, Sum, Symbol, floordiv, from_terms, terms_of
from tiercel.shapes.polynomial import DimLimitError, Monomial, Terms
from tiercel.shapes.ranges import ANY, NATURAL, Range

RangeOf = Callable[[DimLike], Range]

# How many nodes of a sum are rewritten one after another, by how many nodes it has: the tries multiply.
_REWRITES = ((3, 3), (6, 2), (16, 1))
_MAX_REWRITTEN_SIZE = 64  # symbols and operators of a sum whose nodes are rewritten


def default_range(symbol: Symbol) -> Range:
    """What the kind of a symbol says: sizes are never negative, an int register may be anything."""
    return ANY if symbol.kind == "scalar" else NATURAL


def node_range(node: Node, range_of: RangeOf) -> Range:
    """The values of a node, given those of its arguments; all integers where a denominator can only be 0."""
    ranges = [range_of(arg) for arg in node.args]
    if node.op in ("//", "%"):
        try:
            return ranges[0] // ranges[1] if node.op == "//" else ranges[0] % ranges[1]
        except ZeroDivisionError:
            return ANY
    if node.op == "min":
        return reduce(Range.minimum, ranges)
    if node.op == "max":
        return reduce(Range.maximum, ranges)
    if node.op == "bcast":
        return reduce(Range.broadcast, ranges)
    raise AssertionError(f"unknown node {node.op!r}")


def sum_range(x: DimLike, range_of: RangeOf, rewrites: int | None = None) -> Range:
    """The values of a sum, given those of the atoms in its terms.

    Args:
        x: an expression; anything but a `Sum` is left to range_of.
        range_of: the range of a symbol or node.
        rewrites: how many rewrites may still be tried; by default what the number of nodes allows.
    """
    if not isinstance(x, Sum):
        return range_of(x)
    out = _added_up(x, range_of)
    if x.size > _MAX_REWRITTEN_SIZE:
        return out
    nodes = [(m[0], c) for m, c in x.terms if len(m) == 1 and isinstance(m[0], Node)]
    allowed = next((tries for count, tries in _REWRITES if len(nodes) <= count), 0)
    rewrites = allowed if rewrites is None else min(rewrites, allowed)
    if rewrites == 0:
        return out
    for node, coefficient in nodes:
        try:
            other = _rewritten(x, node, coefficient, range_of, rewrites - 1)
        except (DimLimitError, ZeroDivisionError):
            continue
        if other is not None:
            out = out.intersect(other) or out  # nothing in common: the facts contradict each other
    return out


def expand_mods(x: DimLike) -> DimLike:
    """x with every `y % d` that is a term of it written as `y - d*(y//d)`.

    Raises:
        DimLimitError: the result is too large.
    """
    out: DimLike = x
    if isinstance(x, Node) and x.op == "%":
        return _expanded_mod(x)
    if isinstance(x, Sum):
        for monomial, coefficient in x.terms:
            for i, atom in enumerate(monomial):
                if isinstance(atom, Node) and atom.op == "%":
                    rest = from_terms({monomial[:i] + monomial[i + 1 :]: coefficient})
                    out = out + rest * (_expanded_mod(atom) - atom)
                    break
    return out


def _expanded_mod(node: Node) -> DimLike:
    return node.args[0] - node.args[1] * floordiv(node.args[0], node.args[1])


def term_range(monomial: Monomial, coefficient: int, range_of: RangeOf) -> Range:
    """The values of one term of a sum."""
    out = Range.single(coefficient)
    for atom in monomial:
        out = out * range_of(atom)
    # An even power is never negative, whatever its base.
    if monomial and len(monomial) % 2 == 0 and (out.lo is None or out.lo < 0):
        if all(a is b for a, b in zip(monomial[::2], monomial[1::2], strict=True)):
            sign = NATURAL if coefficient > 0 else -NATURAL
            out = out.intersect(sign) or out
    return out


def _added_up(x: Sum, range_of: RangeOf) -> Range:
    return reduce(Range.__add__, (term_range(monomial, coefficient, range_of) for monomial, coefficient in x.terms))


def _rewritten(x: Sum, node: Node, coefficient: int, range_of: RangeOf, rewrites: int) -> Range | None:
    """The values of x by another form of its term `coefficient * node`; None if there is no other form."""
    rest: Terms = terms_of(x)
    del rest[(node,)]
    others = from_terms(rest)
    if node.op == "%":
        return sum_range(others + coefficient * _expanded_mod(node), range_of, rewrites)
    if node.op == "//":
        numerator, k = node.args
        if not isinstance(k, int):
            return None
        # k*x == k*others + coefficient * (numerator - m), m in [0, k)
        scaled = sum_range(k * others + coefficient * numerator, range_of, rewrites)
        scaled = scaled - Range.single(coefficient) * Range(0, k - 1)
        lo = None if scaled.lo is None else -(-scaled.lo // k)
        hi = None if scaled.hi is None else scaled.hi // k
        return None if lo is not None and hi is not None and lo > hi else Range(lo, hi)
    if node.op in ("min", "max"):
        parts = [sum_range(others + coefficient * arg, range_of, rewrites) for arg in node.args]
        out = reduce(Range.union, parts)
        # min(a, b) <= a and <= b: the sum is below each part where the coefficient is positive, above where negative
        if (node.op == "min") == (coefficient > 0):
            return reduce(lambda a, b: a.intersect(Range(None, b.hi)) or a, parts, out)
        return reduce(lambda a, b: a.intersect(Range(b.lo, None)) or a, parts, out)
    return None
