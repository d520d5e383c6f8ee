"""The dispatcher: runs decoded functions on an explicit stack of frames.

In: a `Decoded`, its arguments and cells. Out: the result, or the user's exception with the user's traceback.

A frame is a list `R` (see `layout`). Blocks run in turn, each telling the next one's number. A `Call` whose callee is
captured pushes a frame here, so Python's stack does not grow; an exception walks these frames, and each that it leaves
gets the traceback entry Python would have given it. The handler of a `Try` runs in a nested dispatcher inside a Python
`except` block, so that `sys.exc_info()`, `__context__` and a bare `raise` mean what they mean in Python.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import perf_counter_ns
from types import CellType, FrameType, FunctionType
from typing import Any, Final, TypeAlias

from tiercel.errors import InternalError
from tiercel.interp.bind import binder
from tiercel.interp.decode import Decoded
from tiercel.interp.flow import TryRange
from tiercel.interp.hooks import NO_HOOKS, Callee, Hooks
from tiercel.interp.layout import CALL, LEAVE, RETURN, CounterLayout
from tiercel.interp.support import unbound_free, unbound_local
from tiercel.interp.tracebacks import block_of, hide, is_ours, set_traceback, trim, trim_error

__all__ = ["run", "run_prepared"]

# decoded, R, block to go on with, register for the result, instruction of the call, clock at entry
_Suspended: TypeAlias = tuple[Decoded, list[Any], int, int, int, int]

_CALLS: Final = CounterLayout.CALLS
_TIME: Final = CounterLayout.TIME
_TIMED: Final = CounterLayout.TIMED_CALLS
_ALWAYS_TIMED: Final = 16
# Until this many frames no question is asked about the recursion limit.
_UNCHECKED_DEPTH: Final = 40


class _NoContext:
    """The one instance says that no context is to be restored; None is a context too."""


_NO_CONTEXT: Final = _NoContext()
# As for `set_traceback`: a class may forbid assignment.
_set_context: Final = BaseException.__dict__["__context__"].__set__
# Instructions whose operands a note may name.
EXPLAINED: Final = frozenset({"CallOp", "Index", "SetItem", "StoreTensor", "Item", "BranchIf"})
# In place of a block number: an exception is on its way.
_RAISING: Final = -4


def run(
    decoded: Decoded,
    arguments: Sequence[Any],
    cells: Sequence[CellType] = (),
    *,
    hooks: Hooks = NO_HOOKS,
    start: int | None = None,
    registers: Sequence[Any] | None = None,
) -> Any:
    """Run a function.

    Args:
        decoded: what to run.
        arguments: the parameters, as `decoded.bind` returns them.
        cells: of its captured variables, in the order of `Function.free`.
        hooks: callbacks.
        start: instruction to begin at, any one; `registers` then holds every register.
        registers: register contents for `start`; `arguments` and `cells` are not looked at.

    Returns:
        What the function returns.

    Raises:
        Whatever the function raises.
    """
    if start is None:
        try:
            return run_prepared((decoded, tuple(cells), hooks), tuple(arguments))
        except BaseException as error:
            trim_error(error)
            raise
    if registers is None or len(registers) != decoded.function.registers:
        raise InternalError(
            f"entry at instruction {start} needs all {decoded.function.registers} registers, got "
            f"{0 if registers is None else len(registers)}",
            stage="interp",
        )
    arriving = len(decoded.function.parameters) + len(decoded.function.free)
    frame = [*registers, *decoded.tail_for(hooks)[decoded.function.registers - arriving :]]
    now = perf_counter_ns()
    for loop in decoded.flow.loops:
        if loop.start <= start <= loop.stop:
            frame[decoded.layout.timers + loop.loop] = now
    entering = [row for row in decoded.flow.tries if row.handler <= start < row.end]
    entering.sort(key=lambda row: row.handler - row.end)  # outermost first
    try:
        _execute(decoded, frame, decoded.entry(start), hooks, None, entering)
    except BaseException as error:
        trim_error(error)
        raise
    return frame[decoded.value_slot]


def run_prepared(prepared: tuple[Decoded, tuple[CellType, ...], Hooks], arguments: tuple[Any, ...]) -> Any:
    """Run a function from its beginning: `run` for those who call often.

    Args:
        prepared: what to run, its cells, the callbacks.
        arguments: the parameters, as `Decoded.bind` returns them.
    """
    decoded, cells, hooks = prepared
    frame = [*arguments, *cells, *decoded.tail_for(hooks)]
    counts = decoded.counts
    counts[_CALLS] += 1
    if hooks.on_entry is not None:
        hooks.on_entry(decoded, frame)
    began = perf_counter_ns()
    try:
        _execute(decoded, frame, 0, hooks, None, [])
    except BaseException as error:
        trim_error(error)
        raise
    counts[_TIME] += perf_counter_ns() - began
    counts[_TIMED] += 1
    return frame[decoded.value_slot]


def _execute(
    decoded: Decoded,
    frame: list[Any],
    block: int,
    hooks: Hooks,
    scope: TryRange | None,
    entering: list[TryRange],
) -> int:
    """Run from a block on until the frame returns or, with a `scope`, control leaves that handler.

    Args:
        decoded, frame, block: where to begin.
        hooks: callbacks.
        scope: the Try whose handler this dispatcher runs; the exception is being handled by our caller.
        entering: handlers, outermost first, that `block` lies in and that are yet to be entered.

    Returns:
        RETURN with the result in the frame's value slot, or the number of the block outside the scope to go on with.
    """
    table = decoded.table
    stack: list[_Suspended] = []
    limit = _UNCHECKED_DEPTH
    # The call the current frame is making, for exceptions that arise outside any block.
    site = 0
    began = 0
    raising: BaseException | None = None
    pending: BaseException | None
    # What `raising` had as `__context__`: raising it here must not change that, not even where it was None.
    context: BaseException | _NoContext | None = _NO_CONTEXT
    if entering:
        raising = frame[entering[0].exception]
        if not isinstance(raising, BaseException):
            raise InternalError("entry inside a handler whose exception is not in its register", stage="interp")
        context = raising.__context__
    while True:
        try:
            if raising is not None:
                # It comes from a handler. Raised here, outside that handler's `except` block, for the next one.
                pending, raising = raising, None
                raise pending
            while True:
                while block >= 0:
                    block = table[block](frame)
                if block == CALL:
                    slot = decoded.value_slot
                    callee, arguments, keywords, register, following, site = frame[slot]
                    frame[slot] = None
                    if len(stack) >= limit:
                        limit = _checked_depth(len(stack))
                    target: Decoded = callee.decoded
                    if callee.is_bound:
                        arguments = (callee.bound, *arguments)
                    if keywords or len(arguments) != target.arity:
                        arguments = _bind(callee, arguments, keywords or {})
                    suspended = (decoded, frame, following, register, site, began)
                    hooked = target.hooked
                    tail = hooked[1] if hooked[0] is hooks else target.tail_for(hooks)
                    # Ctrl-C may strike at any call: the frame is switched in one go, without one.
                    decoded, table, frame = target, target.table, [*arguments, *callee.cells, *tail]
                    block, site = 0, 0
                    stack += (suspended,)
                    del suspended
                    callee = arguments = keywords = None
                    counts = target.counts
                    calls = counts[_CALLS] = counts[_CALLS] + 1
                    if hooks.on_entry is not None:
                        hooks.on_entry(target, frame)
                    # Small helpers are called often: after the first few, one call in 16 is timed.
                    began = perf_counter_ns() if calls <= _ALWAYS_TIMED or not calls & 15 else 0
                elif block == RETURN:
                    if not stack:
                        return RETURN
                    if began:
                        decoded.counts[_TIME] += perf_counter_ns() - began
                        decoded.counts[_TIMED] += 1
                    value = frame[decoded.value_slot]
                    # Not `pop`: after a call Ctrl-C may strike, and the frame would be lost.
                    decoded, frame, block, register, site, began = stack[-1]
                    del stack[-1]
                    table = decoded.table
                    if register >= 0:
                        frame[register] = value
                    value = None
                elif block == LEAVE:
                    # Only a nested dispatcher runs a handler's blocks, and only with no frame above them.
                    return int(frame[decoded.value_slot])
                else:
                    raise InternalError(f"a block of {decoded!r} returned {block}", stage="interp")
        except BaseException as caught:
            pending = None
            if not isinstance(context, _NoContext):
                _set_context(caught, context)
                context = _NO_CONTEXT
            handler: TryRange | None
            if entering:
                handler, inner = entering[0], entering[1:]
                trim_error(caught)
                entering = []
            else:
                inner = entering
                place = decoded.block_start[block] if block >= 0 else site
                if block >= 0:
                    protect = decoded.block_try[block]
                else:
                    protect = -1 if block == RETURN else decoded.flow.protect[site]
                if _needs_entry(caught):
                    # Raised again from the place of the instruction: Python's way of making an entry. It is the
                    # exception being handled, so its context stays. Not in a function of ours: the entry's frame would
                    # keep that function's frame, and so the exception itself, alive.
                    frame[decoded.value_slot] = caught
                    try:
                        decoded.raiser(place)(frame)
                    except BaseException:  # noqa: BLE001 - it is `caught`
                        trim_error(caught)
                raising = _translate(caught, decoded)
                if raising is not None:
                    context = caught.__context__
                    continue
                while True:
                    handler = decoded.flow.tries[protect] if protect >= 0 else None
                    if handler is not None and scope is not None and not stack:
                        # The handler this dispatcher runs is all that it looks at.
                        handler = handler if scope.handler <= handler.index < scope.end else None
                    if handler is not None:
                        break
                    if scope is None or stack:
                        _drop_temporaries(decoded, frame, place)
                    if not stack:
                        break
                    place = -1
                    decoded, frame, _, _, site, began = stack[-1]
                    del stack[-1]
                    table = decoded.table
                    block = CALL
                    protect = decoded.flow.protect[site]
                    frame[decoded.value_slot] = caught
                    try:
                        decoded.raiser(site)(frame)
                    except BaseException:  # noqa: BLE001 - it is `caught`
                        trim_error(caught)
                if handler is None:
                    raise
                block = decoded.entry(handler.handler)
                frame[handler.exception] = caught
                for register in handler.clears:
                    frame[register] = None
            try:
                block = _execute(decoded, frame, block, hooks, handler, inner)
            except BaseException as second:  # noqa: BLE001 - it goes on to the next Try
                # Raised inside the handler, so what protects the handler protects it.
                raising, context = second, second.__context__
                block, site = _RAISING, handler.handler
        if scope is not None and not stack and block >= 0 and raising is None:
            # A handler inside our handler may have left both.
            if not scope.handler <= decoded.block_start[block] < scope.end:
                return block


def _needs_entry(error: BaseException) -> bool:
    """Cut our frames from a traceback; return whether the exception arose in the dispatcher, not in a user's frame.

    It arises there when a call does not bind, at the recursion limit, and when a signal strikes between two blocks; the
    signal's handler, if it is written in Python, then was called by the dispatcher.
    """
    traceback = error.__traceback__
    while traceback is not None and is_ours(traceback.tb_frame):
        traceback = traceback.tb_next
    set_traceback(error, trim(traceback, error))
    return traceback is None or (traceback.tb_frame.f_back is sys._getframe(1) and block_of(traceback.tb_frame) is None)


def _drop_temporaries(decoded: Decoded, frame: list[Any], place: int) -> None:
    """Drop what Python's stack holds when an exception leaves a frame, so that generators are closed there and then.

    The operands of an operator that failed stay, for the note that explains the error. Never the exception of a
    `raise`: it would hold itself, through its traceback.
    """
    kept: tuple[int, ...] = ()
    if place >= 0 and decoded.function.instructions[place].opcode in EXPLAINED:
        kept = decoded.function.instructions[place].registers_read()
    for register in decoded.flow.stored:
        if register not in kept:
            frame[register] = None


def _translate(error: BaseException, decoded: Decoded) -> BaseException | None:
    """Return Python's exception for reading an empty closure cell; None if it is something else."""
    if type(error) is not ValueError or error.args != ("Cell is empty",):
        return None
    entry = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    if entry is None:
        return None
    index = decoded.instruction_at(entry.tb_frame.f_code, entry.tb_lasti)
    ins = decoded.function.instructions[index] if index is not None else None
    if ins is None:
        return None
    if ins.opcode == "LoadCell":
        cell, name = ins.cell, ins.name
    elif ins.opcode == "CallOp" and ins.via is not None and ":" in ins.via:
        register, _, path = ins.via.partition(":")
        cell, name = int(register), path.partition(".")[0]
    else:
        return None
    first_free = len(decoded.function.parameters)
    is_free = first_free <= cell < first_free + len(decoded.function.free)
    if name.startswith("free:"):  # read inside of a comprehension, which has a frame of its own until 3.11
        name, is_free = name.removeprefix("free:"), True
    made = unbound_free(name) if is_free else unbound_local(name)
    return made.with_traceback(error.__traceback__)


def _bind(callee: Callee, arguments: Sequence[Any], keywords: dict[str, Any]) -> tuple[Any, ...]:
    """Return the parameters of a call that gives them by name, leaves defaults, or does not fit."""
    function: FunctionType | None = callee.function
    if function is None:
        return callee.decoded.bind(*arguments, **keywords)
    bind = binder(callee.decoded.bind_code, function.__defaults__, function.__kwdefaults__)
    return bind(*arguments, **keywords)


def _checked_depth(frames: int) -> int:
    """Return how many frames a dispatcher may stack under the recursion limit, if `frames` of them are allowed.

    Raises:
        RecursionError: they are not. Frames of Python and of all dispatchers below count alike.
    """
    below = 0
    python: FrameType | None = sys._getframe(1)
    own = python
    while python is not None:
        below += 1
        if python is not own and python.f_code is _execute.__code__:
            variables = python.f_locals
            below += len(variables["stack"])
            if type(variables) is dict:
                variables.clear()  # a snapshot that the frame keeps; it must not keep what the variables held
        python = python.f_back
    allowed = sys.getrecursionlimit() - below
    if frames >= allowed:
        raise RecursionError("maximum recursion depth exceeded")
    return allowed


# Our frames lie between a user's function and its caller: `warnings.warn(stacklevel=2)` must not count them.
run.__code__ = hide(run.__code__)
run_prepared.__code__ = hide(run_prepared.__code__)
_execute.__code__ = hide(_execute.__code__)
