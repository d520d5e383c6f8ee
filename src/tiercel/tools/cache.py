"""`tiercel cache list|clear`: the kernels kept on disk.

In: nothing. Out: what is there. Kernels come from compiling; while nothing compiles (`HAS_COMPILER`) there are none,
and both actions say so.
"""

from __future__ import annotations

import argparse

from tiercel.vm.report import HAS_COMPILER

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("action", choices=("list", "clear"))
    parser.add_argument("--json", action="store_true", help="the list as JSON")


def run(options: argparse.Namespace) -> int:
    """List or clear."""
    assert not HAS_COMPILER, "the cache of the compiler is listed and cleared here"
    print("[]" if options.json else "no kernel cache: this version interprets, so there is nothing to keep")
    return 0
