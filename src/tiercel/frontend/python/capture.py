"""`capture`: a Python function in, a program of generic bytecode out.

The steps: find the source and prove that it belongs to the code object (`source`), resolve scopes (`scopes`), lower
statement by statement (`lower`). A function that needs a Python frame of its own, or whose source is not known, raises
CaptureError and runs as Python, whole.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Final

from tiercel.bytecode import UNBOUND, Builder, Parameter, Program
from tiercel.bytecode.builder import FunctionBuilder
from tiercel.config.digest import blake2b
from tiercel.errors import BytecodeError, CaptureError
from tiercel.frontend.python.lower import CONSUMERS, Lowering, Reason, find_consumed, find_shared
from tiercel.frontend.python.outline import Outliner
from tiercel.frontend.python.resolve import Resolver
from tiercel.frontend.python.scopes import FunctionScope, Variable, analyse, mangle
from tiercel.frontend.python.source import Source, find_source, nested_source

if TYPE_CHECKING:
    from tiercel.shapes import Facts, TensorDescriptor

__all__ = ["Capture", "CaptureOptions", "capture"]

_NOT_A_CALL: Final = (
    (inspect.CO_COROUTINE, "it is a coroutine function"),
    (inspect.CO_ASYNC_GENERATOR, "it is an asynchronous generator"),
    (inspect.CO_ITERABLE_COROUTINE, "it is a coroutine"),
    (inspect.CO_GENERATOR, "it is a generator function"),
)


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """How to capture.

    Attributes:
        instruction_limit: a function of more instructions runs as Python. 20000 are about 3000 lines, beyond what is
            written by hand.
        tokens: declared descriptors by parameter name.
        facts: what is known about the symbols of the tokens.
    """

    instruction_limit: int = 20_000
    tokens: Mapping[str, TensorDescriptor] = field(default_factory=dict)
    facts: Facts | None = None


@dataclass(frozen=True, slots=True)
class Capture:
    """A captured function.

    Attributes:
        program: its bytecode; `program.functions[0]` is the function.
        reasons: the lines that run as Python, and why.
        nested: source of each function defined inside, by code object, for `capture(function, source=...)`.
        source: its own.
    """

    program: Program
    reasons: tuple[Reason, ...]
    nested: Mapping[CodeType, Source]
    source: Source


def capture(function: FunctionType, *, options: CaptureOptions | None = None, source: Source | None = None) -> Capture:
    """Turn a Python function into bytecode.

    Args:
        function: a `def` or lambda. Its globals and closure are read to see which names are operators.
        options: see `CaptureOptions`.
        source: of the function if it is known, from `Capture.nested`.

    Raises:
        CaptureError: it can only run as Python; the message says why and where.
        TypeError: not a Python function.
    """
    if not isinstance(function, FunctionType):
        raise TypeError(f"capture takes a Python function, got {type(function).__name__}")
    options = options or CaptureOptions()
    code = function.__code__
    for flag, reason in _NOT_A_CALL:
        if code.co_flags & flag:
            raise CaptureError(reason, filename=code.co_filename, line=code.co_firstlineno)
    if source is None:
        source = find_source(code, function.__globals__)
    try:
        return _lower(function, source, options)
    except RecursionError:
        raise CaptureError(
            "its expressions are nested too deeply", filename=code.co_filename, line=code.co_firstlineno
        ) from None
    except BytecodeError as error:
        # A constant beyond what programs hold: an int of thousands of digits, a tuple nested dozens of levels.
        raise CaptureError(error.reason, filename=code.co_filename, line=code.co_firstlineno) from error


def _lower(function: FunctionType, source: Source, options: CaptureOptions) -> Capture:
    code = source.code
    resolver = Resolver(function, source.private_class)
    variables = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    consumers = [n for n in CONSUMERS if n not in variables and resolver.names_builtin(n)]
    nodes = source.nodes
    consumed = find_consumed(nodes, consumers)
    shared = find_shared(nodes)
    scopes = analyse(source, in_place=lambda g: id(g) in consumed, shares=lambda s: id(s) in shared)
    outliner = Outliner(source)
    lists = _always_lists(nodes, scopes, source)
    # Of the text alone: the same function in another place of a file is the same function.
    source_hash = blake2b(source.text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    unbound: frozenset[Variable] = frozenset()
    while True:
        builder = Builder(function.__qualname__, source.filename, source_hash=source_hash, facts=options.facts)
        f = _begin(builder, function, source, options)
        lowering = Lowering(
            builder,
            f,
            source,
            scopes,
            resolver,
            outliner,
            unbound=unbound,
            shared=shared,
            limit=options.instruction_limit,
        )
        lowering.lists = lists
        _lower_body(lowering, source, options)
        if lowering.found_unbound <= unbound:
            break
        unbound |= lowering.found_unbound
    program = builder.build()
    nested = {
        c: nested_source(source, n, c)
        for n in nodes
        if isinstance(n, ast.FunctionDef | ast.Lambda) and (c := scopes.codes.get(id(n))) is not None
    }
    reasons = tuple(dict.fromkeys(lowering.reasons))
    return Capture(program, reasons, nested, source)


def _begin(builder: Builder, function: FunctionType, source: Source, options: CaptureOptions) -> FunctionBuilder:
    code = source.code
    parameters = []
    for parameter in _signature(function, source):
        token = options.tokens.get(parameter.name)
        parameters.append(
            Parameter(
                parameter.name,
                parameter.kind,
                _default_operand(builder, function, parameter.name, parameter.default),
                None if token is None else builder.token(token),
            )
        )
    return builder.function(
        code.co_name,
        parameters,
        code.co_freevars,
        qualname=code.co_qualname,
        filename=source.filename,
        first_line=code.co_firstlineno,
        source=source.text,
    )


_NO_DEFAULT: Final = object()


@dataclass(frozen=True, slots=True)
class _FormalParameter:
    name: str
    kind: str
    default: object


def _signature(function: FunctionType, source: Source) -> list[_FormalParameter]:
    args = source.node.args

    def name(arg: ast.arg) -> str:
        return mangle(arg.arg, source.private_class)

    positional = [*args.posonlyargs, *args.args]
    defaults = function.__defaults__ or ()
    without = len(positional) - len(defaults)
    found = [
        _FormalParameter(
            name(a),
            "positional_only" if i < len(args.posonlyargs) else "positional_or_keyword",
            defaults[i - without] if i >= without else _NO_DEFAULT,
        )
        for i, a in enumerate(positional)
    ]
    if args.vararg:
        found.append(_FormalParameter(name(args.vararg), "var_positional", _NO_DEFAULT))
    keyed = function.__kwdefaults__ or {}
    found += [_FormalParameter(name(a), "keyword_only", keyed.get(name(a), _NO_DEFAULT)) for a in args.kwonlyargs]
    if args.kwarg:
        found.append(_FormalParameter(name(args.kwarg), "var_keyword", _NO_DEFAULT))
    return found


def _default_operand(builder: Builder, function: FunctionType, name: str, value: object) -> int | None:
    """The constant of a default. Objects stay with the function; in a file they would be known by name."""
    if value is _NO_DEFAULT:
        return None
    try:
        if isinstance(value, bool | int | float | complex | str | bytes | tuple | type(None) | type(Ellipsis)):
            return builder.constant(value)
    except BytecodeError:
        pass
    return None


def _lower_body(lo: Lowering, source: Source, options: CaptureOptions) -> None:
    node = source.node
    root = lo.scopes.root
    f = lo.f
    assert lo.bound is not None
    where = (source.code.co_firstlineno, 0, source.code.co_firstlineno, 0)
    for index, parameter in enumerate(f.parameters):
        if parameter.token is not None:
            lo.emit(where, "LoadParam", index, index, parameter.token)
        variable = root.variables[parameter.name]
        if variable.kind == "local":
            lo.registers[variable] = index
            lo.bound.add(variable)
    for index, name in enumerate(f.free):
        lo.registers[root.variables[name]] = len(f.parameters) + index
    numbers = {p.name: i for i, p in enumerate(f.parameters)}
    for variable in root.variables.values():
        if variable.kind == "cell":
            items = (numbers[variable.name],) if variable.name in numbers else ()
            home = lo.home(variable)
            lo.emit(where, "Build", home, "cell", items)
            f.variable(variable.name, f"cell:{home}")
        elif variable.kind == "local" and variable in lo.unbound and variable.name not in numbers:
            lo.emit(where, "LoadConst", lo.home(variable), lo.constant(UNBOUND))
    if isinstance(node, ast.Lambda):
        lo.emit(node.body, "Return", lo.expression(node.body))
        return
    lo.statements(node.body)
    # Also where nothing comes: labels at the end need an instruction.
    last = node.body[-1]
    lo.emit_always(last, "Return", lo.none)


def _always_lists(nodes: Sequence[ast.AST], scopes: FunctionScope, source: Source) -> set[Variable]:
    """Variables whose every binding is a list display or comprehension: `append` on them is a list's."""
    stores: dict[str, int] = {}
    lists: dict[str, int] = {}
    for part in nodes:
        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
            stores[part.id] = stores.get(part.id, 0) + 1
        if isinstance(part, ast.Assign | ast.AnnAssign) and isinstance(part.value, ast.List | ast.ListComp):
            for target in part.targets if isinstance(part, ast.Assign) else [part.target]:
                if isinstance(target, ast.Name):
                    lists[target.id] = lists.get(target.id, 0) + 1
    found = set()
    for name, count in lists.items():
        variable = scopes.root.variables.get(mangle(name, source.private_class))
        if variable is not None and variable.kind == "local" and stores.get(name) == count:
            found.add(variable)
    return found
