"""A kernel on trial: called in guarded memory, with everything it must not do made visible.

In: mapped code, its loop nest and interface, one value per input. Out: what it wrote, and how it left. Results begin
as poison, the arena as NaNs, every buffer lies between forbidden pages; inputs are compared with what they were.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tiercel.codegen.abi import ARENA, ARENA_BYTES, EXTRA_WORK, POOL, THREADS, frame_size, frame_words
from tiercel.codegen.cpu.estimate import PARALLEL_WORK
from tiercel.compiler.interface import (
    PACK_PADDING,
    EitherOf,
    GrownArray,
    Interface,
    NewArray,
    PackSpec,
    Recipe,
    SameInput,
    ScalarOutput,
    SizeValue,
    ViewOf,
    new_arrays,
)
from tiercel.compiler.interface import Sequence as SequenceRecipe
from tiercel.compiler.memory import dense_strides
from tiercel.errors import ShapeError
from tiercel.hotpath.memory import GuardedMemory
from tiercel.loops.form import Function
from tiercel.shapes import evaluate as size_of

__all__ = ["FLAGS", "Called", "NativeKernel", "NoSuchResult", "Runtime"]

_CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_SIZE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_P, _L = ctypes.c_void_p, ctypes.c_int64
_PACK = ctypes.CFUNCTYPE(None, _P, _L, _L, _P, _L, _L)
_PANELS = ctypes.CFUNCTYPE(None, _P, _L, _L, _P, _L, _L, _L, _P)
_MEMCMP = ctypes.CDLL(None).memcmp
_MEMCMP.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_POISON: Final = 0xA5
_NANS: Final = 0xFF
FLAGS: Final = {1: "invalid value", 4: "divide by zero", 8: "overflow"}
"""Floating-point flags that NumPy's default error state reports, in its words."""


class NoSuchResult(Exception):
    """For these sizes a result has no size: the entry would miss before calling."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What kernels are called through.

    Attributes:
        call: address of the library function that calls a kernel and reports floating-point flags.
        pack: gives the address of the packing routine of a dtype and layout (see `PackSpec.layout`), the one for panels
            or the other.
        pool: address of a thread pool, 0 for none; `threads` its size.
    """

    call: int
    pack: Callable[[str, bool], int]
    pool: int = 0
    threads: int = 1


@dataclass(slots=True)
class Called:
    """How a call went.

    Attributes:
        site: 0 when it ran to its end, else the exit it took.
        leaves: where it ran to its end, arrays and scalars of the result, left to right; then what the inputs hold
            that it writes. The arrays until the next call.
        flags: floating-point flags it raised.
        written: names of inputs that are not what they were, where they must be: until it has run to its end.
    """

    site: int
    leaves: list[Any]
    flags: int
    written: list[str]


class NativeKernel:
    """A kernel on trial.

    Args:
        function, interface: what it was made from.
        code, arena: addresses of the function and of its arena size.
        runtime: see there.
    """

    def __init__(self, function: Function, interface: Interface, code: int, arena: int, runtime: Runtime) -> None:
        self.function = function
        self.interface = interface
        self.code = code
        self.arena = _SIZE(arena)
        self.runtime = runtime
        self.words = frame_words(function)
        self._call = _CALL(runtime.call)
        # Inputs of fixed sizes (weights) are the same array in several cases: placed and packed once.
        self._kept = GuardedMemory()
        self._memory = GuardedMemory()  # of one call, used again by the next
        self._placed: dict[tuple[int, int, bool], tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = {}
        self._packs: dict[tuple[str, int], np.ndarray[Any, Any]] = {}

    def __call__(
        self,
        values: Sequence[Any],
        sizes: Mapping[str, int],
        *,
        at_end: bool,
        pooled: bool = False,
        before: Callable[[], None] = lambda: None,
    ) -> Called:
        """Run it.

        Args:
            values: per input; arrays may have any strides.
            sizes: the symbols of the inputs.
            at_end: whether buffers end at a forbidden page, or begin after one.
            pooled: with the thread pool, if there is one.
            before: called when all is ready.

        Raises:
            NoSuchResult: see there.
        """
        memory = self._memory
        memory.recycle()
        interface, words = self.interface, self.words
        frame = memory.array((frame_size(self.function),), np.dtype(np.int64), at_end=True)
        placed: dict[int, np.ndarray[Any, Any]] = {}
        for number, (spec, value) in enumerate(zip(interface.inputs, values, strict=True)):
            if spec.kind == "array":
                fixed = all(isinstance(d, int) for d in spec.dims)
                place = self._place(memory, number, value, at_end, fixed=fixed)
                placed[number] = place
                frame[words[spec.name]] = place.ctypes.data
            elif spec.name in words:
                frame[words[spec.name]] = _bits(spec.dtype.numpy, value)
        phase = 0
        for size in interface.sizes:
            if size.what == "phase":
                phase = words[size.name]
            elif size.what == "capacity":
                pass  # set with the result
            elif size.what == "symbol":
                frame[words[size.name]] = sizes[size.name]
            else:
                array = placed[size.input]
                frame[words[size.name]] = array.strides[size.axis] // array.itemsize
        for pack in interface.packs:
            self._pack(pack, placed[pack.input], sizes, frame)
        recipes = [r for exit_ in interface.results.values() for r in exit_.values()]
        made: dict[str, np.ndarray[Any, Any]] = {}
        for new in new_arrays(*recipes):
            if isinstance(new, GrownArray):
                base, made[new.buffer] = self._grown(memory, new, placed[new.input], sizes, at_end)
                if new.capacity:
                    frame[words[new.capacity]] = base.shape[new.axis]
            else:
                made[new.buffer] = self._result(memory, new, sizes, at_end)
            frame[words[new.buffer]] = made[new.buffer].ctypes.data
        changed = []  # the inputs as they are to be: apart from what the kernel reads, which must stay as it is
        for write in interface.writes:
            value = values[write.input]
            place = memory.array(value.shape, value.dtype, at_end=at_end, strides=placed[write.input].strides)
            place[...] = value
            changed.append(place)
            frame[words[write.buffer]] = place.ctypes.data
        if pooled and self.runtime.pool:
            frame[POOL], frame[THREADS] = self.runtime.pool, self.runtime.threads
            frame[EXTRA_WORK] = PARALLEL_WORK
        else:
            frame[THREADS] = 1
        needed = int(self.arena(frame.ctypes.data))
        block = memory.block(-(-needed // 64) * 64, at_end=True, fill=_NANS)
        frame[ARENA], frame[ARENA_BYTES] = block.ctypes.data, needed
        before()
        status = int(self._call(self.code, frame.ctypes.data))
        early = [
            interface.inputs[write.input].name for write, place in zip(interface.writes, changed, strict=True)
            if not _same_bytes(place, values[write.input])
        ]  # fmt: skip
        if interface.writes and not status & 0xFFFFFFFF:
            frame[phase] = 1
            self._call(self.code, frame.ctypes.data)
        written = [
            interface.inputs[number].name for number, place in placed.items() if not _same_bytes(place, values[number])
        ]
        if status & 0xFFFFFFFF:
            return Called(
                status & 0xFFFFFFFF, [], status >> 32, early + written
            )  # views may reach beyond what is there
        leaves: list[Any] = []
        given = {**placed, **{w.input: place for w, place in zip(interface.writes, changed, strict=True)}}
        for recipe in recipes:
            self._collect(recipe, made, given, frame, sizes, leaves)
        leaves += changed
        return Called(0, leaves, status >> 32, early + written)

    @staticmethod
    def _shape(new: NewArray, sizes: Mapping[str, int]) -> tuple[int, ...]:
        try:
            shape = tuple(size_of(d, sizes) for d in new.shape)
        except (ShapeError, ZeroDivisionError) as error:
            raise NoSuchResult(str(error)) from None
        if min(shape, default=0) < 0:
            raise NoSuchResult(f"a result of shape {shape}")
        return shape

    def _result(
        self, memory: GuardedMemory, new: NewArray, sizes: Mapping[str, int], at_end: bool
    ) -> np.ndarray[Any, Any]:
        shape, dtype = self._shape(new, sizes), new.dtype.numpy
        strides = tuple(size_of(s, {}) * dtype.itemsize for s in dense_strides(shape, new.order)) if new.order else None
        return memory.array(shape, dtype, at_end=at_end, fill=_POISON, strides=strides)

    def _grown(
        self,
        memory: GuardedMemory,
        new: GrownArray,
        begin: np.ndarray[Any, Any],
        sizes: Mapping[str, int],
        at_end: bool,
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """(memory, result): a result that continues an input, with spare capacity where the memory does not end."""
        shape = list(self._shape(new, sizes))
        size = shape[new.axis]
        if size < begin.shape[new.axis]:
            raise NoSuchResult(f"a result of shape {shape}")
        shape[new.axis] = size + (0 if at_end else 3)
        base = memory.array(tuple(shape), new.dtype.numpy, at_end=at_end, fill=_POISON)
        before = (slice(None),) * new.axis
        try:
            base[(*before, slice(0, begin.shape[new.axis]))] = begin
        except ValueError:
            raise NoSuchResult(f"{begin.shape} continued as {shape}") from None
        return base, base[(*before, slice(0, size))]

    def _place(
        self, memory: GuardedMemory, number: int, value: np.ndarray[Any, Any], at_end: bool, *, fixed: bool
    ) -> np.ndarray[Any, Any]:
        """A copy of an input between forbidden pages."""
        found = self._placed.get((number, id(value), at_end)) if fixed else None
        if found is not None:
            return found[1]
        place = (self._kept if fixed else memory).array(value.shape, value.dtype, at_end=at_end, strides=value.strides)
        place[...] = value
        if fixed:
            self._placed[number, id(value), at_end] = (value, place)
        return place

    def _pack(self, pack: PackSpec, array: np.ndarray[Any, Any], sizes: Mapping[str, int], frame: Any) -> None:
        """Give the frame the packed form of an input."""
        k, n, row, column, offset = (size_of(d, sizes) for d in (pack.k, pack.n, *pack.strides, pack.offset))
        key = (pack.buffer, id(array))
        panels = self._packs.get(key)
        if panels is None:
            count, firsts = len(pack.panels), np.array(pack.panels, np.int64)
            bytes_ = -(-k * (n * max(count, 1) + PACK_PADDING) * array.itemsize // 64) * 64
            panels = self._packs[key] = self._kept.block(bytes_, at_end=True)
            function = (_PANELS if count else _PACK)(self.runtime.pack(f"{array.dtype.name}{pack.layout}", count > 0))
            extra = (count, firsts.ctypes.data) if count else ()
            function(array.ctypes.data + offset * array.itemsize, row, column, panels.ctypes.data, n, k, *extra)
        frame[self.words[pack.buffer]] = panels.ctypes.data

    def _collect(
        self,
        recipe: Recipe,
        made: Mapping[str, Any],
        given: Mapping[int, Any],
        frame: Any,
        sizes: Mapping[str, int],
        leaves: list[Any],
    ) -> None:
        match recipe:
            case NewArray():
                leaves.append(made[recipe.buffer])
            case EitherOf():
                leaves += [made[recipe.new.buffer], int(frame[self.words[recipe.tag]])]
            case ViewOf():
                base = given[recipe.base.index] if isinstance(recipe.base, SameInput) else made[recipe.base.buffer]
                computed = {name: int(frame[self.words[name]]) for name in recipe.computed}
                sizes = {**sizes, **self._strides(given), **computed}
                leaves.append(_seen(base, recipe, sizes))
            case ScalarOutput():
                raw = frame[self.words[recipe.output]].tobytes()[: recipe.dtype.itemsize]
                value = np.frombuffer(raw, recipe.dtype.numpy)[0]
                leaves.append(value if recipe.kind == "npscalar" else value.item())
            case SizeValue():
                leaves.append(size_of(recipe.value, sizes))
            case SequenceRecipe():
                for item in recipe.items:
                    self._collect(item, made, given, frame, sizes, leaves)
            case _:
                pass  # constants, and inputs handed back

    def _strides(self, given: Mapping[int, Any]) -> dict[str, int]:
        """The strides that are sizes of the function, by name."""
        return {
            size.name: given[size.input].strides[size.axis] // given[size.input].itemsize
            for size in self.interface.sizes if size.what == "stride"
        }  # fmt: skip


def _seen(base: np.ndarray[Any, Any], view: ViewOf, sizes: Mapping[str, int]) -> np.ndarray[Any, Any]:
    """A copy of what a view of an array sees."""
    shape, steps = (tuple(size_of(d, sizes) for d in part) for part in (view.shape, view.strides))
    made = np.empty(shape, base.dtype)
    if made.size:
        start = base.ctypes.data + size_of(view.offset, sizes) * base.itemsize
        low = start + sum(s * (n - 1) for s, n in zip(steps, shape, strict=True) if s < 0) * base.itemsize
        span = sum(abs(s) * (n - 1) for s, n in zip(steps, shape, strict=True)) + 1
        raw: Any = (ctypes.c_char * (span * base.itemsize)).from_address(low)
        strides = tuple(s * base.itemsize for s in steps)
        made[...] = np.ndarray(shape, base.dtype, raw, start - low, strides)
    return made


def _bits(dtype: np.dtype[Any], value: Any) -> int:
    raw = dtype.type(value).tobytes().ljust(8, b"\0")
    return int(np.frombuffer(raw, np.int64)[0])


def _same_bytes(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    if a.flags.c_contiguous and b.flags.c_contiguous:
        return bool(_MEMCMP(a.ctypes.data, b.ctypes.data, a.nbytes) == 0)
    return a.tobytes() == b.tobytes()
