"""Put expressions in the place of names.

In: a block, and an expression for each of some names that the block uses and does not bind. Out: the block without the
names, wherever they stand: in expressions, and in the sizes, strides and offsets of buffers. The caller sees to it that
what an expression mentions means the same everywhere in the block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tiercel.loops.form import (
    Allocate,
    Ask,
    Assign,
    Binary,
    Block,
    Buffer,
    Cast,
    Compare,
    Const,
    Contract,
    Convolve,
    Exit,
    Expr,
    Fma,
    For,
    If,
    IllFormed,
    Let,
    Load,
    Local,
    Multiply,
    Output,
    Pack,
    Reduce,
    Select,
    Stmt,
    Store,
    Turn,
    Unary,
    Unfold,
    Var,
    While,
)


def substitute(block: Block, values: Mapping[str, Expr]) -> Block:
    """The block with `values` in the place of the names."""
    return _Substitution(values).block(block)


def substitute_in(expression: Expr, values: Mapping[str, Expr]) -> Expr:
    """The expression with `values` in the place of the names."""
    return _Substitution(values).expression(expression)


class _Substitution:
    def __init__(self, values: Mapping[str, Expr]) -> None:
        self.values = values

    def block(self, block: Block) -> Block:
        return Block(tuple(map(self.statement, block.body)))

    def buffer(self, buffer: Buffer) -> Buffer:
        return replace(
            buffer,
            shape=self.all(buffer.shape),
            strides=None if buffer.strides is None else self.all(buffer.strides),
            offset=None if buffer.offset is None else self.expression(buffer.offset),
        )

    def all(self, nodes: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(map(self.expression, nodes))

    def expression(self, node: Expr) -> Expr:
        match node:
            case Const():
                return node
            case Var():
                return self.values.get(node.name, node)
            case Load():
                return Load(self.buffer(node.buffer), self.all(node.index))
            case Unary() | Cast():
                return replace(node, x=self.expression(node.x))
            case Binary() | Compare():
                return replace(node, a=self.expression(node.a), b=self.expression(node.b))
            case Fma():
                return Fma(self.expression(node.a), self.expression(node.b), self.expression(node.c))
            case Select():
                return Select(self.expression(node.condition), self.expression(node.a), self.expression(node.b))
        raise IllFormed(f"unknown expression {type(node).__name__}")

    def statement(self, stmt: Stmt) -> Stmt:
        expression, buffer, block = self.expression, self.buffer, self.block
        match stmt:
            case Block():
                return block(stmt)
            case For():
                return replace(stmt, extent=expression(stmt.extent), body=block(stmt.body))
            case While():
                return While(block(stmt.header), expression(stmt.condition), block(stmt.body))
            case If():
                return If(expression(stmt.condition), block(stmt.then), block(stmt.orelse))
            case Let():
                most = None if stmt.most is None else expression(stmt.most)
                return replace(stmt, value=expression(stmt.value), most=most)
            case Local() | Assign() | Reduce() | Output():
                return replace(stmt, value=expression(stmt.value))
            case Store():
                return Store(buffer(stmt.buffer), self.all(stmt.index), expression(stmt.value))
            case Allocate():
                return Allocate(buffer(stmt.buffer))
            case Contract():
                m, n, k = self.all((stmt.m, stmt.n, stmt.k))
                a, b = buffer(stmt.a), buffer(stmt.b)
                return replace(stmt, a=a, b=b, m=m, n=n, k=k, epilogue=block(stmt.epilogue))
            case Multiply():
                m, n, k = self.all((stmt.m, stmt.n, stmt.k))
                more = (stmt.before, stmt.start, stmt.rows, stmt.how)
                before, start, rows, how = (None if x is None else expression(x) for x in more)
                a, b, c = buffer(stmt.a), buffer(stmt.b), buffer(stmt.c)
                return replace(stmt, a=a, b=b, c=c, m=m, n=n, k=k, before=before, start=start, rows=rows, how=how)
            case Pack():
                b, panels = buffer(stmt.b), buffer(stmt.panels)
                return replace(stmt, b=b, panels=panels, n=expression(stmt.n), k=expression(stmt.k))
            case Ask():
                return Ask(buffer(stmt.buffer), self.all(stmt.index))
            case Turn():
                m, n = self.all((stmt.m, stmt.n))
                return replace(stmt, source=buffer(stmt.source), target=buffer(stmt.target), m=m, n=n)
            case Unfold():
                top, left, rows, pitch = self.all((stmt.top, stmt.left, stmt.rows, stmt.pitch))
                source, target = buffer(stmt.source), buffer(stmt.target)
                return replace(stmt, source=source, target=target, top=top, left=left, rows=rows, pitch=pitch)
            case Convolve():
                weights, image, offsets = buffer(stmt.weights), buffer(stmt.image), buffer(stmt.offsets)
                bias = None if stmt.bias is None else buffer(stmt.bias)
                c, pitch = buffer(stmt.c), expression(stmt.pitch)
                return replace(stmt, weights=weights, image=image, offsets=offsets, c=c, pitch=pitch, bias=bias)
            case Exit():
                return stmt
        raise IllFormed(f"unknown statement {type(stmt).__name__}")
