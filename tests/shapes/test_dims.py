from __future__ import annotations

import copy
import gc
import itertools
import os
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.shapes.expressions import SYMBOLS, Tree, Undefined, build, environments, plain, trees
from tiercel.errors import ShapeError
from tiercel.shapes import (
    Dim,
    DimLike,
    DimLimitError,
    Symbol,
    broadcast_dim,
    ceil_div,
    concat_dim,
    dim_max,
    dim_min,
    evaluate,
    parse_dim,
    product,
    substitute,
    symbols_of,
)
from tiercel.shapes.dims import clear_memo

B, T, N = Symbol("B"), Symbol("T"), Symbol("N")


def built(tree: Tree) -> DimLike:
    try:
        return build(tree)
    except (ZeroDivisionError, ShapeError):
        assume(False)
        raise AssertionError from None


def value(tree: Tree, env: dict[str, int]) -> int:
    try:
        return plain(tree, env)
    except Undefined:
        assume(False)
        raise AssertionError from None


# --- Values ----------------------------------------------------------------------------------------------------------


@given(trees(12), environments)
def test_every_expression_has_the_value_of_plain_integers(tree: Tree, env: dict[str, int]) -> None:
    expected = value(tree, env)
    dim = built(tree)
    assert evaluate(dim, env) == expected
    assert isinstance(dim, int) or symbols_of(dim)


@given(trees(8), environments)
def test_substituting_ints_is_evaluating(tree: Tree, env: dict[str, int]) -> None:
    expected = value(tree, env)
    out = substitute(built(tree), env)
    assert type(out) is int
    assert out == expected


@given(trees(6), st.dictionaries(st.sampled_from(sorted(SYMBOLS)), trees(4)), environments)
def test_substituting_expressions(tree: Tree, replacements: dict[str, Tree], env: dict[str, int]) -> None:
    inner = {name: value(replacement, env) for name, replacement in replacements.items()}
    assume(all(inner.get(name, 0) >= 0 for name in "BTu"))  # sizes stay sizes
    expected = value(tree, {**env, **inner})
    try:
        out = substitute(built(tree), {name: built(replacement) for name, replacement in replacements.items()})
    except (ZeroDivisionError, ShapeError):
        assume(False)
    assert evaluate(out, env) == expected


@given(trees(5), trees(5), environments)
def test_ceil_div_rounds_up(a: Tree, b: Tree, env: dict[str, int]) -> None:
    x, y = value(a, env), value(b, env)
    assume(y != 0)
    try:
        out = ceil_div(built(a), built(b))
    except (ZeroDivisionError, ShapeError):
        assume(False)
    assert evaluate(out, env) == -(-x // y)


def test_substitution_is_simultaneous() -> None:
    assert substitute(B + 2 * T, {"B": T, "T": B}) is T + 2 * B


def test_evaluate_names_the_missing_symbol() -> None:
    with pytest.raises(ShapeError, match="no value for the size T; known: B"):
        evaluate(B + T, {"B": 1})
    with pytest.raises(ZeroDivisionError):
        evaluate(B // T, {"B": 1, "T": 0})
    with pytest.raises(ShapeError, match=r"the sizes of bcast\(B, T\) do not broadcast: got 2, 3"):
        evaluate(broadcast_dim(B, T), {"B": 2, "T": 3})


# --- Normal form -----------------------------------------------------------------------------------------------------


@given(trees(6), trees(6), trees(6))
def test_ring_laws_give_one_object(ta: Tree, tb: Tree, tc: Tree) -> None:
    a, b, c = built(ta), built(tb), built(tc)
    try:
        pairs = [
            (a + b, b + a),
            (a * b, b * a),
            ((a + b) + c, a + (b + c)),
            ((a * b) * c, a * (b * c)),
            (a * (b + c), a * b + a * c),
            (a - b, a + -1 * b),
            (a - a, 0),
            (a - b + b, a),
        ]
    except DimLimitError:
        assume(False)
    for left, right in pairs:
        assert left == right
        assert hash(left) == hash(right)


@given(trees(5), trees(3), trees(4))
def test_multiples_of_the_denominator_move_out(ta: Tree, tm: Tree, td: Tree) -> None:
    a, m, d = built(ta), built(tm), built(td)
    assume(d != 0)
    try:
        assert (a + m * d) // d == a // d + m
        assert (a + m * d) % d == a % d
        assert (m * d) // d == m
        assert (m * d) % d == 0
    except (DimLimitError, ZeroDivisionError):
        assume(False)


@given(trees(5, broadcast=False), trees(3, broadcast=False), st.integers(1, 12), st.integers(1, 12))
def test_nested_floor_divisions_and_remainders(ta: Tree, tb: Tree, m: int, n: int) -> None:
    a, b = built(ta), built(tb)
    if "//" not in str(a):  # else several divisions may be summed up in the numerator, and their order shows
        assert (a // m) // n == a // (m * n)
        if not isinstance(b, int):
            assert (a // b) // n == a // (b * n)
    assert (a % (m * n)) % n == a % n
    assert (a % m) // m == 0
    assert (a % m) % (m * n) == a % m
    assert (m * a) // (m * n) == a // n
    assert (m * a) % (m * n) == m * (a % n)


@pytest.mark.parametrize(("combine", "op"), [(dim_min, "min"), (dim_max, "max"), (broadcast_dim, "bcast")])
@given(data=st.data())
def test_lattice_laws_give_one_object(combine: object, op: str, data: st.DataObject) -> None:
    from tests.shapes.expressions import sizes

    inner = trees(4) if op != "bcast" else sizes
    if op != "bcast":  # the other extreme inside, where absorption happens
        other = "max" if op == "min" else "min"
        inner = st.one_of(inner, st.tuples(st.just(other), trees(2), trees(2)))
    a, b, c = (built(data.draw(inner)) for _ in range(3))
    f = combine
    assert callable(f)
    try:
        results = [f(a, f(b, c)), f(f(a, b), c), f(f(c, a), b), f(f(b, a), f(a, c)), f(f(a, f(b, c)), a)]
    except ShapeError:  # static sizes that do not broadcast
        assume(False)
    assert len(set(results)) == 1, results
    assert f(a, a) == a


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("T*B + B*T", "2*B*T"),
        ("(B*T*128)//(T*128)", "B"),
        ("(B*T*768)//768", "B*T"),
        ("(B*T + B)//(T + 1)", "B"),
        ("(B*(T + 1))//(2*T + 2)", "B//2"),
        ("(N*(T + 1))//(B*(T + 1))", "N//B"),
        ("(8*T + 3)//8", "T"),
        ("(8*T + 11)//8", "T + 1"),
        ("(6*T + 5)//4", "T + T//2 + 1"),
        ("(2*T + 1)//4", "T//2"),
        ("(T//2)//3", "T//6"),
        ("(T//2 + B)//3", "(T + 2*B)//6"),
        ("T//1", "T"),
        ("T//T", "1"),
        ("0//T", "0"),
        ("T//-2", "(-T)//2"),
        ("(4*T)//(8*B)", "T//(2*B)"),
        ("(8*T + B) % 8", "B % 8"),
        ("T % 1", "0"),
        ("T % T", "0"),
        ("(4*T + 5) % 8", "4*((T + 1) % 2) + 1"),
        ("(T % 8 + B) % 8", "(T + B) % 8"),
        ("(T % 8) % 4", "T % 4"),
        ("(T % 4) % 8", "T % 4"),
        ("(T % 8)//8", "0"),
        ("(B*768) % (T*768)", "768*(B % T)"),
        ("T % -3", "-((-T) % 3)"),
        ("min(T, 512, min(B, 300))", "min(B, T, 300)"),
        ("min(T, T + 1, T - 2)", "T - 2"),
        ("max(min(T, 5), T)", "T"),
        ("min(max(T, 5), 5)", "5"),
        ("max(min(T, 5), 7)", "7"),
        ("min(max(T, 5), max(T + 1, 6, B))", "max(T, 5)"),
        ("bcast(T, T)", "T"),
        ("bcast(T, 1)", "T"),
        ("bcast(T, 5)", "5"),
        ("bcast(T, 0)", "0"),
        ("bcast(bcast(T, B), bcast(N, T))", "bcast(B, N, T)"),
    ],
)
def test_rules(text: str, normal: str) -> None:
    assert parse_dim(text) == parse_dim(normal)


def test_remainders_inside_divisions_exhaustively() -> None:
    """The places where a form is decided by the largest value of a remainder."""
    for k, c, factor, d in itertools.product(range(1, 6), range(4), (1, 2), range(1, 9)):
        inner = factor * (T % k) + c
        for t in range(2 * k):
            plain_inner = factor * (t % k) + c
            assert evaluate(inner // d, {"T": t}) == plain_inner // d
            assert evaluate(inner % d, {"T": t}) == plain_inner % d


def test_what_must_not_be_simplified_stays() -> None:
    """Symbols may be 0 or 1 (and int registers negative); two symbols are never the same size."""
    for text in [
        "max(T, 1)",
        "min(T, B)",
        "bcast(T, B)",
        "max(T, 0)",
        "1//T",
        "B//T",
        "(B + T)//T - 2",
        "T - B",
        "T % 2",
        "min(2*T, T)",
    ]:
        assert isinstance(parse_dim(text), Dim), text
    assert B != T
    assert B != 1


def test_results_are_ints_whenever_they_are_constant() -> None:
    results = [T - T, T * 0, T // T, T % T, T - (T - 3), dim_min(T, T - 2) - T, 0 * B * T, product([]), product([2, 3])]
    assert results == [0, 0, 1, 0, 3, -2, 0, 1, 6]
    assert all(type(x) is int for x in results)
    assert product([B, 2, T, 3]) is 6 * B * T


def test_division_by_zero_is_refused_at_once() -> None:
    for operation in (lambda: T // 0, lambda: T % 0, lambda: T // (B - B), lambda: ceil_div(T, 0)):
        with pytest.raises(ZeroDivisionError, match="the size"):
            operation()


def test_broadcast_refuses_static_sizes() -> None:
    with pytest.raises(ShapeError, match="sizes 2 and 3 do not broadcast"):
        broadcast_dim(2, 3)
    with pytest.raises(ShapeError, match="sizes 0 and 3 do not broadcast"):
        broadcast_dim(0, 3)
    with pytest.raises(ShapeError, match="negative, got -1"):
        broadcast_dim(-1, T)
    with pytest.raises(ShapeError, match="negative, got -1"):
        broadcast_dim(-1, -1)
    assert [broadcast_dim(1, 0), broadcast_dim(0, 1), broadcast_dim(0, 0), broadcast_dim(1, 1)] == [0, 0, 0, 1]


# --- As Python objects -----------------------------------------------------------------------------------------------


def test_symbols_are_name_and_kind() -> None:
    assert Symbol("T") is T
    assert Symbol("T", "data") is not T
    assert Symbol("T", "data") != T
    assert {str(Symbol("T", kind)) for kind in ("input", "scalar", "data")} == {"T", "$T", "@T"}
    assert (T.name, T.kind) == ("T", "input")
    assert symbols_of(B * T + 3) == {B, T}
    assert symbols_of(5) == frozenset()


@pytest.mark.parametrize("name", ["", "1a", "a b", "?", "?x", "?01", "a.", "min", "bcast", "é", "a" * 65, "a\n", 3])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(ShapeError, match="name of a symbol"):
        Symbol(name)


def test_bad_kind_is_refused() -> None:
    with pytest.raises(ShapeError, match="expected one of input, scalar, data, got 'batch'"):
        Symbol("fresh_name", "batch")


def test_no_order_and_no_truth_value() -> None:
    for compare in (lambda: T < B, lambda: T <= 3, lambda: T > 3, lambda: T >= B, lambda: sorted([T, B])):
        with pytest.raises(TypeError, match=r"Facts\.less_equal"):
            compare()
    with pytest.raises(TypeError, match=r"Facts\.equal\(T, 0\)"):
        bool(T)


def test_other_operands() -> None:
    assert np.int64(3) * T is 3 * T
    assert T + np.int32(2) is T + 2
    assert type(np.int64(4) - (T - T + np.int64(3))) in (int, np.int64)
    assert T * True is T
    assert np.uint8(7) // T is 7 // T
    for bad in (1.0, "x", None, [1]):
        for operation in (lambda x: T + x, lambda x: x * T, lambda x: T // x, lambda x: x % T, lambda x: x - T):
            with pytest.raises(TypeError):
                operation(bad)
    T + 1
    with pytest.raises(TypeError):  # also where the int of the same value was seen before
        T + 1.0  # type: ignore[operator]


@given(trees(8))
def test_copies_and_pickles_are_the_same_object(tree: Tree) -> None:
    dim = built(tree)
    assume(isinstance(dim, Dim))
    assert copy.copy(dim) is dim
    assert copy.deepcopy([dim])[0] is dim
    assert pickle.loads(pickle.dumps(dim)) is dim


def test_equal_across_processes_by_pickle_and_text() -> None:
    """The normal form and its text do not depend on hash randomisation."""
    code = (
        "import pickle, sys; from tiercel.shapes import parse_dim;"
        "d = parse_dim('min(B*T, 7*q, bcast(z, a, m)) + (c*d*e + b)//(f*g + h) - $s % 5 + @u0');"
        "sys.stdout.buffer.write(pickle.dumps((d, str(d))))"
    )
    outputs = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=env)
        outputs.append(pickle.loads(done.stdout))
    assert outputs[0] == outputs[1]
    assert str(outputs[0][0]) == outputs[0][1]


def test_unused_expressions_are_freed() -> None:
    from tiercel.shapes.dims import _interned

    clear_memo()
    gc.collect()
    before = len(_interned)
    kept = [Symbol(f"temporary{i}") * 3 + i for i in range(100)]
    assert len(_interned) >= before + 200
    del kept
    clear_memo()
    gc.collect()
    assert len(_interned) <= before


def test_threads_agree_on_objects() -> None:
    results: list[list[DimLike]] = []
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        generator = random.Random(7)
        out: list[DimLike] = []
        for i in range(300):
            a, b = Symbol(f"threads{i % 30}"), Symbol(f"threads{generator.randrange(30)}")
            out += [a * b + i, dim_min(a, b * i), (a + b) // (i + 2)]
        results.append(out)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(all(x is y for x, y in zip(results[0], other, strict=True)) for other in results[1:])


# --- Limits ----------------------------------------------------------------------------------------------------------


def test_growth_ends_in_a_limit_error() -> None:
    def repeat(step: Callable[[DimLike, int], DimLike], dim: DimLike) -> None:
        for i in range(200):
            dim = step(dim, i)

    wide = product([Symbol(f"s{2 * i}") + Symbol(f"s{2 * i + 1}") for i in range(6)])
    for step, start, message in [
        (lambda dim, _: dim * dim, T + 1, "at most 16 factors"),
        (lambda dim, _: dim * 7, 3 * T, "127 bits"),
        (lambda dim, i: dim_min(2 * dim, B + i), T, "nested"),
        (lambda dim, i: dim + Symbol(f"s{i}") * Symbol(f"t{i}") * B * T, 0, "symbols and operators|terms"),
        (lambda dim, _: dim * (T + wide), wide, "too large|factors"),
    ]:
        with pytest.raises(DimLimitError, match=message):
            repeat(step, start)
    with pytest.raises(DimLimitError, match="with 129 terms"):
        concat_dim([Symbol(f"s{i}") for i in range(200)])
    with pytest.raises(DimLimitError, match="min, max or bcast of 40 sizes"):
        dim_min(*(Symbol(f"s{i}") for i in range(40)))
