"""Regions become kernels: by a process, by a thread, from the cache, or not at all; wrong ones never."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from tests.compiler.regions import ExitTaken
from tests.hotpath.programs import EXAMPLES, compiled, run
from tiercel import config
from tiercel.codegen.blob import BlobError
from tiercel.codegen.pieces import needed_pieces
from tiercel.hotpath import queue
from tiercel.hotpath import service as service_module
from tiercel.hotpath.cache import KernelCache, kernel_key
from tiercel.hotpath.plant import VARIABLE, plant
from tiercel.hotpath.protocol import encode
from tiercel.hotpath.service import CompileService, _piece_key
from tiercel.hotpath.validate import Certificate, Failure
from tiercel.hotpath.wire import to_table
from tiercel.loops import IllFormed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def shared(folder):
    made = CompileService("process", cache=KernelCache(str(folder), 1 << 26))
    yield made
    made.shutdown()


@pytest.fixture
def make(tmp_path):
    services = []

    def one(mode="process", where=None, **options):
        services.append(CompileService(mode, cache=KernelCache(str(where or tmp_path), 1 << 26), **options))
        return services[-1]

    yield one
    for made in services:
        made.shutdown()


def submit(service, name, **options):
    made = compiled(name)
    return made, service.submit(name, made.region, made.runner.lowered, **options)


def check_results(name, service, ticket, made):
    function, arguments = EXAMPLES[name]
    got, want = run(service, ticket, made.region, *arguments), function(*arguments)
    if not isinstance(want, tuple):
        got, want = (got,), (want,)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", EXAMPLES)
def test_kernels_compute_what_python_does(shared, name):
    made, ticket = submit(shared, name, times_ms={"trace": 1.0})
    assert ticket.state in ("queued", "running")
    assert shared.wait(120, ticket)
    assert ticket.state == "done", ticket.reason
    assert {"trace", "encode", "cache", "emit", "codegen", "link", "validate"} <= ticket.times_ms.keys()
    certificate = Certificate.from_data(ticket.certificate)
    assert certificate.exact == (name == "rows")
    assert sum(t.outcome in ("equal", "within") for t in certificate.trials) >= 3
    check_results(name, shared, ticket, made)


def test_a_second_service_finds_them(shared, folder, make):
    _, first = submit(shared, "softmax")
    assert shared.wait(120, first)
    other = make(where=folder)
    made, ticket = submit(other, "softmax")
    assert (ticket.state, ticket.from_cache) == ("done", True)
    assert ticket.certificate == first.certificate
    assert "codegen" not in ticket.times_ms
    assert other._workers == {}  # no process was needed
    check_results("softmax", other, ticket, made)


def test_equal_regions_are_built_once(make):
    service = make()
    tickets = [submit(service, "chain")[1] for _ in range(3)]
    assert service.pending == 3
    assert service.wait(120)
    assert [t.state for t in tickets] == ["done"] * 3
    assert len({id(t.blob) for t in tickets}) == 1
    assert service.cache.stats()["writes"] == 2  # one kernel, and the runtime library


def test_the_runtime_library_comes_along(shared):
    made, ticket = submit(shared, "dense")
    assert shared.wait(120, ticket)
    assert ticket.blob.imports
    assert shared.imports(ticket.blob) == {name: shared.library.address(name) for name in ticket.blob.imports}
    check_results("dense", shared, ticket, made)


def test_only_the_pieces_that_a_kernel_needs_are_made(make):
    service = make()
    _, ticket = submit(service, "chain")
    assert service.wait(120, ticket)
    assert needed_pieces(ticket.blob.imports) == {"core"}
    assert set(service._known()) == {"core"}
    with pytest.raises(BlobError, match="'float64' of the runtime library is not here"):
        service.library.address("tc.gemm.float64")


def test_a_kernel_without_its_pieces_is_made_again(make):
    first = make()
    _, ticket = submit(first, "dense")
    assert first.wait(120, ticket)
    pieces = needed_pieces(ticket.blob.imports)
    assert pieces > {"core"}
    second = make()
    for piece in pieces - {"core"}:
        second.cache.drop(_piece_key(piece))
    _, again = submit(second, "dense")
    assert second.wait(120, again)
    assert (again.state, again.from_cache) == ("done", False)
    assert needed_pieces(again.blob.imports) <= set(second._known())


def test_quick_kernels_call_quick_pieces_and_better_ones_better_pieces(make):
    service = make()
    _, ticket = submit(service, "dense", quick=True)
    assert service.wait(120, ticket)
    assert ticket.quick
    assert set(service._known()) == {"core", "float32 quick"}
    quick = service.imports(ticket.blob, quick=True)
    made, better = submit(service, "dense")
    assert service.wait(120, better)
    assert not better.quick
    assert set(service._known()) == {"core", "float32 quick", "float32"}
    check_results("dense", service, better, made)
    full = service.imports(better.blob)
    assert not set(quick.values()) & set(full.values())
    check_results("dense", service, ticket, made)
    second = make()  # has both to choose from
    assert second.imports(ticket.blob, quick=True) == second.imports(ticket.blob)


def test_a_quick_kernel_from_the_cache_needs_some_version_of_its_pieces(make):
    first = make()
    _, ticket = submit(first, "dense", quick=True)
    assert first.wait(120, ticket)
    second = make()
    _, again = submit(second, "dense", quick=True)
    assert (again.state, again.from_cache, again.quick) == ("done", True, True)
    third = make()
    third.cache.drop(_piece_key("float32 quick"))
    _, again = submit(third, "dense", quick=True)
    assert again.state == "queued"


def test_a_worker_starts_before_anything_is_asked_for(make):
    service = make()
    assert not service.starting
    service.expect()
    assert service.starting
    assert service.worker().pid is not None
    made, ticket = submit(service, "chain")
    assert service.wait(120, ticket)
    assert service.worker().starts == 1
    check_results("chain", service, ticket, made)
    second = make()  # what is in the cache may be all that is needed
    second.expect()
    assert second._workers == {}


def test_no_worker_starts_where_none_may(make):
    service = make("off")
    service.expect()
    assert not service.starting


def test_a_thread_instead_of_a_process(make):
    service = make("thread")
    made, ticket = submit(service, "chain")
    assert service.wait(120, ticket)
    assert ticket.state == "done", ticket.reason
    assert ticket.certificate["elements"] > 100
    check_results("chain", service, ticket, made)


def test_off_and_frozen(make):
    service = make("off")
    _, ticket = submit(service, "chain")
    assert (ticket.state, ticket.kind) == ("failed", "off")
    assert service.wait(0)
    frozen = make()
    frozen.frozen = True
    assert submit(frozen, "chain")[1].reason == "compiling is frozen"


def test_the_setting_decides():
    service = CompileService()
    with config.context(worker="off"):
        assert service.mode == "off"
    assert service.mode == "process"


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_an_ill_formed_loop_nest_is_our_bug(make, mode):
    service = make(mode)
    made = compiled("chain")
    lowered = made.runner.lowered
    broken = replace(lowered, function=replace(lowered.function, buffers=()))
    ticket = service.submit("bad", made.region, broken)
    assert service.wait(120, ticket)
    assert (ticket.state, ticket.kind, ticket.attempts) == ("failed", "bug", ())
    assert "IllFormed" in ticket.reason


def test_what_has_no_code_is_refused_at_once_the_next_time(make, monkeypatch):
    def refuse(function, target, choices):
        raise IllFormed("tan of float64 has no code on this target")

    monkeypatch.setattr("tiercel.codegen.cpu.emit.emit", refuse)
    service = make("thread")
    _, ticket = submit(service, "chain")
    assert service.wait(120, ticket)
    assert (ticket.state, ticket.kind) == ("failed", "unsupported")
    _, again = submit(make("thread"), "chain")
    assert (again.reason, again.from_cache) == ("tan of float64 has no code on this target", True)


def test_a_kernel_without_a_region_is_not_validated(make):
    service = make()
    made = compiled("chain")
    ticket = service.submit("alone", None, made.runner.lowered)
    assert service.wait(120, ticket)
    assert (ticket.state, ticket.certificate) == ("done", None)


def test_submit_and_poll_return_at_once(make):
    service = make()
    submit(service, "chain")
    worker = service.worker()
    assert worker.pid is None
    assert not service.poll()
    assert worker.pid is not None  # started, and not waited for
    assert worker.introduction is None
    assert not service.poll()
    assert service.wait(0.001) is False


# ---- planted mistakes ------------------------------------------------------------------------------------------------


@pytest.fixture
def once(monkeypatch):
    monkeypatch.setattr(queue, "MAX_ATTEMPTS", 1)


@pytest.mark.parametrize("kind", ["wrong", "tail", "input"])
@pytest.mark.parametrize("name", ["chain", "dense", "masked", "steps"])
def test_a_planted_mistake_is_caught_and_named(shared, monkeypatch, name, kind):
    monkeypatch.setenv(VARIABLE, kind)
    _, ticket = submit(shared, name)
    assert shared.wait(120, ticket)
    assert (ticket.state, ticket.kind, ticket.blob) == ("failed", "invalid", None)
    failure = Failure.from_data(ticket.details["details"])
    assert failure.kind == ("written" if kind == "input" else "value")
    assert failure.trial["name"] in ticket.reason or kind == "input"
    monkeypatch.delenv(VARIABLE)
    _, good = submit(shared, name)
    assert shared.wait(120, good)
    assert good.state == "done"


@pytest.mark.parametrize(("kind", "reason"), [("crash", "SIGSEGV"), ("hang", "SIGVTALRM"), ("abort", "SIGABRT")])
def test_a_planted_kernel_that_ends_the_process_ends_the_workers_only(make, once, monkeypatch, kind, reason):
    service = make()
    monkeypatch.setenv(VARIABLE, kind)
    _, ticket = submit(service, "chain")
    assert service.wait(120, ticket)
    assert (ticket.state, ticket.kind) == ("failed", "worker")
    assert reason in ticket.reason
    assert kind == "abort" or "in stage validate, trial" in ticket.reason
    monkeypatch.delenv(VARIABLE)
    _, good = submit(service, "chain")
    assert service.wait(120, good)
    assert good.state == "done"
    assert service.worker().starts == 2


def test_an_invalid_kernel_is_not_tried_again(make):
    """A loop nest that is not what its region says: refused now, and at once by the next process."""
    service = make()
    made = compiled("chain")
    lowered = made.runner.lowered
    wrong = replace(lowered, function=plant(lowered.function, "wrong"))
    ticket = service.submit("wrong", made.region, wrong)
    assert service.wait(120, ticket)
    assert ticket.kind == "invalid"
    again = make().submit("wrong", made.region, wrong)
    assert (again.state, again.kind, again.from_cache) == ("failed", "invalid", True)
    assert again.reason == ticket.reason


# ---- other processes, threads, forks ---------------------------------------------------------------------------------


def _build_in_child(folder, barrier, results):
    service = CompileService("process", cache=KernelCache(folder, 1 << 26))
    made = compiled("softmax")
    barrier.wait()
    ticket = service.submit("softmax", made.region, made.runner.lowered)
    service.wait(120, ticket)
    results.put((ticket.state, ticket.from_cache or ticket.times_ms.get("codegen") is None, service.worker().starts))
    service.shutdown()


@pytest.mark.slow
def test_of_several_processes_one_builds(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(3), context.Queue()
    children = [context.Process(target=_build_in_child, args=(str(tmp_path), barrier, results)) for _ in range(3)]
    for child in children:
        child.start()
    found = [results.get(timeout=120) for _ in children]
    for child in children:
        child.join()
    assert [state for state, _, _ in found] == ["done"] * 3
    assert sum(not kept for _, kept, _ in found) == 1


def test_a_builder_that_dies_is_replaced(make, tmp_path):
    other = KernelCache(str(tmp_path), 1 << 26)
    service = make()
    made = compiled("chain")
    lowered = made.runner.lowered
    table, own = to_table(lowered.function, lowered.interface, made.region)
    content = hashlib.blake2b(encode(table[:own]), digest_size=24).digest()
    held = other.lock(kernel_key(content, b""))
    assert held is not None
    ticket = service.submit("chain", made.region, lowered)
    assert not service.wait(0.5, ticket)
    assert ticket.state == "queued"  # somebody else seems to build it
    held.release()
    assert service.wait(120, ticket)
    assert (ticket.state, ticket.from_cache) == ("done", False)


def test_quick_code_comes_first_and_better_code_takes_its_place(make, tmp_path):
    service, made = make(), compiled("chain")
    quick = service.submit("chain", made.region, made.runner.lowered, quick=True)
    assert service.wait(120, quick)
    assert (quick.state, quick.quick, quick.from_cache) == ("done", True, False)
    again = make().submit("chain", made.region, made.runner.lowered, quick=True)
    assert (again.state, again.quick, again.from_cache) == ("done", True, True)
    better = service.submit("chain", made.region, made.runner.lowered)
    assert service.wait(120, better)
    assert (better.state, better.quick, better.from_cache) == ("done", False, False)
    assert better.blob.image != quick.blob.image
    last = make().submit("chain", made.region, made.runner.lowered, quick=True)
    assert (last.state, last.quick, last.from_cache) == ("done", False, True)
    assert last.blob.image == better.blob.image
    names = [info.data["name"] for info in KernelCache(str(tmp_path), 1 << 26).list()]
    assert names.count(quick.name) == 1  # the quick one is gone


@pytest.mark.slow
def test_forked_children_build_for_themselves(make):
    service = make()
    _, before = submit(service, "chain")
    assert service.wait(120, before)
    _, pending = submit(service, "softmax")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        ok = pending.dropped and pending.state == "failed" and service.pending == 0
        made, ticket = submit(service, "dense")
        ok = ok and service.wait(120, ticket) and ticket.state == "done"
        check_results("dense", service, ticket, made)
        service.shutdown()
        os.write(write, b"y" if ok else b"n")
        os._exit(0)
    assert service.wait(120, pending)
    assert pending.state == "done"
    os.waitpid(child, 0)
    assert os.read(read, 1) == b"y"
    os.close(read)
    os.close(write)


def test_eight_threads_submit(shared):
    names = list(EXAMPLES)
    regions = {name: compiled(name) for name in names}
    states = []

    def use(number):
        for i in range(len(names)):
            made = regions[names[(number + i) % len(names)]]
            ticket = shared.submit(number, made.region, made.runner.lowered)
            shared.wait(120, ticket)
            states.append(ticket.state)

    threads = [threading.Thread(target=use, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert states == ["done"] * (8 * len(names))
    assert shared.pending == 0


def test_after_shutdown_it_starts_anew(make):
    service = make()
    _, ticket = submit(service, "chain")
    service.shutdown()
    assert ticket.dropped
    _, again = submit(service, "chain")
    assert service.wait(120, again)
    assert again.state == "done"


def test_a_service_of_nobody_does_not_keep_python_alive(tmp_path):
    code = (
        "from tests.hotpath.programs import compiled\nfrom tiercel.hotpath.service import service\n"
        "m = compiled('chain')\nt = service().submit('chain', m.region, m.runner.lowered)\n"
        "service().poll()\nprint(service().worker().pid)\n"
    )
    environment = {**os.environ, "TIERCEL_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=False, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    end = time.monotonic() + 20
    while os.path.exists(f"/proc/{int(done.stdout)}"):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_worker_that_answers_nonsense_gives_no_kernel(make):
    service = make()
    made = compiled("chain")
    ticket = service.submit("chain", made.region, made.runner.lowered)
    (build,) = service._builds.values()
    build.job.succeed({"blob": b"no blob", "times_ms": {}, "certificate": None})
    service.poll()
    assert ticket.state == "failed"
    assert "no kernel" in ticket.reason
    with pytest.raises(BlobError, match="no machine code"):
        service.load(ticket)


def test_status_tells(make):
    service = make()
    service.prepare()
    assert service.status()["worker"] == {"state": "not started"}
    _, ticket = submit(service, "chain")
    assert service.status()["pending"] == 1
    assert service.wait(120, ticket)
    status = service.status()
    assert (status["mode"], status["pending"], status["worker"]["state"]) == ("process", 0, "running")
    assert status["worker"]["about"]["versions"]["llvm"]
    assert status["cache"]["entries"] == 2
    json.dumps(status)


def test_there_is_one_service_per_process():
    assert service_module.service() is service_module.service()


def test_kernels_guard_their_exits(shared):
    made, ticket = submit(shared, "rows")
    assert shared.wait(120, ticket)
    x, n = EXAMPLES["rows"][1]
    with pytest.raises(ExitTaken):
        run(shared, ticket, made.region, x, len(x) + 1)
    assert n <= len(x)
