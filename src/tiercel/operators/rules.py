"""The rules that rows put in their columns, by column: dtype_*, shape_*, layout_*, kind_*; each takes a `Call`.

In: the bound operands and attributes of one call. Out: one column's answer for it. A rule with parameters is a factory
(`dtype_ufunc(np.add)`), a rule without is the function itself (`shape_broadcast`).

Where NumPy can be asked (`ufunc.resolve_dtypes`) it is asked, once for each combination of dtypes, and the answer kept:
promotion, refusals and the handling of weak Python scalars are NumPy's by construction.
"""

from __future__ import annotations

import functools
import operator as python_operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from tiercel.dtypes import DType, as_dtype, bool_, check_int_range, complex128, float64, int64, is_dtype
from tiercel.errors import DTypeError, ShapeError
from tiercel.operators.layout import Layout, k_order
from tiercel.operators.table import Call, DTypeRule, KindRule, ShapeRule, shape_of
from tiercel.operators.types import (
    ArrayType,
    ListType,
    NotStatic,
    NpScalarType,
    PyBoolType,
    PyComplexType,
    PyFloatType,
    PyIntType,
    Shape,
    TupleType,
    Type,
)
from tiercel.shapes import DimLike, broadcast_shapes

__all__ = [
    "attribute_dtype",
    "combine_device",
    "combine_wrapper",
    "dtype_bool",
    "dtype_common",
    "dtype_fixed",
    "dtype_float",
    "dtype_like",
    "dtype_of",
    "dtype_reduce",
    "dtype_ufunc",
    "kind_array",
    "kind_like",
    "kind_numpy",
    "layout_c",
    "layout_k",
    "layout_reduce",
    "normalized_axes",
    "resolve_ufunc",
    "shape_broadcast",
    "shape_like",
    "shape_reduce",
]

_DEFAULTS: Final[dict[type, DType]] = {PyIntType: int64, PyFloatType: float64, PyComplexType: complex128}
_WEAK: Final[dict[type, type]] = {PyIntType: int, PyFloatType: float, PyComplexType: complex}


_R = TypeVar("_R", bound=Callable[..., Any])


def _named(rule: _R, name: str) -> _R:
    """Give a rule that a factory made the name that the documentation shows."""
    rule.rule_name = name  # type: ignore[attr-defined]
    return rule


# ---- dtype -----------------------------------------------------------------------------------------------------------


def dtype_of(t: Any) -> DType:
    """The dtype that `np.asarray` of an operand has; Python scalars get their default dtype."""
    if isinstance(t, ArrayType | NpScalarType):
        return t.dtype
    if isinstance(t, PyBoolType):
        return bool_
    if isinstance(t, PyIntType):
        _check_default_int(t)
    return _DEFAULTS[type(t)]


def _check_default_int(t: PyIntType) -> None:
    if isinstance(t.value, int) and not -(2**63) <= t.value < 2**63:
        raise NotStatic(f"NumPy makes no int64 of the Python int {t.value}")


def dtype_fixed(dtype: DType) -> DTypeRule:
    """Always this dtype."""

    def rule(call: Call) -> DType:
        return dtype

    return _named(rule, dtype.name)


dtype_bool: Final = dtype_fixed(bool_)


def dtype_like(position: int = 0) -> DTypeRule:
    """The dtype of operand i."""

    def rule(call: Call) -> DType:
        return dtype_of(call.operand(position))

    return rule


@functools.lru_cache(maxsize=65536)
def resolve_ufunc(ufunc: np.ufunc, operands: tuple[np.dtype[Any] | type, ...]) -> tuple[DType, ...] | str:
    """The dtypes of the loop a ufunc runs for these operand dtypes, inputs then outputs, or the text of its TypeError.

    Args:
        ufunc: any ufunc.
        operands: one dtype an input; `int`, `float`, `complex` stand for weak Python scalars.
    """
    try:
        resolved = ufunc.resolve_dtypes(operands + (None,) * ufunc.nout)
    except TypeError as error:
        return str(error)
    if not all(is_dtype(d) for d in resolved):
        # A loop on objects: what Python would compute element by element.
        return f"ufunc '{ufunc.__name__}' has no loop on {', '.join(map(str, operands))} that Tiercel has a dtype for"
    return tuple(as_dtype(d) for d in resolved)


def dtype_ufunc(ufunc: np.ufunc, *, any_int: bool = False, positions: Sequence[int] | None = None) -> DTypeRule:
    """What the ufunc gives for the operands, Python scalars being weak.

    Args:
        ufunc: the ufunc.
        any_int: Python ints beyond the loop's dtype are accepted (comparisons compare them exactly).
        positions: which operands are the ufunc's inputs; default all.
    """

    def rule(call: Call) -> DType | list[DType]:
        operands = call.operands if positions is None else tuple(call.operand(p) for p in positions)
        outputs = apply_ufunc(ufunc, operands, any_int=any_int)
        return outputs[0] if len(outputs) == 1 else list(outputs)

    return _named(rule, f"ufunc({ufunc.__name__})")


def _ufunc_key(operands: Sequence[Any]) -> tuple[Any, ...]:
    if not any(isinstance(t, ArrayType | NpScalarType | PyBoolType) for t in operands):
        return tuple(dtype_of(t).numpy for t in operands)
    return tuple(_WEAK.get(type(t)) or dtype_of(t).numpy for t in operands)


def apply_ufunc(ufunc: np.ufunc, operands: Sequence[Any], *, any_int: bool = False) -> tuple[DType, ...]:
    """The result dtypes of a ufunc on operand types, Python scalars being weak.

    Args:
        ufunc: the ufunc.
        operands: types of its inputs.
        any_int: Python ints beyond the loop's dtype are accepted (comparisons compare them exactly).

    Raises:
        DTypeError: the ufunc has no loop for them.
        OverflowError: a Python int does not fit the loop's dtype.
    """
    resolved = resolve_ufunc(ufunc, _ufunc_key(operands))
    if isinstance(resolved, str):
        raise DTypeError(resolved)
    for t, loop in zip(operands, resolved, strict=False):
        if isinstance(t, PyIntType) and isinstance(t.value, int):
            _check_python_int(t.value, loop, operands, any_int)
    return resolved[ufunc.nin :]


def _check_python_int(value: int, loop: DType, operands: Sequence[Any], any_int: bool) -> None:
    # Truth values are taken of the default integer.
    loop = int64 if loop is bool_ else loop
    # Comparisons of integers are by value; beside a bool the int is converted first.
    by_value = any_int and loop.is_integer and not any(_is_bool(t) for t in operands)
    if not by_value:
        check_int_range(value, loop)


def _is_bool(t: Any) -> bool:
    return isinstance(t, PyBoolType) or (isinstance(t, ArrayType | NpScalarType) and t.dtype is bool_)


def strong(t: Any) -> Any:
    """The operand after `np.asarray`: a Python scalar is no longer weak."""
    return NpScalarType(dtype_of(t)) if isinstance(t, PyIntType | PyFloatType | PyComplexType) else t


def _refuse_complex(call: Call, dtype: DType) -> DType:
    if dtype.is_complex:
        raise DTypeError(f"{call.operator.name} is not defined for complex numbers")
    return dtype


def dtype_float(call: Call) -> DType:
    """Operand 0's dtype if it is floating or complex, else float64."""
    dtype = dtype_of(call.operand(0))
    return dtype if dtype.is_inexact else float64


def dtype_real_float(call: Call) -> DType:
    """As `dtype_float`, complex refused: the rule of the operators that NumPy does not have."""
    return _refuse_complex(call, dtype_float(call))


def dtype_real(call: Call) -> DType:
    """Operand 0's dtype, complex refused."""
    return _refuse_complex(call, dtype_of(call.operand(0)))


def dtype_real_common(call: Call) -> DType:
    """The common dtype of all operands, Python scalars being weak; complex refused."""
    return _refuse_complex(call, common_dtype(call.operands))


def dtype_real_float_common(call: Call) -> DType:
    """The common dtype of all operands, integers becoming float64; complex refused."""
    dtype = dtype_real_common(call)
    return dtype if dtype.is_float else float64


def common_dtype(operands: Sequence[Any], *, wraps: bool = False) -> DType:
    """`np.result_type` of operand types, Python scalars being weak.

    Args:
        operands: their types.
        wraps: Python ints beyond the dtype are converted as C does.

    Raises:
        DTypeError: NumPy finds none.
        OverflowError: a Python int does not fit it.
    """
    found = _common(_ufunc_key(operands))
    if isinstance(found, str):
        raise DTypeError(found)
    for t in operands:
        if isinstance(t, PyIntType) and isinstance(t.value, int) and not wraps:
            check_int_range(t.value, found)
    return found


def dtype_common(*positions: int, wraps: bool = False) -> DTypeRule:
    """`common_dtype` of the operands at these positions; default all."""

    def rule(call: Call) -> DType:
        return common_dtype([call.operand(p) for p in positions] if positions else call.operands, wraps=wraps)

    return rule


_PROBES: Final[dict[Any, Any]] = {int: 0, float: 0.0, complex: 0j}


@functools.lru_cache(maxsize=4096)
def _common(key: tuple[Any, ...]) -> DType | str:
    try:
        return as_dtype(np.result_type(*(_PROBES[k] if isinstance(k, type) else k for k in key)))
    except TypeError as error:
        return str(error)


def attribute_dtype(call: Call, name: str = "dtype") -> DType | None:
    """The dtype attribute of a call, or None where it is None."""
    given = call[name]
    return None if given is None else as_dtype(given)


def dtype_reduce(ufunc: np.ufunc) -> DTypeRule:
    """See `reduced_dtype`."""

    def rule(call: Call) -> DType:
        return reduced_dtype(ufunc, call)

    return _named(rule, f"reduce({ufunc.__name__})")


def reduced_dtype(ufunc: np.ufunc, call: Call) -> DType:
    """What `ufunc.reduce` gives: small integers widen to the default integer for add and multiply; `dtype=` decides."""
    given = attribute_dtype(call) if any(p.name == "dtype" for p in call.operator.parameters) else None
    resolved = _resolve_reduction(ufunc, dtype_of(call.operand(0)).numpy, None if given is None else given.numpy)
    if isinstance(resolved, str):
        raise DTypeError(resolved)
    return resolved


@functools.lru_cache(maxsize=4096)
def _resolve_reduction(ufunc: np.ufunc, operand: np.dtype[Any], given: np.dtype[Any] | None) -> DType | str:
    try:
        if given is None:
            resolved = ufunc.resolve_dtypes((None, operand, None), reduction=True)
        else:
            resolved = ufunc.resolve_dtypes((given, operand, None), signature=(given, None, given), casting="unsafe")
    except TypeError as error:
        return str(error)
    return as_dtype(resolved[-1])


def dtype_ptp(call: Call) -> DType:
    """Largest minus smallest element: the dtype of operand 0 where it can be subtracted."""
    return apply_ufunc(np.subtract, (strong(call.operand(0)),) * 2)[0]


# ---- shape -----------------------------------------------------------------------------------------------------------


def shape_broadcast(call: Call) -> Shape:
    """The operands' shapes broadcast against each other."""
    shapes = [shape_of(t) for t in call.operands]
    return shapes[0] if len(shapes) == 1 else broadcast_shapes(*shapes, facts=call.facts)


def shape_like(position: int = 0) -> ShapeRule:
    """The shape of operand i."""

    def rule(call: Call) -> Shape:
        return call.shape(position)

    return rule


def normalized_axes(axis: object, rank: int) -> tuple[int, ...]:
    """The axes a reduction runs over: all for None, else the given ones counted from 0, ascending.

    Raises:
        ShapeError: an axis is out of bounds or given twice (NumPy: AxisError, ValueError).
        DTypeError: an axis is no integer.
    """
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, tuple) else (axis,)
    out = []
    for a in given:
        try:
            index = python_operator.index(a)
        except TypeError:
            raise DTypeError(f"axis must be None, an integer or a tuple of integers, got {axis!r}") from None
        if not -rank <= index < rank:
            raise ShapeError(f"axis {index} is out of bounds for array of dimension {rank}")
        out.append(index % rank)
    if len(set(out)) != len(out):
        raise ShapeError("duplicate value in 'axis'")
    return tuple(sorted(out))


def reduced_axes(call: Call) -> tuple[int, ...]:
    """The axes that a call with an `axis` attribute reduces. A rank-0 operand accepts axis 0 and -1."""
    axis, rank = call["axis"], len(call.shape(0))
    if rank == 0 and not isinstance(axis, tuple) and axis in (0, -1):
        return ()
    return normalized_axes(axis, rank)


def reduce_dims(shape: Shape, axes: Sequence[int], keepdims: object) -> Shape:
    """The shape after reducing `axes`."""
    if keepdims:
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def shape_reduce(*, needs_element: bool = False, scalar_axis: bool = True) -> ShapeRule:
    """Without the reduced axes (1 with keepdims).

    Args:
        needs_element: there is no identity, an empty reduction raises.
        scalar_axis: a rank-0 operand accepts axis 0 and -1.
    """

    def rule(call: Call) -> Shape:
        shape = call.shape(0)
        axes = reduced_axes(call) if scalar_axis else normalized_axes(call["axis"], len(shape))
        out = reduce_dims(shape, axes, call["keepdims"])
        if needs_element and any(shape[a] == 0 for a in axes) and all(isinstance(d, int) and d > 0 for d in out):
            raise ShapeError(f"zero-size array to reduction operation {call.operator.name} which has no identity")
        return out

    return rule


# ---- layout ----------------------------------------------------------------------------------------------------------


def layout_k(call: Call, shape: Shape) -> Layout:
    """The order NumPy's iterator gives a result that keeps the operands' order (order='K')."""
    arrays = [(t.shape, t.layout) for t in call.operands if isinstance(t, ArrayType)]
    return k_order(arrays, shape, call.facts)


def layout_c(call: Call, shape: Shape) -> Layout:
    """C order."""
    return Layout.c(len(shape))


def layout_f_or_c(call: Call, shape: Shape) -> Layout:
    """Fortran order if operand 0 is Fortran- and not C-contiguous, else C: `PyArray_Empty(..., ISFORTRAN(x))`."""
    layout = call.layout(0)
    if layout.order is None:
        return Layout.unknown()
    c, f = layout.flags(call.shape(0), call.facts)
    if c or not layout.is_f:
        return Layout.c(len(shape))
    return Layout.f(len(shape)) if f and c is False else Layout.unknown()


def layout_copy_k(call: Call, shape: Shape) -> Layout:
    """The order of a copy with order='K' (astype, copy, *_like): the axes by stride, broadcast ones innermost."""
    layout = call.layout(0)
    if layout.order is None or not layout.zero:
        return layout if layout.order is None else Layout.dense(layout.order)
    moving = [a for a in layout.order if a not in layout.zero]
    return Layout.dense([*moving, *layout.zero])


def layout_part(call: Call, shape: Shape) -> Layout:
    """A view of every second scalar: the real parts of a complex array."""
    layout = call.layout(0)
    return Layout(layout.order, 0, layout.zero)


def layout_reduce(call: Call, shape: Shape) -> Layout:
    """The kept axes in the order they have in operand 0."""
    return reduced_layout(call, shape, call.layout(0))


def reduced_layout(call: Call, shape: Shape, layout: Layout) -> Layout:
    """The kept axes in the order they have in an array of operand 0's shape and this layout."""
    if len(shape) <= 1:
        return Layout.c(len(shape))
    source = call.shape(0)
    order = k_order([(source, layout)], source, call.facts).order
    if order is None:
        return Layout.unknown()
    if len(shape) == len(source):
        return Layout.dense(order)
    axes = reduced_axes(call)
    kept = [a for a in range(len(source)) if a not in axes]
    return Layout.dense([kept.index(a) for a in order if a in kept])


# ---- kind ------------------------------------------------------------------------------------------------------------

_WRAPPERS: Final = ("ndarray", "Tensor", "torch")


def _arrays(types: Sequence[Any]) -> Iterator[ArrayType]:
    """The array types among some types, those in tuples and lists included."""
    for t in types:
        if isinstance(t, ArrayType):
            yield t
        elif isinstance(t, TupleType | ListType):
            yield from _arrays(t.items or ())
        elif isinstance(t, tuple | list):
            yield from _arrays(t)


def combine_wrapper(call: Call) -> str:
    """The class of the result: any torch operand gives torch, else any Tensor gives Tensor, else ndarray."""
    wrappers = [t.wrapper for t in _arrays(call.types)]
    return max(wrappers, key=_WRAPPERS.index, default="ndarray")


def combine_device(call: Call) -> str:
    """The device all array operands are on.

    Raises:
        NotStatic: they are on different ones.
    """
    devices = {t.device for t in _arrays(call.types)}
    if len(devices) > 1:
        raise NotStatic(f"operands are on different devices: {', '.join(sorted(devices))}")
    return devices.pop() if devices else "cpu"


def kind_array(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    """An array of any rank."""
    return ArrayType(dtype, shape, layout, combine_device(call), combine_wrapper(call))


def kind_numpy(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
    """A NumPy scalar for rank 0, else an array. A Tensor stays a Tensor of rank 0."""
    wrapper = combine_wrapper(call)
    if not shape and wrapper == "ndarray":
        return NpScalarType(dtype)
    return ArrayType(dtype, shape, layout, combine_device(call), wrapper)


def kind_like(position: int = 0) -> KindRule:
    """An array if operand i is one (rank 0 included), a NumPy scalar if it is a scalar."""

    def rule(call: Call, dtype: DType, shape: Shape, layout: Layout) -> Type:
        if isinstance(call.operand(position), ArrayType):
            return kind_array(call, dtype, shape, layout)
        return NpScalarType(dtype) if not shape else kind_array(call, dtype, shape, layout)

    return rule


def fixed_dims(shape: Sequence[DimLike]) -> bool:
    """Whether every size is known."""
    return all(isinstance(d, int) for d in shape)


Rule = Callable[..., Any]
