"""Inside the compile worker: read a job, do it, answer; leave when the other side is gone or nothing comes.

In: the socket on file descriptor 0. Out: frames on the same socket. Whatever goes wrong in a job becomes a FAILURE
frame if Python lives to tell; else the process dies and the parent reads the last words from standard error.

Invariants: the process cannot outlive its parent (a thread waits for the socket to hang up, and the alarm clock of
the job in work is the kernel's), cannot eat the machine's memory (address space is limited per job), is the first that
the kernel kills when memory runs out, and never reads the user's terminal or signals.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
import socket
import sys
import threading
import traceback
from typing import Any, Final

from tiercel.codegen.cpu.assemble import allow_quick
from tiercel.hotpath import jobs
from tiercel.hotpath.protocol import Frame, FrameReader, Kind, ProtocolError, encode, pack

__all__ = ["serve"]

GRACE_S: Final = 2.0
"""After its budget a job has this long before the kernel ends the process."""


class _Channel:
    """The socket, blocking, seen from here."""

    def __init__(self) -> None:
        # What jobs print must not come between frames: 0 is given away, 1 goes where 2 goes.
        number = os.dup(0)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        self.socket = socket.socket(fileno=number)
        self.socket.setblocking(True)
        self.reader = FrameReader()
        self.frames: list[Frame] = []

    def receive(self, timeout_s: float | None) -> Frame | None:
        """The next frame; None when the other side has gone or nothing came in time."""
        while not self.frames:
            poller = select.poll()
            poller.register(self.socket, select.POLLIN)
            if not poller.poll(None if timeout_s is None else timeout_s * 1e3):
                return None
            data = self.socket.recv(1 << 20)
            if not data:
                return None
            self.frames += self.reader.feed(data)
        return self.frames.pop(0)

    def send(self, kind: Kind, nonce: int, value: Any) -> None:
        """Send a frame."""
        self.socket.sendall(pack(kind, nonce, encode(value)))


def _leave_with_parent(number: int) -> None:
    """Wait for the socket to hang up, then end the process whatever it is doing."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF})  # for the thread that computes
    poller = select.poll()
    poller.register(number, select.POLLHUP)
    poller.poll()
    os._exit(0)


def _be_modest(nice: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGALRM, signal.SIGVTALRM):
        signal.signal(number, signal.SIG_DFL)
    # A signal mask is inherited; a blocked alarm would never end anything.
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    with contextlib.suppress(OSError):
        os.nice(nice)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def _limit_memory(extra_bytes: int) -> None:
    """Let the address space grow by so much from here on."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        wanted = used + extra_bytes
        resource.setrlimit(resource.RLIMIT_AS, (wanted if hard < 0 else min(wanted, hard), hard))
    except (OSError, ValueError):
        return  # not Linux: the time budget is what is left


_WORK_S: Final = 0.01
_REST = """
@rest.time = private constant {{ i64, i64 }} {{ i64 0, i64 {nanoseconds} }}
declare i32 @nanosleep(ptr, ptr)
declare ptr @__errno_location()
define void @rest(i32 %number) {{
  %at = call ptr @__errno_location()
  %errno = load i32, ptr %at, align 4
  %slept = call i32 @nanosleep(ptr @rest.time, ptr null)
  store i32 %errno, ptr %at, align 4
  ret void
}}
"""
_kept: list[Any] = []


def _rest_between(duty: float) -> None:
    """Sleep in between, also in the middle of the code generator: after every 10 ms of computing a signal comes whose
    handler sleeps. The handler is machine code: a Python one would run only when the code generator is done.
    """
    import ctypes

    from tiercel.codegen.blob import link, map_blob
    from tiercel.codegen.cpu.assemble import assemble
    from tiercel.codegen.cpu.target import Target

    pause_s = min(0.5, _WORK_S * (1 / duty - 1))
    libc = ctypes.CDLL(None)
    blob = link(assemble(_REST.format(nanoseconds=int(pause_s * 1e9)), Target.host()), ["rest"])
    needed = {name: ctypes.cast(libc[name], ctypes.c_void_p).value or 0 for name in blob.imports}
    _kept.append(map_blob(blob, needed))
    libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    libc.signal(int(signal.SIGPROF), _kept[0].address("rest"))
    signal.setitimer(signal.ITIMER_PROF, _WORK_S, _WORK_S)


def serve() -> None:
    """Serve until the other side hangs up or nothing comes for a while."""
    channel = _Channel()
    threading.Thread(target=_leave_with_parent, args=(channel.socket.fileno(),), daemon=True).start()
    hello = channel.receive(60.0)
    if hello is None or hello.kind is not Kind.HELLO:
        return
    asked = hello.value()
    _be_modest(asked["nice"])

    try:
        if not asked["bare"]:
            allow_quick()
        introduction = jobs.introduce(asked)
        if asked["duty"] < 1:
            _rest_between(asked["duty"])
        # What is loaded now stays; a job makes many small objects and no cycles worth looking for.
        gc.freeze()
        gc.set_threshold(100_000)
        channel.send(Kind.HELLO, hello.nonce, introduction)
        while (frame := channel.receive(asked["idle_s"])) is not None:
            _work(channel, frame)
    except (BrokenPipeError, ConnectionError):
        return
    except ProtocolError as error:
        sys.stderr.write(f"the worker was sent something it does not understand: {error}\n")
        os._exit(3)


class _Reporter(jobs.Reporter):
    """Stages go to the parent at once: if this process dies, it knows where. Limits are the kernel's alarm clock."""

    def __init__(self, channel: _Channel, nonce: int, seconds: float) -> None:
        self._channel = channel
        self._nonce = nonce
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def stage(self, name: str) -> None:
        self._channel.send(Kind.PROGRESS, self._nonce, name)

    def limit(self, seconds: float | None) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds or 0)


def _work(channel: _Channel, frame: Frame) -> None:
    if frame.kind is not Kind.JOB:
        raise ProtocolError(f"a frame of kind {frame.kind.name} where a job was expected")
    os.ftruncate(2, 0)
    os.lseek(2, 0, os.SEEK_SET)
    value = frame.value()
    _limit_memory(value["memory_bytes"])
    reporter = _Reporter(channel, frame.nonce, value["budget_ms"] / 1e3 + GRACE_S)
    try:
        answer = jobs.run(value["job"], value["payload"], reporter)
        reply = pack(Kind.RESULT, frame.nonce, encode(answer))
    except jobs.Refused as error:
        reply = pack(Kind.FAILURE, frame.nonce, encode(error.to_data()))
    except MemoryError:
        reply = pack(Kind.FAILURE, frame.nonce, encode({"reason": "out of memory", "again": True}))
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent is told and decides
        text = "".join(traceback.format_exception(error)[-12:])
        told = {"reason": f"{type(error).__name__}: {error}", "kind": "bug", "traceback": text, "again": False}
        reply = pack(Kind.FAILURE, frame.nonce, encode(told))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    channel.socket.sendall(reply)
