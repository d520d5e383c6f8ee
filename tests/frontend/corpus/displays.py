"""Tuples, lists, sets, dicts, strings, slices."""

from tests.frontend.corpus.support import case, loud, ramp


@case((1, [2, 3]))
def plain(a, b):
    return (a, b), [a, b], {a, 5}, {a: b, "k": a}, (), [], {}


@case(([1, 2], (3,)), ("ab", {}), (range(2), []))
def starred(a, b):
    return (*a, *b), [*a, 0, *b, 1], {*a, *b}, (0, *a), [*a], (*b,)


@case((5,), (None,))
def starred_list_fails(a):
    return [0, *a]


@case((5,), ([[]],))
def starred_set_fails(a):
    return {0, *a}


@case((5,))
def starred_tuple_fails(a):
    return 0, *a


@case(({"a": 1}, {"b": 2, "a": 3}))
def double_starred(a, b):
    return {**a, **b}, {"z": 0, **a, "a": 9, **b}, {**a}


@case((5,), ([1],))
def double_starred_fails(a):
    return {"z": 1, **a}


@case(loud(("a", 2), "b", ("c", 1)))
def star_order(log, a, b, c):
    return [b + 1, *a, b, *c, -b]


@case(loud("a", "b"))
def dict_order(log, a, b):
    return list({a.name: b + 1, b.name: a + 1}), {1: -a, 2: -b}


@case(([],), (1,))
def unhashable_key(a):
    return {a: 1}


@case((1.5, "x"), (None, [1]))
def fstrings(a, b):
    w = 12
    return f"{a}", f"{a!r} {b!s:>{w}} {b!a}", f"{{}}", f"{w:05d}{w!r:^{w}}", f"", f"{a}{b}!"


@case(loud("a", "b"))
def fstring_order(log, a, b):
    return f"{a:x}{b!r:>20}{a!s}"


@case((2.5,), ("s",))
def fstring_errors(a):
    return f"{a:.2f}"


@case((3.14159,))
def fstring_debug(a):
    return f"{a=} {a=:.2f} {a = !s}"


@case((ramp(4, 5),), ([1, 2, 3, 4],))
def slices(x):
    i, j = 1, 3
    return x[i:j], x[:j], x[i:], x[::2], x[::-1], x[-j:-i:1], x[:]


@case((ramp(4, 5),))
def slice_tuples(x):
    i = 1
    return x[i, 2], x[i:, ::2], x[..., i], x[None, :, i], x[(1, 2)], x[[0, 2]], x[x > 0], x[i : i + 2, [0, 1]]


@case(loud("x", "i", "j"))
def slice_order(log, x, i, j):
    return x[i + 1 : -j], x[i, j + 1]


@case()
def constants():
    return None, True, 1, 2.5, 3j, "s", b"b", ..., (1, (2,)), -0.0, 10**40, float("nan") != float("nan")


@case()
def many_constants():
    return 1, 1.0, True, -0.0, 0.0, 1j, "1", b"1"


@case((3,))
def slice_object(n):
    s = slice(None, n)
    return [1, 2, 3, 4][s], s


@case((1,))
def nested_containers(a):
    x = {"l": [a, (a, {"d": {a}})], "t": ([],)}
    x["l"][1][1]["e"] = x["t"][0]
    return x


@case(("abc",))
def string_index(s):
    return s[0], s[-1], s[::-1], s[1:], "literal"[2], (1, 2, 3)[1]


@case((5,), ([1],))
def index_fails(x):
    return x[3]


@case(("%s-%d", ("a", 3)))
def percent(a, b):
    return a % b
