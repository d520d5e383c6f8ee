"""Assignment to names, attributes, items; unpacking; augmented assignment; deletion."""

import numpy as np

from tests.frontend.corpus.support import Point, case, loud, ramp, unary


@case((1, 2), ("a", [1]))
def swap(a, b):
    a, b = b, a
    return a, b


@case((1, 2, 3))
def rotate(a, b, c):
    a, b, c = c, a, b
    (a, b), c = (b, c), a
    return a, b, c


@case(([1, 2, 3],), ((1, 2),), ("xyz",), ([1],), (ramp(3),), (5,), ({1: 2, 3: 4, 5: 6},))
def unpack_three(x):
    a, b, c = x
    return a, b, c


@case(([1, 2, 3, 4],), ((1, 2),), ([1],), ("abcde",), (ramp(4, 2),))
def unpack_star(x):
    a, *b, c = x
    return a, b, c


@case(([1, [2, 3, 4]],), ([1, 2],), ([[1], [2]],))
def unpack_nested(x):
    a, (b, *c) = x
    [d, e] = x
    return a, b, c, d, e


@case(([1, 2, 3],))
def unpack_star_first(x):
    *a, b = x
    (*c,) = x
    return a, b, c


@case(([0, 0, 0],))
def unpack_into_items(x):
    i = 0
    i, x[i] = 1, 5
    x[i], i = 7, 2
    x[0], *x[1:] = i, i, i
    return x


@case((ramp(3, 4),), (ramp(2, 2),))
def unpack_shape(x):
    rows, columns = x.shape
    (n,) = (rows * columns,)
    return rows, columns, n


@case((1,), ([1],))
def chained_targets(x):
    a = b = [x]
    c = d = a[0]
    a.append(c)
    return a, b, c, d, a is b


@case((1,))
def chained_targets_reusing_a_name(x):
    x = y = x + 1
    y = x = y + 1
    return x, y


@case(*[(form[0],) for form in unary((3, 4))])
def augmented_array(x):
    y = x
    x += 1
    x *= 2
    x -= y
    return x, y, x is y


@case((ramp(3, 4, dtype="i4"),), (ramp(3, dtype="f4"),))
def augmented_casts(x):
    x += 1.5
    return x


@case(([1],), ((1,),), ("a",))
def augmented_sequences(x):
    y = x
    x += type(x)([2]) if not isinstance(x, str) else "b"
    return x, y, x is y


@case((6, 4), (6.5, 2))
def every_augmented_operator(a, b):
    c = a
    c += b
    c -= 1
    c *= b
    c /= 3
    c //= 1
    c %= 7
    c **= 2
    d = 13
    d <<= 2
    d >>= 1
    d &= 27
    d |= 64
    d ^= 3
    return c, d


@case((Point(1, 2),))
def augmented_attribute(p):
    p.x += 1
    p.y *= 3
    p.tags += ["t"]
    return p


@case(([1, 2, [3]],), ({0: 1, 1: 2, 2: [5]},))
def augmented_item(x):
    x[0] += 10
    x[1] -= 1
    x[2] += [4]
    return x


@case(loud("x", "i", "v"), loud("x", "i", ("v", 1, "add")))
def augmented_item_order(log, x, i, v):
    x[i] += v + v
    return log


@case(((1, [2]),))
def augmented_tuple_item_fails_after_the_change(x):
    x[1] += [3]
    return x


@case(loud("x", "y"))
def augmented_name_order(log, x, y):
    x += y + y
    return x


@case((Point(1),))
def attribute_stores(p):
    p.x = p.y = 5
    p.z = p.x + 1
    p.x, p.y = p.y + 1, p.x
    return p.x, p.y, p.z


@case((Point(1),), (None,), (5,))
def missing_attribute(p):
    return p.nothing


@case(loud("x", "i", "v"))
def item_store_order(log, x, i, v):
    x[i] = v + 1
    x[-i], x[v] = v, i
    return log


@case((ramp(3, 4),), (ramp(4, 3).T,))
def slice_stores(x):
    x[0] = 7
    x[:, 1] = x[:, 0] * 2
    x[1:, ::2] += 1
    x[..., -1] = 0
    x[x > 3] = -1
    x[[0, 2], [1, 2]] = 9
    return x


@case((ramp(3, 4),), (np.zeros((2, 2), np.int32),), ([1, 2],))
def whole_store(x):
    x[...] = 5
    return x


@case((ramp(3),), ([1, 2, 3],))
def aliasing(x):
    y = x[1:]
    y[0] = 100
    z = x
    z[2] = -1
    return y, z is x


@case(([1, 2, 3, 4],), native=False)
def delete_items(x):
    del x[0]
    del x[-1:], x[0]
    return x


@case((Point(1),), native=False)
def delete_attribute(p):
    p.extra = 1
    del p.extra
    return hasattr(p, "extra")


@case((1,))
def delete_name(x):
    y = x
    del x
    return y


@case((1,))
def delete_and_read(x):
    del x
    return x


@case((1,))
def delete_twice(x):
    y = 1
    del x, y
    del y


@case((3,))
def annotated(x):
    a: int = x
    b: "unknown"  # noqa: F821, UP037
    c: undefined = 5  # noqa: F821
    (d): int = 6
    return a, c, d


@case((Point(1),))
def annotated_targets(p):
    p.x: int = 3
    p.tags[0:]: list = [1]
    p.tags[0]: int
    return p


@case((2,))
def walrus(x):
    y = (z := x + 1) * z
    w = [q := x, q + 1, (q := q + 5), q]
    return y, z, w, q


@case((2,))
def walrus_changes_an_operand(x):
    a = x + (x := 10)
    b = (x, (x := x + 1), x)
    c = [x, x := 3][0]
    d = {x: (x := 4), x: x}
    e = f"{x}{(x := 5)}{x}"
    g = x < (x := 7) < x
    return a, b, c, d, e, g, x


@case((2,), (0,))
def walrus_and_or(x):
    y = x and (x := x + 1)
    z = x or (x := 5)
    return x, y, z


@case(([1, 2],))
def walrus_in_subscript(x):
    y = x[(i := 1)] + x[i - 1]
    x[i := 0] += (i := 1)
    return x, y, i


@case((5,))
def shadow_parameter(x):
    def inner(x):
        x = x + 1
        return x

    x = inner(x) + x
    return x


@case(([[1, 2], [3, 4]],))
def unpack_in_for(rows):
    out = []
    for a, b in rows:
        out.append(a * b)
    for out[0], *rest in rows:
        pass
    return out, rest, a, b


@case(([1, 2],), (5,))
def store_and_fail(x):
    x[0] = 10
    x[7] = 1
    return x


@case((np.zeros(3), ramp(3)), native=False)
def in_place_functions(x, y):
    np.add(x, y, out=x)
    return x
