"""Shape hints: what they accept, what they refuse and how they say it; the compiled check against the complete one."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Optional, TypedDict, Union

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiercel.dtypes as td
from tiercel.errors import DTypeError, ShapeError
from tiercel.shapes import Symbol, parse_dim
from tiercel.values import Checker, DimSpec, Parameter, Tensor, TensorSpec, dim, spec, specs_of
from tiercel.values.check import _Walk

if TYPE_CHECKING:
    from somewhere import Missing


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def check(hints: dict[str, Any], *values: Any) -> None:
    """Check values against hints given as `specs=`, in both forms."""
    names = ", ".join(hints)
    function = eval(f"lambda {names}: None")
    checker = specs_of(function, hints)
    quick = checker._holds(values) if checker._holds is not None else None
    walk = _Walk(checker.ranges)
    try:
        for position, name, node in checker._positions:
            walk.visit(node, values[position], name)
        walk.finish()
    except (ShapeError, DTypeError):
        assert not quick
        checker.check(values)
        raise AssertionError("the two forms differ") from None
    assert quick is not False or not all(type(v) is np.ndarray for v in values)
    checker.check(values)


def refuse(message: str, hints: dict[str, Any], *values: Any, error: type[Exception] = ShapeError) -> None:
    with pytest.raises(error) as caught:
        check(hints, *values)
    assert str(caught.value) == message


# ---- specs -----------------------------------------------------------------------------------------------------------


def test_entries():
    s = spec("B", 4, None, "T: 1..512 % 8", "2*B", dim("K", 2), "16..64", ..., "?", "128")
    assert str(s) == "[B, 4, ?, T: 8..512 % 8, 2*B, K: 2.., 16..64, ..., ?, 128]"
    assert s.rank is None
    assert spec("B", 4).rank == 2
    assert spec().dims == ()
    assert spec(Symbol("B"), parse_dim("B + 1")) == spec("B", "B + 1")
    assert spec(np.int64(3)) == spec(3)
    assert hash(spec("B", dtype=np.float32)) == hash(spec("B", dtype="float32"))
    assert str(spec("B", dtype=np.float32, layout="C")) == "float32[B]{C}"
    assert repr(dim("T", 1, 512, multiple=8)) == "dim('T: 8..512 % 8')"


def test_dtypes():
    assert spec(dtype=float).dtype is td.float64
    assert spec(dtype=td.bfloat16).dtype is td.bfloat16
    assert spec(dtype=(np.float32, "int8")).dtypes == (td.float32, td.int8)
    assert spec(dtype=np.floating).dtypes == td.FLOATS
    assert spec(dtype=np.floating).dtype is None
    with pytest.raises(DTypeError):
        spec(dtype="float33")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: spec(-1), "dimension 0: a size is not negative"),
        (lambda: spec("B", "b t 128"), "one string a dimension"),
        (lambda: spec("2 *"), "dimension 0"),
        (lambda: spec(..., ...), "may stand once"),
        (lambda: spec((1, 2)), "one by one: spec\\(1, 2\\)"),
        (lambda: spec(True), "expected an int"),
        (lambda: spec(2.5), "expected an int"),
        (lambda: spec("T: 9..3"), "empty range"),
        (lambda: spec("a.b"), "identifier"),
        (lambda: spec("$n"), "identifier"),
        (lambda: spec("-3"), "not negative"),
        (lambda: spec(*["n"] * 65), "at most 64"),
        (lambda: spec(layout="K"), "layout"),
        (lambda: dim("1x"), "identifier"),
        (lambda: dim("min"), "min"),
        (lambda: dim("T", -1), "not negative"),
        (lambda: dim("T", 3, 2), "lies in 3..2"),
        (lambda: dim("T", 9, 15, multiple=8), "no multiple of 8 lies in 9..15"),
        (lambda: dim("T", multiple=0), "at least 1"),
        (lambda: dim("T", 1.5), "must be an int"),
    ],
)
def test_malformed_specs_are_refused_where_they_are_written(make, message):
    with pytest.raises(ShapeError, match=message):
        make()


def test_dtype_among_the_dimensions_is_explained():
    with pytest.raises(DTypeError, match="dtype="):
        spec("B", np.float32)


def test_tensor_forms():
    assert Tensor[None, None, 128] == spec(None, None, 128)
    assert Tensor["B"] == spec("B")
    assert Tensor["B", 3, np.float32] == spec("B", 3, dtype=np.float32)
    assert Tensor[td.int8, "B"] == spec("B", dtype=td.int8)
    assert Tensor["float32", "B"] == spec("B", dtype=np.float32)
    assert Tensor[...] == spec(...)
    assert Tensor[...,] == spec(...)
    assert Tensor["f", "d"].dtype is None
    assert Tensor(shape=[None, "T", 128]) == spec(None, "T", 128)
    assert Tensor(shape=(2,), dtype=td.float16) == spec(2, dtype="float16")
    assert Tensor(shape=()) == spec()


# ---- messages --------------------------------------------------------------------------------------------------------

BT = {"x": spec("B", "T", 128, dtype=np.float32)}


def test_messages():
    refuse("x: expected [B, T, 128], got (3, 5, 64): dimension 2 must be 128", BT, ones(3, 5, 64))
    refuse("x: expected [B, T, 128], got (3, 128): 3 dimensions expected, 2 are there", BT, ones(3, 128))
    refuse(
        "x: expected float32[B, T, 128], got float64[3, 5, 128]: the dtype must be float32; "
        "convert it with x.astype('float32')",
        BT,
        ones(3, 5, 128, dtype=np.float64),
        error=DTypeError,
    )
    refuse(
        "w: expected [T, 8], got (4, 8): dimension 0 must be T = 5, as x dimension 1 has it",
        {"x": spec("B", "T"), "w": spec("T", 8)},
        ones(2, 5),
        ones(4, 8),
    )
    refuse(
        "x: expected [T: 8..512 % 8], got (12,): dimension 0 must be T in 8..512 and a multiple of 8",
        {"x": spec(dim("T", 1, 512, multiple=8))},
        ones(12),
    )
    refuse("x: expected [1..4], got (5,): dimension 0 must be a size in 1..4", {"x": spec("1..4")}, ones(5))
    refuse(
        "y: expected [2*T + 1], got (6,): dimension 0 must be 2*T + 1 = 7 (T = 3 from x dimension 0)",
        {"x": spec("T"), "y": spec("2*T + 1")},
        ones(3),
        ones(6),
    )
    refuse(
        "x: expected [B], got a list, which has no shape; pass np.asarray(x) if it is meant as an array",
        {"x": spec("B")},
        [1, 2],
    )
    refuse(
        "x: expected [B, ..., 4], got (4,): at least 2 dimensions are needed, 1 are there",
        {"x": spec("B", ..., 4)},
        ones(4),
    )
    refuse("n: expected an int (n: 1..8), got 9: it must be n in 1..8", {"n": dim("n", 1, 8)}, 9)
    refuse("n: expected an int (n), got a float", {"n": dim("n")}, 2.0)
    refuse("n: expected an int (n), got a bool", {"n": dim("n")}, True)
    refuse("s: expected the key 'c', got the keys 'h'", {"s": {"h": spec(1), "c": spec(1)}}, {"h": ones(1)})
    refuse("s['h']: expected [1], got (2,): dimension 0 must be 1", {"s": {"h": spec(1)}}, {"h": ones(2)})
    refuse("s[1]: expected [1], got (2,): dimension 0 must be 1", {"s": [spec(1)]}, [ones(1), ones(2)])
    refuse("s: expected 2 elements, got 1", {"s": (spec(1), spec(1))}, (ones(1),))
    refuse("s: expected a mapping of hinted values, got a list", {"s": {"h": spec(1)}}, [])
    refuse("s: expected a list or tuple of hinted values, got a ndarray", {"s": [spec(1)]}, ones(2, 1))
    layout = {"x": spec("B", 2, layout="C")}
    with pytest.raises(ShapeError, match="contiguous in C order, got strides"):
        check(layout, ones(2, 3).T)
    check(layout, ones(3, 2))


def test_ranges_of_one_name_are_joined():
    hints = {"x": spec(dim("T", 1, 10)), "y": spec(dim("T", 5, 20)), "z": spec("T")}
    check(hints, ones(7), ones(7), ones(7))
    refuse("x: expected [T: 1..10], got (3,): dimension 0 must be T in 5..10", hints, ones(3), ones(3), ones(3))
    with pytest.raises(ShapeError, match=r"T is declared as 11\.\.12 here and as \.\.10 elsewhere"):
        specs_of(lambda x, y: 0, {"x": spec("T: ..10"), "y": spec("T: 11..12")})


def test_names_of_expressions_must_be_sizes():
    with pytest.raises(ShapeError, match="dimension 2\\*T uses T, which is the size of no dimension"):
        specs_of(lambda x: 0, {"x": spec("2*T")})


def test_sizes_zero_and_one_are_ordinary():
    check({"x": spec("B", "T"), "y": spec("T", "B")}, ones(0, 1), ones(1, 0))
    with pytest.raises(ShapeError):
        check({"x": spec("B"), "y": spec("B")}, ones(1), ones(0))


def test_ellipsis():
    hints = {"x": spec("B", ..., "T", 2), "y": spec(..., "T")}
    check(hints, ones(3, 4, 2), ones(4))
    check(hints, ones(3, 9, 9, 4, 2), ones(5, 4))
    with pytest.raises(ShapeError, match="dimension 1 must be T = 4"):
        check(hints, ones(3, 4, 2), ones(4, 5))
    check({"x": spec(...)}, ones())


def test_scalars_are_rank_zero():
    check({"x": spec()}, 2.5)
    check({"x": spec(dtype=np.float32)}, np.float32(1))
    with pytest.raises(DTypeError):
        check({"x": spec(dtype=np.float32)}, np.float64(1))
    with pytest.raises(ShapeError):
        check({"x": spec("B")}, 2.5)


def test_values_of_our_own():
    check(BT, Tensor(ones(1, 2, 128)))
    check(BT, Parameter(ones(1, 2, 128)))
    with pytest.raises(DTypeError):
        check(BT, Tensor(ones(1, 2, 128, dtype=np.float16)))


def test_dtype_families():
    hints = {"x": spec("B", dtype=np.floating)}
    for d in td.FLOATS:
        check(hints, ones(2, dtype=d.numpy))
    with pytest.raises(DTypeError, match="must be float16 or bfloat16 or float32 or float64"):
        check(hints, ones(2, dtype=int))


# ---- annotations -----------------------------------------------------------------------------------------------------

F32 = Annotated[np.ndarray, spec("B", "T", dtype=np.float32)]


class Pair(NamedTuple):
    h: Annotated[np.ndarray, spec("B", 4)]
    c: Annotated[np.ndarray, spec("B", 4)]
    note: str = ""


@dataclasses.dataclass
class State:
    pair: Pair
    length: Annotated[int, dim("T")]
    other: Missing | None = None


class Options(TypedDict):
    mask: Annotated[np.ndarray, spec("B", dtype=bool)]


def annotated(
    x: F32,
    y: Tensor["B", None],  # noqa: F821, UP037
    z: Tensor(shape=[None, "T"]),
    n: Annotated[int, dim("T", 1)] = 1,
    plain: int = 0,
    missing: Missing = None,
    *rest: Annotated[np.ndarray, spec("B")],
    flag: Optional[F32] = None,  # noqa: UP045
    **more: Annotated[np.ndarray, spec("T")],
) -> None: ...


def bound(function, *args, **kwargs):
    arguments = inspect.signature(function).bind(*args, **kwargs)
    arguments.apply_defaults()
    return tuple(arguments.arguments.values())


def test_annotations_are_read():
    checker = specs_of(annotated)
    assert set(checker.nodes) == {"x", "y", "z", "n", "rest", "flag", "more"}
    assert [name for name, _ in checker.reasons] == ["missing"]
    assert "NameError" in checker.reasons[0][1]
    x = ones(2, 3)
    checker.check(bound(annotated, x, ones(2, 9), ones(1, 3), 3, 0, None, ones(2), ones(2), flag=x, w=ones(3)))
    for broken in (
        ((x, ones(3, 9), ones(1, 3), 3), {}),
        ((x, ones(2, 9), ones(1, 4), 3), {}),
        ((x, ones(2, 9), ones(1, 3), 4), {}),
        ((x, ones(2, 9), ones(1, 3), 3, 0, None, ones(2), ones(3)), {}),
        ((x, ones(2, 9), ones(1, 3), 3), {"flag": ones(3, 3)}),
        ((x, ones(2, 9), ones(1, 3), 3), {"w": ones(4)}),
    ):
        with pytest.raises(ShapeError):
            checker.check(bound(annotated, *broken[0], **broken[1]))


def test_check_by_name():
    checker = specs_of(annotated)
    checker.check({"x": ones(2, 3), "y": ones(2, 1), "z": ones(1, 3), "n": 3, "rest": (), "more": {}})


def test_containers():
    def f(
        state: State,
        options: Options,
        xs: list[F32],
        ys: Sequence[F32],
        pair: tuple[F32, int],
        many: tuple[F32, ...],
        table: dict[str, F32],
        mapping: Mapping[str, "F32"],  # noqa: UP037
        nothing: list[int],
    ) -> None: ...

    checker = specs_of(f)
    assert not checker.reasons
    x, m = ones(2, 3), np.ones(2, bool)
    good: list[Any] = [
        State(Pair(ones(2, 4), ones(2, 4)), 3),
        {"mask": m},
        [x],
        (x, x),
        (x, 1),
        (x, x),
        {"a": x},
        {},
        None,
    ]
    checker.check(good)
    for position, bad in [
        (0, State(Pair(ones(2, 4), ones(3, 4)), 3)),
        (0, State(Pair(ones(2, 4), ones(2, 4)), 4)),
        (0, 5),
        (1, {"mask": ones(2)}),
        (1, {}),
        (2, [x, ones(3, 3)]),
        (3, iter([x])),
        (4, (x,)),
        (5, (x, ones(2, 4))),
        (6, {"a": ones(1)}),
        (7, [x]),
    ]:
        with pytest.raises((ShapeError, DTypeError)):
            checker.check([*good[:position], bad, *good[position + 1 :]])


def test_paths_in_messages():
    def f(state: State) -> None: ...

    with pytest.raises(
        ShapeError, match=r"^state\.pair\.c: expected \[B, 4\], got \(3, 4\): dimension 0 must be B = 2, "
    ):
        specs_of(f).check((State(Pair(ones(2, 4), ones(3, 4)), 3),))


def test_unions():
    def f(
        x: Annotated[np.ndarray, spec("B", 2)] | Annotated[np.ndarray, spec("B", 3)] | None,
        y: Union[Annotated[np.ndarray, spec("B")], float],  # noqa: UP007
        z: "Annotated[np.ndarray, spec('B')] | Any",  # noqa: UP037
        w: Tensor["B"] | None = None,  # noqa: F821, UP037
    ) -> None: ...

    checker = specs_of(f)
    assert set(checker.nodes) == {"x", "y", "w"}
    checker.check((ones(4, 2), ones(4), None, None))
    checker.check((ones(4, 3), 1.0, None, ones(4)))
    checker.check((None, 1, None, None))
    with pytest.raises(ShapeError, match="nor does one of the other"):
        checker.check((ones(4, 5), 1.0, None, None))
    with pytest.raises(ShapeError, match="as x dimension 0"):
        checker.check((ones(4, 3), ones(5), None, None))
    with pytest.raises(ShapeError):
        checker.check((ones(4, 3), 1.0, None, ones(5)))


def test_a_failed_alternative_binds_nothing():
    def f(
        x: Annotated[np.ndarray, spec("A", 9)] | Annotated[np.ndarray, spec("B", "A")],
        y: Annotated[np.ndarray, spec("A")],
    ) -> None: ...

    specs_of(f).check((ones(4, 3), ones(3)))
    with pytest.raises(ShapeError, match="A = 3, as x dimension 1"):
        specs_of(f).check((ones(4, 3), ones(4)))


def test_optional_names_bind_only_when_given():
    def f(x: Annotated[np.ndarray, spec("B")] | None, y: Annotated[np.ndarray, spec("B")] | None) -> None: ...

    checker = specs_of(f)
    assert checker._holds is not None
    for good in ((None, None), (ones(2), None), (None, ones(3)), (ones(3), ones(3))):
        assert checker._holds(good)
        checker.check(good)
    assert not checker._holds((ones(2), ones(3)))
    with pytest.raises(ShapeError):
        checker.check((ones(2), ones(3)))


def test_expression_over_a_name_that_was_left_out():
    def f(x: Annotated[np.ndarray, spec("B")] | None, y: Annotated[np.ndarray, spec("2*B")]) -> None: ...

    specs_of(f).check((None, ones(7)))
    with pytest.raises(ShapeError, match="2\\*B = 4"):
        specs_of(f).check((ones(2), ones(7)))


def test_closure_names_and_recursion_in_annotations():
    Local = Annotated[np.ndarray, spec("B")]

    def f(x: Local) -> None:
        return Local

    assert set(specs_of(f).nodes) == {"x"}

    @dataclasses.dataclass
    class Tree:
        value: Annotated[np.ndarray, spec("B")]
        left: Tree | None = None

    def g(t: Annotated[Tree, "doc"]) -> None:
        return Tree

    checker = specs_of(g)
    checker.check((Tree(ones(1), Tree(ones(2))),))


def test_harmful_annotations_are_ignored_with_a_reason():
    def f(a: 1 / 0, b: "nonsense(", c: 3, d: print = 0) -> None: ...  # noqa: F722

    checker = specs_of(f)
    assert not checker
    assert [name for name, _ in checker.reasons] == ["a", "b"]
    checker.check((1, 2, 3, 4))


def test_functions_without_hints():
    def f(a, *b, c, **d): ...

    checker = specs_of(f)
    assert not checker
    assert checker.parameters == ("a", "c", "b", "d") or set(checker.parameters) == {"a", "b", "c", "d"}
    checker.check((1, 2, 3, 4))
    assert not specs_of(len)


# ---- specs= ----------------------------------------------------------------------------------------------------------


def test_specs_replace_annotations():
    def f(x: Annotated[np.ndarray, spec("B", 3)], y): ...

    checker = specs_of(f, {"x": spec("B", 4), "y": Annotated[np.ndarray, spec("B")]})
    checker.check((ones(2, 4), ones(2)))
    with pytest.raises(ShapeError):
        checker.check((ones(2, 3), ones(2)))


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ({"z": spec(1)}, r"no parameter 'z'; .*it has x, y|no parameter 'z'.*it has x, y"),
        ({"x": [None, "T", 128]}, r"write tc.spec\(None, 'T', 128\)"),
        ({"x": ("B", 2)}, r"write tc.spec\('B', 2\)"),
        ({"x": 5}, "expected tc.spec"),
        ({"x": np.float32}, "expected tc.spec"),
        ({"x": None}, "expected tc.spec"),
        ({"x": {"a": 3}}, r"specs\[\"x\['a'\]\"\]"),
    ],
)
def test_specs_that_are_no_hints_raise(specs, message):
    with pytest.raises(TypeError, match=message):
        specs_of(lambda x, y: 0, specs)


# ---- jaxtyping -------------------------------------------------------------------------------------------------------


def jaxtyped(dims: str, dtypes: Any = ("float32",)) -> type:
    """A class with the attributes that jaxtyping's annotations have."""
    return type("Float32", (), {"dim_str": dims, "dtypes": list(dtypes) if dtypes else object()})


def test_jaxtyping():
    def f(x: jaxtyped("b t 128"), y: jaxtyped("b 2*t ..."), z: jaxtyped("_ #b rows=3 *batch", None)) -> None: ...

    checker = specs_of(f)
    assert {name: str(node.spec) for name, node in checker.nodes.items()} == {
        "x": "float32[b, t, 128]",
        "y": "float32[b, 2*t, ...]",
        "z": "[?, ?, 3, ...]",
    }
    checker.check((ones(2, 3, 128), ones(2, 6, 1, 1), ones(9, 9, 3, dtype=int)))
    with pytest.raises(ShapeError):
        checker.check((ones(2, 3, 128), ones(2, 5), ones(9, 9, 3)))


def test_real_jaxtyping():
    jaxtyping = pytest.importorskip("jaxtyping")

    def f(x, y, z) -> None: ...

    f.__annotations__ = {
        "x": jaxtyping.Float32[np.ndarray, "b t 128"],
        "y": jaxtyping.Float[np.ndarray, "b"],
        "z": jaxtyping.Shaped[np.ndarray, "..."],
    }
    checker = specs_of(f)
    checker.check((ones(2, 3, 128), ones(2, dtype=np.float64), ones(1, dtype=int)))
    with pytest.raises(ShapeError):
        checker.check((ones(2, 3, 128), ones(3), ones(1)))
    with pytest.raises(DTypeError):
        checker.check((ones(2, 3, 128), ones(2, dtype=int), ones(1)))


# ---- tokens ----------------------------------------------------------------------------------------------------------


def test_tokens_and_facts():
    def f(
        x: Annotated[np.ndarray, spec("B", dim("T", 1, 512, multiple=8), 128, dtype=np.float32)],
        y: Annotated[np.ndarray, spec(None, "1..9", "B*T")],
        state: Pair,
        maybe: F32 | None,
        many: list[F32],
        any_rank: Annotated[np.ndarray, spec(..., dtype=bool)],
    ) -> None: ...

    checker = specs_of(f)
    tokens = checker.tokens()
    assert list(tokens) == ["x", "y", "state.h", "state.c", "any_rank"]
    assert tokens["x"].text(checker.facts, symbols=True) == "[B, T: 8..512 % 8, 128]"
    assert tokens["x"].text(checker.facts) == "[?, 8..512 % 8, 128]"
    assert str(tokens["y"].dims[2]) == "B*T"
    assert tokens["any_rank"].rank is None
    assert checker.facts.range(tokens["y"].dims[1]).hi == 9
    assert tokens["y"].dims[0] != tokens["y"].dims[1]
    assert checker.tokens() == tokens
    descriptors = checker.descriptors()
    assert set(descriptors) == {"x", "any_rank"}
    assert descriptors["x"].dtype_name == "float32"
    assert descriptors["x"].layout == "strided"


# ---- the two forms agree ---------------------------------------------------------------------------------------------

ENTRIES = st.sampled_from(
    [None, 0, 1, 2, 3, "A", "B", "A", "B", "A + 1", "2*B", dim("A", 1, 3), dim("C", 0, multiple=2), "1..2", "max(A, B)"]
)
SPECS = st.builds(
    lambda dims, dtype: (dims, dtype),
    st.lists(ENTRIES | st.just(...), max_size=3).filter(lambda d: d.count(...) < 2),
    st.sampled_from([None, np.float32, np.floating]),
)
ARRAYS = st.builds(
    np.ones,
    st.lists(st.integers(0, 4), max_size=3),
    st.sampled_from([np.float32, np.float32, np.float64, np.int8]),
)


@given(st.lists(st.tuples(SPECS, ARRAYS, st.booleans()), min_size=1, max_size=3))
def test_compiled_and_complete_check_agree(arguments):
    hints = {}
    for i, ((dims, dtype), _, optional) in enumerate(arguments):
        one = spec(*dims, dtype=dtype)
        hints[f"x{i}"] = one | None if optional else one
    try:
        checker = specs_of(eval(f"lambda {', '.join(hints)}: 0"), hints)
    except ShapeError:
        return
    values = [array for _, array, _ in arguments]
    for given_values in (values, [None if optional else array for _, array, optional in arguments]):
        walk = _Walk(checker.ranges)
        try:
            for position, name, node in checker._positions:
                walk.visit(node, given_values[position], name)
            walk.finish()
            complete = True
        except (ShapeError, DTypeError):
            complete = False
        if checker._holds is not None:
            assert checker._holds(given_values) == complete


@given(st.lists(ARRAYS, max_size=3), st.lists(ARRAYS, max_size=3), ARRAYS, SPECS)
def test_compiled_and_complete_check_agree_on_collections(many, table, single, one):
    dims, dtype = one
    try:
        item = spec(*dims, dtype=dtype)
        checker = specs_of(lambda xs, d, y: 0, {"xs": [item], "d": dict[str, item], "y": spec("A", ...)})
    except ShapeError:
        return
    values = (many, {str(i): array for i, array in enumerate(table)}, single)
    walk = _Walk(checker.ranges)
    try:
        for position, name, node in checker._positions:
            walk.visit(node, values[position], name)
        walk.finish()
        complete = True
    except (ShapeError, DTypeError):
        complete = False
    if checker._holds is not None:
        assert checker._holds(values) == complete


@given(st.lists(ENTRIES, max_size=3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_shapes_made_from_a_spec_satisfy_it(entries, a, b, c):
    env = {"A": a, "B": b, "C": 2 * c}
    one = spec("A", "B", *entries)
    sizes = [a, b]
    for entry in one.dims[2:]:
        if isinstance(entry, int):
            sizes.append(entry)
        elif isinstance(entry, DimSpec):
            sizes.append(env[entry.name] if entry.name else 1)
        else:
            sizes.append(eval(str(entry), {"max": max}, env))
    in_range = all(not (isinstance(e, DimSpec) and e.name == "A" and e.range.lo) or 1 <= a <= 3 for e in one.dims)
    checker = specs_of(lambda x: 0, {"x": one})
    if in_range:
        checker.check((ones(*sizes),))
    else:
        with pytest.raises(ShapeError):
            checker.check((ones(*sizes),))


def test_public_types():
    assert isinstance(spec(), TensorSpec)
    assert isinstance(dim("T"), DimSpec)
    assert isinstance(specs_of(annotated), Checker)
