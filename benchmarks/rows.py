"""Softmax, layer norm and other row kernels over 768 columns with changing rows, against NumPy, torch and ONNX Runtime.

Every system runs in a process of its own, so that no team of spinning threads slows another down, and one at a time:
the parent asks them in turn, round after round, with a pause between. Each answers with the least time of a burst of
calls for every number of rows; printed are medians over the rounds, in microseconds, and the ratio of each system to
Tiercel. Results are compared first. Systems that are not installed are left out.

Run: `python benchmarks/rows.py [--threads N] [--rounds N] [--rows 1,8,64,640] [case...]`.
"""

from __future__ import annotations

import argparse
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

COLUMNS = 768
CASES = ("softmax", "layer_norm", "gelu", "row_sum", "row_max")
SYSTEMS = ("tiercel", "numpy", "torch", "onnxruntime")
PAUSE_SECONDS = 0.02  # a team of threads that spins after its work sleeps by then
Step = Callable[..., Any]


def given(case: str, rows: int) -> list[Any]:
    """The arguments of a case."""
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, COLUMNS), np.float32)
    if case != "layer_norm":
        return [x]
    return [x, rng.standard_normal(COLUMNS, np.float32), rng.standard_normal(COLUMNS, np.float32)]


def numpy_step(case: str) -> Step:
    """As users write it in NumPy."""

    def softmax(x):
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    def layer_norm(x, scale, shift):
        d = x - x.mean(axis=-1, keepdims=True)
        return d / np.sqrt((d * d).mean(axis=-1, keepdims=True) + np.float32(1e-5)) * scale + shift

    def gelu(x):
        return x * 0.5 * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))

    def row_sum(x):
        return x.sum(axis=-1)

    def row_max(x):
        return x.max(axis=-1)

    return {"softmax": softmax, "layer_norm": layer_norm, "gelu": gelu, "row_sum": row_sum, "row_max": row_max}[case]


def tiercel_step(case: str) -> Step:
    """The same, jitted."""
    import tiercel as tc

    step = tc.jit(numpy_step(case))
    for rows in (3, 5, 8, 64):
        step.warmup(*given(case, rows))
    tc.wait()
    return step


def torch_step(case: str) -> Step:
    """Eager, as users write it; the arguments are torch tensors."""
    import torch
    from torch.nn import functional

    def layer_norm(x, scale, shift):
        return functional.layer_norm(x, (COLUMNS,), scale, shift)

    step: Step = {
        "softmax": lambda x: torch.softmax(x, -1),
        "layer_norm": layer_norm,
        "gelu": lambda x: functional.gelu(x, approximate="tanh"),
        "row_sum": lambda x: x.sum(-1),
        "row_max": lambda x: x.amax(-1),
    }[case]
    return torch.no_grad()(step)


def onnxruntime_step(case: str, threads: int) -> Step:
    """A session of one node, with a symbolic number of rows."""
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    node = {
        "softmax": lambda: helper.make_node("Softmax", ["x"], ["y"], axis=-1),
        "layer_norm": lambda: helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["y"], epsilon=1e-5),
        "gelu": lambda: helper.make_node("Gelu", ["x"], ["y"], approximate="tanh"),
        "row_sum": lambda: helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0),
        "row_max": lambda: helper.make_node("ReduceMax", ["x", "axes"], ["y"], keepdims=0),
    }[case]()
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", COLUMNS])]
    if case == "layer_norm":
        inputs += [helper.make_tensor_value_info(n, TensorProto.FLOAT, [COLUMNS]) for n in ("scale", "shift")]
    shape = ["N"] if case.startswith("row_") else ["N", COLUMNS]
    axes = [helper.make_tensor("axes", TensorProto.INT64, [1], [1])] if case.startswith("row_") else []
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph([node], case, inputs, [output], axes)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [i.name for i in inputs]
    return lambda *arrays: session.run(None, dict(zip(names, arrays, strict=True)))[0]


def serve(system: str, threads: int) -> None:
    """The process of one system: answers requests on its standard streams."""
    reply = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    convert: Callable[[Any], Any] = np.asarray
    make: Callable[[str], Step] = numpy_step
    try:
        if system == "tiercel":
            import tiercel as tc

            tc.set_context(threads=threads)
            make = tiercel_step
        elif system == "torch":
            import torch

            torch.set_num_threads(threads)
            convert, make = torch.from_numpy, torch_step
        elif system == "onnxruntime":
            import onnx
            import onnxruntime

            del onnx, onnxruntime

            def make(case: str) -> Step:
                return onnxruntime_step(case, threads)
    except ImportError:
        pickle.dump(None, reply)
        return
    pickle.dump(system, reply)
    reply.flush()
    steps: dict[str, Step] = {}
    while True:
        try:
            case, rows, seconds = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if case not in steps:
            steps[case] = make(case)
        step, arguments = steps[case], [convert(a) for a in given(case, rows)]
        result = np.asarray(step(*arguments))
        best, until = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < until:
            began = time.perf_counter()
            for _ in range(8):
                step(*arguments)
            best = min(best, (time.perf_counter() - began) / 8)
        pickle.dump((result, best), reply)
        reply.flush()


class Peer:
    """The parent's end of a system's process."""

    def __init__(self, system: str, threads: int) -> None:
        command = [sys.executable, __file__, "--serve", system, "--threads", str(threads)]
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), TIERCEL_NUM_THREADS=str(threads))
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment)
        self.there = pickle.load(self.process.stdout) is not None  # type: ignore[arg-type]

    def ask(self, case: str, rows: int, seconds: float) -> tuple[Any, float]:
        """(result, seconds of one call)."""
        assert self.process.stdin is not None
        pickle.dump((case, rows, seconds), self.process.stdin)
        self.process.stdin.flush()
        answer: tuple[Any, float] = pickle.load(self.process.stdout)  # type: ignore[arg-type]
        time.sleep(PAUSE_SECONDS)
        return answer

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=[])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.02, help="of a burst")
    parser.add_argument("--rows", default="1,8,64,640")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.threads)
        return
    counts = [int(n) for n in options.rows.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("TIERCEL_CACHE_DIR", folder)
        peers = {system: Peer(system, options.threads) for system in SYSTEMS}
        there = {system: peer for system, peer in peers.items() if peer.there}
        print(f"{options.threads} thread(s), {COLUMNS} columns, us a call (ratio to tiercel)")
        print(f"{'':12s} {'rows':>5s} " + " ".join(f"{s:>18s}" for s in there))
        for case in options.cases or CASES:
            for rows in counts:
                results = {s: p.ask(case, rows, 0.0)[0] for s, p in there.items()}
                for system, result in results.items():
                    np.testing.assert_allclose(result, results["numpy"], 2e-4, 2e-5, err_msg=f"{case} of {system}")
                times: dict[str, list[float]] = {s: [] for s in there}
                for _ in range(options.rounds):
                    for system, peer in there.items():
                        times[system].append(peer.ask(case, rows, options.seconds)[1])
                middle = {s: statistics.median(t) * 1e6 for s, t in times.items()}
                cells = [f"{m:9.1f} ({m / middle['tiercel']:5.2f})" for m in middle.values()]
                print(f"{case:12s} {rows:5d} " + " ".join(f"{c:>18s}" for c in cells), flush=True)
        for peer in peers.values():
            peer.close()


if __name__ == "__main__":
    main()
