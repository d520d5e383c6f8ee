"""Times of products carried out in every way there is: one kernel a width of panels, told the rest by its sizes.

In: a `Product` (what), a `Point` (how), addresses of the libraries. Out: nanoseconds of one product. The kernel is made
of the same parts as that of a region: the cut into blocks, the library's product, an epilogue where there is one.

The right operand stands in memory several times (`WEIGHT_BYTES` in all) and a run takes one after
the other: in a program other layers come in between, and leave weights in the third-level cache at best. A run is some
products, `RUN_NS` or more; which of two ways is faster shows in runs that alternate (`session`), not in single ones.

A time says what the machine does: a run in which the system took a processor away, or did not give every thread one, is
told apart (`Timed.disturbed`, `Timed.starved`).
"""

from __future__ import annotations

import ctypes
import resource
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tiercel.codegen.abi import ARENA, POOL, THREADS, frame_size, frame_words
from tiercel.codegen.blob import Mapped, link, map_blob
from tiercel.codegen.cpu.assemble import assemble
from tiercel.codegen.cpu.choice import BLOCKS, Point
from tiercel.codegen.cpu.contract import OPEN, expand_open, open_sizes
from tiercel.codegen.cpu.emit import emit
from tiercel.codegen.cpu.target import Target
from tiercel.compiler.interface import PACK_PADDING
from tiercel.dtypes import as_dtype
from tiercel.loops.form import (
    INDEX,
    Allocate,
    Binary,
    Block,
    Buffer,
    Const,
    Contract,
    For,
    Function,
    Let,
    Load,
    Store,
    Var,
)
from tiercel.loops.index import index_mul
from tiercel.tuner.space import Product, is_large

__all__ = ["Bench", "Timed"]

WEIGHT_BYTES: Final = 6 << 20
"""Of all copies of the right operand: more than the first two levels of cache hold."""
RUN_NS: Final = 60_000.0
"""A run takes at least so long: entering it costs 1 us."""
_TOGETHER: Final = 0.75
"""Of the time of runs every thread must have had a processor for this part on average, working or waiting for work."""
_LONG_NS: Final = 10_000_000
"""Processor time of other threads is known to a few milliseconds only."""
_COPIES: Final = 32
_MOST_PANELS: Final = 96
"""Of a block of 1536 bytes: panels of one vector of 16."""


class Timed(NamedTuple):
    """A run.

    Attributes:
        ns: of one product.
        disturbed: whether something else had the processor meanwhile.
        starved: whether the runs of this product so far did not have a processor for every thread.
    """

    ns: float
    disturbed: bool
    starved: bool = False


class Bench:
    """Measures products.

    Args:
        address: of a function of the runtime library or of an extension, by name (see `names.extension_of`).
        pool: address of a thread pool, 0 for none.
        threads: how many it has.
    """

    def __init__(self, address: Callable[[str], int], pool: int = 0, threads: int = 1) -> None:
        self.target = Target.host()
        self.address = address
        self.pool = pool
        self.threads = threads
        self._last: Product | None = None
        self._spent = self._used = 0
        self._kernels: dict[tuple[str, str, bool, int], _Kernel] = {}
        self._operands: dict[Product, _Operands] = {}
        self._frames: dict[tuple[Product, int], npt.NDArray[np.int64]] = {}

    def time(self, product: Product, point: Point, expected_ns: float = 0.0) -> Timed:
        """Run products for a moment.

        Args:
            product, point: what, and how.
            expected_ns: what one takes, roughly; a run then is `RUN_NS` long. Without it a run is one product.
        """
        kernel = self.kernel(product, point.vectors)
        frame = self._frame(product, kernel)
        reps = int(max(1.0, min(10_000.0, RUN_NS / expected_ns))) if expected_ns else 1
        for name, value in open_sizes(point, as_dtype(product.dtype), self.target).items():
            frame[kernel.words[name]] = value
        frame[kernel.words["reps"]] = reps
        threads = min(self.threads, product.threads) if self.pool and is_large(product) else 1
        switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        used, began = time.process_time_ns(), time.perf_counter_ns()
        kernel.call(frame.ctypes.data)
        spent, used = time.perf_counter_ns() - began, time.process_time_ns() - used
        preempted = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw != switches
        if self._last != product:
            self._last, self._spent, self._used = product, 0, 0
        self._spent, self._used = self._spent + spent, self._used + used
        long = threads > 1 and self._spent > _LONG_NS
        return Timed(spent / reps, preempted, long and self._used < _TOGETHER * threads * self._spent)

    def forget(self, product: Product) -> None:
        """Let go of the operands of a product."""
        self._operands.pop(product, None)
        for key in [key for key in self._frames if key[0] == product]:
            del self._frames[key]

    def forget_all(self) -> None:
        """Let go of all operands."""
        self._operands.clear()
        self._frames.clear()

    def kernel(self, product: Product, vectors: int) -> _Kernel:
        """The kernel for such products, compiled on first need (10 ms)."""
        key = (product.dtype, product.layout, product.epilogue, vectors)
        if key not in self._kernels:
            self._kernels[key] = _Kernel(*key, self.target, self.address)
        return self._kernels[key]

    def _frame(self, product: Product, kernel: _Kernel) -> npt.NDArray[np.int64]:
        """The frame of a call, made on first need."""
        key = (product, kernel.vectors)
        found = self._frames.get(key)
        if found is not None:
            return found
        held = self._operands.get(product)
        if held is None:
            held = self._operands[product] = _Operands(product)
        frame = self._frames[key] = np.zeros(kernel.frame_size, np.int64)
        m, n, k = product.m, product.n, product.k
        sizes = {"M": m, "N": n, "K": k, "one": held.one, "copies": held.copies, "reps": 1, **dict.fromkeys(OPEN, 1)}
        sizes |= {"most_rows": max(rows for rows, _ in BLOCKS.values()), "most_panels": _MOST_PANELS}
        for name, value in sizes.items():
            frame[kernel.words[name]] = value
        for name, array in held.arrays.items():
            frame[kernel.words[name]] = array.ctypes.data
        frame[POOL], frame[THREADS] = self.pool, self.threads if self.pool else 1
        frame[ARENA] = held.arena(kernel.arena(frame.ctypes.data))
        return frame


class _Operands:
    """Memory of a product's operands: the same for all widths of panels, so that none finds it colder than another."""

    def __init__(self, product: Product) -> None:
        m, n, k = product.m, product.n, product.k
        self._itemsize = as_dtype(product.dtype).itemsize
        self.one = k * (n + (PACK_PADDING if product.layout == "packed" else 0))
        self.copies = max(1, min(_COPIES, WEIGHT_BYTES // max(1, self.one * self._itemsize)))
        sizes = {"a": m * k, "b": self.one * self.copies, "y": m * n, "bias": n}
        self.arrays = {name: self._place(size, product.dtype) for name, size in sizes.items()}
        self._arenas: list[npt.NDArray[np.uint8]] = []

    def _place(self, elements: int, dtype: str) -> npt.NDArray[np.uint8]:
        """So many numbers that are no denormals and sum to nothing large, in memory that begins a line of cache."""
        raw = np.zeros(elements * self._itemsize + 128, np.uint8)
        place = raw[-raw.ctypes.data % 64 :]
        numbers = place[: elements * self._itemsize].view(dtype)
        numbers[::2], numbers[1::2] = 0.75, -0.5
        return place

    def arena(self, size: int) -> int:
        """The address of an arena of so many bytes, for one frame."""
        self._arenas.append(self._place(size // self._itemsize + 16, f"f{self._itemsize}"))
        return int(self._arenas[-1].ctypes.data)


class _Kernel:
    """Machine code that computes `reps` products one after the other."""

    def __init__(
        self, dtype: str, layout: str, epilogue: bool, vectors: int, target: Target, address: Callable[[str], int]
    ) -> None:
        self.vectors = vectors
        function = _function(dtype, layout, epilogue)
        self.words, self.frame_size = frame_words(function), frame_size(function)
        text = emit(expand_open(function, target, vectors), target)
        blob = link(assemble(text, target), [function.name, f"{function.name}.arena"])
        self._code: Mapped = map_blob(blob, {name: address(name) for name in blob.imports})
        entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
        self.call = entry(self._code.address(function.name))
        self.arena = entry(self._code.address(f"{function.name}.arena"))
        self.code_address = self._code.address(function.name)


def _function(name: str, layout: str, epilogue: bool) -> Function:
    """`for rep in range(reps): y = a @ b[rep % copies]`, or `max(that + bias, 0)`."""
    dtype = as_dtype(name)
    m, n, k, one = (Var(x) for x in ("M", "N", "K", "one"))
    packed = layout == "packed"
    a, bias = Buffer("a", dtype, (m, k)), Buffer("bias", dtype, (n,))
    b = Buffer("b", dtype, (index_mul(one, Var("copies")),), space="constant" if packed else "argument")
    y = Buffer("y", dtype, (m, n), space="result")
    strides = (Const(1, INDEX), k) if layout == "columns" else (n, Const(1, INDEX))
    copy = Var("copy")
    weight = Buffer("weight", dtype, (k, n), None if packed else strides, "arena", "b", index_mul(copy, one))
    value = total = Var("total", dtype)
    if epilogue:
        value = Binary("max", Binary("add", total, Load(bias, (Var("j"),))), Const(0.0, dtype))  # type: ignore[assignment]
    contract = Contract(a, weight, "i", "j", "total", Block((Store(y, (Var("i"), Var("j")), value),)), m, n, k, packed)
    body = Block((
        Let("copy", Binary("mod", Var("rep"), Var("copies"))),
        Allocate(weight),
        contract,
    ))  # fmt: skip
    sizes = tuple(Var(x) for x in ("M", "N", "K", "one", "copies", "reps", *OPEN))
    return Function("measured", sizes, (), (a, b, bias, y), (), Block((For("rep", Var("reps"), body),)))
