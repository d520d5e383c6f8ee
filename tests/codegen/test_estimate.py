"""How much work a nest is taken for: enough for the threads where there is enough."""

from __future__ import annotations

from tests.compiler.regions import RegionBuilder, Runner
from tiercel.codegen.cpu.estimate import PARALLEL_WORK, work_of
from tiercel.loops import evaluate
from tiercel.loops.form import Block, For, Function, Output, Var


def worth(operator, count):
    """The work of an elementwise kernel on `count` elements, as its entry computes it."""
    b = RegionBuilder(operator)
    function = Runner(b.region(b.apply(operator, b.input("x", ("N",))))).lowered.function
    (nest,) = (s for s in function.body.body if isinstance(s, For))
    expression = work_of(nest, {v.name for v in function.sizes})
    asked = Function("work", function.sizes, (), (), (Var("units"),), Block((Output("units", expression),)))
    return int(evaluate(asked, {}, {v.name: count for v in function.sizes})[1]["units"])


def test_a_long_axis_in_chunks_is_not_taken_for_short():
    """The last chunk is shorter than the others, which must not make all of them 64 elements long."""
    assert worth("tanh", 500_000) > 10 * PARALLEL_WORK
    assert worth("negative", 1_000_000) > PARALLEL_WORK
    assert worth("negative", 10_000) < PARALLEL_WORK
