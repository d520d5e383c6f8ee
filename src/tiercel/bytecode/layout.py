"""What the writer and the reader of files agree on: the header, the sections, the limits.

Invariant: a change here that makes old files mean something else comes with a new `VERSION`.
"""

from __future__ import annotations

import struct
from typing import Final

__all__ = [
    "ALIGNMENT", "CHUNK", "CRC", "ENTRY", "HEADER", "MAGIC", "MAX_DIM", "MAX_SYMBOLIC_BYTES", "OPTIONAL",
    "SECTIONS", "VERSION", "int_bytes",
]  # fmt: skip

# The first byte is no ASCII and the line ends show a transfer that changed them, as in PNG.
MAGIC: Final = b"\x89MSIR\r\n\x1a"
VERSION: Final = 1
HEADER: Final = struct.Struct("<8sHHI")
ENTRY: Final = struct.Struct("<IIQQ")
CRC: Final = struct.Struct("<I")
ALIGNMENT: Final = 64
# Kinds are written to files: append, never renumber. The last is the only one that is not read front to back.
SECTIONS: Final = {1: "program", 2: "constants", 3: "tokens", 4: "facts", 5: "functions", 6: "profile", 7: "tensors"}
OPTIONAL: Final = frozenset({4, 6, 7})
# Size expressions are parsed and constraints are reasoned about, which costs more per byte than the rest.
MAX_SYMBOLIC_BYTES: Final = 1 << 18
MAX_DIM: Final = 1 << 62
CHUNK: Final = 1 << 22


def int_bytes(value: int) -> bytes:
    """The shortest two's complement, little-endian; 0 is no byte."""
    magnitude = value if value >= 0 else ~value
    length = magnitude.bit_length() // 8 + 1 if value else 0
    return value.to_bytes(length, "little", signed=True)
