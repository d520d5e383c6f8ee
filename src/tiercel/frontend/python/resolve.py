"""What a dotted name of the source means at capture: an operator, a builtin, a module's function, something unknown.

In: a `Name` or `Attribute` chain. Out: a `Resolution`, or None where the meaning is not known before the call.

What is found here is a claim. The bytecode evaluates the name again in each call, so a rebound name behaves as in
Python; the claim only says which operator a `CallOp` names and whether a callee can be captured. Looking must have no
effect: attributes are followed through modules only, and read from their dictionaries (from the module itself for
NumPy and Tiercel, whose lazy attributes are known to be harmless).
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from dataclasses import dataclass
from types import CellType, FunctionType, ModuleType
from typing import Any, Final

from tiercel import operators
from tiercel.frontend.python.scopes import Scope, mangle

__all__ = ["MISSING", "OperatorForm", "Resolution", "Resolver", "operator_of"]

MISSING: Final = object()
_LAZY_PACKAGES: Final = ("numpy", "tiercel")


@dataclass(frozen=True, slots=True)
class OperatorForm:
    """A row of the operator table in one of its spellings."""

    operator: operators.Operator
    spelling: int

    @property
    def kind(self) -> str:
        """Kind of the spelling: "function", "ops", "class", ..."""
        return self.operator.spellings[self.spelling].kind


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a dotted name means now.

    Attributes:
        value: the object.
        path: the name as written, `np.exp`.
        root: its first part.
        free: whether the root is a captured variable (else a global or builtin).
    """

    value: Any
    path: str
    root: str
    free: bool


class Resolver:
    """Resolves the names of one function.

    Args:
        function: whose globals and closure cells are read.
        private_class: as in `Source`.
    """

    def __init__(self, function: FunctionType, private_class: str | None) -> None:
        self.globals: Mapping[str, Any] = function.__globals__
        self.cells: dict[str, CellType] = dict(
            zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        )
        self.private_class = private_class
        found = self.globals.get("__builtins__", builtins)
        self.builtins: Mapping[str, Any] = found if isinstance(found, dict) else vars(found)

    def global_value(self, name: str) -> Any:
        """Return what a global or builtin name means now, or MISSING."""
        value = self.globals.get(name, MISSING)
        return self.builtins.get(name, MISSING) if value is MISSING else value

    def names_builtin(self, name: str) -> bool:
        """Whether a global name means the builtin of that name now."""
        return name not in self.globals and self.builtins.get(name, MISSING) is getattr(builtins, name)

    def is_builtin(self, node: ast.AST, scope: Scope, name: str) -> bool:
        """Whether a node is the name of a builtin, not shadowed now."""
        return (
            isinstance(node, ast.Name) and node.id == name and scope.resolve(name) is None and self.names_builtin(name)
        )

    def builtin_name(self, node: ast.AST, scope: Scope) -> str | None:
        """Return the builtin that a node names, or None."""
        if isinstance(node, ast.Name) and hasattr(builtins, node.id) and self.is_builtin(node, scope, node.id):
            return node.id
        return None

    def resolve(self, node: ast.AST, scope: Scope) -> Resolution | None:
        """Resolve a dotted name; None if it is no such thing, or its meaning is not known.

        Args:
            node: the expression.
            scope: where it stands.
        """
        if isinstance(node, ast.Name):
            name = mangle(node.id, self.private_class)
            variable = scope.resolve(name)
            if variable is None:
                value = self.global_value(name)
            elif variable.kind == "free":
                cell = self.cells.get(name)
                value = MISSING if cell is None else _contents(cell)
            else:
                return None
            return None if value is MISSING else Resolution(value, name, name, variable is not None)
        if isinstance(node, ast.Attribute):
            base = self.resolve(node.value, scope)
            if base is None or not isinstance(base.value, ModuleType):
                return None
            name = mangle(node.attr, self.private_class)
            value = _module_attribute(base.value, name)
            return None if value is MISSING else Resolution(value, f"{base.path}.{name}", base.root, base.free)
        return None


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _module_attribute(module: ModuleType, name: str) -> Any:
    if type(module) is ModuleType and module.__name__.partition(".")[0] in _LAZY_PACKAGES:
        return getattr(module, name, MISSING)
    return module.__dict__.get(name, MISSING)


def operator_of(value: object) -> OperatorForm | None:
    """Return the operator that a function or class is a spelling of, or None."""
    found = operators.find_function(value)
    return None if found is None else OperatorForm(*found)
