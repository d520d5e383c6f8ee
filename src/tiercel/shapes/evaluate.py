"""Dimensions under an assignment of their symbols: to ints (`evaluate`) or to other dimensions (`substitute`).

Both give exactly what rebuilding the written expression from its symbols would give; `evaluate` never goes through
symbolic arithmetic, so the tests can hold one against the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from tiercel.errors import ShapeError
from tiercel.shapes.dims import Dim, DimLike, Node, Sum, Symbol, as_dim, floordiv, mod, symbols_of
from tiercel.shapes.extremes import broadcast_dims, dim_max, dim_min


def evaluate(x: DimLike, env: Mapping[str, int]) -> int:
    """The value of x.

    Args:
        x: a size.
        env: name of each symbol to its value.

    Raises:
        ShapeError: a symbol has no value, or the sizes of a `bcast` do not broadcast.
        ZeroDivisionError: a denominator is 0.
    """
    if x.__class__ is int:
        return x
    return _evaluate(x, env)


def substitute(x: DimLike, env: Mapping[str, DimLike]) -> DimLike:
    """x with symbols replaced, all at once, by name; symbols that env does not name stay.

    Raises:
        ShapeError: the sizes of a `bcast` become static and disagree.
        ZeroDivisionError: a denominator becomes 0.
    """
    if not isinstance(x, Dim) or not any(symbol.name in env for symbol in symbols_of(x)):
        return as_dim(x)
    return rebuild(x, lambda symbol: as_dim(env.get(symbol.name, symbol)), {})


def rebuild(x: DimLike, leaf: Callable[[Symbol], DimLike], memo: dict[Dim, DimLike]) -> DimLike:
    """x with every symbol s replaced by `leaf(s)`; memo holds what was rebuilt already."""
    if not isinstance(x, Dim):
        return x
    out = memo.get(x)
    if out is not None:
        return out
    if isinstance(x, Symbol):
        out = leaf(x)
    elif isinstance(x, Node):
        args = [rebuild(arg, leaf, memo) for arg in x.args]
        out = x if all(a is b for a, b in zip(args, x.args, strict=True)) else apply_node(x.op, args)
    else:
        out = 0
        for monomial, coefficient in cast(Sum, x).terms:
            term: DimLike = coefficient
            for atom in monomial:
                term = term * rebuild(atom, leaf, memo)
            out = out + term
    memo[x] = out
    return out


def apply_node(op: str, args: list[DimLike]) -> DimLike:
    """`op(*args)` in normal form, for the ops of `Node`."""
    if op == "//":
        return floordiv(args[0], args[1])
    if op == "%":
        return mod(args[0], args[1])
    if op == "min":
        return dim_min(*args)
    if op == "max":
        return dim_max(*args)
    if op == "bcast":
        return broadcast_dims(args)
    raise AssertionError(f"unknown node {op!r}")


def _evaluate(x: DimLike, env: Mapping[str, int]) -> int:
    if isinstance(x, int):
        return x
    if isinstance(x, Symbol):
        try:
            return env[x.name]
        except KeyError:
            known = ", ".join(map(str, env)) or "none"
            raise ShapeError(f"no value for the size {x}; known: {known}") from None
    if isinstance(x, Sum):
        total = 0
        for monomial, coefficient in x.terms:
            for atom in monomial:
                coefficient *= _evaluate(atom, env)
            total += coefficient
        return total
    node = cast(Node, x)
    values = [_evaluate(arg, env) for arg in node.args]
    if node.op == "//":
        return values[0] // values[1]
    if node.op == "%":
        return values[0] % values[1]
    if node.op == "min":
        return min(values)
    if node.op == "max":
        return max(values)
    if node.op == "bcast":
        sizes = {value for value in values if value != 1}
        if len(sizes) > 1:
            raise ShapeError(f"the sizes of {node} do not broadcast: got {', '.join(map(str, values))}")
        return sizes.pop() if sizes else 1
    raise AssertionError(f"unknown node {node.op!r}")
