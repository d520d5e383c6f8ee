"""What compiling took and brought in this process so far: the basis of estimates for what comes next.

In: after a patch, the number of bytecode instructions and the milliseconds it took; later, how much faster calls have
become. Out: an expected time and speed-up for a function that has not been compiled. Until there is a history, what was
measured on one machine (2026, Zen 4): three milliseconds an instruction, at least twice as fast.
"""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["History", "history"]

_MS_PER_INSTRUCTION: Final = 3.0
_LEAST_MS: Final = 5.0
_SPEED_UP: Final = 2.0
_KEPT: Final = 32


class History:
    """The last compiles."""

    def __init__(self) -> None:
        self._rates: deque[float] = deque(maxlen=_KEPT)  # milliseconds an instruction
        self._gains: deque[float] = deque(maxlen=_KEPT)

    def compiled(self, instructions: int, spent_ms: float) -> None:
        """Something was compiled."""
        self._rates.append(spent_ms / max(1, instructions))

    def ran(self, interpreted_ns: float, compiled_ns: float) -> None:
        """A kernel was compared with what it replaced."""
        if compiled_ns > 0:
            self._gains.append(interpreted_ns / compiled_ns)

    def expected_ms(self, instructions: int) -> float:
        """What compiling so many instructions is expected to take."""
        rate = _middle(self._rates, _MS_PER_INSTRUCTION)
        return max(_LEAST_MS, rate * instructions)

    def expected_speed_up(self) -> float:
        """The factor by which calls are expected to become faster."""
        return _middle(self._gains, _SPEED_UP)


def _middle(numbers: deque[float], default: float) -> float:
    ordered = sorted(numbers)
    return ordered[len(ordered) // 2] if ordered else default


_history: Final = History()


def history() -> History:
    """That of this process."""
    return _history
