"""What every test relies on: a clean environment, default settings, reproducible randomness, golden files."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from tiercel import config

# `HYPOTHESIS_PROFILE=thorough make test` looks twenty times harder, and at other examples each time.
_COMMON = {
    "deadline": None,  # a loaded machine is no bug
    "suppress_health_check": [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
    "print_blob": True,
}
hypothesis.settings.register_profile("default", derandomize=True, database=None, max_examples=100, **_COMMON)
hypothesis.settings.register_profile("thorough", derandomize=False, database=None, max_examples=2000, **_COMMON)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files anew instead of comparing; read the difference"
    )


def pytest_configure(config: pytest.Config) -> None:
    # The developer's own settings must not decide what tests see; child processes inherit the clean environment.
    for name in [n for n in os.environ if n.startswith("TIERCEL_") and not n.startswith("TIERCEL_TEST_")]:
        del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not Path("/dev/nvidia0").exists():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def _settings_stay_default() -> Iterator[None]:
    yield
    left = {row.name: row.origin for row in config.table() if row.origin != "default"}
    if left:
        config.reload()
        config.reset()
    assert "context" not in left.values(), f"the test left a context block open: {left}"


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator seeded by the test's name: the same numbers in every run, others in every test."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`golden(text, suffix=".txt")` compares text with `golden/<test name><suffix>` beside the test's file."""

    def check(text: str, suffix: str = ".txt") -> None:
        name = re.sub(r"[^\w.-]+", "_", request.node.name).strip("_")
        path = request.path.parent / "golden" / (name + suffix)
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.exists(), f"{path} is missing: run the test with --update-golden and read what it wrote"
        assert text == path.read_text(encoding="utf-8"), f"differs from {path} (--update-golden writes it anew)"

    return check
