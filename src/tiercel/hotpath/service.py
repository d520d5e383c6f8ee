"""Compiling as the virtual machine sees it: hand in a region, look again later, map the kernel.

In: a region graph and what it was lowered to. Out: a `Ticket`, which becomes done (a blob of machine code, its
certificate, what each stage took) or failed (with the reason). The service is one per process and made when first
asked for; the setting `worker` says whether a process, a thread or nothing compiles.

Invariant: `submit` and `poll` never wait. What `submit` costs is writing the region down as plain data, a third of a
millisecond for a usual one.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tiercel import config
from tiercel.codegen.blob import Blob, BlobError, Mapped, map_blob
from tiercel.compiler.graph import Region
from tiercel.compiler.lower import Lowered
from tiercel.hotpath.protocol import encode
from tiercel.hotpath.queue import Job
from tiercel.hotpath.wire import WireError, to_table
from tiercel.hotpath.worker import POLL_S, ThreadWorker, Worker

__all__ = ["CompileService", "Ticket", "TicketState", "service"]

TicketState = Literal["queued", "running", "done", "failed"]
BUDGET_MS: Final = 30_000.0


@dataclass(eq=False)
class Ticket:
    """One region on its way to machine code.

    Attributes:
        key: what the caller calls it.
        name: of the region.
        content: hash of the loop nest and its interface: equal for equal kernels, in every process.
        state: "queued", "running", "done" or "failed".
        reason: why it failed, for people.
        kind: of a failure: "unsupported", "invalid" (the kernel computes something else), "worker" (it died), "off",
            "dropped" (the process forked or shut down; submit again).
        blob: the machine code, once done. Entries: the name of the function, and that name with `.arena`.
        certificate: what validation found, plain data; None where none was asked for.
        times_ms: by stage: encode, decode, emit, codegen, link, validate, and what the caller said of trace and lower.
        from_cache: it was compiled before.
        attempts: why earlier attempts ended.
    """

    key: Any
    name: str
    content: bytes
    state: TicketState = "queued"
    reason: str | None = None
    kind: str = ""
    blob: Blob | None = None
    certificate: Mapping[str, Any] | None = None
    times_ms: dict[str, float] = field(default_factory=dict)
    from_cache: bool = False
    attempts: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Is there nothing more to wait for?"""
        return self.state in ("done", "failed")

    @property
    def dropped(self) -> bool:
        """Did it fail only because the process forked or shut down?"""
        return self.kind == "dropped"


@dataclass(eq=False)
class _Build:
    """A job, and everybody who waits for it."""

    job: Job
    tickets: list[Ticket]


class CompileService:
    """See the module docstring.

    Args:
        mode: "process", "thread" or "off"; by default what the setting `worker` says at each `submit`.
    """

    def __init__(self, mode: str | None = None) -> None:
        self._mode = mode
        self._workers: dict[str, Worker | ThreadWorker] = {}
        self._builds: dict[bytes, _Build] = {}
        self._lock = threading.Lock()
        self._library: Mapped | None = None
        self._library_blob: bytes | None = None

    @property
    def mode(self) -> str:
        """Where compiling happens now."""
        return self._mode or config.current().worker

    def submit(
        self,
        key: Any,
        region: Region | None,
        lowered: Lowered,
        *,
        hints: Mapping[str, Any] | None = None,
        times_ms: Mapping[str, float] | None = None,
        priority: int = 0,
        budget_ms: float = BUDGET_MS,
    ) -> Ticket:
        """Ask for a kernel.

        Args:
            key: anything; the ticket carries it.
            region: the graph that says what is right; without it the kernel is not validated.
            lowered: what it was lowered to.
            hints: see `validate.Hints`: sizes seen, scalars sampled.
            times_ms: what earlier stages took, to be reported with the others.
            priority: smaller is sooner.
            budget_ms: time the worker may take.
        """
        began = time.perf_counter()
        times = dict(times_ms or {})
        mode = self.mode
        name = lowered.function.name
        try:
            identity = encode(to_table((lowered.function, lowered.interface)))
            table = to_table((lowered.function, lowered.interface, region))
        except WireError as error:
            return Ticket(key, name, b"", "failed", str(error), "unsupported", times_ms=times)
        content = hashlib.blake2b(identity, digest_size=24).digest()
        ticket = Ticket(key, name, content, times_ms=times)
        ticket.times_ms["encode"] = (time.perf_counter() - began) * 1e3
        if mode == "off":
            ticket.state, ticket.kind = "failed", "off"
            ticket.reason = "compiling is off (the setting worker)"
            return ticket
        build = self._builds.get(content)
        if build is not None and not build.job.finished:
            build.tickets.append(ticket)
            return ticket
        payload = {"table": table, "library": self._library_blob is not None, "hints": dict(hints or {})}
        job = Job("build", payload, budget_ms, priority)
        self._builds[content] = _Build(job, [ticket])
        self.worker(mode).add(job)
        self.poll()
        return ticket

    def worker(self, mode: str | None = None) -> Worker | ThreadWorker:
        """The worker of a mode."""
        mode = mode or self.mode
        found = self._workers.get(mode)
        if found is None:
            found = self._workers.setdefault(mode, Worker() if mode == "process" else ThreadWorker())
        return found

    def poll(self, budget_s: float = POLL_S) -> bool:
        """Do what can be done without waiting; true if a ticket finished. For slow paths."""
        for worker in list(self._workers.values()):
            worker.poll(budget_s)
        return self._settle()

    def wait(self, timeout: float | None = None, ticket: Ticket | None = None) -> bool:
        """Wait until a ticket (or all) is finished; false if it is not in time."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            self.poll(0.05)
            if not self.pending if ticket is None else ticket.finished:
                return True
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return False
            for worker in list(self._workers.values()):
                if worker.pending:
                    job = next((b.job for b in self._builds.values() if ticket is None or ticket in b.tickets), None)
                    worker.wait(0.25 if left is None else min(0.25, left), job)

    @property
    def pending(self) -> int:
        """Tickets that are not finished."""
        return sum(len(build.tickets) for build in list(self._builds.values()))

    def library(self) -> Mapped | None:
        """The runtime library (products, thread pool), mapped into this process on first need, for good.

        None until a first kernel has come, which brings it along.

        Raises:
            BlobError, OSError: it cannot be mapped.
        """
        if self._library is None and self._library_blob is not None:
            blob = Blob.from_bytes(self._library_blob)
            libc = ctypes.CDLL(None)
            needed = {name: ctypes.cast(libc[name], ctypes.c_void_p).value or 0 for name in blob.imports}
            self._library = map_blob(blob, needed)
        return self._library

    def imports(self, blob: Blob) -> dict[str, int]:
        """The addresses of what a blob imports.

        Raises:
            BlobError: a name that nobody has.
        """
        if not blob.imports:
            return {}
        library = self.library()
        if library is None:
            raise BlobError("the runtime library is not here")
        return {name: library.address(name) for name in blob.imports}

    def load(self, ticket: Ticket) -> Mapped:
        """Map the kernel of a ticket that is done into this process.

        Raises:
            BlobError, OSError: it cannot be mapped.
        """
        if ticket.blob is None:
            raise BlobError(f"{ticket.name} has no machine code: {ticket.reason or ticket.state}")
        return map_blob(ticket.blob, self.imports(ticket.blob))

    def shutdown(self) -> None:
        """End the worker; what is not finished fails as dropped. A later `submit` starts a new one."""
        for worker in list(self._workers.values()):
            worker.shutdown()
        self._settle()

    # -- results ----------------------------------------------------------------------------------------------

    def _settle(self) -> bool:
        """Hand finished jobs to their tickets."""
        if not self._builds or not self._lock.acquire(blocking=False):
            return False
        try:
            finished = False
            for content, build in list(self._builds.items()):
                if not build.job.finished:
                    for ticket in build.tickets:
                        ticket.state = "running" if build.job.state == "running" else "queued"
                    continue
                self._finish(build)
                del self._builds[content]
                finished = True
            return finished
        finally:
            self._lock.release()

    def _finish(self, build: _Build) -> None:
        job = build.job
        blob: Blob | None = None
        if job.state == "done":
            try:
                blob = Blob.from_bytes(job.result["blob"])
                if job.result.get("library") is not None:
                    self._library_blob = job.result["library"]
            except (BlobError, KeyError, TypeError) as error:
                job.fail(f"the worker's answer is no kernel: {error}")
        for ticket in build.tickets:
            ticket.attempts = tuple(job.attempts)
            if job.state == "done":
                ticket.times_ms.update(job.result["times_ms"])
                ticket.blob, ticket.certificate, ticket.state = blob, job.result["certificate"], "done"
                continue
            ticket.reason, ticket.details = job.reason, job.details
            ticket.kind = "dropped" if job.dropped else job.details.get("kind", "worker")
            ticket.state = "failed"


_service: CompileService | None = None


def service() -> CompileService:
    """The service of this process."""
    global _service
    if _service is None:
        _service = CompileService()
    return _service
