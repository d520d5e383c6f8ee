"""Library functions for the rare arguments of mathematical functions.

In: the table `mathematics.RARE`. Out: LLVM text of `void tc.math.NAME.DTYPE(ptr x, ptr y, i64 lanes)` for each row and
dtype: x is replaced where it is special, by a float64 computation on one element; y is the second operand (x itself
for functions of one). The condition is the one with which generated code decides to call.
"""

from __future__ import annotations

from collections.abc import Callable

from tiercel.codegen.cpu.expressions import Environment, Expressions
from tiercel.codegen.cpu.mathematics import RARE, Rare
from tiercel.codegen.cpu.mathematics.calculator import FLOAT32, FLOAT64, Calculator
from tiercel.codegen.cpu.mathematics.circular import reduction_text
from tiercel.codegen.cpu.mathematics.division import remainder_text
from tiercel.codegen.cpu.mathematics.guard import entry_name
from tiercel.codegen.cpu.text import REGISTER_TYPE, Value, Writer, flatten
from tiercel.dtypes import DType, as_dtype

_DTYPES = (FLOAT32, FLOAT64)


def rare_entries() -> tuple[str, ...]:
    """The names of all these functions."""
    return tuple(entry_name(name, dtype.name) for name in RARE for dtype in _DTYPES)


def rare_text(declare: Callable[[str], object]) -> list[str]:
    """Their definitions; `declare` is called with what they need declared."""
    texts = [reduction_text(declare), remainder_text(declare)]
    texts += [_one(name, row, declare) for name, row in RARE.items() if row.wide]
    return texts + [_function(name, row, dtype, declare) for name, row in RARE.items() for dtype in _DTYPES]


def _one(name: str, row: Rare, declare: Callable[[str], object]) -> str:
    """The float64 computation on one element, which both dtypes call."""
    writer = Writer()
    expressions = Expressions(writer, Environment(), frozenset(), declare)
    operands = [Value(f"%{n}", FLOAT64) for n in ("x", "y")[: row.arity]]
    writer.write(f"ret {row.compute(Calculator(expressions, operands[0]), *operands)}")
    body = "\n".join(flatten(writer.lines))
    header = f"define internal double @{_one_name(name)}({', '.join(map(str, operands))})"
    return f"{header} {{\nentry:\n{body}\n}}\n"


def _one_name(name: str) -> str:
    return f"tc.math.{name}.one"


def _function(name: str, row: Rare, dtype: DType, declare: Callable[[str], object]) -> str:
    writer = Writer()
    expressions = Expressions(writer, Environment(), frozenset(), declare)
    head, work, after, done = (writer.label(n) for n in ("head", "work", "after", "done"))
    some = writer.fresh("some")
    writer.write(f"{some} = icmp sgt i64 %lanes, 0")
    writer.branch(some, head, done)
    writer.start(head)
    index, following = writer.fresh("i"), writer.fresh("next")
    writer.write(f"{index} = phi i64 [ 0, %entry ], [ {following}, %{after} ]")
    operands = [_load(writer, f"%{pointer}", index, dtype) for pointer in ("x", "y")[: row.arity]]
    c = Calculator(expressions, operands[0])
    special = row.special(c, *operands)
    writer.branch(special.text, work, after)
    writer.start(work)
    place = writer.placeholder()
    token = expressions.enter(place, branch=True)
    if row.wide:
        wide = [c.wide(operand) for operand in operands]
        call = f"call double @{_one_name(name)}({', '.join(map(str, wide))})"
        result = c.narrow(expressions.instruction("one", call, FLOAT64, 1, *wide))
    else:
        result = row.compute(c, *operands)
    at = writer.fresh("at")
    writer.write(f"{at} = getelementptr {REGISTER_TYPE[dtype.name]}, ptr %x, i64 {index}")
    writer.write(f"store {result}, ptr {at}, align {dtype.itemsize}")
    expressions.leave(token)
    writer.jump(after)
    writer.start(after)
    writer.write(f"{following} = add i64 {index}, 1")
    again = writer.fresh("again")
    writer.write(f"{again} = icmp slt i64 {following}, %lanes")
    writer.branch(again, head, done)
    writer.start(done)
    writer.write("ret void")
    body = "\n".join(flatten(writer.lines))
    return f"define void @{entry_name(name, dtype.name)}(ptr %x, ptr %y, i64 %lanes) {{\nentry:\n{body}\n}}\n"


def _load(writer: Writer, pointer: str, index: str, dtype: DType) -> Value:
    at, value = writer.fresh("at"), writer.fresh("element")
    writer.write(f"{at} = getelementptr {REGISTER_TYPE[dtype.name]}, ptr {pointer}, i64 {index}")
    writer.write(f"{value} = load {REGISTER_TYPE[dtype.name]}, ptr {at}, align {dtype.itemsize}")
    return Value(value, as_dtype(dtype.name), 1, writer.level)
