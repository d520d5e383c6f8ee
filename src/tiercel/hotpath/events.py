"""What the real-time compiler did: log lines, as text and JSON, and the last of them in memory.

In: an event with its fields. Out: a line through the logger `tiercel` (the setting `log_format` makes it JSON, with the
fields as they are), and a place in a ring of bounded size that reports read.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tiercel import config

__all__ = ["KINDS", "Event", "EventRing", "compile_times", "events"]

MAX_EVENTS: Final = 1024
MAX_TEXT: Final = 500
"""Characters of one field: an event must not keep a program's data alive or fill the memory."""


def _plain_number(x: float) -> str:
    return f"{x:.1f}" if abs(x) >= 0.95 else f"{x:.2g}"


def compile_times(times_ms: Mapping[str, float]) -> dict[str, float]:
    """Times of all stages in the three parts that log lines name: analyse, codegen, validate."""
    parts = {"analyse": 0.0, "codegen": 0.0, "validate": 0.0}
    for stage, spent in times_ms.items():
        if stage in ("trace", "lower", "encode", "cache", "fuse", "plan"):
            parts["analyse"] += spent
        elif stage == "validate":
            parts["validate"] += spent
        else:
            parts["codegen"] += spent
    return parts


def _detected(f: Mapping[str, Any]) -> str:
    ranges = f", range {f['range']}" if f.get("range") else ""
    return f"Hot path detected at PC=0x{f['pc']:02X}, signature={f['signature']}{ranges}"


def _generated(f: Mapping[str, Any]) -> str:
    if f.get("from_cache"):
        return f"Kernel of {f['region']} taken from the cache in {_plain_number(f['total_ms'])} ms"
    parts = ", ".join(f"{k} {_plain_number(v)}" for k, v in compile_times(f["times_ms"]).items())
    return f"Kernel generated in {_plain_number(f['total_ms'])} ms ({parts})"


def _patched(f: Mapping[str, Any]) -> str:
    return f"{_generated(f)}, replaced dispatch entry"


# kind -> (level, text of the line from the fields)
KINDS: Final[Mapping[str, tuple[int, Callable[[Mapping[str, Any]], str]]]] = {
    "detected": (logging.INFO, _detected),
    "generated": (logging.INFO, _generated),
    "patched": (logging.INFO, _patched),
    "improved": (logging.INFO, lambda f: f"{_generated(f)}: better code for {f['region']}"),
    "tuned": (
        logging.INFO,
        lambda f: f"Products of {f['region']} tuned in {_plain_number(f['total_ms'])} ms: {f['text']}",
    ),
    "rejected": (logging.WARNING, lambda f: f"Kernel of {f['region']} rejected: {f['reason']}"),
    "unsupported": (logging.INFO, lambda f: f"{f['region']} stays interpreted: {f['reason']}"),
    "demoted": (logging.WARNING, lambda f: f"Kernel of {f['region']} taken out: {f['reason']}"),
    "restored": (logging.INFO, lambda f: f"Kernel of {f['region']} put back: {f['reason']}"),
    "missed": (logging.DEBUG, lambda f: f"Call of {f['region']} interpreted: {f['reason']}"),
    "worker": (logging.WARNING, lambda f: f"Compile worker: {f['reason']}"),
    "dump": (logging.WARNING, lambda f: f"Nothing is dumped: {f['reason']}"),
    "cache": (logging.WARNING, lambda f: f"Kernel cache: {f['reason']}"),
}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        number: counts up in the process.
        time: seconds since the epoch.
        kind: one of `KINDS`.
        fields: what it is about, plain data.
    """

    number: int
    time: float
    kind: str
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        return f"JIT: {KINDS[self.kind][1](self.fields)}"

    def to_data(self) -> dict[str, Any]:
        """The plain form."""
        return {"number": self.number, "time": self.time, "kind": self.kind, **self.fields}


class EventRing:
    """The last events. Safe to use from several threads: a deque's append is atomic."""

    def __init__(self, size: int = MAX_EVENTS) -> None:
        self._events: deque[Event] = deque(maxlen=size)
        self._numbers = itertools.count(1)

    def add(self, kind: str, **fields: Any) -> Event:
        """Note an event and log its line.

        Args:
            kind: one of `KINDS`.
            fields: what its line needs, and anything else of interest; plain data.
        """
        short = {
            k: v[: MAX_TEXT - 1] + "…" if isinstance(v, str) and len(v) > MAX_TEXT else v for k, v in fields.items()
        }
        event = Event(next(self._numbers), time.time(), kind, short)
        level, _ = KINDS[kind]
        self._events.append(event)
        if config.logger.isEnabledFor(level):
            config.logger.log(level, "%s", event, extra={"fields": {"event": kind, **short}})
        return event

    def list(self, kind: str | None = None, after: int = 0) -> list[Event]:
        """Events with a number above `after`, of one kind or all, oldest first."""
        return [e for e in list(self._events) if e.number > after and kind in (None, e.kind)]

    def clear(self) -> None:
        """Forget all."""
        self._events.clear()


_events: Final = EventRing()


def events() -> EventRing:
    """The ring of this process."""
    return _events
