"""Check a function of the loop form: every name bound before use and of the dtype it is used as, stores where allowed.

In: a `Function`. Out: nothing, or `IllFormed` that names the statement. Constructors check single nodes; this checks
what only the whole can show. It runs in tests after every stage that produces the loop form.
"""

from __future__ import annotations

from tiercel.dtypes import DType
from tiercel.loops.form import (
    INDEX,
    THREAD_COUNT,
    Allocate,
    Ask,
    Assign,
    Block,
    Buffer,
    Contract,
    Convolve,
    Expr,
    For,
    Function,
    If,
    IllFormed,
    Let,
    Load,
    Local,
    Multiply,
    Output,
    Pack,
    Reduce,
    Stmt,
    Store,
    Turn,
    Unfold,
    Var,
    While,
    expressions,
    walk,
)
from tiercel.loops.printer import expression_text


class _Scope:
    """Names visible at a point: scalars with dtype and whether they may be assigned, and buffers."""

    def __init__(self, parent: _Scope | None = None) -> None:
        self.scalars: dict[str, tuple[DType, bool]] = dict(parent.scalars) if parent else {}
        self.buffers: dict[str, Buffer] = dict(parent.buffers) if parent else {}
        self.parallel_outer: frozenset[str] = parent.parallel_outer if parent else frozenset()

    def bind(self, name: str, dtype: DType, mutable: bool = False) -> None:
        if name in self.scalars or name in self.buffers:
            raise IllFormed(f"{name} is bound twice")
        self.scalars[name] = (dtype, mutable)


def check(function: Function) -> Function:
    """Check `function` and return it.

    Raises:
        IllFormed: with the statement or expression at fault.
    """
    scope = _Scope()
    scope.bind(THREAD_COUNT.name, INDEX)
    for size in function.sizes:
        if size.dtype is not INDEX:
            raise IllFormed(f"size {size.name} is {size.dtype.name}")
        scope.bind(size.name, INDEX)
    for scalar in function.scalars:
        scope.bind(scalar.name, scalar.dtype)
    outputs = {v.name: v.dtype for v in function.outputs}
    for buffer in function.buffers:
        if buffer.space == "arena":
            raise IllFormed(f"arena buffer {buffer.name} among the function's buffers")
        _declare(buffer, scope)
    _check_block(function.body, scope, outputs)
    return function


def _declare(buffer: Buffer, scope: _Scope) -> None:
    if buffer.name in scope.buffers or buffer.name in scope.scalars:
        raise IllFormed(f"buffer {buffer.name} is bound twice")
    for part in (
        *buffer.shape,
        *(buffer.strides or ()),
        *((buffer.offset,) if buffer.offset is not None else ()),
    ):
        _check_expression(part, scope)
    if buffer.root is not None and buffer.root not in scope.buffers:
        raise IllFormed(f"buffer {buffer.name} looks into {buffer.root}, which is not there")
    scope.buffers[buffer.name] = buffer


def _check_expression(node: Expr, scope: _Scope) -> None:
    for part in walk(node):
        if isinstance(part, Var):
            known = scope.scalars.get(part.name)
            if known is None:
                raise IllFormed(f"{part.name} is not bound in {expression_text(node)}")
            if known[0] is not part.dtype:
                raise IllFormed(f"{part.name} is {known[0].name}, used as {part.dtype.name}")
        elif isinstance(part, Load) and scope.buffers.get(part.buffer.name) != part.buffer:
            raise IllFormed(f"buffer {part.buffer.name} is not declared as it is used in {expression_text(node)}")


def _check_block(block: Block, outer: _Scope, outputs: dict[str, DType]) -> _Scope:
    scope = _Scope(outer)
    for stmt in block.body:
        _check_statement(stmt, scope, outputs)
    return scope


def _check_statement(stmt: Stmt, scope: _Scope, outputs: dict[str, DType]) -> None:
    for expression in expressions(stmt) if not isinstance(stmt, While) else ():
        _check_expression(expression, scope)
    match stmt:
        case Block():
            _check_block(stmt, scope, outputs)
        case For():
            inner = _Scope(scope)
            if stmt.axis == "parallel":
                # a reduction into an outer scalar would race between threads
                inner.parallel_outer = frozenset(n for n, (_, mutable) in scope.scalars.items() if mutable)
            inner.bind(stmt.index, INDEX)
            _check_block(stmt.body, inner, outputs)
        case While():
            header = _check_block(stmt.header, scope, outputs)
            _check_expression(stmt.condition, header)
            _check_block(stmt.body, header, outputs)
        case If():
            _check_block(stmt.then, scope, outputs)
            _check_block(stmt.orelse, scope, outputs)
        case Let():
            scope.bind(stmt.name, stmt.value.dtype)
        case Local():
            scope.bind(stmt.name, stmt.value.dtype, mutable=True)
        case Assign() | Reduce():
            known = scope.scalars.get(stmt.name)
            if known is None or not known[1]:
                raise IllFormed(f"{stmt.name} is not a mutable local")
            if known[0] is not stmt.value.dtype:
                raise IllFormed(f"{stmt.name} is {known[0].name}, given {stmt.value.dtype.name}")
            if stmt.name in scope.parallel_outer:
                raise IllFormed(f"{stmt.name} is written inside a parallel axis and declared outside of it")
        case Store() | Ask():
            if scope.buffers.get(stmt.buffer.name) != stmt.buffer:
                raise IllFormed(f"buffer {stmt.buffer.name} is not declared as it is used")
        case Allocate():
            if stmt.buffer.space != "arena":
                raise IllFormed(f"{stmt.buffer.name} is allocated but lives in {stmt.buffer.space}")
            _declare(stmt.buffer, scope)
        case Contract():
            for buffer in (stmt.a, stmt.b):
                if scope.buffers.get(buffer.name) != buffer:
                    raise IllFormed(f"contract: buffer {buffer.name} is not declared")
            inner = _Scope(scope)
            inner.bind(stmt.row, INDEX)
            inner.bind(stmt.column, INDEX)
            for name in [p.accumulator for p in stmt.panels] or [stmt.accumulator]:
                inner.bind(name, stmt.a.dtype.accumulator)
            _check_block(stmt.epilogue, inner, outputs)
        case Multiply() | Pack():
            operands = (stmt.a, stmt.b, stmt.c) if isinstance(stmt, Multiply) else (stmt.b, stmt.panels)
            for buffer in operands:
                if scope.buffers.get(buffer.name) != buffer:
                    raise IllFormed(f"{type(stmt).__name__.lower()}: buffer {buffer.name} is not declared")
        case Turn() | Unfold():
            for buffer in (stmt.source, stmt.target):
                if scope.buffers.get(buffer.name) != buffer:
                    raise IllFormed(f"{type(stmt).__name__.lower()}: buffer {buffer.name} is not declared")
        case Convolve():
            for part in (stmt.weights, stmt.image, stmt.offsets, stmt.c, stmt.bias):
                if part is not None and scope.buffers.get(part.name) != part:
                    raise IllFormed(f"convolve: buffer {part.name} is not declared")
        case Output():
            if outputs.get(stmt.name) is not stmt.value.dtype:
                raise IllFormed(f"output {stmt.name} is not declared as {stmt.value.dtype.name}")
        case _:
            pass  # Exit: nothing to check
