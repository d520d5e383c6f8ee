"""The table of settings, and the immutable `Settings` object that holds a value for each row.

In: keyword arguments with any accepted spelling. Out: checked, normalised values by canonical name. The rows, the
attributes of `Settings` and the fields of `Policy` must agree; a test compares them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from tiercel.config import kinds
from tiercel.errors import ConfigError, UnknownSettingError, suggest

__all__ = ["ALIASES", "ROWS", "SETTINGS", "Level", "Policy", "Setting", "Settings", "canonical_name", "normalise"]

Level = Literal["O0", "O1", "O2"]


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
    kind: kinds.ValueKind
    default: Any
    env: tuple[str, ...]
    help: str


ROWS: Final = (
    Setting("level", kinds.LEVEL, "O2", ("TIERCEL_LEVEL", "TIERCEL_JIT_LEVEL"), "Highest tier a function may reach."),
    Setting("disable", kinds.BOOLEAN, False, ("TIERCEL_DISABLE",), "Make tc.jit return the function unchanged."),
    Setting(
        "threads",
        kinds.integer(1, 1024, optional=True),
        None,
        ("TIERCEL_NUM_THREADS", "TIERCEL_THREADS"),
        "Threads of one compiled call; automatic: what affinity, quota and OMP_NUM_THREADS allow.",
    ),
    Setting(
        "deterministic",
        kinds.BOOLEAN,
        False,
        ("TIERCEL_DETERMINISTIC",),
        "Same bits in every call: tier-up only in warm-up, no dependence on the number of threads.",
    ),
    Setting("strict", kinds.STRICT, False, ("TIERCEL_STRICT",), "Ledger kinds that are errors instead of entries."),
    Setting(
        "worker",
        kinds.choice("process", "thread", "off"),
        "process",
        ("TIERCEL_WORKER",),
        "Where compiling happens; off: everything stays interpreted.",
    ),
    Setting(
        "cache_dir", kinds.path("the platform's place"), None, ("TIERCEL_CACHE_DIR",), "Folder of the kernel cache."
    ),
    Setting(
        "cache_size",
        kinds.size(optional=False),
        512 << 20,
        ("TIERCEL_CACHE_SIZE",),
        "Upper bound of the cache on disk.",
    ),
    Setting(
        "memory_limit",
        kinds.size(optional=True),
        None,
        ("TIERCEL_MEMORY_LIMIT",),
        "Upper bound of arenas, packed weights and kernels together.",
    ),
    Setting(
        "hot_count", kinds.integer(1), 5, ("TIERCEL_HOT_COUNT",), "Entries (back edges count) before a region is hot."
    ),
    Setting(
        "hot_time_ms",
        kinds.number(0, "ms"),
        20.0,
        ("TIERCEL_HOT_TIME_MS",),
        "Total time a region must have taken, besides hot_count.",
    ),
    Setting(
        "hot_total_ms",
        kinds.number(0, "ms"),
        100.0,
        ("TIERCEL_HOT_TOTAL_MS",),
        "Total time after which a region is hot whatever its count.",
    ),
    Setting(
        "warmup_calls",
        kinds.integer(0),
        3,
        ("TIERCEL_WARMUP_CALLS",),
        "Entries that are only observed, for regions without loops.",
    ),
    Setting(
        "profile_first",
        kinds.integer(1, 1 << 16),
        8,
        ("TIERCEL_PROFILE_FIRST",),
        "Entries of a region that are all recorded in its profile.",
    ),
    Setting(
        "profile_sample",
        kinds.integer(0, 1 << 30, power_of_two=True),
        64,
        ("TIERCEL_PROFILE_SAMPLE",),
        "Later entries: one in this many is recorded; 0: none.",
    ),
    Setting(
        "demote_ratio",
        kinds.number(1, ""),
        1.1,
        ("TIERCEL_DEMOTE_RATIO",),
        "A kernel slower than the interpreter by this factor is taken out.",
    ),
    Setting(
        "demote_window",
        kinds.integer(1, 1 << 16),
        32,
        ("TIERCEL_DEMOTE_WINDOW",),
        "Entries whose median decides about taking a kernel out.",
    ),
    Setting(
        "tune",
        kinds.choice("off", "use", "on"),
        "on",
        ("TIERCEL_TUNE",),
        "Products of matrices: on measures which way is fastest here, use takes only what was measured earlier.",
    ),
    Setting(
        "tune_after_ms",
        kinds.number(0, "ms"),
        1000.0,
        ("TIERCEL_TUNE_AFTER_MS",),
        "Total time in a kernel before its products are measured.",
    ),
    Setting(
        "tune_budget_ms",
        kinds.number(0, "ms"),
        500.0,
        ("TIERCEL_TUNE_BUDGET_MS",),
        "Time for measuring the products of one kernel.",
    ),
    Setting(
        "tune_total_ms",
        kinds.number(0, "ms"),
        5000.0,
        ("TIERCEL_TUNE_TOTAL_MS",),
        "Time for measuring in one process; what takes longer stays as it is.",
    ),
    Setting(
        "log",
        kinds.choice("off", "error", "warning", "info", "debug"),
        "off",
        ("TIERCEL_LOG",),
        "Log lines written to stderr, from this level up.",
    ),
    Setting("log_format", kinds.choice("text", "json"), "text", ("TIERCEL_LOG_FORMAT",), "Form of the log lines."),
    Setting(
        "debug",
        kinds.integer(0, 5),
        0,
        ("TIERCEL_DEBUG",),
        "Cumulative: 1 names stages with times, 2 prints region graphs, 3 prepared ones and loops, 4 LLVM IR, 5 code.",
    ),
    Setting(
        "debug_filter",
        kinds.text_value(),
        "",
        ("TIERCEL_DEBUG_FILTER",),
        "Only functions whose name contains this are printed or dumped.",
    ),
    Setting(
        "dump_dir",
        kinds.path("no dumps"),
        None,
        ("TIERCEL_DUMP_DIR",),
        "Folder that gets every form a compile goes through.",
    ),
    Setting(
        "perf_map",
        kinds.BOOLEAN,
        False,
        ("TIERCEL_PERF_MAP",),
        "Name compiled code for Linux perf, in /tmp/perf-PID.map.",
    ),
    Setting(
        "gdb",
        kinds.BOOLEAN,
        False,
        ("TIERCEL_GDB",),
        "Register compiled code with debuggers (GDB's JIT interface): names, source line, unwinding.",
    ),
)

SETTINGS: Final[Mapping[str, Setting]] = {row.name: row for row in ROWS}

# Accepted spellings of a setting's name.
ALIASES: Final[Mapping[str, str]] = {"jit_level": "level", "num_threads": "threads"}


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
    tune: Literal["off", "use", "on"]
    tune_after_ms: float
    tune_budget_ms: float
    tune_total_ms: float
    log: Literal["off", "error", "warning", "info", "debug"]
    log_format: Literal["text", "json"]
    debug: int
    debug_filter: str
    dump_dir: str | None
    perf_map: bool
    gdb: bool

    def is_strict(self, kind: str) -> bool:
        """Whether a ledger entry of this kind is an error."""
        return self.strict if isinstance(self.strict, bool) else kind in self.strict

    def replace(self, **settings: Any) -> Settings:
        """Return a copy with some settings changed.

        Raises:
            UnknownSettingError, ConfigError: as for `set_context`.
        """
        return dataclasses.replace(self, **normalise(settings))

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
        return normalise({name: value for name, value in fields.items() if value is not None})

    def apply(self, settings: Settings) -> Settings:
        """Return `settings` with this policy's fields in place of its own."""
        given = self.given()
        return dataclasses.replace(settings, **given) if given else settings


def canonical_name(name: str) -> str:
    """Return the setting's name for an accepted spelling.

    Raises:
        UnknownSettingError: it is no setting.
    """
    known = ALIASES.get(name, name)
    if known not in SETTINGS:
        near = suggest(name, [*SETTINGS, *ALIASES])
        raise UnknownSettingError(
            f"there is no setting {name!r}{near}; tiercel.config.show() lists all of them", setting=name
        )
    return known


def normalise(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return checked and normalised values by canonical name.

    Raises:
        UnknownSettingError, ConfigError: a name is no setting, a value is not accepted, a setting is given twice.
    """
    result: dict[str, Any] = {}
    given: dict[str, str] = {}
    for name, value in settings.items():
        known = canonical_name(name)
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
