"""How a product of matrices is carried out, as far as that may be chosen by time alone.

In: nothing. Out: `Point` (one way for a product), `Choice` (what a product of a region does for which numbers of rows),
their plain forms, and the space of points.

Invariant: no point changes a bit of a result. What decides the order of sums (blocks of 512 along k, whole rows of
multiply-adds in them) is not in the space; see `gemm`. A library product sums in another order, so it is none either.

A choice may differ by rows of the product (`Part.upto`) in all but the width of panels, which fixes how a frozen
operand lies in memory, and the block, which fixes room in the arena.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tiercel.codegen.cpu.gemm import HOW, IN_PLACE
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.tile import widths

__all__ = ["AXES", "BLOCKS", "BY_WORK", "PER_THREAD", "ROWS", "Choice", "Part", "Point", "plain", "space", "usual"]

ROWS: Final = ("full", "even")
"""Tiles of as many rows as the registers hold and a rest, or about as many in each: 9 rows as 8 + 1, or 5 + 4."""
AXES: Final = ("columns", "rows")
"""Along which axis a product is cut first for several threads."""
BY_WORK: Final = 0
PER_THREAD: Final = (BY_WORK, 1, 2, 4)
"""Blocks for each thread, where there are several; `BY_WORK`: 4 to 16, as far as each pays. More even out what is
disturbed and what does not divide, fewer read operands less often."""
BLOCKS: Final[Mapping[str, tuple[int, int]]] = {"broad": (64, 1536), "tall": (256, 384), "small": (24, 768)}
"""Most rows, and most bytes of a row, of a block: 96 KiB, so in the second-level cache, or 18, in the first. "broad" is
384 float32 columns. "tall" suits operands that every block of rows packs anew."""


class Point(NamedTuple):
    """One way.

    Attributes:
        vectors: of a panel of columns, and so of a register tile.
        block: a key of `BLOCKS`.
        rows: one of `ROWS`.
        axis: one of `AXES`.
        per_thread: one of `PER_THREAD`.
        how: what becomes of an operand that is not packed, a place in `gemm.HOW`.
    """

    vectors: int
    block: str
    rows: str
    axis: str
    per_thread: int
    how: int

    def __str__(self) -> str:
        count = "as many as pay" if self.per_thread == BY_WORK else str(self.per_thread)
        cut = f"{count} a thread, {self.axis} first"
        return f"{self.vectors} vectors, {self.block}, {self.rows} tiles, {cut}, {HOW[self.how]}"

    @property
    def fixed(self) -> tuple[int, str]:
        """What is the same for all rows of a product."""
        return self.vectors, self.block


class Part(NamedTuple):
    """What is done for products of up to `upto` rows (None: of any number), as in `Point`."""

    upto: int | None
    rows: str
    axis: str
    per_thread: int
    how: int


@dataclass(frozen=True, slots=True)
class Choice:
    """What a product does: see `Point` for `vectors` and `block`; parts by ascending rows, the last one open."""

    vectors: int
    block: str
    parts: tuple[Part, ...]

    @classmethod
    def always(cls, point: Point) -> Choice:
        """The same for any number of rows."""
        return cls(*point.fixed, (Part(None, *point[2:]),))

    def point(self, m: int) -> Point:
        """What is done for m rows."""
        part = next(p for p in self.parts if p.upto is None or m <= p.upto)
        return Point(self.vectors, self.block, *part[1:])

    def to_data(self) -> list[Any]:
        """The plain form."""
        return [self.vectors, self.block, [list(part) for part in self.parts]]

    @classmethod
    def from_data(cls, data: Any, target: Target) -> Choice:
        """Read the plain form.

        Raises:
            ValueError: it is none, or speaks of panels that this target has not.
        """
        try:
            vectors, block, parts = data
            made = cls(vectors, block, tuple(Part(*part) for part in parts))
            limits = [part.upto for part in made.parts]
        except (TypeError, ValueError) as error:
            raise ValueError(f"no choice for a product: {data!r}") from error
        known = set(space(target, packed=False))
        ascending = [x for x in limits[:-1] if type(x) is int]
        if (
            not limits or limits[-1] is not None or len(ascending) != len(limits) - 1
            or ascending != sorted(set(ascending))
            or any(Point(vectors, block, *part[1:]) not in known for part in made.parts)
        ):  # fmt: skip
            raise ValueError(f"no choice for a product: {data!r}")
        return made


def usual(target: Target, *, packed: bool) -> Point:
    """What is done where nothing was measured: what was best on the whole where much was (docs/performance.md).

    With AVX-512 packed operands lie in panels of four vectors, which divide the usual sizes and with tiles of 6 rows
    spare the first-level cache; these products are a piece of the runtime library of their own.
    """
    made = plain(target, packed=packed)
    return made._replace(vectors=4) if packed and target.vector_bytes == 64 else made


def plain(target: Target, *, packed: bool) -> Point:
    """The same with panels of the width that every product of the dtype needs anyway."""
    return Point(widths(target)[0], "broad" if packed else "tall", "even", "columns", 2, IN_PLACE)


def space(target: Target, *, packed: bool, threads: int = 2) -> Iterator[Point]:
    """All points that differ: with one thread there is nothing to be cut, a packed operand lies as it lies.

    With AVX-512 144 for packed operands (18 with one thread), 432 for others (54).
    """
    usual_ = usual(target, packed=packed)
    for vectors in widths(target):
        for block in BLOCKS:
            for rows in ROWS:
                for axis in AXES if threads > 1 else (usual_.axis,):
                    for per_thread in PER_THREAD if threads > 1 else (usual_.per_thread,):
                        for how in (usual_.how,) if packed else range(len(HOW)):
                            yield Point(vectors, block, rows, axis, per_thread, how)
