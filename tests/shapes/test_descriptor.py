from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.shapes.expressions import environments
from tests.shapes.test_facts import true_constraints
from tiercel.errors import ShapeError
from tiercel.shapes import Constraint, DimLimitError, Facts, TensorDescriptor, evaluate, parse_descriptor, parse_token


def descriptor(token: str, *constraints: str, **parts: str) -> TensorDescriptor:
    facts = Facts(constraints)
    return TensorDescriptor(parse_token(token, facts), "float32", **parts).with_facts(facts)


def test_parts() -> None:
    d = descriptor("[B, 128, B*T, T]")
    assert d.static_dims == {1: 128}
    assert d.dynamic_dim_ids == {0: "B", 2: "B*T", 3: "T"}
    assert d.shape_constraint == ("dim2 == dim0*dim3",)
    assert (d.layout, d.device, d.dtype_name) == ("C", "cpu", "float32")
    unknown = TensorDescriptor(parse_token("[...]"), SimpleNamespace(name="int8"))
    assert (unknown.static_dims, unknown.dynamic_dim_ids, unknown.dtype_name) == ({}, {}, "int8")
    assert str(unknown) == "int8[...]{C}"


@pytest.mark.parametrize(
    ("token", "facts", "expected"),
    [
        ("[B]", (), ()),
        ("[B]", ("B % 8 == 0", "B <= 512"), ("dim0 <= 512", "dim0 % 8 == 0")),
        ("[16..64 % 8, 128]", (), ("dim0 >= 16", "dim0 <= 64", "dim0 % 8 == 0")),
        ("[B, T]", ("T == 2*B",), ("dim1 == 2*dim0",)),
        ("[B, 2*B]", (), ("dim1 == 2*dim0",)),
        ("[B, 3, B]", (), ("dim2 == dim0",)),
        ("[B, T]", ("B <= T",), ("dim0 <= dim1",)),
        ("[B, T]", ("B*T <= 1024",), ("dim0*dim1 <= 1024",)),
        ("[B*T]", ("B*T <= 1024",), ("dim0 <= 1024",)),
        ("[B*T, 3]", ("B % 8 == 0",), ("dim0 % 8 == 0",)),
        ("[B]", ("B == 5",), ("dim0 == 5",)),
        ("[B, T]", ("B == N", "T == N"), ("dim1 == dim0",)),
        ("[? % 8 = 3]", (), ("dim0 % 8 == 3",)),
        ("[B]", ("Z <= 3",), ()),
    ],
)
def test_constraints_from_facts(token: str, facts: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert descriptor(token, *facts).shape_constraint == expected


TOKENS = ["[B, T]", "[B, @u, B*T]", "[T + 1, 3, B]", "[@u//2, T]", "[B]"]


@given(environments, st.data())
def test_constraints_hold_for_every_shape_that_the_facts_allow(env: dict[str, int], data: st.DataObject) -> None:
    facts = Facts()
    try:
        for constraint in data.draw(st.lists(true_constraints(env), max_size=4)):
            facts.constrain(constraint)
        token = parse_token(
            data.draw(st.sampled_from(["[B, T]", "[B, @u, B*T]", "[T + 1, 3, B]", "[@u//2, T]", "[B]"]))
        )
        d = TensorDescriptor(token, "int8").with_facts(facts)
        text = d.text(symbols=True)
    except (DimLimitError, ZeroDivisionError):
        assume(False)
    shape = [evaluate(dim, env) for dim in token.dims or ()]
    for written in d.shape_constraint:
        try:
            assert Constraint.parse(written).holds({f"dim{i}": size for i, size in enumerate(shape)}), written
        except ZeroDivisionError:
            assume(False)
    assert parse_descriptor(text) == d, text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("float32[16..64, 128]{C}", "float32[16..64, 128]{C}"),
        ("float32[16..64, 128]", "float32[16..64, 128]{C}"),
        ("bfloat16[B: 16..64 % 8, B]{strided}@cuda:0", "bfloat16[16..64 % 8, 16..64 % 8]{strided}@cuda:0"),
        ("bool[]{F}", "bool[]{F}"),
        ("int64[...]", "int64[...]{C}"),
        ("float32[B, T]{C} where dim0 <= dim1, dim1 % 8 == 0", "float32[?, ? % 8]{C}"),
        ("float32[B, T]{C} where min(dim0, dim1) <= 5", "float32[?, ?]{C}"),
    ],
)
def test_text_forms(text: str, shown: str) -> None:
    d = parse_descriptor(text)
    assert str(d) == shown
    assert parse_descriptor(d.text(symbols=True)) == d
    assert pickle.loads(pickle.dumps(d)) == d


def test_text_with_symbols() -> None:
    d = descriptor("[A, B, C, 7]", "A % 8 == 0", "A <= 512", "B == 2*A", "C <= A", layout="F", device="cuda")
    assert d.text(symbols=True) == (
        "float32[A: ..512 % 8, B: ..1024 % 16, C: ..512, 7]{F}@cuda where dim1 == 2*dim0, dim2 <= dim0"
    )
    assert parse_descriptor(d.text(symbols=True)) == d


def test_equal_knowledge_is_equal_however_it_is_put() -> None:
    token = parse_token("[B, T]")
    a = TensorDescriptor(token, "int8", shape_constraint=("dim0 % 8 == 0", "2*dim0 <= 512", "dim1 >= dim0"))
    b = TensorDescriptor(token, "int8", shape_constraint=("dim0 <= 256", "dim1 >= dim0", "dim0 % 8 == 0"))
    assert a == b
    assert hash(a) == hash(b)
    assert a.shape_constraint == ("dim0 <= 256", "dim0 % 8 == 0", "dim1 >= dim0")
    assert str(a.facts().range(parse_token("[B]").dims[0])) == "..256 % 8"


@pytest.mark.parametrize(
    "text",
    [
        "", "float32", "[1]", "float32[1]{}", "float32[1]{C", "float32[1]{C}@", "float32[1]x", "float32[1] where",
        "float32[1] where x", "float32[1] where dim1 == 3", "float32[?] where dim0 <= -1", "1[1]", "float32[x y]",
        "float32[1]{C}@cuda:x",
    ],
)  # fmt: skip
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(ShapeError):
        parse_descriptor(text)


def test_bad_parts_are_refused() -> None:
    token = parse_token("[B]")
    for parts, message in [
        ({"layout": "row major"}, "layout of a tensor"),
        ({"device": "GPU 0"}, "device of a tensor"),
        ({"shape_constraint": ("dim1 <= 3",)}, r"constraint `dim1 <= 3` on \[B\]: there is no dim1"),
        ({"shape_constraint": ("dim0",)}, "constraint, position"),
        ({"shape_constraint": ("dim0 <= 3", "dim0 >= 4")}, "contradicts"),
    ]:
        with pytest.raises(ShapeError, match=message):
            TensorDescriptor(token, "int8", **parts)
