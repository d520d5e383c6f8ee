"""What all entries of a process share."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc
from tests.codegen.native import _library
from tiercel import config
from tiercel.codegen.cpu.target import Target
from tiercel.hotpath.service import service
from tiercel.vm.build import SharedFrames


@pytest.fixture
def frames_of():
    made = []

    def make(threads):
        with config.context(threads=threads):
            made.append(SharedFrames(_library(Target.host())))
        return made[-1]

    yield make
    for frames in made:
        if frames._pool is not None:
            frames._pool.close()


def test_the_pool_is_there_from_the_first_entry_on(frames_of):
    frames = frames_of(3)
    assert frames.pool != 0
    np.testing.assert_array_equal(frames.shared, [frames.pool, 3, 1])
    assert frames.revive() == frames.pool


def test_one_thread_needs_no_pool(frames_of):
    frames = frames_of(1)
    np.testing.assert_array_equal(frames.shared, [0, 1, 1])


def test_a_forked_child_makes_its_own(frames_of):
    frames = frames_of(2)
    old = frames._pool
    try:
        frames.forget()
        np.testing.assert_array_equal(frames.shared, [0, 1, 0])
        with config.context(threads=2):
            assert frames.revive() != 0
        np.testing.assert_array_equal(frames.shared, [frames.pool, 2, 1])
    finally:
        old.close()


def test_a_dropped_build_is_asked_for_again():
    @tc.jit(policy=tc.Policy(hot_count=1, hot_time_ms=0, warmup_calls=0))
    def f(x):
        return np.exp(x) * 3.25 - 1

    x = np.ones((3, 4), np.float32)
    f(x)
    service().shutdown()  # what was pending is dropped, or done already
    for _ in range(3):
        f(x)
        f.wait()
    assert f.stats()["kernels"] == 1
