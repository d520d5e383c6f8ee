"""Measuring under a budget: from a product with the numbers of rows it was seen with to what is done from now on.

In: `Demand`s, a `Predictor`, a function that takes times, a budget. Out: `Tuned`, one a demand: the choice, everything
that was tried with its time, how much better the choice is than what was done before, and the regret (how much slower
than the best measured way the predictor's first pick was, and the choice is).

At most `MAX_POINTS` points are measured for a demand, the same for all its numbers of rows (`MAX_ROWS_SEEN`, spread
over what was seen by weight): the present way, the expected fastest for each number in turn, some to explore. Runs of
all points alternate; a time is the least of the runs in which nothing else had the processor. What lies behind after
two runs by more than a third is not run again. The budget is looked at between runs: whatever was measured by then
decides, and a demand for which nothing was is left out.

Where the best ways for different numbers of rows differ, the range is split: fewest parts such that within each one way
is within `MARGIN` of the best at every number measured. Between two numbers the boundary is their geometric mean.
"""

from __future__ import annotations

import itertools
import math
import time as clock_
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from tiercel.codegen.cpu.choice import Choice, Part, Point, usual
from tiercel.codegen.cpu.target import Target
from tiercel.tuner.predictor import Predictor, Row
from tiercel.tuner.space import Product, points

__all__ = ["LEAST_GAIN", "MARGIN", "MAX_POINTS", "MAX_ROWS_SEEN", "Demand", "Tuned", "tune", "typical_rows"]

MAX_POINTS: Final = 8
MAX_ROWS_SEEN: Final = 4
MARGIN: Final = 0.03
"""A range is split where one way for all of it would be slower than the best by more than this."""
LEAST_GAIN: Final = 1.02
"""What is done now stays unless something else is faster by this factor over all numbers of rows."""
_ROUNDS: Final = 6
_RARE: Final = 0.02
"""Share of the calls below which a number of rows is left out."""
_DROPPED: Final = 1.33
_DROP_AFTER: Final = 2


class Timed(Protocol):
    """A run, see `measure.Timed`."""

    @property
    def ns(self) -> float:
        """Of one product."""

    @property
    def disturbed(self) -> bool:
        """Whether something else had the processor."""

    @property
    def starved(self) -> bool:
        """Whether threads had to wait for processors in the runs so far."""


Time = Callable[[Product, Point, float], Timed]


@dataclass(frozen=True, slots=True)
class Demand:
    """A product to be tuned.

    Attributes:
        product: with any number of rows.
        rows: the numbers of rows it was seen with, and how often.
        present: what is done now.
    """

    product: Product
    rows: Mapping[int, float]
    present: Choice

    @property
    def key(self) -> str:
        """What its result is kept under: all but the rows."""
        p = self.product
        return f"{p.dtype} {p.layout}{' epilogue' if p.epilogue else ''} n{p.n} k{p.k} t{p.threads}"

    def to_data(self) -> list[Any]:
        """The plain form."""
        return [list(self.product), [[m, weight] for m, weight in self.rows.items()], self.present.to_data()]

    @classmethod
    def from_data(cls, data: Any, target: Target) -> Demand:
        """Read the plain form; instead of the present way None stands for what is usual.

        Raises:
            ValueError, TypeError: it is none.
        """
        product, rows, present = data
        made = Product(*product)
        if present is None:
            choice = Choice.always(usual(target, packed=made.layout == "packed"))
        else:
            choice = Choice.from_data(present, target)
        return cls(made, {int(m): float(w) for m, w in rows}, choice)


@dataclass(slots=True)
class Tuned:
    """What came of a demand.

    Attributes:
        demand: what was asked.
        choice: what to do from now on.
        tried: by number of rows, nanoseconds of a product by point.
        picks: by number of rows, what the predictor expected to be fastest.
        complete: whether all that was to be measured was.
        quiet: whether there were runs in which nothing else had the processors. If not, the choice is the present one.
    """

    demand: Demand
    choice: Choice
    tried: dict[int, dict[Point, float]] = field(default_factory=dict)
    picks: dict[int, Point] = field(default_factory=dict)
    complete: bool = True
    quiet: bool = True

    @property
    def gain(self) -> float:
        """Time of what was done before by that of the choice, over the rows measured, by weight."""
        before, after = self._total(self.demand.present), self._total(self.choice)
        return before / after if after else 1.0

    @property
    def regret(self) -> tuple[float, float]:
        """(of the predictor's pick where that was measured, of the choice): the worst excess over the best measured."""
        picked = chosen = 0.0
        for m, times in self.tried.items():
            best = min(times.values())
            pick = self.picks.get(m)
            picked = max(picked, times[pick] / best - 1) if pick in times else picked
            chosen = max(chosen, times[self.choice.point(m)] / best - 1)
        return picked, chosen

    def _total(self, choice: Choice) -> float:
        weights = _weights(self.demand.rows, list(self.tried))
        return sum(weights[m] * times[choice.point(m)] for m, times in self.tried.items())

    def to_data(self) -> dict[str, Any]:
        """The plain form, for reports and the store."""
        picked, chosen = self.regret
        return {
            "key": self.demand.key,
            "choice": self.choice.to_data(),
            "present": self.demand.present.to_data(),
            "gain": self.gain,
            "regret": [picked, chosen],
            "tried": [[m, [[list(p), ns] for p, ns in sorted(t.items(), key=lambda x: x[1])]] for m, t in
                      sorted(self.tried.items())],
            "picks": [[m, list(p)] for m, p in sorted(self.picks.items())],
            "complete": self.complete, "quiet": self.quiet,
        }  # fmt: skip


def typical_rows(rows: Mapping[int, float], most: int = MAX_ROWS_SEEN) -> list[int]:
    """Numbers of rows that stand for all, ascending: the least, the largest, and between them what is nearest to equal
    ratios. What is rarer than `_RARE` counts only if nothing is more frequent.
    """
    seen = {m: w for m, w in rows.items() if m > 0 and w > 0}
    total = sum(seen.values())
    frequent = sorted(m for m, w in seen.items() if w >= _RARE * total) or sorted(seen)
    if len(frequent) <= most:
        return frequent
    low, high = math.log(frequent[0]), math.log(frequent[-1])
    wanted = [low + (high - low) * i / (most - 1) for i in range(most)]
    return sorted({min(frequent, key=lambda m: abs(math.log(m) - x)) for x in wanted})


def tune(
    demands: Sequence[Demand],
    predictor: Predictor,
    time: Time,
    *,
    budget_s: float,
    most_points: int = MAX_POINTS,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
    clock: Callable[[], float] = clock_.monotonic,
    finished: Callable[[Tuned], None] = lambda tuned: None,
) -> list[Tuned]:
    """Measure and choose.

    Args:
        demands: the most important first.
        predictor: ranks points; learns what is measured.
        time: takes a time, see `measure.Bench.time`.
        budget_s: for everything; a demand may use an equal share of what is left.
        most_points: 0 for all there are.
        progress: told how many of how many demands are done, and what is being measured.
        clock: seconds.
        finished: told of each result at once, so that whoever interrupts what follows keeps it.
    """
    end, results = clock() + budget_s, []
    for number, demand in enumerate(demands):
        now = clock()
        if now >= end:
            break
        progress(number, len(demands), demand.key)
        share = now + (end - now) / (len(demands) - number)
        tuned = _tune(demand, predictor, time, share, most_points, clock)
        if tuned is not None:
            results.append(tuned)
            finished(tuned)
    progress(len(demands), len(demands), "")
    return results


def _tune(
    demand: Demand, predictor: Predictor, time: Time, end: float, most_points: int, clock: Callable[[], float]
) -> Tuned | None:
    products = {m: demand.product._replace(m=m) for m in typical_rows(demand.rows)}
    if not products:
        return None
    target = predictor.target
    picks = {m: predictor.rank(p, points(p, target))[0] for m, p in products.items()}
    chosen = _candidates(demand, products, predictor, most_points)
    tried: dict[int, dict[Point, float]] = {}
    complete = quiet = True
    for count, (m, product) in enumerate(products.items()):
        now = clock()
        part = now + (end - now) / (len(products) - count)
        times, whole, alone = _race(product, chosen, time, predictor, part, clock)
        complete, quiet = complete and whole, quiet and alone
        tried[m] = times
    if not quiet:
        return Tuned(demand, demand.present, tried, picks, complete, quiet)
    predictor.learn(
        Row(products[m], point, ns) for m, times in tried.items() for point, ns in times.items()
        if point in set(points(products[m], target))
    )  # fmt: skip
    tuned = Tuned(demand, _best_choice(tried, _weights(demand.rows, list(tried))), tried, picks, complete)
    if tuned.gain < LEAST_GAIN:
        tuned.choice = demand.present
    return tuned


def _candidates(demand: Demand, products: Mapping[int, Product], predictor: Predictor, most_points: int) -> list[Point]:
    """The points to measure, the present ones first."""
    target = predictor.target
    present = list(dict.fromkeys(demand.present.point(m) for m in products))
    spaces = {m: points(p, target) for m, p in products.items()}
    if not most_points:
        return list(dict.fromkeys([*present, *(p for space in spaces.values() for p in space)]))
    orders = [
        iter(predictor.choose(products[m], spaces[m], most_points, [p for p in present if p in spaces[m]]))
        for m in sorted(products, key=lambda m: -demand.rows.get(m, 0.0) * m)
    ]
    chosen = dict.fromkeys(present[:most_points])
    for point in itertools.chain.from_iterable(itertools.zip_longest(*orders)):
        if len(chosen) >= most_points:
            break
        if point is not None:
            chosen.setdefault(point)
    return list(chosen)


def _race(
    product: Product, chosen: Sequence[Point], time: Time, predictor: Predictor, end: float, clock: Callable[[], float]
) -> tuple[dict[Point, float], bool, bool]:
    """(the least time of each point, whether all rounds were run, whether the first point was ever undisturbed).

    The first point is what the others are compared with. A point that was disturbed every time has no time then.
    """
    time(product, chosen[0], 0.0)
    expected = time(product, chosen[0], predictor.expected_ns(product, chosen[0])).ns
    undisturbed: dict[Point, float] = {}
    anyhow: dict[Point, float] = {}
    starved = False

    def outcome(complete: bool) -> tuple[dict[Point, float], bool, bool]:
        alone = chosen[0] in undisturbed and not starved
        return (undisturbed if alone else anyhow), complete, alone

    for round_ in range(_ROUNDS):
        best = min(undisturbed.values(), default=math.inf)
        start = round_ * 3 % len(chosen)
        for point in (*chosen[start:], *chosen[:start]):
            if round_ >= _DROP_AFTER and anyhow[point] > _DROPPED * best:
                continue
            if round_ and clock() >= end:
                return outcome(False)
            timed = time(product, point, expected)
            starved = timed.starved
            anyhow[point] = min(anyhow.get(point, math.inf), timed.ns)
            if not timed.disturbed:
                undisturbed[point] = min(undisturbed.get(point, math.inf), timed.ns)
    return outcome(True)


def _weights(rows: Mapping[int, float], measured: Sequence[int]) -> dict[int, float]:
    """What each number of rows measured stands for: the weight of those it is nearest to, by ratio."""
    found = dict.fromkeys(measured, 1e-9)
    for m, weight in rows.items():
        if m > 0 and measured:
            found[min(measured, key=lambda x: abs(math.log(x / m)))] += weight
    return found


def _best_choice(tried: Mapping[int, Mapping[Point, float]], weights: Mapping[int, float]) -> Choice:
    """The fastest overall: what is the same for all rows by the sum of the times, then the fewest parts."""
    sizes = sorted(tried)
    fixed = {point.fixed for times in tried.values() for point in times}

    def total(one: tuple[int, str]) -> float:
        return sum(
            weights[m] * min((ns for p, ns in tried[m].items() if p.fixed == one), default=math.inf) for m in sizes
        )

    best = min(sorted(fixed), key=total)
    times = {m: {p: ns for p, ns in tried[m].items() if p.fixed == best} for m in sizes}
    parts = _split(times, weights)
    made = []
    for number, (last, point) in enumerate(parts):
        after = sizes.index(last) + 1
        upto = None if number == len(parts) - 1 else int(math.sqrt(last * sizes[after]))
        made.append(Part(upto, *point[2:]))
    return Choice(*best, tuple(made))


def _split(times: Mapping[int, Mapping[Point, float]], weights: Mapping[int, float]) -> list[tuple[int, Point]]:
    """(the last number of rows, the point) of each part: the fewest parts, then the least time."""
    sizes = sorted(times)
    least = {m: min(t.values()) for m, t in times.items()}
    # costs[i]: of the best cut of the first i sizes: (parts, time, the parts)
    costs: list[tuple[int, float, list[tuple[int, Point]]]] = [(0, 0.0, [])]
    for end in range(1, len(sizes) + 1):
        found: tuple[int, float, list[tuple[int, Point]]] | None = None
        for start in range(end):
            part = sizes[start:end]
            common = [p for p in times[part[0]] if all(p in times[m] for m in part)]
            fit = [p for p in common if all(times[m][p] <= (1 + MARGIN) * least[m] for m in part)]
            for point in fit:
                parts, spent, made = costs[start]
                spent += sum(weights[m] * times[m][point] for m in part)
                if found is None or (parts + 1, spent) < found[:2]:
                    found = (parts + 1, spent, [*made, (part[-1], point)])
        assert found is not None  # each size by itself has a point that is its best
        costs.append(found)
    return costs[-1][2]
