"""Bytes in and out: the primitives that every section of a file is made of.

In: a bytes-like object, or values. Out: values, or bytes. Numbers are LEB128, little-endian; a signed number is
zigzag-coded first; text is a byte count and UTF-8.

Invariant: a `Reader` never reads beyond its section, never allocates before it has checked that the bytes are there,
and accepts one spelling of each value only (no overlong LEB128), so what it accepts is what a `Writer` writes. Every
refusal is a `BytecodeError` with section and offset.
"""

from __future__ import annotations

import struct
from typing import Final, NoReturn, final

from tiercel.errors import BytecodeError

__all__ = ["MAX_NUMBER", "Reader", "Writer", "leb", "leb_size", "unzigzag", "zigzag"]

# Numbers in files are below this.
MAX_NUMBER: Final = 1 << 63
_ONE_BYTE: Final = tuple(bytes((i,)) for i in range(128))
# Ten bytes hold 70 bits; nothing in a file needs more than 64.
_MAX_LEB_BYTES: Final = 10


def leb(value: int) -> bytes:
    """Return a number `>= 0` as LEB128."""
    if value < 128:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def leb_size(value: int) -> int:
    """Return the length of `leb(value)`."""
    return max(1, (value.bit_length() + 6) // 7)


def zigzag(value: int) -> int:
    """Map 0, -1, 1, -2, ... to 0, 1, 2, 3, ..."""
    return value << 1 if value >= 0 else ~(value << 1)


def unzigzag(value: int) -> int:
    """The inverse of `zigzag`."""
    return ~(value >> 1) if value & 1 else value >> 1


@final
class Writer:
    """Collects the bytes of one section."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray()

    def u8(self, value: int) -> None:
        """Append one byte."""
        self.data.append(value)

    def raw(self, value: bytes | bytearray | memoryview) -> None:
        """Append bytes as they are."""
        self.data += value

    def number(self, value: int) -> None:
        """Append a number `>= 0`.

        Raises:
            BytecodeError: it is negative, or too large for a reader.
        """
        if not 0 <= value < MAX_NUMBER:
            raise BytecodeError(f"the number {value} does not fit a file: expected 0 to {MAX_NUMBER - 1}")
        self.data += leb(value)

    def signed(self, value: int) -> None:
        """Append a signed number."""
        self.data += leb(zigzag(value))

    def optional(self, value: int | None) -> None:
        """Append a number `>= 0`, or its absence."""
        self.number(0 if value is None else value + 1)

    def f64(self, value: float) -> None:
        """Append a float, bit for bit."""
        self.data += struct.pack("<d", value)

    def blob(self, value: bytes) -> None:
        """Append a byte count and bytes."""
        self.data += leb(len(value))
        self.data += value

    def text(self, value: str) -> None:
        """Append a string. Lone surrogates, which Python strings may hold, are kept."""
        self.blob(value.encode("utf-8", "surrogatepass"))


@final
class Reader:
    """Reads one section.

    Args:
        data: the whole section.
        section: its name, for errors.
    """

    __slots__ = ("data", "end", "pos", "section")

    def __init__(self, data: bytes | memoryview, section: str) -> None:
        self.data = memoryview(data)
        self.pos = 0
        self.end = len(data)
        self.section = section

    def fail(self, reason: str, at: int | None = None) -> NoReturn:
        """Raise the refusal."""
        raise BytecodeError(reason, section=self.section, offset=self.pos if at is None else at)

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return self.end - self.pos

    def u8(self, what: str) -> int:
        """Read one byte."""
        if self.pos >= self.end:
            self.fail(f"ends before {what}")
        value = self.data[self.pos]
        self.pos += 1
        return value

    def take(self, count: int, what: str) -> memoryview:
        """Read `count` bytes."""
        if count > self.end - self.pos:
            self.fail(f"{what} needs {count} bytes, {self.end - self.pos} are left")
        start = self.pos
        self.pos += count
        return self.data[start : self.pos]

    def number(self, what: str, limit: int = 1 << 32) -> int:
        """Read a number in `0 .. limit - 1`."""
        start = self.pos
        value = shift = 0
        while True:
            if self.pos >= self.end:
                self.fail(f"ends inside {what}", start)
            byte = self.data[self.pos]
            self.pos += 1
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift >= 7 * _MAX_LEB_BYTES:
                self.fail(f"{what} is a number of more than {_MAX_LEB_BYTES} bytes", start)
        if byte == 0 and shift:
            self.fail(f"{what} is written with more bytes than it needs", start)
        if value >= limit:
            self.fail(
                f"{what} is {value}, the limit is {limit - 1}" if limit else f"{what} is {value}, none exist", start
            )
        return value

    def signed(self, what: str, limit: int = 1 << 31) -> int:
        """Read a signed number in `-limit .. limit - 1`."""
        return unzigzag(self.number(what, 2 * limit))

    def optional(self, what: str, limit: int = 1 << 32) -> int | None:
        """Read a number in `0 .. limit - 1` that may be absent."""
        value = self.number(what, limit + 1)
        return None if value == 0 else value - 1

    def count(self, what: str, smallest: int = 1) -> int:
        """Read a number of items that take at least `smallest` bytes each, and check that as many bytes are left."""
        start = self.pos
        value = self.number(what, MAX_NUMBER)
        if value * smallest > self.end - self.pos:
            self.fail(f"{what} is {value}, which needs {value * smallest} bytes; {self.end - self.pos} are left", start)
        return value

    def f64(self, what: str) -> float:
        """Read a float."""
        value: float = struct.unpack("<d", self.take(8, what))[0]
        return value

    def blob(self, what: str) -> memoryview:
        """Read a byte count and bytes."""
        return self.take(self.count(f"length of {what}"), what)

    def text(self, what: str) -> str:
        """Read a string."""
        start = self.pos
        data = self.blob(what)
        try:
            return str(data, "utf-8", "surrogatepass")
        except UnicodeDecodeError as e:
            self.fail(f"{what} is not UTF-8: {e.reason} at its byte {e.start}", start)

    def finish(self) -> None:
        """Check that nothing is left."""
        if self.pos != self.end:
            self.fail(f"{self.end - self.pos} bytes are left over")
