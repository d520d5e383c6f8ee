"""The coefficients of `codegen.cpu.mathematics`: fits and their errors, `python benchmarks/minimax.py [name...]`.

Needs mpmath (not a dependency of the package). A fit is near minimax: least squares on Chebyshev nodes, weighted again
and again with its own error (C. Lawson, "Contributions to the theory of linear least maximum approximation", 1961).
Coefficients are rounded to their dtype one by one, lowest power first, and the others fitted again, so that they make
up for what was rounded away. "ideal" is the error before rounding, both as powers of two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np

mp.mp.dps = 70
Number = Any
Real = Callable[[Number], Number]

TINY = mp.mpf(10) ** -9


@dataclass(frozen=True)
class Fit:
    """Minimise weight(t) * |target(t) - polynomial(t)| on an interval.

    Attributes:
        name: the table in the source.
        target: what is approximated.
        terms: number of coefficients.
        interval: both ends.
        weight: the inverse of the unit the error is measured in.
        single: round to float32, else to float64.
    """

    name: str
    target: Real
    terms: int
    interval: tuple[Number, Number]
    weight: Real
    single: bool


def solve(values: list[Number], powers: list[list[Number]], weights: list[Number], rounds: int) -> tuple[Any, Number]:
    """Weighted least squares, reweighted; the coefficients with the least largest error."""
    terms, nodes = len(powers[0]), len(values)
    own = [mp.mpf(1)] * nodes
    best: tuple[Any, Number] | None = None
    for _ in range(rounds):
        matrix, right = mp.matrix(terms, terms), mp.matrix(terms, 1)
        for k in range(nodes):
            w = own[k] * weights[k] ** 2
            for i in range(terms):
                right[i] += w * powers[k][i] * values[k]
                for j in range(i, terms):
                    matrix[i, j] += w * powers[k][i] * powers[k][j]
        for i in range(terms):
            for j in range(i):
                matrix[i, j] = matrix[j, i]
        c = mp.lu_solve(matrix, right)
        errors = [
            abs(weights[k] * (values[k] - mp.fsum(c[j] * powers[k][j] for j in range(terms)))) for k in range(nodes)
        ]
        largest = max(errors)
        if best is None or largest < best[1]:
            best = ([c[j] for j in range(terms)], largest)
        total = mp.fsum(e * o for e, o in zip(errors, own, strict=True))
        if total == 0:
            break
        own = [max(e * o * nodes / total, mp.mpf(10) ** -12) for e, o in zip(errors, own, strict=True)]
    assert best is not None
    return best


def coefficients(fit: Fit) -> tuple[list[float], float, float]:
    """(coefficients, highest power first; log2 of the error before and after rounding)."""
    low, high = (mp.mpf(v) for v in fit.interval)
    nodes = 5 * fit.terms + 11
    ts = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * nodes)) for k in range(nodes)]
    ts = [t if abs(t) > TINY else TINY for t in ts]
    values, weights = [fit.target(t) for t in ts], [fit.weight(t) for t in ts]
    rounding = np.float32 if fit.single else np.float64
    done: list[float] = []
    ideal = None
    for power in range(fit.terms):
        powers = [[t**p for p in range(power, fit.terms)] for t in ts]
        c, error = solve(values, powers, weights, 12 if not done else 4)
        ideal = error if ideal is None else ideal
        done.append(float(rounding(float(c[0]))))
        values = [v - mp.mpf(done[-1]) * t**power for v, t in zip(values, ts, strict=True)]
    rounded = max(abs(w * v) for w, v in zip(weights, values, strict=True))
    return done[::-1], float(mp.log(ideal, 2)), float(mp.log(rounded, 2))


def of_square(function: Real) -> Real:
    """A function of t**2."""
    return lambda z: function(mp.sqrt(z))


def fits() -> Iterator[Fit]:
    """All of them."""
    half_ln2, quarter_pi = mp.log(2) / 2 * mp.mpf("1.001"), mp.pi / 4 * mp.mpf("1.01")
    exp_rest: Real = lambda r: (mp.expm1(r) - r) / r**2  # noqa: E731
    yield Fit("exponential._EXP32", exp_rest, 5, (-half_ln2, half_ln2), lambda r: r * r, True)
    yield Fit("exponential._EXP64", exp_rest, 10, (-half_ln2, half_ln2), lambda r: r * r, False)
    for name, terms, single in (("_EXPM1_32", 6, True), ("_EXPM1_64", 11, False)):
        yield Fit(f"exponential.{name}", exp_rest, terms, (-0.5, 0.5), lambda r: r * r / mp.expm1(r), single)
    exp2: Real = lambda r: mp.expm1(r * mp.log(2)) / r  # noqa: E731
    for name, terms, single in (
        ("exponential._EXP2_32", 6, True),
        ("exponential.EXP2_64", 11, False),
        ("power._EXP2", 6, False),
    ):
        yield Fit(name, exp2, terms, (-0.5, 0.5), lambda r: r, single)

    largest_s = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mp.mpf("1.001")
    yield Fit(
        "logarithm._LOG64",
        of_square(lambda s: (mp.log1p(s) - mp.log1p(-s) - 2 * s) / s**3),
        7,
        (TINY, largest_s),
        lambda z: z / 2,
        False,
    )
    atanh: Real = of_square(lambda s: (mp.atanh(s) / s - 1 - s * s / 3) / s**4)
    yield Fit("power._ATANH", atanh, 7, (TINY / 10, largest_s), lambda z: z * z, False)
    log2: Real = lambda f: mp.log1p(f) / f / mp.log(2)  # noqa: E731
    yield Fit("power._LOG2", log2, 13, (mp.sqrt(0.5) - 1, mp.sqrt(2) - 1), lambda f: 1 / log2(f), False)

    sine: Real = of_square(lambda r: (mp.sin(r) - r) / r**3)
    sine_unit: Real = of_square(lambda r: r**3 / mp.sin(r))
    cosine: Real = of_square(lambda r: (mp.cos(r) - 1 + r * r / 2) / r**4)
    cosine_unit: Real = of_square(lambda r: r**4 / mp.cos(r))
    for terms, single, suffix in ((3, True, "32"), (6, False, "64")):
        yield Fit(f"circular._SIN_{suffix}", sine, terms, (TINY, quarter_pi**2), sine_unit, single)
        yield Fit(f"circular._COS_{suffix}", cosine, terms, (TINY, quarter_pi**2), cosine_unit, single)

    eighth = (mp.sqrt(2) - 1) ** 2 * mp.mpf("1.001")
    for terms, single, suffix in ((5, True, "32"), (11, False, "64")):
        arctan: Real = of_square(lambda r: (mp.atan(r) - r) / r**3)
        yield Fit(
            f"inverse._ATAN_{suffix}",
            arctan,
            terms,
            (10 * TINY, eighth),
            of_square(lambda r: r**3 / mp.atan(r)),
            single,
        )
    for terms, single, suffix in ((5, True, "32"), (12, False, "64")):
        arcsin: Real = of_square(lambda r: (mp.asin(r) - r) / r**3)
        yield Fit(
            f"inverse._ASIN_{suffix}", arcsin, terms, (10 * TINY, 0.25), of_square(lambda r: r**3 / mp.asin(r)), single
        )

    near: Real = of_square(lambda r: mp.erf(r) / r - 1)
    yield Fit("error._NEAR_64", near, 12, (TINY, 1), of_square(lambda r: r / mp.erf(r)), False)
    yield Fit("error._FAR_64", lambda t: mp.log(mp.erfc(t)) / t, 18, (1, 6), lambda t: t * mp.erfc(t), False)
    for k, end, terms, single, suffix in ((2, 10.06, 10, True, "32"), (4, 27.3, 22, False, "64")):

        def scaled(q: Number, k: int = k) -> Number:
            a = k * (1 + q) / (1 - q)
            return (1 + 2 * a) * mp.exp(a * a) * mp.erfc(a)

        yield Fit(
            f"error._COMPLEMENT_{suffix}",
            lambda q, f=scaled: f(q) - 1,
            terms,
            (-1, (mp.mpf(end) - k) / (mp.mpf(end) + k)),
            lambda q, f=scaled: 1 / f(q),
            single,
        )


def main() -> None:
    wanted = sys.argv[1:]
    for fit in fits():
        if wanted and not any(w in fit.name for w in wanted):
            continue
        numbers, ideal, rounded = coefficients(fit)
        print(f"{fit.name}: ideal 2**{ideal:.1f}, rounded 2**{rounded:.1f}")
        print(f"    {', '.join(map(repr, numbers))}", flush=True)


if __name__ == "__main__":
    main()
