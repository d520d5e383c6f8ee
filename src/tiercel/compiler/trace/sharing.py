"""Who may hold the same array at the start of a pass of a loop, because of the passes before.

In: after each walk of the body, who holds which arrays. Out: owners (`Trace.owners`) for what is carried into the next
walk, and whether they had to grow, in which case the body is walked again.

Invariant: nothing is taken back, so the walks end. It matters only where something is written in the body: a write has
to reach, or lose, also those holders that got the array in an earlier pass, which a single walk does not show.
"""

from __future__ import annotations

from typing import Any

from tiercel.compiler.graph import Value
from tiercel.compiler.trace.state import Trace
from tiercel.operators.types import PyIntType


class Sharing:
    """Which holders may have the same array at the start of a pass because of the passes before.

    A holder is a carried register or a list that gathers, `("list", key)`. Two that had one array at the end of some
    pass share a token among their owners; one that had an array from before the loop has that among its owners.
    """

    def __init__(self, trace: Trace) -> None:
        self.first = next(trace.numbers)
        self.trace = trace
        self.writes = trace.writes
        self.of: dict[Any, set[Value]] = {}
        self.tokens: dict[frozenset[Any], Value] = {}
        self.apart: set[int] = set()  # registers that hold an input at first, and not what it is after a pass

    def owners(self, holder: Any) -> set[Value]:
        """What the holder may share, for `Trace.owners`."""
        return self.of.get(holder, set())

    def written(self) -> bool:
        """Has anything been written since the loop began?"""
        return self.trace.writes != self.writes

    def grows(self, held: dict[Any, frozenset[Value]]) -> bool:
        """Take in who holds what at the end of a pass; true if that was not known."""
        before = sum(map(len, self.of.values()))
        holders = list(held)
        for position, holder in enumerate(holders):
            mine = self.of.setdefault(holder, set())
            mine |= {owner for owner in held[holder] if owner.number < self.first}
            for other in holders[:position]:
                if held[holder] & held[other]:
                    pair = frozenset((holder, other))
                    token = self.tokens.setdefault(pair, self.trace.value(PyIntType(0)))
                    mine.add(token)
                    self.of[other].add(token)
        return sum(map(len, self.of.values())) != before
