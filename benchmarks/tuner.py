"""How good the tuner's choice is: its picks on sizes it has not seen, against measuring every point of the space.

First the tuner learns as it does in use: for each training size it measures at most 8 points, beginning with no history
at all. Then, for each held-out size, every point is measured, and compared with the fastest are: what is usual (done
where nothing was measured), the predictor's first pick (nothing measured at this size), and what the tuner takes after
measuring the 8 points that the predictor chooses. A figure is the excess of time over the fastest point: 0.05 is 5%
slower. The target is at most 0.05 for the tuner's choice.

Times are the least of several runs in which nothing else had the processor; points alternate, and those that matter are
run again. Run it on an idle machine:

    tiercel bench tuner                       # or: python benchmarks/tuner.py [--threads 1,2] [--layouts packed,rows]
    python benchmarks/tuner.py --threads 2 --layouts packed --epilogue --json FILE
"""

from __future__ import annotations

import argparse
import json
import math
import time
from typing import Any

from tiercel.codegen.cpu.choice import Choice, Point, usual
from tiercel.codegen.cpu.target import Target
from tiercel.hotpath.jobs import product_bench
from tiercel.tuner.measure import Bench
from tiercel.tuner.predictor import Predictor
from tiercel.tuner.session import MAX_POINTS, Demand, tune
from tiercel.tuner.space import Product, points

TRAINING = [
    (n, k)
    for n, k in (
        (64, 64), (128, 256), (96, 384), (256, 256), (384, 384), (512, 128), (128, 1024), (768, 768), (1024, 1024),
        (1536, 384), (384, 1536), (3072, 768), (768, 3072), (200, 300), (1024, 128),
    )
]  # fmt: skip
TRAINING_ROWS = ((2, 9, 30, 120), (1, 5, 16, 64))
HELD_OUT = [(100, 300), (192, 768), (320, 320), (640, 640), (1024, 256), (256, 1024), (2048, 512), (512, 2048)]
HELD_OUT_ROWS = (1, 4, 7, 12, 20, 48, 100, 200)


def race(bench: Bench, product: Product, chosen: list[Point], rounds: int, times: dict[Point, float]) -> None:
    """Take the least time of each point, over more rounds."""
    expected = min(times.values(), default=0.0) or bench.time(product, chosen[0]).ns
    for round_ in range(rounds):
        start = round_ * 5 % len(chosen)
        for point in (*chosen[start:], *chosen[:start]):
            timed = bench.time(product, point, expected)
            if not timed.disturbed or (round_ == rounds - 1 and point not in times):
                times[point] = min(times.get(point, math.inf), timed.ns)


def main() -> None:
    """Read the arguments, learn, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--layouts", default="packed,rows")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    parser.add_argument("--epilogue", action="store_true")
    parser.add_argument("--rows", default=",".join(map(str, HELD_OUT_ROWS)), help="of the held-out sizes")
    parser.add_argument("--json", help="write all figures to this file too")
    options = parser.parse_args()
    found = []
    for threads in map(int, options.threads.split(",")):
        for layout in options.layouts.split(","):
            rows = [int(m) for m in options.rows.split(",")]
            found += compare(options.dtype, layout, options.epilogue, threads, rows)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file)


def compare(dtype: str, layout: str, epilogue: bool, threads: int, held_rows: list[int]) -> list[dict[str, Any]]:
    """Learn and compare for one kind of product."""
    target = Target.host()
    present = usual(target, packed=layout == "packed")
    predictor = Predictor(target)
    with product_bench(threads) as bench:
        began = time.monotonic()
        count = 0
        for number, (n, k) in enumerate(TRAINING):
            product = Product(dtype, layout, epilogue, 1, n, k, threads)
            seen = dict.fromkeys(TRAINING_ROWS[number % 2], 1.0)
            for tuned in tune([Demand(product, seen, Choice.always(present))], predictor, bench.time, budget_s=2.0):
                count += sum(map(len, tuned.tried.values()))
            bench.forget_all()
        spent = time.monotonic() - began
        kind = f"{dtype}, {layout}{', epilogue' if epilogue else ''}, {threads} thread{'s' * (threads > 1)}"
        print(f"\n{kind}: learned from {count} times at {len(TRAINING)} sizes in {spent:.1f} s")
        print(f"{'n x k':<12}{'m':>5}{'points':>8}{'best':>9}   excess over it: {'usual':>7}{'first':>8}{'chosen':>8}")
        results = []
        for n, k in HELD_OUT:
            for m in held_rows:
                product = Product(dtype, layout, epilogue, m, n, k, threads)
                results.append(held_out(bench, predictor, product, present))
            bench.forget_all()
    for name in ("usual", "first", "chosen"):
        values = [r[name] for r in results]
        mean = math.exp(sum(math.log1p(v) for v in values) / len(values)) - 1
        within = sum(v <= 0.05 for v in values)
        print(f"{name:<8} geometric mean {mean:.3f}, worst {max(values):.3f}, within 5%: {within} of {len(values)}")
    return results


def held_out(bench: Bench, predictor: Predictor, product: Product, present: Point) -> dict[str, Any]:
    """Print and return one size."""
    space = points(product, predictor.target)
    times: dict[Point, float] = {}
    race(bench, product, space, 3, times)
    first = predictor.rank(product, space)[0]
    measured = predictor.choose(product, space, MAX_POINTS, [present])
    again = list(dict.fromkeys([*sorted(times, key=lambda p: times[p])[:16], first, *measured]))
    race(bench, product, again, 6, times)
    best = min(times.values())
    chosen = min(measured, key=lambda p: times[p])
    row = {
        **product._asdict(), "best_gflops": product.operations / best, "points": len(space),
        "usual": times[present] / best - 1, "first": times[first] / best - 1, "chosen": times[chosen] / best - 1,
        "best_point": str(min(times, key=lambda p: times[p])), "first_point": str(first),
    }  # fmt: skip
    print(
        f"{f'{product.n} x {product.k}':<12}{product.m:>5}{len(space):>8}{row['best_gflops']:>9.1f}{'':>18}"
        f"{row['usual']:>8.3f}{row['first']:>8.3f}{row['chosen']:>8.3f}",
        flush=True,
    )
    return row


if __name__ == "__main__":
    main()
