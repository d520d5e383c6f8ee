"""A region graph to one function of the loop form.

In: a checked `Region`. Out: `Lowered`: a `loops.form.Function`, the `Interface` by which it is called, and the
instruction index of every exit site. One module walks the graph; the loop nests of groups are built by `nests`, views
by `movement`.

Invariants:

* A value is computed once. An array value has one `Memory` (or several destinations that are all written where it is
  computed: a result, a slot of a loop-carried buffer, an element of a collected list).
* Nothing visible is written before the function returns 0: results are fresh buffers, inputs are only read (what is to
  be written into them is kept beside them, see `commit`). An `Exit` therefore means "run this region in the interpreter
  from its start".
* A loop-carried array alternates between two slots: an iteration reads one and writes the other.
* What has no lowering raises `NotLowered` with the instruction at fault; nothing is approximated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tiercel.compiler.ahead import BeforePasses
from tiercel.compiler.attend import lower_attention
from tiercel.compiler.attention import Attention, find_attention
from tiercel.compiler.bags import why_not as why_not_deferred
from tiercel.compiler.commit import Commits, split_writes
from tiercel.compiler.convolution import Convolution
from tiercel.compiler.dims import counting, dim_expression, divisors
from tiercel.compiler.elementwise import COMPARISONS, EXPRESSIONS, NotLowered, cast, is_elementwise, scalar_dtype
from tiercel.compiler.expand import COUNTED
from tiercel.compiler.fuse import Group, Item, fuse
from tiercel.compiler.gather import Deferred
from tiercel.compiler.graph import (
    Branch,
    Graph,
    Guard,
    Loop,
    Node,
    Region,
    Result,
    Value,
    own_uses,
    steps,
)
from tiercel.compiler.groups import lower_group
from tiercel.compiler.inplace import storages
from tiercel.compiler.interface import (
    PACK_PADDING,
    InputSpec,
    Interface,
    PackSpec,
    SizeSpec,
)
from tiercel.compiler.memory import Memory, c_strides, f_strides, view_buffer
from tiercel.compiler.movement import movement
from tiercel.compiler.nests import Nests
from tiercel.compiler.panels import Postponed, products_to_postpone
from tiercel.compiler.passes import prepare
from tiercel.compiler.places import plan_places
from tiercel.compiler.recurrence import lower_recurrence
from tiercel.compiler.results import Results, scalar_kind
from tiercel.dtypes import DType, WeakComplex, WeakFloat, WeakInt, as_dtype, result_type
from tiercel.loops.form import (
    INDEX,
    Allocate,
    Assign,
    Block,
    Buffer,
    Compare,
    Const,
    Exit,
    Expr,
    For,
    Function,
    If,
    Let,
    Local,
    Pack,
    Stmt,
    Unary,
    Var,
    While,
)
from tiercel.operators import get
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
from tiercel.shapes import DimLike, Symbol, product, substitute, symbols_of

FLOAT64, BOOL = as_dtype("float64"), as_dtype("bool")


@dataclass(frozen=True, slots=True)
class Lowered:
    """What `lower_region` gives.

    Attributes:
        function: the loop nest.
        interface: how to call it.
        sites: instruction index of `Exit(i + 1)`.
        prepared: the region that the nest was made from, see `passes`.
    """

    function: Function
    interface: Interface
    sites: tuple[int, ...]
    prepared: Region


def _symbols_of_type(type_: Type) -> Iterator[Symbol]:
    dims = type_.shape if isinstance(type_, ArrayType) else ()
    value = type_.value if isinstance(type_, PyIntType) else None
    for dim in (*dims, *(() if value is None else (value,))):
        yield from symbols_of(dim)


def _values_of(result: Result) -> Iterator[Value]:
    """The values that a result hands over."""
    for value in (result.value, result.base, result.tag):
        if value is not None:
            yield value
    for item in result.items:
        yield from _values_of(item)


class Lowerer:
    """The state of one lowering: where values are, where they have to go, the statements so far."""

    def __init__(self, region: Region) -> None:
        region = self.region = prepare(region)
        self.graph, parts = split_writes(
            region, region.graph, lambda graph: [value for step in steps(graph) for value in own_uses(step)]
        )
        self.facts = region.facts
        self.memory: dict[Value, Memory] = {}
        self.scalars: dict[Value, Expr] = {}
        self.wanted: dict[Value, list[Memory]] = {}
        self.uses: dict[Value, list[object]] = {}
        self.storages = storages(self.graph)
        self.statements: list[Stmt] = []
        self.sites: list[int] = []
        self.packed: dict[tuple[str, Memory], Buffer] = {}
        self.packs: list[PackSpec] = []
        self.prologue: list[Stmt] = []
        self.positive: set[DimLike] = set()  # divisors that have been guarded
        self.trips: dict[DimLike, DimLike] = {}  # loop counter -> trip count
        self.largest: dict[str, DimLike] = {}  # symbol bound in a loop -> what it is at most, known at entry
        self.inputs: dict[str, int] = {}  # root buffer -> number of the input
        self.positions: dict[Value, DimLike] = {}  # indices made here -> the size of the axis that all of them are in
        self.indexed: dict[int | None, list[DimLike]] = {}  # input (None: computed) -> sizes it is an index into
        self.deferred: dict[Value, Deferred] = {}  # picked by the step that uses them
        self.required: dict[str, int] = {}  # symbols that have to be a number
        self.convolutions: dict[Value, Convolution] = {}  # left to the only step that uses the value
        self.here: set[int] = set()  # ids of the steps of the graph that is being lowered
        self.loops = 0  # around the statement that is being lowered
        self._counts: dict[str, int] = {}
        self._taken = {s.name for given in region.inputs for s in _symbols_of_type(given.value.type)}
        self.nests = Nests(self)
        self.postponed = Postponed(self)
        self.commits = Commits(self, parts)
        for step in steps(self.graph):
            for value in own_uses(step):
                self.uses.setdefault(value, []).append(step)
        self.continued: set[str] = set()  # results that begin with an input's entries
        self.returned = [v for exit_ in region.exits.values() for result in exit_.values() for v in _values_of(result)]
        self.returned += self.commits.values

    # -- names and places -------------------------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        """A name not used before in the function, and one that a symbol may have."""
        hint = re.sub(r"\W", "_", hint) or "v"
        name, count = hint, self._counts.get(hint, 0)
        while name in self._taken:
            count += 1
            name = f"{hint}_{count}"
        self._counts[hint] = count
        self._taken.add(name)
        return name

    def reserve(self, name: str) -> None:
        """A name that stands in sizes: nothing else may have it."""
        self._taken.add(name)

    def site(self, origin: int) -> int:
        """The number of the exit site of an instruction."""
        if origin not in self.sites:
            self.sites.append(origin)
        return self.sites.index(origin) + 1

    def emit(self, stmt: Stmt) -> None:
        """Add a statement."""
        self.statements.append(stmt)

    @contextmanager
    def collecting(self) -> Iterator[list[Stmt]]:
        """Statements made inside go to a list of their own; what they guard holds only there."""
        outer, self.statements = self.statements, []
        positive, self.positive = self.positive, set(self.positive)
        try:
            yield self.statements
        finally:
            self.statements, self.positive = outer, positive

    def new_arena(self, value: Value, shape: tuple[DimLike, ...] | None = None) -> Memory:
        """An arena buffer for an array value."""
        assert isinstance(value.type, ArrayType)
        return self.arena(value.name or "t", value.type.dtype, value.type.shape if shape is None else shape)

    def arena(self, hint: str, dtype: DType, shape: tuple[DimLike, ...]) -> Memory:
        """An arena buffer; with room for the most that a size of the loop around it can be."""
        most = [substitute(d, self.largest) for d in shape]
        if any(symbol in self.trips for d in most for symbol in symbols_of(d)):
            raise NotLowered("an array whose size changes from pass to pass of a loop")
        room = tuple(dim_expression(d) for d in most)
        buffer = Buffer(self.fresh(hint), dtype, room, space="arena")
        self.emit(Allocate(buffer))
        return Memory.whole(buffer, shape)

    def want(self, value: Value, memory: Memory) -> None:
        """Ask for a value at a place; what is written in place begins there if it can."""
        first = self.storages.get(value, value)
        if first not in self.memory and first not in self.wanted:
            value = first
        self.wanted.setdefault(value, []).append(memory)

    def destinations(self, value: Value) -> list[Memory]:
        """Where a value being computed has to be stored; a new buffer when nobody asked for a place."""
        places = self.wanted.pop(value, None) or [self.new_arena(value)]
        self.memory[value] = places[0]
        return places

    def place(self, value: Value) -> Memory:
        """Where an array value is."""
        found = self.memory.get(value)
        if found is not None:
            return found
        if isinstance(value.type, ArrayType) and value.type.rank == 0 and value in self.scalars:
            memory = self.new_arena(value)
            self.nests.store_scalar(memory, self.scalars[value])
            self.memory[value] = memory
            return memory
        raise NotLowered(f"{value} has no memory (a {value.type})")

    def scalar(self, value: Value) -> Expr:
        """The expression of a scalar value (a Python or NumPy scalar, or an array of rank 0)."""
        found = self.scalars.get(value)
        if found is not None:
            return found
        type_ = value.type
        if isinstance(type_, PyIntType) and type_.value is not None:
            return dim_expression(type_.value)
        if isinstance(type_, PyFloatType | PyBoolType) and type_.value is not None:
            return Const(type_.value, scalar_dtype(type_))
        if isinstance(type_, ArrayType) and type_.rank == 0:
            return self.nests.load_scalar(self.place(value))
        raise NotLowered(f"{value} (a {type_}) has no value here")

    def combine(self, node: Node, operand: Callable[[Value], Expr]) -> Expr:
        """The expression of an elementwise node, given the elements of its operands."""
        given = [v for v in node.inputs if not isinstance(v.type, NoneType)]
        output = node.outputs[0].type
        dtype = output.dtype if isinstance(output, ArrayType | NpScalarType) else scalar_dtype(output)
        if dtype.kind == "c" or any(getattr(v.type, "dtype", dtype).kind == "c" for v in given):
            raise NotLowered("complex numbers", node.origin)
        elements = [operand(v) for v in given]
        key = get(node.operator).lowering.key
        if key in COMPARISONS:
            common = self._common(given, node)
            elements = [cast(e, common) for e in elements]
        elif key in ("isnan", "isinf", "isfinite", "signbit"):
            pass
        elif key == "where":
            elements = [cast(elements[0], BOOL), *(cast(e, dtype) for e in elements[1:])]
        if elements and all(isinstance(e, Const) for e in elements):
            self._check_silent(node, [e for e in elements if isinstance(e, Const)])
        try:
            return cast(EXPRESSIONS[key](elements, dtype, node.attributes), dtype)
        except NotLowered as error:
            raise NotLowered(error.reason, node.origin) from None

    @staticmethod
    def _check_silent(node: Node, given: list[Const]) -> None:
        """Refuse arithmetic of constants that NumPy warns of: code generation folds it, and no flag is raised."""
        try:
            with np.errstate(all="raise"):
                get(node.operator).evaluate(*(e.dtype.numpy.type(e.value) for e in given), **node.attributes)
        except FloatingPointError as error:
            raise NotLowered(f"{node.operator} of constants: {error}", node.origin) from None
        except (TypeError, ValueError):
            pass  # not a form in which the operator is called; nothing is known against it

    @staticmethod
    def _common(values: list[Value], node: Node) -> DType:
        things: list[Any] = []
        for value in values:
            match value.type:
                case ArrayType() | NpScalarType():
                    things.append(value.type.dtype)
                case PyBoolType():
                    things.append(BOOL)
                case PyIntType():
                    things.append(WeakInt)
                case PyFloatType():
                    things.append(WeakFloat)
                case PyComplexType():
                    things.append(WeakComplex)
        kinds = {t.kind for t in things if isinstance(t, DType)}
        if {"i", "u"} <= kinds:
            raise NotLowered("a comparison of signed with unsigned integers", node.origin)
        if not any(isinstance(t, DType) for t in things):
            return FLOAT64 if WeakFloat in things else INDEX
        return result_type(*things)

    def is_frozen(self, memory: Memory) -> bool:
        """Is it (a view of) an input whose content does not change?"""
        number = self.inputs.get(memory.root.name)
        return number is not None and self.region.inputs[number].frozen

    def packed_operand(self, memory: Memory) -> Buffer | None:
        """The right operand of a product, packed once for the call, or once for all calls where it is frozen.

        None where it has to be used as it is: it is computed by the region, its rows are contiguous already, or it is
        used once (the product packs what it needs of it then).
        """
        number = self.inputs.get(memory.root.name)
        if number is None or any(
            s.kind != "input" for part in (memory.offset, *memory.strides) for s in symbols_of(part)
        ):
            return None
        frozen = self.region.inputs[number].frozen
        if not frozen and (memory.strides[1] == 1 or not self.loops):
            return None
        key = (memory.root.name, memory)
        found = self.packed.get(key)
        if found is not None:
            return found
        k, n = memory.shape
        hint = self.fresh(f"{memory.root.name}_packed")
        if frozen:
            shape = (dim_expression(k), dim_expression(n))
            buffer = Buffer(hint, memory.root.dtype, shape, space="constant")
            strides = (memory.strides[0], memory.strides[1])
            self.packs.append(PackSpec(hint, number, k, n, strides, memory.offset))
        else:
            size = dim_expression(k * (n + PACK_PADDING))
            buffer = Buffer(hint, memory.root.dtype, (size,), space="arena")
            view = view_buffer(self.fresh(f"{memory.root.name}_view"), memory, memory.shape, memory.strides)
            self.prologue += [
                Allocate(buffer), Allocate(view), Pack(view, buffer, dim_expression(n), dim_expression(k)),
            ]  # fmt: skip
        self.packed[key] = buffer
        return buffer

    # -- steps ------------------------------------------------------------------------------------------------

    def run(self, graph: Graph) -> None:
        """Lower the steps of a graph into the current statements."""
        outer, self.here = self.here, set(map(id, graph.steps))
        plan_places(self, graph)
        found = find_attention(graph, lambda value: self.uses.get(value, ()), self.returned)
        items = fuse(graph, found)
        later = products_to_postpone(self, items)
        for item in items:
            origin = item.nodes[0].origin if isinstance(item, Group) else item.origin
            try:
                if isinstance(item, Group) and id(item) in later:
                    with self.collecting() as statements:
                        self.item(item)
                    self.postponed.put_off(item, statements)
                else:
                    self.item(item)
            except NotLowered as error:
                if error.origin is None:
                    error.origin = origin
                raise
        self.here = outer

    def may_defer(self, value: Value, root: str) -> bool:
        """May what indices pick from `root` be left to its only user?"""
        return why_not_deferred(self, value, root) is None

    def guard_sizes(self, item: Item) -> None:
        """Leave where a size that the item's types speak of does not exist (a division by zero: NumPy raises)."""
        nodes = item.nodes if isinstance(item, Group | Attention) else [item] if isinstance(item, Node) else []
        for node in nodes:
            if COUNTED in node.attributes:
                count, ddof = node.attributes[COUNTED]
                self.guard_count(count, ddof, node.origin)
            if node.operator == "reshape":
                self.guard_unknown(node)
            self.guard_ints(node)
            for value in node.outputs:
                type_ = value.type
                dims = type_.shape if isinstance(type_, ArrayType) else ()
                extra = (type_.value,) if isinstance(type_, PyIntType) and type_.value is not None else ()
                for divisor in {d for dim in (*dims, *extra) for d in divisors(dim)} - self.positive:
                    self.positive.add(divisor)
                    if self.facts.less_equal(1, divisor) is not True:
                        self.require(Compare("gt", dim_expression(divisor), Const(0, INDEX)), node.origin)

    def guard_count(self, count: DimLike, ddof: int, origin: int) -> None:
        """Leave where too few elements are left to average: NumPy warns."""
        if count - ddof not in self.positive and self.facts.less_equal(ddof + 1, count) is not True:
            self.positive.add(count - ddof)
            self.require(Compare("gt", dim_expression(count), Const(ddof, INDEX)), origin)

    def guard_unknown(self, node: Node) -> None:
        """Leave where the sizes beside a -1 have no elements: NumPy cannot tell the one that is not given."""
        wanted = node.attributes.get("shape")
        if isinstance(wanted, tuple) and any(isinstance(d, int) and d == -1 for d in wanted):
            self.guard_count(product(d for d in wanted if not (isinstance(d, int) and d == -1)), 0, node.origin)

    def guard_ints(self, node: Node) -> None:
        """Leave where a Python int does not fit the integers it meets: NumPy raises, or compares the exact values."""
        weak = [v for v in node.inputs if isinstance(v.type, PyIntType) and not isinstance(v.type.value, int)]
        types = [v.type for v in node.outputs]
        if not weak or not all(isinstance(t, ArrayType | NpScalarType) for t in types):
            return
        if get(node.operator).lowering.key in COMPARISONS:
            dtype = self._common([v for v in node.inputs if not isinstance(v.type, NoneType)], node)
        else:
            dtype = types[0].dtype  # type: ignore[attr-defined]
        if dtype.kind not in "iu" or dtype is INDEX:
            return
        limits = np.iinfo(dtype.numpy)
        for value in weak:
            number = self.scalar(value)
            self.require(Compare("ge", number, Const(int(limits.min), INDEX)), node.origin)
            if limits.max < 2**63:
                self.require(Compare("le", number, Const(int(limits.max), INDEX)), node.origin)

    def require(self, condition: Expr, origin: int) -> None:
        """Leave at the instruction unless `condition` holds."""
        self.emit(If(Unary("not", condition), Block((Exit(self.site(origin)),))))

    def note_index(self, memory: Memory, size: DimLike) -> None:
        """An array of integers is an index into an axis of `size`: trials take it in range."""
        self.indexed.setdefault(self.inputs.get(memory.root.name), []).append(size)

    def require_equal(self, a: DimLike, b: DimLike, origin: int) -> None:
        """Leave unless two sizes are equal."""
        if a != b and self.facts.equal(a, b) is not True:
            for symbol, size in ((a, b), (b, a)):
                if isinstance(symbol, Symbol) and isinstance(size, int):
                    self.required[symbol.name] = size
            self.require(Compare("eq", dim_expression(a), dim_expression(b)), origin)

    def item(self, item: Item) -> None:
        """Lower one item."""
        self.guard_sizes(item)
        match item:
            case Group():
                lower_group(self, item)
            case Attention():
                lower_attention(self, item)
            case Node():
                self.node(item)
            case Loop():
                self.loop(item)
            case Branch():
                self.branch(item)
            case Guard():
                condition = cast(self.scalar(item.condition), BOOL)
                self.emit(If(Unary("not", condition), Block((Exit(self.site(item.origin)),))))

    def node(self, node: Node) -> None:
        """A node that is not part of a group: scalars, views, copies, general reductions."""
        if is_elementwise(node):
            expression = self.combine(node, self.scalar)
            if isinstance(expression, Const):
                self.scalars[node.outputs[0]] = expression
                return
            name = self.fresh(node.outputs[0].name or "s")
            self.emit(Let(name, expression))
            self.scalars[node.outputs[0]] = Var(name, expression.dtype)
            if node.outputs[0] not in self.uses and expression.dtype.kind == "f":
                # nothing needs it, but it may raise floating-point flags: a store keeps it
                self.nests.store_scalar(self.arena(name, expression.dtype, ()), Var(name, expression.dtype))
            return
        movement(self, node)

    def settle(self, value: Value) -> None:
        """Fill destinations of a value that was not written to them where it was computed."""
        places = self.wanted.pop(value, [])
        if not places:
            return
        source = self.place(value)
        for place in places:
            self.nests.copy(source, place)

    def loop(self, loop: Loop) -> None:
        """A counted or while loop."""
        counted = loop.header is None
        index = self._loop_symbol(loop)
        if counted:
            parity: DimLike = index % 2
            trip = loop.trip
            if isinstance(trip, Value):
                trip = trip.type.value if isinstance(trip.type, PyIntType) else None
            if trip is None:
                raise NotLowered("a loop whose trip count is not a size", loop.origin)
            self.trips[index] = trip
            if loop.index is not None:
                self.scalars[loop.index] = Var(index.name)
            if lower_recurrence(self, loop, index, trip):
                return
            last: DimLike = trip % 2
        else:
            parity_name = self.fresh("parity")
            self.emit(Local(parity_name, Const(0, INDEX)))
            parity = last = Symbol(parity_name, "scalar")
            trip = None
        arrays: list[tuple[Value, Memory, DimLike]] = []
        scalars: list[tuple[Value, str]] = []
        for carried in loop.carried:
            type_ = carried.inside.type
            if isinstance(type_, ArrayType) and type_.rank > 0:
                self.check_shape(carried.initial, carried.inside, carried.next, loop)
                if carried.in_place:
                    here = replace(self.place(carried.initial), shape=type_.shape)
                    self.memory[carried.inside] = self.memory[carried.after] = here
                    continue
                slots = self.arena(carried.inside.name or "carried", type_.dtype, (2, *type_.shape))
                size = slots.strides[0]
                first = replace(slots, shape=slots.shape[1:], strides=slots.strides[1:])
                self.nests.copy(self.place(carried.initial), first)
                self.memory[carried.inside] = replace(first, offset=parity * size)
                self.memory[carried.after] = replace(first, offset=last * size)
                arrays.append((carried.next, replace(first, offset=(1 - parity) * size), size))
            else:
                name = self.fresh(carried.inside.name or "carried")
                dtype = scalar_dtype(type_)
                if scalar_dtype(carried.next.type) is not dtype:
                    raise NotLowered(f"{carried.inside} changes its type in the loop", loop.origin)
                self.emit(Local(name, cast(self.scalar(carried.initial), dtype)))
                self.scalars[carried.inside] = self.scalars[carried.after] = Var(name, dtype)
                scalars.append((carried.next, name))
        collections: list[tuple[Value, Memory]] = []
        for collected in loop.collected:
            if trip is None:
                raise NotLowered("a list that grows in a while loop", loop.origin)
            type_ = collected.after.type
            inside = collected.inside.type
            if not isinstance(type_, ArrayType) or not isinstance(inside, ArrayType | NpScalarType):
                raise NotLowered("a list of values that are not arrays of one shape", loop.origin)
            whole = self.destinations(collected.after)
            for memory in whole:
                element = replace(
                    memory, shape=memory.shape[1:], strides=memory.strides[1:],
                    offset=memory.offset + index * memory.strides[0],
                )  # fmt: skip
                collections.append((collected.inside, element))
        before_passes = BeforePasses(self, loop, index, trip)
        header: list[Stmt] = []
        condition: Expr | None = None
        if loop.header is not None:
            assert loop.condition is not None
            with self.collecting() as header:
                self.run(loop.header)
                condition = cast(self.scalar(loop.condition), BOOL)
        facts = self.facts
        if trip is not None:
            self.facts = counting(facts, index, trip)
        self.loops += 1
        with self.collecting() as body:
            before_passes.emit()
            for value, memory, _ in arrays:
                self.want(value, memory)
            for value, memory in collections:
                if isinstance(value.type, ArrayType):
                    self.want(value, memory)
            self.run(loop.body)
            for value, memory in collections:
                if not isinstance(value.type, ArrayType):
                    self.nests.store_scalar(memory, self.scalar(value))
            for value in {v for v, _, _ in arrays} | {v for v, _ in collections}:
                self.settle(value)
            news = []
            for value, name in scalars:
                new = self.fresh(f"{name}_next")
                expression = cast(self.scalar(value), scalar_dtype(value.type))
                self.emit(Let(new, expression))
                news.append(Assign(name, Var(new, expression.dtype)))
            for stmt in news:
                self.emit(stmt)
            if condition is not None:
                toggled = dim_expression(1 - parity)
                self.emit(Assign(parity_name, toggled))
        self.facts = facts
        self.loops -= 1
        if condition is not None:
            self.emit(While(Block(tuple(header)), condition, Block(tuple(body))))
        else:
            assert trip is not None
            self.emit(For(index.name, dim_expression(trip), Block(tuple(body))))

    def _loop_symbol(self, loop: Loop) -> Symbol:
        """The loop variable: the symbol by which sizes know the counter, if it has one."""
        type_ = loop.index.type if loop.index is not None else None
        if isinstance(type_, PyIntType) and isinstance(type_.value, Symbol):
            self._taken.add(type_.value.name)
            return type_.value
        return Symbol(self.fresh((loop.index.name if loop.index else "") or "t"), "scalar")

    def check_shape(self, initial: Value, inside: Value, following: Value, loop: Loop) -> None:
        """Refuse an array that is carried in another dtype or size than it begins with."""
        shapes = []
        for value in (initial, inside, following):
            if not isinstance(value.type, ArrayType):
                raise NotLowered(f"{inside} is not an array in every iteration", loop.origin)
            shapes.append(value.type.shape)
            if value.type.dtype is not inside.type.dtype:  # type: ignore[attr-defined]
                raise NotLowered(f"{inside} changes its dtype in the loop", loop.origin)
        for other in shapes[1:]:
            same = len(other) == len(shapes[0]) and all(
                self.facts.equal(a, b) is True for a, b in zip(shapes[0], other, strict=True)
            )
            if not same:
                raise NotLowered(f"{inside} changes its size in the loop", loop.origin)

    def branch(self, branch: Branch) -> None:
        """Both arms; what they merge is written to one place."""
        condition = cast(self.scalar(branch.condition), BOOL)
        arrays: list[tuple[tuple[Value, Value], Memory]] = []
        scalars: list[tuple[tuple[Value, Value], str, DType]] = []
        for merged in branch.merged:
            type_, arms_of = merged.after.type, (merged.then, merged.orelse)
            if merged.in_place:
                continue
            if isinstance(type_, ArrayType) and type_.rank > 0:
                arrays += [(arms_of, memory) for memory in self.destinations(merged.after)]
            else:
                dtype = scalar_dtype(type_)
                name = self.fresh(merged.after.name or "merged")
                self.emit(Local(name, Const(dtype.numpy.type(0).item(), dtype)))
                self.scalars[merged.after] = Var(name, dtype)
                scalars.append((arms_of, name, dtype))
        arms = []
        for arm, graph in enumerate((branch.then, branch.orelse)):
            with self.collecting() as statements:
                # what the arm computes goes straight to its place; what it only passes on is copied there
                passed = []
                for values, memory in arrays:
                    if values[arm] in self.memory:
                        passed.append((values[arm], memory))
                    else:
                        self.want(values[arm], memory)
                self.run(graph)
                for values, _ in arrays:
                    self.settle(values[arm])
                for value, memory in passed:
                    self.nests.copy(self.place(value), memory)
                for values, name, dtype in scalars:
                    self.emit(Assign(name, cast(self.scalar(values[arm]), dtype)))
            arms.append(Block(tuple(statements)))
        self.emit(If(condition, arms[0], arms[1]))
        for merged in branch.merged:
            if merged.in_place:
                self.memory[merged.after] = self.place(merged.then)

    # -- the region -------------------------------------------------------------------------------------------

    def lower(self) -> Lowered:
        """Lower the whole region."""
        region = self.region
        if set(region.exits) != {"return"}:
            raise NotLowered("a region with several exits")
        specs, strides, arguments, scalars = self._inputs()
        exit_ = region.exits["return"]
        results = Results(self)
        for result in exit_.values():
            results.prepare(result)
        self.commits.prepare()
        self.run(self.graph)
        symbols: dict[str, None] = {}
        for spec in specs:
            for dim in (*spec.dims, *(() if spec.value is None else (spec.value,))):
                for symbol in sorted(symbols_of(dim), key=str):
                    symbols.setdefault(symbol.name)
        specs = [self._indexing(number, spec) for number, spec in enumerate(specs)]
        sizes = [SizeSpec(name, "symbol") for name in symbols] + strides + results.capacities
        known = {s.name for s in sizes}
        recipes = {register: results.finish(result, known) for register, result in exit_.items()}
        commits = self.commits
        if region.writes:
            commits.keep(known)
            sizes.append(SizeSpec(commits.phase.name, "phase"))
        body = Block((*self.prologue, *self.statements))
        self.postponed.drop_unused_packs(body)
        function = Function(
            re.sub(r"\W", "_", region.name),
            tuple(Var(s.name) for s in sizes),
            tuple(scalars),
            (
                *arguments,
                *(b for b in self.packed.values() if b.space == "constant"),
                *results.buffers,
                *commits.buffers,
            ),
            tuple(results.outputs),
            commits.wrapped(body),
            (region.name, region.start, region.start),
        )
        interface = Interface(
            tuple(specs),
            tuple(sizes),
            {"return": recipes},
            tuple(self.packs),
            tuple(commits.specs),
            tuple((name, size) for name, size in self.required.items() if name in symbols),
        )
        return Lowered(function, interface, tuple(self.sites), region)

    def _indexing(self, number: int, spec: InputSpec) -> InputSpec:
        """The description of an input with the axes it is an index into, as far as their sizes are known outside."""
        if spec.kind != "array" or spec.dtype.kind not in "iu":
            return spec
        sizes = self.indexed.get(number) or self.indexed.get(None, [])
        known = {s for size in sizes for s in symbols_of(size) if s.kind != "input"}
        return replace(spec, indexes=tuple(dict.fromkeys(d for d in sizes if not set(symbols_of(d)) & known)))

    def _inputs(self) -> tuple[list[InputSpec], list[SizeSpec], list[Buffer], list[Var]]:
        specs: list[InputSpec] = []
        strides: list[SizeSpec] = []
        buffers: list[Buffer] = []
        scalars: list[Var] = []
        for number, given in enumerate(self.region.inputs):
            type_ = given.value.type
            name = self.fresh(given.value.name or f"in{number}")
            if isinstance(type_, ArrayType):
                layout, contiguous = input_layout(type_), type_.layout.is_c
                steps_: tuple[DimLike, ...] = f_strides(type_.shape) if layout == "F" else c_strides(type_.shape)
                if layout in ("rows", "any"):
                    names = [self.fresh(f"{name}_s{axis}") for axis in range(type_.rank)]
                    strides += [SizeSpec(n, "stride", number, axis) for axis, n in enumerate(names)]
                    steps_ = tuple(Symbol(n, "scalar") for n in names)
                buffer = Buffer(
                    name,
                    type_.dtype,
                    tuple(dim_expression(d) for d in type_.shape),
                    None if contiguous else tuple(dim_expression(s) for s in steps_),
                )
                buffers.append(buffer)
                self.inputs[name] = number
                self.memory[given.value] = Memory.whole(buffer, type_.shape, steps_)
                specs.append(
                    InputSpec(
                        name, "array", type_.dtype, type_.shape, contiguous, given.source, type_.wrapper, layout=layout
                    )
                )
                continue
            kind, dtype = scalar_kind(type_), scalar_dtype(type_)
            value = type_.value if isinstance(type_, PyIntType) else None
            specs.append(InputSpec(name, kind, dtype, (), True, given.source, value=value))
            if value is None:
                scalars.append(Var(name, dtype))
                self.scalars[given.value] = Var(name, dtype)
        return specs, strides, buffers, scalars


def input_layout(type_: ArrayType) -> Literal["C", "F", "rows", "any"]:
    """What the entry has to check of the strides of an input: see `InputSpec.layout`."""
    layout = type_.layout
    if layout.is_c:
        return "C"
    if layout.is_f:
        return "F"
    return "rows" if type_.rank > 1 and layout.order == tuple(range(type_.rank)) else "any"


def lower_region(region: Region) -> Lowered:
    """Prepare and lower a region.

    Raises:
        NotLowered: with the reason and the instruction, for what has no machine code.
    """
    return Lowerer(region).lower()
