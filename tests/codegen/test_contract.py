"""Products with epilogues, packed and plain, and parallel axes: machine code against NumPy."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import tiercel as tc
from tests.codegen.native import build, call
from tiercel.codegen.cpu.contract import DOTTED_ROWS, expand_contracts
from tiercel.codegen.cpu.emit import emit
from tiercel.codegen.cpu.target import Target
from tiercel.dtypes import as_dtype
from tiercel.loops import check, evaluate
from tiercel.loops.form import (
    Allocate,
    Binary,
    Block,
    Buffer,
    Contract,
    For,
    Function,
    Let,
    Load,
    Local,
    Reduce,
    Store,
    Unary,
    Var,
    const,
)

HOST = Target.host()
TARGETS = [HOST, HOST.without_avx512()] if HOST.masked_memory else [HOST]
M, N, K = Var("M"), Var("N"), Var("K")
I, J = Var("i"), Var("j")


@pytest.fixture(params=TARGETS, ids=lambda t: t.cpu)
def target(request):
    return request.param


def dense(dtype, *, transposed=False, activation=None):
    a = Buffer("a", dtype, (M, K))
    w = Buffer("w", dtype, (K, N), strides=(const(1), K) if transposed else None)
    bias = Buffer("bias", dtype, (N,))
    y = Buffer("y", dtype, (M, N), space="result")
    value = Var("s", dtype)
    if activation:
        value = Unary(activation, Binary("add", value, Load(bias, (J,))))
    epilogue = Block((Store(y, (I, J), value),))
    body = Block((Contract(a, w, "i", "j", "s", epilogue, M, N, K),))
    return Function("dense", (M, N, K), (), (a, w, bias, y), (), body)


SIZES = [
    (1, 1, 1),
    (3, 200, 7),
    (64, 193, 20),
    (65, 5, 300),
    (130, 400, 3),
    (2, 1024, 256),
    (0, 5, 3),
    (5, 0, 3),
    (4, 6, 0),
]


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("activation", [None, "sqrt"])
def test_dense_layer(name, transposed, activation, target):
    dtype = as_dtype(name)
    function = dense(dtype, transposed=transposed, activation=activation)
    code = build(function, target)
    for m, n, k in SIZES:
        rng = np.random.default_rng(m + n + k)
        a, w = (rng.random(s).astype(dtype.numpy) for s in ((m, k), (k, n)))
        bias = rng.random(n).astype(dtype.numpy)
        y = np.full((m, n), 9, dtype.numpy)
        stored = np.ascontiguousarray(w.T) if transposed else w
        site, _ = call(code, function, {"a": a, "w": stored, "bias": bias, "y": y}, {"M": m, "N": n, "K": k})
        assert site == 0
        want = a.astype(np.float64) @ w.astype(np.float64)
        if activation:
            want = np.sqrt(want + bias)
        np.testing.assert_allclose(y, want, rtol=50 * np.finfo(dtype.numpy).eps)


def test_expanded_form_means_the_same(target):
    """The expansion is again a well-formed function that the evaluator gives the same values for."""
    function = dense(as_dtype("float32"), activation="tanh")
    expanded = check(expand_contracts(check(function), target))
    assert expanded is not function
    assert expand_contracts(expanded, target) is expanded
    rng = np.random.default_rng(0)
    sizes = {"M": 66, "N": 7, "K": 4}
    arrays = {n: rng.standard_normal(s, dtype=np.float32) for n, s in (("a", (66, 4)), ("w", (4, 7)), ("bias", 7))}
    got, want = np.zeros((66, 7), np.float32), np.zeros((66, 7), np.float32)
    evaluate(expanded, {**arrays, "y": got}, sizes)
    evaluate(function, {**arrays, "y": want}, sizes)
    np.testing.assert_allclose(got, want, rtol=1e-6)


class Pool:
    """A stand-in for the thread pool: runs the chunks of an axis backwards, on one thread, as several workers."""

    PART = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)

    def __init__(self, threads):
        self.calls = 0
        self.threads = threads
        self._run = self.RUN(self.run)
        self.word = np.array([ctypes.cast(self._run, ctypes.c_void_p).value], np.int64)

    def run(self, pool, part, env, extent):
        self.calls += 1
        cut = [extent * i // 7 for i in range(8)]
        for i in reversed(range(7)):
            self.PART(part)(env, cut[i], cut[i + 1], i % self.threads)


@pytest.mark.parametrize("threads", [1, 3])
def test_parallel_axis_gives_each_thread_its_own_arena(threads, target):
    """Rows in parallel, with scratch per row, captured scalars of several types, and a product inside."""
    f32, f64 = as_dtype("float32"), as_dtype("float64")
    x, y = Buffer("x", f32, (M, N)), Buffer("y", f32, (M, N), space="result")
    row = Buffer("row", f32, (N,), space="arena")
    flag, scale = Var("flag", as_dtype("bool")), Var("scale", f64)
    from tiercel.loops.form import Cast, Select

    body = Block((
        Allocate(row),
        For("j", N, Block((Store(row, (J,), Unary("exp", Load(x, (I, J)))),)), "vector"),
        Local("t", const(0.0, f32)),
        For("j", N, Block((Reduce("t", "add", Load(row, (J,))),)), "vector"),
        Let("u", Select(flag, Var("t", f32), const(1.0, f32))),
        For("j", N, Block((
            Store(y, (I, J), Binary("mul", Binary("div", Load(row, (J,)), Var("u", f32)), Cast(scale, f32))),
        )), "vector"),
    ))  # fmt: skip
    function = Function("rows", (M, N), (flag, scale), (x, y), (), Block((For("i", M, body, "parallel"),)))
    code = build(function, target)
    pool = Pool(threads)
    values = np.random.default_rng(0).standard_normal((300, 500), dtype=np.float32)
    e = np.exp(values)
    for given, want in ((True, 2 * e / e.sum(axis=1, keepdims=True)), (False, 2 * e)):
        got = np.zeros_like(values)
        call(code, function, {"x": values, "y": got}, {"M": 300, "N": 500}, {"flag": given, "scale": 2.0},
             pool=pool.word.ctypes.data, threads=threads)  # fmt: skip
        np.testing.assert_allclose(got, want, rtol=1e-5)
    assert pool.calls == 2
    got = np.zeros((2, 5), np.float32)
    call(code, function, {"x": values[:2, :5].copy(), "y": got}, {"M": 2, "N": 5}, {"flag": False, "scale": 1.0},
         pool=pool.word.ctypes.data, threads=threads)  # fmt: skip
    assert pool.calls == 2, "small work stays serial"
    np.testing.assert_allclose(got, e[:2, :5], rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_parallel_product(threads, target):
    function = dense(as_dtype("float32"), transposed=True, activation="tanh")
    code = build(function, target)
    pool = Pool(threads)
    rng = np.random.default_rng(0)
    m, n, k = 150, 500, 64
    a, w, bias = (rng.standard_normal(s, dtype=np.float32) for s in ((m, k), (n, k), n))
    y = np.zeros((m, n), np.float32)
    call(code, function, {"a": a, "w": w, "bias": bias, "y": y}, {"M": m, "N": n, "K": k},
         pool=pool.word.ctypes.data, threads=threads)  # fmt: skip
    assert pool.calls == 1
    np.testing.assert_allclose(y, np.tanh(a @ w.T + bias), atol=2e-5)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("activation", [None, "tanh"])
def test_bits_do_not_depend_on_threads_or_rows(activation, transposed, target):
    """However a product is cut, every row has the bits it has alone, and each element is written once.

    Of `a @ w.T` up to `DOTTED_ROWS` rows have bits of their own.
    """
    function = dense(as_dtype("float32"), transposed=transposed, activation=activation)
    code = build(function, target)
    rng = np.random.default_rng(0)
    for n, k in ((1, 700), (47, 33), (130, 1024), (1030, 64)):
        w, bias = (rng.standard_normal(s, dtype=np.float32) for s in ((n, k) if transposed else (k, n), n))
        a = rng.standard_normal((137, k), dtype=np.float32)
        whole = None
        for m, threads in ((137, 1), (137, 2), (137, 5), (65, 3), (9, 2), (8, 4), (5, 2), (4, 2), (4, 1), (3, 1),
                           (1, 2), (0, 2)):  # fmt: skip
            if transposed and threads == 2 and m == DOTTED_ROWS:
                whole = None
            pool = Pool(threads)
            y = np.full((m, n), np.nan, np.float32)
            call(code, function, {"a": a[:m], "w": w, "bias": bias, "y": y}, {"M": m, "N": n, "K": k},
                 pool=pool.word.ctypes.data, threads=threads)  # fmt: skip
            np.testing.assert_allclose(
                y, _dense_reference(a[:m], w.T if transposed else w, bias, activation), atol=1e-3
            )
            whole = y if whole is None else whole
            np.testing.assert_array_equal(y, whole[:m])


def _dense_reference(a, w, bias, activation):
    y = a.astype(np.float64) @ w
    return np.tanh(y + bias) if activation == "tanh" else y


def test_the_epilogue_reads_and_writes_whole_vectors():
    """Its loads and stores are contiguous along the columns; gathered they take ten times as long."""
    text = emit(dense(as_dtype("float32"), activation="tanh"), Target.host())
    assert "masked.gather" not in text
    assert "masked.scatter" not in text


def test_few_rows_need_little_memory():
    """A tile has no more rows than the product: small products are entered through machine code."""
    from tests.compiler.tracing import Compiled
    from tiercel.codegen.cpu.choice import BLOCKS
    from tiercel.codegen.cpu.contract import expand_contracts
    from tiercel.loops import to_text

    def f(x, w):
        return np.tanh(x @ w)

    lowered = Compiled(f, np.ones((3, 4), np.float32), np.ones((4, 4), np.float32)).runner.lowered
    text = to_text(expand_contracts(lowered.function, Target.host()))
    (tile,) = [line for line in text.splitlines() if "tile" in line and "arena" in line]
    assert f"min({BLOCKS['tall'][0]}, x_0)" in tile, tile


@pytest.mark.parametrize("rows", [64, 65, 127, 128, 512, 1021])
def test_a_block_has_room_for_its_rows(rows):
    """Rows of a block are whole register tiles, of which the last may reach beyond what the block has room for."""
    rng = np.random.default_rng(rows)
    w, b = (tc.constant(rng.standard_normal(s, dtype=np.float32)) for s in ((192, 384), (384,)))

    @tc.jit
    def layer(x):
        return np.maximum(x @ w + b, 0)

    x = rng.standard_normal((rows, 192), dtype=np.float32)
    with tc.context(threads=2):
        layer.warmup(x)
        got = layer(x)
        assert layer.stats()["compiled_calls"] == 1
    np.testing.assert_allclose(got, np.maximum(x @ np.asarray(w) + np.asarray(b), 0), rtol=1e-4, atol=1e-4)
