"""Well-formed shells around contents that are made to need as much memory and time as possible for their bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tests.bytecode.fuzz import assemble
from tiercel.bytecode.wire import Writer, leb, zigzag

RETURN = b"\x22\x00"


def function(
    code: bytes,
    count: int,
    *,
    names: tuple[str, ...] = (),
    spans: bytes | None = None,
    registers: int = 4,
    loops: int = 0,
    variables: bytes = b"\0",
) -> bytes:
    """The section of one function with one parameter; `count` instructions without spans, unless they are given."""
    w = Writer()
    w.number(1)
    w.raw(b"\x01f\0\0\0")
    w.raw(b"\x01\x01x\x01\0\0")
    w.number(0)
    w.number(registers)
    w.number(loops)
    w.u8(0)
    w.number(len(names))
    for name in names:
        w.text(name)
    w.blob(code)
    w.raw(bytes(count) if spans is None else spans)
    w.raw(variables)
    return bytes(w.data)


def file(functions: bytes, constants: bytes = b"\0", tokens: bytes = b"\0\0", **more: bytes) -> bytes:
    """A file of these sections."""
    parts = [(1, b"\0\0"), (2, constants), (3, tokens), (5, functions)]
    kinds = {"facts": 4, "profile": 6}
    return assemble(sorted([*parts, *((kinds[name], content) for name, content in more.items())]))


def files(size: int) -> Iterator[tuple[str, bytes]]:
    """Name and contents of files of about `size` bytes."""
    plain = function(RETURN, 1)
    yield "unmatched ends", file(function(b"\x19" * size, size))
    count = size // 7
    moves = b"".join(b"\x09" + leb(1 + i) + leb(zigzag(i)) for i in range(count))
    yield "distinct moves", file(function(moves + RETURN, count + 1, registers=count + 1))
    count = size // 8
    spans = b"".join(b"\x02\x02" + leb(300 + i % 1000) + b"\0" + leb(400 + i % 1000) for i in range(count))
    yield "distinct spans", file(function(b"\x1a\0\0" * (count - 1) + RETURN, 0, spans=spans))
    names = tuple(f"n{i:x}" for i in range(count))
    loads = b"".join(b"\x04\0" + leb(i) for i in range(count))
    yield "names", file(function(loads + RETURN, count + 1, names=names))
    yield "pending branches", file(_pending(size // 20))
    yield "loops", file(_loops(size // 14))
    yield "variables", file(function(RETURN, 1, variables=leb(size // 4) + b"\0\0\x01\x03" * (size // 4)))
    for name, one in {
        "none": b"\0",
        "empty tuples": b"\x09\0",
        "ints": b"\x03\x02\0\x01",
        "strings": b"\x06\x02ab",
        "slices": b"\x0a\0\0\0",
        "nested tuples": b"\x09\x01" * 60 + b"\x09\0",
        "objects": b"\x0f\0",
    }.items():
        count = size // len(one)
        yield name, file(plain, constants=leb(count) + one * count)
    yield "one tuple", file(plain, constants=b"\x01\x09" + leb(size) + bytes(size))
    yield "signatures", file(plain, profile=b"\x01\0\0\0" + leb(size // 4) + b"\0\0\0\0" * (size // 4))
    dims = [b"a%x" % i for i in range(size // 6)]
    yield "sizes", file(plain, tokens=leb(len(dims)) + b"".join(leb(len(d)) + d for d in dims) + b"\0")
    count = size // 9
    yield "tokens", file(plain, tokens=b"\0" + leb(count) + b"\x0b\x02\x06\x01C\x03cpu\0" * count)
    facts = [b"n%d: 1..%d" % (i, i + 2) for i in range(100)]
    yield "facts", file(plain, facts=leb(len(facts)) + b"".join(leb(len(f)) + f for f in facts))
    # Each returns the first constant.
    one = b"\x01f\0\0\0\0\0\0\0\0\0\x02\x22\x01\0\0"
    yield "functions", file(leb(size // len(one)) + one * (size // len(one)), constants=b"\x01\0")


def _pending(count: int) -> bytes:
    """Each branch waits for its target with one more register defined than the one before."""
    moves = [b"\x09" + leb(1 + i) + b"\0" for i in range(count)]
    end = sum(map(len, moves)) + 10 * count
    code = bytearray()
    for i, move in enumerate(moves):
        after = len(code) + len(move) + 10
        code += move + b"\x14\0" + struct.pack("<II", end + 2 * (count - 1 - i), after)
    return function(bytes(code) + RETURN * count, 3 * count, registers=count + 1)


def _loops(count: int) -> bytes:
    code = bytearray()
    for i in range(count):
        start = len(code)
        head, tail = b"\x16" + leb(i) + b"\0\0", b"\x17" + leb(i)
        code += head + struct.pack("<I", start + len(head) + len(tail) + 8) + tail + struct.pack("<I", start)
    return function(bytes(code) + RETURN, 2 * count + 1, loops=count)
