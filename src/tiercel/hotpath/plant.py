"""A test hook in the generator: kernels that are wrong on purpose, to see that they are caught.

In: a loop nest and the kind of mistake, from the environment variable `TIERCEL_TEST_PLANT`. Out: the loop nest with the
mistake in it. Nothing that is planted is ever kept in the cache.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

from tiercel.loops.form import (
    BOOL,
    INDEX,
    Binary,
    Block,
    Buffer,
    Compare,
    Const,
    Contract,
    Expr,
    For,
    Function,
    If,
    Local,
    Select,
    Stmt,
    Store,
    While,
)
from tiercel.loops.index import index_add

__all__ = ["KINDS", "VARIABLE", "plant"]

VARIABLE: Final = "TIERCEL_TEST_PLANT"
KINDS: Final = ("wrong", "tail", "input", "crash", "hang", "abort")
"""A value that is off; the last element only; a write into an input; a write outside of memory; a loop without end; an
abort of the code generator."""


def plant(function: Function, kind: str) -> Function:
    """The function with a mistake.

    Raises:
        ValueError: there is no such mistake, or no place for it.
    """
    if kind == "abort":
        os.abort()
    if kind == "hang":
        zero = Const(0, INDEX)
        loop = While(Block(()), Const(True, BOOL), Block(()))
        return replace(function, body=Block((Local("planted", zero), loop, function.body)))
    if kind not in KINDS:
        raise ValueError(f"no mistake {kind!r} to plant; there are {', '.join(KINDS)}")
    if kind == "input":
        return replace(function, body=Block((function.body, _written_input(function))))
    planter = _Planter(kind, function)
    body = planter.block(function.body)
    if not planter.done:
        raise ValueError(f"nothing in {function.name} can be {kind}")
    return replace(function, body=body)


class _Planter:
    """Changes the first store to a result."""

    def __init__(self, kind: str, function: Function) -> None:
        self.kind = kind
        self.results = {b.name for b in function.buffers if b.space == "result"}
        self.done = False

    def block(self, block: Block) -> Block:
        """A block with the mistake in its first possible place."""
        return Block(tuple(self.statement(stmt) for stmt in block.body))

    def statement(self, stmt: Stmt) -> Stmt:
        """A statement, changed if it is the place."""
        if self.done:
            return stmt
        match stmt:
            case Store() if self._is_result(stmt.buffer) and stmt.buffer.rank:
                self.done = True
                return self._changed(stmt)
            case Block():
                return self.block(stmt)
            case For():
                return replace(stmt, body=self.block(stmt.body))
            case While():
                return replace(stmt, body=self.block(stmt.body))
            case If():
                return replace(stmt, then=self.block(stmt.then), orelse=self.block(stmt.orelse))
            case Contract():
                return replace(stmt, epilogue=self.block(stmt.epilogue))
        return stmt

    def _is_result(self, buffer: Buffer) -> bool:
        return (buffer.root or buffer.name) in self.results

    def _changed(self, store: Store) -> Stmt:
        dtype = store.value.dtype
        if self.kind == "crash":
            far = index_add(store.index[-1], Const(1 << 44, INDEX))
            return replace(store, index=(*store.index[:-1], far))
        wrong: Expr
        if dtype is BOOL:
            wrong = Select(store.value, Const(False, BOOL), Const(True, BOOL))
        else:
            wrong = Binary("add", store.value, Const(1 if dtype.kind in "iu" else 0.01, dtype))
        if self.kind == "tail":
            last = _last_of(store)
            wrong = Select(last, wrong, store.value)
        return replace(store, value=wrong)


def _written_input(function: Function) -> Stmt:
    """Writes the first element of the first array, if it has one."""
    target = next((b for b in function.buffers if b.space == "argument" and b.root is None and b.rank), None)
    if target is None:
        raise ValueError(f"{function.name} has no array to write into")
    odd: bool | int | float = {"b": True, "i": 3, "u": 3}.get(target.dtype.kind, 3.5)
    stmt: Stmt = Store(target, tuple(Const(0, INDEX) for _ in target.shape), Const(odd, target.dtype))
    for size in target.shape:
        stmt = If(Compare("gt", size, Const(0, INDEX)), Block((stmt,)))
    return stmt


def _last_of(store: Store) -> Expr:
    size, index = store.buffer.shape[-1], store.index[-1]
    return Compare("eq", index, Binary("sub", size, Const(1, INDEX)))
