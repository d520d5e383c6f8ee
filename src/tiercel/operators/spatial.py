"""Shape and dtype rules of convolution, pooling and interpolation.

In: a `Call`. Out: shapes and dtypes. The window geometry is that of the references (`reference.windows`), with symbols
in place of sizes, so the two agree by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tiercel.dtypes import DType, float64, result_type
from tiercel.errors import DTypeError, ShapeError
from tiercel.operators.reference.convolution import conv_windows
from tiercel.operators.reference.interpolation import check_mode, output_sizes
from tiercel.operators.reference.pooling import pool_windows
from tiercel.operators.rules import dtype_of
from tiercel.operators.table import Call
from tiercel.operators.types import NotStatic, Shape
from tiercel.shapes import Dim, DimLike, dim_min

__all__ = [
    "dtype_avg_pool",
    "dtype_conv",
    "dtype_interpolate",
    "dtype_max_pool",
    "shape_conv",
    "shape_interpolate",
    "shape_pool",
]


@contextmanager
def _shape_errors() -> Iterator[None]:
    """The references' refusals, as the rules': of a size or an attribute, or of a type."""
    try:
        yield
    except ShapeError:
        raise
    except ValueError as error:
        raise ShapeError(str(error)) from None
    except TypeError as error:
        raise DTypeError(str(error)) from None


def dtype_conv(call: Call) -> DType:
    """The dtype of `x * w + b`."""
    return result_type(*(dtype_of(t) for t in call.operands))


def shape_conv(rank: int) -> Callable[[Call], Shape]:
    """`(N, O, *counts)` for this many spatial dimensions."""

    def rule(call: Call) -> Shape:
        x, w, groups, name = call.shape(0), call.shape(1), call["groups"], call.operator.name
        if len(x) != rank + 2 or len(w) != rank + 2:
            raise ShapeError(f"{name} needs x and w with {rank + 2} dimensions, got shapes {x} and {w}")
        outputs, channels = w[0], x[1]
        kernel = []
        for size in w[2:]:
            if isinstance(size, Dim):
                raise NotStatic(f"the kernel size {size} of a convolution is not known")
            if size == 0:
                raise ShapeError(f"{name}: the kernel has a zero size: w {w}")
            kernel.append(size)
        if groups < 1 or _misfit(channels, w[1], groups) or (isinstance(outputs, int) and outputs % groups):
            raise ShapeError(f"{name}: x {x} and w {w} do not fit with groups={groups}")
        if call.given(2):
            b = call.shape(2)
            if len(b) != 1 or (isinstance(b[0], int) and isinstance(outputs, int) and b[0] != outputs):
                raise ShapeError(f"{name}: b must have shape ({outputs},), got {b}")
        with _shape_errors():
            windows = conv_windows(x[2:], kernel, call["stride"], call["padding"], call["dilation"])
        return (x[0], outputs, *(window.count for window in windows))

    return rule


def _misfit(channels: DimLike, per_group: DimLike, groups: int) -> bool:
    if isinstance(channels, int) and channels % groups:
        return True
    both = isinstance(channels, int) and isinstance(per_group, int)
    return both and channels != per_group * groups


def dtype_max_pool(call: Call) -> DType:
    """The operand's dtype, which must not be complex."""
    dtype = dtype_of(call.operand(0))
    if dtype.is_complex:
        raise DTypeError(f"{call.operator.name}: complex numbers have no order, got {dtype.name}")
    return dtype


def dtype_avg_pool(call: Call) -> DType:
    """The operand's dtype; float64 for integers and bools."""
    dtype = dtype_of(call.operand(0))
    return dtype if dtype.is_inexact else float64


def shape_pool(rank: int) -> Callable[[Call], Shape]:
    """The number of windows in place of each of the last `rank` sizes."""

    def rule(call: Call) -> Shape:
        shape = call.shape(0)
        if len(shape) < rank:
            raise ShapeError(f"{call.operator.name} needs at least {rank} dimensions, got shape {shape}")
        lead = len(shape) - rank
        names = {p.name for p in call.operator.parameters}
        with _shape_errors():
            windows = pool_windows(
                shape[lead:],
                call["kernel_size"],
                call["stride"],
                call["padding"],
                call["dilation"] if "dilation" in names else 1,
                call["ceil_mode"],
                dim_min,
            )
        return (*shape[:lead], *(window.count for window in windows))

    return rule


def dtype_interpolate(call: Call) -> DType:
    """The operand's dtype; the linear modes need a floating or complex one."""
    dtype = dtype_of(call.operand(0))
    if call["mode"] in ("linear", "bilinear") and not dtype.is_inexact:
        # The reference looks at the shape first.
        shape_interpolate(call)
        raise DTypeError(f"interpolate: mode {call['mode']!r} needs a floating or complex dtype, got {dtype.name}")
    return dtype


def shape_interpolate(call: Call) -> Shape:
    """The spatial sizes replaced by `size`, or scaled and rounded down."""
    shape = call.shape(0)
    if len(shape) < 3:
        raise ShapeError(f"interpolate needs (N, C, ...) with at least one spatial dimension, got shape {shape}")
    spatial = shape[2:]
    with _shape_errors():
        check_mode(call["mode"], len(spatial), call["align_corners"])
        sizes = output_sizes(spatial, call["size"], call["scale"])
    for axis, (old, new) in enumerate(zip(spatial, sizes, strict=True)):
        if old == 0 and isinstance(new, int) and new > 0:
            raise ShapeError(f"interpolate: cannot resize spatial dimension {axis} from 0 to {new}")
    return (*shape[:2], *sizes)
