"""The loop form to LLVM IR text: statements, loops, lanes.

In: a checked `loops.form.Function` and a `Target`. Out: the text of a module that defines `i64 NAME(ptr frame)` (see
`codegen.abi` for the frame) and `i64 NAME.arena(ptr frame)`, ready for code generation without any mid-level pass.

Invariants: the text is in SSA form (mutable locals become phi nodes at loops and branches, no stack slots); a vector
axis has one copy of its body, the last, partial group of lanes is masked; code defined by outer values only is written
outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tiercel.codegen.abi import ARENA, EXTRA_WORK, POOL, THREADS, frame_words
from tiercel.codegen.cpu.choice import Choice
from tiercel.codegen.cpu.contract import expand_contracts
from tiercel.codegen.cpu.dots import dots_name
from tiercel.codegen.cpu.estimate import PARALLEL_WORK, work_of
from tiercel.codegen.cpu.expressions import Environment, Expressions, VectorAxis
from tiercel.codegen.cpu.gemm import IN_PLACE, scratch_elements
from tiercel.codegen.cpu.lanes import identity, note, spoiled, vector_for
from tiercel.codegen.cpu.names import (
    GEMM_DTYPES,
    convolve_names,
    gemm_names,
    mixed_names,
    mixed_of,
    panel_names,
)
from tiercel.codegen.cpu.panels import lanes_of
from tiercel.codegen.cpu.slots import Slots, parallel_key, plan_slots
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.text import REGISTER_TYPE, Lines, Value, Writer, flatten, memory_type
from tiercel.codegen.cpu.tile import tile_shape
from tiercel.codegen.cpu.turn import turn_name
from tiercel.dtypes import DType, as_dtype
from tiercel.loops.form import (
    BOOL,
    INDEX,
    THREAD_COUNT,
    Allocate,
    Ask,
    Assign,
    Binary,
    Block,
    Buffer,
    Const,
    Convolve,
    Exit,
    Expr,
    For,
    Function,
    If,
    IllFormed,
    Let,
    Load,
    Local,
    Multiply,
    Output,
    Pack,
    Reduce,
    Stmt,
    Store,
    Turn,
    Unfold,
    Var,
    While,
    blocks,
    expressions,
    walk,
)
from tiercel.loops.index import index_add, index_mul, strides_of
from tiercel.loops.substitute import substitute_in

ALIGNMENT = 64  # bytes; of every arena buffer


def written_buffers(block: Block) -> frozenset[str]:
    """The buffers (by root) that a block stores to."""
    found: set[str] = set()
    for stmt in block.body:
        target = stmt.buffer if isinstance(stmt, Store) else stmt.c if isinstance(stmt, Multiply | Convolve) else None
        target = stmt.panels if isinstance(stmt, Pack) else stmt.target if isinstance(stmt, Turn | Unfold) else target
        if target is not None:
            found.add(target.root or target.name)
        for inner in blocks(stmt):
            found |= written_buffers(inner)
    return frozenset(found)


def used_names(stmts: Iterable[Stmt]) -> tuple[set[str], set[str]]:
    """(scalar names, buffer roots) that `stmts` mention, those they bind themselves included."""
    scalars: set[str] = set()
    roots: set[str] = set()

    def buffer(b: Buffer) -> None:
        roots.add(b.root or b.name)
        for part in (*b.shape, *(b.strides or ()), *(() if b.offset is None else (b.offset,))):
            expression(part)

    def expression(node: Expr) -> None:
        for part in walk(node):
            if isinstance(part, Var):
                scalars.add(part.name)
            elif isinstance(part, Load):
                buffer(part.buffer)

    for stmt in stmts:
        for node in expressions(stmt):
            expression(node)
        if isinstance(stmt, (Assign, Reduce)):
            scalars.add(stmt.name)
        for b in _buffers_of(stmt):
            buffer(b)
        for inner in blocks(stmt):
            more_scalars, more_roots = used_names(inner.body)
            scalars |= more_scalars
            roots |= more_roots
    return scalars, roots


def _buffers_of(stmt: Stmt) -> tuple[Buffer, ...]:
    match stmt:
        case Store() | Allocate() | Ask():
            return (stmt.buffer,)
        case Multiply():
            return (stmt.a, stmt.b, stmt.c)
        case Pack():
            return (stmt.b, stmt.panels)
        case Turn() | Unfold():
            return (stmt.source, stmt.target)
        case Convolve():
            found = (stmt.weights, stmt.image, stmt.offsets, stmt.c)
            return found if stmt.bias is None else (*found, stmt.bias)
    return ()


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


class Module:
    """Function bodies and the external declarations they share."""

    def __init__(self) -> None:
        self.declarations: dict[str, None] = {}
        self.functions: list[str] = []
        self._parts = 0
        self._written: dict[int, tuple[Block, frozenset[str]]] = {}

    def declare(self, text: str) -> None:
        """Note an external declaration."""
        self.declarations[text] = None

    def written(self, block: Block) -> frozenset[str]:
        """The buffers (by root) that a block stores to, found once: each part of a function asks."""
        found = self._written.get(id(block))
        if found is None:
            found = self._written[id(block)] = (block, written_buffers(block))
        return found[1]

    def fresh(self, hint: str) -> str:
        """A function name not used before."""
        self._parts += 1
        return f"{hint}{self._parts}"

    def define(self, header: str, writer: Writer) -> None:
        """Add a function."""
        body = "\n".join(flatten(writer.lines))
        self.functions.append(f"{header} {{\nentry:\n{body}\n}}\n")

    def text(self) -> str:
        """The module."""
        return "\n".join([*self.declarations, "", *self.functions]) + "\n"


class Emitter:
    """Emits the statements of one function."""

    def __init__(
        self, module: Module, function: Function, target: Target, *, chunk: bool = False, slots: Slots | None = None
    ) -> None:
        self.module = module
        self.function = function
        self.target = target
        self.chunk = chunk  # the body of a parallel axis: what is inside runs serially
        self.writer = Writer()
        self.environment = Environment()
        self.expressions = Expressions(
            self.writer, self.environment, module.written(function.body), module.declare, avx512=target.masked_memory
        )
        self.arena: Expr = Const(0, INDEX)  # bytes of what has no slot
        self.slots = slots or Slots()
        self.slot_sizes: list[Expr] = [Const(0, INDEX)] * self.slots.count
        self.bounds: dict[str, Expr] = {}  # sizes found out when running -> what they are at most
        self.words = frame_words(function)
        self.entry = self.writer.placeholder()
        self.expressions.entry = self.entry
        self._extra: Value | None = None
        self._scratches: dict[int, Expr] = {}  # width of panels -> where one of them may be packed

    # -- functions --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Emit the function and its arena size."""
        function = self.function
        self._bind_frame()
        known, place = dict(self.environment.names), self.writer.placeholder()
        self.block(function.body)
        self.writer.write("ret i64 0")
        total = self._place_slots(known, place)
        self.module.define(f"define i64 @{function.name}(ptr noalias %frame)", self.writer)
        sizing = Emitter(self.module, function, self.target)
        if not isinstance(total, Const):
            sizing._bind_frame()
        sizing.writer.write(f"ret {sizing.expressions.emit(total)}")
        self.module.define(f"define i64 @{function.name}.arena(ptr noalias %frame)", sizing.writer)

    def _place_slots(self, known: dict[str, Value], place: Lines) -> Expr:
        """Say at the beginning where slots are, when their sizes are known at last; returns the bytes of all."""
        offset: Expr = self.arena
        lines, self.writer.lines = self.writer.lines, place
        sizes = Expressions(self.writer, Environment(known), frozenset(), self.module.declare)
        for slot, size in enumerate(self.slot_sizes):
            if size != Const(0, INDEX):
                self.writer.write(f"{_slot_name(slot)} = add {sizes.emit(offset)}, 0")
                offset = index_add(offset, size)
        self.writer.lines = lines
        return offset

    def _in_slot(self, slot: int, size: Expr) -> Value:
        """The offset of a slot that has to hold so many bytes."""
        old = self.slot_sizes[slot]
        if size not in _terms(old):
            self.slot_sizes[slot] = size if old == Const(0, INDEX) else Binary("max", old, size)
        return Value(_slot_name(slot), INDEX)

    def _word(self, index: int, type_: str, hint: str, align: int, base: str = "%frame") -> str:
        at = self.writer.fresh(f"{hint}.word")
        self.writer.write(f"{at} = getelementptr i64, ptr {base}, i64 {index}")
        name = self.writer.fresh(hint)
        self.writer.write(f"{name} = load {type_}, ptr {at}, align {align}")
        return name

    def _scalar_word(self, index: int, name: str, dtype: DType, base: str = "%frame") -> Value:
        raw = as_dtype("uint8") if dtype is BOOL else dtype
        value = Value(self._word(index, REGISTER_TYPE[raw.name], name, raw.itemsize, base), raw)
        if dtype is BOOL:
            value = self.expressions.compare("ne", value, self.expressions.constant(0, raw))
        return value

    def _bind_frame(self) -> None:
        function, names, pointers = self.function, self.environment.names, self.environment.pointers
        for var in (*function.sizes, *function.scalars):
            names[var.name] = self._scalar_word(self.words[var.name], var.name, var.dtype)
        for buffer in function.buffers:
            if buffer.root is None:
                pointers[buffer.name] = Value(self._word(self.words[buffer.name], "ptr", buffer.name, 8), INDEX)
        pointers["."] = Value(self._word(ARENA, "ptr", "arena", 8), INDEX)
        pointers[".pool"] = Value(self._word(POOL, "ptr", "pool", 8), INDEX)
        names[THREAD_COUNT.name] = Value(self._word(THREADS, "i64", "threads", 8), INDEX)

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
                if isinstance(stmt, Let) and stmt.most is not None:
                    self.bounds[stmt.name] = stmt.most
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
            case Multiply():
                self._multiply(stmt)
            case Pack():
                self._pack(stmt)
            case Ask():
                self._ask(stmt)
            case Turn():
                self._turn(stmt)
            case Unfold():
                self._unfold(stmt)
            case Convolve():
                self._convolve(stmt)
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
            if stmt.name in self.lane_accumulators:
                if axis.mask is not None:  # lanes beyond the end, or switched off, contribute nothing
                    neutral = expressions.constant(identity(stmt.op, value.dtype), value.dtype, old.lanes)
                    text = f"select {axis.mask}, {value}, {neutral}"
                    value = expressions.instruction("kept", text, value.dtype, old.lanes, axis.mask, value)
                seen = names.get(spoiled(stmt.name))
                if seen is None:
                    names[stmt.name] = expressions.binary(stmt.op, old, value)
                else:
                    names[stmt.name] = expressions.extreme_of_numbers(stmt.op, value, old)
                    names[spoiled(stmt.name)] = note(self, seen, value)
                return
        old, value = expressions.align(old, value)
        names[stmt.name] = self._kept(stmt.name, expressions.binary(stmt.op, old, value))

    lane_accumulators: frozenset[str] = frozenset()  # what the vector axis at hand keeps one partial result a lane of

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
        mask = axis.mask or expressions.constant(True, BOOL, axis.lanes)
        suffix = f"v{axis.lanes}{_SUFFIX[element]}"
        if isinstance(stride, Const) and stride.value == 1:
            text = f"getelementptr {element}, ptr {pointer.text}, {axis.base}"
            at = expressions.instruction(f"{buffer.name}.at", text, INDEX, 1, pointer, axis.base)
            name = f"llvm.masked.store.{suffix}.p0"
            self.module.declare(f"declare void @{name}({value.type}, ptr, i32, <{axis.lanes} x i1>)")
            plain = f"store {value}, ptr {at.text}, align {size}"
            masked = f"call void @{name}({value}, ptr {at.text}, i32 {size}, {mask})"
            if axis.mask is None or axis.full is None:
                writer.write(plain if axis.mask is None else masked)
                return
            inside, tail, after = writer.label("whole"), writer.label("tail"), writer.label("stored")
            writer.branch(axis.full.text, inside, tail)
            writer.start(inside)
            writer.write(plain)
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
        size: Expr = Const(buffer.dtype.itemsize, INDEX)
        for extent in buffer.shape:
            size = index_mul(substitute_in(extent, self.bounds) if self.bounds else extent, size)
        rounded = Binary("and", index_add(size, Const(ALIGNMENT - 1, INDEX)), Const(-ALIGNMENT, INDEX))
        slot = self.slots.of.get(buffer.name)
        if slot is None:
            offset = expressions.emit(self.arena)
            self.arena = index_add(self.arena, rounded)
        else:
            offset = self._in_slot(slot, rounded)
        base = self.environment.pointers["."]
        text = f"getelementptr i8, ptr {base.text}, {offset}"
        self.environment.pointers[buffer.name] = expressions.instruction(buffer.name, text, INDEX, 1, base, offset)

    def _output(self, stmt: Output) -> None:
        value = self.expressions.to_memory(self.expressions.emit(stmt.value))
        at = self.writer.fresh(f"{stmt.name}.word")
        self.writer.write(f"{at} = getelementptr i64, ptr %frame, i64 {self.words[stmt.name]}")
        self.writer.write(f"store {value}, ptr {at}, align {value.dtype.itemsize}")

    def _call(self, name: str, parameters: str, arguments: str) -> None:
        self.module.declare(f"declare void @{name}({parameters})")
        self.writer.write(f"call void @{name}({arguments})")

    def _multiply(self, stmt: Multiply) -> None:
        expressions, zero, one = self.expressions, Const(0, INDEX), Const(1, INDEX)
        at = {x.name: expressions.address(x, (zero, zero))[0].text for x in (stmt.a, stmt.b, stmt.c)}
        (a_row, a_column), (b_row, b_column) = strides_of(stmt.a), strides_of(stmt.b)
        c_row = strides_of(stmt.c)[0]

        def words(*nodes: Expr) -> str:
            return ", ".join(str(expressions.emit(node)) for node in nodes)

        a, b, c = (f"ptr {at[x.name]}" for x in (stmt.a, stmt.b, stmt.c))
        adding = f"i1 {str(stmt.accumulate).lower()}"
        if mixed_of(stmt.b.dtype) is not None:
            plain, packed, _ = mixed_names(stmt.b.dtype)
            left, sizes = f"{a}, {words(a_row, a_column)}", f"{c}, {words(c_row, stmt.m, stmt.n, stmt.k)}, {adding}"
            if stmt.packed:
                self._call(packed, "ptr, i64, i64, ptr, ptr, i64, i64, i64, i64, i1", f"{left}, {b}, {sizes}")
            else:
                parameters = "ptr, i64, i64, ptr, i64, i64, ptr, i64, i64, i64, i64, i1, ptr"
                scratch = f"ptr {self._scratch(0)}"
                self._call(plain, parameters, f"{left}, {b}, {words(b_row, b_column)}, {sizes}, {scratch}")
            return
        plain, packed, *_ = gemm_names(stmt.a.dtype, stmt.vectors)
        vector = gemm_names(stmt.a.dtype)[3]
        if stmt.n == a_column == b_row == c_row == one and not stmt.packed and not stmt.accumulate:
            self._call(
                dots_name(stmt.a.dtype), "ptr, i64, ptr, ptr, i64, i64", f"{a}, {words(a_row)}, {b}, {c}, "
                f"{words(stmt.m, stmt.k)}",
            )  # fmt: skip
            return
        if stmt.n == one and a_column == one and not stmt.packed:
            given = f"{a}, {words(a_row)}, {b}, {words(b_row)}, {c}, {words(c_row, stmt.m, stmt.k)}, {adding}"
            self._call(vector, "ptr, i64, ptr, i64, ptr, i64, i64, i64, i1", given)
            return
        rows = stmt.rows or Const(tile_shape(self.target, stmt.vectors)[0], INDEX)
        sizes = f"{c}, {words(c_row, stmt.m, stmt.n, stmt.k)}, {adding}, {words(rows)}"
        left = f"{a}, {words(a_row, a_column)}"
        if stmt.firsts:
            count = len(stmt.firsts)
            step = Binary("floordiv", stmt.c.shape[1], Const(count, INDEX))
            lanes = lanes_of(stmt.a.dtype, self.target)
            groups = Binary("floordiv", index_add(stmt.n, Const(lanes - 1, INDEX)), Const(lanes, INDEX))
            self._call(
                panel_names(stmt.a.dtype)[count - 1], "ptr, i64, i64, ptr, ptr, i64, i64, i64, i64, i64",
                f"{left}, {b}, {c}, {words(c_row, step, stmt.m, groups, stmt.k)}",
            )  # fmt: skip
            return
        if stmt.packed:
            self._call(packed, "ptr, i64, i64, ptr, ptr, i64, i64, i64, i64, i1, i64", f"{left}, {b}, {sizes}")
            return
        right = f"{b}, {words(b_row, b_column)}"
        parameters = "ptr, i64, i64, ptr, i64, i64, ptr, i64, i64, i64, i64, i1, i64, ptr, i64, i64"
        scratch = f"ptr {self._scratch(stmt.vectors)}, {words(stmt.before or zero, stmt.how or Const(IN_PLACE, INDEX))}"
        self._call(plain, parameters, f"{left}, {right}, {sizes}, {scratch}")

    def _scratch(self, vectors: int) -> str:
        """A place in the arena where products pack a panel of their right operand; one a width for all of this
        function.
        """
        expressions = self.expressions
        if vectors not in self._scratches:
            self._scratches[vectors] = self.arena
            sizes = (scratch_elements(d, self.target, vectors) * d.itemsize for d in map(as_dtype, GEMM_DTYPES))
            self.arena = index_add(self.arena, Const(-(-max(sizes) // ALIGNMENT) * ALIGNMENT, INDEX))
        base, offset = self.environment.pointers["."], expressions.emit(self._scratches[vectors])
        text = f"getelementptr i8, ptr {base.text}, {offset}"
        return expressions.instruction("scratch", text, INDEX, 1, base, offset).text

    def _pack(self, stmt: Pack) -> None:
        expressions, zero = self.expressions, Const(0, INDEX)
        source = expressions.address(stmt.b, (zero, zero))[0]
        target = expressions.address(stmt.panels, (zero,))[0]
        row, column = (expressions.emit(s) for s in strides_of(stmt.b))
        n, k = expressions.emit(stmt.n), expressions.emit(stmt.k)
        arguments = f"ptr {source.text}, {row}, {column}, ptr {target.text}, {n}, {k}"
        mixed = mixed_of(stmt.b.dtype) is not None
        name = mixed_names(stmt.b.dtype)[2] if mixed else gemm_names(stmt.b.dtype, stmt.vectors)[2]
        self._call(name, "ptr, i64, i64, ptr, i64, i64", arguments)

    def _ask(self, stmt: Ask) -> None:
        """Into the second-level cache: what is computed before it is read would push it out of the first."""
        pointer = self.expressions.address(stmt.buffer, stmt.index)[0]
        self.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.writer.write(f"call void @llvm.prefetch.p0(ptr {pointer.text}, i32 0, i32 2, i32 1)")

    def _turn(self, stmt: Turn) -> None:
        expressions, zero = self.expressions, Const(0, INDEX)
        source, target = (expressions.address(x, (zero, zero))[0] for x in (stmt.source, stmt.target))
        rows = [expressions.emit(strides_of(x)[0]) for x in (stmt.source, stmt.target)]
        m, n = expressions.emit(stmt.m), expressions.emit(stmt.n)
        arguments = f"ptr {source.text}, {rows[0]}, ptr {target.text}, {rows[1]}, {m}, {n}"
        self._call(turn_name(stmt.source.dtype), "ptr, i64, ptr, i64, i64, i64", arguments)

    def _unfold(self, stmt: Unfold) -> None:
        expressions, zero = self.expressions, Const(0, INDEX)
        source = expressions.address(stmt.source, (zero, zero, zero))[0]
        target = expressions.address(stmt.target, (zero,))[0]

        def words(*nodes: Expr) -> str:
            return ", ".join(str(expressions.emit(node)) for node in nodes)

        given = words(*strides_of(stmt.source), *stmt.source.shape)
        part = words(stmt.top, stmt.left, stmt.rows, stmt.pitch)
        self._call(
            convolve_names(stmt.source.dtype)[1],
            "ptr, i64, i64, i64, i64, i64, i64, ptr, i64, i64, i64, i64, i64, i64",
            f"ptr {source.text}, {given}, ptr {target.text}, {part}, i64 {stmt.down}, i64 {stmt.across}",
        )

    def _convolve(self, stmt: Convolve) -> None:
        expressions, zero = self.expressions, Const(0, INDEX)

        def at(buffer: Buffer) -> str:
            return f"ptr {expressions.address(buffer, (zero,) * buffer.rank)[0].text}"

        def words(*nodes: Expr) -> str:
            return ", ".join(str(expressions.emit(node)) for node in nodes)

        dtype = stmt.c.dtype
        element, c_strides = REGISTER_TYPE[dtype.name], strides_of(stmt.c)
        weights = f"{at(stmt.weights)}, {words(strides_of(stmt.weights)[0])}"
        image = f"{at(stmt.image)}, {at(stmt.offsets)}, {words(stmt.weights.shape[1])}"
        c = f"{at(stmt.c)}, {words(*c_strides[:2], *stmt.c.shape, stmt.pitch)}"
        bias = "ptr null, i64 0" if stmt.bias is None else f"{at(stmt.bias)}, {words(strides_of(stmt.bias)[0])}"
        low = expressions.constant(float("-inf") if stmt.low is None else stmt.low, dtype)
        parameters = f"ptr, i64, ptr, ptr, i64, ptr, i64, i64, i64, i64, i64, i64, ptr, i64, {element}"
        self._call(convolve_names(dtype)[0], parameters, f"{weights}, {image}, {c}, {bias}, {low}")

    # -- structure --------------------------------------------------------------------------------------------

    def _for(self, stmt: For) -> None:
        if stmt.axis == "vector" and self.environment.axis is None:
            self._vector_for(stmt)
            return
        if stmt.axis == "parallel" and self.environment.axis is None and not self.chunk:
            self._parallel_for(stmt)
            return
        self._loop(stmt)

    def _loop(self, stmt: For, first: Value | None = None) -> None:
        """A serial loop; with `first` the index starts there instead of at 0."""
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
        if first is not None:
            names[stmt.index] = expressions.binary("add", index, first)
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

    def _parallel_for(self, stmt: For) -> None:
        """The body becomes `void NAME.part(ptr env, i64 begin, i64 end, i64 thread)`; large work goes to the pool.

        `env` holds the names the body uses, and its arena: each thread works in a piece of its own.
        """
        writer, expressions, names = self.writer, self.expressions, self.environment.names
        pointers = self.environment.pointers
        scalars, roots = used_names(stmt.body.body)
        captured = sorted(n for n in scalars - {THREAD_COUNT.name} if n in names and n != stmt.index)
        shared = sorted(r for r in roots if r in pointers)
        part = self.module.fresh(f"{self.function.name}.part")
        inner = Emitter(self.module, self.function, self.target, chunk=True)
        inner._bind_environment(captured, shared, names)
        inner.bounds = self.bounds
        begin, end = Value("%begin", INDEX), Value("%end", INDEX)
        one = expressions.constant(1, INDEX)
        inner.environment.names |= {".begin": begin, ".end": end, THREAD_COUNT.name: one}
        inner._loop(For(stmt.index, Binary("sub", Var(".end"), Var(".begin")), stmt.body), first=begin)
        inner.writer.write("ret void")
        header = f"define internal void @{part}(ptr noalias %env, i64 %begin, i64 %end, i64 %thread)"
        self.module.define(header, inner.writer)

        extent = expressions.emit(stmt.extent)
        each = expressions.emit(inner.arena)
        several = Binary("max", THREAD_COUNT, Const(1, INDEX))
        slot = self.slots.of.get(parallel_key(stmt))
        if inner.arena == Const(0, INDEX):
            arena = pointers["."]
        else:
            if slot is None:
                base = expressions.emit(self.arena)
                self.arena = index_add(self.arena, index_mul(inner.arena, several))
            else:
                base = self._in_slot(slot, index_mul(inner.arena, several))
            text = f"getelementptr i8, ptr {pointers['.'].text}, {base}"
            arena = expressions.instruction("piece", text, INDEX, 1, pointers["."], base)
        count = 2 + len(captured) + len(shared)
        env = writer.fresh("env")
        self.entry.append(f"  {env} = alloca [{count} x i64], align 8")
        slots = [("ptr " + arena.text, 8), (str(each), 8)]
        for name in captured:
            value = expressions.to_memory(names[name])
            slots.append((str(value), value.dtype.itemsize))
        slots += [(f"ptr {pointers[root].text}", 8) for root in shared]
        for i, (value_text, align) in enumerate(slots):
            at = writer.fresh("env.word")
            writer.write(f"{at} = getelementptr i64, ptr {env}, i64 {i}")
            writer.write(f"store {value_text}, ptr {at}, align {align}")
        work = expressions.emit(work_of(stmt, set(names)))
        work = expressions.binary("add", work, self._extra_work())
        large = expressions.compare("ge", work, expressions.constant(PARALLEL_WORK, INDEX))
        pool = pointers[".pool"]
        there = expressions.instruction("pool.there", f"icmp ne ptr {pool.text}, null", BOOL, 1, pool)
        both = expressions.instruction("spread", f"and {large}, {there.text}", BOOL, 1, large, there)
        spread, serial, after = writer.label("pooled"), writer.label("serial"), writer.label("joined")
        writer.branch(both.text, spread, serial)
        writer.start(spread)
        run = writer.fresh("run")
        writer.write(f"{run} = load ptr, ptr {pool.text}, align 8")
        writer.write(f"call void {run}(ptr {pool.text}, ptr @{part}, ptr {env}, {extent})")
        writer.jump(after)
        writer.start(serial)
        writer.write(f"call void @{part}(ptr {env}, i64 0, {extent}, i64 0)")
        writer.jump(after)
        writer.start(after)

    def _extra_work(self) -> Value:
        """The frame's word of that name."""
        if self._extra is None:
            at, name = self.writer.fresh("extra.word"), self.writer.fresh("extra")
            self.entry.append(f"  {at} = getelementptr i64, ptr %frame, i64 {EXTRA_WORK}")
            self.entry.append(f"  {name} = load i64, ptr {at}, align 8")
            self._extra = Value(name, INDEX)
        return self._extra

    def _bind_environment(self, captured: list[str], shared: list[str], outer: dict[str, Value]) -> None:
        """In the body of a parallel axis: names from the environment, the arena piece of this thread."""
        base = self._word(0, "ptr", "arena", 8, "%env")
        each = self._word(1, "i64", "arena.each", 8, "%env")
        offset, mine = self.writer.fresh("offset"), self.writer.fresh("mine")
        self.writer.write(f"{offset} = mul i64 {each}, %thread")
        self.writer.write(f"{mine} = getelementptr i8, ptr {base}, i64 {offset}")
        self.environment.pointers["."] = Value(mine, INDEX)
        for i, name in enumerate(captured):
            self.environment.names[name] = self._scalar_word(2 + i, name, outer[name].dtype, "%env")
        for i, root in enumerate(shared):
            word = self._word(2 + len(captured) + i, "ptr", root, 8, "%env")
            self.environment.pointers[root] = Value(word, INDEX)

    def _carried_lanes(self, carried: list[str]) -> dict[str, int]:
        """Lanes of locals that a loop or branch changes: all of them in a vector axis, since any lane may differ."""
        axis = self.environment.axis
        return dict.fromkeys(carried, 1 if axis is None else axis.lanes)

    def _vector_for(self, stmt: For) -> None:
        accumulators = {n: op for n, op in assigned_names(stmt.body.body).items() if n in self.environment.names}
        vector_for(self, stmt, accumulators)

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
            active = chosen
            if axis.mask is not None:
                text = f"and {axis.mask}, {chosen.text}"
                active = expressions.instruction("active", text, BOOL, axis.lanes, axis.mask, chosen)
            self._lane_condition = active
            self.environment.axis = VectorAxis(axis.index, axis.lanes, axis.base, active)
            self.block(block)
        self._lane_condition, self.environment.axis = outer, axis


def _slot_name(slot: int) -> str:
    return f"%slot.{slot}"


def _terms(size: Expr) -> list[Expr]:
    """The sizes a slot is the largest of."""
    if isinstance(size, Binary) and size.op == "max":
        return [*_terms(size.a), size.b]
    return [size]


_SUFFIX = {"i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "half": "f16", "float": "f32", "double": "f64"}


def emit(function: Function, target: Target, choices: Mapping[int, Choice] | None = None) -> str:
    """The LLVM module of one function of the loop form.

    Args:
        function, target: what, and for what.
        choices: how its products are carried out, see `expand_contracts`.

    Raises:
        IllFormed: for a function the checker should have refused, or a node this target has no code for.
    """
    module = Module()
    function = expand_contracts(function, target, choices)
    Emitter(module, function, target, slots=plan_slots(function.body, lambda stmts: used_names(stmts)[1])).run()
    return module.text()
