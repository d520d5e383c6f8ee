"""Log lines of the compiler, as text, as JSON, and in memory."""

from __future__ import annotations

import json

import pytest

from tiercel import config
from tiercel.hotpath.events import KINDS, MAX_TEXT, EventRing, compile_times

FIELDS = {
    "pc": 10, "signature": "MatMul:(?,128)x(128,1024)", "range": "[320..960]", "region": "f", "reason": "why",
    "total_ms": 9.1,
    "text": "4 x 128 @ 128 x 64: 3 vectors",
    "times_ms": {"trace": 0.5, "lower": 0.3, "emit": 1.0, "codegen": 4.2, "link": 1.0, "validate": 2.1},
}  # fmt: skip


def test_the_lines_users_look_for():
    ring = EventRing()
    assert str(ring.add("detected", **FIELDS)) == (
        "JIT: Hot path detected at PC=0x0A, signature=MatMul:(?,128)x(128,1024), range [320..960]"
    )
    assert str(ring.add("patched", **FIELDS)) == (
        "JIT: Kernel generated in 9.1 ms (analyse 0.8, codegen 6.2, validate 2.1), replaced dispatch entry"
    )
    assert "taken from the cache in 9.1 ms" in str(ring.add("patched", **FIELDS, from_cache=True))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_line_and_plain_data(kind):
    event = EventRing().add(kind, **FIELDS)
    assert str(event).startswith("JIT: ")
    assert json.loads(json.dumps(event.to_data()))["kind"] == kind


def test_lines_reach_the_log_as_text_and_json(capfd):
    ring = EventRing()
    with config.context(log="info"):
        ring.add("detected", **FIELDS)
    with config.context(log="info", log_format="json"):
        ring.add("rejected", **FIELDS)
        ring.add("missed", **FIELDS)  # debug: not asked for
    text, line = capfd.readouterr().err.splitlines()
    assert text == "[tiercel] JIT: Hot path detected at PC=0x0A, signature=MatMul:(?,128)x(128,1024), range [320..960]"
    found = json.loads(line)
    assert (found["event"], found["reason"], found["level"]) == ("rejected", "why", "warning")


def test_the_ring_is_bounded():
    ring = EventRing(5)
    for i in range(20):
        ring.add("missed", region="f", reason="x" * 10_000, i=i)
    assert [e.fields["i"] for e in ring.list()] == [15, 16, 17, 18, 19]
    assert all(len(e.fields["reason"]) == MAX_TEXT for e in ring.list())
    assert [e.number for e in ring.list(after=18)] == [19, 20]
    assert ring.list("patched") == []


def test_every_stage_belongs_to_a_part():
    assert compile_times({"trace": 1, "new stage": 2, "validate": 4}) == {"analyse": 1, "codegen": 2, "validate": 4}
