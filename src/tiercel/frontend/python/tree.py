"""Walking syntax trees, without the nodes that say nothing: contexts and operators are skipped.

`ast.walk` spends most of its time on these; capturing walks a function half a dozen times.
"""

from __future__ import annotations

import ast
from typing import Final

__all__ = ["all_nodes", "children"]

# Per class the fields that may hold nodes worth a visit.
_FIELDS: Final[dict[type[ast.AST], tuple[str, ...]]] = {}
_SILENT: Final = frozenset(
    {"ctx", "op", "ops", "id", "attr", "arg", "kind", "type_comment", "name", "asname", "lineno"}
)


def children(node: ast.AST) -> list[ast.AST]:
    """Return the child nodes in the order of their fields."""
    fields = _FIELDS.get(type(node))
    if fields is None:
        fields = _FIELDS[type(node)] = tuple(f for f in node._fields if f not in _SILENT)
    found: list[ast.AST] = []
    for field in fields:
        value = getattr(node, field, None)
        if isinstance(value, ast.AST):
            found.append(value)
        elif isinstance(value, list):
            found += [item for item in value if isinstance(item, ast.AST)]
    return found


def all_nodes(node: ast.AST) -> list[ast.AST]:
    """Return a node and all nodes below it."""
    found = [node]
    for part in found:
        found += children(part)
    return found
