"""What tuning has found out, kept on disk between processes: measurements for the predictor, winners for everybody.

In: a folder (that of the kernel cache, which is the user's own) and a key of this machine: processor and kernels. Out:
rows and winners. Two files, because winners are read by programs and rows by who measures only.

Invariants: a file is whole or not there (written beside and renamed); two processes that write at a time lose nothing
(a lock while a file is read, joined and written); what cannot be read counts as empty, is said once, and is replaced by
the next write. Results never depend on these files, only times do: a choice that is none is refused where it is used.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tiercel.codegen.cpu.choice import Point
from tiercel.tuner.predictor import MAX_ROWS, Row
from tiercel.tuner.space import Product
from tiercel.tuner.winners import MAX_WINNERS, read_winners, winners_path

if sys.platform != "win32":
    import fcntl

__all__ = ["Store"]

_FORMAT: Final = 1


class Store:
    """See the module docstring.

    Args:
        folder: where; None keeps it in memory.
        key: of this machine.
        report: told once about each file that cannot be read or written.
    """

    def __init__(self, folder: Path | None, key: str, report: Callable[[str], None] = lambda message: None) -> None:
        self.folder, self.key = folder, key
        self._report = report
        self._said: set[str] = set()
        self._rows: list[Row] = []
        self._winners: dict[str, dict[str, Any]] = {}

    def rows(self) -> list[Row]:
        """All measurements, the oldest first."""
        if self.folder is None:
            return list(self._rows)
        found = self._read(self._path)
        if found is None:
            return []
        try:
            return [Row(Product(*product), Point(*point), float(ns)) for product, point, ns in found["rows"]]
        except (KeyError, TypeError, ValueError):
            self._say(f"{self._path} is not what was written there: its measurements are not used")
            return []

    def winners(self) -> dict[str, dict[str, Any]]:
        """What was chosen, by `Demand.key`; see `Tuned.to_data`."""
        if self.folder is None:
            return dict(self._winners)
        return read_winners(self.folder, self.key, self._say)

    def add(self, rows: Sequence[Row], winners: Mapping[str, dict[str, Any]]) -> bool:
        """Keep more; false where that is in memory only."""
        if self.folder is None:
            self._rows = _joined(self._rows, rows)
            self._winners |= winners
            return False
        with self._locked():
            kept = _joined(self.rows(), rows)
            data = [[list(r.product), list(r.point), round(r.ns, 1)] for r in kept]
            done = self._write(self._path, {"format": _FORMAT, "rows": data})
            both = {**self.winners(), **winners}
            latest = dict(list(both.items())[-MAX_WINNERS:])
            return self._write(winners_path(self.folder, self.key), {"format": _FORMAT, "winners": latest}) and done

    @property
    def _path(self) -> Path:
        assert self.folder is not None
        return self.folder / f"tuning-{self.key}.json"

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            self._say(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}")
            return None
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("format") != _FORMAT:
            self._say(f"{path} is damaged: its measurements are not used")
            return None
        return found

    def _write(self, path: Path, data: dict[str, Any]) -> bool:
        temporary = path.with_name(f"{path.stem}.{os.getpid()}.{threading.get_ident():x}.part")
        try:
            number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(number, "w", encoding="utf-8") as file:
                json.dump(data, file, separators=(",", ":"))
            os.replace(temporary, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            self._say(f"{path} cannot be written: {error.strerror}")
            return False
        return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        assert self.folder is not None
        number = -1
        try:
            number = os.open(self.folder / "tuning.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if sys.platform != "win32":
                fcntl.flock(number, fcntl.LOCK_EX)
        except OSError:
            pass  # a read-only or full disk has no locks: writing says what is wrong
        try:
            yield
        finally:
            if number >= 0:
                os.close(number)

    def _say(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            self._report(message)


def _joined(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Old and new rows: the newest of each product and point, at most `MAX_ROWS`."""
    found: dict[tuple[Product, Point], Row] = {}
    for row in (*old, *new):
        found.pop((row.product, row.point), None)
        found[row.product, row.point] = row
    return list(found.values())[-MAX_ROWS:]
