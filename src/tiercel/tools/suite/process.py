"""The parent's end of a child: asks, waits no longer than allowed, and stops the child between its turns.

In: a `Request`. Out: answers, or `Failed` with a reason for the tables: cannot, raised, died, took too long.
Invariant: a child runs only while it is being asked. Between turns it is stopped by SIGSTOP, all of its threads, so
that pools that spin after their work (OpenMP's, ONNX Runtime's) take no time from the next peer; a pause of some
milliseconds after each turn lets the processor come to rest.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Self

import tiercel
from tiercel.tools.suite.child import Request
from tiercel.tools.suite.peers import environment

__all__ = ["PAUSE_S", "Child", "Failed"]

PAUSE_S: Final = 0.003
# What an import and building inputs may take on top of the limit for a peer's own work.
_START_S: Final = 60.0


class Failed(Exception):
    """A child gave no answer.

    Attributes:
        kind: `cannot`, `error`, `died` or `slow`.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Child:
    """One (case, peer).

    Args:
        request: what it shall compute, and as whom.
        name: of the peer, for its log file.
        limit_s: seconds that all its answers together may take.

    Raises:
        Failed: it did not start.
    """

    def __init__(self, request: Request, name: str, limit_s: float) -> None:
        self.limit_s = limit_s
        self.left_s = limit_s
        self.log = Path(request.folder) / f"{name}.log"
        ours, theirs = socket.socketpair()
        source = str(Path(tiercel.__file__).resolve().parents[1])
        variables = environment(request.threads, request.folder)
        # What the parent can import, the child can: cases may be anybody's.
        paths = [source, *(p for p in sys.path if p and p != source)]
        variables["PYTHONPATH"] = os.pathsep.join(paths)
        with self.log.open("wb") as log, theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tiercel.tools.suite.child", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env=variables,
                cwd=request.folder,
                start_new_session=True,
            )
        self.connection = Connection(ours.detach())
        self.stopped = False
        self.started: dict[str, Any] = self._ask("start", {"request": request}, _START_S)

    def ask(self, action: str, **arguments: Any) -> Any:
        """Let it run until it has answered.

        Raises:
            Failed: it did not; it is not to be asked again, unless `kind` is `cannot` or `error`.
        """
        began = time.monotonic()
        try:
            return self._ask(action, arguments, self.left_s)
        finally:
            self.left_s -= time.monotonic() - began

    def _ask(self, action: str, arguments: dict[str, Any], seconds: float) -> Any:
        try:
            if self.stopped:
                os.kill(self.process.pid, signal.SIGCONT)
                self.stopped = False
            self.connection.send((action, arguments))
            if not self.connection.poll(max(0.0, seconds)):
                self.close()
                raise Failed("slow", f"over {self.limit_s:g} s" if action != "start" else f"no start in {seconds:g} s")
            kind, value = self.connection.recv()
        except (EOFError, ConnectionError):
            try:
                self.process.wait(5)  # it may still be dying, of what we want to name
            except subprocess.TimeoutExpired:
                pass
            self.close()
            raise Failed("died", f"died: {self._how()}") from None
        os.kill(self.process.pid, signal.SIGSTOP)
        self.stopped = True
        time.sleep(PAUSE_S)
        if kind != "done":
            raise Failed(kind, value)
        return value

    def close(self) -> None:
        """End it, with all it started in its session."""
        self.connection.close()
        try:
            # A stopped process is ended by SIGKILL as well.
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def _how(self) -> str:
        code = self.process.returncode
        if code is not None and code < 0 and code != -signal.SIGKILL:
            try:
                return signal.Signals(-code).name
            except ValueError:
                return f"signal {-code}"
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else f"exit code {code}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
