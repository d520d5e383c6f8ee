"""Check a region graph: the invariants that `graph` states and that only the whole can show.

In: a `Region`. Out: the same region, or `IllFormedGraph` that names the step. It runs in tests after tracing and after
every pass from graph to graph.

What is checked:

* every value is defined once, before it is used, where the use can see it; constants and sizes need no definition, but
  every symbol of a size or type must be an input's, a surrounding loop's counter, or a data symbol already made;
* values have types; conditions are booleans; what a loop carries and a branch merges keeps its kind, dtype and rank;
* a node's operator is in the table; a write takes over the storage of an operand of the same type that is no input, and
  neither the operand nor a view of it is read afterwards; what loops and branches hand on in place is in one storage;
* results are values that can be seen at the end, or inputs that exist; so is what inputs hold that are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tiercel.compiler.graph import (
    Branch,
    Graph,
    Guard,
    Loop,
    Node,
    Region,
    Result,
    Step,
    Value,
    is_constant,
    values_in,
)
from tiercel.errors import InternalError
from tiercel.operators import ALL
from tiercel.operators.types import (
    ArrayType,
    NoneType,
    NpScalarType,
    PyBoolType,
    PyComplexType,
    PyFloatType,
    PyIntType,
    Type,
)
from tiercel.shapes import DimLike, Symbol, symbols_of

VALUE_TYPES = (ArrayType, NpScalarType, PyIntType, PyFloatType, PyBoolType, PyComplexType, NoneType)


VIEWS = frozenset(
    ("index", "reshape", "ravel", "flatten", "squeeze", "expand_dims", "transpose", "moveaxis", "swapaxes",
     "matrix_transpose", "broadcast_to", "split", "array_split", "flip", "identity", "stop_gradient")
)  # fmt: skip
"""Operators whose results may be views of the first operand."""


class IllFormedGraph(InternalError):
    """A region graph breaks an invariant: a bug in the stage that built it."""


def check_region(region: Region) -> Region:
    """Check a region and return it.

    Raises:
        IllFormedGraph: with the step and value at fault.
    """
    scope = _Scope()
    for number, given in enumerate(region.inputs):
        where = f"input {number}"
        for symbol in _symbols(given.value.type):
            scope.symbols.add(symbol)
        scope.define(given.value, where)
        scope.given.add(given.value)
    _check_graph(region.graph, scope)
    for label, results in region.exits.items():
        for register, result in results.items():
            _check_result(result, scope, len(region.inputs), f"exit {label}, {register}")
    for write in region.writes:
        if not 0 <= write.index < len(region.inputs):
            raise IllFormedGraph(f"input {write.index} of {len(region.inputs)} is written")
        target = region.inputs[write.index].value
        scope.use(write.value, f"the new content of {target}")
        _check_same_kind(write.value, target, f"the new content of {target}")
    return region


class _Scope:
    """What can be seen at a point, and what has ever been defined in the region."""

    def __init__(self, parent: _Scope | None = None) -> None:
        self.visible: set[Value] = set(parent.visible) if parent else set()
        self.symbols: set[Symbol] = set(parent.symbols) if parent else set()
        self.defined: set[Value] = parent.defined if parent else set()
        # an arm of a branch does not see what the other one has overwritten
        self.overwritten: set[Value] = set(parent.overwritten) if parent else set()
        self.looks_into: dict[Value, Value] = parent.looks_into if parent else {}
        self.given: set[Value] = parent.given if parent else set()
        self.storages: dict[Value, Value] = parent.storages if parent else {}

    def define(self, value: Value, where: str) -> None:
        """A definition of a value whose symbols are known."""
        if not isinstance(value, Value):
            raise IllFormedGraph(f"{where}: a value was expected, got {value!r}")
        if not isinstance(value.type, VALUE_TYPES):
            raise IllFormedGraph(f"{where}: {value} has no type a graph may hold, got {value.type!r}")
        if value in self.defined:
            raise IllFormedGraph(f"{where}: {value} is defined twice")
        self.check_symbols(value, where)
        self.defined.add(value)
        self.visible.add(value)

    def use(self, value: Value, where: str) -> None:
        """A use of a value."""
        if value not in self.visible:
            if value in self.defined:
                raise IllFormedGraph(f"{where}: {value} is defined where it cannot be seen from here")
            if not is_constant(value):
                raise IllFormedGraph(f"{where}: {value} (a {value.type}) is used before it is defined")
            self.check_symbols(value, where)
        looked_into = value
        while looked_into in self.looks_into:
            looked_into = self.looks_into[looked_into]
        if value in self.overwritten or looked_into in self.overwritten:
            raise IllFormedGraph(f"{where}: {value} is read after its storage was taken over")

    def storage(self, value: Value) -> Value:
        """The value whose storage a value is in."""
        return self.storages.get(value, value)

    def overwrite(self, old: Value, new: Value, where: str) -> None:
        """From here on `new` is in the storage of `old`."""
        if old in self.given:
            raise IllFormedGraph(f"{where}: {old} is an input, and its memory somebody else's")
        self.storages[new] = self.storage(old)
        self.overwritten.add(old)

    def check_symbols(self, value: Value, where: str) -> None:
        """Every symbol of the type is bound here."""
        unbound = {s for s in _symbols(value.type) if s not in self.symbols}
        if unbound:
            raise IllFormedGraph(f"{where}: {value} (a {value.type}) speaks of {_listed(unbound)}, which nothing binds")

    def check_size(self, size: DimLike, where: str) -> None:
        """Every symbol of a size is bound here."""
        unbound = {s for s in symbols_of(size) if s not in self.symbols}
        if unbound:
            raise IllFormedGraph(f"{where}: the size {size} speaks of {_listed(unbound)}, which nothing binds")


def _listed(symbols: Iterable[Symbol]) -> str:
    return ", ".join(sorted(s.name for s in symbols))


def _symbols(type_: Type) -> Iterator[Symbol]:
    if isinstance(type_, ArrayType):
        for dim in type_.shape:
            yield from symbols_of(dim)
    elif isinstance(type_, PyIntType) and type_.value is not None:
        yield from symbols_of(type_.value)


def _check_graph(graph: Graph, scope: _Scope) -> None:
    for step in graph.steps:
        _check_step(step, scope)


def _check_step(step: Step, scope: _Scope) -> None:
    match step:
        case Node():
            _check_node(step, scope)
        case Guard():
            _check_condition(step.condition, scope, f"guard @{step.origin}")
        case Branch():
            _check_branch(step, scope)
        case Loop():
            _check_loop(step, scope)
        case _:
            raise IllFormedGraph(f"a step that is a {type(step).__name__}")


def _check_node(node: Node, scope: _Scope) -> None:
    where = f"{node.operator} @{node.origin}"
    if node.operator not in ALL:
        raise IllFormedGraph(f"{where}: no operator of this name in the table")
    for value in (*node.inputs, *values_in(node.attributes)):
        scope.use(value, where)
    if not node.outputs:
        raise IllFormedGraph(f"{where}: a node without results")
    if node.writes is not None:
        if not 0 <= node.writes < len(node.inputs):
            raise IllFormedGraph(f"{where}: it writes operand {node.writes} of {len(node.inputs)}")
        taken = node.inputs[node.writes]
        if taken.type != node.outputs[0].type:
            raise IllFormedGraph(f"{where}: a {node.outputs[0].type} in the storage of a {taken.type}")
        scope.overwrite(taken, node.outputs[0], where)
    for output in node.outputs:
        # a size that only running decides is bound by the node that makes it
        scope.symbols |= {s for s in _symbols(output.type) if s.kind == "data"}
        scope.define(output, where)
        if node.operator in VIEWS:
            scope.looks_into[output] = node.inputs[0]


def _check_condition(condition: Value, scope: _Scope, where: str) -> None:
    scope.use(condition, where)
    type_ = condition.type
    boolean = isinstance(type_, PyBoolType) or (
        isinstance(type_, NpScalarType | ArrayType) and type_.dtype.kind == "b" and not getattr(type_, "shape", ())
    )
    if not boolean:
        raise IllFormedGraph(f"{where}: the condition {condition} is a {type_}")


def _check_branch(branch: Branch, scope: _Scope) -> None:
    where = f"branch @{branch.origin}"
    _check_condition(branch.condition, scope, where)
    arms = []
    for graph in (branch.then, branch.orelse):
        arm = _Scope(scope)
        _check_graph(graph, arm)
        arms.append(arm)
    for merged in branch.merged:
        for value, arm in zip((merged.then, merged.orelse), arms, strict=True):
            arm.use(value, where)
            _check_same_kind(value, merged.after, where)
        if merged.in_place:
            stored = scope.storage(merged.then)
            if stored is not scope.storage(merged.orelse):
                raise IllFormedGraph(f"{where}: {merged.then} and {merged.orelse} are not in one storage")
            scope.storages[merged.after] = stored
        scope.define(merged.after, where)
    for arm in arms:
        scope.overwritten |= arm.overwritten


def _check_loop(loop: Loop, scope: _Scope) -> None:
    where = f"loop @{loop.origin}"
    counted = loop.trip is not None
    if counted == (loop.header is not None) or (loop.header is None) != (loop.condition is None):
        raise IllFormedGraph(f"{where}: either a trip count, or a header with a condition")
    if isinstance(loop.trip, Value):
        scope.use(loop.trip, where)
    elif loop.trip is not None:
        scope.check_size(loop.trip, where)
    for carried in loop.carried:
        scope.use(carried.initial, where)
    inside = _Scope(scope)
    if loop.index is not None:
        inside.symbols |= set(_symbols(loop.index.type))
        inside.define(loop.index, where)
    for carried in loop.carried:
        inside.define(carried.inside, where)
        if carried.in_place:
            inside.overwrite(carried.initial, carried.inside, where)
    if loop.header is not None:
        assert loop.condition is not None
        _check_graph(loop.header, inside)
        _check_condition(loop.condition, inside, where)
    _check_hoisted(loop, scope, inside, where)
    _check_graph(loop.body, inside)
    for carried in loop.carried:
        inside.use(carried.next, where)
        for value in (carried.initial, carried.next, carried.after):
            _check_same_kind(value, carried.inside, where)
        if carried.in_place:
            if scope.storage(carried.next) is not scope.storage(carried.inside):
                raise IllFormedGraph(f"{where}: {carried.next} is not in the storage of {carried.inside}")
            scope.overwrite(carried.initial, carried.after, where)
        scope.define(carried.after, where)
    for collected in loop.collected:
        inside.use(collected.inside, where)
        whole, element = collected.after.type, collected.inside.type
        shape = element.shape if isinstance(element, ArrayType) else ()
        fits = isinstance(whole, ArrayType) and whole.shape[1:] == shape and whole.dtype is _dtype(element)
        if not fits or not counted:
            raise IllFormedGraph(f"{where}: {whole} as the elements {element} of a loop of {loop.trip} passes")
        scope.define(collected.after, where)


def _check_hoisted(loop: Loop, outside: _Scope, inside: _Scope, where: str) -> None:
    """What is computed before a pass sees nothing of it: neither its counter nor what it carries."""
    seen = _Scope(outside)
    if loop.once is not None:
        _check_graph(loop.once, seen)
        inside.visible |= seen.visible
    if loop.ahead is None:
        return
    if loop.trip is None:
        raise IllFormedGraph(f"{where}: passes that are computed ahead in a loop without a trip count")
    outside.check_size(loop.ahead.passes, where)
    bound = {loop.ahead.start, loop.ahead.count}
    if bound & inside.symbols:
        raise IllFormedGraph(f"{where}: {_listed(bound & inside.symbols)} is bound twice")
    seen.symbols |= bound
    inside.symbols |= bound
    _check_graph(loop.ahead.graph, seen)
    inside.visible |= seen.visible


def _dtype(type_: Type) -> object:
    return type_.dtype if isinstance(type_, ArrayType | NpScalarType) else None


def _check_same_kind(value: Value, as_: Value, where: str) -> None:
    """Two values that are one variable at different times: the same class of type, dtype and rank."""
    x, y = value.type, as_.type
    same = type(x) is type(y) and _dtype(x) is _dtype(y)
    if isinstance(x, ArrayType) and isinstance(y, ArrayType):
        same = same and x.rank == y.rank
    if not same:
        raise IllFormedGraph(f"{where}: {value} is a {x}, {as_} a {y}")


def _check_result(result: Result, scope: _Scope, inputs: int, where: str) -> None:
    match result.what:
        case "value":
            if result.value is None:
                raise IllFormedGraph(f"{where}: a result without a value")
            scope.use(result.value, where)
        case "either":
            if result.value is None or result.tag is None or not result.choices:
                raise IllFormedGraph(f"{where}: an array or an argument, and nothing tells which")
            if not all(0 <= number < inputs for number in result.choices):
                raise IllFormedGraph(f"{where}: one of the inputs {result.choices} of {inputs}")
            scope.use(result.value, where)
            scope.use(result.tag, where)
        case "input":
            if result.index is None or not 0 <= result.index < inputs:
                raise IllFormedGraph(f"{where}: input {result.index} of {inputs}")
        case "view":
            if result.value is None or (result.index is None) is (result.base is None):
                raise IllFormedGraph(f"{where}: a view that is none, or not of one array")
            scope.use(result.value, where)
            if result.base is not None:
                scope.use(result.base, where)
            elif not 0 <= (result.index or 0) < inputs:
                raise IllFormedGraph(f"{where}: a view of input {result.index} of {inputs}")
        case "tuple" | "list":
            for position, item in enumerate(result.items):
                _check_result(item, scope, inputs, f"{where}, item {position}")
        case "none" | "constant":
            pass
        case _:
            raise IllFormedGraph(f"{where}: a result that is a {result.what!r}")
