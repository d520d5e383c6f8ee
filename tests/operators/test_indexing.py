"""What `x[key] = value` writes, and sizes of selections whose bounds are symbols or not known at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.operators import samples_indexing
from tests.operators.harness import quiet
from tiercel.errors import ShapeError
from tiercel.operators import (
    ArrayType,
    Layout,
    NoneType,
    NotStatic,
    ObjectType,
    PyIntType,
    SliceType,
    TupleType,
    get,
    type_of,
)
from tiercel.shapes import Facts, Range, Symbol, evaluate, symbols_of

FLOAT = type_of(np.zeros(1, np.float32)).dtype


def test_assignment_writes_the_selected_elements():
    """The positions are those that the same key selects from an array of positions, read one by one."""
    checked = 0
    for x, key in samples_indexing.keys(np.random.default_rng(5), 500):
        if not x.flags.writeable or x.size == 0:
            continue
        numbers = np.arange(x.size).reshape(x.shape)
        try:
            picked = np.asarray(samples_indexing._index(numbers, key))
            numbers[key]
        except (IndexError, ValueError):
            continue
        values = np.arange(100, 100 + picked.size, dtype=np.int64).reshape(picked.shape)
        want = x.flatten()
        want[picked.ravel()] = values.ravel().astype(x.dtype)
        with quiet():
            assert get("set_index").evaluate(x, key, values if picked.ndim else values[()]) is None
        np.testing.assert_array_equal(x.ravel(), want)
        checked += 1
    assert checked > 100


def array(*shape):
    return ArrayType(FLOAT, shape, Layout.c(len(shape)))


def infer(x, key, facts=None):
    row = get("index")
    return row.infer(row.bind(row.spelling_index("syntax"), (x, key)), facts)


def part(value):
    return NoneType() if value is None else PyIntType(value)


class TestSymbolicBounds:
    @given(
        st.integers(0, 8),
        *[st.one_of(st.none(), st.integers(-10, 10))] * 2,
        st.one_of(st.none(), st.sampled_from([1, 2, 3, -1, -2])),
    )
    @settings(max_examples=200)
    def test_size_and_bounds_are_symbols(self, size, start, stop, step):
        env, parts = {"n": size}, []
        for name, value in (("a", start), ("b", stop)):
            parts.append(None if value is None else Symbol(name, "scalar"))
            env[name] = value
        found = infer(array(Symbol("n"), 3), SliceType(part(parts[0]), part(parts[1]), part(step)))
        env = {k: v for k, v in env.items() if v is not None}
        assert evaluate(found.shape[0], env) == len(range(size)[start:stop:step])
        assert found.shape[1] == 3

    def test_growing_prefix(self):
        t = Symbol("T")
        found = infer(array(512, 64), SliceType(NoneType(), PyIntType(t), NoneType()), _between(t, 0, 512))
        assert found.shape == (t, 64)

    def test_an_unknown_bound_gives_a_data_symbol(self):
        found = infer(array(Symbol("T"), 4), SliceType(NoneType(), PyIntType(None), NoneType()))
        (symbol,) = symbols_of(found.shape[0])
        assert symbol.kind == "data"

    def test_an_int_of_unknown_value_drops_the_axis(self):
        assert infer(array(5, 4), PyIntType(None)).shape == (4,)

    def test_a_known_index_out_of_bounds_is_refused(self):
        with pytest.raises(ShapeError, match="index 5 is out of bounds for axis 0 with size 5"):
            infer(array(5, 4), PyIntType(5))

    def test_an_object_is_not_static(self):
        with pytest.raises(NotStatic):
            infer(array(5), ObjectType())

    def test_two_masks_have_two_symbols(self):
        mask = type_of(np.ones(5, bool))
        rows = infer(array(5, 4), mask)
        assert [s.name for s in symbols_of(rows.shape[0])] == ["u0"]
        again = infer(rows, ArrayType(mask.dtype, rows.shape[:1], Layout.c(1)))
        assert [s.name for s in symbols_of(again.shape[0])] == ["u1"]


def _between(symbol, low, high):
    facts = Facts()
    facts.set_range(symbol, Range(low, high))
    return facts


class TestContainers:
    def test_items_of_tuples_lists_and_dicts(self):
        x = type_of((1, [array, 2.0], {"k": None}))
        assert infer(x, PyIntType(0)) == PyIntType(1)
        assert infer(infer(x, PyIntType(-2)), PyIntType(1)) == type_of(2.0)
        assert infer(infer(x, PyIntType(2)), type_of("k")) == NoneType()
        assert infer(x, type_of(slice(0, 1))) == TupleType((PyIntType(1),))

    def test_missing_items_are_refused(self):
        with pytest.raises(ShapeError, match="out of range for 1 items"):
            infer(type_of((1,)), PyIntType(1))
        with pytest.raises(ShapeError, match="no key 'z'"):
            infer(type_of({"k": 1}), type_of("z"))

    def test_unknown_index_is_not_static(self):
        with pytest.raises(NotStatic):
            infer(type_of((1, 2)), PyIntType(None))
