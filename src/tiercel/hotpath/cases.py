"""What a kernel is tried on: sizes that find mistakes, values that find mistakes, memory in every allowed order.

In: the inputs of an interface, what is known about sizes, what was seen. Out: `Case`s, each from its own seed: the same
case in every process. Sizes are taken at the ends of their ranges, around vector widths and tiles, odd, one and zero,
and as seen; floats are random with specials sprinkled in; scalars are those that were sampled, and small ones.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tiercel.compiler.interface import InputSpec, Interface
from tiercel.errors import TiercelError
from tiercel.shapes import Constraint, Dim, DimLike, Facts, Symbol, symbols_of
from tiercel.shapes import evaluate as size_of

__all__ = ["Case", "Hints", "make_cases"]

MAX_BYTES: Final = 512 << 10
"""All inputs of one case whose sizes can be chosen; a fraction beside large weights and for programs that loop, where
every element costs the reference much more.
"""
_BLOCK: Final = 65_537
"""Random numbers made once in a process; arrays begin anywhere in them, and longer ones repeat them (generating takes
longer than the kernel). A prime: what is off by a whole tile or chunk is not hidden by the repetition."""
_TRIES: Final = 24
_MAX_SIZE: Final = 1 << 16
"""Ints that were sampled are tried up to here where they may be sizes of results."""

_SPECIAL: Final = (0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0, -1.0, 1e-40, -1e-40, 0.5)


@dataclass(frozen=True, slots=True)
class Hints:
    """What was seen when the program ran.

    Attributes:
        sizes: values of symbols, each of one call.
        scalars: values by number of the input.
    """

    sizes: tuple[Mapping[str, int], ...] = ()
    scalars: Mapping[int, tuple[Any, ...]] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        """The plain form."""
        return {
            "sizes": [dict(s) for s in self.sizes], "scalars": [[k, list(v)] for k, v in self.scalars.items()],
        }  # fmt: skip

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Hints:
        """From the plain form."""
        scalars = {int(k): tuple(v) for k, v in data.get("scalars", ())}
        return cls(tuple(data.get("sizes", ())), scalars)


@dataclass(frozen=True, slots=True)
class Case:
    """One trial.

    Attributes:
        name: what it is about.
        seed: everything random in it comes from this.
        sizes: value of every symbol.
        values: per input.
        at_end: whether buffers end at a forbidden page, or begin after one.
        pooled: whether the thread pool is used.
        spare: only to be tried where the program left in most of the others (its guards want round sizes).
    """

    name: str
    seed: int
    sizes: Mapping[str, int]
    values: tuple[Any, ...]
    at_end: bool
    pooled: bool = False
    spare: bool = False


@dataclass(frozen=True, slots=True)
class _Plan:
    name: str
    sizes: tuple[int, ...]  # the symbols take these in turn
    values: str  # "plain", "special", "wide"
    at_end: bool
    pooled: bool = False
    seen: int | None = None
    factor: int = 1
    spare: bool = False
    some: bool = False  # of sizes that are too large only the largest are halved


_PLANS: Final = (
    _Plan("odd sizes, end of page", (5, 7, 3, 9, 6), "plain", True),
    _Plan("all sizes one", (1,), "plain", True),
    _Plan("empty", (0,), "plain", True),
    _Plan("special values", (18, 67, 19, 35), "special", True),
    _Plan("around a vector", (16, 33, 31, 64), "wide", False),
    _Plan("one size empty", (3, 0, 4), "plain", False),
    _Plan("large", (), "plain", True, pooled=True),
)
_SPARE: Final = (
    _Plan("sevens", (7,), "plain", True, spare=True),
    _Plan("round sizes", (8, 4, 16, 12), "plain", True, spare=True),
    _Plan("equal sizes, special values", (19,), "special", True, spare=True),
    _Plan("round sizes, special values", (4, 8, 12), "special", True, spare=True),
    _Plan("fours", (4,), "plain", False, spare=True),
    _Plan("equal sizes around a vector", (33,), "wide", False, spare=True),
    _Plan("larger round sizes", (24, 16, 40, 32), "wide", True, spare=True),
    _Plan("eights", (8,), "plain", True, spare=True),
)
_LARGE: Final = {1: (17_003,), 2: (131, 139), 3: (23, 31, 29)}
"""A little more than one of the chunks in which threads take long axes (16,384 elements)."""
_LOOPED: Final = 20
"""Larger sizes become 17 to 24 where the program loops: NumPy is called for each pass."""
_BESIDE_WIDE: Final = 9
"""Larger sizes become 3 to 9 beside fixed ones that are large: those are what vectors and tiles run over."""
_WIDE: Final = 64
_HEAVY: Final = 4 << 20
"""Bytes of weights beside which sizes become smaller still, 3 to 5, and seen ones are halved more often: every row of a
product costs the reference a millisecond, in each of its three to eight runs."""
_BESIDE_HEAVY: Final = 64 << 10
"""What `MAX_BYTES` is beside them."""
_LARGE_OF_MANY: Final = (34, 67, 41, 38)
"""Enough elements for threads to share, by the number of sizes."""


def make_cases(
    interface: Interface, facts: Facts | None, hints: Hints, name: str, *, loops: bool = False
) -> Iterator[Case]:
    """The cases of one kernel.

    Args:
        interface: its inputs.
        facts: constraints and ranges of sizes.
        hints: what was seen.
        name: of the kernel; seeds come from it.
        loops: whether the program loops, so that large sizes take the interpreter long.
    """
    symbols = _symbols(interface)
    large = _LARGE.get(len(symbols), _LARGE_OF_MANY)
    constraints = () if facts is None else facts.constraints
    plans = [*_PLANS]
    seen = range(min(2, len(hints.sizes)))
    plans[1:1] = [_Plan(f"sizes as seen ({i + 1})", (), "plain", i % 2 == 0, seen=i) for i in seen]
    plans += [
        _Plan(f"the {end} of a range", (), "plain", True, seen=-1 - i) for i, end in enumerate(("low end", "high end"))
    ]
    plans += _SPARE
    plans += [_Plan("twice the sizes seen", (), "plain", True, seen=i, factor=2, spare=True) for i in seen]
    for i in seen:  # sizes that are no sizes of the data, such as channels, have to be what they are
        plans += [
            _Plan("sizes as seen, large ones halved", (), "plain", True, seen=i, spare=True, some=True),
            _Plan("large ones halved, special values", (), "special", False, seen=i, spare=True, some=True),
        ]
    wide = any(isinstance(d, int) and d >= _WIDE for spec in interface.inputs for d in spec.dims)
    limit = MAX_BYTES >> 1 if wide or loops else MAX_BYTES
    heavy = sum(_weight_bytes(spec) for spec in interface.inputs) > _HEAVY
    limit = min(limit, _BESIDE_HEAVY) if heavy else limit
    fixed: dict[int, Any] = {}
    done: set[tuple[Any, ...]] = set()
    for number, plan in enumerate(plans):
        seed = zlib.crc32(f"{name}/{number}".encode())
        generator = np.random.default_rng(seed)
        if plan.pooled:
            plan = dataclasses.replace(plan, sizes=large)
        if wide:
            plan = dataclasses.replace(plan, sizes=tuple(n if n <= _BESIDE_WIDE else 3 + n % 7 for n in plan.sizes))
        elif loops:
            plan = dataclasses.replace(plan, sizes=tuple(n if n <= _LOOPED else 17 + n % 8 for n in plan.sizes))
        if heavy:
            plan = dataclasses.replace(plan, sizes=tuple(n if n < 3 else 3 + n % 3 for n in plan.sizes))
        sizes = _sizes(plan, symbols, constraints, facts, hints, interface, generator, limit)
        if sizes is None:
            continue
        key = (*sorted(sizes.items()), plan.values, plan.at_end, plan.pooled)
        if key in done:
            continue
        done.add(key)
        values = []
        for i, spec in enumerate(interface.inputs):
            if _weight_bytes(spec):
                # weights: the same in all cases, and without specials, which would spread to everything
                if i not in fixed:
                    fixed[i] = _scaled(_value(i, spec, sizes, "plain", hints, generator))
                values.append(fixed[i])
            else:
                values.append(_value(i, spec, sizes, plan.values, hints, generator))
        yield Case(plan.name, seed, sizes, tuple(values), plan.at_end, plan.pooled, plan.spare)


def _weight_bytes(spec: InputSpec) -> int:
    """The bytes of an array whose sizes are fixed, 0 for any other input (and for an empty one, which is no matter)."""
    sizes = [d for d in spec.dims if isinstance(d, int)]
    fixed = spec.kind == "array" and len(sizes) == len(spec.dims)
    return math.prod(sizes) * spec.dtype.itemsize if fixed else 0


# ---- sizes -----------------------------------------------------------------------------------------------------------


def _symbols(interface: Interface) -> list[Symbol]:
    found: dict[Symbol, None] = {}
    for spec in interface.inputs:
        for dim in (*spec.dims, *(() if spec.value is None else (spec.value,))):
            for symbol in sorted(symbols_of(dim), key=str):
                found.setdefault(symbol)
    return list(found)


def _sizes(
    plan: _Plan,
    symbols: Sequence[Symbol],
    constraints: Sequence[Constraint],
    facts: Facts | None,
    hints: Hints,
    interface: Interface,
    generator: np.random.Generator,
    limit: int,
) -> dict[str, int] | None:
    """Sizes for a plan that satisfy what is known, and whose arrays have `limit` bytes at most; None if none are
    found.
    """
    if plan.seen is not None and plan.seen >= 0:
        seen = hints.sizes[plan.seen]
        wanted = {s.name: plan.factor * int(seen.get(s.name, 4)) for s in symbols}
    elif plan.seen is not None:
        ends = _ends(symbols, facts, low=plan.seen == -1)
        if ends is None:
            return None
        wanted = ends
    else:
        wanted = {s.name: plan.sizes[i % len(plan.sizes)] for i, s in enumerate(symbols)}
        wanted |= _scalar_sizes(symbols, wanted, hints, interface, generator)
    required = dict(interface.required)
    wanted |= required
    for _ in range(_TRIES):
        if _bytes(interface, wanted) > limit:
            least = max(wanted.values()) // 2 if plan.some else 1  # small ones may have to be what they are
            wanted = {name: max(1, size // 2) if size > least else size for name, size in wanted.items()} | required
            continue
        if _valid(interface, constraints, wanted):
            return wanted
        if plan.seen is not None and plan.seen >= 0:
            return None
        wanted = {s.name: _near(s, wanted[s.name], facts, generator) for s in symbols} | required
    return None


def _scalar_sizes(
    symbols: Sequence[Symbol],
    sizes: Mapping[str, int],
    hints: Hints,
    interface: Interface,
    generator: np.random.Generator,
) -> dict[str, int]:
    """Ints that are arguments: sampled ones, or no larger than the sizes, since they mostly index or count."""
    found: dict[str, int] = {}
    for number, spec in enumerate(interface.inputs):
        if spec.kind != "pyint" or not isinstance(spec.value, Symbol):
            continue
        sampled = [n for n in hints.scalars.get(number, ()) if abs(n) <= _MAX_SIZE]
        dims = [n for s in symbols if s.kind != "scalar" for n in (sizes[s.name],)] or [4]
        choices = [*sampled, min(dims), max(0, min(dims) - 1), 1]
        found[spec.value.name] = int(choices[int(generator.integers(0, len(choices)))])
    return found


def _ends(symbols: Sequence[Symbol], facts: Facts | None, *, low: bool) -> dict[str, int] | None:
    """The least or greatest sizes where ranges are known; None where they say nothing."""
    if facts is None:
        return None
    found, informed = {}, False
    for symbol in symbols:
        known = facts.range(symbol)
        end = known.lo if low else known.hi
        if end is None or (low and end <= 0):
            found[symbol.name] = 2
        else:
            informed = True
            found[symbol.name] = end
    return found if informed else None


def _near(symbol: Symbol, size: int, facts: Facts | None, generator: np.random.Generator) -> int:
    """Another size that the range of the symbol allows."""
    size = max(0, size + int(generator.integers(-3, 4)))
    if facts is None:
        return size
    known = facts.range(symbol)
    low = 0 if known.lo is None else known.lo
    if known.contains(size):
        return size
    size = max(size, low) if known.hi is None else min(max(size, low), known.hi)
    step = known.divisor or 1
    return size if known.contains(size) else size - size % step


def _valid(interface: Interface, constraints: Sequence[Constraint], sizes: Mapping[str, int]) -> bool:
    try:
        for spec in interface.inputs:
            if any(size_of(d, sizes) < 0 for d in spec.dims):
                return False
        return all(c.holds(sizes) for c in constraints if all(s.name in sizes for s in c.symbols))
    except (TiercelError, ZeroDivisionError):
        return False


def _bytes(interface: Interface, sizes: Mapping[str, int]) -> int:
    """Bytes of the inputs whose sizes can be chosen."""
    total = 0
    for spec in interface.inputs:
        if all(isinstance(d, int) for d in spec.dims):
            continue
        count = 1
        for dim in spec.dims:
            count *= max(0, _size(dim, sizes))
        total += count * spec.dtype.itemsize
    return total


def _size(dim: DimLike, sizes: Mapping[str, int]) -> int:
    if not isinstance(dim, Dim):
        return dim
    try:
        return size_of(dim, sizes)
    except (TiercelError, ZeroDivisionError):
        return 0


# ---- values ----------------------------------------------------------------------------------------------------------


def _value(
    number: int, spec: InputSpec, sizes: Mapping[str, int], how: str, hints: Hints, generator: np.random.Generator
) -> Any:
    if spec.kind == "array":
        shape = tuple(size_of(d, sizes) for d in spec.dims)
        array = _array(shape, spec.dtype.numpy, how, generator) if not spec.indexes else _positions(
            shape, spec.dtype.numpy, min(_size(d, sizes) for d in spec.indexes), how, generator
        )  # fmt: skip
        if spec.contiguous:
            return array
        if spec.layout == "F":
            return np.asfortranarray(array)
        return _strided(array, generator, keep_order=spec.layout == "rows")
    if spec.value is not None:
        return size_of(spec.value, sizes)
    sampled = hints.scalars.get(number)
    if sampled and generator.integers(0, 4):
        value = sampled[int(generator.integers(0, len(sampled)))]
    elif spec.kind == "pybool" or spec.dtype.kind == "b":
        value = bool(generator.integers(0, 2))
    elif spec.dtype.kind in "iu":
        value = int(generator.integers(0, 9))
    else:
        value = float(np.float32(generator.standard_normal()))
    if spec.kind == "npscalar":
        return spec.dtype.numpy.type(value)
    return {"pyint": int, "pyfloat": float, "pybool": bool}[spec.kind](value)


def _positions(
    shape: tuple[int, ...], dtype: np.dtype[Any], size: int, how: str, generator: np.random.Generator
) -> np.ndarray[Any, Any]:
    """Indices into an axis of `size`; also from the end, but for plain ones."""
    limits = np.iinfo(dtype)
    high = max(1, min(size, int(limits.max)))
    low = 0 if how == "plain" else max(-size, int(limits.min))
    return generator.integers(low, high, shape, dtype=dtype)


def _scaled(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Weights as they are in practice: products of them keep the size of what they are multiplied with."""
    if weights.dtype.kind not in "fV" or max(weights.shape, default=0) < _WIDE:
        return weights
    return (weights.astype(np.float32) / np.float32(max(weights.shape) ** 0.5)).astype(weights.dtype)


def _array(
    shape: tuple[int, ...], dtype: np.dtype[Any], how: str, generator: np.random.Generator
) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape, dtype=np.int64))
    some = min(count, _BLOCK)
    flat: np.ndarray[Any, Any]
    if dtype.kind == "b":
        flat = generator.integers(0, 2, some).astype(bool)
    elif dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if how == "plain":
            low, high = (-8 if dtype.kind == "i" else 0), 9
        else:
            low, high = int(limits.min), int(limits.max)
        flat = generator.integers(low, high, some, dtype=dtype, endpoint=how != "plain")
    elif dtype.kind == "c":
        flat = (generator.standard_normal(some) + 1j * generator.standard_normal(some)).astype(dtype)
    else:
        start = int(generator.integers(0, _BLOCK))
        flat = _normals()[start : start + some].astype(dtype)
        if how == "wide":
            with np.errstate(all="ignore"):
                flat = (flat.astype(np.float64) * np.exp2(generator.integers(-6, 7, some))).astype(dtype)
        if how == "special" and some:
            # at the beginning only: in the first rows, where a program sums along rows
            many = min(some, max(len(_SPECIAL), some // 8))
            with np.errstate(all="ignore"):
                flat[:many] = generator.permutation(np.resize(_SPECIAL, many)).astype(dtype)
    if some < count:
        flat = np.resize(flat, count)
    return flat.reshape(shape)


@functools.cache
def _normals() -> np.ndarray[Any, Any]:
    """Normally distributed numbers, twice behind one another."""
    return np.tile(np.random.default_rng(20_26).standard_normal(_BLOCK, dtype=np.float32), 2)


def _strided(
    array: np.ndarray[Any, Any], generator: np.random.Generator, *, keep_order: bool = False
) -> np.ndarray[Any, Any]:
    """The same array with its axes in another order in memory (unless it is to be kept), with gaps, or backwards."""
    if not array.ndim or not array.size:
        return array
    order = np.arange(array.ndim) if keep_order else generator.permutation(array.ndim)
    step = int(generator.integers(1, 3))
    whole = np.zeros([array.shape[a] * step for a in order], array.dtype)
    view = whole[tuple(slice(None, None, step) for _ in order)].transpose(np.argsort(order))
    axis = int(generator.integers(0, array.ndim))
    if generator.integers(0, 2):
        view = np.flip(view, axis)
    view[...] = array
    return view
