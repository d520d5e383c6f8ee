"""`tiercel cache list|clear`: the kernels and the choices of the tuner kept on disk.

In: the settings `cache_dir` and `cache_size`, which say where they are. Out: a line per kernel, the most recently used
first, and how many products are tuned for this machine; or none any more. Kernels that a running process uses stay
usable: they are in its memory. What the tuner measured took longer than a kernel takes to be built: it goes only if
that is asked for.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from tiercel.errors import TiercelError
from tiercel.hotpath.cache import tuning_key
from tiercel.hotpath.service import service
from tiercel.tuner.winners import forget_all, read_winners
from tiercel.vm.render import columns

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("action", choices=("list", "clear"))
    parser.add_argument(
        "--tuning", action="store_true", help="with clear: forget what the tuner measured and chose, too"
    )
    parser.add_argument("--json", action="store_true", help="the place and the kernels, or their number, as JSON")


def run(options: argparse.Namespace) -> int:
    """List or clear."""
    cache = service().cache
    state = cache.stats()
    if options.action == "clear":
        removed = {"removed": cache.clear()}
        lines = [f"{_kernels(removed['removed'])} removed from {_place(state)}"]
        tuned = _tuned_products()
        if options.tuning:
            removed["tuned_products_removed"] = _forget_tuning()
            lines.append(f"tuned products: {removed['tuned_products_removed']} forgotten")
        elif tuned:
            lines.append(f"tuned products: {tuned}, kept (--tuning forgets them)")
        print(json.dumps(removed) if options.json else "\n".join(lines))
        return 0
    if options.tuning:
        raise TiercelError("--tuning goes with `tiercel cache clear`")
    tuned = _tuned_products()
    found = cache.list()
    if options.json:
        rows = [{"key": e.key, "size_bytes": e.size_bytes, "used": e.used, "damaged": e.data is None} for e in found]
        print(json.dumps({**state, "tuned_products": tuned, "kernels": rows}, indent=2))
        return 0
    size, bound = state["bytes"] / 2**20, state["bound_bytes"] / 2**20
    print(f"{_kernels(len(found))} in {_place(state)}, {size:.1f} of {bound:.0f} MiB")
    print(f"tuned products: {tuned}")
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


def _tuned_products() -> int:
    """How many have a choice on this machine, with this version."""
    folder = service().cache.folder
    return 0 if folder is None else len(read_winners(folder, tuning_key(), _warn))


def _warn(message: str) -> None:
    print(f"tiercel: {message}", file=sys.stderr)


def _forget_tuning() -> int:
    folder = service().cache.folder
    try:
        return 0 if folder is None else forget_all(folder)
    except OSError as error:
        raise TiercelError(f"{error.filename} cannot be removed: {error.strerror}") from None


def _name(entry: object) -> str:
    data = getattr(entry, "data", None)
    return "damaged; the next process that needs it makes it anew" if data is None else str(data.get("name", ""))


def _kernels(count: int) -> str:
    return f"{count} kernel{'' if count == 1 else 's'}"


def _place(state: dict[str, object]) -> str:
    return str(state["folder"]) if state["folder"] else f"memory ({state['reason']})"
