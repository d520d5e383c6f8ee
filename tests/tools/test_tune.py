"""`tiercel tune`: what it collects, what it says, what is kept. Times are made up."""

from __future__ import annotations

import contextlib
import io

import pytest

from tests.tools.commands import Command
from tests.tuner.surfaces import Machine, likes_narrow_tall_panels
from tiercel import config
from tiercel.hotpath import jobs
from tiercel.hotpath.cache import tuning_key
from tiercel.hotpath.service import service
from tiercel.tools.tune import Bar
from tiercel.tuner.winners import read_winners

SCRIPT = """
import numpy as np, tiercel as tc
w = tc.constant(np.ones((64, 128), np.float32))

@tc.jit
def f(x):
    return x @ w

f.warmup(np.ones((20, 64), np.float32))
print("done", f(np.ones((20, 64), np.float32)).shape)
"""


@pytest.fixture
def tiercel(capsys, tmp_path, monkeypatch):
    machine = Machine(likes_narrow_tall_panels)

    class Bench:
        def __init__(self):
            self.time = machine

        def forget_all(self):
            pass

    @contextlib.contextmanager
    def bench(threads):
        yield Bench()

    monkeypatch.setattr(jobs, "product_bench", bench)
    command = Command(capsys)
    command.machine = machine
    with config.context(cache_dir=str(tmp_path / "cache"), threads=1):
        yield command


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return write


def kept():
    return read_winners(service().cache.folder, tuning_key(), lambda message: None)


def test_the_script_runs_its_products_are_measured_and_the_winners_kept(tiercel, script):
    done = tiercel("tune", script(SCRIPT))
    assert done.code == 0
    assert "done (20, 128)" in done.out
    assert "float32 packed n128 k64 t1" in done.out
    assert "geometric mean of the gains" in done.out
    assert list(kept()) == ["float32 packed n128 k64 t1"]
    assert f"Kept in {service().cache.folder}; later processes use it by themselves" in done.out
    assert "products of other n and k keep the usual way" in done.out
    assert "later process of yours" in " ".join(tiercel("tune", "--help").out.split())
    assert len({p for _, p in tiercel.machine.calls}) <= 8


TWO = SCRIPT.replace("return x @ w", "return (x @ w) @ v").replace(
    "@tc.jit", "v = tc.constant(np.ones((128, 96), np.float32))\n\n@tc.jit"
)


def test_what_was_disturbed_has_no_gain_and_no_regret(tiercel, script):
    tiercel.machine.disturbed = lambda: True
    done = tiercel("tune", script(TWO))
    assert done.out.count(" disturbed  ") == 2
    assert "%" not in done.out
    assert "Warning: other work disturbed every measurement, so nothing was tuned: run again when" in done.out
    assert "Kept in" not in done.out
    assert not kept()


def test_what_was_disturbed_is_left_out_of_the_mean(tiercel, script):
    tiercel.machine.disturbed = lambda: tiercel.machine.calls[-1][0].n == 128
    done = tiercel("tune", script(TWO))
    assert done.out.count(" disturbed  ") == 1
    assert "geometric mean of the gains" in done.out
    assert "Disturbed: 1 of 2 products, by other work; they stay as they are: run again when the machine" in done.out
    assert list(kept()) == ["float32 packed n96 k128 t1"]


def test_exhaustive_measures_every_way(tiercel, script):
    assert tiercel("tune", "--exhaustive", script(SCRIPT)).code == 0
    assert len({p for _, p in tiercel.machine.calls}) >= 12


def test_a_script_that_raises_is_not_tuned(tiercel, script):
    done = tiercel("tune", script(SCRIPT + "\nraise ValueError('no')\n"))
    assert done.code == 1
    assert "ValueError: no" in done.err
    assert "exit code 1: nothing is tuned" in done.err
    assert not tiercel.machine.calls


def test_nothing_to_tune_is_said_with_the_reason(tiercel, script):
    done = tiercel("tune", script("print(1)"))
    assert done.code == 1
    assert "nothing is decorated with tc.jit" in done.err
    none = "import tiercel as tc\n@tc.jit\ndef f(x):\n    return x + 1\nf(1.0)\n"
    assert "no function was compiled" in tiercel("tune", script(none)).err
    other = SCRIPT.replace("return x @ w", "return x + 1")
    assert "no compiled function has a product of matrices" in tiercel("tune", script(other)).err


def test_a_missing_script(tiercel, tmp_path):
    done = tiercel("tune", tmp_path / "nowhere.py")
    assert done.code == 1
    assert "there is no file" in done.err


def test_interrupted_what_was_measured_is_kept(tiercel, script, monkeypatch):
    whole = jobs.tuned_products

    def interrupted(demands, *rest, finished, **options):
        def once(tuned):
            finished(tuned)
            raise KeyboardInterrupt

        return whole(demands, *rest, finished=once, **options)

    monkeypatch.setattr(jobs, "tuned_products", interrupted)
    done = tiercel("tune", script(TWO))
    assert done.code == 130
    assert "1 of 2 products were not measured: it was interrupted" in done.out


@pytest.mark.parametrize("budget", ["0", "-1", "nan", "x"])
def test_budgets_that_are_none(tiercel, script, budget):
    done = tiercel("tune", f"--budget={budget}", script(SCRIPT))
    assert done.code == 2
    assert f"a number of seconds above 0 is needed, such as 10 or 0.5, not '{budget}'" in done.err


def test_progress_is_one_line_on_a_terminal_and_nothing_elsewhere():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown, silent = Terminal(), io.StringIO()
    for stream in (shown, silent):
        bar = Bar(stream, clock=lambda: 0.0)
        bar.show(1, 4, "a product")
        bar.clear()
    assert silent.getvalue() == ""
    assert "[######..................] 1 of 4 products, 0.0 s  a product" in shown.getvalue()
    assert "\n" not in shown.getvalue()
