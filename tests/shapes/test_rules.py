from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiercel.errors import ShapeError
from tiercel.shapes import (
    DimLike,
    Facts,
    Symbol,
    arange_dim,
    broadcast_shapes,
    concat_dim,
    conv_dim,
    evaluate,
    normalize_axes,
    normalize_axis,
    parse_dim,
    slice_dim,
    solve_reshape,
    symbols_of,
)

B, T, N = Symbol("B"), Symbol("T"), Symbol("N")
K = Symbol("k", "scalar")


def symbolic(draw: st.DrawFn, shape: tuple[int, ...], env: dict[str, int]) -> tuple[DimLike, ...]:
    """shape with some sizes replaced by symbols or expressions that have these sizes under env (which is extended)."""
    out: list[DimLike] = []
    for size in shape:
        kind = draw(st.sampled_from(["static", "symbol", "same", "shifted"]))
        known = [name for name, value in env.items() if value == size]
        if kind == "static":
            out.append(size)
        elif kind == "same" and known:
            out.append(Symbol(draw(st.sampled_from(known))))
        else:
            name = f"n{len(env)}"
            if kind == "shifted" and size >= 2:
                env[name] = size - 2
                out.append(Symbol(name) + 2)
            else:
                env[name] = size
                out.append(Symbol(name))
    return tuple(out)


def values(shape: tuple[DimLike, ...], env: dict[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(dim, env) for dim in shape)


def message_of(call: Callable[..., object], *args: object) -> str | None:
    """What the ValueError says that `call(*args)` raises; None if it raises none."""
    try:
        call(*args)
    except ValueError as error:
        return str(error)
    return None


# --- Broadcasting ----------------------------------------------------------------------------------------------------


@given(st.data())
def test_broadcast_is_numpys(data: st.DataObject) -> None:
    """Any mix of static and symbolic sizes, 0 and 1 included, and with facts that hold."""
    base = data.draw(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4))
    shapes, symbolic_shapes = [], []
    env: dict[str, int] = {}
    for _ in range(data.draw(st.integers(1, 4))):
        rank = data.draw(st.integers(0, len(base)))
        shape = tuple(data.draw(st.sampled_from([n, n, 1])) for n in base[len(base) - rank :])
        if data.draw(st.integers(0, 9)) == 0:
            shape = tuple(data.draw(st.integers(0, 3)) for _ in shape)
        shapes.append(shape)
        symbolic_shapes.append(symbolic(data.draw, shape, env))
    facts = None
    if data.draw(st.booleans()):
        facts = Facts()
        for name, value in env.items():
            facts.constrain(
                data.draw(st.sampled_from([f"{name} >= 0", f"{name} <= {value + 1}", f"{name} >= {value}"]))
            )
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        try:
            out = broadcast_shapes(*symbolic_shapes, facts=facts)
        except ShapeError:
            return
        # Not seen to be illegal: then some size is symbolic.
        assert any(symbols_of(dim) for shape in symbolic_shapes for dim in shape), out
        return
    assert values(broadcast_shapes(*symbolic_shapes, facts=facts), env) == expected


def test_broadcast_examples() -> None:
    assert broadcast_shapes((B, T, 1, 768), (T, 5, 1)) == (B, T, 5, 768)
    assert broadcast_shapes() == ()
    assert broadcast_shapes((3, 1), (), (1, 4)) == (3, 4)
    assert broadcast_shapes((0, 1), (1, 3)) == (0, 3)
    assert broadcast_shapes((B,), (T,)) == (parse_dim("bcast(B, T)"),)
    assert broadcast_shapes((B,), (7,)) == (7,)
    assert broadcast_shapes((B,), (0,)) == (0,)
    assert broadcast_shapes((B,), (1,)) == (B,)
    assert broadcast_shapes((B,), (T,), (N,), (T,)) == (parse_dim("bcast(B, N, T)"),)
    assert broadcast_shapes((B,), (T,), facts=Facts(["B >= 2"])) == (B,)


def test_broadcast_uses_known_equality() -> None:
    assert broadcast_shapes((B,), (T,), facts=Facts(["T == B"])) == (B,)


@pytest.mark.parametrize(
    ("shapes", "facts", "message"),
    [
        (((B, 3), (5,)), (), r"shapes \(B,3\) \(5,\): dimension 1 is 3 in operand 0 and 5 in operand 1"),
        (((2, 1), (1,), (B, 3, 1)), (), r"dimension 1 is 2 in operand 0 and 3 in operand 2"),
        (((0, 2), (3, 2)), (), r"dimension 0 is 0 in operand 0 and 3 in operand 1"),
        (
            ((T, 4), (B, 4)),
            ("T >= 8", "2 <= B <= 7"),
            r"\(T,4\) \(B,4\): dimension 0 is T in operand 0 and B in operand 1",
        ),
        (((T,), (5,)), ("T >= 6",), r"dimension 0 is T in operand 0 and 5 in operand 1"),
        (((T, 1), (5, 1), (1, 1)), ("T % 2 == 0",), r"dimension 0 is T in operand 0 and 5 in operand 1"),
    ],
)
def test_broadcast_mismatch(shapes: Any, facts: tuple[str, ...], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        broadcast_shapes(*shapes, facts=Facts(facts))
    if not facts:
        with pytest.raises(ShapeError, match=message):
            broadcast_shapes(*shapes)


# --- Reshape ---------------------------------------------------------------------------------------------------------


@given(st.data())
def test_reshape_is_numpys(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 6]), max_size=4)))
    total = int(np.prod(shape, dtype=int))
    # Mostly sizes that fit: factors of the total.
    rest, new = total, []
    for _ in range(data.draw(st.integers(0, 3))):
        factor = data.draw(st.sampled_from([f for f in (1, 2, 3, 4, 6) if rest and rest % f == 0] or [0, 2]))
        new.append(factor)
        rest = rest // factor if factor else rest
    new.append(rest)
    if data.draw(st.integers(0, 5)) == 0:
        new = [data.draw(st.sampled_from([0, 1, 2, 3, 5])) for _ in new]
    if data.draw(st.booleans()):
        new[data.draw(st.integers(0, len(new) - 1))] = -1
    if data.draw(st.integers(0, 9)) == 0:
        new.append(-1)
    env: dict[str, int] = {}
    symbolic_shape = symbolic(data.draw, shape, env)
    symbolic_new = tuple(-1 if n == -1 else symbolic(data.draw, (n,), env)[0] for n in new)
    array = np.zeros(shape)
    refusal = message_of(array.reshape, new)
    if refusal is not None:
        assert message_of(solve_reshape, shape, new) == refusal
        if env:
            message_of(solve_reshape, symbolic_shape, symbolic_new)  # may see it, or leave it to run time
        return
    expected = array.reshape(new).shape
    assert solve_reshape(shape, new) == expected
    assert values(solve_reshape(symbolic_shape, symbolic_new), env) == expected


@pytest.mark.parametrize(
    ("shape", "new", "expected"),
    [
        ("B, T, 768", "-1, 768", "B*T, 768"),
        ("B*T, 768", "B, T, -1", "B, T, 768"),
        ("B, T, 768", "B, -1, 12, 64", "B, T, 12, 64"),
        ("B, T, 768", "-1", "768*B*T"),
        ("B, T + 1, 4", "-1, T + 1", "4*B, T + 1"),
        ("B, T", "-1, 8", "(B*T)//8, 8"),
        ("T", "-1, 1", "T, 1"),
        ("6, B", "-1, 2*B", "3, 2*B"),
        ("4, B", "B, 4", "B, 4"),
        ("0, B", "-1, B", "0, B"),
        ("B, T", "T, N", "T, N"),
    ],
)
def test_reshape_examples(shape: str, new: str, expected: str) -> None:
    def dims(text: str) -> tuple[DimLike, ...]:
        return tuple(map(parse_dim, text.split(", ")))

    assert solve_reshape(dims(shape), dims(new)) == dims(expected)


def test_reshape_with_facts() -> None:
    facts = Facts(["T % 8 == 0"])
    assert solve_reshape((T, 3), (-1, 8, 3), facts) == (T // 8, 8, 3)
    with pytest.raises(ShapeError, match=r"cannot reshape array of size T into shape \(8\)"):
        solve_reshape((T,), (-1, 8), Facts(["T % 8 == 1"]))
    with pytest.raises(ShapeError, match=r"cannot reshape array of size T into shape \(8,newaxis\)"):
        solve_reshape((T,), (8, -1), Facts(["T % 8 == 1"]))
    with pytest.raises(ShapeError, match=r"cannot reshape array of size T into shape \(4,4\)"):
        solve_reshape((T,), (4, 4), Facts(["T >= 17"]))
    with pytest.raises(ShapeError, match=r"cannot reshape array of size 2\*T \+ 1 into shape \(2,newaxis\)"):
        solve_reshape((2 * T + 1,), (2, -1))
    with pytest.raises(ShapeError, match="can only specify one unknown dimension"):
        solve_reshape((B, T), (-1, -1))


def test_reshape_never_leaves_a_hole() -> None:
    for shape in itertools.product([0, 1, 6, B, 2 * T, B + 1], repeat=2):
        out = solve_reshape(shape, (-1,))
        assert len(out) == 1
        assert not isinstance(out[0], int) or out[0] >= 0


# --- Axes ------------------------------------------------------------------------------------------------------------


def test_axes_are_numpys() -> None:
    for rank in range(4):
        array = np.zeros((2,) * rank)
        for axis in range(-5, 6):
            refusal = message_of(np.lib.array_utils.normalize_axis_index, axis, rank)
            assert message_of(normalize_axis, axis, rank) == refusal
            if refusal is None:
                assert normalize_axis(axis, rank) == axis % rank
        for axes in itertools.product(range(-3, 3), repeat=2):
            refusal = message_of(np.sum, array, axes)
            assert (message_of(normalize_axes, axes, rank) or "None").startswith(str(refusal))
            if refusal is None:
                assert normalize_axes(axes, rank) == tuple(axis % rank for axis in axes)
    assert normalize_axes(None, 3) == (0, 1, 2)
    assert normalize_axes(-1, 3) == (2,)
    assert normalize_axes([], 3) == ()


# --- Slices, ranges, joins, windows ----------------------------------------------------------------------------------

ENDS = [None, -7, -6, -5, -2, -1, 0, 1, 2, 4, 5, 6, 8]


@pytest.mark.parametrize("step", [None, 1, 2, 3, 7, -1, -2, -7])
def test_slice_of_a_symbolic_size_is_pythons(step: int | None) -> None:
    for start, stop in itertools.product(ENDS, ENDS):
        symbolic_count = slice_dim(T, start, stop, step)
        for n in range(7):
            expected = len(range(n)[slice(start, stop, step)])
            assert evaluate(symbolic_count, {"T": n}) == expected, (start, stop, step, n)
            assert slice_dim(n, start, stop, step) == expected


@given(
    st.integers(0, 6),
    st.tuples(st.sampled_from(ENDS), st.sampled_from(ENDS), st.sampled_from([None, 1, 2, -1, -3])),
    st.tuples(*[st.sampled_from(["static", "scalar", "bounded scalar", "shifted"])] * 3),
    st.booleans(),
)
def test_slice_with_symbolic_ends_and_step(
    n: int, numbers: tuple[int | None, ...], kinds: tuple[str, ...], static: bool
) -> None:
    env: dict[str, int] = {"T": n}
    facts = Facts()
    arguments: list[DimLike | None] = []
    for i, (number, kind) in enumerate(zip(numbers, kinds, strict=True)):
        if number is None or kind == "static":
            arguments.append(number)
            continue
        symbol = Symbol(f"s{i}", "scalar")
        if kind == "shifted":
            env[symbol.name] = number - n
            arguments.append(symbol + T)
            continue
        env[symbol.name] = number
        arguments.append(symbol)
        if kind == "bounded scalar":
            facts.constrain(f"{symbol} >= 0" if number >= 0 else f"{symbol} < 0")
    dim = n if static else T
    expected = len(range(n)[slice(*numbers)])
    assert evaluate(slice_dim(dim, *arguments, facts=facts), env) == expected
    assert evaluate(slice_dim(dim, *arguments), env) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((None, None, None), "T"),
        ((0, None, 1), "T"),
        ((None, 512, None), "min(T, 512)"),
        ((1, None, None), "max(T - 1, 0)"),
        ((None, -1, None), "max(T - 1, 0)"),
        ((None, None, 2), "(T + 1)//2"),
        ((None, None, -1), "T"),
        ((None, T, None), "T"),
        ((None, T + 1, None), "T"),
        ((None, K, None), None),
        ((5, 5, None), "0"),
        ((0, 0, 1), "0"),
    ],
)
def test_slices_are_simple_where_they_can_be(arguments: tuple[DimLike | None, ...], expected: str | None) -> None:
    out = slice_dim(T, *arguments)
    if expected is not None:
        assert out == parse_dim(expected)
    known = Facts(["T >= 8", "0 <= $k", "$k <= T"])
    assert slice_dim(T, 0, K, 1, known) == K
    assert slice_dim(T, 2, 6, None, known) == 4
    assert slice_dim(T, -3, None, None, known) == 3


def test_slice_step_zero() -> None:
    with pytest.raises(ShapeError, match="slice step cannot be zero"):
        slice_dim(T, 0, 3, 0)


@given(st.integers(-6, 6), st.integers(-6, 6), st.integers(-3, 3).filter(bool))
def test_arange_counts_as_range(start: int, stop: int, step: int) -> None:
    expected = len(range(start, stop, step))
    a, b, c = (Symbol(name, "scalar") for name in ("start", "stop", "step"))
    env = {"start": start, "stop": stop, "step": step}
    for x in (start, a):
        for y in (stop, b):
            for z in (step, c):
                assert evaluate(arange_dim(x, y, z), env) == expected
    assert arange_dim(0, T) is T
    with pytest.raises(ShapeError, match="cannot be zero"):
        arange_dim(0, 5, 0)


@given(st.lists(st.integers(0, 5), max_size=4))
def test_concat_adds_up(sizes: list[int]) -> None:
    assert concat_dim(sizes) == sum(sizes)
    symbols = [Symbol(f"c{i}") for i in range(len(sizes))]
    assert evaluate(concat_dim(symbols), {f"c{i}": n for i, n in enumerate(sizes)}) == sum(sizes)


@given(
    st.integers(0, 12), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.integers(0, 2), st.integers(1, 3)
)
def test_convolution_counts_the_places_of_the_kernel(
    size: int, kernel: int, stride: int, lo: int, hi: int, dilation: int
) -> None:
    padded = size + lo + hi
    places = [start for start in range(0, padded, stride) if start + dilation * (kernel - 1) < padded]
    if not places:
        with pytest.raises(ShapeError, match="the kernel does not fit: it spans"):
            conv_dim(size, kernel, stride, lo, hi, dilation)
        with pytest.raises(ShapeError, match="the kernel does not fit"):
            conv_dim(T, kernel, stride, lo, hi, dilation, facts=Facts([f"T <= {size}"]))
        return
    assert conv_dim(size, kernel, stride, lo, hi, dilation) == len(places)
    assert evaluate(conv_dim(T, kernel, stride, lo, hi, dilation), {"T": size}) == len(places)
    env = {"T": size, "q": kernel, "s": stride, "l": lo, "h": hi, "d": dilation}
    symbolic_result = conv_dim(T, *(Symbol(name) for name in "qslhd"))
    assert evaluate(symbolic_result, env) == len(places)


def test_convolution_arguments() -> None:
    assert conv_dim(T, 3, 1, 1, 1) is T
    assert str(conv_dim(T, 3, 2, 1, 1)) == "(T + 1)//2"
    for arguments, name in [((5, 0), "kernel size"), ((5, 3, 0), "stride"), ((5, 3, 1, 0, 0, 0), "dilation")]:
        with pytest.raises(ShapeError, match=f"{name} of a convolution: expected at least 1, got 0"):
            conv_dim(*arguments)


def test_static_shapes_give_ints() -> None:
    results = [
        *broadcast_shapes((2, 1), (3,)), *solve_reshape((2, 3), (-1,)), slice_dim(5, 1), arange_dim(0, 5, 2),
        concat_dim([2, 3]), conv_dim(8, 3),
    ]  # fmt: skip
    assert all(type(x) is int for x in results)
