"""The flat blob: one block of bytes that runs wherever it is mapped, made from an object file, mapped without LLVM.

In (`link`): an ELF object of position-independent code in the small code model. Out: a `Blob`: sections laid out
behind one another with their internal relocations applied, entry offsets, and a table of named import slots. In
(`map_blob`): a blob and the addresses of its imports. Out: executable memory.

Invariants: the bytes do not depend on where they are mapped (only PC-relative relocations between sections, at fixed
distances); calls to imports go through a 16-byte thunk that jumps through its slot, so the code is never patched;
nothing is executable before it is complete, nor writable after.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tiercel.codegen.objects import ALLOCATED, FUNCTION, UNDEFINED, WRITABLE, MalformedObject, read_object
from tiercel.errors import TiercelError

MAGIC = b"TCLBLOB2"
PAGE = mmap.PAGESIZE
_BLOB_HEADER = 32
_THUNK = 16
_MAX_ALIGN = 4096

# x86-64 psABI, table "Relocation Types"
_R_X86_64_PC32 = 2
_R_X86_64_PLT32 = 4
_R_X86_64_PC64 = 24


class BlobError(TiercelError, ValueError):
    """An object that cannot be made into a blob, or bytes that are no blob."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Linked machine code.

    Attributes:
        image: the bytes to map, import slots (8 bytes each) last.
        entries: offset of each entry point.
        imports: offset of the slot of each import.
        unwind: offset and size of the `.eh_frame` records, for debuggers.
    """

    image: bytes
    entries: Mapping[str, int]
    imports: Mapping[str, int]
    unwind: tuple[int, int] = (0, 0)

    def to_bytes(self) -> bytes:
        """Magic, CRC-32 of the rest, counts and sizes, name tables, image; little-endian."""
        parts = [struct.pack("<IIIII", len(self.entries), len(self.imports), len(self.image), *self.unwind)]
        for table in (self.entries, self.imports):
            for name, offset in table.items():
                raw = name.encode()
                parts.append(struct.pack("<HI", len(raw), offset) + raw)
        parts.append(self.image)
        body = b"".join(parts)
        return MAGIC + struct.pack("<I", zlib.crc32(body)) + body

    @classmethod
    def from_bytes(cls, data: bytes) -> Blob:
        """Read what `to_bytes` wrote.

        Raises:
            BlobError: for anything else, naming what is wrong. Never reads beyond `data`.
        """
        if data[:8] != MAGIC:
            raise BlobError("not a blob: wrong magic")
        if len(data) < _BLOB_HEADER:
            raise BlobError(f"truncated blob: {len(data)} bytes")
        if struct.unpack_from("<I", data, 8)[0] != zlib.crc32(data[12:]):
            raise BlobError("damaged blob: checksum does not match")
        entries_count, imports_count, size, *unwind = struct.unpack_from("<IIIII", data, 12)
        at = _BLOB_HEADER
        tables: list[dict[str, int]] = []
        for count in (entries_count, imports_count):
            table: dict[str, int] = {}
            for _ in range(count):
                if at + 6 > len(data):
                    raise BlobError("damaged blob: name table runs past the end")
                length, offset = struct.unpack_from("<HI", data, at)
                raw = data[at + 6 : at + 6 + length]
                at += 6 + length
                if len(raw) != length or offset >= max(size, 1):
                    raise BlobError("damaged blob: entry outside of the image")
                table[raw.decode("utf-8", "strict")] = offset
            tables.append(table)
        if len(data) - at != size:
            raise BlobError(f"damaged blob: image of {len(data) - at} bytes, {size} expected")
        if any(offset + 8 > size for offset in tables[1].values()):
            raise BlobError("damaged blob: import slot outside of the image")
        if sum(unwind) > size:
            raise BlobError("damaged blob: unwind records outside of the image")
        return cls(data[at:], tables[0], tables[1], (unwind[0], unwind[1]))


def link(obj: bytes, entries: Iterable[str]) -> Blob:
    """Make a blob from an ELF object.

    Args:
        obj: the object file.
        entries: names of the functions to be entered from outside.

    Raises:
        BlobError: for an undefined entry or a relocation that depends on the load address.
    """
    try:
        elf = read_object(obj)
    except MalformedObject as error:
        raise BlobError(str(error)) from None
    image = bytearray()
    base: dict[int, int] = {}
    unwind = (0, 0)
    allocated = [(n, s) for n, s in enumerate(elf.sections) if s.flags & ALLOCATED and s.data]
    allocated.sort(key=lambda row: row[1].name == ".eh_frame")  # behind the code
    for number, section in allocated:
        if section.flags & WRITABLE:
            raise BlobError(f"section {section.name} is writable: generated code keeps no state")
        align = max(1, section.alignment)
        if align > _MAX_ALIGN:
            raise BlobError(f"section {section.name} wants alignment {align}")
        image.extend(b"\xcc" * (-len(image) % align))
        base[number] = len(image)
        if section.name == ".eh_frame":
            unwind = (len(image), len(section.data))
        image.extend(section.data)
    thunks: dict[str, int] = {}
    fixes: list[tuple[int, int, int, int]] = []  # position, relocation type, target offset, addend
    pending: list[tuple[int, int, str, int]] = []
    for relocation in elf.relocations:
        if relocation.section not in base:
            continue
        symbol = elf.symbols[relocation.symbol]
        position = base[relocation.section] + relocation.offset
        if symbol.section == UNDEFINED:
            pending.append((position, relocation.kind, symbol.name, relocation.addend))
        elif symbol.section in base:
            fixes.append((position, relocation.kind, base[symbol.section] + symbol.value, relocation.addend))
        else:
            raise BlobError(f"relocation against {symbol.name or symbol.section}, which is not part of the image")
    image.extend(b"\xcc" * (-len(image) % _THUNK))
    for _, _, name, _ in pending:
        if name not in thunks:
            thunks[name] = len(image)
            image.extend(b"\xcc" * _THUNK)
    image.extend(b"\x00" * (-len(image) % 8))
    slots: dict[str, int] = {}
    for name, thunk in thunks.items():
        slots[name] = len(image)
        image.extend(b"\x00" * 8)
        # jmp *[rip + slot]
        image[thunk : thunk + 6] = b"\xff\x25" + struct.pack("<i", slots[name] - (thunk + 6))
    fixes.extend((position, kind, thunks[name], addend) for position, kind, name, addend in pending)
    for position, kind, target, addend in fixes:
        distance = target + addend - position
        if kind in (_R_X86_64_PC32, _R_X86_64_PLT32):
            struct.pack_into("<i", image, position, distance)
        elif kind == _R_X86_64_PC64:
            struct.pack_into("<q", image, position, distance)
        else:
            raise BlobError(f"relocation type {kind} depends on the load address")
    offsets: dict[str, int] = {}
    for symbol in elf.symbols:
        if symbol.name and symbol.section in base and symbol.kind == FUNCTION:
            offsets[symbol.name] = base[symbol.section] + symbol.value
    missing = [name for name in entries if name not in offsets]
    if missing:
        raise BlobError(f"entry {', '.join(missing)} is not defined by the object")
    return Blob(bytes(image), {name: offsets[name] for name in entries}, slots, unwind)


class Mapped:
    """A blob in executable memory, until `release`. Whoever holds addresses must hold this object."""

    def __init__(self, memory: mmap.mmap, address: int, blob: Blob) -> None:
        self._memory: mmap.mmap | None = memory
        self._base = address
        self._entries = blob.entries
        self._used = len(blob.image)
        self.unwind = blob.unwind
        self.size_bytes = len(memory)

    def address(self, entry: str) -> int:
        """The absolute address of an entry point."""
        if self._memory is None:
            raise BlobError("the code has been released")
        return self._base + self._entries[entry]

    def content(self) -> tuple[int, bytes]:
        """The address of the code, and its bytes."""
        if self._memory is None:
            raise BlobError("the code has been released")
        return self._base, self._memory[: self._used]

    def symbols(self) -> list[tuple[str, int, int]]:
        """Name, start and size of what is there: each entry up to the next one; "" is what lies before the first."""
        if self._memory is None:
            raise BlobError("the code has been released")
        places = [("", 0), *sorted(self._entries.items(), key=lambda item: item[1])]
        ends = [offset for _, offset in places[1:]] + [self.unwind[0] or self.size_bytes]
        return [
            (name, self._base + start, end - start)
            for (name, start), end in zip(places, ends, strict=True)
            if end > start
        ]

    def release(self) -> None:
        """Unmap. No thread may be inside, nor enter again."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()


def map_blob(blob: Blob, imports: Mapping[str, int] | None = None) -> Mapped:
    """Map a blob: copy, fill the slots, make it executable and read-only.

    Raises:
        BlobError: an import has no address.
        OSError: the system refuses executable memory.
    """
    imports = imports or {}
    missing = [name for name in blob.imports if name not in imports]
    if missing:
        raise BlobError(f"no address for import {', '.join(sorted(missing))}")
    size = -(-max(len(blob.image), 1) // PAGE) * PAGE
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    memory[: len(blob.image)] = blob.image
    for name, offset in blob.imports.items():
        memory[offset : offset + 8] = struct.pack("<Q", imports[name])
    anchor = ctypes.c_char.from_buffer(memory)
    address = ctypes.addressof(anchor)
    del anchor
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if libc.mprotect(address, size, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        error = ctypes.get_errno()
        memory.close()
        raise OSError(error, "executable memory was refused")
    return Mapped(memory, address, blob)
