"""Sequences of different lengths (`tc.Ragged`) in a trace: their flat array and their offsets.

In: an operation with a Ragged operand. Out: the same operation on flat arrays, one row for each step, as the class
itself does it; a result that is Ragged again has the offsets of the first Ragged operand. To the region the number of
steps is a size that changes from call to call.

Invariants: two Ragged operands have the same offsets, which is known (they come from one Ragged) or guarded; what the
class refuses with an exception of its own is not traced, so Python raises it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from tiercel.compiler.abstract import Abstract, Known, Method, RaggedRef, Slice, Source, Tuple, Untraceable
from tiercel.compiler.graph import Input, Value
from tiercel.compiler.trace.state import INT64
from tiercel.operators import Operator, get
from tiercel.operators.layout import Layout
from tiercel.operators.types import ArrayType
from tiercel.values.ragged import Ragged

if TYPE_CHECKING:
    from tiercel.compiler.trace.calls import Calls
    from tiercel.compiler.trace.operators import Operators

_FOLDS: Final = ("sum", "mean", "max", "min")
_INFIX: Final = frozenset((
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "bitwise_and", "bitwise_or",
    "bitwise_xor", "less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "negative", "positive",
    "absolute", "invert",
))  # fmt: skip
"""Rows whose infix form the class Ragged has."""


def ragged_argument(frame: Operators, value: Ragged, values: Abstract, name: str, source: Source) -> RaggedRef:
    """A Ragged that is passed: `values` is its flat array as an input."""
    if not isinstance(values, Value) or not isinstance(values.type, ArrayType):
        raise Untraceable(f"the argument {name} is a Ragged of a {type(value.values).__name__}")
    trace = frame.trace
    shape = (trace.symbol(f"{name}_bounds", len(value.offsets)),)
    # read-only, and another one in each call: not a frozen array
    made = trace.value(ArrayType(INT64, shape, Layout.c(1)), f"{name}_offsets")
    trace.read_only.add(len(trace.inputs))
    trace.inputs.append(Input(made, ("attribute", (source, "offsets"))))
    return RaggedRef(values, made, passed=True)


def apply_ragged(
    frame: Operators, row: Operator, spelling: int, args: Sequence[Abstract], keywords: Mapping[str, Abstract]
) -> Abstract:
    """Apply an operator of the table where an operand is Ragged."""
    form = row.spellings[spelling]
    first = next((a for a in args if isinstance(a, RaggedRef)), None)
    if first is None:
        raise Untraceable(f"a Ragged as an option of {row.name}")
    if form.kind == "method":
        return _method(frame, row, spelling, first, args, keywords)
    if row.name == "matmul" and form.kind == "syntax" and args[0] is first and not isinstance(args[1], RaggedRef):
        if _rank(first) < 2:
            raise Untraceable("a Ragged of numbers times a matrix")
        return with_values(frame, first, frame.apply(row, spelling, [first.values, args[1]], {}))
    infix = (form.kind in ("syntax", "inplace") or form.path == "builtins.abs") and row.name in _INFIX
    ufunc = form.kind == "function" and form.path.startswith("numpy.") and _is_ufunc(form.path.removeprefix("numpy."))
    if keywords or not (infix or ufunc):
        raise Untraceable(f"{row.name} of a Ragged")
    if form.kind == "inplace":  # a new Ragged: the class has no operators in place
        spelling = next(i for i, s in enumerate(row.spellings) if s.kind == "syntax")
    return with_values(frame, first, frame.apply(row, spelling, [flat(frame, first, a) for a in args], {}))


def _is_ufunc(name: str) -> bool:
    found = getattr(np, name, None)
    return isinstance(found, np.ufunc) and found.signature is None


def _rank(x: RaggedRef) -> int:
    assert isinstance(x.values.type, ArrayType)
    return x.values.type.rank


def flat(frame: Operators, first: RaggedRef, x: Abstract) -> Abstract:
    """An operand beside `first` as something that lines up with its flat array."""
    if isinstance(x, RaggedRef):
        if x.offsets is not first.offsets:
            _same_lengths(frame, first, x)
        return x.values
    if not isinstance(x, Value):
        raise Untraceable("a Ragged beside something that is no array and no number")
    if not isinstance(x.type, ArrayType):
        return x
    rank = _rank(first)
    if x.type.rank < rank or (x.type.rank == rank and x.type.shape[0] == 1):
        return x
    raise Untraceable("a Ragged beside an array with a part for each sequence")


def _same_lengths(frame: Operators, a: RaggedRef, b: RaggedRef) -> None:
    """Leave unless two have the same offsets: the class raises."""
    assert isinstance(a.offsets.type, ArrayType)
    assert isinstance(b.offsets.type, ArrayType)
    frame.trace.wish(a.offsets.type.shape[0], b.offsets.type.shape[0])
    if frame.trace.facts.equal(a.offsets.type.shape[0], b.offsets.type.shape[0]) is not True:
        raise Untraceable("two Raggeds that may be of another number of sequences")
    equal, every = get("equal"), get("all")
    alike = frame.apply(equal, equal.spelling_index("function"), [a.offsets, b.offsets], {})
    same = frame.apply(every, every.spelling_index("function"), [alike], {})
    assert isinstance(same, Value)
    frame.guard(same, "sequences of different lengths")
    steps = [x.values.type.shape[0] for x in (a, b) if isinstance(x.values.type, ArrayType)]
    frame.trace.wish(*steps)


def with_values(frame: Operators, x: RaggedRef, values: Abstract) -> RaggedRef:
    """`x.with_values(values)`: as many rows are known, or guarded."""
    steps = x.values.type.shape[0] if isinstance(x.values.type, ArrayType) else 0
    if not isinstance(values, Value) or not isinstance(values.type, ArrayType) or not values.type.rank:
        raise Untraceable("the values of a Ragged that are no array with a row for each step")
    rows = values.type.shape[0]
    frame.trace.wish(rows, steps)
    if frame.trace.facts.equal(rows, steps) is not True:
        same = frame.scalar_node("equal", frame.size_value(rows), frame.size_value(steps))
        frame.guard(same, "not a row for each step")
    return RaggedRef(values, x.offsets)


def _method(
    frame: Operators, row: Operator, spelling: int, x: RaggedRef, args: Sequence[Abstract],
    keywords: Mapping[str, Abstract],
) -> Abstract:  # fmt: skip
    """A method that the class has: folds, astype."""
    name = row.spellings[spelling].path
    if args[0] is not x or any(isinstance(a, RaggedRef) for a in (*args[1:], *keywords.values())):
        raise Untraceable(f"a Ragged as an option of {name}")
    if name == "astype" and len(args) == 2 and not keywords:
        return with_values(frame, x, frame.apply(row, spelling, [x.values, args[1]], {}))
    if name not in _FOLDS or len(args) > 3 or not set(keywords) <= {"axis", "keepdims"}:
        raise Untraceable(f"the method {name} of a Ragged")
    given = {**dict(zip(("axis", "keepdims"), args[1:], strict=False)), **keywords}
    axis = frame.static(given["axis"]) if "axis" in given else None
    keepdims = frame.static(given["keepdims"]) if "keepdims" in given else False
    if axis is None:
        return frame.apply(row, spelling, [x.values], {})
    rank = 1 + _rank(x)
    place = axis + rank if isinstance(axis, int) and axis < 0 else axis
    if not isinstance(place, int) or not 2 <= place < rank or not isinstance(keepdims, bool):
        raise Untraceable(f"{name} over each sequence of a Ragged")
    options = {"axis": frame.number(place - 1), "keepdims": frame.constant(keepdims)}
    return with_values(frame, x, frame.apply(row, spelling, [x.values], options))


def ragged_attribute(frame: Operators, x: RaggedRef, name: str) -> Abstract:
    """An attribute of a Ragged."""
    assert isinstance(x.values.type, ArrayType)
    match name:
        case "values":
            return x.values
        case "offsets":
            return x.offsets
        case "lengths":
            row = get("subtract")
            one, none = frame.number(1), Known(None)
            parts = [frame.key_part(Slice(one, none, none)), frame.key_part(Slice(none, frame.number(-1), none))]
            later, before = (frame.index_array(x.offsets, (part,)) for part in parts)
            return frame.apply(row, row.spelling_index("function"), [later, before], {})
        case "shape":
            inner = tuple(frame.size_value(d) for d in x.values.type.shape[1:])
            return Tuple((number_of_sequences(frame, x), Known(None), *inner))
        case "ndim":
            return frame.number(1 + x.values.type.rank)
        case "dtype":
            return Known(x.values.type.dtype)
    return Method(x, name)


def number_of_sequences(frame: Operators, x: RaggedRef) -> Value:
    """`len(x)`."""
    assert isinstance(x.offsets.type, ArrayType)
    return frame.size_value(x.offsets.type.shape[0] - 1)


def call_ragged(frame: Calls, method: Method, args: list[Abstract], keywords: dict[str, Abstract]) -> Abstract:
    """A method of a Ragged that is no operator: `map`, `with_values`."""
    x = method.receiver
    assert isinstance(x, RaggedRef)
    if method.name == "map" and args and not keywords:
        given = []
        for argument in args[1:]:
            if isinstance(argument, RaggedRef) and argument.offsets is not x.offsets:
                _same_lengths(frame, x, argument)
            given.append(argument.values if isinstance(argument, RaggedRef) else argument)
        return with_values(frame, x, frame.call(args[0], [x.values, *given], {}))
    if method.name == "with_values" and len(args) == 1 and not keywords:
        return with_values(frame, x, args[0])
    raise Untraceable(f"the method {method.name} of a Ragged")
