"""Microseconds per shape rule on symbolic shapes: `python benchmarks/shapes.py`.

"warm" is the same call again, as when a program is typed anew for another Signature; "cold" forgets every remembered
result before each call and measures the arithmetic itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tiercel.shapes import (
    Facts,
    Symbol,
    broadcast_shapes,
    conv_dim,
    parse_dim,
    parse_token,
    product,
    slice_dim,
    solve_reshape,
)
from tiercel.shapes.dims import clear_memo

B, T, H = Symbol("B"), Symbol("T"), Symbol("H")
A4, B4 = (B, H, T, 64), (B, H, 64, T)
TOKEN = parse_token("[B, T, 768]")
FACTS = Facts(["16 <= B <= 64", "T % 8 == 0", "T <= 512"])


def matmul_rule() -> object:
    """The shape of a batched matrix product of rank 4."""
    if A4[-1] != B4[-2]:
        raise AssertionError
    return (*broadcast_shapes(A4[:-2], B4[:-2]), A4[-2], B4[-1])


CASES: dict[str, Callable[[], object]] = {
    "broadcast (B,H,T,64) (B,H,T,64)": lambda: broadcast_shapes((B, H, T, 64), (B, H, T, 64)),
    "broadcast (B,H,T,64) (1,H,1,64)": lambda: broadcast_shapes((B, H, T, 64), (1, H, 1, 64)),
    "broadcast (B,1,T,64) (T,H,1,64)": lambda: broadcast_shapes((B, 1, T, 64), (T, H, 1, 64)),
    "broadcast with facts": lambda: broadcast_shapes((B, 1, T, 64), (H, H, 1, 64), facts=FACTS),
    "broadcast (8,1,6,1) (7,1,5)": lambda: broadcast_shapes((8, 1, 6, 1), (7, 1, 5)),
    "matmul (B,H,T,64) (B,H,64,T)": matmul_rule,
    "reshape (B,T,768) (-1,768)": lambda: solve_reshape((B, T, 768), (-1, 768)),
    "reshape (B,T,768) (B,T,12,-1)": lambda: solve_reshape((B, T, 768), (B, T, 12, -1)),
    "reshape (B*T,768) (B,T,768)": lambda: solve_reshape((B * T, 768), (B, T, 768)),
    "product (B,T,768)": lambda: product((B, T, 768)),
    "T + 1": lambda: T + 1,
    "B * T": lambda: B * T,
    "(B*T)//8": lambda: (B * T) // 8,
    "slice [1:-1]": lambda: slice_dim(T, 1, -1),
    "slice [:k]": lambda: slice_dim(T, None, H),
    "conv (T, 3, stride 2)": lambda: conv_dim(T, 3, 2, 1, 1),
    "facts.range(B*T)": lambda: FACTS.range(B * T),
    "facts.equal(B, T)": lambda: FACTS.equal(B, T),
    "facts.copy().set_range": lambda: FACTS.copy().constrain("H <= 8"),
    "token.matches": lambda: TOKEN.matches((4, 7, 768)),
    "token.text": lambda: TOKEN.text(FACTS),
    "parse_dim('B*T + 1')": lambda: parse_dim("B*T + 1"),
}


def microseconds(call: Callable[[], object], cold: bool) -> float:
    """The median time of a call, in microseconds."""
    times = []
    for _ in range(200 if cold else 2000):
        if cold:
            clear_memo()
            FACTS._forget_memo()
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return sorted(times)[len(times) // 2] / 1000


def main() -> None:
    """Print the table."""
    print(f"{'rule':36} {'warm us':>8} {'cold us':>8}")
    for name, call in CASES.items():
        print(f"{name:36} {microseconds(call, cold=False):8.2f} {microseconds(call, cold=True):8.2f}")


if __name__ == "__main__":
    main()
