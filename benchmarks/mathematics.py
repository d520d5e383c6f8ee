"""Nanoseconds an element, compile time and size of the mathematical functions: `python benchmarks/mathematics.py`.

One thread, 4096 elements, so that everything stays in the first two cache levels; the least of many calls, since the
machine may have other work. "rare" is the same with one zero, infinity or huge argument in 64, where that takes the way
through the runtime library. NumPy's time is beside it. Names of functions as arguments restrict the run, `--avx2`
leaves out AVX-512.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiercel.codegen.abi import frame_size, frame_words
from tiercel.codegen.blob import Mapped, link, map_blob
from tiercel.codegen.cpu.assemble import assemble
from tiercel.codegen.cpu.emit import emit
from tiercel.codegen.cpu.library import IMPORTS, entries, library_text
from tiercel.codegen.cpu.mathematics import MATHEMATICS, RARE
from tiercel.codegen.cpu.target import Target
from tiercel.dtypes import as_dtype
from tiercel.loops.form import UNARY, Binary, Block, Buffer, For, Function, Load, Store, Unary, Var

Array = NDArray[Any]

SIZE = 4096
NUMPY = {"pow": np.power, "atan2": np.arctan2, "mod": np.remainder, "floordiv": np.floor_divide}
RARE_ARGUMENT = {"sin": 1e30, "cos": 1e30, "tan": 1e30, "log1p": -1.0, "mod": 1e38, "floordiv": 1e38, "fmod": 1e38}


def function(op: str, name: str) -> Function:
    dtype, n, j = as_dtype(name), Var("N"), Var("j")
    x, z, y = Buffer("x", dtype, (n,)), Buffer("z", dtype, (n,)), Buffer("y", dtype, (n,), space="result")
    value = Unary(op, Load(x, (j,))) if op in UNARY else Binary(op, Load(x, (j,)), Load(z, (j,)))
    return Function("f", (n,), (), (x, z, y), (), Block((For("j", n, Block((Store(y, (j,), value),)), "vector"),)))


def arguments(op: str, name: str) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-4, 4, SIZE)
    if op.startswith("log") or op in ("pow", "arccosh"):
        x = 1 + np.abs(x)
    if op in ("arcsin", "arccos", "arctanh"):
        x /= 4.01
    return x.astype(name), rng.uniform(0.5, 3, SIZE).astype(name)


def fastest(run: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(40):
        start = time.perf_counter()
        for _ in range(10):
            run()
        best = min(best, time.perf_counter() - start)
    return best / 10 / SIZE * 1e9


def caller(mapped: Mapped, form: Function, x: Array, z: Array, y: Array) -> Callable[[], object]:
    words, frame = frame_words(form), np.zeros(frame_size(form), np.int64)
    for buffer, array in (("x", x), ("z", z), ("y", y)):
        frame[words[buffer]] = array.ctypes.data
    frame[words["N"]] = SIZE
    enter, address = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(mapped.address("f")), frame.ctypes.data
    return lambda: (enter(address), frame)


def main() -> None:
    names = [a for a in sys.argv[1:] if not a.startswith("-")] or list(MATHEMATICS)
    target = Target.host()
    if "--avx2" in sys.argv:
        target = target.without_avx512()
    start = time.process_time()
    blob = link(assemble(library_text(target), target), entries())
    print(f"runtime library: {(time.process_time() - start) * 1e3:.0f} ms, {len(blob.image) / 1024:.0f} KB")
    libc = ctypes.CDLL(None)
    library = map_blob(blob, {n: ctypes.cast(getattr(libc, n), ctypes.c_void_p).value or 0 for n in IMPORTS})
    imports = {name: library.address(name) for name in entries()}
    print(f"{'':10s} {'dtype':8s} {'ns':>6s} {'rare':>6s} {'NumPy':>6s} {'lines':>6s} {'ms':>6s}")
    for op in names:
        reference: Any = NUMPY.get(op) or getattr(np, op, None)
        for name in ("float32", "float64"):
            form = function(op, name)
            text = emit(form, target)
            assemble(text, target)
            start = time.process_time()
            for _ in range(5):
                obj = assemble(text, target)
            compile_ms = (time.process_time() - start) * 200
            mapped = map_blob(link(obj, ["f", "f.arena"]), imports)
            x, z = arguments(op, name)
            y = np.empty_like(x)
            ours = fastest(caller(mapped, form, x, z, y))
            rare = float("nan")
            if op in RARE:
                odd = x.copy()
                odd[::64] = RARE_ARGUMENT.get(op, 0.0)
                rare = fastest(caller(mapped, form, odd, z, y))
            theirs = float("nan")
            if reference is not None:
                operands = (x,) if op in UNARY else (x, z)
                theirs = fastest(lambda o=operands, r=reference, out=y: r(*o, out=out))
            lines = sum(" = " in line for line in text.splitlines())
            print(f"{op:10s} {name:8s} {ours:6.2f} {rare:6.2f} {theirs:6.2f} {lines:6d} {compile_ms:6.1f}")


if __name__ == "__main__":
    main()
