"""`tiercel cache list|clear`: the kernels kept on disk.

In: the settings `cache_dir` and `cache_size`, which say where they are. Out: a line per kernel, the most recently used
first, or none any more. Kernels that a running process uses stay usable: they are in its memory.
"""

from __future__ import annotations

import argparse
import json
import time

from tiercel.hotpath.service import service
from tiercel.vm.render import columns

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("action", choices=("list", "clear"))
    parser.add_argument("--json", action="store_true", help="the place and the kernels, or their number, as JSON")


def run(options: argparse.Namespace) -> int:
    """List or clear."""
    cache = service().cache
    state = cache.stats()
    if options.action == "clear":
        removed = cache.clear()
        print(json.dumps({"removed": removed}) if options.json else f"{_kernels(removed)} removed from {_place(state)}")
        return 0
    found = cache.list()
    if options.json:
        rows = [{"key": e.key, "size_bytes": e.size_bytes, "used": e.used, "damaged": e.data is None} for e in found]
        print(json.dumps({**state, "kernels": rows}, indent=2))
        return 0
    size, bound = state["bytes"] / 2**20, state["bound_bytes"] / 2**20
    print(f"{_kernels(len(found))} in {_place(state)}, {size:.1f} of {bound:.0f} MiB")
    rows_text = [
        [
            e.key[:16],
            f"{e.size_bytes / 1024:.1f} KiB",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(e.used)),
            _name(e),
        ]
        for e in found
    ]
    if rows_text:
        print("\n".join(columns(rows_text, right=(1,))))
    return 0


def _name(entry: object) -> str:
    data = getattr(entry, "data", None)
    return "damaged; the next process that needs it makes it anew" if data is None else str(data.get("name", ""))


def _kernels(count: int) -> str:
    return f"{count} kernel{'' if count == 1 else 's'}"


def _place(state: dict[str, object]) -> str:
    return str(state["folder"]) if state["folder"] else f"memory ({state['reason']})"
