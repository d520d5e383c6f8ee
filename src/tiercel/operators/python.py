"""What Python itself gives for an infix form whose operands are all Python values: `T + 1`, `n // 2`, `a < b`.

In: the spelling and the operands' types. Out: the type Python's own operator gives, with its value where the operands'
values are known; sizes stay symbolic (`T + 1` is the size T + 1). NumPy is not involved: `1 / 2` is a Python float.

Results whose kind depends on values that are not known (`a ** b`) are `NotStatic`; what Python refuses for these types
is a `DTypeError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tiercel.errors import DTypeError
from tiercel.operators.table import Spelling
from tiercel.operators.types import (
    ListType,
    NotStatic,
    PyBoolType,
    PyComplexType,
    PyFloatType,
    PyIntType,
    StrType,
    TupleType,
    Type,
    is_python_scalar,
    static_value,
    type_of,
)
from tiercel.shapes import NO_FACTS, Dim, DimLike, Facts

__all__ = ["python_result"]

_KINDS: Final[tuple[type, ...]] = (PyBoolType, PyIntType, PyFloatType, PyComplexType)
_BOOL, _INT, _FLOAT, _COMPLEX = range(4)
_COMPARISONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">="})
# A folded integer stays below this many bits; `10 ** 10 ** 10` must not be computed to be typed.
_MAX_BITS: Final = 4096


def python_result(form: Spelling, types: tuple[Type, ...], facts: Facts | None = None) -> Type:
    """Return the type of an infix, prefix or builtin form on Python values.

    Raises:
        DTypeError: Python raises TypeError for these types.
        NotStatic: the result's type depends on values that are not known, or an operand is an object.
    """
    symbol = form.path.removesuffix("=") if form.kind == "inplace" else form.path
    if all(is_python_scalar(t) for t in types):
        folded = _fold(symbol, form.callable, types)
        if folded is not None:
            return folded
        if any(isinstance(t, PyIntType) and isinstance(t.value, Dim) for t in types):
            sized = _sizes(symbol, types, facts)
            if sized is not None:
                return sized
        return _by_kind(symbol, types)
    return _sequences(form, symbol, types)


def _fold(symbol: str, function: Callable[..., Any], types: tuple[Type, ...]) -> Type | None:
    try:
        values = [static_value(t) for t in types]
    except NotStatic:
        return None
    if any(isinstance(v, Dim) for v in values):
        return None
    if symbol in ("**", "builtins.pow", "<<", "*") and all(isinstance(v, int) for v in values):
        a, b = values
        bits = a.bit_length() * max(b, 1) if symbol in ("**", "builtins.pow") else a.bit_length() + abs(b)
        if symbol == "*":
            bits = a.bit_length() + b.bit_length()
        if bits > _MAX_BITS:
            return PyIntType(None)
    try:
        return type_of(function(*values))
    except TypeError as error:
        raise DTypeError(*error.args) from None
    except ArithmeticError as error:
        raise NotStatic(f"Python raises {type(error).__name__}: {error}") from None
    except ValueError as error:
        raise NotStatic(f"Python raises ValueError: {error}") from None


def _sizes(symbol: str, types: tuple[Type, ...], facts: Facts | None) -> Type | None:
    values = [int(t.value) if isinstance(t, PyBoolType) and t.value is not None else t.value for t in types]  # type: ignore[attr-defined]
    if not all(isinstance(v, int | Dim) for v in values):
        return None
    match symbol, values:
        case "-x", [a]:
            return PyIntType(-a)
        case "+x", [a]:
            return PyIntType(a)
        case "+", [a, b]:
            return PyIntType(a + b)
        case "-", [a, b]:
            return PyIntType(a - b)
        case "*", [a, b]:
            return PyIntType(a * b)
        case "//", [a, b] if _nonzero(b, facts):
            return PyIntType(a // b)
        case "%", [a, b] if _nonzero(b, facts):
            return PyIntType(a % b)
        case "builtins.divmod", [a, b] if _nonzero(b, facts):
            return TupleType((PyIntType(a // b), PyIntType(a % b)))
        case "**", [a, int(b)] if 0 <= b <= 8:
            power: DimLike = 1
            for _ in range(b):
                power = power * a
            return PyIntType(power)
        case ("builtins.abs", [a]) if _at_least(a, 0, facts):
            return PyIntType(a)
    if symbol in _COMPARISONS:
        return PyBoolType(_compare(symbol, values[0], values[1], facts))
    return None


def _nonzero(b: DimLike, facts: Facts | None) -> bool:
    # Dividing by a size that may be 0 raises at run time, so its quotient is no size expression yet.
    return _at_least(b, 1, facts)


def _at_least(x: DimLike, bound: int, facts: Facts | None) -> bool:
    if isinstance(x, int):
        return x >= bound
    low = (facts or NO_FACTS).range(x).lo
    return low is not None and low >= bound


def _compare(symbol: str, a: DimLike, b: DimLike, facts: Facts | None) -> bool | None:
    facts = facts or NO_FACTS
    match symbol:
        case "==":
            return facts.equal(a, b)
        case "!=":
            return _not(facts.equal(a, b))
        case "<=":
            return facts.less_equal(a, b)
        case ">=":
            return facts.less_equal(b, a)
        case "<":
            return _not(facts.less_equal(b, a))
        case _:
            return _not(facts.less_equal(a, b))


def _not(x: bool | None) -> bool | None:
    return None if x is None else not x


def _by_kind(symbol: str, types: tuple[Type, ...]) -> Type:
    ranks = [_KINDS.index(type(t)) for t in types]
    top = max(ranks)
    match symbol:
        case "+" | "-" | "*" | "-x" | "+x":
            return _KINDS[max(top, _INT)]()  # type: ignore[no-any-return]
        case "/":
            return _KINDS[max(top, _FLOAT)]()  # type: ignore[no-any-return]
        case "//" | "%" | "builtins.divmod":
            if top == _COMPLEX:
                raise DTypeError(f"Python has no {symbol.removeprefix('builtins.')} of complex numbers")
            one = _KINDS[max(top, _INT)]()
            return TupleType((one, one)) if symbol == "builtins.divmod" else one
        case "**" | "builtins.pow":
            return _power(types[0], types[1], ranks)
        case "&" | "|" | "^" | "<<" | ">>" | "~x":
            if top > _INT:
                raise DTypeError(f"Python has no {symbol} of {_KINDS[top].__name__}")
            return PyBoolType() if top == _BOOL and symbol in "&|^" else PyIntType()
        case "==" | "!=":
            return PyBoolType()
        case "<" | "<=" | ">" | ">=":
            if top == _COMPLEX:
                raise DTypeError(f"Python does not order complex numbers: {symbol}")
            return PyBoolType()
        case "builtins.abs":
            return PyFloatType() if top == _COMPLEX else _KINDS[max(top, _INT)]()
    raise NotStatic(f"no rule for {symbol} of Python scalars")


def _power(a: Any, b: Any, ranks: list[int]) -> Type:
    if max(ranks) == _COMPLEX:
        return PyComplexType()
    if max(ranks) <= _INT:
        if ranks[1] == _BOOL or (isinstance(b.value, int) and b.value >= 0):
            return PyIntType()
        raise NotStatic("int ** int is an int or a float, by the sign of the exponent")
    integral = ranks[1] <= _INT or (b.value is not None and float(b.value).is_integer())
    if integral or (isinstance(a.value, int | float) and a.value >= 0):
        return PyFloatType()
    raise NotStatic("a float power is complex for a negative base and a fractional exponent")


def _sequences(form: Spelling, symbol: str, types: tuple[Type, ...]) -> Type:
    if len(types) == 2:
        a, b = types
        if symbol == "+" and isinstance(a, TupleType) and isinstance(b, TupleType):
            return TupleType(a.items + b.items)
        if symbol == "+" and isinstance(a, ListType) and isinstance(b, ListType) and form.kind == "syntax":
            if a.items is not None and b.items is not None:
                return ListType(a.items + b.items)
        if isinstance(a, StrType) and isinstance(b, StrType):
            if symbol == "+":
                return StrType(a.value + b.value if a.value is not None and b.value is not None else None)
            if symbol in _COMPARISONS:
                known = a.value is not None and b.value is not None
                return PyBoolType(form.callable(a.value, b.value) if known else None)
        if symbol == "%" and isinstance(a, StrType):
            return StrType()
        if symbol == "*":
            repeated = _repeat(a, b) or _repeat(b, a)
            if repeated is not None:
                return repeated
    names = ", ".join(type(t).__name__ for t in types)
    raise NotStatic(f"no rule for {symbol} of {names}")


def _repeat(sequence: Type, count: Type) -> Type | None:
    if not isinstance(count, PyIntType):
        return None
    if isinstance(sequence, StrType):
        return StrType()
    if isinstance(sequence, TupleType | ListType) and isinstance(count.value, int) and sequence.items is not None:
        # Long repetitions are not worth a type of each item.
        if count.value * len(sequence.items) <= 1024:
            return type(sequence)(sequence.items * count.value)
    return None
