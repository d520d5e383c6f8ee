"""What the frontend made of each Python function, kept per code object; and which callables run as frames.

In: function objects. Out: a `Captured` each (program and decoded code, or the reason why not), and `CalleeTable`, the
interpreter's `on_callee`.

A code object is captured once, however many function objects are made of it, and decoded once for each dictionary of
globals it runs in (kept there, as `__warningregistry__` is). Entries go when the code object goes.
"""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

import tiercel
from tiercel import config
from tiercel.bytecode.program import Program
from tiercel.errors import CaptureError
from tiercel.interp import Callee, Decoded, Environment, decode

if TYPE_CHECKING:
    from tiercel.frontend.python import CaptureOptions, Source

__all__ = ["CalleeTable", "Captured", "capture", "cells_of"]

# A pushed frame is invisible to whoever walks Python's frames, so functions that do so keep a frame of Python's. (What
# the frontend finds by itself runs as Python anyway; these are names it may not be able to resolve.)
_FRAME_READERS: Final = frozenset(
    {
        *("warn", "warn_explicit", "stacklevel", "findCaller"),
        *("_getframe", "_getframemodulename", "_current_frames", "currentframe", "settrace", "setprofile"),
        *("extract_stack", "format_stack", "print_stack", "walk_stack", "getouterframes", "getinnerframes"),
    }
)
# How many callees are captured when a function is decorated; the others are when they are first called.
_MAX_AHEAD: Final = 64
_NOT_A_FUNCTION: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@dataclass(slots=True, weakref_slot=True, eq=False)
class Captured:
    """What became of one code object. It does not hold that code object, so that both go when the function goes.

    Attributes:
        program: its bytecode; None if it runs as Python.
        error: why it runs as Python; None if it does not.
        reasons: what inside it runs as Python, as the frontend lists it.
    """

    program: Program | None = None
    error: CaptureError | None = None
    reasons: tuple[Any, ...] = ()
    _nested: dict[int, Source] = field(default_factory=dict)

    def decoded(self, function: FunctionType, *, strict: bool = False) -> Decoded | None:
        """Return the program decoded for the globals of a function object of this code; None if it runs as Python."""
        if self.program is None:
            return None
        try:
            return _decodings_in(function.__globals__).get(function, self.program, strict=strict)
        except Exception as error:
            if config.current().debug:
                raise
            self.program, self.error = None, _bug(function, "decoded", error)
            return None

    def all_decoded(self, function: FunctionType) -> list[Decoded]:
        """Return every decoding of a function there is, for counters."""
        return [] if self.program is None else _decodings_in(function.__globals__).all(function, self.program)


class _Decodings:
    """Decoded code that runs in one dictionary of globals. Lives in that dictionary, which its environments refer to.

    Anywhere else it would keep the globals, and so the functions and their code, alive for ever.
    """

    def __init__(self) -> None:
        self._decoded: dict[int, dict[tuple[int, bool], Decoded]] = {}
        self._codes: dict[int, weakref.ref[CodeType]] = {}

    def get(self, function: FunctionType, program: Program, *, strict: bool) -> Decoded:
        """Return the decoding of a program for a function object."""
        code, key = function.__code__, (id(program), strict)
        found = self._decoded.get(id(code), {}).get(key)
        if found is not None:
            return found
        with _lock:
            if id(code) not in self._codes:
                number = id(code)
                self._codes[number] = weakref.ref(code, lambda _: self._forget(number))
            known = self._decoded.setdefault(id(code), {})
            if key not in known:
                environment = Environment(function.__globals__, function.__module__)
                known[key] = decode(program, environment=environment, strict=strict)
            return known[key]

    def all(self, function: FunctionType, program: Program) -> list[Decoded]:
        """Return the decodings of a program for a function's code."""
        return [d for d in self._decoded.get(id(function.__code__), {}).values() if d.program is program]

    def _forget(self, number: int) -> None:
        self._decoded.pop(number, None)
        self._codes.pop(number, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Decodings, ()  # whoever copies or pickles a module's globals gets an empty one


_KEY: Final = "__tiercel_decodings__"


def _decodings_in(namespace: dict[str, Any]) -> _Decodings:
    found = namespace.get(_KEY)
    return found if type(found) is _Decodings else namespace.setdefault(_KEY, _Decodings())


_captured: dict[int, tuple[weakref.ref[CodeType], Captured]] = {}
# By id of the code object of a function inside a captured one: what was captured, which knows its source.
_around: dict[int, tuple[weakref.ref[CodeType], weakref.ref[Captured]]] = {}
_lock = threading.RLock()


def _after_fork() -> None:
    # Another thread of the parent may have held it.
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def capture(function: FunctionType, options: CaptureOptions | None = None) -> Captured:
    """Return what the frontend makes of a function; it is asked once per code object unless there are `options`.

    Args:
        function: a Python function.
        options: for the frontend, such as declared tokens; the result is then the caller's own.
    """
    # Made now, when decorating, so that the globals do not grow at a call: somebody might be iterating over them.
    _decodings_in(function.__globals__)
    code = function.__code__
    if options is not None:
        return _capture(function, options)
    known = _captured.get(id(code))
    if known is not None and known[0]() is code:
        return known[1]
    with _lock:
        known = _captured.get(id(code))
        if known is not None and known[0]() is code:
            return known[1]
        made = _capture(function, None)
        _remember(_captured, code, made)
        return made


def _remember(where: dict[int, tuple[weakref.ref[CodeType], Any]], code: CodeType, value: Any) -> None:
    """Keep a value for a code object until that goes. By identity: equal code objects may come from different files."""
    key = id(code)

    def forget(reference: weakref.ref[CodeType]) -> None:
        if where.get(key, (None,))[0] is reference:
            del where[key]

    where[key] = (weakref.ref(code, forget), value)


def _capture(function: FunctionType, options: CaptureOptions | None) -> Captured:
    from tiercel.frontend.python import capture as capture_source

    code = function.__code__
    try:
        found = capture_source(function, options=options, source=_source_of(code))
    except CaptureError as error:
        return Captured(error=error.with_traceback(None))
    except Exception as error:
        if config.current().debug:
            raise
        return Captured(error=_bug(function, "captured", error))
    made = Captured(found.program, reasons=tuple(found.reasons))
    for nested, source in found.nested.items():
        made._nested[id(nested)] = source
        _remember(_around, nested, weakref.ref(made))
    return made


def _source_of(code: CodeType) -> Source | None:
    known = _around.get(id(code))
    if known is None or known[0]() is not code:
        return None
    around = known[1]()
    return None if around is None else around._nested.get(id(code))


def _bug(function: FunctionType, what: str, error: Exception) -> CaptureError:
    """Return the reason of a function that runs as Python because of a mistake of ours."""
    code = function.__code__
    return CaptureError(
        f"it could not be {what} ({type(error).__name__}: {error}); this is a bug in Tiercel, please report it "
        "(TIERCEL_DEBUG=1 raises the error itself)",
        filename=code.co_filename,
        line=code.co_firstlineno,
    )


def cells_of(function: FunctionType, decoded: Decoded) -> tuple[CellType, ...]:
    """Return the closure cells of a function object in the order in which its program takes them."""
    free = decoded.function.free
    if not free:
        return ()
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return tuple(cells[name] for name in free)


class _Entry:
    """What is known of one code object as a callee: its decoding for some globals, or that it is refused."""

    __slots__ = ("callee", "code", "decoded", "function", "globals", "tiers")

    def __init__(self, code: CodeType, namespace: dict[str, Any], decoded: Decoded | None, tiers: Any = None) -> None:
        self.tiers = tiers  # of a jitted function: once compiled it is called from outside, not run as a frame
        self.code = code
        self.globals = namespace
        self.decoded = decoded
        # The answer about the last function object seen: module-level functions are asked about again and again.
        self.function: FunctionType | None = None
        self.callee: Callee | None = None


class CalleeTable:
    """Decides which callables run as frames: the interpreter's `on_callee`.

    Captured are plain Python functions and methods of the user's own code, jitted functions without settings of their
    own, and objects whose class defines `__call__` in Python. The standard library and installed packages run as
    Python, except the package that the jitted function itself is in.

    Args:
        package: top-level package of the jitted function.
        owner: state of the jitted function, whose settings hold for its calls of itself.
        strict: whether callees must not run anything as Python.
    """

    def __init__(self, package: str, owner: object = None, *, strict: bool = False) -> None:
        self.package = package
        # Weakly: code outlives jitted functions and remembers the callbacks it last ran under.
        self.owner = None if owner is None else weakref.ref(owner)
        self.strict = strict
        self.entries: dict[int, _Entry] = {}

    def __call__(self, target: object) -> Callee | None:
        cls = type(target)
        if cls is FunctionType:
            return self._function(target)  # type: ignore[arg-type]
        if cls is MethodType:
            function: Any = target.__func__  # type: ignore[attr-defined]
            if type(function) is not FunctionType:
                return None
            return _bind(self._function(function), target.__self__)  # type: ignore[attr-defined]
        if cls is BuiltinFunctionType or cls is type:
            return None
        if isinstance(target, type):
            return None  # making an object
        # As Python looks it up; `getattr` would not tell a static `__call__`, which takes no object.
        function = next((vars(c)["__call__"] for c in cls.__mro__ if "__call__" in vars(c)), None)
        if type(function) is FunctionType:
            name = function.__dict__.get("__tiercel_cell__")
            if name is not None:
                # The `__call__` that a Cell class was given does nothing but call this method.
                method = getattr(target, name, None)
                return self(method) if type(method) in (MethodType, FunctionType) else None
            return _bind(self._function(function), target)
        return None

    def _function(self, function: FunctionType) -> Callee | None:
        code = function.__code__
        entry = self.entries.get(id(code))
        if entry is None or entry.code is not code or entry.globals is not function.__globals__:
            entry = self._learn(function)
        if entry.decoded is None or (entry.tiers is not None and entry.tiers.entries):
            return None
        if entry.function is function:
            return entry.callee
        jitted = _state(function)
        actual = function if jitted is None else jitted.function
        callee = Callee(entry.decoded, cells_of(actual, entry.decoded), None, actual)
        if not function.__code__.co_freevars:
            entry.callee = callee
            entry.function = function
        return callee

    def _learn(self, function: FunctionType) -> _Entry:
        code = function.__code__
        tiers = getattr(_state(function), "tiers", None)
        made = _Entry(code, function.__globals__, self._decode(function), tiers)
        self.entries[id(code)] = made
        return made

    def _decode(self, function: FunctionType) -> Decoded | None:
        jitted = _state(function)
        if jitted is not None:
            own = self.owner is not None and jitted is self.owner()
            return jitted.decoded_as_callee(strict=self.strict, own=own)  # type: ignore[no-any-return]
        if not self.is_capturable(function):
            return None
        captured = capture(function)
        return captured.decoded(function, strict=self.strict)

    def program_of(self, function: FunctionType) -> Program | None:
        """The bytecode of a function that may be compiled into its caller; None if it runs as Python."""
        jitted = _state(function)
        if jitted is not None:
            return jitted.captured.program  # type: ignore[no-any-return]
        return capture(function).program if self.is_capturable(function) else None

    def capture_ahead(self, function: FunctionType, program: Program) -> None:
        """Capture the callees whose names are known already, and theirs, so that the first call need not."""
        seen = {id(function.__code__)}
        queue: list[tuple[FunctionType, Program]] = [(function, program)]
        while queue and len(seen) < _MAX_AHEAD:
            caller, its_program = queue.pop()
            for target in _named_callees(caller, its_program):
                code = target.__code__
                if id(code) in seen or _state(target) is not None or not self.is_capturable(target):
                    continue
                seen.add(id(code))
                captured = capture(target)
                if captured.program is not None:
                    queue.append((target, captured.program))

    def is_capturable(self, function: FunctionType) -> bool:
        """Whether a plain function is the user's and may run as a frame."""
        code = function.__code__
        if code.co_flags & _NOT_A_FUNCTION or not _FRAME_READERS.isdisjoint(code.co_names):
            return False
        module = function.__module__ or ""
        if module.partition(".")[0] == self.package or module.startswith("tiercel.nn"):
            return True
        return not _is_installed(code.co_filename)


def _named_callees(function: FunctionType, program: Program) -> Iterator[FunctionType]:
    """Return the Python functions that a program's calls name as globals or closure variables."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for body in program.functions:
        named: dict[int, Any] = {}
        for ins in body.instructions:
            if ins.opcode == "LoadGlobal":
                named[ins.dst] = function.__globals__.get(ins.name)
            elif ins.opcode == "LoadCell" and ins.name in cells:
                try:
                    named[ins.dst] = cells[ins.name].cell_contents
                except ValueError:
                    continue  # not assigned yet
            elif ins.opcode == "Call" and type(named.get(ins.callee)) is FunctionType:
                yield named[ins.callee]


def _state(function: FunctionType) -> Any:
    # `functools.wraps` copies attributes, so having one is not enough.
    state = function.__dict__.get("__tiercel__")
    return state if state is not None and state.public is function else None


def _bind(callee: Callee | None, owner: Any) -> Callee | None:
    if callee is None:
        return None
    return Callee(callee.decoded, callee.cells, owner, callee.function, True)


def _installed_paths() -> tuple[str, ...]:
    found = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {os.path.join(p, "") for p in sys.path if p.endswith(("site-packages", "dist-packages"))}
    paths = {os.path.join(os.path.realpath(p), "") for p in found if p} | {os.path.join(p, "") for p in found if p}
    return (*sorted(paths), os.path.dirname(os.path.abspath(tiercel.__file__)) + os.sep, "<")


_INSTALLED: tuple[str, ...] = ()
_FILES: dict[str, bool] = {}


def _is_installed(filename: str) -> bool:
    """Whether a file belongs to the standard library, an installed package or this one, or is no file at all."""
    global _INSTALLED
    found = _FILES.get(filename)
    if found is None:
        _INSTALLED = _INSTALLED or _installed_paths()
        # Notebook cells and interactive input have names like files without being any; they are the user's.
        found = filename.startswith(_INSTALLED) and not filename.startswith(("<ipython", "<stdin", "<doctest"))
        _FILES[filename] = found
    return found
