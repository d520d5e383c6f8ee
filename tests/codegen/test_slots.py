"""Arena buffers that share memory: never two that are in use at once, and results are the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.native import build, call
from tiercel.codegen.cpu.emit import used_names
from tiercel.codegen.cpu.slots import intervals, plan_slots
from tiercel.dtypes import float32
from tiercel.loops import evaluate
from tiercel.loops.form import (
    Allocate,
    Binary,
    Block,
    Buffer,
    Compare,
    For,
    Function,
    If,
    Load,
    Stmt,
    Store,
    Var,
    const,
)

N = Var("N")
X = Buffer("x", float32, (N,))
Y = Buffer("y", float32, (N,), space="result")


def roots(stmts):
    return used_names(stmts)[1]


def arena(name: str, extent=N) -> Buffer:
    return Buffer(name, float32, (extent,), space="arena")


def along(target: Buffer, value, axis: str = "vector", name: str = "j") -> For:
    return For(name, N, Block((Store(target, (Var(name),), value(Var(name))),)), axis)


def plus(source: Buffer, number: float):
    return lambda j: Binary("add", Load(source, (j,)), const(number, float32))


def function(*stmts: Stmt) -> Function:
    return Function("f", (N,), (), (X, Y), (), Block(stmts))


def chain(length: int) -> Function:
    """x + 1 + 1 + ..., each sum in a buffer of its own."""
    stmts: list[Stmt] = []
    last = X
    for number in range(length):
        buffer = arena(f"t{number}")
        stmts += [Allocate(buffer), along(buffer, plus(last, 1.0))]
        last = buffer
    return function(*stmts, along(Y, plus(last, 1.0)))


def overlaps(body: Block) -> list[tuple[str, str]]:
    """Pairs in one slot that are in use at once."""
    plan, found = plan_slots(body, roots), intervals(body, roots)
    return [
        (a.name, b.name)
        for i, a in enumerate(found)
        for b in found[i + 1 :]
        if plan.of[a.name] == plan.of[b.name] and a.first <= b.last and b.first <= a.last
    ]


def test_a_chain_takes_two_slots():
    assert plan_slots(chain(9).body, roots).count == 2
    assert overlaps(chain(9).body) == []


def test_a_buffer_used_once_more_later_keeps_its_place():
    t, u, v = arena("t"), arena("u"), arena("v")
    body = function(
        Allocate(t), along(t, plus(X, 1)), Allocate(u), along(u, plus(t, 1)), Allocate(v), along(v, plus(u, 1)),
        along(Y, lambda j: Binary("add", Load(t, (j,)), Load(v, (j,)))),
    ).body  # fmt: skip
    assert plan_slots(body, roots).count == 3


def test_a_view_keeps_what_it_looks_into():
    t, u = arena("t"), arena("u")
    view = Buffer("view", float32, (N,), (const(1),), "arena", "t", const(0))
    body = function(
        Allocate(t), along(t, plus(X, 1)), Allocate(view), Allocate(u), along(u, plus(X, 2)), along(Y, plus(view, 1)),
    ).body  # fmt: skip
    plan = plan_slots(body, roots)
    assert plan.of["t"] != plan.of["u"]


def test_what_passes_hand_to_one_another_stays():
    """`t` is read at the beginning of a pass and written at its end; `u` is allocated between."""
    t, u = arena("t"), arena("u")
    passes = Block((along(Y, plus(t, 0)), Allocate(u), along(u, plus(X, 1)), along(Y, plus(u, 1))))
    body = function(Allocate(t), along(t, plus(X, 1)), For("i", const(3), passes)).body
    plan = plan_slots(body, roots)
    assert plan.of["t"] != plan.of["u"]


def test_arms_of_a_branch_share():
    t, u = arena("t"), arena("u")
    arms = [Block((Allocate(b), along(b, plus(X, 1)), along(Y, plus(b, 1)))) for b in (t, u)]
    body = function(If(Compare("gt", N, const(3)), *arms)).body
    assert plan_slots(body, roots).count == 1


def test_a_name_allocated_twice_is_one_buffer():
    t, u = arena("t"), arena("u")
    again = (Allocate(t), along(t, plus(X, 1)), along(Y, plus(t, 1)))
    body = function(*again, Allocate(u), along(u, plus(X, 1)), along(Y, plus(u, 1)), *again).body
    plan = plan_slots(body, roots)
    assert plan.of["t"] != plan.of["u"]


@pytest.mark.parametrize("length", [1, 2, 7])
def test_results_are_the_evaluator_s(length):
    made = chain(length)
    code = build(made)
    for n in (0, 1, 33, 1000):
        x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        arrays = {"x": x, "y": np.zeros(n, np.float32)}
        call(code, made, arrays, {"N": n})
        np.testing.assert_allclose(arrays["y"], x + (length + 1), rtol=1e-5)


def test_the_threads_memory_is_shared_between_axes():
    """Two parallel axes whose rows need scratch: one slot, as large as the larger of them."""

    def rows(number: int, target: Buffer) -> For:
        scratch = arena(f"scratch{number}", Binary("mul", N, const(number)))
        inside = (Allocate(scratch), along(scratch, plus(X, number)), along(target, plus(scratch, 1)))
        return For(f"i{number}", const(2), Block(inside), "parallel")

    made = function(rows(1, Y), rows(3, Y))
    assert plan_slots(made.body, roots).count == 1
    arrays = {"x": np.ones(50, np.float32), "y": np.zeros(50, np.float32)}
    call(build(made), made, arrays, {"N": 50})
    assert (arrays["y"] == 5).all()


# --- any program ---


@st.composite
def programs(draw) -> Function:
    """Buffers of several sizes, written from those at hand, in loops and branches."""
    count = 0

    def block(known: list[Buffer], depth: int) -> tuple[Stmt, ...]:
        nonlocal count
        known, stmts = list(known), []
        for _ in range(draw(st.integers(1, 4))):
            kind = draw(
                st.sampled_from(["new", "new", "write", "loop", "branch"] if depth else ["new", "new", "write"])
            )
            source = draw(st.sampled_from(known))
            count += 1
            if kind == "new":
                buffer = arena(f"t{count}", Binary("mul", N, const(draw(st.integers(1, 3)))))
                axis = draw(st.sampled_from(["vector", "parallel", "serial"]))
                stmts += [Allocate(buffer), along(buffer, plus(source, float(count)), axis, f"j{count}")]
                known.append(buffer)
            elif kind == "write":
                target = draw(st.sampled_from([b for b in known if b is not X]))
                stmts.append(along(target, plus(source, float(count)), "vector", f"j{count}"))
            elif kind == "loop":
                stmts.append(For(f"i{count}", const(draw(st.integers(0, 3))), Block(block(known, depth - 1))))
            else:
                taken = Compare("gt", N, const(draw(st.sampled_from([0, 5, 1000]))))
                stmts.append(If(taken, Block(block(known, depth - 1)), Block(block(known, depth - 1))))
        return tuple(stmts)

    start = arena("t0")
    body = (Allocate(start), along(start, plus(X, 0.5)), along(Y, plus(X, 0.25)))
    return function(
        *body, *block([X, Y, start], 2), along(Y, lambda j: Binary("add", Load(Y, (j,)), Load(start, (j,))))
    )


@settings(max_examples=40, deadline=None)
@given(made=programs())
def test_no_two_in_use_share_a_slot(made):
    assert overlaps(made.body) == []


@settings(max_examples=40, deadline=None)
@given(made=programs())
def test_any_program_computes_the_same(made):
    n = 7
    x = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    arrays = {"x": x, "y": np.zeros(n, np.float32)}
    wanted = {"x": x.copy(), "y": np.zeros(n, np.float32)}
    evaluate(made, wanted, {"N": n})
    call(build(made), made, arrays, {"N": n})
    np.testing.assert_array_equal(arrays["y"], wanted["y"])
