"""Arguments that meet a hint, for compiling before there are real ones.

In: specs, and the sizes that names have so far. Out: arrays of zeros and integers. Sizes that a spec leaves open get
values of their own: code made for an example must not take an accident of it, two sizes that agree, for a rule.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

import numpy as np

from tiercel.dtypes import float32
from tiercel.errors import ShapeError
from tiercel.shapes import Dim, Range, Symbol, evaluate, symbols_of
from tiercel.values.spec import DimSpec, TensorSpec

__all__ = ["example"]

_FIRST: Final = 5  # sizes 0 and 1 have rules of their own in broadcasting, and small ones turn up by accident


def example(spec: TensorSpec | DimSpec, sizes: MutableMapping[str, int]) -> Any:
    """An array of zeros or an int that `spec` allows.

    Args:
        spec: the element type is the first of those it names, float32 if it names none; `...` stands for no dimension.
        sizes: of the names that were met before; takes up new ones.

    Raises:
        ShapeError: a dimension is an expression with a value below 0.
    """
    if isinstance(spec, DimSpec):
        return _size(spec, sizes)
    shape = tuple(_size(d, sizes) for d in spec.dims if d is not Ellipsis)
    dtype = spec.dtypes[0] if spec.dtypes else float32
    return np.zeros(shape, dtype.numpy, order="F" if spec.layout == "F" else "C")


def _size(entry: Any, sizes: MutableMapping[str, int]) -> int:
    if isinstance(entry, DimSpec):
        name = entry.name if entry.name is not None else f"?{len(sizes)}"
        if name not in sizes:
            sizes[name] = _pick(entry.range, set(sizes.values()))
        return sizes[name]
    if isinstance(entry, Symbol):
        return _size(DimSpec(entry.name), sizes)
    if isinstance(entry, Dim):
        for symbol in symbols_of(entry):
            _size(DimSpec(symbol.name), sizes)
        value = evaluate(entry, sizes)
        if value < 0:
            raise ShapeError(f"the dimension {entry} is {value} for {dict(sizes)}; warm up with arrays instead")
        return value
    return int(entry)


def _pick(allowed: Range, taken: set[int]) -> int:
    """A size in the range, not one of `taken` if there is another, neither small nor large if that can be."""
    lo = max(0, allowed.lo or 0)
    step = allowed.multiple
    start = max(lo, _FIRST)
    start += (allowed.remainder - start) % step
    if allowed.hi is not None and start > allowed.hi:
        start = lo + (allowed.remainder - lo) % step
    size = start
    while size in taken and (allowed.hi is None or size + step <= allowed.hi):
        size += step
    return size
