"""Statements that CPython runs as a whole: `except*`, and imports of several names where a failure in between can be
seen.

Their variables are all in cells (`shares` tells the scope analysis which statements these are), so they keep what they
were given before an exception.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tiercel.frontend.python.lower.state import Lowering, statement
from tiercel.frontend.python.outline import WAYS
from tiercel.frontend.python.scopes import names_used

__all__ = ["find_shared", "outlined_statement"]


def find_shared(nodes: Sequence[ast.AST]) -> set[int]:
    """Return the ids of those statements among the nodes of a function that are outlined as a whole."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.TryStar):
            found.add(id(node))
        if isinstance(node, ast.Try | ast.TryStar):
            found |= {id(n) for n in ast.walk(node) if isinstance(n, ast.ImportFrom) and len(n.names) > 1}
    return found


@statement(ast.TryStar)
def _try_star(lo: Lowering, node: ast.TryStar) -> None:
    outlined_statement(lo, node, "except* has no bytecode form")


def outlined_statement(lo: Lowering, node: ast.stmt, reason: str) -> None:
    """Let CPython run a whole statement, whose variables are all in cells."""
    names = []
    for name in dict.fromkeys(names_used(node)):
        variable = lo.scope.resolve(lo.mangle(name))
        if variable is not None:
            assert variable.kind != "local"
            names.append(name)
    ref, free, ways = lo.outliner.statement(node, names)
    cells = []
    for name in free:
        variable = lo.scope.resolve(name)
        assert variable is not None
        cells.append(lo.home(variable))
    left = lo.call_outlined(node, reason, ref, (), cells)
    if not ways:
        return
    through, other = lo.target("through"), lo.target("left")
    lo.branch(node, lo.emit(node, "Scalar", None, "is", (left, lo.none)), through, other)
    lo.place(other)
    how, value = lo.f.register(), lo.f.register()
    lo.emit(node, "Unpack", (how, value), left)
    for number, way in enumerate(WAYS):
        if way not in ways:
            continue
        this, next_ = lo.target(way), lo.target("next")
        lo.branch(node, lo.emit(node, "Scalar", None, "is", (how, lo.constant(number))), this, next_)
        lo.place(this)
        lo.leave(("return",) if way == "return" else (way, lo.current_loop()), node, value if way == "return" else None)
        lo.place(next_)
    lo.jump(node, through)
    lo.place(through)
