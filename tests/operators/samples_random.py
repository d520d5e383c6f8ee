"""Calls of the random rows. Their values are those of integer arithmetic; their laws are tested in
`test_random_reference.py`."""

from __future__ import annotations

import itertools

import numpy as np
import scipy.special

from tests.operators.harness import LAYOUTS, ORACLES, Sample, Want, family, make
from tests.operators.test_random_reference import philox_scalar
from tiercel.dtypes import DTYPES, as_dtype

KEYS = [7, -1, np.uint64(2**63), np.array(5), np.array([1, 2], np.uint32), np.array([1, 2]), [3, 4]]
BAD_KEYS = [1.5, True, np.float32(1), np.zeros(2), np.zeros(3, np.uint32), np.zeros((2, 1), int)]
SHAPES = [(), 3, (2, 3), (0, 2), (2, 3, 4)]


@family("random_bits")
def random_bits(rng):
    for key, shape in itertools.product(KEYS, SHAPES):
        yield Sample((key,), {"shape": shape}, symbolic=False)
    for key in BAD_KEYS:
        yield Sample((key,), {"shape": (2,)}, symbolic=False)
    yield Sample((1,), {"shape": (-1,)})
    yield Sample((1,), {"shape": 1.5})


@family("random_uniform", "random_normal")
def draws(rng):
    for key, shape in itertools.product(KEYS, SHAPES):
        yield Sample((key,), {"shape": shape}, symbolic=False)
    for key in BAD_KEYS:
        yield Sample((key,), {"shape": (2,)}, symbolic=False)
    for dtype in DTYPES:
        yield Sample((11,), {"shape": (4, 5), "dtype": dtype})
    yield Sample((1,), {"shape": (-1,)})


@family("dropout")
def dropout(rng):
    for shape, layout in itertools.product(((), (3,), (2, 3), (2, 3, 4), (0, 3)), LAYOUTS):
        x = make(rng, shape, "float32", layout)
        for p, training in ((0.5, True), (0.0, True), (1.0, True), (0.3, False)):
            yield Sample((x, 5), {"p": p, "training": training})
    for dtype in DTYPES:
        yield Sample((make(rng, (3, 4), dtype), 5), {"p": 0.25})
    for key in (*KEYS, *BAD_KEYS):
        yield Sample((make(rng, (3,)), key), symbolic=False)
    yield Sample((make(rng, (3,)), 1), {"p": 1.5})
    yield Sample((np.float32(3), 1), {"p": 0.5})


@family("split_key")
def split_key(rng):
    for key, num in itertools.product((*KEYS, *BAD_KEYS), (0, 1, 3)):
        yield Sample((key,), {"num": num}, symbolic=False)
    yield Sample((1,), {"num": -1})


@family("fold_in")
def fold_in(rng):
    for key, data in itertools.product((*KEYS, *BAD_KEYS), (0, -5, 2**63, np.int8(3), 1.5)):
        yield Sample((key, data), symbolic=False)


# ---- integer arithmetic ----------------------------------------------------------------------------------------------


def _key(key):
    if np.ndim(key):
        return tuple(int(v) for v in key)
    value = int(key) % 2**64
    return value % 2**32, value >> 32


def _words(key, count):
    blocks = [philox_scalar([block, 0, 0, 0], _key(key)) for block in range(-(-count // 4))]
    return [w for block in blocks for w in block][:count]


def _shape(shape):
    return tuple(np.atleast_1d(np.array(shape, int)))


def _bits(key, shape=()):
    sizes = _shape(shape)
    return np.array(_words(key, int(np.prod(sizes))), np.uint32).reshape(sizes)


_SIGNIFICANDS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def _numbers(key, shape, dtype):
    """One integer and its number of bits for each element."""
    sizes, kind = _shape(shape), as_dtype(dtype)
    count = int(np.prod(sizes))
    if kind.name == "float64":
        words = _words(key, 2 * count)
        return [words[2 * i] << 32 | words[2 * i + 1] for i in range(count)], 64, sizes, kind
    return _words(key, count), 32, sizes, kind


def _uniform(key, shape=(), dtype=np.float32):
    numbers, bits, sizes, kind = _numbers(key, shape, dtype)
    keep = _SIGNIFICANDS[kind.name]
    return np.array([(n >> (bits - keep)) / 2**keep for n in numbers], np.float64).reshape(sizes)


def _normal(key, shape=(), dtype=np.float32):
    numbers, bits, sizes, _kind = _numbers(key, shape, dtype)
    half = 2 ** (bits - 1)
    tails = [((n % half) + 0.5) / 2**bits for n in numbers]
    signs = [1 if n >= half else -1 for n in numbers]
    values = [-s * float(scipy.special.ndtri(t)) for s, t in zip(signs, tails, strict=True)]
    # float32 rounds the tail probability before inverting it.
    return Want(np.array(values, np.float64).reshape(sizes), 2.0, 8.0)


def _dropout(x, key, p=0.5, training=True):
    x = np.asarray(x)
    if not training or p == 0:
        return x
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    words = np.array(_words(key, x.size), np.float64).reshape(x.shape)
    kept = words >= (np.round(p * 2**32) if p < 1 else np.inf)
    return Want(np.where(kept, wide / (1 - p) if p < 1 else 0, 0), ulp=2.0)


def _derived(key, index, tag):
    return philox_scalar([index % 2**32, index >> 32, 0, tag], _key(key))[:2]


ORACLES.update(
    random_bits=_bits,
    random_uniform=_uniform,
    random_normal=_normal,
    dropout=_dropout,
    split_key=lambda key, num=2: np.array([_derived(key, i, 0x53504C54) for i in range(num)], np.uint32).reshape(
        num, 2
    ),
    fold_in=lambda key, data: np.array(_derived(key, int(data) % 2**64, 0x464F4C44), np.uint32),
)
