"""Products of half types and integers against NumPy: row remainders, column tails, blocks of k, strides, packing."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiercel.codegen.blob import link, map_blob
from tiercel.codegen.cpu.assemble import assemble
from tiercel.codegen.cpu.gemm import K_BLOCK
from tiercel.codegen.cpu.mixed import emit_mixed, summed_in
from tiercel.codegen.cpu.names import MIXED, mixed_names, mixed_of, piece_of
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.tile import panel_columns, tile_shape
from tiercel.dtypes import as_dtype
from tiercel.hotpath.memory import GuardedMemory

HOST = Target.host()
AVX2 = HOST.without_avx512() if HOST.masked_memory else HOST
TARGETS = [*({HOST: None, AVX2: None}), replace(AVX2, vector_bytes=16)]
P, L, FLAG = ctypes.c_void_p, ctypes.c_int64, ctypes.c_bool


class Family:
    """The functions as Python callables on arrays; `a` and `c` of the dtype in which products are summed."""

    def __init__(self, name, target):
        self.dtype, self.target = as_dtype(name), target
        self.wide = summed_in(self.dtype)
        declarations, functions = emit_mixed(self.dtype, target)
        obj = assemble("\n".join(declarations + functions), target, verify=True)
        self.code = map_blob(link(obj, mixed_names(self.dtype)))
        plain, packed, pack = (self.code.address(n) for n in mixed_names(self.dtype))
        self._plain = ctypes.CFUNCTYPE(None, P, L, L, P, L, L, P, L, L, L, L, FLAG, P)(plain)
        self._packed = ctypes.CFUNCTYPE(None, P, L, L, P, P, L, L, L, L, FLAG)(packed)
        self._pack = ctypes.CFUNCTYPE(None, P, L, L, P, L, L)(pack)
        self.columns = panel_columns(self.wide, target)
        self.scratch = self.poison(self.columns * K_BLOCK)

    def poison(self, count):
        return np.full(count * self.dtype.itemsize, 0xA5, np.uint8).view(self.dtype.numpy)

    @staticmethod
    def steps(x):
        return [s // x.itemsize for s in x.strides]

    def plain(self, a, b, c, accumulate=False):
        (m, k), n = a.shape, b.shape[1]
        args = (a.ctypes.data, *self.steps(a), b.ctypes.data, *self.steps(b), c.ctypes.data, self.steps(c)[0])
        self._plain(*args, m, n, k, accumulate, self.scratch.ctypes.data)

    def pack(self, b):
        k, n = b.shape
        panels = self.poison(-(-n // self.columns) * self.columns * k)
        self._pack(b.ctypes.data, *self.steps(b), panels.ctypes.data, n, k)
        return panels

    def packed(self, a, b, c, accumulate=False):
        (m, k), n = a.shape, b.shape[1]
        panels = self.pack(b)
        args = (a.ctypes.data, *self.steps(a), panels.ctypes.data, c.ctypes.data, self.steps(c)[0])
        self._packed(*args, m, n, k, accumulate)

    def operands(self, m, n, k):
        rng = np.random.default_rng(m * 1000 + n * 10 + k)
        if self.dtype.is_integer:
            shapes = ((self.wide, (m, k)), (self.dtype, (k, n)))
            ends = [np.iinfo(dtype.numpy) for dtype, _ in shapes]
            return tuple(
                rng.integers(end.min, end.max, shape, dtype=dtype.numpy, endpoint=True)
                for end, (dtype, shape) in zip(ends, shapes, strict=True)
            )
        a = rng.standard_normal((m, k)).astype(self.wide.numpy)
        return a, rng.standard_normal((k, n)).astype(self.dtype.numpy)

    def check(self, got, a, b):
        if self.dtype.is_integer:
            np.testing.assert_array_equal(got, a @ b.astype(self.wide.numpy))
            return
        exact, scale = (
            a.astype(np.float64) @ b.astype(np.float64),
            np.abs(a).astype(np.float64) @ np.abs(b.astype(np.float64)),
        )
        assert (np.abs(got - exact) <= 4 * np.finfo(np.float32).eps * scale + 1e-300).all()


@pytest.fixture(
    scope="module",
    params=[(n, t) for n in MIXED.values() for t in TARGETS],
    ids=lambda p: f"{p[0]}-{8 * p[1].vector_bytes}",
)
def family(request):
    return Family(*request.param)


@pytest.mark.parametrize("k", [0, 1, 37, K_BLOCK + 3])
def test_every_row_count_and_column_tail(family, k):
    columns, lanes = family.columns, family.columns // tile_shape(family.target)[1]
    for m in (*range(1, tile_shape(family.target)[0] + 2), 19):
        for n in (1, lanes, lanes + 1, columns - 1, columns, columns + 1):
            a, b = family.operands(m, n, k)
            plain, packed = (np.full((m, n), 7, family.wide.numpy) for _ in range(2))
            family.plain(a, b, plain)
            family.packed(a, b, packed)
            family.check(plain, a, b)
            np.testing.assert_array_equal(plain, packed)


def test_strides_change_no_bit(family):
    a, b = family.operands(11, family.columns + 5, 40)
    want = np.empty((11, b.shape[1]), family.wide.numpy)
    family.packed(a, b, want)
    for left in (a, np.asfortranarray(a), a[::-1].copy()[::-1]):
        for right in (b, np.asfortranarray(b), b[:, ::-1].copy()[:, ::-1]):
            for function in (family.plain, family.packed):
                got = np.full_like(want, 3)
                function(left, right, got)
                np.testing.assert_array_equal(got, want)


def test_accumulate_adds(family):
    a, b = family.operands(9, 20, 8)
    alone, added = np.empty((9, 20), family.wide.numpy), np.full((9, 20), 3, family.wide.numpy)
    family.packed(a, b, alone)
    family.packed(a, b, added, accumulate=True)
    np.testing.assert_array_equal(added, alone + family.wide.numpy.type(3))


def test_half_types_are_widened_exactly(family):
    """Every bit pattern of a half type times one, in both layouts; NaN stays NaN."""
    if not family.dtype.is_half:
        pytest.skip("not a half type")
    every = np.arange(1 << 16, dtype=np.uint16).view(family.dtype.numpy).reshape(1, -1)
    one = np.ones((1, 1), np.float32)
    got = np.empty((1, 1 << 16), np.float32)
    for function in (family.plain, family.packed):
        function(one, every, got)
        with np.errstate(invalid="ignore"):
            want = every.astype(np.float32) + np.float32(0)  # a sum that begins with zero is no negative zero
        np.testing.assert_array_equal(got, want)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 20), st.integers(0, 70), st.integers(0, 60), st.booleans(), st.booleans(), st.booleans())
def test_operands_between_forbidden_pages(family, m, n, k, turned, at_end, adding):
    """Nothing outside of the operands is touched, and every element is the product's."""
    memory = GuardedMemory()
    a, b = family.operands(m, n, k)

    def placed(x):
        block = memory.block(max(x.nbytes, 1), at_end=at_end)[: x.nbytes].view(x.dtype).reshape(x.shape)
        block[...] = x
        return block

    a = placed(a)
    b = placed(np.ascontiguousarray(b.T)).T if turned else placed(b)
    start = np.full((m, n), 5, family.wide.numpy)
    got, alone = placed(start), np.zeros((m, n), family.wide.numpy)
    family.plain(a, b, got, accumulate=adding)
    family.packed(a, b, alone)
    family.check(alone, a, b)
    np.testing.assert_array_equal(got, alone + start if adding else alone)


def test_names():
    assert [mixed_of(as_dtype(d)) for d in ("float32", "float64", "bool", "complex64")] == [None] * 4
    assert [mixed_of(as_dtype(d)) for d in ("uint32", "uint64", "uint8")] == ["int32", "int64", "uint8"]
    for dtype in MIXED.values():
        assert {piece_of(name) for name in mixed_names(as_dtype(dtype))} == {f"mixed {dtype}"}
