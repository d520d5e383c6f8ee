"""Variables that may not be assigned."""

from tests.frontend.corpus.support import case


@case((0,), (1,))
def one_branch(c):
    if c:
        x = 1
    return x


@case((0,), (1,))
def both_branches(c):
    if c:
        x = 1
    else:
        x = 2
    return x


@case((0,), (1,))
def branch_returns(c):
    if c:
        x = 1
    else:
        return "none"
    return x


@case((0,), (1,))
def branch_raises(c):
    if c:
        x = 1
    else:
        raise ValueError
    return x


@case((0,), (2,))
def in_loop(n):
    for i in range(n):
        x = i
    return x


@case((0,), (2,))
def read_before_in_loop(n):
    for i in range(n):
        if i:
            y = x
        x = i
    return y


@case((2,))
def deleted_in_loop(n):
    x = 0
    for i in range(n):
        y = x
        del x
    return y


@case((0,), (1,))
def deleted_in_branch(c):
    x = 1
    if c:
        del x
    return x


@case((0,), (1,))
def augmented(c):
    if c:
        x = 1
    x += 1
    return x


@case((0,), (1,))
def in_condition(c):
    if c:
        x = c
    return 1 if x else 2


@case((0,), (1,))
def order_of_errors(c):
    if c:
        x = 1
    return y(x)  # noqa: F821


@case((0,), (1,))
def in_expression(c):
    if c:
        a = 1
    b = [c]
    return b[0] + a * b[5]


@case((1,))
def never_assigned(c):
    if 0:
        x = 1
    return x


@case((1,))
def self_reference(c):
    x = x + 1
    return x


@case((1,))
def while_true_assigns(c):
    while True:
        x = c
        break
    return x


@case((0,), (1,), (2,))
def through_try(n):
    try:
        if n == 0:
            raise ValueError
        x = 1
        if n == 1:
            raise KeyError
    except ValueError:
        x = 2
    except KeyError:
        y = x
    else:
        y = 3
    return x, y


@case((0,), (1,))
def in_finally(n):
    try:
        x = 1 / n
    finally:
        y = x
    return y


@case((0,), (1,))
def statement_of_a_name(c):
    if c:
        x = 1
    x
    return 5


@case((0,), (1,))
def store_through(c):
    if c:
        x = [0]
    x[0] = 1
    x.y = 2


@case((0,), (1,))
def in_nested_comprehension(c):
    if c:
        x = [1]
    return [[v + w for w in x] for v in x]


@case((0,), (1,))
def in_walrus(c):
    c and (x := 5)
    return x


@case((0,), (1,))
def in_fstring(c):
    if c:
        x = 1
    return f"{c}{x}"


@case((0,), (1,))
def in_call(c):
    if c:
        x = 1
    return str(x), print


@case((0,), (1,))
def deleted_in_try(n):
    x = 1
    try:
        del x
        n = 1 / n
    except ZeroDivisionError:
        return x
    return "fine"


@case((0,), (1,))
def deleted_in_try_with_finally(n):
    x = y = 1
    try:
        try:
            raise ValueError
        except ValueError as y:
            del x
            n = 1 / n
    finally:
        n = x, y
    return "fine"
