"""Attention recognised in a graph and compiled without the scores: evaluator and machine code against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.regions import ExitTaken, RegionBuilder, Runner
from tiercel.compiler.attention import Attention, find_attention
from tiercel.compiler.lower import Lowerer
from tiercel.loops import to_text

TOLERANCE = {"float32": 2e-5, "float64": 1e-12}


def random(*shape, seed=0, dtype="float32"):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def softmax(z):
    with np.errstate(invalid="ignore"):
        e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_by_hand(b, z):
    e = b.apply("exp", b.apply("subtract", z, b.apply("max", z, axis=-1, keepdims=True)))
    return b.apply("divide", e, b.apply("sum", e, axis=-1, keepdims=True))


def found_in(region):
    lowerer = Lowerer(region)
    items = find_attention(lowerer.graph, lambda v: lowerer.uses.get(v, ()), lowerer.returned)
    return [item for item in items if isinstance(item, Attention)]


def agree(region, reference, *argument_sets, evaluated=True, tolerance=None):
    """Attention is found, no buffer is as large as the scores, and both ways to run give what NumPy does."""
    assert len(found_in(region)) == 1
    runner = Runner(region)
    for arrays in argument_sets:
        want = reference(*arrays)
        allowed = tolerance or TOLERANCE[want.dtype.name]
        for native in (False, True) if evaluated and max(a.size for a in arrays) < 300 else (True,):
            got = runner(*arrays, native=native)
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(got, want, rtol=allowed, atol=allowed)
    return runner


def stacked(name="attention", dtype="float32", *, strided=False):
    """Builder with q (B, H, M, D), k (B, H, T, D) and v (B, H, T, N), and their scores."""
    b = RegionBuilder(name)
    q = b.input("q", ("B", "H", "M", "D"), dtype, strided=strided)
    k = b.input("k", ("B", "H", "T", "D"), dtype, strided=strided)
    v = b.input("v", ("B", "H", "T", "N"), dtype, strided=strided)
    scores = b.apply("matmul", q, b.apply("swapaxes", k, axis1=-1, axis2=-2))
    return b, q, k, v, scores


def operands(m, t, *, batch=2, heads=3, d=5, n=4, dtype="float32"):
    return (
        random(batch, heads, m, d, dtype=dtype), random(batch, heads, t, d, seed=1, dtype=dtype),
        random(batch, heads, t, n, seed=2, dtype=dtype),
    )  # fmt: skip


SIZES = [(5, 7), (1, 1), (1, 9), (6, 1), (4, 3), (49, 130), (48, 128), (100, 260), (1, 1030), (3, 2050), (0, 4)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batches_and_heads_of_any_length(dtype):
    b, *_, v, scores = stacked(dtype=dtype)
    region = b.region(b.apply("matmul", softmax_by_hand(b, b.apply("multiply", scores, 0.25)), v))
    half = np.dtype(dtype).type(0.25)
    agree(
        region, lambda q, k, v: softmax(q @ k.swapaxes(-1, -2) * half) @ v,
        *(operands(m, t, dtype=dtype, d=70 if m == 49 else 5, n=66 if m == 49 else 4) for m, t in SIZES),
    )  # fmt: skip


def test_no_scores_in_memory():
    b, *_, v, scores = stacked()
    runner = Runner(b.region(b.apply("matmul", b.apply("softmax", scores, axis=-1), v)))
    text = to_text(runner.lowered.function)
    arenas = [line for line in text.splitlines() if line.strip().startswith("arena") and " in " not in line]
    assert arenas
    assert not any("T" in line for line in arenas), text


def test_no_keys_leave_the_region():
    """NumPy raises for the maximum of nothing."""
    b, *_, v, scores = stacked()
    runner = Runner(b.region(b.apply("matmul", softmax_by_hand(b, scores), v)))
    for native in (False, True):
        with pytest.raises(ExitTaken):
            runner(*operands(3, 0), native=native)


def test_additive_mask_and_scale_after():
    b, *_, v, scores = stacked()
    mask = b.input("mask", ("M", "T"))
    z = b.apply("add", b.apply("divide", scores, 3.0), mask)
    region = b.region(b.apply("matmul", b.apply("softmax", z, axis=-1), v))

    def reference(q, k, v, mask):
        return softmax(q @ k.swapaxes(-1, -2) / np.float32(3) + mask) @ v

    agree(region, reference, *((*operands(m, t), random(m, t)) for m, t in SIZES if m))


def test_padding_mask_of_every_sequence():
    b, *_, v, scores = stacked()
    mask = b.input("mask", ("B", 1, 1, "T"), "bool")
    z = b.apply("where", mask, scores, -1e9)
    region = b.region(b.apply("matmul", softmax_by_hand(b, z), v))

    def reference(q, k, v, mask):
        return softmax(np.where(mask, q @ k.swapaxes(-1, -2), np.float32(-1e9))) @ v

    agree(region, reference, *((*operands(m, t), random(2, 1, 1, t) > -0.5) for m, t in SIZES if m))


def causal(m, t, k=0):
    return np.tril(np.ones((m, t), bool), k)


@pytest.mark.parametrize("k", [0, -2, 3])
def test_causal_mask_of_positions(k):
    """tril(ones) is a comparison of positions; rows that see nothing give NaN as NumPy does."""
    b, *_, v, scores = stacked()
    m, t = scores.type.shape[-2:]
    ones = b.apply("ones", shape=(m, t), dtype=bool)
    z = b.apply("where", b.apply("tril", ones, k=k), scores, float("-inf"))
    region = b.region(b.apply("matmul", softmax_by_hand(b, z), v))

    def reference(q, k_, v):
        return softmax(np.where(causal(q.shape[2], k_.shape[2], k), q @ k_.swapaxes(-1, -2), -np.inf)) @ v

    runner = agree(region, lambda *a: reference(*a).astype("float32"), *(operands(m, t) for m, t in SIZES if m))
    assert "bool" not in to_text(runner.lowered.function)


def test_causal_mask_of_comparisons_is_computed_in_the_tile():
    b, *_, v, scores = stacked()
    row, column = b.input("row", ("M", 1), "int64"), b.input("column", (1, "T"), "int64")
    z = b.apply("where", b.apply("greater_equal", row, column), scores, float("-inf"))
    region = b.region(b.apply("matmul", softmax_by_hand(b, z), v))

    def reference(q, k, v, row, column):
        return softmax(np.where(row >= column, q @ k.swapaxes(-1, -2), np.float32(-np.inf))) @ v

    positions = [(*operands(m, t), np.arange(m)[:, None], np.arange(t)[None]) for m, t in SIZES if m]
    runner = agree(region, reference, *positions)
    assert "arena" in (text := to_text(runner.lowered.function))
    assert "bool" not in text


def test_special_scores():
    """-inf, +inf and NaN among the scores, in every tile, and infinite values."""
    b, *_, v, scores = stacked()
    mask = b.input("mask", ("M", "T"))
    region = b.region(b.apply("matmul", softmax_by_hand(b, b.apply("add", scores, mask)), v))
    runner = Runner(region)

    def reference(q, k, v, mask):
        with np.errstate(all="ignore"):
            return softmax(q @ k.swapaxes(-1, -2) + mask) @ v

    for m, t in ((7, 300), (2, 1100)):
        q, k, v_ = operands(m, t)
        for special in (-np.inf, np.inf, np.nan):
            for columns in (slice(0, 1), slice(None, 128), slice(128, None), slice(0, None), slice(t - 1, None)):
                mask_ = np.zeros((m, t), "float32")
                mask_[m // 2, columns] = special
                np.testing.assert_allclose(runner(q, k, v_, mask_), reference(q, k, v_, mask_), rtol=2e-5, atol=2e-5)
        v_[0, 0, 5, 1] = np.inf
        mask_ = np.zeros((m, t), "float32")
        mask_[0, 5] = -np.inf
        np.testing.assert_allclose(runner(q, k, v_, mask_), reference(q, k, v_, mask_), rtol=2e-5, atol=2e-5)


def test_large_values_do_not_overflow():
    """The sums before the division stay below the largest value."""
    b, *_, v, scores = stacked()
    runner = Runner(b.region(b.apply("matmul", softmax_by_hand(b, scores), v)))
    for m in (2, 9):
        q, k, v_ = operands(m, 500)
        q *= 0
        v_[...] = 3e38
        np.testing.assert_allclose(runner(q, k, v_), np.full((2, 3, m, 4), 3e38, "float32"), rtol=1e-5)


def test_strided_operands():
    b, *_, v, scores = stacked(strided=True)
    region = b.region(b.apply("matmul", softmax_by_hand(b, scores), v))

    def turned(a):
        return np.ascontiguousarray(a.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)

    sets = [tuple(turned(a) for a in operands(m, t)) for m, t in SIZES]
    sets += [(q, k[..., ::-1], v[:, :, ::-1, ::-1]) for q, k, v in (operands(3, 9), operands(60, 9))]
    agree(region, lambda q, k, v: softmax(q @ k.swapaxes(-1, -2)) @ v, *sets, evaluated=False)


def test_heads_share_keys():
    """Keys and values of one head for all."""
    b = RegionBuilder("shared")
    q, k, v = b.input("q", ("B", "H", "M", 8)), b.input("k", ("B", 1, "T", 8)), b.input("v", ("B", 1, "T", 6))
    scores = b.apply("matmul", q, b.apply("swapaxes", k, axis1=-1, axis2=-2))
    weights = b.apply("softmax", scores, axis=-1)
    region = b.region(b.apply("matmul", weights, v))
    agree(
        region, lambda q, k, v: softmax(q @ k.swapaxes(-1, -2)) @ v,
        *((random(2, 3, m, 8), random(2, 1, t, 8), random(2, 1, t, 6)) for m, t in SIZES),
    )  # fmt: skip


def test_matrices():
    b = RegionBuilder("plain")
    q, k, v = b.input("q", ("M", 8)), b.input("k", ("T", 8)), b.input("v", ("T", 6))
    weights = softmax_by_hand(b, b.apply("matmul", q, b.apply("transpose", k, axes=None)))
    agree(
        b.region(b.apply("matmul", weights, v)), lambda q, k, v: softmax(q @ k.T) @ v,
        *((random(m, 8), random(t, 8), random(t, 6)) for m, t in SIZES),
    )  # fmt: skip


@pytest.mark.parametrize("subscripts", [("bd,btd->bt", "bt,btd->bd"), ("bhd,bhtd->bht", "bht,bhtd->bhd")])
def test_one_row_by_einsum(subscripts):
    b = RegionBuilder("decode")
    axes = ("B", "H")[: len(subscripts[0].partition(",")[0]) - 1]
    q, k, v = b.input("q", (*axes, 8)), b.input("k", (*axes, "T", 8)), b.input("v", (*axes, "T", 6))
    scores = b.apply("divide", b.apply("einsum", q, k, subscripts=subscripts[0]), 3.0)
    region = b.region(b.apply("einsum", softmax_by_hand(b, scores), v, subscripts=subscripts[1]))

    def reference(q, k, v):
        z = np.einsum(subscripts[0], q, k) / np.float32(3)
        return np.einsum(subscripts[1], softmax(z), v)

    lead = (2, 3)[: len(axes)]
    runner = agree(
        region, reference, *((random(*lead, 8), random(*lead, t, 8), random(*lead, t, 6)) for t in (1, 9, 1030))
    )
    assert "turned" not in to_text(runner.lowered.function), "rows are done one at a time"


def test_division_by_a_double_widens_the_weights():
    """float32 / float64: NumPy goes on in float64, and so do the powers."""
    b = RegionBuilder("widened")
    q, k, v = b.input("q", ("M", 8)), b.input("k", ("T", 8)), b.input("v", ("T", 6))
    scores = b.apply("matmul", q, b.apply("transpose", k, axes=None))
    z = b.apply("astype", scores, dtype="float64")
    region = b.region(b.apply("matmul", softmax_by_hand(b, z), v))
    agree(
        region, lambda q, k, v: softmax((q @ k.T).astype("float64")) @ v.astype("float64"),
        *((random(m, 8), random(t, 8), random(t, 6)) for m, t in SIZES), tolerance=1e-5,
    )  # fmt: skip


def test_heads_that_are_joined_need_no_copy():
    b, *_, v, scores = stacked()
    mixed = b.apply("matmul", softmax_by_hand(b, scores), v)
    batch, heads, rows, size = mixed.type.shape
    turned = b.apply("transpose", mixed, axes=(0, 2, 1, 3))
    region = b.region(b.apply("negative", b.apply("reshape", turned, shape=(batch, rows, heads * size))))

    def reference(q, k, v):
        out = (softmax(q @ k.swapaxes(-1, -2)) @ v).transpose(0, 2, 1, 3)
        return -out.reshape(*out.shape[:2], out.shape[2] * out.shape[3])

    runner = agree(region, reference, *(operands(m, t) for m, t in SIZES))
    assert "compact" not in to_text(runner.lowered.function)
    assert " arena t_1" not in to_text(runner.lowered.function)


# ---- what is not attention ------------------------------------------------------------------------------------------


def test_weights_that_are_returned_are_kept():
    b, *_, v, scores = stacked()
    weights = softmax_by_hand(b, scores)
    region = b.region(b.apply("matmul", weights, v), weights)
    assert not found_in(region)
    out, weights_ = Runner(region)(*operands(5, 7))
    q, k, v_ = operands(5, 7)
    np.testing.assert_allclose(weights_, softmax(q @ k.swapaxes(-1, -2)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out, weights_ @ v_, rtol=1e-4, atol=1e-5)


def test_scores_that_are_used_twice_are_kept():
    b, *_, v, scores = stacked()
    extra = b.apply("sum", scores, axis=-1)
    assert not found_in(b.region(b.apply("matmul", softmax_by_hand(b, scores), v), extra))


def test_a_maximum_over_other_rows_is_not_attention():
    b, *_, v, scores = stacked()
    e = b.apply("exp", b.apply("subtract", scores, b.apply("max", scores, axis=-2, keepdims=True)))
    weights = b.apply("divide", e, b.apply("sum", e, axis=-1, keepdims=True))
    region = b.region(b.apply("matmul", weights, v))

    def reference(q, k, v):
        z = q @ k.swapaxes(-1, -2)
        e = np.exp(z - z.max(-2, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v

    # the maximum belongs to the chain then, an operand like any other
    found = found_in(region)
    assert not found
    q, k, v_ = operands(5, 7)
    np.testing.assert_allclose(Runner(region)(q, k, v_), reference(q, k, v_), rtol=1e-4, atol=1e-5)


def test_a_sum_of_something_else_is_not_attention():
    b, *_, v, scores = stacked()
    e = b.apply("exp", scores)
    other = b.apply("multiply", e, 2.0)
    weights = b.apply("divide", e, b.apply("sum", other, axis=-1, keepdims=True))
    assert not found_in(b.region(b.apply("matmul", weights, v)))


def test_without_a_maximum():
    b, *_, v, scores = stacked()
    e = b.apply("exp", b.apply("multiply", scores, 0.1))
    weights = b.apply("divide", e, b.apply("sum", e, axis=-1, keepdims=True))

    def reference(q, k, v):
        e = np.exp(q @ k.swapaxes(-1, -2) * np.float32(0.1))
        return e / e.sum(-1, keepdims=True) @ v

    agree(b.region(b.apply("matmul", weights, v)), reference, *(operands(m, t) for m, t in SIZES))
