"""The location table: what is encoded is what CPython reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tiercel.interp.linetable import encode_positions, inherited_lines, unit_indexes

# Columns as CPython has them: up to 2**15 and beyond.
lines = st.integers(1, 100_000)
columns = st.integers(0, 100_000)
spans = st.one_of(
    st.none(),
    st.builds(lambda a, b, c, d: (a, c, a + b, d), lines, st.integers(0, 300), columns, columns),
)


def code_of_units(count: int):
    """A code object of at least so many units."""
    return compile("pass\n" * 2 + "f(" + "x," * count + ")", "f", "exec")


@given(st.lists(spans, min_size=1, max_size=12), st.data(), lines)
def test_round_trip(given_spans, data, first_line):
    code = code_of_units(20)
    count = len(code.co_code) // 2
    units = data.draw(st.lists(st.integers(-1, len(given_spans) - 1), min_size=count, max_size=count))
    table = encode_positions(units, given_spans, inherited_lines(given_spans, first_line), first_line)
    own = code.replace(co_linetable=table, co_firstlineno=first_line)
    line = first_line
    inherited = []
    for span in given_spans:
        line = line if span is None else span[0]
        inherited.append(line)
    for unit, (start, end, col, end_col) in zip(units, own.co_positions(), strict=True):
        if unit < 0:
            assert (start, end, col, end_col) == (None, None, None, None)
        elif given_spans[unit] is None:
            assert (start, end, col, end_col) == (inherited[unit], inherited[unit], None, None)
        else:
            assert (start, col, end, end_col) == given_spans[unit]


def test_indexes_of_units():
    code = compile("a\n\nb", "f", "exec")
    assert {i for i in unit_indexes(code) if i >= 0} == {0, 2}
