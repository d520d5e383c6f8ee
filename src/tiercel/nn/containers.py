"""Cells made of cells: one after the other, or a list to loop over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, overload

from tiercel.nn.cell import Cell

__all__ = ["CellList", "Sequential"]


class CellList(Cell):
    """A list of cells, to be looped over in `construct`. A plain list attribute is searched for parameters as well.

    Args:
        cells: the cells, in order.

    Raises:
        TypeError: one of them is no Cell.
    """

    _unnamed = "items"

    def __init__(self, cells: Iterable[Cell] = ()) -> None:
        super().__init__()
        self.items = tuple(_checked(cell) for cell in cells)

    def append(self, cell: Cell) -> None:
        """Add a cell at the end."""
        self.items = (*self.items, _checked(cell))

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.items)

    @overload
    def __getitem__(self, index: int) -> Cell: ...
    @overload
    def __getitem__(self, index: slice) -> CellList: ...
    def __getitem__(self, index: int | slice) -> Cell | CellList:
        """Return one cell, or a CellList of a slice."""
        return CellList(self.items[index]) if isinstance(index, slice) else self.items[index]


class Sequential(Cell):
    """Cells applied one after the other.

    Args:
        cells: one or more cells of one argument and one result; a single list of them is taken apart.

    Raises:
        TypeError: one of them cannot be called.
    """

    _unnamed = "items"

    def __init__(self, *cells: Any) -> None:
        super().__init__()
        if len(cells) == 1 and isinstance(cells[0], list | tuple):
            cells = tuple(cells[0])
        for cell in cells:
            if not callable(cell):
                raise TypeError(f"Sequential: expected cells or functions, got {cell!r}")
        self.items = tuple(cells)

    def construct(self, x: Any) -> Any:
        """x: what the first cell takes. Returns what the last cell gives."""
        for cell in self.items:
            x = cell(x)
        return x

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __getitem__(self, index: int) -> Any:
        """Return one of the cells."""
        return self.items[index]


def _checked(cell: Cell) -> Cell:
    if not isinstance(cell, Cell):
        raise TypeError(f"CellList: expected cells, got {cell!r}")
    return cell
