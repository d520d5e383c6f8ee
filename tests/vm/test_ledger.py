"""The account of what did not run as hoped."""

from __future__ import annotations

import sys
import threading
import warnings

import pytest

from tiercel import config
from tiercel.config import LEDGER_KINDS
from tiercel.errors import StrictError, TiercelPerformanceWarning
from tiercel.vm import Ledger
from tiercel.vm import ledger as module


def test_events_of_one_place_are_one_line():
    ledger = Ledger()
    entry = ledger.entry("copy", "x is not contiguous", function="f", filename="a.py", line=3)
    entry.add(time_ns=10, bytes=100)
    entry.add(2, time_ns=5)
    assert ledger.entry("copy", "x is not contiguous", function="f", filename="a.py", line=3) is entry
    assert ledger.entry("copy", "x is not contiguous", function="f", filename="a.py", line=4) is not entry
    (line,) = ledger.lines()
    assert (line.kind, line.function, line.filename, line.line) == ("copy", "f", "a.py", 3)
    assert (line.count, line.time_ns, line.bytes) == (3, 15, 100)
    assert ledger.totals()["copy"] == (3, 15)
    assert set(ledger.totals()) == set(LEDGER_KINDS)


def test_the_most_expensive_comes_first():
    ledger = Ledger()
    for name, spent in (("cheap", 1), ("dear", 100), ("middle", 10)):
        ledger.entry("python", name).add(time_ns=spent)
    ledger.entry("copy", "other").add()
    assert [line.reason for line in ledger.lines("python")] == ["dear", "middle", "cheap"]
    assert len(ledger.lines()) == 4
    ledger.clear()
    assert ledger.lines() == []


def test_unknown_kind():
    with pytest.raises(ValueError, match=r"did you mean 'convert'\?$"):
        Ledger().entry("converts", "x")


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_ENTRIES", 10)
    ledger = Ledger()
    for i in range(50):
        ledger.entry("copy", f"reason {i}").add()
    assert len(ledger.lines()) == 11
    assert sum(line.count for line in ledger.lines()) == 50
    assert ledger.lines()[0].reason == "other places"


@pytest.mark.parametrize(
    ("strict", "kind", "refused"),
    [
        (False, "python", False),
        (True, "python", True),
        (True, "copy", True),
        ({"copy"}, "copy", True),
        ({"copy"}, "python", False),
    ],
)
def test_strict_makes_errors_of_kinds(strict, kind, refused):
    ledger = Ledger()
    with config.context(strict=strict):
        settings = config.current()
    if not refused:
        ledger.refuse(settings, kind, "no reason")
        return
    with pytest.raises(StrictError, match=r"f: no reason in line 3 of a\.py; strict mode forbids it") as caught:
        ledger.refuse(settings, kind, "no reason", function="f", filename="a.py", line=3)
    assert (caught.value.kind, caught.value.filename, caught.value.line) == (kind, "a.py", 3)


def test_said_once_at_the_users_line():
    ledger = Ledger()
    namespace = {"__name__": "users.module"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert ledger.say_once("f copies x", filename="user.py", line=7, module=namespace)
        assert not ledger.say_once("f copies x", filename="user.py", line=7, module=namespace)
        assert ledger.say_once("f copies x", filename="user.py", line=8, module=namespace)
        assert ledger.say_once("f copies y", filename="user.py", line=7)
    assert [(w.filename, w.lineno) for w in caught] == [("user.py", 7), ("user.py", 8), ("user.py", 7)]
    assert all(w.category is TiercelPerformanceWarning for w in caught)


def test_filters_by_module_apply():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="users.module")
        Ledger().say_once("f copies x", filename="user.py", line=7, module={"__name__": "users.module"})
    with pytest.raises(TiercelPerformanceWarning):
        Ledger().say_once("f copies x", filename="user.py", line=7)


def test_threads_find_one_entry():
    ledger = Ledger()
    found = []
    start = threading.Barrier(8)

    def work():
        start.wait()
        for i in range(100):
            found.append(ledger.entry("copy", f"reason {i}"))

    threads = [threading.Thread(target=work) for _ in range(8)]
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(old)
    assert len({id(e) for e in found}) == 100
