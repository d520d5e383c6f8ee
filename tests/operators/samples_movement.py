"""Calls of the movement rows, and the same results by plain indexing."""

from __future__ import annotations

import itertools

import numpy as np

from tests.operators.harness import LAYOUTS, ORACLES, Sample, family, make
from tiercel.dtypes import DTYPES

SHAPES = [(), (3,), (2, 3), (3, 1), (2, 3, 4), (2, 1, 3), (0, 3), (2, 0, 2)]


def arrays(rng, shapes=SHAPES, layouts=LAYOUTS):
    """One array for each shape and layout, the dtypes taken in turn, then one for each dtype."""
    kinds = itertools.cycle(DTYPES)
    for shape in shapes:
        for layout in layouts:
            yield make(rng, shape, next(kinds), layout)
    for dtype in DTYPES:
        yield make(rng, shapes[-1], dtype, special=True)


RESHAPES = {
    (): [(), (1,), (1, 1), -1],
    (3,): [(3,), (3, 1), (1, 3), -1, (-1, 1), (2,), (2, -1)],
    (2, 3): [(2, 3), (6,), (3, 2), (2, 1, 3), (1, 2, 3), (2, -1), -1, (2, 3, 1), (4,), (-1, -1), (4, -1)],
    (3, 1): [(3,), (1, 3), (3, 1, 1)],
    (2, 3, 4): [(6, 4), (2, 12), (4, 6), (2, 3, 2, 2), (24,), (2, -1), (2, 2, 6), (3, 8), (2, 4, 3), (1, 24)],
    (2, 1, 3): [(2, 3), (6,), (3, 2), (1, 2, 1, 3)],
    (0, 3): [(0,), (3, 0), (0, 5, 2), (-1, 3), (0, -1)],
    (2, 0, 2): [(0,), (4, 0), (-1, 2), (2, -1, 2)],
    (4, 4): [(2, 2, 4), (4, 2, 2), (2, 8), (16,)],
}


@family("reshape")
def reshape(rng):
    for x in arrays(rng, list(RESHAPES)):
        for shape in RESHAPES.get(x.shape, [-1]):
            for order in ("C", "F"):
                yield Sample((x,), {"shape": shape, "order": order}, layout=False)
    x = make(rng, (2, 3))
    for shape in (6, (3, 2), [3, 2], (np.int64(3), 2)):
        yield Sample((x,), {"shape": shape})
        yield Sample((x.T,), {"shape": shape}, ("function", "numpy.reshape"))
    yield Sample((x,), {"shape": (3, -1)}, ("method", "reshape"))
    yield Sample((np.float32(3),), {"shape": (1, 1)})
    yield Sample((np.float32(3),), {"shape": ()})
    yield Sample((5,), {"shape": (1,)})
    yield Sample(([1.5, 2.5],), {"shape": (2, 1)})
    yield Sample((x,), {"shape": (1.5, 4)})


@family("ravel", "flatten")
def ravel(rng):
    for x in arrays(rng):
        for order in ("C", "F"):
            yield Sample((x,), {"order": order})
    for order in ("A", "K"):
        yield Sample((make(rng, (2, 3, 4), layout="swapped"),), {"order": order}, layout=False, compare=False)
    yield Sample((np.float32(3),))
    yield Sample((3,))


@family("squeeze")
def squeeze(rng):
    shapes = [(), (3,), (1, 3), (2, 1, 3, 1), (1, 1), (1, 0, 1)]
    for x in arrays(rng, shapes):
        yield Sample((x,), symbolic=False)
        for axis in ((), 0, -1, (0, -1), (1,), 5):
            yield Sample((x,), {"axis": axis})
    x = make(rng, (1, 3))
    yield Sample((x,), {"axis": 0}, ("method", "squeeze"))
    yield Sample((x,), {"axis": 0}, ("function", "numpy.squeeze"))
    yield Sample((x,), {"axis": (0, 0)})
    yield Sample((np.float16(2),))


@family("expand_dims")
def expand_dims(rng):
    for x in arrays(rng):
        for axis in (0, -1, 1, (0, 1), (0, -1), 4, (0, 0)):
            yield Sample((x,), {"axis": axis})
    yield Sample((np.float16(2),), {"axis": 0})
    yield Sample((2,), {"axis": 0})
    yield Sample((make(rng, (2,)),), {"axis": 0}, ("function", "numpy.expand_dims"))


@family("transpose")
def transpose(rng):
    for x in arrays(rng):
        yield Sample((x,))
        for axes in itertools.permutations(range(x.ndim)):
            yield Sample((x,), {"axes": axes})
        yield Sample((x,), {"axes": tuple(range(-x.ndim, 0))})
    x = make(rng, (2, 3, 4))
    yield Sample((x,), {}, ("property", "T"))
    yield Sample((x,), {"axes": (1, 0, 2)}, ("method", "transpose"))
    yield Sample((x,), {}, ("method", "transpose"))
    yield Sample((x,), {"axes": [1, 0, 2]}, ("function", "numpy.transpose"))
    yield Sample((x,), {"axes": (0, 1)})
    yield Sample((x,), {"axes": (0, 0, 1)})
    yield Sample((x,), {"axes": (0, 1, 3)})
    yield Sample((make(rng, (2,)),), {"axes": 0})
    yield Sample((np.float32(1),))
    yield Sample((np.float32(1),), {}, ("property", "T"))


@family("matrix_transpose")
def matrix_transpose(rng):
    for x in arrays(rng):
        yield Sample((x,))
    yield Sample((make(rng, (2, 3, 4)),), {}, ("property", "mT"))


@family("swapaxes")
def swapaxes(rng):
    for x in arrays(rng):
        for axes in ((0, 1), (0, -1), (1, 1), (2, 0)):
            yield Sample((x,), dict(zip(("axis1", "axis2"), axes, strict=True)))
    yield Sample((make(rng, (2, 3)),), {"axis1": 0, "axis2": 1}, ("method", "swapaxes"))
    yield Sample((make(rng, (2, 3)),), {"axis1": 0, "axis2": 1.0})


@family("moveaxis")
def moveaxis(rng):
    for x in arrays(rng):
        for source, destination in ((0, -1), (-1, 0), (0, 1), ((0, 1), (-1, 0)), ((0, 1), (0,)), ((0, 0), (0, 1))):
            yield Sample((x,), {"source": source, "destination": destination})


@family("broadcast_to")
def broadcast_to(rng):
    targets = [(), (3,), (2, 3), (3, 4), (2, 2, 3), (0, 3), (2, 3, 4), (1, 2, 3, 4), 3, (-1,)]
    for x in arrays(rng):
        for shape in targets:
            yield Sample((x,), {"shape": shape})
    yield Sample((np.float32(2),), {"shape": (2,)})
    yield Sample((np.float32(2),), {"shape": ()})
    yield Sample((2.5,), {"shape": (2, 2)})


@family("flip")
def flip(rng):
    for x in arrays(rng):
        for axis in (None, 0, -1, (0, 1), (), 3):
            yield Sample((x,), {"axis": axis})
    yield Sample((np.float32(2),))


@family("flipud", "fliplr")
def flips(rng):
    for x in arrays(rng):
        yield Sample((x,))


@family("diagonal")
def diagonal(rng):
    for x in arrays(rng, [(3,), (2, 3), (3, 2), (2, 3, 4), (2, 2, 2, 2), (0, 3)]):
        loose = x.ndim > 2 and not (x.flags.c_contiguous or x.flags.f_contiguous)
        for offset, axes in itertools.product((0, 1, -1, 5, -5), ((0, 1), (1, 0), (-1, 0), (1, 1))):
            yield Sample((x,), {"offset": offset, "axis1": axes[0], "axis2": axes[1]}, layout=not loose)
    yield Sample((make(rng, (2, 3)),), {"offset": 1}, ("method", "diagonal"))


@family("diag")
def diag(rng):
    for x in arrays(rng, [(), (3,), (2, 3), (3, 2), (0,), (2, 2, 2), (0, 2)]):
        for k in (0, 1, -2, 5):
            yield Sample((x,), {"k": k})
    yield Sample(([1, 2],))


def groups(rng, shapes):
    """Arrays to join, in all pairs of layouts, then of dtypes."""
    for one, two in itertools.product(LAYOUTS, repeat=2):
        layouts = itertools.cycle((one, two))
        yield [make(rng, s, "float32", next(layouts)) for s in shapes]
    for one, two in itertools.product(DTYPES, repeat=2):
        kinds = itertools.cycle((one, two))
        yield [make(rng, s, next(kinds)) for s in shapes]


@family("concat")
def concat(rng):
    for group in groups(rng, [(2, 3, 2), (2, 1, 2), (2, 0, 2)]):
        yield Sample((group,), {"axis": 1})
    for shapes in (
        [(2, 3), (2, 3)],
        [(2, 1), (2, 1)],
        [(3,), (0,)],
        [(2, 3), (4, 3)],
        [(2, 3), (3,)],
        [(), ()],
        [(2, 3)],
    ):
        for axis in (0, 1, -1, None, 2):
            yield Sample(([make(rng, s, layout="F") for s in shapes],), {"axis": axis})
    x = make(rng, (2, 3))
    yield Sample(((x, x),), {"axis": 1}, ("function", "numpy.concatenate"))
    yield Sample(((x, x),), {"dtype": np.float64})
    yield Sample(([],))
    yield Sample(([[1, 2], x[0]],))
    yield Sample(([x, 1.0],), {"axis": None})
    yield Sample(([x, np.float64(1.0)],), {"axis": None})
    yield Sample(([1, 2],))

    for inner in ((1, 1, 3), (1, 3, 1), (3, 1, 1)):
        y = np.broadcast_to(make(rng, inner), (3, 3, 3))
        yield Sample(([y, y],), {"axis": 0})
        yield Sample(([y.T, y],), {"axis": 1})


@family("stack")
def stack(rng):
    for group in groups(rng, [(2, 3), (2, 3)]):
        for axis in (0, 1, -1):
            yield Sample((group,), {"axis": axis})
    for shapes in ([(3,), (3,), (3,)], [(), ()], [(2, 3, 4), (2, 3, 4)], [(2,), (3,)], [(1, 3), (1, 3)]):
        for axis in (0, 1, -1, 2, 5):
            for layout in ("C", "F", "swapped"):
                yield Sample(([make(rng, s, layout=layout) for s in shapes],), {"axis": axis})
    yield Sample(([1, 2.5],))
    yield Sample(([np.float32(1), np.float32(2)],), {"dtype": np.float64})
    yield Sample(([],))


@family("vstack", "hstack", "dstack", "column_stack")
def stacks(rng):
    for shapes in ([(3,), (3,)], [(2, 3), (2, 3)], [(), ()], [(2, 3, 4), (2, 3, 4)], [(3,), (2, 3)], [(2, 1), (2,)]):
        for one, two in itertools.product(("C", "F", "swapped", "sliced"), repeat=2):
            layouts = itertools.cycle((one, two))
            yield Sample(([make(rng, s, layout=next(layouts)) for s in shapes],))
    for dtype in DTYPES:
        yield Sample(([make(rng, (2, 2), dtype), make(rng, (2, 2), "int16")],))
    yield Sample(([1, 2.5],))


SECTIONS = [1, 2, 3, (1,), (1, 3), (2, 1), (-1,), [0, 9], (), 0, -1]


@family("split", "array_split")
def split(rng):
    for x in arrays(rng, [(4,), (4, 6), (6, 4, 2), (0, 2), (5,), (1, 3)]):
        for sections, axis in itertools.product(SECTIONS, (0, -1)):
            # NumPy's split divides by 0.
            if sections != 0:
                yield Sample((x,), {"sections": sections, "axis": axis}, symbolic=sections not in (2, 3))
    yield Sample((make(rng, (4,)),), {"sections": 2, "axis": 1}, symbolic=False)


@family("unstack")
def unstack(rng):
    for x in arrays(rng):
        for axis in (0, -1, 3):
            yield Sample((x,), {"axis": axis}, symbolic=False)


@family("tile")
def tile(rng):
    for x in arrays(rng):
        for reps in (1, 2, 0, (), (1, 1), (2, 1), (1, 2, 1), (1, 1, 1, 1), [2, 2]):
            yield Sample((x,), {"reps": reps})
    yield Sample((np.float32(2),), {"reps": 2})
    yield Sample((np.float32(2),), {"reps": ()})
    yield Sample((2,), {"reps": (2, 2)})
    yield Sample((make(rng, (2,)),), {"reps": -1})


@family("repeat")
def repeat(rng):
    for x in arrays(rng):
        for repeats, axis in itertools.product((0, 1, 3, (2,)), (None, 0, -1, 1)):
            yield Sample((x,), {"repeats": repeats, "axis": axis})
    x = make(rng, (2, 3))
    yield Sample((x,), {"repeats": (1, 0, 2), "axis": 1})
    yield Sample((x,), {"repeats": [1, 2], "axis": 1}, symbolic=False)
    yield Sample((x,), {"repeats": 2, "axis": 0}, ("method", "repeat"))
    yield Sample((x,), {"repeats": 1.5})
    yield Sample((x,), {"repeats": -1})
    yield Sample((np.float32(2),), {"repeats": 2})
    yield Sample((7,), {"repeats": 2})


@family("roll")
def roll(rng):
    for x in arrays(rng):
        for shift, axis in ((1, None), (-2, 0), (5, -1), ((1, 1), (0, 1)), (1, (0, 1)), ((1, 2), 0), (1, 3)):
            yield Sample((x,), {"shift": shift, "axis": axis})
    yield Sample((np.float32(2),), {"shift": 1})


@family("pad")
def pad(rng):
    for x in arrays(rng):
        pairs = tuple((i + 1, i) for i in range(x.ndim))
        for width in (0, 1, (1, 2), ((1, 2),), pairs, (1, 2, 3), -1, ((2,),)):
            yield Sample((x,), {"pad_width": width})
        for mode in ("edge", "reflect", "symmetric", "wrap"):
            yield Sample((x,), {"pad_width": 2, "mode": mode})
    x = make(rng, (2, 3))
    yield Sample((x,), {"pad_width": 1, "constant_values": 2.5}, ("function", "numpy.pad"))
    yield Sample((x,), {"pad_width": 1.5})
    yield Sample((np.float32(2),), {"pad_width": 1})
    yield Sample((2,), {"pad_width": 1})


@family("tril", "triu")
def triangle(rng):
    for x in arrays(rng, [(), (3,), (2, 3), (3, 2), (2, 3, 4), (2, 1, 3), (0, 3), (1, 1)]):
        for k in (0, 1, -1, 5):
            yield Sample((x,), {"k": k})
    yield Sample((np.float32(2),))


# ---- the same by plain indexing --------------------------------------------------------------------------------------


def _all_indices(shape):
    return itertools.product(*map(range, shape))


def _build(shape, dtype, element):
    out = np.empty(shape, dtype)
    for index in _all_indices(shape):
        out[index] = element(index)
    return out


def _joined(parts, axis, dtype):
    shape = list(parts[0].shape)
    shape[axis] = sum(p.shape[axis] for p in parts)
    out = np.empty(shape, dtype)
    start = 0
    for part in parts:
        key = [slice(None)] * out.ndim
        key[axis] = slice(start, start + part.shape[axis])
        out[tuple(key)] = part
        start += part.shape[axis]
    return out


def _reshape(x, shape, order="C"):
    x = np.asarray(x)
    flat = [x[i[::-1] if order == "F" else i] for i in _all_indices(x.shape[::-1] if order == "F" else x.shape)]
    sizes = list(shape) if isinstance(shape, tuple | list) else [shape]
    if any(n < 0 for n in sizes):
        known = int(np.prod([n for n in sizes if n >= 0]))
        sizes = [n if n >= 0 else len(flat) // known for n in sizes]
    out = np.empty(sizes, x.dtype)
    order_of = _all_indices(sizes[::-1] if order == "F" else sizes)
    for value, i in zip(flat, order_of, strict=True):
        out[i[::-1] if order == "F" else i] = value
    return out


def _ravel(x, order="C"):
    if order in "CF":
        return _reshape(_transpose(x) if order == "F" else x, -1)
    x = np.asarray(x)
    if order == "A":
        return _ravel(x, "F" if x.flags.fnc else "C")
    # The order of memory.
    return _reshape(_transpose(x, np.argsort([-abs(s) for s in x.strides], kind="stable")), -1)


def _squeeze(x, axis=None):
    x = np.asarray(x)
    gone = [a for a, n in enumerate(x.shape) if n == 1]
    if axis is not None:
        gone = [a % max(x.ndim, 1) for a in np.atleast_1d(np.array(axis, int))]
    return x.reshape([n for a, n in enumerate(x.shape) if a not in gone])


def _expand_dims(x, axis):
    x = np.asarray(x)
    rank = x.ndim + np.size(axis)
    new = [a % rank for a in np.atleast_1d(axis)]
    return x[tuple(None if a in new else slice(None) for a in range(rank))]


def _swapaxes(x, axis1, axis2):
    order = list(range(x.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return _transpose(x, order)


def _broadcast_to(x, shape):
    x = np.asarray(x)
    shape = tuple(np.atleast_1d(np.array(shape, int)))
    return _build(
        shape, x.dtype, lambda i: x[tuple(j % n for j, n in zip(i[len(shape) - x.ndim :], x.shape, strict=True))]
    )


def _transpose(x, axes=None):
    x = np.asarray(x)
    axes = tuple(range(x.ndim))[::-1] if axes is None else tuple(a % x.ndim for a in np.atleast_1d(axes))
    return _build([x.shape[a] for a in axes], x.dtype, lambda i: x[tuple(i[axes.index(a)] for a in range(x.ndim))])


def _moveaxis(x, source, destination):
    order = dict(zip(np.atleast_1d(destination) % x.ndim, np.atleast_1d(source) % x.ndim, strict=True))
    rest = iter([a for a in range(x.ndim) if a not in order.values()])
    return _transpose(x, [order[i] if i in order else next(rest) for i in range(x.ndim)])


def _flip(x, axis=None):
    x = np.asarray(x)
    axes = range(x.ndim) if axis is None else [a % x.ndim for a in np.atleast_1d(axis)]

    def element(index):
        return x[tuple(n - 1 - j if a in axes else j for a, (j, n) in enumerate(zip(index, x.shape, strict=True)))]

    return _build(x.shape, x.dtype, element)


def _diagonal(x, offset=0, axis1=0, axis2=1):
    x = np.moveaxis(x, (axis1, axis2), (-2, -1))
    at = [(i, i + offset) for i in range(x.shape[-2]) if 0 <= i + offset < x.shape[-1]]
    out = np.empty((*x.shape[:-2], len(at)), x.dtype)
    for k, (i, j) in enumerate(at):
        out[..., k] = x[..., i, j]
    return out


def _diag(x, k=0):
    x = np.asarray(x)
    if x.ndim == 2:
        return _diagonal(x, k)
    n = len(x) + abs(k)
    return _build((n, n), x.dtype, lambda i: x[min(i)] if i[1] - i[0] == k else x.dtype.type(0))


def _common(arrays, dtype=None):
    return dtype or np.result_type(*arrays)


def _concat(arrays, axis=0, dtype=None):
    if axis is None:
        dtype = _common(arrays, dtype)
        arrays, axis = [np.ravel(a) for a in arrays], 0
    parts = [np.asarray(a) for a in arrays]
    return _joined(parts, axis, _common(parts, dtype))


def _stack(arrays, axis=0, dtype=None):
    parts = [np.asarray(a) for a in arrays]
    axis %= parts[0].ndim + 1
    return _joined([p.reshape(*p.shape[:axis], 1, *p.shape[axis:]) for p in parts], axis, _common(parts, dtype))


def _vstack(arrays, dtype=None):
    parts = [np.array(a, ndmin=2) for a in arrays]
    return _joined(parts, 0, _common(parts, dtype))


def _hstack(arrays, dtype=None):
    parts = [np.array(a, ndmin=1) for a in arrays]
    return _joined(parts, 0 if parts[0].ndim == 1 else 1, _common(parts, dtype))


def _dstack(arrays):
    parts = [np.array(a, ndmin=2) for a in arrays]
    parts = [p[:, :, None] if p.ndim == 2 else p for p in parts]
    return _joined(parts, 2, _common(parts))


def _column_stack(arrays):
    parts = [np.asarray(a) for a in arrays]
    return _joined([p.reshape(-1, 1) if p.ndim < 2 else p for p in parts], 1, _common(parts))


def _split(x, sections, axis=0):
    x = np.moveaxis(x, axis, 0)
    n = len(x)
    if isinstance(sections, int):
        extra = n % sections
        lengths = [n // sections + (i < extra) for i in range(sections)]
        edges = [0, *itertools.accumulate(lengths)]
        ranges = list(itertools.pairwise(edges))
    else:
        ranges = [slice(a, b).indices(n)[:2] for a, b in itertools.pairwise([0, *sections, None])]
    return [np.moveaxis(x[list(range(a, b))], 0, axis) for a, b in ranges]


def _unstack(x, axis=0):
    return tuple(np.take(x, i, axis) for i in range(x.shape[axis]))


def _tile(x, reps):
    x = np.asarray(x)
    reps = tuple(np.atleast_1d(np.array(reps, int)))
    rank = max(x.ndim, len(reps))
    x = x.reshape((1,) * (rank - x.ndim) + x.shape)
    reps = (1,) * (rank - len(reps)) + reps
    shape = [n * r for n, r in zip(x.shape, reps, strict=True)]
    return _build(shape, x.dtype, lambda i: x[tuple(j % n for j, n in zip(i, x.shape, strict=True))])


def _repeat(x, repeats, axis=None):
    x = np.asarray(x)
    if axis is None or x.ndim == 0:
        x, axis = x.ravel(), 0
    counts = np.broadcast_to(np.array(repeats, int), x.shape[axis])
    return np.take(x, [i for i, c in enumerate(counts) for _ in range(c)], axis)


def _roll(x, shift, axis=None):
    x = np.asarray(x)
    if axis is None:
        flat = x.ravel()
        return np.array([flat[(i - shift) % flat.size] for i in range(flat.size)], x.dtype).reshape(x.shape)
    for s, a in np.broadcast(shift, axis):
        n = x.shape[a]
        x = np.take(x, [(i - s) % n for i in range(n)], a) if n else x
    return x


def _pad(x, pad_width, mode="constant", constant_values=0):
    x = np.asarray(x)
    pairs = np.broadcast_to(pad_width, (x.ndim, 2))
    shape = [n + a + b for n, (a, b) in zip(x.shape, pairs, strict=True)]

    def at(i, n):
        if mode == "edge":
            return min(max(i, 0), n - 1)
        if mode == "wrap":
            return i % n
        period = 2 * n if mode == "symmetric" else max(2 * n - 2, 1)
        i %= period
        return i if i < n else (period - 1 - i if mode == "symmetric" else period - i)

    def element(index):
        inside = [j - a for j, (a, _) in zip(index, pairs, strict=True)]
        if mode == "constant":
            hit = all(0 <= j < n for j, n in zip(inside, x.shape, strict=True))
            return x[tuple(inside)] if hit else np.array(constant_values).astype(x.dtype)
        return x[tuple(at(j, n) for j, n in zip(inside, x.shape, strict=True))]

    return _build(shape, x.dtype, element)


def _triangle(keep):
    def oracle(x, k=0):
        if x.ndim == 1:
            x = np.array([x] * len(x)).reshape(len(x), len(x))
        zero = x.dtype.type(0)
        return _build(x.shape, x.dtype, lambda i: x[i] if keep(i[-1] - i[-2], k) else zero)

    return oracle


ORACLES.update(
    reshape=_reshape,
    ravel=_ravel,
    flatten=_ravel,
    squeeze=_squeeze,
    expand_dims=_expand_dims,
    transpose=_transpose,
    matrix_transpose=lambda x: _swapaxes(x, -1, -2),
    swapaxes=_swapaxes,
    moveaxis=_moveaxis,
    broadcast_to=_broadcast_to,
    flip=_flip,
    flipud=lambda x: _flip(x, 0),
    fliplr=lambda x: _flip(x, 1),
    diagonal=_diagonal,
    diag=_diag,
    concat=_concat,
    stack=_stack,
    vstack=_vstack,
    hstack=_hstack,
    dstack=_dstack,
    column_stack=_column_stack,
    split=_split,
    array_split=_split,
    unstack=_unstack,
    tile=_tile,
    repeat=_repeat,
    roll=_roll,
    pad=_pad,
    tril=_triangle(lambda distance, k: distance <= k),
    triu=_triangle(lambda distance, k: distance >= k),
)
