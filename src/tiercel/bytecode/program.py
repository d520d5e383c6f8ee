"""What a program is: functions, constants, declared tokens, facts about their symbols, and the learned profile.

Plain data. In: made by the `Builder`, by `loads` or by `from_text`. Out: read by everybody downstream.

Invariant: a `Function` never changes. A `Program` changes in one attribute only, `profile`, which is replaced as a
whole, so a reader that takes it once sees one consistent state without a lock. While a machine watches the program,
reading `profile` asks the machine (`learn_from`), so that learning costs the running program nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from tiercel.bytecode.constants import UNBOUND, ObjectRef
from tiercel.bytecode.encode import function_names, instruction_offsets
from tiercel.bytecode.instructions import Instruction
from tiercel.errors import BytecodeError
from tiercel.shapes import Facts, TensorDescriptor

__all__ = [
    "MAX_SPAN",
    "OPTIMISED_AWAY",
    "PARAMETER_KINDS",
    "UNBOUND",
    "Function",
    "FunctionProfile",
    "ObjectRef",
    "Parameter",
    "Profile",
    "Program",
    "SignatureProfile",
    "Span",
    "Variable",
    "home_locations",
]

# 1-based line, 0-based UTF-8 column, end line, end column (exclusive), as in `ast`.
Span: TypeAlias = tuple[int, int, int, int]
# Lines and columns are below this.
MAX_SPAN: Final = 10**9

PARAMETER_KINDS: Final = (
    "positional_only",
    "positional_or_keyword",
    "var_positional",
    "keyword_only",
    "var_keyword",
)
ParameterKind: TypeAlias = Literal[
    "positional_only", "positional_or_keyword", "var_positional", "keyword_only", "var_keyword"
]
OPTIMISED_AWAY: Final = "optimised away"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter; parameter i arrives in register i.

    Attributes:
        name: as in the source.
        kind: one of `PARAMETER_KINDS`.
        default: constant operand of the default; None if there is none, or if it is no constant.
        token: index of the declared token, or None.
    """

    name: str
    kind: str = "positional_or_keyword"
    default: int | None = None
    token: int | None = None


@dataclass(frozen=True, slots=True)
class Variable:
    """Where a source variable is while control is at one of the instructions from `start` to `end` (exclusive).

    Attributes:
        name: as in the source.
        start: first instruction index.
        end: one past the last.
        where: a register; a constant operand (negative); "cell:<register>" for the contents of that cell; or
            "optimised away".
    """

    name: str
    start: int
    end: int
    where: int | str


@dataclass(frozen=True)
class Function:
    """A function of a program.

    Attributes:
        name: `__name__` of the source function.
        instructions: indexed by jump targets.
        spans: source position per instruction, None where there is none.
        qualname, filename, first_line: as of the code object.
        parameters: parameter i is in register i on entry.
        free: names of captured cells; cell i is in register `len(parameters) + i` on entry.
        registers: how many registers there are.
        variables: locations of source variables.
        loops: how many loop ids there are.
        source: text of the source from `first_line` on, or None.
    """

    name: str
    instructions: tuple[Instruction, ...]
    spans: tuple[Span | None, ...]
    qualname: str = ""
    filename: str = ""
    first_line: int = 0
    parameters: tuple[Parameter, ...] = ()
    free: tuple[str, ...] = ()
    registers: int = 0
    variables: tuple[Variable, ...] = ()
    loops: int = 0
    source: str | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The strings of the instructions, each once, in the order in which they first occur."""
        return function_names(self.instructions)

    @cached_property
    def pcs(self) -> Sequence[int]:
        """Byte offset of each instruction in the encoded function, and of the end."""
        return instruction_offsets(self.instructions, self.names)

    def pc_of(self, index: int) -> int:
        """Return the byte offset of an instruction; that of the end for `len(instructions)`."""
        return self.pcs[index]

    def index_of(self, pc: int) -> int:
        """Return the index of the instruction at a byte offset.

        Raises:
            BytecodeError: no instruction starts there.
        """
        index = bisect_left(self.pcs, pc)
        if index >= len(self.instructions) or self.pcs[index] != pc:
            raise BytecodeError(f"no instruction starts at 0x{pc:02X}", section=f"function {self.name}", offset=pc)
        return index

    def line_of(self, index: int) -> int | None:
        """Return the source line of an instruction, if known."""
        span = self.spans[index]
        return None if span is None else span[0]

    def variables_at(self, index: int) -> dict[str, int | str]:
        """Return where each source variable is while control is at an instruction."""
        return {v.name: v.where for v in self.variables if v.start <= index < v.end}


def home_locations(instructions: Sequence[Instruction], homes: Mapping[int, str]) -> list[Variable]:
    """Return the locations of variables that live in one register each, from its first write to the end.

    Args:
        instructions: of the function.
        homes: the variable of each such register.
    """
    first_write: dict[int, int] = {}
    for index, ins in enumerate(instructions):
        for register in ins.registers_written():
            first_write.setdefault(register, index)
    end = len(instructions)
    return [Variable(n, first_write[r] + 1, end, r) for r, n in homes.items() if first_write.get(r, end) + 1 < end]


@dataclass(frozen=True, slots=True)
class SignatureProfile:
    """What was seen at a function's entries with one Signature.

    Attributes:
        text: text of the Signature.
        count: how many entries.
        live_ins: per live-in register the learned descriptor, as text.
        results: per instruction index the learned descriptor of what it wrote, as text.
    """

    text: str
    count: int = 0
    live_ins: Mapping[int, str] = field(default_factory=dict)
    results: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FunctionProfile:
    """What was seen of one function.

    Attributes:
        entries: how often it was entered.
        loops: per loop id how often it was entered and how many passes it made in all.
        signatures: per Signature what was learned.
    """

    entries: int = 0
    loops: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    signatures: tuple[SignatureProfile, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """What was learned about a program: per function index its profile."""

    functions: Mapping[int, FunctionProfile] = field(default_factory=dict)


class _ProfileField:
    """The attribute `profile`: what was assigned last, or what the source of `learn_from` answers."""

    def __get__(self, program: Program | None, owner: type) -> Profile | None:
        if program is None:
            return None  # the dataclass asks for the default
        state = program.__dict__
        source: Callable[[], Profile | None] | None = state.get("_source")
        return state["_profile"] if source is None else source()

    def __set__(self, program: Program, profile: Profile | None) -> None:
        program.__dict__["_source"] = None
        program.__dict__["_profile"] = profile


@dataclass(eq=False)
class Program:
    """A program. `str(program)` is its listing; `to_text(program)` adds what `from_text` needs.

    Attributes:
        functions: `functions[0]` is the entry.
        constants: what negative operands name.
        tokens: declared tensor descriptors, which instructions and parameters name by index.
        facts: what is known about the symbols of the tokens; None if nothing is.
        name: of the program.
        source_hash: identifies the source it was made from; empty if unknown.
        profile: what was learned, or None. Assign a new object; never change one in place.
    """

    functions: tuple[Function, ...]
    constants: tuple[object, ...] = ()
    tokens: tuple[TensorDescriptor, ...] = ()
    facts: Facts | None = None
    name: str = ""
    source_hash: str = ""
    profile: Profile | None = _ProfileField()  # type: ignore[assignment]  # a descriptor of this type

    def learn_from(self, source: Callable[[], Profile | None]) -> None:
        """Let reading `profile` call `source`, until a profile is assigned.

        Args:
            source: returns a profile that is not changed afterwards. It should not keep the program alive.
        """
        self.__dict__["_source"] = source

    @property
    def entry(self) -> Function:
        """The function that calling the program runs."""
        return self.functions[0]

    def constant(self, operand: int) -> Any:
        """Return the value of a constant operand (negative)."""
        return self.constants[~operand]

    def __str__(self) -> str:
        # The listing is made downstream of the data it lists.
        from tiercel.bytecode.text import to_text

        return to_text(self, data=False)

    def __repr__(self) -> str:
        count = sum(len(f.instructions) for f in self.functions)
        return f"<Program {self.name!r}: {len(self.functions)} functions, {count} instructions>"
