"""ELF files for debuggers: what mapped machine code is called, where it comes from, how to unwind it.

In (`symbol_file`): the bytes of mapped code, its address, its functions and the place in the user's source. Out: an ELF
file in memory with absolute addresses, a symbol per function, DWARF 4 (one unit, a subprogram per function, a line
table with the one line) and the unwind table. In (`registration_library`): the machine. Out: a shared library that
exports the two names through which GDB learns of such files ("JIT Compilation Interface" in its manual).

Layouts: System V ABI, chapters 4 and 5; DWARF Debugging Information Format 4, sections 2, 6.2 and 7. Written by hand
because users have neither linker nor compiler, and their processes do not load LLVM.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

__all__ = ["DESCRIPTOR", "REGISTER", "CodeSymbol", "registration_library", "symbol_file"]

REGISTER: Final = "__jit_debug_register_code"
DESCRIPTOR: Final = "__jit_debug_descriptor"

# e_machine, and a function that only returns
_MACHINES: Final = {
    "x86_64": (62, b"\xc3"),
    "aarch64": (183, b"\xc0\x03\x5f\xd6"),
}
_ET_EXEC, _ET_DYN = 2, 3
_PROGBITS, _SYMTAB, _STRTAB, _HASH, _DYNAMIC, _DYNSYM = 1, 2, 3, 5, 6, 11
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
_GLOBAL_OBJECT, _GLOBAL_FUNCTION = 0x11, 0x12
_HEADER, _SECTION, _SEGMENT, _SYMBOL = 64, 64, 56, 24
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class CodeSymbol:
    """A function in mapped code: its name for people, its address, its size in bytes."""

    name: str
    address: int
    size: int


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    flags: int
    address: int
    data: bytes
    link: int = 0
    info: int = 0
    align: int = 1
    entry: int = 0


def machine() -> tuple[int, bytes]:
    """The ELF machine of this computer, and the code of a function that only returns.

    Raises:
        NotImplementedError: Tiercel makes no machine code for it.
    """
    name = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    if name not in _MACHINES:
        raise NotImplementedError(f"no debugger support for {name}")
    return _MACHINES[name]


class _Strings:
    """A string table."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0")

    def add(self, text: str) -> int:
        at = len(self.data)
        self.data += text.encode() + b"\0"
        return at


def _header(kind: int, *, segments: int, sections_at: int, sections: int) -> bytes:
    identity = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    return identity + struct.pack(
        "<HHIQQQIHHHHHH",
        kind, machine()[0], 1, 0, _HEADER if segments else 0, sections_at, 0,
        _HEADER, _SEGMENT, segments, _SECTION, sections, sections - 1,
    )  # fmt: skip


def _file(
    kind: int, sections: Sequence[_Section], segments: Sequence[bytes] = (), offsets: Sequence[int] = ()
) -> bytes:
    """Put a file together: header, segments, the sections (at `offsets` where given), names, section headers."""
    names = _Strings()
    body = bytearray(bytes(_HEADER)) + b"".join(segments)
    rows = [bytes(_SECTION)]
    name_of_names = names.add(".shstrtab")
    for number, section in enumerate(sections):
        body += bytes(-len(body) % section.align)
        if number < len(offsets):
            body += bytes(offsets[number] - len(body))
        place = section.address, len(body), len(section.data)
        more = section.link, section.info, section.align, section.entry
        rows.append(struct.pack("<IIQQQQIIQQ", names.add(section.name), section.kind, section.flags, *place, *more))
        body += section.data
    rows.append(struct.pack("<IIQQQQIIQQ", name_of_names, _STRTAB, 0, 0, len(body), len(names.data), 0, 0, 1, 0))
    body += names.data
    body += bytes(-len(body) % 8)
    body[:_HEADER] = _header(kind, segments=len(segments), sections_at=len(body), sections=len(rows))
    return bytes(body) + b"".join(rows)


def _symbol(name: int, kind: int, section: int, value: int, size: int) -> bytes:
    return struct.pack("<IBBHQQ", name, kind, 0, section, value, size)


def registration_library() -> bytes:
    """A shared library that exports `REGISTER`, a function that does nothing, and `DESCRIPTOR`, 24 bytes of data."""
    strings = _Strings()
    register, descriptor = strings.add(REGISTER), strings.add(DESCRIPTOR)
    code = machine()[1]
    # One segment to read and execute, one to write; file offsets and addresses agree.
    dynsym_at = _HEADER + 3 * _SEGMENT
    hash_at = dynsym_at + 3 * _SYMBOL
    dynstr_at = hash_at + 4 * (2 + 1 + 3)
    text_at = dynstr_at + len(strings.data)
    text_at += -text_at % 16
    data_at = _PAGE
    dynamic_at = data_at + 24
    symbols = (
        bytes(_SYMBOL)
        + _symbol(register, _GLOBAL_FUNCTION, 4, text_at, len(code))
        + _symbol(descriptor, _GLOBAL_OBJECT, 5, data_at, 24)
    )
    table = struct.pack("<IIIIII", 1, 3, 1, 0, 2, 0)  # one bucket: 1 -> 2
    tags = ((4, hash_at), (5, dynstr_at), (6, dynsym_at), (10, len(strings.data)), (11, _SYMBOL), (0, 0))
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    segments = [
        struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, text_at + len(code), text_at + len(code), _PAGE),
        struct.pack("<IIQQQQQQ", 1, 6, data_at, data_at, data_at, 24 + len(dynamic), 24 + len(dynamic), _PAGE),
        struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8),
    ]
    sections = [
        _Section(".dynsym", _DYNSYM, _ALLOC, dynsym_at, symbols, 3, 1, 8, _SYMBOL),
        _Section(".hash", _HASH, _ALLOC, hash_at, table, 1, 0, 4, 4),
        _Section(".dynstr", _STRTAB, _ALLOC, dynstr_at, bytes(strings.data)),
        _Section(".text", _PROGBITS, _ALLOC | _EXECUTE, text_at, code, align=4),
        _Section(".data", _PROGBITS, _ALLOC | _WRITE, data_at, struct.pack("<IIQQ", 1, 0, 0, 0), align=8),
        _Section(".dynamic", _DYNAMIC, _ALLOC | _WRITE, dynamic_at, dynamic, 3, 0, 8, 16),
    ]
    return _file(_ET_DYN, sections, segments, [dynsym_at, hash_at, dynstr_at, text_at, data_at, dynamic_at])


def symbol_file(
    code: bytes,
    address: int,
    functions: Sequence[CodeSymbol],
    filename: str,
    line: int,
    unwind: tuple[int, int] = (0, 0),
) -> bytes:
    """Describe mapped code.

    Args:
        code: what is mapped.
        address: where.
        functions: what is in it, in order of address.
        filename, line: the place in the user's source; an empty name for none.
        unwind: offset and size of the `.eh_frame` records in `code`; size 0 for none.
    """
    strings = _Strings()
    symbols = bytes(_SYMBOL) + b"".join(
        _symbol(strings.add(f.name), _GLOBAL_FUNCTION, 1, f.address, f.size) for f in functions
    )
    start, size = unwind
    end = start if size else len(code)
    sections = [
        _Section(".text", _PROGBITS, _ALLOC | _EXECUTE, address, code[:end], align=16),
        _Section(".symtab", _SYMTAB, 0, 0, symbols, 3, 1, 8, _SYMBOL),
        _Section(".strtab", _STRTAB, 0, 0, bytes(strings.data)),
    ]
    if filename:
        sections += [
            _Section(".debug_abbrev", _PROGBITS, 0, 0, _ABBREVIATIONS),
            _Section(".debug_info", _PROGBITS, 0, 0, _unit(functions, filename, line, address, end)),
            _Section(".debug_line", _PROGBITS, 0, 0, _lines(functions, filename, line)),
        ]
    if size:
        records = code[start : start + size]
        sections.append(_Section(".eh_frame", _PROGBITS, _ALLOC, address + start, records, align=8))
    return _file(_ET_EXEC, sections)


# ---- DWARF -----------------------------------------------------------------------------------------------------------


def _uleb(value: int) -> bytes:
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def _sleb(value: int) -> bytes:
    out = bytearray()
    while True:
        low = value & 0x7F
        value >>= 7
        done = (value == 0 and not low & 0x40) or (value == -1 and bool(low & 0x40))
        out.append(low | (0 if done else 0x80))
        if done:
            return bytes(out)


# (attribute, form): name string, comp_dir string, language data2, stmt_list sec_offset, low_pc addr, high_pc data8
_UNIT_ATTRIBUTES: Final = ((0x03, 0x08), (0x1B, 0x08), (0x13, 0x05), (0x10, 0x17), (0x11, 0x01), (0x12, 0x07))
# name string, decl_file udata, decl_line udata, low_pc addr, high_pc data8
_FUNCTION_ATTRIBUTES: Final = ((0x03, 0x08), (0x3A, 0x0F), (0x3B, 0x0F), (0x11, 0x01), (0x12, 0x07))


def _abbreviation(number: int, tag: int, children: bool, attributes: Sequence[tuple[int, int]]) -> bytes:
    pairs = b"".join(_uleb(name) + _uleb(form) for name, form in attributes)
    return _uleb(number) + _uleb(tag) + bytes([children]) + pairs + b"\0\0"


_ABBREVIATIONS: Final = (
    _abbreviation(1, 0x11, True, _UNIT_ATTRIBUTES) + _abbreviation(2, 0x2E, False, _FUNCTION_ATTRIBUTES) + b"\0"
)
_C99: Final = 0x0C  # GDB knows no Python; with this it prints plain names


def _unit(functions: Sequence[CodeSymbol], filename: str, line: int, address: int, size: int) -> bytes:
    path = PurePath(filename)
    body = b"\x01" + path.name.encode() + b"\0" + str(path.parent).encode() + b"\0"
    body += struct.pack("<HIQQ", _C99, 0, address, size)
    for f in functions:
        body += b"\x02" + f.name.encode() + b"\0" + _uleb(1) + _uleb(line) + struct.pack("<QQ", f.address, f.size)
    body += b"\0"
    header = struct.pack("<HIB", 4, 0, 8)
    return struct.pack("<I", len(header) + len(body)) + header + body


def _lines(functions: Sequence[CodeSymbol], filename: str, line: int) -> bytes:
    lengths = bytes([0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1])
    tables = b"\0" + PurePath(filename).name.encode() + b"\0\0\0\0" + b"\0"
    rest = struct.pack("<BBBbBB", 1, 1, 1, -5, 14, 13) + lengths + tables
    program = b""
    for f in functions:
        program += b"\x00\x09\x02" + struct.pack("<Q", f.address)  # set_address
        program += b"\x03" + _sleb(line - 1) + b"\x01"  # advance_line, copy
        program += b"\x02" + _uleb(f.size) + b"\x00\x01\x01"  # advance_pc, end_sequence
    body = struct.pack("<HI", 4, len(rest)) + rest + program
    return struct.pack("<I", len(body)) + body
