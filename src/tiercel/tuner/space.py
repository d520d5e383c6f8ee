"""What can be chosen for a product of matrices, and what is known of a way before it is tried.

In: a `Product`, a `Point`. Out: the points to choose from, a first guess of the time, and the numbers by which
`predictor` learns where the guess is wrong. Named here is one family, "product": its points are `codegen.cpu.choice`'s.

The guess counts what is certain: columns that fill panels up, rows that fill tiles up (a step of a tile of r rows by v
vectors takes r * v multiply-adds, r + v loads, and never less than the latency of an addition), threads that wait for
the last block, and what reading an operand from further away takes. It is computed from the same cut as the code's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tiercel.codegen.cpu.choice import AXES, BLOCKS, BY_WORK, PER_THREAD, ROWS, Point
from tiercel.codegen.cpu.choice import space as points_of
from tiercel.codegen.cpu.contract import BLOCK_WORK, BLOCKS_PER_THREAD, FEW_ROWS, MANY_TILES
from tiercel.codegen.cpu.estimate import PARALLEL_WORK
from tiercel.codegen.cpu.gemm import HOW, IN_PLACE, K_BLOCK
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.tile import panel_columns, tile_shape, wide_panels, widths
from tiercel.dtypes import as_dtype

__all__ = ["LAYOUTS", "Cut", "Product", "cut_of", "features", "guess_ns", "is_large", "points"]

LAYOUTS: Final = ("packed", "rows", "columns")
"""How the right operand lies: packed in panels, or as it was given, its rows or its columns contiguous."""
_PEAK: Final = 100.0
"""Operations a nanosecond of a core in float32 with 64-byte vectors, until something was measured."""
_LATENCY: Final = 4
_OVERHEAD_NS: Final = 60.0
"""Of a block: finding it, entering the driver."""
_WAKE_NS: Final = 3000.0
"""Until a second thread takes part."""


class Product(NamedTuple):
    """A product of matrices, `a @ b`.

    Attributes:
        dtype: "float32" or "float64".
        layout: of b, one of `LAYOUTS`.
        epilogue: whether something is computed from it element by element.
        m, n, k: a is (m, k), b is (k, n).
        threads: that may take part.
    """

    dtype: str
    layout: str
    epilogue: bool
    m: int
    n: int
    k: int
    threads: int

    @property
    def kind(self) -> tuple[str, str, bool, int]:
        """What is learned about apart: the size is what remains."""
        return self.dtype, self.layout, self.epilogue, self.threads

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k

    def __str__(self) -> str:
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        tail = " and epilogue" if self.epilogue else ""
        return f"{self.m} x {self.k} @ {self.k} x {self.n}, {self.dtype}, {self.layout}{tail}, {threads}"


def points(product: Product, target: Target) -> list[Point]:
    """The points that differ for such a product: below the threshold for threads, as with one."""
    several = product.threads if is_large(product) else 1
    return list(points_of(target, packed=product.layout == "packed", threads=several))


def is_large(product: Product) -> bool:
    """Is it worth several threads?"""
    return max(product.m, FEW_ROWS) * product.n * product.k >= PARALLEL_WORK


class Cut(NamedTuple):
    """How a point cuts a product: blocks along each axis, rows and panels of the largest one."""

    across: int
    down: int
    rows: int
    panels: int


def cut_of(product: Product, point: Point, target: Target) -> Cut:
    """What `codegen.cpu.contract` makes of it."""
    panel = panel_columns(as_dtype(product.dtype), target, point.vectors)
    tile = tile_shape(target, point.vectors)[0]
    most_rows, bytes_ = BLOCKS[point.block]
    most_panels = max(1, bytes_ // (panel * as_dtype(product.dtype).itemsize))
    if not is_large(product):
        wanted = 1
    elif point.per_thread != BY_WORK:
        wanted = product.threads * point.per_thread
    else:
        few, with_epilogue, most = (product.threads * blocks for blocks in BLOCKS_PER_THREAD)
        worth = max(product.m, FEW_ROWS) * product.n * product.k // BLOCK_WORK
        wanted = few if product.m <= 2 else max(few, min(worth, with_epilogue if product.epilogue else most))
    panels = -(-product.n // panel)
    if point.axis == "columns":
        first = panels if panels < 2 * wanted else wanted
        enough = wanted if product.m >= MANY_TILES * tile else min(product.threads, wanted)
    else:
        first, enough = -(-wanted // min(max(1, -(-product.m // tile)), wanted)), wanted
    across = max(1, min(panels, max(first, -(-panels // most_panels))))
    down = max(-(-enough // across), -(-product.m // most_rows), 1)
    few, half = -(-product.m // down), (tile + 1) // 2
    rows = half if few <= half else -(-few // tile) * tile
    return Cut(across, max(1, -(-product.m // rows)), min(rows, product.m), -(-panels // across))


def _steps(rows: int, vectors: int) -> float:
    """Cycles of one step along k of a tile: multiply-adds, loads, or the latency of the sums."""
    wide = wide_panels(rows)
    return max(rows * vectors * wide, rows + vectors * wide, _LATENCY) / wide


def _tile_cycles(rows: int, point: Point, target: Target) -> float:
    """Cycles a step of all tiles of so many rows by a panel takes, for each vector of the panel."""
    largest, vectors = tile_shape(target, point.vectors)
    each = -(-rows // -(-rows // largest)) if point.rows == "even" else largest
    whole, rest = divmod(rows, each)
    return (whole * _steps(each, vectors) + (_steps(rest, vectors) if rest else 0.0)) / vectors


def _losses(product: Product, point: Point, target: Target) -> tuple[float, float, float, float, float]:
    """Logarithms of the factors by which panels, tiles, waiting, blocks, and reading b anew lengthen a product."""
    cut = cut_of(product, point, target)
    panel = panel_columns(as_dtype(product.dtype), target, point.vectors)
    filled = math.log(-(-product.n // panel) * panel / product.n)
    rows = max(1, cut.rows)
    tiles = math.log(max(_tile_cycles(rows, point, target) / rows, 1.0))
    count = cut.across * cut.down
    threads = min(product.threads, count) if is_large(product) else 1
    # blocks are about equal along an axis, the last row of blocks is what is left
    last = product.m - (cut.down - 1) * cut.rows
    work = cut.across * (cut.down - 1) + cut.across * last / rows
    turns = -(-count // threads)
    waiting = math.log(max(1.0, turns * threads / max(work, 1e-9)) * product.threads / threads)
    ideal = _ideal_ns(product, target)
    blocks = math.log1p(_OVERHEAD_NS * turns / ideal + (_WAKE_NS / ideal if threads > 1 else 0.0))
    again = math.log1p((-(-rows // tile_shape(target, point.vectors)[0]) - 1) / max(1, rows))
    return filled, tiles, waiting, blocks, again


def _ideal_ns(product: Product, target: Target) -> float:
    rate = _PEAK * target.vector_bytes / 64 * (4 / as_dtype(product.dtype).itemsize)
    compute = product.operations / rate / product.threads
    size = as_dtype(product.dtype).itemsize
    reading = product.n * product.k * size / 50.0 / product.threads
    return float(max(compute, reading, 100.0))


def guess_ns(product: Product, point: Point, target: Target) -> float:
    """What a product takes, as far as that can be counted."""
    filled, tiles, waiting, blocks, _ = _losses(product, point, target)
    compute = product.operations / (_PEAK * target.vector_bytes / 64 * (4 / as_dtype(product.dtype).itemsize))
    slower = math.exp(filled + tiles)
    size = as_dtype(product.dtype).itemsize
    reading = product.n * product.k * size / 50.0
    each = max(compute * slower, reading * math.exp(filled), 100.0) / product.threads
    if product.layout != "packed" and _is_turned(product, point, target):
        each += product.n * product.k * size / 8.0 / product.threads * cut_of(product, point, target).down
    return float(each * math.exp(waiting + blocks))


def _is_turned(product: Product, point: Point, target: Target) -> bool:
    """Is the right operand packed on the way?"""
    many = product.m > tile_shape(target, point.vectors)[0]
    return product.layout == "columns" or (many and HOW[point.how] == "packed first")


def features(product: Product, points: Sequence[Point], target: Target) -> npt.NDArray[np.float64]:
    """Numbers by which the logarithm of (time / guess) is learned, one row a point.

    A constant, sizes, the losses, which values a point has (the usual ones left out), and these with the sizes: a rule
    such as "narrow panels are faster for k = 3072" is one number to be learned.
    """
    m, n, k = (math.log2(max(1, x)) / 10 for x in (product.m, product.n, product.k))
    rows = []
    for point in points:
        losses = _losses(product, point, target)
        values = [
            *(float(point.vectors == v) for v in widths(target)[1:]),
            *(float(point.block == b) for b in list(BLOCKS)[1:]),
            float(point.rows == ROWS[1]),
            float(point.axis == AXES[1]),
            *(float(point.per_thread == p) for p in PER_THREAD[:-1]),
            *(float(point.how == h) for h in range(len(HOW)) if h != IN_PLACE),
        ]
        cut = cut_of(product, point, target)
        panel_bytes = min(product.k, K_BLOCK) * panel_columns(as_dtype(product.dtype), target, point.vectors) * 4
        block = [math.log2(cut.rows), math.log2(cut.panels), math.log2(cut.across * cut.down), math.log2(panel_bytes)]
        rows.append([
            1.0, m, n, k, m * m, m * n, m * k, n * k, *losses, *(x / 10 for x in block),
            *values, *(v * s for v in values for s in (m, n, k)),
        ])  # fmt: skip
    return np.array(rows, np.float64)
