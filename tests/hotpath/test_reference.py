"""Region graphs run by NumPy, and disturbed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.regions import RegionBuilder
from tests.hotpath.programs import EXAMPLES, compiled, random
from tiercel.compiler.graph import Guard
from tiercel.hotpath.reference import (
    Budget,
    Conditions,
    Left,
    Noise,
    OverBudget,
    ReferenceFault,
    evaluate_region,
    is_exact,
)
from tiercel.shapes import Symbol


def sizes_of(made, arguments):
    sizes = {}
    for spec, value in zip(made.runner.lowered.interface.inputs, arguments, strict=True):
        dims = zip(spec.dims, np.shape(value), strict=True) if spec.kind == "array" else [(spec.value, value)]
        sizes.update({d.name: n for d, n in dims if isinstance(d, Symbol)})
    return sizes


def run(made, arguments, **options):
    conditions = Conditions(**{"budget": Budget(10), **options})
    return evaluate_region(made.region, arguments, sizes_of(made, arguments), conditions)


def handed_over(result, leaves, arguments):
    """The leaves of a result; of an array and the number of an input, the one that is handed over."""
    if result.what == "tuple":
        for item in result.items:
            yield from handed_over(item, leaves, arguments)
    elif result.what == "either":
        made, number = next(leaves), next(leaves)
        yield made if number < 0 else arguments[number]
    else:
        yield next(leaves)


@pytest.mark.parametrize("name", EXAMPLES)
def test_regions_give_what_python_gives(name):
    function, arguments = EXAMPLES[name]
    want = function(*arguments)
    got = run(compiled(name), arguments)
    (result,) = compiled(name).region.exits["return"].values()
    got = list(handed_over(result, iter(got), arguments))
    want = want if isinstance(want, tuple) else (want,)
    for g, w in zip(got, want, strict=True):
        assert type(g) is type(w)
        assert np.asarray(g).dtype == np.asarray(w).dtype
        np.testing.assert_array_equal(g, w)


def test_what_is_exact():
    assert is_exact(compiled("rows").region.graph)
    assert not is_exact(compiled("steps").region.graph)
    assert not is_exact(compiled("chain").region.graph)


def test_noise_moves_results_a_little_and_never_exact_ones():
    function, arguments = EXAMPLES["softmax"]
    made, want = compiled("softmax"), function(*arguments)
    for noise in (Noise(None, 1.0), Noise(None, -1.0), Noise(np.random.default_rng(0), 1.0)):
        (got,) = run(made, arguments, noise=noise)
        assert got.dtype == want.dtype
        assert 0 < np.abs(got - want).max() < 1e-5
    _, arguments = EXAMPLES["rows"]
    (got,) = run(compiled("rows"), arguments, noise=Noise(None, 4.0))
    np.testing.assert_array_equal(got, run(compiled("rows"), arguments)[0])


def test_noise_leaves_special_values():
    noise = Noise(None, 1.0)
    x = np.array([np.inf, -np.inf, np.nan, 0.0], np.float32)
    np.testing.assert_array_equal(noise.moved(x, 2.0), x)
    assert noise.moved(np.arange(3), 2.0).tolist() == [0, 1, 2]
    assert type(noise.moved(np.float32(1), 2.0)) is np.float32


def test_exceptions_and_guards_leave():
    made = compiled("rows")
    with pytest.raises(Left, match="beyond the end"):
        run(made, (random(2, 3), 4))
    b = RegionBuilder()
    x = b.input("x", ("n",))
    total = b.apply("sum", x)
    b.steps.append(Guard(b.apply("greater", total, 0.0), "too small", 17))
    region = b.region(b.apply("exp", x))
    assert len(evaluate_region(region, [np.ones(3, np.float32)], {"n": 3}, Conditions(Budget(1)))) == 1
    with pytest.raises(Left, match="too small") as caught:
        evaluate_region(region, [-np.ones(3, np.float32)], {"n": 3}, Conditions(Budget(1)))
    assert caught.value.origin == 17


def test_loops_end_by_budget():
    made = compiled("doubling")
    with pytest.raises(OverBudget):
        run(made, (np.full((3, 4), -1.0, np.float32),))  # -1 * 2 + 1 stays -1
    with pytest.raises(OverBudget):
        run(made, (np.zeros((3, 4), np.float32),), budget=Budget(-1))


def test_warnings_are_noted():
    made, warned = compiled("masked"), set()
    run(made, (np.array([[np.inf, 1]], np.float32), 0.5), warned=warned)
    assert warned == set()
    b = RegionBuilder()
    x = b.input("x", ("n",))
    region = b.region(b.apply("log", x))
    evaluate_region(region, [np.array([-1, 0], np.float32)], {"n": 2}, Conditions(Budget(1), warned=warned))
    assert warned == {"invalid value", "divide by zero"}


def test_a_graph_that_lies_is_noticed():
    b = RegionBuilder()
    x = b.input("x", ("n",))
    b.apply("exp", x)
    wrong = b.value(b.input("z", ("n",), "float64").type)
    step = b.steps[-1]
    b.steps[-1] = type(step)(step.operator, step.inputs, step.attributes, (wrong,), step.origin)
    region = b.region(wrong)
    with pytest.raises(ReferenceFault, match="should be float64"):
        evaluate_region(region, [np.ones(3, np.float32), np.ones(3)], {"n": 3}, Conditions(Budget(1)))


def test_operators_over_sequences():
    b = RegionBuilder()
    x, y = b.input("x", ("n", 2)), b.input("y", ("m", 2))
    region = b.region(b.apply("concat", x, y, axis=0))
    values = [random(3, 2), random(4, 2)]
    (got,) = evaluate_region(region, values, {"n": 3, "m": 4}, Conditions(Budget(1)))
    np.testing.assert_array_equal(got, np.concatenate(values))
