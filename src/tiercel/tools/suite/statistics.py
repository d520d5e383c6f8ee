"""Numbers made of times: medians, a range for the median of ratios, percentiles, geometric means.

In: lists of seconds. Out: numbers. The clock of a shared machine wanders, so nothing is compared but neighbours of the
same round, and what is reported is the median of such ratios. Its range is that of order statistics: of n independent
ratios, the k-th smallest and the k-th largest enclose the true median with a confidence that the binomial distribution
gives, whatever the distribution of the ratios.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

__all__ = ["Ratio", "geometric_mean", "median", "percentile", "ratio_of_rounds"]

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of ratios, and the range that holds the true median with 95% confidence (all of them if few)."""

    value: float
    low: float
    high: float


def ratio_of_rounds(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Return ours / theirs, pair by pair. Rounds that only one of them has are left out.

    Raises:
        ValueError: there is no pair.
    """
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=False))
    if not ratios:
        raise ValueError("no rounds to compare")
    k = _order(len(ratios))
    return Ratio(median(ratios), ratios[k], ratios[-1 - k])


def _order(count: int) -> int:
    """The largest k for which the k-th from both ends (from 0) still enclose the median with 95% confidence, or 0."""
    found, outside = 0, 0.0
    for k in range((count + 1) // 2):
        outside += 2 * math.comb(count, k) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        found = k
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def geometric_mean(values: Iterable[float]) -> float:
    """Return it; NaN of nothing."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan
