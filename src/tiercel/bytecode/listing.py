"""One instruction as a line of text and back, from the templates in the table of instructions.

In: an instruction and a `Notation` (how registers, constants and targets are written), or a `Scanner` and a `Reading`
(what those texts stand for). Out: the other. A line is the mnemonic and then the row's template filled in:
`CallOp       %5 = matmul(%x, %w) as np.matmul : float32[B, 128]`.

Templates: `{field}` is a field, `{a*b}` two fields printed together, `<...>` is left out while its field is absent, 0
or empty, everything else stands for itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tiercel.bytecode.instructions import OPCODES, Field, Instruction, Opcode
from tiercel.bytecode.literals import Scanner, print_literal, print_name
from tiercel.bytecode.program import Function, Program
from tiercel.bytecode.tokens import print_descriptor
from tiercel.errors import BytecodeError, suggest

__all__ = ["MNEMONIC_WIDTH", "Notation", "Reading", "parse_instruction", "print_instruction", "register_names"]

MNEMONIC_WIDTH: Final = max(map(len, OPCODES)) + 1
# Constants whose text is longer are written by number.
_INLINE_WIDTH: Final = 48


@dataclass(frozen=True, slots=True)
class Notation:
    """How a function's registers, constants, tokens and targets are written. Any number may be given.

    Attributes:
        registers, constants, tokens: those that are not written by number.
        pcs: the addresses of instructions.
    """

    registers: Mapping[int, str]
    constants: Mapping[int, str]
    tokens: Mapping[int, str]
    pcs: Sequence[int]

    def register(self, number: int) -> str:
        """Return the text of a register."""
        return self.registers.get(number) or f"%{number}"

    def operand(self, operand: int) -> str:
        """Return the text of an operand."""
        if operand >= 0:
            return self.register(operand)
        return self.constants.get(~operand) or f"${~operand}"

    def token(self, index: int) -> str:
        """Return the text of a declared token."""
        return self.tokens.get(index) or f"#{index}"

    def target(self, index: int) -> str:
        """Return the text of a jump target."""
        return f"0x{self.pcs[index]:02X}" if index < len(self.pcs) else f"@{index}"

    @staticmethod
    def of(program: Program, function: Function) -> Notation:
        """Return the notation for one function of a program."""
        return Notation(
            registers=register_names(function),
            constants=constant_texts(program),
            tokens=token_texts(program),
            pcs=function.pcs,
        )


class Reading(Protocol):
    """What the texts of registers, constants, tokens and labels stand for while a listing is read."""

    def operand(self, scanner: Scanner) -> int:
        """Read a register or a constant."""
        ...

    def register(self, scanner: Scanner) -> int:
        """Read a register."""
        ...

    def token(self, scanner: Scanner) -> int:
        """Read a declared token."""
        ...

    def target(self, scanner: Scanner) -> int:
        """Read a label."""
        ...


def register_names(function: Function) -> dict[int, str]:
    """Return how registers are written: those that are the home of one variable by its name, the rest by number.

    `%x` where no other register is a home of `x`, else `%x.3`.
    """
    homes: dict[int, str] = {}
    for i, p in enumerate(function.parameters):
        homes[i] = p.name
    for i, name in enumerate(function.free):
        homes[len(function.parameters) + i] = name
    for v in function.variables:
        if type(v.where) is int and v.where >= 0:
            homes.setdefault(v.where, v.name)
    owners: dict[str, int] = {}
    for name in homes.values():
        owners[name] = owners.get(name, 0) + 1
    return {
        r: f"%{name}" if owners[name] == 1 else f"%{name}.{r}"
        for r, name in homes.items()
        if _NAME.fullmatch(name) and name.isprintable()
    }


def constant_texts(program: Program) -> dict[int, str]:
    """Return the constants that are written as literals: short ones, each at its first index only."""
    texts: dict[int, str] = {}
    seen: set[str] = set()
    for index, value in enumerate(program.constants):
        if isinstance(value, str | bytes) and len(value) > _INLINE_WIDTH:
            continue
        try:
            text = print_literal(value)
        except BytecodeError:
            continue
        if len(text) <= _INLINE_WIDTH and text not in seen:
            seen.add(text)
            texts[index] = text
    return texts


def token_texts(program: Program) -> dict[int, str]:
    """Return the texts of declared tokens, each at its first index only."""
    texts: dict[int, str] = {}
    seen: set[str] = set()
    for index, descriptor in enumerate(program.tokens):
        text = print_descriptor(descriptor)
        if text not in seen:
            seen.add(text)
            texts[index] = text
    return texts


def print_instruction(ins: Instruction, notation: Notation, *, indent: int = 0) -> str:
    """Return the mnemonic and the filled-in template."""
    body = "".join([part.show(ins, notation) for part in _TEMPLATES[ins.opcode]])
    return f"{ins.opcode:<{MNEMONIC_WIDTH}}{'    ' * indent}{body}"


def parse_instruction(scanner: Scanner, reading: Reading) -> Instruction:
    """Read a mnemonic and its template, to the end of the line.

    Raises:
        BytecodeError: the line is no instruction; the error names the place and what was expected.
    """
    scanner.skip()
    start = scanner.pos
    opcode = scanner.word("a mnemonic")
    row = OPCODES.get(opcode)
    if row is None:
        scanner.fail(f"unknown opcode {opcode!r}{suggest(opcode, tuple(OPCODES))}", start)
    values: dict[str, Any] = {}
    for part in _TEMPLATES[opcode]:
        part.read(scanner, reading, values)
    scanner.finish()
    fields = tuple([values[f.name] if f.name in values else _ABSENT.get(f.kind) for f in row.fields])
    try:
        return Instruction(opcode, fields)
    except BytecodeError as e:
        scanner.fail(e.reason, start)


_NAME: Final = re.compile(r"[^\W\d]\w*")
_KEYWORD: Final = re.compile(r"([^\W\d]\w*)[ \t]*=(?!=)")
# What a field is when its `<...>` is not there; None for all other kinds.
_ABSENT: Final[Mapping[str, Any]] = {"uses": (), "names": (), "imm": 0, "simm": 0}


@dataclass(frozen=True, slots=True)
class _Literal:
    text: str

    def show(self, ins: Instruction, notation: Notation) -> str:
        return self.text

    def read(self, scanner: Scanner, reading: Reading, values: dict[str, Any]) -> None:
        for word in self.text.split():
            scanner.expect(word)


@dataclass(frozen=True, slots=True)
class _Placeholder:
    field: Field

    def show(self, ins: Instruction, notation: Notation) -> str:
        return _SHOW[self.field.kind](ins[self.field.name], notation)

    def read(self, scanner: Scanner, reading: Reading, values: dict[str, Any]) -> None:
        values[self.field.name] = _READ[self.field.kind](scanner, reading, self.field)


@dataclass(frozen=True, slots=True)
class _Arguments:
    """`{args*keywords}`: `%a, axis=1, *%rest, **%more`."""

    args: str
    keywords: str

    def show(self, ins: Instruction, notation: Notation) -> str:
        args = ins[self.args]
        keywords = ins[self.keywords] or ("",) * len(args)
        parts = []
        # Lengths that differ are refused by the verifier, which prints the instruction that it refuses.
        for position in range(max(len(args), len(keywords))):
            keyword = keywords[position] if position < len(keywords) else ""
            value = notation.operand(args[position]) if position < len(args) else "<missing>"
            if keyword in ("", "*", "**"):
                parts.append(f"{keyword}{value}")
            else:
                bare = _NAME.fullmatch(keyword) and keyword.isprintable()
                parts.append(f"{keyword if bare else repr(keyword)}={value}")
        return ", ".join(parts)

    def read(self, scanner: Scanner, reading: Reading, values: dict[str, Any]) -> None:
        args: list[int] = []
        keywords: list[str] = []
        while not _closes(scanner, args):
            keyword = ""
            match = scanner.try_match(_KEYWORD)
            if match is not None:
                keyword = match.group(1)
            elif scanner.try_text("**"):
                keyword = "**"
            elif scanner.try_text("*"):
                keyword = "*"
            else:
                keyword = _quoted_keyword(scanner)
            keywords.append(keyword)
            args.append(reading.operand(scanner))
        values[self.args] = tuple(args)
        values[self.keywords] = tuple(keywords) if any(keywords) else ()


@dataclass(frozen=True, slots=True)
class _Targets:
    """`{dsts*star}`: `%a, *%rest`."""

    dsts: str
    star: str

    def show(self, ins: Instruction, notation: Notation) -> str:
        return ", ".join(
            [f"{'*' if i + 1 == ins[self.star] else ''}{notation.register(r)}" for i, r in enumerate(ins[self.dsts])]
        )

    def read(self, scanner: Scanner, reading: Reading, values: dict[str, Any]) -> None:
        dsts: list[int] = []
        star = 0
        while not _closes(scanner, dsts):
            if scanner.try_text("*"):
                if star:
                    scanner.fail("only one target can be starred")
                star = len(dsts) + 1
            dsts.append(reading.register(scanner))
        values[self.dsts] = tuple(dsts)
        values[self.star] = star


@dataclass(frozen=True, slots=True)
class _Group:
    """`<...>`: left out while its first field is absent, 0 or empty."""

    parts: tuple[Any, ...]
    field: str

    def show(self, ins: Instruction, notation: Notation) -> str:
        value = ins[self.field]
        if value is None or value == () or (value == 0 and ins.row.fields[ins.row.index(self.field)].kind == "imm"):
            return ""
        return "".join([part.show(ins, notation) for part in self.parts])

    def read(self, scanner: Scanner, reading: Reading, values: dict[str, Any]) -> None:
        first = self.parts[0]
        rest = self.parts[1:]
        if isinstance(first, _Literal) and first.text.strip():
            words = first.text.split()
            start = scanner.pos
            if not scanner.try_text(words[0]):
                return
            for word in words[1:]:
                if not scanner.try_text(word):
                    # `, kwdefaults` where `, defaults` could have been.
                    scanner.pos = start
                    return
        elif scanner.at_end() or scanner.text.startswith("from", scanner.pos):
            return
        for part in rest:
            part.read(scanner, reading, values)


def _closes(scanner: Scanner, items: list[int]) -> bool:
    """Whether a list in parentheses ends here; skips the comma before a further item."""
    scanner.skip()
    if scanner.text.startswith(")", scanner.pos):
        return True
    if items:
        scanner.expect(",")
    return False


def _quoted_keyword(scanner: Scanner) -> str:
    """Read `'any text'=` if it is there."""
    scanner.skip()
    start = scanner.pos
    if scanner.text[start : start + 1] not in ("'", '"'):
        return ""
    name = scanner.name("a keyword")
    if scanner.try_text("="):
        return name
    scanner.pos = start
    return ""


def _show_list(values: tuple[int, ...], show: Callable[[int], str]) -> str:
    return ", ".join([show(v) for v in values])


_SHOW: Final[Mapping[str, Callable[[Any, Notation], str]]] = {
    "def": lambda v, n: "none" if v is None else n.register(v),
    "defs": lambda v, n: _show_list(v, n.register),
    "use": lambda v, n: "none" if v is None else n.operand(v),
    "uses": lambda v, n: _show_list(v, n.operand),
    "const": lambda v, n: n.operand(v),
    "imm": lambda v, n: str(v),
    "simm": lambda v, n: str(v),
    "name": lambda v, n: "none" if v is None else print_name(v),
    "names": lambda v, n: ", ".join(map(print_name, v)),
    "target": lambda v, n: n.target(v),
    "token": lambda v, n: n.token(v),
    "enum": lambda v, n: str(v),
}


def _read_list(read: Callable[[Scanner], int]) -> Callable[[Scanner], tuple[int, ...]]:
    def read_all(scanner: Scanner) -> tuple[int, ...]:
        items: list[int] = []
        while not _closes(scanner, items):
            items.append(read(scanner))
        return tuple(items)

    return read_all


def _read_const(scanner: Scanner, reading: Reading, field: Field) -> int:
    scanner.skip()
    start = scanner.pos
    operand = reading.operand(scanner)
    if operand >= 0:
        scanner.fail(f"{field.name} must be a constant", start)
    return operand


def _read_names(scanner: Scanner, reading: Reading, field: Field) -> tuple[str, ...]:
    names = [scanner.name(field.name)]
    while scanner.try_text(","):
        names.append(scanner.name(field.name))
    return tuple(names)


def _read_enum(scanner: Scanner, reading: Reading, field: Field) -> str:
    scanner.skip()
    start = scanner.pos
    word = scanner.word(f"{field.name}, one of {field.enum_name}")
    if word not in field.enum:
        scanner.fail(f"{word!r} is none of {field.enum_name}{suggest(word, field.enum)}", start)
    return word


_READ: Final[Mapping[str, Callable[[Scanner, Reading, Field], Any]]] = {
    "def": lambda s, r, f: r.register(s),
    "defs": lambda s, r, f: _read_list(r.register)(s),
    "use": lambda s, r, f: r.operand(s),
    "uses": lambda s, r, f: _read_list(r.operand)(s),
    "const": _read_const,
    "imm": lambda s, r, f: s.number(f.name),
    "simm": lambda s, r, f: s.number(f.name),
    "name": lambda s, r, f: s.name(f.name),
    "names": _read_names,
    "target": lambda s, r, f: r.target(s),
    "token": lambda s, r, f: r.token(s),
    "enum": _read_enum,
}

_TEMPLATE: Final = re.compile(r"\{(\w+)(?:\*(\w+))?\}|<([^>]*)>|([^{<]+)")


def _compile(row: Opcode, template: str) -> tuple[Any, ...]:
    fields = {f.name: f for f in row.fields}
    parts: list[Any] = []
    for match in _TEMPLATE.finditer(template):
        field, second, group, literal = match.groups()
        if second is not None:
            parts.append(_Targets(field, second) if fields[field].kind == "defs" else _Arguments(field, second))
        elif field is not None:
            parts.append(_Placeholder(fields[field]))
        elif group is not None:
            inner = _compile(row, group)
            owner = next(p.field.name for p in inner if isinstance(p, _Placeholder))
            parts.append(_Group(inner, owner))
        else:
            parts.append(_Literal(literal))
    return tuple(parts)


_TEMPLATES: Final = {row.name: _compile(row, row.text) for row in OPCODES.values()}
