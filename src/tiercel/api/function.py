"""The state of one jitted function: what it was made of, what it has become, what it has done.

In: a Python function and its own settings. Out: `JitFunction`, whose `public` is what users call. Capturing happens
when decorating (reading source is slow), decoding at the first call, everything else behind the call.

Invariant: whatever cannot be captured, or is looked at by a tracer, runs as the user's own function, unchanged.
"""

from __future__ import annotations

import inspect
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any, Final

from tiercel import config
from tiercel.api.captures import CalleeTable, Captured, capture, cells_of
from tiercel.api.notes import explain_error
from tiercel.api.process import register
from tiercel.api.wrapper import clone, make_wrapper, parameters_of, takes_fast
from tiercel.bytecode.program import Function, Program
from tiercel.errors import CaptureError, InternalError, TiercelPerformanceWarning
from tiercel.interp import Decoded, Hooks, hide, run_prepared, trim_error
from tiercel.values import DimSpec, TensorSpec, example
from tiercel.vm import machine
from tiercel.vm.build import builder
from tiercel.vm.dispatch import Builder, Tiers
from tiercel.vm.entry import MISS
from tiercel.vm.regions import LoopTiers, Surroundings, preparing

if TYPE_CHECKING:
    from tiercel.api.report import Report
    from tiercel.config import Policy, Settings

__all__ = ["JitFunction", "Programs", "Specs", "is_jitted", "state_of"]

Specs = Mapping[str, Any]

_UNWRAPPABLE: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_said_traced = False


class JitFunction:
    """One jitted function.

    Attributes:
        function: the user's function.
        given: the settings, hints and policy it was jitted with.
        public: the function that stands in for it.
        captured: its bytecode, or why there is none.
        settings: returns the settings in force, this function's own on top.
        has_own_settings: whether it has any.
        checker: checks arguments against the hints; None if there are none.
        python_calls: calls that ran as Python.
    """

    def __init__(
        self,
        function: Any,
        *,
        specs: Specs | None = None,
        policy: Policy | None = None,
        **settings: Any,
    ) -> None:
        self.function = function
        self.given = {k: v for k, v in {"specs": specs, "policy": policy, **settings}.items() if v is not None}
        self.specs = specs
        self.has_own_settings = bool(settings or policy)
        self.settings: Callable[[], Settings] = config.overrides(policy=policy, **settings)
        self.python_calls = 0
        self.checker: Any = None
        self.captured = self._capture()
        package = (getattr(function, "__module__", None) or "").partition(".")[0]
        self._callees = {strict: CalleeTable(package, self, strict=strict) for strict in (False, True)}
        around = _surroundings(self)
        self._hooks = {s: machine().hooks(table, self.settings, around) for s, table in self._callees.items()}
        self._decoded: dict[bool, tuple[Decoded, tuple[CellType, ...], Hooks]] = {}
        self.tiers = self._make_tiers()
        self.public: Any = self._make_public()
        register(self)
        if self.captured.program is not None:
            self._callees[False].capture_ahead(self.function, self.captured.program)

    # ---- making ------------------------------------------------------------------------------------------------------

    def _capture(self) -> Captured:
        function = self.function
        if not isinstance(function, FunctionType):
            name = getattr(function, "__qualname__", type(function).__name__)
            error = CaptureError(f"{name} is not written in Python, so there is no source to capture")
            return Captured(error=error)
        from tiercel.frontend.python import CaptureOptions
        from tiercel.values import specs_of

        checker = specs_of(function, self.specs)
        if not checker:
            return capture(function)
        self.checker = checker
        parameters = {p.name for p in parameters_of(function.__code__)}
        tokens = {path: token for path, token in checker.descriptors().items() if path in parameters}
        return capture(function, CaptureOptions(tokens=tokens, facts=checker.facts))

    def _make_tiers(self) -> Tiers | None:
        """What compiles the function when it is hot; None for what runs as Python."""
        program = self.captured.program
        if program is None or not isinstance(self.function, FunctionType):
            return None
        return Tiers(
            self.name,
            self.function,
            (program.functions[0], program.constants),
            self._traceable,
            self.settings,
            builder,
            # What has hints checks its arguments before anything runs.
            CellType(None) if self.checker is None and takes_fast(self.function) else None,
        )

    def _traceable(self, function: FunctionType) -> tuple[Function, Sequence[Any]] | None:
        """The bytecode of a function that compiled code may include, and its constants."""
        found = self._callees[False].program_of(function)
        return None if found is None else (found.functions[0], found.constants)

    def _make_public(self) -> FunctionType:
        function = self.function
        if isinstance(function, FunctionType) and function.__code__.co_flags & _UNWRAPPABLE:
            public = clone(function)
        else:
            runner = self.run if self.checker is None else self.run_checked
            fast = None if self.tiers is None else self.tiers.fast
            public = make_wrapper(function, enter=self.enter, run=runner, leave=self.leave, fast=fast, miss=MISS)
        attributes: dict[str, Any] = {
            "__tiercel__": self,
            "explain": self.explain,
            "program": self.program,
            "programs": Programs(self),
            "stats": self.stats,
            "wait": self.wait,
            "warmup": self.warmup,
        }
        public.__dict__.update(attributes)
        return public

    def say_reason(self) -> None:
        """Warn, at the user's line, that the function runs as Python."""
        error = self.captured.error
        if error is None:
            return
        self._warn(f"{self.name} runs as Python: {error.reason}", error.filename, error.line)

    def _warn(self, message: str, filename: str | None = None, line: int | None = None) -> None:
        code = getattr(self.function, "__code__", None)
        namespace = getattr(self.function, "__globals__", {})
        warnings.warn_explicit(
            message,
            TiercelPerformanceWarning,
            filename or (code.co_filename if code else "<unknown>"),
            line or (code.co_firstlineno if code else 1),
            getattr(self.function, "__module__", None) or "<unknown>",
            registry=namespace.setdefault("__warningregistry__", {}),
        )

    # ---- calling -----------------------------------------------------------------------------------------------------

    def enter(self) -> tuple[Decoded, tuple[CellType, ...], Hooks] | None:
        """Return what to run for a call that comes in now; None runs the user's function."""
        if self.captured.program is None:
            self._enter_python()
            return None
        if sys.gettrace() is not None or _is_monitored():
            self._enter_traced()
            return None
        settings = self.settings()
        forbids = settings.strict is not False and settings.is_strict("python")
        found = self._decoded.get(forbids)
        return found if found is not None else self._prepare(forbids)

    def run(self, prepared: tuple[Decoded, tuple[CellType, ...], Hooks], arguments: tuple[Any, ...]) -> Any:
        """Run what `enter` returned: compiled where it is, else interpreted."""
        assert self.tiers is not None
        return self.tiers.run(run_prepared, prepared, arguments)

    def run_checked(self, prepared: tuple[Decoded, tuple[CellType, ...], Hooks], arguments: tuple[Any, ...]) -> Any:
        """Run what `enter` returned, if the arguments keep the hints."""
        self.checker.check(arguments)
        return self.run(prepared, arguments)

    def leave(self, error: BaseException) -> None:
        """Cut our frames from the traceback of an exception that leaves the function, and say what it was about."""
        trim_error(error)
        explain_error(error)

    def _prepare(self, forbids: bool) -> tuple[Decoded, tuple[CellType, ...], Hooks] | None:
        """Decode. `forbids`: strict mode is on for what runs as Python. None if it cannot be decoded."""
        decoded = self.captured.decoded(self.function, strict=forbids)
        if decoded is None:
            self.say_reason()
            self._enter_python()
            return None
        names = [p.name for p in decoded.function.parameters]
        expected = [p.name for p in parameters_of(self.function.__code__)]
        if names != expected:
            raise InternalError(f"the program of {self.name} has parameters {names}, expected {expected}", stage="api")
        made = (decoded, cells_of(self.function, decoded), self._hooks[forbids])
        self._decoded[forbids] = made
        return made

    def _enter_python(self) -> None:
        error = self.captured.error
        assert error is not None
        filename = error.filename or ""
        settings = self.settings()
        account = machine().ledger
        reason = f"runs as Python: {error.reason}"
        if settings.strict:
            account.refuse(settings, "python", reason, function=self.name, filename=filename, line=error.line)
        self.python_calls += 1
        account.entry("python", reason, function=self.name, filename=filename, line=error.line).add()

    def _enter_traced(self) -> None:
        global _said_traced
        self.python_calls += 1
        code = self.function.__code__
        reason = "runs as Python: a tracer or debugger is active"
        account = machine().ledger
        account.entry("python", reason, function=self.name, filename=code.co_filename, line=code.co_firstlineno).add()
        if not _said_traced:
            _said_traced = True
            try:
                self._warn(f"{self.name} and other jitted functions run as Python while a tracer or debugger is active")
            except TiercelPerformanceWarning:
                pass  # a filter makes errors of warnings; running under coverage is none

    def decoded_as_callee(self, *, strict: bool, own: bool) -> Decoded | None:
        """Return the code to run as a frame of a jitted function; None if it must be called as Python.

        Args:
            strict: as the caller is.
            own: whether the caller is this function itself.
        """
        if self.checker is not None or (self.has_own_settings and not own):
            return None
        return self.captured.decoded(self.function, strict=strict)

    # ---- asking ------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The user's name of the function."""
        return getattr(self.function, "__qualname__", repr(self.function))

    @property
    def program(self) -> Program | None:
        """The bytecode; None if the function runs as Python."""
        return self.captured.program

    def own_decodings(self) -> list[Decoded]:
        """Return the decoded code of this function, which other function objects of the same code share."""
        return self.captured.all_decoded(self.function) if isinstance(self.function, FunctionType) else []

    def decodings(self) -> list[Decoded]:
        """Return all code this function has run, its own first, then that of captured callees."""
        own = self.own_decodings()
        found = {id(d): d for d in own}
        for table in self._callees.values():
            for entry in list(table.entries.values()):
                if entry.decoded is not None:
                    found.setdefault(id(entry.decoded), entry.decoded)
        return list(found.values())

    def explain(self) -> Report:
        """Return what ran where, and why."""
        from tiercel.api.report import report

        return report(self)

    def stats(self) -> dict[str, Any]:
        """Return counters: calls, how they ran, compiles, fallbacks."""
        from tiercel.api.report import statistics

        return statistics(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no compile of this function is pending.

        Returns:
            Whether none is pending; False after `timeout` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        if self.tiers is not None and not self.tiers.wait(timeout):
            return False
        settings = self.settings()
        return all(r.wait(settings, None if end is None else end - time.monotonic()) for r in self.regions())

    def regions(self) -> list[LoopTiers]:
        """Return the loops of this function and what it called that were looked at for compiling."""
        return [r for d in self.decodings() if d.watch is not None for r in list(d.watch.regions.values())]

    def warmup(self, *specs: Any, **keyword_specs: Any) -> None:
        """Compile the function for such arguments now, without waiting for heat, and wait until the code is in place.

        Why something was not compiled is in `explain()`.

        Args:
            specs: arrays, other arguments, or `tc.spec(...)` for arrays that need not exist yet: code is made for all
                sizes that the spec allows. With arguments that are no specs the function is called once, too. Without
                any the function is only decoded.
        """
        if self.captured.program is not None:
            self._prepare(False)
        given = [*specs, *keyword_specs.values()]
        if not given:
            return
        arguments, keywords = specs, keyword_specs
        if any(_is_spec(s) for s in given):
            sizes: dict[str, int] = {}
            arguments = tuple(example(s, sizes) if _is_spec(s) else s for s in specs)
            keywords = {k: example(s, sizes) if _is_spec(s) else s for k, s in keyword_specs.items()}
        bound = self._bound(arguments, keywords)
        reason = None if self.tiers is None else self.tiers.begin_to_prepare(bound)
        if not any(_is_spec(s) for s in given):
            # What cannot be compiled as a whole may have loops that can; their variables have values in a call only.
            token = preparing.set(bool(reason))
            try:
                for decoded in self.decodings() if reason else ():
                    decoded.look_for_loops()
                self.public(*specs, **keyword_specs)
            finally:
                preparing.reset(token)
        if self.tiers is not None:
            self.tiers.prepare(bound)

    def _bound(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments as the interpreter gets them: one for each parameter.

        Raises:
            TypeError: they do not fit the parameters.
        """
        bound = inspect.signature(self.function).bind(*arguments, **keywords)
        bound.apply_defaults()
        return tuple(bound.arguments.values())


def _surroundings(state: JitFunction) -> Surroundings:
    """What loops are compiled with. Code outlives jitted functions, so it must not keep the state alive."""
    table, reference = state._callees[False], weakref.ref(state)

    def program_of(function: FunctionType) -> tuple[Function, Sequence[Any]] | None:
        found = table.program_of(function)
        return None if found is None else (found.functions[0], found.constants)

    def whole() -> bool:
        alive = reference()
        tiers = None if alive is None else alive.tiers
        return tiers is not None and not tiers.refused

    def service() -> Builder:
        alive = reference()
        return builder() if alive is None or alive.tiers is None else alive.tiers.builder()

    return Surroundings(state.settings, program_of, service, whole, machine().ledger)


class Programs(Mapping[str, Program]):
    """The bytecode of a jitted function and of what it has called so far, by qualified name."""

    def __init__(self, owner: JitFunction) -> None:
        self._owner = owner

    def _all(self) -> dict[str, Program]:
        found: dict[str, Program] = {}
        if self._owner.program is not None:
            found[self._owner.name] = self._owner.program
        for decoded in self._owner.decodings():
            found.setdefault(decoded.function.qualname or decoded.function.name, decoded.program)
        return found

    def __getitem__(self, name: str) -> Program:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __str__(self) -> str:
        return "\n\n".join(str(p) for p in self._all().values())


def is_jitted(function: object) -> bool:
    """Whether a function is what `jit` returned (and not a copy of its attributes by `functools.wraps`)."""
    state = getattr(function, "__dict__", {}).get("__tiercel__")
    return isinstance(state, JitFunction) and state.public is function


def state_of(function: Any) -> JitFunction:
    """Return the state of a jitted function, method or partial.

    Raises:
        TypeError: it is none.
    """
    target = function
    while not is_jitted(target):
        following = getattr(target, "__func__", None) or getattr(target, "func", None)
        if following is None:
            raise TypeError(f"expected a function decorated with tc.jit, got {function!r}")
        target = following
    return target.__tiercel__  # type: ignore[no-any-return]


def _is_spec(value: object) -> bool:
    return isinstance(value, TensorSpec | DimSpec)


if sys.version_info >= (3, 12):
    _MONITORS: Final = (sys.monitoring.DEBUGGER_ID, sys.monitoring.COVERAGE_ID)

    def _is_monitored() -> bool:
        return any(sys.monitoring.get_tool(tool) is not None for tool in _MONITORS)

else:

    def _is_monitored() -> bool:
        return False


for _function in (JitFunction.run_checked, JitFunction.enter):
    _function.__code__ = hide(_function.__code__)
