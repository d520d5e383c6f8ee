"""Writes that need no copy of the array: which they are, and that nobody can tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tiercel as tc
from tests.compiler.regions import RegionBuilder, Runner
from tests.compiler.tracing import Compiled, compare
from tiercel.compiler.graph import Branch, Loop, Node, Region, steps
from tiercel.compiler.graph_check import IllFormedGraph, check_region
from tiercel.compiler.passes import prepare


def random(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape, dtype=np.float32)


SIZES = [(5, 4), (1, 3), (2, 1), (7, 7)]


def writes(compiled):
    """(in place, copied) writes of the prepared graph."""
    nodes = [s for s in steps(prepare(compiled.region).graph) if isinstance(s, Node) and s.operator == "index_put"]
    return sum(n.writes is not None for n in nodes), sum(n.writes is None for n in nodes)


def rows(x):
    out = np.zeros(x.shape, np.float32)
    for t in range(x.shape[0]):
        out[t] = np.tanh(x[t])
    return out


def running_sum(x):
    out = np.zeros(x.shape, np.float32)
    out[0] = x[0]
    for t in range(1, x.shape[0]):
        out[t] = out[t - 1] + x[t]
    return out


def columns_added_to(x):
    out = x * 2
    for t in range(x.shape[1]):
        out[:, t] += x[:, 0]
    return out


def single_elements(x):
    out = np.zeros(x.shape, np.float32)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * i + j
    return out


def in_an_arm(x):
    out = x + 0
    for t in range(x.shape[0]):
        if x[t].sum() > 0:
            out[t] = 0
    return out


def in_both_arms(x):
    out = x + 0
    for t in range(x.shape[0]):
        if x[t].sum() > 0:
            out[t] = 0
        else:
            out[t] += 1
            out[0] = 2
    return out, x.sum()


def in_a_while_loop(x):
    out = x + 0
    t = 0
    while t < x.shape[0] and out[0].max() > 0:
        out[0] -= 1
        t = t + 1
    return out


def two_arrays(x):
    a = np.zeros(x.shape, np.float32)
    b = np.ones(x.shape, np.float32)
    for t in range(x.shape[0]):
        a[t] = b[t] + x[t]
        b[t] = a[t] * 2
    return a, b


def beside_a_state(x):
    h = x[0] * 0
    out = np.empty(x.shape, np.float32)
    for t in range(x.shape[0]):
        h = np.tanh(h + x[t])
        out[t] = h
    return out, h


def not_in_a_loop(x):
    out = x * 2
    out[0] = 1
    out[:, 0] = 3
    return out


def read_before_and_after(x):
    out = x * 2
    total = out.sum()
    for t in range(x.shape[0]):
        total = total + out[t].max()
        out[t] = x[t] * 3
        total = total + out[t].max()
    return total, out


IN_PLACE = [
    rows, running_sum, columns_added_to, single_elements, in_an_arm, in_both_arms, in_a_while_loop, two_arrays,
    beside_a_state, not_in_a_loop, read_before_and_after,
]  # fmt: skip


@pytest.mark.parametrize("function", IN_PLACE)
def test_in_place(function):
    compiled = compare(function, *[(random(*s),) for s in SIZES])
    in_place, copied = writes(compiled)
    assert in_place
    assert not copied


def test_no_pass_copies_the_array():
    compiled = compare(rows, (random(5, 4),))
    (loop,) = [s for s in steps(prepare(compiled.region).graph) if isinstance(s, Loop)]
    assert [c.in_place for c in loop.carried] == [True]


def old_version_is_kept(x):
    out = x * 1
    before = x * 1
    for t in range(x.shape[0]):
        before = out + 0
        out[t] = 0
    return before, out


def two_names_one_array(x):
    a = x * 1
    kept = a
    for t in range(x.shape[0]):
        a = a * 1
        a[t] = kept[t] * 2
    return a, kept + 0


def begins_with_what_is_needed_later(x):
    base = x * 2
    a = base * 1
    for t in range(x.shape[0]):
        a = base * 1
        a[t] = 0
    return a + base


def overlapping(x):
    out = x * 1
    for t in range(x.shape[0]):
        out[t] = out[x.shape[0] - 1 - t]
    return out


def whole_from_part(x):
    out = x * 1
    for t in range(x.shape[0]):
        out[:] = out[t]
    return out


def gathered(x):
    out = x * 1
    kept = []
    for t in range(x.shape[0]):
        out[t] = 0
        kept.append(out * 1)
    return np.stack(kept)


def one_version_per_loop(x):
    a = x * 1
    for t in range(x.shape[0]):
        a[t] = 1
    b = a * 1
    for t in range(x.shape[0]):
        b[t] = a[0] + 1
    return a, b


def used_in_the_header(x):
    out = x * 1
    row = out.max()
    while row > 0:
        row = out.max()
        out[0] = out[0] - 1
        out[...] = out - 0.5
    return out, row


@pytest.mark.parametrize(
    "function",
    [
        old_version_is_kept, two_names_one_array, begins_with_what_is_needed_later,
        overlapping, whole_from_part, gathered, one_version_per_loop, used_in_the_header,
    ],
)  # fmt: skip
def test_like_python_whatever_is_in_place(function):
    compare(function, *[(random(*s),) for s in SIZES])


@pytest.mark.parametrize("function", [rows, beside_a_state])
def test_strided_arguments(function):
    compare(function, (random(10, 8)[::2, ::2],), (random(6, 6)[::2, ::2],))
    if function is rows:
        compare(function, (random(4, 5).T,))


def test_an_argument_is_copied_once_and_written_at_the_end():
    def f(x):
        for t in range(x.shape[0]):
            x[t] = x[t - 1] + 1
        return x.sum()

    function = tc.jit(f)
    function.warmup(random(5, 4))
    assert function.stats()["kernels"] == 1
    for size in SIZES:
        ours, plain = random(*size), random(*size)
        np.testing.assert_allclose(function(ours), f(plain), rtol=1e-5)
        np.testing.assert_array_equal(ours, plain)
    region = Compiled(f, random(5, 4)).region
    loop = next(s for s in steps(prepare(region).graph) if isinstance(s, Loop))
    assert [c.in_place for c in loop.carried] == [True]
    assert loop.carried[0].initial is not region.inputs[0].value


def test_a_loop_that_does_not_run():
    compiled = compare(rows, (random(3, 4),))
    assert compiled(random(0, 4)).shape == (0, 4)
    compiled = compare(columns_added_to, (random(3, 4),))
    np.testing.assert_array_equal(compiled(random(3, 0)), np.zeros((3, 0)))


@pytest.mark.parametrize("later", ["the array", "a view", "a result", "what is written", "nothing"])
def test_an_old_version_that_is_needed_is_kept(later):
    """Python code cannot name an old version, but a pass may leave a use of one."""
    b = RegionBuilder(later.replace(" ", "_"))
    x = b.input("x", ("N", "M"))
    old = b.apply("multiply", x, 2.0)
    view = b.apply_index(old, (0,))
    row = view if later == "what is written" else b.apply_index(x, (1,))
    new = b.value(old.type)
    b.steps.append(Node("index_put", (old, row), {"indices": (0, Ellipsis)}, (new,), len(b.steps)))
    used = {"the array": old, "a view": view, "a result": x, "what is written": x, "nothing": x}[later]
    total = b.apply("sum", used, axis=None)
    region = b.region(new, total, *([old] if later == "a result" else []))
    (put,) = [s for s in prepare(region).graph.steps if isinstance(s, Node) and s.operator == "index_put"]
    assert (put.writes is not None) == (later == "nothing")
    given = random(3, 4)
    got = Runner(region)(given)
    want = given * 2
    totals = {"the array": want.sum(), "a view": want[0].sum()}
    np.testing.assert_allclose(got[1], totals.get(later, given.sum()), rtol=1e-5)
    if later == "a result":
        np.testing.assert_array_equal(got[2], given * 2)
    want[0] = want[0] if later == "what is written" else given[1]
    np.testing.assert_array_equal(got[0], want)


def test_by_an_array_of_positions():
    def f(x, i):
        out = np.zeros(x.shape, np.float32)
        for t in range(x.shape[0]):
            out[t] = 1
            out[i] = out[i] + x[i] * t
        return out

    compiled = compare(f, *[(random(n, 4), np.arange(n)[::2].copy()) for n in (5, 1, 8)])
    assert writes(compiled) == (2, 0)


# --- the checker ---


def marked(function):
    """A region with its writes in place, and the steps that say so."""
    region = prepare(compare(function, (random(5, 4),)).region)
    return region, region.graph.steps


def rebuilt(region: Region, old, new) -> Region:
    swap = tuple(new if s is old else s for s in region.graph.steps)
    return replace(region, graph=replace(region.graph, steps=swap))


def test_checker_sees_a_loop_that_hands_on_another_storage():
    region, all_steps = marked(two_arrays)
    loop = next(s for s in all_steps if isinstance(s, Loop))
    first, second = loop.carried[:2]
    crossed = replace(loop, carried=(replace(first, next=second.next), replace(second, next=first.next)))
    with pytest.raises(IllFormedGraph, match="is not in the storage of"):
        check_region(rebuilt(region, loop, crossed))


def test_checker_sees_a_branch_that_hands_on_another_storage():
    def f(x):
        out = x + 0
        if x.sum() > 0:
            out[0] = 1
        return out

    region, all_steps = marked(f)
    branch = next(s for s in all_steps if isinstance(s, Branch))
    (merged,) = branch.merged
    assert merged.in_place
    other = next(v for s in all_steps if isinstance(s, Node) for v in s.outputs if v.type == merged.orelse.type)
    assert other is merged.orelse
    with pytest.raises(IllFormedGraph, match="storage"):
        check_region(rebuilt(region, branch, replace(branch, merged=(replace(merged, orelse=region.inputs[0].value),))))


def test_checker_sees_a_view_that_is_read_afterwards():
    region, all_steps = marked(not_in_a_loop)
    put = next(s for s in all_steps if isinstance(s, Node) and s.writes is not None)
    late = Node("sum", (put.inputs[0],), {"axis": None}, (replace(put.outputs[0], number=99_999),), 0)
    broken = replace(region, graph=replace(region.graph, steps=(*all_steps, late)))
    with pytest.raises(IllFormedGraph, match="storage was taken over"):
        check_region(broken)
