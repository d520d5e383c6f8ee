"""Writes the generated pages of `docs/` from the tables they describe.

In: the tables, through the `render()` function beside each of them. Out: one file a page. A test compares the files
with what `render()` gives now, so a page cannot fall behind its table: `python -m tiercel.tools.docs` writes them.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tiercel.compiler.coverage import describe

__all__ = ["PAGES", "main", "render"]

# File in docs/ -> the module whose `render()` returns its text.
PAGES: Final = {
    "settings.md": "tiercel.config.docs",
    "bytecode.md": "tiercel.bytecode.docs",
    "operators.md": "tiercel.operators.docs",
}

_NOTE: Final = "<!-- Written by `make docs` from {module}; changes made here are lost. -->\n\n"


def render(page: str) -> str:
    """Return the text of a generated page.

    Args:
        page: a key of `PAGES`.
    """
    module = PAGES[page]
    arguments = (describe(),) if page == "operators.md" else ()
    text: str = importlib.import_module(module).render(*arguments)
    return _NOTE.format(module=module) + text.rstrip("\n") + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write every page that differs, or with `--check` only name them.

    Returns:
        1 if `--check` found a page that differs, else 0.
    """
    parser = argparse.ArgumentParser(prog="python -m tiercel.tools.docs", description="Write the generated pages.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is stale")
    parser.add_argument("--into", type=Path, default=Path("docs"), help="the folder of the pages (default: docs)")
    options = parser.parse_args(arguments)
    stale = 0
    for page in PAGES:
        path = options.into / page
        text = render(page)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if options.check:
            print(f"{path} is stale; `make docs` writes it")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
