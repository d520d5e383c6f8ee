"""`min`, `max`, `bcast` and the small functions made of them, in normal form.

What comes in are ints and dimensions, in any order and nesting; what goes out is an int, one of the arguments, or one
flat sorted node. min and max keep only arguments that no other argument makes superfluous by form alone: `a` beside
`a + 1`, `min(a, b)` beside `a`. The comparison behind this is a preorder, and of equals the first by sort key
stays, so any grouping and order of the arguments ends in the same node.
"""

from __future__ import annotations

from collections.abc import Iterable

from tiercel.errors import ShapeError
from tiercel.shapes.dims import (
    Dim,
    DimLike,
    Node,
    Sum,
    as_dim,
    floordiv,
    from_terms,
    key_of,
    make_node,
    memo_table,
    remember,
    terms_of,
)
from tiercel.shapes.polynomial import DimLimitError

MAX_ARGUMENTS = 32

_broadcasts = memo_table()


def dim_min(*xs: DimLike) -> DimLike:
    """The smallest of one or more sizes.

    Raises:
        TypeError: no argument, or one that is no size.
    """
    return _extreme("min", xs)


def dim_max(*xs: DimLike) -> DimLike:
    """The largest of one or more sizes.

    Raises:
        TypeError: no argument, or one that is no size.
    """
    return _extreme("max", xs)


def broadcast_dim(a: DimLike, b: DimLike) -> DimLike:
    """The size that a and b broadcast to: b where a is 1, else a.

    Assumes that the broadcast is legal (a == b, or one of them is 1) and that sizes are not negative. Under that
    assumption `bcast` is associative, commutative and idempotent, and a static size other than 1 is the result,
    0 included: `bcast(T, 5)` is 5 (T is 1 or 5), `bcast(T, 0)` is 0.

    Raises:
        ShapeError: both are static and disagree, or one is negative.
    """
    if a.__class__ is int and b.__class__ is int:  # the common case of operator rules
        if a == b or b == 1:
            return _checked_size(a)
        if a == 1:
            return _checked_size(b)
    out = _broadcasts.get((a, b))
    return remember(_broadcasts, (a, b), broadcast_dims((a, b))) if out is None else out


def broadcast_dims(xs: Iterable[DimLike]) -> DimLike:
    """The size that all of xs broadcast to; 1 if there are none. See `broadcast_dim`."""
    static = 1
    dynamic: set[Dim] = set()
    for x in xs:
        for arg in x.args if isinstance(x, Node) and x.op == "bcast" else (as_dim(x),):
            if isinstance(arg, Dim):
                dynamic.add(arg)
            elif _checked_size(arg) != 1:
                if static not in (1, arg):
                    raise ShapeError(f"sizes {static} and {arg} do not broadcast: they differ and neither is 1")
                static = arg
    if static != 1 or not dynamic:
        return static
    if len(dynamic) == 1:
        return dynamic.pop()
    _check_count(len(dynamic))
    return make_node("bcast", tuple(sorted(dynamic, key=key_of)))


def ceil_div(a: DimLike, b: DimLike) -> DimLike:
    """`a / b` rounded up, for any b but 0.

    Raises:
        ZeroDivisionError: b is the int 0.
    """
    a, b = as_dim(a), as_dim(b)
    if isinstance(b, int) and b > 0:
        return floordiv(a + (b - 1), b)
    return -floordiv(-a, b)


def product(xs: Iterable[DimLike]) -> DimLike:
    """The product of all sizes, 1 if there are none."""
    number = 1
    out: DimLike = 1
    for x in xs:
        if x.__class__ is int:
            number *= x
        else:
            out = out * as_dim(x)
    return out * number


def split_constant(x: DimLike) -> tuple[DimLike, int]:
    """x as (part without constant, constant)."""
    if isinstance(x, Sum):
        monomial, constant = x.terms[-1]  # the constant sorts last
        if not monomial:
            terms = terms_of(x)
            del terms[()]
            return from_terms(terms), constant
        return x, 0
    return (x, 0) if isinstance(x, Dim) else (0, x)


def _extreme(op: str, xs: tuple[DimLike, ...]) -> DimLike:
    if not xs:
        raise TypeError(f"dim_{op} needs at least one size")
    sign = 1 if op == "min" else -1
    other = "max" if op == "min" else "min"
    # Of arguments that differ by a constant only one counts.
    best: dict[DimLike, int] = {}
    for x in xs:
        for arg in x.args if isinstance(x, Node) and x.op == op else (as_dim(x),):
            base, constant = split_constant(arg)
            seen = best.get(base)
            if seen is None or sign * constant < sign * seen:
                best[base] = constant
    if len(best) == 1:
        ((base, constant),) = best.items()
        return base + constant
    _check_count(len(best))
    args = sorted((base + constant for base, constant in best.items()), key=key_of)
    # Each argument as the (base, constant) pairs whose `other` it is: max(a, b) + 1 is at least a + 1 and b + 1.
    parts = [_alternatives(arg, other) for arg in args]
    kept = [
        arg
        for i, arg in enumerate(args)
        if not any(
            _implied(parts[i], parts[j], sign) and (j < i or not _implied(parts[j], parts[i], sign))
            for j in range(len(args))
            if j != i
        )
    ]
    return kept[0] if len(kept) == 1 else make_node(op, tuple(kept))


def _alternatives(x: DimLike, op: str) -> list[tuple[DimLike, int]]:
    base, constant = split_constant(x)
    if isinstance(base, Node) and base.op == op:
        return [(inner, c + constant) for inner, c in map(split_constant, base.args)]
    return [(base, constant)]


def _implied(weak: list[tuple[DimLike, int]], strong: list[tuple[DimLike, int]], sign: int) -> bool:
    """For min (sign 1), with arguments that are maxima of these pairs: is strong <= weak always?

    It is if every part of strong is at most some part of weak.
    """
    return all(any(b == wb and sign * c <= sign * wc for wb, wc in weak) for b, c in strong)


def _checked_size(x: int) -> int:
    if x < 0:
        raise ShapeError(f"a size cannot be negative, got {x}")
    return x


def _check_count(count: int) -> None:
    if count > MAX_ARGUMENTS:
        raise DimLimitError(f"min, max or bcast of {count} sizes: at most {MAX_ARGUMENTS} are supported")
