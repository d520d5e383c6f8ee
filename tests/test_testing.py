"""The comparison engine: it notices everything it says it notices, and nothing else."""

from __future__ import annotations

import functools
import sys
import warnings

import numpy as np
import pytest

import tiercel as tc
from tiercel.testing import Arguments, arguments, arrays, copy_arguments, differences, observe


def compare(left, right, *args, mode="default", **kwargs):
    """Differences of two functions on copies of the same arguments."""
    given = Arguments(args, kwargs)
    expected = observe(left, copy_arguments(given), mode=mode)
    actual = observe(right, copy_arguments(given), mode=mode)
    return differences(expected, actual, tracebacks=False)


X = np.arange(6.0).reshape(2, 3)


class Point:
    def __init__(self, x):
        self.x = x


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


def returns(value):
    return lambda *_: value()


SAME = [
    lambda: 1,
    lambda: float("nan"),
    lambda: np.float32(2),
    lambda: np.array([np.nan, -0.0, 1]),
    lambda: [1, (2, {"a": X.copy()})],
    lambda: {1, 2},
    lambda: Point(X.copy()),
    lambda: Slotted([1]),
    lambda: iter([1, 2]),
    lambda: slice(1, None),
    lambda: np.array([Point(1)], dtype=object),
    lambda: len,
    lambda: np.complex64(complex(1, -0.0)),
    lambda: np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"),
]


@pytest.mark.parametrize("value", SAME)
def test_equal_results_are_equal(value):
    assert compare(returns(value), returns(value)) == []


DIFFERENT = [
    (lambda: 1, lambda: 2, "expected 1, got 2"),
    (lambda: 1, lambda: 1.0, "of type int"),
    (lambda: True, lambda: 1, "of type bool"),
    (lambda: 0.0, lambda: -0.0, "expected 0.0, got -0.0"),
    (lambda: float("nan"), lambda: 0.0, "nan"),
    (lambda: np.float32(1), lambda: np.float64(1), "numpy.float32"),
    (lambda: np.float64(1), lambda: 1.0, "numpy.float64"),
    (lambda: X, lambda: X.astype(np.float32), "expected dtype float64, got float32"),
    (lambda: X, lambda: X.T, "shape"),
    (X.copy, lambda: np.asfortranarray(X), "strides"),
    (lambda: np.zeros(2), lambda: np.array([0.0, -0.0]), r"1 of 2 elements differ, the first at \[1\]"),
    (lambda: np.zeros(2), lambda: np.array([0.0, np.nan]), "1 of 2 elements differ"),
    (lambda: np.zeros(2, complex), lambda: np.array([0, complex(0, -0.0)]), "1 of 2 elements differ"),
    (lambda: np.zeros(2), lambda: _read_only(np.zeros(2)), "flag writeable"),
    (np.zeros(4)[:2].copy, lambda: np.zeros(4)[:2], "flag owndata"),
    (lambda: [1, 2], lambda: [1, 2, 3], r"the parts"),
    (lambda: [1, [2]], lambda: [1, [3]], r"result\[1\]\[0\]: expected 2, got 3"),
    (lambda: (1,), lambda: [1], "of type tuple"),
    (lambda: {"a": 1, "b": 2}, lambda: {"b": 2, "a": 1}, "the parts"),
    (lambda: {"a": 1}, lambda: {"a": 2}, r"result\['a'\]"),
    (lambda: {1}, lambda: {2}, "expected {1}"),
    (lambda: Point(1), lambda: Point(2), r"result\.x"),
    (lambda: Slotted(1), lambda: Slotted(2), r"result\.x"),
    (lambda: iter([1, 2]), lambda: iter([1]), "different lengths"),
    (lambda: iter([1, 2]), lambda: iter([1, 3]), "<item 1>"),
    (lambda: len, lambda: abs, "len"),
    (lambda: np.array([[1], 2], dtype=object), lambda: np.array([[3], 2], dtype=object), r"result\[0\]\[0\]"),
]


def _read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(("left", "right", "text"), DIFFERENT)
def test_different_results_are_told_apart(left, right, text):
    import re

    found = compare(returns(left), returns(right))
    assert any(re.search(text, line) for line in found), found


def raising(error, cause=None, context=None):
    def function(*_):
        if context is not None:
            try:
                raise context
            except TypeError:
                raise error from cause
        raise error from cause

    return function


@pytest.mark.parametrize(
    ("left", "right", "text"),
    [
        (raising(ValueError("a")), returns(lambda: 1), "expected ValueError: a, got the result 1"),
        (raising(ValueError("a")), raising(TypeError("a")), "expected ValueError: a, got TypeError: a"),
        (raising(ValueError("a")), raising(ValueError("b")), "expected ValueError: a, got ValueError: b"),
        (raising(KeyError(1)), raising(KeyError(1, 2)), "exception"),
        (raising(ValueError("a"), TypeError()), raising(ValueError("a")), "__cause__"),
        (raising(ValueError("a"), None, TypeError()), raising(ValueError("a")), "__context__"),
    ],
)
def test_exceptions(left, right, text):
    assert any(text in line for line in compare(left, right)), compare(left, right)
    assert compare(left, left) == []


def test_tracebacks():
    def left(x):
        return x + None

    def right(x):
        return x + None

    expected, actual = (observe(f, Arguments((1,))) for f in (left, right))
    assert any("traceback" in line for line in differences(expected, actual))
    assert differences(expected, actual, tracebacks=False) == []
    assert differences(expected, expected, carets=True) == []


def test_inputs_afterwards():
    def writes(x):
        x[0] = 7

    def leaves(x):
        return None

    assert any("argument[0]" in line for line in compare(writes, leaves, X))
    assert compare(writes, writes, X) == []
    assert compare(lambda d: d.update(a=1), lambda d: None, {})


def test_sharing_with_inputs():
    whole, view, copied = (lambda x: x), (lambda x: x[:]), (lambda x: x.copy())
    for left, right in [(whole, view), (whole, copied), (view, copied), (view, lambda x: x[1:2])]:
        assert compare(left, right, X)
    assert any("same object" in line for line in compare(whole, view, X))
    other_row = compare(lambda x: x[0], lambda x: x[1], np.zeros((2, 3)))
    assert any("sharing" in line for line in other_row)
    assert compare(view, view, X) == []


def test_sharing_among_results():
    def one(x):
        y = x + 1
        return y, y

    def two(x):
        return x + 1, x + 1

    assert any("sharing: result[1]" in line for line in compare(one, two, X))


def test_identity_of_results_and_inputs_inside_containers():
    assert compare(lambda p: [p], lambda p: [Point(1)], Point(1))
    assert compare(lambda p: [p], lambda p: [p], Point(1)) == []


def test_warnings_and_their_places():
    def one(x):
        warnings.warn("a", UserWarning, stacklevel=1)

    def other(x):
        warnings.warn("a", UserWarning, stacklevel=1)

    assert compare(one, one, X) == []
    assert any("warnings" in line for line in compare(one, other, X))
    assert any("warnings" in line for line in compare(one, lambda x: None, X))
    assert observe(one, Arguments((1,)), mode="warnings as errors").exception is not None


def test_error_state_mode():
    seen = observe(np.log, Arguments((np.zeros(2),)), mode="errstate raise")
    assert type(seen.exception) is FloatingPointError


def test_printed_text():
    assert any("printed" in line for line in compare(lambda: print("a"), lambda: print("b")))
    assert compare(lambda: print("a"), lambda: print("a")) == []


def test_random_state():
    assert any("random" in line for line in compare(lambda: np.random.rand() * 0, lambda: 0.0))
    assert compare(np.random.rand, np.random.rand) == []


def test_base_exceptions_are_observed():
    assert isinstance(observe(lambda: sys.exit(3), Arguments()).exception, SystemExit)


# ---- copies ----------------------------------------------------------------------------------------------------------

LAYOUTS = [
    X,
    X.T,
    X[::-1],
    X[:, ::-2],
    np.asfortranarray(X),
    np.broadcast_to(X[0], (4, 3)),
    np.zeros((0, 3)),
    np.array(5.0),
    _read_only(X.copy()),
    np.array([[1], "a"], dtype=object),
    X.astype(">f8"),
]


@pytest.mark.parametrize("array", LAYOUTS)
def test_copies_keep_layout_and_flags(array):
    (made,) = copy_arguments(Arguments((array,))).args
    assert made is not array
    assert not np.shares_memory(made, array)
    for what in ("dtype", "shape", "strides"):
        assert getattr(made, what) == getattr(array, what)
    assert made.flags.writeable == array.flags.writeable
    assert made.flags.owndata == (array.flags.owndata or array.dtype.hasobject)
    assert differences(observe(lambda x: x, Arguments((array,))), observe(lambda x: x, Arguments((made,)))) == []


def test_copies_keep_sharing():
    base = np.arange(10.0)
    given = Arguments((base, base[2:6], [base[::-1], base]), {"k": base[3:4]})
    copied = copy_arguments(given)
    a, b, (c, d) = copied.args
    assert a is d
    b[0] = 100
    assert a[2] == 100
    assert c[7] == 100
    copied.kwargs["k"][0] = 50
    assert b[1] == 50
    assert base[2] == 2


# ---- check -----------------------------------------------------------------------------------------------------------


def test_check_accepts_what_is_right():
    tc.testing.check(lambda x, k=2: x * k, (X,), arguments(X, k=3), arrays((2, 3)), lambda: (X.copy(), 4))
    tc.testing.check(lambda: 1)


def test_check_reports_what_is_wrong():
    def wrong_for_arrays(x):
        return x + 1 + np.ndim(x)

    expected = r"float64\[2, 3\].*argument set 1.*level O0, call 1, mode 'default'"
    with pytest.raises(AssertionError, match=expected) as caught:
        tc.testing.check(tc.jit(lambda x: x + 1), (0,), (X,), reference=wrong_for_arrays)
    assert "elements differ" in str(caught.value)


def test_check_takes_methods_and_partials():
    from tests.api import targets

    model = targets.Model(np.ones((3, 4)))
    tc.testing.check(model.method, (X,))
    tc.testing.check(targets.Model.class_first, (X,))
    tc.testing.check(functools.partial(targets.scaled, X), (), (3,))


def test_check_takes_wrappers_that_are_not_ours():
    @functools.lru_cache
    def plain(x):
        return x + 1

    tc.testing.check(plain, (1,))


def test_check_refuses_nonsense():
    with pytest.raises(TypeError, match="an argument set is"):
        tc.testing.check(lambda x: x, 5)


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex64"])
def test_random_arrays(dtype):
    made = arrays((2, 3), (4,), dtype=dtype, seed=1)
    assert [a.shape for a in made.args] == [(2, 3), (4,)]
    assert all(a.dtype == dtype for a in made.args)
    again = arrays((2, 3), (4,), dtype=dtype, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(made.args, again.args, strict=True))
