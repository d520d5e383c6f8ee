"""The bytes of a file to the program, section by section.

In: bytes of unknown origin. Out: a program, not yet verified, or a refusal with section, offset and reason.

Invariant: only what `write` gives is accepted. Counts are checked against the bytes that are left before anything is
made, so memory and time stay in proportion to the number of bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tiercel.bytecode.constants import MAX_INT_BYTES, MAX_NESTING, UNBOUND, ObjectRef
from tiercel.bytecode.encode import decode_instructions
from tiercel.bytecode.layout import (
    ALIGNMENT,
    CHUNK,
    CRC,
    ENTRY,
    HEADER,
    MAGIC,
    MAX_DIM,
    MAX_SYMBOLIC_BYTES,
    OPTIONAL,
    SECTIONS,
    VERSION,
    int_bytes,
)
from tiercel.bytecode.program import (
    MAX_SPAN,
    OPTIMISED_AWAY,
    PARAMETER_KINDS,
    Function,
    FunctionProfile,
    Parameter,
    Profile,
    Program,
    SignatureProfile,
    Span,
    Variable,
)
from tiercel.bytecode.tokens import MAX_CONSTRAINTS, MAX_TOKEN_CONSTRAINTS, make_facts
from tiercel.bytecode.wire import MAX_NUMBER, Reader
from tiercel.dtypes import DType, from_code
from tiercel.errors import BytecodeError, DTypeError, ShapeError
from tiercel.shapes import Dim, DimLike, Facts, ShapeToken, TensorDescriptor, parse_dim

__all__ = ["read_program"]


def read_program(data: memoryview) -> Program:
    """Return the program that a file's bytes say, not yet verified, its Python objects not yet resolved.

    Raises:
        BytecodeError: the bytes are none that `write` gives; names section, offset and reason.
    """
    sections = _read_table(data)
    tensors = _TensorReader(sections.get(7))
    name, source_hash = _read_program(Reader(sections[1], "program"))
    constants = _read_constants(Reader(sections[2], "constants"), tensors)
    tokens = _read_tokens(Reader(sections[3], "tokens"))
    facts = _read_facts(Reader(sections[4], "facts")) if 4 in sections else None
    functions = _read_functions(Reader(sections[5], "functions"), len(constants), len(tokens))
    profile = _read_profile(Reader(sections[6], "profile"), functions) if 6 in sections else None
    tensors.finish()
    return Program(functions, constants, tokens, facts, name, source_hash, profile)


def _read_table(data: memoryview) -> dict[int, memoryview]:
    header = Reader(data, "header")
    if bytes(data[: len(MAGIC)]) != MAGIC:
        header.fail(f"this is no .msir file: it begins with {bytes(data[:8])!r}, not {MAGIC!r}")
    if len(data) < HEADER.size:
        header.fail(f"the header has {HEADER.size} bytes, the file {len(data)}")
    _, version, zero, count = HEADER.unpack(data[: HEADER.size])
    if version != VERSION:
        advice = "update Tiercel to read it" if version > VERSION else "write it again from its source"
        header.fail(f"the file has format version {version}, this Tiercel reads version {VERSION}: {advice}", 8)
    if zero:
        header.fail("two bytes that must be zero are not", 10)
    size = HEADER.size + ENTRY.size * count
    if count > len(SECTIONS) or size + CRC.size > len(data):
        header.fail(f"{count} sections: a file has at most {len(SECTIONS)}, and a table of that size", 12)
    if CRC.unpack(data[size : size + CRC.size])[0] != zlib.crc32(data[:size]):
        header.fail("the checksum of the header does not match: the file is damaged", size)
    return _read_sections(data, header, count, size + CRC.size)


def _read_sections(data: memoryview, header: Reader, count: int, start: int) -> dict[int, memoryview]:
    sections: dict[int, memoryview] = {}
    expected = start
    last = 0
    for number in range(count):
        entry = HEADER.size + number * ENTRY.size
        kind, crc, offset, length = ENTRY.unpack(data[entry : entry + ENTRY.size])
        if kind not in SECTIONS:
            header.fail(f"there is no section of kind {kind}", entry)
        if kind <= last:
            header.fail(f"section {SECTIONS[kind]} stands behind section {SECTIONS[last]}", entry)
        last = kind
        padding = -expected % ALIGNMENT if kind == 7 else 0
        if offset != expected + padding or length > len(data) - offset:
            header.fail(
                f"section {SECTIONS[kind]} claims bytes {offset} to {offset + length}; it must begin at "
                f"{expected + padding}, and the file has {len(data)} bytes",
                entry,
            )
        if any(data[expected:offset]):
            header.fail(f"the padding before section {SECTIONS[kind]} is not zero", entry)
        sections[kind] = data[offset : offset + length]
        if _crc32(sections[kind]) != crc:
            raise BytecodeError("the checksum does not match: the file is damaged", section=SECTIONS[kind], offset=0)
        expected = offset + length
    if expected != len(data):
        header.fail(f"{len(data) - expected} bytes are left over behind the last section", 0)
    for kind in SECTIONS.keys() - OPTIONAL - sections.keys():
        header.fail(f"section {SECTIONS[kind]} is missing", 12)
    return sections


def _crc32(data: memoryview) -> int:
    # In pieces, so that mapped pages can be dropped again.
    crc = 0
    for at in range(0, len(data), CHUNK):
        crc = zlib.crc32(data[at : at + CHUNK], crc)
    return crc


class _TensorReader:
    """Hands out the arrays of the section of tensors, which must lie in the order of the constants."""

    def __init__(self, data: memoryview | None) -> None:
        self.data = data if data is not None else memoryview(b"")
        self.present = data is not None
        self.at = 0
        self.used = False

    def array(self, reader: Reader, start: int) -> np.ndarray[Any, Any]:
        dtype = _read_dtype(reader)
        shape = tuple([reader.number("a size", MAX_DIM) for _ in range(reader.number("a rank", 65))])
        offset = reader.number("the offset of a tensor", MAX_NUMBER)
        size = dtype.itemsize
        for n in shape:
            size *= n
        nonzero = dtype.itemsize
        for n in shape:
            nonzero *= max(n, 1)
        self.used = True
        begin = self.at + -self.at % ALIGNMENT
        if offset != begin or size > len(self.data) - begin or nonzero >= MAX_NUMBER:
            reader.fail(
                f"a tensor of {size} bytes at {offset}: it must lie at {begin}, the section has {len(self.data)} bytes",
                start,
            )
        if any(self.data[self.at : begin]):
            reader.fail("the padding before a tensor is not zero", start)
        self.at = begin + size
        raw = np.frombuffer(self.data[begin : self.at], np.uint8)
        if dtype.kind == "b" and size and int(raw.max()) > 1:
            reader.fail("a bool tensor has bytes other than 0 and 1", start)
        array = raw.view(dtype.numpy).reshape(shape)
        array.flags.writeable = False
        return array

    def finish(self) -> None:
        if self.present != self.used or self.at != len(self.data):
            raise BytecodeError(
                f"the constants use {self.at} bytes of tensors, the section has {len(self.data)}",
                section="tensors",
                offset=self.at,
            )


def _read_program(reader: Reader) -> tuple[str, str]:
    found = reader.text("the name"), reader.text("the source hash")
    reader.finish()
    return found


def _read_constants(reader: Reader, tensors: _TensorReader) -> tuple[object, ...]:
    count = reader.count("the number of constants")
    values = tuple([_read_constant(reader, tensors, 0) for _ in range(count)])
    reader.finish()
    return values


_SINGLETONS: Final[Mapping[int, object]] = {0: None, 1: False, 2: True, 8: Ellipsis, 14: UNBOUND}


def _read_constant(reader: Reader, tensors: _TensorReader, depth: int) -> object:
    start = reader.pos
    if depth > MAX_NESTING:
        reader.fail(f"constants are nested more than {MAX_NESTING} deep")
    tag = reader.u8("a constant")
    if tag in _SINGLETONS:
        return _SINGLETONS[tag]
    if tag == 3:
        return _read_int(reader, start)
    if tag == 4:
        return reader.f64("a float")
    if tag == 5:
        return complex(reader.f64("a real part"), reader.f64("an imaginary part"))
    if tag == 6:
        return reader.text("a string")
    if tag == 7:
        return bytes(reader.blob("bytes"))
    if tag == 9:
        count = reader.count("the length of a tuple")
        return tuple([_read_constant(reader, tensors, depth + 1) for _ in range(count)])
    if tag == 10:
        return slice(*[_read_constant(reader, tensors, depth + 1) for _ in range(3)])
    if tag == 11:
        return _read_dtype(reader).numpy
    if tag == 12:
        return _read_dtype(reader)
    if tag in (13, 15) and depth:
        reader.fail("a tensor or an object known by name cannot be part of a tuple", start)
    if tag == 13:
        return tensors.array(reader, start)
    if tag == 15:
        return ObjectRef(reader.text("the name of an object"))
    return reader.fail(f"there is no constant of kind {tag}", start)


def _read_int(reader: Reader, start: int) -> int:
    raw = reader.blob("an int")
    if len(raw) > MAX_INT_BYTES + 1:
        reader.fail(f"an int constant of {len(raw)} bytes, the limit is {MAX_INT_BYTES}", start)
    value = int.from_bytes(raw, "little", signed=True)
    if len(raw) != len(int_bytes(value)):
        reader.fail("an int is written with more bytes than it needs", start)
    return value


def _read_dtype(reader: Reader) -> DType:
    start = reader.pos
    try:
        return from_code(reader.u8("a dtype"))
    except DTypeError as e:
        reader.fail(str(e), start)


def _read_tokens(reader: Reader) -> tuple[TensorDescriptor, ...]:
    if reader.end > MAX_SYMBOLIC_BYTES:
        reader.fail(f"declared tokens take {reader.end} bytes, the limit is {MAX_SYMBOLIC_BYTES}")
    dims = [_read_dim(reader) for _ in range(reader.count("the number of size expressions"))]
    used = total = 0
    tokens = []
    for _ in range(reader.count("the number of tokens", 5)):
        start = reader.pos
        dtype = _read_dtype(reader).name
        rank = reader.optional("a rank", 65)
        shape: list[DimLike] = []
        for _ in range(rank or 0):
            number = reader.number("a size", 2 * MAX_DIM)
            if not number & 1:
                shape.append(number >> 1)
                continue
            index = number >> 1
            if index > used or index >= len(dims):
                reader.fail(f"size expression {index} is used before {used} was, or does not exist", start)
            used += index == used
            shape.append(dims[index])
        layout, device = reader.text("a layout"), reader.text("a device")
        count = reader.count("the number of constraints")
        total += count
        if count > MAX_TOKEN_CONSTRAINTS or total > MAX_CONSTRAINTS:
            limits = f"the limits are {MAX_TOKEN_CONSTRAINTS} and {MAX_CONSTRAINTS}"
            reader.fail(f"{count} constraints on one token and {total} so far: {limits}", start)
        constraints = tuple([reader.text("a constraint") for _ in range(count)])
        try:
            token = ShapeToken(None if rank is None else tuple(shape))
            descriptor = TensorDescriptor(token, dtype, layout, device, constraints)
        except (ShapeError, ZeroDivisionError) as e:
            reader.fail(str(e), start)
        if descriptor.shape_constraint != constraints:
            reader.fail(f"the constraints {constraints} are not in their fixed form", start)
        tokens.append(descriptor)
    if used != len(dims):
        reader.fail(f"{len(dims)} size expressions are listed, {used} are used")
    reader.finish()
    return tuple(tokens)


def _read_dim(reader: Reader) -> DimLike:
    start = reader.pos
    text = reader.text("a size expression")
    try:
        dim = parse_dim(text)
    except (ShapeError, ZeroDivisionError) as e:
        reader.fail(str(e), start)
    if not isinstance(dim, Dim) or str(dim) != text:
        reader.fail(f"the size expression {text[:80]!r} is not in normal form, which is {str(dim)[:80]!r}", start)
    return dim


def _read_facts(reader: Reader) -> Facts:
    texts = [reader.text("a fact") for _ in range(reader.count("the number of facts"))]
    reader.finish()
    if reader.end > MAX_SYMBOLIC_BYTES:
        reader.fail(f"facts take {reader.end} bytes, the limit is {MAX_SYMBOLIC_BYTES}", 0)
    try:
        facts = make_facts(texts)
    except BytecodeError as e:
        reader.fail(e.reason, 0)
    if [constraint.text for constraint in facts.constraints] != texts:
        reader.fail("a fact is not in normal form, or stands there twice", 0)
    return facts


def _read_functions(reader: Reader, constants: int, tokens: int) -> tuple[Function, ...]:
    count = reader.count("the number of functions", 12)
    functions = tuple([_read_function(reader, i, constants, tokens) for i in range(count)])
    reader.finish()
    return functions


def _read_function(reader: Reader, number: int, constants: int, tokens: int) -> Function:
    name = reader.text("the name of a function")
    qualname, filename = reader.text("a qualified name"), reader.text("a file name")
    first_line = reader.number("a line", MAX_SPAN)
    parameters = tuple([_read_parameter(reader, constants, tokens) for _ in _items(reader, "parameters", 4)])
    free = tuple([reader.text("the name of a cell") for _ in _items(reader, "cells")])
    registers = reader.number("the number of registers")
    loops = reader.number("the number of loops")
    source = reader.text("the source") if _read_flag(reader, "whether there is a source") else None
    names = tuple([reader.text("a name") for _ in _items(reader, "names")])
    if len(set(names)) != len(names):
        reader.fail(f"function {number} lists a name twice")
    code = Reader(reader.blob("code"), f"code of function {number}, {name[:80]}")
    instructions = decode_instructions(code, names, constants, tokens)
    spans = _read_spans(reader, len(instructions))
    variables = tuple([_read_variable(reader) for _ in _items(reader, "variables", 4)])
    return Function(
        name=name,
        instructions=instructions,
        spans=spans,
        qualname=qualname,
        filename=filename,
        first_line=first_line,
        parameters=parameters,
        free=free,
        registers=registers,
        variables=variables,
        loops=loops,
        source=source,
    )


def _items(reader: Reader, what: str, smallest: int = 1) -> range:
    return range(reader.count(f"the number of {what}", smallest))


def _read_flag(reader: Reader, what: str) -> bool:
    return bool(reader.number(what, 2))


def _read_parameter(reader: Reader, constants: int, tokens: int) -> Parameter:
    name = reader.text("the name of a parameter")
    kind = PARAMETER_KINDS[reader.number("the kind of a parameter", len(PARAMETER_KINDS))]
    default = reader.optional("a default", constants)
    token = reader.optional("a token", tokens)
    return Parameter(name, kind, None if default is None else ~default, token)


def _read_spans(reader: Reader, count: int) -> tuple[Span | None, ...]:
    spans: list[Span | None] = []
    last: Span | None = None
    for _ in range(count):
        start = reader.pos
        span: Span | None
        tag = reader.number("a span", 3)
        if tag == 0:
            span = None
        elif tag == 1:
            span = last
            if span is None:
                reader.fail("a span repeats the one before it; there is none", start)
        else:
            line = reader.signed("a line") + (last[0] if last is not None else 0)
            col = reader.number("a column", MAX_SPAN)
            end_line = line + reader.signed("an end line")
            span = (line, col, end_line, reader.number("an end column", MAX_SPAN))
            if span == last:
                reader.fail("a span equals the one before it and must be written as its repetition", start)
            if not 0 <= line <= end_line < MAX_SPAN:
                reader.fail(f"a span from line {line} to line {end_line}", start)
        last = span if span is not None else last
        spans.append(span)
    return tuple(spans)


def _read_variable(reader: Reader) -> Variable:
    name = reader.text("the name of a variable")
    start, end = reader.number("an instruction"), reader.number("an instruction")
    tag = reader.number("the kind of a location", 4)
    if tag == 3:
        return Variable(name, start, end, OPTIMISED_AWAY)
    number = reader.number("a location", 1 << 31)
    return Variable(name, start, end, f"cell:{number}" if tag == 2 else ~number if tag == 1 else number)


def _read_profile(reader: Reader, functions: tuple[Function, ...]) -> Profile:
    found: dict[int, FunctionProfile] = {}
    for index in _ascending(reader, "functions", len(functions), 4):
        function = functions[index]
        entries = reader.number("entries", MAX_NUMBER)
        loops = {}
        for loop in _ascending(reader, "loops", function.loops, 3):
            loops[loop] = reader.number("entries", MAX_NUMBER), reader.number("iterations", MAX_NUMBER)
        signatures = []
        for _ in _items(reader, "signatures", 4):
            text, count = reader.text("a signature"), reader.number("a count", MAX_NUMBER)
            live = _read_learned(reader, "live-ins", function.registers)
            results = _read_learned(reader, "results", len(function.instructions))
            signatures.append(SignatureProfile(text, count, live, results))
        found[index] = FunctionProfile(entries, loops, tuple(signatures))
    reader.finish()
    return Profile(found)


def _read_learned(reader: Reader, what: str, limit: int) -> Mapping[int, str]:
    learned = {key: reader.text("a descriptor") for key in _ascending(reader, what, limit, 2)}
    return learned or _NOTHING_LEARNED


# One for all: a dict is large beside the byte that says it is empty.
_NOTHING_LEARNED: Final[Mapping[int, str]] = MappingProxyType({})


def _ascending(reader: Reader, what: str, limit: int, smallest: int) -> Iterable[int]:
    last = -1
    for _ in _items(reader, what, smallest):
        start = reader.pos
        key = reader.number(what, limit)
        if key <= last:
            reader.fail(f"{what} are not in ascending order", start)
        last = key
        yield key
