"""What a compile worker can do, by name. A job takes and returns plain data.

`build` is the one that matters: a loop nest (and the region it came from) becomes a validated blob. The others exist
so that tests can make a worker die in every way there is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tiercel.codegen.cpu.names import CORE
from tiercel.codegen.pieces import Library, base_piece, is_quick, needed_pieces, versions
from tiercel.errors import TiercelError

if TYPE_CHECKING:
    from pathlib import Path

    from tiercel.codegen.blob import Blob
    from tiercel.codegen.cpu.choice import Choice
    from tiercel.codegen.cpu.target import Target
    from tiercel.hotpath.native import Runtime
    from tiercel.loops.form import Block, Function
    from tiercel.tuner.measure import Bench
    from tiercel.tuner.session import Demand, Tuned

__all__ = ["JOBS", "Refused", "Reporter", "introduce", "product_bench", "run", "tuned_products"]


class Reporter:
    """Says what a job is doing, and how long the next step may take."""

    def stage(self, name: str) -> None:
        """A stage begins."""

    def limit(self, seconds: float | None) -> None:
        """The process is ended unless it comes back here before it has computed so long; None: no such limit."""


Job = Callable[[Any, Reporter], Any]


class Refused(TiercelError):
    """A job that cannot be done, however often it is tried.

    Attributes:
        reason: for people.
        stage: the stage that refused.
        kind: "unsupported" (no machine code for this), "invalid" (a kernel that computes something else), "unchecked"
            (a kernel that could not be compared).
        details: plain data, for reports.
    """

    def __init__(self, reason: str, *, stage: str, kind: str = "unsupported", details: Any = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.stage = stage
        self.kind = kind
        self.details = details

    def to_data(self) -> dict[str, Any]:
        """The plain form."""
        return {
            "reason": self.reason, "stage": self.stage, "kind": self.kind, "details": self.details, "again": False,
        }  # fmt: skip


JOBS: Final[dict[str, Job]] = {}


def job(function: Job) -> Job:
    """Register a job under its name."""
    JOBS[function.__name__.lstrip("_")] = function
    return function


def introduce(asked: Any) -> dict[str, Any]:
    """What a new worker says about itself: versions, the processor. Loads LLVM and compiles something, so that the
    first job does not pay for it.
    """
    import os
    import platform

    from tiercel._version import __version__

    if asked["bare"]:
        versions = {"tiercel": __version__, "python": platform.python_version()}
        return {"pid": os.getpid(), "versions": versions, "target": None}

    import llvmlite
    import llvmlite.binding as llvm
    import numpy as np

    from tiercel.codegen.blob import link
    from tiercel.codegen.cpu import emit  # noqa: F401 - loaded for the jobs to come
    from tiercel.codegen.cpu.assemble import assemble
    from tiercel.codegen.cpu.target import Target
    from tiercel.hotpath import reference, validate, wire  # noqa: F401
    from tiercel.operators import ALL  # noqa: F401

    target = Target.host()
    link(assemble("define i64 @warm() {\n  ret i64 0\n}\n", target), ["warm"])
    return {
        "pid": os.getpid(),
        "versions": {
            "tiercel": __version__, "python": platform.python_version(), "numpy": np.__version__,
            "llvmlite": llvmlite.__version__, "llvm": ".".join(map(str, llvm.llvm_version_info)),
        },
        "target": [target.cpu, target.features, target.vector_bytes, target.masked_memory, target.triple],
    }  # fmt: skip


def run(name: str, payload: Any, reporter: Reporter) -> Any:
    """Do a job.

    Raises:
        Refused: it cannot be done. Anything else is a bug or a lack of memory.
    """
    function = JOBS.get(name)
    if function is None:
        raise Refused(f"there is no job {name!r}", stage="job")
    return function(payload, reporter)


class _Stages:
    """Times stages and says which one is running."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.times_ms: dict[str, float] = {}
        self._name = ""
        self._since = 0.0

    def enter(self, name: str) -> None:
        """A stage begins, the one before it ends."""
        now = time.perf_counter()
        if self._name:
            self.times_ms[self._name] = self.times_ms.get(self._name, 0.0) + (now - self._since) * 1e3
        self._name, self._since = name, now
        if name:
            self.reporter.stage(name)


@job
def build(payload: Any, reporter: Reporter) -> Any:
    """Make a kernel.

    Args:
        payload: `table`: the pair (function, interface) or triple (function, interface, region) as a wire table;
            `pieces`: those of the runtime library that the caller has; `hints`: see `cases.Hints`; `plant`: a
            mistake to be made on purpose; `quick`: whether the kernel is wanted soon rather than as fast as possible;
            `choices`: pairs of the number of a product and how it is carried out (`codegen.cpu.choice`).
        reporter: told which stage begins.

    Returns:
        `blob`, `times_ms` by stage, `pieces` (of the library, that the caller lacks), `certificate`, `quick` (whether
        the code could be better), `widths` (of the panels of packed operands, by buffer).
    """
    from tiercel.codegen.blob import link
    from tiercel.codegen.cpu.assemble import QUICK, assemble, best_level
    from tiercel.codegen.cpu.contract import panel_widths
    from tiercel.codegen.cpu.emit import emit
    from tiercel.codegen.cpu.target import Target
    from tiercel.compiler.interface import packed_as
    from tiercel.hotpath.plant import plant
    from tiercel.hotpath.wire import from_table
    from tiercel.loops import IllFormed, check

    stages = _Stages(reporter)
    stages.enter("decode")
    parts = from_table(payload["table"])
    function = check(parts[0])
    if payload.get("plant"):
        function = check(plant(function, payload["plant"]))
        parts = (function, *parts[1:])
    target = Target.host()
    stages.enter("emit")
    try:
        chosen = _choices(function, target, payload.get("choices") or ())
        text = emit(function, target, chosen)
        widths = panel_widths(function, target, chosen)
        parts = (function, packed_as(parts[1], widths), *parts[2:])
    except (IllFormed, ValueError) as error:
        raise Refused(str(error), stage="emit") from None
    stages.enter("codegen")
    try:
        level = best_level(quick=bool(payload.get("quick")))
        obj = assemble(text, target, level=level, verify=True)  # what verifying would catch is an abort otherwise
    except RuntimeError as error:
        raise Refused(f"LLVM does not accept the code: {error}", stage="codegen") from None
    stages.enter("link")
    blob = link(obj, [function.name, f"{function.name}.arena"])
    known = payload.get("pieces") or {}
    _pieces.update(known)
    stages.enter("library")
    quick = level == QUICK
    used = dict(_chosen_piece(name, quick=quick) for name in sorted(needed_pieces(blob.imports)))
    certificate = None
    if len(parts) > 2 and parts[2] is not None:
        stages.enter("validate")
        certificate = _validated(parts, blob, payload.get("hints") or {}, reporter, quick=quick)
    stages.enter("")
    return {
        "blob": blob.to_bytes(), "times_ms": stages.times_ms,
        "pieces": {name: raw for name, raw in used.items() if name not in known}, "certificate": certificate,
        "quick": quick, "widths": widths,
    }  # fmt: skip


def _choices(function: Function, target: Target, given: Any) -> dict[int, Choice]:
    """How each product is carried out: as was chosen, else as is usual.

    Raises:
        ValueError: what was chosen is nothing that this target has.
    """
    from tiercel.codegen.cpu.choice import Choice, usual
    from tiercel.loops.products import contracts_of

    chosen = {int(number): Choice.from_data(data, target) for number, data in given}
    for number, product in enumerate(contracts_of(function.body)):
        chosen.setdefault(number, Choice.always(usual(target, packed=product.packed)))
    return chosen


NATIVE_S: Final = 1.0
"""A kernel on trial that computes longer hangs: the reference took a quarter of it at most."""


def _validated(parts: Any, blob: Blob, hints: Any, reporter: Reporter, *, quick: bool) -> dict[str, Any]:
    """The certificate of a kernel, which calls quick pieces of the library if `quick`.

    Raises:
        Refused: it computes something else than its region says, or that cannot be found out.
    """
    from tiercel.codegen.blob import map_blob
    from tiercel.hotpath.cases import Case, Hints, make_cases
    from tiercel.hotpath.native import Called, NativeKernel
    from tiercel.hotpath.reference import (
        Conditions,
        evaluate_region,
        has_loops,
        has_signed_zeros,
        is_exact,
        is_uninitialised,
    )
    from tiercel.hotpath.validate import Failure, validate

    function, interface, region = parts[:3]
    runtime = _runtime(parallel=_is_parallel(function.body))
    code = map_blob(blob, {name: _library.address(name, quick=quick) for name in blob.imports})
    kernel = NativeKernel(
        function, interface, code.address(function.name), code.address(f"{function.name}.arena"), runtime
    )

    seen = Hints.from_data(hints)
    if region.sample:
        seen = Hints((region.sample, *seen.sizes), seen.scalars)

    norms: dict[Any, Any] = {}

    def reference(case: Case, conditions: Conditions) -> list[Any]:
        return evaluate_region(region, case.values, case.sizes, conditions, norms)

    def candidate(case: Case) -> Called:
        try:
            return kernel(
                case.values, case.sizes, at_end=case.at_end, pooled=case.pooled, before=lambda: reporter.limit(NATIVE_S)
            )
        finally:
            reporter.limit(None)

    found = validate(
        reference,
        candidate,
        make_cases(interface, region.facts, seen, function.name, loops=has_loops(region.graph)),
        exact=is_exact(region.graph),
        signed_zeros=has_signed_zeros(region.graph),
        uninitialised=is_uninitialised(region.graph),
        progress=lambda name: reporter.stage(f"validate, trial {name!r}"),
    )
    if isinstance(found, Failure):
        kind = "invalid" if found.kind in ("value", "written", "ran") else "unchecked"
        raise Refused(found.reason, stage="validate", kind=kind, details=found.to_data())
    return found.to_data()


def _is_parallel(block: Block) -> bool:
    from tiercel.loops.form import For, blocks

    return any(
        (isinstance(stmt, For) and stmt.axis == "parallel") or any(_is_parallel(inner) for inner in blocks(stmt))
        for stmt in block.body
    )


_pool: list[Any] = []


def _runtime(*, parallel: bool) -> Runtime:
    """What kernels are called through; a pool of two threads where one is needed."""
    from tiercel.codegen.cpu.names import CALL, pack_name
    from tiercel.codegen.cpu.threads import RUN, WORKER
    from tiercel.codegen.pool import ThreadPool
    from tiercel.hotpath.native import Runtime

    if parallel and not _pool:
        try:
            _pool.append(ThreadPool(_library.address(RUN), _library.address(WORKER), 2))
        except OSError:
            _pool.append(None)
    pool = _pool[0] if _pool else None
    return Runtime(
        _library.address(CALL),
        lambda layout, panels: _library.address(pack_name(layout, panels=panels), quick=True),
        pool.address if pool is not None else 0,
        pool.threads if pool is not None else 1,
    )


_pieces: dict[str, bytes] = {}


def piece(name: str) -> bytes:
    """A version of a piece of the runtime library for this processor as a blob, compiled once."""
    found = _pieces.get(name)
    if found is None:
        from tiercel.codegen.blob import link
        from tiercel.codegen.cpu.assemble import assemble, best_level
        from tiercel.codegen.cpu.library import entries, library_text
        from tiercel.codegen.cpu.target import Target

        target, level = Target.host(), best_level(quick=is_quick(name))
        whole = base_piece(name)
        obj = assemble(library_text(target, [whole]), target, level=level)
        found = _pieces[name] = link(obj, entries(whole)).to_bytes()
    return found


def _chosen_piece(name: str, *, quick: bool) -> tuple[str, bytes]:
    """The version of a piece that a kernel is to call, and its bytes: the better one, unless there is none yet and the
    kernel is wanted soon.
    """
    there = next((v for v in versions(name, quick=quick) if v in _pieces), None)
    chosen = there or versions(name, quick=quick)[-1]
    return chosen, piece(chosen)


_library: Final = Library(_pieces.get, piece)


@contextlib.contextmanager
def product_bench(threads: int) -> Iterator[Bench]:
    """What measures products with so many threads, in this process."""
    from tiercel.codegen.cpu.threads import RUN, WORKER
    from tiercel.codegen.pool import ThreadPool
    from tiercel.tuner.measure import Bench

    pool = None
    if threads > 1:
        with contextlib.suppress(OSError):
            pool = ThreadPool(_library.address(RUN), _library.address(WORKER), threads)
    try:
        yield Bench(_library.address, pool.address if pool else 0, pool.threads if pool else 1)
    finally:
        if pool is not None:
            pool.close()


@job
def tune(payload: Any, reporter: Reporter) -> Any:
    """Measure products and choose how they are carried out.

    Where a piece of the runtime library is missing that some way needs, one piece is made instead, and the job is to be
    asked for again: other jobs wait behind this one.

    Args:
        payload: `demands` (see `session.Demand`), `threads`, `budget_ms`, `folder` and `key` of the store (None: memory
            of this worker), `pieces` of the runtime library that the caller has.
        reporter: told what is being measured.

    Returns:
        `tuned` (see `session.Tuned.to_data`), `again`, `spent_ms`, `messages` for people, `pieces` that were made.
    """
    import pathlib

    from tiercel.codegen.cpu.target import Target
    from tiercel.codegen.cpu.tile import widths
    from tiercel.tuner.session import Demand

    known = payload.get("pieces") or {}
    for name, raw in known.items():
        _pieces.setdefault(name, raw)
    target = Target.host()
    began = time.perf_counter()
    demands = [Demand.from_data(data, target) for data in payload["demands"]]
    needed = {d.product.dtype for d in demands}
    needed |= {f"{dtype}.v{width}" for dtype in needed for width in widths(target)[1:]} | {CORE}
    missing = sorted(needed - _pieces.keys())
    answer: dict[str, Any] = {"tuned": [], "again": len(missing) > 1, "messages": []}
    for name in missing[:1]:
        reporter.stage(f"library, {name}")
        piece(name)
    if not answer["again"]:
        folder = payload.get("folder")
        answer |= tuned_products(
            demands,
            pathlib.Path(folder) if folder else None,
            payload["key"],
            payload["budget_ms"] / 1e3,
            reporter.stage,
        )
    answer["spent_ms"] = (time.perf_counter() - began) * 1e3
    answer["pieces"] = {name: raw for name, raw in _pieces.items() if name not in known}
    return answer


_stores: dict[tuple[str, str], Any] = {}
TUNING_NICE: Final = 5
"""How much nicer than other jobs measuring is."""


def tuned_products(
    demands: Sequence[Demand],
    folder: Path | None,
    key: str,
    budget_s: float,
    stage: Callable[[str], None] = lambda what: None,
    *,
    most_points: int = 8,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
    finished: Callable[[Tuned], None] = lambda tuned: None,
) -> dict[str, Any]:
    """Measure on a thread of its own that gives way to everything else, and keep what comes of each product at once.

    Returns:
        `tuned` and `messages`, plain data.
    """
    import os
    import threading

    from tiercel.codegen.cpu.target import Target
    from tiercel.tuner.predictor import Predictor, Row
    from tiercel.tuner.session import tune as tune_demands
    from tiercel.tuner.space import points
    from tiercel.tuner.store import Store

    messages: list[str] = []
    place = (str(folder), key)
    store = _stores.get(place) if folder is None else None
    if store is None:
        store = _stores[place] = Store(folder, key, messages.append)
    predictor = Predictor(Target.host(), store.rows())
    results: list[Tuned] = []
    failed: list[BaseException] = []

    def keep(tuned: Tuned) -> None:
        results.append(tuned)
        finished(tuned)
        if not tuned.quiet:
            return
        product = tuned.demand.product
        rows = [
            Row(product._replace(m=m), point, ns) for m, times in tuned.tried.items()
            for point, ns in times.items() if point in points(product._replace(m=m), predictor.target)
        ]  # fmt: skip
        store.add(rows, {tuned.demand.key: tuned.to_data()})

    def work() -> None:
        try:
            with contextlib.suppress(OSError, AttributeError):
                now = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(19, now + TUNING_NICE))
            threads = max(d.product.threads for d in demands)
            with product_bench(threads) as bench:

                def told(done: int, total: int, what: str) -> None:
                    bench.forget_all()
                    stage(f"tune, {what}")
                    progress(done, total, what)

                tune_demands(
                    demands, predictor, bench.time, budget_s=budget_s, most_points=most_points, progress=told,
                    finished=keep,
                )  # fmt: skip
        except BaseException as error:  # noqa: BLE001 - raised again where it can be seen
            failed.append(error)

    if demands:
        worker = threading.Thread(target=work, name="tiercel-tune")
        worker.start()
        worker.join()
    if failed:
        raise failed[0]
    return {"tuned": [tuned.to_data() for tuned in results], "messages": messages}


@job
def echo(payload: Any, reporter: Reporter) -> Any:
    """Give back what was sent."""
    reporter.stage("echo")
    return payload


@job
def suffer(payload: Any, reporter: Reporter) -> Any:
    """End in the way that is asked for: what tests of the worker need. Returns only for "compute" and "leave"."""
    import ctypes
    import os
    import signal
    import sys

    reporter.stage(f"suffer {payload}")
    match payload:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "abort":
            sys.stderr.write("LLVM ERROR: Cannot select: intrinsic %llvm.x86.avx512.nothing\n")
            sys.stderr.flush()
            os.abort()
        case "crash":
            ctypes.string_at(8)
        case "hang":
            while True:
                time.sleep(1)
        case "spin":  # in native code, with the lock of the interpreter released
            ctypes.CDLL(None).pause()
        case "memory":
            kept = []
            while True:
                kept.append(bytearray(1 << 26))
        case "garbage":
            for number in range(3, 64):  # wherever the socket is
                try:
                    os.write(number, b"\xde\xad\xbe\xef" * 64)
                except OSError:
                    continue
            time.sleep(60)
        case "exit":
            os._exit(7)
        case "print":
            sys.stdout.write("a stray line\n")
            sys.stdout.flush()
        case "raise":
            raise RuntimeError("as asked")
        case "compute":
            began, used = time.perf_counter(), time.process_time()
            while time.process_time() - used < 0.2:
                pass
            return [time.process_time() - used, time.perf_counter() - began]
    return None
