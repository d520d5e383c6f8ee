"""How far a run of the suite is: one line on a terminal that the next one overwrites, a line for each case elsewhere.

In: lines about what happens now, ends of cases. Out: text, with how many cases are done, the time that has passed, and
about how long the rest will take, going by the cases that are done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TextIO

__all__ = ["Progress", "span"]

_BAR: Final = 20


def span(seconds: float) -> str:
    """Return a time for people: `42 s`, `3 min`, `1 h 10 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class Progress:
    """See the module docstring.

    Args:
        cases: how many there are to run.
        stream: where to write.
        clock: seconds.
    """

    def __init__(self, cases: int, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._cases = cases
        self._stream = stream
        self._clock = clock
        self._began = clock()
        self._done = 0
        self._alive = stream.isatty()

    def tell(self, text: str) -> None:
        """Something begins."""
        if self._alive:
            self._write(f"\r\033[K{self.line(text)}")

    def line(self, text: str) -> str:
        """What is shown while something is going on."""
        passed = self._clock() - self._began
        full = _BAR * self._done // self._cases
        left = f", about {span(passed / self._done * (self._cases - self._done))} left" if self._done else ""
        bar = "#" * full + "-" * (_BAR - full)
        return f"[{bar}] {self._done} of {self._cases}, {span(passed)}{left}  {text}"

    def finished(self, case: str) -> None:
        """A case is over."""
        self._done += 1
        self.clear()
        if not self._alive:
            passed = span(self._clock() - self._began)
            self._write(f"{case}: done, {self._done} of {self._cases} after {passed}\n")

    def clear(self) -> None:
        """Leave the terminal to somebody else."""
        if self._alive:
            self._write("\r\033[K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
