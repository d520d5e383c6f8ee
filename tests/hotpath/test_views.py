"""Kernels whose results are views, on trial with sizes they do not accept."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc


@pytest.mark.parametrize("wide", [np.ones((5, 8), np.float32), np.ones((1, 8))])
def test_a_reshaped_result_of_a_size_that_is_guarded(wide):
    @tc.jit
    def grouped(x):
        y = x.reshape(x.shape[0], 2, 4)
        return (y - y.mean(-1, keepdims=True)).reshape(x.shape)

    grouped.warmup(wide)
    assert np.array_equal(grouped(wide), np.zeros_like(wide))
    assert grouped.stats()["compiled_calls"] == 1, grouped.explain()
    with pytest.raises(ValueError, match="cannot reshape"):
        grouped(wide[:, :7])
