"""Constant folding: `%3 = -1; f(%3)` -> `f(-1)`.

A register that is written once, by a constant, is that constant wherever it is read. An operation on constants is
carried out if it is one of Python's own on numbers, strings or tuples, certain neither to raise nor to warn, and its
result is small. Operations called by name are left alone: the name may come to mean something else.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tiercel.bytecode.constants import MAX_NESTING, ConstantPool, is_plain
from tiercel.bytecode.instructions import Instruction
from tiercel.bytecode.passes.edit import edit
from tiercel.bytecode.program import Function
from tiercel.dtypes import DType

__all__ = ["fold_constants"]

_MAX_BITS: Final = 128
_MAX_ITEMS: Final = 256
_MAX_CHARACTERS: Final = 4096

# Operations on two numbers that cannot fail where both have at most 128 bits.
_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# These need a divisor that is not 0.
_DIVISIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_BITS: Final[dict[str, Callable[[Any, Any], Any]]] = {"&": operator.and_, "|": operator.or_, "^": operator.xor}
_NOTHING: Final = object()


def fold_constants(function: Function, constants: ConstantPool) -> Function:
    """Replace operations on constants by their results, and registers that hold a constant by it."""
    first = len(function.parameters) + len(function.free)
    writes = Counter(r for ins in function.instructions for r in ins.registers_written())
    known: dict[int, int] = {}
    replaced: dict[int, Instruction] = {}
    for index, old in enumerate(function.instructions):
        ins = old.map_reads(lambda operand: known.get(operand, operand)) if known else old
        value = _fold(ins, constants)
        if value is not _NOTHING:
            ins = Instruction("LoadConst", (ins.dst, constants.operand(value)))
        if ins is not old:
            replaced[index] = ins
        if ins.opcode == "LoadConst" or ins.opcode == "Move":
            operand = ins.fields[1]
            if operand < 0 and ins.dst >= first and writes[ins.dst] == 1 and _may_spread(constants[operand]):
                # Definitions come before uses in program order: only LoopEnd goes back.
                known[ins.dst] = operand
    return edit(function, replaced)


def _may_spread(value: object) -> bool:
    return is_plain(value) or isinstance(value, DType | np.dtype)


def _fold(ins: Instruction, constants: ConstantPool) -> Any:
    """The constant that the instruction's result is, or _NOTHING."""
    if ins.opcode == "Build":
        values = _values(ins.items, constants)
        return _NOTHING if values is None else _fold_build(ins.what, values)
    if ins.opcode == "Scalar":
        values = _values(ins.args, constants)
        return _NOTHING if values is None else _fold_scalar(ins.function, values)
    if ins.opcode == "CallOp" and not ins.keywords and ins.token is None:
        values = _values(ins.args, constants)
        symbol = _symbol(ins) if values is not None else None
        if values is None or symbol is None:
            return _NOTHING
        return _fold_unary(symbol, values[0]) if len(values) == 1 else _fold_binary(symbol, values)
    return _NOTHING


def _values(operands: tuple[int, ...], constants: ConstantPool) -> list[Any] | None:
    if not all(operand < 0 for operand in operands):
        return None
    values = [constants[operand] for operand in operands]
    return values if all(map(is_plain, values)) else None


def _symbol(ins: Instruction) -> str | None:
    """The operator of Python's syntax that a CallOp is, or None."""
    # Upstream, but heavy, and needed only where operands are constants.
    from tiercel import operators

    row = operators.ALL.get(ins.operator)
    if row is None or ins.spelling >= len(row.spellings):
        return None
    spelling = row.spellings[ins.spelling]
    symbol: str = spelling.path
    if spelling.kind == "inplace":
        # On immutable values x += y is x + y.
        return symbol.removesuffix("=")
    return symbol if spelling.kind == "syntax" else None


def _is_number(value: object) -> bool:
    return type(value) is float or (type(value) in (int, bool) and value.bit_length() <= _MAX_BITS)  # type: ignore[attr-defined]


def _is_integer(value: object) -> bool:
    return _is_number(value) and type(value) is not float


def _fold_unary(symbol: str, value: Any) -> Any:
    if symbol == "-x" and _is_number(value):
        return -value
    if symbol == "+x" and _is_number(value):
        return +value
    # Not of a bool: later Pythons warn.
    if symbol == "~x" and type(value) is int and _is_integer(value):
        return ~value
    return _NOTHING


def _fold_binary(symbol: str, values: list[Any]) -> Any:
    if len(values) != 2:
        return _NOTHING
    x, y = values
    if _is_number(x) and _is_number(y):
        result = _fold_numbers(symbol, x, y)
        return result if result is _NOTHING or _is_number(result) else _NOTHING
    if type(x) is str and type(y) is str:
        if symbol == "+" and len(x) + len(y) <= _MAX_CHARACTERS:
            return x + y
        return _COMPARISONS[symbol](x, y) if symbol in _COMPARISONS else _NOTHING
    if type(x) is tuple and type(y) is tuple and symbol == "+" and len(x) + len(y) <= _MAX_ITEMS:
        return x + y
    return _NOTHING


def _fold_numbers(symbol: str, x: Any, y: Any) -> Any:
    if symbol in _ARITHMETIC:
        return _ARITHMETIC[symbol](x, y)
    if symbol in _COMPARISONS:
        return _COMPARISONS[symbol](x, y)
    if symbol in _DIVISIONS and y != 0:
        return _DIVISIONS[symbol](x, y)
    if not (_is_integer(x) and _is_integer(y)):
        return _NOTHING
    if symbol in _BITS:
        return _BITS[symbol](x, y)
    if symbol in ("<<", ">>") and 0 <= y <= _MAX_BITS:
        return x << y if symbol == "<<" else x >> y
    if symbol == "**" and 0 <= y <= _MAX_BITS and x.bit_length() * y <= _MAX_BITS:
        return x**y
    return _NOTHING


def _fold_scalar(function: str, values: list[Any]) -> Any:
    if function == "not":
        return not values[0]
    singletons = (None, True, False, Ellipsis)
    # Of other constants it is Python's secret whether two of them are one.
    if function in ("is", "is_not") and any(values[0] is s or values[1] is s for s in singletons):
        same = values[0] is values[1]
        return same if function == "is" else not same
    return _NOTHING


def _fold_build(what: str, values: list[Any]) -> Any:
    if what == "string":
        fits = all(type(v) is str for v in values) and sum(map(len, values)) <= _MAX_CHARACTERS
        return "".join(values) if fits else _NOTHING
    if what not in ("tuple", "slice") or len(values) > _MAX_ITEMS:
        return _NOTHING
    if any(_depth(v) >= MAX_NESTING for v in values):
        return _NOTHING
    return tuple(values) if what == "tuple" else slice(*values)


def _depth(value: Any) -> int:
    if type(value) is slice:
        value = (value.start, value.stop, value.step)
    return 1 + max(map(_depth, value), default=0) if type(value) is tuple else 0
