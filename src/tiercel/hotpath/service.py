"""Compiling as the virtual machine sees it: hand in a region, look again later, map the kernel.

In: a region graph and what it was lowered to. Out: a `Ticket`, which becomes done (a blob of machine code, its
certificate, what each stage took) or failed (with the reason). The service is one per process and made when first
asked for; the setting `worker` says whether a process, a thread or nothing compiles.

Invariant: `submit` and `poll` never wait. What `submit` costs is writing the region down as plain data, a third of a
millisecond for a usual one.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tiercel import config
from tiercel.codegen.blob import Blob, BlobError, Mapped, map_blob
from tiercel.codegen.cpu.names import CORE, PIECES
from tiercel.codegen.pieces import Library, needed_pieces, versions
from tiercel.compiler.graph import Region
from tiercel.compiler.lower import Lowered
from tiercel.config.digest import blake2b
from tiercel.hotpath.cache import BuildLock, KernelCache, environment_key, kernel_key, tuning_key
from tiercel.hotpath.plant import VARIABLE
from tiercel.hotpath.protocol import encode
from tiercel.hotpath.queue import Job
from tiercel.hotpath.wire import TableWriter, WireError
from tiercel.hotpath.worker import POLL_S, ThreadWorker, Worker
from tiercel.tuner.winners import read_winners

__all__ = ["CompileService", "Ticket", "TicketState", "service", "worker_busy"]

TicketState = Literal["queued", "running", "done", "failed"]
BUDGET_MS: Final = 30_000.0
_ASK_AGAIN_S: Final = 0.01
_START_S: Final = 0.4
"""What a worker takes to load its modules."""
_TUNING: Final = 2
"""The priority of measuring: behind everything that is compiled."""
_WAIT_FOR_OTHERS_S: Final = 60.0
"""Until a process builds what another one has been building all the time."""


@dataclass(eq=False)
class Ticket:
    """One region on its way to machine code.

    Attributes:
        key: what the caller calls it.
        name: of the region.
        content: hash of the loop nest and its interface: equal for equal kernels, in every process.
        state: "queued", "running", "done" or "failed".
        reason: why it failed, for people.
        kind: of a failure: "unsupported" (no machine code for this), "invalid" (the kernel computes something else),
            "unchecked" (that could not be found out), "worker" (it died), "bug" (of ours: `details["traceback"]`),
            "off", "dropped" (the process forked or shut down; submit again).
        blob: the machine code, once done. Entries: the name of the function, and that name with `.arena`.
        certificate: what validation found, plain data; None where none was asked for.
        times_ms: by stage: encode, decode, emit, codegen, link, validate, and what the caller said of trace and lower.
        from_cache: it was compiled before.
        widths: how packed operands are packed, see `packed_as`.
        quick: it is code that was to come soon and could be better; ask again without `quick` for that.
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
    widths: dict[str, int] = field(default_factory=dict)
    quick: bool = False
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
    """A job, everybody who waits for it, and the right to build it among the processes of this machine."""

    job: Job
    tickets: list[Ticket]
    key: bytes
    quick_key: bytes | None = None  # where quick code is wanted: its key, while `key` is that of better code
    keep: bool = True
    lock: BuildLock | None = None
    asked: float = 0.0
    first_asked: float = 0.0


class CompileService:
    """See the module docstring.

    Args:
        mode: "process", "thread" or "off"; by default what the setting `worker` says at each `submit`.
        cache: where kernels are kept; by default what the settings `cache_dir` and `cache_size` say.
        report: told about what is wrong with the cache, once about each thing.
    """

    def __init__(
        self,
        mode: str | None = None,
        *,
        cache: KernelCache | None = None,
        report: Callable[[str], None] = config.logger.warning,
    ) -> None:
        self._mode = mode
        self._given_cache = cache
        self._report = report
        self._caches: dict[tuple[str | None, int], KernelCache] = {}
        self._workers: dict[str, Worker | ThreadWorker] = {}
        self._builds: dict[tuple[bytes, bool], _Build] = {}
        self._lock = threading.Lock()
        self.library = Library(self._piece)
        self._pieces: dict[str, bytes] = {}
        self._starting_until = 0.0
        self._winners: Mapping[str, dict[str, Any]] | None = None
        self.frozen = False
        _services.add(self)

    @property
    def cache(self) -> KernelCache:
        """Where kernels are kept."""
        if self._given_cache is not None:
            return self._given_cache
        settings = config.current()
        asked = (settings.cache_dir, settings.cache_size)
        found = self._caches.get(asked)
        if found is None:
            found = self._caches[asked] = KernelCache(*asked, report=self._report)
        return found

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
        quick: bool = False,
        choices: Mapping[int, Any] | None = None,
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
            quick: whether the kernel is wanted soon rather than as fast as it can be (see `assemble.QUICK`). What it
                computes is the same to the bit.
            choices: how its products are carried out, by their number, plain data (`codegen.cpu.choice`); the same to
                the bit, too.
        """
        began = time.perf_counter()
        times = dict(times_ms or {})
        mode = self.mode
        name = lowered.function.name
        writer = TableWriter()
        try:
            writer.add(lowered.function)
            writer.add(lowered.interface)
        except WireError as error:
            return Ticket(key, name, b"", "failed", str(error), "unsupported", times_ms=times)
        chosen = sorted([number, data] for number, data in (choices or {}).items())
        content = blake2b(encode([*writer.records, chosen] if chosen else writer.records), digest_size=24).digest()
        ticket = Ticket(key, name, content, times_ms=times)
        ticket.times_ms["encode"] = (time.perf_counter() - began) * 1e3
        if mode == "off" or self.frozen:
            ticket.state, ticket.kind = "failed", "off"
            ticket.reason = "compiling is off (the setting worker)" if mode == "off" else "compiling is frozen"
            return ticket
        build = self._builds.get((content, quick))
        if build is not None and not build.job.finished:
            build.tickets.append(ticket)
            return ticket
        planted = os.environ.get(VARIABLE, "")
        began = time.perf_counter()
        cache_key = kernel_key(content, planted.encode())
        quick_key = kernel_key(content, planted.encode(), b"quick") if quick else None
        answer = None if planted else self._kept(cache_key)
        if answer is None and quick_key is not None and not planted:
            answer = self._kept(quick_key, quick=True)
            ticket.quick = answer is not None
        ticket.times_ms["cache"] = (time.perf_counter() - began) * 1e3
        if answer is not None:
            ticket.from_cache = True
            self._answer(ticket, answer)
            return ticket
        began = time.perf_counter()
        try:
            writer.add(region)
            writer.add((lowered.function, lowered.interface, region))
        except WireError as error:
            ticket.state, ticket.reason, ticket.kind = "failed", str(error), "unsupported"
            return ticket
        ticket.times_ms["encode"] += (time.perf_counter() - began) * 1e3
        payload = {
            "table": writer.records, "pieces": self._known(), "hints": dict(hints or {}), "plant": planted,
            "quick": quick, "choices": chosen,
        }  # fmt: skip
        job = Job("build", payload, budget_ms, priority)
        self._builds[content, quick] = _Build(job, [ticket], cache_key, quick_key, keep=not planted)
        self.worker(mode).add(job)  # sent by the next `poll`
        return ticket

    def tune(self, demands: list[Any], budget_ms: float) -> Job | None:
        """Ask for products to be measured; None where nothing can be.

        Args:
            demands: see `tuner.session.Demand`, plain data.
            budget_ms: time for measuring.

        Returns:
            A job whose result is that of `jobs.tune`; give it to `tuned` when it is done.
        """
        mode = self.mode
        if mode == "off" or self.frozen:
            return None
        folder = self.cache.folder if self.cache.place in ("disk", "temporary") else None
        payload = {
            "demands": demands, "budget_ms": budget_ms, "folder": None if folder is None else str(folder),
            "key": tuning_key(), "pieces": self._known(),
        }  # fmt: skip
        job = Job("tune", payload, BUDGET_MS + budget_ms, priority=_TUNING)
        self.worker(mode).add(job)
        return job

    def tuned(self, job: Job) -> dict[str, Any]:
        """What came of measuring: see `jobs.tune`. Keeps what else the worker made, reports what it said."""
        answer: dict[str, Any] = job.result
        for piece, code in answer["pieces"].items():
            Blob.from_bytes(code)
            self._pieces[piece] = code
            self.cache.put(_piece_key(piece), {"name": f"runtime library: {piece}", "made": time.time()}, code)
        for message in answer["messages"]:
            self._report(message)
        self._winners = None
        return answer

    def winners(self) -> Mapping[str, dict[str, Any]]:
        """How products are carried out here, as measured by any process of this machine; see `Tuned.to_data`."""
        found = self._winners
        if found is None:
            folder = self.cache.folder
            found = self._winners = {} if folder is None else read_winners(folder, tuning_key(), self._report)
        return found

    def worker(self, mode: str | None = None) -> Worker | ThreadWorker:
        """The worker of a mode."""
        mode = mode or self.mode
        found = self._workers.get(mode)
        if found is None:
            made = Worker(before=self._may_build) if mode == "process" else ThreadWorker(before=self._may_build)
            found = self._workers.setdefault(mode, made)
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

    def prepare(self) -> None:
        """Do now what the first `submit` would do besides: find the cache, read versions and processor (5 to 10 ms)."""
        environment_key()
        self.cache  # noqa: B018 - opened by looking at it

    def status(self) -> dict[str, Any]:
        """What is going on, as plain data: mode, worker, cache."""
        worker = self._workers.get(self.mode)
        about: dict[str, Any] = {"state": "not started"}
        if worker is not None:
            about = {
                "state": "off" if worker.unavailable else "running" if worker.pid else "not running",
                "pid": worker.pid, "starts": worker.starts, "reason": worker.unavailable, "lost": list(worker.lost),
                "about": worker.introduction,
            }  # fmt: skip
        return {"mode": self.mode, "pending": self.pending, "worker": about, "cache": self.cache.stats()}

    def expect(self) -> None:
        """A kernel will probably be asked for soon: start the worker, if nothing can be in the cache.

        It takes a quarter of a second until it can do something. Where the core of the runtime library is in the cache,
        kernels may be, too, and no worker be needed.
        """
        if self.mode != "process" or self.frozen or self._piece(CORE) is not None:
            return
        worker = self.worker("process")
        if worker.pid is None and worker.unavailable is None:
            worker.start()
            self._starting_until = time.monotonic() + _START_S

    @property
    def starting(self) -> bool:
        """Whether a worker that nobody has asked for anything is probably loading its modules."""
        if self._starting_until and time.monotonic() > self._starting_until:
            self._starting_until = 0.0
        return bool(self._starting_until)

    @property
    def pending(self) -> int:
        """Tickets that are not finished."""
        return sum(len(build.tickets) for build in list(self._builds.values()))

    def imports(self, blob: Blob, *, quick: bool = False) -> dict[str, int]:
        """The addresses of what a blob imports; if `quick`, of quick versions where there are no others.

        Raises:
            BlobError: a name that nobody has. OSError: a piece of the runtime library cannot be mapped.
        """
        return {name: self.library.address(name, quick=quick) for name in blob.imports}

    def load(self, ticket: Ticket) -> Mapped:
        """Map the kernel of a ticket that is done into this process.

        Raises:
            BlobError, OSError: it cannot be mapped.
        """
        if ticket.blob is None:
            raise BlobError(f"{ticket.name} has no machine code: {ticket.reason or ticket.state}")
        return map_blob(ticket.blob, self.imports(ticket.blob, quick=ticket.quick))

    def shutdown(self) -> None:
        """End the worker; what is not finished fails as dropped. A later `submit` starts a new one."""
        for worker in list(self._workers.values()):
            worker.shutdown()
        self._settle()

    # -- the cache --------------------------------------------------------------------------------------------

    def _piece(self, piece: str) -> bytes | None:
        """A version of a piece of the runtime library, where it was ever made on this machine."""
        found = self._pieces.get(piece)
        if found is None:
            entry = self.cache.get(_piece_key(piece))
            if entry is not None:
                found = self._pieces[piece] = entry.blob
        return found

    def _known(self) -> dict[str, bytes]:
        """The pieces that are here, for a worker: it need not make them, nor send them."""
        names = [version for piece in PIECES for version in versions(piece, quick=True)]
        return {version: raw for version in names if (raw := self._piece(version)) is not None}

    def _kept(self, key: bytes, *, quick: bool = False) -> dict[str, Any] | None:
        """The answer of a worker that was kept, if it can be used; of quick code if `quick`."""
        entry = self.cache.get(key)
        if entry is None:
            return None
        if entry.data.get("refused"):
            return {"refused": entry.data["refused"]}
        try:
            blob = Blob.from_bytes(entry.blob)
            for piece in needed_pieces(blob.imports):
                if all(self._piece(version) is None for version in versions(piece, quick=quick)):
                    return None  # building again brings it along
            return {**entry.data["answer"], "blob": blob}
        except (BlobError, KeyError, TypeError):
            self.cache.drop(key)
            return None

    def _may_build(self, job: Job) -> bool:
        """Before a job goes to the worker: only one process of this machine builds a key, the others wait for it."""
        build = next((b for b in list(self._builds.values()) if b.job is job), None)
        if build is None or build.lock is not None:
            return True
        now = time.monotonic()
        if now - build.asked < _ASK_AGAIN_S:
            return False
        build.asked = now
        build.first_asked = build.first_asked or now
        build.lock = self.cache.lock(build.quick_key or build.key)
        if build.first_asked < now:  # somebody else was building: perhaps the result is there
            for key in (build.key, build.quick_key):
                answer = None if key is None else self._kept(key, quick=key is not build.key)
                if answer is not None:
                    self._release(build)
                    job.succeed({**answer, "from_cache": True, "quick": key is not build.key})
                    return False
        return build.lock is not None or now - build.first_asked > _WAIT_FOR_OTHERS_S

    @staticmethod
    def _release(build: _Build) -> None:
        lock, build.lock = build.lock, None
        if lock is not None:
            lock.release()

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
        answer: dict[str, Any] = {}
        if job.state == "done":
            answer = job.result
            if not answer.get("from_cache"):
                try:
                    answer = self._keep(build, answer)
                except (BlobError, KeyError, TypeError) as error:
                    job.fail(f"the worker's answer is no kernel: {error}")
        elif build.keep and job.details.get("kind") in ("invalid", "unsupported"):
            # It would be refused again: nobody needs to try this kernel once more.
            refused = {"reason": job.reason, **job.details}
            key = build.quick_key or build.key
            self.cache.put(key, {"refused": refused, "name": build.tickets[0].name, "made": time.time()}, b"")
        self._release(build)
        for ticket in build.tickets:
            ticket.attempts = tuple(job.attempts)
            ticket.from_cache, ticket.quick = bool(answer.get("from_cache")), bool(answer.get("quick"))
            if job.state == "done":
                self._answer(ticket, answer)
                continue
            ticket.reason, ticket.details = job.reason, job.details
            ticket.kind = "dropped" if job.dropped else job.details.get("kind", "worker")
            ticket.state = "failed"

    def _keep(self, build: _Build, result: dict[str, Any]) -> dict[str, Any]:
        """Put a worker's answer into the cache; returns it with the blob read."""
        raw, pieces = result["blob"], result["pieces"]
        answer = {
            "times_ms": dict(result["times_ms"]), "certificate": result["certificate"], "widths": result["widths"],
        }  # fmt: skip
        quick = bool(result.get("quick"))
        blob = Blob.from_bytes(raw)
        for piece, code in pieces.items():
            Blob.from_bytes(code)
            self._pieces[piece] = code
            self.cache.put(_piece_key(piece), {"name": f"runtime library: {piece}", "made": time.time()}, code)
        ticket = build.tickets[0]
        if build.keep:
            key = build.quick_key if quick and build.quick_key else build.key
            self.cache.put(key, {"answer": answer, "name": ticket.name, "made": time.time()}, raw)
            if not quick:
                self.cache.drop(kernel_key(ticket.content, b"", b"quick"))
        return {**answer, "blob": blob, "quick": quick}

    @staticmethod
    def _answer(ticket: Ticket, answer: dict[str, Any]) -> None:
        """Give a ticket what a worker answered, now or earlier."""
        refused = answer.get("refused")
        if refused is not None:
            ticket.reason, ticket.kind, ticket.state = refused["reason"], refused.get("kind", "unsupported"), "failed"
            ticket.details = refused
            return
        if not ticket.from_cache:
            ticket.times_ms.update(answer["times_ms"])
        ticket.blob, ticket.certificate, ticket.widths = answer["blob"], answer["certificate"], answer["widths"]
        ticket.state = "done"

    def _after_fork(self) -> None:
        """In a forked child: locks held by other threads, and builds that are the parent's."""
        self._lock = threading.Lock()
        for build in self._builds.values():
            for ticket in build.tickets:
                if not ticket.finished:
                    ticket.state, ticket.kind = "failed", "dropped"
                    ticket.reason = "the process was forked while this was compiled"
            self._release(build)
        self._builds.clear()


def _piece_key(piece: str) -> bytes:
    return kernel_key(b"runtime library", piece.encode())


_services: weakref.WeakSet[CompileService] = weakref.WeakSet()


def _after_fork() -> None:
    for one in list(_services):
        one._after_fork()


os.register_at_fork(after_in_child=_after_fork)

_service: CompileService | None = None


def worker_busy() -> bool:
    """Whether a worker process of this one computes, or is about to; for the way of every interpreted call."""
    return _service is not None and (bool(_service._builds) or _service.starting)


def service() -> CompileService:
    """The service of this process."""
    global _service
    if _service is None:
        _service = CompileService()
    return _service
