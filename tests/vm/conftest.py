"""What tests of compiled calls share."""

from __future__ import annotations

import pytest

from tiercel.vm import dispatch


@pytest.fixture(params=["python", "stub"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How compiled code is entered."""
    if request.param == "python":
        monkeypatch.setattr(dispatch, "make_table", lambda *_, **__: "not in this test")
    return str(request.param)
