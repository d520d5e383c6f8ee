"""Mathematical functions of generated code: stated ULP bounds over the whole range, special values, flags.

float32 is held against NumPy's float64, float64 against long double (80 bits; skipped where it has no more than 64).
"""

from __future__ import annotations

import ctypes
import functools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from tests.codegen import native
from tests.codegen.native import build
from tiercel.codegen.abi import frame_size, frame_words
from tiercel.codegen.cpu.library import CALL
from tiercel.codegen.cpu.mathematics import BOUNDS, MATHEMATICS, RARE
from tiercel.codegen.cpu.target import Target
from tiercel.dtypes import as_dtype
from tiercel.loops import evaluate
from tiercel.loops.form import BINARY, UNARY, Binary, Block, Buffer, For, Function, Load, Output, Store, Unary, Var
from tiercel.operators import ALL

HOST = Target.host()
TARGETS = [HOST, HOST.without_avx512()] if HOST.masked_memory else [HOST]
LONG = np.longdouble
WIDE = {"float32": np.float64, "float64": LONG}
J, N = Var("j"), Var("N")
INVALID, DIVIDE, OVERFLOW = 1, 4, 8

needs_long_double = pytest.mark.skipif(np.finfo(LONG).nmant < 63, reason="long double is no wider than double")


@pytest.fixture(params=TARGETS, ids=lambda t: t.cpu)
def target(request):
    return request.param


class Compiled:
    """One operation over arrays, called as entries call regions; `flags` are those the last call raised."""

    def __init__(self, op, name, target=HOST):
        dtype = as_dtype(name)
        x, z = Buffer("x", dtype, (N,)), Buffer("z", dtype, (N,))
        value = Unary(op, Load(x, (J,))) if op in UNARY else Binary(op, Load(x, (J,)), Load(z, (J,)))
        y = Buffer("y", value.dtype, (N,), space="result")
        loop = For("j", N, Block((Store(y, (J,), value),)), "vector")
        self.function = Function("f", (N,), (), (x, z, y), (), Block((loop,)))
        self.mapped = build(self.function, target)
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
        self.enter = kind(native._library(target).address(CALL))
        self.flags = 0

    def __call__(self, x, z=None):
        x = np.ascontiguousarray(x)
        z = x if z is None else np.ascontiguousarray(z)
        y = np.empty_like(x)
        words, frame = frame_words(self.function), np.zeros(frame_size(self.function), np.int64)
        for name, value in (("N", x.size), ("x", x.ctypes.data), ("z", z.ctypes.data), ("y", y.ctypes.data)):
            frame[words[name]] = value
        self.flags = self.enter(self.mapped.address("f"), frame.ctypes.data) >> 32 & (INVALID | DIVIDE | OVERFLOW)
        return y


compiled = functools.cache(Compiled)


# -- references ---------------------------------------------------------------------------------------------------

ROOT_PI = np.sqrt(np.arctan(LONG(1)) * 4)


def long_erf(x):
    """2/sqrt(pi) exp(-x**2) times a series of positive terms: nothing cancels."""
    x = np.asarray(x, LONG)
    a = np.minimum(np.abs(np.where(np.isfinite(x), x, 0)), LONG(6.5))
    term, total = a.copy(), a.copy()
    for n in range(1, 260):
        term = term * (2 * a * a) / (2 * n + 1)
        total = total + term
    result = np.where(np.abs(x) > 6.4, 1, 2 / ROOT_PI * np.exp(-a * a) * total)
    return np.where(np.isnan(x), x, np.copysign(result, x))


def long_erfc(x):
    """1 - erf(x) below 1.5, the continued fraction above; the square is taken exactly in two parts."""
    x = np.asarray(x, LONG)
    a = np.where(np.isfinite(x), x, 0)
    far = a > 1.5
    b = np.minimum(np.where(far, a, 2), LONG(40))
    fraction = np.zeros_like(b)
    for k in range(500, 0, -1):
        fraction = LONG(k) / 2 / (b + fraction)
    high = b.astype(np.float32).astype(LONG)
    low = b - high
    e = np.exp(-high * high) * np.exp(-(2 * high * low + low * low))
    result = np.where(far, e / (b + fraction) / ROOT_PI, 1 - long_erf(np.where(far, 0, a)))
    result = np.where(np.isinf(x), np.where(x > 0, 0, 2), result)
    return np.where(np.isnan(x), x, result)


def sigmoid(x):
    z = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, z) / (1 + z)


NUMPY = {
    "exp_nonpositive": np.exp,
    "pow": np.power,
    "atan2": np.arctan2,
    "mod": np.remainder,
    "floordiv": np.floor_divide,
}
OURS = {"erf": long_erf, "erfc": long_erfc, "sigmoid": sigmoid}
EXACT = ("mod", "floordiv", "fmod")


def reference(op):
    return OURS.get(op) or NUMPY.get(op) or getattr(np, op)


UNARY_OPS = [op for op in BOUNDS if op in UNARY]
BINARY_OPS = [op for op in BOUNDS if op in BINARY]


def test_every_function_is_tested():
    assert set(BOUNDS) | set(EXACT) == set(MATHEMATICS)
    assert set(RARE) <= set(MATHEMATICS)


def test_bounds_are_those_of_the_page_and_within_the_rows():
    page = (Path(__file__).resolve().parents[2] / "docs" / "mathematics.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|", page)
    assert {name: (float(single), float(double)) for name, single, double in rows} == BOUNDS
    names = {"pow": "power", "atan2": "arctan2", "exp_nonpositive": "exp"}
    for op, bounds in BOUNDS.items():
        assert max(bounds) <= ALL[names.get(op, op)].exactness.ulp, op


# -- arguments ----------------------------------------------------------------------------------------------------

SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.0, -1.0, 0.5, -0.5, 1e-40, -1e-40, 1e-45, 3e38)


def arguments(name):
    """Every 39989th bit pattern of float32; for float64 random patterns and ordinary numbers of many sizes."""
    if name == "float32":
        x = np.arange(0, 2**32, 39989, dtype=np.uint64).astype(np.uint32).view(np.float32).copy()
    else:
        rng = np.random.default_rng(1)
        patterns = rng.integers(0, 2**64, 20_000, dtype=np.uint64, endpoint=False).view(np.float64)
        ordinary = rng.standard_normal(20_000) * 10.0 ** rng.integers(-6, 4, 20_000)
        near_one = 1 + rng.standard_normal(8_000) * 10.0 ** rng.integers(-12, 1, 8_000)
        x = np.concatenate([patterns, ordinary, rng.uniform(-20, 20, 16_000), near_one])
    with np.errstate(all="ignore"):
        x[: len(SPECIAL)] = SPECIAL
    return x


def pairs(name):
    dtype = np.dtype(name)
    rng, count = np.random.default_rng(2), 15_000
    integer = np.dtype(f"u{dtype.itemsize}")

    def patterns():
        return rng.integers(0, np.iinfo(integer).max, count, integer, endpoint=True).view(dtype)

    def ordinary():
        return (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 3, count)).astype(dtype)

    with np.errstate(all="ignore"):
        chosen = np.array([*SPECIAL, 2, -2, 3, -3, 0.99, 1.01, 2**24 + 2, np.finfo(dtype).max, 1e30, -1e30], dtype)
    a, b = np.meshgrid(chosen, chosen)
    x = [patterns(), ordinary(), np.abs(ordinary()), a.ravel(), patterns(), np.rint(ordinary() * 10)]
    y = [patterns(), ordinary(), ordinary(), b.ravel(), ordinary(), np.rint(ordinary())]
    return np.concatenate(x), np.concatenate(y)


@functools.cache
def wanted(op, name):
    """(arguments..., exact results in a wider dtype)."""
    operands = (arguments(name),) if op in UNARY else pairs(name)
    if op == "exp_nonpositive":
        operands = (-np.abs(operands[0]),)
    function = getattr(special, op) if name == "float32" and op in ("erf", "erfc") else reference(op)
    with np.errstate(all="ignore"):
        return *operands, function(*(a.astype(WIDE[name]) for a in operands))


# -- values -------------------------------------------------------------------------------------------------------


def hold(op, got, exact, bound, *operands):
    """Within `bound` ULP of the exact value; NaN, infinities and signs of zero where NumPy has them."""
    with np.errstate(all="ignore"):
        want = exact.astype(got.dtype)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want), err_msg=op)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]), err_msg=op)
    finite = np.isfinite(want) & np.isfinite(got)
    # rounding to infinity starts half an ULP beyond the largest number: one step off there is an error within bounds
    other = numbers & ~finite
    largest = np.finfo(got.dtype).max
    near = np.where(np.isinf(got[other]), np.abs(want[other]), np.abs(got[other])) >= largest * (1 - 1e-6)
    assert np.all((got[other] == want[other]) | near), op
    with np.errstate(all="ignore"):
        spacing = np.spacing(np.abs(want[finite])).astype(exact.dtype)
        spacing = np.where(np.isinf(spacing) | np.isnan(spacing), 2.0 ** (np.finfo(got.dtype).maxexp - 53), spacing)
        error = np.abs(got[finite].astype(exact.dtype) - exact[finite]) / spacing
    worst = int(np.argmax(error))
    at = [x[finite][worst] for x in operands]
    assert error[worst] <= bound, (op, float(error[worst]), at, got[finite][worst], exact[finite][worst])


@pytest.mark.parametrize("op", UNARY_OPS)
@pytest.mark.parametrize("name", ["float32", pytest.param("float64", marks=needs_long_double)])
def test_error_over_the_whole_range(op, name, target):
    x, exact = wanted(op, name)
    hold(op, compiled(op, name, target)(x), exact, BOUNDS[op][name == "float64"], x)


@pytest.mark.parametrize("op", BINARY_OPS)
@pytest.mark.parametrize("name", ["float32", pytest.param("float64", marks=needs_long_double)])
def test_error_over_pairs(op, name, target):
    *operands, exact = wanted(op, name)
    hold(op, compiled(op, name, target)(*operands), exact, BOUNDS[op][name == "float64"], *operands)


@pytest.mark.parametrize("op", ["sin", "cos", "tan"])
@pytest.mark.parametrize("name", ["float32", pytest.param("float64", marks=needs_long_double)])
def test_near_multiples_of_half_pi(op, name):
    """Where reducing the argument cancels most, on both sides of the limit up to which it is done in three parts."""
    rng = np.random.default_rng(4)
    k = np.concatenate([np.arange(1, 5000), rng.integers(1, 2 ** (18 if name == "float32" else 31), 20_000)])
    x = (k * (np.arctan(LONG(1)) * 2)).astype(name)
    x = np.concatenate([x, np.nextafter(x, x.dtype.type(0)), -x])
    if name == "float64":
        x[0] = math.ldexp(6381956970095103.0, 797)  # the double nearest to a multiple (J.-M. Muller's book)
    with np.errstate(all="ignore"):
        exact = reference(op)(x.astype(WIDE[name]))
    hold(op, compiled(op, name)(x), exact, BOUNDS[op][name == "float64"], x)


@pytest.mark.parametrize("op", EXACT)
@pytest.mark.parametrize("name", ["float32", "float64", "float16"])
def test_division_equals_numpy(op, name, target):
    dtype = np.dtype(name)
    with np.errstate(all="ignore"):
        x, y = pairs(name) if name != "float16" else (a.astype(dtype) for a in pairs("float32"))
        near = np.concatenate([y[:1000] * k for k in (1, 3, 7, 1023, 4e6)]).astype(dtype)
        x = np.concatenate([x, near, np.nextafter(near, dtype.type(0)), np.nextafter(near, dtype.type(np.inf))])
        y = np.concatenate([y, *[y[:1000]] * 15])
        want = reference(op)(x, y)
    got = compiled(op, name, target)(x, y)
    np.testing.assert_array_equal(got, want)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=70))
@settings(max_examples=60, deadline=None)
def test_quotient_and_remainder_belong_together(values):
    x, y = (np.array(v) for v in zip(*values, strict=True))
    with np.errstate(all="ignore"):
        want = np.divmod(x, y)
    np.testing.assert_array_equal(compiled("floordiv", "float64")(x, y), want[0])
    np.testing.assert_array_equal(compiled("mod", "float64")(x, y), want[1])


@pytest.mark.parametrize("op", UNARY_OPS)
def test_half_types_round_the_float32_result(op):
    x = np.arange(0, 2**16, 7, dtype=np.uint16).view(np.float16).copy()
    with np.errstate(all="ignore"):
        exact = reference(op)(x.astype(np.float64))
        want = exact.astype(np.float16)
    got = compiled(op, "float16")(x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    ok = np.isfinite(want) & np.isfinite(got)
    error = np.abs(got[ok].astype(np.float64) - exact[ok]) / np.spacing(np.abs(want[ok])).astype(np.float64)
    assert error.max() <= 0.51


# -- an element does not depend on its neighbours -----------------------------------------------------------------


@pytest.mark.parametrize("op", sorted(RARE))
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_ordinary_lanes_keep_their_value_beside_rare_ones(op, name, target):
    rng = np.random.default_rng(3)
    f = compiled(op, name, target)
    x, y = (rng.uniform(0.1, 9, 257).astype(name) for _ in range(2))
    alone = f(x, y)
    for rare in (0.0, np.inf, -2.0, np.nan, 1e-40, 1e30):
        mixed = x.copy()
        mixed[::5] = rare
        got = f(mixed, y)
        ordinary = np.arange(257) % 5 != 0
        np.testing.assert_array_equal(got[ordinary], alone[ordinary])
        np.testing.assert_array_equal(got[::5], [f(mixed[:1], y[k : k + 1])[0] for k in range(0, 257, 5)])


def test_one_lane_and_uniform_arguments(target):
    """Outside of vector axes, and where all lanes share the argument."""
    f32 = as_dtype("float32")
    x, y, a = Buffer("x", f32, (N,)), Buffer("y", f32, (N,), space="result"), Var("a", f32)
    from tiercel.loops.form import Let, const

    body = Block((
        Output("first", Unary("log", a)),
        For("j", N, Block((
            Let("s", Unary("sin", Load(x, (const(0),)))),
            Store(y, (J,), Binary("add", Binary("mul", Var("s", f32), Load(x, (J,))), Unary("log", a))),
        )), "vector"),
    ))  # fmt: skip
    function = Function("f", (N,), (a,), (x, y), (Var("first", f32),), body)
    code = build(function, target)
    for value, scalar in ((1e30, 0.0), (0.5, 3.0), (1e6, -1.0)):
        values = np.full(67, value, np.float32)
        values[1:] = 2
        got, want = np.zeros(67, np.float32), np.zeros(67, np.float32)
        result = native.call(code, function, {"x": values, "y": got}, {"N": 67}, {"a": scalar})
        expected = evaluate(function, {"x": values, "y": want}, {"N": 67}, {"a": scalar})
        np.testing.assert_allclose(got, want, rtol=3e-7)
        np.testing.assert_allclose(result[1]["first"], expected[1]["first"], rtol=3e-7)


# -- flags --------------------------------------------------------------------------------------------------------


def numpy_flags(function, *operands):
    found = set()

    def note(kind, _):
        found.add({"divide by zero": DIVIDE, "overflow": OVERFLOW, "underflow": 0, "invalid value": INVALID}[kind])

    with np.errstate(all="call", call=note):
        function(*operands)
    return sum(found)


PROBES = (
    *(0.0, 1.0, 0.5, 0.25, 2.0, 3.0, 1e-3, 9.5, 30.0, 88.0, 89.0, 104.0, 120.0, 709.0, 711.0, 800.0, 6e-8, 11.0, 12.0),
    *(1e5, 1e10, 1e30, 3e38, 1e-30, 1e-40, 1e-45, 65504.0, 65520.0, 1.0000001, 0.9999999, 1.5, math.inf, math.nan),
)
SILENT = ("erf", "erfc", "sigmoid")  # NumPy has no such function: our references never warn
OTHER_UNARY = ("neg", "abs", "floor", "ceil", "rint", "trunc", "sign", "sqrt", "rsqrt", "isnan", "isinf", "isfinite")


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("op", [*UNARY_OPS, *OTHER_UNARY])
def test_flags_are_numpys(op, name, target):
    """Of every kind and for every probe, whatever stands in the other lanes."""
    if (op, name) == ("rsqrt", "float16"):
        pytest.skip("NumPy has no such function, and two steps in float16 overflow where one in float32 does not")
    f = compiled(op, name, target)
    dtype = as_dtype(name).numpy
    numpys = {"neg": np.negative, "rsqrt": lambda x: 1 / np.sqrt(x)}.get(op) or reference(op)
    for probe in (*(PROBES if op != "exp_nonpositive" else ()), *(-p for p in PROBES)):
        with np.errstate(all="ignore"):
            x = np.array([{"arccosh": 1.5, "exp_nonpositive": -0.5}.get(op, 0.5), probe], dtype)
        want = 0 if op in SILENT else numpy_flags(numpys, x)
        f(x)
        assert f.flags == want, (op, probe)


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("op", [*BINARY_OPS, *EXACT])
def test_flags_of_pairs_are_numpys(op, name, target):
    f = compiled(op, name, target)
    for p in (0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 1e-40, 1e30, -1e30, math.inf, -math.inf):
        for q in (0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 1e-40, 1e30, math.inf, -math.inf):
            with np.errstate(all="ignore"):
                x, y = np.array([p], name), np.array([q], name)
            if op == "pow" and np.isinf(y[0]):
                continue  # NumPy's own flags differ here between its builds: some raise overflow for infinity
            want = numpy_flags(reference(op), x, y)
            f(x, y)
            assert f.flags == want, (op, p, q)


QUIET = ("min", "max", "fmin", "fmax", "sign", "isfinite", "isinf", "isnan", "signbit", "rint", "sqrt", "rsqrt")


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("op", [*UNARY_OPS, *BINARY_OPS, *EXACT, *QUIET])
def test_nan_raises_nothing(op, name, target):
    f = compiled(op, name, target)
    values = np.array([np.nan, 0.5, -np.nan, 0.75], name)
    f(values + (op == "arccosh"), values[::-1])
    assert f.flags == 0


@pytest.mark.parametrize("op", UNARY_OPS)
def test_ordinary_numbers_raise_nothing(op):
    """A flag that NumPy would not raise would send every call to the interpreter."""
    low, high = {
        "log": (1e-30, 1e30), "log2": (1e-30, 1e30), "log10": (1e-30, 1e30), "log1p": (-0.999, 1e30),
        "arccosh": (1, 1e30), "arctanh": (-0.99, 0.99), "arcsin": (-1, 1), "arccos": (-1, 1),
        "exp_nonpositive": (-1e30, 0),
    }.get(op, (-85, 85))  # fmt: skip
    for name in ("float32", "float64"):
        f = compiled(op, name)
        f(np.linspace(low, high, 10_007).astype(name))
        assert f.flags == 0
        if op in ("sigmoid", "tanh", "erf", "erfc", "arctan", "arcsinh", "sin", "cos", "cbrt"):
            f(np.array([-3e38, -1e30, -1e4, -700, -0.0, 0.0, 1e-40, 700, 1e4, 1e30, 3e38]).astype(name))
            assert f.flags == 0
