"""Object files that LLVM makes, read: sections, symbols, relocations.

In: the bytes of a little-endian ELF64 relocatable object. Out: an `Object` of plain tuples. Only what linking needs is
read, by `struct`: a general reader takes two to three milliseconds for a kernel, this one a tenth of one.

Source of the layouts: the System V ABI, gABI edition 4.1, chapters "ELF Header", "Sections", "Symbol Table",
"Relocation".
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

__all__ = ["ALLOCATED", "FUNCTION", "UNDEFINED", "WRITABLE", "MalformedObject", "Object", "Relocation", "Section",
           "Symbol", "read_object"]  # fmt: skip

WRITABLE: Final = 1
ALLOCATED: Final = 2
"""Flags of sections (SHF_WRITE, SHF_ALLOC)."""
FUNCTION: Final = 2
"""Type of a symbol (STT_FUNC)."""
UNDEFINED: Final = 0
"""Section number of a symbol from elsewhere (SHN_UNDEF)."""

_SYMBOLS, _RELOCATIONS_ADDEND, _NO_BITS, _RELOCATIONS = 2, 4, 8, 9
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")


class MalformedObject(ValueError):
    """Bytes that are no object file of this kind."""


class Section(NamedTuple):
    """A section.

    Attributes:
        name, flags, alignment: as in its header.
        data: its bytes; as many zeros for one that takes no place in the file.
    """

    name: str
    flags: int
    alignment: int
    data: bytes


class Symbol(NamedTuple):
    """A symbol.

    Attributes:
        name: "" for one that has none.
        kind: such as `FUNCTION`.
        section: number of the section it lies in, or `UNDEFINED`.
        value: offset there.
    """

    name: str
    kind: int
    section: int
    value: int


class Relocation(NamedTuple):
    """A place to be filled in when the object is linked.

    Attributes:
        section: number of the section that holds the place.
        offset: of the place there.
        kind: how to fill it in (numbers of the processor's own).
        symbol: number of the symbol whose address is wanted.
        addend: to be added.
    """

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


class Object(NamedTuple):
    """An object file: all sections by number, all symbols by number, all relocations in order."""

    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]


def read_object(data: bytes) -> Object:
    """Read an object file.

    Raises:
        MalformedObject: it is none, is cut off, or has relocations of a form that x86-64 and AArch64 do not use.
    """
    try:
        return _read(data)
    except (struct.error, IndexError) as error:
        raise MalformedObject(f"damaged object file: {error}") from None


def _read(data: bytes) -> Object:
    ident, _, _, _, _, _, table, _, _, _, _, size, count, names_at = _HEADER.unpack_from(data)
    if ident[:6] != b"\x7fELF\x02\x01" or size != _SECTION.size:
        raise MalformedObject("no little-endian ELF64 object")
    headers = [_SECTION.unpack_from(data, table + number * size) for number in range(count)]

    def content(number: int) -> bytes:
        header = headers[number]
        offset, length = header[4], header[5]
        if header[1] == _NO_BITS:
            return bytes(length)
        if offset + length > len(data):
            raise MalformedObject(f"section {number} runs past the end of the object file")
        return data[offset : offset + length]

    names = content(names_at)
    sections: list[Section] = []
    symbols: list[Symbol] = []
    relocations: list[Relocation] = []
    for number, (name, kind, flags, _, _, _, link, info, alignment, _) in enumerate(headers):
        needed = flags & ALLOCATED
        sections.append(Section(_text(names, name), flags, alignment, content(number) if needed else b""))
        if kind == _SYMBOLS:
            strings = content(link)
            symbols += [
                Symbol(_text(strings, at), told & 15, home, value)
                for at, told, _, home, value, _ in _SYMBOL.iter_unpack(content(number))
            ]
        elif kind == _RELOCATIONS_ADDEND:
            relocations += [
                Relocation(info, offset, told & 0xFFFFFFFF, told >> 32, addend)
                for offset, told, addend in _RELOCATION.iter_unpack(content(number))
            ]
        elif kind == _RELOCATIONS:
            raise MalformedObject("relocations without addends")
    return Object(tuple(sections), tuple(symbols), tuple(relocations))


def _text(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode("utf-8", "replace")
