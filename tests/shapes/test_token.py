from __future__ import annotations

import pickle

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.shapes.expressions import SYMBOLS, Undefined, build, environments, plain, trees
from tiercel.errors import ShapeError
from tiercel.shapes import (
    UNKNOWN_RANK,
    DimLimitError,
    Facts,
    Range,
    ShapeToken,
    Symbol,
    evaluate,
    parse_dim,
    parse_token,
    symbols_of,
)

B, T = Symbol("B"), Symbol("T")


@st.composite
def dims(draw: st.DrawFn) -> object:
    kind = draw(st.sampled_from(["static", "symbol", "symbol", "anonymous", "expression"]))
    if kind == "static":
        return draw(st.integers(0, 9))
    if kind == "symbol":
        return SYMBOLS[draw(st.sampled_from("BTu"))]
    if kind == "anonymous":
        return Symbol(f"?{draw(st.integers(0, 3))}", draw(st.sampled_from(["input", "data"])))
    try:
        dim = build(draw(trees(4)))
    except (ZeroDivisionError, ShapeError):
        assume(False)
    assume(not isinstance(dim, int) or dim >= 0)
    return dim


RANGES = st.dictionaries(
    st.sampled_from(["B", "T", "@u", "$k", "?0", "@?1"]),
    st.tuples(st.integers(0, 8), st.integers(16, 30), st.sampled_from([1, 2, 8])),
)


@given(st.lists(dims(), max_size=5), RANGES)
def test_text_with_symbols_gives_token_and_ranges_back(sizes: list, ranges: dict[str, tuple[int, int, int]]) -> None:
    token = ShapeToken(tuple(sizes))
    facts = Facts()
    for name, (lo, hi, multiple) in ranges.items():
        facts.constrain(f"{name}: {lo}..{hi} % {multiple}")
    read = Facts()
    text = token.text(facts, symbols=True)
    assert parse_token(text, read) == token
    for symbol in token.symbols:
        assert read.range(symbol) == facts.range(symbol)
    assert parse_token(text, Facts()).text(read, symbols=True) == text
    without_ranges = token.text(symbols=True)
    assert parse_token(without_ranges) == token
    assert pickle.loads(pickle.dumps(token)) == token
    # The anonymous form can be read as well, with the same rank, static sizes and ranges.
    other = parse_token(token.text(facts), read := Facts())
    assert other.rank == token.rank
    for a, b in zip(token.dims or (), other.dims or (), strict=True):
        if isinstance(a, Symbol):
            assert read.range(b) == (facts.range(a).intersect(Range(0, None)) or facts.range(a))
        else:
            assert a == b


@pytest.mark.parametrize(
    ("text", "shown", "named"),
    [
        ("[...]", "[...]", "[...]"),
        ("[]", "[]", "[]"),
        ("[?, 128]", "[?, 128]", "[?0, 128]"),
        ("[16..64, 128, 768]", "[16..64, 128, 768]", "[?0: 16..64, 128, 768]"),
        ("[16..64 % 8, 128]", "[16..64 % 8, 128]", "[?0: 16..64 % 8, 128]"),
        ("[?, ?]", "[?, ?]", "[?0, ?1]"),
        ("[? % 8, ..64, 16.., 5..5]", "[? % 8, ..64, 16.., 5]", "[?0: ? % 8, ?1: ..64, ?2: 16.., 5]"),
        ("[B*T, 128]", "[B*T, 128]", "[B*T, 128]"),
        ("[B: 16..64, T]", "[16..64, ?]", "[B: 16..64, T]"),
        ("[B, B: 16..64, 2*B]", "[16..64, 16..64, 2*B]", "[B: 16..64, B, 2*B]"),
        ("[T + 1, T % 8]", "[T + 1, T % 8]", "[T + 1, T % 8]"),
        ("[B*T; B: 16..64, T: 1.. % 2]", "[B*T]", "[B*T; B: 16..64, T: 2.. % 2]"),
        ("[?0, ?, ?0, ?]", "[?, ?, ?, ?]", "[?0, ?1, ?0, ?2]"),
        ("[@u0: ..100, $n]", "[..100, ?]", "[@u0: ..100, $n]"),
        ("[16..64 % 8 = 3]", "[19..59 % 8 = 3]", "[?0: 19..59 % 8 = 3]"),
        ("[T: 8]", "[8]", "[T: 8]"),
        ("[ B ,T ]", "[?, ?]", "[B, T]"),
    ],
)
def test_text_forms(text: str, shown: str, named: str) -> None:
    facts = Facts()
    token = parse_token(text, facts)
    assert token.text(facts) == shown
    assert token.text(facts, symbols=True) == named
    assert parse_token(named, Facts()) == token


def test_text_shows_what_facts_have_learnt() -> None:
    token = parse_token("[B, 128, 768]")
    facts = Facts()
    assert token.text(facts) == "[?, 128, 768]"
    facts.set_range(B, Range(16, 64))
    assert token.text(facts) == "[16..64, 128, 768]"
    assert token.text() == "[?, 128, 768]"
    assert str(token) == "[B, 128, 768]"


def test_sizes_without_a_name_are_different_sizes() -> None:
    token = parse_token("[?, ?, 16..64]")
    assert len(token.symbols) == 3
    facts = Facts()
    first, second = parse_token("[?, T]", facts), parse_token("[?, T]", facts)
    assert first != second
    assert first.symbols & second.symbols == {T}
    assert facts.equal(first.dims[0], second.dims[0]) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "[", "]", "[,]", "[1,]", "[1 2]", "[-1]", "[?; ]", "[B; C]", "[B; 3: 4]", "[..., 1]", "[-3..5]",
        "[-inf..]", "[5..3]", "[B: ]", "[1..7 % 8]", "[B]]", "[B", "B, T", "[B: 4, B: 5]", "[3: 4]", "[1..2..3]",
        "[" + "1," * 64 + "1]", "[?99999999999]", "[?0: 4; ?0: 5]", "[B: 16..64 % 0]",
    ],
)  # fmt: skip
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(ShapeError):
        parse_token(text)


def test_refused_text_changes_no_facts() -> None:
    facts = Facts(["B >= 10"])
    with pytest.raises(ShapeError, match=r"`B: \.\.5` contradicts `B >= 10`"):
        parse_token("[T: 1..4, B: 0..5]", facts)
    assert str(facts.range(T)) == "?"
    parse_token("[T: 1..4, B: 0..50]", facts)
    assert str(facts.range(B)) == "10..50"


def test_bad_tokens_are_refused() -> None:
    with pytest.raises(ShapeError, match="dimension 1 of a shape: a size cannot be negative, got -2"):
        ShapeToken((1, -2))
    with pytest.raises(ShapeError, match="at most 64"):
        ShapeToken((1,) * 65)
    with pytest.raises(TypeError, match="a size must be an int or a Dim"):
        ShapeToken((1.5,))  # type: ignore[arg-type]


def test_parts() -> None:
    token = parse_token("[B, 3, B*T]")
    assert token.rank == 3
    assert token.symbols == {B, T}
    assert token.static_shape is None
    assert parse_token("[2, 3]").static_shape == (2, 3)
    assert UNKNOWN_RANK.rank is None
    assert UNKNOWN_RANK.static_shape is None
    assert parse_token("[]").static_shape == ()
    assert token.substitute({"B": 4}) == parse_token("[4, 3, 4*T]")
    assert token.simplify(Facts(["T == 1"])) == parse_token("[B, 3, B]")
    assert UNKNOWN_RANK.substitute({"B": 4}) is UNKNOWN_RANK


def test_join() -> None:
    facts = Facts()
    joined = parse_token("[B, 3, T, 4]").join(parse_token("[B, 3, B, 5]"), lambda: facts.fresh_symbol("data"))
    assert str(joined) == "[B, 3, @?0, @?1]"
    assert parse_token("[B]").join(parse_token("[B, T]"), facts.fresh_symbol) == UNKNOWN_RANK
    assert UNKNOWN_RANK.join(parse_token("[B]"), facts.fresh_symbol) == UNKNOWN_RANK


# --- Matching --------------------------------------------------------------------------------------------------------


@given(st.lists(trees(4), min_size=1, max_size=4), environments, st.data())
def test_every_shape_of_the_token_matches(sizes: list, env: dict[str, int], data: st.DataObject) -> None:
    try:
        token = ShapeToken(tuple(build(tree) for tree in sizes))
        shape = tuple(plain(tree, env) for tree in sizes)
    except (Undefined, ShapeError, ZeroDivisionError):
        assume(False)
    assume(all(n >= 0 for n in shape))
    bound = token.matches(shape)
    assert bound is not None, token.explain_mismatch(shape)
    # What is bound agrees with the shape, wherever all of an expression is bound.
    for dim, size in zip(token.dims or (), shape, strict=True):
        if all(symbol.name in bound for symbol in symbols_of(dim)):
            assert evaluate(dim, bound) == size
    known = {symbol.name: env[symbol.name] for symbol in token.symbols}
    assert token.matches(shape, known) == known
    # Another size in one place matches only if other symbols explain it.
    i = data.draw(st.integers(0, len(shape) - 1))
    other = (*shape[:i], shape[i] + 1, *shape[i + 1 :])
    assert token.matches(other, known) is None
    assert f"dimension {i} of {token}" in token.explain_mismatch(other, known)


@pytest.mark.parametrize(
    ("text", "shape", "before", "bound"),
    [
        ("[B, T, 128]", (4, 7, 128), {}, {"B": 4, "T": 7}),
        ("[B, B]", (4, 4), {}, {"B": 4}),
        ("[B*T, B]", (28, 4), {}, {"B": 4, "T": 7}),
        ("[2*T]", (8,), {}, {"T": 4}),
        ("[T + 1]", (1,), {}, {"T": 0}),
        ("[B*T]", (6,), {}, {}),
        ("[B*T]", (6,), {"B": 2}, {"B": 2, "T": 3}),
        ("[B*T, B]", (0, 0), {}, {"B": 0}),
        ("[B*T + T, T*N, B]", (9, 12, 2), {}, {"B": 2, "T": 3, "N": 4}),
        ("[T//2, T]", (3, 7), {}, {"T": 7}),
        ("[...]", (1, 2), {"B": 1}, {"B": 1}),
        ("[]", (), {}, {}),
        ("[?, ?]", (5, 5), {}, {"?0": 5, "?1": 5}),
        ("[bcast(B, T), B, T]", (5, 1, 5), {}, {"B": 1, "T": 5}),
        ("[$n + 5]", (3,), {}, {"n": -2}),
    ],
)
def test_matching(text: str, shape: tuple[int, ...], before: dict[str, int], bound: dict[str, int]) -> None:
    token = parse_token(text)
    copied = dict(before)
    assert token.matches(shape, before) == bound
    assert before == copied
    assert token.explain_mismatch(shape, before) == ""


@pytest.mark.parametrize(
    ("text", "shape", "before", "message"),
    [
        ("[B, 128]", (4, 64), {}, "dimension 1 of [B, 128]: expected 128, got 64"),
        ("[B, B]", (4, 5), {}, "dimension 1 of [B, B]: expected B = 4 (from dimension 0), got 5"),
        ("[B]", (5,), {"B": 4}, "dimension 0 of [B]: expected B = 4 (bound before), got 5"),
        ("[B, 2*B]", (4, 9), {}, "dimension 1 of [B, 2*B]: expected 2*B = 8 (with B = 4), got 9"),
        ("[2*T]", (9,), {}, "dimension 0 of [2*T]: no size T makes 2*T equal to 9"),
        ("[T + 1]", (0,), {}, "dimension 0 of [T + 1]: no size T makes T + 1 equal to 0"),
        ("[B*T, B]", (3, 0), {}, "dimension 0 of [B*T, B]: no size T makes B*T equal to 3"),
        ("[B]", (1, 2), {}, "expected 1 dimensions [B], got 2: (1, 2)"),
        ("[]", (3,), {}, "expected 0 dimensions [], got 1: (3,)"),
        (
            "[bcast(B, T), B, T]", (5, 2, 5), {},
            ("dimension 0 of [bcast(B, T), B, T]: bcast(B, T) has no value: "
             "the sizes of bcast(B, T) do not broadcast: got 2, 5"),
        ),
        (
            "[B//T, B, T]", (5, 2, 0), {},
            "dimension 0 of [B//T, B, T]: B//T has no value: integer division or modulo by zero",
        ),
    ],
)  # fmt: skip
def test_mismatch(text: str, shape: tuple[int, ...], before: dict[str, int], message: str) -> None:
    token = parse_token(text)
    assert token.matches(shape, before) is None
    assert token.explain_mismatch(shape, before) == message


def test_one_environment_for_several_operands() -> None:
    env = parse_token("[B, T]").matches((4, 7))
    assert parse_token("[B, 4*H]").matches((4, 32), env) == {"B": 4, "T": 7, "H": 8}
    assert parse_token("[T]").matches((8,), env) is None


def test_expressions_beyond_the_limits_are_refused() -> None:
    with pytest.raises(DimLimitError):
        parse_token("[B, 1]").substitute({"B": parse_dim("+".join(f"s{i}" for i in range(100))) * parse_dim("a + b")})
