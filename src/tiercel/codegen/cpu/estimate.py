"""How much work a statement is, roughly: decides at run time whether a parallel axis is worth several threads.

In: statements, and the names known where the decision is made. Out: an int64 expression in work units; one unit is one
arithmetic node on one element in vector code, about 0.06 ns. Only the order of magnitude matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tiercel.loops.form import (
    INDEX,
    Binary,
    Block,
    Const,
    Contract,
    Convolve,
    Expr,
    For,
    Let,
    Multiply,
    Stmt,
    Turn,
    Unary,
    Unfold,
    Var,
    While,
    blocks,
    expressions,
    walk,
)
from tiercel.loops.index import index_add, index_mul

PARALLEL_WORK: Final = 400_000
"""Below this many units (about 25 us) work stays serial: waking a sleeping thread costs 9 to 22 us."""

_CHEAP = ("neg", "abs", "not", "invert", "floor", "ceil", "rint", "trunc", "sqrt", "isnan", "isinf", "isfinite")
_COSTLY = {"pow": 30, "atan2": 15, "hypot": 10, "floordiv": 10, "mod": 10, "fmod": 10}
_UNKNOWN_EXTENT = 64


def node_weight(node: Expr) -> int:
    """Units of an expression on one element: a transcendental function counts for ten or more."""
    return sum(map(_weight, walk(node)))


def is_plain(node: Expr) -> bool:
    """Arithmetic of single instructions only."""
    return all(_weight(part) == 1 for part in walk(node))


def is_long(node: Expr) -> bool:
    """A float function of two operands, whose code is long enough to fill the processor with few vectors."""
    return isinstance(node, Binary) and node.op in _COSTLY and node.dtype.kind == "f"


def _weight(node: Expr) -> int:
    if isinstance(node, Unary):
        return 1 if node.op in _CHEAP else 10
    return _COSTLY[node.op] if isinstance(node, Binary) and is_long(node) else 1


def work_of(stmt: Stmt, known: set[str], lets: Mapping[str, Expr] | None = None) -> Expr:
    """Units of one execution of `stmt`. Extents that use names outside of `known` count as what they are at most, where
    that can be said (`lets` has what names inside stand for), else as 64.
    """
    inside = dict(lets or {})
    match stmt:
        case Block():
            total: Expr = Const(0, INDEX)
            for inner in stmt.body:
                if isinstance(inner, Let):
                    inside[inner.name] = inner.value
                total = index_add(total, work_of(inner, known, inside))
            return total
        case For() if stmt.work is not None and _is_known(stmt.work, known):
            return stmt.work
        case For():
            return index_mul(_extent(stmt.extent, known, inside), work_of(stmt.body, known, inside))
        case While():
            return Const(_UNKNOWN_EXTENT * 16, INDEX)
        case Multiply() | Contract():
            # a fused multiply-add at full rate is a third of a unit
            rest = index_mul(_extent(stmt.n, known, inside), _extent(stmt.k, known, inside))
            return index_add(index_mul(_extent(stmt.m, known, inside), rest), Const(64, INDEX))
        case Convolve():
            volume = _extent(stmt.weights.shape[1], known, inside)
            for extent in stmt.c.shape:
                volume = index_mul(volume, _extent(extent, known, inside))
            return index_add(volume, Const(64, INDEX))
        case Unfold():
            area = index_mul(_extent(stmt.rows, known, inside), _extent(stmt.pitch, known, inside))
            planes = _extent(stmt.source.shape[0], known, inside)
            return index_add(
                index_mul(area, index_mul(planes, Const(stmt.down * stmt.across, INDEX))), Const(64, INDEX)
            )
        case Turn():
            area = index_mul(_extent(stmt.m, known, inside), _extent(stmt.n, known, inside))
            return index_add(area, Const(64, INDEX))
    own = sum(node_weight(e) for e in expressions(stmt))
    total = Const(own, INDEX)
    for block in blocks(stmt):
        total = index_add(total, work_of(block, known, inside))
    return total


def _extent(node: Expr, known: set[str], lets: Mapping[str, Expr]) -> Expr:
    found = _most(node, known, lets)
    return Const(_UNKNOWN_EXTENT, INDEX) if found is None else found


def _most(node: Expr, known: set[str], lets: Mapping[str, Expr]) -> Expr | None:
    """An upper bound of a size, made of known names."""
    if _is_known(node, known):
        return node
    match node:
        case Var():
            value = lets.get(node.name)
            return None if value is None else _most(value, known, lets)
        case Binary(op="min"):
            sides = [s for s in (_most(node.a, known, lets), _most(node.b, known, lets)) if s is not None]
            return Binary("min", *sides) if len(sides) == 2 else sides[0] if sides else None
        case Binary(op="sub"):
            return _most(node.a, known, lets)
    return None


def _is_known(node: Expr, known: set[str]) -> bool:
    return all(not isinstance(p, Var) or p.name in known for p in walk(node))
