"""Every row of the movement family: shapes, dtypes, layouts, views, refusals and values."""

from __future__ import annotations

import pytest

from tests.operators import samples_movement  # noqa: F401  # registers the samples
from tests.operators.exactly import check_row
from tiercel.operators.rows.movement import ROWS


@pytest.mark.parametrize("name", [row.name for row in ROWS])
def test_row(name):
    check_row(name)
