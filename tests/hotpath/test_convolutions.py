"""Convolutions with many channels pass their trials: sizes that they take, errors that their sums may have."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc


@pytest.mark.parametrize(
    ("filters", "attributes"),
    [((128, 128, 3, 3), {"padding": 1}), ((96, 1, 3, 3), {"groups": 96, "stride": 2}), ((80, 72, 1, 1), {})],
)
def test_many_channels_are_compiled(filters, attributes):
    rng = np.random.default_rng(0)
    w = tc.constant(rng.standard_normal(filters).astype("float32"))
    b = tc.constant(rng.standard_normal(filters[0]).astype("float32"))
    channels = filters[1] * attributes.get("groups", 1)
    stride, padding, groups = (attributes.get(n, d) for n, d in (("stride", 1), ("padding", 0), ("groups", 1)))

    @tc.jit
    def layer(x):
        return np.maximum(tc.ops.conv2d(x, w, b, stride=stride, padding=padding, groups=groups), 0)

    layer.warmup(np.ones((1, channels, 20, 20), "float32"))
    tc.wait()
    image = rng.standard_normal((2, channels, 11, 16)).astype("float32")
    got = layer(image)
    assert layer.stats()["compiled_calls"] >= 1, str(layer.explain())
    want = tc.ops.conv2d(image, np.asarray(w), np.asarray(b), stride=stride, padding=padding, groups=groups)
    np.testing.assert_allclose(got, np.maximum(want, 0), rtol=1e-4, atol=1e-3)
