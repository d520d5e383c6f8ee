"""A region graph run by NumPy: what a kernel of it has to compute.

In: a `Region`, one value per input, the sizes of its symbols. Out: the leaves of its result, in order, or `Left` where
the program would leave the region: a guard that does not hold, an exception of NumPy's.

With `Noise` every inexact operator is disturbed within what its exactness class allows (the idea of Monte Carlo
arithmetic: Parker, "Monte Carlo Arithmetic", UCLA CSD-970002, 1997). How far results move then is how far a right
kernel may be off: it computes exactly what the exact operators compute, and the rest within the same bounds. No
formula for the error of a whole program is needed, and cancellation, saturation and thresholds are all accounted for.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tiercel.compiler.graph import Branch, Graph, Guard, Loop, Node, Region, Result, Step, Value, steps
from tiercel.dtypes import DType
from tiercel.operators import get
from tiercel.operators.table import Operator
from tiercel.operators.types import (
    ArrayType,
    NoneType,
    NpScalarType,
    PyBoolType,
    PyComplexType,
    PyFloatType,
    PyIntType,
    StrType,
)
from tiercel.shapes import Dim, Symbol
from tiercel.shapes import evaluate as size_of

__all__ = [
    "Budget", "Conditions", "Left", "Noise", "OverBudget", "ReferenceFault", "evaluate_region", "has_loops",
    "has_signed_zeros", "is_exact", "is_uninitialised",
]  # fmt: skip

MAX_TRIPS: Final = 4096
"""Passes of all loops in one run: random inputs must not make a `while` loop run for ever."""


class Left(Exception):
    """The region is left: the interpreter would go on at `origin`, perhaps to raise."""

    def __init__(self, origin: int, reason: str) -> None:
        super().__init__(reason)
        self.origin = origin
        self.reason = reason


class OverBudget(Exception):
    """The run takes too long to be worth it."""


class ReferenceFault(Exception):
    """NumPy gives something else than the graph says, or the graph cannot be run: a bug of ours."""


class Budget:
    """What one run may take.

    Args:
        seconds: of computing time of this thread (on a loaded machine much more may pass).
        trips: of passes through loops.
    """

    def __init__(self, seconds: float, trips: int = MAX_TRIPS) -> None:
        self.deadline = time.thread_time() + seconds
        self.trips = trips

    def pass_(self) -> None:
        """A pass of a loop begins.

        Raises:
            OverBudget: there may be no more.
        """
        self.trips -= 1
        if self.trips < 0:
            raise OverBudget("too many passes of a loop")
        if time.thread_time() > self.deadline:
            raise OverBudget("too much time")


@dataclass(slots=True)
class Noise:
    """Disturbs inexact operators.

    Attributes:
        generator: of random signs; None disturbs everything in one direction, as a biased polynomial would.
        factor: multiple of the bound; negative to go down.
    """

    generator: np.random.Generator | None
    factor: float

    def _signs(self, shape: tuple[int, ...]) -> Any:
        if self.generator is None:
            return self.factor
        count = math.prod(shape)
        start = int(self.generator.integers(0, _SIGNS))
        signs = _signs()[start : start + count] if count <= _SIGNS else np.resize(_signs()[start:], count)
        return self.factor * signs.reshape(shape)

    def moved(self, x: Any, relative: float, scale: Any = None) -> Any:
        """x with every element moved by `relative` units in the last place (of itself, or of `scale`)."""
        array = np.asarray(x)
        if array.dtype.kind not in "fcV" or not array.size:
            return x
        wide = array.astype(np.result_type(array.dtype, np.float32) if array.dtype.kind != "V" else np.float32)
        unit = _unit(array.dtype)
        with np.errstate(all="ignore"):
            by = relative * unit * self._signs(array.shape)
            moved = wide + by * np.abs(wide if scale is None else scale)
        moved = np.where(np.isfinite(wide), moved, wide).astype(array.dtype)
        return moved if isinstance(x, np.ndarray) else moved[()]


@dataclass(slots=True)
class Conditions:
    """How to run.

    Attributes:
        budget: for loops.
        noise: disturbs inexact operators.
        warned: gets the kinds of floating-point warnings NumPy would give ("overflow", "divide by zero", ...).
        fill: what the elements of an uninitialised array (`np.empty`) are: those that are never written can be told
            by running with another one.
    """

    budget: Budget
    noise: Noise | None = None
    warned: set[str] | None = None
    fill: int = 0


@functools.cache
def _signs() -> np.ndarray[Any, Any]:
    """1.0 and -1.0 at random, twice behind one another: making them takes longer than most programs that they move."""
    return np.tile(2.0 * np.random.default_rng(1).integers(0, 2, _SIGNS) - 1.0, 2)


_SIGNS: Final = 65_537


def _unit(dtype: np.dtype[Any]) -> float:
    """The relative distance of neighbouring numbers."""
    return 2.0**-7 if dtype.kind == "V" else float(np.finfo(dtype).eps)


def is_exact(graph: Graph) -> bool:
    """Are all operators exact, so that a kernel has to give equal bits?"""
    for step in graph.steps:
        match step:
            case Node():
                if get(step.operator).exactness.kind != "exact":
                    return False
            case Loop():
                if not is_exact(step.body) or (step.header is not None and not is_exact(step.header)):
                    return False
            case Branch():
                if not is_exact(step.then) or not is_exact(step.orelse):
                    return False
    return True


def has_loops(graph: Graph) -> bool:
    """Does the program loop?"""
    return any(isinstance(step, Loop) for step in steps(graph))


def has_signed_zeros(graph: Graph) -> bool:
    """Is the sign of a zero in the results determined? NumPy's minimum of 0.0 and -0.0 may be either of them."""
    return not any(isinstance(step, Node) and step.operator in _EITHER_ZERO for step in steps(graph))


_EITHER_ZERO: Final = frozenset((
    "sort", "topk", "minimum", "maximum", "fmin", "fmax", "min", "max", "nanmin", "nanmax", "clip", "ptp",
    "relu", "relu6", "hardswish", "hardsigmoid", "hardtanh",
))  # fmt: skip


def is_uninitialised(graph: Graph) -> bool:
    """Does the program make arrays without values?"""
    return any(isinstance(step, Node) and step.operator in _UNINITIALISED for step in steps(graph))


_UNINITIALISED: Final = ("empty", "empty_like")


def evaluate_region(
    region: Region,
    values: Sequence[Any],
    sizes: Mapping[str, int],
    conditions: Conditions,
    norms: dict[Any, Any] | None = None,
) -> list[Any]:
    """Run a region.

    Args:
        region: with the one exit "return".
        values: per input; arrays are only read.
        sizes: the symbols of the inputs.
        conditions: see there.
        norms: keeps those of inputs of fixed sizes (weights) for further runs with the same arrays.

    Returns:
        The arrays and scalars of the result, left to right; constants and inputs handed back are left out. Then what
        the inputs hold that are written.

    Raises:
        Left: the region is left on the way.
        OverBudget: by its loops.
        ReferenceFault: see there.
    """
    run = _Run(dict(sizes), conditions, _plans(region))
    run.kept_norms = {} if norms is None else norms
    for given, value in zip(region.inputs, values, strict=True):
        run.values[given.value] = value
        type_ = given.value.type
        if isinstance(type_, ArrayType) and all(isinstance(dim, int) for dim in type_.shape):
            run.weights.add(id(value))
    how: dict[str, Any] = {"all": "ignore"}
    if conditions.warned is not None:
        kinds = conditions.warned
        how = {"all": "call", "call": lambda kind, _: kinds.add(kind)}
    with np.errstate(**how):
        run.graph(region.graph)
        leaves: list[Any] = []
        (results,) = region.exits.values()
        for result in results.values():
            run.collect(result, leaves)
        leaves += [run.value(write.value) for write in region.writes]
    return leaves


@dataclass(slots=True)
class _Plan:
    """How to run one node: looked up once, used in every pass and every run."""

    row: Operator
    attributes: dict[str, Any]
    static: bool  # the attributes hold no sizes and no values
    simple: bool  # operands are the inputs one by one


_PRODUCTS: Final = ("matmul", "linear")
_CONVOLUTIONS: Final = ("conv1d", "conv2d")
_last: list[Any] = [None, {}]


def _plans(region: Region) -> dict[Node, _Plan]:
    """The plans of a region, kept for the next run of the same one."""
    if _last[0] is not region:
        _last[:] = [region, {}]
    found: dict[Node, _Plan] = _last[1]
    return found


def _is_static(x: Any) -> bool:
    if isinstance(x, Value | Dim):
        return False
    if isinstance(x, tuple | list):
        return all(_is_static(item) for item in x)
    if isinstance(x, dict):
        return all(_is_static(item) for item in x.values())
    return not isinstance(x, slice) or all(_is_static(part) for part in (x.start, x.stop, x.step))


class _Run:
    def __init__(self, sizes: dict[str, int], conditions: Conditions, plans: dict[Node, _Plan]) -> None:
        self.sizes = sizes
        self.budget = conditions.budget
        self.noise = conditions.noise
        self.fill = conditions.fill
        self.plans = plans
        self.values: dict[Value, Any] = {}
        self.known_norms: dict[tuple[int, int], tuple[Any, Any]] = {}
        self.kept_norms: dict[Any, Any] = {}
        self.weights: set[int] = set()

    def plan(self, node: Node) -> _Plan:
        """How to run a node."""
        row = get(node.operator)
        static = all(_is_static(x) for x in node.attributes.values())
        attributes = {name: self.static(x) for name, x in node.attributes.items()} if static else {}
        slots = row.parameters[: row.arity]
        simple = len(node.inputs) == len(slots) and not any(
            p.role == "operands" or p.name in node.attributes for p in slots
        )
        made = self.plans[node] = _Plan(row, attributes, static, simple)
        return made

    # -- values -----------------------------------------------------------------------------------------------

    def value(self, value: Value) -> Any:
        """What a graph value is in this run."""
        if value in self.values:
            return self.values[value]
        match value.type:
            case PyIntType(value=known) if known is not None:
                return size_of(known, self.sizes)
            case PyFloatType(value=known) | PyBoolType(value=known) | PyComplexType(value=known) if known is not None:
                return known
            case StrType(value=known) if known is not None:
                return known
            case NoneType():
                return None
        raise ReferenceFault(f"{value} (a {value.type}) has no value")

    def static(self, x: Any) -> Any:
        """An attribute with its sizes and values filled in."""
        match x:
            case Value():
                return self.value(x)
            case Dim():
                return size_of(x, self.sizes)
            case tuple():
                return tuple(self.static(item) for item in x)
            case list():
                return [self.static(item) for item in x]
            case slice():
                return slice(self.static(x.start), self.static(x.stop), self.static(x.step))
            case dict():
                return {key: self.static(item) for key, item in x.items()}
            case DType():
                return x.numpy
        return x

    def collect(self, result: Result, leaves: list[Any]) -> None:
        """The leaves of a result."""
        if result.what in ("tuple", "list"):
            for item in result.items:
                self.collect(item, leaves)
        elif result.what in ("value", "view", "either"):
            assert result.value is not None
            leaves.append(self.value(result.value))
            if result.tag is not None:
                leaves.append(self.value(result.tag))

    # -- steps ------------------------------------------------------------------------------------------------

    def graph(self, graph: Graph) -> None:
        """Run the steps of a graph."""
        for step in graph.steps:
            self.step(step)

    def step(self, step: Step) -> None:
        """Run one step."""
        match step:
            case Node():
                self.node(step)
            case Guard():
                if not bool(self.value(step.condition)):
                    raise Left(step.origin, step.reason)
            case Branch():
                taken = bool(self.value(step.condition))
                self.graph(step.then if taken else step.orelse)
                for merged in step.merged:
                    chosen = self.value(merged.then if taken else merged.orelse)
                    self.values[merged.after] = self.typed(merged.after, chosen)
            case Loop():
                self.loop(step)

    def loop(self, loop: Loop) -> None:
        """A counted or while loop."""
        carried = {c.inside: self.value(c.initial) for c in loop.carried}
        collected: list[list[Any]] = [[] for _ in loop.collected]
        trips = None if loop.trip is None else self.static(loop.trip)
        symbol = loop.index.type.value if loop.index is not None and isinstance(loop.index.type, PyIntType) else None
        count = 0
        while trips is None or count < trips:
            self.budget.pass_()
            self.values.update(carried)
            if loop.index is not None:
                self.values[loop.index] = count
                if symbol is not None and isinstance(symbol, Dim):
                    self.sizes[str(getattr(symbol, "name"))] = count  # noqa: B009 - a loop counter is a bare symbol
            if loop.header is not None:
                self.graph(loop.header)
                assert loop.condition is not None
                if not bool(self.value(loop.condition)):
                    break
            self.graph(loop.body)
            carried = {c.inside: self.typed(c.inside, self.value(c.next)) for c in loop.carried}
            for items, wanted in zip(collected, loop.collected, strict=True):
                items.append(self.value(wanted.inside))
            count += 1
        for c in loop.carried:
            self.values[c.after] = carried[c.inside]
        for items, wanted in zip(collected, loop.collected, strict=True):
            type_ = wanted.after.type
            assert isinstance(type_, ArrayType)
            shape = tuple(size_of(d, self.sizes) for d in type_.shape)
            stacked = np.stack(items) if items else np.zeros(shape, type_.dtype.numpy)
            self.values[wanted.after] = self.typed(wanted.after, stacked)

    def node(self, node: Node) -> None:
        """One operator."""
        plan = self.plans.get(node) or self.plan(node)
        row = plan.row
        if plan.static:
            attributes = plan.attributes if plan.simple else dict(plan.attributes)
        else:
            attributes = {name: self.static(x) for name, x in node.attributes.items()}
        operands = [self.value(v) for v in node.inputs] if plan.simple else self.operands(row, node, attributes)
        product = row.name in _PRODUCTS
        if self.noise is not None and row.exactness.kind == "reordered" and not product:
            operands = [self.shaken(row, x, operands) for x in operands]
        try:
            result = row.evaluate(*operands, **attributes)
        except (ArithmeticError, ValueError, TypeError, LookupError, MemoryError) as error:
            if isinstance(error, TypeError):
                raise ReferenceFault(f"{node.operator}: {error}") from error
            raise Left(node.origin, f"{type(error).__name__}: {error}") from None
        if row.name in _UNINITIALISED:
            result.fill(self.fill)
        results = result if isinstance(result, tuple | list) else (result,)
        for output, item in zip(node.outputs, results, strict=True):
            self.bind_sizes(output, item)
            made = self.typed(output, item)
            if self.noise is not None and row.exactness.kind != "exact":
                made = self.typed(output, self.blurred(row, made, operands))
            self.values[output] = made

    def bind_sizes(self, output: Value, found: Any) -> None:
        """Sizes that only this node decides, from what it gave."""
        if isinstance(output.type, ArrayType) and isinstance(found, np.ndarray):
            for dim, size in zip(output.type.shape, found.shape, strict=False):
                if isinstance(dim, Symbol) and dim.kind == "data":
                    self.sizes[dim.name] = size

    def operands(self, row: Operator, node: Node, attributes: dict[str, Any]) -> list[Any]:
        """The operands as the reference takes them: sequences together, the key of an index from the attributes."""
        given = [self.value(v) for v in node.inputs]
        slots = row.parameters[: row.arity]
        spread = len(given) - sum(p.role != "operands" and p.name not in attributes for p in slots)
        operands: list[Any] = []
        for parameter in slots:
            if parameter.name in attributes:
                operands.append(attributes.pop(parameter.name))
            elif parameter.role == "operands":
                operands.append(tuple(given[:spread]))
                given = given[spread:]
            elif given:
                operands.append(given.pop(0))
            else:
                operands.append(None)
        return operands

    def shaken(self, row: Operator, x: Any, operands: Sequence[Any]) -> Any:
        """A term of a sum, moved by as much as another order of summation may move the sum."""
        assert self.noise is not None
        if isinstance(x, tuple):
            return tuple(self.shaken(row, item, operands) for item in x)
        if not isinstance(x, np.ndarray):
            return x
        length = x.shape[-1] if row.lowering.cls == "contraction" and x.ndim else x.size
        if row.name in _CONVOLUTIONS:
            length = math.prod(operands[1].shape[1:])
        return self.noise.moved(x, 1.0 + 0.25 * float(np.sqrt(length)))

    def blurred(self, row: Operator, x: Any, operands: Sequence[Any]) -> Any:
        """A result of an inexact operator."""
        assert self.noise is not None
        exactness = row.exactness
        if row.name in _PRODUCTS:
            return self.noise.moved(x, 1.0, self.product_scale(row, x, operands))
        if exactness.kind == "reordered":
            return self.noise.moved(x, 2.0)
        scale = None
        if exactness.of == "operand":
            parts = [
                np.abs(np.asarray(o, np.float64)) for o in operands if isinstance(o, np.ndarray | np.generic | float)
            ]
            scale = np.abs(np.asarray(x, np.float64))
            for part in parts:
                scale = np.maximum(scale, part)
        return self.noise.moved(x, exactness.ulp or 1.0, scale)

    def product_scale(self, row: Operator, x: Any, operands: Sequence[Any]) -> Any:
        """How far another order of summation may move a product: sums of k terms are bounded by the norms of the rows
        and columns (Cauchy and Schwarz), and the errors of rounding add up like a random walk.

        Why not move the operands, as for other sums: weights are large, and the same at every step of a loop.
        """
        a, b = operands[:2]
        length = max(1, a.shape[-1])
        rows = self.norms(a, -1)
        columns = self.norms(b, -1 if row.name == "linear" or b.ndim == 1 else -2)
        if b.ndim > 1:
            rows = rows[..., None] if a.ndim > 1 else rows
            columns = columns[..., None, :] if a.ndim > 1 and row.name != "linear" else columns
        scale = np.abs(np.asarray(x, np.float64)) + (length**-0.5 + 0.25) * rows * columns
        return np.broadcast_to(scale, np.shape(x))

    def norms(self, x: np.ndarray[Any, Any], axis: int) -> Any:
        """Norms along an axis, kept for the next step: operands of products are mostly weights."""
        key = (id(x), axis)
        known = self.kept_norms if id(x) in self.weights else self.known_norms
        found = known.get(key)
        if found is None or found[0] is not x:
            wide = x.astype(np.result_type(x.dtype, np.float32)) if x.dtype.kind != "V" else x.astype(np.float32)
            found = (x, np.sqrt(np.sum(np.abs(wide) ** 2, axis=axis)))
            known[key] = found
        return found[1]

    def typed(self, value: Value, found: Any) -> Any:
        """A result as the type of its value; a difference in dtype or shape is a bug that must not pass."""
        type_ = value.type
        match type_:
            case ArrayType():
                array = np.asarray(found)
                if self.noise is not None:
                    return array  # the undisturbed run has found that all is as it should be
                shape = tuple(size_of(d, self.sizes) for d in type_.shape)
                if array.dtype != type_.dtype.numpy or array.shape != shape:
                    said = f"{type_.dtype.name}{list(shape)}"
                    raise ReferenceFault(f"{value} should be {said}; NumPy gives {array.dtype}{list(array.shape)}")
                return array
            case NpScalarType():
                if np.asarray(found).dtype != type_.dtype.numpy:
                    # operators on Python scalars: the graph says which dtype is meant
                    return np.asarray(found).astype(type_.dtype.numpy)[()]
                return np.asarray(found)[()]
            case PyIntType():
                return int(found)
            case PyFloatType():
                return float(found)
            case PyBoolType():
                return bool(found)
        return found
