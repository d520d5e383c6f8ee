"""Jobs that wait for a worker: the urgent ones first, equal ones in the order they came.

In: jobs. Out: the next one. A job is plain state; whoever holds it may look at it at any time.
"""

from __future__ import annotations

import heapq
import itertools
import os
from dataclasses import dataclass, field
from typing import Any, Final, Literal

__all__ = ["MAX_ATTEMPTS", "Job", "JobQueue", "JobState"]

MAX_ATTEMPTS: Final = 3
"""The first try, and at most two more in fresh workers."""

JobState = Literal["queued", "running", "done", "failed"]


@dataclass(eq=False)
class Job:
    """Something for a worker to do.

    Attributes:
        name: of the function in `jobs`.
        payload: its argument, plain data.
        budget_ms: time it may take before its worker is killed.
        priority: smaller is sooner.
        memory_bytes: how much more address space than now the worker may use for it.
        state: "queued", "running", "done" (see `result`) or "failed" (see `reason`).
        stage: what the worker said last that it was doing.
        attempts: why each attempt that did not finish ended.
        details: what a refusal came with: `kind`, `stage`, `details`, `traceback`.
        dropped: it failed only because the process forked or shut down; it may be submitted again.
    """

    name: str
    payload: Any
    budget_ms: float = 30_000.0
    priority: int = 0
    memory_bytes: int = 2 << 30
    state: JobState = "queued"
    result: Any = None
    reason: str | None = None
    stage: str = ""
    attempts: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    dropped: bool = False
    nonce: int = 0

    @property
    def finished(self) -> bool:
        """Is there nothing more to wait for?"""
        return self.state in ("done", "failed")

    def start(self) -> None:
        """An attempt begins; its replies carry a new nonce, so that late ones of an earlier attempt are recognised."""
        self.state, self.nonce, self.stage = "running", int.from_bytes(os.urandom(8), "little") >> 1 | 1, ""

    def succeed(self, result: Any) -> None:
        """It is done."""
        self.state, self.result, self.payload = "done", result, None

    def fail(self, reason: str, *, dropped: bool = False) -> None:
        """It will not be done."""
        self.state, self.reason, self.payload, self.dropped = "failed", reason, None, dropped

    def lose(self, reason: str) -> bool:
        """An attempt ended without an answer; returns whether there is to be another one."""
        where = f" in stage {self.stage}" if self.stage else ""
        self.attempts.append(f"{reason}{where}")
        if len(self.attempts) < MAX_ATTEMPTS:
            self.state = "queued"
            return True
        tries = "; ".join(f"{i}. {text}" for i, text in enumerate(self.attempts, 1))
        self.fail(f"the worker ended {len(self.attempts)} times: {tries}")
        return False


class JobQueue:
    """A queue by priority. Not locked: its owner does that."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Job]] = []
        self._order = itertools.count()
        self._front = itertools.count(-1, -1)

    def __len__(self) -> int:
        return sum(not job.finished for _, _, job in self._heap)

    def push(self, job: Job, *, front: bool = False) -> None:
        """Add a job, behind or before those of its priority."""
        heapq.heappush(self._heap, (job.priority, next(self._front if front else self._order), job))

    def pop(self) -> Job | None:
        """Take the next job that is still wanted."""
        while self._heap:
            job = heapq.heappop(self._heap)[2]
            if not job.finished:
                return job
        return None

    def drain(self) -> list[Job]:
        """Take all."""
        jobs = [job for _, _, job in sorted(self._heap, key=lambda entry: entry[:2])]
        self._heap.clear()
        return jobs
