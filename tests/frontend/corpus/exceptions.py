"""`try`, `except`, `else`, `finally`, `raise`."""

import sys

import numpy as np

from tests.frontend.corpus.support import case, loud, ramp


class Odd(Exception):
    pass


class OddChild(Odd):
    pass


def boom(kind, *args):
    raise kind(*args)


ERRORS = [(None,), (ValueError,), (KeyError,), (Odd,), (OddChild,), (ZeroDivisionError,), (KeyboardInterrupt,)]


def _with_log(sets):
    return [([], *s) for s in sets]


@case(*_with_log(ERRORS))
def every_clause(log, kind):
    try:
        log.append("body")
        if kind:
            raise kind("x")
    except ValueError:
        log.append("ValueError")
    except (KeyError, Odd) as e:
        log.append(type(e).__name__)
        log.append(e.args)
    else:
        log.append("else")
    finally:
        log.append("finally")
    log.append("after")
    return log


@case(*_with_log(ERRORS))
def bare_except(log, kind):
    try:
        if kind:
            boom(kind, 1, 2)
    except:  # noqa: E722
        log.append("caught")
        raise
    return log


@case((1, 0), (1, 2), ("a", 1))
def division(a, b):
    try:
        return a / b
    except ZeroDivisionError:
        return "infinite"


@case((1, 0), (1, 2))
def finally_overrides_return(a, b):
    try:
        return a / b
    finally:
        return "finally"  # noqa: B012


@case(([], 0), ([], 1), ([], 2), ([], 3))
def finally_on_every_way_out(log, n):
    for i in range(4):
        try:
            log.append(i)
            if i == n:
                if n == 0:
                    continue
                if n == 1:
                    break
                if n == 2:
                    return log, i
                raise Odd(i)
        finally:
            log.append("finally")
        log.append("end of body")
    else:
        log.append("else")
    return log


@case(([], 0), ([], 1), ([], 2))
def break_in_finally(log, n):
    while True:
        try:
            if n == 0:
                raise Odd
            if n == 1:
                return "returned"
        finally:
            log.append("finally")
            break  # noqa: B012
    return log


@case(([],))
def continue_in_finally(log):
    for i in range(3):
        try:
            boom(Odd, i)
        finally:
            log.append(i)
            continue  # noqa: B012
    return log


@case(([], Odd), ([], ValueError), ([], None))
def nested(log, kind):
    try:
        try:
            if kind:
                raise kind("inner")
        except Odd as e:
            log.append("inner")
            raise KeyError("second") from e
        finally:
            log.append("inner finally")
    except (KeyError, ValueError) as e:
        log.append((type(e), str(e), type(e.__cause__), type(e.__context__)))
    finally:
        log.append("outer finally")
    return log


@case((0,), (1,), (2,))
def raise_forms(n):
    if n == 0:
        raise Odd
    if n == 1:
        raise Odd("x") from None
    raise Odd("y") from ValueError("cause")


@case((5,), (None,), (int,), ("x",))
def raise_what_is_no_exception(x):
    raise x


@case((5,), ("x",))
def bad_cause(x):
    raise Odd from x


@case()
def bare_raise_without_exception():
    raise  # noqa: PLE0704


@case(([], Odd), ([], None))
def implicit_context(log, kind):
    try:
        if kind:
            raise kind("first")
    except Odd:
        {}["missing"]
    return log


@case((Odd,), (5,), ((Odd, 5),), ((ValueError, (Odd,)),), ("x",))
def catching_what_is_no_class(kind):
    try:
        boom(Odd)
    except kind:
        return "caught"


@case((Odd,))
def name_is_deleted(kind):
    e = "before"
    try:
        raise kind
    except Odd as e:
        pass
    return e


@case((Odd,))
def name_is_deleted_after_an_error(kind):
    try:
        try:
            raise kind
        except Odd as e:
            raise ValueError("second")
    except ValueError as f:
        g = f
    try:
        return e
    except UnboundLocalError as h:
        return str(h), type(g)


@case((Odd,))
def name_can_be_rebound_and_deleted(kind):
    try:
        raise kind
    except Odd as e:
        e = 5
        del e
    return "fine"


@case((Odd,), (None,))
def exception_survives_in_another_name(kind):
    saved = None
    try:
        if kind:
            raise kind("x")
    except Odd as e:
        saved = e
    return saved


@case(([], 3))
def retry(log, n):
    attempts = 0
    while True:
        attempts += 1
        try:
            if attempts < n:
                raise Odd(attempts)
            return attempts
        except Odd as e:
            log.append(e.args[0])
            continue


@case(([],), native=False)
def exc_info(log):
    log.append(sys.exc_info()[0])
    try:
        raise Odd
    except Odd:
        log.append(sys.exc_info()[0])
        try:
            raise ValueError
        except ValueError:
            log.append(sys.exc_info()[0])
        log.append(sys.exc_info()[0])
    log.append(sys.exc_info()[0])
    return log


@case(([], 0), ([], 1))
def else_is_not_protected(log, n):
    try:
        try:
            pass
        except ValueError:
            log.append("wrong")
        else:
            if n:
                raise ValueError
    except ValueError:
        log.append("right")
    return log


@case((0,), (1,))
def reraise_keeps_the_traceback(n):
    try:
        boom(Odd, n)
    except Odd:
        if n:
            raise


@case((1,))
def reraise_by_name(n):
    try:
        boom(Odd, n)
    except Odd as e:
        raise e


@case(([], 1), ([], 0))
def return_value_is_evaluated_before_finally(log, n):
    x = [n]
    try:
        return x, x[0], n
    finally:
        x.append("late")
        n = 100
        log.append(n)


@case((0,), (1,), (2,))
def returns_in_clauses(n):
    try:
        if n:
            boom(Odd if n == 1 else ValueError)
    except Odd:
        return "odd"
    except ValueError:
        return "value"
    else:
        return "else"
    finally:
        n += 1


@case(([], 0), ([], 1))
def finally_with_inner_try(log, n):
    try:
        if n:
            raise Odd("first")
    finally:
        try:
            raise ValueError("cleanup")
        except ValueError:
            log.append("cleaned")
    return log


@case(([],))
def loop_inside_finally(log):
    try:
        raise Odd
    finally:
        for i in range(3):
            if i == 1:
                continue
            if i == 2:
                break
            log.append(i)


@case((ramp(3), ramp(4)))
def numpy_error_caught(a, b):
    try:
        return a + b
    except ValueError as e:
        return str(e)


@case((ramp(3, 4),))
def numpy_index_error(a):
    try:
        return a[5]
    except IndexError:
        return a[0]


@case((np.zeros(2),))
def warning_as_error_caught(a):
    try:
        return 1 / a
    except (RuntimeWarning, FloatingPointError) as e:
        return type(e), str(e)


@case(([],), native=False)
def exception_groups(log):
    try:
        raise ExceptionGroup("g", [ValueError(1), Odd(2), KeyError(3)])
    except* ValueError as e:
        log.append(e.exceptions[0].args)
    except* (Odd, KeyError) as e:
        log.append(len(e.exceptions))
    return log


@case(([], 0), ([], 1), ([], 2), native=False)
def exception_groups_in_a_loop(log, n):
    total = 0
    for i in range(3):
        try:
            total += i
            if i == n:
                raise ExceptionGroup("g", [Odd(i)])
            log.append(i)
        except* Odd:
            total += 100
        else:
            total += 1000
    return total, log


@case(loud(("a", 1, "bool")), loud("a"))
def error_in_condition(log, a):
    try:
        if a:
            log.append("then")
        while a:
            break
    except RuntimeError as e:
        log.append(str(e))
    return log


@case((3,), (0,))
def deep_reraise(n):
    try:
        if n == 0:
            raise Odd("bottom")
        deep_reraise.__wrapped__(n - 1) if hasattr(deep_reraise, "__wrapped__") else deep_reraise(n - 1)
    except Odd as e:
        if n == 2:
            raise ValueError(n) from e
        raise


@case((5,))
def assertion_error(x):
    try:
        assert x < 3, ("message", x)
    except AssertionError as e:
        return e.args


@case(([], 1), ([], 0))
def values_assigned_before_the_error_are_kept(log, n):
    x = "initial"
    try:
        x = "assigned"
        y = 1 / n
        x = "after"
    except ZeroDivisionError:
        return x
    return x, y


@case((0,), (1,))
def maybe_assigned_in_try(n):
    try:
        y = 1 / n
    except ZeroDivisionError:
        pass
    return y


@case(
    ([], 1),
)
def system_exit(log, n):
    try:
        raise SystemExit(n)
    except Exception:
        log.append("wrong")
    finally:
        log.append("finally")


@case(([],))
def finally_return_discards_the_error(log):
    for i in range(2):
        try:
            raise Odd(i)
        finally:
            if i:
                return log
            log.append(i)
            continue
