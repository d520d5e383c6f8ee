"""Transposing against NumPy: edges of blocks, strides, and nothing written beyond."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tiercel.codegen.blob import link, map_blob
from tiercel.codegen.cpu.assemble import assemble
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.turn import emit_turn, turn_name
from tiercel.dtypes import as_dtype

HOST = Target.host()
TARGETS = [HOST, HOST.without_avx512()] if HOST.masked_memory else [HOST]
P, L = ctypes.c_void_p, ctypes.c_int64


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_turn(dtype, target):
    declarations, function = emit_turn(as_dtype(dtype), target)
    code = map_blob(
        link(assemble("\n".join([*declarations, function]), target, verify=True), [turn_name(as_dtype(dtype))])
    )
    turn = ctypes.CFUNCTYPE(None, P, L, P, L, L, L)(code.address(turn_name(as_dtype(dtype))))
    for m, n in ((1, 1), (3, 5), (16, 16), (17, 16), (8, 33), (48, 64), (0, 4), (4, 0), (31, 1), (1, 31)):
        source = np.random.default_rng(m * 100 + n).standard_normal((m, n + 3)).astype(dtype)
        target_ = np.full((n + 1, m + 2), 7, dtype)
        turn(source.ctypes.data, n + 3, target_.ctypes.data, m + 2, m, n)
        np.testing.assert_array_equal(target_[:n, :m], source[:, :n].T)
        assert (target_[n:] == 7).all()
        assert (target_[:, m:] == 7).all()
