"""What a compile worker can do, by name. A job takes and returns plain data.

`build` is the one that matters: a loop nest (and the region it came from) becomes a validated blob. The others exist
so that tests can make a worker die in every way there is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from tiercel.errors import TiercelError

__all__ = ["JOBS", "Progress", "Refused", "introduce", "run"]

Progress = Callable[[str], None]
Job = Callable[[Any, Progress], Any]


class Refused(TiercelError):
    """A job that cannot be done, however often it is tried.

    Attributes:
        reason: for people.
        stage: the stage that refused.
        kind: "unsupported" (no machine code for this), "invalid" (a kernel that computes something else).
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
    del asked
    import os
    import platform

    import llvmlite
    import llvmlite.binding as llvm
    import numpy as np

    from tiercel._version import __version__
    from tiercel.codegen.blob import link
    from tiercel.codegen.cpu import emit  # noqa: F401 - loaded for the jobs to come
    from tiercel.codegen.cpu.assemble import assemble
    from tiercel.codegen.cpu.target import Target
    from tiercel.hotpath import wire  # noqa: F401

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


def run(name: str, payload: Any, progress: Progress) -> Any:
    """Do a job.

    Raises:
        Refused: it cannot be done. Anything else is a bug or a lack of memory.
    """
    function = JOBS.get(name)
    if function is None:
        raise Refused(f"there is no job {name!r}", stage="job")
    return function(payload, progress)


class _Stages:
    """Times stages and says which one is running."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
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
            self.progress(name)


@job
def build(payload: Any, progress: Progress) -> Any:
    """Make a kernel.

    Args:
        payload: `table`: the pair (function, interface) or triple (function, interface, region) as a wire table;
            `library`: whether the caller has the runtime library already.
        progress: told which stage begins.

    Returns:
        `blob`, `times_ms` by stage, `library` (bytes or None), `certificate`.
    """
    from tiercel.codegen.blob import link
    from tiercel.codegen.cpu.assemble import assemble
    from tiercel.codegen.cpu.emit import emit
    from tiercel.codegen.cpu.target import Target
    from tiercel.hotpath.wire import from_table
    from tiercel.loops import check

    stages = _Stages(progress)
    stages.enter("decode")
    parts = from_table(payload["table"])
    function = check(parts[0])
    target = Target.host()
    stages.enter("emit")
    text = emit(function, target)
    stages.enter("codegen")
    try:
        obj = assemble(text, target, verify=True)  # 0.3 ms; what it would catch is an abort otherwise
    except RuntimeError as error:
        raise Refused(f"LLVM does not accept the code: {error}", stage="codegen") from None
    stages.enter("link")
    blob = link(obj, [function.name, f"{function.name}.arena"])
    made = None
    if not payload.get("library"):
        stages.enter("library")
        made = library()
    stages.enter("")
    return {"blob": blob.to_bytes(), "times_ms": stages.times_ms, "library": made, "certificate": None}


_library: bytes | None = None


def library() -> bytes:
    """The runtime library for this processor as a blob, compiled once."""
    global _library
    if _library is None:
        from tiercel.codegen.blob import link
        from tiercel.codegen.cpu.assemble import assemble
        from tiercel.codegen.cpu.library import entries, library_text
        from tiercel.codegen.cpu.target import Target

        target = Target.host()
        _library = link(assemble(library_text(target), target), entries()).to_bytes()
    return _library


@job
def echo(payload: Any, progress: Progress) -> Any:
    """Give back what was sent."""
    progress("echo")
    return payload
