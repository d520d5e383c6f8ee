"""Tables for the machine-code entry stub (`codegen.cpu.stub`), and functions made of them.

In: what an entry in Python is made of (`vm.entry`): the `Interface` of a region, the conditions it was traced under,
its mapped code. Out: a `Table`, or the reason why only the entry in Python can do it; and, from the tables of several
entries, one built-in function of CPython that tries them in order and gives the result or MISS.

Invariants: a table is stricter than the entry in Python, never looser: MISS means "ask the other one". Everything whose
address stands in a table is kept alive by the function made of it, which CPython keeps alive while a call is inside.
"""

from __future__ import annotations

import contextvars
import ctypes
import functools
import sys
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any, Final

import numpy as np

from tiercel.codegen.cpu.estimate import work_of
from tiercel.codegen.cpu.growing import CLAIMS
from tiercel.codegen.cpu.stub import (
    ALIGNED,
    API,
    C_CONTIGUOUS,
    F_CONTIGUOUS,
    FORTRAN,
    HEAD,
    HEADER,
    MAX_VALUES,
    MAX_WORDS,
    OFFSETS,
    ROW,
    SAMPLE,
    WRITEABLE,
    Head,
    Header,
    Op,
)
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
    SizeValue,
    ViewOf,
    new_arrays,
)
from tiercel.compiler.interface import Sequence as SequenceRecipe
from tiercel.compiler.memory import dense_strides
from tiercel.errors import InternalError
from tiercel.loops.form import Binary, Const, Expr, Function, Var
from tiercel.shapes import Dim, DimLike, Symbol
from tiercel.shapes.dims import Node, Sum
from tiercel.values.parameter import Parameter
from tiercel.values.storage import Storage
from tiercel.values.tensor import Tensor, mark_written
from tiercel.vm.arrays import numpy_functions
from tiercel.vm.growing import growth_record, slots_differ
from tiercel.vm.packs import Packs

__all__ = ["Table", "make_function", "make_preamble", "make_table", "unusable"]

RELEASE_WORK: Final = 33_000
"""Work units (0.06 ns each: about 2 us) from which on the interpreter lock is released, which costs 0.06 us."""

_PYTHON: Final = tuple(name for name in API if name.startswith("Py") and not name.startswith("PyArray"))
_NUMPY: Final = {
    "PyArray_Empty": 184, "PyArray_Scalar": 60, "PyArray_ScalarAsCtype": 62, "PyArray_NewFromDescr": 94,
    "PyArray_SetBaseObject": 282,
}  # fmt: skip
"""Places in NumPy's table of functions (`__multiarray_api.h`), the same since 1.7."""
_ARRAY_TYPE: Final = 2
_METH_FASTCALL: Final = 0x80


# ---- where it can be used ------------------------------------------------------------------------------------------


@functools.cache
def unusable() -> str | None:
    """Why calls enter compiled code through Python here; None where the machine-code stub can be used."""
    if sys.implementation.name != "cpython":
        return f"{sys.implementation.name} is not CPython"
    if "t" in getattr(sys, "abiflags", ""):  # PEP 703; `sysconfig` says it, too, and takes a millisecond to load
        return "a free-threaded build has other object headers"
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return "pointers of 64 bits are needed"
    return _offsets_differ() or _slots()[1] or _addresses()[1]


def _offsets_differ() -> str | None:
    """Compare the fields of a few arrays, read at the offsets of the stub, with what NumPy says."""
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    fixed = base.copy()
    fixed.flags.writeable = False
    if np.ndarray.__basicsize__ < OFFSETS["flags"] + 4:
        return f"arrays of {np.ndarray.__basicsize__} bytes are smaller than those known"

    def read(kind: Any, address: int) -> Any:
        return kind.from_address(address).value

    for array in (base, base.T, base[1:, ::-1], np.array(1.5), base.astype(">f4"), fixed, np.zeros((0, 7), np.int16)):
        at = id(array)
        rank = array.ndim
        found = {
            "type": read(ctypes.c_size_t, at + OFFSETS["type"]) == id(np.ndarray),
            "data": read(ctypes.c_size_t, at + OFFSETS["data"]) == array.ctypes.data,
            "nd": read(ctypes.c_int32, at + OFFSETS["nd"]) == rank,
            "descr": read(ctypes.c_size_t, at + OFFSETS["descr"]) == id(array.dtype),
            "flags": read(ctypes.c_int32, at + OFFSETS["flags"]) & 0x507 == array.flags.num & 0x507,
        }
        wrong = [name for name, holds in found.items() if not holds]
        if not wrong:  # only then are the pointers what they should be
            for name, expected in (("dimensions", array.shape), ("strides", array.strides)):
                place = read(ctypes.c_size_t, at + OFFSETS[name])
                if rank and (not place or tuple((ctypes.c_int64 * rank).from_address(place)) != expected):
                    wrong.append(name)
        if wrong:
            return f"NumPy {np.__version__} keeps {', '.join(wrong)} of arrays elsewhere"
    return None


@functools.cache
def _slots() -> tuple[tuple[int, int, int], str | None]:
    """The offsets of the array and the storage in a Tensor, and of the version in a storage."""
    tensor: Any = object.__new__(Tensor)
    storage: Any = object.__new__(Storage)
    contents = (np.zeros(2), storage)
    tensor._array, tensor._storage = contents
    storage.version = mark = object()
    found: list[int] = []
    for holder, content in ((tensor, contents[0]), (tensor, storage), (storage, mark)):
        words = list((ctypes.c_size_t * (type(holder).__basicsize__ // 8)).from_address(id(holder)))
        places = [8 * i for i, word in enumerate(words) if word == id(content)]
        if len(places) != 1:
            return (0, 0, 0), f"the slots of {type(holder).__name__} are not where slots are"
        found += places
    return (found[0], found[1], found[2]), None


@functools.cache
def _addresses() -> tuple[np.ndarray[Any, Any] | None, str | None]:
    """The words of the API table; they are never moved."""
    try:
        from numpy._core.umath import _extobj_contextvar as error_state

        functions = numpy_functions(max(_NUMPY.values()) + 1)
    except (ImportError, AttributeError):
        return None, f"NumPy {np.__version__} does not show its table of functions"
    if functions[_ARRAY_TYPE] != id(np.ndarray):
        return None, f"the table of functions of NumPy {np.__version__} has another order"
    # In a context that nobody has written to, a variable has its default.
    default = contextvars.Context().run(error_state.get)
    objects: dict[str, Any] = {
        "ndarray": np.ndarray, "int": int, "float": float, "bool": bool, "True": True, "False": False, "None": None,
        "Exception": Exception, "error_state": error_state, "default_error_state": default,
    }  # fmt: skip
    libc = ctypes.CDLL(None)
    found: dict[str, int] = {name: id(value) for name, value in objects.items()}
    found.update({name: functions[place] for name, place in _NUMPY.items()})
    try:
        for library, names in ((ctypes.pythonapi, _PYTHON), (libc, ("malloc", "free"))):
            for name in names:
                found[name] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except AttributeError as error:
        return None, f"this CPython lacks a function: {error}"
    _kept.append(objects)
    return np.array([found[name] for name in API], np.int64), None


_kept: Final[list[Any]] = []


# ---- tables ----------------------------------------------------------------------------------------------------------


class Unsupported(Exception):
    """What a table cannot say."""


class Table:
    """Rows for the stub, and the counts it keeps.

    Attributes:
        address: of the words.
        keep: what must stay alive while they are used.
    """

    __slots__ = ("_array", "_words", "address", "keep")

    def __init__(
        self, rows: list[int], *, arguments: int, values: int, words: int, go_on: bool, keep: list[Any]
    ) -> None:
        header = [0] * HEADER
        header[Header.ARGUMENTS], header[Header.VALUES], header[Header.WORDS] = arguments, values, words
        header[Header.GO_ON] = int(go_on)
        self._array = np.array([*header, *rows], np.int64)
        self._words: memoryview[int] = memoryview(self._array.data)
        self.address = int(self._array.ctypes.data)
        self.keep = [self._array, *keep]

    @property
    def calls(self) -> int:
        """Results given."""
        return int(self._words[Header.CALLS])

    @property
    def allocations(self) -> int:
        """Arenas taken from the heap."""
        return int(self._words[Header.ALLOCATIONS])

    @property
    def misses(self) -> int:
        """How often a row did not hold."""
        return int(self._words[Header.MISSES])

    def replace_code(self, old: int, new: int, keep: tuple[Any, ...]) -> None:
        """Run other machine code from now on: the same function, with the same frame, compiled again.

        One aligned word is written, which calls on other threads see before or after. The old code stays mapped.
        """
        self.keep += keep  # before: functions made of this table hold on to the list
        rows = self._words[HEADER:]
        for at in range(0, len(rows), ROW):
            if rows[at] == Op.RUN and rows[at + 1] == old:
                rows[at + 1] = new

    def take_status(self) -> int:
        """What the code returned when it last stopped before its end; 0 if it did not since this was asked."""
        status = int(self._words[Header.STATUS])
        if status:
            self._words[Header.STATUS] = 0
        return status


class _Rows:
    """A table under construction."""

    def __init__(self, arguments: int, functions: Mapping[int, FunctionType]) -> None:
        self.rows: list[int] = []
        self.keep: list[Any] = []
        self.arguments = self.values = arguments
        self.words = 0
        self.functions = functions
        self.classes: Sequence[type] = ()
        self._known: dict[Source, int] = {}
        self._sizes: dict[Any, int] = {}
        self.sized: set[Source] = set()  # lists and tuples, by their exact class
        self.made: dict[int, int] = {}  # results that are made, by the id of their recipe
        self.grown = 0  # results that grow
        self.records: dict[str, int] = {}  # addresses of their records, by buffer

    def add(self, op: Op, *fields: int) -> None:
        """Append a row."""
        self.rows += [int(op), *fields, *[0] * (ROW - 1 - len(fields))]

    def object(self, value: Any) -> int:
        """The address of an object that is kept alive."""
        self.keep.append(value)
        return id(value)

    def value(self) -> int:
        """A new value."""
        self.values += 1
        if self.values > MAX_VALUES:
            raise Unsupported(f"more than {MAX_VALUES} objects")
        return self.values - 1

    def word(self) -> int:
        """A new word."""
        self.words += 1
        if self.words > MAX_WORDS:
            raise Unsupported(f"more than {MAX_WORDS} words")
        return self.words - 1

    # -- sources and conditions --

    def source(self, source: Source) -> int:
        """The value at a source, read once."""
        found = self._known.get(source)
        if found is None:
            found = self._known[source] = self._read(source)
        return found

    def _read(self, source: Source) -> int:
        kind, detail = source
        if kind == "register":
            if not 0 <= detail < self.arguments:
                raise Unsupported(f"an argument in register {detail}")
            return int(detail)
        if kind == "global":
            where, name = detail
            table = next(f.__globals__ for f in self.functions.values() if id(f.__globals__) == where)
            key = self.object(sys.intern(name))
            made = self.value()
            if name not in table:
                self.add(Op.ABSENT, self.object(table), key)
                fallback = table.get("__builtins__", {})
                table = fallback if isinstance(fallback, dict) else vars(fallback)
            self.add(Op.GLOBAL, made, self.object(table), key)
            return made
        made = self.value()
        if kind == "cell":
            where, position = detail
            cell = (self.functions[where].__closure__ or ())[position]
            self.add(Op.CELL, made, self.object(cell))
        elif kind == "attribute":
            self.add(Op.ATTRIBUTE, made, self.source(detail[0]), self.object(sys.intern(detail[1])))
        elif kind == "item":
            self.add(Op.ITEM, made, self.source(detail[0]), self.object(detail[1]))
        else:
            raise Unsupported(f"a value from {kind}")
        return made

    def condition(self, condition: Condition) -> None:
        """Rows that check a condition."""
        value = self.source(condition.source)
        expected = condition.expected
        match condition.what:
            case "identity":
                self.add(Op.IDENTITY, value, self.object(expected))
            case "value" if type(expected) in (int, str, bool, bytes):
                self.add(Op.VALUE, value, self.object(expected))
            case "value":  # of equal floats and tuples only the very object: -0.0 == 0.0
                self.add(Op.IDENTITY, value, self.object(expected))
            case "function":
                made = self.value()
                self.add(Op.ATTRIBUTE, made, value, self.object("__func__"))
                self.add(Op.IDENTITY, made, self.object(expected))
            case "class":
                self.add(Op.TYPE, value, self.object(expected))
                if expected in (list, tuple):
                    self.sized.add(condition.source)
            case "length" if condition.source in self.sized:
                self.add(Op.ITEMS, value, expected)
            case "tuple":
                self.add(Op.TYPE, value, self.object(tuple))
                self.add(Op.ITEMS, value, expected)
            case _:
                raise Unsupported(f"a condition on a {condition.what}")

    # -- sizes --

    def size(self, dim: DimLike) -> int:
        """The word of a size."""
        found = self._sizes.get(dim)
        if found is None:
            found = self._compute(dim)
            self._sizes[dim] = found
        return found

    def bind(self, symbol: Symbol, word: int) -> None:
        """The symbol has its value in this word from here on."""
        self._sizes[symbol] = word

    def bound(self, symbol: Symbol) -> bool:
        """Has the symbol got a value?"""
        return symbol in self._sizes

    def _fold(self, op: Op, words: Sequence[int]) -> int:
        first, *others = words
        for other in others:
            made = self.word()
            self.add(op, made, first, other)
            first = made
        return first

    def _compute(self, dim: DimLike) -> int:
        if not isinstance(dim, Dim):
            if not -(1 << 63) <= dim < 1 << 63:
                raise Unsupported(f"the size {dim}")
            word = self.word()
            self.add(Op.NUMBER, word, dim)
            return word
        if isinstance(dim, Symbol):
            raise Unsupported(f"the size {dim}, which no input gives")
        if isinstance(dim, Node):
            op = _NODES.get(dim.op)
            if op is None:
                raise Unsupported(f"the size {dim}")
            return self._fold(op, [self.size(a) for a in dim.args])
        assert isinstance(dim, Sum)
        terms = []
        for monomial, coefficient in dim.terms:
            factors = [self.size(a) for a in monomial]
            if coefficient != 1 or not factors:
                factors.append(self.size(coefficient))
            terms.append(self._fold(Op.MULTIPLY, factors))
        return self._fold(Op.ADD, terms) if terms else self.size(0)

    def work(self, expression: Expr, words: Mapping[str, int]) -> int:
        """The word of an amount of work."""
        match expression:
            case Const():
                return self.size(int(expression.value.real))
            case Var():
                return words[expression.name]
            case Binary(op, a, b) if op in _WORK:
                made = (self.work(a, words), self.work(b, words))
                return self._fold(_WORK[op], made)
        raise Unsupported("work that cannot be told")

    def agrees(self, value: int, axis: int, dim: DimLike) -> None:
        """The size of an axis is a dim."""
        if isinstance(dim, Dim):
            self.add(Op.SIZE, value, axis, self.size(dim))
        else:
            self.add(Op.EXTENT, value, axis, dim)


_NODES: Final = {
    "//": Op.FLOOR_DIVIDE, "%": Op.MODULO, "bcast": Op.BROADCAST, "min": Op.MINIMUM, "max": Op.MAXIMUM,
}  # fmt: skip
_WORK: Final = {"add": Op.ADD, "mul": Op.MULTIPLY, "floordiv": Op.FLOOR_DIVIDE, "min": Op.MINIMUM, "max": Op.MAXIMUM}


def make_table(
    interface: Interface,
    conditions: Mapping[Any, Condition],
    functions: Mapping[int, FunctionType],
    *,
    arguments: int,
    function: Function,
    words: Mapping[str, int],
    frame_size: int,
    code: int,
    arena: int,
    shared: int,
    packs: Sequence[Packs] = (),
    classes: Sequence[type] = (),
    keep: tuple[Any, ...],
) -> Table | str:
    """Write the table of one region.

    Args:
        interface, conditions, functions, words, frame_size, code, arena, keep: as for `entry.make_entry`.
        arguments: how many arguments a call has.
        function: the loop nest, for the amount of work.
        shared: address of three words: thread pool, threads, whether a pool was made.
        packs: of the operands that are packed, in the order of `Interface.packs`.
        classes: named tuples that results are made of.

    Returns:
        The table, or why there is none.
    """
    reason = unusable()
    if reason is not None:
        return reason
    try:
        return _table(
            interface, conditions, functions, arguments, function, words, frame_size, (code, arena, shared), packs,
            classes, keep,
        )  # fmt: skip
    except Unsupported as error:
        return str(error)


def _table(
    interface: Interface,
    conditions: Mapping[Any, Condition],
    functions: Mapping[int, FunctionType],
    arguments: int,
    function: Function,
    words: Mapping[str, int],
    frame_size: int,
    addresses: tuple[int, int, int],
    packs: Sequence[Packs],
    classes: Sequence[type],
    keep: tuple[Any, ...],
) -> Table:
    if arguments > MAX_VALUES or frame_size > MAX_WORDS:
        raise Unsupported(f"a frame of {frame_size} words")
    code, arena, shared = addresses
    t = _Rows(arguments, functions)
    t.words, t.classes = frame_size, classes
    arrays: dict[int, int] = {}
    # What tells kinds of arguments apart comes first; what runs code of users only after the conditions.
    plain = [i for i, s in enumerate(interface.inputs) if s.source[0] == "register" and s.wrapper == "ndarray"]
    others = [i for i in range(len(interface.inputs)) if i not in plain]
    for i in plain:
        _input(t, i, interface.inputs[i], words, arrays)
    for condition in conditions.values():
        t.condition(condition)
    for i in others:
        _input(t, i, interface.inputs[i], words, arrays)
    _bind(t, interface, words, arrays)
    for write in interface.writes:
        _written(t, interface, write.input, arrays)
        t.add(Op.SAME_WORD, words[write.buffer], words[interface.inputs[write.input].name])
    t.add(Op.SHARED, shared)
    if len(packs) != len(interface.packs):
        raise Unsupported("a packed operand")
    for pack, packed in zip(interface.packs, packs, strict=True):
        spec = interface.inputs[pack.input]
        _, storage, version = _slots()[0]
        offsets = 0 if spec.wrapper == "ndarray" else storage << 16 | version
        records = int(packed.records.ctypes.data)
        t.keep.append(packed)
        t.add(Op.PACKED, words[pack.buffer], records, t.source(spec.source), arrays[pack.input], offsets)
    try:
        work = t.work(work_of(function.body, {v.name for v in function.sizes}), words)
    except (Unsupported, KeyError):
        work = t.size(1 << 60)
    (recipe,) = interface.results["return"].values()
    made: dict[str, int] = {}
    for new in new_arrays(recipe):
        if isinstance(new, GrownArray):
            made[new.buffer], t.records[new.buffer] = _grow(t, new, interface, words, arrays)
        else:
            made[new.buffer] = _allocate(t, new, words)
    t.add(Op.RUN, code, arena, work, RELEASE_WORK)
    result = _make(t, recipe, interface, words, made, arrays)
    if interface.writes:
        # Last, because a row after it that does not hold would have the interpreter write a second time.
        phase = next(words[size.name] for size in interface.sizes if size.what == "phase")
        for write in interface.writes:
            if interface.inputs[write.input].wrapper != "ndarray":
                t.add(Op.CALL, t.value(), t.object(mark_written), t.source(interface.inputs[write.input].source))
        t.add(Op.COMMIT, code, phase)
    t.add(Op.RETURN, result)
    return Table(
        t.rows, arguments=arguments, values=t.values, words=frame_size, go_on=True, keep=[*t.keep, *keep]
    )  # fmt: skip


def _input(t: _Rows, number: int, spec: InputSpec, words: Mapping[str, int], arrays: dict[int, int]) -> None:
    """Check what a value is, and bring it into its word."""
    value = t.source(spec.source)
    if spec.kind == "array":
        if spec.wrapper != "ndarray":
            t.add(Op.TYPES, value, t.object(Tensor), t.object(Parameter))
            array = t.value()
            t.add(Op.SLOT, array, value, _slots()[0][0])
            value = array
        flags = ALIGNED | (C_CONTIGUOUS if spec.contiguous else F_CONTIGUOUS if spec.layout == "F" else 0)
        t.add(Op.ARRAY, value, t.object(spec.dtype.numpy), len(spec.dims), flags, words[spec.name])
        if spec.layout == "rows" and not spec.contiguous:
            t.add(Op.ROWS, value)
        arrays[number] = value
        return
    word = t.word() if spec.value is not None else words[spec.name]
    match spec.kind:
        case "pyint":
            t.add(Op.INT, value, word)
            if spec.value is not None:
                arrays[number] = word
        case "pyfloat":
            t.add(Op.FLOAT, value, word)
        case "pybool":
            t.add(Op.BOOL, value, word)
        case _:
            t.add(Op.TYPE, value, t.object(spec.dtype.numpy.type))
            t.add(Op.SCALAR, value, word)


def _bind(t: _Rows, interface: Interface, words: Mapping[str, int], arrays: Mapping[int, int]) -> None:
    """Sizes and strides. Symbols get their value where they first stand alone; everything else must agree."""
    later: list[tuple[int, int | None, DimLike]] = []
    for number, spec in enumerate(interface.inputs):
        places: list[tuple[int | None, DimLike]] = list(enumerate(spec.dims))
        if spec.value is not None:
            places.append((None, spec.value))
        for axis, dim in places:
            if isinstance(dim, Symbol) and not t.bound(dim):
                if axis is None:
                    t.add(Op.ADD, words[dim.name], arrays[number], t.size(0))
                else:
                    t.add(Op.BIND, arrays[number], axis, words[dim.name])
                t.bind(dim, words[dim.name])
            else:
                later.append((number, axis, dim))
    for number, axis, dim in later:
        if axis is None:
            t.add(Op.EQUAL, arrays[number], t.size(dim))
        else:
            t.agrees(arrays[number], axis, dim)
    for size in interface.sizes:
        if size.what == "stride":
            itemsize = interface.inputs[size.input].dtype.itemsize
            if itemsize & (itemsize - 1):
                raise Unsupported(f"elements of {itemsize} bytes")
            shift = itemsize.bit_length() - 1
            t.add(Op.STRIDE, arrays[size.input], size.axis, words[size.name], itemsize - 1, shift)
            t.bind(Symbol(size.name, "scalar"), words[size.name])


def _written(t: _Rows, interface: Interface, number: int, arrays: Mapping[int, int]) -> None:
    """An input that is written: writeable, and no memory shared with other inputs."""
    spec = interface.inputs[number]
    if not spec.contiguous:
        raise Unsupported("an array is written that is not contiguous")
    t.add(Op.FLAGS, arrays[number], WRITEABLE)
    written = {write.input for write in interface.writes}
    for other, given in enumerate(interface.inputs):
        if given.kind == "array" and other != number and not (other in written and other < number):
            t.add(Op.APART, arrays[number], arrays[other], spec.dtype.itemsize, given.dtype.itemsize)


def _run_of(t: _Rows, sizes: Sequence[int]) -> int:
    """The first of words that stand one behind the other and have the values of these words."""
    if not sizes:
        return 0
    if list(sizes) == list(range(sizes[0], sizes[0] + len(sizes))):
        return sizes[0]
    zero = t.size(0)
    first = t.words
    for size in sizes:
        t.add(Op.ADD, t.word(), size, zero)
    return first


def _grow(
    t: _Rows, new: GrownArray, interface: Interface, words: Mapping[str, int], arrays: Mapping[int, int]
) -> tuple[int, int]:
    """Rows that reserve room for a result which continues an input: block (a value), record (its address)."""
    reason = slots_differ()
    if reason is not None:
        raise Unsupported(reason)
    t.grown += 1
    if t.grown > CLAIMS:
        raise Unsupported(f"more than {CLAIMS} results that grow")
    spec = interface.inputs[new.input]
    size = t.size(new.shape[new.axis] - spec.dims[new.axis])
    capacity = words[new.capacity] if new.capacity else -1
    record, kept = growth_record(new.axis, size, words[new.buffer], capacity)
    t.keep += kept
    block = t.value()
    address = int(record.ctypes.data)
    t.add(Op.GROW, block, t.source(spec.source), arrays[new.input], address)
    return block, address


def _allocate(t: _Rows, new: NewArray, words: Mapping[str, int]) -> int:
    sizes = [t.size(d) for d in new.shape]
    if new.order and not new.fortran:
        itemsize = new.dtype.itemsize
        first = _run_of(t, sizes + [t.size(s * itemsize) for s in dense_strides(new.shape, new.order)])
        made = t.value()
        t.add(Op.EMPTY_AS, made, t.object(new.dtype.numpy), len(sizes), first, words[new.buffer])
        return made
    first = _run_of(t, sizes)
    made = t.value()
    rank = len(sizes) + (FORTRAN if new.fortran else 0)
    t.add(Op.EMPTY, made, t.object(new.dtype.numpy), rank, first, words[new.buffer])
    return made


def _view(t: _Rows, recipe: ViewOf, base: int) -> int:
    """Rows that make a view of an array."""
    if recipe.wrapper != "ndarray":
        raise Unsupported("a view of a Tensor is returned")
    itemsize = recipe.dtype.itemsize
    sizes = [t.size(d) for d in recipe.shape]
    first = _run_of(t, sizes + [t.size(s * itemsize) for s in recipe.strides])
    offset = t.size(recipe.offset * itemsize)
    made = t.value()
    t.add(Op.VIEW, made, base, len(sizes), first, offset)
    return made


def _make(
    t: _Rows,
    recipe: Recipe,
    interface: Interface,
    words: Mapping[str, int],
    made: Mapping[str, int],
    arrays: Mapping[int, int],
) -> int:
    """Rows that make a result; one that is handed over more than once is made once."""
    found = t.made.get(id(recipe))
    if found is None:
        found = t.made[id(recipe)] = _make_one(t, recipe, interface, words, made, arrays)
    return found


def _make_one(
    t: _Rows,
    recipe: Recipe,
    interface: Interface,
    words: Mapping[str, int],
    made: Mapping[str, int],
    arrays: Mapping[int, int],
) -> int:
    match recipe:
        case GrownArray():
            value = t.value()
            t.add(Op.GROWN, value, made[recipe.buffer], arrays[recipe.input], t.records[recipe.buffer])
            return value
        case NewArray():
            array = made[recipe.buffer]
            if recipe.wrapper == "ndarray":
                return array
            value = t.value()
            t.add(Op.WRAP, value, t.object(Tensor), array, *_slots()[0][:2])
            return value
        case EitherOf():
            value = _make(t, recipe.new, interface, words, made, arrays)
            for number in recipe.inputs:
                chosen = t.value()
                passed = t.source(interface.inputs[number].source)
                t.add(Op.CHOOSE, chosen, words[recipe.tag], number, passed, value)
                value = chosen
            return value
        case ViewOf():
            base = recipe.base
            for symbol in recipe.computed:
                t.bind(Symbol(symbol, "scalar"), words[symbol])
            return _view(t, recipe, arrays[base.index] if isinstance(base, SameInput) else made[base.buffer])
        case ScalarOutput():
            value, word = t.value(), words[recipe.output]
            match recipe.kind:
                case "pyint":
                    t.add(Op.MAKE_INT, value, word)
                case "pybool":
                    t.add(Op.MAKE_BOOL, value, word)
                case "pyfloat":
                    t.add(Op.MAKE_FLOAT, value, word)
                case _:
                    t.add(Op.MAKE_SCALAR, value, word, t.object(recipe.dtype.numpy))
            return value
        case SameInput():
            source = t.source(interface.inputs[recipe.index].source)
            value = t.value()
            t.add(Op.SAME, value, source)
            return value
        case SizeValue():
            size = t.size(recipe.value)
            value = t.value()
            t.add(Op.MAKE_INT, value, size)
            return value
        case Constant():
            value = t.value()
            t.add(Op.TAKE, value, t.object(recipe.value))
            return value
        case SequenceRecipe():
            new, put = (Op.TUPLE, Op.TUPLE_ITEM) if recipe.kind == "tuple" else (Op.LIST, Op.LIST_ITEM)
            items = [_make(t, item, interface, words, made, arrays) for item in recipe.items]
            value = t.value()
            t.add(new, value, len(items))
            for i, item in enumerate(items):
                t.add(put, value, i, item)
            if recipe.wrap < 0:
                return value
            named, cls = t.value(), t.classes[recipe.wrap]
            t.add(Op.CALL, named, t.object(lambda given: cls(*given)), value)
            return named
    raise Unsupported(f"a result that is a {type(recipe).__name__}")


# ---- functions -------------------------------------------------------------------------------------------------------


def make_preamble(arguments: int, variable: Any, namespace: dict[str, Any], name: str) -> Table:
    """A table that holds while the settings are those of now and nobody traces.

    Args:
        arguments: how many a call has.
        variable: context variable that must have the value None (settings of a block).
        namespace, name: where the settings of the process are found; they must be the object that is there now.
    """
    t = _Rows(arguments, {})
    t.add(Op.CONTEXT, t.object(variable), id(None))
    value = t.value()
    t.add(Op.GLOBAL, value, t.object(namespace), t.object(sys.intern(name)))
    t.add(Op.IDENTITY, value, t.object(namespace[name]))
    t.add(Op.QUIET, t.object(sys.gettrace))
    if sys.version_info >= (3, 12):
        monitoring = sys.monitoring
        for tool in (monitoring.DEBUGGER_ID, monitoring.COVERAGE_ID):
            t.add(Op.QUIET_ONE, t.object(monitoring.get_tool), t.object(tool))
    t.add(Op.PASS)
    return Table(t.rows, arguments=arguments, values=t.values, words=0, go_on=False, keep=t.keep)


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


def make_function(
    address: int, tables: Sequence[Table], miss: object, *, sampled: bool, name: str = "entry", keep: Sequence[Any] = ()
) -> Any:
    """Make a built-in function that tries tables in order.

    Args:
        address: of `tc.stub`.
        tables: in order.
        miss: what it gives when none holds.
        sampled: whether one call in `SAMPLE` gives `miss`, to be timed by the caller.
        name: for people.
        keep: what else must stay alive as long as it.
    """
    api, reason = _addresses()
    if api is None:
        raise InternalError(f"no machine-code entry: {reason}", stage="entry")
    head = np.zeros(HEAD + len(tables), np.int64)
    head[Head.MASK] = SAMPLE - 1 if sampled else 0
    head[Head.MISS], head[Head.API], head[Head.TABLES] = id(miss), api.ctypes.data, len(tables)
    head[HEAD:] = [table.address for table in tables]
    label = name.encode()
    method = _MethodDef(label, address, _METH_FASTCALL, None)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
    # What stands as the function's module is only kept: CPython holds on to it as long as to the function.
    kept = (method, label, miss, api, *keep, *(table.keep for table in tables))
    return make(("PyCFunction_NewEx", ctypes.pythonapi))(ctypes.addressof(method), head, kept)
