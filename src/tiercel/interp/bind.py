"""Binding a call's arguments to parameters, by CPython itself.

In: parameters in register order. Out: a function with exactly that signature which returns its parameters as a tuple in
register order. A call that does not fit raises the TypeError that the user's function would raise, word for word,
because CPython raises it for a function of that name and signature.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from tiercel.bytecode.program import Function, Parameter, Program

__all__ = ["binder", "binder_code", "constant_defaults", "parameter_list"]

Bind = Callable[..., tuple[Any, ...]]


def binder_code(name: str, qualname: str, parameters: Sequence[Parameter]) -> CodeType:
    """Return the code of a function that takes `parameters` and returns them as a tuple.

    Which parameters have defaults is a property of the function object, so the code fits any.
    """
    tree = ast.parse("def f(): return ()")
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.args = parameter_list(parameters)
    returned = definition.body[0]
    assert isinstance(returned, ast.Return)
    returned.value = ast.Tuple([ast.Name(p.name, ast.Load()) for p in parameters], ast.Load())
    ast.fix_missing_locations(tree)
    module = compile(tree, f"<tiercel {name}>", "exec", dont_inherit=True)
    code = next(c for c in module.co_consts if isinstance(c, CodeType))
    return code.replace(co_name=name, co_qualname=qualname)


def parameter_list(parameters: Sequence[Parameter]) -> ast.arguments:
    """Return the parameters as syntax, without defaults and annotations."""
    found: dict[str, list[ast.arg]] = {}
    for p in parameters:
        found.setdefault(p.kind, []).append(ast.arg(p.name))
    keyword_only = found.get("keyword_only", [])
    return ast.arguments(
        posonlyargs=found.get("positional_only", []),
        args=found.get("positional_or_keyword", []),
        vararg=next(iter(found.get("var_positional", [])), None),
        kwonlyargs=keyword_only,
        kw_defaults=[None] * len(keyword_only),
        kwarg=next(iter(found.get("var_keyword", [])), None),
        defaults=[],
    )


def binder(code: CodeType, defaults: tuple[Any, ...] | None, kwdefaults: Mapping[str, Any] | None) -> Bind:
    """Return a function from arguments to the tuple of parameters.

    Args:
        code: of `binder_code`.
        defaults, kwdefaults: as `__defaults__` and `__kwdefaults__` of the user's function.
    """
    function = FunctionType(code, {}, code.co_name, defaults)
    if kwdefaults:
        function.__kwdefaults__ = dict(kwdefaults)
    return function


def constant_defaults(program: Program, function: Function) -> tuple[tuple[Any, ...] | None, dict[str, Any] | None]:
    """Return `__defaults__` and `__kwdefaults__` as far as the program knows them.

    A positional default behind which one is missing cannot be given; Python has no form for it.
    """
    positional: list[Any] = []
    for p in function.parameters:
        if p.kind in ("positional_only", "positional_or_keyword"):
            if p.default is None:
                positional.clear()
            else:
                positional.append(program.constant(p.default))
    named = {
        p.name: program.constant(p.default)
        for p in function.parameters
        if p.kind == "keyword_only" and p.default is not None
    }
    return tuple(positional) or None, named or None
