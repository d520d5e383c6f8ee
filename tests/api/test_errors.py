"""Exceptions of a jitted function: the user's frames only, and a note that explains what NumPy refused."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

import tiercel as tc
from tests.api import targets


def raised(function, *args):
    try:
        function(*args)
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError("nothing was raised")


def note_of(error):
    notes = [n for n in getattr(error, "__notes__", []) if n.startswith("Tiercel: ")]
    assert len(notes) == 1, notes
    return notes[0]


def test_traceback_ends_in_the_user_s_code():
    error = raised(targets.mismatch, np.ones((2, 3)), np.ones((4, 5)))
    names = [entry.name for entry in traceback.extract_tb(error.__traceback__)]
    assert names == ["raised", "mismatch"]


def test_note_names_operator_operands_dimension_and_place():
    @tc.jit
    def mismatch(x, w):
        return np.exp(x @ (w + w))

    error = raised(mismatch, np.ones((2, 3), np.float32), np.ones((4, 5), np.float32))
    note = note_of(error)
    first, location, source, carets = note.splitlines()
    assert first.startswith("Tiercel: matmul(x: float32[2, 3], float32[4, 5])")
    assert first.endswith("dimension 1 of x is 3, dimension 0 of operand 1 is 4")
    assert f'File "{__file__}", line ' in location
    assert source.strip() == "return np.exp(x @ (w + w))"
    assert source[carets.index("^") : carets.rindex("^") + 1] == "x @ (w + w)"


def test_own_exceptions_have_no_note():
    error = raised(targets.raises_own, np.ones(3))
    assert not hasattr(error, "__notes__")


def test_exceptions_of_user_classes_have_no_note():
    class Odd:
        def __add__(self, other):
            raise TypeError("odd")

    error = raised(tc.jit(lambda a, b: a + b), Odd(), 1)
    assert str(error) == "odd"
    assert not hasattr(error, "__notes__")


def test_note_is_added_once_through_nested_jitted_functions():
    @tc.jit
    def outer(x, w):
        return targets.mismatch(x, w)

    error = raised(outer, np.ones((2, 3)), np.ones((4, 5)))
    assert note_of(error)
    names = [entry.name for entry in traceback.extract_tb(error.__traceback__)]
    assert names == ["raised", "outer", "mismatch"]


def test_exception_caught_inside_costs_no_note():
    @tc.jit
    def guarded(x, w):
        try:
            return x @ w
        except ValueError as error:
            return error

    error = guarded(np.ones((2, 3)), np.ones((4, 5)))
    assert not hasattr(error, "__notes__")


CASES = [
    (lambda x: x[5], (np.ones(3),), "index(x: float64[3], 5)"),
    (lambda x, y: x + y, (np.ones((2, 3)), np.ones((2, 4))), "dimension 1 of x is 3, dimension 1 of y is 4"),
    (lambda x: x.reshape(4, 2), (np.ones(6),), "x has 6 elements, the new shape 8"),
    (lambda x: np.reshape(x, (-1, 4)), (np.ones(6),), "x has 6 elements, not a multiple of 4"),
    (
        lambda x, y: np.concatenate([x, y]),
        (np.ones((2, 3)), np.ones((2, 4))),
        "dimension 1 of item 0 is 3, of item 1 it is 4",
    ),
    (
        lambda x, y: x @ y * 1,
        (np.ones((5, 2, 3)), np.ones((4, 3, 2))),
        "dimension 0 of x is 5, dimension 0 of y is 4",
    ),
    (
        lambda m, x: x @ m.w,
        (targets.Model(np.ones((3, 4))), np.ones((2, 2))),
        "matmul(x: float64[2, 2], float64[3, 4])",
    ),
    (lambda x: 1 if x else 0, (np.ones(2),), "truth(x: float64[2])"),
]


@pytest.mark.parametrize(("function", "args", "text"), CASES)
def test_common_mismatches(function, args, text):
    error = raised(tc.jit(function), *args)
    assert text in note_of(error)


def test_store_and_inplace():
    @tc.jit
    def store(x, y):
        x[0] = y

    @tc.jit
    def inplace(x, y):
        x += y
        return x

    assert "index_put(x: float64[2, 3], 0, y: float64[4])" in note_of(raised(store, np.ones((2, 3)), np.ones(4)))
    note = note_of(raised(inplace, np.ones((2, 3)), np.ones(4)))
    assert "dimension 1 of x is 3, dimension 0 of y is 4" in note


def test_declared_shapes_are_shown():
    @tc.jit(specs={"x": tc.spec("B", 3, dtype=np.float64)})
    def f(x, w):
        return x @ w

    note = note_of(raised(f, np.ones((2, 3)), np.ones((4, 5))))
    assert "x: float64[2, 3] declared " in note
    assert "[B, 3]" in note


def test_learned_shapes_are_shown():
    from tiercel.bytecode import FunctionProfile, Profile, SignatureProfile

    @tc.jit
    def f(x, w):
        return x @ w

    seen = SignatureProfile("MatMul", 3, live_ins={0: "float64[2..9, 3]"})
    f.program.profile = Profile({0: FunctionProfile(3, {}, (seen,))})
    assert "x: float64[2, 3] seen float64[2..9, 3]" in note_of(raised(f, np.ones((2, 3)), np.ones((4, 5))))


def test_reserved_names_say_so():
    for name in ("grad", "value_and_grad", "vmap"):
        with pytest.raises(tc.TiercelError, match=f"tiercel.{name} is reserved"):
            getattr(tc, name)(lambda x: x)
        with pytest.raises(NotImplementedError):
            getattr(tc, name)(lambda x: x)
