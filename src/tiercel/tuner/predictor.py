"""Which ways of carrying a product out are likely to be fast, learned from what this machine has measured.

In: rows (product, point, nanoseconds), later a product and its points. Out: the points in the order of their expected
times, and the few that are worth measuring.

The model: the logarithm of (time / guess), with the guess of `space`, is a linear function of `space.features`, fitted
by ridge regression (Hoerl and Kennard, Technometrics 12, 1970) with weights: rows of the same kind of product count
most, others for less. Times of one product are compared only with one another (their mean is taken off, from features
too): how fast the machine was that day does not matter. What the line does not explain is carried over from close
sizes: the residuals of the same point, weighted by distance in octaves of m, n and k (Nadaraya, Theory Probab. Appl. 9,
1964). Nothing was measured: the guess ranks.

Of the points to be measured most are the expected fastest; the last quarter is where a time far below the expected is
still possible (mean less some standard deviations of the posterior, updated after each pick as if it were known), so
that a wrong rule is found out. Deterministic: the same history gives the same points.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tiercel.codegen.cpu.choice import Point
from tiercel.codegen.cpu.target import Target
from tiercel.tuner.space import Product, features, guess_ns

__all__ = ["MAX_ROWS", "Predictor", "Row"]

MAX_ROWS: Final = 3000
"""Rows that are kept: the newest."""
_NOISE: Final = 0.03
"""Standard deviation of the logarithm of a time."""
_PRIOR: Final = 0.25
"""Standard deviation of what a feature may change."""
_KINDS: Final = (1.0, 0.3, 0.05)
"""Weight of rows of the same kind, of kinds that lie alike and have as many threads, of others."""
_OCTAVES: Final = 0.6
"""Distance of sizes at which a residual counts for 0.6 of its weight."""
_SHRINK: Final = 0.4
_EXPLORED: Final = 4
"""One in so many picks explores."""
_DEVIATIONS: Final = 2.0


class Row(NamedTuple):
    """A measurement."""

    product: Product
    point: Point
    ns: float


class Predictor:
    """See the module docstring."""

    def __init__(self, target: Target, rows: Iterable[Row] = ()) -> None:
        self.target = target
        self._rows: dict[tuple[Product, Point], float] = {}
        self._features: dict[tuple[Product, Point], npt.NDArray[np.float64]] = {}
        self._models: dict[tuple[str, str, bool, int], _Model | None] = {}
        self.learn(rows)

    @property
    def rows(self) -> list[Row]:
        """What is known, the oldest first."""
        return [Row(*key, ns) for key, ns in self._rows.items()]

    def learn(self, rows: Iterable[Row]) -> None:
        """Take measurements in; a newer time of the same product and point replaces the older one."""
        for row in rows:
            key = (row.product, row.point)
            self._rows.pop(key, None)
            if row.ns > 0 and math.isfinite(row.ns):
                self._rows[key] = row.ns
        while len(self._rows) > MAX_ROWS:
            oldest = next(iter(self._rows))
            del self._rows[oldest]
            self._features.pop(oldest, None)
        self._models.clear()

    def rank(self, product: Product, points: Sequence[Point]) -> list[Point]:
        """The points, the expected fastest first."""
        means, _, _ = self._predict(product, points)
        return [points[i] for i in np.argsort(means, kind="stable")]

    def choose(self, product: Product, points: Sequence[Point], count: int, given: Sequence[Point] = ()) -> list[Point]:
        """The points to measure.

        Args:
            product: what is to be measured.
            points: from which to choose.
            count: at most so many, `given` ones counted.
            given: that are measured in any case.
        """
        chosen = list(dict.fromkeys(given))[:count]
        means, known, inverse = self._predict(product, points)
        index = {point: i for i, point in enumerate(points)}
        best = int(np.argmin(means))
        spread = known - known[best]  # of the difference to the expected best
        order = [points[i] for i in np.argsort(means, kind="stable")]
        wanted = min(count, len(points))
        explored = max(1, wanted // _EXPLORED) if wanted > 2 else 0
        for point in order:
            if len(chosen) >= wanted - explored:
                break
            if point not in chosen:
                chosen.append(point)
        for point in chosen:
            if point in index:
                inverse = _knowing(inverse, spread[index[point]])
        while len(chosen) < wanted:
            deviations = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", spread, inverse, spread), 0.0))
            hopes = means - _DEVIATIONS * deviations
            pick = next(points[i] for i in np.argsort(hopes, kind="stable") if points[i] not in chosen)
            chosen.append(pick)
            inverse = _knowing(inverse, spread[index[pick]])
        return chosen

    def expected_ns(self, product: Product, point: Point) -> float:
        """What a product takes, roughly: for how long to run it."""
        return guess_ns(product, point, self.target)

    def _predict(
        self, product: Product, points: Sequence[Point]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(expected logarithms of times, up to a common one; features; covariance of the coefficients)."""
        known = features(product, points, self.target)
        means = np.log([guess_ns(product, point, self.target) for point in points])
        model = self._model(product.kind)
        size = known.shape[1]
        if model is None:
            return means, known, np.eye(size) * _PRIOR**2
        means = means + known @ model.coefficients + model.carried_over(product, points)
        return means, known, model.covariance

    def _model(self, kind: tuple[str, str, bool, int]) -> _Model | None:
        if kind not in self._models:
            self._models[kind] = self._fit(kind)
        return self._models[kind]

    def _fit(self, kind: tuple[str, str, bool, int]) -> _Model | None:
        groups: dict[Product, list[tuple[Point, float]]] = {}
        for (product, point), ns in self._rows.items():
            groups.setdefault(product, []).append((point, ns))
        xs, ys, weights, where = [], [], [], []
        for product, measured in groups.items():
            if len(measured) < 2:
                continue
            missing = [point for point, _ in measured if (product, point) not in self._features]
            if missing:
                for point, values in zip(missing, features(product, missing, self.target), strict=True):
                    self._features[product, point] = values
            x = np.array([self._features[product, point] for point, _ in measured])
            y = np.array([math.log(ns / guess_ns(product, point, self.target)) for point, ns in measured])
            xs.append(x - x.mean(axis=0))
            ys.append(y - y.mean())
            weights.append(np.full(len(y), _weight(product.kind, kind)))
            where += [(product, point) for point, _ in measured]
        if not xs:
            return None
        x, y, w = np.concatenate(xs), np.concatenate(ys), np.concatenate(weights)
        scaled = x * w[:, None] / _NOISE**2
        covariance = np.linalg.inv(scaled.T @ x + np.eye(x.shape[1]) / _PRIOR**2)
        coefficients = covariance @ (scaled.T @ y)
        left = y - x @ coefficients
        near: dict[Point, list[tuple[Product, float]]] = {}
        for (product, point), residual in zip(where, left, strict=True):
            if product.kind == kind:
                near.setdefault(point, []).append((product, float(residual)))
        return _Model(coefficients, covariance, near)


class _Model(NamedTuple):
    coefficients: npt.NDArray[np.float64]
    covariance: npt.NDArray[np.float64]
    residuals: dict[Point, list[tuple[Product, float]]]

    def carried_over(self, product: Product, points: Sequence[Point]) -> npt.NDArray[np.float64]:
        """What close sizes add to the line, by point."""
        found = np.zeros(len(points))
        for i, point in enumerate(points):
            rows = self.residuals.get(point)
            if rows:
                nearness = np.array([_nearness(product, other) for other, _ in rows])
                found[i] = float(nearness @ np.array([r for _, r in rows]) / (nearness.sum() + _SHRINK))
        return found


def _nearness(a: Product, b: Product) -> float:
    octaves = sum(math.log2(max(1, x) / max(1, y)) ** 2 for x, y in ((a.m, b.m), (a.n, b.n), (a.k, b.k)))
    return math.exp(-octaves / (2 * _OCTAVES**2))


def _weight(a: tuple[str, str, bool, int], b: tuple[str, str, bool, int]) -> float:
    if a == b:
        return _KINDS[0]
    alike = a[1] == b[1] and (a[3] > 1) == (b[3] > 1)
    return _KINDS[1] if alike else _KINDS[2]


def _knowing(covariance: npt.NDArray[np.float64], x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The covariance once a value at x is known (Sherman and Morrison, Ann. Math. Stat. 21, 1950)."""
    along = covariance @ x
    return covariance - np.outer(along, along) / (_NOISE**2 + float(x @ along))
