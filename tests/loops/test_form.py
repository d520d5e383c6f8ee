"""The loop form: constructors and the checker refuse what is ill-formed, the evaluator gives NumPy's values."""

from __future__ import annotations

import numpy as np
import pytest

from tiercel.dtypes import float32, float64, int64
from tiercel.loops import IllFormed, check, evaluate, to_text
from tiercel.loops.form import (
    Allocate,
    Assign,
    Binary,
    Block,
    Buffer,
    Compare,
    Contract,
    Exit,
    For,
    Function,
    If,
    Let,
    Load,
    Local,
    Output,
    Reduce,
    Select,
    Store,
    Unary,
    Var,
    While,
    const,
)

B, N = Var("B"), Var("N")
I, J = Var("i"), Var("j")
X = Buffer("x", float32, (B, N))
Y = Buffer("y", float32, (B, N), space="result")


def f32(value):
    return const(value, float32)


def softmax_rows() -> Function:
    """Row softmax: maximum, exponentials with their sum, division."""
    peak, total = Var("peak", float32), Var("total", float32)
    exponential = Unary("exp", Binary("sub", Load(X, (I, J)), peak))
    row = Block((
        Local("peak", f32(-np.inf)),
        For("j", N, Block((Reduce("peak", "max", Load(X, (I, J))),)), "vector"),
        Local("total", f32(0.0)),
        For("j", N, Block((
            Let("e", exponential),
            Reduce("total", "add", Var("e", float32)),
            Store(Y, (I, J), Var("e", float32)),
        )), "vector"),
        For("j", N, Block((Store(Y, (I, J), Binary("div", Load(Y, (I, J)), total)),)), "vector"),
    ))  # fmt: skip
    return Function("softmax", (B, N), (), (X, Y), (), Block((For("i", B, row, "parallel"),)))


def test_softmax_evaluates_as_numpy():
    x = np.random.default_rng(0).standard_normal((3, 5), dtype=np.float32)
    y = np.empty_like(x)
    assert evaluate(check(softmax_rows()), {"x": x, "y": y}, {"B": 3, "N": 5}) == (
        0,
        {},
    )
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-6)


def test_printed_form_reads_like_python():
    text = to_text(softmax_rows())
    assert "def softmax(B, N):" in text
    assert "for i in range(B):  # parallel" in text
    assert "peak max= x[i, j]" in text
    assert "y[i, j] = (y[i, j] / total)" in text


def test_strided_view_of_an_arena_buffer():
    h = Buffer("h", float32, (B, N), space="arena")
    t = Buffer("t", float32, (N, B), strides=(const(1), N), space="arena", root="h")
    out = Buffer("o", float32, (N, B), space="result")
    body = Block((
        Allocate(h),
        Allocate(t),
        For("i", B, Block((For("j", N, Block((Store(h, (I, J), Load(X, (I, J))),))),))),
        For("j", N, Block((For("i", B, Block((Store(out, (J, I), Load(t, (J, I))),))),))),
    ))  # fmt: skip
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    o = np.empty((3, 2), np.float32)
    evaluate(
        check(Function("transpose", (B, N), (), (X, out), (), body)),
        {"x": x, "o": o},
        {"B": 2, "N": 3},
    )
    np.testing.assert_array_equal(o, x.T)


def test_while_counts_and_exits():
    n = Var("n", int64)
    body = Block((
        Local("n", const(0)),
        While(
            Block((Let("more", Compare("lt", n, B)),)),
            Var("more", Compare("lt", n, B).dtype),
            Block((
                Assign("n", Binary("add", n, const(1))),
                If(Compare("eq", n, const(7)), Block((Exit(3),))),
            )),
        ),
        Output("count", n),
    ))  # fmt: skip
    function = check(Function("count", (B,), (), (), (Var("count", int64),), body))
    assert evaluate(function, {}, {"B": 5}) == (0, {"count": 5})
    assert evaluate(function, {}, {"B": 0}) == (0, {"count": 0})
    assert evaluate(function, {}, {"B": 9})[0] == 3


def test_contract_with_bias_and_relu():
    k = Var("K")
    a = Buffer("a", float32, (B, k))
    w = Buffer("w", float32, (k, N))
    bias = Buffer("bias", float32, (N,))
    acc = Var("acc", float32)
    z = Binary("add", acc, Load(bias, (J,)))
    epilogue = Block((Store(Y, (I, J), Select(Compare("gt", z, f32(0.0)), z, f32(0.0))),))
    body = Block((Contract(a, w, "i", "j", "acc", epilogue, B, N, k),))
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.standard_normal((2, 4), dtype=np.float32),
        "w": rng.standard_normal((4, 3), dtype=np.float32),
        "bias": rng.standard_normal(3, dtype=np.float32),
        "y": np.empty((2, 3), np.float32),
    }
    function = check(Function("dense", (B, N, k), (), (a, w, bias, Y), (), body))
    evaluate(function, arrays, {"B": 2, "N": 3, "K": 4})
    np.testing.assert_allclose(
        arrays["y"],
        np.maximum(arrays["a"] @ arrays["w"] + arrays["bias"], 0),
        rtol=1e-6,
    )


def ill_formed():
    load = Load(X, (I, J))
    yield "rank", lambda: Load(X, (I,))
    yield "not int64", lambda: Load(X, (I, Var("j", float32)))
    yield "float32 and float64", lambda: Binary("add", load, const(1.0, float64))
    yield "does not take", lambda: Unary("exp", I)
    yield "unknown binary", lambda: Binary("plus", I, J)
    yield "condition is not bool", lambda: If(I, Block(()))
    yield "store of float64", lambda: Store(Y, (I, J), const(1.0, float64))
    yield "axis", lambda: For("i", B, Block(()), "fast")
    yield "numbered from 1", lambda: Exit(0)

    def function(*body):
        return lambda: check(Function("f", (B, N), (), (X, Y), (), Block(body)))

    yield "is not bound", function(Store(Y, (I, J), load))
    yield (
        "not a mutable local",
        function(Let("s", f32(0.0)), Reduce("s", "add", f32(1.0))),
    )
    yield "bound twice", function(Let("B", f32(0.0)))
    yield (
        "not declared",
        function(For("i", B, Block((Let("a", Load(Buffer("z", float32, (B,)), (I,))),)))),
    )
    yield (
        "parallel axis",
        function(
            Local("s", f32(0.0)),
            For("i", B, Block((Reduce("s", "add", f32(1.0)),)), "parallel"),
        ),
    )
    yield "used as", function(Let("s", f32(0.0)), Let("t", Var("s", float64)))


@pytest.mark.parametrize(("message", "build"), list(ill_formed()), ids=[m for m, _ in ill_formed()])
def test_ill_formed_is_refused(message, build):
    with pytest.raises(IllFormed, match=message):
        build()
