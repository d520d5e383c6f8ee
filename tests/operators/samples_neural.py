"""Calls of the convolution, pooling and interpolation rows; their values are compared with the loops of
`test_window_references.py`."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np

from tests.operators.harness import LAYOUTS, ORACLES, Sample, Want, family, make
from tests.operators.test_window_references import conv_loops, linear_loop, pool_loops
from tiercel.dtypes import DTYPES

WINDOWS = [
    {},
    {"stride": 2},
    {"padding": 1},
    {"padding": "same"},
    {"padding": "valid", "stride": 3},
    {"dilation": 2},
    {"stride": 2, "padding": ((2, 1),), "dilation": 2},
    {"stride": 2, "padding": "same"},
]


def _spread(attributes, rank):
    """The same attributes for two spatial dimensions."""
    if rank == 2 and isinstance(attributes.get("padding"), tuple):
        return attributes | {"padding": attributes["padding"] * 2}
    return attributes


def _conv_samples(rng, rank):
    x_shape, w_shape = (1, 4, 6, 5)[: rank + 2], (4, 4, 3, 2)[: rank + 2]
    for attributes in WINDOWS:
        for groups in (1, 2):
            w = make(rng, (4, 4 // groups, *w_shape[2:]))
            attributes = _spread(attributes, rank) | {"groups": groups}
            # The symbols of a kernel's size are no sizes: its windows cannot be counted.
            b = make(rng, (4,)) if groups == 1 else None
            yield Sample((make(rng, x_shape), w, b), attributes, symbolic=False)
    for one, two in itertools.product(LAYOUTS, repeat=2):
        compare = "C" in (one, two)
        operands = make(rng, x_shape, "float32", one), make(rng, w_shape, "float32", two), None
        yield Sample(operands, symbolic=False, compare=compare)
    for dtype in DTYPES:
        yield Sample((make(rng, x_shape, dtype), make(rng, w_shape, dtype), make(rng, (4,), dtype)), symbolic=False)
        yield Sample((make(rng, x_shape, dtype), make(rng, w_shape), None), symbolic=False, compare=False)
    for x, w in (
        ((0, *x_shape[1:]), w_shape),
        ((2, 0, *x_shape[2:]), (4, 0, *w_shape[2:])),
        (x_shape, (0, *w_shape[1:])),
    ):
        yield Sample((make(rng, x), make(rng, w), None), symbolic=False)
    for x, w, b in (
        (x_shape[1:], w_shape, None),
        (x_shape, (4, 3, *w_shape[2:]), None),
        (x_shape, w_shape, (5,)),
        (x_shape, (4, 4, *(9,) * rank), None),
        (x_shape, (4, 4, *(0,) * rank), None),
    ):
        yield Sample((make(rng, x), make(rng, w), None if b is None else make(rng, b)), symbolic=False)
    for attributes in (
        {"stride": 0},
        {"padding": "full"},
        {"padding": -1},
        {"stride": (1, 1, 1)},
        {"groups": 3},
        {"dilation": 1.5},
    ):
        yield Sample((make(rng, x_shape), make(rng, w_shape), None), attributes, symbolic=False)


@family("conv1d")
def conv1d(rng):
    yield from _conv_samples(rng, 1)


@family("conv2d")
def conv2d(rng):
    yield from _conv_samples(rng, 2)


POOLS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 2, "stride": 3, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": "same"},
    {"kernel_size": 9},
    {"kernel_size": 2, "padding": 2},
    {"kernel_size": 0},
    {"kernel_size": 1.5},
]


def _pool_samples(rng, rank, extra):
    for attributes in (*POOLS, *({"kernel_size": 3, "stride": 2, "padding": 1} | e for e in extra)):
        for shape in ((2, 3, 7, 6), (7, 6), (0, 7, 6), (1, 5), (6,), ()):
            # Whether the windows fit is not known of symbols; the rest holds.
            yield Sample((make(rng, shape),), attributes)
    for layout in LAYOUTS:
        yield Sample((make(rng, (2, 3, 7, 6), "float32", layout),), POOLS[2])
    for dtype in DTYPES:
        yield Sample((make(rng, (2, 7, 6), dtype),), POOLS[2])
        yield Sample((make(rng, (2, 7, 6), dtype, special=True),), POOLS[1], compare=False)


@family("max_pool1d")
def max_pool1d(rng):
    yield from _pool_samples(rng, 1, [{"dilation": 2}])


@family("max_pool2d")
def max_pool2d(rng):
    yield from _pool_samples(rng, 2, [{"dilation": (1, 2)}])


@family("avg_pool1d")
def avg_pool1d(rng):
    yield from _pool_samples(rng, 1, [{"count_include_pad": False}, {"count_include_pad": False, "ceil_mode": True}])


@family("avg_pool2d")
def avg_pool2d(rng):
    yield from _pool_samples(rng, 2, [{"count_include_pad": False}])


@family("interpolate")
def interpolate(rng):
    wide, narrow = (2, 3, 4, 5), (2, 3, 5)
    for attributes in (
        {"size": 7},
        {"size": 3},
        {"size": 1},
        {"size": 0},
        {"scale": 2},
        {"scale": 0.5},
        {"scale": 1.7},
        {},
        {"size": 2, "scale": 2},
        {"scale": -1},
        {"size": -1},
        {"size": (1, 2, 3, 4)},
    ):
        for shape, mode in (
            (wide, "nearest"),
            (narrow, "nearest"),
            (narrow, "linear"),
            (wide, "bilinear"),
            (narrow, "bilinear"),
            (wide, "cubic"),
            ((3, 4), "nearest"),
        ):
            for align in (False, True):
                yield Sample((make(rng, shape),), attributes | {"mode": mode, "align_corners": align})
    for layout in LAYOUTS:
        for mode in ("nearest", "bilinear"):
            yield Sample((make(rng, wide, "float32", layout),), {"size": (6, 3), "mode": mode})
    for dtype in DTYPES:
        for mode in ("nearest", "linear"):
            yield Sample((make(rng, narrow, dtype),), {"size": 8, "mode": mode})
    yield Sample((make(rng, (2, 3, 0)),), {"size": 2})
    yield Sample((make(rng, (2, 3, 0)),), {"scale": 2})
    yield Sample((make(rng, (0, 3, 4)),), {"size": 2})


# ---- the loops -------------------------------------------------------------------------------------------------------


def _pairs(padding, sizes, kernel, stride, dilation):
    rank = len(sizes)
    if padding == "valid":
        return ((0, 0),) * rank
    if padding == "same":
        out = []
        for n, k, s, d in zip(sizes, kernel, stride, dilation, strict=True):
            total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
            out.append((total // 2, total - total // 2))
        return tuple(out)
    return tuple(
        p if isinstance(p, tuple) else (p, p) for p in (padding if isinstance(padding, tuple) else (padding,) * rank)
    )


def _tuple(value, rank):
    return value if isinstance(value, tuple) else (value,) * rank


def _conv(x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
    rank = x.ndim - 2
    stride, dilation = _tuple(stride, rank), _tuple(dilation, rank)
    pads = _pairs(padding, x.shape[2:], w.shape[2:], stride, dilation)
    kind = (np.zeros(1, x.dtype) * np.zeros(1, w.dtype) + (0 if b is None else np.zeros(1, b.dtype))).dtype
    spread = [
        a.astype(np.int64 if kind.kind in "iub" else np.float64) if a is not None else None
        for a in (x.real, w.real, None if b is None else b.real)
    ]
    real = conv_loops(*spread, stride, pads, dilation, groups)
    scale = conv_loops(*(None if a is None else np.abs(a) for a in spread), stride, pads, dilation, groups)
    if kind.kind == "c":
        parts = [np.array(v, np.float64) for v in (x.real, x.imag, w.real, w.imag)]
        both = [
            conv_loops(p, q, None, stride, pads, dilation, groups)
            for p, q in ((parts[0], parts[2]), (parts[1], parts[3]), (parts[0], parts[3]), (parts[1], parts[2]))
        ]
        bias = 0 if b is None else b.reshape(-1, *(1,) * rank)
        loud = conv_loops(np.abs(x).astype(float), np.abs(w).astype(float), None, stride, pads, dilation, groups)
        return Want(both[0] - both[1] + 1j * (both[2] + both[3]) + bias, loud + np.abs(bias), 60.0)
    if kind.kind == "b":
        return Want(real > 0)
    if kind.kind in "iu":
        return Want(real.astype(np.int64).astype(kind))
    return Want(real, scale, 60.0)


def _pool(x, kernel_size, stride, padding, dilation, ceil_mode, rank, what, include_pad=True):
    kernel = _tuple(kernel_size, rank)
    stride = kernel if stride is None else _tuple(stride, rank)
    dilation = _tuple(dilation, rank)
    pads = _pairs(padding, x.shape[x.ndim - rank :], kernel, stride, dilation)
    wide = x if x.dtype.kind == "c" else x.astype(np.float64)
    if x.dtype.kind == "c":
        parts = [
            pool_loops(v.astype(float), kernel, stride, pads, dilation, ceil_mode, what, include_pad)
            for v in (x.real, x.imag)
        ]
        return Want(parts[0] + 1j * parts[1], 4.0, 60.0)
    return Want(
        pool_loops(wide, kernel, stride, pads, dilation, ceil_mode, what, include_pad),
        *((4.0, 60.0) if what == "mean" else ()),
    )


def _max(rank):
    return lambda x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False: _pool(
        x, kernel_size, stride, padding, dilation, ceil_mode, rank, "max"
    )


def _mean(rank):
    return lambda x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True: _pool(
        x, kernel_size, stride, padding, 1, ceil_mode, rank, "mean", count_include_pad
    )


def _interpolate(x, size=None, scale=None, mode="nearest", align_corners=False):
    spatial = x.shape[2:]
    if scale is not None:
        sizes = tuple(int(n * Fraction(str(scale))) for n in spatial)
    else:
        sizes = _tuple(size, len(spatial))
    out = x if mode == "nearest" else x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    for axis, new in reversed(list(enumerate(sizes, 2))):
        old = x.shape[axis]
        if mode == "nearest":
            out = np.take(out, [i * old // new for i in range(new)], axis)
        else:
            out = np.moveaxis(
                np.array(linear_loop(list(np.moveaxis(out, axis, 0)), new, align_corners)).reshape(
                    new, *np.moveaxis(out, axis, 0).shape[1:]
                ),
                0,
                axis,
            )
    return Want(out) if mode == "nearest" else Want(out, 4.0, 4.0)


ORACLES.update(
    conv1d=_conv,
    conv2d=_conv,
    max_pool1d=_max(1),
    max_pool2d=_max(2),
    avg_pool1d=_mean(1),
    avg_pool2d=_mean(2),
    interpolate=_interpolate,
)
