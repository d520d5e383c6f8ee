"""Comparing a jitted function with the undecorated one, in everything a caller could notice.

In: a function and argument sets. Out: nothing, or an AssertionError that says what differs, where, and for which
arguments.

Every run gets fresh copies of the arguments, with the same layouts and the same sharing of memory among them. An
`Observation` of a run holds the result with its types, dtypes, strides and sharing, the exception with its user-visible
traceback, the warnings with their places, what was printed, the arguments afterwards and the state of NumPy's random
generator; `differences` compares two of them. Interpreted code must be equal to the bit.
"""

from __future__ import annotations

import collections.abc
import contextlib
import copy
import dataclasses
import functools
import io
import itertools
import operator
import os
import random
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

import tiercel
from tiercel.api import is_jitted

__all__ = ["Arguments", "Observation", "arguments", "arrays", "check", "copy_arguments", "differences", "observe"]

# The conditions under which every argument set is run: filter of warnings, NumPy's error state.
MODES: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "default": ("always", {}),
    "warnings as errors": ("error", {}),
    "errstate raise": ("always", {"all": "raise"}),
}
_PACKAGE: Final = os.path.dirname(os.path.abspath(tiercel.__file__)) + os.sep


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        shown = [_short(a) for a in self.args] + [f"{k}={_short(v)}" for k, v in self.kwargs.items()]
        return f"({', '.join(shown)})"


def arguments(*args: Any, **kwargs: Any) -> Arguments:
    """Return an argument set with keywords, for `check`."""
    return Arguments(args, kwargs)


def arrays(*shapes: Sequence[int], dtype: Any = np.float32, seed: int = 0) -> Arguments:
    """Return an argument set of random arrays of these shapes, for `check`.

    Args:
        shapes: one per argument.
        dtype: any NumPy dtype; integers are small, complex numbers have both parts.
        seed: of the random generator.
    """
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    out = []
    for shape in shapes:
        values: Any = rng.standard_normal(tuple(shape))
        if kind in "iu":
            values = rng.integers(0, 10, tuple(shape))
        elif kind == "c":
            values = values + 1j * rng.standard_normal(tuple(shape))
        elif kind == "b":
            values = values > 0
        out.append(np.asarray(values).astype(dtype))
    return Arguments(tuple(out))


@dataclass(slots=True)
class Observation:
    """Everything a caller could notice of one call.

    Attributes:
        result: what was returned, or None.
        exception: what was raised, or None.
        warnings: category, message, file and line of each.
        output: what was printed.
        inputs: the arguments, as they were afterwards.
        before: the same objects as they were before, for tracing results back to arguments.
        random_state: of NumPy's and Python's global generators, afterwards.
        traceback: file, line and function name per frame of the user's, outermost first.
        carets: per frame of `traceback` the position that is marked: line, end line, columns.
    """

    inputs: Arguments
    result: Any = None
    exception: BaseException | None = None
    warnings: list[tuple[type[Warning], str, str, int]] = field(default_factory=list)
    output: str = ""
    random_state: Any = None
    traceback: list[tuple[str, int | None, str]] = field(default_factory=list)
    carets: list[tuple[int | None, ...]] = field(default_factory=list)


def check(
    function: Callable[..., Any],
    *argument_sets: Any,
    reference: Callable[..., Any] | None = None,
    levels: Sequence[str] = ("O0", "O2"),
    modes: Sequence[str] = tuple(MODES),
    repeat: int = 2,
) -> None:
    """Compare a jitted function with the undecorated one.

    Args:
        function: the result of `tc.jit`; a plain function is jitted first.
        argument_sets: each a tuple of positional arguments, an `Arguments`, or a function without parameters that
            makes either afresh (for arguments that cannot be copied). None at all means one call without arguments.
        reference: what to compare with; the undecorated function if not given.
        levels: the tiers to run at.
        modes: the conditions to run under, of `MODES`.
        repeat: how often to call at each level.

    Raises:
        AssertionError: something differs.
        TypeError: an argument set is none.
    """
    if reference is None:
        reference = _undecorated(function)
        if reference is None:
            reference, function = function, tiercel.jit(function)
    for number, given in enumerate(argument_sets or ((),)):
        for mode in modes:
            expected = observe(reference, _fresh(given), mode=mode)
            for level in levels:
                with tiercel.context(level=level):
                    for attempt in range(repeat):
                        actual = observe(function, _fresh(given), mode=mode)
                        found = differences(expected, actual, tolerance=0.0 if level == "O0" else _TOLERANCE)
                        if found:
                            name = getattr(function, "__qualname__", repr(function))
                            head = (
                                f"{name}{_fresh(given)!r} (argument set {number}) differs from the undecorated "
                                f"function at level {level}, call {attempt + 1}, mode {mode!r}:"
                            )
                            raise AssertionError("\n  ".join([head, *found]))


def _undecorated(function: Any) -> Any:
    """Return what a jitted function, method or partial was made of; None if it is not jitted."""
    if isinstance(function, types.MethodType):
        inner = _undecorated(function.__func__)
        return None if inner is None else types.MethodType(inner, function.__self__)
    if isinstance(function, functools.partial):
        inner = _undecorated(function.func)
        return None if inner is None else functools.partial(inner, *function.args, **function.keywords)
    return function.__wrapped__ if is_jitted(function) else None


def _fresh(given: Any) -> Arguments:
    if callable(given) and not isinstance(given, Arguments):
        given = given()
        return given if isinstance(given, Arguments) else Arguments(tuple(given))
    if isinstance(given, Arguments):
        return copy_arguments(given)
    if isinstance(given, tuple | list):
        return copy_arguments(Arguments(tuple(given)))
    raise TypeError(
        f"an argument set is a tuple of arguments, tiercel.testing.arguments(...) or a function that makes one, "
        f"got {type(given).__name__}"
    )


# ---- copies ----------------------------------------------------------------------------------------------------------


def copy_arguments(given: Arguments) -> Arguments:
    """Return a deep copy whose arrays have the same strides, flags and sharing of memory as the given ones."""
    memo: dict[int, Any] = {}
    for array in _arrays_inside((given.args, dict(given.kwargs))):
        _copy_array(array, memo)
    return Arguments(copy.deepcopy(given.args, memo), copy.deepcopy(dict(given.kwargs), memo))


def _arrays_inside(value: Any, seen: set[int] | None = None) -> Iterator[np.ndarray[Any, Any]]:
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    if type(value) is np.ndarray:
        yield value
    for child in _children(value).values():
        yield from _arrays_inside(child, seen)


def _copy_array(array: np.ndarray[Any, Any], memo: dict[int, Any]) -> np.ndarray[Any, Any]:
    known = memo.get(id(array))
    if known is not None:
        return known  # type: ignore[no-any-return]
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    made: np.ndarray[Any, Any]
    if root is array or array.dtype.hasobject or type(root) is not np.ndarray or not _is_plain(root):
        made = array.copy(order="K")
    else:
        flat = _copy_array(root, memo).ravel(order="K").view(np.uint8)
        offset = _address(array) - _address(root)
        made = np.ndarray(array.shape, array.dtype, flat, offset, array.strides)
    if not array.flags.writeable:
        made.flags.writeable = False
    memo[id(array)] = made
    return made


def _is_plain(root: np.ndarray[Any, Any]) -> bool:
    """Whether an array is one dense piece of memory of its own, so that views of its copy can be made alike."""
    dense = root.flags.c_contiguous or root.flags.f_contiguous
    return bool(dense and root.base is None and root.size)


# ---- observing -------------------------------------------------------------------------------------------------------


def observe(function: Callable[..., Any], given: Arguments, *, mode: str = "default") -> Observation:
    """Call a function and return everything a caller could notice.

    Args:
        function: what to call.
        given: its arguments; not copied.
        mode: one of `MODES`.
    """
    seen = Observation(given)
    warning_filter, error_state = MODES[mode]
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - users call the global one
    random.seed(12345)
    np.random.seed(12345)  # noqa: NPY002
    printed = io.StringIO()
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            np.errstate(**error_state),
            contextlib.redirect_stdout(printed),
        ):
            warnings.simplefilter(warning_filter)  # type: ignore[arg-type]
            try:
                seen.result = function(*given.args, **given.kwargs)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is compared
                seen.exception = error
                _read_traceback(error, seen)
    finally:
        seen.random_state = (random.getstate(), np.random.get_state())  # noqa: NPY002
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
    seen.output = printed.getvalue()
    seen.warnings = [
        (w.category, str(w.message), w.filename, w.lineno)
        for w in caught
        if not issubclass(w.category, tiercel.TiercelWarning)
    ]
    return seen


def _read_traceback(error: BaseException, seen: Observation) -> None:
    # The first entry is `observe` itself.
    entry = error.__traceback__.tb_next if error.__traceback__ else None
    while entry is not None:
        code = entry.tb_frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            seen.traceback.append((code.co_filename, entry.tb_lineno, code.co_name))
            seen.carets.append(next(itertools.islice(code.co_positions(), entry.tb_lasti // 2, None)))
        entry = entry.tb_next


# ---- comparing -------------------------------------------------------------------------------------------------------


def differences(
    expected: Observation,
    actual: Observation,
    *,
    tracebacks: bool = True,
    carets: bool = False,
    tolerance: float = 0.0,
) -> list[str]:
    """Return what a caller could tell apart, one line each; an empty list if nothing.

    Args:
        expected: of the undecorated function.
        actual: of the other one.
        tracebacks: whether the frames of an exception count.
        carets: whether the columns that a traceback marks count.
        tolerance: by how many units of 2**-23 (float32) or 2**-52 (float64) results may differ, relative to the largest
            element beside them; compiled code adds in another order. 0 compares bits.
    """
    out: list[str] = []
    if type(expected.exception) is not type(actual.exception):
        out.append(f"exception: expected {_outcome(expected)}, got {_outcome(actual)}")
    elif expected.exception is not None and actual.exception is not None:
        out += _compare_exceptions(expected.exception, actual.exception, "exception")
        if tracebacks and expected.traceback != actual.traceback:
            out.append(f"traceback: expected {expected.traceback}, got {actual.traceback}")
        elif carets and expected.carets != actual.carets:
            out.append(f"carets: expected {expected.carets}, got {actual.carets}")
    comparison = _Comparison(out)
    if expected.exception is None and actual.exception is None:
        comparison.tolerance = tolerance
        comparison.compare(expected.result, actual.result, "result")
        comparison.tolerance = 0.0
    comparison.compare(expected.inputs.args, actual.inputs.args, "argument")
    comparison.compare(dict(expected.inputs.kwargs), dict(actual.inputs.kwargs), "argument")
    out += _compare_sharing(expected, actual)
    if expected.warnings != actual.warnings:
        out.append(f"warnings: expected {_show_warnings(expected)}, got {_show_warnings(actual)}")
    if expected.output != actual.output:
        out.append(f"printed: expected {expected.output!r}, got {actual.output!r}")
    if not _same_state(expected.random_state, actual.random_state):
        out.append("random state: the global generators were used differently")
    return out


def _outcome(seen: Observation) -> str:
    if seen.exception is None:
        return f"the result {_short(seen.result)}"
    return f"{type(seen.exception).__name__}: {seen.exception}"


def _show_warnings(seen: Observation) -> list[str]:
    return [f"{c.__name__}: {m} ({os.path.basename(f)}:{line})" for c, m, f, line in seen.warnings]


def _same_state(a: Any, b: Any) -> bool:
    (python_a, numpy_a), (python_b, numpy_b) = a, b
    return python_a == python_b and all(np.array_equal(x, y) for x, y in zip(numpy_a, numpy_b, strict=True))


def _compare_exceptions(expected: BaseException | None, actual: BaseException | None, where: str) -> list[str]:
    if expected is None or actual is None:
        if expected is actual:
            return []
        return [f"{where}: expected {expected!r}, got {actual!r}"]
    if type(expected) is not type(actual) or str(expected) != str(actual):
        return [f"{where}: expected {type(expected).__name__}: {expected}, got {type(actual).__name__}: {actual}"]
    out: list[str] = []
    _Comparison(out).compare(expected.args, actual.args, f"{where}.args")
    if expected.__suppress_context__ != actual.__suppress_context__:
        out.append(f"{where}.__suppress_context__: expected {expected.__suppress_context__}")
    if expected.__cause__ is not expected or actual.__cause__ is not actual:
        out += _compare_exceptions(expected.__cause__, actual.__cause__, f"{where}.__cause__")
    if expected.__context__ is not expected.__cause__ or actual.__context__ is not actual.__cause__:
        out += _compare_exceptions(expected.__context__, actual.__context__, f"{where}.__context__")
    return out


# Compared with `==` and by exact type.
_ATOMS: Final = (bool, int, str, bytes, bytearray, type(None), type(Ellipsis), range, slice, np.dtype, type, complex)


_TOLERANCE = 16.0
"""Units in which `check` lets compiled results differ."""


class _Comparison:
    """Walks two values side by side and notes every difference."""

    def __init__(self, out: list[str]) -> None:
        self.out = out
        self.seen: set[tuple[int, int]] = set()
        self.tolerance = 0.0

    def _same(self, expected: Any, actual: Any) -> bool:
        """Equal bits, or close enough."""
        return _same_bits(expected, actual) or (self.tolerance > 0 and _close(expected, actual, self.tolerance))

    def compare(self, expected: Any, actual: Any, where: str) -> None:
        pair = (id(expected), id(actual))
        if pair in self.seen:
            return
        self.seen.add(pair)
        if type(expected) is not type(actual):
            self.out.append(
                f"{where}: expected {_short(expected)} of type {_type_name(expected)}, got {_short(actual)} of type "
                f"{_type_name(actual)}"
            )
        elif isinstance(expected, np.ndarray):
            self._arrays(expected, actual, where)
        elif isinstance(expected, np.generic):
            self._numpy_scalars(expected, actual, where)
        elif isinstance(expected, float):
            if not self._same(np.float64(expected), np.float64(actual)):
                self._differs(expected, actual, where)
        elif isinstance(expected, complex):
            if not _same_bits(np.complex128(expected), np.complex128(actual)):
                self._differs(expected, actual, where)
        elif isinstance(expected, _ATOMS):
            if expected is not actual and expected != actual:
                self._differs(expected, actual, where)
        elif isinstance(expected, BaseException):
            self.out += _compare_exceptions(expected, actual, where)
        elif isinstance(expected, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
            if getattr(expected, "__qualname__", None) != getattr(actual, "__qualname__", None):
                self._differs(expected, actual, where)
        elif isinstance(expected, collections.abc.Set):
            if expected != actual:
                self._differs(expected, actual, where)
        elif isinstance(expected, collections.abc.Iterator):
            self._iterators(expected, actual, where)
        else:
            self._children(expected, actual, where)

    def _differs(self, expected: Any, actual: Any, where: str) -> None:
        self.out.append(f"{where}: expected {_short(expected)}, got {_short(actual)}")

    def _children(self, expected: Any, actual: Any, where: str) -> None:
        left, right = _children(expected), _children(actual)
        if list(left) != list(right):
            self.out.append(f"{where}: expected the parts {list(left)}, got {list(right)}")
            return
        if not left and not _compares_by_identity(type(expected)) and not _container(expected):
            if expected != actual:
                self._differs(expected, actual, where)
            return
        for key, value in left.items():
            self.compare(value, right[key], f"{where}{key}")

    def _iterators(self, expected: Any, actual: Any, where: str) -> None:
        # An iterator is used up by comparing it; a result that is one can hardly be compared otherwise.
        end = object()
        for i, (a, b) in enumerate(itertools.islice(itertools.zip_longest(expected, actual, fillvalue=end), 10_000)):
            if (a is end) != (b is end):
                self.out.append(f"{where}: the iterators have different lengths, one of them {i}")
                return
            self.compare(a, b, f"{where}<item {i}>")

    def _numpy_scalars(self, expected: Any, actual: Any, where: str) -> None:
        if expected.dtype != actual.dtype:
            self.out.append(f"{where}: expected dtype {expected.dtype}, got {actual.dtype}")
        elif not self._same(expected, actual):
            self._differs(expected, actual, where)

    def _arrays(self, expected: Any, actual: Any, where: str) -> None:
        for what in ("dtype", "shape", "strides"):
            left, right = getattr(expected, what), getattr(actual, what)
            if left != right:
                self.out.append(f"{where}: expected {what} {left}, got {right}")
                return
        for what in ("writeable", "owndata", "aligned"):
            left, right = getattr(expected.flags, what), getattr(actual.flags, what)
            if left != right:
                self.out.append(f"{where}: expected flag {what} {left}, got {right}")
        if expected.dtype.hasobject:
            for position in np.ndindex(expected.shape):
                self.compare(expected[position], actual[position], f"{where}{list(position)}")
            return
        if not self._same(expected, actual):
            self.out.append(f"{where}: {_describe_values(expected, actual)}")


def _describe_values(expected: Any, actual: Any) -> str:
    wrong = ~_equal_elements(expected, actual)
    position = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} elements differ, the first at {list(position)}: expected "
        f"{expected[position]!r}, got {actual[position]!r}"
    )


def _same_bits(expected: Any, actual: Any) -> bool:
    return bool(_equal_elements(np.asarray(expected), np.asarray(actual)).all())


def _close(expected: Any, actual: Any, units: float) -> bool:
    """Equal where not finite, else within `units` of the dtype's precision, relative to the largest element."""
    expected, actual = np.asarray(expected), np.asarray(actual)
    if expected.dtype.kind != "f":
        return False
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(actual)):
        return False
    if not bool(_equal_elements(expected[~finite], actual[~finite]).all()):
        return False
    wide_expected, wide_actual = expected[finite].astype(np.float64), actual[finite].astype(np.float64)
    bound = units * float(np.finfo(expected.dtype).eps) * max(1.0, float(np.abs(wide_expected).max(initial=0.0)))
    return bool((np.abs(wide_expected - wide_actual) <= bound).all())


def _equal_elements(expected: Any, actual: Any) -> Any:
    """Equal element by element: NaN equals NaN, 0.0 does not equal -0.0."""
    with np.errstate(all="ignore"):
        if expected.dtype.kind == "c":
            return _equal_elements(expected.real, actual.real) & _equal_elements(expected.imag, actual.imag)
        equal = np.asarray(expected == actual)
        if expected.dtype.kind in "fV" and expected.dtype.names is None and expected.dtype.kind == "f":
            both_nan = np.isnan(expected) & np.isnan(actual)
            equal = (equal & (np.signbit(expected) == np.signbit(actual))) | both_nan
        elif expected.dtype.kind in "mM":
            equal = equal | (np.isnat(expected) & np.isnat(actual))
    return np.asarray(equal)


# ---- sharing ---------------------------------------------------------------------------------------------------------


def _compare_sharing(expected: Observation, actual: Observation) -> list[str]:
    """Compare which results are, or share memory with, which arguments and which other results."""
    left, right = _sharing(expected), _sharing(actual)
    out = []
    for place in sorted(left.keys() | right.keys()):
        if left.get(place) != right.get(place):
            out.append(
                f"sharing: {place} should be {left.get(place, 'independent')}, is {right.get(place, 'independent')}"
            )
    return out


def _sharing(seen: Observation) -> dict[str, str]:
    objects: list[tuple[str, Any]] = []
    _collect(seen.inputs.args, "argument", objects, set())
    _collect(dict(seen.inputs.kwargs), "argument", objects, set())
    _collect(seen.result, "result", objects, set())
    found: dict[str, str] = {}
    first_at: dict[int, str] = {}
    arrays: list[tuple[str, np.ndarray[Any, Any]]] = []
    for place, value in objects:
        earlier = first_at.get(id(value))
        if earlier is not None:
            found[place] = f"the same object as {earlier}"
            continue
        if not isinstance(value, np.ndarray) and _is_interned(value):
            continue
        first_at[id(value)] = place
        if isinstance(value, np.ndarray):
            shared = []
            for other_place, other in arrays:
                if np.may_share_memory(value, other) and _share(value, other):
                    distance = _address(value) - _address(other)
                    shared.append(f"{other_place} at distance {distance}")
            if shared:
                found[place] = "sharing memory with " + ", ".join(shared)
            arrays.append((place, value))
    return found


def _is_interned(value: Any) -> bool:
    # Immutable: whether two of them are one object is the implementation's choice.
    if isinstance(value, tuple):
        return all(_is_interned(v) for v in value)
    return isinstance(value, (*_ATOMS, float, np.generic, frozenset, types.FunctionType, types.BuiltinFunctionType))


def _share(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    try:
        return np.shares_memory(a, b, max_work=100_000)  # type: ignore[arg-type]  # NumPy's stub knows two of its values
    except (np.exceptions.TooHardError, TypeError):
        return True


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _collect(value: Any, place: str, out: list[tuple[str, Any]], seen: set[int]) -> None:
    out.append((place, value))
    if id(value) in seen:
        return
    seen.add(id(value))
    for key, child in _children(value).items():
        _collect(child, f"{place}{key}", out, seen)


# ---- structure -------------------------------------------------------------------------------------------------------


def _compares_by_identity(cls: type) -> bool:
    return getattr(cls, "__eq__", None) is getattr(object, "__eq__", None)


def _container(value: Any) -> bool:
    return isinstance(value, tuple | list | collections.abc.Mapping) or dataclasses.is_dataclass(value)


def _children(value: Any) -> dict[str, Any]:
    """Return the parts of a value by their spelling: items, entries, fields, attributes."""
    if isinstance(value, np.ndarray | np.generic | str | bytes | type | types.ModuleType | types.FunctionType):
        return {}
    if isinstance(value, tuple | list | collections.deque):
        return {f"[{i}]": v for i, v in enumerate(value)}
    if isinstance(value, collections.abc.Mapping):
        return {f"[{k!r}]": v for k, v in value.items()}
    if isinstance(value, collections.abc.Set | collections.abc.Iterator):
        return {}
    found: dict[str, Any] = {}
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[f".{name}"] = getattr(value, name)
    try:
        attributes = operator.attrgetter("__dict__")(value)
    except AttributeError:
        attributes = {}
    found.update({f".{k}": v for k, v in attributes.items()})
    return found


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{type(value).__name__}({value.dtype}{list(value.shape)})"
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - the value under test may have a broken repr
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= 120 else text[:117] + "..."


def _type_name(value: Any) -> str:
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
