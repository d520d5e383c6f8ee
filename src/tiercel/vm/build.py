"""From the compile service to entries: maps what it built, and makes what all entries of the process share.

In: lowered regions. Out: a `Builder` for `dispatch.Tiers`. The runtime library comes with the first kernel; the thread
pool is made when a first entry is, and made anew in a forked child when it first calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Mapping
from typing import Any, Final

from tiercel.codegen.blob import BlobError
from tiercel.codegen.cpu.names import CALL, pack_name
from tiercel.codegen.cpu.stub import STUB
from tiercel.codegen.cpu.threads import RUN, WORKER
from tiercel.codegen.pieces import Library
from tiercel.codegen.pool import ThreadPool
from tiercel.compiler.graph import Region
from tiercel.compiler.lower import Lowered
from tiercel.hotpath.processors import available_threads
from tiercel.hotpath.queue import Job
from tiercel.hotpath.service import CompileService, service
from tiercel.hotpath.service import Ticket as ServiceTicket
from tiercel.vm.dispatch import DROPPED, Built, Choices
from tiercel.vm.entry import PACK_TYPE, PANELS_TYPE, Frames
from tiercel.vm.stub import unusable

__all__ = ["ServiceBuilder", "builder"]


_LATER: Final = 1
"""The priority of builds that nobody is waiting for."""


class _Packing(dict[tuple[str, bool], Any]):
    """The packing routines, see `Frames.pack`: their piece of the library is there where a kernel packs."""

    def __init__(self, library: Library) -> None:
        super().__init__()
        self._library = library

    def __missing__(self, key: tuple[str, bool]) -> Any:
        layout, panels = key
        address = self._library.address(pack_name(layout, panels=panels), quick=True)
        made = self[key] = (PANELS_TYPE if panels else PACK_TYPE)(address)
        return made


class SharedFrames(Frames):
    """The shared parts of all entries of this process, with a pool that survives fork by being made anew."""

    def __init__(self, library: Library) -> None:
        super().__init__(library.address(CALL), stub=library.address(STUB))
        self.pack = _Packing(library)
        self.library = library
        self._addresses = (library.address(RUN), library.address(WORKER))
        self._lock = threading.Lock()
        self._pool: ThreadPool | None = None
        self.tried = False
        self.revive()

    def revive(self) -> int:
        """Make the pool if there should be one; its address, 0 for none."""
        if self.tried or not self._lock.acquire(blocking=False):
            return self.pool
        try:
            self.tried = True
            count = available_threads().threads
            if count > 1:
                try:
                    self._pool = ThreadPool(*self._addresses, count)
                except OSError:
                    return 0
                self.threads = self._pool.threads
                self.pool = self._pool.address
            return self.pool
        finally:
            self._lock.release()

    def forget(self) -> None:
        """In a forked child: there are no threads; the next call makes them."""
        self.pool, self.threads, self.tried = 0, 1, False
        self._lock = threading.Lock()


class _Ticket:
    def __init__(self, owner: ServiceBuilder, ticket: ServiceTicket) -> None:
        self.owner, self.ticket = owner, ticket

    @property
    def ready(self) -> bool:
        """See `dispatch.Ticket`."""
        return self.ticket.finished

    def poll(self) -> Built | str | None:
        """See `dispatch.Ticket`. Receiving a kernel, making what all share, and mapping it are three calls: each takes
        up to a millisecond.
        """
        if not self.ticket.finished:
            self.owner.service.poll()
            return None
        if self.ticket.dropped:
            return DROPPED
        if self.ticket.state == "failed":
            return self.ticket.reason or "not compiled"
        try:
            if self.owner.prime():
                return None
            return self.owner.load(self.ticket)
        except (BlobError, OSError) as error:
            return f"machine code cannot be used here: {error}"

    def wait(self, timeout: float | None) -> bool:
        """See `dispatch.Ticket`."""
        return self.owner.service.wait(timeout, self.ticket)


class ServiceBuilder:
    """Builds through a compile service."""

    slice_ns = 300_000

    def __init__(self, service_: CompileService | None = None) -> None:
        self.service = service_ or service()
        self.frames: SharedFrames | None = None
        self.prepared = self.primed = self.expected = False

    def available(self) -> str | None:
        """Why nothing can be compiled; None if it can."""
        return "compiling is off (the setting worker)" if self.service.mode == "off" else None

    def prepare(self) -> bool:
        """See `dispatch.Builder`."""
        prepared, self.prepared = self.prepared, True
        if not prepared:
            self.service.prepare()
        return not prepared

    def expect(self) -> None:
        """See `dispatch.Builder`."""
        if not self.expected:
            self.expected = True
            self.service.expect()

    def submit(
        self,
        region: Region,
        lowered: Lowered,
        times_ms: dict[str, float],
        *,
        hints: dict[str, Any] | None = None,
        quick: bool = False,
        choices: Choices | None = None,
    ) -> _Ticket:
        """See `dispatch.Builder`."""
        priority = 0 if quick else _LATER
        ticket = self.service.submit(
            region.name, region, lowered, times_ms=times_ms, hints=hints, quick=quick, choices=choices,
            priority=priority,
        )  # fmt: skip
        return _Ticket(self, ticket)

    def winners(self) -> Mapping[str, Any]:
        """See `dispatch.Builder`."""
        return self.service.winners()

    def measure(self, demands: list[Any], budget_ms: float) -> Job | None:
        """See `dispatch.Builder`."""
        return self.service.tune(demands, budget_ms)

    def measured(self, job: Job) -> dict[str, Any]:
        """See `dispatch.Builder`."""
        return self.service.tuned(job)

    def wait_for(self, job: Job, timeout: float | None) -> bool:
        """See `dispatch.Builder`."""
        return self.service.worker().wait(timeout, job)

    def poll(self) -> None:
        """See `dispatch.Builder`."""
        self.service.poll()

    def prime(self) -> bool:
        """Do a part of what the first kernel of a process needs; false when all is done."""
        if not self.primed:
            self.primed = True
            unusable()
            return True
        return self.frames is None and self.make_frames()

    def make_frames(self) -> bool:
        """Make what all entries share, with the thread pool; true, because that takes a while."""
        self.frames = SharedFrames(self.service.library)
        _give_back_memory()
        return True

    def load(self, ticket: ServiceTicket) -> Built:
        """Map a finished kernel."""
        mapped = self.service.load(ticket)
        if self.frames is None:
            self.make_frames()
        assert self.frames is not None
        certificate: dict[str, Any] = dict(ticket.certificate or {})
        return Built(
            mapped.address(ticket.name),
            mapped.address(f"{ticket.name}.arena"),
            self.frames,
            (mapped,),
            dict(ticket.times_ms),
            certificate,
            ticket.from_cache,
            ticket.quick,
            ticket.widths,
        )


def _give_back_memory() -> None:
    """What loading the compiler's modules took for a moment: one to two megabytes, in a third of a millisecond."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc has it


_builder: Final[list[ServiceBuilder]] = []


def builder() -> ServiceBuilder:
    """The builder of this process."""
    if not _builder:
        _builder.append(ServiceBuilder())
    return _builder[0]


def _after_fork() -> None:
    for made in _builder:
        if made.frames is not None:
            made.frames.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
