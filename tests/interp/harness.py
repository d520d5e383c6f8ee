"""Running a captured function beside the original: what the tests of the interpreter share."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from tiercel.errors import CaptureError
from tiercel.frontend.python import capture
from tiercel.interp import Callee, Decoded, Environment, Hooks, decode, run
from tiercel.testing import Arguments, Observation, copy_arguments, differences, observe

_decoded: dict[Any, Decoded | None] = {}


def decoded_of(function: FunctionType, **options: Any) -> Decoded | None:
    """The decoded form of a function; None if it can only run as Python."""
    key = (function.__code__, tuple(options.items()))
    if key not in _decoded:
        try:
            program = capture(function).program
        except CaptureError:
            _decoded[key] = None
        else:
            _decoded[key] = decode(program, environment=Environment(function.__globals__), **options)
    return _decoded[key]


def cells(function: FunctionType, decoded: Decoded) -> tuple[Any, ...]:
    by_name = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return tuple(by_name[n] for n in decoded.function.free)


def on_callee(target: object) -> Callee | None:
    """Every Python function of the test modules is a frame."""
    if type(target) is not FunctionType or "tests" not in target.__code__.co_filename:
        return None
    decoded = decoded_of(target)
    return None if decoded is None else Callee(decoded, cells(target, decoded), None, target)


def interpreted(function: FunctionType, **options: Any) -> Callable[..., Any]:
    """A stand-in that runs the function on the interpreter."""
    decoded = decoded_of(function, **options)
    assert decoded is not None, f"{function} cannot be captured"
    hooks = Hooks(on_callee=on_callee)

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        from tiercel.interp import binder

        bind = binder(decoded.bind_code, function.__defaults__, function.__kwdefaults__)
        return run(decoded, bind(*args, **kwargs), cells(function, decoded), hooks=hooks)

    # `observe` leaves out frames of the package; these two are ours as well.
    stand_in.__code__ = stand_in.__code__.replace(co_filename=decode.__code__.co_filename)
    return stand_in


def compare(function: FunctionType, *args: Any, mode: str = "default", **options: Any) -> tuple[Observation, list[str]]:
    """Run both, and return what the original did and how the other differs."""
    given = Arguments(args)
    expected = observe(function, copy_arguments(given), mode=mode)
    actual = observe(interpreted(function, **options), copy_arguments(given), mode=mode)
    return expected, differences(expected, actual, carets=True)
