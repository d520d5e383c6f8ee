"""`tiercel cache list|clear`: the kernels kept on disk.

In: the cache of the compile worker, if this version has one. Out: its entries with sizes and dates, or an empty cache.
"""

from __future__ import annotations

import argparse
import importlib.util

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("action", choices=("list", "clear"))
    parser.add_argument("--json", action="store_true", help="the list as JSON")


def run(options: argparse.Namespace) -> int:
    """List or clear."""
    if importlib.util.find_spec("tiercel.jit") is None:
        print("[]" if options.json else "no kernel cache: this version interprets, so there is nothing to keep")
        return 0
    raise NotImplementedError
