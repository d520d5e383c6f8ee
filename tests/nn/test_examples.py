"""Every example runs by itself and checks its own results; warnings are errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tiercel

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

# The last line of each says that all its checks passed.
LAST_WORDS = {
    "class_style": "class style all right",
    "decode_cache": "right",
    "early_exit": "all right",
    "hints": "hinted calls all right, broken hints all refused",
    "moe": "all right",
}


def run(path: Path, **environment: str) -> str:
    paths = os.pathsep.join([str(Path(tiercel.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        # Several BLAS threads a process spin against each other where tests run in parallel: minutes, not seconds.
        env={**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1", **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(path):
    output = run(path)
    assert "all right" in output or "right" in output
    assert output.strip().splitlines()[-1].endswith(LAST_WORDS.get(path.stem, ""))


@pytest.mark.parametrize("name", ["hints", "class_style"])
def test_examples_run_without_the_machine_where_they_do_not_need_it(name):
    path = ROOT / "examples" / f"{name}.py"
    if name == "hints":
        # Hints are checked by the machine: as plain Python nothing is refused.
        with pytest.raises(AssertionError, match="is no multiple of 8"):
            run(path, TIERCEL_DISABLE="1")
    else:
        assert "all right" in run(path, TIERCEL_DISABLE="1")


def test_all_examples_are_here():
    assert {p.stem for p in EXAMPLES} >= {
        "class_style",
        "decode_cache",
        "early_exit",
        "hints",
        "lstm",
        "moe",
        "quickstart",
        "transformer_encoder",
    }
