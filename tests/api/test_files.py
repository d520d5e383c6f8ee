"""Programs to files and back, and what concerns the whole process."""

from __future__ import annotations

import inspect
import sys

import numpy as np
import pytest

import tiercel as tc
from tests.api import targets

X = np.arange(6.0).reshape(2, 3)


def test_dump_and_load(tmp_path):
    path = tmp_path / "scaled.msir"
    tc.dump(targets.scaled, path)
    loaded = tc.load(path)
    assert np.array_equal(loaded(X, offset=1), targets.scaled(X, offset=1))
    assert str(inspect.signature(loaded)) == str(inspect.signature(targets.scaled))
    assert str(loaded.program) == str(targets.scaled.program)
    with pytest.raises(TypeError, match=r"scaled\(\) missing 1 required positional argument: 'x'"):
        loaded()


def test_loaded_programs_look_names_up_in_what_they_are_given(tmp_path):
    path = tmp_path / "f.msir"
    tc.dump(targets.with_helper, path)
    loaded = tc.load(path, python={"helper": lambda x: x + 1, "np": np})
    assert np.array_equal(loaded(X), (X + 1) * 2)
    with pytest.raises(NameError, match="helper"):
        tc.load(path)(X)


def test_closures_are_given_by_name(tmp_path):
    k = 3

    @tc.jit
    def f(x):
        return x + k

    tc.dump(f, tmp_path / "f.msir")
    assert tc.load(tmp_path / "f.msir", python={"k": 10})(1) == 11
    with pytest.raises(NameError, match="cannot access free variable 'k'"):
        tc.load(tmp_path / "f.msir")(1)


def test_errors_of_loaded_programs_are_explained(tmp_path):
    tc.dump(targets.mismatch, tmp_path / "f.msir")
    loaded = tc.load(tmp_path / "f.msir", python={"np": np})
    with pytest.raises(ValueError) as caught:
        loaded(np.ones((2, 3)), np.ones((4, 5)))
    assert "matmul" in caught.value.__notes__[0]


def test_what_has_no_program_cannot_be_dumped(tmp_path):
    with pytest.warns(tc.TiercelPerformanceWarning):
        f = tc.jit(np.sin)
    with pytest.raises(tc.CaptureError, match="no program to dump"):
        tc.dump(f, tmp_path / "f.msir")
    with pytest.raises(TypeError, match="decorated with"):
        tc.dump(targets.helper, tmp_path / "f.msir")
    assert not list(tmp_path.iterdir())


def test_metrics_and_memory():
    targets.scaled(X)
    metrics = tc.metrics()
    assert metrics["functions"] >= 1
    assert metrics["calls"] >= 1
    assert all(isinstance(v, int) for v in metrics.values())
    memory = tc.memory_stats()
    assert memory["total_bytes"] >= memory["code_bytes"] > 0
    tc.release_memory()


def test_functions_are_forgotten():
    import gc

    def count():
        gc.collect()
        return tc.metrics()["functions"]

    before = count()
    f = tc.jit(lambda x: x)
    f(1)
    assert count() == before + 1
    del f
    assert count() == before


def test_a_loaded_program_is_compiled_before_its_first_call(tmp_path):
    tc.dump(learned(), tmp_path / "f.msir")
    loaded = tc.load(tmp_path / "f.msir", python={"np": np})
    assert loaded.wait(60)
    for rows in (2, 3, 17):
        x, h = np.full((rows, 4), 0.5, np.float32), np.ones((rows, 6), np.float32)
        expected = (np.tanh(x) @ np.ones((4, 6), np.float32) + h) * 2.5
        np.testing.assert_allclose(loaded(x, h, np.ones((4, 6), np.float32), 2.5), expected, rtol=1e-6)
    stats = loaded.stats()
    assert (stats["compiled_calls"], stats["interpreted_calls"]) == (3, 0), loaded.explain()
    assert "compiled" in str(loaded.explain())


def learned():
    @tc.jit
    def f(x, h, w, s):
        return (np.tanh(x) @ w + h) * s

    with tc.context(level="O0"):
        for rows in (3, 5, 9):
            f(np.ones((rows, 4), np.float32), np.ones((rows, 6), np.float32), np.ones((4, 6), np.float32), 2.5)
    return f


def test_nothing_is_compiled_at_load_where_the_level_forbids_it(tmp_path):
    tc.dump(learned(), tmp_path / "f.msir")
    with tc.context(level="O0"):
        loaded = tc.load(tmp_path / "f.msir", python={"np": np})
    assert not loaded.__tiercel__.tiers.signatures


def test_a_loaded_program_runs_interpreted_under_a_tracer(tmp_path):
    tc.dump(targets.scaled, tmp_path / "f.msir")
    loaded = tc.load(tmp_path / "f.msir")
    assert np.array_equal(loaded.__wrapped__(X), targets.scaled(X))
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        got = loaded(X)
    finally:
        sys.settrace(before)
    assert np.array_equal(got, targets.scaled(X))


def test_closures_of_loaded_programs_are_compiled(tmp_path):
    tc.dump(tc.jit(two_captured()), tmp_path / "f.msir")
    loaded = tc.load(tmp_path / "f.msir", python={"z": np.full(3, 2.0), "a": np.full(3, 10.0)})
    x = np.ones((2, 3))
    loaded.warmup(x)
    assert np.array_equal(loaded(x), np.full((2, 3), -8.0))
    assert loaded.stats()["compiled_calls"] == 1, loaded.explain()


def two_captured():
    z, a = np.zeros(3), np.zeros(3)

    def f(x):
        return x * z - a

    return f
