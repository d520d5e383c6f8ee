"""`tiercel asm`: makes a `.msir` file of a printed program.

In: text as `tiercel dis` prints it, or written by hand. Out: the file, after the verifier accepted the program.
"""

from __future__ import annotations

import argparse
import os
import sys

from tiercel.bytecode import from_text, save
from tiercel.bytecode.verify import verify
from tiercel.errors import TiercelError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("text", help="the file with the text; - for standard input")
    parser.add_argument("-o", "--output", metavar="FILE.msir", help="default: the name of the text, ending in .msir")
    parser.add_argument("--force", action="store_true", help="replace an output file that exists")


def run(options: argparse.Namespace) -> int:
    """Assemble, verify, write."""
    if options.text == "-":
        if options.output is None:
            raise TiercelError("reading standard input: say where to write with -o FILE.msir")
        text = sys.stdin.read()
    else:
        try:
            with open(options.text, encoding="utf-8") as file:
                text = file.read()
        except UnicodeDecodeError:
            raise TiercelError(f"{options.text} is no text; `tiercel dis {options.text}` prints a .msir file") from None
    output = options.output or os.path.splitext(options.text)[0] + ".msir"
    if os.path.exists(output) and not options.force:
        raise TiercelError(f"{output} exists; --force replaces it")
    program = from_text(text)
    verify(program)
    save(program, output)
    size = os.path.getsize(output)
    count = sum(len(f.instructions) for f in program.functions)
    print(f"{output}: {len(program.functions)} functions, {count} instructions, {size} bytes")
    return 0
