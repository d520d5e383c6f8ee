"""Samples and oracles of the elementwise rows: arithmetic, mathematics, activations."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from tests.operators.harness import LAYOUTS, ORACLES, SAMPLES, Sample, Want, family, make, quiet, widen
from tiercel.dtypes import DTYPES, as_dtype
from tiercel.operators import ALL, Operator, get

SHAPES = ((), (0,), (4,), (1, 3), (2, 3), (2, 0, 3), (2, 3, 2), (1, 2, 1, 3))
BROADCASTS = (
    ((2, 3), (2, 3)),
    ((2, 3), (3,)),
    ((3,), (2, 3)),
    ((2, 1), (1, 3)),
    ((2, 3, 2), (3, 1)),
    ((), (2, 2)),
    ((2, 2), ()),
    ((), ()),
    ((0, 3), (1, 3)),
    ((2, 1, 3), (4, 1)),
    ((1,), (0,)),
    ((2, 3), (2, 4)),
)
SCALARS = (3, 300, -1, 2**40, 2.5, 1j, True, np.float32(1.5), np.int8(3), np.float64(-2.0), np.bool_(True))


PYTHON = (0, 1, -3, 2**70, True, 0.5, -2.0, 1j)


def unary_operands(rng: np.random.Generator) -> Iterator[tuple[Any, bool]]:
    """Operands, and whether they are worth a symbolic check."""
    for dtype in DTYPES:
        yield make(rng, (3, 5), dtype, special=True), False
    for layout, shape in itertools.product(LAYOUTS, SHAPES):
        yield make(rng, shape, "float32", layout, special=layout == "C"), True
    for layout in LAYOUTS:
        yield make(rng, (2, 3, 2), "int16", layout), True
        yield make(rng, (2, 3, 2), "bfloat16", layout), False
    for scalar in SCALARS:
        yield scalar, False
    yield [1.0, 2.0], False
    yield [[1, 2], [3, 4]], False
    yield make(rng, (), "complex64"), False
    yield make(rng, (), "int8"), False


def spelt(row: Operator, sample: Sample) -> Iterator[Sample]:
    """The sample as it is, and in the row's infix and in-place forms."""
    yield sample
    for spelling in row.spellings:
        if spelling.kind == "syntax":
            yield replace(sample, spelling=("syntax", spelling.path))
        elif spelling.kind == "inplace":
            operands = (np.array(sample.operands[0], copy=True), *sample.operands[1:])
            if isinstance(sample.operands[0], np.ndarray):
                yield replace(sample, operands=operands, spelling=("inplace", spelling.path), compare=False)


def unary(rng: np.random.Generator) -> Iterator[Sample]:
    for x, symbolic in unary_operands(rng):
        yield Sample((x,), symbolic=symbolic)


def binary_operands(rng: np.random.Generator) -> Iterator[tuple[Any, Any, bool]]:
    for a, b in itertools.product(DTYPES, DTYPES):
        yield make(rng, (3,), a), make(rng, (3,), b), False
    for dtype in DTYPES:
        x, y = make(rng, (4, 6), dtype, special=True), make(rng, (4, 6), dtype, special=True)
        yield x, y[::-1], False
        for scalar in SCALARS:
            yield x, scalar, False
        for scalar in (2, 300, 1.5, True):
            yield scalar, x, False
            yield make(rng, (), dtype), scalar, False
        yield x[0, 0], 2, False
        yield x[0, 0], y[0, 0], False
        yield x[0, 0], y, False
    for a, b in BROADCASTS:
        yield make(rng, a), make(rng, b), True
    for la, lb in itertools.product(LAYOUTS, LAYOUTS):
        yield make(rng, (2, 3, 2), "float32", la), make(rng, (2, 3, 2), "float32", lb), True
        yield make(rng, (2, 3, 2), "int16", la), make(rng, (3, 1), "int16", lb), True
    for layout in LAYOUTS:
        yield make(rng, (2, 3), "float32", layout), make(rng, (3,)), True
        yield make(rng, (2, 1, 3), "float32", layout), make(rng, (1, 4, 3), "float32", "F"), True
        yield make(rng, (2, 3, 4), "float32", layout), 2.0, True
    yield 2, 3, False
    yield 2.5, 3, False
    yield [1, 2, 3], make(rng, (3,)), False


def binary(rng: np.random.Generator) -> Iterator[Sample]:
    for x, y, symbolic in binary_operands(rng):
        yield Sample((x, y), symbolic=symbolic)


def infix(name: str) -> Callable[[np.random.Generator], Iterator[Sample]]:
    """Samples in every form of a binary row: the infix forms on fewer combinations."""

    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        row = get(name)
        for number, (x, y, symbolic) in enumerate(binary_operands(rng)):
            sample = Sample((x, y), symbolic=symbolic)
            if number < 225 and number % 4:
                yield sample
            else:
                yield from spelt(row, sample)
        for x, y in itertools.product(PYTHON, PYTHON):
            if name in ("power", "left_shift") and y == 2**70:
                continue
            yield Sample(
                (x, y), spelling=("syntax", row.spellings[0].path), static=False, symbolic=False, compare=False
            )

    return samples


# ---- oracles ---------------------------------------------------------------------------------------------------------
# Integers are computed with Python's, which do not overflow, and wrapped; floats in long double. Operands are first
# converted to the dtype of the result, as promotion does.


def in_loop_dtype(name: str, operands: tuple[Any, ...], attributes: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The result's dtype and the operands in it (complex operands of a real result and such stay as they are)."""
    result = get(name).evaluate(*operands, **attributes)
    dtype = np.asarray(result[0] if isinstance(result, tuple) else result).dtype
    arrays = [np.asarray(x) for x in operands]
    # A Python number is compared in the dtype of the array beside it.
    floats = [x.dtype for x in operands if hasattr(x, "dtype") and as_dtype(x.dtype).is_inexact]
    if dtype.kind == "b" and floats:
        arrays = [
            a if hasattr(x, "dtype") or isinstance(x, complex) else a.astype(floats[0])
            for a, x in zip(arrays, operands, strict=True)
        ]
    wide = []
    for x in arrays:
        if as_dtype(dtype).is_inexact and not (x.dtype.kind == "c" and dtype.kind != "c"):
            x = x.astype(dtype)
        wide.append(widen(x))
    return dtype, wide


def _wrap(value: Any, dtype: np.dtype[Any]) -> Any:
    value = np.asarray(value, dtype=object)
    if dtype.kind == "b":
        return value.astype(bool)
    info = np.iinfo(dtype)
    modulus = int(info.max) - int(info.min) + 1
    wrap = np.frompyfunc(lambda v: (int(v) - int(info.min)) % modulus + int(info.min), 1, 1)
    return np.asarray(wrap(value) if value.size else value).astype(dtype)


def oracle(
    name: str, wide: Callable[..., Any], on_ints: Callable[..., Any] | None = None, ulp: float | None = None
) -> None:
    """Register the oracle of a row.

    Args:
        name: the row.
        wide: on long double arrays.
        on_ints: on Python ints, for integer operands; `wide` also does them if it is None.
        ulp: permitted distance of NumPy's own function, default what the row permits.
    """
    row = get(name)
    vector = None if on_ints is None else np.frompyfunc(on_ints, row.arity, 1)

    def compute(*operands: Any, **attributes: Any) -> Any:
        dtype, arrays = in_loop_dtype(name, operands, attributes)
        if vector is not None and all(x.dtype.kind in "biu" for x in arrays):
            return _wrap(vector(*(x.astype(object) * 1 for x in arrays)), dtype)
        arrays = [x.astype(np.longdouble) if x.dtype.kind in "biu" else x for x in arrays]
        if any(x.dtype.kind == "c" for x in arrays):
            return Want(wide(*arrays, **attributes), ulp=(row.exactness.ulp or 1) * 16)
        return Want(wide(*arrays, **attributes), ulp=ulp)

    ORACLES[name] = compute


def _divmod_floor(a: int, b: int) -> int:
    return a // b if b else 0


def _shift(a: int, b: int) -> int:
    return a << b if 0 <= b < 64 else 0


ORACLE_FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {
    "add": (np.add, operator.add),
    "subtract": (np.subtract, operator.sub),
    "multiply": (np.multiply, operator.mul),
    "divide": (np.divide, None),
    "floor_divide": (np.floor_divide, _divmod_floor),
    "remainder": (np.remainder, lambda a, b: a % b if b else 0),
    "fmod": (np.fmod, lambda a, b: (abs(a) % abs(b)) * (-1 if a < 0 else 1) if b else 0),
    "negative": (np.negative, operator.neg),
    "positive": (np.positive, operator.pos),
    "absolute": (np.abs, abs),
    "fabs": (np.abs, None),
    "sign": (np.sign, lambda a: (a > 0) - (a < 0)),
    "copysign": (np.copysign, None),
    "signbit": (np.signbit, lambda a: a < 0),
    "gcd": (np.gcd, math.gcd),
    "lcm": (np.lcm, math.lcm),
    "maximum": (lambda x, y: np.where((x >= y) | np.isnan(x), x, y), max),
    "minimum": (lambda x, y: np.where((x <= y) | np.isnan(x), x, y), min),
    "fmax": (lambda x, y: np.where((x >= y) | np.isnan(y), x, y), max),
    "fmin": (lambda x, y: np.where((x <= y) | np.isnan(y), x, y), min),
    "equal": (np.equal, operator.eq),
    "not_equal": (np.not_equal, operator.ne),
    "less": (np.less, operator.lt),
    "less_equal": (np.less_equal, operator.le),
    "greater": (np.greater, operator.gt),
    "greater_equal": (np.greater_equal, operator.ge),
    "logical_and": (lambda x, y: (x != 0) & (y != 0), lambda a, b: bool(a) and bool(b)),
    "logical_or": (lambda x, y: (x != 0) | (y != 0), lambda a, b: bool(a) or bool(b)),
    "logical_xor": (lambda x, y: (x != 0) ^ (y != 0), lambda a, b: bool(a) != bool(b)),
    "logical_not": (lambda x: x == 0, operator.not_),
    "bitwise_and": (np.bitwise_and, operator.and_),
    "bitwise_or": (np.bitwise_or, operator.or_),
    "bitwise_xor": (np.bitwise_xor, operator.xor),
    "bitwise_count": (np.bitwise_count, lambda a: abs(a).bit_count()),
    "square": (np.square, lambda a: a * a),
    "floor": (np.floor, lambda a: a),
    "ceil": (np.ceil, lambda a: a),
    "trunc": (np.trunc, lambda a: a),
    "rint": (np.rint, None),
    "isnan": (lambda x: x != x, None),
    "isinf": (lambda x: np.abs(x) == np.inf, None),
    "isfinite": (lambda x: np.abs(x) < np.inf, None),
    "left_shift": (np.left_shift, _shift),
    "conj": (np.conj, operator.pos),
    "real": (np.real, operator.pos),
    "imag": (np.imag, lambda a: 0),
}
for _name, (_wide, _ints) in ORACLE_FUNCTIONS.items():
    oracle(_name, _wide, _ints)
# NumPy's own accuracy, where it is worse than what rows permit a kernel.
_ACCURACY = {"tan": 8.0, "expm1": 4.0, "log1p": 4.0}
for _name in (
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "cbrt",
    "hypot",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "arctan2",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "degrees",
    "radians",
):
    oracle(_name, getattr(np, _name), ulp=_ACCURACY.get(_name))


def _right_shift(x: Any, y: Any) -> Any:
    dtype = np.asarray(np.right_shift(x, y)).dtype
    beyond = np.frompyfunc(lambda a, b: a >> b if 0 <= b < dtype.itemsize * 8 else -(a < 0), 2, 1)
    return _wrap(beyond(np.asarray(x).astype(object) * 1, np.asarray(y).astype(object) * 1), dtype)


def _left_shift(x: Any, y: Any) -> Any:
    dtype = np.asarray(np.left_shift(x, y)).dtype
    beyond = np.frompyfunc(lambda a, b: a << b if 0 <= b < dtype.itemsize * 8 else 0, 2, 1)
    return _wrap(beyond(np.asarray(x).astype(object) * 1, np.asarray(y).astype(object) * 1), dtype)


def _invert(x: Any) -> Any:
    x = np.asarray(x)
    return ~x.astype(bool) if x.dtype.kind == "b" else _wrap(-1 - x.astype(object), x.dtype)


def _power(x: Any, y: Any) -> Any:
    dtype, (a, b) = in_loop_dtype("power", (x, y), {})
    if dtype.kind in "iu":
        modular = np.frompyfunc(lambda p, q: pow(int(p), int(q), 1 << 64), 2, 1)
        return _wrap(modular(a, b), dtype)
    return _wide_power(a, b, np.power(x, y), dtype)


def _float_power(x: Any, y: Any) -> Any:
    dtype, (a, b) = in_loop_dtype("float_power", (x, y), {})
    return _wide_power(a, b, np.float_power(x, y), dtype)


def _wide_power(a: Any, b: Any, got: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind != "c":
        return np.power(a, b)
    # Large powers of complex numbers lose as many bits as the exponent has.
    return Want(np.where(np.abs(b) > 10, got, np.power(a, b)), ulp=4096)


def _nextafter(x: Any, y: Any) -> Any:
    dtype, (a, b) = in_loop_dtype("nextafter", (x, y), {})
    bits = {2: np.int16, 4: np.int32, 8: np.int64}[dtype.itemsize]
    a, b = np.broadcast_arrays(a.astype(dtype), b.astype(dtype))
    patterns = np.ascontiguousarray(a).view(bits)
    up = (b > a) == (a > 0)
    stepped = np.where(up, patterns + 1, patterns - 1)
    first = np.where(b > 0, 1, np.iinfo(bits).min + 1)
    stepped = np.where(a == 0, first, stepped).astype(bits).view(dtype)
    out = np.where(np.isnan(a) | np.isnan(b), np.asarray(np.nan, dtype), np.where(a == b, b, stepped))
    return widen(out.reshape(np.broadcast_shapes(np.shape(x), np.shape(y))))


def _reciprocal(x: Any) -> Any:
    x = np.asarray(x)
    if x.dtype.kind == "b" or x.dtype.kind not in "iu":
        dtype, (wide,) = in_loop_dtype("reciprocal", (x,), {})
        return Want(1 / wide, ulp=16 if dtype.kind == "c" else None)
    # What a machine makes of 1 / 0 is not defined.
    return np.where(x == 0, np.reciprocal(x), np.where(np.abs(x.astype(float)) == 1, x, 0)).astype(x.dtype)


def _log_sum(name: str) -> Callable[..., Any]:
    def compute(x: Any, y: Any) -> Any:
        _, (a, b) = in_loop_dtype(name, (x, y), {})
        # Near 0 the result is a difference of numbers as large as the operands.
        return Want(getattr(np, name)(a, b), scale=np.maximum(np.maximum(np.abs(a), np.abs(b)), 1), ulp=2)

    return compute


def _divmod(x: Any, y: Any) -> Any:
    return Want([np.floor_divide(x, y), np.remainder(x, y)])


ORACLES |= {
    "right_shift": _right_shift,
    "left_shift": _left_shift,
    "invert": _invert,
    "power": _power,
    "float_power": _float_power,
    "nextafter": _nextafter,
    "logaddexp": _log_sum("logaddexp"),
    "logaddexp2": _log_sum("logaddexp2"),
    "reciprocal": _reciprocal,
    "divmod": _divmod,
}

for _row in ALL.values():
    if _row.lowering.cls != "elementwise" or not isinstance(_row.reference, np.ufunc):
        continue
    if _row.arity == 1:
        SAMPLES[_row.name] = unary
    else:
        SAMPLES[_row.name] = infix(_row.name) if _row.spellings[0].kind == "syntax" else binary


# ---- rows that are no ufuncs -----------------------------------------------------------------------------------------


def forms(name: str, sample: Sample) -> Iterator[Sample]:
    """The sample in every function, method and property form of the row."""
    yield sample
    for spelling in get(name).spellings:
        is_tensor = isinstance(sample.operands[0], np.ndarray | np.generic)
        if spelling.kind == "function" or (spelling.kind in ("method", "property") and is_tensor):
            yield replace(sample, spelling=(spelling.kind, spelling.path))


def _parts(name: str) -> Callable[[np.random.Generator], Iterator[Sample]]:
    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        for dtype, layout in itertools.product(("complex64", "complex128", "float32", "bool"), LAYOUTS):
            for shape in ((2, 3), (2, 3, 2), (0, 2), ()):
                yield from forms(name, Sample((make(rng, shape, dtype, layout),)))
        for x, symbolic in unary_operands(rng):
            # Parts of Python numbers are Python numbers and stay with Python.
            tensor = isinstance(x, np.ndarray | np.generic) or name == "conj"
            yield from forms(name, Sample((x,), symbolic=symbolic, static=tensor))

    return samples


SAMPLES |= {name: _parts(name) for name in ("real", "imag", "conj")}


@family("angle")
def _angle_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for x, symbolic in unary_operands(rng):
        yield from forms("angle", Sample((x,), symbolic=symbolic))
    yield Sample((make(rng, (2, 3), "complex64"),), {"deg": True})
    yield Sample((make(rng, (), "complex64"),), {"deg": True})


def _angle(z: Any, deg: bool = False) -> Any:
    dtype = np.angle(z).dtype
    z = np.asarray(z)
    wide = np.arctan2(
        np.asarray(z.imag).astype(dtype).astype(np.longdouble), z.real.astype(dtype).astype(np.longdouble)
    )
    return wide * (180 / np.longdouble(np.pi)) if deg else wide


ORACLES["angle"] = _angle


@family("where")
def _where_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for number, (x, y, symbolic) in enumerate(binary_operands(rng)):
        shape = np.broadcast_shapes(np.shape(x), np.shape(y)) if np.shape(x) != (2, 3) else (3,)
        dtype = DTYPES[number % len(DTYPES)]
        yield Sample((make(rng, shape, dtype), x, y), symbolic=symbolic)
    for la, lb in itertools.product(LAYOUTS, LAYOUTS):
        yield Sample((make(rng, (2, 3, 2), "bool", la), make(rng, (2, 3, 2), "float32", lb), np.float32(0)))
    yield Sample((True, 1, 2), symbolic=False)
    yield Sample((np.bool_(True), np.float32(1), np.float32(2)), symbolic=False)
    yield Sample((make(rng, (2, 1), "bool"), make(rng, (3,)), 1.5), spelling=("function", "numpy.where"))


def _where(condition: Any, x: Any, y: Any) -> Any:
    c, a, b = np.broadcast_arrays(condition, x, y)
    pick = [bool(t) for t in c.reshape(-1).tolist()] if c.dtype.kind != "V" else (c.reshape(-1) != 0).tolist()
    dtype = np.where(condition, x, y).dtype
    flat = [
        p if t else q for t, p, q in zip(pick, a.astype(dtype).reshape(-1), b.astype(dtype).reshape(-1), strict=True)
    ]
    return widen(np.array(flat, dtype=dtype).reshape(c.shape))


ORACLES["where"] = _where


@family("clip")
def _clip_samples(rng: np.random.Generator) -> Iterator[Sample]:
    bounds = (
        (0, 3),
        (-300, 300),
        (None, 2),
        (1, None),
        (None, None),
        (0.5, 2.5),
        (3, 0),
        (np.float64(-1), np.float32(1)),
    )
    for dtype in DTYPES:
        x = make(rng, (3, 4), dtype, special=True)
        for low, high in bounds:
            yield from forms("clip", Sample((x, low, high), symbolic=False))
        yield Sample((x, make(rng, (4,), dtype), make(rng, (3, 1), dtype)), symbolic=False)
        yield Sample((x[0, 0], 0, 3), symbolic=False)
        yield Sample((make(rng, (), dtype), 0, 3), symbolic=False)
    for la, lb in itertools.product(LAYOUTS, LAYOUTS):
        yield Sample((make(rng, (2, 3, 2), "float32", la), make(rng, (2, 3, 2), "float32", lb), 1.0))
    for layout in LAYOUTS:
        yield from forms("clip", Sample((make(rng, (2, 3, 2), "float32", layout), -1.0, 1.0)))
    yield Sample((3.5, 0, 2), symbolic=False)
    yield Sample((3, 0, 2), symbolic=False)


def _clip(x: Any, low: Any, high: Any) -> Any:
    dtype = np.clip(x, low, high).dtype
    x = np.asarray(x)
    integers = dtype.kind in "iu"

    def bring(v: Any) -> Any:
        v = np.asarray(v)
        return v.astype(object) if integers else widen(v.astype(dtype))

    out = bring(x)
    if low is not None:
        low = bring(low)
        out = np.where((out >= low) | (out != out), out, low)
    if high is not None:
        high = bring(high)
        out = np.where((out <= high) | (out != out), out, high)
    return out.astype(dtype) if integers else out


ORACLES["clip"] = _clip


@family("round")
def _round_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for decimals in (0, 1, -1, 3):
        for x, symbolic in unary_operands(rng):
            yield from forms("round", Sample((x,), {"decimals": decimals}, symbolic=symbolic))


def _round(x: Any, decimals: int = 0) -> Any:
    dtype = np.round(x, decimals).dtype
    x = np.asarray(x)
    if x.dtype.kind in "iu":
        rounded = _wrap(np.frompyfunc(lambda v: round(v, decimals), 1, 1)(x.astype(object)), dtype)
        # NumPy rounds through float64, which is not exact for large integers.
        return np.where(np.abs(x.astype(np.longdouble)) > 1000, np.round(x, decimals), rounded)
    # NumPy scales, rounds and scales back in x's own dtype: three roundings.
    scale = np.longdouble(10) ** abs(decimals)
    up, down = (np.multiply, np.divide) if decimals > 0 else (np.divide, np.multiply)

    def part(v: Any) -> Any:
        v = v.astype(as_dtype(dtype).real.numpy)
        scaled = widen(up(widen(v), scale).astype(v.dtype)) if decimals else widen(v)
        nearest = np.rint(scaled)
        return down(nearest, scale).astype(v.dtype) if decimals else nearest

    return widen(part(x.real) + 1j * part(x.imag) if dtype.kind == "c" else part(x))


ORACLES["round"] = _round


@family("astype")
def _astype_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for a, b in itertools.product(DTYPES, DTYPES):
        for copy in (True, False):
            yield Sample((make(rng, (3,), a),), {"dtype": b, "copy": copy}, symbolic=False)
        yield Sample((make(rng, (3,), a)[0],), {"dtype": b.numpy}, symbolic=False)
    for layout, shape in itertools.product(LAYOUTS, SHAPES):
        x = make(rng, shape, "float32", layout)
        for copy in (True, False):
            for dtype in (np.float64, "float32", np.int8, float, bool):
                yield from forms("astype", Sample((x,), {"dtype": dtype, "copy": copy}))
    yield Sample((2.5,), {"dtype": np.float32}, symbolic=False)


def _astype(x: Any, dtype: Any, copy: bool = True) -> Any:
    x = np.asarray(x)
    target = as_dtype(dtype)
    if target.is_bool:
        return x != 0
    values = x.astype(np.clongdouble) if x.dtype.kind == "c" else x.astype(np.longdouble)
    if target.is_integer:
        return _wrap(np.frompyfunc(int, 1, 1)(np.real(values)), target.numpy)
    return np.real(values) if not target.is_complex else values


ORACLES["astype"] = _astype


@family("fma")
def _fma_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for a, b in itertools.product(DTYPES, DTYPES):
        yield Sample((make(rng, (3,), a), make(rng, (3,), b), 2), symbolic=False)
    for dtype in DTYPES:
        x, y, z = (make(rng, (4, 6), dtype, special=True) for _ in range(3))
        yield Sample((x, y[::-1], z[:, ::-1]), symbolic=False)
        yield Sample((x[0, 0], y[0, 1], z[0, 2]), symbolic=False)
        yield Sample((x, -0.5, z), symbolic=False)
    for dtype, bits in (("float32", 24), ("float64", 53)):
        # (1 + a)(1 + b) is halfway between two numbers of the dtype; z, far too small for a sum in float64, decides.
        x = np.full(8, 1 + 2.0 ** -(bits // 2), dtype) * np.array([1, -1, 2, -2] * 2, dtype)
        y = np.array([1 + 2.0 ** -(bits - bits // 2)] * 4 + [1 + 3 * 2.0 ** -(bits - bits // 2)] * 4, dtype)
        for tiny in (0.0, 2.0**-100, -(2.0**-100)):
            yield Sample((x, y, np.full(8, tiny, dtype)))
    for dtype in ("float16", "float32", "float64"):
        # Products that cancel against z, halfway cases, and results near the ends of the range.
        x, y = make(rng, (64,), dtype), make(rng, (64,), dtype)
        yield Sample((x, y, -(x * y)))
        yield Sample((x, y, np.nextafter(x * y, np.inf, dtype=dtype) * -2))
        big = np.ldexp(x, np.finfo(dtype).maxexp - 2).astype(dtype)
        yield Sample((big, y, -big), symbolic=False)
        tiny = np.ldexp(x, np.finfo(dtype).minexp // 2 - 4).astype(dtype)
        yield Sample((tiny, tiny[::-1], np.zeros(64, dtype)), symbolic=False)
        yield Sample((tiny, tiny[::-1], x), symbolic=False)
    for la, lb in itertools.product(LAYOUTS, LAYOUTS):
        yield Sample((make(rng, (2, 3, 2), "float32", la), make(rng, (2, 3, 2), "float32", lb), np.float32(1)))
    yield Sample((2, 3, 4), symbolic=False)
    yield Sample((2.5, 3, 4), symbolic=False)


def _fma(x: Any, y: Any, z: Any) -> Any:
    dtype = np.asarray(get("fma").evaluate(x, y, z)).dtype
    arrays = np.broadcast_arrays(*(np.asarray(v) for v in (x, y, z)))
    if dtype.kind in "biu":
        a, b, c = (v.astype(object) * 1 for v in arrays)
        return _wrap(np.asarray(a * b + c), dtype)
    a, b, c = (v.astype(dtype).astype(np.float64) for v in arrays)
    out = np.empty(a.shape, dtype)
    for index in np.ndindex(a.shape):
        p, q, r = (float(v[index]) for v in (a, b, c))
        if math.isfinite(p) and math.isfinite(q) and math.isfinite(r):
            exact = Fraction(p) * Fraction(q) + Fraction(r)
            out[index] = nearest(exact, dtype) if exact else p * q + r
        else:
            out[index] = np.float64(p) * np.float64(q) + np.float64(r)
    return out.astype(np.longdouble)


def nearest(exact: Fraction, dtype: np.dtype[Any]) -> float:
    """The number of a floating dtype nearest to a rational, ties to even."""
    info = as_dtype(dtype).finfo
    digits, lowest = info.nmant + 1, int(info.minexp)
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    if abs(exact) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, lowest) - digits + 1)
    value = round(exact / unit) * unit
    if abs(value) > Fraction(float(info.max)):
        return math.inf if value > 0 else -math.inf
    return float(value)


ORACLES["fma"] = _fma


def _float_unary(
    name: str, wide: Callable[..., Any], ulp: float | None = None, scale: Any = None, **attributes: Any
) -> None:
    """A row of ours: integers as float64; refuses complex; computed in long double or by scipy in float64."""

    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        for x, symbolic in unary_operands(rng):
            yield Sample((x,), symbolic=symbolic)
        grid = np.concatenate(
            [np.linspace(-30, 30, 1201), np.geomspace(1e-30, 200, 200), -np.geomspace(1e-30, 200, 200)]
        )
        for dtype in ("float16", "bfloat16", "float32", "float64"):
            with quiet():
                yield Sample((grid.astype(as_dtype(dtype).numpy),), symbolic=False)
        for key, value in attributes.items():
            yield Sample((make(rng, (2, 3)),), {key: value})

    def compute(x: Any, **given: Any) -> Any:
        x = np.asarray(x)
        dtype = as_dtype(x.dtype)
        wide_x = x.astype(np.float64 if not dtype.is_float else x.dtype).astype(np.longdouble)
        size = 1.0 if scale is None else scale(wide_x)
        return Want(wide(wide_x, **given), scale=size, ulp=ulp)

    SAMPLES[name] = samples
    ORACLES[name] = compute


def _by_libm(function: Callable[[float], float]) -> Callable[[Any], Any]:
    vector = np.vectorize(function, otypes=[np.float64])
    return lambda x: vector(np.asarray(x, dtype=np.float64))


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.longdouble(np.pi)) * (x + np.longdouble(0.044715) * x**3)))
    return np.asarray(x) / 2 * _by_libm(math.erfc)(-x / np.sqrt(np.longdouble(2)))


_float_unary("rsqrt", lambda x: 1 / np.sqrt(x), 1.6)
_float_unary("sigmoid", lambda x: 1 / (1 + np.exp(-x)))
_float_unary("silu", lambda x: x * (1 / (1 + np.exp(-x))), scale=lambda x: np.abs(x) * 1e-37)
_float_unary("softplus", lambda x: np.where(x > 50, x, np.log1p(np.exp(np.minimum(x, 60)))))
_float_unary("erf", _by_libm(math.erf))
_float_unary("erfc", _by_libm(math.erfc), 6)
# Far below 0 the factor beside x is the exponential of x squared, whose error grows with x squared.
_float_unary("gelu", _gelu, 6, lambda x: np.abs(_gelu(x)) * (1 + x * x), approximate="tanh")
_float_unary(
    "leaky_relu",
    lambda x, negative_slope=0.01: np.where(x > 0, x, x * np.longdouble(negative_slope)),
    1.6,
    negative_slope=0.3,
)
_float_unary("elu", lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x)), alpha=0.5)
SAMPLES["relu"] = unary
ORACLES["relu"] = lambda x: (
    np.where(np.asarray(x) > 0, widen(np.asarray(x)), np.where(np.asarray(x) != x, np.nan, 0))
    if np.asarray(x).dtype.kind not in "biu"
    else np.asarray(x) * (np.asarray(x) > 0)
)
