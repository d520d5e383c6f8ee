"""Runs the command in this process."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tiercel.tools.cli import main


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Command:
    """`tiercel(...)` with words, giving exit code and output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: object) -> Done:
        self.capsys.readouterr()
        code = main([str(w) for w in words])
        out, err = self.capsys.readouterr()
        return Done(code, out, err)
