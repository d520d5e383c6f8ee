"""A Tensor against the ndarray inside: same values, dtypes, errors and aliasing, in Tensors."""

from __future__ import annotations

import copy
import inspect
import operator
import pickle
import threading

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tiercel.dtypes as td
from tiercel.errors import DTypeError
from tiercel.values import Tensor, from_dlpack, storage_of

BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.eq,
    operator.ne,
]
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
IN_PLACE = [
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.ifloordiv,
    operator.imod,
    operator.ipow,
]


def same(got: object, want: object) -> None:
    """`got` is `want` with arrays and NumPy scalars as Tensors."""
    if isinstance(want, tuple):
        assert type(got) is type(want)
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            same(a, b)
        return
    if isinstance(want, np.ndarray | np.generic):
        assert type(got) is Tensor, type(got)
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        assert got.strides == np.asarray(want).strides
        np.testing.assert_array_equal(got.numpy(), want)
        return
    assert type(got) is type(want)
    assert got == want


@pytest.fixture
def a():
    return np.arange(1, 13, dtype=np.float32).reshape(3, 4)


# ---- operators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", BINARY, ids=lambda o: o.__name__)
def test_binary_operators_with_every_partner(op, a):
    t = Tensor(a)
    b = np.full((4,), 2, np.float32)
    for partner in (Tensor(b), b, 2, 2.5, True, np.float64(3), np.array(2.0), [1, 2, 3, 4]):
        raw = partner.numpy() if isinstance(partner, Tensor) else partner
        same(op(t, partner), op(a, raw))
        if not isinstance(partner, list):
            same(op(partner, t), op(raw, a))


@pytest.mark.parametrize("op", BITS, ids=lambda o: o.__name__)
def test_bit_operators(op):
    x, y = np.array([12, 5, 9]), np.array([1, 2, 3])
    same(op(Tensor(x), Tensor(y)), op(x, y))
    same(op(Tensor(x), 1), op(x, 1))
    same(op(3, Tensor(y)), op(3, y))
    t = Tensor(x.copy())
    assert getattr(operator, "i" + op.__name__.rstrip("_"))(t, y) is t
    np.testing.assert_array_equal(t.numpy(), op(x, y))


def test_matmul_and_divmod(a):
    t = Tensor(a)
    same(t @ t.T, a @ a.T)
    same(a @ t.T, a @ a.T)
    same(t @ a.T, a @ a.T)
    same(divmod(t, 3), divmod(a, 3))
    same(divmod(30, t), divmod(30, a))
    square = Tensor(np.eye(3))
    square @= np.ones((3, 3))
    np.testing.assert_array_equal(square.numpy(), np.ones((3, 3)))


def test_unary_operators(a):
    same(-Tensor(a), -a)
    same(+Tensor(a), +a)
    same(abs(Tensor(-a)), abs(-a))
    same(~Tensor(np.array([1, 2])), ~np.array([1, 2]))


@pytest.mark.parametrize("op", IN_PLACE, ids=lambda o: o.__name__)
def test_in_place_operators_write_the_memory(op, a):
    memory = a.copy()
    t = Tensor(memory)
    row = t[1]
    before = t.version
    assert op(t, Tensor(np.float32(2))) is t
    np.testing.assert_array_equal(memory, op(a.copy(), np.float32(2)))
    np.testing.assert_array_equal(row.numpy(), memory[1])
    assert t.version != before
    assert row.version == t.version


def test_in_place_errors_are_numpys(a):
    t = Tensor(np.arange(3))
    with pytest.raises(TypeError, match="same_kind"):
        t += 0.5
    with pytest.raises(ValueError, match="broadcast"):
        t += np.ones((2, 3), int)


def test_a_write_that_raises_moves_the_version():
    t = Tensor(np.array([1.0, 0.0]))
    before = t.version
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        t /= 0.0
    assert t.version != before


def test_weak_python_scalars_and_strong_rank_zero():
    t = Tensor(np.ones(2, np.float32))
    assert (t + 1.5).dtype is td.float32
    assert (t + Tensor(np.float64(1.5))).dtype is td.float64
    with pytest.raises(OverflowError):
        Tensor(np.ones(2, np.int8)) + 300


def test_rank_zero_results_stay_tensors(a):
    t = Tensor(a)
    same(t.sum(), a.sum())
    same(t.sum() * t.mean(), a.sum() * a.mean())
    same(t[1, 2], a[1, 2])
    same(-t[0, 0], -a[0, 0])
    assert float(t.sum()) == 78.0
    assert int(t[0, 0]) == 1
    assert complex(t[0, 0]) == 1


def test_operator_defers_to_a_type_that_asks_for_it():
    class Theirs:
        __array_ufunc__ = None

        def __radd__(self, other):
            return type(other)

        def __add__(self, other):
            return type(other)

    assert Tensor([1.0]) + Theirs() is Tensor
    assert Theirs() + Tensor([1.0]) is Tensor


def test_unsupported_operand_is_pythons_type_error():
    with pytest.raises(TypeError):
        Tensor([1.0]) + object()
    with pytest.raises(TypeError):
        object() - Tensor([1.0])


@given(
    hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=4), elements=st.floats(-9, 9)),
    st.sampled_from([operator.add, operator.sub, operator.mul]),
)
def test_operators_agree_with_numpy_property(x, op):
    t = Tensor(x)
    same(op(t, t), op(x, x))
    same(op(t, x[..., :1]), op(x, x[..., :1]))
    same(op(t.T, 3), op(x.T, 3))


# ---- indexing --------------------------------------------------------------------------------------------------------

KEYS = [
    0,
    -1,
    slice(1, None),
    slice(None, None, -2),
    None,
    ...,
    (0, 1),
    (slice(None), 2),
    (..., None, 1),
    [0, 2],
    np.array([2, 0]),
    (slice(None), [1, 3]),
    np.array([True, False, True]),
    ([0, 1], [1, 2]),
    True,
    np.int64(1),
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_indexing(key, a):
    t = Tensor(a)
    got, want = t[key], a[key]
    same(got, want)
    assert np.shares_memory(got.numpy(), a) == np.shares_memory(want, a)
    shared = storage_of(got) is storage_of(t)
    assert shared == np.shares_memory(want, a)


def test_indexing_by_tensors(a):
    t = Tensor(a)
    rows, mask = np.array([2, 0]), a > 6
    same(t[Tensor(rows)], a[rows])
    same(t[Tensor(mask)], a[mask])
    same(t[:, Tensor(rows)], a[:, rows])
    same(t[Tensor(np.int64(1))], a[1])
    same(t[: Tensor(np.int64(2))], a[:2])
    assert a[Tensor(rows)[0]].shape == (4,)
    assert list(range(5))[Tensor(np.int64(3))] == 3


def test_setitem_writes_through_views(a):
    memory = a.copy()
    t = Tensor(memory)
    view = t[1:]
    before = t.version
    view[:, Tensor(np.array([0, 1]))] = Tensor(np.zeros((2, 2)))
    want = a.copy()
    want[1:, [0, 1]] = 0
    np.testing.assert_array_equal(memory, want)
    assert t.version == view.version != before


def test_index_errors_are_numpys(a):
    with pytest.raises(IndexError, match="index 7 is out of bounds for axis 0 with size 3"):
        Tensor(a)[7]
    with pytest.raises(IndexError, match="too many indices"):
        Tensor(a)[0, 0, 0]


def test_overlapping_slice_assignment_aliases_as_numpy(a):
    x, t = a.copy(), Tensor(a.copy())
    x[1:] = x[:-1]
    t[1:] = t[:-1]
    np.testing.assert_array_equal(t.numpy(), x)


# ---- Python's protocols ----------------------------------------------------------------------------------------------


def test_iteration_and_length(a):
    t = Tensor(a)
    assert len(t) == 3
    rows = list(t)
    for got, want in zip(rows, a, strict=True):
        same(got, want)
    assert all(storage_of(row) is storage_of(t) for row in rows)
    _, _, z = t
    same(z, a[2])
    assert a[0, 0] in t
    assert 99 not in t
    with pytest.raises(TypeError, match="iteration over a 0-d"):
        iter(Tensor(1.0))
    with pytest.raises(TypeError, match="unsized"):
        len(Tensor(1.0))


def test_truth_and_conversion_errors_are_numpys(a):
    for convert in (bool, int, float, complex, operator.index):
        with pytest.raises((ValueError, TypeError)) as ours:
            convert(Tensor(a))
        with pytest.raises((ValueError, TypeError)) as theirs:
            convert(a)
        assert type(ours.value) is type(theirs.value)
        assert str(ours.value) == str(theirs.value)
    assert bool(Tensor([3]))
    assert operator.index(Tensor(np.int32(4))) == 4
    with pytest.raises(TypeError):
        operator.index(Tensor(4.0))


def test_hash_is_identity(a):
    t = Tensor(a)
    assert {t: 1}[t] == 1
    assert hash(t) == hash(t)
    assert t not in {Tensor(a): 1}


def test_repr_and_format():
    assert repr(Tensor(np.array([1.0, 2.0], np.float32))) == "Tensor([1., 2.], dtype=float32)"
    assert repr(Tensor(np.zeros((0, 3)))) == "Tensor([], shape=(0, 3), dtype=float64)"
    assert str(Tensor([1, 2])) == "[1 2]"
    assert f"{Tensor(2.5):.2f}" == "2.50"
    assert "bfloat16" in repr(Tensor([1.0], td.bfloat16))
    big = repr(Tensor(np.zeros((100, 100))))
    assert "shape=(100, 100)" in big
    assert len(big) < 1000


@pytest.mark.parametrize("round_trip", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_copies_have_their_own_memory(round_trip, a):
    for array in (a, a.T, a[::-1], np.float32(3)):
        t = Tensor(array)
        other = round_trip(t)
        assert type(other) is Tensor
        np.testing.assert_array_equal(other.numpy(), array)
        assert other.dtype == array.dtype
        assert not np.shares_memory(other.numpy(), t.numpy())


def test_pickle_bfloat16():
    t = pickle.loads(pickle.dumps(Tensor([1.5, 2.0], td.bfloat16)))
    assert t.dtype is td.bfloat16
    assert t.tolist() == [1.5, 2.0]


# ---- construction ----------------------------------------------------------------------------------------------------


def test_construction_shares_or_converts(a):
    assert Tensor(a).numpy() is a
    assert np.shares_memory(Tensor(Tensor(a)).numpy(), a)
    assert storage_of(t := Tensor(a)) is storage_of(Tensor(t))
    converted = Tensor(a, td.float64)
    assert converted.dtype is td.float64
    assert not np.shares_memory(converted.numpy(), a)
    assert Tensor(a, "float32").numpy() is a
    assert Tensor([[1, 2], [3, 4]]).shape == (2, 2)
    assert Tensor(3).shape == ()
    assert Tensor([Tensor([1.0]), Tensor([2.0])]).shape == (2, 1)
    assert Tensor(np.float32(1)).dtype is td.float32


def test_construction_refuses(a):
    with pytest.raises(DTypeError):
        Tensor(np.array(["x"]))
    with pytest.raises(DTypeError):
        Tensor(np.array([object()]))
    with pytest.raises(DTypeError, match="byte order"):
        Tensor(a.astype(">f4"))
    with pytest.raises(TypeError, match="mask"):
        Tensor(np.ma.array([1, 2], mask=[0, 1]))
    with pytest.raises(TypeError, match="needs data"):
        Tensor()
    with pytest.raises(TypeError, match="not both"):
        Tensor(a, shape=[1])


def test_subclasses_of_ndarray_are_seen_as_arrays():
    class Mine(np.ndarray):
        pass

    t = Tensor(np.arange(3).view(Mine))
    assert type(t.numpy()) is np.ndarray


def test_attributes(a):
    t = Tensor(a)
    assert (t.ndim, t.size, t.itemsize, t.nbytes) == (2, 12, 4, 48)
    assert t.device == "cpu"
    assert (t.layout, t.T.layout, t[:, ::2].layout, Tensor([1]).layout) == ("C", "F", "strided", "C")
    assert (t.is_contiguous(), t.T.is_contiguous()) == (True, False)
    assert t.strides == (16, 4)
    assert t.contiguous() is t
    assert t.T.contiguous().is_contiguous()
    assert t.flags.c_contiguous
    assert t.dtype is td.float32
    assert t.dtype == np.float32
    same(t.mT, a.mT)
    assert t.real is t
    same(Tensor([1j, 2]).imag, np.array([1j, 2]).imag)
    assert t.base is None


METHODS = [
    ("sum", (), {}),
    ("sum", (1,), {"keepdims": True}),
    ("sum", (), {"axis": 0, "dtype": td.float64}),
    ("sum", (), {"initial": 3.0}),
    ("prod", (), {"axis": 1}),
    ("mean", (), {"axis": (0, 1)}),
    ("var", (), {"axis": 0, "ddof": 1}),
    ("std", (), {}),
    ("max", (1,), {}),
    ("min", (), {"axis": 0, "keepdims": True}),
    ("all", (), {"axis": 0}),
    ("any", (), {}),
    ("argmax", (1,), {}),
    ("argmin", (), {"axis": 0, "keepdims": True}),
    ("cumsum", (0,), {}),
    ("cumprod", (), {"axis": 1}),
    ("trace", (), {}),
    ("clip", (2, 5), {}),
    ("clip", (), {"max": 3}),
    ("round", (1,), {}),
    ("conj", (), {}),
    ("conjugate", (), {}),
    ("dot", (np.ones((4, 2), np.float32),), {}),
    ("take", ([0, 1],), {"axis": 1}),
    ("compress", ([True, False, True],), {"axis": 0}),
    ("repeat", (2,), {"axis": 1}),
    ("nonzero", (), {}),
    ("argsort", (0,), {}),
    ("argsort", (), {"stable": True}),
    ("argpartition", (1,), {}),
    ("reshape", (4, 3), {}),
    ("reshape", ((-1, 2),), {}),
    ("reshape", (12,), {"order": "F"}),
    ("transpose", (), {}),
    ("transpose", (1, 0), {}),
    ("transpose", ((1, 0),), {}),
    ("swapaxes", (0, 1), {}),
    ("squeeze", (), {}),
    ("ravel", (), {}),
    ("ravel", ("F",), {}),
    ("flatten", (), {}),
    ("diagonal", (), {}),
    ("copy", (), {}),
    ("astype", (np.float64,), {}),
    ("astype", (td.int32,), {"copy": False}),
    ("view", (np.int32,), {}),
    ("view", (), {}),
]


@pytest.mark.parametrize(("name", "args", "keywords"), METHODS, ids=lambda x: str(x)[:20])
@pytest.mark.parametrize("layout", ["C", "F", "reversed"])
def test_methods_are_numpys(name, args, keywords, layout, a):
    array = {"C": a, "F": np.asfortranarray(a), "reversed": a[::-1]}[layout]
    t = Tensor(array)
    got, want = getattr(t, name)(*args, **keywords), getattr(array, name)(*args, **keywords)
    same(got, want)
    if isinstance(want, np.ndarray):
        assert np.shares_memory(got.numpy(), array) == np.shares_memory(want, array)
        assert (storage_of(got) is storage_of(t)) == np.shares_memory(want, array)
        assert (got is t) == (want is array)


def test_other_methods(a):
    t = Tensor(a.copy())
    assert t.item(1, 2) == 7.0
    assert t.tolist() == a.tolist()
    assert t.tobytes() == a.tobytes()
    same(Tensor([1, 3, 5]).searchsorted(Tensor([2, 6])), np.array([1, 3, 5]).searchsorted([2, 6]))
    same(Tensor([0, 1]).choose([Tensor([1, 2]), np.array([3, 4])]), np.array([0, 1]).choose([[1, 2], [3, 4]]))
    assert t.squeeze(axis=()).shape == (3, 4)
    with pytest.raises(ValueError, match="cannot reshape array of size 12"):
        t.reshape(5, 3)


def test_every_method_of_ndarray_is_there_or_left_out_on_purpose():
    left_out = {
        # views of the memory that would miss a version, formats, and what NumPy itself discourages
        *("byteswap", "ctypes", "data", "dump", "dumps", "flat", "getfield", "resize", "setfield", "setflags"),
        *("to_device", "tofile", "base"),
    }
    theirs = {n for n in dir(np.ndarray) if not n.startswith("_")}
    missing = {n for n in theirs if not hasattr(Tensor, n)} - left_out
    assert not missing


@pytest.mark.parametrize(
    "name", ["sum", "mean", "max", "argmin", "cumsum", "reshape", "astype", "sort", "take", "clip"]
)
def test_methods_have_signatures_and_documentation(name):
    method = getattr(Tensor, name)
    assert method.__doc__
    assert "self" in inspect.signature(method).parameters


def test_writing_methods(a):
    memory = a.copy()
    t = Tensor(memory)
    versions = [t.version]
    for write in (
        lambda: t.put([0, 1], Tensor([9.0, 8.0])),
        t.sort,
        lambda: t.partition(1),
        lambda: t.fill(3),
    ):
        write()
        versions.append(t.version)
    assert len(set(versions)) == 5
    assert (memory == 3).all()


def test_out_is_written_and_returned(a):
    t, out = Tensor(a), Tensor(np.zeros(4, np.float32))
    before = out.version
    assert t.sum(axis=0, out=out) is out
    np.testing.assert_array_equal(out.numpy(), a.sum(axis=0))
    assert out.version != before
    assert np.add(t[0], 1, out=out) is out
    np.testing.assert_array_equal(out.numpy(), a[0] + 1)
    plain = np.zeros(4, np.float32)
    assert np.add(t[0], 1, out=plain) is plain
    assert t.clip(2, 3, out=Tensor(np.zeros((3, 4), np.float32))).max() == 3


# ---- NumPy's functions -----------------------------------------------------------------------------------------------


def test_ufuncs_give_tensors(a):
    t = Tensor(a)
    same(np.exp(t), np.exp(a))
    same(np.add(a, t), a + a)
    same(np.add.reduce(t, axis=0), a.sum(0))
    same(np.add.accumulate(t), np.add.accumulate(a))
    same(np.multiply.outer(t[0], a[1]), np.multiply.outer(a[0], a[1]))
    same(np.modf(t), np.modf(a))
    same(np.exp(t, where=Tensor(np.ones((3, 4), bool)), out=Tensor(a.copy())), np.exp(a))
    same(np.add(t, t, dtype=td.float64), np.add(a, a, dtype=np.float64))
    out = Tensor(np.zeros_like(a))
    whole, rest = np.modf(t, None, out)
    assert rest is out
    same(whole, np.modf(a)[0])


def test_ufunc_at_moves_the_version():
    t = Tensor(np.zeros(3))
    before = t.version
    np.add.at(t, Tensor([0, 0, 2]), 1.0)
    assert t.tolist() == [2, 0, 1]
    assert t.version != before


def test_array_augmented_by_a_tensor_stays_an_array(a):
    array = a.copy()
    same_array = array
    array += Tensor(a)
    assert array is same_array
    np.testing.assert_array_equal(array, a + a)


FUNCTIONS = [
    lambda x: np.sum(x, axis=1),
    lambda x: np.concatenate([x, x], axis=1),
    lambda x: np.stack([x, x]),
    lambda x: np.where(x > 3, x, 0),
    np.transpose,
    lambda x: np.split(x, 2, axis=1)[0],
    lambda x: np.einsum("ij,ij->i", x, x),
    lambda x: np.linalg.norm(x, axis=1),
    lambda x: np.broadcast_to(x, (2, 3, 4)),
    np.zeros_like,
    lambda x: np.argsort(x, axis=None),
    lambda x: np.unique(x, return_counts=True),
    np.nonzero,
    np.shape,
    lambda x: np.allclose(x, x),
    np.mean,
    lambda x: np.tensordot(x, x, 2),
    lambda x: np.pad(x, 1),
    lambda x: np.linalg.svd(x, compute_uv=False),
    lambda x: np.meshgrid(x[0], x[1]),
    lambda x: np.take_along_axis(x, np.argsort(x, 1), 1),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_of_numpy(function, a):
    got, want = function(Tensor(a)), function(a)
    if isinstance(want, list):
        assert type(got) is list
        got, want = tuple(got), tuple(want)
    same(got, want)


def test_named_results_keep_their_names(a):
    got = np.linalg.eigh(Tensor(a @ a.T))
    assert type(got) is type(np.linalg.eigh(a @ a.T))
    assert type(got.eigenvalues) is Tensor


def test_function_results_alias_as_numpys(a):
    t = Tensor(a)
    assert storage_of(np.transpose(t)) is storage_of(t)
    assert storage_of(np.reshape(t, -1)) is storage_of(t)
    assert storage_of(np.split(t, 3)[1]) is storage_of(t)
    assert storage_of(np.flip(t)) is storage_of(t)
    assert storage_of(np.concatenate([t])) is not storage_of(t)
    assert np.real(t) is t
    view_of_view = np.transpose(np.reshape(t[1:], (4, 2)))
    assert storage_of(view_of_view) is storage_of(t)


WRITERS = [
    lambda t: np.copyto(t, 1),
    lambda t: np.copyto(dst=t, src=1),
    lambda t: np.put(t, [0], 5),
    lambda t: np.place(t, Tensor(t.numpy() > 2), [0]),
    lambda t: np.putmask(t, t.numpy() > 2, 0),
    lambda t: np.fill_diagonal(t, 3),
    lambda t: np.put_along_axis(t, np.zeros((3, 1), int), 7, 1),
    lambda t: np.nan_to_num(t, copy=False),
    lambda t: np.cumsum(t, axis=0, out=t),
    lambda t: np.clip(t, 1, 2, out=t),
]


@pytest.mark.parametrize("write", WRITERS)
def test_functions_that_write_move_the_version(write, a):
    memory, want = a.copy(), a.copy()
    t = Tensor(memory)
    before = t.version
    write(t)
    assert t.version != before
    reference = Tensor(want)
    write(reference)
    np.testing.assert_array_equal(memory, reference.numpy())


def test_nan_to_num_that_copies_writes_nothing(a):
    t = Tensor(a)
    before = t.version
    np.nan_to_num(t)
    assert t.version == before


def test_asarray_shares_memory_and_follows_the_copy_protocol(a):
    t = Tensor(a)
    assert np.asarray(t) is a
    assert not np.shares_memory(np.array(t), a)
    assert np.asarray(t, dtype=np.float64).dtype == np.float64
    assert np.array(t, copy=False) is a
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        np.array(t, dtype=np.float64, copy=False)
    assert np.asarray([t, t]).shape == (2, 3, 4)


def test_results_of_foreign_dtype_are_left_to_numpy():
    t = Tensor([1.0, 2.0])
    got = t + np.array([1, 2], np.longdouble)
    assert type(got) is np.ndarray
    assert type(t + np.array([object_ := 1, object_], object)) is np.ndarray
    assert type(np.datetime64("2020-01-01") + Tensor([1, 2]).astype("int64").numpy().astype("m8[D]")) is np.ndarray


def test_other_array_types_get_to_speak():
    class Theirs:
        def __array_ufunc__(self, ufunc, method, *inputs, **keywords):
            return "theirs"

        def __array_function__(self, function, types, args, keywords):
            return "theirs"

    assert np.add(Tensor([1.0]), Theirs()) == "theirs"
    assert np.concatenate([Tensor([1.0]), Theirs()]) == "theirs"
    assert Tensor([1.0]) + Theirs() == "theirs"
    masked = Tensor([1.0, 2.0]) + np.ma.array([1.0, 2.0], mask=[0, 1])
    assert isinstance(masked, np.ma.MaskedArray)


def test_function_of_another_library_sees_exported_arrays():
    seen = []

    class Function:
        __module__ = "elsewhere"
        __name__ = "f"

        def __call__(self, x):
            seen.append(type(x))
            return x

    t = Tensor([1.0])
    assert t.__array_function__(Function(), (Tensor,), (t,), {}) is t
    assert seen == [np.ndarray]


# ---- versions and storage --------------------------------------------------------------------------------------------


def test_views_share_a_storage_and_results_do_not(a):
    t = Tensor(a)
    for view in (t.T, t[1:], t.reshape(-1), t.view(), t.squeeze(), t.transpose(), t.mT):
        assert storage_of(view) is storage_of(t)
    for fresh in (t + 1, t.copy(), t[[0, 1]], t.flatten(), t.T.contiguous()):
        assert storage_of(fresh) is not storage_of(t)


def test_storage_is_made_once_by_many_threads(a):
    for _ in range(50):
        t = Tensor(a)
        found = []
        barrier = threading.Barrier(4)

        def look(t=t, found=found, barrier=barrier):
            barrier.wait()
            found.append(storage_of(t))

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(s) for s in found}) == 1


def test_concurrent_writes_never_leave_an_old_version(a):
    t = Tensor(a.copy())
    before = t.version
    stamps = []

    def write():
        for _ in range(200):
            t.fill(1)
            stamps.append(t.version)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert before not in stamps
    assert t.version != before


# ---- DLPack ----------------------------------------------------------------------------------------------------------


def test_dlpack_shares_memory_both_ways(a):
    t = Tensor(a)
    back = np.from_dlpack(t)
    assert np.shares_memory(back, a)
    t2 = from_dlpack(a)
    assert type(t2) is Tensor
    assert np.shares_memory(t2.numpy(), a)
    assert not np.shares_memory(from_dlpack(a, copy=True).numpy(), a)
    assert t.__dlpack_device__() == a.__dlpack_device__()
    assert from_dlpack(t[:, ::2]).strides == (16, 8)


def test_tensor_of_an_object_with_dlpack_only(a):
    class Exporter:
        def __dlpack__(self, **keywords):
            return a.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return a.__dlpack_device__()

    assert np.shares_memory(Tensor(Exporter()).numpy(), a)


def test_dlpack_of_bfloat16_says_why():
    with pytest.raises(BufferError, match="bfloat16"):
        np.from_dlpack(Tensor([1.0], td.bfloat16))


def test_bfloat16_arithmetic_is_ml_dtypes():
    x = np.array([1.0, 2.5], ml_dtypes.bfloat16)
    same(Tensor(x) + Tensor(x), x + x)
    same(Tensor(x).sum(), x.sum())
