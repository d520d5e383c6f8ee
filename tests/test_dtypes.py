from __future__ import annotations

import copy
import enum
import itertools
import pickle

import ml_dtypes
import numpy as np
import pytest

from tiercel import dtypes
from tiercel.dtypes import (
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    DType,
    WeakComplex,
    WeakFloat,
    WeakInt,
    as_dtype,
    check_int_range,
    default_dtype,
    from_code,
    has_common_dtype,
    is_dtype,
    promote_types,
    result_type,
    weak_of,
)
from tiercel.errors import DTypeError

NATIVE = [d for d in DTYPES if d is not dtypes.bfloat16]
each = pytest.mark.parametrize("d", DTYPES, ids=str)


def numpy_result_type(*operands):
    return as_dtype(np.result_type(*operands))


def of_sum(a, b):
    """The dtype NumPy computes in when arrays are added (bool adds as logical or)."""
    return as_dtype((np.ones(1, a.numpy) + np.ones(1, b.numpy)).dtype)


# --- The objects ---


def test_the_fifteen():
    assert " ".join(map(str, DTYPES)) == (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128"
    )
    assert [d.code for d in DTYPES] == list(range(15))
    assert "".join(d.kind for d in DTYPES) == "biiiiuuuuffffcc"
    assert len(INTEGERS) == 8
    assert len(FLOATS) == 4
    assert len(COMPLEX) == 2


@each
def test_fields_agree_with_numpy(d):
    assert d.numpy.name == d.name
    assert d.itemsize == d.numpy.itemsize
    assert d.bits == 8 * d.itemsize
    assert d.scalar_type is d.numpy.type
    assert d.kind == ("f" if d.name == "bfloat16" else d.numpy.kind)
    assert d.numpy.isnative
    assert str(d) == d.name
    assert repr(d) == f"tiercel.{d.name}"
    kinds = [d.is_bool, d.is_integer, d.is_float, d.is_complex]
    assert kinds.count(True) == 1
    assert kinds.index(True) == {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}[d.kind]
    assert d.is_inexact == (d.kind in "fc")
    assert d.is_signed == (d.kind in "ifc")


@each
def test_a_dtype_equals_and_hashes_like_its_numpy_dtype(d):
    assert d == d.numpy
    assert d.numpy == d
    assert hash(d) == hash(d.numpy)
    assert {d: 1}[d.numpy] == 1
    assert {d.numpy: 1}[d] == 1
    assert d == d.name
    assert d == d.numpy.type
    for other in DTYPES:
        if other is not d:
            assert d != other
            assert d != other.numpy
            assert other.numpy != d
            assert d != other.name
            assert d != other.numpy.type


def test_comparison_with_other_things_is_false():
    for other in (None, 3, "no dtype", ">f4", np.dtype(">f4"), object(), object, np.floating, [("a", "f4")]):
        assert not (dtypes.float32 == other)  # noqa: SIM201
        assert dtypes.float32 != other
    assert dtypes.float64 == float  # noqa: E721
    assert dtypes.bool_ == bool  # noqa: E721


@each
def test_numpy_takes_it_wherever_it_takes_a_dtype(d):
    assert np.dtype(d) is d.numpy or np.dtype(d) == d.numpy
    assert np.zeros(3, d).dtype == d.numpy
    assert np.zeros(3, dtype=d).dtype == d
    assert np.ones(2).astype(d).dtype == d
    assert np.asarray([1, 0], d).dtype == d
    assert np.empty_like(np.ones(2), dtype=d).dtype == d
    assert np.ones((2, 2), d).sum(dtype=d).dtype == d


@each
def test_there_is_one_object_per_type(d):
    for clone in (copy.copy(d), copy.deepcopy(d), pickle.loads(pickle.dumps(d)), as_dtype(d.name), from_code(d.code)):
        assert clone is d


def test_dtypes_are_immutable_and_not_made_by_hand():
    with pytest.raises(AttributeError, match="immutable"):
        dtypes.float32.name = "float64"
    with pytest.raises(AttributeError, match="immutable"):
        del dtypes.float32.name
    with pytest.raises(TypeError, match="as_dtype"):
        DType()


@each
def test_accumulator_real_and_complex(d):
    assert d.accumulator is (dtypes.float32 if d.name in ("float16", "bfloat16") else d)
    assert d.is_half == (d.name in ("float16", "bfloat16"))
    assert d.real.numpy == np.ones(1, d.numpy).real.dtype
    assert d.complex is of_sum(d, dtypes.complex64)


@each
def test_limits(d):
    if d.is_integer:
        assert (d.min, d.max) == (np.iinfo(d.numpy).min, np.iinfo(d.numpy).max)
        assert d.iinfo.bits == d.bits
        assert type(d.min) is int
        with pytest.raises(DTypeError, match="iinfo describes integers"):
            _ = d.finfo
    elif d.is_bool:
        assert (d.min, d.max) == (False, True)
        with pytest.raises(DTypeError, match=r"bool is not .* finfo"):
            _ = d.finfo
        with pytest.raises(DTypeError, match=r"bool is not .* iinfo"):
            _ = d.iinfo
    else:
        info = ml_dtypes.finfo(d.numpy) if d.name == "bfloat16" else np.finfo(d.numpy)
        assert d.finfo.eps == info.eps
        assert (d.min, d.max) == (float(info.min), float(info.max))
        with pytest.raises(DTypeError, match="finfo describes floating types"):
            _ = d.iinfo


# --- as_dtype ---


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (bool, "bool"),
        (int, "int64"),
        (float, "float64"),
        (complex, "complex128"),
        (np.intp, "int64"),
        (np.longlong, "int64"),
        (np.ulonglong, "uint64"),
        (np.dtype("long"), "int64"),
        (np.dtype("longlong"), "int64"),
        (ml_dtypes.bfloat16, "bfloat16"),
        ("f4", "float32"),
        ("<f4", "float32"),
        ("=f4", "float32"),
        ("?", "bool"),
        ("half", "float16"),
        ("double", "float64"),
        ("bfloat16", "bfloat16"),
        (np.dtype("<i2"), "int16"),
    ],
)
def test_as_dtype_accepts(given, name):
    assert as_dtype(given).name == name
    assert is_dtype(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("fp32", r"'fp32' names no dtype; did you mean 'float32'\? Tiercel's dtypes are "),
        ("bf16", "did you mean 'bfloat16'"),
        ("Float32", "did you mean 'float32'"),
        ("", "names no dtype"),
        ("x" * 100, "names no dtype; Tiercel's dtypes are "),
        (">f4", r"'>f4' has the other byte order; convert with a.astype\('float32'\)"),
        (np.dtype(">c16"), "other byte order"),
        (np.dtype([("a", "f4")]), "structured dtype"),
        ("f4,i4", "structured dtype"),
        ("(2,)f4", "structured dtype"),
        (object, "expected a dtype, got <class 'object'>"),
        ("O", "NumPy dtype object is not supported"),
        (str, "expected a dtype, got <class 'str'>"),
        ("S3", "not supported"),
        (np.longdouble, "not supported"),
        (np.datetime64, "not supported"),
        (np.floating, "abstract NumPy type"),
        (np.generic, "abstract NumPy type"),
        (np.void, "not supported"),
        (np.ones(2), "got a value of type ndarray; pass its .dtype"),
        (np.float32(1), "got a value of type float32; pass its .dtype"),
        (None, "expected a dtype, got None"),
        (3, "expected a dtype, got 3 of type int"),
        ([], "expected a dtype"),
    ],
)
def test_as_dtype_refuses_and_says_what_is_accepted(given, message):
    with pytest.raises(DTypeError, match=message) as caught:
        as_dtype(given)
    assert "Tiercel's dtypes are bool, int8," in str(caught.value)
    assert isinstance(caught.value, TypeError)
    assert not is_dtype(given)


def test_as_dtype_knows_torch_dtypes_without_importing_torch():
    # torch.dtype objects are recognised by the name of their type and their text.
    fake = type("dtype", (), {"__module__": "torch", "__str__": lambda self: self.text})
    dtype = fake()
    dtype.text = "torch.bfloat16"
    assert as_dtype(dtype) is dtypes.bfloat16
    dtype.text = "torch.qint8"
    with pytest.raises(DTypeError):
        as_dtype(dtype)


@pytest.mark.parametrize("code", [-1, 15, 255])
def test_from_code_refuses(code):
    with pytest.raises(DTypeError, match="codes are 0 to 14"):
        from_code(code)


# --- promote_types ---


@pytest.mark.parametrize(("a", "b"), list(itertools.product(DTYPES, DTYPES)), ids=lambda d: d.name)
def test_promote_types_of_every_pair(a, b):
    got = promote_types(a, b)
    assert got is of_sum(a, b)
    assert got is promote_types(b, a)
    assert got is promote_types(a.numpy, b.name)
    try:
        expected = np.promote_types(a.numpy, b.numpy)
    except TypeError:
        assert not has_common_dtype(a, b)
        with pytest.raises(TypeError):
            np.concatenate([np.ones(1, a), np.ones(1, b)])
    else:
        assert got == expected
        assert has_common_dtype(a, b)
        assert np.concatenate([np.ones(1, a), np.ones(1, b)]).dtype == got


def test_promote_types_is_idempotent_and_bool_is_its_unit():
    for d in DTYPES:
        assert promote_types(d, d) is d
        assert promote_types(d, bool) is d


# --- result_type ---


def test_result_type_of_every_triple():
    refused = 0
    for operands in itertools.product(DTYPES, repeat=3):
        got = result_type(*operands)
        try:
            expected = numpy_result_type(*(d.numpy for d in operands))
        except TypeError:
            refused += 1
            assert dtypes.bfloat16 in operands
            rest = [d.numpy for d in operands if d is not dtypes.bfloat16]
            expected = of_sum(dtypes.bfloat16, numpy_result_type(*rest))
        assert got is expected, operands
    assert 0 < refused < 700


def test_a_triple_is_no_fold_over_pairs():
    operands = (dtypes.int16, dtypes.uint16, dtypes.float32)
    assert result_type(*operands) is dtypes.float32
    assert promote_types(promote_types(*operands[:2]), operands[2]) is dtypes.float64


WEAK = [1, 1.0, 1j]
WEAK_CLASS = {int: WeakInt, float: WeakFloat, complex: WeakComplex}


@pytest.mark.parametrize("weak", WEAK, ids=lambda w: type(w).__name__)
@each
def test_result_type_with_one_weak_scalar(d, weak):
    expected = as_dtype((np.ones(1, d.numpy) + weak).dtype)
    kind = WEAK_CLASS[type(weak)]
    for stand_in in (weak, kind, kind(), kind(weak)):
        assert result_type(d, stand_in) is expected
        assert result_type(stand_in, d) is expected
        assert result_type(np.ones(1, d), stand_in, stand_in) is expected
    if d is not dtypes.bfloat16:
        assert expected is numpy_result_type(d.numpy, weak)


def test_result_type_of_every_pair_with_weak_scalars():
    for a, b in itertools.product(NATIVE, NATIVE):
        for weak in [(w,) for w in WEAK] + list(itertools.permutations(WEAK, 2)):
            expected = numpy_result_type(a.numpy, b.numpy, *weak)
            for operands in ((a, b, *weak), (*weak, a, b), (a, *weak, b)):
                assert result_type(*operands) is expected, operands


def test_result_type_of_weak_scalars_alone():
    for count in (1, 2, 3):
        for operands in itertools.product([True, 1, 1.0, 1j], repeat=count):
            assert result_type(*operands) is numpy_result_type(*operands), operands
    assert result_type(WeakInt) is dtypes.int64
    assert result_type(2**63 - 1) is dtypes.int64
    assert result_type(2**63) is dtypes.uint64
    with pytest.raises(DTypeError, match="object"):
        result_type(2**64)
    with pytest.raises(DTypeError, match="object"):
        result_type(-(2**63) - 1)


@each
def test_a_python_bool_is_an_ordinary_operand(d):
    assert result_type(d, True) is d
    assert result_type(True, 1) is numpy_result_type(True, 1)


@each
def test_numpy_scalars_and_arrays_are_not_weak(d):
    value = np.ones((), d)[()]
    array = np.ones((2, 0), d)
    assert result_type(value) is d
    assert result_type(array) is d
    assert result_type(dtypes.int8, value) is of_sum(dtypes.int8, d)
    assert result_type(np.float64(1), np.float32(1)) is dtypes.float64


def test_subclasses_of_python_numbers():
    class Size(enum.IntEnum):
        SMALL = 3

    class Metre(float):
        pass

    for d, value in ((dtypes.uint8, Size.SMALL), (dtypes.float32, Metre(1))):
        assert result_type(d, value) == (np.ones(1, d) + value).dtype
        assert result_type(value) == np.asarray(value).dtype
        assert (weak_of(value) is None) == (result_type(d, value) is not d)
    # np.float64 is a Python float and still not weak.
    assert result_type(dtypes.float32, np.float64(1)) is dtypes.float64


def outcome(operation):
    try:
        return operation()
    except OverflowError as error:
        return type(error), str(error)


EDGES = sorted({s * 2**k + o for k in (0, 7, 8, 15, 16, 31, 32, 63, 64, 70) for s in (1, -1) for o in (-1, 0, 1)})


@pytest.mark.parametrize("d", INTEGERS, ids=str)
def test_python_ints_are_range_checked_with_numpys_message(d):
    for value in EDGES:
        expected = outcome(lambda: as_dtype((np.zeros(1, d.numpy) | value).dtype))  # noqa: B023
        for operands in ((d, value), (value, d), (WeakInt(value), d)):
            assert outcome(lambda: result_type(*operands)) == expected, value  # noqa: B023
        assert result_type(d, value, check=False) is d
        if d.min <= value <= d.max:
            assert check_int_range(value, d) is None
        else:
            assert outcome(lambda: check_int_range(value, d)) == expected  # noqa: B023


@pytest.mark.parametrize("d", [*FLOATS, *COMPLEX], ids=str)
def test_python_ints_beyond_float_overflow_as_in_numpy(d):
    value = 2**60 if d is dtypes.bfloat16 else 2**100  # ml_dtypes takes C longs only
    with np.errstate(over="ignore"):
        assert result_type(d, value) == (np.ones(1, d) + value).dtype
    with pytest.raises(OverflowError, match="int too large to convert to float"):
        result_type(d, 10**400)
    if d is not dtypes.bfloat16:
        with pytest.raises(OverflowError, match="int too large to convert to float"):
            np.ones(1, d.numpy) + 10**400


def test_range_is_checked_against_the_result_not_an_operand():
    assert result_type(dtypes.uint8, 300, dtypes.int16) is dtypes.int16
    assert result_type(dtypes.bool_, 300) is dtypes.int64
    assert result_type(dtypes.uint8, 300, 1.0) is dtypes.float64


def test_result_type_refuses_what_has_no_dtype():
    with pytest.raises(ValueError, match="at least one array or dtype is required"):
        result_type()
    with pytest.raises(DTypeError, match="expected a dtype"):
        result_type(dtypes.float32, None)
    with pytest.raises(DTypeError, match="object is not supported"):
        result_type(np.array([None]))
    with pytest.raises(DTypeError, match="byte order"):
        result_type(np.ones(2, ">f4"), 1)


# --- Weak operands ---


def test_weak_of():
    assert weak_of(3) == WeakInt(3)
    assert weak_of(3.0) == WeakFloat(3.0)
    assert weak_of(3j) == WeakComplex(3j)
    for value in (True, np.float64(3), np.int64(3), "3", None):
        assert weak_of(value) is None


def test_weak_operands_are_values():
    assert WeakInt(3) != WeakInt(4)
    assert WeakInt(3) != WeakFloat(3)
    assert len({WeakInt(), WeakInt(), WeakInt(3), WeakFloat()}) == 3
    assert repr(WeakInt(3)) == "WeakInt(3)"
    assert repr(WeakFloat()) == "WeakFloat()"


@pytest.mark.parametrize(
    "value", [True, 1, -1, 2**63 - 1, 2**63, -(2**63), 1.5, 1j, np.float16(1), np.bool_(1), np.int8(3)]
)
def test_default_dtype(value):
    assert default_dtype(value) == np.asarray(value).dtype


@pytest.mark.parametrize("value", [2**64, "text", None, object()])
def test_default_dtype_refuses(value):
    with pytest.raises(DTypeError):
        default_dtype(value)


def test_public_names_are_complete():
    for name in dtypes.__all__:
        assert hasattr(dtypes, name)
    for d in DTYPES:
        name = "bool_" if d.name == "bool" else d.name
        assert getattr(dtypes, name) is d
        assert name in dtypes.__all__
