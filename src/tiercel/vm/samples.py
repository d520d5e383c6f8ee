"""The scalars of calls that were seen, for validation: kernels are tried on them.

In: the arguments of interpreted calls; later the interface of what is compiled. Out: values by input, as plain data.
Arrays are never kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tiercel.compiler.abstract import Source
from tiercel.compiler.interface import Interface

__all__ = ["at_source", "sampled_scalars", "scalars_of"]

_SCALARS: Final = (int, float, bool)
_MAX_ITEMS: Final = 16
_INT64: Final = 1 << 63
_ABSENT: Final = object()


def scalars_of(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with everything but scalars, and short tuples and lists of them, replaced by None."""
    return tuple(_scalar(a) for a in arguments)


def _scalar(value: Any) -> Any:
    if type(value) in _SCALARS or isinstance(value, np.generic):
        return value
    if type(value) in (tuple, list) and len(value) <= _MAX_ITEMS:
        return tuple(_scalar(item) for item in value)
    return None


def sampled_scalars(
    interface: Interface, arguments: tuple[Any, ...], seen: Sequence[tuple[Any, ...]]
) -> list[list[Any]]:
    """Pairs of the number of a scalar input and the values it had, as `cases.Hints` has them in its plain form.

    Args:
        interface: of what is compiled.
        arguments: of the call it is compiled for.
        seen: what `scalars_of` gave for earlier calls.
    """
    found: list[list[Any]] = []
    for number, spec in enumerate(interface.inputs):
        if spec.kind == "array":
            continue
        values: dict[Any, Any] = {}
        for call in (arguments, *seen):
            value = _plain(at_source(spec.source, call), spec.kind)
            if value is not _ABSENT:
                values[repr(value)] = value  # by its text: -0.0 is not 0.0, and a NaN is itself
        if values:
            found.append([number, list(values.values())])
    return found


def at_source(source: Source, arguments: tuple[Any, ...]) -> Any:
    """The value at a source in these arguments; what is read from elsewhere was not sampled."""
    kind, detail = source
    if kind == "register":
        return arguments[detail] if detail < len(arguments) else _ABSENT
    if kind == "item":
        whole = at_source(detail[0], arguments)
        if type(whole) in (tuple, list) and isinstance(detail[1], int) and -len(whole) <= detail[1] < len(whole):
            return whole[detail[1]]
        if type(whole) is dict:
            return whole.get(detail[1], _ABSENT)
    return _ABSENT


def _plain(value: Any, kind: str) -> Any:
    """As plain data that an input of this kind takes; `_ABSENT` for anything else."""
    if isinstance(value, np.generic):
        value = value.item() if value.dtype.kind in "biuf" else _ABSENT
    if type(value) is int and not (-_INT64 <= value < _INT64):
        return _ABSENT
    if type(value) not in _SCALARS:
        return _ABSENT
    wanted = {"pyint": int, "pyfloat": float, "pybool": bool}.get(kind)
    return value if wanted in (None, type(value)) else _ABSENT
