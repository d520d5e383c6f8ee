"""Regions through fusion and lowering: evaluator and machine code against NumPy, over changing sizes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.compiler.regions import ExitTaken, RegionBuilder, Runner
from tiercel.compiler.elementwise import EXPRESSIONS, NotLowered
from tiercel.compiler.expand import expand_composites
from tiercel.compiler.fuse import Group, fuse
from tiercel.loops import to_text
from tiercel.operators import ALL
from tiercel.shapes import Symbol

SIZES = [(3, 5), (1, 1), (0, 4), (4, 0), (2, 70), (65, 3)]


def random(*shape, seed=0, dtype="float32"):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def agree(region, reference, *argument_sets, rtol=2e-5, atol=1e-6):
    """Evaluator and machine code give NumPy's shapes, dtypes and values; returns the runner."""
    runner = Runner(region)
    for arrays in argument_sets:
        with np.errstate(all="ignore"):
            want = reference(*arrays)
        want = want if isinstance(want, tuple) else (want,)
        for native in (False, True) if max((np.size(a) for a in arrays), default=0) < 500 else (True,):
            got = runner(*arrays, native=native)
            got = got if isinstance(got, tuple) else (got,)
            for g, w in zip(got, want, strict=True):
                assert (np.shape(g), np.asarray(g).dtype) == (np.shape(w), np.asarray(w).dtype)
                np.testing.assert_allclose(g, w, rtol=rtol, atol=atol)
    return runner


def test_chain_with_broadcast_row():
    b = RegionBuilder("chain")
    x, y = b.input("x", ("B", "N")), b.input("y", ("N",))
    region = b.region(b.apply("multiply", b.apply("exp", b.apply("add", x, y)), 2.0))
    agree(region, lambda x, y: np.exp(x + y) * 2, *((random(*s), random(s[1])) for s in SIZES))


def test_contiguous_axes_become_one():
    b = RegionBuilder("flat")
    x, y = b.input("x", ("A", "B", "C")), b.input("y", ("A", "B", "C"))
    runner = agree(b.region(b.apply("add", x, y)), np.add, (random(2, 3, 5), random(2, 3, 5, seed=1)))
    text = to_text(runner.lowered.function)
    assert text.count("for ") == 2, text  # chunks and elements


def test_large_flat_chain_in_chunks():
    b = RegionBuilder("chunks")
    x = b.input("x", ("N",))
    region = b.region(b.apply("sqrt", b.apply("absolute", x)))
    agree(region, lambda x: np.sqrt(np.abs(x)), (random(40_000),), (random(16_384),), (random(1),), (random(0),))


def test_equal_sizes_of_different_symbols_are_checked():
    """Two symbols not known to be equal: one may be 1 (broadcast), else they must agree, or the region is left."""
    b = RegionBuilder("open")
    x, y = b.input("x", ("A",)), b.input("y", ("B",))
    runner = agree(b.region(b.apply("add", x, y)), np.add, *(
        (random(a), random(c, seed=3)) for a, c in ((5, 5), (1, 5), (5, 1), (1, 1), (0, 1), (70, 70))
    ))  # fmt: skip
    for native in (False, True):
        with pytest.raises(ExitTaken):
            runner(random(4), random(5), native=native)


@pytest.mark.parametrize("operator", ["softmax", "log_softmax"])
def test_softmax(operator):
    b = RegionBuilder(operator)
    x = b.input("x", ("B", "N"))

    def reference(x):
        e = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
        soft = e / e.sum(-1, keepdims=True)
        return soft if operator == "softmax" else np.log(soft)

    runner = agree(b.region(b.apply(operator, x, axis=-1)), reference, *((random(*s),) for s in SIZES), atol=1e-5)
    # three passes over a row; the last one of a softmax by the reciprocal and, where that will not do, by division
    assert to_text(runner.lowered.function).count("# vector") == 3
    assert to_text(runner.lowered.function).count("exp_nonpositive(") == 1, "the costly step once"


def test_softmax_written_out_fuses_as_well():
    b = RegionBuilder("softmax_by_hand")
    x = b.input("x", ("B", "N"))
    e = b.apply("exp", b.apply("subtract", x, b.apply("max", x, axis=-1, keepdims=True)))
    y = b.apply("divide", e, b.apply("sum", e, axis=-1, keepdims=True))
    region = b.region(y)
    assert sum(isinstance(i, Group) for i in fuse(region.graph)) == 1
    runner = agree(region, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True), (random(3, 50),))
    with pytest.raises(ExitTaken):
        runner(random(3, 0))  # NumPy raises for the maximum of nothing: the interpreter does that


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dividing_by_a_sum_that_has_no_reciprocal(dtype):
    """Values and floating-point flags where 1 / sum would overflow, underflow or be no number."""
    b = RegionBuilder("shares")
    x = b.input("x", ("B", "N"), dtype)
    runner = Runner(b.region(b.apply("divide", x, b.apply("sum", x, axis=-1, keepdims=True))))
    assert "inverse" in to_text(runner.lowered.function)
    for row in (
        [1, 2],
        [0, 0],
        [1, -1],
        [1e-40, 1e-40],
        [1e38, 1e38],
        [3e38, 3e38],
        [np.inf, 1],
        [np.nan, 1],
        [-0.0, 0],
    ):
        want_raised: set[str] = set()
        raised: set[str] = set()
        with np.errstate(over="ignore", under="ignore"):
            values = np.array([row], dtype)
        with np.errstate(all="call", under="ignore", call=lambda kind, _, want=want_raised: want.add(kind)):
            want = values / values.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(runner(values, raised=raised), want, rtol=1e-6)
        assert raised == want_raised, row


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dividing_by_a_deviation_is_one_rounding_more(dtype):
    """A row of docs/semantics.md; rows whose deviation has no reciprocal are divided."""
    b = RegionBuilder("normal")
    x = b.input("x", ("B", "N"), dtype)
    mean = b.apply("divide", b.apply("sum", b.apply("multiply", x, x), axis=-1, keepdims=True), b.number(4))
    runner = Runner(b.region(b.apply("divide", x, b.apply("sqrt", b.apply("add", mean, b.number(1e-5))))))
    assert "inverse" in to_text(runner.lowered.function)
    rng = np.random.default_rng(3)
    rows = [rng.standard_normal(4) * scale for scale in (1.0, 1e-3, 1e-18, 1e18)]
    rows += [[0, 0, 0, 0], [np.inf, 1, 1, 1], [np.nan, 1, 1, 1], [2e19, 1, 1, 1]]
    for row in rows:
        values = np.array([row], dtype)
        with np.errstate(all="ignore"):
            want = values / np.sqrt((values * values).sum(axis=-1, keepdims=True) / 4 + 1e-5)
        np.testing.assert_allclose(runner(values), want, rtol=4 * np.finfo(dtype).eps)


def test_a_maximum_is_divided_by():
    b = RegionBuilder("peaks")
    x = b.input("x", ("B", "N"), "float32")
    runner = Runner(b.region(b.apply("divide", x, b.apply("max", x, axis=-1, keepdims=True))))
    assert "inverse" not in to_text(runner.lowered.function)
    values = np.random.default_rng(1).uniform(1, 2, (3, 40)).astype(np.float32)
    np.testing.assert_array_equal(runner(values), values / values.max(axis=-1, keepdims=True))


def test_a_scalar_between_row_steps_does_not_split_them():
    b = RegionBuilder("layer_norm_by_hand")
    x = b.input("x", ("B", "N"))
    centred = b.apply("subtract", x, b.apply("mean", x, axis=-1, keepdims=True))
    spread = b.apply("mean", b.apply("multiply", centred, centred), axis=-1, keepdims=True)
    epsilon = b.apply("multiply", 1e-3, 1e-2)
    y = b.apply("divide", centred, b.apply("sqrt", b.apply("add", spread, epsilon)))
    runner = Runner(b.region(y))
    assert to_text(runner.lowered.function).count("# parallel") == 1
    values = random(4, 33)
    d = values - values.mean(-1, keepdims=True)
    np.testing.assert_allclose(
        runner(values), d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5), rtol=1e-5, atol=1e-6
    )


def test_layer_norm_with_weights():
    b = RegionBuilder("layer_norm")
    x, w, c = b.input("x", ("B", "T", 16)), b.input("w", (16,)), b.input("c", (16,))

    def reference(x, w, c):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt(x.var(-1, keepdims=True) + np.float32(1e-5)) * w + c

    region = b.region(b.apply("layer_norm", x, w, c, axis=-1))
    agree(region, reference, *((random(*s, 16), random(16), random(16, seed=9)) for s in SIZES))


REDUCED = [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), None]


@pytest.mark.parametrize("axis", REDUCED, ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("operator", ["sum", "max", "mean", "any"])
def test_reductions_over_every_axis(operator, axis, keepdims):
    b = RegionBuilder(operator)
    x = b.input("x", ("A", "B", "C"))
    region = b.region(b.apply(operator, x, axis=axis, keepdims=keepdims))
    sets = [(random(*s),) for s in ((2, 3, 4), (1, 1, 1), (3, 40, 2), (2, 3, 70))]
    agree(region, lambda x: getattr(np, operator)(x, axis=axis, keepdims=keepdims), *sets, atol=1e-5)


@pytest.mark.parametrize("operator", ["sum", "max", "any"])
def test_all_of_a_long_array_in_chunks(operator):
    """Of 64 partial sums in a chunk of 2**14: the error is far below that of adding one by one."""
    b = RegionBuilder(operator)
    x = b.input("x", ("A", "B"))
    runner = Runner(b.region(b.apply(operator, x)))
    assert "# parallel" in to_text(runner.lowered.function)
    for shape in ((0, 3) if operator != "max" else (1, 1), (3, 5), (128, 128), (37, 1000), (1000, 1001)):
        values = np.random.default_rng(1).uniform(0, 1, shape).astype(np.float32)
        exact = getattr(np, operator)(values.astype(np.float64))
        bound = (2**14 / 16 + values.size / 2**14 / 16 + 16) * 2.0**-24
        np.testing.assert_allclose(runner(values), exact, rtol=bound if operator == "sum" else 0)


def test_variance_is_two_pass():
    """A large mean does not destroy the small variance."""
    b = RegionBuilder("variance")
    x = b.input("x", ("B", "N"))
    region = b.region(b.apply("var", x, axis=-1))
    agree(region, lambda x: x.var(-1), (random(3, 64) + np.float32(1000),), rtol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dense_layer_with_epilogue(dtype):
    b = RegionBuilder("dense")
    x, w, c = b.input("x", ("B", "T", "K"), dtype), b.input("w", ("K", "N"), dtype), b.input("c", ("N",), dtype)
    region = b.region(b.apply("relu", b.apply("add", b.apply("matmul", x, w), c)))
    runner = agree(
        region,
        lambda x, w, c: np.maximum(x @ w + c, 0),
        *((random(p, q, 7, dtype=dtype), random(7, n, dtype=dtype), random(n, dtype=dtype))
          for p, q, n in ((2, 3, 5), (1, 1, 1), (0, 2, 3), (4, 20, 200))),
        atol=1e-4,
    )  # fmt: skip
    assert "contract" in to_text(runner.lowered.function)


def test_transposed_weight_is_a_view():
    b = RegionBuilder("linear")
    x, w, c = b.input("x", ("B", 6)), b.input("w", (9, 6)), b.input("c", (9,))
    region = b.region(b.apply("linear", x, w, c))
    agree(
        region, lambda x, w, c: x @ w.T + c, *((random(m, 6), random(9, 6), random(9)) for m in (1, 4, 70)), atol=1e-5
    )


def test_batched_product_with_softmax():
    """Attention scores: batched product, scale, softmax, batched product; broadcast of a mask."""
    b = RegionBuilder("attention")
    q, k, v = (b.input(n, ("B", "H", "T", 8)) for n in "qkv")
    mask = b.input("mask", ("T", "T"))
    scores = b.apply("matmul", q, b.apply("swapaxes", k, axis1=-1, axis2=-2))
    scores = b.apply("add", b.apply("multiply", scores, 8**-0.5), mask)
    y = b.apply("matmul", b.apply("softmax", scores, axis=-1), v)

    def reference(q, k, v, mask):
        s = q @ k.swapaxes(-1, -2) * np.float32(8**-0.5) + mask
        e = np.exp(s - s.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True)) @ v

    sizes = ((1, 2, 5), (2, 3, 17), (1, 1, 1))
    sets = [(*(random(bb, h, t, 8, seed=i) for i in range(3)), random(t, t)) for bb, h, t in sizes]
    agree(b.region(y), reference, *sets, atol=1e-5)


def test_views_cost_no_copy():
    """Transpose, reshape, split, index and expand_dims are strides; one nest reads through all of them."""
    b = RegionBuilder("views")
    x = b.input("x", (4, 6))
    left, right = b.apply("split", b.apply("transpose", x, axes=None), sections=2, axis=0)
    y = b.apply("add", left, b.apply("flip", right, axis=0))
    z = b.apply("expand_dims", b.apply("reshape", y, shape=(2, 6), order="C"), axis=1)
    runner = agree(
        b.region(b.apply("multiply", z, 3.0)),
        lambda x: ((x.T[:3] + x.T[3:][::-1]).reshape(2, 6))[:, None] * np.float32(3),
        (random(4, 6),),
    )
    assert to_text(runner.lowered.function).count("# vector") == 2


def test_strided_inputs():
    b = RegionBuilder("strided")
    x, y = b.input("x", ("B", "N"), strided=True), b.input("y", ("B", "N"))
    region = b.region(b.apply("add", b.apply("exp", x), y))
    spread = np.broadcast_to(random(9), (5, 9))
    for view in (random(9, 5).T, random(10, 18)[::2, ::2], random(5, 9)[::-1, ::-1], spread):
        agree(region, lambda x, y: np.exp(x) + y, (view, random(5, 9)))


def test_concat_and_stack():
    b = RegionBuilder("join")
    x, y = b.input("x", ("B", "N")), b.input("y", ("B", "M"))
    joined = b.apply("concat", x, y, axis=1)
    piled = b.apply("stack", x, b.apply("exp", x), axis=1)
    agree(
        b.region(joined, piled),
        lambda x, y: (np.concatenate([x, y], 1), np.stack([x, np.exp(x)], 1)),
        *((random(2, n), random(2, m)) for n, m in ((3, 4), (0, 2), (1, 0), (50, 60))),
    )


def test_lstm_layer():
    """The demo's layer: a time loop with a product and gates, states collected straight into the result."""
    hidden = 12
    b = RegionBuilder("lstm")
    x = b.input("x", ("B", "T", 4 * hidden))  # the input product, already added up
    h, c, w = b.input("h", ("B", hidden)), b.input("c", ("B", hidden)), b.input("w", (4 * hidden, hidden))

    def step(t, h, c):
        at = b.apply_index(x, (slice(None), t))
        z = b.apply("add", at, b.apply("matmul", h, b.apply("transpose", w, axes=None)))
        i, f, g, o = b.apply("split", z, sections=4, axis=1)
        c = b.apply(
            "add",
            b.apply("multiply", b.apply("sigmoid", f), c),
            b.apply("multiply", b.apply("sigmoid", i), b.apply("tanh", g)),
        )
        h = b.apply("multiply", b.apply("sigmoid", o), b.apply("tanh", c))
        return {"h": h, "c": c}, (h,)

    last_h, last_c, states = b.loop(Symbol("T"), {"h": h, "c": c}, step)
    outputs = b.apply("moveaxis", states, source=0, destination=1)

    def reference(x, h, c, w):
        states = []
        for t in range(x.shape[1]):
            i, f, g, o = np.split(x[:, t] + h @ w.T, 4, axis=1)
            c = 1 / (1 + np.exp(-f)) * c + 1 / (1 + np.exp(-i)) * np.tanh(g)
            h = 1 / (1 + np.exp(-o)) * np.tanh(c)
            states.append(h)
        return (np.stack(states, 1) if states else np.zeros((len(x), 0, hidden), x.dtype)), h, c

    sets = [
        (random(bb, t, 4 * hidden), random(bb, hidden), random(bb, hidden, seed=5), random(4 * hidden, hidden))
        for bb, t in ((1, 1), (3, 5), (2, 0), (0, 3), (40, 7))
    ]
    runner = agree(b.region(outputs, last_h, last_c), reference, *sets, atol=1e-5)
    text = to_text(runner.lowered.function)
    assert text.count("contract") == 1
    assert text.count("sigmoid") == 3


@pytest.mark.parametrize("key", sorted(EXPRESSIONS))
def test_every_expression_is_a_row_of_the_table(key):
    assert any(row.lowering.key == key for row in ALL.values())


@pytest.mark.parametrize(("operator", "pair"), list(itertools.product(
    ("add", "subtract", "multiply", "divide", "maximum", "equal", "less"),
    (("float32", "float64"), ("int32", "float32"), ("int8", "int64"), ("bool", "float32"), ("float16", "float32"),
     ("uint8", "uint8"), ("float16", "float16")),
)), ids=str)  # fmt: skip
def test_promotion_is_numpys(operator, pair):
    """Bit-equal results for exact operators over mixed dtypes."""
    if operator == "subtract" and pair[0] == "bool":
        pytest.skip("NumPy refuses to subtract bools")
    b = RegionBuilder(operator)
    x, y = b.input("x", ("N",), pair[0]), b.input("y", ("N",), pair[1])
    region = b.region(b.apply(operator, x, y))
    values = [np.abs(random(40, seed=i) * 3).astype(np.dtype(p)) + np.ones(1, np.dtype(p)) for i, p in enumerate(pair)]
    with np.errstate(all="ignore"):
        want = getattr(np, operator)(*values)
    got = Runner(region)(*values)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_composites_are_written_out():
    b = RegionBuilder("composite")
    x = b.input("x", ("B", "N"))
    region = b.region(b.apply("softmax", x, axis=-1))
    expanded = expand_composites(region.graph)
    assert [s.operator for s in expanded.steps] == ["max", "subtract", "exp", "sum", "divide"]
    assert expand_composites(expanded) is expanded


@pytest.mark.parametrize(
    ("reason", "build"),
    [
        ("complex numbers", lambda b, x: b.apply("exp", b.input("z", ("B",), "complex64"))),
        ("integer power", lambda b, x: b.apply("power", b.input("n", ("B", "N"), "int32"), b.input("k", (), "int32"))),
    ],
)
def test_what_is_not_lowered_says_why(reason, build):
    b = RegionBuilder("refused")
    x = b.input("x", ("B", "N"))
    with pytest.raises(NotLowered, match=reason) as caught:
        Runner(b.region(build(b, x)))
    assert caught.value.origin is not None


def test_a_reshaped_input_is_read_by_its_new_strides():
    """Rank and order are those of the input, the sizes are not: the view must not be taken for the input itself."""
    b = RegionBuilder("regrouped")
    x = b.input("x", ("A", "B"))
    y = b.apply("sum", b.apply("reshape", x, shape=(3, 2), order="C"), axis=1)
    agree(b.region(y), lambda x: x.reshape(3, 2).sum(axis=1), (random(2, 3),), (random(3, 2),), (random(6, 1),))


@pytest.mark.parametrize("sizes", [2, 3, 16, 17, 100])
def test_the_smallest_of_zeros_is_a_zero(sizes):
    """Which of 0.0 and -0.0 it is depends on the order of comparison, as it does in NumPy."""
    from tests.compiler.tracing import compare

    x = np.where(np.arange(sizes) % 2, -0.0, 0.0)
    compare(lambda x: (x.min(), x.max()), (x,), (-x,))
