"""Kernels that do not accept every size, on trial."""

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


def test_large_images_with_a_fixed_number_of_channels():
    weight = tc.constant(np.full((2, 3, 3, 3), 0.1, np.float32))

    @tc.jit
    def first_layer(x):
        batch, channels, height, width = x.shape
        halved = x.reshape(batch, channels, height // 2, 2, width // 2, 2).mean(axis=(3, 5))
        return tc.ops.conv2d(halved, weight, padding=1)

    x = np.ones((1, 3, 256, 256), np.float32)  # larger than the arrays of a trial
    first_layer.warmup(x)
    np.testing.assert_allclose(first_layer(x), first_layer.__wrapped__(x), rtol=1e-5)
    assert first_layer.stats()["compiled_calls"] == 1, first_layer.explain()
