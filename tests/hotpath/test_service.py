"""Regions become kernels: by a process, by a thread, or not at all."""

from __future__ import annotations

import numpy as np
import pytest

from tests.hotpath.programs import EXAMPLES, compiled, run
from tiercel.hotpath.cache import KernelCache
from tiercel.hotpath.service import CompileService


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def service(folder):
    made = CompileService("process", cache=KernelCache(str(folder), 1 << 24))
    yield made
    made.shutdown()


@pytest.mark.parametrize("name", EXAMPLES)
def test_kernels_compute_what_python_does(service, name):
    function, arguments = EXAMPLES[name]
    region = compiled(name)
    ticket = service.submit(name, region.region, region.runner.lowered)
    assert service.wait(120, ticket)
    assert ticket.state == "done", ticket.reason
    assert {"encode", "emit", "codegen", "link"} <= ticket.times_ms.keys()
    got, want = run(service, ticket, region.region, *arguments), function(*arguments)
    if not isinstance(want, tuple):
        got, want = (got,), (want,)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=1e-5)
