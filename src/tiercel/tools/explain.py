"""`tiercel explain SCRIPT.py`: runs a script, then tells what its jitted functions did.

In: a script with its arguments, or `-m module`. Out: what the script prints, then the report of every jitted function
that was called, the most expensive first. The exit code is the script's own.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import traceback
from typing import TYPE_CHECKING, Any

from tiercel.api.process import keep_all
from tiercel.errors import TiercelError
from tiercel.interp import trim

if TYPE_CHECKING:
    from tiercel.api import JitFunction

__all__ = ["add_arguments", "run", "run_script"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "-m", dest="module", action="store_true", help="the script is the name of a module, as in python -m"
    )
    parser.add_argument("--json", action="store_true", help="the reports as JSON: a list of objects")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the reports there instead of standard output")
    parser.add_argument("--all", action="store_true", help="also functions that were never called")
    parser.add_argument("script", help="the script to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script gets as its arguments")


def run(options: argparse.Namespace) -> int:
    """Run the script and print the reports."""
    with keep_all() as states:
        code, namespace = run_script(options.script, options.arguments, module=options.module)
    reports = [s.explain() for s in _ordered(states, every=options.all)]
    if options.json:
        text = json.dumps([r.to_dict() for r in reports], indent=2)
    elif reports:
        text = "\n\n".join(map(str, reports))
    else:
        text = f"{options.script}: no jitted function was called" + (
            "" if states else "; is anything decorated with tc.jit?"
        )
    if options.output is None:
        sys.stdout.flush()
        print(text if options.json else f"\n{text}")
    else:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    del namespace  # until here the script's globals were alive, as its functions need them
    return code


def run_script(script: str, arguments: list[str], *, module: bool) -> tuple[int, dict[str, Any]]:
    """Run a script or a module as Python does; its exit code, and its globals, which keep its functions usable.

    Raises:
        TiercelError: there is no such file.
    """
    if not module and not os.path.exists(script):
        raise TiercelError(f"there is no file {script!r}")
    before = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    if module:
        sys.path.insert(0, os.getcwd())
    else:
        # What Python itself puts first when it runs a script.
        sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        if module:
            return 0, runpy.run_module(script, run_name="__main__", alter_sys=True)
        return 0, runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0, {}
        print(stop.code, file=sys.stderr)
        return 1, {}
    except KeyboardInterrupt:
        print("KeyboardInterrupt", file=sys.stderr)
        return 130, {}
    except BaseException as error:  # noqa: BLE001 - the script's, shown as Python shows it
        error.__traceback__ = _script_part(error)
        traceback.print_exception(error)
        return 1, {}
    finally:
        sys.argv, sys.path[:] = before[0], before[1]


def _script_part(error: BaseException) -> Any:
    """The traceback without our frames and those of `runpy`."""
    entry = trim(error.__traceback__, error)
    while entry is not None and entry.tb_frame.f_code.co_filename.startswith(("<frozen runpy", runpy.__file__)):
        entry = entry.tb_next
    return entry


def _ordered(states: list[JitFunction], *, every: bool) -> list[JitFunction]:
    """The states that did something, the most expensive first."""
    spent = {id(s): s.stats() for s in states}
    found = [s for s in states if every or spent[id(s)]["calls"]]
    return sorted(found, key=lambda s: -spent[id(s)]["time_ns"])
