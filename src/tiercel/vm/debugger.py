"""Compiled code shown to debuggers: through the interface by which GDB, LLDB and others learn of code made at run time.

In: mapped machine code and what it is. Out: an entry in the process's list `__jit_debug_descriptor`, whose layout and
protocol are those of "JIT Compilation Interface" in GDB's manual, until the code is unmapped. A backtrace then shows
the function and line that a kernel was made from, and goes on into its callers.

The two names a debugger looks for are in a small library of our own that is written to a temporary file and loaded. A
system that allows none of it costs the names, not the code: an event says so, once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import weakref
from pathlib import Path
from typing import Final

from tiercel.codegen.blob import Mapped
from tiercel.codegen.elf import DESCRIPTOR, REGISTER, registration_library, symbol_file
from tiercel.hotpath.events import events
from tiercel.vm.perf import functions_of

__all__ = ["registered", "show_code"]

_REGISTER_ACTION, _UNREGISTER_ACTION = 1, 2


class _Entry(ctypes.Structure):
    """`struct jit_code_entry`."""


_Entry._fields_ = [
    ("next", ctypes.POINTER(_Entry)),
    ("previous", ctypes.POINTER(_Entry)),
    ("file", ctypes.c_void_p),
    ("size", ctypes.c_uint64),
]


class _Descriptor(ctypes.Structure):
    """`struct jit_descriptor`."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("action", ctypes.c_uint32),
        ("relevant", ctypes.POINTER(_Entry)),
        ("first", ctypes.POINTER(_Entry)),
    )


class _Registry:
    """The list of this process. All changes happen under one lock; the last registered comes first."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # code may be dropped by a collection in the middle of a change
        self.library: ctypes.CDLL | None = None
        self.failed = False
        self.entries: dict[int, tuple[_Entry, ctypes.Array[ctypes.c_char]]] = {}  # by address of the entry

    def load(self) -> ctypes.CDLL:
        """The library with the two names.

        Raises:
            OSError, NotImplementedError: it cannot be had here.
        """
        if self.library is None:
            import tempfile

            handle, path = tempfile.mkstemp(prefix="tiercel-gdb-", suffix=".so")
            with os.fdopen(handle, "wb") as file:
                file.write(registration_library())
            try:
                self.library = ctypes.CDLL(path)
            except OSError:
                Path(path).unlink()
                raise
            weakref.finalize(self, _remove, path, os.getpid())  # a debugger reads it while the process lives
        return self.library

    @property
    def descriptor(self) -> _Descriptor:
        return _Descriptor.in_dll(self.load(), DESCRIPTOR)

    def tell(self, action: int, entry: _Entry) -> None:
        descriptor = self.descriptor
        descriptor.action = action
        descriptor.relevant = ctypes.pointer(entry)
        getattr(self.load(), REGISTER)()  # a debugger that is attached stops here and reads

    def add(self, file: bytes) -> int:
        """Put a file on the list; gives what `remove` takes."""
        with self.lock:
            content = ctypes.create_string_buffer(file, len(file))
            descriptor = self.descriptor
            entry = _Entry(descriptor.first, None, ctypes.addressof(content), len(file))
            if descriptor.first:
                descriptor.first.contents.previous = ctypes.pointer(entry)
            descriptor.first = ctypes.pointer(entry)
            address = ctypes.addressof(entry)
            self.entries[address] = (entry, content)
            self.tell(_REGISTER_ACTION, entry)
            return address

    def remove(self, address: int) -> None:
        """Take a file off the list."""
        with self.lock:
            entry, _ = self.entries[address]
            if entry.previous:
                entry.previous.contents.next = entry.next
            else:
                self.descriptor.first = entry.next
            if entry.next:
                entry.next.contents.previous = entry.previous
            self.tell(_UNREGISTER_ACTION, entry)
            del self.entries[address]


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked child shares the file
        with contextlib.suppress(OSError):
            Path(path).unlink()


_registry: Final = _Registry()


def registered() -> list[bytes]:
    """The files on the list, the newest first."""
    with _registry.lock:
        if _registry.library is None:
            return []
        files, entry = [], _registry.descriptor.first
        while entry:
            files.append(ctypes.string_at(entry.contents.file, entry.contents.size))
            entry = entry.contents.next
        return files


def show_code(mapped: Mapped, name: str, filename: str, line: int) -> None:
    """Register mapped code as made from a line of the user's source; its parts are named as for profilers."""
    try:
        base, code = mapped.content()
        file = symbol_file(code, base, functions_of(mapped, name), filename, line, mapped.unwind)
        address = _registry.add(file)
    except (OSError, NotImplementedError) as error:
        if not _registry.failed:
            _registry.failed = True
            events().add("dump", region=name, reason=f"no names for debuggers: {error}")
        return
    weakref.finalize(mapped, _registry.remove, address).atexit = False
