"""The machine: what surrounds the interpreter in a running program.

In: decoded functions, as they are entered. Out: the interpreter's hooks, which feed the profile; the ledger; and the
profiles of programs, made when somebody reads `Program.profile`.

Invariant: a machine keeps nothing alive but its ledger. Functions are known weakly, and what was learned about one
(`Decoded.watch`) dies with it. The process has one machine, which `machine()` returns; two machines do not disturb one
another, because a decoded function belongs to the one whose hooks it first ran under.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tiercel import config
from tiercel.bytecode.program import Profile, Program
from tiercel.config import Settings
from tiercel.interp import Callee, Decoded, Hooks
from tiercel.interp.layout import CounterLayout
from tiercel.vm import profile
from tiercel.vm.infer import learned_results
from tiercel.vm.ledger import Ledger, Line, order

if TYPE_CHECKING:
    from tiercel.vm.regions import Surroundings

__all__ = ["Machine", "machine"]

_CALLS: Final = CounterLayout.CALLS
_FIRST_LOOP: Final = CounterLayout.FIRST_LOOP
_PER_LOOP: Final = CounterLayout.PER_LOOP
assert CounterLayout.ENTRIES == 0


class Machine:
    """What is known about the functions that run.

    Attributes:
        ledger: the account of fallbacks, copies, conversions.
        typing: tells what instructions wrote; None where only parameters are to be shown.
    """

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.typing: profile.Typing | None = learned_results
        self._functions: dict[int, weakref.ref[Decoded]] = {}
        self._serial = itertools.count()
        self._programs: weakref.WeakSet[Program] = weakref.WeakSet()

    def hooks(
        self,
        on_callee: Callable[[object], Callee | None] | None = None,
        settings: Callable[[], Settings] = config.current,
        around: Surroundings | None = None,
    ) -> Hooks:
        """Return hooks for `interp.run` that keep the profile, and compile loops.

        Args:
            on_callee: as in `Hooks`.
            settings: tells the settings of the function that is run (`profile_first`, `profile_sample`).
            around: what loops are compiled with; None leaves them interpreted.
        """
        first_look = None if around is None else around.first_look

        def on_entry(decoded: Decoded, registers: list[Any]) -> None:
            watch = decoded.watch
            if watch is None:
                watch = self.adopt(decoded, settings, first_look)
            elif decoded.counts[_CALLS] < watch.entry.due:
                return
            watch.on_entry(registers)

        def on_region(decoded: Decoded, loop: int, registers: list[Any]) -> None:
            watch = decoded.watch
            if watch is None:
                watch = self.adopt(decoded, settings, first_look)
            elif watch.regions and (region := watch.regions.get(loop)) is not None and region.ready:
                region.announce(decoded)
            if decoded.counts[_FIRST_LOOP + _PER_LOOP * loop] < watch.loops[loop].due:
                return
            watch.on_region(loop, registers)

        if around is None:
            return Hooks(on_callee, on_region, on_entry)

        def on_passes(decoded: Decoded, loop: int, registers: list[Any], following: int) -> int:
            regions = (decoded.watch or self.adopt(decoded, settings)).regions
            region = regions.get(loop)
            if region is None:
                region = regions.setdefault(loop, around.tiers(decoded, loop))
            return region.asked(decoded, registers, following, around)  # type: ignore[no-any-return]

        return Hooks(on_callee, on_region, on_entry, on_passes)

    def adopt(
        self, decoded: Decoded, settings: Callable[[], Settings] = config.current, first_look: int | None = None
    ) -> profile.Watch:  # fmt: skip
        """Begin to watch a function, unless it is watched already.

        Args:
            decoded, settings: what to watch, and the settings that count for it.
            first_look: passes after which its loops are looked at for compiling; None for never.
        """
        watch: profile.Watch | None = decoded.watch
        if watch is None:
            self._teach(decoded.program)
            # Two threads may come here at once: one watch wins, and samples of the other are lost.
            watch = decoded.watch = profile.Watch(decoded, settings)
            if first_look is not None:
                for loop in range(decoded.function.loops):
                    decoded.counts[decoded.counter(loop, CounterLayout.DUE)] = first_look
            serial = next(self._serial)
            functions = self._functions
            functions[serial] = weakref.ref(decoded, lambda _: functions.pop(serial, None))
        return watch

    def functions(self) -> list[Decoded]:
        """Return the functions that are watched and alive, each once, in the order in which they first ran."""
        known = list(self._functions.items())
        alive = {id(d): d for d in (ref() for _, ref in sorted(known)) if d is not None}
        return list(alive.values())

    def account(self, *kinds: str) -> list[Line]:
        """Return everything that did not run as hoped (of some kinds, or all), the most expensive first.

        These are the lines of the ledger, and one of kind `python` for each `CallPy` of a function that is watched.
        """
        lines = self.ledger.lines(*kinds)
        if not kinds or "python" in kinds:
            for decoded in self.functions():
                f = decoded.function
                name = f.qualname or f.name
                for index, (count, time_ns) in decoded.counters.python.items():
                    if count:
                        reason, line = f.instructions[index].reason, f.line_of(index) or 0
                        lines.append(Line("python", name, f.filename, line, reason, count, time_ns, 0))
        return sorted(lines, key=order)

    def _teach(self, program: Program) -> None:
        """Let the program ask here for its profile."""
        if program in self._programs:
            return
        self._programs.add(program)
        base = program.profile
        reference = weakref.ref(program)
        # What was answered last, and when: nothing is made anew while nothing has run.
        kept: tuple[tuple[int, ...], Profile | None] | None = None

        def learned() -> Profile | None:
            nonlocal kept
            alive = reference()
            decoded = [d for d in self.functions() if d.program is alive]
            if alive is None or not decoded:
                return base
            state = tuple(count for d in decoded for count in (id(d), *d.counts))
            answer = kept
            if answer is None or answer[0] != state:
                answer = kept = (state, profile.learned(alive, decoded, base, self.typing))
            return answer[1]

        program.learn_from(learned)


_machine: Final = Machine()


def machine() -> Machine:
    """Return the process's machine."""
    return _machine
