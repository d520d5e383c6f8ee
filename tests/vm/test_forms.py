"""The settings that show what the compiler does, and those that bound it."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc
from tiercel.hotpath.events import events
from tiercel.vm.entry import ARENAS

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def make():
    @tc.jit
    def f(x):
        return np.tanh(x * 2 + 1).sum(axis=-1)

    return f


def test_forms_are_dumped_each_into_its_file(tmp_path):
    f = make()
    with tc.context(dump_dir=str(tmp_path)):
        f.warmup(X)
        make().warmup(X)
    names = sorted(path.name for path in tmp_path.iterdir())
    stems = sorted({name.partition(".")[0] for name in names})
    assert len(stems) == 2
    for stem in stems:
        assert [f"{stem}.{form}.txt" for form in ("assembly", "bytecode", "graph", "llvm", "loops", "prepared")] == [
            name for name in names if name.startswith(stem)
        ]
    assert "CallOp" in (tmp_path / f"{stems[0]}.bytecode.txt").read_text()
    assert "define i64" in (tmp_path / f"{stems[0]}.llvm.txt").read_text()


@pytest.mark.parametrize(("level", "seen"), [(1, set()), (2, {"graph"}), (4, {"graph", "prepared", "loops", "llvm"})])
def test_debug_prints_more_with_each_level(level, seen, capfd):
    with tc.context(debug=level):
        make().warmup(X)
    printed = capfd.readouterr().err
    assert "trace" in printed
    assert {form for form in ("graph", "prepared", "loops", "llvm", "assembly") if f", {form}\n" in printed} == seen


def test_a_filter_leaves_other_functions_out(tmp_path, capfd):
    with tc.context(debug=2, dump_dir=str(tmp_path), debug_filter="nothing like it"):
        make().warmup(X)
    assert capfd.readouterr().err == ""
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_costs_the_dump_only(tmp_path):
    (tmp_path / "file").write_text("")
    last = events().add("dump", region="test", reason="mark").number
    f = make()
    with tc.context(dump_dir=str(tmp_path / "file")):
        f.warmup(X)
    assert f.stats()["kernels"] == 1
    assert any(event.fields["region"].endswith("f") for event in events().list("dump", after=last))


def test_compiled_at_once_for_specs_that_name_sizes():
    f = make()
    before = f.stats()["calls"]  # closures of one code share their profile
    f.warmup(tc.spec("B", None, dtype=tc.float32))
    assert f.stats()["calls"] == before
    assert f.stats()["kernels"] == 1
    for shape in ((3, 4), (1, 1), (7, 130)):
        x = np.ones(shape, np.float32)
        np.testing.assert_allclose(f(x), f.__wrapped__(x), rtol=1e-6)
    assert f.stats()["compiled_calls"] == 3


def test_warmup_takes_the_arguments_of_the_function():
    @tc.jit
    def f(x, scale=2.0, *, shift):
        return x * scale + shift

    f.warmup(tc.spec("B", dtype=tc.float32), shift=1.0)
    assert f.stats()["kernels"] == 1
    with pytest.raises(TypeError):
        f.warmup(tc.spec("B", dtype=tc.float32))


def test_deterministic_compiles_in_warmup_only():
    f = tc.jit(make().__wrapped__, deterministic=True, policy=tc.Policy(hot_count=1, hot_time_ms=0, warmup_calls=0))
    for _ in range(20):
        f(X)
    f.wait()
    assert f.stats()["kernels"] == 0
    assert "deterministic" in str(f.explain())
    f.warmup(X)
    assert f.stats()["kernels"] == 1


def test_code_beyond_the_memory_limit_is_not_taken_in():
    f = make()
    with tc.context(memory_limit=1):
        f.warmup(X)
        f(X)
    assert f.stats()["kernels"] == 0
    assert "memory_limit is 1" in str(f.explain())


def test_a_call_whose_arena_is_beyond_the_limit_is_interpreted():
    @tc.jit
    def softmax(x):
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    x = np.ones((2, 1 << 20), np.float32)
    softmax.warmup(x)
    assert softmax.stats()["kernels"] == 1
    before, refused = softmax.stats()["compiled_calls"], ARENAS.refused
    limit = tc.memory_stats()["kernel_bytes"] + tc.memory_stats()["packed_bytes"] + (1 << 20)
    with tc.context(memory_limit=limit):
        np.testing.assert_allclose(softmax(x), softmax.__wrapped__(x), rtol=1e-6)
        assert softmax.stats()["compiled_calls"] == before
        assert ARENAS.refused > refused
        softmax(x[:, :100].copy())
        assert softmax.stats()["compiled_calls"] == before + 1
    assert ARENAS.active == 0


def test_waiting_for_all_functions():
    f = tc.jit(make().__wrapped__, policy=tc.Policy(hot_count=1, hot_time_ms=0, warmup_calls=0))
    f(X)
    assert tc.wait(60)
    f(X)
    assert f.stats()["kernels"] == 1
