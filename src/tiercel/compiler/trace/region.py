"""Tracing a whole function, with assumptions about sizes.

In: bytecode, environment and the values of one call. Out: a `Region`, or `Untraceable`.

The function is traced again whenever it combined two sizes that are not known to be equal but are in this call: they
are then assumed equal, which the entry guards, because kernels on sizes that may broadcast are slower and some rules
need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiercel.bytecode.program import Function
from tiercel.compiler.abstract import Known, Untraceable
from tiercel.compiler.environment import Environment
from tiercel.compiler.graph import Graph, Region, Result
from tiercel.compiler.trace.arguments import abstract_argument, result_of, signature_text
from tiercel.compiler.trace.objects import Cell
from tiercel.compiler.trace.state import Raised, Returned, Trace
from tiercel.compiler.trace.walk import Frame
from tiercel.errors import TiercelError
from tiercel.operators.types import ArrayType
from tiercel.shapes import DimLike, Facts, Symbol, substitute, symbols_of
from tiercel.shapes import Range as DimRange
from tiercel.shapes import evaluate as size_of


def trace_region(
    function: Function,
    constants: Sequence[Any],
    environment: Environment,
    arguments: Sequence[Any],
    *,
    name: str = "region",
    speculate: bool = True,
) -> Region:
    """Trace a whole function for the kinds of values given.

    Args:
        function: its bytecode.
        constants: the constants of its program.
        environment: its surroundings.
        arguments: one value per parameter; only their types are used (and the identity of objects).
        name: of the region.
        speculate: where the code combines two sizes that are not known to be equal but are in these arguments,
            assume it: the region is then guarded to be entered only with sizes that agree.

    Raises:
        Untraceable: with the reason and the instruction.
    """
    substitution: dict[str, DimLike] = {}
    for _ in range(MAX_ASSUMPTIONS):
        trace = Trace(Facts())
        trace.substitution = substitution
        environment.conditions.clear()
        environment.classes.clear()
        region: Region | None = None
        failure: Untraceable | None = None
        try:
            region = _trace_once(trace, function, constants, environment, arguments, name)
        except Untraceable as error:
            failure = error
        if speculate and _assume(trace, substitution):
            continue
        if failure is not None:
            raise failure
        assert region is not None
        return region
    raise Untraceable("sizes that are compared in too many ways")


MAX_ASSUMPTIONS = 16
"""Traces of one region, each with one more round of sizes assumed equal."""


def _assume(trace: Trace, substitution: dict[str, DimLike]) -> bool:
    """Turn wishes that the arguments fulfil into assumptions; true if there are new ones."""
    new = False
    for a, b in trace.pairs:
        a, b = substitute(a, substitution), substitute(b, substitution)
        if a == b:
            continue
        try:
            agree = size_of(a, trace.sample) == size_of(b, trace.sample)
        except TiercelError:
            continue  # a size that only running decides
        if not agree:
            continue
        if not isinstance(a, Symbol):
            a, b = b, a
        if not isinstance(a, Symbol) or a in symbols_of(b) or (isinstance(b, int) and b < 2):
            continue
        for known, dim in substitution.items():
            substitution[known] = substitute(dim, {a.name: b})
        substitution[a.name] = b
        new = True
    return new


def _trace_once(
    trace: Trace,
    function: Function,
    constants: Sequence[Any],
    environment: Environment,
    arguments: Sequence[Any],
    name: str,
) -> Region:
    frame = Frame(trace, function, constants, environment, None)
    for register, (parameter, value) in enumerate(zip(function.parameters, arguments, strict=True)):
        frame.registers[register] = abstract_argument(frame, value, parameter.name, ("register", register))
    for given in trace.inputs:
        for dim in given.value.type.shape if isinstance(given.value.type, ArrayType) else ():
            if isinstance(dim, Symbol):
                trace.facts.set_range(dim, DimRange(0, None))
    for position in range(len(function.free)):
        frame.registers[len(function.parameters) + position] = Known(Cell(position))
    trace.frames.append(frame)
    outcome = frame.walk(0, frozenset())
    if isinstance(outcome, Raised):
        raise Untraceable("it always raises", outcome.index)
    assert isinstance(outcome, Returned)
    result = result_of(frame, outcome.value, set())
    graph = Graph(tuple(trace.steps))
    exits: dict[int | str, dict[int | str, Result]] = {"return": {"return": result}}
    signature = signature_text(trace.inputs)
    return Region(
        name, 0, 0, tuple(trace.inputs), graph, exits, trace.facts, signature, sample=dict(trace.sample)
    )  # fmt: skip
