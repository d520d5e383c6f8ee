"""The settings as people read them: every value with its origin.

In: the layers. Out: rows, or a table printed on a terminal or as plain text.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, TextIO

from tiercel.config.layers import current, origins
from tiercel.config.settings import ROWS, SETTINGS

__all__ = ["Row", "show", "table"]


class Row(NamedTuple):
    """A setting as `table` tells it: `origin` is default, environment, set_context or context."""

    name: str
    value: Any
    origin: str
    env: str
    help: str


def table() -> list[Row]:
    """Return a row for every setting: its value, where that came from, its environment variable, what it does."""
    settings = current()
    found = origins()
    rows = []
    for row in ROWS:
        origin, variable = found.get(row.name, ("default", ""))
        rows.append(Row(row.name, getattr(settings, row.name), origin, variable or row.env[0], row.help))
    return rows


def show(file: TextIO | None = None) -> None:
    """Print every setting, its value and where it came from.

    Args:
        file: where to print, standard output if None; a terminal gets a drawn table, everything else plain text.
    """
    out = sys.stdout if file is None else file
    header = ("setting", "value", "from", "environment", "meaning")
    cells = [(r.name, SETTINGS[r.name].kind.show(r.value), r.origin, r.env, r.help) for r in table()]
    if out.isatty():
        _show_drawn(out, header, cells)
        return
    widths = [max(len(row[i]) for row in [header, *cells]) for i in range(4)]
    for row in [header, *cells]:
        out.write("  ".join([*(text.ljust(width) for text, width in zip(row[:4], widths, strict=True)), row[4]]) + "\n")


def _show_drawn(out: TextIO, header: tuple[str, ...], cells: list[tuple[str, str, str, str, str]]) -> None:
    # rich takes 60 ms to import, and few processes show their settings.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(*header, box=box.SIMPLE_HEAD)
    for row in cells:
        drawn.add_row(*(Text(text) for text in row), style=None if row[2] == "default" else "bold")
    Console(file=out).print(drawn)
