"""What a sample takes down of a value."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiercel as tc
from tiercel.operators.types import ArrayType, DictType, ListType, ObjectType, PyIntType, TupleType, type_of
from tiercel.shapes import Symbol
from tiercel.vm.scan import INT_LIMIT, MAX_SLOTS, key_text, key_type, scan, slots


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class State:
    h: np.ndarray
    step: int


def look(value):
    sizes: list[int] = []
    return scan(value, sizes), sizes


def text(value):
    key, sizes = look(value)
    return key_text(key, iter(map(str, sizes)))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.zeros((3, 4), np.float32), "float32[3, 4]{C}"),
        (np.zeros((3, 4), np.float32).T, "float32[4, 3]{F}"),
        (np.zeros((3, 4), np.float32)[:, ::2], "float32[3, 2]{strided}"),
        (np.zeros(()), "float64[]{C}"),
        (np.zeros((0, 4)), "float64[0, 4]{C}"),
        (np.zeros(2, ">f4"), ">f4[2]{C}"),
        (tc.Tensor(np.zeros((2, 5), np.float32)), "Tensor float32[2, 5]{C}"),
        (tc.Parameter(tc.Tensor(np.zeros(5, np.float32))), "Tensor float32[5]{C}"),
        (np.float32(1), "np.float32"),
        (7, "int 7"),
        (True, "bool"),
        (1.5, "float"),
        (None, "None"),
        (..., "ellipsis"),
        ("mean", "'mean'"),
        ("m" * 1000, "str"),
        ((np.zeros(2), 3), "(float64[2]{C}, int 3)"),
        ((1,), "(int 1,)"),
        ([np.zeros(2), np.zeros(3)], "list[2] of float64[?]{C}"),
        ([], "list[0]"),
        ([1, "a"], "[int 1, 'a']"),
        ({"a": 1, "b": np.zeros(2)}, "{'a': int 1, 'b': float64[2]{C}}"),
        ({(1, 2): 1}, "dict"),
        (Pair(np.zeros(2), 4), "Pair(left=float64[2]{C}, right=int 4)"),
        (State(np.zeros(2), 4), "State(h=float64[2]{C}, step=int 4)"),
        (np.ma.masked_array([1.0]), "MaskedArray"),
        (range(3), "range"),
        (print, "builtin_function_or_method"),
    ],
    ids=lambda v: None if isinstance(v, str) else type(v).__name__,
)
def test_text_of_a_value(value, expected):
    assert text(value) == expected


values = st.recursive(
    st.one_of(
        st.integers(),
        st.floats(),
        st.booleans(),
        st.none(),
        st.text(max_size=40),
        st.lists(st.integers(0, 3), max_size=3).map(lambda s: np.zeros(s, np.float32)),
        st.just(object()),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers(0, 9)), inner, max_size=4),
        st.tuples(inner, inner).map(lambda p: Pair(*p)),
    ),
    max_leaves=12,
)


@given(values)
def test_sizes_and_slots_agree(value):
    key, sizes = look(value)
    assert len(slots(key, "x")) == len(sizes) <= MAX_SLOTS
    hash(key)
    dims = iter(sizes)
    key_type(key, dims)
    assert next(dims, None) is None, "the type takes a size for each slot"
    shown = iter(["?"] * len(sizes))
    key_text(key, shown)
    assert next(shown, None) is None, "the text takes one too"


@given(values)
def test_keys_do_not_depend_on_sizes(value):
    """Two looks at equal values give one key."""
    assert look(value) == look(value)


@pytest.mark.parametrize(
    "value", [np.zeros((2, 3), np.float32), 5, (np.zeros(3), 4), {"a": 3}, None, 1.5, True, [1, 2.0], "s"]
)
def test_type_is_what_type_of_says(value):
    key, sizes = look(value)
    plain = type_of(value, lambda path, axis, size: size)
    assert key_type(key, iter(sizes)) == plain


def test_types_of_what_is_not_described():
    key, sizes = look([np.zeros(2), np.zeros(3)])
    assert key_type(key, iter([Symbol("n")])) == ListType(None, None, Symbol("n"))
    assert key_type(look(object())[0], iter(())) == ObjectType()
    key, sizes = look({"a": (1, tc.Tensor(np.zeros(2)))})
    found = key_type(key, iter(sizes))
    assert isinstance(found, DictType)
    (_, pair) = found.items[0]
    assert isinstance(pair, TupleType)
    assert pair.items[0] == PyIntType(1)
    assert isinstance(pair.items[1], ArrayType) and pair.items[1].wrapper == "Tensor"


def test_large_ints_are_clamped():
    assert look(1 << 80)[1] == [INT_LIMIT]
    assert look(-(1 << 80))[1] == [-INT_LIMIT]


def test_what_is_too_long_or_too_deep_is_an_object():
    deep: Any = 1
    for _ in range(10):
        deep = (deep,)
    assert "tuple" in text(deep)
    assert text(tuple(range(100))) == "tuple"
    assert text(dict.fromkeys(range(100))) == "dict"
    assert text([*range(50), "a"]) == "list[51] of int" or text([*range(50), "a"]) == "list"
    many = tuple(np.zeros((1,) * 8) for _ in range(12))
    key, sizes = look(many)
    assert len(sizes) == MAX_SLOTS
    assert len(slots(key, "x")) == MAX_SLOTS


def test_nothing_of_the_users_runs():
    class Odd:
        def __getattr__(self, name):
            raise AssertionError("asked")

        __len__ = __iter__ = __eq__ = __hash__ = __getitem__ = None

        @property
        def __class__(self):
            raise AssertionError("asked")

    @dataclasses.dataclass
    class Lazy:
        x: int

        def __getattribute__(self, name):
            raise AssertionError("asked")

    assert look(Odd())[0] is Odd
    assert text(Lazy.__new__(Lazy)) == "Lazy()"


def test_nothing_is_kept_alive():
    class Thing:
        pass

    thing = Thing()
    key, _ = look((thing, np.zeros(2)))
    reference = weakref.ref(thing)
    del thing
    gc.collect()
    assert reference() is None
    assert key[1][0] is Thing
