"""`tiercel bench`: the benchmark suite, and the measuring scripts of a checkout.

In: names of cases of the suite (all by default), or of files in `benchmarks/` of the current folder or of the checkout
this package is imported from. Out: tables, and on demand a JSON file and plots. The suite (`tools.suite`) is installed
with the package; the scripts measure single parts of Tiercel for people who work on it and are in a checkout only.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import tiercel
from tiercel.errors import TiercelError, suggest
from tiercel.hotpath.processors import available_threads
from tiercel.tools.suite import peers as peers_of_suite
from tiercel.tools.suite import plot, record, schedule
from tiercel.tools.suite.cases import CASES, REGISTRY
from tiercel.tools.suite.progress import Progress

__all__ = ["add_arguments", "run"]

_DETAIL: Final = "what Tiercel says of itself (explain) after each case"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("names", nargs="*", help="cases of the suite or scripts in benchmarks/ (default: all cases)")
    parser.add_argument("--list", action="store_true", help="name them and what they measure, run none")
    parser.add_argument("--quick", action="store_true", help="fewer shapes, calls and rounds: under a minute a case")
    parser.add_argument("--peers", metavar="A,B", help=f"only these besides tiercel: {', '.join(peers_of_suite.PEERS)}")
    parser.add_argument(
        "--threads",
        type=_counts,
        metavar="N,M",
        help="of every peer; with several, each case is run with each (default: as many as cores)",
    )
    parser.add_argument("--limit", type=_seconds, metavar="S", help="seconds for one peer in one case before rounds")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw latency against size, and the streams (PNG, SVG)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    parser.add_argument(
        "--load", type=Path, action="append", metavar="FILE", help="show such files joined, measure nothing"
    )
    parser.add_argument("--explain", action="store_true", help=_DETAIL)


def run(options: argparse.Namespace) -> int:
    """Run benchmarks. Returns 1 if a script fails, or if Tiercel fails in a case or is wrong."""
    scripts = _scripts()
    unknown = [n for n in options.names if n not in CASES and n not in scripts]
    if unknown:
        known = [*CASES, *scripts]
        hint = "" if scripts else " (scripts are part of a checkout, not of the installed package)"
        near = suggest(unknown[0], known) or f"; there are {', '.join(known)}{hint}"
        raise TiercelError(f"there is no benchmark {unknown[0]!r}{near}")
    if options.list:
        chosen = {n: _about(n, scripts) for n in options.names or [*CASES, *scripts]}
        width = max(map(len, chosen))
        for name, about in chosen.items():
            print(f"{name:<{width}}  {about}".rstrip())
        return 0
    cases = [n for n in options.names or CASES if n in CASES]
    code = _run_suite(cases, options) if cases or options.load else 0
    return _run_scripts([n for n in options.names if n not in CASES], scripts) or code


# ---- the suite -------------------------------------------------------------------------------------------------------


def _run_suite(names: Sequence[str], options: argparse.Namespace) -> int:
    if options.plot is not None:
        plot.require()
    if options.load:
        loaded = record.merged([record.load(path) for path in options.load])
        if options.names:
            loaded["cases"] = [case for case in loaded["cases"] if case["name"] in options.names]
        else:
            order = list(CASES)
            loaded["cases"].sort(key=lambda c: order.index(c["name"]) if c["name"] in order else len(order))
        _show(loaded["cases"], options)
        return _finish(loaded, options)
    peers = peers_of_suite.chosen(options.peers.replace(" ", "").split(",") if options.peers else [])
    threads = options.threads or [available_threads().threads]
    hows = [schedule.Options.usual(options.quick, count, options.limit) for count in threads]
    started = record.now()
    done: list[dict[str, Any]] = []
    # pip compiles what it installs; a checkout is compiled here, so that no worker process does it in a case.
    compileall.compile_dir(str(Path(tiercel.__file__).parent), quiet=2)
    progress = Progress(len(names) * len(hows), sys.stderr)
    try:
        for name in names:
            for how in hows:
                done.append(schedule.run_case(REGISTRY, CASES[name], peers, how, progress.tell))
                progress.finished(name)
                _show(done[-1:], options)
                if options.json is not None:  # whoever ends the process keeps this one
                    record.save(record.make(done, peers, how, started), options.json)
    except schedule.Interrupted as interrupted:
        done.append(interrupted.case)
        progress.clear()
        _finish(record.make(done, peers, hows[-1], started), options)
        raise
    return _finish(record.make(done, peers, hows[-1], started), options)


def _finish(made: Mapping[str, Any], options: argparse.Namespace) -> int:
    from tiercel.tools.suite import table

    console = table.console()
    for part in table.of_run(made):
        console.print(part)
    if options.json is not None:
        record.save(made, options.json)
    if options.plot is not None:
        plot.draw(made, options.plot)
    ours = {case["name"]: case["peers"].get(schedule.OURS, {"state": "ok"}) for case in made["cases"]}
    failed = [f"{name}: {peer['reason']}" for name, peer in ours.items() if peer["state"] != "ok"]
    for line in failed:
        print(f"tiercel: {line}", file=sys.stderr)
    return 1 if failed else 0


def _show(cases: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> None:
    from tiercel.tools.suite import table

    console = table.console()
    for case in cases:
        for part in table.of_case(case):
            console.print(part)
        if options.explain:
            console.print(case["peers"].get(schedule.OURS, {}).get("told", {}).get("explain", ""), markup=False)
        console.print()


def _counts(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return list(dict.fromkeys(numbers))


def _seconds(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError("more than 0")
    return number


# ---- scripts ---------------------------------------------------------------------------------------------------------


def _run_scripts(names: Sequence[str], scripts: Mapping[str, Path]) -> int:
    failed = []
    for name in names:
        print(f"== {name}: {_about(name, scripts)}", flush=True)
        if subprocess.run([sys.executable, str(scripts[name])], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"tiercel: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _scripts() -> dict[str, Path]:
    """Name to file, of the first folder that has some."""
    for root in (Path.cwd(), Path(tiercel.__file__).resolve().parents[2]):
        folder = root / "benchmarks"
        if (root / "src" / "tiercel").is_dir() and folder.is_dir():
            files = sorted(p for p in folder.glob("*.py") if not p.name.startswith("_"))
            if files:
                return {p.stem: p for p in files}
    return {}


def _about(name: str, scripts: Mapping[str, Path]) -> str:
    """The title of a case, or the first sentence of a script's docstring."""
    if name in CASES:
        return CASES[name].title
    try:
        text = ast.get_docstring(ast.parse(scripts[name].read_text(encoding="utf-8"))) or ""
    except SyntaxError:
        return ""
    return text.partition("\n")[0]
