"""The parent's side of the compile worker: jobs go in, a process does them one at a time, whatever happens to it.

In: jobs by name with plain data. Out: the same jobs, done or failed with a reason. A worker is started when the first
job wants one, ends after idling, and is started again. A process that dies, hangs past the budget of its job or sends
garbage is killed, and the job tried again in a fresh one, at most twice.

Invariants: nothing waits except `wait` and `shutdown`; `poll` does as much as is possible in its time (starting the
process, once, takes one or two milliseconds more); there is no thread; a forked child has an empty worker of its own
and leaves the parent's alone; no child process is left behind, dead or alive.

`ThreadWorker` is the same by a thread of this process: for places where no process may be started. A kernel that
crashes takes the program with it there.
"""

from __future__ import annotations

import atexit
import os
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tiercel.hotpath import jobs
from tiercel.hotpath.process import ChildProcess, Unavailable
from tiercel.hotpath.processors import worker_duty
from tiercel.hotpath.protocol import Frame, Kind, ProtocolError, encode, pack
from tiercel.hotpath.queue import Job, JobQueue

__all__ = ["POLL_S", "ThreadWorker", "Worker"]

POLL_S: Final = 0.0005
"""What one `poll` may take."""
START_S: Final = 60.0
"""Until a started process has said hello. Half a second is usual; a loaded machine may need ten."""
MAX_START_FAILURES: Final = 3
IDLE_S: Final = 300.0
NICE: Final = 5
JOIN_S: Final = 2.0

_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


class Worker:
    """See the module docstring.

    Args:
        idle_s: the process leaves after so long without a job.
        duty: share of the time in which it may compute; by default what `processors.worker_duty` says.
        bare: without the compiler: starts quickly, and can do nothing but the jobs that tests of the worker need.
        start: makes the process (tests put something else here).
        before: called before a job is given to the process; if it returns False the job is put off and asked about
            again at the next poll. It may also finish the job.
    """

    def __init__(
        self,
        *,
        idle_s: float = IDLE_S,
        duty: float | None = None,
        bare: bool = False,
        start: Callable[[dict[str, Any]], ChildProcess] = ChildProcess,
        before: Callable[[Job], bool] = lambda job: True,
    ) -> None:
        self._hello = {"idle_s": idle_s, "nice": NICE, "duty": duty, "bare": bare}
        self._duty = duty
        self._start = start
        self._before = before
        self._lock = threading.Lock()  # only ever tried, or taken for a moment: a signal handler may be in here too
        self._inbox: deque[Job] = deque()
        self._jobs: dict[int, Job] = {}  # all that are not finished
        self._queue = JobQueue()
        self._waiting: list[Job] = []
        self._running: Job | None = None
        self._deadline = 0.0
        self._process: ChildProcess | None = None
        self._start_failures = 0
        self.introduction: dict[str, Any] | None = None
        self.unavailable: str | None = None
        self.starts = 0
        self.lost: deque[str] = deque(maxlen=16)
        _workers.add(self)

    # -- for everybody ----------------------------------------------------------------------------------------

    def submit(self, name: str, payload: Any, *, budget_ms: float = 30_000.0, priority: int = 0) -> Job:
        """Queue a job. Nothing happens until `poll` or `wait`."""
        job = Job(name, payload, budget_ms, priority)
        self.add(job)
        return job

    def add(self, job: Job) -> None:
        """Queue a job that is made already."""
        if self.unavailable is not None:
            job.fail(self.unavailable)
        else:
            self._inbox.append(job)

    @property
    def pending(self) -> int:
        """Jobs that are not finished."""
        return sum(not job.finished for job in [*self._inbox, *self._jobs.values()])

    @property
    def pid(self) -> int | None:
        """The process id of the worker, None while there is none."""
        process = self._process
        return None if process is None else process.pid

    def poll(self, budget_s: float = POLL_S) -> bool:
        """Do what can be done without waiting; true if a job finished. Another thread that is in here is enough."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._advance(time.monotonic() + budget_s)
        except BaseException:
            self._recover()  # Ctrl-C at the wrong moment
            raise
        finally:
            self._lock.release()

    def wait(self, timeout: float | None = None, job: Job | None = None) -> bool:
        """Wait until a job (or all) is finished; false if it is not in time."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            self.poll(0.05)
            if self.pending == 0 if job is None else job.finished:
                return True
            now = time.monotonic()
            if end is not None and now >= end:
                return False
            self._sleep(0.05 if end is None else min(0.05, end - now))

    def start(self) -> None:
        """Start the process now, so that the first job does not wait for it."""
        if self._lock.acquire(timeout=1.0):
            try:
                if self._process is None and self.unavailable is None:
                    self._begin()
            finally:
                self._lock.release()

    def shutdown(self) -> None:
        """End the process; jobs that are not finished fail as dropped."""
        taken = self._lock.acquire(timeout=1.0)
        try:
            process, self._process = self._process, None
            if process is not None:
                process.kill()
            self._drop("the compile worker was shut down")
        finally:
            if taken:
                self._lock.release()

    # -- for the fork -----------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """In a forked child: the process belongs to the parent."""
        self._lock = threading.Lock()
        process, self._process = self._process, None
        if process is not None:
            process.forget()
        self._drop("the process was forked while this was compiled")
        self._start_failures = 0
        self.unavailable = None

    def _drop(self, reason: str) -> None:
        jobs = [*self._jobs.values(), *self._inbox]
        self._forget_jobs()
        for job in jobs:
            if not job.finished:
                job.fail(reason, dropped=True)

    def _forget_jobs(self) -> None:
        self._inbox.clear()
        self._jobs.clear()
        self._queue.drain()
        self._waiting, self._running = [], None

    def _recover(self) -> None:
        """Something was interrupted half way: end the process, and begin anew with what is not finished."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
        jobs = [job for job in self._jobs.values() if not job.finished]
        inbox = list(self._inbox)
        self._forget_jobs()
        for job in jobs:
            job.state = "queued"
        self._inbox.extend([*jobs, *inbox])

    # -- the state machine ------------------------------------------------------------------------------------

    def _advance(self, deadline: float) -> bool:
        while self._inbox:
            new = self._inbox[0]
            self._jobs[id(new)] = new
            self._queue.push(new)
            self._inbox.popleft()
        finished = self._listen(deadline)
        if finished:
            self._jobs = {key: job for key, job in self._jobs.items() if not job.finished}
        if self._running is None:
            finished |= self._dispatch()
        return finished

    def _listen(self, deadline: float) -> bool:
        process = self._process
        if process is None:
            return False
        frames, end = process.receive(deadline)
        finished = False
        for frame in frames:
            try:
                finished |= self._understand(process, frame)
            except (ProtocolError, KeyError, TypeError, ValueError) as error:
                end = f"it sent garbage: {error}"
                break
        now = time.monotonic()
        if end is None and process.introduction is None and now > process.started + START_S:
            end = f"it did not say hello in {START_S:.0f} s"
        if end is None and self._running is not None and now > self._deadline:
            end = f"it took longer than {self._running.budget_ms / 1e3:.3g} s"
        if end is not None:
            finished |= self._lose(process, end)
        return finished

    def _understand(self, process: ChildProcess, frame: Frame) -> bool:
        if frame.kind is Kind.HELLO:
            self.introduction = process.introduction = dict(frame.value())
            self._start_failures = 0
            return False
        job = self._running
        if job is None or frame.nonce != job.nonce:
            raise ProtocolError("an answer to a question nobody asked")
        value = frame.value()
        if frame.kind is Kind.PROGRESS:
            job.stage = str(value)
            return False
        if frame.kind is Kind.RESULT:
            self._running = None
            job.succeed(value)
            return True
        if frame.kind is not Kind.FAILURE:
            raise ProtocolError(f"a frame of kind {frame.kind.name}")
        reason = str(value["reason"])
        self._running = None
        if value.get("again") and job.lose(reason):
            self._queue.push(job, front=True)
            return False
        if not job.finished:
            job.details = {k: value.get(k) for k in ("kind", "stage", "details", "traceback") if value.get(k)}
            job.fail(reason)
        return True

    def _lose(self, process: ChildProcess, reason: str) -> bool:
        """The process is of no more use."""
        ready = process.introduction is not None
        self._process = None
        process.kill()
        job, self._running = self._running, None
        if ready and job is None:
            return False  # it idled long enough
        self.lost.append(reason)
        if not ready:
            self._start_failures += 1
            if self._start_failures >= MAX_START_FAILURES:
                return self._give_up(f"the compile worker does not start: {reason}")
            return False
        assert job is not None
        if job.lose(reason):
            self._queue.push(job, front=True)
            return False
        return True

    def _give_up(self, reason: str) -> bool:
        self.unavailable = reason
        jobs = [*self._jobs.values(), *self._inbox]
        self._forget_jobs()
        for job in jobs:
            if not job.finished:
                job.fail(reason)
        return bool(jobs)

    def _dispatch(self) -> bool:
        finished = False
        waiting, self._waiting = self._waiting, []
        for old in reversed(waiting):
            self._queue.push(old, front=True)
        while (job := self._queue.pop()) is not None:
            go = self._before(job)
            if job.finished:
                finished = True
                continue
            if not go:
                self._waiting.append(job)
                continue
            if self._process is None and not self._begin():
                return True
            assert self._process is not None
            if self._process.introduction is None:
                self._queue.push(job, front=True)
                break
            finished |= self._give(self._process, job)
            if self._running is not None:
                break
        return finished

    def _give(self, process: ChildProcess, job: Job) -> bool:
        job.start()
        value = {
            "job": job.name, "payload": job.payload, "budget_ms": job.budget_ms, "memory_bytes": job.memory_bytes,
        }  # fmt: skip
        try:
            frame = pack(Kind.JOB, job.nonce, encode(value))
        except ProtocolError as error:
            job.fail(str(error))
            return True
        self._running = job
        self._deadline = time.monotonic() + job.budget_ms / 1e3
        process.send_packed(frame)
        return False

    def _begin(self) -> bool:
        self._hello["duty"] = worker_duty() if self._duty is None else self._duty
        try:
            self._process = self._start(self._hello)
        except Unavailable as error:
            self._give_up(str(error))
            return False
        self.starts += 1
        return True

    def _sleep(self, seconds: float) -> None:
        """Wait for the process to say something."""
        process = self._process
        number = -1 if process is None else process.fileno()
        if process is None or number < 0:
            time.sleep(min(seconds, 0.002))
            return
        poller = select.poll()
        poller.register(number, select.POLLIN | (select.POLLOUT if process.wants_to_write else 0))
        poller.poll(seconds * 1e3)


class _JobReporter(jobs.Reporter):
    """Notes stages in the job itself."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def stage(self, name: str) -> None:
        self._job.stage = name


class ThreadWorker:
    """Jobs by a thread of this process; the same methods as `Worker`. Budgets cannot be enforced here."""

    def __init__(self, *, before: Callable[[Job], bool] = lambda job: True) -> None:
        self._before = before
        self._queue = JobQueue()
        self._condition = threading.Condition()
        self._waiting: list[Job] = []
        self._running: Job | None = None
        self._finished = False
        self._thread: threading.Thread | None = None
        self._stopping = False
        self.introduction: dict[str, Any] | None = None
        self.unavailable: str | None = None
        self.starts = 0
        self.lost: deque[str] = deque(maxlen=16)
        self.pid: int | None = os.getpid()
        _threads.add(self)

    def submit(self, name: str, payload: Any, *, budget_ms: float = 30_000.0, priority: int = 0) -> Job:
        """Queue a job."""
        job = Job(name, payload, budget_ms, priority)
        self.add(job)
        return job

    def add(self, job: Job) -> None:
        """Queue a job that is made already."""
        with self._condition:
            self._waiting.append(job)

    @property
    def pending(self) -> int:
        """Jobs that are not finished."""
        with self._condition:
            return len(self._queue) + len(self._waiting) + (self._running is not None)

    def poll(self, budget_s: float = POLL_S) -> bool:
        """Give jobs to the thread; true if one has finished since the last poll."""
        del budget_s
        with self._condition:
            waiting, self._waiting = self._waiting, []
            for job in waiting:
                if self._before(job) and not job.finished:
                    self._queue.push(job)
                elif not job.finished:
                    self._waiting.append(job)
                else:
                    self._finished = True
            if len(self._queue) and self._thread is None:
                self.start()
            self._condition.notify_all()
            finished, self._finished = self._finished, False
        return finished

    def wait(self, timeout: float | None = None, job: Job | None = None) -> bool:
        """Wait until a job (or all) is finished; false if it is not in time."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            self.poll()
            if self.pending == 0 if job is None else job.finished:
                return True
            if end is not None and time.monotonic() >= end:
                return False
            with self._condition:
                self._condition.wait(0.01 if end is None else max(0.0, min(0.01, end - time.monotonic())))

    def start(self) -> None:
        """Start the thread."""
        with self._condition:
            if self._thread is None:
                self._stopping = False
                self._thread = threading.Thread(target=self._serve, name="tiercel-compile", daemon=True)
                self._thread.start()
                self.starts += 1

    def shutdown(self) -> None:
        """Let the thread end after the job it is at, for which this waits a little; the others fail as dropped."""
        with self._condition:
            self._stopping = True
            self._drop("the compile worker was shut down")
            thread, self._thread = self._thread, None
            self._condition.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_S)

    def abandon(self) -> None:
        """In a forked child: threads do not come along."""
        self._condition = threading.Condition()
        self._thread = None
        running, self._running = self._running, None
        if running is not None:
            running.fail("the process was forked while this was compiled", dropped=True)
        self._drop("the process was forked while this was compiled")

    def _drop(self, reason: str) -> None:
        jobs = [*self._queue.drain(), *self._waiting]
        self._waiting = []
        for job in jobs:
            job.fail(reason, dropped=True)

    def _serve(self) -> None:
        me = threading.current_thread()
        if self.introduction is None:
            self.introduction = jobs.introduce({"bare": False})
        while True:
            with self._condition:
                while (job := self._queue.pop()) is None:
                    if self._stopping or self._thread is not me:
                        return
                    self._condition.wait(1.0)
                job.start()
                self._running = job
            self._do(job)
            with self._condition:
                self._running, self._finished = None, True
                self._condition.notify_all()

    @staticmethod
    def _do(job: Job) -> None:
        try:
            result = jobs.run(job.name, job.payload, _JobReporter(job))
        except jobs.Refused as error:
            job.details = {k: v for k, v in error.to_data().items() if k in ("kind", "stage", "details") and v}
            job.fail(error.reason)
        except Exception as error:  # noqa: BLE001 - as in the process: whatever it is, the job has failed
            job.details = {"kind": "bug"}
            job.fail(f"{type(error).__name__}: {error}")
        else:
            job.succeed(result)


_threads: weakref.WeakSet[ThreadWorker] = weakref.WeakSet()


def _all() -> list[Worker | ThreadWorker]:
    return [*_workers, *_threads]


def _after_fork() -> None:
    for worker in _all():
        worker.abandon()


def _at_exit() -> None:
    for worker in _all():
        worker.shutdown()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
