"""The one table of instructions. Everything else about them is derived from its rows.

In: nothing. Out: `OPCODES` (mnemonic to row), the `Instruction` value type, and questions about instructions that need
only the row (`registers_read`, `is_removable`, ...). The builder's methods, the binary encoder and decoder, the printer
and the parser of the text form, the verifier's read and write sets and the documentation page all loop over the rows; a
test asserts that none has a gap.

Invariant: an `Instruction` has exactly the fields of its row, each of its row's kind. That operands exist, are
defined and agree with one another is the verifier's business.

Notation of the `effect` column: `R[a]` is the register that field `a` names (or, where the field is negative, the
constant it names), `K[a]` a constant, `T[a]` a declared token, `pc` the next instruction, `...` the rest of a list.

Operands are ints: `>= 0` a register, `< 0` the constant `~operand`. An absent optional field is None. Jump targets are
instruction indexes within the function. Names are strings.

Field kinds:

=========  ==========================================================================
def        register that is written; `def?` may be absent
defs       tuple of registers that are written
use        operand that is read (register or constant); `use?` may be absent
uses       tuple of operands that are read
const      operand that must be a constant
imm        unsigned number below 2**32
simm       signed number within 32 bits
name       string; `name?` may be absent
names      tuple of strings
target     instruction index
token?     index into the program's declared tokens, or absent
enum(T)    one of the words of the table T
=========  ==========================================================================

Opcode numbers and the order of enum words are written to files: append, never renumber.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, TypeAlias, final

from tiercel.errors import BytecodeError, suggest

__all__ = [
    "BUILD_KINDS",
    "CHECKS",
    "ENUMS",
    "OPCODES",
    "OPCODES_BY_CODE",
    "SCALAR_FUNCTIONS",
    "EffectClass",
    "Field",
    "Instruction",
    "Opcode",
    "is_removable",
    "may_fail",
]

EffectClass: TypeAlias = Literal["pure", "alloc", "read_env", "write", "control", "opaque"]

# Python's scalar builtins, identity and membership. `is` to `not_in` are operators of the syntax, the rest are looked
# up by name in the function's globals, so a shadowed builtin behaves as in Python.
SCALAR_FUNCTIONS: Final = (
    "int",
    "float",
    "bool",
    "complex",
    "len",
    "abs",
    "min",
    "max",
    "round",
    "divmod",
    "not",
    "is",
    "is_not",
    "in",
    "not_in",
    "isinstance",
    "range",
    "enumerate",
    "zip",
    "reversed",
    "sum",
    "any",
    "all",
    "sorted",
    "tuple",
    "list",
    "set",
    "frozenset",
    "dict",
    "str",
    "slice",
    "pow",
    "type",
    "issubclass",
    "callable",
    "hasattr",
    "iter",
    "next",
    "repr",
    "ord",
    "chr",
    "hash",
    # Constructs of the language, none of them a name: one part of an f-string (value, or value and format spec), the
    # test of an `except` clause, the special methods of `with` looked up on the type, `type(e), e, e.__traceback__`.
    "format",
    "format_str",
    "format_repr",
    "format_ascii",
    "exception_matches",
    "with_enter",
    "with_exit",
    "exc_info",
)
# `..._star` unpacks every item: `(*a, *b)`, `[*a, *b]`, `{*a, *b}`, `{**a, **b}`.
BUILD_KINDS: Final = (
    "tuple",
    "list",
    "set",
    "dict",
    "slice",
    "string",
    "cell",
    "tuple_star",
    "list_star",
    "set_star",
    "dict_star",
)
# `bound_free` is `bound` for a variable of the enclosing scope read in a comprehension: NameError, as for closures.
CHECKS: Final = ("bound", "shape_hint", "dtype_hint", "bound_free")
ENUMS: Final[Mapping[str, tuple[str, ...]]] = {
    "SCALAR_FUNCTIONS": SCALAR_FUNCTIONS,
    "BUILD_KINDS": BUILD_KINDS,
    "CHECKS": CHECKS,
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an instruction.

    Attributes:
        name: attribute of `Instruction` under which it is read.
        kind: one of the kinds of the module docstring, without the table of an enum ("enum").
        enum: the words an enum field may hold, in file order; empty for other kinds.
        enum_name: name of that table in `ENUMS`; empty for other kinds.
        optional: whether None is allowed (or, for the builder, whether the field may be left out).
    """

    name: str
    kind: str
    enum: tuple[str, ...] = ()
    enum_name: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Opcode:
    """One row of the table.

    Attributes:
        name: mnemonic.
        code: the byte that stands for it in files.
        fields: in encoding order.
        text: template of the text form: `{field}` prints a field, `<...>` is left out while its field is absent, 0 or
            empty; `{args*keywords}` and `{dsts*star}` print two fields together.
        effect: what it does, in register notation.
        reads: state read beyond registers.
        writes: state written beyond registers.
        may_fail: whether it can raise (running out of memory apart).
        user_code: whether operands of unknown type may make it run arbitrary Python (`__add__`, `__bool__`, ...).
        effect_class: what it does to the world on operands of ordinary types.
        live_at_exit: what must be in registers when control leaves native code at this instruction.
        doc: prose for the documentation page.
    """

    name: str
    code: int
    fields: tuple[Field, ...]
    text: str
    effect: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    may_fail: bool
    user_code: bool
    effect_class: EffectClass
    live_at_exit: Literal["operands", "none"]
    doc: str

    def index(self, field: str) -> int:
        """Return the position of a field; KeyError if the row has no such field."""
        return _POSITIONS[self.name][field]


_FIELD: Final = re.compile(r"(\w+):(\w+)(\?)?(?:\((\w+)\))?")
_POSITIONS: Final[dict[str, dict[str, int]]] = {}


def _fields(text: str) -> tuple[Field, ...]:
    fields = []
    for part in text.split():
        match = _FIELD.fullmatch(part)
        assert match is not None, part
        name, kind, optional, table = match.groups()
        fields.append(Field(name, kind, ENUMS[table] if table else (), table or "", bool(optional)))
    return tuple(fields)


def _row(
    code: int,
    name: str,
    fields: str,
    text: str,
    effect: str,
    *,
    doc: str,
    kind: EffectClass,
    reads: str = "",
    writes: str = "",
    may_fail: bool = False,
    user_code: bool = False,
) -> Opcode:
    parsed = _fields(fields)
    _POSITIONS[name] = {f.name: i for i, f in enumerate(parsed)}
    return Opcode(
        name=name,
        code=code,
        fields=parsed,
        text=text,
        effect=effect,
        reads=tuple(reads.split()),
        writes=tuple(writes.split()),
        may_fail=may_fail,
        user_code=user_code,
        effect_class=kind,
        # Whoever may fail is executed again by the interpreter at its own pc, so all it reads must be there.
        live_at_exit="operands" if may_fail else "none",
        doc=doc,
    )


_TABLE: Final[tuple[Opcode, ...]] = (
    _row(
        1,
        "LoadConst",
        "dst:def value:const",
        "{dst} = {value}",
        "R[dst] = K[value]",
        kind="pure",
        doc="Load a constant of the program.",
    ),
    _row(
        2,
        "LoadTensor",
        "dst:def tensor:const token:token?",
        "{dst} = {tensor}< : {token}>",
        "R[dst] = K[tensor]",
        kind="pure",
        doc="Load a tensor constant: an array the program owns, which is never written.",
    ),
    _row(
        3,
        "LoadParam",
        "dst:def index:imm token:token?",
        "{dst} = argument {index}< : {token}>",
        "R[dst] = argument index",
        kind="pure",
        doc="Parameter i is in register i on entry. With `dst == index` the instruction declares the parameter and "
        "does nothing; with another `dst` it copies register `index`.",
    ),
    _row(
        4,
        "LoadGlobal",
        "dst:def name:name",
        "{dst} = {name}",
        "R[dst] = globals[name], else builtins[name]",
        kind="read_env",
        reads="globals",
        may_fail=True,
        doc="Python's look-up of a global name.",
    ),
    _row(
        5,
        "LoadAttr",
        "dst:def object:use name:name",
        "{dst} = {object}.{name}",
        "R[dst] = R[object].name",
        kind="read_env",
        reads="attributes",
        may_fail=True,
        user_code=True,
        doc="Read an attribute.",
    ),
    _row(
        6,
        "StoreAttr",
        "object:use name:name value:use",
        "{object}.{name} = {value}",
        "R[object].name = R[value]",
        kind="write",
        writes="attributes",
        may_fail=True,
        user_code=True,
        doc="Write an attribute.",
    ),
    _row(
        7,
        "LoadCell",
        "dst:def cell:use name:name",
        "{dst} = cell {cell} as {name}",
        "R[dst] = R[cell].cell_contents",
        kind="read_env",
        reads="cells",
        may_fail=True,
        doc="Read a closure cell. An empty cell raises NameError or UnboundLocalError with Python's text for `name`.",
    ),
    _row(
        8,
        "StoreCell",
        "cell:use value:use",
        "cell {cell} = {value}",
        "R[cell].cell_contents = R[value]",
        kind="write",
        writes="cells",
        doc="Write a closure cell; the constant UNBOUND empties it.",
    ),
    _row(
        9,
        "Move",
        "dst:def src:use",
        "{dst} = {src}",
        "R[dst] = R[src]",
        kind="pure",
        doc="Copy a reference.",
    ),
    _row(
        10,
        "CallOp",
        "dst:def operator:name spelling:imm args:uses keywords:names via:name? token:token?",
        "{dst} = {operator}</{spelling}>({args*keywords})< as {via}>< : {token}>",
        "R[dst] = operator(R[args]...)",
        kind="alloc",
        reads="memory errstate",
        writes="memory",
        may_fail=True,
        user_code=True,
        doc="Apply a tensor operator. `operator` names a row of the operator table and `spelling` which of its Python "
        "forms the program used; the interpreter executes that form, so the name is a claim for typing and compiling "
        "that holds while `via` still resolves to what it did. `keywords` names each argument ('' is positional). "
        "`via` is the dotted path the program called it by (`np.exp`; `5:np.exp` if its root is the closure cell in "
        "register 5). `token` declares the result.",
    ),
    _row(
        11,
        "Dim",
        "dst:def x:use axis:simm",
        "{dst} = {x}.shape[{axis}]",
        "R[dst] = R[x].shape[axis]",
        kind="pure",
        reads="attributes",
        may_fail=True,
        user_code=True,
        doc="One size of a tensor, as a Python int.",
    ),
    _row(
        12,
        "Scalar",
        "dst:def function:enum(SCALAR_FUNCTIONS) args:uses",
        "{dst} = {function}({args})",
        "R[dst] = function(R[args]...)",
        kind="pure",
        reads="globals",
        may_fail=True,
        user_code=True,
        doc="A builtin of Python that is pure on ordinary values, or an operator without a tensor form (`not`, `is`, "
        "`in`). The name is looked up as Python does, so a rebound `len` is called.",
    ),
    _row(
        13,
        "Item",
        "dst:def x:use",
        "{dst} = {x}.item()",
        "R[dst] = R[x].item()",
        kind="pure",
        reads="memory",
        may_fail=True,
        user_code=True,
        doc="The only element of a tensor, as a Python scalar.",
    ),
    _row(
        14,
        "Build",
        "dst:def what:enum(BUILD_KINDS) items:uses",
        "{dst} = {what}({items})",
        "R[dst] = what(R[items]...)",
        kind="alloc",
        may_fail=True,
        user_code=True,
        doc="Make a tuple, list, set, dict (keys and values alternating), slice (start, stop, step), string (its "
        "parts, all of them str, joined) or closure cell (empty, or holding its one item).",
    ),
    _row(
        15,
        "Unpack",
        "dsts:defs src:use star:imm",
        "({dsts*star}) = {src}",
        "R[dsts[0]], R[dsts[1]], ... = R[src]",
        kind="alloc",
        reads="memory",
        may_fail=True,
        user_code=True,
        doc="Unpack an iterable. `star` is 0, or one more than the index of the starred target.",
    ),
    _row(
        16,
        "Index",
        "dst:def x:use key:use",
        "{dst} = {x}[{key}]",
        "R[dst] = R[x][R[key]]",
        kind="alloc",
        reads="memory",
        may_fail=True,
        user_code=True,
        doc="Subscript. Basic indexing of a tensor gives a view.",
    ),
    _row(
        17,
        "SetItem",
        "x:use key:use value:use",
        "{x}[{key}] = {value}",
        "R[x][R[key]] = R[value]",
        kind="write",
        reads="memory",
        writes="memory",
        may_fail=True,
        user_code=True,
        doc="Assign to a subscript.",
    ),
    _row(
        18,
        "Append",
        "list:use value:use",
        "{list}.append({value})",
        "R[list].append(R[value])",
        kind="write",
        writes="memory",
        may_fail=True,
        user_code=True,
        doc="Call the `append` attribute of whatever `list` is.",
    ),
    _row(
        19,
        "Iter",
        "dst:def x:use",
        "{dst} = iter({x})",
        "R[dst] = iter(R[x])",
        kind="alloc",
        reads="memory",
        may_fail=True,
        user_code=True,
        doc="Make an iterator.",
    ),
    _row(
        20,
        "BranchIf",
        "condition:use then:target else_:target",
        "if {condition} goto {then} else {else_}",
        "pc = then if R[condition] else else_",
        kind="control",
        reads="memory",
        may_fail=True,
        user_code=True,
        doc="Branch on the truth of a value.",
    ),
    _row(
        21,
        "Jump",
        "target:target",
        "goto {target}",
        "pc = target",
        kind="control",
        doc="Go on at `target`.",
    ),
    _row(
        22,
        "LoopStart",
        "loop:imm iterator:use? target:def? exit:target",
        "loop {loop}:< for {target} in {iterator},> exit {exit}",
        "R[target] = next(R[iterator]), or pc = exit when it is exhausted",
        kind="control",
        reads="memory",
        writes="iterator",
        may_fail=True,
        user_code=True,
        doc="Head of a loop. With `iterator` each pass takes the next item into `target` and leaves for `exit` when "
        "there is none; without, it falls through (a `while`, whose condition is a BranchIf inside).",
    ),
    _row(
        23,
        "LoopEnd",
        "loop:imm start:target",
        "repeat loop {loop} at {start}",
        "pc = start",
        kind="control",
        doc="The back edge of a loop, and the only backward jump there is. `start` is the LoopStart with the same "
        "`loop`.",
    ),
    _row(
        24,
        "Try",
        "exception:def handler:target end:target",
        "try: except {exception} at {handler} to {end}",
        "until EndTry: if an exception e is raised, R[exception] = e, pc = handler",
        kind="control",
        doc="Protect the instructions up to the matching EndTry. The handler is the range from `handler` to `end`; "
        "while control is inside, the exception is the one being handled, and leaving it in any way ends the handling.",
    ),
    _row(
        25,
        "EndTry",
        "",
        "end try",
        "nothing",
        kind="control",
        doc="End of a protected range. A jump out of the range leaves it as well.",
    ),
    _row(
        26,
        "Raise",
        "exception:use? cause:use?",
        "raise< {exception}>< from {cause}>",
        "raise R[exception] from R[cause]",
        kind="control",
        may_fail=True,
        user_code=True,
        doc="Raise an exception; with no operand, raise again the one being handled.",
    ),
    _row(
        27,
        "Call",
        "dst:def callee:use args:uses keywords:names",
        "{dst} = {callee}({args*keywords})",
        "R[dst] = apply(R[callee], R[args]...)",
        kind="opaque",
        reads="any",
        writes="any",
        may_fail=True,
        user_code=True,
        doc="Call a Python callable. One that is captured runs as a frame of this machine. `keywords` names each "
        "argument: '' positional, '*' an iterable of positional ones, '**' a mapping of keywords.",
    ),
    _row(
        28,
        "CallPy",
        "dst:def callee:use args:uses keywords:names reason:name",
        "{dst} = {callee}({args*keywords}) because {reason}",
        "R[dst] = apply(R[callee], R[args]...)",
        kind="opaque",
        reads="any",
        writes="any",
        may_fail=True,
        user_code=True,
        doc="Run something as Python that has no bytecode form. The ledger counts it under `reason`.",
    ),
    _row(
        29,
        "MakeFunction",
        "dst:def code:const name:name defaults:use? kwdefaults:use? cells:uses",
        "{dst} = def {name} with {code}<, defaults {defaults}><, kwdefaults {kwdefaults}><, cells ({cells})>",
        "R[dst] = function(K[code], defaults R[defaults], closure R[cells]...)",
        kind="alloc",
        reads="globals",
        doc="Make a Python function from a code object, a tuple of defaults, a dict of keyword defaults and the cells "
        "of its free variables.",
    ),
    _row(
        30,
        "StoreTensor",
        "x:use value:use",
        "{x}[...] = {value}",
        "R[x][...] = R[value]",
        kind="write",
        reads="memory",
        writes="memory",
        may_fail=True,
        user_code=True,
        doc="Write a whole tensor in place.",
    ),
    _row(
        31,
        "Depend",
        "dst:def x:use after:uses",
        "{dst} = {x} after ({after})",
        "R[dst] = R[x], not before R[after]... exist",
        kind="pure",
        doc="The value of `x`, ordered after the values of `after`.",
    ),
    _row(
        32,
        "Check",
        "kind:enum(CHECKS) x:use name:name",
        "check {kind} of {x} as {name}",
        "raise unless the check holds for R[x]",
        kind="control",
        reads="attributes",
        may_fail=True,
        doc="`bound`: UnboundLocalError for variable `name` if `x` holds UNBOUND. `shape_hint`, `dtype_hint`: "
        "ShapeError, DTypeError unless `x` has the shape or dtype that the hint `name` (its text) declares.",
    ),
    _row(
        33,
        "Anchor",
        "dst:def x:use",
        "{dst} = anchor({x})",
        "R[dst] = R[x]",
        kind="control",
        doc="A copy that every pass leaves at its source line: a place for a breakpoint.",
    ),
    _row(
        34,
        "Return",
        "value:use",
        "return {value}",
        "return R[value]",
        kind="control",
        doc="Leave the function.",
    ),
)

OPCODES: Final[Mapping[str, Opcode]] = {row.name: row for row in _TABLE}
OPCODES_BY_CODE: Final[Mapping[int, Opcode]] = {row.code: row for row in _TABLE}

# What each kind admits. bool is refused where an int is meant: True as a register is always a mistake.
_I32: Final = 1 << 31
_U32: Final = 1 << 32


def _is_int(x: object, low: int, high: int) -> bool:
    return type(x) is int and low <= x < high


def _is_ints(x: object, low: int, high: int) -> bool:
    return type(x) is tuple and all(type(i) is int and low <= i < high for i in x)


_ADMITS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "def": ("a register number", lambda x: _is_int(x, 0, _I32)),
    "defs": ("a tuple of register numbers", lambda x: _is_ints(x, 0, _I32)),
    "use": ("an operand (register number, or ~constant)", lambda x: _is_int(x, -_I32, _I32)),
    "uses": ("a tuple of operands", lambda x: _is_ints(x, -_I32, _I32)),
    "const": ("a constant operand (negative)", lambda x: _is_int(x, -_I32, 0)),
    "imm": ("a number from 0 to 2**32 - 1", lambda x: _is_int(x, 0, _U32)),
    "simm": ("a number within 32 bits", lambda x: _is_int(x, -_I32, _I32)),
    "name": ("a string", lambda x: type(x) is str),
    "names": ("a tuple of strings", lambda x: type(x) is tuple and all(type(s) is str for s in x)),
    "target": ("an instruction index", lambda x: _is_int(x, 0, _U32)),
    "token": ("a token index", lambda x: _is_int(x, 0, _I32)),
}


@final
class Instruction:
    """One instruction: an opcode and its fields, read by name (`ins.dst`, `ins["args"]`).

    Immutable, hashable, equal by content.

    Args:
        opcode: mnemonic.
        fields: one value per field of the row, in order.

    Raises:
        BytecodeError: no such opcode, or a field that its kind does not admit.
    """

    __slots__ = ("fields", "opcode")

    opcode: str
    fields: tuple[Any, ...]

    def __init__(self, opcode: str, fields: tuple[Any, ...]) -> None:
        row = OPCODES.get(opcode)
        if row is None:
            raise BytecodeError(f"unknown opcode {opcode!r}{suggest(opcode, tuple(OPCODES))}")
        if len(fields) != len(row.fields):
            expected = ", ".join(f.name for f in row.fields) or "none"
            raise BytecodeError(f"{opcode} has {len(row.fields)} fields ({expected}), got {len(fields)}")
        for field, value in zip(row.fields, fields, strict=True):
            if value is None and field.optional:
                continue
            if field.enum:
                if value not in field.enum:
                    near = suggest(str(value), field.enum)
                    raise BytecodeError(f"{opcode}.{field.name} must be one of {field.enum_name}, got {value!r}{near}")
            else:
                expected, admits = _ADMITS[field.kind]
                if not admits(value):
                    raise BytecodeError(f"{opcode}.{field.name} must be {expected}, got {value!r}")
        object.__setattr__(self, "opcode", opcode)
        object.__setattr__(self, "fields", fields)

    def __getattr__(self, name: str) -> Any:
        position = _POSITIONS[self.opcode].get(name)
        if position is None:
            raise AttributeError(f"{self.opcode} has no field {name!r}")
        return self.fields[position]

    def __getitem__(self, name: str) -> Any:
        return self.fields[_POSITIONS[self.opcode][name]]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"Instruction is immutable; use replace({name}=...)")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("Instruction is immutable")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Instruction):
            return NotImplemented
        return self.opcode == other.opcode and self.fields == other.fields

    def __hash__(self) -> int:
        return hash((self.opcode, self.fields))

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.name}={v!r}" for f, v in zip(self.row.fields, self.fields, strict=True))
        return f"{self.opcode}({shown})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Instruction, (self.opcode, self.fields)

    @property
    def row(self) -> Opcode:
        """The row of the table."""
        return OPCODES[self.opcode]

    def replace(self, **changes: Any) -> Instruction:
        """Return a copy with some fields changed; KeyError for a field the row does not have."""
        fields = list(self.fields)
        for name, value in changes.items():
            fields[_POSITIONS[self.opcode][name]] = value
        return Instruction(self.opcode, tuple(fields))

    def operands_read(self) -> tuple[int, ...]:
        """Operands that are read, registers and constants alike, in field order."""
        return tuple(_gather(self, _READS))

    def registers_read(self) -> tuple[int, ...]:
        """Registers that are read, in field order."""
        own = tuple(r for r in _gather(self, _READS) if r >= 0)
        if self.opcode == "LoadParam":
            return (self.index,)
        if self.opcode == "CallOp" and self.via is not None and ":" in self.via:
            cell = self.via.partition(":")[0]
            return (*own, int(cell)) if cell.isdecimal() and len(cell) < 10 else own
        return own

    def registers_written(self) -> tuple[int, ...]:
        """Registers that are written, in field order."""
        return tuple(_gather(self, _WRITES))

    def constants_read(self) -> tuple[int, ...]:
        """Indexes of the constants that are read, in field order."""
        return tuple(~r for r in _gather(self, _READS) if r < 0)

    def jump_targets(self) -> tuple[int, ...]:
        """Instruction indexes that the fields name, in field order."""
        return tuple(_gather(self, _TARGETS))

    def map_reads(self, change: Callable[[int], int]) -> Instruction:
        """Return the instruction with `change` applied to every operand that is read."""
        return _map(self, _READS, change)

    def map_writes(self, change: Callable[[int], int]) -> Instruction:
        """Return the instruction with `change` applied to every register that is written."""
        return _map(self, _WRITES, change)

    def map_targets(self, change: Callable[[int], int]) -> Instruction:
        """Return the instruction with `change` applied to every jump target."""
        return _map(self, _TARGETS, change)


def _positions_of(kinds: set[str]) -> dict[str, tuple[tuple[int, bool], ...]]:
    """Per opcode the positions of fields of these kinds, and whether each is a list."""
    return {
        row.name: tuple((i, f.kind in ("uses", "defs")) for i, f in enumerate(row.fields) if f.kind in kinds)
        for row in _TABLE
    }


_READS: Final = _positions_of({"use", "uses", "const"})
_WRITES: Final = _positions_of({"def", "defs"})
_TARGETS: Final = _positions_of({"target"})


def _gather(ins: Instruction, where: Mapping[str, tuple[tuple[int, bool], ...]]) -> Iterable[int]:
    for position, is_list in where[ins.opcode]:
        value = ins.fields[position]
        if is_list:
            yield from value
        elif value is not None:
            yield value


def _map(
    ins: Instruction, where: Mapping[str, tuple[tuple[int, bool], ...]], change: Callable[[int], int]
) -> Instruction:
    if not where[ins.opcode]:
        return ins
    fields = list(ins.fields)
    for position, is_list in where[ins.opcode]:
        value = fields[position]
        if is_list:
            fields[position] = tuple(change(v) for v in value)
        elif value is not None:
            fields[position] = change(value)
    new = tuple(fields)
    return ins if new == ins.fields else Instruction(ins.opcode, new)


# Where one opcode covers several things, these of them cannot fail and run nobody's code.
_SAFE_SCALARS: Final = frozenset({"is", "is_not"})
_SAFE_BUILDS: Final = frozenset({"tuple", "list", "slice", "cell"})


def may_fail(ins: Instruction) -> bool:
    """Whether the instruction can raise or run user code: the row's columns, refined by enum fields."""
    if ins.opcode == "Scalar":
        return ins.function not in _SAFE_SCALARS
    if ins.opcode == "Build":
        return ins.what not in _SAFE_BUILDS
    if ins.opcode == "LoopStart":
        return ins.iterator is not None
    row = ins.row
    return row.may_fail or row.user_code


def is_removable(ins: Instruction) -> bool:
    """Whether nobody can tell that the instruction did not run, once nobody reads what it writes."""
    return ins.row.effect_class in ("pure", "alloc") and not may_fail(ins)
