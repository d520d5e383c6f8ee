"""The loop form to LLVM IR text: statements, loops, lanes.

In: a checked `loops.form.Function` and a `Target`. Out: the text of a module that defines `i64 NAME(ptr frame)` (see
`codegen.abi` for the frame) and `i64 NAME.arena(ptr frame)`, ready for code generation without any mid-level pass.

Invariants: the text is in SSA form (mutable locals become phi nodes at loops and branches, no stack slots); a vector
axis has one copy of its body, the last, partial group of lanes is masked; code defined by outer values only is written
outside.
"""

from __future__ import annotations

from collections.abc import Iterable

from tiercel.codegen.abi import ARENA, frame_words
from tiercel.codegen.cpu.expressions import Environment, Expressions, VectorAxis, index_add, index_mul
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.text import REGISTER_TYPE, Value, Writer, flatten, memory_type
from tiercel.dtypes import DType, as_dtype
from tiercel.loops.form import (
    BOOL,
    INDEX,
    Allocate,
    Assign,
    Binary,
    Block,
    Buffer,
    Const,
    Exit,
    Expr,
    For,
    Function,
    If,
    IllFormed,
    Let,
    Local,
    Output,
    Reduce,
    Stmt,
    Store,
    While,
    blocks,
)

ALIGNMENT = 64  # bytes; of every arena buffer

IDENTITY: dict[str, float] = {"add": 0, "mul": 1, "and": True, "or": False}


def written_buffers(block: Block) -> frozenset[str]:
    """The buffers (by root) that a block stores to."""
    found: set[str] = set()
    for stmt in block.body:
        if isinstance(stmt, Store):
            found.add(stmt.buffer.root or stmt.buffer.name)
        for inner in blocks(stmt):
            found |= written_buffers(inner)
    return frozenset(found)


def assigned_names(stmts: Iterable[Stmt]) -> dict[str, str]:
    """Names given a new value in `stmts` that are not declared there: name -> reduction operation, or "assign"."""
    found: dict[str, str] = {}
    declared: set[str] = set()
    for stmt in stmts:
        if isinstance(stmt, Local):
            declared.add(stmt.name)
        elif isinstance(stmt, (Assign, Reduce)):
            found.setdefault(stmt.name, stmt.op if isinstance(stmt, Reduce) else "assign")
        for inner in blocks(stmt):
            for name, operation in assigned_names(inner.body).items():
                found.setdefault(name, operation)
    return {name: operation for name, operation in found.items() if name not in declared}


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
    return IDENTITY[op]


class Module:
    """Function bodies and the external declarations they share."""

    def __init__(self) -> None:
        self.declarations: dict[str, None] = {}
        self.functions: list[str] = []

    def declare(self, text: str) -> None:
        """Note an external declaration."""
        self.declarations[text] = None

    def text(self) -> str:
        """The module."""
        return "\n".join([*self.declarations, "", *self.functions]) + "\n"


class Emitter:
    """Emits the statements of one function."""

    def __init__(self, module: Module, function: Function, target: Target) -> None:
        self.module = module
        self.function = function
        self.target = target
        self.writer = Writer()
        self.environment = Environment()
        self.expressions = Expressions(self.writer, self.environment, written_buffers(function.body), module.declare)
        self.arena: Expr = Const(0, INDEX)
        self.words = frame_words(function)

    # -- functions --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Emit the function and its arena size."""
        function = self.function
        self._bind_frame()
        self.block(function.body)
        self.writer.write("ret i64 0")
        body = "\n".join(flatten(self.writer.lines))
        self.module.functions.append(f"define i64 @{function.name}(ptr noalias %frame) {{\nentry:\n{body}\n}}\n")
        self._emit_arena_size()

    def _word(self, index: int, type_: str, hint: str, align: int) -> str:
        at = self.writer.fresh(f"{hint}.word")
        self.writer.write(f"{at} = getelementptr i64, ptr %frame, i64 {index}")
        name = self.writer.fresh(hint)
        self.writer.write(f"{name} = load {type_}, ptr {at}, align {align}")
        return name

    def _bind_frame(self) -> None:
        function, names = self.function, self.environment.names
        for size in function.sizes:
            names[size.name] = Value(self._word(self.words[size.name], "i64", size.name, 8), INDEX)
        for scalar in function.scalars:
            raw = as_dtype("uint8") if scalar.dtype is BOOL else scalar.dtype
            text = self._word(self.words[scalar.name], REGISTER_TYPE[raw.name], scalar.name, raw.itemsize)
            value = Value(text, raw)
            if scalar.dtype is BOOL:
                value = self.expressions.compare("ne", value, self.expressions.constant(0, raw))
            names[scalar.name] = value
        for buffer in function.buffers:
            if buffer.root is None:
                text = self._word(self.words[buffer.name], "ptr", buffer.name, 8)
                self.environment.pointers[buffer.name] = Value(text, INDEX)
        self.environment.pointers["."] = Value(self._word(ARENA, "ptr", "arena", 8), INDEX)

    def _emit_arena_size(self) -> None:
        """`NAME.arena`: bytes needed, from the sizes alone."""
        sizing = Emitter(Module(), self.function, self.target)
        sizing._bind_frame()
        total = sizing.expressions.emit(self.arena)
        sizing.writer.write(f"ret {total}")
        body = "\n".join(flatten(sizing.writer.lines))
        self.module.functions.append(
            f"define i64 @{self.function.name}.arena(ptr noalias %frame) {{\nentry:\n{body}\n}}\n"
        )

    # -- statements -------------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        """Emit a block; what it binds is forgotten at its end, new values of outer locals stay."""
        names = self.environment.names
        before, pointers = set(names), set(self.environment.pointers)
        for stmt in block.body:
            self.statement(stmt)
        for name in set(names) - before:
            del names[name]
        for name in set(self.environment.pointers) - pointers:
            del self.environment.pointers[name]

    def statement(self, stmt: Stmt) -> None:
        """Emit one statement."""
        names, expressions = self.environment.names, self.expressions
        match stmt:
            case Block():
                self.block(stmt)
            case Let() | Local():
                names[stmt.name] = expressions.emit(stmt.value)
            case Assign():
                names[stmt.name] = self._kept(stmt.name, expressions.emit(stmt.value))
            case Reduce():
                self._reduce(stmt)
            case Store():
                self._store(stmt)
            case For():
                self._for(stmt)
            case While():
                self._while(stmt)
            case If():
                self._if(stmt)
            case Allocate():
                self._allocate(stmt.buffer)
            case Output():
                self._output(stmt)
            case Exit():
                self.writer.write(f"ret i64 {stmt.site}")
                self.writer.start(self.writer.label("unreachable"))
            case _:
                raise IllFormed(f"no code for {type(stmt).__name__}")

    def _kept(self, name: str, value: Value) -> Value:
        """The new value of a mutable local; in lanes that a branch has switched off the old one."""
        old = self.environment.names[name]
        condition, axis = self._lane_condition, self.environment.axis
        if axis is None or condition is None:
            return value
        lanes = axis.lanes
        old, value = self.expressions.spread(old, lanes), self.expressions.spread(value, lanes)
        text = f"select {condition}, {value}, {old}"
        return self.expressions.instruction(name, text, value.dtype, lanes, condition, value, old)

    _lane_condition: Value | None = None  # inside a branch that lanes take differently: who takes it

    def _reduce(self, stmt: Reduce) -> None:
        names, expressions, axis = self.environment.names, self.expressions, self.environment.axis
        value, old = expressions.emit(stmt.value), names[stmt.name]
        if axis is not None and old.lanes > 1:
            value = expressions.spread(value, old.lanes)
            if stmt.name in self._lane_accumulators:
                # lanes beyond the end, or switched off, contribute nothing
                mask = axis.mask
                neutral = expressions.constant(identity(stmt.op, value.dtype), value.dtype, old.lanes)
                text = f"select {mask}, {value}, {neutral}"
                value = expressions.instruction("kept", text, value.dtype, old.lanes, mask, value)
                names[stmt.name] = self._combine(stmt.op, old, value)
                return
        old, value = expressions.align(old, value)
        names[stmt.name] = self._kept(stmt.name, self._combine(stmt.op, old, value))

    _lane_accumulators: frozenset[str] = frozenset()

    def _combine(self, op: str, a: Value, b: Value) -> Value:
        return self.expressions.binary(op, a, b)

    def _store(self, stmt: Store) -> None:
        expressions, axis, writer = self.expressions, self.environment.axis, self.writer
        buffer = stmt.buffer
        element, size = memory_type(buffer.dtype), buffer.dtype.itemsize
        value = expressions.to_memory(expressions.emit(stmt.value))
        pointer, stride, flat = expressions.address(buffer, stmt.index)
        if axis is None:
            writer.write(f"store {value}, ptr {pointer.text}, align {size}")
            return
        if isinstance(stride, Const) and stride.value == 0:
            raise IllFormed(f"store to {buffer.name}: all lanes of {axis.index} would write one element")
        value = expressions.spread(value, axis.lanes)
        mask = axis.mask
        suffix = f"v{axis.lanes}{_SUFFIX[element]}"
        if isinstance(stride, Const) and stride.value == 1:
            text = f"getelementptr {element}, ptr {pointer.text}, {axis.base}"
            at = expressions.instruction(f"{buffer.name}.at", text, INDEX, 1, pointer, axis.base)
            name = f"llvm.masked.store.{suffix}.p0"
            self.module.declare(f"declare void @{name}({value.type}, ptr, i32, <{axis.lanes} x i1>)")
            masked = f"call void @{name}({value}, ptr {at.text}, i32 {size}, {mask})"
            if axis.full is None:
                writer.write(masked)
                return
            inside, tail, after = writer.label("whole"), writer.label("tail"), writer.label("stored")
            writer.branch(axis.full.text, inside, tail)
            writer.start(inside)
            writer.write(f"store {value}, ptr {at.text}, align {size}")
            writer.jump(after)
            writer.start(tail)
            writer.write(masked)
            writer.jump(after)
            writer.start(after)
            return
        pointers = expressions.vector_pointers(buffer, pointer, stride, flat)
        name = f"llvm.masked.scatter.{suffix}.v{axis.lanes}p0"
        self.module.declare(f"declare void @{name}({value.type}, <{axis.lanes} x ptr>, i32, <{axis.lanes} x i1>)")
        writer.write(f"call void @{name}({value}, <{axis.lanes} x ptr> {pointers.text}, i32 {size}, {mask})")

    def _allocate(self, buffer: Buffer) -> None:
        if buffer.root is not None:
            return
        expressions = self.expressions
        offset = expressions.emit(self.arena)
        base = self.environment.pointers["."]
        text = f"getelementptr i8, ptr {base.text}, {offset}"
        self.environment.pointers[buffer.name] = expressions.instruction(buffer.name, text, INDEX, 1, base, offset)
        size: Expr = Const(buffer.dtype.itemsize, INDEX)
        for extent in buffer.shape:
            size = index_mul(extent, size)
        rounded = Binary("and", index_add(size, Const(ALIGNMENT - 1, INDEX)), Const(-ALIGNMENT, INDEX))
        self.arena = index_add(self.arena, rounded)

    def _output(self, stmt: Output) -> None:
        value = self.expressions.to_memory(self.expressions.emit(stmt.value))
        at = self.writer.fresh(f"{stmt.name}.word")
        self.writer.write(f"{at} = getelementptr i64, ptr %frame, i64 {self.words[stmt.name]}")
        self.writer.write(f"store {value}, ptr {at}, align {value.dtype.itemsize}")

    # -- structure --------------------------------------------------------------------------------------------

    def _for(self, stmt: For) -> None:
        if stmt.axis == "vector" and self.environment.axis is None:
            self._vector_for(stmt)
            return
        self._loop(stmt)

    def _loop(self, stmt: For) -> None:
        writer, expressions, names = self.writer, self.expressions, self.environment.names
        extent = expressions.emit(stmt.extent)
        carried = [n for n in assigned_names(stmt.body.body) if n in names]
        initial = {n: names[n] for n in carried}
        widths = self._carried_lanes(carried)
        for name in carried:
            initial[name] = expressions.spread(initial[name], widths[name])
        ahead, head, done = writer.label("ahead"), writer.label(stmt.index), writer.label("done")
        some = expressions.compare("gt", extent, expressions.constant(0, INDEX))
        guard = expressions.enter(writer.placeholder(), branch=True)
        origin = writer.block
        writer.branch(some.text, ahead, done)
        writer.start(ahead)
        token = expressions.enter(writer.placeholder(), branch=False)
        writer.jump(head)
        writer.start(head)
        place = writer.placeholder()
        index = Value(writer.fresh(stmt.index), INDEX, 1, writer.level)
        phis = {n: Value(writer.fresh(n), v.dtype, v.lanes, writer.level) for n, v in initial.items()}
        names.update(phis)
        names[stmt.index] = index
        self.block(stmt.body)
        following = expressions.instruction("next", f"add {index}, 1", INDEX, 1, index)
        again = expressions.compare("lt", following, extent)
        last = {n: expressions.spread(names[n], widths[n]) for n in carried}
        latch = writer.block
        writer.branch(again.text, head, done)
        place.append(f"  {index.text} = phi i64 [ 0, %{ahead} ], [ {following.text}, %{latch} ]")
        for name, phi in phis.items():
            place.append(
                f"  {phi.text} = phi {phi.type} [ {initial[name].text}, %{ahead} ], [ {last[name].text}, %{latch} ]"
            )
        del names[stmt.index]
        expressions.leave(token)
        expressions.leave(guard)
        writer.start(done)
        for name in carried:
            value = Value(writer.fresh(name), initial[name].dtype, widths[name], writer.level)
            writer.write(
                f"{value.text} = phi {value.type} [ {initial[name].text}, %{origin} ], [ {last[name].text}, %{latch} ]"
            )
            names[name] = value

    def _carried_lanes(self, carried: list[str]) -> dict[str, int]:
        """Lanes of locals that a loop or branch changes: all of them in a vector axis, since any lane may differ."""
        axis = self.environment.axis
        return dict.fromkeys(carried, 1 if axis is None else axis.lanes)

    def _vector_for(self, stmt: For) -> None:
        writer, expressions, names = self.writer, self.expressions, self.environment.names
        lanes = self.target.lanes_for(stmt.body)
        extent = expressions.emit(stmt.extent)
        accumulators = {n: op for n, op in assigned_names(stmt.body.body).items() if n in names}
        for name, op in accumulators.items():
            if op == "assign":
                raise IllFormed(f"{name} is assigned in the vector axis {stmt.index} and declared outside of it")
        initial = {n: expressions.constant(identity(op, names[n].dtype), names[n].dtype, lanes) for n, op in
                   accumulators.items()}  # fmt: skip
        outer = {n: names[n] for n in accumulators}
        ahead, head, done = writer.label("ahead"), writer.label(stmt.index), writer.label("done")
        some = expressions.compare("gt", extent, expressions.constant(0, INDEX))
        guard = expressions.enter(writer.placeholder(), branch=True)
        origin = writer.block
        writer.branch(some.text, ahead, done)
        writer.start(ahead)
        token = expressions.enter(writer.placeholder(), branch=False)
        writer.jump(head)
        writer.start(head)
        place = writer.placeholder()
        base = Value(writer.fresh(stmt.index), INDEX, 1, writer.level)
        phis = {n: Value(writer.fresh(n), v.dtype, lanes, writer.level) for n, v in initial.items()}
        mask, full = self._lane_mask(base, extent, lanes)
        names.update(phis)
        saved = self._lane_accumulators
        self._lane_accumulators = frozenset(accumulators)
        self.environment.axis = VectorAxis(stmt.index, lanes, base, mask, full)
        self.block(stmt.body)
        self.environment.axis = None
        self._lane_accumulators = saved
        following = expressions.instruction("next", f"add {base}, {lanes}", INDEX, 1, base)
        again = expressions.compare("lt", following, extent)
        latch = writer.block
        last = {n: names[n] for n in accumulators}
        writer.branch(again.text, head, done)
        place.append(f"  {base.text} = phi i64 [ 0, %{ahead} ], [ {following.text}, %{latch} ]")
        for name, phi in phis.items():
            place.append(
                f"  {phi.text} = phi {phi.type} [ {initial[name].text}, %{ahead} ], [ {last[name].text}, %{latch} ]"
            )
        expressions.leave(token)
        expressions.leave(guard)
        writer.start(done)
        for name, op in accumulators.items():
            total = Value(writer.fresh(f"{name}.lanes"), initial[name].dtype, lanes, writer.level)
            writer.write(
                f"{total.text} = phi {total.type} [ {initial[name].text}, %{origin} ], [ {last[name].text}, %{latch} ]"
            )
            names[name] = self._combine(op, outer[name], self._across(op, total))

    def _lane_mask(self, base: Value, extent: Value, lanes: int) -> tuple[Value, Value | None]:
        expressions = self.expressions
        left = expressions.instruction("left", f"sub {extent}, {base.text}", INDEX, 1, extent, base)
        full = expressions.compare("ge", left, expressions.constant(lanes, INDEX))
        few = expressions.instruction("few", f"select {full}, i64 {lanes}, {left}", INDEX, 1, full, left)
        int32 = as_dtype("int32")
        count = expressions.instruction("count", f"trunc {few} to i32", int32, 1, few)
        spread = expressions.spread(count, lanes)
        ramp = "<" + ", ".join(f"i32 {i}" for i in range(lanes)) + ">"
        mask = expressions.instruction("mask", f"icmp slt <{lanes} x i32> {ramp}, {spread.text}", BOOL, lanes, spread)
        return mask, None if self.target.masked_memory else full

    def _across(self, op: str, total: Value) -> Value:
        """Combine the lanes: halves added to halves, a fixed order for every size."""
        expressions, lanes = self.expressions, total.lanes
        while lanes > 1:
            half = lanes // 2
            low = ", ".join(f"i32 {i}" for i in range(half))
            high = ", ".join(f"i32 {i}" for i in range(half, lanes))
            parts = []
            for text in (low, high):
                shuffle = f"shufflevector {total}, {total.type} poison, <{half} x i32> <{text}>"
                if half == 1:
                    shuffle = f"extractelement {total}, {text}"
                parts.append(expressions.instruction("half", shuffle, total.dtype, half, total))
            total = self._combine(op, parts[0], parts[1])
            lanes = half
        return total

    def _while(self, stmt: While) -> None:
        writer, expressions, names = self.writer, self.expressions, self.environment.names
        if self.environment.axis is not None:
            raise IllFormed("while inside a vector axis")
        carried = [n for n in assigned_names((*stmt.header.body, *stmt.body.body)) if n in names]
        initial = {n: names[n] for n in carried}
        head, body, done = writer.label("while"), writer.label("body"), writer.label("done")
        token = expressions.enter(writer.placeholder(), branch=False)
        origin = writer.block
        writer.jump(head)
        writer.start(head)
        place = writer.placeholder()
        phis = {n: Value(writer.fresh(n), v.dtype, v.lanes, writer.level) for n, v in initial.items()}
        names.update(phis)
        expressions.pinned = writer.level
        before = set(names)
        for inner in stmt.header.body:
            self.statement(inner)
        condition = expressions.emit(stmt.condition)
        leaving = {n: names[n] for n in carried}
        inner_token = expressions.enter(writer.placeholder(), branch=True)
        writer.branch(condition.text, body, done)
        writer.start(body)
        self.block(stmt.body)
        expressions.leave(inner_token)
        latch = writer.block
        writer.jump(head)
        for name, phi in phis.items():
            place.append(
                f"  {phi.text} = phi {phi.type} [ {initial[name].text}, %{origin} ], [ {names[name].text}, %{latch} ]"
            )
        for name in set(names) - before:
            del names[name]
        names.update(leaving)
        self._lift(leaving, token)
        writer.start(done)

    def _lift(self, values: dict[str, Value], token: int) -> None:
        """Leave a level whose last values stay visible: they count as defined outside from here on."""
        self.expressions.leave(token)
        level = self.writer.level
        for name, value in values.items():
            self.environment.names[name] = Value(value.text, value.dtype, value.lanes, min(value.level, level))

    def _if(self, stmt: If) -> None:
        expressions, names = self.expressions, self.environment.names
        condition = expressions.emit(stmt.condition)
        if condition.lanes > 1:
            self._masked_if(stmt, condition)
            return
        writer = self.writer
        assigned = [n for n in assigned_names((stmt.then, stmt.orelse)) if n in names]
        before = {n: names[n] for n in assigned}
        widths = self._carried_lanes(assigned)
        then, orelse, after = writer.label("then"), writer.label("else"), writer.label("endif")
        place = writer.placeholder()
        writer.branch(condition.text, then, orelse)
        ends: list[tuple[dict[str, Value], str]] = []
        for label, block in ((then, stmt.then), (orelse, stmt.orelse)):
            names.update(before)
            writer.start(label)
            token = expressions.enter(place, branch=True)
            self.block(block)
            ends.append(({n: expressions.spread(names[n], widths[n]) for n in assigned}, writer.block))
            expressions.leave(token)
            writer.jump(after)
        writer.start(after)
        for name in assigned:
            value = Value(writer.fresh(name), before[name].dtype, widths[name], writer.level)
            edges = ", ".join(f"[ {values[name].text}, %{block} ]" for values, block in ends)
            writer.write(f"{value.text} = phi {value.type} {edges}")
            names[name] = value

    def _masked_if(self, stmt: If, condition: Value) -> None:
        """A branch that lanes take differently: both arms run, each with the other's lanes switched off."""
        expressions, axis = self.expressions, self.environment.axis
        assert axis is not None
        outer = self._lane_condition
        for chosen, block in ((condition, stmt.then), (expressions.unary("not", condition), stmt.orelse)):
            if not block.body:
                continue
            text = f"and {axis.mask}, {chosen.text}"
            active = expressions.instruction("active", text, BOOL, axis.lanes, axis.mask, chosen)
            self._lane_condition = active
            self.environment.axis = VectorAxis(axis.index, axis.lanes, axis.base, active)
            self.block(block)
        self._lane_condition, self.environment.axis = outer, axis


_SUFFIX = {"i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "half": "f16", "float": "f32", "double": "f64"}


def emit(function: Function, target: Target) -> str:
    """The LLVM module of one function of the loop form.

    Raises:
        IllFormed: for a function the checker should have refused, or a node this target has no code for.
    """
    module = Module()
    Emitter(module, function, target).run()
    return module.text()
