"""Counter-based random numbers: Philox4x32-10, and the uniform, normal and Bernoulli draws made from its words.

In: a key and a shape. Out: a fresh array. Invariant: element `i` (in C order of the shape) depends on the key, the
dtype's word count and `i` alone, so any split of the work over threads, blocks or calls gives the same bits. There is
no hidden state: the same key gives the same numbers, and `split_key` or `fold_in` make new ones.

Everything past the integer rounds uses IEEE operations in a fixed order (`+ - * / sqrt`, conversions, and the `frexp`
split), never a library's `log` or `cos`; a kernel that does not contract gets the same bits on any machine.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; the constants and the
known-answer vectors of the tests are those of its Random123 distribution. Normal quantiles: Wichura, "Algorithm AS 241:
the percentage points of the normal distribution", Applied Statistics 37 (1988), PPND7 in float32, PPND16 in float64.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tiercel.dtypes import DType, as_dtype, bfloat16, float16, float32, float64

__all__ = [
    "as_key",
    "dropout",
    "fold_in",
    "philox4x32",
    "random_bits",
    "random_normal",
    "random_uniform",
    "split_key",
]

Key: TypeAlias = "int | np.integer[Any] | NDArray[Any]"

_MULTIPLIERS: Final = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
# Weyl sequence: the golden ratio and sqrt(3) - 1, as fractions of 2**32.
_KEY_STEPS: Final = (0x9E3779B9, 0xBB67AE85)
_ROUNDS: Final = 10
_WORD: Final = 0xFFFFFFFF

# The fourth counter word tells draws from key derivations, so that no child key repeats words of a parent's stream.
_DRAW: Final = 0
_SPLIT: Final = 0x53504C54  # "SPLT"
_FOLD: Final = 0x464F4C44  # "FOLD"

# Blocks whose words are in flight at once: the working set of the rounds stays in the L2 cache.
_CHUNK_BLOCKS: Final = 1 << 14


def as_key(key: Key) -> tuple[int, int]:
    """Return a key as its two 32-bit words, low word first.

    Args:
        key: a Python or NumPy integer in -2**63 .. 2**64-1 (taken modulo 2**64), a 0-d integer array, or an integer
            array (or list) of two that holds the low and the high word.

    Raises:
        TypeError: the key is no integer and no integer array.
        ValueError: an array of another shape, or an integer out of range.
    """
    if isinstance(key, list | tuple):
        key = np.asarray(key)
    if isinstance(key, np.ndarray) and key.ndim:
        if key.dtype.kind not in "iu":
            raise TypeError(f"a random key must be an integer or an integer array, got an array of {key.dtype.name}")
        if key.shape != (2,):
            raise ValueError(f"a random key array must have shape (2,), got {key.shape}")
        low, high = (int(word) for word in key)
        if not (0 <= low <= _WORD and 0 <= high <= _WORD):
            raise ValueError(f"the words of a random key must be in 0..{_WORD}, got [{low}, {high}]")
        return low, high
    if isinstance(key, bool | np.bool_):
        raise TypeError("a random key must be an integer or an integer array, got bool")
    try:
        value = operator.index(key)
    except TypeError:
        raise TypeError(f"a random key must be an integer or an integer array, got {type(key).__name__}") from None
    if not -(1 << 63) <= value < 1 << 64:
        raise ValueError(f"a random key must be in -2**63 .. 2**64-1, got {value}")
    return value & _WORD, (value >> 32) & _WORD


def philox4x32(
    counter: Sequence[NDArray[np.uint64] | np.uint64], key: tuple[int, int], rounds: int = _ROUNDS
) -> tuple[NDArray[np.uint64] | np.uint64, ...]:
    """Return the four output words of each counter.

    Args:
        counter: four arrays (or scalars) of uint64, each value below 2**32, of broadcastable shapes; word 0 first.
        key: two 32-bit words.
        rounds: 10 is the published safe default; fewer only in tests.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    m0, m1 = _MULTIPLIERS
    shift, mask = np.uint64(32), np.uint64(_WORD)
    for i in range(rounds):
        if i:
            k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
        p0, p1 = c0 * m0, c2 * m1
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ np.uint64(k0), p1 & mask, (p0 >> shift) ^ c3 ^ np.uint64(k1), p0 & mask
    return c0, c1, c2, c3


def random_bits(key: Key, shape: int | Sequence[int] = ()) -> NDArray[np.uint32]:
    """Return uniformly distributed 32-bit words: element `i` is word `i % 4` of counter block `i // 4`.

    Args:
        key: see `as_key`.
        shape: an int or a sequence of ints.

    Returns:
        `shape` uint32, C-contiguous.

    Raises:
        ValueError, TypeError: a bad key, or a negative or non-integer size.
    """
    sizes = _shape(shape)
    return _words(as_key(key), math.prod(sizes)).reshape(sizes)


def random_uniform(
    key: Key, shape: int | Sequence[int] = (), low: float = 0.0, high: float = 1.0, dtype: object = np.float32
) -> NDArray[Any]:
    """Return numbers uniform in [low, high).

    The unit draw has as many random bits as the significand (24 for float32, 53 for float64, 11 for float16, 8 for
    bfloat16), taken from the top of one word (float64: of two, the first word being the high one), and is then scaled
    as `low + draw * (high - low)` in the dtype, half types in float32 rounded once. Rounding may reach `high` where
    `high - low` is no power of two; such a draw is moved to the next number below `high` (bounds that round to one
    number of the dtype give that number).

    Args:
        key, shape: see `random_bits`.
        low, high: finite bounds.
        dtype: float16, bfloat16, float32 or float64.

    Raises:
        TypeError: the dtype is not a real floating type.
        ValueError: bounds that are not finite or not ordered.
    """
    kind, sizes = _float_dtype(dtype, "random_uniform"), _shape(shape)
    low, high = float(low), float(high)
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"random_uniform needs finite bounds with low <= high, got low={low}, high={high}")
    compute = kind.accumulator.numpy.type
    draw = _unit(as_key(key), math.prod(sizes), kind)
    if (low, high) != (0.0, 1.0):
        bottom, top = compute(low), compute(high)
        draw = bottom + draw * (top - bottom)
    result: NDArray[Any] = draw.astype(kind.numpy, copy=False)
    if low < high:
        _clip_below(result, kind, low, high)
    return result.reshape(sizes)


def random_normal(
    key: Key, shape: int | Sequence[int] = (), mean: float = 0.0, std: float = 1.0, dtype: object = np.float32
) -> NDArray[Any]:
    """Return normally distributed numbers by inversion of the distribution function (AS 241).

    float64 draws use two words, the others one: the top bit is the sign, the other bits `m` the tail probability
    `(m + 1/2) / 2**bits`, so both tails are equally fine and reach 6.2 (float64: 8.2) standard deviations. float16 and
    bfloat16 are computed in float32 and rounded once, after scaling.

    Args:
        key, shape: see `random_bits`.
        mean, std: location and scale; `std` not negative.
        dtype: float16, bfloat16, float32 or float64.

    Raises:
        TypeError: the dtype is not a real floating type.
        ValueError: a negative `std`.
    """
    kind, sizes = _float_dtype(dtype, "random_normal"), _shape(shape)
    mean, std = float(mean), float(std)
    if std < 0 or math.isnan(std):
        raise ValueError(f"random_normal needs std >= 0, got {std}")
    draw = _normal(as_key(key), math.prod(sizes), kind)
    if (mean, std) != (0.0, 1.0):
        compute = kind.accumulator.numpy.type
        draw = compute(mean) + draw * compute(std)
    result: NDArray[Any] = draw.astype(kind.numpy, copy=False)
    return result.reshape(sizes)


def dropout(x: Any, key: Key, p: float = 0.5, training: bool = True) -> NDArray[Any]:
    """Return `x` with each element zeroed with probability `p`, the others multiplied by `1 / (1 - p)`.

    Element `i` in C order is kept where word `i` of the key's stream is at least `round(p * 2**32)`. Half types are
    scaled in float32 and rounded once. Dropped elements are +0 whatever they were (NaN and infinity included). With
    `training` false or `p` 0 the result is a copy.

    Args:
        x: any shape, a floating or complex dtype.
        key: see `as_key`.
        p: probability in [0, 1].
        training: False at inference.

    Returns:
        The shape and dtype of `x`, fresh, C-contiguous.

    Raises:
        TypeError: `x` is not floating or complex.
        ValueError: `p` is not in [0, 1], or a bad key.
    """
    x = np.asarray(x)
    kind = as_dtype(x.dtype)
    if not kind.is_inexact:
        raise TypeError(f"dropout needs a floating or complex array, got {kind.name}")
    p = float(p)
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout needs a probability in 0..1, got {p}")
    words = as_key(key)
    if not training or p == 0.0:
        return np.array(x, order="C")
    result = np.zeros(x.shape, x.dtype)
    if p == 1.0:
        return result
    keep = (_words(words, x.size) >= np.uint32(min(round(p * 2.0**32), _WORD))).reshape(x.shape)
    scale = kind.real.accumulator.numpy.type(1.0 / (1.0 - p))
    result[keep] = (x[keep] * scale).astype(x.dtype, copy=False)
    return result


def split_key(key: Key, num: int = 2) -> NDArray[np.uint32]:
    """Return `num` new keys, `(num, 2)` uint32: key `i` does not depend on `num`.

    Raises:
        ValueError, TypeError: a bad key, or a negative or non-integer `num`.
    """
    (count,) = _shape(num)
    index = np.arange(count, dtype=np.uint64)
    return _derive(as_key(key), index, _SPLIT)


def fold_in(key: Key, data: int | np.integer[Any]) -> NDArray[np.uint32]:
    """Return the key `(2,)` uint32 that belongs to `data` (a step number, a layer number, ...).

    Args:
        key: see `as_key`.
        data: an integer in -2**63 .. 2**64-1, taken modulo 2**64.
    """
    low, high = as_key(data)
    return _derive(as_key(key), np.array(low | high << 32, np.uint64), _FOLD)


def _derive(key: tuple[int, int], index: NDArray[np.uint64], domain: int) -> NDArray[np.uint32]:
    zero = np.uint64(0)
    words = philox4x32((index & np.uint64(_WORD), index >> np.uint64(32), zero, np.uint64(domain)), key)
    return np.stack([words[0], words[1]], axis=-1).astype(np.uint32)


def _words(key: tuple[int, int], count: int, start: int = 0) -> NDArray[np.uint32]:
    """Words `start` to `start + count` of a key's stream; `start` a multiple of 4."""
    blocks = -(-count // 4)
    out = np.empty((blocks, 4), np.uint32)
    for first in range(0, blocks, _CHUNK_BLOCKS):
        last = min(first + _CHUNK_BLOCKS, blocks)
        index = np.arange(start // 4 + first, start // 4 + last, dtype=np.uint64)
        words = philox4x32((index & np.uint64(_WORD), index >> np.uint64(32), np.uint64(0), np.uint64(_DRAW)), key)
        for lane, word in enumerate(words):
            out[first:last, lane] = word
    return out.reshape(-1)[:count]


def _words64(key: tuple[int, int], count: int) -> NDArray[np.uint64]:
    pairs = _words(key, 2 * count).reshape(count, 2).astype(np.uint64)
    return (pairs[:, 0] << np.uint64(32)) | pairs[:, 1]


# Bits of the significand, the leading one included: the unit draws of a dtype are multiples of 2**-bits.
_UNIT_BITS: Final = {float16: 11, bfloat16: 8, float32: 24, float64: 53}


# Arrays below are float32 or float64; `Floats` keeps NumPy's stubs from widening every product to a union.
Floats: TypeAlias = Any


def _unit(key: tuple[int, int], count: int, kind: DType) -> Floats:
    bits = _UNIT_BITS[kind]
    if kind is float64:
        return (_words64(key, count) >> np.uint64(64 - bits)).astype(np.float64) * 2.0**-bits
    return (_words(key, count) >> np.uint32(32 - bits)).astype(np.float32) * np.float32(2.0**-bits)


def _clip_below(draw: NDArray[Any], kind: DType, low: float, high: float) -> None:
    top = kind.numpy.type(high)
    reached = draw >= top
    if reached.any():
        below = np.nextafter(top, kind.numpy.type(-math.inf))
        draw[reached] = max(below, kind.numpy.type(low))


# AS 241, PPND7: about 1 part in 10**7.
_PPND7: Final = {
    "middle": (
        (3.3871327179e0, 5.0434271938e1, 1.5929113202e2, 5.9109374720e1),
        (1.0, 1.7895169469e1, 7.8757757664e1, 6.7187563600e1),
    ),
    "near": (
        (1.4234372777e0, 2.7568153900e0, 1.3067284816e0, 1.7023821103e-1),
        (1.0, 7.3700164250e-1, 1.2021132975e-1),
    ),
    "far": (
        (6.6579051150e0, 3.0812263860e0, 4.2868294337e-1, 1.7337203997e-2),
        (1.0, 2.4197894225e-1, 1.2258202635e-2),
    ),
}
# AS 241, PPND16: about 1 part in 10**16.
_PPND16: Final = {
    "middle": (
        (
            3.3871328727963666080e0,
            1.3314166789178437745e2,
            1.9715909503065514427e3,
            1.3731693765509461125e4,
            4.5921953931549871457e4,
            6.7265770927008700853e4,
            3.3430575583588128105e4,
            2.5090809287301226727e3,
        ),
        (
            1.0,
            4.2313330701600911252e1,
            6.8718700749205790830e2,
            5.3941960214247511077e3,
            2.1213794301586595867e4,
            3.9307895800092710610e4,
            2.8729085735721942674e4,
            5.2264952788528545610e3,
        ),
    ),
    "near": (
        (
            1.42343711074968357734e0,
            4.63033784615654529590e0,
            5.76949722146069140550e0,
            3.64784832476320460504e0,
            1.27045825245236838258e0,
            2.41780725177450611770e-1,
            2.27238449892691845833e-2,
            7.74545014278341407640e-4,
        ),
        (
            1.0,
            2.05319162663775882187e0,
            1.67638483018380384940e0,
            6.89767334985100004550e-1,
            1.48103976427480074590e-1,
            1.51986665636164571966e-2,
            5.47593808499534494600e-4,
            1.05075007164441684324e-9,
        ),
    ),
    "far": (
        (
            6.65790464350110377720e0,
            5.46378491116411436990e0,
            1.78482653991729133580e0,
            2.96560571828504891230e-1,
            2.65321895265761230930e-2,
            1.24266094738807843860e-3,
            2.71155556874348757815e-5,
            2.01033439929228813265e-7,
        ),
        (
            1.0,
            5.99832206555887937690e-1,
            1.36929880922735805310e-1,
            1.48753612908506148525e-2,
            7.86869131145613259100e-4,
            1.84631831751005468180e-5,
            1.42151175831644588870e-7,
            2.04426310338993978564e-15,
        ),
    ),
}
_LN2: Final = 0.6931471805599453


def _normal(key: tuple[int, int], count: int, kind: DType) -> Floats:
    """Standard normal draws in the compute type of `kind`."""
    tail: Floats
    if kind is float64:
        words = _words64(key, count)
        negative = words >> np.uint64(63) == 0
        # 63 bits of magnitude, of which float64 keeps the top 53; small ones keep all theirs.
        tail = (words & np.uint64((1 << 63) - 1)).astype(np.float64) * 2.0**-64 + 2.0**-65
    else:
        words32 = _words(key, count)
        negative = words32 >> np.uint32(31) == 0
        tail = (words32 & np.uint32(0x7FFFFFFF)).astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)
    size = upper_quantile(tail)
    np.negative(size, out=size, where=negative)
    return size


def upper_quantile(tail: Floats) -> Floats:
    """Return the `z >= 0` above which a standard normal variable lies with probability `tail`.

    Args:
        tail: float32 or float64 in (0, 0.5].
    """
    real = tail.dtype.type
    table = _PPND16 if real is np.float64 else _PPND7
    q = real(0.5) - tail
    r = real(0.180625) - q * q
    middle = q * _rational(r, table["middle"])
    outer = q > real(0.425)
    if outer.any():
        s = np.sqrt(-_log(tail[outer]))
        middle[outer] = np.where(
            s <= real(5.0), _rational(s - real(1.6), table["near"]), _rational(s - real(5.0), table["far"])
        )
    return middle


def _rational(x: Floats, coefficients: tuple[tuple[float, ...], tuple[float, ...]]) -> Floats:
    numerator, denominator = (_polynomial(x, c) for c in coefficients)
    return numerator / denominator


def _polynomial(x: Floats, coefficients: Sequence[float]) -> Floats:
    real = x.dtype.type
    total = np.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * x + real(c)
    return total


def _log(x: Floats) -> Floats:
    """Natural logarithm of positive normal numbers: exponent * ln 2 + 2 atanh((m - 1) / (m + 1)), m near 1."""
    real = x.dtype.type
    m, e = np.frexp(x)
    small = m < real(math.sqrt(0.5))
    m = np.where(small, m * real(2.0), m)
    e = np.where(small, e - 1, e).astype(real)
    s = (m - real(1.0)) / (m + real(1.0))
    # |s| <= 0.1716: the first term left out is below 2**-26 (2**-60) of the sum.
    terms = 11 if real is np.float64 else 5
    series = _polynomial(s * s, [2.0 / (2 * k + 1) for k in range(terms)])
    return e * real(_LN2) + s * series


def _float_dtype(dtype: object, name: str) -> DType:
    kind = as_dtype(dtype)
    if not kind.is_float:
        raise TypeError(f"{name} draws float16, bfloat16, float32 or float64, not {kind.name}")
    return kind


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, int | np.integer) else shape
    result = tuple(operator.index(size) for size in sizes)
    for size in result:
        if size < 0:
            raise ValueError(f"negative dimensions are not allowed, got shape {result}")
    return result
