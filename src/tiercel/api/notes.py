"""The note on an exception of NumPy's: which operator, on which operands, which dimension disagrees, where.

In: an exception that leaves a jitted function. Out: the same exception, with a note if an operator raised it. Nothing
is done before an exception is on its way, so a call that succeeds pays nothing.

An exception that the user's own code raised (a `raise`, a helper, an `__add__` of his) gets no note: the innermost
captured frame must have been at an operator, and behind it there may only be frames of NumPy or of this package.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import CellType, TracebackType
from typing import Any, Final

import numpy as np

from tiercel import operators
from tiercel.bytecode.constants import ObjectRef
from tiercel.bytecode.instructions import Instruction
from tiercel.errors import InternalError, TiercelError, annotate, source_location
from tiercel.interp import Decoded, Place, places

__all__ = ["explain_error"]

_NUMPY: Final = os.path.dirname(os.path.abspath(np.__file__)) + os.sep
_MARK: Final = "Tiercel: "


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand as the note shows it: its name in the program, and its shape and dtype if it is a tensor."""

    label: str
    text: str
    shape: tuple[int, ...] | None = None
    value: Any = None


def explain_error(error: BaseException) -> None:
    """Add the note to an exception that an operator of a jitted function raised; leave any other one alone."""
    if not isinstance(error, Exception) or isinstance(error, TiercelError | InternalError):
        return
    if any(isinstance(n, str) and n.startswith(_MARK) for n in getattr(error, "__notes__", ())):
        return
    try:
        found = places(error.__traceback__)
        if found and _is_innermost(found[-1].entry.tb_next):
            text = _note(found[-1])
            if text is not None:
                annotate(error, text)
    except Exception:  # noqa: BLE001 - a note must never take the place of the error it explains
        return


def _is_innermost(entry: TracebackType | None) -> bool:
    while entry is not None:
        if not entry.tb_frame.f_code.co_filename.startswith(_NUMPY):
            return False
        entry = entry.tb_next
    return True


def _note(place: Place) -> str | None:
    ins = place.decoded.function.instructions[place.index]
    described = _operands(place, ins)
    if described is None:
        return None
    title, operands = described
    shown = ", ".join(f"{o.label}: {o.text}" if o.label else o.text for o in operands)
    disagreement = _disagreement(ins, operands)
    head = f"{_MARK}{title}({shown}){': ' + disagreement if disagreement else ''}"
    span = place.decoded.function.spans[place.index]
    filename = place.decoded.function.filename
    if span is None or not filename:
        return f"{head}\n  at 0x{place.decoded.function.pc_of(place.index):02X} of {place.decoded.function.name}"
    end = span[3] if span[2] == span[0] else None
    location = source_location(filename, span[0], span[1], end)
    return f"{head}\n{location}"


def _operands(place: Place, ins: Instruction) -> tuple[str, list[_Operand]] | None:
    match ins.opcode:
        case "CallOp":
            names = ins.keywords or ("",) * len(ins.args)
            pairs = list(zip(names, ins.args, strict=True))
            return ins.operator, [_operand(place, a, keyword=n) for n, a in pairs]
        case "Index":
            return "index", [_operand(place, ins.x), _operand(place, ins.key)]
        case "SetItem":
            return "index_put", [_operand(place, ins.x), _operand(place, ins.key), _operand(place, ins.value)]
        case "StoreTensor":
            return "store", [_operand(place, ins.x), _operand(place, ins.value)]
        case "Item":
            return "item", [_operand(place, ins.x)]
        case "BranchIf":
            return "truth", [_operand(place, ins.condition)]
        case _:
            return None


_UNKNOWN: Final = object()
# How far an expression is followed to its parts.
_MAX_DEPTH: Final = 20


def _operand(place: Place, operand: int, keyword: str = "") -> _Operand:
    value = _value(place, operand)
    label = keyword or _label(place, operand)
    if value is _UNKNOWN:
        inferred = _inferred(place, operand)
        if inferred is not None:
            return _Operand(label, inferred[0], inferred[1])
        return _Operand(label, "?")
    shape = getattr(value, "shape", None)
    text = _text(value)
    if isinstance(shape, tuple) and hasattr(value, "dtype"):
        return _Operand(label, text + _known_before(place, operand, text), shape, value)
    return _Operand(label, text, None, value)


def _value(place: Place, operand: int, depth: int = 0) -> Any:
    """Return the value of an operand, or _UNKNOWN. Nothing of the user's is run to find it."""
    if operand < 0:
        constant = place.decoded.program.constants[~operand]
        return constant.value if isinstance(constant, ObjectRef) else constant
    value = place.registers[operand]
    if value is not None or not place.decoded.flow.foldable >> operand & 1:
        return value
    # It was on CPython's stack, as part of the expression that failed; some of it can be read again.
    ins = _definition(place.decoded, operand)
    if ins is None or depth > _MAX_DEPTH:
        return _UNKNOWN
    match ins.opcode:
        case "LoadConst":
            return _value(place, ins.value)
        case "LoadTensor":
            return _value(place, ins.tensor)
        case "Move":
            return _value(place, ins.src, depth + 1)
        case "LoadGlobal":
            return place.decoded.environment.globals.get(ins.name, _UNKNOWN)
        case "LoadCell":
            cell = _value(place, ins.cell, depth + 1)
            return cell.cell_contents if isinstance(cell, CellType) else _UNKNOWN
        case "LoadAttr":
            return _attribute(_value(place, ins.object, depth + 1), ins.name)
        case "Build" if ins.what in ("tuple", "list"):
            items = [_value(place, i, depth + 1) for i in ins.items]
            return _UNKNOWN if any(i is _UNKNOWN for i in items) else (tuple if ins.what == "tuple" else list)(items)
    return _UNKNOWN


def _attribute(owner: Any, name: str) -> Any:
    """Return an attribute that lies in the object itself, so that reading it runs no code."""
    if owner is _UNKNOWN or any(name in vars(cls) for cls in type(owner).__mro__):
        return _UNKNOWN
    attributes = getattr(owner, "__dict__", None)
    return attributes.get(name, _UNKNOWN) if isinstance(attributes, dict) else _UNKNOWN


def _text(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:
        return f"{dtype}{list(shape)}"
    if type(value) is list or (type(value) is tuple and any(hasattr(v, "dtype") for v in value)):
        return f"[{', '.join(_text(v) for v in value[:4])}{', ...' if len(value) > 4 else ''}]"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _label(place: Place, operand: int) -> str:
    """Return the source variable that an operand is, or nothing."""
    if operand < 0:
        return ""
    for variable in place.decoded.function.variables:
        if variable.where == operand and variable.start <= place.index <= variable.end:
            return variable.name
    return ""


def _known_before(place: Place, operand: int, text: str) -> str:
    """Return ` declared [B, 128]` for a parameter with a token, else ` seen float32[16..64, 128]` if that differs."""
    if operand < 0:
        return ""
    function, program = place.decoded.function, place.decoded.program
    if operand < len(function.parameters):
        token = function.parameters[operand].token
        if token is not None:
            return f" declared {program.tokens[token].token}"
    learned = program.profile.functions.get(place.decoded.index) if program.profile is not None else None
    if learned is None:
        return ""
    written = [i for i, ins in enumerate(function.instructions) if operand in ins.registers_written()]
    for signature in learned.signatures:
        texts = [signature.live_ins.get(operand), *(signature.results.get(i) for i in written)]
        found = next((t for t in texts if t), "").partition("{")[0]
        if found and found != text:
            return f" seen {found}"
    return ""


def _definition(decoded: Decoded, register: int) -> Instruction | None:
    return next((i for i in decoded.function.instructions if register in i.registers_written()), None)


def _inferred(place: Place, register: int) -> tuple[str, tuple[int, ...] | None] | None:
    """Return the type of a value that was on CPython's stack, from the operators that made it."""
    made = _type(place, register, 0)
    shape = getattr(made, "shape", ()) if hasattr(made, "dtype") else None
    dtype = getattr(made, "dtype", None)
    if made is None or dtype is None or shape is None or not all(isinstance(d, int) for d in shape):
        return None
    return f"{dtype}{list(shape)}", tuple(shape)


def _type(place: Place, operand: int, depth: int) -> Any:
    value = _value(place, operand)
    if value is not _UNKNOWN:
        value = getattr(value, "_array", value)
        return operators.type_of(value)
    ins = _definition(place.decoded, operand)
    if ins is None or depth > _MAX_DEPTH:
        return None
    if ins.opcode == "CallOp":
        row = operators.get(ins.operator)
        names = ins.keywords or ("",) * len(ins.args)
        types = [_type(place, a, depth + 1) for a in ins.args]
        if any(t is None for t in types):
            return None
        positional = tuple(t for t, n in zip(types, names, strict=True) if not n)
        keywords = {n: t for t, n in zip(types, names, strict=True) if n}
        return row.infer(row.bind(ins.spelling, positional, keywords))
    if ins.opcode == "Build" and ins.what in ("tuple", "list"):
        types = [_type(place, a, depth + 1) for a in ins.items]
        made = operators.TupleType if ins.what == "tuple" else operators.ListType
        return None if any(t is None for t in types) else made(tuple(types))
    return None


# ---- what disagrees --------------------------------------------------------------------------------------------------

_CONTRACTIONS: Final = frozenset({"matmul", "dot", "linear", "inner"})
_JOINS: Final = frozenset({"concat", "concatenate", "stack", "vstack", "hstack", "dstack", "column_stack"})


def _disagreement(ins: Instruction, operands: Sequence[_Operand]) -> str:
    """Name the dimension that does not fit, if it is one of the common cases."""
    shapes = [(o.label or f"operand {i}", o.shape) for i, o in enumerate(operands) if o.shape is not None]
    known = [(label, shape) for label, shape in shapes if shape is not None]
    if ins.opcode == "CallOp":
        if ins.operator in _CONTRACTIONS:
            return _contraction(ins.operator, known)
        if ins.operator == "reshape" and known:
            return _reshape(known[0], operands)
        if ins.operator in _JOINS:
            return _join(ins.operator, operands)
        lowering = operators.get(ins.operator).lowering.cls
        return _broadcast(known) if lowering == "elementwise" else ""
    if ins.opcode == "StoreTensor" and len(known) == 2:
        return _broadcast(known)
    return ""


def _broadcast(shapes: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    rank = max((len(s) for _, s in shapes), default=0)
    for back in range(1, rank + 1):
        sizes = [(label, s[-back], len(s) - back) for label, s in shapes if len(s) >= back]
        wide = [x for x in sizes if x[1] != 1]
        for label, size, axis in wide[1:]:
            if size != wide[0][1]:
                return f"dimension {wide[0][2]} of {wide[0][0]} is {wide[0][1]}, dimension {axis} of {label} is {size}"
    return ""


def _contraction(operator: str, shapes: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    if len(shapes) < 2:
        return ""
    (left, a), (right, b) = shapes[0], shapes[1]
    if not a or not b:
        return f"{left if not a else right} has no dimensions"
    second = -1 if operator in ("linear", "inner") or len(b) == 1 else -2
    if a[-1] != b[second]:
        return f"dimension {len(a) - 1} of {left} is {a[-1]}, dimension {len(b) + second} of {right} is {b[second]}"
    if operator == "matmul":
        return _broadcast([(left, a[:-2]), (right, b[:-2])])
    return ""


def _reshape(array: tuple[str, tuple[int, ...]], operands: Sequence[_Operand]) -> str:
    label, shape = array
    wanted = [o.value for o in operands[1:] if o.shape is None]
    target = wanted[0] if len(wanted) == 1 and isinstance(wanted[0], tuple) else tuple(wanted)
    if not target or not all(isinstance(d, int) for d in target):
        return ""
    size = int(np.prod(shape, dtype=np.int64))
    given = int(np.prod([d for d in target if d != -1], dtype=np.int64))
    if target.count(-1) > 1:
        return "only one dimension may be -1"
    if -1 in target:
        return f"{label} has {size} elements, not a multiple of {given}"
    return f"{label} has {size} elements, the new shape {given}"


def _join(operator: str, operands: Sequence[_Operand]) -> str:
    parts = operands[0].value if operands else None
    if not isinstance(parts, list | tuple):
        return ""
    shapes = [s for p in parts if isinstance(s := getattr(p, "shape", None), tuple)]
    if len(shapes) < len(parts) or not shapes:
        return ""
    first = shapes[0]
    for i, shape in enumerate(shapes):
        if len(shape) != len(first):
            return f"item 0 has {len(first)} dimensions, item {i} has {len(shape)}"
    axis = next((o.value for o in operands[1:] if isinstance(o.value, int)), 0)
    for i, shape in enumerate(shapes):
        for d, (a, b) in enumerate(zip(first, shape, strict=True)):
            if a != b and (operator == "stack" or d != axis % len(first)):
                return f"dimension {d} of item 0 is {a}, of item {i} it is {b}"
    return ""
