"""What generated blocks call by a name no program can have: small helpers with CPython's exact behaviour and words.

In: values. Out: values, or the exception CPython raises in that place. Blocks reach them through closure variables
whose names begin with a dot (`SUPPORT`), so no global of the user's can hide them.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType
from typing import Any, Final

from tiercel.bytecode.constants import UNBOUND
from tiercel.dtypes import as_dtype
from tiercel.errors import DTypeError, ShapeError, StrictError
from tiercel.shapes import Facts, parse_token

__all__ = ["INPLACE", "SUPPORT", "exception_matches", "unbound_free", "unbound_local"]

# What `next(iterator, EXHAUSTED)` returns at the end; no program can hold it.
EXHAUSTED: Final = object()


def unbound_local(name: str) -> UnboundLocalError:
    """Return CPython's exception for reading a local variable before it is assigned."""
    return UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")


def unbound_free(name: str) -> NameError:
    """Return CPython's exception for reading an empty variable of an enclosing function."""
    return NameError(f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope")


def exception_matches(exception: BaseException, classes: object) -> bool:
    """Return whether `except classes:` takes the exception, as CPython's CHECK_EXC_MATCH decides it.

    Raises:
        TypeError: `classes` is no exception class and no tuple of such.
    """
    for cls in classes if isinstance(classes, tuple) else (classes,):
        if not (isinstance(cls, type) and BaseException in cls.__mro__):
            raise TypeError("catching classes that do not inherit from BaseException is not allowed")
    # By mro, not isinstance: `__instancecheck__` has no say here.
    mro = type(exception).__mro__
    return any(cls in mro for cls in classes) if isinstance(classes, tuple) else classes in mro


def with_enter(manager: object) -> Any:
    """Return the bound `__enter__`, looked up on the type."""
    return _special(manager, "__enter__", "")


def with_exit(manager: object) -> Any:
    """Return the bound `__exit__`, looked up on the type."""
    return _special(manager, "__exit__", " (missed __exit__ method)")


_MISSING: Final = object()


def _special(manager: object, name: str, missed: str) -> Any:
    cls = type(manager)
    for base in cls.__mro__:
        found = base.__dict__.get(name, _MISSING)
        if found is not _MISSING:
            bind = getattr(type(found), "__get__", None)
            return found if bind is None else bind(found, manager, cls)
    raise TypeError(f"'{cls.__name__}' object does not support the context manager protocol{missed}")


def exc_info(exception: BaseException) -> tuple[type[BaseException], BaseException, Any]:
    """Return the three arguments that `with` hands to `__exit__`."""
    return type(exception), exception, exception.__traceback__


def pack_arguments(values: tuple[Any, ...], keywords: tuple[str, ...]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Collect the arguments of a call with `*` or `**`; None if CPython might object to one of them.

    CPython words its objections with the callee's name, so such a call is made by CPython itself.
    """
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for value, keyword in zip(values, keywords, strict=True):
        if keyword == "*":
            if type(value) not in (tuple, list):
                return None
            positional.extend(value)
        elif keyword == "**":
            if type(value) is not dict or any(type(k) is not str or k in named for k in value):
                return None
            named.update(value)
        elif keyword == "":
            positional.append(value)
        elif keyword in named:
            return None
        else:
            named[keyword] = value
    return tuple(positional), named


def take(registers: list[Any], position: int) -> Any:
    """Return the content of a slot and empty it."""
    value, registers[position] = registers[position], None
    return value


def make_function(
    namespace: dict[str, Any],
    code: CodeType,
    name: str,
    defaults: tuple[Any, ...] | None,
    kwdefaults: dict[str, Any] | None,
    cells: tuple[CellType, ...],
) -> FunctionType:
    """Return a new Python function, as CPython's MAKE_FUNCTION does."""
    function = FunctionType(code, namespace, name, defaults, cells or None)
    if kwdefaults:
        function.__kwdefaults__ = kwdefaults
    return function


def strict_error(reason: str, filename: str, line: int | None) -> StrictError:
    """Return the error of a `CallPy` that strict mode forbids."""
    where = f" in line {line} of {filename}" if line is not None else ""
    return StrictError(
        f"runs as Python{where}: {reason}; strict mode forbids it (rewrite the line, or leave 'python' out of strict)",
        kind="python",
        filename=filename or None,
        line=line,
    )


def shape_hint(x: Any, hint: str) -> None:
    """Raise ShapeError unless `x` has the shape that a hint (a shape token such as `[B, 1..64, 128]`) declares."""
    shape = getattr(x, "shape", None)
    if not isinstance(shape, tuple):
        raise ShapeError(f"expected a tensor of shape {hint}, got {type(x).__name__}")
    facts = Facts()
    token = parse_token(hint, facts)
    env = token.matches(shape)
    if env is None:
        raise ShapeError(f"expected shape {hint}, got {list(shape)}: {token.explain_mismatch(shape)}")
    for symbol in token.symbols:
        within = facts.range(symbol)
        if symbol.name in env and not within.contains(env[symbol.name]):
            raise ShapeError(f"expected shape {hint}, got {list(shape)}: {symbol} must be in {within}")


def dtype_hint(x: Any, hint: str) -> None:
    """Raise DTypeError unless `x` has the dtype that a hint names."""
    dtype = getattr(x, "dtype", None)
    if dtype is None or as_dtype(dtype) is not as_dtype(hint):
        raise DTypeError(f"expected dtype {hint}, got {type(x).__name__ if dtype is None else dtype}")


INPLACE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "/=": operator.itruediv,
    "//=": operator.ifloordiv,
    "%=": operator.imod,
    "**=": operator.ipow,
    "@=": operator.imatmul,
    "&=": operator.iand,
    "|=": operator.ior,
    "^=": operator.ixor,
    "<<=": operator.ilshift,
    ">>=": operator.irshift,
}

# Closure variables of generated blocks, beside `.C` (counters) and `.G` (the user's globals).
SUPPORT: Final[Mapping[str, Any]] = {
    ".U": UNBOUND,
    ".S": EXHAUSTED,
    ".next": next,
    ".is": operator.is_,
    ".is_not": operator.is_not,
    ".item": operator.getitem,
    ".iter": iter,
    ".slice": slice,
    ".type": type,
    ".cell": CellType,
    ".clock": time.perf_counter_ns,
    ".unbound": unbound_local,
    ".unbound_free": unbound_free,
    ".exception_matches": exception_matches,
    ".with_enter": with_enter,
    ".with_exit": with_exit,
    ".exc_info": exc_info,
    ".pack": pack_arguments,
    ".function": make_function,
    ".take": take,
    ".strict": strict_error,
    ".shape_hint": shape_hint,
    ".dtype_hint": dtype_hint,
    **{f".{symbol}": function for symbol, function in INPLACE.items()},
}
