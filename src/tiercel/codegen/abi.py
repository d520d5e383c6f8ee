"""How compiled code is called: one pointer to a frame of 64-bit words.

`i64 NAME(ptr frame)` returns 0 when it ran to its end, n > 0 for `Exit(n)`, MISS when a guard failed before any effect.
The words of the frame, in order: the header below; one word per size (int64); one per scalar argument (its bits, in
the low bytes); one per buffer (address of element 0); one per scalar output (written by the callee, its bits in the
low bytes).
"""

from __future__ import annotations

from typing import Final

from tiercel.loops.form import Function

MISS: Final = -1

ARENA: Final = 0
"""Address of the arena, 64-byte aligned."""
ARENA_BYTES: Final = 1
POOL: Final = 2
"""Address of the thread pool, 0 for none: parallel axes run serially."""
THREADS: Final = 3
ATTENTION: Final = 4
"""Address of the word that is non-zero when the virtual machine wants control back, 0 for none."""
BUDGET: Final = 5
"""Work units until the attention word is looked at."""
EXTRA_WORK: Final = 6
"""Work units to be added to those of a parallel axis before it is decided whether the pool gets it: validation puts in
so many that small sizes are shared among threads, too."""
HEADER_WORDS: Final = 8


def frame_words(function: Function) -> dict[str, int]:
    """The word of each size, scalar, buffer and output, by name."""
    names = [
        *(v.name for v in function.sizes),
        *(v.name for v in function.scalars),
        *(b.name for b in function.buffers if b.root is None),
        *(v.name for v in function.outputs),
    ]
    return {name: HEADER_WORDS + i for i, name in enumerate(names)}


def frame_size(function: Function) -> int:
    """Number of words in the frame."""
    return HEADER_WORDS + len(frame_words(function))
