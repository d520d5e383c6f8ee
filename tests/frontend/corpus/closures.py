"""Nested functions, cells, globals."""

import numpy as np

from tests.frontend.corpus.support import case, ramp

COUNTER = 0
FACTOR = 2.5
_rebound = len


def decorate(f):
    def wrapped(*args):
        return ("wrapped", f(*args))

    return wrapped


def parametrised(tag):
    def decorator(f):
        return lambda *a: (tag, f(*a))

    return decorator


@case((3,))
def reads_outer(x):
    def inner():
        return x + FACTOR

    x += 1
    return inner(), x


@case((3,))
def late_bound(x):
    def inner():
        return y

    y = x
    a = inner()
    y = a + 1
    return a, inner()


@case((0,), (3,))
def nonlocal_counter(n):
    count = 0

    def bump(by=1):
        nonlocal count
        count += by
        return count

    out = []
    for i in range(n):
        out.append(bump(i))
    return out, count, bump()


@case((3,))
def returned_closure(x):
    def add(y):
        return x + y

    x = 10
    return add(1), [f(2) for f in (add, lambda z: z * x)]


@case((3,))
def nested_twice(x):
    def middle(y):
        def inner(z):
            nonlocal x
            x += 1
            return x, y, z

        return inner

    return middle(1)(2), middle(3)(4), x


@case((3,))
def defaults_are_evaluated_once(x):
    def f(a, b=[x], *, c=x * 2):  # noqa: B006
        b.append(a)
        return b, c

    x = 100
    return f(1), f(2), f(3, [], c=0)


@case((3,))
def decorated(x):
    @decorate
    def f(a):
        return a + x

    @parametrised("outer")
    @parametrised("inner")
    def g(a):
        return a * x

    return f(1), g(2)


@case((3,))
def recursive_inner(n):
    def fact(k):
        return 1 if k <= 1 else k * fact(k - 1)

    return fact(n)


@case((3,))
def unbound_cell(x):
    def inner():
        return later

    try:
        inner()
    except NameError as e:
        message = str(e)
    later = x
    return message, inner()


@case((3,))
def unbound_own_cell(x):
    def inner():
        return later

    return later
    later = x


@case((3,))
def deleted_cell(x):
    def inner():
        return x

    del x
    return inner()


@case((3,))
def deleted_cell_read(x):
    f = lambda: x  # noqa: E731
    del x
    x = 5
    a = f()
    del x
    return a, x


@case((3,))
def exception_name_in_a_cell(x):
    try:
        raise ValueError(x)
    except ValueError as e:
        f = lambda: e  # noqa: E731
        inside = f().args
    try:
        f()
    except NameError as g:
        return inside, str(g)


@case((ramp(3),))
def arrays_through_cells(x):
    total = np.zeros(3)

    def accumulate(v):
        nonlocal total
        total = total + v
        x[0] = 100

    for v in (x, x * 2):
        accumulate(v)
    total += 1
    return total, x


@case((3,))
def annotated_inner(x):
    def f(a: int, b: "str" = "s", *c: x, d: list = [x], **e: dict) -> float:  # noqa: UP037
        return a

    return f.__annotations__, f.__name__, f.__defaults__, f.__kwdefaults__, f(1)


@case((3,))
def inner_metadata(x):
    def f(a):
        "docstring"
        return a

    return f.__doc__, f.__qualname__.rpartition(".")[2], f.__module__ is not None, (lambda: 0).__name__


@case((3,))
def missing_global(x):
    return x + no_such_name  # noqa: F821


@case((3,), native=False)
def stores_global(x):
    global COUNTER
    COUNTER = x
    COUNTER += 1
    result = COUNTER
    COUNTER = 0
    return result


@case((3,), native=False)
def makes_and_deletes_a_global(x):
    global _made
    _made = x
    y = _made
    del _made
    try:
        return _made
    except NameError as e:
        return str(e), y


@case(([1, 2],))
def shadowed_builtin(x):
    len = lambda v: "mine"  # noqa: A001, E731
    return len(x)


@case(([1, 2],), native=False)
def builtin_by_another_name(x):
    return _rebound(x)


@case((2,))
def closure_in_loop(n):
    fs = []
    for i in range(n):

        def f(k=i):
            return k, i

        fs.append(f)
    return [f() for f in fs]


@case((3,))
def generator_function_inside(n):
    def gen():
        for i in range(n):
            yield i

    return list(gen()), sum(gen())


@case((3,))
def parameter_in_a_cell(x, *args, y=2, **kwargs):
    f = lambda: (x, args, y, kwargs)  # noqa: E731
    x += 1
    y = x
    return f()


@case((3,))
def global_and_local_of_the_same_name(x):
    def inner():
        global COUNTER
        return COUNTER

    COUNTER = x
    return COUNTER, inner()


@case((3,))
def lambda_in_a_default(x):
    return (lambda a=(lambda: x): (a(), x + 1))(), (lambda a=(lambda: -1): [a()])()


@case((3,), native=False)
def generator_in_an_iterable(x):
    return max(y + 1 for y in (z * 2 for z in [x, 1])), [g for g in (lambda k=x: (k,))()]


def _make():
    captured = ramp(3)
    unassigned_yet = 1
    del unassigned_yet

    def free_variable(x):
        return x + captured

    def free_variable_operator(x):
        return module.sum(x) + captured[0]

    def free_variable_unbound(x):
        return x + unassigned_yet

    module = np
    return free_variable, free_variable_operator, free_variable_unbound

    unassigned_yet = 0


for _f in _make():
    case((ramp(3),))(_f)
