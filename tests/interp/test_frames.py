"""Frames: recursion, the recursion limit, interruption, threads, hooks, counters."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
import traceback
import weakref

import pytest

from tests.interp import functions as f
from tests.interp.harness import decoded_of, interpreted, on_callee
from tiercel.interp import Callee, Environment, Hooks, decode, run


def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)


def endless(n):
    return endless(n + 1)


def ping(n):
    return pong(n + 1)


def pong(n):
    return ping(n + 1)


def caught_endless(n):
    try:
        return endless(n)
    except RecursionError as error:
        return str(error)


def handler_recursion(n):
    try:
        raise ValueError
    except ValueError:
        return handler_recursion(n + 1)


def test_frames_take_no_python_stack():
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        assert interpreted(depth)(10_000) == 10_000
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("function", [endless, ping, handler_recursion])
def test_recursion_limit_is_python_s(function):
    with pytest.raises(RecursionError, match=r"^maximum recursion depth exceeded"):
        interpreted(function)(0)


def test_recursion_error_can_be_caught():
    assert interpreted(caught_endless)(0) == caught_endless(0)


def test_recursion_limit_counts_as_cpython_does():
    """The deepest frame is the one CPython reaches, give or take the frames of the test itself."""

    def reached(function):
        with pytest.raises(RecursionError) as caught:
            function(0)
        return len(traceback.extract_tb(caught.value.__traceback__))

    assert abs(reached(interpreted(endless)) - reached(endless)) < 25


def test_recursion_error_shows_the_user_s_frames():
    with pytest.raises(RecursionError) as caught:
        interpreted(endless)(0)
    names = {entry.name for entry in traceback.extract_tb(caught.value.__traceback__)[-100:]}
    assert names == {"endless"}


def spin(n, started):
    i = 0
    try:
        while i < n:
            i += 1
            if i == 1:
                started.set()
    except KeyboardInterrupt:
        return "interrupted"
    return "done"


def busy_calls(n, started):
    i = 0
    while i < n:
        i = one_more(i)
        if i == 1:
            started.set()
    return i


def one_more(i):
    return i + 1


def interrupted(function, delay):
    """Call a function and interrupt it once it is inside its loop: the result, or the KeyboardInterrupt it let out."""
    started = threading.Event()
    main = threading.main_thread().ident

    def interrupt():
        started.wait()
        time.sleep(delay)
        signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        return function(10**12, started)
    except KeyboardInterrupt as error:
        return error
    finally:
        thread.join()


@pytest.fixture
def interrupts():
    """SIGUSR1 interrupts as Ctrl-C does, if this CPython gets it right: in 3.13.0 loops are not covered by `try`."""
    if not hasattr(signal, "pthread_kill"):
        pytest.skip("needs signals to threads")

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        if interrupted(spin, 0.001) != "interrupted":
            pytest.skip("this CPython loses interrupts in loops itself")
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("interrupts")
def test_interruption_reaches_the_handler():
    function = interpreted(spin)
    for i in range(10):
        assert interrupted(function, i * 0.00013) == "interrupted"


@pytest.mark.usefixtures("interrupts")
def test_interruption_between_frames_leaves_whole_tracebacks():
    function = interpreted(busy_calls)
    for i in range(20):
        error = interrupted(function, i * 0.00013)
        names = [e.name for e in traceback.extract_tb(error.__traceback__) if "test_frames" in e.filename]
        names = [n for n in names if n not in ("interrupted", "interrupt", "set")]
        assert names in (["busy_calls"], ["busy_calls", "one_more"])


def test_threads_share_a_decoding():
    function = interpreted(f.nested_loops)
    expected = f.nested_loops(9)
    results = []

    def work():
        results.extend(function(9) for _ in range(200))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [expected] * 800


def test_threads_may_decode_entries_at_once():
    decoded = decode(decoded_of(f.nested_loops).program, environment=Environment(f.__dict__))
    count = len(decoded.function.instructions)
    numbers: list[list[int]] = []

    def work():
        numbers.append([decoded.entry(i) for i in range(count)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(n == numbers[0] for n in numbers)
    assert len(decoded.table) == len(decoded.block_start) == len(decoded.block_try)


def test_loops_are_counted():
    decoded = decode(decoded_of(f.nested_loops).program, environment=Environment(f.__dict__))
    run(decoded, (6,))
    outer, inner = decoded.counters.loops
    assert (outer.entries, outer.iterations) == (1, 6)
    assert inner.entries == 6
    assert outer.time_ns > 0
    assert inner.time_ns > 0
    assert decoded.counters.calls == 1
    assert decoded.times_ns[None] >= decoded.times_ns[0]


def test_while_loops_count_completed_passes():
    decoded = decode(decoded_of(f.while_else).program, environment=Environment(f.__dict__))
    run(decoded, (3,))
    assert (decoded.counters.loops[0].entries, decoded.counters.loops[0].iterations) == (1, 3)


def test_hooks_see_entries_regions_and_callees():
    seen = []

    def asked(target):
        seen.append(("callee", getattr(target, "__name__", None)))
        return on_callee(target)

    hooks = Hooks(
        on_callee=asked,
        on_region=lambda decoded, loop, frame: seen.append(("region", decoded.function.name, loop, frame[0])),
        on_entry=lambda decoded, frame: seen.append(("entry", decoded.function.name, frame[0])),
    )

    def counting(n):
        i = 0
        while i < n:
            i = one_more(i)
        return i

    decoded = decoded_of(counting)
    assert run(decoded, (2,), hooks=hooks) == 2
    assert seen == [
        ("entry", "counting", 2),
        ("region", "counting", 0, 2),
        ("callee", "one_more"),
        ("entry", "one_more", 0),
        ("callee", "one_more"),
        ("entry", "one_more", 1),
    ]


def test_a_table_entry_can_be_replaced():
    decoded = decode(decoded_of(f.nested_loops).program, environment=Environment(f.__dict__))
    loop = decoded.flow.loops[0]
    exit_block = decoded.entry(decoded.function.instructions[loop.start].exit)
    total = next(v.where for v in decoded.function.variables if v.name == "total")

    def compiled(frame):
        frame[total] = "from the kernel"
        return exit_block

    decoded.table[decoded.entry(loop.start)] = compiled
    assert run(decoded, (9,)) == "from the kernel"


def test_bound_callee_gets_its_object():
    def target(a, b):
        return a, b

    decoded = decoded_of(one_more)
    hooks = Hooks(on_callee=lambda c: Callee(decoded, (), 41, None, True) if c is target else None)

    def caller(g):
        return g()

    assert run(decoded_of(caller), (target,), hooks=hooks) == 42


class Payload(Exception):
    pass


def raise_in_helper(x):
    raise (Payload if x else ValueError)(x)


def caught_from_helper(x, seen):
    try:
        raise_in_helper(x)
    except Payload as error:
        seen.append(weakref.ref(error))
    return len(seen)


def caught_twice(x, seen):
    try:
        try:
            raise_in_helper(x)
        except Payload as error:
            seen.append(weakref.ref(error))
            raise_in_helper(0)
    except ValueError:
        pass
    return len(seen)


@pytest.mark.parametrize("function", [caught_from_helper, caught_twice])
@pytest.mark.parametrize("single_step", [False, True])
def test_a_handled_exception_is_gone_at_once(function, single_step):
    """No reference cycle through tracebacks and frames: what an exception holds is freed when CPython frees it."""
    runner = interpreted(function, single_step=single_step)
    seen = []
    gc.collect()
    gc.disable()
    try:
        runner(1, seen)
        assert seen[0]() is None
    finally:
        gc.enable()


def test_an_exception_that_left_is_gone_at_once():
    gc.collect()
    gc.disable()
    try:
        try:
            interpreted(raise_in_helper)(1)
        except Payload as error:
            reference = weakref.ref(error)
        assert reference() is None
    finally:
        gc.enable()
