"""Shape hints: what a user may say about an argument, as data.

In: `spec("B", "T", 128, dtype=np.float32)`, `dim("T", 1, 512, multiple=8)`, `Tensor[None, None, 128]`. Out: frozen,
hashable `TensorSpec` and `DimSpec` objects that stand in annotations. What is done with them is in `hints`.

Invariant: a spec is well formed when it exists; a bad one is refused where it is written, not at the first call.
Sizes that are not given stay open: None is a dimension of any size, a name is one size wherever it occurs in a
signature, `...` is any number of dimensions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, Final, TypeAlias

import numpy as np

from tiercel.dtypes import COMPLEX, DTYPES, FLOATS, INTEGERS, DType, as_dtype, bool_, is_dtype
from tiercel.errors import DTypeError, ShapeError
from tiercel.shapes import Dim, Range, Symbol, parse_dim, parse_range, symbols_of

__all__ = ["ANY_SIZE", "DimSpec", "Entry", "TensorSpec", "dim", "spec", "tensor_spec"]

ANY_SIZE: Final = Range(0, None)

_MAX_RANK: Final = 64  # NumPy's own limit

# "T: 1..512 % 8"
_NAMED: Final = re.compile(r"\s*([A-Za-z_]\w*)\s*:\s*(.+)", re.ASCII)

# Families of dtypes, by the abstract NumPy type that names them.
_FAMILIES: Final[dict[Any, tuple[DType, ...]]] = {
    np.floating: FLOATS,
    np.complexfloating: COMPLEX,
    np.inexact: (*FLOATS, *COMPLEX),
    np.integer: INTEGERS,
    np.signedinteger: tuple(d for d in INTEGERS if d.kind == "i"),
    np.unsignedinteger: tuple(d for d in INTEGERS if d.kind == "u"),
    np.number: (*INTEGERS, *FLOATS, *COMPLEX),
    np.generic: DTYPES,
    np.bool: (bool_,),
}


@dataclass(frozen=True, slots=True)
class DimSpec:
    """A dimension with a name, a range and a divisor; made by `dim`.

    Attributes:
        name: the symbol, the same size wherever it occurs in one signature; None for a size of its own.
        range: the sizes that are allowed.
    """

    name: str | None
    range: Range = ANY_SIZE

    def __str__(self) -> str:
        if self.range == ANY_SIZE:
            return self.name or "?"
        return f"{self.name}: {self.range}" if self.name else str(self.range)

    def __repr__(self) -> str:
        return f"dim({str(self)!r})"


# One dimension of a spec: a size, a named or ranged one, an expression over names, or any number of dimensions.
Entry: TypeAlias = "int | DimSpec | Dim | EllipsisType"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A hint for one tensor; made by `spec`, `Tensor[...]` or `Tensor(shape=...)`.

    Attributes:
        dims: one entry a dimension; at most one of them is `...`.
        dtypes: the element types that are allowed; None for any.
        layout: "C" or "F" if the memory must be contiguous in that order; None for any.
    """

    dims: tuple[Entry, ...]
    dtypes: tuple[DType, ...] | None = None
    layout: str | None = None

    @property
    def dtype(self) -> DType | None:
        """The element type, if just one is allowed."""
        return self.dtypes[0] if self.dtypes is not None and len(self.dtypes) == 1 else None

    @property
    def rank(self) -> int | None:
        """Number of dimensions, or None if it is open."""
        return None if Ellipsis in self.dims else len(self.dims)

    def __or__(self, other: Any) -> Any:
        # `Tensor[None, 128] | None` in an annotation.
        return _union(self, other)

    def __ror__(self, other: Any) -> Any:
        return _union(other, self)

    def __str__(self) -> str:
        dims = ", ".join("..." if d is Ellipsis else str(d) for d in self.dims)
        head = "" if self.dtypes is None else "|".join(d.name for d in self.dtypes)
        return f"{head}[{dims}]" + (f"{{{self.layout}}}" if self.layout else "")

    def __repr__(self) -> str:
        return f"spec({str(self)!r})"


def _union(a: Any, b: Any) -> Any:
    import typing

    return typing.Union[a, b]  # noqa: UP007  the operands are values


def dim(name: str | None, lo: int = 0, hi: int | None = None, *, multiple: int = 1) -> DimSpec:
    """Return a dimension with a range, for `spec`, or for an int argument: `Annotated[int, tc.dim("T", 1, 512)]`.

    Args:
        name: a Python identifier; None if the size is not to be shared.
        lo: smallest size.
        hi: largest size, inclusive; None for no limit.
        multiple: every size must be a multiple of this.

    Raises:
        ShapeError: no size is left, or the name is no identifier.
    """
    if name is not None and not (isinstance(name, str) and name.isidentifier() and name.isascii()):
        raise ShapeError(f"dim(): the name must be an ASCII identifier such as 'T', got {name!r}")
    for what, value in (("lo", lo), ("hi", hi), ("multiple", multiple)):
        if isinstance(value, bool) or not isinstance(value, int):
            if what == "hi" and value is None:
                continue
            raise ShapeError(f"dim({name!r}): {what} must be an int, got {value!r}")
    if lo < 0:
        raise ShapeError(f"dim({name!r}): sizes are not negative, got lo={lo}")
    if multiple < 1:
        raise ShapeError(f"dim({name!r}): multiple must be at least 1, got {multiple}")
    first = -(-lo // multiple) * multiple
    if hi is not None and first > hi:
        raise ShapeError(f"dim({name!r}): no multiple of {multiple} lies in {lo}..{hi}")
    if name is not None:
        Symbol(name)  # refuses reserved names
    return DimSpec(name, Range(lo, hi, multiple))


def spec(*dims: Any, dtype: Any = None, layout: str | None = None) -> TensorSpec:
    """Return a shape hint: `Annotated[np.ndarray, tc.spec("B", "T", 128, dtype=np.float32)]`.

    Args:
        dims: one entry a dimension: an int; a name, shared by all hints of a signature; None for any size; a
            `tc.dim(...)`; an expression over names (`"2*T"`, `"B*T"`, `"T + 1"`); a name with its range
            (`"T: 1..512 % 8"`), or a range alone (`"1..512"`). `...` once, for any number of dimensions.
        dtype: an element type, a tuple of them, or a NumPy family such as `np.floating`; None for any.
        layout: "C" or "F" to require contiguous memory in that order.

    Raises:
        ShapeError: an entry that is none of these.
        DTypeError: a dtype that Tiercel does not have.
    """
    entries = tuple(_entry(d, i) for i, d in enumerate(dims))
    if sum(e is Ellipsis for e in entries) > 1:
        raise ShapeError("spec(): '...' may stand once")
    if len(entries) > _MAX_RANK:
        raise ShapeError(f"spec(): at most {_MAX_RANK} dimensions, got {len(entries)}")
    if layout not in (None, "C", "F"):
        raise ShapeError(f"spec(): layout must be 'C', 'F' or None, got {layout!r}")
    return TensorSpec(entries, None if dtype is None else _dtypes(dtype), layout)


def tensor_spec(items: tuple[Any, ...], dtype: Any = None) -> TensorSpec:
    """Return the hint of `Tensor[items]`: dimensions, with a dtype first or last.

    Raises:
        ShapeError, DTypeError: as `spec`.
    """
    if dtype is None and items:
        if _names_dtype(items[-1]):
            items, dtype = items[:-1], items[-1]
        elif _names_dtype(items[0]):
            items, dtype = items[1:], items[0]
    return spec(*items, dtype=dtype)


def _names_dtype(x: Any) -> bool:
    # A string is a dimension, unless it is the full name of a dtype: "f" may well be a size.
    if isinstance(x, str):
        return any(x == d.name for d in DTYPES)
    return isinstance(x, type | np.dtype | DType) and (is_dtype(x) or x in _FAMILIES)


def _dtypes(x: Any) -> tuple[DType, ...]:
    if isinstance(x, tuple):
        return tuple(dict.fromkeys(d for item in x for d in _dtypes(item)))
    if isinstance(x, type) and x in _FAMILIES:
        return _FAMILIES[x]
    return (as_dtype(x),)


def _entry(x: Any, position: int) -> Entry:
    where = f"spec(): dimension {position}"
    if x is None:
        return DimSpec(None)
    if x is Ellipsis or isinstance(x, DimSpec):
        return x
    if isinstance(x, Dim):
        return DimSpec(x.name) if isinstance(x, Symbol) else x
    if isinstance(x, str):
        return _parse(x, where)
    if isinstance(x, int | np.integer) and not isinstance(x, bool):
        if x < 0:
            raise ShapeError(f"{where}: a size is not negative, got {x}; None stands for any size")
        return int(x)
    if isinstance(x, tuple | list):
        raise ShapeError(f"{where}: got {x!r}; write the dimensions one by one: spec({', '.join(map(repr, x))})")
    if _names_dtype(x):
        raise DTypeError(f"{where}: got the dtype {x!r}; give it as spec(..., dtype=...)")
    raise ShapeError(f"{where}: expected an int, None, a name, an expression or tc.dim(...), got {x!r}")


def _parse(text: str, where: str) -> Entry:
    stripped = text.strip()
    if stripped in ("", "?", "_"):
        return DimSpec(None)
    if stripped == "...":
        return Ellipsis
    try:
        named = _NAMED.fullmatch(stripped)
        if named:
            return DimSpec(Symbol(named[1]).name, _sizes(parse_range(named[2].strip())))
        if ".." in stripped:
            return DimSpec(None, _sizes(parse_range(stripped)))
        found = parse_dim(stripped)
        for symbol in symbols_of(found):
            if symbol.kind != "input" or not symbol.name.isidentifier():
                raise ShapeError(f"{symbol} is no name for a size; use a Python identifier")
    except ShapeError as error:
        advice = " (one string a dimension: spec('B', 'T', 128))" if re.fullmatch(r"\w+([ ,]+\w+)+", stripped) else ""
        raise ShapeError(f"{where}: {error}{advice}") from None
    if isinstance(found, int):
        if found < 0:
            raise ShapeError(f"{where}: a size is not negative, got {stripped!r}")
        return found
    return DimSpec(found.name) if isinstance(found, Symbol) else found


def _sizes(within: Range) -> Range:
    both = within.intersect(ANY_SIZE)
    if both is None:
        raise ShapeError(f"sizes are not negative, got the range {within}")
    return both
