"""Infix forms on Python values: the kinds are Python's, sizes stay symbolic."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import pytest

from tiercel.errors import DTypeError
from tiercel.operators import (
    ListType,
    NotStatic,
    PyBoolType,
    PyComplexType,
    PyFloatType,
    PyIntType,
    StrType,
    TupleType,
    find_function,
    find_inplace,
    find_syntax,
    get,
    type_of,
)
from tiercel.shapes import Facts, Range, Symbol, evaluate

T, B = Symbol("T"), Symbol("B")
SYMBOLS = ("+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">=")


def infer(symbol: str, *types: Any, facts: Facts | None = None) -> Any:
    found = find_inplace(symbol) if symbol[-1] == "=" and symbol not in SYMBOLS else find_syntax(symbol)
    assert found is not None
    row, index = found
    return row.infer(row.bind(index, types), facts)


def call(function: Any, *types: Any, facts: Facts | None = None) -> Any:
    found = find_function(function)
    assert found is not None
    row, index = found
    return row.infer(row.bind(index, types), facts)


VALUES = (0, 1, 5, -3, True, False, 2.0, 0.5, -1.5, 2j)


def unknown(value: Any) -> Any:
    return type(type_of(value))()


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_kind_is_pythons_whether_or_not_the_values_are_known(symbol: str) -> None:
    function = get(find_syntax(symbol)[0].name).spellings[0].callable  # type: ignore[index]
    for a, b in itertools.product(VALUES, VALUES):
        try:
            real: Any = function(a, b)
        except (TypeError, ArithmeticError, ValueError) as error:
            real = error
        for x, y in (
            (type_of(a), type_of(b)),
            (unknown(a), unknown(b)),
            (type_of(a), unknown(b)),
            (unknown(a), type_of(b)),
        ):
            known = x == type_of(a) and y == type_of(b)
            try:
                t = infer(symbol, x, y)
            except DTypeError:
                assert isinstance(real, TypeError), (a, symbol, b)
                continue
            except NotStatic:
                assert isinstance(real, ArithmeticError | ValueError) or (symbol == "**" and not known), (a, symbol, b)
                continue
            if isinstance(real, ArithmeticError | ValueError) and not known:
                continue
            assert not isinstance(real, Exception), (a, symbol, b, t)
            assert type(t) is type(type_of(real)), (a, symbol, b, t)
            if known:
                assert t == type_of(real)


@pytest.mark.parametrize("symbol", ["-x", "+x", "~x"])
@pytest.mark.parametrize("value", VALUES)
def test_unary_kinds(symbol: str, value: Any) -> None:
    function = {"-x": operator.neg, "+x": operator.pos, "~x": operator.invert}[symbol]
    if symbol == "~x" and isinstance(value, bool):
        assert infer(symbol, PyBoolType()) == PyIntType()
        return
    if symbol == "~x" and not isinstance(value, int):
        for t in (type_of(value), unknown(value)):
            with pytest.raises(DTypeError):
                infer(symbol, t)
        return
    assert infer(symbol, type_of(value)) == type_of(function(value))
    assert type(infer(symbol, unknown(value))) is type(type_of(function(value)))


def test_sizes_stay_symbolic() -> None:
    size = PyIntType(T)
    assert infer("+", size, PyIntType(1)) == PyIntType(T + 1)
    assert infer("-", PyIntType(1), size) == PyIntType(1 - T)
    assert infer("*", size, PyIntType(B)) == PyIntType(T * B)
    assert infer("//", size, PyIntType(2)) == PyIntType(T // 2)
    assert infer("%", size, PyIntType(2)) == PyIntType(T % 2)
    assert infer("**", size, PyIntType(2)) == PyIntType(T * T)
    assert infer("-x", size) == PyIntType(-T)
    assert infer("+=", size, PyIntType(1)) == PyIntType(T + 1)
    assert infer("+", size, PyBoolType(True)) == PyIntType(T + 1)
    assert infer("/", size, PyIntType(2)) == PyFloatType()
    assert infer("*", size, PyFloatType(2.0)) == PyFloatType()
    assert infer("<<", size, PyIntType(1)) == PyIntType()


def test_division_by_a_size_that_may_be_zero_is_no_size() -> None:
    assert infer("//", PyIntType(12), PyIntType(T)) == PyIntType()
    facts = Facts()
    facts.set_range(T, Range(1, None))
    assert infer("//", PyIntType(12), PyIntType(T), facts=facts) == PyIntType(12 // T)
    assert call(divmod, PyIntType(B), PyIntType(T), facts=facts) == TupleType((PyIntType(B // T), PyIntType(B % T)))


def test_division_by_negative_numbers_is_no_size() -> None:
    assert infer("//", PyIntType(T), PyIntType(-2)) == PyIntType()


@pytest.mark.parametrize("value", range(8))
@pytest.mark.parametrize("symbol", ["+", "-", "*", "//", "%"])
def test_size_arithmetic_evaluates_to_pythons(symbol: str, value: int) -> None:
    t = infer(symbol, PyIntType(T + 1), PyIntType(3))
    function = get(find_syntax(symbol)[0].name).spellings[0].callable  # type: ignore[index]
    assert evaluate(t.value, {"T": value}) == function(value + 1, 3)


def test_comparisons_of_sizes_are_decided_where_facts_decide() -> None:
    facts = Facts()
    facts.set_range(T, Range(4, 16))
    size = PyIntType(T)
    assert infer("<=", size, PyIntType(16), facts=facts) == PyBoolType(True)
    assert infer(">", size, PyIntType(16), facts=facts) == PyBoolType(False)
    assert infer("<", size, PyIntType(16), facts=facts) == PyBoolType()
    assert infer("==", size, size) == PyBoolType(True)
    assert infer("!=", size, size) == PyBoolType(False)
    assert infer("==", size, PyIntType(B)) == PyBoolType()
    assert infer(">=", size, PyIntType(0)) == PyBoolType(True)
    assert call(abs, size) == PyIntType(T)


def test_huge_powers_are_not_computed() -> None:
    ten = PyIntType(10)
    assert infer("**", ten, PyIntType(10**10)) == PyIntType()
    assert infer("<<", PyIntType(1), PyIntType(10**12)) == PyIntType()
    huge = PyIntType(1 << 4000)
    assert infer("*", huge, huge) == PyIntType()


def test_power_depends_on_values() -> None:
    assert infer("**", PyIntType(), PyIntType(2)) == PyIntType()
    assert infer("**", PyFloatType(), PyIntType()) == PyFloatType()
    assert infer("**", PyFloatType(), PyFloatType(2.0)) == PyFloatType()
    assert infer("**", PyFloatType(3.0), PyFloatType()) == PyFloatType()
    for a, b in ((PyIntType(), PyIntType()), (PyFloatType(), PyFloatType()), (PyFloatType(), PyFloatType(0.5))):
        with pytest.raises(NotStatic):
            infer("**", a, b)


def test_strings_tuples_and_lists() -> None:
    one, two = PyIntType(1), PyIntType(2)
    assert infer("+", TupleType((one,)), TupleType((two,))) == TupleType((one, two))
    assert infer("+", ListType((one,)), ListType((two,))) == ListType((one, two))
    assert infer("*", ListType((one,)), PyIntType(3)) == ListType((one, one, one))
    assert infer("*", PyIntType(2), TupleType((one,))) == TupleType((one, one))
    assert infer("+", StrType("a"), StrType("b")) == StrType("ab")
    assert infer("==", StrType("a"), StrType("b")) == PyBoolType(False)
    assert infer("<", StrType(None), StrType("b")) == PyBoolType()
    assert infer("%", StrType("%d"), one) == StrType()
    for symbol, a, b in (("-", StrType("a"), StrType("b")), ("+", ListType((one,)), TupleType((one,)))):
        with pytest.raises(NotStatic):
            infer(symbol, a, b)


def test_a_complex_number_has_no_floor() -> None:
    for function in (divmod,):
        with pytest.raises(DTypeError):
            call(function, PyComplexType(), PyIntType())
