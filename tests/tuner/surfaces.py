"""Machines that do not exist: cost surfaces over the points of a product, and a function that takes times of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from tiercel.codegen.cpu.choice import Point
from tiercel.codegen.cpu.target import Target
from tiercel.tuner.measure import Timed
from tiercel.tuner.space import Product, guess_ns

# What a test sees must not depend on the processor it runs on.
TARGET = Target("znver4", "", 64, True)


class Machine:
    """Takes times: the guess times what the surface says, without noise. Time passes on its clock only."""

    def __init__(
        self, surface: Callable[[Product, Point], float], disturbed: Callable[[], bool] = lambda: False
    ) -> None:
        self.surface, self.disturbed = surface, disturbed
        self.calls: list[tuple[Product, Point]] = []
        self.now = 0.0
        self.starved = False

    def ns(self, product: Product, point: Point) -> float:
        return guess_ns(product, point, TARGET) * self.surface(product, point)

    def __call__(self, product: Product, point: Point, expected_ns: float) -> Timed:
        self.calls.append((product, point))
        ns = self.ns(product, point)
        self.now += max(ns, 60_000) / 1e9
        return Timed(ns, self.disturbed(), self.starved)

    def clock(self) -> float:
        return self.now

    def best(self, product: Product, space: Iterable[Point]) -> float:
        return min(self.ns(product, p) for p in space)


def likes_narrow_tall_panels(product: Product, point: Point) -> float:
    """Against the guess: two vectors and rows first are good where there are many rows, the usual way is bad there."""
    slow = 1.0
    if point.vectors != 2:
        slow *= 1.0 + 0.08 * math.log2(max(2, product.m)) / 3
    if point.axis == "columns" and product.m >= 32:
        slow *= 1.15
    if point.block == "broad":
        slow *= 1.1
    return slow


def product(m: int, n: int, k: int, threads: int = 2, layout: str = "packed") -> Product:
    return Product("float32", layout, False, m, n, k, threads)
