"""What the tensors over one piece of memory share: a version that every write through them moves.

In: writes, reported by `bump`. Out: `version`, equal to an earlier reading only if nothing was written in between
through any tensor of this storage. Packed weights, captured values and guards are keyed by (storage, version).

Invariant: no two writes leave the same version, whatever the threads do, because each takes its own number from an
atomic counter, the same for all storages; a lock would have to survive fork. Writes through NumPy arrays that share the
memory are not seen; a *guarded* storage (that of a `Parameter`) therefore hands out read-only arrays only.

Memory itself belongs to the ndarrays. That of a cache which grows in place belongs to a `growth.Block`, which several
storages may look into.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, final

__all__ = ["Storage"]

_stamps = itertools.count(1)


@final
class Storage:
    """The shared state of all tensors over one piece of memory.

    Attributes:
        version: 0 at first, and a larger number after each write.
        guarded: arrays are handed out read-only, so that every write is seen.
        frozen: the memory is read-only and nobody else's: the version stays 0.
        block: the growing memory that the tensors look into, None for memory of their own.
        grown: the axis along which a concatenation made the first tensor, -1 for none.
    """

    __slots__ = ("__weakref__", "_owner", "block", "frozen", "grown", "guarded", "version")

    def __init__(self, *, guarded: bool = False, frozen: bool = False) -> None:
        self.version = 0
        self.guarded = guarded
        self.frozen = frozen
        self.block: Any = None
        self.grown = -1
        self._owner: weakref.ref[Any] | None = None

    @property
    def owner(self) -> Any:
        """The `Parameter` whose memory this is, or None. Held weakly: views keep the memory alive, not the owner."""
        return None if self._owner is None else self._owner()

    @owner.setter
    def owner(self, parameter: object) -> None:
        self._owner = weakref.ref(parameter)

    def bump(self) -> None:
        """Record a write."""
        self.version = next(_stamps)

    def __repr__(self) -> str:
        state = "frozen" if self.frozen else "guarded" if self.guarded else "plain"
        return f"Storage(version={self.version}, {state})"
