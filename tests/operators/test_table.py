"""Every row of the table against its reference, an independent oracle, and the rules of how rows are written."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from tests.operators import harness
from tiercel.operators import ALL

for _path in sorted(Path(__file__).parent.glob("samples_*.py")):
    importlib.import_module(f"tests.operators.{_path.stem}")


@pytest.mark.parametrize("name", ALL)
def test_row_describes_what_its_reference_does(name: str) -> None:
    assert name in harness.SAMPLES, f"no samples for {name}"
    assert harness.check_row(name) > 0


@pytest.mark.parametrize("name", ALL)
def test_row_has_an_oracle(name: str) -> None:
    assert name in harness.ORACLES or not any(s.compare for s in harness.SAMPLES[name](np.random.default_rng(0))), (
        f"no independent reference for {name}"
    )


def test_samples_and_oracles_belong_to_rows() -> None:
    assert set(harness.SAMPLES) <= set(ALL)
    assert set(harness.ORACLES) <= set(ALL)
