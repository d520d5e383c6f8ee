"""Loop nests over memories: axes, accesses, and the copies and fills made of them.

In: memories over a domain, and what to do at an element. Out: statements of the loop form. Axes that are adjacent in
every access are merged; the outermost axis is parallel, the innermost a vector axis; one long axis is cut into chunks
for the threads. The nests of groups are made with this by `pointwise`, `rows` and `products`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import cast
from tiercel.compiler.graph import Value
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
    Exit,
    Expr,
    For,
    If,
    Let,
    Load,
    Select,
    Stmt,
    Store,
    Unary,
    Var,
)
from tiercel.operators.types import PyIntType, Shape
from tiercel.shapes import DimLike, Symbol, ceil_div

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer

CHUNK = 16_384
"""Elements of a one-dimensional nest that one thread takes at a time: 64 KiB of float32 per operand."""
_LIGHT, _LEAST_CHUNK = 4, 1024
"""Statements of a body for which `CHUNK` is right, and the least elements: longer bodies take fewer at a time, so that
the work of a few thousand elements is shared out as well."""


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

    def declare(self, access: Access, dims: Shape, hint: str, *, view: bool = False) -> Buffer:
        """Make the access a buffer over `dims` (the merged axes); with `view` never the root itself."""
        memory = access.memory
        root = memory.root
        self.state.postponed.catch_up(root.name)
        # the root itself only where it has these very sizes and strides: a reshaped or transposed view does not
        own = tuple(dim_expression(s) for s in access.strides)
        plain = memory.offset == 0 and dims == memory.shape and root.shape == tuple(dim_expression(d) for d in dims)
        if not view and plain and (access.strides == c_strides(dims) if root.strides is None else root.strides == own):
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
            if state.facts.less_equal(0, place) is True:
                if state.facts.less_equal(place + 1, size) is not True:
                    self.state.require(Compare("lt", dim_expression(place), dim_expression(size)), origin)
                return place
        index = cast(state.scalar(part), INDEX) if isinstance(part, Value) else dim_expression(place)
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
            stmts = tuple(body((Binary("add", Var(start), Var(j)),)))
            size = CHUNK
            while size > _LEAST_CHUNK and size * len(stmts) > CHUNK * _LIGHT:
                size //= 2
            inside = (
                Let(start, Binary("mul", Var(chunk), Const(size, INDEX))),
                Let(count, Binary("min", Const(size, INDEX), Binary("sub", total, Var(start)))),
                For(j, Var(count), Block(stmts), "vector"),
            )
            state.emit(For(chunk, dim_expression(ceil_div(dims[0], size)), Block(inside), "parallel"))
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
