"""The ledger: an account of everything that did not run as hoped. What, where, why, how often, how long.

In: events of the kinds in `config.LEDGER_KINDS`: `python` (a call or a whole function that CPython runs), `fallback` (a
kernel that could not be used), `copy`, `convert`, `transfer` (hidden work on data), `demote` (a kernel taken out). Out:
entries with counts and times for `explain`, a `StrictError` where the settings forbid the kind, and one
`TiercelPerformanceWarning` per place and reason.

Who notes often keeps the `Entry` and calls `add`; finding it again costs a dict lookup. Memory is bounded: beyond
`MAX_ENTRIES` places events of a kind are counted together. What the interpreter counts itself (`CallPy`) is not noted
here; `Machine.account` adds it from the counters.
"""

from __future__ import annotations

import os
import threading
import warnings
from dataclasses import dataclass
from typing import Any, Final

from tiercel.config import LEDGER_KINDS, Settings
from tiercel.errors import StrictError, TiercelPerformanceWarning, suggest

__all__ = ["MAX_ENTRIES", "Entry", "Ledger", "Line", "order"]

MAX_ENTRIES: Final = 4096

_ADVICE: Final = {
    "python": "rewrite the line",
    "fallback": "see explain() for the reason",
    "copy": "pass a contiguous array, or freeze it with tc.constant",
    "convert": "pass the dtype that is computed in",
    "transfer": "keep the data on one device",
    "demote": "see explain() for the times",
}


@dataclass(frozen=True, slots=True)
class Line:
    """An entry at one moment.

    Attributes:
        kind: one of `LEDGER_KINDS`.
        function: qualified name of the user's function; empty if there is none.
        filename, line: the place in his source; empty and 0 if unknown.
        reason: why, in words.
        count: how often.
        time_ns: what it took in all, where that was measured.
        bytes: how much data was moved in all.
    """

    kind: str
    function: str
    filename: str
    line: int
    reason: str
    count: int
    time_ns: int
    bytes: int


def order(line: Line) -> tuple[int, int, str, int]:
    """Sort key: the most expensive first."""
    return (-line.time_ns, -line.count, line.filename, line.line)


class Entry:
    """A place in the ledger. Threads that add at once may lose a count to one another."""

    __slots__ = ("_key", "bytes", "count", "time_ns")

    def __init__(self, key: tuple[str, str, str, int, str]) -> None:
        self._key = key
        self.count = 0
        self.time_ns = 0
        self.bytes = 0

    def add(self, count: int = 1, *, time_ns: int = 0, bytes: int = 0) -> None:
        """Account for some events."""
        self.count += count
        self.time_ns += time_ns
        self.bytes += bytes

    def line(self) -> Line:
        """Return what it says now."""
        return Line(*self._key, self.count, self.time_ns, self.bytes)


class Ledger:
    """The account of one machine. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, str, int, str], Entry] = {}
        self._said: set[tuple[str, int, str]] = set()
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def entry(
        self, kind: str, reason: str, *, function: str = "", filename: str = "", line: int | None = None
    ) -> Entry:
        """Return the entry for a kind, place and reason; the same object each time.

        Raises:
            ValueError: the kind is none of `LEDGER_KINDS`.
        """
        if kind not in LEDGER_KINDS:
            near = suggest(kind, LEDGER_KINDS) or f"; kinds: {LEDGER_KINDS}"
            raise ValueError(f"{kind!r} is no kind of the ledger{near}")
        key = (kind, function, filename, line or 0, reason)
        found = self._entries.get(key)
        if found is None:
            with self._guard():
                if len(self._entries) >= MAX_ENTRIES:
                    key = (kind, "", "", 0, "other places")
                found = self._entries.setdefault(key, Entry(key))
        return found

    def refuse(
        self,
        settings: Settings,
        kind: str,
        reason: str,
        *,
        function: str = "",
        filename: str = "",
        line: int | None = None,
    ) -> None:
        """Do nothing unless the settings make this kind an error.

        Raises:
            StrictError: they do. Call this before anything of the event has happened.
        """
        if settings.strict and settings.is_strict(kind):
            subject = f"{function}: " if function else ""
            where = f" in line {line} of {filename}" if filename and line else ""
            raise StrictError(
                f"{subject}{reason}{where}; strict mode forbids it ({_ADVICE[kind]}, or leave {kind!r} out of strict)",
                kind=kind,
                filename=filename or None,
                line=line,
            )

    def say_once(self, message: str, *, filename: str, line: int, module: dict[str, Any] | None = None) -> bool:
        """Warn with a `TiercelPerformanceWarning` at a line of the user's, once for each place and message.

        Args:
            message: what is slow, and what to do.
            filename, line: the place.
            module: globals of the module the line is in, for the filters of `warnings`.

        Returns:
            Whether it was said now.
        """
        key = (filename, line, message)
        with self._guard():
            if key in self._said or len(self._said) >= MAX_ENTRIES:
                return False
            self._said.add(key)
        namespace = module if module is not None else {}
        warnings.warn_explicit(
            message,
            TiercelPerformanceWarning,
            filename,
            line,
            # Not None, which warn_explicit takes for a dying interpreter.
            namespace.get("__name__") or filename.removesuffix(".py") or "<unknown>",
            namespace.setdefault("__warningregistry__", {}),
        )
        return True

    def lines(self, *kinds: str) -> list[Line]:
        """Return what stands in the ledger (of some kinds, or all), the most expensive first."""
        found = [e.line() for e in list(self._entries.values()) if e.count]
        found = [one for one in found if not kinds or one.kind in kinds]
        return sorted(found, key=order)

    def totals(self) -> dict[str, tuple[int, int]]:
        """Return per kind the count and the time in ns."""
        out = dict.fromkeys(LEDGER_KINDS, (0, 0))
        for one in self.lines():
            count, time_ns = out[one.kind]
            out[one.kind] = (count + one.count, time_ns + one.time_ns)
        return out

    def clear(self) -> None:
        """Start anew. Entries that somebody keeps are counted no more; what was said stays said."""
        with self._guard():
            self._entries = {}

    def _guard(self) -> threading.Lock:
        # After a fork the lock may be held by a thread that does not exist any more.
        if self._pid != os.getpid():
            self._lock, self._pid = threading.Lock(), os.getpid()
        return self._lock
