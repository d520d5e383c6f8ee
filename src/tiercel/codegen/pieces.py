"""The runtime library as a process holds it: pieces, each mapped when a kernel first calls into it.

In: who has the bytes of a piece (the cache, the worker's answers, the compiler in the worker itself). Out: addresses of
library functions. A piece stays mapped for good: stubs, packed operands and thread pools refer to it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable

from tiercel.codegen.blob import Blob, BlobError, Mapped, map_blob
from tiercel.codegen.cpu.names import CORE, piece_of

__all__ = ["Library", "needed_pieces"]


def needed_pieces(imports: Iterable[str]) -> frozenset[str]:
    """The pieces that a kernel with these imports needs: to be called, and to call."""
    return frozenset({CORE, *map(piece_of, imports)})


class Library:
    """See the module docstring.

    Args:
        find: gives the bytes of a piece, None where it is not to be had.
    """

    def __init__(self, find: Callable[[str], bytes | None]) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._mapped: dict[str, Mapped] = {}

    @property
    def mapped(self) -> tuple[Mapped, ...]:
        """What is mapped by now."""
        return tuple(self._mapped.values())

    def address(self, name: str) -> int:
        """The address of a function.

        Raises:
            BlobError: its piece is not here, or is damaged. OSError: it cannot be mapped.
        """
        piece = piece_of(name)
        found = self._mapped.get(piece)
        if found is None:
            with self._lock:
                found = self._mapped.get(piece) or self._map(piece)
                self._mapped[piece] = found
        return found.address(name)

    def _map(self, piece: str) -> Mapped:
        raw = self._find(piece)
        if raw is None:
            raise BlobError(f"the piece {piece!r} of the runtime library is not here")
        blob = Blob.from_bytes(raw)
        libc = ctypes.CDLL(None)
        return map_blob(blob, {name: ctypes.cast(libc[name], ctypes.c_void_p).value or 0 for name in blob.imports})
