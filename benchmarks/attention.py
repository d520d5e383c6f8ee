"""Attention over changing lengths, and 512 decode steps on a growing cache, against NumPy and torch.

    tiercel bench attention                      # or: python benchmarks/attention.py [--threads N] [--quick]

12 heads of 64, float32. Every peer runs in a process of its own, one after the other, in three rounds; the figures are
medians over rounds. `floor` is the arithmetic alone, 4 x rows x keys x 64 operations a head at the rate that the same
process reaches in a product of 768 x 768 matrices; for decoding it is reading keys and values once at the rate of a sum
over an array of that size.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

HEADS, SIZE, STEPS = 12, 64, 512
SHAPES = [(1, n, n) for n in (1, 2, 8, 16, 32, 64, 128, 256, 512)] + [(8, n, n) for n in (16, 128, 256)]
SHAPES += [(1, 1, 128), (1, 1, 512), (8, 1, 512)]
QUICK = [(1, 8, 8), (1, 128, 128), (1, 512, 512), (1, 1, 512)]
ROUNDS = 3


def arrays(batch: int, rows: int, keys: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(rows * 1000 + keys)
    shape = (batch, HEADS, keys, SIZE)
    q = rng.standard_normal((batch, HEADS, rows, SIZE)).astype("float32")
    return q, rng.standard_normal(shape).astype("float32"), rng.standard_normal(shape).astype("float32")


def attend(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-1, -2) * 0.125
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v


def decode(q: Any, k: Any, v: Any, keys: Any, values: Any) -> Any:
    keys = np.concatenate([keys, k], axis=2)
    values = np.concatenate([values, v], axis=2)
    scores = q @ keys.swapaxes(-1, -2) * 0.125
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ values, keys, values


def seconds(call: Callable[[], Any], least: float = 0.03) -> float:
    """Median of five times of a call."""
    call()
    began = time.perf_counter()
    call()
    many = max(1, int(least / max(time.perf_counter() - began, 1e-7)))
    times = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(many):
            call()
        times.append((time.perf_counter() - began) / many)
    return statistics.median(times)


def steps() -> list[tuple[Any, Any, Any]]:
    rng = np.random.default_rng(0)
    return [tuple(rng.standard_normal((1, HEADS, 1, SIZE)).astype("float32") for _ in range(3)) for _ in range(STEPS)]  # type: ignore[misc]


def run_arrays(function: Any, make: Callable[[Any], Any]) -> Callable[[], Any]:
    given, empty = steps(), np.zeros((1, HEADS, 0, SIZE), "float32")

    def all_steps() -> Any:
        keys = values = make(empty)
        for q, k, v in given:
            out, keys, values = function(q, k, v, keys, values)
        return out

    return all_steps


def measure_numpy(shapes: Any, threads: int) -> dict[str, float]:
    found = {}
    for shape in shapes:
        given = arrays(*shape)
        found[str(shape)] = seconds(lambda a=given: attend(*a))
    found["decode"] = seconds(run_arrays(decode, lambda x: x), 0)
    a = np.ones((768, 768), "float32")
    found["rate"] = 2 * 768**3 / seconds(lambda: a @ a)
    for size in (128, 512):
        whole = np.ones(2 * HEADS * size * SIZE, "float32")
        found[f"read {size}"] = whole.nbytes / seconds(lambda w=whole: w.max())
    return found


def measure_tiercel(shapes: Any, threads: int) -> dict[str, float]:
    import tiercel as tc

    tc.set_context(threads=threads)
    function, step = tc.jit(attend), tc.jit(decode)
    function.warmup(*arrays(1, 8, 8))
    found = {}
    for shape in shapes:
        a = arrays(*shape)
        np.testing.assert_allclose(function(*a), attend(*a), rtol=1e-3, atol=1e-4)
        found[str(shape)] = seconds(lambda a=a: function(*a))
    everything = run_arrays(step, tc.Tensor)
    for _ in range(4):
        everything()
        tc.wait(60)
    np.testing.assert_allclose(np.asarray(everything()), run_arrays(decode, lambda x: x)(), rtol=1e-3, atol=1e-4)
    found["decode"] = seconds(everything, 0)
    return found


def measure_torch(shapes: Any, threads: int) -> dict[str, float]:
    import torch
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    torch.set_num_threads(threads)
    found = {}
    with torch.no_grad():
        for shape in shapes:
            a = [torch.from_numpy(x) for x in arrays(*shape)]
            found[str(shape)] = seconds(lambda a=a: sdpa(*a))
        given = [[torch.from_numpy(x) for x in step] for step in steps()]

        def joined() -> Any:
            keys = values = torch.zeros(1, HEADS, 0, SIZE)
            for q, k, v in given:
                keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
                out = sdpa(q, keys, values)
            return out

        def preallocated() -> Any:
            keys, values = (torch.zeros(1, HEADS, STEPS, SIZE) for _ in range(2))
            for n, (q, k, v) in enumerate(given):
                keys[:, :, n : n + 1], values[:, :, n : n + 1] = k, v
                out = sdpa(q, keys[:, :, : n + 1], values[:, :, : n + 1])
            return out

        found["cat"], found["preallocated"] = seconds(joined, 0), seconds(preallocated, 0)
        found["decode"] = min(found["cat"], found["preallocated"])
    return found


PEERS = {"tiercel": measure_tiercel, "numpy": measure_numpy, "torch": measure_torch}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    shapes = QUICK if options.quick else SHAPES
    if options.peer:
        print(json.dumps(PEERS[options.peer](shapes, options.threads)))
        return
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in PEERS}
    many = {"OMP_NUM_THREADS": str(options.threads), "OPENBLAS_NUM_THREADS": str(options.threads)}
    for _ in range(options.rounds):
        for name in PEERS:
            command = [sys.executable, __file__, "--peer", name, "--threads", str(options.threads)]
            made = subprocess.run(
                command + ["--quick"] * options.quick,
                check=False,
                capture_output=True,
                text=True,
                env={**os.environ, **many},
            )
            if made.returncode == 0:
                rounds[name].append(json.loads(made.stdout.splitlines()[-1]))
            elif "No module named 'torch'" not in made.stderr:
                raise SystemExit(made.stderr)
    table = {
        name: {key: statistics.median(r[key] for r in found) for key in found[0]}
        for name, found in rounds.items()
        if found
    }
    rate = table["numpy"]["rate"]
    print(f"{options.threads} threads; microseconds; {rate / 1e9:.0f} GFLOP/s in a large product")
    print(f"{'batch, rows, keys':<20}" + "".join(f"{name:>12}" for name in table) + f"{'floor':>10}{'to best':>9}")
    for shape in shapes:
        batch, rows, keys = shape
        times = {name: found[str(shape)] for name, found in table.items()}
        floor = 4 * batch * HEADS * rows * keys * SIZE / rate
        others = min(t for name, t in times.items() if name != "tiercel")
        print(
            f"{batch:>4}{rows:>8}{keys:>8}" + "".join(f"{t * 1e6:>12.1f}" for t in times.values())
            + f"{floor * 1e6:>10.1f}{times['tiercel'] / others:>9.2f}"
        )  # fmt: skip
    floor = sum(2 * HEADS * n * SIZE * 4 for n in range(1, STEPS + 1)) / table["numpy"]["read 512"]
    times = {name: found["decode"] for name, found in table.items()}
    print(f"\n{STEPS} decode steps, milliseconds: " + ", ".join(f"{n} {t * 1e3:.1f}" for n, t in times.items()), end="")
    print(f", floor {floor * 1e3:.1f}")
    if "torch" in table:
        best = times["torch"]
        print(
            f"torch: cat {table['torch']['cat'] * 1e3:.1f}, preallocated {table['torch']['preallocated'] * 1e3:.1f}; "
            f"tiercel is at {times['tiercel'] / best:.2f} of the best"
        )


if __name__ == "__main__":
    main()
