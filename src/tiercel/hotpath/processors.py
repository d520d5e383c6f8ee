"""How much of this machine a program may use: cores, quotas, what the user said.

In: the affinity mask, control groups, `OMP_NUM_THREADS`, the setting `threads`. Out: a number of threads with its
reason, and the share of the time in which the compile worker may compute.

A control group limits all processes in it and in the groups below, so the least quota on the way up counts. With a
quota of one core or less, everything the worker computes is taken from the program at once, in stalls of up to a
tenth of a second: there it rests two thirds of the time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from tiercel import config

__all__ = ["RESTED_DUTY", "Limit", "available_threads", "cpu_quota", "thread_limits", "worker_duty"]

RESTED_DUTY: Final = 1 / 3
_SYSTEM: Final = Path("/")

_Reader: TypeAlias = Callable[[Path], "float | None"]


@dataclass(frozen=True, slots=True)
class Limit:
    """One thing that limits the number of threads.

    Attributes:
        threads: at least 1.
        reason: where it comes from, for people.
    """

    threads: int
    reason: str


def thread_limits(environ: Mapping[str, str] = os.environ, root: Path = _SYSTEM) -> list[Limit]:
    """Everything that limits the threads of a compiled call, the strictest first; a setting of the user's counts alone.

    Args:
        environ: environment variables.
        root: the root of the file system (tests give another one).
    """
    chosen = config.current().threads
    if chosen is not None:
        return [Limit(int(chosen), "the setting threads")]
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
        found = [Limit(max(1, cores), f"{cores} cores may be used (affinity)")]
    else:
        cores = os.cpu_count() or 1
        found = [Limit(cores, f"{cores} cores are there")]
    quota = cpu_quota(root)
    if quota is not None:
        found.append(Limit(max(1, math.ceil(quota)), f"a quota of {quota:.2f} cores (control group)"))
    wanted = environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if wanted.isascii() and wanted.isdigit() and int(wanted) > 0:
        found.append(Limit(int(wanted), f"OMP_NUM_THREADS={wanted}"))
    return sorted(found, key=lambda limit: limit.threads)


def available_threads(environ: Mapping[str, str] = os.environ, root: Path = _SYSTEM) -> Limit:
    """The number of threads a compiled call may use, and why not more."""
    return thread_limits(environ, root)[0]


def worker_duty(root: Path = _SYSTEM) -> float:
    """The share of the time in which the worker may compute."""
    quota = cpu_quota(root)
    return RESTED_DUTY if quota is not None and quota <= 1.0 else 1.0


def cpu_quota(root: Path = _SYSTEM) -> float | None:
    """How many cores the control groups of this process let it use; None for no limit."""
    found = []
    for mount, own, read in _groups(root):
        folder = mount / own.strip("/") if own.strip("/") else mount
        while True:
            quota = read(folder)
            if quota is not None:
                found.append(quota)
            if folder == mount or mount not in folder.parents:
                break
            folder = folder.parent
    return min(found, default=None)


def _groups(root: Path) -> list[tuple[Path, str, _Reader]]:
    """Where control groups are mounted, the group of this process below that, and how a quota is read there."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    base = root / "sys/fs/cgroup"
    found: list[tuple[Path, str, _Reader]] = []
    for line in lines:
        _, controllers, own = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            found.append((base, own, _quota_v2))
        elif "cpu" in controllers.split(","):
            found += [(base / name, own, _quota_v1) for name in (controllers, "cpu") if (base / name).is_dir()]
    # inside of a container the path of the group may name something outside of it
    found += [(base, "", _quota_v2), (base / "cpu", "", _quota_v1)]
    return found


def _quota_v2(folder: Path) -> float | None:
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    return _ratio(quota, period)


def _quota_v1(folder: Path) -> float | None:
    return _ratio(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us"))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _ratio(quota: str, period: str) -> float | None:
    try:
        a, b = int(quota), int(period)
    except ValueError:
        return None  # "max", or no such file
    return a / b if a > 0 and b > 0 else None
