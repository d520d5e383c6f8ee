"""The switches of the process, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

HEAD = """
import numpy as np
import tiercel as tc

x = np.ones((3, 4), np.float32)

@tc.jit
def before(x):
    return np.exp(x) * 2

@tc.jit
def after(x):
    return np.exp(x) * 3

before.warmup(x)
"""


def run(tmp_path, text):
    script = tmp_path / "script.py"
    script.write_text(HEAD + text)
    environment = {**os.environ, "TIERCEL_CACHE_DIR": str(tmp_path / "cache")}  # so that the worker has to start
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


def test_frozen_processes_compile_nothing_more(tmp_path):
    out = run(
        tmp_path,
        """
tc.freeze()
after.warmup(x)
after(x)
before(x)
print(after.stats()["kernels"], before.stats()["compiled_calls"])
print("compiling is frozen" in str(after.explain()))
""",
    )
    assert out[:2] == ["0 1", "True"]


def test_after_shutdown_functions_go_on_with_the_code_they_have(tmp_path):
    out = run(
        tmp_path,
        """
from tiercel.hotpath.service import service
worker = service().status()["worker"]["pid"]
tc.shutdown()
print(bool(worker), service().status()["worker"]["pid"])
print(np.array_equal(after(x), after.__wrapped__(x)), before(x).shape, before.stats()["compiled_calls"])
""",
    )
    assert out[:2] == ["True None", "True (3, 4) 1"]
