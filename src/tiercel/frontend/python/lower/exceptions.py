"""`try`, `with`, `raise`, `assert`.

A `finally` block, like a manager's `__exit__` and the deletion of an `except ... as` name, is emitted once for every
way out of what it guards: falling off the end, an exception, each of `return`, `break` and `continue`. Ways out leave
the protected range before they run it, as in CPython.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tiercel.frontend.python.lower.assignments import assign
from tiercel.frontend.python.lower.conditions import constant_truth, jump_if
from tiercel.frontend.python.lower.state import Finally, Lowering, statement

# From 3.13 on `with` and `assert` fail at their expression, before at the whole statement.
_AT_EXPRESSION: Final = sys.version_info >= (3, 13)


@statement(ast.Raise)
def _raise(lo: Lowering, node: ast.Raise) -> None:
    if node.exc is None:
        lo.emit(node, "Raise")
    else:
        operands = lo.operands([node.exc] if node.cause is None else [node.exc, node.cause])
        lo.emit(node, "Raise", *operands)
    lo.bound = None


@statement(ast.Assert)
def _assert(lo: Lowering, node: ast.Assert) -> None:
    if not __debug__:
        return
    if constant_truth(node.test) is True:
        return
    holds, fails = lo.target("holds"), lo.target("fails")
    jump_if(lo, node.test, holds, fails, node)
    lo.place(fails)
    error = lo.builtin(AssertionError)
    where = node.test if _AT_EXPRESSION else node
    if node.msg is not None:
        message = lo.expression(node.msg)
        error = lo.emit(where, "Call", None, error, (message,))
    lo.emit(where, "Raise", error)
    lo.bound = None
    lo.place(holds)


# ---- try -------------------------------------------------------------------------------------------------------------


@statement(ast.Try)
def _try(lo: Lowering, node: ast.Try) -> None:
    if not node.finalbody:
        _try_except(lo, node)
        return
    body: Callable[[], None]
    if node.handlers:
        body = lambda: _try_except(lo, node)  # noqa: E731
        parts: list[ast.AST] = [*node.body, *node.handlers, *node.orelse]
    else:
        body = lambda: lo.statements(node.body)  # noqa: E731
        parts = [*node.body]
    guard(lo, node, parts, body, lambda: lo.statements(node.finalbody))


def guard(
    lo: Lowering,
    where: ast.AST,
    parts: Iterable[ast.AST],
    body: Callable[[], None],
    clean_up: Callable[[], None],
    on_error: Callable[[int], None] | None = None,
) -> None:
    """Lower body(), and clean_up() on every way out of it.

    Args:
        where: the statement.
        parts: what body() lowers.
        body: what is protected.
        clean_up: emits what is to be done.
        on_error: what is to be done when an exception, in the register it gets, leaves the body; by default the same,
        and
            then the exception goes on. If control comes to its end, the exception is handled.
    """
    if lo.bound is None:
        return
    error, handler, end = lo.f.register(), lo.target("handler"), lo.target("end")
    bound = lo.surviving(parts)
    lo.emit(where, "Try", error, handler.label, end.label)
    leaving = Finally(clean_up)
    with lo.inside(leaving):
        body()
    lo.emit_always(where, "EndTry")
    if lo.reachable:
        clean_up()
        lo.jump(where, end)
    lo.after(leaving, where)
    lo.enter(handler, bound)
    if on_error is not None:
        on_error(error)
    else:
        clean_up()
        lo.emit(where, "Raise")
        lo.bound = None
    lo.place(end)


def _try_except(lo: Lowering, node: ast.Try) -> None:
    if lo.bound is None:
        return
    error, handler, end = lo.f.register(), lo.target("except"), lo.target("end")
    bound = lo.surviving(node.body)
    lo.emit(node, "Try", error, handler.label, end.label)
    lo.statements(node.body)
    lo.emit_always(node, "EndTry")
    lo.statements(node.orelse)
    lo.jump(node, end)
    lo.enter(handler, bound)
    for clause in node.handlers:
        if clause.type is None:
            lo.statements(clause.body)
            lo.jump(clause, end)
            break
        kind = lo.expression(clause.type)
        matches = lo.emit(clause, "Scalar", None, "exception_matches", (error, kind))
        handles, next_ = lo.target("handles"), lo.target("next")
        lo.branch(clause, matches, handles, next_)
        lo.place(handles)
        _handle(lo, clause, error)
        lo.jump(clause, end)
        lo.place(next_)
    if lo.reachable:
        lo.emit(node, "Raise")
        lo.bound = None
    lo.place(end)


def _handle(lo: Lowering, clause: ast.ExceptHandler, error: int) -> None:
    if clause.name is None:
        lo.statements(clause.body)
        return
    name = lo.mangle(clause.name)
    variable = lo.scope.resolve(name)
    if variable is None:
        lo.fail(clause, f"it binds an exception to the global {name!r}")
    assert variable is not None
    lo.store(clause, variable, error)
    guard(lo, clause, clause.body, lambda: lo.statements(clause.body), lambda: lo.unbind(clause, variable))


# ---- with ------------------------------------------------------------------------------------------------------------


@statement(ast.With)
def _with(lo: Lowering, node: ast.With) -> None:
    _with_items(lo, node, node.items)


def _with_items(lo: Lowering, node: ast.With, items: Sequence[ast.withitem]) -> None:
    if not items:
        lo.statements(node.body)
        return
    item = items[0]
    where = item.context_expr if _AT_EXPRESSION else node
    manager = lo.expression(item.context_expr)
    enter = lo.emit(where, "Scalar", None, "with_enter", (manager,))
    exit_ = lo.emit(where, "Scalar", None, "with_exit", (manager,))
    value = lo.emit(where, "Call", None, enter)

    def body() -> None:
        if item.optional_vars is not None:
            assign(lo, item.optional_vars, value)
        _with_items(lo, node, items[1:])

    def clean_up() -> None:
        lo.emit(where, "Call", None, exit_, (lo.none, lo.none, lo.none))

    def on_error(error: int) -> None:
        info = lo.emit(where, "Scalar", None, "exc_info", (error,))
        handled = lo.emit(where, "Call", None, exit_, (info,), ("*",))
        swallowed, goes_on = lo.target("swallowed"), lo.target("goes_on")
        lo.branch(where, handled, swallowed, goes_on)
        lo.place(goes_on)
        lo.emit(node, "Raise")
        lo.bound = None
        lo.place(swallowed)

    guard(lo, node, [*items, *node.body], body, clean_up, on_error)
