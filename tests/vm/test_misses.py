"""The ledger says why compiled code did not take a call, with the user's line; so do explain() and stats()."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import tiercel as tc
from tests.vm.inline import InlineBuilder
from tiercel.vm import dispatch, entry, machine

AT_ONCE = tc.Policy(warmup_calls=0, hot_count=1, hot_time_ms=0.0, hot_total_ms=0.0)


@pytest.fixture(autouse=True, params=["python", "stub"])
def way(request, monkeypatch):
    machine().ledger.clear()
    if request.param == "python":
        monkeypatch.setattr(dispatch, "make_table", lambda *_, **__: "not in this test")


@functools.cache
def builder() -> InlineBuilder:
    return InlineBuilder()


def warm(function, *arguments):
    made = tc.jit(function, policy=AT_ONCE)
    made.__tiercel__.tiers.builder = builder
    for _ in range(3):
        made(*arguments)
    assert made.__tiercel__.tiers.compiled_calls, made.explain()
    return made


def lines(made):
    return {x.reason: (x.count, x.line) for x in made.explain().ledger if x.kind == "fallback"}


def ones(*shape):
    return np.ones(shape, np.float32)


def test_an_exit_names_its_line():
    def f(x, n):
        y = x * 2
        return y[n]

    made = warm(f, ones(4, 3), 1)
    for _ in range(3):
        with pytest.raises(IndexError):
            made(ones(4, 3), 9)
    assert lines(made) == {entry.LEFT: (3, f.__code__.co_firstlineno + 2)}
    assert made.stats()["misses"] == made.stats()["fallbacks"] == 3
    assert "left to the interpreter" in str(made.explain())


def test_arrays_that_are_written():
    def f(x, y):
        x += y

    made = warm(f, ones(4), ones(4))
    whole = ones(8)
    made(whole[1:5], whole[:4])
    made(whole[1:5], whole[:4])
    fixed = ones(4)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        made(fixed, ones(4))
    assert {k: n for k, (n, _) in lines(made).items()} == {entry.SHARED: 2, entry.READ_ONLY: 1}


def test_sizes():
    def f(x, y):
        return x / y + SCALE

    made = warm(f, ones(4), ones(4))
    made(ones(4), ones(1))
    assert {k: n for k, (n, _) in lines(made).items()} == {entry.SIZES: 1}


def test_warnings_and_the_environment():
    def f(x, y):
        return x / y + SCALE

    made = warm(f, ones(4), ones(4))
    with np.errstate(all="warn"), pytest.warns(RuntimeWarning, match="divide by zero"):
        made(ones(4), ones(4) * 0)
    global SCALE
    SCALE = 3.0
    try:
        made(ones(4), ones(4))
    finally:
        SCALE = 2.0
    assert {k: n for k, (n, _) in lines(made).items()} == {entry.WARNED: 1, entry.CHANGED: 1}


SCALE = 2.0


def test_other_kinds_of_arguments_are_no_misses():
    def f(x):
        return x + 1

    made = warm(f, ones(4))
    made(np.arange(3))
    made(2.0)
    assert lines(made) == {}
    assert made.stats()["misses"] == 0


def test_memory_limit():
    def f(x):
        y = x + 1
        return (y @ y.T).sum(axis=0) @ y

    made = warm(f, ones(64, 64))
    with tc.context(memory_limit=sum(entry.fixed_bytes()) + 64):
        made(ones(64, 64))
    assert entry.NO_MEMORY in lines(made)
