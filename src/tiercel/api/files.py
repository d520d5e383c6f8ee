"""`tc.dump` and `tc.load`: programs to files and back.

In: a jitted function, or a file. Out: a `.msir` file, or a function that runs the loaded program. A file holds
bytecode, constants and what was learned; Python objects it names are given by the reader.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import CellType
from typing import Any

from tiercel.api.function import state_of
from tiercel.api.notes import explain_error
from tiercel.api.wrapper import make_function_of
from tiercel.bytecode import load as load_program
from tiercel.bytecode import save
from tiercel.bytecode.program import Program
from tiercel.errors import CaptureError
from tiercel.interp import Environment, decode, run, trim_error
from tiercel.interp.bind import constant_defaults
from tiercel.vm import machine

__all__ = ["dump", "load"]


def dump(function: Any, path: str | os.PathLike[str]) -> None:
    """Write the program of a jitted function, with what was learned so far, to a `.msir` file.

    Args:
        function: a jitted function, or a `Program`.
        path: the file; it is replaced as a whole or not at all.

    Raises:
        CaptureError: the function runs as Python and has no program.
        TypeError: it is no jitted function.
        OSError: the file cannot be written.
    """
    if isinstance(function, Program):
        save(function, path)
        return
    state = state_of(function)
    program = state.program
    if program is None:
        error = state.captured.error
        assert error is not None
        raise CaptureError(
            f"{state.name} has no program to dump, it runs as Python: {error.reason}",
            filename=error.filename,
            line=error.line,
        )
    save(program, path)


def load(path: str | os.PathLike[str], python: Mapping[str, object] | None = None) -> Any:
    """Return a function that runs the program of a `.msir` file.

    Args:
        path: the file.
        python: what the names in the program stand for: globals it reads and objects it refers to. Python's builtins
            need not be given.

    Returns:
        A function with the signature of the one that was dumped, and its program as the attribute `program`.

    Raises:
        BytecodeError: the file is damaged, of another version, or names Python objects that `python` lacks.
        OSError: the file cannot be read.
    """
    program = load_program(path, python=python)
    decoded = decode(program, environment=Environment.empty(python))
    function = decoded.function

    # A variable of the enclosing function is one of the names that the reader gives; else reading it is a NameError.
    cells = tuple(CellType(python[n]) if python and n in python else CellType() for n in function.free)

    hooks = machine().hooks()

    def run_it(arguments: tuple[Any, ...]) -> Any:
        return run(decoded, arguments, cells, hooks=hooks)

    def leave(error: BaseException) -> None:
        trim_error(error)
        explain_error(error)

    made = make_function_of(function, *constant_defaults(program, function), run=run_it, leave=leave)
    made.__dict__["program"] = program
    return made
