"""Finding rows, binding calls to them, and what every row must have."""

from __future__ import annotations

import builtins
import copy
import pickle
from typing import Any

import numpy as np
import pytest

from tests.operators import harness
from tiercel import dtypes as tc
from tiercel.errors import DTypeError, ShapeError
from tiercel.operators import (
    ALL,
    ArrayType,
    Layout,
    NoneType,
    NotStatic,
    NpScalarType,
    OutOfRangeError,
    PyFloatType,
    PyIntType,
    TupleType,
    find_function,
    find_inplace,
    find_method,
    find_property,
    find_syntax,
    get,
    type_of,
)
from tiercel.operators.lowering import KEYS
from tiercel.operators.table import FRESH, PURE, REQUIRED, Alias, Operator, same, writes
from tiercel.shapes import Symbol

N, M = Symbol("N"), Symbol("M")


def array(*shape: Any, dtype: Any = tc.float32, wrapper: str = "ndarray") -> ArrayType:
    return ArrayType(dtype, shape, Layout.c(len(shape)), wrapper=wrapper)


# ---- finding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (np.add, "add"),
        (np.sum, "sum"),
        (np.abs, "absolute"),
        (np.absolute, "absolute"),
        (np.max, "max"),
        (np.amax, "max"),
        (np.conj, "conj"),
        (np.mod, "remainder"),
        (np.true_divide, "divide"),
        (np.rad2deg, "degrees"),
        (np.linalg.norm, "norm"),
        (builtins.abs, "absolute"),
        (builtins.divmod, "divmod"),
        (builtins.pow, "power"),
    ],
)
def test_functions_are_found_by_identity(function: Any, name: str) -> None:
    found = find_function(function)
    assert found is not None
    assert found[0].name == name
    assert found[0].spellings[found[1]].callable is function


@pytest.mark.parametrize("other", [len, lambda x: x, [], None, "sum", type("F", (), {"__eq__": lambda s, o: True})()])
def test_other_objects_are_not_found(other: Any) -> None:
    assert find_function(other) is None


def test_functions_of_ours_say_who_they_are() -> None:
    class Function:
        __tiercel_op__ = ("sum", 2)

    assert find_function(Function()) == (get("sum"), 2)
    Function.__tiercel_op__ = ("no such row", 0)
    assert find_function(Function()) is None


def test_forms_are_found_by_their_text() -> None:
    assert find_syntax("+")[0].name == "add"  # type: ignore[index]
    assert find_syntax("-x")[0].name == "negative"  # type: ignore[index]
    assert find_syntax("==")[0].name == "equal"  # type: ignore[index]
    assert find_inplace("+=")[0].name == "add"  # type: ignore[index]
    assert find_method("sum")[0].name == "sum"  # type: ignore[index]
    assert find_property("real")[0].name == "real"  # type: ignore[index]
    for find in (find_syntax, find_inplace, find_method, find_property):
        assert find("no such thing") is None


def test_every_infix_operator_has_its_in_place_form() -> None:
    for symbol in ("+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>"):
        infix, augmented = find_syntax(symbol), find_inplace(symbol + "=")
        assert infix is not None, symbol
        assert augmented is not None, symbol
        assert infix[0] is augmented[0]


def test_get_suggests_the_nearest_name() -> None:
    with pytest.raises(KeyError, match="did you mean 'sigmoid'"):
        get("sigmoyd")


# ---- every row -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ALL.values(), ids=str)
def test_row_is_complete(row: Operator) -> None:
    assert row.doc
    assert row.doc[-1] != "."
    assert "ops" in {s.kind for s in row.spellings}
    assert copy.deepcopy(row) is row
    assert pickle.loads(pickle.dumps(row)) is row
    for spelling in row.spellings:
        if spelling.kind not in ("ops", "class"):
            assert callable(spelling.callable)
    assert len({(s.kind, s.path) for s in row.spellings}) == len(row.spellings)


def test_lowering_keys_and_rows_agree() -> None:
    for cls, keys in KEYS.items():
        used = {row.lowering.key for row in ALL.values() if row.lowering.cls == cls}
        assert used == set(keys), cls


def test_rows_that_must_exist() -> None:
    needed = """
        add subtract multiply divide floor_divide remainder divmod power negative positive absolute
        equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor logical_not
        bitwise_and bitwise_or bitwise_xor invert left_shift right_shift
        exp exp2 log log2 log10 expm1 log1p sqrt rsqrt square reciprocal sin cos tan arcsin arccos arctan sinh cosh tanh
        arcsinh arccosh arctanh sigmoid erf gelu relu silu softplus leaky_relu elu sign floor ceil round rint trunc clip
        where maximum minimum fmax fmin fma isnan isinf isfinite real imag conj angle hypot arctan2 logaddexp
        sum mean prod max min argmax argmin any all var std cumsum cumprod logsumexp softmax log_softmax layer_norm
        rms_norm batch_norm norm astype
    """
    assert set(needed.split()) <= set(ALL)


# ---- binding ---------------------------------------------------------------------------------------------------------


def bind(name: str, kind: Any, path: str, *args: Any, **keywords: Any) -> Any:
    row = get(name)
    return row.bind(row.spelling_index(kind, path), args, keywords)


def test_arguments_go_to_row_parameters() -> None:
    bound = bind("sum", "function", "numpy.sum", "X", 1, keepdims=True)
    assert bound.operands == ("X",)
    assert bound.attributes == {"axis": 1, "dtype": None, "keepdims": True}
    assert bind("sum", "function", "numpy.sum", a="X").operands == ("X",)
    assert bind("sum", "method", "sum", "X", axis=0).attributes["axis"] == 0
    assert bind("clip", "function", "numpy.clip", "X", 0, a_max=3).operands == ("X", 0, 3)
    assert bind("clip", "function", "numpy.clip", "X", min=0, max=3).operands == ("X", 0, 3)
    assert bind("layer_norm", "ops", "layer_norm", "X", bias="b").operands == ("X", None, "b")


@pytest.mark.parametrize(
    ("name", "kind", "path", "args", "keywords", "message"),
    [
        ("sum", "function", "numpy.sum", ("X", 0, None, "out"), {}, "out"),
        ("sum", "function", "numpy.sum", ("X",), {"where": True}, "where"),
        ("sum", "function", "numpy.sum", ("X",), {"initial": 1}, "initial"),
        ("sum", "function", "numpy.sum", ("X", 0), {"axis": 1}, "twice"),
        ("sum", "function", "numpy.sum", (), {}, "misses"),
        ("sum", "method", "sum", ("X",), {"x": 1}, "x"),
        ("add", "function", "numpy.add", ("X", "Y", "out"), {}, "at most"),
        ("add", "function", "numpy.add", ("X",), {"x": 2}, "keyword"),
        ("add", "function", "numpy.add", ("X", "Y"), {"dtype": "f4"}, "dtype"),
        ("add", "syntax", "+", ("X",), {}, "misses"),
    ],
)
def test_calls_that_do_not_bind(
    name: str, kind: str, path: str, args: tuple[Any, ...], keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        bind(name, kind, path, *args, **keywords)


def test_attributes_may_be_types() -> None:
    row = get("sum")
    bound = row.bind(row.spelling_index("method"), [array(N, M, 4), PyIntType(-1)], {"keepdims": type_of(True)})
    assert row.infer(bound) == array(N, M, 1)
    bound = row.bind(row.spelling_index("method"), [array(N, M, 4)], {"axis": TupleType((PyIntType(0), PyIntType(2)))})
    assert row.infer(bound) == array(M)


def test_an_attribute_that_is_not_known_is_not_static() -> None:
    row = get("sum")
    with pytest.raises(NotStatic):
        row.infer(row.bind(row.spelling_index("method"), [array(N, 4), PyIntType(None)]))


# ---- inference across rows -------------------------------------------------------------------------------------------


def infer(name: str, *operands: Any, **attributes: Any) -> Any:
    row = get(name)
    return row.infer(row.bind(row.spelling_index("ops"), operands, attributes))


def in_place(symbol: str, *operands: Any) -> Any:
    row, index = find_inplace(symbol)  # type: ignore[misc]
    bound = row.bind(index, operands)
    return row.infer(bound), row.alias(bound), row.effects(bound)


def test_in_place_forms_write_and_return_operand_0() -> None:
    x = array(N, 4)
    assert in_place("+=", x, array(4, dtype=tc.int8)) == (x, same(0), writes(0))
    assert in_place("+=", array(N, 4, dtype=tc.float16), array(N, 4)) == (
        array(N, 4, dtype=tc.float16),
        same(0),
        writes(0),
    )
    # A scalar is rebound.
    assert in_place("+=", NpScalarType(tc.float32), PyFloatType(1.0)) == (NpScalarType(tc.float32), FRESH, PURE)
    assert in_place("+=", NpScalarType(tc.float32), x)[1:] == (FRESH, PURE)


def test_in_place_forms_refuse_what_does_not_cast_or_fit() -> None:
    integers = array(N, 4, dtype=tc.int32)
    with pytest.raises(DTypeError, match="same_kind"):
        in_place("+=", integers, array(4))
    with pytest.raises(DTypeError, match="same_kind"):
        in_place("/=", integers, PyIntType(2))
    with pytest.raises(ShapeError):
        in_place("+=", array(4), array(3, 4))
    with pytest.raises(ShapeError):
        in_place("+=", array(1, 4), array(3, 4))


def test_python_ints_out_of_range_are_both_errors() -> None:
    with pytest.raises(OutOfRangeError) as caught:
        infer("add", array(3, dtype=tc.int8), PyIntType(300))
    assert isinstance(caught.value, DTypeError)
    assert isinstance(caught.value, OverflowError)
    assert "300 out of bounds for int8" in str(caught.value)


@pytest.mark.parametrize("value", [2**63, 2**64, 2**70, -(2**63) - 1, 10**400])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float32", "complex64"])
@pytest.mark.parametrize("name", ["add", "equal", "less", "logical_and", "maximum", "divide", "power"])
def test_python_ints_beyond_64_bits(name: str, dtype: str, value: int) -> None:
    harness.check(name, harness.Sample((np.ones(2, dtype), value), symbolic=False))


def test_any_tensor_gives_a_tensor_of_rank_0_too() -> None:
    x = array(N, 4, wrapper="Tensor")
    assert infer("add", x, array(4)) == x
    assert infer("sum", x) == array(wrapper="Tensor")
    assert infer("add", x, array(4, wrapper="torch")).wrapper == "torch"
    assert infer("sum", array(N)) == NpScalarType(tc.float32)


def test_devices_must_agree() -> None:
    x, y = array(4), ArrayType(tc.float32, (4,), Layout.c(1), device="cuda:0")
    with pytest.raises(NotStatic, match="devices"):
        infer("add", x, y)
    assert infer("add", y, PyIntType(1)).device == "cuda:0"


def test_symbols_that_are_not_known_equal_stay_apart() -> None:
    t = infer("add", array(N), array(M))
    assert t.shape != (N,)
    assert {s.name for s in harness._symbols_of(t.shape[0])} == {"N", "M"}


def test_broadcast_errors_name_both_sizes() -> None:
    with pytest.raises(ShapeError, match=r"3.*4|4.*3"):
        infer("add", array(N, 3), array(4))


def test_operands_numpy_would_not_take_are_not_static() -> None:
    for other in (NoneType(), type_of("s"), type_of(object())):
        with pytest.raises(NotStatic):
            infer("add", array(3), other)


def test_alias_texts() -> None:
    assert str(FRESH) == "fresh"
    assert str(Alias("view", 0)) == "view(0)"
    assert str(writes(0)) == "writes(0)"
    assert repr(REQUIRED) == "REQUIRED"
