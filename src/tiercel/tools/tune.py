"""`tiercel tune SCRIPT.py`: runs a script, then measures the products of matrices it computed, so that later runs begin
with the fastest ways.

In: a script with its arguments, or `-m module`. Out: what the script prints, then how its products are carried out from
now on and what that gains. What was measured is kept in the folder of the kernel cache; every program of this user that
computes the same products uses it. Measuring happens in this process, when the script is over.

Whoever interrupts it keeps what was measured until then. The exit code is the script's own if it failed (then nothing
is measured), 130 after an interruption.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TextIO

from tiercel.api.process import keep_all
from tiercel.config import current, set_context
from tiercel.errors import TiercelError
from tiercel.hotpath.cache import tuning_key
from tiercel.hotpath.processors import available_threads
from tiercel.hotpath.service import service
from tiercel.tools.explain import run_script
from tiercel.tuner.winners import read_winners
from tiercel.vm.render import columns, format_time
from tiercel.vm.tuning import products_of

if TYPE_CHECKING:
    from tiercel.api import JitFunction
    from tiercel.tuner.session import Demand, Tuned

__all__ = ["Bar", "add_arguments", "collect", "report", "run"]

_BAR: Final = 24
_WAIT_S: Final = 60.0
_REST_S: Final = 0.1
"""Before measuring: thread pools of libraries that the script used spin after their last work."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Run a script, then measure the products of matrices it computed. The fastest ways are kept in the folder of "
        "the kernel cache (`tiercel cache list` names it), and every later process of yours that computes a product "
        "of the same n and k uses them by itself, unless the setting tune is off. `tiercel cache clear --tuning` "
        "forgets them."
    )
    parser.add_argument(
        "-m", dest="module", action="store_true", help="the script is the name of a module, as in python -m"
    )
    parser.add_argument(
        "--budget", type=_seconds, default=10.0, metavar="S", help="seconds for measuring (default: 10)"
    )
    parser.add_argument("--exhaustive", action="store_true", help="measure every way, not the 8 most promising ones")
    parser.add_argument("script", help="the script to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script gets as its arguments")


def run(options: argparse.Namespace) -> int:
    """Run the script, measure, print what was found."""
    set_context(tune="use")  # here it is measured at once, when nothing else runs
    with keep_all() as found:
        code, namespace = run_script(options.script, options.arguments, module=options.module)
    if code:
        print(f"tiercel: the script ended with exit code {code}: nothing is tuned", file=sys.stderr)
        return code
    demands = collect(found)
    del namespace  # until here the script's globals were alive, as its functions need them
    if not demands:
        raise TiercelError(f"{options.script}: {_nothing(found)}")
    return _measure(demands, options.budget, 0 if options.exhaustive else None)


def _nothing(states: list[JitFunction]) -> str:
    """Why there is nothing to tune."""
    if not states:
        return "nothing to tune, because nothing is decorated with tc.jit"
    if not any(state.stats()["compiled_calls"] for state in states):
        return "nothing to tune, because no function was compiled (`tiercel explain` tells why; `f.warmup` compiles)"
    return "nothing to tune, because no compiled function has a product of matrices of known size"


def collect(states: Iterable[JitFunction]) -> list[Demand]:
    """The products of compiled functions with the sizes they were seen with, the most work first."""
    from tiercel.codegen.cpu.target import Target
    from tiercel.tuner.session import Demand

    target = Target.host()
    threads = current().threads or available_threads().threads
    rows: dict[str, Counter[int]] = {}
    work: Counter[str] = Counter()
    products: dict[str, list[Any]] = {}
    for state in states:
        state.wait(_WAIT_S)
        tiers = state.tiers
        for signature in [] if tiers is None else list(tiers.signatures.values()):
            for variant in signature.variants:
                if variant.entry is None or variant.lowered is None or variant.region is None:
                    continue
                seen = variant.tuning.sizes or {tuple(sorted(variant.region.sample.items())): 1}
                for sizes, count in seen.items():
                    for site in products_of(variant.lowered.function, dict(sizes), threads):
                        m, n, k = site.product[3:6]
                        rows.setdefault(site.key, Counter())[m] += count * site.times
                        work[site.key] += 2 * m * n * k * site.times * count
                        products[site.key] = site.product
    return [
        Demand.from_data([products[key], list(rows[key].items()), None], target) for key, _ in work.most_common()
    ]  # fmt: skip


def _measure(demands: list[Demand], budget_s: float, most_points: int | None) -> int:
    from tiercel.hotpath.jobs import tuned_products

    cache = service().cache
    folder = cache.folder if cache.place in ("disk", "temporary") else None
    results: list[Tuned] = []
    bar = Bar(sys.stderr)
    code = 0
    time.sleep(_REST_S)
    told: dict[str, Any] = {"messages": []}
    try:
        told = tuned_products(
            demands, folder, tuning_key(), budget_s, most_points=8 if most_points is None else most_points,
            progress=bar.show, finished=results.append,
        )  # fmt: skip
    except KeyboardInterrupt:
        code = 130
    bar.clear()
    for message in told["messages"]:
        print(f"tiercel: {message}", file=sys.stderr)
    sys.stdout.flush()
    print("\n".join(["", *report(results, len(demands), interrupted=code == 130)]))
    keys = {tuned.demand.key for tuned in results if tuned.quiet}
    if folder is not None and cache.place == "disk" and keys & read_winners(folder, tuning_key(), _silent).keys():
        print(f"Kept in {folder}; later processes use it by themselves (TIERCEL_TUNE=off: they do not).")
    if cache.place != "disk":
        print(f"tiercel: not kept for later programs: {cache.reason}", file=sys.stderr)
    return code


def _silent(message: str) -> None:
    """For what was told already."""


def report(results: list[Tuned], wanted: int, *, interrupted: bool = False) -> list[str]:
    """The lines of the table, and what to say below it."""
    out = []
    if results:
        rows = [["product", "rows", "before", "now", "gain", "regret", "how"]]
        for tuned in results:
            rows += _rows(tuned)
        out += columns(rows, right=(2, 3, 4, 5), indent="")
        gains = [tuned.gain for tuned in results if tuned.quiet]
        mean = (
            f"; geometric mean of the gains {math.exp(sum(map(math.log, gains)) / len(gains)) - 1:.1%}" if gains else ""
        )
        measured = sum(len(times) for tuned in results for times in tuned.tried.values())
        usual = "Before: what is usual where nothing was measured."
        out += ["", f"{measured} times were taken{mean}. {usual}"]
        if gains:
            what = "how much slower than the fastest way measured (in brackets: that of the way expected to be it)"
            out.append(f"Regret: {what}.")
            out.append(
                "What is tuned is a pair of n and k, for any rows; products of other n and k keep the usual way."
            )
    busy = sum(not tuned.quiet for tuned in results)
    again = "run again when the machine is idle"
    if busy and busy == len(results):
        out.append(f"Warning: other work disturbed every measurement, so nothing was tuned: {again}.")
    elif busy:
        out.append(f"Disturbed: {busy} of {len(results)} products, by other work; they stay as they are: {again}.")
    if len(results) < wanted:
        why = "it was interrupted" if interrupted else "the budget was used up; --budget gives more"
        out.append(f"{wanted - len(results)} of {wanted} products were not measured: {why}.")
    return out


def _rows(tuned: Tuned) -> list[list[str]]:
    """One line for each number of rows measured."""
    found: list[list[str]] = []
    picked, _ = tuned.regret
    for m, times in sorted(tuned.tried.items()):
        point, before = tuned.choice.point(m), times[tuned.demand.present.point(m)]
        now, best = times[point], min(times.values())
        gain, regret = f"{before / now - 1:.1%}", f"{now / best - 1:.1%}" + ("" if found else f" ({picked:.1%})")
        if not tuned.quiet:
            gain, regret = "disturbed", ""  # the times compare nothing
        key = "" if found else tuned.demand.key
        found.append([key, str(m), format_time(before), format_time(now), gain, regret, str(point)])
    return found


class Bar:
    """Progress on a terminal, in one line that the next one overwrites; nothing elsewhere."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._began = clock()

    def show(self, done: int, total: int, what: str) -> None:
        """So many of so many are done, and this is next."""
        if self._stream.isatty():
            full = _BAR * done // max(total, 1)
            bar = "#" * full + "." * (_BAR - full)
            spent = self._clock() - self._began
            print(
                f"\r\033[K[{bar}] {done} of {total} products, {spent:.1f} s  {what}",
                end="",
                file=self._stream,
                flush=True,
            )

    def clear(self) -> None:
        """Leave an empty line."""
        if self._stream.isatty():
            print("\r\033[K", end="", file=self._stream, flush=True)


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"a number of seconds above 0 is needed, such as 10 or 0.5, not {text!r}")
    return number
