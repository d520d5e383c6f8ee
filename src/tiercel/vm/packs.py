"""Packed forms of frozen operands: made once for each (memory, version, layout), shared by all entries of the process.

In: the value of a frozen input and its array. Out: the address of its elements in the order in which a kernel reads
them. Invariant: an address is given only for content that is what was packed (`frozen_state` says when that is so).

`Packs` stands for one operand of one entry. It keeps the forms of the last few values (instances of a class share their
kernels), and writes where they are into records, in which the machine-code stub looks before it asks here: a record
holds the address of what the value is known by (the storage of a Tensor, an ndarray itself), of its version, of its
elements, and of the packed form. It is cleared when that object dies, before its address can be another's.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tiercel.codegen.cpu.stub import PACK_RECORDS, record_number
from tiercel.compiler.interface import PACK_PADDING
from tiercel.values.parameter import frozen_state

__all__ = ["MAX_PACKS", "Packs", "packed_bytes"]

MAX_PACKS: Final = 64
"""Values of one operand that are kept packed."""

_RECORD: Final = 4
"""Words of a record, and before the first one."""


class Panels:
    """One packed form.

    Attributes:
        storage, version: of what it was packed, see `frozen_state`.
        address: of its first element, a multiple of 64.
        nbytes: its size.
    """

    __slots__ = ("__weakref__", "_array", "address", "nbytes", "storage", "version")

    def __init__(self, storage: Any, version: int, elements: int, dtype: np.dtype[Any]) -> None:
        self.storage, self.version = weakref.ref(storage), version
        array = np.zeros(elements + 64 // dtype.itemsize, dtype)
        self.address = -(-array.ctypes.data // 64) * 64
        self.nbytes = array.nbytes
        self._array = array

    def is_of(self, storage: object, version: int) -> bool:
        """Is it the form of this content?"""
        return self.storage() is storage and self.version == version


_panels: Final[weakref.WeakValueDictionary[tuple[Any, ...], Panels]] = weakref.WeakValueDictionary()


def packed_bytes() -> int:
    """Bytes of all packed forms of the process."""
    return sum(panels.nbytes for panels in list(_panels.values()))


class Packs:
    """The packed forms of one frozen operand.

    Args:
        layout: name of its dtype and of the way of packing, see `PackSpec.layout`.
        dims: k, n, row stride, column stride, offset; in elements.
        pack: the library's functions by layout and whether they pack as panels: `pack(source, row, column, out, n, k)`,
            for panels with `count, firsts` behind.
        panels: see `interface.PackSpec`.

    Attributes:
        records: words for the stub: the address of `ask`, then records.
        copied: bytes this operand has had copied.
        ask: what the stub calls where no record fits.
    """

    def __init__(
        self,
        layout: str,
        dims: tuple[int, ...],
        pack: Mapping[tuple[str, bool], Callable[..., None]],
        panels: tuple[int, ...] = (),
    ) -> None:
        self.layout, self.dims, self.pack, self.panels = layout, dims, pack, panels
        self.made: dict[int, Panels] = {}
        self.copied = 0
        self.ask = self.address
        self.records = np.zeros(_RECORD * (PACK_RECORDS + 1), np.int64)
        self.records[0] = id(self.ask)
        self._versions: dict[int, int] = {}
        self._watched: dict[int, weakref.ref[Any]] = {}

    def address(self, value: Any, array: np.ndarray[Any, Any]) -> int:
        """The address of the packed form of `value`, whose elements are `array`.

        Raises:
            ValueError: the value is not frozen.
        """
        state = frozen_state(value)
        if state is None:
            raise ValueError("an operand that was frozen and no longer is")
        storage, version = state
        data = array.ctypes.data
        found = self.made.get(data)
        if found is None or not found.is_of(storage, version):
            found = self._panels(storage, version, data, array.dtype)
            kept = dict(list(self.made.items())[-(MAX_PACKS - 1) :])
            kept[data] = found
            self.made = kept
        self._record(value, storage, version, data, found.address)
        return found.address

    def _panels(self, storage: Any, version: int, data: int, dtype: np.dtype[Any]) -> Panels:
        """The form that another entry has, or a new one."""
        key = (data, self.layout, self.dims, self.panels)
        found = _panels.get(key)
        if found is None or not found.is_of(storage, version):
            k, n, row, column, offset = self.dims
            count, firsts = len(self.panels), np.array(self.panels, np.int64)
            found = Panels(storage, version, k * (n * max(count, 1) + PACK_PADDING), dtype)
            extra = (count, firsts.ctypes.data) if count else ()
            function = self.pack[self.layout, count > 0]
            function(data + offset * dtype.itemsize, row, column, found.address, n, k, *extra)
            self.copied += found.nbytes
            _panels[key] = found
        return found

    def _record(self, value: object, storage: Any, version: int, data: int, address: int) -> None:
        """Let the stub know. An ndarray has no version: it stays what it is while it cannot be written to."""
        number = record_number(data)
        word = _RECORD * (number + 1)
        kept = 0 if value is storage else id(storage.version)
        if kept:
            if storage.version != version:
                return
            self._versions[number] = storage.version  # its id says which it is while it lives
        self.records[word : word + _RECORD] = (id(storage), kept, data, address)
        records, key = self.records, id(storage)

        def gone(_: object) -> None:
            for at in range(_RECORD, len(records), _RECORD):
                if records[at] == key:
                    records[at : at + _RECORD] = 0

        self._watched[number] = weakref.ref(storage, gone)

    @property
    def nbytes(self) -> int:
        """Bytes of the forms it keeps."""
        return sum(panels.nbytes for panels in self.made.values())
