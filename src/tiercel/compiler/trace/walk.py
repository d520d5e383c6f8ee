"""The walk itself: following control from instruction to instruction.

In: a place to start and places to stop. Out: how the walk ended. Errors of the rules become `Untraceable` with the
instruction at fault: what the rules refuse is what Python raises, and the interpreter does that.
"""

from __future__ import annotations

from tiercel.compiler.abstract import Untraceable
from tiercel.compiler.trace.instructions import Instructions
from tiercel.compiler.trace.state import LoopLeft, Outcome, Raised, Returned
from tiercel.errors import TiercelError
from tiercel.operators import NotStatic


class Frame(Instructions):
    """The walk of one function, whole."""

    def walk(self, start: int, stops: frozenset[int]) -> Outcome:
        """Follow control from `start` until an instruction in `stops`, a return, a raise, or a loop test."""
        at = start
        instructions = self.function.instructions
        while at not in stops:
            self.index = at
            ins = instructions[at]
            try:
                match ins.opcode:
                    case "Jump":
                        at = ins.target
                    case "BranchIf":
                        outcome = self.branch(at, ins, stops)
                        if not isinstance(outcome, int):
                            return outcome
                        at = outcome
                    case "LoopStart":
                        after = self.loop(at, ins)
                        if isinstance(after, LoopLeft):
                            after = self.fork(after.ended, (after.exit, after.outside), at, stops, after.unknown)
                        if not isinstance(after, int):
                            return after
                        at = after
                    case "Return":
                        return Returned(self.operand(ins.value))
                    case "Raise":
                        return Raised(at)
                    case _:
                        self.step(ins)
                        at += 1
            except Untraceable as error:
                if error.index is None:
                    error.index = self.site()
                raise
            except NotStatic as error:
                reason = error.reason or "a value that is only known when the code runs"
                raise Untraceable(reason, self.site()) from None
            except (TiercelError, TypeError, ValueError, IndexError) as error:
                # what the rules refuse, Python will raise: the interpreter does that
                raise Untraceable(f"{type(error).__name__}: {error}", self.site()) from None
        return at
