"""Calls of the rows that pick, place, sort and search, and the same results one element at a time."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np

from tests.operators.harness import LAYOUTS, ORACLES, Sample, family, make
from tiercel.dtypes import DTYPES

SHAPES = [(), (3,), (2, 3), (2, 3, 4), (0, 3), (3, 1)]


def arrays(rng, shapes=SHAPES, layouts=LAYOUTS):
    """One array for each shape and layout, the dtypes taken in turn, then one for each dtype."""
    kinds = itertools.cycle(DTYPES)
    for shape in shapes:
        for layout in layouts:
            yield make(rng, shape, next(kinds), layout)
    for dtype in DTYPES:
        yield make(rng, (2, 3), dtype, special=True)


def places(rng, shape, size, layout="C", dtype="int64"):
    """Positions into an axis of this size, counted from both ends."""
    low = 0 if np.dtype(dtype).kind == "u" else -size
    found = rng.integers(low, size, shape) if size else np.zeros(shape, int)
    block = make(rng, shape, dtype, layout)
    out = np.array(block)
    out[...] = found
    return np.asfortranarray(out) if layout == "F" else out


# ---- x[key] ----------------------------------------------------------------------------------------------------------


def _entry(rng, choose, size):
    """One entry of a key for an axis of this size."""
    kind = choose.randrange(13)
    if kind == 0:
        return choose.randrange(-size - 1, size + 1) if size else 0
    if kind in (1, 2, 3):
        ends = [None, 0, 1, -1, 2, 5, -9]
        return slice(choose.choice(ends), choose.choice(ends), choose.choice([None, 1, 2, -1, -2]))
    if kind == 4:
        return None
    if kind == 5:
        return Ellipsis
    if kind in (6, 7):
        shape = choose.choice([(2,), (1,), (3, 2), (1, 2), (0,), ()])
        return places(rng, shape, size, choose.choice("CF"), choose.choice(["int64", "int8", "uint32"]))
    if kind == 8:
        return rng.random(size) < 0.5
    if kind == 9:
        return places(rng, (2,), size).tolist()
    if kind == 10:
        return choose.choice([True, False, np.bool_(True)])
    if kind == 11:
        return np.int64(choose.randrange(-size, size)) if size else slice(None)
    return slice(None)


def keys(rng, count):
    """Random arrays and keys into them, among them keys that do not fit."""
    choose = random.Random(int(rng.integers(1 << 30)))
    for _ in range(count):
        shape = tuple(
            choose.choice([1, 2, 3, 4, 4, 0] if choose.random() < 0.3 else [2, 3, 4])
            for _ in range(choose.randrange(5))
        )
        x = np.asarray(make(rng, shape, choose.choice(["float32", "int64", "bfloat16"]), choose.choice(LAYOUTS)))
        sizes = [*x.shape, *[2] * 5]
        key = tuple(_entry(rng, choose, sizes[i]) for i in range(choose.randrange(5)))
        if choose.random() < 0.15 and x.ndim >= 2:
            key = (rng.random(x.shape[:2]) < 0.5, *key[: x.ndim - 2])
        yield x, key[0] if len(key) == 1 and choose.random() < 0.5 else key


def _adds_data_twice(key):
    """Whether two entries' unknown sizes meet: that they fit cannot be shown."""
    entries = key if isinstance(key, tuple) else (key,)
    masks = [e for e in entries if isinstance(e, bool | np.bool_) or (isinstance(e, np.ndarray) and e.dtype == bool)]
    return bool(masks)


@family("index")
def index(rng):
    for x, key in keys(rng, 1500):
        yield Sample((x, key), {}, None, symbolic=not _adds_data_twice(key) and not isinstance(key, list))
    x = make(rng, (2, 3))
    for key in (
        1.0,
        (0, 1.5),
        "a",
        [[]],
        [[0], [1]],
        ((0, 1), 0),
        [0.5],
        (np.float32(1),),
        [True, False],
        (slice(0, 1.5),),
    ):
        yield Sample((x, key), symbolic=False)
    for key in ((), ..., None, 0, slice(None)):
        yield Sample((np.float32(3), key))
    for dtype in DTYPES:
        for key in ((0, 1), 0, (slice(None), [0, 2])):
            yield Sample((make(rng, (2, 3), dtype), key), {}, ("syntax", "x[k]"))
    for x, key in (((1, 2.0, "c"), 1), ([1, 2.0], -1), ({"a": 1}, "a"), ((1, 2), slice(1, None)), ((1,), 5)):
        yield Sample((x, key), {}, ("syntax", "x[k]"), symbolic=False, compare=False)


@family("set_index")
def set_index(rng):
    # Nothing is returned; test_indexing.py compares what is written.
    for sample in _assignments(rng):
        yield replace(sample, compare=False)


def _assignments(rng):
    values = [0, 1.5, np.float32(2), True, 300, -1]
    for n, (x, key) in enumerate(keys(rng, 800)):
        if not x.flags.writeable:
            continue
        mixed = _adds_data_twice(key) or isinstance(key, list)
        if n % 3:
            yield Sample((x, key, values[n % len(values)]), symbolic=not mixed)
            continue
        try:
            selected = x[key]
        except IndexError:
            continue
        shape = np.shape(selected)
        for other in (shape, shape[1:], (1, *shape), (2, *shape)):
            yield Sample((x.copy(), key, make(rng, other, "float64")), symbolic=False)
    x = make(rng, (2, 3))
    yield Sample((np.float32(1), 0, 1))
    yield Sample((x, 0, [1, 2, 3]))
    yield Sample((x, 0, [1, 2]))
    yield Sample((x, 0, x[1]))
    yield Sample((x, 0, 1j))
    for dtype in DTYPES:
        yield Sample((make(rng, (2, 3), dtype), (0, 1), 5), {}, ("syntax", "x[k]=v"))
        yield Sample((make(rng, (2, 3), dtype), (0, 1), 2**70), {}, ("syntax", "x[k]=v"))


@family("index_put")
def index_put(rng):
    x = make(rng, (3, 4, 2))
    rows, columns = np.array([0, 2, 0]), np.array([1, -1, 1])
    for accumulate in (False, True):
        for key in (
            (rows,),
            (rows, columns),
            [rows, columns],
            (slice(None), columns),
            (x[:, 0, 0] > 0,),
            (x > 0,),
            (0,),
            (..., [0]),
        ):
            yield Sample((x, key, 1.0), {"accumulate": accumulate})
            yield Sample((x.T.copy().T, key, 1), {"accumulate": accumulate})
        yield Sample((x, (rows, columns), make(rng, (3, 2))), {"accumulate": accumulate})
        yield Sample((x, (rows, columns), make(rng, (3, 3))), {"accumulate": accumulate})
        yield Sample((x, (np.array([5]),), 1.0), {"accumulate": accumulate})
    for dtype in DTYPES:
        yield Sample((make(rng, (3, 4), dtype), (rows, columns), make(rng, (3,), dtype)))


# ---- along an axis ---------------------------------------------------------------------------------------------------


@family("gather")
def gather(rng):
    for x in arrays(rng):
        for axis in (0, -1, 1, 2):
            size = x.shape[axis] if -x.ndim <= axis < x.ndim else 1
            for shape in ((), (2,), (2, 2), (0,)):
                for layout in ("C", "F"):
                    yield Sample((x, places(rng, shape, size, layout)), {"axis": axis})
    x = make(rng, (2, 3))
    for dtype in DTYPES:
        yield Sample((x, np.ones(2).astype(dtype.numpy)), {"axis": 0})
    for indices in ([0, 1], [], 1, [[0], [1]], np.int8(1)):
        yield Sample((x, indices), {"axis": 0})
    yield Sample((x, np.array([7])), {"axis": 0})


@family("take")
def take(rng):
    yield from gather(rng)
    x = make(rng, (2, 3), "int16", "F")
    yield Sample((x, np.array([[0, 5], [-6, 2]])))
    yield Sample((x, 4), {}, ("method", "take"))
    yield Sample((x, [0, 1]), {"axis": 1}, ("function", "numpy.take"))
    for indices in ([True], 1.0, [1.0], 1j, [1j]):
        yield Sample((x, indices))
    for mode in ("wrap", "clip", "other"):
        yield Sample((x, np.array([7, -9])), {"mode": mode})
    yield Sample((np.float32(2), np.array([0])))
    yield Sample((5, [0, 0]))


@family("embedding")
def embedding(rng):
    for dtype in DTYPES:
        for layout in LAYOUTS:
            table = make(rng, (5, 2), dtype, layout)
            yield Sample((places(rng, (2, 3), 5), table))
    table = make(rng, (5, 2))
    for indices in (
        np.int64(3),
        2,
        [0, 1],
        np.zeros((0, 2), int),
        np.array([1.0]),
        np.array([True]),
        np.array([9]),
        places(rng, (3, 2), 5, "F", "int32"),
    ):
        yield Sample((indices, table))
    yield Sample((np.array([0]), make(rng, (5,))))


@family("take_along_axis")
def take_along_axis(rng):
    for x in arrays(rng, [(3,), (2, 3), (2, 3, 4), (3, 1)]):
        for axis in (0, -1, 1, 3):
            size = x.shape[axis] if axis < x.ndim else 1
            for n, layout in itertools.product((2, 1, 0), ("C", "F", "swapped")):
                shape = list(x.shape)
                if axis < x.ndim:
                    shape[axis] = n
                indices = make(rng, shape, "int64", layout)
                indices = (np.abs(indices) % max(size, 1)) if layout == "C" else _into(indices, size)
                yield Sample((x, indices), {"axis": axis})
    x = make(rng, (2, 3), layout="F")
    yield Sample((x, np.array([1, 5])), {"axis": None})
    yield Sample((x, np.array([[1]])), {"axis": None})
    yield Sample((x, np.array([[1, 0]])), {"axis": 1})
    yield Sample((x[:1], np.zeros((4, 2), np.uint8)), {"axis": 1})
    yield Sample((x, np.zeros((3, 2), int)), {"axis": 1})
    yield Sample((x, np.zeros((2,), int)), {"axis": 1})
    yield Sample((x, np.zeros((2, 1), bool)), {"axis": 1})
    yield Sample((x, np.full((2, 1), 9)), {"axis": 1})
    yield Sample((x, np.zeros((2, 1), int)), {"axis": 1}, ("function", "numpy.take_along_axis"))


def _into(indices, size):
    """The same layout with values that are positions."""
    indices %= max(size, 1)
    return indices


@family("gather_elements")
def gather_elements(rng):
    for x in arrays(rng, [(3,), (2, 3), (2, 3, 4)]):
        for axis in (0, -1):
            yield Sample((x, places(rng, [min(n, 2) for n in x.shape], x.shape[axis])), {"axis": axis})
    x = make(rng, (2, 3))
    for indices in (
        np.zeros((2,), int),
        np.zeros((2, 5), int),
        np.zeros((1, 2)),
        np.array([[9]]),
        np.zeros((0, 2), int),
    ):
        yield Sample((x, indices))
    yield Sample((x, np.zeros((1, 1), int)), {"axis": 2})


@family("gather_nd")
def gather_nd(rng):
    for x in arrays(rng, [(3,), (2, 3), (2, 3, 4)]):
        for depth in range(x.ndim + 2):
            shape = (2, depth)
            indices = (
                np.stack([places(rng, (2,), n) for n in x.shape[:depth]], -1)
                if 0 < depth <= x.ndim
                else np.zeros(shape, int)
            )
            yield Sample((x, indices), symbolic=False)
    x = make(rng, (2, 3))
    yield Sample((x, np.array([1, 2])), symbolic=False)
    yield Sample((x, np.array([[1.0]])), symbolic=False)
    yield Sample((x, np.array([[5]])), symbolic=False)
    yield Sample((x, np.array(1)), symbolic=False)


@family("scatter")
def scatter(rng):
    for reduce in (None, "add", "multiply", "maximum", "minimum"):
        for dtype in DTYPES:
            if not (reduce and dtype.is_complex and reduce in ("maximum", "minimum")):
                x = make(rng, (3, 4), dtype)
                yield Sample((x, places(rng, (2, 4), 3), make(rng, (2, 4), dtype)), {"axis": 0, "reduce": reduce})
    for layout in LAYOUTS:
        x = make(rng, (3, 4), "float32", layout)
        yield Sample((x, places(rng, (3, 2), 4), make(rng, (3, 2))), {"axis": -1})
    x = make(rng, (3, 4))
    indices = np.zeros((2, 2), int)
    for updates in (1, 2.5, make(rng, (2,)), make(rng, (1, 2, 2)), make(rng, (3, 2)), make(rng, (2, 2, 2)), 1j):
        yield Sample((x, indices, updates))
    yield Sample((x, indices, 1.0), {"reduce": "mean"})
    yield Sample((x, np.zeros((2,), int), 1.0))
    yield Sample((x, indices.astype(float), 1.0))
    yield Sample((x, indices + 9, 1.0))


@family("scatter_nd")
def scatter_nd(rng):
    for reduce in (None, "add"):
        for depth in (0, 1, 2):
            x = make(rng, (3, 4), layout="F")
            indices = places(rng, (5, depth), 3)
            yield Sample((x, indices, make(rng, (5, *x.shape[depth:]))), {"reduce": reduce}, symbolic=False)
            yield Sample((x, indices, 2.0), {"reduce": reduce}, symbolic=False)
    yield Sample((make(rng, (3, 4)), np.zeros((2, 3), int), 1.0), symbolic=False)
    yield Sample((make(rng, (3, 4)), np.zeros((2, 1), int), make(rng, (3,))), symbolic=False)


# ---- conditions ------------------------------------------------------------------------------------------------------


@family("compress")
def compress(rng):
    for x in arrays(rng, [(3,), (2, 3), (2, 3, 4), (0, 3)]):
        for axis in (None, 0, -1, 3):
            size = x.size if axis is None else x.shape[axis] if axis < x.ndim else 1
            yield Sample((rng.random(size) < 0.5, x), {"axis": axis})
    x = make(rng, (2, 3))
    yield Sample(([True, False], x), {"axis": 0}, ("function", "numpy.compress"))
    yield Sample(([True, False], x), {"axis": 0}, ("method", "compress"))
    yield Sample(([1.5, 0, 2], x), {"axis": 1})
    yield Sample((np.array([True] * 5), x), {"axis": 1})
    yield Sample((np.array([[True]]), x), {"axis": 1})
    yield Sample((np.array([True]), np.float32(5)))


@family("nonzero", "argwhere", "flatnonzero")
def nonzero(rng):
    for x in arrays(rng):
        yield Sample((x,))
    for dtype in DTYPES:
        x = make(rng, (3, 4), dtype)
        x[:, 1] = 0
        yield Sample((x,))
    yield Sample(([0, 3, 0],))
    yield Sample((5,))


@family("masked_select")
def masked_select(rng):
    for x in arrays(rng):
        yield Sample((x, rng.random(x.shape) < 0.5))
        yield Sample((x, rng.random(x.shape[-1:]) < 0.5))
    x = make(rng, (2, 3))
    yield Sample((x, True))
    yield Sample((x, np.ones((4, 2, 3), bool)))
    yield Sample((x, np.ones((2, 3))))
    yield Sample((x, np.ones(4, bool)))


@family("masked_fill")
def masked_fill(rng):
    for x in arrays(rng):
        for value in (0, 1, True):
            yield Sample((x, rng.random(x.shape) < 0.5, value))
    x = make(rng, (2, 3))
    yield Sample((x, np.ones((4, 1, 3), bool), 1.5))
    yield Sample((x, np.ones((2, 3), bool), make(rng, (3,), "float64")))
    yield Sample((x, np.ones((2, 3), bool), make(rng, (4,), "float64")))
    yield Sample((x, np.ones((2, 3)), 1.5))


# ---- order -----------------------------------------------------------------------------------------------------------


def _sortable(rng, shapes=SHAPES):
    for x in arrays(rng, shapes):
        # ml_dtypes' bfloat16 does not order NaN.
        if x.dtype.kind != "V" or not np.isnan(x.astype(np.float32)).any():
            yield x


@family("sort", "argsort")
def sort(rng):
    for x in _sortable(rng):
        for axis in (-1, 0, 1, None, 3):
            yield Sample((x,), {"axis": axis, "kind": "stable"})
    yield Sample(([3, 1, 2],))
    yield Sample((5,))
    yield Sample((make(rng, (5,)),))


@family("topk")
def topk(rng):
    for x in _sortable(rng):
        for k, axis, largest in itertools.product((0, 1, 2, 9), (-1, 0, 2), (True, False)):
            yield Sample((x,), {"k": k, "axis": axis, "largest": largest})
    yield Sample((make(rng, (3,)),), {"k": -1})


@family("unique")
def unique(rng):
    for x in _sortable(rng):
        for flags in itertools.product((False, True), repeat=3):
            names = ("return_index", "return_inverse", "return_counts")
            yield Sample((x,), dict(zip(names, flags, strict=True)))
    x = make(rng, (2, 3), "int8")
    yield Sample((x,), {"axis": 0}, static=False, symbolic=False, compare=False)
    yield Sample((x,), {"return_counts": True}, ("function", "numpy.unique"))
    yield Sample(([1, 1, 2],))
    yield Sample((5,))


@family("searchsorted")
def searchsorted(rng):
    for dtype in DTYPES:
        x = np.sort(make(rng, (5,), dtype))
        for v in (make(rng, (), dtype), make(rng, (3,), dtype), make(rng, (2, 3), dtype, "F")):
            for side in ("left", "right"):
                yield Sample((x, v, None), {"side": side})
    x = np.sort(make(rng, (5,)))
    yield Sample((x, 1, None), {}, ("method", "searchsorted"))
    yield Sample((x, [1, 2], None), {}, ("function", "numpy.searchsorted"))
    yield Sample((x[::-1], 1.5, np.arange(5)[::-1]))
    yield Sample((x, 1, np.array([0])))
    yield Sample((x, 1, np.arange(5.0)))
    yield Sample((x, 1, None), {"side": "middle"})
    yield Sample((make(rng, (2, 3)), 1, None))
    yield Sample((make(rng, ()), 1, None))
    yield Sample((x[:0], 1, None))


@family("one_hot")
def one_hot(rng):
    for shape in ((), (3,), (2, 3), (0,)):
        for dtype in ("int64", "uint8", "int32"):
            for axis in (-1, 0, 1, 5):
                indices = np.asarray(rng.integers(0, 5, shape)).astype(dtype)
                yield Sample((indices,), {"depth": 4, "axis": axis})
    for dtype in DTYPES:
        yield Sample((np.array([1, 3]),), {"depth": 3, "on_value": 1, "off_value": 0, "dtype": dtype})
    yield Sample((np.array([1.0]),), {"depth": 3})
    yield Sample((np.array([1]),), {"depth": -1})
    yield Sample((np.array([1]),), {"depth": 0})
    yield Sample((2,), {"depth": 3})


# ---- one element at a time -------------------------------------------------------------------------------------------


def _build(shape, dtype, element):
    out = np.empty(shape, dtype)
    for at in np.ndindex(*shape):
        out[at] = element(at)
    return out


def _numbers(key, shape):
    """A key as one array of positions for each axis of x, and where they stand: by NumPy's documented rules."""
    entries = list(key) if isinstance(key, tuple) else [key]
    plain = []
    for e in entries:
        if isinstance(e, list):
            e = np.array(e, dtype=int if not e else None)
        elif isinstance(e, tuple):
            e = np.array(e)
        if isinstance(e, bool | np.bool_) or (isinstance(e, np.ndarray) and e.dtype == bool):
            plain.append(("mask", np.asarray(e)))
        elif e is None:
            plain.append(("new", None))
        elif e is Ellipsis:
            plain.append(("rest", None))
        elif isinstance(e, slice):
            plain.append(("slice", e))
        else:
            plain.append(("index", np.asarray(e)))
    used = sum(e.ndim if k == "mask" else k in ("index", "slice") for k, e in plain)
    if not any(k == "rest" for k, _ in plain):
        plain.append(("rest", None))
    return plain, len(shape) - used


def _index(x, key):
    x = np.asarray(x)
    plain, missing = _numbers(key, x.shape)
    advanced = any(k == "mask" or (k == "index" and e.ndim) for k, e in plain)
    _basic, joint, order = [], [], []
    axis = 0
    for kind, e in plain:
        if kind == "rest":
            for _ in range(missing):
                order.append(("basic", axis, list(range(x.shape[axis]))))
                axis += 1
            if not missing:
                order.append(("gap", None, None))
        elif kind == "new":
            order.append(("new", None, None))
        elif kind == "slice":
            order.append(("basic", axis, list(range(x.shape[axis]))[e]))
            axis += 1
        elif kind == "mask":
            if e.ndim == 0:
                order.append(("joint", None, np.zeros(int(e), int)))
            else:
                for offset, found in enumerate(
                    zip(*np.argwhere(e).tolist(), strict=True) if e.any() else [()] * e.ndim
                ):
                    order.append(("joint", axis + offset, np.array(found, int)))
                axis += e.ndim
        else:
            order.append(("joint" if advanced else "fixed", axis, e))
            axis += 1
    joint = [(n, a, e) for n, (k, a, e) in enumerate(order) if k == "joint"]
    places = [n for n, _, _ in joint]
    together = places and all(order[n][0] == "joint" for n in range(places[0], places[-1] + 1))
    common = np.broadcast_shapes(*(e.shape for _, _, e in joint)) if joint else ()
    positions = {a: np.broadcast_to(e, common) for _, a, e in joint if a is not None}
    before = [o for n, o in enumerate(order) if o[0] in ("basic", "new") and together and n < places[0]]
    after = [o for n, o in enumerate(order) if o[0] in ("basic", "new") and not (together and n < places[0])]
    sizes = [1 if k == "new" else len(e) for k, _, e in before], [1 if k == "new" else len(e) for k, _, e in after]

    def element(at):
        source = [0] * x.ndim
        for o, i in zip(before, at[: len(before)], strict=True):
            if o[0] == "basic":
                source[o[1]] = o[2][i]
        middle = at[len(before) : len(before) + len(common)]
        for a, e in positions.items():
            source[a] = e[middle]
        for o, i in zip(after, at[len(before) + len(common) :], strict=True):
            if o[0] == "basic":
                source[o[1]] = o[2][i]
        for k, a, e in order:
            if k == "fixed":
                source[a] = int(e)
        return x[tuple(source)]

    return _build((*sizes[0], *common, *sizes[1]), x.dtype, element)


def _index_put(x, indices, values, accumulate=False):
    out = x.copy()
    numbers = np.arange(x.size).reshape(x.shape)
    picked = np.asarray(_index(numbers, tuple(indices)))
    flat = out.reshape(-1)
    for number, value in zip(picked.ravel(), np.broadcast_to(values, picked.shape).ravel(), strict=True):
        flat[number] = flat[number] + np.asarray(value).astype(x.dtype) if accumulate else value
    return flat.reshape(x.shape)


def _take(x, indices, axis=None, mode="raise"):
    x = np.asarray(x)
    indices = np.array(indices, dtype=int)
    if axis is None or not x.ndim:
        x, axis = x.ravel(), 0
    axis %= x.ndim
    n = x.shape[axis]
    if mode == "wrap":
        indices = indices % n
    if mode == "clip":
        indices = np.clip(indices, 0, n - 1)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    last = axis + indices.ndim
    return _build(shape, x.dtype, lambda at: x[(*at[:axis], indices[at[axis:last]], *at[last:])])


def _along(x, indices, axis=-1):
    if axis is None:
        return _take(x, indices)
    axis %= x.ndim
    shape = list(np.broadcast_shapes(indices.shape, [1 if a == axis else n for a, n in enumerate(x.shape)]))

    def element(at):
        i = indices[tuple(j % n for j, n in zip(at, indices.shape, strict=True))]
        return x[tuple(i if a == axis else j % n for a, (j, n) in enumerate(zip(at, x.shape, strict=True)))]

    return _build(shape, x.dtype, element)


def _gather_elements(x, indices, axis=0):
    axis %= x.ndim
    return _build(
        indices.shape, x.dtype, lambda at: x[tuple(indices[at] if a == axis else j for a, j in enumerate(at))]
    )


def _gather_nd(x, indices):
    lead, depth = indices.shape[:-1], indices.shape[-1]
    return _build((*lead, *x.shape[depth:]), x.dtype, lambda at: x[(*indices[at[: len(lead)]], *at[len(lead) :])])


def _combine(reduce, dtype):
    as_dtype = np.dtype(dtype).type
    return {
        None: lambda old, new: new,
        "add": lambda old, new: old + as_dtype(new),
        "multiply": lambda old, new: old * as_dtype(new),
        "maximum": lambda old, new: np.maximum(old, as_dtype(new)),
        "minimum": lambda old, new: np.minimum(old, as_dtype(new)),
    }[reduce]


def _scatter(x, indices, updates, axis=0, reduce=None):
    out, axis = x.copy(), axis % x.ndim
    updates = (
        np.broadcast_to(updates, indices.shape) if np.ndim(updates) <= x.ndim else np.reshape(updates, indices.shape)
    )
    for at in np.ndindex(*indices.shape):
        to = tuple(indices[at] if a == axis else j for a, j in enumerate(at))
        out[to] = _combine(reduce, x.dtype)(out[to], updates[at])
    return out


def _scatter_nd(x, indices, updates, reduce=None):
    out = x.copy()
    lead, depth = indices.shape[:-1], indices.shape[-1]
    updates = np.broadcast_to(updates, (*lead, *x.shape[depth:]))
    for at in np.ndindex(*lead):
        for rest in np.ndindex(*x.shape[depth:]):
            to = (*indices[at], *rest)
            out[to] = _combine(reduce, x.dtype)(out[to], updates[(*at, *rest)])
    return out


def _compress(condition, x, axis=None):
    return _take(x, [i for i, c in enumerate(condition) if c], axis)


def _coordinates(x):
    x = np.asarray(x)
    return [at for at in np.ndindex(*x.shape) if bool(x[at])]


def _nonzero(x):
    found = _coordinates(x)
    return tuple(np.array([at[a] for at in found], int) for a in range(np.ndim(x)))


def _masked_select(x, mask):
    x, mask = np.broadcast_arrays(x, mask)
    return np.array([x[at] for at in np.ndindex(*x.shape) if mask[at]], x.dtype)


def _masked_fill(x, mask, value):
    shape = np.broadcast_shapes(x.shape, np.shape(mask))
    x, mask, value = (np.broadcast_to(v, shape) for v in (x, mask, np.asarray(value).astype(x.dtype)))
    return _build(shape, x.dtype, lambda at: value[at] if mask[at] else x[at])


def _rank_of(v):
    """A sorting key with NumPy's order: NaN last, complex by real part first."""
    if isinstance(v, complex):
        return (_rank_of(v.real), _rank_of(v.imag)) if not np.isnan(v) else ((2, np.isnan(v.real), 0.0), (0, 0.0))
    return (1, 0.0) if v != v else (0, v)


def _python(v):
    return float(v) if v.dtype.kind == "V" else v.item()


def _argsort(x, axis=-1, kind=None, stable=None):
    x = np.asarray(x)
    if axis is None or not x.ndim:
        x, axis = x.ravel(), 0

    def order(v):
        return np.array(sorted(range(len(v)), key=lambda i: _rank_of(_python(v[i]))), int)

    if not x.size:
        return np.empty(x.shape, int)
    lines = np.moveaxis(x, axis, -1)
    out = np.empty(lines.shape, int)
    for at in np.ndindex(*lines.shape[:-1]):
        out[at] = order(lines[at])
    return np.moveaxis(out, -1, axis)


def _sort(x, axis=-1, kind=None, stable=None):
    x = np.asarray(x)
    if axis is None:
        x, axis = x.ravel(), 0
    return np.take_along_axis(x, _argsort(x, axis), axis)


def _topk(x, k, axis=-1, largest=True, sorted=True):
    lines = np.moveaxis(x, axis, -1)
    out = np.empty((*lines.shape[:-1], k), int)
    for at in np.ndindex(*lines.shape[:-1]):
        ascending = _argsort(lines[at]) if lines.shape[-1] else np.empty(0, int)
        if largest:
            groups = itertools.groupby(ascending, key=lambda i: _rank_of(_python(lines[at][i])))
            ascending = np.array([i for g in reversed([list(g) for _, g in groups]) for i in g], int)
        out[at] = ascending[:k]
    positions = np.moveaxis(out, -1, axis)
    return np.take_along_axis(x, positions, axis), positions


def _unique(x, return_index=False, return_inverse=False, return_counts=False, axis=None, equal_nan=True):
    x = np.asarray(x)
    first, numbers = {}, []
    for i, v in enumerate(x.ravel()):
        key = _rank_of(_python(v))
        first.setdefault(key, i)
        numbers.append(key)
    order = sorted(first)
    out = [np.array([x.ravel()[first[key]] for key in order], x.dtype)]
    if return_index:
        out.append(np.array([first[key] for key in order], int))
    if return_inverse:
        out.append(np.array([order.index(key) for key in numbers], int).reshape(x.shape))
    if return_counts:
        out.append(np.array([numbers.count(key) for key in order], int))
    return tuple(out) if len(out) > 1 else out[0]


def _searchsorted(x, v, sorter=None, side="left"):
    x = np.asarray(x)
    ranks = [_rank_of(_python(e)) for e in (x if sorter is None else x[np.asarray(sorter)])]
    v = np.asarray(v)

    def element(at):
        r = _rank_of(_python(v[at]))
        return sum(q < r for q in ranks) if side == "left" else sum(q <= r for q in ranks)

    return _build(v.shape, int, element)


def _one_hot(indices, depth, on_value=1, off_value=0, axis=-1, dtype=np.float32):
    indices = np.asarray(indices)
    axis %= indices.ndim + 1
    shape = (*indices.shape[:axis], depth, *indices.shape[axis:])
    return _build(
        shape, dtype, lambda at: on_value if indices[(*at[:axis], *at[axis + 1 :])] == at[axis] else off_value
    )


ORACLES.update(
    index=_index,
    index_put=_index_put,
    take=_take,
    gather=lambda x, indices, axis=0: _take(x, indices, axis),
    embedding=lambda indices, table: _take(table, indices, 0),
    take_along_axis=_along,
    gather_elements=_gather_elements,
    gather_nd=_gather_nd,
    scatter=_scatter,
    scatter_nd=_scatter_nd,
    compress=_compress,
    nonzero=_nonzero,
    argwhere=lambda x: np.array(_coordinates(x), int).reshape(len(_coordinates(x)), np.ndim(x)),
    flatnonzero=lambda x: _nonzero(np.ravel(x))[0],
    masked_select=_masked_select,
    masked_fill=_masked_fill,
    sort=_sort,
    argsort=_argsort,
    topk=_topk,
    unique=_unique,
    searchsorted=_searchsorted,
    one_hot=_one_hot,
)
