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
import logging
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, TextIO

from tiercel.errors import ConfigError, TiercelWarning, UnknownSettingError, suggest, warn_user

__all__ = [
    "LEDGER_KINDS",
    "SETTINGS",
    "Level",
    "Policy",
    "Row",
    "Setting",
    "Settings",
    "context",
    "current",
    "get_context",
    "logger",
    "overrides",
    "reload",
    "reset",
    "set_context",
    "show",
    "table",
]

Level = Literal["O0", "O1", "O2"]

# What the ledger accounts for, and so what strict mode can forbid.
LEDGER_KINDS: Final = ("python", "fallback", "copy", "convert", "transfer", "demote")

logger: Final = logging.getLogger("tiercel")
logger.addHandler(logging.NullHandler())


# --- Kinds of values ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ValueKind:
    """What a setting accepts.

    Attributes:
        accepts: the accepted values, as words for an error message.
        parse: from the text of an environment variable; raises ValueError.
        check: from a Python value; returns the normalised value or raises ValueError or TypeError.
        show: a value as a person would write it.
    """

    accepts: str
    parse: Callable[[str], Any]
    check: Callable[[Any], Any]
    show: Callable[[Any], str] = str


_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})
_NONE: Final = frozenset({"none", "auto", "default"})


def _bool(value: Any) -> bool:
    # NumPy's bool is a bool to its user; 1 and 0 are what an environment variable holds.
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_") or (type(value) is int and value in (0, 1)):
        return bool(value)
    raise ValueError


def _parse_bool(text: str) -> bool:
    lowered = text.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError


def _show_bool(value: bool) -> str:
    return "on" if value else "off"


_BOOLEAN: Final = ValueKind("True or False (in the environment 1 or 0, on or off)", _parse_bool, _bool, _show_bool)


def _choice(*choices: str) -> ValueKind:
    folded = {c.lower(): c for c in choices}

    def check(value: Any) -> str:
        found = folded.get(value.lower()) if isinstance(value, str) else None
        if found is None:
            raise ValueError
        return found

    return ValueKind(" or ".join(repr(c) for c in choices), check, check)


def _parse_level(value: Any) -> str:
    text = f"O{value}" if type(value) is int or (isinstance(value, str) and value in ("0", "1", "2")) else value
    found = text.upper() if isinstance(text, str) else ""
    if found not in ("O0", "O1", "O2"):
        raise ValueError
    return found


_LEVEL: Final = ValueKind(
    "'O0' (interpreted), 'O1' (compiled) or 'O2' (compiled and tuned)", _parse_level, _parse_level
)


def _integer(low: int, high: int | None = None, *, optional: bool = False, power_of_two: bool = False) -> ValueKind:
    accepts = f"an integer from {low} to {high}" if high is not None else f"an integer of at least {low}"
    accepts += ", a power of two" if power_of_two else ""
    accepts += ", or None for automatic" if optional else ""

    def check(value: Any) -> int | None:
        if value is None and optional:
            return None
        if isinstance(value, bool):
            raise ValueError
        number = int(value.__index__())
        if number < low or (high is not None and number > high):
            raise ValueError
        if power_of_two and number & (number - 1):
            raise ValueError
        return number

    def parse(text: str) -> int | None:
        return None if optional and text.lower() in _NONE else check(int(text))

    return ValueKind(accepts, parse, check, lambda v: "automatic" if v is None else str(v))


def _number(low: float, unit: str) -> ValueKind:
    def check(value: Any) -> float:
        if isinstance(value, bool | str | bytes):
            raise ValueError
        number = float(value)
        if math.isnan(number) or number < low:
            raise ValueError
        return number

    return ValueKind(
        f"a number of at least {low:g}{unit and ' '}{unit}",
        lambda text: check(float(text)),
        check,
        lambda v: f"{v:g}{unit and ' '}{unit}",
    )


_SIZE_PATTERN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)
_SIZE_UNITS: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def _size(*, optional: bool) -> ValueKind:
    def parse(text: str) -> int | None:
        if optional and text.lower() in _NONE:
            return None
        match = _SIZE_PATTERN.fullmatch(text.strip())
        if match is None:
            raise ValueError
        return int(float(match[1]) * _SIZE_UNITS.get((match[2] or "").lower(), 1))

    def check(value: Any) -> int | None:
        if value is None and optional:
            return None
        if isinstance(value, str):
            return parse(value)
        if isinstance(value, bool) or value < 0:
            raise ValueError
        return int(value.__index__())

    def show(value: int | None) -> str:
        if value is None:
            return "unlimited"
        for letter in "tgmk":
            if value and value % _SIZE_UNITS[letter] == 0:
                return f"{value // _SIZE_UNITS[letter]} {letter.upper()}iB"
        return f"{value} B"

    accepts = "a number of bytes, also as text such as '512M' or '2GiB'" + (
        ", or None for no limit" if optional else ""
    )
    return ValueKind(accepts, parse, check, show)


def _path(absent: str) -> ValueKind:
    def check(value: Any) -> str | None:
        if value is None or value == "":
            return None
        path = os.fspath(value)
        if not isinstance(path, str) or "\0" in path:
            raise ValueError
        return os.path.expanduser(path)

    return ValueKind(f"a path, or None for {absent}", check, check, lambda v: absent if v is None else v)


def _text() -> ValueKind:
    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError
        return value

    return ValueKind("a string", check, check, lambda v: v or "(none)")


def _kinds(names: Iterable[str]) -> bool | frozenset[str]:
    found = frozenset(n.strip().lower() for n in names if n.strip())
    if not found <= set(LEDGER_KINDS):
        raise ValueError
    return found or False


def _check_strict(value: Any) -> bool | frozenset[str]:
    if isinstance(value, str):
        return _parse_strict(value)
    if isinstance(value, Iterable):
        return _kinds(value)
    return _bool(value)


def _parse_strict(text: str) -> bool | frozenset[str]:
    lowered = text.lower()
    return _parse_bool(text) if lowered in _TRUE | _FALSE else _kinds(text.split(","))


_STRICT: Final = ValueKind(
    f"True, False, or some of the ledger kinds {', '.join(LEDGER_KINDS)} (in the environment separated by commas)",
    _parse_strict,
    _check_strict,
    lambda v: _show_bool(v) if isinstance(v, bool) else ", ".join(sorted(v)),
)


# --- The table ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of the table of settings.

    Attributes:
        name: keyword of `set_context` and `context`, attribute of `Settings`.
        kind: what it accepts.
        default: the value if no layer gives one.
        env: the names of its environment variable; the first counts, the others are accepted spellings.
        help: what it does, one sentence.
    """

    name: str
    kind: ValueKind
    default: Any
    env: tuple[str, ...]
    help: str


_ROWS: Final = (
    Setting("level", _LEVEL, "O2", ("TIERCEL_LEVEL", "TIERCEL_JIT_LEVEL"), "Highest tier a function may reach."),
    Setting("disable", _BOOLEAN, False, ("TIERCEL_DISABLE",), "Make tc.jit return the function unchanged."),
    Setting(
        "threads",
        _integer(1, 1024, optional=True),
        None,
        ("TIERCEL_NUM_THREADS", "TIERCEL_THREADS"),
        "Threads of one compiled call; automatic: what affinity, quota and OMP_NUM_THREADS allow.",
    ),
    Setting(
        "deterministic",
        _BOOLEAN,
        False,
        ("TIERCEL_DETERMINISTIC",),
        "Same bits in every call: tier-up only in warm-up, no dependence on the number of threads.",
    ),
    Setting("strict", _STRICT, False, ("TIERCEL_STRICT",), "Ledger kinds that are errors instead of entries."),
    Setting(
        "worker",
        _choice("process", "thread", "off"),
        "process",
        ("TIERCEL_WORKER",),
        "Where compiling happens; off: everything stays interpreted.",
    ),
    Setting("cache_dir", _path("the platform's place"), None, ("TIERCEL_CACHE_DIR",), "Folder of the kernel cache."),
    Setting(
        "cache_size", _size(optional=False), 512 << 20, ("TIERCEL_CACHE_SIZE",), "Upper bound of the cache on disk."
    ),
    Setting(
        "memory_limit",
        _size(optional=True),
        None,
        ("TIERCEL_MEMORY_LIMIT",),
        "Upper bound of arenas, packed weights and kernels together.",
    ),
    Setting("hot_count", _integer(1), 5, ("TIERCEL_HOT_COUNT",), "Entries (back edges count) before a region is hot."),
    Setting(
        "hot_time_ms",
        _number(0, "ms"),
        20.0,
        ("TIERCEL_HOT_TIME_MS",),
        "Total time a region must have taken, besides hot_count.",
    ),
    Setting(
        "hot_total_ms",
        _number(0, "ms"),
        100.0,
        ("TIERCEL_HOT_TOTAL_MS",),
        "Total time after which a region is hot whatever its count.",
    ),
    Setting(
        "warmup_calls",
        _integer(0),
        3,
        ("TIERCEL_WARMUP_CALLS",),
        "Entries that are only observed, for regions without loops.",
    ),
    Setting(
        "profile_first",
        _integer(1, 1 << 16),
        8,
        ("TIERCEL_PROFILE_FIRST",),
        "Entries of a region that are all recorded in its profile.",
    ),
    Setting(
        "profile_sample",
        _integer(0, 1 << 30, power_of_two=True),
        64,
        ("TIERCEL_PROFILE_SAMPLE",),
        "Later entries: one in this many is recorded; 0: none.",
    ),
    Setting(
        "demote_ratio",
        _number(1, ""),
        1.1,
        ("TIERCEL_DEMOTE_RATIO",),
        "A kernel slower than the interpreter by this factor is taken out.",
    ),
    Setting(
        "demote_window",
        _integer(1, 1 << 16),
        32,
        ("TIERCEL_DEMOTE_WINDOW",),
        "Entries whose median decides about taking a kernel out.",
    ),
    Setting(
        "log",
        _choice("off", "error", "warning", "info", "debug"),
        "off",
        ("TIERCEL_LOG",),
        "Log lines written to stderr, from this level up.",
    ),
    Setting("log_format", _choice("text", "json"), "text", ("TIERCEL_LOG_FORMAT",), "Form of the log lines."),
    Setting(
        "debug",
        _integer(0, 5),
        0,
        ("TIERCEL_DEBUG",),
        "Cumulative: 1 names each stage with its time, 2 prints regions, 3 each pass's output, 4 loops and IR, "
        "5 machine code.",
    ),
    Setting(
        "debug_filter", _text(), "", ("TIERCEL_DEBUG_FILTER",), "Only functions or passes whose name contains this."
    ),
    Setting(
        "dump_dir",
        _path("no dumps"),
        None,
        ("TIERCEL_DUMP_DIR",),
        "Folder that gets every form a compile goes through.",
    ),
)

SETTINGS: Final[Mapping[str, Setting]] = {row.name: row for row in _ROWS}

# Accepted spellings of a setting's name.
ALIASES: Final[Mapping[str, str]] = {"jit_level": "level", "num_threads": "threads"}

# Variables with our prefix that are no settings: switches of the test suite and of the benchmarks.
_FOREIGN_PREFIXES: Final = ("TIERCEL_TEST_", "TIERCEL_BENCH_")


@dataclass(frozen=True, slots=True, kw_only=True, eq=True)
class Settings(Mapping[str, Any]):
    """The value of every setting at one moment: immutable, an attribute each, and a mapping from name to value.

    `set_context(**settings)` sets them all again.
    """

    level: Level
    disable: bool
    threads: int | None
    deterministic: bool
    strict: bool | frozenset[str]
    worker: Literal["process", "thread", "off"]
    cache_dir: str | None
    cache_size: int
    memory_limit: int | None
    hot_count: int
    hot_time_ms: float
    hot_total_ms: float
    warmup_calls: int
    profile_first: int
    profile_sample: int
    demote_ratio: float
    demote_window: int
    log: Literal["off", "error", "warning", "info", "debug"]
    log_format: Literal["text", "json"]
    debug: int
    debug_filter: str
    dump_dir: str | None

    def is_strict(self, kind: str) -> bool:
        """Whether a ledger entry of this kind is an error."""
        return self.strict if isinstance(self.strict, bool) else kind in self.strict

    def replace(self, **settings: Any) -> Settings:
        """Return a copy with some settings changed.

        Raises:
            UnknownSettingError, ConfigError: as for `set_context`.
        """
        return dataclasses.replace(self, **_normalise(settings))

    def __getitem__(self, name: str) -> Any:
        if ALIASES.get(name, name) not in SETTINGS:
            raise KeyError(name)
        return getattr(self, ALIASES.get(name, name))

    def __iter__(self) -> Iterator[str]:
        return iter(SETTINGS)

    def __len__(self) -> int:
        return len(SETTINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When a region of one function is compiled and when a kernel is taken out again.

    A field left at None follows the setting of the same name, also when that is set later.

    Raises:
        ConfigError: a field has a value its setting does not accept.
    """

    hot_count: int | None = None
    hot_time_ms: float | None = None
    hot_total_ms: float | None = None
    warmup_calls: int | None = None
    profile_first: int | None = None
    profile_sample: int | None = None
    demote_ratio: float | None = None
    demote_window: int | None = None

    def __post_init__(self) -> None:
        for name, value in self.given().items():
            object.__setattr__(self, name, value)

    def given(self) -> dict[str, Any]:
        """The fields that are set, checked and normalised."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return _normalise({name: value for name, value in fields.items() if value is not None})

    def apply(self, settings: Settings) -> Settings:
        """Return `settings` with this policy's fields in place of its own."""
        given = self.given()
        return dataclasses.replace(settings, **given) if given else settings


def overrides(*, policy: Policy | None = None, **settings: Any) -> Callable[[], Settings]:
    """Return a function that gives the current settings with those of one function on top.

    The result is kept until the current settings change, so a call costs little more than `current()`.

    Args:
        policy: its fields count before the settings of the same names.
        settings: as for `set_context`.

    Raises:
        UnknownSettingError, ConfigError: as for `set_context`.
    """
    own = _normalise(settings)
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


# --- Layers ---------------------------------------------------------------------------------------------------------


class _Layer:
    """The settings of one open `context` block: its own values above those of the block outside it."""

    __slots__ = ("base", "owner", "parent", "settings", "values")

    def __init__(self, owner: context, parent: _Layer | None, values: Mapping[str, Any]) -> None:
        self.owner = owner
        self.parent = parent
        self.values = values
        self.base = _base()
        self.settings = self._merge(self.base)

    def _merge(self, base: Settings) -> Settings:
        return dataclasses.replace(base, **self.chain())

    def chain(self) -> dict[str, Any]:
        outer = self.parent.chain() if self.parent is not None else {}
        return {**outer, **self.values}

    def refresh(self, base: Settings) -> Settings:
        self.settings = self._merge(base)
        self.base = base
        return self.settings


_layer: Final[ContextVar[_Layer | None]] = ContextVar("tiercel_settings", default=None)
_lock = threading.RLock()
_environment: dict[str, tuple[Any, str]] | None = None
_process: dict[str, Any] = {}
_settings: Settings | None = None
_said: set[str] = set()


def current() -> Settings:
    """Return the settings in force here and now."""
    layer = _layer.get()
    base = _settings if _settings is not None else _base()
    if layer is None:
        return base
    return layer.settings if layer.base is base else layer.refresh(base)


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
    values = _normalise(settings)
    with _lock:
        _process.update(values)
        _rebuild()


def reset(*names: str) -> None:
    """Undo `set_context` for some settings, or for all of them without arguments.

    Raises:
        UnknownSettingError: a name is no setting.
    """
    known = [_canonical(name) for name in names] or list(SETTINGS)
    with _lock:
        for name in known:
            _process.pop(name, None)
        _rebuild()


def reload() -> None:
    """Read the environment again. What `set_context` and open blocks set still counts before it."""
    global _environment
    with _lock:
        _environment = None
        _said.clear()
        _rebuild()


class context(contextlib.ContextDecorator):  # noqa: N801 - used as a function, like contextlib.suppress
    """Context manager and decorator: settings for a block of code, in this thread or task only.

    `with tc.context(level="O0"): ...`. Blocks nest; the innermost value of a name counts.

    Raises:
        UnknownSettingError, ConfigError: as for `set_context`, when it is made.
    """

    def __init__(self, **settings: Any) -> None:
        self._values = _normalise(settings)

    def __enter__(self) -> Settings:
        layer = _Layer(self, _layer.get(), self._values)
        _layer.set(layer)
        if "log" in self._values:
            _logging.open_block(self._values["log"])
        return layer.settings

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


def _canonical(name: str) -> str:
    known = ALIASES.get(name, name)
    if known not in SETTINGS:
        near = suggest(name, [*SETTINGS, *ALIASES])
        raise UnknownSettingError(
            f"there is no setting {name!r}{near}; tiercel.config.show() lists all of them", setting=name
        )
    return known


def _normalise(settings: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    given: dict[str, str] = {}
    for name, value in settings.items():
        known = _canonical(name)
        if given.setdefault(known, name) != name:
            raise ConfigError(f"{given[known]!r} and {name!r} are the same setting: give one of them", setting=known)
        kind = SETTINGS[known].kind
        try:
            result[known] = kind.check(value)
        except (ValueError, TypeError, AttributeError, OverflowError):
            raise ConfigError(
                f"setting {name!r} accepts {kind.accepts}; got {value!r} of type {type(value).__name__}", setting=known
            ) from None
    return result


def _base() -> Settings:
    """The settings of the process: defaults, environment, `set_context`."""
    if _settings is not None:
        return _settings
    with _lock:
        return _rebuild()


def _rebuild() -> Settings:
    global _environment, _settings
    complaints: list[str] = []
    if _environment is None:
        _environment, complaints = _read_environment(os.environ)
    values = {row.name: row.default for row in _ROWS}
    values.update({name: value for name, (value, _) in _environment.items()})
    values.update(_process)
    _settings = Settings(**values)
    _logging.update(_settings.log)
    # Last, because a warning may be an error: the settings are in place by then.
    for text in complaints:
        if text not in _said:
            _said.add(text)
            warn_user(text, TiercelWarning)
    return _settings


def _read_environment(environ: Mapping[str, str]) -> tuple[dict[str, tuple[Any, str]], list[str]]:
    """Return name -> (value, variable) of the variables that are set and good, and a complaint for each other one."""
    values: dict[str, tuple[Any, str]] = {}
    complaints: list[str] = []
    known: set[str] = set()
    for row in _ROWS:
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


# --- For people -----------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A setting as `table` tells it: `origin` is default, environment, set_context or context."""

    name: str
    value: Any
    origin: str
    env: str
    help: str


def table() -> list[Row]:
    """Return a row for every setting: its value, where that came from, its environment variable, what it does."""
    settings = current()
    layer = _layer.get()
    block = layer.chain() if layer is not None else {}
    with _lock:
        environment = dict(_environment or {})
        process = set(_process)
    rows = []
    for row in _ROWS:
        origin = "default"
        env = row.env[0]
        if row.name in environment:
            origin, env = "environment", environment[row.name][1]
        if row.name in process:
            origin = "set_context"
        if row.name in block:
            origin = "context"
        rows.append(Row(row.name, getattr(settings, row.name), origin, env, row.help))
    return rows


def show(file: TextIO | None = None) -> None:
    """Print every setting, its value and where it came from.

    Args:
        file: where to print, standard output if None; a terminal gets a drawn table, everything else plain text.
    """
    out = sys.stdout if file is None else file
    header = ("setting", "value", "from", "environment", "meaning")
    cells = [(r.name, SETTINGS[r.name].kind.show(r.value), r.origin, r.env, r.help) for r in table()]
    if out.isatty():
        _show_drawn(out, header, cells)
        return
    widths = [max(len(row[i]) for row in [header, *cells]) for i in range(4)]
    for row in [header, *cells]:
        out.write("  ".join([*(text.ljust(width) for text, width in zip(row[:4], widths, strict=True)), row[4]]) + "\n")


def _show_drawn(out: TextIO, header: tuple[str, ...], cells: list[tuple[str, str, str, str, str]]) -> None:
    # rich takes 60 ms to import, and few processes show their settings.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(*header, box=box.SIMPLE_HEAD)
    for row in cells:
        drawn.add_row(*(Text(text) for text in row), style=None if row[2] == "default" else "bold")
    Console(file=out).print(drawn)


# --- Logging --------------------------------------------------------------------------------------------------------

_LOG_LEVELS: Final = {
    "off": logging.CRITICAL + 1,
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}


class _Handler(logging.Handler):
    """Writes to whatever `sys.stderr` is now, in the form and from the level that hold where the record was made."""

    def emit(self, record: logging.LogRecord) -> None:
        settings = current()
        if record.levelno < _LOG_LEVELS[settings.log]:
            return
        try:
            line = _json_line(record) if settings.log_format == "json" else f"[tiercel] {self.format(record)}"
            sys.stderr.write(line + "\n")
        except Exception:  # noqa: BLE001 - as logging's own handlers: a broken log never breaks the program
            self.handleError(record)


def _json_line(record: logging.LogRecord) -> str:
    import json
    from datetime import UTC, datetime

    fields: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    # `logger.info("...", extra={"fields": {"pc": 10}})` is how the parts of a line reach its JSON form.
    extra = getattr(record, "fields", None)
    if isinstance(extra, Mapping):
        fields.update({str(k): v for k, v in extra.items() if k not in fields})
    if record.exc_info:
        fields["exception"] = logging.Formatter().formatException(record.exc_info)
    return json.dumps(fields, default=str, ensure_ascii=False)


class _Logging:
    """Attaches our handler while some layer wants log lines, and puts the logger's level back afterwards."""

    def __init__(self) -> None:
        self.handler = _Handler()
        self.process = "off"
        self.blocks: list[str] = []
        self.level_before: int | None = None

    def update(self, process: str) -> None:
        self.process = process
        self._apply()

    def open_block(self, level: str) -> None:
        with _lock:
            self.blocks.append(level)
            self._apply()

    def close_block(self, level: str) -> None:
        with _lock:
            # A forked child or a block left in another context may have nothing to take back.
            with contextlib.suppress(ValueError):
                self.blocks.remove(level)
            self._apply()

    def _apply(self) -> None:
        wanted = min(_LOG_LEVELS[level] for level in [self.process, *self.blocks])
        if wanted > logging.CRITICAL:
            if self.level_before is not None:
                logger.removeHandler(self.handler)
                logger.setLevel(self.level_before)
                self.level_before = None
            return
        if self.level_before is None:
            self.level_before = logger.level
            logger.addHandler(self.handler)
        # A user's own, more talkative level stays.
        before = self.level_before
        logger.setLevel(min(wanted, before) if before else wanted)


_logging: Final = _Logging()


def _after_fork() -> None:
    # Another thread of the parent may have held it.
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
