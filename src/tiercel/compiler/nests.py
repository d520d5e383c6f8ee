"""Loop nests: groups, copies, general reductions and products as statements of the loop form.

In: a `Group` of `fuse`, whose outside operands have memory. Out: statements, and a place for every value used outside
of the
group. The nest of a group over (d0, ..., dn):

* axes that are adjacent in every operand and result are merged; what is left of a purely elementwise group may be one
  axis, which is cut into chunks for the threads;
* the outermost axis is parallel, the innermost a vector axis;
* a group with row reductions makes passes over the innermost axis: a pass ends where a value needs a reduction of it.
  Costly elements needed in a later pass are kept (in their result, or in a scratch row), cheap ones computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import EXPENSIVE, NotLowered, cast
from tiercel.compiler.expand import reduced_axes
from tiercel.compiler.fuse import REDUCTIONS, Group, is_array, is_row_reduction
from tiercel.compiler.graph import Node, Value
from tiercel.compiler.memory import Memory, c_strides, view_buffer
from tiercel.dtypes import DType
from tiercel.loops.form import (
    INDEX,
    Allocate,
    Binary,
    Block,
    Buffer,
    Compare,
    Const,
    Contract,
    Exit,
    Expr,
    For,
    If,
    Let,
    Load,
    Local,
    Reduce,
    Select,
    Stmt,
    Store,
    Unary,
    Var,
)
from tiercel.operators import get
from tiercel.operators.types import ArrayType, NpScalarType, PyIntType, Shape
from tiercel.shapes import DimLike, Symbol, ceil_div, product

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer

CHUNK = 16_384
"""Elements of a one-dimensional nest that one thread takes at a time: 64 KiB of float32 per operand."""


def identity_of(op: str, dtype: DType) -> float:
    """The value a reduction starts from."""
    if op in ("min", "max"):
        if dtype.kind == "b":
            return op == "min"
        if dtype.kind == "f":
            return float("inf") if op == "min" else float("-inf")
        return int(dtype.max if op == "min" else dtype.min)
    return {"add": 0, "mul": 1, "and": True, "or": False}[op]


class Access:
    """A value seen over the axes of a nest: strides per axis, and after `declare` a buffer of that shape."""

    def __init__(self, memory: Memory, strides: Shape) -> None:
        self.memory = memory
        self.strides = strides
        self.buffer: Buffer | None = None


class Nests:
    """Builds nests into the statements of a `Lowerer`."""

    def __init__(self, state: Lowerer) -> None:
        self.state = state

    # -- operands ---------------------------------------------------------------------------------------------

    def strides_over(self, memory: Memory, domain: Shape, origin: int) -> Shape:
        """Strides of an operand over a domain it broadcasts to; sizes that may be 1 are looked at when running."""
        state = self.state
        missing = len(domain) - len(memory.shape)
        strides: list[DimLike] = [0] * missing
        for dim, size, stride in zip(memory.shape, domain[missing:], memory.strides, strict=True):
            if dim == 1:
                strides.append(0)
            elif dim == size or state.facts.equal(dim, size) is True:
                strides.append(stride)
            else:
                one = Compare("eq", dim_expression(dim), Const(1, INDEX))
                agree = Binary("or", one, Compare("eq", dim_expression(dim), dim_expression(size)))
                state.emit(If(Unary("not", agree), Block((Exit(state.site(origin)),))))
                name = state.fresh("step")
                state.emit(Let(name, Select(one, Const(0, INDEX), dim_expression(stride))))
                strides.append(Symbol(name, "scalar"))
        return tuple(strides)

    def declare(self, access: Access, dims: Shape, hint: str) -> Buffer:
        """Make the access a buffer over `dims` (the merged axes)."""
        memory = access.memory
        root = memory.root
        # the root itself only where it has these very sizes and strides: a reshaped or transposed view does not
        own = tuple(dim_expression(s) for s in access.strides)
        plain = memory.offset == 0 and dims == memory.shape and root.shape == tuple(dim_expression(d) for d in dims)
        if plain and (access.strides == c_strides(dims) if root.strides is None else root.strides == own):
            access.buffer = root
            return root
        access.buffer = view_buffer(self.state.fresh(f"{hint}_view"), memory, dims, access.strides)
        self.state.emit(Allocate(access.buffer))
        return access.buffer

    def position(self, part: object, size: DimLike, origin: int) -> DimLike:
        """An int index into an axis of `size`, as a size; checked, negative ones from the end."""
        state = self.state
        if isinstance(part, Value) and isinstance(part.type, PyIntType) and part.type.value is not None:
            part = part.type.value
        if isinstance(part, int) and isinstance(size, int):
            return part + size if part < 0 else part
        if isinstance(part, int) and part < 0:
            lowest: DimLike = part + size
            if state.facts.less_equal(0, lowest) is not True:
                self.state.require(Compare("ge", dim_expression(lowest), Const(0, INDEX)), origin)
            return lowest
        if not isinstance(part, Value):
            place: DimLike = part  # type: ignore[assignment]
            trip = state.trips.get(place)
            if trip is not None and (trip == size or state.facts.less_equal(trip, size) is True):
                return place  # a loop counter within the loop's own bounds
            if state.facts.less_equal(place + 1, size) is not True or state.facts.less_equal(0, place) is not True:
                expression = dim_expression(place)
                below = Compare("lt", expression, dim_expression(size))
                self.state.require(Binary("and", below, Compare("ge", expression, Const(0, INDEX))), origin)
            return place
        index = cast(state.scalar(part), INDEX)
        name = state.fresh("at")
        extent = dim_expression(size)
        wrapped = Select(Compare("lt", index, Const(0, INDEX)), Binary("add", index, extent), index)
        state.emit(Let(name, wrapped))
        at = Var(name)
        inside = Binary("and", Compare("ge", at, Const(0, INDEX)), Compare("lt", at, extent))
        self.state.require(inside, origin)
        return Symbol(name, "scalar")

    # -- single elements --------------------------------------------------------------------------------------

    def load_scalar(self, memory: Memory) -> Expr:
        """The element of a rank-0 memory, read now."""
        buffer = self.declare(Access(memory, ()), (), memory.root.name)
        name = self.state.fresh("element")
        self.state.emit(Let(name, Load(buffer, ())))
        return Var(name, buffer.dtype)

    def store_scalar(self, memory: Memory, value: Expr) -> None:
        """Write the element of a rank-0 memory."""
        buffer = self.declare(Access(memory, ()), (), memory.root.name)
        self.state.emit(Store(buffer, (), cast(value, buffer.dtype)))

    # -- axes -------------------------------------------------------------------------------------------------

    @staticmethod
    def merge(dims: Shape, accesses: Sequence[Access]) -> Shape:
        """Merge adjacent axes wherever every access allows; the accesses' strides are changed with them."""
        if not dims:
            return dims
        merged = [dims[-1]]
        strides = [[a.strides[-1]] for a in accesses]
        for axis in range(len(dims) - 2, -1, -1):
            inner = merged[0]
            if all(a.strides[axis] == s[0] * inner for a, s in zip(accesses, strides, strict=True)):
                merged[0] = dims[axis] * inner
            else:
                merged.insert(0, dims[axis])
                for a, s in zip(accesses, strides, strict=True):
                    s.insert(0, a.strides[axis])
        for a, s in zip(accesses, strides, strict=True):
            a.strides = tuple(s)
        return tuple(merged)

    def over(self, dims: Shape, body: Callable[[tuple[Expr, ...]], None], *, parallel: bool = True) -> None:
        """Loops over `dims`, the outermost parallel; `body` gets the indices and makes the statements inside."""
        state = self.state
        names = [state.fresh("i") for _ in dims]
        with state.collecting() as statements:
            body(tuple(Var(n) for n in names))
        stmts: list[Stmt] = statements
        for position, (name, dim) in enumerate(zip(reversed(names), reversed(dims), strict=True)):
            outermost = position == len(dims) - 1
            axis = "parallel" if parallel and outermost else "serial"
            stmts = [For(name, dim_expression(dim), Block(tuple(stmts)), axis)]
        for stmt in stmts:
            state.emit(stmt)

    def elements(self, dims: Shape, body: Callable[[tuple[Expr, ...]], list[Stmt]]) -> None:
        """A nest whose innermost axis is a vector axis; one long axis is cut into chunks for the threads."""
        state = self.state
        if len(dims) == 1 and not (isinstance(dims[0], int) and dims[0] <= CHUNK):
            chunk, start, count, j = (state.fresh(n) for n in ("chunk", "start", "count", "j"))
            total = dim_expression(dims[0])
            inside = (
                Let(start, Binary("mul", Var(chunk), Const(CHUNK, INDEX))),
                Let(count, Binary("min", Const(CHUNK, INDEX), Binary("sub", total, Var(start)))),
                For(j, Var(count), Block(tuple(body((Binary("add", Var(start), Var(j)),)))), "vector"),
            )
            state.emit(For(chunk, dim_expression(ceil_div(dims[0], CHUNK)), Block(inside), "parallel"))
            return
        if not dims:
            for stmt in body(()):
                state.emit(stmt)
            return

        def row(outer: tuple[Expr, ...]) -> None:
            j = state.fresh("j")
            state.emit(For(j, dim_expression(dims[-1]), Block(tuple(body((*outer, Var(j))))), "vector"))

        self.over(dims[:-1], row)

    def vector_last(self, dims: Shape, accesses: Sequence[Access]) -> Shape:
        """Reorder the axes so that the one most accesses are contiguous along is innermost."""
        if len(dims) < 2:
            return dims
        score = [sum(a.strides[axis] == 1 for a in accesses) for axis in range(len(dims))]
        best = max(range(len(dims)), key=lambda axis: (score[axis], axis))
        order = [a for a in range(len(dims)) if a != best] + [best]
        for access in accesses:
            access.strides = tuple(access.strides[a] for a in order)
            shape = access.memory.shape
            if len(shape) == len(dims):
                memory = access.memory
                access.memory = replace(
                    memory, shape=tuple(shape[a] for a in order), strides=tuple(memory.strides[a] for a in order)
                )
        return tuple(dims[a] for a in order)

    def copy(self, source: Memory, target: Memory) -> None:
        """Elements of one memory into another of the same shape."""
        accesses = [Access(source, source.strides), Access(target, target.strides)]
        dims = self.merge(self.vector_last(target.shape, accesses), accesses)
        read = self.declare(accesses[0], dims, source.root.name)
        write = self.declare(accesses[1], dims, target.root.name)

        def body(index: tuple[Expr, ...]) -> list[Stmt]:
            return [Store(write, index, cast(Load(read, index), write.dtype))]

        self.elements(dims, body)

    def fill(self, target: Memory, element: Callable[[tuple[Expr, ...]], Expr]) -> None:
        """Every element from its index."""
        buffer = self.declare(Access(target, target.strides), target.shape, target.root.name)
        dims = target.shape

        def body(index: tuple[Expr, ...]) -> list[Stmt]:
            return [Store(buffer, index, cast(element(index), buffer.dtype))]

        self.elements(dims, body)

    def triangle(self, source: Memory, target: Memory, k: int, *, lower: bool) -> None:
        """A copy with zeros above (or below) diagonal k of the last two axes."""
        read = self.declare(Access(source, source.strides), source.shape, source.root.name)
        write = self.declare(Access(target, target.strides), target.shape, target.root.name)

        def body(index: tuple[Expr, ...]) -> list[Stmt]:
            edge = Binary("add", index[-2], Const(k, INDEX))
            inside = Compare("le" if lower else "ge", index[-1], edge)
            return [Store(write, index, Select(inside, Load(read, index), Const(0, read.dtype)))]

        self.elements(target.shape, body)

    def gather_rows(self, table: Memory, indices: Memory, output: Value, origin: int) -> None:
        """`output[i..., j...] = table[indices[i...], j...]`, after all indices have been found in range."""
        state = self.state
        access = Access(indices, indices.strides)
        dims = self.merge(indices.shape, [access])
        read = self.declare(access, dims, "indices")
        low, high = state.fresh("lowest"), state.fresh("highest")
        state.emit(Local(low, Const(0, INDEX)))
        state.emit(Local(high, Const(-1, INDEX)))
        names = [state.fresh("r") for _ in dims]
        value = cast(Load(read, tuple(Var(n) for n in names)), INDEX)
        stmts: list[Stmt] = [Reduce(low, "min", value), Reduce(high, "max", value)]
        for position, (name, dim) in enumerate(zip(reversed(names), reversed(dims), strict=True)):
            stmts = [For(name, dim_expression(dim), Block(tuple(stmts)), "serial" if position else "vector")]
        for stmt in stmts:
            state.emit(stmt)
        size = dim_expression(table.shape[0])
        above = Compare("lt", Var(high), size)
        below = Compare("ge", Binary("add", Var(low), size), Const(0, INDEX))
        self.state.require(Binary("and", above, below), origin)
        rows = self.declare(Access(table, table.strides), table.shape, table.root.name)
        own = self.declare(Access(indices, indices.strides), indices.shape, "indices")
        rank = len(indices.shape)
        for memory in state.destinations(output):
            write = self.declare(Access(memory, memory.strides), memory.shape, output.name or "y")

            def body(index: tuple[Expr, ...], write: Buffer = write) -> list[Stmt]:
                at = cast(Load(own, index[:rank]), INDEX)
                row = Select(Compare("lt", at, Const(0, INDEX)), Binary("add", at, size), at)
                return [Store(write, index, Load(rows, (row, *index[rank:])))]

            self.elements(memory.shape, body)

    # -- groups -----------------------------------------------------------------------------------------------

    def needed_outside(self, group: Group, value: Value) -> bool:
        """Does anything but the group's members use the value?

        What nothing uses is kept too: it is computed for the floating-point flags it may raise, and code that nothing
        uses does not survive instruction selection.
        """
        state = self.state
        if value in state.wanted:
            return True
        members = set(map(id, group.nodes))
        uses = state.uses.get(value, [])
        if not uses:
            return True
        result = any(value is r for r in self._returned())
        return result or any(id(step) not in members for step in uses)

    def _returned(self) -> list[Value]:
        found: list[Value] = []

        def collect(results: Sequence[object]) -> None:
            for result in results:
                if getattr(result, "value", None) is not None:
                    found.append(result.value)  # type: ignore[attr-defined]
                collect(getattr(result, "items", ()))

        for exit_ in self.state.region.exits.values():
            collect(list(exit_.values()))
        return found

    def outside_operands(self, group: Group) -> list[Value]:
        """Array operands computed before, each once, in order."""
        seen: dict[Value, None] = {}
        for node in group.nodes:
            if node is group.contraction:
                continue
            for value in node.inputs:
                if is_array(value) and value not in group.values and value not in self.state.scalars:
                    seen.setdefault(value)
        return list(seen)

    def group(self, group: Group) -> None:
        """The nest of a group."""
        if group.contraction is not None:
            self._product(group, group.contraction)
        elif group.row:
            self._rows(group)
        else:
            self._pointwise(group)

    def _pointwise(self, group: Group) -> None:
        state = self.state
        domain = group.domain
        reads = {
            v: Access(state.place(v), self.strides_over(state.place(v), domain, group.nodes[0].origin))
            for v in self.outside_operands(group)
        }
        outputs = [n.outputs[0] for n in group.nodes if self.needed_outside(group, n.outputs[0])]
        writes = {v: [Access(m, m.strides) for m in state.destinations(v)] for v in outputs}
        accesses = [*reads.values(), *(a for many in writes.values() for a in many)]
        dims = self.merge(self.vector_last(domain, accesses), accesses)
        for value, access in reads.items():
            self.declare(access, dims, value.name or "x")
        for value, many in writes.items():
            for access in many:
                self.declare(access, dims, value.name or "y")
        self.elements(dims, lambda index: self._members(group.nodes, reads, writes, index, {}))

    def _members(
        self,
        nodes: Sequence[Node],
        reads: dict[Value, Access],
        writes: dict[Value, list[Access]],
        index: tuple[Expr, ...],
        known: dict[Value, Expr],
    ) -> list[Stmt]:
        """The statements that compute elementwise nodes at `index`."""
        state = self.state
        stmts: list[Stmt] = []

        def operand(value: Value) -> Expr:
            if value in known:
                return known[value]
            if value in reads:
                buffer = reads[value].buffer
                assert buffer is not None
                name = state.fresh(value.name or "x")
                stmts.append(Let(name, Load(buffer, index)))
                known[value] = Var(name, buffer.dtype)
                return known[value]
            return state.scalar(value)

        for node in nodes:
            expression = state.combine(node, operand)
            name = state.fresh(node.outputs[0].name or "v")
            stmts.append(Let(name, expression))
            known[node.outputs[0]] = Var(name, expression.dtype)
            for access in writes.get(node.outputs[0], ()):
                assert access.buffer is not None
                stmts.append(Store(access.buffer, index, cast(known[node.outputs[0]], access.buffer.dtype)))
        return stmts

    # -- rows -------------------------------------------------------------------------------------------------

    def _rows(self, group: Group) -> None:
        state = self.state
        domain, origin = group.domain, group.nodes[0].origin
        outer = domain[:-1]
        reads: dict[Value, Access] = {}
        row_reads: dict[Value, Access] = {}
        for value in self.outside_operands(group):
            memory = state.place(value)
            if self._read_by_full(group, value):
                reads[value] = Access(memory, self.strides_over(memory, domain, origin))
            if self._read_by_row(group, value):
                row_reads[value] = Access(memory, self._row_strides(memory, outer, origin))
        writes: dict[Value, list[Access]] = {}
        row_writes: dict[Value, list[Access]] = {}
        for node in group.nodes:
            value = node.outputs[0]
            if not self.needed_outside(group, value):
                continue
            if value in group.full:
                writes[value] = [Access(m, m.strides) for m in state.destinations(value)]
            elif isinstance(value.type, ArrayType):
                row_writes[value] = [Access(m, self._row_strides(m, outer, origin)) for m in state.destinations(value)]
        full = [*reads.values(), *(a for many in writes.values() for a in many)]
        rows = [*row_reads.values(), *(a for many in row_writes.values() for a in many)]
        # merge the outer axes only: all accesses without their last stride
        last = [a.strides[-1] for a in full]
        for access in full:
            access.strides = access.strides[:-1]
        dims = self.merge(outer, [*full, *rows])
        for access, stride in zip(full, last, strict=True):
            access.strides = (*access.strides, stride)
        for table, shape in ((reads, (*dims, domain[-1])), (row_reads, dims)):
            for value, access in table.items():
                self.declare(access, shape, value.name or "x")
        for many_table, shape in ((writes, (*dims, domain[-1])), (row_writes, dims)):
            for value, many in many_table.items():
                for access in many:
                    self.declare(access, shape, value.name or "y")
        for node in group.nodes:
            if is_row_reduction(node) and node.operator in ("max", "min") and not node.attributes.get("initial"):
                some = Compare("gt", dim_expression(domain[-1]), Const(0, INDEX))
                self.state.require(some, node.origin)
        body = _RowBody(self, group, reads, row_reads, writes, row_writes)
        self.over(dims, body.run)

    @staticmethod
    def _read_by_full(group: Group, value: Value) -> bool:
        return any(value in n.inputs and (n.outputs[0] in group.full or is_row_reduction(n)) for n in group.nodes)

    @staticmethod
    def _read_by_row(group: Group, value: Value) -> bool:
        return any(value in n.inputs and n.outputs[0] in group.row and not is_row_reduction(n) for n in group.nodes)

    def _row_strides(self, memory: Memory, outer: Shape, origin: int) -> Shape:
        """Strides over the outer axes of something of shape [..., 1], [...] or broadcast to them."""
        shape, strides = memory.shape, memory.strides
        if len(shape) == len(outer) + 1:
            shape, strides = shape[:-1], strides[:-1]
        return self.strides_over(replace(memory, shape=shape, strides=strides), outer, origin)

    # -- products ---------------------------------------------------------------------------------------------

    def _product(self, group: Group, node: Node) -> None:
        state = self.state
        x, y = (state.place(v) for v in node.inputs)
        dtype = x.root.dtype
        output = node.outputs[0]
        assert isinstance(output.type, ArrayType)
        if not (dtype is y.root.dtype is output.type.dtype) or dtype.name not in ("float32", "float64"):
            raise NotLowered(f"a product of {dtype.name} and {y.root.dtype.name}", node.origin)
        if len(x.shape) < 2 or len(y.shape) < 2 or (node.operator == "dot" and len(y.shape) > 2):
            raise NotLowered("a product with a vector", node.origin)
        if state.facts.equal(x.shape[-1], y.shape[-2]) is not True:
            agree = Compare("eq", dim_expression(x.shape[-1]), dim_expression(y.shape[-2]))
            self.state.require(agree, node.origin)
        if len(y.shape) == 2 and len(x.shape) > 2:
            flat = (product(x.shape[:-1]), x.shape[-1])
            view = x.reshaped(flat)
            if view is None:
                compact = state.arena("compact", dtype, x.shape)
                self.copy(x, compact)
                view = compact.reshaped(flat)
                assert view is not None
            x = view
            batch: Shape = ()
        else:
            batch = group.domain[:-2]
        origin, domain = node.origin, group.domain
        reads = {
            v: Access(state.place(v), self.strides_over(state.place(v), domain, origin))
            for v in self.outside_operands(group)
        }
        outputs = [n.outputs[0] for n in group.nodes if self.needed_outside(group, n.outputs[0])]
        writes = {v: [Access(m, m.strides) for m in state.destinations(v)] for v in outputs}
        if batch:
            self._batched(group, node, x, y, reads, writes)
            return
        everything = [*reads.values(), *(a for many in writes.values() for a in many)]
        lasts = [a.strides[-1] for a in everything]
        for access in everything:
            access.strides = access.strides[:-1]
        lead = self.merge(domain[:-1], everything)
        for access, stride in zip(everything, lasts, strict=True):
            access.strides = (*access.strides, stride)
        self._contract(group, node, x, y, reads, writes, lead)

    def _contract(
        self,
        group: Group,
        node: Node,
        x: Memory,
        y: Memory,
        reads: dict[Value, Access],
        writes: dict[Value, list[Access]],
        lead: Shape,
    ) -> None:
        """One product of matrices; `lead` are the axes its rows run over."""
        state = self.state
        dims = (*lead, group.domain[-1])
        for value, access in reads.items():
            self.declare(access, dims, value.name or "x")
        for value, many in writes.items():
            for access in many:
                self.declare(access, dims, value.name or "y")
        a = self.declare(Access(x, x.strides), x.shape, "a")
        packed = state.packed_operand(y)
        if packed is None:
            b = self.declare(Access(y, y.strides), y.shape, "b")
        elif packed.space == "constant":
            b = packed
        else:
            b = Buffer(
                state.fresh("b_packed"), packed.dtype, tuple(dim_expression(d) for d in y.shape), None, "arena",
                packed.name, Const(0, INDEX),
            )  # fmt: skip
            state.emit(Allocate(b))
        row, column, total = (state.fresh(n) for n in ("row", "column", "total"))
        index = self._unflatten(Var(row), lead)
        dtype = x.root.dtype
        known: dict[Value, Expr] = {node.outputs[0]: Var(total, dtype)}
        stmts: list[Stmt] = []
        for access in writes.get(node.outputs[0], ()):
            assert access.buffer is not None
            stmts.append(Store(access.buffer, (*index, Var(column)), Var(total, dtype)))
        stmts += self._members([n for n in group.nodes if n is not node], reads, writes, (*index, Var(column)), known)
        m, n, k = (dim_expression(d) for d in (x.shape[0], y.shape[1], x.shape[1]))
        state.emit(Contract(a, b, row, column, total, Block(tuple(stmts)), m, n, k, packed is not None))

    @staticmethod
    def _unflatten(row: Expr, lead: Shape) -> tuple[Expr, ...]:
        """The indices of the leading axes from the row number."""
        index: list[Expr] = []
        rest = row
        for dim in reversed(lead[1:]):
            # with a size of 0 there is no row; the divisor only has to be no zero
            extent = Binary("max", dim_expression(dim), Const(1, INDEX))
            index.append(Binary("mod", rest, extent))
            rest = Binary("floordiv", rest, extent)
        return tuple(reversed([*index, rest])) if lead else ()

    def _batched(
        self,
        group: Group,
        node: Node,
        x: Memory,
        y: Memory,
        reads: dict[Value, Access],
        writes: dict[Value, list[Access]],
    ) -> None:
        """A product of stacks of matrices: loops over the leading axes around products."""
        batch = group.domain[:-2]
        over = {
            id(m): self.strides_over(replace(m, shape=m.shape[:-2], strides=m.strides[:-2]), batch, node.origin)
            for m in (x, y)
        }

        def at(memory: Memory, strides: Shape, index: tuple[Symbol, ...]) -> Memory:
            offset = memory.offset
            for i, stride in zip(index, strides, strict=True):
                offset = offset + i * stride
            return Memory(memory.root, memory.shape[-2:], memory.strides[-2:], offset)

        def body(index: tuple[Expr, ...]) -> None:
            symbols = tuple(Symbol(i.name, "scalar") for i in index if isinstance(i, Var))

            def inner(access: Access) -> Access:
                offset = access.memory.offset
                for i, stride in zip(symbols, access.strides[:-2], strict=True):
                    offset = offset + i * stride
                memory = Memory(access.memory.root, group.domain[-2:], access.strides[-2:], offset)
                return Access(memory, access.strides[-2:])

            self._contract(
                group,
                node,
                at(x, over[id(x)], symbols),
                at(y, over[id(y)], symbols),
                {v: inner(a) for v, a in reads.items()},
                {v: [inner(a) for a in many] for v, many in writes.items()},
                (group.domain[-2],),
            )

        self.over(batch, body)

    # -- general reductions -----------------------------------------------------------------------------------

    def reduce(self, node: Node) -> None:
        """A reduction over any axes of an array in memory.

        Over trailing axes it is a row reduction of the merged axes; over others the innermost kept axis is the vector
        axis, with one partial result per lane.
        """
        state = self.state
        source = state.place(node.inputs[0])
        rank = len(source.shape)
        axes = reduced_axes(node, rank)
        kept = [a for a in range(rank) if a not in axes]
        op, output = REDUCTIONS[node.operator], node.outputs[0]
        dtype = output.type.dtype if isinstance(output.type, ArrayType | NpScalarType) else None
        if dtype is None or dtype.kind == "c":
            raise NotLowered(f"{node.operator} to a {output.type}", node.origin)
        accumulator = dtype.accumulator if dtype.name in ("float16", "bfloat16") else dtype
        if node.operator in ("max", "min") and not node.attributes.get("initial"):
            for a in axes:
                if not isinstance(source.shape[a], int) or source.shape[a] == 0:
                    self.state.require(Compare("gt", dim_expression(source.shape[a]), Const(0, INDEX)), node.origin)
        start = Const(identity_of(op, accumulator), accumulator)
        access = Access(source.permuted([*kept, *axes]), source.permuted([*kept, *axes]).strides)
        name = state.fresh("fold")

        def fold(index: tuple[Expr, ...], buffer: Buffer, dims: Shape, vector: bool) -> list[Stmt]:
            names = [state.fresh("r") for _ in dims]
            value = cast(Load(buffer, (*index, *(Var(n) for n in names))), accumulator)
            stmts: list[Stmt] = [Reduce(name, op, value)]
            for position, (r, dim) in enumerate(zip(reversed(names), reversed(dims), strict=True)):
                kind = "vector" if vector and position == 0 else "serial"
                stmts = [For(r, dim_expression(dim), Block(tuple(stmts)), kind)]
            return stmts

        outer, inner = tuple(source.shape[a] for a in kept), tuple(source.shape[a] for a in axes)
        split = len(kept)
        inner_access = Access(access.memory, access.strides[split:])
        inner_dims = self.merge(inner, [inner_access])
        if not kept:
            whole = Access(access.memory, inner_access.strides)
            buffer = self.declare(whole, inner_dims, node.inputs[0].name or "x")
            state.emit(Local(name, start))
            for stmt in fold((), buffer, inner_dims, vector=True):
                state.emit(stmt)
            result: Expr = cast(Var(name, accumulator), dtype)
            if isinstance(output.type, ArrayType):
                for memory in state.destinations(output):
                    flat = Memory(memory.root, (), (), memory.offset)
                    self.store_scalar(flat, result)
            else:
                state.scalars[output] = result
            return
        assert isinstance(output.type, ArrayType)
        targets = []
        for memory in state.destinations(output):
            strides = memory.strides
            if len(memory.shape) == rank:  # keepdims
                strides = tuple(memory.strides[a] for a in kept)
            targets.append(Access(replace(memory, shape=outer, strides=strides), strides))
        outer_access = Access(access.memory, access.strides[:split])
        outer_dims = self.merge(outer, [outer_access, *targets])
        combined = Access(access.memory, (*outer_access.strides, *inner_access.strides))
        buffer = self.declare(combined, (*outer_dims, *inner_dims), node.inputs[0].name or "x")
        stores = [self.declare(t, outer_dims, output.name or "y") for t in targets]
        trailing = inner_access.strides[-1:] == (1,) and outer_access.strides[-1:] != (1,)

        def finish(index: tuple[Expr, ...]) -> list[Stmt]:
            return [Store(s, index, cast(Var(name, accumulator), s.dtype)) for s in stores]

        if trailing:

            def row(index: tuple[Expr, ...]) -> None:
                state.emit(Local(name, start))
                for stmt in (*fold(index, buffer, inner_dims, vector=True), *finish(index)):
                    state.emit(stmt)

            self.over(outer_dims, row)
        else:
            self.elements(
                outer_dims,
                lambda index: [
                    Local(name, start),
                    *fold(index, buffer, inner_dims, vector=False),
                    *finish(index),
                ],
            )


class _RowBody:
    """The passes over one row of a group with row values."""

    def __init__(
        self,
        nests: Nests,
        group: Group,
        reads: dict[Value, Access],
        row_reads: dict[Value, Access],
        writes: dict[Value, list[Access]],
        row_writes: dict[Value, list[Access]],
    ) -> None:
        self.nests, self.state, self.group = nests, nests.state, group
        self.reads, self.row_reads, self.writes, self.row_writes = reads, row_reads, writes, row_writes
        self.maker = {n.outputs[0]: n for n in group.nodes}
        self.level: dict[Value, int] = {}
        for node in group.nodes:
            level = max((self.level[v] for v in node.inputs if v in self.level), default=0)
            self.level[node.outputs[0]] = level + 1 if is_row_reduction(node) else level
        self.row_values: dict[Value, Expr] = {}
        self.scratch: dict[Value, Buffer] = {}

    def pass_of(self, node: Node) -> int:
        """The pass over the row in which a full member or a reduction is computed."""
        return self.level[node.outputs[0]] - (1 if is_row_reduction(node) else 0)

    def run(self, outer: tuple[Expr, ...]) -> None:
        """Make the statements of one row."""
        state, group = self.state, self.group
        passes = 1 + max(self.pass_of(n) for n in group.nodes if n.outputs[0] in group.full or is_row_reduction(n))
        for value in self._kept():
            dtype = value.type.dtype  # type: ignore[attr-defined]
            self.scratch[value] = Buffer(
                state.fresh(f"{value.name or 'kept'}_row"), dtype, (dim_expression(group.domain[-1]),), space="arena"
            )
            state.emit(Allocate(self.scratch[value]))
        self._row_members(outer, 0)
        for number in range(passes):
            self._pass(outer, number)
            self._row_members(outer, number + 1)
        for value, many in self.row_writes.items():
            for access in many:
                assert access.buffer is not None
                state.emit(Store(access.buffer, outer, cast(self.row_values[value], access.buffer.dtype)))
        for value, expression in self.row_values.items():
            if not outer and not isinstance(value.type, ArrayType):
                state.scalars[value] = expression

    def _kept(self) -> list[Value]:
        """Costly full values used in a later pass that have no destination to be read from again."""
        found = []
        for node in self.group.nodes:
            value = node.outputs[0]
            if value not in self.group.full or value in self.writes or not self._costly(node):
                continue
            if any(value in n.inputs and self.pass_of(n) > self.pass_of(node) for n in self.group.nodes):
                found.append(value)
        return found

    @staticmethod
    def _costly(node: Node) -> bool:
        return get(node.operator).lowering.key in EXPENSIVE

    def _row_members(self, outer: tuple[Expr, ...], level: int) -> None:
        state = self.state
        for node in self.group.nodes:
            value = node.outputs[0]
            if value in self.group.full or is_row_reduction(node) or self.level[value] != level:
                continue
            expression = state.combine(node, lambda v: self._row_operand(v, outer))
            name = state.fresh(value.name or "r")
            state.emit(Let(name, expression))
            self.row_values[value] = Var(name, expression.dtype)

    def _row_operand(self, value: Value, outer: tuple[Expr, ...]) -> Expr:
        if value in self.row_values:
            return self.row_values[value]
        if value in self.row_reads:
            buffer = self.row_reads[value].buffer
            assert buffer is not None
            return Load(buffer, outer)
        return self.state.scalar(value)

    def _pass(self, outer: tuple[Expr, ...], number: int) -> None:
        state, group = self.state, self.group
        j = state.fresh("j")
        index = (*outer, Var(j))
        stmts: list[Stmt] = []
        known: dict[Value, Expr] = {}
        reductions: list[tuple[Node, str, DType]] = []

        def operand(value: Value) -> Expr:
            if value in known:
                return known[value]
            if value in self.row_values:
                return self.row_values[value]
            if value in self.maker:
                stored = self._stored(value, index)
                if stored is None or self.pass_of(self.maker[value]) == number:
                    expression = state.combine(self.maker[value], operand)
                else:
                    expression = stored
                return bind(value, expression)
            if value in self.reads:
                buffer = self.reads[value].buffer
                assert buffer is not None
                return bind(value, Load(buffer, index))
            return state.scalar(value)

        def bind(value: Value, expression: Expr) -> Expr:
            name = state.fresh(value.name or "v")
            stmts.append(Let(name, expression))
            known[value] = Var(name, expression.dtype)
            return known[value]

        for node in group.nodes:
            value = node.outputs[0]
            if is_row_reduction(node) and self.pass_of(node) == number:
                op = REDUCTIONS[node.operator]
                dtype = value.type.dtype  # type: ignore[attr-defined]
                dtype = dtype.accumulator if dtype.name in ("float16", "bfloat16") else dtype
                name = state.fresh(value.name or "fold")
                state.emit(Local(name, Const(identity_of(op, dtype), dtype)))
                stmts.append(Reduce(name, op, cast(operand(node.inputs[0]), dtype)))
                reductions.append((node, name, dtype))
            elif value in group.full and self.pass_of(node) == number and self._has_place(value):
                element = operand(value)
                if value in self.scratch:
                    stmts.append(Store(self.scratch[value], (Var(j),), element))
                for access in self.writes.get(value, ()):
                    assert access.buffer is not None
                    stmts.append(Store(access.buffer, index, cast(element, access.buffer.dtype)))
        if stmts:
            extent = dim_expression(group.domain[-1])
            state.emit(For(j, extent, Block(tuple(stmts)), "vector"))
        for node, name, dtype in reductions:
            value = node.outputs[0]
            self.row_values[value] = cast(Var(name, dtype), value.type.dtype)  # type: ignore[attr-defined]

    def _has_place(self, value: Value) -> bool:
        return value in self.scratch or value in self.writes

    def _stored(self, value: Value, index: tuple[Expr, ...]) -> Expr | None:
        """The element read back from where an earlier pass left it."""
        if value in self.scratch:
            return Load(self.scratch[value], index[-1:])
        if value in self.writes and self._costly(self.maker[value]):
            buffer = self.writes[value][0].buffer
            assert buffer is not None
            return Load(buffer, index)
        return None
