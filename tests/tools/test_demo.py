"""The main job: models, numbers, and that a wrong result is noticed."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pytest

import tiercel as tc
from tests.tools.commands import Command
from tiercel import config
from tiercel.tools import demo, demo_models


@pytest.fixture(autouse=True, scope="module")
def _small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "BATCHES", (1, 4))
        patch.setattr(demo, "LENGTHS", (1, 6))
        patch.setattr(demo, "_MEASURED_CALLS", 3)
        yield


@pytest.fixture(autouse=True)
def _no_compiling():
    """Compiling is the business of one test; the others are about the rest."""
    config.set_context(worker="off")


@pytest.fixture(scope="module")
def result(_small):
    with config.context(worker="off"):
        return demo.run_demo(4)


def test_every_model_is_run_checked_and_measured(capsys):
    done = Command(capsys)("demo", "--calls", "5", "--json")
    assert done.code == 0
    assert done.err == ""
    found = json.loads(done.out)
    assert found["right"] is True
    assert found["tiers"] == ["NumPy", "O0", "O2"]
    assert 10_000 < found["context_bytes"] < 2 << 20
    assert len(found["models"]) == 3
    for model in found["models"]:
        assert len(model["calls"]) == 5
        assert model["largest_error"] < 1e-6
        assert model["median_ratio"]["O0"] > 0
        assert model["median_ratio"]["O2"] is None
        assert model["stats"]["interpreted_calls"] == 3 + 2 * 5
        assert model["stats"]["python_calls"] == model["stats"]["python_lines"] == 0, model["report"]
        assert "float32[" in model["learned"]["x"] and ".." in model["learned"]["x"]
        assert len({(c["batch"], c["length"]) for c in model["calls"]}) > 1
    layer = found["models"][0]
    assert layer["stats"]["loop_iterations"] >= sum(c["length"] for c in layer["calls"])


def test_text(result):
    text = "\n".join(demo._text(result, brief=False))
    for part in (
        "3 models, 4 calls each", "O0 / NumPy", "O2 / NumPy", "worst call (O0)", "worker is off", "learned",
            "x float32[", "loop passes",
        "within the limit of 2 MiB", "All 12 calls agree with float64 NumPy", "arguments of lstm_layer",
        "DynamicLSTM.construct", "for t in range(seq_len):", "s in all",
    ):  # fmt: skip
        assert part in text, part
    assert all(len(line) <= 130 for line in text.splitlines())
    assert "arguments of" not in "\n".join(demo._text(result, brief=True))


def test_the_same_seed_gives_the_same_shapes(result, monkeypatch):
    monkeypatch.setattr(demo, "_import_everything", lambda: None)

    def shapes(of):
        return [(c.batch, c.length) for m in of.models for c in m.calls]

    assert shapes(demo.run_demo(4)) == shapes(result) != shapes(demo.run_demo(4, seed=2))


@pytest.mark.parametrize("wrong", [lambda a: a * 1.001, lambda a: a[:1, :1], lambda a: a * np.nan])
def test_a_wrong_result_fails(capsys, monkeypatch, wrong):
    real = demo_models.make_models

    def make(defined, weights):
        function, *others = real(defined, weights)
        return [function._replace(call=lambda *a: tuple(map(wrong, function.call(*a)))), *others]

    monkeypatch.setattr(demo_models, "make_models", make)
    monkeypatch.setattr(demo, "_import_everything", lambda: None)
    done = Command(capsys)("demo", "--calls", "1", "--brief")
    assert done.code == 1
    assert "WRONG: LSTM layer, a plain NumPy function" in done.out
    assert "agree" not in done.out


def test_a_slow_machine_makes_fewer_calls(monkeypatch):
    monkeypatch.setattr(demo, "_import_everything", lambda: None)
    result = demo.run_demo(50, budget_s=0)
    assert [len(m.calls) for m in result.models] == [1, 1, 1]
    assert "stopped after 1 of 50 calls" in "\n".join(demo._text(result, brief=True))


def test_models_agree_with_one_another():
    """Three forms of one mathematics; the cell's first step is the layer's."""
    defined, weights = demo_models.define(), demo_models.make_weights(5)
    function, layer, cell = demo_models.make_models(defined, weights)
    inputs = demo._inputs(np.random.default_rng(0), batch=3, length=4)
    for a, b, c in zip(function.call(*inputs), layer.call(*inputs), layer.plain(*inputs), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(np.asarray(b), np.asarray(c))
    first = np.asarray(cell.call(*inputs)[0])[:, 0]
    np.testing.assert_allclose(first, np.asarray(layer.call(*inputs)[0])[:, 0], rtol=1e-5, atol=1e-6)


def test_shapes_are_split_without_gap():
    assert demo._split((8, 32), 2) == [(8, 19), (20, 32)]
    assert demo._split((10, 30), 3) == [(10, 16), (17, 23), (24, 30)]


def test_progress_is_one_line_that_goes_away():
    file = io.StringIO()
    bar = demo._Bar(file)
    for done in (1, 2):
        bar.show(done, 2, "model")
    text = file.getvalue()
    assert "\n" not in text
    assert "1 of 2" in text
    assert text.endswith("\r\033[K")


def test_the_measured_code_is_new():
    """What is imported or captured before does not count, and the copy that sees to it leaves nothing behind."""
    demo._import_everything()
    assert "tiercel.tools._demo_copy" not in sys.modules


def test_compiled_beside_interpreted(tmp_path, monkeypatch):
    """With a model that is easy to compile: how well the LSTMs are is no question of the demo."""

    @tc.jit
    def gate(x, h, c):
        return (np.tanh(h) * c + c,)

    easy = demo_models.Model("a gate", "function", gate, gate, gate.__wrapped__, gate.__wrapped__)
    monkeypatch.setattr(demo_models, "make_models", lambda defined, weights: [easy])
    monkeypatch.setattr(demo, "_import_everything", lambda: None)
    quick = {"hot_count": 1, "hot_time_ms": 0, "warmup_calls": 0, "cache_dir": str(tmp_path), "worker": "process"}
    with config.context(**quick):
        result = demo.run_demo(8, budget_s=200)
    (model,) = result.models
    assert result.is_right
    assert model.unmet == ""
    count = sum(c.compiled for c in model.calls)
    assert count >= 4, "it waits for the compiler after half of the calls"
    assert model.stats["compiled_calls"] == count
    assert model.median_ratio("O2") > 0
    text = "\n".join(demo._text(result, brief=True))
    assert "1 compiled, 1 in use, 0 misses" in text
    for kernel in model.kernels:
        kernel["from_cache"] = True
    model.stats["compiles"] = 0
    assert "0 compiled, 1 from the cache, 1 in use" in "\n".join(demo._text(result, brief=True))
    assert "made in " in text
