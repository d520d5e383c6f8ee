"""What CPython runs for us."""

from tests.frontend.corpus.support import Point, case, ramp

STATE = {"n": 0}


@case((2.0,), native=False)
def imports(x):
    import math
    import os.path as p
    from math import ceil as up
    from math import floor, pi

    return math.sqrt(x), floor(x), up(x), pi, p.basename("/a/b")


@case((1,), native=False)
def import_fails(x):
    from math import no_such_name

    return no_such_name


@case((1,), native=False)
def import_fails_in_between(x):
    pi = "before"
    try:
        from math import no_such_name, pi  # noqa: F401
    except ImportError:
        pass
    return pi


@case((1,), native=False)
def conditional_import(x):
    if x:
        import math as m
    else:
        import cmath as m
    return m.pi


@case((1,), native=False)
def module_missing(x):
    try:
        import no_such_module_anywhere as m
    except ImportError as e:
        m = type(e)
    return m


@case((ramp(3),), native=False)
def numpy_imported_inside(x):
    import numpy as np

    return np.exp(x), np.sum(x)


@case(({"a": 1, "b": 2},), native=False)
def deletions(d):
    del d["a"]
    try:
        del d["z"]
    except KeyError as e:
        return d, e.args


@case(({"a": 1}, Point(1)), native=False)
def deletion_order(d, p):
    del d["a"], p.y, p.nothing


@case((3,), native=False)
def prints(x):
    print("x is", x, sep="=", end="!\n")
    print(f"{x:>5}")
    return x


@case((3,))
def changes_global_object(x):
    STATE["n"] += x
    r = STATE["n"]
    STATE["n"] = 0
    return r
