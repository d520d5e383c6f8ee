"""Tuple, list, set and dict displays, and f-strings."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

from tiercel.errors import BytecodeError
from tiercel.frontend.python.lower.operations import constant_value
from tiercel.frontend.python.lower.state import Lowering, expression

_CONVERSIONS: Final = {-1: "format", 115: "format_str", 114: "format_repr", 97: "format_ascii"}


@expression(ast.Tuple)
def _tuple(lo: Lowering, node: ast.Tuple, dst: int | None) -> int:
    known = constant_value(node)
    if known is not None:
        try:
            return lo.constant(known[0])
        except BytecodeError:
            pass  # nested too deeply to be one
    return _sequence(lo, node, node.elts, "tuple", dst)


@expression(ast.List)
def _list(lo: Lowering, node: ast.List, dst: int | None) -> int:
    return _sequence(lo, node, node.elts, "list", dst)


@expression(ast.Set)
def _set(lo: Lowering, node: ast.Set, dst: int | None) -> int:
    return _sequence(lo, node, node.elts, "set", dst)


def _sequence(lo: Lowering, node: ast.AST, items: Sequence[ast.expr], what: str, dst: int | None) -> int:
    if not any(isinstance(item, ast.Starred) for item in items):
        return lo.emit(node, "Build", dst, what, lo.operands(items))
    # Each starred part is read when its turn comes, before later parts are evaluated.
    inner = "set" if what == "set" else "list"
    collected: int | None = None
    index = 0
    while index < len(items):
        item = items[index]
        last = False
        if isinstance(item, ast.Starred):
            index += 1
            last = index == len(items)
            operand = lo.expression(item.value)
            parts = [operand] if collected is None else [collected, operand]
        else:
            run = items[index:]
            run = run[: next((i for i, e in enumerate(run) if isinstance(e, ast.Starred)), len(run))]
            index += len(run)
            last = index == len(items)
            built = lo.emit(node, "Build", None, inner, lo.operands(run))
            if collected is None:
                collected = built
                continue
            parts = [collected, built]
        collected = lo.emit(node, "Build", dst if last else None, f"{what if last else inner}_star", parts)
    assert collected is not None
    return collected


@expression(ast.Dict)
def _dict(lo: Lowering, node: ast.Dict, dst: int | None) -> int:
    pairs: list[ast.expr] = []
    collected: int | None = None

    def flush() -> None:
        nonlocal collected
        if not pairs and collected is not None:
            return
        built = lo.emit(node, "Build", None, "dict", lo.operands(pairs))
        pairs.clear()
        collected = built if collected is None else lo.emit(node, "Build", None, "dict_star", (collected, built))

    if all(key is not None for key in node.keys):
        for key, value in zip(node.keys, node.values, strict=True):
            assert key is not None
            pairs += [key, value]
        return lo.emit(node, "Build", dst, "dict", lo.operands(pairs))
    for key, value in zip(node.keys, node.values, strict=True):
        if key is not None:
            pairs += [key, value]
            continue
        flush()
        assert collected is not None
        mapping = lo.expression(value)
        collected = lo.emit(node, "Build", None, "dict_star", (collected, mapping))
    if pairs:
        flush()
    assert collected is not None
    return collected


@expression(ast.JoinedStr)
def _joined(lo: Lowering, node: ast.JoinedStr, dst: int | None) -> int:
    parts = [lo.expression(part) for part in node.values]
    if not parts:
        return lo.constant("")
    if len(parts) == 1:
        return parts[0]
    return lo.emit(node, "Build", dst, "string", parts)


@expression(ast.FormattedValue)
def _formatted(lo: Lowering, node: ast.FormattedValue, dst: int | None) -> int:
    value = lo.expression(node.value)
    args = [value]
    if node.format_spec is not None:
        args = [lo.keep(node.value, value, [node.format_spec]), lo.expression(node.format_spec)]
    return lo.emit(node, "Scalar", dst, _CONVERSIONS[node.conversion], args)
