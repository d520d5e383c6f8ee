"""Region graphs as text, and what the checker of graphs refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.compiler.tracing import Compiled
from tiercel.compiler.graph import Branch, Carried, Graph, Guard, Input, Loop, Merged, Node, Region, Result, Value
from tiercel.compiler.graph_check import IllFormedGraph, check_region
from tiercel.compiler.graph_text import region_text
from tiercel.dtypes import as_dtype
from tiercel.operators.layout import Layout
from tiercel.operators.types import ArrayType, NpScalarType, PyBoolType, PyIntType
from tiercel.shapes import Facts, Symbol


def everything(x, w, n):
    """A counted loop with a list, a while loop, a branch, a guard, keyword attributes, a tuple with an argument."""
    rows = []
    h = x[0] * 0
    for t in range(n):
        h = np.tanh(x[t] @ w + h)
        rows.append(h)
    y = np.stack(rows, axis=1)
    while y.max() > 1:
        y = y * 0.5
    y = y.mean(axis=-1, keepdims=True) if n > 2 else y.sum(axis=1)[:, None]
    return y, (x, n, "done")


def test_region_text(golden):
    x = np.ones((4, 6), np.float32)
    golden(region_text(Compiled(everything, x, np.ones((6, 6), np.float32), 4).region))


def test_values_of_one_name_are_told_apart():
    type_ = PyBoolType()
    first, second = Value(0, type_, "b"), Value(1, type_, "b")
    graph = Graph((Node("logical_not", (first,), {}, (second,), 0),))
    region = Region("r", 0, 0, (Input(first, ("register", 0)),), graph, {"return": {"return": Result("none")}}, Facts())
    assert "%b.1: bool = logical_not(%b)" in region_text(region)


# ---- the checker ---------------------------------------------------------------------------------------------------

N = Symbol("n", "input")
FLOAT = ArrayType(as_dtype("float32"), (N,), Layout.c(1))
BOOL = NpScalarType(as_dtype("bool"))
X = Value(0, FLOAT, "x")
C = Value(1, PyBoolType(), "c")
Y, Z, B = Value(2, FLOAT, "y"), Value(3, FLOAT, "z"), Value(4, BOOL, "b")
EXP = Node("exp", (X,), {}, (Y,), 0)
EXP_AGAIN = Node("exp", (Y,), {}, (Value(5, FLOAT),), 1)


def region(*steps, result=None):
    inputs = (Input(X, ("register", 0)), Input(C, ("register", 1)))
    return Region("r", 0, 0, inputs, Graph(steps), {"return": {"return": result or Result("none")}}, Facts())


def loop(body, carried=(), **changes):
    index = Value(50, PyIntType(Symbol("t", "scalar")), "t")
    return replace(Loop(N, index, None, None, Graph(tuple(body)), tuple(carried), (), 3), **changes)


def test_a_well_formed_region_is_given_back():
    good = region(EXP, result=Result("value", value=Y))
    assert check_region(good) is good


INT8 = Value(60, ArrayType(as_dtype("int8"), (N,), Layout.c(1)))
FREE = Value(61, ArrayType(as_dtype("float32"), (Symbol("m", "input"),), Layout.c(1)))
T_SIZED = Value(62, ArrayType(as_dtype("float32"), (Symbol("t", "scalar"),), Layout.c(1)))
INSIDE, AFTER, NEXT = Value(70, FLOAT, "inside"), Value(71, FLOAT, "after"), Value(72, FLOAT, "next")
CARRIED = Carried(X, INSIDE, NEXT, AFTER)
STEP = Node("exp", (INSIDE,), {}, (NEXT,), 0)


@pytest.mark.parametrize(
    ("steps", "result", "reason"),
    [
        ((Node("exp", (Y,), {}, (Z,), 0),), None, "exp @0: %y .* used before it is defined"),
        ((EXP, EXP), None, "%y is defined twice"),
        ((Node("exp", (X,), {}, (X,), 0),), None, "%x is defined twice"),
        ((Node("no_such", (X,), {}, (Y,), 0),), None, "no operator of this name"),
        ((Node("exp", (X,), {}, (), 0),), None, "without results"),
        ((Node("index", (X,), {"key": (slice(Y, None),)}, (Z,), 0),), None, "%y .* before it is defined"),
        ((Node("exp", (X,), {}, (Value(9, None),), 0),), None, "no type a graph may hold"),
        ((Node("exp", (X,), {}, (FREE,), 0),), None, "speaks of m, which nothing binds"),
        ((Guard(X, "why", 0),), None, "the condition %x is a float32"),
        ((EXP, Node("exp", (Y,), {}, (Z,), 0, writes=0), EXP_AGAIN), None, "its storage was taken"),
        ((Node("exp", (X,), {}, (Y,), 0, writes=0),), None, "an input, and its memory somebody else's"),
        ((Node("exp", (X,), {}, (INT8,), 0, writes=0),), None, "in the storage of"),
        ((Node("exp", (X,), {}, (Y,), 0, writes=3),), None, "it writes operand 3 of 1"),
        ((Branch(C, Graph((EXP,)), Graph(()), (), 0),), Result("value", value=Y), "cannot be seen from here"),
        ((Branch(C, Graph((EXP,)), Graph(()), (Merged(Y, Y, Z),), 0),), None, "cannot be seen from here"),
        ((Branch(C, Graph(()), Graph(()), (Merged(X, C, Z),), 0),), None, "%c is a bool, %z a float32"),
        ((loop([EXP]),), Result("value", value=Y), "cannot be seen from here"),
        ((loop([STEP], [CARRIED]),), Result("value", value=INSIDE), "cannot be seen from here"),
        ((loop([], [CARRIED]),), None, "%next .* before it is defined"),
        ((loop([STEP], [replace(CARRIED, next=C)]),), None, "%c is a bool"),
        ((loop([], trip=None),), None, "either a trip count"),
        ((loop([], trip=Symbol("m", "input")),), None, "the size m"),
        ((loop([], header=Graph(()), condition=C),), None, "either a trip count"),
        ((loop([Node("exp", (X,), {}, (T_SIZED,), 0)]),), Result("value", value=T_SIZED), "cannot be seen"),
        ((), Result("input", index=2), "input 2 of 2"),
        ((), Result("tuple", items=(Result("none"), Result("value"))), "item 1: a result without a value"),
        ((EXP, "a step"), None, "a step that is a str"),
    ],
)
def test_what_the_checker_refuses(steps, result, reason):
    with pytest.raises(IllFormedGraph, match=reason):
        check_region(region(*steps, result=result))


def test_sizes_and_counters_are_bound_where_they_are_seen():
    of_counter = Node("exp", (X,), {}, (T_SIZED,), 0)
    check_region(region(loop([of_counter])))
    with pytest.raises(IllFormedGraph, match="t, which nothing binds"):
        check_region(region(of_counter))
    data = Value(63, ArrayType(as_dtype("float32"), (Symbol("u0", "data"),), Layout.c(1)))
    made = Node("exp", (X,), {}, (data,), 0)
    check_region(region(made, result=Result("value", value=data)))


def test_while_loops_see_the_header_in_the_body():
    header = Graph((Node("exp", (INSIDE,), {}, (Y,), 0), Node("any", (C,), {}, (B,), 1)))
    body = Graph((Node("exp", (Y,), {}, (NEXT,), 2),))
    check_region(region(Loop(None, None, header, B, body, (CARRIED,), (), 0), result=Result("value", value=AFTER)))
