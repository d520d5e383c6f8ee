"""The thread pool: every piece exactly once, any number of threads and callers, sleep and wake, fork, flags."""

from __future__ import annotations

import ctypes
import os
import threading
import time

import numpy as np
import pytest

from tests.codegen.native import build, call, imports
from tests.codegen.test_contract import dense
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.threads import RUN, WORKER
from tiercel.codegen.pool import ThreadPool
from tiercel.dtypes import as_dtype
from tiercel.loops.form import Binary, Block, Buffer, For, Function, Load, Store, Var

F32 = as_dtype("float32")
M, N = Var("M"), Var("N")
I, J = Var("i"), Var("j")


def make_pool(threads, **options):
    library = imports(Target.host())
    return ThreadPool(library[RUN], library[WORKER], threads, **options)


@pytest.fixture(params=[1, 2, 4])
def pool(request):
    made = make_pool(request.param)
    yield made
    made.close()


def increments():
    """y[i, j] = y[i, j] + x[i, j] with rows in parallel: shows pieces that run twice or not at all."""
    x, y = Buffer("x", F32, (M, N)), Buffer("y", F32, (M, N), space="result")
    store = Store(y, (I, J), Binary("add", Load(y, (I, J)), Load(x, (I, J))))
    rows = For("i", M, Block((For("j", N, Block((store,)), "vector"),)), "parallel")
    return Function("rows", (M, N), (), (x, y), (), Block((rows,)))


CODE = build(increments())


def run_rows(pool, m, n, times=1):
    x, y = np.ones((m, n), np.float32), np.zeros((m, n), np.float32)
    for _ in range(times):
        call(CODE, increments(), {"x": x, "y": y}, {"M": m, "N": n}, pool=pool.address, threads=pool.threads)
    return y


def test_every_piece_once(pool):
    for m in (400, 401, 7, 3):
        assert (run_rows(pool, m, 40_000 // m * 20) == 1).all(), m


def test_thousands_of_axes_back_to_back(pool):
    y = run_rows(pool, 100, 2000, times=2000)
    assert (y == 2000).all()


def test_workers_sleep_and_wake():
    pool = make_pool(3, spin=1)
    for _ in range(30):
        assert (run_rows(pool, 200, 1500) == 1).all()
        time.sleep(0.003)
    pool.close()


def processor_of(thread):
    with open(f"/proc/self/task/{thread}/stat", encoding="ascii") as file:
        return int(file.read().rpartition(")")[2].split()[36])


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2, reason="there is one processor"
)
def test_a_worker_woken_on_the_callers_processor_moves_away():
    """It would only take turns with the caller there; afterwards it may run everywhere again."""
    allowed = os.sched_getaffinity(0)
    before = set(os.listdir("/proc/self/task"))
    pool = make_pool(2, spin=1)
    try:
        (worker,) = set(os.listdir("/proc/self/task")) - before
        for here in sorted(allowed)[:2]:
            os.sched_setaffinity(0, {here})
            os.sched_setaffinity(int(worker), {here})
            run_rows(pool, 200, 1500)
            time.sleep(0.01)
            assert processor_of(worker) == here
            os.sched_setaffinity(int(worker), allowed)
            for _ in range(5):
                run_rows(pool, 200, 1500)
                time.sleep(0.01)
            assert processor_of(worker) != here
            assert os.sched_getaffinity(int(worker)) == allowed
    finally:
        os.sched_setaffinity(0, allowed)
        pool.close()


def test_callers_at_once_do_not_wait_for_one_another(pool):
    failures = []

    def work():
        for _ in range(150):
            if not (run_rows(pool, 150, 1500) == 1).all():
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_product_and_epilogue_on_threads(pool):
    function = dense(F32, activation="tanh", transposed=True)
    code = build(function)
    rng = np.random.default_rng(0)
    a, w, bias = (rng.standard_normal(s, dtype=np.float32) for s in ((300, 64), (700, 64), 700))
    for _ in range(20):
        y = np.zeros((300, 700), np.float32)
        call(code, function, {"a": a, "w": w, "bias": bias, "y": y}, {"M": 300, "N": 700, "K": 64},
             pool=pool.address, threads=pool.threads)  # fmt: skip
        np.testing.assert_allclose(y, np.tanh(a @ w.T + bias), atol=3e-5)


def test_a_forked_child_runs_on_alone(pool):
    """The child has no workers: the caller takes all pieces."""
    run_rows(pool, 100, 2000)
    child = os.fork()
    if child == 0:
        good = (run_rows(pool, 300, 2000, times=50) == 50).all()
        pool.close()
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_flags_of_workers_reach_the_caller():
    """A division by zero in the last piece, whoever runs it."""
    from tiercel.codegen.abi import POOL, THREADS, frame_size, frame_words
    from tiercel.codegen.cpu.library import CALL

    x, y = Buffer("x", F32, (M, N)), Buffer("y", F32, (M, N), space="result")
    store = Store(y, (I, J), Binary("div", Load(x, (I, J)), Load(x, (I, J))))
    rows = For("i", M, Block((For("j", N, Block((store,)), "vector"),)), "parallel")
    function = Function("ratio", (M, N), (), (x, y), (), Block((rows,)))
    code = build(function)
    pool = make_pool(2)
    entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(imports(Target.host())[CALL])
    words = frame_words(function)
    for bad in (False, True):
        for _ in range(50):
            values, out = np.ones((400, 2000), np.float32), np.zeros((400, 2000), np.float32)
            if bad:
                values[-1, 5] = 0
            frame = np.zeros(frame_size(function), np.int64)
            frame[POOL], frame[THREADS] = pool.address, pool.threads
            for name, value in (("M", 400), ("N", 2000), ("x", values.ctypes.data), ("y", out.ctypes.data)):
                frame[words[name]] = value
            status = entry(code.address("ratio"), frame.ctypes.data)
            assert bool(status >> 32 & 1) is bad
    pool.close()
