"""The assembler: the text form of a program to the program.

In: a text as `to_text` writes it, or as a person does. Out: the program it says, not yet verified. `text` describes the
form. Lines are sorted by section first, because the listing can only be read when the data below it is known.

Invariant: any text is read in time linear in its length, or refused with a line, a place in it and a reason.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from tiercel.bytecode.constants import ConstantPool, ObjectRef, own_array
from tiercel.bytecode.instructions import Instruction
from tiercel.bytecode.listing import parse_instruction, register_names
from tiercel.bytecode.literals import Scanner, parse_literal, parse_string, print_literal
from tiercel.bytecode.program import (
    Function,
    FunctionProfile,
    Parameter,
    Profile,
    Program,
    SignatureProfile,
    Span,
    Variable,
    home_locations,
)
from tiercel.bytecode.tokens import make_facts, parse_descriptor, print_descriptor
from tiercel.dtypes import as_dtype
from tiercel.errors import BytecodeError, DTypeError
from tiercel.shapes import Facts, TensorDescriptor

__all__ = ["from_text"]

_ADDRESS: Final = re.compile(r"(0x[0-9A-Fa-f]+)(?![\w:])|([^\W\d]\w*)[ \t]*:(?!=)")
_REGISTER: Final = re.compile(r"%(?:(\d+)|([^\W\d]\w*)(?:\.(\d+))?)")
_LABEL: Final = re.compile(r"0x[0-9A-Fa-f]+|[^\W\d]\w*")


def from_text(text: str) -> Program:
    """Return the program that a text form says. It is not verified: call `verify`.

    Raises:
        BytecodeError: the text is none; the error's section is the line, its neighbourhood points at the place.
    """
    reader = _TextReader()
    for number, line in enumerate(text.split("\n"), 1):
        reader.line(Scanner(line.rstrip("\r"), number))
    return reader.program()


@dataclass(slots=True)
class _Section:
    """A section of data: the scanner of its head, behind its name, and those of its lines."""

    head: Scanner
    lines: list[Scanner] = field(default_factory=list)


@dataclass(slots=True)
class _Body:
    """The text of one function: its `def` line and its instruction lines."""

    head: Scanner
    lines: list[Scanner] = field(default_factory=list)


@dataclass(slots=True)
class _FunctionData:
    """What `.function` says."""

    qualname: str | None = None
    filename: str = ""
    first_line: int = 0
    registers: int | None = None
    loops: int | None = None
    variables: list[Variable] = field(default_factory=list)
    spans: list[Span | None] = field(default_factory=list)
    source: str | None = None


class _TextReader:
    """Collects lines, then makes the program."""

    def __init__(self) -> None:
        self.name = ""
        self.bodies: list[_Body] = []
        self.sections: dict[str, _Section] = {}
        self.functions_data: dict[int, _FunctionData] = {}
        self._current: list[Scanner] | None = None

    def line(self, scanner: Scanner) -> None:
        if scanner.at_end():
            return
        if scanner.text.startswith("."):
            scanner.pos = 1
            name = scanner.word("a section")
            if name not in _SECTIONS:
                scanner.fail(f"unknown section .{name}; sections are {', '.join(sorted(_SECTIONS))}", 0)
            section = _Section(scanner)
            if name == "function":
                name = f"function {scanner.number('the number of a function')}"
            scanner.finish()
            if name in self.sections:
                scanner.fail(f"a second section .{name}", 0)
            self.sections[name] = section
            self._current = section.lines
        elif scanner.try_text("def"):
            if self.sections:
                scanner.fail("functions come before sections of data", 0)
            body = _Body(scanner)
            self.bodies.append(body)
            self._current = body.lines
        elif self._current is None:
            if not scanner.try_text("program"):
                scanner.fail("expected 'program', 'def' or a comment")
            self.name = parse_string(scanner, "the name of the program")
            scanner.finish()
        else:
            self._current.append(scanner)

    def program(self) -> Program:
        if not self.bodies:
            raise BytecodeError("the text holds no function; one begins with a line `def name(...):`", section="text")
        constants = _Constants(self.sections.get("constants"))
        facts_section = self.sections.get("facts")
        facts = Facts() if facts_section is None else _read_facts(facts_section)
        tokens = _Tokens(self.sections.get("tokens"), facts)
        functions = []
        for index, body in enumerate(self.bodies):
            data = _read_function_data(self.sections.get(f"function {index}"))
            functions.append(_FunctionReader(body, data, constants, tokens).function())
        for name, section in self.sections.items():
            if name.startswith("function ") and int(name.split()[1]) >= len(functions):
                section.head.fail(f"there is no function {name.split()[1]}", 0)
        return Program(
            functions=tuple(functions),
            constants=tuple(constants.pool.values),
            tokens=tuple(tokens.descriptors),
            facts=facts if facts_section is not None or facts.constraints else None,
            name=self.name,
            source_hash=_read_source_hash(self.sections.get("program")),
            profile=_read_profile(self.sections.get("profile")),
        )


_SECTIONS: Final = frozenset({"program", "constants", "tokens", "facts", "function", "profile"})


class _Constants:
    """The constants of a text: those of its section, then those that only the listing has."""

    def __init__(self, section: _Section | None) -> None:
        self.objects: dict[str, int] = {}
        values: list[object] = []
        lines = iter(section.lines if section is not None else ())
        scanner = next(lines, None)
        while scanner is not None:
            if scanner.number("the number of a constant") != len(values):
                scanner.fail(f"expected constant {len(values)}", 0)
            if scanner.try_text("array"):
                value, scanner = _read_array(scanner, lines)
                values.append(value)
                continue
            constant = parse_literal(scanner)
            scanner.finish()
            if isinstance(constant, ObjectRef):
                self.objects.setdefault(constant.name, len(values))
            values.append(constant)
            scanner = next(lines, None)
        self.pool = ConstantPool(values)

    def operand(self, scanner: Scanner) -> int:
        if scanner.try_text("$"):
            start = scanner.pos
            index = scanner.number("the number of a constant")
            if not 0 <= index < len(self.pool.values):
                scanner.fail(
                    f"there is no constant ${index}; the section .constants has {len(self.pool.values)}", start
                )
            return ~index
        value = parse_literal(scanner)
        if isinstance(value, ObjectRef):
            known = self.objects.get(value.name)
            if known is not None:
                return ~known
            self.objects[value.name] = len(self.pool.values)
        return self.pool.operand(value)


def _read_array(scanner: Scanner, lines: Iterator[Scanner]) -> tuple[np.ndarray[Any, Any], Scanner | None]:
    """Read an array whose base64 stands on the lines below; returns it and the next line that is not its own."""
    start = scanner.pos
    try:
        dtype = as_dtype(scanner.word("a dtype"))
    except DTypeError as e:
        scanner.fail(str(e), start)
    shape = parse_literal(scanner)
    if type(shape) is not tuple or not all(type(n) is int and n >= 0 for n in shape):
        scanner.fail("expected a shape", start)
    scanner.finish()
    encoded = []
    following: Scanner | None = None
    for line in lines:
        if not line.text.startswith("    "):
            following = line
            break
        encoded.append(line.text.strip())
    try:
        raw = base64.b64decode("".join(encoded), validate=True)
    except (binascii.Error, ValueError) as e:
        scanner.fail(f"the lines below are not base64: {e}", start)
    size = dtype.itemsize
    for n in shape:
        size *= n
    if size != len(raw):
        scanner.fail(f"{dtype.name} {print_literal(shape)} has {size} bytes, the lines below have {len(raw)}", start)
    try:
        made = np.frombuffer(raw, dtype.numpy).reshape(shape)
    except ValueError as e:
        scanner.fail(f"no array has this shape: {e}", start)
    return own_array(made), following


class _Tokens:
    """The declared tokens of a text: those of its section, then those that only the listing has."""

    def __init__(self, section: _Section | None, facts: Facts) -> None:
        self.descriptors: list[TensorDescriptor] = []
        self.index: dict[str, int] = {}
        self.facts = facts
        for scanner in section.lines if section is not None else ():
            if scanner.number("the number of a token") != len(self.descriptors):
                scanner.fail(f"expected token {len(self.descriptors)}", 0)
            self._add(parse_descriptor(scanner, facts))
            scanner.finish()

    def _add(self, descriptor: TensorDescriptor) -> int:
        self.descriptors.append(descriptor)
        return self.index.setdefault(print_descriptor(descriptor), len(self.descriptors) - 1)

    def read(self, scanner: Scanner) -> int:
        if scanner.try_text("#"):
            start = scanner.pos
            index = scanner.number("the number of a token")
            if not 0 <= index < len(self.descriptors):
                scanner.fail(f"there is no token #{index}; the section .tokens has {len(self.descriptors)}", start)
            return index
        descriptor = parse_descriptor(scanner, self.facts)
        known = self.index.get(print_descriptor(descriptor))
        return self._add(descriptor) if known is None else known


class _FunctionReader:
    """Reads one function; the `Reading` of its instruction lines."""

    def __init__(self, body: _Body, data: _FunctionData | None, constants: _Constants, tokens: _Tokens) -> None:
        self.body = body
        self.data = data
        self.constants = constants
        self.tokens = tokens
        self.parameters: list[Parameter] = []
        self.free: list[str] = []
        # Registers by the text that stands for them; with data, exactly those the printer used.
        self.named: dict[str, int] = {}
        self.homes: dict[int, str] = {}
        self.highest = -1
        self.labels: dict[str, int] = {}
        self.wanted: list[tuple[str, Scanner, int]] = []

    def function(self) -> Function:
        name = self._read_header()
        first = len(self.parameters) + len(self.free)
        if self.data is None:
            used = (int(n) for s in self.body.lines for n in re.findall(r"%(\d{1,9})\b", s.text))
            self.highest = max([first - 1, *used])
        else:
            skeleton = Function(
                name,
                (),
                (),
                parameters=tuple(self.parameters),
                free=tuple(self.free),
                variables=tuple(self.data.variables),
            )
            self.named = {text: register for register, text in register_names(skeleton).items()}
        instructions = self._read_instructions()
        data = self.data or _FunctionData()
        data.spans = data.spans or [None] * len(instructions)
        if len(data.spans) != len(instructions):
            self.body.head.fail(f"{len(instructions)} instructions, but .function has {len(data.spans)} spans", 0)
        loops = (i.loop + 1 for i in instructions if i.opcode == "LoopStart")
        return Function(
            name=name,
            instructions=tuple(instructions),
            spans=tuple(data.spans),
            qualname=name if data.qualname is None else data.qualname,
            filename=data.filename,
            first_line=data.first_line,
            parameters=tuple(self.parameters),
            free=tuple(self.free),
            registers=max(self.highest + 1, first) if data.registers is None else data.registers,
            variables=tuple(data.variables) if self.data is not None else self._locations(instructions),
            loops=max(loops, default=0) if data.loops is None else data.loops,
            source=data.source,
        )

    def _locations(self, instructions: list[Instruction]) -> tuple[Variable, ...]:
        end = len(instructions)
        found = [Variable(p.name, 0, end, i) for i, p in enumerate(self.parameters)]
        found += [Variable(n, 0, end, f"cell:{len(self.parameters) + i}") for i, n in enumerate(self.free)]
        return tuple([v for v in [*found, *home_locations(instructions, self.homes)] if v.start < v.end])

    def _read_header(self) -> str:
        scanner = self.body.head
        name = scanner.name("the name of the function")
        scanner.expect("(")
        kind = "positional_or_keyword"
        while not scanner.try_text(")"):
            if self.parameters or kind != "positional_or_keyword":
                scanner.expect(",")
            if scanner.try_text("/"):
                self.parameters = [Parameter(p.name, "positional_only", p.default, p.token) for p in self.parameters]
            elif scanner.try_text("**"):
                self._read_parameter(scanner, "var_keyword")
            elif scanner.try_text("*"):
                kind = "keyword_only"
                scanner.skip()
                if scanner.text.startswith("%", scanner.pos):
                    self._read_parameter(scanner, "var_positional")
            else:
                self._read_parameter(scanner, kind)
        if scanner.try_text("free"):
            scanner.expect("(")
            while not scanner.try_text(")"):
                if self.free:
                    scanner.expect(",")
                register, name_of = self._declared(scanner, len(self.parameters) + len(self.free))
                self.free.append(name_of)
                self.named[f"%{name_of}"] = self.named[f"%{name_of}.{register}"] = register
        scanner.expect(":")
        scanner.finish()
        return name

    def _read_parameter(self, scanner: Scanner, kind: str) -> None:
        register, name = self._declared(scanner, len(self.parameters))
        token = self.tokens.read(scanner) if scanner.try_text(":") else None
        default = self.constants.operand(scanner) if scanner.try_text("=") else None
        self.parameters.append(Parameter(name, kind, default, token))
        self.named[f"%{name}"] = self.named[f"%{name}.{register}"] = register

    def _declared(self, scanner: Scanner, register: int) -> tuple[int, str]:
        """A register in the `def` line: `%name`, or `%name.3` with the number that it must have."""
        match = scanner.try_match(_REGISTER)
        if match is None or match.group(2) is None:
            scanner.fail("expected %name")
        if match.group(3) is not None and int(match.group(3)[:10]) != register:
            scanner.fail(f"this is register {register}", match.start(3))
        return register, match.group(2)

    def _read_instructions(self) -> list[Instruction]:
        instructions: list[Instruction] = []
        holders: list[int] = []
        for scanner in self.body.lines:
            self._read_label(scanner, len(instructions))
            if scanner.at_end():
                continue
            before = len(self.wanted)
            instructions.append(parse_instruction(scanner, self))
            holders += [len(instructions) - 1] * (len(self.wanted) - before)
        targets: dict[int, int] = {}
        for number, (label, scanner, at) in enumerate(self.wanted):
            if label not in self.labels:
                scanner.fail(f"no line has the label {label}", at)
            targets[number] = self.labels[label]
        # While labels were unknown a target was the number of its mention.
        for index in dict.fromkeys(holders):
            instructions[index] = instructions[index].map_targets(targets.__getitem__)
        return instructions

    def _read_label(self, scanner: Scanner, index: int) -> None:
        scanner.skip()
        start = scanner.pos
        match = scanner.try_match(_ADDRESS)
        if match is None:
            return
        label = _canonical_label(match.group(1) or match.group(2))
        if label in self.labels:
            scanner.fail(f"a second line has the label {label}", start)
        self.labels[label] = index

    def operand(self, scanner: Scanner) -> int:
        scanner.skip()
        if scanner.text.startswith("%", scanner.pos):
            return self.register(scanner)
        return self.constants.operand(scanner)

    def register(self, scanner: Scanner) -> int:
        match = scanner.try_match(_REGISTER)
        if match is None:
            scanner.fail("expected a register: %5 or %name")
        number, name, suffix = match.groups()
        if number is not None:
            if len(number) > 9:
                scanner.fail("a register number has at most 9 digits", match.start())
            return int(number)
        known = self.named.get(match.group())
        if known is not None:
            return known
        if self.data is not None:
            scanner.fail(f"no variable has the register {match.group()}", match.start())
        if suffix is not None:
            register = int(suffix[:9])
            self.highest = max(self.highest, register)
        else:
            self.highest += 1
            register = self.highest
        self.named[match.group()] = register
        self.homes[register] = name
        return register

    def token(self, scanner: Scanner) -> int:
        return self.tokens.read(scanner)

    def target(self, scanner: Scanner) -> int:
        match = scanner.try_match(_LABEL)
        if match is None:
            scanner.fail("expected a label: 0x0A or a word")
        self.wanted.append((_canonical_label(match.group()), scanner, match.start()))
        return len(self.wanted) - 1


def _canonical_label(text: str) -> str:
    # Addresses are labels as well, however many digits they are written with.
    return f"0x{text[2:].lstrip('0').upper() or '0'}" if text.startswith("0x") else text


def _read_function_data(section: _Section | None) -> _FunctionData | None:
    if section is None:
        return None
    data = _FunctionData()
    source: list[str] | None = None
    for scanner in section.lines:
        if source is not None:
            source.append(parse_string(scanner, "a line of the source"))
            scanner.finish()
            continue
        start = scanner.pos
        word = scanner.word("a property of the function")
        if word in ("qualname", "filename"):
            setattr(data, word, parse_string(scanner, word))
        elif word in ("first_line", "registers", "loops"):
            setattr(data, word, scanner.number(word))
        elif word == "variable":
            data.variables.append(_read_variable(scanner))
        elif word == "spans":
            while not scanner.at_end():
                data.spans.append(_read_span(scanner, data.spans))
        elif word == "source":
            source = []
        else:
            scanner.fail(f"unknown property {word!r} of a function", start)
        scanner.finish()
    data.source = None if source is None else "".join(source)
    return data


def _read_variable(scanner: Scanner) -> Variable:
    name = parse_string(scanner, "the name of a variable")
    start = scanner.number("its first instruction")
    end = scanner.number("its last instruction")
    scanner.skip()
    if scanner.text[scanner.pos : scanner.pos + 1] in ("'", '"'):
        return Variable(name, start, end, parse_string(scanner, "its location"))
    return Variable(name, start, end, scanner.number("its location"))


_SPAN: Final = re.compile(r"(\d{1,9}):(\d{1,9})-(?:(\d{1,9}):)?(\d{1,9})(?!\d)")


def _read_span(scanner: Scanner, before: list[Span | None]) -> Span | None:
    if scanner.try_text("-"):
        return None
    if scanner.try_text("="):
        if not before:
            scanner.fail("'=' repeats the span before it; there is none")
        return before[-1]
    match = scanner.try_match(_SPAN)
    if match is None:
        scanner.fail("expected a span: line:col-end, '=' or '-'")
    line, col, end_line, end_col = match.groups()
    return int(line), int(col), int(line if end_line is None else end_line), int(end_col)


def _read_facts(section: _Section) -> Facts:
    texts = []
    for scanner in section.lines:
        scanner.skip()
        texts.append(scanner.text[scanner.pos :].strip())
    try:
        return make_facts(texts)
    except BytecodeError as e:
        section.head.fail(e.reason, 0)


def _read_source_hash(section: _Section | None) -> str:
    found = ""
    for scanner in section.lines if section is not None else ():
        scanner.expect("source_hash")
        found = parse_string(scanner, "source_hash")
        scanner.finish()
    return found


def _read_profile(section: _Section | None) -> Profile | None:
    if section is None:
        return None
    functions: dict[int, FunctionProfile] = {}
    index = -1
    loops: dict[int, tuple[int, int]] = {}
    learned: dict[str, dict[int, str]] = {}
    for scanner in section.lines:
        start = scanner.pos
        word = scanner.word("an entry of the profile")
        if word == "function":
            index = scanner.number("the number of a function")
            loops, learned = {}, {}
            functions[index] = FunctionProfile(scanner.number("entries"), loops)
        elif index not in functions:
            scanner.fail("the profile of a function begins with 'function'", start)
        elif word == "loop":
            loop = scanner.number("a loop")
            loops[loop] = (scanner.number("entries"), scanner.number("iterations"))
        elif word == "signature":
            learned = {"live": {}, "result": {}}
            text, count = parse_string(scanner, "a signature"), scanner.number("its count")
            made = SignatureProfile(text, count, learned["live"], learned["result"])
            functions[index] = replace(functions[index], signatures=(*functions[index].signatures, made))
        elif word not in ("live", "result"):
            scanner.fail(f"unknown entry {word!r} of the profile", start)
        elif not learned:
            scanner.fail("what was learned follows its 'signature'", start)
        else:
            number = scanner.number("a register" if word == "live" else "an instruction")
            learned[word][number] = parse_string(scanner, "a descriptor")
        scanner.finish()
    return Profile(functions)
