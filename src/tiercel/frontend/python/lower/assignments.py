"""Assignment to every kind of target, augmented assignment, deletion."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tiercel.frontend.python.lower.access import assign_name, delete_name, key_operand, load_name
from tiercel.frontend.python.lower.operations import in_place
from tiercel.frontend.python.lower.positions import attribute_position
from tiercel.frontend.python.lower.state import Lowering, Where, statement

__all__ = ["assign", "target_register"]


def assign(lo: Lowering, target: ast.AST, value: int) -> None:
    """Assign a value to a target."""
    match target:
        case ast.Name(id=name):
            assign_name(lo, target, name, value)
        case ast.Attribute(value=owner):
            lo.emit(attribute_position(target), "StoreAttr", lo.expression(owner), lo.mangle(target.attr), value)
        case ast.Subscript(value=owner, slice=key):
            x = lo.keep(owner, lo.expression(owner), [key])
            _set_item(lo, target, x, key_operand(lo, key), value)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            _unpack(lo, target, items, value)
        case ast.Starred(value=inner):
            assign(lo, inner, value)
        case _:
            lo.fail(target, f"{type(target).__name__} is no target that can be assigned")


def _set_item(lo: Lowering, where: Where, x: int, key: int, value: int) -> None:
    if key == lo.constant(Ellipsis):
        lo.emit(where, "StoreTensor", x, value)
    else:
        lo.emit(where, "SetItem", x, key, value)


def _unpack(lo: Lowering, target: ast.AST, items: Sequence[ast.expr], value: int) -> None:
    star = next((i + 1 for i, item in enumerate(items) if isinstance(item, ast.Starred)), 0)
    registers: list[int] = []
    direct = True
    for item in items:
        home = _home(lo, item) if direct else None
        # A later target may read what an earlier one assigned, never the other way round.
        direct = home is not None and home not in registers
        registers.append(home if home is not None and direct else lo.f.register())
    lo.emit(target, "Unpack", registers, value, star)
    for item, register in zip(items, registers, strict=True):
        assign(lo, item, register)


def target_register(lo: Lowering, target: ast.expr) -> int:
    """Return the register that an item to be assigned to a target is best put in."""
    home = None if isinstance(target, ast.Starred) else _home(lo, target)
    return lo.f.register() if home is None else home


def _home(lo: Lowering, item: ast.expr) -> int | None:
    """The register of a target that is a variable in a register."""
    if isinstance(item, ast.Starred):
        item = item.value
    if isinstance(item, ast.Name):
        variable = lo.scope.resolve(lo.mangle(item.id))
        if variable is not None and variable.kind == "local":
            return lo.home(variable)
    return None


@statement(ast.Assign)
def _assign(lo: Lowering, node: ast.Assign) -> None:
    if len(node.targets) == 1:
        target = node.targets[0]
        if _is_parallel(target, node.value):
            assert isinstance(target, ast.Tuple | ast.List)
            assert isinstance(node.value, ast.Tuple | ast.List)
            _assign_in_parallel(lo, target.elts, node.value.elts)
            return
        home = _home(lo, target)
        assign(lo, target, lo.expression(node.value, home))
        return
    value = lo.expression(node.value)
    # A later target may not see a variable that an earlier one assigned in the place of the value.
    if value >= 0 and isinstance(node.value, ast.Name):
        value = lo.emit(node.value, "Move", None, value)
    for target in node.targets:
        assign(lo, target, value)


def _is_parallel(target: ast.expr, value: ast.expr) -> bool:
    return (
        isinstance(target, ast.Tuple | ast.List)
        and isinstance(value, ast.Tuple | ast.List)
        and len(target.elts) == len(value.elts)
        and not any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts))
    )


def _assign_in_parallel(lo: Lowering, targets: Sequence[ast.expr], values: Sequence[ast.expr]) -> None:
    """`a, b = b, a` without a tuple in between, as CPython does it for two and three."""
    operands = []
    for index, (target, value) in enumerate(zip(targets, values, strict=True)):
        last = index == len(values) - 1
        home = _home(lo, target) if last and all(isinstance(t, ast.Name) for t in targets) else None
        # Only the last value may go to its place at once, and only if no earlier target is to be written there.
        operand = lo.expression(value, home if home not in [_home(lo, t) for t in targets[:-1]] else None)
        if operand >= 0 and isinstance(value, ast.Name | ast.NamedExpr) and len(targets) > 1:
            operand = lo.emit(value, "Move", None, operand)
        operands.append(operand)
    for target, operand in zip(targets, operands, strict=True):
        assign(lo, target, operand)


@statement(ast.AnnAssign)
def _annotated(lo: Lowering, node: ast.AnnAssign) -> None:
    # Annotations of local variables are not evaluated; of other targets neither, but the target is.
    if node.value is not None:
        assign(lo, node.target, lo.expression(node.value, _home(lo, node.target)))
    elif isinstance(node.target, ast.Attribute):
        lo.expression(node.target.value)
    elif isinstance(node.target, ast.Subscript):
        lo.operands([node.target.value, node.target.slice])


@statement(ast.AugAssign)
def _augmented(lo: Lowering, node: ast.AugAssign) -> None:
    match node.target:
        case ast.Name(id=name):
            old = lo.keep(node.target, load_name(lo, node.target, name), [node.value])
            value = lo.expression(node.value)
            new = in_place(lo, node, node.op, (old, value), _home(lo, node.target))
            assign_name(lo, node.target, name, new)
        case ast.Attribute(value=owner, attr=attribute):
            x = lo.keep(owner, lo.expression(owner), [node.value])
            where = attribute_position(node.target)
            old = lo.emit(where, "LoadAttr", None, x, lo.mangle(attribute))
            new = in_place(lo, node, node.op, (old, lo.expression(node.value)), None)
            lo.emit(where, "StoreAttr", x, lo.mangle(attribute), new)
        case ast.Subscript(value=owner, slice=key):
            x = lo.keep(owner, lo.expression(owner), [key, node.value])
            k = lo.keep(key, key_operand(lo, key), [node.value])
            old = lo.emit(node.target, "Index", None, x, k)
            new = in_place(lo, node, node.op, (old, lo.expression(node.value)), None)
            _set_item(lo, node.target, x, k, new)


@statement(ast.Delete)
def _delete(lo: Lowering, node: ast.Delete) -> None:
    for target in node.targets:
        _delete_target(lo, target)


def _delete_target(lo: Lowering, target: ast.expr) -> None:
    match target:
        case ast.Name():
            delete_name(lo, target)
        case ast.Attribute(value=owner, attr=name):
            x = lo.expression(owner)
            body = [ast.Delete([ast.Attribute(ast.Name("x", ast.Load()), name, ast.Del())])]
            ref, _ = lo.outliner.function(target, "del", ("x",), body)
            lo.call_outlined(target, "it deletes an attribute", ref, (x,))
        case ast.Subscript(value=owner, slice=key):
            x = lo.keep(owner, lo.expression(owner), [key])
            k = key_operand(lo, key)
            body = [ast.Delete([ast.Subscript(ast.Name("x", ast.Load()), ast.Name("k", ast.Load()), ast.Del())])]
            ref, _ = lo.outliner.function(target, "del", ("x", "k"), body)
            lo.call_outlined(target, "it deletes an item", ref, (x, k))
        case ast.Tuple(elts=items) | ast.List(elts=items):
            for item in items:
                _delete_target(lo, item)
        case _:
            lo.fail(target, f"{type(target).__name__} is no target that can be deleted")
