"""The rare arguments of a function are computed elsewhere: a branch on "any lane is special" and a call.

In: a fast result for all lanes, a condition that says in which lanes it does not hold, the operands. Out: a value that
holds in all lanes. Why: zero, infinities, denormals and huge arguments would cost every function selects and code (50
microseconds of compile time an instruction), and NumPy's floating-point flags for them need real divisions. The runtime
library holds `tc.math.NAME.DTYPE(ptr x, ptr y, i64 lanes)`, which replaces x where it is special
(`codegen.cpu.rare`).

Invariant: an element's result never depends on its neighbours; ordinary lanes keep the fast result.
"""

from __future__ import annotations

from tiercel.codegen.cpu.mathematics.calculator import Calculator
from tiercel.codegen.cpu.text import Value


def entry_name(name: str, dtype_name: str) -> str:
    """The library function of a function and dtype."""
    return f"tc.math.{name}.{dtype_name}"


def guarded(c: Calculator, name: str, special: Value, fast: Value, *operands: Value) -> Value:
    """`fast`, but where `special` what the library gives for `operands` (one or two)."""
    expressions, writer, lanes = c.expressions, c.expressions.writer, fast.lanes
    some = special.text
    if lanes > 1:
        some, mask = writer.fresh("some"), writer.fresh("special.bits")
        writer.write(f"{mask} = bitcast {special} to i{lanes}")
        writer.write(f"{some} = icmp ne i{lanes} {mask}, 0")
    before, rare, after = writer.block, writer.label(f"{name}.rare"), writer.label(f"{name}.done")
    writer.write(f'br i1 {some}, label %{rare}, label %{after}, !prof !{{!"branch_weights", i32 1, i32 4000}}')
    writer.start(rare)
    size, align = lanes * c.dtype.itemsize, c.dtype.itemsize
    pointers = [expressions.scratch(f"{name}.{i}", size) for i in range(len(operands))]
    for pointer, operand in zip(pointers, operands, strict=True):
        writer.write(f"store {operand}, ptr {pointer}, align {align}")
    entry = entry_name(name, c.dtype.name)
    expressions.declare(f"declare void @{entry}(ptr, ptr, i64)")
    writer.write(f"call void @{entry}(ptr {pointers[0]}, ptr {pointers[-1]}, i64 {lanes})")
    computed, mixed, result = writer.fresh(name), writer.fresh(name), writer.fresh(name)
    writer.write(f"{computed} = load {fast.type}, ptr {pointers[0]}, align {align}")
    writer.write(f"{mixed} = select {special}, {fast.type} {computed}, {fast}")
    writer.jump(after)
    writer.start(after)
    writer.write(f"{result} = phi {fast.type} [ {fast.text}, %{before} ], [ {mixed}, %{rare} ]")
    return Value(result, fast.dtype, lanes, writer.level)
