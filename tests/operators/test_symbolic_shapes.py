"""What rows say of sizes that are symbols: the expressions that come out, refusals, and what is not static."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tiercel import dtypes
from tiercel.errors import DTypeError, ShapeError
from tiercel.operators import (
    ArrayType,
    DTypeType,
    Layout,
    ListType,
    NoneType,
    NotStatic,
    NpScalarType,
    PyFloatType,
    PyIntType,
    TupleType,
    find_function,
    find_inplace,
    find_method,
    find_property,
    find_syntax,
    get,
    type_of,
)
from tiercel.operators.table import FRESH, view
from tiercel.shapes import Facts, Range, Symbol, ceil_div, dim_min, evaluate

B, T, N, D = (Symbol(name) for name in "BTND")
F32 = dtypes.float32


def array(*shape: Any, layout: Layout | None = None, dtype: Any = F32, wrapper: str = "ndarray") -> ArrayType:
    return ArrayType(dtype, shape, layout or Layout.c(len(shape)), wrapper=wrapper)


def bound(name: str, *operands: Any, **attributes: Any) -> Any:
    row = get(name)
    index = row.spelling_index("ops")
    names = [p.name for p in row.parameters]
    return row, row.bind(index, (), dict(zip(names, operands, strict=False)) | attributes)


def infer(name: str, *operands: Any, facts: Facts | None = None, **attributes: Any) -> Any:
    row, call = bound(name, *operands, **attributes)
    return row.infer(call, facts)


def alias(name: str, *operands: Any, **attributes: Any) -> Any:
    row, call = bound(name, *operands, **attributes)
    return row.alias(call)


def spelt(found: Any, *args: Any, facts: Facts | None = None, **keywords: Any) -> Any:
    row, index = found
    return row.infer(row.bind(index, args, keywords), facts)


class TestMovement:
    def test_reshape_solves_the_missing_size(self):
        assert infer("reshape", array(B, T, 768), shape=(-1, 768)).shape == (B * T, 768)
        assert infer("reshape", array(B * T, 512), shape=(B, T, -1)).shape == (B, T, 512)
        assert infer("reshape", array(B, T, 768), shape=(B, T, 12, -1)).shape == (B, T, 12, 64)

    def test_reshape_spelt_with_separate_sizes(self):
        found = spelt(find_method("reshape"), array(B, 6), PyIntType(B), PyIntType(2), PyIntType(-1))
        assert found.shape == (B, 2, 3)

    def test_reshape_refuses_what_cannot_fit(self):
        with pytest.raises(ShapeError, match="cannot reshape"):
            infer("reshape", array(3, 4), shape=(5, -1))

    def test_splitting_heads_keeps_the_view(self):
        """(B, T, H * D) -> (B, T, H, D) -> (B, H, T, D) is a view; joining them again is a copy."""
        x = array(B, T, 768)
        heads = infer("reshape", x, shape=(B, T, 12, 64))
        assert alias("reshape", x, shape=(B, T, 12, 64)) == view(0)
        moved = infer("transpose", heads, axes=(0, 2, 1, 3))
        assert moved.shape == (B, 12, T, 64)
        assert moved.layout.order == (0, 2, 1, 3)
        assert moved.layout.is_dense
        joined = infer("reshape", moved, shape=(B, 12, -1))
        assert joined.shape == (B, 12, 64 * T)
        assert alias("reshape", moved, shape=(B, 12, T * 64)).kind == "view_if"  # T may be 1
        assert infer("reshape", moved, shape=(B, 12, T, 8, 8)).layout.order == (0, 2, 1, 3, 4)

    def test_a_copy_is_certain_where_sizes_are(self):
        x = array(2, 3, 4, layout=Layout.f(3))
        assert alias("reshape", x, shape=(6, 4)) == FRESH
        assert alias("reshape", x, shape=(2, 3, 2, 2)) == view(0)

    def test_concat_adds_up(self):
        assert infer("concat", (array(B, T, 64), array(B, 1, 64)), axis=1).shape == (B, T + 1, 64)
        assert infer("concat", (array(B, T), array(4, N)), axis=1).shape == (4, T + N)
        with pytest.raises(ShapeError, match="along dimension 1, array 0 has size 3 and array 1 has size 4"):
            infer("concat", (array(T, 3), array(N, 4)))

    def test_facts_refuse_a_concat(self):
        facts = Facts()
        facts.set_range(T, Range(0, 5))
        facts.set_range(N, Range(6, 9))
        with pytest.raises(ShapeError):
            infer("concat", (array(2, T), array(2, N)), facts=facts)

    def test_stack_of_states(self):
        states = ListType((array(B, 256),) * 3)
        assert infer("stack", states, axis=1).shape == (B, 3, 256)
        with pytest.raises(NotStatic):
            infer("stack", ListType(element=array(B, 256), length=T), axis=1)

    def test_split_of_gates(self):
        found = infer("split", array(B, 4 * D), sections=4, axis=1)
        assert [t.shape for t in found.items] == [(B, D)] * 4
        assert not found.items[0].layout.is_c
        with pytest.raises(ShapeError, match="equal division"):
            infer("split", array(B, 10), sections=4, axis=1)
        with pytest.raises(NotStatic):
            infer("split", array(B, T), sections=T, axis=1)

    def test_uneven_split(self):
        found = infer("array_split", array(T), sections=3)
        for size in range(10):
            want = [len(p) for p in np.array_split(np.arange(size), 3)]
            assert [evaluate(t.shape[0], {"T": size}) for t in found.items] == want

    def test_squeeze_needs_to_know_which_axes(self):
        assert infer("squeeze", array(B, 1, T), axis=1).shape == (B, T)
        with pytest.raises(NotStatic, match="decides the rank"):
            infer("squeeze", array(B, 1, T))
        facts = Facts()
        for symbol in (B, T):
            facts.set_range(symbol, Range(2, None))
        assert infer("squeeze", array(B, 1, T), facts=facts).shape == (B, T)

    def test_expand_broadcast_tile_repeat_pad(self):
        assert infer("expand_dims", array(B, T), axis=(0, -1)).shape == (1, B, T, 1)
        assert infer("broadcast_to", array(1, T), shape=(B, T)).shape == (B, T)
        assert infer("tile", array(B, T), reps=(2, N)).shape == (2 * B, N * T)
        assert infer("repeat", array(B, T), repeats=3, axis=1).shape == (B, 3 * T)
        assert infer("repeat", array(B, T), repeats=2).shape == (2 * B * T,)
        assert infer("pad", array(B, T), pad_width=((0, 0), (1, N))).shape == (B, T + N + 1)

    def test_diagonals(self):
        assert infer("diagonal", array(B, T, T), axis1=1, axis2=2).shape == (B, T)
        assert infer("diagonal", array(T, N)).shape == (dim_min(T, N),)
        assert infer("diag", array(T)).shape == (T, T)
        assert infer("tril", array(T)).shape == (T, T)

    def test_an_unknown_axis_is_not_static(self):
        with pytest.raises(NotStatic):
            infer("concat", (array(B), array(B)), axis=PyIntType(None))


class TestContraction:
    def test_matmul(self):
        assert infer("matmul", array(B, T, 64), array(64, N)).shape == (B, T, N)
        assert infer("matmul", array(T, 64), array(64)).shape == (T,)
        assert infer("matmul", array(64), array(64)) == NpScalarType(F32)
        assert infer("matmul", array(B, 1, T, D), array(12, D, N)).shape == (B, 12, T, N)
        with pytest.raises(ShapeError, match="size 5 is different from 4"):
            infer("matmul", array(T, 4), array(5, N))

    def test_matmul_inner_sizes_may_be_equal(self):
        assert infer("matmul", array(T, B), array(N, D)).shape == (T, D)
        facts = Facts()
        facts.set_range(B, Range(1, 3))
        facts.set_range(N, Range(4, 8))
        with pytest.raises(ShapeError):
            infer("matmul", array(T, B), array(N, D), facts=facts)

    def test_infix(self):
        assert spelt(find_syntax("@"), array(T, 4), array(4, N)).shape == (T, N)

    def test_in_place(self):
        assert spelt(find_inplace("@="), array(T, 4), array(4, 4)).shape == (T, 4)
        for other in (array(4, 3), array(4)):
            with pytest.raises(ShapeError):
                spelt(find_inplace("@="), array(2, 4), other)

    def test_einsum_binds_its_operands_one_by_one(self):
        text = type_of("bqd,bkd->bqk")
        assert spelt(find_function(np.einsum), text, array(B, T, D), array(B, N, D)).shape == (B, T, N)
        assert spelt(find_function(np.einsum), type_of("ij->ji"), array(B, T)).shape == (T, B)
        with pytest.raises(ShapeError, match="label 'b' has sizes 3 and 4"):
            spelt(find_function(np.einsum), text, array(3, T, D), array(4, N, D))
        with pytest.raises(TypeError):
            spelt(find_function(np.einsum), text, array(B, T, D), array(B, N, D), optimize=True)

    def test_einsum_without_a_known_string_is_not_static(self):
        with pytest.raises(NotStatic):
            spelt(find_function(np.einsum), PyIntType(None), array(B, T))

    def test_linear_and_tensordot(self):
        assert infer("linear", array(B, T, 64), array(N, 64), array(N)).shape == (B, T, N)
        assert infer("tensordot", array(B, T, 3), array(3, N), axes=1).shape == (B, T, N)
        assert infer("outer", array(B, 2), array(T)).shape == (2 * B, T)

    def test_bfloat16_products(self):
        half = array(2, 2, dtype=dtypes.bfloat16)
        assert infer("matmul", half, half).dtype is F32
        assert infer("linear", half, half).dtype is dtypes.bfloat16
        with pytest.raises(DTypeError):
            spelt(find_function(np.einsum), type_of("ij,jk->ik"), half, half)


class TestSelection:
    def test_take_and_gather(self):
        ids = array(B, T, dtype=dtypes.int64)
        assert infer("embedding", ids, array(50257, 768)).shape == (B, T, 768)
        assert infer("gather", array(N, D), ids, axis=0).shape == (B, T, D)
        assert infer("take", array(N), NpScalarType(dtypes.int64)) == NpScalarType(F32)

    def test_data_decides(self):
        mask = array(B, T, dtype=dtypes.bool_)
        (rows, columns) = infer("nonzero", mask).items
        assert rows.shape == columns.shape
        (symbol,) = rows.shape
        assert symbol == Symbol("u0", "data")
        assert infer("masked_select", array(B, T), mask).shape == (symbol,)
        assert infer("compress", array(T, dtype=dtypes.bool_), array(T, D), axis=0).shape == (symbol, D)
        found = infer("unique", array(B, T), return_inverse=True, return_counts=True)
        assert [t.shape for t in found.items] == [(symbol,), (B, T), (symbol,)]

    def test_upper_bounds_are_handed_to_the_namer(self):
        row, call = bound("nonzero", array(B, 4, dtype=dtypes.bool_))
        uppers = []

        def fresh(upper: Any) -> Any:
            uppers.append(upper)
            return Symbol("found", "data")

        assert row.infer(call, None, fresh).items[0].shape == (Symbol("found", "data"),)
        assert uppers == [4 * B]

    def test_topk_one_hot_scatter(self):
        values, positions = infer("topk", array(B, N), k=PyIntType(4)).items
        assert values.shape == positions.shape == (B, 4)
        assert positions.dtype is dtypes.int64
        assert infer("one_hot", array(B, T, dtype=dtypes.int32), depth=PyIntType(N)).shape == (B, T, N)
        indices = array(B, 2, dtype=dtypes.int64)
        assert infer("scatter", array(B, N), indices, PyFloatType(), axis=1).shape == (B, N)
        with pytest.raises(DTypeError):
            infer("scatter", array(B, N), array(B, 2), PyFloatType(), axis=1)

    def test_assignment_returns_nothing_and_writes(self):
        row, call = bound("set_index", array(B, T), PyIntType(0), PyFloatType(0.0))
        assert row.infer(call) == NoneType()
        assert row.effects(call).operands == (0,)
        row, call = bound("set_index", array(B, 3), PyIntType(0), array(4))
        with pytest.raises(ShapeError):
            row.infer(call)


class TestCreation:
    def test_sizes_are_symbols(self):
        zeros = find_function(np.zeros)
        assert spelt(zeros, TupleType((PyIntType(B), PyIntType(8))), DTypeType(F32)) == array(B, 8)
        assert infer("full", PyFloatType(0.5), shape=(B, T)).shape == (B, T)
        assert spelt(find_function(np.arange), PyIntType(T)).shape == (T,)
        assert infer("eye", N=N, dtype=F32).shape == (N, N)
        assert infer("linspace", PyFloatType(), PyFloatType(), num=T).shape == (T,)
        assert spelt(find_function(np.zeros_like), array(B, T, layout=Layout.f(2))).layout.is_f

    def test_an_unknown_size_is_not_static(self):
        with pytest.raises(NotStatic):
            spelt(find_function(np.zeros), PyIntType(None))
        with pytest.raises(NotStatic):
            spelt(find_function(np.arange), PyFloatType(None))

    def test_questions_have_symbolic_answers(self):
        x = array(B, T, 64)
        assert spelt(find_property("shape"), x) == TupleType((PyIntType(B), PyIntType(T), PyIntType(64)))
        assert spelt(find_property("size"), x) == PyIntType(64 * B * T)
        assert spelt(find_property("ndim"), x) == PyIntType(3)
        assert spelt(find_property("dtype"), x) == DTypeType(F32)
        assert infer("dim", x, axis=-2) == PyIntType(T)
        assert spelt(find_method("item"), array()) == PyFloatType()

    def test_the_operand_itself(self):
        x = array(B, T)
        for name in ("identity", "stop_gradient", "asarray", "ascontiguousarray"):
            assert alias(name, x).kind == "same"
        assert alias("ascontiguousarray", array(B, T, layout=Layout.f(2))).kind == "same_if"
        assert alias("depend", x, (array(3),)).kind == "same"

    def test_conversions_take_wrappers_off(self):
        x = array(2, 3, wrapper="Tensor")
        row, index = find_function(np.asarray)  # type: ignore[misc]
        call = row.bind(index, (x,))
        assert row.infer(call).wrapper == "ndarray"
        assert row.alias(call) == view(0)
        assert infer("asarray", x).wrapper == "Tensor"
        assert alias("asarray", x).kind == "same"


class TestSpatial:
    def test_convolution(self):
        x, w = array(B, 3, N, T), array(8, 3, 3, 3)
        assert infer("conv2d", x, w, array(8), padding=1).shape == (B, 8, N, T)
        assert infer("conv2d", x, w, stride=2, padding="same").shape == (B, 8, ceil_div(N, 2), ceil_div(T, 2))
        assert infer("conv1d", array(B, 4, T), array(6, 2, 5), groups=2).shape == (B, 6, T - 4)
        with pytest.raises(ShapeError, match="groups=1"):
            infer("conv1d", array(B, 4, T), array(6, 2, 5))
        with pytest.raises(NotStatic, match="kernel size"):
            infer("conv1d", array(B, 4, T), array(6, 4, N))

    def test_pooling(self):
        assert infer("max_pool2d", array(B, 3, 2 * N, T), kernel_size=2).shape == (B, 3, N, T // 2)
        assert infer("avg_pool1d", array(B, T), kernel_size=3, stride=1, padding=1).shape == (B, T)

    @pytest.mark.parametrize("attributes", [{}, {"ceil_mode": True}, {"padding": 1, "ceil_mode": True}])
    def test_pooled_sizes_are_those_of_numbers(self, attributes):
        found = infer("max_pool1d", array(T), kernel_size=3, stride=2, **attributes).shape[0]
        for size in range(3, 12):
            real = get("max_pool1d").evaluate(np.zeros(size), kernel_size=3, stride=2, **attributes)
            assert evaluate(found, {"T": size}) == len(real)

    def test_interpolation(self):
        x = array(B, 3, N, T)
        assert infer("interpolate", x, scale=2).shape == (B, 3, 2 * N, 2 * T)
        assert infer("interpolate", x, scale=0.5, mode="bilinear").shape == (B, 3, N // 2, T // 2)
        assert infer("interpolate", x, size=(T, 7)).shape == (B, 3, T, 7)


class TestRandom:
    def test_shapes_are_symbols(self):
        assert infer("random_normal", PyIntType(None), shape=(B, T)) == array(B, T)
        assert infer("dropout", array(B, T), array(2, dtype=dtypes.uint32)) == array(B, T)
        assert infer("split_key", PyIntType(1), num=N).shape == (N, 2)

    def test_keys_are_integers(self):
        with pytest.raises(DTypeError, match="random key"):
            infer("random_bits", PyFloatType(1.0))
        with pytest.raises(ShapeError, match="shape"):
            infer("random_bits", array(3, dtype=dtypes.uint32))
