"""Checks a call of an operator against everything its row claims.

In: a row and a `Sample` (operands, attributes, how the call is spelt). The call is really made; then the row's columns
are compared with what came out: exact Python type, dtype, shape, layout (flags and strides), what the result shares
with the operands, what was written; and the same again with symbols in place of sizes. A call that the reference
refuses must be refused by the rules, and the other way round.

A family of rows registers samples in `SAMPLES` (row name -> function yielding samples) and an independent way to
compute the same values in `ORACLES`; `test_table.py` fails for a row that has none.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from tiercel.dtypes import DTYPES, DType, as_dtype
from tiercel.errors import DTypeError, ShapeError
from tiercel.operators import (
    ArrayType,
    Layout,
    ListType,
    NotStatic,
    NpScalarType,
    Operator,
    OutOfRangeError,
    PyIntType,
    Spelling,
    TupleType,
    Type,
    get,
    type_of,
)
from tiercel.shapes import Facts, Symbol, evaluate

FLOATS = tuple(d for d in DTYPES if d.is_float)
LAYOUTS = ("C", "F", "swapped", "sliced", "negative", "broadcast")

Samples = Callable[[np.random.Generator], Iterable["Sample"]]
SAMPLES: dict[str, Samples] = {}
ORACLES: dict[str, Callable[..., Any]] = {}


@dataclass
class Sample:
    """One call.

    Attributes:
        operands: values in the row's order; sequences for "operands" parameters; None for optional ones not given.
        attributes: by row parameter.
        spelling: None calls the reference; ("method", "sum") calls that spelling.
        static: whether the rules must have an answer; False allows NotStatic.
        symbolic: whether they must also have one when every size is a symbol.
        compare: whether the values are compared with the oracle.
        layout: whether the layout must be known for sizes that are known; False where strides decide.
    """

    operands: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    spelling: tuple[str, str] | None = None
    static: bool = True
    symbolic: bool = True
    compare: bool = True
    layout: bool = True

    def __str__(self) -> str:
        operands = ", ".join(_describe(x) for x in self.operands)
        attributes = "".join(f", {k}={v!r}" for k, v in self.attributes.items())
        return f"{self.spelling or 'reference'}({operands}{attributes})"


def _describe(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return f"{x.dtype}{list(x.shape)}/{x.strides}"
    if isinstance(x, np.generic):
        return f"np.{x.dtype}({x})"
    if isinstance(x, list | tuple):
        return f"{type(x).__name__}[{', '.join(map(_describe, x))}]"
    return repr(x)


def family(*names: str) -> Callable[[Samples], Samples]:
    """Register the samples of these rows."""

    def register(samples: Samples) -> Samples:
        for name in names:
            assert name not in SAMPLES, f"two sets of samples for {name}"
            SAMPLES[name] = samples
        return samples

    return register


def make(
    rng: np.random.Generator, shape: Sequence[int], dtype: Any = "float32", layout: str = "C", *, special: bool = False
) -> np.ndarray[Any, Any]:
    """An array of this shape with one of `LAYOUTS`.

    Floats are within -4..4 with NaN, infinities and zeros of both signs spread in if `special`; integers small, with
    the type's ends if `special`.
    """
    dtype = as_dtype(dtype)
    shape = tuple(shape)
    rank = len(shape)
    if layout == "F":
        return np.asfortranarray(_fill(rng, shape, dtype, special))
    if layout == "swapped":  # axes in an order that is neither C nor F from rank 3 on
        order = (*range(1, rank), 0) if rank > 1 else tuple(range(rank))
        block = _fill(rng, tuple(shape[a] for a in order), dtype, special)
        return block.transpose(np.argsort(order)) if rank else block
    if layout == "sliced":
        block = _fill(rng, tuple(2 * n + 1 for n in shape), dtype, special)
        return block[tuple(slice(1, 2 * n + 1, 2) for n in shape)]
    if layout == "negative":
        return _fill(rng, shape, dtype, special)[tuple(slice(None, None, -1) for _ in shape)]
    if layout == "broadcast":
        block = _fill(rng, (1, *shape[1:]), dtype, special) if rank else _fill(rng, shape, dtype, special)
        return np.broadcast_to(block, shape)
    return _fill(rng, shape, dtype, special)


def _fill(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, special: bool) -> np.ndarray[Any, Any]:
    if dtype.is_bool:
        return rng.random(shape) < 0.5
    if dtype.is_integer:
        x = rng.integers(0 if dtype.kind == "u" else -9, 10, shape).astype(dtype.numpy)
        edges = [dtype.min, dtype.max, 0, 1]
    else:
        x = rng.uniform(-4, 4, shape)
        if dtype.is_complex:
            x = x + 1j * rng.uniform(-4, 4, shape)
        x = np.asarray(x).astype(dtype.numpy)
        edges = [np.nan, np.inf, -np.inf, 0.0, -0.0, float(dtype.max), float(dtype.finfo.smallest_subnormal), 1.0]
    if special and x.size and not dtype.is_complex:
        flat = x.reshape(-1)
        for i, value in enumerate(edges[: flat.size]):
            flat[(i * 3) % flat.size] = value
    return x


def invoke(row: Operator, sample: Sample, operands: Sequence[Any]) -> Any:
    """Make the call in the sample's spelling."""
    if sample.spelling is None:
        return row.evaluate(*operands, **sample.attributes)
    spelling = row.spellings[spelling_index(row, sample)]
    args, keywords = spell(row, spelling, operands, sample.attributes)
    if spelling.kind == "class":
        return spelling.callable(**keywords)(*args)
    return spelling.callable(*args, **keywords)


def spelling_index(row: Operator, sample: Sample) -> int:
    """The index of the sample's spelling; the `ops` one stands for the reference."""
    if sample.spelling is None:
        return row.spelling_index("ops")
    return row.spelling_index(*sample.spelling)  # type: ignore[arg-type]


def spell(
    row: Operator, spelling: Spelling, operands: Sequence[Any], attributes: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a call in this spelling: what stands in its positional part first, the rest by keyword."""
    values = dict(zip([p.name for p in row.parameters], operands, strict=False)) | attributes
    own = {row_name: keyword for keyword, row_name in spelling.keywords.items()}
    args: list[Any] = []
    positional = list(spelling.parameters)
    for word in positional:
        name = word.removeprefix("*")
        if name not in values:
            break
        args.append(values.pop(name))
    values = {name: value for name, value in values.items() if value is not None or name in own}
    return args, {own[name]: value for name, value in values.items()}


def check(row: Operator | str, sample: Sample) -> Any:
    """Make the call and compare everything; returns the result (or the exception the reference raised)."""
    if isinstance(row, str):
        row = get(row)
    try:
        return _check(row, sample)
    except AssertionError as error:
        error.add_note(f"{row.name}: {sample}")
        raise


def _check(row: Operator, sample: Sample) -> Any:
    before = [_copy(x) for x in sample.operands]
    types = [_sequence_type(t) for t in map(type_of, sample.operands)]
    index = spelling_index(row, sample)
    real: Any
    try:
        with quiet():
            real = invoke(row, sample, sample.operands)
    except (TypeError, ValueError, IndexError, OverflowError, ZeroDivisionError) as error:
        real = error
    bound = _bind(row, index, types, sample.attributes)
    try:
        uppers: dict[Any, Any] = {}

        def fresh(upper: Any) -> Any:
            symbol = Symbol(f"u{len(uppers)}", "data")
            uppers[symbol] = upper
            return symbol

        inferred: Any = row.infer(bound, Facts(), fresh)
    except (DTypeError, ShapeError, NotStatic) as error:
        inferred = error
    if isinstance(inferred, NotStatic):
        assert not sample.static, f"the rules have no answer: {inferred.reason}; really {_describe(real)}"
        return real
    if isinstance(real, Exception):
        _check_refusal(row, real, inferred, decided_by_data=bool(uppers))
        return real
    assert not isinstance(inferred, Exception), f"rules refuse with {inferred!r}, really {_describe(real)}"
    check_type(inferred, real, layout=sample.layout, data=_Data(uppers))
    check_alias(row, bound, sample.operands, real)
    effects = row.effects(bound, Facts())
    for position, (x, old) in enumerate(zip(sample.operands, before, strict=True)):
        if effects.kind != "writes" or position not in effects.operands:
            assert same_value(x, old), f"operand {position} was changed but the row has effect {effects}"
    if sample.symbolic:
        check_symbolic(row, index, types, sample, real, shared=False)
        check_symbolic(row, index, types, sample, real, shared=True)
    return real


def _bind(row: Operator, index: int, types: Sequence[Any], attributes: dict[str, Any]) -> Any:
    spelling = row.spellings[index]
    args, keywords = spell(row, spelling, types, attributes)
    return row.bind(index, args, keywords)


def _sequence_type(t: Type) -> Type:
    return t


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No floating-point or casting warnings."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _check_refusal(row: Operator, real: Exception, inferred: Any, *, decided_by_data: bool) -> None:
    if isinstance(real, OverflowError):
        assert isinstance(inferred, OutOfRangeError), f"really raises {real!r}, rules say {inferred}"
    elif isinstance(real, TypeError):
        assert isinstance(inferred, DTypeError), f"really raises {real!r}, rules say {inferred}"
    elif not isinstance(inferred, ShapeError):
        assert not isinstance(inferred, DTypeError), f"really raises {real!r}, rules say {inferred!r}"
        # Sizes are all known here, so that they do not fit excuses nobody, unless data decides some.
        excuses = {"value", "empty", "negative_power", "index"} | ({"size"} if decided_by_data else set())
        assert excuses & set(row.may_fail), (
            f"really raises {real!r}, which neither the rules nor may_fail={row.may_fail} foresee; rules say {inferred}"
        )


@dataclass
class _Data:
    """The sizes that data decided: each symbol has one size in all results, and no more than its upper bound."""

    uppers: dict[Any, Any]
    sizes: dict[Any, int] = field(default_factory=dict)

    def fits(self, dim: Any, size: int) -> bool:
        if isinstance(dim, int):
            return dim == size
        upper = self.uppers.get(dim)
        if upper is None:
            # An expression of them: nothing is known of its value.
            return bool(_symbols_of(dim)) and all(s in self.uppers for s in _symbols_of(dim))
        return upper is not None and size <= upper and self.sizes.setdefault(dim, size) == size


def check_type(inferred: Any, real: Any, *, layout: bool = True, data: _Data | None = None) -> None:
    """Compare an inferred type with a real result: exact class, dtype, shape, layout.

    Args:
        inferred: from `Operator.infer`.
        real: what the call returned.
        layout: whether the layout must be known.
        data: bounds of sizes that only the data decides.
    """
    data = data or _Data({})
    if isinstance(inferred, TupleType | ListType):
        expected = tuple if isinstance(inferred, TupleType) else list
        assert isinstance(real, expected), f"inferred {inferred}, really a {type(real).__name__}"
        assert inferred.items is not None
        assert len(inferred.items) == len(real), f"inferred {len(inferred.items)} results, really {len(real)}"
        for one, r in zip(inferred.items, real, strict=True):
            check_type(one, r, layout=layout, data=data)
        return
    exact = type_of(real)
    assert type(inferred) is type(exact), f"inferred {inferred}, really {_describe(real)}"
    if isinstance(inferred, ArrayType):
        assert isinstance(exact, ArrayType)
        assert inferred.dtype is exact.dtype, f"inferred dtype {inferred.dtype}, really {exact.dtype}"
        fits = len(inferred.shape) == len(exact.shape) and all(map(data.fits, inferred.shape, real.shape))
        assert fits, f"inferred shape {inferred.shape}, really {exact.shape}"
        assert inferred.layout.is_known or not layout, f"layout not known of {_describe(real)}"
        check_layout(inferred.layout, real)
    elif isinstance(inferred, NpScalarType):
        assert inferred == exact, f"inferred {inferred}, really {exact}"
    elif isinstance(inferred, PyIntType) and isinstance(inferred.value, int):
        assert inferred == exact


def check_layout(layout: Layout, array: np.ndarray[Any, Any]) -> None:
    """Compare a layout with real flags and strides. An unknown layout agrees with everything."""
    if layout.order is None or array.size == 0:
        return
    assert sorted(layout.order) == list(range(array.ndim)), f"layout {layout} of rank {array.ndim}"
    c, f = layout.flags(array.shape)
    actual = (array.flags.c_contiguous, array.flags.f_contiguous)
    for claimed, real in zip((c, f), actual, strict=True):
        assert claimed is None or claimed == real, f"layout {layout} claims flags {(c, f)}, really {actual}"
    expected = array.itemsize
    for depth, axis in enumerate(reversed(layout.order)):
        if depth < layout.packed and array.shape[axis] != 1:
            assert array.strides[axis] == expected, f"layout {layout}, really strides {array.strides} of {array.shape}"
        expected *= array.shape[axis]
    for axis in layout.zero:
        assert array.strides[axis] == 0 or array.shape[axis] == 1, f"layout {layout}, really strides {array.strides}"
    moving = [abs(array.strides[a]) for a in layout.order if array.shape[a] > 1 and array.strides[a] != 0]
    assert moving == sorted(moving, reverse=True), f"layout {layout}, really strides {array.strides} of {array.shape}"


def check_alias(row: Operator, bound: Any, operands: Sequence[Any], real: Any) -> None:
    """Compare the `result` column with what the result really shares."""
    aliases = row.alias(bound, Facts())
    results = real if isinstance(real, tuple | list) else [real]
    for position, result in enumerate(results):
        alias = aliases[position] if isinstance(aliases, list) else aliases
        if alias.kind == "same":
            assert result is operands[alias.operand], f"result is not operand {alias.operand}"
            continue
        if not isinstance(result, np.ndarray):
            continue
        if alias.kind == "same_if" and result is operands[alias.operand]:
            continue
        arrays = [x for x in _flatten(operands) if isinstance(x, np.ndarray)]
        assert not any(result is x for x in arrays), f"result is an operand, but the row says {alias}"
        shared = [np.may_share_memory(result, x) for x in arrays]
        if alias.kind in ("fresh", "same_if"):
            assert not any(shared), "result shares memory with an operand, but the row says fresh"
        elif alias.kind == "view" and result.size:
            source = [x for x in _flatten([operands[alias.operand]]) if isinstance(x, np.ndarray)]
            assert any(np.may_share_memory(result, x) for x in source), f"the row says {alias}, but nothing is shared"


def check_symbolic(row: Operator, index: int, types: Sequence[Any], sample: Sample, real: Any, *, shared: bool) -> None:
    """Infer with symbols for sizes, put the sizes back and compare with the real shapes.

    Args:
        row, index, types, sample, real: the call and its result.
        shared: equal sizes are one symbol; else every dimension has its own.
    """
    env: dict[str, int] = {}
    counter = itertools.count()

    def name(size: int) -> Any:
        symbol = f"n{size}" if shared else f"s{next(counter)}"
        env[symbol] = size
        return Symbol(symbol)

    facts = Facts()
    symbolic = [_with_symbols(t, name) for t in types]
    try:
        inferred = row.infer(_bind(row, index, symbolic, sample.attributes), facts)
    except NotStatic as error:
        raise AssertionError(f"the rules have no answer for symbolic sizes: {error.reason}") from None
    _compare_symbolic(inferred, real, env)


def _with_symbols(t: Any, name: Callable[[int], Any]) -> Any:
    if isinstance(t, ArrayType):
        return ArrayType(t.dtype, tuple(name(d) for d in t.shape), t.layout, t.device, t.wrapper)
    if isinstance(t, TupleType):
        return TupleType(tuple(_with_symbols(i, name) for i in t.items))
    if isinstance(t, ListType) and t.items is not None:
        return ListType(tuple(_with_symbols(i, name) for i in t.items))
    return t


def _compare_symbolic(inferred: Any, real: Any, env: dict[str, int]) -> None:
    if isinstance(inferred, TupleType | ListType):
        assert inferred.items is not None
        for one, r in zip(inferred.items, real, strict=True):
            _compare_symbolic(one, r, env)
    elif isinstance(inferred, ArrayType):
        assert isinstance(real, np.ndarray), f"symbolic: inferred {inferred}, really {_describe(real)}"
        assert inferred.dtype.numpy == real.dtype, f"symbolic: inferred {inferred}, really {_describe(real)}"
        known = set(env)
        assert len(inferred.shape) == real.ndim, f"symbolic: inferred {inferred}, really {_describe(real)}"
        for dim, size in zip(inferred.shape, real.shape, strict=True):
            if all(s.name in known for s in _symbols_of(dim)):
                assert evaluate(dim, env) == size, f"symbolic: inferred {inferred} under {env}, really {real.shape}"
        check_layout(inferred.layout, real)
    else:
        exact = type_of(real)
        assert type(inferred) is type(exact), f"symbolic: inferred {inferred}, really {_describe(real)}"


def _symbols_of(dim: Any) -> Any:
    from tiercel.shapes import symbols_of

    return symbols_of(dim)


def _flatten(operands: Iterable[Any]) -> Iterator[Any]:
    for x in operands:
        if isinstance(x, list | tuple):
            yield from _flatten(x)
        else:
            yield x


def _copy(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return x.copy()
    if isinstance(x, list | tuple):
        return type(x)(_copy(i) for i in x)
    return x


def same_value(a: Any, b: Any) -> bool:
    """Equal bits, lists item by item."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same_value, a, b))
    if isinstance(a, np.generic):
        return a.tobytes() == b.tobytes()
    return a is b or a == b or (a != a and b != b)


def widen(x: Any) -> Any:
    """An operand in the widest type of its kind, for oracles."""
    if isinstance(x, np.ndarray | np.generic):
        if x.dtype == ml_dtypes.bfloat16 or x.dtype.kind == "f":
            return x.astype(np.longdouble)
        if x.dtype.kind == "c":
            return x.astype(np.clongdouble)
    return x


def assert_close(got: Any, want: Any, ulp: float, dtype: Any = None, scale: Any = 1.0) -> None:
    """Compare with a result of wider precision: special values equal, others within `ulp` units in the last place.

    Args:
        got: the result.
        want: the same in higher precision.
        ulp: permitted distance, in units of the spacing at `want` in the result's dtype (at least the smallest
            subnormal).
        dtype: default the result's.
        scale: magnitudes of which the units are taken instead, where they are larger than the result (sums).
    """
    got = np.asarray(got)
    dtype = as_dtype(dtype if dtype is not None else got.dtype)
    if not dtype.is_inexact:
        with quiet():
            np.testing.assert_array_equal(got, np.asarray(want).astype(got.dtype))
        return
    if dtype.is_complex:
        assert_close(got.real, np.real(want), ulp, dtype.real, np.maximum(np.abs(want), scale))
        assert_close(got.imag, np.imag(want), ulp, dtype.real, np.maximum(np.abs(want), scale))
        return
    with quiet():
        wide = got.astype(np.longdouble)
        want = np.asarray(want, dtype=np.longdouble)
        rounded = want.astype(np.float64).astype(dtype.numpy).astype(np.longdouble)
        info = dtype.finfo
        size = np.asarray(scale, dtype=np.longdouble) if np.any(scale != 1.0) else np.longdouble(0)
        unit = np.maximum(np.abs(want), np.where(np.isfinite(size), size, 0))
        unit = np.where(np.isfinite(unit), unit, 0)
        spacing = np.maximum(unit * np.longdouble(float(info.eps)), np.longdouble(float(info.smallest_subnormal)))
        fine = (wide == rounded) | (np.isnan(wide) & np.isnan(rounded)) | (np.abs(wide - want) <= ulp * spacing)
        # Near the largest finite value rounding up gives infinity.
        huge = np.abs(want) >= np.longdouble(float(info.max)) * (1 - 4 * np.longdouble(float(info.eps)))
        fine |= huge & (np.sign(wide) == np.sign(want)) & (np.abs(wide) >= np.longdouble(float(info.max)) * 0.9)
    if not np.all(fine):
        bad = np.argwhere(~np.atleast_1d(fine))[0]
        where = tuple(bad) if got.ndim else ()
        raise AssertionError(f"at {where}: got {got[where]!r}, want {np.broadcast_to(want, got.shape)[where]!r}")


@dataclass
class Want:
    """What an oracle says: the value in higher precision, and how near a result must be (default: by the row)."""

    value: Any
    scale: Any = 1.0
    ulp: float | None = None


def check_row(name: str) -> int:
    """Check every sample of a row, and its values against the oracle; returns how many calls were made."""
    row = get(name)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    count = 0
    for sample in SAMPLES[name](rng):
        count += 1
        operands = [_copy(x) for x in sample.operands] if row.name != "imag" else sample.operands
        result = check(row, sample)
        if not sample.compare or isinstance(result, Exception):
            continue
        with quiet():
            want = ORACLES[name](*operands, **sample.attributes)
        want = want if isinstance(want, Want) else Want(want)
        try:
            compare(row, result, want)
        except AssertionError as error:
            error.add_note(f"{name}: {sample}")
            raise
    return count


def compare(row: Operator, result: Any, want: Want) -> None:
    """Compare values within what the row's exactness allows, results one by one."""
    if isinstance(result, list | tuple):
        assert len(result) == len(want.value)
        for r, w in zip(result, want.value, strict=True):
            compare(row, r, Want(w, want.scale, want.ulp))
        return
    value = np.asarray(want.value)
    assert np.shape(result) == value.shape, f"result has shape {np.shape(result)}, the oracle's {value.shape}"
    ulp = want.ulp
    if ulp is None:
        ulp = 0.51 if row.exactness.kind == "exact" else (row.exactness.ulp or 4.0)
    if isinstance(result, bool | int | float | complex):
        result = np.asarray(result)
    assert_close(result, value, ulp, scale=want.scale)
