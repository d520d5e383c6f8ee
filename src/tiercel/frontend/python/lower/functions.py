"""Nested functions, lambdas and generator expressions: functions of their own, made from their real code objects.

A nested function sees the variables of the function around it through real cells, so it runs as Python or captured and
both agree. Its code object is the one in the constants of the outer function, so whatever is cached by code object is
found.
"""

from __future__ import annotations
import __future__

import ast
import sys
from types import CodeType
from typing import Any

from tiercel.frontend.python.lower.access import assign_name
from tiercel.frontend.python.lower.state import Lowering, expression, statement


@statement(ast.FunctionDef)
def _def(lo: Lowering, node: ast.FunctionDef) -> None:
    if getattr(node, "type_params", None):
        lo.fail(node, "it defines a generic function")
    decorators = [lo.keep(d, lo.expression(d), node.decorator_list[i + 1 :]) for i, d in enumerate(node.decorator_list)]
    function = _make(lo, node, node.args)
    for decorator, where in zip(reversed(decorators), reversed(node.decorator_list), strict=True):
        function = lo.emit(where, "Call", None, decorator, (function,))
    assign_name(lo, node, node.name, function)


@statement(ast.AsyncFunctionDef)
def _async_def(lo: Lowering, node: ast.AsyncFunctionDef) -> None:
    lo.fail(node, "it defines a coroutine function")


@expression(ast.Lambda)
def _lambda(lo: Lowering, node: ast.Lambda, dst: int | None) -> int:
    return _make(lo, node, node.args, dst)


@expression(ast.GeneratorExp)
def _generator(lo: Lowering, node: ast.GeneratorExp, dst: int | None) -> int:
    # Not consumed in place (that is decided by the call around it): a real generator.
    function = _function(lo, node, _code(lo, node), None, None, None)
    iterator = lo.emit(node, "Iter", None, lo.expression(node.generators[0].iter))
    lo.note(node, "callpy", "a generator expression runs as Python")
    return lo.emit(node, "CallPy", dst, function, (iterator,), (), "a generator expression runs as Python")


def _make(lo: Lowering, node: ast.FunctionDef | ast.Lambda, args: ast.arguments, dst: int | None = None) -> int:
    defaults = kwdefaults = None
    if args.defaults:
        defaults = lo.expression(ast.copy_location(ast.Tuple(args.defaults, ast.Load()), node))
    keyed = [(lo.mangle(a.arg), d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None]
    if keyed:
        values = lo.operands([d for _, d in keyed])
        items = [x for (name, _), value in zip(keyed, values, strict=True) for x in (lo.constant(name), value)]
        kwdefaults = lo.emit(node, "Build", None, "dict", items)
    annotations = None if isinstance(node, ast.Lambda) else _annotations(lo, node)
    function = _function(lo, node, _code(lo, node), defaults, kwdefaults, dst if annotations is None else None)
    if annotations is not None:
        lo.emit(node, "StoreAttr", function, "__annotations__", annotations)
    return function


def _code(lo: Lowering, node: ast.AST) -> CodeType:
    code = lo.scopes.codes.get(id(node))
    if code is None:
        lo.fail(node, "CPython compiled no code for a function in it")
    return code


def _function(
    lo: Lowering, node: ast.AST, code: CodeType, defaults: int | None, kwdefaults: int | None, dst: int | None
) -> int:
    cells = []
    for name in code.co_freevars:
        variable = lo.scope.resolve(name)
        if variable is None or variable.kind == "local":
            lo.fail(node, f"a nested function captures {name!r}, which is no variable here")
        assert variable is not None
        cells.append(lo.home(variable))
    ref = lo.outliner.reference(f"code:{code.co_qualname}:{code.co_firstlineno}", code)
    return lo.emit(node, "MakeFunction", dst, lo.builder.constant(ref), code.co_name, defaults, kwdefaults, cells)


# ---- annotations -----------------------------------------------------------------------------------------------------


def _annotations(lo: Lowering, node: ast.FunctionDef) -> int | None:
    args = node.args
    # The order in which CPython evaluates them.
    annotated = [*args.posonlyargs, *args.args]
    annotated += [a for a in (args.vararg,) if a]
    annotated += args.kwonlyargs
    annotated += [a for a in (args.kwarg,) if a]
    found = [(lo.mangle(a.arg), a.annotation) for a in annotated if a.annotation is not None]
    if node.returns is not None:
        found.append(("return", node.returns))
    if not found:
        return None
    if sys.version_info >= (3, 14):
        lo.fail(node, "it defines an annotated function")
    items: list[int] = []
    if lo.source.code.co_flags & __future__.annotations.compiler_flag:
        for name, text in _annotation_texts(lo, node).items():
            items += [lo.constant(name), lo.constant(text)]
    else:
        parts = [ast.copy_location(_unstarred(a), a) for _, a in found]
        for (name, _), value in zip(found, lo.operands(parts), strict=True):
            items += [lo.constant(name), value]
    return lo.emit(node, "Build", None, "dict", items)


def _unstarred(annotation: ast.expr) -> ast.expr:
    # `*args: *Ts` means the one item of `*Ts`.
    if isinstance(annotation, ast.Starred):
        return ast.Subscript(ast.Tuple([annotation], ast.Load()), ast.Constant(0), ast.Load())
    return annotation


def _annotation_texts(lo: Lowering, node: ast.FunctionDef) -> dict[str, str]:
    """What `from __future__ import annotations` makes of them: asked of CPython's own compiler."""
    made: dict[str, Any] = {"name": "f", "args": _without_defaults(node.args), "decorator_list": []}
    made["body"] = [ast.copy_location(ast.Pass(), node)]
    if sys.version_info >= (3, 12):
        made["type_params"] = []
    definition: ast.stmt = ast.copy_location(ast.FunctionDef(**made, returns=node.returns), node)
    if lo.source.private_class is not None:
        kind: dict[str, Any] = {"bases": [], "keywords": [], "decorator_list": []}
        if sys.version_info >= (3, 12):
            kind["type_params"] = []
        definition = ast.copy_location(ast.ClassDef(name=lo.source.private_class, body=[definition], **kind), node)
    namespace: dict[str, Any] = {}
    code = compile(
        ast.Module([definition], []),
        lo.source.filename,
        "exec",
        flags=__future__.annotations.compiler_flag,
        dont_inherit=True,
    )
    exec(code, namespace)
    if lo.source.private_class is not None:
        return dict(vars(namespace[lo.source.private_class])["f"].__annotations__)
    return dict(namespace["f"].__annotations__)


def _without_defaults(args: ast.arguments) -> ast.arguments:
    return ast.arguments(
        posonlyargs=args.posonlyargs,
        args=args.args,
        vararg=args.vararg,
        kwonlyargs=args.kwonlyargs,
        kw_defaults=[None] * len(args.kwonlyargs),
        kwarg=args.kwarg,
        defaults=[],
    )
