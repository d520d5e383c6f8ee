"""A Parameter's memory is its own, is handed out read-only, and every write through it is seen."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import tiercel.dtypes as td
from tiercel.errors import ShapeError
from tiercel.values import Parameter, Tensor, constant, frozen_state, storage_of


@pytest.fixture
def p():
    return Parameter(np.arange(6.0).reshape(2, 3), td.float32, name="w")


def test_it_copies_what_it_is_given():
    source = np.ones((2, 2))
    p = Parameter(source)
    source[:] = 5
    assert p.tolist() == [[1, 1], [1, 1]]
    q = Parameter(p)
    q[...] = 7
    assert p.tolist() == [[1, 1], [1, 1]]


def test_attributes(p):
    assert isinstance(p, Tensor)
    assert (p.name, p.requires_grad, p.dtype, p.shape, p.layout) == ("w", True, td.float32, (2, 3), "C")
    assert p.version == 0
    assert repr(p) == "Parameter('w', [[0., 1., 2.],\n                [3., 4., 5.]], dtype=float32)"
    assert repr(Parameter([1.0])) == "Parameter([1.], dtype=float64)"
    assert Parameter(np.asfortranarray(np.ones((2, 3)))).layout == "C"


EXPORTS = [
    np.asarray,
    lambda p: p.numpy(),
    lambda p: np.asarray(p.T),
    lambda p: p[0].numpy(),
    lambda p: p.reshape(-1).numpy(),
    lambda p: p.view().T.numpy(),
    lambda p: np.transpose(p).numpy(),
    lambda p: next(iter(p)).numpy(),
    lambda p: Tensor(p).numpy(),
    lambda p: np.array(p, copy=False),
    np.from_dlpack,
]


@pytest.mark.parametrize("export", EXPORTS)
def test_exports_share_memory_read_only(export, p):
    array = export(p)
    assert np.shares_memory(array, p._array)
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[...] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True
    assert p.version == 0


def test_copies_are_writable_and_apart(p):
    for array in (np.array(p), np.asarray(p, np.float64), p.copy().numpy(), p.astype(td.float64).numpy()):
        array[...] = 9
    assert p.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert p.version == 0


def test_export_sees_later_writes(p):
    array = np.asarray(p)
    p[0] = 9
    assert array[0].tolist() == [9, 9, 9]


def _iadd(p):
    p += 1


def _view_iadd(p):
    row = p[0]
    row += 1


def _rows(p):
    for row in p:
        row[...] = 2


WRITES = [
    lambda p: p.__setitem__(..., 1),
    lambda p: p.__setitem__((0, [1, 2]), Tensor([1.0, 2.0])),
    _iadd,
    _view_iadd,
    _rows,
    lambda p: p.assign(np.ones((2, 3))),
    lambda p: p.set_data(Tensor(np.ones((2, 3)))),
    lambda p: p.fill(0),
    lambda p: p.sort(),
    lambda p: p.put([0], 1),
    lambda p: p.T.__setitem__(0, 4),
    lambda p: p.reshape(-1).__setitem__(0, 4),
    lambda p: p.T.T[1:].fill(3),
    lambda p: np.copyto(p, 1),
    lambda p: np.copyto(p.T, 1),
    lambda p: np.put(p, [0], 5),
    lambda p: np.fill_diagonal(p, 1),
    lambda p: np.add(p, 1, out=p),
    lambda p: np.add.at(p, (0, 0), 1),
    lambda p: np.sum(np.ones((4, 2, 3), np.float32), axis=0, out=p),
    lambda p: np.transpose(p).fill(1),
    lambda p: Tensor(p).fill(1),
]


@pytest.mark.parametrize("write", WRITES)
def test_every_write_moves_the_version(write, p):
    p[...] = [[9.5, 8.5, 7.5], [6.5, 5.5, 4.5]]
    view, before_values, before = p.T, p.copy(), p.version
    write(p)
    assert p.version != before
    assert view.version == p.version
    assert not (p == before_values).all()


READS = [
    lambda p: p + 1,
    lambda p: p @ p.T,
    np.exp,
    lambda p: p[0],
    lambda p: p.T,
    np.asarray,
    lambda p: p.sum(),
    lambda p: np.concatenate([p, p]),
    repr,
    lambda p: p.astype(td.float64),
    list,
    lambda p: np.zeros((2, 3), np.float32).__iadd__(p),
    lambda p: np.copyto(np.zeros((2, 3)), p),
    copy.deepcopy,
    pickle.dumps,
]


@pytest.mark.parametrize("read", READS)
def test_no_read_moves_the_version(read, p):
    read(p)
    assert p.version == 0


def test_results_are_plain_tensors(p):
    for result in (p + 1, p.T, p[0], p.copy(), np.exp(p), p.reshape(-1), p.sum()):
        assert type(result) is Tensor
    q = p
    q += 1
    assert q is p
    assert p.astype(td.float32, copy=False) is p
    assert np.real(p) is p


def test_views_know_their_parameter(p):
    for view in (p.T, p[0], p.reshape(3, 2)[1:], np.transpose(p)):
        assert view.base is p
        assert storage_of(view) is storage_of(p)
    assert p.base is p
    assert (p + 1).base is None


def test_views_keep_the_memory_but_not_the_parameter():
    p = Parameter(np.ones(3))
    view, gone = p[1:], weakref.ref(p)
    del p
    gc.collect()
    assert gone() is None
    assert view.base is None
    assert view.tolist() == [1, 1]


def test_assign_wants_the_shape_and_the_kind(p):
    with pytest.raises(ShapeError, match=r"parameter 'w' has shape \(2, 3\), got \(3,\)"):
        p.assign(np.ones(3))
    with pytest.raises(TypeError, match="same_kind"):
        p.assign(np.ones((2, 3), complex))
    assert p.assign([[1, 2, 3], [4, 5, 6]]) is p
    assert p.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("round_trip", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_are_parameters_with_their_own_memory(round_trip):
    p = Parameter([1.0, 2.0], td.float32, name="b", requires_grad=False)
    q = round_trip(p)
    assert type(q) is Parameter
    assert (q.name, q.requires_grad, q.dtype, q.tolist()) == ("b", False, td.float32, [1, 2])
    q[...] = 0
    assert p.tolist() == [1, 2]
    with pytest.raises(ValueError):
        np.asarray(q)[0] = 1
    assert q.base is q


def test_parameters_of_any_rank_and_size():
    for data in (3.0, np.zeros((0, 4)), np.ones((2, 3, 4))[:, ::-1]):
        p = Parameter(data)
        np.testing.assert_array_equal(np.asarray(p), data)
        p += 1
        np.testing.assert_array_equal(np.asarray(p), np.asarray(data) + 1)


# ---- constants and frozen values -------------------------------------------------------------------------------------


def test_constant_is_a_read_only_copy_of_the_same_kind():
    source = np.ones((2, 2), np.float32)
    c = constant(source)
    source[:] = 5
    assert type(c) is np.ndarray
    assert c.flags.owndata
    assert c.tolist() == [[1, 1], [1, 1]]
    with pytest.raises(ValueError, match="read-only"):
        c[0] = 1
    assert constant([1, 2], td.float32).dtype == np.float32

    t = constant(Tensor([1.0, 2.0]))
    assert type(t) is Tensor
    with pytest.raises(ValueError, match="read-only"):
        t[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        t += 1
    assert (t + 1).tolist() == [2, 3]
    assert copy.deepcopy(t) is t
    again = pickle.loads(pickle.dumps(t))
    assert frozen_state(again) is not None
    with pytest.raises(ValueError, match="read-only"):
        again[0] = 1


def test_frozen_state(p):
    storage, version = frozen_state(p)
    assert storage is storage_of(p)
    assert frozen_state(p.T) == (storage, version)
    p += 1
    assert frozen_state(p) != (storage, version)
    assert frozen_state(p.T)[0] is storage

    c = constant(np.ones(3))
    assert frozen_state(c) == (c, 0) or frozen_state(c)[0] is c
    assert frozen_state(constant(Tensor([1.0]))) is not None
    assert frozen_state(constant(Tensor([1.0, 2.0]))[1:]) is not None


def test_what_can_change_unseen_is_not_frozen(p):
    writable = np.ones(4)
    read_only_view = writable[:]
    read_only_view.flags.writeable = False
    for value in (writable, read_only_view, Tensor(writable), Tensor(writable).T, p + 1, np.asarray(p), 3, None, [p]):
        assert frozen_state(value) is None
    # The locked array behind a parameter changes through the parameter.
    assert frozen_state(np.asarray(p).base) is None


def test_the_list_of_locked_arrays_does_not_grow():
    from tiercel.values import parameter

    before = len(parameter._locked)
    for _ in range(10):
        Parameter(np.ones(3))
    gc.collect()
    assert len(parameter._locked) <= before
