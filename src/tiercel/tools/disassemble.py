"""`tiercel dis`: prints a program.

In: a `.msir` file, or a function by name. Out: its listing, which `tiercel asm` reads; on a terminal with comments and
names coloured.
"""

from __future__ import annotations

import argparse
import re
import sys

from tiercel.bytecode import to_text
from tiercel.tools.find import find_program

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("target", help="FILE.msir, package.module:function or script.py:function")
    parser.add_argument(
        "--full",
        action="store_true",
        help="everything that `asm` needs for an identical file: constants, spans, profile",
    )
    parser.add_argument("--grep", metavar="PATTERN", help="only lines that match, with the function they are in")


def run(options: argparse.Namespace) -> int:
    """Print the program. Returns 1 if `--grep` finds nothing."""
    text = to_text(find_program(options.target), data=options.full)
    lines = text.splitlines()
    if options.grep is not None:
        lines = _matching(lines, options.grep)
        if not lines:
            print(f"tiercel: nothing in {options.target} matches {options.grep!r}", file=sys.stderr)
            return 1
    coloured = sys.stdout.isatty()
    for line in lines:
        print(_colour(line) if coloured else line)
    return 0


def _matching(lines: list[str], pattern: str) -> list[str]:
    wanted = re.compile(pattern)
    out: list[str] = []
    head = ""
    for line in lines:
        if line.startswith("def "):
            head = line
        elif wanted.search(line):
            if head:
                out.append(head)
                head = ""
            out.append(line)
    return out


def _colour(line: str) -> str:
    code, separator, comment = line.partition("  ; ")
    code = re.sub(r"^(def \S+?)(?=\()", "\033[1m\\1\033[0m", code)
    code = re.sub(r"^(\s+0x[0-9A-F]+)(\s+)(\w+)", "\033[2m\\1\033[0m\\2\033[36m\\3\033[0m", code)
    return f"{code}\033[2m{separator}{comment}\033[0m" if separator else code
