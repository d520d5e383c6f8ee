"""`tiercel stages`: one function through every form it takes on its way to machine code.

In: a function and the kinds of its arguments. Out: its bytecode, region graph as traced and as prepared for lowering,
loop form, LLVM IR and assembly, with what each stage took. LLVM is imported in this process: the command exists to
look, not to run.
"""

from __future__ import annotations

import argparse
import re
import time
from types import FunctionType
from typing import Any

import numpy as np

from tiercel.api import is_jitted, state_of
from tiercel.api.captures import CalleeTable, capture
from tiercel.compiler.abstract import Untraceable
from tiercel.compiler.elementwise import NotLowered
from tiercel.compiler.environment import Environment
from tiercel.compiler.lower import lower_region
from tiercel.compiler.trace import trace_region
from tiercel.dtypes import as_dtype
from tiercel.errors import TiercelError
from tiercel.loops import IllFormed
from tiercel.tools.find import find_function
from tiercel.vm.forms import Forms

__all__ = ["STAGES", "add_arguments", "argument_of", "run"]

STAGES = ("bytecode", "graph", "prepared", "loops", "llvm", "assembly")
_SPEC = re.compile(r"(?P<dtype>\w+)\[(?P<shape>[\d,\s]*)\]")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("target", metavar="MODULE:FUNCTION", help="or SCRIPT.py:FUNCTION")
    parser.add_argument(
        "arguments", nargs="*", metavar="ARGUMENT", help="float32[4, 8] for an array of that kind, or a number"
    )
    parser.add_argument("--only", choices=STAGES, action="append", help="print this form (may be repeated)")


def argument_of(text: str) -> Any:
    """The argument that a word describes: an array of ones, or a Python number.

    Raises:
        TiercelError: it is neither.
    """
    found = _SPEC.fullmatch(text.strip())
    if found is not None:
        shape = tuple(int(part) for part in found["shape"].split(",") if part.strip())
        return np.ones(shape, as_dtype(found["dtype"]).numpy)
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise TiercelError(f"{text!r} describes no argument; expected float32[4, 8], an int or a float")


def _header(title: str, elapsed_ms: float | None = None) -> None:
    took = "" if elapsed_ms is None else f"  ({elapsed_ms:.1f} ms)"
    print(f"==== {title}{took} " + "=" * max(0, 90 - len(title) - len(took)))


def run(options: argparse.Namespace) -> int:
    """Print the forms.

    Raises:
        TiercelError: there is no such function, it has no bytecode, or it is not compiled; the message says where.
    """
    module, colon, name = options.target.rpartition(":")
    if not colon:
        raise TiercelError(f"{options.target!r} names no function; expected MODULE:FUNCTION or SCRIPT.py:FUNCTION")
    function = find_function(module, name)
    if is_jitted(function):
        function = state_of(function).function
    if not isinstance(function, FunctionType):
        raise TiercelError(f"{options.target} is a {type(function).__name__}, not a Python function")
    wanted = options.only or STAGES
    program = capture(function).program
    if program is None:
        error = capture(function).error
        raise TiercelError(f"{name} runs as Python: {error.reason if error else 'no bytecode'}")
    table = CalleeTable((function.__module__ or "").partition(".")[0])

    def program_of(inner: FunctionType) -> Any:
        found = table.program_of(inner)
        return None if found is None else (found.functions[0], found.constants)

    if "bytecode" in wanted:
        _header("bytecode")
        print(program)
    arguments = [argument_of(word) for word in options.arguments]
    expected = len(program.functions[0].parameters)
    if len(arguments) != expected:
        raise TiercelError(f"{name} takes {expected} arguments, {len(arguments)} are described")
    body = program.functions[0]
    began = time.perf_counter()
    try:
        region = trace_region(body, program.constants, Environment(function, program_of), arguments, name=name)
        traced = time.perf_counter()
        lowered = lower_region(region)
        lowered_at = time.perf_counter()
    except (Untraceable, NotLowered) as error:
        index = error.index if isinstance(error, Untraceable) else error.origin
        line = body.line_of(index) if index is not None and index < len(body.instructions) else None
        where = f" (line {line})" if line else ""
        raise TiercelError(f"{name} stays interpreted: {error.reason}{where}") from None
    forms = Forms(region, lowered)
    if "graph" in wanted:
        _header("region graph", (traced - began) * 1e3)
        print(forms.text("graph"))
    if "prepared" in wanted:
        _header("prepared graph")
        print(forms.text("prepared"))
    if "loops" in wanted:
        _header("loop form", (lowered_at - traced) * 1e3)
        print(forms.text("loops"))
    try:
        for form, title in (("llvm", "LLVM IR"), ("assembly", "assembly")):
            if form in wanted:
                began = time.perf_counter()
                text = forms.text(form)
                _header(title, (time.perf_counter() - began) * 1e3)
                print(text)
    except IllFormed as error:
        raise TiercelError(f"{name} stays interpreted: {error}") from None
    return 0
