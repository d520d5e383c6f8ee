"""The matrix product family against NumPy: row remainders, column tails, blocks of k, strides, packing."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiercel.codegen.blob import link, map_blob
from tiercel.codegen.cpu.assemble import assemble
from tiercel.codegen.cpu.gemm import COPIED, HOW, K_BLOCK, emit_gemm, names, packed_elements, scratch_elements
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.tile import panel_columns, tile_shape, widths
from tiercel.dtypes import as_dtype
from tiercel.hotpath.memory import GuardedMemory

HOST = Target.host()
AVX2 = HOST.without_avx512() if HOST.masked_memory else HOST
TARGETS = [*({HOST: None, AVX2: None}), replace(AVX2, vector_bytes=16)]
P, L, FLAG = ctypes.c_void_p, ctypes.c_int64, ctypes.c_bool


class Family:
    """The three entry points as Python callables on arrays."""

    def __init__(self, name, target, vectors=0):
        self.dtype, self.target, self.vectors = as_dtype(name), target, vectors
        declarations, functions = emit_gemm(self.dtype, target, vectors)
        entries = names(self.dtype, vectors)[: 3 if vectors else 4]
        obj = assemble("\n".join([*dict.fromkeys(declarations), *functions]), target, verify=True)
        self.code = map_blob(link(obj, entries))
        plain, packed, pack, *vector = (self.code.address(n) for n in entries)
        self._plain = ctypes.CFUNCTYPE(None, P, L, L, P, L, L, P, L, L, L, L, FLAG, L, P, L, L)(plain)
        self._packed = ctypes.CFUNCTYPE(None, P, L, L, P, P, L, L, L, L, FLAG, L)(packed)
        if vector:
            self._vector = ctypes.CFUNCTYPE(None, P, L, P, L, P, L, L, L, FLAG)(*vector)
        self.scratch = np.full(scratch_elements(self.dtype, target, vectors), np.nan, self.dtype.numpy)
        self._pack = ctypes.CFUNCTYPE(None, P, L, L, P, L, L)(pack)
        self.rows = tile_shape(target, vectors)[0]

    def steps(self, x):
        return [s // self.dtype.itemsize for s in x.strides]

    def plain(self, a, b, c, accumulate=False, before=0, rows=None, how=COPIED):
        (m, k), n = a.shape, b.shape[1]
        args = (a.ctypes.data, *self.steps(a), b.ctypes.data, *self.steps(b), c.ctypes.data, self.steps(c)[0])
        self._plain(*args, m, n, k, accumulate, rows or self.rows, self.scratch.ctypes.data, before, how)

    def vector(self, a, x, y, accumulate=False):
        args = (a.ctypes.data, self.steps(a)[0], x.ctypes.data, self.steps(x)[0], y.ctypes.data, self.steps(y)[0])
        self._vector(*args, *a.shape, accumulate)

    def packed(self, a, b, c, accumulate=False, rows=None):
        (m, k), n = a.shape, b.shape[1]
        panels = np.full(packed_elements(n, k, self.dtype, self.target, self.vectors), np.nan, self.dtype.numpy)
        self._pack(b.ctypes.data, *self.steps(b), panels.ctypes.data, n, k)
        args = (a.ctypes.data, *self.steps(a), panels.ctypes.data, c.ctypes.data, self.steps(c)[0])
        self._packed(*args, m, n, k, accumulate, rows or self.rows)


@pytest.fixture(
    scope="module",
    params=[(n, t) for n in ("float32", "float64") for t in TARGETS],
    ids=lambda p: f"{p[0]}-{8 * p[1].vector_bytes}",
)
def family(request):
    return Family(*request.param)


def operands(family, m, n, k):
    rng = np.random.default_rng(m * 1000 + n * 10 + k)
    return (rng.standard_normal(s).astype(family.dtype.numpy) for s in ((m, k), (k, n)))


def close(got, a, b):
    """Relative to the size of the sum: c * eps * sqrt(k), elementwise."""
    eps = np.finfo(got.dtype).eps
    want = a.astype(np.float64) @ b.astype(np.float64)
    scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    assert (np.abs(got - want) <= 4 * eps * scale + 1e-300).all()


@pytest.mark.parametrize("k", [0, 1, 5, 64, K_BLOCK + 3])
def test_every_row_count_and_column_tail(family, k):
    columns = panel_columns(family.dtype, family.target)
    for m in (*range(1, tile_shape(family.target)[0] + 2), 19):
        for n in (1, columns - 1, columns, columns + 1, *((5 * columns + 3,) if m <= 2 else ())):
            a, b = operands(family, m, n, k)
            plain, packed = (np.full((m, n), 7, family.dtype.numpy) for _ in range(2))
            family.plain(a, b, plain)
            family.packed(a, b, packed)
            close(plain, a, b)
            np.testing.assert_array_equal(plain, packed)


def test_transposed_operands_need_no_copy(family):
    a, b = operands(family, 11, 23, 37)
    a_t, b_t = np.asfortranarray(a), np.asfortranarray(b)
    c = np.empty((11, 23), family.dtype.numpy)
    family.plain(a_t, b, c)
    close(c, a, b)
    family.packed(a_t[::-1], b_t, c)
    close(c, a[::-1], b)


def test_accumulate_adds(family):
    a, b = operands(family, 9, 20, 8)
    start = np.ones((9, 20), family.dtype.numpy)
    c = start.copy()
    family.plain(a, b, c, accumulate=True)
    np.testing.assert_allclose(c, start + a @ b, rtol=1e-5, atol=1e-5)


def test_only_the_result_is_written(family):
    """A window of a larger matrix: what lies around it keeps its content."""
    a, b = operands(family, 5, 21, 6)
    board = np.full((9, 64), 3, family.dtype.numpy)
    family.plain(a, b, board[2:7, 4:25])
    close(board[2:7, 4:25], a, b)
    board[2:7, 4:25] = 3
    assert (board == 3).all()


def test_sum_order_does_not_depend_on_the_row_count(family):
    """A row has the same bits wherever it stands and however many rows there are."""
    a, b = operands(family, 16, 500, 700)
    whole = np.empty((16, 500), family.dtype.numpy)
    family.plain(a, b, whole)
    for m in (1, 2, 3, 5, 8, 13):
        part = np.empty((m, 500), family.dtype.numpy)
        family.plain(a[:m], b, part)
        np.testing.assert_array_equal(part, whole[:m])


def test_strides_of_the_right_operand_change_no_bit(family):
    """In place, transposed, every other column, backwards: packed on the way, and the same as packed before."""
    columns, rows = panel_columns(family.dtype, family.target), tile_shape(family.target)[0]
    for m, n, k in ((1, 3, 5), (rows, columns + 1, 40), (rows + 3, 2 * columns - 1, K_BLOCK + 17), (2, 5 * columns, 9)):
        a, b = operands(family, m, n, k)
        want = np.empty((m, n), family.dtype.numpy)
        family.packed(a, b, want)
        spread = np.zeros((k, 2 * n), family.dtype.numpy)
        spread[:, ::2] = b
        for other in (b, np.asfortranarray(b), spread[:, ::2], b[:, ::-1].copy()[:, ::-1], b[::-1].copy()[::-1]):
            got = np.full((m, n), np.nan, family.dtype.numpy)
            family.plain(a, other, got)
            np.testing.assert_array_equal(got, want)


def test_no_way_of_multiplying_changes_a_bit(family):
    """Width of panels, rows of a tile, what becomes of an unpacked operand: the same sums in the same order."""
    panel = panel_columns(family.dtype, family.target)
    others = [family, *(Family(family.dtype.name, family.target, v) for v in widths(family.target)[1:])]
    for m, n, k in ((1, 5 * panel + 3, 40), (2, panel - 1, 7), (9, 2 * panel + 1, K_BLOCK + 17), (31, 50, 33)):
        a, b = operands(family, m, n, k)
        want = np.empty((m, n), family.dtype.numpy)
        family.packed(a, b, want)
        close(want, a, b)
        for other in others:
            for rows in {1, 2, other.rows // 2 + 1, other.rows}:
                got = np.full((m, n), np.nan, family.dtype.numpy)
                other.packed(a, b, got, rows=rows)
                np.testing.assert_array_equal(got, want)
                for how in range(len(HOW)):
                    for right in (b, np.asfortranarray(b)):
                        got.fill(np.nan)
                        other.plain(a, right, got, rows=rows, how=how)
                        np.testing.assert_array_equal(got, want)


def test_other_widths_stay_within_their_operands(family):
    """Between forbidden pages, with a tail of columns that needs those to its left."""
    memory = GuardedMemory()
    for vectors in widths(family.target)[1:]:
        other = Family(family.dtype.name, family.target, vectors)
        columns = panel_columns(family.dtype, family.target, vectors)
        for at_end in (False, True):
            for m, n, k in ((1, 1, 1), (other.rows + 1, columns + 1, 9), (2, 5 * columns - 1, 3), (0, 4, 4), (4, 0, 4)):
                given = operands(family, m, n, k)
                a, b = (memory.array(x.shape, x.dtype, at_end=at_end) for x in given)
                a[...], b[...] = operands(family, m, n, k)
                c = memory.array((m, n), a.dtype, at_end=at_end)
                for how in range(len(HOW)):
                    other.plain(a, b, c, how=how)
                    close(c, a, b)
                other.packed(a, b, c)
                close(c, a, b)
    memory.release()


def test_columns_to_the_left_are_read_but_not_written(family):
    """The last panel of a piece of a matrix: narrower than a panel, with columns before it."""
    columns = panel_columns(family.dtype, family.target)
    for m in (1, 3, 20):
        a, b = operands(family, m, 2 * columns, K_BLOCK + 5)
        want = np.empty((m, 2 * columns), family.dtype.numpy)
        family.plain(a, b, want)
        for start in (columns - 1, columns, columns + 2, 2 * columns - 1):
            board = np.full((m, 2 * columns), 7, family.dtype.numpy)
            family.plain(a, b[:, start:], board[:, start:], before=start)
            np.testing.assert_array_equal(board[:, start:], want[:, start:])
            assert (board[:, :start] == 7).all()


def test_matrix_times_vector(family):
    for m in (0, 1, 3, 4, 5, 9):
        for k in (0, 1, 7, 31, 32, 33, 1000):
            a, b = operands(family, m, 1, k)
            wide = np.zeros((k, 3), family.dtype.numpy)
            wide[:, 1] = b[:, 0]
            out = np.full((m, 2), 5, family.dtype.numpy)
            family.vector(a, b[:, 0], out[:, 0])
            close(out[:, 0], a, b[:, 0])
            assert (out[:, 1] == 5).all()
            again = np.ones(m, family.dtype.numpy)
            family.vector(a, wide[:, 1], again, accumulate=True)
            np.testing.assert_array_equal(again, out[:, 0] + family.dtype.numpy.type(1))


def test_a_row_times_a_vector_does_not_depend_on_the_other_rows(family):
    a, b = operands(family, 13, 1, 700)
    whole = np.empty(13, family.dtype.numpy)
    family.vector(a, b[:, 0], whole)
    for first, last in ((0, 1), (3, 5), (1, 13), (8, 12)):
        part = np.empty(last - first, family.dtype.numpy)
        family.vector(a[first:last], b[:, 0], part)
        np.testing.assert_array_equal(part, whole[first:last])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 40), st.integers(0, 130), st.integers(0, 90), st.booleans(), st.booleans(), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_operands_between_forbidden_pages(family, m, n, k, a_turned, b_turned, at_end, adding):
    """Nothing outside of the operands is touched, and every element is the product's."""
    memory = GuardedMemory()
    rng = np.random.default_rng(m + 50 * n + 7000 * k)
    itemsize = family.dtype.itemsize

    def place(rows, columns, turned):
        strides = (itemsize, itemsize * rows) if turned else (itemsize * columns, itemsize)
        made = memory.array((rows, columns), family.dtype.numpy, at_end=at_end, strides=strides)
        made[...] = rng.standard_normal((rows, columns))
        return made

    a, b, c = place(m, k, a_turned), place(k, n, b_turned), place(m, n, False)
    before = c.copy()
    try:
        family.plain(a, b, c, accumulate=adding)
        close(c, a, b) if not adding else np.testing.assert_allclose(c, before + a @ b, atol=1e-4)
        again = np.array(before)
        family.packed(a, b, again, accumulate=adding)
        np.testing.assert_array_equal(again, c)
        if n:
            y, x = np.empty(m, family.dtype.numpy), b[:, 0]
            if not a_turned:
                family.vector(a, x, y)
                close(y, a, x)
    finally:
        memory.release()


def test_infinity_and_nan_pass(family):
    a, b = operands(family, 4, 7, 5)
    a[1, 2], b[3, 4] = np.inf, np.nan
    c = np.empty((4, 7), family.dtype.numpy)
    family.packed(a, b, c)
    with np.errstate(all="ignore"):
        want = a @ b
    np.testing.assert_array_equal(np.isnan(c), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(c), np.isinf(want))
