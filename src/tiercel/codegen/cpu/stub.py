"""The entry stub: a CPython function in machine code that checks arguments, runs compiled code and makes the result.

One function serves every region of every program: `tc.stub` reads rows from tables that `vm.stub` writes, instead of
being generated for one interface. A row costs 1 to 3 ns; compiling a stub of its own for each region would add 5 to
10 ms to every compile. It is part of the runtime library, and imports nothing: the addresses of what it needs of
CPython, NumPy and the C library come in a table of words (`API`).

In: `PyObject *tc.stub(PyObject *self, PyObject *const *args, Py_ssize_t count)`. `self` is an array of int64, the head:
HEAD words, then the addresses of tables, tried in order. A table is HEADER words, then rows of `ROW` words: an `Op` and
its fields. Rows work on numbered values (objects: first the arguments, which are borrowed, then those that rows make,
which the stub owns and lets go of at the end) and numbered words (int64: the frame of `codegen.abi`, and behind it
room for intermediate sizes).

Out: the result, or the object MISS. A row that does not hold, or a call of CPython that fails, ends its table; then
the next table is tried, or MISS given. Nothing visible has happened by then. Only what is no `Exception` (Ctrl-C) is
raised.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Final

from tiercel.codegen.abi import ARENA, POOL, THREADS
from tiercel.codegen.cpu.growing import CLAIMS, GROW, GROWN, UNCLAIM, growing_text

__all__ = [
    "API",
    "DEFAULT_WATCH",
    "FLAGS",
    "FORTRAN",
    "F_CONTIGUOUS",
    "HEAD",
    "HEADER",
    "MAX_VALUES",
    "MAX_WORDS",
    "OFFSETS",
    "PACK_RECORDS",
    "ROW",
    "SAMPLE",
    "SAMPLE_QUICK",
    "STUB",
    "WRITEABLE",
    "Head",
    "Header",
    "Op",
    "record_number",
    "stub_text",
]

STUB: Final = "tc.stub"

MAX_VALUES: Final = 64
MAX_WORDS: Final = 256
ROW: Final = 6
"""Words of a row: the operation and up to five fields."""
SAMPLE: Final = 16
"""One call in so many gives MISS so that it is timed: at first, and of slow functions."""
SAMPLE_QUICK: Final = 256
"""The same once the time is known, where timing (about 5 us) takes longer than the call."""
SMALL_ARENA: Final = 4096
"""Arenas up to this many bytes lie on the stack."""
LARGE_ARENA: Final = 1 << 20
"""For larger ones the call is left to the entry in Python, which keeps arenas between calls."""

FLAGS: Final = 1 | 4 | 8 | 16
"""Flags of MXCSR that NumPy can be asked to watch: invalid, divide, over, under."""
DEFAULT_WATCH: Final = 1 | 4 | 8
"""Those that it watches by default."""

OFFSETS: Final = {"type": 8, "data": 16, "nd": 24, "dimensions": 32, "strides": 40, "descr": 56, "flags": 64}
"""Byte offsets in objects and arrays: PyObject of CPython with a GIL, PyArrayObject_fields of NumPy 1.7 to 2.x."""

C_CONTIGUOUS: Final = 1
F_CONTIGUOUS: Final = 2
ALIGNED: Final = 0x100
WRITEABLE: Final = 0x400
OWNS: Final = 4
PACK_RECORDS: Final = 8
"""Records in which the packed form of one operand is looked up, see `vm.packs`."""
FORTRAN: Final = 1 << 32
"""Added to the rank of an array that is to be made in Fortran's order."""

API: Final = (
    "Py_IncRef", "Py_DecRef", "PyErr_Occurred", "PyErr_Clear", "PyErr_ExceptionMatches", "PyDict_GetItemWithError",
    "PyCell_Get", "PyObject_GetAttr", "PyObject_GetItem", "PyObject_RichCompareBool", "PyObject_CallNoArgs",
    "PyObject_CallOneArg", "PyContextVar_Get", "PyObject_Size", "PyTuple_New", "PyTuple_SetItem", "PyList_New",
    "PyList_SetItem", "PyLong_AsLongLongAndOverflow", "PyLong_FromLongLong", "PyFloat_AsDouble", "PyFloat_FromDouble",
    "PyObject_Vectorcall", "PyType_GenericAlloc", "PyEval_SaveThread", "PyEval_RestoreThread", "PyArray_Empty",
    "PyArray_Scalar", "PyArray_ScalarAsCtype", "PyArray_NewFromDescr",
    "PyArray_SetBaseObject", "PyWeakref_NewRef", "PyList_Append", "malloc", "free", "ndarray", "int", "float", "bool",
    "True", "False", "None", "Exception", "error_state", "default_error_state",
)  # fmt: skip
"""What stands in the words of the API table: functions, then objects."""


class Head(IntEnum):
    """Words of `self`."""

    TICKS = 0  # calls so far
    MASK = 1  # the call gives MISS when TICKS & MASK is 0, and MASK is not 0
    MISS = 2
    API = 3
    TABLES = 4  # how many there are


class Header(IntEnum):
    """Words of a table before its rows."""

    CALLS = 0  # results given
    ARGUMENTS = 1
    VALUES = 2  # arguments included
    WORDS = 3  # of the frame, which are zero at first
    GO_ON = 4  # what to do when a row does not hold: 1 the next table, 0 MISS
    STATUS = 5  # what the code returned when it did not run to its end, until somebody looks
    MISSES = 6
    ALLOCATIONS = 7  # arenas that did not fit on the stack


HEAD: Final = len(Head)
HEADER: Final = 8


@unique
class Op(IntEnum):
    """Rows. v: number of a value, w: number of a word, o: address of an object, n: a number."""

    PASS = 0  # go on with the next table
    RETURN = 1  # v: the result
    TYPE = 2  # v o: of exactly this type
    TYPES = 3  # v o o: of one of two types
    IDENTITY = 4  # v o: this object
    VALUE = 5  # v o: this object, or an equal one of the same type
    ITEMS = 6  # v n: a tuple or list of so many items, TYPE has been checked
    GLOBAL = 7  # v o o: made: item of dict, key
    ABSENT = 8  # o o: dict has no such key
    CELL = 9  # v o: made: content of a cell
    ATTRIBUTE = 10  # v v o: made: attribute of a value
    ITEM = 11  # v v o: made: item of a value
    SLOT = 12  # v v n: made: object in a slot at a byte offset
    QUIET = 13  # o: calling it gives None
    QUIET_ONE = 14  # o o: calling it with one argument gives None
    CONTEXT = 15  # o o: a context variable has this very value
    ARRAY = 16  # v o n n w: ndarray of this descriptor, rank, with these flags; the word gets its address
    BIND = 17  # v n w: size of an axis
    SIZE = 18  # v n w: the size of the axis is in the word
    EXTENT = 19  # v n n: the size of the axis is the number
    STRIDE = 20  # v n w n n: stride in elements; mask and shift of the item size
    INT = 21  # v w: an int of 64 bits
    FLOAT = 22  # v w: a float
    BOOL = 23  # v w: a bool
    SCALAR = 24  # v w: a NumPy scalar whose TYPE has been checked
    NUMBER = 25  # w n
    ADD = 26  # w w w
    MULTIPLY = 27
    FLOOR_DIVIDE = 28
    MODULO = 29
    MINIMUM = 30
    MAXIMUM = 31
    BROADCAST = 32
    EQUAL = 33  # w w
    SHARED = 34  # n: address of three words: pool, threads, whether a pool was made
    EMPTY = 35  # v o n w w: made: array of descriptor, rank (and FORTRAN), sizes from a word on; a word for its address
    RUN = 36  # n n w n: code, arena function; release the lock when the word is at least the number
    MAKE_INT = 37  # v w
    MAKE_FLOAT = 38  # v w
    MAKE_BOOL = 39  # v w
    MAKE_SCALAR = 40  # v w o: NumPy scalar of a descriptor
    TAKE = 41  # v o: made: an object
    SAME = 42  # v v: made: the same object
    TUPLE = 43  # v n
    TUPLE_ITEM = 44  # v n v
    LIST = 45  # v n
    LIST_ITEM = 46  # v n v
    WRAP = 47  # v o v n n: made: object of a class, with the value and None in the slots at two byte offsets
    PACKED = 56  # w n v v n: address of records; offsets of storage << 16 | version, 0 for ndarrays: where it is packed
    ASK = 48  # w o v v: an int that an object gives for two values
    CALL = 49  # v o v: made: what an object gives for a value
    FLAGS = 50  # v n: an array with these flags
    APART = 51  # v v n n: the bytes between the bounds of two arrays, of elements so large, are apart
    SAME_WORD = 52  # w w: the first gets what the second has
    CHOOSE = 59  # v w n v v: made: the first object where the word is the number, else the second
    EMPTY_AS = 60  # v o n w w: made: array of descriptor, rank: words of sizes, then strides; a word for its address
    ROWS = 55  # v: the axes of an array lie in C order, with gaps or backwards
    VIEW = 54  # v v n w w: made: view of an array of so many axes: words of sizes, then strides in bytes; of the offset
    GROW = 57  # v v v o: made: block with room for entries behind those of a Tensor; its array; record of `growing`
    GROWN = 58  # v v v o: made: the Tensor, of a block, the array of the Tensor before, record
    COMMIT = 53  # n w: calls the code again with 1 in the word: it writes into arguments. Nothing may fail after it


class _Text:
    """The body of the function under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def name(self, hint: str) -> str:
        self._count += 1
        return f"%{hint}.{self._count}"

    def put(self, line: str) -> None:
        self.lines.append("  " + line)

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def set(self, hint: str, right: str) -> str:
        name = self.name(hint)
        self.put(f"{name} = {right}")
        return name

    def load(self, kind: str, pointer: str, offset: int | str = 0, hint: str = "x", align: int = 8) -> str:
        at = self.set("at", f"getelementptr i8, ptr {pointer}, i64 {offset}")
        return self.set(hint, f"load {kind}, ptr {at}, align {align}")

    def element(self, kind: str, base: str, index: str) -> str:
        return self.set("place", f"getelementptr {kind}, ptr {base}, i64 {index}")

    def field(self, number: int, kind: str = "i64") -> str:
        return self.load(kind, "%row", 8 * number, "f")

    def value(self, index: str) -> str:
        return self.set("value", f"load ptr, ptr {self.element('ptr', '%values', index)}, align 8")

    def make(self, index: str, value: str) -> None:
        self.put(f"store ptr {value}, ptr {self.element('ptr', '%values', index)}, align 8")

    def word(self, index: str, kind: str = "i64") -> str:
        return self.set("word", f"load {kind}, ptr {self.element('i64', '%frame', index)}, align 8")

    def write(self, index: str, value: str, kind: str = "i64") -> None:
        self.put(f"store {kind} {value}, ptr {self.element('i64', '%frame', index)}, align 8")

    def api(self, name: str) -> str:
        return self.load("ptr", "%api", 8 * API.index(name), "api")

    def call(self, kind: str, function: str, *arguments: str) -> str:
        text = f"call {kind} {self.api(function)}({', '.join(arguments)})"
        if kind == "void":
            self.put(text)
            return ""
        return self.set("got", text)

    def require(self, condition: str, otherwise: str = "miss") -> None:
        """Go on where the condition holds."""
        further = self.name("on")[1:]
        self.put(f"br i1 {condition}, label %{further}, label %{otherwise}")
        self.label(further)

    def compare(self, how: str, kind: str, a: str, b: str) -> str:
        return self.set("is", f"icmp {how} {kind} {a}, {b}")

    def next(self) -> None:
        self.put("br label %advance")

    def made(self, index: str, value: str) -> None:
        """Keep a new object; NULL is an error."""
        self.make(index, value)
        self.require(self.compare("ne", "ptr", value, "null"), "error")
        self.next()


def _guards(t: _Text, op: Op) -> bool:
    """Rows that look at objects."""
    match op:
        case Op.TYPE:
            kind = t.load("ptr", t.value(t.field(1)), OFFSETS["type"])
            t.require(t.compare("eq", "ptr", kind, t.field(2, "ptr")))
            t.next()
        case Op.TYPES:
            kind = t.load("ptr", t.value(t.field(1)), OFFSETS["type"])
            first = t.compare("eq", "ptr", kind, t.field(2, "ptr"))
            second = t.compare("eq", "ptr", kind, t.field(3, "ptr"))
            t.require(t.set("either", f"or i1 {first}, {second}"))
            t.next()
        case Op.IDENTITY:
            t.require(t.compare("eq", "ptr", t.value(t.field(1)), t.field(2, "ptr")))
            t.next()
        case Op.VALUE:
            value, expected = t.value(t.field(1)), t.field(2, "ptr")
            t.put(f"br i1 {t.compare('ne', 'ptr', value, expected)}, label %value.differs, label %advance")
            t.label("value.differs")
            kinds = (t.load("ptr", x, OFFSETS["type"]) for x in (value, expected))
            t.require(t.compare("eq", "ptr", *kinds))
            same = t.call("i32", "PyObject_RichCompareBool", f"ptr {value}", f"ptr {expected}", "i32 2")
            t.require(t.compare("sge", "i32", same, "0"), "error")
            t.require(t.compare("eq", "i32", same, "1"))
            t.next()
        case Op.ITEMS:
            size = t.call("i64", "PyObject_Size", f"ptr {t.value(t.field(1))}")
            t.require(t.compare("eq", "i64", size, t.field(2)))
            t.next()
        case Op.QUIET | Op.QUIET_ONE:
            if op is Op.QUIET:
                got = t.call("ptr", "PyObject_CallNoArgs", f"ptr {t.field(1, 'ptr')}")
            else:
                got = t.call("ptr", "PyObject_CallOneArg", f"ptr {t.field(1, 'ptr')}", f"ptr {t.field(2, 'ptr')}")
            t.require(t.compare("ne", "ptr", got, "null"), "error")
            t.call("void", "Py_DecRef", f"ptr {got}")
            t.require(t.compare("eq", "ptr", got, t.api("None")))
            t.next()
        case Op.CONTEXT:
            failed = t.call("i32", "PyContextVar_Get", f"ptr {t.field(1, 'ptr')}", "ptr null", "ptr %place")
            t.require(t.compare("eq", "i32", failed, "0"), "error")
            got = t.load("ptr", "%place")
            t.require(t.compare("ne", "ptr", got, "null"))
            t.call("void", "Py_DecRef", f"ptr {got}")
            t.require(t.compare("eq", "ptr", got, t.field(2, "ptr")))
            t.next()
        case _:
            return False
    return True


def _reads(t: _Text, op: Op) -> bool:
    """Rows that fetch objects."""
    match op:
        case Op.GLOBAL | Op.ABSENT:
            at = 2 if op is Op.GLOBAL else 1
            table, key = t.field(at, "ptr"), t.field(at + 1, "ptr")
            got = t.call("ptr", "PyDict_GetItemWithError", f"ptr {table}", f"ptr {key}")
            if op is Op.ABSENT:
                t.require(t.compare("eq", "ptr", got, "null"))
                # an error of the look-up is NULL as well
                t.require(t.compare("eq", "ptr", t.call("ptr", "PyErr_Occurred"), "null"), "error")
                t.next()
            else:
                t.require(t.compare("ne", "ptr", got, "null"), "error")
                t.call("void", "Py_IncRef", f"ptr {got}")
                t.make(t.field(1), got)
                t.next()
        case Op.CELL:
            got = t.call("ptr", "PyCell_Get", f"ptr {t.field(2, 'ptr')}")
            t.made(t.field(1), got)
        case Op.ATTRIBUTE | Op.ITEM:
            function = "PyObject_GetAttr" if op is Op.ATTRIBUTE else "PyObject_GetItem"
            got = t.call("ptr", function, f"ptr {t.value(t.field(2))}", f"ptr {t.field(3, 'ptr')}")
            t.made(t.field(1), got)
        case Op.SLOT:
            got = t.load("ptr", t.value(t.field(2)), t.field(3))
            t.require(t.compare("ne", "ptr", got, "null"))
            t.call("void", "Py_IncRef", f"ptr {got}")
            t.make(t.field(1), got)
            t.next()
        case Op.CHOOSE:
            holds = t.compare("eq", "i64", t.word(t.field(2)), t.field(3))
            got = t.set("chosen", f"select i1 {holds}, ptr {t.value(t.field(4))}, ptr {t.value(t.field(5))}")
            t.call("void", "Py_IncRef", f"ptr {got}")
            t.make(t.field(1), got)
            t.next()
        case Op.TAKE | Op.SAME:
            got = t.field(2, "ptr") if op is Op.TAKE else t.value(t.field(2))
            t.call("void", "Py_IncRef", f"ptr {got}")
            t.make(t.field(1), got)
            t.next()
        case _:
            return False
    return True


def _inputs(t: _Text, op: Op) -> bool:
    """Rows that bring inputs into words."""
    match op:
        case Op.ARRAY:
            value = t.value(t.field(1))
            t.require(t.compare("eq", "ptr", t.load("ptr", value, OFFSETS["type"]), t.api("ndarray")))
            t.require(t.compare("eq", "ptr", t.load("ptr", value, OFFSETS["descr"]), t.field(2, "ptr")))
            rank = t.load("i32", value, OFFSETS["nd"])
            wanted = t.set("rank", f"trunc i64 {t.field(3)} to i32")
            t.require(t.compare("eq", "i32", rank, wanted))
            flags = t.load("i32", value, OFFSETS["flags"])
            mask = t.set("mask", f"trunc i64 {t.field(4)} to i32")
            t.require(t.compare("eq", "i32", t.set("set", f"and i32 {flags}, {mask}"), mask))
            t.write(t.field(5), t.load("i64", value, OFFSETS["data"]))
            t.next()
        case Op.FLAGS:
            flags = t.load("i32", t.value(t.field(1)), OFFSETS["flags"], align=4)
            mask = t.set("mask", f"trunc i64 {t.field(2)} to i32")
            t.require(t.compare("eq", "i32", t.set("set", f"and i32 {flags}, {mask}"), mask))
            t.next()
        case Op.APART:
            ends = []
            for at, item in ((1, 3), (2, 4)):
                both = t.set("bounds", f"call {{i64, i64}} @tc.bounds(ptr {t.value(t.field(at))}, i64 {t.field(item)})")
                ends.append([t.set("end", f"extractvalue {{i64, i64}} {both}, {i}") for i in (0, 1)])
            (low, high), (other_low, other_high) = ends
            before, after = t.compare("ule", "i64", high, other_low), t.compare("ule", "i64", other_high, low)
            t.require(t.set("apart", f"or i1 {before}, {after}"))
            t.next()
        case Op.ROWS:
            t.require(t.set("rows", f"call i1 @tc.rows(ptr {t.value(t.field(1))})"))
            t.next()
        case Op.SAME_WORD:
            t.write(t.field(1), t.word(t.field(2)))
            t.next()
        case Op.BIND | Op.SIZE | Op.EXTENT:
            sizes = t.load("ptr", t.value(t.field(1)), OFFSETS["dimensions"])
            size = t.set("size", f"load i64, ptr {t.element('i64', sizes, t.field(2))}, align 8")
            if op is Op.BIND:
                t.write(t.field(3), size)
            else:
                t.require(t.compare("eq", "i64", size, t.field(3) if op is Op.EXTENT else t.word(t.field(3))))
            t.next()
        case Op.STRIDE:
            strides = t.load("ptr", t.value(t.field(1)), OFFSETS["strides"])
            stride = t.set("stride", f"load i64, ptr {t.element('i64', strides, t.field(2))}, align 8")
            t.require(t.compare("eq", "i64", t.set("rest", f"and i64 {stride}, {t.field(4)}"), "0"))
            t.write(t.field(3), t.set("steps", f"ashr i64 {stride}, {t.field(5)}"))
            t.next()
        case Op.INT:
            value = t.value(t.field(1))
            t.require(t.compare("eq", "ptr", t.load("ptr", value, OFFSETS["type"]), t.api("int")))
            number = t.call("i64", "PyLong_AsLongLongAndOverflow", f"ptr {value}", "ptr %place")
            t.require(t.compare("eq", "i32", t.load("i32", "%place"), "0"))
            t.write(t.field(2), number)
            t.next()
        case Op.FLOAT:
            value = t.value(t.field(1))
            t.require(t.compare("eq", "ptr", t.load("ptr", value, OFFSETS["type"]), t.api("float")))
            t.write(t.field(2), t.call("double", "PyFloat_AsDouble", f"ptr {value}"), "double")
            t.next()
        case Op.BOOL:
            value = t.value(t.field(1))
            yes = t.compare("eq", "ptr", value, t.api("True"))
            no = t.compare("eq", "ptr", value, t.api("False"))
            t.require(t.set("either", f"or i1 {yes}, {no}"))
            t.write(t.field(2), t.set("bit", f"zext i1 {yes} to i64"))
            t.next()
        case Op.SCALAR:
            place = t.element("i64", "%frame", t.field(2))
            t.call("void", "PyArray_ScalarAsCtype", f"ptr {t.value(t.field(1))}", f"ptr {place}")
            t.next()
        case Op.ASK:
            _ask(t, t.field(2, "ptr"))
        case Op.PACKED:
            _packed(t)
        case Op.SHARED:
            shared = t.field(1, "ptr")
            t.require(t.compare("ne", "i64", t.load("i64", shared, 16), "0"))
            t.write(str(POOL), t.load("i64", shared))
            t.write(str(THREADS), t.load("i64", shared, 8))
            t.next()
        case _:
            return False
    return True


def _ask(t: _Text, asked: str) -> None:
    """Call an object with the two values of fields 3 and 4, and write the int it gives into the word of field 1."""
    pair = t.element("ptr", "%pair", "1")
    t.put(f"store ptr {t.value(t.field(3))}, ptr %pair, align 8")
    t.put(f"store ptr {t.value(t.field(4))}, ptr {pair}, align 8")
    got = t.call("ptr", "PyObject_Vectorcall", f"ptr {asked}", "ptr %pair", "i64 2", "ptr null")
    t.require(t.compare("ne", "ptr", got, "null"), "error")
    number = t.call("i64", "PyLong_AsLongLongAndOverflow", f"ptr {got}", "ptr %place")
    t.call("void", "Py_DecRef", f"ptr {got}")
    t.require(t.compare("ne", "i64", number, "-1"), "error")  # no address is -1
    t.write(t.field(1), number)
    t.next()


def record_number(data: int) -> int:
    """Which record the packed form of elements at this address has."""
    return ((data >> 6) ^ (data >> 13)) % PACK_RECORDS


def _packed(t: _Text) -> None:
    """Look the packed form up in the records of an operand; ask where it is not there."""
    records, value, array, offsets = t.field(2, "ptr"), t.value(t.field(3)), t.value(t.field(4)), t.field(5)
    data = t.load("i64", array, OFFSETS["data"], "data")
    mixed = t.set("mixed", f"xor i64 {t.set('low', f'lshr i64 {data}, 6')}, {t.set('high', f'lshr i64 {data}, 13')}")
    number = t.set("number", f"and i64 {mixed}, {PACK_RECORDS - 1}")
    place = t.set("place", f"add i64 {t.set('words', f'mul i64 {number}, 4')}, 4")
    record = t.element("i64", records, place)
    plain = t.compare("eq", "i64", offsets, "0")
    t.require(t.compare("eq", "i64", t.load("i64", record, 16), data), "packed.ask")
    t.put(f"br i1 {plain}, label %packed.array, label %packed.tensor")
    t.label("packed.array")
    flags = t.set("flags", f"and i32 {t.load('i32', value, OFFSETS['flags'], align=4)}, {OWNS | WRITEABLE}")
    t.require(t.compare("eq", "i32", flags, str(OWNS)), "packed.ask")
    t.require(t.compare("eq", "ptr", t.load("ptr", record), value), "packed.ask")
    t.put("br label %packed.found")
    t.label("packed.tensor")
    storage = t.load("ptr", value, t.set("slot", f"lshr i64 {offsets}, 16"))
    t.require(t.compare("eq", "ptr", t.load("ptr", record), storage), "packed.ask")
    version = t.load("ptr", storage, t.set("slot", f"and i64 {offsets}, 65535"))
    t.require(t.compare("eq", "ptr", t.load("ptr", record, 8), version), "packed.ask")
    t.put("br label %packed.found")
    t.label("packed.found")
    t.write(t.field(1), t.load("i64", record, 24))
    t.next()
    t.label("packed.ask")
    _ask(t, t.load("ptr", records))


def _sizes(t: _Text, op: Op) -> bool:
    """Rows that compute sizes. What does not fit into 64 bits does not hold."""
    match op:
        case Op.NUMBER:
            t.write(t.field(1), t.field(2))
            t.next()
        case Op.EQUAL:
            t.require(t.compare("eq", "i64", t.word(t.field(1)), t.word(t.field(2))))
            t.next()
        case Op.ADD | Op.MULTIPLY:
            name = "sadd" if op is Op.ADD else "smul"
            a, b = t.word(t.field(2)), t.word(t.field(3))
            pair = t.set("pair", f"call {{i64, i1}} @llvm.{name}.with.overflow.i64(i64 {a}, i64 {b})")
            over = t.set("over", f"extractvalue {{i64, i1}} {pair}, 1")
            t.require(t.set("fits", f"xor i1 {over}, true"))
            t.write(t.field(1), t.set("number", f"extractvalue {{i64, i1}} {pair}, 0"))
            t.next()
        case Op.FLOOR_DIVIDE | Op.MODULO:
            a, b = t.word(t.field(2)), t.word(t.field(3))
            t.require(t.compare("sgt", "i64", b, "0"))
            quotient, rest = t.set("quotient", f"sdiv i64 {a}, {b}"), t.set("rest", f"srem i64 {a}, {b}")
            below = t.compare("slt", "i64", rest, "0")
            if op is Op.FLOOR_DIVIDE:
                step = t.set("step", f"sext i1 {below} to i64")
                t.write(t.field(1), t.set("floor", f"add i64 {quotient}, {step}"))
            else:
                up = t.set("up", f"add i64 {rest}, {b}")
                t.write(t.field(1), t.set("modulo", f"select i1 {below}, i64 {up}, i64 {rest}"))
            t.next()
        case Op.MINIMUM | Op.MAXIMUM:
            a, b = t.word(t.field(2)), t.word(t.field(3))
            less = t.compare("slt" if op is Op.MINIMUM else "sgt", "i64", a, b)
            t.write(t.field(1), t.set("best", f"select i1 {less}, i64 {a}, i64 {b}"))
            t.next()
        case Op.BROADCAST:
            a, b = t.word(t.field(2)), t.word(t.field(3))
            one, other = t.compare("eq", "i64", a, "1"), t.compare("eq", "i64", b, "1")
            equal = t.compare("eq", "i64", a, b)
            t.require(t.set("fits", f"or i1 {t.set('either', f'or i1 {one}, {other}')}, {equal}"))
            t.write(t.field(1), t.set("wide", f"select i1 {one}, i64 {b}, i64 {a}"))
            t.next()
        case _:
            return False
    return True


def _results(t: _Text, op: Op) -> bool:
    """Rows that make objects."""
    match op:
        case Op.EMPTY:
            descr = t.field(2, "ptr")
            t.call("void", "Py_IncRef", f"ptr {descr}")  # PyArray_Empty takes the reference, on errors as well
            rank = t.set("rank", f"trunc i64 {t.field(3)} to i32")
            sizes = t.element("i64", "%frame", t.field(4))
            fortran = t.set("fortran", f"trunc i64 {t.set('above', f'lshr i64 {t.field(3)}, 32')} to i32")
            got = t.call("ptr", "PyArray_Empty", f"i32 {rank}", f"ptr {sizes}", f"ptr {descr}", f"i32 {fortran}")
            t.make(t.field(1), got)
            t.require(t.compare("ne", "ptr", got, "null"), "error")
            t.write(t.field(5), t.load("i64", got, OFFSETS["data"]))
            t.next()
        case Op.EMPTY_AS:
            descr, count = t.field(2, "ptr"), t.field(3)
            t.call("void", "Py_IncRef", f"ptr {descr}")  # the function takes the reference, on errors as well
            sizes = t.element("i64", "%frame", t.field(4))
            steps = t.element("i64", sizes, count)
            rank = t.set("rank", f"trunc i64 {count} to i32")
            got = t.call(
                "ptr", "PyArray_NewFromDescr", f"ptr {t.api('ndarray')}", f"ptr {descr}", f"i32 {rank}",
                f"ptr {sizes}", f"ptr {steps}", "ptr null", "i32 0", "ptr null",
            )  # fmt: skip
            t.make(t.field(1), got)
            t.require(t.compare("ne", "ptr", got, "null"), "error")
            t.write(t.field(5), t.load("i64", got, OFFSETS["data"]))
            t.next()
        case Op.VIEW:
            base, count = t.value(t.field(2)), t.field(3)
            kind = t.load("ptr", base, OFFSETS["type"])
            descr = t.load("ptr", base, OFFSETS["descr"])
            flags = t.load("i32", base, OFFSETS["flags"], align=4)
            start = t.set("start", f"add i64 {t.load('i64', base, OFFSETS['data'])}, {t.word(t.field(5))}")
            data = t.set("data", f"inttoptr i64 {start} to ptr")
            sizes = t.element("i64", "%frame", t.field(4))
            steps = t.element("i64", sizes, count)
            rank = t.set("rank", f"trunc i64 {count} to i32")
            for owned in (descr, base):  # what the functions take, on errors as well
                t.call("void", "Py_IncRef", f"ptr {owned}")
            got = t.call(
                "ptr", "PyArray_NewFromDescr", f"ptr {kind}", f"ptr {descr}", f"i32 {rank}", f"ptr {sizes}",
                f"ptr {steps}", f"ptr {data}", f"i32 {flags}", "ptr null",
            )  # fmt: skip
            t.make(t.field(1), got)
            t.put(f"br i1 {t.compare('ne', 'ptr', got, 'null')}, label %view.made, label %view.not")
            t.label("view.not")
            t.call("void", "Py_DecRef", f"ptr {base}")
            t.put("br label %error")
            t.label("view.made")
            failed = t.call("i32", "PyArray_SetBaseObject", f"ptr {got}", f"ptr {base}")
            t.require(t.compare("eq", "i32", failed, "0"), "error")
            t.next()
        case Op.MAKE_INT:
            t.made(t.field(1), t.call("ptr", "PyLong_FromLongLong", f"i64 {t.word(t.field(2))}"))
        case Op.MAKE_FLOAT:
            t.made(t.field(1), t.call("ptr", "PyFloat_FromDouble", f"double {t.word(t.field(2), 'double')}"))
        case Op.MAKE_BOOL:
            low = t.set("low", f"and i64 {t.word(t.field(2))}, 255")
            yes = t.compare("ne", "i64", low, "0")
            got = t.set("truth", f"select i1 {yes}, ptr {t.api('True')}, ptr {t.api('False')}")
            t.call("void", "Py_IncRef", f"ptr {got}")
            t.made(t.field(1), got)
        case Op.MAKE_SCALAR:
            place = t.element("i64", "%frame", t.field(2))
            got = t.call("ptr", "PyArray_Scalar", f"ptr {place}", f"ptr {t.field(3, 'ptr')}", "ptr null")
            t.made(t.field(1), got)
        case Op.TUPLE | Op.LIST:
            function = "PyTuple_New" if op is Op.TUPLE else "PyList_New"
            t.made(t.field(1), t.call("ptr", function, f"i64 {t.field(2)}"))
        case Op.TUPLE_ITEM | Op.LIST_ITEM:
            item = t.value(t.field(3))
            t.call("void", "Py_IncRef", f"ptr {item}")  # setting takes one
            function = "PyTuple_SetItem" if op is Op.TUPLE_ITEM else "PyList_SetItem"
            failed = t.call("i32", function, f"ptr {t.value(t.field(1))}", f"i64 {t.field(2)}", f"ptr {item}")
            t.require(t.compare("eq", "i32", failed, "0"), "error")
            t.next()
        case Op.CALL:
            value = t.value(t.field(3))
            t.made(t.field(1), t.call("ptr", "PyObject_CallOneArg", f"ptr {t.field(2, 'ptr')}", f"ptr {value}"))
        case Op.GROW:
            given = f"ptr {t.value(t.field(2))}, ptr {t.value(t.field(3))}, ptr {t.field(4, 'ptr')}, ptr %claims"
            t.made(t.field(1), t.set("block", f"call ptr @{GROW}(ptr %api, ptr %frame, {given})"))
        case Op.GROWN:
            given = f"ptr {t.value(t.field(2))}, ptr {t.value(t.field(3))}, ptr {t.field(4, 'ptr')}"
            t.made(t.field(1), t.set("tensor", f"call ptr @{GROWN}(ptr %api, ptr %frame, {given})"))
        case Op.WRAP:
            got = t.call("ptr", "PyType_GenericAlloc", f"ptr {t.field(2, 'ptr')}", "i64 0")
            t.make(t.field(1), got)
            t.require(t.compare("ne", "ptr", got, "null"), "error")
            for content, slot in ((t.value(t.field(3)), 4), (t.api("None"), 5)):
                t.call("void", "Py_IncRef", f"ptr {content}")
                t.put(f"store ptr {content}, ptr {t.element('i8', got, t.field(slot))}, align 8")
            t.next()
        case _:
            return False
    return True


def _run(t: _Text) -> None:
    """Call the code: arena, lock, floating-point flags."""
    arena = t.set("arena", f"call i64 {t.field(2, 'ptr')}(ptr %frame)")
    t.require(t.compare("ule", "i64", arena, str(LARGE_ARENA)))
    t.put(f"br i1 {t.compare('ule', 'i64', arena, str(SMALL_ARENA))}, label %run.ready, label %run.take")
    t.label("run.take")
    block = t.call("ptr", "malloc", f"i64 {t.set('bytes', f'add i64 {arena}, 64')}")
    t.require(t.compare("ne", "ptr", block, "null"))
    start = t.set("start", f"ptrtoint ptr {block} to i64")
    rounded = t.set("rounded", f"and i64 {t.set('above', f'add i64 {start}, 63')}, -64")
    aligned = t.set("aligned", f"inttoptr i64 {rounded} to ptr")
    t.put("br label %run.taken")
    t.label("run.taken")
    taken = t.element("i64", "%table", str(int(Header.ALLOCATIONS)))
    before = t.load("i64", "%table", 8 * Header.ALLOCATIONS)
    t.put(f"store i64 {t.set('allocations', f'add i64 {before}, 1')}, ptr {taken}, align 8")
    t.put("br label %run.ready")
    t.label("run.ready")
    t.put(f"%run.block = phi ptr [ null, %{_before(t, 'run.take')} ], [ {block}, %run.taken ]")
    t.put(f"%run.arena = phi ptr [ %small, %{_before(t, 'run.take')} ], [ {aligned}, %run.taken ]")
    t.write(str(ARENA), "%run.arena", "ptr")
    work = t.word(t.field(3))
    free = t.compare("sge", "i64", work, t.field(4))
    code = t.field(1, "ptr")
    t.put(f"br i1 {free}, label %run.free, label %run.held")
    t.label("run.free")
    state = t.call("ptr", "PyEval_SaveThread")
    first = t.set("status", f"call i64 @tc.call(ptr {code}, ptr %frame)")
    t.call("void", "PyEval_RestoreThread", f"ptr {state}")
    t.put("br label %run.done")
    t.label("run.held")
    second = t.set("status", f"call i64 @tc.call(ptr {code}, ptr %frame)")
    t.put("br label %run.done")
    t.label("run.done")
    t.put(f"%run.status = phi i64 [ {first}, %run.free ], [ {second}, %run.held ]")
    t.put("store ptr %run.block, ptr %held, align 8")
    t.put("store i64 %run.status, ptr %status, align 8")
    low = t.set("site", "and i64 %run.status, 4294967295")
    t.require(t.compare("eq", "i64", low, "0"), "stopped")
    raised = t.set("raised", "lshr i64 %run.status, 32")
    watchable = t.set("watchable", f"and i64 {raised}, {FLAGS}")
    t.put(f"br i1 {t.compare('ne', 'i64', watchable, '0')}, label %run.flags, label %advance")
    t.label("run.flags")  # does NumPy's error state care? Only the default one is known here
    failed = t.call("i32", "PyContextVar_Get", f"ptr {t.api('error_state')}", "ptr null", "ptr %place")
    t.require(t.compare("eq", "i32", failed, "0"), "error")
    got = t.load("ptr", "%place")
    t.require(t.compare("ne", "ptr", got, "null"))
    t.call("void", "Py_DecRef", f"ptr {got}")
    t.require(t.compare("eq", "ptr", got, t.api("default_error_state")))
    watched = t.set("watched", f"and i64 {raised}, {DEFAULT_WATCH}")
    t.put(f"br i1 {t.compare('eq', 'i64', watched, '0')}, label %advance, label %stopped")


def _commit(t: _Text) -> None:
    """Call the code again, to write into arguments."""
    t.write(t.field(2), "1")
    t.set("committed", f"call i64 {t.field(1, 'ptr')}(ptr %frame)")
    t.next()


def _before(t: _Text, label: str) -> str:
    """The block that ends just before `label`."""
    at = len(t.lines) - 1 - t.lines[::-1].index(f"{label}:")
    return next(line[:-1] for line in reversed(t.lines[:at]) if not line.startswith(" "))


_START = f"""
entry:
  %values = alloca [{MAX_VALUES} x ptr], align 16
  %frame = alloca [{MAX_WORDS} x i64], align 64
  %small = alloca [{SMALL_ARENA} x i8], align 64
  %place = alloca ptr, align 8
  %pair = alloca [2 x ptr], align 8
  %status = alloca i64, align 8
  %outcome = alloca ptr, align 8
  %held = alloca ptr, align 8
  %claims = alloca [{1 + 3 * CLAIMS} x i64], align 8
  store i64 0, ptr %claims, align 8
  store ptr null, ptr %held, align 8
  %head.at = getelementptr i8, ptr %self, i64 {OFFSETS["data"]}
  %head = load ptr, ptr %head.at, align 8
  %miss.at = getelementptr i64, ptr %head, i64 {Head.MISS}
  %miss.object = load ptr, ptr %miss.at, align 8
  %api.at = getelementptr i64, ptr %head, i64 {Head.API}
  %api = load ptr, ptr %api.at, align 8
  %tables.at = getelementptr i64, ptr %head, i64 {Head.TABLES}
  %tables = load i64, ptr %tables.at, align 8
  %ticks.before = load i64, ptr %head, align 8
  %ticks = add i64 %ticks.before, 1
  store i64 %ticks, ptr %head, align 8
  %mask.at = getelementptr i64, ptr %head, i64 {Head.MASK}
  %mask = load i64, ptr %mask.at, align 8
  %ticks.low = and i64 %ticks, %mask
  %off.phase = icmp ne i64 %ticks.low, 0
  %never = icmp eq i64 %mask, 0
  %few = icmp ule i64 %count, {MAX_VALUES}
  %unsampled = or i1 %off.phase, %never
  %begins = and i1 %few, %unsampled
  br i1 %begins, label %copy.test, label %give.miss
copy.test:
  %copy.i = phi i64 [ 0, %entry ], [ %copy.next, %copy.body ]
  %copy.more = icmp ult i64 %copy.i, %count
  br i1 %copy.more, label %copy.body, label %table.first
copy.body:
  %copy.from = getelementptr ptr, ptr %arguments, i64 %copy.i
  %copy.value = load ptr, ptr %copy.from, align 8
  %copy.to = getelementptr ptr, ptr %values, i64 %copy.i
  store ptr %copy.value, ptr %copy.to, align 8
  %copy.next = add i64 %copy.i, 1
  br label %copy.test
table.first:
  br label %table.test
table.test:
  %t = phi i64 [ 0, %table.first ], [ %t.next, %table.next ]
  %table.left = icmp ult i64 %t, %tables
  br i1 %table.left, label %table.load, label %give.miss
table.next:
  %t.next = add i64 %t, 1
  br label %table.test
table.load:
  %t.place = add i64 %t, {HEAD}
  %table.at = getelementptr i64, ptr %head, i64 %t.place
  %table = load ptr, ptr %table.at, align 8
  %wanted.at = getelementptr i64, ptr %table, i64 {Header.ARGUMENTS}
  %wanted = load i64, ptr %wanted.at, align 8
  %same.count = icmp eq i64 %wanted, %count
  br i1 %same.count, label %table.size, label %table.next
table.size:
  %made.at = getelementptr i64, ptr %table, i64 {Header.VALUES}
  %made.end = load i64, ptr %made.at, align 8
  %words.at = getelementptr i64, ptr %table, i64 {Header.WORDS}
  %words = load i64, ptr %words.at, align 8
  br label %null.test
null.test:
  %null.i = phi i64 [ %count, %table.size ], [ %null.next, %null.body ]
  %null.more = icmp ult i64 %null.i, %made.end
  br i1 %null.more, label %null.body, label %zero.first
null.body:
  %null.to = getelementptr ptr, ptr %values, i64 %null.i
  store ptr null, ptr %null.to, align 8
  %null.next = add i64 %null.i, 1
  br label %null.test
zero.first:
  br label %zero.test
zero.test:
  %zero.i = phi i64 [ 0, %zero.first ], [ %zero.next, %zero.body ]
  %zero.more = icmp ult i64 %zero.i, %words
  br i1 %zero.more, label %zero.body, label %rows.first
zero.body:
  %zero.to = getelementptr i64, ptr %frame, i64 %zero.i
  store i64 0, ptr %zero.to, align 8
  %zero.next = add i64 %zero.i, 1
  br label %zero.test
rows.first:
  %row.first = getelementptr i64, ptr %table, i64 {HEADER}
  br label %dispatch
advance:
  %row.next = getelementptr i64, ptr %row, i64 {ROW}
  br label %dispatch
dispatch:
  %row = phi ptr [ %row.first, %rows.first ], [ %row.next, %advance ]
  %op = load i64, ptr %row, align 8
  switch i64 %op, label %miss [
"""


# What a walk over the axes of an array begins with: their number, sizes and strides.
_AXES = f"""\
  %rank.at = getelementptr i8, ptr %array, i64 {OFFSETS["nd"]}
  %rank = load i32, ptr %rank.at, align 4
  %dimensions.at = getelementptr i8, ptr %array, i64 {OFFSETS["dimensions"]}
  %dimensions = load ptr, ptr %dimensions.at, align 8
  %strides.at = getelementptr i8, ptr %array, i64 {OFFSETS["strides"]}
  %strides = load ptr, ptr %strides.at, align 8
"""


_BOUNDS = f"""
; the first byte of an array, and the one behind its last; twice 0 if it has none
define internal {{i64, i64}} @tc.bounds(ptr %array, i64 %size) {{
entry:
  %data.at = getelementptr i8, ptr %array, i64 {OFFSETS["data"]}
  %data = load i64, ptr %data.at, align 8
{_AXES}  br label %test
test:
  %axis = phi i32 [ 0, %entry ], [ %axis.next, %body ]
  %low = phi i64 [ %data, %entry ], [ %low.next, %body ]
  %high = phi i64 [ %data, %entry ], [ %high.next, %body ]
  %more = icmp slt i32 %axis, %rank
  br i1 %more, label %some, label %done
some:
  %extent.at = getelementptr i64, ptr %dimensions, i32 %axis
  %extent = load i64, ptr %extent.at, align 8
  %none = icmp eq i64 %extent, 0
  br i1 %none, label %empty, label %body
body:
  %stride.at = getelementptr i64, ptr %strides, i32 %axis
  %stride = load i64, ptr %stride.at, align 8
  %last = sub i64 %extent, 1
  %span = mul i64 %last, %stride
  %back = icmp slt i64 %span, 0
  %down = select i1 %back, i64 %span, i64 0
  %up = select i1 %back, i64 0, i64 %span
  %low.next = add i64 %low, %down
  %high.next = add i64 %high, %up
  %axis.next = add i32 %axis, 1
  br label %test
empty:
  ret {{i64, i64}} zeroinitializer
done:
  %behind = add i64 %high, %size
  %first = insertvalue {{i64, i64}} undef, i64 %low, 0
  %pair = insertvalue {{i64, i64}} %first, i64 %behind, 1
  ret {{i64, i64}} %pair
}}
"""


_ROWS = f"""
; whether no axis has a larger stride than one before it, or stride 0; axes of size 1 do not count
define internal i1 @tc.rows(ptr %array) {{
entry:
{_AXES}  br label %test
test:
  %axis = phi i32 [ 0, %entry ], [ %axis.next, %next ]
  %last = phi i64 [ 9223372036854775807, %entry ], [ %last.next, %next ]
  %more = icmp slt i32 %axis, %rank
  br i1 %more, label %some, label %yes
some:
  %extent.at = getelementptr i64, ptr %dimensions, i32 %axis
  %extent = load i64, ptr %extent.at, align 8
  %counts = icmp ne i64 %extent, 1
  br i1 %counts, label %counted, label %next
counted:
  %stride.at = getelementptr i64, ptr %strides, i32 %axis
  %stride = load i64, ptr %stride.at, align 8
  %turned = sub i64 0, %stride
  %back = icmp slt i64 %stride, 0
  %step = select i1 %back, i64 %turned, i64 %stride
  %some.step = icmp ne i64 %step, 0
  %no.larger = icmp sle i64 %step, %last
  %fits = and i1 %some.step, %no.larger
  br i1 %fits, label %next, label %no
next:
  %last.next = phi i64 [ %last, %some ], [ %step, %counted ]
  %axis.next = add i32 %axis, 1
  br label %test
yes:
  ret i1 true
no:
  ret i1 false
}}
"""


def _end(t: _Text) -> None:
    """What follows the rows: misses, errors, letting go of values, returning."""
    t.label("miss")
    misses = t.element("i64", "%table", str(int(Header.MISSES)))
    count = t.load("i64", misses)
    t.put(f"store i64 {t.set('more', f'add i64 {count}, 1')}, ptr {misses}, align 8")
    further = t.load("i64", "%table", 8 * Header.GO_ON)
    t.put("store ptr %miss.object, ptr %outcome, align 8")
    t.put(f"br i1 {t.compare('eq', 'i64', further, '0')}, label %miss.last, label %leave")
    t.label("miss.last")
    t.call("void", "Py_IncRef", "ptr %miss.object")
    t.put("br label %leave")
    t.label("stopped")
    status = t.load("i64", "%status")
    t.put(f"store i64 {status}, ptr {t.element('i64', '%table', str(int(Header.STATUS)))}, align 8")
    t.put("store ptr %miss.object, ptr %outcome, align 8")
    t.put("br label %miss.last")
    t.label("error")
    t.require(t.compare("ne", "ptr", t.call("ptr", "PyErr_Occurred"), "null"))
    ours = t.call("i32", "PyErr_ExceptionMatches", f"ptr {t.api('Exception')}")
    t.put(f"br i1 {t.compare('ne', 'i32', ours, '0')}, label %error.clear, label %error.raise")
    t.label("error.clear")
    t.call("void", "PyErr_Clear")
    t.put("br label %miss")
    t.label("error.raise")
    t.put("store ptr null, ptr %outcome, align 8")
    t.put("br label %leave")
    # `over`: 1 when the outcome is to be returned, 0 when the next table comes
    t.label("leave")
    t.put("%over = phi i1 [ true, %return ], [ false, %pass ], [ false, %miss ], [ true, %miss.last ], "
          "[ true, %error.raise ]")  # fmt: skip
    t.put(f"call void @{UNCLAIM}(ptr %claims)")  # before blocks are let go of
    # the arena, if it was too large for the stack
    t.call("void", "free", f"ptr {t.load('ptr', '%held')}")
    t.put("store ptr null, ptr %held, align 8")
    t.put("br label %drop.test")
    t.label("drop.test")
    t.put("%drop.i = phi i64 [ %count, %leave ], [ %drop.next, %drop.body ]")
    t.put("%drop.more = icmp ult i64 %drop.i, %made.end")
    t.put("br i1 %drop.more, label %drop.body, label %drop.done")
    t.label("drop.body")
    t.call("void", "Py_DecRef", f"ptr {t.value('%drop.i')}")  # NULL is accepted
    t.put("%drop.next = add i64 %drop.i, 1")
    t.put("br label %drop.test")
    t.label("drop.done")
    t.put("br i1 %over, label %give, label %table.next")
    t.label("give")
    t.put(f"ret ptr {t.load('ptr', '%outcome')}")
    t.label("give.miss")
    t.call("void", "Py_IncRef", "ptr %miss.object")
    t.put("ret ptr %miss.object")


def stub_text() -> str:
    """LLVM text of `tc.stub`; `tc.call` must be in the same module."""
    t = _Text()
    for op in Op:
        if op is Op.PASS:
            t.label("pass")
            t.put("br label %leave")
            continue
        if op is Op.RETURN:
            t.label("return")
            place = t.element("ptr", "%values", t.field(1))
            t.put(f"store ptr {t.load('ptr', place)}, ptr %outcome, align 8")
            t.put(f"store ptr null, ptr {place}, align 8")  # the caller gets our reference
            t.put("store i64 0, ptr %claims, align 8")  # they are the result's
            calls = t.load("i64", "%table", 8 * Header.CALLS)
            t.put(f"store i64 {t.set('calls', f'add i64 {calls}, 1')}, ptr %table, align 8")
            t.put("br label %leave")
            continue
        t.label(f"op.{op.name}")
        if op is Op.RUN:
            _run(t)
        elif op is Op.COMMIT:
            _commit(t)
        elif not any(part(t, op) for part in (_guards, _reads, _inputs, _sizes, _results)):
            raise AssertionError(f"row {op.name} has no code")
    _end(t)
    labels = {Op.PASS: "pass", Op.RETURN: "return"}
    cases = "".join(f"    i64 {int(op)}, label %{labels.get(op, f'op.{op.name}')}\n" for op in Op)
    body = "\n".join(t.lines)
    return (
        "declare {i64, i1} @llvm.sadd.with.overflow.i64(i64, i64)\n"
        "declare {i64, i1} @llvm.smul.with.overflow.i64(i64, i64)\n"
        f"{_BOUNDS}{_ROWS}{growing_text(OFFSETS, API)}"
        f"define ptr @{STUB}(ptr %self, ptr %arguments, i64 %count) {{{_START}{cases}  ]\n{body}\n}}\n"
    )
