"""Vector axes: groups of neighbouring iterations in the lanes of vectors, and reductions over them.

In: a `For` of kind "vector", emitted by an `Emitter` that is not inside another one. Out: a loop over groups of lanes.
Invariants:

* The last, partial group is masked. A short body is written twice, without and with the mask, so that whole groups pay
  nothing for it; a long one stands once, masked (code generation costs about 50 us an instruction).
* A reduction keeps one partial result in each lane; lane l takes elements l, l + lanes, ... in this order, and halves
  are combined with halves at the end. The order depends on nothing but the number of elements.
* The partial result of a float minimum or maximum is never NaN: whether a NaN was seen is kept beside it. So one
  instruction compares an element, none of them raises a flag, and NaN wins at the end as in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tiercel.codegen.cpu.expressions import VectorAxis
from tiercel.codegen.cpu.text import Value
from tiercel.dtypes import DType, as_dtype
from tiercel.loops.form import BOOL, INDEX, For, IllFormed, Reduce, Stmt, blocks

if TYPE_CHECKING:
    from tiercel.codegen.cpu.emit import Emitter

_IDENTITY: dict[str, float] = {"add": 0, "mul": 1, "and": True, "or": False}
_INT32 = as_dtype("int32")


def identity(op: str, dtype: DType) -> float:
    """The value that changes nothing when combined by `op`."""
    if op in ("min", "max"):
        if dtype.kind == "b":
            return op == "min"
        if dtype.kind == "f":
            return float("inf") if op == "min" else float("-inf")
        bits = 8 * dtype.itemsize
        low, high = (0, 2**bits - 1) if dtype.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return high if op == "min" else low
    return _IDENTITY[op]


def spoiled(name: str) -> str:
    """The name under which the environment has whether a NaN was among what `name` has seen."""
    return f".spoiled.{name}"


def vector_for(emitter: Emitter, stmt: For, accumulators: Mapping[str, str]) -> None:
    """Emit a vector axis whose body reduces into `accumulators`: name -> operation."""
    _VectorLoop(emitter, stmt, accumulators).run()


class _VectorLoop:
    def __init__(self, emitter: Emitter, stmt: For, accumulators: Mapping[str, str]) -> None:
        self.emitter, self.stmt, self.accumulators = emitter, stmt, accumulators
        self.writer, self.expressions, self.names = emitter.writer, emitter.expressions, emitter.environment.names
        self.lanes = emitter.target.lanes_for(stmt.body, stmt.vectors)
        for name, op in accumulators.items():
            if op == "assign":
                raise IllFormed(f"{name} is assigned in the vector axis {stmt.index} and declared outside of it")
        self.outer = {n: self.names[n] for n in accumulators}
        self.initial: dict[str, Value] = {}
        for name, op in accumulators.items():
            dtype = self.outer[name].dtype
            self.initial[name] = self.expressions.constant(identity(op, dtype), dtype, self.lanes)
            if op in ("min", "max") and dtype.name in ("float32", "float64") and _is_direct(stmt, name):
                self.initial[spoiled(name)] = nothing_seen(emitter, dtype, self.lanes)

    def run(self) -> None:
        """Emit the loop; outer accumulators get their new values."""
        extent = self.expressions.emit(self.stmt.extent)
        if self.emitter.target.repeats(self.stmt.body):
            last = self._whole_and_rest(extent)
        else:
            last = self._masked(extent)
        self._combine(last)

    # -- one group --------------------------------------------------------------------------------------------

    def _group(self, base: Value, mask: Value | None, full: Value | None, state: Mapping[str, Value]) -> None:
        """The body for the lanes at `base`."""
        emitter = self.emitter
        self.names.update(state)
        saved = emitter.lane_accumulators
        emitter.lane_accumulators = frozenset(self.accumulators)
        emitter.environment.axis = VectorAxis(self.stmt.index, self.lanes, base, mask, full)
        emitter.block(self.stmt.body)
        emitter.environment.axis = None
        emitter.lane_accumulators = saved

    def _now(self) -> dict[str, Value]:
        return {n: self.names[n] for n in self.initial}

    def _mask(self, base: Value, extent: Value) -> tuple[Value, Value | None]:
        """(which lanes are inside, whether all are or None where nobody needs to know)."""
        expressions, lanes = self.expressions, self.lanes
        left = expressions.instruction("left", f"sub {extent}, {base.text}", INDEX, 1, extent, base)
        full = expressions.compare("ge", left, expressions.constant(lanes, INDEX))
        few = expressions.instruction("few", f"select {full}, i64 {lanes}, {left}", INDEX, 1, full, left)
        count = expressions.instruction("count", f"trunc {few} to i32", _INT32, 1, few)
        spread = expressions.spread(count, lanes)
        ramp = "<" + ", ".join(f"i32 {i}" for i in range(lanes)) + ">"
        mask = expressions.instruction("mask", f"icmp slt <{lanes} x i32> {ramp}, {spread.text}", BOOL, lanes, spread)
        return mask, None if self.emitter.target.masked_memory else full

    # -- loops ------------------------------------------------------------------------------------------------

    def _masked(self, extent: Value) -> dict[str, Value]:
        """One copy of the body, every group masked."""
        return self._loop(extent, lambda base: self._mask(base, extent))

    def _whole_and_rest(self, extent: Value) -> dict[str, Value]:
        """Whole groups in a loop, then the rest, if there is any, in a masked copy."""
        expressions, writer = self.expressions, self.writer
        whole = expressions.instruction("whole", f"and {extent}, {-self.lanes}", INDEX, 1, extent)
        if not extent.text.startswith("%"):
            size = max(0, int(extent.text))
            whole = expressions.constant(size - size % self.lanes, INDEX)
            if size % self.lanes == 0:
                return self._loop(whole, lambda base: (None, None))
        before = self._loop(whole, lambda base: (None, None))
        rest, done = writer.label("rest"), writer.label("done")
        some = expressions.compare("gt", extent, whole)
        guard = expressions.enter(writer.placeholder(), branch=True)
        origin = writer.block
        writer.branch(some.text, rest, done)
        writer.start(rest)
        mask, _ = self._mask(whole, extent)
        self._group(whole, mask, None, before)
        after, end = self._now(), writer.block
        writer.jump(done)
        expressions.leave(guard)
        writer.start(done)
        return self._joined(before, origin, after, end)

    def _loop(self, extent: Value, masks: Callable[[Value], tuple[Value | None, Value | None]]) -> dict[str, Value]:
        """Groups while their first index is below `extent`; the state after it."""
        expressions, writer = self.expressions, self.writer
        ahead, head, done = writer.label("ahead"), writer.label(self.stmt.index), writer.label("done")
        some = expressions.compare("gt", extent, expressions.constant(0, INDEX))
        guard = expressions.enter(writer.placeholder(), branch=True)
        origin = writer.block
        writer.branch(some.text, ahead, done)
        writer.start(ahead)
        token = expressions.enter(writer.placeholder(), branch=False)
        writer.jump(head)
        writer.start(head)
        place = writer.placeholder()
        base = Value(writer.fresh(self.stmt.index), INDEX, 1, writer.level)
        state = {n: Value(writer.fresh(n), v.dtype, v.lanes, writer.level) for n, v in self.initial.items()}
        mask, full = masks(base)
        self._group(base, mask, full, state)
        following = expressions.instruction("next", f"add {base}, {self.lanes}", INDEX, 1, base)
        again = expressions.compare("lt", following, extent)
        latch, last = writer.block, self._now()
        writer.branch(again.text, head, done)
        place.append(f"  {base.text} = phi i64 [ 0, %{ahead} ], [ {following.text}, %{latch} ]")
        for name, phi in state.items():
            edges = f"[ {self.initial[name].text}, %{ahead} ], [ {last[name].text}, %{latch} ]"
            place.append(f"  {phi.text} = phi {phi.type} {edges}")
        expressions.leave(token)
        expressions.leave(guard)
        writer.start(done)
        return self._joined(self.initial, origin, last, latch)

    def _joined(
        self, first: Mapping[str, Value], origin: str, second: Mapping[str, Value], end: str
    ) -> dict[str, Value]:
        found = {}
        for name, value in first.items():
            joined = Value(self.writer.fresh(f"{name}.lanes"), value.dtype, value.lanes, self.writer.level)
            edges = f"[ {value.text}, %{origin} ], [ {second[name].text}, %{end} ]"
            self.writer.write(f"{joined.text} = phi {joined.type} {edges}")
            found[name] = joined
        return found

    # -- the end ----------------------------------------------------------------------------------------------

    def _combine(self, last: Mapping[str, Value]) -> None:
        expressions = self.expressions
        for name in self.initial:
            self.names.pop(name, None)
        for name, op in self.accumulators.items():
            outer, seen = self.outer[name], last.get(spoiled(name))
            total = self._across(op, last[name], quiet=seen is not None)
            if seen is not None:
                nan = expressions.constant(float("nan"), total.dtype)
                some = anything_seen(self.emitter, seen)
                text = f"select {some}, {nan}, {total}"
                total = expressions.instruction(name, text, total.dtype, 1, some, total)
            neutral = expressions.constant(identity(op, outer.dtype), outer.dtype)
            self.names[name] = total if outer.text == neutral.text else expressions.binary(op, outer, total)

    def _across(self, op: str, total: Value, *, quiet: bool) -> Value:
        """Combine the lanes: halves with halves, a fixed order for every size. With `quiet` none of them is NaN."""
        expressions, lanes = self.expressions, total.lanes
        while lanes > 1:
            lanes //= 2
            low, high = (expressions.part(total, first, lanes) for first in (0, lanes))
            total = expressions.extreme_of_numbers(op, low, high) if quiet else expressions.binary(op, low, high)
        return total


def _is_direct(stmt: For, name: str) -> bool:
    """Is `name` reduced by statements of the body itself only, not inside structures in it?"""

    def reduces(body: tuple[Stmt, ...]) -> bool:
        return any((isinstance(s, Reduce) and s.name == name) or any(reduces(b.body) for b in blocks(s)) for s in body)

    return not any(reduces(inner.body) for s in stmt.body.body for inner in blocks(s))


# -- NaNs seen ---------------------------------------------------------------------------------------------------------


def nothing_seen(emitter: Emitter, dtype: DType, lanes: int) -> Value:
    """The start of what notes NaNs: bits where there are mask registers, else whole integers."""
    kept = min(lanes, max(1, emitter.target.vector_bytes // dtype.itemsize))
    kind = BOOL if emitter.target.masked_memory else as_dtype(f"int{8 * dtype.itemsize}")
    return emitter.expressions.constant(False if kind is BOOL else 0, kind, kept)


def note(emitter: Emitter, seen: Value, value: Value) -> Value:
    """`seen` and whether `value` has a NaN: two vectors are looked at by one comparison."""
    expressions, lanes = emitter.expressions, value.lanes
    if lanes > seen.lanes:
        lanes //= 2
        low, high = (expressions.part(value, first, lanes) for first in (0, lanes))
        found = expressions.instruction("nan", f"fcmp uno {low}, {high.text}", BOOL, lanes, low, high)
    else:
        found = expressions.unary("isnan", value)
    while lanes > seen.lanes:
        lanes //= 2
        low, high = (expressions.part(found, first, lanes) for first in (0, lanes))
        found = expressions.instruction("nan", f"or {low}, {high.text}", BOOL, lanes, low, high)
    if seen.dtype is not BOOL:
        found = expressions.instruction("nan", f"sext {found} to {seen.type}", seen.dtype, lanes, found)
    return expressions.instruction("nan", f"or {seen}, {found.text}", seen.dtype, lanes, seen, found)


def anything_seen(emitter: Emitter, seen: Value) -> Value:
    """Whether a NaN was noted."""
    expressions, lanes = emitter.expressions, seen.lanes
    if seen.dtype is not BOOL:
        zero = expressions.constant(0, seen.dtype, lanes)
        seen = expressions.instruction("nan", f"icmp ne {seen}, {zero.text}", BOOL, lanes, seen)
    if lanes == 1:
        return seen
    kind = Value("", _INT32, 1)  # only its place matters: the text below names the type
    bits = expressions.instruction("nan.bits", f"bitcast {seen} to i{lanes}", kind.dtype, 1, seen)
    return expressions.instruction("nan.some", f"icmp ne i{lanes} {bits.text}, 0", BOOL, 1, bits)
