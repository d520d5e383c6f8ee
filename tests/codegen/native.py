"""Compile a function of the loop form and run it in this process: emit, assemble, link, map, call."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from tiercel.codegen.abi import ARENA, POOL, THREADS, frame_size, frame_words
from tiercel.codegen.blob import Blob, Mapped, link, map_blob
from tiercel.codegen.cpu.assemble import assemble
from tiercel.codegen.cpu.emit import emit
from tiercel.codegen.cpu.library import CALL, IMPORTS, entries, library_text
from tiercel.codegen.cpu.target import Target
from tiercel.loops import check
from tiercel.loops.form import Function

FLAGS = {"invalid value": 1, "divide by zero": 4, "overflow": 8}
ENTRY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


def build(
    function: Function,
    target: Target | None = None,
    *,
    choices: Mapping[int, Any] | None = None,
    more: Mapping[str, int] | None = None,
) -> Mapped:
    """Machine code for one function, through the bytes form of the blob; `more` are further imports."""
    target = target or Target.host()
    obj = assemble(emit(check(function), target, choices), target, verify=True)
    blob = Blob.from_bytes(link(obj, [function.name, f"{function.name}.arena"]).to_bytes())
    return map_blob(blob, {**imports(target), **(more or {})} if blob.imports else {})


@functools.cache
def _library(target: Target) -> Mapped:
    libc = ctypes.CDLL(None)
    needed = {n: ctypes.cast(getattr(libc, n), ctypes.c_void_p).value or 0 for n in IMPORTS}
    return map_blob(link(assemble(library_text(target), target, verify=True), entries()), needed)


def imports(target: Target) -> dict[str, int]:
    """Addresses of the runtime library, which stays mapped."""
    return {name: _library(target).address(name) for name in entries()}


def call(
    mapped: Mapped,
    function: Function,
    buffers: Mapping[str, np.ndarray[Any, Any]],
    sizes: Mapping[str, int] | None = None,
    scalars: Mapping[str, Any] | None = None,
    *,
    pool: int = 0,
    threads: int = 1,
    raised: set[str] | None = None,
    phase: str | None = None,
) -> tuple[int, dict[str, Any]]:
    """As `loops.evaluate`, with machine code; `raised` gets the floating-point flags, by NumPy's names. `phase` is the
    size by which the function is told to write into its inputs."""
    words = frame_words(function)
    frame = np.zeros(frame_size(function), np.int64)
    frame[POOL], frame[THREADS] = pool, threads
    for name, size in (sizes or {}).items():
        frame[words[name]] = size
    for name, array in buffers.items():
        frame[words[name]] = array.ctypes.data
    for scalar in function.scalars:
        raw = scalar.dtype.numpy.type((scalars or {})[scalar.name]).tobytes().ljust(8, b"\0")
        frame[words[scalar.name]] = np.frombuffer(raw, np.int64)[0]
    needed = ENTRY(mapped.address(f"{function.name}.arena"))(frame.ctypes.data)
    arena = np.zeros(needed + 64, np.uint8)
    frame[ARENA] = -(-arena.ctypes.data // 64) * 64
    if raised is None:
        site = ENTRY(mapped.address(function.name))(frame.ctypes.data)
    else:
        watched = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(imports(Target.host())[CALL])
        both = watched(mapped.address(function.name), frame.ctypes.data)
        site = both & 0xFFFFFFFF
        raised |= {kind for kind, bit in FLAGS.items() if both >> 32 & bit}
    if phase is not None and not site:
        frame[words[phase]] = 1
        site = ENTRY(mapped.address(function.name))(frame.ctypes.data)
    outputs = {
        v.name: np.frombuffer(frame[words[v.name]].tobytes()[: v.dtype.itemsize], v.dtype.numpy)[0]
        for v in function.outputs
    }
    return site, outputs
