"""Arguments like those a profile remembers, for compiling a loaded program before its first call.

In: per parameter the learned descriptor, as a profile and its file have it (`float32[16..64, 128]{C}`, `int 3..9`,
`(float, Tensor float32[8]{C})`). Out: such arguments, or None where the text does not say enough.

Every size is the smallest that was seen (the largest where that is 0 or 1, which broadcast): sizes that always agreed
agree again, which is what code is specialised for. What is assumed wrongly costs a second kernel, not a wrong result:
entries check what they assume.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tiercel.dtypes import as_dtype
from tiercel.errors import TiercelError
from tiercel.shapes import DimLike, Facts, parse_descriptor
from tiercel.values import Tensor

__all__ = ["arguments_like"]

_INT: Final = re.compile(r"int (-?\d+)(?:\.\.(-?\d+))?(?: % \d+)?")
_SCALAR: Final = re.compile(r"np\.(\w+)")
_PLAIN: Final[Mapping[str, Any]] = {"float": 1.0, "bool": True, "None": None, "complex": 1j}
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
MAX_BYTES: Final = 1 << 26
"""Of one argument: nothing larger is made only to look at its type."""


class _Unclear(Exception):
    """A text that does not say enough."""


def arguments_like(texts: Mapping[int, str], count: int) -> tuple[Any, ...] | None:
    """Make arguments.

    Args:
        texts: per parameter, by register, what was learned of it.
        count: how many parameters there are.

    Returns:
        The arguments, or None if they cannot be made: an object of the user's, a size that is not known.
    """
    try:
        return tuple(_value(texts[register]) for register in range(count))
    except (_Unclear, KeyError, TiercelError, ValueError, TypeError):
        return None


def _value(text: str) -> Any:
    if text in _PLAIN:
        return _PLAIN[text]
    if match := _INT.fullmatch(text):
        return _size(int(match[1]), int(match[2] or match[1]))
    if match := _SCALAR.fullmatch(text):
        return as_dtype(match[1]).numpy.type(1)
    if text[:1] in ("'", '"') and text[-1] == text[0]:
        return _string(text)
    if text.startswith("("):
        return tuple(map(_value, _parts(text)))
    if text.startswith("["):
        return list(map(_value, _parts(text)))
    if text.startswith("{"):
        return dict(map(_item, _parts(text)))
    return _array(text)


def _array(text: str) -> Any:
    wrap: Callable[[Any], Any] = lambda array: array  # noqa: E731
    if text.startswith("Tensor "):
        text, wrap = text.removeprefix("Tensor "), Tensor
    descriptor = parse_descriptor(text)
    dims = descriptor.token.dims
    if dims is None or descriptor.layout not in ("C", "F") or descriptor.device != "cpu":
        raise _Unclear
    facts, dtype = descriptor.facts(), as_dtype(descriptor.dtype_name).numpy
    shape = tuple(_dim(dim, facts) for dim in dims)
    if int(np.prod(shape, dtype=object)) * dtype.itemsize > MAX_BYTES:
        raise _Unclear
    return wrap(np.ones(shape, dtype, order="F" if descriptor.layout == "F" else "C"))


def _dim(dim: DimLike, facts: Facts) -> int:
    if isinstance(dim, int):
        return dim
    seen = facts.range(dim)
    if seen.lo is None or seen.hi is None:
        raise _Unclear
    return _size(seen.lo, seen.hi)


def _size(low: int, high: int) -> int:
    return high if low in (0, 1) else low


def _string(text: str) -> str:
    inner = text[1:-1]
    if "\\" in inner or text[0] in inner:
        raise _Unclear
    return inner


def _item(text: str) -> tuple[Any, Any]:
    match = re.fullmatch(r"('[^'\\]*'|-?\d+): (.*)", text, re.DOTALL)
    if match is None:
        raise _Unclear
    key = match[1]
    return (key[1:-1] if key.startswith("'") else int(key)), _value(match[2])


def _parts(text: str) -> list[str]:
    """What is between the brackets of a container, apart."""
    if text[-1] != _CLOSING[text[0]]:
        raise _Unclear
    parts, depth, quoted = [""], 0, False
    for character in text[1:-1]:
        quoted ^= character == "'"
        if not quoted:
            depth += (character in "([{") - (character in ")]}")
            if character == "," and not depth:
                parts.append("")
                continue
        parts[-1] += character
    if depth or quoted:
        raise _Unclear
    return [part.strip() for part in parts if part.strip()]
