"""`for` and `while` with `break`, `continue`, `else`, `return`."""

import numpy as np

from tests.frontend.corpus.support import Point, case, loud, ramp, unary


@case((0,), (1,), (5,))
def count(n):
    total = 0
    for i in range(n):
        total += i
    return total


@case((0,), (5,))
def for_else(n):
    for i in range(n):
        if i == 3:
            break
    else:
        return "none", n
    return "found", i


@case((0,), (2,), (10,))
def for_continue(n):
    out = []
    for i in range(n):
        if i % 2:
            continue
        if i > 6:
            break
        out.append(i)
    else:
        out.append("end")
    return out


@case((0,), (1,), (7,), (-3,))
def while_loop(n):
    steps = []
    while n > 0:
        steps.append(n)
        n -= 2
    else:
        steps.append("done")
    return steps, n


@case((0,), (3,))
def while_true(n):
    while True:
        if n >= 3:
            break
        n += 1
    return n


@case((3,), (0,))
def while_true_returns(n):
    while 1:
        n -= 1
        if n < 0:
            return n
        continue


@case((3,), (0,))
def while_with_complex_condition(n):
    m = 10
    while n and (m > 5 or n > 1) and not n > 100:
        n -= 1
        m -= 2
    return n, m


@case((4,), (1,))
def nested_loops(n):
    out = []
    for i in range(n):
        for j in range(i):
            if j == 2:
                break
            if (i + j) % 2:
                continue
            out.append((i, j))
        else:
            out.append(i)
            continue
        out.append("broken")
    return out


@case((4,))
def return_from_nested(n):
    for i in range(n):
        for j in range(n):
            if i * j == 2:
                return i, j
    return None


@case(*unary((3, 4), (0, 4)))
def over_rows(x):
    out = []
    for row in x:
        out.append(row.sum())
    return out


@case(*unary((3, 4)))
def rows_are_views(x):
    for row in x:
        row[0] = 0
        row += 1
    return x


@case((ramp(5, 3), ramp(3)), (ramp(0, 3), ramp(3)))
def recurrence(x, h):
    states = []
    for t in range(x.shape[0]):
        h = np.tanh(x[t] + h)
        states.append(h)
    return states, h


@case((ramp(4, 3),), (ramp(1, 3),))
def stack_of_states(x):
    states = []
    for t in range(len(x)):
        states.append(x[t] * t)
    return np.stack(states)


@case(([1, 2, 3],), ("abc",), ({"a": 1},), (None,), (5,), ((),), (ramp(2),))
def over_anything(x):
    out = []
    for v in x:
        out.append(v)
    return out


@case(loud(("x", 2)), loud(("x", 0)), loud(("x", 3, "next 1")))
def iteration_order(log, x):
    for i in x:
        log.append(f"body {i}")
    else:
        log.append("else")
    return log


@case((["a", "b"], [1, 2, 3]))
def enumerate_and_zip(a, b):
    out = []
    for i, (x, y) in enumerate(zip(a, b)):
        out.append((i, x, y))
    for i, x in enumerate(reversed(b), 1):
        out.append((i, x))
    return out


@case(({"a": 1, "b": 2},))
def over_items(d):
    total = 0
    for key, value in d.items():
        total += value * len(key)
    return total, [k for k in d]


@case((3,))
def modify_while_iterating(n):
    x = list(range(n))
    out = []
    for v in x:
        out.append(v)
        if v < 5:
            x.append(v + n)
    return x, out


@case((3,))
def loop_variable_survives(n):
    for i in range(n):
        pass
    return i


@case((0,))
def loop_variable_of_empty_loop(n):
    for i in range(n):
        pass
    return i


@case((3,))
def loop_variable_is_rebound(n):
    out = []
    for i in range(n):
        i = i * 10
        out.append(i)
    return out, i


@case(([[1, 2, 3], [4, 5]],))
def star_target(rows):
    out = []
    for first, *rest in rows:
        out.append((rest, first))
    return out


@case((Point(0), 3))
def attribute_target(p, n):
    for p.x in range(n):
        p.tags.append(p.x)
    return p


@case(([0, 0, 0], 3))
def item_target(x, n):
    for x[1] in range(n):
        x[0] += x[1]
    return x


@case((ramp(8),), (ramp(1),), (ramp(0),))
def bisect(x):
    low, high = 0, len(x)
    while low < high:
        middle = (low + high) // 2
        if x[middle] < 0:
            low = middle + 1
        else:
            high = middle
    return low


@case((27,), (1,))
def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@case((10, 3))
def range_forms(a, b):
    out = []
    for i in range(a, b, -2):
        out.append(i)
    for i in range(b, a):
        out.append(i)
    return out


@case((0,), (2.5,))
def bad_range(n):
    for i in range(n + 0.5):
        pass
    return i


@case((ramp(6),))
def data_dependent_trip_count(x):
    steps = 0
    while np.abs(x).max() > 0.1:
        x = x * 0.5
        steps += 1
        if steps > 100:
            break
    return steps, x


@case((3,))
def unrolled_lists(n):
    grid = []
    for i in range(n):
        row = []
        for j in range(n):
            row.append(i * j)
        grid.append(row)
    return grid


@case(([3, 1, 2],))
def bubble_sort(x):
    n = len(x)
    for i in range(n):
        for j in range(n - i - 1):
            if x[j] > x[j + 1]:
                x[j], x[j + 1] = x[j + 1], x[j]
    return x


@case((5,))
def else_with_return(n):
    while n:
        n -= 1
    else:
        return "else"
    return "after"


@case((5,))
def body_always_returns(n):
    for i in range(n):
        return i
    return "empty"


@case((0,))
def body_always_breaks(n):
    for i in range(n, 3):
        break
    else:
        i = -1
    while True:
        break
    return i


@case((2,), (0,))
def infinite_with_else(n):
    while True:
        if not n:
            break
        n -= 1
    else:
        n = "never"
    return n
