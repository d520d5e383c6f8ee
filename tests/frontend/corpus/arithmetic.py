"""Operators on arrays, NumPy scalars and Python numbers."""

import numpy as np

from tests.frontend.corpus.support import add, binary, case, loud, ramp, unary

SCALARS = [(3, 2), (-7, 2), (2.5, -2), (True, 3), (np.float32(1.5), 2), (np.int8(5), 3), (1 + 2j, 2.0), (10**30, 7)]


@case(*binary(), *SCALARS)
def plus(a, b):
    return a + b


@case(*binary(), *SCALARS)
def mixed(a, b):
    return a * b - b / 2 + a


@case(*binary(dtypes="i4,i4 f8,f8 u1,i1"), *SCALARS[:5])
def floor_and_mod(a, b):
    return a // b, a % b


@case(*binary(dtypes="i4,i4 i8,u1"), (6, 3), (True, False))
def bits(a, b):
    return (a & b) | (a ^ b), ~a, a << 1, a >> 1


@case(*unary(), (3,), (2.5,), (True,), (np.float32(2),))
def signs(a):
    return -a, +a, abs(a)


@case(*unary(), (3,), (0,), (0.0,))
def powers(a):
    return a**2, 2**a


@case((ramp(3, 4), ramp(4, 5)), (ramp(2, 3, 4), ramp(4, 5)), (ramp(4), ramp(4)), (ramp(3, 4), ramp(3, 4)))
def matrix_product(a, b):
    return a @ b


@case(*binary(), *SCALARS)
def comparisons(a, b):
    return a < b, a <= b, a > b, a >= b, a == b, a != b


@case(*binary())
def long_chain(a, b):
    return a + b + a - b + a * b - a + b + a - b + a + b - a * b + a + b


@case(*unary())
def right_leaning(a):
    return a + (a * (a - (a + (a * (a - 1)))))


@case(*unary(), (4,), (2.0,))
def constants_fold(a):
    return a + 2 * 3 - (1 << 4) + -1 + 2**-1 + (1 - 2j).real


@case()
def constant_tuple_is_one_object():
    return (1, 2, (3, "x")), -5, 1000 * 1000, "ab" * 2


@case((1,), (0,), (0.0,), (np.int64(0),), (ramp(3),))
def division_by_zero(a):
    return 1 / a


@case((ramp(3),), (np.float32(0),))
def numpy_division_warns(a):
    b = a - a
    c = a / b
    return c + 1


@case((np.array([1e308, 1.0]),), (np.array([1e38], np.float32),))
def overflow_warns(a):
    first = a * 10
    second = first * 10
    return second - first


@case((np.uint8(200), 100), (np.uint8(200), 300), (ramp(3, dtype="u1"), 300), (ramp(3, dtype="i1"), -200))
def weak_scalars_out_of_range(a, b):
    return a + b


@case(loud("a", "b", "c"), loud(("a", 1, "add"), "b", "c"))
def order_of_operators(log, a, b, c):
    return a + b * c + -a


@case(loud("a", "b"))
def reflected(log, a, b):
    return 1 + a, a + 1


@case((None, 1), ("a", 1), ([1], (2,)), ({1}, {2}), ("ab", "cd"), ([1], [2]))
def unsupported_or_sequences(a, b):
    return a + b


@case(({1, 2}, {2, 3}), ({"a": 1}, {"b": 2}), (3, 5))
def set_and_dict_operators(a, b):
    return a | b


@case(*unary((3, 4)), (2,))
def inverted(a):
    return ~(a > 0) if isinstance(a, np.ndarray) else not a > 0


@case((np.float32(1.5), 2), (np.float64(1.5), np.float32(2)), (np.int32(3), np.int64(4)), (np.bool_(True), 1))
def numpy_scalars(a, b):
    return a + b, a * b, a - 1, a / 2, a**2


@case((5, 3), (5.5, 2), (-5, 3))
def python_functions(a, b):
    return divmod(a, b), pow(a, b), round(a / b, 2), abs(-a), min(a, b), max(a, b)


@case((ramp(3, 4, dtype="f4"),), (ramp(3, 4, dtype="f2"),))
def half_precision(a):
    return a * 3 + 1.5


add(lambda a, b: a * b + 1, *binary())
add(lambda *a: a, (1, 2), ())
add(lambda a, /, b=2, *, c=3: a + b + c, (1,), (1, 5))
f, g = (lambda a: a + 1, lambda a: a + 2)
add(f, (1,), (ramp(2),))
add(g, (1,), (ramp(2),))
