"""Finds the program that words on a command line name: a `.msir` file, `module:function`, or `script.py:function`.

In: the words. Out: a `Program`. Functions need not be jitted: what `tc.jit` would make of one is what is shown. Modules
are imported with the current folder on the path, scripts under a name of their own, so that code behind
`if __name__ == "__main__"` does not run.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from types import FunctionType, MethodType, ModuleType
from typing import Any

from tiercel import bytecode
from tiercel.api import is_jitted, state_of
from tiercel.bytecode.program import Program
from tiercel.errors import CaptureError, TiercelError, suggest

__all__ = ["find_function", "find_program"]


def find_program(target: str) -> Program:
    """Return the program that a target names.

    Args:
        target: `FILE.msir`, `package.module:function`, `package.module:Class.method` or `script.py:function`.

    Raises:
        TiercelError: there is no such file, module or function, or the function has no program.
        BytecodeError: the file is damaged.
        OSError: the file cannot be read.
    """
    module, colon, name = target.rpartition(":")
    if not colon or os.path.exists(target):
        if not os.path.exists(target) and not target.endswith(".msir"):
            raise TiercelError(
                f"{target!r} is no file; expected FILE.msir, package.module:function or script.py:function"
            )
        if target.endswith(".py"):
            raise TiercelError(f"{target!r} names no function; expected {target}:FUNCTION")
        # What Python objects the program needs does not matter for reading it.
        return bytecode.load(target, resolve=False)
    return _program_of(find_function(module, name), target)


def find_function(module: str, name: str) -> Any:
    """Return the object `name` (dots allowed) of a module or script.

    Raises:
        TiercelError: it is not there, or the module cannot be imported.
    """
    found: Any = _script(module) if module.endswith(".py") else _module(module)
    path = module
    for part in name.split("."):
        if not part or not hasattr(found, part):
            known = [n for n in dir(found) if not n.startswith("__")]
            raise TiercelError(f"{path} has no {part!r}{suggest(part, known)}")
        found = getattr(found, part)
        path += f"{':' if path == module else '.'}{part}"
    return found


def _module(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        with _quiet():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(f"{missing}."):
            raise TiercelError(f"there is no module {name!r} (looked in {here} and the installed packages)") from None
        raise TiercelError(f"importing {name} failed: {error}") from error
    except Exception as error:
        raise TiercelError(f"importing {name} failed: {type(error).__name__}: {error}") from error


def _script(path: str) -> ModuleType:
    if not os.path.exists(path):
        raise TiercelError(f"there is no file {path!r}")
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        with _quiet():
            spec.loader.exec_module(module)
    except Exception as error:
        raise TiercelError(f"importing {path} failed: {type(error).__name__}: {error}") from error
    return module


def _quiet() -> contextlib.AbstractContextManager[Any]:
    """What a module prints while it is imported is not what was asked for."""
    return contextlib.redirect_stdout(sys.stderr)


def _program_of(function: Any, target: str) -> Program:
    if isinstance(function, Program):
        return function
    if isinstance(function, property):
        function = function.fget
    if isinstance(function, MethodType):
        function = function.__func__
    if is_jitted(function):
        state = state_of(function)
        if state.program is None:
            assert state.captured.error is not None
            raise _no_program(target, state.captured.error)
        return state.program
    program = getattr(function, "program", None)
    if isinstance(program, Program):
        return program
    if not isinstance(function, FunctionType):
        raise TiercelError(f"{target} is of type {type(function).__name__}; expected a function")
    from tiercel.frontend.python import capture

    try:
        return capture(function).program
    except CaptureError as error:
        raise _no_program(target, error) from None


def _no_program(target: str, error: CaptureError) -> TiercelError:
    return TiercelError(f"{target} has no bytecode, it runs as Python: {error}")
