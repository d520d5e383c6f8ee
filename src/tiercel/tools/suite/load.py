"""Who else used the processor: what other processes took while a case was measured.

In: nothing. Out: seconds. A benchmark on a busy machine is worth little, and nobody sees it in the times; so the record
holds how much processor time went to processes that are not ours, and the tables warn.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

__all__ = ["Others"]


class Others:
    """Processor seconds of other processes since this was made; 0 where there is no /proc."""

    def __init__(self) -> None:
        self.all = _busy_s()
        self.ours = _ended_s()

    def seconds(self, running: list[int]) -> float:
        """Return them. `running`: children that have not been waited for; their descendants count as ours."""
        ours = _ended_s() - self.ours + _tree_s(running)
        return max(0.0, _busy_s() - self.all - ours)


def _ended_s() -> float:
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


def _busy_s() -> float:
    """User, nice, system and interrupt time of all cores."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _, _, interrupt, soft = map(int, fields[:7])
    return (user + nice + system + interrupt + soft) / os.sysconf("SC_CLK_TCK")


def _tree_s(roots: list[int]) -> float:
    """Time of these processes and of all that descend from them, those they have waited for included."""
    parents: dict[int, int] = {}
    times: dict[int, float] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(place.parent.name)
        parents[pid] = int(fields[1])
        times[pid] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    ours = set(roots)
    while True:
        more = {pid for pid, parent in parents.items() if parent in ours} - ours
        if not more:
            return sum(times.get(pid, 0.0) for pid in ours)
        ours |= more
