"""Samples and oracles of the reductions, running folds, softmax and the normalisation layers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tests.operators.harness import LAYOUTS, ORACLES, SAMPLES, Sample, Want, make, widen
from tests.operators.samples_elementwise import forms
from tiercel.dtypes import DTYPES, as_dtype
from tiercel.operators import get

CASES: tuple[tuple[tuple[int, ...], Any], ...] = (
    ((), None),
    ((), -1),
    ((4,), None),
    ((4,), 0),
    ((0,), None),
    ((2, 3), 1),
    ((2, 3), (0, 1)),
    ((2, 3), ()),
    ((2, 0), 0),
    ((2, 0), 1),
    ((2, 3, 4), 1),
    ((2, 3, 4), (0, -1)),
    ((2, 3, 4), (1, 1)),
    ((2, 3, 4), 3),
    ((2, 1, 4), 1),
    ((2, 3, 2, 2), (1, 2)),
)
SINGLE_AXIS = frozenset({"argmax", "argmin"})


def reductions(
    name: str, attributes: tuple[dict[str, Any], ...] = ({},)
) -> Callable[[np.random.Generator], Iterator[Sample]]:
    """Every dtype once, every case and layout, keepdims, scalars and lists, and the attributes given."""

    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        row = get(name)
        has_dtype = any(p.name == "dtype" for p in row.parameters)
        for dtype in DTYPES:
            for more in ({}, {"axis": 0}, {"axis": 1, "keepdims": True}):
                yield Sample(
                    (make(rng, (3, 5), dtype, special=dtype.is_integer or dtype.is_bool),), more, symbolic=False
                )
            yield Sample((make(rng, (40, 7), dtype)[:, 2],), symbolic=False)
            yield Sample((make(rng, (2,), dtype)[0],), symbolic=False)
            if dtype.is_half and name not in ("prod", "cumprod"):
                # Long enough for a sum in the type itself to be far off.
                yield Sample((np.abs(make(rng, (2000, 2), dtype)),), {"axis": 0}, symbolic=False)
            if has_dtype:
                for target in ("float32", "float64", "int16", "complex64", "bfloat16", bool):
                    # Variances in such dtypes are left to NumPy.
                    odd = name in ("var", "std") and (target in ("int16", "complex64", bool) or dtype.is_complex)
                    x = make(rng, (3, 5), dtype)
                    yield Sample((x,), {"axis": 0, "dtype": target}, symbolic=False, static=not odd, compare=not odd)
        for (shape, axis), layout in itertools.product(CASES, LAYOUTS):
            if name in SINGLE_AXIS and isinstance(axis, tuple):
                continue
            for keepdims in (False, True):
                given: dict[str, Any] = {} if axis is None else {"axis": axis}
                given |= {"keepdims": True} if keepdims else {}
                sample = Sample((make(rng, shape, "float32", layout),), given)
                yield from forms(name, sample) if layout == "C" else (sample,)
        for more in attributes:
            for layout in LAYOUTS:
                yield from forms(name, Sample((make(rng, (2, 3, 4), "float64", layout),), more))
        special = make(rng, (4, 5), "float32", special=True)
        for axis in (None, 0, 1):
            # Products and squares of numbers near the ends of the range depend on their order.
            far = name in ("prod", "var", "std")
            yield Sample((special,), {"axis": axis}, symbolic=False, compare=not far)
        yield Sample(([1.0, 2.0, 4.0],), symbolic=False)
        yield Sample((2.5,), symbolic=False)
        yield Sample((3,), symbolic=False)

    return samples


# ---- oracles ---------------------------------------------------------------------------------------------------------


def _wide(x: Any, dtype: Any) -> Any:
    x = np.asarray(x)
    return widen(x.astype(dtype))


def _result_dtype(name: str, x: Any, attributes: dict[str, Any]) -> np.dtype[Any]:
    return np.asarray(get(name).evaluate(x, **attributes)).dtype


def _folded(fold: Any, x: Any, target: np.dtype[Any], axis: Any, keepdims: bool, initial: int) -> Any:
    """A fold of Python ints, wrapped to the dtype."""
    values = np.asarray(np.asarray(x).astype(target).astype(object) * 1, dtype=object)
    total = np.asarray(fold(values, axis=axis, keepdims=keepdims, initial=initial), dtype=object)
    modulus, low = 1 << (target.itemsize * 8), int(np.iinfo(target).min)
    return np.asarray((total - low) % modulus + low, dtype=object).astype(target)


def _folding_ulp(target: np.dtype[Any]) -> float:
    # Half types are summed in float32 and rounded once.
    return 1.0 if as_dtype(target).is_half else 8.0


def _sum(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    target = _result_dtype("sum", x, {"axis": axis, "dtype": dtype})
    if target.kind == "b":
        return np.any(np.asarray(x).astype(bool), axis=axis, keepdims=keepdims)
    if target.kind in "iu":
        return _folded(np.sum, x, target, axis, keepdims, 0)
    w = _wide(x, target)
    return Want(
        np.einsum("...->...", w).sum(axis=axis, keepdims=keepdims),
        scale=np.abs(w).sum(axis=axis, keepdims=keepdims),
        ulp=_folding_ulp(target),
    )


def _prod(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    target = _result_dtype("prod", x, {"axis": axis, "dtype": dtype})
    if target.kind == "b":
        return np.all(np.asarray(x).astype(bool), axis=axis, keepdims=keepdims)
    if target.kind in "iu":
        return _folded(np.prod, x, target, axis, keepdims, 1)
    return Want(np.prod(_wide(x, target), axis=axis, keepdims=keepdims), ulp=64)


def _mean(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    target = _result_dtype("mean", x, {"axis": axis, "dtype": dtype})
    if target.kind in "biu":
        return np.mean(x, axis=axis, dtype=target, keepdims=keepdims)
    w = _wide(x, target)
    total = np.abs(w).mean(axis=axis, keepdims=keepdims)
    return Want(w.mean(axis=axis, keepdims=keepdims), scale=total, ulp=_folding_ulp(target))


def _var(x: Any, axis: Any = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    target = _result_dtype("var", x, {"axis": axis, "dtype": dtype, "ddof": ddof})
    if target.kind in "biu":
        return np.var(x, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims)
    x = np.asarray(x)
    w = x.astype(np.clongdouble) if x.dtype.kind == "c" else x.astype(np.longdouble)
    if dtype is not None and as_dtype(dtype).is_inexact:
        w = _wide(x, as_dtype(dtype).numpy)
    count = w.size // max(1, w.mean(axis=axis).size)
    mean = w.sum(axis=axis, keepdims=True) / np.longdouble(count)
    square = np.abs(w - mean) ** 2
    return Want(
        square.sum(axis=axis, keepdims=keepdims) / np.longdouble(max(count - ddof, 0)),
        scale=(np.abs(w) ** 2).mean(axis=axis, keepdims=keepdims),
        ulp=2 * _folding_ulp(target),
    )


def _std(x: Any, axis: Any = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    target = _result_dtype("std", x, {"axis": axis, "dtype": dtype, "ddof": ddof})
    if target.kind in "biu":
        return np.std(x, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims)
    want = _var(x, axis, dtype, ddof, keepdims)
    return Want(np.sqrt(want.value), scale=np.sqrt(want.scale), ulp=want.ulp)


def _first_best(values: list[Any], better: Callable[[Any, Any], bool]) -> int:
    best = 0
    for i, v in enumerate(values):
        if values[best] != values[best]:  # the first NaN wins
            break
        if v != v or better(v, values[best]):
            best = i
    return best


def _position(x: Any, axis: Any, keepdims: bool, better: Callable[[Any, Any], bool]) -> tuple[Any, Any]:
    """Index and value of the extreme of each slice, by a plain loop."""
    x = np.asarray(x)
    rank = x.ndim
    axes = (
        tuple(range(rank))
        if axis is None
        else tuple(a % max(rank, 1) for a in (axis if isinstance(axis, tuple) else (axis,)))
    )
    axes = axes if rank else ()
    kept = [a for a in range(rank) if a not in axes]
    moved = x.transpose([*kept, *sorted(axes)])
    flat = (
        moved.reshape([x.shape[a] for a in kept] + [-1])
        if x.size
        else moved.reshape([x.shape[a] for a in kept] + [int(np.prod([x.shape[a] for a in axes]))])
    )
    shape = flat.shape[:-1]
    positions, values = np.zeros(shape, np.int64), np.zeros(shape, x.dtype)
    for index in np.ndindex(shape):
        best = _first_best(list(flat[index]), better)
        positions[index], values[index] = best, flat[index][best]
    if keepdims:
        final = [1 if a in axes else n for a, n in enumerate(x.shape)]
        positions, values = positions.reshape(final), values.reshape(final)
    return positions, values


def _greater(a: Any, b: Any) -> bool:
    return bool((a.real, a.imag) > (b.real, b.imag)) if isinstance(a, np.complexfloating) else bool(a > b)


def _less(a: Any, b: Any) -> bool:
    return bool((a.real, a.imag) < (b.real, b.imag)) if isinstance(a, np.complexfloating) else bool(a < b)


def _running(combine: Callable[[Any, Any], Any], name: str) -> Callable[..., Any]:
    def compute(x: Any, axis: Any = None, dtype: Any = None) -> Any:
        target = _result_dtype(name, x, {"axis": axis, "dtype": dtype})
        x = np.asarray(x)
        x = x.reshape(-1) if axis is None or not x.ndim else x
        axis = 0 if axis is None else axis
        w = _wide(x, target) if as_dtype(target).is_inexact else x.astype(target)
        out = np.array(w)
        size = np.abs(w).astype(np.longdouble)
        out, size = np.moveaxis(out, axis, 0), np.moveaxis(np.array(size), axis, 0)
        for i in range(1, out.shape[0]):
            out[i] = combine(out[i - 1], out[i])
            size[i] = combine(size[i - 1], size[i])
        return Want(np.moveaxis(out, 0, axis), scale=np.moveaxis(size, 0, axis), ulp=2 * _folding_ulp(target))

    return compute


def _count_nonzero(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return (np.asarray(x) != 0).astype(np.int64).sum(axis=axis, keepdims=keepdims)


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    x = np.asarray(x)
    w = np.abs(x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble))
    if ord in (None, 2, "fro"):
        return Want(np.sqrt((w * w).sum(axis=axis, keepdims=keepdims)), ulp=16)
    if ord in (np.inf, -np.inf):
        return (np.max if ord > 0 else np.min)(w, axis=axis, keepdims=keepdims)
    if ord == 0:
        return (w != 0).sum(axis=axis, keepdims=keepdims)
    return Want((w**ord).sum(axis=axis, keepdims=keepdims) ** (np.longdouble(1) / ord), ulp=32)


def _float64_of(x: Any) -> Any:
    x = np.asarray(x)
    return x.astype(np.longdouble)


def _logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    w = _float64_of(x)
    top = w.max(axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    total = np.log(np.exp(w - top).sum(axis=axis, keepdims=True)) + top
    value = total if keepdims else total.reshape(w.sum(axis=axis).shape)
    return Want(value, scale=np.abs(w).max(axis=axis, keepdims=keepdims, initial=1), ulp=8)


def _softmax(x: Any, axis: Any = -1) -> Any:
    w = _float64_of(x)
    e = np.exp(w - w.max(axis=axis, keepdims=True, initial=-np.inf))
    return Want(e / e.sum(axis=axis, keepdims=True), ulp=24)


def _log_softmax(x: Any, axis: Any = -1) -> Any:
    w = _float64_of(x)
    d = w - w.max(axis=axis, keepdims=True, initial=-np.inf)
    return Want(d - np.log(np.exp(d).sum(axis=axis, keepdims=True)), scale=np.maximum(np.abs(d), 1), ulp=8)


def _reshaped(v: Any, x: Any, axes: tuple[int, ...]) -> Any:
    return _float64_of(v).reshape([n if a in axes else 1 for a, n in enumerate(np.shape(x))])


def _affine(y: Any, x: Any, weight: Any, bias: Any, axis: Any) -> Want:
    axes = tuple(sorted(a % np.ndim(x) for a in (axis if isinstance(axis, tuple) else (axis,)))) if np.ndim(x) else ()
    size = np.maximum(np.abs(y), 1)
    if weight is not None:
        y, size = y * _reshaped(weight, x, axes), size * np.abs(_reshaped(weight, x, axes))
    if bias is not None:
        y, size = y + _reshaped(bias, x, axes), size + np.abs(_reshaped(bias, x, axes))
    return Want(y, scale=size, ulp=64)


def _layer_norm(x: Any, weight: Any = None, bias: Any = None, axis: Any = -1, eps: float = 1e-5) -> Any:
    w = _float64_of(x)
    y = (w - w.mean(axis=axis, keepdims=True)) / np.sqrt(w.var(axis=axis, keepdims=True) + eps)
    return _affine(y, x, weight, bias, axis)


def _rms_norm(x: Any, weight: Any = None, axis: Any = -1, eps: float = 1e-6) -> Any:
    w = _float64_of(x)
    return _affine(w / np.sqrt((w * w).mean(axis=axis, keepdims=True) + eps), x, weight, None, axis)


def _batch_norm(
    x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, axis: int = 1, eps: float = 1e-5
) -> Any:
    axes = (axis % np.ndim(x),)
    y = (_float64_of(x) - _reshaped(mean, x, axes)) / np.sqrt(_reshaped(var, x, axes) + eps)
    return _affine(y, x, weight, bias, axis)


ORACLES |= {
    "sum": _sum,
    "prod": _prod,
    "mean": _mean,
    "var": _var,
    "std": _std,
    "max": lambda x, axis=None, keepdims=False: widen(_position(x, axis, keepdims, _greater)[1]),
    "min": lambda x, axis=None, keepdims=False: widen(_position(x, axis, keepdims, _less)[1]),
    "argmax": lambda x, axis=None, keepdims=False: _position(x, axis, keepdims, _greater)[0],
    "argmin": lambda x, axis=None, keepdims=False: _position(x, axis, keepdims, _less)[0],
    "ptp": lambda x, axis=None, keepdims=False: np.subtract(
        _position(x, axis, keepdims, _greater)[1], _position(x, axis, keepdims, _less)[1]
    ),
    "any": lambda x, axis=None, keepdims=False: (np.asarray(x) != 0).sum(axis=axis, keepdims=keepdims) > 0,
    "all": lambda x, axis=None, keepdims=False: (np.asarray(x) == 0).sum(axis=axis, keepdims=keepdims) == 0,
    "count_nonzero": _count_nonzero,
    "cumsum": _running(lambda a, b: a + b, "cumsum"),
    "cumprod": _running(lambda a, b: a * b, "cumprod"),
    "norm": _norm,
    "logsumexp": _logsumexp,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "batch_norm": _batch_norm,
}
_ORDERS: tuple[dict[str, Any], ...] = (
    *({"ord": o, "axis": a} for o in (None, 1, 2, 3, np.inf, -np.inf, 0) for a in (0, -1)),
    {"ord": "fro", "axis": (0, 1)},
    {"axis": (0, 2)},
    {"axis": 1, "keepdims": True},
    {"keepdims": True},
)
SAMPLES |= {
    name: reductions(name)
    for name in (
        "sum",
        "prod",
        "mean",
        "max",
        "min",
        "ptp",
        "any",
        "all",
        "argmax",
        "argmin",
        "count_nonzero",
        "logsumexp",
    )
}
SAMPLES |= {name: reductions(name, ({"ddof": 1}, {"ddof": 1, "axis": 1, "keepdims": True})) for name in ("var", "std")}


def _norm_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for sample in reductions("norm", _ORDERS)(rng):
        axis = sample.attributes.get("axis")
        # A matrix norm over one or more than two axes is refused by NumPy in ways of its own.
        static = not isinstance(axis, tuple) or len(axis) == 2
        yield replace(sample, static=static and sample.static, symbolic=sample.symbolic and static)


SAMPLES["norm"] = _norm_samples


def _running_samples(name: str) -> Callable[[np.random.Generator], Iterator[Sample]]:
    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        for dtype in DTYPES:
            for given in (
                {},
                {"axis": 0},
                {"axis": 1},
                {"axis": 0, "dtype": "float32"},
                {"axis": 0, "dtype": "int16"},
                {"dtype": "complex64"},
            ):
                yield Sample((make(rng, (3, 5), dtype),), given, symbolic=False)
            if dtype.is_half and name == "cumsum":
                yield Sample((np.abs(make(rng, (2000,), dtype)),), symbolic=False)
        for layout, shape in itertools.product(LAYOUTS, ((), (3,), (0,), (2, 3), (2, 3, 4), (2, 0, 4), (1, 3, 1))):
            for axis in (None, 0, 1, -1, 4):
                yield from forms(
                    name, Sample((make(rng, shape, "float32", layout),), {} if axis is None else {"axis": axis})
                )
        yield Sample(([1.0, 2.0, 4.0],), symbolic=False)
        yield Sample((2.5,), symbolic=False)

    return samples


SAMPLES |= {name: _running_samples(name) for name in ("cumsum", "cumprod")}


def _softmax_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for dtype in DTYPES:
        for axis in (-1, 0):
            yield Sample((make(rng, (3, 5), dtype),), {"axis": axis}, symbolic=False)
    for layout, (shape, axis) in itertools.product(LAYOUTS, CASES):
        if axis is not None:
            yield Sample((make(rng, shape, "float32", layout),), {"axis": axis})
    yield Sample((make(rng, (4, 5), "float32", special=True),), {"axis": 0}, symbolic=False)
    yield Sample((np.full((2, 3), -np.inf, np.float32),), symbolic=False)
    yield Sample((np.array([[-1e30, 1e30], [90.0, -90.0]], np.float32),), symbolic=False)
    yield Sample((2.5,), symbolic=False)
    yield Sample(([1.0, 2.0],), symbolic=False)


SAMPLES |= dict.fromkeys(("softmax", "log_softmax"), _softmax_samples)


def _layer_samples(name: str) -> Callable[[np.random.Generator], Iterator[Sample]]:
    optional = get(name).arity - 1

    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        for a, b in itertools.product(DTYPES, DTYPES):
            yield Sample((make(rng, (3, 5), a), *([make(rng, (5,), b)] * optional)), symbolic=False)
        for dtype in DTYPES:
            yield Sample((make(rng, (3, 5), dtype), *([None] * optional)), symbolic=False)
        for layout, other in itertools.product(LAYOUTS, ("C", "F", "sliced")):
            for shape, axis in (
                ((2, 3, 4), -1),
                ((2, 3, 4), 1),
                ((2, 3, 4), (1, 2)),
                ((2, 3, 4), (0, 2)),
                ((5,), 0),
                ((2, 0, 3), -1),
                ((2, 3, 0), -1),
            ):
                axes = sorted(a % len(shape) for a in (axis if isinstance(axis, tuple) else (axis,)))
                sizes = tuple(shape[a] for a in axes)
                x = make(rng, shape, "float32", layout)
                more = [make(rng, sizes, "float32", other) for _ in range(optional)]
                yield Sample((x, *more), {"axis": axis})
                if optional > 1:
                    yield Sample((x, more[0], None), {"axis": axis})
        x = make(rng, (4, 5))
        x[0, 1], x[1, 2], x[2, 2:4] = np.nan, np.inf, -np.inf
        yield Sample((x, *([make(rng, (5,))] * optional)), symbolic=False)
        yield Sample((make(rng, (4, 5)), *([make(rng, (4,))] * optional)), symbolic=False)
        yield Sample((make(rng, (4, 5)), *([None] * optional)), {"eps": 0.5})
        yield Sample((make(rng, (4, 5)), *([None] * optional)), {"axis": 2})

    return samples


SAMPLES |= {name: _layer_samples(name) for name in ("layer_norm", "rms_norm")}


def _batch_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for a, b in itertools.product(DTYPES, DTYPES):
        statistics = make(rng, (5,), b), np.abs(make(rng, (5,), b))
        yield Sample((make(rng, (3, 5), a), *statistics, None, None), symbolic=False)
    for layout, (shape, axis) in itertools.product(
        LAYOUTS, (((2, 3), 1), ((2, 3, 4, 2), 1), ((2, 3, 4), -1), ((2, 3, 0), 1), ((3,), 0))
    ):
        n = shape[axis]
        x = make(rng, shape, "float32", layout)
        mean, weight, bias = (make(rng, (n,)) for _ in range(3))
        for more in ((None, None), (weight, None), (None, bias), (weight, bias)):
            yield Sample((x, mean, np.abs(make(rng, (n,))), *more), {"axis": axis})
    yield Sample((make(rng, (2, 3)), make(rng, (2,)), make(rng, (2,)), None, None), symbolic=False)


SAMPLES["batch_norm"] = _batch_samples
