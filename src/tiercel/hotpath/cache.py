"""Kernels kept between processes, on disk: looked up before anything is compiled, shared by all processes of a user.

In: a key (a hash of everything a kernel depends on), plain data about the kernel, its bytes. Out: the same, or nothing.
What goes wrong on disk costs the kernel a rebuild and never more: a truncated, damaged or foreign entry is dropped, a
full or read-only disk ends the writing, and the reason is kept and reported once.

Where: `TIERCEL_CACHE_DIR`, else the platform's place for caches, in a folder of mode 0700 owned by the user, because
whoever can write there can run code as the user; if that cannot be had, a temporary folder of this process, and if
that neither, memory. Writing is atomic (a new file is renamed), so readers need no locks. One lock per key lets one
process build while the others wait for its result.

An entry is `magic, version, checksum, key, length of the data, data, blob`; the checksum covers all after it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import platform
import stat
import struct
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from tiercel._version import __version__
from tiercel.config.digest import blake2b
from tiercel.hotpath.protocol import ProtocolError, decode, encode

if sys.platform != "win32":
    import fcntl

__all__ = [
    "BuildLock",
    "Entry",
    "EntryInfo",
    "KernelCache",
    "Place",
    "environment_key",
    "find_place",
    "kernel_key",
    "tuning_key",
]

Place = Literal["disk", "read-only", "temporary", "memory"]

_MAGIC: Final = b"TCKERNEL"
_FORMAT: Final = 1
_HEADER: Final = struct.Struct("<8sI16s24sQ")
_SUFFIX: Final = ".tck"
_FOLDER: Final = f"kernels-{_FORMAT}"
_MEMORY_BYTES: Final = 64 << 20
_MAX_ENTRY: Final = 64 << 20
_KEEP: Final = 0.9
"""Share of the bound that eviction leaves."""
_SCAN_EVERY: Final = 64
"""Other processes write too: after so many own writes the folder is measured again."""
_TOUCH_S: Final = 60.0
_STALE_S: Final = 3600.0
"""Half-written files and locks older than this were left by processes that died."""


# ---- keys ------------------------------------------------------------------------------------------------------------


@functools.cache
def environment_key() -> bytes:
    """A hash of what a kernel depends on besides its program: versions, the compiler's own source, the processor."""
    parts = [
        f"tiercel {__version__}", f"numpy {np.__version__}", f"llvmlite {_version_of('llvmlite')}",
        f"python {sys.implementation.cache_tag}", f"machine {platform.machine()} {sys.platform}",
        *_processor(), *_compiler_source(),
    ]  # fmt: skip
    return blake2b("\n".join(parts).encode(), digest_size=24).digest()


def kernel_key(*parts: bytes) -> bytes:
    """The key of something compiled here from these parts."""
    digest = blake2b(environment_key(), digest_size=24)
    for part in parts:
        digest.update(struct.pack("<Q", len(part)))
        digest.update(part)
    return digest.digest()


@functools.cache
def tuning_key() -> str:
    """What measured times are kept under: the processor, and the source of the kernels that were measured."""
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    digest = blake2b("\n".join(_processor()).encode(), digest_size=12)
    for name in _MEASURED:
        with contextlib.suppress(OSError), open(os.path.join(root, *name.split("/")), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


_MEASURED: Final = (
    "codegen/cpu/gemm.py", "codegen/cpu/tile.py", "codegen/cpu/pack.py", "codegen/cpu/contract.py",
    "codegen/cpu/choice.py", "codegen/cpu/threads.py", "tuner/measure.py",
)  # fmt: skip


def _version_of(package: str) -> str:
    """What tells versions of a package apart, without importing it: `importlib.metadata` takes milliseconds."""
    for place in sys.path:
        try:
            with open(os.path.join(place or ".", package, "_version.py"), "rb") as file:
                return blake2b(file.read(1 << 16), digest_size=16).hexdigest()
        except OSError:
            continue
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _processor() -> list[str]:
    """What tells processors apart without LLVM: the model and every feature the kernel reports."""
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part", "CPU variant")
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first = file.read(1 << 16).partition("\n\n")[0]
    except OSError:
        return [platform.processor()]
    return [line for line in first.splitlines() if line.partition("\t")[0].strip(" :") in wanted]


def _compiler_source() -> list[str]:
    """Names, sizes and dates of the modules that decide what code comes out: a changed compiler finds no old kernels.

    An installed package does not change without its version.
    """
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    found: list[str] = []
    if os.path.basename(os.path.dirname(root)) in ("site-packages", "dist-packages"):
        return found
    folders = [os.path.join(root, package) for package in ("loops", "codegen", "compiler", "operators", "hotpath")]
    while folders:
        folder = folders.pop()
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    status = entry.stat()
                    found.append(f"{os.path.basename(folder)}/{entry.name} {status.st_size} {status.st_mtime_ns}")
                elif entry.is_dir() and entry.name != "__pycache__":
                    folders.append(entry.path)
    return sorted(found)


# ---- places ----------------------------------------------------------------------------------------------------------


def find_place(directory: str | None) -> tuple[Path | None, Place, str]:
    """Where the cache can be: folder, what kind of place it is, and why it is not a better one.

    Args:
        directory: the folder asked for; None for the platform's place.
    """
    if directory is None:
        import platformdirs

        directory = platformdirs.user_cache_dir("tiercel", appauthor=False)
    folder = Path(directory).expanduser() / _FOLDER
    reason = _prepare(folder)
    if reason is None:
        if os.access(folder, os.W_OK):
            return folder, "disk", ""
        return folder, "read-only", f"{folder} cannot be written to"
    import shutil  # rarely needed, half a megabyte
    import tempfile

    try:
        made = Path(tempfile.mkdtemp(prefix="tiercel-cache-"))
    except OSError as error:
        return None, "memory", f"{reason}; no temporary folder either ({error.strerror})"
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # not in a forked child
            shutil.rmtree(made, ignore_errors=True)

    atexit.register(remove)
    return made, "temporary", reason


def _prepare(folder: Path) -> str | None:
    """Make the folder if it is not there; why it must not be used, or None."""
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        if not folder.is_dir():
            return f"{folder} cannot be made ({error.strerror})"
    try:
        status = os.lstat(folder)
        above = os.stat(folder.parent)
    except OSError as error:
        return f"{folder} cannot be read ({error.strerror})"
    user = os.geteuid()
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder} is no folder"
    if status.st_uid != user:
        return f"{folder} belongs to another user"
    if status.st_mode & 0o077:
        return f"{folder} is open to other users (mode {stat.S_IMODE(status.st_mode):04o}; 0700 is needed)"
    if above.st_uid not in (user, 0) or (above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX):
        return f"{folder.parent} may be changed by other users"
    if not os.access(folder, os.R_OK | os.X_OK):
        return f"{folder} cannot be read"
    return None


# ---- the cache -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """Something kept: plain data about it, and its bytes."""

    data: dict[str, Any]
    blob: bytes


@dataclass(frozen=True, slots=True)
class EntryInfo:
    """An entry as `list` shows it. `data` is None for a damaged one."""

    key: str
    size_bytes: int
    used: float
    data: dict[str, Any] | None


class BuildLock:
    """The right to build one key, among the processes that share the folder. Released by `release` or when it dies."""

    def __init__(self, number: int, path: Path | None) -> None:
        self._number = number
        self._path = path
        self._owner = os.getpid()

    def release(self) -> None:
        """Let others build. In a forked child the lock is the parent's, and stays."""
        number, self._number = self._number, -1
        if number < 0:
            return
        if self._path is not None and self._owner == os.getpid():
            with contextlib.suppress(OSError):
                os.unlink(self._path)  # while it is locked: whoever waits for it looks again, see `lock`
        os.close(number)

    def __del__(self) -> None:
        self.release()


class KernelCache:
    """See the module docstring.

    Args:
        directory: the folder asked for; None for the platform's place.
        size_bytes: upper bound of all entries together; the least recently used ones go.
        report: told once about each thing that is wrong with the place.
    """

    def __init__(
        self, directory: str | None, size_bytes: int, report: Callable[[str], None] = lambda message: None
    ) -> None:
        self.folder, self.place, self.reason = find_place(directory)
        self.size_bytes = size_bytes
        self._report = report
        self._said: set[str] = set()
        self._memory: OrderedDict[bytes, Entry] = OrderedDict()
        self._lock = threading.Lock()
        self._known_bytes: int | None = None
        self._writes_since_scan = 0
        self._counters = dict.fromkeys(("hits", "misses", "writes", "dropped", "evicted", "write_errors"), 0)
        if self.place != "disk":
            self._say(f"kernels are kept in {self.place} only: {self.reason}" if self.place != "read-only" else
                      f"the kernel cache is only read: {self.reason}")  # fmt: skip

    def get(self, key: bytes) -> Entry | None:
        """What is kept under a key; None if there is nothing that can be trusted."""
        entry = self._memory.get(key)
        if entry is None and self.folder is not None:
            entry = self._read(self._path(key), key)
        self._counters["misses" if entry is None else "hits"] += 1
        return entry

    def put(self, key: bytes, data: dict[str, Any], blob: bytes) -> bool:
        """Keep something; false if it is kept in memory only, or not at all."""
        if self.place in ("memory", "read-only") or self.folder is None:
            self._remember(key, Entry(data, blob))
            return False
        path = self._path(key)
        body = encode(data)
        rest = struct.pack("<24sQ", key, len(body)) + body + blob
        head = struct.pack("<8sI16s", _MAGIC, _FORMAT, blake2b(rest, digest_size=16).digest())
        if len(rest) > min(_MAX_ENTRY, self.size_bytes):
            return False
        temporary = path.with_name(f"{path.stem}.{os.getpid()}.{threading.get_ident():x}.part")
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(number, "wb", buffering=0) as file:
                for part in (head, rest):
                    view = memoryview(part)
                    while view:
                        view = view[file.write(view) or 0 :]
            os.replace(temporary, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            self._counters["write_errors"] += 1
            self._say(f"kernels cannot be written to {self.folder}: {error.strerror}")
            self._remember(key, Entry(data, blob))
            return False
        self._counters["writes"] += 1
        self._bound(len(head) + len(rest))
        return True

    def drop(self, key: bytes) -> None:
        """Forget what is kept under a key."""
        self._memory.pop(key, None)
        if self.folder is not None and self.place != "read-only":
            with contextlib.suppress(OSError):
                os.unlink(self._path(key))

    def lock(self, key: bytes) -> BuildLock | None:
        """Try to become the builder of a key, without waiting; None while another process is."""
        if self.place not in ("disk", "temporary") or self.folder is None or sys.platform == "win32":
            return BuildLock(-1, None)
        path = self._path(key).with_suffix(".lock")
        for _ in range(8):
            try:
                path.parent.mkdir(mode=0o700, exist_ok=True)
                number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError:
                return BuildLock(-1, None)  # a full disk has no locks: two may build the same, no harm
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(number)
                return None
            except OSError:
                os.close(number)
                return BuildLock(-1, None)
            # The holder before us may have unlinked the file that we have locked now.
            try:
                if os.stat(path).st_ino == os.fstat(number).st_ino:
                    return BuildLock(number, path)
            except OSError:
                pass
            os.close(number)
        return BuildLock(-1, None)

    def list(self) -> list[EntryInfo]:
        """All entries, the most recently used first."""
        found = [EntryInfo(key.hex(), len(entry.blob), time.time(), entry.data) for key, entry in self._memory.items()]
        for path, status in self._files():
            entry = None
            with contextlib.suppress(OSError, ValueError):
                entry = _parse(path.read_bytes(), bytes.fromhex(path.stem))
            found.append(EntryInfo(path.stem, status.st_size, status.st_mtime, None if entry is None else entry.data))
        return sorted(found, key=lambda info: -info.used)

    def clear(self) -> int:
        """Remove all entries; how many there were."""
        count = len(self._memory)
        self._memory.clear()
        for path, _ in self._files():
            with contextlib.suppress(OSError):
                os.unlink(path)
                count += 1
        self._known_bytes = None
        return count

    def stats(self) -> dict[str, Any]:
        """Counters of this process, and the state of the place."""
        files = [status.st_size for _, status in self._files()]
        return {
            "place": self.place, "folder": None if self.folder is None else str(self.folder), "reason": self.reason,
            "entries": len(files) + len(self._memory),
            "bytes": sum(files) + sum(len(e.blob) for e in self._memory.values()),
            "bound_bytes": self.size_bytes, **self._counters,
        }  # fmt: skip

    # -- inside -----------------------------------------------------------------------------------------------

    def _path(self, key: bytes) -> Path:
        assert self.folder is not None
        name = key.hex()
        return self.folder / name[:2] / f"{name}{_SUFFIX}"

    def _read(self, path: Path, key: bytes) -> Entry | None:
        try:
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                if status.st_size > _MAX_ENTRY + _HEADER.size:
                    raise ValueError
                raw = file.read()
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            raw, status = b"", None
        entry = _parse(raw, key)
        if entry is None:
            self._counters["dropped"] += 1
            self._say(f"a damaged entry of the kernel cache was dropped: {path}")
            self.drop(key)
            return None
        if status is not None and self.place != "read-only" and time.time() - status.st_mtime > _TOUCH_S:
            with contextlib.suppress(OSError):
                os.utime(path)
        return entry

    def _remember(self, key: bytes, entry: Entry) -> None:
        with self._lock:
            self._memory[key] = entry
            self._memory.move_to_end(key)
            total = sum(len(e.blob) for e in self._memory.values())
            while total > min(_MEMORY_BYTES, self.size_bytes) and self._memory:
                total -= len(self._memory.popitem(last=False)[1].blob)
                self._counters["evicted"] += 1

    def _files(self, suffix: str = _SUFFIX) -> Iterator[tuple[Path, os.stat_result]]:
        if self.folder is None:
            return
        try:
            shards = [entry.path for entry in os.scandir(self.folder) if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return
        for shard in shards:
            try:
                entries = list(os.scandir(shard))
            except OSError:
                continue
            for entry in entries:
                if entry.name.endswith(suffix):
                    with contextlib.suppress(OSError):
                        yield Path(entry.path), entry.stat(follow_symlinks=False)

    def _bound(self, added: int) -> None:
        """Keep the folder within its bound after a write."""
        with self._lock:
            self._writes_since_scan += 1
            if self._known_bytes is not None and self._writes_since_scan < _SCAN_EVERY:
                self._known_bytes += added
                if self._known_bytes <= self.size_bytes:
                    return
            self._writes_since_scan = 0
            files = sorted(self._files(), key=lambda found: found[1].st_mtime)
            total = sum(status.st_size for _, status in files)
            if total > self.size_bytes:
                for path, status in files:
                    if total <= self.size_bytes * _KEEP:
                        break
                    with contextlib.suppress(OSError):
                        os.unlink(path)
                        self._counters["evicted"] += 1
                    total -= status.st_size
            self._known_bytes = total
        old = time.time() - _STALE_S
        for suffix in (".part", ".lock"):
            for path, status in self._files(suffix):
                if status.st_mtime < old:
                    self._remove_stale(path)

    @staticmethod
    def _remove_stale(path: Path) -> None:
        """Remove a file that nobody holds any more."""
        with contextlib.suppress(OSError):
            number = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
            finally:
                os.close(number)

    def _say(self, message: str) -> None:
        kind = message.partition(":")[0]
        if kind not in self._said:
            self._said.add(kind)
            self.reason = self.reason or message
            self._report(message)


def _parse(raw: bytes, key: bytes) -> Entry | None:
    """The entry in a file's bytes; None for anything that is not exactly what was written under this key."""
    if len(raw) < _HEADER.size:
        return None
    magic, version, checksum, own_key, length = _HEADER.unpack_from(raw)
    if magic != _MAGIC or version != _FORMAT or own_key != key or _HEADER.size + length > len(raw):
        return None
    if blake2b(memoryview(raw)[28:], digest_size=16).digest() != checksum:
        return None
    try:
        data = decode(raw[_HEADER.size : _HEADER.size + length])
    except ProtocolError:
        return None
    return Entry(data, raw[_HEADER.size + length :]) if isinstance(data, dict) else None
