"""Layouts against the strides of real arrays."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tests.operators.harness import check_layout
from tiercel.operators.layout import Layout, k_order
from tiercel.shapes import Facts, Range, Symbol, broadcast_shapes, evaluate


@st.composite
def arrays(draw: st.DrawFn, rank: int | None = None, shape: tuple[int, ...] | None = None) -> np.ndarray[Any, Any]:
    """Arrays with every kind of strides that views can have."""
    if shape is None:
        n = draw(st.integers(0, 4)) if rank is None else rank
        shape = tuple(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    order = draw(st.permutations(range(len(shape))))
    starts = [draw(st.integers(0, 1)) for _ in shape]
    steps = [draw(st.sampled_from((1, 1, 2, -1))) for _ in shape]
    broadcast = [draw(st.integers(0, 5)) == 0 and n > 0 for n in shape]
    sizes = [1 if b else n * abs(s) + a for n, s, a, b in zip(shape, steps, starts, broadcast, strict=True)]
    block = np.zeros([sizes[a] for a in order], np.int16).transpose(np.argsort(order) if order else None)
    view = block
    for axis, (n, step, b) in enumerate(zip(shape, steps, broadcast, strict=True)):
        if not b:
            view = np.moveaxis(np.moveaxis(view, axis, 0)[::step][:n], 0, axis)
    return np.broadcast_to(view, shape)


@given(arrays())
def test_layout_of_an_array_describes_it(x: np.ndarray[Any, Any]) -> None:
    check_layout(Layout.of(x), x)
    if x.flags.c_contiguous:
        assert Layout.of(x).is_c


@given(arrays(), st.data())
def test_permuting(x: np.ndarray[Any, Any], data: st.DataObject) -> None:
    axes = data.draw(st.permutations(range(x.ndim)))
    check_layout(Layout.of(x).permute(axes), x.transpose(axes))


@given(arrays(), st.data())
def test_dropping_an_axis(x: np.ndarray[Any, Any], data: st.DataObject) -> None:
    axes = [a for a in range(x.ndim) if x.shape[a] > 0]
    if axes:
        axis = data.draw(st.sampled_from(axes))
        check_layout(Layout.of(x).drop(axis), x[(slice(None),) * axis + (0,)])


@given(arrays(), st.data())
def test_cutting_an_axis(x: np.ndarray[Any, Any], data: st.DataObject) -> None:
    if x.ndim:
        axis = data.draw(st.integers(0, x.ndim - 1))
        start, step = data.draw(st.integers(0, 2)), data.draw(st.sampled_from((1, 2, -1)))
        cut = x[(slice(None),) * axis + (slice(start, None, step) if step > 0 else slice(None, None, step),)]
        check_layout(Layout.of(x).cut(axis, step_one=step == 1), cut)


@given(arrays(), st.data())
def test_inserting_an_axis(x: np.ndarray[Any, Any], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, x.ndim))
    check_layout(Layout.of(x).insert(axis), np.expand_dims(x, axis))


@given(st.lists(st.integers(0, 3), min_size=0, max_size=4).map(tuple), st.data())
def test_k_order_is_what_ufuncs_allocate(shape: tuple[int, ...], data: st.DataObject) -> None:
    operands = []
    for _ in range(data.draw(st.integers(1, 3))):
        own = [1 if data.draw(st.integers(0, 4)) == 0 else n for n in shape]
        lead = data.draw(st.integers(0, len(own)))
        operands.append(data.draw(arrays(shape=tuple(own[lead:]))))
    result_shape = np.broadcast_shapes(*(x.shape for x in operands))
    layout = k_order([(x.shape, Layout.of(x)) for x in operands], result_shape)
    real = np.nditer(
        [*operands, None], flags=["zerosize_ok"], op_dtypes=[*([None] * len(operands)), np.int16]
    ).operands[-1]
    assert layout.is_dense
    check_layout(layout, real)


def test_k_order_of_symbolic_sizes_is_right_for_every_size() -> None:
    """What is said about symbols holds for all sizes, or nothing is said."""
    layouts = [Layout.c(2), Layout.f(2)]
    symbols = [Symbol("a"), Symbol("b"), Symbol("c"), Symbol("d")]
    said = 0
    for la, lb in itertools.product(layouts, layouts):
        for names in itertools.product(range(4), repeat=2):
            first, second = (symbols[0], symbols[1]), (symbols[names[0]], symbols[names[1]])
            shape = broadcast_shapes(first, second)
            layout = k_order([(first, la), (second, lb)], shape)
            said += layout.is_known
            for sizes in itertools.product((1, 2, 3), repeat=4):
                env = dict(zip("abcd", sizes, strict=True))
                x = np.zeros([evaluate(d, env) for d in first], order=str(la))  # type: ignore[call-overload]
                y = np.zeros([evaluate(d, env) for d in second], order=str(lb))  # type: ignore[call-overload]
                try:
                    real = x + y
                except ValueError:
                    continue
                check_layout(layout, real)
    assert said > 15


def test_k_order_uses_what_is_known_of_a_size() -> None:
    a, b, n = Symbol("a"), Symbol("b"), Symbol("n")
    shape = broadcast_shapes((n, a), (n, b))
    operands = [((n, a), Layout.f(2)), ((n, b), Layout.c(2))]
    assert not k_order(operands, shape).is_known
    facts = Facts()
    facts.set_range(a, Range(2, None))
    facts.set_range(b, Range(2, None))
    # Both operands have both axes: they disagree, and C order wins.
    assert k_order(operands, shape, facts).is_c


def test_flags_with_symbolic_sizes() -> None:
    n, m = Symbol("n"), Symbol("m")
    assert Layout.c(2).flags((n, m)) == (True, None)
    assert Layout.f(2).flags((n, 1)) == (True, True)
    assert Layout.f(2).flags((n, 0)) == (True, True)
    facts = Facts()
    facts.set_range(n, Range(2, None))
    facts.set_range(m, Range(2, None))
    assert Layout.f(2).flags((n, m), facts) == (False, True)


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (Layout.c(3), "C"),
        (Layout.f(3), "F"),
        (Layout.dense((1, 0, 2)), "order 1,0,2"),
        (Layout((0, 1), 1), "order 0,1, packed 1"),
        (Layout((1, 0), 0, (0,)), "order 1,0, packed 0, zero 0"),
        (Layout.unknown(), "unknown"),
    ],
)
def test_text(layout: Layout, text: str) -> None:
    assert str(layout) == text
