"""The runtime library as a process holds it: pieces, each mapped when a kernel first calls into it.

In: who has the bytes of a piece (the cache, the worker's answers, the compiler in the worker itself). Out: addresses of
library functions. A piece stays mapped for good: stubs, packed operands and thread pools refer to it.

Most pieces exist in two versions, from the same text and so with the same results: the quick one takes the code
generator half of the time, and is 0 to 2% slower (products of float32: 118 ms instead of 220, Zen 4, 2026). Kernels
that were compiled quickly call it; the better kernels that replace them call the better one.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable
from typing import Final

from tiercel.codegen.blob import Blob, BlobError, Mapped, map_blob
from tiercel.codegen.cpu.names import CORE, piece_of

__all__ = ["Library", "base_piece", "is_quick", "needed_pieces", "quick_version", "versions"]

_QUICK: Final = " quick"


def quick_version(piece: str) -> str:
    """The name of a piece's quick version; the core has none."""
    return piece if piece == CORE else piece + _QUICK


def is_quick(version: str) -> bool:
    """Whether this is the name of a quick version."""
    return version.endswith(_QUICK)


def base_piece(version: str) -> str:
    """The piece that this is a version of."""
    return version.removesuffix(_QUICK)


def versions(piece: str, *, quick: bool) -> tuple[str, ...]:
    """What a kernel may call as this piece, the better ones first."""
    return tuple(dict.fromkeys((piece, quick_version(piece)))) if quick else (piece,)


def needed_pieces(imports: Iterable[str]) -> frozenset[str]:
    """The pieces that a kernel with these imports needs: to be called, and to call."""
    return frozenset({CORE, *map(piece_of, imports)})


class Library:
    """See the module docstring.

    Args:
        find: gives the bytes of a version of a piece, None where it is not to be had.
        make: makes a version of a piece that is not to be had otherwise.
    """

    def __init__(
        self, find: Callable[[str], bytes | None], make: Callable[[str], bytes | None] = lambda version: None
    ) -> None:
        self._find = find
        self._make = make
        self._lock = threading.Lock()
        self._mapped: dict[str, Mapped] = {}

    @property
    def mapped(self) -> tuple[Mapped, ...]:
        """What is mapped by now."""
        return tuple(self._mapped.values())

    def address(self, name: str, *, quick: bool = False) -> int:
        """The address of a function.

        Args:
            name: of it.
            quick: whether that of the quick version will do, where there is no other.

        Raises:
            BlobError: its piece is not here, or is damaged. OSError: it cannot be mapped.
        """
        piece = piece_of(name)
        for version in versions(piece, quick=quick):
            found = self._mapped.get(version)
            if found is not None:
                return found.address(name)
        with self._lock:
            last = versions(piece, quick=quick)[-1]
            for version, give in (*((v, self._find) for v in versions(piece, quick=quick)), (last, self._make)):
                raw = give(version)
                if raw is not None:
                    found = self._mapped.get(version) or self._map(raw)
                    self._mapped[version] = found
                    return found.address(name)
        raise BlobError(f"the piece {piece!r} of the runtime library is not here")

    @staticmethod
    def _map(raw: bytes) -> Mapped:
        blob = Blob.from_bytes(raw)
        libc = ctypes.CDLL(None)
        return map_blob(blob, {name: ctypes.cast(libc[name], ctypes.c_void_p).value or 0 for name in blob.imports})
