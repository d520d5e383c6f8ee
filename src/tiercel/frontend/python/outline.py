"""Code objects for what has no instructions: statements and pieces of expressions that CPython runs for us.

In: a syntax tree, the names it takes as parameters, the names it shares through cells. Out: an `ObjectRef` to a code
object with the user's file name, positions and function name, to be made a function by `MakeFunction` and called by
`CallPy`. Its frame stands for the user's own frame.

A statement that is outlined as a whole shares all its variables through cells, so an exception in its midst leaves
them as Python would. It reports how it was left: None when control fell through, else a tuple of one of `WAYS` and,
for a return, the value.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from types import CodeType
from typing import Any, Final

from tiercel.bytecode import ObjectRef
from tiercel.frontend.python.source import Source, compile_within

__all__ = ["WAYS", "Outliner"]

WAYS: Final = ("return", "break", "continue")
_NAME: Final = "outlined"


class Outliner:
    """Makes the outlined code of one function.

    Args:
        source: of the function.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._refs: dict[str, ObjectRef] = {}
        self._codes: dict[tuple[int, str], ObjectRef] = {}

    def reference(self, name: str, value: object) -> ObjectRef:
        """Return the reference to an object under a name of its own."""
        number = 1
        unique = name
        while unique in self._refs and self._refs[unique].value is not value:
            number += 1
            unique = f"{name}#{number}"
        return self._refs.setdefault(unique, ObjectRef(unique, value))

    def function(
        self, where: ast.AST, what: str, parameters: Sequence[str], body: Sequence[ast.stmt], free: Sequence[str] = ()
    ) -> tuple[ObjectRef, tuple[str, ...]]:
        """Compile a function of our making.

        Args:
            where: syntax node whose position everything without one gets; the same node, `what` and function are
            compiled
                once (a `finally` block is lowered several times).
            what: tells several pieces of one node apart.
            parameters: names of its parameters.
            body: its statements; not changed.
            free: variables that it shares through cells.

        Returns:
            The reference to its code, and the names of its free variables in the order of their cells.
        """
        key = (id(where), what)
        found = self._codes.get(key)
        if found is None:
            code = self._compile(where, parameters, body, free)
            line = getattr(where, "lineno", 0)
            name = f"outlined:{self.source.code.co_qualname}:{line}:{what}"
            found = self._codes[key] = self.reference(name, code)
        assert isinstance(found.value, CodeType)
        return found, found.value.co_freevars

    def _compile(
        self, where: ast.AST, parameters: Sequence[str], body: Sequence[ast.stmt], free: Sequence[str]
    ) -> CodeType:
        args = ast.arguments(
            posonlyargs=[],
            args=[ast.arg(arg=name, annotation=None) for name in parameters],
            vararg=None,
            kwonlyargs=[],
            kw_defaults=[],
            kwarg=None,
            defaults=[],
        )
        made: dict[str, Any] = {"name": _NAME, "args": args, "body": list(body), "decorator_list": []}
        private: dict[str, Any] = {"bases": [], "keywords": [], "decorator_list": []}
        if sys.version_info >= (3, 12):
            made["type_params"] = private["type_params"] = []
        statement: ast.stmt = ast.FunctionDef(**made)
        fill_positions(statement, where)
        # Names inside are mangled as those around them; a parameter's name is given unmangled or already mangled.
        if self.source.private_class is not None:
            statement = ast.ClassDef(name=self.source.private_class, body=[statement], **private)
            fill_positions(statement, where)
        around = compile_within(statement, [n for n in free if n != "__class__"], self.source.code)
        code = _find(around)
        like = self.source.code
        return code.replace(co_name=like.co_name, co_qualname=like.co_qualname)

    def statement(self, node: ast.stmt, variables: Sequence[str]) -> tuple[ObjectRef, tuple[str, ...], set[str]]:
        """Compile a whole statement.

        Args:
            node: the statement; not changed.
            variables: of the function that it names, all of them in cells.

        Returns:
            The reference to its code, its free variables in the order of their cells, and which of `WAYS` it may be
            left.
        """
        rewriting = _WaysOut()
        body: list[ast.stmt] = []
        if variables:
            body.append(ast.Nonlocal(list(variables)))
        body.append(rewriting.visit(node))
        ref, free = self.function(node, "statement", (), body, variables)
        return ref, free, rewriting.ways


def fill_positions(tree: ast.AST, where: ast.AST) -> None:
    """Give the nodes of a tree that have no position the position of `where`."""
    for node in ast.walk(tree):
        if "lineno" in node._attributes and not hasattr(node, "lineno"):
            ast.copy_location(node, where)


def _find(code: CodeType) -> CodeType:
    if code.co_name == _NAME:
        return code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            return _find(const)
    raise AssertionError("outlined code was compiled away")


class _WaysOut(ast.NodeTransformer):
    """Copies the statements it must change, so that the user's tree stays as it is."""

    def __init__(self) -> None:
        self.ways: set[str] = set()
        self.loops = 0

    def generic_visit(self, node: ast.AST) -> ast.AST:
        fields: dict[str, Any] = {}
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                fields[name] = [self.visit(v) if isinstance(v, ast.AST) else v for v in value]
            else:
                fields[name] = self.visit(value) if isinstance(value, ast.AST) else value
        return ast.copy_location(type(node)(**fields), node) if "lineno" in node._attributes else type(node)(**fields)

    def visit(self, node: ast.AST) -> Any:
        # Expressions hold no ways out; functions have ways out of their own.
        if isinstance(node, ast.expr | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return node
        if isinstance(node, ast.Return):
            return self._way("return", node, node.value)
        if isinstance(node, ast.Break | ast.Continue):
            if self.loops:
                return node
            return self._way("break" if isinstance(node, ast.Break) else "continue", node, None)
        if isinstance(node, ast.For | ast.While):
            self.loops += 1
            body = [self.visit(s) for s in node.body]
            self.loops -= 1
            orelse = [self.visit(s) for s in node.orelse]
            fields = {n: v for n, v in ast.iter_fields(node) if n not in ("body", "orelse")}
            return ast.copy_location(type(node)(**fields, body=body, orelse=orelse), node)
        return self.generic_visit(node)

    def _way(self, way: str, node: ast.stmt, value: ast.expr | None) -> ast.stmt:
        self.ways.add(way)
        items: list[ast.expr] = [ast.Constant(WAYS.index(way)), value or ast.Constant(None)]
        made = ast.Return(ast.Tuple(items, ast.Load()))
        ast.copy_location(made, node)
        fill_positions(made, node)
        return made
