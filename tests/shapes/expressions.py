"""Random size expressions as trees, with two meanings: plain Python integers, and the package's symbolic sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from tiercel.shapes import DimLike, Symbol, broadcast_dim, dim_max, dim_min

SYMBOLS = {"B": Symbol("B"), "T": Symbol("T"), "u": Symbol("u", "data"), "k": Symbol("k", "scalar")}

Tree = tuple[Any, ...]


class Undefined(Exception):
    """The expression has no value here: a zero denominator, or sizes that do not broadcast."""


def plain(tree: Tree, env: Mapping[str, int]) -> int:
    """The value by Python's integers; raises Undefined if there is none."""
    op = tree[0]
    if op == "symbol":
        return env[tree[1]]
    if op == "int":
        return int(tree[1])
    a, b = plain(tree[1], env), plain(tree[2], env)
    if op in ("//", "%") and b == 0:
        raise Undefined
    if op == "bcast":
        if a < 0 or b < 0 or (a != b and 1 not in (a, b)):
            raise Undefined
        return b if a == 1 else a
    return int({
        "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: a // b, "%": lambda: a % b,
        "min": lambda: min(a, b), "max": lambda: max(a, b),
    }[op]())  # fmt: skip


def build(tree: Tree) -> DimLike:
    """The symbolic size; ZeroDivisionError and ShapeError as the package raises them."""
    op = tree[0]
    if op == "symbol":
        return SYMBOLS[tree[1]]
    if op == "int":
        return int(tree[1])
    a, b = build(tree[1]), build(tree[2])
    return {
        "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: a // b, "%": lambda: a % b,
        "min": lambda: dim_min(a, b), "max": lambda: dim_max(a, b), "bcast": lambda: broadcast_dim(a, b),
    }[op]()  # fmt: skip


integers = st.integers(-6, 12).map(lambda n: ("int", n))
symbols = st.sampled_from(sorted(SYMBOLS)).map(lambda name: ("symbol", name))
sizes = st.one_of(
    st.sampled_from(["B", "T", "u"]).map(lambda n: ("symbol", n)), st.sampled_from([0, 1, 5]).map(lambda n: ("int", n))
)
broadcasts = st.tuples(st.just("bcast"), sizes, sizes)


def trees(max_leaves: int = 8, broadcast: bool = True) -> st.SearchStrategy[Tree]:
    leaves = st.one_of(symbols, symbols, integers, *([broadcasts] if broadcast else []))
    return st.recursive(
        leaves,
        lambda inner: st.tuples(
            st.sampled_from(["+", "-", "*", "*", "//", "//", "%", "%", "min", "max"]), inner, inner
        ),
        max_leaves=max_leaves,
    )


# Small sizes, 0 and 1 often, and often only two of them, so that broadcasts are legal.
environments = st.one_of(
    st.fixed_dictionaries(
        {"B": st.integers(0, 9), "T": st.integers(0, 9), "u": st.integers(0, 40), "k": st.integers(-9, 9)}
    ),
    st.sampled_from([0, 2, 5, 7]).flatmap(
        lambda n: st.fixed_dictionaries(
            {
                "B": st.sampled_from([1, n]),
                "T": st.sampled_from([1, n]),
                "u": st.sampled_from([1, n]),
                "k": st.integers(-9, 9),
            }
        )
    ),
)
