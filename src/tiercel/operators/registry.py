"""All rows, and how to find one: by name, by NumPy function, method, infix symbol or property.

In: the row modules of `rows/`. Out: `ALL`, `get` and the `find_*` functions the frontend resolves source with. Every
row also gets the spelling `tiercel.ops.<name>`, with its parameters in their order unless it gives another. Lookups by
function compare identity, so a user's rebound `np.sum` is not ours.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from tiercel.errors import suggest
from tiercel.operators.rows import MODULES
from tiercel.operators.table import Operator, Spelling

__all__ = ["ALL", "find_function", "find_inplace", "find_method", "find_property", "find_syntax", "get"]


def _collect() -> dict[str, Operator]:
    rows: dict[str, Operator] = {}
    extra: dict[str, tuple[Spelling, ...]] = {}
    for family in MODULES:
        module = importlib.import_module(f"tiercel.operators.rows.{family}")
        for row in getattr(module, "ROWS", ()):
            if row.name in rows:
                raise ValueError(f"two rows are named {row.name!r}")
            rows[row.name] = row
        for name, spellings in getattr(module, "SPELLINGS", {}).items():
            extra[name] = (*extra.get(name, ()), *spellings)
    for name, row in rows.items():
        more = extra.get(name, ())
        if not any(s.kind == "ops" and s.path == name for s in row.spellings):
            names = tuple(p.name for p in row.parameters)
            more = (Spelling("ops", name, names, {n: n for n in names}), *more)
        rows[name] = replace(row, spellings=(*row.spellings, *more))
    missing = extra.keys() - rows.keys()
    if missing:
        raise ValueError(f"spellings for operators that do not exist: {sorted(missing)}")
    return rows


ALL: Final[Mapping[str, Operator]] = MappingProxyType(_collect())


def get(name: str) -> Operator:
    """Return the row of this name.

    Raises:
        KeyError: there is none; the message suggests the nearest.
    """
    row = ALL.get(name)
    if row is None:
        raise KeyError(f"no operator {name!r}{suggest(name, list(ALL))}")
    return row


@functools.cache
def _functions() -> dict[int, tuple[Any, Operator, int]]:
    found: dict[int, tuple[Any, Operator, int]] = {}
    for row in ALL.values():
        for index, spelling in enumerate(row.spellings):
            if spelling.kind == "function":
                target = spelling.callable
                found.setdefault(id(target), (target, row, index))
    return found


@functools.cache
def _by_path(kind: str) -> dict[str, tuple[Operator, int]]:
    found: dict[str, tuple[Operator, int]] = {}
    for row in ALL.values():
        for index, spelling in enumerate(row.spellings):
            if spelling.kind == kind:
                found.setdefault(spelling.path, (row, index))
    return found


def find_function(obj: object) -> tuple[Operator, int] | None:
    """Return the row and spelling index of a NumPy function or builtin, by identity; None if it is not in the table."""
    own = getattr(obj, "__tiercel_op__", None)
    if type(own) is tuple and len(own) == 2 and own[0] in ALL:
        return ALL[own[0]], own[1]
    found = _functions().get(id(obj))
    return None if found is None or found[0] is not obj else found[1:]


def find_method(name: str) -> tuple[Operator, int] | None:
    """Return the row of an ndarray method."""
    return _by_path("method").get(name)


def find_syntax(symbol: str) -> tuple[Operator, int] | None:
    """Return the row of an infix or prefix form: "+", "-x", "=="."""
    return _by_path("syntax").get(symbol)


def find_inplace(symbol: str) -> tuple[Operator, int] | None:
    """Return the row of an augmented assignment: "+="."""
    return _by_path("inplace").get(symbol)


def find_property(name: str) -> tuple[Operator, int] | None:
    """Return the row of an ndarray property: "T"."""
    return _by_path("property").get(name)
