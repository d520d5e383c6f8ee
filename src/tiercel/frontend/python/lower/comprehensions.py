"""Comprehensions as loops in place, and generator expressions that a builtin consumes at once.

`[f(x) for x in xs if c(x)]` becomes a list, a loop and an `Append`. CPython 3.11 runs it in a frame of
its own, so its tracebacks have a `<listcomp>` line that ours (as those from 3.12 on) have not.

`any(... for ...)`, `all`, `sum`, `list`, `tuple`, `set`, `dict` and `sorted` of a generator expression become loops
too, behind a test that the name still means the builtin; where it does not, the expression runs as Python. A generator
turns a StopIteration that escapes its body into a RuntimeError; the loop does the same where its body calls anything.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Sequence
from typing import Final

from tiercel.frontend.python.lower.access import load_name
from tiercel.frontend.python.lower.assignments import assign, target_register
from tiercel.frontend.python.lower.conditions import jump_if
from tiercel.frontend.python.lower.operations import syntax
from tiercel.frontend.python.lower.state import Lowering, expression
from tiercel.frontend.python.scopes import Comprehension, Scope, names_bound, walk_own

__all__ = ["consume_in_place", "consumer_of", "find_consumed"]

# From 3.12 on `sum` of floats is compensated, which a loop of additions is not.
CONSUMERS: Final = frozenset({"any", "all", "list", "tuple", "set", "dict", "sorted"}) | (
    {"sum"} if sys.version_info < (3, 12) else frozenset()
)


def find_consumed(nodes: Sequence[ast.AST], names: Sequence[str]) -> set[int]:
    """Return the ids of the generator expressions in a function that may be lowered in place.

    Args:
        nodes: all nodes of the function.
        names: builtins that the function can name: not shadowed by its variables or globals.
    """
    found = set()
    for node in nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in CONSUMERS
            and node.func.id in names
            and len(node.args) == 1
            and not node.keywords
            and isinstance(node.args[0], ast.GeneratorExp)
            and not any(g.is_async for g in node.args[0].generators)
            # What these do is lost on the way through the other path, where the builtin is rebound.
            and not any(isinstance(p, ast.NamedExpr | ast.Await) for p in ast.walk(node.args[0]))
        ):
            found.add(id(node.args[0]))
    return found


def consumer_of(lo: Lowering, node: ast.Call) -> str | None:
    """Return the builtin that consumes the generator expression of a call in place, or None."""
    if len(node.args) == 1 and id(node.args[0]) in lo.scopes.comprehensions and isinstance(node.func, ast.Name):
        return node.func.id if isinstance(node.args[0], ast.GeneratorExp) else None
    return None


# ---- list, set and dict ----------------------------------------------------------------------------------------------


@expression(ast.ListComp)
def _list(lo: Lowering, node: ast.ListComp, dst: int | None) -> int:
    return _collect_list(lo, node, node.elt, _first_iterator(lo, node))


def _collect_list(lo: Lowering, node: ast.ListComp | ast.GeneratorExp, element: ast.expr, first: int) -> int:
    result = lo.f.register()

    def step() -> None:
        lo.emit(node, "Append", result, lo.expression(element))

    _loops(lo, node, first, lambda: lo.emit(node, "Build", result, "list", ()), step)
    return result


@expression(ast.SetComp)
def _set(lo: Lowering, node: ast.SetComp, dst: int | None) -> int:
    return _collect_set(lo, node, node.elt, _first_iterator(lo, node))


def _collect_set(lo: Lowering, node: ast.SetComp | ast.GeneratorExp, element: ast.expr, first: int) -> int:
    result, add = lo.f.register(), lo.f.register()

    def start() -> None:
        lo.emit(node, "Build", result, "set", ())
        lo.emit(node, "LoadAttr", add, result, "add")

    def step() -> None:
        value = lo.expression(element)
        lo.emit(node, "Call", None, add, (value,))

    _loops(lo, node, first, start, step)
    return result


@expression(ast.DictComp)
def _dict(lo: Lowering, node: ast.DictComp, dst: int | None) -> int:
    result = lo.f.register()

    def step() -> None:
        key, value = lo.operands([node.key, node.value])
        lo.emit(node, "SetItem", result, key, value)

    first = _first_iterator(lo, node)
    _loops(lo, node, first, lambda: lo.emit(node, "Build", result, "dict", ()), step)
    return result


def _first_iterator(lo: Lowering, node: Comprehension) -> int:
    # Evaluated in the scope around the comprehension, and before anything else of it.
    return lo.emit(node, "Iter", None, lo.expression(node.generators[0].iter))


def _loops(
    lo: Lowering, node: Comprehension, first: int, start: Callable[[], object], step: Callable[[], None]
) -> None:
    """Lower the loops of a comprehension: start() before them, step() for each element."""
    outer = lo.scope
    inner = lo.scopes.comprehensions[id(node)]
    lo.scope = inner
    try:
        _fresh_variables(lo, node, inner)
        start()
        _loop(lo, node, 0, first, step)
    finally:
        lo.scope = outer
    for name in inner.variables:
        around = outer.resolve(name)
        lo.f.variable(name, None)
        # The homes of the function's own variables are known for good.
        if around is not None and (
            around.kind != "local" or around.scope is not lo.scopes.root or lo.is_parameter(around)
        ):
            lo.locate(around)


def _fresh_variables(lo: Lowering, node: Comprehension, scope: Scope) -> None:
    for variable in scope.variables.values():
        home = lo.home(variable)
        if variable.kind == "cell":
            lo.emit(node, "Build", home, "cell", ())
        else:
            if variable in lo.unbound:
                lo.unbind(node, variable)
            if lo.bound is not None:
                lo.bound.discard(variable)


def _loop(lo: Lowering, node: Comprehension, depth: int, iterator: int, step: Callable[[], None]) -> None:
    generator = node.generators[depth]
    if lo.bound is None:
        return
    loop, head, again, exit_ = lo.f.new_loop(), lo.target("loop"), lo.target("next"), lo.target("exit")
    exhausted = set(lo.bound)
    lo.place(head)
    item = target_register(lo, generator.target)
    lo.emit(node, "LoopStart", loop, iterator, item, exit_.label)
    assign(lo, generator.target, item)
    for name in names_bound(generator.target):
        variable = lo.scope.resolve(lo.mangle(name))
        if variable is not None:
            lo.locate(variable)
    for condition in generator.ifs:
        go_on = lo.target()
        jump_if(lo, condition, go_on, again, node)
        lo.place(go_on)
    if depth + 1 < len(node.generators):
        inner = lo.emit(node, "Iter", None, lo.expression(node.generators[depth + 1].iter))
        _loop(lo, node, depth + 1, inner, step)
    else:
        step()
    lo.place(again)
    lo.emit_always(node, "LoopEnd", loop, head.label)
    lo.bound = None
    lo.enter(exit_, exhausted)


# ---- generator expressions that are consumed at once -----------------------------------------------------------------


def consume_in_place(lo: Lowering, node: ast.Call, name: str) -> int:
    """Lower `name(generator expression)` as a loop."""
    generator = node.args[0]
    assert isinstance(generator, ast.GeneratorExp)
    result = lo.f.register()
    plain, other, end = lo.target("builtin"), lo.target("rebound"), lo.target("end")
    callee = lo.expression(node.func)
    same = lo.emit(node, "Scalar", None, "is", (callee, lo.named_object(f"builtins.{name}", getattr(builtins, name))))
    lo.branch(node, same, plain, other)
    lo.place(plain)
    first = _first_iterator(lo, generator)
    _guard_stop_iteration(lo, node, generator, lambda: _consume(lo, node, generator, name, first, result))
    lo.jump(node, end)
    lo.place(other)
    _consume_as_python(lo, node, generator, callee, result)
    lo.place(end)
    return result


def _consume(lo: Lowering, node: ast.Call, generator: ast.GeneratorExp, name: str, first: int, result: int) -> None:
    if name in ("any", "all"):
        _first_decisive(lo, node, generator, name, first, result)
    elif name == "sum":

        def add() -> None:
            value = lo.expression(generator.elt)
            syntax(lo, node, "+", (result, value), result)

        _loops(lo, generator, first, lambda: lo.emit(node, "LoadConst", result, lo.constant(0)), add)
    elif name == "set":
        lo.emit(node, "Move", result, _collect_set(lo, generator, generator.elt, first))
    elif name == "list":
        lo.emit(node, "Move", result, _collect_list(lo, generator, generator.elt, first))
    elif name == "tuple":
        lo.emit(node, "Build", result, "tuple_star", (_collect_list(lo, generator, generator.elt, first),))
    else:
        lo.emit(node, "Scalar", result, name, (_collect_list(lo, generator, generator.elt, first),))


def _first_decisive(
    lo: Lowering, node: ast.Call, generator: ast.GeneratorExp, name: str, first: int, result: int
) -> None:
    done = lo.target("decided")

    def step() -> None:
        go_on = lo.target()
        value = lo.expression(generator.elt)
        decided = lo.target()
        lo.branch(node, value, decided if name == "any" else go_on, go_on if name == "any" else decided)
        lo.place(decided)
        lo.emit(node, "LoadConst", result, lo.constant(name == "any"))
        lo.jump(node, done)
        lo.place(go_on)

    _loops(lo, generator, first, lambda: None, step)
    lo.emit(node, "LoadConst", result, lo.constant(name == "all"))
    lo.place(done)


def _guard_stop_iteration(lo: Lowering, node: ast.Call, generator: ast.GeneratorExp, body: Callable[[], None]) -> None:
    calls = any(isinstance(part, ast.Call) for part in _evaluated_inside(generator))
    if not calls or lo.bound is None:
        body()
        return
    error, handler, end = lo.f.register(), lo.target("handler"), lo.target("end")
    bound = lo.surviving([node])
    lo.emit(node, "Try", error, handler.label, end.label)
    body()
    lo.emit_always(node, "EndTry")
    lo.jump(node, end)
    lo.enter(handler, bound)
    stop = lo.emit(node, "Scalar", None, "exception_matches", (error, lo.builtin(StopIteration)))
    replace, again = lo.target(), lo.target()
    lo.branch(node, stop, replace, again)
    lo.place(replace)
    made = lo.emit(
        node,
        "Call",
        None,
        lo.builtin(RuntimeError),
        (lo.constant("generator raised StopIteration"),),
    )
    lo.emit(node, "Raise", made, error)
    lo.bound = None
    lo.place(again)
    lo.emit(node, "Raise")
    lo.bound = None
    lo.place(end)


def _evaluated_inside(generator: ast.GeneratorExp) -> list[ast.AST]:
    parts: list[ast.AST] = [generator.elt]
    for index, part in enumerate(generator.generators):
        parts += [part.target, *part.ifs]
        if index:
            parts.append(part.iter)
    return [n for p in parts for n in walk_own(p, comprehensions=True)]


def _consume_as_python(lo: Lowering, node: ast.Call, generator: ast.GeneratorExp, callee: int, result: int) -> None:
    """The name was rebound: call what it means now with a real generator over the values of the variables."""
    names = _variables_read(lo, generator)
    parameter = "__tiercel_callee"
    body = [ast.Return(ast.Call(ast.Name(parameter, ast.Load()), [generator], []))]
    ref, _ = lo.outliner.function(node, "rebound", (parameter, *names), body)
    values = [load_name(lo, node, name) for name in names]
    made = lo.emit(node, "MakeFunction", None, lo.builder.constant(ref), lo.f.name, None, None, ())
    lo.emit(node, "CallPy", result, made, (callee, *values), (), "a builtin was rebound")


def _variables_read(lo: Lowering, generator: ast.GeneratorExp) -> list[str]:
    outside = {n.id for n in ast.walk(generator.generators[0].iter) if isinstance(n, ast.Name)}
    own = {n.id for n in ast.walk(generator) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    read = dict.fromkeys(n.id for n in ast.walk(generator) if isinstance(n, ast.Name))
    return [n for n in read if (n in outside or n not in own) and lo.scope.resolve(lo.mangle(n)) is not None]
