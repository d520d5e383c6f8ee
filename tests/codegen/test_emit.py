"""Machine code against the evaluator of the loop form: statements, expressions, lanes and tails, both vector widths."""

from __future__ import annotations

import ctypes
import itertools
import mmap

import numpy as np
import pytest

from tests.codegen.native import build, call
from tiercel.codegen.cpu.mathematics import MATHEMATICS
from tiercel.codegen.cpu.target import Target
from tiercel.dtypes import as_dtype, bool_, float32, float64, int32, int64
from tiercel.loops import evaluate
from tiercel.loops.form import (
    BINARY,
    COMPARE,
    UNARY,
    Allocate,
    Assign,
    Binary,
    Block,
    Buffer,
    Cast,
    Compare,
    Exit,
    For,
    Function,
    If,
    IllFormed,
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

HOST = Target.host()
TARGETS = [HOST, HOST.without_avx512()] if HOST.masked_memory else [HOST]
LENGTHS = (0, 1, 2, 7, 31, 32, 33, 63, 64, 65, 131)
B, N = Var("B"), Var("N")
I, J = Var("i"), Var("j")


@pytest.fixture(params=TARGETS, ids=lambda t: t.cpu)
def target(request):
    return request.param


def along(dtype, value, out=None, **extra):
    """`y[j] = value` over a vector axis."""
    x, y = Buffer("x", dtype, (N,)), Buffer("y", out or value.dtype, (N,), space="result")
    body = Block((For("j", N, Block((Store(y, (J,), value),)), "vector"),))
    return Function("f", (N,), (), (x, *extra.values(), y), (), body)


def samples(dtype, count, seed=0):
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(np.bool_)
    if dtype.kind in "iu":
        info = np.iinfo(dtype.numpy)
        values = rng.integers(info.min, info.max, count, dtype=dtype.numpy, endpoint=True)
        values[::3] = rng.integers(1, 5, len(values[::3])).astype(dtype.numpy)
        return values
    values = (rng.standard_normal(count) * 10 ** rng.integers(-2, 3, count).astype(float)).astype(dtype.numpy)
    special_values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, 1e-40], dtype.numpy)
    values[: min(10, count)] = special_values[:count]
    return values


def agree(got, want, exact=True):
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want)) if got.dtype.kind == "f" else None
    if exact:
        np.testing.assert_array_equal(got, want)
        if got.dtype.kind == "f":
            zero = (want == 0) & ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
    else:
        np.testing.assert_allclose(got, want, rtol=4e-7, atol=1e-37)


NAMES = ("bool", "int8", "uint8", "int32", "uint32", "int64", "float16", "float32", "float64")
EXACT_UNARY = (
    *("neg", "abs", "not", "invert", "floor", "ceil", "rint", "trunc", "sign", "sqrt"),
    *("isnan", "isinf", "isfinite", "signbit"),
)


@pytest.mark.parametrize(
    ("op", "name"),
    [(op, n) for op in EXACT_UNARY for n in NAMES
     if as_dtype(n).kind in UNARY[op]],
)  # fmt: skip
def test_exact_unary_equals_numpy(op, name, target):
    dtype = as_dtype(name)
    function = along(dtype, Unary(op, Load(Buffer("x", dtype, (N,)), (J,))))
    code = build(function, target)
    for n in (1, 65):
        x = samples(dtype, n)
        got, want = (np.zeros(n, function.buffers[-1].dtype.numpy) for _ in range(2))
        call(code, function, {"x": x, "y": got}, {"N": n})
        evaluate(function, {"x": x, "y": want}, {"N": n})
        agree(got, want)


EXACT_BINARY = [op for op in BINARY if op not in ("pow", "atan2", "hypot")]


@pytest.mark.parametrize(
    ("op", "name"),
    [(op, n) for op in EXACT_BINARY for n in NAMES
     if as_dtype(n).kind in BINARY[op]],
)  # fmt: skip
def test_exact_binary_equals_numpy(op, name, target):
    dtype = as_dtype(name)
    z = Buffer("z", dtype, (N,))
    function = along(dtype, Binary(op, Load(Buffer("x", dtype, (N,)), (J,)), Load(z, (J,))), z=z)
    code = build(function, target)
    n = 131
    x, divisor = samples(dtype, n, 1), samples(dtype, n, 2)[::-1].copy()
    if op in ("shl", "shr"):
        divisor = (np.abs(divisor.astype(np.int64)) % (8 * dtype.itemsize)).astype(dtype.numpy)
    if op in ("floordiv", "mod") and dtype.kind in "iu":
        divisor[(divisor == 0) | (divisor == np.array(-1).astype(dtype.numpy))] = 3
    got, want = np.zeros(n, dtype.numpy), np.zeros(n, dtype.numpy)
    call(code, function, {"x": x, "z": divisor, "y": got}, {"N": n})
    evaluate(function, {"x": x, "z": divisor, "y": want}, {"N": n})
    agree(got, want)


@pytest.mark.parametrize(("op", "name"), list(itertools.product(COMPARE, ("int8", "uint64", "float32", "float16"))))
def test_compare_and_select(op, name, target):
    dtype = as_dtype(name)
    x, z = Buffer("x", dtype, (N,)), Buffer("z", dtype, (N,))
    a, b = Load(x, (J,)), Load(z, (J,))
    function = along(dtype, Select(Compare(op, a, b), a, b), z=z)
    code = build(function, target)
    n = 67
    arrays = {"x": samples(dtype, n, 1), "z": samples(dtype, n, 1)}
    arrays["z"][::2] = samples(dtype, n, 3)[::2]
    got, want = np.zeros(n, dtype.numpy), np.zeros(n, dtype.numpy)
    call(code, function, {**arrays, "y": got}, {"N": n})
    evaluate(function, {**arrays, "y": want}, {"N": n})
    np.testing.assert_array_equal(got.view(f"u{dtype.itemsize}"), want.view(f"u{dtype.itemsize}"))


CASTS = ("bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "float16", "bfloat16", "float32", "float64")


@pytest.mark.parametrize(("source", "result"), list(itertools.product(CASTS, CASTS)))
def test_cast_equals_astype(source, result):
    a, b = as_dtype(source), as_dtype(result)
    function = along(a, Cast(Load(Buffer("x", a, (N,)), (J,)), b), out=b)
    n = 67
    if a.kind == "f":
        values = np.random.default_rng(0).standard_normal(n) * 100
        x = np.abs(values).astype(a.numpy) if b.kind == "u" else np.clip(values, -120, 120).astype(a.numpy)
        if b.kind == "f":
            x[:6] = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40, 6e4]).astype(a.numpy)
    else:
        x = samples(a, n)
    got, want = np.zeros(n, b.numpy), np.zeros(n, b.numpy)
    call(build(function), function, {"x": x, "y": got}, {"N": n})
    with np.errstate(all="ignore"):
        want[:] = x.astype(b.numpy)
    if b.kind == "f":
        np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), np.isnan(want.astype(np.float64)))
        finite = ~np.isnan(want.astype(np.float64))
        np.testing.assert_array_equal(got[finite].astype(np.float64), want[finite].astype(np.float64))
    else:
        np.testing.assert_array_equal(got, want)


def softmax(x, y):
    peak, total, e = Var("peak", float32), Var("total", float32), Var("e", float32)
    row = Block((
        Local("peak", const(-np.inf, float32)),
        For("j", N, Block((Reduce("peak", "max", Load(x, (I, J))),)), "vector"),
        Local("total", const(0.0, float32)),
        For("j", N, Block((
            Let("e", Unary("exp", Binary("sub", Load(x, (I, J)), peak))),
            Reduce("total", "add", e),
            Store(y, (I, J), e),
        )), "vector"),
        For("j", N, Block((Store(y, (I, J), Binary("div", Load(y, (I, J)), total)),)), "vector"),
    ))  # fmt: skip
    return Function("softmax", (B, N), (), (x, y), (), Block((For("i", B, row),)))


@pytest.mark.parametrize("n", LENGTHS)
def test_softmax_rows(n, target):
    function = softmax(Buffer("x", float32, (B, N)), Buffer("y", float32, (B, N), space="result"))
    code = build(function, target)
    x = np.random.default_rng(n).standard_normal((3, n), dtype=np.float32)
    y = np.full_like(x, 7)
    assert call(code, function, {"x": x, "y": y}, {"B": 3, "N": n}) == (0, {})
    e = np.exp(x - x.max(axis=1, keepdims=True, initial=-np.inf))
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5)


def test_inputs_end_at_a_protected_page(target):
    """Nothing beyond the last element is touched, on either side of the call."""
    page = mmap.PAGESIZE
    function = softmax(Buffer("x", float32, (B, N)), Buffer("y", float32, (B, N), space="result"))
    code = build(function, target)
    arrays = {}
    regions = []
    for name in ("x", "y"):
        region = mmap.mmap(-1, 3 * page)
        regions.append(region)
        address = ctypes.addressof(ctypes.c_char.from_buffer(region))
        libc = ctypes.CDLL(None)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        assert libc.mprotect(address, page, 0) == 0
        assert libc.mprotect(address + 2 * page, page, 0) == 0
        arrays[name] = np.frombuffer(region, np.float32, page // 4, page)
    for n in (1, 5, 33, page // 4):
        tail = {k: np.ndarray((1, n), np.float32, a, page - 4 * n) for k, a in arrays.items()}
        tail["x"][:] = 1.0
        call(code, function, tail, {"B": 1, "N": n})
        np.testing.assert_allclose(tail["y"], 1 / n, rtol=1e-5)
        head = {k: np.ndarray((1, n), np.float32, a, 0) for k, a in arrays.items()}
        head["x"][:] = 1.0
        call(code, function, head, {"B": 1, "N": n})
        np.testing.assert_allclose(head["y"], 1 / n, rtol=1e-5)


@pytest.mark.parametrize("name", ["float32", "float64", "int8", "bool"])
def test_every_second_element_up_to_the_end_of_a_page(name, target):
    dtype = as_dtype(name)
    x = Buffer("x", dtype, (N,), strides=(const(2),))
    function = along(dtype, Load(x, (J,)))
    function = Function("f", (N,), (), (x, function.buffers[-1]), (), function.body)
    code = build(function, target)
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + page), page, 0) == 0
    for n in LENGTHS[1:]:
        size = 2 * n - 1
        values = np.ndarray((size,), dtype.numpy, memory, page - size * dtype.itemsize)
        values[:] = samples(dtype, size, seed=n)
        got = np.zeros(n, dtype.numpy)
        call(code, function, {"x": values, "y": got}, {"N": n})
        np.testing.assert_array_equal(got, values[::2])


@pytest.mark.parametrize("n", LENGTHS)
def test_strided_and_uniform_operands(n, target):
    """Run-time strides (negative and zero too) on the vector axis, a transposed view, a uniform element."""
    s = Var("s")
    x = Buffer("x", float32, (N,), strides=(s,))
    t = Buffer("t", float32, (B, N), strides=(const(1), B))
    y = Buffer("y", float32, (B, N), space="result")
    value = Binary("add", Binary("mul", Load(x, (J,)), Load(t, (I, J))), Load(t, (I, const(0))))
    body = Block((For("i", B, Block((For("j", N, Block((Store(y, (I, J), value),)), "vector"),))),))
    function = Function("strided", (B, N, s), (), (x, t, y), (), body)
    code = build(function, target)
    rng = np.random.default_rng(n)
    base = rng.standard_normal(3 * n + 3, dtype=np.float32)
    matrix = rng.standard_normal((n, 4), dtype=np.float32)
    for stride in (1, 3, -2, 0):
        start = base[2 * n :] if stride < 0 else base
        y_array = np.zeros((4, n), np.float32)
        call(code, function, {"x": start, "t": matrix, "y": y_array}, {"B": 4, "N": n, "s": stride})
        view = np.lib.stride_tricks.as_strided(start, (n,), (4 * stride,))
        want = view * matrix.T + matrix.T[:, :1] if n else y_array
        np.testing.assert_array_equal(y_array, want)


@pytest.mark.parametrize("n", LENGTHS)
def test_branch_in_lanes(n, target):
    """A branch that neighbouring lanes take differently, with a mutable local and a division in one arm."""
    x, y = Buffer("x", int32, (N,)), Buffer("y", int32, (N,), space="result")
    r = Var("r", int32)
    inner = Block((
        Local("r", const(-1, int32)),
        If(Compare("ne", Load(x, (J,)), const(0, int32)),
           Block((Assign("r", Binary("floordiv", const(1000, int32), Load(x, (J,)))),)),
           Block((Assign("r", const(7, int32)),))),
        Store(y, (J,), r),
    ))  # fmt: skip
    function = Function("lanes", (N,), (), (x, y), (), Block((For("j", N, inner, "vector"),)))
    values = np.random.default_rng(n).integers(-3, 4, n).astype(np.int32)
    got = np.zeros(n, np.int32)
    call(build(function, target), function, {"x": values, "y": got}, {"N": n})
    want = np.where(values != 0, 1000 // np.where(values == 0, 1, values), 7)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("n", LENGTHS)
def test_column_sums_run_over_lanes(n, target):
    """A serial reduction inside a vector axis: one accumulator per lane."""
    x, y = Buffer("x", float32, (B, N)), Buffer("y", float32, (N,), space="result")
    inner = Block((
        Local("s", const(0.0, float32)),
        For("i", B, Block((Reduce("s", "add", Load(x, (I, J))),))),
        Store(y, (J,), Var("s", float32)),
    ))  # fmt: skip
    function = Function("columns", (B, N), (), (x, y), (), Block((For("j", N, inner, "vector"),)))
    values = np.random.default_rng(n).standard_normal((5, n), dtype=np.float32)
    for rows in (0, 1, 5):
        got = np.full(n, 9, np.float32)
        call(build(function, target), function, {"x": values, "y": got}, {"B": rows, "N": n})
        np.testing.assert_allclose(got, values[:rows].sum(axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["add", "mul", "min", "max"])
@pytest.mark.parametrize("name", ["int32", "uint8", "float32", "float64"])
def test_reductions_over_lanes(op, name, target):
    dtype = as_dtype(name)
    x = Buffer("x", dtype, (N,))
    start = {"add": 0, "mul": 1, "min": 100, "max": 0}[op]
    body = Block((
        Local("r", const(start, dtype)),
        For("j", N, Block((Reduce("r", op, Load(x, (J,))),)), "vector"),
        Output("r_out", Var("r", dtype)),
    ))  # fmt: skip
    function = Function("reduce", (N,), (), (x,), (Var("r_out", dtype),), body)
    code = build(function, target)
    for n in LENGTHS:
        values = np.random.default_rng(n).integers(1, 3, n).astype(dtype.numpy)
        got = call(code, function, {"x": values}, {"N": n})[1]["r_out"]
        want = evaluate(function, {"x": values}, {"N": n})[1]["r_out"]
        assert got == want, (op, name, n)


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_extremes_keep_nan_and_raise_nothing(op, name, target):
    dtype = as_dtype(name)
    x = Buffer("x", dtype, (N,))
    start = np.inf if op == "min" else -np.inf
    body = Block((
        Local("r", const(start, dtype)),
        For("j", N, Block((Reduce("r", op, Load(x, (J,))),)), "vector"),
        Output("r_out", Var("r", dtype)),
    ))  # fmt: skip
    function = Function("peak", (N,), (), (x,), (Var("r_out", dtype),), body)
    code = build(function, target)
    for n in LENGTHS:
        values = np.random.default_rng(n).standard_normal(n).astype(name)
        for place in sorted({0, n // 3, n - 17, n - 1} & set(range(n))):
            for odd in (np.nan, -np.nan, np.inf, -np.inf, 0.0):
                x_values, raised = values.copy(), set()
                x_values[place] = odd
                got = call(code, function, {"x": x_values}, {"N": n}, raised=raised)[1]["r_out"]
                np.testing.assert_equal(got, getattr(x_values, op)())
                assert not raised
    assert call(code, function, {"x": values[:0]}, {"N": 0})[1]["r_out"] == start


def test_sums_are_of_lanes():
    """The order of a sum: 64 partial sums, so its error grows with n / 64, far below what the rows state."""
    x = Buffer("x", float32, (N,))
    body = Block((
        Local("r", const(0.0, float32)),
        For("j", N, Block((Reduce("r", "add", Load(x, (J,))),)), "vector"),
        Output("r_out", Var("r", float32)),
    ))  # fmt: skip
    function = Function("total", (N,), (), (x,), (Var("r_out", float32),), body)
    code = build(function)
    for n in (768, 4096, 100_003):
        values = np.random.default_rng(n).uniform(0, 1, n).astype(np.float32)
        got = call(code, function, {"x": values}, {"N": n})[1]["r_out"]
        bound = (n / 16 + 8) * 2.0**-24 * values.astype(np.float64).sum()  # 16 lanes where vectors are short
        assert abs(float(got) - values.astype(np.float64).sum()) <= bound


def test_while_exit_and_outputs(target):
    n = Var("n", int64)
    body = Block((
        Local("n", const(0)),
        Local("half", const(1.0, float64)),
        While(
            Block((Let("more", Compare("lt", n, B)),)),
            Var("more", bool_),
            Block((
                Assign("n", Binary("add", n, const(1))),
                Assign("half", Binary("mul", Var("half", float64), const(0.5, float64))),
                If(Compare("eq", n, const(7)), Block((Output("count", n), Exit(3)))),
            )),
        ),
        Output("count", n),
        Output("half_out", Var("half", float64)),
    ))  # fmt: skip
    function = Function("count", (B,), (), (), (Var("count", int64), Var("half_out", float64)), body)
    code = build(function, target)
    for size in (0, 1, 5):
        assert call(code, function, {}, {"B": size}) == (0, {"count": size, "half_out": 0.5**size})
    assert call(code, function, {}, {"B": 9})[0] == 3
    assert call(code, function, {}, {"B": 9})[1]["count"] == 7


def test_arena_buffers_views_and_scalars(target):
    h = Buffer("h", float32, (B, N), space="arena")
    g = Buffer("g", float32, (N,), space="arena")
    t = Buffer("t", float32, (N, B), strides=(const(1), N), space="arena", root="h")
    x = Buffer("x", float32, (B, N))
    out = Buffer("o", float32, (N, B), space="result")
    scale, flag = Var("scale", float32), Var("flag", bool_)
    body = Block((
        Allocate(g),
        Allocate(h),
        Allocate(t),
        For("j", N, Block((Store(g, (J,), const(2.0, float32)),)), "vector"),
        For("i", B, Block((For("j", N, Block((
            Store(h, (I, J), Binary("mul", Load(x, (I, J)), scale)),)), "vector"),))),
        For("j", N, Block((For("i", B, Block((
            Store(out, (J, I), Select(flag, Binary("add", Load(t, (J, I)), Load(g, (J,))), Load(g, (J,)))),
        )), "vector"),))),
    ))  # fmt: skip
    function = Function("scaled", (B, N), (scale, flag), (x, out), (), body)
    code = build(function, target)
    values = np.random.default_rng(0).standard_normal((5, 37), dtype=np.float32)
    got = np.zeros((37, 5), np.float32)
    for flag_value, want in ((True, values.T * np.float32(3) + 2), (False, np.full((37, 5), 2))):
        call(code, function, {"x": values, "o": got}, {"B": 5, "N": 37}, {"scale": 3.0, "flag": flag_value})
        np.testing.assert_array_equal(got, want)


def test_missing_mathematics_is_refused_not_guessed(target, monkeypatch):
    monkeypatch.delitem(MATHEMATICS, "erf")
    function = along(float64, Unary("erf", Load(Buffer("x", float64, (N,)), (J,))))
    with pytest.raises(IllFormed, match="erf of float64"):
        build(function, target)
