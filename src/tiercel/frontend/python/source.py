"""The syntax tree of a function, with the true positions of its file, proved to be what its code object was made from.

In: a code object (and, for closures, nothing else). Out: a `Source`: the `FunctionDef` or `Lambda` node, the name of
the class that mangles `__names`, the source text.

Invariant: compiling the node gives the same bytecode, constants, names and positions as the code object. So whatever
the lowering reads from the node is what Python runs; a file edited since it was imported, a rewriting import hook or a
decorator that swaps functions shows here and the function runs as Python.

The text comes from `linecache`, so notebook cells and doctests work. A `def` is cut out of the file and parsed alone
(the whole file would cost its length each time); a lambda can begin anywhere in a statement, so its file is parsed
once and the lambda found by comparing code.
"""

from __future__ import annotations
import __future__

import ast
import dis
import functools
import linecache
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final, TypeAlias

from tiercel.errors import CaptureError
from tiercel.frontend.python.tree import all_nodes

__all__ = ["FunctionNode", "Source", "compile_node", "find_source", "nested_source", "same_code"]

FunctionNode: TypeAlias = ast.FunctionDef | ast.Lambda

_FUTURE_FLAGS: Final = functools.reduce(
    lambda flags, name: flags | getattr(__future__, name).compiler_flag, __future__.all_feature_names, 0
)
_CO_NESTED: Final = 0x10
_LOAD_ATTR: Final = dis.opmap["LOAD_ATTR"]
# From 3.12 on a bit of the argument says that a method is loaded; 3.11 has an instruction of its own for that.
_METHOD_BIT: Final = int(sys.version_info >= (3, 12))
_NAMED: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# How far beyond the last line with code the end of a function is looked for.
_MAX_EXTRA_LINES: Final = 2000


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Where a function's code comes from.

    Attributes:
        node: its syntax tree; positions are those of the file.
        code: the code object that belongs to it.
        private_class: the innermost class around it, whose name mangles `__names`; None outside classes.
        text: the source lines from `code.co_firstlineno` on.
        nodes: all nodes of the tree.
    """

    node: FunctionNode
    code: CodeType
    private_class: str | None
    text: str
    nodes: Sequence[ast.AST]

    @property
    def filename(self) -> str:
        """The file's name as the code object has it."""
        return self.code.co_filename

    @property
    def future_flags(self) -> int:
        """Flags of `compile` for the `from __future__` imports of the file."""
        return self.code.co_flags & _FUTURE_FLAGS


def find_source(code: CodeType, module_globals: dict[str, Any] | None = None) -> Source:
    """Return the source of a function's code object.

    Args:
        code: of a `def` or `lambda`.
        module_globals: of the function; lets `linecache` ask the module's loader (zip files).

    Raises:
        CaptureError: there is no source, or it is not what the code was compiled from.
    """
    filename = code.co_filename
    linecache.checkcache(filename)
    lines = linecache.getlines(filename, module_globals)
    if not lines:
        raise CaptureError(
            "its source is not available" if not filename.startswith("<") else f"it has no source file ({filename})",
            filename=filename,
            line=code.co_firstlineno,
        )
    private_class = _private_class(code)
    if code.co_name == "<lambda>":
        return _find_lambda(code, lines, private_class)
    first = code.co_firstlineno
    mismatch = CaptureError(
        "its source does not match its code (edited since it was imported, or rewritten by an import hook such as "
        "pytest's for assert)",
        filename=filename,
        line=first,
    )
    if first > len(lines):
        raise mismatch
    node, last = _parse_def(code, lines)
    if node is None or node.name != code.co_name:
        raise mismatch
    if isinstance(node, ast.AsyncFunctionDef):
        raise CaptureError("it is a coroutine function", filename=filename, line=first)
    nodes = all_nodes(node)
    if not same_code(code, compile_node(node, code, private_class, nodes)):
        raise mismatch
    return Source(node, code, private_class, "".join(lines[first - 1 : last]), nodes)


def nested_source(outer: Source, node: FunctionNode, code: CodeType) -> Source:
    """Return the source of a function defined in another whose source is known; nothing is compared again."""
    lines = outer.text.splitlines(keepends=True)
    skip = code.co_firstlineno - outer.code.co_firstlineno
    last = (node.end_lineno or node.lineno) - outer.code.co_firstlineno + 1
    return Source(node, code, outer.private_class, "".join(lines[skip:last]), all_nodes(node))


# ---- cutting a def out of its file -----------------------------------------------------------------------------------


def _parse_def(code: CodeType, lines: Sequence[str]) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef | None, int]:
    first = code.co_firstlineno
    head = lines[first - 1]
    indent = len(head) - len(head.lstrip())
    if head.lstrip()[:1] not in ("@", "d", "a"):
        return None, first
    last = min(max(_last_line(code), first), len(lines))
    limit = min(len(lines), last + _MAX_EXTRA_LINES)
    # Lines that hold no code still belong to it: closing brackets, comments, `pass`, code behind a return.
    while last < limit and _belongs(lines[last], indent):
        last += 1
    while True:
        node = _parse_lines(lines[first - 1 : last], first, indent)
        if node is not None:
            return node, _trim_blank(lines, last)
        if last >= limit:
            return None, first
        # The cut went through a bracket or a string whose lines are indented less than the def.
        last += 1
        while last < limit and _belongs(lines[last], indent):
            last += 1


def _belongs(line: str, indent: int) -> bool:
    body = line.lstrip()
    return not body or body[0] in "#)]}" or len(line) - len(body) > indent


def _trim_blank(lines: Sequence[str], last: int) -> int:
    while last > 1 and (not lines[last - 1].strip() or lines[last - 1].lstrip()[0] == "#"):
        last -= 1
    return last


def _parse_lines(block: Sequence[str], first: int, indent: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    # Newlines in front give every node its true line; a line of its own opens the block of an indented def.
    text = "\n" * (first - 2) + "if 1:\n" if indent else "\n" * (first - 1)
    source = text + "".join(block)
    try:
        with _unwarned(_parser_may_warn(source)):
            body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return None
    if indent and len(body) == 1 and isinstance(body[0], ast.If):
        body = body[0].body
    if len(body) == 1 and isinstance(body[0], ast.FunctionDef | ast.AsyncFunctionDef):
        return body[0]
    return None


def _last_line(code: CodeType) -> int:
    last = code.co_firstlineno
    for _, end, _, _ in code.co_positions():
        if end is not None and end > last:
            last = end
    for const in code.co_consts:
        if isinstance(const, CodeType):
            last = max(last, _last_line(const))
    return last


# ---- lambdas ---------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=8)
def _parse_file(text: str) -> dict[int, list[ast.Lambda]]:
    with _unwarned(_parser_may_warn(text)):
        tree = ast.parse(text)
    found: dict[int, list[ast.Lambda]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            found.setdefault(node.lineno, []).append(node)
    return found


def _find_lambda(code: CodeType, lines: Sequence[str], private_class: str | None) -> Source:
    filename, first = code.co_filename, code.co_firstlineno
    try:
        candidates = _parse_file("".join(lines)).get(code.co_firstlineno, [])
    except (SyntaxError, ValueError):
        raise CaptureError("the file of its source has a syntax error", filename=filename, line=first) from None
    matching = [n for n in candidates if same_code(code, compile_node(n, code, private_class, all_nodes(n)))]
    if not matching:
        raise CaptureError(
            "its source does not match its code (edited since it was imported?)", filename=filename, line=first
        )
    # Several match only where columns are not recorded (-X no_debug_ranges) and the bodies are alike.
    node = matching[0]
    return Source(
        node, code, private_class, "".join(lines[first - 1 : node.end_lineno or node.lineno]), all_nodes(node)
    )


# ---- warnings that the user saw when the file was compiled -----------------------------------------------------------

# Escapes that mean nothing, and numbers that run into a keyword.
_DUBIOUS_TEXT: Final = re.compile(r"\\[^\n\r\\'\"abfnrtv0-7xNuU]|[0-9](?:and|else|for|if|in|is|or|not)\b")
_LITERALS: Final = (ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.JoinedStr, ast.Lambda)


@contextmanager
def _unwarned(needed: bool) -> Iterator[None]:
    """Ignore warnings, if there may be any: the filters belong to all threads, so they are left alone otherwise."""
    if not needed:
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _parser_may_warn(text: str) -> bool:
    return _DUBIOUS_TEXT.search(text) is not None


def _compiler_may_warn(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=ops, left=left, comparators=right):
            return any(isinstance(op, ast.Is | ast.IsNot) for op in ops) and any(
                isinstance(part, _LITERALS) and getattr(part, "value", 1) not in (None, True, False, ...)
                for part in (left, *right)
            )
        case ast.Call(func=value) | ast.Subscript(value=value):
            return isinstance(value, (*_LITERALS, ast.SetComp, ast.ListComp, ast.DictComp, ast.GeneratorExp))
        case ast.Assert(test=ast.Tuple()):
            return True
        case ast.Return() | ast.Break() | ast.Continue():
            return sys.version_info >= (3, 14)  # in a `finally` block
    return False


# ---- comparing code --------------------------------------------------------------------------------------------------


def _private_class(code: CodeType) -> str | None:
    parts = code.co_qualname.split(".")
    index = len(parts) - 2
    while index >= 0 and parts[index] == "<locals>":
        index -= 2  # the function whose locals these are
    return parts[index] if index >= 0 else None


def compile_node(node: FunctionNode, code: CodeType, private_class: str | None, nodes: Sequence[ast.AST]) -> CodeType:
    """Compile a function's node in surroundings like its own and return its code object.

    Args:
        node: of a function; not changed.
        code: says which names are free, which future flags hold, and the file's name.
        private_class, nodes: as in `Source`.
    """
    inner: ast.stmt
    arguments = _bare_arguments(node.args)
    if isinstance(node, ast.Lambda):
        bare = ast.copy_location(ast.Lambda(args=arguments, body=node.body), node)
        inner = ast.copy_location(ast.Expr(bare), node)
    else:
        # One decorator stays, for the line that the code object begins at.
        marks = [ast.copy_location(ast.Constant(None), d) for d in node.decorator_list[:1]]
        made: dict[str, Any] = {"name": node.name, "args": arguments, "body": node.body, "decorator_list": marks}
        if sys.version_info >= (3, 12):
            made["type_params"] = []
        inner = ast.copy_location(type(node)(**made), node)
    free = list(code.co_freevars)
    if private_class is not None:
        kind: dict[str, Any] = {"name": private_class, "bases": [], "keywords": [], "decorator_list": []}
        if sys.version_info >= (3, 12):
            kind["type_params"] = []
        inner = ast.copy_location(ast.ClassDef(body=[inner], **kind), node)
        free = [name for name in free if name != "__class__"]
    return _code_within(
        compile_within(inner, free, code, imported=_imported_names(nodes, code), nodes=nodes), node, code
    )


def _imported_names(nodes: Sequence[ast.AST], code: CodeType) -> list[str]:
    # CPython compiles `np.exp(x)` differently where the module imports `np`. The code object tells which it was.
    plain = set(_plain_attribute_loads(code))
    return sorted(
        {
            func.value.id
            for call in nodes
            if isinstance(call, ast.Call)
            and isinstance(func := call.func, ast.Attribute)
            and isinstance(func.value, ast.Name)
            and (func.end_lineno, func.end_col_offset) in plain
            and not any(isinstance(a, ast.Starred) for a in call.args)
            and all(k.arg is not None for k in call.keywords)
        }
    )


def _plain_attribute_loads(code: CodeType) -> Iterator[tuple[int | None, int | None]]:
    raw = code.co_code
    for unit, (_, line, _, col) in enumerate(code.co_positions()):
        if raw[2 * unit] == _LOAD_ATTR and not raw[2 * unit + 1] & _METHOD_BIT:
            yield line, col
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _plain_attribute_loads(const)


def compile_within(
    statement: ast.stmt,
    free: Sequence[str],
    like: CodeType,
    *,
    imported: Sequence[str] = (),
    nodes: Sequence[ast.AST] | None = None,
) -> CodeType:
    """Compile a statement inside a function that has the variables `free`, and return that function's code.

    Args:
        statement: with positions.
        free: names that nested code may capture.
        like: gives filename and future flags.
        imported: names that the module imports.
        nodes: all nodes of the statement, if known.
    """
    args = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(arg=name, annotation=None) for name in free],
        vararg=None,
        kwonlyargs=[],
        kw_defaults=[],
        kwarg=None,
        defaults=[],
    )
    body: list[ast.stmt] = [statement]
    # The definition's own name must not become a variable here that the function would then capture.
    names = {n.name for n in (statement, *getattr(statement, "body", ())) if isinstance(n, _NAMED)} - {*free}
    if names:
        body.insert(0, ast.copy_location(ast.Global(sorted(names)), statement))
    made: dict[str, Any] = {"name": "<around>", "args": args, "body": body, "decorator_list": []}
    if sys.version_info >= (3, 12):
        made["type_params"] = []
    around = ast.copy_location(ast.FunctionDef(**made), statement)
    for arg in args.args:
        ast.copy_location(arg, statement)
    top: list[ast.stmt] = [around]
    if imported:
        top.insert(0, ast.copy_location(ast.Import([ast.alias(name=n, asname=None) for n in imported]), statement))
        ast.fix_missing_locations(top[0])
    module = ast.Module(body=top, type_ignores=[])
    with _unwarned(any(map(_compiler_may_warn, all_nodes(statement) if nodes is None else nodes))):
        code = compile(module, like.co_filename, "exec", flags=like.co_flags & _FUTURE_FLAGS, dont_inherit=True)
    return next(c for c in code.co_consts if isinstance(c, CodeType))


def _code_within(outer: CodeType, node: ast.AST, like: CodeType) -> CodeType:
    for code in _nested(outer):
        if code.co_name == like.co_name:
            return code
    raise CaptureError("it compiles to no code of its own", filename=like.co_filename, line=like.co_firstlineno)


def _nested(code: CodeType) -> Iterator[CodeType]:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield const
            yield from _nested(const)


def _bare_arguments(args: ast.arguments) -> ast.arguments:
    # Defaults and annotations are evaluated outside of the function and leave no trace in its code.
    def bare(arg: ast.arg) -> ast.arg:
        return ast.copy_location(ast.arg(arg=arg.arg, annotation=None), arg)

    def nothing(node: ast.expr | None) -> Any:
        return None if node is None else ast.copy_location(ast.Constant(None), node)

    return ast.arguments(
        posonlyargs=[bare(a) for a in args.posonlyargs],
        args=[bare(a) for a in args.args],
        vararg=bare(args.vararg) if args.vararg else None,
        kwonlyargs=[bare(a) for a in args.kwonlyargs],
        kw_defaults=[nothing(d) for d in args.kw_defaults],
        kwarg=bare(args.kwarg) if args.kwarg else None,
        defaults=[nothing(d) for d in args.defaults],
    )


def same_code(a: CodeType, b: CodeType) -> bool:
    """Whether two code objects do the same at the same places of a source; qualified names and files may differ."""
    return (
        a.co_code == b.co_code
        and a.co_name == b.co_name
        and a.co_firstlineno == b.co_firstlineno
        and a.co_names == b.co_names
        and a.co_varnames == b.co_varnames
        and a.co_freevars == b.co_freevars
        and a.co_cellvars == b.co_cellvars
        and (a.co_flags | _CO_NESTED) == (b.co_flags | _CO_NESTED)
        and (a.co_argcount, a.co_posonlyargcount, a.co_kwonlyargcount)
        == (b.co_argcount, b.co_posonlyargcount, b.co_kwonlyargcount)
        and a.co_exceptiontable == b.co_exceptiontable
        and len(a.co_consts) == len(b.co_consts)
        and all(map(_same_constant, a.co_consts, b.co_consts))
        and list(a.co_positions()) == list(b.co_positions())
    )


def _same_constant(a: object, b: object) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, CodeType) and isinstance(b, CodeType):
        return same_code(a, b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same_constant, a, b))
    if isinstance(a, frozenset) and isinstance(b, frozenset):
        return sorted(map(repr, a)) == sorted(map(repr, b))
    if isinstance(a, float | complex):
        return repr(a) == repr(b)  # tells -0.0 from 0.0 and finds NaN equal to itself
    return a == b
