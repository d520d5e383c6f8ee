"""Single convolutions and pools against PyTorch and ONNX Runtime.

    tiercel bench convolutions                   # or: python benchmarks/convolutions.py [--threads N] [--quick]

float32, frozen filters, a bias and a lower bound of 0 behind each convolution, sizes of the image not fixed. Every peer
runs in a process of its own, one after the other, in three rounds; the figures are the least of medians over rounds.
`floor` is the arithmetic alone, at the rate that the same process reaches in a product of 768 x 768 matrices, or, for
pools, reading the image and writing the result at the rate of a copy.
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
from typing import Any, NamedTuple

import numpy as np

ROUNDS = 3


class Layer(NamedTuple):
    """A layer on an image (batch, channels, *size)."""

    name: str
    image: tuple[int, ...]
    filters: tuple[int, ...] = ()
    stride: int = 1
    padding: int = 0
    groups: int = 1
    dilation: int = 1

    @property
    def is_pool(self) -> bool:
        return not self.filters


LAYERS = [
    Layer("3 x 3, 3 to 16", (1, 3, 224, 224), (16, 3, 3, 3), 1, 1),
    Layer("3 x 3, 16 to 32, by 2", (1, 16, 224, 224), (32, 16, 3, 3), 2, 1),
    Layer("7 x 7, 3 to 64, by 2", (1, 3, 224, 224), (64, 3, 7, 7), 2, 3),
    Layer("3 x 3, 64 to 64", (1, 64, 56, 56), (64, 64, 3, 3), 1, 1),
    Layer("3 x 3, 128 to 128", (1, 128, 28, 28), (128, 128, 3, 3), 1, 1),
    Layer("3 x 3, 256 to 256", (1, 256, 14, 14), (256, 256, 3, 3), 1, 1),
    Layer("3 x 3, 512 to 512", (1, 512, 7, 7), (512, 512, 3, 3), 1, 1),
    Layer("1 x 1, 64 to 256", (1, 64, 56, 56), (256, 64, 1, 1)),
    Layer("1 x 1, 256 to 512, by 2", (1, 256, 56, 56), (512, 256, 1, 1), 2),
    Layer("3 x 3, 64 to 64, dilated by 2", (1, 64, 56, 56), (64, 64, 3, 3), 1, 2, 1, 2),
    Layer("3 x 3, 128 in 32 groups", (1, 128, 56, 56), (128, 4, 3, 3), 1, 1, 32),
    Layer("3 x 3 of each of 144", (1, 144, 56, 56), (144, 1, 3, 3), 1, 1, 144),
    Layer("3 x 3 of each of 144, by 2", (1, 144, 56, 56), (144, 1, 3, 3), 2, 1, 144),
    Layer("16 x 16, 3 to 768, by 16", (1, 3, 224, 224), (768, 3, 16, 16), 16),
    Layer("9 of a line, 64 to 64", (1, 64, 16000), (64, 64, 9), 1, 4),
    Layer("largest of 2 x 2", (1, 64, 112, 112)),
    Layer("mean of all", (1, 512, 14, 14)),
]
QUICK = [LAYERS[i] for i in (0, 1, 3, 5, 11)]


def arrays(layer: Layer) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(1)
    image = rng.standard_normal(layer.image, dtype=np.float32)
    filters = rng.standard_normal(layer.filters or (1,), dtype=np.float32) * np.float32(0.1)
    return image, filters, rng.standard_normal(filters.shape[:1], dtype=np.float32)


def tiercel_call(layer: Layer) -> Callable[[Any], Any]:
    import tiercel as tc

    w, b = (tc.constant(a) for a in arrays(layer)[1:])
    stride, padding, groups, dilation = layer.stride, layer.padding, layer.groups, layer.dilation

    def convolve(x: Any) -> Any:
        return np.maximum(tc.ops.conv2d(x, w, b, stride=stride, padding=padding, dilation=dilation, groups=groups), 0)

    def convolve_line(x: Any) -> Any:
        return np.maximum(tc.ops.conv1d(x, w, b, stride=stride, padding=padding, dilation=dilation, groups=groups), 0)

    def pool(x: Any) -> Any:
        return tc.ops.max_pool2d(x, kernel_size=2)

    def mean(x: Any) -> Any:
        return x.mean(axis=(2, 3))

    layer_of = convolve_line if len(layer.image) == 3 else convolve
    made = tc.jit(layer_of if layer.filters else pool if "2 x 2" in layer.name else mean)
    x = arrays(layer)[0]
    for size in (x.shape[-1], x.shape[-1] + 32):
        made.warmup(np.ones((*x.shape[:-1], size), np.float32))
    tc.wait()
    made(x)
    if not made.stats()["compiled_calls"]:
        print(f"{layer.name} is not compiled", file=sys.stderr)
    return made


def torch_call(layer: Layer) -> Callable[[Any], Any]:
    import torch
    from torch.nn import functional

    torch.set_grad_enabled(False)
    w, b = (torch.from_numpy(a) for a in arrays(layer)[1:])
    operator = functional.conv1d if len(layer.image) == 3 else functional.conv2d

    def call(x: Any) -> Any:
        x = torch.from_numpy(x)
        if layer.filters:
            return operator(x, w, b, layer.stride, layer.padding, layer.dilation, layer.groups).relu_()
        return functional.max_pool2d(x, 2) if "2 x 2" in layer.name else x.mean(dim=(2, 3))

    return call


def onnxruntime_call(layer: Layer, threads: int) -> Callable[[Any], Any]:
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper

    axes = len(layer.image) - 2
    w, b = arrays(layer)[1:]
    if layer.filters:
        conv = helper.make_node(
            "Conv", ["x", "w", "b"], ["c"], strides=[layer.stride] * axes, pads=[layer.padding] * (2 * axes),
            group=layer.groups, dilations=[layer.dilation] * axes,
        )  # fmt: skip
        nodes = [conv, helper.make_node("Relu", ["c"], ["y"])]
    elif "2 x 2" in layer.name:
        nodes = [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2])]
    else:
        nodes = [helper.make_node("GlobalAveragePool", ["x"], ["y"])]
    sizes = ["batch", layer.image[1], *"hw"[:axes]]
    graph = helper.make_graph(
        nodes, "layer", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None] * (axes + 2))],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")] if layer.filters else [],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})[0]


def seconds(call: Callable[[], Any], least: float = 0.03) -> float:
    """Median of seven times of a call."""
    call()
    began = time.perf_counter()
    call()
    many = max(1, int(least / max(time.perf_counter() - began, 1e-7)))
    times = []
    for _ in range(7):
        began = time.perf_counter()
        for _ in range(many):
            call()
        times.append((time.perf_counter() - began) / many)
    return statistics.median(times)


def floors(layers: list[Layer], threads: int) -> list[float]:
    """The least time of each layer: its multiply-adds, or its bytes."""
    a, b = (np.ones((768, 768), np.float32) for _ in range(2))
    rate = 2 * 768**3 / seconds(lambda: a @ b)
    found = []
    for layer in layers:
        if layer.is_pool:
            image = arrays(layer)[0]
            target = np.empty_like(image)
            share = 0.625 if "2 x 2" in layer.name else 0.5
            found.append(share * seconds(lambda image=image, target=target: np.copyto(target, image)) / threads)
            continue
        extents = [layer.dilation * (k - 1) + 1 for k in layer.filters[2:]]
        counts = [
            (n + 2 * layer.padding - e) // layer.stride + 1 for n, e in zip(layer.image[2:], extents, strict=True)
        ]
        found.append(2.0 * layer.image[0] * float(np.prod(layer.filters)) * float(np.prod(counts)) / rate)
    return found


def child(peer: str, threads: int, quick: bool) -> None:
    layers = QUICK if quick else LAYERS
    if peer == "floor":
        print(json.dumps(floors(layers, threads)))
        return
    makers: dict[str, Callable[[Layer], Callable[[Any], Any]]] = {
        "tiercel": tiercel_call, "torch": torch_call, "onnxruntime": lambda layer: onnxruntime_call(layer, threads),
    }  # fmt: skip
    found = []
    for layer in layers:
        call, x = makers[peer](layer), arrays(layer)[0]
        found.append(seconds(lambda call=call, x=x: call(x)))
    print(json.dumps(found))


def main() -> None:
    """Run all peers and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--quick", action="store_true", help="five layers, one round")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.threads, given.quick)
        return
    layers, peers = QUICK if given.quick else LAYERS, ["floor", "tiercel", "torch", "onnxruntime"]
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TIERCEL_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, str(given.threads))}
    times: dict[str, list[list[float]]] = {peer: [] for peer in peers}
    for _ in range(1 if given.quick else given.rounds):
        for peer in peers:
            command = [sys.executable, __file__, "--child", peer, "--threads", str(given.threads)]
            command += ["--quick"] if given.quick else []
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode == 0:
                times[peer].append(json.loads(done.stdout.splitlines()[-1]))
    best = {peer: [min(column) for column in zip(*rows, strict=True)] for peer, rows in times.items() if rows}
    print(f"{given.threads} threads; microseconds, and Tiercel's time to that of the others")
    print("layer".ljust(32) + "".join(p.rjust(13) for p in best) + "".join(f"/{p}".rjust(13) for p in list(best)[2:]))
    for i, layer in enumerate(layers):
        figures = "".join(f"{best[p][i] * 1e6:13.1f}" for p in best)
        ratios = "".join(f"{best['tiercel'][i] / best[p][i]:13.2f}" for p in list(best)[2:])
        print(layer.name.ljust(32) + figures + ratios)


if __name__ == "__main__":
    main()
