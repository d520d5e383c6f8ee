"""Random functions do the same captured as they do in Python. `TIERCEL_TEST_PROGRAMS=20000` looks at more of them."""

from __future__ import annotations

import copy
import importlib.util
import os
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.frontend.programs import module
from tiercel.errors import CaptureError
from tiercel.frontend.python import capture
from tiercel.interp import Callee, Environment, Hooks, decode, run

COUNT = int(os.environ.get("TIERCEL_TEST_PROGRAMS", "100"))
PER_MODULE = 25
ARGUMENTS = [(0, 1), (1, 0), (2, 3), (3, [1, 2]), ("s", None)]
# Frames of comprehensions and of generators that are consumed at once are not shown.
UNSEEN = ("<listcomp>", "<genexpr>", "<dictcomp>")


class Stopped(BaseException):
    pass


def outcome(call: Any, a: Any, b: Any) -> tuple[Any, ...]:
    """What a call did: its result or exception with context and lines, and the log."""
    a, b = copy.deepcopy((a, b))
    log: list[Any] = []
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1
        if ticks > 15:
            raise Stopped

    try:
        result: Any = ("returned", repr(call(log, tick, a, b)))
    except Stopped:
        result = "stopped"
    except Exception as error:
        result = chain(error)
    return result, repr(log)


def chain(error: BaseException | None, depth: int = 6) -> Any:
    if error is None or depth == 0:
        return None
    lines = []
    entry = error.__traceback__
    while entry is not None:
        code = entry.tb_frame.f_code
        if "random_programs" in code.co_filename and code.co_name not in UNSEEN:
            lines.append((code.co_name, entry.tb_lineno))
        entry = entry.tb_next
    return (
        type(error).__name__,
        str(error),
        lines,
        error.__suppress_context__,
        chain(error.__cause__, depth - 1),
        chain(error.__context__, depth - 1),
    )


def cold(function: types.FunctionType) -> types.FunctionType:
    return types.FunctionType(function.__code__.replace(), function.__globals__, None, None, function.__closure__)


def interpreted(function: types.FunctionType, decoded: dict[Any, Any]) -> Any:
    def on_callee(callee: Any) -> Callee | None:
        if not isinstance(callee, types.FunctionType) or callee.__globals__ is not function.__globals__:
            return None
        code = callee.__code__
        if code not in decoded:
            try:
                program = capture(callee, source=nested.get(code)).program
            except CaptureError:
                decoded[code] = None
            else:
                decoded[code] = decode(program, environment=Environment(callee.__globals__, None))
        return None if decoded[code] is None else Callee(decoded[code], callee.__closure__ or (), None, callee)

    captured = capture(function)
    nested = captured.nested
    made = decode(captured.program, environment=Environment(function.__globals__, None))
    hooks = Hooks(on_callee=on_callee)
    return lambda *args: run(made, args, hooks=hooks)


@pytest.mark.parametrize("seed", range(max(1, COUNT // PER_MODULE)))
def test_random_programs(seed: int, tmp_path: Path) -> None:
    path = tmp_path / f"random_programs_{seed}.py"
    path.write_text(module(seed, PER_MODULE))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec.loader.exec_module(made)
    decoded: dict[Any, Any] = {}
    for number in range(PER_MODULE):
        function = getattr(made, f"f{number}")
        call = interpreted(function, decoded)
        for a, b in ARGUMENTS:
            expected = outcome(cold(function), a, b)
            actual = outcome(call, a, b)
            if expected != actual:
                text = sys.modules["linecache"].getlines(str(path))  # type: ignore[attr-defined]
                first = function.__code__.co_firstlineno - 1
                source = "".join(text[first : first + 60]).split("\ndef ")[0]
                raise AssertionError(
                    f"f{number}(log, tick, {a!r}, {b!r})\n{source}\npython  {expected}\nours    {actual}"
                )
