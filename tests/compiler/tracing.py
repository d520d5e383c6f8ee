"""Run Python functions through capture, trace, lowering and machine code, next to plain Python."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from tests.compiler.regions import Runner
from tiercel.compiler.environment import Environment, read
from tiercel.compiler.graph import Region
from tiercel.compiler.graph_check import check_region
from tiercel.compiler.passes import prepare
from tiercel.compiler.trace import trace_region, unwrapped
from tiercel.errors import CaptureError
from tiercel.frontend.python import capture
from tiercel.values import Tensor


def program_of(function: FunctionType) -> Any:
    """(bytecode, constants), or None for what is not captured."""
    try:
        program = capture(function).program
    except CaptureError:
        return None
    return program.functions[0], program.constants


class Compiled:
    """A function compiled for the kinds of its first arguments."""

    def __init__(self, function: Callable[..., Any], *example: Any, speculate: bool = True) -> None:
        self.prefix = (function.__self__,) if hasattr(function, "__self__") else ()
        function = getattr(function, "__func__", function)
        self.function: Any = getattr(function, "__wrapped__", function)
        code, constants = program_of(self.function)
        self.environment = Environment(self.function, program_of)
        arguments = (*self.prefix, *example)
        self.region: Region = trace_region(
            code, constants, self.environment, arguments, name=self.function.__name__, speculate=speculate
        )
        check_region(self.region)
        prepare(self.region, check_region)
        self.runner = Runner(self.region)

    def __call__(self, *arguments: Any) -> Any:
        """Run machine code."""
        full = (*self.prefix, *arguments)
        where = {id(self.function.__globals__): self.function.__globals__}
        values = []
        for given in self.region.inputs:
            value = read(given.source, full, where, {id(self.function): self.function})
            array = unwrapped(value)
            values.append(value if array is None else array)
        return self.runner(*values)


def leaves(value: Any) -> list[Any]:
    """The arrays and scalars of nested tuples and lists."""
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in leaves(item)]
    return [] if value is None else [value]


def copied(arguments: Any) -> Any:
    """The arguments with arrays of their own, in tuples and lists as well, of the same strides."""
    if type(arguments) in (tuple, list):
        return type(arguments)(copied(item) for item in arguments)
    if type(arguments) is not np.ndarray or not arguments.flags.writeable:
        return arguments
    array = np.empty_like(arguments) if 0 in arguments.strides else arguments.copy("K")
    if array.strides != arguments.strides and 0 not in arguments.strides and arguments.size:
        whole = np.zeros(
            sum(abs(s) * (n - 1) for s, n in zip(arguments.strides, arguments.shape, strict=True)) + 64, "u1"
        )
        start = sum(-s * (n - 1) for s, n in zip(arguments.strides, arguments.shape, strict=True) if s < 0)
        array = np.ndarray(arguments.shape, arguments.dtype, whole, start, arguments.strides)
    array[...] = arguments
    return array


def compare(function: Callable[..., Any], *argument_sets: tuple[Any, ...], rtol: float = 2e-5) -> Compiled:
    """Compile for the first set, run all sets, compare results and arguments with Python; returns what was compiled."""
    compiled = Compiled(function, *argument_sets[0])
    plain = getattr(function, "__wrapped__", function)
    for arguments in argument_sets:
        ours, theirs = copied(arguments), copied(arguments)
        got = compiled(*ours)
        with np.errstate(all="ignore"):
            want = plain(*theirs)
        arrays = [[a for a in leaves(given) if isinstance(a, np.ndarray)] for given in (ours, theirs)]
        for g, w in zip([*leaves(got), *arrays[0]], [*leaves(want), *arrays[1]], strict=True):
            w = np.asarray(w) if isinstance(w, Tensor) else w
            assert np.shape(g) == np.shape(w)
            if isinstance(w, np.ndarray | np.generic):
                assert np.asarray(g).dtype == w.dtype
            np.testing.assert_allclose(g, w, rtol=rtol, atol=1e-5)
    return compiled
