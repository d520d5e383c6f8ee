"""`tiercel bench`: runs the benchmarks of a checkout, one process each.

In: names of files in `benchmarks/` of the current folder or of the checkout this package is imported from. Out: what
they print. An installed wheel has none: they compare with packages that users do not need.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import tiercel
from tiercel.errors import TiercelError, suggest

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("names", nargs="*", help="benchmarks to run (default: all)")
    parser.add_argument("--list", action="store_true", help="name them and what they measure, run none")


def run(options: argparse.Namespace) -> int:
    """Run benchmarks. Returns 1 if one fails."""
    found = _benchmarks()
    unknown = [n for n in options.names if n not in found]
    if unknown:
        raise TiercelError(
            f"there is no benchmark {unknown[0]!r}{suggest(unknown[0], list(found))}; there are {', '.join(found)}"
        )
    chosen = options.names or list(found)
    if options.list:
        width = max(map(len, chosen))
        for name in chosen:
            print(f"{name:<{width}}  {_about(found[name])}".rstrip())
        return 0
    failed = []
    for name in chosen:
        print(f"== {name}: {_about(found[name])}", flush=True)
        if subprocess.run([sys.executable, str(found[name])], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"tiercel: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _benchmarks() -> dict[str, Path]:
    """Name to file, of the first folder that has some."""
    for root in (Path.cwd(), Path(tiercel.__file__).resolve().parents[2]):
        folder = root / "benchmarks"
        if (root / "src" / "tiercel").is_dir() and folder.is_dir():
            files = sorted(p for p in folder.glob("*.py") if not p.name.startswith("_"))
            if files:
                return {p.stem: p for p in files}
    raise TiercelError(
        "no benchmarks here: they are part of a checkout, not of the installed package; run this inside a clone, "
        "or `make bench`, which also installs what they compare with"
    )


def _about(path: Path) -> str:
    """The first sentence of a benchmark's docstring."""
    import ast

    try:
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    except SyntaxError:
        return ""
    return text.partition("\n")[0]
