"""Which values are NaN only where others are: what lets a minimum or maximum be one instruction.

In: the floats that `Expressions` writes, as it writes them. Out: `implies(a, b)`: is b NaN wherever a is? The
processor's minimum gives its second operand where one of them is NaN, NumPy's is NaN where any is; for such a pair the
instruction is right as it stands. Instances are `maximum(x, 0)` and `maximum(x * 2 + 1, x - 1)`.

For each value two sets of values are kept: it is NaN only if one of `may` is, and it is NaN if one of `must` is. A
value that nothing is known of stands for itself in both.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass

from tiercel.codegen.cpu.text import Value

_NUMBER = re.compile(r"0x([0-9A-F]{16})").search
_LIMIT = 16  # values in a set; larger ones are forgotten


@dataclass(frozen=True, slots=True)
class _Known:
    may: frozenset[str]
    must: frozenset[str]


_NEVER = _Known(frozenset(), frozenset())


def number_of(value: Value) -> float | None:
    """The number of a float32 or float64 literal, one or the same in all lanes."""
    found = None if value.text.startswith("%") else _NUMBER(value.text)
    return None if found is None else float(struct.unpack("<d", int(found[1], 16).to_bytes(8, "little"))[0])


class NaNs:
    """What is known about the values of one function."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def _of(self, value: Value) -> _Known:
        number = number_of(value)
        if number is not None and not math.isnan(number):
            return _NEVER
        return self._known.get(value.text) or _Known(frozenset((value.text,)), frozenset((value.text,)))

    def note(self, op: str, result: Value, a: Value, b: Value) -> None:
        """`result` is `op(a, b)`, an arithmetic operation or an extreme that is NaN where one of them is."""
        x, y = self._of(a), self._of(b)
        must = x.must | y.must | {result.text}
        if op in ("min", "max"):
            may = x.may | y.may
        elif (harmless := _harmless(op, a, b)) is not None:
            may = (x if harmless is b else y).may
        else:
            may = frozenset((result.text,))
        if len(may) > _LIMIT:
            may = frozenset((result.text,))
        if len(must) > _LIMIT:
            must = may | {result.text} if may <= must else frozenset((result.text,))
        self._known[result.text] = _Known(may, must)

    def implies(self, a: Value, b: Value) -> bool:
        """Is `b` NaN in every lane in which `a` is?"""
        return self._of(a).may <= self._of(b).must


def _harmless(op: str, a: Value, b: Value) -> Value | None:
    """The operand with which the operation makes no NaN of a number, infinities included; None if neither is one."""
    for operand in (b, a):
        number = number_of(operand)
        if number is None or not math.isfinite(number):
            continue
        if op in ("add", "sub") or (op == "mul" and number != 0) or (op == "div" and operand is b and number != 0):
            return operand
    return None
