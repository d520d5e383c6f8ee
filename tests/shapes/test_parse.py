from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.shapes.expressions import Tree, build, trees
from tiercel.errors import ShapeError
from tiercel.shapes import Constraint, Dim, Symbol, parse_descriptor, parse_dim, parse_range, parse_token, product
from tiercel.shapes.dims import MAX_SIZE

B, T = Symbol("B"), Symbol("T")


@given(trees(14))
def test_text_round_trip_gives_the_same_object(tree: Tree) -> None:
    try:
        dim = build(tree)
    except (ShapeError, ZeroDivisionError):
        assume(False)
    again = parse_dim(str(dim))
    assert again is dim or (again == dim and isinstance(dim, int))


@pytest.mark.parametrize(
    "text",
    [
        "B*T + 2*T - 1", "T//2", "T % 8", "min(T, 512)", "max(a, b)", "bcast(a, b)", "-T", "-2*B*T + T", "-(T//2)",
        "-(T % 2)", "B - T % 2", "B - T//2", "2*(T//2)", "(T % 8)*(T//8)", "(B*T)//(N + 1)", "(-5)//T", "(B//T) % 7",
        "T//(B % 3)", "$n + @u0", "?0 + ?1", "a.b.c", "128", "-3", "min(b, max(a, 0))",
    ],
)  # fmt: skip
def test_texts_in_normal_form_come_back_as_they_are(text: str) -> None:
    assert str(parse_dim(text)) == text


def test_precedence_is_pythons() -> None:
    assert parse_dim("B + T*2 - -3") is B + 2 * T + 3
    assert parse_dim("-T//2") is (-T) // 2
    assert parse_dim("B*T//2*3") is ((B * T) // 2) * 3
    assert parse_dim("B - T - 1") is B - T - 1
    assert parse_dim("B//T % 5") is (B // T) % 5
    assert parse_dim(" ( B+ T )*2") is (B + T) * 2


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "expected an integer, a name or .*, got the end of the text"),
        ("a +", 3, "expected an integer"),
        ("a b", 2, "unexpected text, got 'b'"),
        ("a ** 2", 3, "expected an integer"),
        ("a / 2", 2, "unexpected character '/'"),
        ("a // 0", 2, "division of the size a by zero"),
        ("7 % (a - a)", 2, "modulo by zero|division|zero"),
        ("(a", 2, "expected '\\)'"),
        ("min()", 4, "expected an integer"),
        ("min", 3, "expected '\\('"),
        ("bcast(2, 3)", 0, "do not broadcast"),
        ("f(a)", 1, "unexpected text"),
        ("?", 0, "expected an integer"),
        ("99999999999999999999", 0, "64 bits"),
        ("9223372036854775808", 0, "64 bits"),
        ("9223372036854775807*9223372036854775807*9", 39, "127 bits"),
        ("a.", 1, "unexpected character '.'"),
        ("a == b", 2, "unexpected text"),
        ("min(a, where)", 7, "expected an integer"),
        ("a" * 100, 0, "name of a symbol"),
        ("(" * 60 + "a" + ")" * 60, 50, "levels of parentheses"),
        ("\N{GREEK SMALL LETTER ALPHA}", 0, "unexpected character"),
        ("a\n+b", 1, "unexpected character"),
    ],
)
def test_bad_text_is_refused_with_its_position(text: str, position: int, reason: str) -> None:
    with pytest.raises(ShapeError, match=f"size expression, position {position}: .*({reason})"):
        parse_dim(text)


ALPHABET = "ab?$@019()[]{},;: .+-*/%=<>!\t\nminxcastwhre"
PIECES = [
    "a", "b", "min(", "max(", "bcast(", "(", ")", ",", "//", "%", "*", "+", "-", "..", "?", "?0", "$n", "@u", "[", "]",
    ":", ";", "==", "<=", "0", "1", "7", "9223372036854775807", " ", "where", "float32", "{C}", "...", "dim0",
]  # fmt: skip
PARSERS = [parse_dim, parse_range, parse_token, parse_descriptor, Constraint.parse]


@given(
    st.one_of(
        st.text(ALPHABET, max_size=40),
        st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
        st.text(max_size=20),
    )
)
@example("[" * 1000)
@example("-" * 5000 + "a")
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in PARSERS:
        try:
            result = parse(text)
        except ShapeError:
            continue
        else:
            assert result is not None
            if parse is parse_dim and isinstance(result, Dim):
                assert parse_dim(str(result)) is result


HOSTILE = {
    "product of sums": "*".join(["(a+b+c+d)"] * 200),
    "powers": "*".join(["a"] * 5000),
    "squares of squares": "(" * 20 + "a+b" + ")*(a+b)" * 20,
    "tower of constants": "*".join(["9223372036854775807"] * 500),
    "deep minima": "min(a, " * 200 + "b" + ")" * 200,
    "long sum": "+".join(f"s{i}" for i in range(5000)),
    "long minimum": f"min({','.join(f's{i}' for i in range(2000))})",
    "long division": "+".join("*".join("abcdefgh"[i : i + 5]) for i in range(4)) + "//(" + "+".join("abcdefgh") + ")",
    "many divisions": "+".join(["(a+b)*(c+d)*(e+f)*(g+h)//(a+c+e+1)"] * 300),
    "many remainders": "+".join(f"(a*{i}+b) % (c+{i})*(d+e)" for i in range(500)),
    "minus signs": "-" * 30000 + "a",
    "huge": "a" * 1_000_000,
    "absorption": "min("
    + ",".join(f"max({','.join(f's{i * j % 97}' for j in range(1, 20))})" for i in range(1, 30))
    + ")",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_ends_soon(name: str) -> None:
    """No crash, hang or huge number; the time limit is that of the whole run."""
    try:
        parse_dim(HOSTILE[name])
    except ShapeError:
        pass


def test_the_largest_expressions_can_be_read_back() -> None:
    long_name = "n" * 63
    factors = [Symbol(f"{c}{long_name}") for c in "abcdefghijklmnop"]
    dim = sum((product(factors[i:]) * (i + 1) for i in range(16)), start=0)
    assert isinstance(dim, Dim)
    assert dim.size > MAX_SIZE // 4
    assert parse_dim(str(dim)) is dim
    names = [f"{c}{long_name}" for c in "abcdefghijklmnopqrstuvwxyzABCDEF"]
    for function in ("min", "max", "bcast"):
        wide = parse_dim(f"{function}({', '.join(names)})")
        assert parse_dim(str(wide)) is wide


def test_only_strings_are_read() -> None:
    with pytest.raises(TypeError, match="size expression: expected a string, got int"):
        parse_dim(3)  # type: ignore[arg-type]
