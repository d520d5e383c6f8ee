"""The convolution kernels against NumPy: edges of tiles, rows that end inside of vectors, nothing written beyond."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tiercel.codegen.blob import link, map_blob
from tiercel.codegen.cpu.assemble import assemble
from tiercel.codegen.cpu.convolve import emit_convolve
from tiercel.codegen.cpu.names import convolve_names
from tiercel.codegen.cpu.target import Target
from tiercel.dtypes import as_dtype
from tiercel.loops.form import UNFOLD_SLACK

HOST = Target.host()
TARGETS = [HOST, HOST.without_avx512()] if HOST.masked_memory else [HOST]
P, L = ctypes.c_void_p, ctypes.c_int64


@pytest.fixture(
    scope="module", params=[(t, d) for t in TARGETS for d in ("float32", "float64")], ids=lambda p: f"{p[0].cpu} {p[1]}"
)
def kernels(request):
    target, name = request.param
    dtype = as_dtype(name)
    declarations, functions = emit_convolve(dtype, target)
    code = map_blob(
        link(assemble("\n".join([*declarations, *functions]), target, verify=True), list(convolve_names(dtype)))
    )
    number = ctypes.c_float if name == "float32" else ctypes.c_double
    convolve, unfold = (code.address(n) for n in convolve_names(dtype))
    return (
        name,
        ctypes.CFUNCTYPE(None, P, L, P, P, L, P, L, L, L, L, L, L, P, L, number)(convolve),
        ctypes.CFUNCTYPE(None, P, L, L, L, L, L, L, P, L, L, L, L, L, L)(unfold),
        code,
    )


@pytest.mark.parametrize("down", [1, 2, 3])
@pytest.mark.parametrize("across", [1, 2, 3])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_unfold(kernels, down, across, layout):
    name, _, unfold, _ = kernels
    rng = np.random.default_rng(down * 10 + across)
    for height, width, top, left, rows, pitch in ((5, 7, -1, -2, 4, 9), (9, 70, 1, -1, 3, 41), (3, 33, -4, 5, 2, 40)):
        source = np.asarray(rng.standard_normal((2, height, width)), name, order=layout)
        plane = rows * pitch + UNFOLD_SLACK
        given = np.full(2 * down * across * plane + 1, 7, name)
        steps = [s // source.itemsize for s in source.strides]
        unfold(source.ctypes.data, *steps, *source.shape, given.ctypes.data, top, left, rows, pitch, down, across)
        planes = given[:-1].reshape(2, down, across, plane)
        want = np.zeros((2, down, across, rows * pitch), name)
        for c, a, b, r, x in np.ndindex(2, down, across, rows, pitch):
            y, column = top + r * down + a, left + x * across + b
            if 0 <= y < height and 0 <= column < width:
                want[c, a, b, r * pitch + x] = source[c, y, column]
        np.testing.assert_array_equal(planes[..., : rows * pitch], want)
        assert (planes != 7).all()
        assert given[-1] == 7


@pytest.mark.parametrize("outputs", [1, 3, 4, 7, 8, 19])
@pytest.mark.parametrize(("height", "width", "pitch"), [(1, 1, 3), (2, 200, 202), (7, 5, 6), (9, 3, 3), (0, 4, 5)])
def test_convolve(kernels, outputs, height, width, pitch):
    name, convolve, _, _ = kernels
    rng = np.random.default_rng(outputs)
    taps = 11
    image = rng.standard_normal(height * pitch + 40 + UNFOLD_SLACK).astype(name)
    offsets = rng.integers(0, 40, taps)
    weights, bias = rng.standard_normal((outputs, taps + 2)).astype(name), rng.standard_normal(outputs).astype(name)
    at = (np.arange(height)[:, None] * pitch + np.arange(width)).reshape(-1)
    sums = np.stack([image[o + at] for o in offsets], axis=0)
    for low, added in ((0.0, bias), (-np.inf, None)):
        c = np.full((outputs, height + 1, width + 2), 7, name)
        convolve(
            weights.ctypes.data, taps + 2, image.ctypes.data, offsets.ctypes.data, taps, c.ctypes.data,
            (height + 1) * (width + 2), width + 2, outputs, height, width, pitch,
            None if added is None else added.ctypes.data, int(added is not None), low,
        )  # fmt: skip
        want = np.maximum(weights[:, :taps] @ sums + (0 if added is None else added[:, None]), low)
        tolerance = 1e-5 if name == "float32" else 1e-13
        got = c[:, :height, :width].reshape(outputs, -1)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
        assert (c[:, height:] == 7).all()
        assert (c[:, :, width:] == 7).all()


def test_nan_is_kept_and_no_taps_give_the_bias(kernels):
    name, convolve, _, _ = kernels
    image = np.full(16 + UNFOLD_SLACK, np.nan, name)
    weights, bias, offsets = np.ones((1, 1), name), np.array([-3], name), np.zeros(1, np.int64)
    for taps, want in ((1, np.nan), (0, -1.0)):
        c = np.zeros((1, 1, 16), name)
        convolve(
            weights.ctypes.data, 1, image.ctypes.data, offsets.ctypes.data, taps, c.ctypes.data, 16, 16, 1, 1, 16, 16,
            bias.ctypes.data, 1, -1.0,
        )  # fmt: skip
        np.testing.assert_array_equal(c, np.full_like(c, want))


@pytest.mark.parametrize(("outputs", "height", "width"), [(1, 1, 1), (1, 5, 37), (3, 9, 64), (9, 2, 33)])
def test_rows_of_taps_that_follow_each_other(kernels, outputs, height, width):
    """3 x 3 taps of one output go down the columns, with the sums of all other tiles."""
    name, convolve, _, _ = kernels
    rng = np.random.default_rng(width)
    pitch = width + 3
    image = rng.standard_normal((height + 2) * pitch + UNFOLD_SLACK).astype(name)
    offsets = np.array([r * pitch + t for r in range(3) for t in (0, 1, 3)], np.int64)
    weights, bias = rng.standard_normal((outputs, 9)).astype(name), rng.standard_normal(outputs).astype(name)
    c, separate = (np.full((outputs, height, width + 1), 7, name) for _ in range(2))
    for given, offset in ((c, offsets), (separate, np.append(offsets, 0))):  # a tenth tap, of weight 0
        filters = np.ascontiguousarray(np.pad(weights, ((0, 0), (0, len(offset) - 9))))
        convolve(
            filters.ctypes.data, len(offset), image.ctypes.data, offset.ctypes.data, len(offset), given.ctypes.data,
            height * (width + 1), width + 1, outputs, height, width, pitch, bias.ctypes.data, 1, 0.0,
        )  # fmt: skip
    np.testing.assert_array_equal(c, separate)
    assert (c[..., width] == 7).all()
