"""Tracing a whole function, with assumptions about sizes.

In: bytecode, environment and the values of one call. Out: a `Region`, or `Untraceable`.

The function is traced again whenever it combined two sizes that are not known to be equal but are in this call: they
are then assumed equal, which the entry guards, because kernels on sizes that may broadcast are slower and some rules
need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from tiercel.bytecode.program import Function
from tiercel.compiler.abstract import Known, Untraceable
from tiercel.compiler.environment import Environment
from tiercel.compiler.graph import Graph, Region, Result
from tiercel.compiler.trace.arguments import Seen, abstract_argument, named, result_of, signature_text, writes_of
from tiercel.compiler.trace.objects import Cell
from tiercel.compiler.trace.state import Raised, Returned, Trace
from tiercel.compiler.trace.walk import Frame
from tiercel.errors import TiercelError
from tiercel.operators.types import ArrayType
from tiercel.shapes import Dim, DimLike, Facts, Symbol, product, solve_for_symbol, substitute, symbols_of
from tiercel.shapes import Range as DimRange
from tiercel.shapes import evaluate as size_of
from tiercel.shapes.dims import Node, Sum

T = TypeVar("T")


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
            assume it: the region is then guarded to be entered only with sizes that agree. What cannot be followed for
            any sizes is followed for those that agree, and branch, as these do.

    Raises:
        Untraceable: with the reason and the instruction.
    """

    def make(trace: Trace) -> Region:
        return _trace_once(trace, function, constants, environment, arguments, name)

    try:
        return assuming(make, environment, speculate)
    except Untraceable as error:
        if speculate and not error.sized:
            raise  # it would fail again
        try:
            return assuming(make, environment, True, specialise=True)
        except Untraceable:
            raise error from None


def assuming(make: Callable[[Trace], T], environment: Environment, speculate: bool, *, specialise: bool = False) -> T:
    """Trace again and again until no more sizes are to be assumed equal.

    Args:
        make: traces into a new `Trace`.
        environment: forgets the conditions of the traces before.
        speculate: whether anything is assumed.
        specialise: of branches on sizes, compile only the arms that these sizes take, instead of both.

    Raises:
        Untraceable: as `make` does, or for too many assumptions.
    """
    substitution: dict[str, DimLike] = {}
    for _ in range(MAX_ASSUMPTIONS):
        trace = Trace(Facts())
        trace.substitution, trace.speculate, trace.specialise = substitution, speculate, specialise
        environment.conditions.clear()
        environment.classes.clear()
        made: T | None = None
        failure: Untraceable | None = None
        try:
            made = make(trace)
        except Untraceable as error:
            failure = error
        if speculate and _assume(trace, substitution):
            continue
        if failure is not None:
            failure.sized = bool(trace.conditions)
            raise failure
        assert made is not None
        return made
    raise Untraceable("sizes that are compared in too many ways")


MAX_ASSUMPTIONS = 16
"""Traces of one region, each with one more round of sizes assumed equal."""


def _assume(trace: Trace, substitution: dict[str, DimLike]) -> bool:
    """Turn wishes that the arguments fulfil into assumptions; true if there are new ones."""
    new = False
    for pair in trace.pairs:
        a, b = (substitute(size, substitution) for size in pair)
        try:
            if a == b or size_of(a, trace.sample) != size_of(b, trace.sample):
                continue
            found = solve_for_symbol(a, b) or _beyond_extremes(a, b, trace)
        except (TiercelError, ZeroDivisionError):
            continue  # a size that only running decides
        # A size is not taken to be 0 or 1: whether it broadcasts is decided when running.
        if found is None or (isinstance(found[1], int) and found[1] < 2):
            continue
        symbol, value = found
        if trace.volatile & {s.name for s in (symbol, *symbols_of(value))}:
            continue
        for known, dim in substitution.items():
            substitution[known] = substitute(dim, {symbol.name: value})
        substitution[symbol.name] = value
        new = True
    return new


def _beyond_extremes(a: DimLike, b: DimLike, trace: Trace) -> tuple[Symbol, DimLike] | None:
    """What makes two sizes agree that contain min or max, such as those of `x[:, :H]` and `x[:, 2*H:]`.

    Each min and max is taken for the argument that it is for these sizes. If the two are then the same, what may be
    assumed is that the longer of what is compared is a multiple of the shorter, as a matrix of several gates is.
    """
    known = trace.facts.simplify
    one, two = _decided(known(a), trace.sample), _decided(known(b), trace.sample)
    if one != two:
        return solve_for_symbol(one, two)
    for node in (*_extremes(known(a)), *_extremes(known(b))):
        for symbol in node.args:
            for unit in node.args:
                if not isinstance(symbol, Symbol) or not isinstance(unit, Dim) or symbol in symbols_of(unit):
                    continue
                long, short = trace.sample.get(symbol.name, 0), size_of(unit, trace.sample)
                if short >= 2 and long >= 2 * short and not long % short:
                    return symbol, unit * (long // short)
    return None


def _extremes(x: DimLike) -> list[Node]:
    """The min, max and bcast nodes in a size, outer ones first."""
    if isinstance(x, Node):
        own = [x] if x.op in _EXTREMES else []
        return own + [n for arg in x.args for n in _extremes(arg)]
    terms = x.terms if isinstance(x, Sum) else ()
    return [n for monomial, _ in terms for factor in monomial for n in _extremes(factor)]


def _decided(x: DimLike, sample: Mapping[str, int]) -> DimLike:
    """The size with every min, max and bcast replaced by the argument it is for these sizes."""
    if isinstance(x, Node) and x.op in _EXTREMES:
        size = size_of(x, sample)
        same = [arg for arg in x.args if size_of(arg, sample) == size]
        return _decided(next((arg for arg in same if isinstance(arg, Dim)), same[0]), sample)
    if not isinstance(x, Sum):
        return x
    return sum(
        (coefficient * product(_decided(factor, sample) for factor in monomial) for monomial, coefficient in x.terms),
        start=0,
    )


_EXTREMES: Final = ("min", "max", "bcast")


def _trace_once(
    trace: Trace,
    function: Function,
    constants: Sequence[Any],
    environment: Environment,
    arguments: Sequence[Any],
    name: str,
) -> Region:
    frame = Frame(trace, function, constants, environment, None)
    trace.frames.append(frame)
    for register, (parameter, value) in enumerate(zip(function.parameters, arguments, strict=True)):
        frame.registers[register] = abstract_argument(frame, value, parameter.name, ("register", register))
    for given in trace.inputs:
        for dim in given.value.type.shape if isinstance(given.value.type, ArrayType) else ():
            if isinstance(dim, Symbol):
                trace.facts.set_range(dim, DimRange(0, None))
    for position in range(len(function.free)):
        frame.registers[len(function.parameters) + position] = Known(Cell(position))
    outcome = frame.walk(0, frozenset())
    if isinstance(outcome, Raised):
        raise Untraceable("it always raises", outcome.index)
    assert isinstance(outcome, Returned)
    seen = Seen()
    result = result_of(frame, outcome.value, seen)
    graph, result = named(frame, Graph(tuple(trace.steps)), result, seen)
    exits: dict[int | str, dict[int | str, Result]] = {"return": {"return": result}}
    signature = signature_text(trace.inputs)
    return Region(
        name, 0, 0, tuple(trace.inputs), graph, exits, trace.facts, signature, sample=dict(trace.sample),
        writes=writes_of(frame),
    )  # fmt: skip
