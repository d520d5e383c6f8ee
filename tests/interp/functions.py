# ruff: noqa: B012, B030, B028, BLE001, PLE0643, PLE0704, RUF059, FURB171, F821, F841, SIM, RET, TRY, UP, C4, E711, E741, PIE, PERF, PLR
"""Functions whose control flow, exceptions and frames the interpreter must run as CPython does.

Each is captured and run on the interpreter beside the original. `events` records side effects in order.
"""

import dataclasses
import sys
import traceback
import warnings

import numpy as np


def handled(x):
    try:
        return 10 // x
    except ZeroDivisionError:
        return "zero"


def handled_name(x):
    try:
        y = [1, 2, 3][x]
    except IndexError as error:
        y = str(error)
    else:
        y += 1
    finally:
        z = x
    return y, z


def finally_runs(x, events):
    try:
        events.append("body")
        1 // x
    finally:
        events.append("finally")
    return events


def return_in_finally(x):
    try:
        return 1 // x
    finally:
        if x == 0:
            return "swallowed"


def nested_handlers(x, events):
    try:
        try:
            1 // x
        except ZeroDivisionError:
            events.append("inner")
            raise ValueError("from inner") from None
        finally:
            events.append("inner finally")
    except ValueError as error:
        events.append(repr(error.__context__))
        events.append(error.__suppress_context__)
    return events


def implicit_context(x):
    try:
        1 // x
    except ZeroDivisionError:
        {}["missing"]


def raise_from(x):
    try:
        1 // x
    except ZeroDivisionError as error:
        raise KeyError("key") from error


def reraise(x):
    try:
        1 // x
    except ZeroDivisionError:
        if x == 0:
            raise
    return x


def reraise_named(x):
    try:
        1 // x
    except ZeroDivisionError as error:
        raise error


def bare_raise_without_exception(x):
    raise


def exc_info_inside(x):
    before = sys.exc_info()[0]
    try:
        1 // x
    except ZeroDivisionError:
        inside = sys.exc_info()[0]
        try:
            {}[x]
        except KeyError:
            deeper = sys.exc_info()[0]
        after = sys.exc_info()[0]
        return before, inside, deeper, after
    return before, sys.exc_info()[0]


def formatted(x):
    try:
        1 // x
    except ZeroDivisionError:
        return traceback.format_exc().splitlines()[-1], len(traceback.format_exc().splitlines())


def loop_with_handlers(n):
    out = []
    for i in range(n):
        try:
            if i % 3 == 0:
                raise ValueError(i)
            if i % 3 == 1:
                continue
            if i > 7:
                break
            out.append(i)
        except ValueError as error:
            out.append(error.args)
            if i == 6:
                continue
        finally:
            out.append("f")
    else:
        out.append("else")
    return out


def except_in_loop_escapes(n):
    for i in range(n):
        try:
            raise KeyError(i)
        except KeyError:
            if i == 2:
                return i
            continue
    return None


def second_exception_caught_outside(x, events):
    try:
        try:
            1 // x
        except ZeroDivisionError:
            [][1]
    except IndexError as error:
        events.append(type(error.__context__).__name__)
        try:
            {}[events[0]]
        except KeyError as inner:
            events.append(type(inner.__context__).__name__)
    return events


def wrong_except_class(x):
    try:
        1 // x
    except "not a class":
        return 1


def catch_tuple(x):
    try:
        {}[x]
    except (ValueError, KeyError) as error:
        return error.args


def base_exceptions(kind):
    try:
        raise kind("stop")
    except Exception:
        return "exception"


def handler_name_is_deleted(x):
    error = 5
    try:
        1 // x
    except ZeroDivisionError as error:
        pass
    return error


def helper(x):
    return 10 // x


def calls_helper(x):
    a = helper(x)
    return a + 1


def helper_in_handler(x):
    try:
        return helper(x)
    except ZeroDivisionError:
        return helper(x + 1)


def deep_chain(x):
    return first(x) + 1


def first(x):
    y = second(x, 2)
    return y * 2


def second(x, k):
    return third(*(x,), k=k)


def third(x, *, k):
    return k // x


def wrong_arguments(x):
    return helper(x, x, x)


def wrong_keyword(x):
    return third(x, q=1)


def missing_keyword(x):
    return third(x)


def with_defaults(x, y=2, *rest, z=3, **more):
    return x, y, rest, z, sorted(more)


def calls_defaults(x):
    return (
        with_defaults(x),
        with_defaults(x, 5, 6, 7),
        with_defaults(x, z=1, w=2),
        with_defaults(*[x, 1], z=4, v=0),
        with_defaults(y=x, x=1),
    )


def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)


def is_even(n):
    return True if n == 0 else is_odd(n - 1)


def is_odd(n):
    return False if n == 0 else is_even(n - 1)


def recursion_through_handler(n):
    try:
        if n == 0:
            raise ValueError("bottom")
        return recursion_through_handler(n - 1)
    except ValueError:
        if n < 3:
            raise
        return n


def unbound(x):
    if x:
        y = 1
    return y


def unbound_in_loop(n):
    for i in range(n):
        last = i
    return last


def global_missing(x):
    return x + no_such_name


def attribute_missing(x):
    return x.no_such_attribute


def closure(x):
    total = 0

    def add(k):
        nonlocal total
        total += k
        return total

    for i in range(x):
        add(i)
    return total, add(1)


def late_closure(x):
    def read():
        return value

    if x:
        value = x
    return read()


def unpacking(x):
    a, (b, *c), d = x
    return a, b, c, d


def unpack_too_few(x):
    a, b, c = x
    return a


def while_else(n):
    out = []
    while n > 0:
        n -= 1
        if n == 7:
            break
        out.append(n)
    else:
        out.append("else")
    return out


def nested_loops(n):
    total = 0
    for i in range(n):
        for j in range(i):
            if j == 3:
                continue
            if i * j > 20:
                break
            total += i * j
        else:
            total += 100
    return total


def short_circuit(x, events):
    a = x and events.append("a")
    b = x or events.append("b")
    c = events.append("c") if x else events.append("d")
    return a, b, c, events


def inplace_aliasing(x):
    y = x
    y += 1
    z = x
    z = z + 1
    x[0] *= 3
    return x, y, z


def augmented_item_once(events):
    def key():
        events.append("key")
        return 0

    values = [1]
    values[key()] += 5
    return values, events


def slices(x):
    return x[1:], x[:, ::-1], x[..., 0], x[1:2, None], x[(0, 1)], x[-1]


def store_slices(x):
    x[1:] = 0
    x[:, 0] = x[:, 1]
    x[...] = x + 1
    return x


def comparisons(a, b):
    return a < b, a <= b, a == b, a != b, a is b, a is not b, not a, a in (b, 1), a not in (b,)


def chained(a, b, c):
    return a < b < c


def strings(x):
    return f"{x!r:>10}|{x}|{x!s:^6}|{{}}|{x:{10}}"


def displays(x):
    return [x, *x], (*x, 1), {1, *x}, {"a": 1, "b": x}, {}


def numpy_warning(x):
    return np.log(x) / x


def user_warning(x):
    warnings.warn("look at me", UserWarning)
    return x


def generator_closed_on_break(events):
    def numbers():
        try:
            yield 1
            yield 2
        finally:
            events.append("closed")

    for n in numbers():
        events.append(n)
        break
    events.append("after")
    return events


class Manager:
    def __init__(self, swallows, events):
        self.swallows = swallows
        self.events = events

    def __enter__(self):
        self.events.append("enter")
        return self

    def __exit__(self, kind, value, trace):
        self.events.append(kind.__name__ if kind else None)
        self.events.append(len(traceback.format_tb(trace)))
        return self.swallows


def context_manager(x, swallows, events):
    with Manager(swallows, events) as m, Manager(False, events):
        1 // x
    return events, m is not None


def no_context_manager(x):
    with x:
        pass


def half_a_context_manager(x):
    class_ = type("Half", (), {"__enter__": lambda self: self})
    with class_():
        return x


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    code: int


def frozen_exception(x):
    try:
        try:
            raise FrozenError(x)
        except FrozenError as error:
            if error.code:
                raise
            raise FrozenError(5) from error
    except KeyError:
        return
