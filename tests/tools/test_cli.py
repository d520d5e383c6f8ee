"""The command line: words, errors, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import warnings

import pytest

import tiercel
from tests.tools.commands import Command
from tiercel import config
from tiercel.bytecode import dumps, load
from tiercel.hotpath.cache import tuning_key
from tiercel.hotpath.service import service
from tiercel.tools import bench
from tiercel.tools.cli import COMMANDS

SCRIPT = """
    import sys
    import numpy as np
    import tiercel as tc

    @tc.jit
    def step(x, n):
        for _ in range(n):
            x = np.tanh(x + 1)
        return x

    def plain(x):
        return x * 2

    class Model:
        @tc.jit
        def call(self, x):
            return x - 1

        @property
        def size(self):
            return 3

    @tc.jit
    def never(x):
        return x

    number = 5
    print("imported", sys.argv[1:])

    if __name__ == "__main__":
        for size in (2, 4):
            step(np.zeros(size), 3)
        Model().call(1)
        print("ran")
        if sys.argv[1:] == ["raise"]:
            step(np.zeros(2), "no int")
        if sys.argv[1:] == ["exit"]:
            sys.exit(7)
        if sys.argv[1:] == ["say"]:
            sys.exit("some message")
        if sys.argv[1:] == ["stop"]:
            raise KeyboardInterrupt
"""


@pytest.fixture
def tiercel_command(capsys):
    return Command(capsys)


@pytest.fixture
def script(tmp_path, monkeypatch):
    path = tmp_path / "users_script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield path
    sys.modules.pop("users_script", None)


# ---- the frame -------------------------------------------------------------------------------------------------------


def test_without_a_command_help_is_shown(tiercel_command):
    done = tiercel_command()
    assert done.code == 0
    assert all(name in done.out for name in COMMANDS)


def test_version(tiercel_command):
    assert tiercel_command("--version").out == f"tiercel {tiercel.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command(tiercel_command, command):
    done = tiercel_command("help", command)
    assert done.code == 0
    assert f"usage: tiercel {command}" in done.out
    assert done.out == tiercel_command(command, "--help").out


def test_unknown_command_is_suggested(tiercel_command):
    done = tiercel_command("explian", "x.py")
    assert done.code == 2
    assert "there is no command 'explian'; did you mean 'explain'?" in done.err
    assert "Traceback" not in done.err


def test_wrong_arguments_are_a_usage_error(tiercel_command):
    assert tiercel_command("dis").code == 2
    assert tiercel_command("demo", "--calls", "0").code == 2
    assert tiercel_command("cache", "burn").code == 2


def test_ctrl_c(tiercel_command, monkeypatch):
    def run(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "run", run)
    done = tiercel_command("bench")
    assert done.code == 130
    assert done.err == "tiercel: interrupted\n"


def test_version_needs_no_heavy_package():
    code = (
        "import sys; from tiercel.tools.cli import main; main(['--version']); "
        "sys.exit('numpy' in sys.modules or 'llvmlite' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, stdout=subprocess.DEVNULL).returncode == 0


def test_python_dash_m_and_a_reader_that_has_enough():
    done = subprocess.run([sys.executable, "-m", "tiercel", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"tiercel {tiercel.__version__}\n"
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as closed:
        command = [sys.executable, "-u", "-m", "tiercel", "doctor", "--json"]
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == ""


# ---- dis and asm -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "part"),
    [
        ("users_script:step", "def step(%x, %n)"),
        ("users_script.py:step", "tanh"),
        ("users_script:plain", "def plain(%x)"),
        ("users_script:Model.call", "(%self, %x)"),
        ("users_script:Model.size", "(%self)"),
    ],
)
def test_dis_of_functions(tiercel_command, script, target, part):
    done = tiercel_command("dis", target)
    assert done.code == 0, done.err
    assert part in done.out
    assert "imported" not in done.out, "what the module prints goes elsewhere"
    assert "ran" not in done.err


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nothing.msir", "nothing.msir: No such file or directory"),
        ("nothing", "expected FILE.msir, package.module:function or script.py:function"),
        ("users_script.py", "'users_script.py' names no function; expected users_script.py:FUNCTION"),
        ("nothing:f", "there is no module 'nothing'"),
        ("nothing.py:f", "there is no file 'nothing.py'"),
        ("users_script:stepp", "users_script has no 'stepp'; did you mean 'step'?"),
        ("users_script:Model.cal", "users_script:Model has no 'cal'; did you mean 'call'?"),
        ("users_script:number", "is of type int; expected a function"),
        ("users_script:", "has no ''"),
        ("broken:f", "importing broken failed: ZeroDivisionError"),
        ("asks:f", "importing asks failed: No module named 'missing_package'"),
        ("garbage.msir", "garbage.msir"),
        ("generators:f", "generators:f has no bytecode, it runs as Python: it is a generator"),
    ],
)
def test_dis_says_what_is_wrong(tiercel_command, script, tmp_path, target, message):
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "asks.py").write_text("import missing_package")
    (tmp_path / "garbage.msir").write_bytes(b"garbage" * 10)
    (tmp_path / "generators.py").write_text("def f():\n    yield 1\n")
    done = tiercel_command("dis", target)
    assert done.code == 1
    assert message in done.err or target == "garbage.msir"
    assert done.err.startswith("tiercel: ") or "imported" in done.err
    assert "Traceback" not in done.err


def test_asm_of_dis_is_the_identical_file(tiercel_command, script, tmp_path):
    text = tiercel_command("dis", "--full", "users_script:step").out
    (tmp_path / "step.txt").write_text(text)
    done = tiercel_command("asm", "step.txt")
    assert done.code == 0, done.err
    assert "step.msir: 1 functions" in done.out
    assert tiercel_command("dis", "--full", "step.msir").out == text
    once = (tmp_path / "step.msir").read_bytes()
    done = tiercel_command("asm", "step.txt", "-o", "again.msir")
    assert (tmp_path / "again.msir").read_bytes() == once == dumps(load("step.msir", resolve=False))


def test_asm_does_not_replace_a_file_unasked(tiercel_command, script, tmp_path):
    (tmp_path / "step.txt").write_text(tiercel_command("dis", "--full", "users_script:step").out)
    assert tiercel_command("asm", "step.txt").code == 0
    done = tiercel_command("asm", "step.txt")
    assert done.code == 1
    assert "step.msir exists; --force replaces it" in done.err
    assert tiercel_command("asm", "step.txt", "--force").code == 0


def test_asm_refuses(tiercel_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.txt").write_text("; tiercel bytecode, text version 1\nprogram 'x'\n\ndef f():\n    Nonsense %0\n")
    done = tiercel_command("asm", "bad.txt")
    assert done.code == 1
    assert "Nonsense" in done.err
    assert not (tmp_path / "bad.msir").exists()
    (tmp_path / "binary.msir").write_bytes(bytes(range(256)))
    assert "is no text" in tiercel_command("asm", "binary.msir", "-o", "x.msir").err
    assert "-o FILE.msir" in tiercel_command("asm", "-").err
    # An end without Return: read, but not verified.
    (tmp_path / "end.txt").write_text(
        "; tiercel bytecode, text version 1\nprogram 'x'\n\ndef f(%x):\n    CallOp %1 = add(%x, %x)\n"
    )
    assert tiercel_command("asm", "end.txt").code == 1
    assert not (tmp_path / "end.msir").exists()


def test_dis_finds_lines(tiercel_command, script):
    done = tiercel_command("dis", "users_script:step", "--grep", "CallOp.*as np.tanh")
    lines = done.out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("def step")
    assert "tanh" in lines[1]
    done = tiercel_command("dis", "users_script:step", "--grep", "MatMul")
    assert done.code == 1
    assert "nothing in users_script:step matches 'MatMul'" in done.err


# ---- explain ---------------------------------------------------------------------------------------------------------


def test_explain_runs_the_script_and_reports(tiercel_command, script):
    done = tiercel_command("explain", "users_script.py", "a", "--json")
    assert done.code == 0
    assert "imported ['a', '--json']" in done.out
    assert "ran" in done.out
    assert "step  (users_script.py:6)" in done.out
    assert "x  float64[2..4]{C}" in done.out
    assert "Model.call" in done.out
    assert "never" not in done.out
    assert "never" in tiercel_command("explain", "--all", "users_script.py").out


def test_explain_as_json_and_into_a_file(tiercel_command, script, tmp_path):
    done = tiercel_command("explain", "--json", "-o", "report.json", "users_script.py")
    assert done.code == 0
    found = json.loads((tmp_path / "report.json").read_text())
    assert {r["name"] for r in found} == {"step", "Model.call"}
    assert next(r for r in found if r["name"] == "step")["functions"][0]["loops"][0]["iterations"] == 6
    assert "report" not in done.out


def test_explain_of_a_module(tiercel_command, script):
    done = tiercel_command("explain", "-m", "users_script")
    assert done.code == 0
    assert "step  (users_script.py:6)" in done.out


@pytest.mark.parametrize(
    ("word", "code", "message"),
    [
        ("exit", 7, ""),
        ("say", 1, "some message"),
        ("raise", 1, "TypeError: 'str' object cannot be interpreted as an integer"),
        ("stop", 130, "KeyboardInterrupt"),
    ],
)
def test_explain_ends_as_the_script_ends(tiercel_command, script, word, code, message):
    done = tiercel_command("explain", "users_script.py", word)
    assert done.code == code
    assert message in done.err
    assert "step  (users_script.py:6)" in done.out, "what was learned until then is still told"
    if word == "raise":
        assert done.err.startswith("Traceback (most recent call last):\n  File ")
        assert "runpy" not in done.err
        assert "tiercel/tools" not in done.err


def test_explain_without_jitted_functions(tiercel_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.py").write_text("pass\n")
    assert "is anything decorated with tc.jit?" in tiercel_command("explain", "empty.py").out
    assert tiercel_command("explain", "no.py").code == 1
    before = list(sys.argv), list(sys.path)
    tiercel_command("explain", "empty.py")
    assert (sys.argv, sys.path) == before


# ---- bench, cache ----------------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    (tmp_path / "src" / "tiercel").mkdir(parents=True)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "good.py").write_text('"""Measures nothing."""\nprint("good ran")\n')
    (tmp_path / "benchmarks" / "bad.py").write_text('"""Fails."""\nraise SystemExit(3)\n')
    (tmp_path / "benchmarks" / "_shared.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_bench_runs_those_of_the_checkout(checkout):
    command = [sys.executable, "-m", "tiercel", "bench"]
    done = subprocess.run([*command, "good"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout == "== good: Measures nothing.\ngood ran\n"
    done = subprocess.run([*command, "bad", "good"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "good ran" in done.stdout
    assert "failed: bad" in done.stderr


def test_bench_lists_and_suggests(tiercel_command, checkout):
    done = tiercel_command("bench", "--list")
    told = [line.split(maxsplit=1) for line in done.out.splitlines()]
    assert told[-2:] == [["bad", "Fails."], ["good", "Measures nothing."]]
    assert ["softmax", "softmax over 768 columns"] in told
    done = tiercel_command("bench", "goood")
    assert done.code == 1
    assert "did you mean 'good'?" in done.err


def test_bench_without_a_checkout(tiercel_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench.tiercel, "__file__", str(tmp_path / "site-packages" / "tiercel" / "__init__.py"))
    done = tiercel_command("bench", "entry")
    assert done.code == 1
    assert "part of a checkout" in done.err
    assert "softmax" in tiercel_command("bench", "--list").out


def test_warnings_of_the_script_are_the_scripts(tiercel_command, script, tmp_path):
    (tmp_path / "warns.py").write_text("import warnings\nwarnings.warn('careful')\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tiercel_command("explain", "warns.py")
    assert [(w.filename, w.lineno) for w in caught] == [("warns.py", 2)]


def test_cache_is_listed_and_cleared(tiercel_command, tmp_path):
    with config.context(cache_dir=str(tmp_path / "kernels")):
        assert "0 kernels in" in tiercel_command("cache", "list").out
        cache = service().cache
        assert cache.put(b"k" * 24, {"name": "tc_step"}, b"code" * 1000)
        done = tiercel_command("cache", "list")
        assert "1 kernel in" in done.out
        assert "tc_step" in done.out
        found = json.loads(tiercel_command("cache", "list", "--json").out)
        assert found["place"] == "disk"
        assert [k["damaged"] for k in found["kernels"]] == [False]
        assert "1 kernel removed from" in tiercel_command("cache", "clear").out
        assert json.loads(tiercel_command("cache", "list", "--json").out)["kernels"] == []
        assert json.loads(tiercel_command("cache", "clear", "--json").out) == {"removed": 0}


def test_tuned_products_are_counted_and_cleared_only_when_asked_for(tiercel_command, tmp_path):
    with config.context(cache_dir=str(tmp_path / "kernels")):
        folder = service().cache.folder
        kept = {"format": 1, "winners": {"one": {"choice": []}, "two": {"choice": []}}}
        (folder / f"tuned-{tuning_key()}.json").write_text(json.dumps(kept))
        (folder / f"tuning-{tuning_key()}.json").write_text("{}")
        (folder / "tuned-another.json").write_text("damaged")
        assert "tuned products: 2" in tiercel_command("cache", "list").out
        assert json.loads(tiercel_command("cache", "list", "--json").out)["tuned_products"] == 2
        assert "--tuning goes with" in tiercel_command("cache", "list", "--tuning").err
        assert "tuned products: 2, kept (--tuning forgets them)" in tiercel_command("cache", "clear").out
        assert len(list(folder.glob("tun*.json"))) == 3
        assert "tuned products: 2 forgotten" in tiercel_command("cache", "clear", "--tuning").out
        assert not list(folder.glob("tun*.json"))
        (folder / "tuning-folder.json").mkdir()
        assert "tuning-folder.json cannot be removed" in tiercel_command("cache", "clear", "--tuning").err
