"""The forms of a function on its way to machine code, as text: printed, written into a folder, or looked at.

In: a traced and lowered function. Out: its region graph, loop form, LLVM IR and assembly. The last two load LLVM into
this process, which is why nothing here is used unless somebody asked to see something.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tiercel.compiler.graph import Region
from tiercel.compiler.graph_text import region_text
from tiercel.compiler.lower import Lowered
from tiercel.config import Settings
from tiercel.hotpath.events import events
from tiercel.loops import IllFormed, to_text

__all__ = ["FORMS", "Forms", "show"]

FORMS: Final = {"graph": 2, "prepared": 3, "loops": 3, "llvm": 4, "assembly": 5}
"""The forms, in order, and the level of the setting `debug` from which each is printed."""


class Forms:
    """The forms of one function, made when asked for."""

    def __init__(self, region: Region, lowered: Lowered) -> None:
        self.region, self.lowered = region, lowered
        self._llvm = ""

    def text(self, form: str) -> str:
        """One of `FORMS`.

        Raises:
            IllFormed: there is no machine code for the loops.
        """
        made: dict[str, Callable[[], str]] = {
            "graph": lambda: region_text(self.region),
            "prepared": lambda: region_text(self.lowered.prepared),
            "loops": lambda: to_text(self.lowered.function),
            "llvm": self.llvm,
            "assembly": self._assembly,
        }
        return made[form]()

    def llvm(self) -> str:
        """LLVM IR for this machine."""
        if not self._llvm:
            from tiercel.codegen.cpu.emit import emit
            from tiercel.codegen.cpu.target import Target

            self._llvm = emit(self.lowered.function, Target.host())
        return self._llvm

    def _assembly(self) -> str:
        from tiercel.codegen.cpu.assemble import disassemble
        from tiercel.codegen.cpu.target import Target

        return disassemble(self.llvm(), Target.host())


def show(settings: Settings, name: str, bytecode: str, region: Region, lowered: Lowered, times_ms: str) -> None:
    """Print what the setting `debug` asks for to stderr, write all forms into `dump_dir`.

    A folder that cannot be written to costs the dump, not the compile: an event says so.
    """
    if settings.debug_filter not in name or not (settings.debug or settings.dump_dir):
        return
    forms = Forms(region, lowered)
    if settings.debug:
        sys.stderr.write(f"tiercel: {name} {region.signature}: {times_ms}\n")
    folder = None
    if settings.dump_dir:
        folder = Path(settings.dump_dir)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stem = re.sub(r"\W+", "_", name).strip("_") or "function"
            taken = {path.name.partition(".")[0] for path in folder.glob(f"{stem}-*.bytecode.txt")}
            number = next(n for n in range(1, len(taken) + 2) if f"{stem}-{n}" not in taken)
            (folder / f"{stem}-{number}.bytecode.txt").write_text(bytecode, encoding="utf-8")
        except OSError as error:
            events().add("dump", region=name, reason=str(error))
            folder = None
    for form, level in FORMS.items():
        printed = settings.debug >= level
        if not printed and folder is None:
            continue
        try:
            text = forms.text(form)
        except IllFormed as error:
            text = f"none: {error}\n"
        if printed:
            sys.stderr.write(f"tiercel: {name}, {form}\n{text}\n")
        if folder is not None:
            try:
                (folder / f"{stem}-{number}.{form}.txt").write_text(text, encoding="utf-8")
            except OSError as error:
                events().add("dump", region=name, reason=str(error))
                folder = None
