"""Branches, truth, short circuits."""

import numpy as np

from tests.frontend.corpus.support import case, loud, ramp, unary

VALUES = [(0, 1), (1, 0), ([], "x"), ("", None), (0.0, -0.0), (None, ()), (np.float32(0), 3), (ramp(1), 2)]


@case(*VALUES)
def both(a, b):
    return a and b


@case(*VALUES)
def either(a, b):
    return a or b


@case(*VALUES)
def negated(a, b):
    return not a, not (a and b), not not b


@case(*[(x, y, z) for x in (0, 1) for y in (0, 2) for z in (0, 3)])
def nested_bool(a, b, c):
    return (a and b) or c, a and (b or c), (a or b) and c, not (a or b) and c, a or b or c, a and b and c


def _louds():
    return [loud(("a", x), ("b", y), ("c", z)) for x in (0, 1) for y in (0, 1) for z in (0, 1)]


@case(*_louds())
def truth_is_tested_once(log, a, b, c):
    r = (a and b) or c
    s = a or (b and c)
    t = (a or b) and c
    return r, s, t


@case(*_louds())
def truth_in_conditions(log, a, b, c):
    if (a and b) or c:
        log.append("then")
    else:
        log.append("else")
    if not (a or b):
        log.append("neither")
    if a if b else c:
        log.append("picked")
    while a and not b:
        log.append("loop")
        a = b
    return None


@case(*_louds())
def values_of_negations(log, a, b, c):
    return not (a and b), not (a or b or c), (not a) and b


@case((1, 2, 3), (3, 2, 1), (1, 1, 1), (2, 3, 3))
def chained(a, b, c):
    return a < b < c, a < b <= c, a == b == c, a < b > c != a


@case(loud("a", "b", "c"), loud(("a", 0), "b", "c"), loud("a", ("b", 0), "c"))
def chained_order(log, a, b, c):
    return a < b < c


@case(loud("a", "b", "c"), loud(("a", 0), "b", "c"), loud("a", ("b", 0), "c"))
def chained_as_condition(log, a, b, c):
    if a < b < c:
        return "yes"
    return "no"


@case(loud("a", "b", "c"), loud(("a", 0), "b", "c"))
def chained_within_bool(log, a, b, c):
    return (a < b < c) or c


@case((1,), (-1,), (0,))
def if_elif_else(x):
    if x > 0:
        r = "positive"
    elif x < 0:
        r = "negative"
    else:
        r = "zero"
    return r


@case((1,), (0,), (None,))
def early_return(x):
    if x is None:
        return None
    if not x:
        return "empty"
    return x


@case((1, 2), (0, 2), (0, 0))
def conditional_expression(a, b):
    return a if a else b if b else "none"


@case((3,), (-3,), (ramp(3),))
def conditional_stores(x):
    y = x if isinstance(x, int) and x > 0 else -x
    x = y if y is not x else None
    return x, y


@case(*unary((3, 4), (0, 4), (1, 1)))
def array_truth(a):
    if a.sum() > 0:
        return a
    return -a


@case((ramp(3),), (ramp(1),), (ramp(0),))
def ambiguous_truth(a):
    if a > 0:
        return 1
    return 2


@case((ramp(3),), (ramp(1),))
def ambiguous_truth_in_and(a):
    return a > 0 and a < 5


@case((1, [1, 2]), (3, [1, 2]), (1, {1: 2}), ("a", "abc"), (1, 5))
def membership(a, b):
    return a in b, a not in b


@case((None, None), (1, 1), (1, 1.0), ("a", "a"))
def identity(a, b):
    return a is b, a is not b, a is None


@case((5,))
def constant_conditions(x):
    if True:
        x += 1
    if 0:
        x += 100
    elif 1:
        x += 10
    while False:
        x = None
    if not __debug__:
        x = "optimised"
    return x if 1 else y  # noqa: F821


@case((5,))
def dead_code(x):
    return x
    x = undefined  # noqa: F821
    for x in y:
        pass


@case((0,), (1,))
def nothing_but_pass(x):
    if x:
        pass
    else:
        ...


@case((2,), (0,))
def walrus_in_condition(x):
    if (y := x * 2) > 2:
        return y
    return -y


@case((1,), (0,), ([],))
def assertion(x):
    assert x, f"x is {x!r}"
    return x


@case((1,), (0,))
def assertion_without_message(x):
    assert x
    assert x > 0
    return x


@case(((1, 2), 3), ((), 0))
def truth_of_containers(a, b):
    r = []
    for v in (a, b, [], {}, "", "x", 0j):
        r.append(1 if v else 0)
    return r


@case((1, 2), (2, 1))
def comparison_chain_with_calls(a, b):
    return 0 < min(a, b) <= max(a, b) < 10
