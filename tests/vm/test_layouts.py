"""The order of axes in memory: results of compiled functions lie as NumPy's do, for arguments in any order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.vm.at_once import jitted
from tests.vm.inline import same_but_for_strides
from tiercel.operators.layout import layout_class
from tiercel.testing import Arguments, copy_arguments, differences, observe


def floats(*shape, seed=0):
    return np.random.default_rng(sum(shape) + seed).standard_normal(shape, dtype=np.float32)


CUTS = {
    "C": floats,
    "F": lambda n, m: floats(m, n).T,
    "cut": lambda n, m: floats(n + 1, m + 3)[1:, 2:-1],
    "steps": lambda n, m: floats(2 * n, 3 * m)[::2, ::3],
    "backwards": lambda n, m: floats(n, m)[::-1, ::-1],
    "cut F": lambda n, m: floats(m + 2, n).T[:, 1:-1],
    "rows repeated": lambda n, m: np.broadcast_to(floats(m), (n, m)),
}


def elementwise(x, y):
    z = x * 2 + y
    return z, np.maximum(x, 0), x[:, 1:] - 1


def turned(x, y):
    return (x + y).T, x.T * 2, (x - y).T + 1


def folded(x, y):
    return x.sum(axis=0), x @ y.T, (x + y).reshape(-1)


def written(x, y):
    x += y
    x[1:] *= 2
    return x + 1


@pytest.mark.parametrize("function", [elementwise, turned, folded, written])
@pytest.mark.parametrize("first", CUTS)
@pytest.mark.parametrize("second", ["C", "F"])
def test_like_numpy(function, first, second):
    compiled = jitted(function)
    for n, m in ((4, 6), (4, 6), (4, 6), (7, 5), (2, 3), (1, 4), (3, 1)):
        given = Arguments((CUTS[first](n, m), CUTS[second](n, m)))
        expected = observe(function, copy_arguments(given))
        before = compiled.__tiercel__.tiers.compiled_calls
        actual = observe(compiled, copy_arguments(given))
        native = compiled.__tiercel__.tiers.compiled_calls > before
        found = differences(expected, actual, tolerance=64.0 if native else 0.0)
        found = [d for d in found if not (native and same_but_for_strides(d, expected.result))]
        assert found == [], (n, m, native)


@pytest.mark.parametrize("name", ["C", "F", "cut", "steps", "backwards"])
@pytest.mark.parametrize("function", [elementwise, turned])
def test_it_is_compiled(function, name, way):
    compiled = jitted(function)
    for n in (4, 5, 6):
        compiled(CUTS[name](n, 6), CUTS[name](n, 6))
    tiers = compiled.__tiercel__.tiers
    assert tiers.compiled_calls, compiled.explain()
    assert way == "python" or not tiers.entries[0].without


def test_each_layout_is_a_signature_of_its_own():
    compiled = jitted(elementwise)
    for cut in CUTS.values():
        for _ in range(3):
            compiled(cut(4, 6), floats(4, 6))
    assert {key[0][2] for key in compiled.__tiercel__.tiers.signatures} == {"C", "F", "rows", "any"}


def test_the_stub_and_python_tell_the_same_layouts_apart():
    compiled = jitted(lambda x: x * 2)
    cut = CUTS["cut"]
    for _ in range(3):
        compiled(cut(4, 6))
    (entry,) = compiled.__tiercel__.tiers.entries
    rng = np.random.default_rng(0)
    for _ in range(200):
        whole = floats(*rng.integers(1, 5, 2))
        x = whole[:: rng.choice([-2, -1, 1, 2]), :: rng.choice([-1, 1, 3])]
        x = x.T if rng.integers(2) else x
        took = (entry.stub or entry.run)(*((x,) if entry.stub else ((x,),)))
        assert (type(took) is np.ndarray) == (layout_class(x) in ("C", "rows")), (x.shape, x.strides)


def test_a_reshape_that_may_copy_has_a_base_of_the_new_shape():
    """A row of docs/semantics.md: NumPy's base is the copy in the old shape."""

    def f(x):
        return (x * 2).T.reshape(-1)

    compiled = jitted(f)
    for _ in range(3):
        found = compiled(floats(4, 6))
    assert compiled.__tiercel__.tiers.compiled_calls
    assert not found.flags.owndata
    assert (found.base.shape, f(floats(4, 6)).base.shape) == ((24,), (6, 4))


def new_axes_between(x, y):
    return x[:, None, :] * y[None], x[:, 0, None] + y, np.exp(x[..., None]) * y[0], y[::-1, None] * x[:, None, ::-1]


@pytest.mark.parametrize("name", ["C", "cut", "steps", "backwards"])
def test_new_axes_and_steps_have_an_order(name):
    compiled = jitted(new_axes_between)
    for n, m in ((4, 6), (4, 6), (4, 6), (7, 5), (1, 3), (3, 1)):
        given = Arguments((CUTS[name](n, m), CUTS[name](n, m)))
        expected = observe(new_axes_between, copy_arguments(given))
        found = differences(expected, observe(compiled, copy_arguments(given)), tolerance=64.0)
        assert [d for d in found if not same_but_for_strides(d, expected.result)] == [], (n, m)
    assert compiled.__tiercel__.tiers.compiled_calls, compiled.explain()


def heads(x):
    """Results whose axes lie in an order that is neither C's nor Fortran's."""
    h = x.reshape(x.shape[0], x.shape[1], 2, 3).transpose(0, 2, 1, 3)
    y = np.exp(h) * 2
    return y, (y + 1).transpose(0, 2, 1, 3), h - 1, (h * h)[:, :, None], (h > 0)


def swapped(x):
    y = x.swapaxes(0, 1)
    return y + 1, np.maximum(y, 0).T, -np.moveaxis(x, -1, 0)


def either_order(x):
    y = np.moveaxis(x, 0, 1) * 2
    if x.sum() > 0:
        y = y + 1
    return y


@pytest.mark.parametrize("function", [heads, swapped, either_order], ids=lambda f: f.__name__)
def test_results_in_any_order(function, way):
    compiled = jitted(function)
    for n, t in ((2, 4), (2, 4), (2, 4), (5, 3), (1, 2), (3, 1), (0, 2)):
        given = Arguments((floats(n, t, 6),))
        expected = observe(function, copy_arguments(given))
        found = differences(expected, observe(compiled, copy_arguments(given)), tolerance=64.0)
        assert [d for d in found if not same_but_for_strides(d, expected.result)] == [], (n, t)
    tiers = compiled.__tiercel__.tiers
    assert tiers.compiled_calls > 3, compiled.explain()
    assert way == "python" or not tiers.entries[0].without
