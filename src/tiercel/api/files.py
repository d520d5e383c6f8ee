"""`tc.dump` and `tc.load`: programs to files and back.

In: a jitted function, or a file. Out: a `.msir` file, or a function that runs the loaded program. A file holds
bytecode, constants and what was learned; Python objects it names are given by the reader.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Mapping
from types import CellType
from typing import Any, Final

from tiercel.api.captures import Captured
from tiercel.api.function import JitFunction, state_of
from tiercel.api.wrapper import make_function_of
from tiercel.bytecode import load as load_program
from tiercel.bytecode import save
from tiercel.bytecode.program import Program
from tiercel.errors import CaptureError
from tiercel.interp import run_prepared
from tiercel.interp.bind import constant_defaults
from tiercel.vm.remembered import arguments_like

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
        A jitted function with the signature of the one that was dumped: it has `program`, `explain()`, `stats()`. What
        the file's profile remembers is compiled in the background from now on, before it is hot.

    Raises:
        BytecodeError: the file is damaged, of another version, or names Python objects that `python` lacks.
        OSError: the file cannot be read.
    """
    return LoadedFunction(load_program(path, python=python), python or {}).public


class LoadedFunction(JitFunction):
    """The state of a function that a file was read for: a jitted function without a source.

    What its profile remembers is given to the compiler at once: nothing waits for it, and nothing has to get hot.
    """

    def __init__(self, program: Program, python: Mapping[str, object]) -> None:
        function = program.functions[0]
        namespace: dict[str, Any] = {"__name__": "__tiercel__", "__builtins__": builtins, **python}
        # A variable of the enclosing function is one of the names the reader gives; else reading it is a NameError.
        cells = [CellType(python[name]) if name in python else CellType() for name in function.free]
        self.loaded = program
        stands_for = make_function_of(
            function,
            *constant_defaults(program, function),
            namespace=namespace,
            cells=cells,
            run=self.run_interpreted,
        )
        super().__init__(stands_for)
        self.compile_remembered()

    def _capture(self) -> Captured:
        return Captured(self.loaded)

    def run_interpreted(self, arguments: tuple[Any, ...]) -> Any:
        """Run a call by the interpreter, which is what the undecorated function is here."""
        prepared = self._prepare(False)
        assert prepared is not None
        return run_prepared(prepared, arguments)

    def compile_remembered(self) -> None:
        """Begin to compile for the Signatures in the file's profile."""
        settings = self.settings()
        if self.tiers is None or settings.level == "O0" or settings.deterministic or self.loaded.profile is None:
            return
        seen = self.loaded.profile.functions.get(0)
        for signature in () if seen is None else seen.signatures[:MAX_REMEMBERED]:
            arguments = arguments_like(signature.live_ins, len(self.loaded.functions[0].parameters))
            if arguments is not None:
                self.tiers.begin(settings, arguments)


MAX_REMEMBERED: Final = 4
"""Signatures that are compiled when a file is loaded: tracing one takes milliseconds of the caller's time."""
