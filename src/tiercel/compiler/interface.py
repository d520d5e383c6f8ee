"""How a compiled region is entered and left: the contract between machine code and whoever calls it.

In: made by `compiler.lower`. Out: a plain description that the entry stub, the validator and tests follow. It says
which values the frame is filled from, what must hold of them (else MISS: the interpreter runs), which results to
allocate before the call and what to return after it. Everything is plain data (`to_data`, `from_data`): it travels
from the worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from tiercel.dtypes import DType
from tiercel.shapes import DimLike

Kind: TypeAlias = Literal["array", "npscalar", "pyint", "pyfloat", "pybool"]


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input value of the region, in the order of `Region.inputs`.

    Attributes:
        name: of the buffer (arrays) or scalar variable.
        kind: what the value must be; `wrapper` which array class ("ndarray", "Tensor").
        dtype: element type.
        dims: sizes: an int must be met exactly; a symbol is bound by its first occurrence (inputs in order, axes in
            order); any other expression, or a symbol again, must agree.
        contiguous: the array must be C-contiguous.
        source: where the value is found: ("register", r), ("global", name), ...
        value: a Python int that must be met exactly, or whose symbol is bound.
        layout: "C" or "F" for contiguous memory in that order; "rows" if its axes must lie in C order (see
            `operators.layout.layout_class`), "any" if they may lie in any: then its strides are passed.
        indexes: sizes of axes that this array of integers is, or may be, an index into: trials take it in range.
    """

    name: str
    kind: Kind
    dtype: DType
    dims: tuple[DimLike, ...]
    contiguous: bool
    source: tuple[str, Any]
    wrapper: str = "ndarray"
    value: DimLike | None = None
    indexes: tuple[DimLike, ...] = ()
    layout: Literal["C", "F", "rows", "any"] = "any"


@dataclass(frozen=True, slots=True)
class SizeSpec:
    """A size variable of the function: the value of a symbol, a stride (in elements) of an input, a capacity (that of
    the `GrownArray` which names it), or the phase.

    The phase is 0 when the function is called to compute. A function with `Interface.writes` that has come to its end
    is called again with phase 1, the frame and the arena as they are: it copies what it has computed into the inputs.
    """

    name: str
    what: Literal["symbol", "stride", "capacity", "phase"]
    input: int = 0
    axis: int = 0


@dataclass(frozen=True, slots=True)
class PackSpec:
    """A constant buffer that holds a packed form of a frozen input: the (k, n) matrix at its memory with these strides.

    It is made when the input's (storage, version) is first met, and kept until that changes. It needs room for
    `k * (columns + PACK_PADDING)` elements, where it has `n` columns, or `n` for each of `panels`: what is packed then
    are the columns from each of these on, side by side (see `loops.form.Contract`). Otherwise it is packed in panels of
    `vectors` vectors, 0 for those of the dtype's own piece of the runtime library.
    """

    buffer: str
    input: int
    k: DimLike
    n: DimLike
    strides: tuple[DimLike, DimLike]
    offset: DimLike
    panels: tuple[int, ...] = ()
    vectors: int = 0

    @property
    def layout(self) -> str:
        """What tells ways of packing apart: it follows the name of the dtype."""
        return f".v{self.vectors}" if self.vectors else ""


@dataclass(frozen=True, slots=True)
class WriteSpec:
    """An input that phase 1 writes: `buffer` has its address, sizes and strides.

    It must be writeable, no two of its elements may share memory, and it may share none with any other input.
    """

    buffer: str
    input: int


PACK_PADDING = 64
"""Columns by which a packed matrix may be wider than the matrix: the last panel of the widest tile."""


@dataclass(frozen=True, slots=True)
class NewArray:
    """A result to allocate before the call, of these sizes: one block of memory, C-contiguous or with its axes in
    another order.

    Attributes:
        order: the axes from the outermost to the innermost; () for C order.
    """

    buffer: str
    dtype: DType
    shape: tuple[DimLike, ...]
    wrapper: str = "ndarray"
    order: tuple[int, ...] = ()

    @property
    def fortran(self) -> bool:
        """Is it in Fortran's order?"""
        return self.order == tuple(reversed(range(len(self.shape)))) and len(self.order) > 1


@dataclass(frozen=True, slots=True)
class GrownArray(NewArray):
    """A result that continues an input along `axis`: its first entries are the input's and are there before the call.

    The buffer has room for at least `shape[axis]` entries along the axis; how many it has room for is the size variable
    `capacity` ("" along axis 0, where no stride depends on it). See `values.growth`.
    """

    input: int = 0
    axis: int = 0
    capacity: str = ""


@dataclass(frozen=True, slots=True)
class ScalarOutput:
    """A scalar read from the frame after the call."""

    output: str
    kind: Kind
    dtype: DType


@dataclass(frozen=True, slots=True)
class SameInput:
    """The very object that was passed."""

    index: int


@dataclass(frozen=True, slots=True)
class EitherOf:
    """The very object that was passed as one of `inputs`, the one whose number the output `tag` has after the call; a
    new array where that is below 0.
    """

    new: NewArray
    tag: str
    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ViewOf:
    """A view of an input or of a new array: sizes and strides in elements, offset in elements.

    Where one and the same recipe stands in several places, one object is handed over. `computed` are the symbols among
    them whose values are outputs of the function, of the same names.
    """

    base: SameInput | NewArray
    dtype: DType
    shape: tuple[DimLike, ...]
    strides: tuple[DimLike, ...]
    offset: DimLike
    wrapper: str = "ndarray"
    computed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SizeValue:
    """A Python int known from the sizes."""

    value: DimLike


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant (None, a number, a string)."""

    value: Any


@dataclass(frozen=True, slots=True)
class Sequence:
    """A tuple or list of results; `wrap` is the number of a named tuple's class, -1 for plain ones."""

    kind: Literal["tuple", "list"]
    items: tuple[Recipe, ...]
    wrap: int = -1


Recipe: TypeAlias = NewArray | ScalarOutput | SameInput | EitherOf | ViewOf | SizeValue | Constant | Sequence


@dataclass(frozen=True, slots=True)
class Interface:
    """See the module docstring.

    Attributes:
        inputs: what is passed.
        sizes: how each size variable of the function is found, in its order.
        results: per exit (a label of the region's `exits`): register or "return" -> recipe.
        packs: constant buffers to fill from frozen inputs.
        writes: inputs that are written.
        required: symbols, and the sizes with which the program does not leave.
    """

    inputs: tuple[InputSpec, ...]
    sizes: tuple[SizeSpec, ...]
    results: Mapping[int | str, Mapping[int | str, Recipe]]
    packs: tuple[PackSpec, ...] = ()
    writes: tuple[WriteSpec, ...] = ()
    required: tuple[tuple[str, int], ...] = ()


def new_arrays(*recipes: Recipe) -> tuple[NewArray, ...]:
    """The arrays to allocate for recipes, each once, in order."""
    found: dict[str, NewArray] = {}
    for recipe in recipes:
        made: tuple[NewArray, ...] = ()
        if isinstance(recipe, NewArray):
            made = (recipe,)
        elif isinstance(recipe, EitherOf):
            made = (recipe.new,)
        elif isinstance(recipe, ViewOf):
            made = new_arrays(recipe.base)
        elif isinstance(recipe, Sequence):
            made = new_arrays(*recipe.items)
        for array in made:
            found.setdefault(array.buffer, array)
    return tuple(found.values())


def packed_as(interface: Interface, widths: Mapping[str, int]) -> Interface:
    """The interface of code whose packed operands are in panels of these widths (by buffer, 0 and none: the usual)."""
    if not any(widths.values()):
        return interface
    packs = tuple(replace(pack, vectors=widths.get(pack.buffer, 0)) for pack in interface.packs)
    return replace(interface, packs=packs)
