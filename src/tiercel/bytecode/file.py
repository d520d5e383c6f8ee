"""The file form: `.msir`.

In: a program, or bytes of unknown origin. Out: the other, so that `dumps(loads(data)) == data`.

::

    header     magic (8 bytes), version (u16), zero (u16), number of sections (u32)
    table      per section: kind (u32), crc32 (u32), offset (u64), length (u64)
    crc32      of header and table (u32)
    sections   in the order of their kinds, without gaps; the tensors begin at a multiple of 64, each one as well

Everything is little-endian. There is no machine code in a file and nothing that is executed by reading it: Python
objects are names, and `loads` gives them a meaning only through its argument `python`.

Invariant: `loads` refuses every sequence of bytes that `dumps` does not write, with a `BytecodeError` that names
section, offset and reason. It takes time linear in the file's size and memory in proportion to it: counts are checked
against the bytes that are left before anything is allocated, nesting and numbers are bounded, and what it makes is
verified.
"""

from __future__ import annotations

import builtins
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from tiercel.bytecode.constants import ObjectRef
from tiercel.bytecode.instructions import SCALAR_FUNCTIONS
from tiercel.bytecode.program import Program
from tiercel.bytecode.read import read_program
from tiercel.bytecode.verify import verify as verify_program
from tiercel.bytecode.write import file_pieces
from tiercel.errors import BytecodeError

__all__ = ["dumps", "load", "loads", "save"]

# Smaller files are read; a mapping costs a page and an address range.
_MAP_FROM_BYTES: Final = 1 << 16


def dumps(program: Program) -> bytes:
    """Return the bytes of a program's file form. Equal programs give equal bytes.

    Raises:
        BytecodeError: the program holds something that files cannot.
    """
    return b"".join(file_pieces(program))


def save(program: Program, path: str | os.PathLike[str]) -> None:
    """Write a program to a file, whole or not at all: what was there before stays until the new file is on disk.

    Args:
        program: any verified program.
        path: by custom it ends in `.msir`.

    Raises:
        OSError: the file cannot be written; the old one is untouched.
        BytecodeError: the program holds something that files cannot.
    """
    target = Path(os.path.realpath(path))
    pieces = file_pieces(program)
    import tempfile

    handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:64]}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            for piece in pieces:
                out.write(piece)
            out.flush()
            os.fchmod(out.fileno(), _mode_for(target))
            os.fsync(out.fileno())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    _sync_folder(target.parent)


def loads(
    data: bytes | bytearray | memoryview,
    python: Mapping[str, object] | None = None,
    *,
    resolve: bool = True,
    verify: bool = True,
) -> Program:
    """Return the program that a file's bytes say.

    Args:
        data: the bytes. Tensors of a `bytes` object are views of it; other buffers are copied first.
        python: the Python objects that the program may use, by the names it knows them by. Builtin exceptions and
            builtin functions without effects (`builtins.len`) need not be given.
        resolve: False loads a program without its Python objects: for listing, not for running.
        verify: whether to verify the program. Only bytes of one's own making may go without.

    Raises:
        BytecodeError: the bytes are no program of this version, are damaged, or name objects that `python` lacks.
    """
    return _load(memoryview(data if isinstance(data, bytes) else bytes(data)), python, resolve, verify)


def load(
    path: str | os.PathLike[str],
    python: Mapping[str, object] | None = None,
    *,
    resolve: bool = True,
    verify: bool = True,
) -> Program:
    """Return the program in a file. The tensors of a large file are mapped, read-only, not read.

    Args:
        path: the file. While its program is in use it must not be changed in place; `save` never does.
        python, resolve, verify: as for `loads`.

    Raises:
        OSError: the file cannot be read.
        BytecodeError: as for `loads`.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < _MAP_FROM_BYTES:
            data = memoryview(file.read())
        else:
            data = np.memmap(file, np.uint8, "r").data
    return _load(data, python, resolve, verify)


def _load(data: memoryview, python: Mapping[str, object] | None, resolve: bool, verify: bool) -> Program:
    program = read_program(data)
    if resolve:
        _resolve(program.constants, python or {})
    if verify:
        verify_program(program)
    return program


def _resolve(constants: tuple[object, ...], python: Mapping[str, object]) -> None:
    objects = [c for c in constants if isinstance(c, ObjectRef)]
    for c in objects:
        c.value = python[c.name] if c.name in python else _builtin(c.name)
    missing = sorted({c.name for c in objects if c.value is None and c.name not in python})
    if missing:
        shown = ", ".join(map(repr, missing[:20])) + (f" and {len(missing) - 20} more" if len(missing) > 20 else "")
        raise BytecodeError(
            f"the program uses Python objects that were not given: {shown}; load(path, python={{name: object}}) gives "
            "them. Give only what you would let the file's author run",
            section="constants",
        )


def _builtin(name: str) -> object | None:
    """What a name that begins with `builtins.` stands for, of itself: an exception or a function without effects."""
    module, _, plain = name.partition(".")
    found: object = getattr(builtins, plain, None) if module == "builtins" else None
    harmless = plain in SCALAR_FUNCTIONS or (isinstance(found, type) and issubclass(found, BaseException))
    return found if harmless else None


def _mode_for(target: Path) -> int:
    """The mode a plain `open` would give the file, or the one it has."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except OSError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    """Make the rename durable where folders can be synced; it has happened in any case."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
