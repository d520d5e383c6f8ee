"""`with`."""

import contextlib
import warnings

import numpy as np

from tests.frontend.corpus.support import case, loud, ramp


class OnInstance:
    """Special methods are looked up on the type, so these do not count."""

    def __init__(self):
        self.__enter__ = lambda: 1
        self.__exit__ = lambda *a: None


class NoExit:
    def __enter__(self):
        return self


class Swallows:
    def __init__(self, log, result):
        self.log = log
        self.result = result

    def __enter__(self):
        self.log.append("enter")
        return self.log

    def __exit__(self, kind, value, traceback):
        self.log.append((kind, str(value), traceback is None))
        return self.result


class FailsIn:
    def __init__(self, where):
        self.where = where

    def __enter__(self):
        if self.where == "enter":
            raise ValueError("enter")
        return self

    def __exit__(self, *args):
        if self.where == "exit":
            raise KeyError("exit")


@contextlib.contextmanager
def recorded(log, name):
    log.append(f"enter {name}")
    try:
        yield name
    finally:
        log.append(f"exit {name}")


@case(loud("m"), loud(("m", 1, "enter")), loud(("m", 1, "exit None None False")))
def simple(log, m):
    with m:
        log.append("body")
    log.append("after")
    return log


@case(loud("m"), loud("swallow"))
def body_raises(log, m):
    with m as v:
        log.append(v)
        raise ValueError("body")
    log.append("after")
    return log


@case(loud("a", "b"), loud("a", "swallow b"), loud("swallow a", "b"), loud("a", ("b", 1, "enter")))
def two_managers(log, a, b):
    with a as x, b as y:
        log.append((x, y))
        raise KeyError(x)
    return log


@case(loud("m"))
def leaves_by_return(log, m):
    with m as v:
        return v, len(log)


@case(loud("m"))
def leaves_by_break_and_continue(log, m):
    for i in range(4):
        with m:
            if i == 1:
                continue
            if i == 2:
                break
        log.append(i)
    return log


@case(loud("m", "n"))
def nested_with_return(log, m, n):
    with m:
        with n:
            try:
                return "value"
            finally:
                log.append("finally")


@case((OnInstance(),), (NoExit(),), (5,), (None,))
def not_a_manager(m):
    with m:
        return "entered"


@case(([], None), ([], True), ([], 0), ([], [1]), native=False)
def swallowing(log, result):
    with Swallows(log, result) as same:
        same.append("body")
        raise ValueError("x")
    return log


@case(("enter",), ("exit",), ("none",), native=False)
def manager_fails(where):
    with FailsIn(where) as m:
        return m.where


@case(("exit",), ("none",), native=False)
def manager_fails_after_the_body(where):
    with FailsIn(where):
        raise ValueError("body")


@case(([],))
def generator_managers(log):
    with recorded(log, "a") as a, recorded(log, "b"):
        log.append(a)
    return log


@case(([],))
def generator_manager_sees_the_error(log):
    try:
        with recorded(log, "a"):
            raise KeyError("k")
    except KeyError as e:
        log.append(e.args)
    return log


@case((loud("m")))
def target_in_with(log, m):
    x = [0]
    with m as x[0]:
        log.append(x[0])
    return x


@case((loud(("m", (1, 2)))))
def tuple_target(log, m):
    with m as (a, b):
        log.append((a, b))
    return a + b


@case((loud("m")))
def target_fails(log, m):
    with m as (a, b):
        log.append("never")


@case((ramp(3),), (np.array([0.0, 1.0]),), native=False)
def errstate(x):
    with np.errstate(divide="ignore", invalid="ignore"):
        y = 1 / (x - x)
    return y


@case((np.array([0.0, 1.0]),), native=False)
def errstate_raise(x):
    with np.errstate(all="raise"):
        return 1 / x


@case((np.array([0.0, 1.0]),), native=False)
def suppress(x):
    with contextlib.suppress(KeyError), contextlib.suppress(ValueError, FloatingPointError):
        x[0] = 5
        raise ValueError("gone")
    return x


@case((1,), native=False)
def catch_warnings(x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("inside")
    return [str(w.message) for w in caught], x


@case(loud("m"), loud(("m", 1, "enter")))
def assigned_inside(log, m):
    with m:
        y = 1
        z = y
    return y, z


@case(loud("swallow"), loud("m"))
def maybe_assigned_inside(log, m):
    with m:
        log.append("x")
        raise ValueError
        y = 1
    return y


@case(([],), native=False)
def exit_stack(log):
    with contextlib.ExitStack() as stack:
        for i in range(3):
            stack.enter_context(recorded(log, i))
        log.append("body")
    return log


# fmt: off
@case(loud("a", "b"))
def parenthesised(log, a, b):
    with (
        a as x,
        b,
    ):
        log.append(x)
    return log
# fmt: on
