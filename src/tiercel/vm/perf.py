"""Names for compiled code in profilers: the map file that Linux `perf` reads for code made at run time.

In: mapped machine code and what it is. Out: lines `START SIZE name` in `/tmp/perf-PID.map`, hexadecimal, the format of
`tools/perf/Documentation/jit-interface.txt` in the Linux sources. A file that cannot be written to costs the names, not
the code: an event says so, once.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from tiercel.codegen.blob import Mapped
from tiercel.codegen.elf import CodeSymbol
from tiercel.hotpath.events import events

__all__ = ["RUNTIME", "functions_of", "map_file", "name_code"]

RUNTIME: Final = "runtime"
"""The name of the library that all compiled code shares: matrix products, thread pool, entry stub."""

_lock: Final = threading.Lock()
_failed: Final[set[int]] = set()  # processes that could not write


def map_file() -> Path:
    """Where `perf` looks for the names of this process."""
    folder = Path("/tmp")
    if not folder.is_dir():
        import tempfile

        folder = Path(tempfile.gettempdir())
    return folder / f"perf-{os.getpid()}.map"


def functions_of(mapped: Mapped, name: str) -> list[CodeSymbol]:
    """What is in mapped code: `NAME`, its loops as `NAME loops`, the size of its scratch as `NAME arena`."""
    found = []
    for entry, start, size in mapped.symbols():
        if name == RUNTIME:
            part = f" {entry.removeprefix('tc.') or 'parts'}"
        else:
            part = " arena" if entry.endswith(".arena") else "" if entry else " loops"
        found.append(CodeSymbol(f"{name}{part}", start, size))
    return found


def name_code(mapped: Mapped, name: str, filename: str, line: int) -> None:
    """Name mapped code `tiercel:NAME (FILE:LINE)`, as `functions_of` tells its parts."""
    place = f" ({Path(filename).name}:{line})" if filename else ""
    lines = [f"{f.address:x} {f.size:x} tiercel:{f.name}{place}\n" for f in functions_of(mapped, name)]
    with _lock:
        try:
            with map_file().open("a", encoding="utf-8") as file:
                file.writelines(lines)
        except OSError as error:
            if os.getpid() not in _failed:
                _failed.add(os.getpid())
                events().add("dump", region=name, reason=f"no names for perf: {error}")
