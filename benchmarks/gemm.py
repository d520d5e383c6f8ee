"""Matrix products `x @ w` against NumPy (OpenBLAS) and, where installed, PyTorch and ONNX Runtime.

For every (k, n), rows m, dtype, thread count, with `w` frozen (a `tc.constant`, a constant of a peer's model) or
given anew in each call: GFLOP/s of each system, the ratio to the best peer (above 1: faster), and the share of the
peak of the machine, which a loop of independent fused multiply-adds on the same number of threads measures first.

Every system computes in a process of its own that has the wanted number of threads, only one at a time, in bursts of
some milliseconds, in turn, several rounds; a figure is the best over the rounds of the medians of the bursts (now and
then Linux keeps all threads of a team on one processor for a whole burst). The thread teams of the libraries spin for
up to 20 ms after a call: before each burst nobody computes for 25 ms, and the first calls of a burst, which wake the
threads, do not count. Before a point is measured each system's result is compared with a product in float64, and
nothing is measured while the machine is busy otherwise (a compiler at work).

Run: `python benchmarks/gemm.py [--full] [--sizes 768x3072,...] [--rows 1,8,...] [--threads 1,2] [--dtypes float32]
[--weights frozen,given] [--peers numpy,torch,onnxruntime] [--rounds N] [--json FILE] [--limit SECONDS] [--table]`. The
default takes about a minute; `--full` measures all of K and N in 128, 768, 1024, 3072 and takes an hour.

`--dtypes` also takes float16, bfloat16, int32 and int64, without ONNX Runtime.

A sweep in pieces: with `--limit` it ends in time, and the points that FILE has already are left out of the next run of
the same command. `--table` measures nothing: it prints the ratios that FILE holds, rows across and sizes down.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Product = Callable[[Array], Any]

SIZES = (128, 768, 1024, 3072)
ROWS = (1, 2, 3, 5, 8, 16, 31, 32, 64, 128, 256, 1024)
DTYPES = {"bfloat16": ml_dtypes.bfloat16}
QUICK_SIZES = ("768x768", "1024x128", "768x3072")
QUICK_ROWS = (1, 5, 8, 32, 128)
QUIET_SECONDS = 0.025
WARM_SECONDS = 0.002


class Case(NamedTuple):
    """One point."""

    k: int
    n: int
    m: int
    dtype: str
    weights: str  # "frozen" or "given"


# ---- the systems -----------------------------------------------------------------------------------------------------


def with_tiercel(weight: Array, frozen: bool) -> Product:
    """Compiled before the first measured call."""
    import tiercel as tc

    if frozen:
        held = tc.constant(weight)
        jitted = tc.jit(lambda x: x @ held)
        jitted.warmup(np.ones((5, len(weight)), weight.dtype))
        call = jitted
    else:
        jitted = tc.jit(lambda x, w: x @ w)
        jitted.warmup(np.ones((5, len(weight)), weight.dtype), weight)
        call = lambda x: jitted(x, weight)  # noqa: E731
    before = jitted.stats()["compiled_calls"]
    call(np.ones((7, len(weight)), weight.dtype))
    if jitted.stats()["compiled_calls"] == before:
        raise SystemExit(f"tiercel does not run this compiled: {jitted.explain()}")
    return call


def with_numpy(weight: Array, frozen: bool) -> Product:
    """OpenBLAS."""
    return lambda x: x @ weight


def with_torch(weight: Array, frozen: bool) -> Product:
    """Eager, weights as given (its library packs none)."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

    def tensor(x: Array) -> Any:
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if x.dtype == bfloat16 else torch.from_numpy(x)

    bfloat16 = DTYPES["bfloat16"]
    held = tensor(weight)

    def call(x: Array) -> Any:
        with torch.no_grad():
            product = tensor(x) @ held
        return product.view(torch.int16).numpy().view(bfloat16) if x.dtype == bfloat16 else product

    return call


def with_onnxruntime(weight: Array, frozen: bool) -> Product:
    """A session with one MatMul; a frozen weight is an initializer, which it packs."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    kind = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}[weight.dtype.name]
    values = [helper.make_tensor_value_info("x", kind, ["m", len(weight)])]
    if not frozen:
        values.append(helper.make_tensor_value_info("w", kind, list(weight.shape)))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        values,
        [helper.make_tensor_value_info("y", kind, ["m", weight.shape[1]])],
        [numpy_helper.from_array(weight, "w")] if frozen else [],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x} if frozen else {"x": x, "w": weight})[0]


SYSTEMS: dict[str, Callable[[Array, bool], Product]] = {
    "tiercel": with_tiercel,
    "numpy": with_numpy,
    "torch": with_torch,
    "onnxruntime": with_onnxruntime,
}
PEERS = ("numpy", "torch", "onnxruntime")


def peak_kernel(vector_bytes: int) -> tuple[Callable[[int, int], None], int, Any]:
    """A loop of 24 independent multiply-adds on float32 vectors: (function, operations a round, what keeps it)."""
    from tiercel.codegen.blob import link, map_blob
    from tiercel.codegen.cpu.assemble import assemble
    from tiercel.codegen.cpu.target import Target

    lanes, chains = vector_bytes // 4, range(24)
    vector = f"<{lanes} x float>"
    text = "\n".join([
        f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})",
        "define void @peak(i64 %n, ptr %p) {",
        "entry:",
        f"  %x = load {vector}, ptr %p, align 4",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %j, %loop ]",
        *(f"  %s{c} = phi {vector} [ %x, %entry ], [ %t{c}, %loop ]" for c in chains),
        *(f"  %t{c} = call {vector} @llvm.fma.v{lanes}f32({vector} %s{c}, {vector} %x, {vector} %x)" for c in chains),
        "  %j = add i64 %i, 1",
        "  %more = icmp slt i64 %j, %n",
        "  br i1 %more, label %loop, label %out",
        "out:",
        *(line for c in chains for line in (
            f"  %q{c} = getelementptr float, ptr %p, i64 {c * lanes}",
            f"  store {vector} %t{c}, ptr %q{c}, align 4",
        )),
        "  ret void",
        "}",
    ])  # fmt: skip
    code = map_blob(link(assemble(text, Target.host()), ("peak",)))
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(code.address("peak"))
    return function, 2 * lanes * len(chains), code


def measured_peak(threads: int) -> float:
    """GFLOP/s of float32 multiply-adds that so many threads reach together."""
    from tiercel.codegen.cpu.target import Target

    function, operations, code = peak_kernel(Target.host().vector_bytes)
    buffers = [np.zeros(4096, np.float32) for _ in range(threads)]
    rounds, best = 3_000_000, 0.0
    for _ in range(5):
        workers = [threading.Thread(target=function, args=(rounds, b.ctypes.data)) for b in buffers]
        began = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = max(best, threads * rounds * operations / (time.perf_counter() - began) / 1e9)
    del code
    return best


# ---- one process of a system -----------------------------------------------------------------------------------------


def serve(system: str) -> None:
    """Answer requests, one line of JSON each, until the input ends."""
    made: dict[tuple[int, int, str, str], tuple[Array, Product]] = {}
    inputs: dict[Case, Array] = {}
    for line in sys.stdin:
        request = json.loads(line)
        case = Case(*request["case"])
        key = (case.k, case.n, case.dtype, case.weights)
        if key not in made:
            made.clear()
            inputs.clear()
            rng = np.random.default_rng(case.k * 7 + case.n)
            weight = values(rng, (case.k, case.n), case.dtype)
            made[key] = weight, SYSTEMS[system](weight, case.weights == "frozen")
        weight, product = made[key]
        answer: dict[str, float] = {}
        if case not in inputs:
            x = inputs[case] = values(np.random.default_rng(case.m), (case.m, case.k), case.dtype)
            answer["error"] = worst_error(np.asarray(product(x)), x, weight)
        answer["seconds"] = burst(product, inputs[case], request["seconds"])
        print(json.dumps(answer), flush=True)


def values(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> Array:
    """Normally distributed, or small integers."""
    if dtype.startswith("int"):
        return rng.integers(-100, 100, shape, dtype=dtype)
    return rng.standard_normal(shape).astype(DTYPES.get(dtype, dtype))


def worst_error(got: Array, x: Array, weight: Array) -> float:
    """How far some rows are from the product in float64, in units of the last digit of sums of absolute values."""
    some = np.unique(np.r_[: min(len(x), 16), max(len(x) - 8, 0) : len(x)])
    wide = weight.astype(np.float64)
    exact = x[some].astype(np.float64) @ wide
    scale = np.abs(x[some]).astype(np.float64) @ np.abs(wide)
    unit = 1.0 if x.dtype.kind == "i" else float(ml_dtypes.finfo(x.dtype).eps)
    return float((np.abs(got[some].astype(np.float64) - exact) / scale).max() / unit)


def burst(product: Product, x: Array, seconds: float) -> float:
    """Seconds of one call: the median of calls (of small groups of short ones)."""
    clock = time.perf_counter
    end, calls = clock() + WARM_SECONDS, 0
    while clock() < end or not calls:
        product(x)
        calls += 1
    group = max(1, int(calls * 2e-5 / WARM_SECONDS))
    times, end = [], clock() + seconds
    while clock() < end or len(times) < 3:
        began = clock()
        for _ in range(group):
            product(x)
        times.append((clock() - began) / group)
    return statistics.median(times)


class Server:
    """A process of a system."""

    def __init__(self, system: str, threads: int, folder: str) -> None:
        variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(variables, str(threads)), "TIERCEL_CACHE_DIR": folder}
        self.system = system
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", system],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def measure(self, case: Case, seconds: float) -> dict[str, float]:
        """One burst, after the pause."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        time.sleep(QUIET_SECONDS)
        self.process.stdin.write(json.dumps({"case": case, "seconds": seconds}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.system} ended while measuring {case}")
        answer: dict[str, float] = json.loads(line)
        return answer

    def close(self) -> None:
        """End it."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()


# ---- the whole -------------------------------------------------------------------------------------------------------


def await_quiet(limit: float = 5.0) -> None:
    """Return when the processors have been idle for a tenth of a second, or the time is over."""

    def busy() -> float:
        with open("/proc/stat", encoding="ascii") as file:
            fields = [int(x) for x in file.readline().split()[1:]]
        return sum(fields[:3]) / os.sysconf("SC_CLK_TCK")

    end = time.monotonic() + limit
    while os.path.exists("/proc/stat") and time.monotonic() < end:
        before = busy()
        time.sleep(0.1)
        if busy() - before < 0.02:
            return


def measure(
    cases: Sequence[Case], systems: Sequence[str], threads: int, rounds: int, end: float = float("inf")
) -> Iterator[dict[str, Any]]:
    """Rows of the table for one number of threads, as they are measured, until `end` (of `time.monotonic`)."""
    peak32 = measured_peak(threads)
    print(f"\n{threads} thread{'s' * (threads > 1)}: peak {peak32:.0f} GFLOP/s in float32, half of it in float64")
    heading = "".join(f"{s[:9]:>10}" for s in systems)
    print(f"{'k x n':<11}{'m':>5}  {'dtype':<8}{'weights':<8}{heading}{'ratio':>8}{'of peak':>9}   GFLOP/s")
    with tempfile.TemporaryDirectory() as folder:
        servers = [Server(s, threads, folder) for s in systems]
        try:
            for case in cases:
                if time.monotonic() > end:
                    return
                times: dict[str, list[float]] = {s: [] for s in systems}
                for number in range(rounds + 1):
                    if number == 1 and case.m == cases[0].m:
                        await_quiet()
                    for server in servers:
                        answer = server.measure(case, 0.02 if number else 0.0)
                        if answer.get("error", 0) > 4 * case.k**0.5:
                            raise SystemExit(f"{server.system}, {case}: wrong by {answer['error']:.0f} units")
                        if number:
                            times[server.system].append(answer["seconds"])
                yield row(case, threads, times, peak32)
        finally:
            for server in servers:
                server.close()


def row(case: Case, threads: int, times: dict[str, list[float]], peak32: float) -> dict[str, Any]:
    """Print and return one."""
    speed = {s: 2e-9 * case.m * case.n * case.k / min(t) for s, t in times.items()}
    peers = [speed[s] for s in speed if s != "tiercel"]
    ratio = speed["tiercel"] / max(peers) if peers else float("nan")
    share = speed["tiercel"] / (peak32 if case.dtype == "float32" else peak32 / 2)
    figures = "".join(f"{v:>10.1f}" for v in speed.values())
    size = f"{case.k}x{case.n}"
    print(f"{size:<11}{case.m:>5}  {case.dtype:<8}{case.weights:<8}{figures}{ratio:>8.2f}{share:>9.0%}", flush=True)
    return {**case._asdict(), "threads": threads, "gflops": speed, "ratio": ratio, "of_peak": share}


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """The ratios of a file, one table for each number of threads, dtype and kind of weights."""
    kinds = sorted({(r["threads"], r["dtype"], r["weights"]) for r in rows})
    for kind in kinds:
        some = [r for r in rows if (r["threads"], r["dtype"], r["weights"]) == kind]
        counts = sorted({r["m"] for r in some})
        found = {((r["k"], r["n"]), r["m"]): r["ratio"] for r in some}
        print(f"\n{kind[0]} thread{'s' * (kind[0] > 1)}, {kind[1]}, weights {kind[2]}: ratio to the best peer\n")
        print(f"| k x n | {' | '.join(str(m) for m in counts)} |\n|---|{'---|' * len(counts)}")
        for size in sorted({(r["k"], r["n"]) for r in some}):
            cells = (f"{found[size, m]:.2f}" if (size, m) in found else "" for m in counts)
            print(f"| {size[0]} x {size[1]} | {' | '.join(cells)} |")
        summarise([r["ratio"] for r in some])


def summarise(ratios: Sequence[float]) -> None:
    """One line about the ratios that there are."""
    ratios = [r for r in ratios if r == r]
    if ratios:
        print(f"\nratio to the best peer: geometric mean {statistics.geometric_mean(ratios):.2f}, worst "
              f"{min(ratios):.2f}, behind at {sum(r < 1 for r in ratios)} of {len(ratios)} points, by more than 3% at "
              f"{sum(r < 0.97 for r in ratios)}")  # fmt: skip


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", choices=SYSTEMS, help=argparse.SUPPRESS)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--sizes", help="k x n, as 768x3072,128x128")
    parser.add_argument("--rows")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--dtypes")
    parser.add_argument("--weights")
    parser.add_argument("--peers", help="default: those installed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="keep the rows in this file; points that it has are not measured again")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which it ends")
    parser.add_argument("--table", action="store_true", help="print the ratios of the file, measure nothing")
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return

    def chosen(given: str | None, full: Sequence[Any], quick: Sequence[Any]) -> list[str]:
        return given.split(",") if given else [str(x) for x in (full if options.full else quick)]

    sizes = [tuple(map(int, s.split("x"))) for s in chosen(
        options.sizes, [f"{k}x{n}" for k in SIZES for n in SIZES], QUICK_SIZES)]  # fmt: skip
    rows_ = [int(m) for m in chosen(options.rows, ROWS, QUICK_ROWS)]
    dtypes = chosen(options.dtypes, ("float32", "float64"), ("float32",))
    weights = chosen(options.weights, ("frozen", "given"), ("frozen", "given"))
    peers = chosen(options.peers, PEERS, PEERS)
    peers = [p for p in peers if p != "none" and importlib.util.find_spec(p)]
    if not set(dtypes) <= {"float32", "float64"}:
        peers = [p for p in peers if p != "onnxruntime"]
    cases = [Case(k, n, m, dtype, w) for k, n in sizes for dtype in dtypes for w in weights for m in rows_]
    found: list[dict[str, Any]] = []
    if options.json and os.path.exists(options.json):
        with open(options.json, encoding="utf-8") as file:
            found = json.load(file)
    if options.table:
        print_table(found)
        return
    known = {(Case(*(r[f] for f in Case._fields)), r["threads"]) for r in found}
    end, before = time.monotonic() + options.limit, len(found)
    for threads in map(int, options.threads.split(",")):
        wanted = [c for c in cases if (c, threads) not in known]
        if not wanted or time.monotonic() > end:
            continue
        for line in measure(wanted, ["tiercel", *peers], threads, options.rounds, end):
            found.append(line)
            if options.json:
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump(found, file, indent=1)
    summarise([r["ratio"] for r in found[before:]])


if __name__ == "__main__":
    main()
