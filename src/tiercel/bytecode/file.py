"""The file form: `.msir`.

In: a program, or bytes of unknown origin. Out: the other, so that `dumps(loads(data)) == data`.

::

    header     magic (8 bytes), version (u16), zero (u16), number of sections (u32)
    table      per section: kind (u32), crc32 (u32), offset (u64), length (u64)
    crc32      of header and table (u32)
    sections   in the order of their kinds, without gaps; the tensors begin at a multiple of 64, each one as well

Everything is little-endian. There is no machine code in a file and nothing that is executed by reading it: Python
objects are names, and `loads` gives them a meaning only through its argument `python`.

Invariant: `loads` refuses every sequence of bytes that `dumps` does not write, with a `BytecodeError` that names
section, offset and reason. It takes time linear in the file's size and memory in proportion to it: counts are checked
against the bytes that are left before anything is allocated, nesting and numbers are bounded, and what it makes is
verified.
"""

from __future__ import annotations

import builtins
import os
import stat
import struct
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tiercel.bytecode.constants import MAX_INT_BYTES, MAX_NESTING, UNBOUND, ObjectRef, own_constant
from tiercel.bytecode.encode import decode_instructions, encode_instructions
from tiercel.bytecode.instructions import SCALAR_FUNCTIONS
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
from tiercel.bytecode.verify import verify as verify_program
from tiercel.bytecode.wire import Reader, Writer
from tiercel.dtypes import DType, as_dtype, from_code
from tiercel.errors import BytecodeError, DTypeError, ShapeError
from tiercel.shapes import Dim, DimLike, Facts, ShapeToken, TensorDescriptor, parse_dim

__all__ = ["MAGIC", "SECTIONS", "VERSION", "dumps", "load", "loads", "save"]

# The first byte is no ASCII and the line ends show a transfer that changed them, as in PNG.
MAGIC: Final = b"\x89MSIR\r\n\x1a"
VERSION: Final = 1
_HEADER: Final = struct.Struct("<8sHHI")
_ENTRY: Final = struct.Struct("<IIQQ")
_CRC: Final = struct.Struct("<I")
_ALIGNMENT: Final = 64
# Kinds are written to files: append, never renumber. The last is the only one that is not read front to back.
SECTIONS: Final = {1: "program", 2: "constants", 3: "tokens", 4: "facts", 5: "functions", 6: "profile", 7: "tensors"}
_OPTIONAL: Final = frozenset({4, 6, 7})
_MAX_COUNT: Final = 1 << 63
# Size expressions are parsed and constraints are reasoned about, which costs more per byte than the rest.
_MAX_SYMBOLIC_BYTES: Final = 1 << 18
_MAX_DIM: Final = 1 << 62
_CHUNK: Final = 1 << 22
# Smaller files are read; a mapping costs a page and an address range.
_MAP_FROM_BYTES: Final = 1 << 16


def dumps(program: Program) -> bytes:
    """Return the bytes of a program's file form. Equal programs give equal bytes.

    Raises:
        BytecodeError: the program holds something that files cannot.
    """
    return b"".join(_pieces(program))


def save(program: Program, path: str | os.PathLike[str]) -> None:
    """Write a program to a file, whole or not at all: what was there before stays until the new file is on disk.

    Args:
        program: any verified program.
        path: by custom it ends in `.msir`.

    Raises:
        OSError: the file cannot be written; the old one is untouched.
        BytecodeError: the program holds something that files cannot.
    """
    target = Path(os.path.realpath(path))
    pieces = _pieces(program)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:64]}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            for piece in pieces:
                out.write(piece)
            out.flush()
            os.fchmod(out.fileno(), _mode_for(target))
            os.fsync(out.fileno())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    _sync_folder(target.parent)


def loads(
    data: bytes | bytearray | memoryview,
    python: Mapping[str, object] | None = None,
    *,
    resolve: bool = True,
    verify: bool = True,
) -> Program:
    """Return the program that a file's bytes say.

    Args:
        data: the bytes. Tensors of a `bytes` object are views of it; other buffers are copied first.
        python: the Python objects that the program may use, by the names it knows them by. Builtin exceptions and
            builtin functions without effects (`builtins.len`) need not be given.
        resolve: False loads a program without its Python objects: for listing, not for running.
        verify: whether to verify the program. Only bytes of one's own making may go without.

    Raises:
        BytecodeError: the bytes are no program of this version, are damaged, or name objects that `python` lacks.
    """
    return _load(memoryview(data if isinstance(data, bytes) else bytes(data)), python, resolve, verify)


def load(
    path: str | os.PathLike[str],
    python: Mapping[str, object] | None = None,
    *,
    resolve: bool = True,
    verify: bool = True,
) -> Program:
    """Return the program in a file. The tensors of a large file are mapped, read-only, not read.

    Args:
        path: the file. While its program is in use it must not be changed in place; `save` never does.
        python, resolve, verify: as for `loads`.

    Raises:
        OSError: the file cannot be read.
        BytecodeError: as for `loads`.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < _MAP_FROM_BYTES:
            data = memoryview(file.read())
        else:
            data = np.memmap(file, np.uint8, "r").data
    return _load(data, python, resolve, verify)


# Writing


def _pieces(program: Program) -> list[bytes | memoryview]:
    tensors = _TensorWriter()
    sections: dict[int, list[bytes | memoryview]] = {1: [_write_program(program)]}
    sections[2] = [_write_constants(program.constants, tensors)]
    sections[3] = [_write_tokens(program.tokens)]
    if program.facts is not None:
        sections[4] = [_write_facts(program.facts)]
    sections[5] = [_write_functions(program.functions)]
    if program.profile is not None:
        sections[6] = [_write_profile(program.profile)]
    if tensors.used:
        sections[7] = tensors.pieces
    at = _HEADER.size + _ENTRY.size * len(sections) + _CRC.size
    header = bytearray(_HEADER.pack(MAGIC, VERSION, 0, len(sections)))
    body: list[bytes | memoryview] = []
    for kind, pieces in sections.items():
        if kind == 7:
            padding = bytes(-at % _ALIGNMENT)
            body.append(padding)
            at += len(padding)
        crc = 0
        for piece in pieces:
            crc = zlib.crc32(piece, crc)
        length = sum(map(len, pieces))
        header += _ENTRY.pack(kind, crc, at, length)
        body += pieces
        at += length
    header += _CRC.pack(zlib.crc32(header))
    return [bytes(header), *body]


class _TensorWriter:
    """Places arrays in the section of tensors."""

    def __init__(self) -> None:
        self.pieces: list[bytes | memoryview] = []
        self.at = 0
        self.used = False

    def add(self, array: np.ndarray[Any, Any]) -> int:
        """Return the offset at which the array's bytes lie."""
        self.used = True
        padding = bytes(-self.at % _ALIGNMENT)
        offset = self.at + len(padding)
        # Through a flat view of bytes: dtypes of other packages have no buffer format.
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        self.pieces += [padding, raw]
        self.at = offset + len(raw)
        return offset


def _write_program(program: Program) -> bytes:
    w = Writer()
    w.text(program.name)
    w.text(program.source_hash)
    return bytes(w.data)


def _write_constants(constants: Iterable[object], tensors: _TensorWriter) -> bytes:
    w = Writer()
    values = tuple(constants)
    w.number(len(values))
    for value in values:
        own_constant(value)
        _write_constant(w, value, tensors)
    return bytes(w.data)


def _write_constant(w: Writer, value: Any, tensors: _TensorWriter) -> None:
    kind = type(value)
    if value is None or value is False or value is True or value is Ellipsis or value is UNBOUND:
        w.u8({None: 0, False: 1, True: 2, Ellipsis: 8, UNBOUND: 14}[value])
    elif kind is int:
        w.u8(3)
        w.blob(_int_bytes(value))
    elif kind is float:
        w.u8(4)
        w.f64(value)
    elif kind is complex:
        w.u8(5)
        w.f64(value.real)
        w.f64(value.imag)
    elif kind is str:
        w.u8(6)
        w.text(value)
    elif kind is bytes:
        w.u8(7)
        w.blob(value)
    elif kind is tuple:
        w.u8(9)
        w.number(len(value))
        for item in value:
            _write_constant(w, item, tensors)
    elif kind is slice:
        w.u8(10)
        for item in (value.start, value.stop, value.step):
            _write_constant(w, item, tensors)
    elif isinstance(value, np.dtype):
        w.u8(11)
        w.u8(as_dtype(value).code)
    elif isinstance(value, DType):
        w.u8(12)
        w.u8(value.code)
    elif isinstance(value, np.ndarray):
        w.u8(13)
        w.u8(as_dtype(value.dtype).code)
        w.number(value.ndim)
        for n in value.shape:
            w.number(n)
        w.number(tensors.add(value))
    else:
        assert isinstance(value, ObjectRef)
        w.u8(15)
        w.text(value.name)


def _int_bytes(value: int) -> bytes:
    """The shortest two's complement, little-endian; 0 is no byte."""
    magnitude = value if value >= 0 else ~value
    length = magnitude.bit_length() // 8 + 1 if value else 0
    return value.to_bytes(length, "little", signed=True)


def _write_tokens(tokens: Iterable[TensorDescriptor]) -> bytes:
    descriptors = tuple(tokens)
    dims: dict[DimLike, int] = {}
    for d in descriptors:
        for dim in d.token.dims or ():
            if isinstance(dim, Dim):
                dims.setdefault(dim, len(dims))
    w = Writer()
    w.number(len(dims))
    for dim in dims:
        w.text(str(dim))
    w.number(len(descriptors))
    for d in descriptors:
        try:
            w.u8(as_dtype(d.dtype_name).code)
        except DTypeError as e:
            raise BytecodeError(str(e), section="tokens") from e
        w.optional(d.token.rank)
        for dim in d.token.dims or ():
            if isinstance(dim, int) and dim >= _MAX_DIM:
                raise BytecodeError(f"a declared size of {dim} does not fit 62 bits", section="tokens")
            w.number(dims[dim] << 1 | 1 if isinstance(dim, Dim) else dim << 1)
        w.text(d.layout)
        w.text(d.device)
        if len(d.shape_constraint) > MAX_TOKEN_CONSTRAINTS:
            raise BytecodeError(f"a token has at most {MAX_TOKEN_CONSTRAINTS} constraints", section="tokens")
        w.number(len(d.shape_constraint))
        for text in d.shape_constraint:
            w.text(text)
    if len(w.data) > _MAX_SYMBOLIC_BYTES or sum(len(d.shape_constraint) for d in descriptors) > MAX_CONSTRAINTS:
        raise BytecodeError(
            f"declared tokens take {len(w.data)} bytes; the limits are {_MAX_SYMBOLIC_BYTES} bytes and "
            f"{MAX_CONSTRAINTS} constraints",
            section="tokens",
        )
    return bytes(w.data)


def _write_facts(facts: Facts) -> bytes:
    w = Writer()
    w.number(len(facts.constraints))
    for constraint in facts.constraints:
        w.text(constraint.text)
    try:
        make_facts(constraint.text for constraint in facts.constraints)
    except BytecodeError as e:
        raise BytecodeError(e.reason, section="facts") from e
    return bytes(w.data)


def _write_functions(functions: Iterable[Function]) -> bytes:
    w = Writer()
    every = tuple(functions)
    w.number(len(every))
    for f in every:
        w.text(f.name)
        w.text(f.qualname)
        w.text(f.filename)
        w.number(f.first_line)
        w.number(len(f.parameters))
        for p in f.parameters:
            w.text(p.name)
            w.u8(PARAMETER_KINDS.index(p.kind))
            w.optional(None if p.default is None else ~p.default)
            w.optional(p.token)
        w.number(len(f.free))
        for name in f.free:
            w.text(name)
        w.number(f.registers)
        w.number(f.loops)
        w.u8(f.source is not None)
        if f.source is not None:
            w.text(f.source)
        w.number(len(f.names))
        for name in f.names:
            w.text(name)
        w.blob(encode_instructions(f.instructions, f.names, f.pcs))
        _write_spans(w, f.spans)
        w.number(len(f.variables))
        for v in f.variables:
            _write_variable(w, v)
    return bytes(w.data)


def _write_spans(w: Writer, spans: Iterable[Span | None]) -> None:
    """Per instruction 0 (no span), 1 (that of the instruction before), or 2 and the span."""
    last: Span | None = None
    for span in spans:
        if span is None:
            w.u8(0)
        elif span == last:
            w.u8(1)
        else:
            w.u8(2)
            line, col, end_line, end_col = span
            w.signed(line - (last[0] if last is not None else 0))
            w.number(col)
            w.signed(end_line - line)
            w.number(end_col)
        last = span if span is not None else last


def _write_variable(w: Writer, v: Variable) -> None:
    w.text(v.name)
    w.number(v.start)
    w.number(v.end)
    if v.where == OPTIMISED_AWAY:
        w.u8(3)
    elif isinstance(v.where, str):
        w.u8(2)
        w.number(int(v.where.removeprefix("cell:")))
    elif v.where < 0:
        w.u8(1)
        w.number(~v.where)
    else:
        w.u8(0)
        w.number(v.where)


def _write_profile(profile: Profile) -> bytes:
    w = Writer()
    w.number(len(profile.functions))
    for index, f in sorted(profile.functions.items()):
        w.number(index)
        w.number(f.entries)
        w.number(len(f.loops))
        for loop, (entries, iterations) in sorted(f.loops.items()):
            w.number(loop)
            w.number(entries)
            w.number(iterations)
        w.number(len(f.signatures))
        for s in f.signatures:
            w.text(s.text)
            w.number(s.count)
            for learned in (s.live_ins, s.results):
                w.number(len(learned))
                for key, text in sorted(learned.items()):
                    w.number(key)
                    w.text(text)
    return bytes(w.data)


def _mode_for(target: Path) -> int:
    """The mode a plain `open` would give the file, or the one it has."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except OSError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    """Make the rename durable where folders can be synced; it has happened in any case."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


# Reading


def _load(data: memoryview, python: Mapping[str, object] | None, resolve: bool, verify: bool) -> Program:
    sections = _read_table(data)
    tensors = _TensorReader(sections.get(7))
    name, source_hash = _read_program(Reader(sections[1], "program"))
    constants = _read_constants(Reader(sections[2], "constants"), tensors)
    tokens = _read_tokens(Reader(sections[3], "tokens"))
    facts = _read_facts(Reader(sections[4], "facts")) if 4 in sections else None
    functions = _read_functions(Reader(sections[5], "functions"), len(constants), len(tokens))
    profile = _read_profile(Reader(sections[6], "profile"), functions) if 6 in sections else None
    tensors.finish()
    if resolve:
        _resolve(constants, python or {})
    program = Program(functions, constants, tokens, facts, name, source_hash, profile)
    if verify:
        verify_program(program)
    return program


def _read_table(data: memoryview) -> dict[int, memoryview]:
    header = Reader(data, "header")
    if bytes(data[: len(MAGIC)]) != MAGIC:
        header.fail(f"this is no .msir file: it begins with {bytes(data[:8])!r}, not {MAGIC!r}")
    if len(data) < _HEADER.size:
        header.fail(f"the header has {_HEADER.size} bytes, the file {len(data)}")
    _, version, zero, count = _HEADER.unpack(data[: _HEADER.size])
    if version != VERSION:
        advice = "update Tiercel to read it" if version > VERSION else "write it again from its source"
        header.fail(f"the file has format version {version}, this Tiercel reads version {VERSION}: {advice}", 8)
    if zero:
        header.fail("two bytes that must be zero are not", 10)
    size = _HEADER.size + _ENTRY.size * count
    if count > len(SECTIONS) or size + _CRC.size > len(data):
        header.fail(f"{count} sections: a file has at most {len(SECTIONS)}, and a table of that size", 12)
    if _CRC.unpack(data[size : size + _CRC.size])[0] != zlib.crc32(data[:size]):
        header.fail("the checksum of the header does not match: the file is damaged", size)
    return _read_sections(data, header, count, size + _CRC.size)


def _read_sections(data: memoryview, header: Reader, count: int, start: int) -> dict[int, memoryview]:
    sections: dict[int, memoryview] = {}
    expected = start
    last = 0
    for number in range(count):
        entry = _HEADER.size + number * _ENTRY.size
        kind, crc, offset, length = _ENTRY.unpack(data[entry : entry + _ENTRY.size])
        if kind not in SECTIONS:
            header.fail(f"there is no section of kind {kind}", entry)
        if kind <= last:
            header.fail(f"section {SECTIONS[kind]} stands behind section {SECTIONS[last]}", entry)
        last = kind
        padding = -expected % _ALIGNMENT if kind == 7 else 0
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
    for kind in SECTIONS.keys() - _OPTIONAL - sections.keys():
        header.fail(f"section {SECTIONS[kind]} is missing", 12)
    return sections


def _crc32(data: memoryview) -> int:
    # In pieces, so that mapped pages can be dropped again.
    crc = 0
    for at in range(0, len(data), _CHUNK):
        crc = zlib.crc32(data[at : at + _CHUNK], crc)
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
        shape = tuple([reader.number("a size", _MAX_DIM) for _ in range(reader.number("a rank", 65))])
        offset = reader.number("the offset of a tensor", _MAX_COUNT)
        size = dtype.itemsize
        for n in shape:
            size *= n
        nonzero = dtype.itemsize
        for n in shape:
            nonzero *= max(n, 1)
        self.used = True
        begin = self.at + -self.at % _ALIGNMENT
        if offset != begin or size > len(self.data) - begin or nonzero >= _MAX_COUNT:
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
    if len(raw) != len(_int_bytes(value)):
        reader.fail("an int is written with more bytes than it needs", start)
    return value


def _read_dtype(reader: Reader) -> DType:
    start = reader.pos
    try:
        return from_code(reader.u8("a dtype"))
    except DTypeError as e:
        reader.fail(str(e), start)


def _read_tokens(reader: Reader) -> tuple[TensorDescriptor, ...]:
    if reader.end > _MAX_SYMBOLIC_BYTES:
        reader.fail(f"declared tokens take {reader.end} bytes, the limit is {_MAX_SYMBOLIC_BYTES}")
    dims = [_read_dim(reader) for _ in range(reader.count("the number of size expressions"))]
    used = total = 0
    tokens = []
    for _ in range(reader.count("the number of tokens", 5)):
        start = reader.pos
        dtype = _read_dtype(reader).name
        rank = reader.optional("a rank", 65)
        shape: list[DimLike] = []
        for _ in range(rank or 0):
            number = reader.number("a size", 2 * _MAX_DIM)
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
    if reader.end > _MAX_SYMBOLIC_BYTES:
        reader.fail(f"facts take {reader.end} bytes, the limit is {_MAX_SYMBOLIC_BYTES}", 0)
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
        entries = reader.number("entries", _MAX_COUNT)
        loops = {}
        for loop in _ascending(reader, "loops", function.loops, 3):
            loops[loop] = reader.number("entries", _MAX_COUNT), reader.number("iterations", _MAX_COUNT)
        signatures = []
        for _ in _items(reader, "signatures", 4):
            text, count = reader.text("a signature"), reader.number("a count", _MAX_COUNT)
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


def _resolve(constants: tuple[object, ...], python: Mapping[str, object]) -> None:
    objects = [c for c in constants if isinstance(c, ObjectRef)]
    for c in objects:
        c.value = python[c.name] if c.name in python else _builtin(c.name)
    missing = sorted({c.name for c in objects if c.value is None and c.name not in python})
    if missing:
        shown = ", ".join(map(repr, missing[:20])) + (f" and {len(missing) - 20} more" if len(missing) > 20 else "")
        raise BytecodeError(
            f"the program uses Python objects that were not given: {shown}; load(path, python={{name: object}}) gives "
            "them. Give only what you would let the file's author run",
            section="constants",
        )


def _builtin(name: str) -> object | None:
    """What a name that begins with `builtins.` stands for, of itself: an exception or a function without effects."""
    module, _, plain = name.partition(".")
    found: object = getattr(builtins, plain, None) if module == "builtins" else None
    harmless = plain in SCALAR_FUNCTIONS or (isinstance(found, type) and issubclass(found, BaseException))
    return found if harmless else None
