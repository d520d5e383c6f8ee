"""The peers: how each is found, started with so many threads, fed, and waited for.

In: a peer's name. Out: a `Peer`, whose runtime a child makes. A runtime knows what users of that peer know: that JAX
returns before it has finished, that torch wants its gradients off. Invariant: nothing here is imported before a child
starts, so a peer costs nobody else memory or threads.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tiercel.errors import TiercelError, suggest
from tiercel.tools.suite.case import Call, Case, Setting, Weights

__all__ = ["PEERS", "Peer", "Runtime", "chosen", "environment"]


class Runtime:
    """NumPy's: nothing to convert, nothing to wait for. The others' differ where they must."""

    method = "numpy"

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def build(self, case: Case, weights: Weights) -> Call:
        """Return the function to be timed. What this takes is part of the time until the first result."""
        call: Call = getattr(case, self.method)(weights)
        return call

    def convert(self, value: Any) -> Any:
        """Turn one input into what users of the peer hold."""
        return value

    def finish(self, result: Any) -> None:
        """Wait until the result is there. Timed."""

    def collect(self, value: Any) -> Any:
        """Turn an array of a result into NumPy's."""
        return np.asarray(value)

    def wait(self, seconds: float) -> None:
        """Wait for compiling in the background, if there is any."""

    def running(self) -> contextlib.AbstractContextManager[Any]:
        """Return what surrounds all calls."""
        return contextlib.nullcontext()

    def describe(self, call: Call) -> dict[str, Any]:
        """Return what the peer can tell about how it ran."""
        return {}


class TiercelRuntime(Runtime):
    """Constants as weights, arrays as inputs; a stream ends when nothing is being compiled."""

    method = "tiercel"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        import tiercel as tc

        # Modules are loaded when they are first needed: by naming these, and by decorating a function.
        tc.constant, tc.Tensor  # noqa: B018
        tc.jit(clock)

    def wait(self, seconds: float) -> None:
        import tiercel as tc

        tc.wait(seconds)

    def describe(self, call: Call) -> dict[str, Any]:
        functions = getattr(call, "jitted", (call,))
        told = [f.stats() for f in functions if hasattr(f, "stats")]
        total = {key: sum(s[key] for s in told) for key in (told[0] if told else {}) if type(told[0][key]) is int}
        text = "\n".join(str(f.explain()) for f in functions if hasattr(f, "explain"))
        return {"stats": total, "explain": text}


class TorchRuntime(Runtime):
    """Eager torch."""

    method = "torch"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        import torch

        self.torch = torch
        torch.set_num_threads(setting.threads)

    def convert(self, value: Any) -> Any:
        return self.torch.from_numpy(value) if isinstance(value, np.ndarray) else value

    def collect(self, value: Any) -> Any:
        return value.numpy() if hasattr(value, "numpy") else np.asarray(value)

    def running(self) -> contextlib.AbstractContextManager[Any]:
        context: contextlib.AbstractContextManager[Any] = self.torch.inference_mode()
        return context


class TorchCompileRuntime(TorchRuntime):
    """`torch.compile`, without gradients."""

    method = "torch_compile"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        import torch._dynamo  # noqa: F401 - otherwise imported by the first torch.compile

    def running(self) -> contextlib.AbstractContextManager[Any]:
        context: contextlib.AbstractContextManager[Any] = self.torch.no_grad()
        return context


class OnnxRuntime(Runtime):
    """A session over the model that was exported beforehand; building it is timed, exporting is not."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        import onnxruntime

        self.library = onnxruntime

    def build(self, case: Case, weights: Weights) -> Call:
        options = self.library.SessionOptions()
        options.intra_op_num_threads = self.setting.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        session = self.library.InferenceSession(
            str(self.setting.folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        return case.onnxruntime(weights, session)


class JaxRuntime(Runtime):
    """`jax.jit` on arrays that are on the device already. Pinned to as many cores as it may have threads."""

    method = "jax"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        # XLA has no setting for its number of threads; it counts the cores it may run on.
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: setting.threads]))
        import jax

        self.jax = jax

    def convert(self, value: Any) -> Any:
        return self.jax.device_put(value) if isinstance(value, np.ndarray) else value

    def finish(self, result: Any) -> None:
        self.jax.block_until_ready(result)


class JaxPaddedRuntime(JaxRuntime):
    """NumPy arrays in and out: whoever pads does it outside `jit`."""

    method = "jax_padded"

    def convert(self, value: Any) -> Any:
        return value


class NumbaRuntime(Runtime):
    """`numba.njit`."""

    method = "numba"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        import numba

        numba.set_num_threads(setting.threads)


@dataclass(frozen=True, slots=True)
class Peer:
    """One of those that are compared.

    Attributes:
        name: as given to `--peers`.
        needs: the packages it is imported from.
        runtime: `module:class`, looked up in the child.
        compiles: whether it compiles while the program runs.
    """

    name: str
    needs: tuple[str, ...] = ()
    runtime: str = f"{__name__}:Runtime"
    compiles: bool = False

    def missing(self) -> str | None:
        """Return which package is not installed, or None."""
        return next((package for package in self.needs if importlib.util.find_spec(package) is None), None)

    def version(self) -> str:
        """Return the version of the package it is named after."""
        try:
            return importlib.metadata.version((self.needs or ("numpy",))[0])
        except importlib.metadata.PackageNotFoundError:
            return "unknown"


def _runtime(cls: type[Runtime]) -> str:
    return f"{cls.__module__}:{cls.__name__}"


PEERS: Final[Mapping[str, Peer]] = {
    peer.name: peer
    for peer in (
        Peer("tiercel", ("tiercel",), _runtime(TiercelRuntime), compiles=True),
        Peer("numpy", ("numpy",)),
        Peer("torch", ("torch",), _runtime(TorchRuntime)),
        Peer("torch.compile", ("torch",), _runtime(TorchCompileRuntime), compiles=True),
        Peer("onnxruntime", ("onnxruntime", "onnx", "torch"), _runtime(OnnxRuntime)),
        Peer("jax", ("jax",), _runtime(JaxRuntime), compiles=True),
        Peer("jax-padded", ("jax",), _runtime(JaxPaddedRuntime), compiles=True),
        Peer("numba", ("numba",), _runtime(NumbaRuntime), compiles=True),
    )
}


def chosen(names: Sequence[str]) -> list[Peer]:
    """Return the peers of these names, all if there are none; Tiercel is always among them.

    Raises:
        TiercelError: there is no such peer.
    """
    for name in names:
        if name not in PEERS:
            near = suggest(name, list(PEERS)) or f"; there are {', '.join(PEERS)}"
            raise TiercelError(f"there is no peer {name!r}{near}")
    return [peer for peer in PEERS.values() if not names or peer.name in names or peer.name == "tiercel"]


def environment(threads: int, folder: str) -> dict[str, str]:
    """Return the variables of a child: the same number of threads for everybody, and no cache from an earlier run."""
    # What pip has compiled is there for all peers; a checkout of Tiercel must be allowed to be compiled as well.
    left_out = ("TIERCEL_LOG", "TIERCEL_DEBUG", "TIERCEL_DISABLE", "PYTHONDONTWRITEBYTECODE")
    kept = {k: v for k, v in os.environ.items() if k not in left_out}
    counts = ("OMP", "OPENBLAS", "MKL", "NUMBA", "TIERCEL")
    kept |= {f"{name}_NUM_THREADS": str(threads) for name in counts}
    kept |= {
        "NPROC": str(threads),
        "JAX_PLATFORMS": "cpu",
        "TIERCEL_CACHE_DIR": os.path.join(folder, "tiercel"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
        "PYTHONUNBUFFERED": "1",
    }
    return kept


def clock() -> float:
    """Return seconds, for differences."""
    return time.perf_counter()
