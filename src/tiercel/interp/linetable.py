"""Positions of generated code: which instruction a code unit belongs to, and the location table that shows the user's.

In: a code object whose "line numbers" are instruction indexes plus one, and a span per instruction. Out: the index per
code unit, and a location table in CPython's format that gives each unit the user's line and columns.

Compiling with indexes in place of lines and swapping the table afterwards makes `index <- offset` exact, which source
positions are not: many instructions share one. The format is described in CPython's `Objects/locations.md` (3.11) and
is unchanged up to 3.14.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from types import CodeType

from tiercel.bytecode.program import Span

__all__ = ["encode_positions", "inherited_lines", "unit_indexes"]

_LINE_ONLY = 13
_LONG = 14
_NONE = 15
# A table entry covers at most eight code units.
_MAX_RUN = 8


def unit_indexes(code: CodeType) -> tuple[int, ...]:
    """Return per code unit (two bytes) of freshly compiled code the instruction index, -1 where there is none."""
    return tuple(-1 if line is None or line < 1 else line - 1 for line, _, _, _ in code.co_positions())


def encode_positions(
    units: Sequence[int], spans: Sequence[Span | None], lines: Sequence[int], first_line: int
) -> bytes:
    """Return a location table.

    Args:
        units: instruction index per code unit, -1 for code that belongs to none.
        spans: per instruction, or None.
        lines: per instruction the line that is shown where it has no span: see `inherited_lines`.
        first_line: `co_firstlineno` of the code object.
    """
    table = bytearray()
    line = first_line
    for index, run in groupby(units):
        length = len(list(run))
        while length > 0:
            count = min(length, _MAX_RUN)
            length -= count
            if index < 0:
                table.append(0x80 | _NONE << 3 | count - 1)
                continue
            span = spans[index]
            if span is None:
                table.append(0x80 | _LINE_ONLY << 3 | count - 1)
                _signed(table, lines[index] - line)
                line = lines[index]
                continue
            start_line, col, end_line, end_col = span
            table.append(0x80 | _LONG << 3 | count - 1)
            _signed(table, start_line - line)
            line = start_line
            _unsigned(table, max(end_line - start_line, 0))
            # 0 stands for "no column", so columns are stored plus one.
            _unsigned(table, col + 1)
            _unsigned(table, end_col + 1)
    return bytes(table)


def inherited_lines(spans: Sequence[Span | None], first_line: int) -> list[int]:
    """Return per instruction its line, or that of the nearest instruction before it that has one."""
    found = []
    line = first_line
    for span in spans:
        line = line if span is None else span[0]
        found.append(line)
    return found


def _unsigned(table: bytearray, value: int) -> None:
    while value >= 64:
        table.append(0x40 | value & 63)
        value >>= 6
    table.append(value)


def _signed(table: bytearray, value: int) -> None:
    _unsigned(table, -value << 1 | 1 if value < 0 else value << 1)
