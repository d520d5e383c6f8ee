"""`tc.jit`: the decorator.

In: a function, or anything that holds one. Out: the same kind of thing with the function jitted.

What it takes: functions, lambdas, methods, `classmethod`, `staticmethod`, `property` and `cached_property` objects (so
decorators may come in any order), `functools.partial`, objects whose class defines `__call__`, C functions (which run
as they are). A jitted function is returned as it is: `jit(jit(f))` is `jit(f)`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from tiercel import config
from tiercel.api.function import JitFunction, Specs, is_jitted, state_of

if TYPE_CHECKING:
    from tiercel.api.jitted import Jitted
    from tiercel.config import Level, Policy

__all__ = ["compile", "jit"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
# What holds a function and stays what it is.
_Holder = TypeVar(
    "_Holder",
    bound="classmethod[Any, Any, Any] | staticmethod[Any, Any] | property | functools.cached_property[Any]",
)


@overload
def jit(  # type: ignore[overload-overlap]  # holders can be called, and stay holders
    function: _Holder,
    /,
    *,
    level: Level | None = None,
    policy: Policy | None = None,
    strict: bool | frozenset[str] | None = None,
    specs: Specs | None = None,
    deterministic: bool | None = None,
) -> _Holder: ...


@overload
def jit(
    function: Callable[_P, _R],
    /,
    *,
    level: Level | None = None,
    policy: Policy | None = None,
    strict: bool | frozenset[str] | None = None,
    specs: Specs | None = None,
    deterministic: bool | None = None,
) -> Jitted[_P, _R]: ...


@overload
def jit(
    function: None = None,
    /,
    *,
    level: Level | None = None,
    policy: Policy | None = None,
    strict: bool | frozenset[str] | None = None,
    specs: Specs | None = None,
    deterministic: bool | None = None,
) -> Callable[[Callable[_P, _R]], Jitted[_P, _R]]: ...


def jit(
    function: Any = None,
    /,
    *,
    level: Level | None = None,
    policy: Policy | None = None,
    strict: bool | frozenset[str] | None = None,
    specs: Specs | None = None,
    deterministic: bool | None = None,
) -> Any:
    """Run a function of plain NumPy code on the Tiercel machine.

    `@tc.jit` and `@tc.jit(level="O1")` both work. With `TIERCEL_DISABLE=1` the function is returned unchanged.

    Args:
        function: what to jit; see the module docstring for the kinds.
        level: highest tier it may reach: "O0" (interpreted), "O1", "O2". Default: the setting, read at each call.
        policy: when its parts are compiled; fields that are not given follow the settings.
        strict: ledger kinds that are errors in this function, or True for all.
        specs: shape hints by parameter name, as `{"x": tc.spec("B", "T", 128)}`; they replace annotations.
        deterministic: results never change bits, whatever is compiled meanwhile.

    Returns:
        The same kind of thing, jitted. Functions get the attributes `explain`, `program`, `programs`, `stats`,
        `warmup`, `wait` and `__wrapped__`.

    Raises:
        TypeError: it is a class or nothing that can be called; `specs` names no parameter.
        ConfigError: a setting is not accepted.
    """
    given: dict[str, Any] = {
        name: value
        for name, value in (
            ("level", level),
            ("strict", strict),
            ("deterministic", deterministic),
            ("policy", policy),
            ("specs", specs),
        )
        if value is not None
    }
    if function is None:
        return functools.partial(_jit, given=given)
    return _jit(function, given)


def _jit(function: Any, given: dict[str, Any]) -> Any:
    if config.current().disable:
        return function
    if is_jitted(function):
        # Settings given later add to those given before.
        return _make(function.__wrapped__, {**function.__tiercel__.given, **given}) if given else function
    match function:
        case FunctionType():
            return _make(function, given)
        case staticmethod() | classmethod():
            return type(function)(_jit(function.__func__, given))
        case property():
            return _property(function, given)
        case functools.cached_property():
            made = functools.cached_property(_jit(function.func, given))
            made.attrname = function.attrname
            return made
        case functools._lru_cache_wrapper():
            cached: Any = functools.lru_cache(**function.cache_parameters())(_jit(function.__wrapped__, given))
            return cached
        case functools.partialmethod():
            return functools.partialmethod(_jit(function.func, given), *function.args, **function.keywords)
        case functools.partial():
            return _partial(function, given)
        case MethodType():
            return MethodType(_jit(function.__func__, given), function.__self__)
        case type():
            raise TypeError(
                f"tc.jit takes functions, got the class {function.__qualname__}; decorate its methods, or jit an "
                "instance whose class defines __call__"
            )
    if not callable(function):
        raise TypeError(f"tc.jit takes functions, got {type(function).__name__} {function!r:.80}")
    call = getattr(type(function), "__call__", None)  # noqa: B004 - which one it is, not whether there is one
    if type(call) is FunctionType:
        return MethodType(call if is_jitted(call) else _make(call, given), function)
    return _make(function, given)


def _make(function: Any, given: dict[str, Any]) -> Any:
    state = JitFunction(function, **given)
    state.say_reason()
    return state.public


def _property(given_property: property, given: dict[str, Any]) -> property:
    accessors = (given_property.fget, given_property.fset, given_property.fdel)
    fget, fset, fdel = (None if f is None else _jit(f, given) for f in accessors)
    return type(given_property)(fget, fset, fdel, given_property.__doc__)


def _partial(given_partial: functools.partial[Any], given: dict[str, Any]) -> functools.partial[Any]:
    inner = _jit(given_partial.func, given)
    made = type(given_partial)(inner, *given_partial.args, **given_partial.keywords)
    made.__dict__.update(given_partial.__dict__)
    for name in ("explain", "program", "programs", "stats", "wait", "warmup"):
        made.__dict__[name] = getattr(inner, name)
    return made


def compile(function: Any, /, *specs: Any, **keyword_specs: Any) -> Any:
    """Jit a function if it is not yet, prepare it as `f.warmup(*specs)` does, and return it.

    Args:
        function: as for `jit`, or a jitted function.
        specs, keyword_specs: arguments, or `tc.spec(...)` in their place.
    """
    jitted = jit(function)
    state_of(jitted).warmup(*specs, **keyword_specs)
    return jitted
