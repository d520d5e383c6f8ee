"""Rows of networks on images and signals: convolution, pooling, interpolation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tiercel.operators import rules, spatial
from tiercel.operators.reference.convolution import conv1d, conv2d
from tiercel.operators.reference.interpolation import interpolate
from tiercel.operators.reference.pooling import avg_pool1d, avg_pool2d, max_pool1d, max_pool2d
from tiercel.operators.table import (
    EXACT,
    FRESH,
    PURE,
    REQUIRED,
    Call,
    DTypeRule,
    Exactness,
    Lowering,
    Operator,
    bounded,
    parameters,
    reordered,
)


def windowed(
    name: str,
    reference: Callable[..., Any],
    doc: str,
    shape: Callable[[Call], Any],
    dtype: DTypeRule,
    exactness: Exactness,
    lowering: Any,
    attributes: Mapping[str, object],
    operands: str = "x",
) -> Operator:
    """A row whose fresh, C-ordered result has one element a window."""
    return Operator(
        name=name,
        parameters=parameters(operands, attributes),
        spellings=(),
        dtype=dtype,
        shape=shape,
        layout=rules.layout_c,
        kind=rules.kind_array,
        result=FRESH,
        effect=PURE,
        exactness=exactness,
        may_fail=("size",),
        reference=reference,
        lowering=Lowering(lowering, name),
        doc=doc,
    )


def _conv(name: str, reference: Callable[..., Any], rank: int, doc: str) -> Operator:
    attributes = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
    return windowed(
        name,
        reference,
        doc,
        spatial.shape_conv(rank),
        spatial.dtype_conv,
        reordered(),
        "contraction",
        attributes,
        "x w b?",
    )


def _max_pool(name: str, reference: Callable[..., Any], rank: int, doc: str) -> Operator:
    attributes = {"kernel_size": REQUIRED, "stride": None, "padding": 0, "dilation": 1, "ceil_mode": False}
    return windowed(
        name, reference, doc, spatial.shape_pool(rank), spatial.dtype_max_pool, EXACT, "reduction", attributes
    )


def _avg_pool(name: str, reference: Callable[..., Any], rank: int, doc: str) -> Operator:
    attributes = {
        "kernel_size": REQUIRED,
        "stride": None,
        "padding": 0,
        "ceil_mode": False,
        "count_include_pad": True,
    }
    return windowed(
        name, reference, doc, spatial.shape_pool(rank), spatial.dtype_avg_pool, reordered(), "reduction", attributes
    )


ROWS: Final = (
    _conv("conv1d", conv1d, 1, "cross-correlation of (N, C, L) with (O, C / groups, K), plus a bias"),
    _conv("conv2d", conv2d, 2, "cross-correlation of (N, C, H, W) with (O, C / groups, KH, KW), plus a bias"),
    _max_pool("max_pool1d", max_pool1d, 1, "the maximum of each window along the last axis"),
    _max_pool("max_pool2d", max_pool2d, 2, "the maximum of each window over the last two axes"),
    _avg_pool("avg_pool1d", avg_pool1d, 1, "the mean of each window along the last axis"),
    _avg_pool("avg_pool2d", avg_pool2d, 2, "the mean of each window over the last two axes"),
    windowed(
        "interpolate",
        interpolate,
        "(N, C, ...) resized: nearest, linear or bilinear, to sizes or by factors",
        spatial.shape_interpolate,
        spatial.dtype_interpolate,
        bounded(4),
        "gather",
        {"size": None, "scale": None, "mode": "nearest", "align_corners": False},
    ),
)
