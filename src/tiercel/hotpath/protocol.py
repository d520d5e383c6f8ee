"""What travels between a process and its compile worker: frames of plain data.

In: None, bool, int, float, str, bytes, lists (tuples become lists) and dicts with string keys. Out: bytes, and back.
Everything that comes in is checked first: lengths, checksum, version, nesting, number of byte strings. Whatever the
bytes are, the answer is a value or a `ProtocolError`; nothing is executed, and memory stays within a small multiple of
the frame.

Why JSON inside: its C decoder is ten times faster than any codec in Python, it cannot make objects of its own choice
(as pickle does) and does not crash on garbage (as marshal does). Byte strings stand behind the text, uncopied by it.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from tiercel.errors import TiercelError

__all__ = ["MAX_PAYLOAD", "VERSION", "Frame", "FrameReader", "Kind", "ProtocolError", "decode", "encode", "pack"]

MAGIC: Final = b"TCW\x01"
VERSION: Final = 1
MAX_PAYLOAD: Final = 64 << 20
"""Bytes of one frame's payload. The largest kernel seen so far has 200 KB."""
MAX_DEPTH: Final = 48
MAX_ATTACHMENTS: Final = 4096

_HEADER: Final = struct.Struct("<4sHHQII")  # magic, version, kind, nonce, length, checksum of all the rest
_COUNTS: Final = struct.Struct("<II")  # bytes of text, number of byte strings
_MARK: Final = "\0bytes"
_NEITHER: Final = bytes(set(range(256)) - set(b'[]{}"'))
_STRING: Final = re.compile(rb'"[^"]*"')


class ProtocolError(TiercelError, ValueError):
    """Bytes that are no frame or no value of ours."""


class Kind(IntEnum):
    """What a frame is."""

    HELLO = 1
    JOB = 2
    PROGRESS = 3
    RESULT = 4
    FAILURE = 5


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame.

    Attributes:
        kind: what it is.
        nonce: names the job it belongs to; a reply carries that of its job.
        payload: encoded plain data.
    """

    kind: Kind
    nonce: int
    payload: bytes

    def value(self) -> Any:
        """The plain data.

        Raises:
            ProtocolError: the payload is none.
        """
        return decode(self.payload)


def encode(value: Any) -> bytes:
    """Plain data as bytes.

    Raises:
        ProtocolError: something in it is not plain.
    """
    attached: list[bytes] = []

    def attach(x: Any) -> Any:
        if isinstance(x, bytes | bytearray | memoryview):
            attached.append(bytes(x))
            return {_MARK: len(attached) - 1}
        raise ProtocolError(f"a {type(x).__name__} is no plain data")

    try:
        text = json.dumps(value, ensure_ascii=True, check_circular=False, default=attach, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, ProtocolError):
            raise
        raise ProtocolError(f"not plain data: {error}") from None
    raw = text.encode("ascii")
    lengths = struct.pack(f"<{len(attached)}I", *map(len, attached))
    return b"".join([_COUNTS.pack(len(raw), len(attached)), lengths, raw, *attached])


def decode(data: bytes | memoryview) -> Any:
    """The plain data in bytes that `encode` made.

    Raises:
        ProtocolError: they were not made by it.
    """
    view = memoryview(data)
    if len(view) < _COUNTS.size:
        raise ProtocolError(f"truncated value of {len(view)} bytes")
    size, count = _COUNTS.unpack_from(view)
    if count > MAX_ATTACHMENTS or _COUNTS.size + 4 * count + size > len(view):
        raise ProtocolError("a value whose parts are longer than the whole")
    lengths = struct.unpack_from(f"<{count}I", view, _COUNTS.size)
    at = _COUNTS.size + 4 * count
    text = bytes(view[at : at + size])
    at += size
    if at + sum(lengths) != len(view):
        raise ProtocolError("a value whose parts do not add up to the whole")
    attached = []
    for length in lengths:
        attached.append(bytes(view[at : at + length]))
        at += length
    _check_depth(text)

    def hook(found: dict[str, Any]) -> Any:
        if _MARK not in found:
            return found
        number = found[_MARK]
        if len(found) != 1 or type(number) is not int or not 0 <= number < len(attached):
            raise ProtocolError("a reference to a byte string that is not there")
        return attached[number]

    try:
        return json.loads(text.decode("ascii"), object_hook=hook)
    except (ValueError, RecursionError) as error:
        if isinstance(error, ProtocolError):
            raise
        raise ProtocolError(f"no value: {error}") from None


def _check_depth(text: bytes) -> None:
    """Refuse deep nesting before the recursive decoder sees it: brackets are taken away from the inside out."""
    bare = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NEITHER).replace(b'""', b"")
    brackets = _STRING.sub(b"", bare)
    for _ in range(MAX_DEPTH):
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    if brackets:
        raise ProtocolError(f"a value nested deeper than {MAX_DEPTH}, or brackets that do not match")


def pack(kind: Kind, nonce: int, payload: bytes) -> bytes:
    """A frame as bytes.

    Raises:
        ProtocolError: the payload is too long.
    """
    if len(payload) > MAX_PAYLOAD:
        raise ProtocolError(f"a payload of {len(payload)} bytes: at most {MAX_PAYLOAD} are sent")
    head = _HEADER.pack(MAGIC, VERSION, kind, nonce, len(payload), 0)
    checksum = zlib.crc32(payload, zlib.crc32(head[:-4]))
    return head[:-4] + struct.pack("<I", checksum) + payload


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self, limit: int = MAX_PAYLOAD) -> None:
        self._limit = limit
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add bytes; yields the frames that are complete.

        Raises:
            ProtocolError: the stream is not of this protocol. Nothing after that can be trusted.
        """
        self._data += data
        while len(self._data) >= _HEADER.size:
            magic, version, kind, nonce, length, checksum = _HEADER.unpack_from(self._data)
            if magic != MAGIC:
                raise ProtocolError(f"garbage where a frame should begin: {bytes(self._data[:16])!r}")
            if version != VERSION:
                raise ProtocolError(f"a frame of version {version}, {VERSION} expected")
            if length > self._limit:
                raise ProtocolError(f"a frame of {length} bytes: at most {self._limit} are accepted")
            end = _HEADER.size + length
            if len(self._data) < end:
                return
            payload = bytes(self._data[_HEADER.size : end])
            if zlib.crc32(payload, zlib.crc32(self._data[: _HEADER.size - 4])) != checksum:
                raise ProtocolError("a damaged frame: its checksum does not match")
            try:
                known = Kind(kind)
            except ValueError:
                raise ProtocolError(f"a frame of unknown kind {kind}") from None
            del self._data[:end]
            yield Frame(known, nonce, payload)
