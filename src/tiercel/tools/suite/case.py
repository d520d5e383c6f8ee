"""What a case is: shapes, inputs, weights, and the same computation for every peer.

In: nothing. Out: subclasses of `Case`, one instance for each name of the suite. Invariant: weights and inputs are
functions of the case's name, the shape and a number only, so that every process makes the same ones and none is sent.
A peer that cannot do a case raises `Cannot` with the reason, which ends up in the tables.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "Array",
    "Call",
    "Cannot",
    "Case",
    "Setting",
    "Shape",
    "Weights",
    "frozen",
    "next_power",
    "padded",
]

# Shapes of a stream.
DISTINCT: Final = 64

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
Weights = Mapping[str, Array]
Call = Callable[..., Any]


class Cannot(Exception):
    """A peer cannot do a case; the message says why."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a child is told.

    Attributes:
        threads: how many threads a peer may compute with.
        folder: a folder for files of this case.
    """

    threads: int
    folder: Path


class Case:
    """One computation whose shapes change.

    Subclasses give shapes, inputs and weights, and a method for each peer that returns the function to be timed. Its
    arguments are what `inputs` makes, in the peer's own type of array.

    Attributes:
        name, title: as in the tables.
        labels: what the numbers of a shape mean.
        rtol, atol: results of peers may be so far from the reference, relative to its largest element and absolutely.
        odd_share: the share of elements that may be further off: ties that rounding decides.
        calls: length of the stream, quick and full: about two and five seconds of NumPy's time on two cores, so that
            compiling is neither everything nor nothing in the total.
    """

    name: str
    title: str
    labels: ClassVar[tuple[str, ...]] = ("rows",)
    rtol: float = 2e-4
    atol: float = 1e-5
    odd_share: float = 0.0
    calls: tuple[int, int] = (60, 300)

    def shapes(self, quick: bool) -> Sequence[Shape]:
        """Return the shapes whose steady latency is measured, small to large."""
        raise NotImplementedError

    def draw(self, rng: np.random.Generator, quick: bool) -> Shape:
        """Return a random shape of the stream."""
        raise NotImplementedError

    def size(self, shape: Shape) -> float:
        """Return the place of a shape on the plot's axis: the product of its numbers, unless a case knows better."""
        return float(np.prod(shape))

    def weights(self, rng: np.random.Generator) -> Weights:
        """Return float32 weights by name."""
        raise NotImplementedError

    def inputs(self, rng: np.random.Generator, shape: Shape) -> tuple[Any, ...]:
        """Return the arguments of one call: NumPy arrays (float32, integers) and Python ints."""
        raise NotImplementedError

    # ---- peers -------------------------------------------------------------------------------------------------------

    def numpy(self, weights: Weights) -> Call:
        """As a NumPy user writes it. Also run in float64, as the reference: no dtype is spelled out in it."""
        raise NotImplementedError

    def tiercel(self, weights: Weights) -> Call:
        """The NumPy code, jitted; `frozen(weights)` says that they do not change."""
        raise NotImplementedError

    def torch(self, weights: Weights) -> Call:
        """In eager mode."""
        raise Cannot("not written for this case")

    def torch_compile(self, weights: Weights) -> Call:
        """The eager model through `torch.compile(dynamic=True)`."""
        import torch

        compiled: Call = torch.compile(self.torch(weights), dynamic=True)
        return compiled

    def onnx_module(self, weights: Weights) -> Any:
        """Return the torch module that is exported for ONNX Runtime."""
        module = self.torch(weights)
        if not hasattr(module, "forward"):
            raise Cannot("there is no ONNX model of this case")
        return module

    # The dimensions that change, for each input of the ONNX model: (name, {axis: label}).
    onnx_inputs: Sequence[tuple[str, Mapping[int, str]]] = (("x", {0: "rows"}),)

    def onnx_example(self) -> tuple[Any, ...]:
        """Return NumPy inputs that the exporter runs the module on."""
        return self.made_inputs(self.shapes(True)[0])

    def onnxruntime(self, weights: Weights, session: Any) -> Call:
        """Run the session that was made of the exported model; inputs and results are NumPy arrays."""
        names = [entry.name for entry in session.get_inputs()]

        def run(*inputs: Any) -> Any:
            return session.run(None, dict(zip(names, inputs, strict=True)))

        return run

    def jax(self, weights: Weights) -> Call:
        """`jax.jit`, which compiles for every new shape."""
        raise Cannot("not written for this case")

    def jax_padded(self, weights: Weights) -> Call:
        """`jax.jit` on inputs padded to powers of two, results cut; takes and gives NumPy arrays."""
        raise Cannot("not written for this case")

    def numba(self, weights: Weights) -> Call:
        """Loops and NumPy calls in `numba.njit`."""
        raise Cannot("not written for this case")

    # ---- made from the above -----------------------------------------------------------------------------------------

    def seeded(self, *numbers: int) -> np.random.Generator:
        """Return a generator that depends on the name and the numbers only."""
        return np.random.default_rng([zlib.crc32(self.name.encode()), *numbers])

    def made_weights(self) -> Weights:
        """Return the weights, the same in every process."""
        return self.weights(self.seeded(0))

    def made_inputs(self, shape: Shape) -> tuple[Any, ...]:
        """Return the inputs of a shape, the same in every process."""
        return self.inputs(self.seeded(1, *shape), shape)

    def stream(self, quick: bool) -> list[Shape]:
        """Return the shapes of the stream, the same in every process: any of `DISTINCT` random ones at each call.

        Not a new one at each call: who compiles for every shape must have a chance to come to an end, and the inputs of
        all calls must fit into memory, because they exist before the first one.
        """
        rng = self.seeded(2)
        count = self.calls[0 if quick else 1]
        drawn = [self.draw(rng, quick) for _ in range(min(DISTINCT, count))]
        return drawn if count <= DISTINCT else [drawn[i] for i in rng.integers(0, DISTINCT, count)]


def frozen(weights: Weights) -> dict[str, Array]:
    """Return weights as constants, which Tiercel may pack and specialise for."""
    import tiercel as tc

    return {name: tc.constant(value) for name, value in weights.items()}


def next_power(number: int, least: int = 8) -> int:
    """Return the smallest power of two that is at least `number` and at least `least`: the bucket of a size."""
    return max(least, 1 << max(0, int(number) - 1).bit_length())


def padded(array: Array, *sizes: int) -> Array:
    """Return an array padded with zeros to the given sizes of its first dimensions."""
    wide = np.zeros((*sizes, *array.shape[len(sizes) :]), array.dtype)
    wide[tuple(slice(n) for n in array.shape)] = array
    return wide
