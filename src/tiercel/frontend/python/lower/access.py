"""Names, attributes, subscripts and constants: reading and writing them."""

from __future__ import annotations

import ast
from typing import Final

from tiercel import operators
from tiercel.errors import BytecodeError
from tiercel.frontend.python.lower.operations import constant_value
from tiercel.frontend.python.lower.positions import attribute_position
from tiercel.frontend.python.lower.state import Lowering, expression

__all__ = ["assign_name", "delete_name", "key_operand", "load_name"]

# Attributes of arrays that describe them; typing knows them as attributes.
_DESCRIBING: Final = frozenset({"shape", "dtype", "ndim", "size", "itemsize", "nbytes", "strides", "flags"})


@expression(ast.Constant)
def _constant(lo: Lowering, node: ast.Constant, dst: int | None) -> int:
    return lo.constant(node.value)


@expression(ast.Name)
def _name(lo: Lowering, node: ast.Name, dst: int | None) -> int:
    if node.id == "__debug__":
        return lo.constant(__debug__)
    return load_name(lo, node, node.id, dst)


def load_name(lo: Lowering, where: ast.AST, name: str, dst: int | None = None) -> int:
    """Return an operand that holds the value of a name."""
    name = lo.mangle(name)
    variable = lo.scope.resolve(name)
    if variable is None:
        return lo.emit(where, "LoadGlobal", dst, name)
    return lo.load(where, variable, dst)


def assign_name(lo: Lowering, where: ast.AST, name: str, value: int) -> None:
    """Assign to a name."""
    name = lo.mangle(name)
    # An assignment expression in a comprehension binds in the function.
    variable = lo.scope.resolve(name)
    if variable is not None:
        lo.store(where, variable, value)
        return
    body: list[ast.stmt] = [
        ast.Global([name]),
        ast.Assign([ast.Name(name, ast.Store())], ast.Name("value", ast.Load())),
    ]
    parameter = "value" if name != "value" else "value_"
    body[1].value.id = parameter  # type: ignore[attr-defined]
    ref, _ = lo.outliner.function(where, f"global {name}", (parameter,), body)
    lo.call_outlined(where, f"it assigns the global {name!r}", ref, (value,))


def delete_name(lo: Lowering, node: ast.Name) -> None:
    """Lower `del name`."""
    name = lo.mangle(node.id)
    variable = lo.scope.resolve(name)
    if variable is not None:
        lo.load(node, variable)  # an unassigned one raises
        lo.unbind(node, variable)
        return
    body: list[ast.stmt] = [ast.Global([name]), ast.Delete([ast.Name(name, ast.Del())])]
    ref, _ = lo.outliner.function(node, f"del {name}", (), body)
    lo.call_outlined(node, f"it deletes the global {name!r}", ref)


@expression(ast.NamedExpr)
def _named(lo: Lowering, node: ast.NamedExpr, dst: int | None) -> int:
    value = lo.expression(node.value)
    variable = lo.scope.resolve(lo.mangle(node.target.id))
    if variable is not None and variable.kind == "local":
        lo.store(node.target, variable, value)
        return lo.home(variable)
    if value >= 0 and isinstance(node.value, ast.Name | ast.NamedExpr):
        value = lo.emit(node.value, "Move", None, value)
    assign_name(lo, node.target, node.target.id, value)
    return value


# ---- attributes ------------------------------------------------------------------------------------------------------


@expression(ast.Attribute)
def _attribute(lo: Lowering, node: ast.Attribute, dst: int | None) -> int:
    value = lo.expression(node.value)
    name = lo.mangle(node.attr)
    found = None if name in _DESCRIBING or _is_self(lo, node.value) else operators.find_property(name)
    if found is not None and lo.resolver.resolve(node.value, lo.scope) is None:
        return lo.emit(attribute_position(node), "CallOp", dst, found[0].name, found[1], (value,))
    return lo.emit(attribute_position(node), "LoadAttr", dst, value, name)


def _is_self(lo: Lowering, node: ast.AST) -> bool:
    # `self.T` is far more likely an attribute of the user's object than a transposed array.
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


# ---- subscripts ------------------------------------------------------------------------------------------------------


@expression(ast.Subscript)
def _subscript(lo: Lowering, node: ast.Subscript, dst: int | None) -> int:
    axis = constant_value(node.slice)
    shape = node.value
    if (
        axis is not None
        and type(axis[0]) is int
        and -(2**31) <= axis[0] < 2**31
        and isinstance(shape, ast.Attribute)
        and shape.attr == "shape"
    ):
        return lo.emit(node, "Dim", dst, lo.expression(shape.value), axis[0])
    value = lo.keep(node.value, lo.expression(node.value), [node.slice])
    key = key_operand(lo, node.slice)
    return lo.emit(node, "Index", dst, value, key)


def key_operand(lo: Lowering, node: ast.AST) -> int:
    """Return an operand that holds the key of a subscript; slices of constants are constants."""
    known = _constant_key(node)
    if known is not None:
        try:
            return lo.constant(known[0])
        except BytecodeError:
            pass  # nested too deeply to be one
    return lo.expression(node)


def _constant_key(node: ast.AST) -> tuple[object] | None:
    if isinstance(node, ast.Slice):
        parts = [(None,) if p is None else constant_value(p) for p in (node.lower, node.upper, node.step)]
        known = [p[0] for p in parts if p is not None]
        return (slice(*known),) if len(known) == 3 else None
    if isinstance(node, ast.Tuple):
        keys = [_constant_key(e) for e in node.elts]
        found = [k[0] for k in keys if k is not None]
        return (tuple(found),) if len(found) == len(keys) else None
    return constant_value(node)


@expression(ast.Slice)
def _slice(lo: Lowering, node: ast.Slice, dst: int | None) -> int:
    known = _constant_key(node)
    if known is not None:
        return lo.constant(known[0])
    parts = [p or ast.copy_location(ast.Constant(None), node) for p in (node.lower, node.upper, node.step)]
    return lo.emit(node, "Build", dst, "slice", lo.operands(parts))
