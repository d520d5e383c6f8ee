"""The matrix product family against NumPy: row remainders, column tails, blocks of k, strides, packing."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tiercel.codegen.blob import link, map_blob
from tiercel.codegen.cpu.assemble import assemble
from tiercel.codegen.cpu.gemm import K_BLOCK, emit_gemm, names, packed_elements, panel_columns, tile_shape
from tiercel.codegen.cpu.target import Target
from tiercel.dtypes import as_dtype

HOST = Target.host()
TARGETS = [HOST, HOST.without_avx512()] if HOST.masked_memory else [HOST]
P, L, FLAG = ctypes.c_void_p, ctypes.c_int64, ctypes.c_bool


class Family:
    """The three entry points as Python callables on arrays."""

    def __init__(self, name, target):
        self.dtype, self.target = as_dtype(name), target
        declarations, functions = emit_gemm(self.dtype, target)
        obj = assemble("\n".join(declarations + functions), target, verify=True)
        self.code = map_blob(link(obj, names(self.dtype)))
        plain, packed, pack = (self.code.address(n) for n in names(self.dtype))
        self._plain = ctypes.CFUNCTYPE(None, P, L, L, P, L, P, L, L, L, L, FLAG)(plain)
        self._packed = ctypes.CFUNCTYPE(None, P, L, L, P, P, L, L, L, L, FLAG)(packed)
        self._pack = ctypes.CFUNCTYPE(None, P, L, L, P, L, L)(pack)

    def steps(self, x):
        return [s // self.dtype.itemsize for s in x.strides]

    def plain(self, a, b, c, accumulate=False):
        (m, k), n = a.shape, b.shape[1]
        args = (a.ctypes.data, *self.steps(a), b.ctypes.data, self.steps(b)[0], c.ctypes.data, self.steps(c)[0])
        self._plain(*args, m, n, k, accumulate)

    def packed(self, a, b, c, accumulate=False):
        (m, k), n = a.shape, b.shape[1]
        panels = np.full(packed_elements(n, k, self.dtype, self.target), np.nan, self.dtype.numpy)
        self._pack(b.ctypes.data, *self.steps(b), panels.ctypes.data, n, k)
        args = (a.ctypes.data, *self.steps(a), panels.ctypes.data, c.ctypes.data, self.steps(c)[0])
        self._packed(*args, m, n, k, accumulate)


@pytest.fixture(
    scope="module", params=[(n, t) for n in ("float32", "float64") for t in TARGETS], ids=lambda p: f"{p[0]}-{p[1].cpu}"
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


def test_infinity_and_nan_pass(family):
    a, b = operands(family, 4, 7, 5)
    a[1, 2], b[3, 4] = np.inf, np.nan
    c = np.empty((4, 7), family.dtype.numpy)
    family.packed(a, b, c)
    with np.errstate(all="ignore"):
        want = a @ b
    np.testing.assert_array_equal(np.isnan(c), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(c), np.isinf(want))
