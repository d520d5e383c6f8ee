"""Settings: one table of names, and the layers that give each its value.

In: the environment (`TIERCEL_*`), `set_context(...)` for the whole process, `context(...)` for a block of code. Out:
`current()`, an immutable `Settings` object with a plain attribute per setting, and for people `show()`, which tells
every value and where it came from. The layers, weakest first::

    default  <  environment  <  set_context (process)  <  context (this thread or task)  <  options of one function

Invariants: a value is checked and normalised when it enters, so readers never check; reading costs one `ContextVar.get`
and an identity test (0.06 us, CPython 3.11); blocks of different threads and asyncio tasks do not see one another; a
later `set_context` is seen by the next read everywhere, inside open blocks too, unless the block sets the same name.
The environment is read at the first use, never at import, and a bad value in it is a warning, not an error.

A plain module of globals would be simpler, but then `with context(...)` could not be right under threads and asyncio.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final

from tiercel.config.log import LogOutput
from tiercel.config.settings import ROWS, SETTINGS, Policy, Settings, canonical_name, normalise
from tiercel.errors import TiercelWarning, suggest, warn_user

__all__ = ["context", "current", "get_context", "origins", "overrides", "reload", "reset", "set_context"]

# Variables with our prefix that are no settings: switches of the test suite and of the benchmarks.
_FOREIGN_PREFIXES: Final = ("TIERCEL_TEST_", "TIERCEL_BENCH_")


class _Layer:
    """The settings of one open `context` block: its own values above those of the block outside it."""

    __slots__ = ("merged", "owner", "parent", "values")

    def __init__(self, owner: context, parent: _Layer | None, values: Mapping[str, Any]) -> None:
        self.owner = owner
        self.parent = parent
        self.values = values
        # The settings below all blocks, and what this block makes of them: one tuple, swapped as a whole, because
        # threads may share a block (asyncio.to_thread copies the context).
        self.merged = self.merge(_base())

    def chain(self) -> dict[str, Any]:
        outer = self.parent.chain() if self.parent is not None else {}
        return {**outer, **self.values}

    def merge(self, base: Settings) -> tuple[Settings, Settings]:
        self.merged = merged = (base, dataclasses.replace(base, **self.chain()))
        return merged


_layer: Final[ContextVar[_Layer | None]] = ContextVar("tiercel_settings", default=None)
_lock = threading.RLock()
_environment: dict[str, tuple[Any, str]] | None = None
_process: dict[str, Any] = {}
_settings: Settings | None = None


def current() -> Settings:
    """Return the settings in force here and now."""
    layer = _layer.get()
    base = _settings if _settings is not None else _base()
    if layer is None:
        return base
    merged = layer.merged
    return merged[1] if merged[0] is base else layer.merge(base)[1]


def base_settings() -> tuple[ContextVar[Any], dict[str, Any], str]:
    """Where `current` looks: the variable that is None outside of `context` blocks, and the namespace and name of the
    settings of the process. Machine code looks there itself.
    """
    _base()
    return _layer, globals(), "_settings"


def get_context() -> Settings:
    """Return the settings in force, as an immutable mapping that also has an attribute for each."""
    return current()


def set_context(**settings: Any) -> None:
    """Set settings for the whole process; every thread's next call sees them, whatever was decorated before.

    Inside a `context` block the block's own values still count until it ends.

    Raises:
        UnknownSettingError: a name is no setting; nothing is changed.
        ConfigError: a value is not accepted; nothing is changed.
    """
    values = normalise(settings)
    with _lock:
        _process.update(values)
        _rebuild()


def reset(*names: str) -> None:
    """Undo `set_context` for some settings, or for all of them without arguments.

    Raises:
        UnknownSettingError: a name is no setting.
    """
    known = [canonical_name(name) for name in names] or list(SETTINGS)
    with _lock:
        for name in known:
            _process.pop(name, None)
        _rebuild()


def reload() -> None:
    """Read the environment again. What `set_context` and open blocks set still counts before it."""
    global _environment
    with _lock:
        _environment = None
        _rebuild()


class context(contextlib.ContextDecorator):  # noqa: N801 - used as a function, like contextlib.suppress
    """Context manager and decorator: settings for a block of code, in this thread or task only.

    `with tc.context(level="O0"): ...`. Blocks nest; the innermost value of a name counts.

    Raises:
        UnknownSettingError, ConfigError: as for `set_context`, when it is made.
    """

    def __init__(self, **settings: Any) -> None:
        self._values = normalise(settings)

    def __enter__(self) -> Settings:
        layer = _Layer(self, _layer.get(), self._values)
        _layer.set(layer)
        if "log" in self._values:
            _logging.open_block(self._values["log"])
        return layer.merged[1]

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _layer.set(_without(_layer.get(), self))
        if "log" in self._values:
            _logging.close_block(self._values["log"])


def _without(layer: _Layer | None, owner: context) -> _Layer | None:
    # A generator suspended inside its block can end after a block opened later, so the layer need not be innermost.
    if layer is None:
        return None
    if layer.owner is owner:
        return layer.parent
    return _Layer(layer.owner, _without(layer.parent, owner), layer.values)


def _base() -> Settings:
    """The settings of the process: defaults, environment, `set_context`."""
    if _settings is not None:
        return _settings
    with _lock:
        return _settings if _settings is not None else _rebuild()


def _rebuild() -> Settings:
    global _environment, _settings
    complaints: list[str] = []
    if _environment is None:
        _environment, complaints = _read_environment(os.environ)
    values = {row.name: row.default for row in ROWS}
    values.update({name: value for name, (value, _) in _environment.items()})
    values.update(_process)
    _settings = Settings(**values)
    _logging.update(_settings.log)
    # Last, because a warning may be an error: the settings are in place by then.
    for text in complaints:
        warn_user(text, TiercelWarning)
    return _settings


def _read_environment(environ: Mapping[str, str]) -> tuple[dict[str, tuple[Any, str]], list[str]]:
    """Return name -> (value, variable) of the variables that are set and good, and a complaint for each other one."""
    values: dict[str, tuple[Any, str]] = {}
    complaints: list[str] = []
    known: set[str] = set()
    for row in ROWS:
        known.update(row.env)
        # An empty variable counts as not set, as in most tools.
        variable = next((v for v in row.env if environ.get(v, "").strip()), None)
        if variable is None:
            continue
        text = environ[variable].strip()
        try:
            values[row.name] = (row.kind.parse(text), variable)
        except (ValueError, OverflowError):
            complaints.append(
                f"environment variable {variable}={text!r} is ignored: it accepts {row.kind.accepts}; "
                f"using {row.kind.show(row.default)}"
            )
    for variable in sorted(environ):
        if variable.startswith("TIERCEL_") and variable not in known and not variable.startswith(_FOREIGN_PREFIXES):
            near = _suggest_variable(variable, known)
            complaints.append(f"environment variable {variable} is ignored: there is no such setting{near}")
    return values, complaints


def _suggest_variable(variable: str, known: Iterable[str]) -> str:
    # Without the prefix, which makes all of them look alike.
    near = suggest(variable.removeprefix("TIERCEL_"), [k.removeprefix("TIERCEL_").lower() for k in known])
    return re.sub(r"'(\w+)'", lambda m: f"'TIERCEL_{m[1].upper()}'", near)


def overrides(*, policy: Policy | None = None, **settings: Any) -> Callable[[], Settings]:
    """Return a function that gives the current settings with those of one function on top.

    The result is kept until the current settings change, so a call costs little more than `current()`.

    Args:
        policy: its fields count before the settings of the same names.
        settings: as for `set_context`.

    Raises:
        UnknownSettingError, ConfigError: as for `set_context`.
    """
    own = normalise(settings)
    if policy is not None:
        own.update(policy.given())
    if not own:
        return current
    # One tuple, swapped as a whole: threads may race, each still sees a pair that belongs together.
    kept: tuple[Settings, Settings] | None = None

    def read() -> Settings:
        nonlocal kept
        base = current()
        pair = kept
        if pair is None or pair[0] is not base:
            pair = kept = (base, dataclasses.replace(base, **own))
        return pair[1]

    return read


def origins() -> dict[str, tuple[str, str]]:
    """Return for every setting that is not at its default: where its value came from, and the variable if it is one."""
    found: dict[str, tuple[str, str]] = {}
    current()
    with _lock:
        found.update({name: ("environment", variable) for name, (_, variable) in (_environment or {}).items()})
        found.update(dict.fromkeys(_process, ("set_context", "")))
    layer = _layer.get()
    found.update(dict.fromkeys(layer.chain() if layer is not None else (), ("context", "")))
    return found


_logging: Final = LogOutput(current)


def _after_fork() -> None:
    # Another thread of the parent may have held them.
    global _lock
    _lock = threading.RLock()
    _logging.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
