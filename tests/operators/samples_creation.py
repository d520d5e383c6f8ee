"""Calls of the creation rows, and the same arrays element by element."""

from __future__ import annotations

import itertools

import numpy as np

from tests.operators.harness import LAYOUTS, ORACLES, Sample, Want, family, make
from tiercel import dtypes
from tiercel.dtypes import DTYPES

SHAPES = [(), 3, (2, 3), [2, 0], (2, 3, 4), (np.int64(2), 1), (-1,), 2.0]


@family("zeros", "ones", "empty")
def sized(rng):
    for shape in SHAPES:
        for order in ("C", "F"):
            yield Sample((), {"shape": shape, "order": order}, compare=False)
            yield Sample((), {"shape": shape, "order": order, "dtype": "int8"}, compare=False)
    for dtype in DTYPES:
        yield Sample((), {"shape": (2, 3), "dtype": dtype}, compare=False)
    for spelt in (float, "f4", np.int16, np.dtype("c8")):
        yield Sample((), {"shape": (2,), "dtype": spelt}, compare=False)


@family("full")
def full(rng):
    values = [0, 1.5, 2j, True, np.float32(2), 300, -1, 2**40, [1, 2, 3], np.ones((2, 1), np.int8), np.nan]
    for value, shape in itertools.product(values, [(), 3, (2, 3), (0, 3), (4,), (-1,)]):
        yield Sample((value,), {"shape": shape})
    for value, dtype in itertools.product(values[:8], DTYPES):
        yield Sample((value,), {"shape": (2,), "dtype": dtype})
    yield Sample((1,), {"shape": (2, 3), "order": "F"})


@family("zeros_like", "ones_like", "empty_like")
def like(rng):
    for shape in ((), (3,), (2, 3), (2, 3, 4), (0, 3)):
        for layout in LAYOUTS:
            x = make(rng, shape, "float32", layout)
            for order in ("K", "C", "F", "A"):
                # With symbols for sizes nobody knows whether F order is also C order.
                yield Sample((x,), {"order": order}, symbolic=order != "A", compare=False)
            for other in (5, (4, 5), (3, 2, 4)):
                yield Sample((x,), {"shape": other}, compare=False)
    for dtype in DTYPES:
        yield Sample((make(rng, (2, 3), dtype),), compare=False)
        yield Sample((make(rng, (2, 3)),), {"dtype": dtype}, compare=False)
    for x in (np.float16(3), 5, 2.5, True, [1, 2], [[1.5]]):
        yield Sample((x,), compare=False)


@family("full_like")
def full_like(rng):
    values = [0, 1.5, True, np.float32(2), 300, -1, [1, 2, 3], np.ones((2, 1), np.int8)]
    for value, dtype in itertools.product(values, DTYPES):
        yield Sample((make(rng, (2, 3), dtype), value))
        yield Sample((make(rng, (2, 3)), value), {"dtype": dtype})
    for layout in LAYOUTS:
        yield Sample((make(rng, (2, 3, 4), "float32", layout), 1), {"shape": (4, 2, 3)})
        yield Sample((make(rng, (2, 3, 4), "float32", layout), 1), {}, ("function", "numpy.full_like"))
    yield Sample((make(rng, (2, 3)), np.ones(4)))


@family("eye")
def eye(rng):
    for n, m, k in itertools.product((0, 1, 3), (None, 0, 2, 4), (0, 1, -2, 9)):
        yield Sample((), {"N": n, "M": m, "k": k})
    for dtype in DTYPES:
        yield Sample((), {"N": 3, "dtype": dtype, "order": "F"})
        yield Sample((), {"N": 3, "M": 2, "dtype": dtype})
    yield Sample((), {"N": 3, "dtype": "int8"}, ("function", "numpy.identity"))
    yield Sample((), {"N": -1})
    yield Sample((), {"N": 2.0})


@family("tri")
def tri(rng):
    for n, m, k in itertools.product((0, 1, 3, -1), (None, 0, 2, 4), (0, 1, -2, 9)):
        yield Sample((), {"N": n, "M": m, "k": k})
    for dtype in DTYPES:
        yield Sample((), {"N": 3, "dtype": dtype})


@family("arange")
def arange(rng):
    bounds = [
        (3, None, None),
        (0, None, None),
        (-3, None, None),
        (2, 7, None),
        (2, 7, 2),
        (7, 2, -2),
        (7, 2, 1),
        (0, 1, 5),
    ]
    for start, stop, step in bounds:
        yield Sample((), {"start": start, "stop": stop, "step": step})
        for dtype in DTYPES:
            yield Sample((), {"start": start, "stop": stop, "step": step, "dtype": dtype})
    for start, stop, step in [
        (0.5, 3, None),
        (0, 1, 0.1),
        (0, 1, np.float32(0.1)),
        (1.0, 0.0, -0.25),
        (2.5, None, None),
    ]:
        yield Sample((), {"start": start, "stop": stop, "step": step})
        yield Sample((), {"start": start, "stop": stop, "step": step, "dtype": "int32"}, compare=False)
    for dtype in DTYPES:
        # uint32 and uint64 bounds wrap to more than fits in memory; of bfloat16 NumPy makes objects.
        if not dtype.is_complex and dtype.name not in ("uint32", "uint64"):
            known = dtype.name != "bfloat16"
            bounds = {"start": dtype.scalar_type(1), "stop": dtype.scalar_type(0)}
            yield Sample((), bounds, static=known, symbolic=known, compare=dtype.kind in "if" and known)
    yield Sample((), {"start": True})
    yield Sample((), {"start": float("nan")})
    yield Sample((), {"start": 3}, ("function", "numpy.arange"))


@family("linspace")
def linspace(rng):
    scalars = [0, 1.5, True, np.float32(2), np.float16(1), np.int8(3), 2j]
    for start, stop in itertools.product(scalars, repeat=2):
        for num in (0, 1, 5):
            yield Sample((start, stop), {"num": num})
    for one, two in itertools.product(LAYOUTS, repeat=2):
        x, y = make(rng, (2, 3), "float32", one), make(rng, (2, 3), "float32", two)
        for axis in (0, 1, -1, 3):
            yield Sample((x, y), {"num": 4, "axis": axis})
    x = make(rng, (2, 3))
    for other in (1, 2.5, make(rng, (3,)), make(rng, (2, 1), "float64"), [1, 2, 3], make(rng, (4,))):
        yield Sample((x, other), {"num": 3})
        yield Sample((other, x), {"num": 3, "endpoint": False})
    for dtype in DTYPES:
        if not dtype.is_bool:
            yield Sample((0, 6), {"num": 4, "dtype": dtype})
        yield Sample((make(rng, (2,), dtype), 5), {"num": 3})
    yield Sample((0, 1), {"num": -1})
    yield Sample((0, 1), {"num": 2.5})
    yield Sample((0, 1), {"num": 3}, ("function", "numpy.linspace"))


# ---- element by element ----------------------------------------------------------------------------------------------


def _build(shape, dtype, element):
    out = np.empty(shape, dtype)
    for at in np.ndindex(*out.shape):
        out[at] = element(at)
    return out


def _dtype(given, default=np.float64):
    return np.dtype(default if given is None else dtypes.as_dtype(given).numpy)


def _full(value, shape, dtype=None, order="C"):
    value = np.asarray(value)
    value = value.astype(_dtype(dtype, value.dtype))
    sizes = tuple(np.atleast_1d(np.array(shape, int)))
    return _build(
        sizes,
        value.dtype,
        lambda at: value[tuple(i % n for i, n in zip(at[len(at) - value.ndim :], value.shape, strict=True))],
    )


def _diagonals(keep):
    def oracle(N, M=None, k=0, dtype=None, order="C"):
        rows, columns = max(N, 0), max(N if M is None else M, 0)
        return _build((rows, columns), _dtype(dtype), lambda at: int(keep(at[1] - at[0], k)))

    return oracle


def _arange(start, stop=None, step=None, dtype=None):
    if stop is None:
        start, stop = 0, start
    step = 1 if step is None else step
    bounds = [start, stop, step]
    default = np.result_type(np.int64, *(np.asarray(b).dtype for b in bounds))
    # NumPy continues from the first two elements as the dtype has them.
    kind = _dtype(dtype, default)
    count = max(int(np.ceil((float(stop) - float(start)) / float(step))), 0)
    first = np.asarray(start).astype(kind)
    second = np.asarray(start + step).astype(kind)
    if kind.kind in "iu":
        return np.array([int(first) + i * (int(second) - int(first)) for i in range(count)]).astype(kind)
    wide = np.clongdouble if kind.kind == "c" else np.longdouble
    return Want(wide(first) + np.arange(count) * (wide(second) - wide(first)), ulp=8.0)


def _linspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    start, stop = np.asarray(start), np.asarray(stop)
    wide = np.clongdouble if "c" in (start.dtype.kind, stop.dtype.kind) else np.longdouble
    a, b = (v.astype(wide) for v in np.broadcast_arrays(start, stop))
    parts = max(num - 1 if endpoint else num, 1)
    out = np.moveaxis(np.array([a + (b - a) * i / parts for i in range(num)]).reshape(num, *a.shape), 0, axis)
    if dtype is not None and dtypes.as_dtype(dtype).is_integer:
        return np.floor(out.real).astype(np.int64)
    return Want(out, scale=np.max(np.abs([a, b]), initial=0.0), ulp=4.0)


ORACLES.update(
    full=_full,
    full_like=lambda x, value, dtype=None, order="K", shape=None: _full(
        np.asarray(value).astype(_dtype(dtype, x.dtype)), x.shape if shape is None else shape
    ),
    eye=_diagonals(lambda distance, k: distance == k),
    tri=_diagonals(lambda distance, k: distance <= k),
    arange=_arange,
    linspace=_linspace,
)
