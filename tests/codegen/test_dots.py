"""Products of short rows with a vector against NumPy: any number and length of rows, nothing read beyond them."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tiercel.codegen.blob import link, map_blob
from tiercel.codegen.cpu.assemble import assemble
from tiercel.codegen.cpu.dots import dots_name, emit_dots
from tiercel.codegen.cpu.target import Target
from tiercel.dtypes import as_dtype

HOST = Target.host()
TARGETS = [HOST, HOST.without_avx512()] if HOST.masked_memory else [HOST]
P, L = ctypes.c_void_p, ctypes.c_int64


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dots(dtype, target):
    declarations, function = emit_dots(as_dtype(dtype), target)
    name = dots_name(as_dtype(dtype))
    code = map_blob(link(assemble("\n".join([*declarations, function]), target, verify=True), [name]))
    dots = ctypes.CFUNCTYPE(None, P, L, P, P, L, L)(code.address(name))
    for m, k in (
        (1, 1),
        (3, 5),
        (16, 64),
        (17, 64),
        (40, 33),
        (0, 4),
        (4, 0),
        (31, 16),
        (5, 100),
        (64, 8),
        (7, 32),
        (33, 128),
        (18, 96),
    ):
        a = np.random.default_rng(m * 100 + k).standard_normal((m, k + 3)).astype(dtype)
        x = np.random.default_rng(k).standard_normal(k).astype(dtype)
        y = np.full(m + 2, 7, dtype)
        a[:, k:] = np.nan
        dots(a.ctypes.data, k + 3, x.ctypes.data, y.ctypes.data, m, k)
        np.testing.assert_allclose(y[:m], a[:, :k] @ x, rtol=1e-4, atol=1e-5)
        assert (y[m:] == 7).all()
        again = np.full(m + 2, 7, dtype)
        if m > 1:
            dots(a[1:].ctypes.data, k + 3, x.ctypes.data, again.ctypes.data, m - 1, k)
            np.testing.assert_array_equal(again[: m - 1], y[1:m])
