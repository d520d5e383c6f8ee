"""One child process that compiles, seen from its parent: started, spoken to without ever blocking, killed, reaped.

In: frames to send. Out: frames that came, or the end of the process and why. Invariants: no call here waits for the
child (only `kill` waits, for a process that has been sent SIGKILL); nothing is written to a file descriptor that is no
longer ours (programs that close all of them, as daemons do, must not find frames in their files); no thread is made.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from tiercel.hotpath.protocol import Frame, FrameReader, Kind, ProtocolError, encode, pack

__all__ = ["ChildProcess", "Unavailable", "find_interpreter"]

_MAIN: Final = Path(__file__).with_name("worker_main.py")
_NO_SIGNAL: Final = getattr(socket, "MSG_NOSIGNAL", 0)  # a program may have made SIGPIPE deadly
_LAST_WORDS: Final = 2000
_READ_AT_ONCE: Final = 1 << 18


class Unavailable(Exception):
    """No worker process can be had here; `args[0]` says why."""


def find_interpreter() -> str:
    """The Python to start workers with.

    `sys.executable` may be empty, or a program that embeds Python and would start itself again.

    Raises:
        Unavailable: there is none.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    candidates = [sys.executable] if sys.executable else []
    candidates += [os.path.join(prefix, "bin", name) for prefix in (sys.prefix, sys.base_prefix) for name in (version,)]
    for path in candidates:
        if os.path.basename(path).startswith("python") and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise Unavailable(f"no Python interpreter to start one with (sys.executable is {sys.executable!r})")


def _search_paths() -> dict[str, list[str]]:
    """Where the worker finds packages: those in use here first, the user's script folder never before the others."""
    first = []
    for name in ("tiercel", "numpy", "ml_dtypes"):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            first.append(str(Path(file).resolve().parent.parent))
    here = os.getcwd() if os.path.isdir(".") else ""
    then = [p for p in sys.path if p and os.path.isabs(p) and p != here]
    return {"first": first, "then": then}


class ChildProcess:
    """A worker process.

    Args:
        hello: what it is told first; see `child.serve`.

    Attributes:
        introduction: what it said about itself, None until it is ready.

    Raises:
        Unavailable: it cannot be started.
    """

    def __init__(self, hello: dict[str, Any]) -> None:
        if not _MAIN.is_file():
            raise Unavailable("the package is not on disk, so no interpreter can be started on it")
        interpreter = find_interpreter()
        self.introduction: dict[str, Any] | None = None
        self.started = time.monotonic()
        self._reader = FrameReader()
        self._outbox = bytearray()
        self._process: subprocess.Popen[bytes] | None = None
        ours, theirs = socket.socketpair()
        self._words = _anonymous_file()
        self._words_identity = _identity(self._words)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TIERCEL_")}
        environment |= dict.fromkeys(
            ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
        )
        command = [interpreter, "-I", "-X", "faulthandler"]
        command += ["-B"] if sys.dont_write_bytecode else []
        try:
            self._process = subprocess.Popen(
                [*command, str(_MAIN), json.dumps(_search_paths())],
                stdin=theirs.fileno(), stdout=self._words, stderr=self._words,
                cwd="/", env=environment, start_new_session=True, close_fds=True,
            )  # fmt: skip
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            ours.close()
            os.close(self._words)
            raise Unavailable(f"{interpreter} cannot be started: {error}") from None
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket: socket.socket | None = ours
        self._identity = _identity(ours.fileno())
        self.send(Kind.HELLO, 0, hello)

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def fileno(self) -> int:
        """What to select on; -1 when the connection has ended."""
        return self._socket.fileno() if self._usable() and self._socket is not None else -1

    @property
    def wants_to_write(self) -> bool:
        """Is there something that the socket has not taken yet?"""
        return bool(self._outbox)

    def send(self, kind: Kind, nonce: int, value: Any) -> None:
        """Send a frame, as far as the socket takes it now; `receive` sends the rest."""
        self.send_packed(pack(kind, nonce, encode(value)))

    def send_packed(self, frame: bytes) -> None:
        """Send a frame that is packed already."""
        self._outbox += frame
        self._flush()

    def receive(self, deadline: float) -> tuple[list[Frame], str | None]:
        """What has come until now, without waiting.

        Args:
            deadline: of `time.monotonic`; after it no more is read.

        Returns:
            The frames, and why there will be no more (None while there may be).
        """
        frames: list[Frame] = []
        self._flush()
        while self._usable():
            assert self._socket is not None
            try:
                data = self._socket.recv(_READ_AT_ONCE)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                data = b""  # reset: it died before it had read everything
            if not data:
                return frames, self._epitaph()
            try:
                frames += self._reader.feed(data)
            except ProtocolError as error:
                return frames, f"it sent garbage: {error}"
            if time.monotonic() > deadline:
                break
        if self._socket is None:
            return frames, "the connection was closed by the program"
        return frames, None

    def kill(self) -> None:
        """End the process now, and reap it."""
        process, self._process = self._process, None
        self._close()
        if process is not None:
            _end(process)

    def forget(self) -> None:
        """In a forked child: the worker is the parent's. Close our copies, touch nothing else."""
        process, self._process = self._process, None
        if process is not None:
            process.returncode = 0  # so that nobody waits for it or warns about it
        self._close()

    def _usable(self) -> bool:
        """Is the descriptor still the socket we opened?"""
        if self._socket is None:
            return False
        if _identity(self._socket.fileno()) == self._identity:
            return True
        self._socket.detach()
        self._socket = None
        return False

    def _flush(self) -> None:
        while self._outbox and self._usable():
            assert self._socket is not None
            try:
                sent = self._socket.send(self._outbox[:_READ_AT_ONCE], _NO_SIGNAL)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._outbox.clear()  # the end of the process is noticed when reading
                return
            del self._outbox[:sent]

    def _close(self) -> None:
        if self._usable():
            assert self._socket is not None
            self._socket.close()
        self._socket = None
        words, self._words = self._words, -1
        if words >= 0 and _identity(words) == self._words_identity:
            os.close(words)

    def _epitaph(self) -> str:
        """How the process ended, with the last it wrote to standard error. It has closed its socket: it is ending."""
        process = self._process
        code = None if process is None else _end(process)
        words = self._last_words()
        if code is None:
            how = "it closed its connection"
        elif code < 0:
            how = f"it was ended by {_signal_name(-code)}"
        else:
            how = f"it left with status {code}" if code else "it left"
        return f"{how}: {words}" if words else how

    def _last_words(self) -> str:
        if self._words < 0 or _identity(self._words) != self._words_identity:
            return ""
        try:
            size = os.fstat(self._words).st_size
            raw = os.pread(self._words, _LAST_WORDS, max(0, size - _LAST_WORDS))
        except OSError:
            return ""
        lines = [line.strip() for line in raw.decode("utf-8", "replace").replace("\0", "").splitlines()]
        # Stacks of Python threads say nothing about a crash in machine code.
        told = [line for line in lines if line and not line.startswith(("File ", "Thread 0x", "Current thread", "Ext"))]
        return " / ".join(told[:4])


def _end(process: subprocess.Popen[bytes]) -> int:
    """Kill a process unless it is dead already, and reap it; its status, negative for a signal."""
    with contextlib.suppress(OSError):
        process.kill()
    try:
        return process.wait(timeout=5.0)
    except subprocess.TimeoutExpired:
        process.returncode = -signal.SIGKILL  # in an uninterruptible sleep: the kernel ends it later
        return process.returncode


def _identity(number: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _anonymous_file() -> int:
    """A file without a name that grows in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):
            return os.memfd_create("tiercel-worker")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
