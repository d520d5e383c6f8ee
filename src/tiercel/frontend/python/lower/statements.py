"""Simple statements, branches and loops."""

from __future__ import annotations

import ast
import sys
from typing import Final

from tiercel.frontend.python.lower.access import assign_name
from tiercel.frontend.python.lower.assignments import assign, target_register
from tiercel.frontend.python.lower.calls import emit_append
from tiercel.frontend.python.lower.conditions import constant_truth, jump_if
from tiercel.frontend.python.lower.outlined import outlined_statement
from tiercel.frontend.python.lower.state import Loop, Lowering, statement

# From 3.13 on errors of the iterator have the position of the iterable, before that of the whole loop.
_LOOP_AT_ITERABLE: Final = sys.version_info >= (3, 13)


@statement(ast.Expr)
def _expr(lo: Lowering, node: ast.Expr) -> None:
    if isinstance(node.value, ast.Constant):
        return
    if isinstance(node.value, ast.Call) and emit_append(lo, node.value):
        return
    lo.expression(node.value)


@statement(ast.Pass, ast.Global, ast.Nonlocal)
def _nothing(lo: Lowering, node: ast.stmt) -> None:
    pass


@statement(ast.Return)
def _return(lo: Lowering, node: ast.Return) -> None:
    value = lo.none if node.value is None else lo.expression(node.value)
    lo.leave(("return",), node, value)


@statement(ast.Break)
def _break(lo: Lowering, node: ast.Break) -> None:
    lo.leave(("break", lo.current_loop()), node)


@statement(ast.Continue)
def _continue(lo: Lowering, node: ast.Continue) -> None:
    lo.leave(("continue", lo.current_loop()), node)


@statement(ast.If)
def _if(lo: Lowering, node: ast.If) -> None:
    then, else_, end = lo.target("then"), lo.target("else"), lo.target("endif")
    jump_if(lo, node.test, then, else_, node)
    lo.place(then)
    lo.statements(node.body)
    lo.jump(node, end)
    lo.place(else_)
    lo.statements(node.orelse)
    lo.place(end)


# ---- loops -----------------------------------------------------------------------------------------------------------


@statement(ast.For)
def _for(lo: Lowering, node: ast.For) -> None:
    where = node.iter if _LOOP_AT_ITERABLE else node
    iterator = lo.emit(where, "Iter", None, lo.expression(node.iter))
    if lo.bound is None:
        return
    bound = lo.surviving([node.target, *node.body])
    number, head, again = lo.f.new_loop(), lo.target("for"), lo.target("next")
    exhausted, done = lo.target("exhausted"), lo.target("done")
    lo.bound = set(bound)
    lo.place(head)
    item = target_register(lo, node.target)
    lo.emit(where, "LoopStart", number, iterator, item, exhausted.label)
    assign(lo, node.target, item)
    with lo.inside(Loop(done, again)):
        lo.statements(node.body)
    lo.place(again)
    lo.emit_always(node, "LoopEnd", number, head.label)
    lo.bound = None
    lo.enter(exhausted, bound)
    lo.statements(node.orelse)
    lo.place(done)


@statement(ast.While)
def _while(lo: Lowering, node: ast.While) -> None:
    known = constant_truth(node.test)
    if known is False:
        lo.statements(node.orelse)
        return
    assert lo.bound is not None
    lo.bound = lo.surviving([node.test, *node.body])
    number, head, again = lo.f.new_loop(), lo.target("while"), lo.target("again")
    over, done = lo.target("over"), lo.target("done")
    lo.place(head)
    lo.emit(node, "LoopStart", number, None, None, over.label if known is None else done.label)
    body = lo.target("body")
    jump_if(lo, node.test, body, over, node)
    lo.place(body)
    with lo.inside(Loop(done, again)):
        lo.statements(node.body)
    lo.place(again)
    lo.emit_always(node, "LoopEnd", number, head.label)
    lo.bound = None
    lo.place(over)
    lo.statements(node.orelse)
    lo.place(done)


# ---- imports ---------------------------------------------------------------------------------------------------------


@statement(ast.Import)
def _import(lo: Lowering, node: ast.Import) -> None:
    for alias in node.names:
        name = alias.asname or alias.name.partition(".")[0]
        body: list[ast.stmt] = [ast.Import([alias]), ast.Return(ast.Name(name, ast.Load()))]
        ref, _ = lo.outliner.function(alias, "import", (), body)
        assign_name(lo, node, name, lo.call_outlined(node, "it imports", ref))


@statement(ast.ImportFrom)
def _import_from(lo: Lowering, node: ast.ImportFrom) -> None:
    if id(node) in lo.shared:
        outlined_statement(lo, node, "it imports")
        return
    names = [alias.asname or alias.name for alias in node.names]
    values: list[ast.expr] = [ast.Name(name, ast.Load()) for name in names]
    body: list[ast.stmt] = [
        ast.ImportFrom(node.module, node.names, node.level),
        ast.Return(values[0] if len(values) == 1 else ast.Tuple(values, ast.Load())),
    ]
    ref, _ = lo.outliner.function(node, "import", (), body)
    result = lo.call_outlined(node, "it imports", ref)
    if len(names) == 1:
        assign_name(lo, node, names[0], result)
        return
    parts = [lo.f.register() for _ in names]
    lo.emit(node, "Unpack", parts, result, 0)
    for name, part in zip(names, parts, strict=True):
        assign_name(lo, node, name, part)
