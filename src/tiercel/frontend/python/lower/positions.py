"""Positions that CPython gives instructions where they are not simply those of the syntax node."""

from __future__ import annotations

import ast

from tiercel.bytecode.builder import span_of
from tiercel.bytecode.program import Span

__all__ = ["attribute_position", "call_position"]


def attribute_position(node: ast.Attribute) -> Span | ast.Attribute:
    """Return where reading or writing an attribute is: its name alone, if that is on a line of its own."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    if node.lineno == node.end_lineno or len(node.attr) > node.end_col_offset:
        return node
    return (node.end_lineno, node.end_col_offset - len(node.attr), node.end_lineno, node.end_col_offset)


def call_position(node: ast.Call, *, imported: bool) -> Span | ast.Call:
    """Return where a call is: a method call begins at the method's name, if that is on a line of its own.

    Args:
        node: the call.
        imported: whether it is a call through a module, which CPython does not treat as a method's.
    """
    function = node.func
    span = span_of(node)
    if (
        span is None
        or imported
        or not isinstance(function, ast.Attribute)
        or any(isinstance(a, ast.Starred) for a in node.args)
        or any(k.arg is None for k in node.keywords)
    ):
        return node
    start = attribute_position(function)
    if isinstance(start, ast.Attribute):
        return node
    return (start[0], start[1], span[2], span[3])
