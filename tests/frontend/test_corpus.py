"""Every corpus function, captured and interpreted, does what the undecorated function does."""

from __future__ import annotations

import importlib
import itertools
import types
from typing import Any

import pytest

import tiercel
from tests.frontend.corpus.support import CASES, Case
from tiercel.errors import CaptureError
from tiercel.frontend.python import capture
from tiercel.interp import Callee, Decoded, Environment, Hooks, binder, decode, run
from tiercel.testing import MODES, Observation, _fresh, differences, observe

MODULES = (
    "arithmetic arrays assignment calls classes closures comprehensions conditions contexts displays exceptions loops "
    "matching outlined unbound"
).split()
for _module in MODULES:
    importlib.import_module(f"tests.frontend.corpus.{_module}")

# A call of each function reaches the helpers of its module as frames, as under `tiercel.jit`.
_decoded: dict[types.CodeType, Decoded | None] = {}


def decoded_of(function: types.FunctionType) -> Decoded | None:
    code = function.__code__
    if code not in _decoded:
        try:
            captured = capture(function)
        except CaptureError:
            _decoded[code] = None
        else:
            environment = Environment(function.__globals__, function.__module__, {})
            _decoded[code] = decode(captured.program, 0, environment=environment)
    return _decoded[code]


def on_callee(callee: Any) -> Callee | None:
    bound, is_bound = None, False
    if isinstance(callee, types.MethodType):
        bound, callee, is_bound = callee.__self__, callee.__func__, True
    if not isinstance(callee, types.FunctionType) or not callee.__module__.startswith("tests.frontend.corpus"):
        return None
    decoded = decoded_of(callee)
    return None if decoded is None else Callee(decoded, callee.__closure__ or (), bound, callee, is_bound)


COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
HOOKS = Hooks(on_callee=on_callee)


def interpreted(function: types.FunctionType) -> Any:
    decoded = decoded_of(function)
    assert decoded is not None
    bind = binder(decoded.bind_code, function.__defaults__, function.__kwdefaults__)

    def call(*args: Any, **kwargs: Any) -> Any:
        return run(decoded, bind(*args, **kwargs), function.__closure__ or (), hooks=HOOKS)

    return call


def cold(function: types.FunctionType) -> types.FunctionType:
    """A copy that never ran: CPython's own positions are off where warm code has joined two instructions."""
    code = function.__code__.replace()
    made = types.FunctionType(code, function.__globals__, None, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def compare(expected: Observation, actual: Observation, where: str) -> None:
    # Ours shows no frames of comprehensions (as from 3.12 on), but the frame of `call`.
    expected.traceback = [e for e in expected.traceback if e[2] not in COMPREHENSIONS]
    actual.traceback = [e for e in actual.traceback if e[0] != __file__]
    found = differences(expected, actual)
    assert not found, f"{where}:\n" + "\n".join(found)


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_jitted_like_python(case: Case) -> None:
    jitted = tiercel.jit(case.function)
    for given in case.sets:
        for mode in MODES:
            expected = observe(cold(case.function), _fresh(given), mode=mode)
            for _ in range(2):
                compare(expected, observe(jitted, _fresh(given), mode=mode), f"{_fresh(given)} in mode {mode!r}")


def positions(error: BaseException, function: types.FunctionType) -> list[tuple[Any, ...]]:
    """Where the frames of the function itself were: lines and columns, as the carets of a traceback show them."""
    found = []
    entry = error.__traceback__
    while entry is not None:
        code = entry.tb_frame.f_code
        if (code.co_filename, code.co_name) == (function.__code__.co_filename, function.__code__.co_name):
            found.append(next(itertools.islice(code.co_positions(), entry.tb_lasti // 2, None)))
        entry = entry.tb_next
    return found


# What fails is the look-up of an attribute that was fused with what is done with it, or the frame of a comprehension.
UNPLACED = (
    "calls.append_on_anything",
    "calls.append_looks_up_first",
    "calls.dims",
    "comprehensions.",
    "unbound.in_nested",
)


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_interpreted_like_python(case: Case) -> None:
    captured = interpreted(case.function)
    for given in case.sets:
        expected, actual = observe(cold(case.function), _fresh(given)), observe(captured, _fresh(given))
        compare(expected, actual, repr(_fresh(given)))
        if expected.exception is not None and not case.name.startswith(UNPLACED):
            assert actual.exception is not None
            assert positions(expected.exception, case.function) == positions(actual.exception, case.function)


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_runs_as_python_only_where_it_must(case: Case) -> None:
    reasons = capture(case.function).reasons
    assert bool(reasons) != case.native, reasons


def test_size_of_the_corpus() -> None:
    assert len({c.name for c in CASES}) >= 200
