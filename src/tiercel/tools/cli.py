"""The command `tiercel`: which words it takes, and what an error looks like.

In: arguments. Out: an exit code: 0, 1 for a failure, 2 for wrong arguments, 130 after Ctrl-C; `explain` passes on that
of the script. Each command is a module beside this one with `add_arguments(parser)` and `run(options)`, imported when
the command is named, so `tiercel --version` is quick.

Mistakes of the user's (a file that is not there, a program that is refused) are one line on stderr, never a traceback;
bugs of ours keep theirs.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from tiercel._version import __version__
from tiercel.errors import TiercelError, suggest

__all__ = ["COMMANDS", "main"]

# Command -> its module in this package, and one line of help.
COMMANDS: Final = {
    "demo": ("demo", "run the main job: an LSTM whose batch and length change from call to call"),
    "dis": ("disassemble", "print the bytecode of a .msir file or of a function"),
    "asm": ("assemble", "make a .msir file of a printed program"),
    "explain": ("explain", "run a script, then tell what its jitted functions did and why"),
    "tune": ("tune", "run a script, then find the fastest ways to compute its products of matrices"),
    "stages": ("stages", "print the forms of a function on its way to machine code"),
    "bench": ("bench", "compare with NumPy, torch, ONNX Runtime, JAX and Numba, or run a checkout's measurements"),
    "doctor": ("doctor", "tell what is installed, what is on, and what is not and why"),
    "cache": ("cache", "list or clear the kernels kept on disk"),
}


class _Parser(argparse.ArgumentParser):
    """Suggests the nearest command for a misspelt one."""

    def error(self, message: str) -> NoReturn:
        words = [a for a in sys.argv[1:] if not a.startswith("-")] if self.prog == "tiercel" else []
        if "invalid choice" in message:
            word = message.partition("'")[2].partition("'")[0]
            message = f"there is no command {word!r}{suggest(word, [*COMMANDS, 'help'])}"
        elif words and "unrecognized" in message:
            message = message.replace("unrecognized arguments", "unknown arguments")
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the words after `tiercel`; those of the process by default.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(words)
    except TiercelError as error:
        print(f"tiercel: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read our output (`| head`) has enough. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"tiercel: {place}{error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tiercel: interrupted", file=sys.stderr)
        return 130


def _run(words: list[str]) -> int:
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    name = next((w for w in words if not w.startswith("-")), None)
    parser = _Parser(
        prog="tiercel",
        description="Tiercel runs NumPy programs whose shapes change from call to call.",
        epilog="`tiercel help COMMAND` tells more about one of them.",
    )
    parser.add_argument("--version", action="version", version=f"tiercel {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", parser_class=_Parser)
    for command, (module, about) in COMMANDS.items():
        sub = commands.add_parser(command, help=about, description=f"{about[0].upper()}{about[1:]}.")
        if command == name:
            importlib.import_module(f"tiercel.tools.{module}").add_arguments(sub)
    try:
        options = parser.parse_args(words)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    if options.command is None:
        parser.print_help()
        return 0
    module = COMMANDS[options.command][0]
    code: int = importlib.import_module(f"tiercel.tools.{module}").run(options)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
