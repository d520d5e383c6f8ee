"""`match`."""

from tests.frontend.corpus.support import Point, case, loud


class Limits:
    LOW = 1
    HIGH = 10


@case((1,), (2,), ("a",), (None,), (True,), (1.0,), (10,), (99,))
def values(x):
    match x:
        case 1:
            return "one"
        case "a" | "b" | None:
            return "letter or nothing"
        case Limits.HIGH:
            return "high"
        case True | False:
            return "bool"
        case _:
            return "other"


@case((1,), (5,), (-5,))
def guards(x):
    match x:
        case y if y > 3:
            return "big", y
        case y if (z := y) < 0:
            return "negative", z
        case y:
            return y


@case((3,), (4,))
def no_match(x):
    r = "none"
    match x:
        case 3:
            r = "three"
    return r


@case((3,), (5,))
def maybe_captured(x):
    match x:
        case 3:
            pass
        case y:
            pass
    return y


@case(([],), ([1],), ([1, 2],), ((1, 2, 3),), ("ab",), (5,), native=False)
def sequences(x):
    match x:
        case []:
            return "empty"
        case [a]:
            return "one", a
        case (a, b):
            return "two", a, b
        case [a, *rest]:
            return "more", a, rest
    return "no"


@case(({"kind": "a", "v": 1},), ({"kind": "b"},), ({},), (5,), native=False)
def mappings(x):
    match x:
        case {"kind": "a", "v": v}:
            return v
        case {"kind": kind, **rest}:
            return kind, rest
        case _:
            return None


@case((Point(1, 2),), (Point(0, 5),), (3,), ("s",), native=False)
def classes(x):
    match x:
        case Point(x=0, y=y):
            return "axis", y
        case Point(x, y=2) if x > 0:
            return x
        case int(n) | str(n):
            return n


@case(([1, [2, {"k": Point(3)}]],), ([1],), native=False)
def deep(x):
    match x:
        case [first, [_, {"k": Point(x=v)}]] as whole:
            return first, v, whole
        case other:
            return other


@case((1, 2), (2, 2), (3, 3))
def subject_is_an_expression(a, b):
    match a * b, a:
        case 2:
            return "never"
        case pair:
            return pair


@case((5,))
def capture_rebinds_the_subject(x):
    match x:
        case x if x > 10:
            return "no"
        case 5 as x:
            return x


@case(loud("x"), loud(("x", 0)))
def comparison_order(log, x):
    match x:
        case 1 | 2:
            return "first"
        case 3:
            return "second"


@case(([0, 1, 2, 3],))
def in_a_loop(xs):
    out = []
    for x in xs:
        match x:
            case 0:
                continue
            case 2:
                break
            case n:
                out.append(n)
    return out


@case(([1, 2],), ([20, 2],), native=False)
def captured_part_rebinds_the_subject(x):
    match x:
        case [x, _] if x > 10:
            return "big", x
        case [a, b]:
            return a, b, x
