"""The log lines that the settings `log` and `log_format` ask for.

In: records of the logger `tiercel`. Out: lines on stderr, as text or JSON. The library installs no handler by itself;
ours is attached only while the process or some open block asks for lines, and each record is judged by the settings of
the thread or task that made it.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from tiercel.config.settings import Settings

__all__ = ["LogOutput", "logger"]

logger: Final = logging.getLogger("tiercel")
logger.addHandler(logging.NullHandler())

_LOG_LEVELS: Final = {
    "off": logging.CRITICAL + 1,
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}


class _Handler(logging.Handler):
    """Writes to whatever `sys.stderr` is now, in the form and from the level that hold where the record was made."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        super().__init__()
        self.settings = settings

    def emit(self, record: logging.LogRecord) -> None:
        settings = self.settings()
        if record.levelno < _LOG_LEVELS[settings.log]:
            return
        try:
            line = _json_line(record) if settings.log_format == "json" else f"[tiercel] {self.format(record)}"
            sys.stderr.write(line + "\n")
        except Exception:  # noqa: BLE001 - as logging's own handlers: a broken log never breaks the program
            self.handleError(record)


def _json_line(record: logging.LogRecord) -> str:
    import json
    from datetime import UTC, datetime

    fields: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    # `logger.info("...", extra={"fields": {"pc": 10}})` is how the parts of a line reach its JSON form.
    extra = getattr(record, "fields", None)
    if isinstance(extra, Mapping):
        fields.update({str(k): v for k, v in extra.items() if k not in fields})
    if record.exc_info:
        fields["exception"] = logging.Formatter().formatException(record.exc_info)
    return json.dumps(fields, default=str, ensure_ascii=False)


class LogOutput:
    """Attaches our handler while some layer wants log lines, and puts the logger's level back afterwards."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self.handler = _Handler(settings)
        self.lock = threading.Lock()
        self.process = "off"
        self.blocks: list[str] = []
        self.level_before: int | None = None

    def update(self, process: str) -> None:
        """Take the level that holds where no block says otherwise."""
        with self.lock:
            self.process = process
            self._apply()

    def open_block(self, level: str) -> None:
        """Note that a block of code with its own level begins."""
        with self.lock:
            self.blocks.append(level)
            self._apply()

    def close_block(self, level: str) -> None:
        """Note that such a block ends."""
        with self.lock:
            # A forked child or a block left in another context may have nothing to take back.
            with contextlib.suppress(ValueError):
                self.blocks.remove(level)
            self._apply()

    def _apply(self) -> None:
        wanted = min(_LOG_LEVELS[level] for level in [self.process, *self.blocks])
        if wanted > logging.CRITICAL:
            if self.level_before is not None:
                logger.removeHandler(self.handler)
                logger.setLevel(self.level_before)
                self.level_before = None
            return
        if self.level_before is None:
            self.level_before = logger.level
            logger.addHandler(self.handler)
        # A user's own, more talkative level stays.
        before = self.level_before
        logger.setLevel(min(wanted, before) if before else wanted)
