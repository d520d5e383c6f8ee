"""The diagnosis of an installation."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from tests.tools.commands import Command
from tiercel import config
from tiercel.tools import doctor
from tiercel.vm import stub

WHAT = {"tiercel", "python", "numpy", "machine", "threads", "llvm", "packages", "settings", "checks"}


@pytest.fixture
def no_llvm(monkeypatch):
    """The other process is asked in one test only."""
    monkeypatch.setattr(doctor, "_llvm", lambda: {"error": "not asked"})


def test_all_is_well_here(capsys):
    before = "llvmlite" in sys.modules
    done = Command(capsys)("doctor", "--json")
    found = json.loads(done.out)
    assert done.code == 0
    assert set(found) == WHAT
    assert found["numpy"]["version"] == np.__version__
    states = {c["name"]: c["state"] for c in found["checks"]}
    assert states["interpreter"] == states["llvm"] == "ok", found["checks"]
    assert ("llvmlite" in sys.modules) == before, "LLVM is asked in another process"


def test_text_tells_settings_with_their_origin(capsys, monkeypatch, no_llvm):
    monkeypatch.setenv("TIERCEL_HOT_COUNT", "9")
    config.reload()
    with config.context(level="O1"):
        out = Command(capsys)("doctor").out
    assert "hot_count       9  (from TIERCEL_HOT_COUNT)" in out
    assert "level           O1  (by context)" in out
    assert "Settings (2 of " in out
    assert all(line == line.rstrip() for line in out.splitlines())


def states(capsys):
    done = Command(capsys)("doctor", "--json")
    return done.code, {c["name"]: (c["state"], c["text"]) for c in json.loads(done.out)["checks"]}


def test_what_is_off_is_said(capsys, no_llvm):
    with config.context(level="O0"):
        assert states(capsys)[1]["jit"] == ("off", "level is O0: everything stays interpreted")
    with config.context(worker="off"):
        assert states(capsys)[1]["compiler"][0] == "off"
    with config.context(disable=True):
        assert states(capsys)[1]["jit"][0] == "off"
    code, found = states(capsys)
    assert code == 0, "what is missing is no failure"
    assert found["llvm"] == ("warn", "not usable, so nothing can be compiled: not asked")


def test_entries_in_python_are_said(capsys, monkeypatch, no_llvm):
    assert states(capsys)[1]["entry"][0] == "ok"
    monkeypatch.setattr(stub, "unusable", lambda: "planted")
    state, text = states(capsys)[1]["entry"]
    assert (state, text.endswith("planted")) == ("warn", True)


def test_a_probe_that_fails_is_a_failure(capsys, monkeypatch, no_llvm):
    monkeypatch.setattr(doctor, "_probe", lambda x, n: 1 / 0)
    code, found = states(capsys)
    assert code == 1
    assert found["interpreter"][0] == "fail"


def test_no_interpreter_to_start(monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    assert "sys.executable is empty" in doctor._llvm()["error"]
    assert doctor._check_processes().state == "warn"
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert "cannot be started" in doctor._llvm()["error"]
    assert doctor._check_processes().state == "warn"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "garbage"}, None),
    ],
)
def test_quota_of_the_control_group(tmp_path, monkeypatch, files, quota):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    real = doctor.Path
    monkeypatch.setattr(doctor, "Path", lambda p: tmp_path if p == "/sys/fs/cgroup" else real(p))
    assert doctor.cpu_quota() == quota
