"""Calls of every form."""

import functools
import math
import operator

import numpy as np

from tests.frontend.corpus.support import Point, arguments, case, loud, ramp, unary


def helper(a, b=2, *args, c=3, **kwargs):
    return a, b, args, c, sorted(kwargs.items())


def recursive_sum(n):
    return 0 if n == 0 else n + recursive_sum(n - 1)


def is_even(n):
    return True if n == 0 else is_odd(n - 1)


def is_odd(n):
    return False if n == 0 else is_even(n - 1)


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def fails(x):
    raise ValueError(f"helper fails on {x}")


@case((1, (2, 3), {"c": 4, "z": 5}))
def forms(a, args, kwargs):
    return (
        helper(a),
        helper(a, 5),
        helper(b=7, a=a),
        helper(a, *args),
        helper(*args, a),
        helper(a, *args, *args, c=1),
        helper(a, **kwargs),
        helper(*args, **kwargs, y=1),
    )


@case(((1,), {"a": 1}))
def duplicate_argument(args, kwargs):
    return helper(*args, **kwargs)


@case((1,), ((1, 2),), (None,))
def bad_star(x):
    return helper(*x)


@case((1,), ({"a": 1},), ({1: 2},))
def bad_double_star(x):
    return helper(0, **x)


@case(({"c": 1}, {"c": 2}))
def repeated_keyword(x, y):
    return helper(0, **x, **y)


@case((1,))
def missing_argument(x):
    return helper()


@case((1,))
def too_many(x):
    return sigmoid(x, x)


@case(loud("f", "a", "b"))
def evaluation_order(log, f, a, b):
    return f(a + 1, *(b + 1,), k=a + b, **{"m": -b})


@case(loud("f", ("a", 2), "b"))
def star_is_unpacked_before_later_arguments(log, f, a, b):
    return f(*a, log.append("later") or 1, *a)


@case(loud("f", "a"))
def callee_before_arguments(log, f, a):
    return (log.append("callee") or f)(log.append("argument") or a)


@case((None,), (5,))
def not_callable(x):
    return x(1)


@case((0,), (1,), (10,), (50,))
def recursion(n):
    return recursive_sum(n), is_even(n)


@case((ramp(3),), (ramp(0, 4),), (2,))
def through_helper(x):
    return sigmoid(x) * 2 + sigmoid(-x)


@case((1,))
def helper_raises(x):
    y = [x]
    return fails(y)


@case((5,))
def lambdas(x):
    f = lambda a, b=x: a + b  # noqa: E731
    return f(1), f(1, 2), (lambda: x)(), (lambda *a, **k: (a, k))(1, y=2)


@case(([3, 1, 2],), native=False)
def keyword_functions(xs):
    return sorted(xs, key=lambda v: -v), sorted(xs, reverse=True), max(xs, key=lambda v: -v)


@case((2.5,), (-2.5,), (0,))
def scalar_builtins(x):
    return int(x), float(x), bool(x), complex(x), abs(x), round(x), str(x), repr(x), type(x), isinstance(x, float)


@case(([1, 2, 3],), ("abc",), ((),))
def container_builtins(xs):
    return len(xs), list(xs), tuple(xs), set(xs), sorted(xs), list(reversed(xs)), list(enumerate(xs)), any(xs), all(xs)


@case(([1, 2, 3],))
def min_max_sum(xs):
    return min(xs), max(xs), sum(xs), min(1, 2, 0), max("a", "b"), sum(xs, 10)


@case((5,), ("5",), ("x",), (None,), ([],))
def conversions_may_fail(x):
    return int(x), float(x)


@case((5,), (ramp(3),))
def len_may_fail(x):
    return len(x)


@case((4.0,), (-1.0,), native=False)
def compiled_functions(x):
    return math.floor(x), math.sqrt(x)


@case(([2, 3],), native=False)
def functools_and_operator(xs):
    return functools.reduce(operator.mul, xs), functools.partial(helper, 1)(5, c=2)


@case((Point(3, 4),))
def methods(p):
    return p.norm(), p.moved(1).x, p.moved(dx=2).moved(3)


@case((Point(3, 4),))
def bound_method_kept(p):
    f = p.moved
    p = None
    return f(1).x


@case(("a b c",), native=True)
def string_methods(s):
    return s.split(), s.upper().lower(), " ".join([s, s]), s.replace("a", "b"), "{} {x}".format(s, x=1)  # noqa: FLY002


@case(({"a": 1},))
def dict_methods(d):
    d.update(b=2)
    return d.get("a"), d.get("c", 5), list(d.items()), d.pop("a"), d.setdefault("z", [])


@case(([1],))
def list_methods(x):
    x.append(2)
    x.extend([3, 4])
    x.insert(0, 0)
    y = x.append(5)
    return x.pop(), x.index(3), x.copy(), y


@case(loud("a"), (None, None), ({1}, 2))
def append_on_anything(log, a):
    log.append(a)
    return log


@case((None,), ([],))
def append_looks_up_first(x):
    x.append(1 / 0)


@case((None, []), ([], []))
def method_looked_up_before_arguments(x, log):
    return x.append(log.append("argument"))


@case(*unary((3, 4), (0, 4)))
def array_methods(x):
    return (
        x.sum(),
        x.sum(axis=0),
        x.mean(1) if x.size else 0,
        x.reshape(-1),
        x.T,
        x.astype(np.float32),
        x.copy(),
        x.ndim,
        x.size,
    )


@case(*unary((2, 3, 4)))
def array_methods_with_keywords(x):
    return (
        x.max(axis=(0, 2), keepdims=True),
        x.transpose(2, 0, 1),
        x.swapaxes(0, 1),
        x.argmax(-1),
        x.all(),
        x.clip(-1, 1),
    )


@case((ramp(1),), (ramp(),), (ramp(2),), (np.float32(3),))
def item(x):
    return x.item()


@case((ramp(2, 3),), ((1, 2),), (None,))
def dims(x):
    return x.shape[0], x.shape[-1], x.shape


@case((ramp(2, 3),))
def dim_out_of_range(x):
    return x.shape[2]


@case((ramp(2, 3), 1), (ramp(2, 3), 5), (ramp(2, 3), "x"))
def function_arguments(x, axis):
    return np.sum(x, axis=axis), np.expand_dims(x, axis)


@case((ramp(2, 3),), native=False)
def arguments_that_do_not_bind(x):
    out = np.zeros(3)
    return np.sum(x, axis=0, out=out), out, np.exp(x, where=x > 0, out=np.ones((2, 3)))


@case((ramp(4),), native=False)
def numpy_functions_outside_the_table(x):
    return np.median(x), np.percentile(x, 50), np.gradient(x)


@case(arguments(1, c=5), arguments(1, 2, 3, z=1), arguments(a=4))
def parameters(a, b=2, *args, c=3, **kwargs):
    return a, b, args, c, kwargs


@case(arguments(1, b=2), arguments(1), arguments(a=1))
def positional_only(a, /, b=5):
    return a, b


@case(arguments(1, b=2), arguments(1, 2), arguments(1))
def keyword_only(a, *, b):
    return a, b


@case((), (5,))
def mutable_default(x=1, acc=[]):  # noqa: B006
    if x > 10:
        acc.append(x)
    return acc, x


@case((3,))
def immediate(x):
    return (lambda a: a * 2)(x), [abs, int][0](-x), {"f": int}["f"]("7")


@case((np.float32(2.5), 2), native=False)
def numpy_types_as_functions(x, n):
    return np.float64(x), np.int8(n), np.zeros(n), np.ones((n, n), dtype=np.float32), np.arange(n)


@case((ramp(2, 2),))
def nested_calls(x):
    return np.exp(np.log(np.abs(np.sin(x)) + 1)).sum(axis=np.argmax([1, 2]) - 1)


@case(
    (
        ramp(
            2,
            3,
        ),
    )
)
def many_lines(x):
    return x.reshape(
        3,
        2,
    ).T.sum(
        axis=0,
    )


@case((ramp(2, 3),))
def error_on_many_lines(x):
    return x.reshape(
        4,
        2,
    ).T


@case((ramp(3), ramp(4)))
def error_in_expression(a, b):
    c = a * 2
    return np.sum(c + b)


@case((3,))
def callee_rebound(n):
    f = helper
    out = []
    for i in range(n):
        out.append(f(i))
        f = sigmoid if i == 0 else helper
    return out
