"""Calls of the contraction rows, and the same sums of products in wider precision, written out."""

from __future__ import annotations

import itertools

import numpy as np

from tests.operators.harness import LAYOUTS, ORACLES, Sample, Want, family, make, widen
from tiercel.dtypes import DTYPES

MATMULS = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3, 4)),
    ((2, 3), (4, 3)),
    ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((3,), (5, 3, 4)),
    ((5, 1, 2, 3), (2, 3, 4)),
    ((2, 3, 2, 3), (2, 3, 3, 1)),
    ((2, 3, 2, 3), (3, 3, 1)),
    ((2, 2, 3), (3, 3, 1)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)),
    ((0, 2, 3), (3, 2)),
    ((), (3,)),
    ((3,), ()),
    ((1, 3), (3, 1)),
]


def pairs(rng, shapes, layouts=LAYOUTS):
    """Pairs of these shapes in all pairs of layouts, then one pair in all pairs of dtypes."""
    for one, two in shapes:
        for a, b in itertools.product(layouts, repeat=2):
            yield make(rng, one, "float32", a), make(rng, two, "float32", b)
    one, two = shapes[3]
    for a, b in itertools.product(DTYPES, repeat=2):
        yield make(rng, one, a), make(rng, two, b)


@family("matmul")
def matmul(rng):
    for x, y in pairs(rng, MATMULS):
        yield Sample((x, y))
    x, y = make(rng, (2, 3), "float64", special=True), make(rng, (3, 2), "float64", special=True)
    yield Sample((x, y), {}, ("syntax", "@"))
    yield Sample((x, y), {}, ("function", "numpy.matmul"))
    yield Sample((x, [1.0, 2.0, 3.0]))
    yield Sample((x, 2))
    yield Sample((np.float32(2), x))
    for shapes in (
        ((2, 3), (3, 3)),
        ((2, 3), (3, 1)),
        ((2, 2, 3), (3, 3)),
        ((2, 3), (3, 2)),
        ((2, 3), (3,)),
        ((3, 3), (2, 3, 3)),
    ):
        yield Sample(tuple(make(rng, s) for s in shapes), {}, ("inplace", "@="), symbolic=False)
    for a, b in (("float32", "float64"), ("int32", "float32"), ("bfloat16", "bfloat16"), ("uint8", "int64")):
        yield Sample((make(rng, (2, 2), a), make(rng, (2, 2), b)), {}, ("inplace", "@="), symbolic=False)


@family("dot")
def dot(rng):
    for x, y in pairs(
        rng, [*MATMULS[:6], ((2, 3), (5, 3, 4)), ((5, 2, 3), (2, 3, 4)), ((), (2, 3)), ((2, 3), ()), ((), ())]
    ):
        yield Sample((x, y), **_settled(x, y))
    x = make(rng, (2, 3))
    yield Sample((x, [1, 2, 3]))
    yield Sample((x, 2.0))
    yield Sample((2, 3))
    yield Sample((np.float32(2), x))
    yield Sample((x, x.T), {}, ("method", "dot"))


def _settled(x, y):
    """No claims where NumPy has no common dtype and computes with objects."""
    try:
        np.result_type(x, y)
    except TypeError:
        return {"static": False, "symbolic": False, "compare": False}
    return {}


@family("inner")
def inner(rng):
    shapes = [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (4, 3)),
        ((2, 3), (4, 3)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (4, 3)),
        ((), (3,)),
    ]
    for x, y in pairs(rng, shapes):
        yield Sample((x, y), **_settled(x, y))
    yield Sample((make(rng, (2, 3)), 2.0))


@family("vdot")
def vdot(rng):
    shapes = [((3,), (3,)), ((2, 3), (2, 3)), ((2, 3), (6,)), ((2, 3), (3, 2)), ((2,), (3,)), ((), ()), ((0,), (0,))]
    for x, y in pairs(rng, shapes):
        if not _settled(x, y):
            yield Sample((x, y))


@family("outer")
def outer(rng):
    shapes = [((3,), (2,)), ((2, 3), (2,)), ((), (3,)), ((2, 3), (3, 4)), ((0,), (3,)), ((1,), (1,))]
    for x, y in pairs(rng, shapes):
        yield Sample((x, y))
    yield Sample((make(rng, (2,)), 2.0))
    yield Sample(([1, 2], 3))


@family("tensordot")
def tensordot(rng):
    shapes = [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((2, 3), (2, 3)),
        ((2, 3, 4), (3, 4, 5)),
        ((3, 2, 3), (3, 2, 3)),
        ((), (2,)),
    ]
    for x, y in pairs(rng, shapes, ("C", "F", "negative")):
        for axes in (0, 1, 2, ((0,), (0,)), (0, 0), ((0, 1), (1, 0)), ((-1,), (-1,)), ((0, 1), (0,)), ((1, 2), (0, 1))):
            yield Sample((x, y), {"axes": axes}, **_settled(x, y))
    yield Sample((make(rng, (2, 3)), 2.0), {"axes": 0})


EINSUMS = [
    ("ij->ji", [(2, 3)]),
    ("ij", [(2, 3)]),
    ("ji", [(2, 3)]),
    ("ii->i", [(3, 3)]),
    ("ii", [(3, 3)]),
    ("iij->ij", [(3, 3, 2)]),
    ("iij->ji", [(3, 3, 2)]),
    ("ij->", [(2, 3)]),
    ("ij->j", [(2, 3)]),
    ("ijk->kj", [(2, 3, 4)]),
    ("...j->...", [(2, 3, 4)]),
    ("...ij->...ji", [(2, 3, 4)]),
    ("i...->...i", [(2, 3, 4)]),
    ("...", [(2, 3)]),
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("ij,jk->ki", [(2, 3), (3, 4)]),
    ("ij,ij->", [(2, 3), (2, 3)]),
    ("ij,ij->ij", [(2, 3), (2, 3)]),
    ("i,j->ij", [(2,), (3,)]),
    ("i,i", [(3,), (3,)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)]),
    ("...ij,...jk->...ik", [(5, 1, 3, 4), (2, 4, 5)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 2, 5)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
    ("ij,->ij", [(2, 3), ()]),
    (",", [(), ()]),
    ("ij,jk->ik", [(2, 1), (3, 4)]),
    ("ij,jk->ik", [(2, 2), (3, 4)]),
    ("ij,jk->ik", [(0, 3), (3, 0)]),
    ("ij,jk->ik", [(2, 0), (0, 2)]),
    ("ij->ijk", [(2, 3)]),
    ("ij->ii", [(2, 3)]),
    ("ijk->ij", [(2, 3)]),
    ("i->i", [(2, 3)]),
    ("i1->i", [(2, 3)]),
    ("i,j->ij", [(2,)]),
    ("...i->i", [(2, 3)]),
    (" i j , j k -> i k ", [(2, 3), (3, 4)]),
]


@family("einsum")
def einsum(rng):
    for text, shapes in EINSUMS:
        repeated = any(len(set(t)) < len(t.replace(".", "")) for t in text.replace(" ", "").split("->")[0].split(","))
        for layouts in itertools.product(LAYOUTS[:4] if len(shapes) > 1 else LAYOUTS, repeat=min(len(shapes), 2)):
            turn = itertools.cycle(layouts)
            operands = [make(rng, s, "float32", next(turn)) for s in shapes]
            if len(operands) == 1:
                yield Sample((operands[0],), {"subscripts": text}, symbolic=not repeated, layout=not repeated)
            yield Sample((operands,), {"subscripts": text}, symbolic=not repeated, layout=not repeated)
    for a, b in itertools.product(DTYPES, repeat=2):
        yield Sample(([make(rng, (2, 3), a), make(rng, (3, 2), b)],), {"subscripts": "ij,jk->ik"})
    x = make(rng, (2, 3), "float64", special=True)
    yield Sample(((x, x.T),), {"subscripts": "ij,jk->ik"})
    yield Sample(([x, 2.0],), {"subscripts": "ij,->ij"})
    yield Sample(([x, [1, 2, 3]],), {"subscripts": "ij,j"})
    yield Sample(([1, 2, 3],), {"subscripts": "i->"})
    yield Sample((np.float32(3),), {"subscripts": "->"})


@family("linear")
def linear(rng):
    shapes = [
        ((3,), (4, 3)),
        ((2, 3), (4, 3)),
        ((2, 2, 3), (4, 3)),
        ((5, 2, 2, 3), (1, 3)),
        ((0, 3), (4, 3)),
        ((2, 3), (3, 4)),
    ]
    for x, w in pairs(rng, shapes):
        yield Sample((x, w, None))
        yield Sample((x, w, make(rng, w.shape[:1], w.dtype)))
    yield Sample((make(rng, (2, 3)), make(rng, (4, 3)), make(rng, (3,))))
    yield Sample((make(rng, (2, 3)), make(rng, (4, 3)), make(rng, (4, 1))))
    yield Sample((make(rng, ()), make(rng, (4, 3)), None))
    yield Sample((make(rng, (3,)), make(rng, (3,)), None))
    yield Sample((make(rng, (2, 0)), make(rng, (4, 0)), make(rng, (4,))))


@family("trace")
def trace(rng):
    for shape in ((3,), (2, 3), (3, 3), (2, 3, 4), (2, 2, 3, 3), (0, 3)):
        for layout in LAYOUTS:
            x = make(rng, shape, "float32", layout)
            for offset, axes in itertools.product((0, 1, -1, 5), ((0, 1), (-1, 0), (1, 1))):
                yield Sample((x,), {"offset": offset, "axis1": axes[0], "axis2": axes[1]})
    for dtype in DTYPES:
        yield Sample((make(rng, (3, 3), dtype),))
        yield Sample((make(rng, (3, 3), dtype),), {"dtype": np.float64}, ("method", "trace"))


# ---- written out -----------------------------------------------------------------------------------------------------


def _sum_of_products(dtype, *factors):
    """The sum over the last axis of factors that broadcast: modulo 2**bits, or within the bound of a reordered sum."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        terms = factors[0].astype(bool)
        for f in factors[1:]:
            terms = terms & f.astype(bool)
        return Want(terms.any(-1))
    if dtype.kind in "iu":
        terms = factors[0].astype(dtype)
        for f in factors[1:]:
            terms = terms * f.astype(dtype)
        return Want(terms.sum(-1, dtype=dtype))
    terms = np.asarray(1)
    for f in factors:
        terms = terms * widen(np.asarray(f).astype(np.clongdouble if dtype.kind == "c" else np.longdouble))
    return Want(terms.sum(-1), np.abs(terms).sum(-1), 4.0 + terms.shape[-1])


def _matmul(x, y):
    x, y = np.asarray(x), np.asarray(y)
    dtype = np.matmul(np.zeros((1, 1), x.dtype), np.zeros((1, 1), y.dtype)).dtype
    a = x[None] if x.ndim == 1 else x
    b = y[:, None] if y.ndim == 1 else y
    want = _sum_of_products(dtype, a[..., :, None, :], np.swapaxes(b, -1, -2)[..., None, :, :])
    gone = tuple(axis for axis, v in ((-2, x), (-1, y)) if v.ndim == 1)
    return Want(np.squeeze(want.value, gone), np.squeeze(want.scale, gone) if np.ndim(want.scale) else 1.0, want.ulp)


def _dot_dtype(x, y):
    return np.result_type(np.asarray(x), np.asarray(y))


def _dot(x, y):
    x, y = np.asarray(x), np.asarray(y)
    dtype = _dot_dtype(x, y)
    if not x.ndim or not y.ndim:
        return _sum_of_products(dtype, x[..., None], y[..., None])
    if y.ndim > 1:
        y = np.moveaxis(y, -2, -1)
    return _inner(x, y)


def _inner(x, y):
    x, y = np.asarray(x), np.asarray(y)
    dtype = _dot_dtype(x, y)
    if not x.ndim or not y.ndim:
        return _sum_of_products(dtype, x[..., None], y[..., None])
    return _sum_of_products(dtype, x.reshape(*x.shape[:-1], *(1,) * (y.ndim - 1), x.shape[-1]), y)


def _vdot(x, y):
    return _sum_of_products(_dot_dtype(x, y), np.conj(np.ravel(x)) if x.dtype.kind == "c" else np.ravel(x), np.ravel(y))


def _outer(x, y):
    x, y = np.ravel(x), np.ravel(y)
    return x[:, None] * y


def _tensordot(x, y, axes=2):
    x, y = np.asarray(x), np.asarray(y)
    if isinstance(axes, int):
        axes = (tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes)))
    ones, twos = ([a % v.ndim for a in np.atleast_1d(g)] for g, v in zip(axes, (x, y), strict=True))
    count = int(np.prod([x.shape[a] for a in ones]))
    left = np.moveaxis(x, ones, range(x.ndim - len(ones), x.ndim))
    right = np.moveaxis(y, twos, range(y.ndim - len(twos), y.ndim))
    return _inner(
        left.reshape(*left.shape[: x.ndim - len(ones)], count),
        right.reshape(*right.shape[: y.ndim - len(twos)], count),
    )


def _einsum(operands, subscripts):
    text = subscripts.replace(" ", "")
    terms = text.split("->")[0].split(",")
    operands = list(operands) if isinstance(operands, list | tuple) and len(operands) == len(terms) else [operands]
    operands = [np.asarray(x) for x in operands]
    named = []
    hidden = "".join(chr(ord("A") + 25 - i) for i in range(5))
    for term, x in zip(terms, operands, strict=True):
        extra = x.ndim - len(term.replace("...", ""))
        named.append(term.replace("...", hidden[len(hidden) - extra :] if extra else ""))
    most = max(len(n) - len(t.replace("...", "")) for n, t in zip(named, terms, strict=True))
    dots = hidden[len(hidden) - most :] if most else ""
    every = "".join(named)
    if "->" in text:
        output = text.split("->")[1].replace("...", dots)
    else:
        output = dots + "".join(sorted(c for c in set(every) - set(dots) if every.count(c) == 1))
    sizes = {}
    for n, x in zip(named, operands, strict=True):
        for label, size in zip(n, x.shape, strict=True):
            sizes[label] = max(sizes.get(label, 1), size) if size and sizes.get(label, 1) else 0
    summed = [c for c in dict.fromkeys(every) if c not in output]
    axes = [*output, *summed]
    grids = np.indices([sizes[c] for c in axes]) if axes else None
    factors = []
    for n, x in zip(named, operands, strict=True):
        key = tuple(grids[axes.index(c)] % max(x.shape[i], 1) for i, c in enumerate(n))
        factors.append(x[key] if key else np.broadcast_to(x, [sizes[c] for c in axes]))
    shape = [sizes[c] for c in output]
    count = int(np.prod([sizes[c] for c in summed]))
    dtype = np.result_type(*operands)
    return _sum_of_products(dtype, *(f.reshape(*shape, count) for f in factors))


def _linear(x, w, b=None):
    kind = (np.zeros(1, x.dtype) * np.zeros(1, w.dtype)).dtype
    if b is None:
        return _sum_of_products(kind, x[..., None, :], w)
    # The bias is one more product: with 1.
    kind = (np.zeros(1, kind) + np.zeros(1, b.dtype)).dtype
    lead = (*x.shape[:-1], w.shape[0])

    def extended(a, last):
        parts = (np.broadcast_to(a, (*lead, a.shape[-1])), np.broadcast_to(last, (*lead, 1)))
        return np.concatenate([p.astype(kind) for p in parts], -1)

    return _sum_of_products(kind, extended(x[..., None, :], np.ones(1, kind)), extended(w, b[:, None]))


def _trace(x, offset=0, axis1=0, axis2=1, dtype=None):
    x = np.moveaxis(x, (axis1, axis2), (-2, -1))
    at = [(i, i + offset) for i in range(x.shape[-2]) if 0 <= i + offset < x.shape[-1]]
    terms = np.stack([x[..., i, j] for i, j in at], -1) if at else np.zeros((*x.shape[:-2], 0), x.dtype)
    kind = np.dtype(dtype) if dtype else x.dtype
    if dtype is None and kind.kind in "biu" and kind.itemsize < 8:
        kind = np.dtype(np.uint64 if kind.kind == "u" else np.int64)
    return _sum_of_products(kind, terms)


ORACLES.update(
    matmul=_matmul,
    dot=_dot,
    inner=_inner,
    vdot=_vdot,
    outer=_outer,
    tensordot=_tensordot,
    einsum=_einsum,
    linear=_linear,
    trace=_trace,
)
