"""Compiled code made known to profilers and debuggers, as the settings `perf_map` and `gdb` ask.

In: what the compile service gave for a function. Out: names for its machine code, and, with the first one, for the
library that all compiled code shares.
"""

from __future__ import annotations

from types import CodeType
from typing import Any, Final
from weakref import WeakSet

from tiercel.codegen.blob import Mapped
from tiercel.codegen.pieces import Library
from tiercel.config import Settings
from tiercel.vm.debugger import show_code
from tiercel.vm.perf import RUNTIME, name_code

__all__ = ["name_for_tools"]

_named_in_perf: Final[WeakSet[Mapped]] = WeakSet()
_shown: Final[WeakSet[Mapped]] = WeakSet()


def name_for_tools(
    keep: tuple[Any, ...], library: Library | None, settings: Settings, name: str, place: CodeType
) -> None:
    """Name the code of a function.

    Args:
        keep: what its entry keeps alive, mapped code among it.
        library: the library it calls.
        settings: which tools want names.
        name: of the function.
        place: its code object, for file and line.
    """
    code = [] if library is None else [(mapped, RUNTIME, "", 0) for mapped in library.mapped]
    code += [(kept, name, place.co_filename, place.co_firstlineno) for kept in keep if isinstance(kept, Mapped)]
    for mapped, label, filename, line in code:
        if settings.perf_map and mapped not in _named_in_perf:
            _named_in_perf.add(mapped)
            name_code(mapped, label, filename, line)
        if settings.gdb and mapped not in _shown:
            _shown.add(mapped)
            show_code(mapped, label, filename, line)
