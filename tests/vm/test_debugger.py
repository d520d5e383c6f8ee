"""Compiled code on the list that debuggers read, and in a debugger."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

import tiercel as tc
from tiercel.codegen import elf
from tiercel.hotpath.events import events
from tiercel.vm import debugger, naming

X = np.ones((3, 4), np.float32)


@pytest.fixture(autouse=True)
def own_list(monkeypatch):
    registry = debugger._Registry()
    monkeypatch.setattr(debugger, "_registry", registry)
    monkeypatch.setattr(naming, "_shown", naming.WeakSet())
    return registry


def compiled():
    @tc.jit
    def scaled(x):
        return np.exp(x) * 2

    scaled.warmup(X)
    return scaled


def names():
    tables = [ELFFile(io.BytesIO(file)).get_section_by_name(".symtab") for file in debugger.registered()]
    return [[symbol.name.rpartition(".")[2] for symbol in table.iter_symbols()][1:] for table in tables]


def test_compiled_code_is_listed():
    with tc.context(gdb=True):
        kept = compiled(), compiled()
    first, second, *library = names()  # as many pieces as this process has needed
    assert first == second == ["scaled loops", "scaled", "scaled arena"]
    assert any("runtime call" in piece for piece in library)
    assert all(f(X) is not None for f in kept)


def test_compiled_code_is_taken_off_the_list_when_it_is_gone(tmp_path):
    script = tmp_path / "model.py"
    script.write_text(
        textwrap.dedent("""
        import gc, numpy as np, tiercel as tc
        from tiercel.vm.debugger import registered

        def compiled():
            @tc.jit
            def scaled(x):
                return np.exp(x) * 2

            scaled.warmup(np.ones((3, 4), np.float32))
            return scaled

        f, g = compiled(), compiled()
        newest = registered()[0]
        counts = [len(registered())]
        del g
        gc.collect()
        assert newest not in registered()
        counts.append(len(registered()))
        del f
        gc.collect()
        print(*counts, len(registered()))  # the library stays
        """)
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "TIERCEL_GDB": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == ["3", "2", "1"], done.stdout + done.stderr


def test_the_listed_code_is_what_runs():
    with tc.context(gdb=True):
        f = compiled()
    (entry,) = f.__tiercel__.tiers.made()
    mapped = next(kept for kept in entry.keep if hasattr(kept, "content"))
    address, code = mapped.content()
    file = next(ELFFile(io.BytesIO(x)) for x in debugger.registered())
    text = file.get_section_by_name(".text")
    assert text["sh_addr"] == address
    assert code.startswith(text.data())
    assert file.get_section_by_name(".eh_frame")["sh_size"] > 0


def test_nothing_is_listed_unless_asked():
    f = compiled()
    assert debugger.registered() == []
    assert f(X) is not None


def test_a_system_without_the_interface_is_reported_once(monkeypatch):
    monkeypatch.setattr(elf.platform, "machine", lambda: "abacus")
    last = events().add("dump", region="test", reason="mark").number
    with tc.context(gdb=True):
        assert compiled().stats()["kernels"] == 1
        compiled()
    reasons = [event.fields["reason"] for event in events().list("dump", after=last)]
    assert reasons == ["no names for debuggers: no debugger support for abacus"]


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_gdb_stops_in_a_kernel_and_shows_where_it_comes_from(tmp_path):
    script = tmp_path / "model.py"
    script.write_text(
        textwrap.dedent("""
        import numpy as np, tiercel as tc

        @tc.jit
        def scaled(x):
            return np.exp(x) * 2

        x = np.ones((3, 4), np.float32)
        scaled.warmup(x)
        scaled(x)
        """)
    )
    commands = ["set breakpoint pending on", "break 'scaled loops'", "run", "backtrace 3", "kill"]
    given = [part for command in commands for part in ("-ex", command)]
    done = subprocess.run(
        ["gdb", "-q", "-nx", "-batch", *given, "--args", sys.executable, str(script)],
        env={**os.environ, "TIERCEL_GDB": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "ptrace" in done.stderr + done.stdout:
        pytest.skip("this machine does not let one process trace another")
    shown = [line for line in done.stdout.splitlines() if line.startswith("#")]
    assert "scaled loops () at model.py:4" in shown[0], done.stdout + done.stderr
    assert "scaled () at model.py:4" in shown[1]
    assert "runtime" in shown[2]
