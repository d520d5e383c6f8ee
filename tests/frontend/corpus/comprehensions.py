"""Comprehensions and generator expressions."""

import sys

import numpy as np

from tests.frontend.corpus.support import Point, case, loud, ramp

SCALE = 3
# From 3.12 on `sum` of floats is compensated: no loop of additions.
SUM_IN_PLACE = sys.version_info < (3, 12)


@case(([1, 2, 3],), ([],), ((4,),), (ramp(3),), (5,))
def simple(xs):
    return [x * 2 for x in xs]


@case(([1, 2, 3], 2))
def uses_local(xs, k):
    return [x * k + SCALE for x in xs if x != k]


@case((4,))
def nested(n):
    return [[i * j for j in range(i)] for i in range(n)]


@case((4,))
def two_loops(n):
    return [(i, j) for i in range(n) if i % 2 for j in range(i) if j]


@case(([3, 1, 3],))
def sets_and_dicts(xs):
    return {x for x in xs}, {x: x * 2 for x in xs}, {i: x for i, x in enumerate(xs) if x > 1}


@case(([[1], 2],))
def unhashable_element(xs):
    return {x for x in xs}


@case((3,))
def target_does_not_leak(n):
    x = "outer"
    y = [x for x in range(n)]
    return x, y


@case((3,))
def target_shadows_parameter(n):
    return [n for n in range(n)], n


@case(([1, 2],))
def target_shadows_iterable(x):
    return [x for x in x], x


@case((3,))
def late_binding(n):
    fs = [lambda: i for i in range(n)]
    gs = [lambda i=i: i for i in range(n)]
    return [f() for f in fs], [g() for g in gs]


@case((3,))
def closures_over_two_runs(n):
    out = []
    for k in range(2):
        out.append([lambda: (k, i) for i in range(n)])
    return [f() for fs in out for f in fs]


@case(([1, 0, 2],))
def walrus_leaks(xs):
    y = [last := x for x in xs if (seen := x)]
    return y, last, seen


@case((3,))
def unpack_targets(n):
    pairs = [(i, (i + 1, [i])) for i in range(n)]
    return [a + b + len(c) for a, (b, c) in pairs], [rest for _, *rest in pairs]


@case(([[1, 2], [3]],))
def flatten(xs):
    return [y for x in xs for y in x]


@case(loud("c", ("x", 3)), loud(("c", 0), ("x", 2)), loud("c", ("x", 2, "next 1")))
def order(log, c, x):
    return [log.append(i) for i in x if c]


@case((Point(2), [1, 2]))
def attribute_target(p, xs):
    return [p.x for p.x in xs], p.x


@case(([1, 2, 3],), ([],), ([0],), native=SUM_IN_PLACE)
def consumed(xs):
    return (
        sum(x * 2 for x in xs),
        any(x > 2 for x in xs),
        all(x for x in xs),
        list(x + 1 for x in xs),
        tuple(x for x in xs if x),
        set(x % 2 for x in xs),
        dict((x, -x) for x in xs),
        sorted(-x for x in xs),
    )


@case(loud("a", ("b", 0), "c"), loud(("a", 0), ("b", 0), ("c", 0)))
def any_stops_early(log, a, b, c):
    return any(log.append(v.name) or v for v in (a, b, c)), all(v for v in (a, b, c))


@case(([1, 2], 10), native=SUM_IN_PLACE)
def consumed_uses_locals(xs, k):
    total = sum(x * k for x in xs)
    return total, all(x < k for x in xs)


@case(([1, 2],), native=SUM_IN_PLACE)
def consumed_target_shadows(x):
    return sum(x for x in x), x


@case(([ramp(3), ramp(3) * 2],), ([],), native=SUM_IN_PLACE)
def sum_of_arrays(xs):
    return sum(x * 2 for x in xs)


@case((["a", "b"],), native=SUM_IN_PLACE)
def sum_of_strings_fails(xs):
    return sum(x for x in xs)


@case(([1, 2],))
def stop_iteration_in_generator(xs):
    it = iter(xs)
    return list(next(it) + next(it) for _ in range(3))


@case(([],))
def stop_iteration_in_first_iterable(xs):
    return list(x for x in next(iter(xs)))


@case(([1, 2, 3],), native=False)
def real_generators(xs):
    g = (x * 2 for x in xs)
    h = max((x for x in xs), key=lambda x: -x)
    return list(g), h, min(x for x in xs)


@case(([1, 2, 3],), native=False)
def generator_sees_later_changes(xs):
    k = 1
    g = (x * k for x in xs)
    k = 10
    return list(g)


@case((3,), native=False)
def generator_passed_on(n):
    return ",".join(str(i) for i in range(n))


@case(([1, 2, 3],))
def conditional_element(xs):
    return [x if x > 1 else -x for x in xs], [x for x in xs if x > 1 or x < -1]


@case((3,))
def comprehension_in_condition(n):
    if [i for i in range(n) if i > 1]:
        return "yes"
    return "no"


@case((ramp(3, 4), 3), (ramp(3, 4), 0))
def stack_comprehension(x, n):
    parts = [x[:, i] for i in range(n)]
    return np.concatenate(parts) if parts else None


@case(({"b": 1, "a": 2},))
def dict_order(d):
    return {v: k for k, v in d.items()}, list({k: 0 for k in sorted(d)})


@case((2,))
def unbound_inside(n):
    return [z for _ in range(n) if z for z in (1,)]


@case((2,))
def unbound_function_variable_inside(n):
    r = [later for _ in range(n)]
    later = 1
    return r


@case((3,))
def nested_shadows(n):
    return [[i for i in range(i)] for i in range(n)]


@case((3,))
def comprehension_as_argument(n):
    return np.array([float(i) for i in range(n)]), len([0 for _ in range(n)])


@case((2,))
def in_default_and_lambda(n):
    f = lambda a=[i for i in range(n)]: [x + n for x in a]  # noqa: B008
    return f(), f([5])
