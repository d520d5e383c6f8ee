"""Which variable every name of a function means, and which variables must live in cells.

In: a `Source`, and which generator expressions will be lowered in place. Out: a `FunctionScope`: the scope of the
function, one scope for each comprehension that is lowered in place, and the code object of every nested function.

A variable is a register unless code with a frame of its own shares it: a nested function, a lambda, a real generator,
an outlined statement. What they share is not guessed: their code objects list it (`co_freevars`). CPython 3.11
compiles comprehensions to functions as well; ours are loops in place, so what only they share stays a register. Their
targets are variables of their own.

Invariant: every name of the function that is neither a variable here nor free in its code object is a global.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Final, Literal, TypeAlias

from tiercel.errors import CaptureError
from tiercel.frontend.python.source import FunctionNode, Source
from tiercel.frontend.python.tree import all_nodes, children

__all__ = [
    "Comprehension",
    "FunctionScope",
    "Scope",
    "Variable",
    "analyse",
    "mangle",
    "names_bound",
    "names_used",
    "walk_own",
]

Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_COMPREHENSIONS_HAVE_FRAMES: Final = sys.version_info < (3, 12)
_CODE_NAMES: Final[dict[type[ast.AST], str]] = {
    ast.ListComp: "<listcomp>",
    ast.SetComp: "<setcomp>",
    ast.DictComp: "<dictcomp>",
    ast.GeneratorExp: "<genexpr>",
    ast.Lambda: "<lambda>",
}


@dataclass(eq=False, slots=True)
class Variable:
    """A variable of the function or of a comprehension in it.

    Attributes:
        name: with private names mangled.
        kind: "local" is a register, "cell" a cell the function makes, "free" a cell it captured.
        scope: that binds it.
    """

    name: str
    kind: Literal["local", "cell", "free"]
    scope: Scope

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"


@dataclass(eq=False, slots=True)
class Scope:
    """The function, or a comprehension in place.

    Attributes:
        parent: the scope around a comprehension; None for the function.
        variables: those bound here, and for the function those it captured.
        declared_global: names of `global` statements.
        frame: whether CPython runs a comprehension in a frame of its own, to which the function's variables are free.
    """

    parent: Scope | None
    variables: dict[str, Variable] = field(default_factory=dict)
    declared_global: set[str] = field(default_factory=set)
    frame: bool = False

    def sees_through_frame(self, variable: Variable) -> bool:
        """Whether code here reads a variable of the function as a free one."""
        scope: Scope | None = self
        while scope is not None and scope is not variable.scope:
            if scope.frame:
                return True
            scope = scope.parent
        return False

    def resolve(self, name: str) -> Variable | None:
        """Return the variable a mangled name means here; None means a global."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.declared_global:
                return None
            found = scope.variables.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None


@dataclass(eq=False, slots=True)
class FunctionScope:
    """What `analyse` found.

    Attributes:
        root: the function's scope.
        comprehensions: per comprehension lowered in place its scope, by `id` of its node.
        codes: code object of each nested function, lambda and real generator expression, by `id` of its node.
        walrus: names that assignment expressions bind.
    """

    root: Scope
    comprehensions: dict[int, Scope] = field(default_factory=dict)
    codes: dict[int, CodeType] = field(default_factory=dict)
    walrus: set[str] = field(default_factory=set)


def mangle(name: str, private_class: str | None) -> str:
    """Return a name as the compiler stores it inside of a class: `__x` becomes `_Class__x`."""
    if private_class is None or not name.startswith("__") or name.endswith("__") or "." in name:
        return name
    stripped = private_class.lstrip("_")
    return f"_{stripped}{name}" if stripped else name


def analyse(
    source: Source,
    *,
    in_place: Callable[[ast.GeneratorExp], bool],
    shares: Callable[[ast.stmt], bool],
) -> FunctionScope:
    """Resolve the scopes of a function.

    Args:
        source: of the function.
        in_place: whether a generator expression is lowered in place.
        shares: whether a statement is outlined as a whole and so shares all variables it names.

    Raises:
        CaptureError: a construct that has no form (class bodies), or scopes that contradict the code object.
    """
    root = Scope(None)
    found = FunctionScope(root)
    has_walrus = any(isinstance(node, ast.NamedExpr) for node in source.nodes)
    _Analysis(source, found, in_place, shares, has_walrus).run()
    return found


class _Analysis:
    def __init__(
        self,
        source: Source,
        found: FunctionScope,
        in_place: Callable[[ast.GeneratorExp], bool],
        shares: Callable[[ast.stmt], bool],
        has_walrus: bool,
    ) -> None:
        self.source = source
        self.has_walrus = has_walrus
        self.found = found
        self.in_place = in_place
        self.shares = shares
        self.nonlocals: set[str] = set()

    def run(self) -> None:
        node, code, root = self.source.node, self.source.code, self.found.root
        # In order of appearance: register numbers must not depend on hashes.
        bound = dict.fromkeys(self._mangle(a.arg) for a in _parameters(node.args))
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
        for part in body:
            bound.update(dict.fromkeys(self._bindings(part)))
        for name in code.co_freevars:
            root.variables[name] = Variable(name, "free", root)
        for name in bound:
            if name not in root.declared_global and name not in self.nonlocals:
                root.variables[name] = Variable(name, "local", root)
        for part in body:
            self._visit(part, root, code)
        targets = {name for scope in self.found.comprehensions.values() for name in scope.variables}
        # Dead code leaves no names, and from 3.12 on comprehensions leave theirs in the function.
        unknown = {*code.co_varnames, *code.co_cellvars} - root.variables.keys() - targets
        if unknown:
            raise CaptureError(
                f"its scopes are not understood: {sorted(unknown)} should be local",
                filename=self.source.filename,
                line=code.co_firstlineno,
            )

    def _mangle(self, name: str) -> str:
        return mangle(name, self.source.private_class)

    def _bindings(self, part: ast.AST) -> Iterator[str]:
        for node in walk_own(part, comprehensions=False):
            if isinstance(node, ast.Global):
                self.found.root.declared_global.update(map(self._mangle, node.names))
            elif isinstance(node, ast.Nonlocal):
                self.nonlocals.update(map(self._mangle, node.names))
            else:
                yield from map(self._mangle, _bound_by(node))
        if self.has_walrus:
            # These bind in the function even from inside a comprehension.
            for node in walk_own(part, comprehensions=True):
                if isinstance(node, ast.NamedExpr):
                    self.found.walrus.add(self._mangle(node.target.id))
                    yield self._mangle(node.target.id)

    # ---- what nested code shares -------------------------------------------------------------------------------------

    def _visit(self, node: ast.AST, scope: Scope, code: CodeType) -> None:
        if isinstance(node, ast.ClassDef):
            raise CaptureError("it has a class body", filename=self.source.filename, line=node.lineno)
        if isinstance(node, ast.stmt) and self.shares(node):
            for name in names_used(node):
                self._share(self._mangle(name), scope)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for part in _evaluated_outside(node):
                self._visit(part, scope, code)
            self._nested(node, scope, code)
        elif isinstance(node, _COMPREHENSIONS):
            self._comprehension(node, scope, code)
        else:
            for child in children(node):
                self._visit(child, scope, code)

    def _comprehension(self, node: Comprehension, scope: Scope, code: CodeType) -> None:
        first = node.generators[0]
        self._visit(first.iter, scope, code)
        if isinstance(node, ast.GeneratorExp) and not self.in_place(node):
            self._nested(node, scope, code)
            return
        if any(g.is_async for g in node.generators):
            raise CaptureError("it has an async comprehension", filename=self.source.filename, line=node.lineno)
        inner = Scope(scope, frame=_COMPREHENSIONS_HAVE_FRAMES or isinstance(node, ast.GeneratorExp))
        self.found.comprehensions[id(node)] = inner
        for generator in node.generators:
            for name in names_bound(generator.target):
                name = self._mangle(name)
                inner.variables[name] = Variable(name, "local", inner)
        # Functions defined inside belong to the comprehension's code object where it has one.
        own = _find_code(code, node, _CODE_NAMES[type(node)]) or code
        parts: list[ast.AST] = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        for generator in node.generators:
            parts += [generator.target, *generator.ifs]
            if generator is not first:
                parts.append(generator.iter)
        for part in parts:
            self._visit(part, inner, own)

    def _nested(self, node: ast.AST, scope: Scope, code: CodeType) -> None:
        name = getattr(node, "name", None) or _CODE_NAMES[type(node)]
        own = _find_code(code, node, name)
        if own is None:
            return  # CPython left it out: the lowering finds the same place unreachable
        self.found.codes[id(node)] = own
        for free in own.co_freevars:
            self._share(free, scope)

    def _share(self, name: str, scope: Scope) -> None:
        variable = scope.resolve(name)
        if variable is not None and variable.kind == "local":
            variable.kind = "cell"


def _find_code(code: CodeType, node: ast.AST, name: str) -> CodeType | None:
    """Return the code object of a nested definition among the constants of the code around it."""
    decorators = getattr(node, "decorator_list", ())
    line = min([d.lineno for d in decorators] + [getattr(node, "lineno", 0)])
    found = [c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name and c.co_firstlineno == line]
    if len(found) > 1:
        # Several on one line: the positions of their instructions tell them apart. The copies that CPython makes of a
        # `finally` body are all alike, any will do.
        inside = [c for c in found if _is_code_of(c, node)]
        found = inside or found
    return found[0] if found else None


def _is_code_of(code: CodeType, node: ast.AST) -> bool:
    # What is evaluated outside (defaults, the first iterable) may hold code of the same name.
    if isinstance(node, ast.Lambda):
        return _lies_within(code, node.body)
    if isinstance(node, _COMPREHENSIONS):
        return _lies_within(code, node) and not _lies_within(code, node.generators[0].iter)
    return _lies_within(code, node)


def _lies_within(code: CodeType, node: ast.AST) -> bool:
    start = (node.lineno, node.col_offset)  # type: ignore[attr-defined]
    end = (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
    positions = list(code.co_positions())
    # The first instructions have the place of the definition's head, without columns of their own.
    return all(
        line is None
        or col is None
        or end_line is None
        or end_col is None
        or (line == code.co_firstlineno and col == 0 == end_col)
        or (start <= (line, col) and (end_line, end_col) <= end)
        for line, end_line, col, end_col in positions
    )


# ---- walking ---------------------------------------------------------------------------------------------------------


def _parameters(args: ast.arguments) -> list[ast.arg]:
    found = [*args.posonlyargs, *args.args]
    if args.vararg:
        found.append(args.vararg)
    found += args.kwonlyargs
    if args.kwarg:
        found.append(args.kwarg)
    return found


def _evaluated_outside(node: FunctionNode | ast.AsyncFunctionDef) -> list[ast.AST]:
    """The parts of a definition that are evaluated where it stands, in Python's order."""
    args = node.args
    parts: list[ast.AST | None] = []
    if not isinstance(node, ast.Lambda):
        parts += node.decorator_list
    parts += args.defaults
    parts += args.kw_defaults
    if not isinstance(node, ast.Lambda):
        parts += [a.annotation for a in _parameters(args)]
        parts.append(node.returns)
    return [p for p in parts if p is not None]


def walk_own(node: ast.AST, *, comprehensions: bool) -> Iterator[ast.AST]:
    """Walk the nodes that run in the function's own frame: not the bodies of nested functions and classes.

    Args:
        node: where to begin; it is yielded too.
        comprehensions: whether to go into comprehensions.
    """
    todo = [node]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            todo += _evaluated_outside(node)
        elif isinstance(node, ast.ClassDef):
            todo += [*node.decorator_list, *node.bases, *(k.value for k in node.keywords)]
        elif isinstance(node, _COMPREHENSIONS) and not comprehensions:
            todo.append(node.generators[0].iter)
        else:
            todo += children(node)


def names_bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement or target binds or deletes in its own scope, assignment expressions apart."""
    for part in walk_own(node, comprehensions=False):
        yield from _bound_by(part)


def _bound_by(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
        case ast.MatchMapping(rest=str(name)):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [alias.asname or alias.name.partition(".")[0] for alias in names]
    return []


def names_used(node: ast.AST) -> Iterator[str]:
    """Yield every name that occurs anywhere in a statement, names it binds first."""
    yield from names_bound(node)
    for part in all_nodes(node):
        if isinstance(part, ast.Name):
            yield part.id
