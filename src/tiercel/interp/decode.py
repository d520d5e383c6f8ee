"""Bytecode to a table of Python functions, one a basic block: what the interpreter runs.

In: one function of a `Program` and the Python environment its names are looked up in. Out: a `Decoded`: the dispatch
table, the tail of a frame's list `R`, the binder of its signature, its counters.

The generated functions bear the user's file, function name and positions and run in the user's globals, so tracebacks,
carets, warnings and name errors are the user's without any translation, and an instruction costs what CPython takes for
the same expression plus some list accesses. Bytecode is the only input: a program loaded from a file decodes the same
way. `table[i]` may be replaced by any callable with the same convention; that is how compiled code is installed.
"""

from __future__ import annotations

import ast
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import CellType, CodeType, FunctionType
from typing import Any, Final, TypeAlias

from tiercel.bytecode.constants import ObjectRef, constant_key
from tiercel.bytecode.program import Function, Parameter, Program
from tiercel.interp.bind import Bind, binder, binder_code, constant_defaults
from tiercel.interp.emit import BlockEmitter, call, const, name
from tiercel.interp.flow import Flow, TryRange, analyse
from tiercel.interp.hooks import NO_HOOKS, Hooks
from tiercel.interp.layout import CounterLayout, Layout, is_literal, lay_out
from tiercel.interp.linetable import encode_positions, inherited_lines, unit_indexes
from tiercel.interp.support import SUPPORT

__all__ = ["Block", "Counters", "Decoded", "Environment", "LoopCounters", "decode"]

# What a dispatch entry is: runs on the frame's list, returns the number of the next block or a code.
Block: TypeAlias = Callable[[list[Any]], int]
# What a block number stands for: ("at", instruction, -1), ("header", LoopStart, -1) for back edges,
# ("edge", target, source) for the jump behind a call.
Key: TypeAlias = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Environment:
    """Where a program's names have their meaning.

    Attributes:
        globals: of the user's module; becomes `__globals__` of the generated blocks.
        module: name of that module, if it is one.
        objects: what the program's `ObjectRef` constants without a value stand for.
    """

    globals: dict[str, Any]
    module: str | None = None
    objects: Mapping[str, object] = field(default_factory=dict)

    @staticmethod
    def empty(objects: Mapping[str, object] | None = None) -> Environment:
        """Return an environment that has Python's builtins only; `objects` become globals as well."""
        import builtins

        namespace = {"__name__": "__tiercel__", "__builtins__": builtins, **(objects or {})}
        return Environment(namespace, None, objects or {})


@dataclass(frozen=True, slots=True)
class LoopCounters:
    """Counts of one loop: how often entered, passes in all, and nanoseconds spent (estimated for inner loops)."""

    entries: int
    iterations: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts of one function. Threads may lose a count to one another: they guide, they do not account.

    `python` has, for each `CallPy` by its instruction, how often it ran and the nanoseconds it took.
    """

    calls: int
    time_ns: int
    loops: tuple[LoopCounters, ...]
    python: Mapping[int, tuple[int, int]] = field(default_factory=dict)


# One for all: decoding is rare, and a lock of each object could not be renewed in a forked child.
_lock = threading.RLock()


def _after_fork() -> None:
    # Another thread of the parent may have held it.
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Decoded:
    """One function, ready to run.

    Attributes:
        program, function, index: what was decoded.
        environment: its names' meaning.
        table: the dispatch table. Entries may be replaced; their order and number are stable, new ones are appended.
        flow, layout: facts about the function and its frames.
        tail: what a frame's list has behind the arguments and cells.
        counts: raw counters, laid out by `CounterLayout`.
        block_start: per block the instruction it begins at.
        block_try: per block the innermost Try that protects it, an index into `flow.tries`, or -1.
        single_step: one instruction per block.
        strict: `CallPy` raises StrictError.
        watch: what the machine around the interpreter keeps with it; the interpreter does not look at it.
    """

    def __init__(
        self,
        program: Program,
        index: int,
        environment: Environment,
        *,
        single_step: bool = False,
        strict: bool = False,
    ) -> None:
        self.program = program
        self.index = index
        self.function: Function = program.functions[index]
        self.environment = environment
        self.single_step = single_step
        self.watch: Any = None
        self.strict = strict
        self.flow: Flow = analyse(self.function)
        self.layout: Layout = lay_out(program, self.function)
        self.tail: list[Any] = [*self.layout.tail, self]
        # The tail with the callbacks of the last hooks in place. One tuple, swapped as a whole.
        self.hooked: tuple[Hooks, list[Any]] = (NO_HOOKS, self.tail)
        self.table: list[Block] = []
        self.block_start: list[int] = []
        self.block_try: list[int] = []
        self.counts = [0] * self.layout.counters
        for loop in range(self.function.loops):
            self.counts[self.counter(loop, CounterLayout.DUE)] = CounterLayout.NEVER
        self.arity = self._simple_arity()
        self.value_slot = self.layout.value
        self._numbers: dict[Key, int] = {}
        self._units: dict[int, tuple[CodeType, tuple[int, ...]]] = {}
        self._raisers: dict[int, FunctionType] = {}
        self.entry(0)

    def __repr__(self) -> str:
        return f"<Decoded {self.function.qualname or self.function.name}: {len(self.table)} blocks>"

    def tail_for(self, hooks: Hooks) -> list[Any]:
        """Return the tail of a frame that runs under these hooks."""
        hooked = self.hooked
        if hooked[0] is not hooks:
            tail = self.tail.copy()
            first = len(self.function.parameters) + len(self.function.free)
            if hooks.on_callee is not None:
                tail[self.layout.on_callee - first] = hooks.on_callee
            if hooks.on_region is not None:
                tail[self.layout.on_region - first] = hooks.on_region
            if hooks.on_passes is not None:
                tail[self.layout.on_passes - first] = hooks.on_passes
            hooked = self.hooked = (hooks, tail)
        return hooked[1]

    # ---- entering ----------------------------------------------------------------------------------------------------

    def entry(self, index: int) -> int:
        """Return the number of the block that begins at an instruction, decoding it if there is none yet."""
        return self._block(("at", index, -1))

    def back_edge(self, loop: int) -> int:
        """Return the number of the block that a loop's back edge goes to."""
        start = next(row.start for row in self.flow.loops if row.loop == loop)
        return self._block(("header", start, -1))

    def leaving(self, loop: int, target: int) -> int:
        """Return the number of the block that leaves a loop from its head, as its normal exit does, for `target`."""
        start = next(row.start for row in self.flow.loops if row.loop == loop)
        return self._block(("edge", target, start))

    def _block(self, key: Key) -> int:
        number = self._numbers.get(key)
        if number is None or number >= len(self.table):
            with _lock:
                number = Decoder(self).decode(key)
        return number

    @cached_property
    def bind(self) -> Bind:
        """The function's signature as a function that returns the tuple of parameters (defaults: constant ones)."""
        return binder(self.bind_code, *constant_defaults(self.program, self.function))

    @cached_property
    def bind_code(self) -> CodeType:
        """The code of `bind`, to be given the defaults of a function object."""
        f = self.function
        return binder_code(f.name, f.qualname or f.name, f.parameters)

    def _simple_arity(self) -> int:
        """How many positional arguments bind without a binder; -1 if that never suffices."""
        parameters: tuple[Parameter, ...] = self.function.parameters
        if any(p.kind not in ("positional_only", "positional_or_keyword") for p in parameters):
            return -1
        return len(parameters)

    def look_for_loops(self) -> None:
        """Let every loop ask `Hooks.on_passes` at its next head."""
        for loop in range(self.function.loops):
            self.counts[self.counter(loop, CounterLayout.DUE)] = 0

    @staticmethod
    def counter(loop: int, which: int) -> int:
        """Return the place in `counts` of a word of a loop."""
        return CounterLayout.FIRST_LOOP + CounterLayout.PER_LOOP * loop + which

    # ---- looking back ------------------------------------------------------------------------------------------------

    @property
    def counters(self) -> Counters:
        """What was counted so far."""
        c = self.counts
        loops = []
        for loop in range(self.function.loops):
            base = CounterLayout.FIRST_LOOP + CounterLayout.PER_LOOP * loop
            entries, iterations, timed, spent = c[base : base + CounterLayout.DUE]
            loops.append(LoopCounters(entries, iterations, spent * entries // timed if timed else 0))
        python = {index: (c[at], c[at + 1]) for index, at in self.layout.python_calls.items()}
        calls, timed = c[CounterLayout.CALLS], c[CounterLayout.TIMED_CALLS]
        return Counters(calls, c[CounterLayout.TIME] * calls // timed if timed else 0, tuple(loops), python)

    @property
    def times_ns(self) -> dict[int | None, int]:
        """Nanoseconds spent per loop id, and under None in the whole function, callees included."""
        counters = self.counters
        return {None: counters.time_ns, **{i: loop.time_ns for i, loop in enumerate(counters.loops)}}

    def instruction_at(self, code: CodeType, offset: int) -> int | None:
        """Return the instruction that a code offset of one of the blocks belongs to; None if it is not ours."""
        found = self._units.get(id(code))
        if found is None or found[0] is not code:
            return None
        # Code without an instruction of its own (the function's prologue) belongs to the next that has one.
        return next((i for i in found[1][offset // 2 :] if i >= 0), None)

    def code_size_bytes(self) -> int:
        """Return the memory that the generated code takes."""
        return sum(sys.getsizeof(code) for code, _ in self._units.values())

    @cached_property
    def outlined(self) -> frozenset[int]:
        """Ids of the code objects of outlined statements, whose frames stand for the function's own."""
        return frozenset(
            id(c.value)
            for c in self.program.constants
            if isinstance(c, ObjectRef) and c.name.startswith("outlined:") and isinstance(c.value, CodeType)
        )

    def raiser(self, index: int) -> Callable[[list[Any]], None]:
        """Return a function that raises R[value] as if from an instruction: a popped frame's traceback entry."""
        found = self._raisers.get(index)
        if found is None:
            with _lock:
                found = self._raisers[index] = Decoder(self).raiser(index)
        return found

    def innermost_try(self, index: int) -> TryRange | None:
        """Return the Try that protects an instruction."""
        position = self.flow.protect[index]
        return self.flow.tries[position] if position >= 0 else None


def decode(
    program: Program,
    function_index: int = 0,
    *,
    environment: Environment,
    single_step: bool = False,
    strict: bool = False,
) -> Decoded:
    """Decode one function of a verified program.

    Args:
        program: what to decode from.
        function_index: which of its functions.
        environment: where its names have their meaning.
        single_step: make each instruction a block of its own (slow; for debuggers and tests).
        strict: make every `CallPy` raise StrictError instead of running.

    Raises:
        BytecodeError: the program needs a Python object by name that `environment` does not have.
    """
    _resolve_objects(program, environment)
    return Decoded(program, function_index, environment, single_step=single_step, strict=strict)


def _resolve_objects(program: Program, environment: Environment) -> None:
    import builtins

    from tiercel.errors import BytecodeError

    missing = []
    for constant in program.constants:
        if isinstance(constant, ObjectRef) and constant.value is None:
            plain = constant.name.removeprefix("builtins.")
            if constant.name in environment.objects:
                constant.value = environment.objects[constant.name]
            elif plain != constant.name and hasattr(builtins, plain):
                constant.value = getattr(builtins, plain)
            else:
                missing.append(constant.name)
    if missing:
        names = ", ".join(repr(n) for n in sorted(missing))
        raise BytecodeError(
            f"program {program.name!r} uses Python objects that are not supplied: {names}; "
            "pass them as python={name: object} when loading"
        )


_FACTORY: Final = ".factory"


class Decoder:
    """Generates the blocks that are reachable from one place and not there yet."""

    def __init__(self, decoded: Decoded) -> None:
        self.decoded = decoded
        self.program = decoded.program
        self.function = decoded.function
        self.flow = decoded.flow
        self.layout = decoded.layout
        self.self_slot = len(decoded.function.parameters) + len(decoded.function.free) + len(decoded.tail) - 1
        self.queue: list[tuple[Key, int]] = []

    def number(self, key: Key) -> int:
        """Return the number of a block; it is queued if it is new."""
        numbers = self.decoded._numbers
        found = numbers.get(key)
        if found is None:
            found = numbers[key] = len(numbers)
            self.queue.append((key, found))
        return found

    def decode(self, key: Key) -> int:
        """Generate a block and all it leads to, and append them to the table. Returns its number."""
        wanted = self.number(key)
        definitions: list[ast.stmt] = []
        origins: list[tuple[int, int]] = []
        done = 0
        while done < len(self.queue):
            (kind, index, source), number = self.queue[done]
            done += 1
            emitter = BlockEmitter(self, single_step=self.decoded.single_step)
            if kind == "at":
                body, place = emitter.emit(index), index
            elif kind == "header":
                body, place = emitter.emit_header(index), index
            else:
                body, place = emitter.emit_edge(source, index), source
            definitions.append(_definition(f".b{number}", place, body, [".R"]))
            origins.append((number, place))
        if not definitions:
            return wanted
        blocks = self._compile(definitions)
        for (number, place), block in zip(origins, blocks, strict=True):
            assert number == len(self.decoded.table)
            self.decoded.block_start.append(place)
            self.decoded.block_try.append(self.flow.protect[place])
            self.decoded.table.append(block)
        return wanted

    def raiser(self, index: int) -> FunctionType:
        """Generate `def f(R): raise take(R, value)` at the position of an instruction.

        The exception must not be a variable of the frame: it would hold itself, through its traceback.
        """
        taken = call(name(".take"), name(".R"), const(self.layout.value))
        return self._compile([_definition(".raise", index, [ast.Raise(taken, None)], [".R"])])[0]

    def _compile(self, definitions: list[ast.stmt]) -> list[FunctionType]:
        """Compile definitions inside a factory that makes our helpers closure variables of theirs."""
        decoded = self.decoded
        variables: dict[str, Any] = {**SUPPORT, ".C": decoded.counts, ".G": decoded.environment.globals}
        factory = _definition(_FACTORY, 0, definitions, list(variables))
        tree = ast.Module([factory], [])
        _fill_places(factory, 1)
        filename = self.function.filename or f"<msir {self.program.name}>"
        module = compile(tree, filename, "exec", dont_inherit=True)
        outer = next(c for c in module.co_consts if isinstance(c, CodeType) and c.co_name == _FACTORY)
        cells = {n: CellType(value) for n, value in variables.items()}
        made = []
        for code in outer.co_consts:
            if isinstance(code, CodeType):
                own = self._own_code(code)
                closure = tuple(cells[n] for n in own.co_freevars)
                made.append(FunctionType(own, decoded.environment.globals, own.co_name, None, closure))
        assert len(made) == len(definitions)
        return made

    def _own_code(self, code: CodeType) -> CodeType:
        """Give generated code the user's name, file and positions, and the program's own constants."""
        f = self.function
        first_line = max(f.first_line, 1)
        units = unit_indexes(code)
        own = code.replace(
            co_name=f.name,
            co_qualname=f.qualname or f.name,
            co_firstlineno=first_line,
            co_linetable=encode_positions(units, f.spans, self._lines, first_line),
            co_consts=tuple(self._own_constant(c) for c in code.co_consts),
        )
        self.decoded._units[id(own)] = (own, units)
        return own

    def _own_constant(self, value: object) -> object:
        """Return the program's object for a literal: two reads of one constant give one object."""
        if not is_literal(value):
            return value
        return self._constants.get(constant_key(value), value)

    @cached_property
    def _lines(self) -> list[int]:
        return inherited_lines(self.function.spans, max(self.function.first_line, 1))

    @cached_property
    def _constants(self) -> dict[object, object]:
        return {constant_key(c): c for c in self.program.constants if is_literal(c)}


def _fill_places(node: ast.AST, line: int) -> None:
    """Give every node without a line that of the node around it: `ast.fix_missing_locations`, three times as fast."""
    fields = node.__dict__
    own = fields.get("lineno")
    children = list(fields.values())
    if own is not None:
        line = own
    elif node._attributes:
        fields["lineno"] = fields["end_lineno"] = line
        fields["col_offset"] = fields["end_col_offset"] = 0
    for child in children:
        if isinstance(child, ast.AST):
            _fill_places(child, line)
        elif type(child) is list:
            for item in child:
                if isinstance(item, ast.AST):
                    _fill_places(item, line)


def _definition(identifier: str, index: int, body: list[ast.stmt], arguments: list[str]) -> ast.FunctionDef:
    # Parsed, not constructed, so that fields later Pythons add have their defaults.
    definition = ast.parse("def f(): pass").body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.name = identifier
    definition.args.args = [ast.arg(a) for a in arguments]
    definition.body = body
    definition.lineno = definition.end_lineno = index + 1
    definition.col_offset = definition.end_col_offset = 0
    return definition
