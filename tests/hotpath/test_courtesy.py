"""NumPy's BLAS leaves the worker a core, and has it back afterwards."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import tiercel as tc
from tiercel.hotpath.courtesy import Blas, Courtesy, find_blas
from tiercel.vm import dispatch, regions


class Fake:
    def __init__(self, threads):
        self.threads = threads
        self.asked = 0

    def find(self):
        self.asked += 1
        return Blas(lambda: self.threads, self.put)

    def put(self, threads):
        self.threads = threads


@pytest.mark.parametrize(
    ("threads", "cores", "meanwhile"), [(2, 2, 1), (8, 8, 7), (1, 2, 1), (2, 8, 2), (4, 1, 1), (1, 1, 1)]
)
def test_one_core_is_left(threads, cores, meanwhile):
    blas = Fake(threads)
    made = Courtesy(blas.find, lambda: cores)
    for _ in range(2):
        made.give_way()
        made.give_way()  # it is idempotent
        assert blas.threads == meanwhile
        made.take_back()
        made.take_back()
        assert blas.threads == threads
    assert blas.asked == 1


def test_what_the_user_sets_meanwhile_is_not_raised():
    blas = Fake(1)
    made = Courtesy(blas.find, lambda: 4)
    made.give_way()
    assert made.taken == 0
    blas.threads = 3
    made.take_back()
    assert blas.threads == 3


def test_without_a_blas_nothing_happens():
    made = Courtesy(lambda: None, lambda: 2)
    made.give_way()
    assert made.taken == 0
    made.take_back()


@pytest.mark.skipif(sys.platform != "linux", reason="found by /proc")
def test_the_blas_of_this_process():
    np.ones((4, 4)) @ np.ones((4, 4))
    blas = find_blas()
    if blas is None:
        pytest.skip("this NumPy has another BLAS")
    before = blas.get()
    try:
        blas.set(1)
        assert blas.get() == 1
    finally:
        blas.set(before)
    assert blas.get() == before


def test_calls_give_way_while_a_worker_computes_and_leave_no_trace(monkeypatch):
    blas = Fake(2)
    made = Courtesy(blas.find, lambda: 2)
    busy = [False]
    monkeypatch.setattr(dispatch, "courtesy", made)
    monkeypatch.setattr(dispatch, "worker_busy", lambda: busy[0])
    seen = []

    @tc.jit
    def f(x):
        seen.append(blas.threads)
        return x / x

    x = np.ones(3)
    f(x)
    busy[0] = True
    f(x)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        f(np.zeros(3))
    assert seen == [2, 1, 1]
    assert blas.threads == 2


def test_nothing_is_lowered_for_good(monkeypatch):
    """A loop that is handed to the worker in the middle of a call gives way until the call ends."""
    blas = Fake(2)
    made = Courtesy(blas.find, lambda: 2)
    for place, busy in ((dispatch, False), (regions, True)):
        monkeypatch.setattr(place, "courtesy", made)
        monkeypatch.setattr(place, "worker_busy", lambda busy=busy: busy)
    seen = []

    @tc.jit
    def f(x, n):
        for _ in range(n):
            x = np.tanh(x) * 1.5
        seen.append(blas.threads)
        return x

    f(np.ones(30_000), 4000)
    assert seen == [1]
    assert blas.threads == 2
