"""One block of bytecode to one Python function, as syntax tree.

In: a function's instructions from one index on, its `Flow` and `Layout`. Out: the body of a function of one parameter,
the frame's list `R`: it runs the instructions up to the next place where control may go elsewhere and returns the
number of the block to go on with (or a code, see `layout`).

Invariants. Every node of an instruction has as its line the instruction's index plus one (`linetable` turns that into
the user's positions). Values live in `R` while control may leave: named registers always, temporaries unless they can
be folded. A temporary that is written once and read once in the same block, in the order in which Python's stack
machine would pop it, becomes a nested expression; CPython's stack then holds it, frees it as early as in the user's
function and lets NumPy reuse its memory. Other temporaries are cleared where they die, on the edge if they die between
two blocks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tiercel import operators
from tiercel.bytecode.constants import UNBOUND
from tiercel.bytecode.instructions import Instruction
from tiercel.errors import InternalError
from tiercel.interp.flow import members
from tiercel.interp.layout import CALL, LEAVE, RETURN, CounterLayout, is_literal

if TYPE_CHECKING:
    from tiercel.interp.decode import Decoder

__all__ = ["LOWERINGS", "BlockEmitter"]

# CPython's compiler recurses over nested expressions; beyond this depth a temporary goes through its register.
_MAX_DEPTH: Final = 40

_LOAD: Final = ast.Load()
_STORE: Final = ast.Store()
_DEL: Final = ast.Del()

_BINARY: Final[Mapping[str, ast.operator]] = {
    "+": ast.Add(),
    "-": ast.Sub(),
    "*": ast.Mult(),
    "/": ast.Div(),
    "//": ast.FloorDiv(),
    "%": ast.Mod(),
    "**": ast.Pow(),
    "@": ast.MatMult(),
    "&": ast.BitAnd(),
    "|": ast.BitOr(),
    "^": ast.BitXor(),
    "<<": ast.LShift(),
    ">>": ast.RShift(),
}
_COMPARE: Final[Mapping[str, ast.cmpop]] = {
    "==": ast.Eq(),
    "!=": ast.NotEq(),
    "<": ast.Lt(),
    "<=": ast.LtE(),
    ">": ast.Gt(),
    ">=": ast.GtE(),
    "is": ast.Is(),
    "is_not": ast.IsNot(),
    "in": ast.In(),
    "not_in": ast.NotIn(),
}
_UNARY: Final[Mapping[str, ast.unaryop]] = {"-x": ast.USub(), "+x": ast.UAdd(), "~x": ast.Invert()}
_CONVERSIONS: Final[Mapping[str, int]] = {"format": -1, "format_str": 115, "format_repr": 114, "format_ascii": 97}
# Words of `Scalar` that are constructs of the language with a helper of ours.
_HELPERS: Final = frozenset({"exception_matches", "with_enter", "with_exit", "exc_info"})


def name(identifier: str) -> ast.Name:
    """Return a read of a variable; names of ours begin with a dot."""
    return ast.Name(identifier, _LOAD)


def const(value: Any) -> ast.Constant:
    """Return a literal."""
    return ast.Constant(value)


def slot(position: int, context: ast.expr_context = _LOAD) -> ast.Subscript:
    """Return `R[position]`."""
    return ast.Subscript(ast.Name(".R", _LOAD), ast.Constant(position), context)


def call(function: ast.expr, *arguments: ast.expr) -> ast.Call:
    """Return a call with positional arguments."""
    return ast.Call(function, list(arguments), [])


class BlockEmitter:
    """Emits one block.

    Args:
        decoder: gives block numbers to jump targets.
        single_step: end the block after one instruction, and fold nothing.
    """

    def __init__(self, decoder: Decoder, *, single_step: bool = False) -> None:
        self.decoder = decoder
        self.function = decoder.function
        self.instructions = decoder.function.instructions
        self.flow = decoder.flow
        self.layout = decoder.layout
        self.single_step = single_step
        self.body: list[ast.stmt] = []
        self.done = False
        # Values on CPython's stack, oldest first: register, expression, depth of nesting.
        self.pending: list[tuple[int, ast.expr, int]] = []
        # Constants loaded into foldable temporaries: they may be read in any order.
        self.literals: dict[int, tuple[int, ast.expr]] = {}
        # Temporaries read from `R` since the last statement, to be cleared behind it if dead.
        self.touched = 0
        self.depth = 0

    def emit(self, start: int) -> list[ast.stmt]:
        """Return the statements of the block that begins at an instruction."""
        self.instruction(start)
        index = start
        while not self.done:
            index += 1
            if index >= len(self.instructions):
                raise InternalError(f"{self.function.qualname} runs off its end", stage="decode")
            if self.single_step or (index in self.flow.starts and index not in self.flow.single):
                self.goto(index - 1, index)
            else:
                self.instruction(index)
        return self.body

    def emit_header(self, start: int) -> list[ast.stmt]:
        """Return the statements of a loop's head: what a back edge goes to."""
        ins = self.instructions[start]
        number = const(self.decoder.number(("header", start, -1)))
        if ins.iterator is None:
            # Here only to enter: a back edge goes to the first instruction, having asked itself.
            made = self.counter(ins.loop, CounterLayout.ITERATIONS)
            self.body.append(self.place(start, self.asked(ins.loop, made, self.first_number(start))))
            self.goto(start, start + 1)
            return self.body
        count = ast.BinOp(self.counter(ins.loop, CounterLayout.ITERATIONS), _BINARY["+"], const(1))
        self.body.append(self.place(start, ast.Assign([ast.Name(".n", _STORE)], count)))
        self.body.append(self.place(start, self.asked(ins.loop, name(".n"), number)))
        self._advance(start, ins)
        index = start + 1
        if self.single_step or index not in self.flow.single:
            self.goto(start, index)
        else:
            return self.emit(index)
        return self.body

    def first_number(self, start: int) -> ast.Constant:
        """Return the number of the block that a pass of a `while` begins with."""
        return const(self.decoder.number(("at", start + 1, -1)))

    def asked(self, loop: int, passes: ast.expr, following: ast.expr) -> ast.stmt:
        """Return `if passes >= counts[due]: return R[on_passes](R[-1], loop, R, following)`."""
        due = self.counter(loop, CounterLayout.DUE)
        ask = call(slot(self.layout.on_passes), slot(self.decoder.self_slot), const(loop), name(".R"), following)
        return ast.If(ast.Compare(passes, [ast.GtE()], [due]), [ast.Return(ask)], [])

    def emit_edge(self, source: int, target: int) -> list[ast.stmt]:
        """Return the statements of a jump alone, for a frame that comes back from a call."""
        self.goto(source, target)
        return self.body

    def instruction(self, index: int) -> None:
        """Emit one instruction."""
        ins = self.instructions[index]
        lower = LOWERINGS.get(ins.opcode)
        if lower is None:
            raise InternalError(f"no decoder for {ins.opcode}", stage="decode")
        lower(self, index, ins)

    # ---- operands ----------------------------------------------------------------------------------------------------

    def operands(self, *wanted: int) -> list[ast.expr]:
        """Return expressions for operands, given in the order in which the emitted code evaluates them.

        Pending temporaries are used in place if they are the newest ones in this order; otherwise all go to registers.
        """
        used = [r for r in wanted if r >= 0 and any(r == p[0] for p in self.pending)]
        if used:
            if [p[0] for p in self.pending[-len(used) :]] != used:
                self.flush()
                used = []
            else:
                self.depth = max(p[2] for p in self.pending[-len(used) :])
        top = {p[0]: p[1] for p in self.pending[len(self.pending) - len(used) :]}
        del self.pending[len(self.pending) - len(used) :]
        return [self._operand(operand, top) for operand in wanted]

    def _operand(self, operand: int, top: Mapping[int, ast.expr]) -> ast.expr:
        if operand < 0:
            return self.constant(operand)
        if operand in top:
            return top[operand]
        literal = self.literals.pop(operand, None)
        if literal is not None:
            return literal[1]
        self.touched |= 1 << operand & self.flow.temporaries
        return slot(operand)

    def constant(self, operand: int) -> ast.expr:
        """Return an expression for a constant of the program."""
        index = ~operand
        value = self.decoder.program.constants[index]
        if value is UNBOUND:
            return name(".U")
        return const(value) if is_literal(value) else slot(self.layout.constants[index])

    def values(self, *wanted: int) -> list[ast.expr]:
        """Return `operands` where a value is needed; a bare slice (`a:b`) becomes a call of `slice`."""
        return [_value(node) for node in self.operands(*wanted)]

    # ---- statements --------------------------------------------------------------------------------------------------

    def place(self, index: int, node: Any) -> Any:
        """Give a node its instruction; parts without one inherit it."""
        node.lineno = node.end_lineno = index + 1
        node.col_offset = 0
        node.end_col_offset = 0
        return node

    def statement(self, index: int, *nodes: ast.stmt) -> None:
        """Append statements, and clear temporaries that died in them."""
        self.flush()
        for node in nodes:
            self.body.append(self.place(index, node))
        self.clear(index, used=self.touched & ~self.flow.live_out[index])
        self.touched = 0

    def clear(self, index: int, used: int = 0, popped: int = 0) -> None:
        """Clear registers: operands that were used, and others that Python's stack would hold."""
        self.body += [self.place(index, node) for node in _clears(used, popped)]

    def flush(self) -> None:
        """Write pending temporaries to their registers, in order of evaluation."""
        pending, self.pending = self.pending, []
        for register, node, _ in pending:
            assign = ast.Assign([slot(register, _STORE)], _value(node))
            assign.lineno = assign.end_lineno = node.lineno
            assign.col_offset = assign.end_col_offset = 0
            self.body.append(assign)

    def result(self, index: int, register: int, node: ast.expr) -> None:
        """Give a register the value of an expression."""
        depth, self.depth = self.depth + 1, 0
        bit = 1 << register
        # What merely passes a value on leaves the expression with the instruction it came from.
        if not hasattr(node, "lineno"):
            self.place(index, node)
        if self.single_step:
            depth = _MAX_DEPTH + 1
        if self.flow.foldable & bit and depth <= _MAX_DEPTH:
            self.pending.append((register, node, depth))
        elif self.is_dead(index, register):
            self.statement(index, ast.Expr(_value(node)))
        else:
            self.statement(index, ast.Assign([slot(register, _STORE)], _value(node)))

    def is_dead(self, index: int, register: int) -> bool:
        bit = 1 << register
        return bool(self.flow.temporaries & bit and not self.flow.live_out[index] & bit)

    # ---- control -----------------------------------------------------------------------------------------------------

    def goto(self, source: int, target: int) -> None:
        """End the block with a jump."""
        self.body += self.jump(source, target)
        self.done = True

    def settle(self) -> None:
        """Write everything pending to registers: control may leave."""
        self.flush()
        for register, (index, node) in self.literals.items():
            self.body.append(self.place(index, ast.Assign([slot(register, _STORE)], node)))
        self.literals.clear()

    def jump(self, source: int, target: int, *, number: int | None = None) -> list[ast.stmt]:
        """Return the statements of a jump from one instruction to another."""
        self.settle()
        flow = self.flow
        dead = ~flow.live_in[target]
        out = _clears(self.touched & dead, (flow.live_out[source] | flow.held(source)) & dead)
        out += self.stop_clocks(source, target)
        if number is None:
            back = self.instructions[source].opcode == "LoopEnd"
            number = self.decoder.number(("header" if back else "at", target, -1))
        if flow.leaves_handler(source, target):
            out.append(ast.Assign([slot(self.layout.value, _STORE)], const(number)))
            out.append(ast.Return(const(LEAVE)))
        else:
            out.append(ast.Return(const(number)))
        return [self.place(source, node) for node in out]

    def is_plain_jump(self, source: int, target: int) -> bool:
        """Whether a jump does nothing but go there."""
        flow = self.flow
        held = (flow.live_out[source] | flow.held(source)) & ~flow.live_in[target]
        return not held and not flow.leaves_handler(source, target) and not flow.loops_left(source, target)

    def stop_clocks(self, source: int, target: int | None) -> list[ast.stmt]:
        """Return `if R[timer]: counts[time] += clock() - R[timer]; counts[timed] += 1` for each loop left."""
        out: list[ast.stmt] = []
        for loop in self.flow.loops_left(source, target):
            timer = self.layout.timers + loop.loop
            elapsed = ast.BinOp(call(name(".clock")), _BINARY["-"], slot(timer))
            out.append(
                ast.If(
                    slot(timer),
                    [
                        self.count(loop.loop, CounterLayout.LOOP_TIME, elapsed),
                        self.count(loop.loop, CounterLayout.TIMED),
                    ],
                    [],
                )
            )
        return out

    def count(self, loop: int, which: int, amount: ast.expr | None = None) -> ast.stmt:
        """Return `counts[...] += amount` (1 by default)."""
        return ast.AugAssign(self.counter(loop, which, _STORE), _BINARY["+"], amount or const(1))

    def counter(self, loop: int, which: int, context: ast.expr_context = _LOAD) -> ast.Subscript:
        """Return the counter of a loop."""
        position = CounterLayout.FIRST_LOOP + CounterLayout.PER_LOOP * loop + which
        return ast.Subscript(name(".C"), const(position), context)

    def _advance(self, index: int, ins: Instruction) -> None:
        """Emit the head of a `for`: take the next item, or leave."""
        (iterator,) = self.values(ins.iterator)
        item = ast.NamedExpr(ast.Name(".v", _STORE), call(name(".next"), iterator, name(".S")))
        self.touched = 0
        test = ast.If(ast.Compare(item, [ast.Is()], [name(".S")]), self.jump(index, ins.exit), [])
        self.body.append(self.place(index, test))
        self.touched = 0
        if ins.target is not None and not self.is_dead(index, ins.target):
            self.body.append(self.place(index, ast.Assign([slot(ins.target, _STORE)], name(".v"))))
        # The local variable must not keep the item alive when the loop's body rebinds its name.
        self.body.append(self.place(index, ast.Assign([ast.Name(".v", _STORE)], const(None))))
        counted = ast.Assign([self.counter(ins.loop, CounterLayout.ITERATIONS, _STORE)], name(".n"))
        self.body.append(self.place(index, counted))


def _clears(used: int, popped: int) -> list[ast.stmt]:
    """Return the statements that clear registers in CPython's order.

    Operands go first to last when they are used; the rest of the stack is popped from its top.
    """
    order = [*reversed(members(used)), *members(popped & ~used)]
    targets: list[ast.expr] = [slot(r, _STORE) for r in order]
    return [ast.Assign(targets, const(None))] if targets else []


def _value(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Slice):
        parts = (node.lower or const(None), node.upper or const(None), node.step or const(None))
        made: ast.expr = call(name(".slice"), *parts)
    elif isinstance(node, ast.Tuple) and any(isinstance(e, ast.Slice | ast.Tuple) for e in node.elts):
        made = ast.Tuple([_value(e) for e in node.elts], _LOAD)
    else:
        return node
    return ast.copy_location(made, node) if hasattr(node, "lineno") else made


# ---- one function per opcode -----------------------------------------------------------------------------------------

Lowering = Callable[[BlockEmitter, int, Instruction], None]
LOWERINGS: Final[dict[str, Lowering]] = {}


def _lowers(opcode: str) -> Callable[[Lowering], Lowering]:
    def register(function: Lowering) -> Lowering:
        LOWERINGS[opcode] = function
        return function

    return register


@_lowers("LoadConst")
def _load_const(e: BlockEmitter, index: int, ins: Instruction) -> None:
    node = e.place(index, e.constant(ins.value))
    if e.flow.foldable >> ins.dst & 1 and not e.single_step:
        e.literals[ins.dst] = (index, node)
    else:
        e.result(index, ins.dst, node)


@_lowers("LoadTensor")
def _load_tensor(e: BlockEmitter, index: int, ins: Instruction) -> None:
    e.result(index, ins.dst, e.constant(ins.tensor))


@_lowers("LoadParam")
def _load_param(e: BlockEmitter, index: int, ins: Instruction) -> None:
    if ins.dst != ins.index:
        e.result(index, ins.dst, *e.values(ins.index))


@_lowers("LoadGlobal")
def _load_global(e: BlockEmitter, index: int, ins: Instruction) -> None:
    e.result(index, ins.dst, name(ins.name))


@_lowers("LoadAttr")
def _load_attr(e: BlockEmitter, index: int, ins: Instruction) -> None:
    (owner,) = e.values(ins.object)
    e.result(index, ins.dst, ast.Attribute(owner, ins.name, _LOAD))


@_lowers("StoreAttr")
def _store_attr(e: BlockEmitter, index: int, ins: Instruction) -> None:
    # Python evaluates the value before the target.
    value, owner = e.values(ins.value, ins.object)
    e.statement(index, ast.Assign([ast.Attribute(owner, ins.name, _STORE)], value))


@_lowers("LoadCell")
def _load_cell(e: BlockEmitter, index: int, ins: Instruction) -> None:
    # An empty cell raises ValueError here; the dispatcher makes Python's NameError of it (see `run`).
    (cell,) = e.values(ins.cell)
    e.result(index, ins.dst, ast.Attribute(cell, "cell_contents", _LOAD))


@_lowers("StoreCell")
def _store_cell(e: BlockEmitter, index: int, ins: Instruction) -> None:
    if ins.value < 0 and e.decoder.program.constants[~ins.value] is UNBOUND:
        (cell,) = e.values(ins.cell)
        e.statement(index, ast.Delete([ast.Attribute(cell, "cell_contents", _DEL)]))
        return
    value, cell = e.values(ins.value, ins.cell)
    e.statement(index, ast.Assign([ast.Attribute(cell, "cell_contents", _STORE)], value))


@_lowers("Move")
def _move(e: BlockEmitter, index: int, ins: Instruction) -> None:
    e.result(index, ins.dst, *e.values(ins.src))


@_lowers("CallOp")
def _call_op(e: BlockEmitter, index: int, ins: Instruction) -> None:
    spelling = operators.get(ins.operator).spellings[ins.spelling]
    path = spelling.path
    if spelling.kind == "inplace" and ins.args[0] == ins.dst:
        # `x += y`: the register is read, then y evaluated, then the result stored, as Python does.
        (right,) = e.values(ins.args[1])
        operation = _BINARY[path[:-1]]
        e.depth = 0
        e.statement(index, ast.AugAssign(slot(ins.dst, _STORE), operation, right))
        return
    values = e.values(*ins.args)
    names = ins.keywords or ("",) * len(values)
    positional = [v for v, n in zip(values, names, strict=True) if not n]
    keywords = [ast.keyword(n, v) for v, n in zip(values, names, strict=True) if n]
    node: ast.expr
    match spelling.kind:
        case "syntax" if path in _UNARY:
            node = ast.UnaryOp(_UNARY[path], values[0])
        case "syntax" if path in _BINARY:
            node = ast.BinOp(values[0], _BINARY[path], values[1])
        case "syntax" if path in _COMPARE:
            node = ast.Compare(values[0], [_COMPARE[path]], [values[1]])
        case "syntax" if path == "x[k]":
            node = ast.Subscript(values[0], values[1], _LOAD)
        case "syntax" if path == "x[k]=v":
            e.depth = 0
            # Python evaluates the value first; the values here are in registers or in this order already.
            e.statement(index, ast.Assign([ast.Subscript(values[0], values[1], _STORE)], values[2]))
            e.result(index, ins.dst, const(None))
            return
        case "inplace":
            node = call(name(f".{path}"), values[0], values[1])
        case "method":
            node = ast.Call(e.place(index, ast.Attribute(values[0], path, _LOAD)), positional[1:], keywords)
        case "property":
            node = ast.Attribute(values[0], path.lstrip("."), _LOAD)
        case "function" | "ops":
            node = ast.Call(_callable(e, ins), positional, keywords)
        case "class":
            node = ast.Call(ast.Call(_callable(e, ins), [], keywords), positional, [])
        case _:
            raise InternalError(f"no decoder for spelling {spelling.kind} {path!r} of {ins.operator}", stage="decode")
    e.result(index, ins.dst, node)


def _callable(e: BlockEmitter, ins: Instruction) -> ast.expr:
    if ins.via is None:
        return slot(e.layout.extras[ins.operator, ins.spelling])
    cell, colon, path = ins.via.rpartition(":")
    root, *attributes = path.split(".")
    node: ast.expr = ast.Attribute(slot(int(cell)), "cell_contents", _LOAD) if colon else name(root)
    for attribute in attributes:
        node = ast.Attribute(node, attribute, _LOAD)
    return node


@_lowers("Dim")
def _dim(e: BlockEmitter, index: int, ins: Instruction) -> None:
    (x,) = e.values(ins.x)
    e.result(index, ins.dst, ast.Subscript(ast.Attribute(x, "shape", _LOAD), const(ins.axis), _LOAD))


@_lowers("Scalar")
def _scalar(e: BlockEmitter, index: int, ins: Instruction) -> None:
    values = e.values(*ins.args)
    word = ins.function
    node: ast.expr
    if word == "not":
        node = ast.UnaryOp(ast.Not(), values[0])
    elif word in ("is", "is_not") and any(_is_display(v) for v in values):
        node = call(name(f".{word}"), *values)
    elif word in _COMPARE:
        node = ast.Compare(values[0], [_COMPARE[word]], [values[1]])
    elif word in _CONVERSIONS:
        spec: ast.expr | None = None
        if len(values) > 1:
            spec = ast.JoinedStr([ast.FormattedValue(values[1], -1, None)])
        node = ast.JoinedStr([ast.FormattedValue(values[0], _CONVERSIONS[word], spec)])
    elif word in _HELPERS:
        node = call(name(f".{word}"), *values)
    else:
        node = call(name(word), *values)
    e.result(index, ins.dst, node)


@_lowers("Item")
def _item(e: BlockEmitter, index: int, ins: Instruction) -> None:
    (x,) = e.values(ins.x)
    e.result(index, ins.dst, call(e.place(index, ast.Attribute(x, "item", _LOAD))))


@_lowers("Build")
def _build(e: BlockEmitter, index: int, ins: Instruction) -> None:
    what = ins.what
    # Slices inside a tuple stay bare: the tuple may turn out to be a subscript.
    items = e.operands(*ins.items) if what in ("tuple", "slice") else e.values(*ins.items)
    node: ast.expr
    match what:
        case "tuple":
            node = ast.Tuple(items, _LOAD)
        case "list":
            node = ast.List(items, _LOAD)
        case "set":
            node = ast.Set(items) if items else ast.Set([ast.Starred(ast.Tuple([], _LOAD), _LOAD)])
        case "dict":
            node = ast.Dict(list(items[0::2]), items[1::2])
        case "tuple_star":
            node = ast.Tuple([ast.Starred(i, _LOAD) for i in items], _LOAD)
        case "list_star":
            node = ast.List([ast.Starred(i, _LOAD) for i in items], _LOAD)
        case "set_star":
            node = ast.Set([ast.Starred(i, _LOAD) for i in items] or [ast.Starred(ast.Tuple([], _LOAD), _LOAD)])
        case "dict_star":
            node = ast.Dict([None] * len(items), items)
        case "slice":
            lower, upper, step = (None if _is_none(i) else _value(i) for i in (*items, *[const(None)] * 3)[:3])
            node = ast.Slice(lower, upper, step)
        case "string":
            node = ast.JoinedStr([ast.FormattedValue(i, -1, None) for i in items])
        case "cell":
            node = call(name(".cell"), *items)
        case _:
            raise InternalError(f"no decoder for Build {what}", stage="decode")
    e.result(index, ins.dst, node)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


@_lowers("Unpack")
def _unpack(e: BlockEmitter, index: int, ins: Instruction) -> None:
    (source,) = e.values(ins.src)
    targets: list[ast.expr] = [slot(r, _STORE) for r in ins.dsts]
    if ins.star:
        targets[ins.star - 1] = ast.Starred(targets[ins.star - 1], _STORE)
    e.depth = 0
    # Items that nobody reads must not live on in their registers.
    dead = 0
    for register in ins.dsts:
        dead |= 1 << register & e.flow.temporaries & ~e.flow.live_out[index]
    e.touched |= dead
    e.statement(index, ast.Assign([ast.Tuple(targets, _STORE)], source))


@_lowers("Index")
def _index(e: BlockEmitter, index: int, ins: Instruction) -> None:
    x, key = e.operands(ins.x, ins.key)
    if _is_display(x):
        e.result(index, ins.dst, call(name(".item"), _value(x), _value(key)))
    else:
        e.result(index, ins.dst, ast.Subscript(_value(x), _subscript(key), _LOAD))


def _is_display(node: ast.expr) -> bool:
    """Whether CPython's compiler may have an opinion on what is done with a node.

    `x is 3`, `5[0]` and `[1]["a"]` are SyntaxWarnings. The user was told when his own source was compiled and must not
    be told again; silencing warnings around a compilation would reset which warnings were shown before.
    """
    if isinstance(node, ast.Constant):
        return not (node.value is None or node.value is Ellipsis or isinstance(node.value, bool))
    return not isinstance(node, ast.Subscript | ast.Name | ast.Attribute | ast.Call | ast.BinOp | ast.UnaryOp)


def _subscript(key: ast.expr) -> ast.expr:
    """Return a key as it may stand in brackets: slices directly inside, or inside one tuple, stay bare."""
    if isinstance(key, ast.Tuple) and key.elts:
        return ast.copy_location(
            ast.Tuple([k if isinstance(k, ast.Slice) else _value(k) for k in key.elts], _LOAD), key
        )
    return key


@_lowers("SetItem")
def _set_item(e: BlockEmitter, index: int, ins: Instruction) -> None:
    value, x, key = e.operands(ins.value, ins.x, ins.key)
    e.depth = 0
    e.statement(index, ast.Assign([ast.Subscript(_value(x), _subscript(key), _STORE)], _value(value)))


@_lowers("Append")
def _append(e: BlockEmitter, index: int, ins: Instruction) -> None:
    owner, value = e.values(ins.list, ins.value)
    e.depth = 0
    method = e.place(index, ast.Attribute(owner, "append", _LOAD))
    e.statement(index, ast.Expr(e.place(index, call(method, value))))


@_lowers("Iter")
def _iter(e: BlockEmitter, index: int, ins: Instruction) -> None:
    (x,) = e.values(ins.x)
    e.result(index, ins.dst, call(name(".iter"), x))


@_lowers("BranchIf")
def _branch_if(e: BlockEmitter, index: int, ins: Instruction) -> None:
    (condition,) = e.values(ins.condition)
    e.depth = 0
    e.settle()
    behind = index + 1
    inline = not e.single_step and behind in e.flow.single and ins.then != ins.else_
    # Temporaries of the condition die on both edges, also on the one that stays in this block.
    if inline and behind in (ins.then, ins.else_):
        other = ins.else_ if behind == ins.then else ins.then
        # The condition keeps its own place: it may be an expression folded into this instruction.
        test = ast.UnaryOp(ast.Not(), condition) if behind == ins.then else condition
        e.body.append(e.place(index, ast.If(test, e.jump(index, other), [])))
        dead = ~e.flow.live_in[behind]
        e.clear(index, e.touched & dead, (e.flow.live_out[index] | e.flow.held(index)) & dead)
        e.touched = 0
        return
    e.body.append(e.place(index, ast.If(condition, e.jump(index, ins.then), e.jump(index, ins.else_))))
    e.done = True


@_lowers("Jump")
def _jump(e: BlockEmitter, index: int, ins: Instruction) -> None:
    e.goto(index, ins.target)


@_lowers("LoopStart")
def _loop_start(e: BlockEmitter, index: int, ins: Instruction) -> None:
    """Count and time the entry, tell the hook, go to the head."""
    e.settle()
    loop = next(row for row in e.flow.loops if row.start == index)
    timer = slot(e.layout.timers + ins.loop, _STORE)
    clock: ast.expr = call(name(".clock"))
    if loop.depth:
        # Inner loops are entered often: time one entry in 16.
        untimed = ast.BinOp(e.counter(ins.loop, CounterLayout.ENTRIES), _BINARY["&"], const(15))
        clock = ast.IfExp(untimed, const(0), clock)
    hook = e.layout.on_region
    notify = call(slot(hook), slot(e.decoder.self_slot), const(ins.loop), name(".R"))
    for node in (
        ast.Assign([timer], clock),
        e.count(ins.loop, CounterLayout.ENTRIES),
        ast.If(ast.Compare(slot(hook), [ast.IsNot()], [const(None)]), [ast.Expr(notify)], []),
        ast.Return(const(e.decoder.number(("header", index, -1)))),
    ):
        e.body.append(e.place(index, node))
    e.done = True


@_lowers("LoopEnd")
def _loop_end(e: BlockEmitter, index: int, ins: Instruction) -> None:
    if e.instructions[ins.start].iterator is not None:
        e.goto(index, ins.start)
        return
    # A `while`: completed passes are counted here, those of a `for` where the item is taken.
    *clears, last = e.jump(index, ins.start, number=e.decoder.number(("at", ins.start + 1, -1)))
    e.body += clears
    count = ast.BinOp(e.counter(ins.loop, CounterLayout.ITERATIONS), _BINARY["+"], const(1))
    counter = e.counter(ins.loop, CounterLayout.ITERATIONS, _STORE)
    e.body.append(e.place(index, ast.Assign([ast.Name(".n", _STORE), counter], count)))
    e.body.append(e.place(index, e.asked(ins.loop, name(".n"), e.first_number(ins.start))))
    e.body.append(last)
    e.done = True


@_lowers("Try")
def _try(e: BlockEmitter, index: int, ins: Instruction) -> None:
    e.decoder.number(("at", ins.handler, -1))
    e.goto(index, index + 1)


@_lowers("EndTry")
def _end_try(e: BlockEmitter, index: int, ins: Instruction) -> None:
    e.goto(index, index + 1)


@_lowers("Raise")
def _raise(e: BlockEmitter, index: int, ins: Instruction) -> None:
    parts = e.values(*(p for p in (ins.exception, ins.cause) if p is not None))
    e.depth = 0
    e.flush()
    e.body.append(e.place(index, ast.Raise(*parts)))
    e.done = True


@_lowers("Call")
def _call(e: BlockEmitter, index: int, ins: Instruction) -> None:
    """Run a captured callee as a frame of this machine, call any other one.

    ::

        f = callee
        if (g := R[on_callee](f)) is None: R[dst] = f(arguments); return next
        R[value] = (g, arguments, keywords, dst, next, index); return CALL
    """
    callee, *arguments = e.values(ins.callee, *ins.args)
    e.depth = 0
    e.settle()
    keywords = ins.keywords or ("",) * len(arguments)
    unused = e.is_dead(index, ins.dst)
    body: list[ast.stmt] = [ast.Assign([ast.Name(".f", _STORE)], callee)]
    known: ast.expr = ast.NamedExpr(ast.Name(".g", _STORE), call(slot(e.layout.on_callee), name(".f")))
    unknown: ast.expr = ast.Compare(known, [ast.Is()], [const(None)])
    packed: tuple[ast.expr, ast.expr]
    if any(k.startswith("*") for k in keywords):
        body.append(ast.Assign([ast.Name(".a", _STORE)], ast.Tuple(arguments, _LOAD)))
        arguments = [ast.Subscript(name(".a"), const(i), _LOAD) for i in range(len(arguments))]
        pack = call(name(".pack"), name(".a"), const(tuple(keywords)))
        unpackable = ast.Compare(ast.NamedExpr(ast.Name(".p", _STORE), pack), [ast.Is()], [const(None)])
        unknown = ast.BoolOp(ast.Or(), [unknown, unpackable])
        packed = (ast.Subscript(name(".p"), const(0), _LOAD), ast.Subscript(name(".p"), const(1), _LOAD))
    else:
        named = [(k, v) for k, v in zip(keywords, arguments, strict=True) if k]
        packed = (
            ast.Tuple([v for k, v in zip(keywords, arguments, strict=True) if not k], _LOAD),
            ast.Dict([const(k) for k, _ in named], [v for _, v in named]) if named else const(None),
        )
    direct = e.place(index, _python_call(name(".f"), arguments, keywords))
    kept = ast.Expr(direct) if unused else ast.Assign([slot(ins.dst, _STORE)], direct)
    body.append(ast.If(unknown, [kept, *e.jump(index, index + 1)], []))
    behind = ("at", index + 1, -1) if e.is_plain_jump(index, index + 1) else ("edge", index + 1, index)
    request = [
        name(".g"),
        *packed,
        const(-1 if unused else ins.dst),
        const(e.decoder.number(behind)),
        const(index),
    ]
    body.append(ast.Assign([slot(e.layout.value, _STORE)], ast.Tuple(request, _LOAD)))
    for node in body:
        e.body.append(e.place(index, node))
    e.clear(index, e.touched & ~e.flow.live_out[index])
    e.touched = 0
    e.body.append(e.place(index, ast.Return(const(CALL))))
    e.done = True


def _python_call(callee: ast.expr, arguments: Sequence[ast.expr], keywords: Sequence[str]) -> ast.Call:
    positional: list[ast.expr] = []
    named: list[ast.keyword] = []
    for value, keyword in zip(arguments, keywords, strict=True):
        if keyword == "":
            positional.append(value)
        elif keyword == "*":
            positional.append(ast.Starred(value, _LOAD))
        else:
            named.append(ast.keyword(None if keyword == "**" else keyword, value))
    return ast.Call(callee, positional, named)


@_lowers("CallPy")
def _call_py(e: BlockEmitter, index: int, ins: Instruction) -> None:
    """Call, count and time.

    ::

        t = clock(); R[dst] = callee(arguments); counts[calls] += 1; counts[time] += clock() - t
    """
    callee, *arguments = e.values(ins.callee, *ins.args)
    e.depth = 0
    keywords = ins.keywords or ("",) * len(arguments)
    if e.decoder.decoded.strict:
        span = e.function.spans[index]
        line = const(None if span is None else span[0])
        refusal = call(name(".strict"), const(ins.reason), const(e.function.filename), line)
        e.statement(index, ast.Raise(refusal, None))
    before: list[ast.stmt] = []
    after: list[ast.stmt] = []
    if not isinstance(callee, ast.Subscript | ast.Name):
        # CPython would compile `x.f()` as a method call and give it the position of the attribute, another instruction;
        # and calling a literal is a SyntaxWarning.
        before = [e.place(index, ast.Assign([ast.Name(".f", _STORE)], callee))]
        after = [ast.Assign([ast.Name(".f", _STORE)], const(None))]
        callee = name(".f")
    made = e.place(index, _python_call(callee, arguments, keywords))
    kept = ast.Expr(made) if e.is_dead(index, ins.dst) else ast.Assign([slot(ins.dst, _STORE)], made)
    position = e.layout.python_calls[index]

    def add(which: int, amount: ast.expr) -> ast.stmt:
        return ast.AugAssign(ast.Subscript(name(".C"), const(position + which), _STORE), _BINARY["+"], amount)

    e.statement(
        index,
        *before,
        ast.Assign([ast.Name(".t", _STORE)], call(name(".clock"))),
        kept,
        *after,
        add(0, const(1)),
        add(1, ast.BinOp(call(name(".clock")), _BINARY["-"], name(".t"))),
    )


@_lowers("MakeFunction")
def _make_function(e: BlockEmitter, index: int, ins: Instruction) -> None:
    optional = [d for d in (ins.defaults, ins.kwdefaults) if d is not None]
    values = e.values(*optional, *ins.cells)
    defaults = values.pop(0) if ins.defaults is not None else const(None)
    kwdefaults = values.pop(0) if ins.kwdefaults is not None else const(None)
    code = e.constant(ins.code)
    cells = ast.Tuple(values, _LOAD)
    e.result(index, ins.dst, call(name(".function"), name(".G"), code, const(ins.name), defaults, kwdefaults, cells))


@_lowers("StoreTensor")
def _store_tensor(e: BlockEmitter, index: int, ins: Instruction) -> None:
    value, x = e.values(ins.value, ins.x)
    e.depth = 0
    e.statement(index, ast.Assign([ast.Subscript(x, const(...), _STORE)], value))


@_lowers("Depend")
def _depend(e: BlockEmitter, index: int, ins: Instruction) -> None:
    x, *after = e.values(ins.x, *ins.after)
    node = x if not after else ast.Subscript(ast.Tuple([x, *after], _LOAD), const(0), _LOAD)
    e.result(index, ins.dst, node)


@_lowers("Check")
def _check(e: BlockEmitter, index: int, ins: Instruction) -> None:
    (x,) = e.values(ins.x)
    e.depth = 0
    if ins.kind in ("bound", "bound_free"):
        helper = ".unbound" if ins.kind == "bound" else ".unbound_free"
        error = ast.Raise(call(name(helper), const(ins.name)), None)
        e.statement(index, ast.If(ast.Compare(x, [ast.Is()], [name(".U")]), [error], []))
    else:
        e.statement(index, ast.Expr(call(name(f".{ins.kind}"), x, const(ins.name))))


@_lowers("Anchor")
def _anchor(e: BlockEmitter, index: int, ins: Instruction) -> None:
    # Its own statement: a place where a debugger can stop.
    e.result(index, ins.dst, *e.values(ins.x))
    e.flush()


@_lowers("Return")
def _return(e: BlockEmitter, index: int, ins: Instruction) -> None:
    (value,) = e.values(ins.value)
    e.depth = 0
    e.flush()
    e.body.append(e.place(index, ast.Assign([slot(e.layout.value, _STORE)], value)))
    # What Python's stack held: iterators of the loops left, and the exception being handled, which through its
    # traceback holds this frame and would keep it alive.
    e.clear(index, popped=e.flow.live_in[index] | e.flow.held(index))
    for node in (*e.stop_clocks(index, None), ast.Return(const(RETURN))):
        e.body.append(e.place(index, node))
    e.done = True
