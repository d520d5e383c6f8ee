"""Entering machine code from Python: check the arguments, fill the frame, call, make the results.

In: the `Interface` of a lowered region, the conditions it was traced under, and mapped code. Out: `Entry`, called with
the argument tuple of a function; it gives the result or `MISS`. The checks and conversions are generated as Python
source for the one interface, so that a call costs a few microseconds and no dictionary of shapes is ever built.

Invariants: nothing that the caller can see is written before the code has returned 0 and the results are made (then it
is called again to write, see `compiler.commit`); any guard that fails, any exit
the code takes, any result size that does not exist and any watched floating-point flag gives MISS, after which the
interpreter runs the call from its start and behaves as NumPy does. The argument objects are alive during the call.
"""

from __future__ import annotations

import ctypes
import struct
import time
import weakref
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Sequence_
from types import FunctionType
from typing import Any, Final

import numpy as np

from tiercel.codegen.abi import ARENA, POOL, THREADS
from tiercel.codegen.pieces import Library
from tiercel.compiler.abstract import Source
from tiercel.compiler.environment import Condition
from tiercel.compiler.interface import (
    Constant,
    EitherOf,
    GrownArray,
    InputSpec,
    Interface,
    NewArray,
    Recipe,
    SameInput,
    ScalarOutput,
    Sequence,
    SizeValue,
    ViewOf,
    new_arrays,
)
from tiercel.compiler.memory import dense_strides
from tiercel.config import current
from tiercel.errors import InternalError
from tiercel.operators.layout import layout_class
from tiercel.shapes import Dim, DimLike, Symbol
from tiercel.shapes.dims import Node, Sum
from tiercel.values.growth import Growing
from tiercel.values.tensor import Tensor, adopt, mark_written, view_of
from tiercel.vm.arrays import make_view
from tiercel.vm.packs import Packs, packed_bytes
from tiercel.vm.stub import Table

__all__ = ["MISS", "Entry", "Frames", "make_entry"]


class _Miss:
    def __repr__(self) -> str:
        return "MISS"


MISS: Final = _Miss()
"""What an entry gives when the interpreter has to run the call."""

ENTRY_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_P, _L = ctypes.c_void_p, ctypes.c_int64
PACK_TYPE = ctypes.CFUNCTYPE(None, _P, _L, _L, _P, _L, _L)
PANELS_TYPE = ctypes.CFUNCTYPE(None, _P, _L, _L, _P, _L, _L, _L, _P)
SIZE_TYPE = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)

# MXCSR flags and the kind of NumPy's error state that watches them
_FLAGS: Final = (("invalid", 1), ("divide", 4), ("over", 8), ("under", 16))
_DEFAULT_WATCH: Final = 1 | 4 | 8


class Arenas:
    """Memory for the arenas of active calls: taken for a call, given back, forgotten when much larger than needed.

    Attributes:
        active: bytes of blocks that calls have, counted while the setting `memory_limit` is on.
        made: blocks that were not there yet.
        refused: calls that the limit sent to the interpreter.
    """

    def __init__(self) -> None:
        self._free: list[np.ndarray[Any, Any]] = []
        self.made = 0
        self.active = self.refused = 0

    def take(self, size: int) -> np.ndarray[Any, Any]:
        """A block of at least `size` bytes plus alignment.

        Raises:
            MemoryError: there is not so much, or not within `memory_limit`.
        """
        limit = current().memory_limit
        if limit is not None:
            self._free.clear()
            if sum(fixed_bytes()) + self.active + size + 64 > limit:
                self.refused += 1
                raise MemoryError(f"an arena of {size} bytes is not within memory_limit")
            self.active += size + 64
            self.made += 1
            return np.empty(size + 64, np.uint8)
        try:
            block = self._free.pop()
        except IndexError:
            self.made += 1
            return np.empty(size + 64, np.uint8)
        if block.size >= size + 64 and block.size <= 16 * (size + 4096):
            return block
        self.made += 1
        return np.empty(size + 64, np.uint8)

    def give(self, block: np.ndarray[Any, Any]) -> None:
        """Keep a block for the next call."""
        if self.active:
            self.active -= min(block.size, self.active)
            return
        if len(self._free) < 4:
            self._free.append(block)

    def release(self) -> int:
        """Let go of what no call uses; returns the bytes."""
        blocks, self._free = self._free, []
        return sum(b.size for b in blocks)

    @property
    def held(self) -> int:
        """Bytes kept for later calls."""
        return sum(b.size for b in list(self._free))


ARENAS: Final = Arenas()


def watched_flags() -> int:
    """The MXCSR flags that NumPy's error state of this thread or task does not ignore."""
    state: dict[str, Any] = dict(np.geterr())
    return sum((bit if state[name] != "ignore" else 0) for name, bit in _FLAGS)


try:
    from numpy._core.umath import _extobj_contextvar

    _default_state = None

    def current_watch() -> int:
        """`watched_flags`, quickly where the error state was never touched."""
        global _default_state
        state = _extobj_contextvar.get()
        if state is _default_state:
            return _DEFAULT_WATCH
        watch = watched_flags()
        if _default_state is None and watch == _DEFAULT_WATCH:
            _default_state = state
        return watch

except ImportError:  # another NumPy
    current_watch = watched_flags


class Frames:
    """What all entries share: the library functions that call and pack (by dtype, and whether as panels), the thread
    pool.

    Attributes:
        stub: address of the machine-code entry stub, 0 for none.
        shared: pool, threads and tried as words for the stub.
        library: the library that the functions are in, where it is mapped code of ours.
    """

    library: Library | None = None

    def __init__(
        self,
        call: int,
        *,
        pool: int = 0,
        threads: int = 1,
        pack: Mapping[tuple[str, bool], int] | None = None,
        stub: int = 0,
    ) -> None:
        self.call = ENTRY_TYPE(call)
        self.pack: Mapping[tuple[str, bool], Any] = {
            key: (PANELS_TYPE if key[1] else PACK_TYPE)(address) for key, address in (pack or {}).items()
        }
        self.stub = stub
        self.shared = np.zeros(3, np.int64)
        self.pool = pool
        self.threads = threads
        self.tried = True  # whether a pool was made, or is not wanted

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name in _SHARED:
            self.shared[_SHARED.index(name)] = value

    def revive(self) -> int:
        """The address of the pool, made if it should be there."""
        return self.pool


_SHARED: Final = ("pool", "threads", "tried")


_entries: Final[weakref.WeakSet[Entry]] = weakref.WeakSet()


def fixed_bytes() -> tuple[int, int]:
    """Bytes of machine code and of packed operands that entries hold."""
    entries = list(_entries)
    return (
        sum(getattr(kept, "size_bytes", 0) for entry in entries for kept in entry.keep),
        packed_bytes(),
    )


class Entry:
    """A way into machine code for one kind of arguments.

    Attributes:
        run: `run(arguments) -> result | MISS`, in Python.
        table: the same for the machine-code stub; None where that cannot do it, for the reason `without`.
        stub: built-in function of the arguments, made of the table.
        misses, exits, flagged: why it did not run.
        why: the reason of the last miss, and the instruction at which the code left, if it did.
        packs: the packed forms of frozen operands.
        python_calls, python_ns: calls that went through `run`, all of them timed.
        timed, timed_ns: calls through the stub that were timed.
        code: address of the machine code.
        taken: arenas that had to be allocated for calls through `run`.
    """

    __slots__ = (
        "__weakref__", "_names", "code", "description", "exits", "flagged", "keep", "misses", "packs", "python_calls",
        "python_ns", "run", "sites", "source", "stub", "table", "taken", "timed", "timed_ns",
        "why", "without",
    )  # fmt: skip

    def __init__(self, description: str, sites: tuple[int, ...], keep: tuple[Any, ...]) -> None:
        self.description = description
        self.sites = sites
        self.keep = keep
        self.misses = self.flagged = 0
        self.python_calls = self.python_ns = self.timed = self.timed_ns = 0
        self.exits: dict[int, int] = {}
        self.packs: list[Packs] = []
        self.source = ""
        self.run: Callable[[tuple[Any, ...]], Any] = lambda arguments: MISS
        self.code = self.taken = 0
        self._names: dict[str, Any] = {}
        self.table: Table | None = None
        self.stub: Callable[..., Any] | None = None
        self.without = ""
        self.why: tuple[str, int | None] = ("", None)
        _entries.add(self)

    @property
    def calls(self) -> int:
        """Results given."""
        return self.python_calls + (self.table.calls if self.table is not None else 0)

    @property
    def time_ns(self) -> int:
        """Time spent inside. Of calls through the stub one in so many is timed, and counts for the others."""
        calls = self.table.calls if self.table is not None else 0
        return self.python_ns + (self.timed_ns * max(calls, self.timed) // self.timed if self.timed else 0)

    @property
    def allocations(self) -> int:
        """Arenas allocated for calls: what compiled code allocates beside its results."""
        return self.taken + (self.table.allocations if self.table is not None else 0)

    @property
    def launches(self) -> int:
        """How often the code was entered; it may have left by an exit."""
        return self.calls + sum(self.exits.values()) + self.flagged

    @property
    def packed_bytes(self) -> int:
        """Bytes of operands that were copied into packed form."""
        return sum(packs.copied for packs in self.packs)

    def replace_code(self, code: int, keep: tuple[Any, ...]) -> None:
        """Run other machine code from now on: the same function compiled again. A call sees the old or the new one.

        What is replaced stays mapped as long as the entry lives: a call may be inside.
        """
        self.keep = (*self.keep, *keep)
        old, self.code = self.code, code
        self._names["code"] = code
        if self.table is not None:
            self.table.replace_code(old, code, keep)

    def follow(self, other: Entry) -> None:
        """Take over what another entry of the same calls has counted."""
        calls, spent, taken = other.calls, other.time_ns, other.allocations
        self.timed = self.timed_ns = 0
        self.python_calls = self.python_ns = self.taken = 0
        self.python_calls = calls - self.calls
        self.python_ns, self.taken = spent, taken - self.allocations
        self.misses, self.flagged, self.exits = other.misses, other.flagged, dict(other.exits)

    def stopped(self) -> bool:
        """Did the stub run the code, and the code did not come to its end? Accounts for it."""
        status = self.table.take_status() if self.table is not None else 0
        if not status:
            return False
        site = status & 0xFFFFFFFF
        if site:
            self.left(site)
        else:
            self.warned()
        return True

    def left(self, site: int) -> _Miss:
        """The code has taken an exit."""
        self.exits[site] = self.exits.get(site, 0) + 1
        self.why = (LEFT, self.sites[site - 1] if site <= len(self.sites) else None)
        return MISS

    def warned(self) -> _Miss:
        """The code has raised a floating-point flag that is watched."""
        self.flagged += 1
        self.why = (WARNED, None)
        return MISS


LEFT: Final = "left to the interpreter at a check (an index, a size, a value or an exception there)"
WARNED: Final = "run again by the interpreter, which gives NumPy's floating-point warning"
SIZES: Final = "sizes do not agree as they did in the call it was compiled for"
CHANGED: Final = "a global, an attribute, a captured variable or the structure of an argument is another one"
KIND: Final = "an argument is of another kind, not aligned, or out of range"
READ_ONLY: Final = "an array that is written is read-only"
SHARED: Final = "an array that is written shares memory with another argument, or with itself"
NO_MEMORY: Final = "an arena is not within memory_limit, or there is no memory for it"
FAILED: Final = "something it looks up is not there"


def _whole(x: DimLike) -> int:
    if isinstance(x, Dim):
        raise InternalError(f"a packed operand of changing size {x}", stage="entry")
    return x


def _size_text(x: DimLike) -> str:
    """A size as a Python expression over local variables named after its symbols."""
    if not isinstance(x, Dim):
        return str(x)
    if isinstance(x, Symbol):
        return _local(x.name)
    if isinstance(x, Node):
        parts = [_size_text(a) for a in x.args]
        if x.op in ("//", "%"):
            return f"({parts[0]} {x.op} {parts[1]})"
        if x.op == "bcast":
            return f"_bcast({', '.join(parts)})"
        return f"{x.op}({', '.join(parts)})"
    assert isinstance(x, Sum)
    terms = []
    for monomial, coefficient in x.terms:
        factors = [_size_text(a) for a in monomial]
        if coefficient != 1 or not factors:
            factors.insert(0, str(coefficient))
        terms.append("*".join(factors))
    return f"({' + '.join(terms)})" if terms else "0"


def _bcast(*sizes: int) -> int:
    found = {s for s in sizes if s != 1}
    if len(found) > 1:
        raise ValueError("sizes that do not broadcast")
    return found.pop() if found else 1


def _local(name: str) -> str:
    return "s_" + "".join(c if c.isalnum() else "_" for c in name)


class _Writer:
    """The source of one entry function and the objects it refers to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.classes: Sequence_[type] = ()
        self.made: dict[int, str] = {}  # results that have a name, by the id of their recipe
        self.depth = 2
        self.reason = "CHANGED"  # of the checks that are being written: the name of a text
        self._count = 0

    def object(self, value: Any, hint: str = "k") -> str:
        """A name by which the source refers to an object."""
        self._count += 1
        name = f"_{hint}{self._count}"
        self.names[name] = value
        return name

    def line(self, text: str, depth: int = 0) -> None:
        text = text.replace("return MISS", f"return miss({self.reason})")
        self.lines.append("    " * (depth or self.depth) + text)


class _Sources:
    """Python expressions for the places values are read from; each is read once per call."""

    def __init__(self, writer: _Writer, functions: Mapping[int, FunctionType]) -> None:
        self.writer = writer
        self.functions = functions
        self.known: dict[Source, str] = {}

    def text(self, source: Source) -> str:
        """A local variable that holds the value at `source`."""
        found = self.known.get(source)
        if found is not None:
            return found
        writer = self.writer
        kind, detail = source
        if kind == "register":
            expression = f"arguments[{detail}]"
        elif kind == "global":
            where, name = detail
            values = next(f.__globals__ for f in self.functions.values() if id(f.__globals__) == where)
            table = writer.object(values, "globals")
            builtin = values.get("__builtins__", {})
            fallback = builtin if isinstance(builtin, dict) else vars(builtin)
            expression = f"{table}[{name!r}]" if name in values else f"{writer.object(fallback, 'builtins')}[{name!r}]"
            if name not in values:
                writer.line(f"if {name!r} in {table}: return MISS")
        elif kind == "cell":
            where, position = detail
            cell = (self.functions[where].__closure__ or ())[position]
            expression = f"{writer.object(cell, 'cell')}.cell_contents"
        elif kind == "attribute":
            expression = f"{self.text(detail[0])}.{detail[1]}"
        elif kind == "item":
            expression = f"{self.text(detail[0])}[{detail[1]!r}]"
        else:
            raise InternalError(f"no way to read {source}", stage="entry")
        name = f"v{len(self.known)}"
        writer.line(f"{name} = {expression}")
        self.known[source] = name
        return name


def make_entry(
    interface: Interface,
    conditions: Mapping[Any, Condition],
    functions: Mapping[int, FunctionType],
    *,
    words: Mapping[str, int],
    frame_size: int,
    code: int,
    arena: int,
    frames: Frames,
    description: str,
    sites: tuple[int, ...] = (),
    keep: tuple[Any, ...] = (),
    classes: Sequence_[type] = (),
) -> Entry:
    """Make the entry of one region.

    Args:
        interface: how it is called.
        conditions: what must still hold of the environment.
        functions: the functions whose globals and cells are read, by id.
        words: frame word of every size, scalar, buffer and output.
        frame_size: words of the frame.
        code, arena: addresses of the function and of its arena size.
        frames: shared parts.
        description: for people.
        sites: instruction index per exit.
        keep: what must stay alive as long as the entry (mapped code).
        classes: named tuples that results are made of.
    """
    entry = Entry(description, sites, keep)
    writer = _Writer()
    writer.classes = classes
    sources = _Sources(writer, functions)
    names = writer.names
    names.update(
        layout=layout_class, bump=mark_written, view=make_view, adopt=adopt, overlap=np.may_share_memory,
        distinct=distinct_elements,
        MISS=MISS, ndarray=np.ndarray, empty=np.empty, entry=entry, _bcast=_bcast, Tensor=Tensor, arenas=ARENAS,
        call=frames.call, code=code, frames=frames, watch=current_watch, tensor=_tensor, clock=time.perf_counter_ns,
        arena_size=SIZE_TYPE(arena), frame_type=ctypes.c_int64 * frame_size, address=ctypes.addressof,
    )  # fmt: skip
    for condition in conditions.values():
        _condition(writer, sources, condition)
    for spec in interface.inputs:
        writer.reason = "KIND"
        _check_input(writer, sources, spec)
    writer.reason = "SIZES"
    filled: dict[int, str] = {POOL: "frames.pool if frames.tried else frames.revive()", THREADS: "frames.threads"}
    bound = _bind_sizes(writer, interface)
    for spec in interface.inputs:
        if spec.kind == "array":
            filled[words[spec.name]] = f"a_{spec.name}.ctypes.data"
        elif spec.value is None:
            filled[words[spec.name]] = _scalar_bits(writer, spec)
    for size in interface.sizes:
        if size.what == "symbol":
            filled[words[size.name]] = _local(size.name)
        elif size.what == "stride":
            array = f"a_{interface.inputs[size.input].name}"
            itemsize = interface.inputs[size.input].dtype.itemsize
            writer.line(f"if {array}.strides[{size.axis}] % {itemsize}: return MISS")
            writer.line(f"{_local(size.name)} = {array}.strides[{size.axis}] // {itemsize}")
            filled[words[size.name]] = _local(size.name)
    for pack in interface.packs:
        spec = interface.inputs[pack.input]
        dims = tuple(_whole(d) for d in (pack.k, pack.n, *pack.strides, pack.offset))
        packs = Packs(f"{spec.dtype.name}{pack.layout}", dims, frames.pack, pack.panels)
        entry.packs.append(packs)
        packed = writer.object(packs, "packed")
        filled[words[pack.buffer]] = f"{packed}.ask({sources.text(spec.source)}, a_{spec.name})"
    del bound
    for write in interface.writes:
        spec = interface.inputs[write.input]
        _check_written(writer, interface, write.input)
        filled[words[write.buffer]] = f"a_{spec.name}.ctypes.data"
    (recipe,) = interface.results["return"].values()
    growing: dict[str, str] = {}
    for new in new_arrays(recipe):
        if isinstance(new, GrownArray):
            growing[new.buffer] = _begin_growth(writer, interface, sources, new, words, filled)
            continue
        shape = "".join(f"{_size_text(d)}, " for d in new.shape)
        dtype = writer.object(new.dtype.numpy, "dtype")
        if new.order and not new.fortran:
            steps = dense_strides(new.shape, new.order)
            strides = "".join(f"{_size_text(s)} * {new.dtype.itemsize}, " for s in steps)
            writer.line(f"r_{new.buffer} = ndarray(({shape}), {dtype}, strides=({strides}))")
        else:
            order = ", 'F'" if new.fortran else ""
            writer.line(f"r_{new.buffer} = empty(({shape}), {dtype}{order})")
        filled[words[new.buffer]] = f"r_{new.buffer}.ctypes.data"
    values = ", ".join(filled.get(i, "0") for i in range(frame_size))
    writer.line(f"frame = frame_type({values})")
    writer.line("place = address(frame)")
    writer.line("size = arena_size(place)")
    writer.line("before = arenas.made")
    writer.line("block = arenas.take(size)")
    writer.line("entry.taken += arenas.made - before")
    writer.line(f"frame[{ARENA}] = (block.ctypes.data + 63) & -64")
    writer.line("machine = code")  # both phases by the same
    writer.line("status = call(machine, place)")
    if not interface.writes:
        writer.line("arenas.give(block)")
    writer.line("if status:")
    writer.line("site, flags = status & 0xFFFFFFFF, status >> 32", 3)
    undone = [f"{growth}.drop()" for growth in growing.values()]
    if interface.writes:
        undone.append("arenas.give(block)")
    for test, outcome in (("site", "entry.left(site)"), ("flags & watch()", "entry.warned()")):
        writer.line(f"if {test}:", 3)
        for line in undone:
            writer.line(line, 4)
        writer.line(f"return {outcome}", 4)
    if interface.writes:
        # Whatever may fail comes before the inputs are written; a result that cannot be made leaves them as they were.
        writer.line("try:")
        writer.depth = 3
        writer.line("result = " + _result(writer, recipe, interface, words, sources))
        writer.depth = 2
        writer.line("except BaseException:")
        writer.line("arenas.give(block)", 3)
        writer.line("raise", 3)
    else:
        writer.line("entry.python_calls += 1")
        writer.line(f"return {_result(writer, recipe, interface, words, sources)}")
    body = "\n".join(writer.lines)
    text = (
        f"def run(arguments):\n    try:\n{body}\n    except MemoryError:\n        return miss(NO_MEMORY)\n"
        "    except Errors:\n        return miss(FAILED)\n"
    )
    if interface.writes:
        phase = next(words[size.name] for size in interface.sizes if size.what == "phase")
        lines = [
            f"bump({sources.known[interface.inputs[w.input].source]})" for w in interface.writes
            if interface.inputs[w.input].wrapper != "ndarray"
        ]  # fmt: skip
        lines += [
            f"frame[{phase}] = 1", "call(machine, place)", "arenas.give(block)", "entry.python_calls += 1",
            "return result",
        ]  # fmt: skip
        text += "".join(f"    {line}\n" for line in lines)
    names["Errors"] = (LookupError, AttributeError, ValueError, TypeError)

    def miss(reason: str) -> _Miss:
        entry.why = (reason, None)
        return MISS

    names.update(
        miss=miss, SIZES=SIZES, CHANGED=CHANGED, KIND=KIND, READ_ONLY=READ_ONLY, SHARED=SHARED, NO_MEMORY=NO_MEMORY,
        FAILED=FAILED,
    )  # fmt: skip
    exec(compile(text, f"<tiercel entry {description}>", "exec"), names)
    entry.source = text
    run = names["run"]

    def counted(arguments: tuple[Any, ...]) -> Any:
        result = run(arguments)
        if result is MISS:
            entry.misses += 1
        return result

    entry.run = counted
    entry.code, entry._names = code, names
    return entry


def _condition(writer: _Writer, sources: _Sources, condition: Condition) -> None:
    value = sources.text(condition.source)
    expected = writer.object(condition.expected, "expected")
    match condition.what:
        case "identity":
            writer.line(f"if {value} is not {expected}: return MISS")
        case "value":
            kind = writer.object(type(condition.expected), "kind")
            writer.line(f"if type({value}) is not {kind} or not ({_same(value, expected, condition)}): return MISS")
        case "function":
            writer.line(f"if {value}.__func__ is not {expected}: return MISS")
        case "tuple":
            writer.line(f"if type({value}) is not tuple or len({value}) != {expected}: return MISS")
        case "list":
            writer.line(f"if type({value}) is not list or len({value}) != {expected}: return MISS")
        case "length":
            writer.line(f"if len({value}) != {expected}: return MISS")
        case "class":
            writer.line(f"if type({value}) is not {expected}: return MISS")
        case "dict":
            writer.line(f"if type({value}) is not dict or tuple({value}) != {expected}: return MISS")


def _same(value: str, expected: str, condition: Condition) -> str:
    """Whether a value is the one that was written into the code: 0.0 is not -0.0, and a NaN is itself."""
    if type(condition.expected) is float:
        return f"{value}.hex() == {condition.expected.hex()!r}"
    if type(condition.expected) in (complex, tuple):
        return f"repr({value}) == {repr(condition.expected)!r}"
    return f"{value} == {expected}"


def _check_input(writer: _Writer, sources: _Sources, spec: InputSpec) -> None:
    """Exact type, dtype, rank, layout."""
    value = sources.text(spec.source)
    if spec.kind == "array":
        name = f"a_{spec.name}"
        if spec.wrapper == "ndarray":
            writer.line(f"if type({value}) is not ndarray: return MISS")
            writer.line(f"{name} = {value}")
        else:
            writer.line(f"{name} = tensor({value})")
            writer.line(f"if {name} is None: return MISS")
        dtype = writer.object(spec.dtype.numpy, "dtype")
        checks = [f"{name}.dtype is not {dtype} and {name}.dtype != {dtype}", f"{name}.ndim != {len(spec.dims)}"]
        flags = f"{name}.flags"
        checks.append(f"not {flags}.aligned")
        if spec.contiguous or spec.layout == "F":
            checks.append(f"not {flags}.{'c' if spec.contiguous else 'f'}_contiguous")
        writer.line(f"if {' or '.join(checks)}: return MISS")
        if spec.layout == "rows" and not spec.contiguous:
            writer.line(f"if layout({name}) not in ('C', 'rows'): return MISS")
        return
    kinds = {"pyint": "int", "pyfloat": "float", "pybool": "bool"}
    if spec.kind in kinds:
        writer.line(f"if type({value}) is not {kinds[spec.kind]}: return MISS")
        if spec.kind == "pyint":
            writer.line(f"if not -9223372036854775808 <= {value} <= 9223372036854775807: return MISS")
    else:
        writer.line(f"if type({value}) is not {writer.object(spec.dtype.numpy.type, 'scalar')}: return MISS")
    writer.line(f"x_{spec.name} = {value}")


def _check_written(writer: _Writer, interface: Interface, number: int) -> None:
    """An input that is written: writeable, each element a place of its own, and no memory shared with other inputs.

    Bounds are compared, as NumPy does where it decides whether to make a copy: two arrays whose elements lie between
    one another's are taken for overlapping.
    """
    spec = interface.inputs[number]
    name = f"a_{spec.name}"
    writer.reason = "READ_ONLY"
    writer.line(f"if not {name}.flags.writeable: return MISS")
    writer.reason = "SHARED"
    if not spec.contiguous:
        writer.line(f"if not distinct({name}): return MISS")
    written = {write.input for write in interface.writes}
    for other, given in enumerate(interface.inputs):
        if given.kind == "array" and other != number and not (other in written and other < number):
            writer.line(f"if overlap({name}, a_{given.name}): return MISS")


def distinct_elements(array: np.ndarray[Any, Any]) -> bool:
    """Has every element surely memory of its own?"""
    inside = array.itemsize
    for stride, size in sorted((abs(stride), size) for stride, size in zip(array.strides, array.shape, strict=True)):
        if size == 0:
            return True
        if size > 1:
            if stride < inside:
                return False
            inside += stride * (size - 1)
    return True


def _bind_sizes(writer: _Writer, interface: Interface) -> set[str]:
    """Symbols get their value where they first stand alone; everything else must agree."""
    bound: set[str] = set()
    later: list[tuple[str, DimLike]] = []
    for spec in interface.inputs:
        places = [(f"a_{spec.name}.shape[{axis}]", dim) for axis, dim in enumerate(spec.dims)]
        if spec.value is not None:
            places.append((f"x_{spec.name}", spec.value))
        for text, dim in places:
            if isinstance(dim, Symbol) and dim.name not in bound:
                bound.add(dim.name)
                writer.line(f"{_local(dim.name)} = {text}")
            else:
                later.append((text, dim))
    for text, dim in later:
        writer.line(f"if {text} != {_size_text(dim)}: return MISS")
    return bound


def _scalar_bits(writer: _Writer, spec: InputSpec) -> str:
    """A scalar as the bits of a frame word."""
    name = f"x_{spec.name}"
    if spec.kind in ("pyint", "pybool") or spec.dtype.kind in "ib":
        return f"int({name})"
    if spec.dtype.kind == "u":
        return f"({name}.__index__() ^ 0x8000000000000000) - 0x8000000000000000"
    bits = writer.object(_bits_of(spec.dtype.name), "bits")
    return f"{bits}({name})"


def _bits_of(name: str) -> Callable[[Any], int]:
    if name == "float64":
        return lambda x: int(struct.unpack("<q", struct.pack("<d", x))[0])
    dtype = np.dtype(name) if name != "bfloat16" else None

    def bits(x: Any) -> int:
        raw = (np.asarray(x) if dtype is None else np.asarray(x, dtype)).tobytes()
        return int.from_bytes(raw, "little")

    return bits


def _tensor(value: Any) -> np.ndarray[Any, Any] | None:
    """The array of a Tensor or Parameter, None for anything else."""
    return value._array if isinstance(value, Tensor) else None


def _begin_growth(
    writer: _Writer,
    interface: Interface,
    sources: _Sources,
    new: GrownArray,
    words: Mapping[str, int],
    filled: dict[int, str],
) -> str:
    """Lines that reserve room for a result which continues an input; the name of its `Growing`."""
    spec = interface.inputs[new.input]
    name = f"g_{new.buffer}"
    writer.names[name] = Growing(new.axis, view_of)
    size = f"{_size_text(new.shape[new.axis])} - {_size_text(spec.dims[new.axis])}"
    writer.line(f"r_{new.buffer} = {name}.begin({sources.text(spec.source)}, {size}, 1)")
    filled[words[new.buffer]] = f"r_{new.buffer}"
    if new.capacity:
        filled[words[new.capacity]] = f"{name}.capacity()"
    return name


def _result(writer: _Writer, recipe: Recipe, interface: Interface, words: Mapping[str, int], sources: _Sources) -> str:
    known = writer.made.get(id(recipe))
    if known is not None:
        return known
    match recipe:
        case GrownArray():
            return f"g_{recipe.buffer}.end()"
        case NewArray():
            name = f"r_{recipe.buffer}"
            if recipe.wrapper != "ndarray":
                writer.line(f"t{name} = Tensor({name})")
                name = f"t{name}"
            writer.made[id(recipe)] = name
            return name
        case EitherOf():
            text = _result(writer, recipe.new, interface, words, sources)
            for number in recipe.inputs:
                passed = sources.known[interface.inputs[number].source]
                text = f"({passed} if frame[{words[recipe.tag]}] == {number} else {text})"
            return text
        case ViewOf():
            return _view(writer, recipe, interface, words, sources)
        case ScalarOutput():
            return _scalar_result(writer, recipe, words[recipe.output])
        case SameInput():
            return sources.known[interface.inputs[recipe.index].source]
        case SizeValue():
            return _size_text(recipe.value)
        case Constant():
            return writer.object(recipe.value, "constant")
        case Sequence():
            inner = "".join(f"{_result(writer, item, interface, words, sources)}, " for item in recipe.items)
            if recipe.wrap >= 0:
                return f"{writer.object(writer.classes[recipe.wrap], 'class')}({inner})"
            return f"({inner})" if recipe.kind == "tuple" else f"[{inner}]"
    raise InternalError(f"no way to make a {type(recipe).__name__}", stage="entry")


def _view(writer: _Writer, recipe: ViewOf, interface: Interface, words: Mapping[str, int], sources: _Sources) -> str:
    base = _result(writer, recipe.base, interface, words, sources)
    if isinstance(recipe.base, SameInput):
        array = f"a_{interface.inputs[recipe.base.index].name}"
    else:
        array = f"r_{recipe.base.buffer}"
    itemsize = recipe.dtype.itemsize
    for symbol in recipe.computed:
        writer.line(f"{_local(symbol)} = frame[{words[symbol]}]")
    shape = "".join(f"{_size_text(d)}, " for d in recipe.shape)
    strides = "".join(f"{_size_text(s)} * {itemsize}, " for s in recipe.strides)
    name = f"w{len(writer.made)}"
    writer.line(f"{name} = view({array}, ({shape}), ({strides}), {_size_text(recipe.offset)} * {itemsize})")
    if recipe.wrapper != "ndarray":
        writer.line(f"{name} = adopt({name}, ({base},))")
    writer.made[id(recipe)] = name
    return name


def _scalar_result(writer: _Writer, recipe: ScalarOutput, word: int) -> str:
    if recipe.kind == "pyint":
        return f"frame[{word}]"
    if recipe.kind == "pybool":
        return f"(frame[{word}] & 0xFF) != 0"
    if recipe.kind == "pyfloat":
        convert = writer.object(lambda x: struct.unpack("<d", struct.pack("<q", x))[0], "float")
        return f"{convert}(frame[{word}])"
    dtype = recipe.dtype.numpy

    def scalar(x: int) -> Any:
        return np.frombuffer(struct.pack("<q", x)[: dtype.itemsize], dtype)[0]

    return f"{writer.object(scalar, 'scalar')}(frame[{word}])"
