"""The map file of compiled code for profilers."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

import tiercel as tc
from tiercel.hotpath.events import events
from tiercel.vm import naming, perf

X = np.ones((3, 4), np.float32)


@pytest.fixture
def map_file(tmp_path, monkeypatch):
    path = tmp_path / "perf-1.map"
    monkeypatch.setattr(perf, "map_file", lambda: path)
    monkeypatch.setattr(perf, "_failed", set())
    monkeypatch.setattr(naming, "_named_in_perf", naming.WeakSet())
    return path


def compiled():
    @tc.jit
    def scaled(x):
        return np.exp(x) * 2

    scaled.warmup(X)
    return scaled


def test_compiled_code_is_named_with_its_place_in_the_source(map_file):
    with tc.context(perf_map=True):
        f = compiled()
    (entry,) = f.__tiercel__.tiers.made()
    lines = [re.fullmatch(r"([0-9a-f]+) ([0-9a-f]+) (.*)", line).groups() for line in map_file.read_text().splitlines()]
    everything = [(int(start, 16), int(size, 16), name) for start, size, name in lines]
    assert any(name == "tiercel:runtime call" for *_, name in everything)
    named = [row for row in everything if not row[2].startswith("tiercel:runtime ")]
    line = f.__wrapped__.__code__.co_firstlineno
    assert {name.partition(" ")[0].rpartition(".")[2] for *_, name in named} == {"scaled"}
    assert all(name.endswith(f"(test_perf.py:{line})") for *_, name in named)
    code = next(mapped for mapped in entry.keep if hasattr(mapped, "address"))
    assert any(start <= code.address(e) < start + size for start, size, _ in named for e in code._entries)
    for (start, size, _), (following, _, _) in itertools.pairwise(named):
        assert start + size == following


def test_nothing_is_written_unless_asked(map_file):
    compiled()
    assert not map_file.exists()


def test_a_file_that_cannot_be_written_is_reported_once(map_file):
    map_file.mkdir()
    last = events().add("dump", region="test", reason="mark").number
    with tc.context(perf_map=True):
        assert compiled().stats()["kernels"] == 1
        compiled()
    assert ["no names for perf" in event.fields["reason"] for event in events().list("dump", after=last)] == [True]
