"""Calls of the rows that copy an array, hand it on, or say what it is."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from tests.operators.harness import LAYOUTS, ORACLES, Sample, family, make
from tiercel.dtypes import DTYPES

SHAPES = [(), (3,), (2, 3), (2, 3, 4), (0, 3), (3, 1), (1, 1)]
SCALARS = [np.float16(3), 5, 2.5, 1j, True]


def arrays(rng):
    for shape, layout in itertools.product(SHAPES, LAYOUTS):
        yield make(rng, shape, "float32", layout)
    for dtype in DTYPES:
        yield make(rng, (2, 3), dtype, special=True)


@family("copy")
def copy(rng):
    for x in arrays(rng):
        for order in ("K", "C", "F", "A"):
            yield Sample((x,), {"order": order}, symbolic=order != "A")
        yield Sample((x,), {}, ("method", "copy"))
    for x in SCALARS:
        yield Sample((x,))
    yield Sample((np.float16(3),), {}, ("method", "copy"))
    yield Sample(([1, 2],))


@family("array", "asarray")
def array(rng):
    for x in arrays(rng):
        for order in ("K", "C", "F", "A"):
            yield Sample((x,), {"order": order}, symbolic=order != "A")
    for x, dtype in itertools.product(
        [make(rng, (2, 3), layout="broadcast"), 300, 1.5, 1j, [1, 2], [300], [1j], True], DTYPES
    ):
        yield Sample((x,), {"dtype": dtype})
    x = make(rng, (2, 3), layout="F")
    for nested in ([x, x], [[1, 2.5], [3, 4]], [np.float32(1), 2], (1, 2), [], [[]], [x[0], x[1]]):
        # Arrays of different symbols might not stack.
        for order in ("K", "F"):
            yield Sample((nested,), {"order": order}, symbolic=not any(isinstance(v, np.ndarray) for v in nested))


@family("ascontiguousarray", "asfortranarray")
def contiguous(rng):
    for x in arrays(rng):
        yield Sample((x,))
        yield Sample((x,), {"dtype": x.dtype})
        yield Sample((x,), {"dtype": np.complex128})
    for x in SCALARS:
        yield Sample((x,))
    yield Sample(([[1, 2], [3, 4]],))


@family("identity", "stop_gradient")
def identity(rng):
    for x in (*arrays(rng), *SCALARS):
        yield Sample((x,))


@family("depend")
def depend(rng):
    for x in (*arrays(rng), *SCALARS):
        yield Sample((x, ()))
        yield Sample((x, (make(rng, (3,)), 2)))


@family("shape", "ndim")
def questions(rng):
    for x in (*arrays(rng), *SCALARS, [[1, 2, 3]]):
        yield Sample((x,))


@family("dtype")
def dtype(rng):
    for sample in questions(rng):
        # test_creation.py compares what is returned.
        yield replace(sample, compare=False)


@family("size")
def size(rng):
    for x in arrays(rng):
        for axis in (None, 0, -1, 2):
            yield Sample((x,), {"axis": axis})
    yield Sample((make(rng, (2, 3)),), {"axis": (0, 1)})
    yield Sample((make(rng, (2, 3)),), {}, ("property", "size"))
    yield Sample((5,))


@family("dim")
def dim(rng):
    for x in arrays(rng):
        for axis in (0, -1, 2):
            yield Sample((x,), {"axis": axis})


@family("item")
def item(rng):
    for dtype, shape, layout in itertools.product(DTYPES, ((), (1,), (1, 1)), ("C", "F")):
        yield Sample((make(rng, shape, dtype, layout),))
        yield Sample((make(rng, shape, dtype, layout),), {}, ("method", "item"))
    yield Sample((make(rng, (2,)),))
    yield Sample((make(rng, (0,)),))
    yield Sample((np.float32(3),))


def _nested(x):
    """Nested lists of elements, as `np.array` reads them."""
    if isinstance(x, np.ndarray) and x.ndim:
        return [_nested(v) for v in x]
    return [_nested(v) for v in x] if isinstance(x, list | tuple) else x


def _array(x, dtype=None, order=None, ndmin=0):
    made = np.array(_nested(x), dtype=np.asarray(x).dtype).reshape(np.shape(x))
    return made if dtype is None else made.astype(np.dtype(dtype))


def _size(x, axis=None):
    shape = np.shape(x)
    axes = range(len(shape)) if axis is None else np.atleast_1d(axis)
    return int(np.prod([shape[a] for a in axes]))


ORACLES.update(
    copy=_array,
    array=_array,
    asarray=_array,
    ascontiguousarray=lambda x, dtype=None: np.atleast_1d(_array(x, dtype)),
    asfortranarray=lambda x, dtype=None: np.atleast_1d(_array(x, dtype)),
    identity=lambda x: x,
    stop_gradient=lambda x: x,
    depend=lambda x, after: x,
    shape=lambda x: tuple(int(n) for n in np.asarray(x).shape),
    ndim=lambda x: len(np.asarray(x).shape),
    size=_size,
    dim=lambda x, axis: x.shape[axis],
    item=lambda x: np.asarray(x).ravel()[0].item(),
)
