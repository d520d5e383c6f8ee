"""The plain Python function that stands in for a jitted one.

In: the user's function and what to do on a call. Out: a function with the user's exact signature, name, defaults and
metadata, so that CPython itself binds arguments and words the TypeErrors, and `inspect`, `functools`, `pickle`,
descriptors and type checkers see an ordinary function. A generated function costs a fraction of a `__call__` method.

::

    def f(x, *args, k):
        try:
            decoded = .enter()
            if decoded is None: return .function(x, *args, k=k)
            return .run(decoded, (x, args, k))
        except BaseException as .error:
            .leave(.error)
            raise

Where every parameter is one name (no `*args`, no keyword-only ones), compiled code is asked first::

    def f(x, y):
        try:
            .quick = .fast
            if .quick is not None:
                .result = .quick(x, y)
                if .result is not .MISS: return .result
            decoded = .enter()
            ...
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any, Final

from tiercel.bytecode.program import Function, Parameter
from tiercel.interp.bind import parameter_list
from tiercel.interp.tracebacks import INTERNAL_FILENAME

__all__ = ["clone", "make_function_of", "make_wrapper", "parameters_of", "takes_fast"]

_KINDS: Final[Mapping[inspect._ParameterKind, str]] = {
    inspect.Parameter.POSITIONAL_ONLY: "positional_only",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional_or_keyword",
    inspect.Parameter.VAR_POSITIONAL: "var_positional",
    inspect.Parameter.KEYWORD_ONLY: "keyword_only",
    inspect.Parameter.VAR_KEYWORD: "var_keyword",
}


def parameters_of(code: CodeType) -> tuple[Parameter, ...]:
    """Return the parameters of a code object, in the order of `inspect.signature`."""
    names = iter(code.co_varnames)
    plain = [next(names) for _ in range(code.co_argcount)]
    keyword_only = [next(names) for _ in range(code.co_kwonlyargcount)]
    found = [
        Parameter(n, "positional_only" if i < code.co_posonlyargcount else "positional_or_keyword")
        for i, n in enumerate(plain)
    ]
    if code.co_flags & inspect.CO_VARARGS:
        found.append(Parameter(next(names), "var_positional"))
    found += [Parameter(n, "keyword_only") for n in keyword_only]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        found.append(Parameter(next(names), "var_keyword"))
    return tuple(found)


def make_wrapper(
    function: Callable[..., Any],
    *,
    enter: Callable[[], Any],
    run: Callable[[Any, tuple[Any, ...]], Any],
    leave: Callable[[BaseException], None],
    fast: CellType | None = None,
    miss: object = None,
) -> FunctionType:
    """Return the function that users call in place of `function`.

    Args:
        function: a Python function, or any callable (then the wrapper takes `*args, **kwargs`).
        enter: asked at each call what to run; None runs `function` as Python.
        run: runs it, given the tuple of parameters in the order of the signature.
        leave: told the exception that leaves the function; may not raise.
        fast: a cell that holds None or a function to be called first, with the parameters as positional arguments; its
            result counts unless it is `miss`. Only for functions that `takes_fast`.
        miss: see `fast`.
    """
    if isinstance(function, FunctionType):
        parameters = parameters_of(function.__code__)
    else:
        parameters = (Parameter("args", "var_positional"), Parameter("kwargs", "var_keyword"))
    name = getattr(function, "__name__", type(function).__name__)
    qualname = getattr(function, "__qualname__", name)
    code = _wrapper_code(name, qualname, parameters, fast=fast is not None)
    values = {
        ".enter": enter,
        ".run": run,
        ".function": function,
        ".leave": leave,
        ".BaseException": BaseException,
        ".MISS": miss,
    }
    closure = tuple(fast if n == ".fast" and fast is not None else CellType(values[n]) for n in code.co_freevars)
    namespace = getattr(function, "__globals__", {"__builtins__": {}})
    wrapper = FunctionType(code, namespace, name, getattr(function, "__defaults__", None), closure)
    wrapper.__kwdefaults__ = getattr(function, "__kwdefaults__", None)
    functools.update_wrapper(wrapper, function)
    try:
        wrapper.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    except (ValueError, TypeError):
        pass  # a C function without one
    return wrapper


def takes_fast(function: Callable[..., Any]) -> bool:
    """Whether the wrapper of a function can ask compiled code first: every parameter is one name."""
    return isinstance(function, FunctionType) and all(
        p.kind in ("positional_only", "positional_or_keyword") for p in parameters_of(function.__code__)
    )


def make_function_of(
    function: Function,
    defaults: tuple[Any, ...] | None,
    kwdefaults: Mapping[str, Any] | None,
    *,
    namespace: dict[str, Any],
    cells: Sequence[CellType],
    run: Callable[[tuple[Any, ...]], Any],
) -> FunctionType:
    """Return the Python function that a program without one stands for.

    Args:
        function: of the program.
        defaults, kwdefaults: as `__defaults__` and `__kwdefaults__`.
        namespace: its globals; takes up `run`, under a name that no program can have.
        cells: its closure, in the order of `function.free`.
        run: runs it, given the tuple of parameters.
    """
    tree = ast.parse("def factory():\n    def made():\n        return run(())\n")
    factory = tree.body[0]
    assert isinstance(factory, ast.FunctionDef)
    made = factory.body[0]
    assert isinstance(made, ast.FunctionDef)
    factory.args = parameter_list([Parameter(name, "positional_or_keyword") for name in function.free])
    made.args = parameter_list(function.parameters)
    call = made.body[0]
    assert isinstance(call, ast.Return)
    assert isinstance(call.value, ast.Call)
    parameters: list[ast.expr] = [ast.Name(p.name, ast.Load()) for p in function.parameters]
    call.value.func = ast.Name(_RUN, ast.Load())
    call.value.args = [ast.Tuple(parameters, ast.Load())]
    if function.free:  # named, so that they are its closure; never read
        held = ast.Tuple([ast.Name(name, ast.Load()) for name in function.free], ast.Load())
        made.body.insert(0, ast.If(ast.Constant(False), [ast.Expr(held)], []))
    ast.fix_missing_locations(tree)
    module = compile(tree, function.filename or INTERNAL_FILENAME, "exec", dont_inherit=True)
    outer = next(c for c in module.co_consts if isinstance(c, CodeType))
    code = next(c for c in outer.co_consts if isinstance(c, CodeType))
    code = code.replace(
        co_name=function.name,
        co_qualname=function.qualname or function.name,
        co_firstlineno=max(function.first_line, 1),
        co_freevars=function.free,
    )
    namespace[_RUN] = run
    out = FunctionType(code, namespace, function.name, defaults, tuple(cells))
    out.__kwdefaults__ = dict(kwdefaults) if kwdefaults else None
    return out


_RUN: Final = ".run"


def clone(function: FunctionType) -> FunctionType:
    """Return a copy of a function, for kinds that a wrapper would change: generators and coroutines."""
    made = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(made, function)
    return made


@functools.lru_cache(maxsize=512)
def _wrapper_code(name: str, qualname: str, parameters: tuple[Parameter, ...], *, fast: bool = False) -> CodeType:
    asking = (
        "            quick = fast\n"  # read once: another thread may empty the cell
        "            if quick is not None:\n"
        "                result = quick()\n"
        "                if result is not MISS:\n"
        "                    return result\n"
    )
    tree = ast.parse(
        "def factory(enter, run, function, leave, BaseException, fast, MISS):\n"
        "    def wrapper():\n"
        "        try:\n"
        f"{asking if fast else ''}"
        "            decoded = enter()\n"
        "            if decoded is None:\n"
        "                return function()\n"
        "            return run(decoded, ())\n"
        "        except BaseException as error:\n"
        "            leave(error)\n"
        "            raise\n"
    )
    # Names of ours begin with a dot, so no parameter can have them.
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = f".{node.id}"
        elif isinstance(node, ast.arg):
            node.arg = f".{node.arg}"
        elif isinstance(node, ast.ExceptHandler):
            node.name = f".{node.name}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("function", "quick"):
                node.args, node.keywords = _forwarded(parameters)
            elif node.func.id == "run":
                node.args[1] = ast.Tuple([ast.Name(p.name, ast.Load()) for p in parameters], ast.Load())
    factory = tree.body[0]
    assert isinstance(factory, ast.FunctionDef)
    wrapper = factory.body[0]
    assert isinstance(wrapper, ast.FunctionDef)
    wrapper.args = parameter_list(parameters)
    ast.fix_missing_locations(tree)
    module = compile(tree, INTERNAL_FILENAME, "exec", dont_inherit=True)
    outer = next(c for c in module.co_consts if isinstance(c, CodeType))
    code = next(c for c in outer.co_consts if isinstance(c, CodeType))
    return code.replace(co_name=name, co_qualname=qualname)


def _forwarded(parameters: tuple[Parameter, ...]) -> tuple[list[ast.expr], list[ast.keyword]]:
    """Return `x, *args` and `k=k, **kwargs`."""
    positional: list[ast.expr] = []
    named: list[ast.keyword] = []
    for p in parameters:
        value = ast.Name(p.name, ast.Load())
        if p.kind == "var_positional":
            positional.append(ast.Starred(value, ast.Load()))
        elif p.kind == "keyword_only":
            named.append(ast.keyword(p.name, value))
        elif p.kind == "var_keyword":
            named.append(ast.keyword(None, value))
        else:
            positional.append(value)
    return positional, named
