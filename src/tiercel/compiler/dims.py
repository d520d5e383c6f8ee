"""Sizes as index expressions: a `Dim` over symbols becomes an int64 expression over variables of the same names."""

from __future__ import annotations

from tiercel.errors import TiercelError
from tiercel.loops.form import INDEX, Binary, Compare, Const, Expr, Select, Var
from tiercel.loops.index import index_add, index_mul
from tiercel.shapes import Dim, DimLike, Facts, Range, Symbol
from tiercel.shapes.dims import Node, Sum

_NODES = {"//": "floordiv", "%": "mod", "min": "min", "max": "max"}


def dim_expression(x: DimLike) -> Expr:
    """The value of a size. Where a divisor is not positive the value means nothing (`divisors` has to be guarded)."""
    if not isinstance(x, Dim):
        return Const(x, INDEX)
    if isinstance(x, Symbol):
        return Var(x.name)
    if isinstance(x, Node):
        arguments = [dim_expression(a) for a in x.args]
        result = arguments[0]
        for other in arguments[1:]:
            if x.op == "bcast":
                result = Select(Compare("eq", result, Const(1, INDEX)), other, result)
            elif x.op in ("//", "%"):
                # a guard leaves the region where a divisor is zero; what was hoisted above it must not trap
                safe = other if isinstance(other, Const) else Binary("max", other, Const(1, INDEX))
                result = Binary(_NODES[x.op], result, safe)
            else:
                result = Binary(_NODES[x.op], result, other)
        return result
    assert isinstance(x, Sum)
    total: Expr = Const(0, INDEX)
    for monomial, coefficient in x.terms:
        term: Expr = Const(coefficient, INDEX)
        for atom in monomial:
            term = index_mul(term, dim_expression(atom))
        total = index_add(total, term)
    return total


def divisors(x: DimLike) -> set[Dim]:
    """The sizes that `x` divides by, as far as they are no numbers."""
    if not isinstance(x, Dim) or isinstance(x, Symbol):
        return set()
    found: set[Dim] = set()
    if isinstance(x, Node):
        for a in x.args:
            found |= divisors(a)
        if x.op in ("//", "%") and isinstance(x.args[1], Dim):
            found.add(x.args[1])
        return found
    assert isinstance(x, Sum)
    for monomial, _ in x.terms:
        for atom in monomial:
            found |= divisors(atom)
    return found


def counting(facts: Facts, counter: DimLike, passes: DimLike) -> Facts:
    """What is known inside a loop: also that its counter lies in 0 to `passes` - 1.

    These facts are true where the counter has a value. They must not outlive the loop: that it has a pass is one of
    them.
    """
    inside = facts.copy()
    try:
        inside.set_range(counter, Range(0, None))
        inside.set_range(passes - 1 - counter, Range(0, None))
    except TiercelError:
        return facts  # a loop that never runs
    return inside
