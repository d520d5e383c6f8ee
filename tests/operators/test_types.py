"""Types: what they keep of a value, what they compare as, how values come back."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tiercel import dtypes as tc
from tiercel.operators import (
    ArrayType,
    DictType,
    DTypeType,
    EllipsisType,
    Layout,
    ListType,
    NoneType,
    NotStatic,
    NpScalarType,
    ObjectType,
    PyBoolType,
    PyComplexType,
    PyFloatType,
    PyIntType,
    SliceType,
    StrType,
    TupleType,
    static_value,
    type_of,
)
from tiercel.operators.types import as_array
from tiercel.shapes import Symbol

N = Symbol("N")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, PyIntType(3)),
        (2**80, PyIntType(2**80)),
        (True, PyBoolType(True)),
        (1.5, PyFloatType(1.5)),
        (2j, PyComplexType(2j)),
        ("abc", StrType("abc")),
        (None, NoneType()),
        (..., EllipsisType()),
        (np.float32(1), NpScalarType(tc.float32)),
        (np.float64(1), NpScalarType(tc.float64)),
        (np.bool_(True), NpScalarType(tc.bool_)),
        (ml_dtypes.bfloat16(1), NpScalarType(tc.bfloat16)),
        (np.float32, DTypeType(tc.float32)),
        (np.dtype("i2"), DTypeType(tc.int16)),
        (tc.uint8, DTypeType(tc.uint8)),
        (float, DTypeType(tc.float64)),
        ((1, 2.0), TupleType((PyIntType(1), PyFloatType(2.0)))),
        ([None], ListType((NoneType(),))),
        ({"k": 1}, DictType((("k", PyIntType(1)),))),
        (slice(1, None, -1), SliceType(PyIntType(1), NoneType(), PyIntType(-1))),
    ],
)
def test_type_of_a_value(value: Any, expected: Any) -> None:
    assert type_of(value) == expected
    assert hash(type_of(value)) == hash(expected)


def test_type_of_an_array() -> None:
    x = np.zeros((2, 3), np.float32)
    assert type_of(x) == ArrayType(tc.float32, (2, 3), Layout.c(2))
    assert type_of(x.T).layout == Layout.f(2)
    assert str(type_of(x)) == "float32[2, 3]"
    assert str(type_of(x.T)) == "float32[3, 2]{F}"


class _Array(np.ndarray):
    pass


class _Int(int):
    pass


class _Tuple(tuple):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(2).view(_Array),
        np.ma.masked_array([1.0]),
        _Int(3),
        _Tuple((1,)),
        np.zeros(2, ">f4"),
        np.zeros(2, object),
        np.array(["a"]),
        np.str_("a"),
        {(1, 2): 3},
        object(),
        np.sum,
    ],
    ids=lambda v: type(v).__name__,
)
def test_whatever_behaves_otherwise_is_an_object(value: Any) -> None:
    t = type_of(value)
    assert type(t) is ObjectType
    assert t.value is value


def test_namer_names_sizes_and_ints_and_drops_other_values() -> None:
    seen = []

    def namer(path: str, axis: int | None, size: int) -> Any:
        seen.append((path, axis, size))
        return None if axis is None else Symbol(f"s{axis}")

    t = type_of((np.zeros((2, 3)), 5, 1.5, True, 1j, "s"), namer, "x")
    assert isinstance(t, TupleType)
    assert t.items[0].shape == (Symbol("s0"), Symbol("s1"))  # type: ignore[attr-defined]
    assert t.items[1:] == (PyIntType(None), PyFloatType(None), PyBoolType(None), PyComplexType(None), StrType("s"))
    assert seen == [("x[0]", 0, 2), ("x[0]", 1, 3), ("x[1]", None, 5)]


def test_floats_compare_by_their_bits() -> None:
    assert PyFloatType(0.0) != PyFloatType(-0.0)
    assert PyFloatType(math.nan) == PyFloatType(math.nan)
    assert hash(PyFloatType(math.nan)) == hash(PyFloatType(math.nan))
    assert PyComplexType(complex(0.0, 0.0)) != PyComplexType(complex(-0.0, 0.0))
    assert PyFloatType(1.0) != PyIntType(1)
    assert PyIntType(1) != PyBoolType(True)
    assert PyFloatType(None) != PyFloatType(0.0)


def test_objects_compare_by_identity() -> None:
    a, b = [1], [1]
    assert ObjectType(a) == ObjectType(a)
    assert ObjectType(a) != ObjectType(b)


@pytest.mark.parametrize(
    "value", [3, True, 1.5, "s", None, ..., (1, (2, None)), [1, 2], {"k": 1}, slice(1, None, 2), tc.float32, 2j]
)
def test_static_value_brings_the_value_back(value: Any) -> None:
    assert static_value(type_of(value)) == value
    assert type(static_value(type_of(value))) is type(value)


def test_static_value_keeps_sizes_and_plain_values() -> None:
    assert static_value(TupleType((PyIntType(N), PyIntType(-1)))) == (N, -1)
    assert static_value((PyIntType(N), 3)) == (N, 3)
    assert static_value(7) == 7


@pytest.mark.parametrize(
    "t",
    [
        PyIntType(None),
        PyFloatType(None),
        TupleType((PyIntType(None),)),
        ListType(None, PyIntType(1), N),
        ObjectType(None),
    ],
)
def test_static_value_of_what_is_not_known(t: Any) -> None:
    with pytest.raises(NotStatic):
        static_value(t)


@pytest.mark.parametrize(
    "value",
    [
        [1, 2, 3],
        [1, 2.5],
        [[1, 2], [3, 4]],
        ((1, 2), [3.0, 4]),
        [],
        [[], []],
        [np.float32(1), 1.0],
        [np.float32(1), np.float32(2)],
        [True, False],
        [True, 1],
        [1j, 2],
        [np.zeros(3, np.int8), np.ones(3, np.int8)],
        [2**63],
        [np.uint8(1), 2],
    ],
)
def test_lists_become_the_arrays_numpy_makes(value: Any) -> None:
    real = np.asarray(value)
    t = as_array(type_of(value))
    assert isinstance(t, ArrayType)
    assert (t.dtype, t.shape) == (real.dtype, real.shape)


@pytest.mark.parametrize("value", [[1, [2]], ["a"], [None], None, "a", [2**70], {"k": 1}])
def test_what_is_no_array_operand(value: Any) -> None:
    with pytest.raises(NotStatic):
        as_array(type_of(value))
