"""A worker that dies, hangs, lies or is forked away from: the jobs end as they should, and nothing stays behind."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from tiercel.hotpath import process as process_module
from tiercel.hotpath import queue, worker, worker_main
from tiercel.hotpath.process import ChildProcess, Unavailable, find_interpreter
from tiercel.hotpath.queue import Job, JobQueue
from tiercel.hotpath.worker import ThreadWorker, Worker


@pytest.fixture
def once(monkeypatch):
    """No second attempts: starting a process takes a second on a loaded machine."""
    monkeypatch.setattr(queue, "MAX_ATTEMPTS", 1)


@pytest.fixture
def made():
    workers = []

    def make(**options):
        workers.append(Worker(**{"bare": True, **options}))
        return workers[-1]

    yield make
    for one in workers:
        one.shutdown()


@pytest.fixture(scope="module")
def shared():
    one = Worker()
    yield one
    one.shutdown()


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid, within_s=20.0):
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not os.path.exists(f"/proc/{pid}"):
            return True
        time.sleep(0.02)
    return False


def test_a_job_is_done(shared):
    job = shared.submit("echo", {"a": [1, 2.5, b"\x00"]})
    assert job.state == "queued"
    assert shared.wait(60, job)
    assert (job.state, job.result) == ("done", {"a": [1, 2.5, b"\x00"]})
    assert shared.introduction["target"][0]
    assert set(shared.introduction["versions"]) == {"tiercel", "python", "numpy", "llvmlite", "llvm"}


def test_large_payloads_pass_although_nothing_waits(shared):
    job = shared.submit("echo", b"x" * (8 << 20))
    assert shared.wait(60, job)
    assert job.result == b"x" * (8 << 20)
    too_large = shared.submit("echo", b"x" * (65 << 20))
    assert shared.wait(60, too_large)
    assert "at most" in too_large.reason


def test_urgent_jobs_come_first(shared):
    done = []
    jobs = [shared.submit("echo", n, priority=p) for n, p in enumerate((5, 0, 5, -1))]
    while shared.pending:
        shared.wait(1, min((j for j in jobs if not j.finished), key=lambda j: j.priority))
        done += [j.result for j in jobs if j.finished and j.result not in done]
    assert done == [3, 1, 0, 2]


def test_poll_never_waits(shared):
    job = shared.submit("suffer", "compute")
    rounds = 0
    while not job.finished:
        shared.poll()
        rounds += 1
    assert rounds > 50  # it computes for 0.2 s; a poll that waited would come round a few times


def test_what_a_job_prints_does_no_harm(shared):
    assert shared.wait(60, job := shared.submit("suffer", "print"))
    assert job.state == "done"


def test_an_exception_is_no_crash(shared):
    before = shared.pid
    assert shared.wait(60, job := shared.submit("suffer", "raise"))
    assert (job.state, job.reason, job.attempts) == ("failed", "RuntimeError: as asked", [])
    assert "jobs.py" in job.details["traceback"]
    assert shared.pid == before


def test_an_unknown_job_is_refused(shared):
    assert shared.wait(60, job := shared.submit("nothing", None))
    assert job.details["kind"] == "unsupported"


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("kill", "SIGKILL"),
        ("abort", "SIGABRT: LLVM ERROR: Cannot select"),
        ("crash", "SIGSEGV"),
        ("exit", "left with status 7"),
        ("garbage", "sent garbage"),
    ],
)
def test_a_worker_that_dies_fails_its_job_only(made, once, how, reason):
    one = made()
    job, other = one.submit("suffer", how), one.submit("echo", "next")
    assert one.wait(120, other)
    assert job.state == "failed"
    assert reason in job.reason
    assert f"in stage suffer {how}" in job.reason
    assert other.result == "next"
    assert one.starts == 2


@pytest.mark.parametrize("how", ["hang", "spin"])
def test_a_worker_that_hangs_is_killed(made, once, how):
    one = made()
    job = one.submit("suffer", how, budget_ms=100)
    one.wait(60, one.submit("echo", 1, priority=-1))
    pid = one.pid
    assert one.wait(60, job)
    assert "longer than 0.1 s" in job.reason
    assert gone(pid)


def test_a_worker_out_of_memory_says_so(made, once):
    one = made()
    job = Job("suffer", "memory", memory_bytes=1 << 28)
    one.add(job)
    assert one.wait(60, job)
    assert "out of memory" in job.reason


def test_a_job_gets_two_more_tries_in_fresh_workers(made):
    one = made()
    job = one.submit("suffer", "exit")
    assert one.wait(120, job)
    assert len(job.attempts) == 3
    assert one.starts == 3
    assert "3 times" in job.reason


def test_killed_from_outside_the_job_is_done_by_the_next(made):
    one = made()
    job = one.submit("suffer", "compute")
    while job.state != "running":
        one.poll()
        time.sleep(0.001)
    os.kill(one.pid, signal.SIGKILL)
    assert one.wait(60, job)
    assert job.state == "done"
    assert "SIGKILL" in job.attempts[0]


def test_an_idle_worker_leaves_and_is_started_again(made):
    one = made(idle_s=0.05)
    one.wait(60, one.submit("echo", 1))
    pid = one.pid
    assert pid is not None
    while one.pid is not None:
        one.poll()
        time.sleep(0.005)
    assert gone(pid)
    assert list(one.lost) == []
    again = one.submit("echo", 2)
    assert one.wait(60, again)
    assert (again.result, again.attempts, one.starts) == (2, [], 2)


def test_shutdown_drops_what_is_not_done(made):
    one = made()
    job, waiting = one.submit("suffer", "hang"), one.submit("echo", 1)
    while job.state != "running":
        one.poll()
        time.sleep(0.001)
    pid = one.pid
    one.shutdown()
    assert gone(pid)
    assert job.dropped
    assert waiting.dropped
    assert one.pending == 0


def test_the_worker_ignores_what_the_terminal_sends(made):
    one = made()
    one.wait(60, one.submit("echo", 1))
    assert os.getsid(one.pid) == one.pid  # a session of its own: Ctrl-C goes elsewhere
    os.kill(one.pid, signal.SIGINT)
    job = one.submit("echo", 2)
    assert one.wait(60, job)
    assert (job.result, one.starts) == (2, 1)
    assert os.getpriority(os.PRIO_PROCESS, one.pid) >= min(19, os.getpriority(os.PRIO_PROCESS, 0) + 5)


def test_a_rested_worker_computes_part_of_the_time(made):
    one = made(duty=1 / 3, bare=False)
    job = one.submit("suffer", "compute")
    assert one.wait(60, job)
    computed, passed = job.result
    assert computed / passed < 0.6  # a loaded machine makes this smaller, never larger


def test_no_interpreter_means_off(made, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/usr/bin/some-game")
    monkeypatch.setattr(sys, "prefix", "/nowhere")
    monkeypatch.setattr(sys, "base_prefix", "/nowhere")
    with pytest.raises(Unavailable, match="some-game"):
        find_interpreter()
    one = made()
    job = one.submit("echo", 1)
    assert one.wait(5, job)
    assert "no Python interpreter" in job.reason
    assert one.unavailable == job.reason
    assert one.submit("echo", 2).reason == job.reason


def test_an_embedded_python_is_not_started_as_itself(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/usr/sbin/uwsgi")
    assert os.path.basename(find_interpreter()).startswith("python")


def test_the_worker_runs_the_package_that_the_parent_runs():
    library = "/usr/lib/python3.11"
    own = ["/usr/lib/python311.zip", library, f"{library}/lib-dynload", "/other/checkout/src", "/env/site-packages"]
    first, then = ["/mine/src", "/env/site-packages"], ["/users/scripts", library]
    assert worker_main.ordered(own, library, first, then) == [
        *own[:3],
        "/mine/src",
        "/env/site-packages",
        "/other/checkout/src",
        "/users/scripts",
    ]
    assert worker_main.ordered([library, "/env/dist-packages"], library, [], []) == [library, "/env/dist-packages"]


def test_a_worker_that_never_starts_is_given_up(made, monkeypatch, tmp_path):
    broken = tmp_path / "worker_main.py"
    broken.write_text("import nothing_of_this_name\n")
    monkeypatch.setattr(process_module, "_MAIN", broken)
    one = made()
    job = one.submit("echo", 1)
    assert one.wait(60, job)
    assert job.state == "failed"
    assert "does not start" in job.reason
    assert "nothing_of_this_name" in job.reason
    assert one.starts == worker.MAX_START_FAILURES


def test_eight_threads_submit_and_wait(made):
    one, results = made(), {}

    def use(number):
        jobs = [one.submit("echo", [number, i]) for i in range(25)]
        for job in jobs:
            assert one.wait(120, job)
        results[number] = [job.result for job in jobs]

    threads = [threading.Thread(target=use, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: [[n, i] for i in range(25)] for n in range(8)}
    assert one.starts == 1


def test_an_interrupt_in_the_middle_loses_nothing(made, monkeypatch):
    one = made()
    assert one.wait(60, one.submit("echo", 0))
    jobs = [one.submit("echo", n) for n in range(4)]
    real, calls = ChildProcess.receive, []

    def interrupted(self, deadline):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, deadline)

    monkeypatch.setattr(ChildProcess, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one.wait(60)
    assert one.wait(60)
    assert [job.result for job in jobs] == [0, 1, 2, 3]


def test_a_signal_handler_may_compile_too(made):
    one, seen = made(), []
    assert one.wait(60, one.submit("echo", 0))

    def handler(number, frame):
        seen.append(one.submit("echo", len(seen)))
        one.poll()

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        for n in range(30):
            assert one.wait(60, one.submit("echo", n))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert one.wait(60)
    assert [job.result for job in seen] == list(range(len(seen)))


def test_descriptors_closed_by_the_program_are_not_written_to(made, tmp_path):
    one = made()
    assert one.wait(60, one.submit("echo", 1))
    number = one._process.fileno()
    pid = one.pid
    os.close(number)
    with open(tmp_path / "user.txt", "w+", encoding="utf-8") as file:
        assert file.fileno() == number  # the program's own file has the number now
        file.write("mine")
        file.flush()
        job = one.submit("echo", 2)
        assert one.wait(60, job)
        assert (tmp_path / "user.txt").read_text() == "mine"
        assert job.result == 2
    assert gone(pid)


def test_asyncio_loops_go_on(made):
    one = made()

    async def work():
        job, ticks = one.submit("suffer", "compute"), 0
        while not job.finished:
            one.poll()
            await asyncio.sleep(0)
            ticks += 1
        return ticks

    assert asyncio.run(work()) > 20


# ---- forks and deaths of the parent ----------------------------------------------------------------------------------


def test_a_forked_child_starts_its_own(made):
    one = made()
    running = one.submit("suffer", "hang")
    while running.state != "running":
        one.poll()
        time.sleep(0.001)
    queued, pid = one.submit("echo", 1), one.pid
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        ok = running.dropped and queued.dropped and one.pid is None
        job = one.submit("echo", "child")
        ok = ok and one.wait(60, job) and job.result == "child" and one.pid != pid
        one.shutdown()
        os.write(write, b"y" if ok else b"n")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1) == b"y"
    os.close(read)
    os.close(write)
    assert (running.state, one.pid) == ("running", pid)  # the parent's goes on
    assert alive(pid)


def test_inside_of_a_multiprocessing_child():
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(_echo_in_child) == "from inside"


def _echo_in_child():
    one = Worker(bare=True)
    job = one.submit("echo", "from inside")
    one.wait(60, job)
    one.shutdown()
    return job.result


PARENT = """
import os, sys, time
from tiercel.hotpath.worker import Worker
one = Worker(bare=True)
one.wait(60, one.submit("echo", 1))
job = one.submit("suffer", {how!r}, budget_ms=600000)
while job.state != "running":
    one.poll()
    time.sleep(0.001)
print(one.pid, flush=True)
{then}
"""


def run_parent(how, then, **options):
    code = textwrap.dedent(PARENT).format(how=how, then=then)
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, **options)
    pid = int(parent.stdout.readline())
    return parent, pid


@pytest.mark.parametrize("how", ["hang", "spin"])
def test_no_worker_outlives_a_killed_parent(how):
    parent, pid = run_parent(how, "time.sleep(600)")
    assert alive(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(pid)


@pytest.mark.parametrize("then", ["", "os._exit(3)", "raise SystemExit(4)", "os.execv('/bin/true', ['true'])"])
def test_no_worker_outlives_a_parent_that_ends(then):
    parent, pid = run_parent("spin", then)
    parent.wait()
    parent.stdout.close()
    assert gone(pid)


def test_nothing_of_the_current_folder_is_imported_by_the_worker(tmp_path):
    for name in ("json", "numpy", "llvmlite", "tiercel"):
        (tmp_path / f"{name}.py").write_text("raise SystemError('imported from the current folder')\n")
    (tmp_path / "program.py").write_text(
        "import sys\nsys.path.remove(__file__.rpartition('/')[0])\n"  # the parent itself must live
        "from tiercel.hotpath.worker import Worker\nsys.path.insert(0, __file__.rpartition('/')[0])\n"
        "sys.path.insert(0, '')\none = Worker()\njob = one.submit('echo', 5)\none.wait(60, job)\n"
        "print(job.result, list(one.lost), job.reason)\n"
    )
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "5 [] None"


# ---- the queue and the thread ----------------------------------------------------------------------------------------


def test_the_queue_orders_and_forgets_what_is_finished():
    waiting = JobQueue()
    jobs = [Job("echo", n, priority=p) for n, p in enumerate((1, 0, 1, 0))]
    for job in jobs:
        waiting.push(job)
    waiting.push(front := Job("echo", 9, priority=1), front=True)
    jobs[3].fail("no longer wanted")
    assert len(waiting) == 4
    assert [waiting.pop() for _ in range(5)] == [jobs[1], front, jobs[0], jobs[2], None]


def test_a_thread_does_the_same():
    one = ThreadWorker()
    good, bad, refused = one.submit("echo", [1]), one.submit("suffer", "raise"), one.submit("nothing", None)
    assert one.wait(60)
    assert (good.result, bad.reason) == ([1], "RuntimeError: as asked")
    assert refused.details["kind"] == "unsupported"
    one.shutdown()
    again = one.submit("echo", 2)
    assert one.wait(60, again)
    assert again.result == 2
    one.shutdown()
